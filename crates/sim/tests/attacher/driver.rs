//! A CSI driver that publishes as the test says, behind real gRPC in memory.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use csi::v1;
use futures_util::future::BoxFuture;
use runtime::csi::{Connection, Dial};
use tokio::sync::{Notify, watch};
use tonic::service::Routes;
use tonic::{Code, Request, Response, Status};
use v1::controller_server::{Controller, ControllerServer};
use v1::controller_service_capability::{self as capability, rpc::Type as Rpc};
use v1::identity_server::{Identity, IdentityServer};
use v1::plugin_capability::service::Type as Service;

pub(crate) const NAME: &str = "disk.example.com";

/// What becomes of one call that publishes or takes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Fails(Code),
    /// It is done, and the answer is this code.
    DoneBut(Code),
    /// Nothing is done, and nobody answers.
    RequestLost,
    /// It is done, and nobody answers.
    AnswerLost,
    CrashBefore,
    CrashAfter,
}

pub(crate) struct State {
    pub(crate) rpcs: Vec<Rpc>,
    /// Handle and node id.
    pub(crate) published: BTreeSet<(String, String)>,
    /// What becomes of the coming calls, in order.
    pub(crate) script: VecDeque<Option<Fate>>,
    /// What becomes of every call that the script leaves alone.
    pub(crate) always: Option<Fate>,
    /// What the driver's sentence is when it fails.
    pub(crate) sentence: String,
    pub(crate) publishes: Vec<v1::ControllerPublishVolumeRequest>,
    pub(crate) unpublishes: Vec<v1::ControllerUnpublishVolumeRequest>,
    pub(crate) context: BTreeMap<String, String>,
    /// The pages of volumes that were asked for.
    pub(crate) lists: Vec<v1::ListVolumesRequest>,
    pub(crate) list_fails: Option<Code>,
    /// Requests that change something, of everybody, in order.
    pub(crate) journal: Vec<String>,
}

/// The driver. Clones are the same.
#[derive(Clone)]
pub(crate) struct Driver {
    state: Arc<Mutex<State>>,
    up: watch::Sender<bool>,
    /// Told when the process that called is to die.
    pub(crate) crash: Arc<Notify>,
}

impl Driver {
    pub(crate) fn new(rpcs: &[Rpc]) -> Self {
        let state = State {
            rpcs: rpcs.to_vec(),
            published: BTreeSet::new(),
            script: VecDeque::new(),
            always: None,
            sentence: "as the test says".to_owned(),
            publishes: Vec::new(),
            unpublishes: Vec::new(),
            context: BTreeMap::from([("lun".to_owned(), "3".to_owned())]),
            lists: Vec::new(),
            list_fails: None,
            journal: Vec::new(),
        };
        Self { state: Arc::new(Mutex::new(state)), up: watch::Sender::new(true), crash: Arc::default() }
    }

    pub(crate) fn with(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panicked")
    }

    /// Comes or goes; a connection that there is ends.
    pub(crate) fn show(&self, up: bool) {
        self.up.send_replace(up);
    }

    /// How often ControllerPublishVolume and ControllerUnpublishVolume were called.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.with();
        (state.publishes.len(), state.unpublishes.len())
    }

    pub(crate) fn has(&self, handle: &str, node: &str) -> bool {
        self.with().published.contains(&(handle.to_owned(), node.to_owned()))
    }

    /// Does something as its fate wants.
    async fn meet<T>(&self, effect: impl FnOnce(&mut State) -> T) -> Result<T, Status> {
        let (fate, done) = {
            let mut state = self.with();
            let fate = state.script.pop_front().flatten().or(state.always);
            if let Some(Fate::Fails(code)) = fate {
                return Err(Status::new(code, state.sentence.clone()));
            }
            let happens = !matches!(fate, Some(Fate::RequestLost | Fate::CrashBefore));
            (fate, happens.then(|| effect(&mut state)))
        };
        match (fate, done) {
            (Some(Fate::DoneBut(code)), _) => Err(Status::new(code, self.with().sentence.clone())),
            (None, Some(done)) => Ok(done),
            (Some(Fate::CrashBefore | Fate::CrashAfter), _) => {
                self.crash.notify_one();
                std::future::pending().await
            }
            _ => std::future::pending().await,
        }
    }

    async fn publish(
        &self,
        request: v1::ControllerPublishVolumeRequest,
    ) -> Result<v1::ControllerPublishVolumeResponse, Status> {
        let what = (request.volume_id.clone(), request.node_id.clone());
        {
            let mut state = self.with();
            state.journal.push(format!("ControllerPublishVolume {} {}", what.0, what.1));
            state.publishes.push(request);
        }
        self.meet(|state| {
            state.published.insert(what);
            v1::ControllerPublishVolumeResponse { publish_context: state.context.clone() }
        })
        .await
    }

    async fn unpublish(
        &self,
        request: v1::ControllerUnpublishVolumeRequest,
    ) -> Result<v1::ControllerUnpublishVolumeResponse, Status> {
        let what = (request.volume_id.clone(), request.node_id.clone());
        {
            let mut state = self.with();
            if !state.rpcs.contains(&Rpc::PublishUnpublishVolume) {
                return Err(Status::unimplemented("not in this driver"));
            }
            state.journal.push(format!("ControllerUnpublishVolume {} {}", what.0, what.1));
            state.unpublishes.push(request);
        }
        self.meet(|state| {
            state.published.remove(&what);
            v1::ControllerUnpublishVolumeResponse {}
        })
        .await
    }

    /// One volume per page if a page size is given; the token is the position.
    fn list(&self, request: v1::ListVolumesRequest) -> Result<v1::ListVolumesResponse, Status> {
        let mut state = self.with();
        let from: usize = request.starting_token.parse().unwrap_or(0);
        let size = usize::try_from(request.max_entries).ok().filter(|size| *size > 0).unwrap_or(usize::MAX);
        state.lists.push(request);
        if let Some(code) = state.list_fails {
            return Err(Status::new(code, "as the test says"));
        }
        let mut volumes: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (handle, node) in &state.published {
            volumes.entry(handle.clone()).or_default().push(node.clone());
        }
        let all = volumes.len();
        let entry = |(volume_id, published_node_ids)| v1::list_volumes_response::Entry {
            volume: Some(v1::Volume { volume_id, ..Default::default() }),
            status: Some(v1::list_volumes_response::VolumeStatus { published_node_ids, ..Default::default() }),
        };
        let mut entries: Vec<_> = volumes.into_iter().skip(from).take(size).map(entry).collect();
        // An entry that says nothing about where it is published is skipped.
        entries.push(v1::list_volumes_response::Entry { volume: Some(v1::Volume::default()), status: None });
        let next = from.saturating_add(size);
        let next_token = if next < all { next.to_string() } else { String::new() };
        Ok(v1::ListVolumesResponse { entries, next_token })
    }
}

