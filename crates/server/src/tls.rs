//! TLS of the API and the pages.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::serve::Listener;
use tamma_core::ids::Digest;
use tamma_core::operator::TlsFiles;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig as RustlsConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;

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
    #[error("cannot read {path}, which `tls` in operator.yaml names")]
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
}

/// Certificate of the server, which changes with its files.
pub(crate) struct ServerCertificate {
    files: TlsFiles,
    current: RwLock<LoadedCertificate>,
}

#[derive(Clone)]
struct LoadedCertificate {
    /// Hash of both files.
    contents: Digest,
    config: Arc<RustlsConfig>,
}

impl ServerCertificate {
    /// Reads both files.
    pub(crate) fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let current = RwLock::new(read_certificate(&files, None)?);
        Ok(Self { files, current })
    }

    fn current(&self) -> LoadedCertificate {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the files again if they have changed. Returns `true` for a new certificate. With files that
    /// cannot be used, the old one stays.
    fn reload(&self) -> Result<bool, TlsError> {
        let old = self.current();
        let new = read_certificate(&self.files, Some(&old))?;
        let is_new = new.contents != old.contents;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(is_new)
    }

    /// Reads the files whenever they change, for as long as it is polled.
    pub(crate) async fn reload_on_change(&self) {
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
    // Its error could show parts of the key.
    let key = PrivateKeyDer::from_pem_slice(&key)
        .map_err(|_| invalid("there is no private key".to_owned()))?;
    let mut config = RustlsConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| invalid(error.to_string()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(LoadedCertificate { contents, config: Arc::new(config) })
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
        let (config, sender) = (certificate.current().config, sender.clone());
        tokio::spawn(async move {
            match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake(stream, config)).await {
                // The receiver is gone if the server stops.
                Ok(Ok(stream)) => drop(sender.send((stream, client)).await),
                Ok(Err(error)) => tracing::debug!(%client, %error, "TLS handshake failed"),
                Err(_) => tracing::debug!(%client, "TLS handshake timed out"),
            }
        });
    }
}

async fn handshake(
    stream: TcpStream,
    config: Arc<RustlsConfig>,
) -> io::Result<TlsStream<TcpStream>> {
    let mut first = [0];
    if stream.peek(&mut first).await? == first.len() && first != [HANDSHAKE_RECORD] {
        refuse_plain_http(stream).await?;
        return Err(io::Error::other("the client does not speak TLS"));
    }
    TlsAcceptor::from(config).accept(stream).await
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
