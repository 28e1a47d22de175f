//! Reservations of money, which all workers share.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta};
use tamma_core::budget::{RunGrant, SpendLimit};
use tamma_core::cost::{Cost, Tokens, Usage, Usd};
use tamma_core::task_loop::{JobKind, JobUsage, Timestamp};
use tamma_store::{
    EarlierUsage, EndedRun, ModelCall, NewRun, ReservationRequest, RunEnd, RunNumber, RunUpdate,
    Store,
};
use tamma_testkit::postgres::TestDatabase;

use crate::recorded_task::{PROJECT, RecordedTask, quick, register};

const FIRST: RunNumber = RunNumber { job_number: 3, attempt: 1 };
const SECOND: RunNumber = RunNumber { job_number: 3, attempt: 2 };

async fn fresh() -> (TestDatabase, Store) {
    let database = TestDatabase::fresh().await.expect("test database");
    let store = database.store().await.expect("connection");
    register(&store).await;
    (database, store)
}

async fn stored_task(store: &Store, number: u128) -> RecordedTask {
    let recorded = RecordedTask::new(number, quick());
    store
        .insert_task(&recorded.task, &recorded.steps[0].1, &recorded.rules)
        .await
        .expect("received");
    recorded
}

fn minute(minutes: i64) -> Timestamp {
    DateTime::UNIX_EPOCH + TimeDelta::days(20_001) + TimeDelta::minutes(minutes)
}

fn usd(cents: u32) -> Usd {
    Usd::from_cents(cents)
}

/// Request with an allowance of $5 and an estimate of $1, for a run whose calls are counted.
fn request(recorded: &RecordedTask, run: RunNumber) -> ReservationRequest {
    ReservationRequest {
        task: recorded.task.id,
        run,
        project: PROJECT,
        provider: "acme".to_owned(),
        allowance: SpendLimit { usd: Some(usd(500)), tokens: Some(1_000) },
        project_usd: None,
        day_usd: None,
        estimate: usd(100),
        is_metered: true,
    }
}

/// Reserves for five minutes. Returns the granted cents; `None` if the run must wait.
async fn reserve(store: &Store, request: &ReservationRequest, at: i64) -> Option<Usd> {
    let times = (minute(at), minute(at + 5));
    match store.reserve_run(request, times).await.expect("a decision").grant {
        RunGrant::Granted(limit) => Some(limit.usd.expect("a limit in dollars")),
        RunGrant::Waiting | RunGrant::Exhausted => None,
    }
}

/// Records the start of a run.
async fn begin(store: &Store, recorded: &RecordedTask, run: RunNumber) {
    let new = NewRun {
        task: recorded.task.id,
        number: run,
        at: minute(0),
        agent: "claude-code".to_owned(),
        model: None,
        tier: None,
        mode: "implement".to_owned(),
        worker: None,
    };
    store.begin_run(&new).await.expect("started");
}

fn ended(at: i64) -> EndedRun {
    let (at, end) = (minute(at), RunEnd::Finished);
    EndedRun { at, end, reason: None, usage: None, transcript: None }
}

/// Records a run with one call, as its worker does.
async fn spend(store: &Store, recorded: &RecordedTask, run: RunNumber, cost: Cost) {
    begin(store, recorded, run).await;
    let update = RunUpdate { calls: vec![call(cost)], ..RunUpdate::default() };
    store.append_run_update(recorded.task.id, run, &update).await.expect("updated");
}

