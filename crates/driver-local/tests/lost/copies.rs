//! Snapshots of mounted volumes: only the volume's own filesystem is frozen, and no freeze is waited for without an end.

use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::time::Duration;

use driver_local::config::Role;
use driver_sdk::{Reason, Source};
use linux::freeze::{self, Thaw};
use linux::fs::FsType;
use linux::mounts::{self, MountFlags};

use super::bench::{Bench, MIB, guard, needs};

#[test]
fn a_volume_under_another_mount_is_not_copied_as_if_that_mount_were_it() {
    needs!(FsType::Ext4);
    let bench = Bench::new(600 * MIB);
    let (id, other) = (bench.create("v", "ext4", 32 * MIB), bench.create("other", "ext4", 32 * MIB));
    let place = bench.stage_writable(&id, "ext4");
    fs::write(place.join("file"), "cached").unwrap();
    let above = bench.stage_writable(&other, "ext4");
    mounts::bind(&above, &place, mounts::BindOptions::default()).unwrap();
    let error = bench.snapshot("s", &id).unwrap_err();
    assert!(matches!(error.reason(), Reason::Precondition(_)), "{}", error.chain());
    assert!(error.to_string().contains("another mount covers"), "{error}");

    // Through another mount of its own it can be frozen.
    mounts::unmount_top(&place, mounts::Force::No).unwrap();
    let second = bench.dir("second");
    mounts::bind(&place, &second, mounts::BindOptions::default()).unwrap();
    mounts::bind(&above, &place, mounts::BindOptions::default()).unwrap();
    let snapshot = bench.snapshot("s", &id).unwrap();
    assert!(snapshot.ready);
    let copy = bench.create_from("copy", "ext4", 32 * MIB, Some(&Source::Snapshot(snapshot.id)));
    assert_eq!(fs::read(bench.stage_writable(&copy, "ext4").join("file")).unwrap(), b"cached");
    mounts::unmount_all(&second).unwrap();
    mounts::unmount_top(&place, mounts::Force::No).unwrap();
    for id in [&copy, &other, &id] {
        bench.unstage(id).unwrap();
    }
}

#[test]
fn a_covered_volume_is_synced_and_unstaged() {
    needs!(FsType::Ext4);
    let bench = Bench::new(300 * MIB);
    let (id, other) = (bench.create("v", "ext4", 32 * MIB), bench.create("other", "ext4", 32 * MIB));
    let place = bench.stage_writable(&id, "ext4");
    let above = bench.stage_writable(&other, "ext4");
    let device = linux::mountinfo::MountTable::read().unwrap().top(&above).unwrap().source.clone();
    mounts::mount_fs(device.as_ref(), &place, "ext4", &MountFlags::default()).unwrap();
    bench.unstage(&id).unwrap();
    assert!(!bench.is_mounted(&place) && bench.is_mounted(&above));
    bench.unstage(&other).unwrap();
}

#[test]
fn a_start_thaws_the_volume_and_not_what_covers_it() {
    needs!(FsType::Ext4);
    let mut bench = Bench::new(300 * MIB);
    let (id, other) = (bench.create("v", "ext4", 32 * MIB), bench.create("other", "ext4", 32 * MIB));
    let place = bench.stage_writable(&id, "ext4");
    let volume = File::open(&place).unwrap();
    // A filesystem that is not of a volume, as far as the core can know.
    let above = bench.stage_writable(&other, "ext4");
    let cover = File::open(&above).unwrap();
    let foreign = bench.path("pool/foreign");
    fs::rename(bench.image(&other).parent().unwrap(), &foreign).unwrap();
    for second_mount in [false, true] {
        let second = bench.dir("second");
        if second_mount {
            mounts::bind(&place, &second, mounts::BindOptions::default()).unwrap();
        }
        mounts::bind(&above, &place, mounts::BindOptions::default()).unwrap();
        freeze::freeze(&volume).unwrap();
        freeze::freeze(&cover).unwrap();
        // The controller's process leaves alone what the node's may have frozen.
        bench.restart_as(Role::Controller);
        assert_eq!(freeze::thaw(&volume).unwrap(), Thaw::Thawed, "second mount: {second_mount}");
        freeze::freeze(&volume).unwrap();
        bench.restart_as(Role::All);
        let thawed = [&volume, &cover].map(|dir| freeze::thaw(dir).unwrap());
        assert_eq!(thawed, [Thaw::WasNotFrozen, Thaw::Thawed], "second mount: {second_mount}");
        mounts::unmount_top(&place, mounts::Force::No).unwrap();
        mounts::unmount_all(&second).unwrap();
    }
    fs::rename(&foreign, bench.image(&other).parent().unwrap()).unwrap();
    drop((volume, cover));
    for id in [&other, &id] {
        bench.unstage(id).unwrap();
    }
}

