//! The service behind a socket: TLS, HTTP/1.1 and HTTP/2, bounded in every direction, and a stop that lets answers
//! finish.
//!
//! A client certificate is asked for and never required: who shows none is anonymous until a token says otherwise, and
//! who shows one of somebody else is answered with 401 ([`crate::peer`]).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::http::{ConnectionSeat, Service};
use crate::paced_stream::PacedStream;
use crate::peer::Clients;
use crate::seats::Seats;

/// A connection that has not finished its handshake by then is dropped.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection whose first request has not come this long after the handshake is dropped.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The headers of one request, and their count.
const HEADER_BYTES: usize = 64 * 1024;
const HEADER_COUNT: usize = 128;
/// Streams of one HTTP/2 connection at the same time.
const STREAMS: u32 = 250;
/// What is made of one HTTP/2 answer before its client takes some.
const SEND_BUFFER: usize = 64 * 1024;

/// How much of it at the same time, and for how long at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at the same time: three of four for those that have shown a credential ([`crate::seats`]).
    pub connections: usize,
    /// How long requests may finish after the signal to stop.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 2048, grace: Duration::from_secs(5) }
    }
}

/// How the server speaks TLS, and what it thinks of the certificates of clients.
#[derive(Debug, Clone)]
pub struct Tls {
    config: Arc<rustls::ServerConfig>,
    clients: Clients,
}

/// The keys a TLS server needs.
pub struct TlsKeys {
    /// The server's certificate and those above it.
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
    /// Who signs client certificates.
    pub client_ca: CertificateDer<'static>,
}

impl std::fmt::Debug for TlsKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TlsKeys({} certificates)", self.chain.len())
    }
}

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("the certificate authority for clients cannot be used")]
    ClientCa(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the server's certificate and key cannot be used")]
    ServerKey(#[source] rustls::Error),
}

/// How the server speaks TLS: 1.2 and 1.3 with ring, HTTP/2 preferred.
pub fn tls(keys: TlsKeys) -> Result<Tls, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let clients = Clients::of(keys.client_ca, &provider).map_err(TlsError::ClientCa)?;
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::ServerKey)?
        .with_client_cert_verifier(clients.asker())
        .with_single_cert(keys.chain, keys.key)
        .map_err(TlsError::ServerKey)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Tls { config: Arc::new(config), clients })
}

/// Serves until `stop` is ready. Then readiness fails, watches end, and requests get their grace to finish.
pub async fn serve(
    listener: TcpListener,
    tls: Tls,
    service: Service,
    stop: impl Future<Output = ()>,
    limits: Limits,
) -> io::Result<()> {
    let connections = GracefulShutdown::new();
    let seats = Seats::new(limits.connections);
    let mut stop = std::pin::pin!(stop);
    loop {
        let (stream, address) = tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => (stream, peer.ip()),
                Err(error) => {
                    // Running out of file descriptors passes; spinning on it would not help it to.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        let (tls, watcher) = (tls.clone(), connections.watcher());
        let seat = Arc::new(ConnectionSeat::new(seats.take(address)));
        let service = service.clone().from_address(address).on_seat(Arc::clone(&seat));
        tokio::spawn(async move {
            tokio::select! {
                () = converse(stream, tls, service, watcher, &seat) => {}
                () = seat.seat().revoked() => {
                    tracing::debug!(%address, "a connection made room for another one, or took nothing of an answer");
                }
            }
        });
    }
    drop(listener);
    service.stop();
    if tokio::time::timeout(limits.grace, connections.shutdown()).await.is_err() {
        tracing::warn!("connections were cut at the end of their time");
    }
    Ok(())
}

/// One connection from handshake to end. What goes wrong on it concerns nobody else.
async fn converse(stream: TcpStream, tls: Tls, service: Service, watcher: Watcher, seat: &ConnectionSeat) {
    // Watch events are small and must not wait for more.
    let _ = stream.set_nodelay(true);
    let acceptor = TlsAcceptor::from(tls.config);
    let stream = match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => return tracing::debug!("a TLS handshake took too long"),
    };
    let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let certificate = tls.clients.judge(shown, service.now());
    if let Some(account) = certificate.as_ref().and_then(|certificate| service.account_behind(certificate)) {
        seat.seat().set_known_as(&account);
    }
    let service = service.for_peer(certificate);
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .max_buf_size(HEADER_BYTES)
        .max_headers(HEADER_COUNT)
        .header_read_timeout(Duration::from_secs(30));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(HEADER_BYTES as u32)
        .max_concurrent_streams(STREAMS)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(15));
    let connection = builder
        .serve_connection(TokioIo::new(PacedStream::new(stream)), TowerToHyperService::new(service))
        .into_owned();
    let mut connection = std::pin::pin!(watcher.watch(connection));
    // Before the first request it is not known which HTTP is spoken, and no timeout of either applies.
    let ended = match tokio::time::timeout(FIRST_REQUEST_TIMEOUT, &mut connection).await {
        Ok(ended) => ended,
        Err(_) if !seat.has_asked() => return tracing::debug!("a connection asked for nothing"),
        Err(_) => connection.await,
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
