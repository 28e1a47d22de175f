//! Board: tasks by phase, project, person or priority.

pub(super) mod bulk;
pub(super) mod palette;
mod query;
pub(super) mod views;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use askama::Template;
use axum::extract::Query;
use strum::IntoEnumIterator as _;
use tamma_core::access::Permission;
use tamma_core::format::{capitalize, format_usd, pluralize};
use tamma_core::level::RiskLevel;
use tamma_core::task::Priority;
use tamma_core::task_loop::{Phase, State as TaskState};
use tamma_store::{ListedTask, TaskOrder};
use uuid::Uuid;

use self::query::BoardGroup;
pub(super) use self::query::BoardQuery;
use super::labels::NextStepView;
use super::layout::{DisplayTime, Layout, Link, SelectField};
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

#[derive(Template)]
#[template(path = "board.html")]
struct BoardPage {
    layout: Layout,
    filters: BoardFilters,
    /// Views that the person has saved.
    views: Vec<ViewLink>,
    /// Query string of this board, to save it.
    query: String,
    live_href: String,
    lanes: Lanes,
    /// Set if the person can act on tasks.
    can_act: bool,
    priorities: Vec<String>,
    /// Identifies the submission of the bulk form.
    idempotency_key: String,
}

/// Link to a saved view.
struct ViewLink {
    name: String,
    href: String,
    is_current: bool,
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
    /// Number of cards and of tasks, if some tasks have no card.
    partial_note: Option<String>,
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
    /// Label that all tasks have; empty without this filter.
    label: String,
    selects: Vec<SelectField>,
    is_active: bool,
}

struct DamagedCard {
    title: String,
    reason: String,
}

/// Column of one phase, project, person or priority.
pub(super) struct Column {
    /// Word in the IDs of its elements.
    pub(super) phase: String,
    pub(super) name: String,
    /// Priority that a card gets when it is moved here.
    pub(super) priority: Option<Priority>,
    pub(super) count: u64,
    /// `true` if there are more tasks than the count says.
    pub(super) is_count_partial: bool,
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
    pub(super) project: String,
    pub(super) project_href: String,
    /// `None` for the usual priority.
    pub(super) priority: Option<Priority>,
    pub(super) labels: Vec<Link>,
    /// Set if the viewer can select it for an action.
    pub(super) can_select: bool,
    pub(super) state: &'static str,
    pub(super) tone: &'static str,
    pub(super) progress_step: usize,
    pub(super) next: NextStepView,
    pub(super) waiting_on: Option<WaitingOn>,
    pub(super) since: DisplayTime,
    /// `None` before the first plan.
    pub(super) risk: Option<RiskLevel>,
    pub(super) budget: BudgetView,
    pub(super) attempts: u16,
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
    pub(super) fn new(
        card: &dto::TaskCard,
        project: &str,
        waiting_on: Option<WaitingOn>,
        permissions: &PagePermissions,
    ) -> Self {
        let percent = card.budget.map(|limit| card.spend.usd.percent_of(limit)).unwrap_or_default();
        Self {
            id: card.id,
            short_id: card.short.clone(),
            title: card.title.clone(),
            project: project.to_owned(),
            project_href: BoardQuery::project_href(project),
            priority: Some(card.priority).filter(|priority| *priority != Priority::default()),
            labels: card
                .labels
                .iter()
                .map(|label| Link::new(BoardQuery::label_href(label), label))
                .collect(),
            can_select: !card.state.is_terminal()
                && permissions.allows(card.project, Permission::Work),
            state: labels::state_label(card.state),
            tone: labels::task_tone(card),
            progress_step: labels::progress_step(card.state),
            next: NextStepView::new(card),
            waiting_on,
            since: DisplayTime::elapsed(card.since),
            risk: card.risk,
            budget: BudgetView {
                spent: card.spend.to_string(),
                limit: card.budget.map(format_usd),
                percent,
                tone: budget_tone(percent),
            },
            attempts: card.iterations,
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
    /// States with more tasks than their number says.
    pub(super) more: BTreeSet<TaskState>,
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
            name: phase.label().to_owned(),
            priority: None,
            count,
            is_count_partial: self.more.iter().any(|state| state.phase() == phase),
            agents: limit.map(|limit| AgentCapacity { running, limit }),
            more_href: more.then(|| query.phase_href(&word)),
            cards: Vec::new(),
            phase: word,
        }
    }
}

