//! Questions about rights and tokens that clients may ask: the answers are computed and never stored.
//!
//! Each function takes the posted object and gives the object to answer with, 201.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::token_request::timestamp;
use super::{Attributes, Authenticator, Authority, BoundObjects, Object, Rbac, UnixSeconds, User};
use crate::request::{Cause, FieldSelector, FieldTerm, Refusal, aggregate, go_quote};

const GROUP: &str = "authorization.k8s.io";

/// May I?
pub fn self_subject_access_review(authority: &dyn Authority, user: &User, body: &Value) -> Result<Value, Refusal> {
    let mut causes = attribute_causes(&body["spec"]);
    causes.extend(metadata_cause(body, &[], "must be empty"));
    refuse(causes)?;
    Ok(answered(body, access(authority, user, &body["spec"])))
}

/// May they?
pub fn subject_access_review(authority: &dyn Authority, body: &Value) -> Result<Value, Refusal> {
    let mut causes = subject_causes(&body["spec"]);
    causes.extend(metadata_cause(body, &[], "must be empty"));
    refuse(causes)?;
    Ok(answered(body, access(authority, &subject(&body["spec"]), &body["spec"])))
}

/// May they, in this namespace? `namespace` is the URL's.
pub fn local_subject_access_review(authority: &dyn Authority, namespace: &str, body: &Value) -> Result<Value, Refusal> {
    let spec = &body["spec"];
    let own = body["metadata"]["namespace"].as_str().unwrap_or(namespace);
    let mut causes = subject_causes(spec);
    causes.extend(metadata_cause(body, &["namespace"], "must be empty except for namespace"));
    let asked = spec["resourceAttributes"]["namespace"].as_str().unwrap_or_default();
    if !spec["resourceAttributes"].is_null() && asked != own {
        let field = "spec.resourceAttributes.namespace";
        causes.push(Cause::invalid(field, go_quote(asked), "must match metadata.namespace"));
    }
    if !spec["nonResourceAttributes"].is_null() {
        let value = path_attributes(&spec["nonResourceAttributes"]);
        causes.push(Cause::invalid("spec.nonResourceAttributes", value, "disallowed on this kind of request"));
    }
    refuse(causes)?;
    if own != namespace {
        let why = format!("spec.resourceAttributes.namespace must match namespace: {namespace}");
        return Err(Refusal::BadRequest(why));
    }
    Ok(answered(body, access(authority, &subject(spec), spec)))
}

