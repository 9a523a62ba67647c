//! Operations: which requests a resource answers.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::components::{GroupVersionKind, PATCH, reference};
use crate::schema::kinds::{Scope, Subresource, Verb};
use crate::schema::tables::meta;

/// Whether strategic merge patches are understood: they are for built-in kinds only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategic {
    Offered,
    Unknown,
}

/// What a document says about one resource.
#[derive(Debug, Clone)]
pub struct Served {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub resource: String,
    pub scope: Scope,
    pub verbs: Vec<Verb>,
    pub subresources: Vec<Subresource>,
    /// Names of the schemas of one object and of a list.
    pub schema: String,
    pub list_schema: String,
    pub strategic: Strategic,
}

/// Query parameters by the requests that take them.
#[derive(Clone, Copy)]
enum Query {
    Get,
    List,
    Write,
    Patch,
    Delete,
}

const BODY: &[&str] = &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

pub(super) fn of(served: &Served) -> BTreeMap<String, Value> {
    let root = if served.group.is_empty() {
        format!("/api/{}", served.version)
    } else {
        format!("/apis/{}/{}", served.group, served.version)
    };
    let collection = match served.scope {
        Scope::Cluster => format!("{root}/{}", served.resource),
        Scope::Namespaced => format!("{root}/namespaces/{{namespace}}/{}", served.resource),
    };
    let mut paths = BTreeMap::new();
    if served.scope == Scope::Namespaced && served.verbs.contains(&Verb::List) {
        let everywhere = Map::from_iter([("get".to_owned(), list(served, "ForAllNamespaces"))]);
        paths.insert(format!("{root}/{}", served.resource), with_parameters(everywhere, &[]));
    }
    let place: &[&str] = if served.scope == Scope::Namespaced { &["namespace"] } else { &[] };
    paths.insert(collection.clone(), with_parameters(collection_operations(served), place));
    let object = object_operations(served);
    let named: Vec<&str> = ["name"].iter().chain(place).copied().collect();
    if !object.is_empty() {
        paths.insert(format!("{collection}/{{name}}"), with_parameters(object, &named));
    }
    for subresource in &served.subresources {
        let operations = subresource_operations(served, subresource);
        paths.insert(format!("{collection}/{{name}}/{}", subresource.name), with_parameters(operations, &named));
    }
    paths
}

fn collection_operations(served: &Served) -> Map<String, Value> {
    let mut operations = Map::new();
    for verb in &served.verbs {
        match verb {
            Verb::List => operations.insert("get".to_owned(), list(served, "")),
            Verb::Create => operations.insert("post".to_owned(), Operation::create(served, served.own()).build()),
            Verb::DeleteCollection => {
                let mut operation = Operation::new(served, "delete", "deletecollection", "deleteCollection");
                operation.query = Query::List;
                operation.answer = meta::STATUS.name.to_owned();
                operations.insert("delete".to_owned(), operation.build())
            }
            _ => None,
        };
    }
    operations
}

fn object_operations(served: &Served) -> Map<String, Value> {
    let mut operations = Map::new();
    for verb in &served.verbs {
        match verb {
            Verb::Get | Verb::Update | Verb::Patch => {
                let (method, operation) = object_operation(served, *verb, "");
                operations.insert(method.to_owned(), operation);
            }
            Verb::Delete => {
                let mut operation = Operation::new(served, "delete", "delete", "delete");
                operation.query = Query::Delete;
                operation.body = Some((meta::DELETE_OPTIONS.name.to_owned(), BODY.to_vec()));
                operations.insert("delete".to_owned(), operation.build());
            }
            _ => {}
        }
    }
    operations
}

fn subresource_operations(served: &Served, subresource: &Subresource) -> Map<String, Value> {
    let mut operations = Map::new();
    for verb in subresource.verbs {
        match (verb, subresource.body) {
            (Verb::Create, Some(body)) => {
                let gvk = GroupVersionKind { group: body.group, version: body.version, kind: body.kind };
                let mut operation = Operation::create(served, gvk);
                operation.name_suffix = subresource.name.to_owned();
                operation.body = Some((body.schema.name.to_owned(), BODY.to_vec()));
                operation.answer = body.schema.name.to_owned();
                operations.insert("post".to_owned(), operation.build());
            }
            (Verb::Get | Verb::Update | Verb::Patch, _) => {
                let (method, operation) = object_operation(served, *verb, subresource.name);
                operations.insert(method.to_owned(), operation);
            }
            _ => {}
        }
    }
    operations
}

/// Reading, replacing or patching one object or its subresource.
fn object_operation(served: &Served, verb: Verb, suffix: &str) -> (&'static str, Value) {
    let (method, action, prefix, query) = match verb {
        Verb::Update => ("put", "put", "replace", Query::Write),
        Verb::Patch => ("patch", "patch", "patch", Query::Patch),
        _ => ("get", "get", "read", Query::Get),
    };
    let mut operation = Operation::new(served, method, action, prefix);
    operation.query = query;
    operation.name_suffix = suffix.to_owned();
    operation.body = match verb {
        Verb::Update => Some((served.schema.clone(), BODY.to_vec())),
        Verb::Patch => Some((PATCH.to_owned(), served.patch_types())),
        _ => None,
    };
    (method, operation.build())
}

fn list(served: &Served, suffix: &str) -> Value {
    let mut operation = Operation::new(served, "get", "list", "list");
    operation.query = Query::List;
    operation.name_suffix = suffix.to_owned();
    operation.answer.clone_from(&served.list_schema);
    operation.build()
}