/// Returns the maximum number of agents, by the rules of the selected project or of the only one, and by
/// the operator.
pub(super) async fn agent_limit(app: &App, query: &BoardQuery) -> Result<Option<u16>, Error> {
    let projects = app.store.projects().await?;
    let one = match projects.as_slice() {
        [only] => Some(only),
        several => several.iter().find(|it| it.name == query.project),
    };
    let Some(project) = one else { return Ok(None) };
    // Invalid rules set no limit here; the projects page shows their errors.
    let rules = app.project_rules(&project.repository).await.ok();
    Ok(rules.and_then(|rules| rules.engines.agent_limit(&app.operator)))
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
    let views = views::load(&state, &session, &query).await.map_err(page_error)?;
    let (since, empty) = (since.timestamp_micros(), lanes.is_empty);
    let stored = query.to_query_string();
    let live_href = format!("/live/board?since={since}&empty={empty}&{stored}");
    render(&BoardPage {
        layout,
        filters,
        views,
        query: BoardQuery { after: String::new(), ..query }.to_query_string(),
        live_href: live_href.trim_end_matches('&').to_owned(),
        lanes,
        can_act: session.rights.allows_anywhere(Permission::Work),
        priorities: Priority::iter().rev().map(|it| it.to_string()).collect(),
        idempotency_key: clock::new_id().to_string(),
    })
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
        let (group, order) = (query.group(), query.order());
        let per_state = match filter.phase {
            Some(_) if order == TaskOrder::Newest => 0,
            Some(_) => COLUMN_PAGE_SIZE,
            None => CARDS_PER_STATE,
        };
        let board = app.store.board(&filter, order, per_state).await?;
        let mut older_href = None;
        let tasks = if per_state == 0 {
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
        let counts = BoardCounts {
            by_state: board.counts,
            more: board.more,
            waiting: layout.waiting,
            agent_limit,
        };
        let mut damaged = Vec::new();
        let mut cards = Vec::new();
        for listed in tasks {
            match dto::card_or_unreadable(listed) {
                Ok(card) => cards.push(card),
                Err(it) => damaged.push(DamagedCard { title: it.title, reason: it.error }),
            }
        }
        app.add_pull_request_badges(&mut cards).await?;
        sort_cards(&mut cards, order);
        let projects = app.store.projects().await?;
        let projects: BTreeMap<Uuid, String> =
            projects.into_iter().map(|project| (project.id.0, project.name)).collect();
        let mut grouped: Vec<(dto::TaskCard, BoardCard)> = Vec::new();
        for card in cards {
            let waiting_on = permissions.waiting_on(&card).await;
            let project = projects.get(&card.project).map(String::as_str).unwrap_or_default();
            let shown = BoardCard::new(&card, project, waiting_on, permissions);
            grouped.push((card, shown));
        }
        let (shown, all) = (grouped.len() as u64, counts.by_state.values().sum::<u64>());
        let lanes = match group {
            BoardGroup::Phase => phase_lanes(grouped, &counts, filter.phase, query),
            group => group_lanes(grouped, group),
        };
        Ok(Self {
            layout: layout.clone(),
            // Decisions are counted without the filters.
            summary: if query.is_unfiltered() {
                counts.summary()
            } else {
                format!("{} open", counts.open())
            },
            damaged,
            is_empty: counts.by_state.is_empty() && shown == 0,
            is_filtered: !query.is_unfiltered(),
            lanes,
            older_href,
            partial_note: (group != BoardGroup::Phase && shown < all)
                .then(|| format!("Showing {shown} of {all} tasks. Use filters to see the others.")),
        })
    }
}

