//! Engines and workers: who works, on what, and whom nobody may ask at the moment.

use askama::Template;
use axum::extract::State;
use chrono::TimeDelta;
use tamma_core::task_loop::Timestamp;
use tamma_store::{EngineUse, Running, Worker};
use uuid::Uuid;

use super::door::Visitor;
use super::shell::{Shell, When};
use super::{Hall, Oops, Page, render, words};
use crate::app::{App, Error};
use crate::clock;

/// How far back runs are counted.
const LATELY: TimeDelta = TimeDelta::days(7);

#[derive(Template)]
#[template(path = "engines.html")]
struct Engines {
    shell: Shell,
    live: &'static str,
    pool: Pool,
}

/// Everything that works, and for whom.
#[derive(Template)]
#[template(path = "_pool.html")]
pub(super) struct Pool {
    shell: Shell,
    summary: String,
    workers: Vec<Shown>,
    providers: Vec<Provider>,
    engines: Vec<Engine>,
}

struct Shown {
    id: usize,
    name: String,
    tone: &'static str,
    words: String,
    used: usize,
    slots: usize,
    slot_list: Vec<Slot>,
}

struct Slot {
    free: bool,
    task: Uuid,
    title: String,
    words: String,
    since: When,
}

struct Provider {
    id: usize,
    name: String,
    tone: &'static str,
    running: String,
    words: String,
}

struct Engine {
    agent: String,
    tier: String,
    model: String,
    runs: u64,
    first_pass: String,
    cost: String,
    roles: String,
}

pub(super) async fn page(State(hall): State<Hall>, visitor: Visitor) -> Page {
    let shell = Shell::at(&hall, &visitor, "engines").await?;
    let pool = Pool::read(&hall.app, &shell).await;
    let pool = pool.map_err(|error| Oops::new(Shell::of(&visitor), error))?;
    render(&Engines { shell, live: "/live/engines", pool })
}

impl Pool {
    pub(super) async fn read(app: &App, shell: &Shell) -> Result<Self, Error> {
        let (store, now) = (&app.store, clock::now());
        let mut running = store.running().await?;
        let used = store.engine_use(now - LATELY).await?;
        let (holds, places) = (store.holds(now).await?, store.places(now).await?);
        let under_way = words::counted(running.len() as u64, "run");
        let mut workers: Vec<Shown> = Vec::new();
        for (it, is_there) in store.workers().await? {
            let is_its = |run: &mut Running| run.worker.as_ref() == Some(&it.name);
            let its: Vec<Running> = running.extract_if(.., is_its).collect();
            workers.push(worker(workers.len(), &it, is_there, &its));
        }
        if !running.is_empty() {
            // Whoever did them has gone, and nobody has taken them up yet.
            workers.push(Shown {
                id: workers.len(),
                name: "Nobody".to_owned(),
                tone: "bad",
                words: "Their worker has gone; another one takes them up.".to_owned(),
                used: running.len(),
                slots: running.len(),
                slot_list: running.iter().map(taken).collect(),
            });
        }
        let free: usize = workers.iter().map(|it| it.slots.saturating_sub(it.used)).sum();
        Ok(Self {
            shell: shell.clone(),
            summary: format!("{under_way} under way, {} free", words::counted(free as u64, "slot")),
            workers,
            providers: providers(&places, &holds),
            engines: used.into_iter().map(engine).collect(),
        })
    }
}

fn providers(places: &[(String, u64)], holds: &[(String, Timestamp)]) -> Vec<Provider> {
    let mut providers: Vec<Provider> = Vec::new();
    let names = places.iter().map(|(name, _)| name).chain(holds.iter().map(|(name, _)| name));
    for name in names {
        if providers.iter().any(|provider| provider.name == *name) {
            continue;
        }
        let at_once = places.iter().find(|(key, _)| key == name).map_or(0, |(_, count)| *count);
        let hold = holds.iter().find(|(key, _)| key == name).map(|(_, until)| *until);
        providers.push(Provider {
            id: providers.len(),
            name: name.clone(),
            tone: if hold.is_some() { "hold" } else { "work" },
            running: words::counted(at_once, "run"),
            words: match hold {
                Some(until) => {
                    let until = words::moment(until, clock::now());
                    format!("Its quota is used up until {until}; nothing new starts on it.")
                }
                None => "It answers.".to_owned(),
            },
        });
    }
    providers
}

fn worker(id: usize, it: &Worker, is_there: bool, running: &[Running]) -> Shown {
    let slots = usize::try_from(it.slots).unwrap_or(usize::MAX);
    let ago = |at| words::lasting(clock::now() - at);
    let free = (running.len()..slots).map(|_| Slot::free());
    Shown {
        id,
        name: it.name.clone(),
        tone: match (is_there, running.len() >= slots) {
            (false, _) => "bad",
            (true, true) => "work",
            (true, false) => "idle",
        },
        words: if is_there {
            format!("There for {}.", ago(it.started_at))
        } else {
            format!("Not heard of for {}.", ago(it.seen_at))
        },
        used: running.len(),
        slots,
        slot_list: running.iter().map(taken).chain(free).collect(),
    }
}

/// A slot in which something runs.
fn taken(run: &Running) -> Slot {
    let model = run.model.as_ref().map(|model| format!(", {model}")).unwrap_or_default();
    Slot {
        free: false,
        task: run.task.0,
        title: run.title.clone(),
        words: format!("{} with {}{model}", run.mode, run.agent),
        since: When::lasting(run.started_at),
    }
}

impl Slot {
    fn free() -> Self {
        let since = When { iso: String::new(), text: String::new() };
        let (title, words) = (String::new(), String::new());
        Self { free: true, task: Uuid::nil(), title, words, since }
    }
}

fn engine(it: EngineUse) -> Engine {
    let share = (it.passed * 100).checked_div(it.judged);
    Engine {
        agent: it.agent,
        tier: it.tier.map(|tier| tier.to_string()).unwrap_or_default(),
        model: it.model.unwrap_or_default(),
        runs: it.runs,
        first_pass: share.map_or_else(
            || "no case yet".to_owned(),
            |share| format!("{share} % of {}", it.judged),
        ),
        cost: it.mean_usd.map_or_else(|| "unknown".to_owned(), words::dollars),
        roles: it.modes.join(", "),
    }
}
