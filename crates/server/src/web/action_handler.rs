//! Action forms of tasks.

use axum::extract::{Path, State};
use tamma_core::format::capitalize;
use tamma_core::ids::TaskId;
use uuid::Uuid;

use super::form_fields::FormFields;
use super::layout::{Layout, Notice};
use super::session::{Session, redirect_with_notice};
use super::{PageError, PageResult, WebState, labels};
use crate::app::Error;
use crate::dto::{BudgetGrant, LineComment, TaskAction};

/// Submits an action, then shows the result on the page it came from.
pub(super) async fn submit_action(
    State(hall): State<WebState>,
    visitor: Session,
    Path(id): Path<Uuid>,
    fields: FormFields,
) -> PageResult {
    let asked = async {
        let action = parse_action(&fields)?;
        let name = action.to_string();
        let by = visitor.acting_person()?;
        let standing =
            hall.app.perform_action(TaskId(id), by, action, fields.non_empty("key")).await?;
        Ok((name, standing))
    };
    let (name, standing) = asked.await.map_err(|error: Error| {
        PageError::new(Layout::for_session(&visitor), error).with_unsent_text(fields.user_text())
    })?;
    let now = labels::state_label(standing.state);
    let notice = Notice::success(format!("{} State: {now}.", action_label(&name)));
    let back = match fields.text("back").as_str() {
        "/inbox" => "/inbox".to_owned(),
        _ => format!("/tasks/{id}"),
    };
    redirect_with_notice(&back, &notice)
}

/// Confirmation of an action.
fn action_label(name: &str) -> String {
    match name {
        "approve" => "Plan approved.",
        "reject" => "Plan rejected.",
        "ask_changes" => "Plan revision requested.",
        "override" => "Prohibition overridden.",
        "accept" => "Change accepted.",
        "rework" => "Changes requested.",
        "pause" => "Task paused.",
        "resume" => "Task resumed.",
        "cancel" => "Task cancelled.",
        "modify" => "Task changed.",
        "retry" => "Retrying.",
        "continue" => "Continuing.",
        "reply" => "Reply sent.",
        "roll_back" => "Rolled back.",
        "skip" => "Step skipped.",
        "abandon" => "Task abandoned.",
        "acknowledge" => "Marked as seen. Reminders are off.",
        other => return format!("{}.", capitalize(&other.replace('_', " "))),
    }
    .to_owned()
}

fn parse_action(fields: &FormFields) -> Result<TaskAction, Error> {
    let (plan, commit) = (fields.text("plan"), fields.text("commit"));
    let reason = || fields.text("reason");
    Ok(match fields.text("action").as_str() {
        "approve" => TaskAction::Approve { plan, reason: fields.non_empty("reason") },
        "reject" => TaskAction::Reject { plan, reason: reason() },
        "ask_changes" => TaskAction::AskChanges { plan, changes: fields.text("changes") },
        "override" => TaskAction::Override { plan, reason: reason() },
        "accept" => TaskAction::Accept { commit, reason: fields.non_empty("reason") },
        "rework" => {
            let comments = fields.text("comments");
            TaskAction::Rework { commit, comments, lines: parse_line_comments(fields)? }
        }
        "pause" => TaskAction::Pause {},
        "resume" => TaskAction::Resume {},
        "cancel" => TaskAction::Cancel { reason: reason() },
        "modify" => TaskAction::Modify { note: fields.text("note") },
        "retry" => TaskAction::Retry { grant: parse_grant(fields)? },
        "continue" => TaskAction::Continue { grant: parse_grant(fields)? },
        "reply" => TaskAction::Reply { text: fields.text("text") },
        "roll_back" => {
            let to = serde_json::from_value(serde_json::Value::String(fields.text("to")));
            let odd = |_| Error::invalid("Unknown state.", "Choose one from the list.");
            TaskAction::RollBack { to: to.map_err(odd)?, reason: reason() }
        }
        "skip" => TaskAction::Skip { reason: reason() },
        "abandon" => TaskAction::Abandon { reason: reason() },
        "acknowledge" => TaskAction::Acknowledge {},
        other => {
            let detail = format!("Unknown action `{other}`.");
            return Err(Error::invalid(detail, "Use the buttons on the task page."));
        }
    })
}

fn parse_grant(fields: &FormFields) -> Result<BudgetGrant, Error> {
    let number = |name: &str| fields.non_empty(name).unwrap_or_else(|| "0".to_owned());
    let odd = |what: &str| {
        Error::invalid(format!("`{what}` is not a number."), "Enter a number, such as 2 or 1.50.")
    };
    Ok(BudgetGrant {
        iterations: number("iterations").parse().map_err(|_| odd("Additional runs"))?,
        usd: number("usd")
            .trim_start_matches('$')
            .parse()
            .map_err(|_| odd("Additional budget (USD)"))?,
        tokens: number("tokens").parse().map_err(|_| odd("Additional tokens"))?,
    })
}

/// Parses line comments made in the diff and those written as `file:line: text`.
fn parse_line_comments(fields: &FormFields) -> Result<Vec<LineComment>, Error> {
    let mut lines = Vec::new();
    for (place, text) in fields.all("comment_at").iter().zip(fields.all("comment")) {
        if !text.is_empty() {
            lines.push(parse_line_comment(place, &text)?);
        }
    }
    for line in fields.lines("lines") {
        let (place, text) = line.split_once(": ").ok_or_else(|| invalid_line_comment(&line))?;
        lines.push(parse_line_comment(place, text)?);
    }
    Ok(lines)
}

fn parse_line_comment(place: &str, text: &str) -> Result<LineComment, Error> {
    let (file, line) = place.rsplit_once(':').ok_or_else(|| invalid_line_comment(place))?;
    let line = line.trim().parse().map_err(|_| invalid_line_comment(place))?;
    Ok(LineComment { file: file.trim().to_owned(), line, text: text.trim().to_owned() })
}

fn invalid_line_comment(line: &str) -> Error {
    Error::invalid(
        format!("`{line}` is not a line comment."),
        "Write the file, the line number and the comment: `src/a.rs:42: text`.",
    )
}
