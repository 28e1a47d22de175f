//! Compatibility of stored data: every later version reads it and replays it to the same result.
//!
//! `fixtures/2026-11/` holds complete histories as this version writes them: the submitted task,
//! the rules, every event with its commands and history entries, and the final state. The tests
//! read and replay them.
//!
//! **If this test fails, do not change the files.** Tasks in existing databases have the same
//! format. Instead:
//!
//! - After adding a field: give it `#[serde(default)]`, and skip it while it is empty.
//! - After renaming or removing a field or variant: keep reading the old form (`#[serde(alias)]`,
//!   or a new `FormatVersion` with a conversion).
//! - After changing the behaviour of a step: make it depend on `TaskLoop::edition`, with a new
//!   `Edition` for new tasks.
//! - Then write the histories of the new version beside the old ones: add a folder to `VERSIONS`,
//!   run `TAMMA_WRITE_FIXTURES=1 cargo nextest run -p tamma-core formats`, and commit it.
//!   Existing files are never overwritten.
#![expect(clippy::disallowed_methods, reason = "fixtures are files")]

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use rstest::rstest;
use serde::{Deserialize, Serialize};
use tamma_core::actor::Actor;
use tamma_core::budget::Grant;
use tamma_core::cost::Usd;
use tamma_core::failure::FailureKind;
use tamma_core::forge::CheckResult;
use tamma_core::history::HistoryEntry;
use tamma_core::pull_request::{Feedback, PullRequestOutcome, QueueResult};
use tamma_core::rules::{DeliveryMode, MergeQueueMode, Rules};
use tamma_core::task::{Priority, TaskEdit};
use tamma_core::task_loop::{
    Action, Command, EventKind, Outcome, State, TaskEvent, TaskLoop, TaskReceived,
};
use tamma_core::version::FormatVersion;
use tamma_core::{begin, step};

use crate::world::{
    World, check, commit, costing, failing, failure, minute, note, passed, pin, plan, reason, red,
    text,
};

/// Fixture folders, oldest first.
const VERSIONS: [&str; 8] = [
    "2026-11",
    "2026-11-engines",
    "2026-11-review",
    "2026-11-knowledge",
    "2026-11-language",
    "2026-11-harness",
    "2026-11-council",
    "2026-11-forges",
];

/// Complete history of one task.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct History {
    received: TaskReceived,
    rules: Rules,
    events: Vec<TaskEvent>,
    /// Commands of the first step, then those of each event.
    commands: Vec<Vec<Command>>,
    log: Vec<HistoryEntry>,
    end: TaskLoop,
}

impl History {
    /// Replays events from the beginning with the current code.
    fn play(received: TaskReceived, rules: Rules, events: Vec<TaskEvent>) -> Self {
        let first = begin(&received, &rules);
        let (mut end, mut commands, mut log) = (first.next, vec![first.commands], first.entries);
        for event in &events {
            let next = step(&end, event, &rules).expect("an old event is still accepted");
            end = next.next;
            commands.push(next.commands);
            log.extend(next.entries);
        }
        Self { received, rules, events, commands, log, end }
    }
}

/// Task without failures.
fn good() -> World {
    World::new().to(State::Completed)
}

/// Task with every kind of failure that is delivered in the end.
fn troubled() -> World {
    let mut world = World::with(|rules| {
        rules.ceremony.low.human_review = true;
        rules.budget.task_usd = Some(Usd::from_cents(9_000));
        rules.budget.task_tokens = Some(1_000_000);
    });
    world.done(failure(FailureKind::Unavailable)).ask(Action::Retry { grant: Grant::default() });
    world.done(Outcome::Interrupted).walk(State::Planning);
    world.done(Outcome::PlanInvalid(note())).walk(State::InProgress);
    let until = minute(90);
    world.done(failure(FailureKind::Quota { provider: text("acme"), until }));
    world.start().ask(Action::Pause).done(Outcome::Interrupted).ask(Action::Resume);
    world.start().done(failure(FailureKind::TimedOut)).start();
    world.done_with_usage(Some(costing(75)), Outcome::RunFinished(commit(4)));
    world.done(red(1)).fail_gates(1).fail_gates(1).fail_gates(1);
    assert_eq!(world.it.state, State::CtoIntervention);
    world.walk(State::QualityReview).done(passed());
    world.ask(Action::RequestChanges { commit: commit(9), comments: note() });
    world.walk(State::Committing).done(Outcome::DeliveryRejected(note()));
    world.tick_at(200).walk(State::Learning).done(failure(FailureKind::Crashed));
    world
}

