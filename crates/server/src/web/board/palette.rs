//! Tasks of the command palette.

use askama::Template;
use axum::extract::Query;
use serde::Deserialize;
use tamma_store::TaskFilter;
use uuid::Uuid;

use super::{BoardQuery, find_task_by_id_text};
use crate::app::{Error, PageRequest};
use crate::web::labels::state_label;
use crate::web::layout::Layout;
use crate::web::session::Session;
use crate::web::{PageError, PageResult, WebState, render};

/// Maximum number of tasks.
const MAX_TASKS: u8 = 8;

/// Number of newest tasks whose titles are compared with unfinished words.
const MAX_TITLES: u32 = 200;

/// Query parameters of the palette.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::web) struct PaletteQuery {
    text: String,
}

/// Items of the palette, without a page around them.
#[derive(Template)]
#[template(path = "_palette.html")]
struct PaletteItems {
    tasks: Vec<PaletteTask>,
}

struct PaletteTask {
    id: Uuid,
    short_id: String,
    title: String,
    state: &'static str,
}

/// Returns whether each typed word starts a word of the title: people find a task before they have
/// finished typing.
fn title_matches(title: &str, typed: &str) -> bool {
    let title = title.to_lowercase();
    let words = || title.split(|character: char| !character.is_alphanumeric());
    let typed = typed.to_lowercase();
    typed.split_whitespace().all(|typed| words().any(|word| word.starts_with(typed)))
}

/// Finds tasks by text or ID; without a text, the newest ones. If no task has the words, their beginnings
/// are looked for in the newest titles.
pub(in crate::web) async fn search(
    state: WebState,
    session: Session,
    Query(query): Query<PaletteQuery>,
) -> PageResult {
    let found = async {
        let by_id = find_task_by_id_text(&state.app, &query.text).await?;
        if let Some(id) = by_id {
            return Ok(vec![state.app.task_card(tamma_core::ids::TaskId(id)).await?]);
        }
        let typed = BoardQuery { text: query.text.clone(), ..BoardQuery::default() };
        let filter: TaskFilter = typed.store_filter(&state.app).await?;
        let window = PageRequest { after: None, limit: u32::from(MAX_TASKS) };
        let mut tasks = state.app.list_tasks(&filter, &window).await?.tasks;
        if tasks.is_empty()
            && let Some(typed) = &filter.text
        {
            let newest = TaskFilter { text: None, ..filter.clone() };
            let window = PageRequest { after: None, limit: MAX_TITLES };
            tasks = state.app.list_tasks(&newest, &window).await?.tasks;
            tasks.retain(|card| title_matches(&card.title, typed));
            tasks.truncate(usize::from(MAX_TASKS));
        }
        Ok(tasks)
    };
    let cards =
        found.await.map_err(|error: Error| PageError::new(Layout::for_session(&session), error))?;
    let tasks = cards.into_iter().map(|card| PaletteTask {
        id: card.id,
        short_id: card.short,
        title: card.title,
        state: state_label(card.state),
    });
    render(&PaletteItems { tasks: tasks.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_words_match_the_start_of_a_word() {
        for typed in ["gre", "Greet peo", "na greet", "ümla"] {
            assert!(title_matches("Greet people by name: Ümlaut", typed), "{typed}");
        }
        for typed in ["reet", "greet moon", "greets"] {
            assert!(!title_matches("Greet people by name", typed), "{typed}");
        }
    }
}
