//! Whether an account of an existing cluster may do what the parts need, asked before somebody wonders why nothing happens.
//!
//! What a part needs is what its role in `examples/rbac` grants: the roles that an operator applies are the ones that are
//! asked for here, so that the two cannot come apart.

use std::collections::BTreeMap;

use api::{Kind, Scope};
use futures_util::future::join_all;
use runtime::Client;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::stack::{Plan, Role};

const REVIEW: Kind =
    Kind::of("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", Scope::Cluster);

const CONTROLLERS: &str = include_str!("../../../../examples/rbac/controllers.yaml");
const SCHEDULER: &str = include_str!("../../../../examples/rbac/scheduler.yaml");
const SIDECAR: &str = include_str!("../../../../examples/rbac/sidecar.yaml");
const NODE: &str = include_str!("../../../../examples/rbac/node.yaml");

/// What only some drivers, classes or pods need: an operator may leave it out on purpose.
const SOMETIMES: [&str; 5] =
    ["secrets", "serviceaccounts/token", "volumeattributesclasses", "volumesnapshots", "volumesnapshotcontents"];

/// The parts of a role that matter here; other documents of the file have none of them.
#[derive(Debug, Deserialize)]
struct Document {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    rules: Vec<Rule>,
}

#[derive(Debug, Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    namespace: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    api_groups: Vec<String>,
    resources: Vec<String>,
    verbs: Vec<String>,
}

/// One thing that has to be allowed. An empty namespace is all of them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Right {
    namespace: String,
    group: String,
    resource: String,
    verb: String,
}

impl Right {
    fn review(&self) -> Value {
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((&self.resource, ""));
        json!({"apiVersion": REVIEW.api_version(), "kind": REVIEW.kind, "spec": {"resourceAttributes": {
            "group": self.group, "resource": resource, "subresource": subresource,
            "namespace": self.namespace, "verb": self.verb}}})
    }
}

/// What a role grants.
fn rights(role: &str) -> Vec<Right> {
    // A test reads all of them.
    let documents: Vec<Document> = serde_saphyr::from_multiple(role).unwrap_or_default();
    let mut rights = Vec::new();
    for Document { metadata, rules } in documents {
        for Rule { api_groups, resources, verbs } in rules {
            for (group, resource) in api_groups.iter().flat_map(|group| resources.iter().map(move |one| (group, one))) {
                rights.extend(verbs.iter().map(|verb| Right {
                    namespace: metadata.namespace.clone(),
                    group: group.clone(),
                    resource: resource.clone(),
                    verb: verb.clone(),
                }));
            }
        }
    }
    rights.retain(|right| !SOMETIMES.contains(&right.resource.as_str()));
    rights
}

/// What the parts of a plan need, each once.
fn needed(plan: &Plan) -> Vec<Right> {
    let parts = [
        (plan.has(Role::Controllers), CONTROLLERS),
        (plan.has(Role::Scheduler), SCHEDULER),
        (plan.has(Role::Sidecars), SIDECAR),
        (plan.mounts(), NODE),
    ];
    let mut all: Vec<Right> = parts.into_iter().filter(|(runs, _)| *runs).flat_map(|(_, role)| rights(role)).collect();
    all.sort();
    all.dedup();
    all
}

/// Asks the server, and tells in one line what it would refuse. Nothing is refused here: rights may still be given.
pub(super) async fn tell_missing(client: &Client, plan: &Plan) {
    let needed = needed(plan);
    let asked = needed.iter().map(|right| async move {
        let answer = client.create::<Value>(REVIEW, None, &right.review()).await;
        // Who gets no answer to this hears of what is refused when it is.
        matches!(answer, Ok(answer) if answer["status"]["allowed"] == false).then_some(right)
    });
    let missing: Vec<&Right> = join_all(asked).await.into_iter().flatten().collect();
    if !missing.is_empty() {
        tracing::warn!(
            missing = sentence(&missing),
            "this account lacks rights that the parts here need; what needs them waits until they are given, such as with \
             the roles in examples/rbac"
        );
    }
}

/// `list, watch pods; create leases in kube-system`.
fn sentence(missing: &[&Right]) -> String {
    let mut grouped: BTreeMap<(&str, &str, &str), Vec<&str>> = BTreeMap::new();
    for right in missing {
        grouped.entry((&right.namespace, &right.group, &right.resource)).or_default().push(&right.verb);
    }
    let told = grouped.into_iter().map(|((namespace, group, resource), verbs)| {
        let (resource, part) = resource
            .split_once('/')
            .map_or((resource, String::new()), |(resource, part)| (resource, format!("/{part}")));
        let dot = if group.is_empty() { "" } else { "." };
        let place = if namespace.is_empty() { String::new() } else { format!(" in {namespace}") };
        format!("{} {resource}{dot}{group}{part}{place}", verbs.join(", "))
    });
    told.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn right(namespace: &str, group: &str, resource: &str, verb: &str) -> Right {
        let [namespace, group, resource, verb] = [namespace, group, resource, verb].map(str::to_owned);
        Right { namespace, group, resource, verb }
    }

    #[test]
    fn the_roles_that_operators_apply_are_what_is_asked_for() {
        let all = [CONTROLLERS, SCHEDULER, SIDECAR, NODE].map(rights);
        assert!(all.iter().all(|rights| rights.len() > 10), "each file is read: {:?}", all.map(|rights| rights.len()));
        let sidecar = rights(SIDECAR);
        assert!(sidecar.contains(&right("", "", "persistentvolumeclaims", "patch")));
        assert!(sidecar.contains(&right("kube-system", "coordination.k8s.io", "leases", "update")));
        assert!(!sidecar.iter().any(|right| right.resource == "secrets"), "not all drivers have secrets");
    }

    #[test]
    fn what_is_missing_is_one_sentence() {
        let missing = [
            right("", "", "pods", "list"),
            right("", "", "pods", "watch"),
            right("", "", "pods/status", "patch"),
            right("kube-system", "coordination.k8s.io", "leases", "create"),
        ];
        assert_eq!(
            sentence(&missing.iter().collect::<Vec<_>>()),
            "list, watch pods; patch pods/status; create leases.coordination.k8s.io in kube-system"
        );
        let review = missing[2].review();
        let asked = &review["spec"]["resourceAttributes"];
        assert_eq!((&asked["resource"], &asked["subresource"]), (&json!("pods"), &json!("status")));
    }
}
