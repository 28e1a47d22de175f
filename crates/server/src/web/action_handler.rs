//! Action forms of tasks.

use axum::extract::Path;
use tamma_core::ids::TaskId;
use tamma_core::review::patch::LineSide;
use tamma_core::task::Priority;
use tamma_core::task_loop::State as TaskState;
use uuid::Uuid;

use super::form_fields::FormFields;
use super::layout::{Layout, Notice};
use super::session::{Session, redirect_with_notice};
use super::{PageError, PageResult, WebState};
use crate::app::Error;
use crate::dto::{BudgetGrant, LineComment, TaskAction, TaskDetail};
use crate::problem::Problem;

/// Submits an action, then shows the result on the page it came from.
pub(super) async fn submit_action(
    state: WebState,
    session: Session,
    Path(id): Path<Uuid>,
    fields: FormFields,
) -> PageResult {
    // Read before the action, which may replace the plan. Without it, the notice has no plan number.
    let before = state.app.task_detail(TaskId(id)).await.ok();
    let submitted = async {
        let mut action = parse_action(&fields)?;
        let by = session.acting_person()?;
        let key = fields.non_empty("key");
        // Drafts are part of the decision.
        let drafts = match &mut action {
            TaskAction::Rework { lines, .. } => {
                lines.extend(state.app.sendable_drafts(TaskId(id), &by).await?);
                Vec::new()
            }
            TaskAction::Accept { .. } => state.app.sendable_drafts(TaskId(id), &by).await?,
            _ => Vec::new(),
        };
        let status =
            state.app.perform_action(TaskId(id), by.clone(), action.clone(), key.clone()).await?;
        state.app.post_with_decision(TaskId(id), &by, &drafts).await?;
        let Some(next) = action_after_rejection(&action, &fields) else {
            return Ok(confirmation(&action, status.state, before.as_ref()));
        };
        // The plan is rejected now. If this fails, the task waits for a decision, as it says.
        let key = key.map(|key| format!("{key}-next"));
        let status = state.app.perform_action(TaskId(id), by, next.clone(), key).await?;
        let rejected = plan_name(before.as_ref());
        let then = confirmation(&next, status.state, before.as_ref());
        Ok(format!("{rejected} rejected. {then}"))
    };
    let text = submitted.await.map_err(|error: Error| {
        let problem = describe_error(error, before.as_ref());
        PageError::new(Layout::for_session(&session), problem).with_unsent_text(fields.user_text())
    })?;
    let back = match fields.text("back") {
        back if back == "/inbox" => back,
        back if back == "/" || back.starts_with("/?") => back,
        _ => format!("/tasks/{id}"),
    };
    redirect_with_notice(&back, &Notice::success(text))
}

/// Names the plan that replaced the one on the page, which the API identifies by its hash.
fn describe_error(error: Error, task: Option<&TaskDetail>) -> Problem {
    let version = match (&error, task.and_then(|task| task.plan.as_ref())) {
        (Error::Changed { what: "plan", .. }, Some(plan)) => Some(plan.version),
        _ => None,
    };
    let mut problem = Problem::from(error);
    if let Some(version) = version {
        problem.detail =
            format!("Plan {version} has replaced the plan you were reading. Nothing was changed.");
    }
    problem
}

/// Returns the action that a person chose to follow the rejection of a plan.
fn action_after_rejection(action: &TaskAction, fields: &FormFields) -> Option<TaskAction> {
    let TaskAction::Reject { reason, .. } = action else { return None };
    match fields.text("then").as_str() {
        "replan" => Some(TaskAction::Modify { note: reason.clone() }),
        "cancel" => Some(TaskAction::Cancel { reason: reason.clone() }),
        _ => None,
    }
}

fn plan_name(before: Option<&TaskDetail>) -> String {
    let plan = before.and_then(|task| task.plan.as_ref());
    plan.map_or_else(|| "Plan".to_owned(), |plan| format!("Plan {}", plan.version))
}

