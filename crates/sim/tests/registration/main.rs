//! Registration on the API server, with everything that can go wrong between two requests: plugins that come and go, Node
//! and CSINode, startup taints, and the Node of a machine without kubelet (spec node 3, 4, 31, 32).

mod announcing;
mod clones;
mod machine;
mod plugins;
mod registering;
mod stage;
mod taints;
