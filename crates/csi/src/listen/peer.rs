//! Who is at the other end of a connection.

use std::net::SocketAddr;

use tokio::net::UnixStream;

/// The client of a connection. tonic puts it into every request's extensions: `request.extensions().get::<Peer>()`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// A process on this machine, as the kernel vouched for it when it connected.
    Unix(UnixPeer),
    /// A process on this machine that came over TCP; nobody vouches for it.
    Tcp(SocketAddr),
    /// Our own process, over [`crate::client::in_memory`].
    InMemory,
    /// The kernel would not say.
    Unknown,
}

/// Credentials of a process at the moment it connected. They may have changed since, and the pid may have been reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnixPeer {
    /// Process id, unless the process lives in a pid namespace we cannot see.
    pub pid: Option<i32>,
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
}

impl UnixPeer {
    /// Asks the kernel about the other end of `stream`.
    pub(super) fn of(stream: &UnixStream) -> Option<Self> {
        let credentials = stream.peer_cred().ok()?;
        // The kernel writes 0 for a process it cannot name in our pid namespace.
        let pid = credentials.pid().filter(|pid| *pid > 0);
        Some(Self { pid, uid: credentials.uid(), gid: credentials.gid() })
    }
}
