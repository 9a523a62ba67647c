//! WIRE-B.5, LOCAL-0.28 and LOCAL-0.29: no secret in a status or in the log, at any level.
//!
//! Whether a log line is wanted is remembered for the whole process. So each test here runs in a process of its own,
//! where no other test has an opinion about it.

use std::io;
use std::process::Command;
use std::sync::{Arc, Mutex};

use driver_sdk::Error;
use driver_sdk::csi::TOKEN_KEYS;
use driver_sdk::csi::v1::volume_capability::{AccessType, MountVolume};
use driver_sdk::csi::v1::*;
use tonic::Code;
use tracing_subscriber::fmt::MakeWriter;

use crate::model::{Behaviour, create, publish, served};

const SECRETS: [&str; 4] = ["hunter2-secret", "sesame-open", "swordfish", "eyJ-token"];

/// A log that a test can read.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[track_caller]
fn clean(text: &str) {
    for secret in SECRETS {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}

fn leak() -> Error {
    Error::backend("logging in with hunter2-secret", "server says sesame-open and eyJ-token, -o password=swordfish")
}

fn request() -> NodePublishVolumeRequest {
    let mut request = publish("vol-v", "/t");
    request.secrets = [("user".to_owned(), SECRETS[0].to_owned()), ("pw".to_owned(), SECRETS[1].to_owned())].into();
    request.volume_context.insert(TOKEN_KEYS[0].into(), SECRETS[3].into());
    let mount = MountVolume { mount_flags: vec![format!("password={}", SECRETS[2])], ..Default::default() };
    request.volume_capability.as_mut().unwrap().access_type = Some(AccessType::Mount(mount));
    request
}

/// Runs a test in a process of its own, with a log that it can read.
fn alone<F: Future<Output = ()>>(test: &str, level: tracing::Level, body: impl FnOnce(Log) -> F) {
    const CHILD: &str = "ORLOP_TEST_SECRETS_CHILD";
    if std::env::var_os(CHILD).is_none() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let output = command.args(["--exact", &format!("secrets::{test}")]).env(CHILD, "1").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let log = Log::default();
    tracing_subscriber::fmt().with_max_level(level).with_writer(log.clone()).with_ansi(false).init();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.unwrap().block_on(body(log));
}

/// Rules: WIRE-B.5, LOCAL-0.28, LOCAL-0.29
#[test]
fn secrets_are_in_no_status_and_in_no_log() {
    alone("secrets_are_in_no_status_and_in_no_log", tracing::Level::DEBUG, |log| async move {
        let (model, _, mut clients) = served();
        clients.controller.create_volume(create("v")).await.unwrap();
        clients.node.node_publish_volume(request()).await.unwrap();

        model.on("publish", Behaviour::Fail(leak));
        let status = clients.node.node_publish_volume(request()).await.unwrap_err();
        assert_eq!(status.code(), Code::Internal);
        assert_eq!(status.message(), "logging in with ***: server says *** and ***, -o password=***");

        model.on("publish", Behaviour::Panic("could not use hunter2-secret".into()));
        let status = clients.node.node_publish_volume(request()).await.unwrap_err();
        clean(status.message());

        let text = log.text();
        clean(&text);
        for part in ["NodePublishVolume", "vol-v", "could not use ***", "logging in with ***", "received"] {
            assert!(text.contains(part), "the log does not tell of {part}: {text}");
        }
    });
}

/// Rule: LOCAL-E.4.8
#[test]
fn the_log_tells_number_method_object_and_time_of_a_call() {
    alone("the_log_tells_number_method_object_and_time_of_a_call", tracing::Level::INFO, |log| async move {
        let (_, _, mut clients) = served();
        clients.controller.create_volume(create("v")).await.unwrap();
        clients.controller.list_volumes(ListVolumesRequest::default()).await.unwrap();
        let text = log.text();
        assert!(text.contains("call{operation=1 method=\"CreateVolume\" volume=\"v\"}"), "{text}");
        assert!(text.contains("done took="), "{text}");
        assert!(!text.contains("received"), "requests are shown at debug level only");
        assert!(!text.contains("ListVolumes"), "polling does not fill the log");
    });
}
