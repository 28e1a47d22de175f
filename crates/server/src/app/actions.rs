//! Actions on a task, such as approve, reply or pause.
//!
//! The state machine in the task's workflow decides. The server converts the request and compares
//! the plan or commit it names with the current one, so that stale decisions are refused early.
//! The workflow compares again.

use tamma_core::access::Permission;
use tamma_core::approval::ApprovalScope;
use tamma_core::format::capitalize;
use tamma_core::ids::{CommitId, Reason, TaskId};
use tamma_core::plan::PlanAdjustment;
use tamma_core::requested_permissions::requested_permissions;
use tamma_core::task::{Priority, Task, TaskEdit};
use tamma_core::task_loop::{self, Refusal, TaskLoop};
use tamma_flow::{ActionRequest, ActionResponse, TaskWorkflow, workflow_id};
use temporalio_client::errors::WorkflowUpdateError;
use temporalio_client::{Client, WorkflowExecuteUpdateOptions};
use tokio::time::error::Elapsed;

use super::policies::PolicyAction;
use super::{App, Comparison, Error, Principal, TEMPORAL_TIMEOUT};
use crate::audit;
use crate::clock;
use crate::dto::{TaskAction, TaskStatus};

/// Minimum length of a hash prefix in a request.
const MIN_HASH_DIGITS: usize = 8;

impl App {
    /// Performs an action on a task. A repeated key returns the result of the first request.
    pub(crate) async fn perform_action(
        &self,
        task: TaskId,
        by: Principal,
        action: TaskAction,
        key: Option<String>,
    ) -> Result<TaskStatus, Error> {
        let task_loop = self.task_loop(task).await?;
        let is_rating = matches!(action, TaskAction::Rate { .. });
        if task_loop.state.is_terminal() && !is_rating {
            return Err(Error::Refused(Refusal::Ended(task_loop.state).to_string()));
        }
        audit::note_task_action(&action, task);
        // Nothing is saved for somebody who cannot act on the task.
        by.authorize(Permission::Work, task_loop.project)?;
        Box::pin(self.check_policies(&by, PolicyAction::from(&action), &task_loop)).await?;
        let comments = match &action {
            TaskAction::Rework { lines, .. } => lines.clone(),
            _ => Vec::new(),
        };
        let action = self.to_machine_action(&task_loop, action).await?;
        // The workflow of a closed task has ended.
        if let task_loop::Action::Rate { stars, reason } = action {
            return self.rate_task(task, by, stars, reason).await;
        }
        let edited = match &action {
            task_loop::Action::AdjustPlan { plan, .. } => Some(plan.clone()),
            _ => None,
        };
        let needed = self.required_permission(&task_loop, &action).await?;
        if needed != Permission::Work {
            by.authorize(needed, task_loop.project)?;
        }
        let auth = Some(by.authentication());
        let request = ActionRequest { at: clock::now(), by: by.name.clone(), auth, action };
        let key = key.unwrap_or_else(|| clock::new_id().to_string());
        let client = self.workflow_client(task.0).await?;
        let mut sent = Box::pin(send_action(&client, task, &request, &key)).await;
        // A workflow that was terminated or lost is replaced first, so that the task can at least be
        // cancelled.
        if matches!(sent, Ok(Err(WorkflowUpdateError::NotFound(_))))
            && matches!(Box::pin(self.compare_task(task, None)).await?, Comparison::Recovered)
        {
            sent = Box::pin(send_action(&client, task, &request, &key)).await;
        }
        let status = match sent {
            Ok(Ok(Ok(status))) => status,
            Ok(Ok(Err(refusal))) => return Err(Error::Refused(refusal)),
            Ok(Err(error)) => return Err(self.update_error(task, error).await),
            Err(_) => return Err(Error::WorkflowTimeout),
        };
        if let Some(plan) = edited
            // The worker does the same before it checks the plan. Until then, people can read it.
            && let Err(error) = self.store.save_edited_plan(task, &plan).await
        {
            tracing::warn!(%task, %error, "failed to save edited plan; the worker will");
        }
        // The history has them too, in the text for the agent.
        if let Err(error) = self.post_with_decision(task, &by, &comments).await {
            tracing::warn!(%task, %error, "failed to save line comments");
        }
        Ok(TaskStatus {
            state: status.state,
            paused: status.paused,
            step: status.step,
            plan: status.plan.map(|plan| plan.to_string()),
            by: by.to_string(),
        })
    }

