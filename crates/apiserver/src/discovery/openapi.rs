//! Serving OpenAPI v3: an index with a hash per document, and the documents, which never change while their hash is the
//! same.

use bytes::Bytes;

use super::etag;
use crate::catalog::{Group, Snapshot, Version};
use crate::crd;
use crate::http::Answer;
use crate::schema::openapi::{Document, builtin, document_path, index as index_of};

/// The document of one version of a group: kept for built-in ones, made on demand for custom ones.
fn document(group: &Group, version: &Version) -> Document {
    let path = document_path(&group.name, &version.name);
    match builtin().iter().find(|document| document.path == path) {
        Some(document) => document.clone(),
        None => crd::document(&group.name, version),
    }
}

/// `/openapi/v3`. The type is the reference's, and so clients expect it.
pub(crate) fn openapi_index(served: &Snapshot, known_tag: &str) -> Answer {
    let versions = served.groups.iter().flat_map(|group| group.versions.iter().map(move |version| (group, version)));
    let documents: Vec<Document> = versions.map(|(group, version)| document(group, version)).collect();
    let bytes = serde_json::to_vec(&index_of(&documents)).unwrap_or_default();
    let tag = format!("\"{}\"", etag(&bytes));
    let answer = match known_tag == tag {
        true => Answer::not_modified(),
        false => Answer::bytes(200, "text/plain; charset=utf-8", bytes),
    };
    answer.header("etag", tag).header("vary", "Accept")
}

/// One document. A right hash makes it immutable, a wrong one leads to the right one, none means no caching.
pub(crate) fn openapi_document(served: &Snapshot, (group, version): (&str, &str), hash: &str) -> Answer {
    let group = served.group(group);
    let found = group.and_then(|group| Some((group, group.versions.iter().find(|known| known.name == version)?)));
    let Some((group, version)) = found else { return Answer::page_not_found() };
    let document = document(group, version);
    let body = || {
        let bytes = Bytes::from_owner(std::sync::Arc::clone(&document.body));
        Answer::bytes(200, "application/json", bytes)
            .header("vary", "Accept")
            .header("etag", format!("\"{}\"", document.hash))
    };
    match hash {
        "" => body(),
        hash if hash == document.hash => body()
            .header("cache-control", "public, immutable")
            // Clients only want it to be far away.
            .header("expires", "Fri, 31 Dec 2100 23:59:59 GMT"),
        _ => Answer::bytes(301, "text/plain; charset=utf-8", Bytes::new()).header("location", document.address()),
    }
}
