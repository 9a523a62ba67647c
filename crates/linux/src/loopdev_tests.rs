//! Loop devices against the real kernel.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;

use super::*;
use crate::fs::FsType;
use crate::mounts::{MountFlags, mount_fs, unmount_all};
use crate::rig::{MIB, RW, Rig, needs};

const SHORT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(10);

fn one(backing: BackingFile) -> LoopStatus {
    let found = find(backing).unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    found.into_iter().next().unwrap()
}

/// Rule: LOCAL-F.1
#[test]
fn a_device_is_found_by_its_file_after_rename_and_unlink() {
    needs!();
    let rig = Rig::new();
    let image = rig.image("a.img", 8 * MIB);
    let backing = BackingFile::of(&image).unwrap();
    assert_eq!(find(backing).unwrap(), []);
    let attached = rig.attach(&image);
    std::fs::rename(rig.path("a.img"), rig.path("b.img")).unwrap();
    let status = one(backing);
    assert_eq!(status.device, attached.device);
    assert_eq!((status.read_only, status.autoclear, status.offset, status.block_size), (false, false, 0, 512));
    std::fs::remove_file(rig.path("b.img")).unwrap();
    assert_eq!(one(backing).device, attached.device);
    drop(attached.fd);
    assert_eq!(detach_and_wait(&status.device, backing, LONG).unwrap(), Detach::Detached);
    assert_eq!(find(backing).unwrap(), []);
}

/// Rule: LOCAL-0.10
#[test]
fn one_image_can_be_attached_twice_and_both_are_found() {
    needs!();
    let rig = Rig::new();
    let image = rig.image("a.img", 8 * MIB);
    let (first, second) = (rig.attach(&image), rig.attach(&image));
    let backing = BackingFile::of(&image).unwrap();
    let mut expected = [first.device, second.device];
    expected.sort_by_key(|device| device.index);
    assert_eq!(find(backing).unwrap().into_iter().map(|status| status.device).collect::<Vec<_>>(), expected);
}

#[test]
fn one_look_at_all_devices_answers_for_many_files_and_never_for_what_has_gone() {
    needs!();
    let rig = Rig::new();
    let images = ["a.img", "b.img", "c.img"].map(|name| rig.image(name, 8 * MIB));
    let [a, b, c] = images.each_ref().map(|image| BackingFile::of(image).unwrap());
    let (first, second) = (rig.attach(&images[0]), rig.attach(&images[1]));
    let bound = Bound::read().unwrap();
    let found = |backing| bound.of(backing).unwrap().into_iter().map(|status| status.device).collect::<Vec<_>>();
    assert_eq!((found(a), found(b), found(c)), (vec![first.device.clone()], vec![second.device], vec![]));
    drop(first.fd);
    assert_eq!(detach_and_wait(&first.device, a, LONG).unwrap(), Detach::Detached);
    // The next file may get the device that has become free.
    let _third = rig.attach(&images[2]);
    assert_eq!((found(a), found(c)), (vec![], vec![]), "what was not there at the look is not seen");
}

/// Rule: LOCAL-0.11
#[test]
fn a_busy_device_is_not_called_detached() {
    needs!(FsType::Ext4);
    let rig = Rig::new();
    let (image, attached, target) = rig.mounted("a.img", FsType::Ext4, 64 * MIB);
    let (backing, device) = (BackingFile::of(&image).unwrap(), attached.device);
    drop(attached.fd);
    assert_eq!(detach_and_wait(&device, backing, SHORT).unwrap(), Detach::StillBusy);
    assert!(!one(backing).autoclear, "a mounted device must be left exactly as it was");
    unmount_all(&target).unwrap();
    assert_eq!(detach_and_wait(&device, backing, LONG).unwrap(), Detach::Detached);
}

/// Rule: LOCAL-0.11
#[test]
fn a_plain_opener_keeps_the_device_until_it_closes() {
    needs!();
    let rig = Rig::new();
    let image = rig.image("a.img", 8 * MIB);
    let (backing, attached) = (BackingFile::of(&image).unwrap(), rig.attach(&image));
    assert_eq!(detach_and_wait(&attached.device, backing, SHORT).unwrap(), Detach::StillBusy);
    drop(attached.fd);
    assert_eq!(wait_until_free(backing, LONG).unwrap(), Detach::Detached);
}

#[test]
fn a_device_that_changed_hands_is_not_touched() {
    needs!();
    let rig = Rig::new();
    let (mine, other) = (rig.image("mine.img", 8 * MIB), rig.image("other.img", 8 * MIB));
    let attached = rig.attach(&other);
    let mine = BackingFile::of(&mine).unwrap();
    assert_eq!(detach_and_wait(&attached.device, mine, SHORT).unwrap(), Detach::Detached);
    assert_eq!(one(BackingFile::of(&other).unwrap()).device, attached.device);
}

/// Rules: LOCAL-0.12, LOCAL-R10, LOCAL-R11
#[test]
fn an_autoclear_device_lives_as_long_as_its_opener_and_its_mount() {
    needs!(FsType::Ext4);
    let rig = Rig::new();
    let (image, formatted) = rig.formatted("a.img", FsType::Ext4, 64 * MIB);
    let backing = BackingFile::of(&image).unwrap();
    drop(formatted.fd);
    assert_eq!(detach_and_wait(&formatted.device, backing, LONG).unwrap(), Detach::Detached);

    let attached = attach(&image, Attach { autoclear: true, ..RW }).unwrap();
    assert!(one(backing).autoclear);
    let target = rig.dir("mnt");
    mount_fs(&attached.device.path, &target, "ext4", &MountFlags::default()).unwrap();
    drop(attached.fd);
    assert_eq!(one(backing).device, attached.device, "the mount is an opener");
    unmount_all(&target).unwrap();
    assert_eq!(wait_until_free(backing, LONG).unwrap(), Detach::Detached);

    drop(attach(&image, Attach { autoclear: true, ..RW }).unwrap());
    assert_eq!(wait_until_free(backing, LONG).unwrap(), Detach::Detached, "no opener, no device");
}

