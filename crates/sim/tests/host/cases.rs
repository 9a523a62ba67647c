//! What every machine does, whoever implements it: each case gets a host and an empty directory of its own.

use std::path::{Path, PathBuf};

use futures_util::future::BoxFuture;
use node::host::{Access, Entry, Force, Found, Host, HostError, MountCall, Owned, Ownership, SubPath, When};

/// One behaviour.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) needs: Needs,
    pub(crate) run: for<'a> fn(&'a dyn Host, &'a Path) -> BoxFuture<'a, ()>,
}

/// What has to be allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    Mounts,
}

macro_rules! cases {
    ($($needs:ident $name:ident;)*) => {
        pub(crate) const ALL: &[Case] = &[$(Case {
            name: stringify!($name),
            needs: Needs::$needs,
            run: |host, root| Box::pin($name(host, root)),
        },)*];
    };
}

cases! {
    Nothing a_file_is_replaced_as_a_whole;
    Nothing nothing_there_is_an_answer;
    Nothing what_is_not_there_is_removed_already;
    Nothing a_directory_goes_when_it_is_empty;
    Nothing an_empty_file_is_made_once;
    Nothing a_link_is_replaced_followed_and_removed_alone;
    Nothing a_removal_does_not_follow_links;
    Nothing a_filesystem_says_how_full_it_is;
    Mounts a_bind_mount_shows_the_same_and_goes;
    Mounts a_mount_point_is_not_removed;
    Mounts a_read_only_bind_mount_cannot_be_written_through;
    Mounts a_directory_is_shared_once;
    Mounts the_topmost_mount_is_unmounted;
    Mounts a_mount_with_another_below_it_is_busy;
    Mounts a_filesystem_in_memory_is_mounted_and_gone;
    Mounts a_part_of_a_volume_is_exposed_and_nothing_outside_of_it;
    Mounts a_group_is_given_once_if_that_is_enough;
}

fn errno(error: &HostError) -> i32 {
    match error {
        HostError::Refused { errno, .. } => *errno,
        HostError::Hung { .. } | HostError::WrongFilesystem { .. } => panic!("{error}"),
    }
}

async fn directory(host: &dyn Host, root: &Path, name: &str) -> PathBuf {
    let path = root.join(name);
    host.make_directory(&path, 0o750).await.expect("a directory can be made");
    path
}

async fn is_mounted(host: &dyn Host, path: &Path) -> bool {
    host.mounts().await.expect("there is a mount table").at(path).is_some()
}

async fn a_file_is_replaced_as_a_whole(host: &dyn Host, root: &Path) {
    let file = root.join("vol_data.json");
    for content in [&b"a long one"[..], b"short", b""] {
        host.write(&file, content, 0o600).await.expect("it is written");
        assert_eq!(host.read(&file).await, Ok(Some(content.to_vec())));
    }
    assert_eq!(host.find(&file).await, Ok(Found::File));
    let entry = Entry { name: "vol_data.json".into(), is_directory: false };
    assert_eq!(host.list(root).await, Ok(vec![entry]), "nothing else is left by it");
    let error = host.write(&root.join("missing/file"), b"", 0o600).await.expect_err("its directory is missing");
    assert_eq!(errno(&error), 2, "{error}");
}

async fn nothing_there_is_an_answer(host: &dyn Host, root: &Path) {
    let none = root.join("none");
    assert_eq!(host.find(&none).await, Ok(Found::Nothing));
    assert_eq!(host.find(&none.join("below")).await, Ok(Found::Nothing));
    assert_eq!(host.list(&none).await, Ok(Vec::new()));
    assert_eq!(host.read(&none).await, Ok(None));
    host.resolve(&none).await.expect_err("it leads nowhere");
}

async fn what_is_not_there_is_removed_already(host: &dyn Host, root: &Path) {
    let none = root.join("none");
    host.remove_file(&none).await.expect("nothing is a success");
    host.remove_directory(&none).await.expect("nothing is a success");
    host.remove_tree(&none).await.expect("nothing is a success");
    host.unmount(&none, Force::No).await.expect("nothing is a success");
    let there = directory(host, root, "there").await;
    host.unmount(&there, Force::No).await.expect("nothing mounted is a success");
    assert_eq!(host.find(&there).await, Ok(Found::Directory));
}

async fn a_directory_goes_when_it_is_empty(host: &dyn Host, root: &Path) {
    let deep = directory(host, root, "a/b").await;
    host.make_directory(&deep, 0o700).await.expect("one that is there is fine");
    let error = host.remove_directory(&root.join("a")).await.expect_err("it is not empty");
    assert_eq!(errno(&error), 39, "{error}");
    host.write(&deep.join("file"), b"x", 0o600).await.expect("it is written");
    host.remove_directory(&deep).await.expect_err("it is not empty");
    host.remove_file(&deep.join("file")).await.expect("it goes");
    host.remove_directory(&deep).await.expect("it is empty");
    host.write(&root.join("a/file"), b"x", 0o600).await.expect("it is written");
    host.remove_tree(&root.join("a")).await.expect("with everything in it");
    assert_eq!(host.list(root).await, Ok(Vec::new()));
}

