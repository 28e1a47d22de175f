//! What a person sees before they confirm a decision in chat: the plan, the change or the project, and the
//! consequence, as the pages state it.

use tamma_chat::{Aspect, ChatAction, ChatContext, RequestedChange};
use tamma_core::format::{format_usd, pluralize};
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::task_loop::{Action, AnswerKind};
use tamma_store::RegisteredProject;

use super::replies::describe_file_change;
use super::{DEFAULT_REASON, MAX_LISTED, decided_status, stories};
use crate::app::actions::parse_reason;
use crate::app::{
    App, Error, NEW_TASK_CONSEQUENCE, PreviewedAction, Principal, decision_consequence,
};
use crate::problem::Problem;

/// Maximum number of lines of the approach.
const MAX_APPROACH_LINES: usize = 12;

impl App {
    /// Returns the lines of a proposal: what it is about, and its consequence. Without the plan, its
    /// approval is not offered.
    pub(super) async fn decision_preview(
        &self,
        by: &Principal,
        change: &RequestedChange,
        context: &ChatContext,
    ) -> Result<Vec<String>, Error> {
        let mut lines = match change {
            RequestedChange::Task { task, action } => match action {
                ChatAction::Approve { .. } | ChatAction::Override { .. } => {
                    self.plan_preview(*task, context).await?
                }
                ChatAction::Accept { .. } => {
                    let shown = self.show_reply(by, *task, Aspect::Diff).await;
                    shown.map(|it| it.lines).unwrap_or_default()
                }
                _ => Vec::new(),
            },
            RequestedChange::Add(_)
            | RequestedChange::RunPipeline(_)
            | RequestedChange::Story { .. }
            | RequestedChange::Lesson { .. } => Vec::new(),
        };
        lines.push(self.consequence_line(by, change, context).await?);
        lines.push("Nothing changes until you say yes.".to_owned());
        Ok(lines)
    }

    /// Names the target of a change and describes its consequence.
    async fn consequence_line(
        &self,
        by: &Principal,
        change: &RequestedChange,
        context: &ChatContext,
    ) -> Result<String, Error> {
        Ok(match change {
            RequestedChange::Task { task, action } => {
                let consequence = match previewed_action(action) {
                    Ok(previewed) => Box::pin(self.preview(*task, by, previewed)).await,
                    Err(error) => Err(error),
                };
                let consequence = consequence.unwrap_or_else(|error| {
                    format!("The consequence is unknown. {}", Problem::from(error).detail)
                });
                match context.task(*task) {
                    Some(it) => format!("“{}”: {consequence}", it.title),
                    None => consequence,
                }
            }
            RequestedChange::Lesson { lesson, decision, .. } => {
                let consequence = decision_consequence(decided_status(*decision));
                match context.lesson(*lesson) {
                    Some(it) => format!("“{}”: {consequence}", it.text),
                    None => consequence.to_owned(),
                }
            }
            RequestedChange::Story { pipeline, action } => {
                let view = self.pipeline_view(*pipeline).await?;
                let consequence = stories::pipeline_action(*action).consequence(&view);
                format!("{}: {consequence}", view.story_id)
            }
            RequestedChange::Add(_) => NEW_TASK_CONSEQUENCE.to_owned(),
            RequestedChange::RunPipeline(_) => {
                "The phases run one after the other, each with an agent of its own.".to_owned()
            }
        })
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

/// Returns an action with all that decides about its consequence.
fn previewed_action(action: &ChatAction) -> Result<PreviewedAction, Error> {
    let exact = |action: Action| PreviewedAction::Action(Box::new(action));
    Ok(match action {
        ChatAction::Approve { .. } => PreviewedAction::Answer(AnswerKind::Approve),
        ChatAction::Reject { .. } => PreviewedAction::Answer(AnswerKind::Reject),
        ChatAction::Accept { .. } => PreviewedAction::Answer(AnswerKind::Accept),
        ChatAction::Rework { .. } => PreviewedAction::Answer(AnswerKind::RequestChanges),
        ChatAction::Override { .. } => PreviewedAction::Answer(AnswerKind::Override),
        ChatAction::Modify { .. } => PreviewedAction::Answer(AnswerKind::ChangeTask),
        ChatAction::Reply { .. } => PreviewedAction::Answer(AnswerKind::Reply),
        ChatAction::Cancel { .. } => PreviewedAction::Answer(AnswerKind::Cancel),
        ChatAction::Skip { .. } => PreviewedAction::Answer(AnswerKind::Skip),
        ChatAction::Abandon { .. } => PreviewedAction::Answer(AnswerKind::Abandon),
        ChatAction::Convene { .. } => PreviewedAction::Answer(AnswerKind::Convene),
        ChatAction::Pause => exact(Action::Pause),
        ChatAction::Resume => exact(Action::Resume),
        ChatAction::Acknowledge => exact(Action::Acknowledge),
        ChatAction::Retry { grant } => exact(Action::Retry { grant: *grant }),
        ChatAction::Continue { grant } => exact(Action::Continue { grant: *grant }),
        ChatAction::Rate { stars, .. } => exact(Action::Rate { stars: *stars, reason: None }),
        ChatAction::RollBack { to, reason } => {
            let reason = parse_reason(reason.as_deref().unwrap_or(DEFAULT_REASON))?;
            exact(Action::RollBack { to: *to, reason })
        }
    })
}
