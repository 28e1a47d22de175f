//! Section 5: approve.

use rstest::rstest;
use tamma_core::actor::Actor;
use tamma_core::approval::{Binding, Check, Drift, Pin, Ruling, rule};
use tamma_core::budget::Grant;
use tamma_core::cause::Cause;
use tamma_core::cost::Usd;
use tamma_core::ids::{PlanHash, PolicyVersion};
use tamma_core::level::Level;
use tamma_core::log::{EntryName, Fact};
use tamma_core::plan::Outline;
use tamma_core::risk::{Factor, Risk, Weight, assess};
use tamma_core::rules::{Rules, critical_files, is_critical};
use tamma_core::task_loop::{
    Action, AlertKind, Command, Job, Outcome, Refusal, Severity, State, StopReason, Trigger, What,
};
use tamma_core::tier::Tier;

use crate::world::{World, commit, minute, note, pin, plan, reason, text};

const QUIET: Outcome = Outcome::Checked { blockers: 0, warnings: 0 };
const BLOCKED: Outcome = Outcome::Checked { blockers: 2, warnings: 0 };

/// A task whose plan waits for a person, because it has a warning and touches a critical file.
fn asking() -> World {
    asking_under(Rules::default())
}

fn asking_under(rules: Rules) -> World {
    let mut world = World::under(rules).to(State::Planning);
    world
        .done(Outcome::Planned(Outline { critical_files: 1, ..plan(1) }))
        .done(Outcome::Checked { blockers: 0, warnings: 1 });
    assert_eq!(world.it.risk(), Some(Level::Medium));
    world
}

// Risk, factor by factor.

#[rstest]
#[case::five_files(Outline { files: 5, ..plan(1) }, 0, 0)]
#[case::more_than_five_files(Outline { files: 6, ..plan(1) }, 0, 1)]
#[case::ten_files(Outline { files: 10, ..plan(1) }, 0, 1)]
#[case::more_than_ten_files(Outline { files: 11, ..plan(1) }, 0, 2)]
#[case::low_complexity(Outline { complexity: 4, ..plan(1) }, 0, 0)]
#[case::medium_complexity(Outline { complexity: 5, ..plan(1) }, 0, 1)]
#[case::high_complexity(Outline { complexity: 9, ..plan(1) }, 0, 2)]
#[case::any_warning(plan(1), 1, 1)]
#[case::many_warnings(plan(1), 9, 1)]
#[case::any_critical_file(Outline { critical_files: 1, ..plan(1) }, 0, 2)]
#[case::everything(Outline { files: 11, complexity: 9, critical_files: 1, ..plan(1) }, 1, 7)]
fn risk_is_the_sum_of_named_factors(
    #[case] plan: Outline,
    #[case] warnings: u16,
    #[case] score: u8,
) {
    assert_eq!(assess(&plan, warnings, &Rules::default()).score, score);
}

/// Rules whose thresholds raise nothing.
fn without_thresholds() -> Rules {
    let mut rules = Rules::default();
    let thresholds = &mut rules.scrum_master.risk_thresholds;
    for threshold in [&mut thresholds.low, &mut thresholds.medium] {
        threshold.max_files = 1_000;
        threshold.max_complexity = tamma_core::complexity::Level::High;
        threshold.max_estimated_cost_usd = Usd::cents(100_000);
    }
    rules
}

#[rstest]
#[case(Outline { files: 6, ..plan(1) }, 0, Level::Low)]
#[case(Outline { files: 6, ..plan(1) }, 1, Level::Medium)]
#[case(Outline { files: 11, complexity: 5, ..plan(1) }, 0, Level::Medium)]
#[case(Outline { files: 11, complexity: 9, ..plan(1) }, 0, Level::High)]
fn four_points_are_high_and_two_are_medium(
    #[case] plan: Outline,
    #[case] warnings: u16,
    #[case] level: Level,
) {
    let risk = assess(&plan, warnings, &without_thresholds());
    assert_eq!(risk.level, level);
    assert!(risk.factors.iter().all(|(_, weight)| matches!(weight, Weight::Points(_))));
}

#[test]
fn the_risk_explains_itself_factor_by_factor() {
    let plan = Outline { files: 6, critical_files: 1, ..plan(1) };
    let risk = assess(&plan, 1, &Rules::default());
    assert_eq!(risk.level, Level::High);
    assert_eq!(
        risk.factors,
        [
            (Factor::Files, Weight::Points(1)),
            (Factor::Warnings, Weight::Points(1)),
            (Factor::CriticalFiles, Weight::Points(2)),
        ]
    );
}

