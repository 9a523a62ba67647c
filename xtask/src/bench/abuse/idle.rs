//! Connections that send nothing, all at once, from several addresses. The server has fewer seats than that and closes the
//! others: those are opened again.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

/// Connections that each address opens.
const PER_ADDRESS: usize = 500;
/// How long an attempt to connect may take.
const CONNECTING: Duration = Duration::from_secs(5);
/// Between two looks which connections the server has closed.
const PAUSE: Duration = Duration::from_millis(250);

/// How many connections were tried, opened and held.
#[derive(Debug, Default)]
pub(super) struct IdleCounts {
    tried: AtomicUsize,
    opened: AtomicUsize,
    open: AtomicUsize,
    most_open: AtomicUsize,
}

impl IdleCounts {
    pub(super) fn tried(&self) -> usize {
        self.tried.load(Ordering::Relaxed)
    }

    pub(super) fn opened(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }

    pub(super) fn most_open(&self) -> usize {
        self.most_open.load(Ordering::Relaxed)
    }

    fn open(&self) {
        self.opened.fetch_add(1, Ordering::Relaxed);
        let open = self.open.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_open.fetch_max(open, Ordering::Relaxed);
    }

    fn close(&self, count: usize) {
        self.open.fetch_sub(count, Ordering::Relaxed);
    }
}

/// Keeps this many connections open until then, as far as the server lets it.
pub(super) async fn hold(server: SocketAddr, count: usize, until: Instant, counts: &IdleCounts) {
    let addresses = count.div_ceil(PER_ADDRESS);
    let holders = (0..addresses).map(|number| {
        let share = PER_ADDRESS.min(count - number * PER_ADDRESS);
        // 127.0.0.1 is that of the clients that are measured.
        let last = u8::try_from(number + 2).unwrap_or(u8::MAX);
        hold_from(Ipv4Addr::new(127, 0, 0, last).into(), server, share, until, counts)
    });
    join_all(holders).await;
}

async fn hold_from(from: IpAddr, server: SocketAddr, share: usize, until: Instant, counts: &IdleCounts) {
    let mut open: Vec<TcpStream> = Vec::with_capacity(share);
    while Instant::now() < until {
        let before = open.len();
        open.retain_mut(is_open);
        counts.close(before - open.len());
        let attempts = (open.len()..share).map(|_| connect(from, server, counts));
        open.extend(join_all(attempts).await.into_iter().flatten());
        sleep(PAUSE).await;
    }
    counts.close(open.len());
}

async fn connect(from: IpAddr, server: SocketAddr, counts: &IdleCounts) -> Option<TcpStream> {
    counts.tried.fetch_add(1, Ordering::Relaxed);
    let socket = TcpSocket::new_v4().ok()?;
    socket.bind(SocketAddr::new(from, 0)).ok()?;
    let stream = timeout(CONNECTING, socket.connect(server)).await.ok()?.ok()?;
    counts.open();
    Some(stream)
}

/// Whether the server has not closed a connection on which nothing is ever said.
fn is_open(stream: &mut TcpStream) -> bool {
    let mut byte = [0];
    let mut read = std::pin::pin!(stream.read(&mut byte));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    read.as_mut().poll(&mut context).is_pending()
}
