//! Commands that act on a task: approvals, answers, pauses.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use serde_json::Value;
use tamma_core::cost::Usd;
use tamma_core::plan::PlanAdjustment;
use tamma_core::review::patch::LineSide;
use tamma_core::task::Priority;
use tamma_core::task_loop::{AnswerKind, State};
use tamma_server::dto::{
    BudgetGrant, LineComment, PlanVersion, TaskAction, TaskDetail, TaskStatus, short_id,
};
use uuid::Uuid;

use super::task::{diff, show};
use crate::client::{self, Client, ClientArgs, IdentityArgs};
use crate::{output, style};

/// Task to act on, and the person acting.
#[derive(Debug, Args)]
pub(crate) struct TaskArgs {
    /// Task ID, or at least four characters from its start or end
    #[arg(value_name = "TASK")]
    id: String,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

/// Arguments of `tamma approve`.
#[derive(Debug, Args)]
pub(crate) struct ApproveArgs {
    #[command(flatten)]
    task: TaskArgs,
    /// Hash of the plan you reviewed (at least 8 characters)
    #[arg(long, value_name = "HASH")]
    plan: Option<String>,
    /// Reason, recorded in the task history
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Arguments of `tamma reject`.
#[derive(Debug, Args)]
pub(crate) struct RejectArgs {
    #[command(flatten)]
    task: TaskArgs,
    /// Reason, recorded in the task history and given to the planner
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[arg(
        long,
        value_name = "HASH",
        help = "Hash of the plan you reviewed [default: the current plan]"
    )]
    plan: Option<String>,
}

/// Arguments of `tamma accept`.
#[derive(Debug, Args)]
pub(crate) struct AcceptArgs {
    #[command(flatten)]
    task: TaskArgs,
    /// Hash of the commit you reviewed (at least 8 characters)
    #[arg(long, value_name = "HASH")]
    commit: Option<String>,
    /// Reason, recorded in the task history
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Arguments of `tamma revise-plan`.
#[derive(Debug, Args)]
pub(crate) struct RevisePlanArgs {
    #[command(flatten)]
    task: TaskArgs,
    /// Changes you want; with --set, the reason
    text: String,
    /// Set a field of the plan, without a planner (repeatable); lists and numbers are JSON, such as
    /// `estimated_tokens=5000`
    #[arg(long = "set", value_name = "FIELD=VALUE", value_parser = parse_adjustment)]
    adjustments: Vec<PlanAdjustment>,
    #[arg(
        long,
        value_name = "HASH",
        help = "Hash of the plan you reviewed [default: the current plan]"
    )]
    plan: Option<String>,
}

/// Arguments of `tamma change-task`.
#[derive(Debug, Args)]
pub(crate) struct ChangeTaskArgs {
    #[command(flatten)]
    task: TaskArgs,
    /// What the task should do instead, or as well
    text: String,
}

/// Arguments of `tamma rate`.
#[derive(Debug, Args)]
pub(crate) struct RateArgs {
    #[command(flatten)]
    task: TaskArgs,
    /// 1 (bad) to 5 (good)
    #[arg(value_parser = clap::value_parser!(u8).range(1..=5))]
    stars: u8,
    /// Comment, recorded in the task history
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Arguments of `tamma task edit`.
#[derive(Debug, Args)]
pub(crate) struct EditArgs {
    #[command(flatten)]
    task: TaskArgs,
    /// New title; possible until the task has a plan
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// low, medium, high or critical
    #[arg(long)]
    priority: Option<Priority>,
    /// Label to add (repeatable)
    #[arg(long = "add-label", value_name = "LABEL")]
    add_labels: Vec<String>,
    /// Label to remove (repeatable)
    #[arg(long = "remove-label", value_name = "LABEL")]
    remove_labels: Vec<String>,
}

/// Arguments of `tamma cancel`.
#[derive(Debug, Args)]
pub(crate) struct CancelArgs {
    #[command(flatten)]
    task: TaskArgs,
    /// Reason, recorded in the task history
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

/// Extra runs, dollars and tokens that a person allows a task.
#[derive(Debug, Clone, Args)]
pub(crate) struct GrantArgs {
    /// Additional budget, in US dollars
    #[arg(long = "grant-usd", value_name = "DOLLARS", default_value = "0")]
    usd: Usd,
    /// Additional runs
    #[arg(long = "grant-runs", value_name = "NUMBER", default_value_t = 0)]
    runs: u16,
    /// Additional tokens
    #[arg(long = "grant-tokens", value_name = "NUMBER", default_value_t = 0)]
    tokens: u64,
}

/// Arguments of `tamma retry`.
#[derive(Debug, Args)]
pub(crate) struct RetryArgs {
    #[command(flatten)]
    task: TaskArgs,
    #[command(flatten)]
    grant: GrantArgs,
}

/// Arguments of `tamma reply`.
#[derive(Debug, Args)]
pub(crate) struct ReplyArgs {
    #[command(flatten)]
    task: TaskArgs,
    /// Reply to the agent
    text: String,
}

/// Arguments of `tamma council`.
#[derive(Debug, Args)]
pub(crate) struct CouncilArgs {
    #[command(flatten)]
    task: TaskArgs,
    /// Question to the council
    question: String,
}

/// Arguments of `tamma answer`.
#[derive(Debug, Args)]
pub(crate) struct AnswerArgs {
    #[command(flatten)]
    task: TaskArgs,
    /// Answer (`tamma task show` lists the available ones)
    #[arg(value_enum, value_name = "ANSWER")]
    #[arg(id = "word")]
    answer: AnswerChoice,
    /// Reason, or the changes you want
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// State to roll back to
    #[arg(long, value_name = "STATE")]
    to: Option<State>,
    /// Hash of the plan you reviewed, for approve, reject, revise-plan and override
    #[arg(long, value_name = "HASH")]
    plan: Option<String>,
    /// Hash of the commit you reviewed, for accept and request-changes
    #[arg(long, value_name = "HASH")]
    commit: Option<String>,
    /// Comment on a line of the change, for request-changes (repeatable); `tamma task diff` shows the
    /// line numbers, and -LINE is a line before the change
    #[arg(long = "comment", value_name = "FILE:LINE:TEXT", value_parser = parse_line_comment)]
    comments: Vec<LineComment>,
    #[command(flatten)]
    grant: GrantArgs,
}

/// Parses `FIELD=VALUE`. A value that is not JSON is text.
fn parse_adjustment(text: &str) -> Result<PlanAdjustment, String> {
    let (field, value) =
        text.split_once('=').filter(|(field, _)| !field.trim().is_empty()).ok_or_else(|| {
            format!("expected FIELD=VALUE, such as `approach=one table`, not `{text}`")
        })?;
    let new_value = match serde_json::from_str(value) {
        Ok(value @ (Value::Array(_) | Value::Object(_) | Value::Number(_) | Value::Null)) => value,
        // Quotes around a text are optional.
        Ok(Value::String(text)) => Value::String(text),
        Ok(Value::Bool(_)) | Err(_) => Value::String(value.to_owned()),
    };
    let (field, reason) = (field.trim().to_owned(), String::new());
    Ok(PlanAdjustment { field, original_value: None, new_value, reason })
}

/// Parses `FILE:LINE:TEXT`. A minus before the number means the file before the change.
fn parse_line_comment(text: &str) -> Result<LineComment, String> {
    let wrong = || format!("expected FILE:LINE:TEXT, such as `a.rs:12:rename it`, not `{text}`");
    let mut parts = text.splitn(3, ':').map(str::trim);
    let (Some(file), Some(line), Some(comment)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(wrong());
    };
    let (side, number) = match line.strip_prefix('-') {
        Some(number) => (LineSide::Old, number),
        None => (LineSide::New, line),
    };
    let line = number.parse().ok().filter(|line| *line > 0).ok_or_else(wrong)?;
    if file.is_empty() || comment.is_empty() {
        return Err(wrong());
    }
    Ok(LineComment { file: file.to_owned(), line, side, text: comment.to_owned() })
}

/// Answers that the command line accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AnswerChoice {
    Approve,
    Reject,
    #[value(alias = "ask-changes")]
    RevisePlan,
    Override,
    Accept,
    #[value(alias = "rework")]
    RequestChanges,
    Reply,
    Continue,
    #[value(alias = "modify")]
    ChangeTask,
    Retry,
    RollBack,
    Skip,
    Convene,
    Cancel,
    Abandon,
    Acknowledge,
}

impl From<GrantArgs> for BudgetGrant {
    fn from(more: GrantArgs) -> Self {
        Self { iterations: more.runs, usd: more.usd, tokens: more.tokens }
    }
}

impl TaskArgs {
    /// Finds the task, builds the action for it and sends it. Exits with 1 if `action` returns `None`.
    fn submit(
        &self,
        action: impl AsyncFnOnce(&Client, &TaskDetail) -> Result<Option<TaskAction>>,
    ) -> Result<ExitCode> {
        client::block_on(&self.target, async {
            let client = Client::new(&self.target)?;
            let by = self.identity.resolve_name()?;
            let id = client.resolve_task(&self.id).await?;
            let detail: TaskDetail = client.get(&format!("/tasks/{id}"), &[]).await?;
            let Some(action) = action(&client, &detail).await? else {
                return Ok(ExitCode::FAILURE);
            };
            let status: TaskStatus = client
                .post(&format!("/tasks/{id}/actions"), &by, client::new_id(), &action)
                .await?;
            if self.target.json {
                output::print_json(&status)?;
            } else {
                let message = outcome_message(id, &action, &status);
                let mut out = anstream::stdout().lock();
                writeln!(out, "{message}")?;
                if matches!(action, TaskAction::Approve { .. }) {
                    writeln!(out, "Follow it with `tamma task watch {}`", detail.card.short)?;
                }
            }
            Ok(ExitCode::SUCCESS)
        })
    }
}

/// One-line confirmation of an action that the server accepted.
pub(super) fn outcome_message(id: Uuid, action: &TaskAction, status: &TaskStatus) -> String {
    let done = match action {
        TaskAction::Approve { .. } => "plan approved",
        TaskAction::Reject { .. } => "plan rejected",
        TaskAction::AskChanges { .. } => "plan sent back for revision",
        TaskAction::Override { .. } => "prohibition overridden",
        TaskAction::Accept { .. } => "change accepted",
        TaskAction::Rework { .. } => "changes requested",
        TaskAction::Pause {} => "paused",
        TaskAction::Resume {} => "resumed",
        TaskAction::Cancel { .. } => "cancelled",
        TaskAction::Modify { .. } => "task changed",
        TaskAction::Retry { .. } => "retried",
        TaskAction::Reply { .. } => "answered",
        TaskAction::Continue { .. } => "continued",
        TaskAction::RollBack { .. } => "rolled back",
        TaskAction::Skip { .. } => "skipped",
        TaskAction::Convene { .. } => "council convened",
        TaskAction::Abandon { .. } => "abandoned",
        TaskAction::Acknowledge {} => "marked as seen",
        TaskAction::AdjustPlan { .. } => "plan edited",
        TaskAction::Edit { .. } => "edited",
        TaskAction::Rate { .. } => "rated",
    };
    let by = output::sanitize(&status.by);
    let state = style::paint(status.state.label(), style::state_colour(status.state));
    let paused = if status.paused { ", paused" } else { "" };
    format!("{} {done} by {by}; now {state}{paused}", short_id(id))
}

/// Newest plan of the task, or an error if it has none.
fn current_plan(detail: &TaskDetail) -> Result<&PlanVersion> {
    match &detail.plan {
        Some(plan) => Ok(plan),
        None => bail!(
            "task {} has no plan yet: its state is {}",
            detail.card.short,
            detail.card.state.label()
        ),
    }
}

/// Approves the plan that `--plan` names, or the one that the person confirms.
pub(super) fn approve(approve: &ApproveArgs) -> Result<ExitCode> {
    let ApproveArgs { task, plan, reason } = approve;
    task.submit(async |client, detail| {
        check_awaits_plan(detail)?;
        let plan = match plan {
            Some(plan) => plan.clone(),
            None => match confirm_plan(client, detail, task.target.json).await? {
                Some(hash) => hash,
                None => return Ok(None),
            },
        };
        Ok(Some(TaskAction::Approve { plan, reason: reason.clone() }))
    })
}

/// Refuses to approve a plan of a closed task, or while a change is under review, and says why.
fn check_awaits_plan(detail: &TaskDetail) -> Result<()> {
    let answers = &detail.card.answers;
    if detail.card.state.is_terminal() {
        bail!(
            "task {} has no plan to approve: it is {}",
            detail.card.short,
            detail.card.state.label()
        );
    }
    if answers.contains(&AnswerKind::Approve) || !answers.contains(&AnswerKind::Accept) {
        return Ok(());
    }
    let id = &detail.card.short;
    bail!(
        "task {id} has no plan to approve: its change is waiting for review\n  help: read it with `tamma \
         task diff {id}`, then accept it with `tamma accept {id}`"
    );
}

/// Shows the plan and asks for confirmation. Returns its hash, or `None` if the person declines.
async fn confirm_plan(client: &Client, detail: &TaskDetail, json: bool) -> Result<Option<String>> {
    let plan: PlanVersion = client.get(&format!("/tasks/{}/plan", detail.card.id), &[]).await?;
    if json || !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        let hash = plan.hash.get(..12).unwrap_or(&plan.hash);
        bail!(
            "cannot ask for confirmation: standard input is not a terminal\n  help: read the plan with \
             `tamma task show {id}`, then run `tamma approve {id} --plan {hash}`",
            id = detail.card.short,
        );
    }
    let mut out = anstream::stdout().lock();
    writeln!(out, "{}", show::format_plan_for_approval(detail, &plan))?;
    write!(out, "Approve this plan? [y/N] ")?;
    out.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    if matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
        return Ok(Some(plan.hash));
    }
    writeln!(out, "Nothing was changed. See also `tamma reject` and `tamma revise-plan`.")?;
    Ok(None)
}

