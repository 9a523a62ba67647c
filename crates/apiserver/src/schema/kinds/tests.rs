use super::{ALL, Scope, Verb, by_kind, by_resource};

#[test]
fn every_row_is_found_by_its_path_and_by_its_kind() {
    for kind in ALL {
        assert_eq!(by_resource(kind.group, kind.version, kind.resource), Some(*kind));
        assert_eq!(by_kind(kind.group, kind.version, kind.kind), Some(*kind));
    }
    assert_eq!(by_resource("storage.k8s.io", "v1beta1", "storageclasses"), None);
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
fn stored_kinds_have_metadata() {
    for kind in ALL.iter().filter(|kind| kind.allows(Verb::Get)) {
        assert!(kind.schema.field("metadata").is_some(), "{}", kind.kind);
        assert!(kind.schema.field("apiVersion").is_some(), "{}", kind.kind);
    }
}

#[test]
fn namespaces_cannot_be_deleted_by_the_dozen() {
    let namespace = by_kind("", "v1", "Namespace").expect("served");
    assert!(!namespace.allows(Verb::DeleteCollection));
    assert_eq!(namespace.scope, Scope::Cluster);
}
