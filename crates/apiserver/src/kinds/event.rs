//! Event: one object, two views. Core clients and `events.k8s.io` clients name its fields differently; it is stored in
//! the core view, and [`to_core`] and [`from_core`] translate. The rules of each group expect their own view.

use super::age::since;
use super::cells::Column;
use super::labels::{invalid_each, validate_key};
use super::read::{
    copy, name, namespace, number, optional_text, present, remove, set, set_default_text, text, unchanged,
};
use super::time::Timestamp;
use super::{DeleteAnswer, Missing, Policy, Rules, meta, names};
use crate::status::{FieldError, FieldErrors};
use serde_json::Value;

const COLUMNS: &[Column] = &[
    Column::text("Last Seen", "When it happened last."),
    Column::text("Type", "Whether it is good or bad news."),
    Column::text("Reason", "What happened, in one word."),
    Column::text("Object", "What it happened to."),
    Column::text("Subobject", "Which part of it.").wide(),
    Column::text("Source", "Who says so.").wide(),
    Column::text("Message", "What happened."),
    Column::text("First Seen", "When it happened first.").wide(),
    Column::text("Count", "How often it happened.").wide(),
    Column::text("Name", "The name of the event.").wide(),
];

const POLICY: Policy = Policy { missing: Missing::Created, delete_answer: DeleteAnswer::Status, ..Policy::NAMESPACED };

/// Fields with two names: core, events.k8s.io.
const RENAMED: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("source", "deprecatedSource"),
    ("reportingComponent", "reportingController"),
];

const WORD: usize = 128;
const MESSAGE: usize = 1024;

/// The core view of an event in the `events.k8s.io` view.
pub fn to_core(event: &Value) -> Value {
    let mut event = renamed(event, "v1", RENAMED.map(|(core, new)| (new, core)));
    for field in ["/reportingComponent", "/reportingInstance"] {
        set_default_text(&mut event, field, "");
    }
    event
}

/// The `events.k8s.io` view of an event in the core view.
pub fn from_core(event: &Value) -> Value {
    let mut event = renamed(event, "events.k8s.io/v1", RENAMED);
    // The core view prints these also when they are empty; this one does not.
    for field in ["/reportingController", "/reportingInstance"] {
        if text(&event, field).is_empty() {
            remove(&mut event, field);
        }
    }
    event
}

fn renamed(event: &Value, version: &str, names: [(&str, &str); 7]) -> Value {
    let mut event = event.clone();
    for (from, to) in names {
        if let Some(value) = remove(&mut event, &format!("/{from}")) {
            set(&mut event, &format!("/{to}"), value);
        }
    }
    if event.get("apiVersion").is_some() {
        set(&mut event, "/apiVersion", version);
    }
    event
}

#[derive(Debug)]
pub(crate) struct CoreEventRules;

impl Rules for CoreEventRules {
    fn policy(&self) -> Policy {
        POLICY
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, event: &Value, now: Timestamp) -> Vec<Value> {
        core_row(event, now)
    }

    fn validate_create(&self, event: &Value) -> FieldErrors {
        validate_core(event, "reportingComponent")
    }

    fn validate_update(&self, event: &Value, _old: &Value) -> FieldErrors {
        validate_core(event, "reportingComponent")
    }
}

#[derive(Debug)]
pub(crate) struct EventRules;

impl Rules for EventRules {
    fn policy(&self) -> Policy {
        POLICY
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, event: &Value, now: Timestamp) -> Vec<Value> {
        core_row(&to_core(event), now)
    }

    fn validate_create(&self, event: &Value) -> FieldErrors {
        let core = to_core(event);
        let mut errors = validate_core(&core, "reportingController");
        errors.extend(meta::validate_create(event, &self.policy()));
        errors.extend(validate_series(&core));
        if present(&core, "/eventTime").is_none() {
            errors.push(FieldError::required("eventTime", ""));
        }
        let kind = text(&core, "/type");
        if !["Normal", "Warning"].contains(&kind) {
            errors.push(FieldError::invalid("type", "", format!("has invalid value: {kind}")));
        }
        for field in ["firstTimestamp", "lastTimestamp"] {
            if optional_text(&core, &format!("/{field}")).is_some() {
                errors.push(FieldError::invalid(field, "", "needs to be unset"));
            }
        }
        if number(&core, "/count").unwrap_or(0) != 0 {
            errors.push(FieldError::invalid("count", "", "needs to be unset"));
        }
        if ["/source/component", "/source/host"].iter().any(|part| !text(&core, part).is_empty()) {
            errors.push(FieldError::invalid("source", "", "needs to be unset"));
        }
        errors
    }