/// Rejects the plan that `--plan` names, or the newest one.
pub(super) fn reject(reject: &RejectArgs) -> Result<ExitCode> {
    let RejectArgs { task, reason, plan } = reject;
    task.submit(async |_, detail| {
        let plan =
            plan.clone().map_or_else(|| current_plan(detail).map(|it| it.hash.clone()), Ok)?;
        Ok(Some(TaskAction::Reject { plan, reason: reason.clone() }))
    })
}

/// Accepts the change that `--commit` names, or the one that the person confirms.
pub(super) fn accept(accept: &AcceptArgs) -> Result<ExitCode> {
    let AcceptArgs { task, commit, reason } = accept;
    task.submit(async |client, detail| {
        let commit = match commit {
            Some(commit) => commit.clone(),
            None => match confirm_change(client, detail, task.target.json).await? {
                Some(commit) => commit,
                None => return Ok(None),
            },
        };
        Ok(Some(TaskAction::Accept { commit, reason: reason.clone() }))
    })
}

/// Shows the change and asks for confirmation. Returns its commit, or `None` if the person declines.
async fn confirm_change(
    client: &Client,
    detail: &TaskDetail,
    json: bool,
) -> Result<Option<String>> {
    let id = &detail.card.short;
    let Some(commit) = &detail.commit else { bail!("task {id} has no change to review yet") };
    if json || !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        bail!(
            "cannot ask for confirmation: standard input is not a terminal\n  help: read the change with \
             `tamma task diff {id}`, then run `tamma accept {id} --commit {}`",
            commit.get(..12).unwrap_or(commit)
        );
    }
    let change = diff::fetch(client, detail.card.id).await?;
    let mut out = anstream::stdout().lock();
    diff::write_change(&mut out, &change)?;
    write!(out, "\nAccept this change? [y/N] ")?;
    out.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    if matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
        return Ok(Some(change.commit));
    }
    writeln!(out, "Nothing was changed. `tamma task show {id}` lists the other answers.")?;
    Ok(None)
}

