//! The SnapshotMetadata service: which ranges of a snapshot hold data, and which changed.
//!
//! # Invariants
//! 1. Ranges leave in ascending order and do not overlap, also across messages; a driver that breaks this is caught.
//! 2. A stream that ends without a status other than OK is complete. Whatever goes wrong half way ends it with an
//!    error, so that a caller never takes a part for the whole.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use csi::v1::snapshot_metadata_server::SnapshotMetadata;
use csi::v1::*;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use tonic::{Request, Response, Status};

use super::{ControllerService, Result, filled};
use crate::error::Error;
use crate::pipeline::{Pipeline, Plan, Redactor, method, status_of};
use crate::slots::BlockMap;
use crate::types::{BlockMapKind, BlockRange, SnapshotId};
use crate::validate;

/// Ranges in one message when the caller sets no limit.
const BATCH: usize = 256;

type Answer<T> = std::result::Result<Response<BoxStream<'static, std::result::Result<T, Status>>>, Status>;

/// A block map on its way out of the pipeline, which hands results out by cloning. There is one taker.
type Parcel = Arc<Mutex<Option<BlockMap>>>;

/// One message, whichever of the two calls it answers.
struct Batch {
    kind: i32,
    capacity: i64,
    ranges: Vec<BlockMetadata>,
}

#[tonic::async_trait]
impl SnapshotMetadata for ControllerService {
    type GetMetadataAllocatedStream = BoxStream<'static, std::result::Result<GetMetadataAllocatedResponse, Status>>;
    type GetMetadataDeltaStream = BoxStream<'static, std::result::Result<GetMetadataDeltaResponse, Status>>;

    async fn get_metadata_allocated(
        &self,
        request: Request<GetMetadataAllocatedRequest>,
    ) -> Answer<GetMetadataAllocatedResponse> {
        let pipeline = self.shared.pipeline.clone();
        let redactor = Redactor::of(request.get_ref());
        let (from, batch) = (request.get_ref().starting_offset, request.get_ref().max_results);
        let plan = |wire| self.plan_allocated(wire);
        let parcel = pipeline.handle(method::GET_METADATA_ALLOCATED, request, plan).await?.into_inner();
        let batches = Walk::new(parcel, from, batch, pipeline, redactor)?.batches();
        Ok(Response::new(Box::pin(batches.map(|batch| {
            batch.map(|Batch { kind, capacity, ranges }| GetMetadataAllocatedResponse {
                block_metadata_type: kind,
                volume_capacity_bytes: capacity,
                block_metadata: ranges,
            })
        }))))
    }

    async fn get_metadata_delta(&self, request: Request<GetMetadataDeltaRequest>) -> Answer<GetMetadataDeltaResponse> {
        let pipeline = self.shared.pipeline.clone();
        let redactor = Redactor::of(request.get_ref());
        let (from, batch) = (request.get_ref().starting_offset, request.get_ref().max_results);
        let plan = |wire| self.plan_changed(wire);
        let parcel = pipeline.handle(method::GET_METADATA_DELTA, request, plan).await?.into_inner();
        let batches = Walk::new(parcel, from, batch, pipeline, redactor)?.batches();
        Ok(Response::new(Box::pin(batches.map(|batch| {
            batch.map(|Batch { kind, capacity, ranges }| GetMetadataDeltaResponse {
                block_metadata_type: kind,
                volume_capacity_bytes: capacity,
                block_metadata: ranges,
            })
        }))))
    }
}

impl ControllerService {
    fn plan_allocated(&self, wire: GetMetadataAllocatedRequest) -> Result<Plan<Parcel>> {
        let slot = filled(&self.table.snapshot_metadata, "GetMetadataAllocated")?;
        let id = validate::required("snapshot_id", wire.snapshot_id)?;
        validate::max_entries("max_results", wire.max_results)?;
        let secrets = validate::secrets(wire.secrets)?;
        let from = offset(wire.starting_offset)?;
        Ok(Plan::read(id.clone(), async move {
            let map = slot.allocated(SnapshotId::new(id), from, secrets).await?;
            parcel(map, from)
        }))
    }

    fn plan_changed(&self, wire: GetMetadataDeltaRequest) -> Result<Plan<Parcel>> {
        let slot = filled(&self.table.snapshot_metadata, "GetMetadataDelta")?;
        let base = validate::required("base_snapshot_id", wire.base_snapshot_id)?;
        let target = validate::required("target_snapshot_id", wire.target_snapshot_id)?;
        validate::max_entries("max_results", wire.max_results)?;
        let secrets = validate::secrets(wire.secrets)?;
        let from = offset(wire.starting_offset)?;
        Ok(Plan::read(target.clone(), async move {
            let map = slot.changed(SnapshotId::new(base), SnapshotId::new(target), from, secrets).await?;
            parcel(map, from)
        }))
    }
}

