//! The node authorizer and NodeRestriction beside kube-apiserver's: each row is a case, the answer of kube-apiserver 1.36
//! as its own tables have it, and ours.

use apiserver::auth::User;
use serde_json::{Value, json};

use crate::support::{MERGE, Server};

pub(crate) const SPACE: &str = "/api/v1/namespaces/default";
const MIRROR: &str = "kubernetes.io/config.mirror";
const NONE: &str = "no relationship found between node 'n1' and this object";

pub(crate) fn node(name: &str) -> User {
    let groups = ["system:nodes", "system:authenticated"].map(str::to_owned).into();
    User { name: format!("system:node:{name}"), groups, ..User::default() }
}

/// Pods on `n1` and `n2` with what they use, and a mirror pod on `n1` that an older server let in with a claim.
pub(crate) async fn populated() -> Server {
    let server = Server::start().await;
    let post = async |path: &str, object: Value| {
        let answer = server.call("POST", path, Some(&object)).await;
        assert_eq!(answer.code, 201, "{path}: {}", answer.body);
    };
    for name in ["n1", "n2"] {
        post("/api/v1/nodes", json!({"metadata": {"name": name}})).await;
        post(&format!("{SPACE}/serviceaccounts"), json!({"metadata": {"name": format!("sa-{name}")}})).await;
        let secret = json!({"name": format!("pv-secret-{name}"), "namespace": "default"});
        let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
            "volumeName": format!("pv-{name}")});
        let claims = format!("{SPACE}/persistentvolumeclaims");
        post(&claims, json!({"metadata": {"name": format!("c-{name}")}, "spec": claim})).await;
        let volume = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "claimRef": {"namespace": "default", "name": format!("c-{name}")},
            "csi": {"driver": "d", "volumeHandle": name, "nodeStageSecretRef": secret}});
        post("/api/v1/persistentvolumes", json!({"metadata": {"name": format!("pv-{name}")}, "spec": volume})).await;
        let attachment =
            json!({"attacher": "d", "nodeName": name, "source": {"persistentVolumeName": format!("pv-{name}")}});
        let attachment = json!({"metadata": {"name": format!("va-{name}")}, "spec": attachment});
        post("/apis/storage.k8s.io/v1/volumeattachments", attachment).await;
        let pod = json!({"nodeName": name, "serviceAccountName": format!("sa-{name}"),
            "containers": [{"name": "c", "image": "i", "envFrom": [{"configMapRef": {"name": format!("cm-{name}")}}]}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": format!("c-{name}")}},
                {"name": "s", "secret": {"secretName": format!("s-{name}")}}]});
        post(&format!("{SPACE}/pods"), json!({"metadata": {"name": format!("p-{name}")}, "spec": pod})).await;
    }
    let mirror = json!({"metadata": {"name": "mirror", "annotations": {MIRROR: "x"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c-n2"}}]}});
    post(&format!("{SPACE}/pods"), mirror).await;
    server
}

/// Verb, resource as `group/resource/subresource`, namespace, name, field selector; and the refusal of kube-apiserver, `None` if
/// it allows.
type Right = (&'static str, &'static str, &'static str, &'static str, &'static str, Option<&'static str>);

const READ_ONLY: &str = "can only read resources of this type";
const GET_ONLY: &str = "can only get individual resources of this type";
const NO_NAME: &str = "No Object name found";
const PODS_OF_NODE: &str = "can only list/watch pods with spec.nodeName field selector";
pub(crate) const OWN_CSI_NODE: &str = "can only access CSINode with the same name as the requesting node";
pub(crate) const OWN_LEASE: &str = "can only access node lease with the same name as the requesting node";
const LEASE_SPACE: &str = "can only access leases in the \"kube-node-lease\" system namespace";
const SLICES: &str = "can only list/watch/deletecollection resourceslices with nodeName field selector";
const TOKENS: &str = "can only create tokens for individual service accounts";

#[rustfmt::skip]
const RIGHTS: &[Right] = &[
    ("get", "/configmaps", "default", "cm-n1", "", None),
    ("get", "/configmaps", "default", "cm-n2", "", Some(NONE)),
    ("get", "/secrets", "default", "s-n1", "", None),
    ("list", "/secrets", "default", "s-n1", "", None),
    ("watch", "/secrets", "default", "s-n1", "", None),
    ("list", "/secrets", "default", "", "", Some(NO_NAME)),
    ("watch", "/secrets", "default", "", "", Some(NO_NAME)),
    ("list", "/secrets", "", "s-n1", "", Some("can only read namespaced object of this type")),
    ("get", "/secrets", "other", "s-n1", "", Some(NONE)),
    ("get", "/secrets", "default", "s-n2", "", Some(NONE)),
    ("get", "/secrets", "default", "pv-secret-n1", "", None),
    ("get", "/secrets", "default", "pv-secret-n2", "", Some(NONE)),
    ("get", "/secrets/x", "default", "s-n1", "", Some("cannot read subresource")),
    ("update", "/secrets", "default", "s-n1", "", Some(READ_ONLY)),
    ("delete", "/secrets", "default", "s-n1", "", Some(READ_ONLY)),
    ("get", "/persistentvolumeclaims", "default", "c-n1", "", None),
    ("get", "/persistentvolumeclaims", "default", "c-n2", "", Some(NONE)),
    ("get", "/persistentvolumeclaims", "", "c-n1", "", Some(NONE)),
    ("list", "/persistentvolumeclaims", "default", "", "", Some(GET_ONLY)),
    ("update", "/persistentvolumeclaims", "default", "c-n1", "", Some(GET_ONLY)),
    ("update", "/persistentvolumeclaims/status", "default", "c-n1", "", None),
    ("patch", "/persistentvolumeclaims/status", "default", "c-n1", "", None),
    ("patch", "/persistentvolumeclaims/status", "default", "c-n2", "", Some(NONE)),
    ("get", "/persistentvolumeclaims/status", "default", "c-n1", "", Some("can only get/update/patch this type")),
    ("get", "/persistentvolumes", "", "pv-n1", "", None),
    ("get", "/persistentvolumes", "", "pv-n2", "", Some(NONE)),
    ("watch", "/persistentvolumes", "", "", "", Some(GET_ONLY)),
    ("get", "resource.k8s.io/resourceclaims", "default", "rc", "", Some(NONE)),
    ("get", "storage.k8s.io/volumeattachments", "", "va-n1", "", None),
    ("get", "storage.k8s.io/volumeattachments", "", "va-n2", "", Some(NONE)),
    ("get", "storage.k8s.io/volumeattachments/status", "", "va-n1", "", Some("cannot get subresource")),
    ("create", "/serviceaccounts/token", "default", "sa-n1", "", None),
    ("create", "/serviceaccounts/token", "default", "sa-n2", "", Some(NONE)),
    ("create", "/serviceaccounts/token", "default", "", "", Some(TOKENS)),
    ("update", "/serviceaccounts/token", "default", "sa-n1", "", Some(TOKENS)),
    ("create", "/serviceaccounts", "default", "sa-n1", "", Some("can only create token subresource of serviceaccount")),
    ("get", "/serviceaccounts", "default", "sa-n1", "", None),
    ("get", "/serviceaccounts", "default", "sa-n2", "", Some(NONE)),
    ("list", "/serviceaccounts", "default", "sa-n1", "", Some(TOKENS)),
    ("watch", "/serviceaccounts", "default", "sa-n1", "", Some(TOKENS)),
    ("get", "coordination.k8s.io/leases", "kube-node-lease", "n1", "", None),
    ("create", "coordination.k8s.io/leases", "kube-node-lease", "", "", None),
    ("update", "coordination.k8s.io/leases", "kube-node-lease", "n1", "", None),
    ("patch", "coordination.k8s.io/leases", "kube-node-lease", "n1", "", None),
    ("delete", "coordination.k8s.io/leases", "kube-node-lease", "n1", "", None),
    ("get", "coordination.k8s.io/leases", "kube-node-lease", "n2", "", Some(OWN_LEASE)),
    ("delete", "coordination.k8s.io/leases", "kube-node-lease", "n2", "", Some(OWN_LEASE)),
    ("get", "coordination.k8s.io/leases", "kube-system", "n1", "", Some(LEASE_SPACE)),
    ("create", "coordination.k8s.io/leases", "kube-system", "n1", "", Some(LEASE_SPACE)),
    ("list", "coordination.k8s.io/leases", "kube-node-lease", "", "", Some("can only get, create, update, patch, or delete a node lease")),
    ("get", "storage.k8s.io/csinodes", "", "n1", "", None),
    ("create", "storage.k8s.io/csinodes", "", "n2", "", None),
    ("update", "storage.k8s.io/csinodes", "", "n1", "", None),
    ("delete", "storage.k8s.io/csinodes", "", "n1", "", None),
    ("get", "storage.k8s.io/csinodes", "", "n2", "", Some(OWN_CSI_NODE)),
    ("patch", "storage.k8s.io/csinodes", "", "n2", "", Some(OWN_CSI_NODE)),
    ("list", "storage.k8s.io/csinodes", "", "", "", Some("can only get, create, update, patch, or delete a CSINode")),
    ("get", "storage.k8s.io/csinodes/status", "", "n1", "", Some("cannot authorize CSINode subresources")),
    ("create", "resource.k8s.io/resourceslices", "", "", "", None),
    ("get", "resource.k8s.io/resourceslices", "", "slice", "", Some(NONE)),
    ("list", "resource.k8s.io/resourceslices", "", "", "spec.nodeName=n1", None),
    ("deletecollection", "resource.k8s.io/resourceslices", "", "", "spec.nodeName==n1", None),
    ("list", "resource.k8s.io/resourceslices", "", "", "", Some(SLICES)),
    ("watch", "resource.k8s.io/resourceslices", "", "", "spec.nodeName=n2", Some(SLICES)),
    ("get", "resource.k8s.io/resourceslices/status", "", "slice", "", Some("cannot authorize ResourceSlice subresources")),
    ("get", "/pods", "default", "p-n1", "", None),
    ("get", "/pods", "default", "mirror", "", None),
    ("get", "/pods", "default", "p-n2", "", Some(NONE)),
    ("get", "/pods", "default", "none", "", Some(NONE)),
    ("list", "/pods", "", "", "spec.nodeName=n1", None),
    ("list", "/pods", "default", "", "spec.nodeName==n1", None),
    ("watch", "/pods", "", "", "spec.nodeName=n1,status.phase!=Failed", None),
    ("list", "/pods", "default", "p-n1", "", None),
    ("watch", "/pods", "default", "p-n1", "", None),
    ("list", "/pods", "", "", "", Some(PODS_OF_NODE)),
    ("watch", "/pods", "", "", "spec.nodeName=n2", Some(PODS_OF_NODE)),
    ("list", "/pods", "", "", "spec.nodeName!=n1", Some(PODS_OF_NODE)),
    ("create", "/pods", "default", "", "", None),
    ("delete", "/pods", "default", "p-n2", "", None),
    ("update", "/pods", "default", "p-n1", "", Some("")),
    ("deletecollection", "/pods", "default", "", "spec.nodeName=n1", Some("")),
    ("get", "/pods/status", "default", "p-n1", "", Some("")),
    ("patch", "/pods/status", "default", "p-n2", "", None),
    ("create", "/pods/eviction", "default", "p-n2", "", None),
    ("create", "/pods/binding", "default", "p-n1", "", Some("")),
    ("create", "/pods/proxy", "default", "p-n1", "", Some("")),
    ("get", "/nodes", "", "n1", "", None),
    ("list", "/nodes", "", "n1", "", None),
    ("watch", "/nodes", "", "n1", "", None),
    ("get", "/nodes", "", "n2", "", Some("node 'n1' cannot read 'n2', only its own Node object")),
    ("list", "/nodes", "", "", "", Some("node 'n1' cannot read all nodes, only its own Node object")),
    ("watch", "/nodes", "", "", "", Some("node 'n1' cannot read all nodes, only its own Node object")),
    ("create", "/nodes", "", "", "", None),
    ("update", "/nodes", "", "n2", "", None),
    ("patch", "/nodes/status", "", "n2", "", None),
    ("get", "/nodes/status", "", "n1", "", Some("")),
    ("delete", "/nodes", "", "n1", "", Some("")),
    ("create", "/events", "default", "", "", None),
    ("list", "/events", "default", "", "", Some("")),
    ("get", "/namespaces", "", "default", "", Some("")),
    ("list", "/services", "", "", "", None),
    ("get", "/endpoints", "default", "e", "", None),
    ("list", "storage.k8s.io/csidrivers", "", "", "", None),
    ("create", "storage.k8s.io/csidrivers", "", "", "", Some("")),
    ("list", "node.k8s.io/runtimeclasses", "", "", "", None),
    ("create", "authentication.k8s.io/tokenreviews", "", "", "", None),
    ("create", "authorization.k8s.io/subjectaccessreviews", "", "", "", None),
    ("create", "certificates.k8s.io/certificatesigningrequests", "", "", "", None),
    ("update", "certificates.k8s.io/certificatesigningrequests/approval", "", "x", "", Some("")),
    ("get", "certificates.k8s.io/podcertificaterequests", "default", "x", "", Some("")),
    ("list", "storage.k8s.io/storageclasses", "", "", "", Some("")),
    ("list", "rbac.authorization.k8s.io/clusterroles", "", "", "", Some("")),
    ("impersonate", "/users", "", "admin", "", Some("")),
];

#[tokio::test(start_paused = true)]
async fn the_node_authorizer_answers_as_kube_apiserver_does() {
    let server = populated().await;
    for (verb, resource, namespace, name, selector, refusal) in RIGHTS {
        let mut parts = resource.split('/');
        let [group, plural, subresource] = [0; 3].map(|_| parts.next().unwrap_or_default());
        let mut attributes = json!({"verb": verb, "group": group, "resource": plural, "subresource": subresource,
            "namespace": namespace, "name": name});
        if !selector.is_empty() {
            attributes["fieldSelector"] = json!({"rawSelector": selector});
        }
        let review = json!({"spec": {"user": "system:node:n1", "groups": ["system:nodes"],
            "resourceAttributes": attributes}});
        let answer = server.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", Some(&review)).await;
        let status = &answer.body["status"];
        let case = format!("{verb} {resource} {namespace}/{name} {selector:?}: {}", answer.body);
        assert_eq!(status["allowed"].as_bool(), Some(refusal.is_none()), "{case}");
        assert_eq!(status["reason"].as_str().unwrap_or_default(), refusal.unwrap_or_default(), "{case}");
    }
}

/// The answer to a write: kube-apiserver's, and ours where it differs on purpose.
pub(crate) enum Answered<'a> {
    Taken,
    /// With words that end like this.
    Refused(&'a str),
    /// kube-apiserver takes it.
    OnlyHereRefused(&'a str),
}

use Answered::{OnlyHereRefused, Refused, Taken};

/// A case, the method and path of its request, its body, and the answer.
pub(crate) type WriteCase<'a> = (&'a str, (&'a str, &'a str), Value, Answered<'a>);

/// Sends each write as a dry run: nothing is kept, so that the cases do not depend on each other.
pub(crate) async fn check(server: &Server, name: &str, table: Vec<WriteCase<'_>>) {
    let service = server.api.service().as_user(node(name));
    for (case, (method, path), body, expected) in table {
        let body = Some(&body).filter(|body| !body.is_null());
        let kind = if method == "PATCH" { MERGE } else { "application/json" };
        let answer = server.send_kind_as(&service, method, &format!("{path}?dryRun=All"), (body, kind)).await;
        let message = answer.body["message"].as_str().unwrap_or_default();
        match expected {
            Taken => assert!((200..300).contains(&answer.code), "{case}: {}", answer.body),
            Refused(words) | OnlyHereRefused(words) => {
                assert!(matches!(answer.code, 403 | 404), "{case}: {}", answer.body);
                assert!(message.ends_with(words), "{case}: {message}");
            }
        }
    }
}

/// Puts the fields of one object into another.
fn merge(object: &mut Value, change: &Value) {
    match (object, change) {
        (Value::Object(object), Value::Object(change)) => {
            for (key, value) in change {
                merge(object.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (object, change) => *object = change.clone(),
    }
}

pub(crate) fn with(object: &Value, change: &Value) -> Value {
    let mut object = object.clone();
    merge(&mut object, change);
    object
}

fn own_reference(node: &str, uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": true})
}

pub(crate) fn mirror_pod(node: &str, uid: &str) -> Value {
    json!({"metadata": {"name": "static", "annotations": {MIRROR: "x"}, "ownerReferences": [own_reference(node, uid)]},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}], "volumes": []}})
}

pub(crate) async fn uid_of_node(server: &Server, node: &str) -> String {
    let found = server.call("GET", &format!("/api/v1/nodes/{node}"), None).await;
    found.body["metadata"]["uid"].as_str().expect("it has a uid").to_owned()
}

#[tokio::test(start_paused = true)]
#[rustfmt::skip]
async fn a_node_makes_mirror_pods_that_belong_to_itself() {
    let server = populated().await;
    let uid = uid_of_node(&server, "n1").await;
    let pod = mirror_pod("n1", &uid);
    let owned = |owners: Value| with(&pod, &json!({"metadata": {"ownerReferences": owners}}));
    let changed = |change: Value| owned(json!([with(&own_reference("n1", &uid), &change)]));
    let itself = "node \"n1\" can only create pods with an owner reference set to itself";
    let bound = "node \"n1\" can only create pods with spec.nodeName set to itself";
    let plain = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n1", "serviceAccountName": "sa-n1",
        "containers": [{"name": "c", "image": "i"}]}});
    let mirrors = "pod does not have \"kubernetes.io/config.mirror\" annotation, node \"n1\" can only create mirror pods";
    let mismatch = format!("node n1 UID mismatch: expected wrong got {uid}");
    let to = ("POST", "/api/v1/namespaces/default/pods");
    check(&server, "n1", vec![
        ("a mirror pod of its own", to, pod.clone(), Taken),
        ("a pod that is no mirror", to, plain, Refused(mirrors)),
        ("bound to another node", to, with(&pod, &json!({"spec": {"nodeName": "n2"}})), Refused(bound)),
        ("bound to no node", to, with(&pod, &json!({"spec": {"nodeName": null}})), Refused(bound)),
        ("no owner", to, owned(json!([])), Refused(itself)),
        ("two owners", to, owned(json!([own_reference("n1", &uid), with(&own_reference("n2", "x"), &json!({"controller": false}))])),
            Refused("node \"n1\" can only create pods with a single owner reference set to itself")),
        ("an owner of another name", to, changed(json!({"name": "n2"})), Refused(itself)),
        ("an owner of another kind", to, changed(json!({"kind": "Pod"})), Refused(itself)),
        ("an owner of another version", to, changed(json!({"apiVersion": "v2"})), Refused(itself)),
        ("an owner that is not the controller", to, changed(json!({"controller": false})),
            Refused("node \"n1\" can only create pods with a controller owner reference set to itself")),
        ("an owner that does not say so", to, changed(json!({"controller": null})),
            Refused("node \"n1\" can only create pods with a controller owner reference set to itself")),
        ("an owner that blocks deletion", to, changed(json!({"blockOwnerDeletion": true})),
            Refused("node \"n1\" must not set blockOwnerDeletion on an owner reference")),
        ("an owner of another uid", to, changed(json!({"uid": "wrong"})), Refused(&mismatch)),
    ]).await;
    check(&server, "n3", vec![("a node that does not exist", to, mirror_pod("n3", "x"), Refused("node \"n3\" not found"))]).await;
}

#[tokio::test(start_paused = true)]
#[rustfmt::skip]
async fn a_mirror_pod_names_no_other_object() {
    let server = populated().await;
    let pod = mirror_pod("n1", &uid_of_node(&server, "n1").await);
    let spec = |change: Value| with(&pod, &json!({ "spec": change }));
    let volume = |source: Value| spec(json!({"volumes": [with(&source, &json!({"name": "v"}))]}));
    let projected = |source: Value| volume(json!({"projected": {"sources": [source]}}));
    let env = |source: Value| spec(json!({"containers": [{"name": "c", "image": "i", "envFrom": [source]}]}));
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let ephemeral = json!({"ephemeral": {"volumeClaimTemplate": {"spec": claim}}});
    let downward = json!({"downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.name"}}]}});
    let resources = json!({"resourceClaims": [{"name": "r", "resourceClaimName": "r"}]});
    // The words of ServiceAccount, which is asked before NodeRestriction, for every user.
    let accounts = Refused("a mirror pod may not reference service accounts");
    let secrets = || Refused("a mirror pod may not reference secrets");
    let tokens = Refused("a mirror pod may not use ServiceAccountToken volume projections");
    let maps = || Refused("node \"n1\" can not create pods that reference configmaps");
    let claims = Refused("node \"n1\" can not create pods that reference persistentvolumeclaims");
    let to = ("POST", "/api/v1/namespaces/default/pods");
    check(&server, "n1", vec![
        ("a directory of the machine", to, volume(json!({"hostPath": {"path": "/x"}})), Taken),
        ("an empty directory", to, volume(json!({"emptyDir": {}})), Taken),
        ("its own fields", to, projected(downward), Taken),
        ("an account", to, spec(json!({"serviceAccountName": "sa-n1"})), accounts),
        ("a secret to pull with", to, spec(json!({"imagePullSecrets": [{"name": "s"}]})), secrets()),
        ("a secret volume", to, volume(json!({"secret": {"secretName": "s"}})), secrets()),
        ("a projected secret", to, projected(json!({"secret": {"name": "s"}})), secrets()),
        ("a secret in the environment", to, env(json!({"secretRef": {"name": "s"}})), secrets()),
        ("a secret of a volume", to, volume(json!({"iscsi": {"targetPortal": "a:1", "iqn": "iqn.2001-04.com.example:x", "lun": 0, "secretRef": {"name": "s"}}})), secrets()),
        ("a token", to, projected(json!({"serviceAccountToken": {"path": "t"}})), tokens),
        ("a config map volume", to, volume(json!({"configMap": {"name": "m"}})), maps()),
        ("a projected config map", to, projected(json!({"configMap": {"name": "m"}})), maps()),
        ("a config map in the environment", to, env(json!({"configMapRef": {"name": "m"}})), maps()),
        ("a claim", to, volume(json!({"persistentVolumeClaim": {"claimName": "c-n2"}})), claims),
        ("an ephemeral claim", to, volume(ephemeral),
            Refused("node \"n1\" can not create pods that reference persistentvolumeclaims (via ephemeral volumes)")),
        ("an inline CSI volume", to, volume(json!({"csi": {"driver": "d"}})),
            Refused("node \"n1\" can not create pods that reference csidrivers (via CSI volumes)")),
        ("a trust bundle", to, projected(json!({"clusterTrustBundle": {"name": "b", "path": "p"}})),
            Refused("node \"n1\" can not create pods that reference clustertrustbundles")),
        ("a certificate", to, projected(json!({"podCertificate": {"signerName": "a.io/b", "keyType": "ED25519", "credentialBundlePath": "p"}})),
            Refused("node \"n1\" can not create pods that reference podcertificates")),
        ("a resource claim", to, spec(resources), Refused("node \"n1\" can not create pods that reference resourceclaims")),
    ]).await;
}

