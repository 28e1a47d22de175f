//! Task lists: board, inbox, overdue tasks and tasks that fail often.
//!
//! A list reads its own columns, never a complete state machine. An unreadable row is listed as
//! [`ListedTask::Damaged`] and does not affect the others.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::types::Uuid;
use strum::{Display, EnumIter, IntoEnumIterator as _};
use tamma_core::budget::Spend;
use tamma_core::cost::Usd;
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::level::RiskLevel;
use tamma_core::task::{Priority, TaskType};
use tamma_core::task_loop::{
    AnswerKind, NextStep, OpenQuestion, Phase, State, Timestamp, allowed_answers,
};

use crate::connection::Store;
use crate::encoding::{read, read_number, read_word, word};
use crate::error::{CorruptData, Result};
use crate::search_query::search_query;
use crate::steps::to_i64;

/// Task in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListedTask {
    /// Readable task.
    Card(Box<TaskCard>),
    /// Task with stored data that cannot be decoded.
    Damaged {
        /// ID of the task.
        task: TaskId,
        /// Project of the task.
        project: ProjectId,
        /// Title of the task.
        title: String,
        /// Details of the unreadable value.
        damage: CorruptData,
    },
}

/// Task as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskCard {
    /// ID of the task.
    pub task: TaskId,
    /// Project of the task.
    pub project: ProjectId,
    /// One-line title.
    pub title: String,
    /// Type of work.
    pub r#type: TaskType,
    /// Priority of the task.
    pub priority: Priority,
    /// Labels of the task.
    pub labels: Vec<String>,
    /// Time at which it was added.
    pub created_at: Timestamp,
    /// Current state.
    pub state: State,
    /// Column of the board.
    pub phase: Phase,
    /// `true` while it is paused.
    pub paused: bool,
    /// Time at which it entered its state.
    pub since: Timestamp,
    /// Risk of its plan, once assessed.
    pub risk: Option<RiskLevel>,
    /// Number of implementation runs so far.
    pub iterations: u16,
    /// Number of plan revisions.
    pub retries: u8,
    /// Number of council sessions.
    pub councils: u8,
    /// Number of history entries that report a failure.
    pub failures: u32,
    /// Spend so far; an estimate if the cost of a job is unknown.
    pub spend: Spend,
    /// Spending limit; `None` if unlimited.
    pub budget: Option<Usd>,
    /// Open question to a person.
    pub question: Option<OpenQuestion>,
    /// Next step that moves it forward.
    pub next: Option<NextStep>,
    /// Time at which a timer moves it forward.
    pub wake_at: Option<Timestamp>,
    /// Time at which it exceeds its soft timeout.
    pub due_at: Option<Timestamp>,
    /// Number of history entries.
    pub entries: u64,
    /// Time of the last write, by the database's clock.
    pub updated_at: Timestamp,
}

impl TaskCard {
    /// Returns the possible answers to its question.
    pub fn answers(&self) -> Vec<AnswerKind> {
        self.question.as_ref().map(allowed_answers).unwrap_or_default()
    }
}

/// Filter of a task list. Empty fields match every task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskFilter {
    /// Project to list.
    pub project: Option<ProjectId>,
    /// States to list.
    pub states: Vec<State>,
    /// Column of the board.
    pub phase: Option<Phase>,
    /// `true` for paused tasks, `false` for the others.
    pub paused: Option<bool>,
    /// Type of work.
    pub r#type: Option<TaskType>,
    /// Priority to list.
    pub priority: Option<Priority>,
    /// Risk of the plan.
    pub risk: Option<RiskLevel>,
    /// `true` for tasks waiting on a person, `false` for the others.
    pub waits: Option<bool>,
    /// Label that a task must have.
    pub label: Option<String>,
    /// Words in title and description, or their beginnings. A phrase in quotes, and a word after `-`,
    /// which must not occur, match whole words. Only the first 400 characters count.
    pub text: Option<String>,
}

impl TaskFilter {
    /// Returns the states that match the filter. The phase follows from the state.
    fn matching_states(&self) -> Vec<State> {
        let is_listed = |state: &State| self.states.is_empty() || self.states.contains(state);
        let is_in_phase = |state: &State| self.phase.is_none_or(|phase| state.phase() == phase);
        State::iter().filter(is_listed).filter(is_in_phase).collect()
    }

