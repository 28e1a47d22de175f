//! Leases and provider blocks that all workers share.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta};
use tamma_core::failure::FailureKind;
use tamma_core::run_queue::WaitingRun;
use tamma_core::task::Priority;
use tamma_core::task_loop::{State, Timestamp};
use tamma_store::{Lease, Store};
use tamma_testkit::postgres::TestDatabase;

use crate::recorded_task::{RecordedTask, quick, register};
use crate::world::failure;

async fn fresh() -> (TestDatabase, Store) {
    let database = TestDatabase::fresh().await.expect("test database");
    let store = database.store().await.expect("connection");
    register(&store).await;
    (database, store)
}

fn minute(minutes: i64) -> Timestamp {
    DateTime::UNIX_EPOCH + TimeDelta::days(20_000) + TimeDelta::minutes(minutes)
}

fn waiting(holder: &str, priority: Priority, since: i64) -> WaitingRun {
    WaitingRun { holder: holder.to_owned(), priority, since: minute(since) }
}

const ACME: (Lease, &str) = (Lease::Provider, "acme");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_holders_never_exceed_the_limit() {
    let (database, _) = fresh().await;
    let stores = [database.store().await, database.store().await];
    let stores: Vec<_> = stores.into_iter().map(|store| Arc::new(store.expect("store"))).collect();
    let mut asking = Vec::new();
    for number in 0..40 {
        let store = stores[number % 2].clone();
        asking.push(tokio::spawn(async move {
            let run = waiting(&format!("run {number}"), Priority::Medium, 0);
            store.acquire_lease(ACME, &run, 3, (minute(0), minute(1))).await.expect("query result")
        }));
    }
    let mut got = 0;
    for asked in asking {
        got += u32::from(asked.await.expect("task ended"));
    }
    assert_eq!(got, 3);
}

#[tokio::test]
async fn lease_is_free_after_release_or_expiry() {
    let (_database, store) = fresh().await;
    let take = async |holder: &str, at: i64| {
        store
            .acquire_lease(
                ACME,
                &waiting(holder, Priority::Medium, 0),
                1,
                (minute(at), minute(at + 2)),
            )
            .await
            .expect("query result")
    };
    assert!(take("one", 0).await);
    assert!(take("one", 1).await, "a holder keeps its lease");
    assert!(!take("two", 2).await);
    assert!(take("two", 3).await, "the first lease has expired");
    assert_eq!(store.renew_leases("one", minute(9)).await.expect("query result"), 0);
    assert_eq!(store.renew_leases("two", minute(9)).await.expect("query result"), 1);
    assert!(!take("one", 8).await);
    store.release_leases("two").await.expect("released");
    assert!(take("one", 8).await);
    let two = waiting("two", Priority::Medium, 0);
    let other =
        store.acquire_lease((Lease::Project, "acme"), &two, 1, (minute(8), minute(9))).await;
    assert!(other.expect("query result"), "a project with the same key is another resource");
}

#[tokio::test]
async fn provider_block_keeps_the_latest_end() {
    let (_database, store) = fresh().await;
    assert_eq!(store.blocked_until("acme", minute(0)).await.expect("query result"), None);
    store.block_provider("acme", minute(5)).await.expect("held");
    store.block_provider("acme", minute(3)).await.expect("held");
    assert_eq!(
        store.blocked_until("acme", minute(4)).await.expect("query result"),
        Some(minute(5))
    );
    assert_eq!(store.blocked_until("acme", minute(5)).await.expect("query result"), None);
    assert_eq!(store.blocked_until("other", minute(4)).await.expect("query result"), None);
}

#[tokio::test]
async fn step_blocks_a_provider_in_the_same_write() {
    let (_database, store) = fresh().await;
    let mut recorded = RecordedTask::new(1, quick()).until(State::InProgress);
    let until = recorded.now + TimeDelta::hours(5);
    let provider = "acme".parse().expect("name");
    assert!(recorded.done(failure(FailureKind::Quota { provider, until })));
    store
        .insert_task(&recorded.task, &recorded.steps[0].1, &recorded.rules)
        .await
        .expect("received");
    let records = recorded.records();
    let (last, before) = records.split_last().expect("steps");
    store.save_steps(before, &recorded.rules).await.expect("recorded");
    assert_eq!(store.blocked_until("acme", recorded.now).await.expect("query result"), None);
    store.save_steps(std::slice::from_ref(last), &recorded.rules).await.expect("recorded");
    let blocked_until = store
        .blocked_until("acme", recorded.now)
        .await
        .expect("query result")
        .expect("provider is blocked");
    assert!(
        (until - blocked_until).abs() < TimeDelta::milliseconds(1),
        "{blocked_until} is not {until}"
    );
}

#[tokio::test]
async fn a_free_slot_goes_to_the_most_urgent_run_and_nothing_starves() {
    let (_database, store) = fresh().await;
    let ask = async |run: &WaitingRun, at: i64| {
        let times = (minute(at), minute(at + 5));
        store.acquire_lease(ACME, run, 1, times).await.expect("query result")
    };
    let holder = waiting("holder", Priority::Low, 0);
    let (low, high) = (waiting("low", Priority::Low, 0), waiting("high", Priority::High, 1));
    assert!(ask(&holder, 0).await);
    assert!(!ask(&low, 0).await);
    assert!(!ask(&high, 1).await);
    store.release_leases("holder").await.expect("released");
    assert!(!ask(&low, 1).await, "the more urgent run comes first");
    assert!(ask(&high, 1).await);
    assert!(ask(&high, 1).await, "a holder does not queue");
    store.release_leases("high").await.expect("released");
    // Two steps of ageing later, a new urgent run has the same rank and has waited less.
    let newer = waiting("newer", Priority::High, 20);
    let busy = waiting("busy", Priority::Critical, 20);
    assert!(ask(&busy, 21).await);
    assert!(!ask(&low, 21).await);
    assert!(!ask(&newer, 21).await);
    store.release_leases("busy").await.expect("released");
    assert!(!ask(&newer, 21).await, "the old run has aged");
    assert!(ask(&low, 21).await);
}

#[tokio::test]
async fn a_run_that_no_longer_asks_keeps_no_place() {
    let (_database, store) = fresh().await;
    let ask = async |run: &WaitingRun, at: i64| {
        let times = (minute(at), minute(at + 1));
        store.acquire_lease(ACME, run, 1, times).await.expect("query result")
    };
    let (gone, other) =
        (waiting("gone", Priority::Critical, 0), waiting("other", Priority::Low, 0));
    assert!(ask(&waiting("holder", Priority::Low, 0), 0).await);
    assert!(!ask(&gone, 0).await);
    assert!(!ask(&other, 1).await, "the first lease lasts until now, and `gone` comes first");
    assert!(ask(&other, 3).await, "`gone` has not asked for more than a lease duration");
}
