//! `volumesInUse`: what this node says that it uses, stored before anything is mounted (node 9, 20; controllers 6.7).
//!
//! Written when it changes, not at a tick (weakness node 31 #13). While one write is on its way, further changes wait and
//! become the next one.

use std::collections::BTreeSet;
use std::time::Duration;

use api::{Key, Kind, Node};
use runtime::Patch;
use runtime::client::Error;
use serde_json::json;
use tokio::time::timeout;

use crate::Agent;

/// After a write that failed. Events bring it forward.
const RETRY: Duration = Duration::from_secs(1);

impl Agent {
    /// Keeps the node's status true.
    pub(crate) async fn report_in_use(&self) {
        loop {
            let changed = self.report.notified();
            match self.report_once().await {
                Ok(()) => changed.await,
                Err(error) => {
                    tracing::warn!(%error, "the volumes in use could not be written into the node's status");
                    // Whether time or an event ends the wait does not matter.
                    let _ = timeout(RETRY, changed).await;
                }
            }
        }
    }

    async fn report_once(&self) -> Result<(), Error> {
        let key = Key::cluster(&self.options.node);
        let Some(node) = self.nodes.get(&key) else {
            self.reported(BTreeSet::new());
            return Ok(());
        };
        let stored: BTreeSet<Box<str>> = node.in_use.iter().cloned().collect();
        let Some(wanted) = self.due(&stored) else {
            self.reported(stored);
            return Ok(());
        };
        let patch = Patch::Merge(json!({
            "metadata": {"uid": node.meta.uid.as_str()},
            "status": {"volumesInUse": wanted},
        }));
        match self.context.client.patch_status::<Node>(Kind::NODE, &key, &patch).await {
            Ok(node) => {
                let stored = node.in_use.iter().cloned().collect();
                self.nodes.wrote(node);
                self.reported(stored);
                Ok(())
            }
            // Another node of this name: its event is on its way.
            Err(error) if error.is_conflict() || error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// What the node's status should list, if that is something else than it lists. What is about to be taken off the list
    /// counts as off it from now on: a volume that is wanted again while the write is on its way is not mounted before the
    /// next write has put it back.
    fn due(&self, stored: &BTreeSet<Box<str>>) -> Option<BTreeSet<Box<str>>> {
        let mut world = self.world();
        // Until everything that an earlier run left is known, what it reported stays (node 20, 30 #3).
        let wanted = world.known.then(|| world.in_use(|driver| self.attaches(driver)))?;
        if wanted == *stored {
            return None;
        }
        world.reported = stored.intersection(&wanted).cloned().collect();
        Some(wanted)
    }

    /// Takes in what the server stored, and wakes the volumes for which that is news.
    fn reported(&self, stored: BTreeSet<Box<str>>) {
        let news: Vec<_> = {
            let mut world = self.world();
            let before = std::mem::replace(&mut world.reported, stored);
            let ids = world.volumes();
            ids.into_iter().filter(|id| before.contains(id.as_str()) != world.reported.contains(id.as_str())).collect()
        };
        for id in news {
            self.volume_queue.add(id);
        }
    }
}
