//! What entries mean to a model.

use tamma_core::ids::{Digest, KnowledgeId};
use tamma_core::knowledge::{Entry, Kind, Scope, Severity, Status};
use tamma_store::{Deed, KnowledgeVector};
use tamma_testkit::postgres::Database;
use uuid::Uuid;

fn id(number: u128) -> KnowledgeId {
    KnowledgeId(Uuid::from_u128(number))
}

fn entry(number: u128) -> Entry {
    Entry {
        id: id(number),
        kind: Kind::Learning,
        text: format!("Lesson {number}"),
        scope: Scope::Organisation,
        globs: Vec::new(),
        task_types: Vec::new(),
        keywords: Vec::new(),
        actions: Vec::new(),
        pattern: None,
        severity: Severity::Low,
        owner: None,
        evidence: Vec::new(),
        status: Status::Approved,
        expires_at: None,
    }
}

fn vector(number: u128, text: &str, vector: &[f32]) -> KnowledgeVector {
    KnowledgeVector {
        entry: id(number),
        digest: Digest::of(text.as_bytes()),
        vector: vector.to_vec(),
    }
}

#[tokio::test]
async fn a_vector_is_of_one_model_and_of_the_newest_text() {
    let database = Database::fresh().await.expect("a database");
    let store = database.store().await.expect("a store");
    for number in [1, 2] {
        store.add_knowledge(&entry(number), Deed::Added, Some("ada"), None).await.expect("added");
    }
    let first = [vector(1, "old", &[0.5, -1.0]), vector(2, "b", &[0.0]), vector(3, "gone", &[1.0])];
    store.keep_knowledge_vectors("one", &first).await.expect("kept");
    let newer = vector(1, "new", &[2.0, 3.0]);
    store.keep_knowledge_vectors("one", std::slice::from_ref(&newer)).await.expect("kept");

    let mut found = store.knowledge_vectors("one", &[id(1), id(2), id(3)]).await.expect("found");
    found.sort_by_key(|it| it.entry);
    assert_eq!(found, [newer.clone(), vector(2, "b", &[0.0])]);
    assert_eq!(store.knowledge_vectors("one", &[id(1)]).await.expect("found"), [newer]);
    assert!(store.knowledge_vectors("two", &[id(1)]).await.expect("found").is_empty());
}
