//! What this version writes, every later version must read, and must make the same of.
//!
//! `fixtures/2026-11/` holds whole histories as this version writes them: how the task came in, the
//! rules, every event, every command and log entry that followed, and the memory at the end. They
//! are read back and replayed.
//!
//! **When this test fails, the files are not what is wrong.** Tasks that live in somebody's database
//! were written like that. What to do:
//!
//! - A field was added: give it `#[serde(default)]`, and skip it when it is empty.
//! - A field or variant was renamed or removed: keep reading the old form (`#[serde(alias)]`, or a
//!   new `Format` with a conversion).
//! - A step now does something else: make it depend on `TaskLoop::edition`, with a new `Edition` for
//!   tasks that start from now on.
//! - Then write the histories of the new version beside the old ones: add a folder to `VERSIONS`, run
//!   `TAMMA_WRITE_FIXTURES=1 cargo nextest run -p tamma-core --test formats`, and commit it. Files
//!   that are there are never written again.
#![expect(clippy::disallowed_methods, reason = "fixtures are files")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::allow_attributes, dead_code, reason = "the world is shared with other tests")]

#[path = "spec/world.rs"]
mod world;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use rstest::rstest;
use serde::{Deserialize, Serialize};
use tamma_core::actor::Actor;
use tamma_core::budget::Grant;
use tamma_core::cost::Usd;
use tamma_core::failure::FailureKind;
use tamma_core::log::Entry;
use tamma_core::rules::Rules;
use tamma_core::task_loop::{Action, Command, Event, Outcome, Received, State, TaskLoop, What};
use tamma_core::version::Format;
use tamma_core::{begin, step};
use world::{World, commit, costing, failure, minute, note, passed, pin, plan, reason, red, text};

/// The folders of fixtures, the newest last.
const VERSIONS: [&str; 4] = ["2026-11", "2026-11-engines", "2026-11-review", "2026-11-knowledge"];

/// What one task went through, whole.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct History {
    received: Received,
    rules: Rules,
    events: Vec<Event>,
    /// The commands of the beginning, then those of each event.
    commands: Vec<Vec<Command>>,
    log: Vec<Entry>,
    end: TaskLoop,
}

impl History {
    /// Plays events from the beginning, with the code as it is now.
    fn play(received: Received, rules: Rules, events: Vec<Event>) -> Self {
        let first = begin(&received, &rules);
        let (mut end, mut commands, mut log) = (first.next, vec![first.commands], first.entries);
        for event in &events {
            let next = step(&end, event, &rules).expect("an event of the past is still taken");
            end = next.next;
            commands.push(next.commands);
            log.extend(next.entries);
        }
        Self { received, rules, events, commands, log, end }
    }
}

/// A task that goes well.
fn good() -> World {
    World::new().to(State::Completed)
}

/// A task to which everything happens that can go wrong on its way, and which is delivered.
fn troubled() -> World {
    let mut world = World::with(|rules| {
        rules.ceremony.low.human_review = true;
        rules.budget.task_usd = Some(Usd::cents(9_000));
        rules.budget.task_tokens = Some(1_000_000);
    });
    world.done(failure(FailureKind::Unavailable)).ask(Action::Retry { grant: Grant::default() });
    world.done(Outcome::Interrupted).walk(State::Planning);
    world.done(Outcome::PlanInvalid(note())).walk(State::InProgress);
    let until = minute(90);
    world.done(failure(FailureKind::Quota { provider: text("acme"), until }));
    world.start().ask(Action::Pause).done(Outcome::Interrupted).ask(Action::Resume);
    world.start().done(failure(FailureKind::TimedOut)).start();
    world.done_costing(Some(costing(75)), Outcome::RunFinished(commit(4)));
    world.done(red(1)).fail_in(1).fail_in(1);
    assert_eq!(world.it.state, State::CtoIntervention);
    world.walk(State::QualityReview).done(passed());
    world.ask(Action::Rework { commit: commit(9), comments: note() });
    world.walk(State::Committing).done(Outcome::DeliveryRejected(note()));
    world.tick_at(200).walk(State::Learning).done(failure(FailureKind::Crashed));
    world
}

