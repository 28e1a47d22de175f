//! TLS of the API and the pages.

use std::path::Path;
use std::time::Duration;

use tamma_core::operator::{OperatorConfig, TlsFiles};
use tamma_server::{ApiServer, Error, ServerConfig};
use tamma_testkit::certificates::{AUTHORITY, FIRST, SECOND};
use tamma_testkit::wait_until;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::test_server::{OPERATOR_TOKEN, config, fresh_database, temporal_client};

fn write_files(folder: &Path, (certificate, key): (&str, &str)) -> TlsFiles {
    let write = |name: &str, content: &str| {
        let path = folder.join(name);
        std::fs::write(&path, content).expect("written");
        path.display().to_string()
    };
    TlsFiles { certificate: write("cert.pem", certificate), key: write("key.pem", key) }
}

fn config_with(tls: TlsFiles) -> ServerConfig {
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
    assert!(matches!(bind(config_with(missing)).await, Error::Tls(_)));
}
