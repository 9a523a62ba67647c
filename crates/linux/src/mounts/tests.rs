//! Mounts against the real kernel.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, symlink};

use super::*;
use crate::fs::FsType;
use crate::loopdev::{self, Attach};
use crate::mountinfo::Mount;
use crate::rig::{MIB, MINUTE, RW, Rig, needs};

const READ_ONLY: BindOptions = BindOptions { read_only: true, no_exec: false, no_suid: false, no_dev: false };

fn top(path: &Path) -> Mount {
    MountTable::read().unwrap().top(path).unwrap().clone()
}

/// Rule: LOCAL-F.9
#[test]
fn a_filesystem_is_mounted_with_its_flags_and_identified_by_its_device() {
    needs!(FsType::Ext4);
    let rig = Rig::new();
    let (_image, attached) = rig.formatted("a.img", FsType::Ext4, 64 * MIB);
    let target = rig.dir("target");
    let flags = MountFlags::parse(&["noexec", "nodev", "nosuid", "commit=30"]).unwrap();
    assert!(!is_mount_point(&target).unwrap());
    mount_fs(&attached.device.path, &target, "ext4", &flags).unwrap();
    assert!(is_mount_point(&target).unwrap());
    let mount = top(&target);
    assert_eq!((mount.major, mount.minor), (attached.device.major, attached.device.minor));
    assert!(["noexec", "nodev", "nosuid"].iter().all(|option| mount.has_option(option)), "{mount:?}");
    assert!(mount.super_options.iter().any(|option| option == "commit=30"), "{mount:?}");
    let table = MountTable::read().unwrap();
    assert_eq!(table.of_device(mount.major, mount.minor).count(), 1);
}

#[test]
fn an_unknown_option_is_named_with_what_the_kernel_said() {
    needs!(FsType::Ext4);
    let rig = Rig::new();
    let (_image, attached) = rig.formatted("a.img", FsType::Ext4, 64 * MIB);
    let target = rig.dir("target");
    let flags = MountFlags::parse(&["nosuchoption"]).unwrap();
    let error = mount_fs(&attached.device.path, &target, "ext4", &flags).unwrap_err();
    assert!(error.to_string().contains("\"nosuchoption\""), "{error}");
    assert!(error.to_string().contains("nosuchoption'"), "the kernel's own text belongs in it: {error}");
    assert!(!is_mount_point(&target).unwrap());
}

#[test]
fn a_blank_device_does_not_mount() {
    needs!();
    let rig = Rig::new();
    let image = rig.image("a.img", 64 * MIB);
    let attached = rig.attach(&image);
    let error = mount_fs(&attached.device.path, &rig.dir("t"), "ext4", &MountFlags::default()).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::INVAL));
}

/// Rule: LOCAL-0.14
#[test]
fn a_read_only_bind_is_enforced_and_keeps_the_other_attributes() {
    needs!();
    let rig = Rig::new();
    let (source, target) = (rig.dir("source"), rig.dir("target"));
    fs::write(source.join("file"), "x").unwrap();
    // A first bind with nosuid and nodev stands for the staged mount.
    bind(&source, &source, BindOptions { no_suid: true, no_dev: true, ..Default::default() }).unwrap();
    bind(&source, &target, READ_ONLY).unwrap();
    let error = fs::write(target.join("file"), "y").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::ROFS.raw_os_error()));
    fs::write(source.join("file"), "z").expect("the source stays writable");
    let mount = top(&target);
    assert!(["ro", "nosuid", "nodev"].iter().all(|option| mount.has_option(option)), "{mount:?}");
    assert!(is_mount_point(&target).unwrap(), "a bind of the same filesystem is a mount point");
}

/// Rule: LOCAL-F.9
#[test]
fn a_device_node_is_bound_onto_a_file_and_found_by_its_number() {
    needs!();
    let rig = Rig::new();
    let image = rig.image("a.img", 8 * MIB);
    let device = rig.attach(&image).device;
    let target = rig.path("node");
    File::create(&target).unwrap();
    bind(&device.path, &target, BindOptions::default()).unwrap();
    let table = MountTable::read().unwrap();
    let found: Vec<_> = table.of_block_node(device.major, device.minor).map(|mount| &mount.mount_point).collect();
    assert_eq!(found, [&target]);
}

/// Rule: LOCAL-0.13
#[test]
fn a_read_only_bind_of_a_node_does_not_protect_but_a_read_only_loop_does() {
    needs!();
    let rig = Rig::new();
    let writes = |attach: Attach, name: &str| {
        let image = rig.image(&format!("{name}.img"), 8 * MIB);
        let device = loopdev::attach(&image, attach).unwrap().device;
        let target = rig.path(name);
        File::create(&target).unwrap();
        bind(&device.path, &target, READ_ONLY).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&target);
        file.and_then(|file| file.write_all_at(&[1; 512], 0).and_then(|()| file.sync_all())).is_ok()
    };
    assert!(writes(RW, "bind-only"));
    assert!(!writes(Attach { read_only: true, ..RW }, "loop"));
}

