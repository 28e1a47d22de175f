//! Values of the whole installation, for monitoring.

use strum::IntoEnumIterator as _;
use tamma_core::task_loop::State;
use tamma_store::Store;
use tamma_testkit::postgres::TestDatabase;

use crate::recorded_task::{RecordedTask, careful, quick, register};

async fn save(store: &Store, recorded: &RecordedTask) {
    let first = &recorded.steps[0].1;
    store.insert_task(&recorded.task, first, &recorded.rules).await.expect("received");
    store.save_steps(&recorded.records(), &recorded.rules).await.expect("recorded");
}

fn states(is_terminal: bool) -> Vec<String> {
    let states = State::iter().filter(|state| state.is_terminal() == is_terminal);
    states.map(|state| state.to_string()).collect()
}

#[tokio::test]
async fn values_of_the_installation_come_from_all_tasks_and_workers() {
    let database = TestDatabase::fresh().await.expect("test database");
    let store = database.store().await.expect("connection");
    register(&store).await;
    let (open, ended) = (states(false), states(true));
    let none = store.installation_metrics(&open, &ended).await.expect("values");
    assert_eq!((none.open_tasks, none.ended_tasks), (Vec::new(), Vec::new()));
    assert_eq!((none.waiting_decisions, none.queued_runs), ((0.0, 0.0), (0.0, 0.0)));
    assert_eq!((none.workers, none.audit_entries), ((0.0, 0.0), 0.0));

    save(&store, &RecordedTask::new(1, quick()).until(State::Completed)).await;
    save(&store, &RecordedTask::new(2, careful()).until(State::Validated)).await;
    store.record_heartbeat("here", 4, "bubblewrap").await.expect("recorded");
    store.save_audit_export("syslog", 0).await.expect("saved");
    let some = store.installation_metrics(&open, &ended).await.expect("values");
    assert_eq!(some.open_tasks, [("awaiting_approval".to_owned(), 1.0)]);
    let [(state, count, _)] = some.ended_tasks.as_slice() else { panic!("{:?}", some.ended_tasks) };
    assert_eq!((state.as_str(), *count), ("completed", 1.0));
    let (waiting, oldest) = some.waiting_decisions;
    assert!(waiting > 0.5 && oldest > 0.0, "{waiting} {oldest}");
    assert_eq!(some.workers, (1.0, 4.0));
    assert_eq!(some.audit_export_lags, [("syslog".to_owned(), 0.0)]);
}
