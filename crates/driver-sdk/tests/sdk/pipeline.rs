//! LOCAL-E.4: joining, locking, detached work, deadlines, panics, finality.

use std::time::Duration;

use driver_sdk::csi::v1::*;
use driver_sdk::{Driver, Error};
use tonic::{Code, Request};

use crate::model::{Behaviour, code, create, delete, publish, served};

/// Lets other tasks run until `done`. Time stands still meanwhile.
async fn until(mut done: impl FnMut() -> bool) {
    for _ in 0..100_000 {
        if done() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("it never happened");
}

fn shows(driver: &Driver, line: &str) -> bool {
    driver.metrics_text().lines().any(|have| have == line)
}

/// Rule: LOCAL-E.4.4
#[tokio::test(start_paused = true)]
async fn equal_calls_join_and_work_once() {
    let (model, driver, clients) = served();
    let gate = model.hold("create");
    let calls: Vec<_> = (0..3)
        .map(|_| {
            let mut controller = clients.controller.clone();
            tokio::spawn(async move { controller.create_volume(create("v")).await.unwrap().into_inner() })
        })
        .collect();
    until(|| shows(&driver, "orlop_driver_joined_calls_total 2")).await;
    gate.add_permits(1);
    let mut answers = Vec::new();
    for call in calls {
        answers.push(call.await.unwrap());
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    assert_eq!(model.count("create"), 1);
    // The result is not kept: the next equal call works again.
    gate.add_permits(1);
    let mut controller = clients.controller;
    controller.create_volume(create("v")).await.unwrap();
    assert_eq!(model.count("create"), 2);
}

/// Rules: LOCAL-R2, LOCAL-E.4.4, WIRE-B.2.4
#[tokio::test(start_paused = true)]
async fn a_different_call_on_a_busy_object_is_aborted_and_told_by_whom() {
    let (model, driver, clients) = served();
    let gate = model.hold("create");
    let mut controller = clients.controller.clone();
    let creating = tokio::spawn(async move { code(controller.create_volume(create("v")).await) });
    model.entered(1).await;
    let mut other = create("v");
    other.parameters.insert("k".into(), "v".into());
    let mut controller = clients.controller;
    let status = controller.create_volume(other).await.unwrap_err();
    assert_eq!(status.code(), Code::Aborted);
    assert!(status.message().contains("CreateVolume (operation 1)"), "{}", status.message());
    // Name and id are one key when ids are derived from names.
    assert_eq!(code(controller.delete_volume(delete("vol-v")).await), Code::Aborted, "LOCAL-R2");
    assert_eq!(code(controller.delete_volume(delete("vol-w")).await), Code::Ok);
    assert!(shows(&driver, "orlop_driver_lock_conflicts_total 2"));
    gate.add_permits(1);
    assert_eq!(creating.await.unwrap(), Code::Ok);
    assert_eq!(code(controller.delete_volume(delete("vol-v")).await), Code::Ok);
}

/// Rules: LOCAL-0.8, LOCAL-E.4.5
#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_does_not_free_the_lock() {
    let (model, driver, clients) = served();
    let gate = model.hold("create");
    let mut controller = clients.controller.clone();
    let leaving = tokio::spawn(async move { controller.create_volume(create("v")).await });
    model.entered(1).await;
    leaving.abort();
    until(|| shows(&driver, "orlop_driver_detached_total 1")).await;
    let mut controller = clients.controller;
    assert_eq!(code(controller.delete_volume(delete("vol-v")).await), Code::Aborted, "LOCAL-0.8");
    assert_eq!(driver.running().len(), 1);
    gate.add_permits(1);
    driver.idle().await;
    assert!(model.state().volumes.contains_key("vol-v"), "the work went on to its end");
    assert_eq!(code(controller.delete_volume(delete("vol-v")).await), Code::Ok);
}

/// Rules: LOCAL-R5, LOCAL-E.4.6
#[tokio::test(start_paused = true)]
async fn a_deadline_ends_the_waiting_and_not_the_work() {
    let (model, driver, mut clients) = served();
    let gate = model.hold("create");
    let started = tokio::time::Instant::now();
    let mut request = Request::new(create("v"));
    request.set_timeout(Duration::from_secs(10));
    let status = clients.controller.create_volume(request).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert!(status.message().contains("goes on"), "{}", status.message());
    let seen = model.state().deadlines[0].unwrap();
    assert_eq!(seen - started, Duration::from_millis(9900), "a little before the caller gives up");
    assert_eq!(driver.running()[0].to_string(), "CreateVolume (operation 1) on \"v\"");
    let mut controller = clients.controller;
    let again = tokio::spawn(async move { code(controller.create_volume(create("v")).await) });
    until(|| shows(&driver, "orlop_driver_joined_calls_total 1")).await;
    gate.add_permits(1);
    assert_eq!(again.await.unwrap(), Code::Ok, "LOCAL-R5: the repeat gets the result of the first");
    assert_eq!(model.count("create"), 1);
}

/// Rule: LOCAL-E.4.9
#[tokio::test(start_paused = true)]
async fn a_panic_costs_one_call_and_is_not_final() {
    let (model, driver, mut clients) = served();
    model.on("create", Behaviour::Panic("index out of bounds".into()));
    let status = clients.controller.create_volume(create("v")).await.unwrap_err();
    assert_eq!(status.code(), Code::Aborted);
    assert!(status.message().contains("panicked, outcome unknown"), "{}", status.message());
    assert!(shows(&driver, "orlop_driver_panics_total 1"));
    assert!(driver.running().is_empty());
    assert_eq!(code(clients.controller.delete_volume(delete("vol-v")).await), Code::Ok, "the lock is free");
}

/// Rules: LOCAL-I9, LOCAL-E.4.7, LOCAL-0.1
#[tokio::test(start_paused = true)]
async fn a_final_code_leaves_only_when_nothing_is_left_behind() {
    let rows: [(fn() -> Error, Code); 4] = [
        (|| Error::backend("mkfs", "exit status 1"), Code::Internal),
        (|| Error::backend("mkfs", "exit status 1").leaving_residue(), Code::Aborted),
        (|| Error::no_space("the pool is full"), Code::ResourceExhausted),
        (|| Error::no_space("the pool is full").leaving_residue(), Code::Aborted),
    ];
    for (error, want) in rows {
        let (model, _, mut clients) = served();
        model.on("create", Behaviour::Fail(error));
        assert_eq!(code(clients.controller.create_volume(create("v")).await), want, "LOCAL-I9");
    }
    // The volume is made, and then something else fails with a final code.
    let (model, _, mut clients) = served();
    model.on("volume_segments", Behaviour::Fail(|| Error::backend("reading", "no")));
    assert_eq!(code(clients.controller.create_volume(create("v")).await), Code::Aborted);
}

/// Rule: LOCAL-R3
#[tokio::test(start_paused = true)]
async fn a_source_may_be_read_by_many_and_deleted_by_none_meanwhile() {
    let (model, _, clients) = served();
    let mut controller = clients.controller.clone();
    controller.create_volume(create("src")).await.unwrap();
    let gate = model.hold("create_from_volume");
    let before = *model.started.borrow();
    let mut cloner = clients.controller.clone();
    let cloning = tokio::spawn(async move {
        let source = volume_content_source::VolumeSource { volume_id: "vol-src".into() };
        let source = VolumeContentSource { r#type: Some(volume_content_source::Type::Volume(source)) };
        code(cloner.create_volume(CreateVolumeRequest { volume_content_source: Some(source), ..create("c") }).await)
    });
    model.entered(before + 1).await;
    assert_eq!(code(controller.delete_volume(delete("vol-src")).await), Code::Aborted, "LOCAL-R3");
    let snapshot = CreateSnapshotRequest { name: "s".into(), source_volume_id: "vol-src".into(), ..Default::default() };
    assert_eq!(code(controller.create_snapshot(snapshot).await), Code::Ok);
    gate.add_permits(1);
    assert_eq!(cloning.await.unwrap(), Code::Ok);
    assert_eq!(code(controller.delete_volume(delete("vol-src")).await), Code::Ok);
}

/// Rules: LOCAL-R4, LOCAL-E.4
#[tokio::test(start_paused = true)]
async fn looking_needs_no_lock() {
    let (model, _, mut clients) = served();
    clients.controller.create_volume(create("v")).await.unwrap();
    clients.node.node_publish_volume(publish("vol-v", "/t")).await.unwrap();
    let gate = model.hold("stage");
    let before = *model.started.borrow();
    let mut node = clients.node.clone();
    let staging = tokio::spawn(async move {
        let request = NodeStageVolumeRequest {
            volume_id: "vol-v".into(),
            staging_target_path: "/s".into(),
            volume_capability: Some(crate::model::writer()),
            ..Default::default()
        };
        code(node.node_stage_volume(request).await)
    });
    model.entered(before + 1).await;
    let stats = NodeGetVolumeStatsRequest { volume_id: "vol-v".into(), volume_path: "/t".into(), ..Default::default() };
    assert_eq!(code(clients.node.node_get_volume_stats(stats).await), Code::Ok);
    assert_eq!(code(clients.controller.list_volumes(ListVolumesRequest::default()).await), Code::Ok);
    let get = ControllerGetVolumeRequest { volume_id: "vol-v".into() };
    assert_eq!(code(clients.controller.controller_get_volume(get).await), Code::Ok);
    let unstage = NodeUnstageVolumeRequest { volume_id: "vol-v".into(), staging_target_path: "/s".into() };
    assert_eq!(code(clients.node.node_unstage_volume(unstage).await), Code::Aborted, "LOCAL-R4");
    gate.add_permits(1);
    assert_eq!(staging.await.unwrap(), Code::Ok);
}

#[tokio::test(start_paused = true)]
async fn stats_that_hang_do_not_pile_up() {
    let (model, driver, clients) = served();
    let gate = model.hold("stats");
    let calls: Vec<_> = (0..5)
        .map(|_| {
            let mut node = clients.node.clone();
            let request =
                NodeGetVolumeStatsRequest { volume_id: "v".into(), volume_path: "/t".into(), ..Default::default() };
            tokio::spawn(async move { code(node.node_get_volume_stats(request).await) })
        })
        .collect();
    until(|| shows(&driver, "orlop_driver_joined_calls_total 4")).await;
    assert_eq!(driver.running().len(), 1);
    gate.add_permits(1);
    for call in calls {
        assert_eq!(call.await.unwrap(), Code::NotFound);
    }
}

/// Rule: WIRE-B.4
#[tokio::test(start_paused = true)]
async fn an_answer_that_breaks_the_limits_is_the_drivers_bug_and_not_final() {
    let (model, _, mut clients) = served();
    model.state().volumes.insert("x".repeat(129), Default::default());
    let status = clients.controller.list_volumes(ListVolumesRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::Aborted);
    assert!(status.message().contains("driver bug: a volume id has 129 bytes"), "{}", status.message());
}

#[tokio::test(start_paused = true)]
async fn a_message_longer_than_a_header_is_cut() {
    let (model, _, mut clients) = served();
    model.on("create", Behaviour::Fail(|| Error::unavailable("é".repeat(10_000))));
    let status = clients.controller.create_volume(create("v")).await.unwrap_err();
    assert_eq!((status.code(), status.message().len()), (Code::Unavailable, 4096 + 4));
}

/// Rule: LOCAL-E.4.8
#[tokio::test(start_paused = true)]
async fn calls_are_counted_under_the_names_dashboards_know() {
    let (model, driver, mut clients) = served();
    clients.controller.create_volume(create("v")).await.unwrap();
    let _ = clients.controller.create_volume(CreateVolumeRequest::default()).await;
    let labels = |code: &str| {
        format!(
            "csi_plugin_operations_seconds_count{{driver_name=\"model.csi.example\",\
             method_name=\"/csi.v1.Controller/CreateVolume\",grpc_status_code=\"{code}\"}} 1"
        )
    };
    for code in ["OK", "InvalidArgument"] {
        assert!(shows(&driver, &labels(code)), "{}", driver.metrics_text());
    }
    let text = driver.metrics_text();
    for bucket in ["0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0", "15.0", "25.0", "50.0", "120.0", "300.0", "600.0"]
    {
        assert!(text.contains(&format!("le=\"{bucket}\"")), "{bucket}");
    }
    let running = "orlop_driver_operations_in_flight{method_name=\"/csi.v1.Controller/CreateVolume\"}";
    assert!(shows(&driver, &format!("{running} 0")));
    let gate = model.hold("create");
    let mut controller = clients.controller;
    let before = *model.started.borrow();
    let creating = tokio::spawn(async move { controller.create_volume(create("w")).await.map(drop) });
    model.entered(before + 1).await;
    assert!(shows(&driver, &format!("{running} 1")));
    gate.add_permits(1);
    creating.await.unwrap().unwrap();
}
