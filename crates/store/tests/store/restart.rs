//! A database that was away.

use std::time::Duration;

use tamma_store::Store;
use tamma_testkit::postgres::Server;
use tokio::time::{Instant, sleep_until};

#[tokio::test]
async fn a_restart_of_the_server_costs_a_store_that_rested_no_statement() {
    let mut server = Server::start().await.expect("it starts");
    let store = Store::connect(&server.url("postgres", "postgres")).await.expect("a store");
    store.migrate().await.expect("tables");
    // Several connections, each of which has lost its server afterwards.
    let ask = || store.waiting(None);
    let (one, two, three) = tokio::join!(ask(), ask(), ask());
    assert_eq!((one.expect("one"), two.expect("two"), three.expect("three")), (0, 0, 0));
    let rested = Instant::now() + Duration::from_millis(600);
    server.kill().await.expect("killed");
    server.restart().await.expect("it starts again");
    sleep_until(rested).await;
    for _ in 0..4 {
        assert_eq!(ask().await.expect("no statement is lost"), 0);
    }
}
