//! Tasks that contain words, newest first, also among millions.
//!
//! PostgreSQL does not know how many tasks match the start of a word, and guesses 2%. So it reads tasks from
//! the newest on until it has enough, which are all of them for a word that hardly any task has.

use sqlx::types::Uuid;

use super::{TaskFilter, without_nul};
use crate::connection::Store;
use crate::encoding::word;
use crate::search_query::search_query;

/// Newest tasks that are read first. A common word is found there.
const NEWEST: i64 = 10_000;

/// Tasks with the words that are read to find the newest. With more, the words are not rare.
const MAX_RARE: i64 = 10_000;

impl Store {
    /// Returns the newest tasks before `before` that match a filter with words; no states stand for all.
    /// `None` if they must be looked for among all tasks: many have the words, but few of the newest.
    pub(super) async fn newest_with_words(
        &self,
        filter: &TaskFilter,
        live: Option<bool>,
        states: &[String],
        before: Option<Uuid>,
        limit: i64,
    ) -> sqlx::Result<Option<Vec<Uuid>>> {
        let newest = filtered!(
            query_scalar,
            "SELECT id FROM (
                SELECT * FROM tasks
                WHERE ($2::boolean IS NULL OR live = $2)
                    AND (cardinality($12::text[]) = 0 OR state = ANY($12))
                    AND ($13::uuid IS NULL OR id < $13)
                ORDER BY id DESC LIMIT $15
             ) AS tasks WHERE",
            "ORDER BY id DESC LIMIT $14",
            self,
            filter,
            live,
            states,
            before,
            limit,
            NEWEST,
        )
        .fetch_all(&self.lists)
        .await?;
        if i64::try_from(newest.len()).is_ok_and(|found| found >= limit) {
            return Ok(Some(newest));
        }
        let rare = filtered!(
            query,
            "WITH found AS MATERIALIZED (
                SELECT id, project, live, paused, type, priority, risk, asked_at, labels, words, state
                FROM tasks WHERE words @@ to_tsquery('simple', $9) LIMIT $15
             )
             SELECT (SELECT count(*) FROM found) AS \"count!\", ARRAY(
                SELECT id FROM found WHERE",
            "AND (cardinality($12::text[]) = 0 OR state = ANY($12))
                    AND ($13::uuid IS NULL OR id < $13)
                ORDER BY id DESC LIMIT $14
             ) AS \"ids!\"",
            self,
            filter,
            live,
            states,
            before,
            limit,
            MAX_RARE + 1,
        )
        .fetch_one(&self.lists)
        .await?;
        Ok((rare.count <= MAX_RARE).then_some(rare.ids))
    }
}
