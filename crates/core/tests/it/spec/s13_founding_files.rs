//! Section 13: the configuration files of the founding documents, unchanged. They load, and every
//! key in them changes the behaviour. `docs/requirements.md` refers to these tests.

use std::collections::{BTreeMap, BTreeSet};

use chrono::TimeDelta;
use rstest::rstest;
use tamma_core::budget::{self, Grant};
use tamma_core::cost::Usd;
use tamma_core::knowledge::{EntryKind, check};
use tamma_core::learning::lesson_triggers;
use tamma_core::operator::OperatorConfig;
use tamma_core::plan::PlanSummary;
use tamma_core::review::GateCounts;
use tamma_core::risk;
use tamma_core::rules::{self, ConfigFile, Rules, VARIABLES, ValueOrigin};
use tamma_core::task_loop::{Action, Job, Outcome, State};
use tamma_core::update_clock::UpdateClock;

use super::s10_knowledge;
use crate::world::{World, minute, plan, reason, red};

const STORY: &str = include_str!("../../fixtures/founding/story.yaml");
const IMPLEMENTATION_PLAN: &str = include_str!("../../fixtures/founding/implementation-plan.yaml");
const TASK_LOOP: &str = include_str!("../../fixtures/founding/task-loop.yaml");
const ENVIRONMENT: &str = include_str!("../../fixtures/founding/variables.env");

const FILES: [(&str, &str); 3] = [
    ("story.yaml", STORY),
    ("implementation-plan.yaml", IMPLEMENTATION_PLAN),
    ("task-loop.yaml", TASK_LOOP),
];

/// Keys whose effect is outside `core`, with the rows of `docs/requirements.md` that name their tests.
const ELSEWHERE: [(&str, &str); 4] = [
    ("scrum_master.alerts.channels.type", "P13.13"),
    ("scrum_master.alerts.channels.enabled", "P13.14"),
    ("scrum_master.alerts.channels.config.url", "P13.15"),
    ("scrum_master.alerts.channels.config.channel", "P13.16"),
];

/// Keys that have one valid value. Their effect is a refusal of the other.
const FIXED: [&str; 2] = [
    "scrum_master.task_loop.require_approval_high_risk",
    "scrum_master.learning_capture.require_approval",
];

fn environment() -> BTreeMap<String, String> {
    let pairs = ENVIRONMENT.lines().filter(|line| !line.starts_with('#'));
    pairs
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Loads a file with the variables that it refers to, and without those that would override it.
fn load(name: &str, text: &str) -> Result<rules::LoadedRules, String> {
    let variables = environment().into_iter().filter(|(name, _)| text.contains(name)).collect();
    rules::load(Some(ConfigFile { name, text }), &variables, &OperatorConfig::default())
        .map_err(|error| error.to_string())
}

/// Path and value of every scalar of a block-style file, with the line that it is on. Items of a
/// list share the path of the list.
fn scalars(text: &str) -> Vec<(String, String, usize)> {
    let mut open: Vec<(usize, String)> = Vec::new();
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let content = line.split(" #").next().unwrap_or_default().trim_end();
        let item = content.trim_start().trim_start_matches("- ");
        if item.is_empty() || item.starts_with('#') {
            continue;
        }
        let indent = content.len() - item.len();
        let is_item = content.trim_start().starts_with("- ");
        let outer = if is_item { indent - 2 } else { indent };
        open.retain(|(at, _)| *at < outer);
        let key = match item.split_once(':') {
            Some((key, "")) => {
                open.push((indent, key.to_owned()));
                continue;
            }
            Some((key, _)) => Some(key),
            None => None,
        };
        let path: Vec<&str> = open.iter().map(|(_, key)| key.as_str()).chain(key).collect();
        let value = item.rsplit(": ").next().unwrap_or(item);
        found.push((path.join("."), value.to_owned(), number));
    }
    found
}

/// Path of a key in the rules: the task loop's own file has its section at the root.
fn canonical(path: &str) -> String {
    if path.starts_with("task_loop") { format!("scrum_master.{path}") } else { path.to_owned() }
}

