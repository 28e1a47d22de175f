//! Tasks that need a decision.

use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::task_loop::{AlertSeverity, allowed_answers};
use tamma_store::ListPosition;

use super::queries::{Cursor as _, PageRequest, task_page};
use super::{App, Error};
use crate::dto::{OpenQuestion, PlanVersion, TaskCard, TaskDetail, TaskPage};

/// Task that needs a decision, with what the inbox shows of it.
pub(crate) struct WaitingTask {
    pub(crate) card: TaskCard,
    /// Open question.
    pub(crate) question: Option<OpenQuestion>,
    /// Current plan, without its content.
    pub(crate) plan: Option<PlanVersion>,
    /// Severity of the newest alert.
    pub(crate) severity: Option<AlertSeverity>,
}

impl From<&TaskDetail> for WaitingTask {
    fn from(detail: &TaskDetail) -> Self {
        Self {
            card: detail.card.clone(),
            question: detail.question.clone(),
            plan: detail.plan.clone(),
            severity: detail.alerts.last().map(|alert| alert.severity),
        }
    }
}

impl App {
    /// Lists tasks that need a decision, oldest question first.
    pub(crate) async fn inbox(
        &self,
        project: Option<ProjectId>,
        window: &PageRequest,
    ) -> Result<TaskPage, Error> {
        let after = window.after.as_deref().map(ListPosition::decode).transpose()?;
        let page = self.store.inbox(project, after, window.limit).await?;
        self.with_badges(task_page(page.tasks, page.next.map(|next| next.encode()))).await
    }

    /// Adds what the inbox shows to the cards of tasks. Tasks that were answered meanwhile are left out.
    pub(crate) async fn waiting_tasks(
        &self,
        cards: Vec<TaskCard>,
    ) -> Result<Vec<WaitingTask>, Error> {
        let ids: Vec<_> = cards.iter().map(|card| TaskId(card.id)).collect();
        let task_loops = self.store.task_loops(&ids).await?;
        let severities = self.store.newest_severities(&ids).await?;
        let mut tasks = Vec::new();
        for (card, id) in cards.into_iter().zip(&ids) {
            let severity = severities.get(id).copied();
            let mut task = WaitingTask { card, question: None, plan: None, severity };
            if let Some(task_loop) = task_loops.get(id) {
                let Some(question) = &task_loop.open_question else { continue };
                // The plan can be newer than the card.
                task.card.risk = task_loop.risk_level();
                task.card.answers = allowed_answers(question);
                task.question = Some(self.open_question(question).await?);
                task.plan = task_loop.plan.as_ref().map(|plan| PlanVersion::new(plan, None));
            }
            tasks.push(task);
        }
        Ok(tasks)
    }
}
