//! A driver that repeats everything that it was sent in its error: no secret of the request may come out of our client.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::task::{Context, Poll};

use http_body_util::BodyExt as _;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::Routes;
use v1::identity_server::{Identity, IdentityServer};

use super::*;
use crate::stop::Stopper;
use crate::time::SystemClock;

const WAIT: Duration = Duration::from_secs(10);
const SECRET: &str = "s3cr3t value";
const TOKEN: &str = "eyJhbGciOi.t0ken";

/// Who it is, and nothing else that works.
#[derive(Clone)]
struct EchoDriver;

#[tonic::async_trait]
impl Identity for EchoDriver {
    async fn get_plugin_info(
        &self,
        _: Request<v1::GetPluginInfoRequest>,
    ) -> Result<Response<v1::GetPluginInfoResponse>, Status> {
        Ok(Response::new(v1::GetPluginInfoResponse { name: "echo.example.com".to_owned(), ..Default::default() }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<v1::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<v1::GetPluginCapabilitiesResponse>, Status> {
        Ok(Response::new(v1::GetPluginCapabilitiesResponse::default()))
    }

    async fn probe(&self, _: Request<v1::ProbeRequest>) -> Result<Response<v1::ProbeResponse>, Status> {
        Ok(Response::new(v1::ProbeResponse { ready: Some(true) }))
    }
}

macro_rules! echoes {
    ($($service:ident = $name:literal;)*) => {
        $(
            /// Answers every call of this service with an error that holds the request's texts.
            #[derive(Clone)]
            struct $service;

            impl NamedService for $service {
                const NAME: &'static str = $name;
            }

            impl tower::Service<http::Request<Body>> for $service {
                type Response = http::Response<Body>;
                type Error = Infallible;
                type Future = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

                fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
                    Poll::Ready(Ok(()))
                }

                fn call(&mut self, request: http::Request<Body>) -> Self::Future {
                    Box::pin(echo(request))
                }
            }
        )*
    };
}

echoes! {
    EchoController = "csi.v1.Controller";
    EchoGroup = "csi.v1.GroupController";
    EchoNode = "csi.v1.Node";
}

/// In protobuf, texts stand as they are.
async fn echo(request: http::Request<Body>) -> Result<http::Response<Body>, Infallible> {
    let sent = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let texts: String =
        sent.iter().map(|byte| char::from(*byte)).filter(|c| c.is_ascii_graphic() || *c == ' ').collect();
    let encoded = SECRET.replace(' ', "%20");
    Ok(Status::internal(format!("cannot log in at https://u:{encoded}@host with {texts}")).into_http())
}

impl Dial for EchoDriver {
    fn dial(&self) -> BoxFuture<'_, Result<Connection, String>> {
        let routes = Routes::new(IdentityServer::new(self.clone()))
            .add_service(EchoController)
            .add_service(EchoGroup)
            .add_service(EchoNode);
        let connection = Connection { channel: ::csi::in_memory(routes), lost: Box::pin(std::future::pending()) };
        Box::pin(std::future::ready(Ok(connection)))
    }
}

#[tokio::test(start_paused = true)]
async fn no_call_gives_back_a_secret_that_the_driver_repeats() {
    let driver = Driver::new(EchoDriver, Options::default(), &Metrics::new(&SystemClock));
    let (stopper, stop) = Stopper::new();
    let secrets = || BTreeMap::from([("password".to_owned(), format!("{SECRET}\n"))]);
    let mut called = 0;
    let playing = async {
        driver.ready().await;
        macro_rules! call {
            ($($name:ident($request:ident);)*) => {
                $(
                    let request = v1::$request { secrets: secrets(), ..Default::default() };
                    let error = driver.$name(request, WAIT).await.expect_err("it echoes");
                    for said in [error.to_string(), format!("{error:?}"), error.message().to_owned()] {
                        assert!(said.contains("password") && said.contains("***"), "{said}");
                        assert!(!said.contains("s3cr3t"), "{}: {said}", stringify!($name));
                    }
                    called += 1;
                )*
            };
        }
        call! {
            create_volume(CreateVolumeRequest);
            delete_volume(DeleteVolumeRequest);
            controller_publish_volume(ControllerPublishVolumeRequest);
            controller_unpublish_volume(ControllerUnpublishVolumeRequest);
            validate_volume_capabilities(ValidateVolumeCapabilitiesRequest);
            controller_expand_volume(ControllerExpandVolumeRequest);
            controller_modify_volume(ControllerModifyVolumeRequest);
            create_snapshot(CreateSnapshotRequest);
            delete_snapshot(DeleteSnapshotRequest);
            list_snapshots(ListSnapshotsRequest);
            get_snapshot(GetSnapshotRequest);
            create_volume_group_snapshot(CreateVolumeGroupSnapshotRequest);
            delete_volume_group_snapshot(DeleteVolumeGroupSnapshotRequest);
            get_volume_group_snapshot(GetVolumeGroupSnapshotRequest);
            node_stage_volume(NodeStageVolumeRequest);
            node_publish_volume(NodePublishVolumeRequest);
            node_expand_volume(NodeExpandVolumeRequest);
        }
        let tokens = format!("{{\"\":{{\"token\":\"{TOKEN}\"}}}}");
        let volume_context = BTreeMap::from([(::csi::TOKEN_KEYS[0].to_owned(), tokens)]);
        let request = v1::NodePublishVolumeRequest { volume_context, ..Default::default() };
        let error = driver.node_publish_volume(request, WAIT).await.expect_err("it echoes").to_string();
        assert!(!error.contains("t0ken"), "{error}");
        stopper.stop();
    };
    let (ended, ()) = tokio::join!(driver.run(&stop), playing);
    assert_eq!(ended, Ok(()));
    // A new request with secrets has to be called here. Two of them are of a service that we only serve.
    let generated = include_str!("../../../csi/src/generated/csi.v1.rs");
    assert_eq!(generated.matches("pub secrets:").count(), called + 2);
}

#[tokio::test(start_paused = true)]
async fn a_long_sentence_of_a_driver_is_cut() {
    let driver = Driver::new(EchoDriver, Options::default(), &Metrics::new(&SystemClock));
    let (stopper, stop) = Stopper::new();
    let playing = async {
        driver.ready().await;
        let request = v1::DeleteVolumeRequest { volume_id: "x".repeat(6000), ..Default::default() };
        let error = driver.delete_volume(request, WAIT).await.expect_err("it echoes");
        assert_eq!(error.message().len(), driver_limits::MESSAGE);
        stopper.stop();
    };
    let (ended, ()) = tokio::join!(driver.run(&stop), playing);
    assert_eq!(ended, Ok(()));
}
