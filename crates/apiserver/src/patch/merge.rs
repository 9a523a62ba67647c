//! JSON merge patch (RFC 7386): maps are merged, null deletes, everything else is replaced.

use serde_json::{Map, Value};

/// The document with a patch merged into it. The patch must be a map (API-4.5: anything else is refused with 400 when
/// it is decoded).
pub fn apply(document: Value, patch: &Map<String, Value>) -> Value {
    let mut fields = match document {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    merge_fields(&mut fields, patch);
    Value::Object(fields)
}

/// Whether a patch neither changes the field `name` of the map `parent` at the root nor takes that map away.
pub fn leaves_alone(patch: &Map<String, Value>, parent: &str, name: &str) -> bool {
    match patch.get(parent) {
        None => true,
        Some(Value::Object(below)) => !below.contains_key(name),
        Some(_) => false,
    }
}

fn merge_fields(fields: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (name, patch) in patch {
        match (fields.get_mut(name), patch) {
            (_, Value::Null) => {
                fields.remove(name);
            }
            (Some(Value::Object(fields)), Value::Object(patch)) => merge_fields(fields, patch),
            (Some(Value::Object(_)), patch) => {
                fields.insert(name.clone(), patch.clone());
            }
            (_, patch) => {
                fields.insert(name.clone(), without_nulls(patch));
            }
        }
    }
}

/// A new value has nothing to delete: the nulls in its maps disappear. Nulls that are items of lists are values.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(name, value)| (name.clone(), without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        scalar => scalar.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn merged(document: Value, patch: Value) -> Value {
        apply(document, patch.as_object().expect("a patch of these tests is a map"))
    }

    /// Rule: API-C056
    #[test]
    fn a_patch_adds_and_changes_fields_of_maps() {
        let document = json!({"metadata": {"labels": {"a": "1", "b": "2"}}});
        let patch = json!({"metadata": {"labels": {"a": "9", "c": "3"}}});
        assert_eq!(
            merged(document, patch),
            json!({"metadata": {"labels": {"a": "9", "b": "2", "c": "3"}}}),
            "API-C056"
        );
    }

    #[test]
    fn null_deletes_a_field_and_nothing_when_it_is_absent() {
        let document = json!({"labels": {"a": "1"}, "x": 1});
        assert_eq!(
            merged(document, json!({"labels": {"a": null, "b": null}, "y": null})),
            json!({"labels": {}, "x": 1})
        );
    }

    #[test]
    fn a_patch_leaves_a_field_alone_unless_it_names_it_or_takes_its_parent_away() {
        let leaves = |patch: Value| leaves_alone(patch.as_object().expect("a map"), "metadata", "owners");
        assert!(leaves(json!({})) && leaves(json!({"spec": null, "metadata": {"labels": null}})));
        for reaching in [json!({"metadata": null}), json!({"metadata": 1}), json!({"metadata": {"owners": null}})] {
            assert!(!leaves(reaching));
        }
    }

    /// Rule: API-4.5
    #[test]
    fn lists_are_replaced_as_a_whole() {
        assert_eq!(merged(json!({"f": ["a", "b"]}), json!({"f": ["c"]})), json!({"f": ["c"]}), "API-4.5");
    }

    #[test]
    fn nulls_inside_a_new_map_are_left_out_but_nulls_in_lists_stay() {
        let patch = json!({"new": {"a": null, "b": {"c": null}, "d": [null, {"e": null, "f": 1}]}});
        assert_eq!(merged(json!({}), patch), json!({"new": {"b": {}, "d": [null, {"f": 1}]}}));
    }

    #[test]
    fn a_map_takes_the_place_of_a_scalar_and_a_scalar_of_a_map() {
        assert_eq!(
            merged(json!({"a": 1, "b": {"c": 1}}), json!({"a": {"x": 1}, "b": 2})),
            json!({"a": {"x": 1}, "b": 2})
        );
    }
}
