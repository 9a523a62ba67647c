//! The certificates of TLS clients: anybody may show one, and what it is worth is decided by who signed it.
//!
//! A client with a certificate of somebody else, or one that has expired, gets an answer: 401, as from kube-apiserver,
//! which its user understands better than a broken handshake. TLS itself only makes sure that the client has the key of
//! what it shows. The chain is judged by the server's clock, once per connection; the times of the client's own
//! certificate are looked at again with each request.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::http::PeerCertificate;
use crate::store::UnixMillis;

/// Judges the certificates of clients.
#[derive(Debug, Clone)]
pub(crate) struct Clients(Arc<dyn ClientCertVerifier>);

impl Clients {
    pub(crate) fn of(
        authority: CertificateDer<'static>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let mut roots = RootCertStore::empty();
        roots.add(authority)?;
        let judge = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
            .allow_unauthenticated()
            .build()?;
        Ok(Self(judge))
    }

    /// What a client has shown, if it has shown something: its own certificate first, then those above it.
    pub(crate) fn judge(&self, shown: &[CertificateDer<'static>], now: UnixMillis) -> Option<PeerCertificate> {
        let (own, above) = shown.split_first()?;
        let now = UnixTime::since_unix_epoch(Duration::from_millis(now.0));
        match self.0.verify_client_cert(own, above, now) {
            Ok(_) => Some(PeerCertificate::Ours(own.as_ref().into())),
            Err(error) => {
                tracing::debug!(%error, "a client certificate is not trusted");
                Some(PeerCertificate::Untrusted)
            }
        }
    }

    /// The part that TLS plays in it.
    pub(crate) fn asker(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::new(Asker(Arc::clone(&self.0)))
    }
}

/// Asks for certificates and takes any whose key the client has.
#[derive(Debug)]
struct Asker(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Asker {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
