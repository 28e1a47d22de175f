//! Runs, their log lines and their model calls.

use std::time::Duration;

use chrono::TimeDelta;
use serde_json::json;
use sqlx::PgPool;
use tamma_core::cost::{Cost, Tokens, Usage};
use tamma_core::ids::TaskId;
use tamma_core::tier::Tier;
use tamma_store::{
    EndedRun, Error, LineChange, LineFilter, LineKind, LinePosition, ModelCall, NewLine, NewRun,
    RunEnd, RunNumber, RunUpdate, RunningCall, Store,
};
use tamma_testkit::postgres::TestDatabase;

use crate::recorded_task::{RecordedTask, quick, register};

const FIRST: RunNumber = RunNumber { job_number: 3, attempt: 1 };
const SECOND: RunNumber = RunNumber { job_number: 3, attempt: 2 };

async fn fresh() -> (TestDatabase, Store, RecordedTask) {
    let database = TestDatabase::fresh().await.expect("test database");
    let store = database.store().await.expect("connection");
    register(&store).await;
    let recorded = RecordedTask::new(1, quick());
    store
        .insert_task(&recorded.task, &recorded.steps[0].1, &recorded.rules)
        .await
        .expect("received");
    (database, store, recorded)
}

fn new(recorded: &RecordedTask, number: RunNumber) -> NewRun {
    NewRun {
        task: recorded.task.id,
        number,
        at: recorded.now + TimeDelta::seconds(number.attempt.into()),
        agent: "claude-code".to_owned(),
        model: None,
        tier: Some(Tier::TOP),
        mode: "implement".to_owned(),
        worker: None,
    }
}

fn line(recorded: &RecordedTask, sequence: u64, kind: LineKind, text: &str) -> NewLine {
    let at = recorded.now + TimeDelta::seconds(10 + i64::try_from(sequence).expect("small"));
    NewLine { sequence, at, kind, text: text.to_owned(), data: Some(json!({ "n": sequence })) }
}

fn usage(input: u64, cost: Cost) -> Usage {
    Usage { tokens: Tokens { input, cached: 7, output: 3, ..Tokens::default() }, cost }
}

fn dollars(text: &str) -> Cost {
    Cost::Known(text.parse().expect("money"))
}

async fn texts(
    store: &Store,
    task: TaskId,
    filter: &LineFilter,
    after: LinePosition,
) -> Vec<String> {
    let lines = store.lines(task, filter, after, 100).await.expect("lines");
    lines.into_iter().map(|line| line.text).collect()
}

/// A cost is charged once: to the job, with the usage that its last attempt returns.
#[tokio::test]
async fn earlier_attempts_count_with_their_calls_or_with_what_their_agents_report() {
    let (_database, store, recorded) = fresh().await;
    let task = recorded.task.id;
    let third = RunNumber { attempt: 3, ..FIRST };
    let other_job = RunNumber { job_number: 4, ..FIRST };
    for number in [FIRST, SECOND, third, other_job] {
        store.begin_run(&new(&recorded, number)).await.expect("started");
    }
    assert_eq!(store.earlier_usage(task, third, 3).await.expect("read"), None, "nothing was used");
    let call = ModelCall {
        sequence: 1,
        at: recorded.now,
        model: "large".to_owned(),
        status: 200,
        tokens: Some(Tokens { input: 100, cached: 7, output: 3, ..Tokens::default() }),
        cost: dollars("3"),
        first_byte_ms: None,
        took_ms: 900,
        note: None,
    };
    // The worker died before it saved the sum of the calls.
    let metered = RunUpdate { calls: vec![call], ..RunUpdate::default() };
    // Nobody meters the agent of the second attempt.
    let reported =
        RunUpdate { usage: Some((usage(20, dollars("0.5")), false)), ..RunUpdate::default() };
    store.append_run_update(task, FIRST, &metered).await.expect("updated");
    for number in [SECOND, third, other_job] {
        store.append_run_update(task, number, &reported).await.expect("updated");
    }
    let tokens = Tokens { input: 120, cached: 14, output: 6, ..Tokens::default() };
    let sum = Usage { tokens, cost: dollars("3.5") };
    let earlier = store.earlier_usage(task, third, 3).await.expect("read").expect("usage");
    assert_eq!((earlier.usage, earlier.is_estimated), (sum, true), "an agent reported a part");
    // The end of the first attempt was recovered, with its usage.
    let second = usage(20, dollars("0.5"));
    let earlier = store.earlier_usage(task, third, 1).await.expect("read");
    assert_eq!(earlier.map(|it| it.usage), Some(second));
    // Tokens without a cost are not free.
    let fourth = RunNumber { attempt: 4, ..FIRST };
    store.begin_run(&new(&recorded, fourth)).await.expect("started");
    let unpriced =
        RunUpdate { usage: Some((usage(20, Cost::Unknown), false)), ..RunUpdate::default() };
    store.append_run_update(task, fourth, &unpriced).await.expect("updated");
    let fifth = RunNumber { attempt: 5, ..FIRST };
    let earlier = store.earlier_usage(task, fifth, 5).await.expect("read").expect("usage");
    assert_eq!(earlier.usage.cost, Cost::Unknown);
}

