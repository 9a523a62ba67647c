//! How much work a request is, as far as that can be told before it is begun.
//!
//! A few bytes can ask for much work: a patch of a large object, a selector that is held against thousands of objects, a long
//! list in a form that has to be made from decoded objects. Such requests are worked on apart ([`flow`](super::flow)).

use super::answer::Layout;
use super::handle::Call;
use crate::catalog::Resource;
use crate::request::{Encoding, ListOptions, Method, Offer, ResourceRequest, Target, Verb, negotiate};
use crate::store::{List, Scope};

/// A body, or a stored object, with more bytes than this is much work.
const LARGE_OBJECT: usize = 64 << 10;
/// Objects with more bytes than this together, or more of them, are much work.
const LARGE_LIST_BYTES: usize = 1 << 20;
const LARGE_LIST: usize = 500;

pub(super) fn is_large(call: &Call) -> bool {
    call.body.len() > LARGE_OBJECT || is_about_much(call).unwrap_or_default()
}

/// Whether a long answer is made while it is sent: when it is copied from what is stored.
pub(super) fn is_streamed(call: &Call) -> bool {
    match &call.info.target {
        Target::Resource(request) if request.name.is_none() => {
            let served = call.shared.core.served();
            let resource = served.resource(&request.group, &request.version, &request.resource);
            resource.is_some_and(|resource| is_copied(call, Offer::List(resource.flavor())))
        }
        Target::Resource(_) => false,
        Target::Endpoint(_) => true,
    }
}

/// None for a request about nothing that is stored.
fn is_about_much(call: &Call) -> Option<bool> {
    let Target::Resource(request) = &call.info.target else { return None };
    let served = call.shared.core.served();
    let resource = served.resource(&request.group, &request.version, &request.resource)?;
    Some(match &request.name {
        // The lines of a watch are made one by one.
        _ if request.verb == Verb::Watch => false,
        Some(name) => {
            let offer = Offer::One(resource.flavor());
            let stored = || call.shared.core.find(resource, request.namespace.as_deref(), name);
            !is_copied(call, offer) && stored().is_some_and(|stored| stored.value.len() > LARGE_OBJECT)
        }
        None if call.info.method == Method::Post => false,
        None => is_decoded(call, resource) && is_large_collection(call, resource, request),
    })
}

/// Whether the answer is put together from texts as they are stored.
fn is_copied(call: &Call, offer: Offer) -> bool {
    let accepted = negotiate(&call.accept, offer).ok();
    let is_line = accepted.is_some_and(|accepted| {
        accepted.encoding == Encoding::Json && accepted.transform.is_none() && !accepted.pretty
    });
    call.info.method == Method::Get && call.layout == Layout::Line && is_line
}

/// Whether objects of a list are decoded, to look whether they are selected or to show them.
fn is_decoded(call: &Call, resource: &Resource) -> bool {
    let known = resource.field_labels();
    let Ok(options) = ListOptions::parse(&call.info.query, &known) else { return false };
    let by_place = options.labels.is_empty() && options.fields.is_about_places();
    !by_place || !is_copied(call, Offer::List(resource.flavor()))
}

fn is_large_collection(call: &Call, resource: &Resource, request: &ResourceRequest) -> bool {
    let scope = match &request.namespace {
        Some(namespace) => Scope::namespace(&resource.stored_as, namespace),
        None => Scope::all(&resource.stored_as),
    };
    let some = List { limit: Some(LARGE_LIST + 1), ..List::latest(&scope) };
    let items = call.shared.core.store.list(&some).map(|page| page.items).unwrap_or_default();
    let bytes = || items.iter().map(|stored| stored.value.len()).sum::<usize>();
    items.len() > LARGE_LIST || bytes() > LARGE_LIST_BYTES
}
