//! Connection to Temporal. Every client of a process comes from here, so that all seal what they write.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use tamma_flow::NAMESPACE;
use tamma_keys::Keys;
use tamma_server::ensure_search_attributes;
use temporalio_client::{
    Client, ClientOptions, ClientTlsOptions, Connection, ConnectionOptions, GrpcCompression,
    TlsOptions, Url,
};

use crate::roles::retry_connect;

/// Heading of the options in help texts.
const HEADING: &str = "TLS to Temporal";

/// TLS to Temporal. Any of these switches it on.
#[derive(Debug, Default, Args)]
#[expect(clippy::struct_field_names, reason = "options are named after the fields")]
pub(crate) struct TemporalTlsArgs {
    /// Use TLS to Temporal, with the certificate authorities of this machine
    #[arg(help_heading = HEADING)]
    #[arg(long, env = "TAMMA_TEMPORAL_TLS", hide_env_values = true)]
    #[arg(value_parser = clap::builder::FalseyValueParser::new())]
    temporal_tls: bool,
    /// Certificate authority of Temporal's certificate, in PEM
    #[arg(help_heading = HEADING)]
    #[arg(long, env = "TAMMA_TEMPORAL_TLS_CA", hide_env_values = true, value_name = "FILE")]
    temporal_tls_ca: Option<PathBuf>,
    /// Certificate of this process for Temporal, in PEM (mutual TLS)
    #[arg(help_heading = HEADING)]
    #[arg(long, env = "TAMMA_TEMPORAL_TLS_CERT", hide_env_values = true, value_name = "FILE")]
    #[arg(requires = "temporal_tls_key")]
    temporal_tls_cert: Option<PathBuf>,
    /// Private key of --temporal-tls-cert, in PEM
    #[arg(help_heading = HEADING)]
    #[arg(long, env = "TAMMA_TEMPORAL_TLS_KEY", hide_env_values = true, value_name = "FILE")]
    #[arg(requires = "temporal_tls_cert")]
    temporal_tls_key: Option<PathBuf>,
    /// Name in Temporal's certificate, if it differs from the address
    #[arg(help_heading = HEADING)]
    #[arg(long, env = "TAMMA_TEMPORAL_TLS_SERVER_NAME", hide_env_values = true)]
    #[arg(value_name = "NAME")]
    temporal_tls_server_name: Option<String>,
}

impl TemporalTlsArgs {
    /// File with the private key of this process.
    pub(crate) fn key_file(&self) -> Option<&Path> {
        self.temporal_tls_key.as_deref()
    }

    /// Reads the files; `None` without TLS.
    pub(crate) fn options(&self) -> Result<Option<TlsOptions>> {
        let server_root_ca_cert = self.temporal_tls_ca.as_deref().map(read_pem).transpose()?;
        let client_tls_options = match (&self.temporal_tls_cert, &self.temporal_tls_key) {
            (Some(certificate), Some(key)) => Some(
                ClientTlsOptions::builder()
                    .client_cert(read_pem(certificate)?)
                    .client_private_key(read_pem(key)?)
                    .build(),
            ),
            _ => None,
        };
        let domain = self.temporal_tls_server_name.clone().filter(|name| !name.is_empty());
        let is_on = self.temporal_tls
            || server_root_ca_cert.is_some()
            || client_tls_options.is_some()
            || domain.is_some();
        Ok(is_on.then(|| {
            TlsOptions::builder()
                .maybe_server_root_ca_cert(server_root_ca_cert)
                .maybe_domain(domain)
                .maybe_client_tls_options(client_tls_options)
                .build()
        }))
    }
}

