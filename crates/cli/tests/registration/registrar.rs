//! `orlop registrar` alone: NODE-27, NODE-31.32, NODE-32.24.

use std::path::{Path, PathBuf};

use csi::registration::registration_client::RegistrationClient;
use csi::registration::{InfoRequest, RegistrationStatus};
use rustix::process::Signal;

use super::program::{Program, get};
use crate::rig::{Driver, Options, Scratch};

const NAME: &str = "local.csi.orlop.dev";

/// A folder with a driver, and where its registration socket comes to be.
struct Place {
    scratch: Scratch,
    driver: Driver,
    directory: PathBuf,
}

impl Place {
    fn new() -> Self {
        let scratch = Scratch::new();
        scratch.plain_pool();
        let directory = scratch.dir("reg");
        let driver = Driver::start(&scratch, &Options::default());
        Self { scratch, driver, directory }
    }

    fn registrar(&self) -> Program {
        registrar(&self.driver.socket, &self.directory)
    }

    fn socket(&self) -> PathBuf {
        self.directory.join(format!("{NAME}-reg.sock"))
    }

    async fn plugin(&self) -> RegistrationClient<tonic::transport::Channel> {
        let endpoint = csi::Endpoint::Unix(self.socket());
        RegistrationClient::new(csi::connect(&endpoint).await.expect("the socket is served"))
    }
}

fn registrar(driver: &Path, directory: &Path) -> Program {
    let address = driver.to_str().unwrap();
    Program::orlop(&[
        "registrar",
        "--csi-address",
        address,
        "--kubelet-registration-path",
        "/host/csi.sock",
        "--plugin-registration-path",
        directory.to_str().unwrap(),
        "--http-endpoint",
        "127.0.0.1:0",
        "--v=2",
    ])
}

const OFFERED: &str = "is offered for registration";

/// Rules: NODE-27.2, NODE-27.3
#[tokio::test]
async fn it_says_who_the_driver_is_and_its_socket_is_private() {
    let place = Place::new();
    let mut registrar = place.registrar();
    registrar.says(OFFERED, 1).await;
    let info = place.plugin().await.get_info(InfoRequest {}).await.unwrap().into_inner();
    assert_eq!(
        (info.r#type.as_str(), info.name.as_str(), info.endpoint.as_str()),
        ("CSIPlugin", NAME, "/host/csi.sock")
    );
    assert_eq!(info.supported_versions, ["1.0.0"]);
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(place.socket()).unwrap()) & 0o777;
    assert_eq!(mode & 0o077, 0, "{mode:o}");
    let address = registrar.address().await;
    assert_eq!(get(&address, "/healthz").await, (200, "ok".to_owned()), "NODE-27.3");
    assert!(get(&address, "/metrics").await.1.contains("csi_sidecar_operations_seconds"));
}

/// Rules: NODE-32.24, NODE-31.32
#[tokio::test]
async fn told_to_stop_it_removes_its_socket_and_ends_well_on_either_signal() {
    let place = Place::new();
    for signal in [Signal::TERM, Signal::INT] {
        let mut registrar = place.registrar();
        registrar.says(OFFERED, 1).await;
        assert!(place.socket().exists());
        registrar.signal(signal);
        let (code, log) = registrar.ended().await;
        assert_eq!((code, place.socket().exists()), (Some(0), false), "NODE-31.32: {log}");
    }
}

/// Rules: NODE-32.24, NODE-31.32
#[tokio::test]
async fn refused_it_answers_first_then_removes_its_socket_and_fails() {
    let place = Place::new();
    let mut registrar = place.registrar();
    registrar.says(OFFERED, 1).await;
    let status = RegistrationStatus { plugin_registered: false, error: "not on this node".to_owned() };
    let answer = place.plugin().await.notify_registration_status(status).await;
    assert!(answer.is_ok(), "the agent hears an answer: {answer:?}");
    let (code, log) = registrar.ended().await;
    assert_eq!((code, place.socket().exists()), (Some(1), false), "{log}");
    assert!(log.contains("orlop registrar: ") && log.contains("not on this node"), "{log}");
}

