//! NodeExpandVolume, and what the claim is told of it (NODE-18).

use api::keys::annotation;
use api::{AccessMode, Amount, Claim, Kind};
use csi::v1;
use csi::v1::node_service_capability::rpc::Type as NodeRpc;
use lifecycle::Notice;
use lifecycle::node::Step;
use lifecycle::node::because::Stage;
use lifecycle::node::expand::{self, Everywhere, Growth, IN_PROGRESS, INFEASIBLE, Verdict};
use lifecycle::outcome::{Call, Code};
use runtime::Patch;
use serde_json::{Value, json};

use super::{Asked, Details, capability, failed, text};
use crate::Agent;
use crate::actual::{Shape, What};
use crate::desired::Wish;
use crate::reconcile::{Effect, Failure, View};

const AT: Stage = Stage::Expand;

/// The condition of a claim whose volume did not grow on a node.
const RESIZE_ERROR: &str = "NodeResizeError";
/// Conditions that end with a resize.
const RESIZE_CONDITIONS: [&str; 4] = ["Resizing", "FileSystemResizePending", "ControllerResizeError", RESIZE_ERROR];

impl Agent {
    /// Grows a volume that is in use.
    pub(crate) async fn expand(&self, step: &Step, view: &View) -> Result<Effect, Failure> {
        let wish =
            view.wish(step).ok_or_else(|| Failure::transient(AT, "the pod does not want the volume any more"))?;
        let asked = self.ask_for(wish, AT)?;
        let details = self.details(wish, AT).await?;
        self.grow(wish, &details, &asked).await
    }

    /// Grows a volume that has just been published, before its pod may use it.
    pub(crate) async fn expand_before_use(
        &self,
        wish: &Wish,
        details: &Details,
        asked: &Asked,
    ) -> Result<Effect, Failure> {
        let smaller = match (&wish.capacity, &wish.claimed) {
            (Some(capacity), Some(claimed)) => claimed < capacity,
            _ => false,
        };
        match (smaller, wish.read_only) {
            (true, false) => self.grow(wish, details, asked).await.map_err(|failure| Failure { seen: true, ..failure }),
            (true, true) => {
                self.tell_read_only(wish);
                Ok(Effect { size: wish.claimed.clone(), ..Effect::default() })
            }
            (false, _) => Ok(Effect { size: wish.claimed.clone(), ..Effect::default() }),
        }
    }

    /// A filesystem that may not be written to is not grown, and its users are told (NODE-18).
    fn tell_read_only(&self, wish: &Wish) {
        let message = format!(
            "MountVolume.NodeExpandVolume failed for volume {:?} : requested read-only file system",
            wish.spec.as_str()
        );
        let notice = Notice::warning("FileSystemResizeFailed", message);
        self.notices.always(&*wish.pod, &notice);
        let claim = wish.claim.as_ref().and_then(|(key, _)| self.context.cache::<Claim>().get(key));
        if let Some(claim) = claim {
            self.notices.always(&*claim, &notice);
        }
    }

    async fn grow(&self, wish: &Wish, details: &Details, asked: &Asked) -> Result<Effect, Failure> {
        let (Some((key, _)), Some(capacity)) = (&wish.claim, &wish.capacity) else { return Ok(Effect::default()) };
        let object: Value =
            self.context.client.get(Kind::CLAIM, key).await.map_err(|error| Failure::transient(AT, error))?;
        let claim: Claim = serde_json::from_value(object.clone()).map_err(|error| Failure::transient(AT, error))?;
        self.context.cache::<Claim>().wrote(claim.clone());
        let done = |size: Amount| Effect { size: Some(size.max(capacity.clone())), ..Effect::default() };
        let (target, mark, tracked) = match expand::growth(&claim, capacity, everywhere(&claim)) {
            Growth::NotAllowed => return Ok(Effect::default()),
            Growth::Done { size } => return Ok(done(size)),
            Growth::Grow { target, mark, tracked } => (target, mark, tracked),
        };
        if !asked.can(NodeRpc::ExpandVolume) {
            let untracked = !tracked || claim.status.resize.is_none();
            return match untracked {
                true => Ok(done(target)),
                false => Err(Failure::transient(AT, "the driver does not grow volumes on a node")),
            };
        }
        if mark {
            self.tell_claim(&object, json!({"allocatedResourceStatuses": {"storage": IN_PROGRESS}})).await?;
        }
        let request = self.expand_request(wish, &target, (details, asked)).await?;
        match asked.driver.node_expand_volume(request, self.options.timeout).await {
            Ok(_) => {
                self.tell_grown(wish, &claim, &target).await?;
                Ok(done(target))
            }
            Err(error) => self.refused(wish, (&object, tracked), capacity, &error).await,
        }
    }

    /// The driver did not grow it. What it says is kept apart from what may still happen (NODE-31.3).
    async fn refused(
        &self,
        wish: &Wish,
        (claim, tracked): (&Value, bool),
        capacity: &Amount,
        error: &runtime::csi::CallError,
    ) -> Result<Effect, Failure> {
        let failure = failed(Call::NodeExpand, AT, lifecycle::node::Held::Yes, error);
        let Some(code) = error.code() else { return Err(failure) };
        let verdict = expand::verdict(Code::from_number(code as i32));
        if tracked && verdict != Verdict::Again {
            let mut status = json!({"conditions": self.with_error(claim, error.message())});
            if verdict == Verdict::Infeasible {
                status["allocatedResourceStatuses"] = json!({"storage": INFEASIBLE});
            }
            self.mark_claim(wish, status).await?;
        }
        match verdict {
            Verdict::NotWhileInUse => Ok(Effect { refused: Some(capacity.clone()), ..Effect::default() }),
            Verdict::Again | Verdict::Failed | Verdict::Infeasible => Err(failure),
        }
    }

