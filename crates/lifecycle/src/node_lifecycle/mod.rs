//! Machines that are not heard of any more: their Nodes, the pods on them, the volumes on their disks and their attachments.
//!
//! On a cluster kube-controller-manager decides this (node-lifecycle, taint-eviction and pod-garbage-collector controllers).
//! Here it is decided for the embedded API, by the same rules, from what one process saw with its own clock.
//!
//! # Invariants
//! 1. Silence is measured by whoever watches. No time that another machine wrote is compared with a clock.
//! 2. Silence alone takes nothing away that cannot be had again: it changes conditions and taints, and later asks pods to
//!    end. Only evidence ends a pod or drops a volume without its machine: the Node object is gone, or an operator put the
//!    node out of service while it is not ready.
//! 3. If no other machine is heard of, the watcher's own connection is in doubt, and no pod is asked to end.

pub mod attachment;
pub mod node;
pub mod pod;
pub mod volume;
