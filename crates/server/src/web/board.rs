//! The board: every task by its phase.

use std::collections::BTreeMap;

use askama::Template;
use axum::extract::{Query, State};
use serde::Deserialize;
use strum::IntoEnumIterator as _;
use tamma_core::level::Level;
use tamma_core::task::{Priority, TaskType};
use tamma_core::task_loop::{Phase, State as Where};
use tamma_store::{Filter, Listed};
use uuid::Uuid;

use super::door::Visitor;
use super::rights::Rights;
use super::shell::{Choice, Select, Shell, When};
use super::{Hall, Oops, Page, render, see, words};
use crate::app::{App, Cursor as _, Error};
use crate::clock;
use crate::shape;

/// How many cards of each state a board shows.
const EACH: u32 = 20;

/// How many a column alone shows at once.
const ALONE: u32 = 200;

/// What of the board is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    text: String,
    project: String,
    r#type: String,
    priority: String,
    risk: String,
    waits: String,
    phase: String,
    /// Where a column alone goes on.
    after: String,
}

#[derive(Template)]
#[template(path = "board.html")]
struct Board {
    shell: Shell,
    query: Asked,
    live: String,
    lanes: Lanes,
}

/// What of the board changes while somebody looks: everything but the filters.
#[derive(Template)]
#[template(path = "_lanes.html")]
pub(super) struct Lanes {
    shell: Shell,
    summary: String,
    damaged: Vec<Damaged>,
    empty: bool,
    /// Whether it was narrowed.
    narrowed: bool,
    lanes: Vec<Lane>,
    older_href: String,
}

/// Columns one above the other.
struct Lane {
    columns: Vec<Column>,
}

/// Which phases stand one above the other, from left to right.
const LANES: [&[Phase]; 5] = [
    &[Phase::Alert, Phase::Receive],
    &[Phase::Plan, Phase::Approve],
    &[Phase::Implement],
    &[Phase::Review, Phase::Adjust, Phase::Council],
    &[Phase::Deliver, Phase::Learn, Phase::Done],
];

struct Asked {
    text: String,
    selects: Vec<Select>,
    active: bool,
}

struct Damaged {
    title: String,
    why: String,
}

/// One phase.
pub(super) struct Column {
    pub(super) phase: String,
    pub(super) name: String,
    pub(super) count: u64,
    /// How many of how many places are taken, where the rules have a limit.
    pub(super) limit: String,
    pub(super) full: bool,
    pub(super) more_href: String,
    pub(super) cards: Vec<Card>,
}

/// One task.
pub(super) struct Card {
    pub(super) id: Uuid,
    pub(super) short: String,
    pub(super) title: String,
    pub(super) state: String,
    pub(super) tone: &'static str,
    pub(super) step: usize,
    pub(super) next: String,
    pub(super) waits: String,
    pub(super) since: When,
    pub(super) risk: String,
    pub(super) budget: Money,
    pub(super) tries: String,
    pub(super) late: bool,
}

/// What was spent, of what may be.
pub(super) struct Money {
    pub(super) used: String,
    pub(super) limit: String,
    pub(super) about: bool,
    pub(super) percent: u8,
    pub(super) tone: &'static str,
}

/// The colour of a bar that is so full.
pub(super) fn fullness(percent: u8) -> &'static str {
    match percent {
        0..80 => "acc",
        80..100 => "wait",
        _ => "bad",
    }
}

impl Card {
    /// A card, for whom it waits.
    pub(super) fn new(card: &shape::Card, waits: String) -> Self {
        let percent = card.budget.map(|limit| card.spend.usd.share_of(limit)).unwrap_or_default();
        Self {
            id: card.id,
            short: card.short.clone(),
            title: card.title.clone(),
            state: words::state(card.state).to_owned(),
            tone: words::tone(card),
            step: words::step(card.state),
            next: words::next(card),
            waits,
            since: When::lasting(card.since),
            risk: card.risk.map(|risk| risk.to_string()).unwrap_or_default(),
            budget: Money {
                used: words::dollars(card.spend.usd),
                limit: card.budget.map(words::dollars).unwrap_or_default(),
                about: card.spend.estimated,
                percent,
                tone: fullness(percent),
            },
            tries: match card.iterations {
                0 | 1 => String::new(),
                runs => format!("{runs} runs"),
            },
            late: card.due_at.is_some_and(|due| due < clock::now()),
        }
    }
}

/// How many tasks there are, and how many may run.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts {
    pub(super) by_state: BTreeMap<Where, u64>,
    pub(super) waiting: u64,
    /// How many agents may work on the project at once, where there is one project and its rules say
    /// so.
    pub(super) places: Option<u16>,
}

