use api::class::TopologyTerm;
use api::{CsiNode, Node, Pairs};
use serde_json::{Value, json};

use super::super::topology::{
    Immediate, NoPlace, Nodes, Requirement, Seen, Selected, Strictness, Term, flatten, requirement,
};
use super::*;
use crate::decision::Lookup;

/// Nodes by name: the driver's keys there, if it runs there, and the labels.
#[derive(Debug)]
struct Cluster(Vec<(CsiNode, Node)>);

impl Nodes for Cluster {
    fn visit(&self, visit: &mut dyn FnMut(&CsiNode, &Pairs)) {
        for (csi_node, node) in &self.0 {
            visit(csi_node, &node.meta.labels);
        }
    }
}

fn node(name: &str, keys: Option<&[&str]>, labels: Value) -> (CsiNode, Node) {
    let drivers = match keys {
        Some(keys) => json!([{"name": DRIVER, "nodeID": name, "topologyKeys": keys}]),
        None => json!([{"name": "another", "nodeID": name, "topologyKeys": ["zone"]}]),
    };
    let csi_node = read(json!({"metadata": {"name": name}, "spec": {"drivers": drivers}}));
    (csi_node, read(json!({"metadata": {"name": name, "labels": labels}})))
}

/// Three zones with the driver, a second node in the first, and one node without the driver.
fn cluster() -> Cluster {
    Cluster(vec![
        node("n1", Some(&["zone"]), json!({"zone": "a"})),
        node("n2", Some(&["zone"]), json!({"zone": "b"})),
        node("n3", Some(&["zone"]), json!({"zone": "c"})),
        node("n4", Some(&["zone"]), json!({"zone": "a"})),
        node("n5", None, json!({"zone": "d"})),
    ])
}

struct Ask {
    name: &'static str,
    selected: Option<&'static str>,
    allowed: Value,
    strictness: Strictness,
    immediate: Immediate,
}

impl Default for Ask {
    fn default() -> Self {
        let (strictness, immediate) = (Strictness::Preferred, Immediate::Aggregated);
        Self { name: "data", selected: None, allowed: json!([]), strictness, immediate }
    }
}

fn ask(cluster: &Cluster, ask: Ask) -> Result<Option<Requirement>, NoPlace> {
    let allowed: Vec<TopologyTerm> = read(ask.allowed);
    let selected = ask.selected.map(|name| {
        let found = cluster.0.iter().find(|(csi_node, _)| csi_node.meta.key.name() == name);
        let csi_node = found.map_or(Lookup::Absent, |(csi_node, _)| Lookup::Found(csi_node));
        Selected { name, csi_node, node: found.map_or(Lookup::Absent, |(_, node)| Lookup::Found(node)) }
    });
    requirement(&Seen {
        driver: DRIVER,
        claim_name: ask.name,
        allowed: &allowed,
        selected,
        strictness: ask.strictness,
        immediate: ask.immediate,
        nodes: cluster,
    })
}

fn zones(terms: &[Term]) -> Vec<&str> {
    terms.iter().map(|term| term.0["zone"].as_str()).collect()
}

fn shown(requirement: &Requirement) -> (Vec<&str>, Vec<&str>) {
    (zones(&requirement.requisite), zones(&requirement.preferred))
}

fn allowed(values: &[&str]) -> Value {
    json!([{"matchLabelExpressions": [{"key": "zone", "values": values}]}])
}

/// Rules: PROVISION-2.9.1, PROVISION-2.9.5
#[test]
fn delayed_and_strict_is_the_selected_place_only() {
    for allowed in [json!([]), allowed(&["b", "x"])] {
        let strict = Ask { selected: Some("n2"), allowed, strictness: Strictness::Strict, ..Ask::default() };
        assert_eq!(shown(&ask(&cluster(), strict).unwrap().unwrap()), (vec!["b"], vec!["b"]));
    }
    let outside =
        Ask { selected: Some("n2"), allowed: allowed(&["a"]), strictness: Strictness::Strict, ..Ask::default() };
    assert!(matches!(ask(&cluster(), outside), Err(NoPlace::NotAllowed { .. })));
}

/// Rules: PROVISION-2.9.2, PROVISION-2.9.5
#[test]
fn delayed_prefers_the_selected_place_among_all() {
    let delayed = Ask { selected: Some("n2"), ..Ask::default() };
    let found = ask(&cluster(), delayed).unwrap().unwrap();
    assert_eq!(shown(&found), (vec!["a", "b", "c"], vec!["b", "c", "a"]), "only where the driver runs, each once");
}

/// Rules: PROVISION-2.9.2, PROVISION-2.9.5
#[test]
fn delayed_with_allowed_places_rotates_those() {
    let delayed = Ask { selected: Some("n3"), allowed: allowed(&["c", "a"]), ..Ask::default() };
    assert_eq!(shown(&ask(&cluster(), delayed).unwrap().unwrap()), (vec!["a", "c"], vec!["c", "a"]));
    let outside = Ask { selected: Some("n2"), allowed: allowed(&["a"]), ..Ask::default() };
    assert!(matches!(ask(&cluster(), outside), Err(NoPlace::NotAllowed { .. })));
}

