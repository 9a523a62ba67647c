//! Wrong behaviour on purpose: what each invariant must notice.
//!
//! A mutation is a part that is left out, a journal that is lost, or a rogue: one more process without manners, doing
//! what a controller with a bug would do.

use std::time::Duration;

use api::{Claim, Kind, Object as _, ReclaimPolicy, Volume, VolumePhase};
use runtime::client::{Preconditions, Selection};
use runtime::csi::Driver;
use runtime::{Client, Patch, Stop};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::witness::{Truth, Witness, handle_of};
use crate::driver::{DriverFlaw, Model};
use crate::faults::{Action, Ask, Fair, Fate, Refusal};
use crate::{Process, Random, World, keys};

/// What is wrong in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Mutation {
    /// Nothing.
    None,
    /// The journal of intents does not survive a crash.
    ForgetIntents,
    /// A binder gives a volume to a claim without looking whose it is.
    TwoOwners,
    /// A binder reserves what a policy keeps for the next claim, as if nobody had used it.
    HandOn,
    /// A provisioner deletes without looking whether the claim lives.
    DeleteLive,
    /// A provisioner deletes what a policy keeps.
    DeleteRetained,
    /// A provisioner deletes what is attached.
    DeleteAttached,
    /// A provisioner deletes what it once made, although the volume has another object by now.
    DeleteHandedOver,
    /// An intent is written to the journal and never ended.
    LeaveIntent,
    /// The driver's backend loses a volume.
    Hollow,
    /// There is no binder.
    NoBinder,
    /// Nobody protects, and nobody lets go.
    NoProtection,
    /// Somebody writes the same things again and again.
    Storm,
    /// A controller repeats a write that is refused at once.
    RepeatAtOnce,
    /// The driver takes a missing pool for an empty one.
    EmptyPool,
    /// The driver never clears its `.tmp` and `.trash`.
    KeepLeftovers,
}

impl Mutation {
    /// All that are wrong and noticed soon. Deletions are too rare for [`Mutation::EmptyPool`], which worlds of nodes notice.
    pub const ALL: [Self; 14] = [
        Self::DeleteAttached,
        Self::ForgetIntents,
        Self::TwoOwners,
        Self::HandOn,
        Self::DeleteLive,
        Self::DeleteRetained,
        Self::DeleteHandedOver,
        Self::LeaveIntent,
        Self::Hollow,
        Self::NoBinder,
        Self::NoProtection,
        Self::Storm,
        Self::RepeatAtOnce,
        Self::KeepLeftovers,
    ];

    /// The driver's part in it.
    pub(super) fn of_driver(self) -> DriverFlaw {
        match self {
            Self::EmptyPool => DriverFlaw::EmptyPool,
            Self::KeepLeftovers => DriverFlaw::KeepLeftovers,
            _ => DriverFlaw::None,
        }
    }

    /// From which seed on a world that notices it is looked for: some are noticed in few worlds.
    pub fn first_seed(self) -> u64 {
        match self {
            Self::DeleteAttached => 60,
            _ => 0,
        }
    }

    /// How the violation begins that it leads to.
    pub fn noticed_as(self) -> &'static str {
        match self {
            Self::None => "",
            Self::ForgetIntents | Self::EmptyPool => "leaked",
            Self::KeepLeftovers => "left in .t",
            Self::TwoOwners => "two owners",
            Self::HandOn => "handed on",
            Self::DeleteLive => "deleted while in use",
            Self::DeleteRetained => "deleted although retained",
            Self::DeleteAttached => "deleted while attached",
            Self::DeleteHandedOver => "deleted",
            Self::LeaveIntent => "left intent",
            Self::Hollow => "hollow",
            Self::NoBinder | Self::NoProtection => "unexplained",
            Self::Storm => "storm",
            Self::RepeatAtOnce => "storm: rogue",
        }
    }

    /// What a rogue does in a world, for ever.
    pub(super) async fn play(self, world: &World, witness: &Witness, model: &Model) {
        let component = match self {
            Self::RepeatAtOnce => {
                let refuse = |ask: &Ask<'_>| match ask.action {
                    Action::Update => Fate::Refused(Refusal::InternalError).into(),
                    _ => Fate::Answered.into(),
                };
                world.component("rogue", refuse)
            }
            _ => world.component("rogue", Fair),
        };
        let context = Process::new(world, &component, 0).context;
        let driver = Driver::new(model.clone(), runtime::csi::Options::default(), &context.metrics);
        let random = world.random("rogue");
        let mut rogue = Rogue { client: context.client, witness: witness.clone(), random, driver };
        let connected = rogue.driver.clone();
        match self {
            Self::None
            | Self::ForgetIntents
            | Self::NoBinder
            | Self::NoProtection
            | Self::EmptyPool
            | Self::KeepLeftovers => std::future::pending().await,
            Self::Hollow => loop {
                sleep(Duration::from_secs(20)).await;
                let held =
                    rogue.pick(|truth| truth.volumes.values().filter_map(|volume| used(truth, volume)).collect());
                if let Some(id) = held {
                    model.tamper(|state| state.delete(&id));
                }
            },
            Self::DeleteLive | Self::DeleteRetained | Self::DeleteAttached | Self::DeleteHandedOver => {
                let rage = async {
                    loop {
                        sleep(Duration::from_secs(20)).await;
                        rogue.delete(self, model).await;
                    }
                };
                let _ = futures_util::future::join(connected.run(&Stop::never()), rage).await;
            }
            Self::RepeatAtOnce => loop {
                sleep(Duration::from_millis(20)).await;
                let claim = rogue.pick(|truth| truth.claims.values().take(1).cloned().collect());
                let Some(claim) = claim else { continue };
                let patch = Patch::Merge(json!({"metadata": {"labels": {"again": "yes"}}}));
                drop(rogue.client.patch::<Value>(Kind::CLAIM, claim.key(), &patch).await);
            },
            Self::TwoOwners | Self::HandOn | Self::Storm | Self::LeaveIntent => loop {
                sleep(Duration::from_secs(5)).await;
                rogue.write(self).await;
            },
        }
    }
}

