//! WIRE-B.10: streams of allocated and changed ranges.

use std::sync::Arc;

use driver_sdk::csi::v1::*;
use driver_sdk::testing::Clients;
use driver_sdk::{BlockMapKind, BlockRange, Mode};
use tonic::{Code, Status};

use crate::model::{self, GIB, Model, create};

type Range = Result<BlockRange, &'static str>;

fn at(offset: u64) -> Range {
    Ok(BlockRange { offset, length: 4096 })
}

/// A model with one snapshot that holds these ranges.
async fn holding(ranges: Vec<Range>, block_map: BlockMapKind) -> Clients {
    let model = Arc::new(Model { block_map, ..Model::default() });
    let driver = model::full(&model);
    let mut clients = Clients::in_memory(&driver, Mode::All);
    clients.controller.create_volume(create("v")).await.unwrap();
    let request = CreateSnapshotRequest { name: "s".into(), source_volume_id: "vol-v".into(), ..Default::default() };
    clients.controller.create_snapshot(request).await.unwrap();
    model.state().ranges = ranges;
    clients
}

/// All messages, up to an error.
async fn read(clients: &mut Clients, from: i64, max_results: i32) -> Result<Vec<GetMetadataAllocatedResponse>, Status> {
    let request = GetMetadataAllocatedRequest {
        snapshot_id: "snap-s".into(),
        starting_offset: from,
        max_results,
        ..Default::default()
    };
    let mut stream = clients.metadata.get_metadata_allocated(request).await?.into_inner();
    let mut messages = Vec::new();
    while let Some(message) = stream.message().await? {
        messages.push(message);
    }
    Ok(messages)
}

fn offsets(messages: &[GetMetadataAllocatedResponse]) -> Vec<i64> {
    messages.iter().flat_map(|message| &message.block_metadata).map(|range| range.byte_offset).collect()
}

/// Rule: WIRE-B.10
#[tokio::test(start_paused = true)]
async fn ranges_come_in_batches_of_the_wanted_size() {
    let ranges: Vec<Range> = (0..600).map(|i| at(i * 8192)).collect();
    let mut clients = holding(ranges, BlockMapKind::FixedLength).await;
    let sizes = |messages: &[GetMetadataAllocatedResponse]| -> Vec<usize> {
        messages.iter().map(|message| message.block_metadata.len()).collect()
    };
    let messages = read(&mut clients, 0, 0).await.unwrap();
    assert_eq!(sizes(&messages), [256, 256, 88]);
    for message in &messages {
        assert_eq!(message.volume_capacity_bytes, GIB as i64);
        assert_eq!(message.block_metadata_type(), BlockMetadataType::FixedLength);
    }
    let messages = read(&mut clients, 0, 250).await.unwrap();
    assert_eq!(sizes(&messages), [250, 250, 100]);
}

/// Rule: WIRE-B.10
#[tokio::test(start_paused = true)]
async fn the_first_range_ends_after_the_start() {
    let mut clients = holding(vec![at(0), at(8192), at(16384)], BlockMapKind::VariableLength).await;
    assert_eq!(offsets(&read(&mut clients, 4096, 0).await.unwrap()), [8192, 16384]);
    assert_eq!(offsets(&read(&mut clients, 8193, 0).await.unwrap()), [8192, 16384], "the start lies inside");
    let end = read(&mut clients, GIB as i64, 0).await.unwrap();
    assert_eq!((end.len(), offsets(&end).len()), (1, 0), "the size is told even when nothing is left");
    for bad in [-1, GIB as i64 + 1] {
        assert_eq!(read(&mut clients, bad, 0).await.unwrap_err().code(), Code::OutOfRange);
    }
    assert_eq!(read(&mut clients, 0, -1).await.unwrap_err().code(), Code::InvalidArgument);
}

/// Rule: WIRE-B.10
#[tokio::test(start_paused = true)]
async fn whatever_breaks_half_way_ends_the_stream_with_an_error() {
    let fixed = BlockMapKind::FixedLength;
    let odd = Ok(BlockRange { offset: 8192, length: 512 });
    let rows = [
        (vec![at(0), Err("the disk is gone")], fixed, Code::Internal),
        (vec![at(0), Err("panic")], fixed, Code::Aborted),
        (vec![at(4096), at(0)], fixed, Code::Aborted),
        (vec![at(0), at(2048)], fixed, Code::Aborted),
        (vec![at(0), odd], fixed, Code::Aborted),
        (vec![Ok(BlockRange { offset: 0, length: 0 })], BlockMapKind::VariableLength, Code::Aborted),
        (vec![at(GIB)], fixed, Code::Aborted),
    ];
    for (ranges, kind, want) in rows {
        let mut clients = holding(ranges.clone(), kind).await;
        assert_eq!(read(&mut clients, 0, 1).await.unwrap_err().code(), want, "{ranges:?}");
    }
}

/// Rule: WIRE-B.10
#[tokio::test(start_paused = true)]
async fn changed_ranges_need_two_known_snapshots() {
    let mut clients = holding(vec![at(4096)], BlockMapKind::VariableLength).await;
    let request = |base: &str| GetMetadataDeltaRequest {
        base_snapshot_id: base.into(),
        target_snapshot_id: "snap-s".into(),
        ..Default::default()
    };
    let mut stream = clients.metadata.get_metadata_delta(request("snap-s")).await.unwrap().into_inner();
    let message = stream.message().await.unwrap().unwrap();
    assert_eq!(message.block_metadata[0].byte_offset, 4096);
    assert!(stream.message().await.unwrap().is_none());
    for (base, want) in [("none", Code::NotFound), ("", Code::InvalidArgument)] {
        assert_eq!(clients.metadata.get_metadata_delta(request(base)).await.unwrap_err().code(), want);
    }
}
