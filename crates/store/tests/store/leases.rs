//! What the workers of a pool share.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta};
use tamma_core::failure::FailureKind;
use tamma_core::task_loop::{State, Timestamp};
use tamma_store::{Lease, Store};
use tamma_testkit::postgres::Database;

use crate::tape::{Tape, quick, register};
use crate::world::failure;

async fn fresh() -> (Database, Store) {
    let database = Database::fresh().await.expect("a database");
    let store = database.store().await.expect("a store");
    register(&store).await;
    (database, store)
}

fn minute(minutes: i64) -> Timestamp {
    DateTime::UNIX_EPOCH + TimeDelta::days(20_000) + TimeDelta::minutes(minutes)
}

const ACME: (Lease, &str) = (Lease::Provider, "acme");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_at_once_as_many_get_a_place_as_there_are() {
    let (database, _) = fresh().await;
    let stores = [database.store().await, database.store().await];
    let stores: Vec<_> = stores.into_iter().map(|store| Arc::new(store.expect("store"))).collect();
    let mut asking = Vec::new();
    for number in 0..40 {
        let store = stores[number % 2].clone();
        asking.push(tokio::spawn(async move {
            let holder = format!("run {number}");
            store.acquire(ACME, &holder, 3, (minute(0), minute(1))).await.expect("asked")
        }));
    }
    let mut got = 0;
    for asked in asking {
        got += u32::from(asked.await.expect("it ends"));
    }
    assert_eq!(got, 3);
}

#[tokio::test]
async fn a_place_is_free_again_when_it_is_given_back_or_its_time_is_over() {
    let (_database, store) = fresh().await;
    let take = async |holder: &str, at: i64| {
        store.acquire(ACME, holder, 1, (minute(at), minute(at + 2))).await.expect("asked")
    };
    assert!(take("one", 0).await);
    assert!(take("one", 1).await, "whoever has a place keeps it");
    assert!(!take("two", 2).await);
    assert!(take("two", 3).await, "the first has not renewed it");
    assert_eq!(store.renew("one", minute(9)).await.expect("asked"), 0);
    assert_eq!(store.renew("two", minute(9)).await.expect("asked"), 1);
    assert!(!take("one", 8).await);
    store.release("two").await.expect("given back");
    assert!(take("one", 8).await);
    let other = store.acquire((Lease::Project, "acme"), "two", 1, (minute(8), minute(9))).await;
    assert!(other.expect("asked"), "a project of that name is something else");
}

#[tokio::test]
async fn a_provider_is_held_for_all_until_the_latest_time_that_was_said() {
    let (_database, store) = fresh().await;
    assert_eq!(store.held("acme", minute(0)).await.expect("asked"), None);
    store.hold("acme", minute(5)).await.expect("held");
    store.hold("acme", minute(3)).await.expect("held");
    assert_eq!(store.held("acme", minute(4)).await.expect("asked"), Some(minute(5)));
    assert_eq!(store.held("acme", minute(5)).await.expect("asked"), None);
    assert_eq!(store.held("other", minute(4)).await.expect("asked"), None);
}

#[tokio::test]
async fn a_step_that_holds_a_provider_holds_it_with_what_it_writes() {
    let (_database, store) = fresh().await;
    let mut tape = Tape::new(1, quick()).until(State::InProgress);
    let until = tape.now + TimeDelta::hours(5);
    let provider = "acme".parse().expect("a name");
    assert!(tape.done(failure(FailureKind::Quota { provider, until })));
    store.receive(&tape.task, &tape.steps[0].1, &tape.rules).await.expect("received");
    let records = tape.records();
    let (last, before) = records.split_last().expect("steps");
    store.record(before, &tape.rules).await.expect("recorded");
    assert_eq!(store.held("acme", tape.now).await.expect("asked"), None);
    store.record(&[*last], &tape.rules).await.expect("recorded");
    let held = store.held("acme", tape.now).await.expect("asked").expect("it is held");
    assert!((until - held).abs() < TimeDelta::milliseconds(1), "{held} is not {until}");
}
