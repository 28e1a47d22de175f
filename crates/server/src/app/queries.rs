//! Queries for tasks, plans, history and metrics.

use chrono::TimeDelta;
use tamma_core::aftercare::calibrate;
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::task_loop::{self, TaskLoop, allowed_answers};
use tamma_core::time::Timestamp;
use tamma_core::update_clock::UpdateClock;
use tamma_store::{ListPosition, ListedTask, Store, TaskFilter};
use temporalio_client::Client;
use temporalio_client::tonic::Request;
use temporalio_common::protos::temporal::api::workflowservice::v1::GetSystemInfoRequest;
use uuid::Uuid;

use super::{App, Error};
use crate::clock;
use crate::dto::{
    AftercareView, Health, HistoryPage, IterationSummary, MetricTargets, MetricsReport,
    OpenQuestion, PlanApproval, PlanDecision, PlanVersion, RecordedEntry, RiskReport, SentAlert,
    StateTime, TaskCard, TaskDetail, TaskPage, TaskUpdate, short_id,
};

/// Page of a list that a client requests.
#[derive(Debug, Clone)]
pub(crate) struct PageRequest {
    /// Cursor from the previous page; `None` for the first page.
    pub(crate) after: Option<String>,
    /// Maximum number of items.
    pub(crate) limit: u32,
}

/// Maximum number of tasks searched for a partial ID.
const MAX_TASKS_SEARCHED: usize = 10_000;

/// Time limit of each health check.
const HEALTH_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(3);

impl App {
    /// Lists tasks, newest first.
    pub(crate) async fn list_tasks(
        &self,
        filter: &TaskFilter,
        window: &PageRequest,
    ) -> Result<TaskPage, Error> {
        let after = window.after.as_deref().map(TaskId::decode).transpose()?;
        let page = self.store.tasks(filter, after, window.limit).await?;
        self.with_badges(task_page(page.tasks, page.next.map(|next| next.encode()))).await
    }

    /// Finds tasks whose ID starts or ends with the given digits, or whose short form starts with them.
    pub(crate) async fn find_tasks_by_digits(&self, digits: &str) -> Result<TaskPage, Error> {
        let digits = digits.replace('-', "").to_ascii_lowercase();
        if digits.len() < 4 || !digits.chars().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(Error::invalid(
                format!("`{digits}` does not identify a task."),
                "Give at least four characters from the start or end of the ID.",
            ));
        }
        let is_like = |id: Uuid| {
            // People see the short form, so its first digits count as well.
            let (short, id) = (short_id(id), id.simple().to_string());
            id.starts_with(&digits) || id.ends_with(&digits) || short.starts_with(&digits)
        };
        let mut matches = Vec::new();
        let (mut after, mut searched) = (None, 0);
        while searched < MAX_TASKS_SEARCHED {
            let page = self.store.tasks(&TaskFilter::default(), after, 500).await?;
            searched += page.tasks.len();
            matches.extend(page.tasks.into_iter().filter(|listed| is_like(listed_id(listed))));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        Ok(task_page(matches, None))
    }

    /// Resolves a full ID, or the first or last digits of one.
    pub(crate) async fn resolve_task_id(&self, id_or_digits: &str) -> Result<TaskId, Error> {
        if let Ok(id) = id_or_digits.parse::<Uuid>() {
            // A task that the caller cannot read is missing.
            self.store.task_project(TaskId(id)).await?;
            return Ok(TaskId(id));
        }
        match self.find_tasks_by_digits(id_or_digits).await?.tasks.as_slice() {
            [one] => Ok(TaskId(one.id)),
            [] => Err(Error::NotFound { what: "task", key: id_or_digits.to_owned() }),
            several => {
                let ids: Vec<_> = several.iter().map(|card| card.short.clone()).collect();
                Err(Error::invalid(
                    format!("`{id_or_digits}` matches several tasks: {}.", ids.join(", ")),
                    "Give more characters of the ID.",
                ))
            }
        }
    }

