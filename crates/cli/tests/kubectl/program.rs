//! Which kubectl.
//!
//! The one on the path may be a dispatcher that starts another one by the server's version; the versioned programs lie
//! beside it then, and the newest of them is asked directly.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::transcript::Version;

pub(crate) fn find() -> Option<PathBuf> {
    if let Some(given) = std::env::var_os("ORLOP_KUBECTL") {
        let given = PathBuf::from(given);
        assert!(given.is_file(), "ORLOP_KUBECTL names {}, which is not a file", given.display());
        return Some(given.canonicalize().expect("a file has a path"));
    }
    let path = std::env::var_os("PATH")?;
    let plain = std::env::split_paths(&path).map(|folder| folder.join("kubectl")).find(|file| file.is_file())?;
    let plain = plain.canonicalize().ok()?;
    Some(newest_beside(&plain).unwrap_or(plain))
}

fn newest_beside(plain: &Path) -> Option<PathBuf> {
    let minor = |file: &Path| file.file_name()?.to_str()?.strip_prefix("kubectl.1.")?.parse::<u32>().ok();
    let files = plain.parent()?.read_dir().ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    files.filter(|file| minor(file).is_some()).max_by_key(|file| minor(file))
}

/// The version that the program says it has.
pub(crate) fn version(program: &Path) -> Version {
    let output = Command::new(program).args(["version", "--client"]).output().expect("kubectl can be started");
    let text = String::from_utf8_lossy(&output.stdout);
    let minor = text.split_once("v1.").and_then(|(_, rest)| rest.split('.').next()?.parse().ok());
    Version(minor.unwrap_or_else(|| panic!("{} does not tell its version: {text}", program.display())))
}
