//! What a run found, for people and for programs.

use std::fmt;

use serde::Serialize;

use crate::bench::span::{self, Span};
use crate::bench::writes::{self, Writes};

/// The numbers of one run.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) claims: usize,
    /// Made by hand; 0 if volumes were provisioned.
    pub(super) volumes: usize,
    pub(super) concurrency: usize,
    pub(super) provisioner: String,
    pub(super) volumes_per_second: Option<f64>,
    /// From sending a claim's creation until it is Bound.
    pub(super) bound: Span,
    /// From sending a claim's deletion until it is gone.
    pub(super) claims_gone: Span,
    /// From sending a claim's deletion until its volume is gone; that of the volume itself, if it was made by hand.
    pub(super) volumes_gone: Span,
    /// By others than the bench; absent if the server does not show its metrics.
    pub(super) bind_writes: Option<Writes>,
    pub(super) delete_writes: Option<Writes>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { claims, volumes, concurrency, provisioner, .. } = self;
        match self.volumes_per_second {
            Some(rate) => writeln!(f, "{claims} claims, {volumes} volumes made by hand ({rate:.0}/s)")?,
            None => writeln!(f, "{claims} claims provisioned by {provisioner}")?,
        }
        writeln!(f, "{concurrency} requests at once\n")?;
        let spans = [("bound", &self.bound), ("claim gone", &self.claims_gone), ("volume gone", &self.volumes_gone)];
        span::print(f, &spans)?;
        writes::print(f, "to bind", ("claim", *claims), self.bind_writes.as_ref())?;
        writes::print(f, "to delete", ("claim", *claims), self.delete_writes.as_ref())
    }
}
