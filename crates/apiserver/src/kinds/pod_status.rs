//! What a pod's table row says: one word for its state, boiled down from its phase, its conditions and its containers.

use super::cells;
use super::read::{deleting, entries, flag, list, name, number, optional_text, present, text};
use super::time::Timestamp;
use super::{age, cells::as_quantity};
use serde_json::Value;
use std::collections::BTreeSet;

/// The state of a pod's containers as counted for its row.
#[derive(Debug, Default)]
struct Tally {
    ready: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

impl Tally {
    fn count_restarts(&mut self, container: &Value) {
        self.restarts += number(container, "/restartCount").unwrap_or(0);
        let finished = optional_text(container, "/lastState/terminated/finishedAt").and_then(Timestamp::parse);
        self.last_restart = self.last_restart.max(finished);
    }

    fn restarts(&self, now: Timestamp) -> String {
        match self.last_restart {
            Some(last) if self.restarts != 0 => {
                format!("{} ({} ago)", self.restarts, age::since(Some(&last.to_string()), now))
            }
            _ => self.restarts.to_string(),
        }
    }
}

pub(crate) fn row(pod: &Value, now: Timestamp) -> Vec<Value> {
    let mut tally = Tally::default();
    let status = status(pod, &mut tally);
    let total = list(pod, "/spec/containers").len() + sidecars(pod).count();
    let or_none = |text: &str| if text.is_empty() { "<none>".to_string() } else { text.to_string() };
    let address = list(pod, "/status/podIPs").first().map_or("", |address| text(address, "/ip"));
    vec![
        name(pod).into(),
        format!("{}/{total}", tally.ready).into(),
        status.into(),
        tally.restarts(now).into(),
        cells::age(pod, now),
        or_none(address).into(),
        or_none(text(pod, "/spec/nodeName")).into(),
        or_none(text(pod, "/status/nominatedNodeName")).into(),
        gates(pod).into(),
    ]
}

/// Init containers that keep running beside the others.
fn sidecars(pod: &Value) -> impl Iterator<Item = &Value> {
    list(pod, "/spec/initContainers").iter().filter(|container| text(container, "/restartPolicy") == "Always")
}

fn status(pod: &Value, tally: &mut Tally) -> String {
    let mut status = text(pod, "/status/phase").to_string();
    if !text(pod, "/status/reason").is_empty() {
        status = text(pod, "/status/reason").into();
    }
    let gated = |condition: &&Value| {
        text(condition, "/type") == "PodScheduled" && text(condition, "/reason") == "SchedulingGated"
    };
    if list(pod, "/status/conditions").iter().find(gated).is_some() {
        status = "SchedulingGated".into();
    }
    let initializing = init_status(pod, tally);
    let started = initializing.is_none() || condition_is_true(pod, "Initialized");
    if let Some(init) = initializing {
        status = init;
    }
    if started {
        status = running_status(pod, tally, status);
    }
    let ended = ["Succeeded", "Failed"].contains(&text(pod, "/status/phase"));
    match deleting(pod) {
        true if text(pod, "/status/reason") == "NodeLost" => "Unknown".into(),
        true if !ended => "Terminating".into(),
        _ => status,
    }
}

/// How far initialization is; `None` when it is over.
fn init_status(pod: &Value, tally: &mut Tally) -> Option<String> {
    let total = list(pod, "/spec/initContainers").len();
    let sidecar_names: BTreeSet<&str> = sidecars(pod).map(|sidecar| text(sidecar, "/name")).collect();
    for (index, container) in list(pod, "/status/initContainerStatuses").iter().enumerate() {
        let sidecar = sidecar_names.contains(text(container, "/name"));
        tally.count_restarts(container);
        let terminated = present(container, "/state/terminated");
        if terminated.is_some_and(|state| number(state, "/exitCode").unwrap_or(0) == 0) {
            continue;
        }
        if sidecar && flag(container, "/started") {
            tally.ready += usize::from(flag(container, "/ready"));
            continue;
        }
        let waiting = text(container, "/state/waiting/reason");
        return Some(match terminated {
            Some(state) => format!("Init:{}", exit_reason(state)),
            None if !["", "PodInitializing"].contains(&waiting) => format!("Init:{waiting}"),
            None => format!("Init:{index}/{total}"),
        });
    }
    None
}

fn exit_reason(state: &Value) -> String {
    let signal = number(state, "/signal").unwrap_or(0);
    match text(state, "/reason") {
        "" if signal != 0 => format!("Signal:{signal}"),
        "" => format!("ExitCode:{}", number(state, "/exitCode").unwrap_or(0)),
        reason => reason.into(),
    }
}

/// The word of the first container that has one wins over the pod's.
fn running_status(pod: &Value, tally: &mut Tally, mut status: String) -> String {
    let mut running = false;
    for container in list(pod, "/status/containerStatuses").iter().rev() {
        tally.count_restarts(container);
        let waiting = text(container, "/state/waiting/reason");
        if !waiting.is_empty() {
            status = waiting.into();
        } else if let Some(state) = present(container, "/state/terminated") {
            status = exit_reason(state);
        } else if flag(container, "/ready") && present(container, "/state/running").is_some() {
            running = true;
            tally.ready += 1;
        }
    }
    if status == "Completed" && running {
        let ready = condition_is_true(pod, "Ready");
        status = if ready { "Running" } else { "NotReady" }.into();
    }
    status
}

fn condition_is_true(pod: &Value, kind: &str) -> bool {
    let conditions = list(pod, "/status/conditions");
    conditions.iter().any(|condition| text(condition, "/type") == kind && text(condition, "/status") == "True")
}

fn gates(pod: &Value) -> String {
    let gates = list(pod, "/spec/readinessGates");
    let holding = list(pod, "/status/conditions").iter().filter(|condition| text(condition, "/status") == "True");
    let holding: BTreeSet<&str> = holding.map(|condition| text(condition, "/type")).collect();
    let met = gates.iter().filter(|gate| holding.contains(text(gate, "/conditionType"))).count();
    if gates.is_empty() { "<none>".into() } else { format!("{met}/{}", gates.len()) }
}

/// How much a pod's resources are promised to it, from what its containers ask for.
pub(crate) fn quality(pod: &Value) -> &'static str {
    let containers = super::pod::CONTAINERS.iter().flat_map(|pointer| list(pod, pointer));
    let (mut asked, mut guaranteed) = (false, true);
    for container in containers {
        let amounts = |kind: &str| entries(container, &format!("/resources/{kind}"));
        let (requests, limits) = (amounts("requests"), amounts("limits"));
        asked |= requests.iter().chain(&limits).any(|(resource, _)| ["cpu", "memory"].contains(resource));
        for resource in ["cpu", "memory"] {
            let find = |amounts: &[(&str, &Value)]| {
                amounts.iter().find(|(name, _)| *name == resource).and_then(|(_, amount)| as_quantity(amount))
            };
            let (request, limit) = (find(&requests), find(&limits));
            guaranteed &= limit.is_some() && (request.is_none() || request == limit);
        }
    }
    match (asked, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}
