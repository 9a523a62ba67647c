//! `snapshot.storage.k8s.io`: snapshots of one volume each.

use serde_json::{Value, json};

use super::{
    Names, Status, Use, VersionOf, age, class_name, column, definition, deletion_policy, exactly_one, flag, frozen,
    last_error, moment, object, object_reference, required_once_set, root, ruled, text, texts_by_key, version, whole,
};

const GROUP: &str = "snapshot.storage.k8s.io";
const APPROVED: &str = "https://github.com/kubernetes-csi/external-snapshotter/pull/814";
const APPROVED_CONTENTS: &str = "https://github.com/kubernetes-csi/external-snapshotter/pull/955";
/// A quantity, written as text.
const QUANTITY: &str = concat!(
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))",
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
);

/// The current version, and the one before it, which is not served any more.
fn both_versions(columns: &[Value], status: Status, schema: &Value) -> Vec<Value> {
    [("v1", Use::Stored), ("v1beta1", Use::Retired)]
        .map(|(name, usage)| version(VersionOf { name, usage, status, columns, schema: schema.clone() }))
        .into()
}

pub(super) fn snapshots() -> Value {
    let names = Names {
        group: GROUP,
        kind: "VolumeSnapshot",
        plural: "volumesnapshots",
        short: &["vs"],
        scope: "Namespaced",
        approved: APPROVED,
    };
    let source = ".spec.source";
    let columns = [
        column("ReadyToUse", "boolean", ".status.readyToUse", "Whether a volume can be made from the snapshot."),
        column("SourcePVC", "string", &format!("{source}.persistentVolumeClaimName"), "The claim it is taken from."),
        column(
            "SourceSnapshotContent",
            "string",
            &format!("{source}.volumeSnapshotContentName"),
            "The existing content it stands for.",
        ),
        column("RestoreSize", "string", ".status.restoreSize", "The least size of a volume made from it."),
        column("SnapshotClass", "string", ".spec.volumeSnapshotClassName", "The class it was asked for with."),
        column("SnapshotContent", "string", ".status.boundVolumeSnapshotContentName", "The content it is bound to."),
        column("CreationTime", "date", ".status.creationTime", "When the storage took it."),
        age(),
    ];
    let fields = vec![("spec", snapshot_spec()), ("status", snapshot_status())];
    let schema = root("A user's wish for a snapshot of a volume.", &["spec"], fields);
    definition(&names, both_versions(&columns, Status::Apart, &schema))
}

fn snapshot_spec() -> Value {
    let (claim, content) = ("persistentVolumeClaimName", "volumeSnapshotContentName");
    let claim_schema = text("The claim, in the same namespace, whose volume is to be snapshotted.");
    let content_schema = text("An existing content that the snapshot is to stand for.");
    let fields = vec![
        (claim, frozen(claim_schema, "persistentVolumeClaimName is immutable")),
        (content, frozen(content_schema, "volumeSnapshotContentName is immutable")),
    ];
    let source = object("Where the snapshot comes from. It never changes.", &[], fields);
    let source = exactly_one(required_once_set(source, &[claim, content]), content, claim);
    let class = "The class to take the snapshot with; the driver's default class if absent.";
    let class = class_name(class, "volumeSnapshotClassName");
    object("What the user wants.", &["source"], vec![("source", source), ("volumeSnapshotClassName", class)])
}

fn snapshot_status() -> Value {
    let size = json!({
        "type": "string",
        "pattern": QUANTITY,
        "x-kubernetes-int-or-string": true,
        "description": "The least size of a volume made from the snapshot.",
    });
    let fields = vec![
        ("boundVolumeSnapshotContentName", text("The content that stands for the snapshot on the storage.")),
        ("creationTime", moment("When the storage took the snapshot.")),
        ("error", last_error()),
        ("readyToUse", flag("Whether a volume can be made from the snapshot.")),
        ("restoreSize", size),
        ("volumeGroupSnapshotName", text("The group snapshot that this one belongs to, if any.")),
    ];
    object("What is known about the snapshot.", &[], fields)
}

