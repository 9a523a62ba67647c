//! The one write of this step: a finalizer on or off, at the revision that was seen.

use api::keys::Finalizer;
use api::{Meta, Object};
use runtime::Patch;
use runtime::client::Error;
use serde_json::json;

use crate::Context;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    On,
    Off,
}

/// Whether there is anything to do about an object: it lives without its finalizer, or goes and is held by it.
pub(super) fn matters(meta: &Meta, finalizer: Finalizer) -> bool {
    meta.is_deleting() == meta.has_finalizer(finalizer)
}

/// Whether the object is on its way out and its finalizer holds it.
pub(super) fn held(meta: &Meta, finalizer: Finalizer) -> bool {
    meta.is_deleting() && meta.has_finalizer(finalizer)
}

/// Writes. `Ok` means that the cache knows what came of it, good or bad: decide again.
pub(super) async fn write<T: Object>(
    context: &Context,
    seen: &Meta,
    finalizer: Finalizer,
    turn: Turn,
) -> Result<(), Error> {
    let kept = seen.finalizers.iter().map(|held| held.as_str()).filter(|held| *held != finalizer.text());
    let finalizers: Vec<&str> = kept.chain((turn == Turn::On).then_some(finalizer.text())).collect();
    let patch = Patch::Merge(json!({"metadata": {
        "uid": seen.uid.as_str(),
        "resourceVersion": seen.revision.to_string(),
        "finalizers": finalizers,
    }}));
    match context.patch::<T>(&seen.key, &patch).await {
        Ok(now) => {
            if let Some(now) = now.filter(|now| over(now.meta())) {
                context.gone::<T>(now.meta());
            }
            Ok(())
        }
        Err(error) => context.reconsider::<T>(&seen.key, error).await,
    }
}

/// Nothing holds it any more: the server took it away with this very write, although it answered with the object.
fn over(meta: &Meta) -> bool {
    meta.is_deleting() && meta.finalizers.is_empty()
}
