//! OpenAPI v3: one document per group-version, made from the tables.
//!
//! kubectl needs three things of a document (API-1.3): PATCH operations that carry the kind, a `fieldValidation`
//! parameter on them, and schemas with descriptions and merge keys. Documents of built-in kinds are
//! made once and kept as bytes; those of custom resources are made by the same functions whenever a definition changes.

mod components;
mod paths;
pub mod v2;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

pub use components::GroupVersionKind;
pub use paths::{Served, Strategic};

use super::kinds::{self, Kind};
use components::Components;

/// A document as it is served.
#[derive(Debug, Clone)]
pub struct Document {
    /// The key in the index: `api/v1` or `apis/storage.k8s.io/v1`.
    pub path: String,
    /// Changes whenever the bytes change; part of the address, so clients may keep the document for ever.
    pub hash: String,
    pub body: Arc<[u8]>,
}

impl Document {
    pub fn new(group: &str, version: &str, content: &Value) -> Self {
        let body: Arc<[u8]> = content.to_string().into_bytes().into();
        let hash = Sha256::digest(&body).iter().map(|byte| format!("{byte:02X}")).collect();
        Self { path: document_path(group, version), hash, body }
    }

    /// Where the index says the document is.
    pub fn address(&self) -> String {
        format!("/openapi/v3/{}?hash={}", self.path, self.hash)
    }
}

/// `api/v1` for the core group, `apis/GROUP/VERSION` for the others.
pub fn document_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// The content of `/openapi/v3`.
pub fn index<'a>(documents: impl IntoIterator<Item = &'a Document>) -> Value {
    let paths: BTreeMap<&str, Value> = documents
        .into_iter()
        .map(|document| (document.path.as_str(), json!({ "serverRelativeURL": document.address() })))
        .collect();
    json!({ "paths": paths })
}

/// The documents of the built-in kinds.
pub fn builtin() -> &'static [Document] {
    static DOCUMENTS: LazyLock<Vec<Document>> = LazyLock::new(|| {
        let versions: BTreeSet<(&str, &str)> = kinds::ALL.iter().map(|kind| (kind.group, kind.version)).collect();
        versions
            .into_iter()
            .map(|(group, version)| Document::new(group, version, &group_version(group, version)))
            .collect()
    });
    &DOCUMENTS
}

/// A document from its parts: paths by address, schemas by name.
pub fn assemble(paths: BTreeMap<String, Value>, schemas: BTreeMap<String, Value>) -> Value {
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.4"},
        "paths": paths,
        "components": {"schemas": schemas},
    })
}

/// The schemas every document needs beside those of its kinds: metadata, lists, delete options, Status and patches.
pub fn shared_schemas(group: &str, version: &str) -> BTreeMap<String, Value> {
    let mut components = Components::new();
    components.add_shared(group, version);
    components.into_schemas()
}

fn group_version(group: &str, version: &str) -> Value {
    let mut components = Components::new();
    components.add_shared(group, version);
    let mut all_paths = BTreeMap::new();
    for kind in kinds::ALL.iter().filter(|kind| kind.group == group && kind.version == version) {
        components.add_kind(kind);
        all_paths.extend(paths::of(&Served::from(*kind)));
    }
    assemble(all_paths, components.into_schemas())
}

impl From<&Kind> for Served {
    fn from(kind: &Kind) -> Self {
        Self {
            group: kind.group.to_owned(),
            version: kind.version.to_owned(),
            kind: kind.kind.to_owned(),
            resource: kind.resource.to_owned(),
            scope: kind.scope,
            verbs: kind.verbs.to_vec(),
            subresources: kind.subresources.to_vec(),
            schema: kind.schema.name.to_owned(),
            list_schema: components::list_name(kind),
            strategic: paths::Strategic::Offered,
        }
    }
}

/// The paths of one resource, for documents of custom resources.
pub fn resource_paths(served: &Served) -> BTreeMap<String, Value> {
    paths::of(served)
}