/// Returns the file with another value for the first scalar at a path.
fn with_value(text: &str, path: &str, value: &str) -> Option<String> {
    let (_, old, number) = scalars(text).into_iter().find(|it| canonical(&it.0) == path)?;
    let lines = text.lines().enumerate().map(|(at, line)| {
        if at == number { line.replacen(&old, value, 1) } else { line.to_owned() }
    });
    Some(lines.collect::<Vec<_>>().join("\n"))
}

// Effects

fn risk_of(change: impl FnOnce(&mut PlanSummary), rules: &Rules) -> String {
    let mut plan = plan(1);
    change(&mut plan);
    format!("{:?}", risk::assess(&plan, 0, rules).level)
}

fn of_6_files(rules: &Rules) -> String {
    risk_of(|plan| plan.file_count = 6, rules)
}

fn of_11_files(rules: &Rules) -> String {
    risk_of(|plan| plan.file_count = 11, rules)
}

fn of_medium_complexity(rules: &Rules) -> String {
    risk_of(|plan| plan.complexity_score = 6, rules)
}

fn of_high_complexity(rules: &Rules) -> String {
    risk_of(|plan| plan.complexity_score = 10, rules)
}

fn of_2_dollars(rules: &Rules) -> String {
    risk_of(|plan| plan.estimated_cost = Some(Usd::from_cents(200)), rules)
}

fn of_6_dollars(rules: &Rules) -> String {
    risk_of(|plan| plan.estimated_cost = Some(Usd::from_cents(600)), rules)
}

/// State and alerts after a number of failed gates; with `same`, they fail the same way.
fn after_failures(count: u8, same: bool, rules: &Rules) -> String {
    let mut world = World::with_rules(rules.clone());
    for number in 0..count {
        world.fail_gates(if same { 1 } else { number + 1 });
    }
    format!("{} {} {:?}", world.it.state, world.it.tier, world.alerts())
}

fn after_two_failures(rules: &Rules) -> String {
    after_failures(2, false, rules)
}

fn after_three_failures(rules: &Rules) -> String {
    after_failures(3, false, rules)
}

fn after_four_similar_failures(rules: &Rules) -> String {
    after_failures(4, true, rules)
}

fn after_the_last_run(rules: &Rules) -> String {
    let mut rules = rules.clone();
    rules.scrum_master.task_loop.max_iterations = 1;
    after_failures(1, false, &rules)
}

fn after_a_security_finding(rules: &Rules) -> String {
    let mut world = World::with_rules(rules.clone()).to(State::Testing);
    let Outcome::Tested(gates) = red(1) else { panic!("gates") };
    world.done(Outcome::Tested(GateCounts { security_critical: true, ..gates }));
    format!("{} {}", world.it.state, world.it.tier)
}

/// State and alerts after the knowledge check.
fn after_check(blockers: u16, rules: &Rules) -> String {
    let mut world = World::with_rules(rules.clone()).to(State::AwaitingApproval);
    world.done(Outcome::Checked { blockers, warnings: 0 });
    format!("{} {:?}", world.it.state, world.alerts())
}

fn after_a_low_risk_plan(rules: &Rules) -> String {
    after_check(0, rules)
}

fn after_a_prohibition(rules: &Rules) -> String {
    after_check(1, rules)
}

fn asked_for_approval(rules: &Rules) -> World {
    let mut rules = rules.clone();
    rules.scrum_master.task_loop.auto_approve_low_risk = false;
    let mut world = World::with_rules(rules).to(State::AwaitingApproval);
    world.done(Outcome::Checked { blockers: 0, warnings: 0 });
    world
}

fn after_a_request_for_approval(rules: &Rules) -> String {
    format!("{:?}", asked_for_approval(rules).alerts())
}

fn first_reminder(rules: &Rules) -> String {
    let world = asked_for_approval(rules);
    format!("{:?}", world.it.next_reminder(&world.rules))
}

fn lessons_of_a_success(rules: &Rules) -> String {
    format!("{:?}", lesson_triggers(true, 0, rules))
}

fn lessons_of_a_cancelled_task(rules: &Rules) -> String {
    let mut world = World::with_rules(rules.clone()).to(State::Planning);
    world.ask(Action::Cancel { reason: reason() });
    let learns = world.it.active_job.is_some();
    format!("{learns} {:?}", lesson_triggers(false, 0, rules))
}

