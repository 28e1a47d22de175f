//! TLS of the API and the pages.

mod acme;
mod validity;

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::serve::Listener;
use tamma_connect::acme::AcmeError;
use tamma_core::ids::Digest;
use tamma_core::operator::{TlsFiles, TlsSettings};
use tamma_telemetry::{Metric, names, registry, to_f64};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::rustls::ServerConfig as RustlsConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::Acceptor;
use tokio_rustls::server::TlsStream;

use self::acme::{AcmeCertificate, asks_for_challenge};
use self::validity::CertificateValidity;
use crate::clock;

/// Time that a client has for a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time between two looks at the files.
const RELOAD_INTERVAL: Duration = Duration::from_secs(2);

/// Connections that wait for the server.
const BACKLOG: usize = 64;

/// First byte of a TLS connection.
const HANDSHAKE_RECORD: u8 = 0x16;

/// Response to clients that speak plain HTTP.
const PLAIN_HTTP_REFUSED: &str = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\
    content-type: text/plain\r\ncontent-length: 48\r\n\r\n\
    This server speaks HTTPS only. Use an https URL.";

/// Failure to use a certificate.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// File that cannot be read.
    #[error(
        "cannot read {path}; check `tls` in operator.yaml, and that the user of this server can read the file"
    )]
    Read {
        /// Path of the file.
        path: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// File without what it should contain, or a key of another certificate.
    #[error(
        "cannot use the certificate {certificate} with the key {key}: {reason}; both must be PEM files, \
         and belong together"
    )]
    Invalid {
        /// Path of the certificate.
        certificate: String,
        /// Path of the key.
        key: String,
        /// Reason, without secrets.
        reason: String,
    },
    /// Folder that cannot be created.
    #[error(
        "cannot create the folder {path} for the certificate; check `cache` of `tls.acme` in operator.yaml, \
         and the permissions of the folder above"
    )]
    Cache {
        /// Path of the folder.
        path: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Authority that cannot be used.
    #[error(transparent)]
    Acme(#[from] AcmeError),
}

/// Certificate of the server, which changes with its files.
pub(crate) struct ServerCertificate {
    files: TlsFiles,
    /// Renewal of the files; `None` if another program renews them.
    acme: Option<AcmeCertificate>,
    /// `None` until the authority has issued the first one.
    current: RwLock<Option<LoadedCertificate>>,
}

#[derive(Clone)]
struct LoadedCertificate {
    /// Hash of both files.
    contents: Digest,
    config: Arc<RustlsConfig>,
    validity: Option<CertificateValidity>,
}

impl ServerCertificate {
    /// Reads both files. With an authority, they can be missing. `folder` is for the files of an authority,
    /// if the settings name no other one, and `host` is the name in its certificate.
    pub(crate) fn open(settings: TlsSettings, folder: &Path, host: &str) -> Result<Self, TlsError> {
        let (files, acme) = match settings {
            TlsSettings::Files(files) => (files, None),
            TlsSettings::Acme(settings) => {
                let acme = AcmeCertificate::open(&settings, folder, host)?;
                (acme.files(), Some(acme))
            }
        };
        let certificate = Self { files, acme, current: RwLock::default() };
        match certificate.reload() {
            Ok(_) => {}
            Err(error) if certificate.acme.is_some() => {
                tracing::warn!(%error, "cannot use the stored TLS certificate; ordering another one");
            }
            Err(error) => return Err(error),
        }
        if is_public(&certificate.files.key) {
            let path = &certificate.files.key;
            tracing::warn!(path, "every user of this machine can read the TLS key; run chmod o-r");
        }
        report_validity(certificate.current().and_then(|current| current.validity));
        Ok(certificate)
    }

    fn current(&self) -> Option<LoadedCertificate> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the files again if they have changed. Returns `true` for a new certificate. With files that
    /// cannot be used, the old one stays.
    fn reload(&self) -> Result<bool, TlsError> {
        let old = self.current();
        let new = match read_certificate(&self.files, old.as_ref()) {
            Err(TlsError::Read { source, .. })
                if self.acme.is_some() && source.kind() == io::ErrorKind::NotFound =>
            {
                return Ok(false);
            }
            new => new?,
        };
        let is_new = old.is_none_or(|old| old.contents != new.contents);
        if is_new {
            report_validity(new.validity);
        }
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(new);
        Ok(is_new)
    }

    /// Reads the files whenever they change, and renews them with an authority, for as long as it is polled.
    pub(crate) async fn keep_current(&self) {
        match &self.acme {
            Some(acme) => {
                // Boxed, because it is large.
                tokio::join!(self.reload_on_change(), Box::pin(acme.keep_valid()));
            }
            None => self.reload_on_change().await,
        }
    }

    /// Reads the files whenever they change, for as long as it is polled.
    async fn reload_on_change(&self) {
        let mut ticks = tokio::time::interval(RELOAD_INTERVAL);
        let mut has_failed = false;
        loop {
            ticks.tick().await;
            match self.reload() {
                Ok(is_new) => {
                    if is_new {
                        tracing::info!(path = self.files.certificate, "TLS certificate reloaded");
                    }
                    has_failed = false;
                }
                // Both files are rarely replaced at the same moment, so the first failure says little.
                Err(error) => {
                    if has_failed {
                        tracing::warn!(%error, "failed to reload the TLS certificate; keeping the old one");
                    }
                    has_failed = true;
                }
            }
        }
    }
}

/// State of the files of a certificate that can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertificateCheck {
    /// Whole days until the certificate expires; `None` if unknown.
    pub days_left: Option<i64>,
    /// Set if every user of the machine can read the key.
    pub is_key_public: bool,
}