    /// Lists tasks that exceed their soft timeout, most overdue first.
    pub(crate) async fn overdue_tasks(
        &self,
        project: Option<ProjectId>,
        window: &PageRequest,
    ) -> Result<TaskPage, Error> {
        let after = window.after.as_deref().map(ListPosition::decode).transpose()?;
        let page = self.store.over_timeout(project, clock::now(), after, window.limit).await?;
        self.with_badges(task_page(page.tasks, page.next.map(|next| next.encode()))).await
    }

    /// Lists open tasks with at least three failures, most failures first.
    pub(crate) async fn failing_tasks(
        &self,
        project: Option<ProjectId>,
        limit: u32,
    ) -> Result<TaskPage, Error> {
        self.with_badges(task_page(self.store.failing_often(project, limit).await?, None)).await
    }

    /// Returns the clock of regular updates about a task, or `None` if its rules turn them off.
    pub(crate) async fn update_clock(&self, id: TaskId) -> Result<Option<UpdateClock>, Error> {
        // Without its rules, the defaults apply.
        let rules = self.task_rules(&self.task_loop(id).await?).await.unwrap_or_default();
        Ok(rules.scrum_master.user_interaction.update_clock(clock::now()))
    }

    /// Returns an update about a task, or `None` once it is closed.
    pub(crate) async fn task_update(
        &self,
        id: TaskId,
        at: Timestamp,
    ) -> Result<Option<TaskUpdate>, Error> {
        let card = self.task_card(id).await?;
        if card.state.is_terminal() {
            return Ok(None);
        }
        let run = self.current_run(id).await?;
        Ok(Some(TaskUpdate { at, task: card, run }))
    }

    /// Returns the list entry of a task.
    pub(crate) async fn task_card(&self, id: TaskId) -> Result<TaskCard, Error> {
        let mut card = readable_card(self.store.task(id).await?.card)?;
        self.add_pull_request_badges(std::slice::from_mut(&mut card)).await?;
        Ok(card)
    }

    /// Adds the pull requests to a page of tasks.
    pub(super) async fn with_badges(&self, mut page: TaskPage) -> Result<TaskPage, Error> {
        self.add_pull_request_badges(&mut page.tasks).await?;
        Ok(page)
    }

    /// Returns the state machine of a task.
    pub(crate) async fn task_loop(&self, id: TaskId) -> Result<TaskLoop, Error> {
        let stored = self.store.task(id).await?;
        Ok(stored.task_loop.map_err(tamma_store::Error::from)?)
    }

    /// Returns all details of a task.
    pub(crate) async fn task_detail(&self, id: TaskId) -> Result<TaskDetail, Error> {
        let stored = self.store.task(id).await?;
        let decisions = self.store.decisions(id).await?;
        let runs = self.store.iterations(id).await?;
        let alerts = self.store.alerts(id).await?;
        let entered = self.store.entered_states(id).await?;
        let (task_loop, damage) = match stored.task_loop {
            Ok(task_loop) => (Some(task_loop), None),
            Err(damage) => (None, Some(damage.reason)),
        };
        let task_loop = task_loop.as_ref();
        let task = stored.task;
        let mut card = readable_card(stored.card)?;
        self.add_pull_request_badges(std::slice::from_mut(&mut card)).await?;
        // An open run of a closed task belongs to a lost worker.
        let run = if card.state.is_terminal() { None } else { self.current_run(id).await? };
        Ok(TaskDetail {
            card,
            description: task.description,
            acceptance_criteria: task.acceptance_criteria,
            depends_on: task.depends_on.into_iter().map(|id| id.0).collect(),
            suggested_agent: task.suggested_agent,
            issue_url: task.issue_url,
            issue_number: task.issue_number,
            metadata: task.metadata,
            question: match task_loop.and_then(|it| it.open_question.as_ref()) {
                Some(question) => Some(self.open_question(question).await?),
                None => None,
            },
            risk_report: task_loop
                .and_then(|it| it.plan_assessment.as_ref())
                .map(|check| RiskReport::new(&check.risk, check.blockers, check.warnings)),
            plan: task_loop
                .and_then(|it| it.plan.as_ref())
                .map(|plan| PlanVersion::new(plan, None)),
            knowledge: match task_loop.and_then(|it| it.plan.as_ref()) {
                Some(plan) => self.knowledge_matches(id, plan.hash).await?,
                None => Vec::new(),
            },
            approvals: task_loop.map(approvals).unwrap_or_default(),
            decisions: decisions.into_iter().map(PlanDecision::from).collect(),
            iterations: runs.into_iter().map(IterationSummary::from).collect(),
            current_run: run,
            alerts: alerts.into_iter().map(SentAlert::from).collect(),
            states: StateTime::sum(&entered, clock::now()),
            ratings: task_loop
                .map(|it| it.ratings.iter().map(|(by, stars)| (by.to_string(), *stars)).collect())
                .unwrap_or_default(),
            pull_request: self
                .task_pull_request(id, task_loop.and_then(|it| it.pull_request.as_deref()))
                .await?,
            aftercare: self
                .store
                .aftercare_findings(id)
                .await?
                .into_iter()
                .map(AftercareView::from)
                .collect(),
            base: task_loop.and_then(|it| it.pin).map(|pin| pin.base.to_string()),
            commit: task_loop.and_then(|it| it.commit).map(|commit| commit.to_string()),
            branch: stored.branch,
            read_error: damage,
        })
    }