async fn an_empty_file_is_made_once(host: &dyn Host, root: &Path) {
    let file = root.join("file");
    host.make_file(&file, 0o600).await.expect("it is made");
    assert_eq!(host.read(&file).await, Ok(Some(Vec::new())));
    host.write(&file, b"x", 0o600).await.expect("it is written");
    host.make_file(&file, 0o600).await.expect("it is there");
    assert_eq!(host.read(&file).await, Ok(Some(b"x".to_vec())), "it keeps its content");
    host.set_mode(&file, 0o640).await.expect("it has a mode");
}

async fn a_link_is_replaced_followed_and_removed_alone(host: &dyn Host, root: &Path) {
    let [one, two] = [directory(host, root, "one").await, directory(host, root, "two").await];
    let link = root.join("link");
    host.link(&one, &link).await.expect("it is made");
    host.link(&two, &link).await.expect("it is replaced");
    assert_eq!(host.find(&link).await, Ok(Found::Symlink));
    assert_eq!(host.resolve(&link).await, host.resolve(&two).await);
    host.write(&link.join("file"), b"x", 0o600).await.expect("it is followed");
    assert_eq!(host.read(&two.join("file")).await, Ok(Some(b"x".to_vec())));
    host.remove_file(&link).await.expect("only the link goes");
    assert_eq!(host.find(&link).await, Ok(Found::Nothing));
    assert_eq!(host.find(&two.join("file")).await, Ok(Found::File));
}

async fn a_removal_does_not_follow_links(host: &dyn Host, root: &Path) {
    let [outside, tree] = [directory(host, root, "outside").await, directory(host, root, "tree").await];
    host.write(&outside.join("file"), b"x", 0o600).await.expect("it is written");
    host.link(&outside, &tree.join("link")).await.expect("it is made");
    host.remove_tree(&tree).await.expect("the link is only a name");
    assert_eq!(host.find(&tree).await, Ok(Found::Nothing));
    assert_eq!(host.find(&outside.join("file")).await, Ok(Found::File));
}

async fn a_filesystem_says_how_full_it_is(host: &dyn Host, root: &Path) {
    let usage = host.usage(root).await.expect("it can be measured");
    assert!(usage.capacity > 0 && usage.available <= usage.capacity, "{usage:?}");
    host.usage(&root.join("none")).await.expect_err("nothing has no size");
}

async fn a_bind_mount_shows_the_same_and_goes(host: &dyn Host, root: &Path) {
    let [source, target] = [directory(host, root, "source").await, directory(host, root, "target").await];
    host.write(&source.join("file"), b"x", 0o600).await.expect("it is written");
    host.bind(&source, &target, Access::ReadWrite).await.expect("it is bound");
    assert_eq!(host.read(&target.join("file")).await, Ok(Some(b"x".to_vec())));
    let mounts = host.mounts().await.expect("there is a mount table");
    let mount = mounts.at(&target).expect("it is in the table");
    assert!(!mount.read_only, "{mount:?}");
    host.unmount(&target, Force::No).await.expect("nobody uses it");
    assert!(!is_mounted(host, &target).await);
    assert_eq!(host.list(&target).await, Ok(Vec::new()));
    assert_eq!(host.find(&source.join("file")).await, Ok(Found::File));
}

async fn a_mount_point_is_not_removed(host: &dyn Host, root: &Path) {
    let source = directory(host, root, "source").await;
    let target = directory(host, root, "pods/one/mount").await;
    host.bind(&source, &target, Access::ReadWrite).await.expect("it is bound");
    let error = host.remove_directory(&target).await.expect_err("it is a mount point, and empty");
    assert_eq!(errno(&error), 16, "{error}");
    host.write(&source.join("file"), b"x", 0o600).await.expect("it is written");
    for path in [target.clone(), root.join("pods/one"), root.join("pods")] {
        host.remove_tree(&path).await.expect_err("there is a mount point");
        assert_eq!(host.read(&source.join("file")).await, Ok(Some(b"x".to_vec())), "{}", path.display());
        assert!(is_mounted(host, &target).await);
    }
    host.unmount(&target, Force::No).await.expect("nobody uses it");
    host.remove_tree(&root.join("pods")).await.expect("nothing is mounted any more");
}

async fn a_read_only_bind_mount_cannot_be_written_through(host: &dyn Host, root: &Path) {
    let [source, target] = [directory(host, root, "source").await, directory(host, root, "target").await];
    host.bind(&source, &target, Access::ReadOnly).await.expect("it is bound");
    assert!(host.mounts().await.expect("a table").at(&target).is_some_and(|mount| mount.read_only));
    let error = host.write(&target.join("file"), b"x", 0o600).await.expect_err("it is read-only");
    assert_eq!(errno(&error), 30, "{error}");
    host.write(&source.join("file"), b"x", 0o600).await.expect("the source is not");
    host.unmount(&target, Force::No).await.expect("nobody uses it");
}

