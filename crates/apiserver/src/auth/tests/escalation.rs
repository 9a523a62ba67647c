//! Who may write roles and bindings (API-8: "needs the rights granted, or verb escalate/bind").

use serde_json::{Value, json};

use super::super::{Rbac, RbacKind, RoleWrite, User, check_binding_write, check_role_write};
use super::{binding, role, shown, user};

/// Bob reads pods in `conf`, and may do what `more` says there.
fn bob_reads(more: Value) -> Rbac {
    let mut rbac = Rbac::default();
    let reads = json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]});
    let mut rules = vec![reads];
    rules.extend(more.as_array().unwrap().iter().cloned());
    rbac.apply(RbacKind::Role, &role("conf", "bobs", rules.into()));
    rbac.apply(
        RbacKind::RoleBinding,
        &binding("conf", "b", ("Role", "bobs"), json!([{"kind": "User", "name": "bob"}])),
    );
    let all = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]);
    rbac.apply(RbacKind::ClusterRole, &role("", "all", all));
    rbac
}

fn write<'a>(user: &'a User, resource: &'a str, object: &'a Value) -> RoleWrite<'a> {
    let namespace = if resource.starts_with("cluster") { "" } else { "conf" };
    RoleWrite { user, resource, namespace, name: "", object, old: None }
}

#[test]
fn nobody_grants_rights_they_lack() {
    let rbac = bob_reads(json!([]));
    let bob = user("bob", &[]);
    let held = role(
        "conf",
        "r",
        json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["p"]}]),
    );
    assert_eq!(check_role_write(&rbac, &write(&bob, "roles", &held)), Ok(()));
    let more = json!([
        {"verbs": ["get", "delete", "create"], "apiGroups": [""], "resources": ["pods", "secrets"]},
        {"verbs": ["get"], "nonResourceURLs": ["/metrics"]},
    ]);
    let lacked = role("conf", "r", more);
    assert_eq!(
        shown(check_role_write(&rbac, &write(&bob, "roles", &lacked))),
        "403 Forbidden: roles.rbac.authorization.k8s.io \"r\" is forbidden: user \"bob\" \
         (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n\
         {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"delete\" \"create\"]}\n\
         {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"delete\" \"create\"]}\n\
         {NonResourceURLs:[\"/metrics\"], Verbs:[\"get\"]}"
    );
    let admin = user("admin", &["system:masters"]);
    assert_eq!(check_role_write(&rbac, &write(&admin, "roles", &lacked)), Ok(()));
}

#[test]
fn the_verbs_escalate_and_bind_lift_the_check() {
    let bob = user("bob", &[]);
    let group = "rbac.authorization.k8s.io";
    let all = role("conf", "r", json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]));
    let escalate = bob_reads(json!([{"verbs": ["escalate"], "apiGroups": [group], "resources": ["roles"]}]));
    assert_eq!(check_role_write(&escalate, &write(&bob, "roles", &all)), Ok(()));
    let to_all = binding("conf", "x", ("ClusterRole", "all"), json!([]));
    assert_eq!(check_binding_write(&escalate, &write(&bob, "rolebindings", &to_all)).unwrap_err().code(), 403);
    let bind =
        json!([{"verbs": ["bind"], "apiGroups": [group], "resources": ["clusterroles"], "resourceNames": ["all"]}]);
    let bind = bob_reads(bind);
    assert_eq!(check_binding_write(&bind, &write(&bob, "rolebindings", &to_all)), Ok(()));
    assert_eq!(check_role_write(&bind, &write(&bob, "roles", &all)).unwrap_err().code(), 403);
    let everywhere = binding("", "x", ("ClusterRole", "all"), json!([]));
    assert_eq!(
        check_binding_write(&bind, &write(&bob, "clusterrolebindings", &everywhere)).unwrap_err().code(),
        403,
        "the right to bind in a namespace is not one for the cluster"
    );
}

#[test]
fn a_binding_to_rights_one_has_is_fine_and_to_nothing_is_not() {
    let rbac = bob_reads(json!([]));
    let bob = user("bob", &[]);
    let own = binding("conf", "x", ("Role", "bobs"), json!([]));
    assert_eq!(check_binding_write(&rbac, &write(&bob, "rolebindings", &own)), Ok(()));
    let missing = binding("conf", "x", ("ClusterRole", "none"), json!([]));
    assert_eq!(
        shown(check_binding_write(&rbac, &write(&bob, "rolebindings", &missing))),
        "404 NotFound: clusterrole.rbac.authorization.k8s.io \"none\" not found"
    );
}

#[test]
fn housekeeping_and_aggregation_are_special() {
    let rbac = bob_reads(json!([]));
    let bob = user("bob", &[]);
    let old = role("conf", "r", json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]));
    let mut new = old.clone();
    new["metadata"]["finalizers"] = json!(["a.io/b"]);
    let update = RoleWrite { old: Some(&old), ..write(&bob, "roles", &new) };
    assert_eq!(check_role_write(&rbac, &update), Ok(()), "removing a finalizer grants nothing");
    let gathers = json!({"metadata": {"name": "g"}, "aggregationRule": {"clusterRoleSelectors": [{}]}});
    assert_eq!(
        shown(check_role_write(&rbac, &write(&bob, "clusterroles", &gathers))),
        "403 Forbidden: clusterroles.rbac.authorization.k8s.io \"g\" is forbidden: must have cluster-admin privileges \
         to use the aggregationRule"
    );
}
