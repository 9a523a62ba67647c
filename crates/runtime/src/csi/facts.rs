//! What a driver says about itself.

use std::collections::BTreeSet;

use ::csi::v1;
use v1::controller_service_capability::{self as controller, rpc::Type as ControllerRpc};
use v1::group_controller_service_capability::{self as group, rpc::Type as GroupRpc};
use v1::node_service_capability::{self as node, rpc::Type as NodeRpc};
use v1::plugin_capability::{self as plugin, service::Type as Service, volume_expansion::Type as Expansion};

/// What a driver can do. An unknown capability of a newer specification is left out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// Which services it has.
    pub services: BTreeSet<Service>,
    /// Whether volumes can grow while in use, if it says so.
    pub expansion: Option<Expansion>,
    /// What its controller does.
    pub controller: BTreeSet<ControllerRpc>,
    /// What its group controller does.
    pub group: BTreeSet<GroupRpc>,
    /// What it does on a node; empty unless asked for.
    pub node: BTreeSet<NodeRpc>,
}

impl Capabilities {
    /// Whether it has this service.
    pub fn serves(&self, service: Service) -> bool {
        self.services.contains(&service)
    }

    /// Whether its controller does this.
    pub fn controls(&self, rpc: ControllerRpc) -> bool {
        self.controller.contains(&rpc)
    }

    /// Whether it does this on a node.
    pub fn on_node(&self, rpc: NodeRpc) -> bool {
        self.node.contains(&rpc)
    }

    /// Whether its volumes cannot be reached from everywhere.
    pub fn has_topology(&self) -> bool {
        self.serves(Service::VolumeAccessibilityConstraints)
    }

    pub(super) fn read_plugin(&mut self, answer: v1::GetPluginCapabilitiesResponse) {
        for capability in answer.capabilities {
            match capability.r#type {
                Some(plugin::Type::Service(service)) => {
                    self.services.extend(Service::try_from(service.r#type).ok().filter(|s| *s != Service::Unknown));
                }
                Some(plugin::Type::VolumeExpansion(expansion)) => {
                    self.expansion = Expansion::try_from(expansion.r#type).ok().filter(|e| *e != Expansion::Unknown);
                }
                None => {}
            }
        }
    }

    pub(super) fn read_controller(&mut self, answer: v1::ControllerGetCapabilitiesResponse) {
        for capability in answer.capabilities {
            if let Some(controller::Type::Rpc(rpc)) = capability.r#type {
                self.controller
                    .extend(ControllerRpc::try_from(rpc.r#type).ok().filter(|r| *r != ControllerRpc::Unknown));
            }
        }
    }

    pub(super) fn read_group(&mut self, answer: v1::GroupControllerGetCapabilitiesResponse) {
        for capability in answer.capabilities {
            if let Some(group::Type::Rpc(rpc)) = capability.r#type {
                self.group.extend(GroupRpc::try_from(rpc.r#type).ok().filter(|r| *r != GroupRpc::Unknown));
            }
        }
    }

    pub(super) fn read_node(&mut self, answer: v1::NodeGetCapabilitiesResponse) {
        for capability in answer.capabilities {
            if let Some(node::Type::Rpc(rpc)) = capability.r#type {
                self.node.extend(NodeRpc::try_from(rpc.r#type).ok().filter(|r| *r != NodeRpc::Unknown));
            }
        }
    }

    /// The names of what `self` can do and `now` cannot.
    pub(super) fn missing_in(&self, now: &Capabilities) -> Vec<String> {
        let mut missing = Vec::new();
        missing.extend(self.services.difference(&now.services).map(|s| s.as_str_name().to_owned()));
        missing.extend(self.controller.difference(&now.controller).map(|r| r.as_str_name().to_owned()));
        missing.extend(self.group.difference(&now.group).map(|r| r.as_str_name().to_owned()));
        missing.extend(self.node.difference(&now.node).map(|r| r.as_str_name().to_owned()));
        missing
    }
}

/// What is known about a driver while it is connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Its name, which never changes while this process runs.
    pub name: String,
    /// Its version, as it says.
    pub version: String,
    /// What it can do now.
    pub capabilities: Capabilities,
    /// What it could do before it was restarted and cannot any more.
    pub shrunk: Vec<String>,
    /// Counts connections, from 1.
    pub connection: u64,
}