#[rstest]
#[case::files(Outline { files: 6, ..plan(1) }, Level::Medium, Factor::FilesThreshold)]
#[case::files(Outline { files: 11, ..plan(1) }, Level::High, Factor::FilesThreshold)]
#[case::complexity(Outline { complexity: 5, ..plan(1) }, Level::Medium, Factor::ComplexityThreshold)]
#[case::complexity(Outline { complexity: 9, ..plan(1) }, Level::High, Factor::ComplexityThreshold)]
#[case::cost(costing(101), Level::Medium, Factor::CostThreshold)]
#[case::cost(costing(501), Level::High, Factor::CostThreshold)]
fn the_configured_thresholds_raise_the_level(
    #[case] plan: Outline,
    #[case] level: Level,
    #[case] factor: Factor,
) {
    let risk = assess(&plan, 0, &Rules::default());
    assert_eq!(risk.level, level);
    assert!(risk.factors.contains(&(factor, Weight::AtLeast(level))), "{risk:?}");
}

fn costing(cents: u32) -> Outline {
    Outline { estimated_cost: Some(Usd::cents(cents)), ..plan(1) }
}

#[rstest]
#[case(plan(1))]
#[case(costing(100))]
#[case(Outline { files: 5, ..plan(1) })]
#[case(Outline { complexity: 4, ..plan(1) })]
fn up_to_the_thresholds_nothing_is_raised(#[case] plan: Outline) {
    assert_eq!(assess(&plan, 0, &Rules::default()).level, Level::Low);
}

#[test]
fn the_thresholds_never_lower_the_level() {
    let plan = Outline { files: 11, complexity: 9, critical_files: 3, ..plan(1) };
    assert_eq!(assess(&plan, 1, &without_thresholds()).level, Level::High);
}

#[test]
fn critical_files_are_those_the_configuration_names() {
    let rules = Rules::default();
    let paths = ["tamma.yaml", "src/auth/login.rs", "Cargo.lock", "src/main.rs", "docs/x.md"];
    assert_eq!(critical_files(paths, &rules), 3);
    assert!(is_critical("deploy/Dockerfile", &rules));
    assert!(!is_critical("src/main.rs", &rules));
}

#[test]
fn a_glob_that_cannot_be_read_is_passed_over_and_the_rest_still_match() {
    // Such rules are refused when they are loaded; this is the second line.
    let mut rules = Rules::default();
    rules.scrum_master.risk_thresholds.critical_files.insert(0, "a[".to_owned());
    assert!(is_critical("tamma.yaml", &rules));
}

// The ruling.

fn check(level: Level, blockers: u16) -> Check {
    Check { risk: Risk { level, score: 0, factors: Vec::new() }, blockers, warnings: 0 }
}

#[rstest]
#[case::low_is_automatic(check(Level::Low, 0), false, Ruling::Automatic)]
#[case::medium_asks(check(Level::Medium, 0), false, Ruling::Ask(1))]
#[case::high_asks(check(Level::High, 0), false, Ruling::Ask(1))]
#[case::a_blocker_blocks(check(Level::Low, 1), false, Ruling::Blocked)]
#[case::an_override_still_asks(check(Level::Low, 1), true, Ruling::Ask(1))]
fn the_level_decides_who_approves(
    #[case] check: Check,
    #[case] overridden: bool,
    #[case] ruling: Ruling,
) {
    assert_eq!(rule(&check, overridden, &Rules::default()), ruling);
}

#[test]
fn low_risk_asks_too_where_automatic_approval_is_off() {
    let mut rules = Rules::default();
    rules.scrum_master.task_loop.auto_approve_low_risk = false;
    assert_eq!(rule(&check(Level::Low, 0), false, &rules), Ruling::Ask(1));
}

// In the machine.

#[test]
fn low_risk_is_approved_automatically_and_that_is_recorded() {
    let mut world = World::new().to(State::AwaitingApproval);
    world.done(QUIET);
    assert_eq!(world.it.state, State::Validated);
    assert!(world.has_logged(EntryName::SmApprovalAuto));
    assert_eq!(world.it.approved, world.it.binding());
    assert!(matches!(world.started(), Some(Job::Implement(_))));
}

#[test]
fn medium_risk_asks_a_person_and_waits() {
    let mut world = asking();
    assert_eq!(world.it.state, State::AwaitingApproval);
    assert_eq!(world.started(), None);
    let [alert] = world.alerts()[..] else { panic!("one alert") };
    assert_eq!(alert.kind, AlertKind::ApprovalNeeded);
    assert_eq!(alert.cause, Cause::ApprovalNeeded { risk: Level::Medium, approvers: 1 });
    assert_eq!(alert.question, Some(1));
    assert!(world.has_logged(EntryName::SmApprovalRequested));
    // With nobody there it waits for ever, and reminds.
    world.tick_at(60 * 24 * 30);
    assert_eq!(world.it.state, State::AwaitingApproval);
    assert_eq!(world.it.approved, None);
}

