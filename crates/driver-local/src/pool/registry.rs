//! Which pools this driver has had, remembered outside of the pools.
//!
//! A pool whose disk is not mounted looks like an empty directory. Without a memory of its own the driver would make a new
//! pool there, and would acknowledge deletions of volumes that it does not see. So each pool has a file in the state
//! directory: the pool's directory and the id that its `pool.json` must have.
//!
//! # Order of writes
//! The pool's own `pool.json` is written first, then the file here, and only then is the pool served. A crash between the
//! two leaves a pool that is not remembered and holds nothing; the next start remembers it, as it does for pools that are
//! older than this memory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use driver_sdk::id::derive_id;
use serde::{Deserialize, Serialize};

use crate::record::{self, PoolRecord, ReadError};
use linux::{SysError, durable};

/// What is remembered of one pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KnownPool {
    /// As configured, for people who read the file.
    path: PathBuf,
    pub(super) uuid: String,
}

/// Does the state directory remember a pool at this path?
#[derive(Debug)]
pub(super) enum Memory {
    /// No pool was ever here.
    Nothing,
    Pool(KnownPool),
    /// Something is remembered and cannot be read: a pool was here, its id is not known.
    Unreadable(ReadError),
}

/// The directory as configured, without references to the working directory. Links are not followed: they may lead to a
/// disk that is not there.
fn key(path: &Path) -> PathBuf {
    std::path::absolute(path).map(|path| path.components().collect()).unwrap_or_else(|_| path.to_owned())
}

fn file_name(path: &Path) -> String {
    format!("{}.json", derive_id("pool-", "pool", &key(path).to_string_lossy()))
}

pub(super) fn recall(state: &Path, path: &Path) -> Memory {
    match record::read(&state.join(file_name(path))) {
        Ok(known) => Memory::Pool(known),
        Err(ReadError::Missing(_)) => Memory::Nothing,
        Err(error) => Memory::Unreadable(error),
    }
}

pub(super) fn remember(state: &Path, path: &Path, identity: &PoolRecord) -> Result<(), SysError> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(state).map_err(SysError::on("make", state))?;
    let known = KnownPool { path: key(path), uuid: identity.uuid.clone() };
    let bytes = record::seal(&known).map_err(SysError::on("encode a record for", state))?;
    durable::write_file_atomic(state, file_name(path).as_ref(), &bytes, 0o600)
}

/// What forgetting a pool found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forgotten {
    Forgotten,
    WasNotKnown,
}

/// Forgets the pool at `path`. A driver that runs notices it when it next looks for the pool.
pub fn forget_pool(state: &Path, path: &Path) -> Result<Forgotten, SysError> {
    let file = state.join(file_name(path));
    match fs::remove_file(&file) {
        Ok(()) => durable::fsync_dir(state).map(|()| Forgotten::Forgotten),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Forgotten::WasNotKnown),
        Err(error) => Err(SysError::on("remove", &file)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_remembered_by_its_configured_path_until_it_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("not/made/yet");
        let path = Path::new("/nowhere/pool");
        assert!(matches!(recall(&state, path), Memory::Nothing));
        assert_eq!(forget_pool(&state, path).unwrap(), Forgotten::WasNotKnown);
        let identity = PoolRecord { uuid: "u".to_owned(), driver: "d".to_owned() };
        remember(&state, path, &identity).unwrap();
        for spelling in ["/nowhere/pool", "/nowhere/./pool/"] {
            assert!(matches!(recall(&state, Path::new(spelling)), Memory::Pool(known) if known.uuid == "u"));
        }
        assert!(matches!(recall(&state, Path::new("/nowhere/other")), Memory::Nothing));
        fs::write(state.join(file_name(path)), "damaged").unwrap();
        assert!(matches!(recall(&state, path), Memory::Unreadable(_)), "doubt is not \"no pool was here\"");
        assert_eq!(forget_pool(&state, path).unwrap(), Forgotten::Forgotten);
        assert!(matches!(recall(&state, path), Memory::Nothing));
    }
}
