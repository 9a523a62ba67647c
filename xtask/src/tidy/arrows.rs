//! Which crate may use which. What is not in the table is refused.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::Finding;

/// What a crate may use.
enum May {
    Use(&'static [&'static str]),
    /// It is at the top: it may use every crate, and no crate may use it.
    UseAll,
}

/// Folder name to what it may use. Crates that come later are here already, so that they start inside their lines.
const ARROWS: [(&str, May); 14] = [
    ("api", May::Use(&[])),
    ("csi", May::Use(&[])),
    ("linux", May::Use(&[])),
    ("lifecycle", May::Use(&["api"])),
    ("apiserver", May::Use(&["api"])),
    ("runtime", May::Use(&["api", "lifecycle", "csi"])),
    ("control", May::Use(&["runtime", "lifecycle", "api", "csi"])),
    ("node", May::Use(&["runtime", "lifecycle", "api", "csi", "linux"])),
    ("driver-sdk", May::Use(&["csi"])),
    ("driver-local", May::Use(&["driver-sdk", "linux"])),
    ("cli", May::UseAll),
    ("sim", May::UseAll),
    ("fuzz", May::Use(&["apiserver"])),
    // The bench talks to drivers as a client would.
    ("xtask", May::Use(&["csi"])),
];

/// A crate of ours and the crates of ours it uses, all by folder name.
#[derive(Debug)]
pub(super) struct Package {
    folder: String,
    manifest: String,
    uses: Vec<String>,
}

/// Asks cargo, which knows every way a manifest can spell a dependency.
pub(super) fn read(root: &Path) -> anyhow::Result<Vec<Package>> {
    let output = Command::new("cargo")
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root)
        .output()?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    }
    packages(&serde_json::from_slice(&output.stdout)?, root).context("cargo metadata has another shape than expected")
}

fn packages(metadata: &Value, root: &Path) -> Option<Vec<Package>> {
    let mut packages = Vec::new();
    for package in metadata["packages"].as_array()? {
        let manifest = Path::new(package["manifest_path"].as_str()?);
        // Only a dependency with a path is one of ours; the path is that of its folder.
        let paths = package["dependencies"].as_array()?.iter().filter_map(|dependency| dependency["path"].as_str());
        packages.push(Package {
            folder: folder_name(manifest.parent()?)?,
            manifest: manifest.strip_prefix(root).unwrap_or(manifest).display().to_string(),
            uses: paths.filter_map(|path| folder_name(Path::new(path))).collect(),
        });
    }
    Some(packages)
}

fn folder_name(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_string_lossy().into_owned())
}

pub(super) fn check(packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for Package { folder, manifest, uses } in packages {
        let Some((_, may)) = ARROWS.iter().find(|(name, _)| name == folder) else {
            let text = format!(
                "crate `{folder}` is not in the table of arrows; decide what it may use in xtask/src/tidy/arrows.rs"
            );
            findings.push(Finding::new(manifest, 1, text));
            continue;
        };
        let refused = |used: &&String| match may {
            May::Use(list) => !list.contains(&used.as_str()),
            May::UseAll => used.as_str() == "xtask",
        };
        for used in uses.iter().filter(refused) {
            let text = format!(
                "`{folder}` may not use `{used}`: the arrows point inward; move the code, or change the table in xtask/src/tidy/arrows.rs with a reason"
            );
            findings.push(Finding::new(manifest, 1, text));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(folder: &str, uses: &[&str]) -> Package {
        let manifest = format!("crates/{folder}/Cargo.toml");
        Package { folder: folder.into(), manifest, uses: uses.iter().map(ToString::to_string).collect() }
    }

    fn refused(folder: &str, uses: &[&str]) -> usize {
        check(&[package(folder, uses)]).len()
    }

    #[test]
    fn arrows_point_inward() {
        assert_eq!(refused("driver-sdk", &["csi"]), 0);
        assert_eq!(refused("csi", &["driver-sdk"]), 1);
        assert_eq!(refused("driver-local", &["driver-sdk", "csi"]), 1);
        assert_eq!(refused("cli", &["csi", "driver-sdk", "driver-local"]), 0);
        assert_eq!(refused("cli", &["xtask"]), 1);
    }

    #[test]
    fn an_unknown_crate_is_refused() {
        assert_eq!(refused("novelty", &[]), 1);
    }

    #[test]
    fn a_manifest_is_read_by_its_paths_whatever_the_names() {
        let metadata = serde_json::json!({"packages": [{
            "manifest_path": "/r/crates/driver-sdk/Cargo.toml",
            "dependencies": [{"name": "orlop-csi", "rename": "csi", "path": "/r/crates/csi"}, {"name": "tonic"}],
        }]});
        let packages = packages(&metadata, Path::new("/r")).unwrap();
        assert_eq!(packages[0].manifest, "crates/driver-sdk/Cargo.toml");
        assert_eq!((packages[0].folder.as_str(), &packages[0].uses[..]), ("driver-sdk", &["csi".to_owned()][..]));
    }
}
