//! Streams of ranges, printed as they arrive.
//!
//! Invariant: output that is complete says so. Text ends with a count, JSON with the closing bracket; a stream that
//! breaks leaves both out, and the error says at which offset to continue (WIRE-B.10: only a clean end is complete).

use std::io;

use ::csi::v1::{BlockMetadata, BlockMetadataType, GetMetadataAllocatedResponse, GetMetadataDeltaResponse};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};
use tonic::Streaming;

use super::Session;
use crate::csi::args::{Format, snapshot::Metadata};
use crate::csi::errors::Failure;
use crate::csi::render::text::size;
use crate::csi::render::{Printer, Verdict};

/// One message of either stream: the two types differ in name only.
struct Batch {
    kind: BlockMetadataType,
    capacity: i64,
    ranges: Vec<BlockMetadata>,
}

impl From<GetMetadataAllocatedResponse> for Batch {
    fn from(message: GetMetadataAllocatedResponse) -> Self {
        let (kind, capacity) = (message.block_metadata_type(), message.volume_capacity_bytes);
        Self { kind, capacity, ranges: message.block_metadata }
    }
}

impl From<GetMetadataDeltaResponse> for Batch {
    fn from(message: GetMetadataDeltaResponse) -> Self {
        let (kind, capacity) = (message.block_metadata_type(), message.volume_capacity_bytes);
        Self { kind, capacity, ranges: message.block_metadata }
    }
}

pub(super) async fn run(session: &Session, command: Metadata, printer: &mut Printer<'_>) -> Result<Verdict, Failure> {
    let mut client = session.metadata().await?;
    // The deadline holds for the whole stream; tonic's own timer stops at the first message.
    let deadline = Instant::now().checked_add(session.timeout);
    match command {
        Metadata::Allocated(args) => {
            let request = args.request(&session.secrets);
            let from = request.starting_offset;
            let send = async |it| client.get_metadata_allocated(it).await;
            let stream = session.call("GetMetadataAllocated", request, send).await?;
            let feed = Feed { rpc: "GetMetadataAllocated", stream, deadline };
            drain(session, feed, Listing::new(printer, from)).await?;
        }
        Metadata::Delta(args) => {
            let request = args.request(&session.secrets);
            let from = request.starting_offset;
            let send = async |it| client.get_metadata_delta(it).await;
            let stream = session.call("GetMetadataDelta", request, send).await?;
            let feed = Feed { rpc: "GetMetadataDelta", stream, deadline };
            drain(session, feed, Listing::new(printer, from)).await?;
        }
    }
    Ok(Verdict::Complete)
}

struct Feed<M> {
    rpc: &'static str,
    stream: Streaming<M>,
    /// `None` when the timeout is too long for the clock, which is as good as no deadline.
    deadline: Option<Instant>,
}

impl<M> Feed<M> {
    async fn next(&mut self, session: &Session) -> Result<Option<M>, Failure> {
        let message = match self.deadline {
            Some(deadline) => timeout_at(deadline, self.stream.message()).await,
            None => Ok(self.stream.message().await),
        };
        message
            .map_err(|_| Failure::deadline(self.rpc))?
            .map_err(|status| Failure::of_call(self.rpc, status, &session.secrets))
    }
}

async fn drain<M: Into<Batch>>(
    session: &Session,
    mut feed: Feed<M>,
    mut listing: Listing<'_, '_>,
) -> Result<(), Failure> {
    loop {
        match feed.next(session).await {
            Ok(Some(message)) => listing.add(&message.into()).map_err(Failure::Output)?,
            Ok(None) => return listing.end().map_err(Failure::Output),
            // Nothing was listed yet, so there is nothing to continue.
            Err(failure) if listing.batches == 0 => return Err(failure),
            Err(failure) => {
                return Err(Failure::Incomplete { resume_at: listing.resume_at, source: Box::new(failure) });
            }
        }
    }
}

/// What has been printed so far.
struct Listing<'a, 'b> {
    printer: &'a mut Printer<'b>,
    batches: usize,
    ranges: usize,
    bytes: i64,
    resume_at: i64,
}

impl<'a, 'b> Listing<'a, 'b> {
    fn new(printer: &'a mut Printer<'b>, from: i64) -> Self {
        Self { printer, batches: 0, ranges: 0, bytes: 0, resume_at: from }
    }

    fn add(&mut self, batch: &Batch) -> io::Result<()> {
        match self.printer.format {
            Format::Json => {
                let before = if self.batches == 0 { "[\n" } else { ",\n" };
                write!(self.printer.out, "{before}{}", batch_json(batch))?;
            }
            Format::Text => {
                if self.batches == 0 {
                    writeln!(self.printer.out, "Capacity  {}", size(batch.capacity))?;
                    writeln!(self.printer.out, "Blocks    {}", batch.kind.as_str_name())?;
                    writeln!(self.printer.out, "{:>20} {:>20}", "OFFSET", "LENGTH")?;
                }
                for range in &batch.ranges {
                    writeln!(self.printer.out, "{:>20} {:>20}", range.byte_offset, range.size_bytes)?;
                }
            }
        }
        self.batches += 1;
        self.ranges += batch.ranges.len();
        for range in &batch.ranges {
            self.bytes = self.bytes.saturating_add(range.size_bytes);
            self.resume_at = range.byte_offset.saturating_add(range.size_bytes);
        }
        Ok(())
    }

    fn end(self) -> io::Result<()> {
        match self.printer.format {
            Format::Json if self.batches == 0 => writeln!(self.printer.out, "[]"),
            Format::Json => writeln!(self.printer.out, "\n]"),
            Format::Text => writeln!(self.printer.out, "{} ranges, {}", self.ranges, size(self.bytes)),
        }
    }
}

fn batch_json(batch: &Batch) -> Value {
    let range = |it: &BlockMetadata| json!({ "byteOffset": it.byte_offset, "sizeBytes": it.size_bytes });
    json!({
        "blockMetadataType": batch.kind.as_str_name(),
        "volumeCapacityBytes": batch.capacity,
        "blockMetadata": batch.ranges.iter().map(range).collect::<Vec<_>>(),
    })
}
