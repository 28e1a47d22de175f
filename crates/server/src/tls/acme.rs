//! Certificate that the server gets from an authority (ACME), and renews.
//!
//! Account, key and certificate are in a folder. Servers that share it share the certificate: the one that
//! holds the lock orders, and each of them answers the authority with the challenge in the folder.

use std::fs::{DirBuilder, File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tamma_connect::acme::{AcmeClient, AcmeError, CHALLENGE_PROTOCOL};
use tamma_core::ids::Digest;
use tamma_core::operator::{AcmeSettings, TlsFiles, WebOrigin};
use tamma_store::Backoff;
use tokio_rustls::rustls::ServerConfig as RustlsConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::ClientHello;
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};

use super::TlsError;
use super::validity::CertificateValidity;
use crate::clock;

/// Maximum time between two looks at the certificate, in case the clock jumps.
const CHECK_INTERVAL: Duration = Duration::from_hours(1);

/// Time between two looks while another server orders.
const LOCKED_INTERVAL: Duration = Duration::from_secs(5);

/// Minimum time between two orders that succeed.
const MIN_INTERVAL: Duration = Duration::from_secs(30);

/// Delay after the first failure. Authorities count failures: Let's Encrypt refuses a sixth one in an hour.
const FIRST_RETRY: Duration = Duration::from_mins(4);

/// Maximum delay after failures.
const MAX_RETRY: Duration = Duration::from_hours(1);

/// Certificate of an authority, in a folder.
pub(super) struct AcmeCertificate {
    client: AcmeClient,
    host: String,
    folder: PathBuf,
}

/// Failure to obtain a certificate, or to keep it.
#[derive(Debug, thiserror::Error)]
enum RenewalError {
    #[error("cannot use {path}; the user of this server must be able to write it")]
    File { path: String, source: io::Error },
    #[error(transparent)]
    Authority(#[from] AcmeError),
    #[error("the certificate authority sent something that is not a certificate")]
    Unusable,
}

impl AcmeCertificate {
    /// Creates the folder, if it is missing. `folder` is used if the settings name none.
    pub(super) fn open(
        settings: &AcmeSettings,
        folder: &Path,
        host: &str,
    ) -> Result<Self, TlsError> {
        let cache = settings.cache.as_ref().map_or_else(|| folder.to_owned(), PathBuf::from);
        let folder = cache.join(folder_name(&settings.directory));
        let created = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        created.map_err(|source| TlsError::Cache { path: folder.display().to_string(), source })?;
        let ca = settings.ca.as_ref().map(|path| {
            std::fs::read(path).map_err(|source| TlsError::Read { path: path.clone(), source })
        });
        let client = AcmeClient::new(settings, ca.transpose()?.as_deref())?;
        Ok(Self { client, host: host.to_owned(), folder })
    }

    /// Returns the file with the key and the certificate. It is one, so that both change at once.
    pub(super) fn files(&self) -> TlsFiles {
        let path = self.certificate_path().display().to_string();
        TlsFiles { certificate: path.clone(), key: path }
    }

    fn certificate_path(&self) -> PathBuf {
        self.folder.join(format!("{}.pem", self.host))
    }

    fn challenge_path(&self) -> PathBuf {
        self.folder.join(format!("{}.challenge", self.host))
    }

    fn account_path(&self) -> PathBuf {
        self.folder.join("account.json")
    }