#[tokio::test(start_paused = true)]
#[rustfmt::skip]
async fn a_node_ends_and_reports_its_own_pods_only() {
    let server = populated().await;
    let (own, foreign) = ("/api/v1/namespaces/default/pods/p-n1", "/api/v1/namespaces/default/pods/p-n2");
    let [own_status, foreign_status] = [own, foreign].map(|pod| format!("{pod}/status"));
    let [evict_own, evict_foreign] = [own, foreign].map(|pod| format!("{pod}/eviction"));
    let evict = |name: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    let runs = json!({"status": {"phase": "Running"}});
    let claims = json!({"status": {"resourceClaimStatuses": [{"name": "r", "resourceClaimName": "any"}]}});
    check(&server, "n1", vec![
        ("its own pod ends", ("DELETE", own), Value::Null, Taken),
        ("another's pod ends", ("DELETE", foreign), Value::Null,
            Refused("node \"n1\" can only delete pods with spec.nodeName set to itself")),
        ("no pod ends", ("DELETE", "/api/v1/namespaces/default/pods/none"), Value::Null, Refused("pods \"none\" not found")),
        ("its own pod's phase", ("PATCH", &own_status), runs.clone(), Taken),
        ("another's pod's phase", ("PATCH", &foreign_status), runs,
            Refused("node \"n1\" can only update pod status for pods with spec.nodeName set to itself")),
        ("labels through the status", ("PATCH", &own_status), json!({"metadata": {"labels": {"a": "b"}}}),
            Refused("node \"n1\" cannot update labels through pod status")),
        ("resource claims through the status", ("PATCH", &own_status), claims,
            Refused("node \"n1\" cannot update resource claim statues")),
        ("its own pod is evicted", ("POST", &evict_own), evict("p-n1"), Taken),
        ("no pod is evicted", ("POST", "/api/v1/namespaces/default/pods/none/eviction"), evict("none"), Refused("pod \"none\" not found")),
        ("another's pod is evicted", ("POST", &evict_foreign), evict("p-n2"),
            Refused("node n1 can only evict pods with spec.nodeName set to itself")),
    ]).await;
}

