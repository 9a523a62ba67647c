//! The Controller service: hands every request to the pipeline with the function that plans it.

use csi::v1::controller_server::Controller;
use csi::v1::*;
use tonic::{Request, Response, Status};

use super::ControllerService;
use crate::capabilities;
use crate::pipeline::method;

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Controller for ControllerService {
    async fn create_volume(&self, request: Request<CreateVolumeRequest>) -> Answer<CreateVolumeResponse> {
        let pipeline = &self.shared.pipeline;
        pipeline.handle(method::CREATE_VOLUME, request, |wire| self.plan_create_volume(wire)).await
    }

    async fn delete_volume(&self, request: Request<DeleteVolumeRequest>) -> Answer<DeleteVolumeResponse> {
        let pipeline = &self.shared.pipeline;
        pipeline.handle(method::DELETE_VOLUME, request, |wire| self.plan_delete_volume(wire)).await
    }

    async fn controller_publish_volume(
        &self,
        request: Request<ControllerPublishVolumeRequest>,
    ) -> Answer<ControllerPublishVolumeResponse> {
        let pipeline = &self.shared.pipeline;
        pipeline.handle(method::CONTROLLER_PUBLISH_VOLUME, request, |wire| self.plan_attach(wire)).await
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<ControllerUnpublishVolumeRequest>,
    ) -> Answer<ControllerUnpublishVolumeResponse> {
        let pipeline = &self.shared.pipeline;
        pipeline.handle(method::CONTROLLER_UNPUBLISH_VOLUME, request, |wire| self.plan_detach(wire)).await
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<ValidateVolumeCapabilitiesRequest>,
    ) -> Answer<ValidateVolumeCapabilitiesResponse> {
        let pipeline = &self.shared.pipeline;
        pipeline.handle(method::VALIDATE_VOLUME_CAPABILITIES, request, |wire| self.plan_validate(wire)).await
    }

    async fn list_volumes(&self, request: Request<ListVolumesRequest>) -> Answer<ListVolumesResponse> {
        let pipeline = &self.shared.pipeline;
        pipeline.handle(method::LIST_VOLUMES, request, |wire| self.plan_list_volumes(wire)).await
    }

    async fn get_capacity(&self, request: Request<GetCapacityRequest>) -> Answer<GetCapacityResponse> {
        let pipeline = &self.shared.pipeline;
        pipeline.handle(method::GET_CAPACITY, request, |wire| self.plan_capacity(wire)).await
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<ControllerGetCapabilitiesRequest>,
    ) -> Answer<ControllerGetCapabilitiesResponse> {
        self.shared.pipeline.inline(method::CONTROLLER_GET_CAPABILITIES, || {
            Ok(ControllerGetCapabilitiesResponse { capabilities: capabilities::controller(&self.shared.definition) })
        })
    }

    async fn create_snapshot(&self, request: Request<CreateSnapshotRequest>) -> Answer<CreateSnapshotResponse> {
        let pipeline = &self.shared.pipeline;
        pipeline.handle(method::CREATE_SNAPSHOT, request, |wire| self.plan_create_snapshot(wire)).await
    }

    async fn delete_snapshot(&self, request: Request<DeleteSnapshotRequest>) -> Answer<DeleteSnapshotResponse> {
        let pipeline = &self.shared.pipeline;
        pipeline.handle(method::DELETE_SNAPSHOT, request, |wire| self.plan_delete_snapshot(wire)).await
    }

    async fn list_snapshots(&self, request: Request<ListSnapshotsRequest>) -> Answer<ListSnapshotsResponse> {
        let pipeline = &self.shared.pipeline;
        pipeline.handle(method::LIST_SNAPSHOTS, request, |wire| self.plan_list_snapshots(wire)).await
    }

    async fn get_snapshot(&self, request: Request<GetSnapshotRequest>) -> Answer<GetSnapshotResponse> {
        let pipeline = &self.shared.pipeline;
        pipeline.handle(method::GET_SNAPSHOT, request, |wire| self.plan_get_snapshot(wire)).await
    }

    async fn controller_expand_volume(
        &self,
        request: Request<ControllerExpandVolumeRequest>,
    ) -> Answer<ControllerExpandVolumeResponse> {
        let pipeline = &self.shared.pipeline;
        pipeline.handle(method::CONTROLLER_EXPAND_VOLUME, request, |wire| self.plan_expand(wire)).await
    }

    async fn controller_get_volume(
        &self,
        request: Request<ControllerGetVolumeRequest>,
    ) -> Answer<ControllerGetVolumeResponse> {
        let pipeline = &self.shared.pipeline;
        pipeline.handle(method::CONTROLLER_GET_VOLUME, request, |wire| self.plan_get_volume(wire)).await
    }

    async fn controller_modify_volume(
        &self,
        request: Request<ControllerModifyVolumeRequest>,
    ) -> Answer<ControllerModifyVolumeResponse> {
        let pipeline = &self.shared.pipeline;
        pipeline.handle(method::CONTROLLER_MODIFY_VOLUME, request, |wire| self.plan_modify(wire)).await
    }
}