    /// Returns `true` if open and closed tasks each have an index for the filter. Few tasks may match it.
    fn has_indexes(&self) -> bool {
        let Self { r#type, priority, risk, label, .. } = self;
        r#type.is_some() || priority.is_some() || risk.is_some() || label.is_some()
    }
}

/// Order of the tasks on a board.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Display, EnumIter)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum TaskOrder {
    /// Newest first.
    #[default]
    Newest,
    /// Oldest first.
    Oldest,
    /// Highest priority first, then the oldest: the order in which runs start.
    Priority,
    /// Longest in its state first.
    Waiting,
    /// Most expensive first.
    Cost,
    /// Last change first.
    Updated,
}

/// Page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskPage<C> {
    /// Tasks on this page.
    pub tasks: Vec<ListedTask>,
    /// Position at which the next page starts; `None` on the last page.
    pub next: Option<C>,
}

/// Position in a list that is ordered by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListPosition {
    /// Sort key of the last task.
    pub at: Timestamp,
    /// ID of the last task, which breaks ties.
    pub task: TaskId,
}

struct Row {
    id: Uuid,
    project: Uuid,
    title: String,
    r#type: String,
    priority: String,
    labels: Vec<String>,
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

/// Selects task rows that match an SQL condition.
macro_rules! rows {
    ($rest:tt $(, $argument:expr)* $(,)?) => {
        sqlx::query_as!(
            Row,
            "SELECT
                id, project, title, type, priority, labels, created_at, state, phase, paused, since,
                risk, iterations, retries, councils, failures, spent_usd::text AS \"spent_usd!\",
                spent_tokens, spend_estimated OR EXISTS (
                    SELECT FROM usage WHERE usage.task = tasks.id AND usage.cost_usd IS NULL
                ) AS \"spend_estimated!\", budget_usd::text AS budget, question, asked_at, next,
                wake_at, due_at, entries, updated_at
             FROM tasks WHERE " + $rest
            $(, $argument)*
        )
    };
}

/// Builds a query with the filter condition in its middle, using the parameters $1 to $11. `live` is `true`
/// for open tasks, `false` for closed ones and `None` for both: each kind has indexes of its own.
macro_rules! filtered {
    ($query:ident, $head:tt, $tail:tt, $store:expr, $filter:expr, $live:expr $(, $argument:expr)* $(,)?) => {
        sqlx::$query!(
            $head + " ($1::uuid IS NULL OR project = $1)
             AND ($2::boolean IS NULL OR live = $2)
             AND ($3::boolean IS NULL OR paused = $3)
             AND ($4::text IS NULL OR type = $4)
             AND ($5::text IS NULL OR priority = $5)
             AND ($6::text IS NULL OR risk = $6)
             AND ($7::boolean IS NULL OR (asked_at IS NOT NULL) = $7)
             AND ($8::text IS NULL OR (labels <> '{}' AND labels @> ARRAY[$8]))
             AND ($9::text IS NULL OR words @@ to_tsquery('simple', $9))
             AND ($10::bool OR project = ANY($11::uuid [])) " + $tail,
            $filter.project.map(|project| project.0),
            $live,
            $filter.paused,
            $filter.r#type.as_ref().map(word),
            $filter.priority.as_ref().map(word),
            $filter.risk.as_ref().map(word),
            $filter.waits,
            $filter.label.as_deref().map(without_nul),
            $filter.text.as_deref().map(search_query),
            $store.reads_all(),
            $store.readable_projects()
            $(, $argument)*
        )
    };
}

// After the macro, which it uses.
mod word_search;

/// Closed tasks that a board covers: the newest ones. It covers all open tasks.
const BOARD_CLOSED_TASKS: i64 = 10_000;

/// Tasks of a state that a board counts. With more, the count is this number.
const BOARD_MAX_COUNT: i64 = 10_000;

/// Board: the number of tasks in each state, and the first tasks of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskBoard {
    /// Number of tasks by state.
    pub counts: BTreeMap<State, u64>,
    /// States with more tasks than their number says.
    pub more: BTreeSet<State>,
    /// First tasks of each state in the requested order, newest first.
    pub tasks: Vec<ListedTask>,
}

/// Tasks that a board covers: all open ones, and the closed ones from an ID on.
struct BoardScope {
    open: BoardPart,
    closed: BoardPart,
    /// Set if there are closed tasks that the board does not cover.
    has_older: bool,
}