/// Asks the planner for a revised plan, or edits fields of the plan.
pub(super) fn revise_plan(revise: &RevisePlanArgs) -> Result<ExitCode> {
    let RevisePlanArgs { task, text, adjustments, plan } = revise;
    task.submit(async |_, detail| {
        let plan =
            plan.clone().map_or_else(|| current_plan(detail).map(|it| it.hash.clone()), Ok)?;
        Ok(Some(if adjustments.is_empty() {
            TaskAction::AskChanges { plan, changes: text.clone() }
        } else {
            let (adjustments, reason) = (adjustments.clone(), text.clone());
            TaskAction::AdjustPlan { plan, adjustments, reason }
        }))
    })
}

/// Changes the request and replans.
pub(super) fn change_task(change: &ChangeTaskArgs) -> Result<ExitCode> {
    let note = change.text.clone();
    change.task.submit(async |_, _| Ok(Some(TaskAction::Modify { note })))
}

/// Edits the title, the priority or the labels of a task.
pub(super) fn edit(edit: &EditArgs) -> Result<ExitCode> {
    let EditArgs { task, title, priority, add_labels, remove_labels } = edit;
    let action = TaskAction::Edit {
        title: title.clone(),
        priority: *priority,
        labels: None,
        add_labels: add_labels.clone(),
        remove_labels: remove_labels.clone(),
    };
    task.submit(async |_, _| Ok(Some(action)))
}