impl Dial for Driver {
    fn dial(&self) -> BoxFuture<'_, Result<Connection, String>> {
        Box::pin(async {
            if !*self.up.borrow() {
                return Err("no socket".to_owned());
            }
            let routes =
                Routes::new(IdentityServer::new(self.clone())).add_service(ControllerServer::new(self.clone()));
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
        let controller = v1::plugin_capability::Service { r#type: Service::ControllerService.into() };
        let r#type = Some(v1::plugin_capability::Type::Service(controller));
        Ok(Response::new(v1::GetPluginCapabilitiesResponse { capabilities: vec![v1::PluginCapability { r#type }] }))
    }

    async fn probe(&self, _: Request<v1::ProbeRequest>) -> Result<Response<v1::ProbeResponse>, Status> {
        Ok(Response::new(v1::ProbeResponse { ready: None }))
    }
}

macro_rules! controller {
    ({ $($own:tt)* } $($name:ident, $request:ident => $response:ident;)*) => {
        #[tonic::async_trait]
        impl Controller for Driver {
            $($own)*
            $(async fn $name(&self, _: Request<v1::$request>) -> Result<Response<v1::$response>, Status> {
                Err(Status::unimplemented("not in this driver"))
            })*
        }
    };
}

controller! {
    {
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

        async fn controller_publish_volume(
            &self,
            request: Request<v1::ControllerPublishVolumeRequest>,
        ) -> Result<Response<v1::ControllerPublishVolumeResponse>, Status> {
            self.publish(request.into_inner()).await.map(Response::new)
        }

        async fn controller_unpublish_volume(
            &self,
            request: Request<v1::ControllerUnpublishVolumeRequest>,
        ) -> Result<Response<v1::ControllerUnpublishVolumeResponse>, Status> {
            self.unpublish(request.into_inner()).await.map(Response::new)
        }

        async fn list_volumes(
            &self,
            request: Request<v1::ListVolumesRequest>,
        ) -> Result<Response<v1::ListVolumesResponse>, Status> {
            self.list(request.into_inner()).map(Response::new)
        }
    }
    create_volume, CreateVolumeRequest => CreateVolumeResponse;
    delete_volume, DeleteVolumeRequest => DeleteVolumeResponse;
    get_capacity, GetCapacityRequest => GetCapacityResponse;
    validate_volume_capabilities, ValidateVolumeCapabilitiesRequest => ValidateVolumeCapabilitiesResponse;
    create_snapshot, CreateSnapshotRequest => CreateSnapshotResponse;
    delete_snapshot, DeleteSnapshotRequest => DeleteSnapshotResponse;
    list_snapshots, ListSnapshotsRequest => ListSnapshotsResponse;
    get_snapshot, GetSnapshotRequest => GetSnapshotResponse;
    controller_expand_volume, ControllerExpandVolumeRequest => ControllerExpandVolumeResponse;
    controller_get_volume, ControllerGetVolumeRequest => ControllerGetVolumeResponse;
    controller_modify_volume, ControllerModifyVolumeRequest => ControllerModifyVolumeResponse;
}
