//! The agent of this machine as a part of a stack.

use std::path::Path;

use ::node::registry::machine::ApiPlace;
use control::Context;
use runtime::Stop;
use runtime::health::Health;

use super::place::{Place, node_name};
use crate::node::{self, NodeAgent};
use crate::process;

/// The agent of this machine. Drivers offer themselves in a directory of it.
#[derive(Debug)]
pub(super) struct Machine {
    agent: NodeAgent,
}

impl Machine {
    pub(super) fn new(context: &Context, place: &Place, api: ApiPlace) -> anyhow::Result<Self> {
        let flags = [format!("--root-dir={}", place.root().display()), format!("--node-name={}", node_name())];
        let args: node::WorkArgs = process::flags(&flags.each_ref().map(String::as_str))?;
        Ok(Self { agent: NodeAgent::beside_controllers(context, &args, api)? })
    }

    /// Where drivers offer themselves.
    pub(super) fn sockets(&self) -> &Path {
        self.agent.sockets()
    }

    /// Lets health checks say why the agent does nothing, if it does not.
    pub(super) fn add_to(&self, health: &Health) {
        self.agent.add_to(health);
    }

    pub(super) async fn run(&self, stop: &Stop) {
        self.agent.run(stop.clone()).await;
        if let Some(refused) = self.agent.refused() {
            tracing::error!(error = %refused, "pods of this machine get no volumes from here; everything else goes on");
        }
    }
}