/// Sorts cards across states. The store has chosen the first ones of each state.
fn sort_cards(cards: &mut [dto::TaskCard], order: TaskOrder) {
    match order {
        TaskOrder::Newest => cards.sort_by_key(|card| Reverse(card.id)),
        TaskOrder::Oldest => cards.sort_by_key(|card| card.id),
        TaskOrder::Priority => cards.sort_by_key(|card| (Reverse(card.priority), card.id)),
        TaskOrder::Waiting => cards.sort_by_key(|card| card.since),
        TaskOrder::Cost => cards.sort_by_key(|card| Reverse(card.spend.usd)),
        TaskOrder::Updated => cards.sort_by_key(|card| Reverse(card.updated_at)),
    }
}

/// Builds the columns of the phases, some of them stacked.
fn phase_lanes(
    cards: Vec<(dto::TaskCard, BoardCard)>,
    counts: &BoardCounts,
    only: Option<Phase>,
    query: &BoardQuery,
) -> Vec<Lane> {
    let mut by_phase: BTreeMap<Phase, Vec<BoardCard>> = BTreeMap::new();
    for (card, shown) in cards {
        by_phase.entry(card.phase).or_default().push(shown);
    }
    let mut lane = |phases: &[Phase]| -> Vec<Column> {
        let here = phases.iter().filter(|phase| only.is_none_or(|only| only == **phase));
        here.map(|phase| {
            let cards = by_phase.remove(phase).unwrap_or_default();
            Column { cards, ..counts.column(*phase, query) }
        })
        .collect()
    };
    let lanes = LANES.iter().map(|phases| Lane { columns: lane(phases) });
    lanes.filter(|lane| !lane.columns.is_empty()).collect()
}

/// Builds one column for each project, person or priority.
fn group_lanes(cards: Vec<(dto::TaskCard, BoardCard)>, group: BoardGroup) -> Vec<Lane> {
    // The number orders the columns before their names do.
    let mut columns: BTreeMap<(u8, String), (Option<Priority>, Vec<BoardCard>)> = BTreeMap::new();
    let place = |priority: Priority| (rank(priority), capitalize(&priority.to_string()));
    if group == BoardGroup::Priority {
        // Empty ones too, because cards can be moved there.
        for priority in Priority::iter() {
            columns.insert(place(priority), (Some(priority), Vec::new()));
        }
    }
    for (card, shown) in cards {
        let (key, priority) = match group {
            BoardGroup::Phase => ((0, card.phase.label().to_owned()), None),
            BoardGroup::Project => ((0, shown.project.clone()), None),
            BoardGroup::Priority => (place(card.priority), Some(card.priority)),
            BoardGroup::Person => match &shown.waiting_on {
                Some(waiting_on @ WaitingOn::Viewer) => ((0, waiting_on.to_string()), None),
                Some(waiting_on @ WaitingOn::Others(_)) => ((1, waiting_on.to_string()), None),
                None => ((2, "Not waiting on anyone".to_owned()), None),
            },
        };
        columns.entry(key).or_insert_with(|| (priority, Vec::new())).1.push(shown);
    }
    let lanes = columns.into_iter().enumerate().map(|(number, ((_, name), (priority, cards)))| {
        let (phase, count) = (format!("g{number}"), cards.len() as u64);
        let (agents, more_href) = (None, None);
        let is_count_partial = false;
        let column =
            Column { phase, name, priority, count, is_count_partial, agents, more_href, cards };
        Lane { columns: vec![column] }
    });
    lanes.collect()
}

/// Returns the position of a priority, the highest first.
fn rank(priority: Priority) -> u8 {
    match priority {
        Priority::Critical => 0,
        Priority::High => 1,
        Priority::Medium => 2,
        Priority::Low => 3,
    }
}