fn offset(offset: i64) -> Result<u64> {
    u64::try_from(offset).map_err(|_| Error::out_of_range(format!("starting_offset {offset} is negative")))
}

/// Exactly at the end is legal: that is where a caller that has everything resumes.
fn parcel(map: BlockMap, from: u64) -> Result<Parcel> {
    validate::bytes("a snapshot", map.capacity)?;
    match from <= map.capacity {
        true => Ok(Arc::new(Mutex::new(Some(map)))),
        false => Err(Error::out_of_range(format!("starting_offset {from} is beyond the {} bytes", map.capacity))),
    }
}

/// A walk over a block map.
struct Walk {
    ranges: BoxStream<'static, std::result::Result<Result<BlockRange>, Box<dyn std::any::Any + Send>>>,
    capacity: u64,
    kind: BlockMapKind,
    from: u64,
    batch: usize,
    /// Where the last range ended, and how long the first one was.
    end: u64,
    length: Option<u64>,
    sent: u64,
    done: bool,
    pipeline: Pipeline,
    redactor: Redactor,
}

impl Walk {
    fn new(
        parcel: Parcel,
        from: i64,
        max_results: i32,
        pipeline: Pipeline,
        redactor: Redactor,
    ) -> std::result::Result<Self, Status> {
        let map = parcel.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(BlockMap { capacity, kind, ranges }) = map else {
            return Err(Status::aborted("the block map was taken already; repeat the call"));
        };
        let batch = usize::try_from(max_results).ok().filter(|n| *n > 0).map_or(BATCH, |n| n.min(BATCH));
        Ok(Self {
            ranges: AssertUnwindSafe(ranges).catch_unwind().boxed(),
            capacity,
            kind,
            from: u64::try_from(from).unwrap_or(0),
            batch,
            end: 0,
            length: None,
            sent: 0,
            done: false,
            pipeline,
            redactor,
        })
    }

    fn batches(self) -> impl futures_util::Stream<Item = std::result::Result<Batch, Status>> + Send {
        stream::unfold(self, |mut walk| async move {
            match walk.next_batch().await {
                Ok(None) => None,
                Ok(Some(batch)) => Some((Ok(batch), walk)),
                Err(status) => {
                    walk.done = true;
                    Some((Err(status), walk))
                }
            }
        })
    }

    /// The first message is sent even when it is empty: it tells the size of the volume.
    async fn next_batch(&mut self) -> std::result::Result<Option<Batch>, Status> {
        let mut ranges = Vec::new();
        while !self.done && ranges.len() < self.batch {
            match self.ranges.next().await {
                None => self.done = true,
                Some(Err(panic)) => return Err(self.pipeline.panicked(&*panic, &self.redactor)),
                Some(Ok(range)) => {
                    let range = range.and_then(|range| self.check(range));
                    ranges.extend(range.map_err(|error| self.fail(&error))?);
                }
            }
        }
        if ranges.is_empty() && self.sent > 0 {
            return Ok(None);
        }
        self.sent += 1;
        let kind = match self.kind {
            BlockMapKind::FixedLength => BlockMetadataType::FixedLength,
            BlockMapKind::VariableLength => BlockMetadataType::VariableLength,
        };
        let capacity = validate::bytes("a snapshot", self.capacity).map_err(|error| self.fail(&error))?;
        Ok(Some(Batch { kind: kind.into(), capacity, ranges }))
    }

    fn fail(&self, error: &Error) -> Status {
        let status = status_of(error, &self.redactor);
        tracing::warn!(code = ?status.code(), reason = status.message(), "a stream of ranges ends early");
        status
    }

    /// A range that keeps the rules; `None` when all of it lies before the start.
    fn check(&mut self, range: BlockRange) -> Result<Option<BlockMetadata>> {
        let BlockRange { offset, length } = range;
        let end = offset.checked_add(length).ok_or_else(|| validate::bug("a range ends beyond 64 bits"))?;
        if length == 0 || offset < self.end || offset >= self.capacity {
            return Err(validate::bug(format!("range {offset}+{length} is empty, out of order or out of bounds")));
        }
        let first = *self.length.get_or_insert(length);
        match self.kind {
            BlockMapKind::FixedLength if length != first => {
                return Err(validate::bug(format!("range {offset}+{length} differs from the fixed length {first}")));
            }
            BlockMapKind::FixedLength | BlockMapKind::VariableLength => {}
        }
        self.end = end;
        if end <= self.from {
            return Ok(None);
        }
        let byte_offset = validate::bytes("an offset", offset)?;
        Ok(Some(BlockMetadata { byte_offset, size_bytes: validate::bytes("a length", length)? }))
    }
}
