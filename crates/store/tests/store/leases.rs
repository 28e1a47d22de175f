//! Leases and provider blocks that all workers share.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta};
use sqlx::{Connection as _, Executor as _, PgConnection};
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

const ACME: (Lease, &str) = (Lease::Provider, "acme");

/// Store in whose leases and queues time passes as a test wants.
struct PassingTime {
    database: TestDatabase,
    store: Store,
    start: Timestamp,
    minutes: i64,
}

impl PassingTime {
    async fn start() -> Self {
        let (database, store) = fresh().await;
        let start = store.database_time().await.expect("a time");
        Self { database, store, start, minutes: 0 }
    }

    /// Moves on to a minute: everything stored becomes older.
    async fn move_to(&mut self, minute: i64) {
        let passed = minute - self.minutes;
        let sql = format!(
            "UPDATE leases SET until = until - interval '{passed} minutes';
             UPDATE run_queue SET since = since - interval '{passed} minutes',
                seen_at = seen_at - interval '{passed} minutes'"
        );
        let mut connection = PgConnection::connect(&self.database.url()).await.expect("connection");
        connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(sql))).await.expect("executed");
        connection.close().await.expect("closed");
        self.minutes = minute;
    }

    /// Run that waits since a minute.
    fn run(&self, holder: &str, priority: Priority, since: i64) -> WaitingRun {
        let since = self.start + TimeDelta::minutes(since - self.minutes);
        WaitingRun { holder: holder.to_owned(), priority, since }
    }

    /// Asks for the only slot, for some minutes.
    async fn ask(&self, (holder, priority, since): (&str, Priority, i64), minutes: u64) -> bool {
        let run = self.run(holder, priority, since);
        let lease = self.store.acquire_lease(ACME, &run, 1, Duration::from_mins(minutes));
        lease.await.expect("query result")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_holders_never_exceed_the_limit() {
    let (database, _) = fresh().await;
    let stores = [database.store().await, database.store().await];
    let stores: Vec<_> = stores.into_iter().map(|store| Arc::new(store.expect("store"))).collect();
    let mut asking = Vec::new();
    for number in 0..40 {
        let store = stores[number % 2].clone();
        asking.push(tokio::spawn(async move {
            let holder = format!("run {number}");
            let run = WaitingRun { holder, priority: Priority::Medium, since: minute(0) };
            let lease = store.acquire_lease(ACME, &run, 3, Duration::from_mins(1));
            lease.await.expect("query result")
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
    let mut time = PassingTime::start().await;
    let one = ("one", Priority::Medium, 0);
    let two = ("two", Priority::Medium, 0);
    assert!(time.ask(one, 2).await);
    time.move_to(1).await;
    assert!(time.ask(one, 2).await, "a holder keeps its lease");
    time.move_to(2).await;
    assert!(!time.ask(two, 2).await);
    time.move_to(4).await;
    assert!(time.ask(two, 2).await, "the first lease has expired");
    let renew = async |holder: &str| {
        time.store.renew_leases(holder, Duration::from_mins(6)).await.expect("query result")
    };
    assert_eq!(renew("one").await, 0);
    assert_eq!(renew("two").await, 1);
    time.move_to(9).await;
    assert!(!time.ask(one, 2).await);
    time.store.release_leases("two").await.expect("released");
    assert!(time.ask(one, 2).await);
    let two = time.run("two", Priority::Medium, 0);
    let project = (Lease::Project, "acme");
    let other = time.store.acquire_lease(project, &two, 1, Duration::from_mins(1)).await;
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
    let mut time = PassingTime::start().await;
    let (low, high) = (("low", Priority::Low, 0), ("high", Priority::High, 1));
    assert!(time.ask(("holder", Priority::Low, 0), 5).await);
    assert!(!time.ask(low, 5).await);
    time.move_to(1).await;
    assert!(!time.ask(high, 5).await);
    time.store.release_leases("holder").await.expect("released");
    assert!(!time.ask(low, 5).await, "the more urgent run comes first");
    assert!(time.ask(high, 5).await);
    assert!(time.ask(high, 5).await, "a holder does not queue");
    time.store.release_leases("high").await.expect("released");
    // Two steps of ageing later, a new urgent run has the same rank and has waited less.
    time.move_to(21).await;
    let newer = ("newer", Priority::High, 20);
    assert!(time.ask(("busy", Priority::Critical, 20), 5).await);
    assert!(!time.ask(low, 5).await);
    assert!(!time.ask(newer, 5).await);
    time.store.release_leases("busy").await.expect("released");
    assert!(!time.ask(newer, 5).await, "the old run has aged");
    assert!(time.ask(low, 5).await);
}

#[tokio::test]
async fn a_run_that_no_longer_asks_keeps_no_place() {
    let mut time = PassingTime::start().await;
    let other = ("other", Priority::Low, 0);
    assert!(time.ask(("holder", Priority::Low, 0), 2).await);
    assert!(!time.ask(("gone", Priority::Critical, 0), 2).await);
    time.move_to(1).await;
    time.store.release_leases("holder").await.expect("released");
    assert!(!time.ask(other, 2).await, "`gone` comes first");
    time.move_to(3).await;
    assert!(time.ask(other, 2).await, "`gone` has not asked for more than a lease duration");
}
