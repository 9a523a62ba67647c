//! The roles and bindings that exist from the first start, as objects to be created.

use serde_json::{Value, json};

use super::{AUTHENTICATED, SYSTEM_MASTERS, UNAUTHENTICATED};

const API_VERSION: &str = "rbac.authorization.k8s.io/v1";

fn metadata(name: &str) -> Value {
    json!({
        "name": name,
        "labels": {(crate::keys::BOOTSTRAPPING): "rbac-defaults"},
        "annotations": {(crate::keys::AUTOUPDATE): "true"},
    })
}

fn role(name: &str, rules: Value) -> Value {
    json!({"apiVersion": API_VERSION, "kind": "ClusterRole", "metadata": metadata(name), "rules": rules})
}

fn binding(name: &str, groups: &[&str]) -> Value {
    let subjects: Vec<Value> = groups
        .iter()
        .map(|group| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}))
        .collect();
    let mut binding = json!({
        "apiVersion": API_VERSION,
        "kind": "ClusterRoleBinding",
        "metadata": metadata(name),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
    });
    if !subjects.is_empty() {
        binding["subjects"] = subjects.into();
    }
    binding
}

fn rule(verbs: &[&str], groups: &[&str], resources: &[&str]) -> Value {
    json!({"verbs": verbs, "apiGroups": groups, "resources": resources})
}

fn paths(verbs: &[&str], urls: &[&str]) -> Value {
    json!({"verbs": verbs, "nonResourceURLs": urls})
}

/// The ClusterRoles, by name.
pub fn cluster_roles() -> Vec<Value> {
    let discovery = [
        "/api",
        "/api/*",
        "/apis",
        "/apis/*",
        "/healthz",
        "/livez",
        "/openapi",
        "/openapi/*",
        "/readyz",
        "/version",
        "/version/",
    ];
    let public = ["/healthz", "/livez", "/readyz", "/version", "/version/"];
    vec![
        role("cluster-admin", json!([rule(&["*"], &["*"], &["*"]), paths(&["*"], &["*"])])),
        role(
            "system:basic-user",
            json!([
                rule(&["create"], &["authorization.k8s.io"], &["selfsubjectaccessreviews", "selfsubjectrulesreviews"]),
                rule(&["create"], &["authentication.k8s.io"], &["selfsubjectreviews"]),
            ]),
        ),
        role("system:discovery", json!([paths(&["get"], &discovery)])),
        role("system:node", node_rules()),
        role("system:public-info-viewer", json!([paths(&["get"], &public)])),
    ]
}

/// What a node's agent needs of the kinds we serve.
fn node_rules() -> Value {
    let write = ["create", "get", "update", "patch", "delete"];
    json!([
        rule(&["create"], &["authentication.k8s.io"], &["tokenreviews"]),
        rule(&["create"], &["authorization.k8s.io"], &["localsubjectaccessreviews", "subjectaccessreviews"]),
        rule(&["create", "get", "list", "watch", "update", "patch"], &[""], &["nodes"]),
        rule(&["update", "patch"], &[""], &["nodes/status", "pods/status"]),
        rule(&["create", "update", "patch"], &["", "events.k8s.io"], &["events"]),
        rule(&["get", "list", "watch", "create", "delete"], &[""], &["pods"]),
        rule(&["create"], &[""], &["pods/eviction", "serviceaccounts/token"]),
        rule(&["get", "list", "watch"], &[""], &["configmaps", "secrets"]),
        rule(&["get"], &[""], &["persistentvolumeclaims", "persistentvolumes", "serviceaccounts"]),
        rule(&["get", "update", "patch"], &[""], &["persistentvolumeclaims/status"]),
        rule(&write, &["coordination.k8s.io"], &["leases"]),
        rule(&["get"], &["storage.k8s.io"], &["volumeattachments"]),
        rule(&["get", "list", "watch"], &["storage.k8s.io"], &["csidrivers"]),
        rule(&write, &["storage.k8s.io"], &["csinodes"]),
    ])
}

/// The ClusterRoleBindings, by name. `system:node` binds nobody: without a node authorizer it would let every node
/// read every secret, and that is for an administrator to decide.
pub fn cluster_role_bindings() -> Vec<Value> {
    vec![
        binding("cluster-admin", &[SYSTEM_MASTERS]),
        binding("system:basic-user", &[AUTHENTICATED]),
        binding("system:discovery", &[AUTHENTICATED]),
        binding("system:node", &[]),
        binding("system:public-info-viewer", &[AUTHENTICATED, UNAUTHENTICATED]),
    ]
}
