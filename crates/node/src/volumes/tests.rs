//! Volumes without a driver, on this machine.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use super::empty_dir::{EmptyDir, Medium, memory_size};
use super::host_path::{Expected, HostPathError};
use super::local::{Group, Local, Wanted};
use super::nfs::{Export, NfsError};
use super::*;
use crate::host::rig::{Disk, MIB, Rig, Silent, name, on_this_machine};
use crate::host::{Access, Owned, SubPath, When};
use crate::layout::{Plugin, PodDirectory};

fn pod(rig: &Rig) -> PodDirectory {
    rig.layout.pod(&name("uid-1"))
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().mode() & 0o7777
}

/// Rule: NODE-24
#[test]
fn an_empty_dir_is_open_for_all_and_goes_with_its_content() {
    on_this_machine(|rig| async move {
        let (pod, volume) = (pod(&rig), name("scratch"));
        let wanted = EmptyDir::new(&pod, &volume, Medium::Default, Some(88));
        empty_dir::set_up(&rig.host, &wanted).await.unwrap();
        assert_eq!(mode(&wanted.directory), 0o2777);
        assert_eq!(wanted.directory.metadata().unwrap().gid(), 88);
        assert!(wanted.marker.is_file());
        fs::write(wanted.directory.join("file"), "x").unwrap();
        fs::set_permissions(&wanted.directory, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        empty_dir::set_up(&rig.host, &wanted).await.unwrap();
        assert_eq!(mode(&wanted.directory), 0o700, "a volume that is ready is the pod's");
        for _ in 0..2 {
            empty_dir::tear_down(&rig.host, &pod, &volume).await.unwrap();
        }
        assert!(!wanted.directory.exists() && !wanted.marker.parent().unwrap().exists());
    });
}

/// Rules: NODE-24, NODE-23
#[test]
fn an_empty_dir_in_memory_is_mounted_anew_after_a_reboot() {
    on_this_machine(|rig| async move {
        let (pod, volume) = (pod(&rig), name("memory"));
        let wanted = EmptyDir::new(&pod, &volume, Medium::Memory { size: Some(4 * MIB) }, None);
        empty_dir::set_up(&rig.host, &wanted).await.unwrap();
        assert_eq!(rig.host.usage(&wanted.directory).await.unwrap().capacity, 4 * MIB);
        assert_eq!(mode(&wanted.directory), 0o777);
        rig.host.unmount(&wanted.directory, Force::No).await.unwrap();
        assert!(wanted.marker.exists());
        for _ in 0..2 {
            empty_dir::set_up(&rig.host, &wanted).await.unwrap();
        }
        let mounts = rig.host.mounts().await.unwrap();
        assert_eq!(mounts.under(&wanted.directory).count(), 1);
        assert_eq!(mounts.at(&wanted.directory).unwrap().fs_type, "tmpfs");
        empty_dir::tear_down(&rig.host, &pod, &volume).await.unwrap();
        assert!(!wanted.directory.exists());
    });
}

/// Rule: NODE-24
#[test]
fn an_empty_dir_of_huge_pages_has_their_size() {
    on_this_machine(|rig| async move {
        if !Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB").exists() {
            println!("skipped: no huge pages of 2 MiB");
            return;
        }
        let (pod, volume) = (pod(&rig), name("huge"));
        let wanted = EmptyDir::new(&pod, &volume, Medium::HugePages { page_size: 2 * MIB }, None);
        empty_dir::set_up(&rig.host, &wanted).await.unwrap();
        assert_eq!(rig.host.mounts().await.unwrap().at(&wanted.directory).unwrap().fs_type, "hugetlbfs");
        empty_dir::tear_down(&rig.host, &pod, &volume).await.unwrap();
    });
}

/// Rule: NODE-24
#[test]
fn memory_is_the_least_of_what_node_pod_and_volume_allow() {
    assert_eq!(memory_size(Some(8), Some(4), Some(6)), Some(4));
    assert_eq!(memory_size(Some(8), None, Some(0)), Some(8));
    assert_eq!(memory_size(None, None, None), None);
}

/// Rule: NODE-29.4
#[test]
fn a_mount_point_is_cleaned_of_its_mounts_and_of_nothing_else() {
    on_this_machine(|rig| async move {
        let (point, file) = (rig.path("point"), rig.file("file", "kept"));
        for _ in 0..2 {
            rig.mount_tmpfs(&point).await;
        }
        clean_mount_point(&rig.host, &point).await.unwrap();
        assert!(!point.exists());
        clean_mount_point(&rig.host, &point).await.unwrap();
        let bound = rig.file("bound", "");
        rig.host.bind(&file, &bound, Access::ReadOnly).await.unwrap();
        clean_mount_point(&rig.host, &bound).await.unwrap();
        assert!(!bound.exists() && file.exists());
        rig.file("content/data", "x");
        assert!(clean_mount_point(&rig.host, &rig.path("content")).await.is_err());
        assert!(rig.path("content/data").exists());
    });
}

