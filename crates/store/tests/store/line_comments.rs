//! Comments on lines, drafts and viewed files.

use chrono::{DateTime, TimeDelta};
use tamma_core::ids::{CommitId, Digest, Name};
use tamma_core::review::patch::LineSide;
use tamma_core::task_loop::State;
use tamma_store::{CommentDraft, StoredComment};
use tamma_testkit::postgres::TestDatabase;

use crate::recorded_task::{RecordedTask, quick, register};

fn name(text: &str) -> Name {
    text.parse().expect("name")
}

#[tokio::test]
async fn a_repeated_comment_is_stored_once_and_drafts_belong_to_one_person() {
    let database = TestDatabase::fresh().await.expect("test database");
    let store = database.store().await.expect("connection");
    register(&store).await;
    let recorded = RecordedTask::new(1, quick()).until(State::Planning);
    store
        .insert_task(&recorded.task, &recorded.steps[0].1, &recorded.rules)
        .await
        .expect("received");
    let task = recorded.task.id;
    let comment = |content: &str, seconds: i64| StoredComment {
        person: name("Ada"),
        commit: CommitId::Sha1([7; 20]),
        path: "src/a.rs".to_owned(),
        side: LineSide::Old,
        line: 12,
        code: "let x = 1;".to_owned(),
        content: content.to_owned(),
        at: DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds),
    };
    let both = [comment("why?", 1), comment("and this\0", 2)];
    store.add_line_comments(task, &both).await.expect("stored");
    store.add_line_comments(task, &[comment("why?", 9)]).await.expect("there");
    let read = store.line_comments(task).await.expect("comments");
    assert_eq!(read, [comment("why?", 1), comment("and this\u{fffd}", 2)]);

    let draft = |content: &str| CommentDraft {
        path: "src/a.rs".to_owned(),
        side: LineSide::New,
        line: 3,
        content: content.to_owned(),
    };
    for text in ["first", "second"] {
        store.save_draft(task, &name("Ada"), &draft(text)).await.expect("stored");
    }
    assert_eq!(store.drafts(task, &name("Ada")).await.expect("drafts"), [draft("second")]);
    assert!(store.drafts(task, &name("Bob")).await.expect("drafts").is_empty());
    let line = ("src/a.rs", LineSide::New, 3);
    store.remove_draft(task, &name("Bob"), line).await.expect("nothing to remove");
    store.remove_draft(task, &name("Ada"), line).await.expect("removed");
    assert!(store.drafts(task, &name("Ada")).await.expect("drafts").is_empty());

    let digest = Digest::of(b"patch");
    store.mark_viewed(task, &name("Ada"), "a", Some(digest)).await.expect("stored");
    store.mark_viewed(task, &name("Ada"), "b", Some(digest)).await.expect("stored");
    store.mark_viewed(task, &name("Ada"), "b", None).await.expect("removed");
    let viewed = store.viewed_files(task, &name("Ada")).await.expect("marks");
    assert_eq!(viewed.into_iter().collect::<Vec<_>>(), [("a".to_owned(), digest.to_string())]);
}
