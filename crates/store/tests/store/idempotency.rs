//! Steps are written completely, in order, exactly once.

use std::time::Duration;

use chrono::TimeDelta;
use futures_util::TryStreamExt as _;
use tamma_core::history::HistoryEntry;
use tamma_core::metrics::{TimedEntry, compute};
use tamma_core::task_loop::{Action, State, Timestamp};
use tamma_store::{Conflict, Error, Store, TaskChange, WriteOutcome};
use tamma_testkit::postgres::TestDatabase;

use crate::recorded_task::{RecordedTask, careful, quick, random, register};

async fn fresh() -> (TestDatabase, Store) {
    let database = TestDatabase::fresh().await.expect("test database");
    let store = database.store().await.expect("connection");
    register(&store).await;
    (database, store)
}

async fn stored_history(store: &Store, recorded: &RecordedTask) -> Vec<HistoryEntry> {
    let lines = store.history(recorded.task.id, 0, 10_000).await.expect("history");
    lines.into_iter().map(|line| line.entry).collect()
}

async fn write_all(store: &Store, recorded: &RecordedTask) {
    store
        .insert_task(&recorded.task, &recorded.steps[0].1, &recorded.rules)
        .await
        .expect("received");
    for record in recorded.records() {
        let outcome = store.save_steps(&[record], &recorded.rules).await.expect("recorded");
        assert_eq!(outcome, WriteOutcome::Inserted);
    }
}

#[tokio::test]
async fn repeated_step_changes_nothing() {
    let (_database, store) = fresh().await;
    let recorded = RecordedTask::new(1, careful()).until(State::Completed);
    let first = &recorded.steps[0].1;
    for expected in [WriteOutcome::Inserted, WriteOutcome::AlreadyPresent] {
        let outcome =
            store.insert_task(&recorded.task, first, &recorded.rules).await.expect("received");
        assert_eq!(outcome, expected);
    }
    for record in recorded.records() {
        for expected in
            [WriteOutcome::Inserted, WriteOutcome::AlreadyPresent, WriteOutcome::AlreadyPresent]
        {
            let outcome = store
                .save_steps(std::slice::from_ref(&record), &recorded.rules)
                .await
                .expect("recorded");
            assert_eq!(outcome, expected);
        }
    }
    assert_eq!(stored_history(&store, &recorded).await, recorded.log());
    let detail = store.task(recorded.task.id).await.expect("task");
    assert_eq!(detail.task, recorded.task);
    assert_eq!(detail.task_loop.as_ref(), Ok(recorded.it()));
    assert_eq!(store.alerts(recorded.task.id).await.expect("alerts").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writers_store_each_step_once() {
    let (database, store) = fresh().await;
    let recorded = std::sync::Arc::new(random(1, 7));
    store
        .insert_task(&recorded.task, &recorded.steps[0].1, &recorded.rules)
        .await
        .expect("received");
    let mut writers = Vec::new();
    for _ in 0..4 {
        let (store, recorded) = (database.store().await.expect("connection"), recorded.clone());
        writers.push(tokio::spawn(async move {
            let mut now = 0;
            for record in recorded.records() {
                match store.save_steps(&[record], &recorded.rules).await {
                    Ok(WriteOutcome::Inserted) => now += 1,
                    // Another writer was faster, by one step or more.
                    Ok(WriteOutcome::AlreadyPresent)
                    | Err(Error::Conflict(Conflict::StaleStep { .. })) => {}
                    Err(error) => panic!("{error:?}"),
                }
            }
            now
        }));
    }
    let mut written = 0;
    for writer in writers {
        written += writer.await.expect("task ended");
    }
    assert_eq!(written, recorded.steps.len() - 1);
    assert_eq!(stored_history(&store, &recorded).await, recorded.log());
}

#[tokio::test]
async fn stale_steps_and_gaps_are_refused() {
    let (_database, store) = fresh().await;
    let recorded = RecordedTask::new(1, quick()).until(State::Completed);
    let records = recorded.records();
    let task = recorded.task.id;
    let missing = store.save_steps(&records[..1], &recorded.rules).await;
    assert!(matches!(missing, Err(Error::NotFound { .. })), "{missing:?}");
    store
        .insert_task(&recorded.task, &recorded.steps[0].1, &recorded.rules)
        .await
        .expect("received");
    let conflict = |result| match result {
        Err(Error::Conflict(conflict)) => conflict,
        other => panic!("{other:?}"),
    };
    let gap = conflict(store.save_steps(&records[2..3], &recorded.rules).await);
    assert_eq!(gap, Conflict::MissingSteps { task, stored: 0, offered: 3 });
    // Several at once, then overlapping ones, then stale ones.
    store.save_steps(&records[..3], &recorded.rules).await.expect("three steps");
    let overlap = store.save_steps(&records[1..6], &recorded.rules).await.expect("remaining steps");
    assert_eq!(overlap, WriteOutcome::Inserted);
    let older = conflict(store.save_steps(&records[1..2], &recorded.rules).await);
    assert_eq!(older, Conflict::StaleStep { task, stored: 6, offered: 2 });
    let disorder = conflict(
        store.save_steps(&[records[6].clone(), records[8].clone()], &recorded.rules).await,
    );
    assert!(matches!(disorder, Conflict::OutOfOrder(_)));
    assert_eq!(store.task_position(task).await.expect("there").0, 6);
}

#[tokio::test]
async fn an_entry_is_never_earlier_than_the_one_before_it() {
    let (_database, store) = fresh().await;
    let recorded = RecordedTask::new(1, quick()).until(State::Completed);
    let mut records = recorded.records();
    // As if another worker had applied this step at a later time, and had been faster.
    let later: Vec<_> = records[1].entries.iter().map(|entry| entry.sequence).collect();
    let hour = TimeDelta::hours(1);
    for entry in &mut records[1].entries {
        entry.at += hour;
    }
    store
        .insert_task(&recorded.task, &recorded.steps[0].1, &recorded.rules)
        .await
        .expect("received");
    for record in records {
        store.save_steps(&[record], &recorded.rules).await.expect("recorded");
    }
    let mut latest = Timestamp::MIN_UTC;
    let expected = recorded.log().into_iter().map(|mut entry| {
        let at = if later.contains(&entry.sequence) { entry.at + hour } else { entry.at };
        latest = latest.max(at);
        entry.at = latest;
        entry
    });
    assert_eq!(stored_history(&store, &recorded).await, expected.collect::<Vec<_>>());
    assert!(!later.is_empty() && latest > recorded.it().since, "no entry was moved");
}

#[tokio::test]
async fn step_of_a_different_history_is_refused() {
    let (_database, store) = fresh().await;
    let one = RecordedTask::new(1, careful()).until(State::Validated);
    let mut other = RecordedTask::new(1, careful());
    other.ask(Action::Pause);
    other.ask(Action::Resume);
    store.insert_task(&one.task, &one.steps[0].1, &one.rules).await.expect("received");
    store.save_steps(&one.records(), &one.rules).await.expect("recorded");
    while other.steps.len() <= one.steps.len() {
        other.advance();
    }
    let next = other.records().pop().expect("step");
    let refused = store.save_steps(&[next], &other.rules).await;
    assert!(matches!(refused, Err(Error::Conflict(Conflict::DifferentStep { .. }))), "{refused:?}");
}

#[tokio::test]
async fn export_matches_the_entries_of_the_core() {
    let (_database, store) = fresh().await;
    let recorded_tasks: Vec<_> =
        (1..=12u32).map(|number| random(number.into(), u64::from(number) * 977)).collect();
    let mut expected = Vec::new();
    for recorded in &recorded_tasks {
        store
            .insert_task(&recorded.task, &recorded.steps[0].1, &recorded.rules)
            .await
            .expect("received");
        // Writing steps in batches of any size gives the same result.
        for records in recorded.records().chunks(1 + recorded.steps.len() % 5) {
            store.save_steps(records, &recorded.rules).await.expect("recorded");
        }
        let log = recorded.log();
        let of_one: Vec<String> =
            store.export(Some(recorded.task.id)).try_collect().await.expect("exported");
        assert_eq!(read(&of_one), log);
        let detail = store.task(recorded.task.id).await.expect("task");
        assert_eq!(detail.task_loop.as_ref(), Ok(recorded.it()));
        expected.extend(log);
    }
    let all: Vec<String> = store.export(None).try_collect().await.expect("exported");
    assert_eq!(read(&all), expected);
    let metrics = store.metrics(None, recorded_tasks[0].steps[0].0, None).await.expect("figures");
    let ended = recorded_tasks.iter().filter(|recorded| recorded.it().state.is_terminal()).count();
    assert_eq!(metrics.ended, ended as u64);
    // The database counts what the core defines.
    let saved_at: Vec<Timestamp> = all
        .iter()
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
            line["recorded_at"].as_str().expect("a time").parse().expect("a time")
        })
        .collect();
    let timed = expected
        .iter()
        .zip(&saved_at)
        .map(|(entry, recorded_at)| TimedEntry { entry, recorded_at: *recorded_at });
    assert_eq!(metrics, compute(timed));
    assert!(metrics.approval_turnaround_ms.is_some() && metrics.transition_latency_ms.is_some());
}

