//! Behaviour after a restart of the database server.

use std::time::Duration;

use tamma_store::Store;
use tamma_testkit::postgres::PostgresServer;
use tokio::time::{Instant, sleep_until};

#[tokio::test]
async fn no_statement_fails_after_a_server_restart() {
    let mut server = PostgresServer::start().await.expect("server started");
    let store = Store::connect(&server.url("postgres", "postgres")).await.expect("connection");
    store.migrate().await.expect("tables");
    // Open several connections, all of which the restart breaks.
    let query = || store.count_waiting(None);
    let (one, two, three) = tokio::join!(query(), query(), query());
    assert_eq!((one.expect("one"), two.expect("two"), three.expect("three")), (0, 0, 0));
    let idle_until = Instant::now() + Duration::from_millis(600);
    server.kill().await.expect("killed");
    server.restart().await.expect("server restarted");
    sleep_until(idle_until).await;
    for _ in 0..4 {
        assert_eq!(query().await.expect("statements work after the restart"), 0);
    }
}
