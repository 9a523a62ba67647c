//! The ways in which a grown object reaches the server.

use apiserver::schema::kinds::{ALL, Foreign, Kind, Persistence, Scope, Verb};
use serde_json::{Value, json};

use super::places::{Filling, Place};
use crate::case::{Part, Step};

/// How an object is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Create,
    /// A PUT of an object that exists.
    Update,
    Merge,
    Strategic,
    Apply,
    /// A PUT of the status of an object that exists.
    UpdateStatus,
    MergeStatus,
    /// A POST to a subresource that takes a body of its own kind.
    Ask,
}

/// The name of the object that exists.
fn existing(kind: &Kind) -> &'static str {
    match kind.kind {
        "CustomResourceDefinition" => "grown.conf.io",
        _ => "a",
    }
}

/// Requests that make one object of every kind of which objects can be made.
pub fn samples() -> impl Iterator<Item = (&'static str, Step)> {
    let stored = ALL.iter().filter(|kind| kind.persistence != Persistence::Virtual && kind.allows(Verb::Create));
    stored.map(|kind| {
        let object = whole(kind, json!({}), existing(kind));
        (kind.kind, json_step("POST", &collection(kind), "application/json", &object))
    })
}

impl Way {
    pub const ALL: &'static [Self] = &[
        Self::Create,
        Self::Update,
        Self::Merge,
        Self::Strategic,
        Self::Apply,
        Self::UpdateStatus,
        Self::MergeStatus,
        Self::Ask,
    ];

    /// Whether the kind of a place takes such requests.
    pub fn fits(self, place: &Place) -> bool {
        let (kind, below) = (place.kind, place.below.is_some());
        let allowed = |verb: Verb| !below && kind.allows(verb);
        let of_status = |verb: Verb| {
            let mut subresources = kind.subresources.iter();
            !below && place.is_status() && subresources.any(|it| it.name == "status" && it.verbs.contains(&verb))
        };
        match self {
            Self::Create => allowed(Verb::Create),
            Self::Update => allowed(Verb::Update),
            // Apply creates what does not exist.
            Self::Merge | Self::Strategic | Self::Apply => allowed(Verb::Patch),
            Self::UpdateStatus => of_status(Verb::Update),
            Self::MergeStatus => of_status(Verb::Patch),
            Self::Ask => place.below.is_some_and(|below| below.subresource.verbs.contains(&Verb::Create)),
        }
    }

    pub fn request(self, place: &Place, filling: Filling, count: usize) -> Step {
        let (kind, name) = (place.kind, existing(place.kind));
        let filled = place.filled(filling, count);
        let collection = collection(kind);
        let [one, status] = ["", "/status"].map(|below| format!("{collection}/{name}{below}?dryRun=All"));
        match self {
            Self::Create => {
                let object = whole(kind, filled, "growth");
                json_step("POST", &format!("{collection}?dryRun=All"), "application/json", &object)
            }
            Self::Update => json_step("PUT", &one, "application/json", &whole(kind, filled, name)),
            Self::UpdateStatus => json_step("PUT", &status, "application/json", &whole(kind, filled, name)),
            Self::Merge => json_step("PATCH", &one, "application/merge-patch+json", &filled),
            Self::MergeStatus => json_step("PATCH", &status, "application/merge-patch+json", &filled),
            Self::Strategic => json_step("PATCH", &one, "application/strategic-merge-patch+json", &filled),
            Self::Apply => {
                let uri = format!("{one}&fieldManager=growth&force=true");
                json_step("PATCH", &uri, "application/apply-patch+yaml", &whole(kind, filled, name))
            }
            Self::Ask => {
                let (subresource, object) = match place.below {
                    Some(below) => (below.subresource.name, question(below.body, filled, name)),
                    None => ("", filled),
                };
                let uri = format!("{collection}/{name}/{subresource}?dryRun=All");
                json_step("POST", &uri, "application/json", &object)
            }
        }
    }
}