/// Rule: LOCAL-R16
#[test]
fn a_symlink_is_refused_as_a_target() {
    needs!();
    let rig = Rig::new();
    let (source, victim) = (rig.dir("source"), rig.dir("victim"));
    let link = rig.path("link");
    symlink(&victim, &link).unwrap();
    let error = bind(&source, &link, BindOptions::default()).unwrap_err();
    assert!(matches!(error, MountError::IsSymlink(path) if path == link));
    assert!(!is_mount_point(&victim).unwrap());
    assert!(!is_mount_point(&link).unwrap());
}

/// Rule: LOCAL-R17
#[test]
fn every_layer_is_unmounted() {
    needs!();
    let rig = Rig::new();
    let (source, target) = (rig.dir("source"), rig.dir("target"));
    for _ in 0..3 {
        bind(&source, &target, BindOptions::default()).unwrap();
    }
    assert_eq!(MountTable::read().unwrap().at(&target).count(), 3);
    assert_eq!(unmount_all(&target).unwrap(), Unmounted { layers: 3 });
    assert_eq!(unmount_all(&target).unwrap(), Unmounted { layers: 0 });
    assert_eq!(unmount_all(&rig.path("no/such/path")).unwrap(), Unmounted { layers: 0 });
}

#[test]
fn a_busy_mount_is_reported_and_stays() {
    needs!();
    let rig = Rig::new();
    let (source, target) = (rig.dir("source"), rig.dir("target"));
    bind(&source, &target, BindOptions::default()).unwrap();
    let held = File::create(target.join("open")).unwrap();
    assert!(matches!(unmount_all(&target), Err(UnmountError::Busy(path)) if path == target));
    assert!(is_mount_point(&target).unwrap());
    drop(held);
    unmount_all(&target).unwrap();
}

#[test]
fn a_target_under_a_symlinked_parent_is_unmounted() {
    needs!();
    let rig = Rig::new();
    let (source, target) = (rig.dir("source"), rig.dir("real/target"));
    symlink(rig.path("real"), rig.path("alias")).unwrap();
    bind(&source, &target, BindOptions::default()).unwrap();
    assert_eq!(unmount_all(&rig.path("alias/target")).unwrap(), Unmounted { layers: 1 });
}

/// Rule: LOCAL-0.15
#[test]
fn a_large_sector_loop_does_not_mount_a_small_sector_xfs() {
    needs!(FsType::Xfs);
    let rig = Rig::new();
    let (image, attached) = rig.formatted("a.img", FsType::Xfs, 300 * MIB);
    drop(attached.fd);
    let backing = loopdev::BackingFile::of(&image).unwrap();
    assert_eq!(loopdev::detach_and_wait(&attached.device, backing, MINUTE).unwrap(), loopdev::Detach::Detached);
    let large = loopdev::attach(&image, Attach { block_size: 4096, ..RW }).unwrap();
    let error = mount_fs(&large.device.path, &rig.dir("t"), "xfs", &MountFlags::default()).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::NOSYS), "ENOSYS of XFS must not be taken for an old kernel: {error}");
}

/// Rule: LOCAL-0.16
#[test]
fn xfs_clones_need_nouuid() {
    needs!(FsType::Xfs);
    let rig = Rig::new();
    let (_image, attached, first) = rig.mounted("a.img", FsType::Xfs, 300 * MIB);
    rustix::fs::syncfs(File::open(&first).unwrap()).unwrap();
    super::super::freeze::freeze(&File::open(&first).unwrap()).unwrap();
    fs::copy(rig.path("a.img"), rig.path("b.img")).unwrap();
    super::super::freeze::thaw(&File::open(&first).unwrap()).unwrap();
    let copy = OpenOptions::new().read(true).write(true).open(rig.path("b.img")).unwrap();
    let clone = rig.attach(&copy);
    assert_ne!(clone.device, attached.device);
    let target = rig.dir("t");
    assert!(mount_fs(&clone.device.path, &target, "xfs", &MountFlags::default()).is_err());
    mount_fs(&clone.device.path, &target, "xfs", &MountFlags::default().with_fs_option("nouuid")).unwrap();
}

/// The driver once failed because mounts came and went all the time.
/// Rule: LOCAL-R18
#[test]
fn a_table_that_never_stands_still_is_read_and_misses_nothing_that_stays() {
    use std::sync::atomic::{AtomicBool, Ordering};
    needs!();
    let rig = Rig::new();
    let (source, stays) = (rig.dir("source"), rig.dir("stays"));
    bind(&source, &stays, BindOptions::default()).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for name in ["one", "two"] {
            let (target, source, done) = (rig.dir(name), &source, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    bind(source, &target, BindOptions::default()).unwrap();
                    unmount_all(&target).unwrap();
                }
            });
        }
        let seen = (0..300).all(|_| MountTable::read().is_ok_and(|table| table.at(&stays).count() == 1));
        done.store(true, Ordering::Relaxed);
        assert!(seen, "every reading has the mount that stays, once");
    });
}