fn relevant_lessons(rules: &Rules) -> String {
    let entry = s10_knowledge::half_relevant(EntryKind::Learning);
    let (task, plan, now) = (s10_knowledge::task(), s10_knowledge::plan(), s10_knowledge::now());
    check(&task, &plan, &[entry], now, rules).learnings.len().to_string()
}

fn time_of_a_run(rules: &Rules) -> String {
    let mut world = World::with_rules(rules.clone());
    world.walk(State::Validated);
    match world.started_job() {
        Some(Job::Implement(run)) => run.timeout_seconds.to_string(),
        job => panic!("{job:?}"),
    }
}

fn time_of_gates(rules: &Rules) -> String {
    rules.scrum_master.task_loop.quality_gates_seconds().to_string()
}

fn time_of_a_judge(rules: &Rules) -> String {
    rules.scrum_master.task_loop.requirements_seconds().to_string()
}

fn limit_of_a_task(rules: &Rules) -> String {
    format!("{:?}", budget::task_limit(None, &Grant::default(), rules))
}

/// Seconds of an hour at which a clock allows an update, if somebody looks twice per second.
fn updates_of_an_hour(mut clock: UpdateClock) -> Vec<f64> {
    let half_seconds = 1..=2 * 3_600;
    let is_due = |count: &i64| clock.is_due(minute(0) + TimeDelta::milliseconds(count * 500));
    half_seconds
        .filter(is_due)
        .map(|count| f64::from(i32::try_from(count).unwrap()) / 2.0)
        .collect()
}

fn progress_of_an_hour(rules: &Rules) -> String {
    let clock = rules.scrum_master.task_loop.progress_clock(minute(0));
    format!("{:?}", updates_of_an_hour(clock))
}

fn status_updates_of_an_hour(rules: &Rules) -> String {
    let clock = rules.scrum_master.user_interaction.update_clock(minute(0));
    format!("{:?}", clock.map(updates_of_an_hour))
}

type Effect = fn(&Rules) -> String;

/// Each key of the files with another value and the behaviour that the value changes.
const EFFECTS: &[(&str, &str, Effect)] = &[
    ("task_loop.max_retries", "0", after_two_failures),
    ("task_loop.auto_approve_low_risk", "false", after_a_low_risk_plan),
    ("task_loop.timeout_ms", "60000", time_of_a_run),
    ("task_loop.progress_update_interval_ms", "7500", progress_of_an_hour),
    ("task_loop.max_iterations", "2", after_two_failures),
    ("task_loop.escalation_threshold", "3", after_two_failures),
    ("task_loop.stuck_detection", "false", after_four_similar_failures),
    ("task_loop.cost_tracking", "false", limit_of_a_task),
    ("task_loop.timeouts.implementation", "200", time_of_a_run),
    ("task_loop.timeouts.quality_gates", "100", time_of_gates),
    ("task_loop.timeouts.requirements", "50", time_of_a_judge),
    ("task_loop.halt_conditions", "budget_exceeded", after_a_security_finding),
    ("risk_thresholds.low.max_files", "8", of_6_files),
    ("risk_thresholds.low.max_complexity", "medium", of_medium_complexity),
    ("risk_thresholds.low.max_estimated_cost_usd", "3.0", of_2_dollars),
    ("risk_thresholds.medium.max_files", "20", of_11_files),
    ("risk_thresholds.medium.max_complexity", "high", of_high_complexity),
    ("risk_thresholds.medium.max_estimated_cost_usd", "9.0", of_6_dollars),
    ("learning_capture.capture_success", "false", lessons_of_a_success),
    ("learning_capture.capture_failure", "false", lessons_of_a_cancelled_task),
    ("learning_capture.min_relevance_score", "1.0", relevant_lessons),
    ("alerts.on_block", "false", after_a_prohibition),
    ("alerts.on_max_retries", "false", after_the_last_run),
    ("alerts.on_approval_needed", "false", after_a_request_for_approval),
    ("alerts.on_review_failed", "false", after_three_failures),
    ("user_interaction.proactive_updates", "false", status_updates_of_an_hour),
    ("user_interaction.update_interval_seconds", "7", status_updates_of_an_hour),
    ("user_interaction.auto_timeout_minutes", "5", first_reminder),
];

