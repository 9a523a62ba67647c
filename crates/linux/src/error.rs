//! The error of a single system call: what was being done, on what, and what the kernel said.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// One failed request to the kernel. `Display` says what was attempted; the kernel's answer is the source.
#[derive(Debug)]
pub struct SysError {
    /// What was being done, as a phrase that follows "could not": `open`, `attach a loop device to`.
    pub doing: Cow<'static, str>,
    /// The object it was done on, when there is one with a name.
    pub path: Option<PathBuf>,
    pub source: io::Error,
}

impl SysError {
    pub fn new(doing: impl Into<Cow<'static, str>>, source: impl Into<io::Error>) -> SysError {
        SysError { doing: doing.into(), path: None, source: source.into() }
    }

    /// A ready closure for `map_err`.
    pub fn on<E: Into<io::Error>>(doing: &'static str, path: &Path) -> impl FnOnce(E) -> SysError {
        move |source| SysError { doing: doing.into(), path: Some(path.to_path_buf()), source: source.into() }
    }

    /// A ready closure for `map_err` where the object has no name, such as an open file.
    pub fn doing<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> SysError {
        move |source| SysError::new(doing, source)
    }

    /// The kernel's error number, when the kernel is where the error came from.
    pub fn errno(&self) -> Option<Errno> {
        Errno::from_io_error(&self.source)
    }

    pub fn is(&self, errno: Errno) -> bool {
        self.errno() == Some(errno)
    }

    /// True when the file system, not the request, ran out: the caller answers with "no space", not "broken".
    pub fn is_out_of_space(&self) -> bool {
        matches!(self.errno(), Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG))
    }
}

impl fmt::Display for SysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "could not {}", self.doing)?;
        match &self.path {
            Some(path) => write!(f, " {}", path.display()),
            None => Ok(()),
        }
    }
}

impl std::error::Error for SysError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
