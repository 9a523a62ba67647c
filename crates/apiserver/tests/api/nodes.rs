//! What the identity of a node may read: what the pods that are bound to it use (API-8).

use crate::support::Server;
use apiserver::auth::User;
use serde_json::{Value, json};

const SPACE: &str = "/api/v1/namespaces/default";

fn node(name: &str) -> User {
    let groups = ["system:nodes", "system:authenticated"].map(str::to_owned).into();
    User { name: format!("system:node:{name}"), groups, ..User::default() }
}

/// A pod on `n1` that uses a claim, whose volume has a secret, and a secret of its own.
async fn populated() -> Server {
    let server = Server::start().await;
    let post = async |path: &str, object: Value| {
        let answer = server.call("POST", path, Some(&object)).await;
        assert_eq!(answer.code, 201, "{path}: {}", answer.body);
    };
    for name in ["own", "of-volume", "foreign"] {
        post(&format!("{SPACE}/secrets"), json!({"metadata": {"name": name}})).await;
    }
    post(&format!("{SPACE}/serviceaccounts"), json!({"metadata": {"name": "default"}})).await;
    let resources = json!({"requests": {"storage": "1Gi"}});
    for name in ["c", "d"] {
        let spec =
            json!({"accessModes": ["ReadWriteOnce"], "resources": resources, "volumeName": format!("pv-{name}")});
        post(&format!("{SPACE}/persistentvolumeclaims"), json!({"metadata": {"name": name}, "spec": spec})).await;
        let secret = json!({"name": "of-volume", "namespace": "default"});
        let spec = json!({
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "claimRef": {"namespace": "default", "name": name},
            "csi": {"driver": "d", "volumeHandle": name, "nodePublishSecretRef": secret},
        });
        let volume = json!({"metadata": {"name": format!("pv-{name}")}, "spec": spec});
        post("/api/v1/persistentvolumes", volume).await;
    }
    let volumes = json!([
        {"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "secret", "secret": {"secretName": "own"}},
    ]);
    let pod = json!({
        "metadata": {"name": "p"},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}], "volumes": volumes},
    });
    post(&format!("{SPACE}/pods"), pod).await;
    for name in ["n1", "n2"] {
        let source = json!({"persistentVolumeName": "pv-c"});
        let spec = json!({"attacher": "d", "nodeName": name, "source": source});
        let attachment = json!({"metadata": {"name": format!("va-{name}")}, "spec": spec});
        post("/apis/storage.k8s.io/v1/volumeattachments", attachment).await;
    }
    server
}

#[tokio::test(start_paused = true)]
async fn a_node_reads_what_its_pods_use_and_nothing_else() {
    let server = populated().await;
    let (first, second) = (server.api.service().as_user(node("n1")), server.api.service().as_user(node("n2")));
    let attachments = "/apis/storage.k8s.io/v1/volumeattachments";
    for path in [
        &format!("{SPACE}/secrets/own"),
        &format!("{SPACE}/secrets/of-volume"),
        &format!("{SPACE}/persistentvolumeclaims/c"),
        "/api/v1/persistentvolumes/pv-c",
    ] {
        assert_eq!(server.call_as(&first, "GET", path).await.code, 200, "{path}");
        let refused = server.call_as(&second, "GET", path).await;
        let message = refused.body["message"].as_str().unwrap_or_default();
        assert_eq!(refused.code, 403, "{path}");
        assert!(message.ends_with("no relationship found between node 'n2' and this object"), "{message}");
    }
    for path in [
        &format!("{SPACE}/secrets/foreign"),
        &format!("{SPACE}/secrets"),
        &format!("{SPACE}/persistentvolumeclaims/d"),
        &format!("{SPACE}/persistentvolumeclaims"),
        "/api/v1/persistentvolumes/pv-d",
        &format!("{attachments}/va-n2"),
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/metrics",
    ] {
        assert_eq!(server.call_as(&first, "GET", path).await.code, 403, "{path}");
    }
    assert_eq!(server.call_as(&first, "GET", &format!("{attachments}/va-n1")).await.code, 200);
    assert_eq!(server.call_as(&first, "GET", "/apis/storage.k8s.io/v1/csidrivers").await.code, 200);
    assert_eq!(server.call_as(&first, "DELETE", &format!("{SPACE}/secrets/own")).await.code, 403);
}

#[tokio::test(start_paused = true)]
async fn a_node_writes_about_itself_only() {
    let server = populated().await;
    let first = server.api.service().as_user(node("n1"));
    let csi_nodes = "/apis/storage.k8s.io/v1/csinodes";
    assert_eq!(server.call_as(&first, "GET", &format!("{csi_nodes}/n1")).await.code, 404);
    let refused = server.call_as(&first, "GET", &format!("{csi_nodes}/n2")).await;
    let message = refused.body["message"].as_str().unwrap_or_default();
    assert!(message.ends_with("can only access CSINode with the same name as the requesting node"), "{message}");
    for (name, code) in [("n1", 201), ("n2", 403)] {
        let object = json!({"metadata": {"name": name}, "spec": {"drivers": []}});
        assert_eq!(server.send_as(&first, "POST", csi_nodes, Some(&object)).await.code, code, "{name}");
    }
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    assert_eq!(server.call_as(&first, "GET", &format!("{leases}/n1")).await.code, 404);
    assert_eq!(server.call_as(&first, "GET", &format!("{leases}/n2")).await.code, 403);
    let review = json!({
        "spec": {"user": "system:node:n1", "groups": ["system:nodes"],
                 "resourceAttributes": {"verb": "get", "resource": "secrets", "namespace": "default", "name": "own"}},
    });
    let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    assert_eq!(server.call("POST", reviews, Some(&review)).await.body["status"]["allowed"], true);
}

#[tokio::test(start_paused = true)]
async fn who_only_calls_itself_a_node_is_none() {
    let server = populated().await;
    let claimed = User { name: "system:node:n1".to_owned(), ..User::default() };
    let service = server.api.service().as_user(claimed);
    assert_eq!(server.call_as(&service, "GET", &format!("{SPACE}/secrets/own")).await.code, 403);
}
