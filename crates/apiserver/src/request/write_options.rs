//! What a writer may say beside the object: dry run, who writes, how strict to be, how to delete.

use serde_json::Value;

use super::go_text::{go_quote, is_go_printable, parse_int};
use super::{Cause, PatchType, Query, Refusal};

const FIELD_MANAGER_BYTES: usize = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DryRun {
    Off,
    /// Everything but the store.
    All,
}

/// What to do about unknown and repeated fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// Options of create and update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteOptions {
    pub dry_run: DryRun,
    pub field_manager: Option<String>,
    pub field_validation: FieldValidation,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchOptions {
    pub write: WriteOptions,
    /// Only for apply: take fields away from other managers.
    pub force: bool,
}

/// What happens to the objects that the deleted one owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    Foreground,
    Background,
    Orphan,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preconditions {
    pub uid: Option<String>,
    pub resource_version: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteOptions {
    pub grace_period_seconds: Option<i64>,
    pub propagation: Option<Propagation>,
    /// The old way to say it; `false` with a delayed deletion is the one case that answers 202.
    pub orphan_dependents: Option<bool>,
    pub preconditions: Preconditions,
    pub dry_run: DryRun,
}

impl WriteOptions {
    pub fn parse_create(query: &Query) -> Result<Self, Refusal> {
        Self::parse(query, "CreateOptions", Vec::new())
    }

    pub fn parse_update(query: &Query) -> Result<Self, Refusal> {
        Self::parse(query, "UpdateOptions", Vec::new())
    }

    /// `causes` are the complaints that come first.
    fn parse(query: &Query, kind: &'static str, mut causes: Vec<Cause>) -> Result<Self, Refusal> {
        let manager = query.get("fieldManager").unwrap_or_default();
        if manager.len() > FIELD_MANAGER_BYTES {
            causes.push(Cause::too_long("fieldManager", FIELD_MANAGER_BYTES));
        }
        for (position, c) in manager.char_indices().filter(|(_, c)| !is_go_printable(*c)) {
            let why = format!("invalid character U+{:04X} (at position {position})", u32::from(c));
            causes.push(Cause::invalid("fieldManager", go_quote(manager), why));
        }
        let asked: Vec<&str> = query.all("dryRun").collect();
        let dry_run = dry_run(&asked, &mut causes);
        let asked = query.get("fieldValidation").unwrap_or_default();
        let field_validation = match asked {
            "Ignore" => FieldValidation::Ignore,
            "" | "Warn" => FieldValidation::Warn,
            "Strict" => FieldValidation::Strict,
            other => {
                let supported = ["", "Ignore", "Strict", "Warn"];
                causes.push(Cause::not_supported("fieldValidation", go_quote(other), &supported));
                FieldValidation::Warn
            }
        };
        Refusal::unless_valid(kind, causes)?;
        let field_manager = (!manager.is_empty()).then(|| manager.to_owned());
        Ok(Self { dry_run, field_manager, field_validation })
    }
}

fn dry_run(asked: &[&str], causes: &mut Vec<Cause>) -> DryRun {
    if asked.iter().any(|value| *value != "All") {
        causes.push(Cause::not_supported("dryRun", Value::from(asked.to_vec()), &["All"]));
    }
    if asked.is_empty() { DryRun::Off } else { DryRun::All }
}

impl PatchOptions {
    pub fn parse(query: &Query, patch: PatchType) -> Result<Self, Refusal> {
        let force = query.flag("force");
        let nameless = query.get("fieldManager").unwrap_or_default().is_empty();
        let mut causes = Vec::new();
        match patch {
            PatchType::Apply if nameless => {
                causes.push(Cause::required("fieldManager", "is required for apply patch"));
            }
            PatchType::Json | PatchType::Merge | PatchType::Strategic if force.is_some() => {
                causes.push(Cause::forbidden("force", "may not be specified for non-apply patch"));
            }
            PatchType::Apply | PatchType::Json | PatchType::Merge | PatchType::Strategic => {}
        }
        let write = WriteOptions::parse(query, "PatchOptions", causes)?;
        Ok(Self { write, force: force == Some(true) })
    }
}

/// Who owns the fields that a write changes: the manager it names, else the program before the first slash of its
/// User-Agent, else nobody in particular.
pub fn field_manager(named: Option<&str>, user_agent: &str) -> String {
    if let Some(named) = named {
        return named.to_owned();
    }
    let program = user_agent.split('/').next().unwrap_or_default();
    let mut manager = String::new();
    for c in program.chars().filter(|c| is_go_printable(*c)) {
        if manager.len() + c.len_utf8() > FIELD_MANAGER_BYTES {
            break;
        }
        manager.push(c);
    }
    if manager.is_empty() { "unknown".into() } else { manager }
}

/// Delete options as they came, from the query or from a body.
struct RawDelete<'a> {
    grace_period_seconds: Option<i64>,
    propagation: Option<&'a str>,
    orphan_dependents: Option<bool>,
    preconditions: Preconditions,
    dry_run: Vec<&'a str>,
}

