//! Secrets that are easy to recognise: set for every call the suite can pass them to, and looked for in every output.

use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;

use anyhow::{Context as _, bail};

/// The keys of the suite's secrets file.
const CALLS: [&str; 13] = [
    "CreateVolumeSecret",
    "DeleteVolumeSecret",
    "ControllerPublishVolumeSecret",
    "ControllerUnpublishVolumeSecret",
    "ControllerValidateVolumeCapabilitiesSecret",
    "NodeStageVolumeSecret",
    "NodePublishVolumeSecret",
    "CreateSnapshotSecret",
    "DeleteSnapshotSecret",
    "ControllerExpandVolumeSecret",
    "ControllerModifyVolumeSecret",
    "ListSnapshotsSecret",
    "GetSnapshotSecret",
];

pub(super) struct Secrets {
    /// Call to the value of its one secret.
    values: Vec<(&'static str, String)>,
}

impl Secrets {
    /// Values that stand nowhere else on the machine.
    pub(super) fn invent() -> Self {
        let random = RandomState::new();
        let value = |call: &&'static str| (*call, format!("hush{:016x}", random.hash_one(call)));
        Self { values: CALLS.iter().map(value).collect() }
    }

    pub(super) fn yaml(&self) -> String {
        self.values.iter().map(|(call, value)| format!("{call}:\n  password: {value}\n")).collect()
    }

    /// Reads each file and names the calls whose secret is in it, never the secret.
    pub(super) fn absent_from(&self, files: &[PathBuf]) -> anyhow::Result<()> {
        let mut leaks = Vec::new();
        for file in files {
            let text = fs::read(file).with_context(|| format!("reading {}", file.display()))?;
            let text = String::from_utf8_lossy(&text);
            let found = self.values.iter().filter(|(_, value)| text.contains(value));
            leaks.extend(found.map(|(call, _)| format!("the secret of {call} is in {}", file.display())));
        }
        if leaks.is_empty() { Ok(()) } else { bail!("{}", leaks.join("\n")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leak_is_named_by_its_call_and_not_by_its_value() {
        let secrets = Secrets::invent();
        let folder = tempfile::tempdir().unwrap();
        let (clean, leaky) = (folder.path().join("clean"), folder.path().join("leaky"));
        let value = &secrets.values[5].1;
        fs::write(&clean, "nothing here").unwrap();
        fs::write(&leaky, format!("{{\"password\":\"{value}\"}}")).unwrap();
        assert!(secrets.absent_from(std::slice::from_ref(&clean)).is_ok());
        let error = secrets.absent_from(&[clean, leaky]).unwrap_err().to_string();
        assert!(error.contains("NodeStageVolumeSecret") && !error.contains(value.as_str()), "{error}");
    }

    #[test]
    fn every_call_gets_its_own_secret() {
        let secrets = Secrets::invent();
        let mut values: Vec<&String> = secrets.values.iter().map(|(_, value)| value).collect();
        values.sort();
        values.dedup();
        assert_eq!(values.len(), CALLS.len());
        assert!(secrets.yaml().starts_with("CreateVolumeSecret:\n  password: hush"));
    }
}