/// Returns the notice about a successful action.
fn confirmation(action: &TaskAction, state: TaskState, before: Option<&TaskDetail>) -> String {
    let plan = plan_name(before);
    let text = match action {
        TaskAction::Approve { .. } => match state {
            TaskState::AwaitingApproval => {
                return format!("{plan} approved. Another approval is needed.");
            }
            _ => return format!("{plan} approved. Waiting for a free agent."),
        },
        TaskAction::Reject { .. } => return format!("{plan} rejected. Choose the next step."),
        TaskAction::Override { .. } => {
            return format!("Prohibition overridden. {plan} needs approval.");
        }
        TaskAction::Cancel { .. } => match before.filter(|task| task.commit.is_some()) {
            Some(task) => {
                return format!("Task cancelled. Its work is on {}.", task.branch);
            }
            None => "Task cancelled.",
        },
        TaskAction::AskChanges { .. } => "Plan revision requested. The next plan needs approval.",
        TaskAction::Accept { .. } => "Change accepted.",
        TaskAction::Rework { .. } => "Changes requested.",
        TaskAction::Pause {} => "Task paused.",
        TaskAction::Resume {} => "Task resumed.",
        TaskAction::Modify { .. } => "Task updated. Planning starts again.",
        TaskAction::Retry { .. } => "Retrying.",
        TaskAction::Continue { .. } => "Task continued.",
        TaskAction::Reply { .. } => "Reply sent.",
        TaskAction::RollBack { .. } => "Task rolled back.",
        TaskAction::Skip { .. } => "Step skipped.",
        TaskAction::Convene { .. } => "Council convened. Its conclusion appears here.",
        TaskAction::Abandon { .. } => "Task abandoned.",
        TaskAction::Acknowledge {} => "Marked as seen. Reminders are off.",
        TaskAction::AdjustPlan { .. } => "Plan edited. The edited plan needs approval.",
        TaskAction::Edit { .. } => "Task edited.",
        TaskAction::Rate { .. } => "Rating saved.",
    };
    text.to_owned()
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
            let unknown = |_| Error::invalid("Unknown state.", "Choose one from the list.");
            TaskAction::RollBack { to: to.map_err(unknown)?, reason: reason() }
        }
        "skip" => TaskAction::Skip { reason: reason() },
        "convene" => TaskAction::Convene { question: fields.text("question") },
        "abandon" => TaskAction::Abandon { reason: reason() },
        "acknowledge" => TaskAction::Acknowledge {},
        "edit" => parse_edit(fields)?,
        "rate" => {
            let unknown = |_| Error::invalid("The rating is missing.", "Choose 1 to 5 stars.");
            let stars = fields.text("stars").parse().map_err(unknown)?;
            TaskAction::Rate { stars, reason: fields.non_empty("reason") }
        }
        other => {
            let detail = format!("Unknown action `{other}`.");
            return Err(Error::invalid(detail, "Use the buttons on the task page."));
        }
    })
}

/// Parses an edit. A field that the form does not have is not changed.
fn parse_edit(fields: &FormFields) -> Result<TaskAction, Error> {
    let priority = fields.non_empty("priority").map(|text| text.parse::<Priority>()).transpose();
    let unknown = |_| Error::invalid("Unknown priority.", "Choose one from the list.");
    let has_labels = !fields.all("labels").is_empty();
    Ok(TaskAction::Edit {
        title: fields.non_empty("title"),
        priority: priority.map_err(unknown)?,
        labels: has_labels.then(|| split_labels(&fields.text("labels"))),
        add_labels: Vec::new(),
        remove_labels: Vec::new(),
    })
}

/// Splits a list of labels at its commas.
pub(super) fn split_labels(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|it| !it.is_empty()).map(str::to_owned).collect()
}

fn parse_grant(fields: &FormFields) -> Result<BudgetGrant, Error> {
    let number = |name: &str| fields.non_empty(name).unwrap_or_else(|| "0".to_owned());
    let not_a_number = |what: &str| {
        Error::invalid(format!("`{what}` is not a number."), "Enter a number, such as 2 or 1.50.")
    };
    Ok(BudgetGrant {
        iterations: number("iterations").parse().map_err(|_| not_a_number("Additional runs"))?,
        usd: number("usd")
            .trim_start_matches('$')
            .parse()
            .map_err(|_| not_a_number("Additional budget (USD)"))?,
        tokens: number("tokens").parse().map_err(|_| not_a_number("Additional tokens"))?,
    })
}

/// Parses line comments that are written as `file:line: text`. A minus before the number means the file
/// before the change.
fn parse_line_comments(fields: &FormFields) -> Result<Vec<LineComment>, Error> {
    let mut lines = Vec::new();
    for line in fields.lines("lines") {
        let (location, text) = line.split_once(": ").ok_or_else(|| invalid_line_comment(&line))?;
        lines.push(parse_line_comment(location, text)?);
    }
    Ok(lines)
}

fn parse_line_comment(location: &str, text: &str) -> Result<LineComment, Error> {
    let (file, line) = location.rsplit_once(':').ok_or_else(|| invalid_line_comment(location))?;
    let (side, number) = match line.trim().strip_prefix('-') {
        Some(number) => (LineSide::Old, number),
        None => (LineSide::New, line.trim()),
    };
    let line = number.parse().map_err(|_| invalid_line_comment(location))?;
    Ok(LineComment { file: file.trim().to_owned(), line, side, text: text.trim().to_owned() })
}

fn invalid_line_comment(line: &str) -> Error {
    Error::invalid(
        format!("`{line}` is not a line comment."),
        "Write the file, the line number and the comment: `src/a.rs:42: text`.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comment_can_name_a_line_before_the_change() {
        let new = parse_line_comment("src/a.rs:42", "why?").expect("comment");
        assert_eq!((new.side, new.line), (LineSide::New, 42));
        let old = parse_line_comment("src/a.rs:-7", "keep it").expect("comment");
        assert_eq!((old.file.as_str(), old.side, old.line), ("src/a.rs", LineSide::Old, 7));
        assert!(parse_line_comment("src/a.rs", "no line").is_err());
    }
}
