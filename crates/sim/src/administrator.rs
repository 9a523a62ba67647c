//! A person with all rights who hands volumes over: the PersistentVolume of a handle is taken away by hand, finalizers
//! and all, and another one is made of the same handle for another claim, while the provisioner runs or is down.
//!
//! The person is careful about one thing: a volume that may already be deleted is not used again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::keys::annotation;
use api::{Attachment, Claim, Key, Kind, Pod, ReclaimPolicy, Volume, VolumePhase};
use runtime::client::Preconditions;
use runtime::{Client, Patch};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::outage::Outage;
use crate::storage::witness::{Truth, Witness, handle_of};
use crate::world::Weather;
use crate::{Component, Process, Random, World, keys};

const NAMESPACE: &str = "default";
const SECOND: Duration = Duration::from_secs(1);
/// How often the person looks whether something has happened.
const LOOK: Duration = Duration::from_millis(200);

/// Which claim gets a volume that is handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heir {
    /// Another one.
    Another,
    /// One with the name of the claim that had it, so that pods go on using it.
    Namesake,
}

/// The administrator.
#[derive(Debug)]
pub(crate) struct Administrator {
    component: Component,
    client: Client,
    witness: Witness,
    random: Random,
    weather: Weather,
    provisioner: Outage,
    heir: Heir,
    made: u64,
    /// Attachments made by hand, by name, and when they are taken away again.
    attachments: BTreeMap<String, Instant>,
}

/// Whether the provisioner is down while a volume is handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum During {
    Work,
    Outage,
}

impl Administrator {
    pub(crate) fn new(world: &World, witness: &Witness, provisioner: &Outage, heir: Heir) -> Self {
        let component = world.component("administrator", crate::faults::Fair);
        let client = Process::new(world, &component, 0).context.client;
        Self {
            component,
            client,
            witness: witness.clone(),
            random: world.random("administrator"),
            weather: world.weather(),
            provisioner: provisioner.clone(),
            heir,
            made: 0,
            attachments: BTreeMap::new(),
        }
    }

    /// Does one thing after the other until the world is calm, and sets everything right then.
    pub(crate) async fn live(mut self) {
        while !self.weather.is_calm() {
            let pause = self.random.between(&(4 * SECOND..=20 * SECOND));
            self.wait(pause).await;
            if self.weather.is_calm() {
                break;
            }
            match self.random.below(100) {
                0..=29 => self.hand_over_any(During::Work).await,
                30..=59 => self.hand_over_any(During::Outage).await,
                60..=79 => self.hand_over_the_next().await,
                80..=89 => self.let_go_by_hand().await,
                _ => self.attach_by_hand().await,
            }
        }
        self.provisioner.end();
        self.take_attachments_away(|_| true).await;
        std::future::pending().await
    }

    async fn wait(&mut self, pause: Duration) {
        let until = Instant::now() + pause;
        while Instant::now() < until && !self.weather.is_calm() {
            sleep(LOOK.min(until - Instant::now())).await;
            let now = Instant::now();
            self.take_attachments_away(|due| due <= now).await;
        }
    }

    fn bound(&mut self) -> Option<Arc<Volume>> {
        let volumes = self.witness.look_at(|truth| {
            let bound = truth.volumes.values().filter(|volume| is_at_rest(truth, volume));
            bound.cloned().collect::<Vec<_>>()
        });
        self.random.pick(&volumes).cloned()
    }

    async fn hand_over_any(&mut self, during: During) {
        if during == During::Outage {
            self.component.note("provisioner down");
            self.provisioner.begin();
            sleep(SECOND).await;
        }
        if let Some(volume) = self.bound() {
            self.hand_over(&volume, during).await;
        }
        if during == During::Outage {
            self.end_outage().await;
        }
    }

    /// The provisioner ends within a second of success, before its journal says so, and stays away while its volume is
    /// handed over.
    async fn hand_over_the_next(&mut self) {
        let until = Instant::now() + 30 * SECOND;
        while Instant::now() < until && !self.weather.is_calm() {
            let fresh =
                self.witness.look_at(|truth| truth.volumes.values().find(|volume| is_fresh(truth, volume)).cloned());
            if let Some(volume) = fresh {
                self.component.note(format_args!("provisioner down before it forgets the intent of {}", volume.name()));
                self.provisioner.begin();
                sleep(SECOND).await;
                let intent = self.witness.look_at(|truth| is_fresh(truth, &volume));
                self.component.note(format_args!("the intent of {} is open: {intent}", volume.name()));
                self.hand_over(&volume, During::Outage).await;
                return self.end_outage().await;
            }
            sleep(LOOK).await;
        }
    }

