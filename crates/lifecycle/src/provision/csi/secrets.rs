//! References to secrets: which keys name them, and how names are made from templates (SIDECAR-1.9, PROVISION-2.7).
//!
//! # Invariants
//! 1. What a claim's user controls (its name and its annotations) can choose the *name* of a secret and never its
//!    namespace.
//! 2. A template either resolves to a valid name or is refused with what is wrong. Nothing is dropped silently.

use std::collections::{BTreeMap, BTreeSet};

use api::Pairs;
use api::keys::{Parameter, parameter};
use serde::{Deserialize, Serialize};

use super::parameters::Parameters;

/// Where a secret is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    pub namespace: String,
    pub name: String,
}

/// What a secret is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    Provision,
    ControllerPublish,
    NodeStage,
    NodePublish,
    ControllerExpand,
    NodeExpand,
    ControllerModify,
}

impl Purpose {
    pub const ALL: [Purpose; 7] = [
        Purpose::Provision,
        Purpose::ControllerPublish,
        Purpose::NodeStage,
        Purpose::NodePublish,
        Purpose::ControllerExpand,
        Purpose::NodeExpand,
        Purpose::ControllerModify,
    ];

    fn stem(self) -> Parameter {
        match self {
            Purpose::Provision => parameter::PROVISIONER_SECRET,
            Purpose::ControllerPublish => parameter::CONTROLLER_PUBLISH_SECRET,
            Purpose::NodeStage => parameter::NODE_STAGE_SECRET,
            Purpose::NodePublish => parameter::NODE_PUBLISH_SECRET,
            Purpose::ControllerExpand => parameter::CONTROLLER_EXPAND_SECRET,
            Purpose::NodeExpand => parameter::NODE_EXPAND_SECRET,
            Purpose::ControllerModify => parameter::CONTROLLER_MODIFY_SECRET,
        }
    }

    fn old_stem(self) -> Option<Parameter> {
        match self {
            Purpose::Provision => Some(parameter::OLD_PROVISIONER_SECRET),
            Purpose::ControllerPublish => Some(parameter::OLD_CONTROLLER_PUBLISH_SECRET),
            Purpose::NodeStage => Some(parameter::OLD_NODE_STAGE_SECRET),
            Purpose::NodePublish => Some(parameter::OLD_NODE_PUBLISH_SECRET),
            Purpose::ControllerExpand | Purpose::NodeExpand | Purpose::ControllerModify => None,
        }
    }
}

/// The secrets of one volume, by purpose; those that a class does not name are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Secrets {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provision: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_publish: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_stage: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_publish: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_expand: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_expand: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_modify: Option<Reference>,
}

/// Whom a template may speak of.
#[derive(Debug, Clone, Copy)]
pub struct Names<'a> {
    pub volume: &'a str,
    /// Absent when a volume is deleted whose claim nobody names.
    pub claim: Option<ClaimNames<'a>>,
}

#[derive(Debug, Clone, Copy)]
pub struct ClaimNames<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    /// Absent when only a reference to the claim is left.
    pub annotations: Option<&'a Pairs>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSecret {
    #[error("the class has both {current:?} and its deprecated form {old:?}; keep the first")]
    Twice { current: String, old: String },
    #[error("the class names a secret with only one of {name:?} and {namespace:?}; give both or neither")]
    Half { name: String, namespace: String },
    #[error("the class has {key:?} with an empty value")]
    Empty { key: String },
    #[error("the class parameter {key:?} uses {tokens}, which cannot be used there or is not known")]
    Tokens { key: String, tokens: String },
    #[error("the class parameter {key:?} has a `$` that nothing closes or follows: {template:?}")]
    Syntax { key: String, template: String },
    #[error("the class parameter {key:?} gives {value:?}, which is no valid {what}")]
    Invalid { key: String, value: String, what: &'static str },
}

/// Whether a prefixed key of a class names a secret.
pub fn is_key(key: &str) -> bool {
    let stem = key.strip_suffix("-name").or_else(|| key.strip_suffix("-namespace"));
    let known = |stem: &str| {
        stem == parameter::DEFAULT_SECRET.text() || Purpose::ALL.iter().any(|purpose| purpose.stem().text() == stem)
    };
    stem.is_some_and(known)
}

/// All secrets that a class names for a volume.
pub fn resolve_all(class: &Parameters, names: &Names<'_>) -> Result<Secrets, BadSecret> {
    let of = |purpose| resolve(class, purpose, names);
    Ok(Secrets {
        provision: of(Purpose::Provision)?,
        controller_publish: of(Purpose::ControllerPublish)?,
        node_stage: of(Purpose::NodeStage)?,
        node_publish: of(Purpose::NodePublish)?,
        controller_expand: of(Purpose::ControllerExpand)?,
        node_expand: of(Purpose::NodeExpand)?,
        controller_modify: of(Purpose::ControllerModify)?,
    })
}

