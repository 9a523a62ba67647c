//! What the translations of classes share (MIGRATE-10.2). Names of parameters are read without regard to case.

use api::Class;
use api::class::{TopologyExpression, TopologyTerm};
use api::keys::{label, parameter};

use super::Untranslatable;

/// What becomes of one parameter.
pub(super) enum Turn<'a> {
    /// It goes on under this name.
    As(&'a str),
    Drop,
}

/// Passes each parameter by its lower-case name through `turn`.
pub(super) fn rename(class: &mut Class, turn: impl for<'a> Fn(&'a str, &str) -> Turn<'a>) {
    let mut turned = std::collections::BTreeMap::new();
    for (name, value) in std::mem::take(&mut class.parameters) {
        match turn(&name, &name.to_ascii_lowercase()) {
            Turn::As(name) => drop(turned.insert(name.into(), value)),
            Turn::Drop => {}
        }
    }
    class.parameters = turned;
}

/// The parameter `fstype` under the name that the provisioner reads; all others as they are.
pub(super) fn fstype<'a>(name: &'a str, lower: &str) -> Turn<'a> {
    match lower {
        "fstype" => Turn::As(parameter::FSTYPE.text()),
        _ => Turn::As(name),
    }
}

/// Takes the parameters `zone` and `zones` out and makes them topologies; otherwise the class' own are translated.
///
/// Given both, `zones` counts: upstream takes whichever its map yields last.
pub(super) fn zones(class: &mut Class, key: &str) -> Result<(), Untranslatable> {
    let mut named = None;
    let taken: Vec<Box<str>> = class.parameters.keys().cloned().collect();
    for name in taken {
        let split: fn(&str) -> Vec<Box<str>> = match name.to_ascii_lowercase().as_str() {
            "zone" => |zone| vec![zone.into()],
            "zones" => |zones| zones.split(',').map(Into::into).collect(),
            _ => continue,
        };
        if let Some(value) = class.parameters.remove(&name) {
            named = Some(split(&value));
        }
    }
    match named {
        Some(_) if !class.allowed_topologies.is_empty() => Err(Untranslatable::ZonesTwice),
        Some(values) => {
            let expression = TopologyExpression { key: key.into(), values };
            class.allowed_topologies = vec![TopologyTerm { match_label_expressions: vec![expression] }];
            Ok(())
        }
        None => {
            topologies(class, key);
            Ok(())
        }
    }
}

/// Zones in `allowedTopologies` under the driver's key; other keys as they are.
pub(super) fn topologies(class: &mut Class, key: &str) {
    let expressions = class.allowed_topologies.iter_mut().flat_map(|term| &mut term.match_label_expressions);
    for expression in expressions {
        if &*expression.key == label::ZONE.text() || &*expression.key == label::BETA_ZONE.text() {
            expression.key = key.into();
        }
    }
}
