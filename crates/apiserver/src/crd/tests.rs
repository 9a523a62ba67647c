//! Custom resources by themselves: rules, pruning, defaults, validation.

use std::cell::Cell;

use serde_json::{Value, json};

use super::prepared::{Schema, pattern_bytes};
use super::rule::{Rule, Subjects};
use super::{defaults, prune, validate, version_priority};

fn holds(rule: &str, new: Value, old: Option<Value>) -> bool {
    let rule = Rule::parse(rule).expect("the rule is understood");
    rule.holds(Subjects { new: &new, old: old.as_ref(), steps: &Cell::new(10_000_000) })
}

#[test]
fn the_six_shapes_of_the_snapshot_definitions_are_understood() {
    assert!(!holds("self == oldSelf", json!("a"), Some(json!("b"))));
    assert!(!holds("!has(oldSelf.f) || has(self.f)", json!({}), Some(json!({"f": 1}))));
    let exactly_one = "(has(self.a) && !has(self.b)) || (!has(self.a) && has(self.b))";
    assert!(holds(exactly_one, json!({"a": 1}), None));
    assert!(!holds(exactly_one, json!({"a": 1, "b": 1}), None));
    assert!(!holds("size(self) > 0", json!(""), None));
    assert!(holds("has(self.name) && has(self.__namespace__)", json!({"name": "n", "namespace": "s"}), None));
    let same = "self.name == oldSelf.name && self.__namespace__ == oldSelf.__namespace__";
    assert!(!holds(same, json!({"name": "n", "namespace": "s"}), Some(json!({"name": "n", "namespace": "t"}))));
}

#[test]
fn what_is_not_understood_is_not_guessed() {
    for rule in
        ["self.all(x, x > 1)", "self.a.startsWith('x')", "1 +", "has(self)", "(self == oldSelf", "'a\\n' == self"]
    {
        assert_eq!(Rule::parse(rule), None, "{rule}");
    }
    assert_eq!(Rule::parse(&"(".repeat(10_000)), None);
    assert_eq!(Rule::parse(&"!".repeat(10_000)), None);
}

#[test]
fn a_rule_about_change_needs_an_old_value() {
    let schema = json!({
        "type": "object",
        "properties": {"a": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "no"}]}},
    });
    assert!(validate::validate(&Schema::new(schema.clone()), &json!({"a": "1"}), None).is_empty());
    assert!(validate::validate(&Schema::new(schema.clone()), &json!({"a": "1"}), Some(&json!({}))).is_empty());
    let errors = validate::validate(&Schema::new(schema.clone()), &json!({"a": "2"}), Some(&json!({"a": "1"})));
    assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), ["a: Invalid value: \"2\": no"]);
}

#[test]
fn unknown_fields_are_dropped_and_named_unless_they_are_preserved() {
    let schema = json!({
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": {"a": {"type": "string"}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "map": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    });
    let mut object = json!({"kind": "K", "spec": {"a": "1", "b": 2}, "free": {"x": 1}, "map": {"k": "v"}, "more": 1});
    let problems: Vec<String> = prune::prune(&schema, &mut object).iter().map(ToString::to_string).collect();
    assert_eq!(object, json!({"kind": "K", "spec": {"a": "1"}, "free": {"x": 1}, "map": {"k": "v"}}));
    assert_eq!(problems, ["unknown field \"spec.b\"", "unknown field \"more\""]);
}

#[test]
fn defaults_fill_what_is_absent_and_reach_into_what_they_filled() {
    let schema = json!({"properties": {
        "spec": {"default": {}, "properties": {"a": {"default": 1}, "b": {"default": 2}}},
    }});
    let mut object = json!({});
    defaults::fill(&Schema::new(schema.clone()), &mut object);
    assert_eq!(object, json!({"spec": {"a": 1, "b": 2}}));
}

#[test]
fn wrong_types_and_values_are_told_with_their_place() {
    let schema = json!({
        "type": "object",
        "required": ["r"],
        "properties": {
            "a": {"type": "string"},
            "b": {"type": "string", "enum": ["X", "Y"]},
            "c": {"type": "integer", "minimum": 1},
            "d": {"type": "array", "items": {"type": "string", "pattern": "^a+$"}},
        },
    });
    let errors = validate::validate(&Schema::new(schema.clone()), &json!({"a": 5, "b": "Z", "c": 0, "d": ["b"]}), None);
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "r: Required value",
            "a: Invalid value: \"integer\": a in body must be of type string: \"integer\"",
            "b: Unsupported value: \"Z\": supported values: \"X\", \"Y\"",
            "c: Invalid value: 0: c in body should be greater than or equal to 1",
            "d[0]: Invalid value: \"b\": d[0] in body should match '^a+$'",
        ]
    );
}

