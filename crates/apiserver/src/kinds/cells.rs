//! What tables are made of: columns, and the cells several kinds share.

use super::age;
use super::read::{annotation, deleting, present, text, texts};
use super::time::Timestamp;
use crate::schema::quantity::{MILLI, Quantity};
use crate::status::{FieldError, FieldErrors};
use serde_json::{Value, json};

/// One column of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    pub name: &'static str,
    /// `string`, `integer`, `boolean` or `date`.
    pub kind: &'static str,
    pub description: &'static str,
    /// Zero: always shown. One: shown on request, but sent always.
    pub priority: u8,
}

impl Column {
    pub const fn text(name: &'static str, description: &'static str) -> Self {
        Self { name, kind: "string", description, priority: 0 }
    }

    pub const fn of(name: &'static str, kind: &'static str, description: &'static str) -> Self {
        Self { name, kind, description, priority: 0 }
    }

    #[must_use]
    pub const fn wide(self) -> Self {
        Self { priority: 1, ..self }
    }

    pub fn to_json(self) -> Value {
        let format = if matches!(self.name, "Name" | "Attacher") { "name" } else { "" };
        json!({
            "name": self.name, "type": self.kind, "format": format,
            "description": self.description, "priority": self.priority,
        })
    }
}

pub(crate) const NAME: Column = Column::text("Name", "The name of the object, unique for its kind and namespace.");
pub(crate) const AGE: Column = Column::text("Age", "How long ago the object was created.");
pub(crate) const CREATED_AT: Column = Column::of("Created At", "date", "When the object was created.");

pub(crate) fn age(object: &Value, now: Timestamp) -> Value {
    age::age_of(object, now).into()
}

/// The columns of kinds without a printer of their own.
pub(crate) const PLAIN: &[Column] = &[NAME, CREATED_AT];

pub(crate) fn plain_row(object: &Value) -> Vec<Value> {
    let created = match text(object, "/metadata/creationTimestamp") {
        "" => "<unknown>",
        time => time,
    };
    vec![text(object, "/metadata/name").into(), created.into()]
}

/// The phase, unless the object is on its way out.
pub(crate) fn phase(object: &Value) -> &str {
    if deleting(object) { "Terminating" } else { text(object, "/status/phase") }
}

/// `RWO,ROX,RWX,RWOP`, in this order whatever the order of the list.
pub(crate) fn access_modes(object: &Value, pointer: &str) -> String {
    const MODES: [(&str, &str); 4] =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let modes = texts(object, pointer);
    let short: Vec<&str> = MODES.iter().filter(|(mode, _)| modes.contains(mode)).map(|(_, short)| *short).collect();
    short.join(",")
}

pub(crate) const BETA_CLASS: &str = crate::keys::BETA_STORAGE_CLASS;

/// The storage class of a claim or a volume.
pub(crate) fn class(object: &Value) -> &str {
    annotation(object, BETA_CLASS).unwrap_or_else(|| text(object, "/spec/storageClassName"))
}

/// The text at `pointer`, `<unset>` when there is none.
pub(crate) fn or_unset<'a>(object: &'a Value, pointer: &str) -> &'a str {
    present(object, pointer).and_then(Value::as_str).unwrap_or("<unset>")
}

/// The quantity at `pointer`. Decoding refused everything that is none, so what cannot be read was never set.
pub(crate) fn quantity(object: &Value, pointer: &str) -> Option<Quantity> {
    object.pointer(pointer).and_then(as_quantity)
}

pub(crate) fn as_quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Number(number) => Quantity::parse(&number.to_string()).ok(),
        _ => None,
    }
}

/// The quantity at `pointer` as a cell; nothing is `0`.
pub(crate) fn amount(object: &Value, pointer: &str) -> String {
    quantity(object, pointer).unwrap_or_else(Quantity::zero).to_string()
}

