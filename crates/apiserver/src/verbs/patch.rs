//! Patch: the four ways to say a change instead of a result.

use serde_json::{Map, Value, json};

use super::bodies::warn_about;
use super::owners::with_manager;
use super::update::Change;
use super::{Core, Outcome, Write};
use crate::apply::{ApplyError, Force, Writer};
use crate::kinds::meta;
use crate::kinds::{Endpoint, read};
use crate::patch::json::{JsonPatch, JsonPatchError};
use crate::patch::strategic::StrategicError;
use crate::patch::{go_text, merge, strategic};
use crate::request::{FieldValidation, PatchType};
use crate::schema::decode::{self, Problem};
use crate::status::{ApiError, Cause, FieldError, Reason, Resource};

/// A decoded patch.
#[derive(Debug)]
pub(crate) enum PatchBody {
    Json(JsonPatch),
    Merge(Map<String, Value>),
    Strategic(Map<String, Value>),
    /// A configuration to apply.
    Apply(Value),
}

/// A patch and how to settle its conflicts.
#[derive(Debug)]
pub(crate) struct Patching {
    pub(crate) body: PatchBody,
    pub(crate) force: Force,
}

impl PatchBody {
    pub(crate) fn decode(kind: PatchType, bytes: &[u8], write: &Write<'_>) -> Outcome<Self> {
        if kind == PatchType::Apply {
            return configuration(bytes, write).map(Self::Apply);
        }
        let undecodable = |why: String| ApiError::bad_request(format!("error decoding patch: {why}"));
        let value: Value = serde_json::from_slice(bytes).map_err(|error| undecodable(error.to_string()))?;
        if kind == PatchType::Json {
            return JsonPatch::decode(&value).map(Self::Json).map_err(|error| json_failure(&error).into());
        }
        let fields = match (value, kind) {
            (Value::Object(fields), _) => fields,
            // Nothing is no change to the one, and no patch to the other.
            (Value::Null, PatchType::Strategic) => Map::new(),
            (Value::Null, _) => return Err(ApiError::bad_request("Invalid JSON Patch").into()),
            _ => return Err(undecodable("the patch is not a map".to_owned()).into()),
        };
        check_duplicates(bytes, write, kind, &fields)?;
        Ok(match kind {
            PatchType::Strategic => Self::Strategic(fields),
            PatchType::Merge | PatchType::Json | PatchType::Apply => Self::Merge(fields),
        })
    }
}

/// Keys given twice are lost once the patch is a value, so they are looked for in its text.
fn check_duplicates(bytes: &[u8], write: &Write<'_>, kind: PatchType, fields: &Map<String, Value>) -> Outcome<()> {
    // A patch need not be an object of the kind; where it is none, the patched object will say so.
    let Some(table) = write.resource.table() else { return Ok(()) };
    let Ok(decoded) = decode::from_json(table, bytes) else { return Ok(()) };
    let mut problems = decoded.problems;
    problems.retain(|problem| matches!(problem, Problem::Duplicate(_)));
    let shown = || match kind {
        PatchType::Strategic => go_text(&Value::Object(fields.clone())),
        _ => Value::Object(fields.clone()).to_string(),
    };
    judge(write, problems, |why| unfit(shown(), why))
}

/// The body of an apply: YAML, of which JSON is a part.
fn configuration(bytes: &[u8], write: &Write<'_>) -> Outcome<Value> {
    let (config, problems) =
        decode::parse_yaml(bytes).map_err(|error| ApiError::bad_request(format!("error decoding YAML: {error}")))?;
    if !problems.is_empty() {
        match write.validation {
            FieldValidation::Ignore => {}
            FieldValidation::Warn => warn_about(write, &problems),
            FieldValidation::Strict => {
                let message = format!("error strict decoding YAML: {}", decode::strict_message(&problems));
                return Err(ApiError::bad_request(message).into());
            }
        }
    }
    if config.is_null() {
        return Err(ApiError::bad_request("invalid object type: /, Kind=").into());
    }
    if !config.is_object() {
        return Err(ApiError::bad_request("error decoding YAML: the configuration is not a map").into());
    }
    Ok(config)
}

