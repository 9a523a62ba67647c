//! Pods that use the claims of a run, one each, and run nothing.

mod ledger;

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use api::{Key, Kind, Object as _, Scope};
use runtime::client::Error;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::ledger::claim_name;
use super::site::{Named, Site};
use ledger::Pod;
pub(super) use ledger::{PodLedger, Stage, number_of};

const SERVICE_ACCOUNT: Kind = Kind::core("serviceaccounts", "ServiceAccount", Scope::Namespaced);
/// Seconds a pod may take to end where something runs in it. 0 would mean to forget it at once.
const GRACE: u32 = 1;

/// The name of a pod by its number.
pub(super) fn pod_name(number: usize) -> String {
    format!("pod-{number:06}")
}

/// Who ends the pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// Their nodes' agents, once their volumes are unmounted.
    ByAgent,
    /// The bench, which plays the agents.
    ByBench,
}

/// The pods of a run.
#[derive(Debug)]
pub(super) struct Consumers<'a> {
    pub(super) site: &'a Site,
    pub(super) ledger: &'a PodLedger,
    pub(super) ending: Ending,
}

impl Consumers<'_> {
    /// A pod needs a service account, which somebody makes in every namespace, if somebody does.
    pub(super) async fn admit(&self) -> anyhow::Result<()> {
        let body = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        match self.site.client().create::<Named>(SERVICE_ACCOUNT, Some(self.site.namespace()), &body).await {
            Ok(_) | Err(Error::AlreadyExists { .. }) => Ok(()),
            Err(error) => Err(anyhow!(error)).context("making the service account that pods need"),
        }
    }

    /// Creates the pods, each on the node that `place` says; `None` leaves it to a scheduler. Gives the time of the first
    /// request.
    pub(super) async fn create<'n>(
        &self,
        count: usize,
        place: impl Fn(usize) -> Option<&'n str>,
    ) -> anyhow::Result<Instant> {
        let started = Instant::now();
        let work = |number| {
            let body = self.object(number, place(number));
            async move {
                self.ledger.creating(number);
                let made = self.site.client().create::<Named>(Kind::POD, Some(self.site.namespace()), &body).await;
                made.map(drop).map_err(|error| anyhow!(error)).context("creating a pod")
            }
        };
        self.site.each(0..count, work).await?;
        Ok(started)
    }

    /// Deletes the pods. Gives the time of the first request.
    pub(super) async fn delete(&self, count: usize) -> anyhow::Result<Instant> {
        let started = Instant::now();
        self.site
            .each(0..count, |number| async move {
                self.ledger.deleting(number);
                self.end(&Key::namespaced(self.site.namespace(), &pod_name(number))).await
            })
            .await?;
        Ok(started)
    }

    /// Takes away what is left, and waits until nothing is attached any more. An error says what stays.
    pub(super) async fn clear(&self, patience: Duration) -> anyhow::Result<()> {
        self.site.each(self.ledger.pods_left(), |pod| async move { self.end(pod.key()).await }).await?;
        if timeout(patience, self.ledger.emptied()).await.is_ok() {
            return Ok(());
        }
        let (pods, attachments) = (self.ledger.pods_left(), self.ledger.attachments_left());
        let example = attachments.first().map(|left| format!(", such as {}", left.key().name()));
        bail!(
            "{} pods in namespace {} and {} VolumeAttachments do not go away{}; the nodes' agents, the attach/detach \
             controller and the driver's attacher have to run",
            pods.len(),
            self.site.namespace(),
            attachments.len(),
            example.unwrap_or_default(),
        )
    }

    async fn end(&self, key: &Key) -> anyhow::Result<()> {
        match self.ending {
            Ending::ByAgent => self.site.delete::<Pod>(key).await,
            Ending::ByBench => self.site.delete_now::<Pod>(key).await,
        }
    }

    fn object(&self, number: usize, node: Option<&str>) -> Value {
        let mut spec = json!({
            "containers": [{
                "name": "none", "image": "orlop.dev/bench",
                "volumeMounts": [{"name": "claim", "mountPath": "/claim"}],
            }],
            "volumes": [{"name": "claim", "persistentVolumeClaim": {"claimName": claim_name(number)}}],
            "tolerations": [{"operator": "Exists"}], "restartPolicy": "Never",
            "automountServiceAccountToken": false, "enableServiceLinks": false,
            "terminationGracePeriodSeconds": GRACE,
        });
        if let Some(node) = node {
            spec["nodeName"] = node.into();
        }
        let metadata = json!({"name": pod_name(number), "labels": self.site.labels()});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    }
}