pub(super) fn contents() -> Value {
    let names = Names {
        group: GROUP,
        kind: "VolumeSnapshotContent",
        plural: "volumesnapshotcontents",
        short: &["vsc", "vscs"],
        scope: "Cluster",
        approved: APPROVED_CONTENTS,
    };
    let reference = ".spec.volumeSnapshotRef";
    let columns = [
        column("ReadyToUse", "boolean", ".status.readyToUse", "Whether a volume can be made from the snapshot."),
        column("RestoreSize", "integer", ".status.restoreSize", "The size of the snapshot, in bytes."),
        column("DeletionPolicy", "string", ".spec.deletionPolicy", "What a delete does to the storage."),
        column("Driver", "string", ".spec.driver", "The driver that has the snapshot."),
        column("VolumeSnapshotClass", "string", ".spec.volumeSnapshotClassName", "The class it was taken with."),
        column("VolumeSnapshot", "string", &format!("{reference}.name"), "The snapshot it is bound to."),
        column("VolumeSnapshotNamespace", "string", &format!("{reference}.namespace"), "The namespace of that one."),
        age(),
    ];
    let fields = vec![("spec", content_spec()), ("status", content_status())];
    let schema = root("A snapshot on the storage.", &["spec"], fields);
    definition(&names, both_versions(&columns, Status::Apart, &schema))
}

fn content_spec() -> Value {
    let (volume, snapshot) = ("volumeHandle", "snapshotHandle");
    let fields = vec![
        (volume, frozen(text("The driver's name of the volume to take it from."), "volumeHandle is immutable")),
        (snapshot, frozen(text("The driver's name of a snapshot that exists."), "snapshotHandle is immutable")),
    ];
    let source = object("Where the snapshot comes from. It never changes.", &[], fields);
    let source = exactly_one(required_once_set(source, &[volume, snapshot]), volume, snapshot);
    let reference = ruled(
        object_reference("The snapshot that this content is bound to."),
        "has(self.name) && has(self.__namespace__)",
        "both spec.volumeSnapshotRef.name and spec.volumeSnapshotRef.namespace must be set",
    );
    let mode = text("Whether the source volume was a filesystem or a block device.");
    let fields = vec![
        ("deletionPolicy", deletion_policy()),
        ("driver", text("The driver that has the snapshot.")),
        ("source", source),
        ("sourceVolumeMode", frozen(mode, "sourceVolumeMode is immutable")),
        ("volumeSnapshotClassName", text("The class the snapshot was taken with; it may be gone by now.")),
        ("volumeSnapshotRef", reference),
    ];
    let required = ["deletionPolicy", "driver", "source", "volumeSnapshotRef"];
    required_once_set(object("What was asked of the storage.", &required, fields), &["sourceVolumeMode"])
}

fn content_status() -> Value {
    let mut size = whole("The least size of a volume made from the snapshot, in bytes.");
    size["minimum"] = 0.into();
    let fields = vec![
        ("creationTime", whole("When the storage took the snapshot, in nanoseconds since 1970.")),
        ("error", last_error()),
        ("readyToUse", flag("Whether a volume can be made from the snapshot.")),
        ("restoreSize", size),
        ("snapshotHandle", text("The driver's name of the snapshot.")),
        ("volumeGroupSnapshotHandle", text("The driver's name of the group that it was taken with, if any.")),
    ];
    object("What is known about the snapshot.", &[], fields)
}

pub(super) fn classes() -> Value {
    let names = Names {
        group: GROUP,
        kind: "VolumeSnapshotClass",
        plural: "volumesnapshotclasses",
        short: &["vsclass", "vsclasses"],
        scope: "Cluster",
        approved: APPROVED,
    };
    let columns = [
        column("Driver", "string", ".driver", "The driver that takes the snapshots."),
        column("DeletionPolicy", "string", ".deletionPolicy", "What a delete does to the storage."),
        age(),
    ];
    let fields = vec![
        ("deletionPolicy", deletion_policy()),
        ("driver", text("The driver that takes the snapshots of this class.")),
        ("parameters", texts_by_key("What the driver is told; it alone knows what the keys mean.")),
    ];
    let schema = root("A way to take snapshots.", &["deletionPolicy", "driver"], fields);
    definition(&names, both_versions(&columns, Status::None, &schema))
}