/// Rounds every quantity of a resource list up to thousandths: the finest a resource list keeps.
pub(crate) fn round_resources(object: &mut Value, pointer: &str) {
    let Some(resources) = object.pointer_mut(pointer).and_then(Value::as_object_mut) else { return };
    for value in resources.values_mut() {
        if let Some(quantity) = as_quantity(value) {
            *value = quantity.round_up(MILLI).to_string().into();
        }
    }
}

/// Whether two quantities are one amount, however they are written.
pub(crate) fn same_amounts(left: &Value, right: &Value) -> bool {
    match (as_quantity(left), as_quantity(right)) {
        (Some(left), Some(right)) => left == right,
        _ => left == right,
    }
}

/// A quantity that may not be negative, as the reference's resource lists check it: in whole units.
pub(crate) fn validate_basic(value: &Value, field: &str) -> Option<FieldError> {
    let quantity = as_quantity(value).filter(Quantity::is_negative)?;
    let units = i64::try_from(quantity.to_integer()?).ok()?;
    Some(FieldError::invalid(field, units, "must be a valid resource quantity"))
}

pub(crate) fn validate_positive(value: &Value, field: &str) -> Option<FieldError> {
    let quantity = as_quantity(value).filter(|quantity| *quantity <= Quantity::zero())?;
    Some(FieldError::invalid(field, quantity.to_string(), "must be greater than zero"))
}

pub(crate) fn validate_not_negative(value: &Value, field: &str) -> Option<FieldError> {
    let quantity = as_quantity(value).filter(Quantity::is_negative)?;
    Some(FieldError::invalid(field, quantity.to_string(), "must be greater than or equal to 0"))
}

/// Modes that exist, `ReadWriteOncePod` alone.
pub(crate) fn validate_access_modes(spec: &Value, field: &str) -> FieldErrors {
    const SUPPORTED: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    let modes = texts(spec, "/accessModes");
    let unknown = modes.iter().filter(|mode| !SUPPORTED.contains(mode));
    let mut errors: FieldErrors = unknown.map(|mode| FieldError::not_supported(field, *mode, &SUPPORTED)).collect();
    let known_others = modes.iter().any(|mode| *mode != "ReadWriteOncePod" && SUPPORTED.contains(mode));
    if known_others && modes.contains(&"ReadWriteOncePod") {
        errors.push(FieldError::forbidden(field, "may not use ReadWriteOncePod with other access modes"));
    }
    errors
}

pub(crate) const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];

/// The labels that got a new name, and since when the old one is deprecated.
const BETA_LABELS: [(&str, &str, &str); 5] = [
    (crate::keys::BETA_ARCH, crate::keys::ARCH, "v1.14"),
    (crate::keys::BETA_OS, crate::keys::OS, "v1.14"),
    (crate::keys::BETA_REGION, crate::keys::REGION, "v1.17"),
    (crate::keys::BETA_ZONE, crate::keys::ZONE, "v1.17"),
    (crate::keys::BETA_INSTANCE_TYPE, crate::keys::INSTANCE_TYPE, "v1.17"),
];

/// The lasting name of a label that once was beta.
pub(crate) fn lasting_label(key: &str) -> Option<&'static str> {
    BETA_LABELS.iter().find(|(beta, ..)| *beta == key).map(|(_, lasting, _)| *lasting)
}

/// The warning about a beta label at `field`.
pub(crate) fn beta_label_warning(key: &str, field: &str) -> Option<String> {
    let (beta, lasting, since) = BETA_LABELS.iter().find(|(beta, ..)| *beta == key)?;
    Some(format!("{field}: {beta} is deprecated since {since}; use \"{lasting}\" instead"))
}

/// The warning about the annotation that came before `storageClassName`.
pub(crate) fn beta_class_warning(object: &Value) -> Option<String> {
    annotation(object, BETA_CLASS)?;
    Some(format!(
        "metadata.annotations[{BETA_CLASS}]: deprecated since v1.8; use \"storageClassName\" attribute instead"
    ))
}
