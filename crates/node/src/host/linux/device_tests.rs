//! Block devices for real: loop devices over images.

use std::fs;

use linux::loopdev;

use super::*;
use crate::host::rig::{Disk, MIB, Rig, errno, on_this_machine};

fn call(target: &Path, fs_type: &str, options: &[&str]) -> MountCall {
    MountCall {
        fs_type: fs_type.to_owned(),
        source: String::new(),
        target: target.to_path_buf(),
        options: options.iter().map(|option| (*option).to_owned()).collect(),
    }
}

async fn shown_as(rig: &Rig, target: &Path) -> String {
    rig.host.mounts().await.unwrap().at(target).unwrap().fs_type.clone()
}

/// Whether the tools for a filesystem are here; says so if not.
fn has_tools(fs_type: linux::fs::FsType) -> bool {
    let missing = fs_type.missing_tools();
    if let Some(tool) = missing.first() {
        println!("skipped: {tool}");
    }
    missing.is_empty()
}

/// Rule: NODE-29.5
#[test]
fn an_empty_device_is_formatted_once_and_its_data_is_kept() {
    on_this_machine(|rig| async move {
        for (fs_type, size) in [(linux::fs::FsType::Ext4, 64 * MIB), (linux::fs::FsType::Xfs, 300 * MIB)] {
            if !has_tools(fs_type) {
                continue;
            }
            let Some(disk) = Disk::new(&rig, fs_type.name(), size) else { return };
            let target = rig.dir(&format!("{fs_type}.mount"));
            // Nothing said means ext4.
            let named = if fs_type == linux::fs::FsType::Ext4 { "" } else { fs_type.name() };
            rig.host.format_and_mount(&disk.device, &call(&target, named, &[])).await.unwrap();
            fs::write(target.join("data"), "x").unwrap();
            assert_eq!(shown_as(&rig, &target).await, fs_type.name());
            rig.host.unmount(&target, Force::No).await.unwrap();
            rig.host.format_and_mount(&disk.device, &call(&target, fs_type.name(), &["ro"])).await.unwrap();
            assert!(target.join("data").exists() && rig.host.mounts().await.unwrap().at(&target).unwrap().read_only);
            rig.host.unmount(&target, Force::No).await.unwrap();
        }
    });
}

/// Rules: NODE-29.5, NODE-26
#[test]
fn a_device_with_anything_on_it_is_never_formatted() {
    on_this_machine(|rig| async move {
        let Some(disk) = Disk::new(&rig, "disk", 64 * MIB) else { return };
        let target = rig.dir("mount");
        let empty = rig.host.format_and_mount(&disk.device, &call(&target, "ext4", &["ro"])).await.unwrap_err();
        assert!(empty.to_string().contains("no filesystem on it"), "{empty}");
        let unknown = rig.host.format_and_mount(&disk.device, &call(&target, "vfat", &[])).await.unwrap_err();
        assert!(unknown.to_string().contains("vfat"), "{unknown}");
        let mut head = vec![0; 4096];
        head[510..512].copy_from_slice(&[0x55, 0xaa]);
        fs::write(&disk.device, &head).unwrap();
        let foreign = rig.host.format_and_mount(&disk.device, &call(&target, "ext4", &[])).await.unwrap_err();
        assert!(foreign.to_string().contains("partition table"), "{foreign}");
        assert!(matches!(foreign, HostError::WrongFilesystem { .. }), "NODE-26: {foreign:?}");
        assert_eq!(&fs::read(rig.path("disk")).unwrap()[..4096], head, "not a byte was changed");
    });
}

/// Rule: NODE-29.6
#[test]
fn a_mounted_filesystem_grows_to_its_device() {
    on_this_machine(|rig| async move {
        // Not ext4: its kernel side wants CAP_SYS_RESOURCE for this, which a root in a container may lack.
        if !has_tools(linux::fs::FsType::Xfs) {
            return;
        }
        let Some(disk) = Disk::new(&rig, "disk", 300 * MIB) else { return };
        let target = rig.dir("mount");
        rig.host.format_and_mount(&disk.device, &call(&target, "xfs", &[])).await.unwrap();
        let before = rig.host.usage(&target).await.unwrap().capacity;
        disk.grow(400 * MIB);
        for _ in 0..2 {
            rig.host.grow(&target).await.unwrap();
        }
        assert!(rig.host.usage(&target).await.unwrap().capacity > before + 32 * MIB);
        rig.host.unmount(&target, Force::No).await.unwrap();
        assert!(rig.host.grow(&target).await.is_err(), "nothing is mounted");
    });
}

/// Rules: NODE-17.1, NODE-31.28
#[test]
fn each_pod_has_its_own_hold_on_a_device() {
    on_this_machine(|rig| async move {
        let Some(disk) = Disk::new(&rig, "disk", 16 * MIB) else { return };
        let pods = [rig.file("dev/pod-1", ""), rig.file("dev/pod-2", "")];
        for pod in &pods {
            rig.host.bind(&disk.device, pod, Access::ReadWrite).await.unwrap();
        }
        let [first, second] = &pods;
        let held = rig.host.hold(first).await.unwrap();
        assert_eq!(rig.host.hold(first).await.unwrap(), held, "once is enough");
        let other = rig.host.hold(second).await.unwrap();
        assert_ne!(held, other);
        for _ in 0..2 {
            rig.host.let_go(first).await.unwrap();
        }
        assert!(loopdev::opened_as(first).unwrap().is_empty());
        assert_eq!(loopdev::opened_as(second).unwrap().len(), 1, "the other pod keeps its own");
        rig.host.let_go(second).await.unwrap();
        let plain = rig.file("plain", "x");
        assert_eq!(errno(&rig.host.hold(&plain).await.unwrap_err()), rustix::io::Errno::NOTBLK.raw_os_error());
    });
}

/// Rule: NODE-30.22
#[test]
fn many_holds_of_one_device_at_once_make_one_loop_device() {
    on_this_machine(|rig| async move {
        let Some(disk) = Disk::new(&rig, "disk", 16 * MIB) else { return };
        let pod = rig.file("dev/pod", "");
        rig.host.bind(&disk.device, &pod, Access::ReadWrite).await.unwrap();
        let held = futures_util::future::join_all((0..8).map(|_| rig.host.hold(&pod))).await;
        assert!(held.iter().all(|answer| answer == &held[0] && answer.is_ok()), "{held:?}");
        assert_eq!(loopdev::opened_as(&pod).unwrap().len(), 1);
        rig.host.let_go(&pod).await.unwrap();
    });
}