impl Served {
    fn own(&self) -> GroupVersionKind<'_> {
        GroupVersionKind { group: &self.group, version: &self.version, kind: &self.kind }
    }

    fn patch_types(&self) -> Vec<&'static str> {
        let mut types =
            vec!["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"];
        if self.strategic == Strategic::Offered {
            types.push("application/strategic-merge-patch+json");
        }
        types
    }
}

/// One operation before it is JSON.
struct Operation<'a> {
    served: &'a Served,
    gvk: GroupVersionKind<'a>,
    method: &'static str,
    action: &'static str,
    name_prefix: &'static str,
    name_suffix: String,
    query: Query,
    /// Schema and content types of the request.
    body: Option<(String, Vec<&'static str>)>,
    answer: String,
}

impl<'a> Operation<'a> {
    fn new(served: &'a Served, method: &'static str, action: &'static str, name_prefix: &'static str) -> Self {
        Self {
            served,
            gvk: served.own(),
            method,
            action,
            name_prefix,
            name_suffix: String::new(),
            query: Query::Get,
            body: None,
            answer: served.schema.clone(),
        }
    }

    fn create(served: &'a Served, gvk: GroupVersionKind<'a>) -> Self {
        let mut operation = Self::new(served, "post", "post", "create");
        operation.gvk = gvk;
        operation.query = Query::Write;
        operation.body = Some((served.schema.clone(), BODY.to_vec()));
        operation
    }

    fn build(self) -> Value {
        let group = if self.served.group.is_empty() { "core" } else { &self.served.group };
        let family = group.split('.').next().unwrap_or(group);
        let namespaced = if self.served.scope == Scope::Namespaced { "Namespaced" } else { "" };
        let names = [family, &self.served.version, namespaced, &self.served.kind, &self.name_suffix];
        let id: String = names.into_iter().map(capitalized).collect();
        let code = if self.method == "post" { "201" } else { "200" };
        let mut operation = json!({
            "tags": [format!("{family}_{}", self.served.version)],
            "description": format!("{} {}", capitalized(self.name_prefix), self.served.kind),
            "operationId": format!("{}{id}", self.name_prefix),
            "responses": {code: {"description": "OK", "content": content(&self.answer, BODY)}, "401": {"description": "Unauthorized"}},
            "x-kubernetes-action": self.action,
            "x-kubernetes-group-version-kind": self.gvk.to_json(),
        });
        let parameters = self.query.parameters();
        if !parameters.is_empty() {
            operation["parameters"] = Value::Array(parameters);
        }
        if let Some((schema, types)) = self.body {
            operation["requestBody"] =
                json!({"content": content(&schema, &types), "required": self.method != "delete"});
        }
        operation
    }
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn content(schema: &str, types: &[&str]) -> Value {
    types.iter().map(|content_type| ((*content_type).to_owned(), json!({ "schema": reference(schema) }))).collect()
}

impl Query {
    fn parameters(self) -> Vec<Value> {
        let dry_run = ("dryRun", "string", "All: check everything and store nothing.");
        let manager = ("fieldManager", "string", "Who is recorded as the owner of the fields that change.");
        let validation =
            ("fieldValidation", "string", "What to do about unknown and duplicate fields: Ignore, Warn or Strict.");
        let rows: &[(&str, &str, &str)] = match self {
            Query::Get => &[("resourceVersion", "string", "The oldest state that will do.")],
            Query::Write => &[dry_run, manager, validation],
            Query::Patch => {
                &[dry_run, manager, validation, ("force", "boolean", "Apply only: take fields from other owners.")]
            }
            Query::Delete => &[
                dry_run,
                ("gracePeriodSeconds", "integer", "How long the object may take to end."),
                ("orphanDependents", "boolean", "Old form of propagationPolicy."),
                ("propagationPolicy", "string", "Orphan, Background or Foreground."),
            ],
            Query::List => &[
                ("allowWatchBookmarks", "boolean", "Whether a watch may report progress without changes."),
                ("continue", "string", "The place where the last page ended."),
                ("fieldSelector", "string", "Only objects with these fields."),
                ("labelSelector", "string", "Only objects with these labels."),
                ("limit", "integer", "The most objects on a page."),
                ("resourceVersion", "string", "The state to read or the place to watch from."),
                ("resourceVersionMatch", "string", "Exact or NotOlderThan."),
                ("sendInitialEvents", "boolean", "Whether a watch starts with all objects."),
                ("timeoutSeconds", "integer", "How long a watch lasts."),
                ("watch", "boolean", "Whether to watch instead of list."),
            ],
        };
        rows.iter().map(|(name, ty, doc)| parameter(name, "query", ty, doc)).collect()
    }
}

fn parameter(name: &str, place: &str, ty: &str, doc: &str) -> Value {
    json!({"name": name, "in": place, "description": doc, "schema": {"type": ty, "uniqueItems": true}})
}

/// Adds what the path itself carries: the names in braces, and `pretty`.
fn with_parameters(operations: Map<String, Value>, names: &[&str]) -> Value {
    let mut parameters = Vec::new();
    for name in names {
        let doc = if *name == "name" { "Name of the object." } else { "The namespace." };
        let mut parameter = parameter(name, "path", "string", doc);
        parameter["required"] = json!(true);
        parameters.push(parameter);
    }
    parameters.push(parameter("pretty", "query", "string", "Whether the answer is indented."));
    let mut path = operations;
    path.insert("parameters".to_owned(), Value::Array(parameters));
    Value::Object(path)
}