fn call(cost: Cost) -> ModelCall {
    ModelCall {
        sequence: 1,
        at: minute(0),
        model: "large".to_owned(),
        status: 200,
        tokens: Some(Tokens { input: 100, cached: 20, output: 5, ..Tokens::default() }),
        cost,
        first_byte_ms: None,
        took_ms: 1,
        note: None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_that_start_at_once_never_reserve_more_than_the_budget() {
    let (database, _store) = fresh().await;
    let stores = [database.store().await, database.store().await];
    let stores: Vec<_> = stores.into_iter().map(|store| Arc::new(store.expect("store"))).collect();
    let mut asking = Vec::new();
    for number in 0..24_usize {
        let store = stores[number % 2].clone();
        asking.push(tokio::spawn(async move {
            let recorded = RecordedTask::new(number as u128 + 1, quick());
            let request = request(&recorded, FIRST);
            // A third of them has seen the budget of the project, too.
            let project_usd = number.is_multiple_of(3).then(|| usd(1_700));
            let request = ReservationRequest { day_usd: Some(usd(1_800)), project_usd, ..request };
            reserve(&store, &request, 0).await
        }));
    }
    let mut granted = Vec::new();
    for asked in asking {
        granted.extend(asked.await.expect("task ended"));
    }
    let sum = granted.iter().fold(Usd::ZERO, |sum, usd| sum + *usd);
    assert!(sum <= usd(1_800), "{granted:?}");
    assert!(sum >= usd(1_600), "money is left although runs wait: {granted:?}");
    assert!(granted.iter().all(|granted| *granted >= usd(100)), "{granted:?}");
}

#[tokio::test]
async fn a_retried_attempt_gets_only_what_the_earlier_one_left() {
    let (_database, store) = fresh().await;
    let recorded = stored_task(&store, 1).await;
    assert_eq!(reserve(&store, &request(&recorded, FIRST), 0).await, Some(usd(500)));
    spend(&store, &recorded, FIRST, Cost::Known(usd(320))).await;
    let retried = request(&recorded, SECOND);
    assert_eq!(reserve(&store, &retried, 1).await, Some(usd(180)));
    let again = store.reserve_run(&retried, (minute(1), minute(6))).await.expect("a decision");
    let left = SpendLimit { usd: Some(usd(180)), tokens: Some(875) };
    assert_eq!(again.grant, RunGrant::Granted(left), "the same run can ask again");
    spend(&store, &recorded, SECOND, Cost::Known(usd(180))).await;
    let third = RunNumber { attempt: 3, ..SECOND };
    let third = store.reserve_run(&request(&recorded, third), (minute(2), minute(7))).await;
    assert_eq!(third.expect("a decision").grant, RunGrant::Exhausted);
}

#[tokio::test]
async fn an_unknown_cost_counts_as_the_estimate() {
    let (_database, store) = fresh().await;
    let recorded = stored_task(&store, 1).await;
    spend(&store, &recorded, FIRST, Cost::Unknown).await;
    assert_eq!(reserve(&store, &request(&recorded, SECOND), 1).await, Some(usd(400)));
    // A run whose calls nobody counts, and whose agent has not reported anything.
    let other = stored_task(&store, 2).await;
    spend(&store, &other, FIRST, Cost::Known(Usd::ZERO)).await;
    let unmetered = ReservationRequest { is_metered: false, ..request(&other, SECOND) };
    assert_eq!(reserve(&store, &unmetered, 1).await, Some(usd(400)));
    assert_eq!(reserve(&store, &request(&other, SECOND), 1).await, Some(usd(500)));
}

#[tokio::test]
async fn a_reservation_is_settled_to_the_real_spend_and_then_replaced_by_the_usage() {
    let (_database, store) = fresh().await;
    let (one, two) = (stored_task(&store, 1).await, stored_task(&store, 2).await);
    let day = |request: ReservationRequest| ReservationRequest {
        day_usd: Some(usd(600)),
        project_usd: Some(usd(600)),
        ..request
    };
    let (first, other) = (day(request(&one, FIRST)), day(request(&two, FIRST)));
    assert_eq!(reserve(&store, &first, 0).await, Some(usd(500)));
    assert_eq!(reserve(&store, &other, 1).await, Some(usd(100)), "exactly its estimate is free");
    begin(&store, &two, FIRST).await;
    store.end_run(two.task.id, FIRST, &ended(1)).await.expect("ended");
    // The last call is recorded with the end of the run, and counts.
    begin(&store, &one, FIRST).await;
    let last = RunUpdate { calls: vec![call(Cost::Known(usd(150)))], ..RunUpdate::default() };
    store.finish_run(one.task.id, FIRST, &last, &ended(1)).await.expect("ended");
    assert_eq!(reserve(&store, &other, 2).await, Some(usd(450)));
    let totals = async || {
        let totals = store.reservations_since(PROJECT, minute(0), minute(2)).await;
        totals.expect("totals")
    };
    assert_eq!(totals().await, (usd(150), usd(450)), "spent without usage, and reserved");
    // The workflow records the usage of the job, which must not count twice.
    let tokens = Tokens { input: 100, cached: 20, output: 5, ..Tokens::default() };
    let usage = Usage { tokens, cost: Cost::Known(usd(150)) };
    let usage = JobUsage { job_number: FIRST.job_number, job: JobKind::Implement, usage };
    store.record_usage(one.task.id, minute(2), &usage).await.expect("recorded");
    assert_eq!(totals().await, (Usd::ZERO, usd(450)));
    assert_eq!(reserve(&store, &other, 3).await, Some(usd(450)));
    let tomorrow = 24 * 60;
    let day_only = ReservationRequest { project_usd: None, ..other };
    assert_eq!(reserve(&store, &day_only, tomorrow).await, Some(usd(500)), "a new day");
}

#[tokio::test]
async fn a_reservation_of_a_dead_worker_expires_and_its_real_spend_stays() {
    let (_database, store) = fresh().await;
    let (one, two) = (stored_task(&store, 1).await, stored_task(&store, 2).await);
    let (first, other) = (request(&one, FIRST), request(&two, FIRST));
    let first = ReservationRequest { day_usd: Some(usd(550)), ..first };
    let other = ReservationRequest { day_usd: Some(usd(550)), ..other };
    assert_eq!(reserve(&store, &first, 0).await, Some(usd(500)));
    spend(&store, &one, FIRST, Cost::Known(usd(150))).await;
    assert_eq!(reserve(&store, &other, 4).await, None, "less than its estimate is free");
    store.renew_reservation(one.task.id, FIRST, minute(8)).await.expect("renewed");
    assert_eq!(reserve(&store, &other, 7).await, None, "the run is alive");
    assert_eq!(reserve(&store, &other, 8).await, Some(usd(400)));
    // The worker was not dead, after all: from now on its run counts again.
    begin(&store, &two, FIRST).await;
    store.end_run(two.task.id, FIRST, &ended(8)).await.expect("ended");
    store.renew_reservation(one.task.id, FIRST, minute(20)).await.expect("renewed");
    assert_eq!(reserve(&store, &other, 9).await, None);
}

#[tokio::test]
async fn a_blocked_provider_and_the_latest_run_are_reported_with_the_decision() {
    let (_database, store) = fresh().await;
    let recorded = stored_task(&store, 1).await;
    let times = (minute(1), minute(6));
    let reserved = store.reserve_run(&request(&recorded, FIRST), times).await.expect("a decision");
    assert_eq!((reserved.blocked_until, reserved.latest_run), (None, None));
    spend(&store, &recorded, FIRST, Cost::Known(usd(1))).await;
    store.block_provider("acme", minute(9)).await.expect("blocked");
    let second = request(&recorded, SECOND);
    let refused = store.reserve_run(&second, times).await.expect("a decision");
    assert_eq!(refused.blocked_until, Some(minute(9)));
    let latest = store.latest_run(recorded.task.id).await.expect("read");
    assert_eq!(
        (latest.as_ref().map(|run| run.number), &refused.latest_run),
        (Some(FIRST), &latest)
    );
    let reserved = store.reservations_since(PROJECT, minute(0), minute(2)).await.expect("totals").1;
    assert_eq!(reserved, usd(500), "only the first attempt has a reservation");
}

#[tokio::test]
async fn an_attempt_that_nobody_metered_costs_its_estimate() {
    let (_database, store) = fresh().await;
    for (is_metered, has_session, is_estimated) in
        [(false, true, true), (false, false, false), (true, true, false)]
    {
        let number = 1 + 2 * u128::from(is_metered) + u128::from(has_session);
        let recorded = stored_task(&store, number).await;
        let task = recorded.task.id;
        for run in [FIRST, SECOND] {
            begin(&store, &recorded, run).await;
            let request = ReservationRequest { is_metered, ..request(&recorded, run) };
            reserve(&store, &request, 0).await.expect("granted");
            // The worker of the first attempt died before the agent reported anything.
            let session = has_session.then(|| "s-1".to_owned());
            let update = RunUpdate { session, ..RunUpdate::default() };
            store.append_run_update(task, run, &update).await.expect("updated");
        }
        let earlier = store.earlier_usage(task, SECOND, 2).await.expect("read");
        let usage = Usage { cost: Cost::Known(usd(100)), ..Usage::default() };
        let expected = EarlierUsage { usage, is_estimated: true };
        assert_eq!(earlier, is_estimated.then_some(expected), "{is_metered} {has_session}");
    }
}