#[test]
fn a_named_person_approves_exactly_what_they_saw() {
    let mut world = asking();
    world.now = minute(7);
    let binding = world.binding();
    world.ask(Action::Approve { binding, reason: Some(text("looks right")) });
    assert_eq!(world.it.state, State::Validated);
    let [approval] = &world.it.approvals[..] else { panic!("one approval") };
    assert_eq!((approval.by.as_str(), approval.at, approval.binding), ("ann", minute(7), binding));
    let last = world.log.last().unwrap();
    let kept = Fact::Approval { binding, risk: Level::Medium };
    assert_eq!((last.name, &last.data), (EntryName::SmApprovalGranted, &kept));
    assert_eq!(last.reason.as_deref(), Some("looks right"));
}

#[rstest]
#[case::plan(Binding { plan: PlanHash::of(b"x"), pin: pin(1) }, Drift::Plan, "the plan has changed since you saw it: look at it again")]
#[case::base(Binding { plan: plan(1).hash, pin: Pin { base: commit(7), ..pin(1) } }, Drift::Base, "the base commit has changed since you saw it: look at it again")]
#[case::rules(Binding { plan: plan(1).hash, pin: Pin { policy: PolicyVersion::of(b"x"), ..pin(1) } }, Drift::Policy, "the rules have changed since you saw it: look at it again")]
fn approving_something_else_than_what_is_there_is_refused_and_says_why(
    #[case] seen: Binding,
    #[case] drift: Drift,
    #[case] words: &str,
) {
    let mut world = asking();
    let refused =
        world.try_ask("ann", Action::Approve { binding: seen, reason: None }).unwrap_err();
    assert_eq!(refused, Refusal::Drifted(drift));
    assert_eq!(refused.to_string(), words);
}

#[test]
fn nothing_can_be_decided_before_the_check_has_ended() {
    let mut world = World::new().to(State::AwaitingApproval);
    let binding = world.binding();
    let state = State::AwaitingApproval;
    for (action, name) in [
        (Action::Approve { binding, reason: None }, "approve"),
        (Action::Reject { binding, reason: reason() }, "reject"),
        (Action::AskChanges { binding, changes: note() }, "ask_changes"),
    ] {
        let refused = world.try_ask("ann", action);
        assert_eq!(refused, Err(Refusal::NotNow { state, action: name.to_owned() }));
    }
}

#[test]
fn approving_makes_sense_only_where_a_plan_waits() {
    let mut world = World::new().to(State::Testing);
    let binding = world.binding();
    let refused = world.try_ask("ann", Action::Approve { binding, reason: None });
    let state = State::Testing;
    assert_eq!(refused, Err(Refusal::NotNow { state, action: "approve".to_owned() }));
}

#[test]
fn two_approvers_are_two_people() {
    let mut rules = Rules::default();
    rules.ceremony.medium.approvers = 2;
    let mut world = asking_under(rules);
    let binding = world.binding();
    world.ask(Action::Approve { binding, reason: None });
    assert_eq!(world.it.state, State::AwaitingApproval);
    assert!(world.has_logged(EntryName::SmApprovalGranted));
    let twice = world.try_ask("ann", Action::Approve { binding, reason: None });
    assert_eq!(twice, Err(Refusal::ApprovedTwice));
    world.try_ask("bo", Action::Approve { binding, reason: None }).unwrap();
    assert_eq!(world.it.state, State::Validated);
}

#[test]
fn a_rejected_plan_goes_to_a_person_with_its_reason() {
    let mut world = asking();
    let binding = world.binding();
    world.ask(Action::Reject { binding, reason: text("too big") });
    assert_eq!(world.it.state, State::HumanEscalation);
    assert_eq!(world.it.question.as_ref().unwrap().cause, Cause::Rejected);
    let denied = world.log.iter().find(|entry| entry.name == EntryName::SmApprovalDenied).unwrap();
    assert_eq!(denied.reason.as_deref(), Some("too big"));
    assert_eq!(denied.data, Fact::Approval { binding, risk: Level::Medium });
    world.ask(Action::Retry { grant: Grant::default() });
    assert_eq!(world.it.state, State::Planning);
}

