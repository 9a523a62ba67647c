//! Writes that have their own rules: binding a pod, evicting it, finalizing a namespace. They change one thing of the
//! stored object and leave all else as it is.

use serde_json::{Value, json};

use super::{BodyKind, Core, Deletion, Effect, Given, Outcome, Write, codec, settle, storable};
use crate::kinds::{deletion, read};
use crate::request::{DeleteOptions, DryRun, Preconditions};
use crate::schema::tables::{core, policy};
use crate::status::{ApiError, FieldError, Mismatch, Resource};
use crate::store::{self, CommitError, Expect};

const BINDING: BodyKind<'static> = BodyKind { api_version: "v1", kind: "Binding", schema: &core::BINDING };
const EVICTION: BodyKind<'static> = BodyKind { api_version: "policy/v1", kind: "Eviction", schema: &policy::EVICTION };

impl Core {
    /// Changes a stored object without asking its kind. An object that nothing keeps any more is removed.
    pub(crate) async fn rewrite(
        &self,
        write: &Write<'_>,
        name: &str,
        change: &(dyn Fn(&Value) -> Outcome<Value> + Sync),
    ) -> Outcome<Value> {
        loop {
            let live = self.load_or_404(write.resource, write.namespace, name)?;
            let mut object = change(&live.object)?;
            settle(write.resource, write.rules, &mut object);
            let leaves = deletion::completed_by(&write.resource.kind, &object);
            let text = codec::encode(&storable(write.resource, &object));
            if (text == live.stored.value && !leaves) || write.effect == Effect::DryRun {
                return Ok(object);
            }
            let (key, expect) = (live.stored.key.clone(), Expect::At(live.stored.revision));
            let commit = match leaves {
                true => store::Write::delete(key, expect),
                false => self.put_text(write.resource, key, text, expect)?,
            };
            match self.store.commit(commit).await {
                Ok(_) if leaves => return Ok(object),
                Ok(committed) => {
                    codec::set_version(&mut object, committed.revision);
                    return Ok(object);
                }
                Err(CommitError::Changed { .. } | CommitError::Missing { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes the finalizers of a namespace's spec from the request, and nothing else.
    pub(crate) async fn finalize(&self, write: &Write<'_>, name: &str, requested: Value) -> Outcome<Value> {
        self.rewrite(write, name, &|live| {
            let version = read::text(&requested, "/metadata/resourceVersion");
            if !version.is_empty() && version != read::text(live, "/metadata/resourceVersion") {
                return Err(ApiError::modified(write.resource.named(), name).into());
            }
            if let Some(wanted) = crate::kinds::meta::requested_uid(&requested) {
                let stored = read::text(live, "/metadata/uid");
                if wanted != stored {
                    let key = format!("/registry/namespaces/{name}");
                    let uids = Mismatch { wanted, stored };
                    return Err(ApiError::wrong_uid(write.resource.named(), name, &key, uids).into());
                }
            }
            let mut object = live.clone();
            read::restore(&mut object, &requested, "/spec/finalizers");
            Ok(object)
        })
        .await
    }

    /// Gives a pod its node, once.
    pub(crate) async fn bind(&self, write: &Write<'_>, name: &str, given: Given<'_>) -> Outcome<()> {
        let binding = given.of_kind(write, BINDING)?;
        self.admit_below(write, name, "binding")?;
        let node = read::text(&binding, "/target/name").to_owned();
        let mut errors = Vec::new();
        if !["", "Node"].contains(&read::text(&binding, "/target/kind")) {
            let kind = read::text(&binding, "/target/kind");
            errors.push(FieldError::not_supported("target.kind", kind, &["Node", "<empty>"]));
        }
        if node.is_empty() {
            errors.push(FieldError::required("target.name", ""));
        }
        if !errors.is_empty() {
            // The reference does not say whose errors these are.
            let words: Vec<String> = errors.iter().map(ToString::to_string).collect();
            let words = if let [one] = &words[..] { one.clone() } else { format!("[{}]", words.join(", ")) };
            return Err(ApiError::unclassified(words).into());
        }
        let now = write.now.to_string();
        let wanted = read::text(&binding, "/metadata/uid");
        let change = |pod: &Value| {
            let stored = read::text(pod, "/metadata/uid");
            if !wanted.is_empty() && wanted != stored {
                let key = format!("/registry/pods/{}/{name}", read::text(pod, "/metadata/namespace"));
                let uids = Mismatch { wanted, stored };
                return Err(ApiError::wrong_uid(write.resource.named(), name, &key, uids).into());
            }
            bound(pod, name, &node, &now)
        };
        self.rewrite(write, name, &change).await.map(drop)
    }

    /// Deletes a pod the polite way.
    pub(crate) async fn evict(&self, write: &Write<'_>, name: &str, given: Given<'_>) -> Outcome<()> {
        let eviction = given.of_kind(write, EVICTION)?;
        self.admit_below(write, name, "eviction")?;
        let asked = eviction.get("deleteOptions").filter(|options| options.is_object());
        let mut options = match asked {
            Some(options) => DeleteOptions::from_body(options, "policy/v1")?,
            None => DeleteOptions {
                grace_period_seconds: None,
                propagation: None,
                orphan_dependents: None,
                preconditions: Preconditions::default(),
                dry_run: DryRun::Off,
            },
        };
        if write.effect == Effect::DryRun {
            options.dry_run = DryRun::All;
        }
        let deletion = Deletion {
            resource: write.resource,
            rules: write.rules,
            namespace: write.namespace,
            user: write.user,
            options: &options,
        };
        self.delete(&deletion, name).await.map(drop)
    }
}

fn bound(pod: &Value, name: &str, node: &str, now: &str) -> Outcome<Value> {
    let refused = |why: String| ApiError::conflict(Resource::new("", "pods/binding"), name, &why);
    if read::deleting(pod) {
        return Err(refused(format!("pod {name} is being deleted, cannot be assigned to a host")).into());
    }
    let assigned = read::text(pod, "/spec/nodeName");
    if !assigned.is_empty() {
        let node = crate::request::go_quote(assigned);
        return Err(refused(format!("pod {name} is already assigned to node {node}")).into());
    }
    let mut pod = pod.clone();
    read::set(&mut pod, "/spec/nodeName", node);
    let scheduled = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now});
    let mut conditions: Vec<Value> = read::list(&pod, "/status/conditions").to_vec();
    conditions.retain(|condition| condition["type"] != "PodScheduled");
    conditions.push(scheduled);
    read::set(&mut pod, "/status/conditions", conditions);
    Ok(pod)
}
