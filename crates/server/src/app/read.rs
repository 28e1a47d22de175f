//! Reading what is there.

use chrono::TimeDelta;
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::task_loop::{self, TaskLoop, answers};
use tamma_store::{Filter, Listed, Place};
use temporalio_client::tonic::Request;
use temporalio_common::protos::temporal::api::workflowservice::v1::GetSystemInfoRequest;
use uuid::Uuid;

use super::{App, Error};
use crate::clock;
use crate::shape::{
    Alert, Approval, Card, Decision, Goals, Health, History, Iteration, Line, Metrics, Page,
    PlanVersion, Question, RiskReport, Whole,
};

/// How much of a list is wanted.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    /// Where to go on.
    pub(crate) after: Option<String>,
    /// How many at most.
    pub(crate) limit: u32,
}

/// How many tasks are looked through for an id of which only a few digits are known.
const SEARCHED: usize = 10_000;

/// How long something has to say that it is there.
const PULSE: std::time::Duration = std::time::Duration::from_secs(3);

impl App {
    /// Tasks, the newest first.
    pub(crate) async fn tasks(&self, filter: &Filter, window: &Window) -> Result<Page, Error> {
        let after = window.after.as_deref().map(TaskId::read).transpose()?;
        let page = self.store.tasks(filter, after, window.limit).await?;
        Ok(paged(page.tasks, page.next.map(|next| next.write())))
    }

    /// Tasks whose id begins or ends with some digits.
    pub(crate) async fn tasks_like(&self, digits: &str) -> Result<Page, Error> {
        let digits = digits.replace('-', "").to_ascii_lowercase();
        if digits.len() < 4 || !digits.chars().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(Error::invalid(
                format!("`{digits}` does not say which task is meant."),
                "Give at least four digits from the beginning or the end of its id.",
            ));
        }
        let is_like = |id: Uuid| {
            let id = id.simple().to_string();
            id.starts_with(&digits) || id.ends_with(&digits)
        };
        let mut found = Vec::new();
        let (mut after, mut searched) = (None, 0);
        while searched < SEARCHED {
            let page = self.store.tasks(&Filter::default(), after, 500).await?;
            searched += page.tasks.len();
            found.extend(page.tasks.into_iter().filter(|listed| is_like(id_of(listed))));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        Ok(paged(found, None))
    }

    /// The task that is meant by an id, or by digits that it begins or ends with.
    pub(crate) async fn which(&self, said: &str) -> Result<TaskId, Error> {
        if let Ok(id) = said.parse::<Uuid>() {
            return Ok(TaskId(id));
        }
        match self.tasks_like(said).await?.tasks.as_slice() {
            [one] => Ok(TaskId(one.id)),
            [] => Err(Error::NotFound { what: "task", key: said.to_owned() }),
            several => {
                let ids: Vec<_> = several.iter().map(|card| card.short.clone()).collect();
                Err(Error::invalid(
                    format!("Several tasks are meant by `{said}`: {}.", ids.join(", ")),
                    "Give more digits.",
                ))
            }
        }
    }

    /// Tasks that wait for a person, the longest first.
    pub(crate) async fn inbox(
        &self,
        project: Option<ProjectId>,
        window: &Window,
    ) -> Result<Page, Error> {
        let after = window.after.as_deref().map(Place::read).transpose()?;
        let page = self.store.inbox(project, after, window.limit).await?;
        Ok(paged(page.tasks, page.next.map(|next| next.write())))
    }

    /// One task as a list shows it.
    pub(crate) async fn card(&self, id: TaskId) -> Result<Card, Error> {
        readable(self.store.task(id).await?.listed)
    }

    /// A task's machine.
    pub(crate) async fn machine(&self, id: TaskId) -> Result<TaskLoop, Error> {
        let whole = self.store.task(id).await?;
        Ok(whole.machine.map_err(tamma_store::Error::from)?)
    }

