//! Priority and DefaultTolerationSeconds, for pods: how important a pod is, and how long it stays on a node that fails.

use serde_json::{Value, json};

use super::{Operation, Request};
use crate::keys;
use crate::kinds::read::{list, number, optional_text, present, restore, set, text};
use crate::status::ApiError;

/// How long a pod stays on a node that is not ready or cannot be reached, unless it says otherwise.
const TOLERATED_SECONDS: i64 = 300;
/// The classes that every cluster has. Others would be objects of a kind that is not served.
const CLASSES: [(&str, i64); 2] = [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];
const PREEMPTION: &str = "PreemptLowerPriority";

pub(super) fn mutate(request: &Request<'_>, pod: &mut Value) -> Result<(), ApiError> {
    if !request.is_any("", "pods") || !request.subresource.is_empty() {
        return Ok(());
    }
    match (request.operation, request.old) {
        (Operation::Create, _) => prioritize(request, pod)?,
        (Operation::Update, Some(old)) => {
            for field in ["/spec/priority", "/spec/preemptionPolicy"] {
                if present(pod, field).is_none() {
                    restore(pod, old, field);
                }
            }
        }
        (Operation::Update, None) | (Operation::Delete, _) => return Ok(()),
    }
    tolerate(pod);
    Ok(())
}

/// A pod may repeat what its class says, and nothing else.
fn prioritize(request: &Request<'_>, pod: &mut Value) -> Result<(), ApiError> {
    let class = text(pod, "/spec/priorityClassName");
    let priority = match CLASSES.iter().find(|(name, _)| *name == class) {
        Some((_, priority)) => *priority,
        None if class.is_empty() => 0,
        None => return Err(request.forbidden(&format!("no PriorityClass with name {class} was found"))),
    };
    const COMPUTED: &str = "must not be provided in pod spec; priority admission controller computed";
    if let Some(given) = number(pod, "/spec/priority").filter(|given| *given != priority) {
        let why =
            format!("the integer value of priority ({given}) {COMPUTED} {priority} from the given PriorityClass name");
        return Err(request.forbidden(&why));
    }
    if let Some(given) = optional_text(pod, "/spec/preemptionPolicy").filter(|given| *given != PREEMPTION) {
        let why = format!(
            "the string value of PreemptionPolicy ({given}) {COMPUTED} {PREEMPTION} from the given PriorityClass name"
        );
        return Err(request.forbidden(&why));
    }
    set(pod, "/spec/priority", priority);
    set(pod, "/spec/preemptionPolicy", PREEMPTION);
    Ok(())
}

fn tolerate(pod: &mut Value) {
    let mut tolerations = list(pod, "/spec/tolerations").to_vec();
    let before = tolerations.len();
    for taint in [keys::NODE_NOT_READY, keys::NODE_UNREACHABLE] {
        let covers = |toleration: &Value| {
            let (key, effect) = (text(toleration, "/key"), text(toleration, "/effect"));
            (key.is_empty() || key == taint) && (effect.is_empty() || effect == "NoExecute")
        };
        if !tolerations[..before].iter().any(covers) {
            tolerations.push(json!({
                "key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATED_SECONDS,
            }));
        }
    }
    if tolerations.len() > before {
        set(pod, "/spec/tolerations", tolerations);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Resource;

    fn request<'a>(operation: Operation, old: Option<&'a Value>) -> Request<'a> {
        Request { operation, resource: Resource::new("", "pods"), subresource: "", namespace: "conf", name: "p", old }
    }

    fn created(spec: Value) -> Result<Value, String> {
        let mut pod = json!({ "spec": spec });
        mutate(&request(Operation::Create, None), &mut pod).map_err(|error| error.message)?;
        Ok(pod["spec"].take())
    }

    #[test]
    fn a_pod_is_as_important_as_its_class_says() {
        let plain = created(json!({})).expect("admitted");
        assert_eq!((&plain["priority"], &plain["preemptionPolicy"]), (&json!(0), &json!("PreemptLowerPriority")));
        let system = created(json!({"priorityClassName": "system-node-critical"})).expect("admitted");
        assert_eq!(system["priority"], 2_000_001_000);
        assert!(created(json!({"priority": 0, "preemptionPolicy": "PreemptLowerPriority"})).is_ok());
        let computed = "must not be provided in pod spec; priority admission controller computed";
        let table = [
            (json!({"priorityClassName": "nope"}), "no PriorityClass with name nope was found".to_owned()),
            (
                json!({"priority": 5}),
                format!("the integer value of priority (5) {computed} 0 from the given PriorityClass name"),
            ),
            (
                json!({"preemptionPolicy": "Never"}),
                format!(
                    "the string value of PreemptionPolicy (Never) {computed} PreemptLowerPriority from the given \
                     PriorityClass name"
                ),
            ),
        ];
        for (spec, why) in table {
            assert_eq!(created(spec), Err(format!("pods \"p\" is forbidden: {why}")));
        }
    }

    #[test]
    fn a_pod_leaves_a_failing_node_after_five_minutes_unless_it_says_otherwise() {
        let keys = |spec: Value| -> Vec<String> {
            let spec = created(spec).expect("admitted");
            list(&spec, "/tolerations").iter().map(|one| text(one, "/key").to_owned()).collect()
        };
        let both = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
        assert_eq!(keys(json!({})), both);
        assert_eq!(keys(json!({"tolerations": [{"key": both[0], "operator": "Exists"}]})), both);
        assert_eq!(keys(json!({"tolerations": [{"operator": "Exists"}]})), [""]);
        let other = json!({"tolerations": [{"operator": "Exists", "effect": "NoSchedule"}]});
        assert_eq!(keys(other), ["", both[0], both[1]]);
    }

    #[test]
    fn an_update_that_leaves_the_priority_out_keeps_it() {
        let old = json!({"spec": created(json!({})).expect("admitted")});
        let mut pod = json!({"spec": {}});
        mutate(&request(Operation::Update, Some(&old)), &mut pod).expect("admitted");
        assert_eq!(pod, old);
    }
}
