//! Free space of pools that others use as well, and what is hidden in pools.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use driver_local::pool::leftovers;
use driver_local::record::{self, CopyIntent, SourceStamp};
use linux::fs::FsType;
use linux::mounts;
use rustix::fs::FallocateFlags;
use tonic::Code;

use crate::needs;
use crate::rig::ask::*;
use crate::rig::call::*;
use crate::rig::world::*;
use crate::rig::{Driver, MIB, Options, run};

/// Takes space of the pool's filesystem until this much is left.
fn leave_free(pool: &Path, left: u64) -> PathBuf {
    let path = pool.join("foreign-file");
    let file = File::options().create(true).truncate(false).write(true).open(&path).unwrap();
    let stat = rustix::fs::statvfs(pool).unwrap();
    let more = (stat.f_bavail * stat.f_frsize).saturating_sub(left);
    let taken = file.metadata().unwrap().len();
    rustix::fs::fallocate(&file, FallocateFlags::empty(), taken, more).unwrap();
    file.sync_all().unwrap();
    path
}

/// Freezing is the only way to ask. A success is undone at once.
fn is_frozen(mount: &Path) -> bool {
    let dir = File::open(mount).unwrap();
    match linux::freeze::freeze(&dir) {
        Ok(()) => {
            linux::freeze::thaw(&dir).unwrap();
            false
        }
        Err(error) => {
            assert!(error.is(rustix::io::Errno::BUSY), "{error}");
            true
        }
    }
}

#[test]
fn thin_volumes_of_a_pool_that_others_fill_are_frozen_and_lose_nothing() {
    needs!(Ext4, Xfs);
    let mut world = World::on(FsType::Xfs, 512 * MIB, &Options::default());
    run(async {
        let clients = world.clients().await;
        let pool = world.scratch.path("pool");
        let volume = create(&clients, "thin", 128 * MIB, mount("ext4")).await.unwrap();
        let using = Use::new(&world.scratch, &volume.volume_id, mount("ext4"));
        bring_up(&clients, &using).await.unwrap();
        write_synced(using.target.join("file"), b"kept");
        assert!(!condition(&clients, &using.id).await.0);

        leave_free(&pool, 48 * MIB);
        // The guard counts all dirty memory of the machine, also that of other tests and of builds.
        rustix::fs::sync();
        let (abnormal, why) = condition(&clients, &using.id).await;
        assert!(abnormal && why.starts_with("pool nearly full: "), "{why}");
        let filler = leave_free(&pool, 24 * MIB);
        assert!(world.driver.wait_for_log("the volume is frozen"), "{}", world.driver.log());
        assert!(is_frozen(&using.target));
        let (abnormal, why) = condition(&clients, &using.id).await;
        assert!(abnormal && why.starts_with("pool full: "), "{why}");
        refused(publish(&clients, &using).await, Code::ResourceExhausted, &["pool full: "]);
        fs::remove_file(&filler).unwrap();
        assert!(world.driver.wait_for_log("the volume is thawed"), "{}", world.driver.log());
        write_synced(using.target.join("after"), b"written");

        // A driver that is killed leaves nothing frozen: a second process thaws. The writer waits for it.
        world.restart(&Options::default()).await;
        leave_free(&pool, 24 * MIB);
        assert!(world.driver.wait_for_log("the volume is frozen"), "{}", world.driver.log());
        world.driver.kill();
        write_synced(using.target.join("killed"), b"written");

        // The next driver freezes it again, and thaws it to unmount it.
        world.driver = Driver::start(&world.scratch, &Options::default());
        let clients = world.clients().await;
        assert!(world.driver.wait_for_log("the volume is frozen"), "{}", world.driver.log());
        bring_down(&clients, &using).await.unwrap();
        fs::remove_file(&filler).unwrap();
        bring_up(&clients, &using).await.unwrap();
        assert_eq!(fs::read(using.target.join("file")).unwrap(), b"kept");
        assert_eq!(fs::read(using.target.join("killed")).unwrap(), b"written");
        bring_down(&clients, &using).await.unwrap();
        delete(&clients, &using.id).await.unwrap();
    });
    world.end_clean();
}

