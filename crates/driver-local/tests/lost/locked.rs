//! Two processes with one pool: the node's process formats a volume while the controller's is about to copy it.

use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::path::Path;

use driver_local::record::{self, Format, VolumeRecord};
use driver_sdk::{CreateGroupSnapshot, Error, Reason, Secrets, SnapshotId, Source, VolumeId};
use linux::fs::FsType;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{FlockOperation, flock};

use super::bench::{Bench, MIB, needs};

const SIZE: u64 = 32 * MIB;

fn replace(path: &Path, bytes: &[u8]) {
    let draft = path.with_extension("draft");
    fs::write(&draft, bytes).unwrap();
    fs::rename(draft, path).unwrap();
}

/// Waits until a process has opened the volume's record to read it and has closed it.
fn until_read(events: &impl std::os::fd::AsFd) {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(events, &mut buffer);
    loop {
        let event = reader.next().unwrap();
        if event.file_name().is_some_and(|name| name.to_bytes() == b"record.json")
            && event.events().contains(ReadFlags::CLOSE_NOWRITE)
        {
            return;
        }
    }
}

/// Calls `copy` while the node's process holds the volume. The volume becomes formatted after `copy` has read that it is
/// not, and before it gets the lock.
fn while_it_is_formatted<T: Send>(bench: &Bench, id: &VolumeId, copy: impl Fn() -> Result<T, Error> + Sync) -> T {
    let dir = bench.image(id).parent().unwrap().to_owned();
    let path = dir.join("record.json");
    let formatted = fs::read(&path).unwrap();
    let mut before: VolumeRecord = record::read(&path).unwrap();
    assert!(matches!(before.format, Format::Made { .. }), "{:?}", before.format);
    before.format = Format::Blank { fs: Some(FsType::Ext4) };
    let before = record::seal(&before).unwrap();
    // A lock is waited for only for a moment: on a busy machine the call may be refused, and is repeated.
    for _ in 0..100 {
        replace(&path, &before);
        let node = File::open(&dir).unwrap();
        flock(&node, FlockOperation::LockExclusive).unwrap();
        let events = inotify::init(CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&events, &dir, WatchFlags::CLOSE_NOWRITE).unwrap();
        let answer = std::thread::scope(|scope| {
            let call = scope.spawn(|| {
                let answer = copy();
                // Ends the wait if the call reads nothing before it is refused.
                drop(File::open(&path));
                answer
            });
            until_read(&events);
            replace(&path, &formatted);
            drop(node);
            call.join().unwrap()
        });
        match answer {
            Err(error) if matches!(error.reason(), Reason::Busy(_)) => println!("again: {}", error.chain()),
            other => return other.unwrap(),
        }
    }
    panic!("the lock was never free in time");
}

#[test]
fn a_copy_is_of_the_record_that_was_read_under_the_lock() {
    needs!(FsType::Ext4);
    let bench = Bench::new(600 * MIB);
    let id = bench.create("v", "ext4", SIZE);
    let place = bench.stage_writable(&id, "ext4");
    fs::write(place.join("file"), "kept").unwrap();
    bench.unstage(&id).unwrap();

    let restored =
        |name: &str, snapshot: SnapshotId| bench.create_from(name, "ext4", SIZE, Some(&Source::Snapshot(snapshot)));
    let alone = while_it_is_formatted(&bench, &id, || bench.snapshot("alone", &id)).id;
    let request = CreateGroupSnapshot {
        name: "group".to_owned(),
        sources: vec![id.clone()],
        parameters: Default::default(),
        secrets: Secrets::default(),
    };
    let group = while_it_is_formatted(&bench, &id, || bench.core().create_group(&request));
    let source = Source::Volume(id.clone());
    let clone = while_it_is_formatted(&bench, &id, || bench.try_create_from("clone", "ext4", SIZE, Some(&source)));
    let member = group.snapshots[0].id.clone();
    for (what, copy) in
        [("snapshot", restored("of-alone", alone)), ("group", restored("of-group", member)), ("clone", clone)]
    {
        let place = bench.stage_writable(&copy, "ext4");
        assert_eq!(fs::read(place.join("file")).unwrap(), b"kept", "{what}");
        bench.unstage(&copy).unwrap();
    }
}
