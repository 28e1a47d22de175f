//! Lists of tasks: the board, the inbox, what takes too long, what fails often.
//!
//! A list reads the columns made for it and never a task's whole memory. A row that cannot be read
//! is in the list as what it is, [`Listed::Damaged`], and keeps nobody from the others.

use std::collections::BTreeMap;

use serde_json::Value;
use sqlx::types::Uuid;
use strum::IntoEnumIterator as _;
use tamma_core::budget::Spend;
use tamma_core::cost::Usd;
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::level::Level;
use tamma_core::task::{Priority, TaskType};
use tamma_core::task_loop::{Answer, Next, Phase, Question, State, Timestamp, answers};

use crate::connection::Store;
use crate::error::{Damage, Result};
use crate::record::signed;
use crate::spelling::{read, read_number, read_word, word};

/// A task in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listed {
    /// A task.
    Card(Box<Card>),
    /// A task of which something stored cannot be read.
    Damaged {
        /// The task.
        task: TaskId,
        /// Its project.
        project: ProjectId,
        /// Its title.
        title: String,
        /// What is wrong.
        damage: Damage,
    },
}

/// A task as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card {
    /// The task.
    pub task: TaskId,
    /// Its project.
    pub project: ProjectId,
    /// Its title.
    pub title: String,
    /// What kind of work it is.
    pub r#type: TaskType,
    /// How urgent it is.
    pub priority: Priority,
    /// When it came.
    pub created_at: Timestamp,
    /// Where it is.
    pub state: State,
    /// The column of the board.
    pub phase: Phase,
    /// Whether it is paused.
    pub paused: bool,
    /// Since when it is there.
    pub since: Timestamp,
    /// How risky its plan is, if that is known.
    pub risk: Option<Level>,
    /// How many runs it has had.
    pub iterations: u16,
    /// How often its plan has been adjusted.
    pub retries: u8,
    /// How often the council was asked.
    pub councils: u8,
    /// How many entries of its log say that something failed.
    pub failures: u32,
    /// What it has spent.
    pub spend: Spend,
    /// What it may spend; nothing where there is no limit.
    pub budget: Option<Usd>,
    /// The question that waits for a person.
    pub question: Option<Question>,
    /// What moves it forward next.
    pub next: Option<Next>,
    /// When time itself does.
    pub wake_at: Option<Timestamp>,
    /// When it will have been there for longer than expected.
    pub due_at: Option<Timestamp>,
    /// How many entries its log has.
    pub entries: u64,
    /// When it was last written, by the database's clock.
    pub updated_at: Timestamp,
}

impl Card {
    /// What may be answered to its question.
    pub fn answers(&self) -> Vec<Answer> {
        self.question.as_ref().map(answers).unwrap_or_default()
    }
}

/// Which tasks are wanted. What is empty does not narrow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Of this project.
    pub project: Option<ProjectId>,
    /// In one of these states.
    pub states: Vec<State>,
    /// In this column of the board.
    pub phase: Option<Phase>,
    /// Paused, or not.
    pub paused: Option<bool>,
    /// Of this kind of work.
    pub r#type: Option<TaskType>,
    /// This urgent.
    pub priority: Option<Priority>,
    /// With a plan this risky.
    pub risk: Option<Level>,
    /// Waiting for a person, or not.
    pub waits: Option<bool>,
    /// With this label.
    pub label: Option<String>,
    /// With these words in title or description.
    pub text: Option<String>,
}

/// Part of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<C> {
    /// The tasks.
    pub tasks: Vec<Listed>,
    /// Where the list goes on, if it does.
    pub next: Option<C>,
}

/// A place in a list that is ordered by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The time.
    pub at: Timestamp,
    /// The task.
    pub task: TaskId,
}

struct Row {
    id: Uuid,
    project: Uuid,
    title: String,
    r#type: String,
    priority: String,
    created_at: Timestamp,
    state: String,
    phase: String,
    paused: bool,
    since: Timestamp,
    risk: Option<String>,
    iterations: i32,
    retries: i32,
    councils: i32,
    failures: i32,
    spent_usd: String,
    spent_tokens: i64,
    spend_estimated: bool,
    budget: Option<String>,
    question: Option<Value>,
    asked_at: Option<Timestamp>,
    next: Option<Value>,
    wake_at: Option<Timestamp>,
    due_at: Option<Timestamp>,
    entries: i64,
    updated_at: Timestamp,
}

/// The rows of tasks for which some SQL holds.
macro_rules! rows {
    ($rest:tt $(, $argument:expr)* $(,)?) => {
        sqlx::query_as!(
            Row,
            "SELECT
                id, project, title, type, priority, created_at, state, phase, paused, since, risk,
                iterations, retries, councils, failures, spent_usd::text AS \"spent_usd!\",
                spent_tokens, spend_estimated, budget_usd::text AS budget, question, asked_at, next,
                wake_at, due_at, entries, updated_at
             FROM tasks WHERE " + $rest
            $(, $argument)*
        )
    };
}

