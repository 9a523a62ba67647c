//! Names of objects, and the ranges that lists and watches cover.
//!
//! Objects of one resource are ordered by their path, `namespace/name` or `name`, byte by byte. This is the order in
//! which Kubernetes lists them, and it differs from comparing namespaces first: `a-b/x` comes before `a/x`.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

/// Where one object lives.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    resource: Arc<str>,
    path: Arc<str>,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{part} {text:?} cannot be part of a key: it is empty or has a slash or a zero byte")]
pub struct BadKey {
    part: &'static str,
    text: String,
}

impl Key {
    /// `resource` is the plural of a built-in kind, or `group/plural` of a custom one.
    pub fn new(resource: &str, namespace: Option<&str>, name: &str) -> Result<Self, BadKey> {
        if resource.is_empty() || resource.contains('\0') {
            return Err(BadKey { part: "resource", text: resource.to_owned() });
        }
        segment("name", name)?;
        let path = match namespace {
            Some(namespace) => format!("{}/{name}", segment("namespace", namespace)?).into(),
            None => name.into(),
        };
        Ok(Self { resource: resource.into(), path })
    }

    /// From the parts a store kept.
    /// A key from what was stored, which somebody may have changed.
    pub(super) fn stored(resource: Arc<str>, path: &str) -> Result<Self, BadKey> {
        if resource.is_empty() || resource.contains('\0') {
            return Err(BadKey { part: "resource", text: resource.to_string() });
        }
        match path.split_once('/') {
            Some((namespace, name)) => {
                segment("namespace", namespace)?;
                segment("name", name)?;
            }
            None => {
                segment("name", path)?;
            }
        }
        Ok(Self::from_parts(resource, path.into()))
    }

    pub(super) fn from_parts(resource: Arc<str>, path: Arc<str>) -> Self {
        Self { resource, path }
    }

    pub fn resource(&self) -> &str {
        &self.resource
    }

    pub fn namespace(&self) -> Option<&str> {
        self.path.split_once('/').map(|(namespace, _)| namespace)
    }

    pub fn name(&self) -> &str {
        self.path.split_once('/').map_or(&self.path, |(_, name)| name)
    }

    /// `namespace/name`, or `name` of an object without a namespace. Pages of a list continue after a path.
    pub fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn shared_resource(&self) -> &Arc<str> {
        &self.resource
    }

    pub(super) fn shared_path(&self) -> &Arc<str> {
        &self.path
    }
}

/// A slash inside a name would let an object show up in a namespace that is not its own.
fn segment<'a>(part: &'static str, text: &'a str) -> Result<&'a str, BadKey> {
    match text.is_empty() || text.contains(['/', '\0']) {
        true => Err(BadKey { part, text: text.to_owned() }),
        false => Ok(text),
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.resource, self.path)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// All objects of a resource, or those of one namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    resource: Arc<str>,
    /// `namespace/`: what every path inside starts with.
    prefix: Option<Arc<str>>,
}

impl Scope {
    pub fn all(resource: &str) -> Self {
        Self { resource: resource.into(), prefix: None }
    }

    pub fn namespace(resource: &str, namespace: &str) -> Self {
        Self { resource: resource.into(), prefix: Some(format!("{namespace}/").into()) }
    }

    pub fn resource(&self) -> &str {
        &self.resource
    }

    pub(super) fn shared_resource(&self) -> &Arc<str> {
        &self.resource
    }

    /// Is the path of an object of this resource inside?
    pub(super) fn covers(&self, path: &str) -> bool {
        self.prefix.as_deref().is_none_or(|prefix| path.starts_with(prefix))
    }

    /// Where to start looking for paths inside: after `after`, and not before the first that could be inside.
    pub(super) fn start<'a>(&'a self, after: Option<&'a str>) -> Bound<&'a str> {
        match (self.prefix.as_deref(), after) {
            (Some(prefix), Some(after)) if after >= prefix => Bound::Excluded(after),
            (Some(prefix), _) => Bound::Included(prefix),
            (None, Some(after)) => Bound::Excluded(after),
            (None, None) => Bound::Unbounded,
        }
    }
}