async fn a_directory_is_shared_once(host: &dyn Host, root: &Path) {
    let shared = directory(host, root, "shared").await;
    for _ in 0..2 {
        host.make_shared(&shared).await.expect("it is shared");
    }
    let mounts = host.mounts().await.expect("a table");
    let here: Vec<_> = mounts.under(root).collect();
    // Where everything is shared already, nothing has to be mounted.
    assert!(here.len() <= 1, "{here:?}");
    assert!(here.iter().all(|mount| mount.shared && mount.point == shared), "{here:?}");
    host.unmount(&shared, Force::No).await.expect("nobody uses it");
}

async fn the_topmost_mount_is_unmounted(host: &dyn Host, root: &Path) {
    let target = directory(host, root, "target").await;
    for name in ["one", "two"] {
        let source = directory(host, root, name).await;
        host.write(&source.join(name), b"x", 0o600).await.expect("it is written");
        host.bind(&source, &target, Access::ReadWrite).await.expect("it is bound");
    }
    assert_eq!(host.find(&target.join("two")).await, Ok(Found::File));
    host.unmount(&target, Force::No).await.expect("nobody uses it");
    assert_eq!(host.find(&target.join("one")).await, Ok(Found::File));
    host.unmount(&target, Force::No).await.expect("nobody uses it");
    assert!(!is_mounted(host, &target).await);
}

async fn a_mount_with_another_below_it_is_busy(host: &dyn Host, root: &Path) {
    let [outer, source] = [directory(host, root, "outer").await, directory(host, root, "source").await];
    directory(host, root, "source/inner").await;
    host.bind(&source, &outer, Access::ReadWrite).await.expect("it is bound");
    let inner = outer.join("inner");
    host.bind(&source, &inner, Access::ReadWrite).await.expect("it is bound");
    let error = host.unmount(&outer, Force::No).await.expect_err("something is below it");
    assert_eq!(errno(&error), 16, "{error}");
    host.unmount(&outer, Force::Lazy).await.expect("it goes with what is below it");
    assert!(!is_mounted(host, &outer).await && !is_mounted(host, &inner).await);
}

async fn a_filesystem_in_memory_is_mounted_and_gone(host: &dyn Host, root: &Path) {
    let target = directory(host, root, "target").await;
    let (fs_type, source, options) = ("tmpfs".to_owned(), "tmpfs".to_owned(), vec!["size=65536".to_owned()]);
    let call = MountCall { fs_type, source, target: target.clone(), options };
    host.mount(&call).await.expect("it is mounted");
    host.write(&target.join("file"), b"x", 0o600).await.expect("it is written");
    assert_eq!(host.mounts().await.expect("a table").at(&target).map(|mount| &*mount.fs_type), Some("tmpfs"));
    host.unmount(&target, Force::No).await.expect("nobody uses it");
    assert_eq!(host.find(&target.join("file")).await, Ok(Found::Nothing));
}

async fn a_part_of_a_volume_is_exposed_and_nothing_outside_of_it(host: &dyn Host, root: &Path) {
    let volume = directory(host, root, "volume").await;
    let outside = directory(host, root, "outside").await;
    directory(host, root, "volume/part").await;
    host.link(&outside, &volume.join("out")).await.expect("a link out of the volume");
    let parent = directory(host, root, "subpaths").await;
    let part = |sub_path: &str, target: &str| SubPath {
        volume: volume.clone(),
        sub_path: sub_path.into(),
        target: parent.join(target),
        access: Access::ReadWrite,
    };
    host.expose(&part("part", "0")).await.expect("it is a part of the volume");
    host.write(&parent.join("0/file"), b"x", 0o600).await.expect("it is written");
    assert_eq!(host.read(&volume.join("part/file")).await, Ok(Some(b"x".to_vec())));
    host.expose(&part("out", "1")).await.expect_err("it leads out of the volume");
    assert!(!is_mounted(host, &parent.join("1")).await);
    host.unmount(&parent.join("0"), Force::No).await.expect("nobody uses it");
}

async fn a_group_is_given_once_if_that_is_enough(host: &dyn Host, root: &Path) {
    let volume = directory(host, root, "volume").await;
    host.write(&volume.join("file"), b"x", 0o600).await.expect("it is written");
    let ownership = |when| Ownership { root: volume.clone(), group: 4242, access: Access::ReadWrite, when };
    let first = host.own(&ownership(When::OnRootMismatch), &|_| {}).await.expect("it is given");
    assert_eq!(first, Owned::Changed { files: 2, refused: 0 });
    assert_eq!(host.own(&ownership(When::OnRootMismatch), &|_| {}).await, Ok(Owned::Already));
    assert_eq!(host.own(&ownership(When::Always), &|_| {}).await, Ok(Owned::Changed { files: 2, refused: 0 }));
}