    async fn end_outage(&mut self) {
        let pause = self.random.between(&(5 * SECOND..=60 * SECOND));
        self.wait(pause).await;
        self.component.note("provisioner may start");
        self.provisioner.end();
    }

    /// Takes a volume's object and claim away and makes others of the same handle.
    async fn hand_over(&mut self, volume: &Volume, during: During) {
        let (Some(handle), Some(reference)) = (handle_of(volume).map(str::to_owned), &volume.claim) else { return };
        let (key, owner) = (&volume.meta.key, reference.key.clone());
        let Ok(old) = self.client.get::<Value>(Kind::VOLUME, key).await else { return };
        self.component.note(format_args!("hands over {handle}, which was {key}"));
        let retains = during == During::Work || self.random.below(3) > 0;
        if retains {
            self.witness.flips(&volume.meta);
            let patch = json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}});
            self.patch(Kind::VOLUME, key, patch).await;
        }
        if during == During::Work {
            sleep(self.random.between(&(Duration::ZERO..=5 * SECOND))).await;
        }
        // Another person may have done something else to it meanwhile.
        let as_expected = |truth: &Truth| {
            let now = truth.volumes.get(volume.name()).filter(|now| now.meta.uid == volume.meta.uid);
            now.is_some_and(|now| {
                let kept = now.reclaim == ReclaimPolicy::Retain;
                is_at_rest(truth, now) && (kept || during == During::Outage)
            })
        };
        if !self.witness.look_at(as_expected) || self.witness.is_doomed(&handle) {
            return self.component.note(format_args!("leaves {handle} alone"));
        }
        self.delete_pods(&owner).await;
        self.witness.abandons(&handle);
        self.delete_by_hand::<Claim>(Kind::CLAIM, &owner).await;
        self.delete_by_hand::<Volume>(Kind::VOLUME, key).await;
        let is_gone = |truth: &Truth| {
            truth.of_handle(&handle).is_none() && truth.claims.get(&owner).is_none_or(|claim| claim.meta.is_deleting())
        };
        if !self.witness.look_at(is_gone) || self.witness.is_doomed(&handle) {
            return self.component.note(format_args!("does not use {handle} again"));
        }
        self.make_heir(&handle, &old, &owner).await;
    }

    async fn make_heir(&mut self, handle: &str, old: &Value, owner: &Key) {
        self.made += 1;
        let name = format!("static-{}", self.made);
        let claim = match self.heir {
            Heir::Another => format!("heir-{}", self.made % 3),
            Heir::Namesake => owner.name().to_owned(),
        };
        let policy = *self.random.pick(&["Retain", "Retain", "Delete"]).unwrap_or(&"Retain");
        // People copy the old object, and with it what it says of its origin.
        let annotations = match self.random.below(2) {
            0 => json!({annotation::PROVISIONED_BY.text(): keys::DRIVER}),
            _ => json!({}),
        };
        let mut spec = old["spec"].clone();
        spec["persistentVolumeReclaimPolicy"] = policy.into();
        spec["claimRef"] = json!({"namespace": NAMESPACE, "name": claim});
        let body = json!({
            "apiVersion": "v1", "kind": Kind::VOLUME.kind,
            "metadata": {"name": name, "annotations": annotations}, "spec": spec,
        });
        self.create(Kind::VOLUME, None, &name, &body).await;
        self.component.note(format_args!("{handle} is {name} with policy {policy} from now on, for claim {claim}"));
        let spec = json!({
            "accessModes": spec["accessModes"], "volumeMode": spec["volumeMode"],
            "storageClassName": spec["storageClassName"], "volumeName": name,
            "resources": {"requests": {"storage": spec["capacity"]["storage"]}},
        });
        let body = json!({
            "apiVersion": "v1", "kind": Kind::CLAIM.kind,
            "metadata": {"name": claim, "namespace": NAMESPACE}, "spec": spec,
        });
        self.create(Kind::CLAIM, Some(NAMESPACE), &claim, &body).await;
    }

    /// Takes the finalizers off a claim or a volume that is on its way out.
    async fn let_go_by_hand(&mut self) {
        let going = |truth: &Truth| {
            let volumes = truth.volumes.values().filter(|volume| volume.meta.is_deleting());
            // A name that the user gives again would look like two claims with one volume.
            let volumes = volumes.filter(|volume| handle_of(volume).is_some());
            let volumes = volumes.map(|volume| (Kind::VOLUME, volume.meta.key.clone(), handle_of(volume)));
            let claims = truth.claims.values().filter(|claim| claim.meta.is_deleting());
            let claims = claims.map(|claim| (Kind::CLAIM, claim.key().clone(), None));
            let all = volumes.chain(claims);
            all.map(|(kind, key, handle)| (kind, key, handle.map(str::to_owned))).collect::<Vec<_>>()
        };
        let going = self.witness.look_at(going);
        let Some((kind, key, handle)) = self.random.pick(&going).cloned() else { return };
        if let Some(handle) = handle {
            self.witness.abandons(&handle);
        }
        self.take_finalizers(kind, &key).await;
    }

    async fn delete_pods(&self, claim: &Key) {
        let pods = self.witness.look_at(|truth| {
            let users = truth.pods.values().filter(|pod| pod.claims().any(|name| *name == *claim.name()));
            users.map(|pod| pod.meta.key.clone()).collect::<Vec<_>>()
        });
        for pod in pods {
            self.note(&pod, self.client.delete_now::<Pod>(&pod, &Preconditions::default()).await.map(drop));
        }
    }

    async fn delete_by_hand<T: api::Object>(&self, kind: Kind, key: &Key) {
        self.component.note(format_args!("deletes {kind} {key}"));
        self.note(key, self.client.delete::<T>(key, &Preconditions::default()).await.map(drop));
        self.take_finalizers(kind, key).await;
    }

    async fn take_finalizers(&self, kind: Kind, key: &Key) {
        let going = match kind == Kind::CLAIM {
            true => self.witness.look_at(|truth| truth.claims.get(key).is_some_and(|claim| claim.meta.is_deleting())),
            false => self
                .witness
                .look_at(|truth| truth.volumes.get(key.name()).is_some_and(|volume| volume.meta.is_deleting())),
        };
        if going {
            self.component.note(format_args!("takes the finalizers off {kind} {key}"));
            self.patch(kind, key, json!({"metadata": {"finalizers": null}})).await;
        }
    }

    /// Attaches a bound volume to a node and ends its claim, so that only the attachment holds the volume.
    async fn attach_by_hand(&mut self) {
        let Some(volume) = self.bound() else { return };
        if self.heir == Heir::Namesake {
            // Where there is an attach/detach controller, attachments are its own.
            return;
        }
        self.made += 1;
        let name = format!("by-hand-{}", self.made);
        let body = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": name},
            "spec": {
                "attacher": keys::DRIVER, "nodeName": crate::user::NODES[0].0,
                "source": {"persistentVolumeName": volume.name()},
            },
        });
        self.component.note(format_args!("attaches {} by hand", volume.name()));
        self.create(Kind::ATTACHMENT, None, &name, &body).await;
        let pause = self.random.between(&(21 * SECOND..=30 * SECOND));
        self.wait(pause).await;
        let stays = self.random.between(&(10 * SECOND..=90 * SECOND));
        self.attachments.insert(name, Instant::now() + stays);
        if let Some(reference) = &volume.claim {
            let key = &reference.key;
            self.note(key, self.client.delete::<Claim>(key, &Preconditions::default()).await.map(drop));
        }
    }

    async fn take_attachments_away(&mut self, is_due: impl Fn(Instant) -> bool) {
        let due: Vec<String> =
            self.attachments.iter().filter(|(_, at)| is_due(**at)).map(|(name, _)| name.clone()).collect();
        for name in due {
            let key = Key::cluster(&name);
            self.component.note(format_args!("detaches {name} by hand"));
            self.note(&key, self.client.delete::<Attachment>(&key, &Preconditions::default()).await.map(drop));
            self.attachments.remove(&name);
        }
    }

    async fn create(&self, kind: Kind, namespace: Option<&str>, name: &str, body: &Value) {
        self.note(name, self.client.create::<Value>(kind, namespace, body).await.map(drop));
    }

    async fn patch(&self, kind: Kind, key: &Key, patch: Value) {
        self.note(key, self.client.patch::<Value>(kind, key, &Patch::Merge(patch)).await.map(drop));
    }

    fn note(&self, what: impl std::fmt::Display, outcome: Result<(), runtime::client::Error>) {
        if let Err(error) = outcome {
            self.component.note(format_args!("{what}: {error}"));
        }
    }
}

/// Whether a claim that lives has the volume, and neither is on its way out.
fn is_at_rest(truth: &Truth, volume: &Volume) -> bool {
    let uid = volume.claim.as_ref().and_then(|reference| reference.uid.as_ref());
    let claim = uid.and_then(|uid| truth.claim_of(uid));
    handle_of(volume).is_some()
        && volume.phase != VolumePhase::Released
        && !volume.meta.is_deleting()
        && claim.is_some_and(|claim| !claim.meta.is_deleting())
}

/// Whether the journal still has the intent that the volume was made for.
fn is_fresh(truth: &Truth, volume: &Volume) -> bool {
    let uid = volume.claim.as_ref().and_then(|reference| reference.uid.as_ref());
    is_at_rest(truth, volume) && uid.is_some_and(|uid| truth.has_intent(uid.as_str()))
}
