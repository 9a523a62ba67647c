use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fs, io};

use futures_util::StreamExt as _;
use rustix::fs::FlockOperation;
use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::Instant;

use super::incoming::{Accept, AcceptLoop};
use super::*;

/// A socket path in a directory of its own.
struct Place {
    directory: TempDir,
    path: PathBuf,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("csi.sock");
        Self { directory, path }
    }

    fn bind(&self) -> Result<Listener, BindError> {
        Listener::bind(&Endpoint::Unix(self.path.clone()), SocketMode::default())
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory.path()).expect("the directory is ours");
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
    }

    /// Leaves a socket as a killed process would.
    fn leave_stale_socket(&self) {
        drop(std::os::unix::net::UnixListener::bind(&self.path).expect("binding by hand"));
        assert!(self.is_socket());
    }

    fn is_socket(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|metadata| metadata.file_type().is_socket())
    }
}

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).expect("the socket exists").permissions().mode() & 0o7777
}

/// Rule: WIRE-B.6
#[tokio::test]
async fn a_socket_is_the_only_file_and_its_owners_alone() {
    let place = Place::new();
    let listener = place.bind().unwrap();
    assert_eq!(place.names(), ["csi.sock"]);
    assert_eq!(mode_of(&place.path), 0o600);
    assert_eq!(listener.endpoint(), &Endpoint::Unix(place.path.clone()));
}

#[tokio::test]
async fn the_mode_is_what_was_asked_whatever_the_umask() {
    for bits in [0o600, 0o660, 0o666, 0o777, 0o200] {
        let place = Place::new();
        let endpoint = Endpoint::Unix(place.path.clone());
        let _listener = Listener::bind(&endpoint, SocketMode::new(bits).unwrap()).unwrap();
        assert_eq!(mode_of(&place.path), bits, "{bits:o}");
    }
}

/// Rule: WIRE-B.6
#[tokio::test]
async fn a_stale_socket_is_replaced() {
    let place = Place::new();
    place.leave_stale_socket();
    let _listener = place.bind().unwrap();
    UnixStream::connect(&place.path).await.unwrap();
}

