//! Board: tasks by phase.

use std::collections::BTreeMap;

use askama::Template;
use axum::extract::Query;
use serde::Deserialize;
use strum::IntoEnumIterator as _;
use tamma_core::format::{format_usd, humanize, pluralize};
use tamma_core::level::RiskLevel;
use tamma_core::task::{Priority, TaskType};
use tamma_core::task_loop::{Phase, State as TaskState};
use tamma_store::{ListedTask, TaskFilter};
use uuid::Uuid;

use super::labels::NextStepView;
use super::layout::{DisplayTime, Layout, SelectField, SelectOption};
use super::permissions::{PagePermissions, WaitingOn};
use super::session::Session;
use super::{PageError, PageResult, WebState, labels, redirect, render};
use crate::app::{App, Cursor as _, Error};
use crate::clock;
use crate::dto;

/// Maximum number of cards per state.
const CARDS_PER_STATE: u32 = 20;

/// Page size of a column shown on its own.
const COLUMN_PAGE_SIZE: u32 = 200;

/// Query parameters of the board.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct BoardQuery {
    text: String,
    project: String,
    r#type: String,
    priority: String,
    risk: String,
    waits: String,
    phase: String,
    /// Cursor of the next page of a single column.
    after: String,
}

#[derive(Template)]
#[template(path = "board.html")]
struct BoardPage {
    layout: Layout,
    filters: BoardFilters,
    live_href: String,
    lanes: Lanes,
}

/// Part of the board that live updates replace: everything except the filters.
#[derive(Template)]
#[template(path = "_lanes.html")]
pub(super) struct Lanes {
    layout: Layout,
    summary: String,
    damaged: Vec<DamagedCard>,
    is_empty: bool,
    /// Set if a filter is active.
    is_filtered: bool,
    lanes: Vec<Lane>,
    older_href: Option<String>,
}

/// Columns that are stacked vertically.
struct Lane {
    columns: Vec<Column>,
}

/// Phases of each lane, from left to right.
const LANES: [&[Phase]; 5] = [
    &[Phase::Alert, Phase::Receive],
    &[Phase::Plan, Phase::Approve],
    &[Phase::Implement],
    &[Phase::Review, Phase::Adjust, Phase::Council],
    &[Phase::Deliver, Phase::Learn, Phase::Done],
];

struct BoardFilters {
    text: String,
    selects: Vec<SelectField>,
    is_active: bool,
}

struct DamagedCard {
    title: String,
    reason: String,
}

/// Column of one phase.
pub(super) struct Column {
    pub(super) phase: String,
    pub(super) name: &'static str,
    pub(super) count: u64,
    /// `None` without a limit, and for phases without agents.
    pub(super) agents: Option<AgentCapacity>,
    /// Link to all cards, if some are left out.
    pub(super) more_href: Option<String>,
    pub(super) cards: Vec<BoardCard>,
}

/// Running agents and their limit in the rules.
pub(super) struct AgentCapacity {
    pub(super) running: u64,
    pub(super) limit: u16,
}

impl AgentCapacity {
    pub(super) fn is_full(&self) -> bool {
        self.running >= u64::from(self.limit)
    }
}

/// Card of one task.
pub(super) struct BoardCard {
    pub(super) id: Uuid,
    pub(super) short_id: String,
    pub(super) title: String,
    pub(super) state: &'static str,
    pub(super) tone: &'static str,
    pub(super) progress_step: usize,
    pub(super) next: NextStepView,
    pub(super) waiting_on: Option<WaitingOn>,
    pub(super) since: DisplayTime,
    /// `None` before the first plan.
    pub(super) risk: Option<RiskLevel>,
    pub(super) budget: BudgetView,
    pub(super) run_count: u16,
    pub(super) is_overdue: bool,
    pub(super) pull_request: Option<PullRequestTag>,
}

/// Pull request on a card.
pub(super) struct PullRequestTag {
    pub(super) number: u64,
    checks: dto::ChecksSummary,
}

impl PullRequestTag {
    pub(super) fn tone(&self) -> &'static str {
        labels::checks_tone(self.checks)
    }

    pub(super) fn label(&self) -> &'static str {
        labels::checks_label(self.checks)
    }
}

