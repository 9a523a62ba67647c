//! Parameters of a class: which are the provisioner's own, and the filesystem type among them (PROVISION-2.7).

use std::collections::BTreeMap;

use api::keys::parameter;

use super::secrets;

/// The parameters of a class.
pub type Parameters = BTreeMap<Box<str>, Box<str>>;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadParameter {
    #[error("the class names the filesystem type twice, as {first:?} and as {second:?}; keep one of them")]
    TwoFilesystems { first: String, second: String },
    #[error(
        "the class has the parameter {key:?}, which no provisioner knows although its prefix is reserved; correct or remove it"
    )]
    Unknown { key: String },
}

/// The filesystem type: one key of two spellings, else the default. `None` leaves it to the driver.
pub fn fstype(class: &Parameters, default: &str) -> Result<Option<String>, BadParameter> {
    let names_it = |key: &str| key.to_lowercase() == parameter::PLAIN_FSTYPE.text() || key == parameter::FSTYPE.text();
    let mut hits = class.iter().filter(|(key, _)| names_it(key));
    let found = hits.next();
    if let (Some((first, _)), Some((second, _))) = (found, hits.next()) {
        return Err(BadParameter::TwoFilesystems { first: first.to_string(), second: second.to_string() });
    }
    let value = found.map(|(_, value)| &**value).filter(|value| !value.is_empty()).unwrap_or(default);
    Ok(Some(value.to_owned()).filter(|value| !value.is_empty()))
}

/// What the driver gets: everything but what was meant for the provisioner. Deprecated keys have no prefix and stay.
pub fn for_driver(class: &Parameters) -> Result<BTreeMap<String, String>, BadParameter> {
    let mut kept = BTreeMap::new();
    for (key, value) in class {
        if !key.starts_with(parameter::PREFIX) {
            kept.insert(key.to_string(), value.to_string());
        } else if **key != *parameter::FSTYPE.text() && !secrets::is_key(key) {
            return Err(BadParameter::Unknown { key: key.to_string() });
        }
    }
    Ok(kept)
}