/// Asserts that the key changes the behaviour in every founding file that has it.
fn assert_effect(key: &str) {
    let path = format!("scrum_master.{key}");
    let (_, value, effect) = EFFECTS.iter().find(|it| it.0 == key).expect("an effect");
    let mut files = 0;
    for (name, text) in FILES {
        let Some(changed) = with_value(text, &path, value) else { continue };
        let before = load(name, text).unwrap().rules;
        let after = load(name, &changed).unwrap().rules;
        assert_ne!(effect(&before), effect(&after), "{name}: {path}");
        files += 1;
    }
    assert!(files > 0, "no founding file has {path}");
}

#[rstest]
#[case::max_retries("task_loop.max_retries")]
#[case::auto_approve_low_risk("task_loop.auto_approve_low_risk")]
#[case::timeout_ms("task_loop.timeout_ms")]
#[case::progress_update_interval_ms("task_loop.progress_update_interval_ms")]
#[case::max_iterations("task_loop.max_iterations")]
#[case::escalation_threshold("task_loop.escalation_threshold")]
#[case::stuck_detection("task_loop.stuck_detection")]
#[case::cost_tracking("task_loop.cost_tracking")]
#[case::timeouts_implementation("task_loop.timeouts.implementation")]
#[case::timeouts_quality_gates("task_loop.timeouts.quality_gates")]
#[case::timeouts_requirements("task_loop.timeouts.requirements")]
#[case::halt_conditions("task_loop.halt_conditions")]
#[case::low_max_files("risk_thresholds.low.max_files")]
#[case::low_max_complexity("risk_thresholds.low.max_complexity")]
#[case::low_max_estimated_cost_usd("risk_thresholds.low.max_estimated_cost_usd")]
#[case::medium_max_files("risk_thresholds.medium.max_files")]
#[case::medium_max_complexity("risk_thresholds.medium.max_complexity")]
#[case::medium_max_estimated_cost_usd("risk_thresholds.medium.max_estimated_cost_usd")]
#[case::capture_success("learning_capture.capture_success")]
#[case::capture_failure("learning_capture.capture_failure")]
#[case::min_relevance_score("learning_capture.min_relevance_score")]
#[case::on_block("alerts.on_block")]
#[case::on_max_retries("alerts.on_max_retries")]
#[case::on_approval_needed("alerts.on_approval_needed")]
#[case::on_review_failed("alerts.on_review_failed")]
#[case::proactive_updates("user_interaction.proactive_updates")]
#[case::update_interval_seconds("user_interaction.update_interval_seconds")]
#[case::auto_timeout_minutes("user_interaction.auto_timeout_minutes")]
fn a_key_of_the_founding_files_changes_the_behaviour(#[case] key: &str) {
    assert_effect(key);
}

#[test]
fn an_hour_has_one_update_per_configured_interval() {
    let every = |seconds: f64, count: i32| {
        (1..=count).map(|number| f64::from(number) * seconds).collect::<Vec<_>>()
    };
    let load = |key: &str, value| {
        let text = with_value(IMPLEMENTATION_PLAN, &format!("scrum_master.{key}"), value).unwrap();
        load("implementation-plan.yaml", &text).unwrap().rules
    };
    let rules = load("task_loop.progress_update_interval_ms", "7500");
    assert_eq!(progress_of_an_hour(&rules), format!("{:?}", every(7.5, 480)));
    assert_eq!(status_updates_of_an_hour(&rules), format!("{:?}", Some(every(30.0, 120))));
    let rules = load("user_interaction.update_interval_seconds", "7");
    assert_eq!(progress_of_an_hour(&rules), format!("{:?}", every(30.0, 120)));
    assert_eq!(status_updates_of_an_hour(&rules), format!("{:?}", Some(every(7.0, 514))));
    let rules = load("user_interaction.proactive_updates", "false");
    assert_eq!(status_updates_of_an_hour(&rules), "None");
}

