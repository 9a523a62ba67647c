//! NodeRestriction for tokens of service accounts: a node gets them only for a pod that is bound to it, and only for the
//! audiences that this pod asks for.

use serde_json::Value;

use super::nodes::User;
use super::references::volume_claim;
use super::{Lookup, Request};
use crate::kinds::read::{list, namespace, present, text};
use crate::request::{aggregate, go_quote};
use crate::status::{ApiError, Resource};

/// The longest time for which a node gets a token. It renews the tokens of its pods at least once a day.
const NODE_TOKEN_SECONDS: i64 = 48 * 60 * 60;

/// The terms of a token request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenTerms {
    /// As long as it is asked for.
    AsAsked,
    /// At most so many seconds, whatever is asked for.
    AtMost(i64),
}

/// Judges a TokenRequest. `may_request` says whether a role lets the asker have tokens for an audience.
pub fn restrict_token(
    request: &Request<'_>,
    body: &Value,
    user: &User<'_>,
    lookup: &dyn Lookup,
    may_request: impl FnOnce(&str) -> bool,
) -> Result<TokenTerms, ApiError> {
    let Some(node) = user.node() else { return Ok(TokenTerms::AsAsked) };
    let refused = |why: &str| Err(request.forbidden(why));
    let bound = |field: &str| text(body, &format!("/spec/boundObjectRef/{field}"));
    if bound("apiVersion") != "v1" || bound("kind") != "Pod" || bound("name").is_empty() {
        return refused("node requested token not bound to a pod");
    }
    let uid = bound("uid");
    if uid.is_empty() {
        return refused("node requested token with a pod binding without a uid");
    }
    let Some(pod) = lookup.get("Pod", request.namespace, bound("name")) else {
        return Err(ApiError::not_found(Resource::new("", "pod"), bound("name")));
    };
    if uid != text(&pod, "/metadata/uid") {
        return refused(&format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have \
             been deleted and then recreated"
        ));
    }
    if node.is_empty() || text(&pod, "/spec/nodeName") != node {
        return refused("node requested token bound to a pod scheduled on a different node");
    }
    let audience = match list(body, "/spec/audiences") {
        [] => "",
        [one] => one.as_str().unwrap_or_default(),
        _ => return refused("node may only request 0 or 1 audiences"),
    };
    match names_audience(&pod, audience, lookup) {
        Ok(true) => Ok(TokenTerms::AtMost(NODE_TOKEN_SECONDS)),
        Err(problems) => {
            let problems = aggregate(problems);
            refused(&format!("error validating audience {}: {problems}", go_quote(audience)))
        }
        Ok(false) if may_request(audience) => Ok(TokenTerms::AtMost(NODE_TOKEN_SECONDS)),
        Ok(false) => refused(&format!(
            "audience {} not found in pod spec volume, {} is not authorized to request tokens for this audience",
            go_quote(audience),
            user.name
        )),
    }
}

/// Whether a volume of the pod is a token for the audience, or is of a CSI driver that wants such tokens. The error is
/// what is missing to say no.
fn names_audience(pod: &Value, audience: &str, lookup: &dyn Lookup) -> Result<bool, Vec<String>> {
    let mut problems = Vec::new();
    for volume in list(pod, "/spec/volumes") {
        let mut projected = list(volume, "/projected/sources").iter();
        let is_for = |token: &Value| text(token, "/audience") == audience;
        if projected.any(|source| present(source, "/serviceAccountToken").is_some_and(is_for)) {
            return Ok(true);
        }
        match driver_of(pod, volume, lookup).and_then(|driver| wants_tokens(&driver, audience, lookup)) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() { Ok(false) } else { Err(problems) }
}

/// The CSI driver of a pod's volume; empty if it has none.
fn driver_of(pod: &Value, volume: &Value, lookup: &dyn Lookup) -> Result<String, String> {
    let missing = |kind: &str, name: &str| format!("{kind} {} not found", go_quote(name));
    let Some(name) = volume_claim(pod, volume) else { return Ok(text(volume, "/csi/driver").to_owned()) };
    let claim = lookup.get("PersistentVolumeClaim", namespace(pod), &name);
    let claim = claim.ok_or_else(|| missing("persistentvolumeclaim", &name))?;
    let name = text(&claim, "/spec/volumeName");
    let bound = lookup.get("PersistentVolume", "", name).ok_or_else(|| missing("persistentvolume", name))?;
    Ok(text(&bound, "/spec/csi/driver").to_owned())
}

fn wants_tokens(driver: &str, audience: &str, lookup: &dyn Lookup) -> Result<bool, String> {
    if driver.is_empty() {
        return Ok(false);
    }
    let found = lookup.get("CSIDriver", "", driver);
    let found = found.ok_or_else(|| format!("csidriver.storage.k8s.io {} not found", go_quote(driver)))?;
    Ok(list(&found, "/spec/tokenRequests").iter().any(|request| text(request, "/audience") == audience))
}
