//! What a person asks of a task, as a form says it.

use axum::extract::{Path, State};
use tamma_core::ids::TaskId;
use uuid::Uuid;

use super::door::{Visitor, done};
use super::fields::Fields;
use super::shell::{Notice, Shell};
use super::{Hall, Oops, Page, words};
use crate::app::Error;
use crate::shape::{Action, Grant, LineComment};

/// Asks a task for something, and says what came of it on the page that it was asked on.
pub(super) async fn act(
    State(hall): State<Hall>,
    visitor: Visitor,
    Path(id): Path<Uuid>,
    fields: Fields,
) -> Page {
    let asked = async {
        let action = action(&fields)?;
        let name = action.to_string();
        let by = visitor.name()?;
        let standing = hall.app.ask(TaskId(id), by, action, fields.given("key")).await?;
        Ok((name, standing))
    };
    let (name, standing) = asked
        .await
        .map_err(|error: Error| Oops::new(Shell::of(&visitor), error).keeping(fields.written()))?;
    let now = words::state(standing.state);
    let notice = Notice::good(format!("{}: it is taken. The task is now {now}.", said(&name)));
    let back = match fields.text("back").as_str() {
        "/inbox" => "/inbox".to_owned(),
        _ => format!("/tasks/{id}"),
    };
    done(&back, &notice)
}

/// What was asked, in words.
fn said(name: &str) -> String {
    super::words::capital(&name.replace('_', " "))
}

fn action(fields: &Fields) -> Result<Action, Error> {
    let (plan, commit) = (fields.text("plan"), fields.text("commit"));
    let reason = || fields.text("reason");
    Ok(match fields.text("action").as_str() {
        "approve" => Action::Approve { plan, reason: fields.given("reason") },
        "reject" => Action::Reject { plan, reason: reason() },
        "ask_changes" => Action::AskChanges { plan, changes: fields.text("changes") },
        "override" => Action::Override { plan, reason: reason() },
        "accept" => Action::Accept { commit, reason: fields.given("reason") },
        "rework" => {
            let comments = fields.text("comments");
            Action::Rework { commit, comments, lines: comments_on_lines(fields)? }
        }
        "pause" => Action::Pause {},
        "resume" => Action::Resume {},
        "cancel" => Action::Cancel { reason: reason() },
        "modify" => Action::Modify { note: fields.text("note") },
        "retry" => Action::Retry { grant: grant(fields)? },
        "continue" => Action::Continue { grant: grant(fields)? },
        "reply" => Action::Reply { text: fields.text("text") },
        "roll_back" => {
            let to = serde_json::from_value(serde_json::Value::String(fields.text("to")));
            let odd = |_| Error::invalid("There is no such state.", "Choose one of the list.");
            Action::RollBack { to: to.map_err(odd)?, reason: reason() }
        }
        "skip" => Action::Skip { reason: reason() },
        "abandon" => Action::Abandon { reason: reason() },
        "acknowledge" => Action::Acknowledge {},
        other => {
            let detail = format!("A task cannot be asked to `{other}`.");
            return Err(Error::invalid(detail, "Use the buttons of the task's page."));
        }
    })
}

fn grant(fields: &Fields) -> Result<Grant, Error> {
    let number = |name: &str| fields.given(name).unwrap_or_else(|| "0".to_owned());
    let odd = |what: &str| {
        Error::invalid(format!("`{what}` is not a number."), "Write how much more it may use.")
    };
    Ok(Grant {
        iterations: number("iterations").parse().map_err(|_| odd("More runs"))?,
        usd: number("usd").trim_start_matches('$').parse().map_err(|_| odd("More dollars"))?,
        tokens: number("tokens").parse().map_err(|_| odd("More tokens"))?,
    })
}

/// The comments on lines: those made on the lines themselves, and those written as `file:line: text`.
fn comments_on_lines(fields: &Fields) -> Result<Vec<LineComment>, Error> {
    let mut lines = Vec::new();
    for (place, text) in fields.all("comment_at").iter().zip(fields.all("comment")) {
        if !text.is_empty() {
            lines.push(comment(place, &text)?);
        }
    }
    for line in fields.lines("lines") {
        let (place, text) = line.split_once(": ").ok_or_else(|| no_comment(&line))?;
        lines.push(comment(place, text)?);
    }
    Ok(lines)
}

fn comment(place: &str, text: &str) -> Result<LineComment, Error> {
    let (file, line) = place.rsplit_once(':').ok_or_else(|| no_comment(place))?;
    let line = line.trim().parse().map_err(|_| no_comment(place))?;
    Ok(LineComment { file: file.trim().to_owned(), line, text: text.trim().to_owned() })
}

fn no_comment(line: &str) -> Error {
    Error::invalid(
        format!("`{line}` is not a comment on a line."),
        "Write the file, the number of the line and what you have to say: `src/a.rs:42: text`.",
    )
}
