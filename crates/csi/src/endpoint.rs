//! Where a CSI plugin listens: a unix socket, or TCP on loopback for tests.
//!
//! One type reads every way in which endpoints are written in the field, so that a value copied from another tool
//! works. [`Endpoint`]'s variants are open, therefore both ends of the transport call [`Endpoint::check`] once more.
//!
//! | written | read as |
//! |---|---|
//! | `unix:///csi/csi.sock`, `unix:/csi/csi.sock`, `/csi/csi.sock` | `/csi/csi.sock` |
//! | `unix:run/csi.sock`, `run/csi.sock`, `./csi.sock` | a path relative to the working directory |
//! | `unix://run/csi.sock` | refused, see [`EndpointError::HostInUnixUrl`] |
//! | `tcp://127.0.0.1:10000`, `tcp://[::1]:10000`, `tcp://localhost:10000` | TCP, loopback only |
//!
//! A path is taken byte for byte: nothing is percent-decoded, because no server in the field does.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The longest path a socket address can hold: `sun_path` has 108 bytes and the kernel wants a closing NUL.
pub const MAX_SOCKET_PATH: usize = 107;

/// The address of a CSI plugin.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Endpoint {
    /// A unix stream socket. A relative path is relative to the working directory.
    Unix(PathBuf),
    /// TCP on a loopback address. CSI itself knows only unix sockets; this is for tests and debugging.
    Tcp(SocketAddr),
}

/// Why a text or a value is not a usable [`Endpoint`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Nothing but whitespace was given.
    #[error("the endpoint is empty; write unix:///path/to/csi.sock")]
    Empty,
    /// A scheme without a path after it.
    #[error("the endpoint {text:?} names no socket; write unix:///path/to/csi.sock")]
    NoPath {
        /// The endpoint as given.
        text: String,
    },
    /// `unix://name/...`: after two slashes a URL has a host. Some Go servers read this as a relative path while
    /// grpc-go's dialer refuses it, so the two ends would disagree about one string. It is nearly always a missing
    /// slash.
    #[error("in {text:?} the part after unix:// is a host, not a path; write unix:///{rest} or unix:{rest}")]
    HostInUnixUrl {
        /// The endpoint as given.
        text: String,
        /// What follows `unix://`.
        rest: String,
    },
    /// A scheme that is neither `unix` nor `tcp`.
    #[error("unknown endpoint scheme {scheme:?}; use unix:///path, a plain path, or tcp://127.0.0.1:port")]
    UnknownScheme {
        /// The scheme, in lower case.
        scheme: String,
    },
    /// The path holds a NUL byte, which no file name can.
    #[error("the socket path holds a NUL byte")]
    NulInPath,
    /// The path does not fit into a socket address.
    #[error("the socket path has {length} bytes and the kernel takes at most {MAX_SOCKET_PATH}; put it in a directory with a shorter name: {}", path.display())]
    PathTooLong {
        /// The path as given.
        path: PathBuf,
        /// Its length in bytes.
        length: usize,
    },
    /// The path ends in a slash or in `..`, so it names a directory.
    #[error("{} names a directory; the endpoint must name the socket in it", path.display())]
    NamesDirectory {
        /// The path as given.
        path: PathBuf,
    },
    /// Not `host:port`.
    #[error("{address:?} is not a TCP address; write tcp://127.0.0.1:port or tcp://[::1]:port")]
    BadTcpAddress {
        /// What follows the scheme.
        address: String,
    },
    /// A TCP host other machines could reach. CSI has no authentication: whoever connects owns the storage.
    #[error(
        "refusing {host:?}: CSI has no authentication, so TCP is for loopback only; use 127.0.0.1, [::1] or localhost"
    )]
    NotLoopback {
        /// The host as given; empty means all interfaces.
        host: String,
    },
}

impl Endpoint {
    /// The endpoint of a unix socket at `path`.
    pub fn unix(path: impl Into<PathBuf>) -> Result<Self, EndpointError> {
        let endpoint = Self::Unix(path.into());
        endpoint.check()?;
        Ok(endpoint)
    }

    /// The socket's path, unless this is TCP.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Unix(path) => Some(path),
            Self::Tcp(_) => None,
        }
    }

    /// Says whether the socket has the name CSI asks for: it shall end in `.sock`.
    ///
    /// Nothing breaks otherwise, so this is for a warning and not for a refusal. TCP has no name and no fault.
    pub fn has_conventional_name(&self) -> bool {
        match self {
            Self::Unix(path) => path.as_os_str().as_bytes().ends_with(b".sock"),
            Self::Tcp(_) => true,
        }
    }

    /// Checks what parsing guarantees, for values that were built by hand.
    pub fn check(&self) -> Result<(), EndpointError> {
        match self {
            Self::Unix(path) => check_path(path),
            Self::Tcp(address) if address.ip().is_loopback() => Ok(()),
            Self::Tcp(address) => Err(EndpointError::NotLoopback { host: address.ip().to_string() }),
        }
    }
}

