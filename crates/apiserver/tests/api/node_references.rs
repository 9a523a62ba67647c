//! What a node may read because its pods name it, place by place, when such rights end, and NodeRestriction for a node whose
//! roles allow everything. As in [`node_rules`](crate::node_rules), each row has the answer of kube-apiserver 1.36, and ours where
//! it differs.

use serde_json::{Value, json};

use crate::node_rules::Answered::{Refused, Taken};
use crate::node_rules::{
    OWN_CSI_NODE, OWN_LEASE, SPACE, check, mirror_pod, node, populated, uid_of_node, uid_of_pod, with, with_tokens,
};
use crate::support::{MERGE, Server};

/// Whether the node authorizer lets a node get an object of `default`, or one of the cluster.
async fn may_get(server: &Server, name: &str, (resource, object): (&str, &str)) -> bool {
    let (group, plural) = resource.split_once('/').unwrap_or(("", resource));
    let namespace = if matches!(plural, "persistentvolumes" | "volumeattachments") { "" } else { "default" };
    let review = json!({"spec": {"user": format!("system:node:{name}"), "groups": ["system:nodes"],
        "resourceAttributes": {"verb": "get", "group": group, "resource": plural, "namespace": namespace, "name": object}}});
    let answer = server.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", Some(&review)).await;
    answer.body["status"]["allowed"].as_bool().expect("it is judged")
}

async fn make(server: &Server, path: &str, object: Value) {
    let answer = server.call("POST", path, Some(&object)).await;
    assert_eq!(answer.code, 201, "{object}: {}", answer.body);
}

/// On each node by the account of its own.
fn pod(name: &str, node: &str, spec: &Value) -> Value {
    let plain = json!({"metadata": {"name": name}, "spec": {"nodeName": node, "serviceAccountName": format!("sa-{node}"),
        "containers": [{"name": "c", "image": "i"}]}});
    with(&plain, &json!({ "spec": spec }))
}

