//! The kit itself.

use tamma_testkit::postgres::{self, Database};
use tamma_testkit::repository::Repository;
use tamma_testkit::temporal::Server;

#[tokio::test]
async fn every_test_has_a_database_of_its_own() {
    let (one, two) =
        (Database::fresh().await.expect("one"), Database::fresh().await.expect("another"));
    assert_ne!(one.url(), two.url());
    let store = one.store().await.expect("a store");
    assert_eq!(store.waiting(None).await.expect("its tables are there"), 0);
    let url = one.url();
    drop(one);
    assert!(tamma_store::Store::connect(&url).await.is_err(), "it is gone with its guard");
}

#[tokio::test]
async fn an_empty_database_is_migrated_by_several_at_once() {
    let database = Database::empty().await.expect("a database");
    let (one, two) =
        (database.store().await.expect("a store"), database.store().await.expect("another"));
    let (first, second) = tokio::join!(one.migrate(), two.migrate());
    first.expect("migrated");
    second.expect("migrated");
    assert_eq!(one.waiting(None).await.expect("its tables are there"), 0);
}

#[tokio::test]
async fn temporal_starts_dies_and_starts_again() {
    let mut server = Server::start().await.expect("it starts");
    let answers = async |address: String| tokio::net::TcpStream::connect(address).await.is_ok();
    assert!(answers(server.address()).await);
    server.kill();
    assert!(!answers(server.address()).await);
    server.restart().await.expect("it starts again");
    assert!(answers(server.address()).await);
}

#[tokio::test]
async fn postgres_dies_with_what_was_not_written_and_starts_again_with_the_rest() {
    let mut server = postgres::Server::start().await.expect("it starts");
    let ask = async |server: &postgres::Server, sql: &str| server.ask("postgres", sql).await;
    ask(&server, "CREATE TABLE lines (number int)").await.expect("made");
    ask(&server, "INSERT INTO lines VALUES (1)").await.expect("written");
    let mut open = server.session("postgres").expect("a session");
    open.run("BEGIN").await.expect("begun");
    open.run("INSERT INTO lines VALUES (2)").await.expect("not written yet");
    server.kill().await.expect("killed");
    assert!(ask(&server, "SELECT 1").await.is_err());
    assert!(open.run("COMMIT").await.is_err(), "the session is gone with the server");
    server.restart().await.expect("it starts again");
    assert_eq!(ask(&server, "SELECT number FROM lines").await.expect("read"), "1");
}

#[test]
fn the_repository_is_clean_and_its_check_passes() {
    let repository = Repository::new().expect("a repository");
    assert_eq!(repository.git(&["status", "--porcelain"]).expect("a status"), "");
    assert_eq!(repository.check().expect("a check"), "ok");
    repository.write("names.txt", "").expect("written");
    assert!(repository.check().is_err());
}