/// Open or closed tasks of a board.
struct BoardPart {
    live: bool,
    states: Vec<String>,
    /// Oldest task that the board covers.
    oldest: Uuid,
}

impl BoardScope {
    fn parts(&self) -> [&BoardPart; 2] {
        [&self.open, &self.closed]
    }

    /// Returns all states with the oldest task of each.
    fn by_state(&self) -> (Vec<String>, Vec<Uuid>) {
        let of_part = |part: &BoardPart| {
            part.states.iter().map(|state| (state.clone(), part.oldest)).collect::<Vec<_>>()
        };
        self.parts().into_iter().flat_map(of_part).unzip()
    }
}

impl Store {
    /// Returns tasks, newest first. `after` is the last task of the previous page.
    pub async fn tasks(
        &self,
        filter: &TaskFilter,
        after: Option<TaskId>,
        limit: u32,
    ) -> Result<TaskPage<TaskId>> {
        let matching = filter.matching_states();
        let has_open = matching.iter().any(|state| !state.is_terminal());
        let has_closed = matching.iter().any(|state| state.is_terminal());
        // A task of a newer version can be in a state that is unknown here.
        let is_limited = !filter.states.is_empty() || filter.phase.is_some();
        let states: Vec<_> = matching.iter().filter(|_| is_limited).map(word).collect();
        let newest = |live| self.newest_in_states(filter, live, &states, after, limit);
        let mut ids = match (has_open, has_closed) {
            (false, false) => Vec::new(),
            (true, false) => newest(Some(true)).await?,
            (false, true) => newest(Some(false)).await?,
            (true, true) if filter.has_indexes() => {
                // In this order, a task that is closed meanwhile is found at least once.
                let open = newest(Some(true)).await?;
                [open, newest(Some(false)).await?].concat()
            }
            // The index of IDs has them in their order.
            (true, true) => newest(None).await?,
        };
        ids.sort_unstable_by(|one, other| other.cmp(one));
        ids.dedup();
        ids.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        let rows = self.card_rows(&ids).await?;
        Ok(page(rows, limit, |row| Some(TaskId(row.id))))
    }

    /// Returns the newest tasks before `before`; no states stand for all.
    async fn newest_in_states(
        &self,
        filter: &TaskFilter,
        live: Option<bool>,
        states: &[String],
        before: Option<TaskId>,
        limit: u32,
    ) -> sqlx::Result<Vec<Uuid>> {
        let (before, limit) = (before.map(|task| task.0), i64::from(limit));
        if filter.text.is_some()
            && let Some(ids) = self.newest_with_words(filter, live, states, before, limit).await?
        {
            return Ok(ids);
        }
        filtered!(
            query_scalar,
            "SELECT id FROM tasks WHERE",
            "AND (cardinality($12::text[]) = 0 OR state = ANY($12))
             AND ($13::uuid IS NULL OR id < $13)
             ORDER BY id DESC LIMIT $14",
            self,
            filter,
            live,
            states,
            before,
            limit,
        )
        .fetch_all(&self.lists)
        .await
    }

    /// Returns the board, with up to `each` tasks in each state: the first ones in this order.
    ///
    /// It covers all open tasks and the newest closed ones; words are also found in older ones. So its
    /// cost does not grow with the number of closed tasks.
    pub async fn board(
        &self,
        filter: &TaskFilter,
        order: TaskOrder,
        each: u32,
    ) -> Result<TaskBoard> {
        let scope = self.board_scope(filter).await?;
        // The planner does not know how many tasks of one state match a filter, so it would read too
        // many. Without a filter, it reads an index of each state.
        let is_plain = TaskFilter { project: None, ..filter.clone() } == TaskFilter::default();
        let counts = async {
            if is_plain {
                self.capped_counts(filter.project, &scope).await
            } else {
                self.filtered_counts(filter, &scope).await
            }
        };
        let ids = async {
            match order {
                TaskOrder::Newest if is_plain => {
                    self.newest_of_each_state(filter.project, &scope, each).await
                }
                order => self.first_of_each_state(filter, &scope, order, each).await,
            }
        };
        let older = async {
            let closed = &scope.closed.states;
            // No states would stand for all.
            if filter.text.is_none() || !scope.has_older || closed.is_empty() {
                return Ok(Vec::new());
            }
            self.newest_in_states(filter, Some(false), closed, None, each).await
        };
        let (counts, mut ids, older) = tokio::try_join!(counts, ids, older)?;
        ids.extend(older);
        let rows = self.card_rows(&ids).await?;
        let closed = State::iter().filter(|state| scope.has_older && state.is_terminal());
        let (mut found, mut more) = (BTreeMap::new(), closed.collect::<BTreeSet<_>>());
        for (state, count) in counts {
            // Skip states that only a newer version knows.
            let Ok(state) = read_word::<State>("state", state) else { continue };
            found.insert(state, count.unsigned_abs());
            if is_plain && count >= BOARD_MAX_COUNT {
                more.insert(state);
            }
        }
        let tasks = rows.into_iter().map(to_listed_task).collect();
        Ok(TaskBoard { counts: found, more, tasks })
    }

