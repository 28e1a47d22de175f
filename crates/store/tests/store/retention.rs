//! Removal of old rows: only those that no open task needs.

use chrono::TimeDelta;
use sqlx::{Connection as _, Executor as _, PgConnection};
use tamma_core::task_loop::{Action, State};
use tamma_store::{ObjectStorage, RemovedRows, RetentionCutoffs, Store};
use tamma_testkit::postgres::TestDatabase;

use crate::recorded_task::{RecordedTask, careful, quick, register};

async fn save(store: &Store, recorded: &RecordedTask) {
    let first = &recorded.steps[0].1;
    store.insert_task(&recorded.task, first, &recorded.rules).await.expect("received");
    store.save_steps(&recorded.records(), &recorded.rules).await.expect("recorded");
}

#[tokio::test]
async fn old_rows_of_closed_tasks_are_removed_and_those_of_open_tasks_stay() {
    let database = TestDatabase::fresh().await.expect("test database");
    let store = database.store().await.expect("connection");
    register(&store).await;
    let closed = RecordedTask::new(1, quick()).until(State::Completed);
    let mut open = RecordedTask::new(2, careful());
    assert!(open.ask(Action::Pause));
    for recorded in [&closed, &open] {
        save(&store, recorded).await;
        let result = serde_json::json!({ "ended": recorded.task.id });
        store.save_job_result(recorded.task.id, 1, &result).await.expect("saved");
    }
    let unused = store.save_text("a brief that nobody refers to").await.expect("saved");
    let used = store.save_text("a note of an open task").await.expect("saved");
    let result = serde_json::json!({ "note": used });
    store.save_job_result(open.task.id, 2, &result).await.expect("saved");
    let mut connection = PgConnection::connect(&database.url()).await.expect("connection");
    let faults = "INSERT INTO faults (project, digest, task, fault, in_code, evidence)
                  SELECT project, id::text, id, 'a test fails', false, '[]'::jsonb FROM tasks";
    for sql in [
        "INSERT INTO baselines (project, commit, gate, result)
         SELECT id, 'old', 'tests', '{}'::jsonb FROM projects",
        faults,
        "UPDATE baselines SET at = at - interval '100 days'",
        "UPDATE faults SET at = at - interval '100 days'",
        "INSERT INTO baselines (project, commit, gate, result)
         SELECT id, 'new', 'tests', '{}'::jsonb FROM projects",
        "UPDATE answers SET at = at - interval '100 days'",
        "UPDATE texts SET created_at = created_at - interval '100 days'",
    ] {
        connection.execute(sql).await.expect("aged");
    }

    let kept = store.apply_retention(&RetentionCutoffs::default()).await.expect("nothing to do");
    assert_eq!(kept, RemovedRows::default());
    let now: chrono::DateTime<chrono::Utc> =
        sqlx::query_scalar("SELECT now()").fetch_one(&mut connection).await.expect("a time");
    let before = Some(now - TimeDelta::days(30));
    let cutoffs = RetentionCutoffs {
        job_results: before,
        model_calls: before,
        deliveries: before,
        forge_records: before,
        texts: before,
    };
    let removed = store.apply_retention(&cutoffs).await.expect("removed");
    assert_eq!((removed.job_results, removed.baselines, removed.faults), (1, 1, 1), "{removed:?}");
    assert!(removed.texts >= 1, "{removed:?}");
    let result = async |task, number| {
        store.job_result::<serde_json::Value>(task, number).await.expect("read")
    };
    assert_eq!(result(closed.task.id, 1).await, None);
    assert!(result(open.task.id, 1).await.is_some());
    assert!(store.text(&unused).await.is_err());
    assert_eq!(store.text(&used).await.expect("kept"), "a note of an open task");
    let again = store.apply_retention(&cutoffs).await.expect("repeated");
    assert_eq!(again, RemovedRows::default());

    // A text that is used again is new again.
    connection
        .execute("UPDATE texts SET created_at = now() - interval '100 days'")
        .await
        .expect("aged");
    let note = store.save_text("a note of an open task").await.expect("saved");
    connection.execute("DELETE FROM answers").await.expect("deleted");
    store.apply_retention(&cutoffs).await.expect("removed");
    assert_eq!(store.text(&note).await.expect("kept"), "a note of an open task");
}

#[tokio::test]
async fn old_transcripts_are_removed() {
    let folder = std::env::temp_dir().join(format!("tamma-retention-{}", std::process::id()));
    let objects = ObjectStorage::new(folder.join("objects").display().to_string());
    let started = std::fs::metadata("/proc/self").and_then(|it| it.modified()).expect("a time");
    let now = chrono::DateTime::<chrono::Utc>::from(started);
    assert_eq!(objects.delete_transcripts(now).await.expect("no folder"), 0);
    std::fs::create_dir_all(&folder).expect("created");
    std::fs::write(folder.join("spool"), "{}\n").expect("written");
    objects.put_file("transcripts/a/1-1.jsonl", &folder.join("spool")).await.expect("put");
    assert_eq!(objects.delete_transcripts(now - TimeDelta::days(30)).await.expect("kept"), 0);
    assert_eq!(objects.delete_transcripts(now + TimeDelta::days(1)).await.expect("removed"), 1);
    std::fs::remove_dir_all(&folder).expect("removed");
}
