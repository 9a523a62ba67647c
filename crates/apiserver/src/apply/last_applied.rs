//! The special case of manager `kubectl` (API-4.6): an object that was managed by client-side apply names its
//! configuration in an annotation. Fields that the annotation names and that no other manager has changed since are the
//! applier's own, and the annotation follows the applied configuration.

use serde_json::{Map, Value};

use super::compare::compare;
use super::extract::fields_of;
use super::path::escape_like_go;
use super::set::FieldSet;
use super::shape::Shape;
use super::validate::{Duplicates, check};

/// The one applier that is treated so.
pub(super) const KUBECTL: &str = "kubectl";
const ANNOTATION: &str = crate::keys::LAST_APPLIED;
/// All annotations of an object together; a longer configuration is not recorded.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// The fields that the live object still has as client-side apply left them. `None` when there is no usable annotation.
pub(super) fn still_as_applied(live: &Value, api_version: &str, shape: Shape<'_>) -> Option<FieldSet> {
    check(live, shape, Duplicates::Refused).ok()?;
    let applied: Value = serde_json::from_str(annotation(live)?).ok()?;
    if applied.get("apiVersion").and_then(Value::as_str) != Some(api_version) {
        return None;
    }
    check(&applied, shape, Duplicates::Refused).ok()?;
    let changed = compare(&applied, live, shape).ok()?;
    let fields = fields_of(&applied, shape);
    Some(fields.difference(&changed.modified).difference(&changed.added).difference(&changed.removed))
}

/// Rewrites the annotation, if the object has one, to the configuration that was applied.
pub(super) fn follow(object: &mut Value, config: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let mut config = config.clone();
    if let Some(meta) = config.get_mut("metadata").and_then(Value::as_object_mut) {
        match meta.get_mut("annotations") {
            Some(Value::Object(annotations)) if annotations.values().all(Value::is_string) => {
                annotations.remove(ANNOTATION);
            }
            Some(_) => {
                meta.remove("annotations");
            }
            None => {}
        }
    }
    let text = format!("{}\n", escape_like_go(&config.to_string()));
    let annotations = object.get_mut("metadata").and_then(|meta| meta.get_mut("annotations"));
    if let Some(Value::Object(annotations)) = annotations {
        annotations.insert(ANNOTATION.to_owned(), text.into());
        if size(annotations) > MAX_ANNOTATIONS {
            annotations.remove(ANNOTATION);
        }
    }
}

fn annotation(object: &Value) -> Option<&str> {
    let text = object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str()?;
    (!text.is_empty()).then_some(text)
}

fn size(annotations: &Map<String, Value>) -> usize {
    annotations.iter().map(|(name, value)| name.len() + value.as_str().map_or(0, str::len)).sum()
}
