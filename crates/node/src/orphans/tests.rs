//! Directories of pods that are gone, on this machine.

use std::fs;
use std::os::unix::fs::symlink;

use super::*;
use crate::host::rig::{Disk, MIB, Rig, Silent, name, on_this_machine, with_silent_paths};
use crate::host::{Access, Force};
use crate::volumes::release_corrupted;

async fn sweep_it(rig: &Rig) -> Swept {
    sweep(&rig.host, &rig.layout, &name("uid-1")).await
}

fn pod(rig: &Rig) -> PodDirectory {
    rig.layout.pod(&name("uid-1"))
}

/// What a pod with one CSI volume leaves when everything went well but the last steps.
fn leave(rig: &Rig) -> PathBuf {
    let volume = pod(rig).csi(&name("pv-1"));
    fs::create_dir_all(volume.mount()).unwrap();
    fs::write(volume.data(), "{}").unwrap();
    fs::write(volume.directory().join(".tmp-1-0-vol_data.json"), "{").unwrap();
    let part = pod(rig).sub_path(&name("pv-1"), &name("web"), 0);
    fs::create_dir_all(part.parent().unwrap()).unwrap();
    fs::write(part, "").unwrap();
    fs::create_dir_all(pod(rig).volume(Plugin::HostPath, &name("empty"))).unwrap();
    fs::create_dir_all(pod(rig).plugins().join("x/y")).unwrap();
    fs::write(pod(rig).plugins().join("x/y/ready"), "").unwrap();
    fs::write(pod(rig).path().join("etc-hosts"), "127.0.0.1 localhost").unwrap();
    let link = pod(rig).device(Plugin::Csi, &name("pv-2"));
    fs::create_dir_all(link.parent().unwrap()).unwrap();
    if !link.is_symlink() {
        symlink("/dev/null", link).unwrap();
    }
    volume.mount()
}

fn kept(swept: Swept) -> Vec<&'static str> {
    match swept {
        Swept::Removed => Vec::new(),
        Swept::Kept(reasons) => reasons.iter().map(Reason::code).collect(),
    }
}

/// Rules: NODE-22, NODE-31.9
#[test]
fn what_a_pod_has_left_goes_metadata_included() {
    on_this_machine(|rig| async move {
        leave(&rig);
        assert_eq!(sweep_it(&rig).await, Swept::Removed);
        assert!(!pod(&rig).path().exists());
        assert_eq!(sweep_it(&rig).await, Swept::Removed, "nothing there is a success");
    });
}

/// Rules: NODE-22, NODE-32.23
#[test]
fn a_file_that_nobody_knows_keeps_everything() {
    on_this_machine(|rig| async move {
        let stray = [
            pod(&rig).volumes().join("stray"),
            pod(&rig).csi(&name("pv-1")).directory().join("stray"),
            pod(&rig).csi(&name("pv-1")).mount().join("data"),
            pod(&rig).volume(Plugin::EmptyDir, &name("scratch")).join("data"),
            pod(&rig).sub_path(&name("pv-1"), &name("web"), 1),
        ];
        for stray in stray {
            leave(&rig);
            fs::create_dir_all(stray.parent().unwrap()).unwrap();
            fs::write(&stray, "x").unwrap();
            assert_eq!(kept(sweep_it(&rig).await), ["unknown_content"], "{}", stray.display());
            assert!(stray.exists() && pod(&rig).path().join("etc-hosts").exists());
            fs::remove_file(stray).unwrap();
        }
        assert_eq!(sweep_it(&rig).await, Swept::Removed);
    });
}

/// Rules: NODE-22, NODE-30.25
#[test]
fn nothing_goes_while_anything_is_mounted() {
    on_this_machine(|rig| async move {
        let mount = leave(&rig);
        let data = rig.file("volume/data", "x");
        rig.host.bind(&rig.path("volume"), &mount, Access::ReadWrite).await.unwrap();
        let inside = pod(&rig).plugins().join("x/y/z");
        rig.mount_tmpfs(&inside).await;
        let swept = sweep_it(&rig).await;
        assert_eq!(
            swept,
            Swept::Kept(vec![Kept::Mounted { path: mount.clone() }, Kept::Mounted { path: inside.clone() }])
        );
        for mounted in [&mount, &inside] {
            rig.host.unmount(mounted, Force::No).await.unwrap();
        }
        assert_eq!(sweep_it(&rig).await, Swept::Removed);
        assert!(data.exists());
    });
}

/// Rule: NODE-22
#[test]
fn a_device_that_is_mapped_elsewhere_keeps_the_directory() {
    on_this_machine(|rig| async move {
        leave(&rig);
        let Some(disk) = Disk::new(&rig, "disk", MIB) else { return };
        let block = rig.layout.block(&name("pv-2")).unwrap();
        for mapped in [block.mapped(&name("uid-1")), rig.layout.local_block(&name("pv-3")).join("uid-1")] {
            fs::create_dir_all(mapped.parent().unwrap()).unwrap();
            fs::write(&mapped, "").unwrap();
            rig.host.bind(&disk.device, &mapped, Access::ReadWrite).await.unwrap();
            assert_eq!(sweep_it(&rig).await, Swept::Kept(vec![Kept::Mapped { path: mapped.clone() }]));
            rig.host.unmount(&mapped, Force::No).await.unwrap();
        }
        assert_eq!(sweep_it(&rig).await, Swept::Removed);
    });
}

/// Rule: NODE-31.9
#[test]
fn a_dead_mount_is_named_and_goes_once_it_is_released() {
    on_this_machine(|rig| async move {
        let mount = leave(&rig);
        let Some(mut dead) = Silent::mount(mount.clone()) else { return };
        dead.die();
        assert_eq!(kept(sweep_it(&rig).await), ["corrupted_mount"]);
        release_corrupted(&rig.host, &mount).await.unwrap();
        assert_eq!(sweep_it(&rig).await, Swept::Removed);
    });
}

/// Rule: NODE-31.9
#[test]
fn a_mount_that_does_not_answer_is_named_and_other_pods_go() {
    with_silent_paths(|rig| async move {
        let mount = leave(&rig);
        let Some(_silent) = Silent::mount(mount.clone()) else { return };
        let other = rig.layout.pod(&name("uid-2"));
        fs::create_dir_all(other.csi(&name("pv-1")).mount()).unwrap();
        assert_eq!(sweep_it(&rig).await, Swept::Kept(vec![Kept::Hung { path: mount.clone() }]));
        assert_eq!(sweep(&rig.host, &rig.layout, &name("uid-2")).await, Swept::Removed);
        release_corrupted(&rig.host, &mount).await.unwrap();
        rig.host.quiet().await;
        assert_eq!(sweep_it(&rig).await, Swept::Removed);
    });
}
