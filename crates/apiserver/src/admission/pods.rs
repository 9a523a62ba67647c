//! What a cluster without further policy gives every pod: the priority of no class, and patience with nodes that fail.

use super::{Operation, Request};
use crate::keys::{NODE_NOT_READY, NODE_UNREACHABLE};
use crate::kinds::read::{list, set, set_default, text};
use serde_json::{Value, json};

/// How long a pod stays on a node that does not answer.
const PATIENCE_SECONDS: i64 = 300;
const EVICTS: &str = "NoExecute";

/// DefaultTolerationSeconds: a pod that says nothing about failing nodes waits for them a while.
pub(super) fn tolerate(request: &Request<'_>, pod: &mut Value) {
    if !request.is(Operation::Create, "", "pods") {
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

/// Priority: there are no classes here, so every pod has the same.
pub(super) fn prioritise(request: &Request<'_>, pod: &mut Value) {
    if request.is(Operation::Create, "", "pods") && text(pod, "/spec/priorityClassName").is_empty() {
        set_default(pod, "/spec/priority", 0);
        set_default(pod, "/spec/preemptionPolicy", "PreemptLowerPriority");
    }
}
