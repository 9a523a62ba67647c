//! The chaos proxy, in front of a driver on a socket.

use std::sync::Arc;
use std::time::Duration;

use driver_sdk::csi::v1::*;
use driver_sdk::csi::{Endpoint, Listener, SocketMode};
use driver_sdk::testing::Clients;
use driver_sdk::testing::chaos::{ChaosProxy, Fault, Plan};
use driver_sdk::{BlockRange, Mode};
use tokio::time::Instant;
use tonic::Code;

use crate::model::{self, Model, code, create};

struct Behind {
    _dir: tempfile::TempDir,
    model: Arc<Model>,
    proxy: ChaosProxy,
    clients: Clients,
}

/// A full driver on a socket, with a proxy in front of it.
async fn behind(plan: Plan) -> Behind {
    let dir = tempfile::tempdir().unwrap();
    let upstream = Endpoint::unix(dir.path().join("driver.sock")).unwrap();
    let front = Endpoint::unix(dir.path().join("proxy.sock")).unwrap();
    let model = Model::new();
    let listener = Listener::bind(&upstream, SocketMode::default()).unwrap();
    let driver = model::full(&model);
    tokio::spawn(driver.serve([listener], Mode::All, std::future::pending(), Duration::ZERO));
    let proxy = ChaosProxy::start(&front, &upstream, plan).unwrap();
    let clients = Clients::over(driver_sdk::csi::connect(&front).await.unwrap());
    Behind { _dir: dir, model, proxy, clients }
}

#[tokio::test]
async fn without_a_plan_everything_passes_streams_too() {
    let Behind { _dir, model, mut clients, proxy } = behind(Plan::new()).await;
    clients.controller.create_volume(create("v")).await.unwrap();
    let request = CreateSnapshotRequest { name: "s".into(), source_volume_id: "vol-v".into(), ..Default::default() };
    clients.controller.create_snapshot(request).await.unwrap();
    model.state().ranges = (0..300).map(|i| Ok(BlockRange { offset: i * 4096, length: 4096 })).collect();
    let request = GetMetadataAllocatedRequest { snapshot_id: "snap-s".into(), ..Default::default() };
    let mut stream = clients.metadata.get_metadata_allocated(request).await.unwrap().into_inner();
    let mut count = 0;
    while let Some(message) = stream.message().await.unwrap() {
        count += message.block_metadata.len();
    }
    assert_eq!(count, 300);
    let unknown = clients.controller.create_volume(CreateVolumeRequest::default()).await;
    assert_eq!(code(unknown), Code::InvalidArgument, "errors pass as well");
    assert_eq!(proxy.calls("CreateVolume"), 2);
}

#[tokio::test]
async fn the_first_calls_fail_and_the_next_passes() {
    let plan = Plan::new().first(2, "CreateVolume", Fault::Fail(Code::DeadlineExceeded));
    let Behind { _dir, model, proxy: _proxy, mut clients } = behind(plan).await;
    for want in [Code::DeadlineExceeded, Code::DeadlineExceeded, Code::Ok] {
        assert_eq!(code(clients.controller.create_volume(create("v")).await), want);
    }
    assert_eq!(model.count("create"), 1);
}

#[tokio::test]
async fn a_duplicated_call_reaches_the_driver_and_works_once_at_a_time() {
    let plan = Plan::new().always("CreateVolume", Fault::Duplicate);
    let Behind { _dir, model, proxy, mut clients } = behind(plan).await;
    let volume = clients.controller.create_volume(create("v")).await.unwrap().into_inner().volume.unwrap();
    assert_eq!(volume.volume_id, "vol-v");
    assert_eq!((proxy.calls("CreateVolume"), model.state().volumes.len()), (1, 1));
}

#[tokio::test]
async fn a_cut_connection_loses_the_answer_and_not_the_work() {
    let plan = Plan::new().first(1, "CreateVolume", Fault::DropAfterSend);
    let Behind { _dir, model, proxy: _proxy, mut clients } = behind(plan).await;
    let lost = clients.controller.create_volume(create("v")).await.unwrap_err();
    assert!(matches!(lost.code(), Code::Unavailable | Code::Unknown | Code::Cancelled), "{lost:?}");
    model.entered(1).await;
    // The channel connects again by itself, and the repeat finds what the first call made.
    let volume = clients.controller.create_volume(create("v")).await.unwrap().into_inner().volume.unwrap();
    assert_eq!(volume.volume_id, "vol-v");
    assert_eq!(model.state().volumes.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_call_waits() {
    let plan = Plan::new().everything(Fault::Delay(Duration::from_secs(3600)));
    let Behind { _dir, proxy, mut clients, .. } = behind(plan).await;
    let before = Instant::now();
    clients.identity.probe(ProbeRequest {}).await.unwrap();
    assert!(before.elapsed() >= Duration::from_secs(3600));
    proxy.set_plan(Plan::new());
    let before = Instant::now();
    clients.identity.probe(ProbeRequest {}).await.unwrap();
    assert!(before.elapsed() < Duration::from_secs(1));
}
