//! Wrong behaviour on purpose: what each invariant must notice.
//!
//! A mutation is a part that is left out or stays dead, or a rogue: one more process without manners, doing what a
//! controller, an attacher or an agent with a bug would do.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::Kind;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use node::host::{Access, Force};
use runtime::{Client, Clock, Patch};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::Also;
use super::days::Place;
use super::witness::{Eyes, ROOT, held, shown};
use crate::driver::{DriverFlaw, Model};
use crate::faults::Fair;
use crate::{Process, Random, World};

/// What is wrong in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Mutation {
    /// Nothing.
    None,
    /// A provisioner deletes what a machine has.
    DeleteStaged,
    /// A controller takes volumes from nodes by its own wall clock, which is wrong.
    TrustClock,
    /// An attacher takes a volume from a node that uses it.
    DetachStaged,
    /// A volume of one node is published to two.
    TwoNodes,
    /// An agent unstages what pods still have.
    UnstageEarly,
    /// An agent takes a running pod's mount.
    TakeMount,
    /// An agent forgets a mount of a pod that is gone.
    Litter,
    /// An agent that died stays dead.
    DeadAgents,
    /// Nobody attaches.
    NoController,
    /// Nobody does what attachments ask for.
    NoAttacher,
    /// Somebody writes the same things again and again.
    Storm,
    /// Agents do not hold the lease of their node, so that a clone works beside its original.
    NoLease,
    /// The attacher does not ask the driver what is attached.
    NoListing,
    /// The driver unmounts volumes without a sync.
    NoSync,
    /// The driver syncs what lies on top of the mount point.
    SyncOnTop,
    /// The driver takes a missing pool for an empty one.
    EmptyPool,
    /// The driver never clears its `.tmp` and `.trash`.
    KeepLeftovers,
    /// A restore stores attachments and nodes as they were.
    BelieveBackup,
}

impl Mutation {
    /// All that are wrong.
    pub const ALL: [Self; 18] = [
        Self::DeleteStaged,
        Self::DetachStaged,
        Self::TwoNodes,
        Self::UnstageEarly,
        Self::TakeMount,
        Self::Litter,
        Self::DeadAgents,
        Self::NoController,
        Self::NoAttacher,
        Self::Storm,
        Self::NoLease,
        Self::NoListing,
        Self::NoSync,
        Self::SyncOnTop,
        Self::EmptyPool,
        Self::KeepLeftovers,
        Self::TrustClock,
        Self::BelieveBackup,
    ];

    /// The kinds of misfortune without which it cannot be noticed.
    pub fn needs(self) -> &'static [Also] {
        match self {
            Self::TrustClock => &[Also::WrongClocks],
            Self::NoLease => &[Also::Clones],
            Self::BelieveBackup => &[Also::Restores],
            Self::NoListing => &[Also::LostAttachments],
            Self::NoSync => &[Also::LostWrites],
            Self::SyncOnTop => &[Also::LostWrites, Also::Overmounts],
            Self::EmptyPool => &[Also::MissingPools],
            _ => &[],
        }
    }

    /// From which seed on a world that notices it is looked for: some are noticed in few worlds.
    pub fn first_seed(self) -> u64 {
        match self {
            Self::TrustClock => 110,
            _ => 0,
        }
    }

    /// The driver's part in it.
    pub(super) fn of_driver(self) -> DriverFlaw {
        match self {
            Self::NoSync => DriverFlaw::NoSync,
            Self::SyncOnTop => DriverFlaw::SyncOnTop,
            Self::EmptyPool => DriverFlaw::EmptyPool,
            Self::KeepLeftovers => DriverFlaw::KeepLeftovers,
            _ => DriverFlaw::None,
        }
    }

    /// Whether there is a rogue that does it.
    fn has_rogue(self) -> bool {
        matches!(
            self,
            Self::DeleteStaged
                | Self::TrustClock
                | Self::DetachStaged
                | Self::TwoNodes
                | Self::UnstageEarly
                | Self::TakeMount
                | Self::Litter
                | Self::Storm
        )
    }

    /// How the violation begins that it leads to.
    pub fn noticed_as(self) -> &'static str {
        match self {
            Self::None => "",
            Self::DeleteStaged => "deleted while staged",
            Self::DetachStaged | Self::TrustClock | Self::NoLease | Self::BelieveBackup => "detached while staged",
            Self::TwoNodes => "two nodes",
            Self::NoSync | Self::SyncOnTop => "lost writes",
            Self::EmptyPool => "leaked",
            Self::KeepLeftovers => "left in .t",
            Self::UnstageEarly => "published without stage",
            Self::TakeMount => "vanished",
            Self::Litter => "left behind",
            Self::DeadAgents | Self::NoController | Self::NoAttacher | Self::NoListing => "unexplained",
            Self::Storm => "storm",
        }
    }

    /// What a rogue does in a world, for ever.
    pub(super) async fn play(
        self,
        world: &World,
        eyes: &Eyes,
        (model, places): (&Model, &[Place]),
        clock: Arc<dyn Clock>,
    ) {
        let component = world.component("rogue", Fair);
        let client = Process::new(world, &component, 0).context.client;
        let mut rogue = Rogue { client, eyes, model, places, random: world.random("rogue"), heard: None };
        if !self.has_rogue() {
            return std::future::pending().await;
        }
        loop {
            sleep(Duration::from_secs(5)).await;
            match self {
                Self::DeleteStaged => rogue.delete(),
                Self::TrustClock => rogue.detach_by(&*clock),
                Self::DetachStaged => rogue.detach(),
                Self::TwoNodes => rogue.publish_twice(),
                Self::UnstageEarly => rogue.unmount(|mount| mount.ends_with("globalmount")),
                Self::TakeMount => rogue.unmount(|mount| mount.ends_with("mount")),
                Self::Litter => rogue.litter(),
                _ => rogue.write().await,
            }
            eyes.judge();
        }
    }
}

