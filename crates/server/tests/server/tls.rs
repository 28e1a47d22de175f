//! TLS of the API and the pages.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tamma_core::operator::{AcmeSettings, OperatorConfig, TlsFiles, TlsSettings};
use tamma_server::{ApiServer, Error, ServerConfig};
use tamma_testkit::certificates::{AUTHORITY, FIRST, SECOND};
use tamma_testkit::wait_until;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_util::sync::CancellationToken;

use crate::test_server::{OPERATOR_TOKEN, config, fresh_database, temporal_client};

fn write_files(folder: &Path, (certificate, key): (&str, &str)) -> TlsSettings {
    let write = |name: &str, content: &str| {
        let path = folder.join(name);
        std::fs::write(&path, content).expect("written");
        path.display().to_string()
    };
    let (certificate, key) = (write("cert.pem", certificate), write("key.pem", key));
    TlsSettings::Files(TlsFiles { certificate, key })
}

fn config_with(tls: TlsSettings) -> ServerConfig {
    let settings = config("127.0.0.1:0", None);
    let operator = OperatorConfig { tls: Some(tls), ..settings.operator.clone() };
    let public_url = Some("https://localhost".to_owned());
    ServerConfig { operator, public_url, ..settings }
}

/// Returns the certificate that a new connection gets, in DER; `None` if the request fails.
async fn served_certificate(port: u16) -> Option<Vec<u8>> {
    let authority = reqwest::Certificate::from_pem(AUTHORITY.as_bytes()).expect("valid");
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([authority]).tls_info(true);
    let request =
        client.build().expect("client").get(format!("https://localhost:{port}/api/v1/health"));
    let response = request.bearer_auth(OPERATOR_TOKEN).send().await.ok()?;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["strict-transport-security"], "max-age=31536000");
    let info = response.extensions().get::<reqwest::tls::TlsInfo>().expect("TLS");
    info.peer_certificate().map(<[u8]>::to_vec)
}

#[tokio::test]
async fn a_new_certificate_is_used_without_a_restart_and_plain_http_is_refused() {
    let folder = TempDir::new().expect("folder");
    let settings = config_with(write_files(folder.path(), FIRST));
    let (_database, store) = fresh_database().await;
    let server = ApiServer::bind(settings, store, temporal_client().await).await.expect("bound");
    let (port, stop) = (server.address().port(), CancellationToken::new());
    assert_eq!(server.url(), "https://localhost");
    let served = tokio::spawn(server.run(stop.clone()));
    let first = served_certificate(port).await.expect("served");

    let mut plain = TcpStream::connect(("127.0.0.1", port)).await.expect("connected");
    plain.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("sent");
    let mut refusal = String::new();
    plain.read_to_string(&mut refusal).await.expect("response");
    assert!(
        refusal.starts_with("HTTP/1.1 400 ") && refusal.contains("Use an https URL"),
        "{refusal}"
    );

    // A key of another certificate changes nothing.
    std::fs::write(folder.path().join("key.pem"), SECOND.1).expect("written");
    assert_eq!(served_certificate(port).await.expect("served"), first);
    write_files(folder.path(), SECOND);
    wait_until("the new certificate", Duration::from_secs(30), async || {
        Ok(served_certificate(port).await.filter(|now| *now != first))
    })
    .await
    .expect("reloaded");
    stop.cancel();
    served.await.expect("no panic").expect("stopped");
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_is_refused_at_the_start() {
    let folder = TempDir::new().expect("folder");
    let (_database, store) = fresh_database().await;
    let bind = async |settings: ServerConfig| {
        let bound = ApiServer::bind(settings, store.clone(), temporal_client().await).await;
        bound.err().expect("refused")
    };
    let without_url = config_with(write_files(folder.path(), FIRST));
    let without_url = ServerConfig { public_url: None, ..without_url };
    assert!(matches!(bind(without_url).await, Error::TlsWithoutUrl));
    for (certificate, key) in [(FIRST.0, SECOND.1), ("nothing", FIRST.1), (FIRST.0, "nothing")] {
        let settings = config_with(write_files(folder.path(), (certificate, key)));
        assert!(matches!(bind(settings).await, Error::Tls(_)));
    }
    let missing = TlsFiles { certificate: "/nowhere/a.pem".into(), key: "/nowhere/b.pem".into() };
    assert!(matches!(bind(config_with(TlsSettings::Files(missing))).await, Error::Tls(_)));
}

fn acme_settings(cache: &Path) -> TlsSettings {
    TlsSettings::Acme(AcmeSettings {
        // Nobody listens there.
        directory: "https://127.0.0.1:1/directory".to_owned(),
        contact: None,
        ca: None,
        cache: Some(cache.display().to_string()),
    })
}

/// Returns the certificate that an authority gets when it checks a challenge, in DER.
async fn challenge_certificate(port: u16, protocols: &[&[u8]]) -> Option<Vec<u8>> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(AUTHORITY.as_bytes()).expect("valid");
    roots.add(authority).expect("authority");
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let config = config.with_safe_default_protocol_versions().expect("versions");
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("connected");
    let name = ServerName::try_from("localhost").expect("name");
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()?;
    let (_, connection) = stream.get_ref();
    let certificate = connection.peer_certificates()?.first()?.to_vec();
    (connection.alpn_protocol() == Some(&b"acme-tls/1"[..])).then_some(certificate)
}