    /// Finds the tasks that a board covers.
    async fn board_scope(&self, filter: &TaskFilter) -> sqlx::Result<BoardScope> {
        let oldest = sqlx::query_scalar!(
            "SELECT id FROM tasks
             WHERE NOT live AND ($1::uuid IS NULL OR project = $1)
                AND ($2::bool OR project = ANY($3::uuid []))
             ORDER BY id DESC OFFSET $4 LIMIT 1",
            filter.project.map(|project| project.0),
            self.reads_all(),
            self.readable_projects(),
            BOARD_CLOSED_TASKS,
        )
        .fetch_optional(&self.lists)
        .await?;
        let (closed, open): (Vec<State>, Vec<State>) =
            filter.matching_states().into_iter().partition(|state| state.is_terminal());
        let words = |states: Vec<State>| states.iter().map(word).collect();
        Ok(BoardScope {
            open: BoardPart { live: true, states: words(open), oldest: Uuid::nil() },
            closed: BoardPart {
                live: false,
                states: words(closed),
                oldest: oldest.unwrap_or_default(),
            },
            has_older: oldest.is_some(),
        })
    }

    /// Counts the tasks of each state on a board without filters, up to a limit.
    async fn capped_counts(
        &self,
        project: Option<ProjectId>,
        scope: &BoardScope,
    ) -> sqlx::Result<Vec<(String, i64)>> {
        let (states, oldest) = scope.by_state();
        let rows = sqlx::query!(
            r#"SELECT wanted_state AS "state!", matching.count AS "count!"
               FROM unnest($4::text[], $5::uuid[]) AS wanted (wanted_state, oldest)
               CROSS JOIN LATERAL (SELECT count(*) AS count FROM (
                   SELECT FROM tasks
                   WHERE state = wanted_state AND id >= oldest
                       AND ($1::uuid IS NULL OR project = $1)
                       AND ($2::bool OR project = ANY($3::uuid []))
                   LIMIT $6
               ) AS found) AS matching
               WHERE matching.count > 0"#,
            project.map(|project| project.0),
            self.reads_all(),
            self.readable_projects(),
            &states,
            &oldest,
            BOARD_MAX_COUNT,
        )
        .fetch_all(&self.lists)
        .await?;
        Ok(rows.into_iter().map(|row| (row.state, row.count)).collect())
    }

    /// Counts the tasks of each state on a board with filters.
    async fn filtered_counts(
        &self,
        filter: &TaskFilter,
        scope: &BoardScope,
    ) -> sqlx::Result<Vec<(String, i64)>> {
        let count = async |part: &BoardPart| {
            filtered!(
                query,
                "SELECT state, count(*) AS \"count!\" FROM tasks
                 WHERE state = ANY($12::text[]) AND id >= $13::uuid AND",
                "GROUP BY state",
                self,
                filter,
                part.live,
                &part.states,
                part.oldest,
            )
            .fetch_all(&self.lists)
            .await
        };
        // In this order, a task that is closed meanwhile is counted at least once.
        let (open, closed) = (count(&scope.open).await?, count(&scope.closed).await?);
        Ok(open.into_iter().chain(closed).map(|row| (row.state, row.count)).collect())
    }

    async fn newest_of_each_state(
        &self,
        project: Option<ProjectId>,
        scope: &BoardScope,
        each: u32,
    ) -> sqlx::Result<Vec<Uuid>> {
        let (states, oldest) = scope.by_state();
        sqlx::query_scalar!(
            "SELECT newest.id FROM unnest($4::text[], $5::uuid[]) AS wanted (wanted_state, oldest)
             CROSS JOIN LATERAL (
                SELECT id FROM tasks
                WHERE state = wanted_state AND id >= oldest
                    AND ($1::uuid IS NULL OR project = $1)
                    AND ($2::bool OR project = ANY($3::uuid []))
                ORDER BY id DESC LIMIT $6
             ) AS newest",
            project.map(|project| project.0),
            self.reads_all(),
            self.readable_projects(),
            &states,
            &oldest,
            i64::from(each),
        )
        .fetch_all(&self.lists)
        .await
    }

