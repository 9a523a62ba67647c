//! A driver that comes, goes and changes, on a real unix socket and in memory.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::oneshot;
use tonic::service::Routes;
use v1::controller_server::ControllerServer;
use v1::controller_service_capability::{self as capability, rpc::Type as Rpc};
use v1::identity_server::{Identity, IdentityServer};

use super::*;
use crate::stop::Stopper;
use crate::time::SystemClock;

const WAIT: Duration = Duration::from_secs(10);

/// A driver of that name which can do that much.
#[derive(Clone)]
struct Model {
    name: &'static str,
    rpcs: Vec<Rpc>,
    ready: Arc<AtomicBool>,
}

fn model(name: &'static str, rpcs: &[Rpc]) -> Model {
    Model { name, rpcs: rpcs.to_vec(), ready: Arc::new(AtomicBool::new(true)) }
}

#[tonic::async_trait]
impl Identity for Model {
    async fn get_plugin_info(
        &self,
        _: Request<v1::GetPluginInfoRequest>,
    ) -> Result<Response<v1::GetPluginInfoResponse>, Status> {
        let (name, vendor_version) = (self.name.to_owned(), "1".to_owned());
        Ok(Response::new(v1::GetPluginInfoResponse { name, vendor_version, ..Default::default() }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<v1::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<v1::GetPluginCapabilitiesResponse>, Status> {
        let service = v1::plugin_capability::Service { r#type: Service::ControllerService.into() };
        let r#type = Some(v1::plugin_capability::Type::Service(service));
        Ok(Response::new(v1::GetPluginCapabilitiesResponse { capabilities: vec![v1::PluginCapability { r#type }] }))
    }

    async fn probe(&self, _: Request<v1::ProbeRequest>) -> Result<Response<v1::ProbeResponse>, Status> {
        // A driver that starts says so in either of two ways.
        if self.ready.load(Ordering::SeqCst) {
            Ok(Response::new(v1::ProbeResponse { ready: None }))
        } else {
            Err(Status::unavailable("starting"))
        }
    }
}

macro_rules! controller {
    ($($name:ident, $request:ident => $response:ident;)*) => {
        #[tonic::async_trait]
        impl v1::controller_server::Controller for Model {
            async fn controller_get_capabilities(
                &self,
                _: Request<v1::ControllerGetCapabilitiesRequest>,
            ) -> Result<Response<v1::ControllerGetCapabilitiesResponse>, Status> {
                Ok(Response::new(self.capabilities()))
            }

            async fn create_volume(
                &self,
                request: Request<v1::CreateVolumeRequest>,
            ) -> Result<Response<v1::CreateVolumeResponse>, Status> {
                match request.get_ref().name.as_str() {
                    "slow" => std::future::pending().await,
                    "full" => Err(Status::resource_exhausted("no space")),
                    _ => Ok(Response::new(v1::CreateVolumeResponse::default())),
                }
            }

            $(async fn $name(&self, _: Request<v1::$request>) -> Result<Response<v1::$response>, Status> {
                Err(Status::unimplemented("not in this model"))
            })*
        }
    };
}

controller! {
    delete_volume, DeleteVolumeRequest => DeleteVolumeResponse;
    controller_publish_volume, ControllerPublishVolumeRequest => ControllerPublishVolumeResponse;
    controller_unpublish_volume, ControllerUnpublishVolumeRequest => ControllerUnpublishVolumeResponse;
    validate_volume_capabilities, ValidateVolumeCapabilitiesRequest => ValidateVolumeCapabilitiesResponse;
    list_volumes, ListVolumesRequest => ListVolumesResponse;
    get_capacity, GetCapacityRequest => GetCapacityResponse;
    create_snapshot, CreateSnapshotRequest => CreateSnapshotResponse;
    delete_snapshot, DeleteSnapshotRequest => DeleteSnapshotResponse;
    list_snapshots, ListSnapshotsRequest => ListSnapshotsResponse;
    get_snapshot, GetSnapshotRequest => GetSnapshotResponse;
    controller_expand_volume, ControllerExpandVolumeRequest => ControllerExpandVolumeResponse;
    controller_get_volume, ControllerGetVolumeRequest => ControllerGetVolumeResponse;
    controller_modify_volume, ControllerModifyVolumeRequest => ControllerModifyVolumeResponse;
}

impl Model {
    fn capabilities(&self) -> v1::ControllerGetCapabilitiesResponse {
        let one = |rpc: &Rpc| v1::ControllerServiceCapability {
            r#type: Some(capability::Type::Rpc(capability::Rpc { r#type: (*rpc).into() })),
        };
        v1::ControllerGetCapabilitiesResponse { capabilities: self.rpcs.iter().map(one).collect() }
    }

    fn routes(&self) -> Routes {
        Routes::new(IdentityServer::new(self.clone())).add_service(ControllerServer::new(self.clone()))
    }
}

/// Models one after the other; each connection lasts until the test ends it.
#[derive(Clone, Default)]
struct Stage(Arc<Mutex<StageState>>);

#[derive(Default)]
struct StageState {
    model: Option<Model>,
    connection: Option<oneshot::Sender<()>>,
    dials: usize,
}

impl Stage {
    fn show(&self, model: Option<Model>) {
        let mut state = self.0.lock().unwrap();
        state.model = model;
        if let Some(connection) = state.connection.take() {
            let _ = connection.send(());
        }
    }
}

impl Dial for Stage {
    fn dial(&self) -> BoxFuture<'_, Result<Connection, String>> {
        Box::pin(async {
            let mut state = self.0.lock().unwrap();
            state.dials += 1;
            let Some(model) = &state.model else { return Err("no socket".to_owned()) };
            let channel = ::csi::in_memory(model.routes());
            let (ended, lost) = oneshot::channel();
            state.connection = Some(ended);
            Ok(Connection { channel, lost: Box::pin(async { drop(lost.await) }) })
        })
    }
}

fn driver(dial: impl Dial) -> (Driver, Metrics) {
    let metrics = Metrics::new(&SystemClock);
    (Driver::new(dial, Options::default(), &metrics), metrics)
}

fn named(name: &str) -> v1::CreateVolumeRequest {
    v1::CreateVolumeRequest { name: name.to_owned(), ..Default::default() }
}

/// Waits for a state of the link.
async fn until(driver: &Driver, want: impl Fn(&Link) -> bool) -> Link {
    let mut link = driver.link();
    link.wait_for(|link| want(link)).await.unwrap();
    link.borrow().clone()
}

/// Rules: SIDECAR-1.2.3, SIDECAR-13.36
#[tokio::test(start_paused = true)]
async fn an_absent_driver_is_waited_for_and_calls_say_that_nothing_was_sent() {
    let stage = Stage::default();
    let (driver, _) = driver(stage.clone());
    let (stopper, stop) = Stopper::new();
    let playing = async {
        until(&driver, |link| matches!(link, Link::Down { why, .. } if why == "no socket")).await;
        let error = driver.create_volume(named("a"), WAIT).await.unwrap_err();
        assert_eq!((error.code(), error.message()), (None, "no socket"));
        tokio::time::sleep(60 * Duration::from_secs(1)).await;
        stage.show(Some(model("d", &[Rpc::CreateDeleteVolume])));
        let facts = driver.ready().await;
        assert!(facts.name == "d" && facts.capabilities.controls(Rpc::CreateDeleteVolume));
        driver.create_volume(named("a"), WAIT).await.unwrap();
        stopper.stop();
    };
    let (ended, ()) = tokio::join!(driver.run(&stop), playing);
    assert_eq!(ended, Ok(()));
    assert!(stage.0.lock().unwrap().dials < 70, "it dials too often");
}

/// Rules: SIDECAR-1.2.4, SIDECAR-1.3, SIDECAR-13.36
#[tokio::test(start_paused = true)]
async fn a_restarted_driver_is_asked_again_and_what_it_lost_is_said() {
    let stage = Stage::default();
    stage.show(Some(model("d", &[Rpc::CreateDeleteVolume, Rpc::CloneVolume])));
    let (driver, _) = driver(stage.clone());
    let (stopper, stop) = Stopper::new();
    let playing = async {
        assert_eq!(driver.ready().await.connection, 1);
        let second = model("d", &[Rpc::CreateDeleteVolume]);
        second.ready.store(false, Ordering::SeqCst);
        stage.show(Some(second.clone()));
        until(&driver, |link| matches!(link, Link::Down { why, .. } if why.contains("starting"))).await;
        second.ready.store(true, Ordering::SeqCst);
        let facts = driver.ready().await;
        assert_eq!((facts.connection, &facts.shrunk[..]), (2, &["CLONE_VOLUME".to_owned()][..]));
        stopper.stop();
    };
    let (ended, ()) = tokio::join!(driver.run(&stop), playing);
    assert_eq!(ended, Ok(()));
}

/// Rule: SIDECAR-13.36
#[tokio::test(start_paused = true)]
async fn another_driver_on_the_socket_ends_it() {
    let stage = Stage::default();
    stage.show(Some(model("d", &[])));
    let (driver, _) = driver(stage.clone());
    let never = Stop::never();
    let playing = async {
        driver.ready().await;
        stage.show(Some(model("e", &[])));
    };
    let (ended, ()) = tokio::join!(driver.run(&never), playing);
    assert_eq!(ended, Err(DriverError::NameChanged { was: "d".to_owned(), is: "e".to_owned() }));
}

/// Rule: SIDECAR-1.5
#[tokio::test(start_paused = true)]
async fn calls_have_a_deadline_and_are_counted_with_gos_code_names() {
    let stage = Stage::default();
    stage.show(Some(model("ebs.csi.aws.com", &[])));
    let (driver, metrics) = driver(stage.clone());
    let (stopper, stop) = Stopper::new();
    let playing = async {
        driver.ready().await;
        let late = driver.create_volume(named("slow"), WAIT).await.unwrap_err();
        assert_eq!(late.code(), Some(Code::DeadlineExceeded));
        let full = driver.create_volume(named("full"), WAIT).await.unwrap_err();
        assert_eq!((full.code(), full.message()), (Some(Code::ResourceExhausted), "no space"));
        stopper.stop();
    };
    let (ended, ()) = tokio::join!(driver.run(&stop), playing);
    assert_eq!(ended, Ok(()));
    let text = metrics.encode();
    for code in ["DeadlineExceeded", "ResourceExhausted"] {
        let labels = format!(
            r#"{{driver_name="ebs.csi.aws.com",method_name="/csi.v1.Controller/CreateVolume",grpc_status_code="{code}",migrated="false"}} 1"#
        );
        assert!(text.contains(&format!("csi_sidecar_operations_seconds_count{labels}")), "{code}\n{text}");
    }
}

/// Rule: SIDECAR-1.2.4
#[tokio::test]
async fn the_end_of_a_real_socket_is_noticed_without_a_call() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint: ::csi::Endpoint = format!("unix://{}", folder.path().join("csi.sock").display()).parse().unwrap();
    let (driver, _) = driver(endpoint.clone());
    let (stopper, stop) = Stopper::new();
    let lives = AtomicUsize::new(0);
    let serve = async || {
        let listener = ::csi::Listener::bind(&endpoint, ::csi::SocketMode::default()).unwrap();
        let (end, ended) = oneshot::channel::<()>();
        let routes = model("d", &[]).routes();
        let server = tonic::transport::Server::builder().add_routes(routes);
        lives.fetch_add(1, Ordering::SeqCst);
        let running = tokio::spawn(server.serve_with_incoming_shutdown(listener.incoming(), async {
            let _ = ended.await;
        }));
        (end, running)
    };
    let playing = async {
        let (end, running) = serve().await;
        assert_eq!(driver.ready().await.connection, 1);
        drop(end);
        running.await.unwrap().unwrap();
        until(&driver, |link| link.facts().is_none()).await;
        let (_end, _running) = serve().await;
        assert_eq!(driver.ready().await.connection, 2);
        stopper.stop();
    };
    let (ended, ()) = tokio::join!(driver.run(&stop), playing);
    assert_eq!((ended, lives.into_inner()), (Ok(()), 2));
}
