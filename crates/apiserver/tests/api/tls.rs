//! The server behind TLS: who shows a certificate, who shows none, and who shows one of somebody else.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use apiserver::auth::{Identity, Pki, UnixSeconds};
use apiserver::server::{TlsKeys, serve, tls};
use rustls::pki_types::ServerName;
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::support::{NOW_SECONDS, Server};

/// The code of a GET over HTTP/1.1, or why there was none.
async fn get(
    address: SocketAddr,
    ca: CertificateDer<'static>,
    client: Option<&Identity>,
    path: &str,
) -> Result<u16, String> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(ca).map_err(|error| error.to_string())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let config = match client {
        Some(client) => builder
            .with_client_auth_cert(vec![client.certificate_der()], client.key_der())
            .map_err(|error| error.to_string())?,
        None => builder.with_no_client_auth(),
    };
    let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    let name = ServerName::try_from("localhost").map_err(|error| error.to_string())?;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(name, stream).await.map_err(|error| error.to_string())?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&answer);
    text.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(|| "no answer".to_owned())
}

/// Keys that are valid at the real time: TLS asks the machine's clock, not ours.
fn keys(directory: &std::path::Path) -> Pki {
    #[allow(clippy::disallowed_methods, reason = "TLS checks certificates by the real clock")]
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(NOW_SECONDS, |now| now.as_secs());
    Pki::open(directory, &[], UnixSeconds(i64::try_from(now).unwrap_or_default())).expect("keys can be made")
}

#[tokio::test]
async fn a_certificate_of_ours_is_somebody_none_is_anonymous_and_a_foreign_one_is_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let (pki, foreign) = (keys(&directory.path().join("ours")), keys(&directory.path().join("theirs")));
    let server = Server::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it has an address");
    let keys =
        TlsKeys { chain: vec![pki.server().certificate_der()], key: pki.server().key_der(), client_ca: pki.ca_der() };
    let config = tls(keys).expect("the keys fit");
    let (stop, stopped) = oneshot::channel::<()>();
    let until = async move { drop(stopped.await) };
    let serving = tokio::spawn(serve(listener, config, server.api.service(), until, Duration::from_secs(5)));

    let namespaces = "/api/v1/namespaces";
    assert_eq!(get(address, pki.ca_der(), Some(pki.admin()), namespaces).await, Ok(200));
    assert_eq!(get(address, pki.ca_der(), None, namespaces).await, Ok(403));
    assert_eq!(get(address, pki.ca_der(), None, "/readyz").await, Ok(200));
    assert!(get(address, pki.ca_der(), Some(foreign.admin()), namespaces).await.is_err());
    assert!(get(address, foreign.ca_der(), None, "/readyz").await.is_err(), "the client trusts another authority");

    stop.send(()).expect("the server waits for it");
    serving.await.expect("the server ends").expect("and ends well");
    assert!(get(address, pki.ca_der(), None, "/readyz").await.is_err(), "the port is closed");
}