/// The secret for one purpose, or the default one, if the class names either.
pub fn resolve(class: &Parameters, purpose: Purpose, names: &Names<'_>) -> Result<Option<Reference>, BadSecret> {
    let own = Templates::of(class, purpose.stem(), purpose.old_stem())?;
    let templates = match own {
        Some(templates) => templates,
        None => match Templates::of(class, parameter::DEFAULT_SECRET, None)? {
            Some(templates) => templates,
            None => return Ok(None),
        },
    };
    let namespace = templates.namespace.expand(&tokens_of_namespaces(names))?;
    if !is_label(&namespace) {
        return Err(templates.namespace.invalid(namespace, "namespace"));
    }
    let name = templates.name.expand(&tokens_of_names(names))?;
    if !is_subdomain(&name) {
        return Err(templates.name.invalid(name, "name of a secret"));
    }
    Ok(Some(Reference { namespace, name }))
}

struct Templates<'a> {
    name: Template<'a>,
    namespace: Template<'a>,
}

struct Template<'a> {
    key: String,
    text: &'a str,
}

impl<'a> Templates<'a> {
    fn of(class: &'a Parameters, stem: Parameter, old: Option<Parameter>) -> Result<Option<Self>, BadSecret> {
        let name = Template::of(class, format!("{stem}-name"), old.map(|old| format!("{old}Name")))?;
        let namespace = Template::of(class, format!("{stem}-namespace"), old.map(|old| format!("{old}Namespace")))?;
        match (name, namespace) {
            (None, None) => Ok(None),
            (Some(name), Some(namespace)) => Ok(Some(Self { name, namespace })),
            _ => Err(BadSecret::Half { name: format!("{stem}-name"), namespace: format!("{stem}-namespace") }),
        }
    }
}

impl<'a> Template<'a> {
    fn of(class: &'a Parameters, current: String, old: Option<String>) -> Result<Option<Self>, BadSecret> {
        let value = |key: &str| class.get(key).map(|text| &**text);
        let found = match (value(&current), old.and_then(|old| Some((value(&old)?, old)))) {
            (Some(_), Some((_, old))) => return Err(BadSecret::Twice { current, old }),
            (Some(text), None) => Template { key: current, text },
            (None, Some((text, old))) => Template { key: old, text },
            (None, None) => return Ok(None),
        };
        match found.text {
            "" => Err(BadSecret::Empty { key: found.key }),
            _ => Ok(Some(found)),
        }
    }

    fn invalid(&self, value: String, what: &'static str) -> BadSecret {
        BadSecret::Invalid { key: self.key.clone(), value, what }
    }

    /// Replaces `${token}` and `$token`, as Go's `os.Expand` does, but refuses what that drops.
    fn expand(&self, tokens: &BTreeMap<String, String>) -> Result<String, BadSecret> {
        let syntax = || BadSecret::Syntax { key: self.key.clone(), template: self.text.to_owned() };
        let (mut out, mut unknown, mut rest) = (String::new(), BTreeSet::new(), self.text);
        while let Some((before, after)) = rest.split_once('$') {
            out.push_str(before);
            let (token, left) = match after.strip_prefix('{') {
                Some(inner) => inner.split_once('}').ok_or_else(syntax)?,
                None => {
                    after.split_at(after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len()))
                }
            };
            if token.is_empty() {
                return Err(syntax());
            }
            match tokens.get(token) {
                Some(value) => out.push_str(value),
                None => drop(unknown.insert(format!("${{{token}}}"))),
            }
            rest = left;
        }
        out.push_str(rest);
        if unknown.is_empty() {
            return Ok(out);
        }
        let tokens = unknown.into_iter().collect::<Vec<_>>().join(", ");
        Err(BadSecret::Tokens { key: self.key.clone(), tokens })
    }
}

fn tokens_of_namespaces(names: &Names<'_>) -> BTreeMap<String, String> {
    let mut tokens = BTreeMap::from([("pv.name".to_owned(), names.volume.to_owned())]);
    if let Some(claim) = names.claim {
        tokens.insert("pvc.namespace".to_owned(), claim.namespace.to_owned());
    }
    tokens
}

fn tokens_of_names(names: &Names<'_>) -> BTreeMap<String, String> {
    let mut tokens = tokens_of_namespaces(names);
    if let Some(claim) = names.claim {
        tokens.insert("pvc.name".to_owned(), claim.name.to_owned());
        for (key, value) in claim.annotations.into_iter().flat_map(Pairs::iter) {
            tokens.insert(format!("pvc.annotations['{key}']"), value.to_owned());
        }
    }
    tokens
}

/// DNS-1123 label.
fn is_label(text: &str) -> bool {
    let edge = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let ends = bytes.first().copied().is_some_and(edge) && bytes.last().copied().is_some_and(edge);
    ends && bytes.len() <= 63 && bytes.iter().all(|byte| edge(*byte) || *byte == b'-')
}

/// DNS-1123 subdomain: parts of a label's letters, in which only the whole is limited.
fn is_subdomain(text: &str) -> bool {
    let part = |part: &str| {
        let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        part.starts_with(edge) && part.ends_with(edge) && part.chars().all(|c| edge(c) || c == '-')
    };
    text.len() <= 253 && text.split('.').all(part)
}
