//! Facts that a job gets with the steps that request it.

use tamma_core::review::record::{CheckRecord, ReviewCheck};
use tamma_core::review::{ReviewInputs, evaluate};
use tamma_core::task_loop::State;
use tamma_store::{NewText, RegisteredProject, Store};
use tamma_testkit::postgres::TestDatabase;

use crate::recorded_task::{PROJECT, RecordedTask, quick, register};

async fn received(number: u128) -> (TestDatabase, Store, RecordedTask) {
    let database = TestDatabase::fresh().await.expect("test database");
    let store = database.store().await.expect("connection");
    register(&store).await;
    let recorded = RecordedTask::new(number, quick()).until(State::Planning);
    let first = &recorded.steps[0].1;
    store.insert_task(&recorded.task, first, &recorded.rules).await.expect("received");
    (database, store, recorded)
}

#[tokio::test]
async fn steps_return_the_task_its_project_and_the_revision_of_the_knowledge() {
    let (_database, store, recorded) = received(1).await;
    let records = recorded.records();
    let save = async || {
        let saved = store.save_steps_for_job(&records, &recorded.rules, None).await;
        saved.expect("saved")
    };
    let facts = save().await.expect("new steps");
    assert_eq!(facts.task, recorded.task);
    let (name, repository) = ("greeter".to_owned(), "/greeter".to_owned());
    assert_eq!(facts.project, Some(RegisteredProject { id: PROJECT, name, repository }));
    let revision = store.knowledge_revision(PROJECT).await.expect("revision");
    assert_eq!((facts.knowledge_revision, facts.unended_starts), (revision, None));
    assert_eq!(save().await, None, "stored already");
    let stored = store.stored_job(recorded.task.id).await.expect("stored");
    assert_eq!((stored.facts, &stored.task_loop), (facts, recorded.it()));
    // The rules of the task are saved with it.
    let rules = store.rules(recorded.rules.version()).await.expect("rules");
    assert_eq!(rules, recorded.rules.without_secrets());
}

#[tokio::test]
async fn the_process_of_a_job_is_recorded_with_its_steps_and_ends_with_the_next_one() {
    let (_database, store, recorded) = received(2).await;
    let records = recorded.records();
    let (before, last) = records.split_at(1);
    let job = before[0].next.active_job.expect("a job").job_number;
    let key = (recorded.task.id, job);
    store.begin_inline_job(key, "a").await.expect("begun");
    let saved = store.save_steps_for_job(before, &recorded.rules, Some("b")).await;
    let facts = saved.expect("saved").expect("new steps");
    let starts = facts.unended_starts.expect("recorded");
    assert_eq!((starts.lost_processes, starts.earlier), (1, 1), "the other process did not end it");
    assert_eq!(store.begin_inline_job(key, "c").await.expect("begun").lost_processes, 2);
    store.save_steps(last, &recorded.rules).await.expect("saved");
    let ended = store.begin_inline_job(key, "d").await.expect("begun");
    assert_eq!((ended.lost_processes, ended.earlier), (0, 0), "it has ended");
}

#[tokio::test]
async fn a_check_is_saved_with_its_text() {
    let (_database, store, recorded) = received(3).await;
    let text = NewText::new("+one\0line").expect("a text");
    let record = CheckRecord::Review(ReviewCheck {
        commit: "a".repeat(40).parse().expect("commit"),
        verdict: evaluate(ReviewInputs::default()),
        diff: Some(text.reference.clone()),
        is_diff_truncated: false,
        validator: None,
        second: None,
    });
    let key = (recorded.task.id, 7);
    for _ in 0..2 {
        store.save_check_with_text(key, 1, &record, &text).await.expect("saved");
    }
    assert_eq!(store.text(&text.reference).await.expect("text"), "+one\u{fffd}line");
    let checks = store.checks(recorded.task.id).await.expect("checks");
    assert_eq!(checks.into_iter().map(|check| check.record).collect::<Vec<_>>(), [record]);
}