    async fn first_of_each_state(
        &self,
        filter: &TaskFilter,
        scope: &BoardScope,
        order: TaskOrder,
        each: u32,
    ) -> sqlx::Result<Vec<Uuid>> {
        let first = async |part: &BoardPart| {
            filtered!(
                query_scalar,
                "SELECT ranked.id AS \"id!\" FROM (
                    SELECT id, row_number() OVER (
                        PARTITION BY state ORDER BY
                            CASE WHEN $12::text = 'oldest' THEN id END,
                            CASE WHEN $12::text = 'priority' THEN array_position(
                                ARRAY['critical', 'high', 'medium', 'low'], priority
                            ) END,
                            CASE WHEN $12::text = 'priority' THEN id END,
                            CASE WHEN $12::text = 'waiting' THEN since END,
                            CASE WHEN $12::text = 'cost' THEN spent_usd END DESC NULLS LAST,
                            CASE WHEN $12::text = 'updated' THEN updated_at END DESC NULLS LAST,
                            id DESC
                    ) AS place FROM tasks
                    WHERE state = ANY($14::text[]) AND id >= $15::uuid AND",
                ") AS ranked WHERE ranked.place <= $13",
                self,
                filter,
                part.live,
                order.to_string(),
                i64::from(each),
                &part.states,
                part.oldest,
            )
            .fetch_all(&self.lists)
            .await
        };
        let (open, closed) = (first(&scope.open).await?, first(&scope.closed).await?);
        Ok([open, closed].concat())
    }

    /// Returns the rows of tasks, newest first.
    async fn card_rows(&self, ids: &[Uuid]) -> Result<Vec<Row>> {
        Ok(rows!("id = ANY($1) ORDER BY id DESC", ids).fetch_all(&self.lists).await?)
    }

    /// Returns tasks with an open question, longest waiting first.
    pub async fn inbox(
        &self,
        project: Option<ProjectId>,
        after: Option<ListPosition>,
        limit: u32,
    ) -> Result<TaskPage<ListPosition>> {
        let rows = rows!(
            "asked_at IS NOT NULL
             AND ($1::uuid IS NULL OR project = $1)
             AND ($2::timestamptz IS NULL OR (asked_at, id) > ($2, $3::uuid))
             AND ($5::bool OR project = ANY($6::uuid []))
             ORDER BY asked_at, id LIMIT $4",
            project.map(|project| project.0),
            after.map(|position| position.at),
            after.map(|position| position.task.0),
            i64::from(limit),
            self.reads_all(),
            self.readable_projects(),
        )
        .fetch_all(&self.lists)
        .await?;
        let position = |row: &Row| Some(ListPosition { at: row.asked_at?, task: TaskId(row.id) });
        Ok(page(rows, limit, position))
    }

    /// Returns tasks that exceed their soft timeout, most overdue first.
    pub async fn over_timeout(
        &self,
        project: Option<ProjectId>,
        now: Timestamp,
        after: Option<ListPosition>,
        limit: u32,
    ) -> Result<TaskPage<ListPosition>> {
        let rows = rows!(
            "due_at IS NOT NULL AND due_at <= $1
             AND ($2::timestamptz IS NULL OR (due_at, id) > ($2, $3::uuid))
             AND ($5::uuid IS NULL OR project = $5)
             AND ($6::bool OR project = ANY($7::uuid []))
             ORDER BY due_at, id LIMIT $4",
            now,
            after.map(|position| position.at),
            after.map(|position| position.task.0),
            i64::from(limit),
            project.map(|project| project.0),
            self.reads_all(),
            self.readable_projects(),
        )
        .fetch_all(&self.lists)
        .await?;
        let position = |row: &Row| Some(ListPosition { at: row.due_at?, task: TaskId(row.id) });
        Ok(page(rows, limit, position))
    }