/// Task with many decisions by people that fails in the end.
fn contested() -> World {
    let mut world = World::with(|rules| {
        rules.scrum_master.task_loop.auto_approve_low_risk = false;
        rules.scrum_master.task_loop.max_iterations = 1;
        rules.ceremony.low.approvers = 2;
    });
    world.ask(Action::ChangeTask { request: note() }).walk(State::AwaitingApproval);
    world.done(Outcome::Checked { blockers: 1, warnings: 2 });
    let scope = world.binding();
    world.ask(Action::Override { scope, reason: reason() });
    world.done(Outcome::Checked { blockers: 1, warnings: 2 });
    world.tick_at(60).ask(Action::Acknowledge).ask(Action::Approve { scope, reason: None });
    world.feed(Actor::Tamma, EventKind::PinChanged(pin(2))).unwrap();
    world.done(Outcome::Checked { blockers: 0, warnings: 0 });
    let scope = world.binding();
    world.ask(Action::RevisePlan { scope, changes: note() });
    world.done(Outcome::Planned(plan(2))).done(Outcome::Checked { blockers: 0, warnings: 0 });
    let scope = world.binding();
    world.ask(Action::Reject { scope, reason: reason() });
    world.ask(Action::Retry { grant: Grant::default() }).done(Outcome::Planned(plan(3)));
    world.done(Outcome::Checked { blockers: 0, warnings: 0 });
    let scope = world.binding();
    world.ask(Action::Approve { scope, reason: None });
    world.try_ask("bo", Action::Approve { scope, reason: None }).unwrap();
    world.start().done(Outcome::RunFinished(commit(4))).done(red(1)).done(Outcome::WorkSaved);
    world.ask(Action::Continue { grant: Grant { iterations: 1, ..Grant::default() } });
    world.start().done(Outcome::RunFinished(commit(5))).done(red(2)).done(Outcome::WorkSaved);
    world.ask(Action::RollBack { to: State::Testing, reason: reason() }).done(red(3));
    world
        .done(Outcome::WorkSaved)
        .ask(Action::Skip { reason: reason() })
        .done(Outcome::DeliveryReady);
    for _ in 0..3 {
        world.done(failure(FailureKind::Unavailable));
    }
    world.done(Outcome::WorkSaved).ask(Action::Abandon { reason: reason() });
    world
}

/// Task that a person accepts, that exceeds its budget, and that is cancelled.
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

/// Task whose agent asks questions, answered by a person and by default.
fn asked() -> World {
    let mut world = World::new();
    world.walk(State::InProgress);
    world.done(Outcome::QuestionAsked { question: note(), default_answer: None });
    world.ask(Action::Reply { reply: note() });
    world.start().done(Outcome::QuestionAsked { question: note(), default_answer: Some(note()) });
    world.tick_at(500);
    world.start().done(Outcome::RunFinished(commit(9)));
    world
}

/// Task with circular fixes and a council with an absent member.
fn counselled() -> World {
    let mut world = World::new();
    world.fail_gates(1).fail_gates(2).fail_gates(1).fail_gates(2);
    assert_eq!(world.it.state, State::CtoIntervention);
    world.done(Outcome::OpinionGiven(note())).done(failure(FailureKind::Crashed));
    world.done(failure(FailureKind::TimedOut)).done(Outcome::CouncilConcluded(note()));
    world.walk(State::Completed);
    world
}

/// Task whose submitted plan, whose agent and whose plan the council looks at.
fn convened() -> World {
    let mut world = World::with(|rules| {
        rules.scrum_master.task_loop.auto_approve_low_risk = false;
        rules.council.reviews_submitted_plans = true;
    });
    world.received.submitted_plan = Some(note());
    world = World::receive(world.received, world.rules);
    world.walk(State::AwaitingApproval).done(Outcome::Checked { blockers: 0, warnings: 0 });
    world.ask(Action::Convene { question: note() }).walk(State::AwaitingApproval);
    world.walk(State::Completed);
    world
}

/// Task with shrinking failures, a disputed plan, a refusal and a critical finding that a second
/// validator judges.
fn disputed() -> World {
    let mut world = World::new().to(State::InProgress);
    world.done(Outcome::PlanWrong(note())).walk(State::InProgress);
    world.done(failure(FailureKind::Refused));
    world.walk(State::Testing).done(failing(1, 3)).walk(State::Testing).done(failing(2, 1));
    world.walk(State::QualityReview).done(Outcome::CriticalUnconfirmed(note()));
    world.walk(State::Completed);
    world
}

/// Task whose pull request fails a check, is queued, comes back and is merged.
fn merged() -> World {
    let mut world = World::with(|rules| {
        rules.delivery.mode = DeliveryMode::Merge;
        rules.delivery.queue.mode = MergeQueueMode::Tamma;
    })
    .to(State::AwaitingMerge);
    let mut facts = world.facts();
    facts.checks = vec![check("ci", CheckResult::Failed)];
    world.observe(facts);
    let head = world.facts().head;
    let caused = vec![Feedback::Check { name: "ci".to_owned(), id: "1".to_owned(), head }];
    let excused = Vec::new();
    world.done(Outcome::PullRequest(PullRequestOutcome::ChecksTriaged { excused, caused }));
    world.done(Outcome::PullRequest(PullRequestOutcome::FeedbackCollected(note())));
    world.walk(State::InProgress).done(Outcome::RunFinished(commit(11)));
    world.walk(State::AwaitingMerge);
    let facts = world.facts();
    world.observe(facts).done(Outcome::PullRequest(PullRequestOutcome::Queued));
    let head = world.facts().head;
    let returned = QueueResult::Returned { head, log: note() };
    world.feed(Actor::Tamma, EventKind::QueueSettled(returned)).expect("it was queued");
    world.walk(State::InProgress).done(Outcome::RunFinished(commit(12)));
    world.walk(State::Completed);
    world
}