/// The grown body of a question about an object.
fn question(body: &Foreign, grown: Value, name: &str) -> Value {
    let version = match body.group {
        "" => body.version.to_owned(),
        group => format!("{group}/{}", body.version),
    };
    let mut object = json!({"apiVersion": version, "kind": body.kind, "metadata": {"name": name}});
    lay_over(&mut object, grown);
    object
}

fn collection(kind: &Kind) -> String {
    let root = if kind.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", kind.group) };
    let namespace = if kind.scope == Scope::Namespaced { "/namespaces/default" } else { "" };
    format!("{root}/{}{namespace}/{}", kind.version, kind.resource)
}

/// The grown object with what it needs to be an object of its kind.
fn whole(kind: &Kind, grown: Value, name: &str) -> Value {
    let mut object = sample(kind.kind);
    object["apiVersion"] = kind.api_version().into();
    object["kind"] = kind.kind.into();
    object["metadata"]["name"] = name.into();
    lay_over(&mut object, grown);
    object
}

/// What a kind needs besides a name to be accepted.
fn sample(kind: &str) -> Value {
    match kind {
        "Pod" => json!({"spec": {"containers": [{"name": "c", "image": "i"}]}}),
        "PersistentVolumeClaim" => {
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
        }
        "PersistentVolume" => json!({"spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "csi": {"driver": "d.io", "volumeHandle": "h"},
        }}),
        "StorageClass" => json!({"provisioner": "d.io"}),
        "VolumeAttributesClass" => json!({"driverName": "d.io", "parameters": {"a": "b"}}),
        "VolumeAttachment" => {
            json!({"spec": {"attacher": "d.io", "nodeName": "n", "source": {"persistentVolumeName": "v"}}})
        }
        "CSIStorageCapacity" => json!({"storageClassName": "c"}),
        "CustomResourceDefinition" => crate::http::definition("grown.conf.io", "Grown"),
        // Both kinds of events have these fields.
        "Event" => json!({
            "involvedObject": {"namespace": "default"}, "regarding": {"namespace": "default"}, "type": "Normal",
            "eventTime": "2026-01-01T00:00:00.000000Z", "reason": "r", "action": "a",
            "reportingController": "a.io/b", "reportingInstance": "i", "reportingComponent": "a.io/b",
        }),
        "RoleBinding" | "ClusterRoleBinding" => {
            let group = "rbac.authorization.k8s.io";
            json!({"roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "r"}})
        }
        _ => json!({}),
    }
}

/// Fields of `change` replace those of `target`; maps are merged, and the first items of lists.
fn lay_over(target: &mut Value, change: Value) {
    match (target, change) {
        (Value::Object(target), Value::Object(change)) => {
            for (name, value) in change {
                lay_over(target.entry(name).or_insert(Value::Null), value);
            }
        }
        (Value::Array(target), Value::Array(change)) if change.len() == 1 && !target.is_empty() => {
            change.into_iter().for_each(|item| lay_over(&mut target[0], item));
        }
        (target, change) => *target = change,
    }
}

const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const FOOS: &str = "/apis/conf.io/v1/namespaces/default/foos";

fn json_step(method: &str, uri: &str, media: &str, body: &Value) -> Step {
    Step::new(method, uri).with_body(media, vec![Part::text(body.to_string())])
}

fn names(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("n{number}"))
}

