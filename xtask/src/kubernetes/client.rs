//! A small HTTP client for API servers: TLS, keep-alive, and streams for watches.

use std::sync::{Arc, Mutex};

use anyhow::{Context as _, bail};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{Credential, Endpoint};

/// A request. The path holds the query.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Bytes,
}

impl Question {
    pub(crate) fn get(path: &str) -> Self {
        Self::new(Method::GET, path)
    }

    pub(crate) fn new(method: Method, path: &str) -> Self {
        Self { method, path: path.to_owned(), headers: Vec::new(), body: Bytes::new() }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn body(mut self, content_type: &str, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self.header("content-type", content_type)
    }
}

/// A whole answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// An answer whose body comes line by line.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    body: Incoming,
    read: Vec<u8>,
    // Held so that the connection lives as long as the stream.
    _sender: Sender,
}

impl Stream {
    /// The next piece of the body as it came; `None` at its end. Not to be mixed with [`Stream::line`].
    pub(crate) async fn piece(&mut self) -> anyhow::Result<Option<Bytes>> {
        while let Some(frame) = self.body.frame().await {
            if let Ok(data) = frame.context("reading a stream")?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// The next line without its end; `None` when the server has ended the stream.
    pub(crate) async fn line(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.read.drain(..=end).collect();
                line.pop();
                return Ok(Some(line));
            }
            match self.body.frame().await {
                Some(frame) => {
                    if let Ok(data) = frame.context("reading a stream")?.into_data() {
                        self.read.extend_from_slice(&data);
                    }
                }
                None if self.read.is_empty() => return Ok(None),
                None => return Ok(Some(std::mem::take(&mut self.read))),
            }
        }
    }
}

type Sender = SendRequest<Full<Bytes>>;

/// Keeps connections open between requests; any number of requests may run at once.
#[derive(Debug)]
pub(crate) struct Client {
    authority: String,
    token: Option<String>,
    tls: TlsDialer,
    idle: Mutex<Vec<Sender>>,
}

impl Client {
    pub(crate) fn new(endpoint: &Endpoint) -> anyhow::Result<Self> {
        let authority = endpoint.address.strip_prefix("https://").context("the address of an API server is https")?;
        let token = match &endpoint.credential {
            Credential::Token(token) => Some(token.clone()),
            Credential::Certificate { .. } | Credential::Anonymous => None,
        };
        let tls = TlsDialer::new(endpoint)?;
        Ok(Self { authority: authority.to_owned(), token, tls, idle: Mutex::default() })
    }

    /// Sends a request and reads the whole answer.
    pub(crate) async fn ask(&self, question: &Question) -> anyhow::Result<Answer> {
        let (response, sender) = self.send(question).await?;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.context("reading an answer")?.to_bytes();
        if let Ok(mut idle) = self.idle.lock() {
            idle.push(sender);
        }
        Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body })
    }

    /// As [`Client::ask`], but only counts the bytes of the body: for answers whose size is the point.
    pub(crate) async fn weigh(&self, question: &Question) -> anyhow::Result<(u16, usize)> {
        let (response, sender) = self.send(question).await?;
        let (status, mut body, mut bytes) = (response.status().as_u16(), response.into_body(), 0);
        while let Some(frame) = body.frame().await {
            bytes += frame.context("reading an answer")?.data_ref().map_or(0, Bytes::len);
        }
        if let Ok(mut idle) = self.idle.lock() {
            idle.push(sender);
        }
        Ok((status, bytes))
    }

    /// Sends a request whose answer does not end, on a connection of its own.
    pub(crate) async fn stream(&self, question: &Question) -> anyhow::Result<Stream> {
        let (response, sender) = self.send(question).await?;
        let (parts, body) = response.into_parts();
        Ok(Stream { status: parts.status.as_u16(), headers: parts.headers, body, read: Vec::new(), _sender: sender })
    }

    async fn send(&self, question: &Question) -> anyhow::Result<(Response<Incoming>, Sender)> {
        // A connection may have been closed while it was idle; then nothing was sent and another one is as good.
        while let Some(mut sender) = self.idle.lock().ok().and_then(|mut idle| idle.pop()) {
            if sender.ready().await.is_ok() {
                let response = sender.send_request(self.request(question)?).await;
                return Ok((response.with_context(|| describe(question))?, sender));
            }
        }
        let mut sender = self.tls.connect(&self.authority).await?;
        let response = sender.send_request(self.request(question)?).await;
        Ok((response.with_context(|| describe(question))?, sender))
    }

    fn request(&self, question: &Question) -> anyhow::Result<Request<Full<Bytes>>> {
        let mut request = Request::builder().method(question.method.clone()).uri(&question.path);
        request = request.header("host", &self.authority);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in &question.headers {
            request = request.header(name, value);
        }
        request.body(Full::new(question.body.clone())).with_context(|| describe(question))
    }
}

fn describe(question: &Question) -> String {
    format!("{} {}", question.method, question.path)
}

/// Opens TLS connections to one server.
struct TlsDialer {
    connector: TlsConnector,
}

impl std::fmt::Debug for TlsDialer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("TlsDialer")
    }
}

impl TlsDialer {
    fn new(endpoint: &Endpoint) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(endpoint.ca.as_bytes()) {
            roots.add(certificate.context("reading the server's CA")?).context("trusting the server's CA")?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let config = config.with_root_certificates(roots);
        let config = match &endpoint.credential {
            Credential::Certificate { certificate, key } => {
                let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<Vec<_>, _>>();
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).context("reading the client's key")?;
                config.with_client_auth_cert(chain.context("reading the client's certificate")?, key)?
            }
            Credential::Token(_) | Credential::Anonymous => config.with_no_client_auth(),
        };
        Ok(Self { connector: TlsConnector::from(Arc::new(config)) })
    }

    async fn connect(&self, authority: &str) -> anyhow::Result<Sender> {
        let Some((host, _)) = authority.rsplit_once(':') else { bail!("{authority} has no port") };
        let tcp = TcpStream::connect(authority).await.with_context(|| format!("connecting to {authority}"))?;
        tcp.set_nodelay(true)?;
        let name = ServerName::try_from(host.to_owned()).with_context(|| format!("{host} is no server name"))?;
        let stream = self.connector.connect(name, tcp).await.with_context(|| format!("TLS with {authority}"))?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // The task ends with the connection, and the connection with its sender.
        tokio::spawn(connection);
        Ok(sender)
    }
}
