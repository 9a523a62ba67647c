//! Field selectors: few labels per kind, equality only, and two styles of complaint about an unknown label.
//!
//! Matching reads the object as it is served, so the same event answers to `involvedObject.name` in one group and to
//! `regarding.name` in the other.

use std::borrow::Cow;

use serde_json::Value;

use super::go_text::go_quote;
use super::labels::{MOST_REQUIREMENTS, too_long};
use crate::store::Key;

/// Terms that must all hold. Without any, everything matches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<FieldTerm>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldTerm {
    pub field: String,
    pub equal: bool,
    pub value: String,
}

/// Which fields of one kind may be selected by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldLabels {
    known: Cow<'static, [Label]>,
    unknown: Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Label {
    name: Cow<'static, str>,
    value: Origin,
}

/// Where the value of a label is found. Numbers and booleans are compared as text, absence as the empty string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// At the path that the label spells.
    Path,
    /// At that path, `false` when absent.
    Flag,
    /// `source.component`, else `reportingComponent`.
    EventSource,
    /// Accepted and always empty.
    Nothing,
    /// Another name of this label.
    AliasOf(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unknown {
    NamesTheTwo,
    NotSupported,
}

impl FieldSelector {
    /// Reads the grammar; whether the labels are known is [`FieldLabels::check`]'s question. The error is the whole
    /// text of the 400.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = split_terms(text);
        parts.sort_unstable();
        parts.dedup();
        if parts.len() > MOST_REQUIREMENTS {
            return Err(too_long(parts.len()));
        }
        let mut terms = Vec::with_capacity(parts.len());
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let (field, equal, value) =
                split_term(part).ok_or_else(|| format!("invalid selector: '{text}'; can't understand '{part}'"))?;
            let value = unescape(value)?;
            // An operator alone says nothing about anything.
            if !field.is_empty() || !value.is_empty() {
                terms.push(FieldTerm { field: field.to_owned(), equal, value });
            }
        }
        Ok(Self { terms })
    }

    /// A selector of these terms.
    pub fn of(terms: Vec<FieldTerm>) -> Self {
        Self { terms }
    }

    /// Selects the one object with this name.
    pub fn named(name: &str) -> Self {
        Self { terms: vec![FieldTerm { field: "metadata.name".into(), equal: true, value: name.into() }] }
    }

    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    pub fn terms(&self) -> &[FieldTerm] {
        &self.terms
    }

    /// The one value that `field` must have, if the selector says so.
    pub fn requires_exact(&self, field: &str) -> Option<&str> {
        self.terms.iter().find(|term| term.equal && term.field == field).map(|term| term.value.as_str())
    }

    /// Whether every term is about the name or namespace, which are known without a look into the object.
    pub(crate) fn is_about_places(&self) -> bool {
        self.terms.iter().all(|term| matches!(term.field.as_str(), "metadata.name" | "metadata.namespace"))
    }

    /// Whether an object at this place satisfies every term; none if that takes a look into the object.
    pub(crate) fn matches_place(&self, place: &Key) -> Option<bool> {
        self.terms.iter().try_fold(true, |all, term| {
            let value = match term.field.as_str() {
                "metadata.name" => place.name(),
                "metadata.namespace" => place.namespace().unwrap_or_default(),
                _ => return None,
            };
            Some(all && (value == term.value) == term.equal)
        })
    }

    /// Whether an object, as served, satisfies every term.
    pub fn matches_object(&self, labels: &FieldLabels, object: &Value) -> bool {
        self.terms.iter().all(|term| (labels.value(object, &term.field) == term.value) == term.equal)
    }
}

const fn path(name: &'static str) -> Label {
    from(name, Origin::Path)
}

const fn from(name: &'static str, value: Origin) -> Label {
    Label { name: Cow::Borrowed(name), value }
}

const NAMESPACED: &[Label] = &[path("metadata.name"), path("metadata.namespace")];
const NODE: &[Label] = &[path("metadata.name"), from("spec.unschedulable", Origin::Flag)];
const NAMESPACE: &[Label] = &[path("metadata.name"), path("status.phase")];
const SECRET: &[Label] = &[path("metadata.name"), path("metadata.namespace"), path("type")];
const POD: &[Label] = &[
    path("metadata.name"),
    path("metadata.namespace"),
    path("spec.nodeName"),
    from("spec.host", Origin::AliasOf("spec.nodeName")),
    path("spec.restartPolicy"),
    path("spec.schedulerName"),
    path("spec.serviceAccountName"),
    from("spec.hostNetwork", Origin::Flag),
    path("status.phase"),
    path("status.podIP"),
    from("status.podIPs", Origin::Nothing),
    path("status.nominatedNodeName"),
];
const CORE_EVENT: &[Label] = &[
    path("metadata.name"),
    path("metadata.namespace"),
    path("involvedObject.kind"),
    path("involvedObject.namespace"),
    path("involvedObject.name"),
    path("involvedObject.uid"),
    path("involvedObject.apiVersion"),
    path("involvedObject.resourceVersion"),
    path("involvedObject.fieldPath"),
    path("reason"),
    path("reportingComponent"),
    from("source", Origin::EventSource),
    path("type"),
];
const EVENT: &[Label] = &[
    path("metadata.name"),
    path("metadata.namespace"),
    path("regarding.kind"),
    path("regarding.namespace"),
    path("regarding.name"),
    path("regarding.uid"),
    path("regarding.apiVersion"),
    path("regarding.resourceVersion"),
    path("regarding.fieldPath"),
    path("reason"),
    path("reportingController"),
    path("type"),
];