#[test]
fn versions_are_preferred_by_maturity_and_then_by_number() {
    let mut versions = ["v1beta1", "v2", "v1", "v1alpha1", "x", "v1beta2"];
    versions.sort_by_key(|version| std::cmp::Reverse(version_priority(version)));
    assert_eq!(versions, ["v2", "v1", "v1beta2", "v1beta1", "v1alpha1", "x"]);
}

/// Found by the fuzzer: a chain was a tree as deep as it was long, and dropping it overflowed the stack.
#[test]
fn a_rule_may_be_a_long_chain() {
    let rule = "self == 1 || ".repeat(200_000) + "self == 2 && self != 3";
    assert!(holds(&rule, json!(2), None));
    assert!(!holds(&rule, json!(3), None));
}

/// Found by the fuzzer: a list of small items was answered with a copy of a large default for each.
#[test]
fn defaults_cannot_blow_an_object_up() {
    let item = json!({"type": "object", "properties": {"d": {"type": "string", "default": "d".repeat(100_000)}}});
    let schema = json!({"type": "object", "properties": {"l": {"type": "array", "items": item}}});
    let mut object = json!({"l": vec![json!({}); 10_000]});
    defaults::fill(&Schema::new(schema.clone()), &mut object);
    let size = object.to_string().len();
    assert!((4_000_000..6_000_000).contains(&size), "{size} bytes: too large to be stored, not too large to be held");
}

/// Found by the fuzzer: every wrong item was answered with all values that would be right.
#[test]
fn errors_about_a_long_list_are_told_up_to_a_limit() {
    let allowed: Vec<String> = (0..5_000).map(|number| format!("value-{number}")).collect();
    let schema =
        json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "string", "enum": allowed}}}});
    let errors = validate::validate(&Schema::new(schema.clone()), &json!({"l": vec![""; 100_000]}), None);
    assert!((2..100).contains(&errors.len()), "{} errors", errors.len());
    let missing = json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "object", "required": allowed}}}});
    let errors = validate::validate(&Schema::new(missing), &json!({"l": vec![json!({}); 100_000]}), None);
    assert!(errors.len() < 100_000, "{} errors", errors.len());
}

/// Found by the fuzzer: the pattern was compiled again for every item.
#[test]
fn a_pattern_is_compiled_once_for_all_items() {
    let items = json!({"type": "string", "pattern": "^[a-z]{1,300}$"});
    let schema = json!({"type": "object", "properties": {"l": {"type": "array", "items": items}}});
    assert!(validate::validate(&Schema::new(schema.clone()), &json!({"l": vec!["a"; 20_000]}), None).is_empty());
    assert!(pattern_bytes("(?:\\w{1000}){1000}").is_err(), "a pattern has a size limit");
}

#[test]
fn dropped_fields_are_told_up_to_a_limit() {
    let schema = json!({"type": "object", "properties": {}});
    let mut object = (0..10_000).map(|number| (format!("f{number}"), json!(1))).collect::<Value>();
    assert_eq!(prune::prune(&schema, &mut object).len(), 100);
    assert_eq!(object, json!({}));
}
