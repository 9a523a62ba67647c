//! What a machine is, for its Node object.

use std::collections::BTreeMap;
use std::thread::available_parallelism;

use api::keys::label;
use serde_json::{Value, json};

/// As many as a kubelet takes by default. No containers run here, so nothing is used up by a pod.
const PODS: u32 = 110;

/// What the kernel says of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// As Go names architectures, which is what images and selectors use.
    pub architecture: String,
    pub kernel: String,
    pub boot_id: String,
    pub processors: usize,
    pub memory_kib: u64,
}

impl Facts {
    pub fn read() -> Self {
        let name = rustix::system::uname();
        let memory = rustix::system::sysinfo();
        let unit = u64::from(memory.mem_unit.max(1));
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Self {
            architecture: architecture(std::env::consts::ARCH).to_owned(),
            kernel: name.release().to_string_lossy().into_owned(),
            boot_id: boot_id.trim().to_owned(),
            processors: available_parallelism().map_or(1, std::num::NonZero::get),
            memory_kib: (memory.totalram as u64).saturating_mul(unit) / 1024,
        }
    }

    pub(super) fn labels(&self, node: &str) -> BTreeMap<String, String> {
        let pairs = [(label::HOSTNAME, node), (label::OS, "linux"), (label::ARCH, &self.architecture)];
        pairs.into_iter().map(|(key, value)| (key.text().to_owned(), value.to_owned())).collect()
    }

    /// The parts of a status that nobody else writes, for a node that has none of them.
    pub(super) fn missing_in(&self, node: &str, status: &Value) -> serde_json::Map<String, Value> {
        let room = json!({
            "cpu": self.processors.to_string(),
            "memory": format!("{}Ki", self.memory_kib),
            "pods": PODS.to_string(),
        });
        let info = json!({
            "machineID": "", "systemUUID": "", "bootID": self.boot_id, "kernelVersion": self.kernel, "osImage": "Linux",
            "containerRuntimeVersion": "none://", "kubeProxyVersion": "",
            "kubeletVersion": concat!("orlop-", env!("CARGO_PKG_VERSION")),
            "operatingSystem": "linux", "architecture": self.architecture,
        });
        let known = status["nodeInfo"]["kubeletVersion"].as_str().is_some_and(|version| !version.is_empty());
        let members = [
            ("capacity", status["capacity"].is_null(), room.clone()),
            ("allocatable", status["allocatable"].is_null(), room),
            ("addresses", status["addresses"].is_null(), json!([{"type": "Hostname", "address": node}])),
            ("nodeInfo", !known, info),
        ];
        members.into_iter().filter(|(_, missing, _)| *missing).map(|(key, _, value)| (key.to_owned(), value)).collect()
    }
}

fn architecture(rust: &str) -> &str {
    match rust {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        "loongarch64" => "loong64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_else_wrote_into_a_status_is_left_alone() {
        let facts = Facts::read();
        let all = facts.missing_in("n", &json!({}));
        assert_eq!(all.keys().collect::<Vec<_>>(), ["addresses", "allocatable", "capacity", "nodeInfo"]);
        let theirs = json!({"capacity": {"pods": "5"}, "allocatable": {}, "addresses": [], "nodeInfo": {"kubeletVersion": "v1"}});
        assert!(facts.missing_in("n", &theirs).is_empty());
        assert!(facts.memory_kib > 1024 && facts.processors > 0);
    }

    #[test]
    fn architectures_have_the_names_that_selectors_use() {
        assert_eq!(
            (architecture("x86_64"), architecture("aarch64"), architecture("riscv64")),
            ("amd64", "arm64", "riscv64")
        );
        assert_eq!(Facts::read().labels("n").len(), 3);
    }
}
