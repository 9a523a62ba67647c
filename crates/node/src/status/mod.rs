//! `volumesInUse`: what this node says that it uses, stored before anything is mounted (NODE-9, NODE-20;
//! ATTACH-6.7).
//!
//! Written when it changes, not at a tick (NODE-31.13). While one write is on its way, further changes wait and
//! become the next one.

use std::collections::BTreeSet;
use std::time::Duration;

use api::keys::{annotation, label};
use api::{Attachment, Key, Kind, Node};
use lifecycle::attach::restored::{RestoreReport, report_text, restore_report};
use lifecycle::attach::{attachment_name, unique_name};
use lifecycle::node::{Held, Origin};
use runtime::client::Error;
use runtime::{Patch, causes};
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::Agent;
use crate::actual::{Attachable, What};

/// While a restored node is not confirmed, it is looked at again this often.
const RETRY: Duration = Duration::from_secs(1);
/// After a write that failed, and twice as long after each further failure. An event brings it forward as long as the pause is
/// short: a node whose status cannot be written is not written at each event.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Up to this pause an event brings the next write forward.
const EAGER: Duration = Duration::from_secs(4);

/// Whether everything is said that has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Report {
    Settled,
    /// The objects were restored from a backup, and this node may have volumes that no attachment tells of.
    Unconfirmed,
}

/// A volume that is on this machine, or may be.
#[derive(Debug)]
struct VolumeHere {
    unique: Box<str>,
    /// The name of the attachment that it should have.
    attachment: String,
}