    fn validate_update(&self, event: &Value, old: &Value) -> FieldErrors {
        const FIXED: [(&str, &str); 13] = [
            ("involvedObject", "involvedObject"),
            ("reason", "reason"),
            ("message", "message"),
            ("source", "source"),
            ("firstTimestamp", "firstTimestamp"),
            ("lastTimestamp", "lastTimestamp"),
            ("count", "count"),
            ("reportingComponent", "reportingController"),
            ("reportingInstance", "reportingInstance"),
            ("type", "type"),
            ("eventTime", "eventTime"),
            ("action", "action"),
            ("related", "related"),
        ];
        let (core, before) = (to_core(event), to_core(old));
        let mut errors = validate_core(&core, "reportingController");
        errors.extend(meta::validate_core_update(event, old));
        if !unchanged(&core, &before, "/series") {
            errors.extend(validate_series(&core));
        }
        for (field, shown) in FIXED {
            let pointer = format!("/{field}");
            if !unchanged(&core, &before, &pointer) {
                errors.push(FieldError::immutable(shown, copy(&core, &pointer)));
            }
        }
        errors
    }
}

/// What both groups ask of an event in the core view. `controller` is the group's name of the reporting controller.
fn validate_core(event: &Value, controller: &str) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let (own, involved) = (namespace(event), text(event, "/involvedObject/namespace"));
    let new_style = present(event, "/eventTime").is_some();
    let agree = match (involved, new_style) {
        ("", false) => ["", "default"].contains(&own),
        ("", true) => ["default", "kube-system"].contains(&own),
        (_, false) => own == involved,
        (_, true) => true,
    };
    if !agree {
        errors.push(FieldError::invalid("involvedObject.namespace", involved, "does not match event.namespace"));
    }
    if new_style {
        let reporter = text(event, "/reportingComponent");
        if reporter.is_empty() {
            errors.push(FieldError::required(controller, ""));
        }
        errors.extend(validate_key(reporter, controller));
        for field in ["reportingInstance", "action", "reason"] {
            let value = text(event, &format!("/{field}"));
            if value.is_empty() {
                errors.push(FieldError::required(field, ""));
            }
            errors.extend(validate_length(value, field, WORD));
        }
        errors.extend(validate_length(text(event, "/message"), "message", MESSAGE));
    }
    errors.extend(invalid_each("namespace", own, names::subdomain(own)));
    errors
}

fn validate_length(value: &str, field: &str, most: usize) -> Option<FieldError> {
    (value.len() > most).then(|| FieldError::invalid(field, "", format!("can have at most {most} characters")))
}

fn validate_series(event: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if let Some(series) = present(event, "/series") {
        if number(series, "/count").unwrap_or(0) < 2 {
            errors.push(FieldError::invalid("series.count", "", "should be at least 2"));
        }
        if text(series, "/lastObservedTime").is_empty() {
            errors.push(FieldError::required("series.lastObservedTime", ""));
        }
    }
    errors
}

fn core_row(event: &Value, now: Timestamp) -> Vec<Value> {
    let time = |pointer: &str| optional_text(event, pointer);
    let first = since(time("/firstTimestamp").or_else(|| time("/eventTime")), now);
    let mut last = match time("/lastTimestamp") {
        Some(time) => since(Some(time), now),
        None => first.clone(),
    };
    let mut count = number(event, "/count").unwrap_or(0).max(1);
    if let Some(series) = present(event, "/series") {
        last = since(optional_text(series, "/lastObservedTime"), now);
        count = number(series, "/count").unwrap_or(0);
    }
    let kind = text(event, "/involvedObject/kind").to_lowercase();
    let object = match text(event, "/involvedObject/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    vec![
        last.into(),
        text(event, "/type").into(),
        text(event, "/reason").into(),
        object.into(),
        text(event, "/involvedObject/fieldPath").into(),
        source(event).into(),
        text(event, "/message").trim().into(),
        first.into(),
        count.into(),
        name(event).into(),
    ]
}

fn source(event: &Value) -> String {
    let first_given = |old: &str, new: &str| match text(event, old) {
        "" => text(event, new).to_string(),
        given => given.to_string(),
    };
    let component = first_given("/source/component", "/reportingComponent");
    match first_given("/source/host", "/reportingInstance") {
        instance if instance.is_empty() => component,
        instance => format!("{component}, {instance}"),
    }
}
