//! Inputs that are small to send and could be large to answer: each a known shape with a random size.

use serde_json::{Value, json};

use super::{bodies, requests, texts};
use crate::case::{Part, Step};
use crate::http::definition;
use crate::random::Random;

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const PODS: &str = "/api/v1/namespaces/default/pods";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const BARS: &str = "/apis/conf.io/v1/namespaces/default/bars";

type Bomb = fn(&mut Random, usize) -> Vec<Step>;

const BOMBS: [Bomb; 21] = [
    wide_list,
    deep,
    deep_block,
    laughs,
    terms,
    patch_copies,
    patch_shifts,
    slow_pattern,
    large_default,
    long_rule,
    large_diff,
    wrong_items,
    duplicate_keys,
    long_texts,
    merged_list,
    owned_fields,
    large_enum,
    large_required,
    many_roles,
    nested_schema,
    long_name,
];

/// A bomb of a random shape; its size is such that it fits into a request.
pub(super) fn steps(random: &mut Random) -> Vec<Step> {
    let bomb = random.below(BOMBS.len());
    let size = random.size(700_000);
    BOMBS[bomb](random, size)
}

/// `head`, so many `item`s with commas between them, `tail`.
fn list(head: &str, item: &str, times: usize, tail: &str) -> Vec<Part> {
    vec![Part::text(head), Part::repeated(format!("{item},"), times), Part::text(format!("{item}{tail}"))]
}

