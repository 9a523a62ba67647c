//! What a run found, for people and for programs.

use std::fmt;

use serde::Serialize;

use crate::bench::span::{self, Span};
use crate::bench::writes::{self, Writes};

/// The numbers of one run.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) pods: usize,
    pub(super) nodes: usize,
    pub(super) concurrency: usize,
    pub(super) driver: String,
    /// From sending a pod's creation until its node was told that its volume is attached.
    pub(super) attached: Span,
    /// From sending a pod's deletion until its volume's VolumeAttachment is gone.
    pub(super) detached: Span,
    /// All of them in the time that both steps took together.
    pub(super) pairs_per_second: f64,
    /// By others than the bench; absent if the server does not show its metrics.
    pub(super) attach_writes: Option<Writes>,
    pub(super) detach_writes: Option<Writes>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pods, nodes, concurrency, driver, pairs_per_second, .. } = self;
        writeln!(f, "{pods} pods on {nodes} nodes, volumes of {driver}")?;
        writeln!(f, "{concurrency} requests at once\n")?;
        span::print(f, &[("attached", &self.attached), ("detached", &self.detached)])?;
        writeln!(f, "\n{pairs_per_second:.0} pairs of both per second")?;
        writes::print(f, "to attach", ("pod", *pods), self.attach_writes.as_ref())?;
        writes::print(f, "to detach", ("pod", *pods), self.detach_writes.as_ref())
    }
}