/// Warns about problems, or refuses them.
fn judge(write: &Write<'_>, problems: Vec<Problem>, refuse: impl FnOnce(&str) -> ApiError) -> Outcome<()> {
    if problems.is_empty() {
        return Ok(());
    }
    match write.validation {
        FieldValidation::Ignore => Ok(()),
        FieldValidation::Warn => {
            warn_about(write, &problems);
            Ok(())
        }
        FieldValidation::Strict => Err(refuse(&decode::strict_message(&problems)).into()),
    }
}

/// A patch whose result is not an object of the kind: nobody is named, only the patch is shown.
fn unfit(shown: String, why: &str) -> ApiError {
    ApiError::invalid(Resource::new("", ""), "", &[FieldError::invalid("patch", shown, why)])
}

/// An applied configuration whose fields are known but hold what they cannot hold.
fn unconvertible(write: &Write<'_>, config: &Value, why: &str) -> ApiError {
    let kind = format!("{}, Kind={}", write.resource.api_version, write.resource.kind);
    let (namespace, name) = (read::namespace(config), read::name(config));
    // The core group has an empty name, which the reference still parts from the version.
    let shown = if write.resource.group.is_empty() { format!("/{kind}") } else { kind };
    ApiError::unclassified(format!(
        "failed to convert new object ({namespace}/{name}; {shown}) to proper version: unable to convert unstructured \
         object to {shown}: {why}"
    ))
}

fn json_failure(error: &JsonPatchError) -> ApiError {
    match error {
        JsonPatchError::Undecodable(_) => ApiError::bad_request(error.to_string()),
        JsonPatchError::TooManyOperations(_) => {
            ApiError { code: 413, reason: Reason::RequestEntityTooLarge, message: error.to_string(), details: None }
        }
        JsonPatchError::NotApplicable(_) => ApiError::unprocessable(),
    }
}

fn strategic_failure(error: &StrategicError) -> ApiError {
    match error {
        StrategicError::BadDirective(_) => ApiError::bad_request(error.to_string()),
        StrategicError::ListOfLists => ApiError::unprocessable(),
        StrategicError::Internal(_) => ApiError::unclassified(error.to_string()),
    }
}

fn apply_failure(error: &ApplyError) -> ApiError {
    match error {
        ApplyError::Conflict(conflicts) => {
            let causes = conflicts.named().map(|(conflict, field)| Cause {
                reason: "FieldManagerConflict".to_owned(),
                message: conflict.message(),
                field,
            });
            ApiError::apply_conflict(error.to_string(), causes.collect())
        }
        ApplyError::WrongType(_) | ApplyError::ManagedFieldsGiven => ApiError::bad_request(error.to_string()),
        ApplyError::Misfit { .. } | ApplyError::LiveMisfit { .. } | ApplyError::Managed(_) | ApplyError::Merge(_) => {
            ApiError::unclassified(error.to_string())
        }
    }
}

impl Patching {
    fn applied(&self, write: &Write<'_>, live: Option<&Value>, config: &Value) -> Outcome<Value> {
        let now = write.now.to_string();
        let writer = Writer { manager: write.manager, now: &now };
        let applied =
            with_manager(write.resource, write.endpoint, |manager| manager.apply(live, config, &writer, self.force));
        let merged = applied.map_err(|error| apply_failure(&error))?;
        self.decoded(write, merged, &|why| unconvertible(write, config, why))
    }

    /// A patch may not make the object one of another kind.
    fn check_type(&self, write: &Write<'_>, patched: &Value, refuse: &dyn Fn(&str) -> ApiError) -> Outcome<()> {
        let (version, kind) = (read::text(patched, "/apiVersion"), read::text(patched, "/kind"));
        let same = |given: &str, own: &str| given.is_empty() || given == own;
        if same(version, &write.resource.api_version) && same(kind, &write.resource.kind) {
            return Ok(());
        }
        let why = format!(
            "no kind {} is registered for version {} at this endpoint",
            crate::request::go_quote(kind),
            crate::request::go_quote(version)
        );
        Err(refuse(&why).into())
    }

