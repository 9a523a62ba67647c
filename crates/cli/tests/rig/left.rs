//! What is left on a machine of something that should be gone.

use std::path::{Path, PathBuf};

/// What is in a directory, if it is there.
pub fn entries(directory: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(directory)
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default()
}

/// Loop devices on files below a folder, also on those that are deleted, and their files.
pub fn loops_on(folder: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for device in entries(Path::new("/sys/block")) {
        let Ok(file) = std::fs::read_to_string(device.join("loop/backing_file")) else { continue };
        if Path::new(file.trim()).starts_with(folder) {
            let name = device.file_name().unwrap_or_default().to_string_lossy();
            found.push((format!("/dev/{name}"), file.trim().to_owned()));
        }
    }
    found
}
