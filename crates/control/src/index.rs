//! Indexes that several controllers share: who names a claim, a node, an attributes class.

use api::{Attachment, Claim, Key, Node, Pod, Volume};
use lifecycle::attach::published;
use runtime::Index;

/// Pods by the claims they name, those made for them included; the value is [`Key`]'s text, `NAMESPACE/NAME`.
pub(crate) const PODS_BY_CLAIM: Index<Pod> = Index {
    name: "pod-pvc-index",
    values: |pod, value| {
        for claim in pod.claims() {
            value(&claim_of(pod, &claim).to_string());
        }
    },
};

/// Attachments by the volume they name, and by the unique name of the volume that they carry or that their attacher wrote
/// down: the object that they name may be gone or be another one by now. No name of an object has a slash.
pub(crate) const ATTACHMENTS_BY_VOLUME: Index<Attachment> = Index {
    name: "va-pv-index",
    values: |attachment, value| {
        if let Some(volume) = attachment.volume.as_deref() {
            value(volume);
        }
        if let Some(unique) = published(attachment) {
            value(&unique);
        }
    },
};

/// Pods that have not ended, by their node.
pub(crate) const PODS_BY_NODE: Index<Pod> = Index {
    name: "running-by-node",
    values: |pod, put| {
        if pod.scheduled() && !pod.terminated() {
            put(&pod.node);
        }
    },
};

/// Attachments by the node they are to.
pub(crate) const ATTACHMENTS_BY_NODE: Index<Attachment> =
    Index { name: "node", values: |attachment, put| put(&attachment.node) };

/// Nodes whose agent has not spoken since the objects were restored from a backup, all under one name.
pub(crate) const NODES_RESTORED: Index<Node> = Index {
    name: "restored",
    values: |node, put| {
        if node.meta.annotation(api::keys::annotation::RESTORED).is_some() {
            put(RESTORED);
        }
    },
};
pub(crate) const RESTORED: &str = "restored";

/// Claims by the attributes classes they refer to in any way (PROTECT-8.3).
pub(crate) const CLAIMS_BY_ATTRIBUTES_CLASS: Index<Claim> =
    Index { name: "pvc-vac-index", values: |claim, value| lifecycle::protect::classes_of(claim).for_each(value) };

/// Volumes by the attributes class they have.
pub(crate) const VOLUMES_BY_ATTRIBUTES_CLASS: Index<Volume> = Index {
    name: "pv-vac-index",
    values: |volume, value| {
        if !volume.attributes_class().is_empty() {
            value(volume.attributes_class());
        }
    },
};

/// The key of a claim that a pod names.
pub(crate) fn claim_of(pod: &Pod, claim: &str) -> Key {
    pod.meta.key.sibling(claim)
}
