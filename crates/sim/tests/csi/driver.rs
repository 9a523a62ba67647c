//! A CSI driver that does what the test says, behind real gRPC in memory.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use csi::v1;
use futures_util::future::BoxFuture;
use runtime::csi::{Connection, Dial};
use runtime::watch;
use tonic::service::Routes;
use tonic::{Code, Request, Response, Status};
use v1::controller_server::{Controller, ControllerServer};
use v1::controller_service_capability::{self as capability, rpc::Type as Rpc};
use v1::identity_server::{Identity, IdentityServer};
use v1::node_server::{Node, NodeServer};
use v1::plugin_capability::service::Type as Service;

pub(crate) const NAME: &str = "disk.example.com";

/// What becomes of one CreateVolume.
#[derive(Debug, Clone)]
pub(crate) enum Create {
    Fails(Code),
    /// The volume is made, and the answer is this code.
    MadeBut(Code),
    /// The volume is made with so many bytes.
    Short(i64),
    /// The volume is made without its content.
    Empty,
    /// The volume is made, and its context has so many bytes.
    Context(usize),
}

#[derive(Debug, Clone)]
pub(crate) struct Volume {
    pub(crate) bytes: i64,
    pub(crate) content: Option<v1::VolumeContentSource>,
}

pub(crate) struct State {
    pub(crate) rpcs: Vec<Rpc>,
    /// The place where volumes are made; without one the driver has no topology.
    pub(crate) place: Option<(&'static str, String)>,
    /// By name, which is the id, too.
    pub(crate) volumes: BTreeMap<String, Volume>,
    pub(crate) script: VecDeque<Create>,
    pub(crate) delete_fails: Option<Code>,
    pub(crate) creates: Vec<v1::CreateVolumeRequest>,
    pub(crate) deletes: Vec<v1::DeleteVolumeRequest>,
    pub(crate) asked: Vec<v1::GetCapacityRequest>,
    pub(crate) room: i64,
}

/// The driver. Clones are the same.
#[derive(Clone)]
pub(crate) struct Driver {
    state: Arc<Mutex<State>>,
    up: watch::Sender<bool>,
}

impl Driver {
    pub(crate) fn new() -> Self {
        let rpcs = vec![
            Rpc::CreateDeleteVolume,
            Rpc::CreateDeleteSnapshot,
            Rpc::CloneVolume,
            Rpc::PublishUnpublishVolume,
            Rpc::GetCapacity,
        ];
        let state = State {
            rpcs,
            place: None,
            volumes: BTreeMap::new(),
            script: VecDeque::new(),
            delete_fails: None,
            creates: Vec::new(),
            deletes: Vec::new(),
            asked: Vec::new(),
            room: 100 << 30,
        };
        Self { state: Arc::new(Mutex::new(state)), up: watch::Sender::new(true) }
    }

    pub(crate) fn with(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panicked")
    }

    /// Comes or goes; a connection that there is ends.
    pub(crate) fn show(&self, up: bool) {
        self.up.send_replace(up);
    }

    /// How often DeleteVolume and CreateVolume were called.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.with();
        (state.deletes.len(), state.creates.len())
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.with().volumes.keys().cloned().collect()
    }
}

impl Dial for Driver {
    fn dial(&self) -> BoxFuture<'_, Result<Connection, String>> {
        Box::pin(async {
            if !*self.up.borrow() {
                return Err("no socket".to_owned());
            }
            let routes = Routes::new(IdentityServer::new(self.clone()))
                .add_service(ControllerServer::new(self.clone()))
                .add_service(NodeServer::new(self.clone()));
            let mut up = self.up.subscribe();
            let lost = Box::pin(async move {
                let _ = up.changed().await;
            });
            Ok(Connection { channel: csi::in_memory(routes), lost })
        })
    }
}

#[tonic::async_trait]
impl Identity for Driver {
    async fn get_plugin_info(
        &self,
        _: Request<v1::GetPluginInfoRequest>,
    ) -> Result<Response<v1::GetPluginInfoResponse>, Status> {
        let (name, vendor_version) = (NAME.to_owned(), "1".to_owned());
        Ok(Response::new(v1::GetPluginInfoResponse { name, vendor_version, ..Default::default() }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<v1::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<v1::GetPluginCapabilitiesResponse>, Status> {
        let mut services = vec![Service::ControllerService];
        if self.with().place.is_some() {
            services.push(Service::VolumeAccessibilityConstraints);
        }
        let capability = |service: Service| v1::PluginCapability {
            r#type: Some(v1::plugin_capability::Type::Service(v1::plugin_capability::Service {
                r#type: service.into(),
            })),
        };
        let capabilities = services.into_iter().map(capability).collect();
        Ok(Response::new(v1::GetPluginCapabilitiesResponse { capabilities }))
    }

    async fn probe(&self, _: Request<v1::ProbeRequest>) -> Result<Response<v1::ProbeResponse>, Status> {
        Ok(Response::new(v1::ProbeResponse { ready: None }))
    }
}