fn read_pem(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Temporal server, and the keys for what is written to it.
pub(crate) struct TemporalTarget {
    pub(crate) address: String,
    pub(crate) tls: Option<TlsOptions>,
    pub(crate) keys: Keys,
}

impl TemporalTarget {
    fn connection_options(&self) -> Result<ConnectionOptions> {
        let Self { address, tls, .. } = self;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url: Url = format!("{scheme}://{address}").parse().with_context(|| {
            format!("invalid Temporal address `{address}`: use a form such as `127.0.0.1:7233`")
        })?;
        Ok(ConnectionOptions::new(url)
            .identity(format!("tamma-{}", std::process::id()))
            .connect_timeout(Duration::from_secs(5))
            // Sealed payloads cannot be compressed, and gzip takes 0.1 ms for each of many small messages.
            .grpc_compression(GrpcCompression::None)
            .maybe_tls_options(tls.clone())
            .build())
    }

    /// Connects, and creates missing search attributes.
    pub(crate) async fn connect(&self) -> Result<Client> {
        let Self { address, tls, keys } = self;
        let options = self.connection_options()?;
        let connection =
            retry_connect(|| Connection::connect(options.clone())).await.with_context(|| {
                let tls = if tls.is_some() { ", the TLS files and names" } else { "" };
                format!(
                    "cannot connect to Temporal at {address} (check `--temporal` or \
                 TAMMA_TEMPORAL_ADDRESS{tls}, and that the server is running)"
                )
            })?;
        let options = ClientOptions::new(NAMESPACE)
            .data_converter(tamma_keys::data_converter(keys.clone()))
            .build();
        let client =
            Client::new(connection, options).context("cannot create the Temporal client")?;
        ensure_search_attributes(&client, NAMESPACE).await.context(
            "cannot create the Temporal search attributes TammaPhase, TammaState, TammaProject, \
             TammaPriority and TammaRisk (type Keyword); ask the Temporal operator to create them",
        )?;
        Ok(client)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use clap::Parser;
    use tamma_keys::KeyRing;
    use tamma_testkit::certificates::{AUTHORITY, FIRST, SECOND};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::crypto::aws_lc_rs;
    use tokio_rustls::rustls::pki_types::pem::PemObject as _;
    use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use tokio_rustls::rustls::server::WebPkiClientVerifier;
    use tokio_rustls::rustls::{RootCertStore, ServerConfig as RustlsConfig};

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        tls: TemporalTlsArgs,
    }

    fn options(arguments: &[&str]) -> Result<Option<TlsOptions>> {
        let arguments = std::iter::once("tamma").chain(arguments.iter().copied());
        Command::try_parse_from(arguments).expect("valid").tls.options()
    }

    #[test]
    fn any_argument_about_tls_switches_it_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, name).expect("written");
            path.display().to_string()
        };
        let (ca, cert, key) = (file("ca"), file("cert"), file("key"));
        assert!(options(&[]).expect("read").is_none());
        assert!(options(&["--temporal-tls"]).expect("read").is_some());
        let name = options(&["--temporal-tls-server-name", "temporal.example.com"]);
        assert_eq!(
            name.expect("read").expect("on").domain.as_deref(),
            Some("temporal.example.com")
        );
        let mutual = ["--temporal-tls-ca", &ca, "--temporal-tls-cert", &cert];
        let mutual = [&mutual[..], &["--temporal-tls-key", &key]].concat();
        let mutual = options(&mutual).expect("read").expect("on");
        assert_eq!(mutual.server_root_ca_cert.as_deref(), Some(&b"ca"[..]));
        let identity = mutual.client_tls_options.expect("given");
        assert_eq!(
            (identity.client_cert, identity.client_private_key),
            (b"cert".to_vec(), b"key".to_vec())
        );
    }

    /// Server that requires a certificate of its clients.
    fn server_config() -> RustlsConfig {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(AUTHORITY.as_bytes()).expect("valid");
        roots.add(authority).expect("added");
        let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
        let certificate = CertificateDer::from_pem_slice(FIRST.0.as_bytes()).expect("valid");
        let key = PrivateKeyDer::from_pem_slice(FIRST.1.as_bytes()).expect("valid");
        let config = RustlsConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().expect("versions");
        let config = config.with_client_cert_verifier(clients.build().expect("verifier"));
        let mut config = config.with_single_cert(vec![certificate], key).expect("certificate");
        config.alpn_protocols = vec![b"h2".to_vec()];
        config
    }

    #[tokio::test]
    async fn temporal_gets_the_certificate_of_the_process() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str, content: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).expect("written");
            path.display().to_string()
        };
        let (ca, cert, key) =
            (file("ca", AUTHORITY), file("cert", SECOND.0), file("key", SECOND.1));
        let arguments = ["--temporal-tls-ca", &ca, "--temporal-tls-cert", &cert];
        let tls = options(&[&arguments[..], &["--temporal-tls-key", &key]].concat());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("address").to_string();
        let keys = Keys::fixed(KeyRing::default());
        let target = TemporalTarget { address, tls: tls.expect("read"), keys };
        let handshake = async {
            let (stream, _) = listener.accept().await.expect("accepted");
            let acceptor = TlsAcceptor::from(Arc::new(server_config()));
            let stream = acceptor.accept(stream).await.expect("a handshake");
            let presented = stream.get_ref().1.peer_certificates().expect("a certificate");
            presented.first().expect("a certificate").as_ref().to_vec()
        };
        let connecting = async {
            // Nobody answers after the handshake.
            drop(Connection::connect(target.connection_options().expect("valid")).await);
            std::future::pending::<()>().await;
        };
        let presented = tokio::select! {
            presented = handshake => presented,
            () = connecting => Vec::new(),
        };
        let expected = CertificateDer::from_pem_slice(SECOND.0.as_bytes()).expect("valid");
        assert_eq!(presented, expected.as_ref());
    }

    #[test]
    fn a_certificate_needs_its_key_and_a_file_that_exists() {
        let alone = Command::try_parse_from(["tamma", "--temporal-tls-cert", "cert.pem"]);
        assert!(alone.is_err());
        let error = options(&["--temporal-tls-ca", "/nowhere/ca.pem"]).expect_err("missing");
        assert!(error.to_string().contains("/nowhere/ca.pem"), "{error}");
    }
}
