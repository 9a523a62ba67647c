//! A directory below a root, with contents that somebody else controls.
//!
//! Every directory is opened relative to its open parent, never by path; links are removed, not followed; a mount inside
//! stops everything, since what is behind it is not ours. Directories inside are lifted to the top before they are
//! emptied, so that two descriptors are enough for any depth.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, RenameFlags, ResolveFlags, fstat, mkdir, mkdirat, open, openat2};
use rustix::fs::{renameat_with, unlinkat};
use rustix::io::Errno;

/// How many names are read and removed before others get their turn.
const STEP: usize = 256;
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Why a directory could not be made, emptied or removed.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    #[error("it is not below {root:?}, and only what is there is this plugin's")]
    Outside { root: String },
    #[error("the root {root:?} belongs to another user; remove it, or run as its owner")]
    ForeignRoot { root: String },
    #[error("{name:?} is a link or no directory; it is not followed")]
    NoDirectory { name: OsString },
    #[error("a filesystem is mounted at {name:?}; unmount it first")]
    Mounted { name: OsString },
    #[error("{doing} {name:?}")]
    Io { doing: &'static str, name: OsString, source: io::Error },
}

fn failed(doing: &'static str, name: impl AsRef<OsStr>) -> impl FnOnce(Errno) -> TreeError {
    let name = name.as_ref().to_owned();
    move |errno| match errno {
        Errno::XDEV | Errno::BUSY => TreeError::Mounted { name },
        Errno::LOOP | Errno::NOTDIR => TreeError::NoDirectory { name },
        errno => TreeError::Io { doing, name, source: errno.into() },
    }
}

/// An open directory and its open parent.
#[derive(Debug)]
pub(super) struct Place {
    parent: OwnedFd,
    name: OsString,
    dir: OwnedFd,
}

/// The directory at `path`, which has to be below `root`; none if it is not there.
pub(super) fn find(root: &Path, path: &Path) -> Result<Option<Place>, TreeError> {
    let outside = || TreeError::Outside { root: root.display().to_string() };
    let below = path.strip_prefix(root).map_err(|_| outside())?;
    // `strip_prefix` and `components` look at the text only: what climbs up again has to be refused here.
    let mut names = Vec::new();
    for component in below.components() {
        match component {
            Component::Normal(name) => names.push(name.to_owned()),
            Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => {
                return Err(outside());
            }
        }
    }
    let Some(last) = names.pop() else { return Err(outside()) };
    let Some(mut parent) = open_root(root)? else { return Ok(None) };
    for name in names {
        match child(&parent, &name)? {
            Some(dir) => parent = dir,
            None => return Ok(None),
        }
    }
    Ok(child(&parent, &last)?.map(|dir| Place { parent, name: last, dir }))
}

/// Makes the directory `name` in `root`, and the root itself, if they are not there.
pub(super) fn make(root: &Path, name: &str) -> Result<(), TreeError> {
    exists(mkdir(root, Mode::from_raw_mode(0o750))).map_err(failed("making", root))?;
    let Some(top) = open_root(root)? else {
        return Err(failed("opening", root)(Errno::NOENT));
    };
    // The root is in a place where anybody can make directories: whoever made it could do with our volumes as he likes.
    if fstat(&top).map_err(failed("looking at", root))?.st_uid != rustix::process::geteuid().as_raw() {
        return Err(TreeError::ForeignRoot { root: root.display().to_string() });
    }
    exists(mkdirat(&top, name, Mode::from_raw_mode(0o750))).map_err(failed("making", name))?;
    child(&top, OsStr::new(name)).map(drop)
}

fn exists(made: Result<(), Errno>) -> Result<(), Errno> {
    match made {
        Err(Errno::EXIST) => Ok(()),
        made => made,
    }
}

fn there<T>(opened: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match opened {
        Err(Errno::NOENT) => Ok(None),
        opened => opened.map(Some),
    }
}

fn open_root(root: &Path) -> Result<Option<OwnedFd>, TreeError> {
    there(open(root, DIRECTORY, Mode::empty())).map_err(failed("opening", root))
}

fn child(parent: impl AsFd, name: &OsStr) -> Result<Option<OwnedFd>, TreeError> {
    let resolve = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    there(openat2(parent, name, DIRECTORY, Mode::empty(), resolve)).map_err(failed("opening", name))
}

impl Place {
    /// Removes everything in the directory.
    pub(super) async fn empty(&self) -> Result<(), TreeError> {
        let mut lifted = 0_u64;
        loop {
            let names = some_names(&self.dir, &self.name)?;
            if names.is_empty() {
                return Ok(());
            }
            for name in &names {
                if let Removed::Directory = remove(&self.dir, name)? {
                    self.hollow(name, &mut lifted).await?;
                    gone(unlinkat(&self.dir, name, AtFlags::REMOVEDIR)).map_err(failed("removing", text(name)))?;
                }
            }
            tokio::task::yield_now().await;
        }
    }

    /// Removes the directory with everything in it.
    pub(super) async fn remove(self) -> Result<(), TreeError> {
        self.empty().await?;
        gone(unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR)).map_err(failed("removing", &self.name))
    }

    /// Empties a directory at the top: what is no directory is removed, what is one is lifted to the top.
    async fn hollow(&self, name: &CString, lifted: &mut u64) -> Result<(), TreeError> {
        let Some(dir) = child(&self.dir, text(name))? else { return Ok(()) };
        loop {
            let names = some_names(&dir, text(name))?;
            if names.is_empty() {
                return Ok(());
            }
            for inner in &names {
                if let Removed::Directory = remove(&dir, inner)? {
                    self.lift(&dir, inner, lifted)?;
                }
            }
            tokio::task::yield_now().await;
        }
    }

    fn lift(&self, from: &OwnedFd, name: &CString, lifted: &mut u64) -> Result<(), TreeError> {
        loop {
            let to = format!(".lifted-{lifted}");
            *lifted += 1;
            match renameat_with(from, name, &self.dir, &to, RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => {}
                Err(Errno::NOENT) => return Ok(()),
                renamed => return renamed.map_err(failed("lifting", text(name))),
            }
        }
    }
}

enum Removed {
    Gone,
    /// It is one, and still there.
    Directory,
}

/// Removes what is no directory. A link is removed, whatever it points to.
fn remove(dir: &OwnedFd, name: &CString) -> Result<Removed, TreeError> {
    match unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(Removed::Gone),
        Err(Errno::ISDIR) => Ok(Removed::Directory),
        Err(errno) => Err(failed("removing", text(name))(errno)),
    }
}

fn gone(removed: Result<(), Errno>) -> Result<(), Errno> {
    match removed {
        Err(Errno::NOENT) => Ok(()),
        removed => removed,
    }
}

fn text(name: &CString) -> &OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(name.as_bytes())
}

/// The first names in a directory.
fn some_names(dir: &OwnedFd, path: &OsStr) -> Result<Vec<CString>, TreeError> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir).map_err(failed("listing", path))? {
        let entry = entry.map_err(failed("listing", path))?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
        if names.len() == STEP {
            break;
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests;
