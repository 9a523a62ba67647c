//! `orlop backup`, `restore`, `check` and `salvage`: what is done to the data directory of `orlop api` from outside it.
//!
//! # Invariants
//! 1. What these commands make appears whole or not at all: it is built beside its place, synced and renamed.
//! 2. Nothing is written over what exists, except a backup file when the user says so.
//! 3. What is read is left as it is.

mod backup;
mod check;
mod new_data;
mod restore;
mod salvage;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use apiserver::auth::Pki;
use apiserver::store::{Damage, OpenError};

pub(crate) use backup::BackupArgs;
pub(crate) use check::CheckArgs;
pub(crate) use restore::RestoreArgs;
pub(crate) use salvage::SalvageArgs;

/// The parts of a data directory.
pub(crate) const STORE: &str = "store";
pub(crate) const KEYS: &str = "pki";
/// Where `orlop up` has the volumes.
const POOL: &str = "pool";
/// Where the running server listens. Only worth reading while the store is in use.
pub(crate) const ADDRESS: &str = "address";

pub(crate) fn backup(args: &BackupArgs) -> ExitCode {
    report("backup", backup::run(args))
}

pub(crate) fn restore(args: &RestoreArgs) -> ExitCode {
    report("restore", restore::run(args))
}

pub(crate) fn check(args: &CheckArgs) -> ExitCode {
    report("check", check::run(args))
}

pub(crate) fn salvage(args: &SalvageArgs) -> ExitCode {
    report("salvage", salvage::run(args))
}

/// Prints what came of a command: its answer, or one error that starts with its name.
fn report(command: &str, result: anyhow::Result<String>) -> ExitCode {
    match result {
        Ok(text) => crate::process::ended(command, crate::cluster::output::write(&format!("{text}\n"))),
        Err(error) => crate::process::ended(command, Err(error)),
    }
}

/// What a user can do about a store that does not open: for a damaged one, the commands that bring back its last good
/// state.
pub(crate) fn advise(error: OpenError, data: &Path) -> anyhow::Error {
    match error {
        OpenError::Damaged { damage, .. } => {
            anyhow::anyhow!("the store in {} is damaged\n{}", data.display(), damage_report(&damage, data))
        }
        OpenError::Absent { .. } => absent(data),
        OpenError::Locked { pid, .. } => {
            let by = pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"));
            anyhow::anyhow!("--data {} is in use by {by}; stop that first, or name another directory", data.display())
        }
        OpenError::Newer { found, supported } => anyhow::anyhow!(
            "--data {} was written by a newer orlop (format {found}; this one knows up to {supported}); use that one. \
             Nothing was changed",
            data.display()
        ),
        OpenError::Io { .. } if data.exists() && !data.is_dir() => absent(data),
        OpenError::Io { source, .. } => {
            let what = format!("--data {} cannot be used; name a directory that can be written", data.display());
            anyhow::Error::new(source).context(what)
        }
        other => anyhow::Error::new(other).context(format!("opening the store in {}", data.display())),
    }
}

/// How a server goes on with what was made new. The volumes of `orlop up` stay in the old directory, so there the new store
/// comes to them.
fn to_go_on(old: &Path, new: &Path) -> String {
    if !old.join(POOL).is_dir() {
        return format!("To serve the new one: orlop api --data {}", shell(new));
    }
    let (old, new) = (shell(old), shell(new));
    format!(
        "To go on with the new one, beside the volumes:\n  \
           mkdir {old}/damaged && mv {old}/{STORE} {old}/{KEYS} {old}/damaged/\n  \
           mv {new}/{STORE} {new}/{KEYS} {old}/\n  \
           orlop up --data {old}"
    )
}

/// What is said of a directory that has no objects in it.
fn absent(data: &Path) -> anyhow::Error {
    let shown = data.display();
    match data.symlink_metadata() {
        Err(_) => anyhow::anyhow!("--data {shown}: there is no such directory; name the one of orlop up or orlop api"),
        Ok(found) if !found.is_dir() && !found.is_symlink() => {
            anyhow::anyhow!("--data {shown} is a file; name the directory of orlop up or orlop api")
        }
        Ok(_) => anyhow::anyhow!(
            "--data {shown} is no directory of orlop up or orlop api: there is no {} in it",
            data.join(STORE).display()
        ),
    }
}

fn damage_report(damage: &[Damage], data: &Path) -> String {
    let found: Vec<String> = damage.iter().map(|damage| format!("  {damage}")).collect();
    let (data, new) = (shell(data), shell(&with_suffix(data, "-new")));
    format!(
        "{}\n\
         Nothing was changed. The last good state of every object can be saved into a new directory:\n  \
           orlop salvage --data {data} --to {new}\n\
         or take the state of a backup:\n  \
           orlop restore --from FILE --data {new}",
        found.join("\n")
    )
}

fn with_suffix(path: &Path, suffix: &str) -> std::path::PathBuf {
    // Without its last slashes: `state/` and `state` are the same directory.
    let mut text = path.components().as_path().as_os_str().to_owned();
    text.push(suffix);
    text.into()
}

/// A path as it can be pasted into a shell.
fn shell(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |character: char| character.is_ascii_alphanumeric() || "/._-+:@%".contains(character);
    match !text.is_empty() && text.chars().all(plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// The keys of a data directory by the names of their files.
fn read_keys(data: &Path) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for name in Pki::FILES {
        let path = data.join(KEYS).join(name);
        match std::fs::read(&path) {
            Ok(content) => drop(files.insert(name.to_owned(), content)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
        }
    }
    Ok(files)
}

/// Without these, no client of the old server could talk to a new one.
fn require_roots(files: &BTreeMap<String, Vec<u8>>, place: &str) -> anyhow::Result<()> {
    match Pki::ROOTS.iter().find(|name| !files.contains_key(**name)) {
        Some(missing) => bail!("{place} has no {missing}"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_can_be_pasted_into_a_shell() {
        for (path, want) in [("/var/lib/orlop", "/var/lib/orlop"), ("my state", "'my state'"), ("it's", r"'it'\''s'")] {
            assert_eq!(shell(Path::new(path)), want);
        }
    }

    #[test]
    fn what_is_saved_comes_to_the_volumes_where_there_are_some() {
        let place = tempfile::tempdir().unwrap();
        let new = Path::new("/srv/new");
        assert_eq!(to_go_on(place.path(), new), "To serve the new one: orlop api --data /srv/new");
        std::fs::create_dir(place.path().join(POOL)).unwrap();
        let (said, old) = (to_go_on(place.path(), new), place.path().display());
        assert!(said.contains(&format!("mv /srv/new/store /srv/new/pki {old}/\n  orlop up --data {old}")), "{said}");
    }

    #[test]
    fn a_suffix_goes_to_the_name_and_not_behind_its_slash() {
        assert_eq!(with_suffix(Path::new("state/"), "-new"), Path::new("state-new"));
    }
}