/// Rates a closed task.
pub(super) fn rate(rate: &RateArgs) -> Result<ExitCode> {
    let (stars, reason) = (rate.stars, rate.reason.clone());
    rate.task.submit(async |_, _| Ok(Some(TaskAction::Rate { stars, reason })))
}

/// Pauses a task.
pub(super) fn pause(task: &TaskArgs) -> Result<ExitCode> {
    task.submit(async |_, _| Ok(Some(TaskAction::Pause {})))
}

/// Resumes a paused task.
pub(super) fn resume(task: &TaskArgs) -> Result<ExitCode> {
    task.submit(async |_, _| Ok(Some(TaskAction::Resume {})))
}

/// Cancels a task.
pub(super) fn cancel(cancel: &CancelArgs) -> Result<ExitCode> {
    let reason = cancel.reason.clone();
    cancel.task.submit(async |_, _| Ok(Some(TaskAction::Cancel { reason })))
}

/// Retries failed work.
pub(super) fn retry(retry: &RetryArgs) -> Result<ExitCode> {
    let grant = retry.grant.clone().into();
    retry.task.submit(async |_, _| Ok(Some(TaskAction::Retry { grant })))
}

/// Replies to an agent's question.
pub(super) fn reply(reply: &ReplyArgs) -> Result<ExitCode> {
    let text = reply.text.clone();
    reply.task.submit(async |_, _| Ok(Some(TaskAction::Reply { text })))
}

