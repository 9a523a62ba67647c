//! What each plugin decides, as tables that name the checks of the conformance list they stand for.

use super::*;
use crate::kinds::meta::generate_name;
use serde_json::json;
use std::collections::BTreeMap;

/// A cluster made of the objects a test names.
#[derive(Default)]
struct World(BTreeMap<(String, String), Vec<Value>>);

impl World {
    fn with(mut self, kind: &str, object: Value) -> Self {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        self.0.entry((kind.into(), namespace.into())).or_default().push(object);
        self
    }
}

impl Lookup for World {
    fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        self.list(kind, namespace).into_iter().find(|object| object["metadata"]["name"] == name)
    }

    fn list(&self, kind: &str, namespace: &str) -> Vec<Value> {
        self.0.get(&(kind.into(), namespace.into())).cloned().unwrap_or_default()
    }
}

fn world() -> World {
    World::default().with("Namespace", json!({"metadata": {"name": "conf"}, "status": {"phase": "Active"}}))
}

fn create<'a>(group: &'a str, plural: &'a str, namespace: &'a str) -> Request<'a> {
    let resource = Resource::new(group, plural);
    Request { operation: Operation::Create, resource, subresource: "", namespace, name: "x", old: None }
}

fn update<'a>(plural: &'a str, old: &'a Value) -> Request<'a> {
    Request { operation: Operation::Update, old: Some(old), ..create("", plural, "conf") }
}

fn first(_: usize) -> usize {
    0
}

fn admit(request: &Request<'_>, mut object: Value, world: &World) -> Result<Value, ApiError> {
    mutate(request, &mut object, world, &mut first).map(|()| object)
}

fn class(name: &str, created: &str, annotation: &str) -> Value {
    let mark = json!({"storageclass.kubernetes.io/is-default-class": annotation});
    json!({"metadata": {"name": name, "creationTimestamp": created, "annotations": mark}})
}

fn claim(size: &str) -> Value {
    json!({"metadata": {"name": "x", "namespace": "conf"}, "spec": {"resources": {"requests": {"storage": size}}}})
}

