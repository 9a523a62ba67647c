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

use super::days::Place;
use super::witness::{Eyes, ROOT, held, shown};
use crate::driver::Model;
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
}

impl Mutation {
    /// All that are wrong and noticed soon; [`Mutation::TrustClock`] has not been noticed yet.
    pub const ALL: [Self; 10] = [
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
    ];

    /// How the violation begins that it leads to.
    pub fn noticed_as(self) -> &'static str {
        match self {
            Self::None => "",
            Self::DeleteStaged => "deleted while staged",
            Self::DetachStaged | Self::TrustClock => "detached while staged",
            Self::TwoNodes => "two nodes",
            Self::UnstageEarly => "published without stage",
            Self::TakeMount => "vanished",
            Self::Litter => "left behind",
            Self::DeadAgents | Self::NoController | Self::NoAttacher => "unexplained",
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
        if matches!(self, Self::None | Self::DeadAgents | Self::NoController | Self::NoAttacher) {
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
