//! Bodies of requests: JSON, templates of the kinds, raw text and hand-written protobuf.

use anyhow::{Context as _, bail};
use serde_json::{Map, Value, json};

/// What a request carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    /// Content type, unless the request says another one.
    pub(super) kind: &'static str,
}

const JSON: &str = "application/json";
pub(super) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Reads a body as scripts write it: `{...}` or `[...]`, `KIND:name{...}` for a template with changes, `@text` for the
/// text itself, `@pb apiVersion Kind fields` for protobuf.
pub(super) fn read(text: &str) -> anyhow::Result<Body> {
    if let Some(rest) = text.strip_prefix("@pb ") {
        return Ok(Body { bytes: protobuf(rest)?, kind: PROTOBUF });
    }
    if let Some(rest) = text.strip_prefix('@') {
        return Ok(Body { bytes: rest.as_bytes().to_vec(), kind: JSON });
    }
    let bytes = match template(text)? {
        Some(object) => object.to_string().into_bytes(),
        None => text.as_bytes().to_vec(),
    };
    Ok(Body { bytes, kind: JSON })
}

/// `KIND:name{changes}` or `KIND{changes}`; `None` if the text does not start with a kind.
fn template(text: &str) -> anyhow::Result<Option<Value>> {
    // The brace of a variable in the name does not count.
    let mut braces = text.match_indices('{').map(|(at, _)| at).filter(|at| !text[..*at].ends_with('$'));
    let Some(brace) = braces.next().filter(|at| *at > 0) else { return Ok(None) };
    let (head, changes) = text.split_at(brace);
    let (kind, name) = head.split_once(':').unwrap_or((head, ""));
    let Some(mut object) = base(kind) else { return Ok(None) };
    if !name.is_empty() {
        object["metadata"]["name"] = json!(name);
    }
    let changes: Value = serde_json::from_str(changes).with_context(|| format!("reading {changes}"))?;
    merge(&mut object, changes);
    Ok(Some(object))
}

/// Changes an object as a merge patch does.
fn merge(object: &mut Value, changes: Value) {
    match (object, changes) {
        (Value::Object(object), Value::Object(changes)) => {
            for (key, change) in changes {
                if change.is_null() {
                    object.remove(&key);
                } else {
                    merge(object.entry(key).or_insert(Value::Null), change);
                }
            }
        }
        (object @ Value::Null, Value::Object(changes)) => {
            *object = Value::Object(Map::new());
            merge(object, Value::Object(changes));
        }
        (object, change) => *object = change,
    }
}

/// The smallest valid object of each kind.
pub(super) fn base(kind: &str) -> Option<Value> {
    let core = |kind: &str, rest: Value| with("v1", kind, rest);
    let storage = |kind: &str, rest: Value| with("storage.k8s.io/v1", kind, rest);
    Some(match kind {
        "PVC" => core(
            "PersistentVolumeClaim",
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
        ),
        "PV" => core(
            "PersistentVolume",
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "csi": {"driver": "d.io", "volumeHandle": "h"}}}),
        ),
        "CM" => core("ConfigMap", json!({})),
        "SECRET" => core("Secret", json!({})),
        "SA" => core("ServiceAccount", json!({})),
        "NS" => core("Namespace", json!({})),
        "NODE" => core("Node", json!({})),
        "POD" => core("Pod", json!({"spec": {"containers": [{"name": "c", "image": "i"}]}})),
        "QUOTA" => core("ResourceQuota", json!({"spec": {"hard": {"persistentvolumeclaims": "5"}}})),
        "LIMITS" => core("LimitRange", json!({"spec": {"limits": []}})),
        "EVENT" => core("Event", json!({"involvedObject": {}})),
        "LEASE" => with("coordination.k8s.io/v1", "Lease", json!({"spec": {}})),
        "SC" => storage("StorageClass", json!({"provisioner": "p.io"})),
        "VA" => storage(
            "VolumeAttachment",
            json!({"spec": {"attacher": "a.io", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}}),
        ),
        "DRIVER" => storage("CSIDriver", json!({"spec": {}})),
        "CSINODE" => storage("CSINode", json!({"spec": {"drivers": [{"name": "d.io", "nodeID": "id"}]}})),
        "CAPACITY" => storage("CSIStorageCapacity", json!({"storageClassName": "sc"})),
        "VAC" => storage("VolumeAttributesClass", json!({"driverName": "d.io", "parameters": {"a": "b"}})),
        "ROLE" => with("rbac.authorization.k8s.io/v1", "Role", json!({"rules": []})),
        "FOO" => with("${ns}.io/v1", "Foo", json!({})),
        "CRD" => with("apiextensions.k8s.io/v1", "CustomResourceDefinition", definition()),
        _ => return None,
    })
}

