//! Filesystems made by the real tools on real loop devices.

use std::fs;
use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::*;
use crate::image;
use crate::loopdev::{self, BackingFile};
use crate::mounts::{MountFlags, mount_fs, unmount_all};
use crate::rig::{MIB, MINUTE, Rig, needs, uuid};

#[test]
fn names_and_uuids_round_trip() {
    for fs_type in FsType::ALL {
        assert_eq!(fs_type.to_string().parse(), Ok(fs_type));
    }
    assert!("ext3".parse::<FsType>().is_err());
    let text = "01234567-89ab-8def-8123-456789abcdef";
    assert_eq!(text.parse::<Uuid>().unwrap().to_string(), text);
    assert_eq!(Uuid::from_digest(*text.parse::<Uuid>().unwrap().as_bytes()).to_string(), text);
    for bad in [
        "",
        "0123456789ab8def8123456789abcdef",
        "0123456g-89ab-8def-8123-456789abcdef",
        "é1234567-89a-8def-8123-456789abcdef",
    ] {
        assert!(bad.parse::<Uuid>().is_err(), "{bad}");
    }
}

/// Makes each filesystem the test machine can make, a little above its minimum.
fn each(test: impl Fn(&Rig, FsType, u64)) {
    for fs_type in FsType::ALL {
        if let Some(why) = crate::rig::cannot_run(&[fs_type]) {
            println!("skipped: {why}");
            continue;
        }
        test(&Rig::new(), fs_type, fs_type.minimum_bytes() + 64 * MIB);
    }
}

#[test]
fn a_made_filesystem_is_recognised_with_the_uuid_it_was_given() {
    each(|rig, fs_type, size| {
        let image = rig.image("a.img", size);
        let device = rig.attach(&image).device.path;
        assert_eq!(probe(&device).unwrap(), Probe::Empty);
        let lock = File::open(rig.path("a.img")).unwrap();
        let how = Mkfs { uuid: uuid("x"), sector_size: 512, lock: Some(lock.as_fd()) };
        mkfs(fs_type, &device, &how, MINUTE).unwrap();
        assert_eq!(probe(&device).unwrap(), Probe::Known(fs_type, uuid("x")));
        assert_eq!(probe(&rig.path("a.img")).unwrap(), Probe::Known(fs_type, uuid("x")), "the image shows the same");
        assert!(fs_size(fs_type, &device).unwrap() <= size);
        let target = rig.dir("t");
        mount_fs(&device, &target, fs_type.name(), &MountFlags::default()).unwrap();
        fs::write(target.join("file"), "works").unwrap();
        assert_eq!(probe(&device).unwrap(), Probe::Known(fs_type, uuid("x")), "a mounted device is still not empty");
    });
}

/// Rule: LOCAL-G.3
#[test]
fn a_filesystem_can_be_made_again_with_the_same_uuid_or_over_another() {
    each(|rig, fs_type, size| {
        let (_image, attached) = rig.formatted("a.img", fs_type, size);
        let device = &attached.device.path;
        let how = Mkfs { uuid: uuid("a.img"), sector_size: 512, lock: None };
        mkfs(fs_type, device, &how, MINUTE).expect("a second attempt after a crash");
        for other in FsType::ALL.into_iter().filter(|other| other.missing_tools().is_empty()) {
            if other.minimum_bytes() <= size {
                mkfs(other, device, &how, MINUTE).unwrap();
                assert_eq!(probe(device).unwrap(), Probe::Known(other, uuid("a.img")), "over {fs_type}");
            }
        }
    });
}

/// Rule: LOCAL-G.3
#[test]
fn doubt_is_never_called_empty() {
    needs!();
    let rig = Rig::new();
    assert!(probe(&rig.path("missing")).is_err());
    assert!(probe(&rig.dir("directory")).is_err());
    rig.image("zero-size", 0);
    assert!(matches!(probe(&rig.path("zero-size")), Err(ProbeError::NoSize(_))));
    // A loop device whose file is shorter than the device: the tail cannot be read.
    let image = rig.image("cut.img", 8 * MIB);
    let device = rig.attach(&image).device.path;
    image.set_len(4 * MIB).unwrap();
    assert!(probe(&device).is_err(), "a read error must be an error");
    // One byte anywhere in the first or last MiB is data.
    let image = rig.image("byte.img", 8 * MIB);
    image.write_all_at(&[1], 8 * MIB - 1).unwrap();
    assert_eq!(probe(&rig.path("byte.img")).unwrap(), Probe::Foreign("unrecognised data".to_owned()));
}

/// Rule: LOCAL-0.17
#[test]
fn too_small_a_device_is_refused_before_anything_is_written() {
    each(|rig, fs_type, _| {
        let image = rig.image("small.img", fs_type.minimum_bytes() - MIB);
        let device = rig.attach(&image).device.path;
        let how = Mkfs { uuid: uuid("x"), sector_size: 512, lock: None };
        let error = mkfs(fs_type, &device, &how, MINUTE).unwrap_err();
        assert!(matches!(error, MkfsError::TooSmall { .. }), "{error}");
        assert_eq!(probe(&device).unwrap(), Probe::Empty);
        let exact = rig.image("exact.img", fs_type.minimum_bytes());
        mkfs(fs_type, &rig.attach(&exact).device.path, &how, MINUTE).expect("the minimum itself works");
    });
}

/// Rule: LOCAL-0.18
#[test]
fn ext4_has_4_kib_blocks_however_small_it_is() {
    needs!(FsType::Ext4);
    let rig = Rig::new();
    let (_image, attached) = rig.formatted("a.img", FsType::Ext4, 32 * MIB);
    assert_eq!(superblock::size(FsType::Ext4, &attached.device.path).unwrap(), (4096, 32 * MIB));
}

