//! Requests by grammar: a method, a path that leads somewhere, a query of known words, headers, a body.

use apiserver::catalog::Resource;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::{bodies, texts};
use crate::case::Step;
use crate::random::Random;

/// A few requests about one resource, so that they meet each other's objects.
pub(super) fn steps(random: &mut Random) -> Vec<Step> {
    let resource = bodies::resource(random);
    (0..=random.below(5)).map(|_| step(random, resource)).collect()
}

fn step(random: &mut Random, resource: Option<&'static Resource>) -> Step {
    let collection = collection(random, resource);
    let one = format!("{collection}/{}", random.pick(&["a", "b", "f", "n"]));
    let deeper = below(random, &one);
    let mut step = match random.below(14) {
        0..=3 => bodies::written(random, Step::new("POST", collection), resource),
        4..=5 => bodies::written(random, Step::new("PUT", deeper), resource),
        6..=8 => bodies::patch(random, Step::new("PATCH", deeper), resource),
        9 => Step::new("GET", one),
        10 => Step::new("GET", collection),
        11 => Step::new("GET", format!("{collection}?watch=1")),
        12 => deletion(random, one, collection),
        _ => Step::new(random.pick::<&str>(&["GET", "HEAD", "OPTIONS", "POST", "CONNECT", "X"]), elsewhere(random)),
    };
    query(random, &mut step);
    headers(random, &mut step);
    step
}

/// The path of a resource's objects.
pub(super) fn collection(random: &mut Random, resource: Option<&Resource>) -> String {
    let Some(resource) = resource else { return bodies::CUSTOM.to_owned() };
    let root = match resource.group.as_str() {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    };
    if resource.namespaced && random.percent(90) {
        let namespace = if random.percent(90) { "default".to_owned() } else { escaped(&texts::any(random)) };
        return format!("{root}/namespaces/{namespace}/{}", resource.plural);
    }
    format!("{root}/{}", resource.plural)
}

fn below(random: &mut Random, one: &str) -> String {
    match random.below(8) {
        0..=1 => format!("{one}/status"),
        2 => format!("{one}/{}", random.pick(&["finalize", "binding", "eviction", "token", "scale", "x"])),
        _ => one.to_owned(),
    }
}

fn deletion(random: &mut Random, one: String, collection: String) -> Step {
    let step = Step::new("DELETE", if random.percent(70) { one } else { collection });
    if random.percent(50) {
        return step;
    }
    let mut options = serde_json::json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 5, "propagationPolicy": "Foreground",
        "preconditions": {"uid": "x", "resourceVersion": "1"}, "dryRun": ["All"],
    });
    (0..random.below(4)).for_each(|_| super::values::change(random, &mut options));
    step.with_body("application/json", vec![crate::case::Part::text(options.to_string())])
}

/// Paths that are no resource, or nearly one.
fn elsewhere(random: &mut Random) -> String {
    const PARTS: [&str; 26] = [
        "api",
        "apis",
        "v1",
        "v2",
        "namespaces",
        "default",
        "pods",
        "openapi",
        "v3",
        "healthz",
        "readyz",
        "livez",
        "version",
        "metrics",
        "..",
        ".",
        "",
        "%2e%2e",
        "%2F",
        "%00",
        "%",
        "storage.k8s.io",
        "conf.io",
        "status",
        "watch",
        "foos",
    ];
    let parts: Vec<&str> = (0..random.size(12)).map(|_| *random.pick(&PARTS)).collect();
    format!("/{}", parts.join("/"))
}

fn query(random: &mut Random, step: &mut Step) {
    const KEYS: [&str; 24] = [
        "limit",
        "continue",
        "resourceVersion",
        "resourceVersionMatch",
        "timeoutSeconds",
        "watch",
        "allowWatchBookmarks",
        "sendInitialEvents",
        "labelSelector",
        "fieldSelector",
        "dryRun",
        "fieldManager",
        "fieldValidation",
        "force",
        "pretty",
        "timeout",
        "gracePeriodSeconds",
        "propagationPolicy",
        "orphanDependents",
        "includeObject",
        "verbose",
        "exclude",
        "as",
        "ignoreStoreReadErrorWithClusterBreakingPotential",
    ];
    if random.percent(50) {
        return;
    }
    for _ in 0..random.below(6) {
        let key = *random.pick(&KEYS);
        let value = match (key, random.percent(85)) {
            (_, false) => texts::any(random),
            ("continue", _) => token(random),
            ("labelSelector" | "fieldSelector", _) => texts::selector(random),
            ("timeout", _) => texts::duration(random),
            ("dryRun", _) => "All".to_owned(),
            ("resourceVersionMatch", _) => (*random.pick(&["Exact", "NotOlderThan"])).to_owned(),
            ("fieldValidation", _) => (*random.pick(&["Strict", "Warn", "Ignore"])).to_owned(),
            ("propagationPolicy", _) => (*random.pick(&["Foreground", "Orphan", "Background"])).to_owned(),
            ("includeObject", _) => (*random.pick(&["None", "Metadata", "Object"])).to_owned(),
            ("fieldManager", _) => texts::name(random),
            ("limit" | "resourceVersion" | "timeoutSeconds" | "gracePeriodSeconds", _) => texts::number(random),
            _ => (*random.pick(&["true", "false", "1", "0", ""])).to_owned(),
        };
        let joint = if step.uri.contains('?') { '&' } else { '?' };
        step.uri.push(joint);
        step.uri.push_str(&format!("{key}={}", escaped(&value)));
    }
    if step.method == "PATCH" && !step.uri.contains("fieldManager") && random.percent(80) {
        let joint = if step.uri.contains('?') { '&' } else { '?' };
        step.uri.push_str(&format!("{joint}fieldManager=m"));
    }
}

/// A continue token that somebody made up.
fn token(random: &mut Random) -> String {
    let revision = texts::number(random);
    let start = texts::any(random).replace('"', "").chars().take(500).collect::<String>();
    let texts = [
        format!(r#"{{"v":"meta.k8s.io/v1","rv":{revision},"start":"{start}\u0000"}}"#),
        format!(r#"{{"v":"meta.k8s.io/v1","rv":3,"start":"{start}"}}"#),
        r#"{"v":"meta.k8s.io/v1","rv":-1,"start":"default/a\u0000"}"#.to_owned(),
        format!(r#"{{"v":{revision},"rv":"x","start":[]}}"#),
        "[".repeat(random.size(5_000)),
    ];
    URL_SAFE_NO_PAD.encode(random.pick(&texts))
}

fn headers(random: &mut Random, step: &mut Step) {
    const ACCEPT: [&str; 10] = [
        "application/json",
        "application/yaml",
        "application/vnd.kubernetes.protobuf",
        "*/*",
        "",
        "text/html",
        "application/json;as=Table;v=v1;g=meta.k8s.io",
        "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;q=0.1,*/*;q=99999999999999999999",
    ];
    if random.percent(40) {
        step.headers.push(("accept".to_owned(), (*random.pick(&ACCEPT)).to_owned()));
    }
    if random.percent(5) {
        let value: String = texts::any(random).chars().filter(|letter| !letter.is_control()).collect();
        let name = *random.pick(&[
            "accept",
            "content-type",
            "user-agent",
            "if-none-match",
            "impersonate-user",
            "authorization",
        ]);
        step.headers.extend(vec![(name.to_owned(), value); 1 + random.size(200)]);
    }
}

/// As it may stand in a URI.
fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}
