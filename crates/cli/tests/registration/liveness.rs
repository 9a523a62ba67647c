//! `orlop livenessprobe`: NODE-28, NODE-31.35, NODE-32.25.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use csi::v1;
use csi::v1::identity_server::{Identity, IdentityServer};
use csi::{Endpoint, Listener, SocketMode};
use rustix::process::Signal;
use tonic::{Request, Response, Status};

use super::program::{Program, get};
use crate::rig::Scratch;

/// What Probe answers.
#[derive(Clone, Default)]
struct Model(Arc<AtomicU8>);

const ABSENT: u8 = 0;
const READY: u8 = 1;
const NOT_READY: u8 = 2;
const ERROR: u8 = 3;
const SILENT: u8 = 4;

#[tonic::async_trait]
impl Identity for Model {
    async fn get_plugin_info(
        &self,
        _: Request<v1::GetPluginInfoRequest>,
    ) -> Result<Response<v1::GetPluginInfoResponse>, Status> {
        Ok(Response::new(v1::GetPluginInfoResponse { name: "model.example".to_owned(), ..Default::default() }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<v1::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<v1::GetPluginCapabilitiesResponse>, Status> {
        Ok(Response::new(v1::GetPluginCapabilitiesResponse::default()))
    }

    async fn probe(&self, _: Request<v1::ProbeRequest>) -> Result<Response<v1::ProbeResponse>, Status> {
        let ready = match self.0.load(Ordering::Relaxed) {
            ABSENT => None,
            READY => Some(true),
            NOT_READY => Some(false),
            ERROR => return Err(Status::failed_precondition("a disk is gone")),
            _ => std::future::pending().await,
        };
        Ok(Response::new(v1::ProbeResponse { ready }))
    }
}

fn serve(path: &Path, model: &Model) -> tokio::task::JoinHandle<()> {
    let listener = Listener::bind(&Endpoint::Unix(path.to_owned()), SocketMode::default()).unwrap();
    let server = tonic::transport::Server::builder().add_service(IdentityServer::new(model.clone()));
    tokio::spawn(async move { server.serve_with_incoming(listener.incoming()).await.unwrap() })
}

fn probe(socket: &Path, more: &[&str]) -> Program {
    let base = ["livenessprobe", "--csi-address", socket.to_str().unwrap(), "--probe-timeout", "500ms"];
    Program::orlop(&[&base[..], more].concat())
}

/// Rules: NODE-32.25, NODE-31.35
#[tokio::test]
async fn the_port_is_open_before_the_driver_is_there_and_says_how_it_is() {
    let scratch = Scratch::new();
    let socket = scratch.path("csi.sock");
    let mut program = probe(&socket, &["--http-endpoint", "127.0.0.1:0"]);
    let address = program.address().await;
    let (code, text) = get(&address, "/healthz").await;
    assert_eq!(code, 500, "{text}");
    assert!(text.contains("no socket"), "{text}");
    let model = Model::default();
    let server = serve(&socket, &model);
    let rows = [
        (ABSENT, 200, "ok"),
        (READY, 200, "ok"),
        (NOT_READY, 500, "not ready"),
        (ERROR, 500, "a disk is gone"),
        (SILENT, 500, "500ms"),
    ];
    for (answer, code, words) in rows {
        model.0.store(answer, Ordering::Relaxed);
        let (got, text) = get(&address, "/healthz").await;
        assert!(got == code && text.contains(words), "{answer}: {got} {text}");
    }
    let metrics = get(&address, "/metrics").await.1;
    let wanted =
        [r#"driver_name="model.example""#, r#"method_name="/csi.v1.Identity/Probe""#, "process_start_time_seconds"];
    assert!(wanted.iter().all(|words| metrics.contains(words)), "{metrics}");
    server.abort();
    let _ = server.await;
    let (code, text) = get(&address, "/healthz").await;
    assert_eq!(code, 500, "{text}");
    program.signal(Signal::TERM);
    assert_eq!(program.ended().await.0, Some(0));
}

/// Rule: NODE-28.2
#[tokio::test]
async fn metrics_have_an_address_of_their_own_or_none() {
    let scratch = Scratch::new();
    let mut alone = probe(&scratch.path("csi.sock"), &["--health-port", "0"]);
    alone.says("answering", 1).await;
    let log = alone.log();
    let port: String = log.split("address=0.0.0.0:").nth(1).unwrap().chars().take_while(char::is_ascii_digit).collect();
    assert_eq!(get(&format!("127.0.0.1:{port}"), "/metrics").await.0, 404);
    let mut both = probe(&scratch.path("csi.sock"), &["--health-port", "0", "--metrics-address", "127.0.0.1:0"]);
    let address = both.address().await;
    assert_eq!(get(&address, "/metrics").await.0, 200);
}

/// Rule: NODE-31.35
#[tokio::test]
async fn a_port_that_is_taken_is_an_error() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, log) = probe(Path::new("/nowhere/csi.sock"), &["--http-endpoint", &address]).ended().await;
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("orlop livenessprobe: listening on"), "{log}");
}
