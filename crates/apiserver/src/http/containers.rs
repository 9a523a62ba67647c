//! What `kubectl logs`, `exec`, `attach`, `cp` and `port-forward` ask of a pod.
//!
//! No container runs here. Whoever asks for one is told so: "not found" would send them looking for a mistake of theirs.

use super::handle::Call;
use super::resources::Asked;
use crate::catalog::Resource;
use crate::request::Freshness;
use crate::status::ApiError;
use crate::verbs::Outcome;

/// What a pod without containers lacks, by the subresource that asks for it.
const LACKS: [(&str, &str); 4] = [
    ("attach", "nothing to attach to"),
    ("exec", "nothing to run a command in"),
    ("log", "no log"),
    ("portforward", "no port to forward to"),
];

/// What is missing for this subresource; `None` if it is not about containers.
pub(super) fn lack(resource: &Resource, subresource: &str) -> Option<&'static str> {
    let of_pods = resource.plural == "pods" && resource.group.is_empty();
    let row = LACKS.iter().find(|(name, _)| of_pods && *name == subresource)?;
    Some(row.1)
}

/// Why it cannot be had. A pod that does not exist is not found, as everywhere.
pub(super) async fn refuse<T>(call: &Call, asked: &Asked, name: &str, lack: &str) -> Outcome<T> {
    call.shared.core.get(asked.collection(), name, Freshness::Newest).await?;
    Err(ApiError::bad_request(format!(
        "pod {name:?} has {lack}: no container runs here, only its volumes are mounted (`orlop mount CLAIM PATH` shows one)"
    ))
    .into())
}