/// Rule: WIRE-B.6
#[tokio::test]
async fn a_served_socket_is_left_alone_and_its_process_named() {
    let place = Place::new();
    let first = place.bind().unwrap();
    let before = fs::metadata(&place.path).unwrap().ino();
    match place.bind() {
        Err(BindError::InUse { path, pid }) => {
            assert_eq!(path, place.path);
            assert_eq!(pid, Some(std::process::id() as i32));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(fs::metadata(&place.path).unwrap().ino(), before);
    drop(first);
    place.bind().unwrap();
}

#[tokio::test]
async fn of_many_processes_that_start_at_once_one_wins() {
    const STARTERS: usize = 8;
    // Threads stand in for processes: each opens the directory for itself, and that is what a lock belongs to.
    let runtime = tokio::runtime::Handle::current();
    for round in 0..100 {
        let place = Place::new();
        place.leave_stale_socket();
        let together = std::sync::Barrier::new(STARTERS);
        let start = || {
            let _inside = runtime.enter();
            together.wait();
            place.bind()
        };
        let results: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..STARTERS).map(|_| scope.spawn(start)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let won = results.iter().filter(|result| result.is_ok()).count();
        let lost = results.iter().filter(|result| matches!(result, Err(BindError::InUse { .. }))).count();
        assert_eq!((won, lost), (1, STARTERS - 1), "round {round}: {results:?}");
        UnixStream::connect(&place.path).await.unwrap();
    }
}

#[tokio::test]
async fn a_socket_of_another_type_is_in_use() {
    let place = Place::new();
    let _datagram = std::os::unix::net::UnixDatagram::bind(&place.path).unwrap();
    assert!(matches!(place.bind(), Err(BindError::InUse { pid: None, .. })));
}

#[tokio::test]
async fn a_served_socket_whose_queue_is_full_is_in_use() {
    let place = Place::new();
    let _listener = short_queue(&place.path);
    let mut clients = Vec::new();
    while let Ok(client) = UnixStream::connect(&place.path).await {
        clients.push(client);
    }
    assert!(matches!(place.bind(), Err(BindError::InUse { pid: None, .. })));
}

/// A listening socket that nobody accepts from and that lets two clients wait.
fn short_queue(path: &Path) -> std::os::fd::OwnedFd {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    rustix::net::listen(&socket, 1).unwrap();
    socket
}

/// Rule: WIRE-B.6
#[tokio::test]
async fn what_is_not_a_socket_is_never_removed() {
    let file = Place::new();
    fs::write(&file.path, "precious").unwrap();
    let directory = Place::new();
    fs::create_dir(&directory.path).unwrap();
    let link = Place::new();
    std::os::unix::fs::symlink("nowhere", &link.path).unwrap();
    let pipe = Place::new();
    let made = rustix::fs::mkfifoat(rustix::fs::CWD, &pipe.path, rustix::fs::Mode::RUSR);
    made.unwrap();
    for (place, wanted) in
        [(&file, "a regular file"), (&directory, "a directory"), (&link, "a symbolic link"), (&pipe, "a named pipe")]
    {
        match place.bind() {
            Err(BindError::NotASocket { path, kind }) => assert_eq!((path, kind), (place.path.clone(), wanted)),
            other => panic!("{wanted}: {other:?}"),
        }
        assert_eq!(place.names(), ["csi.sock"], "{wanted}");
    }
    assert_eq!(fs::read_to_string(&file.path).unwrap(), "precious");
}

#[tokio::test]
async fn a_bad_parent_is_named() {
    let place = Place::new();
    let bind = |path: PathBuf| Listener::bind(&Endpoint::Unix(path), SocketMode::default());
    let missing = place.directory.path().join("missing");
    match bind(missing.join("csi.sock")) {
        Err(BindError::NoDirectory { directory }) => assert_eq!(directory, missing),
        other => panic!("{other:?}"),
    }
    let file = place.directory.path().join("file");
    fs::write(&file, "").unwrap();
    match bind(file.join("csi.sock")) {
        Err(BindError::NotADirectory { directory }) => assert_eq!(directory, file),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_directory_without_permission_is_named() {
    if rustix::process::geteuid().is_root() {
        println!("skipped: root is not stopped by permissions");
        return;
    }
    let place = Place::new();
    fs::set_permissions(place.directory.path(), fs::Permissions::from_mode(0o500)).unwrap();
    let result = place.bind();
    fs::set_permissions(place.directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
    assert!(matches!(result, Err(BindError::PermissionDenied { .. })), "{result:?}");
}

#[tokio::test]
async fn dropping_the_listener_or_its_stream_removes_the_socket() {
    let place = Place::new();
    drop(place.bind().unwrap());
    assert!(place.names().is_empty());
    drop(place.bind().unwrap().incoming());
    assert!(place.names().is_empty());
}

/// Rule: LOCAL-R7
#[tokio::test]
async fn the_socket_of_the_next_instance_is_not_removed() {
    let place = Place::new();
    let old = place.bind().unwrap();
    fs::remove_file(&place.path).unwrap();
    let _new = place.bind().unwrap();
    drop(old);
    assert!(place.is_socket(), "the old instance removed the new one's socket");
    UnixStream::connect(&place.path).await.unwrap();
}

/// Rule: LOCAL-R7
#[tokio::test]
async fn a_file_put_in_the_sockets_place_is_not_removed() {
    let place = Place::new();
    let listener = place.bind().unwrap();
    fs::remove_file(&place.path).unwrap();
    fs::write(&place.path, "not a socket").unwrap();
    drop(listener);
    assert_eq!(place.names(), ["csi.sock"]);
}

#[tokio::test]
async fn a_directory_locked_by_a_stranger_is_an_error_and_not_a_hang() {
    let place = Place::new();
    let stranger = fs::File::open(place.directory.path()).unwrap();
    rustix::fs::flock(&stranger, FlockOperation::LockExclusive).unwrap();
    match place.bind() {
        Err(BindError::DirectoryLocked { directory }) => assert_eq!(directory, place.directory.path()),
        other => panic!("{other:?}"),
    }
    rustix::fs::flock(&stranger, FlockOperation::Unlock).unwrap();
    place.bind().unwrap();
}

#[tokio::test]
async fn a_connection_knows_its_process() {
    let place = Place::new();
    let mut incoming = place.bind().unwrap().incoming();
    let _client = UnixStream::connect(&place.path).await.unwrap();
    let Ok(connection) = incoming.next().await.unwrap();
    let wanted = UnixPeer {
        pid: Some(std::process::id() as i32),
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
    };
    assert_eq!(connection.peer(), Peer::Unix(wanted));
}

#[tokio::test]
async fn tcp_serves_on_loopback_and_tells_its_port() {
    let any_port: Endpoint = "tcp://127.0.0.1:0".parse().unwrap();
    let listener = Listener::bind(&any_port, SocketMode::default()).unwrap();
    let endpoint = listener.endpoint().clone();
    let Endpoint::Tcp(address) = endpoint else { panic!("{endpoint}") };
    assert_ne!(address.port(), 0);
    let taken = Listener::bind(&endpoint, SocketMode::default());
    assert!(matches!(taken, Err(BindError::PortInUse { .. })), "{taken:?}");

    let mut incoming = listener.incoming();
    let client = TcpStream::connect(address).await.unwrap();
    let Ok(mut connection) = incoming.next().await.unwrap();
    assert_eq!(connection.peer(), Peer::Tcp(client.local_addr().unwrap()));
    drop(client);
    assert_eq!(connection.read(&mut [0; 8]).await.unwrap(), 0);
}

#[tokio::test]
async fn a_hand_made_endpoint_is_refused_before_anything_is_opened() {
    let open_to_all = Endpoint::Tcp(SocketAddr::from(([0, 0, 0, 0], 0)));
    let result = Listener::bind(&open_to_all, SocketMode::default());
    assert!(matches!(result, Err(BindError::Endpoint(EndpointError::NotLoopback { .. }))), "{result:?}");
}

/// Answers each accept from a script.
struct Script(RefCell<VecDeque<Result<u32, rustix::io::Errno>>>);

impl Accept for Script {
    type Connection = u32;

    fn poll_accept(&self, _: &mut Context<'_>) -> Poll<io::Result<u32>> {
        let answer = self.0.borrow_mut().pop_front().expect("the script is long enough");
        Poll::Ready(answer.map_err(io::Error::from))
    }
}

#[tokio::test(start_paused = true)]
async fn running_out_of_descriptors_pauses_the_stream_and_does_not_end_it() {
    use rustix::io::Errno;
    let script = [Err(Errno::MFILE), Err(Errno::NFILE), Err(Errno::CONNABORTED), Ok(1), Err(Errno::NOMEM), Ok(2)];
    let mut accept = AcceptLoop::new(Script(RefCell::new(script.into())));
    let start = Instant::now();
    assert_eq!(poll_fn(|cx| accept.poll_connection(cx)).await, 1);
    assert_eq!(start.elapsed(), Duration::from_millis(10 + 20));
    assert_eq!(poll_fn(|cx| accept.poll_connection(cx)).await, 2);
    assert_eq!(start.elapsed(), Duration::from_millis(10 + 20 + 10), "a success makes the pause short again");
}

#[test]
fn a_mode_is_read_and_printed_in_octal() {
    for (text, bits) in [("0600", 0o600), ("660", 0o660), ("0o777", 0o777), ("0", 0)] {
        assert_eq!(text.parse::<SocketMode>().unwrap().bits(), bits, "{text}");
    }
    for text in ["", "0o", "+600", "rw", "0900", "1777", "99999999999999"] {
        assert!(text.parse::<SocketMode>().is_err(), "{text}");
    }
    assert_eq!(SocketMode::default().to_string(), "0600");
}

#[tokio::test]
async fn an_error_reads_as_one_sentence() {
    let place = Place::new();
    let _first = place.bind().unwrap();
    let error = place.bind().unwrap_err();
    let wanted = format!("{} is already served by process {}", place.path.display(), std::process::id());
    assert_eq!(error.to_string(), wanted);
}
