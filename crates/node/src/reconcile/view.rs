//! What is known about one volume at this moment.

use std::sync::Arc;

use api::{AccessMode, Attachment, Claim, CsiDriver, Key, Uid};
use csi::v1::node_service_capability::rpc::Type as NodeRpc;
use lifecycle::attach::attachment_name;
use lifecycle::node::expand::{Growth, growth};
use lifecycle::node::selinux::Label;
use lifecycle::node::slots;
use lifecycle::node::volume::Attachment as Attached;
use lifecycle::node::{
    Alone, Attach, Because, Due, Held, Holder, Observed, Removal, Sharing, Staging, Step, Wanted, Wish as Want,
};
use runtime::csi::Link;
use tokio::time::Instant;

use crate::Agent;
use crate::actual::{Entry, PodEntry, Shape, Told, VolumeId, What};
use crate::agent::World;
use crate::csi::everywhere;
use crate::desired::Wish;
use crate::layout::{Name, Plugin};

/// One look at a volume.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) what: What,
    /// As it stood; `None` if nothing of it is here yet.
    pub(crate) entry: Option<Entry>,
    pub(crate) wishes: Vec<Arc<Wish>>,
    pub(crate) wanted: Vec<Wanted>,
    holders: Vec<Holder>,
    attach: Needs,
    driver: Option<Because>,
    alone: Alone,
    /// When the machine may take the volume away without its driver.
    pub(crate) alone_at: Option<Instant>,
    staging: Staging,
    removal: Removal,
    sharing: Sharing,
}

/// What attaching needs, with its texts.
#[derive(Debug)]
enum Needs {
    Nothing,
    Attach { reported: bool, listed: bool, attachment: Found },
}

#[derive(Debug)]
enum Found {
    Missing,
    Waiting,
    Going,
    Refused(Box<str>),
    Full(Box<str>),
    Attached,
}

impl View {
    pub(crate) fn observed(&self) -> Observed<'_> {
        let attach = match &self.attach {
            Needs::Nothing => Attach::NotNeeded,
            Needs::Attach { reported, listed, attachment } => Attach::Needed {
                reported: *reported,
                listed: *listed,
                attachment: match attachment {
                    Found::Missing => Attached::Missing,
                    Found::Waiting => Attached::Waiting,
                    Found::Going => Attached::Going,
                    Found::Refused(message) => Attached::Refused(message),
                    Found::Full(message) => Attached::Full(message),
                    Found::Attached => Attached::Attached,
                },
            },
        };
        Observed {
            attach,
            driver: self.driver.clone(),
            alone: self.alone,
            staging: self.staging,
            device: self.device(),
            removal: self.removal,
            sharing: self.sharing,
            context: self.entry.as_ref().and_then(|entry| entry.context.as_ref()),
            wanted: &self.wanted,
            holders: &self.holders,
        }
    }

    pub(crate) fn device(&self) -> Held {
        self.entry.as_ref().map_or(Held::No, |entry| entry.device)
    }

    /// What a pod has of it.
    pub(crate) fn held(&self, pod: &Uid) -> Held {
        self.entry.as_ref().and_then(|entry| entry.pods.get(pod)).map_or(Held::No, |pod| pod.held)
    }

    /// The SELinux context that a pod has the volume with, or gets it with.
    pub(crate) fn context(&self, pod: &Uid) -> Option<&Label> {
        self.wanted.iter().find(|wanted| wanted.pod == *pod)?.context.as_ref()
    }

    /// Whether the volume is known to be one that a driver took over from an in-tree plugin.
    pub(crate) fn is_migrated(&self) -> bool {
        self.wishes.iter().any(|wish| wish.migrated)
    }

    /// The wish that a step is done for.
    pub(crate) fn wish(&self, step: &Step) -> Option<&Arc<Wish>> {
        let pod = step.pod()?;
        self.wishes.iter().find(|wish| wish.pod.uid() == pod)
    }

    /// What users call it: the PersistentVolume, or the pod's volume.
    pub(crate) fn name(&self, step: &Step) -> String {
        let held = || step.pod().and_then(|pod| self.entry.as_ref()?.pods.get(pod)).map(|held| held.spec.to_string());
        let wished = || self.wish(step).or(self.wishes.first()).map(|wish| wish.spec.to_string());
        held().or_else(wished).unwrap_or_else(|| match &self.what {
            What::Csi { handle, .. } => handle.to_string(),
            What::InTree { name, .. } | What::LocalDevice { name } => name.to_string(),
        })
    }

    /// Whether what is taken away now is taken away without the driver.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone == Alone::Allowed && self.driver.is_some()
    }

    pub(crate) fn next_republish(&self) -> Option<Instant> {
        self.entry.as_ref()?.pods.values().filter_map(|pod| pod.republish).min()
    }
}