#[tokio::test(start_paused = true)]
#[rustfmt::skip]
async fn a_node_changes_its_own_node_within_bounds() {
    let server = populated().await;
    let (own, status) = (("PATCH", "/api/v1/nodes/n1"), ("PATCH", "/api/v1/nodes/n1/status"));
    let labels = |labels: Value| json!({"metadata": {"labels": labels}});
    let owner = json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]}});
    let taints = json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}});
    let finalizers = json!({"metadata": {"finalizers": ["a.io/b"]}});
    let runs = json!({"status": {"phase": "Running"}});
    let n3 = |change: &Value| with(&json!({"metadata": {"name": "n3"}}), change);
    let other = || Refused("node \"n1\" is not allowed to modify node \"n2\"");
    check(&server, "n1", vec![
        ("a label of its own", own, labels(json!({"rack": "r1"})), Taken),
        ("a label that it reports", own, labels(json!({"kubernetes.io/os": "linux"})), Taken),
        ("a label of kubelets", own, labels(json!({"x.kubelet.kubernetes.io/a": "b"})), Taken),
        ("a label of nodes", own, labels(json!({"node.kubernetes.io/a": "b"})), Taken),
        ("a restricted label", own, labels(json!({"node-restriction.kubernetes.io/a": "b"})),
            Refused("is not allowed to modify labels: node-restriction.kubernetes.io/a")),
        ("a reserved label", own, labels(json!({"node-role.kubernetes.io/control-plane": ""})),
            Refused("is not allowed to modify labels: node-role.kubernetes.io/control-plane")),
        ("a reserved label through the status", status, labels(json!({"x.k8s.io/a": ""})),
            Refused("is not allowed to modify labels: x.k8s.io/a")),
        ("taints added", own, taints.clone(), Refused("node \"n1\" is not allowed to modify taints")),
        ("taints removed", own, json!({"spec": {"taints": null}}), Refused("node \"n1\" is not allowed to modify taints")),
        ("an owner", own, owner, Refused("node \"n1\" is not allowed to modify ownerReferences")),
        ("a finalizer", own, finalizers.clone(), OnlyHereRefused("node \"n1\" is not allowed to modify finalizers")),
        ("the key of its machine", own, json!({"metadata": {"annotations": {"orlop.dev/machine-key": "x"}}}),
            OnlyHereRefused("node \"n1\" is not allowed to modify the annotation orlop.dev/machine-key")),
        ("its status", status, runs.clone(), Taken),
        ("another node", ("PATCH", "/api/v1/nodes/n2"), labels(json!({"rack": "r1"})), other()),
        ("another node's status", ("PATCH", "/api/v1/nodes/n2/status"), runs, other()),
        ("another node is made", ("POST", "/api/v1/nodes"), n3(&json!({})), Refused("node \"n1\" is not allowed to modify node \"n3\"")),
    ]).await;
    let to = ("POST", "/api/v1/nodes");
    check(&server, "n3", vec![
        ("it registers", to, n3(&json!({})), Taken),
        ("it registers with taints", to, n3(&taints), Taken),
        ("it registers with labels", to, n3(&labels(json!({"rack": "r", "kubernetes.io/arch": "a"}))), Taken),
        ("it registers with reserved labels", to, n3(&labels(json!({"other.k8s.io/a": "b", "node-restriction.kubernetes.io/c": "d"}))),
            Refused("node \"n3\" is not allowed to set the following labels: node-restriction.kubernetes.io/c, other.k8s.io/a")),
        ("it registers with a finalizer", to, n3(&finalizers), OnlyHereRefused("node \"n3\" is not allowed to modify finalizers")),
    ]).await;
}

