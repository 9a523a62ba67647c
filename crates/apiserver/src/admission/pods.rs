//! What a cluster without further policy gives every pod: the priority of no class, and patience with nodes that fail.

use super::{Operation, Request};
use crate::keys::{NODE_NOT_READY, NODE_UNREACHABLE};
use crate::kinds::read::{list, present, set, set_default, text};
use serde_json::{Value, json};

/// How long a pod stays on a node that does not answer.
const PATIENCE_SECONDS: i64 = 300;
const EVICTS: &str = "NoExecute";

/// DefaultTolerationSeconds: a pod that says nothing about failing nodes waits for them a while.
pub(super) fn tolerate(request: &Request<'_>, pod: &mut Value) {
    if !request.is(Operation::Create, "", "pods") && !request.is(Operation::Update, "", "pods") {
        return;
    }
    let mut tolerations = list(pod, "/spec/tolerations").to_vec();
    for taint in [NODE_NOT_READY, NODE_UNREACHABLE] {
        let said = tolerations.iter().any(|toleration| {
            ["", taint].contains(&text(toleration, "/key")) && ["", EVICTS].contains(&text(toleration, "/effect"))
        });
        if !said {
            tolerations.push(json!({
                "key": taint, "operator": "Exists", "effect": EVICTS, "tolerationSeconds": PATIENCE_SECONDS,
            }));
        }
    }
    set(pod, "/spec/tolerations", tolerations);
}

/// Priority: there are no classes here, so every pod has the same. An update that leaves it out keeps it.
pub(super) fn prioritise(request: &Request<'_>, pod: &mut Value) {
    if let Some(old) = request.old.filter(|_| request.is(Operation::Update, "", "pods")) {
        for field in ["/spec/priority", "/spec/preemptionPolicy"] {
            if let Some(value) = present(old, field).filter(|_| present(pod, field).is_none()).cloned() {
                set(pod, field, value);
            }
        }
    }
    if request.is(Operation::Create, "", "pods") && text(pod, "/spec/priorityClassName").is_empty() {
        set_default(pod, "/spec/priority", 0);
        set_default(pod, "/spec/preemptionPolicy", "PreemptLowerPriority");
    }
}
