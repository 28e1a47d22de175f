//! Versions of plans, and the jobs that made them.

use sqlx::PgPool;
use tamma_core::plan::Plan;
use tamma_core::task_loop::State;
use tamma_store::{Conflict, Error, Store, WriteOutcome};
use tamma_testkit::postgres::TestDatabase;
use tamma_testkit::sample_plan;

use crate::recorded_task::{RecordedTask, careful, register};

fn plan(summary: &str) -> Plan {
    Plan { summary: summary.to_owned(), ..sample_plan(1) }
}

/// Returns the summary of the first version.
async fn first_version(store: &Store, recorded: &RecordedTask) -> String {
    store.plan(recorded.task.id, 1).await.expect("a plan").summary
}

#[tokio::test]
async fn a_plan_replaces_those_of_earlier_jobs_only() {
    let database = TestDatabase::fresh().await.expect("test database");
    let store = database.store().await.expect("connection");
    register(&store).await;
    let recorded = RecordedTask::new(1, careful()).until(State::Planning);
    let task = recorded.task.id;
    store
        .insert_task(&recorded.task, &recorded.steps[0].1, &recorded.rules)
        .await
        .expect("received");
    let save = async |job_number: Option<u32>, plan: &Plan| {
        store.save_plan(task, (1, job_number), plan).await
    };
    let refused =
        |saved| matches!(saved, Err(Error::Conflict(Conflict::DifferentPlan { version: 1, .. })));
    let (old, new, edited) = (plan("old"), plan("new"), plan("edited"));

    assert_eq!(save(Some(4), &old).await.expect("saved"), WriteOutcome::Inserted);
    assert_eq!(save(Some(4), &old).await.expect("saved"), WriteOutcome::AlreadyPresent);
    assert!(refused(save(Some(4), &new).await), "another attempt at the job was faster");
    assert!(store.plan_of_job(task, 1, 5).await.expect("read").is_none());

    assert_eq!(save(Some(5), &new).await.expect("saved"), WriteOutcome::Inserted);
    assert_eq!(first_version(&store, &recorded).await, "new");
    assert!(refused(save(Some(4), &old).await), "a late attempt at the earlier job");
    assert!(store.plan_of_job(task, 1, 4).await.expect("read").is_none());
    assert_eq!(store.plan_of_job(task, 1, 5).await.expect("read"), Some(new.clone()));

    assert_eq!(save(None, &edited).await.expect("saved"), WriteOutcome::Inserted);
    assert!(refused(save(Some(5), &new).await), "a person has edited it");
    assert_eq!(first_version(&store, &recorded).await, "edited");
}

#[tokio::test]
async fn a_plan_in_the_history_is_never_replaced() {
    let database = TestDatabase::fresh().await.expect("test database");
    let (store, pool) = (
        database.store().await.expect("connection"),
        PgPool::connect(&database.url()).await.expect("connected"),
    );
    register(&store).await;
    let recorded = RecordedTask::new(1, careful()).until(State::Validated);
    let task = recorded.task.id;
    store
        .insert_task(&recorded.task, &recorded.steps[0].1, &recorded.rules)
        .await
        .expect("received");
    let summary = recorded.it().plan.as_ref().expect("a plan");
    sqlx::query(
        "INSERT INTO plans (task, version, hash, content, job_number) VALUES ($1, $2, $3, '{}', 1)",
    )
    .bind(task.0)
    .bind(i32::try_from(summary.version).expect("a version"))
    .bind(summary.hash.to_string())
    .execute(&pool)
    .await
    .expect("inserted");
    let records = recorded.records();
    let plan_is_known =
        |count: usize| recorded.steps[..=count].iter().any(|(_, step, _)| step.next.plan.is_some());
    let known_from = (0..records.len()).find(|count| plan_is_known(*count)).expect("a plan");
    let change = "UPDATE plans SET job_number = job_number + 1";
    store.save_steps(&records[..known_from - 1], &recorded.rules).await.expect("recorded");
    sqlx::query(change).execute(&pool).await.expect("no step has the plan");

    store.save_steps(&records[known_from - 1..], &recorded.rules).await.expect("recorded");
    sqlx::query(change).execute(&pool).await.expect_err("the history names it");
    sqlx::query("DELETE FROM plans").execute(&pool).await.expect_err("nothing deletes plans");
    store
        .save_plan(task, (summary.version, Some(9)), &plan("other"))
        .await
        .expect_err("the history names it");
}
