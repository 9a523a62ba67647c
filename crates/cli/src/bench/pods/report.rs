//! What a run found, for people and for programs.

use std::fmt;

use serde::Serialize;

use crate::bench::span::{self, Span};
use crate::bench::writes::{self, Writes};

/// Where the pods went.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Nodes {
    Named(Vec<String>),
    Scheduled,
}

impl Nodes {
    /// The node of a pod; `None` if a scheduler finds one.
    pub(super) fn of(&self, number: usize) -> Option<&str> {
        match self {
            Self::Named(names) => names.get(number % names.len().max(1)).map(String::as_str),
            Self::Scheduled => None,
        }
    }
}

/// The numbers of one run.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) pods: usize,
    pub(super) nodes: Nodes,
    pub(super) concurrency: usize,
    pub(super) provisioner: String,
    /// From sending a claim's creation until it is Bound.
    pub(super) bound: Span,
    /// From sending a pod's creation until its volume is ready.
    pub(super) ready: Span,
    /// From when the pod has a node and its claim is Bound until its volume is ready.
    pub(super) ready_after_bound: Span,
    /// From sending a pod's deletion until it is gone.
    pub(super) pods_gone: Span,
    /// From sending a pod's deletion until its volume's VolumeAttachment is gone; absent if nothing was attached.
    pub(super) detached: Option<Span>,
    /// From sending a claim's deletion, after all pods were gone, until its volume is gone.
    pub(super) volumes_gone: Span,
    /// By others than the bench; absent if the server does not show its metrics.
    pub(super) ready_writes: Option<Writes>,
    pub(super) delete_writes: Option<Writes>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pods, concurrency, provisioner, .. } = self;
        match &self.nodes {
            Nodes::Named(names) => writeln!(f, "{pods} pods on {} nodes, volumes of {provisioner}", names.len())?,
            Nodes::Scheduled => writeln!(f, "{pods} pods where a scheduler put them, volumes of {provisioner}")?,
        }
        writeln!(f, "{concurrency} requests at once\n")?;
        let mut spans = vec![
            ("claim bound", &self.bound),
            ("pod ready", &self.ready),
            ("pod ready, after bound", &self.ready_after_bound),
            ("pod gone", &self.pods_gone),
        ];
        spans.extend(self.detached.as_ref().map(|detached| ("detached", detached)));
        spans.push(("volume gone", &self.volumes_gone));
        span::print(f, &spans)?;
        writes::print(f, "to become ready", ("pod", *pods), self.ready_writes.as_ref())?;
        writes::print(f, "to delete", ("pod", *pods), self.delete_writes.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_take_turns() {
        let nodes = Nodes::Named(vec!["a".into(), "b".into()]);
        assert_eq!([0, 1, 2].map(|number| nodes.of(number)), [Some("a"), Some("b"), Some("a")]);
        assert_eq!(Nodes::Scheduled.of(7), None);
    }
}
