//! Views of the board that people have saved.

use tamma_core::ids::Name;

use crate::connection::Store;
use crate::error::Result;

/// Maximum number of views of one person.
const MAX_VIEWS: i64 = 50;

/// Filters, order and grouping of the board, under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedView {
    /// Name that the person gave it.
    pub name: String,
    /// Query string of the board, without the question mark.
    pub query: String,
}

impl Store {
    /// Returns the views of a person, by name.
    pub async fn saved_views(&self, person: &Name) -> Result<Vec<SavedView>> {
        let views = sqlx::query_as!(
            SavedView,
            "SELECT name, query FROM saved_views WHERE person = $1 ORDER BY lower(name), name",
            person.as_str()
        );
        Ok(views.fetch_all(&self.steps).await?)
    }

    /// Saves a view, and replaces the person's view of the same name. Returns `false` without saving
    /// if the person has too many.
    pub async fn save_view(&self, person: &Name, view: &SavedView) -> Result<bool> {
        let saved = sqlx::query_scalar!(
            "INSERT INTO saved_views (person, name, query)
             SELECT $1::text, $2::text, $3::text
             WHERE (SELECT count(*) FROM saved_views WHERE person = $1 AND name <> $2) < $4
             ON CONFLICT (person, name) DO UPDATE SET query = excluded.query
             RETURNING name",
            person.as_str(),
            view.name,
            view.query,
            MAX_VIEWS
        );
        Ok(saved.fetch_optional(&self.steps).await?.is_some())
    }

    /// Removes a person's view. Returns `false` if there was none.
    pub async fn remove_view(&self, person: &Name, name: &str) -> Result<bool> {
        let removed = sqlx::query!(
            "DELETE FROM saved_views WHERE person = $1 AND name = $2",
            person.as_str(),
            name
        )
        .execute(&self.steps)
        .await?;
        Ok(removed.rows_affected() > 0)
    }
}
