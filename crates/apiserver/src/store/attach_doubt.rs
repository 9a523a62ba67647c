//! What a copy of a store may not claim: where volumes are attached.
//!
//! Between a backup and its restore volumes move, and a copy does not know where to. Two machines would write to one volume
//! if anybody believed what it says. So each field of a copy keeps what forbids and loses what permits:
//!
//! | field | in a copy | because |
//! |---|---|---|
//! | VolumeAttachment | stays, with its finalizers, also one that was being deleted | it keeps the volume from other nodes; its end is decided again |
//! | `status.attached`, `attachmentMetadata`, errors | gone | the attacher asks the driver again, which knows |
//! | Node `status.volumesAttached` | gone | it lets the node mount |
//! | Node `status.volumesInUse` | stays | it keeps the volume from being detached |
//!
//! Both kinds get the annotation [`annotation::RESTORED`]. On an attachment it says that "not attached" is not known; on a
//! Node it stays until the node's agent has said what it uses, with a label of the same name, by which a provisioner finds such
//! nodes before it deletes a volume.

use api::keys::{annotation, label};
use bytes::Bytes;
use serde_json::{Map, Value};

use super::object::Stored;

/// The object as it comes into a copy; `None` if it comes as it is. `mark` tells this copy from others.
pub fn in_doubt(object: &Stored, mark: &str) -> Option<Bytes> {
    let change: fn(&mut Map<String, Value>) = match object.key.resource() {
        "volumeattachments" => forget_attachment,
        "nodes" => forget_attached,
        _ => return None,
    };
    // A value that cannot be read is not understood by anybody else, either.
    let mut value: Map<String, Value> = serde_json::from_slice(&object.value).ok()?;
    change(&mut value);
    change_member(&mut value, "metadata", |metadata| {
        change_member(metadata, "annotations", |annotations| {
            annotations.insert(annotation::RESTORED.0.to_owned(), mark.into());
        });
    });
    serde_json::to_vec(&value).ok().map(Bytes::from)
}

fn forget_attachment(attachment: &mut Map<String, Value>) {
    attachment.insert("status".to_owned(), serde_json::json!({"attached": false}));
    change_member(attachment, "metadata", |metadata| {
        metadata.remove("deletionTimestamp");
        metadata.remove("deletionGracePeriodSeconds");
    });
}

fn forget_attached(node: &mut Map<String, Value>) {
    change_member(node, "metadata", |metadata| {
        change_member(metadata, "labels", |labels| {
            labels.insert(label::RESTORED.text().to_owned(), "true".into());
        });
    });
    change_member(node, "status", |status| drop(status.remove("volumesAttached")));
}

/// Changes the object under a name. Where there is nothing, or something else, a new one takes its place.
fn change_member(parent: &mut Map<String, Value>, name: &str, change: impl FnOnce(&mut Map<String, Value>)) {
    let mut object = match parent.remove(name) {
        Some(Value::Object(object)) => object,
        _ => Map::new(),
    };
    change(&mut object);
    parent.insert(name.to_owned(), Value::Object(object));
}
#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::key::Key;
    use super::super::object::Revision;
    use super::*;

    fn copied(resource: &str, value: &Value) -> Option<Value> {
        let key = Key::new(resource, None, "one").unwrap();
        let value = Bytes::from(serde_json::to_vec(value).unwrap());
        let stored = Stored { key, value, revision: Revision(5), created: Revision(5), expires: None };
        in_doubt(&stored, "7").map(|bytes| serde_json::from_slice(&bytes).unwrap())
    }

    #[test]
    fn an_attachment_stays_and_says_nothing_of_where_its_volume_is() {
        let copy = copied(
            "volumeattachments",
            &json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
                "metadata": {"name": "one", "finalizers": ["f"], "annotations": {"a": "b"},
                    "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0},
                "spec": {"nodeName": "n"},
                "status": {"attached": true, "attachmentMetadata": {"lun": "3"}, "detachError": {"message": "m"}}}),
        );
        let wanted = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
            "metadata": {"name": "one", "finalizers": ["f"], "annotations": {"a": "b", "orlop.dev/restored": "7"}},
            "spec": {"nodeName": "n"}, "status": {"attached": false}});
        assert_eq!(copy, Some(wanted));
    }

    #[test]
    fn a_node_keeps_what_forbids_detaching_and_loses_what_permits_mounting() {
        let status = json!({"volumesAttached": [{"name": "v", "devicePath": ""}], "volumesInUse": ["v"], "phase": "x"});
        let copy = copied("nodes", &json!({"metadata": {"name": "one"}, "status": status})).unwrap();
        assert_eq!(copy["status"], json!({"volumesInUse": ["v"], "phase": "x"}));
        assert_eq!(copy["metadata"]["annotations"], json!({"orlop.dev/restored": "7"}));
        assert_eq!(copy["metadata"]["labels"], json!({"orlop.dev/restored": "true"}));
    }

    #[test]
    fn other_objects_come_as_they_are() {
        assert_eq!(copied("persistentvolumes", &json!({"status": {"phase": "Bound"}})), None);
    }
}