fn folder(version: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(version)
}

/// Task whose plan a person edits, and which two people rate.
fn edited() -> World {
    let mut world = World::with(|rules| {
        rules.scrum_master.task_loop.auto_approve_low_risk = false;
    })
    .to(State::AwaitingApproval);
    world.done(Outcome::Checked { blockers: 0, warnings: 0 });
    let (scope, plan, adjustments) = (world.binding(), Box::new(plan(2)), note());
    world.ask(Action::AdjustPlan { scope, plan, adjustments, reason: reason() });
    world.walk(State::Completed).ask(Action::Rate { stars: 4, reason: Some(reason()) });
    world.try_ask("bob", Action::Rate { stars: 5, reason: None }).expect("a rating");
    world
}

/// Task whose title, priority and labels people edit.
fn relabelled() -> World {
    let mut world = World::new();
    let title = Some("A better title".to_owned());
    world.ask(Action::Edit(TaskEdit { title, ..TaskEdit::default() }));
    world.walk(State::InProgress).ask(Action::Edit(TaskEdit {
        priority: Some(Priority::High),
        labels: Some(vec!["login".to_owned()]),
        ..TaskEdit::default()
    }));
    world.walk(State::Completed);
    world
}

#[rstest]
#[case("good", good())]
#[case("troubled", troubled())]
#[case("contested", contested())]
#[case("cancelled", cancelled())]
#[case("asked", asked())]
#[case("counselled", counselled())]
#[case("disputed", disputed())]
#[case("convened", convened())]
#[case("edited", edited())]
#[case("merged", merged())]
#[case("relabelled", relabelled())]
fn histories_match_the_stored_fixtures(#[case] name: &str, #[case] world: World) {
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
        "{name} differs from its stored fixture: see the top of tests/it/formats.rs"
    );
}

#[test]
fn histories_of_all_versions_replay_to_the_same_state() {
    for version in VERSIONS {
        let mut files: Vec<_> =
            fs::read_dir(folder(version)).unwrap().map(|file| file.unwrap().path()).collect();
        files.sort();
        assert!(!files.is_empty());
        for path in files {
            let text = fs::read_to_string(&path).unwrap();
            let history: History = serde_json::from_str(&text).unwrap_or_else(|error| {
                panic!("{}: {error}: see the top of tests/it/formats.rs", path.display())
            });
            let now = History::play(
                history.received.clone(),
                history.rules.clone(),
                history.events.clone(),
            );
            assert!(
                now == history,
                "{} replays to a different state: see the top of tests/it/formats.rs",
                path.display()
            );
        }
    }
}

/// Collects the JSON names of the variants of events and commands.
fn collect_names(value: &serde_json::Value, prefix: &str, names: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::String(name) => {
            names.insert(format!("{prefix}.{name}"));
        }
        serde_json::Value::Object(fields) => {
            names.extend(fields.keys().map(|name| format!("{prefix}.{name}")));
        }
        _ => {}
    }
}

#[test]
fn the_histories_cover_every_event_outcome_action_and_job() {
    let mut names = BTreeSet::new();
    for path in fs::read_dir(folder(VERSIONS[VERSIONS.len() - 1])).unwrap() {
        let text = fs::read_to_string(path.unwrap().path()).unwrap();
        let history: serde_json::Value = serde_json::from_str(&text).unwrap();
        for event in history["events"].as_array().unwrap() {
            let kind = &event["what"];
            collect_names(kind, "what", &mut names);
            collect_names(&kind["done"]["outcome"], "outcome", &mut names);
            collect_names(&kind["done"]["outcome"]["failed"]["kind"], "failure", &mut names);
            collect_names(&kind["asked"], "action", &mut names);
        }
        for command in history["commands"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|commands| commands.as_array().unwrap())
        {
            collect_names(command, "command", &mut names);
            collect_names(&command["start"]["job"], "job", &mut names);
        }
    }
    let count = |prefix: &str| names.iter().filter(|name| name.starts_with(prefix)).count();
    // Add each new variant to one of the histories above, then raise these numbers.
    assert_eq!(count("what."), 7, "{names:#?}");
    assert_eq!(count("outcome."), 23, "{names:#?}");
    assert_eq!(count("failure."), 6, "{names:#?}");
    assert_eq!(count("action."), 21, "{names:#?}");
    assert_eq!(count("command."), 5, "{names:#?}");
    assert_eq!(count("job."), 14, "{names:#?}");
}

#[test]
fn a_newer_format_is_refused_with_a_hint_to_upgrade() {
    assert_eq!(serde_json::to_string(&FormatVersion).unwrap(), "1");
    let mut history = serde_json::to_value(World::new().it).unwrap();
    history["format"] = 2.into();
    let error = serde_json::from_value::<TaskLoop>(history).unwrap_err();
    assert_eq!(
        error.to_string(),
        "unknown format 2: this version of Tamma reads format 1; the data comes from a newer one, so \
         upgrade Tamma"
    );
}