#[tokio::test]
async fn a_socket_that_a_restarting_kubelet_removed_is_made_again() {
    let place = Place::new();
    let mut registrar = place.registrar();
    registrar.says(OFFERED, 1).await;
    let address = registrar.address().await;
    std::fs::remove_file(place.socket()).unwrap();
    registrar.says(OFFERED, 2).await;
    assert!(place.plugin().await.get_info(InfoRequest {}).await.is_ok());
    // The whole directory, as when somebody empties the kubelet's state.
    std::fs::remove_dir_all(&place.directory).unwrap();
    registrar.says(OFFERED, 3).await;
    assert_eq!(get(&address, "/healthz").await.0, 200);
    registrar.signal(Signal::TERM);
    assert_eq!(registrar.ended().await.0, Some(0));
    assert!(!place.socket().exists());
}

/// Rule: NODE-27.2
#[tokio::test]
async fn the_socket_of_a_registrar_that_was_killed_is_replaced() {
    let place = Place::new();
    let mut first = place.registrar();
    first.says(OFFERED, 1).await;
    first.kill();
    assert!(place.socket().exists(), "nobody removed it");
    let mut second = place.registrar();
    second.says(OFFERED, 1).await;
    assert!(place.plugin().await.get_info(InfoRequest {}).await.is_ok());
}

#[tokio::test]
async fn a_second_registrar_waits_for_the_first_and_takes_over() {
    let place = Place::new();
    let mut first = place.registrar();
    first.says(OFFERED, 1).await;
    let mut second = place.registrar();
    second.says("already served by process", 1).await;
    assert!(place.plugin().await.get_info(InfoRequest {}).await.is_ok(), "the first is not disturbed");
    first.signal(Signal::TERM);
    assert_eq!(first.ended().await.0, Some(0));
    second.says(OFFERED, 1).await;
    assert!(place.plugin().await.get_info(InfoRequest {}).await.is_ok());
}

/// Rule: NODE-27.2
#[tokio::test]
async fn what_is_no_socket_is_left_alone() {
    let place = Place::new();
    std::fs::write(place.socket(), "precious").unwrap();
    let (code, log) = place.registrar().ended().await;
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("stands in the way"), "{log}");
    assert_eq!(std::fs::read_to_string(place.socket()).unwrap(), "precious");
}

/// Rule: NODE-27.3
#[tokio::test]
async fn it_waits_for_the_driver_and_outlives_its_restarts() {
    let scratch = Scratch::new();
    scratch.plain_pool();
    let directory = scratch.dir("reg");
    let mut registrar = registrar(&scratch.path("csi.sock"), &directory);
    registrar.says("the driver is not ready", 1).await;
    let address = registrar.address().await;
    assert_eq!(get(&address, "/healthz").await.0, 500, "the driver has not said who it is");
    let mut driver = Driver::start(&scratch, &Options::default());
    registrar.says(OFFERED, 1).await;
    driver.kill();
    registrar.says("connection ended", 1).await;
    assert_eq!(get(&address, "/healthz").await.0, 200, "NODE-27.3: the driver's health is another probe's business");
    let _driver = Driver::start(&scratch, &Options::default());
    registrar.says("the driver is ready", 2).await;
    registrar.signal(Signal::TERM);
    assert_eq!(registrar.ended().await.0, Some(0));
}

/// Rule: NODE-31.32
#[tokio::test]
async fn a_driver_that_says_something_else_of_the_node_is_offered_anew() {
    let mut place = Place::new();
    let mut registrar = place.registrar();
    registrar.says(OFFERED, 1).await;
    place.driver.kill();
    registrar.says("connection ended", 1).await;
    place.driver = Driver::start(&place.scratch, &Options::args(["--attach-limit", "3"]));
    registrar.says(OFFERED, 2).await;
    assert!(place.plugin().await.get_info(InfoRequest {}).await.is_ok());
}
