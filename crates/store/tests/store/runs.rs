//! Runs, their lines and their model calls.

use std::time::Duration;

use chrono::TimeDelta;
use serde_json::json;
use tamma_core::cost::{Cost, Tokens, Usage};
use tamma_core::ids::TaskId;
use tamma_core::tier::Tier;
use tamma_store::{
    EndedRun, Error, LineChange, LineKind, LinePlace, ModelCall, NewLine, NewRun, News, RunEnd,
    RunNumber, Store, Wanted,
};
use tamma_testkit::postgres::Database;

use crate::tape::{Tape, quick, register};

const FIRST: RunNumber = RunNumber { ticket: 3, attempt: 1 };
const SECOND: RunNumber = RunNumber { ticket: 3, attempt: 2 };

async fn fresh() -> (Database, Store, Tape) {
    let database = Database::fresh().await.expect("a database");
    let store = database.store().await.expect("a store");
    register(&store).await;
    let tape = Tape::new(1, quick());
    store.receive(&tape.task, &tape.steps[0].1, &tape.rules).await.expect("received");
    (database, store, tape)
}

fn new(tape: &Tape, number: RunNumber) -> NewRun {
    NewRun {
        task: tape.task.id,
        number,
        at: tape.now + TimeDelta::seconds(number.attempt.into()),
        agent: "claude-code".to_owned(),
        model: None,
        tier: Some(Tier::TOP),
        mode: "implement".to_owned(),
        worker: None,
    }
}

fn line(tape: &Tape, sequence: u64, kind: LineKind, text: &str) -> NewLine {
    let at = tape.now + TimeDelta::seconds(10 + i64::try_from(sequence).expect("small"));
    NewLine { sequence, at, kind, text: text.to_owned(), data: Some(json!({ "n": sequence })) }
}

fn usage(input: u64, cost: Cost) -> Usage {
    Usage { tokens: Tokens { input, cached: 7, output: 3 }, cost }
}

fn dollars(text: &str) -> Cost {
    Cost::Known(text.parse().expect("money"))
}

async fn texts(store: &Store, task: TaskId, wanted: &Wanted, after: LinePlace) -> Vec<String> {
    let lines = store.lines(task, wanted, after, 100).await.expect("lines");
    lines.into_iter().map(|line| line.text).collect()
}

