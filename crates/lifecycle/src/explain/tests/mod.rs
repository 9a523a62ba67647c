//! Causes, one row each: what is seen, and what is said about it, compared with the files in `golden`.
//!
//! The numbers in the titles are those of the pains that users of Kubernetes storage report. After a change that is meant,
//! `UPDATE_GOLDEN=1 cargo test -p orlop-lifecycle explain` writes the files anew; read the difference.

mod anything;
mod claims;
mod conditions;
mod going;
mod places;
mod pods;
mod provisioners;
mod sight;
mod using;
mod volumes;

use std::path::Path;

use api::object::UnixSeconds;
use api::{Event, Lease, Node, Pod};
use serde_json::{Value, json};

use super::{Explanation, Listing, Picture};
use crate::bind::tests::{over, read};
use crate::decision::Standing;

/// 2026-01-02T04:04:05Z, one hour after [`EARLIER`].
const NOW: UnixSeconds = UnixSeconds(1_767_326_645);
const EARLIER: &str = "2026-01-02T03:04:05Z";
/// Ten seconds before [`NOW`].
const LATELY: &str = "2026-01-02T04:03:55Z";

/// One cause: its title, what is said, and what has to be found at the bottom of it.
struct Row {
    title: &'static str,
    explanation: Explanation,
    standing: Standing,
    /// Step and code of the link that matters most.
    root: &'static str,
}

fn row(title: &'static str, explanation: Explanation, standing: Standing, root: &'static str) -> Row {
    Row { title, explanation, standing, root }
}

/// A cluster where everything could be looked at and nothing was there.
fn empty() -> Picture {
    Picture {
        now: NOW,
        claims: seen([]),
        volumes: seen([]),
        classes: seen([]),
        pods: seen([]),
        nodes: seen([]),
        csi_nodes: seen([]),
        drivers: seen([]),
        attachments: seen([]),
        capacities: seen([]),
        quotas: seen([]),
        leases: seen([]),
        events: seen([]),
        node_events: seen([]),
        snapshots: seen([]),
        grants: seen([]),
        intents: seen([]),
        namespaces: seen([]),
    }
}

fn seen<T, const N: usize>(items: [T; N]) -> Listing<T> {
    Listing::Seen(items.into())
}

/// Compares every row with its part of a golden file, and its bottom with what the row says.
fn check(name: &str, rows: &[Row]) {
    let mut text = String::new();
    for Row { title, explanation, standing, root } in rows {
        assert_eq!(explanation.standing, *standing, "{title}:\n{explanation}");
        let worst = explanation.chain.iter().rev().find(|link| link.standing == *standing).expect("a chain has links");
        assert_eq!(format!("{}/{}", worst.step.name(), worst.code), *root, "{title}:\n{explanation}");
        let settled = *standing == Standing::Settled || !explanation.fix.is_empty();
        assert!(settled, "{title}: something is wrong and nothing can be done:\n{explanation}");
        text.push_str(&format!("## {title}\n\n{explanation}\n"));
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/explain/tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&file, &text).expect("the golden file can be written");
        return;
    }
    let golden = std::fs::read_to_string(&file).unwrap_or_default();
    let pairs = golden.lines().zip(text.lines()).find(|(old, new)| old != new);
    assert!(
        golden == text,
        "{name} differs, first here: {pairs:?}\nTo accept: UPDATE_GOLDEN=1 cargo test -p orlop-lifecycle explain"
    );
}

/// A pod that uses claim `c`.
fn pod(name: &str, patch: Value) -> Pod {
    let base = json!({
        "metadata": {"name": name, "namespace": "n", "uid": format!("{name}-uid")},
        "spec": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]},
        "status": {"phase": "Pending"},
    });
    read(over(base, patch))
}

fn event(kind: &str, (name, uid): (&str, &str), reason: &str, message: &str) -> Event {
    read(json!({
        "metadata": {"name": "e", "namespace": "n"},
        "involvedObject": {"kind": kind, "namespace": "n", "name": name, "uid": uid},
        "type": "Warning", "reason": reason, "message": message, "count": 7,
        "lastTimestamp": LATELY, "source": {"component": "d.example.com_host_1"},
    }))
}

fn lease(name: &str, holder: &str, renewed: &str) -> Lease {
    read(json!({
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed},
    }))
}

fn node(name: &str, labels: Value) -> Node {
    read(json!({
        "metadata": {"name": name, "labels": labels},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }))
}
