//! Custom resources: kinds that clients define (API-6.9). A definition is an object of its own kind; each of
//! its served versions becomes a [`Resource`] whose objects are pruned, defaulted and validated by its schema.
//!
//! Of the rule language only what [`rule`] can read is accepted: a definition with another rule is refused, never served
//! with the rule ignored.

mod columns;
mod defaults;
mod definition;
mod openapi;
mod prepared;
mod prune;
mod rule;
mod snapshots;
mod validate;

#[cfg(test)]
mod tests;

pub(crate) use columns::PrinterColumn;
pub(crate) use definition::{CLEANUP, RULES, accepted, is_served};
pub(crate) use openapi::document;
pub(crate) use snapshots::definitions as snapshot_definitions;

use serde_json::{Value, json};

use prepared::Schema;

use crate::catalog::{Nature, Resource, Subresource};
use crate::kinds::meta;
use crate::kinds::{
    Column, DeleteAnswer, Finalizers, Missing, NameRule, Policy, Rules, Scope, Timestamp, Versionless, read,
};
use crate::schema::decode::{self, DecodeError, Problem};
use crate::schema::tables::meta::OBJECT_META;
use crate::status::FieldErrors;

/// Where definitions are stored.
pub(crate) const DEFINITIONS: &str = "customresourcedefinitions";
/// What clients see of a custom resource in discovery, in this order.
const VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// One version of a definition: how its objects behave.
#[derive(Debug)]
pub struct Custom {
    schema: Schema,
    scope: Scope,
    status: StatusEndpoint,
    columns: Vec<PrinterColumn>,
    selectable: Vec<String>,
    /// `group/version` that objects are stored in.
    stored_version: String,
    /// Told with every answer of a version that should not be used any more.
    deprecation: Option<String>,
}

/// Whether the status has an endpoint of its own, and so is no part of the object's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StatusEndpoint {
    Own,
    None,
}

/// The resources of a definition; none until its names are accepted.
pub(crate) fn served(definition: &Value) -> Vec<Resource> {
    if !is_served(definition) {
        return Vec::new();
    }
    let versions = read::list(definition, "/spec/versions").iter();
    versions.filter(|version| read::flag(version, "/served")).map(|version| resource(definition, version)).collect()
}

fn resource(definition: &Value, version: &Value) -> Resource {
    let text = |pointer: &str| read::text(definition, pointer).to_owned();
    let texts = |pointer: &str| read::texts(definition, pointer).into_iter().map(str::to_owned).collect();
    let (group, name) = (text("/spec/group"), read::text(version, "/name").to_owned());
    let custom = Custom::of(definition, version);
    let plural = text("/spec/names/plural");
    Resource {
        api_version: format!("{group}/{name}"),
        kind: text("/spec/names/kind"),
        list_kind: text("/spec/names/listKind"),
        singular: text("/spec/names/singular"),
        short_names: texts("/spec/names/shortNames"),
        categories: texts("/spec/names/categories"),
        namespaced: custom.scope == Scope::Namespaced,
        verbs: VERBS.to_vec(),
        subresources: match custom.status {
            StatusEndpoint::Own => vec![Subresource::Status],
            StatusEndpoint::None => Vec::new(),
        },
        stored_as: format!("{group}/{plural}"),
        nature: Nature::Custom(Box::new(custom)),
        version: name,
        plural,
        group,
    }
}

/// Versions by what clients should prefer: `v2` before `v1` before `v1beta2` before `v1alpha1` before anything else.
pub(crate) fn version_priority(version: &str) -> (u8, u64, u64) {
    let parse = || {
        let rest = version.strip_prefix('v')?;
        let end = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
        let major: u64 = rest[..end].parse().ok()?;
        let (stage, minor) = match &rest[end..] {
            "" => (3, "0"),
            rest => match (rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
                (Some(minor), _) => (2, minor),
                (_, Some(minor)) => (1, minor),
                (None, None) => return None,
            },
        };
        Some((stage, major, minor.parse().ok()?))
    };
    parse().unwrap_or((0, 0, 0))
}

/// The warning of a deprecated version: its own, or one that names it.
fn deprecation(definition: &Value, version: &Value) -> String {
    match read::text(version, "/deprecationWarning") {
        "" => {
            let (group, kind) = (read::text(definition, "/spec/group"), read::text(definition, "/spec/names/kind"));
            format!("{group}/{} {kind} is deprecated", read::text(version, "/name"))
        }
        warning => warning.to_owned(),
    }
}