impl Driver {
    fn create(&self, request: v1::CreateVolumeRequest) -> Result<v1::CreateVolumeResponse, Status> {
        let mut state = self.with();
        let mut bytes = request.capacity_range.as_ref().map_or(0, |range| range.required_bytes);
        let mut content = request.volume_content_source.clone();
        let name = request.name.clone();
        state.creates.push(request);
        let mut code = None;
        let mut context = BTreeMap::new();
        match state.script.pop_front() {
            None => {}
            Some(Create::Fails(code)) => return Err(Status::new(code, "as the test says")),
            Some(Create::MadeBut(after)) => code = Some(after),
            Some(Create::Short(short)) => bytes = short,
            Some(Create::Empty) => content = None,
            Some(Create::Context(bytes)) => context = BTreeMap::from([("blob".to_owned(), "x".repeat(bytes))]),
        }
        let made = state.volumes.entry(name.clone()).or_insert(Volume { bytes, content }).clone();
        if let Some(code) = code {
            return Err(Status::new(code, "as the test says"));
        }
        let place = state
            .place
            .iter()
            .map(|(key, value)| v1::Topology { segments: BTreeMap::from([((*key).to_owned(), value.clone())]) });
        let volume = v1::Volume {
            capacity_bytes: made.bytes,
            volume_id: name,
            content_source: made.content,
            accessible_topology: place.collect(),
            volume_context: context,
        };
        Ok(v1::CreateVolumeResponse { volume: Some(volume) })
    }

    fn delete(&self, request: v1::DeleteVolumeRequest) -> Result<v1::DeleteVolumeResponse, Status> {
        let mut state = self.with();
        let id = request.volume_id.clone();
        state.deletes.push(request);
        if let Some(code) = state.delete_fails {
            return Err(Status::new(code, "as the test says"));
        }
        state.volumes.remove(&id);
        Ok(v1::DeleteVolumeResponse {})
    }

    fn capacity(&self, request: v1::GetCapacityRequest) -> v1::GetCapacityResponse {
        let mut state = self.with();
        state.asked.push(request);
        v1::GetCapacityResponse { available_capacity: state.room, ..Default::default() }
    }
}

macro_rules! service {
    ($trait:ident { $($own:tt)* } $($name:ident, $request:ident => $response:ident;)*) => {
        #[tonic::async_trait]
        impl $trait for Driver {
            $($own)*
            $(async fn $name(&self, _: Request<v1::$request>) -> Result<Response<v1::$response>, Status> {
                Err(Status::unimplemented("not in this driver"))
            })*
        }
    };
}

service! {
    Controller {
        async fn controller_get_capabilities(
            &self,
            _: Request<v1::ControllerGetCapabilitiesRequest>,
        ) -> Result<Response<v1::ControllerGetCapabilitiesResponse>, Status> {
            let one = |rpc: &Rpc| v1::ControllerServiceCapability {
                r#type: Some(capability::Type::Rpc(capability::Rpc { r#type: (*rpc).into() })),
            };
            let capabilities = self.with().rpcs.iter().map(one).collect();
            Ok(Response::new(v1::ControllerGetCapabilitiesResponse { capabilities }))
        }

        async fn create_volume(
            &self,
            request: Request<v1::CreateVolumeRequest>,
        ) -> Result<Response<v1::CreateVolumeResponse>, Status> {
            self.create(request.into_inner()).map(Response::new)
        }

        async fn delete_volume(
            &self,
            request: Request<v1::DeleteVolumeRequest>,
        ) -> Result<Response<v1::DeleteVolumeResponse>, Status> {
            self.delete(request.into_inner()).map(Response::new)
        }

        async fn get_capacity(
            &self,
            request: Request<v1::GetCapacityRequest>,
        ) -> Result<Response<v1::GetCapacityResponse>, Status> {
            Ok(Response::new(self.capacity(request.into_inner())))
        }
    }
    controller_publish_volume, ControllerPublishVolumeRequest => ControllerPublishVolumeResponse;
    controller_unpublish_volume, ControllerUnpublishVolumeRequest => ControllerUnpublishVolumeResponse;
    validate_volume_capabilities, ValidateVolumeCapabilitiesRequest => ValidateVolumeCapabilitiesResponse;
    list_volumes, ListVolumesRequest => ListVolumesResponse;
    create_snapshot, CreateSnapshotRequest => CreateSnapshotResponse;
    delete_snapshot, DeleteSnapshotRequest => DeleteSnapshotResponse;
    list_snapshots, ListSnapshotsRequest => ListSnapshotsResponse;
    get_snapshot, GetSnapshotRequest => GetSnapshotResponse;
    controller_expand_volume, ControllerExpandVolumeRequest => ControllerExpandVolumeResponse;
    controller_get_volume, ControllerGetVolumeRequest => ControllerGetVolumeResponse;
    controller_modify_volume, ControllerModifyVolumeRequest => ControllerModifyVolumeResponse;
}

service! {
    Node {
        async fn node_get_info(
            &self,
            _: Request<v1::NodeGetInfoRequest>,
        ) -> Result<Response<v1::NodeGetInfoResponse>, Status> {
            let place = self.with().place.clone();
            let accessible_topology =
                place.map(|(key, value)| v1::Topology { segments: BTreeMap::from([(key.to_owned(), value)]) });
            let info = v1::NodeGetInfoResponse { node_id: "n".to_owned(), accessible_topology, ..Default::default() };
            Ok(Response::new(info))
        }
    }
    node_stage_volume, NodeStageVolumeRequest => NodeStageVolumeResponse;
    node_unstage_volume, NodeUnstageVolumeRequest => NodeUnstageVolumeResponse;
    node_publish_volume, NodePublishVolumeRequest => NodePublishVolumeResponse;
    node_unpublish_volume, NodeUnpublishVolumeRequest => NodeUnpublishVolumeResponse;
    node_get_volume_stats, NodeGetVolumeStatsRequest => NodeGetVolumeStatsResponse;
    node_expand_volume, NodeExpandVolumeRequest => NodeExpandVolumeResponse;
    node_get_capabilities, NodeGetCapabilitiesRequest => NodeGetCapabilitiesResponse;
}