#[rstest]
#[case::story("story.yaml", STORY)]
#[case::implementation_plan("implementation-plan.yaml", IMPLEMENTATION_PLAN)]
#[case::task_loop("task-loop.yaml", TASK_LOOP)]
fn a_founding_file_is_accepted_unchanged(#[case] name: &str, #[case] text: &str) {
    let loaded = load(name, text).unwrap();
    for (path, ..) in scalars(text) {
        let path = canonical(&path).replace("channels.", "channels[0].");
        if path.contains(".config.") {
            continue;
        }
        assert!(matches!(loaded.origin(&path), ValueOrigin::File(_)), "{path}");
    }
}

#[test]
fn every_key_of_the_founding_files_has_an_effect() {
    let keys: BTreeSet<String> = FILES
        .iter()
        .flat_map(|(_, text)| scalars(text))
        .map(|(path, ..)| canonical(&path))
        .collect();
    let covered = EFFECTS.iter().map(|it| format!("scrum_master.{}", it.0));
    let covered = covered.chain(FIXED.map(str::to_owned));
    let covered: BTreeSet<String> =
        covered.chain(ELSEWHERE.map(|(path, _)| path.to_owned())).collect();
    assert_eq!(keys, covered);
}

#[test]
fn the_founding_files_have_the_defaults_except_for_timeouts() {
    for (name, text) in FILES {
        let mut rules = load(name, text).unwrap().rules;
        let defaults = Rules::default();
        rules.scrum_master.task_loop.timeouts = defaults.scrum_master.task_loop.timeouts.clone();
        // One file adds channels.
        rules.scrum_master.alerts.channels.truncate(1);
        assert_eq!(rules, defaults, "{name}");
    }
}

#[test]
fn keys_with_one_valid_value_are_refused_with_the_other() {
    for path in FIXED {
        for (name, text) in FILES {
            let Some(changed) = with_value(text, path, "false") else { continue };
            let refused = load(name, &changed).unwrap_err();
            assert!(refused.contains("always need approval"), "{refused}");
        }
    }
}

#[test]
fn the_founding_variables_override_the_file() {
    let text = "\
scrum_master:
  task_loop: {max_retries: 1, auto_approve_low_risk: false, timeout_ms: 5000}
";
    let file = ConfigFile { name: "tamma.yaml", text };
    let mut variables = environment();
    assert!(variables.keys().all(|name| VARIABLES.iter().any(|it| it.name == name)));
    // A channel of Slack needs more than its name.
    variables.remove("TAMMA_ALERT_SLACK_CHANNEL");
    let loaded = rules::load(Some(file), &variables, &OperatorConfig::default()).unwrap();
    let task_loop = &loaded.rules.scrum_master.task_loop;
    assert_eq!((task_loop.max_retries, task_loop.timeout_ms), (3, 3_600_000));
    assert!(task_loop.auto_approve_low_risk);
    let channels = &loaded.rules.scrum_master.alerts.channels;
    let values: Vec<_> = channels.iter().flat_map(|channel| channel.config.values()).collect();
    assert_eq!(values, ["https://hooks.example.com/tamma"]);
}

// The section at the root

#[test]
fn a_task_loop_at_the_root_is_the_scrum_masters() {
    let at_root = "task_loop: {max_iterations: 4}\nscrum_master: {task_loop: {max_retries: 1}}\n";
    let nested = "scrum_master: {task_loop: {max_iterations: 4, max_retries: 1}}\n";
    let version = |text| load("tamma.yaml", text).unwrap().rules.version();
    assert_eq!(version(at_root), version(nested));
    assert_eq!(version("task_loop:\n"), Rules::default().version());
}

#[rstest]
#[case::unknown_key("task_loop: {weather: 1}", "unknown key `weather` in `scrum_master.task_loop`")]
#[case::both("task_loop: {max_retries: 1}\nscrum_master: {task_loop: {max_retries: 2}}", "1:13: ")]
#[case::invalid_parent("task_loop: {max_retries: 1}\nscrum_master: 3", "`scrum_master` must be")]
#[case::not_a_section("task_loop: 3", "`scrum_master.task_loop` must be")]
fn a_mistake_in_a_task_loop_at_the_root_is_reported(#[case] text: &str, #[case] message: &str) {
    let refused = load("tamma.yaml", text).unwrap_err();
    assert!(refused.contains(message), "{refused}");
}
