//! Objects as the reference prints them inside error messages: its internal structs have no JSON names, so the Go names
//! appear, in the order of declaration, with absent pointers as `null`. Also the diff of two such prints.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

/// A struct of the reference, as far as it is ever printed.
pub(crate) type Shape = &'static [Member];

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) go: &'static str,
    pub(crate) json: &'static str,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    /// A string: empty when absent.
    Text,
    /// A boolean: false when absent.
    Flag,
    /// A pointer to something simple, a list or a map, or a struct with JSON names: printed as it is.
    Plain,
    /// A struct by value: printed also when absent.
    Struct(Shape),
    Pointer(Shape),
    /// A list of structs: `null` when absent.
    List(Shape),
    /// Fields that JSON shows in the outer struct.
    Inline(Shape),
}

pub(crate) const fn member(go: &'static str, json: &'static str, kind: Kind) -> Member {
    Member { go, json, kind }
}

/// A tree of lines: enough JSON to print twice, small and pretty, with keys in our order.
enum Tree {
    Leaf(String),
    Object(Vec<(String, Tree)>),
    Array(Vec<Tree>),
}

fn plain(value: &Value) -> Tree {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            Tree::Object(fields.iter().map(|(key, value)| (key.clone(), plain(value))).collect())
        }
        Value::Array(items) if !items.is_empty() => Tree::Array(items.iter().map(plain).collect()),
        other => Tree::Leaf(other.to_string()),
    }
}

fn tree(object: &Value, shape: Shape) -> Tree {
    let members = shape.iter().map(|member| {
        let value = object.get(member.json).filter(|value| !value.is_null());
        let tree = match (&member.kind, value) {
            (Kind::Text, value) => {
                Tree::Leaf(Value::from(value.and_then(Value::as_str).unwrap_or_default()).to_string())
            }
            (Kind::Flag, value) => Tree::Leaf(value.is_some_and(|value| value == &Value::Bool(true)).to_string()),
            (Kind::Plain, Some(value)) => plain(value),
            (Kind::Struct(shape), value) => tree(value.unwrap_or(&Value::Null), shape),
            (Kind::Pointer(shape), Some(value)) => tree(value, shape),
            (Kind::List(shape), Some(Value::Array(items))) => {
                Tree::Array(items.iter().map(|item| tree(item, shape)).collect())
            }
            (Kind::List(_), Some(other)) => plain(other),
            (Kind::Inline(shape), _) => tree(object, shape),
            (Kind::Plain | Kind::Pointer(_) | Kind::List(_), None) => Tree::Leaf("null".into()),
        };
        (member.go.to_string(), tree)
    });
    Tree::Object(members.collect())
}

/// On one line, as the value in an error.
pub(crate) fn compact(object: &Value, shape: Shape) -> String {
    let mut line = String::new();
    write_compact(&tree(object, shape), &mut line);
    line
}

fn write_compact(tree: &Tree, line: &mut String) {
    match tree {
        Tree::Leaf(text) => line.push_str(text),
        Tree::Object(fields) => {
            line.push('{');
            for (index, (key, value)) in fields.iter().enumerate() {
                let comma = if index == 0 { "" } else { "," };
                // Writing to a string cannot fail.
                let _ = write!(line, "{comma}\"{key}\":");
                write_compact(value, line);
            }
            line.push('}');
        }
        Tree::Array(items) => {
            line.push('[');
            for (index, item) in items.iter().enumerate() {
                line.push_str(if index == 0 { "" } else { "," });
                write_compact(item, line);
            }
            line.push(']');
        }
    }
}

fn pretty(object: &Value, shape: Shape) -> Vec<String> {
    let mut lines = vec![String::new()];
    write_pretty(&tree(object, shape), 0, &mut lines);
    lines
}

fn write_pretty(tree: &Tree, depth: usize, lines: &mut Vec<String>) {
    let (open, close, children): (_, _, Vec<(String, &Tree)>) = match tree {
        Tree::Leaf(text) => {
            append(lines, text);
            return;
        }
        Tree::Object(fields) => ("{", "}", fields.iter().map(|(key, value)| (format!("\"{key}\": "), value)).collect()),
        Tree::Array(items) => ("[", "]", items.iter().map(|item| (String::new(), item)).collect()),
    };
    append(lines, open);
    let last = children.len();
    for (index, (key, child)) in children.into_iter().enumerate() {
        lines.push(format!("{}{key}", " ".repeat(depth + 1)));
        write_pretty(child, depth + 1, lines);
        append(lines, if index + 1 == last { "" } else { "," });
    }
    lines.push(format!("{}{close}", " ".repeat(depth)));
}