/// A name, and a request of a given size.
pub type GrowingRequest = (&'static str, fn(usize) -> Step);

/// Requests in which two parts grow together.
pub fn special_cases() -> Vec<GrowingRequest> {
    let mut cases = cases_of_objects_and_patches();
    cases.extend(cases_of_managers_and_definitions());
    cases.extend(cases_of_selectors());
    cases
}

fn cases_of_selectors() -> Vec<GrowingRequest> {
    // A request's path and query may have 48 KB: in the larger of two sizes it is nearly full.
    vec![
        ("a label selector that says the same many times", |count| {
            selecting("labelSelector", count, |_| "!a".to_owned())
        }),
        ("a label selector of many requirements", |count| {
            selecting("labelSelector", count / 2, |number| format!("!a{number}"))
        }),
        ("a label selector with many values", |count| {
            let values = names(count / 2).collect::<Vec<_>>().join(",");
            selecting("labelSelector", 1, |_| format!("a%20in%20({values})"))
        }),
        ("a label selector that is no selector", |count| {
            selecting("labelSelector", count / 2, |number| format!("-{number}!"))
        }),
        ("a field selector that says the same many times", |count| {
            selecting("fieldSelector", count / 5, |_| "metadata.name!%3Da".to_owned())
        }),
        ("a field selector of many terms", |count| {
            selecting("fieldSelector", count / 8, |number| format!("metadata.name!%3Da{number}"))
        }),
    ]
}

/// A list by a selector of so many parts.
fn selecting(kind: &str, count: usize, part: impl Fn(usize) -> String) -> Step {
    let parts: Vec<String> = (0..count).map(part).collect();
    Step::new("GET", format!("/api/v1/configmaps?{kind}={}", parts.join(",")))
}

fn cases_of_objects_and_patches() -> Vec<GrowingRequest> {
    vec![
        ("a pod that mounts every volume", |count| {
            let volumes: Vec<Value> = names(count).map(|name| json!({"name": name, "emptyDir": {}})).collect();
            let mounts: Vec<Value> = names(count).map(|name| json!({"name": name, "mountPath": name})).collect();
            let devices: Vec<Value> = names(count).map(|name| json!({"name": name, "devicePath": name})).collect();
            let container = json!({"name": "c", "image": "i", "volumeMounts": mounts, "volumeDevices": devices});
            let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [container], "volumes": volumes}});
            json_step("POST", &format!("{PODS}?dryRun=All"), "application/json", &pod)
        }),
        ("a map whose texts are also bytes", |count| {
            let data = |value: &str| names(count).map(|name| (name, json!(value))).collect::<Value>();
            let map = json!({"metadata": {"name": "m"}, "data": data("x"), "binaryData": data("eA==")});
            json_step("POST", &format!("{MAPS}?dryRun=All"), "application/json", &map)
        }),
        ("a JSON patch with many operations", |count| {
            let add = |name: String| json!({"op": "add", "path": format!("/data/{name}"), "value": "x"});
            let patch: Value = names(count.min(10_000)).map(add).collect();
            json_step("PATCH", &format!("{MAPS}/a?dryRun=All"), "application/json-patch+json", &patch)
        }),
        ("a JSON patch that fills a list from its front", |count| {
            let first = json!({"op": "add", "path": "/metadata/finalizers", "value": []});
            let add =
                |name: String| json!({"op": "add", "path": "/metadata/finalizers/0", "value": format!("x.io/{name}")});
            let patch: Value = std::iter::once(first).chain(names(count.min(9_000)).map(add)).collect();
            json_step("PATCH", &format!("{MAPS}/a?dryRun=All"), "application/json-patch+json", &patch)
        }),
        ("a strategic patch of many containers", |count| {
            let containers: Vec<Value> =
                names(count).rev_list().map(|name| json!({"name": name, "image": "i"})).collect();
            let order: Vec<Value> = names(count).map(|name| json!({ "name": name })).collect();
            let patch = json!({"spec": {"containers": containers, "$setElementOrder/containers": order}});
            json_step("PATCH", &format!("{PODS}/a?dryRun=All"), "application/strategic-merge-patch+json", &patch)
        }),
        ("a strategic patch that keeps many keys", |count| {
            let data = names(count).map(|name| (name, json!("x"))).collect::<Value>();
            let mut patch = json!({ "data": data });
            patch["data"]["$retainKeys"] = names(count).collect();
            json_step("PATCH", &format!("{MAPS}/a?dryRun=All"), "application/strategic-merge-patch+json", &patch)
        }),
    ]
}