struct Rogue<'a> {
    client: Client,
    eyes: &'a Eyes,
    model: &'a Model,
    places: &'a [Place],
    random: Random,
    /// What the clock showed last.
    heard: Option<Timestamp>,
}

impl Rogue<'_> {
    fn place(&mut self) -> Option<&Place> {
        let places = self.places;
        self.random.pick(places)
    }

    /// DeleteVolume of something that a machine has.
    fn delete(&mut self) {
        let Some(place) = self.place() else { return };
        let held: Vec<String> = held(&place.machine).into_iter().collect();
        let Some(volume) = self.random.pick(&held) else { return };
        if let Some(volume) = self.model.tamper(|state| state.get(volume).cloned()) {
            crate::driver::Onlooker::deletion_called(self.eyes, &volume);
        }
    }

    /// Detaches from a node that was last heard of long ago, as the clock says.
    fn detach_by(&mut self, clock: &dyn Clock) {
        let now = clock.now();
        let heard = *self.heard.get_or_insert(now);
        self.heard = Some(now);
        if now.duration_since(heard) > SignedDuration::from_mins(10) {
            self.detach();
        }
    }

    fn detach(&mut self) {
        let Some(place) = self.place() else { return };
        let (node, held): (String, Vec<String>) =
            (place.machine.name().to_owned(), held(&place.machine).into_iter().collect());
        if let Some(volume) = self.random.pick(&held) {
            self.model.tamper(|state| state.unpublish(volume, &node));
        }
    }

    fn publish_twice(&mut self) {
        let Some(node) = self.place().map(|place| place.machine.name().to_owned()) else { return };
        let volumes: Vec<String> = self.model.volumes().into_iter().map(|volume| volume.id).collect();
        if let Some(volume) = self.random.pick(&volumes) {
            self.model.tamper(|state| state.force_publish(volume, &node));
        }
    }

    fn unmount(&mut self, which: impl Fn(&Path) -> bool) {
        let Some(place) = self.place() else { return };
        let mounts = place.machine.with_kernel(|kernel| kernel.mounts());
        let ours = mounts.0.iter().filter(|mount| shown(mount).is_some() && which(&mount.point));
        let points: Vec<PathBuf> = ours.map(|mount| mount.point.clone()).collect();
        let machine = place.machine.clone();
        if let Some(point) = self.random.pick(&points) {
            let _ = machine.act("a rogue unmounts", |kernel| kernel.unmount(point, Force::No));
        }
    }

    fn litter(&mut self) {
        let Some(place) = self.place() else { return };
        let left = Path::new(ROOT).join("pods/gone/volumes/mount");
        let _ = place.machine.act("a rogue leaves a mount", |kernel| {
            if kernel.mounts().at(&left).is_none() {
                kernel.make_directory(&left, 0o750)?;
                kernel.bind(Path::new("/dev"), &left, Access::ReadWrite)?;
            }
            Ok(())
        });
    }

    async fn write(&mut self) {
        let pods = self.eyes.look_at(|seen| seen.pods.keys().cloned().collect::<Vec<_>>());
        let Some(key) = self.random.pick(&pods).cloned() else { return };
        let again = json!({"metadata": {"labels": {"again": self.random.number().to_string()}}});
        drop(self.client.patch::<Value>(Kind::POD, &key, &Patch::Merge(again)).await);
    }
}