fn append(lines: &mut [String], text: &str) {
    if let Some(line) = lines.last_mut() {
        line.push_str(text);
    }
}

/// The unified diff, three lines of context, of two structs printed one field a line.
pub(crate) fn diff(old: &Value, new: &Value, shape: Shape) -> String {
    unified(&pretty(old, shape), &pretty(new, shape))
}

const CONTEXT: usize = 3;

/// A line of the merged text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edit {
    Keep,
    Remove,
    Add,
}

fn unified(old: &[String], new: &[String]) -> String {
    let edits = edits(old, new);
    let mut text = String::new();
    let mut start = 0;
    while let Some(first) = edits[start..].iter().position(|(edit, ..)| *edit != Edit::Keep) {
        let begin = (start + first).saturating_sub(CONTEXT).max(start);
        let mut end = start + first;
        let mut kept = 0;
        // A hunk ends where more lines are unchanged than two contexts can cover.
        for (index, (edit, ..)) in edits.iter().enumerate().skip(end) {
            kept = if *edit == Edit::Keep { kept + 1 } else { 0 };
            if kept > 2 * CONTEXT {
                break;
            }
            end = if *edit == Edit::Keep { end } else { index + 1 };
        }
        let end = (end + CONTEXT).min(edits.len());
        write_hunk(&edits[begin..end], old, new, &mut text);
        start = end;
    }
    text
}

type Line = (Edit, usize, usize);

fn write_hunk(hunk: &[Line], old: &[String], new: &[String], text: &mut String) {
    let range = |skip: Edit, place: fn(&Line) -> usize| {
        let length = hunk.iter().filter(|(edit, ..)| *edit != skip).count();
        let first = hunk.first().map_or(0, place);
        match length {
            0 => format!("{first},0"),
            1 => format!("{}", first + 1),
            _ => format!("{},{length}", first + 1),
        }
    };
    let _ = writeln!(text, "@@ -{} +{} @@", range(Edit::Add, |line| line.1), range(Edit::Remove, |line| line.2));
    for (edit, left, right) in hunk {
        let _ = match edit {
            Edit::Keep => writeln!(text, " {}", old[*left]),
            Edit::Remove => writeln!(text, "-{}", old[*left]),
            Edit::Add => writeln!(text, "+{}", new[*right]),
        };
    }
}

/// Cells of the table of common lengths, at most. The texts usually have some hundred lines.
const MAX_CELLS: usize = 1 << 20;

/// Each line of both texts once, with its place in the old and in the new text.
fn edits(old: &[String], new: &[String]) -> Vec<Line> {
    match old.len().saturating_mul(new.len()) > MAX_CELLS {
        true => replaced(old, new),
        false => shortest(old, new),
    }
}

/// Everything between the first and the last difference as replaced: for texts that are too long to look closer.
fn replaced(old: &[String], new: &[String]) -> Vec<Line> {
    let head = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let ends = old[head..].iter().rev().zip(new[head..].iter().rev());
    let tail = ends.take_while(|(old, new)| old == new).count();
    let (old_end, new_end) = (old.len() - tail, new.len() - tail);
    let kept_head = (0..head).map(|at| (Edit::Keep, at, at));
    let removed = (head..old_end).map(|at| (Edit::Remove, at, head));
    let added = (head..new_end).map(|at| (Edit::Add, old_end, at));
    let kept_tail = (0..tail).map(|at| (Edit::Keep, old_end + at, new_end + at));
    kept_head.chain(removed).chain(added).chain(kept_tail).collect()
}

/// By the longest common sequence of lines. Each line gets a number first: lines may be long, and each is compared with
/// every line of the other text.
fn shortest(old: &[String], new: &[String]) -> Vec<Line> {
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let numbered: Vec<usize> = old
        .iter()
        .chain(new)
        .map(|line| {
            let next = numbers.len();
            *numbers.entry(line.as_str()).or_insert(next)
        })
        .collect();
    let (old, new) = numbered.split_at(old.len());
    let mut common = vec![vec![0_usize; new.len() + 1]; old.len() + 1];
    for left in (0..old.len()).rev() {
        for right in (0..new.len()).rev() {
            common[left][right] = if old[left] == new[right] {
                common[left + 1][right + 1] + 1
            } else {
                common[left + 1][right].max(common[left][right + 1])
            };
        }
    }
    let (mut left, mut right) = (0, 0);
    let mut edits = Vec::new();
    while left < old.len() || right < new.len() {
        if left < old.len() && right < new.len() && old[left] == new[right] {
            edits.push((Edit::Keep, left, right));
            (left, right) = (left + 1, right + 1);
        } else if left < old.len() && (right == new.len() || common[left + 1][right] >= common[left][right + 1]) {
            edits.push((Edit::Remove, left, right));
            left += 1;
        } else {
            edits.push((Edit::Add, left, right));
            right += 1;
        }
    }
    edits
}