#[test]
fn a_volume_that_cannot_be_frozen_has_no_snapshot() {
    needs!(FsType::Ext4);
    let mut bench = Bench::new(300 * MIB);
    let id = bench.create("v", "ext4", 32 * MIB);
    let place = bench.stage_writable(&id, "ext4");
    fs::write(place.join("file"), vec![0x5a; usize::try_from(16 * MIB).unwrap()]).unwrap();
    rustix::fs::syncfs(File::open(&place).unwrap()).unwrap();
    let volume = File::open(&place).unwrap();
    freeze::freeze(&volume).unwrap();
    let answer = bench.snapshot("s", &id);
    assert_eq!(freeze::thaw(&volume).unwrap(), Thaw::Thawed, "the freeze of another program stays");
    let error = answer.expect_err("another program may thaw it at any moment");
    assert!(matches!(error.reason(), Reason::Busy(_)), "{}", error.chain());

    // The process that thaws if the driver dies does not start.
    bench.restart_with_guard(vec!["false".into()]);
    let error = bench.snapshot("s", &id).expect_err("nothing is frozen without a guard");
    assert!(error.chain().contains("guard"), "{}", error.chain());
    assert_eq!(freeze::thaw(&volume).unwrap(), Thaw::WasNotFrozen);
    drop(volume);

    // That process thaws while the volume is copied. Thawing may write to the image, which is noticed as well.
    bench.restart_with_guard(guard(Duration::from_millis(1)));
    let error = bench.snapshot("s", &id).expect_err("the copy mixes two moments");
    let says = |words: &str| error.to_string().contains(words);
    assert!(says("did not stay frozen") || says("was written to while it was being copied"), "{}", error.chain());

    bench.restart_as(Role::All);
    assert!(bench.snapshot("s", &id).unwrap().ready);
    bench.unstage(&id).unwrap();
}

#[test]
fn a_freeze_that_waits_for_space_is_given_up_and_leaves_nothing_frozen() {
    needs!(FsType::Ext4, FsType::Xfs);
    let bench = Bench::new(400 * MIB);
    let id = bench.create("v", "xfs", 300 * MIB);
    let place = bench.stage_writable(&id, "xfs");
    // Room for the directory of a snapshot, and for little else.
    let spare = bench.path("pool/spare");
    fs::write(&spare, vec![1; 64 << 10]).unwrap();
    File::open(&spare).unwrap().sync_all().unwrap();
    bench.fill();
    for number in 0..3000 {
        drop(fs::write(place.join(format!("file-{number}")), [1; 5000]));
    }
    drop(File::open(place.join("file-0")).and_then(|file| file.sync_all()));
    fs::remove_file(&spare).unwrap();
    rustix::fs::syncfs(File::open(bench.path("pool")).unwrap()).unwrap();
    // The first call is told of lost data; a later one freezes, which waits for metadata that cannot be written.
    for attempt in 0..3 {
        let answer = bench.snapshot(&format!("s{attempt}"), &id);
        println!("attempt {attempt}: {:?}", answer.as_ref().map_err(|error| error.chain()));
        assert!(answer.is_err(), "what cannot be frozen is not ready to use");
    }
    bench.make_space();
    // Writing blocks in the kernel while the filesystem is frozen; that it returns is the proof.
    fs::write(place.join("after"), "thawed").unwrap();
    assert_eq!(
        freeze::thaw_sweep(std::slice::from_ref(&place)).unwrap(),
        [] as [std::path::PathBuf; 0],
        "nothing is frozen"
    );
    rustix::fs::syncfs(File::open(&place).unwrap()).unwrap();
    let mut repeats = 0;
    while let Err(error) = bench.unstage(&id) {
        repeats += 1;
        assert!(repeats < 5, "{}", error.chain());
    }
}

#[test]
fn a_volume_is_staged_again_while_another_mount_namespace_holds_its_device() {
    needs!(FsType::Ext4);
    let bench = Bench::new(300 * MIB);
    let id = bench.create("v", "ext4", 32 * MIB);
    let place = bench.stage_writable(&id, "ext4");
    fs::write(place.join("file"), "seen by both").unwrap();
    // A namespace with private copies of this test's mounts, until its input ends. Those of other tests are let go.
    let script = "for place in $(awk '{print $5}' /proc/self/mountinfo | sort -r); do \
        case $place in \"$KEEP\"*) ;; */orlop-*) umount -l $place;; esac; done; echo ready; exec cat";
    let mut holder = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", script])
        .env("KEEP", bench.path(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = [0; 6];
    std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut ready).unwrap();
    let error = bench.unstage(&id).unwrap_err();
    assert!(error.to_string().contains("in the mount namespace of process"), "{error}");
    assert!(!bench.is_mounted(&place));
    let error = bench.snapshot("s", &id).unwrap_err();
    assert!(
        matches!(error.reason(), Reason::Precondition(_)),
        "a filesystem that cannot be frozen is not copied: {error}"
    );

    bench.stage_writable(&id, "ext4");
    assert_eq!(fs::read(place.join("file")).unwrap(), b"seen by both");
    fs::write(place.join("second"), "of the second stage").unwrap();
    bench.snapshot("s", &id).unwrap();
    drop(holder.stdin.take());
    holder.wait().unwrap();
    bench.unstage(&id).unwrap();
    let place = bench.stage_writable(&id, "ext4");
    assert_eq!(fs::read(place.join("second")).unwrap(), b"of the second stage");
    bench.unstage(&id).unwrap();
}