impl Agent {
    /// `None` if nobody wants the volume and nothing of it is here.
    pub(crate) fn view(&self, id: &VolumeId) -> Option<View> {
        let world = self.world();
        let entry = world.actual.get(id).cloned();
        let mut wishes = world.desired.wishes(id);
        let here = entry.as_ref().map(|entry| entry.what.clone());
        let what = here.or_else(|| wishes.first().map(|wish| wish.what.clone()))?;
        // One volume of a driver may come by another PersistentVolume, in another mode or under another name. All that is
        // here of it goes, from where it is, before anything of the other comes.
        wishes.retain(|wish| wish.what == what);
        // A pod may have the volume under the name of a PersistentVolume that was replaced: it is unpublished by that name first.
        let renamed = take_renamed(&mut wishes, entry.as_ref());
        let reported = world.reported.contains(id.as_str());
        let removal = if world.known { Removal::Allowed } else { Removal::NotYet };
        let holders = holders(&world, entry.as_ref(), &wishes, &renamed);
        drop(world);
        let now = Instant::now();
        let wanted = wishes.iter().map(|wish| self.wanted(wish, entry.as_ref(), now)).collect();
        let driver = self.driver_state(&what);
        let alone_at = self.alone_at(&what, driver.is_some(), now);
        let one_pod = |wish: &Arc<Wish>| wish.access.iter().eq([AccessMode::ReadWriteOncePod]);
        Some(View {
            attach: self.needs(id, &what, reported),
            driver,
            alone: if alone_at.is_some_and(|at| at <= now) { Alone::Allowed } else { Alone::No },
            alone_at,
            staging: self.staging(&what),
            removal,
            sharing: if wishes.iter().any(one_pod) { Sharing::OnePod } else { Sharing::Many },
            what,
            entry,
            wishes,
            wanted,
            holders,
        })
    }

    fn needs(&self, id: &VolumeId, what: &What, reported: bool) -> Needs {
        let What::Csi { driver, handle, shape } = what else { return Needs::Nothing };
        if *shape == Shape::Inline || self.driver_unread(driver).is_some() || !self.attaches(driver.as_str()) {
            return Needs::Nothing;
        }
        let node = self.nodes.get(&Key::cluster(&self.options.node));
        let name = attachment_name(driver.as_str(), handle, &self.options.node);
        let attachment = match self.context.cache::<Attachment>().get(&Key::cluster(&name)) {
            None => Found::Missing,
            Some(found) if found.meta.is_deleting() => Found::Going,
            Some(found) if found.attached => Found::Attached,
            Some(found) => match &found.attach_error {
                Some(error) if error.code == Some(slots::FULL) => Found::Full(error.message.clone()),
                Some(error) => Found::Refused(error.message.clone()),
                None => Found::Waiting,
            },
        };
        let listed = node.is_some_and(|node| node.reports_attached(id.as_str()));
        Needs::Attach { reported, listed, attachment }
    }

    /// Why the volume's driver cannot be asked, if it cannot.
    pub(crate) fn driver_state(&self, what: &What) -> Option<Because> {
        let name = what.driver()?;
        let missing = || Because::DriverMissing { driver: name.as_str().into() };
        let Some(registered) = self.drivers.get(name.as_str()) else { return Some(missing()) };
        match &*registered.driver.link().borrow() {
            Link::Up(_) => self.driver_unread(name),
            Link::Down { why, .. } => {
                Some(Because::DriverDown { driver: name.as_str().into(), why: why.as_str().into() })
            }
        }
    }

    /// Nothing is done on terms that are only guessed: without its object a driver would count as one that attaches, gets
    /// no tokens and lets the agent change owners (NODE-31.21).
    fn driver_unread(&self, driver: &Name) -> Option<Because> {
        let read = self.context.cache::<CsiDriver>().is_synced();
        (!read).then(|| Because::DriverUnread { driver: driver.as_str().into() })
    }

    /// When the time is over that the operator gives to the volume's driver, if it is away and he gives one
    /// (NODE-31.25).
    fn alone_at(&self, what: &What, away: bool, now: Instant) -> Option<Instant> {
        let (after, driver) = (self.options.alone_after?, what.driver()?);
        let mut world = self.world();
        if !away {
            world.away.remove(driver.as_str());
            return None;
        }
        Some(*world.away.entry(driver.as_str().into()).or_insert(now) + after)
    }

