//! Volumes and the node itself, as the node sees them.

use ::csi::v1::{
    NodeExpandVolumeResponse, NodeGetInfoResponse, NodeGetVolumeStatsResponse, VolumeUsage, volume_usage::Unit,
};
use serde_json::{Value, json};

use super::text::{Fields, capacity, size, table};
use super::volume::{condition_json, condition_text, topology_json, topology_text};
use super::{Render, enum_json, enum_text};

impl Render for NodeGetVolumeStatsResponse {
    fn json(&self) -> Value {
        let usage = self.usage.iter().map(|it| {
            json!({
                "available": it.available,
                "total": it.total,
                "used": it.used,
                "unit": enum_json(it.unit, Unit::as_str_name),
            })
        });
        let condition = self.volume_condition.as_ref().map(condition_json);
        json!({ "usage": usage.collect::<Vec<_>>(), "volumeCondition": condition })
    }

    fn text(&self) -> String {
        let row = |it: &VolumeUsage| {
            let show = |count: i64| if it.unit() == Unit::Bytes { size(count) } else { count.to_string() };
            [enum_text(it.unit, Unit::as_str_name), show(it.total), show(it.used), show(it.available)]
        };
        let usage = table(["UNIT", "TOTAL", "USED", "AVAILABLE"], self.usage.iter().map(row).collect());
        usage + &Fields::default().some("Condition", self.volume_condition.as_ref().map(condition_text)).text()
    }
}

impl Render for NodeExpandVolumeResponse {
    fn json(&self) -> Value {
        json!({ "capacityBytes": self.capacity_bytes })
    }

    fn text(&self) -> String {
        Fields::default().one("Capacity", capacity(self.capacity_bytes)).text()
    }
}

impl Render for NodeGetInfoResponse {
    fn json(&self) -> Value {
        json!({
            "nodeId": self.node_id,
            "maxVolumesPerNode": self.max_volumes_per_node,
            "accessibleTopology": self.accessible_topology.as_ref().map(topology_json),
        })
    }

    fn text(&self) -> String {
        // WIRE-B.4: zero leaves the limit to the caller.
        let limit = match self.max_volumes_per_node {
            0 => "no limit stated".to_owned(),
            limit => limit.to_string(),
        };
        Fields::default()
            .one("Node", &self.node_id)
            .one("Volumes at once", limit)
            .some("Topology", self.accessible_topology.as_ref().map(topology_text))
            .text()
    }
}