#[tokio::test]
async fn run_is_recorded_and_repeated_updates_are_stored_once() {
    let (_database, store, recorded) = fresh().await;
    let task = recorded.task.id;
    assert_eq!(store.begin_run(&new(&recorded, FIRST)).await.expect("started"), 0);
    let run = store.latest_run(task).await.expect("read").expect("run");
    assert_eq!((run.usage, run.end, run.metered), (None, None, false), "no usage was reported");
    let call = ModelCall {
        sequence: 1,
        // Microsecond precision, as the column stores it.
        at: chrono::DateTime::UNIX_EPOCH + TimeDelta::days(20_000),
        model: "large".to_owned(),
        status: 200,
        tokens: Some(Tokens { input: 100, cached: 7, output: 3, ..Tokens::default() }),
        cost: dollars("0.25"),
        first_byte_ms: Some(120),
        took_ms: 900,
        note: None,
    };
    let unpriced = ModelCall { sequence: 2, cost: Cost::Unknown, tokens: None, ..call.clone() };
    let running = RunningCall { title: "cargo test".to_owned(), kind: None, since: recorded.now };
    let update = RunUpdate {
        lines: vec![
            line(&recorded, 1, LineKind::Said, "hello\0world"),
            line(&recorded, 2, LineKind::Tool, "Edit src/lib.rs"),
        ],
        calls: vec![call.clone(), unpriced.clone()],
        session: Some("s-1".to_owned()),
        model: Some("large".to_owned()),
        usage: Some((usage(100, dollars("0.25")), true)),
        running: Some(vec![running.clone()]),
    };
    for _ in 0..2 {
        store.append_run_update(task, FIRST, &update).await.expect("updated");
    }
    let all =
        store.lines(task, &LineFilter::default(), LinePosition::START, 100).await.expect("lines");
    assert_eq!(all.len(), 2);
    assert_eq!(all[0].text, "hello\u{fffd}world");
    assert_eq!(all[1].position, LinePosition { run: FIRST, sequence: 2 });
    assert_eq!(all[1].data, Some(json!({ "n": 2 })));
    assert_eq!(store.model_calls(task, FIRST).await.expect("calls"), [call, unpriced]);
    let earlier = store.earlier_usage(task, SECOND, 2).await.expect("read");
    assert_eq!(earlier.map(|it| it.usage), Some(usage(100, Cost::Unknown)), "a call has no price");
    assert_eq!(store.earlier_usage(task, FIRST, 1).await.expect("read"), None);
    // An update without usage keeps the earlier one.
    let more = RunUpdate {
        lines: vec![line(&recorded, 3, LineKind::Said, "more")],
        ..RunUpdate::default()
    };
    store.append_run_update(task, FIRST, &more).await.expect("updated");
    let run = store.latest_run(task).await.expect("read").expect("run");
    assert_eq!((run.lines, run.calls, run.session.as_deref()), (3, 2, Some("s-1")));
    assert_eq!((run.usage, run.metered), (Some(usage(100, dollars("0.25"))), true));
    assert_eq!(run.running, [running], "an update without running calls keeps the earlier ones");
    let last = store.last_line(task, FIRST, &[LineKind::Tool]).await.expect("read");
    assert_eq!(last.map(|line| line.position.sequence), Some(2));

    let ended = EndedRun {
        at: recorded.now + TimeDelta::minutes(1),
        end: RunEnd::OverBudget,
        reason: Some("enough".to_owned()),
        usage: Some((usage(120, Cost::Unknown), false)),
        transcript: Some("transcripts/x".to_owned()),
    };
    store.end_run(task, FIRST, &ended).await.expect("ended");
    let run = store.runs(task).await.expect("runs").remove(0);
    assert_eq!((run.end, run.reason.as_deref()), (Some(RunEnd::OverBudget), Some("enough")));
    assert_eq!((run.usage, run.metered), (Some(usage(120, Cost::Unknown)), false));
    assert_eq!(run.transcript.as_deref(), Some("transcripts/x"));
    assert_eq!(run.running, [], "a run that has ended runs nothing");
    // An update for an unknown run is not stored.
    let nobody = store.append_run_update(task, SECOND, &more).await;
    assert!(matches!(nobody, Err(Error::NotFound { .. })), "{nobody:?}");
}

