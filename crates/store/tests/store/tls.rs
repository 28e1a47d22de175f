//! TLS to the database, as its URL asks for it.

use sqlx::{Connection as _, PgConnection};
use tamma_store::Store;
use tamma_testkit::certificates::{AUTHORITY, FIRST};
use tamma_testkit::postgres::PostgresServer;

/// Lets the server write a file of its own, so that it belongs to the right user.
async fn write_file(server: &PostgresServer, name: &str, pem: &str) {
    let lines = pem.trim_end();
    let sql = format!(
        "COPY (SELECT unnest(string_to_array('{lines}', E'\\n'))) TO PROGRAM 'umask 077; cat > {name}'"
    );
    server.query("postgres", &sql).await.expect("written");
}

async fn is_encrypted(url: &str) -> bool {
    let mut connection = PgConnection::connect(url).await.expect("connected");
    sqlx::query_scalar("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
        .fetch_one(&mut connection)
        .await
        .expect("answer")
}

#[tokio::test]
async fn the_url_decides_about_tls_and_the_certificate_is_verified() {
    let mut server = PostgresServer::start().await.expect("server");
    let url = server.url("postgres", "postgres");
    let refused = Store::connect(&format!("{url}?sslmode=require")).await;
    assert!(refused.is_err(), "a server without TLS was accepted");
    write_file(&server, "server.crt", FIRST.0).await;
    write_file(&server, "server.key", FIRST.1).await;
    server.query("postgres", "ALTER SYSTEM SET ssl = on").await.expect("set");
    server.restart().await.expect("restarted");

    let folder = tempfile::tempdir().expect("folder");
    let authority = folder.path().join("ca.pem");
    std::fs::write(&authority, AUTHORITY).expect("written");
    let verified = format!("{url}?sslmode=verify-full&sslrootcert={}", authority.display());
    Store::connect(&verified).await.expect("connected").ping().await.expect("answer");
    assert!(is_encrypted(&verified).await);
    assert!(is_encrypted(&format!("{url}?sslmode=require")).await);
    assert!(!is_encrypted(&format!("{url}?sslmode=disable")).await);
    let unknown = Store::connect(&format!("{url}?sslmode=verify-full")).await;
    assert!(unknown.is_err(), "a certificate of an unknown authority was accepted");
}
