//! The machine, asked for real.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use futures_util::FutureExt as _;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::Errno;

use super::*;
use crate::host::rig::{Rig, Silent, errno, on_this_machine, with_silent_paths};
use crate::host::{Kind, When};
use crate::layout;
use crate::volumes::release_corrupted;

const RO: Access = Access::ReadOnly;
const RW: Access = Access::ReadWrite;

#[test]
fn what_is_at_a_path_is_said_without_following_links() {
    on_this_machine(|rig| async move {
        let file = rig.file("file", "x");
        symlink(&file, rig.path("link")).unwrap();
        mknodat(CWD, rig.path("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        let found = async |name: &str| rig.host.find(&rig.path(name)).await.unwrap();
        assert_eq!(found("file").await, Found::File);
        assert_eq!(found("link").await, Found::Symlink);
        assert_eq!(found("pipe").await, Found::Other);
        assert_eq!(found("none").await, Found::Nothing);
        assert_eq!(found("file/below").await, Found::Nothing);
        assert_eq!(rig.host.find(Path::new("/dev/null")).await.unwrap(), Found::Device);
        let look = async |path: &Path| rig.host.look(path).await.unwrap();
        assert_eq!(look(&rig.path("link")).await.kind, Kind::File);
        assert_eq!(look(Path::new("/dev/null")).await.kind, Kind::CharDevice);
        assert_eq!(look(&rig.path("none")).await.kind, Kind::Nothing);
    });
}

/// Rule: NODE-31.1
#[test]
fn files_are_written_whole_and_read_whole() {
    on_this_machine(|rig| async move {
        let (host, path) = (&rig.host, rig.path("file"));
        assert_eq!(host.read(&path).await.unwrap(), None);
        host.write(&path, b"old, and longer", 0o600).await.unwrap();
        host.write(&path, b"new", 0o600).await.unwrap();
        assert_eq!(host.read(&path).await.unwrap().unwrap(), b"new");
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o600);
        let missing = host.write(&rig.path("no/file"), b"x", 0o600).await.unwrap_err();
        assert_eq!(errno(&missing), Errno::NOENT.raw_os_error());
        mknodat(CWD, rig.path("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(!host.read(&rig.path("pipe")).await.unwrap_err().is_hung(), "a pipe is not waited for");
        symlink(&path, rig.path("link")).unwrap();
        assert!(host.read(&rig.path("link")).await.is_err());
    });
}

/// Rule: NODE-31.30
#[test]
fn metadata_is_written_only_when_it_changes_and_leftovers_go_with_it() {
    on_this_machine(|rig| async move {
        let (host, path) = (&rig.host, rig.path("vol_data.json"));
        let mut says = layout::VolumeData { driver: "d".into(), handle: "h".into(), ..Default::default() };
        let store = async |says: &layout::VolumeData| layout::data::store(host, &path, says).await.unwrap();
        assert_eq!(store(&says).await, layout::Wrote::Yes);
        let inode = path.metadata().unwrap().ino();
        assert_eq!(store(&says).await, layout::Wrote::Unchanged);
        assert_eq!(path.metadata().unwrap().ino(), inode);
        says.node = Some("n".to_owned());
        assert_eq!(store(&says).await, layout::Wrote::Yes);
        fs::write(&path, "{\"driverName\":").unwrap();
        assert!(matches!(layout::data::load(host, &path).await.unwrap(), layout::Stored::Damaged(_)));
        assert_eq!(store(&says).await, layout::Wrote::Yes, "what is damaged is replaced");
        let leftover = rig.file(".tmp-7-0-vol_data.json", "half");
        layout::data::remove(host, &path).await.unwrap();
        assert!(!leftover.exists() && !path.exists());
        assert_eq!(layout::data::load(host, &path).await.unwrap(), layout::Stored::Absent);
    });
}

/// Rule: NODE-30.7
#[test]
fn a_reader_sees_the_old_file_or_the_new_one_and_never_a_part() {
    on_this_machine(|rig| async move {
        let path = rig.path("vol_data.json");
        let says =
            |handle: &str| layout::VolumeData { driver: "d".into(), handle: handle.into(), ..Default::default() };
        let versions = [says("short"), says(&"long".repeat(5000))];
        layout::data::store(&rig.host, &path, &versions[0]).await.unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let (end, file) = (Arc::clone(&over), path.clone());
        let reader = std::thread::spawn(move || {
            let mut torn = 0;
            while !end.load(Ordering::Relaxed) {
                torn += usize::from(layout::VolumeData::decode(&fs::read(&file).unwrap()).is_err());
            }
            torn
        });
        let mut written = Ok(());
        for version in versions.iter().cycle().skip(1).take(200) {
            written = written.and(layout::data::store(&rig.host, &path, version).await.map(drop));
        }
        over.store(true, Ordering::Relaxed);
        assert_eq!((reader.join().unwrap(), written), (0, Ok(())));
        assert_eq!(rig.host.list(&rig.path("")).await.unwrap().len(), 1, "nothing is left beside it");
    });
}

#[test]
fn directories_files_and_links_are_made_once_and_keep_what_they_have() {
    on_this_machine(|rig| async move {
        let (host, directory) = (&rig.host, rig.path("a/b/c"));
        host.make_directory(&directory, 0o750).await.unwrap();
        assert_eq!(rig.path("a").metadata().unwrap().mode() & 0o7777, 0o750);
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
        host.make_directory(&directory, 0o777).await.unwrap();
        assert_eq!(directory.metadata().unwrap().mode() & 0o7777, 0o700);
        let file = rig.file("file", "kept");
        host.make_file(&file, 0o600).await.unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"kept");
        assert_eq!(errno(&host.make_directory(&file, 0o700).await.unwrap_err()), Errno::NOTDIR.raw_os_error());
        let link = rig.path("link");
        for target in ["/one", "/two"] {
            host.link(Path::new(target), &link).await.unwrap();
            assert_eq!(fs::read_link(&link).unwrap(), Path::new(target));
        }
        assert!(host.link(Path::new("/one"), &file).await.is_err(), "a file is not a link");
        host.set_mode(&directory, 0o777).await.unwrap();
        assert_eq!(directory.metadata().unwrap().mode() & 0o7777, 0o777);
        assert!(host.set_mode(&link, 0o777).await.is_err());
        for _ in 0..2 {
            host.remove_file(&link).await.unwrap();
            host.remove_directory(&directory).await.unwrap();
        }
        let listed: Vec<_> = host.list(&rig.path("")).await.unwrap();
        let names: Vec<_> = listed.iter().map(|entry| (entry.name.to_str().unwrap(), entry.is_directory)).collect();
        assert_eq!(names, [("a", true), ("file", false)]);
        assert_eq!(host.list(&rig.path("none")).await.unwrap(), []);
    });
}

/// Rule: NODE-31.24
#[test]
fn mounts_with_odd_names_are_found() {
    on_this_machine(|rig| async move {
        for odd in ["a b", "tab\there", "new\nline", "back\\slash", "\\040", "comma,hash#", "ü (deleted)"] {
            let point = rig.path("odd").join(odd);
            rig.mount_tmpfs(&point).await;
            let mounts = rig.host.mounts().await.unwrap();
            assert_eq!(mounts.under(&point).count(), 1, "{odd:?}");
            rig.host.unmount(&point, Force::No).await.unwrap();
            assert!(!rig.is_mounted(&point).await, "{odd:?}");
        }
    });
}

#[test]
fn of_mounts_on_top_of_each_other_the_last_is_seen_and_unmounted_first() {
    on_this_machine(|rig| async move {
        let point = rig.dir("point");
        rig.mount_tmpfs(&point).await;
        rig.file("source/upper", "");
        rig.host.bind(&rig.path("source"), &point, RW).await.unwrap();
        assert_eq!(rig.host.mounts().await.unwrap().at(&point).unwrap().root, Path::new("/source"));
        rig.host.unmount(&point, Force::No).await.unwrap();
        assert_eq!(rig.host.mounts().await.unwrap().at(&point).unwrap().root, Path::new("/"));
        for _ in 0..2 {
            rig.host.unmount(&point, Force::No).await.unwrap();
        }
        assert!(!rig.is_mounted(&point).await, "nothing there is a success");
        rig.host.unmount(&rig.path("no/such/path"), Force::No).await.unwrap();
    });
}

#[test]
fn every_change_of_the_mounts_is_seen_at_once() {
    on_this_machine(|rig| async move {
        let (source, target) = (rig.dir("source"), rig.dir("target"));
        for round in 0..200 {
            let access = if round % 2 == 0 { RO } else { RW };
            rig.host.bind(&source, &target, access).await.unwrap();
            let mounts = rig.host.mounts().await.unwrap();
            assert_eq!(mounts.at(&target).map(|mount| mount.read_only), Some(access == RO), "round {round}");
            rig.host.unmount(&target, Force::No).await.unwrap();
            assert!(!rig.is_mounted(&target).await, "round {round}");
        }
        rig.host.bind(&source, &target, RW).await.unwrap();
        assert!(!rig.host.mounts().await.unwrap().at(&target).unwrap().read_only);
        let flags = rustix::mount::MountFlags::BIND | rustix::mount::MountFlags::RDONLY;
        rustix::mount::mount_remount(&target, flags, "").unwrap();
        assert!(rig.host.mounts().await.unwrap().at(&target).unwrap().read_only, "a remount is seen, too");
    });
}

/// Rule: NODE-29.2
#[test]
fn what_shows_the_same_is_found() {
    on_this_machine(|rig| async move {
        let (source, target) = (rig.dir("source/sub"), rig.dir("target"));
        rig.host.bind(&source, &target, RW).await.unwrap();
        let mounts = rig.host.mounts().await.unwrap();
        let points = |path: &Path| mounts.references(path).map(|mount| mount.point.clone()).collect::<Vec<_>>();
        assert_eq!(points(&source), std::slice::from_ref(&target));
        assert!(points(&rig.path("source")).is_empty());
        assert_eq!(mounts.copies(&target).count(), 0);
        assert_eq!(mounts.enclosing(&target.join("below")).unwrap().point, target);
    });
}

/// Rule: NODE-31.27
#[test]
fn a_read_only_bind_is_never_writable() {
    on_this_machine(|rig| async move {
        let (source, target) = (rig.dir("source"), rig.dir("target"));
        let witness = rig.file("source/witness", "");
        // It is there only through the mount, so it can be opened for writing only through a writable one.
        let watcher = Watcher::start(target.join("witness"));
        for _ in 0..100 {
            rig.host.bind(&source, &target, RO).await.unwrap();
            rig.host.unmount(&target, Force::No).await.unwrap();
        }
        assert_eq!(watcher.stop(), 0, "times it could be written to");
        rig.host.bind(&source, &target, RO).await.unwrap();
        assert!(rig.host.mounts().await.unwrap().at(&target).unwrap().read_only);
        fs::write(&witness, "the source stays writable").unwrap();
        symlink(&source, rig.path("link")).unwrap();
        assert!(rig.host.bind(&rig.path("link"), &target, RW).await.is_err(), "a link is no end of a bind");
    });
}

/// Tries to open a file for writing, all the time.
struct Watcher {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<usize>>,
}

impl Watcher {
    fn start(path: PathBuf) -> Watcher {
        let over = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            let mut opened = 0;
            while !end.load(Ordering::Relaxed) {
                opened += usize::from(fs::OpenOptions::new().write(true).open(&path).is_ok());
            }
            opened
        });
        Watcher { over, thread: Some(thread) }
    }

    fn stop(mut self) -> usize {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Rules: NODE-29.7, NODE-31.10
#[test]
fn removing_stops_before_anything_is_removed_if_something_is_mounted() {
    on_this_machine(|rig| async move {
        let (tree, outside) = (rig.dir("tree/deep/er"), rig.dir("outside"));
        rig.file("tree/first", "x");
        fs::write(outside.join("precious"), "x").unwrap();
        symlink(&outside, rig.path("tree/link")).unwrap();
        rig.host.bind(&outside, &tree, RW).await.unwrap();
        let refused = rig.host.remove_tree(&rig.path("tree")).await.unwrap_err();
        assert_eq!(errno(&refused), Errno::BUSY.raw_os_error());
        assert!(refused.to_string().contains("tree/deep/er"), "{refused}");
        assert!(rig.path("tree/first").exists());
        assert_eq!(errno(&rig.host.remove_directory(&tree).await.unwrap_err()), Errno::BUSY.raw_os_error());
        rig.host.unmount(&tree, Force::No).await.unwrap();
        for _ in 0..2 {
            rig.host.remove_tree(&rig.path("tree")).await.unwrap();
        }
        assert!(outside.join("precious").exists() && !rig.path("tree").exists());
    });
}

/// Rule: NODE-2
#[test]
fn the_root_shares_its_mounts_once_and_hides_none() {
    on_this_machine(|rig| async move {
        let root = rig.layout.root().to_path_buf();
        rig.mount_tmpfs(&root.join("before")).await;
        fs::write(root.join("before/file"), "x").unwrap();
        for _ in 0..2 {
            layout::prepare(&rig.host, &rig.layout).await.unwrap();
        }
        let mounts = rig.host.mounts().await.unwrap();
        assert_eq!(mounts.0.iter().filter(|mount| mount.point == root).count(), 1);
        assert!(mounts.at(&root).unwrap().shared);
        assert!(root.join("before/file").exists());
        // It was moved, not copied: nothing is left under the new mount that nobody could unmount.
        rig.host.unmount(&root.join("before"), Force::No).await.unwrap();
        assert!(!rig.is_mounted(&root.join("before")).await);
        rig.host.remove_tree(&root.join("before")).await.unwrap();
        for made in [rig.layout.pods(), rig.layout.plugins(), rig.layout.registry()] {
            assert_eq!(made.metadata().unwrap().mode() & 0o7777, 0o750, "{}", made.display());
        }
    });
}

#[test]
fn a_root_that_is_a_link_is_refused_because_mounts_have_no_links() {
    on_this_machine(|rig| async move {
        let real = rig.dir("real");
        symlink(&real, rig.path("root")).unwrap();
        let refused = layout::prepare(&rig.host, &rig.layout).await.unwrap_err();
        assert!(matches!(refused, layout::PrepareError::Linked { real: to, .. } if to == real));
    });
}

/// Rule: NODE-29.3
#[test]
fn a_mount_call_is_mount_8_and_says_what_it_said() {
    on_this_machine(|rig| async move {
        let target = rig.dir("target");
        let mut call = MountCall {
            fs_type: "tmpfs".to_owned(),
            source: "-o remount".to_owned(),
            target: target.clone(),
            options: vec!["size=1m".to_owned(), "noexec".to_owned()],
        };
        rig.host.mount(&call).await.unwrap();
        assert_eq!(rig.host.mounts().await.unwrap().at(&target).unwrap().source, "-o remount");
        assert_eq!(rig.host.usage(&target).await.unwrap().capacity, 1 << 20);
        call.fs_type = "nosuchfs".to_owned();
        let refused = rig.host.mount(&call).await.unwrap_err().to_string();
        assert!(refused.contains("nosuchfs"), "{refused}");
    });
}

/// Rule: NODE-29.4
#[test]
fn a_busy_mount_is_refused_and_said_to_be_busy() {
    on_this_machine(|rig| async move {
        let point = rig.path("point");
        rig.mount_tmpfs(&point).await;
        let open = fs::File::create(point.join("file")).unwrap();
        assert_eq!(errno(&rig.host.unmount(&point, Force::No).await.unwrap_err()), Errno::BUSY.raw_os_error());
        drop(open);
        rig.host.unmount(&point, Force::No).await.unwrap();
    });
}

/// Rule: NODE-14
#[test]
fn ownership_follows_the_policy_and_reports() {
    on_this_machine(|rig| async move {
        let root = rig.dir("volume");
        for number in 0..300 {
            rig.file(&format!("volume/{number}"), "");
        }
        let mut wanted = Ownership { root: root.clone(), group: 77, access: RW, when: When::OnRootMismatch };
        let told = std::sync::Mutex::new(Vec::new());
        let progress = |files| told.lock().unwrap().push(files);
        let changed = rig.host.own(&wanted, &progress).await.unwrap();
        assert_eq!(changed, Owned::Changed { files: 301, refused: 0 });
        let heard = told.lock().unwrap().clone();
        assert!(heard.is_sorted() && heard.iter().all(|files| *files <= 301), "{heard:?}");
        std::os::unix::fs::chown(root.join("7"), None, Some(0)).unwrap();
        assert_eq!(rig.host.own(&wanted, &progress).await.unwrap(), Owned::Already);
        wanted.when = When::Always;
        assert_eq!(rig.host.own(&wanted, &progress).await.unwrap(), Owned::Changed { files: 301, refused: 0 });
        assert_eq!(root.join("7").metadata().unwrap().gid(), 77);
    });
}

/// Rule: NODE-31.19
#[test]
fn a_walk_that_nobody_waits_for_ends_and_can_begin_again() {
    on_this_machine(|rig| async move {
        for number in 0..5000 {
            rig.file(&format!("volume/{}/{number}", number % 10), "");
        }
        let root = rig.path("volume");
        let wanted = Ownership { root: root.clone(), group: 77, access: RW, when: When::Always };
        let begun = tokio::sync::Notify::new();
        let progress = |_| begun.notify_one();
        tokio::select! {
            biased;
            () = begun.notified() => {}
            _ = rig.host.own(&wanted, &progress) => {}
        }
        // The next walk waits for the first, which has been told to stop.
        let changed = rig.host.own(&wanted, &|_| {}).await.unwrap();
        assert_eq!(changed, Owned::Changed { files: 5011, refused: 0 });
        assert_eq!(root.metadata().unwrap().gid(), 77);
    });
}

/// Rule: NODE-25
#[test]
fn a_part_of_a_volume_is_shown_and_not_what_is_outside_of_it() {
    on_this_machine(|rig| async move {
        rig.file("volume/part/file", "x");
        symlink("/etc", rig.path("volume/out")).unwrap();
        let target = rig.dir("targets").join("0");
        let mut part =
            SubPath { volume: rig.path("volume"), sub_path: PathBuf::from("part"), target: target.clone(), access: RO };
        rig.host.expose(&part).await.unwrap();
        assert!(target.join("file").exists() && fs::write(target.join("new"), "").is_err());
        part.sub_path = PathBuf::from("out");
        let refused = rig.host.expose(&part).await.unwrap_err();
        assert!(refused.to_string().contains("leads out of the volume"), "{refused}");
    });
}

/// Two paths: one that does not answer, and one beside it.
async fn silent_and_neighbour(rig: &Rig) -> Option<(Silent, PathBuf)> {
    let silent = Silent::mount(rig.path("volumes/silent"))?;
    let hung = rig.host.find(&silent.point).await.unwrap_err();
    assert!(hung.is_hung(), "{hung}");
    Some((silent, rig.file("volumes/neighbour/file", "x")))
}

/// Rule: NODE-31.9
#[test]
fn a_path_that_does_not_answer_costs_its_deadline_once_and_others_nothing() {
    with_silent_paths(|rig| async move {
        let Some((silent, neighbour)) = silent_and_neighbour(&rig).await else { return };
        let host = &rig.host;
        assert_eq!(host.silent().iter().map(|(path, _)| path).collect::<Vec<_>>(), [&silent.point]);
        // Nobody waits for it again, and nobody asks what is below it.
        for path in [silent.point.clone(), silent.point.join("below/it")] {
            assert!(host.find(&path).now_or_never().unwrap().unwrap_err().is_hung());
            assert!(host.list(&path).now_or_never().unwrap().unwrap_err().is_hung());
            assert!(host.bind(&neighbour, &path, RW).now_or_never().unwrap().unwrap_err().is_hung());
        }
        let walk = Ownership { root: silent.point.clone(), group: 1, access: RW, when: When::Always };
        assert!(host.own(&walk, &|_| {}).now_or_never().unwrap().unwrap_err().is_hung());
        // What is above and beside it answers.
        assert_eq!(host.find(&neighbour).await.unwrap(), Found::File);
        let names: Vec<_> = host.list(&rig.path("volumes")).await.unwrap();
        assert_eq!(names.len(), 2);
        assert!(host.mounts().await.unwrap().at(&silent.point).is_some());
    });
}

/// Rule: NODE-31.9
#[test]
fn a_path_that_does_not_answer_is_released_with_those_who_wait_for_it() {
    with_silent_paths(|rig| async move {
        let Some((silent, _)) = silent_and_neighbour(&rig).await else { return };
        release_corrupted(&rig.host, &silent.point).await.unwrap();
        assert!(!rig.is_mounted(&silent.point).await);
        rig.host.quiet().await;
        assert_eq!(rig.host.silent(), []);
        assert_eq!(rig.host.find(&silent.point).await.unwrap(), Found::Directory, "what is under it answers again");
        rig.host.remove_directory(&silent.point).await.unwrap();
    });
}

#[test]
fn a_lazy_unmount_alone_releases_them_too() {
    with_silent_paths(|rig| async move {
        let Some((silent, _)) = silent_and_neighbour(&rig).await else { return };
        rig.host.unmount(&silent.point, Force::Lazy).await.unwrap();
        rig.host.quiet().await;
        assert_eq!(rig.host.find(&silent.point).await.unwrap(), Found::Directory);
    });
}

/// Rule: NODE-29.1
#[test]
fn a_mount_whose_server_died_is_corrupted_and_is_unmounted_like_any_other() {
    on_this_machine(|rig| async move {
        let Some(mut silent) = Silent::mount(rig.path("volume")) else { return };
        silent.die();
        let found = rig.host.find(&silent.point).await.unwrap();
        let notconn = Errno::NOTCONN.raw_os_error();
        assert!(matches!(found, Found::Corrupted { errno, .. } if errno == notconn), "{found:?}");
        assert_eq!(rig.host.list(&rig.path("")).await.unwrap().len(), 1, "its directory can be listed");
        assert!(rig.host.remove_tree(&rig.path("volume")).await.is_err());
        rig.host.unmount(&silent.point, Force::No).await.unwrap();
        assert_eq!(rig.host.find(&silent.point).await.unwrap(), Found::Directory);
    });
}

/// Rule: NODE-14
#[test]
fn a_walk_over_a_volume_that_does_not_answer_ends() {
    with_silent_paths(|rig| async move {
        let Some(silent) = Silent::mount(rig.path("silent")) else { return };
        let walk = Ownership { root: silent.point.clone(), group: 1, access: RW, when: When::Always };
        assert!(rig.host.own(&walk, &|_| {}).await.unwrap_err().is_hung());
    });
}

/// Rules: NODE-29.1, NODE-29.2
#[test]
fn every_way_to_be_dead_is_recognised() {
    on_this_machine(|rig| async move {
        let dead = [Errno::STALE, Errno::IO, Errno::HOSTDOWN, Errno::NODEV, Errno::ACCESS, Errno::AGAIN];
        for (number, errno) in dead.into_iter().enumerate() {
            let Some(silent) = Silent::mount(rig.path(&format!("volume-{number}"))) else { return };
            let point = silent.point.clone();
            silent.answer_all(errno);
            let found = rig.host.find(&point).await.unwrap();
            let says =
                |found: &Found| matches!(found, Found::Corrupted { errno: said, .. } if *said == errno.raw_os_error());
            assert!(says(&found), "{errno}: {found:?}");
            release_corrupted(&rig.host, &point).await.unwrap();
            assert_eq!(rig.host.find(&point).await.unwrap(), Found::Directory);
        }
    });
}

#[test]
fn a_filesystem_on_a_device_is_never_detached_while_it_is_in_use() {
    on_this_machine(|rig| async move {
        let device = |major| crate::host::Mount {
            point: rig.path("a"),
            device: (major, 1),
            root: PathBuf::from("/"),
            fs_type: "xfs".to_owned(),
            source: "/dev/x".into(),
            read_only: false,
            shared: false,
        };
        let bound = crate::host::Mount { point: rig.path("b"), ..device(8) };
        let path = rig.path("a");
        assert!(!crate::volumes::may_detach(&Mounts(vec![device(8)]), &path), "it would stay active, and be hidden");
        assert!(crate::volumes::may_detach(&Mounts(vec![device(8), bound]), &path), "the other mount shows it");
        assert!(crate::volumes::may_detach(&Mounts(vec![device(0)]), &path), "it has a server and no device");
    });
}

#[test]
fn a_path_that_does_not_answer_has_few_threads_however_many_ask() {
    with_silent_paths(|rig| async move {
        let Some(silent) = Silent::mount(rig.path("silent")) else { return };
        let asked = (0..30).map(|_| rig.host.find(&silent.point));
        let answers = futures_util::future::join_all(asked).await;
        assert!(answers.iter().all(|answer| answer.as_ref().is_err_and(HostError::is_hung)));
        assert!(rig.host.isolation.threads() <= 8, "{}", rig.host.isolation.threads());
        assert!(rig.host.find(&silent.point).now_or_never().unwrap().is_err());
    });
}

#[test]
fn a_healthy_mount_is_not_forced_away() {
    on_this_machine(|rig| async move {
        let point = rig.path("point");
        rig.mount_tmpfs(&point).await;
        let refused = release_corrupted(&rig.host, &point).await.unwrap_err();
        assert!(refused.to_string().contains("it answers"), "{refused}");
        assert!(rig.is_mounted(&point).await);
    });
}

#[test]
fn a_hundred_questions_at_once_are_all_answered() {
    on_this_machine(|rig| async move {
        let file = rig.file("file", "x");
        let asked = (0..100).map(|_| rig.host.find(&file));
        let answers = futures_util::future::join_all(asked).await;
        assert!(answers.iter().all(|answer| *answer == Ok(Found::File)));
    });
}