#[test]
fn a_person_may_ask_for_changes_field_by_field() {
    let mut world = asking();
    let binding = world.binding();
    world.ask(Action::AskChanges { binding, changes: text("changes") });
    assert_eq!(world.it.state, State::Planning);
    assert_eq!((world.it.approved, world.it.check.clone()), (None, None));
    let revised = Job::Plan { version: 2, from: Some(text("plan")), note: Some(text("changes")) };
    assert_eq!(world.started(), Some(&revised));
    assert!(world.has_logged(EntryName::SmChangesRequested));
}

#[test]
fn a_critical_prohibition_blocks_the_plan() {
    let mut world = World::new().to(State::AwaitingApproval);
    world.done(BLOCKED);
    assert_eq!(world.it.state, State::HumanEscalation);
    let [alert] = world.alerts()[..] else { panic!("one alert") };
    assert_eq!((alert.kind, alert.severity), (AlertKind::TaskBlocked, Severity::Critical));
    assert_eq!(alert.cause, Cause::Blocked(2));
    assert_eq!(world.log[world.log.len() - 2].on, Some(Trigger::Blocked));
}

#[test]
fn a_person_may_override_a_prohibition_with_a_reason_and_must_still_approve() {
    let mut world = World::new().to(State::AwaitingApproval);
    world.done(BLOCKED);
    let binding = world.binding();
    world.ask(Action::Override { binding, reason: text("it is an emergency") });
    assert_eq!(world.it.state, State::AwaitingApproval);
    let last = world.log.last().unwrap();
    assert_eq!(last.name, EntryName::SmOverridden);
    assert_eq!(last.reason.as_deref(), Some("it is an emergency"));
    assert_eq!(last.data, Fact::Approval { binding, risk: Level::Low });
    world.done(BLOCKED);
    assert_eq!(world.it.state, State::AwaitingApproval);
    world.ask(Action::Approve { binding, reason: None });
    assert_eq!(world.it.state, State::Validated);
}

#[test]
fn an_override_holds_for_one_plan_only() {
    let mut world = World::new().to(State::AwaitingApproval);
    world.done(BLOCKED);
    let binding = world.binding();
    world.ask(Action::Override { binding, reason: reason() });
    world.ask(Action::Modify { note: note() }).done(Outcome::Interrupted);
    world.done(Outcome::Planned(plan(2))).done(BLOCKED);
    assert_eq!(world.it.state, State::HumanEscalation);
    // Even the same words again would not do, had the plan changed in between.
    assert_eq!(world.it.overridden, None);
}

#[test]
fn an_override_is_about_what_was_seen_and_only_for_what_is_blocked() {
    let mut world = World::new().to(State::AwaitingApproval);
    world.done(BLOCKED);
    let binding = Binding { plan: PlanHash::of(b"x"), ..world.binding() };
    let refused = world.try_ask("ann", Action::Override { binding, reason: reason() });
    assert_eq!(refused, Err(Refusal::Drifted(Drift::Plan)));
    let mut world = asking();
    let binding = world.binding();
    let refused = world.try_ask("ann", Action::Override { binding, reason: reason() });
    let state = State::AwaitingApproval;
    assert_eq!(refused, Err(Refusal::NotNow { state, action: "override".to_owned() }));
}

#[test]
fn what_is_blocked_may_be_checked_again() {
    let mut world = World::new().to(State::AwaitingApproval);
    world.done(BLOCKED).ask(Action::Retry { grant: Grant::default() });
    assert_eq!(world.it.state, State::AwaitingApproval);
    world.done(QUIET);
    assert_eq!(world.it.state, State::Validated);
}

// What voids an approval.

#[rstest]
#[case(State::Validated)]
#[case(State::InProgress)]
fn a_change_of_base_or_rules_voids_the_approval_and_stops_the_run(#[case] state: State) {
    let mut world = World::new().to(state);
    let ticket = world.it.work.unwrap().ticket;
    world.feed(Actor::Tamma, What::Repinned(pin(2))).unwrap();
    assert_eq!(world.it.state, State::AwaitingApproval);
    assert_eq!(world.commands, [Command::Stop { ticket, why: StopReason::Superseded }]);
    assert!(!world.it.is_approved());
    assert!(world.has_logged(EntryName::SmApprovalVoided));
    world.done(Outcome::Interrupted);
    assert!(matches!(world.started(), Some(Job::Check { .. })));
}

