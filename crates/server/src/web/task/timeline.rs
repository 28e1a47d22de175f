//! Timeline of a task: its states, with their durations.

use tamma_core::actor::Actor;
use tamma_core::format::{capitalize, format_duration};
use tamma_core::history::HistoryEntry;
use tamma_core::task_loop::State;

use super::TaskData;
use crate::app::{App, Error, PageRequest};
use crate::clock;
use crate::web::labels::state_label;
use crate::web::layout::DisplayTime;

/// Maximum number of stops; older ones are left out.
const MAX_STOPS: usize = 40;

/// Vertical positions of the lanes: normal progress, rework, and escalation to a person.
const LANE_HEIGHTS: [u8; 3] = [10, 24, 40];

pub(in crate::web) struct Timeline {
    pub(in crate::web) stops: Vec<TimelineStop>,
    pub(in crate::web) summary: String,
}

pub(in crate::web) struct TimelineStop {
    pub(in crate::web) state: String,
    pub(in crate::web) lane: usize,
    pub(in crate::web) tone: &'static str,
    pub(in crate::web) duration: String,
    pub(in crate::web) exit_reason: String,
    pub(in crate::web) at: DisplayTime,
    pub(in crate::web) is_current: bool,
    /// Height of this stop and of the next one; `None` for the last stop.
    pub(in crate::web) line: Option<(u8, u8)>,
}

impl Timeline {
    pub(in crate::web) async fn load(app: &App, data: &TaskData) -> Result<Self, Error> {
        let mut transitions: Vec<HistoryEntry> = Vec::new();
        let mut after = None;
        loop {
            let window = PageRequest { after, limit: 500 };
            let part = app.history_page(data.task_loop.task, &window).await?;
            let entries = part.entries.into_iter().map(|line| line.entry);
            transitions
                .extend(entries.filter(|entry| entry.sequence == 1 || entry.from != entry.to));
            after = part.next;
            if after.is_none() {
                return Ok(Self::from_transitions(&transitions));
            }
        }
    }

    fn from_transitions(transitions: &[HistoryEntry]) -> Self {
        let now = clock::now();
        let mut waited = chrono::TimeDelta::zero();
        let mut stops = Vec::new();
        for (at, entry) in transitions.iter().enumerate() {
            let next = transitions.get(at + 1);
            let state = entry.to;
            let until = next.map_or(now, |next| next.at);
            if matches!(state, State::AwaitingApproval | State::HumanEscalation) {
                waited += until - entry.at;
            }
            let last = next.is_none();
            let duration = match (last, state.is_terminal()) {
                (true, true) => String::new(),
                (true, false) => format!("{} so far", format_duration(until - entry.at)),
                (false, _) => format_duration(until - entry.at),
            };
            let lane = lane(state);
            stops.push(TimelineStop {
                state: capitalize(state_label(state)),
                lane,
                tone: tone(state),
                duration,
                exit_reason: next.map(exit_reason).unwrap_or_default(),
                at: DisplayTime::absolute(entry.at),
                is_current: last,
                line: next.map(|next| (LANE_HEIGHTS[lane], LANE_HEIGHTS[self::lane(next.to)])),
            });
        }
        let total = transitions.first().map_or_else(chrono::TimeDelta::zero, |first| {
            let ended = transitions.last().filter(|last| last.to.is_terminal());
            ended.map_or(now, |last| last.at) - first.at
        });
        let summary = format!(
            "{}, of which {} waiting on a person.",
            format_duration(total),
            format_duration(waited)
        );
        let from = stops.len().saturating_sub(MAX_STOPS);
        Self { stops: stops.split_off(from), summary }
    }
}

/// Returns the event that ended a state, and the person who caused it.
fn exit_reason(entry: &HistoryEntry) -> String {
    let what = entry.name.label();
    match &entry.actor {
        Actor::Person(name) => format!("{what} by {name}"),
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
        State::Cancelled => "off",
        _ => "work",
    }
}