#[test]
fn images_have_their_blocks_where_others_use_the_filesystem_of_the_pool() {
    needs!(Ext4);
    let thin = ["--provisioning", "thin"];
    for (own_disk, options, thick) in [
        (false, Options::default(), true),
        (false, Options::args(thin), false),
        (false, Options::args(["--overcommit", "2"]), false),
        (true, Options::default(), false),
        (true, Options::args(["--provisioning", "thick"]), true),
    ] {
        let world = if own_disk { World::on(FsType::Ext4, 256 * MIB, &options) } else { World::plain(&options) };
        run(async {
            let clients = world.clients().await;
            let id = create(&clients, "v", 32 * MIB, mount("ext4")).await.unwrap().volume_id;
            let has_blocks = on_disk(&world.image(&id)) >= 32 * MIB;
            assert_eq!(has_blocks, thick, "own disk: {own_disk}, {options:?}");
            let mut asked = create_request("asked", 32 * MIB, block());
            asked.parameters = map([("provisioning", if thick { "thin" } else { "thick" })]);
            let asked = create_with(&clients, asked).await.unwrap().volume_id;
            assert_eq!(on_disk(&world.image(&asked)) >= 32 * MIB, !thick, "a class has the last word");
            delete(&clients, &asked).await.unwrap();
            delete(&clients, &id).await.unwrap();
        });
        world.end_clean();
    }
}

#[test]
fn unfinished_copies_go_with_their_source_and_are_listed_until_then() {
    needs!();
    let mut world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let id = create(&clients, "source", 16 * MIB, block()).await.unwrap().volume_id;
        let pool = world.scratch.path("pool");
        let meta = fs::metadata(world.image(&id)).unwrap();
        let stamp = {
            use std::os::unix::fs::MetadataExt as _;
            let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
            SourceStamp {
                inode: meta.ino(),
                size: meta.len(),
                modified_ns: nanos(meta.mtime(), meta.mtime_nsec()),
                changed_ns: nanos(meta.ctime(), meta.ctime_nsec()),
            }
        };
        let leave = |name: &str, request: &str, stamp: &SourceStamp| {
            let dir = pool.join(".tmp").join(name);
            fs::create_dir(&dir).unwrap();
            let intent = CopyIntent { request: request.to_owned(), stamp: stamp.clone(), copied: 4096, created_ms: 1 };
            fs::write(dir.join("copy.json"), record::seal(&intent).unwrap()).unwrap();
        };
        let copy = |letter: &str| format!("vol-{}", letter.repeat(26));
        leave(&copy("a"), &id, &stamp);
        leave(&copy("b"), &id, &SourceStamp { size: 1, ..stamp.clone() });
        leave(&copy("c"), &copy("z"), &stamp);
        world.restart(&Options::default()).await;
        let clients = world.clients().await;
        let left = leftovers(&pool).unwrap();
        assert_eq!(left.len(), 1, "the copies of a changed and of a missing source are gone: {left:?}");
        assert!(left[0].path.ends_with(copy("a")) && left[0].why.contains(&id), "{left:?}");
        delete(&clients, &id).await.unwrap();
        assert_eq!(leftovers(&pool).unwrap(), []);
    });
    world.end_clean();
}

#[test]
fn what_could_not_be_removed_is_tried_again_with_the_next_deletion() {
    needs!();
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let mut request = create_request("stuck", 16 * MIB, mount(""));
        request.parameters = map([("kind", "directory")]);
        let stuck = create_with(&clients, request).await.unwrap().volume_id;
        let pool = world.scratch.path("pool");
        // A foreign mount inside of it cannot be removed.
        let inside = world.volume(&stuck).join("data/inside");
        fs::create_dir(&inside).unwrap();
        tool("mount", ["-t", "tmpfs", "none", inside.to_str().unwrap()]);
        delete(&clients, &stuck).await.unwrap();
        let left = leftovers(&pool).unwrap();
        assert_eq!(left.len(), 1, "{left:?}");
        mounts::unmount_all(&left[0].path.join("data/inside")).unwrap();
        let next = create(&clients, "next", 16 * MIB, block()).await.unwrap().volume_id;
        delete(&clients, &next).await.unwrap();
        assert_eq!(leftovers(&pool).unwrap(), []);
    });
    world.end_clean();
}
