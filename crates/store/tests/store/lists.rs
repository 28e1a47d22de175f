//! What people see: the board, the inbox, a task's page.

use chrono::TimeDelta;
use sqlx::AssertSqlSafe;
use tamma_core::cost::Usd;
use tamma_core::ids::TaskId;
use tamma_core::task_loop::{Action, Answer, Outcome, Phase, State};
use tamma_store::{Ending, Filter, Listed, Store, Verdict};
use tamma_testkit::postgres::Database;

use crate::tape::{PROJECT, Tape, careful, quick, register};
use crate::world::{reason, red};

async fn fresh() -> (Database, Store) {
    let database = Database::fresh().await.expect("a database");
    let store = database.store().await.expect("a store");
    register(&store).await;
    (database, store)
}

async fn write(store: &Store, tape: &Tape) {
    store.receive(&tape.task, &tape.steps[0].1, &tape.rules).await.expect("received");
    store.record(&tape.records(), &tape.rules).await.expect("recorded");
}

fn ids(tasks: &[Listed]) -> Vec<TaskId> {
    tasks
        .iter()
        .map(|listed| match listed {
            Listed::Card(card) => card.task,
            Listed::Damaged { task, .. } => *task,
        })
        .collect()
}

#[tokio::test]
async fn pages_follow_each_other_without_a_gap_or_a_repetition() {
    let (_database, store) = fresh().await;
    let mut expected = Vec::new();
    for number in 1..=23 {
        let tape = Tape::new(number, careful());
        write(&store, &tape).await;
        expected.insert(0, tape.task.id);
    }
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = store.tasks(&Filter::default(), after, 5).await.expect("a page");
        found.extend(ids(&page.tasks));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_filter_narrows() {
    let (_database, store) = fresh().await;
    let waiting = Tape::new(1, careful()).until(State::AwaitingApproval);
    let ended = Tape::new(2, quick()).until(State::Completed);
    for tape in [&waiting, &ended] {
        write(&store, tape).await;
    }
    let one = vec![waiting.task.id];
    let found =
        async |filter: Filter| ids(&store.tasks(&filter, None, 9).await.expect("a page").tasks);
    let none = Filter::default;
    let states = vec![State::AwaitingApproval, State::Failed];
    assert_eq!(found(Filter { states, project: Some(PROJECT), ..none() }).await, one);
    assert_eq!(found(Filter { phase: Some(Phase::Approve), ..none() }).await, one);
    assert_eq!(found(Filter { text: Some("\"task 1\"".to_owned()), ..none() }).await, one);
    assert_eq!(found(Filter { label: Some("nice".to_owned()), ..none() }).await.len(), 2);
    assert_eq!(found(Filter { paused: Some(true), ..none() }).await, []);
    let counts = store.by_state(Some(PROJECT)).await.expect("counts");
    assert_eq!(counts, [(State::AwaitingApproval, 1), (State::Completed, 1)].into());
}

#[tokio::test]
async fn a_question_is_in_the_inbox_until_it_is_answered() {
    let (_database, store) = fresh().await;
    let mut tape = Tape::new(1, careful()).until(State::Validated);
    write(&store, &tape).await;
    let inbox = store.inbox(Some(PROJECT), None, 10).await.expect("an inbox");
    let [Listed::Card(card)] = &inbox.tasks[..] else { panic!("{inbox:?}") };
    assert!(card.answers().contains(&Answer::Approve));
    assert_eq!(card.question, tape.it().question);
    assert_eq!(card.next, tape.it().next(&tape.rules));
    assert_eq!(store.waiting(None).await.expect("a count"), 1);
    let late = tape.now + TimeDelta::days(2);
    assert_eq!(store.over_timeout(late, None, 10).await.expect("a page").tasks.len(), 1);
    assert_eq!(store.over_timeout(tape.now, None, 10).await.expect("a page").tasks.len(), 0);

    // Seen, reminded of nothing more, and approved.
    let before = tape.steps.len() - 1;
    assert!(tape.ask(Action::Acknowledge));
    let binding = tape.it().binding().expect("a plan");
    assert!(tape.ask(Action::Approve { binding, reason: None }));
    store.record(&tape.records()[before..], &tape.rules).await.expect("recorded");
    assert_eq!(store.waiting(None).await.expect("a count"), 0);
    let [alert] = &store.alerts(tape.task.id).await.expect("alerts")[..] else { panic!() };
    assert_eq!(alert.acknowledged.as_ref().map(|(by, _)| by.as_str()), Some("ann"));
    assert!(alert.settled_at.is_some());
    let [decision] = &store.decisions(tape.task.id).await.expect("decisions")[..] else { panic!() };
    assert_eq!((decision.verdict, decision.by.as_deref()), (Verdict::Approve, Some("ann")));
    assert_eq!(decision.plan, Some(binding.plan.to_string()));
}

#[tokio::test]
async fn every_decision_is_kept_with_the_risk_it_was_made_at() {
    let (_database, store) = fresh().await;
    let mut tape = Tape::new(1, careful()).until(State::Validated);
    let binding = tape.it().binding().expect("a plan");
    assert!(tape.ask(Action::AskChanges { binding, changes: crate::world::note() }));
    let mut tape = tape.until(State::Validated);
    let binding = tape.it().binding().expect("a plan");
    assert!(tape.ask(Action::Reject { binding, reason: reason() }));
    store.receive(&tape.task, &tape.steps[0].1, &tape.rules).await.expect("received");
    for record in tape.records() {
        store.record(&[record], &tape.rules).await.expect("recorded");
    }
    let decisions = store.decisions(tape.task.id).await.expect("decisions");
    let verdicts: Vec<_> = decisions.iter().map(|decision| decision.verdict).collect();
    assert_eq!(verdicts, [Verdict::Changes, Verdict::Reject]);
    assert!(decisions.iter().all(|decision| decision.risk.is_some() && decision.plan.is_some()));
    assert_eq!(decisions[1].reason.as_deref(), Some("because"));
}

#[tokio::test]
async fn runs_and_what_they_used_are_kept_one_by_one() {
    let (_database, store) = fresh().await;
    let mut tape = Tape::new(1, quick()).until(State::Testing);
    assert!(tape.done(red(1)));
    let mut tape = tape.until(State::Testing);
    assert!(tape.done(red(2)));
    assert!(tape.done(Outcome::Interrupted) || tape.well());
    let tape = tape.until(State::Completed);
    write(&store, &tape).await;
    let runs = store.iterations(tape.task.id).await.expect("iterations");
    let endings: Vec<_> = runs.iter().map(|run| run.ending).collect();
    assert_eq!(endings.len(), usize::from(tape.it().iterations));
    assert_eq!(endings[..2], [Some(Ending::GatesFailed), Some(Ending::GatesFailed)]);
    assert_eq!(endings.last(), Some(&Some(Ending::Passed)));
    assert!(runs[0].fingerprint.is_some() && runs[0].commit.is_some() && runs[0].tier.is_some());
    let used = store.usage(tape.task.id).await.expect("usage");
    let expected: Vec<_> = tape.steps.iter().filter_map(|(_, _, used)| *used).collect();
    assert_eq!(used, expected);
    let total = store.spent(PROJECT, tape.steps[0].0).await.expect("a sum");
    assert_eq!(total.usd, used.iter().fold(Usd::ZERO, |sum, _| sum + Usd::cents(5)));
    assert_eq!(total.unknown, 0);
}

#[tokio::test]
async fn a_damaged_task_hides_nobody_else() {
    let (database, store) = fresh().await;
    let tapes: Vec<_> =
        (1..=3).map(|number| Tape::new(number, careful()).until(State::Validated)).collect();
    for tape in &tapes {
        write(&store, tape).await;
    }
    let damaged = tapes[1].task.id;
    let pool = sqlx::PgPool::connect(&database.url()).await.expect("connected");
    let sql =
        format!(r#"UPDATE tasks SET memory = '{{}}', question = '"?"' WHERE id = '{damaged}'"#);
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&pool).await.expect("damaged");
    let inbox = store.inbox(None, None, 10).await.expect("an inbox");
    assert_eq!(inbox.tasks.len(), 3);
    let found = inbox.tasks.iter().filter_map(|listed| match listed {
        Listed::Damaged { task, damage, .. } => Some((*task, damage.what)),
        Listed::Card(_) => None,
    });
    assert_eq!(found.collect::<Vec<_>>(), [(damaged, "question")]);
    let whole = store.task(damaged).await.expect("its words are there");
    assert_eq!(whole.task, tapes[1].task);
    assert!(whole.machine.is_err());
}