/// A task that people decide about, again and again, and give up.
fn contested() -> World {
    let mut world = World::with(|rules| {
        rules.scrum_master.task_loop.auto_approve_low_risk = false;
        rules.scrum_master.task_loop.max_iterations = 1;
        rules.ceremony.low.approvers = 2;
    });
    world.ask(Action::Modify { note: note() }).walk(State::AwaitingApproval);
    world.done(Outcome::Checked { blockers: 1, warnings: 2 });
    let binding = world.binding();
    world.ask(Action::Override { binding, reason: reason() });
    world.done(Outcome::Checked { blockers: 1, warnings: 2 });
    world.tick_at(60).ask(Action::Acknowledge).ask(Action::Approve { binding, reason: None });
    world.feed(Actor::Tamma, What::Repinned(pin(2))).unwrap();
    world.done(Outcome::Checked { blockers: 0, warnings: 0 });
    let binding = world.binding();
    world.ask(Action::AskChanges { binding, changes: note() });
    world.done(Outcome::Planned(plan(2))).done(Outcome::Checked { blockers: 0, warnings: 0 });
    let binding = world.binding();
    world.ask(Action::Reject { binding, reason: reason() });
    world.ask(Action::Retry { grant: Grant::default() }).done(Outcome::Planned(plan(3)));
    world.done(Outcome::Checked { blockers: 0, warnings: 0 });
    let binding = world.binding();
    world.ask(Action::Approve { binding, reason: None });
    world.try_ask("bo", Action::Approve { binding, reason: None }).unwrap();
    world.start().done(Outcome::RunFinished(commit(4))).done(red(1)).done(Outcome::Landed);
    world.ask(Action::Continue { grant: Grant { iterations: 1, ..Grant::default() } });
    world.start().done(Outcome::RunFinished(commit(5))).done(red(2)).done(Outcome::Landed);
    world.ask(Action::RollBack { to: State::Testing, reason: reason() }).done(red(3));
    world.done(Outcome::Landed).ask(Action::Skip { reason: reason() }).done(Outcome::TurnCame);
    for _ in 0..3 {
        world.done(failure(FailureKind::Crashed));
    }
    world.done(Outcome::Landed).ask(Action::Abandon { reason: reason() });
    world
}

/// A task that a person accepts, that then runs out of money, and is cancelled.
fn cancelled() -> World {
    let mut world = World::with(|rules| {
        rules.ceremony.low.human_review = true;
    });
    world.walk(State::QualityReview).done(passed());
    world
        .ask(Action::Accept { commit: commit(9), reason: None })
        .done(failure(FailureKind::OverBudget));
    world.ask(Action::Cancel { reason: reason() }).done(Outcome::Learned(1));
    world
}

/// An agent asks, and is answered by a person and by time.
fn asked() -> World {
    let mut world = World::new();
    world.walk(State::InProgress);
    world.done(Outcome::Asked { question: note(), default: None });
    world.ask(Action::Reply { reply: note() });
    world.start().done(Outcome::Asked { question: note(), default: Some(note()) });
    world.tick_at(500);
    world.start().done(Outcome::RunFinished(commit(9)));
    world
}

/// A task whose fixes go round in a circle, with a council that not everybody comes to.
fn counselled() -> World {
    let mut world = World::new();
    world.fail_in(1).fail_in(2).fail_in(1);
    assert_eq!(world.it.state, State::CtoIntervention);
    world.done(Outcome::Opined(note())).done(failure(FailureKind::Crashed));
    world.done(failure(FailureKind::TimedOut)).done(Outcome::Concluded(note()));
    world.walk(State::Completed);
    world
}

fn folder(version: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(version)
}

