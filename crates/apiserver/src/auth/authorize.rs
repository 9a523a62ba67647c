//! May this user do that: the members of `system:masters` always, everybody else by RBAC.

use std::borrow::Cow;

use super::{Rbac, User};
use crate::request::{FieldSelector, Refusal, RequestInfo, Target, Verb, go_quote};

/// Everything a decision may look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes<'a> {
    pub user: &'a User,
    pub verb: Cow<'a, str>,
    pub object: Object<'a>,
    /// The fields by which a list, a watch or the deletion of a collection is narrowed.
    pub fields: Option<FieldSelector>,
}

/// What is done something to. Empty strings are absent parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Object<'a> {
    Resource { group: &'a str, resource: &'a str, subresource: &'a str, namespace: &'a str, name: &'a str },
    Path(&'a str),
}

/// The reason is empty or a sentence for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    Allowed {
        reason: String,
    },
    /// Nobody said yes, which is a no. The reason names roles that are bound and missing.
    NoOpinion {
        reason: String,
    },
}

impl Decision {
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed { .. })
    }

    pub fn reason(&self) -> &str {
        match self {
            Self::Allowed { reason } | Self::NoOpinion { reason } => reason,
        }
    }
}

impl<'a> Attributes<'a> {
    pub fn of_request(user: &'a User, info: &'a RequestInfo) -> Self {
        match &info.target {
            Target::Endpoint(_) => {
                Self { user, verb: info.method.as_verb().into(), object: Object::Path(&info.path), fields: None }
            }
            Target::Resource(request) => Self {
                user,
                verb: request.verb.as_str().into(),
                object: Object::Resource {
                    group: &request.group,
                    resource: &request.resource,
                    subresource: request.subresource.as_deref().unwrap_or(""),
                    namespace: request.namespace.as_deref().unwrap_or(""),
                    name: request.authorized_name(),
                },
                fields: match request.verb {
                    Verb::List | Verb::Watch | Verb::DeleteCollection => {
                        let selector = info.query.get("fieldSelector");
                        selector.and_then(|selector| FieldSelector::parse(selector).ok())
                    }
                    _ => None,
                },
            },
        }
    }
}

pub fn authorize(rbac: &Rbac, attributes: &Attributes<'_>) -> Decision {
    if attributes.user.is_master() {
        return Decision::Allowed { reason: String::new() };
    }
    rbac.decide(attributes)
}

/// Whoever can say yes.
pub trait Authority {
    fn judge(&self, attributes: &Attributes<'_>) -> Decision;
}

impl Authority for Rbac {
    fn judge(&self, attributes: &Attributes<'_>) -> Decision {
        authorize(self, attributes)
    }
}

/// Lets a request through and says by which right, or says why not.
pub fn authorize_request(authority: &dyn Authority, user: &User, info: &RequestInfo) -> Result<String, Refusal> {
    let attributes = Attributes::of_request(user, info);
    match authority.judge(&attributes) {
        Decision::Allowed { reason } => Ok(reason),
        Decision::NoOpinion { reason } => Err(forbidden(&attributes, &reason)),
    }
}

/// The 403 for what was not allowed, with the authorizer's reason at its end.
pub fn forbidden(attributes: &Attributes<'_>, reason: &str) -> Refusal {
    let (user, verb) = (go_quote(&attributes.user.name), &attributes.verb);
    let (group, resource, name, mut why) = match attributes.object {
        Object::Path(path) => ("", "", "", format!("User {user} cannot {verb} path {}", go_quote(path))),
        Object::Resource { group, resource, subresource, namespace, name } => {
            let slash = if subresource.is_empty() { "" } else { "/" };
            let what = go_quote(&format!("{resource}{slash}{subresource}"));
            let place = if namespace.is_empty() {
                "at the cluster scope".to_owned()
            } else {
                format!("in the namespace {}", go_quote(namespace))
            };
            let why = format!("User {user} cannot {verb} resource {what} in API group {} {place}", go_quote(group));
            (group, resource, name, why)
        }
    };
    // The text repeats what the client sent and must not be taken for markup by a browser.
    why = why.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    if !reason.is_empty() {
        why = format!("{why}: {reason}");
    }
    Refusal::forbidden(group, resource, name, why)
}
