//! Startup taints.

use std::sync::Arc;
use std::time::Duration;

use api::{Key, Kind};
use node::registrar::startup::{Options, Remover};
use node::registry;
use runtime::Stop;
use serde_json::json;
use tokio::time::sleep;

use crate::stage::{NODE, Stage, Start, at_every_request};

fn remover() -> Start {
    Arc::new(|context, _| {
        registry::narrow(&context.caches, NODE);
        let options = Options { node: NODE.to_owned(), driver: "d".to_owned(), taints: vec!["d/starting".to_owned()] };
        let remover = Remover::new(&context, options);
        Box::pin(async move { remover.run(&Stop::never()).await })
    })
}

#[test]
fn the_startup_taint_goes_when_csinode_lists_the_driver_and_the_others_stay_at_every_fault() {
    at_every_request(&remover(), async |stage: &Stage| {
        let since = "2026-01-02T03:04:05Z";
        let taints = json!([{"key": "d/starting", "effect": "NoExecute"},
            {"key": "gpu", "value": "yes", "effect": "NoExecute", "timeAdded": since}]);
        let node = json!({"metadata": {"name": NODE}, "spec": {"taints": taints}});
        stage.user.create(Kind::NODE, node).await;
        stage.user.create(Kind::CSI_NODE, json!({"metadata": {"name": NODE}, "spec": {"drivers": []}})).await;
        sleep(Duration::from_secs(30)).await;
        let keys = async || {
            let node = stage.user.our(Kind::NODE).await;
            let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
            taints.iter().map(|taint| taint["key"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
        };
        assert!(keys().await.contains(&"d/starting".to_owned()), "the driver is not there yet");
        let listed = json!({"spec": {"drivers": [{"name": "d", "nodeID": "x"}]}});
        stage.user.patch(Kind::CSI_NODE, &Key::cluster(NODE), listed).await;
        stage.user.until("the taint is off", async || !keys().await.contains(&"d/starting".to_owned())).await;
        let node = stage.user.our(Kind::NODE).await;
        let kept = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        assert!(kept.iter().any(|taint| taint["key"] == "gpu" && taint["timeAdded"] == since), "{kept:?}");
    });
}