/// Rule: NODE-24
#[test]
fn a_host_path_is_what_its_type_says() {
    on_this_machine(|rig| async move {
        let file = rig.file("file", "x");
        let directory = rig.dir("directory");
        let socket = rig.path("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        symlink(&directory, rig.path("link")).unwrap();
        let null = PathBuf::from("/dev/null");
        let paths = [&file, &directory, &socket, &rig.path("link"), &null, &rig.path("none")];
        let fits = async |expected| {
            let mut fits = Vec::new();
            for path in paths {
                fits.push(host_path::set_up(&rig.host, path, expected).await.is_ok());
            }
            fits
        };
        assert_eq!(fits(Expected::Anything).await, [true; 6]);
        assert_eq!(fits(Expected::File).await, [true, false, false, false, false, false]);
        assert_eq!(fits(Expected::Directory).await, [false, true, false, true, false, false]);
        assert_eq!(fits(Expected::Socket).await, [false, false, true, false, false, false]);
        assert_eq!(fits(Expected::CharDevice).await, [false, false, false, false, true, false]);
        assert_eq!(fits(Expected::BlockDevice).await, [false; 6]);
        let not = host_path::set_up(&rig.host, &file, Expected::Directory).await.unwrap_err().to_string();
        assert_eq!(not, format!("hostPath type check failed: {} is not a directory", file.display()));
    });
}

/// Rule: NODE-24
#[test]
fn a_host_path_is_made_if_its_type_says_so() {
    on_this_machine(|rig| async move {
        let (directory, file) = (rig.path("a/b"), rig.path("a/file"));
        host_path::set_up(&rig.host, &directory, Expected::DirectoryOrCreate).await.unwrap();
        host_path::set_up(&rig.host, &file, Expected::FileOrCreate).await.unwrap();
        assert_eq!((mode(&directory), mode(&file)), (0o755, 0o644));
        host_path::set_up(&rig.host, &directory, Expected::DirectoryOrCreate).await.unwrap();
        assert!(host_path::set_up(&rig.host, &directory, Expected::FileOrCreate).await.is_err());
        for back in ["/tmp/../etc", "relative"] {
            let refused = host_path::set_up(&rig.host, Path::new(back), Expected::Anything).await;
            assert_eq!(refused, Err(HostPathError::Backstep(PathBuf::from(back))));
        }
        assert_eq!(Expected::parse("Socket"), Ok(Expected::Socket));
        assert_eq!(Expected::parse("Pipe"), Err(HostPathError::UnknownType("Pipe".to_owned())));
    });
}

fn local(path: PathBuf) -> Local {
    Local { name: name("pv-1"), path, fs_type: String::new(), options: Vec::new(), access: Access::ReadWrite }
}

fn wanted(rig: &Rig, pod: &str, group: u32) -> Wanted {
    let target = rig.layout.pod(&name(pod)).volume(Plugin::Local, &name("pv-1"));
    Wanted { target, access: Access::ReadWrite, group: Some((group, When::Always)) }
}

/// Rule: NODE-24
#[test]
fn a_local_directory_is_bound_and_belongs_to_the_first_pods_group() {
    on_this_machine(|rig| async move {
        rig.file("source/file", "x");
        symlink(rig.path("source"), rig.path("link")).unwrap();
        let volume = local(rig.path("link"));
        let staged = local::stage(&rig.host, &rig.layout, &volume).await.unwrap();
        assert_eq!(staged, rig.path("source"));
        let set_up = async |wanted: &Wanted| {
            local::set_up(&rig.host, (&rig.layout, &volume), &staged, wanted, &|_| {}).await.unwrap()
        };
        let (first, second) = (wanted(&rig, "uid-1", 70), wanted(&rig, "uid-2", 71));
        assert_eq!(set_up(&first).await, Group::Applied(Owned::Changed { files: 2, refused: 0 }));
        assert_eq!(set_up(&first).await, Group::NotAsked, "it is there already");
        assert_eq!(set_up(&second).await, Group::LeftTo { group: 70 });
        assert_eq!(fs::read(second.target.join("file")).unwrap(), b"x");
        for wanted in [&first, &second, &first] {
            local::tear_down(&rig.host, &wanted.target).await.unwrap();
            assert!(!wanted.target.exists());
        }
        local::expand(&rig.host, &rig.layout, &volume.name).await.unwrap();
        local::unstage(&rig.host, &rig.layout, &volume.name).await.unwrap();
        assert!(rig.path("source/file").exists());
        assert_eq!(set_up(&second).await, Group::Applied(Owned::Changed { files: 2, refused: 0 }));
    });
}

/// Rule: NODE-24
#[test]
fn the_options_of_a_local_volume_hold_for_its_pods() {
    on_this_machine(|rig| async move {
        let source = rig.dir("source");
        let mut volume = local(source.clone());
        volume.options = vec!["noexec".to_owned(), "ro".to_owned()];
        let mut wanted = wanted(&rig, "uid-1", 0);
        wanted.group = None;
        local::set_up(&rig.host, (&rig.layout, &volume), &source, &wanted, &|_| {}).await.unwrap();
        assert!(rig.host.mounts().await.unwrap().at(&wanted.target).unwrap().read_only);
        let neither = local::stage(&rig.host, &rig.layout, &local(rig.path("none"))).await.unwrap_err();
        assert!(neither.to_string().contains("neither a directory nor a block device"), "{neither}");
    });
}

/// Rule: NODE-24
#[test]
fn a_local_device_is_formatted_and_mounted_once_for_all_pods() {
    on_this_machine(|rig| async move {
        let Some(disk) = Disk::new(&rig, "disk", 300 * MIB) else { return };
        let volume = Local { fs_type: "xfs".to_owned(), ..local(disk.device.clone()) };
        for _ in 0..2 {
            let staged = local::stage(&rig.host, &rig.layout, &volume).await.unwrap();
            assert_eq!(staged, rig.layout.local_mount(&volume.name));
        }
        let staged = rig.layout.local_mount(&volume.name);
        assert_eq!(rig.host.mounts().await.unwrap().under(&staged).count(), 1);
        let (first, second) = (wanted(&rig, "uid-1", 70), wanted(&rig, "uid-2", 71));
        local::set_up(&rig.host, (&rig.layout, &volume), &staged, &first, &|_| {}).await.unwrap();
        let left = local::set_up(&rig.host, (&rig.layout, &volume), &staged, &second, &|_| {}).await.unwrap();
        assert_eq!(left, Group::LeftTo { group: 70 });
        let before = rig.host.usage(&first.target).await.unwrap().capacity;
        disk.grow(400 * MIB);
        local::expand(&rig.host, &rig.layout, &volume.name).await.unwrap();
        assert!(rig.host.usage(&first.target).await.unwrap().capacity > before);
        for wanted in [&first, &second] {
            local::tear_down(&rig.host, &wanted.target).await.unwrap();
        }
        for _ in 0..2 {
            local::unstage(&rig.host, &rig.layout, &volume.name).await.unwrap();
        }
        assert!(!staged.exists());
    });
}

/// Rule: NODE-17
#[test]
fn a_block_device_is_mapped_for_a_pod_and_unmapped_from_any_point() {
    on_this_machine(|rig| async move {
        let Some(disk) = Disk::new(&rig, "disk", 16 * MIB) else { return };
        let (volume, uid) = (name("pv-1"), name("uid-1"));
        symlink(&disk.device, rig.path("by-id")).unwrap();
        let mapping = block::Mapping {
            device: rig.path("by-id"),
            bound: rig.layout.local_block(&volume).join(&uid),
            link: pod(&rig).device(Plugin::Local, &volume),
        };
        let (device, held) = block::map(&rig.host, &mapping).await.unwrap();
        assert_eq!(device, disk.device);
        assert_eq!(block::map(&rig.host, &mapping).await.unwrap(), (device, held), "again is the same");
        assert_eq!(fs::read_link(&mapping.link).unwrap(), disk.device);
        assert_eq!(rig.host.find(&mapping.bound).await.unwrap(), Found::Device);
        // A reboot: the mount and the hold are gone, files and links are not.
        rig.host.let_go(&mapping.bound).await.unwrap();
        rig.host.unmount(&mapping.bound, Force::No).await.unwrap();
        block::map(&rig.host, &mapping).await.unwrap();
        for _ in 0..2 {
            block::unmap(&rig.host, &mapping).await.unwrap();
        }
        assert!(!mapping.bound.exists() && !mapping.link.is_symlink());
        assert!(linux::loopdev::opened_as(&mapping.bound).unwrap().is_empty());
    });
}

/// Rule: NODE-24
#[test]
fn nfs_says_what_this_machine_lacks() {
    on_this_machine(|rig| async move {
        let export =
            Export { server: "::1".into(), path: "/x".into(), access: Access::ReadOnly, options: vec!["soft".into()] };
        let target = pod(&rig).volume(Plugin::Nfs, &name("share"));
        let helper = Path::new("/sbin/mount.nfs").exists() || Path::new("/usr/sbin/mount.nfs").exists();
        if helper {
            println!("skipped: this machine has mount.nfs, and might have a server");
            return;
        }
        let refused = nfs::set_up(&rig.host, &export, &target).await.unwrap_err();
        assert_eq!(refused, NfsError::NoHelper);
        assert!(!target.exists());
        rig.mount_tmpfs(&target).await;
        nfs::set_up(&rig.host, &export, &target).await.unwrap();
        for _ in 0..2 {
            nfs::tear_down(&rig.host, &target).await.unwrap();
        }
        assert!(!target.exists());
    });
}

/// Puts a program where mount(8) looks for the helper of NFS, for this namespace only. It leaves what it was called with
/// in `$dir/called`.
fn install_helper(rig: &Rig, then: &str) -> bool {
    let (upper, work) = (rig.dir("upper"), rig.dir("work"));
    let helper = upper.join("mount.nfs");
    let called = rig.path("called");
    fs::write(&helper, format!("#!/bin/sh\necho \"$@\" > {}\n{then}\n", called.display())).unwrap();
    fs::set_permissions(&helper, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let data = format!("lowerdir=/usr/sbin,upperdir={},workdir={}", upper.display(), work.display());
    let data = std::ffi::CString::new(data).unwrap();
    let flags = rustix::mount::MountFlags::empty();
    let mounted = rustix::mount::mount("overlay", "/usr/sbin", "overlay", flags, data.as_c_str());
    if let Err(errno) = &mounted {
        println!("skipped: no overlay over /usr/sbin: {errno}");
    }
    mounted.is_ok() && Path::new("/sbin/mount.nfs").exists()
}

/// Rule: NODE-24
#[test]
fn nfs_is_mounted_by_its_helper_with_sorted_options() {
    on_this_machine(|rig| async move {
        if !install_helper(&rig, "exec mount -i -t tmpfs share \"$2\"") {
            return;
        }
        let options = vec!["soft".to_owned(), "nolock".to_owned(), "soft".to_owned()];
        let export = Export { server: "fd00::1".into(), path: "/x".into(), access: Access::ReadOnly, options };
        let target = pod(&rig).volume(Plugin::Nfs, &name("share"));
        for _ in 0..2 {
            nfs::set_up(&rig.host, &export, &target).await.unwrap();
        }
        let called = fs::read_to_string(rig.path("called")).unwrap();
        assert_eq!(called.trim(), format!("[fd00::1]:/x {} -o ro,nolock,soft", target.display()));
        assert!(rig.is_mounted(&target).await);
        nfs::tear_down(&rig.host, &target).await.unwrap();
        assert!(!target.exists());
    });
}

/// Rule: NODE-24
#[test]
fn an_nfs_mount_that_fails_leaves_nothing_and_names_a_missing_client() {
    on_this_machine(|rig| async move {
        if !install_helper(&rig, "echo 'mount.nfs: No such device' >&2; exit 32") {
            return;
        }
        let export =
            Export { server: "server".into(), path: "/x".into(), access: Access::ReadWrite, options: Vec::new() };
        let target = pod(&rig).volume(Plugin::Nfs, &name("share"));
        let refused = nfs::set_up(&rig.host, &export, &target).await.unwrap_err();
        let known = fs::read_to_string("/proc/filesystems").unwrap();
        let has_client = known.lines().any(|line| line.ends_with("\tnfs") || line.ends_with("\tnfs4"));
        assert_eq!(matches!(refused, NfsError::NoClient(_)), !has_client, "{refused}");
        assert!(refused.to_string().contains("No such device"), "{refused}");
        assert!(!target.exists());
    });
}

/// Rule: NODE-25
#[test]
fn parts_of_volumes_go_with_their_directories_also_dead_ones() {
    on_this_machine(|rig| async move {
        let (pod, volume) = (pod(&rig), name("pv-1"));
        rig.file("volume/part/file", "x");
        for (container, index) in [("web", 0), ("web", 1), ("log", 0)] {
            let target = pod.sub_path(&volume, &name(container), index);
            fs::create_dir_all(target.parent().unwrap()).unwrap();
            let (root, sub_path) = (rig.path("volume"), PathBuf::from("part"));
            let part = SubPath { volume: root, sub_path, target, access: Access::ReadWrite };
            rig.host.expose(&part).await.unwrap();
        }
        if let Some(mut dead) = Silent::mount(pod.sub_path(&volume, &name("log"), 1)) {
            dead.die();
        }
        for _ in 0..2 {
            sub_path::clean(&rig.host, &pod, &volume).await.unwrap();
        }
        assert!(!pod.sub_paths().exists() && rig.path("volume/part/file").exists());
    });
}
