//! Files that hold secrets: readable by their owner only, and whole or absent after a crash.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use thiserror::Error;

#[derive(Debug, Error)]
#[error("cannot {action} {}", path.display())]
pub struct FileError {
    pub action: &'static str,
    pub path: PathBuf,
    pub source: io::Error,
}

impl FileError {
    fn at<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Self + use<'a> {
        move |source| Self { action, path: path.to_owned(), source }
    }
}

/// Makes a directory that only its owner enters, or closes an existing one to everybody else. Half-written files of a
/// process that died are removed: only one process at a time may use the directory.
pub(super) fn private_dir(path: &Path) -> Result<(), FileError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(FileError::at("create", path))?;
    fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(FileError::at("set the mode of", path))?;
    // What is in it survives a power cut only if the directory itself does.
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(above).and_then(|above| above.sync_all()).map_err(FileError::at("sync", above))?;
    for entry in fs::read_dir(path).map_err(FileError::at("read", path))? {
        let entry = entry.map_err(FileError::at("read", path))?.path();
        let name = entry.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') && name.ends_with(".tmp") {
            fs::remove_file(&entry).map_err(FileError::at("remove", &entry))?;
        }
    }
    Ok(())
}

/// Replaces a file at once: readers see the old content or the new, and so does a restart after a power loss.
pub fn write_private(path: &Path, content: &[u8]) -> Result<(), FileError> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = directory.join(name);
    let written = write_synced(&temporary, content).and_then(|()| {
        fs::rename(&temporary, path).map_err(FileError::at("replace", path))?;
        let directory_file = File::open(directory).map_err(FileError::at("open", directory))?;
        directory_file.sync_all().map_err(FileError::at("sync", directory))
    });
    if written.is_err() {
        // The first error is the one to report; a leftover is replaced by the next attempt of this process.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn write_synced(path: &Path, content: &[u8]) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(FileError::at("remove", path)(error)),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let mut file =
        options.write(true).create_new(true).mode(0o600).open(path).map_err(FileError::at("create", path))?;
    file.write_all(content).map_err(FileError::at("write", path))?;
    file.sync_all().map_err(FileError::at("sync", path))
}

/// `None` if there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<String>, FileError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(FileError::at("read", path)(error)),
    }
}