    /// The patched object as one of its kind, with defaults.
    fn decoded(&self, write: &Write<'_>, patched: Value, refuse: &dyn Fn(&str) -> ApiError) -> Outcome<Value> {
        self.check_type(write, &patched, refuse)?;
        // An empty list does not survive decoding, but here it means something: forget all owners.
        let forgets = patched.pointer("/metadata/managedFields") == Some(&json!([]));
        let decoded = match (write.resource.table(), write.resource.custom()) {
            (Some(table), _) => decode::from_value(table, patched).map(|decoded| (decoded.object, decoded.problems)),
            (None, Some(custom)) => custom.decode(patched),
            (None, None) => Ok((patched, Vec::new())),
        };
        let (mut object, problems) = decoded.map_err(|error| refuse(&error.to_string()))?;
        judge(write, problems, refuse)?;
        if forgets {
            read::set(&mut object, "/metadata/managedFields", json!([{}]));
        }
        write.rules.default(&mut object);
        write.warn(meta::deduplicate_owners(&mut object, meta::Moment::Patched).into_iter().collect());
        Ok(object)
    }
}

/// What a patch is applied to. Owners are half of a small object; a patch that leaves them alone does without them, and
/// those of the live object are taken when the new ones are settled.
fn document(live: &Value, without_owners: bool) -> Value {
    let Value::Object(fields) = live else { return live.clone() };
    let copy = |(name, value): (&String, &Value)| match value {
        Value::Object(metadata) if without_owners && name == "metadata" => {
            let kept = metadata.iter().filter(|(name, _)| *name != "managedFields");
            (name.clone(), kept.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>().into())
        }
        value => (name.clone(), value.clone()),
    };
    fields.iter().map(copy).collect::<Map<_, _>>().into()
}

impl Change for Patching {
    fn of(&self, core: &Core, write: &Write<'_>, live: &Value) -> Outcome<Value> {
        let mut object = match &self.body {
            PatchBody::Apply(config) => return self.applied(write, Some(live), config),
            PatchBody::Json(patch) => {
                let document = document(live, patch.leaves_alone("metadata", "managedFields"));
                let patched = patch.apply(document).map_err(|error| json_failure(&error))?;
                let shown = || patch.apply(live.clone()).unwrap_or_default().to_string();
                self.decoded(write, patched, &|why| unfit(shown(), why))?
            }
            PatchBody::Merge(patch) => {
                let document = document(live, merge::leaves_alone(patch, "metadata", "managedFields"));
                let shown = || merge::apply(live.clone(), patch).to_string();
                self.decoded(write, merge::apply(document, patch), &|why| unfit(shown(), why))?
            }
            PatchBody::Strategic(patch) => {
                // Without a table there are no merge keys; custom resources are refused before this.
                let table = write.resource.table().ok_or_else(ApiError::unprocessable)?;
                let patched = strategic::apply(live, patch, table).map_err(|error| strategic_failure(&error))?;
                self.decoded(write, patched, &|why| unfit(go_text(&Value::Object(patch.clone())), why))?
            }
        };
        core.own(write, Some(live), &mut object);
        Ok(object)
    }

    fn of_nothing(&self, _core: &Core, write: &Write<'_>, name: &str) -> Outcome<Value> {
        let (PatchBody::Apply(config), Endpoint::Main) = (&self.body, write.endpoint) else {
            return Err(ApiError::not_found(write.resource.named(), name).into());
        };
        let uid = read::text(config, "/metadata/uid");
        if !uid.is_empty() {
            let why =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            return Err(ApiError::conflict(write.resource.named(), name, &why).into());
        }
        let mut object = self.applied(write, None, config)?;
        // A version of nothing is no condition.
        super::codec::clear_version(&mut object);
        Ok(object)
    }

    fn uid_is_condition(&self) -> bool {
        false
    }
}
