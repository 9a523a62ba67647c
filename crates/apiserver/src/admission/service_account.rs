//! ServiceAccount, for pods: every pod has an account, and a token of it unless it declines.

use super::references::pod_secrets;
use super::{Lookup, Operation, Request};
use crate::kinds::meta::generate_name;
use crate::kinds::read::{annotation, items_mut, list, present, set, text};
use crate::status::ApiError;
use serde_json::{Value, json};

const MOUNT_PATH: &str = crate::keys::ACCOUNT_MOUNT_PATH;
const VOLUME_PREFIX: &str = "kube-api-access-";
const MIRROR: &str = crate::keys::MIRROR_POD;
const CONTAINERS: [&str; 2] = ["/spec/containers", "/spec/initContainers"];
/// Slightly more than an hour: kubelets renew at 80 percent, and an hour is the default of everything else.
const TOKEN_SECONDS: i64 = 3607;

pub(super) fn mutate(
    request: &Request<'_>,
    pod: &mut Value,
    lookup: &dyn Lookup,
    pick: &mut dyn FnMut(usize) -> usize,
) -> Result<(), ApiError> {
    if !request.is(Operation::Create, "", "pods") {
        return Ok(());
    }
    if annotation(pod, MIRROR).is_some() {
        return check_mirror(request, pod);
    }
    if text(pod, "/spec/serviceAccountName").is_empty() {
        set(pod, "/spec/serviceAccountName", "default");
    }
    let name = text(pod, "/spec/serviceAccountName").to_string();
    set(pod, "/spec/serviceAccount", name.as_str());
    let Some(account) = lookup.get("ServiceAccount", request.namespace, &name) else {
        let why = format!(
            "error looking up service account {}/{name}: serviceaccount \"{name}\" not found",
            request.namespace
        );
        return Err(request.forbidden(&why));
    };
    if wants_token(pod, &account) {
        mount_token(pod, pick);
    }
    let secrets = present(&account, "/imagePullSecrets").filter(|_| list(pod, "/spec/imagePullSecrets").is_empty());
    if let Some(secrets) = secrets.cloned() {
        set(pod, "/spec/imagePullSecrets", secrets);
    }
    Ok(())
}

/// A mirror pod shows what a node already runs; it has no account and no secrets.
fn check_mirror(request: &Request<'_>, pod: &Value) -> Result<(), ApiError> {
    let projects_token = |volume: &Value| {
        let mut sources = list(volume, "/projected/sources").iter();
        sources.any(|source| present(source, "/serviceAccountToken").is_some())
    };
    let why = match () {
        () if !text(pod, "/spec/serviceAccountName").is_empty() => "a mirror pod may not reference service accounts",
        () if !pod_secrets(pod).is_empty() => "a mirror pod may not reference secrets",
        () if list(pod, "/spec/volumes").iter().any(projects_token) => {
            "a mirror pod may not use ServiceAccountToken volume projections"
        }
        () => return Ok(()),
    };
    Err(request.forbidden(why))
}

/// The pod's own word counts first.
fn wants_token(pod: &Value, account: &Value) -> bool {
    let said = |object: &Value, pointer| object.pointer(pointer).and_then(Value::as_bool);
    let pod = said(pod, "/spec/automountServiceAccountToken");
    pod.or_else(|| said(account, "/automountServiceAccountToken")).unwrap_or(true)
}

fn has_token(container: &Value) -> bool {
    list(container, "/volumeMounts").iter().any(|mount| text(mount, "/mountPath") == MOUNT_PATH)
}

/// Mounts one token volume into every container that has nothing at that place; the pod may bring such a volume itself.
fn mount_token(pod: &mut Value, pick: &mut dyn FnMut(usize) -> usize) {
    if CONTAINERS.iter().all(|containers| list(pod, containers).iter().all(has_token)) {
        return;
    }
    let volumes = list(pod, "/spec/volumes");
    let own = volumes.iter().map(|volume| text(volume, "/name")).find(|name| name.starts_with(VOLUME_PREFIX));
    let (name, added) = match own {
        Some(name) => (name.to_string(), None),
        None => {
            let name = generate_name(VOLUME_PREFIX, pick);
            let volume = token_volume(&name);
            (name, Some(volume))
        }
    };
    if let Some(volume) = added {
        let mut volumes = volumes.to_vec();
        volumes.push(volume);
        set(pod, "/spec/volumes", volumes);
    }
    for containers in CONTAINERS {
        for container in items_mut(pod, containers).filter(|container| !has_token(container)) {
            let mut mounts = list(container, "/volumeMounts").to_vec();
            mounts.push(json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH}));
            set(container, "/volumeMounts", mounts);
        }
    }
}

fn token_volume(name: &str) -> Value {
    json!({
        "name": name,
        "projected": {
            "defaultMode": 0o644,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [
                    {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
                ]}},
            ],
        },
    })
}
