//! Embeddings of knowledge entries.

use tamma_core::ids::{Digest, KnowledgeId};
use tamma_core::knowledge::{EntryKind, EntryScope, EntrySeverity, EntryStatus, KnowledgeEntry};
use tamma_store::{EntryEmbedding, KnowledgeAction};
use tamma_testkit::postgres::TestDatabase;
use uuid::Uuid;

fn id(number: u128) -> KnowledgeId {
    KnowledgeId(Uuid::from_u128(number))
}

fn entry(number: u128) -> KnowledgeEntry {
    KnowledgeEntry {
        id: id(number),
        kind: EntryKind::Learning,
        text: format!("Lesson {number}"),
        scope: EntryScope::Organisation,
        globs: Vec::new(),
        task_types: Vec::new(),
        keywords: Vec::new(),
        actions: Vec::new(),
        pattern: None,
        severity: EntrySeverity::Low,
        owner: None,
        evidence: Vec::new(),
        status: EntryStatus::Approved,
        expires_at: None,
        origin: None,
    }
}

fn vector(number: u128, text: &str, vector: &[f32]) -> EntryEmbedding {
    EntryEmbedding {
        entry: id(number),
        digest: Digest::of(text.as_bytes()),
        vector: vector.to_vec(),
    }
}

#[tokio::test]
async fn embedding_belongs_to_one_model_and_the_newest_text() {
    let database = TestDatabase::fresh().await.expect("test database");
    let store = database.store().await.expect("connection");
    for number in [1, 2] {
        store
            .add_knowledge(&entry(number), KnowledgeAction::Added, Some("ada"), None)
            .await
            .expect("added");
    }
    let first = [vector(1, "old", &[0.5, -1.0]), vector(2, "b", &[0.0]), vector(3, "gone", &[1.0])];
    store.save_embeddings("one", &first).await.expect("saved");
    let newer = vector(1, "new", &[2.0, 3.0]);
    store.save_embeddings("one", std::slice::from_ref(&newer)).await.expect("saved");

    let mut embeddings = store.embeddings("one", &[id(1), id(2), id(3)]).await.expect("found");
    embeddings.sort_by_key(|it| it.entry);
    assert_eq!(embeddings, [newer.clone(), vector(2, "b", &[0.0])]);
    assert_eq!(store.embeddings("one", &[id(1)]).await.expect("found"), [newer]);
    assert!(store.embeddings("two", &[id(1)]).await.expect("found").is_empty());
}
