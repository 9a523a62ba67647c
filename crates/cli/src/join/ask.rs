//! The first conversation with a server that only its authority's key is known of.
//!
//! The server sends its authority's certificate along with its own. The one whose key has the hash that the token names is
//! trusted, and nothing else: from there on it is an ordinary connection, and the token is sent over it.

use std::sync::Arc;
use std::time::Duration;

use apiserver::auth::{JoinToken, KeyHash};
use bytes::Bytes;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

const PATIENCE: Duration = Duration::from_secs(15);
const LONGEST_ANSWER: usize = 256 * 1024;

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Server {
    host: String,
    port: u16,
}

impl std::str::FromStr for Server {
    type Err = BadServer;

    fn from_str(text: &str) -> Result<Self, BadServer> {
        let uri: Uri = text.trim_end_matches('/').parse().map_err(|_| BadServer)?;
        let port = uri.port_u16();
        match (uri.scheme_str(), uri.host(), port, uri.path()) {
            (Some("https"), Some(host), Some(port), "" | "/") if !host.is_empty() => {
                Ok(Self { host: host.trim_matches(['[', ']']).to_owned(), port })
            }
            _ => Err(BadServer),
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("it is not the address of a server: write it as `orlop token create` does, such as https://10.0.0.1:6444")]
pub(crate) struct BadServer;

impl Server {
    pub(crate) fn url(&self) -> String {
        let Self { host, port } = self;
        if host.contains(':') { format!("https://[{host}]:{port}") } else { format!("https://{host}:{port}") }
    }
}

/// Why a server did not answer as wished.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    #[error("no connection to {url}: check the address, and that `orlop up` runs there with --serve-machines")]
    Connect { url: String, source: std::io::Error },
    #[error("{url} did not answer within {} s", PATIENCE.as_secs())]
    Slow { url: String },
    #[error("{url} is not the server that the token is from")]
    Tls { url: String, source: std::io::Error },
    #[error("the connection to {url} broke")]
    Broke { url: String, source: hyper::Error },
    #[error("{0}")]
    Refused(String),
    #[error("{url} answered with something else than certificates: is it `orlop up`?")]
    Foreign { url: String },
}

/// Sends a request to join to a server with the token's authority.
pub(crate) async fn join(server: &Server, token: &JoinToken, body: &Value) -> Result<Value, AskError> {
    match tokio::time::timeout(PATIENCE, converse(server, token, body)).await {
        Ok(answer) => answer,
        Err(_) => Err(AskError::Slow { url: server.url() }),
    }
}

async fn converse(server: &Server, token: &JoinToken, body: &Value) -> Result<Value, AskError> {
    let url = server.url();
    let connected = TcpStream::connect((server.host.as_str(), server.port)).await;
    let stream = connected.map_err(|source| AskError::Connect { url: url.clone(), source })?;
    let tls = |source| AskError::Tls { url: url.clone(), source };
    let config = Pinned::config(token.authority()).map_err(|error| tls(std::io::Error::other(error)))?;
    let name = ServerName::try_from(server.host.clone()).map_err(|error| tls(std::io::Error::other(error)))?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(tls)?;
    let broke = |source| AskError::Broke { url: url.clone(), source };
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broke)?;
    let request = Request::post("/orlop/join")
        .header("host", &server.host)
        .header("authorization", format!("Bearer {}", token.credential()))
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.to_string())))
        .map_err(|_| AskError::Foreign { url: url.clone() })?;
    let exchange = async {
        let response = sender.send_request(request).await.map_err(broke)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), LONGEST_ANSWER).collect().await;
        let body = body.map_err(|_| AskError::Foreign { url: url.clone() })?.to_bytes();
        let answer: Value = serde_json::from_slice(&body).map_err(|_| AskError::Foreign { url: url.clone() })?;
        match status {
            StatusCode::CREATED => Ok(answer),
            _ => Err(AskError::Refused(answer["message"].as_str().unwrap_or("the server refused").to_owned())),
        }
    };
    tokio::select! {
        biased;
        answer = exchange => answer,
        ended = connection => match ended {
            Ok(()) => Err(AskError::Foreign { url: url.clone() }),
            Err(error) => Err(broke(error)),
        },
    }
}

/// Trusts servers below the authority with one key.
#[derive(Debug)]
struct Pinned {
    authority: KeyHash,
    provider: Arc<CryptoProvider>,
}

/// Why a server is not trusted.
#[derive(Debug, thiserror::Error)]
#[error(
    "the key of its authority is {}, and the token names {wanted}: check the address, or make a new token there with \
     `orlop token create`", found.map_or_else(|| "not shown".to_owned(), |found| found.to_string())
)]
struct OtherAuthority {
    wanted: KeyHash,
    found: Option<KeyHash>,
}

impl Pinned {
    fn config(authority: KeyHash) -> Result<ClientConfig, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let pinned = Self { authority, provider: Arc::clone(&provider) };
        Ok(ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(pinned))
            .with_no_client_auth())
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        above: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let is_wanted = |shown: &&CertificateDer<'_>| KeyHash::of_certificate(shown) == Some(self.authority);
        let Some(authority) = above.iter().find(is_wanted) else {
            let found = above.last().and_then(|last| KeyHash::of_certificate(last));
            let why = OtherAuthority { wanted: self.authority, found };
            return Err(rustls::Error::Other(OtherError(Arc::new(why))));
        };
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let judge = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&self.provider)).build();
        let judge = judge.map_err(|error| rustls::Error::General(error.to_string()))?;
        judge.verify_server_cert(own, above, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_an_address_with_a_port_and_nothing_else() {
        let server: Server = "https://10.0.0.1:6444/".parse().expect("it is one");
        assert_eq!(server.url(), "https://10.0.0.1:6444");
        let six: Server = "https://[fd00::1]:6444".parse().expect("it is one");
        assert_eq!((six.host.as_str(), six.url().as_str()), ("fd00::1", "https://[fd00::1]:6444"));
        for text in
            ["10.0.0.1:6444", "http://10.0.0.1:6444", "https://10.0.0.1", "https://10.0.0.1:6444/api", "", "https://"]
        {
            assert!(text.parse::<Server>().is_err(), "{text}");
        }
    }
}