/// The handle of a volume that a claim has.
fn used(truth: &Truth, volume: &Volume) -> Option<String> {
    let uid = volume.claim.as_ref()?.uid.as_ref()?;
    let claim = truth.claim_of(uid)?;
    (&*claim.volume_name == volume.name()).then(|| handle_of(volume).map(str::to_owned)).flatten()
}

struct Rogue {
    client: Client,
    witness: Witness,
    random: Random,
    driver: Driver,
}

impl Rogue {
    fn pick<T: Clone>(&mut self, from: impl FnOnce(&Truth) -> Vec<T>) -> Option<T> {
        let found = self.witness.look_at(from);
        self.random.pick(&found).cloned()
    }

    async fn delete(&mut self, mutation: Mutation, model: &Model) {
        let attached: Vec<String> = self.witness.attached().into_iter().collect();
        let backend = model.volumes();
        let held = self.pick(|truth| match mutation {
            Mutation::DeleteRetained => {
                let kept = truth.volumes.values().filter(|volume| volume.reclaim == ReclaimPolicy::Retain);
                kept.filter_map(|volume| handle_of(volume).map(str::to_owned)).collect()
            }
            Mutation::DeleteAttached => attached,
            Mutation::DeleteHandedOver => {
                let other = |id: &str, name: &str| truth.of_handle(id).is_some_and(|volume| volume.name() != name);
                backend
                    .iter()
                    .filter(|volume| other(&volume.id, &volume.name))
                    .map(|volume| volume.id.clone())
                    .collect()
            }
            _ => truth.volumes.values().filter_map(|volume| used(truth, volume)).collect(),
        });
        if let Some(volume_id) = held {
            let request = csi::v1::DeleteVolumeRequest { volume_id, ..Default::default() };
            // Whatever it is answered, the call itself is what must be noticed.
            drop(self.driver.delete_volume(request, Duration::from_secs(10)).await);
        }
    }

    async fn write(&mut self, mutation: Mutation) {
        let (kind, key, patch) = match mutation {
            Mutation::TwoOwners => {
                let bound = |truth: &Truth| {
                    let bound = truth.volumes.values().filter(|volume| volume.phase == VolumePhase::Bound);
                    bound.cloned().collect::<Vec<_>>()
                };
                let open = |truth: &Truth| truth.claims.values().cloned().collect::<Vec<_>>();
                let (Some(volume), Some(claim)) = (self.pick(bound), self.pick(open)) else { return };
                (Kind::VOLUME, volume.meta.key.clone(), json!({"spec": {"claimRef": reference(&claim)}}))
            }
            Mutation::HandOn => {
                let kept = |truth: &Truth| {
                    let kept = truth.volumes.values().filter(|volume| volume.phase == VolumePhase::Released);
                    kept.filter(|volume| volume.reclaim == ReclaimPolicy::Retain).cloned().collect::<Vec<_>>()
                };
                let open = |truth: &Truth| {
                    let open = truth.claims.values().filter(|claim| claim.volume_name.is_empty());
                    open.cloned().collect::<Vec<_>>()
                };
                let (Some(volume), Some(claim)) = (self.pick(kept), self.pick(open)) else { return };
                let (namespace, name) = (claim.namespace(), claim.name());
                let next = json!({"namespace": namespace, "name": name, "uid": null, "resourceVersion": null});
                (Kind::VOLUME, volume.meta.key.clone(), json!({"spec": {"claimRef": next}}))
            }
            Mutation::LeaveIntent => {
                let Some(map) = self.pick(|truth| truth.intents.keys().cloned().collect()) else { return };
                let uid = format!("00000000-0000-0000-0000-{:012}", self.random.below(3));
                (Map::KIND, map, json!({"data": {uid: "{}"}}))
            }
            _ => {
                let Some(claim) = self.pick(|truth| truth.claims.values().cloned().collect()) else { return };
                let again = json!({"metadata": {"labels": {"again": self.random.number().to_string()}}});
                (Kind::CLAIM, claim.key().clone(), again)
            }
        };
        drop(self.client.patch::<Value>(kind, &key, &Patch::Merge(patch)).await);
    }
}

fn reference(claim: &Claim) -> Value {
    json!({"kind": "PersistentVolumeClaim", "namespace": claim.namespace(), "name": claim.name(), "uid": claim.uid()})
}

/// Loses the journal of intents.
pub(super) async fn forget(world: &World) {
    let component = world.component("rogue", Fair);
    let client = Process::new(world, &component, 1).context.client;
    let selection = Selection { labels: Some(keys::INTENTS.to_owned()), ..Selection::default() };
    let Ok(page) = client.list::<Map>(Map::KIND, &selection, 0, None).await else { return };
    for map in page.items {
        drop(client.delete::<Map>(&map.metadata.key, &Preconditions::default()).await);
    }
}

/// A ConfigMap, as far as deleting it needs.
#[derive(Debug, Clone, serde::Deserialize)]
struct Map {
    metadata: api::Meta,
}

impl api::Object for Map {
    const KIND: Kind = Kind::core("configmaps", "ConfigMap", api::Scope::Namespaced);

    fn meta(&self) -> &api::Meta {
        &self.metadata
    }
}