/// A query of which the middle says that a filter holds. Its arguments are $1 to $9.
macro_rules! filtered {
    ($query:ident, $head:tt, $tail:tt, $filter:expr $(, $argument:expr)* $(,)?) => {
        sqlx::$query!(
            $head + " ($1::uuid IS NULL OR project = $1)
             AND ($2::text IS NULL OR phase = $2)
             AND ($3::boolean IS NULL OR paused = $3)
             AND ($4::text IS NULL OR type = $4)
             AND ($5::text IS NULL OR priority = $5)
             AND ($6::text IS NULL OR risk = $6)
             AND ($7::boolean IS NULL OR (asked_at IS NOT NULL) = $7)
             AND ($8::text IS NULL OR $8 = ANY(labels))
             AND ($9::text IS NULL OR words @@ websearch_to_tsquery('simple', $9)) " + $tail,
            $filter.project.map(|project| project.0),
            $filter.phase.as_ref().map(word),
            $filter.paused,
            $filter.r#type.as_ref().map(word),
            $filter.priority.as_ref().map(word),
            $filter.risk.as_ref().map(word),
            $filter.waits,
            $filter.label.as_deref().map(without_nul),
            $filter.text.as_deref().map(without_nul)
            $(, $argument)*
        )
    };
}

/// A board: how many tasks each state has, and the newest of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Board {
    /// How many there are.
    pub counts: BTreeMap<State, u64>,
    /// The newest first.
    pub tasks: Vec<Listed>,
}

impl Store {
    /// Tasks, the newest first; `after` is the last one of the page before.
    pub async fn tasks(
        &self,
        filter: &Filter,
        after: Option<TaskId>,
        limit: u32,
    ) -> Result<Page<TaskId>> {
        let states: Vec<_> = filter.states.iter().map(word).collect();
        let ids = filtered!(
            query_scalar,
            "SELECT id FROM tasks WHERE",
            "AND (cardinality($10::text[]) = 0 OR state = ANY($10))
             AND ($11::uuid IS NULL OR id < $11)
             ORDER BY id DESC LIMIT $12",
            filter,
            &states,
            after.map(|task| task.0),
            i64::from(limit),
        )
        .fetch_all(&self.lists)
        .await?;
        let rows = self.cards(&ids).await?;
        Ok(page(rows, limit, |row| Some(TaskId(row.id))))
    }