/// Spend and its limit.
pub(super) struct BudgetView {
    pub(super) spent: String,
    /// `None` without a limit.
    pub(super) limit: Option<String>,
    pub(super) is_estimated: bool,
    pub(super) percent: u8,
    pub(super) tone: &'static str,
}

/// Returns the tone of a budget bar at this percentage.
pub(super) fn budget_tone(percent: u8) -> &'static str {
    match percent {
        0..80 => "acc",
        80..100 => "wait",
        _ => "bad",
    }
}

impl BoardCard {
    pub(super) fn new(card: &dto::TaskCard, waiting_on: Option<WaitingOn>) -> Self {
        let percent = card.budget.map(|limit| card.spend.usd.percent_of(limit)).unwrap_or_default();
        Self {
            id: card.id,
            short_id: card.short.clone(),
            title: card.title.clone(),
            state: labels::state_label(card.state),
            tone: labels::task_tone(card),
            progress_step: labels::progress_step(card.state),
            next: NextStepView::new(card),
            waiting_on,
            since: DisplayTime::elapsed(card.since),
            risk: card.risk,
            budget: BudgetView {
                spent: format_usd(card.spend.usd),
                limit: card.budget.map(format_usd),
                is_estimated: card.spend.estimated,
                percent,
                tone: budget_tone(percent),
            },
            run_count: card.iterations,
            is_overdue: card.due_at.is_some_and(|due| due < clock::now()),
            pull_request: card
                .pull_request_badge
                .as_ref()
                .map(|it| PullRequestTag { number: it.number, checks: it.checks }),
        }
    }
}

/// Numbers of tasks by state, and the agent limit.
#[derive(Debug, Clone, Default)]
pub(super) struct BoardCounts {
    pub(super) by_state: BTreeMap<TaskState, u64>,
    /// Open decisions about tasks and stories.
    pub(super) waiting: u64,
    /// Maximum number of agents on the project; `None` for several projects, or if the rules set no
    /// limit.
    pub(super) agent_limit: Option<u16>,
}

impl BoardCounts {
    pub(super) fn of_phase(&self, phase: Phase) -> u64 {
        self.by_state.iter().filter(|(state, _)| state.phase() == phase).map(|(_, n)| n).sum()
    }

    fn open(&self) -> u64 {
        self.by_state.iter().filter(|(at, _)| !at.is_terminal()).map(|(_, n)| n).sum()
    }

    pub(super) fn summary(&self) -> String {
        format!("{} open · {} waiting", self.open(), pluralize(self.waiting, "decision"))
    }

    /// Builds the column of a phase, without cards.
    pub(super) fn column(&self, phase: Phase, query: &BoardQuery) -> Column {
        let (word, count) = (serialized_name(&phase), self.of_phase(phase));
        let running = self.by_state.get(&TaskState::InProgress).copied().unwrap_or_default();
        let limit = self.agent_limit.filter(|_| phase == Phase::Implement);
        let more = count > u64::from(CARDS_PER_STATE) && query.phase.is_empty();
        Column {
            name: phase.label(),
            count,
            agents: limit.map(|limit| AgentCapacity { running, limit }),
            more_href: more.then(|| query.phase_href(&word)),
            cards: Vec::new(),
            phase: word,
        }
    }
}

/// Returns the maximum number of agents, by the rules of the selected project or of the only one.
pub(super) async fn agent_limit(app: &App, query: &BoardQuery) -> Result<Option<u16>, Error> {
    let projects = app.store.projects().await?;
    let one = match projects.as_slice() {
        [only] => Some(only),
        several => several.iter().find(|it| it.name == query.project),
    };
    let Some(project) = one else { return Ok(None) };
    // Invalid rules set no limit here; the projects page shows their errors.
    let rules = app.project_rules(&project.repository).await.ok();
    Ok(rules.and_then(|rules| rules.engines.per_project))
}

