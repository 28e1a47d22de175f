//! Conversations that several servers share.

use serde_json::json;
use tamma_store::ConversationRecord;
use tamma_testkit::postgres::TestDatabase;
use uuid::Uuid;

#[tokio::test]
async fn a_conversation_is_saved_by_whoever_has_read_its_newest_revision() {
    let database = TestDatabase::fresh().await.expect("test database");
    let store = database.store().await.expect("connection");
    let id = Uuid::from_u128(7);
    assert_eq!(store.conversation(id).await.expect("query result"), None);
    let first = ConversationRecord {
        id,
        person: "Ada".parse().expect("name"),
        state: json!({ "step": 1 }),
        messages: json!([]),
        revision: 0,
    };
    assert!(store.save_conversation(&first).await.expect("query result"));
    assert!(!store.save_conversation(&first).await.expect("query result"), "somebody was faster");
    let second = ConversationRecord { revision: 1, state: json!({ "step": 2 }), ..first.clone() };
    assert!(store.save_conversation(&second).await.expect("query result"));
    let stored = store.conversation(id).await.expect("query result").expect("conversation");
    assert_eq!(stored, ConversationRecord { revision: 2, ..second });
    let unknown = ConversationRecord { id: Uuid::from_u128(8), revision: 3, ..first };
    assert!(!store.save_conversation(&unknown).await.expect("query result"), "deleted meanwhile");
}
