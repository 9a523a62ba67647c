//! Registration on the API server, with everything that can go wrong between two requests: plugins that come and go, Node
//! and CSINode, startup taints, and the Node of a machine without kubelet (NODE-3, NODE-4, NODE-31, NODE-32).

mod announcing;
mod clones;
mod machine;
mod plugins;
mod registering;
mod stage;
mod taints;