/// Convenes the council.
pub(super) fn council(council: &CouncilArgs) -> Result<ExitCode> {
    let question = council.question.clone();
    council.task.submit(async |_, _| Ok(Some(TaskAction::Convene { question })))
}

/// Answers the open question of a task.
pub(super) fn answer(answer: &AnswerArgs) -> Result<ExitCode> {
    answer.task.submit(async |_, detail| action_for_answer(answer, detail).map(Some))
}

/// Translates an answer from the command line to an action.
fn action_for_answer(answer: &AnswerArgs, detail: &TaskDetail) -> Result<TaskAction> {
    if !answer.comments.is_empty() && answer.answer != AnswerChoice::RequestChanges {
        bail!("cannot use --comment here: it belongs to the answer request-changes");
    }
    let reason = || match &answer.reason {
        Some(reason) => Ok(reason.clone()),
        None => bail!("missing --reason: give the reason, or the changes you want"),
    };
    let grant = || answer.grant.clone().into();
    Ok(match answer.answer {
        AnswerChoice::Approve => TaskAction::Approve {
            plan: reviewed_plan(answer, detail)?,
            reason: answer.reason.clone(),
        },
        AnswerChoice::Reject => {
            TaskAction::Reject { plan: reviewed_plan(answer, detail)?, reason: reason()? }
        }
        AnswerChoice::RevisePlan => {
            TaskAction::AskChanges { plan: reviewed_plan(answer, detail)?, changes: reason()? }
        }
        AnswerChoice::Override => {
            TaskAction::Override { plan: reviewed_plan(answer, detail)?, reason: reason()? }
        }
        AnswerChoice::Accept => TaskAction::Accept {
            commit: reviewed_commit(answer, detail)?,
            reason: answer.reason.clone(),
        },
        AnswerChoice::RequestChanges => TaskAction::Rework {
            commit: reviewed_commit(answer, detail)?,
            comments: match &answer.reason {
                None if answer.comments.is_empty() => {
                    bail!("missing --reason or --comment: describe the changes you want")
                }
                reason => reason.clone().unwrap_or_default(),
            },
            lines: answer.comments.clone(),
        },
        AnswerChoice::Reply => TaskAction::Reply { text: reason()? },
        AnswerChoice::Continue => TaskAction::Continue { grant: grant() },
        AnswerChoice::ChangeTask => TaskAction::Modify { note: reason()? },
        AnswerChoice::Retry => TaskAction::Retry { grant: grant() },
        AnswerChoice::RollBack => match answer.to {
            Some(to) => TaskAction::RollBack { to, reason: reason()? },
            None => {
                bail!("missing --to: name the state to roll back to, such as --to planning")
            }
        },
        AnswerChoice::Skip => TaskAction::Skip { reason: reason()? },
        AnswerChoice::Convene => TaskAction::Convene { question: reason()? },
        AnswerChoice::Cancel => TaskAction::Cancel { reason: reason()? },
        AnswerChoice::Abandon => TaskAction::Abandon { reason: reason()? },
        AnswerChoice::Acknowledge => TaskAction::Acknowledge {},
    })
}