/// Rules: API-C028, API-C184
#[test]
fn nothing_is_created_in_a_missing_or_dying_namespace() {
    let dying = json!({"metadata": {"name": "conf2", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Terminating"}});
    let world = world().with("Namespace", dying);
    let missing = admit(&create("", "configmaps", "nope"), json!({}), &world).expect_err("API-C028");
    assert_eq!((missing.code, missing.message.as_str()), (404, "namespaces \"nope\" not found"));
    assert_eq!(missing.details.map(|details| details.kind), Some("namespaces".into()));
    let refused = admit(&create("", "configmaps", "conf2"), json!({}), &world).expect_err("API-C184");
    let text =
        "configmaps \"x\" is forbidden: unable to create new content in namespace conf2 because it is being terminated";
    assert_eq!(refused.message, text);
    let cause = refused.details.expect("details").causes.remove(0);
    assert_eq!((cause.reason.as_str(), cause.field.as_str()), ("NamespaceTerminating", "metadata.namespace"));
    let old = json!({});
    let update = Request { namespace: "conf2", ..update("configmaps", &old) };
    admit(&update, json!({}), &world).expect("updates go on");
    admit(&create("authorization.k8s.io", "localsubjectaccessreviews", "nope"), json!({}), &world).expect("exempt");
}

/// Rule: API-C181
#[test]
fn three_namespaces_are_immortal() {
    let delete = |name| Request { operation: Operation::Delete, name, ..create("", "namespaces", "") };
    let refused = check_delete(&delete("default"), &world()).expect_err("API-C181");
    assert_eq!(refused.message, "namespaces \"default\" is forbidden: this namespace may not be deleted");
    assert_eq!(check_delete(&delete("conf"), &world()), Ok(()));
}

/// Rules: API-C019, API-C111, API-C167, API-0.10
#[test]
fn storage_objects_are_born_protected() {
    let cases = [
        ("", "persistentvolumes", "", json!(["kubernetes.io/pv-protection"])),
        ("", "persistentvolumeclaims", "conf", json!(["kubernetes.io/pvc-protection"])),
        ("storage.k8s.io", "volumeattributesclasses", "", json!(["kubernetes.io/vac-protection"])),
        ("storage.k8s.io", "storageclasses", "", Value::Null),
    ];
    for (group, plural, namespace, expected) in cases {
        let admitted = admit(&create(group, plural, namespace), json!({"metadata": {}}), &world())
            .expect("API-C019, API-C111, API-C167");
        assert_eq!(admitted["metadata"]["finalizers"], expected, "{plural}");
        let again = admit(&create(group, plural, namespace), admitted.clone(), &world()).expect("admitted");
        assert_eq!(again["metadata"], admitted["metadata"], "not twice");
    }
    let old = json!({"metadata": {}});
    let kept = admit(&update("persistentvolumeclaims", &old), json!({"metadata": {}}), &world()).expect("API-0.10");
    assert_eq!(kept["metadata"].get("finalizers"), None);
}

/// Rules: API-C131, API-C132
#[test]
fn a_claim_without_a_class_gets_the_newest_default() {
    let world = world()
        .with("StorageClass", class("old", "2026-01-01T00:00:00Z", "true"))
        .with("StorageClass", class("b", "2026-01-02T00:00:00Z", "true"))
        .with("StorageClass", class("a", "2026-01-02T00:00:00Z", "true"))
        .with("StorageClass", class("newest", "2026-01-03T00:00:00Z", "false"));
    let request = create("", "persistentvolumeclaims", "conf");
    let class_of = |claim| admit(&request, claim, &world).expect("admitted")["spec"]["storageClassName"].clone();
    assert_eq!(class_of(claim("1Gi")), "a", "API-C131: the newest default, ties by name");
    let mut named = claim("1Gi");
    named["spec"]["storageClassName"] = json!("");
    assert_eq!(class_of(named), "", "API-C132");
    let mut annotated = claim("1Gi");
    annotated["metadata"]["annotations"] = json!({"volume.beta.kubernetes.io/storage-class": "z"});
    assert_eq!(class_of(annotated), Value::Null);
}

/// Rules: API-C142, API-C144
#[test]
fn only_bound_claims_of_a_growing_class_grow() {
    let bound = |class: &str, phase: &str| {
        let mut claim = claim("1Gi");
        claim["spec"]["storageClassName"] = json!(class);
        claim["status"] = json!({"phase": phase});
        claim
    };
    let mut growing = class("grows", "", "");
    growing["allowVolumeExpansion"] = json!(true);
    let world = world().with("StorageClass", growing).with("StorageClass", class("fixed", "", ""));
    let cannot = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";
    let cases = [
        (bound("grows", "Bound"), "2Gi", None),
        (bound("fixed", "Bound"), "2Gi", Some(cannot)),
        (bound("gone", "Bound"), "2Gi", Some(cannot)),
        (bound("", "Bound"), "2Gi", Some(cannot)),
        (bound("grows", "Pending"), "2Gi", Some("Only bound persistent volume claims can be expanded")),
        (bound("fixed", "Bound"), "512Mi", None),
    ];
    for (old, size, expected) in cases {
        let mut new = old.clone();
        new["spec"]["resources"]["requests"]["storage"] = json!(size);
        let result = validate(&update("persistentvolumeclaims", &old), &new, &world);
        let expected = expected.map(|why| format!("persistentvolumeclaims \"x\" is forbidden: {why}"));
        assert_eq!(result.err().map(|error| error.message), expected, "API-C142, API-C144: {old} to {size}");
    }
}

#[test]
fn claims_stay_inside_the_limits_of_their_namespace() {
    let range = json!({"metadata": {"name": "l", "namespace": "conf"}, "spec": {"limits": [
        {"type": "PersistentVolumeClaim", "min": {"storage": "512Mi"}, "max": {"storage": "3Gi"}},
        {"type": "Container", "max": {"storage": "1"}},
    ]}});
    let world = world().with("LimitRange", range);
    let request = create("", "persistentvolumeclaims", "conf");
    let cases = [
        ("1Mi", Some("minimum storage usage per PersistentVolumeClaim is 512Mi, but request is 1Mi")),
        ("30Gi", Some("maximum storage usage per PersistentVolumeClaim is 3Gi, but request is 30Gi")),
        ("1Gi", None),
    ];
    for (size, expected) in cases {
        let result = validate(&request, &claim(size), &world);
        let expected = expected.map(|why| format!("persistentvolumeclaims \"x\" is forbidden: {why}"));
        assert_eq!(result.err().map(|error| error.message), expected);
    }
    let old = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": claim("1Mi")["spec"]});
    validate(&update("persistentvolumeclaims", &old), &claim("1Mi"), &world).expect("the dying may be released");
}

fn quota(hard: Value, used: Value) -> Value {
    json!({"metadata": {"name": "q1", "namespace": "conf"}, "status": {"hard": hard, "used": used}})
}

/// Rule: API-7
#[test]
fn a_quota_refuses_what_exceeds_it_and_names_only_that() {
    let hard = json!({"requests.storage": "4Gi", "persistentvolumeclaims": "9", "gold.storageclass.storage.k8s.io/requests.storage": "1Gi"});
    let used = json!({"requests.storage": "3Gi", "persistentvolumeclaims": "1"});
    let world = world().with("ResourceQuota", quota(hard, used));
    let request = create("", "persistentvolumeclaims", "conf");
    let refused = validate(&request, &claim("2Gi"), &world).expect_err("API-7");
    let expected = "persistentvolumeclaims \"x\" is forbidden: exceeded quota: q1, requested: requests.storage=2Gi, used: \
                    requests.storage=3Gi, limited: requests.storage=4Gi";
    assert_eq!(refused.message, expected);
    let mut gold = claim("2Gi");
    gold["spec"]["storageClassName"] = json!("gold");
    let refused = validate(&request, &gold, &world).expect_err("two keys");
    let expected = "requested: gold.storageclass.storage.k8s.io/requests.storage=2Gi,requests.storage=2Gi, used: \
                    gold.storageclass.storage.k8s.io/requests.storage=0,requests.storage=3Gi, limited: \
                    gold.storageclass.storage.k8s.io/requests.storage=1Gi,requests.storage=4Gi";
    assert!(refused.message.ends_with(expected), "{}", refused.message);
}

#[test]
fn an_accepted_claim_is_charged_before_it_is_stored() {
    let world = world().with(
        "ResourceQuota",
        quota(
            json!({"requests.storage": "4Gi", "persistentvolumeclaims": "9", "pods": "1"}),
            json!({"requests.storage": "1Gi", "pods": "1"}),
        ),
    );
    let request = create("", "persistentvolumeclaims", "conf");
    let charges = validate(&request, &claim("2Gi"), &world).expect("fits");
    assert_eq!(charges.len(), 1);
    assert_eq!(
        charges[0].quota["status"]["used"],
        json!({"requests.storage": "3Gi", "persistentvolumeclaims": "1", "pods": "1"})
    );
    let mut old = claim("1Gi");
    old["status"] = json!({"phase": "Bound"});
    let mut allocated = old.clone();
    allocated["status"]["allocatedResources"] = json!({"storage": "2Gi"});
    let status = Request { subresource: "status", ..update("persistentvolumeclaims", &old) };
    let charges = validate(&status, &allocated, &world).expect("fits");
    assert_eq!(
        charges[0].quota["status"]["used"]["requests.storage"], "2Gi",
        "the larger of request and allocation counts"
    );
    let mut labelled = old.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(validate(&update("persistentvolumeclaims", &old), &labelled, &world), Ok(Vec::new()));
}

#[test]
fn a_quota_without_status_or_for_other_things_refuses_nothing() {
    let spec = json!({"hard": {"requests.storage": "1"}});
    let uncounted = json!({"metadata": {"name": "q", "namespace": "conf"}, "spec": spec});
    let mut for_pods = quota(json!({"persistentvolumeclaims": "0"}), json!({}));
    for_pods["spec"] = json!({"scopes": ["BestEffort"]});
    let mut for_gold = for_pods.clone();
    for_gold["spec"] = json!({"scopeSelector": {"matchExpressions": [{"scopeName": "VolumeAttributesClass", "operator": "In", "values": ["gold"]}]}});
    let world =
        world().with("ResourceQuota", uncounted).with("ResourceQuota", for_pods).with("ResourceQuota", for_gold);
    let request = create("", "persistentvolumeclaims", "conf");
    assert_eq!(validate(&request, &claim("2Gi"), &world), Ok(Vec::new()));
    let mut gold = claim("2Gi");
    gold["spec"]["volumeAttributesClassName"] = json!("gold");
    validate(&request, &gold, &world).expect_err("the scope of its attributes class is full");
}

#[test]
fn every_pod_has_an_account_and_a_token() {
    let request = create("", "pods", "conf");
    let pod = json!({"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c"}]}});
    let refused = admit(&request, pod.clone(), &world()).expect_err("no account");
    let text =
        "pods \"x\" is forbidden: error looking up service account conf/default: serviceaccount \"default\" not found";
    assert_eq!(refused.message, text);
    let account = json!({"metadata": {"name": "default", "namespace": "conf"}, "imagePullSecrets": [{"name": "s"}]});
    let world = world().with("ServiceAccount", account);
    let admitted = admit(&request, pod.clone(), &world).expect("admitted");
    let volume = generate_name("kube-api-access-", &mut first);
    assert_eq!(admitted["spec"]["serviceAccountName"], "default");
    assert_eq!(admitted["spec"]["imagePullSecrets"], json!([{"name": "s"}]));
    assert_eq!(admitted["spec"]["volumes"][0]["name"], volume);
    assert_eq!(
        admitted["spec"]["volumes"][0]["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"],
        3607
    );
    let mount = json!({"name": volume, "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"});
    assert_eq!(admitted["spec"]["containers"][0]["volumeMounts"], json!([mount]));
    let mut declining = pod;
    declining["spec"]["automountServiceAccountToken"] = json!(false);
    assert_eq!(admit(&request, declining, &world).expect("admitted")["spec"].get("volumes"), None);
}