/// Reads both files of a certificate, as the server does at its start.
pub fn check_certificate(files: &TlsFiles) -> Result<CertificateCheck, TlsError> {
    let validity = read_certificate(files, None)?.validity;
    let days_left = validity.map(|validity| (validity.end - clock::now()).num_days());
    Ok(CertificateCheck { days_left, is_key_public: is_public(&files.key) })
}

/// Returns `true` if every user of the machine can read a file. The folders above it are not asked.
fn is_public(path: &str) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.mode() & 0o004 != 0)
}

/// Reads a certificate; returns the old one if the files have not changed.
fn read_certificate(
    files: &TlsFiles,
    old: Option<&LoadedCertificate>,
) -> Result<LoadedCertificate, TlsError> {
    let read = |path: &String| {
        std::fs::read(path).map_err(|source| TlsError::Read { path: path.clone(), source })
    };
    let (certificate, key) = (read(&files.certificate)?, read(&files.key)?);
    let contents = Digest::of(&[certificate.as_slice(), b"\0".as_slice(), key.as_slice()].concat());
    if let Some(old) = old.filter(|old| old.contents == contents) {
        return Ok(old.clone());
    }
    let invalid = |reason: String| TlsError::Invalid {
        certificate: files.certificate.clone(),
        key: files.key.clone(),
        reason,
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate).collect();
    let chain = chain.map_err(|error| invalid(error.to_string()))?;
    if chain.is_empty() {
        return Err(invalid("there is no certificate".to_owned()));
    }
    let validity = chain.first().and_then(|certificate| CertificateValidity::of_der(certificate));
    // Its error could show parts of the key.
    let key = PrivateKeyDer::from_pem_slice(&key)
        .map_err(|_| invalid("there is no private key".to_owned()))?;
    let mut config = RustlsConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| invalid(error.to_string()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(LoadedCertificate { contents, config: Arc::new(config), validity })
}

/// Sets the metrics about the certificate. Without one, they are 0.
fn report_validity(validity: Option<CertificateValidity>) {
    let set = |metric: &Metric, seconds: Option<i64>| {
        let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or_default();
        registry().set(metric, &[], to_f64(seconds));
    };
    set(&names::CERTIFICATE_START, validity.map(|validity| validity.start.timestamp()));
    set(&names::CERTIFICATE_EXPIRY, validity.map(|validity| validity.end.timestamp()));
}

/// Listener whose connections have completed a handshake. Slow clients do not delay others.
pub(crate) struct TlsListener {
    address: SocketAddr,
    accepted: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
}

impl TlsListener {
    /// Accepts connections in a task of its own, until the listener is dropped.
    pub(crate) fn new(
        listener: TcpListener,
        address: SocketAddr,
        certificate: Arc<ServerCertificate>,
    ) -> Self {
        let (sender, accepted) = mpsc::channel(BACKLOG);
        tokio::spawn(accept_all(listener, certificate, sender));
        Self { address, accepted }
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.accepted.recv().await {
            Some(accepted) => accepted,
            // The task ends with this listener.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(self.address)
    }
}

async fn accept_all(
    mut listener: TcpListener,
    certificate: Arc<ServerCertificate>,
    sender: mpsc::Sender<(TlsStream<TcpStream>, SocketAddr)>,
) {
    loop {
        let (stream, client) = tokio::select! {
            () = sender.closed() => return,
            accepted = Listener::accept(&mut listener) => accepted,
        };
        let (certificate, sender) = (Arc::clone(&certificate), sender.clone());
        tokio::spawn(async move {
            match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake(stream, &certificate)).await {
                // The receiver is gone if the server stops.
                Ok(Ok(Some(stream))) => drop(sender.send((stream, client)).await),
                Ok(Ok(None)) => tracing::debug!(%client, "ACME challenge answered"),
                Ok(Err(error)) => tracing::debug!(%client, %error, "TLS handshake failed"),
                Err(_) => tracing::debug!(%client, "TLS handshake timed out"),
            }
        });
    }
}

/// Returns a connection for requests; `None` if an authority only wanted to see its challenge.
async fn handshake(
    stream: TcpStream,
    certificate: &ServerCertificate,
) -> io::Result<Option<TlsStream<TcpStream>>> {
    let mut first = [0];
    if stream.peek(&mut first).await? == first.len() && first != [HANDSHAKE_RECORD] {
        refuse_plain_http(stream).await?;
        return Err(io::Error::other("the client does not speak TLS"));
    }
    let started = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
    let is_challenge = asks_for_challenge(&started.client_hello());
    if let Some(acme) = certificate.acme.as_ref().filter(|_| is_challenge) {
        let mut checked = started.into_stream(acme.challenge_config()?).await?;
        // The authority may have closed the connection already.
        let _ = checked.shutdown().await;
        return Ok(None);
    }
    let current = certificate.current();
    let current = current.ok_or_else(|| io::Error::other("there is no certificate yet"))?;
    started.into_stream(current.config).await.map(Some)
}

/// Tells a client of plain HTTP what to do. Nothing of its request is used.
async fn refuse_plain_http(mut stream: TcpStream) -> io::Result<()> {
    // Unread bytes would discard the response.
    let mut unused = [0; 4096];
    let _ = stream.read(&mut unused).await?;
    stream.write_all(PLAIN_HTTP_REFUSED.as_bytes()).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_the_refusal_is_right() {
        let (head, body) = PLAIN_HTTP_REFUSED.split_once("\r\n\r\n").expect("two parts");
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{}", body.len());
    }
}