impl FieldLabels {
    /// The labels of a built-in resource.
    pub fn of(group: &str, resource: &str) -> Self {
        let own = match (group, resource) {
            ("", "pods") => POD,
            ("", "nodes") => NODE,
            ("", "namespaces") => NAMESPACE,
            ("", "secrets") => SECRET,
            ("", "events") => CORE_EVENT,
            ("events.k8s.io", "events") => EVENT,
            _ => return Self { known: Cow::Borrowed(NAMESPACED), unknown: Unknown::NamesTheTwo },
        };
        Self { known: Cow::Borrowed(own), unknown: Unknown::NotSupported }
    }

    /// The labels of a custom resource: the two of every object and the `selectableFields` of its definition, with or
    /// without their leading dot.
    pub fn custom<S: AsRef<str>>(selectable: &[S]) -> Self {
        let mut known = NAMESPACED.to_vec();
        known.extend(selectable.iter().map(|name| {
            let name = name.as_ref();
            Label { name: Cow::Owned(name.strip_prefix('.').unwrap_or(name).to_owned()), value: Origin::Path }
        }));
        Self { known: Cow::Owned(known), unknown: Unknown::NotSupported }
    }

    /// Replaces aliases, and refuses the first label that this kind does not have. The error is the whole text of the
    /// 400.
    pub fn check(&self, mut selector: FieldSelector) -> Result<FieldSelector, String> {
        for term in &mut selector.terms {
            match self.known.iter().find(|label| label.name == term.field.as_str()) {
                Some(Label { value: Origin::AliasOf(name), .. }) => (*name).clone_into(&mut term.field),
                Some(_) => {}
                None => return Err(self.complain(&term.field)),
            }
        }
        Ok(selector)
    }

    fn complain(&self, field: &str) -> String {
        match self.unknown {
            Unknown::NotSupported => format!("field label not supported: {field}"),
            Unknown::NamesTheTwo => {
                let field = go_quote(field);
                format!("{field} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
            }
        }
    }

    fn value<'a>(&self, object: &'a Value, field: &str) -> Cow<'a, str> {
        match self.known.iter().find(|label| label.name == field).map(|label| label.value) {
            Some(Origin::Path) => at(object, field),
            Some(Origin::AliasOf(name)) => at(object, name),
            Some(Origin::Flag) if at(object, field) == "true" => "true".into(),
            Some(Origin::Flag) => "false".into(),
            Some(Origin::EventSource) => match at(object, "source.component") {
                component if component.is_empty() => at(object, "reportingComponent"),
                component => component,
            },
            Some(Origin::Nothing) | None => "".into(),
        }
    }
}

fn at<'a>(object: &'a Value, path: &str) -> Cow<'a, str> {
    match path.split('.').try_fold(object, |value, key| value.get(key)) {
        Some(Value::String(text)) => text.as_str().into(),
        Some(Value::Bool(_) | Value::Number(_)) => {
            path.split('.').fold(object, |value, key| &value[key]).to_string().into()
        }
        Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => "".into(),
    }
}

/// Cuts at commas that no backslash precedes.
fn split_terms(text: &str) -> Vec<&str> {
    let mut escaped = false;
    text.split(|c| {
        let cut = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        cut
    })
    .collect()
}

/// Field, whether it must be equal, and the still escaped value; cut at the first operator.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    let at = term.char_indices().find(|(at, c)| *c == '=' || term[*at..].starts_with("!="))?.0;
    let (field, rest) = term.split_at(at);
    if let Some(value) = rest.strip_prefix("!=") {
        return Some((field, false, value));
    }
    let value = rest.strip_prefix("==").or_else(|| rest.strip_prefix('='))?;
    Some((field, true, value))
}

fn unescape(value: &str) -> Result<String, String> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => out.push(escaped),
                Some(other) => return Err(format!("invalid field selector: invalid escape sequence: \\{other}")),
                None => return Err("invalid field selector: invalid escape sequence: \\".into()),
            },
            // The reference prints the number of the character, not the character.
            ',' | '=' => {
                return Err(format!("invalid field selector: unescaped character in value: {}", u32::from(c)));
            }
            other => out.push(other),
        }
    }
    Ok(out)
}
