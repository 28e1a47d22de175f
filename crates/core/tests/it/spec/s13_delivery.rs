//! Section 13: every key of `delivery` changes the behaviour.

use std::collections::{BTreeMap, BTreeSet};

use rstest::rstest;
use tamma_core::forge::{PullRequestFacts, ThreadFact};
use tamma_core::operator::OperatorConfig;
use tamma_core::rules::{self, ConfigFile, Rules};
use tamma_core::task_loop::State;

use crate::world::World;

const DELIVER: &str = include_str!("../../../../worker/src/activities/deliver.rs");
const PULL_REQUEST: &str = include_str!("../../../../worker/src/activities/pull_request.rs");
const REPOSITORIES: &str = include_str!("../../../../worker/src/repositories.rs");
const FORGE_POLLER: &str = include_str!("../../../../server/src/forge_poller.rs");
const INTAKE: &str = include_str!("../../../../server/src/intake.rs");

/// Keys whose effect is outside `core`, with the expression that reads them and its file.
const ELSEWHERE: [(&str, &str, &str); 9] = [
    ("base", "rules.delivery.base", REPOSITORIES),
    ("pull_requests.merge_method", "rules.pull_requests.merge_method", PULL_REQUEST),
    ("pull_requests.labels", "rules.labels", DELIVER),
    ("pull_requests.reviewers", "rules.reviewers", DELIVER),
    ("queue.mode", "rules.queue.mode", PULL_REQUEST),
    ("queue.batch", "delivery.queue.batch", PULL_REQUEST),
    ("intake.label", "rules.label", INTAKE),
    ("intake.mention", "rules.mention", INTAKE),
    ("aftercare.days", "delivery.aftercare.days", FORGE_POLLER),
];

type KeyEffect = fn(&Rules) -> String;

/// Each other key, `delivery` with another value of it, and the behaviour that the value changes.
const EFFECTS: &[(&str, &str, KeyEffect)] = &[
    ("mode", "{mode: pull_request}", after_green_checks),
    ("by_risk", "{mode: merge, by_risk: {low: pull_request}}", after_green_checks),
    (
        "pull_requests.required_checks",
        "{mode: merge, pull_requests: {required_checks: [slow]}}",
        after_green_checks,
    ),
    ("pull_requests.approvals", "{mode: merge, pull_requests: {approvals: 1}}", after_green_checks),
    (
        "pull_requests.no_checks_minutes",
        "{mode: merge, pull_requests: {no_checks_minutes: 20}}",
        question_about_missing_checks,
    ),
    ("pull_requests.max_rounds", "{mode: merge, pull_requests: {max_rounds: 0}}", after_a_comment),
];

fn load(delivery: &str) -> Rules {
    let text = format!("delivery: {delivery}\n");
    let file = ConfigFile { name: "tamma.yaml", text: &text };
    rules::load(Some(file), &BTreeMap::new(), &OperatorConfig::default())
        .expect("valid rules")
        .rules
}

/// Observes facts that differ from those that let Tamma merge.
fn observed(rules: &Rules, change: impl FnOnce(&mut PullRequestFacts)) -> World {
    let mut world = World::with_rules(rules.clone()).to(State::AwaitingMerge);
    let mut facts = world.facts();
    change(&mut facts);
    world.observe(facts);
    world
}

fn after_green_checks(rules: &Rules) -> String {
    format!("{:?}", observed(rules, |_| {}).started_job())
}

fn question_about_missing_checks(rules: &Rules) -> String {
    let world = observed(rules, |facts| facts.checks.clear());
    format!("{:?}", world.it.wake_at(&world.rules))
}

fn after_a_comment(rules: &Rules) -> String {
    let thread = ThreadFact {
        id: "t".to_owned(),
        last_comment: "1".to_owned(),
        by: "bo".to_owned(),
        can_write: true,
        bot: false,
        resolved: false,
        answered: false,
    };
    format!("{:?}", observed(rules, |facts| facts.threads = vec![thread]).started_job())
}

/// Keys of a section, by the name of its type in the schema.
fn keys(name: &str) -> Vec<String> {
    let schema = rules::schema();
    let section = schema["$defs"][name]["properties"].as_object().expect("a section");
    section.keys().cloned().collect()
}

#[rstest]
#[case::mode("mode")]
#[case::by_risk("by_risk")]
#[case::required_checks("pull_requests.required_checks")]
#[case::approvals("pull_requests.approvals")]
#[case::no_checks_minutes("pull_requests.no_checks_minutes")]
#[case::max_rounds("pull_requests.max_rounds")]
fn a_key_of_the_delivery_changes_the_behaviour(#[case] key: &str) {
    let (_, changed, effect) = EFFECTS.iter().find(|it| it.0 == key).expect("an effect");
    assert_ne!(effect(&load("{mode: merge}")), effect(&load(changed)), "{key}");
}

#[test]
fn every_key_of_the_delivery_has_an_effect() {
    let sections = [
        ("pull_requests", "PullRequestRules"),
        ("queue", "MergeQueueRules"),
        ("intake", "IntakeRules"),
        ("aftercare", "AftercareRules"),
    ];
    let mut all: BTreeSet<String> = keys("DeliveryRules").into_iter().collect();
    for (section, name) in sections {
        assert!(all.remove(section), "{section}");
        all.extend(keys(name).iter().map(|key| format!("{section}.{key}")));
    }
    for (key, reader, file) in ELSEWHERE {
        assert!(file.contains(reader), "`{reader}` does not read `delivery.{key}`");
    }
    let covered = EFFECTS.iter().map(|it| it.0).chain(ELSEWHERE.map(|it| it.0));
    assert_eq!(all, covered.map(str::to_owned).collect());
}
