//! NamespaceLifecycle: nothing is created where there is no namespace, or where one is being emptied.

use super::{Lookup, NamespaceLife, Operation, Request};
use crate::status::{ApiError, Resource};

const NAMESPACES: Resource<'_> = Resource::new("", "namespaces");

/// Namespaces the cluster cannot do without.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

pub(super) fn check(request: &Request<'_>, lookup: &dyn Lookup) -> Result<(), ApiError> {
    if request.resource == NAMESPACES {
        let doomed = request.operation == Operation::Delete && request.subresource.is_empty();
        if doomed && IMMORTAL.contains(&request.name) {
            return Err(request.forbidden("this namespace may not be deleted"));
        }
        return Ok(());
    }
    // Asking whether one may do something is possible everywhere; leaving is, too.
    let review = request.is_any("authorization.k8s.io", "localsubjectaccessreviews");
    if request.namespace.is_empty() || review || request.operation == Operation::Delete {
        return Ok(());
    }
    let Some(namespace) = lookup.namespace(request.namespace) else {
        return Err(ApiError::not_found(NAMESPACES, request.namespace));
    };
    if request.operation == Operation::Create && namespace == NamespaceLife::Terminating {
        let name = request.namespace;
        let why = format!("unable to create new content in namespace {name} because it is being terminated");
        let message = format!("namespace {name} is being terminated");
        return Err(request.forbidden(&why).with_cause("NamespaceTerminating", message, "metadata.namespace"));
    }
    Ok(())
}