    /// Loads the texts of an open question.
    pub(super) async fn open_question(
        &self,
        question: &task_loop::OpenQuestion,
    ) -> Result<OpenQuestion, Error> {
        let mut texts = [None, None];
        for (text, reference) in
            texts.iter_mut().zip([&question.agent_question, &question.default_answer])
        {
            if let Some(reference) = reference {
                *text = Some(self.store.text(reference).await?);
            }
        }
        let [agent_question, default] = texts;
        Ok(OpenQuestion {
            number: question.number,
            cause: question.cause,
            cause_text: question.cause.to_string(),
            agent_question,
            default,
            asked_at: question.asked_at,
            answers: allowed_answers(question),
            seen_by: question.seen_by.as_ref().map(ToString::to_string),
        })
    }

    /// Returns the current plan of a task, with its content.
    pub(crate) async fn current_plan(&self, id: TaskId) -> Result<PlanVersion, Error> {
        let task_loop = self.task_loop(id).await?;
        let outline = task_loop
            .plan
            .ok_or_else(|| Error::NotFound { what: "plan for task", key: id.to_string() })?;
        let (_, plan) = self.store.plan_by_hash(id, outline.hash).await?;
        Ok(PlanVersion::new(&outline, Some(plan)))
    }

    /// Returns one page of a task's history.
    pub(crate) async fn history_page(
        &self,
        id: TaskId,
        window: &PageRequest,
    ) -> Result<HistoryPage, Error> {
        let after = match window.after.as_deref() {
            Some(after) => after.parse().map_err(|_| invalid_cursor(after))?,
            None => 0,
        };
        let lines = self.store.history(id, after, window.limit).await?;
        if lines.is_empty() {
            // Tells an empty page from a missing task.
            self.store.task_position(id).await?;
        }
        let full = lines.len() as u64 >= u64::from(window.limit);
        let next = lines.last().filter(|_| full).map(|line| line.entry.sequence.to_string());
        Ok(HistoryPage { entries: lines.into_iter().map(RecordedEntry::from).collect(), next })
    }

    /// Computes the metrics of the last `days` days.
    pub(crate) async fn metrics(
        &self,
        project: Option<ProjectId>,
        days: u32,
    ) -> Result<MetricsReport, Error> {
        let since = clock::now() - TimeDelta::days(days.into());
        let values = self.store.metrics(project, since, None).await?;
        let by_state = self.store.count_by_state(project).await?;
        Ok(MetricsReport {
            since,
            values,
            aftercare: calibrate(&self.store.merged_changes(project, since).await?),
            targets: MetricTargets::default(),
            by_state: by_state.into_iter().map(|(state, n)| (state.to_string(), n)).collect(),
            waiting: self.store.count_waiting(project).await?,
        })
    }

    /// Checks the connections to the database and to Temporal.
    pub(crate) async fn health(&self) -> Health {
        check_backends(&self.store, &self.temporal).await
    }
}