    /// Returns the permission that an action needs. A reply that can grant an agent permissions is a
    /// decision.
    async fn required_permission(
        &self,
        task_loop: &TaskLoop,
        action: &task_loop::Action,
    ) -> Result<Permission, Error> {
        if matches!(action, task_loop::Action::Reply { .. }) {
            return self.reply_permission(task_loop).await;
        }
        Ok(Permission::from(action))
    }

    /// Returns the permission that a reply to the agent's open question needs.
    pub(super) async fn reply_permission(&self, task_loop: &TaskLoop) -> Result<Permission, Error> {
        let open = task_loop.open_question.as_ref();
        if let Some(question) = open.and_then(|open| open.agent_question.as_ref()) {
            let text = self.store.text(question).await?;
            if !requested_permissions(&text).is_empty() {
                return Ok(Permission::Decide);
            }
        }
        Ok(Permission::from(task_loop::AnswerKind::Reply))
    }

    /// Converts a failed workflow update to an error for the person.
    pub(super) async fn update_error(&self, task: TaskId, error: WorkflowUpdateError) -> Error {
        match error {
            WorkflowUpdateError::Failed(failure) => self.refused_update(*failure).await,
            // The workflow is closed, or its history has passed the retention period.
            WorkflowUpdateError::NotFound(status) => match self.task_loop(task).await {
                Ok(task_loop) if task_loop.state.is_terminal() => {
                    Error::Refused(Refusal::Ended(task_loop.state).to_string())
                }
                Ok(_) => Error::Internal(status.into()),
                Err(error) => error,
            },
            error @ WorkflowUpdateError::PayloadConversion(_) => Error::Internal(error.into()),
            error => Error::temporal(error),
        }
    }

    /// Converts a request to an action of the state machine. Long texts are stored and referenced.
    async fn to_machine_action(
        &self,
        task_loop: &TaskLoop,
        action: TaskAction,
    ) -> Result<task_loop::Action, Error> {
        use task_loop::Action as A;
        Ok(match action {
            TaskAction::Approve { plan, reason } => A::Approve {
                scope: approval_scope(task_loop, &plan, "approve")?,
                reason: reason.map(parse_reason).transpose()?,
            },
            TaskAction::Reject { plan, reason } => A::Reject {
                scope: approval_scope(task_loop, &plan, "reject")?,
                reason: parse_reason(reason)?,
            },
            TaskAction::AskChanges { plan, changes } => A::RevisePlan {
                scope: approval_scope(task_loop, &plan, "revise the plan")?,
                changes: self.store.save_text(&non_empty_text(&changes)?).await?,
            },
            TaskAction::Override { plan, reason } => A::Override {
                scope: approval_scope(task_loop, &plan, "override")?,
                reason: parse_reason(reason)?,
            },
            TaskAction::Accept { commit, reason } => A::Accept {
                commit: commit_under_review(task_loop, &commit, "accept")?,
                reason: reason.map(parse_reason).transpose()?,
            },
            TaskAction::Rework { commit, comments, lines } => {
                let commit = commit_under_review(task_loop, &commit, "request changes")?;
                let text =
                    self.comments_with_code(task_loop.task, commit, &comments, &lines).await?;
                A::RequestChanges { commit, comments: self.store.save_text(&text).await? }
            }
            TaskAction::Pause {} => A::Pause,
            TaskAction::Resume {} => A::Resume,
            TaskAction::Cancel { reason } => A::Cancel { reason: parse_reason(reason)? },
            TaskAction::Modify { note } => {
                A::ChangeTask { request: self.store.save_text(&non_empty_text(&note)?).await? }
            }
            TaskAction::Retry { grant } => A::Retry { grant: grant.into() },
            TaskAction::Continue { grant } => A::Continue { grant: grant.into() },
            TaskAction::Reply { text } => {
                A::Reply { reply: self.store.save_text(&non_empty_text(&text)?).await? }
            }
            TaskAction::RollBack { to, reason } => {
                A::RollBack { to, reason: parse_reason(reason)? }
            }
            TaskAction::Skip { reason } => A::Skip { reason: parse_reason(reason)? },
            TaskAction::Convene { question } => {
                A::Convene { question: self.store.save_text(&non_empty_text(&question)?).await? }
            }
            TaskAction::Abandon { reason } => A::Abandon { reason: parse_reason(reason)? },
            TaskAction::Acknowledge {} => A::Acknowledge,
            TaskAction::AdjustPlan { plan, adjustments, reason } => {
                self.adjust_plan_action(task_loop, &plan, &adjustments, reason).await?
            }
            TaskAction::Edit { title, priority, labels, add_labels, remove_labels } => {
                let stored = self.store.submitted_task(task_loop.task).await?;
                let labels = if add_labels.is_empty() && remove_labels.is_empty() {
                    labels
                } else {
                    let current = labels.unwrap_or_else(|| stored.labels.clone());
                    Some(combine_labels(current, &add_labels, &remove_labels))
                };
                A::Edit(task_edit(&stored, title, priority, labels)?)
            }
            TaskAction::Rate { stars, reason } => {
                A::Rate { stars, reason: reason.map(parse_reason).transpose()? }
            }
        })
    }