    async fn expand_request(
        &self,
        wish: &Wish,
        target: &Amount,
        (details, asked): (&Details, &Asked),
    ) -> Result<v1::NodeExpandVolumeRequest, Failure> {
        let What::Csi { driver, handle, shape } = &wish.what else {
            return Err(Failure::transient(AT, "the volume has no driver"));
        };
        let secrets = self.secret(details.expand_secret.as_ref(), AT).await?;
        let place = self.pod_directory(wish)?;
        let stages = asked.can(NodeRpc::StageUnstageVolume);
        let (volume_path, staging, mount) = match shape {
            Shape::Block { volume } => {
                let block = self.options.layout.block(volume).map_err(|error| Failure::transient(AT, error))?;
                let uid = crate::layout::Name::new(wish.pod.uid().as_str());
                let uid = uid.map_err(|error| Failure::transient(AT, error))?;
                (block.publish(&uid), block.staging(), None)
            }
            Shape::Filesystem | Shape::Inline => {
                let staged = self.options.layout.staged(driver, handle);
                (place.csi(&wish.spec).mount(), staged.mount(), Some(details.mount(None, None)))
            }
        };
        Ok(v1::NodeExpandVolumeRequest {
            volume_id: handle.to_string(),
            volume_path: text(&volume_path),
            capacity_range: Some(v1::CapacityRange { required_bytes: target.bytes(), limit_bytes: 0 }),
            staging_target_path: if stages { text(&staging) } else { String::new() },
            volume_capability: capability(details.mode(asked), mount),
            secrets,
        })
    }

    /// It has grown: pod and claim are told, and the claim's status says so (NODE-18.1).
    async fn tell_grown(&self, wish: &Wish, claim: &Claim, target: &Amount) -> Result<(), Failure> {
        let notice = Notice::normal(
            "FileSystemResizeSuccessful",
            format!("MountVolume.NodeExpandVolume succeeded for volume {:?}", wish.spec.as_str()),
        );
        self.notices.always(&*wish.pod, &notice);
        self.notices.always(claim, &notice);
        // Read again: the first write of this resize changed it.
        let object: Value =
            self.context.client.get(Kind::CLAIM, claim.key()).await.map_err(|error| Failure::transient(AT, error))?;
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let kept: Vec<Value> = conditions
            .into_iter()
            .filter(|condition| !RESIZE_CONDITIONS.iter().any(|kind| condition["type"] == *kind))
            .collect();
        let status = json!({
            "capacity": {"storage": target.text()},
            "allocatedResourceStatuses": {"storage": null},
            "conditions": kept,
        });
        self.tell_claim(&object, status).await
    }

    /// Changes the claim's status at the revision that was seen.
    async fn tell_claim(&self, claim: &Value, status: Value) -> Result<(), Failure> {
        let meta = &claim["metadata"];
        let key = api::Key::namespaced(
            meta["namespace"].as_str().unwrap_or_default(),
            meta["name"].as_str().unwrap_or_default(),
        );
        let seen = json!({"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]});
        let patch = Patch::Merge(json!({"metadata": seen, "status": status}));
        let stored = self.context.patch_status::<Claim>(&key, &patch).await;
        stored.map(drop).map_err(|error| Failure::transient(AT, error))
    }

    /// Says in the claim that its size failed. It must not be lost to a conflict, so that it is not conditional on more
    /// than the claim's identity (CTRL-13.47).
    async fn mark_claim(&self, wish: &Wish, status: Value) -> Result<(), Failure> {
        let Some((key, uid)) = &wish.claim else { return Ok(()) };
        let patch = Patch::Merge(json!({"metadata": {"uid": uid.as_str()}, "status": status}));
        let stored = self.context.patch_status::<Claim>(key, &patch).await;
        stored.map(drop).map_err(|error| Failure::transient(AT, error))
    }

    fn with_error(&self, claim: &Value, message: &str) -> Vec<Value> {
        let held = claim["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let (errors, mut kept): (Vec<Value>, Vec<Value>) =
            held.into_iter().partition(|condition| condition["type"] == RESIZE_ERROR);
        // An error that goes on is no transition. Without that every attempt would change the claim, and every change of
        // the claim would bring the next attempt forward.
        let since = errors.iter().find(|held| held["status"] == "True").map(|held| held["lastTransitionTime"].clone());
        let since = since.filter(Value::is_string);
        kept.push(json!({
            "type": RESIZE_ERROR,
            "status": "True",
            "lastTransitionTime": since.unwrap_or_else(|| format!("{:.0}", self.context.clock.now()).into()),
            "message": message,
        }));
        kept
    }
}

/// Whether other nodes grow the volume for themselves.
pub(crate) fn everywhere(claim: &Claim) -> Everywhere {
    let shared = claim.access.contains(AccessMode::ReadWriteMany);
    match shared && claim.meta.annotation(annotation::NODE_EXPANSION_NOT_REQUIRED).is_none() {
        true => Everywhere::Yes,
        false => Everywhere::No,
    }
}
