//! `orlop csi` against a driver on a unix socket: what it sends, what it prints, how it exits.
//!
//! The peer is a fake with canned answers. It serves Identity, Controller and SnapshotMetadata but not Node, like the
//! controller half of a split driver.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use csi::v1::controller_server::{Controller, ControllerServer};
use csi::v1::identity_server::{Identity, IdentityServer};
use csi::v1::plugin_capability::{Service, Type as PluginType, service};
use csi::v1::snapshot_metadata_server::{SnapshotMetadata, SnapshotMetadataServer};
use csi::v1::*;
use serde_json::{Value, json};
use tonic::{Request, Response, Status};

/// A password no output may ever hold.
const PASSWORD: &str = "correct-horse-battery";

#[derive(Clone, Default)]
struct Fake {
    created: Arc<Mutex<Vec<Created>>>,
}

/// A CreateVolume call as it arrived.
struct Created {
    request: CreateVolumeRequest,
    timeout: Option<String>,
}

#[tonic::async_trait]
impl Identity for Fake {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        let (name, vendor_version) = ("fake.example".to_owned(), "1.2.3".to_owned());
        Ok(Response::new(GetPluginInfoResponse { name, vendor_version, ..Default::default() }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        let r#type = Some(PluginType::Service(Service { r#type: service::Type::ControllerService.into() }));
        Ok(Response::new(GetPluginCapabilitiesResponse { capabilities: vec![PluginCapability { r#type }] }))
    }

    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        Ok(Response::new(ProbeResponse { ready: Some(false) }))
    }
}

impl Fake {
    fn create(&self, request: Request<CreateVolumeRequest>) -> Result<CreateVolumeResponse, Status> {
        let timeout = request.metadata().get("grpc-timeout").and_then(|value| value.to_str().ok()).map(str::to_owned);
        let message = request.into_inner();
        let (name, password) = (message.name.clone(), message.secrets.get("pass").cloned().unwrap_or_default());
        self.created.lock().unwrap().push(Created { request: message, timeout });
        match name.as_str() {
            "busy" => Err(Status::aborted(format!("{name} is being\ncreated with {password}"))),
            "hollow" => Ok(CreateVolumeResponse { volume: None }),
            _ => {
                let volume = Volume { volume_id: format!("id-{name}"), capacity_bytes: 1 << 30, ..Default::default() };
                Ok(CreateVolumeResponse { volume: Some(volume) })
            }
        }
    }

    /// Three volumes, two to a page; the token is the number of entries already seen.
    fn list(&self, request: &ListVolumesRequest) -> Result<ListVolumesResponse, Status> {
        let start: usize = match request.starting_token.as_str() {
            "" => 0,
            "loop" => return Ok(ListVolumesResponse { next_token: "loop".to_owned(), ..Default::default() }),
            token => token.parse().map_err(|_| Status::aborted("what token is that"))?,
        };
        let page = if request.max_entries == 0 { 2 } else { usize::try_from(request.max_entries).unwrap() };
        let end = (start + page).min(3);
        let entry = |n: usize| list_volumes_response::Entry {
            volume: Some(Volume { volume_id: format!("v{n}"), ..Default::default() }),
            status: None,
        };
        let next_token = if end < 3 { end.to_string() } else { String::new() };
        Ok(ListVolumesResponse { entries: (start..end).map(entry).collect(), next_token })
    }
}

/// Answers some RPCs with a method of the fake and refuses the others.
macro_rules! controller {
    ($($rpc:ident($request:ty) -> $response:ty = $answer:expr;)*) => {
        #[tonic::async_trait]
        impl Controller for Fake {
            $(async fn $rpc(&self, request: Request<$request>) -> Result<Response<$response>, Status> {
                let answer: fn(&Fake, Request<$request>) -> Result<$response, Status> = $answer;
                answer(self, request).map(Response::new)
            })*

            /// Never answers: whoever calls it meets a deadline.
            async fn get_capacity(&self, _: Request<GetCapacityRequest>) -> Result<Response<GetCapacityResponse>, Status> {
                std::future::pending().await
            }
        }
    };
}

fn no<Q, A>(_: &Fake, _: Request<Q>) -> Result<A, Status> {
    Err(Status::unimplemented("not here"))
}

controller! {
    create_volume(CreateVolumeRequest) -> CreateVolumeResponse = Fake::create;
    delete_volume(DeleteVolumeRequest) -> DeleteVolumeResponse = |_, _| Ok(DeleteVolumeResponse {});
    controller_publish_volume(ControllerPublishVolumeRequest) -> ControllerPublishVolumeResponse = no;
    controller_unpublish_volume(ControllerUnpublishVolumeRequest) -> ControllerUnpublishVolumeResponse = no;
    validate_volume_capabilities(ValidateVolumeCapabilitiesRequest) -> ValidateVolumeCapabilitiesResponse = no;
    list_volumes(ListVolumesRequest) -> ListVolumesResponse = |fake, request| fake.list(request.get_ref());
    controller_get_capabilities(ControllerGetCapabilitiesRequest) -> ControllerGetCapabilitiesResponse =
        |_, _| Err(Status::unavailable("pool is away"));
    create_snapshot(CreateSnapshotRequest) -> CreateSnapshotResponse = no;
    delete_snapshot(DeleteSnapshotRequest) -> DeleteSnapshotResponse = no;
    list_snapshots(ListSnapshotsRequest) -> ListSnapshotsResponse = no;
    get_snapshot(GetSnapshotRequest) -> GetSnapshotResponse = no;
    controller_expand_volume(ControllerExpandVolumeRequest) -> ControllerExpandVolumeResponse = no;
    controller_get_volume(ControllerGetVolumeRequest) -> ControllerGetVolumeResponse = no;
    controller_modify_volume(ControllerModifyVolumeRequest) -> ControllerModifyVolumeResponse = no;
}

type Messages<M> = tokio_stream::Iter<std::vec::IntoIter<Result<M, Status>>>;

#[tonic::async_trait]
impl SnapshotMetadata for Fake {
    type GetMetadataAllocatedStream = Messages<GetMetadataAllocatedResponse>;
    type GetMetadataDeltaStream = Messages<GetMetadataDeltaResponse>;

    async fn get_metadata_allocated(
        &self,
        request: Request<GetMetadataAllocatedRequest>,
    ) -> Result<Response<Self::GetMetadataAllocatedStream>, Status> {
        let message = |offset| GetMetadataAllocatedResponse {
            block_metadata_type: BlockMetadataType::FixedLength.into(),
            volume_capacity_bytes: 1 << 20,
            block_metadata: vec![BlockMetadata { byte_offset: offset, size_bytes: 4096 }],
        };
        let mut messages = vec![Ok(message(0)), Ok(message(8192))];
        if request.get_ref().snapshot_id == "broken" {
            messages.push(Err(Status::internal("disk fell out")));
        }
        Ok(Response::new(tokio_stream::iter(messages)))
    }

    async fn get_metadata_delta(
        &self,
        _: Request<GetMetadataDeltaRequest>,
    ) -> Result<Response<Self::GetMetadataDeltaStream>, Status> {
        Ok(Response::new(tokio_stream::iter(Vec::new())))
    }
}

/// A fake driver on a socket of its own, gone when dropped.
struct Driver {
    fake: Fake,
    dir: tempfile::TempDir,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let endpoint = csi::Endpoint::unix(dir.path().join("csi.sock")).unwrap();
        let fake = Fake::default();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let serving = fake.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = csi::Listener::bind(&endpoint, csi::SocketMode::default()).unwrap();
                ready.send(()).unwrap();
                let server = tonic::transport::Server::builder()
                    .add_service(IdentityServer::new(serving.clone()))
                    .add_service(ControllerServer::new(serving.clone()))
                    .add_service(SnapshotMetadataServer::new(serving));
                tokio::select! {
                    served = server.serve_with_incoming(listener.incoming()) => served.unwrap(),
                    _ = stopped => {}
                }
            });
        });
        is_ready.recv().unwrap();
        Self { fake, dir, stop: Some(stop), thread: Some(thread) }
    }

