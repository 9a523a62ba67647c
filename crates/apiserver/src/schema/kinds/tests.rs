use super::{ALL, DeleteAnswer, PutMissing, Scope, Selectors, Verb, by_kind, by_resource};

#[test]
fn every_row_is_found_by_its_path_and_by_its_kind() {
    for kind in ALL {
        assert_eq!(by_resource(kind.group, kind.version, kind.resource), Some(*kind));
        assert_eq!(by_kind(kind.group, kind.version, kind.kind), Some(*kind));
    }
    assert_eq!(by_resource("storage.k8s.io", "v1beta1", "storageclasses"), None);
}

/// Fact 6.
#[test]
fn deletes_answer_the_object_for_these_kinds_and_a_status_for_the_others() {
    let object: Vec<&str> = ALL
        .iter()
        .filter(|kind| kind.allows(Verb::Delete) && kind.rules.delete_answer == DeleteAnswer::Object)
        .map(|kind| kind.kind)
        .collect();
    let expected = [
        "Namespace",
        "PersistentVolumeClaim",
        "PersistentVolume",
        "Pod",
        "ResourceQuota",
        "ServiceAccount",
        "CSIDriver",
        "CSINode",
        "StorageClass",
        "VolumeAttachment",
        "VolumeAttributesClass",
    ];
    assert_eq!(object, expected);
}

/// Section 4.2.
#[test]
fn only_leases_events_limit_ranges_and_roles_are_created_by_put() {
    let creating: Vec<&str> =
        ALL.iter().filter(|kind| kind.rules.put_missing == PutMissing::Creates).map(|kind| kind.kind).collect();
    let expected =
        ["Event", "LimitRange", "Lease", "Event", "ClusterRoleBinding", "ClusterRole", "RoleBinding", "Role"];
    assert_eq!(creating, expected);
}

#[test]
fn verbs_are_listed_in_the_order_discovery_prints() {
    for kind in ALL {
        assert!(kind.verbs.is_sorted(), "{}", kind.kind);
        for subresource in kind.subresources {
            assert!(subresource.verbs.is_sorted(), "{}/{}", kind.kind, subresource.name);
        }
    }
}

#[test]
fn stored_kinds_have_metadata_and_columns() {
    for kind in ALL.iter().filter(|kind| kind.allows(Verb::Get)) {
        assert!(kind.schema.field("metadata").is_some(), "{}", kind.kind);
        assert!(kind.schema.field("apiVersion").is_some(), "{}", kind.kind);
        assert!(!kind.columns.is_empty(), "{}", kind.kind);
        assert_eq!(kind.subresource("status").is_some(), kind.rules.status != super::StatusWrites::None);
    }
}

#[test]
fn namespaces_cannot_be_deleted_by_the_dozen_and_have_no_namespace_selector() {
    let namespace = by_kind("", "v1", "Namespace").expect("served");
    assert!(!namespace.allows(Verb::DeleteCollection));
    assert_eq!(namespace.scope, Scope::Cluster);
    assert_eq!(namespace.selectors, Selectors::Own(&["metadata.name", "status.phase"]));
}
