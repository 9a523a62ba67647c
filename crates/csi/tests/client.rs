//! The client: what it sends, what it says when it cannot connect, and that it comes back.

#![allow(clippy::unwrap_used, reason = "the whole file is tests")]

use std::convert::Infallible;
use std::error::Error as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use csi::v1::identity_client::IdentityClient;
use csi::v1::identity_server::{Identity, IdentityServer};
use csi::v1::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse,
    ProbeRequest, ProbeResponse,
};
use csi::{ConnectError, Endpoint, EndpointError, Listener, Peer, SocketMode};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::{Code, Request, Response, Status};

/// Tells who called it in the plugin's name.
struct Plugin;

#[tonic::async_trait]
impl Identity for Plugin {
    async fn get_plugin_info(
        &self,
        request: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        let name = format!("{:?}", request.extensions().get::<Peer>());
        Ok(Response::new(GetPluginInfoResponse { name, ..Default::default() }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        Ok(Response::new(ProbeResponse { ready: Some(true) }))
    }
}

fn routes() -> Routes {
    Routes::new(IdentityServer::new(Plugin))
}

struct Place {
    directory: TempDir,
    path: PathBuf,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("csi.sock");
        Self { directory, path }
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint::Unix(self.path.clone())
    }

    /// Serves until the sender is used or dropped.
    fn serve(&self) -> (oneshot::Sender<()>, JoinHandle<()>) {
        let listener = Listener::bind(&self.endpoint(), SocketMode::default()).unwrap();
        let (stop, stopped) = oneshot::channel();
        let server = Server::builder().add_routes(routes());
        let task = tokio::spawn(async move {
            let signal = async move { drop(stopped.await) };
            server.serve_with_incoming_shutdown(listener.incoming(), signal).await.unwrap();
        });
        (stop, task)
    }
}

async fn ready(client: &mut IdentityClient<tonic::transport::Channel>) -> Result<Option<bool>, Status> {
    client.probe(ProbeRequest {}).await.map(|response| response.into_inner().ready)
}

#[tokio::test]
async fn a_channel_survives_a_restart_of_the_plugin() {
    let place = Place::new();
    let (stop, server) = place.serve();
    let mut client = IdentityClient::new(csi::connect(&place.endpoint()).await.unwrap());
    assert_eq!(ready(&mut client).await.unwrap(), Some(true));

    drop(stop);
    server.await.unwrap();
    let error = ready(&mut client).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.message().contains(&*place.path.to_string_lossy()), "{error}");

    let (_stop, _server) = place.serve();
    assert_eq!(ready(&mut client).await.unwrap(), Some(true));
}

#[tokio::test]
async fn a_lazy_channel_may_be_made_before_the_plugin_runs() {
    let place = Place::new();
    let mut client = IdentityClient::new(csi::connect_lazy(&place.endpoint()));
    assert_eq!(ready(&mut client).await.unwrap_err().code(), Code::Unavailable);
    let (_stop, _server) = place.serve();
    assert_eq!(ready(&mut client).await.unwrap(), Some(true));
}

#[tokio::test]
async fn each_reason_not_to_connect_is_told_apart() {
    let place = Place::new();
    let refused = csi::connect(&place.endpoint()).await.unwrap_err();
    assert!(matches!(&refused, ConnectError::Missing { path } if *path == place.path), "{refused:?}");
    assert!(refused.source().is_none());

    drop(std::os::unix::net::UnixListener::bind(&place.path).unwrap());
    let refused = csi::connect(&place.endpoint()).await.unwrap_err();
    assert!(matches!(&refused, ConnectError::Refused { endpoint } if *endpoint == place.endpoint()), "{refused:?}");

    let file = place.directory.path().join("file.sock");
    std::fs::write(&file, "").unwrap();
    let refused = csi::connect(&Endpoint::Unix(file.clone())).await.unwrap_err();
    assert!(matches!(&refused, ConnectError::NotASocket { path } if *path == file), "{refused:?}");

    let below_a_file = Endpoint::Unix(file.join("csi.sock"));
    let refused = csi::connect(&below_a_file).await.unwrap_err();
    assert!(matches!(&refused, ConnectError::Io { endpoint, .. } if *endpoint == below_a_file), "{refused:?}");
    assert!(refused.source().is_some());

    let open_to_all = Endpoint::Tcp(([0, 0, 0, 0], 1).into());
    let refused = csi::connect(&open_to_all).await.unwrap_err();
    assert!(matches!(refused, ConnectError::Endpoint(EndpointError::NotLoopback { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_socket_we_may_not_use_is_named() {
    if rustix::process::geteuid().is_root() {
        println!("skipped: root is not stopped by permissions");
        return;
    }
    let place = Place::new();
    let _listener = Listener::bind(&place.endpoint(), SocketMode::new(0).unwrap()).unwrap();
    let refused = csi::connect(&place.endpoint()).await.unwrap_err();
    assert!(matches!(&refused, ConnectError::PermissionDenied { path } if *path == place.path), "{refused:?}");
}

#[tokio::test]
async fn tcp_works_on_loopback() {
    let listener = Listener::bind(&"tcp://localhost:0".parse().unwrap(), SocketMode::default()).unwrap();
    let endpoint = listener.endpoint().clone();
    let server = tokio::spawn(Server::builder().add_routes(routes()).serve_with_incoming(listener.incoming()));
    let mut client = IdentityClient::new(csi::connect(&endpoint).await.unwrap());
    assert_eq!(ready(&mut client).await.unwrap(), Some(true));
    server.abort();
}

#[tokio::test]
async fn an_in_memory_channel_needs_no_socket() {
    let mut client = IdentityClient::new(csi::in_memory(routes()));
    let mut clone = client.clone();
    assert_eq!(ready(&mut client).await.unwrap(), Some(true));
    let info = clone.get_plugin_info(GetPluginInfoRequest {}).await.unwrap().into_inner();
    assert_eq!(info.name, format!("{:?}", Some(Peer::InMemory)));
}

/// Rule: LOCAL-0.9
#[tokio::test]
async fn the_authority_is_always_localhost() {
    let place = Place::new();
    let listener = Listener::bind(&place.endpoint(), SocketMode::default()).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = seen.clone();
    let service = tower::service_fn(move |request: http::Request<tonic::body::Body>| {
        note.lock().unwrap().push(request.uri().authority().map(ToString::to_string));
        std::future::ready(Ok::<_, Infallible>(Status::unimplemented("").into_http::<tonic::body::Body>()))
    });
    let server = tokio::spawn(Server::builder().serve_with_incoming(service, listener.incoming()));
    for channel in [csi::connect(&place.endpoint()).await.unwrap(), csi::connect_lazy(&place.endpoint())] {
        let error = ready(&mut IdentityClient::new(channel)).await.unwrap_err();
        assert_eq!(error.code(), Code::Unimplemented);
    }
    let localhost = Some("localhost".to_owned());
    assert_eq!(*seen.lock().unwrap(), [localhost.clone(), localhost]);
    server.abort();
}
