//! Whether somebody serves a provisioner's name: CSIDriver, CSINodes, the lease of its leader, and what it said last.

use api::{Kind, Lease, Meta};

use super::text::said;
use super::{Finding, Picture, Subject, Trail};
use crate::outcome::{Call, Code};

/// How long after its end a lease still counts: its holder's clock may differ from ours.
const GRACE: i64 = 30;

/// Who said something within so many seconds is taken to be running: as long as provisioners wait at most between two tries.
const LATELY: i64 = 5 * 60;

/// Leases under which a binder runs.
const BINDERS: [&str; 2] = ["kube-controller-manager", "orlop-controllers"];

/// Events that tell of a call that failed.
const FAILURES: [&str; 2] = ["ProvisioningFailed", "VolumeFailedDelete"];

/// The binder signs its events with this name. It makes no calls, and what it says is decided anew from the picture.
const BINDER: &str = "persistentvolume-controller";

/// What a lease says.
pub(super) enum Leads<'a> {
    Now(&'a Lease),
    /// Nobody holds it, or its holder has not renewed it in time.
    Before(&'a Lease),
    /// There is none: without leader election there never is.
    NoLease,
}

fn newest<'a>(picture: &'a Picture, is: impl Fn(&Lease) -> bool) -> Leads<'a> {
    let lease = picture.leases.items().iter().filter(|lease| is(lease)).max_by_key(|lease| lease.renewed);
    let Some(lease) = lease else { return Leads::NoLease };
    let ends = lease.renewed.map(|renewed| renewed.0.saturating_add(lease.seconds).saturating_add(GRACE));
    match ends {
        Some(ends) if ends >= picture.now.0 && !lease.holder.is_empty() => Leads::Now(lease),
        _ => Leads::Before(lease),
    }
}

pub(super) fn binder(picture: &Picture) -> Leads<'_> {
    newest(picture, |lease| BINDERS.contains(&lease.meta.key.name()))
}

/// A name in the letters that names of leases have, as sidecars make it.
fn in_lease(name: &str) -> String {
    let letter = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
    name.chars().map(letter).collect()
}

pub(super) fn describe(picture: &Picture, lease: &Lease) -> String {
    let renewed = match lease.renewed {
        Some(renewed) => format!("renewed {} ago", picture.age(renewed)),
        None => "never renewed".to_owned(),
    };
    match &*lease.holder {
        "" => format!("lease {} is held by nobody, {renewed}", lease.meta.key),
        holder => format!("lease {} is held by {holder:?}, {renewed}", lease.meta.key),
    }
}

/// Seconds since a lease was renewed; since it was made, if it never was.
pub(super) fn silence(picture: &Picture, lease: &Lease) -> i64 {
    picture.now.0.saturating_sub(lease.renewed.unwrap_or(lease.meta.created).0)
}

/// Leases that have the driver's name in theirs, as sidecars beside a provisioner name them.
pub(super) fn sidecars(picture: &Picture, driver: &str) -> Vec<String> {
    let plain = in_lease(driver);
    let of_driver = picture.leases.items().iter().filter(|lease| {
        let lock = in_lease(lease.meta.key.name());
        lock != plain && lock.contains(&plain)
    });
    of_driver.map(|lease| describe(picture, lease)).collect()
}