/// Returns the serialised name, as used in URLs.
pub(super) fn serialized_name(name: &impl serde::Serialize) -> String {
    match serde_json::to_value(name) {
        Ok(serde_json::Value::String(text)) => text,
        _ => String::new(),
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn card(number: u32, priority: &str, cents: u32) -> dto::TaskCard {
        serde_json::from_value(json!({
            "id": format!("01920000-0000-7000-8000-0000000000{number:02}"), "short": "abcdef01",
            "project": "01920000-0000-7000-8000-000000000002", "title": "Greet",
            "type": "feature", "priority": priority, "created_at": "2026-11-17T09:00:00Z",
            "state": "planning", "phase": "plan", "paused": false,
            "since": "2026-11-17T09:00:00Z", "risk": null, "iterations": 0, "retries": 0,
            "councils": 0, "failures": 0,
            "spend": { "usd": format!("0.{cents:02}"), "tokens": 7, "estimated": false },
            "waits_for_person": false, "answers": [], "next": null, "next_in_words": null,
            "due_at": null, "entries": 1, "updated_at": "2026-11-17T09:00:00Z",
        }))
        .expect("card")
    }

    fn shown(card: &dto::TaskCard, waiting_on: Option<WaitingOn>) -> BoardCard {
        BoardCard {
            id: card.id,
            short_id: card.short.clone(),
            title: card.title.clone(),
            project: "greeter".to_owned(),
            project_href: String::new(),
            priority: None,
            labels: Vec::new(),
            can_select: false,
            state: "planning",
            tone: "work",
            progress_step: 2,
            next: NextStepView::None,
            waiting_on,
            since: DisplayTime::elapsed(card.since),
            risk: None,
            budget: BudgetView { spent: String::new(), limit: None, percent: 0, tone: "acc" },
            attempts: 0,
            is_overdue: false,
            pull_request: None,
        }
    }

    fn names(lanes: &[Lane]) -> Vec<(&str, usize)> {
        let columns = lanes.iter().flat_map(|lane| &lane.columns);
        columns.map(|column| (column.name.as_str(), column.cards.len())).collect()
    }

    #[test]
    fn cards_are_sorted_by_the_chosen_property() {
        let mut cards = [card(1, "low", 50), card(2, "critical", 10), card(3, "low", 90)];
        let mut sorted = |order| -> Vec<String> {
            sort_cards(&mut cards, order);
            cards.iter().map(|card| card.id.to_string()[35..].to_owned()).collect()
        };
        assert_eq!(sorted(TaskOrder::Newest), ["3", "2", "1"]);
        assert_eq!(sorted(TaskOrder::Oldest), ["1", "2", "3"]);
        assert_eq!(sorted(TaskOrder::Priority), ["2", "1", "3"]);
        assert_eq!(sorted(TaskOrder::Cost), ["3", "1", "2"]);
    }

    #[test]
    fn columns_of_priorities_are_always_there_to_move_cards_to() {
        let high = card(1, "high", 0);
        let lanes = group_lanes(vec![(high.clone(), shown(&high, None))], BoardGroup::Priority);
        assert_eq!(names(&lanes), [("Critical", 0), ("High", 1), ("Medium", 0), ("Low", 0)]);
    }

    #[test]
    fn what_needs_the_viewer_comes_first() {
        let others = WaitingOn::Others("Ada".to_owned());
        let waiting = [None, Some(others), Some(WaitingOn::Viewer)];
        let cards = waiting.into_iter().zip(1..).map(|(waiting_on, number)| {
            let card = card(number, "low", 0);
            let shown = shown(&card, waiting_on);
            (card, shown)
        });
        let lanes = group_lanes(cards.collect(), BoardGroup::Person);
        let expected = [("Needs you", 1), ("Waiting on Ada", 1), ("Not waiting on anyone", 1)];
        assert_eq!(names(&lanes), expected);
    }
}