fn check_path(path: &Path) -> Result<(), EndpointError> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() {
        Err(EndpointError::Empty)
    } else if bytes.contains(&0) {
        Err(EndpointError::NulInPath)
    } else if bytes.len() > MAX_SOCKET_PATH {
        Err(EndpointError::PathTooLong { path: path.to_owned(), length: bytes.len() })
    } else if bytes.ends_with(b"/") || bytes.ends_with(b"/.") || path.file_name().is_none() {
        Err(EndpointError::NamesDirectory { path: path.to_owned() })
    } else {
        Ok(())
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(EndpointError::Empty);
        }
        let Some((scheme, rest)) = split_scheme(text) else { return Self::unix(text) };
        match scheme.to_ascii_lowercase().as_str() {
            "unix" => parse_unix(text, rest),
            "tcp" => parse_tcp(text, rest),
            other => Err(EndpointError::UnknownScheme { scheme: other.to_owned() }),
        }
    }
}

/// Splits `scheme:rest`. A colon after a slash belongs to a file name, as in `./a:b.sock`.
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let starts_well = scheme.starts_with(|first: char| first.is_ascii_alphabetic());
    let is_scheme = starts_well && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    is_scheme.then_some((scheme, rest))
}

fn parse_unix(text: &str, rest: &str) -> Result<Endpoint, EndpointError> {
    let path = match rest.strip_prefix("//") {
        Some(after) if after.is_empty() || after.starts_with('/') => after,
        Some(after) => {
            return Err(EndpointError::HostInUnixUrl { text: text.to_owned(), rest: after.to_owned() });
        }
        None => rest,
    };
    if path.is_empty() {
        return Err(EndpointError::NoPath { text: text.to_owned() });
    }
    Endpoint::unix(path)
}

fn parse_tcp(text: &str, rest: &str) -> Result<Endpoint, EndpointError> {
    let bad = |address: &str| EndpointError::BadTcpAddress { address: address.to_owned() };
    let address = rest.strip_prefix("//").ok_or_else(|| bad(text))?;
    let (host, port) = address.rsplit_once(':').ok_or_else(|| bad(address))?;
    let port: u16 = port.parse().map_err(|_| bad(address))?;
    let bare = host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(host);
    // The name is not looked up: a resolver could answer with any address.
    let ip =
        if bare.eq_ignore_ascii_case("localhost") { Some(IpAddr::V4(Ipv4Addr::LOCALHOST)) } else { bare.parse().ok() };
    match ip {
        Some(ip) if ip.is_loopback() => Ok(Endpoint::Tcp(SocketAddr::new(ip, port))),
        Some(_) | None => Err(EndpointError::NotLoopback { host: host.to_owned() }),
    }
}

