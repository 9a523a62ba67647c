//! Bodies: objects in JSON, YAML and protobuf, and the four kinds of patches.

use apiserver::catalog::{Resource, built_in};
use apiserver::schema::proto;
use serde_json::{Value, json};

use super::{texts, values};
use crate::case::{Part, Step};
use crate::random::Random;

/// The resource that custom objects of the prepared server have.
pub(super) const CUSTOM: &str = "/apis/conf.io/v1/namespaces/default/foos";

/// An object for a path, as JSON.
pub(super) fn object(random: &mut Random, resource: Option<&Resource>) -> Value {
    let table = resource.and_then(Resource::table);
    let mut object = match table {
        Some(_) if random.percent(4) => definition(random),
        Some(table) => values::of_struct(random, table, 0),
        None => custom(random),
    };
    if let (Some(resource), false) = (resource, random.percent(5)) {
        values::put(&mut object, &["apiVersion"], resource.api_version.as_str().into());
        values::put(&mut object, &["kind"], resource.kind.as_str().into());
    }
    if random.percent(85) {
        values::put(&mut object, &["metadata", "name"], (*random.pick(&["a", "b", "f", "n"])).into());
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            // These would refuse nearly every object.
            ["namespace", "uid", "resourceVersion"].iter().for_each(|field| drop(metadata.remove(*field)));
        }
    }
    (0..random.below(4)).for_each(|_| values::change(random, &mut object));
    object
}

fn custom(random: &mut Random) -> Value {
    let mut object = json!({
        "apiVersion": "conf.io/v1", "kind": "Foo", "metadata": {"name": "f"},
        "spec": {"a": "text", "b": 1, "list": [{"name": "x"}], "free": {"k": [1]}, "when": "2026-01-01T00:00:00Z"},
        "status": {"ok": true},
    });
    (0..random.below(4)).for_each(|_| values::change(random, &mut object));
    object
}

/// A definition of custom resources whose schema is a little wrong.
fn definition(random: &mut Random) -> Value {
    let mut definition = crate::http::definition("bars.conf.io", "Bar");
    let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    (0..random.below(6)).for_each(|_| values::change(random, schema));
    if random.percent(30) {
        let patterns =
            ["(a+)+$", "\\w{1000}", "(?:a{0,1000}){0,1000}", "[", "(?P<n>x)", "^é*$", "\\p{L}{500}", "(?i)x"];
        values::put(schema, &["properties", "spec", "properties", "a", "pattern"], (*random.pick(&patterns)).into());
    }
    if random.percent(30) {
        let words = [
            "self",
            ".a",
            "oldSelf",
            "!",
            "(",
            ")",
            "==",
            "&&",
            "||",
            "size",
            "has",
            "-9223372036854775808",
            "''",
            "é",
        ];
        let rule: String = (0..random.below(20)).map(|_| *random.pick(&words)).collect();
        values::put(schema, &["properties", "spec", "x-kubernetes-validations"], json!([{"rule": rule}]));
    }
    definition
}

/// Puts a body of one of the three formats into a step.
pub(super) fn written(random: &mut Random, step: Step, resource: Option<&Resource>) -> Step {
    let object = object(random, resource);
    let table = resource.and_then(Resource::table);
    match (random.below(10), resource, table) {
        (0..=1, ..) => step.with_body("application/yaml", vec![Part::text(yaml(random, &object))]),
        (2..=3, Some(resource), Some(table)) => {
            let sealed = proto::seal(&resource.api_version, &resource.kind, table, &object);
            step.with_body("application/vnd.kubernetes.protobuf", vec![Part::bytes(sealed)])
        }
        _ => step.with_body("application/json", vec![Part::text(object.to_string())]),
    }
}

/// JSON is YAML; some of it is written in ways that only YAML has.
fn yaml(random: &mut Random, object: &Value) -> String {
    let mut text = object.to_string();
    for _ in 0..random.below(4) {
        let (from, to) = *random.pick(&[
            ("\"a\"", "&x a"),
            ("null", "*x"),
            ("true", "yes"),
            ("1", "0o17"),
            ("{}", "!!map {}"),
            ("\"metadata\":", "<<: {a: b}, \"metadata\":"),
            ("[]", "&y [*y]"),
            ("\"", "'"),
            ("1", "!!binary YQ=="),
            ("}", "}\n---\n{}"),
            ("1", ".inf"),
        ]);
        text = text.replacen(from, to, 1 + random.below(2));
    }
    text
}

