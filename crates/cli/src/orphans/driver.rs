//! Asks a driver what it has, and deletes from it.

use std::time::Duration;

use ::csi::{Endpoint, v1};
use anyhow::{Context as _, anyhow, bail};
use lifecycle::orphans::{Driver as Has, Held, Listed, Orphan, What};
use runtime::csi::{self, CallError, Driver, Facts, Link};
use runtime::time::SystemClock;
use runtime::{Metrics, Stopper};
use tokio::task::JoinHandle;
use v1::controller_service_capability::rpc::Type as Rpc;

/// How long a driver may take to be there.
const PATIENCE: Duration = Duration::from_secs(10);

/// A driver that answers.
#[derive(Debug)]
pub(super) struct Connected {
    driver: Driver,
    facts: std::sync::Arc<Facts>,
    timeout: Duration,
    _stop: Stopper,
    running: JoinHandle<()>,
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl Connected {
    pub(super) async fn to(endpoint: Endpoint, timeout: Duration) -> anyhow::Result<Self> {
        let address = endpoint.to_string();
        // A socket that is not there is a wrong address, not a driver that is slow to start.
        if let Some(path) = endpoint.path().filter(|path| !path.exists()) {
            bail!("no driver answers at {address}: there is no {}; see that the driver runs", path.display());
        }
        let driver = Driver::new(endpoint, csi::Options::default(), &Metrics::new(&SystemClock));
        let (stopper, stop) = Stopper::new();
        let running = tokio::spawn({
            let driver = driver.clone();
            async move {
                // Another driver on the same socket ends the connection, and every call then says so.
                let _ = driver.run(&stop).await;
            }
        });
        let facts = tokio::time::timeout(PATIENCE, driver.ready()).await.map_err(|_| {
            let why = match &*driver.link().borrow() {
                Link::Down { why, .. } => why.clone(),
                Link::Up(_) => "it is not ready".to_owned(),
            };
            anyhow!("{why}")
        });
        let facts = facts.with_context(|| format!("no driver answers at {address}"))?;
        Ok(Self { driver, facts, timeout, _stop: stopper, running })
    }

    /// Everything it has, as far as it says so.
    pub(super) async fn list(&self) -> Has {
        let (volumes, snapshots) = tokio::join!(
            async { if self.can(Rpc::ListVolumes) { listed(self.volumes().await) } else { Listed::CannotList } },
            async { if self.can(Rpc::ListSnapshots) { listed(self.snapshots().await) } else { Listed::CannotList } },
        );
        Has { name: self.facts.name.as_str().into(), volumes, snapshots, place: self.place().await }
    }

    /// Where it runs. A driver that is asked for the whole cluster has no node to tell of.
    async fn place(&self) -> Option<std::collections::BTreeMap<String, String>> {
        let info = self.driver.node_get_info(v1::NodeGetInfoRequest {}, self.timeout).await.ok()?;
        info.accessible_topology.map(|place| place.segments.into_iter().collect())
    }

    fn can(&self, rpc: Rpc) -> bool {
        self.facts.capabilities.controls(rpc)
    }

    async fn volumes(&self) -> anyhow::Result<Vec<Held>> {
        let (mut all, mut token) = (Vec::new(), String::new());
        loop {
            let request = v1::ListVolumesRequest { max_entries: 0, starting_token: token.clone() };
            let answer = self.driver.list_volumes(request, self.timeout).await?;
            all.extend(answer.entries.into_iter().filter_map(|entry| {
                let volume = entry.volume?;
                let nodes = entry.status.map(|status| status.published_node_ids).unwrap_or_default();
                Some(Held {
                    handle: volume.volume_id.into(),
                    bytes: volume.capacity_bytes,
                    nodes: nodes.into_iter().map(Into::into).collect(),
                    ..Held::default()
                })
            }));
            token = next("ListVolumes", token, answer.next_token)?;
            if token.is_empty() {
                return Ok(all);
            }
        }
    }

    async fn snapshots(&self) -> anyhow::Result<Vec<Held>> {
        let (mut all, mut token) = (Vec::new(), String::new());
        let some = |text: String| (!text.is_empty()).then(|| Box::<str>::from(text));
        loop {
            let request = v1::ListSnapshotsRequest { starting_token: token.clone(), ..Default::default() };
            let answer = self.driver.list_snapshots(request, self.timeout).await?;
            all.extend(answer.entries.into_iter().filter_map(|entry| {
                let snapshot = entry.snapshot?;
                Some(Held {
                    handle: snapshot.snapshot_id.into(),
                    bytes: snapshot.size_bytes,
                    nodes: Vec::new(),
                    source: some(snapshot.source_volume_id),
                    group: some(snapshot.group_snapshot_id),
                })
            }));
            token = next("ListSnapshots", token, answer.next_token)?;
            if token.is_empty() {
                return Ok(all);
            }
        }
    }

    pub(super) async fn delete(&self, orphan: &Orphan) -> Result<(), CallError> {
        let id = orphan.held.handle.to_string();
        match orphan.what {
            What::Volume => {
                let request = v1::DeleteVolumeRequest { volume_id: id, ..Default::default() };
                self.driver.delete_volume(request, self.timeout).await.map(drop)
            }
            What::Snapshot => {
                let request = v1::DeleteSnapshotRequest { snapshot_id: id, ..Default::default() };
                self.driver.delete_snapshot(request, self.timeout).await.map(drop)
            }
        }
    }
}

/// A driver that gives the token it was given would be asked for ever.
fn next(call: &str, given: String, answered: String) -> anyhow::Result<String> {
    match !answered.is_empty() && answered == given {
        true => Err(anyhow!("{call}: the driver answers with the page token that it was given")),
        false => Ok(answered),
    }
}

fn listed(found: anyhow::Result<Vec<Held>>) -> Listed<Held> {
    match found {
        Ok(all) => Listed::All(all),
        Err(error) => Listed::Failed(format!("{error:#}")),
    }
}