/// Checks that the database and Temporal respond.
pub(crate) async fn check_backends(store: &Store, temporal: &Client) -> Health {
    let store = async { store.ping().await.is_ok() };
    let temporal = async {
        let mut service = temporal.connection().workflow_service();
        service.get_system_info(Request::new(GetSystemInfoRequest::default())).await.is_ok()
    };
    let (store, temporal) = tokio::join!(
        async { tokio::time::timeout(HEALTH_TIMEOUT, store).await.unwrap_or(false) },
        async { tokio::time::timeout(HEALTH_TIMEOUT, temporal).await.unwrap_or(false) },
    );
    Health { healthy: store && temporal, store, temporal }
}

fn approvals(task_loop: &TaskLoop) -> Vec<PlanApproval> {
    let approval = |it: &tamma_core::approval::Approval| PlanApproval {
        by: it.by.to_string(),
        at: it.at,
        plan: it.scope.plan.to_string(),
    };
    task_loop.approvals.iter().map(approval).collect()
}

fn listed_id(listed: &ListedTask) -> Uuid {
    match listed {
        ListedTask::Card(card) => card.task.0,
        ListedTask::Damaged { task, .. } => task.0,
    }
}

fn readable_card(listed: ListedTask) -> Result<TaskCard, Error> {
    match listed {
        ListedTask::Card(card) => Ok((*card).into()),
        ListedTask::Damaged { damage, .. } => Err(tamma_store::Error::from(damage).into()),
    }
}

pub(super) fn task_page(listed: Vec<ListedTask>, next: Option<String>) -> TaskPage {
    let mut page = TaskPage { tasks: Vec::new(), damaged: Vec::new(), next };
    for each in listed {
        match crate::dto::card_or_unreadable(each) {
            Ok(card) => page.tasks.push(card),
            Err(damaged) => page.damaged.push(damaged),
        }
    }
    page
}

impl From<tamma_store::RecordedEntry> for RecordedEntry {
    fn from(line: tamma_store::RecordedEntry) -> Self {
        Self { entry: line.entry, recorded_at: line.recorded_at, text: line.text }
    }
}

/// Position in a list, opaque to clients.
pub(crate) trait Cursor: Sized {
    /// Encodes the position.
    fn encode(&self) -> String;
    /// Decodes a position from a client.
    fn decode(text: &str) -> Result<Self, Error>;
}

impl Cursor for TaskId {
    fn encode(&self) -> String {
        self.0.simple().to_string()
    }

    fn decode(text: &str) -> Result<Self, Error> {
        text.parse().map(Self).map_err(|_| invalid_cursor(text))
    }
}

impl Cursor for ListPosition {
    fn encode(&self) -> String {
        format!("{}-{}", self.at.timestamp_micros(), self.task.encode())
    }

    fn decode(text: &str) -> Result<Self, Error> {
        let position = || {
            let (at, task) = text.rsplit_once('-')?;
            let at = chrono::DateTime::from_timestamp_micros(at.parse().ok()?)?;
            Some(Self { at, task: TaskId::decode(task).ok()? })
        };
        position().ok_or_else(|| invalid_cursor(text))
    }
}

pub(super) fn invalid_cursor(text: &str) -> Error {
    let text: String = text.chars().take(40).collect();
    Error::invalid(
        format!("`{text}` is not a cursor of this list."),
        "Pass the `next` value of the previous response as `after`, unchanged.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_round_trip() {
        let task = TaskId(Uuid::from_u128(0x0192_a000_0000_7000_8000_0000_0000_0001));
        let at = chrono::DateTime::from_timestamp_micros(1_700_000_000_123_456).expect("timestamp");
        let position = ListPosition { at, task };
        assert_eq!(ListPosition::decode(&position.encode()).expect("read"), position);
        assert_eq!(TaskId::decode(&task.encode()).expect("read"), task);
    }

    #[test]
    fn an_invalid_cursor_is_reported() {
        let error = ListPosition::decode("yesterday").expect_err("invalid cursor");
        assert_eq!(error.to_string(), "`yesterday` is not a cursor of this list.");
    }
}
