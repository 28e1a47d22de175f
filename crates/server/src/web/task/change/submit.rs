//! Forms of the change tab: comments on lines, and marks of viewed files.

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use tamma_core::access::Permission;
use tamma_core::ids::{Digest, TaskId};
use uuid::Uuid;

use super::rows::DiffLayout;
use crate::app::{Error, LineLocation};
use crate::web::form_fields::FormFields;
use crate::web::layout::{Layout, Notice};
use crate::web::session::{Session, redirect_with_notice};
use crate::web::{PageError, PageResult, WebState};

/// Saves, posts or removes a comment on a line.
pub(in crate::web) async fn save_comment(
    state: WebState,
    session: Session,
    Path(id): Path<Uuid>,
    fields: FormFields,
) -> PageResult {
    let saved = async {
        let task = TaskId(id);
        let by = session.acting_person()?;
        by.authorize(Permission::Work, state.app.task_loop(task).await?.project)?;
        let at = line_location(&fields)?;
        let text = fields.text("text");
        Ok(match fields.text("how").as_str() {
            "post" => {
                state.app.post_comment(task, &by, &at, &text).await?;
                "Comment posted. Agents get it when somebody requests changes."
            }
            "remove" => {
                state.app.save_draft(task, &by, &at, "").await?;
                "Draft removed."
            }
            _ => {
                state.app.save_draft(task, &by, &at, &text).await?;
                "Draft saved. It is sent with your decision."
            }
        })
    };
    let notice = saved.await.map_err(|error: Error| {
        PageError::new(Layout::for_session(&session), error).with_unsent_text(fields.user_text())
    })?;
    respond(id, &fields, notice)
}

/// Marks a file as viewed, or removes the mark.
pub(in crate::web) async fn mark_viewed(
    state: WebState,
    session: Session,
    Path(id): Path<Uuid>,
    fields: FormFields,
) -> PageResult {
    let saved = async {
        let person = session.acting_person()?.name;
        let digest: Option<Digest> = match fields.non_empty("digest") {
            Some(digest) => Some(digest.parse().map_err(|_| {
                Error::invalid("The mark has no version of the file.", "Reload the page.")
            })?),
            None => None,
        };
        Ok(state.app.store.mark_viewed(TaskId(id), &person, &fields.text("file"), digest).await?)
    };
    saved.await.map_err(|error: Error| PageError::new(Layout::for_session(&session), error))?;
    let is_set = fields.non_empty("digest").is_some();
    respond(id, &fields, if is_set { "Marked as viewed." } else { "Mark removed." })
}

/// Returns to the place of the form, or responds without a page to a script.
fn respond(id: Uuid, fields: &FormFields, notice: &str) -> PageResult {
    if fields.non_empty("quiet").is_some() {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let view = DiffLayout::from_query(fields.non_empty("view").as_deref()).name();
    let anchor = fields.text("anchor");
    // It becomes part of a header.
    let anchor: String = anchor.chars().filter(char::is_ascii_alphanumeric).collect();
    let back = format!("/tasks/{id}/change?view={view}#{anchor}");
    redirect_with_notice(&back, &Notice::success(notice))
}

fn line_location(fields: &FormFields) -> Result<LineLocation, Error> {
    let incomplete =
        || Error::invalid("The comment has no line.", "Open the form with a line number.");
    let path = fields.non_empty("file").ok_or_else(incomplete)?;
    let side = fields.text("side").parse().map_err(|_| incomplete())?;
    let line = fields.text("line").parse().ok().filter(|line| *line > 0).ok_or_else(incomplete)?;
    Ok(LineLocation { path, side, line })
}
