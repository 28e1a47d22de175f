//! Databases, repositories and a Temporal server for tests.

use tamma_testkit::Cluster;
use tamma_testkit::postgres::{self, TestDatabase};
use tamma_testkit::repository::Repository;
use tamma_testkit::temporal::{self, TemporalLayout, TemporalServer};

#[tokio::test]
async fn every_test_has_its_own_database() {
    let (one, two) =
        (TestDatabase::fresh().await.expect("one"), TestDatabase::fresh().await.expect("another"));
    assert_ne!(one.url(), two.url());
    let store = one.store().await.expect("connection");
    assert_eq!(store.count_waiting(None).await.expect("tables exist"), 0);
    let url = one.url();
    drop(one);
    assert!(
        tamma_store::Store::connect(&url).await.is_err(),
        "the database is dropped with its guard"
    );
}

#[tokio::test]
async fn concurrent_migrations_succeed() {
    let database = TestDatabase::empty().await.expect("test database");
    let (one, two) =
        (database.store().await.expect("connection"), database.store().await.expect("another"));
    let (first, second) = tokio::join!(one.migrate(), two.migrate());
    first.expect("migrated");
    second.expect("migrated");
    assert_eq!(one.count_waiting(None).await.expect("tables exist"), 0);
}

#[tokio::test]
async fn temporal_can_be_killed_and_restarted() {
    let mut server = TemporalServer::start().await.expect("server started");
    let accepts_connections =
        async |address: String| tokio::net::TcpStream::connect(address).await.is_ok();
    assert!(accepts_connections(server.address()).await);
    server.kill();
    assert!(!accepts_connections(server.address()).await);
    server.restart().await.expect("server restarted");
    assert!(accepts_connections(server.address()).await);
}

#[tokio::test]
async fn killed_postgres_loses_only_uncommitted_data() {
    let mut server = postgres::PostgresServer::start().await.expect("server started");
    let query =
        async |server: &postgres::PostgresServer, sql: &str| server.query("postgres", sql).await;
    query(&server, "CREATE TABLE lines (number int)").await.expect("created");
    query(&server, "INSERT INTO lines VALUES (1)").await.expect("written");
    let mut session = server.session("postgres").expect("session");
    session.run("BEGIN").await.expect("started");
    session.run("INSERT INTO lines VALUES (2)").await.expect("uncommitted");
    server.kill().await.expect("killed");
    assert!(query(&server, "SELECT 1").await.is_err());
    assert!(session.run("COMMIT").await.is_err(), "the session ends with the server");
    server.restart().await.expect("server restarted");
    assert_eq!(query(&server, "SELECT number FROM lines").await.expect("read"), "1");
}

#[tokio::test]
async fn a_promoted_standby_has_what_was_committed_and_the_address() {
    let mut server = postgres::PostgresServer::start().await.expect("server started");
    server.add_standby().await.expect("standby");
    server.query("postgres", "CREATE TABLE lines AS SELECT 1 AS number").await.expect("written");
    let url = server.url("postgres", "postgres");
    server.fail_over().await.expect("promoted");
    assert_eq!(server.url("postgres", "postgres"), url);
    assert_eq!(server.query("postgres", "SELECT number FROM lines").await.expect("read"), "1");
    // It waits for no standby, and can get a new one.
    server.query("postgres", "INSERT INTO lines VALUES (2)").await.expect("written");
    server.add_standby().await.expect("another standby");
    assert!(server.fail_over().await.is_ok());
    assert_eq!(server.query("postgres", "SELECT count(*) FROM lines").await.expect("read"), "2");
}

/// The server is built for `just lab cluster` only.
#[tokio::test]
async fn a_real_temporal_server_keeps_its_data_in_postgresql() {
    if !temporal::is_built() {
        return;
    }
    let layout = TemporalLayout::OneProcess;
    let mut cluster =
        Cluster::builder().temporal_cluster(layout, 4).start().await.expect("cluster started");
    let address = cluster.temporal_address().expect("address");
    temporal::connect(&address).await.expect("connected");
    let nodes = cluster.temporal_cluster_mut().expect("real server").nodes_mut();
    nodes[0].kill().await.expect("killed");
    assert!(temporal::connect(&address).await.is_err());
    nodes[0].restart().await.expect("restarted");
    temporal::connect(&address).await.expect("connected");
    let postgres = cluster.postgres().expect("private server");
    let namespaces = "SELECT count(*) FROM namespaces WHERE name = 'default'";
    assert_eq!(postgres.query("temporal", namespaces).await.expect("read"), "1");
}

#[test]
fn repository_is_clean_and_its_check_passes() {
    let repository = Repository::new().expect("repository");
    assert_eq!(repository.git(&["status", "--porcelain"]).expect("status"), "");
    assert_eq!(repository.check().expect("check"), "ok");
    repository.write("names.txt", "").expect("written");
    assert!(repository.check().is_err());
}