/// Rules: PROVISION-2.9.2, PROVISION-2.9.5
#[test]
fn immediate_with_allowed_places_spreads_those() {
    for immediate in [Immediate::Aggregated, Immediate::Unconstrained] {
        let asked = Ask { name: "data-web-1", allowed: allowed(&["a", "b", "c"]), immediate, ..Ask::default() };
        let found = ask(&cluster(), asked).unwrap().unwrap();
        assert_eq!(zones(&found.requisite), ["a", "b", "c"]);
        assert_ne!(zones(&found.preferred).first(), None);
    }
}

/// Rule: PROVISION-2.9.2
#[test]
fn immediate_without_allowed_places_spreads_over_all() {
    let found = ask(&cluster(), Ask::default()).unwrap().unwrap();
    assert_eq!(zones(&found.requisite), ["a", "b", "c"]);
}

/// Rule: PROVISION-2.9.2
#[test]
fn immediate_topology_off_says_nothing() {
    let off = Ask { immediate: Immediate::Unconstrained, ..Ask::default() };
    assert_eq!(ask(&cluster(), off), Ok(None));
}

/// Rules: PROVISION-2.9.5, SIDECAR-14.5.6
#[test]
fn replicas_spread_and_the_claims_of_one_replica_stay_together() {
    let first = |name| {
        let found = ask(&cluster(), Ask { name, ..Ask::default() }).unwrap().unwrap();
        zones(&found.preferred)[0].to_owned()
    };
    let replicas = [first("data-web-0"), first("data-web-1"), first("data-web-2")];
    let mut sorted = replicas.clone();
    sorted.sort();
    assert_eq!(sorted, ["a", "b", "c"], "SIDECAR-14.5.6");
    assert_eq!(first("log-web-1"), replicas[1], "the set's name is hashed, not the claim's");
    assert_eq!(first("data-web-3"), replicas[0]);
    // Terms are a, b, c: the remainder of the hash is the index of the first replica's place.
    assert_eq!(fnv1_of("web") % 3, u32::from(replicas[0] == "b") + 2 * u32::from(replicas[0] == "c"));
    assert_eq!(first("web-99999999999"), first("web-99999999999"));
}

/// The textbook FNV-1, to compare with.
fn fnv1_of(text: &str) -> u32 {
    let mut hash: u32 = 2_166_136_261;
    for byte in text.bytes() {
        hash = hash.wrapping_mul(16_777_619);
        hash ^= u32::from(byte);
    }
    hash
}

/// Rule: PROVISION-2.9.1
#[test]
fn a_selected_node_that_is_gone_means_another_node() {
    let gone = Ask { selected: Some("n9"), ..Ask::default() };
    assert_eq!(ask(&cluster(), gone), Err(NoPlace::NodeGone { node: "n9".to_owned() }));
}

/// Rules: PROVISION-2.9.1, PROVISION-2.9.2
#[test]
fn a_node_without_keys_or_labels_is_said() {
    let cluster = Cluster(vec![
        node("bare", Some(&[]), json!({})),
        node("unlabelled", Some(&["zone", "rack"]), json!({"zone": "a"})),
        node("without", None, json!({"zone": "a"})),
    ]);
    for name in ["bare", "without"] {
        let asked = ask(&cluster, Ask { selected: Some(name), ..Ask::default() });
        assert!(matches!(asked, Err(NoPlace::NoKeys { .. })), "{name} {asked:?}");
    }
    let asked = ask(&cluster, Ask { selected: Some("unlabelled"), ..Ask::default() });
    assert!(matches!(asked, Err(NoPlace::LabelMissing { .. })), "{asked:?}");
    let immediate = ask(&cluster, Ask::default());
    assert!(matches!(immediate, Err(NoPlace::NoNodes { .. })), "{immediate:?}");
}

/// Rules: PROVISION-2.9.2, PROVISION-2.9.3
#[test]
fn allowed_places_are_multiplied_out() {
    let terms: Vec<TopologyTerm> = read(json!([
        {"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}, {"key": "rack", "values": ["1", "2"]}]},
        {"matchLabelExpressions": []},
    ]));
    let flat: Vec<String> =
        flatten(&terms).iter().map(|term| format!("{}{}", term.0["zone"], term.0["rack"])).collect();
    assert_eq!(flat, ["a1", "a2", "b1", "b2"]);
    let empty = Ask { allowed: json!([{"matchLabelExpressions": []}]), ..Ask::default() };
    assert_eq!(ask(&cluster(), empty), Ok(None), "an empty result is no requirement");
}

/// Rule: PROVISION-2.9.4
#[test]
fn terms_are_sorted_and_each_is_there_once() {
    let twice = Ask {
        allowed: json!([
            {"matchLabelExpressions": [{"key": "zone", "values": ["b", "a"]}]},
            {"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]},
        ]),
        ..Ask::default()
    };
    assert_eq!(zones(&ask(&cluster(), twice).unwrap().unwrap().requisite), ["a", "b"]);
}

/// Rules: PROVISION-2.9.2, SIDECAR-13.6
#[test]
fn the_keys_of_the_first_node_that_has_any_count_for_all() {
    let cluster = Cluster(vec![
        node("a", Some(&[]), json!({})),
        node("b", Some(&["zone"]), json!({"zone": "b", "rack": "1"})),
        node("c", Some(&["zone", "rack"]), json!({"zone": "c", "rack": "2"})),
    ]);
    let found = ask(&cluster, Ask::default()).unwrap().unwrap();
    assert_eq!(zones(&found.requisite), ["b", "c"], "SIDECAR-13.6: no chance");
    assert!(found.requisite.iter().all(|term| term.0.len() == 1));
}