/// Hash from `--plan`. There is no default, so that nobody decides about a plan they have not read.
fn reviewed_plan(answer: &AnswerArgs, detail: &TaskDetail) -> Result<String> {
    let hash = &current_plan(detail)?.hash;
    match &answer.plan {
        Some(plan) => Ok(plan.clone()),
        None => bail!(
            "missing --plan: name the plan you reviewed\n  help: the current one is --plan {}",
            hash.get(..12).unwrap_or(hash)
        ),
    }
}

/// Commit from `--commit`. There is no default, so that nobody accepts an unread change.
fn reviewed_commit(answer: &AnswerArgs, detail: &TaskDetail) -> Result<String> {
    match (&answer.commit, &detail.commit) {
        (Some(commit), _) => Ok(commit.clone()),
        (None, Some(now)) => bail!(
            "missing --commit: name the commit you reviewed\n  help: the current one is --commit {}",
            now.get(..12).unwrap_or(now)
        ),
        (None, None) => bail!("task {} has no change to review yet", detail.card.short),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_has_a_field_and_a_value_in_json_or_text() {
        use serde_json::json;
        for (text, field, value) in [
            ("approach=one table = fast", "approach", json!("one table = fast")),
            (r#"risks=["slow"]"#, "risks", json!(["slow"])),
            ("estimated_tokens=1000", "estimated_tokens", json!(1000)),
            (r#"summary="5""#, "summary", json!("5")),
        ] {
            let edit = parse_adjustment(text).expect(text);
            assert_eq!((edit.field.as_str(), edit.new_value), (field, value));
        }
        assert!(parse_adjustment("approach").is_err());
        assert!(parse_adjustment("=x").is_err());
    }

    #[test]
    fn a_line_comment_has_a_file_a_line_number_and_a_text() {
        let comment = parse_line_comment("src/a.rs:12: use a: type").expect("a comment");
        assert_eq!(
            (comment.file.as_str(), comment.line, comment.text.as_str()),
            ("src/a.rs", 12, "use a: type")
        );
        for wrong in ["src/a.rs", "src/a.rs:12", "src/a.rs:0:no", "src/a.rs:x:no", ":1:no", "a:1: "]
        {
            assert!(parse_line_comment(wrong).is_err(), "{wrong}");
        }
    }
}