    /// Applies edits to the current plan, and stores the result with the list of edits.
    async fn adjust_plan_action(
        &self,
        task_loop: &TaskLoop,
        plan: &str,
        adjustments: &[PlanAdjustment],
        reason: String,
    ) -> Result<task_loop::Action, Error> {
        let scope = approval_scope(task_loop, plan, "adjust the plan")?;
        let reason = parse_reason(reason)?;
        let (_, current) = self.store.plan_by_hash(task_loop.task, scope.plan).await?;
        let (edited, applied) = current.apply_adjustments(adjustments).map_err(|error| {
            Error::invalid(
                capitalize(&format!("{error}.")),
                "Give the name of a field and its complete new value.",
            )
        })?;
        let rules = self.store.rules(scope.pin.policy).await?;
        let version = task_loop.plan.as_ref().map_or(1, |plan| plan.version + 1);
        let stored_at = self.store.save_text(&to_text(&edited)?).await?;
        Ok(task_loop::Action::AdjustPlan {
            scope,
            plan: Box::new(edited.summarize(version, stored_at, &rules)),
            adjustments: self.store.save_text(&to_text(&applied)?).await?,
            reason,
        })
    }
}

/// Sends an action to the workflow of a task.
async fn send_action(
    client: &Client,
    task: TaskId,
    request: &ActionRequest,
    key: &str,
) -> Result<Result<ActionResponse, WorkflowUpdateError>, Elapsed> {
    let options = WorkflowExecuteUpdateOptions::builder().update_id(key.to_owned()).build();
    let handle = client.get_workflow_handle::<TaskWorkflow>(workflow_id(task));
    let update = handle.execute_update(TaskWorkflow::ask, request.clone(), options);
    tokio::time::timeout(TEMPORAL_TIMEOUT, update).await
}

/// Returns the current labels with some added and others removed.
fn combine_labels(current: Vec<String>, add: &[String], remove: &[String]) -> Vec<String> {
    let is_removed = |label: &String| remove.iter().any(|it| it.trim() == label);
    let mut labels: Vec<String> = current.into_iter().filter(|it| !is_removed(it)).collect();
    for label in add {
        if !labels.iter().any(|it| it == label.trim()) {
            labels.push(label.trim().to_owned());
        }
    }
    labels
}

/// Returns the fields that the edit changes, if their values are valid.
fn task_edit(
    stored: &Task,
    title: Option<String>,
    priority: Option<Priority>,
    labels: Option<Vec<String>>,
) -> Result<TaskEdit, Error> {
    let trim = |text: String| text.trim().to_owned();
    let labels = labels.map(|labels| labels.into_iter().map(trim).collect::<Vec<_>>());
    let edit = TaskEdit {
        title: title.map(trim).filter(|title| *title != stored.title),
        priority: priority.filter(|priority| *priority != stored.priority),
        labels: labels.filter(|labels| *labels != stored.labels),
    };
    edit.validate().map_err(|error| {
        let detail = capitalize(&format!("{error}."));
        Error::invalid(detail, "Correct the title, the priority or the labels.")
    })?;
    Ok(edit)
}

fn to_text(value: &impl serde::Serialize) -> Result<String, Error> {
    serde_json::to_string_pretty(value).map_err(|error| Error::Internal(error.into()))
}