fn enlarge(image: &File, device: &loopdev::LoopDevice, size: u64) {
    image::grow(image, size, image::Provisioning::Thin).unwrap();
    assert_eq!(device.refresh_capacity().unwrap(), size);
}

/// Rule: LOCAL-0.19
#[test]
fn a_mounted_filesystem_grows_to_its_device_and_then_rests() {
    each(|rig, fs_type, size| {
        let (image, attached, target) = rig.mounted("a.img", fs_type, size);
        let device = &attached.device;
        enlarge(&image, device, size + 256 * MIB);
        match grow(fs_type, &device.path, Some(&target)) {
            Ok(Grown::Grew { from, to }) => assert!(from <= size && to > size + 200 * MIB, "{from} {to}"),
            // Without CAP_SYS_RESOURCE the kernel refuses for ext4, and says so in a way the caller can act on.
            Err(GrowError::NotWhileMounted { fs_type: FsType::Ext4, .. }) => {
                unmount_all(&target).unwrap();
                assert!(matches!(grow(fs_type, &device.path, None).unwrap(), Grown::Grew { .. }));
                mount_fs(&device.path, &target, fs_type.name(), &MountFlags::default()).unwrap();
            }
            other => panic!("{fs_type}: {other:?}"),
        }
        assert_eq!(grow(fs_type, &device.path, Some(&target)).unwrap(), Grown::Unchanged, "{fs_type}");
        assert!(mounted_fs_size(fs_type, &device.path, &target).unwrap() > size + 200 * MIB);
    });
}

/// Rule: LOCAL-F.5
#[test]
fn offline_only_ext4_grows() {
    each(|rig, fs_type, size| {
        let (image, attached) = rig.formatted("a.img", fs_type, size);
        enlarge(&image, &attached.device, size + 256 * MIB);
        match (fs_type, grow(fs_type, &attached.device.path, None)) {
            (FsType::Ext4, Ok(Grown::Grew { to, .. })) => assert_eq!(to, size + 256 * MIB),
            (FsType::Xfs | FsType::Btrfs, Err(GrowError::NeedsMount(refused))) => assert_eq!(refused, fs_type),
            (_, other) => panic!("{fs_type}: {other:?}"),
        }
    });
}

/// A copy of a mounted image, as a crash or an unfrozen snapshot would leave it, attached.
fn crash_copy(rig: &Rig, name: &str) -> (File, loopdev::Attached) {
    fs::copy(rig.path(name), rig.path("clone.img")).unwrap();
    let clone = OpenOptions::new().read(true).write(true).open(rig.path("clone.img")).unwrap();
    let attached = rig.attach(&clone);
    (clone, attached)
}

/// What the driver does with a dirty XFS log: mount once so that it is replayed.
fn replay(rig: &Rig, fs_type: FsType, device: &Path) {
    let target = rig.dir("replay");
    mount_fs(device, &target, fs_type.name(), &MountFlags::default().with_fs_option("nouuid")).unwrap();
    unmount_all(&target).unwrap();
}

/// Rule: LOCAL-0.16
#[test]
fn a_clone_gets_its_own_uuid_and_mounts_beside_the_original() {
    each(|rig, fs_type, size| {
        let (_image, _attached, original) = rig.mounted("a.img", fs_type, size);
        fs::write(original.join("file"), "data").unwrap();
        rustix::fs::syncfs(File::open(&original).unwrap()).unwrap();
        let (clone, attached) = crash_copy(rig, "a.img");
        let device = &attached.device.path;
        if new_uuid(fs_type, device, uuid("clone")).unwrap() == UuidChange::LogDirty {
            assert_eq!(fs_type, FsType::Xfs);
            replay(rig, fs_type, device);
            assert_eq!(new_uuid(fs_type, device, uuid("clone")).unwrap(), UuidChange::Changed);
        }
        assert_eq!(probe(device).unwrap(), Probe::Known(fs_type, uuid("clone")));
        assert_eq!(new_uuid(fs_type, device, uuid("clone")).unwrap(), UuidChange::Changed, "repeating is harmless");
        let target = rig.dir("clone");
        mount_fs(device, &target, fs_type.name(), &MountFlags::default()).unwrap();
        assert_eq!(fs::read(target.join("file")).unwrap(), b"data");
        assert_eq!(fs::read(original.join("file")).unwrap(), b"data");
        assert_eq!(loopdev::find(BackingFile::of(&clone).unwrap()).unwrap().len(), 1);
    });
}

/// Rule: LOCAL-F.5
#[test]
fn a_check_cleans_up_after_a_crash_and_reports_damage() {
    needs!(FsType::Ext4);
    let rig = Rig::new();
    let (_image, _attached, target) = rig.mounted("a.img", FsType::Ext4, 64 * MIB);
    fs::write(target.join("file"), "data").unwrap();
    rustix::fs::syncfs(File::open(&target).unwrap()).unwrap();
    let (_clone, attached) = crash_copy(&rig, "a.img");
    let device = &attached.device.path;
    assert!(matches!(check(FsType::Ext4, device).unwrap(), Checked::Clean | Checked::Repaired));
    assert_eq!(check(FsType::Ext4, device).unwrap(), Checked::Clean);
    assert_eq!(check(FsType::Xfs, device).unwrap(), Checked::NotApplicable);
    let raw = OpenOptions::new().write(true).open(device).unwrap();
    raw.write_all_at(&[0xff; 64 << 10], 4096).unwrap();
    raw.sync_all().unwrap();
    let error = identity::full_check(device).unwrap_err();
    assert!(matches!(error, CheckError::Unrepaired { .. }), "destroyed descriptors need a person: {error}");
}