    /// Returns open tasks with at least three failures, most failures first.
    pub async fn failing_often(
        &self,
        project: Option<ProjectId>,
        limit: u32,
    ) -> Result<Vec<ListedTask>> {
        let rows = rows!(
            "live AND failures >= 3 AND ($2::uuid IS NULL OR project = $2)
             AND ($3::bool OR project = ANY($4::uuid []))
             ORDER BY failures DESC, id DESC LIMIT $1",
            i64::from(limit),
            project.map(|project| project.0),
            self.reads_all(),
            self.readable_projects(),
        )
        .fetch_all(&self.lists)
        .await?;
        Ok(rows.into_iter().map(to_listed_task).collect())
    }

    /// Returns the number of tasks in each state.
    pub async fn count_by_state(&self, project: Option<ProjectId>) -> Result<BTreeMap<State, u64>> {
        let rows = sqlx::query!(
            r#"SELECT state, count(*) AS "count!" FROM tasks
               WHERE ($1::uuid IS NULL OR project = $1)
                  AND ($2::bool OR project = ANY($3::uuid []))
               GROUP BY state"#,
            project.map(|project| project.0),
            self.reads_all(),
            self.readable_projects(),
        )
        .fetch_all(&self.lists)
        .await?;
        // Skip states that only a newer version knows.
        let count =
            |state, count: i64| Some((read_word("state", state).ok()?, count.unsigned_abs()));
        Ok(rows.into_iter().filter_map(|row| count(row.state, row.count)).collect())
    }

    /// Returns the number of tasks and pipelines waiting on a person.
    pub async fn count_waiting(&self, project: Option<ProjectId>) -> Result<u64> {
        let count = sqlx::query_scalar!(
            r#"SELECT
                (SELECT count(*) FROM tasks
                 WHERE asked_at IS NOT NULL AND ($1::uuid IS NULL OR project = $1)
                    AND ($2::bool OR project = ANY($3::uuid [])))
                + (SELECT count(*) FROM pipelines
                   WHERE needs_person AND ($1::uuid IS NULL OR project = $1)
                    AND ($2::bool OR project = ANY($3::uuid []))) AS "count!""#,
            project.map(|project| project.0),
            self.reads_all(),
            self.readable_projects(),
        )
        .fetch_one(&self.lists)
        .await?;
        Ok(count.unsigned_abs())
    }

    /// Returns up to two tasks whose ID ends with `digits`, the form in which people see IDs.
    pub async fn tasks_by_suffix(&self, digits: &str) -> Result<Vec<TaskId>> {
        let ids = sqlx::query_scalar!(
            "SELECT id FROM tasks
             WHERE right(id::text, 8) = $1 AND ($2::bool OR project = ANY($3::uuid []))
             ORDER BY id DESC LIMIT 2",
            digits,
            self.reads_all(),
            self.readable_projects(),
        );
        // Under row-level security, the index could not be used. The IDs alone say nothing.
        Ok(ids.fetch_all(&self.steps).await?.into_iter().map(TaskId).collect())
    }

    /// Returns one task as a list shows it.
    pub async fn listed_task(&self, task: TaskId) -> Result<Option<ListedTask>> {
        let row = rows!("id = $1", task.0).fetch_optional(&self.reads).await?;
        Ok(row.filter(|row| self.can_read(ProjectId(row.project))).map(to_listed_task))
    }
}

/// Removes the NUL characters that PostgreSQL does not accept.
fn without_nul(text: &str) -> String {
    text.replace('\0', "")
}

fn page<C>(rows: Vec<Row>, limit: u32, position: impl Fn(&Row) -> Option<C>) -> TaskPage<C> {
    let full = to_i64(rows.len() as u64) >= i64::from(limit);
    let next = rows.last().filter(|_| full).and_then(position);
    TaskPage { tasks: rows.into_iter().map(to_listed_task).collect(), next }
}

fn to_listed_task(mut row: Row) -> ListedTask {
    let (task, project) = (TaskId(row.id), ProjectId(row.project));
    let title = std::mem::take(&mut row.title);
    match to_card(row) {
        Ok(card) => ListedTask::Card(Box::new(TaskCard { title, ..card })),
        Err(damage) => {
            ListedTask::Damaged { task, project, title, damage: damage.with_key(task.to_string()) }
        }
    }
}

fn to_card(row: Row) -> Result<TaskCard, CorruptData> {
    Ok(TaskCard {
        task: TaskId(row.id),
        project: ProjectId(row.project),
        title: row.title,
        r#type: read_word("type", row.r#type)?,
        priority: read_word("priority", row.priority)?,
        labels: row.labels,
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
