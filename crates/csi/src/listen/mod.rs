//! The server's socket: claimed once, shown to nobody too early, given back only if it is still ours.
//!
//! [`Listener::bind`] claims an [`Endpoint`]; [`Listener::incoming`] is the stream of connections for
//! `serve_with_incoming`. Dropping either removes the socket, so a server that drops its stream when it is told to stop
//! (tonic does) refuses new clients at once instead of letting them wait for an answer nobody will give.
//!
//! # Invariants (WIRE-B.6, LOCAL-R7)
//! 1. Nothing is created beside the socket: the single-instance guard is a lock on the directory itself, held only
//!    while the path changes hands.
//! 2. Only a socket that refuses connections is ever removed to make room. A file, a link, a directory, a socket
//!    somebody serves or one we may not ask: each is an error and stays.
//! 3. At no moment does the socket have a permission that was not asked for.
//! 4. On the way out the path is removed only while it still leads to the inode we made.
//! 5. The stream of connections does not end by itself: running out of file descriptors is waited out.

mod claim;
mod incoming;
mod peer;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use tokio::net::{TcpListener, UnixListener};

use crate::endpoint::{Endpoint, EndpointError};
use claim::Claim;

pub use incoming::{Connection, Incoming};
pub use peer::{Peer, UnixPeer};

/// The permissions of a unix socket: who may connect.
///
/// The default is 0600, the owner alone. CSI has no authentication, so whoever may connect may delete volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketMode(u32);

/// The text or number is no set of permissions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a socket mode; write octal permissions such as 0600 or 0660")]
pub struct SocketModeError(String);

impl SocketMode {
    /// Permission bits, such as `0o660`. Anything beyond `0o777` is refused.
    pub fn new(bits: u32) -> Result<Self, SocketModeError> {
        if bits <= 0o777 { Ok(Self(bits)) } else { Err(SocketModeError(format!("{bits:o}"))) }
    }

    /// The permission bits.
    pub fn bits(self) -> u32 {
        self.0
    }
}

impl Default for SocketMode {
    fn default() -> Self {
        Self(0o600)
    }
}

impl FromStr for SocketMode {
    type Err = SocketModeError;

    fn from_str(text: &str) -> Result<Self, SocketModeError> {
        let refused = || SocketModeError(text.to_owned());
        let digits = text.strip_prefix("0o").unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(refused());
        }
        let bits = u32::from_str_radix(digits, 8).map_err(|_| refused())?;
        Self::new(bits).map_err(|_| refused())
    }
}

impl fmt::Display for SocketMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

/// Why an endpoint could not be claimed.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The endpoint was built by hand and is not one.
    #[error("unusable endpoint")]
    Endpoint(#[from] EndpointError),
    /// Somebody serves this socket.
    #[error("{} is already served by {}", path.display(), Server(*pid))]
    InUse {
        /// The socket.
        path: PathBuf,
        /// The process that listens, unless it lives in a pid namespace we cannot see or does not take connections.
        pid: Option<i32>,
    },
    /// Something that is not a socket stands in the way. It is left alone.
    #[error("{} exists and is {kind}, not a socket; it was left alone", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
        /// What it is, with an article: "a regular file".
        kind: &'static str,
    },
    /// The directory for the socket does not exist.
    #[error("the directory {} does not exist; create it before starting the plugin", directory.display())]
    NoDirectory {
        /// The directory.
        directory: PathBuf,
    },
    /// The socket's parent is not a directory.
    #[error("{} is not a directory, so no socket can be made in it", directory.display())]
    NotADirectory {
        /// The parent.
        directory: PathBuf,
    },
    /// The file system's permissions forbid it.
    #[error("permission denied while {doing} {}", path.display())]
    PermissionDenied {
        /// What was being done: "binding".
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Another process holds a lock on the directory and does not let go.
    #[error("another process keeps the directory {} locked", directory.display())]
    DirectoryLocked {
        /// The directory.
        directory: PathBuf,
    },
    /// The TCP port is taken.
    #[error("{address} is already in use")]
    PortInUse {
        /// The address.
        address: SocketAddr,
    },
    /// Any other answer of the kernel.
    #[error("{doing} {target}")]
    Io {
        /// What was being done: "binding".
        doing: &'static str,
        /// To which path or address.
        target: String,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Prints the process that holds a socket.
struct Server(Option<i32>);

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(pid) => write!(f, "process {pid}"),
            None => f.write_str("another process"),
        }
    }
}

/// A claimed endpoint, ready for [`Listener::incoming`]. Dropping it removes the socket.
#[derive(Debug)]
pub struct Listener {
    acceptor: Acceptor,
    endpoint: Endpoint,
}

/// The listening socket.
///
/// `claim` comes before `listener`, and so it is dropped first. While the listening socket is open it pins its inode,
/// so the number the claim compares cannot have been given to a newer file.
#[derive(Debug)]
enum Acceptor {
    Unix { _claim: Claim, listener: UnixListener },
    Tcp(TcpListener),
}

impl Listener {
    /// Claims `endpoint`. `mode` is for unix sockets.
    ///
    /// A socket left by a process that died is replaced. If two processes do this at the same time, one of them gets
    /// [`BindError::InUse`]. The call may wait up to two seconds for another process that binds in the same directory.
    ///
    /// # Panics
    /// If called outside a tokio runtime with I/O enabled.
    pub fn bind(endpoint: &Endpoint, mode: SocketMode) -> Result<Self, BindError> {
        endpoint.check()?;
        match endpoint {
            Endpoint::Unix(path) => {
                let (claim, listener) = claim::claim(path, mode)?;
                let acceptor = Acceptor::Unix { _claim: claim, listener };
                Ok(Self { acceptor, endpoint: endpoint.clone() })
            }
            Endpoint::Tcp(address) => bind_tcp(*address),
        }
    }

    /// What was claimed. If TCP port 0 was asked for, this has the port that was given.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The stream of connections.
    pub fn incoming(self) -> Incoming {
        Incoming::new(self)
    }
}

fn bind_tcp(address: SocketAddr) -> Result<Listener, BindError> {
    let failed = |doing| move |source| BindError::Io { doing, target: address.to_string(), source };
    let listener = std::net::TcpListener::bind(address).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => BindError::PortInUse { address },
        _ => failed("binding")(source),
    })?;
    listener.set_nonblocking(true).map_err(failed("preparing"))?;
    let listener = TcpListener::from_std(listener).map_err(failed("registering"))?;
    let endpoint = Endpoint::Tcp(listener.local_addr().map_err(failed("reading the port of"))?);
    Ok(Listener { acceptor: Acceptor::Tcp(listener), endpoint })
}