const LOCAL_REFERENCE: Shape = &[
    member("APIGroup", "apiGroup", Kind::Plain),
    member("Kind", "kind", Kind::Text),
    member("Name", "name", Kind::Text),
];
const REFERENCE: Shape = &[
    member("APIGroup", "apiGroup", Kind::Plain),
    member("Kind", "kind", Kind::Text),
    member("Name", "name", Kind::Text),
    member("Namespace", "namespace", Kind::Plain),
];
const RESOURCES: Shape = &[member("Limits", "limits", Kind::Plain), member("Requests", "requests", Kind::Plain)];
const SECRET: Shape = &[member("Name", "name", Kind::Text), member("Namespace", "namespace", Kind::Text)];

pub(crate) const CLAIM_SPEC: Shape = &[
    member("AccessModes", "accessModes", Kind::Plain),
    member("Selector", "selector", Kind::Plain),
    member("Resources", "resources", Kind::Struct(RESOURCES)),
    member("VolumeName", "volumeName", Kind::Text),
    member("StorageClassName", "storageClassName", Kind::Plain),
    member("VolumeMode", "volumeMode", Kind::Plain),
    member("DataSource", "dataSource", Kind::Pointer(LOCAL_REFERENCE)),
    member("DataSourceRef", "dataSourceRef", Kind::Pointer(REFERENCE)),
    member("VolumeAttributesClassName", "volumeAttributesClassName", Kind::Plain),
];

const CSI: Shape = &[
    member("Driver", "driver", Kind::Text),
    member("VolumeHandle", "volumeHandle", Kind::Text),
    member("ReadOnly", "readOnly", Kind::Flag),
    member("FSType", "fsType", Kind::Text),
    member("VolumeAttributes", "volumeAttributes", Kind::Plain),
    member("ControllerPublishSecretRef", "controllerPublishSecretRef", Kind::Pointer(SECRET)),
    member("NodeStageSecretRef", "nodeStageSecretRef", Kind::Pointer(SECRET)),
    member("NodePublishSecretRef", "nodePublishSecretRef", Kind::Pointer(SECRET)),
    member("ControllerExpandSecretRef", "controllerExpandSecretRef", Kind::Pointer(SECRET)),
    member("NodeExpandSecretRef", "nodeExpandSecretRef", Kind::Pointer(SECRET)),
];

/// The sources with their own shape; those nobody uses any more keep their JSON names inside.
pub(crate) const VOLUME_SOURCE: Shape = &[
    member("GCEPersistentDisk", "gcePersistentDisk", Kind::Plain),
    member("AWSElasticBlockStore", "awsElasticBlockStore", Kind::Plain),
    member(
        "HostPath",
        "hostPath",
        Kind::Pointer(&[member("Path", "path", Kind::Text), member("Type", "type", Kind::Plain)]),
    ),
    member("Glusterfs", "glusterfs", Kind::Plain),
    member(
        "NFS",
        "nfs",
        Kind::Pointer(&[
            member("Server", "server", Kind::Text),
            member("Path", "path", Kind::Text),
            member("ReadOnly", "readOnly", Kind::Flag),
        ]),
    ),
    member("RBD", "rbd", Kind::Plain),
    member("Quobyte", "quobyte", Kind::Plain),
    member("ISCSI", "iscsi", Kind::Plain),
    member("FlexVolume", "flexVolume", Kind::Plain),
    member("Cinder", "cinder", Kind::Plain),
    member("CephFS", "cephfs", Kind::Plain),
    member("FC", "fc", Kind::Plain),
    member("Flocker", "flocker", Kind::Plain),
    member("AzureFile", "azureFile", Kind::Plain),
    member("VsphereVolume", "vsphereVolume", Kind::Plain),
    member("AzureDisk", "azureDisk", Kind::Plain),
    member("PhotonPersistentDisk", "photonPersistentDisk", Kind::Plain),
    member("PortworxVolume", "portworxVolume", Kind::Plain),
    member("ScaleIO", "scaleIO", Kind::Plain),
    member(
        "Local",
        "local",
        Kind::Pointer(&[member("Path", "path", Kind::Text), member("FSType", "fsType", Kind::Plain)]),
    ),
    member("StorageOS", "storageos", Kind::Plain),
    member("CSI", "csi", Kind::Pointer(CSI)),
];