impl Agent {
    /// Keeps the node's status true.
    pub(crate) async fn report_in_use(&self) {
        let (mut pause, mut logged) = (SHORTEST_PAUSE, String::new());
        loop {
            let changed = self.report.notified();
            match self.report_once().await {
                Ok(report) => {
                    pause = SHORTEST_PAUSE;
                    logged.clear();
                    match report {
                        Report::Settled => changed.await,
                        // Its volumes leave, or get their attachments. That is rare, and nothing tells of both.
                        Report::Unconfirmed => drop(timeout(RETRY, changed).await),
                    }
                }
                Err(error) => {
                    self.tell_unreported(&error, &mut logged, pause);
                    match pause <= EAGER {
                        // Whether time or an event ends the wait does not matter.
                        true => drop(timeout(pause, changed).await),
                        false => sleep(pause).await,
                    }
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// Says that `volumesInUse` cannot be written: in the log once per change, and on the Node.
    fn tell_unreported(&self, error: &Error, logged: &mut String, pause: Duration) {
        let why = causes(error);
        match *logged == why {
            true => tracing::debug!(why, ?pause, "the volumes in use could not be written again"),
            false => tracing::warn!(why, ?pause, "the volumes in use could not be written into the node's status"),
        }
        *logged = why;
        if let Some(node) = self.nodes.get(&Key::cluster(&self.options.node)) {
            self.context.tell_failed_write::<Node>(&node, error);
        }
    }

    async fn report_once(&self) -> Result<Report, Error> {
        let key = Key::cluster(&self.options.node);
        let Some(node) = self.nodes.get(&key) else {
            self.reported(BTreeSet::new());
            return Ok(Report::Settled);
        };
        let stored: BTreeSet<Box<str>> = node.in_use.iter().cloned().collect();
        let Some(wanted) = self.due(&stored) else {
            self.reported(stored);
            return self.confirm_after_restore(&node).await;
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
                match self.nodes.get(&key) {
                    Some(node) => self.confirm_after_restore(&node).await,
                    None => Ok(Report::Settled),
                }
            }
            // It is gone, and its event is on its way.
            Err(error) if error.is_not_found() => Ok(Report::Settled),
            Err(error) => Err(error),
        }
    }

    /// After the objects were restored from a backup no object tells what this node uses until the agent has said so. It says
    /// first which volumes are here, and is done once each of them has an attachment: what has none may be given to another
    /// node.
    async fn confirm_after_restore(&self, node: &Node) -> Result<Report, Error> {
        let Some(mark) = node.meta.annotation(annotation::RESTORED) else { return Ok(Report::Settled) };
        if !self.world().known {
            return Ok(Report::Unconfirmed);
        }
        let here = self.volumes_here();
        let mut unattached = false;
        for name in here.iter().map(|volume| &volume.attachment) {
            match self.context.client.get::<Attachment>(Kind::ATTACHMENT, &Key::cluster(name)).await {
                Ok(_) => {}
                Err(error) if error.is_not_found() => unattached = true,
                Err(error) => return Err(error),
            }
        }
        if unattached {
            let listed = match restore_report(node) {
                RestoreReport::Lists(volumes) => volumes,
                RestoreReport::Missing | RestoreReport::Complete => Vec::new(),
            };
            // What has left in between stays on the list: it may still have to be detached.
            let volumes: BTreeSet<Box<str>> = here.into_iter().map(|volume| volume.unique).chain(listed).collect();
            return self.list_after_restore(node, report_text(mark, volumes)).await;
        }
        let patch = Patch::Merge(json!({
            "metadata": {
                "uid": node.meta.uid.as_str(),
                "annotations": {annotation::RESTORED.text(): null, annotation::RESTORED_VOLUMES.text(): null},
                "labels": {label::RESTORED.text(): null},
            },
        }));
        match self.context.client.patch::<Node>(Kind::NODE, &node.meta.key, &patch).await {
            Ok(node) => {
                tracing::info!("the objects were restored from a backup; what this node uses is reported");
                self.nodes.wrote(node);
                Ok(Report::Settled)
            }
            Err(error) if error.is_not_found() => Ok(Report::Unconfirmed),
            Err(error) => Err(error),
        }
    }

    /// Says which volumes are here, some of them without an attachment.
    async fn list_after_restore(&self, node: &Node, text: String) -> Result<Report, Error> {
        if node.meta.annotation(annotation::RESTORED_VOLUMES) != Some(&text) {
            let patch = Patch::Merge(json!({
                "metadata": {
                    "uid": node.meta.uid.as_str(),
                    "annotations": {annotation::RESTORED_VOLUMES.text(): text},
                },
            }));
            match self.context.client.patch::<Node>(Kind::NODE, &node.meta.key, &patch).await {
                Ok(node) => drop(self.nodes.wrote(node)),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Report::Unconfirmed)
    }

    /// The volumes on this machine that should have an attachment: those that are there, may be, or are being asked for, not those
    /// that only the metadata of an earlier boot speaks for.
    fn volumes_here(&self) -> Vec<VolumeHere> {
        let may_be_here = |held: Held| held != Held::Maybe(Origin::Recorded);
        let world = self.world();
        let here = world.actual.values().filter(|entry| {
            // An entry without anything exists while the driver is asked for it.
            let device = Some(entry.device).filter(|held| *held != Held::No || entry.pods.is_empty());
            let mut held = entry.pods.values().map(|pod| pod.held).chain(device);
            entry.attachable == Attachable::Yes && held.any(may_be_here)
        });
        here.filter_map(|entry| match &entry.what {
            What::Csi { driver, handle, .. } => Some(VolumeHere {
                unique: unique_name(driver.as_str(), handle).into(),
                attachment: attachment_name(driver.as_str(), handle, &self.options.node),
            }),
            What::InTree { .. } | What::LocalDevice { .. } => None,
        })
        .collect()
    }

    /// What the node's status should list, if that is something else than it lists. What is about to be taken off the list
    /// counts as off it from now on: a volume that is wanted again while the write is on its way is not mounted before the
    /// next write has put it back.
    fn due(&self, stored: &BTreeSet<Box<str>>) -> Option<BTreeSet<Box<str>>> {
        let mut world = self.world();
        // Until everything that an earlier run left is known, what it reported stays (NODE-20, NODE-30.3).
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
