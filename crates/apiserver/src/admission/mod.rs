//! Admission: what the server changes or refuses because of *other* objects. Each plugin is a pure decision over injected
//! look-ups. [`mutate`] runs before validation, [`validate`] after it, with quota last
//! because it alone leaves a trace.

mod limits;
mod machines;
mod namespaces;
mod nodes;
mod pods;
mod quota;
pub(crate) mod references;
mod service_account;
mod storage;
mod tokens;
pub(crate) mod usage;

#[cfg(test)]
mod tests;

pub use nodes::User;
pub use quota::Charge;
pub use tokens::{TokenTerms, restrict_token};

use self::references::WaitingCopy;
use crate::kinds::read;
use crate::status::{ApiError, Resource};
use serde_json::Value;

/// Reads of the stored state. An empty namespace means a cluster-scoped kind. Objects are in the form they are served.
pub trait Lookup {
    fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Value>;
    fn list(&self, kind: &str, namespace: &str) -> Vec<Value>;

    /// Whether a PersistentVolume other than the named one has this driver and handle.
    fn is_handle_of_another(&self, (driver, handle): (&str, &str), name: &str) -> bool {
        let is_twin = |other: &Value| {
            let has = |field: &str, wanted: &str| read::text(other, field) == wanted;
            read::name(other) != name && has("/spec/csi/driver", driver) && has("/spec/csi/volumeHandle", handle)
        };
        self.list("PersistentVolume", "").iter().any(is_twin)
    }

    /// Whether a claim whose volume is not to be made on this node waits to be a copy of the object.
    fn is_copied_elsewhere(&self, (kind, namespace, name): (&str, &str, &str), node: &str) -> bool {
        self.list("PersistentVolumeClaim", "").iter().any(|claim| {
            let copy = references::waiting_copy(read::namespace(claim), claim);
            copy.is_some_and(|WaitingCopy { source: (of, space, wanted), node: on }| {
                (of, space.as_str(), wanted.as_str()) == (kind, namespace, name) && on != node
            })
        })
    }

    /// How it is with a namespace. Every write into it asks.
    fn namespace(&self, name: &str) -> Option<NamespaceLife> {
        let namespace = self.get("Namespace", "", name)?;
        let terminating = read::deleting(&namespace) || read::text(&namespace, "/status/phase") == TERMINATING;
        Some(if terminating { NamespaceLife::Terminating } else { NamespaceLife::Open })
    }
}

/// The phase of a namespace that is being emptied.
pub(crate) const TERMINATING: &str = "Terminating";

/// Whether something can be put into a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamespaceLife {
    Open,
    Terminating,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
}

/// One write on its way in.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    pub operation: Operation,
    /// The plural, as errors name it.
    pub resource: Resource<'a>,
    /// Empty for the main endpoint.
    pub subresource: &'a str,
    /// Empty for cluster-scoped kinds.
    pub namespace: &'a str,
    /// Empty while a name is still to be generated.
    pub name: &'a str,
    /// The stored object, of an update or a delete.
    pub old: Option<&'a Value>,
}

impl Request<'_> {
    pub(crate) fn forbidden(&self, why: &str) -> ApiError {
        ApiError::forbidden(self.resource, self.name, why)
    }

    /// Whether this is `operation` on the main endpoint of a resource.
    pub(crate) fn is(&self, operation: Operation, group: &str, plural: &str) -> bool {
        self.is_any(group, plural) && self.operation == operation && self.subresource.is_empty()
    }

    pub(crate) fn is_any(&self, group: &str, plural: &str) -> bool {
        self.resource == Resource::new(group, plural)
    }
}

/// The plugins that may change the object, in the reference's order. `pick` answers a random number below its argument.
pub fn mutate(
    request: &Request<'_>,
    object: &mut Value,
    lookup: &dyn Lookup,
    pick: &mut dyn FnMut(usize) -> usize,
) -> Result<(), ApiError> {
    namespaces::check(request, lookup)?;
    service_account::mutate(request, object, lookup, pick)?;
    nodes::taint(request, object);
    pods::mutate(request, object)?;
    storage::default_class(request, object, lookup);
    storage::protect(request, object);
    Ok(())
}

/// The plugins that only judge, in the reference's order. The answer is what to write to quotas together with the
/// object; a dry run charges nothing.
pub fn validate(request: &Request<'_>, object: &Value, lookup: &dyn Lookup) -> Result<Vec<Charge>, ApiError> {
    limits::check(request, object, lookup)?;
    storage::check_resize(request, object, lookup)?;
    quota::check(request, object, lookup)
}

/// What nodes may not do, when the caller is one: NodeRestriction, off by default in the reference. The same for what stands
/// beside the driver of a machine that joined.
pub fn restrict_node(
    request: &Request<'_>,
    object: Option<&Value>,
    user: &User<'_>,
    lookup: &dyn Lookup,
) -> Result<(), ApiError> {
    match user.machine() {
        Some(machine) => machines::restrict(request, object, machine, lookup),
        None => nodes::restrict(request, object, user, lookup),
    }
}

/// Whether a volume may be made that has the same handle as another: machines may not.
pub(crate) fn restrict_twin(request: &Request<'_>, user: &User<'_>) -> Result<(), ApiError> {
    user.machine().map_or(Ok(()), |machine| machines::refuse_twin(request, machine))
}

/// The part of a DELETE that admission has a say in.
pub fn check_delete(request: &Request<'_>, lookup: &dyn Lookup) -> Result<(), ApiError> {
    namespaces::check(request, lookup)
}
