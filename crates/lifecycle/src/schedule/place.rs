//! Which node a pod goes to, and how each of its claims gets its volume there (SCHED-5.1 to SCHED-5.5).
//!
//! Every node is asked in upstream's order: the node itself, pods that share a claim, limits, volumes, zones. The first
//! that refuses gives its reasons. Of the nodes that are left, the one where the fewest attempts have failed is taken, then
//! the one with the best storage score, the fewest volumes, the fewest pods, and the smallest name: the same state always
//! gives the same node.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use api::{AccessMode, Class, Key, Node, Pod, Revision, Uid, Word};

use super::book::{Assignment, Book, Stage, Step};
use super::capacity::Rooms;
use super::draft::{self, Found, Reserved};
use super::refusal::{Refusal, Tally};
use super::wants::{self, Hold, State, Unready, Want};
use super::{Cluster, Moment, limits, node};
use crate::decision::{Decision, Notice, Reason, Standing};
use crate::migration;

/// What to do for a pod without a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Keep the node and the means for it, then pursue that. No write by itself.
    Assume(Assignment),
    /// Take the mark for a node off a claim, which leads nowhere. With [`Why::NodeGone`] the server has to say first that
    /// the node is gone.
    Unpin { claim: Key, uid: Uid, revision: Revision, node: Word, why: Why },
}

/// Why a claim is no longer meant for a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The node does not exist, and nothing was made for the claim (CTRL-14.29).
    NodeGone,
    /// The pod's other claims cannot have their volumes there, and elsewhere all could (CTRL-14.23).
    Apart,
}

/// Why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Because {
    Chosen {
        node: Word,
    },
    /// A claim is not as it has to be, so no node was looked at.
    Unready {
        why: Unready,
        nodes: usize,
    },
    Refused(Tally),
    LeadsNowhere {
        claim: Box<str>,
        node: Word,
    },
}

pub type Verdict = Decision<Action, Because>;

/// Says which node a pod may have.
pub fn place(pod: &Pod, cluster: &dyn Cluster, book: &Book, now: Moment) -> Verdict {
    let nodes = cluster.nodes();
    let wants = match wants::wants(pod, cluster, book) {
        Ok(wants) => wants,
        Err(why) => return Decision::rest(Because::Unready { why, nodes: nodes.len() }),
    };
    let look = Look::new(pod, &wants, cluster, book, now);
    match look.choose(&nodes) {
        Ok((node, steps)) => {
            let (uid, key) = (pod.meta.uid.clone(), pod.meta.key.clone());
            let assignment =
                Assignment { pod: key, uid, node: node.clone(), steps, since: now, stage: Stage::Preparing };
            Decision::act(Because::Chosen { node }, Action::Assume(assignment))
        }
        Err(tally) => match unpin(&look, &nodes) {
            Some((claim, node, action)) => Decision::act(Because::LeadsNowhere { claim, node }, action),
            None => Decision::rest(Because::Refused(tally)),
        },
    }
}

/// One look at the cluster for one pod.
struct Look<'a> {
    pod: &'a Pod,
    wants: &'a [Want],
    cluster: &'a dyn Cluster,
    book: &'a Book,
    /// By class; only those whose driver says how much room it has.
    rooms: BTreeMap<Word, Rooms>,
    taken: BTreeSet<Word>,
    in_use: bool,
    now: Moment,
}

impl<'a> Look<'a> {
    fn new(pod: &'a Pod, wants: &'a [Want], cluster: &'a dyn Cluster, book: &'a Book, now: Moment) -> Self {
        let in_use = wants.iter().any(|want| exclusive(want) && used_by_another(pod, want, cluster, book));
        let (rooms, taken) = (BTreeMap::new(), book.taken());
        let mut look = Self { pod, wants, cluster, book, rooms, taken, in_use, now };
        for want in wants {
            if let State::Delayed { class, .. } = &want.state {
                look.measure(class);
            }
        }
        look
    }

    /// SCHED-5.3: room counts only if the driver says that it tells.
    fn measure(&mut self, class: &Class) {
        let name = Word::new(class.name());
        let driver = migration::driver_of(&class.provisioner).unwrap_or(&class.provisioner);
        let tells = self.cluster.driver(driver).is_some_and(|driver| driver.spec.storage_capacity == Some(true));
        if tells && !self.rooms.contains_key(&name) {
            let rooms = Rooms::new(&name, self.cluster, self.book.ledger(), self.now);
            self.rooms.insert(name, rooms);
        }
    }

    fn choose(&self, nodes: &[Arc<Node>]) -> Result<(Word, Vec<Step>), Tally> {
        let mut tally = Tally::default();
        let mut found = Vec::new();
        for node in nodes {
            match self.ask(node) {
                Ok(offer) => found.push((node, offer)),
                Err(refusals) => tally.add(refusals),
            }
        }
        let crowd = |node: &Node| {
            let pods = self.cluster.pods_on(node.name());
            let meant = self.book.meant_for(node.name());
            let (more, volumes) = meant.fold((0, 0), |(pods, all), one| (pods + 1, all + one.steps.len()));
            (pods.iter().map(|pod| pod.volumes.len()).sum::<usize>() + volumes, pods.len() + more)
        };
        let best = found.into_iter().min_by_key(|(node, offer)| {
            let (volumes, pods) = crowd(node);
            let failures = self.book.failures(self.wants.iter().map(|want| want.claim.uid()), node.name());
            (failures, Reverse(offer.score), volumes, pods, Word::new(node.name()))
        });
        best.map(|(node, offer)| (Word::new(node.name()), offer.steps)).ok_or(tally)
    }