impl Counts {
    pub(super) fn of_phase(&self, phase: Phase) -> u64 {
        self.by_state.iter().filter(|(state, _)| state.phase() == phase).map(|(_, n)| n).sum()
    }

    pub(super) fn summary(&self) -> String {
        let live: u64 =
            self.by_state.iter().filter(|(at, _)| !at.is_terminal()).map(|(_, n)| n).sum();
        let wait = if self.waiting == 1 { "waits" } else { "wait" };
        format!("{live} under way, {} {wait} for a person", self.waiting)
    }

    /// A phase without its cards.
    pub(super) fn column(&self, phase: Phase, wanted: &Wanted) -> Column {
        let (word, count) = (word(&phase), self.of_phase(phase));
        let running = self.by_state.get(&Where::InProgress).copied().unwrap_or_default();
        let places = self.places.filter(|_| phase == Phase::Implement);
        let more = count > u64::from(EACH) && wanted.phase.is_empty();
        Column {
            name: phase.to_string(),
            count,
            limit: places.map(|places| format!("{running} of {places}")).unwrap_or_default(),
            full: places.is_some_and(|places| running >= u64::from(places)),
            more_href: if more { wanted.with_phase(&word) } else { String::new() },
            cards: Vec::new(),
            phase: word,
        }
    }
}

/// How many agents may work at once: by the rules of the project that is looked at, or of the only one
/// there is.
pub(super) async fn places(app: &App, wanted: &Wanted) -> Result<Option<u16>, Error> {
    let projects = app.store.projects().await?;
    let one = match projects.as_slice() {
        [only] => Some(only),
        several => several.iter().find(|it| it.name == wanted.project),
    };
    let Some(project) = one else { return Ok(None) };
    // A file with mistakes in it limits nothing here; the page of projects says what is wrong.
    let rules = app.rules_of(&project.repository).await.ok();
    Ok(rules.and_then(|rules| rules.engines.per_project))
}

/// Shows the board.
pub(super) async fn page(
    State(hall): State<Hall>,
    visitor: Visitor,
    Query(wanted): Query<Wanted>,
) -> Page {
    let oops = |error: Error| Oops::new(Shell::of(&visitor), error);
    if let Some(task) = named_task(&hall.app, &wanted.text).await.map_err(oops)? {
        return see(&format!("/tasks/{task}"));
    }
    let shell = Shell::at(&hall, &visitor, "board").await?;
    // Before anything is read, so that nothing is missed between the page and what follows it.
    let since = hall.app.store.now().await.map_err(|error| oops(error.into()))?;
    let mut rights = Rights::of(&hall.app, &visitor);
    let lanes = Lanes::read(&hall.app, &shell, &wanted, &mut rights).await.map_err(oops)?;
    let projects = hall.app.store.projects().await.map_err(|error| oops(error.into()))?;
    let query = wanted.asked(projects.into_iter().map(|project| project.name));
    let since = since.timestamp_micros();
    let live = format!("/live/board{}since={since}&empty={}", wanted.query(), lanes.empty);
    render(&Board { shell, query, live, lanes })
}

/// The task that somebody means who searches for an id, or for the digits that are shown of it.
async fn named_task(app: &App, text: &str) -> Result<Option<Uuid>, Error> {
    let text = text.trim().to_ascii_lowercase();
    if let Ok(id) = text.parse::<Uuid>() {
        return Ok(Some(id));
    }
    if text.len() != 8 || !text.chars().all(|digit| digit.is_ascii_hexdigit()) {
        return Ok(None);
    }
    Ok(match app.store.tasks_ending(&text).await?.as_slice() {
        [one] => Some(one.0),
        _ => None,
    })
}

impl Lanes {
    pub(super) fn summary(&self) -> &str {
        &self.summary
    }

