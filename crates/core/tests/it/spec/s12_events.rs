//! Section 12: history and metrics.

use chrono::TimeDelta;
use rstest::rstest;
use strum::IntoEnumIterator;
use tamma_core::actor::{Actor, AuthMethod, Authentication, RequestInterface};
use tamma_core::cost::Usd;
use tamma_core::history::{EntryData, EntryName, HistoryEntry};
use tamma_core::ids::TaskId;
use tamma_core::metrics::{Metrics, TimedEntry, compute};
use tamma_core::rules::Rules;
use tamma_core::task_loop::{
    Action, EventKind, Outcome, Refusal, State, TaskEvent, TaskLoop, Trigger, step,
};
use uuid::Uuid;

use crate::world::{World, costing, minute, person, reason, text};

#[rstest]
#[case("SM_TASK_RECEIVED")]
#[case("SM_PLAN_STARTED")]
#[case("SM_PLAN_GENERATED")]
#[case("SM_KNOWLEDGE_CHECKED")]
#[case("SM_APPROVAL_REQUESTED")]
#[case("SM_APPROVAL_AUTO")]
#[case("SM_APPROVAL_GRANTED")]
#[case("SM_APPROVAL_DENIED")]
#[case("SM_IMPLEMENTATION_STARTED")]
#[case("SM_IMPLEMENTATION_PROGRESS")]
#[case("SM_IMPLEMENTATION_COMPLETED")]
#[case("SM_IMPLEMENTATION_FAILED")]
#[case("SM_REVIEW_STARTED")]
#[case("SM_REVIEW_PASSED")]
#[case("SM_REVIEW_FAILED")]
#[case("SM_PLAN_ADJUSTED")]
#[case("SM_LEARNING_CAPTURED")]
#[case("SM_ALERT_SENT")]
#[case("SM_ALERT_ACKNOWLEDGED")]
#[case("SM_TASK_COMPLETED")]
#[case("SM_TASK_CANCELLED")]
#[case("SM_STATE_TRANSITION")]
#[case("SM_ERROR_OCCURRED")]
fn specified_entry_names_are_kept(#[case] name: &str) {
    let parsed: EntryName = name.parse().unwrap();
    assert_eq!(parsed.to_string(), name);
    assert_eq!(serde_json::to_string(&parsed).unwrap(), format!("\"{name}\""));
}

#[test]
fn a_task_without_failures_records_these_entries() {
    let world = World::new().to(State::Completed);
    let names: Vec<_> = world.log.iter().map(|entry| entry.name.to_string()).collect();
    assert_eq!(
        names,
        [
            "SM_TASK_RECEIVED",
            "SM_TASK_ASSIGNED",
            "SM_PLAN_STARTED",
            "SM_PLAN_GENERATED",
            "SM_KNOWLEDGE_CHECKED",
            "SM_APPROVAL_AUTO",
            "SM_APPROVAL_GRANTED",
            "SM_IMPLEMENTATION_STARTED",
            "SM_IMPLEMENTATION_COMPLETED",
            "SM_REVIEW_STARTED",
            "SM_REVIEW_PASSED",
            "SM_STATE_TRANSITION",
            "SM_DELIVERED",
            "SM_LEARNING_CAPTURED",
            "SM_TASK_COMPLETED",
        ]
    );
}

#[test]
fn every_transition_has_an_entry_name() {
    let is_generic = |on: &Trigger| EntryName::from(*on) == EntryName::SmStateTransition;
    let unnamed: Vec<_> = Trigger::iter().filter(is_generic).collect();
    assert_eq!(
        unnamed,
        [
            Trigger::Blocked,
            Trigger::RunInterrupted,
            Trigger::Briefed,
            Trigger::DeliveryReady,
            Trigger::PullRequestChanged,
            Trigger::Alerted,
            Trigger::Continued,
        ]
    );
}

#[test]
fn empty_fields_of_an_entry_are_omitted() {
    let world = World::new();
    let json = serde_json::to_value(&world.log[0]).unwrap();
    assert_eq!(json.get("data"), None);
    assert_eq!(json.get("reason"), None);
    let world = world.to(State::Planning);
    let json = serde_json::to_value(world.log.last().unwrap()).unwrap();
    assert!(json["data"]["pin"].is_object());
}

