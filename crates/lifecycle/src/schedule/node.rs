//! What a pod asks of a node apart from volumes, and what a bound volume's labels ask of it.

use api::keys::{Label, label, taint};
use api::node::{NodeTaint, Toleration};
use api::{Node, Pod, Volume};

use super::refusal::Refusal;

/// Unschedulable, taints, selector and affinity, in upstream's order; the first that refuses ends it.
pub(super) fn admits(node: &Node, pod: &Pod) -> Result<(), Refusal> {
    let tolerations = pod.placement.as_ref().map_or(&[][..], |placement| &placement.tolerations);
    let cordon = NodeTaint { key: taint::UNSCHEDULABLE.text().into(), value: "".into(), effect: "NoSchedule".into() };
    if node.unschedulable && !tolerated(&cordon, tolerations) {
        return Err(Refusal::Unschedulable);
    }
    let repels = |held: &&NodeTaint| matches!(&*held.effect, "NoSchedule" | "NoExecute");
    if let Some(held) = node.taints.iter().filter(repels).find(|held| !tolerated(held, tolerations)) {
        return Err(Refusal::Taint { key: (&*held.key).into(), value: held.value.clone() });
    }
    let Some(placement) = &pod.placement else { return Ok(()) };
    let selected = placement.node_selector.iter().all(|(key, value)| node.meta.label(key) == Some(value));
    let near = placement.affinity.as_ref().is_none_or(|affinity| affinity.matches(node.name(), &node.meta.labels));
    match selected && near {
        true => Ok(()),
        false => Err(Refusal::Placement),
    }
}

fn tolerated(held: &NodeTaint, tolerations: &[Toleration]) -> bool {
    tolerations.iter().any(|toleration| tolerates(toleration, held))
}

/// An operator this program does not know tolerates nothing.
pub(crate) fn tolerates(toleration: &Toleration, held: &NodeTaint) -> bool {
    let given = |text: &Option<Box<str>>| text.as_deref().unwrap_or_default().to_owned();
    let (key, effect) = (given(&toleration.key), given(&toleration.effect));
    if !(effect.is_empty() || held.effect == *effect) || !(key.is_empty() || held.key == *key) {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or_default() {
        "Exists" => true,
        "" | "Equal" => !key.is_empty() && toleration.value.as_deref().unwrap_or_default() == &*held.value,
        _ => false,
    }
}

/// Both keys of a zone and of a region; a node that has only the newer one answers for the older, too.
const ZONES: [(Label, Label); 4] = [
    (label::BETA_ZONE, label::ZONE),
    (label::BETA_REGION, label::REGION),
    (label::ZONE, label::ZONE),
    (label::REGION, label::REGION),
];

/// What stands between the zones of a volume that has several.
const ZONE_SEPARATOR: &str = "__";

/// VolumeZone: the labels of a bound volume. A node without any of these labels is in no zone and takes every volume.
pub(super) fn in_zone(node: &Node, volume: &Volume) -> bool {
    if !ZONES.iter().any(|(key, _)| node.meta.label(key).is_some()) {
        return true;
    }
    ZONES.iter().all(|(key, newer)| {
        let Some(wanted) = volume.meta.label(key) else { return true };
        let held = node.meta.label(key).or_else(|| node.meta.label(newer));
        held.is_some_and(|held| wanted.split(ZONE_SEPARATOR).any(|zone| zone == held))
    })
}
