//! Sockets, start, shutdown, and the metrics page.

use std::sync::Arc;
use std::time::Duration;

use driver_sdk::csi::v1::ProbeRequest;
use driver_sdk::csi::{Endpoint, Listener, SocketMode};
use driver_sdk::testing::Clients;
use driver_sdk::{Driver, Mode, SelfTestError, ServeError, metrics};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tonic::Code;

use crate::model::{self, Model, code, create};

const GRACE: Duration = Duration::from_secs(30);

struct Served {
    _dir: tempfile::TempDir,
    endpoint: Endpoint,
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<Result<(), ServeError>>,
}

/// Serves a driver on a socket of its own.
fn start(driver: &Driver, mode: Mode) -> Served {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::unix(dir.path().join("csi.sock")).unwrap();
    let listener = Listener::bind(&endpoint, SocketMode::default()).unwrap();
    let (stop, stopped) = oneshot::channel();
    let shutdown = async { stopped.await.unwrap_or(()) };
    let task = tokio::spawn(driver.clone().serve([listener], mode, shutdown, GRACE));
    Served { _dir: dir, endpoint, stop, task }
}

async fn clients(served: &Served) -> Clients {
    Clients::over(driver_sdk::csi::connect(&served.endpoint).await.unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_calls_and_refuses_new_ones() {
    let model = Model::new();
    let served = start(&model::full(&model), Mode::All);
    let clients = clients(&served).await;
    let gate = model.hold("create");
    let mut controller = clients.controller.clone();
    let creating = tokio::spawn(async move { code(controller.create_volume(create("v")).await) });
    model.entered(1).await;
    served.stop.send(()).unwrap();
    gate.add_permits(1);
    assert_eq!(creating.await.unwrap(), Code::Ok, "the call that ran is answered");
    assert!(matches!(served.task.await.unwrap(), Ok(())));
    let mut identity = clients.identity;
    assert_eq!(code(identity.probe(ProbeRequest {}).await), Code::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_work_whose_caller_has_left() {
    let model = Model::new();
    let driver = model::full(&model);
    let served = start(&driver, Mode::All);
    let gate = model.hold("create");
    let mut controller = clients(&served).await.controller;
    let leaving = tokio::spawn(async move { controller.create_volume(create("v")).await.map(drop) });
    model.entered(1).await;
    leaving.abort();
    let _ = leaving.await;
    served.stop.send(()).unwrap();
    gate.add_permits(1);
    assert!(matches!(served.task.await.unwrap(), Ok(())));
    assert!(model.state().volumes.contains_key("vol-v"));
}

#[tokio::test(start_paused = true)]
async fn what_outlives_the_grace_period_is_named() {
    let model = Model::new();
    let served = start(&model::full(&model), Mode::All);
    let _gate = model.hold("create");
    let mut controller = clients(&served).await.controller;
    let hanging = tokio::spawn(async move { controller.create_volume(create("v")).await.map(drop) });
    model.entered(1).await;
    let before = tokio::time::Instant::now();
    served.stop.send(()).unwrap();
    let error = served.task.await.unwrap().unwrap_err();
    let want = "still running at the end of the grace period: CreateVolume (operation ";
    assert!(error.to_string().starts_with(want), "{error}");
    assert!(error.to_string().ends_with("on \"v\""), "{error}");
    assert_eq!(before.elapsed().as_secs(), GRACE.as_secs());
    hanging.abort();
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_contradicts_itself_does_not_start() {
    let model = Arc::new(Model { node_id: String::new(), ..Model::default() });
    let served = start(&model::full(&model), Mode::Node);
    let error = served.task.await.unwrap().unwrap_err();
    assert!(matches!(&error, ServeError::SelfTest(SelfTestError::Call { rpc: "NodeGetInfo", .. })), "{error:?}");
    // A process that serves only the controller side does not ask the node side about the node.
    assert!(model::full(&model).self_test(Mode::Controller).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_side_that_does_not_exist_cannot_be_served() {
    let model = Model::new();
    let slots = driver_sdk::ControllerSlots::new(model.clone()).capacity();
    let driver = Driver::builder(model::identity()).controller(slots).build().unwrap();
    let error = start(&driver, Mode::Node).task.await.unwrap().unwrap_err();
    assert!(matches!(error, ServeError::NoSuchSide("node")));
    let nowhere = driver.serve([], Mode::All, std::future::pending(), GRACE).await;
    assert!(matches!(nowhere, Err(ServeError::NoListener)));
}

async fn get(address: std::net::SocketAddr, head: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(format!("{head} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn metrics_are_served_on_loopback_only() {
    let driver = model::full(&Model::new());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(metrics::serve(listener, driver.metrics(), async { stopped.await.unwrap_or(()) }));
    let page = get(address, "GET /metrics").await;
    assert!(page.starts_with("HTTP/1.1 200 OK"), "{page}");
    assert!(page.contains("orlop_driver_panics_total 0"), "{page}");
    assert!(get(address, "GET /healthz").await.ends_with("ok\n"));
    assert!(get(address, "GET /other").await.starts_with("HTTP/1.1 404"));
    assert!(get(address, "POST /metrics").await.starts_with("HTTP/1.1 405"));
    stop.send(()).unwrap();
    assert!(serving.await.unwrap().is_ok());
    let everywhere = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let refused = metrics::serve(everywhere, driver.metrics(), std::future::pending()).await.unwrap_err();
    assert!(refused.to_string().contains("not a loopback address"));
}