#[tokio::test]
async fn a_run_begins_grows_and_ends_and_news_that_come_again_are_there_once() {
    let (_database, store, tape) = fresh().await;
    let task = tape.task.id;
    assert_eq!(store.begin_run(&new(&tape, FIRST)).await.expect("begun"), 0);
    let run = store.latest_run(task).await.expect("read").expect("a run");
    assert_eq!((run.usage, run.end, run.metered), (None, None, false), "nobody has said anything");
    let call = ModelCall {
        sequence: 1,
        // To the microsecond, as a column has it.
        at: chrono::DateTime::UNIX_EPOCH + TimeDelta::days(20_000),
        model: "large".to_owned(),
        status: 200,
        tokens: Some(Tokens { input: 100, cached: 7, output: 3 }),
        cost: dollars("0.25"),
        first_byte_ms: Some(120),
        took_ms: 900,
        note: None,
    };
    let unpriced = ModelCall { sequence: 2, cost: Cost::Unknown, tokens: None, ..call.clone() };
    let news = News {
        lines: vec![
            line(&tape, 1, LineKind::Said, "hello\0world"),
            line(&tape, 2, LineKind::Tool, "Edit src/lib.rs"),
        ],
        calls: vec![call.clone(), unpriced.clone()],
        session: Some("s-1".to_owned()),
        model: Some("large".to_owned()),
        usage: Some((usage(100, dollars("0.25")), true)),
    };
    for _ in 0..2 {
        store.tell(task, FIRST, &news).await.expect("told");
    }
    let all = store.lines(task, &Wanted::default(), LinePlace::START, 100).await.expect("lines");
    assert_eq!(all.len(), 2);
    assert_eq!(all[0].text, "hello\u{fffd}world");
    assert_eq!(all[1].place, LinePlace { run: FIRST, sequence: 2 });
    assert_eq!(all[1].data, Some(json!({ "n": 2 })));
    assert_eq!(store.model_calls(task, FIRST).await.expect("calls"), [call, unpriced]);
    let sums = store.metered(task).await.expect("sums");
    assert_eq!((sums[0].calls, sums[0].unknown), (2, 1));
    assert_eq!(sums[0].usage, usage(100, dollars("0.25")));
    // News without usage leave it as it was.
    let more = News { lines: vec![line(&tape, 3, LineKind::Said, "more")], ..News::default() };
    store.tell(task, FIRST, &more).await.expect("told");
    let run = store.latest_run(task).await.expect("read").expect("a run");
    assert_eq!((run.lines, run.calls, run.session.as_deref()), (3, 2, Some("s-1")));
    assert_eq!((run.usage, run.metered), (Some(usage(100, dollars("0.25"))), true));
    let last = store.last_line(task, FIRST, &[LineKind::Tool]).await.expect("read");
    assert_eq!(last.map(|line| line.place.sequence), Some(2));

    let ended = EndedRun {
        at: tape.now + TimeDelta::minutes(1),
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
    // What belongs to no run is not kept.
    let nobody = store.tell(task, SECOND, &more).await;
    assert!(matches!(nobody, Err(Error::NotFound { .. })), "{nobody:?}");
}

#[tokio::test]
async fn lines_go_on_from_run_to_run_and_are_chosen_by_run_and_kind() {
    let (_database, store, tape) = fresh().await;
    let task = tape.task.id;
    for (run, first) in [(FIRST, "one"), (SECOND, "three")] {
        assert_eq!(store.begin_run(&new(&tape, run)).await.expect("begun"), 0);
        let lines =
            vec![line(&tape, 1, LineKind::Said, first), line(&tape, 2, LineKind::Note, "note")];
        store.tell(task, run, &News { lines, ..News::default() }).await.expect("told");
    }
    let runs = store.runs(task).await.expect("runs");
    assert_eq!(runs[0].end, Some(RunEnd::Crashed), "a later attempt means that it is lost");
    assert_eq!(runs[1].end, None);
    let all = Wanted::default();
    assert_eq!(texts(&store, task, &all, LinePlace::START).await, ["one", "note", "three", "note"]);
    let after = LinePlace { run: FIRST, sequence: 1 };
    assert_eq!(texts(&store, task, &all, after).await, ["note", "three", "note"]);
    let second = Wanted { ticket: Some(3), attempt: Some(2), kinds: vec![LineKind::Said] };
    assert_eq!(texts(&store, task, &second, LinePlace::START).await, ["three"]);
    // An agent that is started again within an attempt goes on with the numbers.
    assert_eq!(store.begin_run(&new(&tape, SECOND)).await.expect("begun"), 2);
}

#[tokio::test]
async fn months_of_lines_are_forgotten_when_they_are_old_and_the_run_stays() {
    let (_database, store, tape) = fresh().await;
    let task = tape.task.id;
    store.begin_run(&new(&tape, FIRST)).await.expect("begun");
    let month = tape.now.date_naive();
    store.ensure_partitions(month, 1).await.expect("months");
    let early = line(&tape, 1, LineKind::Said, "early");
    let late =
        NewLine { at: tape.now + TimeDelta::days(40), ..line(&tape, 2, LineKind::Said, "late") };
    let never =
        NewLine { at: tape.now + TimeDelta::days(400), ..line(&tape, 3, LineKind::Said, "other") };
    let lines = vec![early, late, never];
    store.tell(task, FIRST, &News { lines, ..News::default() }).await.expect("told");
    assert_eq!(store.forget_lines(tape.now).await.expect("none is over"), 0);
    let over = tape.now + TimeDelta::days(35);
    assert_eq!(store.forget_lines(over).await.expect("one is over"), 1);
    let all = Wanted::default();
    assert_eq!(texts(&store, task, &all, LinePlace::START).await, ["late", "other"]);
    store.forget_lines(tape.now + TimeDelta::days(500)).await.expect("all are over");
    assert_eq!(texts(&store, task, &all, LinePlace::START).await, Vec::<String>::new());
    assert_eq!(store.runs(task).await.expect("runs").len(), 1);
}

#[tokio::test]
async fn new_lines_are_told_at_once_and_a_lost_connection_too() {
    let (database, store, tape) = fresh().await;
    let task = tape.task.id;
    let mut changes = store.line_changes().await.expect("it listens");
    store.begin_run(&new(&tape, FIRST)).await.expect("begun");
    let lines = vec![line(&tape, 1, LineKind::Said, "hello")];
    store.tell(task, FIRST, &News { lines, ..News::default() }).await.expect("told");
    let limit = Duration::from_secs(10);
    let told = tokio::time::timeout(limit, changes.next()).await.expect("in time");
    assert_eq!(told.expect("a change"), LineChange::Grown(task));
    let pool = sqlx::PgPool::connect(&database.url()).await.expect("connected");
    let cut = sqlx::query_scalar::<_, i64>(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
           WHERE datname = current_database() AND pid <> pg_backend_pid()",
    );
    assert!(cut.fetch_one(&pool).await.expect("cut") > 0);
    let told = tokio::time::timeout(limit, changes.next()).await.expect("in time");
    assert_eq!(told.expect("a change"), LineChange::Unknown);
}