#[rstest]
#[case("good", good())]
#[case("troubled", troubled())]
#[case("contested", contested())]
#[case("cancelled", cancelled())]
#[case("asked", asked())]
#[case("counselled", counselled())]
fn what_this_version_writes_is_on_file(#[case] name: &str, #[case] world: World) {
    let history = History::play(world.received, world.rules, world.taken);
    let newest = folder(VERSIONS[VERSIONS.len() - 1]);
    let path = newest.join(format!("{name}.json"));
    if !path.exists() && std::env::var_os("TAMMA_WRITE_FIXTURES").is_some() {
        fs::create_dir_all(&newest).unwrap();
        let text = serde_json::to_string_pretty(&history).unwrap();
        fs::write(&path, text + "\n").unwrap();
    }
    let text = fs::read_to_string(&path).unwrap_or_default();
    let written = serde_json::to_string_pretty(&history).unwrap() + "\n";
    assert!(
        text == written,
        "this version does not write {name} as it is on file: read the head of tests/formats.rs"
    );
}

#[test]
fn every_history_of_every_version_is_read_back_and_replays_to_the_same_end() {
    for version in VERSIONS {
        let mut files: Vec<_> =
            fs::read_dir(folder(version)).unwrap().map(|file| file.unwrap().path()).collect();
        files.sort();
        assert!(!files.is_empty());
        for path in files {
            let text = fs::read_to_string(&path).unwrap();
            let history: History = serde_json::from_str(&text).unwrap_or_else(|error| {
                panic!("{}: {error}: read the head of tests/formats.rs", path.display())
            });
            let now = History::play(
                history.received.clone(),
                history.rules.clone(),
                history.events.clone(),
            );
            assert!(
                now == history,
                "{} replays to something else: read the head of tests/formats.rs",
                path.display()
            );
        }
    }
}

/// Collects the names of the variants of events and commands, as they stand in JSON.
fn names(value: &serde_json::Value, under: &str, found: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::String(name) => {
            found.insert(format!("{under}.{name}"));
        }
        serde_json::Value::Object(fields) => {
            found.extend(fields.keys().map(|name| format!("{under}.{name}")));
        }
        _ => {}
    }
}

#[test]
fn the_histories_have_every_kind_of_event_outcome_action_and_job_in_them() {
    let mut found = BTreeSet::new();
    for path in fs::read_dir(folder(VERSIONS[VERSIONS.len() - 1])).unwrap() {
        let text = fs::read_to_string(path.unwrap().path()).unwrap();
        let history: serde_json::Value = serde_json::from_str(&text).unwrap();
        for event in history["events"].as_array().unwrap() {
            let what = &event["what"];
            names(what, "what", &mut found);
            names(&what["done"]["outcome"], "outcome", &mut found);
            names(&what["done"]["outcome"]["failed"]["kind"], "failure", &mut found);
            names(&what["asked"], "action", &mut found);
        }
        for command in
            history["commands"].as_array().unwrap().iter().flat_map(|one| one.as_array().unwrap())
        {
            names(command, "command", &mut found);
            names(&command["start"]["job"], "job", &mut found);
        }
    }
    let count = |under: &str| found.iter().filter(|name| name.starts_with(under)).count();
    // A new variant belongs in one of the histories above; then these numbers grow with it.
    assert_eq!(count("what."), 5, "{found:#?}");
    assert_eq!(count("outcome."), 19, "{found:#?}");
    assert_eq!(count("failure."), 5, "{found:#?}");
    assert_eq!(count("action."), 17, "{found:#?}");
    assert_eq!(count("command."), 5, "{found:#?}");
    assert_eq!(count("job."), 13, "{found:#?}");
}

#[test]
fn a_newer_format_is_refused_with_what_to_do() {
    assert_eq!(serde_json::to_string(&Format).unwrap(), "1");
    let mut history = serde_json::to_value(World::new().it).unwrap();
    history["format"] = 2.into();
    let error = serde_json::from_value::<TaskLoop>(history).unwrap_err();
    assert_eq!(
        error.to_string(),
        "format 2 is not known here: this program reads format 1. A newer Tamma wrote it; upgrade \
         this one"
    );
}
