//! `groupsnapshot.storage.k8s.io`: snapshots of several volumes at one moment.
//!
//! `v1beta1` came before most of the rules about change, and lists the handles of its members in pairs.

use serde_json::{Value, json};

use super::{
    Names, Status, Use, VersionOf, age, class_name, column, definition, deletion_policy, exactly_one, flag, frozen,
    last_error, list, moment, object, object_reference, required_once_set, root, ruled, text, texts_by_key, version,
    whole,
};

const GROUP: &str = "groupsnapshot.storage.k8s.io";
const APPROVED: &str = "https://github.com/kubernetes-csi/external-snapshotter/pull/1337";

/// Which rules a version has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Age {
    First,
    Current,
}

impl Age {
    /// A schema whose value never changes, in the versions that know the rule.
    fn frozen(self, schema: Value, message: &str) -> Value {
        match self {
            Self::First => schema,
            Self::Current => frozen(schema, message),
        }
    }
}

fn versions(columns: &[Value], status: Status, schema: fn(Age) -> Value) -> Vec<Value> {
    let all = [
        ("v1", Use::Served, Age::Current),
        ("v1beta1", Use::Deprecated, Age::First),
        ("v1beta2", Use::Stored, Age::Current),
    ];
    all.map(|(name, usage, age)| version(VersionOf { name, usage, status, columns, schema: schema(age) })).into()
}

pub(super) fn snapshots() -> Value {
    let names = Names {
        group: GROUP,
        kind: "VolumeGroupSnapshot",
        plural: "volumegroupsnapshots",
        short: &["vgs"],
        scope: "Namespaced",
        approved: APPROVED,
    };
    let class = ".spec.volumeGroupSnapshotClassName";
    let bound = ".status.boundVolumeGroupSnapshotContentName";
    let columns = [
        column("ReadyToUse", "boolean", ".status.readyToUse", "Whether volumes can be made from the snapshots."),
        column("VolumeGroupSnapshotClass", "string", class, "The class it was asked for with."),
        column("VolumeGroupSnapshotContent", "string", bound, "The content it is bound to."),
        column("CreationTime", "date", ".status.creationTime", "When the storage took it."),
        age(),
    ];
    definition(&names, versions(&columns, Status::Apart, snapshot))
}

fn snapshot(age: Age) -> Value {
    let bound = text("The content that stands for the group on the storage.");
    let status = vec![
        (
            "boundVolumeGroupSnapshotContentName",
            age.frozen(bound, "boundVolumeGroupSnapshotContentName is immutable once set"),
        ),
        ("creationTime", moment("When the storage took the group.")),
        ("error", last_error()),
        ("readyToUse", flag("Whether volumes can be made from all snapshots of the group.")),
    ];
    let fields = vec![("spec", snapshot_spec()), ("status", object("What is known about the group.", &[], status))];
    root("A user's wish for snapshots of several volumes at one moment.", &["spec"], fields)
}

fn snapshot_spec() -> Value {
    let (selector, content) = ("selector", "volumeGroupSnapshotContentName");
    let content_schema = text("An existing content that the group is to stand for.");
    let fields = vec![
        (selector, frozen(label_selector(), "selector is immutable")),
        (content, frozen(content_schema, "volumeGroupSnapshotContentName is immutable")),
    ];
    let source = object("Where the snapshots come from. It never changes.", &[], fields);
    let source = exactly_one(required_once_set(source, &[selector, content]), selector, content);
    let class = "The class to take the snapshots with; the driver's default class if absent.";
    let class = class_name(class, "volumeGroupSnapshotClassName");
    object("What the user wants.", &["source"], vec![("source", source), ("volumeGroupSnapshotClassName", class)])
}

fn label_selector() -> Value {
    let mut values = list("What the label is compared with.", json!({"type": "string"}));
    values["x-kubernetes-list-type"] = "atomic".into();
    let fields =
        vec![("key", text("The label.")), ("operator", text("In, NotIn, Exists or DoesNotExist.")), ("values", values)];
    let expression = object("One condition on a label.", &["key", "operator"], fields);
    let mut expressions = list("Conditions that all have to hold.", expression);
    expressions["x-kubernetes-list-type"] = "atomic".into();
    let fields = vec![
        ("matchExpressions", expressions),
        ("matchLabels", texts_by_key("Labels that must have exactly these values.")),
    ];
    let mut selector = object("The claims, in the same namespace, whose volumes belong to the group.", &[], fields);
    selector["x-kubernetes-map-type"] = "atomic".into();
    selector
}

pub(super) fn contents() -> Value {
    let names = Names {
        group: GROUP,
        kind: "VolumeGroupSnapshotContent",
        plural: "volumegroupsnapshotcontents",
        short: &["vgsc", "vgscs"],
        scope: "Cluster",
        approved: APPROVED,
    };
    let reference = ".spec.volumeGroupSnapshotRef";
    let class = ".spec.volumeGroupSnapshotClassName";
    let namespace = "VolumeGroupSnapshotNamespace";
    let columns = [
        column("ReadyToUse", "boolean", ".status.readyToUse", "Whether volumes can be made from the snapshots."),
        column("DeletionPolicy", "string", ".spec.deletionPolicy", "What a delete does to the storage."),
        column("Driver", "string", ".spec.driver", "The driver that has the snapshots."),
        column("VolumeGroupSnapshotClass", "string", class, "The class it was taken with."),
        column(namespace, "string", &format!("{reference}.namespace"), "The namespace of the group it is bound to."),
        column("VolumeGroupSnapshot", "string", &format!("{reference}.name"), "The group it is bound to."),
        age(),
    ];
    definition(&names, versions(&columns, Status::Apart, content))
}