/// What may I do in this namespace?
pub fn self_subject_rules_review(rbac: &Rbac, user: &User, body: &Value) -> Result<Value, Refusal> {
    let namespace = body["spec"]["namespace"].as_str().unwrap_or_default();
    if namespace.is_empty() {
        return Err(Refusal::BadRequest("no namespace on request".into()));
    }
    let (rules, unresolved) = rbac.rules_for(user, namespace);
    let (mut resources, mut paths) = (Vec::new(), Vec::new());
    for rule in rules {
        if !rule.resources.is_empty() {
            let mut shown = json!({"verbs": rule.verbs, "apiGroups": rule.api_groups, "resources": rule.resources});
            if !rule.resource_names.is_empty() {
                shown["resourceNames"] = json!(rule.resource_names);
            }
            resources.push(shown);
        }
        if !rule.non_resource_urls.is_empty() {
            paths.push(json!({"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls}));
        }
    }
    let mut status = json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false});
    if !unresolved.is_empty() {
        status["evaluationError"] = aggregate(unresolved.iter().map(ToString::to_string)).into();
    }
    Ok(json!({
        "kind": "SelfSubjectRulesReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {}, "spec": {},
        "status": status,
    }))
}

/// Who am I?
pub fn self_subject_review(user: &User, now: UnixSeconds) -> Value {
    json!({
        "kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"creationTimestamp": timestamp(now.0)},
        "status": {"userInfo": user.to_json()},
    })
}

/// Whose is this token? A wrong token is an answer, not an error.
pub fn token_review(
    authenticator: &Authenticator,
    body: &Value,
    objects: &dyn BoundObjects,
    now: UnixSeconds,
) -> Result<Value, Refusal> {
    let spec = &body["spec"];
    let token = spec["token"].as_str().unwrap_or_default();
    if token.is_empty() {
        return Err(Refusal::BadRequest("token is required for TokenReview in authentication".into()));
    }
    let mut wanted = strings(&spec["audiences"]);
    if wanted.is_empty() {
        wanted = authenticator.audiences();
    }
    let status = match authenticator.authenticate_token(token, &wanted, objects, now) {
        Ok(found) => json!({"authenticated": true, "user": found.user.to_json(), "audiences": found.audiences}),
        Err(error) => json!({"user": {}, "error": error.to_string()}),
    };
    Ok(answered(body, status))
}

fn answered(body: &Value, status: Value) -> Value {
    let mut answer = body.clone();
    if answer["metadata"].is_null() {
        answer["metadata"] = json!({});
    }
    answer["status"] = status;
    answer
}

fn refuse(causes: Vec<Cause>) -> Result<(), Refusal> {
    // The reference has forgotten the kind by the time it complains, and so the text starts with a dot.
    let (kind, name) = ("", String::new());
    if causes.is_empty() { Ok(()) } else { Err(Refusal::Invalid { group: GROUP, kind, name, causes }) }
}

fn subject_causes(spec: &Value) -> Vec<Cause> {
    let mut causes = attribute_causes(spec);
    if spec["user"].as_str().unwrap_or_default().is_empty() && strings(&spec["groups"]).is_empty() {
        causes.push(Cause::invalid("spec.user", "\"\"", "at least one of user or group must be specified"));
    }
    causes
}

fn attribute_causes(spec: &Value) -> Vec<Cause> {
    match (&spec["resourceAttributes"], &spec["nonResourceAttributes"]) {
        (Value::Null, Value::Null) => {
            let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            vec![Cause::invalid("spec.resourceAttributes", "null", why)]
        }
        (Value::Null, _) | (_, Value::Null) => Vec::new(),
        (_, path) => {
            let why = "cannot be specified in combination with resourceAttributes";
            vec![Cause::invalid("spec.nonResourceAttributes", path_attributes(path), why)]
        }
    }
}

/// As the reference prints the attributes of a path.
fn path_attributes(attributes: &Value) -> Value {
    let text = |field: &str| attributes[field].as_str().unwrap_or_default().to_owned();
    json!({"Path": text("path"), "Verb": text("verb")})
}

fn metadata_cause(body: &Value, allowed: &[&str], why: &str) -> Option<Cause> {
    let metadata = body["metadata"].as_object()?;
    let extra = |(key, value): (&String, &Value)| {
        !value.is_null() && key != "managedFields" && !allowed.contains(&key.as_str())
    };
    metadata.iter().any(extra).then(|| Cause::invalid("metadata", &body["metadata"], why))
}

fn access(authority: &dyn Authority, user: &User, spec: &Value) -> Value {
    let attributes =
        if spec["resourceAttributes"].is_null() { &spec["nonResourceAttributes"] } else { &spec["resourceAttributes"] };
    let text = |field: &str| attributes[field].as_str().unwrap_or_default();
    let object = if spec["resourceAttributes"].is_null() {
        Object::Path(text("path"))
    } else {
        Object::Resource {
            group: text("group"),
            resource: text("resource"),
            subresource: text("subresource"),
            namespace: text("namespace"),
            name: text("name"),
        }
    };
    let fields = selected(&attributes["fieldSelector"]);
    let decision = authority.judge(&Attributes { user, verb: text("verb").into(), object, fields });
    let mut status = json!({"allowed": decision.is_allowed()});
    if !decision.reason().is_empty() {
        status["reason"] = decision.reason().into();
    }
    status
}

/// The fields that a question says its list or watch is narrowed by. Only equality with one value can be asked for.
fn selected(selector: &Value) -> Option<FieldSelector> {
    if let Some(raw) = selector["rawSelector"].as_str() {
        return FieldSelector::parse(raw).ok();
    }
    let requirements = selector["requirements"].as_array()?;
    let terms = requirements.iter().filter_map(|requirement| {
        let (field, operator) = (requirement["key"].as_str()?, requirement["operator"].as_str()?);
        let [value] = requirement["values"].as_array()?.as_slice() else { return None };
        let equal = match operator {
            "In" => true,
            "NotIn" => false,
            _ => return None,
        };
        Some(FieldTerm { field: field.to_owned(), equal, value: value.as_str()?.to_owned() })
    });
    Some(FieldSelector::of(terms.collect()))
}

fn subject(spec: &Value) -> User {
    let text = |field: &str| spec[field].as_str().unwrap_or_default().to_owned();
    let extra: BTreeMap<String, Vec<String>> =
        spec["extra"].as_object().into_iter().flatten().map(|(key, values)| (key.clone(), strings(values))).collect();
    User { name: text("user"), uid: text("uid"), groups: strings(&spec["groups"]), extra }
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