fn wide_list(random: &mut Random, size: usize) -> Vec<Step> {
    let item = *random.pick(&["{}", "[]", "0", "\"\"", "null", "{\"a\":0}"]);
    let field = *random.pick(&["finalizers", "ownerReferences", "managedFields", "labels", "x"]);
    let resource = bodies::resource(random);
    let path = requests::collection(random, resource);
    let (version, kind) = resource.map_or(("conf.io/v1", "Foo"), |resource| (&resource.api_version, &resource.kind));
    let object = format!(r#"{{"apiVersion":"{version}","kind":"{kind}","metadata":{{"name":"a","{field}":["#);
    let spec = format!(r#"{{"apiVersion":"{version}","kind":"{kind}","metadata":{{"name":"a"}},"spec":{{"list":["#);
    match random.below(5) {
        0 => vec![Step::new("POST", path).with_body(JSON, list("[", item, size, "]"))],
        1 => vec![Step::new("POST", path).with_body(YAML, list(&object, item, size, "]}}"))],
        2 => vec![Step::new("POST", path).with_body(JSON, list(&spec, item, size, "]}}"))],
        3 => vec![
            Step::new("PATCH", format!("{path}/a?fieldManager=m"))
                .with_body("application/apply-patch+yaml", list(&spec, item, size, "]}}")),
        ],
        _ => vec![Step::new("POST", path).with_body(JSON, list(&object, item, size, "]}}"))],
    }
}

fn deep(random: &mut Random, size: usize) -> Vec<Step> {
    let (open, close) = *random.pick(&[
        ("[", "]"),
        ("{\"a\":", "}"),
        ("{\"not\":", "}"),
        ("[{\"items\":", "}]"),
        ("- ", ""),
        ("? ", ""),
        ("!!x ", ""),
    ]);
    let kind = *random.pick(&[
        JSON,
        YAML,
        "application/merge-patch+json",
        "application/json-patch+json",
        "application/apply-patch+yaml",
    ]);
    let times = if random.percent(50) { random.within(90..600) } else { size };
    let head =
        json!({"apiVersion": "conf.io/v1", "kind": "Foo", "metadata": {"name": "f"}, "spec": {"free": 7}}).to_string();
    let (head, tail) = head.split_once('7').unwrap_or((&head, ""));
    let body = vec![
        Part::text(head),
        Part::repeated(open, times),
        Part::text("1"),
        Part::repeated(close, times),
        Part::text(tail),
    ];
    let step = if kind.contains("patch") {
        Step::new("PATCH", format!("{}/f?fieldManager=m", bodies::CUSTOM))
    } else {
        Step::new("POST", *random.pick(&[bodies::CUSTOM, MAPS, DEFINITIONS]))
    };
    vec![
        step.with_body(kind, body),
        Step::new("GET", format!("{}/f", bodies::CUSTOM)),
        Step::new("GET", bodies::CUSTOM),
    ]
}

/// Block YAML: each level on a line of its own, deeper than the one before.
fn deep_block(_: &mut Random, size: usize) -> Vec<Step> {
    let mut text = "apiVersion: conf.io/v1\nkind: Foo\nmetadata: {name: f}\nspec:\n free:\n".to_owned();
    (0..size.min(1_500)).for_each(|level| text.push_str(&format!("{}a:\n", " ".repeat(level + 2))));
    vec![Step::new("POST", bodies::CUSTOM).with_body(YAML, vec![Part::text(text)]), Step::new("GET", bodies::CUSTOM)]
}

/// Aliases of aliases: each line is ten times the one before.
fn laughs(random: &mut Random, size: usize) -> Vec<Step> {
    let lines = 2 + size % 12;
    let mut text = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for line in 1..lines {
        let items = vec![format!("*a{}", line - 1); 10].join(",");
        text.push_str(&format!("a{line}: &a{line} [{items}]\n"));
    }
    let head = "apiVersion: conf.io/v1\nkind: Foo\nmetadata: {name: f}\n";
    let kind = *random.pick(&[YAML, "application/apply-patch+yaml"]);
    let body = vec![Part::text(head), Part::text(text)];
    match kind {
        YAML => vec![Step::new("POST", *random.pick(&[bodies::CUSTOM, MAPS])).with_body(kind, body)],
        _ => vec![Step::new("PATCH", format!("{}/f?fieldManager=m", bodies::CUSTOM)).with_body(kind, body)],
    }
}

fn terms(random: &mut Random, size: usize) -> Vec<Step> {
    let term = *random.pick(&["a,", "a=b,", "!a,", "a%20in%20(b,c),", "(", "a%20in%20(", "metadata.name=a,", "\\"]);
    let key = *random.pick(&["labelSelector", "fieldSelector"]);
    let selector = term.repeat(size.min(47_000 / term.len()));
    vec![
        Step::new("GET", format!("{MAPS}?{key}={selector}a")),
        Step::new("DELETE", format!("{MAPS}?{key}={selector}a")),
    ]
}

/// `copy` of the whole into itself doubles it each time.
fn patch_copies(random: &mut Random, size: usize) -> Vec<Step> {
    let operation = match random.below(3) {
        0 => r#"{"op":"copy","from":"/spec","path":"/spec/free"}"#,
        1 => r#"{"op":"copy","from":"/spec/list","path":"/spec/list/-"}"#,
        _ => r#"{"op":"move","from":"/spec/list/0","path":"/spec/list/-"}"#,
    };
    let body = list("[", operation, size.min(40_000), "]");
    vec![Step::new("PATCH", format!("{}/f", bodies::CUSTOM)).with_body("application/json-patch+json", body)]
}

/// Inserting and removing at the head of a long list moves all of it each time.
fn patch_shifts(random: &mut Random, size: usize) -> Vec<Step> {
    let head = r#"[{"op":"add","path":"/spec/free","value":["#;
    let operation =
        *random.pick(&[r#"{"op":"add","path":"/spec/free/0","value":0}"#, r#"{"op":"remove","path":"/spec/free/0"}"#]);
    let mut body = list(head, "0", size, "]},");
    body.extend(list("", operation, random.size(9_990), "]"));
    vec![Step::new("PATCH", format!("{}/f", bodies::CUSTOM)).with_body("application/json-patch+json", body)]
}

/// The definition of bars, with one property of its spec.
fn bars(name: &str, property: Value) -> Step {
    let mut definition = definition("bars.conf.io", "Bar");
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] =
        json!({name: property});
    Step::new("POST", DEFINITIONS).with_body(JSON, vec![Part::text(definition.to_string())])
}

/// A bar whose spec is a list of equal items.
fn bar(item: &str, size: usize) -> Step {
    let head = r#"{"apiVersion":"conf.io/v1","kind":"Bar","metadata":{"name":"b"},"spec":{"l":["#;
    Step::new("POST", BARS).with_body(JSON, list(head, item, size, "]}}"))
}

fn slow_pattern(random: &mut Random, size: usize) -> Vec<Step> {
    let patterns = ["(a+)+$", "\\w{100}", "\\w{1000}", "(?:x{0,100}){0,100}", "(x|y|z){1,999}", "\\p{L}{200}"];
    let property = json!({"type": "array", "items": {"type": "string", "pattern": random.pick(&patterns)}});
    vec![bars("l", property), bar("\"aaaaaaaaaaaaaaaaaaaa!\"", size)]
}

fn large_default(random: &mut Random, size: usize) -> Vec<Step> {
    let default = "d".repeat(random.size(1 << 20));
    let items = json!({"type": "object", "properties": {"d": {"type": "string", "default": default}}});
    vec![bars("l", json!({"type": "array", "items": items})), bar("{}", size)]
}

fn long_rule(random: &mut Random, size: usize) -> Vec<Step> {
    let joint = *random.pick(&["||", "&&", "!", "(", "-"]);
    let rule = format!("self{joint}").repeat(size.min(400_000)) + "self";
    let property = json!({"type": "boolean", "x-kubernetes-validations": [{"rule": rule}]});
    let head = r#"{"apiVersion":"conf.io/v1","kind":"Bar","metadata":{"name":"b"},"spec":{"l":true}}"#;
    vec![bars("l", property), Step::new("POST", BARS).with_body(JSON, vec![Part::text(head)])]
}

/// An update that changes what may not change is answered with a difference of both.
fn large_diff(random: &mut Random, size: usize) -> Vec<Step> {
    let claim = |mode: &str, times: usize| {
        let head = r#"{"metadata":{"name":"b"},"spec":{"resources":{"requests":{"storage":"1Gi"}},"accessModes":["#;
        list(head, &format!("\"{mode}\""), times, "]}}")
    };
    let times = size.min(150_000);
    let one = format!("{CLAIMS}/b");
    let other = *random.pick(&["ReadWriteMany", "x"]);
    vec![
        Step::new("POST", CLAIMS).with_body(JSON, claim("ReadWriteOnce", times)),
        Step::new("PUT", one).with_body(JSON, claim(other, times)),
    ]
}

/// Everything in the list is wrong and will be complained about.
fn wrong_items(random: &mut Random, size: usize) -> Vec<Step> {
    match random.below(4) {
        0 => vec![bars("l", json!({"type": "array", "items": {"type": "string"}})), bar("0", size)],
        1 => vec![bars("l", json!({"type": "array", "items": {"type": "object"}})), bar("{\"u\":0}", size)],
        2 => {
            let head = r#"{"metadata":{"name":"p"},"spec":{"containers":["#;
            vec![Step::new("POST", PODS).with_body(JSON, list(head, "{}", size, "]}}"))]
        }
        _ => {
            let property = json!({"type": "array", "items": {"type": "object", "x-kubernetes-validations": [{"rule": "self.a == 1", "message": "m".repeat(10_000)}]}});
            vec![bars("l", property), bar("{}", size)]
        }
    }
}

fn duplicate_keys(random: &mut Random, size: usize) -> Vec<Step> {
    let item = *random.pick(&["\"u\":0", "\"data\":{}", "\"é\":\"\""]);
    let kind = *random.pick(&[JSON, YAML]);
    let validation = *random.pick(&["Strict", "Warn", "Ignore"]);
    let body = list(r#"{"metadata":{"name":"m"},"#, item, size, "}");
    vec![Step::new("POST", format!("{MAPS}?fieldValidation={validation}")).with_body(kind, body)]
}

fn long_texts(random: &mut Random, size: usize) -> Vec<Step> {
    let text = *random.pick(&["1", "é", "\\u0000", "\\\\", "0", "a.", "=", "A"]);
    let (path, head, tail) = *random.pick(&[
        (MAPS, r#"{"metadata":{"name":""#, r#""}}"#),
        (MAPS, r#"{"metadata":{"name":"m","labels":{""#, r#"":"v"}}}"#),
        (MAPS, r#"{"metadata":{"name":"m"},"binaryData":{"a":""#, r#""}}"#),
        (
            CLAIMS,
            r#"{"metadata":{"name":"m"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":""#,
            r#""}}}}"#,
        ),
        (PODS, r#"{"metadata":{"name":"m","creationTimestamp":""#, r#""}}"#),
        (
            bodies::CUSTOM,
            r#"{"apiVersion":"conf.io/v1","kind":"Foo","metadata":{"name":"m"},"spec":{"when":""#,
            r#""}}"#,
        ),
        (DEFINITIONS, r#"{"metadata":{"name":"m"},"spec":{"group":""#, r#""}}"#),
    ]);
    let body = vec![Part::text(head), Part::repeated(text, size), Part::text(tail)];
    let number = vec![Part::text(r#"{"metadata":{"generation":"#), Part::repeated("9", size), Part::text("}}")];
    vec![Step::new("POST", path).with_body(JSON, body), Step::new("POST", path).with_body(JSON, number)]
}

/// Lists whose items are told apart by a key, merged with themselves.
fn merged_list(random: &mut Random, size: usize) -> Vec<Step> {
    let items: Vec<Value> =
        (0..size.min(30_000)).map(|number| json!({"name": format!("c{number}"), "image": "i"})).collect();
    let object = json!({"metadata": {"name": "p"}, "spec": {"containers": items}}).to_string();
    let kind = *random.pick(&["application/strategic-merge-patch+json", "application/apply-patch+yaml"]);
    let head = json!({"apiVersion": "v1", "kind": "Pod"}).to_string();
    let config = format!("{},{}", head.trim_end_matches('}'), object.trim_start_matches('{'));
    vec![
        Step::new("POST", PODS).with_body(JSON, vec![Part::text(object)]),
        Step::new("PATCH", format!("{PODS}/p?fieldManager=m&force=true")).with_body(kind, vec![Part::text(config)]),
    ]
}

/// Many fields, owned by several managers, some of whom were made up by the client.
fn owned_fields(random: &mut Random, size: usize) -> Vec<Step> {
    let data: Value = (0..size.min(40_000)).map(|number| (format!("k{number}"), Value::from(""))).collect();
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data}).to_string();
    let apply = |manager: &str| {
        Step::new("PATCH", format!("{MAPS}/m?fieldManager={manager}&force=true"))
            .with_body("application/apply-patch+yaml", vec![Part::text(config.clone())])
    };
    let managed = json!({"metadata": {"managedFields": bodies::managed(random)}}).to_string();
    let claim = Step::new("PATCH", format!("{MAPS}/m?fieldManager=x"))
        .with_body("application/merge-patch+json", vec![Part::text(managed)]);
    vec![apply("a"), apply("b"), claim, apply("c")]
}

/// Every wrong value is answered with all values that would be right.
fn large_enum(random: &mut Random, size: usize) -> Vec<Step> {
    let allowed: Vec<String> = (0..random.size(20_000)).map(|number| format!("value-{number}")).collect();
    vec![bars("l", json!({"type": "array", "items": {"type": "string", "enum": allowed}})), bar("\"\"", size)]
}

fn large_required(random: &mut Random, size: usize) -> Vec<Step> {
    let required: Vec<String> = (0..random.size(20_000)).map(|number| format!("field-{number}")).collect();
    vec![bars("l", json!({"type": "array", "items": {"type": "object", "required": required}})), bar("{}", size)]
}

/// Rights are compared with rights when roles are written.
fn many_roles(random: &mut Random, size: usize) -> Vec<Step> {
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    let rule = r#"{"verbs":["get","list"],"apiGroups":["","a"],"resources":["pods","x"]}"#;
    let mut step = Step::new("POST", path)
        .with_body(JSON, list(r#"{"metadata":{"name":"r"},"rules":["#, rule, size.min(20_000), "]}"));
    if random.percent(50) {
        step.headers.push(("impersonate-user".to_owned(), texts::name(random)));
    }
    vec![step]
}

/// A schema inside a schema inside a schema.
fn nested_schema(random: &mut Random, size: usize) -> Vec<Step> {
    let (open, close) = *random.pick(&[
        (r#"{"type":"object","properties":{"a":"#, "}}"),
        (r#"{"type":"array","items":"#, "}"),
        (r#"{"type":"object","additionalProperties":"#, "}"),
        (r#"{"not":"#, "}"),
        (r#"{"allOf":["#, "]}"),
    ]);
    let times = size % 400;
    let text = definition("bars.conf.io", "Bar").to_string();
    let (head, tail) = text.split_once(r#""properties":{"#).unwrap_or((&text, ""));
    let body = vec![
        Part::text(format!(r#"{head}"properties":{{"deep":"#)),
        Part::repeated(open, times),
        Part::text(r#"{"type":"string"}"#),
        Part::repeated(close, times),
        Part::text(format!(",{tail}")),
    ];
    let kind = *random.pick(&[JSON, YAML]);
    vec![
        Step::new("POST", DEFINITIONS).with_body(kind, body),
        Step::new("GET", "/openapi/v3/apis/conf.io/v1"),
        Step::new("GET", BARS),
    ]
}

/// Every item of the list has a path as long as the name.
fn long_name(random: &mut Random, size: usize) -> Vec<Step> {
    let items = (3_usize << 20).saturating_sub(size) / 3;
    let name = vec![Part::repeated("n", size), Part::text(r#"":["#), Part::repeated("0,", items)];
    let (path, head, tail) = *random.pick(&[
        (
            bodies::CUSTOM,
            r#"{"apiVersion":"conf.io/v1","kind":"Foo","metadata":{"name":"g"},"spec":{"free":{""#,
            "0]}}}",
        ),
        (MAPS, r#"{"metadata":{"name":"m"},"data":{""#, "0]}}"),
        (MAPS, r#"{"metadata":{"name":"m","annotations":{""#, "0]}}}"),
    ]);
    let body = [vec![Part::text(head)], name, vec![Part::text(tail)]].concat();
    let apply = Step::new("PATCH", format!("{path}/g?fieldManager=m&force=true"));
    vec![Step::new("POST", path).with_body(JSON, body.clone()), apply.with_body("application/apply-patch+yaml", body)]
}