#[tokio::test(start_paused = true)]
async fn a_node_reads_what_its_pods_name_wherever_they_name_it() {
    let server = populated().await;
    let volume = |source: Value| json!({"volumes": [with(&source, &json!({"name": "v"}))]});
    let projected = |source: Value| volume(json!({"projected": {"sources": [source]}}));
    let container = |fields: Value| with(&json!({"name": "c", "image": "i"}), &fields);
    let containers = |fields: Value| json!({"containers": [container(fields)]});
    let init = |fields: Value| json!({"initContainers": [with(&container(fields), &json!({"name": "first"}))]});
    let secret_key = json!({"env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "it", "key": "k"}}}]});
    let map_key = json!({"env": [{"name": "E", "valueFrom": {"configMapKeyRef": {"name": "it", "key": "k"}}}]});
    let by_name = json!({"name": "it"});
    let table = [
        ("secrets", "to pull images with", json!({"imagePullSecrets": [by_name]})),
        ("secrets", "a volume", volume(json!({"secret": {"secretName": "it"}}))),
        ("secrets", "a projected volume", projected(json!({ "secret": by_name }))),
        ("secrets", "all of an environment", containers(json!({"envFrom": [{ "secretRef": by_name }]}))),
        ("secrets", "a variable", containers(secret_key.clone())),
        ("secrets", "a variable of an init container", init(secret_key)),
        (
            "secrets",
            "all of the environment of an init container",
            init(json!({"envFrom": [{ "secretRef": by_name }]})),
        ),
        ("secrets", "an inline CSI volume", volume(json!({"csi": {"driver": "d", "nodePublishSecretRef": by_name}}))),
        ("secrets", "a flex volume", volume(json!({"flexVolume": {"driver": "a/b", "secretRef": by_name}}))),
        ("secrets", "an RBD image", volume(json!({"rbd": {"monitors": ["m"], "image": "i", "secretRef": by_name}}))),
        (
            "secrets",
            "an iSCSI disk",
            volume(json!({"iscsi": {"targetPortal": "a:1", "iqn": "iqn.2001-04.com.example:x", "lun": 0,
                "secretRef": by_name}})),
        ),
        ("secrets", "a CephFS share", volume(json!({"cephfs": {"monitors": ["m"], "secretRef": by_name}}))),
        ("secrets", "an Azure share", volume(json!({"azureFile": {"secretName": "it", "shareName": "s"}}))),
        ("configmaps", "a volume", volume(json!({ "configMap": by_name }))),
        ("configmaps", "a projected volume", projected(json!({ "configMap": by_name }))),
        ("configmaps", "all of an environment", containers(json!({"envFrom": [{ "configMapRef": by_name }]}))),
        ("configmaps", "a variable", containers(map_key.clone())),
        ("configmaps", "a variable of an init container", init(map_key)),
        ("persistentvolumeclaims", "a volume", volume(json!({"persistentVolumeClaim": {"claimName": "it"}}))),
    ];
    for (resource, case, spec) in table {
        assert!(!may_get(&server, "n1", (resource, "it")).await, "{resource}, {case}: before");
        make(&server, &format!("{SPACE}/pods"), pod("names", "n1", &spec)).await;
        assert!(may_get(&server, "n1", (resource, "it")).await, "{resource}, {case}");
        assert!(!may_get(&server, "n2", (resource, "it")).await, "{resource}, {case}: of another node");
        let gone = server.call("DELETE", &format!("{SPACE}/pods/names?gracePeriodSeconds=0"), None).await;
        assert_eq!(gone.code, 200, "{}", gone.body);
    }
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let ephemeral = volume(json!({"ephemeral": {"volumeClaimTemplate": {"spec": claim}}}));
    make(&server, &format!("{SPACE}/pods"), pod("short", "n1", &ephemeral)).await;
    assert!(may_get(&server, "n1", ("persistentvolumeclaims", "short-v")).await, "the claim of an ephemeral volume");
    assert!(!may_get(&server, "n2", ("persistentvolumeclaims", "short-v")).await);
}

#[tokio::test(start_paused = true)]
async fn a_node_reads_the_secrets_of_volumes_that_nodes_need() {
    let server = populated().await;
    let reference = json!({"name": "it", "namespace": "default"});
    let csi = |field: &str| json!({"csi": {"driver": "d", "volumeHandle": "h", field: reference}});
    let table = [
        ("nodeStage", csi("nodeStageSecretRef"), true),
        ("nodePublish", csi("nodePublishSecretRef"), true),
        ("nodeExpand", csi("nodeExpandSecretRef"), true),
        ("controllerPublish", csi("controllerPublishSecretRef"), false),
        ("controllerExpand", csi("controllerExpandSecretRef"), false),
        ("a flex volume", json!({"flexVolume": {"driver": "a/b", "secretRef": reference}}), true),
        ("an RBD image", json!({"rbd": {"monitors": ["m"], "image": "i", "secretRef": reference}}), true),
        ("a CephFS share", json!({"cephfs": {"monitors": ["m"], "secretRef": reference}}), true),
        ("a CephFS share without namespace", json!({"cephfs": {"monitors": ["m"], "secretRef": {"name": "it"}}}), true),
        (
            "an Azure share",
            json!({"azureFile": {"secretName": "it", "secretNamespace": "default", "shareName": "s"}}),
            true,
        ),
        (
            "an iSCSI disk",
            json!({"iscsi": {"targetPortal": "a:1", "iqn": "iqn.2001-04.com.example:x", "lun": 0,
                "secretRef": reference}}),
            true,
        ),
    ];
    for (number, (case, source, allowed)) in table.into_iter().enumerate() {
        let name = format!("x{number}");
        let shared = json!({"accessModes": ["ReadWriteOnce"]});
        let claim = json!({"resources": {"requests": {"storage": "1Gi"}}, "volumeName": name});
        let claim = json!({"metadata": {"name": name}, "spec": with(&shared, &claim)});
        make(&server, &format!("{SPACE}/persistentvolumeclaims"), claim).await;
        let volume = json!({"capacity": {"storage": "1Gi"}, "claimRef": {"namespace": "default", "name": name}});
        let volume = json!({"metadata": {"name": name}, "spec": with(&with(&shared, &volume), &source)});
        make(&server, "/api/v1/persistentvolumes", volume).await;
        let spec = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]});
        make(&server, &format!("{SPACE}/pods"), pod("names", "n1", &spec)).await;
        assert_eq!(may_get(&server, "n1", ("secrets", "it")).await, allowed, "{case}");
        assert!(!may_get(&server, "n2", ("secrets", "it")).await, "{case}: of another node");
        let gone = server.call("DELETE", &format!("{SPACE}/pods/names?gracePeriodSeconds=0"), None).await;
        assert_eq!(gone.code, 200, "{}", gone.body);
        assert!(!may_get(&server, "n1", ("secrets", "it")).await, "{case}: the pod is gone");
    }
}