    /// One task with everything that is known of it.
    pub(crate) async fn task(&self, id: TaskId) -> Result<Whole, Error> {
        let whole = self.store.task(id).await?;
        let decisions = self.store.decisions(id).await?;
        let runs = self.store.iterations(id).await?;
        let alerts = self.store.alerts(id).await?;
        let (machine, damage) = match whole.machine {
            Ok(machine) => (Some(machine), None),
            Err(damage) => (None, Some(damage.why)),
        };
        let machine = machine.as_ref();
        let task = whole.task;
        let card = readable(whole.listed)?;
        // A run without an end whose task has ended has lost its worker.
        let run = if card.state.is_terminal() { None } else { self.present(id).await? };
        Ok(Whole {
            card,
            description: task.description,
            acceptance_criteria: task.acceptance_criteria,
            labels: task.labels,
            depends_on: task.depends_on.into_iter().map(|id| id.0).collect(),
            suggested_agent: task.suggested_agent,
            issue_url: task.issue_url,
            metadata: task.metadata,
            question: match machine.and_then(|it| it.question.as_ref()) {
                Some(question) => Some(self.question(question).await?),
                None => None,
            },
            risk_report: machine
                .and_then(|it| it.check.as_ref())
                .map(|check| RiskReport::new(&check.risk, check.blockers, check.warnings)),
            plan: machine.and_then(|it| it.plan.as_ref()).map(|plan| PlanVersion::new(plan, None)),
            knowledge: match machine.and_then(|it| it.plan.as_ref()) {
                Some(plan) => self.met_by(id, plan.hash).await?,
                None => Vec::new(),
            },
            approvals: machine.map(approvals).unwrap_or_default(),
            decisions: decisions.into_iter().map(Decision::from).collect(),
            runs: runs.into_iter().map(Iteration::from).collect(),
            run,
            alerts: alerts.into_iter().map(Alert::from).collect(),
            base: machine.and_then(|it| it.pin).map(|pin| pin.base.to_string()),
            commit: machine.and_then(|it| it.commit).map(|commit| commit.to_string()),
            damage,
        })
    }

    /// A question, with what an agent asks, if one does.
    async fn question(&self, question: &task_loop::Question) -> Result<Question, Error> {
        let mut words = [None, None];
        for (place, kept) in words.iter_mut().zip([&question.about, &question.default]) {
            if let Some(kept) = kept {
                *place = Some(self.store.kept(kept).await?);
            }
        }
        let [asks, default] = words;
        Ok(Question {
            number: question.number,
            cause: question.cause,
            in_words: question.cause.to_string(),
            asks,
            default,
            asked_at: question.at,
            answers: answers(question),
            seen_by: question.seen_by.as_ref().map(ToString::to_string),
        })
    }

    /// A task's current plan, whole.
    pub(crate) async fn plan(&self, id: TaskId) -> Result<PlanVersion, Error> {
        let machine = self.machine(id).await?;
        let outline = machine
            .plan
            .ok_or_else(|| Error::NotFound { what: "plan yet of task", key: id.to_string() })?;
        let (_, plan) = self.store.plan_by_hash(id, outline.hash).await?;
        Ok(PlanVersion::new(&outline, Some(plan)))
    }

    /// A part of a task's log.
    pub(crate) async fn history(&self, id: TaskId, window: &Window) -> Result<History, Error> {
        let after = match window.after.as_deref() {
            Some(after) => after.parse().map_err(|_| no_cursor(after))?,
            None => 0,
        };
        let lines = self.store.history(id, after, window.limit).await?;
        if lines.is_empty() {
            // Nothing after it, or no such task: that is not the same.
            self.store.position(id).await?;
        }
        let full = lines.len() as u64 >= u64::from(window.limit);
        let next = lines.last().filter(|_| full).map(|line| line.entry.sequence.to_string());
        Ok(History { entries: lines.into_iter().map(Line::from).collect(), next })
    }

    /// How well it goes, over the last days.
    pub(crate) async fn metrics(
        &self,
        project: Option<ProjectId>,
        days: u32,
    ) -> Result<Metrics, Error> {
        let since = clock::now() - TimeDelta::days(days.into());
        let figures = self.store.metrics(project, since, None).await?;
        let by_state = self.store.by_state(project).await?;
        Ok(Metrics {
            since,
            figures,
            goals: Goals::default(),
            by_state: by_state.into_iter().map(|(state, n)| (state.to_string(), n)).collect(),
            waiting: self.store.waiting(project).await?,
        })
    }

