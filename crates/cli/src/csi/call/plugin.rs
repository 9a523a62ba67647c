//! What the driver is and can do. An overview survives parts that fail: that is when it is needed most.

use ::csi::v1::plugin_capability::{Type, service};
use ::csi::v1::{
    ControllerGetCapabilitiesRequest, GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse,
    GetPluginInfoRequest, GroupControllerGetCapabilitiesRequest, NodeGetCapabilitiesRequest, ProbeRequest,
    ProbeResponse,
};
use tonic::Code;

use super::{Answer, Session};
use crate::csi::errors::Failure;
use crate::csi::render::{Capabilities, Overview, Part};

pub(super) async fn info(session: &Session) -> Answer {
    let mut client = session.identity().await?;
    let send = async |request| client.get_plugin_info(request).await;
    let info = session.call("GetPluginInfo", GetPluginInfoRequest {}, send).await?;
    let probe = part(ask_probe(session).await)?;
    Ok(Box::new(Overview { info, probe, capabilities: ask_capabilities(session).await? }))
}

pub(super) async fn probe(session: &Session) -> Answer {
    Ok(Box::new(ask_probe(session).await?))
}

pub(super) async fn capabilities(session: &Session) -> Answer {
    Ok(Box::new(ask_capabilities(session).await?))
}

async fn ask_probe(session: &Session) -> Result<ProbeResponse, Failure> {
    let mut client = session.identity().await?;
    session.call("Probe", ProbeRequest {}, async |request| client.probe(request).await).await
}

async fn ask_capabilities(session: &Session) -> Result<Capabilities, Failure> {
    let mut client = session.identity().await?;
    let send = async |request| client.get_plugin_capabilities(request).await;
    let plugin = session.call("GetPluginCapabilities", GetPluginCapabilitiesRequest {}, send).await?;

    let controller = if offers(&plugin, service::Type::ControllerService) {
        let mut client = session.controller().await?;
        let send = async |request| client.controller_get_capabilities(request).await;
        part(session.call("ControllerGetCapabilities", ControllerGetCapabilitiesRequest {}, send).await)?
    } else {
        Part::NotOffered
    };
    let group = if offers(&plugin, service::Type::GroupControllerService) {
        let mut client = session.group().await?;
        let send = async |request| client.group_controller_get_capabilities(request).await;
        part(session.call("GroupControllerGetCapabilities", GroupControllerGetCapabilitiesRequest {}, send).await)?
    } else {
        Part::NotOffered
    };
    // The node service has no entry in the plugin's list, so only asking tells.
    let mut client = session.node().await?;
    let send = async |request| client.node_get_capabilities(request).await;
    let node = part(session.call("NodeGetCapabilities", NodeGetCapabilitiesRequest {}, send).await)?;
    Ok(Capabilities { plugin, controller, group, node })
}

fn offers(plugin: &GetPluginCapabilitiesResponse, wanted: service::Type) -> bool {
    plugin.capabilities.iter().any(|capability| match &capability.r#type {
        Some(Type::Service(service)) => service.r#type() == wanted,
        Some(Type::VolumeExpansion(_)) | None => false,
    })
}

/// A refusal becomes a part of the overview; a broken connection ends it.
fn part<T>(result: Result<T, Failure>) -> Result<Part<T>, Failure> {
    match result {
        Ok(answer) => Ok(Part::Answer(answer)),
        // One version of a driver lists the same services everywhere, but a socket may serve only some of them
        // (LOCAL-0.27).
        Err(Failure::Refused(refusal)) if refusal.code() == Code::Unimplemented => Ok(Part::NotServed),
        Err(Failure::Refused(refusal)) => Ok(Part::Failed(refusal)),
        Err(other) => Err(other),
    }
}