    fn orlop(&self, args: &[&str]) -> Answer {
        run(&self.dir.path().join("csi.sock"), args)
    }

    /// A file with the password in it.
    fn password_file(&self) -> PathBuf {
        let file = self.dir.path().join("password");
        std::fs::write(&file, format!("{PASSWORD}\n")).unwrap();
        file
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the fake driver panicked");
        }
    }
}

struct Answer {
    code: i32,
    out: String,
    err: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error} in {:?} ({})", self.out, self.err))
    }
}

fn run(socket: &std::path::Path, args: &[&str]) -> Answer {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_orlop"))
        .arg("csi")
        .args(args)
        .env("CSI_ENDPOINT", format!("unix://{}", socket.display()))
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let answer = Answer { code: status.code().unwrap(), out: text(stdout), err: text(stderr) };
    assert!(!answer.out.contains(PASSWORD) && !answer.err.contains(PASSWORD), "a secret leaked: {}", answer.err);
    answer
}

#[test]
fn create_sends_every_flag_and_the_deadline() {
    let driver = Driver::start();
    let secret = format!("pass={}", driver.password_file().display());
    let answer = driver.orlop(&[
        "--timeout",
        "90s",
        "--secret",
        &secret,
        "create",
        "data",
        "--size",
        "1Gi",
        "--limit",
        "2Gi",
        "--fs",
        "xfs",
        "--mode",
        "SINGLE_NODE_SINGLE_WRITER",
        "--mount-flag",
        "noatime",
        "--param",
        "class=fast",
        "--mutable",
        "iops=5",
        "--from-snapshot",
        "s1",
        "--topology",
        "node=n2,zone=z",
        "--topology",
        "node=n1,zone=z",
    ]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert_eq!(answer.out, "Volume    id-data\nCapacity  1 GiB (1073741824 bytes)\n");

    let created = driver.fake.created.lock().unwrap();
    let Created { request, timeout } = &created[0];
    assert_eq!(timeout.as_deref(), Some("90000000u"));
    assert_eq!(request.secrets["pass"], PASSWORD);
    assert_eq!(request.capacity_range, Some(CapacityRange { required_bytes: 1 << 30, limit_bytes: 2 << 30 }));
    assert_eq!((&*request.parameters["class"], &*request.mutable_parameters["iops"]), ("fast", "5"));
    let capability = format!("{:?}", request.volume_capabilities);
    for part in ["xfs", "noatime", "SingleNodeSingleWriter"] {
        assert!(capability.contains(part), "{capability}");
    }
    let topology = request.accessibility_requirements.clone().unwrap();
    let nodes: Vec<_> = topology.preferred.iter().map(|place| place.segments["node"].as_str()).collect();
    assert_eq!((nodes, topology.requisite.len()), (vec!["n2", "n1"], 2));
    let source = format!("{:?}", request.volume_content_source);
    assert!(source.contains("s1"), "{source}");
}

#[test]
fn an_error_is_one_line_and_exits_with_1() {
    let answer = Driver::start().orlop(&["create", "busy"]);
    assert_eq!(answer.code, 1);
    assert_eq!(answer.out, "");
    assert_eq!(
        answer.err,
        "orlop csi: CreateVolume: ABORTED: busy is being\\ncreated with  (another operation on the same volume is \
         running; the call may be repeated as it is)\n"
    );
}

#[test]
fn no_secret_is_in_the_request_log_or_in_an_error_that_quotes_it() {
    let driver = Driver::start();
    let secret = format!("pass={}", driver.password_file().display());
    // `run` fails the test if the password is anywhere in the output.
    let answer = driver.orlop(&["create", "busy", "--request-log", "--secret", &secret]);
    let lines: Vec<_> = answer.err.lines().collect();
    assert_eq!((lines.len(), answer.code), (3, 1), "{}", answer.err);
    assert!(lines[0].starts_with("--> CreateVolume CreateVolumeRequest {"), "{}", lines[0]);
    assert!(lines[1].starts_with("<-- CreateVolume ABORTED after "), "{}", lines[1]);
    assert!(lines[2].contains("created with ***"), "{}", lines[2]);
    assert_eq!(driver.fake.created.lock().unwrap()[0].request.secrets["pass"], PASSWORD);
}

#[test]
fn an_answer_without_its_message_is_the_drivers_fault() {
    let answer = Driver::start().orlop(&["create", "hollow"]);
    assert_eq!(answer.code, 1);
    assert!(answer.err.contains("CreateVolume: the driver broke the contract"), "{}", answer.err);
}

#[test]
fn info_shows_what_failed_beside_what_did_not_and_exits_with_1() {
    let driver = Driver::start();
    let answer = driver.orlop(&["info"]);
    assert_eq!(answer.code, 1);
    for line in [
        "Name        fake.example",
        "Version     1.2.3",
        "Ready       no (healthy, but still starting)",
        "Plugin      CONTROLLER_SERVICE",
        "Controller  ControllerGetCapabilities: UNAVAILABLE: pool is away (",
        "Group       (the driver does not offer this service)",
        "Node        (not served on this socket)",
    ] {
        assert!(answer.out.contains(line), "{line} is not in:\n{}", answer.out);
    }
    let json = driver.orlop(&["-o", "json", "info"]).json();
    assert_eq!(json["info"]["vendorVersion"], "1.2.3");
    assert_eq!(json["probe"], json!({ "ready": false }));
    assert_eq!(json["capabilities"]["plugin"]["capabilities"][0]["service"]["type"], "CONTROLLER_SERVICE");
    assert_eq!(json["capabilities"]["controller"]["error"]["code"], "UNAVAILABLE");
    assert_eq!(json["capabilities"]["node"], Value::Null);
}

#[test]
fn a_list_follows_all_pages_unless_one_is_asked_for() {
    let driver = Driver::start();
    let all = driver.orlop(&["list", "-o", "json"]).json();
    let ids: Vec<_> = all["entries"].as_array().unwrap().iter().map(|entry| &entry["volume"]["volumeId"]).collect();
    assert_eq!(ids, ["v0", "v1", "v2"]);
    assert_eq!(all["nextToken"], "");

    let page = driver.orlop(&["list", "--max", "1", "--token", "1"]);
    assert!(page.out.contains("v1") && !page.out.contains("v2"), "{}", page.out);
    assert!(page.out.ends_with("There is more: continue with --token 2\n"), "{}", page.out);
}

#[test]
fn a_list_that_would_never_end_is_the_drivers_fault() {
    let answer = Driver::start().orlop(&["list", "--token", "loop"]);
    assert_eq!(answer.code, 1);
    assert!(answer.err.contains("the token it was asked with"), "{}", answer.err);
}

#[test]
fn an_answer_without_fields_is_a_sentence_or_an_empty_object() {
    let driver = Driver::start();
    assert_eq!(driver.orlop(&["delete", "v1"]).out, "volume v1 is deleted\n");
    assert_eq!(driver.orlop(&["-o", "json", "delete", "v1"]).json(), json!({}));
}

#[test]
fn ranges_are_streamed_and_a_complete_list_says_so() {
    let driver = Driver::start();
    let text = driver.orlop(&["metadata", "allocated", "s1"]);
    assert_eq!(
        text.out,
        "Capacity  1 MiB (1048576 bytes)\n\
         Blocks    FIXED_LENGTH\n\
         \x20             OFFSET               LENGTH\n\
         \x20                  0                 4096\n\
         \x20               8192                 4096\n\
         2 ranges, 8 KiB (8192 bytes)\n"
    );
    let json = driver.orlop(&["-o", "json", "metadata", "allocated", "s1"]).json();
    assert_eq!(json.as_array().unwrap().len(), 2);
    assert_eq!(
        json[1],
        json!({
            "blockMetadataType": "FIXED_LENGTH",
            "volumeCapacityBytes": 1_048_576,
            "blockMetadata": [{ "byteOffset": 8192, "sizeBytes": 4096 }],
        })
    );
    assert_eq!(driver.orlop(&["-o", "json", "metadata", "delta", "a", "b"]).json(), json!([]));
}

/// Rule: WIRE-B.10
#[test]
fn a_broken_stream_cannot_be_taken_for_a_complete_one() {
    // WIRE-B.10: any error means incomplete, and the caller may go on where it stopped.
    let answer = Driver::start().orlop(&["-o", "json", "metadata", "allocated", "broken"]);
    assert_eq!(answer.code, 1);
    assert!(serde_json::from_str::<Value>(&answer.out).is_err(), "{}", answer.out);
    assert!(answer.err.contains("the ranges are incomplete; continue with --offset 12288"), "{}", answer.err);
    assert!(answer.err.contains("INTERNAL: disk fell out"), "{}", answer.err);
}

#[test]
fn a_call_that_takes_too_long_ends_at_its_deadline() {
    let answer = Driver::start().orlop(&["--timeout", "50ms", "capacity"]);
    assert_eq!(answer.code, 1);
    assert!(answer.err.contains("GetCapacity: DEADLINE_EXCEEDED: no answer within the --timeout"), "{}", answer.err);
}

#[test]
fn a_driver_that_dies_during_the_call_is_not_reported_as_its_answer() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("csi.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let dying = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // Nobody may connect again, and the client's greeting has arrived, which nothing ever answers.
        drop(listener);
        stream.read_exact(&mut [0; 24]).unwrap();
    });
    let answer = run(&socket, &["probe"]);
    dying.join().unwrap();
    assert_eq!(answer.code, 3, "{}", answer.err);
    assert_eq!(answer.err.lines().count(), 1, "{}", answer.err);
    assert!(answer.err.starts_with("orlop csi: Probe: the connection broke: "), "{}", answer.err);
}
