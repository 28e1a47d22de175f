//! Every step is written once, in its order, whole.

use std::time::Duration;

use futures_util::TryStreamExt as _;
use tamma_core::log::Entry;
use tamma_core::task_loop::{Action, State};
use tamma_store::{Change, Conflict, Error, Store, Written};
use tamma_testkit::postgres::Database;

use crate::tape::{Tape, careful, quick, random, register};

async fn fresh() -> (Database, Store) {
    let database = Database::fresh().await.expect("a database");
    let store = database.store().await.expect("a store");
    register(&store).await;
    (database, store)
}

async fn logged(store: &Store, tape: &Tape) -> Vec<Entry> {
    let lines = store.history(tape.task.id, 0, 10_000).await.expect("a history");
    lines.into_iter().map(|line| line.entry).collect()
}

async fn write_all(store: &Store, tape: &Tape) {
    store.receive(&tape.task, &tape.steps[0].1, &tape.rules).await.expect("received");
    for record in tape.records() {
        let written = store.record(&[record], &tape.rules).await.expect("recorded");
        assert_eq!(written, Written::Now);
    }
}

#[tokio::test]
async fn a_step_that_is_written_again_changes_nothing() {
    let (_database, store) = fresh().await;
    let tape = Tape::new(1, careful()).until(State::Completed);
    let first = &tape.steps[0].1;
    for expected in [Written::Now, Written::Before] {
        let written = store.receive(&tape.task, first, &tape.rules).await.expect("received");
        assert_eq!(written, expected);
    }
    for record in tape.records() {
        for expected in [Written::Now, Written::Before, Written::Before] {
            let written = store.record(&[record], &tape.rules).await.expect("recorded");
            assert_eq!(written, expected);
        }
    }
    assert_eq!(logged(&store, &tape).await, tape.log());
    let whole = store.task(tape.task.id).await.expect("the task");
    assert_eq!(whole.task, tape.task);
    assert_eq!(whole.machine.as_ref(), Ok(tape.it()));
    assert_eq!(store.alerts(tape.task.id).await.expect("alerts").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_writers_of_the_same_steps_write_them_once() {
    let (database, store) = fresh().await;
    let tape = std::sync::Arc::new(random(1, 7));
    store.receive(&tape.task, &tape.steps[0].1, &tape.rules).await.expect("received");
    let mut writers = Vec::new();
    for _ in 0..4 {
        let (store, tape) = (database.store().await.expect("a store"), tape.clone());
        writers.push(tokio::spawn(async move {
            let mut now = 0;
            for record in tape.records() {
                match store.record(&[record], &tape.rules).await {
                    Ok(Written::Now) => now += 1,
                    // Another was quicker, by one step or by more.
                    Ok(Written::Before) | Err(Error::Conflict(Conflict::Older { .. })) => {}
                    Err(error) => panic!("{error:?}"),
                }
            }
            now
        }));
    }
    let mut written = 0;
    for writer in writers {
        written += writer.await.expect("it ends");
    }
    assert_eq!(written, tape.steps.len() - 1);
    assert_eq!(logged(&store, &tape).await, tape.log());
}

#[tokio::test]
async fn an_older_step_and_a_gap_are_refused() {
    let (_database, store) = fresh().await;
    let tape = Tape::new(1, quick()).until(State::Completed);
    let records = tape.records();
    let task = tape.task.id;
    let missing = store.record(&records[..1], &tape.rules).await;
    assert!(matches!(missing, Err(Error::NotFound { .. })), "{missing:?}");
    store.receive(&tape.task, &tape.steps[0].1, &tape.rules).await.expect("received");
    let conflict = |result| match result {
        Err(Error::Conflict(conflict)) => conflict,
        other => panic!("{other:?}"),
    };
    let gap = conflict(store.record(&records[2..3], &tape.rules).await);
    assert_eq!(gap, Conflict::Gap { task, stored: 0, offered: 3 });
    // Several at once, then some that overlap, then what is over.
    store.record(&records[..3], &tape.rules).await.expect("three at once");
    let overlap = store.record(&records[1..6], &tape.rules).await.expect("the rest of them");
    assert_eq!(overlap, Written::Now);
    let older = conflict(store.record(&records[1..2], &tape.rules).await);
    assert_eq!(older, Conflict::Older { task, stored: 6, offered: 2 });
    let disorder = conflict(store.record(&[records[6], records[8]], &tape.rules).await);
    assert!(matches!(disorder, Conflict::Disorder(_)));
    assert_eq!(store.position(task).await.expect("there").0, 6);
}

#[tokio::test]
async fn a_step_of_another_past_is_refused() {
    let (_database, store) = fresh().await;
    let one = Tape::new(1, careful()).until(State::Validated);
    let mut other = Tape::new(1, careful());
    other.ask(Action::Pause);
    other.ask(Action::Resume);
    store.receive(&one.task, &one.steps[0].1, &one.rules).await.expect("received");
    store.record(&one.records(), &one.rules).await.expect("recorded");
    while other.steps.len() <= one.steps.len() {
        other.well();
    }
    let next = *other.records().last().expect("a step");
    let refused = store.record(&[next], &other.rules).await;
    assert!(matches!(refused, Err(Error::Conflict(Conflict::Different { .. }))), "{refused:?}");
}

#[tokio::test]
async fn the_export_is_what_the_core_wrote_whatever_happened() {
    let (_database, store) = fresh().await;
    let tapes: Vec<_> =
        (1..=12u32).map(|number| random(number.into(), u64::from(number) * 977)).collect();
    let mut expected = Vec::new();
    for tape in &tapes {
        store.receive(&tape.task, &tape.steps[0].1, &tape.rules).await.expect("received");
        // One by one and many at once come to the same.
        for records in tape.records().chunks(1 + tape.steps.len() % 5) {
            store.record(records, &tape.rules).await.expect("recorded");
        }
        let log = tape.log();
        let of_one: Vec<String> =
            store.export(Some(tape.task.id)).try_collect().await.expect("exported");
        assert_eq!(read(&of_one), log);
        let whole = store.task(tape.task.id).await.expect("the task");
        assert_eq!(whole.machine.as_ref(), Ok(tape.it()));
        expected.extend(log);
    }
    let all: Vec<String> = store.export(None).try_collect().await.expect("exported");
    assert_eq!(read(&all), expected);
    let metrics = store.metrics(None, tapes[0].steps[0].0, None).await.expect("figures");
    let ended = tapes.iter().filter(|tape| tape.it().state.is_terminal()).count();
    assert_eq!(metrics.ended, ended as u64);
}

fn read(lines: &[String]) -> Vec<Entry> {
    lines.iter().map(|line| serde_json::from_str(line).expect("an entry")).collect()
}

#[tokio::test]
async fn a_character_that_the_database_has_no_place_for_stops_nothing() {
    let (_database, store) = fresh().await;
    let mut tape = Tape::new(1, careful());
    assert!(tape.ask(Action::Cancel { reason: "a\0b \u{1F600}".parse().expect("a reason") }));
    write_all(&store, &tape).await;
    let reason = logged(&store, &tape).await.into_iter().find_map(|entry| entry.reason);
    assert_eq!(reason.as_deref(), Some("a\u{fffd}b \u{1F600}"));
}

#[tokio::test]
async fn what_is_written_is_told_at_once_and_after_a_lost_connection() {
    let (database, store) = fresh().await;
    let mut changes = store.changes().await.expect("it listens");
    let tape = Tape::new(1, quick()).until(State::Completed);
    write_all(&store, &tape).await;
    let last = Change { task: tape.task.id, sequence: tape.it().entries };
    let until = async |changes: &mut tamma_store::Changes, last: Change| {
        while changes.next().await.expect("a change") != last {}
    };
    let limit = Duration::from_secs(10);
    tokio::time::timeout(limit, until(&mut changes, last)).await.expect("it is told");

    // Every connection is cut, and something is written before it is noticed.
    let pool = sqlx::PgPool::connect(&database.url()).await.expect("connected");
    let cut = sqlx::query_scalar::<_, i64>(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
           WHERE datname = current_database() AND pid <> pg_backend_pid()",
    );
    assert!(cut.fetch_one(&pool).await.expect("cut") > 0);
    let writer = database.store().await.expect("a store");
    let second = Tape::new(2, quick()).until(State::Completed);
    write_all(&writer, &second).await;
    let last = Change { task: second.task.id, sequence: second.it().entries };
    tokio::time::timeout(limit, until(&mut changes, last)).await.expect("it is told");
}