/// Who looked for the devices of other volumes kept them all open.
/// Rule: NODE-31.26
#[test]
fn volumes_that_end_at_once_do_not_hold_each_others_devices() {
    needs!();
    let rig = Rig::new();
    let images: Vec<File> = (0..32).map(|number| rig.image(&format!("{number}.img"), MIB)).collect();
    let attached: Vec<Attached> =
        images.iter().map(|image| attach(image, Attach { autoclear: true, ..RW }).unwrap()).collect();
    let start = std::sync::Barrier::new(images.len());
    let began = std::time::Instant::now();
    std::thread::scope(|scope| {
        for (image, attached) in images.iter().zip(attached) {
            let start = &start;
            scope.spawn(move || {
                let backing = BackingFile::of(image).unwrap();
                start.wait();
                drop(attached.fd);
                assert_eq!(wait_until_free(backing, LONG).unwrap(), Detach::Detached);
            });
        }
    });
    println!("32 devices went in {:?}", began.elapsed());
}

#[test]
fn what_was_seen_behind_a_device_is_not_believed_of_the_next_attachment() {
    needs!();
    let rig = Rig::new();
    let (first, second) = (rig.image("first.img", MIB), rig.image("second.img", MIB));
    let (one_file, other_file) = (BackingFile::of(&first).unwrap(), BackingFile::of(&second).unwrap());
    for _ in 0..8 {
        let attached = rig.attach(&first);
        assert_eq!(one(one_file).device, attached.device);
        drop(attached.fd);
        assert_eq!(detach_and_wait(&attached.device, one_file, LONG).unwrap(), Detach::Detached);
        let attached = rig.attach(&second);
        assert_eq!(one(other_file).device, attached.device);
        assert!(find(one_file).unwrap().is_empty());
        drop(attached.fd);
        assert_eq!(detach_and_wait(&attached.device, other_file, LONG).unwrap(), Detach::Detached);
    }
}

/// Rule: LOCAL-0.13
#[test]
fn a_read_only_loop_refuses_writes_even_through_a_writable_open() {
    needs!();
    let rig = Rig::new();
    let image = rig.image("a.img", 8 * MIB);
    let attached = attach(&image, Attach { read_only: true, ..RW }).unwrap();
    let write = OpenOptions::new().write(true).open(&attached.device.path).and_then(|mut device| {
        device.write_all(&[1; 4096])?;
        device.sync_all()
    });
    assert!(write.is_err(), "a write to a read-only loop device must fail");
    assert!(attached.device.is_read_only().unwrap());
}

/// Rule: LOCAL-0.13
#[test]
fn write_protection_can_be_switched_on_a_live_device() {
    needs!();
    let rig = Rig::new();
    let image = rig.image("a.img", 8 * MIB);
    let device = rig.attach(&image).device;
    device.set_read_only(true).unwrap();
    let refused = OpenOptions::new().write(true).open(&device.path).and_then(|file| file.write_all_at(&[1; 512], 0));
    assert!(refused.is_err());
    device.set_read_only(false).unwrap();
    OpenOptions::new().write(true).open(&device.path).unwrap().write_all_at(&[1; 512], 0).unwrap();
}

/// Rule: LOCAL-F.1
#[test]
fn the_device_follows_the_image_only_when_told() {
    needs!();
    let rig = Rig::new();
    let image = rig.image("a.img", 8 * MIB + 100);
    let device = rig.attach(&image).device;
    assert_eq!(device.size().unwrap(), 8 * MIB, "rounded down to whole sectors");
    image.set_len(16 * MIB).unwrap();
    assert_eq!(device.size().unwrap(), 8 * MIB);
    assert_eq!(device.refresh_capacity().unwrap(), 16 * MIB);
}

#[test]
fn block_size_direct_io_and_read_ahead_are_as_asked_or_reported() {
    needs!();
    let rig = Rig::new();
    let image = rig.image("a.img", 8 * MIB);
    let attached = attach(&image, Attach { block_size: 4096, direct_io: true, ..RW }).unwrap();
    let status = one(BackingFile::of(&image).unwrap());
    assert_eq!(status.block_size, 4096);
    assert_eq!(status.direct_io, attached.direct_io);
    assert!(!attached.device.set_direct_io(false).unwrap());
    assert_eq!(attached.device.set_direct_io(true).unwrap(), attached.direct_io);
    attached.device.set_read_ahead_kib(64).unwrap();
    assert_eq!(attached.device.read_ahead_kib().unwrap(), 64);
}

/// Rule: LOCAL-R8
#[test]
fn concurrent_attachments_all_get_their_own_device() {
    needs!();
    let rig = Rig::new();
    let images: Vec<_> = (0..8).map(|n| rig.image(&format!("{n}.img"), MIB)).collect();
    for (n, image) in images.iter().enumerate() {
        image.write_all_at(&[n as u8; 512], 0).unwrap();
    }
    let attached: Vec<_> = std::thread::scope(|scope| {
        let tasks: Vec<_> = images.iter().map(|image| scope.spawn(|| attach(image, RW).unwrap())).collect();
        tasks.into_iter().map(|task| task.join().unwrap()).collect()
    });
    for (n, attached) in attached.into_iter().enumerate() {
        let mut byte = [0xff];
        File::from(attached.fd).read_exact(&mut byte).unwrap();
        assert_eq!(usize::from(byte[0]), n);
    }
}
