//! What a kubelet and its plugins say to each other, byte for byte: NODE-3.1, NODE-10.4.

#![allow(clippy::unwrap_used, reason = "the whole file is tests")]

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use csi::registration::registration_client::RegistrationClient;
use csi::registration::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};
use csi::v1::node_client::NodeClient;
use csi::v1::{NodeGetCapabilitiesRequest, NodeStageVolumeRequest};
use csi::{Endpoint, Listener, SocketMode};
use prost::Message;
use tonic::transport::{Channel, Server};
use tonic::{Code, Request, Status};

/// What a server sees of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    path: String,
    authority: String,
    timeout: Option<String>,
    content: String,
}

/// A server on a real socket that answers nothing and notes everything.
struct Listening {
    _directory: tempfile::TempDir,
    endpoint: Endpoint,
    seen: Arc<Mutex<Vec<Seen>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Listening {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let endpoint = Endpoint::Unix(directory.path().join("csi.sock"));
        let listener = Listener::bind(&endpoint, SocketMode::default()).unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let noted = seen.clone();
        let service = tower::service_fn(move |request: http::Request<tonic::body::Body>| {
            let header = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
            noted.lock().unwrap().push(Seen {
                path: request.uri().path().to_owned(),
                authority: request.uri().authority().map(ToString::to_string).unwrap_or_default(),
                timeout: header("grpc-timeout"),
                content: header("content-type").unwrap_or_default(),
            });
            std::future::ready(Ok::<_, Infallible>(Status::unimplemented("").into_http::<tonic::body::Body>()))
        });
        let server = Server::builder().serve_with_incoming(service, listener.incoming());
        let task = tokio::spawn(async move { drop(server.await) });
        Self { _directory: directory, endpoint, seen, task }
    }

    async fn channel(&self) -> Channel {
        csi::connect(&self.endpoint).await.unwrap()
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

/// Rule: NODE-3.1
#[tokio::test]
async fn registration_has_its_methods_under_the_package_without_a_version() {
    let server = Listening::new();
    let mut client = RegistrationClient::new(server.channel().await);
    assert_eq!(client.get_info(InfoRequest {}).await.unwrap_err().code(), Code::Unimplemented);
    assert_eq!(
        client.notify_registration_status(RegistrationStatus::default()).await.unwrap_err().code(),
        Code::Unimplemented
    );
    let paths: Vec<String> = server.seen().into_iter().map(|seen| seen.path).collect();
    assert_eq!(
        paths,
        ["/pluginregistration.Registration/GetInfo", "/pluginregistration.Registration/NotifyRegistrationStatus"]
    );
}

/// A field of text: its number and its value.
fn text(number: u8, value: &str) -> Vec<u8> {
    let length = u8::try_from(value.len()).unwrap();
    [&[number << 3 | 2, length], value.as_bytes()].concat()
}

/// Rule: NODE-3.1
#[test]
fn registration_messages_have_their_numbers() {
    let info = PluginInfo {
        r#type: "CSIPlugin".to_owned(),
        name: "d".to_owned(),
        endpoint: "/csi.sock".to_owned(),
        supported_versions: vec!["1.0.0".to_owned(), "1.1.0".to_owned()],
    };
    let fields = [text(1, "CSIPlugin"), text(2, "d"), text(3, "/csi.sock"), text(4, "1.0.0"), text(4, "1.1.0")];
    assert_eq!(info.encode_to_vec(), fields.concat());
    assert_eq!(PluginInfo::decode(&*fields.concat()).unwrap(), info);
    let status = RegistrationStatus { plugin_registered: true, error: "no".to_owned() };
    assert_eq!(status.encode_to_vec(), [vec![1 << 3, 1], text(2, "no")].concat());
    assert!(InfoRequest {}.encode_to_vec().is_empty() && RegistrationStatusResponse {}.encode_to_vec().is_empty());
}

/// Rule: NODE-10.4
#[tokio::test]
async fn a_call_names_localhost_its_method_and_its_deadline() {
    let server = Listening::new();
    let mut client = NodeClient::new(server.channel().await);
    let mut request = Request::new(NodeStageVolumeRequest::default());
    request.set_timeout(Duration::from_secs(120));
    assert_eq!(client.node_stage_volume(request).await.unwrap_err().code(), Code::Unimplemented);
    let seen = server.seen();
    assert_eq!(seen.len(), 1);
    assert_eq!((&*seen[0].path, &*seen[0].authority), ("/csi.v1.Node/NodeStageVolume", "localhost"));
    assert_eq!(&*seen[0].content, "application/grpc");
    let timeout = seen[0].timeout.as_deref().unwrap();
    let (amount, unit) = timeout.split_at(timeout.len() - 1);
    let seconds = amount.parse::<u64>().unwrap()
        / match unit {
            "m" => 1_000,
            "u" => 1_000_000,
            "n" => 1_000_000_000,
            _ => 1,
        };
    assert_eq!(seconds, 120, "{timeout}");
}

/// Rule: NODE-10.4
#[tokio::test]
async fn a_dead_socket_fails_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("csi.sock");
    // The file outlives who listened.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let mut client = NodeClient::new(csi::connect_lazy(&Endpoint::Unix(path)));
    let mut request = Request::new(NodeGetCapabilitiesRequest {});
    request.set_timeout(Duration::from_secs(120));
    let failed = tokio::time::timeout(Duration::from_secs(60), client.node_get_capabilities(request)).await;
    assert_eq!(failed.expect("it does not wait for its deadline").unwrap_err().code(), Code::Unavailable);
}