#[test]
fn a_change_while_people_decide_asks_them_again() {
    let mut rules = Rules::default();
    rules.ceremony.medium.approvers = 2;
    let mut world = asking_under(rules);
    let old = world.binding();
    world.ask(Action::Approve { binding: old, reason: None });
    world.feed(Actor::Tamma, What::Repinned(pin(2))).unwrap();
    assert_eq!((world.it.state, world.it.question.as_ref()), (State::AwaitingApproval, None));
    assert_eq!(world.commands[0], Command::Settle { question: 1 });
    assert!(matches!(world.started(), Some(Job::Check { .. })));
    assert!(world.it.approvals.is_empty());
    let refused = world.try_ask("bo", Action::Approve { binding: old, reason: None });
    assert_eq!(refused, Err(Refusal::Drifted(Drift::Base)));
}

#[test]
fn a_change_during_the_check_checks_again() {
    let mut world = World::new().to(State::AwaitingApproval);
    let ticket = world.it.work.unwrap().ticket;
    world.feed(Actor::Tamma, What::Repinned(pin(2))).unwrap();
    assert_eq!(world.commands, [Command::Stop { ticket, why: StopReason::Superseded }]);
}

#[test]
fn a_change_under_review_lets_the_review_finish_and_the_next_run_needs_a_new_approval() {
    let mut world = World::new().to(State::Testing);
    world.feed(Actor::Tamma, What::Repinned(pin(2))).unwrap();
    assert_eq!((world.it.state, world.commands.len()), (State::Testing, 0));
    assert!(world.has_logged(EntryName::SmApprovalVoided));
    world.done(crate::world::red(1)).done(Outcome::Briefed(note()));
    assert_eq!(world.it.state, State::AwaitingApproval);
    assert_eq!(world.log.last().unwrap().on, Some(Trigger::ApprovalVoided));
    world.walk(State::InProgress);
    assert_eq!(world.it.approved.unwrap().pin, pin(2));
}

#[test]
fn going_on_after_an_alert_needs_an_approval_that_still_holds() {
    let mut world = World::new().to(State::InProgress);
    for _ in 0..2 {
        world.done(crate::world::failure(tamma_core::failure::FailureKind::Crashed)).start();
    }
    world.done(crate::world::failure(tamma_core::failure::FailureKind::Crashed));
    world.done(Outcome::Landed);
    world.feed(Actor::Tamma, What::Repinned(pin(2))).unwrap();
    world.ask(Action::Continue { grant: Grant::default() });
    assert_eq!(world.it.state, State::AwaitingApproval);
    assert!(matches!(world.started(), Some(Job::Check { .. })));
}

#[test]
fn a_run_that_was_not_approved_does_not_start() {
    let mut world = World::new().to(State::Validated);
    world.it.approved = None;
    let ticket = world.it.work.unwrap().ticket;
    let started = What::Started { ticket, engine: text("engine") };
    assert_eq!(world.feed(Actor::Tamma, started), Err(Refusal::NotApproved));
}

#[test]
fn neither_a_check_nor_an_approval_exists_without_a_plan() {
    let mut world = World::new().to(State::AwaitingApproval);
    world.it.plan = None;
    assert_eq!(world.try_done(QUIET), Err(Refusal::NotApproved));
    let mut world = World::new().to(State::AwaitingApproval);
    world.it.pin = None;
    assert_eq!(world.try_done(QUIET), Err(Refusal::NotApproved));
    assert_eq!(world.it.binding(), None);
}

// What the level sets besides.

#[test]
fn the_level_sets_reviewers_gates_tier_and_budget() {
    let mut rules = Rules::default();
    rules.ceremony.medium.first_tier = Tier::Complex;
    rules.ceremony.medium.human_review = true;
    rules.ceremony.medium.budget_usd = Some(Usd::cents(1_234));
    let mut world = asking_under(rules);
    let binding = world.binding();
    world.ask(Action::Approve { binding, reason: None });
    let Some(Job::Implement(order)) = world.started() else { panic!("a run") };
    assert_eq!(order.tier, Tier::Complex);
    assert_eq!(order.allowance.usd, Some(Usd::cents(1_234)));
    world.walk(State::Testing);
    let test = Job::Test { commit: commit(9), risk: Level::Medium };
    assert_eq!(world.started(), Some(&test));
    world.done(crate::world::green()).done(crate::world::passed());
    assert_eq!(world.it.question.as_ref().unwrap().cause, Cause::ReviewNeeded);
}

#[test]
fn alerts_that_nobody_wants_are_not_sent_but_the_question_stands() {
    let mut rules = Rules::default();
    rules.scrum_master.alerts.on_approval_needed = false;
    rules.scrum_master.alerts.on_block = false;
    let world = asking_under(rules.clone());
    assert!(world.alerts().is_empty());
    assert!(world.it.question.is_some());
    let mut world = World::under(rules).to(State::AwaitingApproval);
    world.done(BLOCKED);
    assert!(world.alerts().is_empty());
}
