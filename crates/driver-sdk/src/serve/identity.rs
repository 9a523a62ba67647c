//! Identity: who the driver is, what it can do, whether it can work now.

use csi::v1::identity_server::Identity;
use csi::v1::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse,
    ProbeRequest, ProbeResponse,
};
use tonic::{Request, Response, Status};

use super::IdentityService;
use crate::capabilities;
use crate::error::Error;
use crate::pipeline::method;
use crate::slots::Readiness;

#[tonic::async_trait]
impl Identity for IdentityService {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        self.shared.pipeline.inline(method::GET_PLUGIN_INFO, || {
            let identity = &self.shared.definition.identity;
            Ok(GetPluginInfoResponse {
                name: identity.name().to_owned(),
                vendor_version: identity.version().to_owned(),
                manifest: identity.manifest_entries().clone(),
            })
        })
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        self.shared.pipeline.inline(method::GET_PLUGIN_CAPABILITIES, || {
            Ok(GetPluginCapabilitiesResponse { capabilities: capabilities::plugin(&self.shared.definition) })
        })
    }

    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        self.shared.pipeline.inline(method::PROBE, || match self.shared.definition.health.readiness() {
            Readiness::Ready => Ok(ProbeResponse { ready: Some(true) }),
            // Healthy: whoever probes must wait and not restart it.
            Readiness::Starting => Ok(ProbeResponse { ready: Some(false) }),
            Readiness::Unhealthy(why) => Err(Error::precondition(why)),
        })
    }
}
