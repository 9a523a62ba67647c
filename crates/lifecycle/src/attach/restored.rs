//! After the objects of a backup were restored: which node may have which volume.
//!
//! A backup does not know which volumes nodes got after it was made, nor which they lost. Each Node therefore comes back with
//! the annotation [`annotation::RESTORED`]. Its agent answers with the list of the volumes that it has
//! ([`annotation::RESTORED_VOLUMES`]) and takes both off once each of these has a VolumeAttachment, by which the ordinary rules
//! know of it.
//!
//! # Invariants
//! 1. A node that has not answered may have every volume; one that has answered may have those of its list.
//! 2. A volume for one node is attached to no node, and none is told of it, while another node may have it.
//! 3. A volume that a node lists without an attachment gets one, whether or not a pod wants it: it ends as every other does.
//! 4. An attachment that was restored is carried out only if its node lists the volume, or if no other node may have it and no
//!    other attachment of the volume comes first.

use api::keys::{annotation, taint};
use api::node::Readiness;
use api::{Attachment, Node};
use serde::{Deserialize, Serialize};

use super::identity::{AttachmentIdentity, identify};
use super::names::parse_unique;

/// The value of [`annotation::RESTORED`] on an attachment that was made after the restore, to a node that may have had the volume
/// all the time: its status does not say that the volume is not attached.
pub const MADE_SINCE: &str = "made-since";

/// What a node has said since the objects were restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestoreReport {
    /// Its attachments tell of everything that it has, or an operator answers for it.
    Complete,
    /// Nothing yet.
    Missing,
    /// It has these volumes, by their unique names.
    Lists(Vec<Box<str>>),
}

/// How a node's answer is stored.
#[derive(Debug, Serialize, Deserialize)]
struct StoredReport {
    /// The mark of the restore that it answers to.
    restore: String,
    volumes: Vec<Box<str>>,
}

/// The text of a node's answer to the restore with this mark.
pub fn report_text(restore: &str, volumes: impl IntoIterator<Item = Box<str>>) -> String {
    let stored = StoredReport { restore: restore.to_owned(), volumes: volumes.into_iter().collect() };
    // Strings alone can always be written.
    serde_json::to_string(&stored).unwrap_or_default()
}

/// What a node has said since the objects were restored.
pub fn restore_report(node: &Node) -> RestoreReport {
    let out_of_service = node.ready != Readiness::Ready && node.has_taint(taint::OUT_OF_SERVICE);
    let Some(mark) = node.meta.annotation(annotation::RESTORED).filter(|_| !out_of_service) else {
        return RestoreReport::Complete;
    };
    let text = node.meta.annotation(annotation::RESTORED_VOLUMES);
    let stored = text.and_then(|text| serde_json::from_str::<StoredReport>(text).ok());
    // A backup may hold the answer to an earlier restore.
    match stored.filter(|stored| stored.restore == mark) {
        Some(stored) => RestoreReport::Lists(stored.volumes),
        None => RestoreReport::Missing,
    }
}

/// Whether a node may have volumes that no attachment tells of.
pub fn awaits_report(node: &Node) -> bool {
    restore_report(node) != RestoreReport::Complete
}

/// Whether a node may have this volume without an attachment that tells of it.
pub fn may_have(node: &Node, unique: &str) -> bool {
    match restore_report(node) {
        RestoreReport::Complete => false,
        RestoreReport::Missing => true,
        RestoreReport::Lists(volumes) => volumes.iter().any(|volume| **volume == *unique),
    }
}

/// Whether a node said that it has this volume.
pub fn lists(node: &Node, unique: &str) -> bool {
    matches!(restore_report(node), RestoreReport::Lists(volumes) if volumes.iter().any(|volume| **volume == *unique))
}

/// Whether an attachment came with a backup, so that its volume may be elsewhere by now.
pub fn is_restored(attachment: &Attachment) -> bool {
    attachment.meta.annotation(annotation::RESTORED).is_some_and(|mark| mark != MADE_SINCE)
}

/// The server's word about everything that matters for an attachment that was restored.
#[derive(Debug, Clone, Default)]
pub struct RestoredCluster {
    /// The nodes that were restored.
    pub nodes: Vec<Node>,
    pub attachments: Vec<Attachment>,
}

