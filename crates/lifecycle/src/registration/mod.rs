//! Registration: what a node's objects say about the drivers that run on it (NODE-3, NODE-4).
//!
//! [`announce`] decides what Node and CSINode should become, from the drivers that are registered and what each said of the
//! node. [`version`] says which drivers speak a language of ours, [`instances`] which of several sockets of one driver is
//! used, [`machine`] keeps the Node object where no kubelet does, [`lease`] says whose the node's lease is, and [`taint`] lets pods come once a driver is there.

pub mod announce;
pub mod instances;
pub mod lease;
pub mod machine;
pub mod taint;
pub mod version;