fn read(lines: &[String]) -> Vec<HistoryEntry> {
    lines.iter().map(|line| serde_json::from_str(line).expect("entry")).collect()
}

#[tokio::test]
async fn nul_character_does_not_block_a_write() {
    let (_database, store) = fresh().await;
    let mut recorded = RecordedTask::new(1, careful());
    assert!(recorded.ask(Action::Cancel { reason: "a\0b \u{1F600}".parse().expect("reason") }));
    write_all(&store, &recorded).await;
    let reason = stored_history(&store, &recorded).await.into_iter().find_map(|entry| entry.reason);
    assert_eq!(reason.as_deref(), Some("a\u{fffd}b \u{1F600}"));
}

#[tokio::test]
async fn changes_are_reported_at_once_and_after_a_lost_connection() {
    let (database, store) = fresh().await;
    let mut changes = store.task_changes().await.expect("subscription");
    let recorded = RecordedTask::new(1, quick()).until(State::Completed);
    write_all(&store, &recorded).await;
    let last = TaskChange { task: recorded.task.id, sequence: recorded.it().entry_count };
    let until = async |changes: &mut tamma_store::TaskChanges, last: TaskChange| {
        while changes.next().await.expect("change") != last {}
    };
    let limit = Duration::from_secs(10);
    tokio::time::timeout(limit, until(&mut changes, last)).await.expect("change in time");

    // All connections are cut, and a step is written before the listener notices.
    let pool = sqlx::PgPool::connect(&database.url()).await.expect("connected");
    let cut = sqlx::query_scalar::<_, i64>(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
           WHERE datname = current_database() AND pid <> pg_backend_pid()",
    );
    assert!(cut.fetch_one(&pool).await.expect("cut") > 0);
    let writer = database.store().await.expect("connection");
    let second = RecordedTask::new(2, quick()).until(State::Completed);
    write_all(&writer, &second).await;
    let last = TaskChange { task: second.task.id, sequence: second.it().entry_count };
    tokio::time::timeout(limit, until(&mut changes, last)).await.expect("change in time");
}
