//! Role-based decisions and the texts of refusals (API-8, API-5).

use serde_json::json;

use super::super::{Attributes, Object, Rbac, RbacKind, User, authorize, authorize_request};
use super::{binding, first_start, role, shown, user};
use crate::request::RequestInfo;

fn ask(rbac: &Rbac, user: &User, line: &str) -> String {
    let (method, uri) = line.split_once(' ').unwrap();
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    shown(authorize_request(rbac, user, &RequestInfo::parse(method, path, query).unwrap()).map(drop))
}

/// Rules: API-C197, API-1.4, API-C196
#[test]
fn strangers_see_health_and_version_only() {
    let rbac = first_start();
    let nobody = User::anonymous();
    for path in ["/livez", "/readyz", "/healthz", "/version", "/version/"] {
        assert_eq!(ask(&rbac, &nobody, &format!("GET {path}")), "accepted: ()", "{path}");
    }
    let table = [
        // API-C196
        (
            "GET /api/v1/namespaces",
            "403 Forbidden: namespaces is forbidden: User \"system:anonymous\" cannot list resource \"namespaces\" in \
             API group \"\" at the cluster scope",
        ),
        ("GET /api", "403 Forbidden: forbidden: User \"system:anonymous\" cannot get path \"/api\""),
        ("GET /openapi/v3", "403 Forbidden: forbidden: User \"system:anonymous\" cannot get path \"/openapi/v3\""),
        ("POST /version", "403 Forbidden: forbidden: User \"system:anonymous\" cannot post path \"/version\""),
        ("GET /readyz/a", "403 Forbidden: forbidden: User \"system:anonymous\" cannot get path \"/readyz/a\""),
    ];
    for (line, expected) in table {
        assert_eq!(ask(&rbac, &nobody, line), expected, "{line}");
    }
}

/// Rule: API-K45
#[test]
fn everybody_known_may_discover_and_ask_about_themselves() {
    let rbac = first_start();
    let bob = user("bob", &[]);
    let yes = [
        "GET /api",
        "GET /apis/storage.k8s.io/v1",
        "GET /openapi/v3/api/v1",
        "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "POST /apis/authentication.k8s.io/v1/selfsubjectreviews",
    ];
    for line in yes {
        assert_eq!(ask(&rbac, &bob, line), "accepted: ()", "{line}");
    }
    assert_eq!(
        ask(&rbac, &bob, "GET /api/v1/namespaces/conf/persistentvolumeclaims"),
        "403 Forbidden: persistentvolumeclaims is forbidden: User \"bob\" cannot list resource \
         \"persistentvolumeclaims\" in API group \"\" in the namespace \"conf\""
    );
    assert_eq!(
        ask(&rbac, &bob, "GET /apis/storage.k8s.io/v1/storageclasses/foo"),
        "403 Forbidden: storageclasses.storage.k8s.io \"foo\" is forbidden: User \"bob\" cannot get resource \
         \"storageclasses\" in API group \"storage.k8s.io\" at the cluster scope"
    );
    assert!(
        ask(&rbac, &bob, "PATCH /api/v1/namespaces/conf/persistentvolumeclaims/c/status")
            .contains("\"c\" is forbidden: User \"bob\" cannot patch resource \"persistentvolumeclaims/status\"")
    );
    assert!(ask(&rbac, &bob, "GET /metrics").ends_with("forbidden: User \"bob\" cannot get path \"/metrics\""));
    assert!(ask(&rbac, &bob, "GET /%3Cb%3E").ends_with("cannot get path \"/&lt;b&gt;\""), "no markup in answers");
}

#[test]
fn masters_need_no_role() {
    let admin = user("admin", &["system:masters"]);
    for line in ["GET /metrics", "DELETE /api/v1/namespaces/conf/secrets", "OPTIONS /api/v1/pods"] {
        assert_eq!(ask(&Rbac::default(), &admin, line), "accepted: ()", "{line}");
    }
}

/// Bob has one rule, in one namespace or everywhere.
fn bob_with(namespace: &str, rule: serde_json::Value) -> Rbac {
    let mut rbac = Rbac::default();
    let bob = json!([{"kind": "User", "name": "bob"}]);
    if namespace.is_empty() {
        rbac.apply(RbacKind::ClusterRole, &role("", "r", json!([rule])));
        rbac.apply(RbacKind::ClusterRoleBinding, &binding("", "b", ("ClusterRole", "r"), bob));
    } else {
        rbac.apply(RbacKind::Role, &role(namespace, "r", json!([rule])));
        rbac.apply(RbacKind::RoleBinding, &binding(namespace, "b", ("Role", "r"), bob));
    }
    rbac
}