    /// Obtains and renews the certificate, for as long as it is polled.
    pub(super) async fn keep_valid(&self) {
        let mut backoff = Backoff::new(FIRST_RETRY, MAX_RETRY);
        loop {
            let wait = match self.renew_if_due().await {
                Ok(wait) => {
                    backoff.reset();
                    wait
                }
                Err(error) => {
                    let wait = backoff.next_delay();
                    tracing::error!(
                        host = self.host,
                        error = &error as &dyn std::error::Error,
                        retry_seconds = wait.as_secs(),
                        "failed to obtain a TLS certificate; retrying"
                    );
                    wait
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Orders a certificate if there is none, or if it ends soon. Returns the time until the next look.
    async fn renew_if_due(&self) -> Result<Duration, RenewalError> {
        let wait = self.until_renewal()?;
        if !wait.is_zero() {
            return Ok(wait.min(CHECK_INTERVAL));
        }
        let Some(_lock) = self.lock()? else { return Ok(LOCKED_INTERVAL) };
        // Another server can have been faster.
        let wait = self.until_renewal()?;
        if !wait.is_zero() {
            return Ok(wait.min(CHECK_INTERVAL));
        }
        tracing::info!(host = self.host, "ordering a TLS certificate");
        let ordered = self.order().await;
        if matches!(ordered, Err(RenewalError::Authority(AcmeError::UnknownAccount(_)))) {
            let _ = std::fs::remove_file(self.account_path());
        }
        let pem = ordered?;
        let validity = CertificateValidity::of_pem(pem.as_bytes()).ok_or(RenewalError::Unusable)?;
        write_private(&self.certificate_path(), &pem)?;
        tracing::info!(host = self.host, end = %validity.end, "TLS certificate obtained");
        Ok(validity.until_renewal(clock::now()).clamp(MIN_INTERVAL, CHECK_INTERVAL))
    }

    async fn order(&self) -> Result<String, RenewalError> {
        let account = if let Some(account) = read_if_present(&self.account_path())? {
            account
        } else {
            let account = self.client.register().await?;
            write_private(&self.account_path(), &account)?;
            account
        };
        let path = self.challenge_path();
        let publish = |pem: &str| replace_private(&path, pem);
        let ordered = self.client.order(&account, &self.host, publish).await;
        // The authority has seen it, or never will.
        let _ = std::fs::remove_file(&path);
        Ok(ordered?)
    }

    /// Returns the time until the certificate in the folder has to be replaced; zero if there is none.
    fn until_renewal(&self) -> Result<Duration, RenewalError> {
        let pem = read_if_present(&self.certificate_path())?;
        let validity = pem.and_then(|pem| CertificateValidity::of_pem(pem.as_bytes()));
        Ok(validity.map_or(Duration::ZERO, |validity| validity.until_renewal(clock::now())))
    }

    /// Locks the folder for this process; `None` if another one has locked it. The kernel unlocks it when
    /// the file is closed.
    fn lock(&self) -> Result<Option<File>, RenewalError> {
        let path = self.folder.join("lock");
        let failed = |source| RenewalError::File { path: path.display().to_string(), source };
        let mut options = File::options();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }

    /// Returns the configuration of a connection on which the authority checks the challenge.
    pub(super) fn challenge_config(&self) -> io::Result<Arc<RustlsConfig>> {
        let pem = std::fs::read(self.challenge_path())?;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        let chain = chain.map_err(|error| io::Error::other(error.to_string()))?;
        let key = PrivateKeyDer::from_pem_slice(&pem)
            .map_err(|_| io::Error::other("the challenge has no key"))?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let key = provider.key_provider.load_private_key(key).map_err(io::Error::other)?;
        // Not `with_single_cert`, which refuses extensions that it does not know.
        let certificate = SingleCertAndKey::from(CertifiedKey::new(chain, key));
        let mut config = RustlsConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(certificate));
        config.alpn_protocols = vec![CHALLENGE_PROTOCOL.to_vec()];
        Ok(Arc::new(config))
    }
}

/// Returns `true` if a client wants to check the challenge, and nothing else.
pub(super) fn asks_for_challenge(hello: &ClientHello<'_>) -> bool {
    hello.alpn().is_some_and(|protocols| protocols.eq([CHALLENGE_PROTOCOL]))
}

/// Returns the name of the folder for an authority. Accounts and certificates of another one, such as one for
/// tests, are not used.
fn folder_name(directory: &str) -> String {
    let host = WebOrigin::parse(directory).map(|origin| origin.host().to_owned());
    // An IPv6 address has colons.
    let host = host.unwrap_or_default().replace(':', "_");
    format!("{host}-{}", Digest::of(directory.as_bytes()).short())
}

fn read_if_present(path: &Path) -> Result<Option<String>, RenewalError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(RenewalError::File { path: path.display().to_string(), source }),
    }
}

fn write_private(path: &Path, text: &str) -> Result<(), RenewalError> {
    let failed = |source| RenewalError::File { path: path.display().to_string(), source };
    replace_private(path, text).map_err(failed)
}

fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// Replaces a file at once, by one that only its owner can read.
fn replace_private(path: &Path, text: &str) -> io::Result<()> {
    let temporary = temporary_path(path);
    // One of a process that was killed would keep its permissions.
    let removed = std::fs::remove_file(&temporary);
    removed.or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })?;
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use tamma_testkit::certificates::FIRST;
    use tempfile::TempDir;

    use super::*;

    fn open(cache: &Path, directory: &str) -> AcmeCertificate {
        let settings =
            AcmeSettings { directory: directory.to_owned(), contact: None, ca: None, cache: None };
        AcmeCertificate::open(&settings, cache, "localhost").expect("opened")
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).expect("exists").permissions().mode() & 0o777
    }

    #[tokio::test]
    async fn a_stored_certificate_is_used_and_nothing_is_ordered() {
        let cache = TempDir::new().expect("folder");
        // Nobody listens there.
        let acme = open(cache.path(), "https://127.0.0.1:1/directory");
        assert!(acme.renew_if_due().await.is_err());
        write_private(&acme.certificate_path(), &format!("{}{}", FIRST.1, FIRST.0))
            .expect("written");
        assert_eq!(acme.renew_if_due().await.expect("valid"), CHECK_INTERVAL);
        assert_eq!(acme.files().certificate, acme.files().key);
        // Another authority has its own.
        let other = open(cache.path(), "https://127.0.0.1:1/other");
        assert!(other.renew_if_due().await.is_err());
    }

    #[tokio::test]
    async fn one_of_the_servers_that_share_a_folder_orders() {
        let cache = TempDir::new().expect("folder");
        let [first, second] = [1, 2].map(|_| open(cache.path(), "https://127.0.0.1:1/directory"));
        let lock = first.lock().expect("locked");
        assert!(lock.is_some() && second.lock().expect("no error").is_none());
        assert_eq!(second.renew_if_due().await.expect("waits"), LOCKED_INTERVAL);
        drop(lock);
        assert!(second.lock().expect("no error").is_some());
    }

    #[test]
    fn only_the_owner_reads_the_folder_and_its_files() {
        let cache = TempDir::new().expect("folder");
        let acme = open(&cache.path().join("acme"), "https://[::1]:14000/dir");
        assert_eq!((mode(&acme.folder), mode(&cache.path().join("acme"))), (0o700, 0o700));
        let path = acme.account_path();
        std::fs::write(temporary_path(&path), "from a crash").expect("written");
        write_private(&path, "first").expect("written");
        write_private(&path, "second").expect("written");
        assert_eq!(mode(&path), 0o600);
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "second");
    }

    #[test]
    fn without_a_challenge_there_is_nothing_to_check() {
        let cache = TempDir::new().expect("folder");
        let acme = open(cache.path(), "https://127.0.0.1:1/directory");
        assert!(acme.challenge_config().is_err());
        let challenge = format!("{}{}", FIRST.1, FIRST.0);
        replace_private(&acme.challenge_path(), &challenge).expect("written");
        let config = acme.challenge_config().expect("usable");
        assert_eq!(config.alpn_protocols, [b"acme-tls/1"]);
    }
}