fn content(age: Age) -> Value {
    let fields = vec![("spec", content_spec(age)), ("status", content_status(age))];
    root("Snapshots on the storage that were taken at one moment.", &["spec"], fields)
}

fn content_spec(age: Age) -> Value {
    let handles = vec![
        ("volumeGroupSnapshotHandle", text("The driver's name of the group.")),
        ("volumeSnapshotHandles", list("The driver's names of its members.", json!({"type": "string"}))),
    ];
    let required = ["volumeGroupSnapshotHandle", "volumeSnapshotHandles"];
    let existing = object("A group of snapshots that exists.", &required, handles);
    let volumes = list("The driver's names of the volumes to take it from.", json!({"type": "string"}));
    let fields = vec![
        ("groupSnapshotHandles", frozen(existing, "groupSnapshotHandles is immutable")),
        ("volumeHandles", frozen(volumes, "volumeHandles is immutable")),
    ];
    let source = object("Where the snapshots come from. It never changes.", &[], fields);
    let source = required_once_set(source, &["volumeHandles", "groupSnapshotHandles"]);
    let class = text("The class the group was taken with; it may be gone by now.");
    let fields = vec![
        ("deletionPolicy", deletion_policy()),
        ("driver", age.frozen(text("The driver that has the snapshots."), "driver is immutable once set")),
        ("source", exactly_one(source, "volumeHandles", "groupSnapshotHandles")),
        ("volumeGroupSnapshotClassName", age.frozen(class, "volumeGroupSnapshotClassName is immutable once set")),
        ("volumeGroupSnapshotRef", group_reference(age)),
    ];
    let required = ["deletionPolicy", "driver", "source", "volumeGroupSnapshotRef"];
    object("What was asked of the storage.", &required, fields)
}

fn group_reference(age: Age) -> Value {
    let reference = ruled(
        object_reference("The group snapshot that this content is bound to."),
        "has(self.name) && has(self.__namespace__)",
        "both volumeGroupSnapshotRef.name and volumeGroupSnapshotRef.namespace must be set",
    );
    if age == Age::First {
        return reference;
    }
    let reference = ruled(
        reference,
        "self.name == oldSelf.name && self.__namespace__ == oldSelf.__namespace__",
        "volumeGroupSnapshotRef.name and volumeGroupSnapshotRef.namespace are immutable",
    );
    ruled(
        reference,
        "!has(oldSelf.uid) || (has(self.uid) && self.uid == oldSelf.uid)",
        "volumeGroupSnapshotRef.uid is immutable once set",
    )
}

fn content_status(age: Age) -> Value {
    let handle = text("The driver's name of the group.");
    let members = match age {
        Age::First => {
            let fields = vec![
                ("snapshotHandle", text("The driver's name of the snapshot.")),
                ("volumeHandle", text("The driver's name of the volume.")),
            ];
            let pair = object("A member of the group.", &["snapshotHandle", "volumeHandle"], fields);
            ("volumeSnapshotHandlePairList", list("The members of the group.", pair))
        }
        Age::Current => {
            let fields = vec![
                ("creationTime", whole("When the storage took the snapshot, in nanoseconds since 1970.")),
                ("readyToUse", flag("Whether a volume can be made from the snapshot.")),
                ("restoreSize", whole("The least size of a volume made from the snapshot, in bytes.")),
                ("snapshotHandle", text("The driver's name of the snapshot.")),
                ("volumeHandle", text("The driver's name of the volume.")),
            ];
            let member = object("A member of the group.", &[], fields);
            ("volumeSnapshotInfoList", list("The members of the group.", member))
        }
    };
    let fields = vec![
        ("creationTime", moment("When the storage took the group.")),
        ("error", last_error()),
        ("readyToUse", flag("Whether volumes can be made from all snapshots of the group.")),
        ("volumeGroupSnapshotHandle", age.frozen(handle, "volumeGroupSnapshotHandle is immutable once set")),
        members,
    ];
    object("What is known about the group.", &[], fields)
}

pub(super) fn classes() -> Value {
    let names = Names {
        group: GROUP,
        kind: "VolumeGroupSnapshotClass",
        plural: "volumegroupsnapshotclasses",
        short: &["vgsclass", "vgsclasses"],
        scope: "Cluster",
        approved: APPROVED,
    };
    let columns = [
        column("Driver", "string", ".driver", "The driver that takes the snapshots."),
        column("DeletionPolicy", "string", ".deletionPolicy", "What a delete does to the storage."),
        age(),
    ];
    definition(&names, versions(&columns, Status::None, class))
}

fn class(age: Age) -> Value {
    let driver = text("The driver that takes the snapshots of this class.");
    let parameters = texts_by_key("What the driver is told; it alone knows what the keys mean.");
    let fields = vec![
        ("deletionPolicy", age.frozen(deletion_policy(), "deletionPolicy is immutable once set")),
        ("driver", age.frozen(driver, "driver is immutable once set")),
        ("parameters", age.frozen(parameters, "parameters are immutable once set")),
    ];
    root("A way to take snapshots of several volumes at one moment.", &["deletionPolicy", "driver"], fields)
}