/// Renders the board.
pub(super) async fn page(
    state: WebState,
    session: Session,
    Query(query): Query<BoardQuery>,
) -> PageResult {
    let page_error = |error: Error| PageError::new(Layout::for_session(&session), error);
    if let Some(task) = find_task_by_id_text(&state.app, &query.text).await.map_err(page_error)? {
        return redirect(&format!("/tasks/{task}"));
    }
    let layout = Layout::for_page(&state, &session, "board").await?;
    // Taken before the first read, so that live updates miss nothing.
    let since = state.app.store.now().await.map_err(|error| page_error(error.into()))?;
    let mut permissions = PagePermissions::for_session(&state.app, &session);
    let lanes =
        Lanes::load(&state.app, &layout, &query, &mut permissions).await.map_err(page_error)?;
    let projects = state.app.store.projects().await.map_err(|error| page_error(error.into()))?;
    let filters = query.filter_form(projects.into_iter().map(|project| project.name));
    let since = since.timestamp_micros();
    let live_href =
        format!("/live/board{}since={since}&empty={}", query.query_string(), lanes.is_empty);
    render(&BoardPage { layout, filters, live_href, lanes })
}

/// Finds the task whose ID, or short ID, was searched for.
async fn find_task_by_id_text(app: &App, text: &str) -> Result<Option<Uuid>, Error> {
    let text = text.trim().to_ascii_lowercase();
    if let Ok(id) = text.parse::<Uuid>() {
        return Ok(Some(id));
    }
    if text.len() != 8 || !text.chars().all(|digit| digit.is_ascii_hexdigit()) {
        return Ok(None);
    }
    Ok(match app.store.tasks_by_suffix(&text).await?.as_slice() {
        [one] => Some(one.0),
        _ => None,
    })
}

impl Lanes {
    pub(super) fn summary(&self) -> &str {
        &self.summary
    }

    pub(super) async fn load(
        app: &App,
        layout: &Layout,
        query: &BoardQuery,
        permissions: &mut PagePermissions,
    ) -> Result<Self, Error> {
        let filter = query.store_filter(app).await?;
        let agent_limit = agent_limit(app, query).await?;
        let per_state = if filter.phase.is_some() { 0 } else { CARDS_PER_STATE };
        let board = app.store.board(&filter, per_state).await?;
        let mut older_href = None;
        let tasks = if filter.phase.is_some() {
            let after = Some(query.after.as_str()).filter(|after| !after.is_empty());
            let after = after.map(tamma_core::ids::TaskId::decode).transpose()?;
            let page = app.store.tasks(&filter, after, COLUMN_PAGE_SIZE).await?;
            if let Some(next) = page.next {
                let next = BoardQuery { after: next.encode(), ..query.clone() };
                older_href = Some(next.href());
            }
            page.tasks
        } else {
            board.tasks
        };
        let counts = BoardCounts { by_state: board.counts, waiting: layout.waiting, agent_limit };
        let mut by_phase: BTreeMap<Phase, Vec<BoardCard>> = BTreeMap::new();
        let mut damaged = Vec::new();
        let mut cards = Vec::new();
        for listed in tasks {
            match dto::card_or_unreadable(listed) {
                Ok(card) => cards.push(card),
                Err(it) => damaged.push(DamagedCard { title: it.title, reason: it.error }),
            }
        }
        app.add_pull_request_badges(&mut cards).await?;
        for card in &cards {
            let waiting_on = permissions.waiting_on(card).await;
            by_phase.entry(card.phase).or_default().push(BoardCard::new(card, waiting_on));
        }
        let mut lane = |phases: &[Phase]| -> Vec<Column> {
            let here =
                phases.iter().filter(|phase| filter.phase.is_none_or(|only| only == **phase));
            here.map(|phase| {
                let cards = by_phase.remove(phase).unwrap_or_default();
                Column { cards, ..counts.column(*phase, query) }
            })
            .collect()
        };
        let lanes = LANES.iter().map(|phases| Lane { columns: lane(phases) });
        Ok(Self {
            layout: layout.clone(),
            // Decisions are counted without the filters.
            summary: if query.is_unfiltered() {
                counts.summary()
            } else {
                format!("{} open", counts.open())
            },
            damaged,
            is_empty: counts.by_state.is_empty(),
            is_filtered: !query.is_unfiltered(),
            lanes: lanes.filter(|lane| !lane.columns.is_empty()).collect(),
            older_href,
        })
    }
}

/// Returns the serialised name, as used in URLs.
pub(super) fn serialized_name(name: &impl serde::Serialize) -> String {
    match serde_json::to_value(name) {
        Ok(serde_json::Value::String(text)) => text,
        _ => String::new(),
    }
}

