//! Discovery: what kubectl and clients ask first. Two forms: one small document per group and version, and the whole
//! list at once ("aggregated"), which every client since 1.27 prefers.

mod health;
mod openapi;
mod version;

pub(crate) use health::{Check, health};
pub(crate) use openapi::{SwaggerCache, openapi_document, openapi_index};
pub(crate) use version::version;

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::catalog::{Group, Resource, Snapshot, Subresource, Version, foreign_kind, subresource_verbs};

/// `/api`.
pub(crate) fn api_versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

/// `/apis`.
pub(crate) fn group_list(served: &Snapshot) -> Value {
    let groups: Vec<Value> = served.groups.iter().filter(|group| !group.name.is_empty()).map(group_fields).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/GROUP`.
pub(crate) fn api_group(group: &Group) -> Value {
    let mut document = group_fields(group);
    document["kind"] = "APIGroup".into();
    document["apiVersion"] = "v1".into();
    document
}

fn group_fields(group: &Group) -> Value {
    let fields = |version: &Version| json!({"groupVersion": format!("{}/{}", group.name, version.name), "version": version.name});
    let versions: Vec<Value> = group.versions.iter().map(fields).collect();
    json!({"name": group.name, "preferredVersion": versions.first(), "versions": versions})
}

/// `/api/v1` and `/apis/GROUP/VERSION`.
pub(crate) fn resource_list(group: &Group, version: &Version) -> Value {
    let mut rows: Vec<(String, Value)> = Vec::new();
    for resource in &version.resources {
        rows.push((resource.plural.clone(), resource_row(resource)));
        for subresource in &resource.subresources {
            let name = format!("{}/{}", resource.plural, subresource.name());
            let row = subresource_row(resource, *subresource, &name);
            rows.push((name, row));
        }
    }
    rows.sort_by(|left, right| left.0.cmp(&right.0));
    let rows: Vec<Value> = rows.into_iter().map(|(_, row)| row).collect();
    match group.name.as_str() {
        "" => json!({"kind": "APIResourceList", "groupVersion": version.name, "resources": rows}),
        name => json!({
            "kind": "APIResourceList", "apiVersion": "v1",
            "groupVersion": format!("{name}/{}", version.name), "resources": rows,
        }),
    }
}

fn resource_row(resource: &Resource) -> Value {
    let mut row = json!({
        "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
        "kind": resource.kind, "verbs": resource.verbs,
    });
    optional_lists(resource, &mut row);
    row
}

fn optional_lists(resource: &Resource, row: &mut Value) {
    if !resource.short_names.is_empty() {
        row["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        row["categories"] = json!(resource.categories);
    }
}

fn subresource_row(resource: &Resource, subresource: Subresource, name: &str) -> Value {
    let mut row = json!({
        "name": name, "singularName": "", "namespaced": resource.namespaced,
        "kind": resource.kind, "verbs": subresource_verbs(resource, subresource),
    });
    if let Some(foreign) = foreign_kind(resource, subresource) {
        row["kind"] = foreign["kind"].clone();
        if foreign["group"] != "" {
            row["group"] = foreign["group"].clone();
            row["version"] = foreign["version"].clone();
        }
    }
    row
}

/// Which half of the aggregated list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Half {
    /// `/api`: the core group.
    Core,
    /// `/apis`: all others.
    Named,
}

/// The aggregated list of `/api` or `/apis`.
pub(crate) fn aggregated(served: &Snapshot, half: Half) -> Value {
    let wanted = |group: &&Group| group.name.is_empty() == (half == Half::Core);
    let items: Vec<Value> = served.groups.iter().filter(wanted).map(aggregated_group).collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn aggregated_group(group: &Group) -> Value {
    let metadata = match group.name.as_str() {
        "" => json!({}),
        name => json!({"name": name}),
    };
    let version = |version: &Version| {
        let resources: Vec<Value> = version.resources.iter().map(aggregated_resource).collect();
        json!({"version": version.name, "freshness": "Current", "resources": resources})
    };
    let versions: Vec<Value> = group.versions.iter().map(version).collect();
    json!({"metadata": metadata, "versions": versions})
}

fn aggregated_resource(resource: &Arc<Resource>) -> Value {
    // Custom resources repeat where they are, built-in ones do not.
    let (group, version) = match resource.custom() {
        Some(_) => (resource.group.as_str(), resource.version.as_str()),
        None => ("", ""),
    };
    let own_kind = json!({"group": group, "version": version, "kind": resource.kind});
    let mut row = json!({
        "resource": resource.plural, "responseKind": own_kind,
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular, "verbs": resource.verbs,
    });
    optional_lists(resource, &mut row);
    let subresource = |subresource: &Subresource| {
        let foreign = foreign_kind(resource, *subresource).map(|mut kind| {
            // A kind of the core group is no stranger here.
            if kind["group"] == "" {
                kind["version"] = "".into();
            }
            kind
        });
        json!({
            "subresource": subresource.name(), "verbs": subresource_verbs(resource, *subresource),
            "responseKind": foreign.unwrap_or_else(|| own_kind.clone()),
        })
    };
    let subresources: Vec<Value> = resource.subresources.iter().map(subresource).collect();
    if !subresources.is_empty() {
        row["subresources"] = subresources.into();
    }
    row
}

/// The strong tag of a document: the same bytes have the same tag.
pub(crate) fn etag(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    let digest = sha2::Sha512::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02X}")).collect()
}

/// `/` and other paths that only list what is below them.
pub(crate) fn paths(served: &Snapshot) -> Value {
    let mut paths = vec!["/api".to_owned(), "/api/v1".to_owned(), "/apis".to_owned()];
    for group in served.groups.iter().filter(|group| !group.name.is_empty()) {
        paths.push(format!("/apis/{}", group.name));
        paths.extend(group.versions.iter().map(|version| format!("/apis/{}/{}", group.name, version.name)));
    }
    paths.extend(
        ["/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version"].map(str::to_owned),
    );
    paths.sort();
    let mut document = Map::new();
    document.insert("paths".to_owned(), paths.into());
    Value::Object(document)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::built_in;

    fn rows(group: &str) -> Value {
        let group = built_in().group(group).expect("the group is served");
        resource_list(group, &group.versions[0])
    }

    #[test]
    fn the_core_list_has_no_api_version_and_others_have() {
        assert!(rows("").get("apiVersion").is_none());
        let storage = rows("storage.k8s.io");
        assert_eq!(storage["apiVersion"], "v1");
        assert_eq!(storage["groupVersion"], "storage.k8s.io/v1");
    }

    #[test]
    fn a_token_subresource_names_the_group_it_answers_in() {
        let core = rows("");
        let rows = core["resources"].as_array().expect("rows are a list");
        let token = rows.iter().find(|row| row["name"] == "serviceaccounts/token").expect("tokens can be asked for");
        assert_eq!(token["group"], "authentication.k8s.io");
        assert_eq!(token["kind"], "TokenRequest");
    }

    #[test]
    fn the_aggregated_core_group_has_empty_metadata() {
        assert_eq!(aggregated(built_in(), Half::Core)["items"][0]["metadata"], json!({}));
        assert_eq!(aggregated(built_in(), Half::Named)["items"][0]["versions"][0]["freshness"], "Current");
    }
}