#[test]
fn an_entry_says_how_its_author_was_authenticated() {
    let world = World::new();
    let auth = Authentication { method: AuthMethod::OwnToken, via: RequestInterface::Chat };
    let cancel = EventKind::ActionRequested(Action::Cancel { reason: reason() });
    let event = TaskEvent { auth: Some(auth), ..world.event(person("ann"), cancel) };
    let cancelled = step(&world.it, &event, &Rules::default()).unwrap();
    assert!(cancelled.entries.iter().all(|entry| entry.auth == Some(auth)));
    let json = serde_json::to_value(&cancelled.entries[0]).unwrap();
    assert_eq!(json["auth"], serde_json::json!({ "method": "own_token", "via": "chat" }));
    assert_eq!(auth.to_string(), "own token, chat");
    // Events and entries of earlier versions have none, and are written as before.
    let older = serde_json::to_value(world.event(person("ann"), EventKind::Tick)).unwrap();
    assert_eq!(older.get("auth"), None);
    assert_eq!(serde_json::from_value::<TaskEvent>(older).unwrap().auth, None);
    // Whatever a caller sends, Tamma's own events name nobody's token.
    let tick = TaskEvent { auth: Some(auth), ..world.event(Actor::Tamma, EventKind::Tick) };
    if let Ok(ticked) = step(&world.it, &tick, &Rules::default()) {
        assert!(ticked.entries.iter().all(|entry| entry.auth.is_none()));
    }
}

// Metrics

/// Computes metrics of tasks with distinct IDs, saved `late` milliseconds after each event.
fn metrics_of(worlds: Vec<World>, late: i64) -> Metrics {
    let mut log = Vec::new();
    for (number, world) in worlds.into_iter().enumerate() {
        let task = TaskId(Uuid::from_u128(number as u128));
        log.extend(world.log.into_iter().map(|entry| HistoryEntry { task, ..entry }));
    }
    let at = |entry: &HistoryEntry| entry.at + TimeDelta::milliseconds(late);
    compute(log.iter().map(|entry| TimedEntry { entry, recorded_at: at(entry) }))
}

fn completed() -> World {
    World::new().to(State::Completed)
}

fn cancelled() -> World {
    let mut world = World::new();
    world.ask(Action::Cancel { reason: reason() });
    world
}

fn approved_after(minutes: i64) -> World {
    let mut world = World::with(|rules| rules.scrum_master.task_loop.auto_approve_low_risk = false);
    world.walk(State::AwaitingApproval).done(Outcome::Checked { blockers: 0, warnings: 0 });
    world.now = minute(minutes);
    world.walk(State::Validated);
    world
}

#[test]
fn metrics_without_data_are_none() {
    assert_eq!(metrics_of(Vec::new(), 0), Metrics::default());
    let running = metrics_of(vec![World::new()], 0);
    assert_eq!((running.ended, running.completion_rate), (0, None));
    assert_eq!((running.cost_per_completed, running.lesson_rate), (None, None));
}

#[test]
fn the_completion_rate_counts_closed_tasks() {
    let metrics =
        metrics_of(vec![completed(), completed(), completed(), cancelled(), World::new()], 0);
    assert_eq!((metrics.ended, metrics.completion_rate), (4, Some(75)));
}

#[test]
fn retries_are_plan_revisions_per_task() {
    let mut retried = World::new();
    retried.fail_gates(1).fail_gates(2).walk(State::Completed);
    let metrics = metrics_of(vec![completed(), retried], 0);
    assert_eq!(metrics.retries_per_100_tasks, Some(50));
}

#[test]
fn the_lesson_rate_counts_tasks_with_lessons() {
    let mut silent = World::new().to(State::Learning);
    silent.done(Outcome::Learned(0));
    let metrics = metrics_of(vec![completed(), silent], 0);
    assert_eq!(metrics.lesson_rate, Some(50));
    // Failed tasks have lessons too.
    let mut with_lessons = cancelled();
    with_lessons.done(Outcome::Learned(3));
    assert_eq!(metrics_of(vec![with_lessons, cancelled()], 0).lesson_rate, Some(50));
}

