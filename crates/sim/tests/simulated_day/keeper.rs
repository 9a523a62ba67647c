//! A controller as kube users write them: for every claim it keeps a config map and says Bound; it cleans up by a
//! finalizer.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::controller::{Action, Config};
use kube::runtime::finalizer::{Error, Event, finalizer};
use kube::runtime::{Controller, watcher};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::json;
use sim::Component;

use crate::keys;

struct Keeper {
    component: Component,
    client: Client,
}

/// Runs until it is dropped.
pub(crate) async fn run(component: Component) {
    let client = component.client();
    let claims = Api::<PersistentVolumeClaim>::all(client.clone());
    let maps = Api::<ConfigMap>::all(client.clone());
    let keeper = Arc::new(Keeper { component, client });
    // Any state will do for a start; kube asks for that only where it does not ask for pages.
    let any_state = watcher::Config { page_size: None, ..watcher::Config::default().any_semantic() };
    Controller::new(claims, any_state.clone())
        .owns(maps, any_state)
        // More at once are polled in turn, which gets slow.
        .with_config(Config::default().concurrency(8))
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_secs(5)), Arc::clone(&keeper))
        .for_each(async |done| match done {
            Ok((claim, _)) => keeper.component.note(format_args!("kept {}", claim.name)),
            Err(error) => keeper.component.note(format_args!("failed: {error}")),
        })
        .await;
}

async fn reconcile(claim: Arc<PersistentVolumeClaim>, keeper: Arc<Keeper>) -> Result<Action, Error<kube::Error>> {
    let namespace = claim.namespace().unwrap_or_default();
    let claims = Api::namespaced(keeper.client.clone(), &namespace);
    // Deleted before the keeper put its finalizer on it: the helper has nothing to clean up, protection is still there.
    let ours = claim.finalizers().iter().any(|finalizer| finalizer == keys::KEEPER);
    if claim.metadata.deletion_timestamp.is_some() && !ours {
        return keeper.unprotect(&claims, &claim.name_any()).await.map_err(Error::CleanupFailed);
    }
    finalizer(&claims, keys::KEEPER, claim, async |event| match event {
        Event::Apply(claim) => keeper.keep(&claims, &claim).await,
        Event::Cleanup(claim) => keeper.let_go(&claims, &claim).await,
    })
    .await
}

impl Keeper {
    async fn keep(&self, claims: &Api<PersistentVolumeClaim>, claim: &PersistentVolumeClaim) -> kube::Result<Action> {
        let name = claim.name_any();
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "ownerReferences": [claim.controller_owner_ref(&())]},
            "data": {"claim": name, "labels": claim.labels().len().to_string()},
        });
        let maps = Api::<ConfigMap>::namespaced(self.client.clone(), &claim.namespace().unwrap_or_default());
        maps.patch(&name, &PatchParams::apply("keeper").force(), &Patch::Apply(map)).await?;
        if claim.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Bound") {
            let bound = json!({"status": {"phase": "Bound"}});
            claims.patch_status(&name, &PatchParams::default(), &Patch::Merge(bound)).await?;
        }
        Ok(Action::requeue(Duration::from_secs(3600)))
    }

    async fn let_go(&self, claims: &Api<PersistentVolumeClaim>, claim: &PersistentVolumeClaim) -> kube::Result<Action> {
        let name = claim.name_any();
        let maps = Api::<ConfigMap>::namespaced(self.client.clone(), &claim.namespace().unwrap_or_default());
        match maps.delete(&name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            other => drop(other?),
        }
        self.unprotect(claims, &name).await
    }

    async fn unprotect(&self, claims: &Api<PersistentVolumeClaim>, name: &str) -> kube::Result<Action> {
        let unprotect = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [keys::CLAIM_PROTECTION]}});
        match claims.patch(name, &PatchParams::default(), &Patch::Strategic(unprotect)).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            other => drop(other?),
        }
        Ok(Action::await_change())
    }
}
