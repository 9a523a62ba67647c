//! `kubectl --as`: acting as somebody else, if every part of that somebody may be impersonated.

use std::collections::BTreeMap;

use super::{
    ANONYMOUS, AUTHENTICATED, Attributes, Decision, Object, Rbac, SERVICE_ACCOUNT_PREFIX, UNAUTHENTICATED, User,
    authorize, forbidden, service_account_groups,
};
use crate::request::{Refusal, percent_decode};

const PREFIX: &str = "impersonate-";

/// Whom the Impersonate-* headers of a request name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Impersonation {
    pub user: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Impersonation {
    /// `None` if nobody is named. Header names in any case.
    pub fn from_headers<'a>(headers: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Option<Self>, Refusal> {
        let mut wanted = Self { user: String::new(), uid: String::new(), groups: Vec::new(), extra: BTreeMap::new() };
        for (name, value) in headers {
            let Some((prefix, part)) = name.split_at_checked(PREFIX.len()) else { continue };
            if !prefix.eq_ignore_ascii_case(PREFIX) {
                continue;
            }
            match part.to_ascii_lowercase().as_str() {
                // The first of several is the one, for these two.
                "user" if wanted.user.is_empty() => value.clone_into(&mut wanted.user),
                "uid" if wanted.uid.is_empty() => value.clone_into(&mut wanted.uid),
                "group" => wanted.groups.push(value.to_owned()),
                other => {
                    let Some(key) = other.strip_prefix("extra-") else { continue };
                    let key = percent_decode(key).unwrap_or_else(|| key.to_owned());
                    wanted.extra.entry(key).or_default().push(value.to_owned());
                }
            }
        }
        if !wanted.user.is_empty() {
            return Ok(Some(wanted));
        }
        if wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty() {
            return Ok(None);
        }
        Err(Refusal::BadRequest("requested a uid, groups or extra without impersonating a user name".into()))
    }
}

/// The user to go on with. Every part is authorized by itself against the one who really asks.
pub fn impersonate(rbac: &Rbac, requester: &User, wanted: &Impersonation) -> Result<User, Refusal> {
    let may = |group: &str, resource: &str, subresource: &str, (namespace, name): (&str, &str)| {
        let object = Object::Resource { group, resource, subresource, namespace, name };
        let attributes = Attributes { user: requester, verb: "impersonate".into(), object, fields: None };
        match authorize(rbac, &attributes) {
            Decision::Allowed { .. } => Ok(()),
            Decision::NoOpinion { reason } => Err(forbidden(&attributes, &reason)),
        }
    };
    let account = wanted.user.strip_prefix(SERVICE_ACCOUNT_PREFIX).and_then(|rest| rest.split_once(':'));
    let account = account.filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty() && !name.contains(':'));
    let mut groups = wanted.groups.clone();
    if let Some((namespace, name)) = account {
        may("", "serviceaccounts", "", (namespace, name))?;
        if groups.is_empty() {
            groups = service_account_groups(namespace);
        }
    } else {
        may("", "users", "", ("", &wanted.user))?;
    }
    for group in &wanted.groups {
        may("", "groups", "", ("", group))?;
    }
    for (key, value) in wanted.extra.iter().flat_map(|(key, values)| values.iter().map(move |value| (key, value))) {
        may("authentication.k8s.io", "userextras", key, ("", value))?;
    }
    if !wanted.uid.is_empty() {
        may("authentication.k8s.io", "uids", "", ("", &wanted.uid))?;
    }
    let has = |group: &str| groups.iter().any(|known| known == group);
    if wanted.user == ANONYMOUS {
        if !has(UNAUTHENTICATED) {
            groups.push(UNAUTHENTICATED.into());
        }
    } else if !has(AUTHENTICATED) && !has(UNAUTHENTICATED) {
        groups.push(AUTHENTICATED.into());
    }
    Ok(User { name: wanted.user.clone(), uid: wanted.uid.clone(), groups, extra: wanted.extra.clone() })
}