    /// Whether what is needed can be reached.
    pub(crate) async fn health(&self) -> Health {
        let store = async { self.store.ping().await.is_ok() };
        let temporal = async {
            let mut engine = self.temporal.connection().workflow_service();
            engine.get_system_info(Request::new(GetSystemInfoRequest::default())).await.is_ok()
        };
        let (store, temporal) = tokio::join!(
            async { tokio::time::timeout(PULSE, store).await.unwrap_or(false) },
            async { tokio::time::timeout(PULSE, temporal).await.unwrap_or(false) },
        );
        Health { healthy: store && temporal, store, temporal }
    }
}

fn approvals(machine: &TaskLoop) -> Vec<Approval> {
    let approval = |it: &tamma_core::approval::Approval| Approval {
        by: it.by.to_string(),
        at: it.at,
        plan: it.binding.plan.to_string(),
    };
    machine.approvals.iter().map(approval).collect()
}

fn id_of(listed: &Listed) -> Uuid {
    match listed {
        Listed::Card(card) => card.task.0,
        Listed::Damaged { task, .. } => task.0,
    }
}

fn readable(listed: Listed) -> Result<Card, Error> {
    match listed {
        Listed::Card(card) => Ok((*card).into()),
        Listed::Damaged { damage, .. } => Err(tamma_store::Error::from(damage).into()),
    }
}

fn paged(listed: Vec<Listed>, next: Option<String>) -> Page {
    let mut page = Page { tasks: Vec::new(), damaged: Vec::new(), next };
    for each in listed {
        match crate::shape::listed(each) {
            Ok(card) => page.tasks.push(card),
            Err(damaged) => page.damaged.push(damaged),
        }
    }
    page
}

impl From<tamma_store::Line> for Line {
    fn from(line: tamma_store::Line) -> Self {
        Self { entry: line.entry, recorded_at: line.recorded_at }
    }
}

/// A place in a list, as clients carry it. They do not look into it.
pub(crate) trait Cursor: Sized {
    /// As a text.
    fn write(&self) -> String;
    /// From a text.
    fn read(text: &str) -> Result<Self, Error>;
}

impl Cursor for TaskId {
    fn write(&self) -> String {
        self.0.simple().to_string()
    }

    fn read(text: &str) -> Result<Self, Error> {
        text.parse().map(Self).map_err(|_| no_cursor(text))
    }
}

impl Cursor for Place {
    fn write(&self) -> String {
        format!("{}-{}", self.at.timestamp_micros(), self.task.write())
    }

    fn read(text: &str) -> Result<Self, Error> {
        let place = || {
            let (at, task) = text.rsplit_once('-')?;
            let at = chrono::DateTime::from_timestamp_micros(at.parse().ok()?)?;
            Some(Self { at, task: TaskId::read(task).ok()? })
        };
        place().ok_or_else(|| no_cursor(text))
    }
}

fn no_cursor(text: &str) -> Error {
    let text: String = text.chars().take(40).collect();
    Error::invalid(
        format!("`{text}` is no place in this list."),
        "Pass as `after` what the last answer gave as `next`, to the letter.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_what_it_wrote() {
        let task = TaskId(Uuid::from_u128(0x0192_a000_0000_7000_8000_0000_0000_0001));
        let at = chrono::DateTime::from_timestamp_micros(1_700_000_000_123_456).expect("a moment");
        let place = Place { at, task };
        assert_eq!(Place::read(&place.write()).expect("read"), place);
        assert_eq!(TaskId::read(&task.write()).expect("read"), task);
    }

    #[test]
    fn a_cursor_that_is_none_says_what_to_pass() {
        let error = Place::read("yesterday").expect_err("no cursor");
        assert_eq!(error.to_string(), "`yesterday` is no place in this list.");
    }
}
