//! The services that the model driver offers.

use csi::v1;
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use v1::controller_server::{Controller, ControllerServer};
use v1::controller_service_capability::{self as capability, rpc::Type as Rpc};
use v1::identity_server::{Identity, IdentityServer};
use v1::plugin_capability::service::Type as Service;

use super::{Answer, Attach, Call, Found, Model, Places};

pub(super) const DELETE: &str = "DeleteVolume";
const CREATE: &str = "CreateVolume";
const CAPACITY: &str = "GetCapacity";
const PUBLISH: &str = "ControllerPublishVolume";
const UNPUBLISH: &str = "ControllerUnpublishVolume";
const LIST: &str = "ListVolumes";

pub(super) fn routes(model: Model) -> Routes {
    Routes::new(IdentityServer::new(model.clone())).add_service(ControllerServer::new(model))
}

#[tonic::async_trait]
impl Identity for Model {
    async fn get_plugin_info(&self, _: Request<v1::GetPluginInfoRequest>) -> Answer<v1::GetPluginInfoResponse> {
        let (name, vendor_version) = (self.name().to_owned(), "1".to_owned());
        Ok(Response::new(v1::GetPluginInfoResponse { name, vendor_version, ..Default::default() }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<v1::GetPluginCapabilitiesRequest>,
    ) -> Answer<v1::GetPluginCapabilitiesResponse> {
        let one = |service: Service| v1::PluginCapability {
            r#type: Some(v1::plugin_capability::Type::Service(v1::plugin_capability::Service {
                r#type: service.into(),
            })),
        };
        let mut capabilities = vec![one(Service::ControllerService)];
        if self.shared.habits.places == Places::Zones {
            capabilities.push(one(Service::VolumeAccessibilityConstraints));
        }
        Ok(Response::new(v1::GetPluginCapabilitiesResponse { capabilities }))
    }

    async fn probe(&self, _: Request<v1::ProbeRequest>) -> Answer<v1::ProbeResponse> {
        Ok(Response::new(v1::ProbeResponse { ready: Some(true) }))
    }
}

impl Model {
    async fn create(&self, request: v1::CreateVolumeRequest) -> Result<v1::CreateVolumeResponse, Status> {
        let found = match self.lock().state.named(&request.name) {
            Some(_) => Found::Something,
            None => Found::Nothing,
        };
        let call = Call { method: CREATE, object: request.name.clone(), found };
        let may_die = found == Found::Nothing && self.may_die_halfway();
        let effect = move |model: &Model| {
            let mut inner = model.lock();
            if may_die && inner.state.named(&request.name).is_none() && inner.leftovers.dies_halfway() {
                inner.leftovers.begin(&request);
                return Err(Status::unavailable("the driver ended in the middle of making the volume"));
            }
            let volume = inner.state.create(&request)?;
            inner.leftovers.finish(&request.name);
            Ok(v1::CreateVolumeResponse { volume: Some(volume) })
        };
        self.answer(call, Box::new(effect)).await
    }

    async fn delete(&self, request: v1::DeleteVolumeRequest) -> Result<v1::DeleteVolumeResponse, Status> {
        let id = request.volume_id;
        if id.is_empty() {
            return Err(Status::invalid_argument("which volume?"));
        }
        self.ask(&id);
        self.tell_of_call(&id);
        let name = self.lock().state.get(&id).map(|volume| volume.name.clone());
        let call = Call { method: DELETE, object: name.unwrap_or_else(|| id.clone()), found: Found::Whatever };
        let may_die = self.may_die_halfway();
        let effect = move |model: &Model| {
            if model.takes_the_pool_for_empty() {
                return Ok(v1::DeleteVolumeResponse {});
            }
            if let Some((node, _)) = model.lock().state.published(&id).next() {
                return Err(Status::failed_precondition(format!("{id} is published to {node}")));
            }
            model.ask(&id);
            let gone = model.lock().state.delete(&id);
            let Some(gone) = gone else { return Ok(v1::DeleteVolumeResponse {}) };
            model.note(format_args!("{id} of {} is gone", gone.name));
            let mut inner = model.lock();
            if may_die && inner.leftovers.dies_halfway() {
                inner.leftovers.discard(&id);
                return Err(Status::unavailable("the driver ended before it had emptied its trash"));
            }
            Ok(v1::DeleteVolumeResponse {})
        };
        self.answer(call, Box::new(effect)).await
    }

    /// Lets the onlooker judge a deletion.
    fn ask(&self, id: &str) {
        let (onlooker, volume) = {
            let inner = self.lock();
            (inner.onlooker(), inner.state.get(id).cloned())
        };
        if let (Some(onlooker), Some(volume)) = (onlooker, volume) {
            onlooker.deleting(&volume);
        }
    }

    /// Lets the onlooker judge the call, as opposed to its effect.
    fn tell_of_call(&self, id: &str) {
        let (onlooker, volume) = {
            let inner = self.lock();
            (inner.onlooker(), inner.state.get(id).cloned())
        };
        if let (Some(onlooker), Some(volume)) = (onlooker, volume) {
            onlooker.deletion_called(&volume);
        }
    }