/// Returns the scope of an approval if the request names the current plan.
fn approval_scope(task_loop: &TaskLoop, plan: &str, action: &str) -> Result<ApprovalScope, Error> {
    let scope = task_loop.current_scope().ok_or_else(|| not_allowed_now(task_loop, action))?;
    check_hash_prefix("plan", plan, &scope.plan.to_string())?;
    Ok(scope)
}

/// Returns the commit under review if the request names it.
fn commit_under_review(
    task_loop: &TaskLoop,
    commit: &str,
    action: &str,
) -> Result<CommitId, Error> {
    let now = task_loop.commit.ok_or_else(|| not_allowed_now(task_loop, action))?;
    check_hash_prefix("commit", commit, &now.to_string())?;
    Ok(now)
}

fn not_allowed_now(task_loop: &TaskLoop, action: &str) -> Error {
    let (state, action) = (task_loop.state, action.to_owned());
    Error::Refused(Refusal::WrongState { state, action }.to_string())
}

/// Checks that `requested` is a prefix of the current hash.
fn check_hash_prefix(what: &'static str, requested: &str, now: &str) -> Result<(), Error> {
    let requested = requested.trim().to_ascii_lowercase();
    if requested.len() < MIN_HASH_DIGITS
        || !requested.chars().all(|digit| digit.is_ascii_hexdigit())
    {
        return Err(Error::invalid(
            format!("`{requested}` does not identify a {what}."),
            format!("Give at least the first {MIN_HASH_DIGITS} digits of the {what} hash."),
        ));
    }
    if now.starts_with(&requested) {
        return Ok(());
    }
    let first = |hash: &str| hash.chars().take(12).collect();
    Err(Error::Changed { what, requested: first(&requested), now: first(now) })
}

pub(super) fn parse_reason(text: impl AsRef<str>) -> Result<Reason, Error> {
    non_empty_text(text.as_ref())?.parse().map_err(|_| {
        Error::invalid(
            format!("The reason is longer than {} characters.", Reason::MAX),
            "Shorten it.",
        )
    })
}

fn non_empty_text(text: &str) -> Result<String, Error> {
    let text = text.trim();
    if text.is_empty() {
        return Err(Error::invalid(
            "The text is empty.",
            "Give a reason, or the changes you want.",
        ));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn labels_are_added_once_and_removed() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let labels = combine_labels(words("login ui"), &words("ui api"), &words("login none"));
        assert_eq!(labels, words("ui api"));
    }

    #[test]
    fn an_edit_is_trimmed_and_checked() {
        let id = "01920000-0000-7000-8000-000000000002";
        let stored = serde_json::json!({
            "id": id, "project": id, "title": "Greet", "type": "feature", "labels": ["ui"],
        });
        let stored: Task = serde_json::from_value(stored).expect("task");
        let edit = |title: &str, labels: &[&str]| {
            let labels = labels.iter().map(|label| (*label).to_owned()).collect();
            task_edit(&stored, Some(title.to_owned()), Some(Priority::Medium), Some(labels))
        };
        let expected = TaskEdit { title: Some("Wave".to_owned()), ..TaskEdit::default() };
        assert_eq!(edit(" Wave ", &[" ui "]).expect("valid"), expected, "only what changes");
        for (title, labels) in [("Greet", ["a,b"]), ("Greet", ["ui"]), ("", ["ui"])] {
            assert!(matches!(edit(title, &labels), Err(Error::Invalid { .. })), "{title}");
        }
    }

    #[test]
    fn a_hash_prefix_needs_at_least_eight_digits() {
        assert!(check_hash_prefix("plan", "01234567", HASH).is_ok());
        assert!(check_hash_prefix("plan", " 0123456789ABCDEF ", HASH).is_ok());
        assert!(matches!(check_hash_prefix("plan", "0123456", HASH), Err(Error::Invalid { .. })));
        assert!(matches!(check_hash_prefix("plan", "", HASH), Err(Error::Invalid { .. })));
    }

    #[test]
    fn a_stale_hash_error_names_both_hashes() {
        let error = check_hash_prefix("plan", "fedcba9876543210", HASH).expect_err("stale hash");
        let text = "Request refused: plan 0123456789ab has replaced plan \
                    fedcba987654.";
        assert_eq!(error.to_string(), text);
    }
}
