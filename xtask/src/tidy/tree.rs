//! The workspace's text files: what a commit would hold, less what is generated or built.

use std::fs;
use std::path::Path;

/// A text file, with its path from the root.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// The last part of the path.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

/// Folders that are built, generated or not ours.
const SKIPPED: [&str; 4] = ["target", "generated", "proptest-regressions", "node_modules"];
/// Hidden folders that hold files of ours.
const HIDDEN: [&str; 2] = [".ci", ".cargo"];
const ENDINGS: [&str; 7] = [".rs", ".md", ".toml", ".yaml", ".yml", ".sh", ".py"];
/// Scripts of the differential suite: text files with comments of ours.
const SCRIPTS: &str = "tests/differential/";

pub(crate) fn read(root: &Path) -> anyhow::Result<Vec<File>> {
    let mut files = Vec::new();
    walk(root, "", &mut files)?;
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}

fn is_script(path: &str) -> bool {
    path == ".ci/run" || path.starts_with(SCRIPTS)
}

fn walk(folder: &Path, prefix: &str, files: &mut Vec<File>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}/{name}") };
        let kind = entry.file_type()?;
        let hidden = name.starts_with('.') && !HIDDEN.contains(&name.as_str());
        if kind.is_dir() && !hidden && !SKIPPED.contains(&name.as_str()) {
            walk(&entry.path(), &path, files)?;
        } else if kind.is_file() && (ENDINGS.iter().any(|ending| name.ends_with(ending)) || is_script(&path)) {
            files.push(File { text: fs::read_to_string(entry.path())?, path });
        }
    }
    Ok(())
}
