//! The smallest CSI plugin there is: it answers the Identity service on the endpoint it is given.
//!
//! ```text
//! cargo run -p orlop-csi --example probe_server -- unix:///tmp/csi.sock
//! ```
//!
//! It prints `ready` when clients may connect and ends on SIGINT or SIGTERM, removing
//! its socket. `tests/go/authority` is a client for it that sends `:authority` in every way grpc-go can.

use csi::v1::identity_server::{Identity, IdentityServer};
use csi::v1::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse,
    ProbeRequest, ProbeResponse,
};
use csi::{Endpoint, Listener, SocketMode};
use tokio::signal::unix::{SignalKind, signal};
use tonic::transport::Server;
use tonic::{Request, Response, Status};

struct Plugin;

#[tonic::async_trait]
impl Identity for Plugin {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        let name = "probe.example.orlop.dev".to_owned();
        let vendor_version = env!("CARGO_PKG_VERSION").to_owned();
        Ok(Response::new(GetPluginInfoResponse { name, vendor_version, ..Default::default() }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        Ok(Response::new(GetPluginCapabilitiesResponse::default()))
    }

    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        Ok(Response::new(ProbeResponse { ready: Some(true) }))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let text = std::env::args().nth(1).or_else(|| std::env::var("CSI_ENDPOINT").ok());
    let endpoint: Endpoint = text.ok_or("give an endpoint, or set CSI_ENDPOINT")?.parse()?;
    let listener = Listener::bind(&endpoint, SocketMode::default())?;
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    println!("ready");
    let stop = async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    Server::builder()
        .add_service(IdentityServer::new(Plugin))
        .serve_with_incoming_shutdown(listener.incoming(), stop)
        .await?;
    Ok(())
}