    pub(super) async fn read(
        app: &App,
        shell: &Shell,
        wanted: &Wanted,
        rights: &mut Rights,
    ) -> Result<Self, Error> {
        let filter = wanted.filter(app).await?;
        let places = places(app, wanted).await?;
        let each = if filter.phase.is_some() { 0 } else { EACH };
        let board = app.store.board(&filter, each).await?;
        let mut older_href = String::new();
        let tasks = if filter.phase.is_some() {
            let after = Some(wanted.after.as_str()).filter(|after| !after.is_empty());
            let after = after.map(tamma_core::ids::TaskId::read).transpose()?;
            let page = app.store.tasks(&filter, after, ALONE).await?;
            if let Some(next) = page.next {
                let next = Wanted { after: next.write(), ..wanted.clone() };
                older_href = next.place();
            }
            page.tasks
        } else {
            board.tasks
        };
        let counts = Counts { by_state: board.counts, waiting: shell.waiting, places };
        let mut by_phase: BTreeMap<Phase, Vec<Card>> = BTreeMap::new();
        let mut damaged = Vec::new();
        for listed in tasks {
            match shape::listed(listed) {
                Ok(card) => {
                    let waits = rights.waits_for(&card).await;
                    by_phase.entry(card.phase).or_default().push(Card::new(&card, waits));
                }
                Err(it) => damaged.push(Damaged { title: it.title, why: it.why }),
            }
        }
        let mut lane = |phases: &[Phase]| -> Vec<Column> {
            let here =
                phases.iter().filter(|phase| filter.phase.is_none_or(|only| only == **phase));
            here.map(|phase| {
                let cards = by_phase.remove(phase).unwrap_or_default();
                Column { cards, ..counts.column(*phase, wanted) }
            })
            .collect()
        };
        let lanes = LANES.iter().map(|phases| Lane { columns: lane(phases) });
        Ok(Self {
            shell: shell.clone(),
            summary: counts.summary(),
            damaged,
            empty: counts.by_state.is_empty(),
            narrowed: !wanted.is_all(),
            lanes: lanes.filter(|lane| !lane.columns.is_empty()).collect(),
            older_href,
        })
    }
}

/// A name as it stands in addresses.
pub(super) fn word(name: &impl serde::Serialize) -> String {
    match serde_json::to_value(name) {
        Ok(serde_json::Value::String(text)) => text,
        _ => String::new(),
    }
}

/// A name that was read from an address, if there is such a one.
fn named<T: serde::de::DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_value(serde_json::Value::String(text.to_owned())).ok()
}

impl Wanted {
    /// The board of one project.
    pub(super) fn of_project(name: &str) -> String {
        Self { project: name.to_owned(), ..Self::default() }.place()
    }

    /// Whether nothing is left out.
    pub(super) fn is_all(&self) -> bool {
        *self == Self::default()
    }

    async fn filter(&self, app: &App) -> Result<Filter, Error> {
        let project = match self.project.as_str() {
            "" => None,
            name => Some(app.project(Some(name)).await?.id),
        };
        let (labels, words): (Vec<&str>, Vec<&str>) =
            self.text.split_whitespace().partition(|word| word.starts_with("label:"));
        Ok(Filter {
            project,
            r#type: named(&self.r#type),
            priority: named(&self.priority),
            risk: named(&self.risk),
            phase: named(&self.phase),
            waits: (self.waits == "person").then_some(true),
            label: labels.first().map(|label| label["label:".len()..].to_owned()),
            text: Some(words.join(" ")).filter(|text| !text.is_empty()),
            ..Filter::default()
        })
    }

    /// As the query of an address that goes on.
    fn query(&self) -> String {
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

    /// Its address.
    fn place(&self) -> String {
        format!("/{}", self.query().trim_end_matches(['?', '&']))
    }

    fn with_phase(&self, phase: &str) -> String {
        Self { phase: phase.to_owned(), after: String::new(), ..self.clone() }.place()
    }

    fn asked(&self, projects: impl Iterator<Item = String>) -> Asked {
        fn choices<T: serde::Serialize + ToString>(
            any: &str,
            all: impl Iterator<Item = T>,
            chosen: &str,
        ) -> Vec<Choice> {
            let first = Choice::new("", any, chosen);
            let rest = all.map(|one| Choice::new(word(&one), words::plain(&one), chosen));
            std::iter::once(first).chain(rest).collect()
        }
        let select = |name, label, options| Select { name, label, options };
        let levels = [Level::Low, Level::Medium, Level::High].into_iter();
        let selects = vec![
            select("project", "Project", choices("all", projects, &self.project)),
            select("type", "Type", choices("any", TaskType::iter(), &self.r#type)),
            select("priority", "Priority", choices("any", Priority::iter(), &self.priority)),
            select("risk", "Risk", choices("any", levels, &self.risk)),
            select("waits", "Waits for", choices("anything", ["person"].into_iter(), &self.waits)),
        ];
        Asked { text: self.text.clone(), selects, active: !self.is_all() }
    }
}

/// A card alone, as a live update sends it.
#[derive(Template)]
#[template(path = "_card.html")]
pub(super) struct Alone {
    pub(super) shell: Shell,
    pub(super) card: Card,
}

/// How many a column has, as a live update sends it.
#[derive(Template)]
#[template(path = "_count.html")]
pub(super) struct CountAlone<'a> {
    pub(super) column: &'a Column,
}

/// Where the rest of a column is, as a live update sends it.
#[derive(Template)]
#[template(path = "_more.html")]
pub(super) struct MoreAlone<'a> {
    pub(super) column: &'a Column,
}

/// A task as the store lists it, if it can be read.
pub(super) fn readable(listed: Listed) -> Option<shape::Card> {
    shape::listed(listed).ok()
}
