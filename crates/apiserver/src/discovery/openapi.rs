//! Serving OpenAPI. Version 3: an index with a hash per document, and the documents, which never change while their hash
//! is the same. Version 2: one document with a tag.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::etag;
use crate::catalog::{Group, Snapshot, Version};
use crate::crd;
use crate::http::Answer;
use crate::schema::openapi::v2::Swagger;
use crate::schema::openapi::{Document, builtin, document_path, index as index_of};
use crate::status::ApiError;
use crate::verbs::Outcome;

/// What Go clients ask for, and what they are told they got: an `@` is not allowed in a media type.
const OLD_PROTOBUF: [&str; 2] = [
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
];

/// The document of one version of a group: kept for built-in ones, made on demand for custom ones.
fn document(group: &Group, version: &Version) -> Document {
    let path = document_path(&group.name, &version.name);
    match builtin().iter().find(|document| document.path == path) {
        Some(document) => document.clone(),
        None => crd::document(&group.name, version),
    }
}

fn documents(served: &Snapshot) -> Vec<Document> {
    let versions = served.groups.iter().flat_map(|group| group.versions.iter().map(move |version| (group, version)));
    versions.map(|(group, version)| document(group, version)).collect()
}

/// The v2 document of what was served when it was last asked for: making it takes a while, and it is rarely another one.
#[derive(Debug, Default)]
pub(crate) struct SwaggerCache(Mutex<Option<(Arc<Snapshot>, Arc<Swagger>)>>);

impl SwaggerCache {
    fn get(&self, served: &Arc<Snapshot>) -> Arc<Swagger> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*kept {
            Some((of, swagger)) if Arc::ptr_eq(of, served) => Arc::clone(swagger),
            _ => {
                let swagger = Arc::new(Swagger::of(&documents(served)));
                *kept = Some((Arc::clone(served), Arc::clone(&swagger)));
                swagger
            }
        }
    }

    /// `/openapi/v2`.
    pub(crate) fn answer(&self, served: &Arc<Snapshot>, accept: &str, known_tag: &str) -> Outcome<Answer> {
        let swagger = self.get(served);
        let (content_type, bytes) = accept
            .split(',')
            .find_map(|clause| match clause.split(';').next().unwrap_or_default().trim() {
                "" | "*/*" | "application/*" | "application/json" => Some(("application/json", swagger.json.clone())),
                clause if OLD_PROTOBUF.contains(&clause) => Some((OLD_PROTOBUF[1], swagger.protobuf.clone())),
                _ => None,
            })
            .ok_or_else(|| {
                let types = format!("application/json, {}", OLD_PROTOBUF[1]);
                ApiError::not_acceptable(format!("only the following media types are accepted: {types}"))
            })?;
        let tag = format!("\"{}\"", etag(&bytes));
        let answer = match known_tag == tag {
            true => Answer::not_modified(),
            false => Answer::bytes(200, content_type, bytes),
        };
        Ok(answer.typed(content_type).header("etag", tag).header("vary", "Accept"))
    }
}

/// `/openapi/v3`. The type is the reference's, and so clients expect it.
pub(crate) fn openapi_index(served: &Snapshot, known_tag: &str) -> Answer {
    let documents = documents(served);
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
        let bytes = Bytes::from_owner(Arc::clone(&document.body));
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