const REQUIREMENT: Shape = &[
    member("Key", "key", Kind::Text),
    member("Operator", "operator", Kind::Text),
    member("Values", "values", Kind::Plain),
];

pub(crate) const NODE_AFFINITY: Shape = &[member(
    "Required",
    "required",
    Kind::Pointer(&[member(
        "NodeSelectorTerms",
        "nodeSelectorTerms",
        Kind::List(&[
            member("MatchExpressions", "matchExpressions", Kind::List(REQUIREMENT)),
            member("MatchFields", "matchFields", Kind::List(REQUIREMENT)),
        ]),
    )]),
)];

const VOLUME_SPEC: Shape = &[
    member("Capacity", "capacity", Kind::Plain),
    member("PersistentVolumeSource", "", Kind::Inline(VOLUME_SOURCE)),
    member("AccessModes", "accessModes", Kind::Plain),
    member("ClaimRef", "claimRef", Kind::Plain),
    member("PersistentVolumeReclaimPolicy", "persistentVolumeReclaimPolicy", Kind::Text),
    member("StorageClassName", "storageClassName", Kind::Text),
    member("MountOptions", "mountOptions", Kind::Plain),
    member("VolumeMode", "volumeMode", Kind::Plain),
    member("NodeAffinity", "nodeAffinity", Kind::Pointer(NODE_AFFINITY)),
    member("VolumeAttributesClassName", "volumeAttributesClassName", Kind::Plain),
];

pub(crate) const ATTACHMENT_SPEC: Shape = &[
    member("Attacher", "attacher", Kind::Text),
    member(
        "Source",
        "source",
        Kind::Struct(&[
            member("PersistentVolumeName", "persistentVolumeName", Kind::Plain),
            member("InlineVolumeSpec", "inlineVolumeSpec", Kind::Pointer(VOLUME_SPEC)),
        ]),
    ),
    member("NodeName", "nodeName", Kind::Text),
];

pub(crate) const CSI_NODE_DRIVER: Shape = &[
    member("Name", "name", Kind::Text),
    member("NodeID", "nodeID", Kind::Text),
    member("TopologyKeys", "topologyKeys", Kind::Plain),
    member("Allocatable", "allocatable", Kind::Plain),
];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_changed_access_mode_shows_as_the_reference_shows_it() {
        let claim = |mode: &str| json!({"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}});
        let expected = "@@ -1,6 +1,6 @@\n {\n  \"AccessModes\": [\n-  \"ReadWriteMany\"\n+  \"ReadWriteOnce\"\n  ],\n  \
                        \"Selector\": null,\n  \"Resources\": {\n";
        assert_eq!(diff(&claim("ReadWriteMany"), &claim("ReadWriteOnce"), CLAIM_SPEC), expected);
    }

    #[test]
    fn far_changes_are_two_hunks() {
        let old: Vec<String> = (0..20).map(|line| line.to_string()).collect();
        let mut new = old.clone();
        new[2] = "x".into();
        new[15] = "y".into();
        new.push("z".into());
        let text = unified(&old, &new);
        let heads: Vec<&str> = text.lines().filter(|line| line.starts_with("@@")).collect();
        assert_eq!(heads, ["@@ -1,6 +1,6 @@", "@@ -13,8 +13,9 @@"]);
    }

    /// Found by the fuzzer: a claim with ten thousand access modes took a table of a hundred million cells.
    #[test]
    fn long_texts_are_compared_without_a_table() {
        let text = |middle: &str| -> Vec<String> {
            let line = |at: usize| if (10..50_000).contains(&at) { middle.to_owned() } else { at.to_string() };
            (0..50_010).map(line).collect()
        };
        let (old, new) = (text("a"), text("b"));
        let edits = edits(&old, &new);
        assert_eq!(edits.len(), 10 + 2 * 49_990 + 10);
        let shown = unified(&old, &new);
        assert!(shown.starts_with("@@ -8,49996 +8,49996 @@\n 7\n 8\n 9\n-a\n"), "{}", &shown[..60]);
    }

    #[test]
    fn an_attachment_spec_prints_go_names_in_order() {
        let spec = json!({"attacher": "d.io", "nodeName": "n2", "source": {"persistentVolumeName": "pv1"}});
        assert_eq!(
            compact(&spec, ATTACHMENT_SPEC),
            "{\"Attacher\":\"d.io\",\"Source\":{\"PersistentVolumeName\":\"pv1\",\"InlineVolumeSpec\":null},\"NodeName\":\"n2\"}"
        );
    }
}
