//! One node: what it is told to have, and what leaves it (ATTACH-D6 to ATTACH-D10, ATTACH-6.7).
//!
//! The controller first tells the node that a volume is not attached any more, then sees that the node does not use it, and
//! only then lets it go. The node says first what it uses, and then looks at what is attached. Of two who first speak and
//! then look, at least one sees the other. The answer to the controller's own write shows the node's word as of that
//! write, so that speaking and looking are one request.
//!
//! # Invariants
//! 1. Nothing is detached from a node whose latest state, read from the server after the last report in the same turn,
//!    still reports it (CTRL-I13, CTRL-I14).
//! 2. A report is the whole list, written at the revision it was computed from (CTRL-14.33), and only what is confirmed
//!    by its attachment is in it (CTRL-14.50a).
//! 3. Whatever is not a CSI volume's is left in the list as it is.
//! 4. Only good news waits for more of it ([`Pace::Soon`]): what takes a volume off the list, or comes before a detach, is
//!    written at once.

use std::collections::BTreeMap;

use api::{AttachedVolume, Attachment, Node};

use super::hold::{Held, Hold, Need, Rules, Telling, Usage, judge};
use super::names::{attachment_name, parse_unique};
use crate::Lookup;

/// A node and all attachments to it.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    pub node: Lookup<'a, Node>,
    pub freshness: Freshness,
    pub attachments: &'a [Seen<'a>],
    pub rules: Rules,
}

/// An attachment to the node, and the unique name of its volume where somebody wants it.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    pub attachment: &'a Attachment,
    pub need: Need,
    pub unique: Option<&'a str>,
}

/// How the node's state was learnt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// From a cache, which may lag.
    Cached,
    /// From the server in this turn, after the last report.
    Live,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    ReadNode,
    /// Write `volumesAttached`, all of it.
    Report {
        list: Vec<AttachedVolume>,
        pace: Pace,
    },
    /// Delete the attachment at this place in the view.
    Detach {
        at: usize,
        hold: Hold,
    },
}

/// Whether a report may wait for a moment, so that what is attached meanwhile is in the same write (CTRL-14.43).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    Now,
    /// It only says what was attached, and more is on its way to the node.
    Soon,
}

/// What to do, and why each attachment stays or goes, in the view's order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Plan {
    pub holds: Vec<Hold>,
    pub actions: Vec<Action>,
}

/// Decides the next step for a node.
pub fn decide(view: &View<'_>) -> Plan {
    let listed = Listed::of(view.node);
    let judged = view.attachments.iter().map(|seen| {
        let usage = match listed.used.contains_key(seen.attachment.name()) {
            true => Usage::Listed,
            false => Usage::NotListed,
        };
        judge(&Held { attachment: seen.attachment, need: seen.need, node: view.node, usage, rules: view.rules })
    });
    let holds: Vec<Hold> = judged.collect();
    let actions = match view.node {
        Lookup::NotCached if view.attachments.is_empty() => Vec::new(),
        Lookup::NotCached => vec![Action::ReadNode],
        Lookup::Absent => detaches(&holds),
        // A node that attaches by itself reports by itself.
        Lookup::Found(node) if !node.attach_is_managed() => Vec::new(),
        Lookup::Found(node) => match report(node, &listed, view.attachments, &holds) {
            Some(list) => {
                let pace = pace(node, &list, view.attachments, &holds);
                vec![Action::Report { list, pace }]
            }
            None if holds.iter().any(Hold::goes) && view.freshness == Freshness::Cached => vec![Action::ReadNode],
            None => detaches(&holds),
        },
    };
    Plan { holds, actions }
}

fn detaches(holds: &[Hold]) -> Vec<Action> {
    let going = holds.iter().enumerate().filter(|(_, hold)| hold.goes());
    going.map(|(at, hold)| Action::Detach { at, hold: hold.clone() }).collect()
}

/// What the node is to be told, if that is not what it was told last.
fn report(node: &Node, listed: &Listed<'_>, attachments: &[Seen<'_>], holds: &[Hold]) -> Option<Vec<AttachedVolume>> {
    let told: BTreeMap<&str, &str> = node.attached.iter().map(|held| (&*held.name, &*held.device_path)).collect();
    let mut list: BTreeMap<&str, &str> =
        told.iter().filter(|(name, _)| parse_unique(name).is_none()).map(|(name, path)| (*name, *path)).collect();
    for (seen, hold) in attachments.iter().zip(holds).filter(|(seen, _)| seen.attachment.attached) {
        let Some(unique) = seen.unique.or_else(|| listed.unique(seen.attachment)) else { continue };
        let tell = match hold.telling() {
            Telling::Told => true,
            Telling::AsBefore => told.contains_key(unique),
            Telling::NotTold => false,
        };
        if tell {
            // CSI volumes have no path; one that stands there belongs to this volume on this node (CTRL-14.32).
            list.insert(unique, told.get(unique).copied().unwrap_or_default());
        }
    }
    let entry = |(name, path): (&str, &str)| AttachedVolume { name: name.into(), device_path: path.into() };
    (list != told).then(|| list.into_iter().map(entry).collect())
}

/// A pod waits for what is new on the list, and a detach for what is not on it any more.
fn pace(node: &Node, list: &[AttachedVolume], attachments: &[Seen<'_>], holds: &[Hold]) -> Pace {
    // The list is in order of its names.
    let stays = |held: &AttachedVolume| list.binary_search_by(|kept| kept.name.cmp(&held.name)).is_ok();
    let only_grows = node.attached.iter().all(stays);
    let mut coming = attachments.iter().zip(holds).filter(|(seen, _)| is_coming(seen.attachment));
    match only_grows && !holds.iter().any(Hold::goes) && coming.any(|(_, hold)| *hold == Hold::Wanted) {
        true => Pace::Soon,
        false => Pace::Now,
    }
}

/// Whether an attacher is at work on it, as far as anybody knows.
fn is_coming(attachment: &Attachment) -> bool {
    !attachment.attached && attachment.attach_error.is_none() && !attachment.meta.is_deleting()
}

/// The volumes that a node's status names, by the attachments they make here. Computed once, since names are hashes.
#[derive(Debug, Default)]
struct Listed<'a> {
    used: BTreeMap<String, &'a str>,
    attached: BTreeMap<String, &'a str>,
}

impl<'a> Listed<'a> {
    fn of(node: Lookup<'a, Node>) -> Self {
        let Lookup::Found(node) = node else { return Self::default() };
        let named = |unique: &'a str| {
            let (driver, handle) = parse_unique(unique)?;
            Some((attachment_name(driver, handle, node.name()), unique))
        };
        Self {
            used: node.in_use.iter().filter_map(|unique| named(unique)).collect(),
            attached: node.attached.iter().filter_map(|held| named(&held.name)).collect(),
        }
    }

    /// The unique name of an attachment that nobody wants: the node may know it. If it does not, it cannot ask for it.
    fn unique(&self, attachment: &Attachment) -> Option<&'a str> {
        self.used.get(attachment.name()).or_else(|| self.attached.get(attachment.name())).copied()
    }
}