fn cases_of_managers_and_definitions() -> Vec<GrowingRequest> {
    vec![
        ("many managers with a field each", |count| {
            managed(count, |name| json!({"f:data": {format!("f:{name}"): {}}}))
        }),
        ("managers of numbers in the order of texts", |count| {
            let values = (0..count).map(|number| (format!("v:{number}"), json!({}))).collect::<Value>();
            let entry = json!({
                "manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:metadata": {"f:finalizers": values}},
            });
            let map = json!({"metadata": {"name": "a", "managedFields": [entry]}, "data": {"k": "v"}});
            json_step("PUT", &format!("{MAPS}/a?dryRun=All"), "application/json", &map)
        }),
        ("an applied list in reverse order", |count| {
            let pairs = names(count).rev_list().map(|name| json!({"name": name, "image": "i"}));
            let spec = json!({ "containers": pairs.collect::<Vec<_>>() });
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec});
            let uri = format!("{PODS}/a?dryRun=All&fieldManager=g&force=true");
            json_step("PATCH", &uri, "application/apply-patch+yaml", &pod)
        }),
        ("a long key above many values of a custom object", |count| {
            let list = vec![json!(1); count];
            let free = json!({ "k".repeat(4 * count): {"l": list} });
            let object = json!({
                "apiVersion": "conf.io/v1", "kind": "Foo", "metadata": {"name": "g"}, "spec": {"free": free},
            });
            json_step("POST", &format!("{FOOS}?dryRun=All"), "application/json", &object)
        }),
        ("a long key above many unknown fields", |count| {
            let unknown = names(count).map(|name| (name, json!(0))).collect::<Value>();
            let mut definition = crate::http::definition("grown.conf.io", "Grown");
            let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            schema["properties"]["k".repeat(4 * count)] = unknown;
            let uri = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All";
            json_step("POST", uri, "application/json", &definition)
        }),
        ("a definition with many patterns", |count| {
            let pattern =
                |name: String| (name.clone(), json!({"type": "string", "pattern": format!("^{name}[a-z]*$")}));
            let mut definition = crate::http::definition("grown.conf.io", "Grown");
            let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            schema["properties"]["spec"]["properties"] = names(count).map(pattern).collect();
            let uri = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All";
            json_step("POST", uri, "application/json", &definition)
        }),
        ("an applied item with a long name and many wrong parts", |count| {
            let env: Vec<Value> = names(count).map(|name| json!({"name": name, "value": 1})).collect();
            let spec = json!({"containers": [{"name": "c".repeat(4 * count), "image": "i", "env": env}]});
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec});
            let uri = format!("{PODS}/a?dryRun=All&fieldManager=g&force=true");
            json_step("PATCH", &uri, "application/apply-patch+yaml", &pod)
        }),
    ]
}

/// A PUT that names so many managers.
fn managed(count: usize, fields: fn(&str) -> Value) -> Step {
    let entry = |name: String| {
        let fields = fields(&name);
        json!({
            "manager": name, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields,
        })
    };
    let entries: Vec<Value> = names(count).map(entry).collect();
    let data = names(count).map(|name| (name, json!("x"))).collect::<Value>();
    let map = json!({"metadata": {"name": "a", "managedFields": entries}, "data": data});
    json_step("PUT", &format!("{MAPS}/a?dryRun=All"), "application/json", &map)
}

/// Names from the last to the first.
trait Reversed {
    fn rev_list(self) -> std::iter::Rev<std::vec::IntoIter<String>>;
}

impl<I: Iterator<Item = String>> Reversed for I {
    fn rev_list(self) -> std::iter::Rev<std::vec::IntoIter<String>> {
        self.collect::<Vec<_>>().into_iter().rev()
    }
}
