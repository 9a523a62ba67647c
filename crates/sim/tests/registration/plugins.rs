//! Plugins and drivers that do what the test says, behind real gRPC in memory.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use csi::registration::registration_server::{Registration, RegistrationServer};
use csi::registration::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};
use csi::v1;
use futures_util::future::BoxFuture;
use node::registry::{Plugins, Sighting, Tell};
use runtime::csi::{Connection, Dial};
use runtime::watch;
use tonic::service::Routes;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};
use v1::identity_server::{Identity, IdentityServer};
use v1::node_server::{Node, NodeServer};

/// What happened, in order: calls to drivers and plugins, and writes to the API.
pub(crate) type Log = Arc<Mutex<Vec<String>>>;

/// A driver on its endpoint. Clones are the same.
#[derive(Clone)]
pub(crate) struct Driver {
    pub(crate) state: Arc<Mutex<DriverState>>,
    up: watch::Sender<bool>,
    log: Log,
}

pub(crate) struct DriverState {
    pub(crate) name: String,
    pub(crate) node_id: String,
    pub(crate) topology: BTreeMap<String, String>,
    pub(crate) limit: i64,
    /// How long NodeGetInfo takes.
    pub(crate) slow: Duration,
    /// What NodeGetInfo fails with, as often as there are codes.
    pub(crate) failing: VecDeque<Code>,
}

/// A registrar's socket.
#[derive(Clone)]
pub(crate) struct Socket {
    pub(crate) info: PluginInfo,
    pub(crate) told: Arc<Mutex<Vec<RegistrationStatus>>>,
    /// So many calls of GetInfo are never answered.
    pub(crate) deaf: Arc<Mutex<u32>>,
    /// So many calls of NotifyRegistrationStatus fail.
    pub(crate) forgetful: Arc<Mutex<u32>>,
    /// How long it takes to hear that it is registered.
    pub(crate) slow: Arc<Mutex<Duration>>,
    log: Log,
}

#[derive(Default)]
struct Shelves {
    generation: u64,
    sockets: BTreeMap<String, (u64, Socket)>,
    drivers: BTreeMap<String, Driver>,
}

/// All plugins of a machine. Clones are the same.
#[derive(Clone)]
pub(crate) struct Shelf {
    shelves: Arc<Mutex<Shelves>>,
    changes: watch::Sender<u64>,
    pub(crate) log: Log,
}

impl std::fmt::Debug for Shelf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shelf").finish_non_exhaustive()
    }
}

impl Shelf {
    pub(crate) fn new(log: &Log) -> Self {
        Self { shelves: Arc::default(), changes: watch::Sender::new(0), log: log.clone() }
    }

    fn shelves(&self) -> MutexGuard<'_, Shelves> {
        self.shelves.lock().expect("nobody panicked")
    }

    /// Starts a driver on an endpoint.
    pub(crate) fn driver(&self, name: &str, endpoint: &str) -> Driver {
        let state = DriverState {
            name: name.to_owned(),
            node_id: "machine-7".to_owned(),
            topology: BTreeMap::new(),
            limit: 0,
            slow: Duration::ZERO,
            failing: VecDeque::new(),
        };
        let driver = Driver { state: Arc::new(Mutex::new(state)), up: watch::Sender::new(true), log: self.log.clone() };
        self.shelves().drivers.insert(endpoint.to_owned(), driver.clone());
        driver
    }

    /// Puts a registration socket there, in place of whatever was.
    pub(crate) fn offer(&self, socket: &str, info: PluginInfo) -> Socket {
        let plugin = Socket {
            info,
            told: Arc::default(),
            deaf: Arc::default(),
            forgetful: Arc::default(),
            slow: Arc::default(),
            log: self.log.clone(),
        };
        let mut shelves = self.shelves();
        shelves.generation += 1;
        let generation = shelves.generation;
        shelves.sockets.insert(socket.to_owned(), (generation, plugin.clone()));
        drop(shelves);
        self.changes.send_modify(|count| *count += 1);
        plugin
    }

    pub(crate) fn take(&self, socket: &str) {
        self.shelves().sockets.remove(socket);
        self.changes.send_modify(|count| *count += 1);
    }
}

/// What a registrar says.
pub(crate) fn info(driver: &str, endpoint: &str) -> PluginInfo {
    PluginInfo {
        r#type: "CSIPlugin".to_owned(),
        name: driver.to_owned(),
        endpoint: endpoint.to_owned(),
        supported_versions: vec!["1.0.0".to_owned()],
    }
}

impl Socket {
    /// Whether it heard that it is registered, and nothing else since.
    pub(crate) fn is_registered(&self) -> bool {
        self.told.lock().expect("nobody panicked").last().is_some_and(|told| told.plugin_registered)
    }

    /// Why it was refused, each time.
    pub(crate) fn refusals(&self) -> Vec<String> {
        let told = self.told.lock().expect("nobody panicked");
        told.iter().filter(|told| !told.plugin_registered).map(|told| told.error.clone()).collect()
    }
}

impl Driver {
    pub(crate) fn with(&self) -> MutexGuard<'_, DriverState> {
        self.state.lock().expect("nobody panicked")
    }

    /// Ends the connection, and takes the next one.
    pub(crate) fn restart(&self) {
        self.up.send_replace(true);
    }
}

impl Dial for Driver {
    fn dial(&self) -> BoxFuture<'_, Result<Connection, String>> {
        Box::pin(async {
            let routes = Routes::new(IdentityServer::new(self.clone())).add_service(NodeServer::new(self.clone()));
            let mut up = self.up.subscribe();
            let lost = Box::pin(async move {
                let _ = up.changed().await;
            });
            Ok(Connection { channel: csi::in_memory(routes), lost })
        })
    }
}