#[test]
fn a_rule_matches_verb_group_resource_and_name() {
    let rule = |verbs: &[&str], groups: &[&str], resources: &[&str], names: &[&str]| {
        let mut rule = json!({"verbs": verbs, "apiGroups": groups, "resources": resources});
        rule["resourceNames"] = json!(names);
        rule
    };
    let core = |resources: &[&str]| rule(&["*"], &[""], resources, &[]);
    let pods = "/api/v1/namespaces/conf/pods";
    let table = [
        (rule(&["get"], &[""], &["pods"], &[]), format!("GET {pods}/p"), true),
        (rule(&["get"], &[""], &["pods"], &[]), format!("GET {pods}"), false),
        (rule(&["*"], &["*"], &["*"], &[]), format!("GET {pods}/p/status"), true),
        (rule(&["get"], &["apps"], &["pods"], &[]), format!("GET {pods}/p"), false),
        (core(&["pods"]), format!("PUT {pods}/p/status"), false),
        (core(&["pods/status"]), format!("PUT {pods}/p/status"), true),
        (core(&["pods/status"]), format!("PUT {pods}/p"), false),
        (core(&["*/status"]), format!("PUT {pods}/p/status"), true),
        (core(&["*/status"]), format!("PUT {pods}/p/statu"), false),
        (rule(&["*"], &[""], &["pods"], &["p"]), format!("GET {pods}/p"), true),
        (rule(&["*"], &[""], &["pods"], &["p"]), format!("GET {pods}/q"), false),
        (rule(&["*"], &[""], &["pods"], &["p"]), format!("GET {pods}"), false),
        (rule(&["*"], &[""], &["pods"], &["p"]), format!("GET {pods}?fieldSelector=metadata.name%3Dp"), true),
        (rule(&["*"], &[""], &["pods"], &["p"]), format!("POST {pods}"), false),
        (rule(&["create"], &[""], &["pods/binding"], &["p"]), format!("POST {pods}/p/binding"), true),
        (rule(&["get"], &[""], &["pods"], &[]), "GET /version".into(), false),
        (json!({"verbs": ["get"], "nonResourceURLs": ["/a*"]}), "GET /a/b".into(), true),
        (json!({"verbs": ["get"], "nonResourceURLs": ["/a*"]}), "GET /b".into(), false),
        (json!({"verbs": ["get"], "nonResourceURLs": ["/a"]}), "GET /a/".into(), false),
        (json!({"verbs": ["get"], "nonResourceURLs": ["*"]}), format!("GET {pods}/p"), false),
    ];
    for (rule, line, expected) in table {
        let allowed = ask(&bob_with("", rule.clone()), &user("bob", &[]), &line) == "accepted: ()";
        assert_eq!(allowed, expected, "{rule} {line}");
    }
}

#[test]
fn a_role_in_a_namespace_ends_at_its_border() {
    let rbac = bob_with("conf", json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
    let bob = user("bob", &[]);
    let allowed = |line: &str| ask(&rbac, &bob, line) == "accepted: ()";
    assert!(allowed("GET /api/v1/namespaces/conf/pods"));
    assert!(allowed("GET /api/v1/namespaces/conf"), "a namespace is inside itself");
    assert!(!allowed("GET /api/v1/namespaces/other/pods"));
    assert!(!allowed("GET /api/v1/pods"));
    assert!(!allowed("GET /api/v1/namespaces"));
}

/// Rule: API-C201
#[test]
fn service_accounts_are_subjects_of_their_own() {
    // A subject without a namespace is one of the binding's own, and nobody in a cluster-wide binding.
    let everything = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]);
    let subject = json!([{"kind": "ServiceAccount", "name": "sa1"}]);
    let mut rbac = Rbac::default();
    rbac.apply(RbacKind::ClusterRole, &role("", "all", everything));
    rbac.apply(RbacKind::ClusterRoleBinding, &binding("", "b", ("ClusterRole", "all"), subject.clone()));
    let sa1 = User::service_account("conf", "sa1", "u");
    let line = "GET /api/v1/namespaces/conf/secrets";
    assert_eq!(
        ask(&rbac, &sa1, line),
        "403 Forbidden: secrets is forbidden: User \"system:serviceaccount:conf:sa1\" cannot list resource \"secrets\" \
         in API group \"\" in the namespace \"conf\""
    );
    rbac.apply(RbacKind::RoleBinding, &binding("conf", "b", ("ClusterRole", "all"), subject));
    assert_eq!(ask(&rbac, &sa1, line), "accepted: ()");
    assert_ne!(ask(&rbac, &User::service_account("other", "sa1", "u"), line), "accepted: ()");
    rbac.remove(RbacKind::RoleBinding, "conf", "b");
    let group = json!([{"kind": "Group", "name": "system:serviceaccounts:conf"}]);
    rbac.apply(RbacKind::ClusterRoleBinding, &binding("", "b", ("ClusterRole", "all"), group));
    assert_eq!(ask(&rbac, &sa1, line), "accepted: ()");
    rbac.remove(RbacKind::ClusterRoleBinding, "", "b");
    assert_ne!(ask(&rbac, &sa1, line), "accepted: ()");
}

#[test]
fn a_yes_names_its_binding_and_a_no_names_missing_roles() {
    let object = Object::Resource { group: "", resource: "pods", subresource: "", namespace: "conf", name: "" };
    let bob = user("bob", &["ops"]);
    let attributes = Attributes { user: &bob, verb: "list".into(), object, fields: None };
    let rules = json!([{"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}]);
    let mut rbac = Rbac::default();
    let subjects = json!([{"kind": "User", "name": "eve"}, {"kind": "Group", "name": "ops"}]);
    rbac.apply(RbacKind::RoleBinding, &binding("conf", "readers", ("Role", "r"), subjects));
    rbac.apply(
        RbacKind::ClusterRoleBinding,
        &binding("", "x", ("ClusterRole", "c"), json!([{"kind": "User", "name": "bob"}])),
    );
    assert_eq!(
        authorize(&rbac, &attributes).reason(),
        "RBAC: [clusterrole.rbac.authorization.k8s.io \"c\" not found, role.rbac.authorization.k8s.io \"r\" not found]"
    );
    rbac.apply(RbacKind::Role, &role("conf", "r", rules));
    assert_eq!(
        authorize(&rbac, &attributes).reason(),
        "RBAC: allowed by RoleBinding \"readers/conf\" of Role \"r\" to Group \"ops\""
    );
}
