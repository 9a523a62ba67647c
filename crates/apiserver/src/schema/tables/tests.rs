use std::collections::{BTreeMap, BTreeSet};

use crate::schema::kinds;
use crate::schema::tables::{container, core, meta, node, persistent, pod, storage};
use crate::schema::types::{ListKind, ListPatch, Struct, Type, Wire};

/// Every struct that can be reached from a served kind.
fn reachable() -> Vec<&'static Struct> {
    fn visit(ty: Type, seen: &mut BTreeSet<&'static str>, found: &mut Vec<&'static Struct>) {
        match ty {
            Type::Struct(schema) if seen.insert(schema.name) => {
                found.push(schema);
                schema.fields.iter().for_each(|field| visit(field.ty, seen, found));
            }
            Type::Map(item) | Type::AtomicMap(item) => visit(*item, seen, found),
            Type::List(list) => visit(list.item, seen, found),
            _ => {}
        }
    }
    let (mut seen, mut found) = (BTreeSet::new(), Vec::new());
    for kind in kinds::ALL {
        visit(Type::Struct(kind.schema), &mut seen, &mut found);
    }
    for schema in [&meta::DELETE_OPTIONS, &meta::STATUS, &meta::LIST_META] {
        visit(Type::Struct(schema), &mut seen, &mut found);
    }
    found
}

#[test]
fn names_and_numbers_are_unique_inside_a_struct() {
    let all = reachable();
    assert!(all.len() > 250, "{} structs", all.len());
    for schema in all {
        let mut names = BTreeSet::new();
        let mut numbers = BTreeMap::new();
        for field in schema.fields {
            assert!(names.insert(field.name), "{}.{}", schema.name, field.name);
            if field.wire() != Wire::Nowhere {
                let other = numbers.insert(field.number, field.name);
                assert_eq!(other, None, "{}.{}", schema.name, field.name);
            }
            assert!(field.doc.ends_with('.'), "{}.{}", schema.name, field.name);
        }
    }
}

#[test]
fn merge_keys_are_fields_of_their_items() {
    for schema in reachable() {
        for field in schema.fields {
            let Type::List(list) = field.ty else { continue };
            let Type::Struct(item) = list.item else {
                assert!(!matches!(list.apply, ListKind::Map(_)), "{}.{}", schema.name, field.name);
                continue;
            };
            let mut keys: Vec<&str> = Vec::new();
            if let ListKind::Map(apply) = list.apply {
                keys.extend(apply);
            }
            if let ListPatch::MergeBy(key) | ListPatch::MergeByRetainKeys(key) = list.strategic {
                keys.push(key);
            }
            for key in keys {
                assert!(item.field(key).is_some(), "{}.{} by {key}", schema.name, field.name);
            }
        }
    }
}

fn list(schema: &'static Struct, field: &str) -> (ListPatch, ListKind) {
    match schema.field(field).expect("a field").ty {
        Type::List(list) => (list.strategic, list.apply),
        other => panic!("{field} is {other:?}"),
    }
}

/// Rule: API-4.5
#[test]
fn lists_merge_as_the_catalogue_says() {
    use ListKind::{Atomic, Map, Set};
    use ListPatch::{MergeBy, MergeByRetainKeys, MergeScalars, Replace};
    let by_name = Map(&["name"]);
    let rows: [(&'static Struct, &str, ListPatch, ListKind); 22] = [
        (&meta::OBJECT_META, "finalizers", MergeScalars, Set),
        (&meta::OBJECT_META, "ownerReferences", MergeBy("uid"), Map(&["uid"])),
        (&persistent::PERSISTENT_VOLUME_CLAIM_STATUS, "conditions", MergeBy("type"), Map(&["type"])),
        (&node::NODE_STATUS, "conditions", MergeBy("type"), Map(&["type"])),
        (&core::NAMESPACE_STATUS, "conditions", MergeBy("type"), Map(&["type"])),
        (&persistent::PERSISTENT_VOLUME_CLAIM_SPEC, "accessModes", Replace, Atomic),
        (&persistent::PERSISTENT_VOLUME_SPEC, "mountOptions", Replace, Atomic),
        (&storage::CSI_NODE_SPEC, "drivers", MergeBy("name"), by_name),
        (&storage::CSI_NODE_DRIVER, "topologyKeys", Replace, Atomic),
        (&storage::CSI_DRIVER_SPEC, "volumeLifecycleModes", Replace, Set),
        (&storage::CSI_DRIVER_SPEC, "tokenRequests", Replace, Atomic),
        (&node::NODE_STATUS, "addresses", MergeBy("type"), Map(&["type"])),
        (&node::NODE_SPEC, "taints", Replace, Atomic),
        (&node::NODE_SPEC, "podCIDRs", MergeScalars, Set),
        (&core::SERVICE_ACCOUNT, "secrets", MergeBy("name"), by_name),
        (&core::SERVICE_ACCOUNT, "imagePullSecrets", Replace, Atomic),
        (&pod::POD_SPEC, "volumes", MergeByRetainKeys("name"), by_name),
        (&pod::POD_SPEC, "containers", MergeBy("name"), by_name),
        (&container::CONTAINER, "env", MergeBy("name"), by_name),
        (&container::CONTAINER, "ports", MergeBy("containerPort"), Map(&["containerPort", "protocol"])),
        (&container::CONTAINER, "volumeMounts", MergeBy("mountPath"), Map(&["mountPath"])),
        (&container::CONTAINER, "volumeDevices", MergeBy("devicePath"), Map(&["devicePath"])),
    ];
    for (schema, field, strategic, apply) in rows {
        assert_eq!(list(schema, field), (strategic, apply), "{}.{field}", schema.name);
    }
}

#[test]
fn selectors_and_references_are_atomic_except_the_claim_of_a_volume() {
    let of = |schema: &'static Struct, field: &str| match schema.field(field).expect("a field").ty {
        Type::Struct(schema) => schema.atomic,
        other => panic!("{field} is {other:?}"),
    };
    assert!(of(&persistent::PERSISTENT_VOLUME_CLAIM_SPEC, "selector"));
    assert!(of(&persistent::PERSISTENT_VOLUME_CLAIM_SPEC, "dataSource"));
    assert!(!of(&persistent::PERSISTENT_VOLUME_CLAIM_SPEC, "dataSourceRef"));
    assert!(!of(&persistent::PERSISTENT_VOLUME_SPEC, "claimRef"));
    assert!(of(&persistent::VOLUME_NODE_AFFINITY, "required"));
    assert!(of(&storage::CSI_STORAGE_CAPACITY, "nodeTopology"));
    assert!(matches!(pod::POD_SPEC.field("nodeSelector").expect("a field").ty, Type::AtomicMap(_)));
}