    /// The board: the newest tasks of each state, up to `each`. What it costs does not grow with the
    /// number of tasks, but for the counts.
    pub async fn board(&self, filter: &Filter, each: u32) -> Result<Board> {
        let counts = filtered!(
            query,
            "SELECT state, count(*) AS \"count!\" FROM tasks WHERE",
            "GROUP BY state",
            filter,
        );
        let states: Vec<String> = State::iter().map(|state| word(&state)).collect();
        let ids = filtered!(
            query_scalar,
            "SELECT newest.id FROM unnest($10::text[]) AS wanted (wanted_state)
             CROSS JOIN LATERAL (SELECT id FROM tasks WHERE state = wanted_state AND",
            "ORDER BY id DESC LIMIT $11) AS newest",
            filter,
            &states,
            i64::from(each),
        );
        let (counts, ids) =
            tokio::try_join!(counts.fetch_all(&self.lists), ids.fetch_all(&self.lists))?;
        let rows = self.cards(&ids).await?;
        // A state of a newer program has no column here.
        let count =
            |state, count: i64| Some((read_word("state", state).ok()?, count.unsigned_abs()));
        Ok(Board {
            counts: counts.into_iter().filter_map(|row| count(row.state, row.count)).collect(),
            tasks: rows.into_iter().map(listed).collect(),
        })
    }

    /// The rows of some tasks, the newest first.
    async fn cards(&self, ids: &[Uuid]) -> Result<Vec<Row>> {
        Ok(rows!("id = ANY($1) ORDER BY id DESC", ids).fetch_all(&self.lists).await?)
    }

    /// Tasks whose question waits for a person, the longest first.
    pub async fn inbox(
        &self,
        project: Option<ProjectId>,
        after: Option<Place>,
        limit: u32,
    ) -> Result<Page<Place>> {
        let rows = rows!(
            "asked_at IS NOT NULL
             AND ($1::uuid IS NULL OR project = $1)
             AND ($2::timestamptz IS NULL OR (asked_at, id) > ($2, $3::uuid))
             ORDER BY asked_at, id LIMIT $4",
            project.map(|project| project.0),
            after.map(|place| place.at),
            after.map(|place| place.task.0),
            i64::from(limit),
        )
        .fetch_all(&self.lists)
        .await?;
        let place = |row: &Row| Some(Place { at: row.asked_at?, task: TaskId(row.id) });
        Ok(page(rows, limit, place))
    }

    /// Tasks that have been where they are for longer than expected, the longest first.
    pub async fn over_timeout(
        &self,
        now: Timestamp,
        after: Option<Place>,
        limit: u32,
    ) -> Result<Page<Place>> {
        let rows = rows!(
            "due_at IS NOT NULL AND due_at <= $1
             AND ($2::timestamptz IS NULL OR (due_at, id) > ($2, $3::uuid))
             ORDER BY due_at, id LIMIT $4",
            now,
            after.map(|place| place.at),
            after.map(|place| place.task.0),
            i64::from(limit),
        )
        .fetch_all(&self.lists)
        .await?;
        let place = |row: &Row| Some(Place { at: row.due_at?, task: TaskId(row.id) });
        Ok(page(rows, limit, place))
    }

    /// Tasks that the council studies, the newest first.
    pub async fn under_council(&self, after: Option<TaskId>, limit: u32) -> Result<Page<TaskId>> {
        let filter = Filter { states: vec![State::CtoIntervention], ..Filter::default() };
        self.tasks(&filter, after, limit).await
    }

    /// Live tasks with at least three failures, those with the most first.
    pub async fn failing_often(&self, limit: u32) -> Result<Vec<Listed>> {
        let rows = rows!(
            "live AND failures >= 3 ORDER BY failures DESC, id DESC LIMIT $1",
            i64::from(limit),
        )
        .fetch_all(&self.lists)
        .await?;
        Ok(rows.into_iter().map(listed).collect())
    }

    /// How many tasks are in each state.
    pub async fn by_state(&self, project: Option<ProjectId>) -> Result<BTreeMap<State, u64>> {
        let rows = sqlx::query!(
            r#"SELECT state, count(*) AS "count!" FROM tasks
               WHERE $1::uuid IS NULL OR project = $1 GROUP BY state"#,
            project.map(|project| project.0),
        )
        .fetch_all(&self.lists)
        .await?;
        // A state of a newer program has no column here.
        let count =
            |state, count: i64| Some((read_word("state", state).ok()?, count.unsigned_abs()));
        Ok(rows.into_iter().filter_map(|row| count(row.state, row.count)).collect())
    }

    /// How many tasks wait for a person.
    pub async fn waiting(&self, project: Option<ProjectId>) -> Result<u64> {
        let count = sqlx::query_scalar!(
            r#"SELECT count(*) AS "count!" FROM tasks
               WHERE asked_at IS NOT NULL AND ($1::uuid IS NULL OR project = $1)"#,
            project.map(|project| project.0),
        )
        .fetch_one(&self.lists)
        .await?;
        Ok(count.unsigned_abs())
    }

    /// Tasks whose id ends with these digits, which is what people see of it: two at most.
    pub async fn tasks_ending(&self, digits: &str) -> Result<Vec<TaskId>> {
        let ids = sqlx::query_scalar!(
            "SELECT id FROM tasks WHERE right(id::text, 8) = $1 ORDER BY id DESC LIMIT 2",
            digits,
        );
        Ok(ids.fetch_all(&self.lists).await?.into_iter().map(TaskId).collect())
    }

    /// One task as a list shows it.
    pub async fn listed(&self, task: TaskId) -> Result<Option<Listed>> {
        let row = rows!("id = $1", task.0).fetch_optional(&self.steps).await?;
        Ok(row.map(listed))
    }
}

/// A text without the one character that PostgreSQL has no place for.
fn without_nul(text: &str) -> String {
    text.replace('\0', "")
}

fn page<C>(rows: Vec<Row>, limit: u32, place: impl Fn(&Row) -> Option<C>) -> Page<C> {
    let full = signed(rows.len() as u64) >= i64::from(limit);
    let next = rows.last().filter(|_| full).and_then(place);
    Page { tasks: rows.into_iter().map(listed).collect(), next }
}

fn listed(mut row: Row) -> Listed {
    let (task, project) = (TaskId(row.id), ProjectId(row.project));
    let title = std::mem::take(&mut row.title);
    match card(row) {
        Ok(card) => Listed::Card(Box::new(Card { title, ..card })),
        Err(damage) => {
            Listed::Damaged { task, project, title, damage: damage.of(task.to_string()) }
        }
    }
}

fn card(row: Row) -> Result<Card, Damage> {
    Ok(Card {
        task: TaskId(row.id),
        project: ProjectId(row.project),
        title: row.title,
        r#type: read_word("type", row.r#type)?,
        priority: read_word("priority", row.priority)?,
        created_at: row.created_at,
        state: read_word("state", row.state)?,
        phase: read_word("phase", row.phase)?,
        paused: row.paused,
        since: row.since,
        risk: row.risk.map(|risk| read_word("risk", risk)).transpose()?,
        iterations: read_number("iterations", row.iterations.into())?,
        retries: read_number("retries", row.retries.into())?,
        councils: read_number("councils", row.councils.into())?,
        failures: read_number("failures", row.failures.into())?,
        spend: Spend {
            usd: read_word("spend", row.spent_usd)?,
            tokens: read_number("spend", row.spent_tokens)?,
            estimated: row.spend_estimated,
        },
        budget: row.budget.map(|budget| read_word("budget", budget)).transpose()?,
        question: row.question.map(|question| read("question", question)).transpose()?,
        next: row.next.map(|next| read("next step", next)).transpose()?,
        wake_at: row.wake_at,
        due_at: row.due_at,
        entries: read_number("entries", row.entries)?,
        updated_at: row.updated_at,
    })
}
