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

/// Finds tasks by the start of their words or by ID; without a text, the newest ones.
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
        Ok(state.app.list_tasks(&filter, &window).await?.tasks)
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
