//! What a person sees before they confirm a decision in chat: the plan, the change or the project.

use tamma_chat::{Aspect, ChatAction, ChatContext, RequestedChange};
use tamma_core::format::{format_usd, pluralize};
use tamma_core::ids::{ProjectId, TaskId};
use tamma_store::RegisteredProject;

use super::MAX_LISTED;
use super::replies::describe_file_change;
use crate::app::{App, Error};

/// Maximum number of lines of the approach.
const MAX_APPROACH_LINES: usize = 12;

impl App {
    /// Returns the lines that precede a proposal. Without the plan, its approval is not offered.
    pub(super) async fn decision_preview(
        &self,
        change: &RequestedChange,
        context: &ChatContext,
    ) -> Result<Vec<String>, Error> {
        let RequestedChange::Task { task, action } = change else { return Ok(Vec::new()) };
        match action {
            ChatAction::Approve { .. } | ChatAction::Override { .. } => {
                self.plan_preview(*task, context).await
            }
            ChatAction::Accept { .. } => Ok(self
                .show_reply(*task, Aspect::Diff)
                .await
                .map(|it| it.lines)
                .unwrap_or_default()),
            _ => Ok(Vec::new()),
        }
    }

    async fn plan_preview(
        &self,
        task: TaskId,
        context: &ChatContext,
    ) -> Result<Vec<String>, Error> {
        let unreadable = || {
            let text = "The plan cannot be shown here, so it is not offered for approval. Open the \
                        task to decide.";
            Error::Refused(text.to_owned())
        };
        let plan = self.current_plan(task).await.map_err(|_| unreadable())?;
        // The proposal names the plan of the context.
        let proposed = context.task(task).and_then(|it| it.plan).map(|plan| plan.to_string());
        if proposed.as_ref() != Some(&plan.hash) {
            let text = "Another plan has just replaced this one. Ask again to see it.";
            return Err(Error::Refused(text.to_owned()));
        }
        let content = plan.content.ok_or_else(unreadable)?;
        let short: String = plan.hash.chars().take(12).collect();
        let mut lines = vec![format!("Plan {} ({short}): {}", plan.version, content.summary)];
        let approach = content.approach.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.extend(approach.take(MAX_APPROACH_LINES).map(str::to_owned));
        lines.extend(content.file_changes.iter().take(MAX_LISTED).map(describe_file_change));
        if let Some(more) = content.file_changes.len().checked_sub(MAX_LISTED).filter(|it| *it > 0)
        {
            lines.push(format!("And {}.", pluralize(more as u64, "more file")));
        }
        let risk = self.task_card(task).await?.risk;
        let risk = risk.map_or_else(|| "not assessed".to_owned(), |risk| risk.to_string());
        let cost = plan.estimated_cost.map(|usd| format!(" Estimate: {}.", format_usd(usd)));
        lines.push(format!("Risk: {risk}.{}", cost.unwrap_or_default()));
        Ok(lines)
    }

    /// Returns the project that a new task goes to: the one that the client names, that of the last
    /// task, or the only one. Otherwise the person has to choose, before anything is proposed.
    pub(super) async fn project_for_new_task(
        &self,
        named: Option<&str>,
        last_task: Option<TaskId>,
    ) -> Result<RegisteredProject, Error> {
        if let Some(named) = named {
            return self.resolve_project(Some(named)).await;
        }
        if let Some(task) = last_task {
            let project: ProjectId = self.store.task_project(task).await?;
            return self.project_by_id(project).await;
        }
        self.resolve_project(None).await.map_err(|error| match error {
            Error::Invalid { detail, .. } => Error::invalid(
                detail,
                "Ask about a task of the project first, run `tamma chat` in its repository, or add \
                 the task on the page New task.",
            ),
            error => error,
        })
    }
}
