//! Conversations with people, shared by all servers.

use serde_json::Value;
use sqlx::types::Uuid;
use tamma_core::ids::Name;

use crate::connection::Store;
use crate::encoding::read_word;
use crate::error::Result;
use crate::steps::to_i64;

/// Days after which an unused conversation is deleted.
const MAX_IDLE_DAYS: i32 = 30;

/// Stored conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct ConversationRecord {
    /// ID of the conversation, chosen by the client.
    pub id: Uuid,
    /// Owner. Other people cannot continue it.
    pub person: Name,
    /// State, as the server serialises it.
    pub state: Value,
    /// Newest messages and replies, oldest first, as the server serialises them.
    pub messages: Value,
    /// Number of writes so far; 0 if it is not stored yet.
    pub revision: u64,
}

impl Store {
    /// Returns a conversation by its ID.
    pub async fn conversation(&self, id: Uuid) -> Result<Option<ConversationRecord>> {
        let row = sqlx::query!(
            "SELECT person, state, messages, revision FROM conversations WHERE id = $1",
            id
        )
        .fetch_optional(&self.steps)
        .await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(ConversationRecord {
            id,
            person: read_word("person", row.person)?,
            state: row.state,
            messages: row.messages,
            revision: row.revision.unsigned_abs(),
        }))
    }

    /// Saves a conversation, and deletes those that nobody has used for a month. Returns `false`
    /// without saving if another server has saved it since `conversation.revision`.
    pub async fn save_conversation(&self, conversation: &ConversationRecord) -> Result<bool> {
        let saved = sqlx::query_scalar!(
            "WITH old AS (
                DELETE FROM conversations
                WHERE updated_at < clock_timestamp() - make_interval(days => $6) AND id <> $1
             )
             INSERT INTO conversations (id, person, state, messages, revision)
             SELECT $1::uuid, $2::text, $3::jsonb, $4::jsonb, $5::bigint + 1
             WHERE $5 = 0 OR EXISTS (SELECT FROM conversations WHERE id = $1)
             ON CONFLICT (id) DO UPDATE SET
                state = excluded.state, messages = excluded.messages,
                revision = excluded.revision, updated_at = clock_timestamp()
             WHERE conversations.revision = $5
             RETURNING id",
            conversation.id,
            conversation.person.as_str(),
            conversation.state,
            conversation.messages,
            to_i64(conversation.revision),
            MAX_IDLE_DAYS,
        )
        .fetch_optional(&self.steps)
        .await?;
        Ok(saved.is_some())
    }
}