#[tokio::test(start_paused = true)]
async fn what_two_nodes_share_each_reads_as_long_as_it_has_a_pod_for_it() {
    let server = populated().await;
    let shared = json!({"volumes": [{"name": "s", "secret": {"secretName": "shared"}}]});
    for (name, on) in [("a", "n1"), ("b", "n1"), ("c", "n2")] {
        make(&server, &format!("{SPACE}/pods"), pod(name, on, &shared)).await;
    }
    let readers = async || {
        [may_get(&server, "n1", ("secrets", "shared")).await, may_get(&server, "n2", ("secrets", "shared")).await]
    };
    for (gone, expected) in [("a", [true, true]), ("b", [false, true]), ("c", [false, false])] {
        let deleted = server.call("DELETE", &format!("{SPACE}/pods/{gone}?gracePeriodSeconds=0"), None).await;
        assert_eq!((deleted.code, readers().await), (200, expected), "without {gone}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_rights_of_a_node_end_with_what_they_come_from() {
    let server = populated().await;
    let gone = async |path: &str| {
        let free = json!({"metadata": {"finalizers": []}});
        server.send("PATCH", path, Some(&free), MERGE).await;
        let answer = server.call("DELETE", &format!("{path}?gracePeriodSeconds=0"), None).await;
        assert_eq!(answer.code, 200, "{path}: {}", answer.body);
        assert_eq!(server.call("GET", path, None).await.code, 404, "{path}");
    };
    let attachment = ("storage.k8s.io/volumeattachments", "va-n1");
    assert!(may_get(&server, "n1", attachment).await);
    gone("/apis/storage.k8s.io/v1/volumeattachments/va-n1").await;
    assert!(!may_get(&server, "n1", attachment).await, "the attachment is gone");
    let secret = ("secrets", "pv-secret-n1");
    assert!(may_get(&server, "n1", secret).await);
    gone("/api/v1/persistentvolumes/pv-n1").await;
    assert!(!may_get(&server, "n1", secret).await, "the volume is gone");
    let of_pod = [("secrets", "s-n1"), ("configmaps", "cm-n1"), ("persistentvolumeclaims", "c-n1"), ("pods", "p-n1")];
    for object in of_pod.into_iter().chain([("serviceaccounts", "sa-n1")]) {
        assert!(may_get(&server, "n1", object).await, "{object:?}");
    }
    gone(&format!("{SPACE}/pods/p-n1")).await;
    for object in of_pod.into_iter().chain([("serviceaccounts", "sa-n1")]) {
        assert!(!may_get(&server, "n1", object).await, "the pod is gone: {object:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_neither_changes_nor_removes_reserved_labels() {
    let server = populated().await;
    let labels = json!({"metadata": {"labels": {"node-restriction.kubernetes.io/pci": "yes", "rack": "r1",
        "node-role.kubernetes.io/storage": ""}}});
    assert_eq!(server.send("PATCH", "/api/v1/nodes/n1", Some(&labels), MERGE).await.code, 200);
    let own = ("PATCH", "/api/v1/nodes/n1");
    let change = |key: &str, value: Value| json!({"metadata": {"labels": {key: value}}});
    let restricted = || Refused("is not allowed to modify labels: node-restriction.kubernetes.io/pci");
    let role = || Refused("is not allowed to modify labels: node-role.kubernetes.io/storage");
    let table = vec![
        ("a restricted one changed", own, change("node-restriction.kubernetes.io/pci", json!("no")), restricted()),
        ("a restricted one removed", own, change("node-restriction.kubernetes.io/pci", Value::Null), restricted()),
        ("a reserved one changed", own, change("node-role.kubernetes.io/storage", json!("x")), role()),
        ("a reserved one removed", own, change("node-role.kubernetes.io/storage", Value::Null), role()),
        (
            "both removed with all others",
            own,
            json!({"metadata": {"labels": null}}),
            Refused(
                "is not allowed to modify labels: node-restriction.kubernetes.io/pci, node-role.kubernetes.io/storage",
            ),
        ),
        ("one of its own removed", own, change("rack", Value::Null), Taken),
    ];
    check(&server, "n1", table).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_gets_tokens_for_the_audiences_of_inline_drivers() {
    let server = with_tokens().await;
    for (name, driver) in [("inline", "d"), ("unknown", "none")] {
        let spec = json!({"volumes": [{"name": "v", "csi": {"driver": driver}}]});
        make(&server, &format!("{SPACE}/pods"), pod(name, "n1", &spec)).await;
    }
    let (inline, unknown) = (uid_of_pod(&server, "inline").await, uid_of_pod(&server, "unknown").await);
    let to = ("POST", "/api/v1/namespaces/default/serviceaccounts/sa-n1/token");
    let ask = |name: &str, uid: &str, audience: &str| {
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid});
        json!({"spec": {"boundObjectRef": bound, "audiences": [audience]}})
    };
    let other = "audience \"vault\" not found in pod spec volume, system:node:n1 is not authorized to request tokens for \
        this audience";
    let missing = "error validating audience \"driver\": csidriver.storage.k8s.io \"none\" not found";
    let table = vec![
        ("what its driver wants", to, ask("inline", &inline, "driver"), Taken),
        ("what its driver does not want", to, ask("inline", &inline, "vault"), Refused(other)),
        ("of a driver that does not exist", to, ask("unknown", &unknown, "driver"), Refused(missing)),
    ];
    check(&server, "n1", table).await;
}

#[tokio::test(start_paused = true)]
async fn no_container_of_a_mirror_pod_names_another_object() {
    let server = populated().await;
    let mirror = mirror_pod("n1", &uid_of_node(&server, "n1").await);
    let to = ("POST", "/api/v1/namespaces/default/pods");
    let key = |kind: &str| json!({"env": [{"name": "E", "valueFrom": {kind: {"name": "it", "key": "k"}}}]});
    let all = |kind: &str| json!({"envFrom": [{kind: {"name": "it"}}]});
    let container = |name: &str, fields: &Value| with(&json!({"name": name, "image": "i"}), fields);
    let main = |fields: Value| with(&mirror, &json!({"spec": {"containers": [container("c", &fields)]}}));
    let init = |fields: Value| with(&mirror, &json!({"spec": {"initContainers": [container("first", &fields)]}}));
    // The words of ServiceAccount, which is asked before NodeRestriction, for every user.
    let secrets = || Refused("a mirror pod may not reference secrets");
    let maps = || Refused("node \"n1\" can not create pods that reference configmaps");
    let table = vec![
        ("a key of a secret", to, main(key("secretKeyRef")), secrets()),
        ("a key of a secret, in an init container", to, init(key("secretKeyRef")), secrets()),
        ("a secret, in an init container", to, init(all("secretRef")), secrets()),
        ("a key of a config map", to, main(key("configMapKeyRef")), maps()),
        ("a key of a config map, in an init container", to, init(key("configMapKeyRef")), maps()),
        ("a config map, in an init container", to, init(all("configMapRef")), maps()),
        ("nothing, in an init container", to, init(json!({})), Taken),
    ];
    check(&server, "n1", table).await;
}

/// NodeRestriction does not ask for roles: it holds a node whose roles allow everything.
#[tokio::test(start_paused = true)]
async fn a_node_with_every_role_is_held_to_itself() {
    let server = populated().await;
    let binding = json!({"metadata": {"name": "all"}, "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User",
            "name": "system:node:n1"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}});
    make(&server, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let csi_nodes = "/apis/storage.k8s.io/v1/csinodes";
    for name in ["n1", "n2"] {
        make(&server, leases, json!({"metadata": {"name": name}, "spec": {}})).await;
        make(&server, csi_nodes, json!({"metadata": {"name": name}, "spec": {"drivers": []}})).await;
    }
    let service = server.api.service().as_user(node("n1"));
    assert_eq!(server.send_as(&service, "GET", "/api/v1/secrets", None).await.code, 200, "its roles allow everything");
    let [own_lease, lease] = ["n1", "n2"].map(|name| format!("{leases}/{name}"));
    let [own_csi, csi] = ["n1", "n2"].map(|name| format!("{csi_nodes}/{name}"));
    let [own, bind] = ["p-n1", "p-n1/binding"].map(|rest| format!("{SPACE}/pods/{rest}"));
    let claim = format!("{SPACE}/persistentvolumeclaims/c-n1");
    let labels = || json!({"metadata": {"labels": {"a": "b"}}});
    let target = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p-n1"}, "target": {"name": "n2"}});
    let update = "unexpected operation \"UPDATE\", node \"n1\" can only create and delete mirror pods";
    let table = vec![
        ("its own pod changed", ("PATCH", own.as_str()), labels(), Refused(update)),
        (
            "its own pod bound",
            ("POST", &bind),
            target,
            Refused("unexpected pod subresource \"binding\", only 'status' and 'eviction' are allowed"),
        ),
        ("a claim changed", ("PATCH", &claim), labels(), Refused("may only update PVC status")),
        ("a claim deleted", ("DELETE", &claim), Value::Null, Refused("may only update PVC status")),
        ("its lease changed", ("PATCH", &own_lease), labels(), Taken),
        ("another's lease changed", ("PATCH", &lease), labels(), Refused(OWN_LEASE)),
        ("another's lease deleted", ("DELETE", &lease), Value::Null, Refused(OWN_LEASE)),
        ("its CSINode changed", ("PATCH", &own_csi), labels(), Taken),
        ("another's CSINode changed", ("PATCH", &csi), labels(), Refused(OWN_CSI_NODE)),
        ("another's CSINode deleted", ("DELETE", &csi), Value::Null, Refused(OWN_CSI_NODE)),
        (
            "another's Node deleted",
            ("DELETE", "/api/v1/nodes/n2"),
            Value::Null,
            Refused("node \"n1\" is not allowed to modify node \"n2\""),
        ),
    ];
    check(&server, "n1", table).await;
}
