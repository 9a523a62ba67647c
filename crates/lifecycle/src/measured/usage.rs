//! How full the volumes of claims are, as the agents of their nodes measure it (`kubelet_volume_stats_*`).

use std::collections::BTreeMap;

use api::Key;

use super::{Sample, read};

const FAMILY: &str = "kubelet_volume_stats_";

/// How full one volume is. What was not measured is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    pub capacity: Option<u64>,
    pub available: Option<u64>,
    pub used: Option<u64>,
    pub inodes: Option<u64>,
    pub inodes_used: Option<u64>,
    pub abnormal: Option<bool>,
}

impl Usage {
    /// Used bytes in percent of what there is.
    pub fn percent(&self) -> Option<u64> {
        crate::table::percent(self.used?, self.capacity?)
    }

    pub fn inodes_percent(&self) -> Option<u64> {
        crate::table::percent(self.inodes_used?, self.inodes?)
    }
}

/// By claim.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Usages(BTreeMap<Key, Usage>);

impl Usages {
    /// Adds what one process measured. A volume that several nodes have is measured by each; the last one stands.
    pub fn add(&mut self, text: &str) {
        for sample in read(text, &[FAMILY]) {
            let (Some(namespace), Some(claim)) = (sample.label("namespace"), sample.label("persistentvolumeclaim"))
            else {
                continue;
            };
            let usage = self.0.entry(Key::namespaced(namespace, claim)).or_default();
            set(usage, &sample);
        }
    }

    pub fn get(&self, claim: &Key) -> Option<&Usage> {
        self.0.get(claim)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn set(usage: &mut Usage, sample: &Sample) {
    let count = sample.count();
    match sample.name.strip_prefix(FAMILY).unwrap_or_default() {
        "capacity_bytes" => usage.capacity = count,
        "available_bytes" => usage.available = count,
        "used_bytes" => usage.used = count,
        "inodes" => usage.inodes = count,
        "inodes_used" => usage.inodes_used = count,
        "health_status_abnormal" => usage.abnormal = count.map(|count| count > 0),
        _ => {}
    }
}