/// What can be seen of a provisioner, and what follows from it. `about` is the claim or volume that waits for it.
pub(super) fn look(trail: &mut Trail<'_>, name: &str, about: (Kind, &Meta)) {
    let picture = trail.picture;
    let plain = in_lease(name);
    let leads = newest(picture, |lease| in_lease(lease.meta.key.name()) == plain);
    let driver = picture.drivers.items().iter().any(|driver| driver.meta.key.name() == name);
    let nodes = picture.csi_nodes.items();
    let with = nodes.iter().filter(|node| node.driver(name).is_some()).count();
    let spoke =
        picture.events.items().iter().filter(|event| event.about.is(about.0, about.1) && is_from(&event.by, name));
    let spoke = spoke.max_by_key(|event| event.last);
    let lately = spoke.is_some_and(|event| picture.now.0.saturating_sub(event.last.0) <= LATELY);
    let mut evidence = Vec::new();
    match &leads {
        Leads::Now(lease) | Leads::Before(lease) => evidence.push(describe(picture, lease)),
        // Who has just spoken needs neither lease nor CSIDriver to be believed.
        Leads::NoLease if picture.leases.is_seen() && !lately => evidence.push(format!("no lease is named {plain:?}")),
        Leads::NoLease => {}
    }
    if picture.drivers.is_seen() && (driver || !lately) {
        evidence.push(format!("there is {} CSIDriver {name:?}", if driver { "a" } else { "no" }));
    }
    if picture.csi_nodes.is_seen() && (with > 0 || !lately) {
        evidence.push(format!("{with} of {} nodes have registered the driver", nodes.len()));
    }
    let sidecars = sidecars(picture, name);
    let known = driver || with > 0 || spoke.is_some() || !sidecars.is_empty();
    evidence.extend(sidecars.into_iter().map(|lease| format!("another sidecar of the driver: {lease}")));
    // A failure is told by itself.
    let quiet = spoke.filter(|event| !FAILURES.contains(&event.reason.as_str()));
    evidence.extend(quiet.map(|event| said(picture, event)));
    let all_seen = picture.drivers.is_seen() && picture.csi_nodes.is_seen() && picture.leases.is_seen();
    let name: Box<str> = name.into();
    let finding = match leads {
        Leads::Now(_) => Finding::ProvisionerRuns { name: name.clone() },
        Leads::Before(lease) => {
            let seconds = silence(picture, lease);
            Finding::ProvisionerSilent { name: name.clone(), lease: lease.meta.key.to_string().into(), seconds }
        }
        Leads::NoLease if lately => Finding::ProvisionerRuns { name: name.clone() },
        Leads::NoLease if !known && all_seen => Finding::ProvisionerAbsent { name: name.clone() },
        Leads::NoLease => Finding::ProvisionerUnseen { name: name.clone() },
    };
    trail.find(Subject::provisioner(&name), &finding, evidence);
}

/// Provisioners sign their events with their name, then host and a number.
fn is_from(by: &str, name: &str) -> bool {
    by.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
}

/// The last call that failed, as an event tells of it; none if one that succeeded was told of later.
pub(super) fn last_call(picture: &Picture, call: Call, about: (Kind, &Meta)) -> Option<(Finding, String)> {
    let event = picture.last_event(about.0, about.1, &FAILURES).filter(|event| event.by != BINDER)?;
    let later = picture.last_event(about.0, about.1, &["ProvisioningSucceeded"]);
    if later.is_some_and(|later| later.last > event.last) {
        return None;
    }
    let (code, message) = status(&event.message);
    Some((Finding::CallFailed { call, code, message: message.into() }, said(picture, event)))
}

/// A provisioner's message without the class, which the claim names anyway.
fn bare(message: &str) -> &str {
    let rest = message.strip_prefix("failed to provision volume with StorageClass ");
    rest.and_then(|rest| rest.split_once(": ")).map_or(message, |(_, why)| why)
}

/// A gRPC status in a message: `rpc error: code = Internal desc = why` as Go programs write it, or
/// `/csi.v1.Controller/CreateVolume: Internal: why` as we do.
fn status(message: &str) -> (Code, &str) {
    let named = |name: &str| Code::NUMBERED.into_iter().find(|code| code.name() == name);
    let theirs = message.split_once("code = ").and_then(|(_, rest)| {
        let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        Some((named(name)?, rest.strip_prefix("desc = ").unwrap_or(rest)))
    });
    let ours = || {
        let (_, rest) = message.split_once("/csi.v1.Controller/")?;
        let (_, rest) = rest.split_once(": ")?;
        let (name, rest) = rest.split_once(": ")?;
        Some((named(name)?, rest))
    };
    theirs.or_else(ours).unwrap_or_else(|| (Code::None, bare(message)))
}
