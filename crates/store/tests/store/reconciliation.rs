//! Steps of another workflow of the same task, and the progress of the reconciler.

use chrono::TimeDelta;
use tamma_core::ids::PlanHash;
use tamma_core::plan::PlanSummary;
use tamma_core::task_loop::{Action, Outcome, State};
use tamma_store::{Conflict, Error, ReconcileMarks, Store, WriteOutcome};
use tamma_testkit::postgres::TestDatabase;

use crate::recorded_task::{RecordedTask, careful, register};
use crate::world::plan;

async fn fresh() -> (TestDatabase, Store) {
    let database = TestDatabase::fresh().await.expect("test database");
    let store = database.store().await.expect("connection");
    register(&store).await;
    (database, store)
}

/// Returns a task that waits for the approval of this plan.
fn waiting(hash: &[u8], later: TimeDelta) -> RecordedTask {
    let mut recorded = RecordedTask::new(1, careful()).until(State::Planning);
    recorded.now += later;
    let plan = PlanSummary { hash: PlanHash::of(hash), ..plan(1) };
    assert!(recorded.done(Outcome::Planned(plan)));
    assert!(recorded.done(Outcome::Checked { blockers: 0, warnings: 0 }));
    recorded
}

async fn save_all(store: &Store, recorded: &RecordedTask) {
    store
        .insert_task(&recorded.task, &recorded.steps[0].1, &recorded.rules)
        .await
        .expect("received");
    store.save_steps(&recorded.records(), &recorded.rules).await.expect("recorded");
}

#[tokio::test]
async fn a_step_that_a_reset_workflow_took_differently_is_refused() {
    let (_database, store) = fresh().await;
    save_all(&store, &waiting(b"one", TimeDelta::zero())).await;
    let reset = waiting(b"two", TimeDelta::zero());
    let (task, records) = (reset.task.id, reset.records());
    let last = records.last().expect("step");
    for offered in [&records[records.len() - 1..], &records[..]] {
        match store.save_steps(offered, &reset.rules).await {
            Err(Error::Conflict(conflict)) => {
                assert_eq!(conflict, Conflict::OtherHistory { task, step: last.step });
                assert!(conflict.is_divergence());
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_step_that_is_taken_again_after_a_crash_counts_as_stored() {
    let (_database, store) = fresh().await;
    save_all(&store, &waiting(b"one", TimeDelta::zero())).await;
    let redone = waiting(b"one", TimeDelta::seconds(5));
    let saved = store.save_steps(&redone.records(), &redone.rules).await.expect("saved");
    assert_eq!(saved, WriteOutcome::AlreadyPresent);
}

#[tokio::test]
async fn old_steps_with_other_entries_are_not_taken_for_stored_ones() {
    let (_database, store) = fresh().await;
    save_all(&store, &waiting(b"one", TimeDelta::zero())).await;
    let mut reset = RecordedTask::new(1, careful());
    assert!(reset.ask(Action::Pause));
    let refused = store.save_steps(&reset.records(), &reset.rules).await;
    assert!(
        matches!(refused, Err(Error::Conflict(Conflict::OtherHistory { step: 1, .. }))),
        "{refused:?}"
    );
}

#[tokio::test]
async fn open_tasks_are_listed_by_state_with_the_run_of_their_workflow() {
    let (_database, store) = fresh().await;
    let recorded = waiting(b"one", TimeDelta::zero());
    save_all(&store, &recorded).await;
    let list = async |state, after| store.open_tasks(state, after, 10).await.expect("list");
    assert!(list(State::Planning, None).await.is_empty());
    let open = list(State::AwaitingApproval, None).await;
    let [task] = open.as_slice() else { panic!("{open:?}") };
    assert_eq!((task.id, task.step), (recorded.task.id, recorded.steps.len() as u64 - 1));
    assert_eq!(task.run_id, None);
    store.save_workflow_run(task.id, "run-1").await.expect("saved");
    store.save_workflow_run(task.id, "run-2").await.expect("saved");
    let again = list(State::AwaitingApproval, None).await;
    assert_eq!(again[0].run_id.as_deref(), Some("run-2"));
    assert!(list(State::AwaitingApproval, Some(task.id)).await.is_empty());
    assert_eq!(store.forget_closed_workflows().await.expect("forgotten"), 0);
    let mut closed = recorded;
    assert!(closed.ask(Action::Cancel { reason: crate::world::reason() }));
    store.save_steps(&closed.records(), &closed.rules).await.expect("closed");
    assert_eq!(store.forget_closed_workflows().await.expect("forgotten"), 1);
}

#[tokio::test]
async fn the_watermark_survives_a_restart() {
    let (_database, store) = fresh().await;
    let at = chrono::DateTime::UNIX_EPOCH + TimeDelta::days(20_000);
    let first = store.reconcile_marks(at).await.expect("marks");
    assert_eq!((first.watermark, &first.marker), (at, &None));
    for marker in [None, Some("run-1".to_owned())] {
        let watermark = first.watermark + TimeDelta::minutes(1);
        let marks = ReconcileMarks { watermark, marker, ..first.clone() };
        store.save_reconcile_marks(&marks).await.expect("saved");
        assert_eq!(store.reconcile_marks(at).await.expect("marks"), marks);
    }
}