    fn staging(&self, what: &What) -> Staging {
        let driver = match what {
            What::Csi { driver, shape: Shape::Filesystem | Shape::Block { .. }, .. } => driver,
            What::InTree { plugin: Plugin::Local, .. } => return Staging::Needed,
            What::Csi { shape: Shape::Inline, .. } | What::InTree { .. } | What::LocalDevice { .. } => {
                return Staging::NotNeeded;
            }
        };
        let facts = self.drivers.get(driver.as_str()).and_then(|registered| registered.driver.facts());
        match facts.is_none_or(|facts| facts.capabilities.on_node(NodeRpc::StageUnstageVolume)) {
            true => Staging::Needed,
            false => Staging::NotNeeded,
        }
    }

    fn wanted(&self, wish: &Wish, entry: Option<&Entry>, now: Instant) -> Wanted {
        let pod = wish.pod.uid();
        let held = entry.and_then(|entry| entry.pods.get(pod));
        let due = match held {
            Some(_) if entry.is_some_and(|entry| self.grown(wish, entry)) => Due::Expand,
            Some(held) if held.republish.is_some_and(|at| at <= now) => Due::Republish,
            Some(_) | None => Due::Nothing,
        };
        // What a pod has goes on as it is: a setting that changed counts for those who come.
        let context = match (entry, held) {
            (Some(entry), Some(_)) => entry.context.clone(),
            (_, None) | (None, _) => wish.selinux.mount.clone(),
        };
        Wanted { pod: pod.clone(), held: held.map_or(Held::No, |held| held.held), due, context }
    }

    /// Whether the volume has become larger than its filesystem, and it is the node's turn (NODE-6.2, NODE-18).
    fn grown(&self, wish: &Wish, entry: &Entry) -> bool {
        let (Some(capacity), Some(size)) = (&wish.capacity, &entry.size) else { return false };
        let larger = !wish.read_only && size.bytes() > 0 && capacity > size;
        if !larger || entry.refused.as_ref().is_some_and(|refused| refused >= capacity) {
            return false;
        }
        let claim = wish.claim.as_ref().and_then(|(key, _)| self.context.cache::<Claim>().get(key));
        claim.is_some_and(|claim| growth(&claim, capacity, everywhere(&claim)) != Growth::NotAllowed)
    }

    /// What the driver's object says.
    pub(crate) fn driver_object(&self, driver: &str) -> Option<Arc<CsiDriver>> {
        self.context.cache::<CsiDriver>().get(&Key::cluster(driver))
    }
}

/// Takes out the wishes of pods for which the volume may be published under another name than they wish it by now. A pod that
/// is known to have the volume keeps it: only an uncertain publish would be repeated at another path.
fn take_renamed(wishes: &mut Vec<Arc<Wish>>, entry: Option<&Entry>) -> Vec<Uid> {
    let is_renamed = |wish: &Arc<Wish>| {
        let held = entry.and_then(|entry| entry.pods.get(wish.pod.uid()));
        held.is_some_and(|held| held.held != Held::Yes && held.spec != wish.spec)
    };
    let renamed = wishes.iter().filter(|wish| is_renamed(wish)).map(|wish| wish.pod.uid().clone()).collect();
    wishes.retain(|wish| !is_renamed(wish));
    renamed
}

fn holders(world: &World, entry: Option<&Entry>, wishes: &[Arc<Wish>], renamed: &[Uid]) -> Vec<Holder> {
    let wish = |pod: &Uid, held: &PodEntry| {
        if wishes.iter().any(|wish| wish.pod.uid() == pod) {
            return Want::Wanted;
        }
        if renamed.contains(pod) && held.told == Told::Maybe {
            // Containers may use the mount that the pod was given.
            return Want::Unclear;
        }
        match world.desired.pod(pod) {
            // A claim that is not there at the moment may be this volume's, and the pod may be at work with it.
            Some(desired) if held.told == Told::Maybe && desired.volumes.values().any(Result::is_err) => Want::Unclear,
            Some(_) | None => Want::Unwanted,
        }
    };
    let pods = entry.into_iter().flat_map(|entry| &entry.pods);
    pods.map(|(pod, held)| Holder { pod: pod.clone(), held: held.held, wish: wish(pod, held) }).collect()
}