#[tokio::test]
async fn with_an_authority_the_server_answers_its_challenge_and_serves_once_it_has_a_certificate() {
    let cache = TempDir::new().expect("folder");
    let settings = config_with(acme_settings(cache.path()));
    let (_database, store) = fresh_database().await;
    let server = ApiServer::bind(settings, store, temporal_client().await).await.expect("bound");
    let (port, stop) = (server.address().port(), CancellationToken::new());
    let served = tokio::spawn(server.run(stop.clone()));
    let folders = std::fs::read_dir(cache.path()).expect("folder");
    let folder = folders.map(|entry| entry.expect("entry").path()).next().expect("one authority");

    assert_eq!(served_certificate(port).await, None, "there is no certificate yet");
    assert_eq!(challenge_certificate(port, &[b"acme-tls/1"]).await, None, "no challenge either");
    let pem = |(certificate, key): (&str, &str)| format!("{key}{certificate}");
    let der = |(certificate, _): (&str, &str)| {
        CertificateDer::from_pem_slice(certificate.as_bytes()).expect("valid").to_vec()
    };
    std::fs::write(folder.join("localhost.challenge"), pem(SECOND)).expect("written");
    let shown = challenge_certificate(port, &[b"acme-tls/1"]).await;
    assert_eq!(shown, Some(der(SECOND)));
    // The authority asks for this protocol only.
    assert_eq!(challenge_certificate(port, &[b"acme-tls/1", b"http/1.1"]).await, None);

    std::fs::write(folder.join("localhost.pem"), pem(FIRST)).expect("written");
    let served_now = wait_until("the certificate", Duration::from_secs(30), async || {
        Ok(served_certificate(port).await)
    });
    assert_eq!(served_now.await.expect("served"), der(FIRST));
    assert_eq!(challenge_certificate(port, &[b"acme-tls/1"]).await, Some(der(SECOND)));
    stop.cancel();
    served.await.expect("no panic").expect("stopped");
}

#[tokio::test]
async fn an_authority_needs_a_host_name_and_a_folder() {
    let cache = TempDir::new().expect("folder");
    let (_database, store) = fresh_database().await;
    let bind = async |settings: ServerConfig| {
        let bound = ApiServer::bind(settings, store.clone(), temporal_client().await).await;
        bound.err().expect("refused")
    };
    for url in ["https://192.0.2.1", "https://[2001:db8::1]:8443", "https://a@b"] {
        let settings = config_with(acme_settings(cache.path()));
        let error = bind(ServerConfig { public_url: Some(url.to_owned()), ..settings }).await;
        assert!(matches!(error, Error::AcmeHost(_)), "{url}: {error}");
    }
    let file = cache.path().join("file");
    std::fs::write(&file, "").expect("written");
    let error = bind(config_with(acme_settings(&file))).await;
    assert!(matches!(error, Error::Tls(_)), "{error}");
}