#[tokio::test(start_paused = true)]
#[rustfmt::skip]
async fn a_node_writes_leases_csinodes_and_claims_about_itself_only() {
    let server = populated().await;
    let leases = ("POST", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases");
    let elsewhere = ("POST", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases");
    let csi_nodes = ("POST", "/apis/storage.k8s.io/v1/csinodes");
    let claim = ("PATCH", "/api/v1/namespaces/default/persistentvolumeclaims/c-n1/status");
    let lease = |name: &str| json!({"metadata": {"name": name}, "spec": {}});
    let csi = |name: &str| json!({"metadata": {"name": name}, "spec": {"drivers": []}});
    let resizing = json!({"status": {"conditions": [{"type": "Resizing", "status": "True"}]}});
    // kube-apiserver adds the difference to these words.
    let fields = || Refused("node \"n1\" is not allowed to update fields other than status.quantity and status.conditions");
    check(&server, "n1", vec![
        ("its lease", leases, lease("n1"), Taken),
        ("another's lease", leases, lease("n2"), Refused(OWN_LEASE)),
        ("a lease elsewhere", elsewhere, lease("n1"), Refused(LEASE_SPACE)),
        ("its CSINode", csi_nodes, csi("n1"), Taken),
        ("another's CSINode", csi_nodes, csi("n2"), Refused(OWN_CSI_NODE)),
        ("the size of its claim", claim, json!({"status": {"capacity": {"storage": "2Gi"}}}), Taken),
        ("how far resizing is", claim, resizing, Taken),
        ("labels of its claim", claim, json!({"metadata": {"labels": {"a": "b"}}}), fields()),
        ("finalizers of its claim", claim, json!({"metadata": {"finalizers": ["a.io/b"]}}), fields()),
        ("the phase of its claim", claim, json!({"status": {"phase": "Lost"}}), fields()),
    ]).await;
    check(&server, "", vec![
        ("a node without a name", csi_nodes, csi("n1"), Refused("unknown node for user \"system:node:\"")),
    ]).await;
}

/// A pod on each node, with a token volume for one audience, and one of a driver that wants another.
pub(crate) async fn with_tokens() -> Server {
    let server = populated().await;
    let driver = json!({"metadata": {"name": "d"}, "spec": {"tokenRequests": [{"audience": "driver"}]}});
    assert_eq!(server.call("POST", "/apis/storage.k8s.io/v1/csidrivers", Some(&driver)).await.code, 201);
    for name in ["n1", "n2"] {
        let token = json!({"serviceAccountToken": {"path": "t", "audience": "vault", "expirationSeconds": 3600}});
        let volumes = json!([{"name": "t", "projected": {"sources": [token]}},
            {"name": "data", "persistentVolumeClaim": {"claimName": format!("c-{name}")}}]);
        let pod = json!({"metadata": {"name": format!("t-{name}")}, "spec": {"nodeName": name, "volumes": volumes,
            "serviceAccountName": format!("sa-{name}"), "containers": [{"name": "c", "image": "i"}]}});
        let made = server.call("POST", &format!("{SPACE}/pods"), Some(&pod)).await;
        assert_eq!(made.code, 201, "{}", made.body);
    }
    server
}

pub(crate) async fn uid_of_pod(server: &Server, pod: &str) -> String {
    let found = server.call("GET", &format!("{SPACE}/pods/{pod}"), None).await;
    found.body["metadata"]["uid"].as_str().expect("it has a uid").to_owned()
}

#[tokio::test(start_paused = true)]
#[rustfmt::skip]
async fn a_node_gets_tokens_for_its_own_pods_and_their_audiences_only() {
    let server = with_tokens().await;
    let (own, foreign) = (uid_of_pod(&server, "t-n1").await, uid_of_pod(&server, "t-n2").await);
    let ask = |bound: Value, audiences: Value| json!({"spec": {"boundObjectRef": bound, "audiences": audiences}});
    let bound = |name: &str, uid: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid});
    let to = ("POST", "/api/v1/namespaces/default/serviceaccounts/sa-n1/token");
    let unbound = || Refused("node requested token not bound to a pod");
    let stale = "The object might have been deleted and then recreated";
    let audience = "audience \"other\" not found in pod spec volume, system:node:n1 is not authorized to request tokens for this audience";
    let node = json!({"apiVersion": "v1", "kind": "Node", "name": "n1"});
    check(&server, "n1", vec![
        ("for the audience of a volume", to, ask(bound("t-n1", &own), json!(["vault"])), Taken),
        ("for the audience of a volume's driver", to, ask(bound("t-n1", &own), json!(["driver"])), Taken),
        ("for the server", to, ask(bound("t-n1", &own), json!([])), Taken),
        ("bound to nothing", to, ask(Value::Null, json!([])), unbound()),
        ("bound to the node", to, ask(node, json!([])), unbound()),
        ("bound to a pod without uid", to, ask(bound("t-n1", ""), json!(["vault"])), Refused("node requested token with a pod binding without a uid")),
        ("bound to a pod of another uid", to, ask(bound("t-n1", "x"), json!(["vault"])), Refused(stale)),
        ("bound to a pod that does not exist", to, ask(bound("none", "x"), json!(["vault"])), Refused("pod \"none\" not found")),
        ("bound to a pod elsewhere", to, ask(bound("t-n2", &foreign), json!(["vault"])), Refused("node requested token bound to a pod scheduled on a different node")),
        ("for two audiences", to, ask(bound("t-n1", &own), json!(["vault", "driver"])), Refused("node may only request 0 or 1 audiences")),
        ("for another audience", to, ask(bound("t-n1", &own), json!(["other"])), Refused(audience)),
        ("of another's account", ("POST", "/api/v1/namespaces/default/serviceaccounts/sa-n2/token"),
            ask(bound("t-n2", &foreign), json!(["vault"])), Refused(NONE)),
    ]).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_gets_no_token_for_longer_than_two_days() {
    let server = with_tokens().await;
    let uid = uid_of_pod(&server, "t-n1").await;
    let body = json!({"spec": {"expirationSeconds": 4_294_967_296_i64, "audiences": ["vault"],
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "t-n1", "uid": uid}}});
    let path = format!("{SPACE}/serviceaccounts/sa-n1/token");
    let service = server.api.service().as_user(node("n1"));
    let answer = server.send_as(&service, "POST", &path, Some(&body)).await;
    assert_eq!(
        (answer.code, &answer.body["spec"]["expirationSeconds"]),
        (201, &json!(172_800)),
        "{:?}",
        answer.warnings
    );
    assert!(answer.warnings.iter().any(|said| said.contains("shortened to 172800 seconds")), "{:?}", answer.warnings);
    let answer = server.call("POST", &path, Some(&body)).await;
    assert_eq!(answer.body["spec"]["expirationSeconds"], 4_294_967_296_i64, "an administrator is not limited");
}
