//! `hostPath`: a path of the machine as it is (NODE-24). Nothing is mounted and nothing is ever removed.

use std::path::{Component, Path, PathBuf};

use crate::host::{Host, HostError, Kind};

/// What the pod says must be at the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Nothing in particular.
    Anything,
    Directory,
    DirectoryOrCreate,
    File,
    FileOrCreate,
    Socket,
    CharDevice,
    BlockDevice,
}

impl Expected {
    /// The text in the pod; none is an empty one.
    pub fn parse(text: &str) -> Result<Expected, HostPathError> {
        Ok(match text {
            "" => Expected::Anything,
            "Directory" => Expected::Directory,
            "DirectoryOrCreate" => Expected::DirectoryOrCreate,
            "File" => Expected::File,
            "FileOrCreate" => Expected::FileOrCreate,
            "Socket" => Expected::Socket,
            "CharDevice" => Expected::CharDevice,
            "BlockDevice" => Expected::BlockDevice,
            other => return Err(HostPathError::UnknownType(other.to_owned())),
        })
    }

    fn words(self) -> &'static str {
        match self {
            Expected::Anything => "anything",
            Expected::Directory | Expected::DirectoryOrCreate => "a directory",
            Expected::File | Expected::FileOrCreate => "a file",
            Expected::Socket => "a socket file",
            Expected::CharDevice => "a character device",
            Expected::BlockDevice => "a block device",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostPathError {
    #[error("{0:?} is no type of a hostPath volume")]
    UnknownType(String),
    #[error("the path {} must be absolute and must not contain `..`", .0.display())]
    Backstep(PathBuf),
    #[error("hostPath type check failed: {} is not {}", path.display(), expected.words())]
    Mismatch { path: PathBuf, expected: Expected },
    #[error(transparent)]
    Host(#[from] HostError),
}

impl HostPathError {
    pub fn is_hung(&self) -> bool {
        matches!(self, Self::Host(error) if error.is_hung())
    }
}

pub async fn set_up(host: &dyn Host, path: &Path, expected: Expected) -> Result<(), HostPathError> {
    if !path.is_absolute() || path.components().any(|part| part == Component::ParentDir) {
        return Err(HostPathError::Backstep(path.to_path_buf()));
    }
    if expected == Expected::Anything {
        return Ok(());
    }
    let mut kind = host.look(path).await?.kind;
    if kind == Kind::Nothing {
        match expected {
            Expected::DirectoryOrCreate => host.make_directory(path, 0o755).await?,
            Expected::FileOrCreate => host.make_file(path, 0o644).await?,
            _ => {}
        }
        kind = host.look(path).await?.kind;
    }
    let right = match expected {
        Expected::Anything => true,
        Expected::Directory | Expected::DirectoryOrCreate => kind == Kind::Directory,
        Expected::File | Expected::FileOrCreate => kind == Kind::File,
        Expected::Socket => kind == Kind::Socket,
        Expected::CharDevice => kind == Kind::CharDevice,
        Expected::BlockDevice => kind == Kind::BlockDevice,
    };
    if right { Ok(()) } else { Err(HostPathError::Mismatch { path: path.to_path_buf(), expected }) }
}
