//! Removal of old rows: only those that no open task needs.

use chrono::TimeDelta;
use sqlx::{Connection as _, Executor as _, PgConnection};
use tamma_core::ids::{CommitId, Digest, Name};
use tamma_core::review::patch::LineSide;
use tamma_core::task_loop::{Action, State};
use tamma_store::{
    CommentDraft, ObjectStorage, RemovedRows, RetentionCutoffs, SavedView, Store, StoredComment,
};
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
async fn rows_of_a_review_go_with_their_task() {
    let database = TestDatabase::fresh().await.expect("test database");
    let store = database.store().await.expect("connection");
    register(&store).await;
    let closed = RecordedTask::new(1, quick()).until(State::Completed);
    let open = RecordedTask::new(2, careful()).until(State::AwaitingApproval);
    let ada: Name = "Ada".parse().expect("name");
    let at = chrono::DateTime::UNIX_EPOCH;
    for recorded in [&closed, &open] {
        save(&store, recorded).await;
        let task = recorded.task.id;
        let (path, side) = ("a.rs".to_owned(), LineSide::New);
        let draft = CommentDraft { path: path.clone(), side, line: 1, content: "?".to_owned() };
        store.save_draft(task, &ada, &draft).await.expect("stored");
        store.mark_viewed(task, &ada, "a.rs", Some(Digest::of(b"a"))).await.expect("stored");
        let comment = StoredComment {
            person: ada.clone(),
            commit: CommitId::Sha1([7; 20]),
            path,
            side,
            line: 1,
            code: "let x = 1;".to_owned(),
            content: "why?".to_owned(),
            at,
        };
        store.add_line_comments(task, &[comment]).await.expect("stored");
    }
    let view = SavedView { name: "mine".to_owned(), query: "state=pending".to_owned() };
    assert!(store.save_view(&ada, &view).await.expect("saved"));

    // Nobody needs these without the task, so there is no setting for them.
    let removed = store.apply_retention(&RetentionCutoffs::default()).await.expect("removed");
    let expected = RemovedRows { drafts: 1, viewed_files: 1, ..RemovedRows::default() };
    assert_eq!(removed, expected);
    assert!(store.drafts(closed.task.id, &ada).await.expect("drafts").is_empty());
    assert_eq!(store.drafts(open.task.id, &ada).await.expect("drafts").len(), 1);
    assert_eq!(store.line_comments(closed.task.id).await.expect("comments").len(), 1);

    let before = Some(at + TimeDelta::days(1));
    let cutoffs = RetentionCutoffs { texts: before, ..RetentionCutoffs::default() };
    assert_eq!(store.apply_retention(&cutoffs).await.expect("removed").comments, 1);
    assert!(store.line_comments(closed.task.id).await.expect("comments").is_empty());
    assert_eq!(store.line_comments(open.task.id).await.expect("comments").len(), 1);
    assert_eq!(store.saved_views(&ada).await.expect("views"), [view]);
}

#[tokio::test]
async fn starts_of_jobs_go_with_their_task() {
    let database = TestDatabase::fresh().await.expect("test database");
    let store = database.store().await.expect("connection");
    register(&store).await;
    let closed = RecordedTask::new(1, quick()).until(State::Completed);
    let open = RecordedTask::new(2, careful()).until(State::AwaitingApproval);
    let begin = async |recorded: &RecordedTask, process: &str| {
        let begun = store.begin_inline_job((recorded.task.id, 9), process).await;
        begun.expect("begun").lost_processes
    };
    for recorded in [&closed, &open] {
        save(&store, recorded).await;
        assert_eq!(begin(recorded, "a").await, 0);
    }
    let removed = store.apply_retention(&RetentionCutoffs::default()).await.expect("removed");
    assert_eq!(removed, RemovedRows { inline_jobs: 1, ..RemovedRows::default() });
    assert_eq!(begin(&closed, "b").await, 0, "its row is gone");
    assert_eq!(begin(&open, "b").await, 1, "its row is kept");
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