#[test]
fn a_new_node_takes_no_pods_until_it_is_ready() {
    let request = create("", "nodes", "");
    let admitted = admit(&request, json!({"metadata": {"name": "n"}}), &world()).expect("admitted");
    let taints = json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]);
    assert_eq!(admitted["spec"]["taints"], taints);
    assert_eq!(admit(&request, admitted.clone(), &world()).expect("admitted"), admitted);
}

#[test]
fn a_node_touches_only_its_own() {
    let user = User { name: "system:node:n1", groups: &["system:nodes"] };
    let old = json!({"metadata": {"labels": {}}, "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
    let mut resized = old.clone();
    resized["status"]["capacity"]["storage"] = json!("2Gi");
    let mut relabelled = old.clone();
    relabelled["metadata"]["labels"] = json!({"a": "b"});
    let mut promoted = old.clone();
    promoted["metadata"]["labels"] =
        json!({"node-restriction.kubernetes.io/a": "", "x.k8s.io/b": "", "kubernetes.io/os": "l"});
    let mut rekeyed = old.clone();
    rekeyed["metadata"]["annotations"] = json!({"orlop.dev/machine-key": "another"});
    let status = Request { subresource: "status", ..update("persistentvolumeclaims", &old) };
    let node = |name| Request { name, ..update("nodes", &old) };
    let (own, foreign) = (json!({"spec": {"nodeName": "n1"}}), json!({"spec": {"nodeName": "n2"}}));
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1", "controller": true});
    let mirror = json!({"spec": {"nodeName": "n1"}, "metadata": {"annotations": {"kubernetes.io/config.mirror": "x"},
        "ownerReferences": [owner]}});
    let world = || world().with("Node", json!({"metadata": {"name": "n1", "uid": "u1"}}));
    let pod = |operation, old| Request { operation, old: Some(old), ..update("pods", old) };
    let report = |old| Request { subresource: "status", ..update("pods", old) };
    let cases = [
        (create("", "pods", "default"), Some(&mirror), None),
        (create("", "pods", "default"), Some(&own), Some("can only create mirror pods")),
        (pod(Operation::Delete, &own), None, None),
        (pod(Operation::Delete, &foreign), None, Some("can only delete pods with spec.nodeName set to itself")),
        (report(&own), Some(&own), None),
        (report(&foreign), Some(&own), Some("can only update pod status for pods with spec.nodeName set to itself")),
        (pod(Operation::Update, &own), Some(&own), Some("can only create and delete mirror pods")),
        (status, Some(&resized), None),
        (status, Some(&relabelled), Some("is not allowed to update fields other than")),
        (update("persistentvolumeclaims", &old), Some(&resized), Some("may only update PVC status")),
        (node("n1"), Some(&old), None),
        (node("n1"), Some(&relabelled), None),
        (node("n1"), Some(&rekeyed), Some("is not allowed to modify the annotation orlop.dev/machine-key")),
        (
            node("n1"),
            Some(&promoted),
            Some("is not allowed to modify labels: node-restriction.kubernetes.io/a, x.k8s.io/b"),
        ),
        (node("n2"), Some(&old), Some("node \"n1\" is not allowed to modify node \"n2\"")),
        (
            create("storage.k8s.io", "csinodes", ""),
            None,
            Some("can only access CSINode with the same name as the requesting node"),
        ),
        (
            create("coordination.k8s.io", "leases", "conf"),
            None,
            Some("can only access leases in the \"kube-node-lease\" system namespace"),
        ),
    ];
    for (request, object, expected) in cases {
        let result = restrict_node(&request, object, &user, &world());
        match expected {
            None => assert_eq!(result, Ok(())),
            Some(expected) => assert!(result.expect_err(expected).message.contains(expected)),
        }
        let admin = User { name: "admin", groups: &["system:masters"] };
        assert_eq!(restrict_node(&request, object, &admin, &world()), Ok(()));
    }
}