impl DeleteOptions {
    /// For a request without a body.
    pub fn from_query(query: &Query) -> Result<Self, Refusal> {
        let grace = query.get("gracePeriodSeconds").map(parse_int).transpose().map_err(Refusal::BadRequest)?;
        let text = |name| query.get(name).filter(|text: &&str| !text.is_empty()).map(str::to_owned);
        Self::check(RawDelete {
            grace_period_seconds: grace,
            propagation: query.get("propagationPolicy"),
            orphan_dependents: query.flag("orphanDependents"),
            preconditions: Preconditions { uid: text("uid"), resource_version: text("resourceVersion") },
            dry_run: query.all("dryRun").collect(),
        })
    }

    /// For a request with a body. `api_version` is the deleted resource's own: Go clients stamp options with it.
    pub fn from_body(body: &Value, api_version: &str) -> Result<Self, Refusal> {
        let wrong = |what: &str| Refusal::BadRequest(format!("{what} in DeleteOptions is not of the expected type"));
        if !body.is_object() {
            return Err(wrong("the body"));
        }
        let string = |value: &'_ Value, what| match value {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(text.clone())),
            _ => Err(wrong(what)),
        };
        let version = string(&body["apiVersion"], "apiVersion")?.unwrap_or_default();
        let kind = string(&body["kind"], "kind")?.unwrap_or_default();
        // Go clients stamp options with the group of whatever they delete.
        let known = matches!(version.as_str(), "" | "v1" | "meta.k8s.io/v1")
            || version == api_version
            || crate::catalog::built_in().all().any(|resource| resource.api_version == version);
        if !known || !matches!(kind.as_str(), "" | "DeleteOptions") {
            let why = format!("no kind {} is registered for version {} in scheme", go_quote(&kind), go_quote(&version));
            return Err(Refusal::BadRequest(why));
        }
        let grace_period_seconds = match &body["gracePeriodSeconds"] {
            Value::Null => None,
            value => Some(value.as_i64().ok_or_else(|| wrong("gracePeriodSeconds"))?),
        };
        let orphan_dependents = match &body["orphanDependents"] {
            Value::Null => None,
            value => Some(value.as_bool().ok_or_else(|| wrong("orphanDependents"))?),
        };
        let dry_run = match &body["dryRun"] {
            Value::Null => Vec::new(),
            value => value
                .as_array()
                .and_then(|items| items.iter().map(Value::as_str).collect())
                .ok_or_else(|| wrong("dryRun"))?,
        };
        let propagation = string(&body["propagationPolicy"], "propagationPolicy")?;
        let preconditions = Preconditions {
            uid: string(&body["preconditions"]["uid"], "preconditions.uid")?,
            resource_version: string(&body["preconditions"]["resourceVersion"], "preconditions.resourceVersion")?,
        };
        let propagation = propagation.as_deref();
        Self::check(RawDelete { grace_period_seconds, propagation, orphan_dependents, preconditions, dry_run })
    }

    fn check(raw: RawDelete<'_>) -> Result<Self, Refusal> {
        let field = "propagationPolicy";
        let mut causes = Vec::new();
        if let (Some(policy), Some(_)) = (raw.propagation, raw.orphan_dependents) {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            causes.push(Cause::invalid(field, go_quote(policy), why));
        }
        let propagation = raw.propagation.and_then(|policy| match policy {
            "Foreground" => Some(Propagation::Foreground),
            "Background" => Some(Propagation::Background),
            "Orphan" => Some(Propagation::Orphan),
            other => {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                causes.push(Cause::not_supported(field, go_quote(other), &supported));
                None
            }
        });
        let dry_run = dry_run(&raw.dry_run, &mut causes);
        Refusal::unless_valid("DeleteOptions", causes)?;
        Ok(Self {
            grace_period_seconds: raw.grace_period_seconds,
            propagation,
            orphan_dependents: raw.orphan_dependents,
            preconditions: raw.preconditions,
            dry_run,
        })
    }
}