impl Custom {
    fn of(definition: &Value, version: &Value) -> Self {
        let stored = read::list(definition, "/spec/versions").iter().find(|version| read::flag(version, "/storage"));
        let stored = stored.map(|version| read::text(version, "/name")).unwrap_or_default();
        Self {
            schema: Schema::new(
                version.pointer("/schema/openAPIV3Schema").cloned().unwrap_or_else(|| json!({"type": "object"})),
            ),
            scope: match read::text(definition, "/spec/scope") {
                "Namespaced" => Scope::Namespaced,
                _ => Scope::Cluster,
            },
            status: match read::present(version, "/subresources/status") {
                Some(_) => StatusEndpoint::Own,
                None => StatusEndpoint::None,
            },
            columns: PrinterColumn::all_of(version),
            selectable: read::list(version, "/selectableFields")
                .iter()
                .map(|field| read::text(field, "/jsonPath").to_owned())
                .collect(),
            stored_version: format!("{}/{stored}", read::text(definition, "/spec/group")),
            deprecation: read::flag(version, "/deprecated").then(|| deprecation(definition, version)),
        }
    }

    pub(crate) fn schema(&self) -> &Value {
        &self.schema.raw
    }

    pub(crate) fn selectable(&self) -> &[String] {
        &self.selectable
    }

    pub(crate) fn stored_version(&self) -> &str {
        &self.stored_version
    }

    pub(crate) fn deprecation(&self) -> Option<&str> {
        self.deprecation.as_deref()
    }

    pub(crate) fn column_definitions(&self) -> Vec<Value> {
        PrinterColumn::definitions(&self.columns)
    }

    pub(crate) fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        PrinterColumn::cells(&self.columns, object, now)
    }

    /// Drops what the schema does not know and normalises metadata; says what was dropped.
    pub(crate) fn decode(&self, mut object: Value) -> Result<(Value, Vec<Problem>), DecodeError> {
        let mut problems = prune::prune(&self.schema.raw, &mut object);
        if let Some(metadata) = object.get_mut("metadata") {
            let decoded = decode::from_value(&OBJECT_META, metadata.take())?;
            *metadata = decoded.object;
            problems.extend(decoded.problems.into_iter().map(|problem| match problem {
                Problem::Unknown(path) => Problem::Unknown(format!("metadata.{path}")),
                Problem::Duplicate(path) => Problem::Duplicate(format!("metadata.{path}")),
                other @ Problem::DuplicateLine { .. } => other,
            }));
        }
        Ok((object, problems))
    }

    /// Whether anything but metadata, and status where it has its own endpoint, differs.
    fn specified_differently(&self, object: &Value, old: &Value) -> bool {
        let keys = |value: &Value| value.as_object().map(|fields| fields.keys().cloned().collect()).unwrap_or_default();
        let all: Vec<String> = [keys(object), keys(old)].into_iter().flat_map(|keys: Vec<String>| keys).collect();
        all.iter().any(|key| match key.as_str() {
            "metadata" | "apiVersion" | "kind" => false,
            "status" if self.status == StatusEndpoint::Own => false,
            key => object.get(key) != old.get(key),
        })
    }
}

impl Rules for Custom {
    fn policy(&self) -> Policy {
        Policy {
            scope: self.scope,
            names: NameRule::Subdomain,
            finalizers: Finalizers::Any,
            missing: Missing::NotFound,
            versionless: Versionless::Refused,
            delete_answer: DeleteAnswer::Status,
        }
    }

    /// A definition's columns are not known at compile time: [`Custom::column_definitions`] has them.
    fn columns(&self) -> &'static [Column] {
        &[]
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        self.cells(object, now)
    }

    fn default(&self, object: &mut Value) {
        defaults::fill(&self.schema, object);
    }

    fn prepare_create(&self, object: &mut Value, _now: Timestamp) {
        if self.status == StatusEndpoint::Own {
            read::remove(object, "/status");
        }
        read::set(object, "/metadata/generation", 1);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, _now: Timestamp) {
        if self.status == StatusEndpoint::Own {
            read::restore(object, old, "/status");
        }
    }

    fn prepare_status_update(&self, object: &mut Value, old: &Value, _now: Timestamp) {
        let status = object.get("status").cloned();
        let managed = object.pointer("/metadata/managedFields").cloned();
        let version = object.pointer("/metadata/resourceVersion").cloned();
        object.clone_from(old);
        match status {
            Some(status) => object["status"] = status,
            None => drop(read::remove(object, "/status")),
        }
        for (field, value) in [("managedFields", managed), ("resourceVersion", version)] {
            if let Some(value) = value {
                object["metadata"][field] = value;
            }
        }
    }

    fn validate_create(&self, object: &Value) -> FieldErrors {
        let mut errors = meta::validate_create(object, &self.policy());
        errors.extend(validate::validate(&self.schema, object, None));
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> FieldErrors {
        validate::validate(&self.schema, object, Some(old))
    }

    fn validate_status_update(&self, object: &Value, old: &Value) -> FieldErrors {
        validate::validate(&self.schema, object, Some(old))
    }

    fn next_generation(&self, object: &Value, old: &Value) -> Option<i64> {
        let generation = read::number(old, "/metadata/generation").unwrap_or(0);
        Some(if self.specified_differently(object, old) { generation + 1 } else { generation })
    }
}
