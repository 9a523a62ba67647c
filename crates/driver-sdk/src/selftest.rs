//! Asks the driver about itself before anyone else does.
//!
//! The types already keep most rules. What is left depends on values a driver gives at run time, and a wrong one is
//! better told to whoever starts the driver than to a caller.

use std::collections::BTreeSet;

use csi::v1::controller_client::ControllerClient;
use csi::v1::controller_service_capability::{self as c, rpc::Type as C};
use csi::v1::group_controller_client::GroupControllerClient;
use csi::v1::identity_client::IdentityClient;
use csi::v1::node_client::NodeClient;
use csi::v1::node_service_capability::{self as n, rpc::Type as N};
use csi::v1::plugin_capability::{self as p, service::Type as P, volume_expansion::Type as Expansion};
use csi::v1::*;
use tonic::transport::Channel;

use crate::server::{Driver, Mode};

/// What a driver says of itself that breaks the specification.
#[derive(Debug, thiserror::Error)]
pub enum SelfTestError {
    #[error("asking the driver itself with {rpc}: {}", status.message())]
    Call { rpc: &'static str, status: Box<tonic::Status> },
    #[error("the driver contradicts itself: {0}")]
    Contradiction(&'static str),
}

/// What the driver answered.
#[derive(Default)]
struct Told {
    services: BTreeSet<i32>,
    expansions: BTreeSet<i32>,
    controller: BTreeSet<i32>,
    node: BTreeSet<i32>,
    groups: usize,
}

pub(crate) async fn run(driver: &Driver, mode: Mode) -> Result<(), SelfTestError> {
    // Capabilities are those of the whole definition, so both sides are asked whatever is served.
    let channel = csi::in_memory(driver.routes(Mode::All));
    let told = ask(&channel, driver).await?;
    check(&told)?;
    if driver.has_node() && mode != Mode::Controller {
        let info = NodeClient::new(channel).node_get_info(NodeGetInfoRequest {}).await;
        let info = info.map_err(|status| failed("NodeGetInfo", status))?.into_inner();
        let placed = told.services.contains(&P::VolumeAccessibilityConstraints.into());
        if info.accessible_topology.is_some() != placed {
            return Err(SelfTestError::Contradiction(
                "topology without VOLUME_ACCESSIBILITY_CONSTRAINTS or vice versa",
            ));
        }
    }
    Ok(())
}

async fn ask(channel: &Channel, driver: &Driver) -> Result<Told, SelfTestError> {
    let mut told = Told::default();
    let mut identity = IdentityClient::new(channel.clone());
    let plugin = identity.get_plugin_capabilities(GetPluginCapabilitiesRequest {}).await;
    let plugin = plugin.map_err(|status| failed("GetPluginCapabilities", status))?.into_inner();
    for capability in plugin.capabilities {
        match capability.r#type {
            Some(p::Type::Service(service)) => told.services.insert(service.r#type),
            Some(p::Type::VolumeExpansion(expansion)) => told.expansions.insert(expansion.r#type),
            None => return Err(SelfTestError::Contradiction("a plugin capability without a type")),
        };
    }
    if driver.has_controller() {
        let mut client = ControllerClient::new(channel.clone());
        let answer = client.controller_get_capabilities(ControllerGetCapabilitiesRequest {}).await;
        let answer = answer.map_err(|status| failed("ControllerGetCapabilities", status))?.into_inner();
        told.controller = answer
            .capabilities
            .iter()
            .filter_map(|capability| capability.r#type)
            .map(|c::Type::Rpc(rpc)| rpc.r#type)
            .collect();
    }
    if told.services.contains(&P::GroupControllerService.into()) {
        let mut client = GroupControllerClient::new(channel.clone());
        let answer = client.group_controller_get_capabilities(GroupControllerGetCapabilitiesRequest {}).await;
        told.groups =
            answer.map_err(|status| failed("GroupControllerGetCapabilities", status))?.into_inner().capabilities.len();
    }
    if driver.has_node() {
        let mut client = NodeClient::new(channel.clone());
        let answer = client.node_get_capabilities(NodeGetCapabilitiesRequest {}).await;
        let answer = answer.map_err(|status| failed("NodeGetCapabilities", status))?.into_inner();
        told.node = answer
            .capabilities
            .iter()
            .filter_map(|capability| capability.r#type)
            .map(|n::Type::Rpc(rpc)| rpc.r#type)
            .collect();
    }
    Ok(told)
}

/// The rules between capabilities (WIRE-B.3).
fn check(told: &Told) -> Result<(), SelfTestError> {
    let service = |kind: P| told.services.contains(&kind.into());
    let controller = |kind: C| told.controller.contains(&kind.into());
    let node = |kind: N| told.node.contains(&kind.into());
    let expands = |kind: Expansion| told.expansions.contains(&kind.into());
    let rules = [
        (!told.controller.is_empty() && !service(P::ControllerService), "controller RPCs without CONTROLLER_SERVICE"),
        (service(P::GroupControllerService) && told.groups == 0, "GROUP_CONTROLLER_SERVICE without any group RPC"),
        (
            expands(Expansion::Online) && !controller(C::ExpandVolume) && !node(N::ExpandVolume),
            "ONLINE expansion without EXPAND_VOLUME",
        ),
        (
            expands(Expansion::Offline) && !controller(C::ExpandVolume),
            "OFFLINE expansion without EXPAND_VOLUME of the controller",
        ),
        (
            controller(C::PublishReadonly) && !controller(C::PublishUnpublishVolume),
            "PUBLISH_READONLY without PUBLISH_UNPUBLISH_VOLUME",
        ),
        (
            controller(C::ListVolumesPublishedNodes)
                && !(controller(C::PublishUnpublishVolume) && controller(C::ListVolumes)),
            "LIST_VOLUMES_PUBLISHED_NODES without attachment and listing",
        ),
        (node(N::VolumeCondition) && !node(N::GetVolumeStats), "VOLUME_CONDITION of the node without GET_VOLUME_STATS"),
        (
            !told.controller.is_empty() && controller(C::SingleNodeMultiWriter) != node(N::SingleNodeMultiWriter),
            "SINGLE_NODE_MULTI_WRITER on one side only",
        ),
    ];
    rules.into_iter().find(|(broken, _)| *broken).map_or(Ok(()), |(_, why)| Err(SelfTestError::Contradiction(why)))
}

fn failed(rpc: &'static str, status: tonic::Status) -> SelfTestError {
    SelfTestError::Call { rpc, status: Box::new(status) }
}