fn with(version: &str, kind: &str, rest: Value) -> Value {
    let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {}});
    merge(&mut object, rest);
    object
}

/// `foos.<group>`, with a transition rule, a default, a status and printer columns.
fn definition() -> Value {
    let spec = json!({"type": "object", "properties": {
        "a": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "a is immutable"}]},
        "b": {"type": "string", "enum": ["x", "y"]},
        "n": {"type": "integer", "minimum": 1, "maximum": 9, "default": 3},
        "list": {"type": "array", "maxItems": 2, "items": {"type": "string", "pattern": "^[a-z]+$"}},
    }});
    let status = json!({"type": "object", "properties": {"ok": {"type": "boolean"}}});
    json!({
        "metadata": {"name": "foos.${ns}.io"},
        "spec": {
            "group": "${ns}.io", "scope": "Namespaced",
            "names": {"plural": "foos", "kind": "Foo", "shortNames": ["fo"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
                "additionalPrinterColumns": [
                    {"name": "Ok", "type": "boolean", "jsonPath": ".status.ok"},
                    {"name": "B", "type": "string", "jsonPath": ".spec.b", "priority": 1},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
            }],
        },
    })
}

/// `apiVersion Kind fields`, where a field is `number:"text"`, `number:(fields)` or `number:integer`, in the envelope of
/// Kubernetes.
fn protobuf(text: &str) -> anyhow::Result<Vec<u8>> {
    let mut words = text.splitn(3, ' ');
    let (version, kind) = (words.next().unwrap_or_default(), words.next().context("a kind")?);
    let (message, rest) = fields(words.next().unwrap_or_default())?;
    if !rest.is_empty() {
        bail!("{rest:?} is left over");
    }
    let types = [field(1, version.as_bytes()), field(2, kind.as_bytes())].concat();
    Ok([b"k8s\0".to_vec(), field(1, &types), field(2, &message)].concat())
}

fn fields(mut text: &str) -> anyhow::Result<(Vec<u8>, &str)> {
    let mut bytes = Vec::new();
    loop {
        text = text.trim_start();
        if text.is_empty() || text.starts_with(')') {
            return Ok((bytes, text));
        }
        let (number, rest) = text.split_once(':').context("a field is number:value")?;
        let number: u64 = number.parse().with_context(|| format!("{number:?} is no field number"))?;
        if let Some(rest) = rest.strip_prefix('"') {
            let (value, rest) = rest.split_once('"').context("text that is not closed")?;
            bytes.extend(field(number, value.as_bytes()));
            text = rest;
        } else if let Some(rest) = rest.strip_prefix('(') {
            let (value, rest) = fields(rest)?;
            bytes.extend(field(number, &value));
            text = rest.strip_prefix(')').context("a message that is not closed")?;
        } else {
            let end = rest.find([' ', ')']).unwrap_or(rest.len());
            bytes.extend([varint(number << 3), varint(rest[..end].parse()?)].concat());
            text = &rest[end..];
        }
    }
}

fn field(number: u64, value: &[u8]) -> Vec<u8> {
    [varint(number << 3 | 2), varint(value.len() as u64), value.to_vec()].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> Value {
        serde_json::from_slice(&read(text).expect("reads").bytes).expect("is JSON")
    }

    #[test]
    fn a_template_takes_a_name_and_changes() {
        let claim = object(r#"PVC:c1{"spec":{"accessModes":null,"volumeName":"v"}}"#);
        assert_eq!(claim["metadata"]["name"], "c1");
        assert_eq!(claim["spec"], json!({"resources": {"requests": {"storage": "1Gi"}}, "volumeName": "v"}));
    }

    #[test]
    fn what_is_no_template_stays_as_it_is() {
        assert_eq!(read(r#"{"a":1,"a":2}"#).expect("reads").bytes, br#"{"a":1,"a":2}"#);
        assert_eq!(read("@{").expect("reads").bytes, b"{");
    }

    #[test]
    fn protobuf_is_written_by_field_number() {
        let body = read(r#"@pb v1 ConfigMap 1:(1:"a") 3:1"#).expect("reads");
        assert_eq!(body.bytes, b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x07\x0a\x03\x0a\x01a\x18\x01");
    }
}
