//! Which blocks of a snapshot hold data, and which differ between two (WIRE-B.10). The oracle is the bytes themselves.

use std::fs;
use std::ops::Range;

use linux::fs::FsType;
use tonic::Code;

use crate::needs;
use crate::rig::ask::*;
use crate::rig::call::*;
use crate::rig::world::*;
use crate::rig::{GIB, MIB, Options, run};

const BLOCK: u64 = 4096;
const SIZE: u64 = 8 * MIB;

/// Checks that batches ascend without overlap, and joins neighbours.
fn joined(batches: &[Batch]) -> Vec<Range<u64>> {
    let mut all: Vec<Range<u64>> = Vec::new();
    for range in batches.iter().flat_map(|(_, ranges)| ranges) {
        assert!(range.start < range.end && range.end <= SIZE, "{range:?}");
        match all.last_mut() {
            Some(last) if range.start < last.end => panic!("{range:?} begins before {last:?} ends"),
            Some(last) if range.start == last.end => last.end = range.end,
            _ => all.push(range.clone()),
        }
    }
    all
}

/// Blocks for which this is so, as joined ranges.
fn blocks_where(test: impl Fn(Range<usize>) -> bool) -> Vec<Range<u64>> {
    let mut found: Vec<Range<u64>> = Vec::new();
    for start in (0..SIZE).step_by(usize::try_from(BLOCK).unwrap()) {
        let bytes = usize::try_from(start).unwrap()..usize::try_from(start + BLOCK).unwrap();
        if !test(bytes) {
            continue;
        }
        match found.last_mut() {
            Some(last) if last.end == start => last.end += BLOCK,
            _ => found.push(start..start + BLOCK),
        }
    }
    found
}

/// Two snapshots of a raw volume with known writes before and between; gives their ids and images.
async fn two_cuts(world: &World) -> (Use, [String; 2], [Vec<u8>; 2]) {
    let clients = world.clients().await;
    let volume = create(&clients, "v", SIZE, block()).await.unwrap();
    let using = Use::new(&world.scratch, &volume.volume_id, block());
    bring_up(&clients, &using).await.unwrap();
    for at in [0, 1, 2, 100, 101, 900] {
        write_block(&using.target, at * BLOCK, &[0x11; BLOCK as usize]).unwrap();
    }
    let base = snapshot(&clients, "base", &using.id).await.unwrap().snapshot_id;
    for at in [1, 101, 102, 2047] {
        write_block(&using.target, at * BLOCK, &[0x22; BLOCK as usize]).unwrap();
    }
    // Written again with what was there: not a change.
    write_block(&using.target, 900 * BLOCK, &[0x11; BLOCK as usize]).unwrap();
    let target = snapshot(&clients, "target", &using.id).await.unwrap().snapshot_id;
    let image = |id: &str| fs::read(world.scratch.path("pool").join("snapshots").join(id).join("image")).unwrap();
    let images = [image(&base), image(&target)];
    (using, [base, target], images)
}

async fn metadata_agrees_with_the_bytes(world: &World) {
    let clients = world.clients().await;
    let (using, [base, target], [old, new]) = two_cuts(world).await;
    let found = allocated(&clients, &base, 0, 0).await.unwrap();
    assert!(found.iter().all(|(size, _)| *size == SIZE));
    assert_eq!(joined(&found), blocks_where(|at| old[at].iter().any(|byte| *byte != 0)), "exactly what was written");
    let delta = changed(&clients, &base, &target, 0, 0).await.unwrap();
    let differs = blocks_where(|at| old[at.clone()] != new[at]);
    let told = joined(&delta);
    let covered = |range: &Range<u64>| told.iter().any(|told| told.start <= range.start && range.end <= told.end);
    assert!(differs.iter().all(covered), "{told:?} misses some of {differs:?}");
    // Rewriting the same bytes may count as a change where only extents are compared; nothing else may.
    let rewritten = 900 * BLOCK..901 * BLOCK;
    let rest: Vec<_> = told.into_iter().filter(|range| *range != rewritten).collect();
    assert_eq!(rest, differs);

    let one_by_one = allocated(&clients, &base, 0, 1).await.unwrap();
    assert!(one_by_one.iter().all(|(_, ranges)| ranges.len() == 1), "max_results is the most per message");
    assert_eq!(joined(&one_by_one), joined(&found));
    let from = 100 * BLOCK + 1;
    let later = joined(&allocated(&clients, &base, i64::try_from(from).unwrap(), 0).await.unwrap());
    assert!(later[0].end > from, "the first range ends behind the start");
    let want: Vec<_> = joined(&found).into_iter().filter(|range| range.end > from).map(|range| range.end).collect();
    assert_eq!(later.iter().map(|range| range.end).collect::<Vec<_>>(), want);

    let end = i64::try_from(SIZE).unwrap();
    assert!(allocated(&clients, &base, end, 0).await.unwrap().iter().all(|(_, ranges)| ranges.is_empty()));
    refused(allocated(&clients, &base, end + 1, 0).await, Code::OutOfRange, &["beyond"]);
    refused(allocated(&clients, &base, -1, 0).await, Code::OutOfRange, &["negative"]);
    refused(changed(&clients, &base, &target, end + 1, 0).await, Code::OutOfRange, &["beyond"]);
    refused(changed(&clients, &target, &base, 0, 0).await, Code::InvalidArgument, &["younger"]);
    refused(allocated(&clients, "snap-none", 0, 0).await, Code::NotFound, &["snap-none"]);
    bring_down(&clients, &using).await.unwrap();
    delete(&clients, &using.id).await.unwrap();
    for id in [base, target] {
        delete_snapshot(&clients, &id).await.unwrap();
    }
}

/// Rule: WIRE-B.10
#[test]
fn metadata_agrees_with_the_bytes_where_extents_are_shared() {
    needs!(Xfs);
    let world = World::on(FsType::Xfs, GIB, &Options::default());
    run(metadata_agrees_with_the_bytes(&world));
    world.end_clean();
}

/// Rule: WIRE-B.10
#[test]
fn metadata_agrees_with_the_bytes_where_they_were_copied() {
    needs!();
    // Of a thick image the kernel also names blocks that are allocated and were only read.
    let world = World::plain(&Options::args(["--provisioning", "thin"]));
    run(metadata_agrees_with_the_bytes(&world));
    world.end_clean();
}

/// Rule: WIRE-B.10
#[test]
fn snapshots_of_different_volumes_have_no_difference_to_tell() {
    needs!();
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let mut snapshots = Vec::new();
        for name in ["a", "b"] {
            let id = create(&clients, name, SIZE, block()).await.unwrap().volume_id;
            snapshots.push(snapshot(&clients, name, &id).await.unwrap().snapshot_id);
            delete(&clients, &id).await.unwrap();
        }
        let answer = changed(&clients, &snapshots[0], &snapshots[1], 0, 0).await;
        refused(answer, Code::InvalidArgument, &["different volumes"]);
        for id in &snapshots {
            assert!(allocated(&clients, id, 0, 0).await.unwrap().iter().all(|(_, ranges)| ranges.is_empty()));
            delete_snapshot(&clients, id).await.unwrap();
        }
    });
    world.end_clean();
}