impl Plugins for Shelf {
    fn watch<'a>(&'a self, tell: &'a Tell<'a>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let mut changes = self.changes.subscribe();
            let mut known: BTreeMap<String, u64> = BTreeMap::new();
            loop {
                let mut now: Vec<(u64, String)> =
                    self.shelves().sockets.iter().map(|(path, (generation, _))| (*generation, path.clone())).collect();
                now.sort();
                let gone: Vec<String> =
                    known.keys().filter(|path| !now.iter().any(|(_, here)| here == *path)).cloned().collect();
                for socket in gone {
                    known.remove(&socket);
                    tell(Sighting::Gone { socket });
                }
                for (generation, socket) in now {
                    if known.insert(socket.clone(), generation) != Some(generation) {
                        tell(Sighting::Found { socket });
                    }
                }
                let _ = changes.changed().await;
            }
        })
    }

    fn plugin<'a>(&'a self, socket: &'a str) -> BoxFuture<'a, Result<Channel, String>> {
        Box::pin(async move {
            let plugin = self.shelves().sockets.get(socket).map(|(_, plugin)| plugin.clone());
            let plugin = plugin.ok_or_else(|| "no such socket".to_owned())?;
            Ok(csi::in_memory(Routes::new(RegistrationServer::new(plugin))))
        })
    }

    fn driver(&self, endpoint: &str) -> Result<Box<dyn Dial>, String> {
        let driver = self.shelves().drivers.get(endpoint).cloned();
        Ok(Box::new(driver.ok_or_else(|| format!("{endpoint} is no endpoint"))?))
    }
}

#[tonic::async_trait]
impl Registration for Socket {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        let deaf = {
            let mut deaf = self.deaf.lock().expect("nobody panicked");
            let was = *deaf > 0;
            *deaf = deaf.saturating_sub(1);
            was
        };
        if deaf {
            tokio::time::sleep(Duration::from_secs(3600)).await;
        }
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        self.log.lock().expect("nobody panicked").push(format!("Notify({})", status.plugin_registered));
        let slow = *self.slow.lock().expect("nobody panicked");
        tokio::time::sleep(slow).await;
        let mut forgetful = self.forgetful.lock().expect("nobody panicked");
        if *forgetful > 0 {
            *forgetful -= 1;
            return Err(Status::internal("not now"));
        }
        self.told.lock().expect("nobody panicked").push(status);
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

#[tonic::async_trait]
impl Identity for Driver {
    async fn get_plugin_info(
        &self,
        _: Request<v1::GetPluginInfoRequest>,
    ) -> Result<Response<v1::GetPluginInfoResponse>, Status> {
        let name = self.with().name.clone();
        Ok(Response::new(v1::GetPluginInfoResponse { name, ..Default::default() }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<v1::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<v1::GetPluginCapabilitiesResponse>, Status> {
        Ok(Response::new(v1::GetPluginCapabilitiesResponse::default()))
    }

    async fn probe(&self, _: Request<v1::ProbeRequest>) -> Result<Response<v1::ProbeResponse>, Status> {
        Ok(Response::new(v1::ProbeResponse { ready: None }))
    }
}

#[tonic::async_trait]
impl Node for Driver {
    async fn node_get_info(
        &self,
        _: Request<v1::NodeGetInfoRequest>,
    ) -> Result<Response<v1::NodeGetInfoResponse>, Status> {
        self.log.lock().expect("nobody panicked").push("NodeGetInfo".to_owned());
        let slow = self.with().slow;
        tokio::time::sleep(slow).await;
        let mut state = self.with();
        if let Some(code) = state.failing.pop_front() {
            return Err(Status::new(code, "the driver is not in the mood"));
        }
        let segments = state.topology.clone().into_iter().collect();
        Ok(Response::new(v1::NodeGetInfoResponse {
            node_id: state.node_id.clone(),
            max_volumes_per_node: state.limit,
            accessible_topology: Some(v1::Topology { segments }),
        }))
    }

    async fn node_stage_volume(
        &self,
        _: Request<v1::NodeStageVolumeRequest>,
    ) -> Result<Response<v1::NodeStageVolumeResponse>, Status> {
        Err(no_volumes())
    }

    async fn node_unstage_volume(
        &self,
        _: Request<v1::NodeUnstageVolumeRequest>,
    ) -> Result<Response<v1::NodeUnstageVolumeResponse>, Status> {
        Err(no_volumes())
    }

    async fn node_publish_volume(
        &self,
        _: Request<v1::NodePublishVolumeRequest>,
    ) -> Result<Response<v1::NodePublishVolumeResponse>, Status> {
        Err(no_volumes())
    }

    async fn node_unpublish_volume(
        &self,
        _: Request<v1::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<v1::NodeUnpublishVolumeResponse>, Status> {
        Err(no_volumes())
    }

    async fn node_get_volume_stats(
        &self,
        _: Request<v1::NodeGetVolumeStatsRequest>,
    ) -> Result<Response<v1::NodeGetVolumeStatsResponse>, Status> {
        Err(no_volumes())
    }

    async fn node_expand_volume(
        &self,
        _: Request<v1::NodeExpandVolumeRequest>,
    ) -> Result<Response<v1::NodeExpandVolumeResponse>, Status> {
        Err(no_volumes())
    }

    async fn node_get_capabilities(
        &self,
        _: Request<v1::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<v1::NodeGetCapabilitiesResponse>, Status> {
        Ok(Response::new(v1::NodeGetCapabilitiesResponse::default()))
    }
}

/// Registration is all that is played here.
fn no_volumes() -> Status {
    Status::unimplemented("this driver has no volumes")
}
