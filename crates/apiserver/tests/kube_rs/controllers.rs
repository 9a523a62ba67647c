//! kube's `Controller`: what it owns, and its finalizer.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::Action;
use kube::runtime::finalizer::{Error, Event, finalizer};
use kube::runtime::{Controller, watcher};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::json;

use crate::server::{Server, map, object};

const FINALIZER: &str = "tests.example/copies";

/// Keeps a secret for every map, and a mark that outlives both until it is cleaned up.
async fn reconcile(map: Arc<ConfigMap>, client: Arc<Client>) -> Result<Action, Error<kube::Error>> {
    let maps: Api<ConfigMap> = Api::default_namespaced((*client).clone());
    finalizer(&maps, FINALIZER, map, async |event| match event {
        Event::Apply(map) => {
            let secret = json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": map.name_any(), "ownerReferences": [map.controller_owner_ref(&())]},
                "stringData": map.data,
            });
            let secrets: Api<Secret> = Api::default_namespaced((*client).clone());
            secrets.patch(&map.name_any(), &PatchParams::apply("copier").force(), &Patch::Apply(secret)).await?;
            Ok(Action::await_change())
        }
        Event::Cleanup(map) => {
            let mark: Secret = object(json!({"metadata": {"name": format!("{}-was-cleaned-up", map.name_any())}}));
            Api::default_namespaced((*client).clone()).create(&PostParams::default(), &mark).await?;
            Ok(Action::await_change())
        }
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_controller_restores_what_it_owns_and_cleans_up_by_its_finalizer() {
    let server = Server::start().await;
    let client = server.client();
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    let controller = Controller::new(maps.clone(), watcher::Config::default())
        .owns(secrets.clone(), watcher::Config::default())
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_secs(1)), Arc::new(client.clone()))
        .for_each(async |_| {});
    let controller = tokio::spawn(controller);
    let settle = async || tokio::time::sleep(Duration::from_secs(10)).await;
    let names = async || {
        let list = secrets.list(&ListParams::default()).await.expect("secrets can be listed");
        list.items.iter().map(|secret| secret.name_any()).collect::<Vec<_>>()
    };

    maps.create(&PostParams::default(), &map("m")).await.expect("a map is made");
    settle().await;
    assert_eq!(names().await, ["m"]);
    assert!(maps.get("m").await.expect("it is there").finalizers().contains(&FINALIZER.to_owned()));

    secrets.delete("m", &DeleteParams::default()).await.expect("deleted");
    settle().await;
    assert_eq!(names().await, ["m"], "the owner was told");

    maps.delete("m", &DeleteParams::default()).await.expect("deleted");
    settle().await;
    assert!(maps.get_opt("m").await.expect("it answers").is_none());
    assert_eq!(names().await, ["m-was-cleaned-up"], "what the map owned was collected");
    controller.abort();
    assert!(controller.await.expect_err("it was stopped").is_cancelled());
    assert_eq!(server.api.open_watches(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_objects() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let server = Server::start().await;
        let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(server.client());
        for number in 0..20 {
            let mut claim = crate::server::claim(&format!("c{number}"));
            claim.metadata.name = None;
            claim.metadata.generate_name = Some("claim-".to_owned());
            let made = claims.create(&PostParams::default(), &claim).await.expect("a claim is made");
            tokio::time::sleep(Duration::from_secs(7)).await;
            let patch = Patch::Merge(json!({"metadata": {"labels": {"n": number.to_string()}}}));
            claims.patch(&made.name_any(), &PatchParams::default(), &patch).await.expect("patched");
        }
        runs.push(claims.list(&ListParams::default()).await.expect("claims can be listed").items);
    }
    assert_eq!(runs[0].len(), 20);
    assert_eq!(runs[0], runs[1], "names, uids, revisions, times and owners of fields");
}
