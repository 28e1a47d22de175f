//! A task's way through the states, as a picture with times.

use tamma_core::actor::Actor;
use tamma_core::log::Entry;
use tamma_core::task_loop::State;

use super::Known;
use crate::app::{App, Error, Window};
use crate::clock;
use crate::web::shell::When;
use crate::web::words;
use crate::web::words::capital;

/// How many stops are shown: the newest ones.
const MOST: usize = 40;

/// Where the three lines are: the straight way, repair, and people.
const LANES: [u8; 3] = [10, 24, 40];

pub(in crate::web) struct Way {
    pub(in crate::web) stops: Vec<Stop>,
    pub(in crate::web) words: String,
}

pub(in crate::web) struct Stop {
    pub(in crate::web) state: String,
    pub(in crate::web) lane: usize,
    pub(in crate::web) tone: &'static str,
    pub(in crate::web) took: String,
    pub(in crate::web) why: String,
    pub(in crate::web) at: When,
    pub(in crate::web) now: bool,
    pub(in crate::web) line: bool,
    pub(in crate::web) y: u8,
    pub(in crate::web) next_y: u8,
}

impl Way {
    pub(in crate::web) async fn of(app: &App, known: &Known) -> Result<Self, Error> {
        let mut moves: Vec<Entry> = Vec::new();
        let mut after = None;
        loop {
            let window = Window { after, limit: 500 };
            let part = app.history(known.machine.task, &window).await?;
            let entries = part.entries.into_iter().map(|line| line.entry);
            moves.extend(entries.filter(|entry| entry.sequence == 1 || entry.from != entry.to));
            after = part.next;
            if after.is_none() {
                return Ok(Self::through(&moves));
            }
        }
    }

    fn through(moves: &[Entry]) -> Self {
        let now = clock::now();
        let mut waited = chrono::TimeDelta::zero();
        let mut stops = Vec::new();
        for (at, entry) in moves.iter().enumerate() {
            let next = moves.get(at + 1);
            let state = entry.to;
            let until = next.map_or(now, |next| next.at);
            if matches!(state, State::AwaitingApproval | State::HumanEscalation) {
                waited += until - entry.at;
            }
            let last = next.is_none();
            let took = match (last, state.is_terminal()) {
                (true, true) => String::new(),
                (true, false) => format!("{} so far", words::lasting(until - entry.at)),
                (false, _) => words::lasting(until - entry.at),
            };
            let lane = lane(state);
            stops.push(Stop {
                state: capital(&words::plain(&state)),
                lane,
                tone: tone(state),
                took,
                why: next.map(left).unwrap_or_default(),
                at: When::clock(entry.at),
                now: last,
                line: !last,
                y: LANES[lane],
                next_y: next.map_or(0, |next| LANES[self::lane(next.to)]),
            });
        }
        let whole = moves.first().map_or_else(chrono::TimeDelta::zero, |first| {
            let ended = moves.last().filter(|last| last.to.is_terminal());
            ended.map_or(now, |last| last.at) - first.at
        });
        let words = format!(
            "{}, of which {} waiting for a person.",
            words::lasting(whole),
            words::lasting(waited)
        );
        let from = stops.len().saturating_sub(MOST);
        Self { stops: stops.split_off(from), words }
    }
}

/// Why a state was left.
fn left(entry: &Entry) -> String {
    let name = entry.name.to_string();
    let what = name.trim_start_matches("SM_").to_ascii_lowercase().replace('_', " ");
    match &entry.actor {
        Actor::Person(name) => format!("{what}, by {name}"),
        _ => what,
    }
}

fn lane(state: State) -> usize {
    match state {
        State::Adjusting | State::CtoIntervention => 1,
        State::HumanEscalation => 2,
        _ => 0,
    }
}

fn tone(state: State) -> &'static str {
    match state {
        State::AwaitingApproval | State::HumanEscalation => "wait",
        State::Adjusting | State::CtoIntervention => "warn",
        State::Completed => "good",
        State::Failed => "bad",
        State::Cancelled => "hold",
        _ => "work",
    }
}