#[tokio::test]
async fn lines_are_ordered_across_runs_and_filtered_by_run_and_kind() {
    let (_database, store, recorded) = fresh().await;
    let task = recorded.task.id;
    for (run, first) in [(FIRST, "one"), (SECOND, "three")] {
        assert_eq!(store.begin_run(&new(&recorded, run)).await.expect("started"), 0);
        let lines = vec![
            line(&recorded, 1, LineKind::Said, first),
            line(&recorded, 2, LineKind::Note, "note"),
        ];
        store
            .append_run_update(task, run, &RunUpdate { lines, ..RunUpdate::default() })
            .await
            .expect("updated");
    }
    let runs = store.runs(task).await.expect("runs");
    assert_eq!(
        runs[0].end,
        Some(RunEnd::Crashed),
        "a later attempt means that the worker was lost"
    );
    assert_eq!(runs[1].end, None);
    let all = LineFilter::default();
    assert_eq!(
        texts(&store, task, &all, LinePosition::START).await,
        ["one", "note", "three", "note"]
    );
    let after = LinePosition { run: FIRST, sequence: 1 };
    assert_eq!(texts(&store, task, &all, after).await, ["note", "three", "note"]);
    let second = LineFilter {
        job_number: Some(3),
        attempt: Some(2),
        kinds: vec![LineKind::Said],
        ..LineFilter::default()
    };
    assert_eq!(texts(&store, task, &second, LinePosition::START).await, ["three"]);
    // Backwards from the end, page by page, and by text in any case.
    let before = async |filter: &LineFilter, before: LinePosition, limit| {
        let lines = store.lines_before(task, filter, before, limit).await.expect("lines");
        lines.into_iter().map(|line| (line.text, line.position)).collect::<Vec<_>>()
    };
    let last = before(&all, LinePosition::END, 3).await;
    let shown: Vec<_> = last.iter().map(|(text, _)| text.as_str()).collect();
    assert_eq!(shown, ["note", "three", "note"]);
    let earlier = before(&all, last[0].1, 3).await;
    assert_eq!(earlier, [("one".to_owned(), LinePosition { run: FIRST, sequence: 1 })]);
    let found = LineFilter { text: Some("HRE".to_owned()), ..LineFilter::default() };
    assert_eq!(before(&found, LinePosition::END, 9).await.len(), 1);
    assert_eq!(texts(&store, task, &found, LinePosition::START).await, ["three"]);
    // An agent that restarts within an attempt continues the numbering.
    assert_eq!(store.begin_run(&new(&recorded, SECOND)).await.expect("started"), 2);
}