impl RestoredCluster {
    /// The node for which a restored attachment of a volume for one node has to wait; `None` if it can be carried out.
    pub fn awaited_node(&self, attachment: &Attachment, unique: &str) -> Option<Box<str>> {
        let is_own = |node: &Node| node.name() == attachment.node.as_str();
        if self.nodes.iter().any(|node| is_own(node) && lists(node, unique)) {
            return None;
        }
        let holder = self.nodes.iter().find(|node| !is_own(node) && may_have(node, unique));
        if let Some(holder) = holder {
            return Some(holder.name().into());
        }
        let volume = parse_unique(unique)?;
        let is_other = |held: &&Attachment| {
            held.node != attachment.node
                && (identify(held, volume) == AttachmentIdentity::Of
                    || (held.volume.is_some() && held.volume == attachment.volume))
        };
        let age = |held: &Attachment| (held.meta.created, held.name().to_owned());
        let comes_first = |held: &&Attachment| held.attached || !is_restored(held) || age(held) < age(attachment);
        let other = self.attachments.iter().filter(is_other).find(comes_first);
        other.map(|held| held.node.as_str().into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::names::{attachment_name, unique_name};
    use super::*;

    fn node(name: &str, annotations: Value) -> Node {
        serde_json::from_value(json!({"metadata": {"name": name, "annotations": annotations}})).expect("a Node")
    }

    fn reported(name: &str, mark: &str, answer: &str, volumes: &[&str]) -> Node {
        let volumes = volumes.iter().map(|handle| unique_name("d", handle).into());
        let text = report_text(answer, volumes);
        node(name, json!({annotation::RESTORED.text(): mark, annotation::RESTORED_VOLUMES.text(): text}))
    }

    fn silent(name: &str) -> Node {
        node(name, json!({annotation::RESTORED.text(): "7"}))
    }

    fn attachment(node: &str, mark: Option<&str>, attached: bool, created: &str) -> Attachment {
        let annotations = mark.map_or(json!({}), |mark| json!({annotation::RESTORED.text(): mark}));
        serde_json::from_value(json!({
            "metadata": {"name": attachment_name("d", "h", node), "creationTimestamp": created, "annotations": annotations},
            "spec": {"attacher": "d", "nodeName": node, "source": {"persistentVolumeName": "pv"}},
            "status": {"attached": attached}}))
        .expect("a VolumeAttachment")
    }

    #[test]
    fn a_node_may_have_everything_until_it_answers_and_then_what_it_lists() {
        let unique = unique_name("d", "h");
        for (node, report, may, says) in [
            (node("n", json!({})), RestoreReport::Complete, false, false),
            (silent("n"), RestoreReport::Missing, true, false),
            (reported("n", "7", "7", &["h"]), RestoreReport::Lists(vec![unique.as_str().into()]), true, true),
            (reported("n", "7", "7", &[]), RestoreReport::Lists(Vec::new()), false, false),
            // The answer to an earlier restore came with the backup.
            (reported("n", "7", "6", &["h"]), RestoreReport::Missing, true, false),
        ] {
            let found = (restore_report(&node), may_have(&node, &unique), lists(&node, &unique));
            assert_eq!(found, (report, may, says), "{:?}", node.meta.annotations);
        }
    }

    #[test]
    fn a_restored_attachment_waits_for_every_node_that_may_have_the_volume() {
        let unique = unique_name("d", "h");
        let own = attachment("b", Some("7"), false, "2026-01-02T00:00:00Z");
        let cluster = |nodes: &[Node], others: &[Attachment]| {
            let attachments = others.iter().chain([&own]).cloned().collect();
            let cluster = RestoredCluster { nodes: nodes.to_vec(), attachments };
            cluster.awaited_node(&own, &unique).map(String::from)
        };
        let a = Some("a".to_owned());
        assert_eq!(cluster(&[silent("a"), silent("b")], &[]), a, "it has not answered");
        assert_eq!(cluster(&[reported("a", "7", "7", &["h"])], &[]), a, "it has the volume");
        assert_eq!(cluster(&[reported("a", "7", "7", &["other"])], &[]), None);
        assert_eq!(cluster(&[silent("a"), reported("b", "7", "7", &["h"])], &[]), None, "its own node has the volume");
        let made = attachment("a", Some(MADE_SINCE), false, "2026-01-03T00:00:00Z");
        assert_eq!(cluster(&[], &[made]), a, "node a has answered that it has the volume");
        let older = attachment("a", Some("7"), false, "2026-01-01T00:00:00Z");
        assert_eq!(cluster(&[], &[older]), a, "of two that were restored the older one comes first");
        let younger = attachment("a", Some("7"), false, "2026-01-03T00:00:00Z");
        assert_eq!(cluster(&[], &[younger]), None);
        let attached = attachment("a", Some("7"), true, "2026-01-03T00:00:00Z");
        assert_eq!(cluster(&[], &[attached]), a);
    }
}