#[test]
fn the_approval_time_is_the_median_from_request_to_answer() {
    let worlds = vec![approved_after(1), approved_after(3), approved_after(100)];
    assert_eq!(metrics_of(worlds, 0).approval_turnaround_ms, Some(3 * 60_000));
    assert_eq!(metrics_of(vec![completed()], 0).approval_turnaround_ms, None);
}

#[test]
fn the_transition_latency_is_from_event_to_saving() {
    assert_eq!(metrics_of(vec![completed()], 12).transition_latency_ms, Some(12));
    assert_eq!(metrics_of(vec![World::new()], 12).transition_latency_ms, None);
    // A slow clock does not make it negative.
    assert_eq!(metrics_of(vec![completed()], -5).transition_latency_ms, Some(0));
}

#[test]
fn the_latency_is_the_99th_percentile() {
    let world = completed();
    let transition = world.log.iter().find(|entry| entry.trigger.is_some()).unwrap();
    let logged: Vec<_> = (1..=100)
        .map(|late| TimedEntry {
            entry: transition,
            recorded_at: transition.at + TimeDelta::milliseconds(late),
        })
        .collect();
    assert_eq!(compute(logged).transition_latency_ms, Some(99));
}

#[test]
fn the_rating_is_the_mean_of_the_newest_ratings() {
    let mut world = completed();
    world.ask(Action::Rate { stars: 2, reason: None });
    world.try_ask("bob", Action::Rate { stars: 4, reason: None }).unwrap();
    assert_eq!(metrics_of(vec![world], 0).rating_hundredths, Some(300));
    // The newest rating of a person replaces the earlier ones.
    let mut world = completed();
    for stars in [1, 5] {
        world.ask(Action::Rate { stars, reason: None });
    }
    assert_eq!(metrics_of(vec![world], 0).rating_hundredths, Some(500));
    assert_eq!(metrics_of(vec![completed()], 0).rating_hundredths, None);
}

#[test]
fn only_people_rate_and_only_closed_tasks() {
    let rate = |stars| Action::Rate { stars, reason: Some(reason()) };
    let mut open = World::new();
    assert_eq!(open.try_ask("ann", rate(5)), Err(Refusal::StillOpen(State::Pending)));
    let mut world = completed();
    let before = world.it.clone();
    for stars in [0, 6] {
        assert_eq!(world.try_ask("ann", rate(stars)), Err(Refusal::InvalidRating(stars)));
    }
    let by_us = world.feed(Actor::Tamma, EventKind::ActionRequested(rate(5)));
    assert_eq!(by_us, Err(Refusal::PersonRequired("rate".to_owned())));
    world.ask(rate(4));
    assert!(world.commands.is_empty());
    let entry = world.log.last().unwrap();
    assert_eq!((entry.name, &entry.data), (EntryName::SmTaskRated, &EntryData::Rating(4)));
    assert_eq!(entry.reason.as_deref(), Some(reason().as_str()));
    let ratings = [(text("ann"), 4)].into();
    let expected = TaskLoop { ratings, entry_count: before.entry_count + 1, ..before };
    assert_eq!(world.it, expected, "nothing else changes");
}

#[test]
fn a_task_is_rated_after_its_lessons_are_captured() {
    let mut world = World::new().to(State::Planning);
    world.ask(Action::Cancel { reason: reason() });
    let rate = Action::Rate { stars: 3, reason: None };
    assert_eq!(world.try_ask("ann", rate.clone()), Err(Refusal::StillLearning));
    world.done(Outcome::Learned(0)).ask(rate);
    assert_eq!(world.it.state, State::Cancelled);
}

#[test]
fn the_cost_per_completed_task_includes_all_tasks() {
    let mut expensive = World::new().to(State::Planning);
    let plan = crate::world::plan(1);
    expensive.done_with_usage(Some(costing(300)), Outcome::Planned(plan));
    expensive.ask(Action::Cancel { reason: reason() });
    let metrics = metrics_of(vec![completed(), completed(), expensive], 0);
    assert_eq!(metrics.cost_per_completed, Some(Usd::from_cents(150)));
}

#[test]
fn rules_have_a_version_that_changes_with_them() {
    let mut other = Rules::default();
    assert_eq!(Rules::default().version(), other.version());
    other.scrum_master.task_loop.max_retries = 2;
    assert_ne!(Rules::default().version(), other.version());
}