    /// All questions to one node; the first that it fails gives its reasons.
    fn ask(&self, place: &Node) -> Result<Found, Vec<Refusal>> {
        node::admits(place, self.pod).map_err(|refusal| vec![refusal])?;
        if self.in_use {
            return Err(vec![Refusal::ClaimInUse]);
        }
        limits::within(place, self.wants, self.cluster, self.book).map_err(|refusal| vec![refusal])?;
        let found = self.volumes(place)?;
        let mut bound = self.wants.iter().filter_map(|want| match &want.state {
            State::Bound { volume } => volume.as_ref(),
            State::Delayed { .. } => None,
        });
        match bound.all(|volume| node::in_zone(place, volume)) {
            true => Ok(found),
            false => Err(vec![Refusal::Zone]),
        }
    }

    fn volumes(&self, place: &Node) -> Result<Found, Vec<Refusal>> {
        let reserved = Reserved { rooms: &self.rooms, taken: &self.taken, shelf: &self.book.shelf };
        draft::volumes(place, self.wants, &reserved)
    }
}

/// VolumeRestrictions: only one pod may have it. Claims made for a pod are that pod's anyway.
fn exclusive(want: &Want) -> bool {
    want.claim.access.contains(AccessMode::ReadWriteOncePod)
}

fn used_by_another(pod: &Pod, want: &Want, cluster: &dyn Cluster, book: &Book) -> bool {
    let other = |user: &Pod| user.meta.uid != pod.meta.uid && user.scheduled();
    let planned = book.planned_for(want.claim.key()).any(|user| *user != pod.meta.key);
    planned || cluster.users(want.claim.key()).iter().any(|user| other(user))
}

/// A mark for a node that leads nowhere. Nothing was made for its claim, and no other pod counts on it.
fn unpin(look: &Look<'_>, nodes: &[Arc<Node>]) -> Option<(Box<str>, Word, Action)> {
    let pinned = |want: &&Want| {
        let alone = || {
            let others = look.cluster.users(want.claim.key());
            others.iter().all(|user| user.meta.uid == look.pod.meta.uid)
        };
        let State::Delayed { hold: Hold::Node(_), .. } = &want.state else { return false };
        want.claim.selected_node().is_some() && look.book.planned_for(want.claim.key()).next().is_none() && alone()
    };
    let pins: Vec<&Want> = look.wants.iter().filter(pinned).collect();
    let node_of = |want: &Want| want.claim.selected_node().map(Word::new);
    let place_of = |want: &Want| node_of(want).and_then(|node| look.cluster.node(&node));
    let apart = |want: &Want| place_of(want).is_some_and(|place| look.ask(&place).is_err_and(|why| of_volumes(&why)));
    let (want, why) = match pins.iter().find(|want| place_of(want).is_none()) {
        Some(want) => (*want, Why::NodeGone),
        None => {
            let want = *pins.iter().find(|want| apart(want))?;
            free_of_pins(look, nodes).then_some((want, Why::Apart))?
        }
    };
    let (claim, node) = (&want.claim.meta, node_of(want)?);
    let (key, uid, revision) = (claim.key.clone(), claim.uid.clone(), claim.revision);
    Some((key.name().into(), node.clone(), Action::Unpin { claim: key, uid, revision, node, why }))
}

/// Whether a node is refused for where the volumes of the other claims are. Whoever shuts a node may open it again.
fn of_volumes(refusals: &[Refusal]) -> bool {
    let of_volumes = |refusal: &Refusal| {
        matches!(refusal, Refusal::VolumeElsewhere | Refusal::NothingToBind | Refusal::NoRoom | Refusal::Zone)
    };
    refusals.iter().all(of_volumes)
}

/// Whether the pod would find a node if its claims were meant for none.
fn free_of_pins(look: &Look<'_>, nodes: &[Arc<Node>]) -> bool {
    let mut wants = look.wants.to_vec();
    for want in &mut wants {
        if let State::Delayed { hold, .. } = &mut want.state
            && matches!(hold, Hold::Node(_))
        {
            *hold = Hold::Nothing;
        }
    }
    Look::new(look.pod, &wants, look.cluster, look.book, look.now).choose(nodes).is_ok()
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chosen { node } => write!(f, "the pod goes to node {node:?} once its volumes are there"),
            Self::Unready { why, nodes } => write!(f, "0/{nodes} nodes are available: {why}."),
            Self::Refused(tally) => tally.fmt(f),
            Self::LeadsNowhere { claim, node } => {
                write!(f, "claim {claim:?} is meant for node {node:?}, where the pod cannot go, so it is freed")
            }
        }
    }
}

impl Reason for Because {
    fn code(&self) -> &'static str {
        match self {
            Self::Chosen { .. } => "chosen",
            Self::Unready { .. } => "unready",
            Self::Refused(_) => "refused",
            Self::LeadsNowhere { .. } => "leads_nowhere",
        }
    }

    fn standing(&self) -> Standing {
        match self {
            Self::Chosen { .. } | Self::LeadsNowhere { .. } => Standing::Moving,
            // An ephemeral claim is on its way, and an immediate one is somebody else's to bind.
            Self::Unready { why: Unready::NotYetMade { .. } | Unready::Immediate, .. } => Standing::Waiting,
            Self::Unready { .. } | Self::Refused(_) => Standing::Stuck,
        }
    }

    fn notice(&self) -> Option<Notice> {
        match self {
            Self::Unready { .. } | Self::Refused(_) => Some(Notice::warning("FailedScheduling", self.to_string())),
            Self::Chosen { .. } | Self::LeadsNowhere { .. } => None,
        }
    }
}