    async fn publish(
        &self,
        request: v1::ControllerPublishVolumeRequest,
    ) -> Result<v1::ControllerPublishVolumeResponse, Status> {
        self.attaches()?;
        let (volume, node) = (&request.volume_id, &request.node_id);
        let found = match self.lock().state.is_published(volume, node) {
            true => Found::Something,
            false => Found::Nothing,
        };
        let call = Call { method: PUBLISH, object: format!("{volume} to {node}"), found };
        let effect = move |model: &Model| {
            let answer = model.lock().state.publish(&request, &model.shared.habits)?;
            model.note(format_args!("{} is published to {}", request.volume_id, request.node_id));
            model.happened();
            Ok(answer)
        };
        self.answer(call, Box::new(effect)).await
    }

    async fn unpublish(
        &self,
        request: v1::ControllerUnpublishVolumeRequest,
    ) -> Result<v1::ControllerUnpublishVolumeResponse, Status> {
        self.attaches()?;
        let (volume, node) = (request.volume_id, request.node_id);
        if volume.is_empty() {
            return Err(Status::invalid_argument("which volume?"));
        }
        let call = Call { method: UNPUBLISH, object: format!("{volume} to {node}"), found: Found::Whatever };
        let effect = move |model: &Model| {
            let gone = model.lock().state.unpublish(&volume, &node);
            for node in gone {
                model.note(format_args!("{volume} is not published to {node} any more"));
            }
            model.happened();
            Ok(v1::ControllerUnpublishVolumeResponse {})
        };
        self.answer(call, Box::new(effect)).await
    }

    fn attaches(&self) -> Result<(), Status> {
        match self.shared.habits.attach {
            Attach::Required => Ok(()),
            Attach::Not => Err(Status::unimplemented("the model driver does not attach")),
        }
    }

    async fn list(&self, request: v1::ListVolumesRequest) -> Result<v1::ListVolumesResponse, Status> {
        let mut inner = self.lock();
        *inner.calls.entry(LIST).or_default() += 1;
        inner.state.entries(&request)
    }

    async fn capacity(&self, request: v1::GetCapacityRequest) -> Result<v1::GetCapacityResponse, Status> {
        let mut inner = self.lock();
        *inner.calls.entry(CAPACITY).or_default() += 1;
        let available_capacity = inner.state.room(request.accessible_topology.as_ref());
        Ok(v1::GetCapacityResponse { available_capacity, ..Default::default() })
    }
}

macro_rules! controller {
    (
        does { $($done:ident => $by:ident, $done_request:ident => $done_response:ident;)* }
        lacks { $($name:ident, $request:ident => $response:ident;)* }
    ) => {
        #[tonic::async_trait]
        impl Controller for Model {
            async fn controller_get_capabilities(
                &self,
                _: Request<v1::ControllerGetCapabilitiesRequest>,
            ) -> Answer<v1::ControllerGetCapabilitiesResponse> {
                let one = |rpc: Rpc| v1::ControllerServiceCapability {
                    r#type: Some(capability::Type::Rpc(capability::Rpc { r#type: rpc.into() })),
                };
                let mut capabilities = [Rpc::CreateDeleteVolume, Rpc::CloneVolume, Rpc::GetCapacity].map(one).to_vec();
                if self.shared.habits.attach == Attach::Required {
                    let attaching = [Rpc::PublishUnpublishVolume, Rpc::ListVolumes, Rpc::ListVolumesPublishedNodes];
                    capabilities.extend(attaching.map(one));
                }
                Ok(Response::new(v1::ControllerGetCapabilitiesResponse { capabilities }))
            }

            $(async fn $done(&self, request: Request<v1::$done_request>) -> Answer<v1::$done_response> {
                self.$by(request.into_inner()).await.map(Response::new)
            })*

            $(async fn $name(&self, _: Request<v1::$request>) -> Answer<v1::$response> {
                Err(Status::unimplemented("the model driver does not do this"))
            })*
        }
    };
}

controller! {
    does {
        create_volume => create, CreateVolumeRequest => CreateVolumeResponse;
        delete_volume => delete, DeleteVolumeRequest => DeleteVolumeResponse;
        get_capacity => capacity, GetCapacityRequest => GetCapacityResponse;
        controller_publish_volume => publish, ControllerPublishVolumeRequest => ControllerPublishVolumeResponse;
        controller_unpublish_volume => unpublish, ControllerUnpublishVolumeRequest => ControllerUnpublishVolumeResponse;
        list_volumes => list, ListVolumesRequest => ListVolumesResponse;
    }
    lacks {
        validate_volume_capabilities, ValidateVolumeCapabilitiesRequest => ValidateVolumeCapabilitiesResponse;
        create_snapshot, CreateSnapshotRequest => CreateSnapshotResponse;
        delete_snapshot, DeleteSnapshotRequest => DeleteSnapshotResponse;
        list_snapshots, ListSnapshotsRequest => ListSnapshotsResponse;
        get_snapshot, GetSnapshotRequest => GetSnapshotResponse;
        controller_expand_volume, ControllerExpandVolumeRequest => ControllerExpandVolumeResponse;
        controller_get_volume, ControllerGetVolumeRequest => ControllerGetVolumeResponse;
        controller_modify_volume, ControllerModifyVolumeRequest => ControllerModifyVolumeResponse;
    }
}