/// Writes a form that parses back to the same endpoint and that grpc-go's dialer takes as well.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) if path.is_absolute() => write!(f, "unix://{}", path.display()),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp://{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Endpoint {
        text.parse().unwrap_or_else(|error| panic!("{text:?}: {error}"))
    }

    fn refused(text: &str) -> EndpointError {
        match text.parse::<Endpoint>() {
            Ok(endpoint) => panic!("{text:?} was read as {endpoint}"),
            Err(error) => error,
        }
    }

    /// Rule: WIRE-B.6
    #[test]
    fn every_form_in_use_is_read() {
        let rows = [
            ("unix:///csi/csi.sock", "/csi/csi.sock"),
            ("unix:/csi/csi.sock", "/csi/csi.sock"),
            ("/csi/csi.sock", "/csi/csi.sock"),
            ("  unix:///csi/csi.sock\n", "/csi/csi.sock"),
            ("UNIX:///csi/csi.sock", "/csi/csi.sock"),
            ("unix:run/csi.sock", "run/csi.sock"),
            ("unix:csi.sock", "csi.sock"),
            ("csi.sock", "csi.sock"),
            ("./a:b.sock", "./a:b.sock"),
            ("unix:a:b.sock", "a:b.sock"),
            ("/csi/100%25.sock", "/csi/100%25.sock"),
            ("unix:///csi/with space.sock", "/csi/with space.sock"),
            ("/csi/@reg.sock", "/csi/@reg.sock"),
        ];
        for (text, path) in rows {
            assert_eq!(parsed(text), Endpoint::Unix(PathBuf::from(path)), "{text:?}");
        }
    }

    #[test]
    fn tcp_is_read_on_loopback_only() {
        for (text, address) in [
            ("tcp://127.0.0.1:10000", "127.0.0.1:10000"),
            ("tcp://127.9.9.9:1", "127.9.9.9:1"),
            ("tcp://[::1]:10000", "[::1]:10000"),
            ("tcp://localhost:0", "127.0.0.1:0"),
            ("TCP://LocalHost:7", "127.0.0.1:7"),
        ] {
            assert_eq!(parsed(text), Endpoint::Tcp(address.parse().expect("a test address")), "{text:?}");
        }
        for (text, host) in [
            ("tcp://0.0.0.0:10000", "0.0.0.0"),
            ("tcp://:10000", ""),
            ("tcp://10.0.0.1:10000", "10.0.0.1"),
            ("tcp://[::]:10000", "[::]"),
            ("tcp://storage.example:10000", "storage.example"),
            ("tcp://127.0.0.1.example:80", "127.0.0.1.example"),
        ] {
            assert_eq!(refused(text), EndpointError::NotLoopback { host: host.to_owned() }, "{text:?}");
        }
    }

    #[test]
    fn each_fault_has_its_own_error() {
        let text = |text: &str| text.to_owned();
        assert_eq!(refused(""), EndpointError::Empty);
        assert_eq!(refused(" \t\n"), EndpointError::Empty);
        assert_eq!(refused("unix:"), EndpointError::NoPath { text: text("unix:") });
        assert_eq!(refused("unix://"), EndpointError::NoPath { text: text("unix://") });
        assert_eq!(
            refused("unix://run/csi.sock"),
            EndpointError::HostInUnixUrl { text: text("unix://run/csi.sock"), rest: text("run/csi.sock") }
        );
        assert_eq!(refused("http://localhost/"), EndpointError::UnknownScheme { scheme: text("http") });
        assert_eq!(refused("localhost:10000"), EndpointError::UnknownScheme { scheme: text("localhost") });
        assert_eq!(refused("unix-abstract:x"), EndpointError::UnknownScheme { scheme: text("unix-abstract") });
        assert_eq!(refused("/csi/a\0b.sock"), EndpointError::NulInPath);
        for directory in ["/", "unix:///", "/csi/", "/csi/.", "/csi/..", "."] {
            assert!(matches!(refused(directory), EndpointError::NamesDirectory { .. }), "{directory:?}");
        }
        for address in ["tcp://localhost", "tcp://127.0.0.1:http", "tcp://127.0.0.1:70000", "tcp:127.0.0.1:80"] {
            assert!(matches!(refused(address), EndpointError::BadTcpAddress { .. }), "{address:?}");
        }
    }

    #[test]
    fn the_longest_path_the_kernel_takes_is_the_longest_we_take() {
        let fits = format!("/{}", "s".repeat(MAX_SOCKET_PATH - 1));
        assert_eq!(parsed(&fits), Endpoint::Unix(PathBuf::from(&fits)));
        assert_eq!(
            refused(&format!("unix://{fits}s")),
            EndpointError::PathTooLong { path: PathBuf::from(format!("{fits}s")), length: MAX_SOCKET_PATH + 1 }
        );
    }

    #[test]
    fn what_is_printed_parses_back() {
        for text in ["unix:///csi/csi.sock", "unix:csi.sock", "tcp://127.0.0.1:10000", "tcp://[::1]:10000"] {
            assert_eq!(parsed(text).to_string(), text);
        }
        assert_eq!(parsed("run/a:b.sock").to_string(), "unix:run/a:b.sock");
        assert_eq!(parsed(&parsed("run/a:b.sock").to_string()), parsed("run/a:b.sock"));
    }

    #[test]
    fn a_hand_made_endpoint_is_checked_too() {
        let open = Endpoint::Tcp(SocketAddr::from(([0, 0, 0, 0], 1)));
        assert_eq!(open.check(), Err(EndpointError::NotLoopback { host: "0.0.0.0".to_owned() }));
        assert_eq!(Endpoint::Unix(PathBuf::new()).check(), Err(EndpointError::Empty));
    }

    /// Rule: WIRE-B.6
    #[test]
    fn the_sock_suffix_is_a_convention_and_not_a_condition() {
        assert!(parsed("/csi/csi.sock").has_conventional_name());
        assert!(!parsed("/csi/csi").has_conventional_name());
        assert!(parsed("tcp://127.0.0.1:1").has_conventional_name());
    }
}