/// Parses a serialised name from a URL; `None` if it is unknown.
fn parse_name<T: serde::de::DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_value(serde_json::Value::String(text.to_owned())).ok()
}

impl BoardQuery {
    /// Returns the URL of a project's board.
    pub(super) fn project_href(name: &str) -> String {
        Self { project: name.to_owned(), ..Self::default() }.href()
    }

    /// Returns whether no filter is set.
    pub(super) fn is_unfiltered(&self) -> bool {
        *self == Self::default()
    }

    async fn store_filter(&self, app: &App) -> Result<TaskFilter, Error> {
        let project = match self.project.as_str() {
            "" => None,
            name => Some(app.resolve_project(Some(name)).await?.id),
        };
        let (labels, terms): (Vec<&str>, Vec<&str>) =
            self.text.split_whitespace().partition(|word| word.starts_with("label:"));
        Ok(TaskFilter {
            project,
            r#type: parse_name(&self.r#type),
            priority: parse_name(&self.priority),
            risk: parse_name(&self.risk),
            phase: parse_name(&self.phase),
            waits: (self.waits == "person").then_some(true),
            label: labels.first().map(|label| label["label:".len()..].to_owned()),
            text: Some(terms.join(" ")).filter(|text| !text.is_empty()),
            ..TaskFilter::default()
        })
    }

    /// Returns the query string, ready for more parameters.
    fn query_string(&self) -> String {
        let fields = [
            ("text", &self.text),
            ("project", &self.project),
            ("type", &self.r#type),
            ("priority", &self.priority),
            ("risk", &self.risk),
            ("waits", &self.waits),
            ("phase", &self.phase),
            ("after", &self.after),
        ];
        let mut query = form_urlencoded::Serializer::new(String::from("?"));
        for (name, value) in fields.into_iter().filter(|(_, value)| !value.is_empty()) {
            query.append_pair(name, value);
        }
        format!("{}&", query.finish()).replace("?&", "?")
    }

    /// Returns the URL of this board.
    fn href(&self) -> String {
        format!("/{}", self.query_string().trim_end_matches(['?', '&']))
    }

    fn phase_href(&self, phase: &str) -> String {
        Self { phase: phase.to_owned(), after: String::new(), ..self.clone() }.href()
    }

    fn filter_form(&self, projects: impl Iterator<Item = String>) -> BoardFilters {
        fn choices<T: serde::Serialize + ToString>(
            any: &str,
            all: impl Iterator<Item = T>,
            chosen: &str,
        ) -> Vec<SelectOption> {
            let first = SelectOption::new("", any, chosen);
            let rest =
                all.map(|one| SelectOption::new(serialized_name(&one), humanize(&one), chosen));
            std::iter::once(first).chain(rest).collect()
        }
        let select = |name, label, options| SelectField { name, label, options };
        let levels = [RiskLevel::Low, RiskLevel::Medium, RiskLevel::High].into_iter();
        let selects = vec![
            select("project", "Project", choices("All", projects, &self.project)),
            select("type", "Type", choices("Any", TaskType::iter(), &self.r#type)),
            select("priority", "Priority", choices("Any", Priority::iter(), &self.priority)),
            select("risk", "Risk", choices("Any", levels, &self.risk)),
            select("waits", "Waiting on", choices("Anyone", ["person"].into_iter(), &self.waits)),
        ];
        BoardFilters { text: self.text.clone(), selects, is_active: !self.is_unfiltered() }
    }
}

/// Live update of a card.
#[derive(Template)]
#[template(path = "_card.html")]
pub(super) struct CardFragment {
    pub(super) layout: Layout,
    pub(super) card: BoardCard,
}

/// Live update of a column's count.
#[derive(Template)]
#[template(path = "_column_count.html")]
pub(super) struct ColumnCountFragment<'a> {
    pub(super) column: &'a Column,
}

/// Live update of a column's link to more cards.
#[derive(Template)]
#[template(path = "_column_more.html")]
pub(super) struct ColumnMoreFragment<'a> {
    pub(super) column: &'a Column,
}

/// Converts a stored task to a card; `None` if it is damaged.
pub(super) fn readable_card(listed: ListedTask) -> Option<dto::TaskCard> {
    dto::card_or_unreadable(listed).ok()
}
