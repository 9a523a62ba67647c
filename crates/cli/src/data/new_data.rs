//! A data directory under construction: built beside its place, shown by one rename.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use apiserver::auth::{Pki, write_private};
use apiserver::store::{OpenError, examine};

use super::{KEYS, STORE};

/// Dropping it removes it.
#[derive(Debug)]
pub(super) struct NewData {
    draft: PathBuf,
    to: PathBuf,
}

impl NewData {
    /// Refuses a directory that has anything in it.
    pub(super) fn begin(to: &Path) -> anyhow::Result<Self> {
        refuse_occupied(to)?;
        let Some(name) = to.file_name() else { bail!("{} cannot be made: name a directory in it", to.display()) };
        let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let draft = parent.join(format!(".{}.partial", name.to_string_lossy()));
        // Left by an attempt that was cut off.
        match fs::remove_dir_all(&draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("removing {}", draft.display()));
            }
            Ok(()) | Err(_) => {}
        }
        let made = DirBuilder::new().recursive(true).mode(0o700).create(draft.join(KEYS));
        made.with_context(|| format!("making {}", draft.display()))?;
        Ok(Self { draft, to: to.to_owned() })
    }

    /// Where its store goes.
    pub(super) fn store(&self) -> PathBuf {
        self.draft.join(STORE)
    }

    pub(super) fn write_keys(&self, files: &BTreeMap<String, Vec<u8>>) -> anyhow::Result<()> {
        for (name, content) in files {
            // The name comes from a file and becomes part of a path.
            if !Pki::FILES.contains(&name.as_str()) {
                bail!("{name:?} is not the name of a key");
            }
            write_private(&self.draft.join(KEYS).join(name), content)?;
        }
        Ok(())
    }

    pub(super) fn finish(self) -> anyhow::Result<()> {
        sync(&self.draft)?;
        fs::rename(&self.draft, &self.to).with_context(|| match self.to.exists() {
            true => format!("putting it in the place of {} (a mount point cannot be replaced)", self.to.display()),
            false => format!("making {}", self.to.display()),
        })?;
        // Any directory above may be new.
        std::path::absolute(&self.to).context("finding the directories above")?.ancestors().skip(1).try_for_each(sync)
    }
}

impl Drop for NewData {
    fn drop(&mut self) {
        // After the rename there is nothing here; before it, what is left over is removed by the next attempt too.
        let _ = fs::remove_dir_all(&self.draft);
    }
}

fn sync(directory: &Path) -> anyhow::Result<()> {
    match File::open(directory).and_then(|file| file.sync_all()) {
        // One that is not ours to open is older than this command.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced.with_context(|| format!("syncing {}", directory.display())),
    }
}

fn refuse_occupied(to: &Path) -> anyhow::Result<()> {
    match fs::read_dir(to).map(|mut entries| entries.next()) {
        Ok(None) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Ok(Some(_)) => {}
        Err(error) => return Err(error).with_context(|| format!("reading {}", to.display())),
    }
    if let Err(error @ OpenError::Locked { .. }) = examine(&to.join(STORE)) {
        return Err(error).context("a server is running there: stop it, and name a directory that does not exist yet");
    }
    bail!("{} is not empty: name a directory that does not exist yet", to.display())
}
