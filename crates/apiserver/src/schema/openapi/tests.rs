use serde_json::{Value, json};

use super::{Document, builtin, index};
use crate::schema::kinds::{self, Verb};

fn document(path: &str) -> Value {
    let document = builtin().iter().find(|document| document.path == path).expect("a document per group-version");
    serde_json::from_slice(&document.body).unwrap()
}

fn patches(document: &Value) -> Vec<&Value> {
    document["paths"].as_object().unwrap().values().filter_map(|path| path.get("patch")).collect()
}

/// kubectl looks for these three before it applies anything.
/// Rule: API-1.3
#[test]
fn kubectl_finds_a_patch_operation_with_kind_validation_and_strategic_merge_for_every_kind() {
    for kind in kinds::ALL.iter().filter(|kind| kind.allows(Verb::Patch)) {
        let document = document(&super::document_path(kind.group, kind.version));
        let gvk = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
        let patch = patches(&document)
            .into_iter()
            .find(|patch| patch["x-kubernetes-group-version-kind"] == gvk)
            .cloned()
            .unwrap_or_else(|| panic!("{} has a patch operation", kind.kind));
        let parameters = patch["parameters"].as_array().unwrap();
        for name in ["fieldValidation", "dryRun", "fieldManager", "force"] {
            assert!(parameters.iter().any(|p| p["name"] == name && p["in"] == "query"), "{} {name}", kind.kind);
        }
        assert!(patch["requestBody"]["content"].get("application/strategic-merge-patch+json").is_some());
        let schemas = document["components"]["schemas"].as_object().unwrap();
        assert!(
            schemas.values().any(|schema| schema["x-kubernetes-group-version-kind"] == json!([gvk])),
            "{} has a schema that names its kind",
            kind.kind
        );
    }
}

#[test]
fn explain_finds_a_path_with_the_kind_under_the_resource() {
    let document = document("api/v1");
    for path in ["/api/v1/persistentvolumes", "/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}"] {
        assert!(document["paths"][path]["get"]["x-kubernetes-group-version-kind"]["kind"].is_string(), "{path}");
    }
    assert_eq!(document["paths"]["/api/v1/persistentvolumeclaims"]["get"]["x-kubernetes-action"], "list");
}

fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn every_reference_leads_to_a_schema_and_every_schema_has_a_description() {
    for served in builtin() {
        let document = document(&served.path);
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let mut found = Vec::new();
        references(&document, &mut found);
        for reference in found {
            let name = reference.strip_prefix("#/components/schemas/").unwrap();
            assert!(schemas.contains_key(name), "{name} in {}", served.path);
        }
        for (name, schema) in schemas {
            assert!(schema["description"].as_str().is_some_and(|doc| doc.ends_with('.')), "{name}");
        }
    }
}

/// Rule: API-4.5
#[test]
fn merge_keys_and_list_types_are_in_the_schemas() {
    let core = document("api/v1");
    let property = |name: &str, field: &str| core["components"]["schemas"][name]["properties"][field].clone();
    let volumes = property("io.k8s.api.core.v1.PodSpec", "volumes");
    assert_eq!(volumes["x-kubernetes-patch-strategy"], "merge,retainKeys");
    assert_eq!(volumes["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(volumes["x-kubernetes-list-type"], "map");
    assert_eq!(volumes["x-kubernetes-list-map-keys"], json!(["name"]));
    let ports = property("io.k8s.api.core.v1.Container", "ports");
    assert_eq!(ports["x-kubernetes-list-map-keys"], json!(["containerPort", "protocol"]));
    assert_eq!(property("io.k8s.api.core.v1.ContainerPort", "protocol")["default"], "TCP");
    let finalizers = property("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "finalizers");
    assert_eq!(
        (&finalizers["x-kubernetes-list-type"], &finalizers["x-kubernetes-patch-strategy"]),
        (&json!("set"), &json!("merge"))
    );
    assert_eq!(property("io.k8s.api.core.v1.PersistentVolumeSpec", "claimRef")["x-kubernetes-map-type"], "granular");
    assert_eq!(property("io.k8s.api.core.v1.PodSpec", "nodeSelector")["x-kubernetes-map-type"], "atomic");
    let reference = &core["components"]["schemas"]["io.k8s.api.core.v1.ObjectReference"];
    assert_eq!(reference["x-kubernetes-map-type"], "atomic");
}

#[test]
fn the_index_addresses_each_document_by_its_hash() {
    let index = index(builtin());
    let core = builtin().iter().find(|document| document.path == "api/v1").unwrap();
    assert_eq!(index["paths"]["api/v1"]["serverRelativeURL"], format!("/openapi/v3/api/v1?hash={}", core.hash));
    assert_eq!(core.hash.len(), 64);
    assert!(index["paths"].get("apis/storage.k8s.io/v1").is_some());
}

#[test]
fn the_same_content_has_the_same_hash_and_other_content_another() {
    let hash = |content: &Value| Document::new("", "v1", content).hash;
    assert_eq!(hash(&json!({"a": 1})), hash(&json!({"a": 1})));
    assert_ne!(hash(&json!({"a": 1})), hash(&json!({"a": 2})));
}