/// A patch of any kind.
pub(super) fn patch(random: &mut Random, step: Step, resource: Option<&Resource>) -> Step {
    match random.below(4) {
        0 => step.with_body("application/json-patch+json", vec![Part::text(json_patch(random).to_string())]),
        1 => step.with_body("application/merge-patch+json", vec![Part::text(object(random, resource).to_string())]),
        2 => {
            let mut patch = object(random, resource);
            (0..random.below(3)).for_each(|_| direct(random, &mut patch));
            step.with_body("application/strategic-merge-patch+json", vec![Part::text(patch.to_string())])
        }
        _ => {
            let mut config = object(random, resource);
            if random.percent(10) {
                values::put(&mut config, &["metadata", "managedFields"], managed(random));
            }
            let text = yaml(random, &config);
            step.with_body("application/apply-patch+yaml", vec![Part::text(text)])
        }
    }
}

fn json_patch(random: &mut Random) -> Value {
    const PLACES: [&str; 14] = [
        "",
        "/",
        "/metadata",
        "/metadata/labels",
        "/metadata/labels/a",
        "/spec",
        "/spec/list",
        "/spec/list/0",
        "/spec/list/-",
        "/spec/list/-1",
        "/spec/free",
        "/a~1b~0",
        "/metadata/annotations/x.io~1y",
        "/spec/list/99999999999999999999",
    ];
    let operations = (0..random.size(40)).map(|_| {
        let op = *random.pick(&["add", "remove", "replace", "move", "copy", "test", "", "Add"]);
        let mut operation = json!({"op": op, "path": random.pick(&PLACES), "from": random.pick(&PLACES)});
        if random.percent(70) {
            operation["value"] = values::odd(random);
        }
        operation
    });
    operations.collect()
}

/// Adds a directive of strategic merge patches somewhere.
fn direct(random: &mut Random, patch: &mut Value) {
    let at = random.percent(60);
    match patch {
        Value::Object(fields) if at && !fields.is_empty() => {
            let chosen = random.below(fields.len());
            fields.values_mut().nth(chosen).into_iter().for_each(|inner| direct(random, inner));
        }
        Value::Array(items) => {
            items
                .push(json!({"$patch": random.pick(&["delete", "replace", "merge", ""]), "name": texts::name(random)}));
        }
        Value::Object(fields) => {
            let (name, value) = match random.below(4) {
                0 => ("$patch".to_owned(), json!(random.pick(&["delete", "replace", "merge", "x"]))),
                1 => ("$retainKeys".to_owned(), json!(["a", 1])),
                2 => (format!("$setElementOrder/{}", texts::name(random)), values::odd(random)),
                _ => (format!("$deleteFromPrimitiveList/{}", texts::name(random)), values::odd(random)),
            };
            fields.insert(name, value);
        }
        _ => {}
    }
}

/// What a client may claim about who owns which field.
pub(super) fn managed(random: &mut Random) -> Value {
    let keys = [
        "f:metadata",
        "f:spec",
        "k:{\"name\":\"a\"}",
        "v:1",
        "v:",
        "i:0",
        "i:-1",
        "i:99999999999999999999",
        ".",
        "k:",
        "x",
        "",
    ];
    let mut fields = json!({});
    for _ in 0..random.below(6) {
        let mut outer = json!({});
        outer[*random.pick(&keys)] = fields;
        outer[*random.pick(&keys)] = values::odd(random);
        fields = outer;
    }
    let mut entry = json!({
        "manager": "m", "operation": "Apply", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    });
    (0..random.below(2)).for_each(|_| values::change(random, &mut entry));
    Value::from(vec![entry; 1 + random.below(3)])
}

/// A built-in resource, or none for the custom one.
pub(super) fn resource(random: &mut Random) -> Option<&'static Resource> {
    let count = built_in().all().count();
    built_in().all().nth(random.below(count + count / 8)).map(AsRef::as_ref)
}