/// Waits until no connection of the database has an open transaction.
async fn await_no_transactions(pool: &PgPool) {
    for _ in 0..500 {
        let open = sqlx::query_scalar::<_, i64>(
            "SELECT count(*) FROM pg_stat_activity
             WHERE datname = current_database() AND state LIKE 'idle in transaction%'",
        );
        if open.fetch_one(pool).await.expect("activity") == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("a transaction is still open");
}

/// Runs a future until the others have had a number of turns, and drops it.
async fn interrupt<T>(turns: u32, future: impl Future<Output = T>) {
    let others = async {
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        _ = future => {}
        () = others => {}
    }
}

#[tokio::test]
async fn interrupted_reads_and_writes_leave_no_transaction_open() {
    let (database, store, recorded) = fresh().await;
    let (task, all) = (recorded.task.id, LineFilter::default());
    let pool = PgPool::connect(&database.url()).await.expect("connected");
    for turns in (0..3_000).step_by(15) {
        // Whoever waits may be gone at any time, such as a browser.
        interrupt(turns, store.lines_before(task, &all, LinePosition::END, 10)).await;
        interrupt(turns, store.save_embeddings("m", &[])).await;
        await_no_transactions(&pool).await;
    }
}

#[tokio::test]
async fn old_months_of_lines_are_deleted_and_runs_are_kept() {
    let (_database, store, recorded) = fresh().await;
    let task = recorded.task.id;
    store.begin_run(&new(&recorded, FIRST)).await.expect("started");
    let month = recorded.now.date_naive();
    store.ensure_partitions(month, 1).await.expect("months");
    let early = line(&recorded, 1, LineKind::Said, "early");
    let late = NewLine {
        at: recorded.now + TimeDelta::days(40),
        ..line(&recorded, 2, LineKind::Said, "late")
    };
    let never = NewLine {
        at: recorded.now + TimeDelta::days(400),
        ..line(&recorded, 3, LineKind::Said, "other")
    };
    let lines = vec![early, late, never];
    store
        .append_run_update(task, FIRST, &RunUpdate { lines, ..RunUpdate::default() })
        .await
        .expect("updated");
    assert_eq!(store.delete_lines(recorded.now).await.expect("no month has ended"), 0);
    let over = recorded.now + TimeDelta::days(35);
    assert_eq!(store.delete_lines(over).await.expect("one month has ended"), 1);
    let all = LineFilter::default();
    assert_eq!(texts(&store, task, &all, LinePosition::START).await, ["late", "other"]);
    store.delete_lines(recorded.now + TimeDelta::days(500)).await.expect("all months have ended");
    assert_eq!(texts(&store, task, &all, LinePosition::START).await, Vec::<String>::new());
    assert_eq!(store.runs(task).await.expect("runs").len(), 1);
}

#[tokio::test]
async fn new_lines_and_lost_connections_are_reported() {
    let (database, store, recorded) = fresh().await;
    let task = recorded.task.id;
    let mut changes = store.line_changes().await.expect("subscription");
    store.begin_run(&new(&recorded, FIRST)).await.expect("started");
    let lines = vec![line(&recorded, 1, LineKind::Said, "hello")];
    store
        .append_run_update(task, FIRST, &RunUpdate { lines, ..RunUpdate::default() })
        .await
        .expect("updated");
    let limit = Duration::from_secs(10);
    let change = tokio::time::timeout(limit, changes.next()).await.expect("in time");
    assert_eq!(change.expect("change"), LineChange::Appended(task));
    let pool = sqlx::PgPool::connect(&database.url()).await.expect("connected");
    let cut = sqlx::query_scalar::<_, i64>(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
           WHERE datname = current_database() AND pid <> pg_backend_pid()",
    );
    assert!(cut.fetch_one(&pool).await.expect("cut") > 0);
    let change = tokio::time::timeout(limit, changes.next()).await.expect("in time");
    assert_eq!(change.expect("change"), LineChange::Unknown);
}
