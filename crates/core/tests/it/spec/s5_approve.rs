//! Section 5: approve.

use rstest::rstest;
use tamma_core::actor::Actor;
use tamma_core::approval::{
    ApprovalRequirement, ApprovalScope, Pin, PlanAssessment, ScopeChange, approval_requirement,
};
use tamma_core::budget::Grant;
use tamma_core::cause::AlertCause;
use tamma_core::cost::Usd;
use tamma_core::history::{EntryData, EntryName};
use tamma_core::ids::{Digest, PlanHash, PolicyVersion};
use tamma_core::level::RiskLevel;
use tamma_core::plan::PlanSummary;
use tamma_core::risk::{FactorEffect, Risk, RiskFactor, assess};
use tamma_core::rules::{Rules, count_critical_files, is_critical};
use tamma_core::task_loop::{
    Action, AlertKind, AlertSeverity, Command, EventKind, Job, Outcome, Refusal, State, StopReason,
    Trigger,
};
use tamma_core::tier::Tier;

use crate::world::{World, commit, minute, note, pin, plan, reason, text};

const QUIET: Outcome = Outcome::Checked { blockers: 0, warnings: 0 };
const BLOCKED: Outcome = Outcome::Checked { blockers: 2, warnings: 0 };

/// Task whose plan is waiting for a person, because of a warning and a critical file.
fn asking() -> World {
    asking_under(Rules::default())
}

fn asking_under(rules: Rules) -> World {
    let mut world = World::with_rules(rules).to(State::Planning);
    world
        .done(Outcome::Planned(PlanSummary { critical_file_count: 1, ..plan(1) }))
        .done(Outcome::Checked { blockers: 0, warnings: 1 });
    assert_eq!(world.it.risk_level(), Some(RiskLevel::Medium));
    world
}

// Risk factors

#[rstest]
#[case::five_files(PlanSummary { file_count: 5, ..plan(1) }, 0, 0)]
#[case::more_than_five_files(PlanSummary { file_count: 6, ..plan(1) }, 0, 1)]
#[case::ten_files(PlanSummary { file_count: 10, ..plan(1) }, 0, 1)]
#[case::more_than_ten_files(PlanSummary { file_count: 11, ..plan(1) }, 0, 2)]
#[case::low_complexity(PlanSummary { complexity_score: 4, ..plan(1) }, 0, 0)]
#[case::medium_complexity(PlanSummary { complexity_score: 5, ..plan(1) }, 0, 1)]
#[case::high_complexity(PlanSummary { complexity_score: 9, ..plan(1) }, 0, 2)]
#[case::any_warning(plan(1), 1, 1)]
#[case::many_warnings(plan(1), 9, 1)]
#[case::any_critical_file(PlanSummary { critical_file_count: 1, ..plan(1) }, 0, 2)]
#[case::everything(PlanSummary { file_count: 11, complexity_score: 9, critical_file_count: 1, ..plan(1) }, 1, 7)]
fn risk_is_the_sum_of_named_factors(
    #[case] plan: PlanSummary,
    #[case] warnings: u16,
    #[case] score: u8,
) {
    assert_eq!(assess(&plan, warnings, &Rules::default()).score, score);
}

/// Rules whose thresholds never raise the level.
fn without_thresholds() -> Rules {
    let mut rules = Rules::default();
    let thresholds = &mut rules.scrum_master.risk_thresholds;
    for threshold in [&mut thresholds.low, &mut thresholds.medium] {
        threshold.max_files = 1_000;
        threshold.max_complexity = tamma_core::complexity::ComplexityLevel::High;
        threshold.max_estimated_cost_usd = Usd::from_cents(100_000);
    }
    rules
}

#[rstest]
#[case(PlanSummary { file_count: 6, ..plan(1) }, 0, RiskLevel::Low)]
#[case(PlanSummary { file_count: 6, ..plan(1) }, 1, RiskLevel::Medium)]
#[case(PlanSummary { file_count: 11, complexity_score: 5, ..plan(1) }, 0, RiskLevel::Medium)]
#[case(PlanSummary { file_count: 11, complexity_score: 9, ..plan(1) }, 0, RiskLevel::High)]
fn four_points_are_high_and_two_are_medium(
    #[case] plan: PlanSummary,
    #[case] warnings: u16,
    #[case] level: RiskLevel,
) {
    let risk = assess(&plan, warnings, &without_thresholds());
    assert_eq!(risk.level, level);
    assert!(risk.factors.iter().all(|(_, weight)| matches!(weight, FactorEffect::Points(_))));
}

#[test]
fn the_risk_lists_its_factors() {
    let plan = PlanSummary { file_count: 6, critical_file_count: 1, ..plan(1) };
    let risk = assess(&plan, 1, &Rules::default());
    assert_eq!(risk.level, RiskLevel::High);
    assert_eq!(
        risk.factors,
        [
            (RiskFactor::Files, FactorEffect::Points(1)),
            (RiskFactor::Warnings, FactorEffect::Points(1)),
            (RiskFactor::CriticalFiles, FactorEffect::Points(2)),
        ]
    );
}

#[rstest]
#[case::files(PlanSummary { file_count: 6, ..plan(1) }, RiskLevel::Medium, RiskFactor::FilesThreshold)]
#[case::files(PlanSummary { file_count: 11, ..plan(1) }, RiskLevel::High, RiskFactor::FilesThreshold)]
#[case::complexity(PlanSummary { complexity_score: 5, ..plan(1) }, RiskLevel::Medium, RiskFactor::ComplexityThreshold)]
#[case::complexity(PlanSummary { complexity_score: 9, ..plan(1) }, RiskLevel::High, RiskFactor::ComplexityThreshold)]
#[case::cost(costing(101), RiskLevel::Medium, RiskFactor::CostThreshold)]
#[case::cost(costing(501), RiskLevel::High, RiskFactor::CostThreshold)]
fn the_configured_thresholds_raise_the_level(
    #[case] plan: PlanSummary,
    #[case] level: RiskLevel,
    #[case] factor: RiskFactor,
) {
    let risk = assess(&plan, 0, &Rules::default());
    assert_eq!(risk.level, level);
    assert!(risk.factors.contains(&(factor, FactorEffect::AtLeast(level))), "{risk:?}");
}

fn costing(cents: u32) -> PlanSummary {
    PlanSummary { estimated_cost: Some(Usd::from_cents(cents)), ..plan(1) }
}

#[rstest]
#[case(plan(1))]
#[case(costing(100))]
#[case(PlanSummary { file_count: 5, ..plan(1) })]
#[case(PlanSummary { complexity_score: 4, ..plan(1) })]
fn values_up_to_the_thresholds_do_not_raise_the_level(#[case] plan: PlanSummary) {
    assert_eq!(assess(&plan, 0, &Rules::default()).level, RiskLevel::Low);
}

#[test]
fn the_thresholds_never_lower_the_level() {
    let plan =
        PlanSummary { file_count: 11, complexity_score: 9, critical_file_count: 3, ..plan(1) };
    assert_eq!(assess(&plan, 1, &without_thresholds()).level, RiskLevel::High);
}

#[test]
fn critical_files_are_those_the_configuration_names() {
    let rules = Rules::default();
    let paths = ["tamma.yaml", "src/auth/login.rs", "Cargo.lock", "src/main.rs", "docs/x.md"];
    assert_eq!(count_critical_files(paths, &rules), 3);
    assert!(is_critical("deploy/Dockerfile", &rules));
    assert!(!is_critical("src/main.rs", &rules));
}

#[test]
fn an_invalid_glob_is_ignored_and_the_others_still_match() {
    // Loading refuses such rules; this is the second line of defence.
    let mut rules = Rules::default();
    rules.scrum_master.risk_thresholds.critical_files.insert(0, "a[".to_owned());
    assert!(is_critical("tamma.yaml", &rules));
}

// Requirements

fn check(level: RiskLevel, blockers: u16) -> PlanAssessment {
    PlanAssessment { risk: Risk { level, score: 0, factors: Vec::new() }, blockers, warnings: 0 }
}

#[rstest]
#[case::low_is_automatic(check(RiskLevel::Low, 0), false, ApprovalRequirement::Automatic)]
#[case::medium_asks(check(RiskLevel::Medium, 0), false, ApprovalRequirement::Approvers(1))]
#[case::high_asks(check(RiskLevel::High, 0), false, ApprovalRequirement::Approvers(1))]
#[case::a_blocker_blocks(check(RiskLevel::Low, 1), false, ApprovalRequirement::Blocked)]
#[case::an_override_still_asks(check(RiskLevel::Low, 1), true, ApprovalRequirement::Approvers(1))]
fn the_level_decides_who_approves(
    #[case] check: PlanAssessment,
    #[case] overridden: bool,
    #[case] ruling: ApprovalRequirement,
) {
    assert_eq!(approval_requirement(&check, overridden, &Rules::default()), ruling);
}

#[test]
fn low_risk_needs_approval_if_automatic_approval_is_off() {
    let mut rules = Rules::default();
    rules.scrum_master.task_loop.auto_approve_low_risk = false;
    assert_eq!(
        approval_requirement(&check(RiskLevel::Low, 0), false, &rules),
        ApprovalRequirement::Approvers(1)
    );
}

// In the state machine

#[test]
fn low_risk_is_approved_automatically_and_that_is_recorded() {
    let mut world = World::new().to(State::AwaitingApproval);
    world.done(QUIET);
    assert_eq!(world.it.state, State::Validated);
    assert!(world.has_entry(EntryName::SmApprovalAuto));
    assert_eq!(world.it.approved_scope, world.it.current_scope());
    assert!(matches!(world.started_job(), Some(Job::Implement(_))));
}

#[test]
fn medium_risk_asks_a_person_and_waits() {
    let mut world = asking();
    assert_eq!(world.it.state, State::AwaitingApproval);
    assert_eq!(world.started_job(), None);
    let [alert] = world.alerts()[..] else { panic!("one alert") };
    assert_eq!(alert.kind, AlertKind::ApprovalNeeded);
    assert_eq!(alert.cause, AlertCause::ApprovalNeeded { risk: RiskLevel::Medium, approvers: 1 });
    assert_eq!(alert.question, Some(1));
    assert!(world.has_entry(EntryName::SmApprovalRequested));
    // Without an answer it waits and reminds, without a time limit.
    world.tick_at(60 * 24 * 30);
    assert_eq!(world.it.state, State::AwaitingApproval);
    assert_eq!(world.it.approved_scope, None);
}

#[test]
fn a_named_person_approves_exactly_what_they_saw() {
    let mut world = asking();
    world.now = minute(7);
    let scope = world.binding();
    world.ask(Action::Approve { scope, reason: Some(text("looks right")) });
    assert_eq!(world.it.state, State::Validated);
    let [approval] = &world.it.approvals[..] else { panic!("one approval") };
    assert_eq!((approval.by.as_str(), approval.at, approval.scope), ("ann", minute(7), scope));
    let last = world.log.last().unwrap();
    let data = EntryData::Approval { scope, risk: RiskLevel::Medium };
    assert_eq!((last.name, &last.data), (EntryName::SmApprovalGranted, &data));
    assert_eq!(last.reason.as_deref(), Some("looks right"));
}

#[rstest]
#[case::plan(ApprovalScope { plan: PlanHash::of(b"x"), pin: pin(1) }, ScopeChange::Plan, "the plan has changed since you saw it; review it again")]
#[case::base(ApprovalScope { plan: plan(1).hash, pin: Pin { base: commit(7), ..pin(1) } }, ScopeChange::Base, "the base commit has changed since you saw it; review it again")]
#[case::prompts(ApprovalScope { plan: plan(1).hash, pin: Pin { prompts: Some(Digest::of(b"x")), ..pin(1) } }, ScopeChange::Prompts, "the prompts have changed since you saw it; review it again")]
#[case::rules(ApprovalScope { plan: plan(1).hash, pin: Pin { policy: PolicyVersion::of(b"x"), ..pin(1) } }, ScopeChange::Policy, "the rules have changed since you saw it; review it again")]
fn approving_an_outdated_scope_is_refused_with_the_reason(
    #[case] seen: ApprovalScope,
    #[case] drift: ScopeChange,
    #[case] message: &str,
) {
    let mut world = asking();
    let refused = world.try_ask("ann", Action::Approve { scope: seen, reason: None }).unwrap_err();
    assert_eq!(refused, Refusal::ScopeChanged(drift));
    assert_eq!(refused.to_string(), message);
}

#[test]
fn nothing_can_be_decided_before_the_check_has_ended() {
    let mut world = World::new().to(State::AwaitingApproval);
    let scope = world.binding();
    let state = State::AwaitingApproval;
    for (action, name) in [
        (Action::Approve { scope, reason: None }, "approve"),
        (Action::Reject { scope, reason: reason() }, "reject"),
        (Action::RevisePlan { scope, changes: note() }, "revise the plan"),
    ] {
        let refused = world.try_ask("ann", action);
        assert_eq!(refused, Err(Refusal::WrongState { state, action: name.to_owned() }));
    }
}

#[test]
fn only_a_plan_awaiting_approval_can_be_approved() {
    let mut world = World::new().to(State::Testing);
    let scope = world.binding();
    let refused = world.try_ask("ann", Action::Approve { scope, reason: None });
    let state = State::Testing;
    assert_eq!(refused, Err(Refusal::WrongState { state, action: "approve".to_owned() }));
}

#[test]
fn two_approvers_are_two_people() {
    let mut rules = Rules::default();
    rules.ceremony.medium.approvers = 2;
    let mut world = asking_under(rules);
    let scope = world.binding();
    world.ask(Action::Approve { scope, reason: None });
    assert_eq!(world.it.state, State::AwaitingApproval);
    assert!(world.has_entry(EntryName::SmApprovalGranted));
    let twice = world.try_ask("ann", Action::Approve { scope, reason: None });
    assert_eq!(twice, Err(Refusal::AlreadyApproved));
    world.try_ask("bo", Action::Approve { scope, reason: None }).unwrap();
    assert_eq!(world.it.state, State::Validated);
}

#[test]
fn a_rejected_plan_goes_to_a_person_with_its_reason() {
    let mut world = asking();
    let scope = world.binding();
    world.ask(Action::Reject { scope, reason: text("too big") });
    assert_eq!(world.it.state, State::HumanEscalation);
    assert_eq!(world.it.open_question.as_ref().unwrap().cause, AlertCause::Rejected);
    let denied = world.log.iter().find(|entry| entry.name == EntryName::SmApprovalDenied).unwrap();
    assert_eq!(denied.reason.as_deref(), Some("too big"));
    assert_eq!(denied.data, EntryData::Approval { scope, risk: RiskLevel::Medium });
    world.ask(Action::Retry { grant: Grant::default() });
    assert_eq!(world.it.state, State::Planning);
}

#[test]
fn a_person_can_revise_the_plan() {
    let mut world = asking();
    let scope = world.binding();
    world.ask(Action::RevisePlan { scope, changes: text("changes") });
    assert_eq!(world.it.state, State::Planning);
    assert_eq!((world.it.approved_scope, world.it.plan_assessment.clone()), (None, None));
    let revised = Job::Plan { version: 2, from: Some(text("plan")), note: Some(text("changes")) };
    assert_eq!(world.started_job(), Some(&revised));
    assert!(world.has_entry(EntryName::SmChangesRequested));
}

#[test]
fn a_critical_prohibition_blocks_the_plan() {
    let mut world = World::new().to(State::AwaitingApproval);
    world.done(BLOCKED);
    assert_eq!(world.it.state, State::HumanEscalation);
    let [alert] = world.alerts()[..] else { panic!("one alert") };
    assert_eq!((alert.kind, alert.severity), (AlertKind::TaskBlocked, AlertSeverity::Critical));
    assert_eq!(alert.cause, AlertCause::Blocked(2));
    assert_eq!(world.log[world.log.len() - 2].trigger, Some(Trigger::Blocked));
}

#[test]
fn a_person_can_override_a_prohibition_with_a_reason_and_must_still_approve() {
    let mut world = World::new().to(State::AwaitingApproval);
    world.done(BLOCKED);
    let scope = world.binding();
    world.ask(Action::Override { scope, reason: text("it is an emergency") });
    assert_eq!(world.it.state, State::AwaitingApproval);
    let last = world.log.last().unwrap();
    assert_eq!(last.name, EntryName::SmOverridden);
    assert_eq!(last.reason.as_deref(), Some("it is an emergency"));
    assert_eq!(last.data, EntryData::Approval { scope, risk: RiskLevel::Low });
    world.done(BLOCKED);
    assert_eq!(world.it.state, State::AwaitingApproval);
    world.ask(Action::Approve { scope, reason: None });
    assert_eq!(world.it.state, State::Validated);
}

#[test]
fn an_override_holds_for_one_plan_only() {
    let mut world = World::new().to(State::AwaitingApproval);
    world.done(BLOCKED);
    let scope = world.binding();
    world.ask(Action::Override { scope, reason: reason() });
    world.ask(Action::ChangeTask { request: note() }).done(Outcome::Interrupted);
    world.done(Outcome::Planned(plan(2))).done(BLOCKED);
    assert_eq!(world.it.state, State::HumanEscalation);
    // A changed plan would need another override, even with the same text.
    assert_eq!(world.it.overridden_plan, None);
}

#[test]
fn an_override_covers_the_seen_scope_of_a_blocked_plan() {
    let mut world = World::new().to(State::AwaitingApproval);
    world.done(BLOCKED);
    let scope = ApprovalScope { plan: PlanHash::of(b"x"), ..world.binding() };
    let refused = world.try_ask("ann", Action::Override { scope, reason: reason() });
    assert_eq!(refused, Err(Refusal::ScopeChanged(ScopeChange::Plan)));
    let mut world = asking();
    let scope = world.binding();
    let refused = world.try_ask("ann", Action::Override { scope, reason: reason() });
    let state = State::AwaitingApproval;
    assert_eq!(refused, Err(Refusal::WrongState { state, action: "override".to_owned() }));
}

#[test]
fn a_blocked_plan_can_be_checked_again() {
    let mut world = World::new().to(State::AwaitingApproval);
    world.done(BLOCKED).ask(Action::Retry { grant: Grant::default() });
    assert_eq!(world.it.state, State::AwaitingApproval);
    world.done(QUIET);
    assert_eq!(world.it.state, State::Validated);
}

// Voided approvals

#[rstest]
#[case(State::Validated)]
#[case(State::InProgress)]
fn a_change_of_base_or_rules_voids_the_approval_and_stops_the_run(#[case] state: State) {
    let mut world = World::new().to(state);
    let job_number = world.it.active_job.unwrap().job_number;
    world.feed(Actor::Tamma, EventKind::PinChanged(pin(2))).unwrap();
    assert_eq!(world.it.state, State::AwaitingApproval);
    assert_eq!(world.commands, [Command::StopJob { job_number, reason: StopReason::Superseded }]);
    assert!(!world.it.is_approved());
    assert!(world.has_entry(EntryName::SmApprovalVoided));
    world.done(Outcome::Interrupted);
    assert!(matches!(world.started_job(), Some(Job::Check { .. })));
}

#[test]
fn a_change_while_people_decide_asks_them_again() {
    let mut rules = Rules::default();
    rules.ceremony.medium.approvers = 2;
    let mut world = asking_under(rules);
    let old = world.binding();
    world.ask(Action::Approve { scope: old, reason: None });
    world.feed(Actor::Tamma, EventKind::PinChanged(pin(2))).unwrap();
    assert_eq!((world.it.state, world.it.open_question.as_ref()), (State::AwaitingApproval, None));
    assert_eq!(world.commands[0], Command::CloseQuestion { question_number: 1 });
    assert!(matches!(world.started_job(), Some(Job::Check { .. })));
    assert!(world.it.approvals.is_empty());
    let refused = world.try_ask("bo", Action::Approve { scope: old, reason: None });
    assert_eq!(refused, Err(Refusal::ScopeChanged(ScopeChange::Base)));
}

#[test]
fn a_change_during_the_check_checks_again() {
    let mut world = World::new().to(State::AwaitingApproval);
    let job_number = world.it.active_job.unwrap().job_number;
    world.feed(Actor::Tamma, EventKind::PinChanged(pin(2))).unwrap();
    assert_eq!(world.commands, [Command::StopJob { job_number, reason: StopReason::Superseded }]);
}

#[test]
fn a_change_under_review_lets_the_review_finish_and_the_next_run_needs_a_new_approval() {
    let mut world = World::new().to(State::Testing);
    world.feed(Actor::Tamma, EventKind::PinChanged(pin(2))).unwrap();
    assert_eq!((world.it.state, world.commands.len()), (State::Testing, 0));
    assert!(world.has_entry(EntryName::SmApprovalVoided));
    world.done(crate::world::red(1)).done(Outcome::Briefed(note()));
    assert_eq!(world.it.state, State::AwaitingApproval);
    assert_eq!(world.log.last().unwrap().trigger, Some(Trigger::ApprovalVoided));
    world.walk(State::InProgress);
    assert_eq!(world.it.approved_scope.unwrap().pin, pin(2));
}

#[test]
fn continuing_after_an_alert_needs_a_valid_approval() {
    let mut world = World::new().to(State::InProgress);
    for _ in 0..2 {
        world.done(crate::world::failure(tamma_core::failure::FailureKind::Unavailable)).start();
    }
    world.done(crate::world::failure(tamma_core::failure::FailureKind::Unavailable));
    world.done(Outcome::WorkSaved);
    world.feed(Actor::Tamma, EventKind::PinChanged(pin(2))).unwrap();
    world.ask(Action::Continue { grant: Grant::default() });
    assert_eq!(world.it.state, State::AwaitingApproval);
    assert!(matches!(world.started_job(), Some(Job::Check { .. })));
}

#[test]
fn a_run_that_was_not_approved_does_not_start() {
    let mut world = World::new().to(State::Validated);
    world.it.approved_scope = None;
    let job_number = world.it.active_job.unwrap().job_number;
    let started = EventKind::RunStarted { job_number, agent: text("engine") };
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
    assert_eq!(world.it.current_scope(), None);
}

// Other effects of the risk level

#[test]
fn the_level_sets_reviewers_gates_tier_and_budget() {
    let mut rules = Rules::default();
    rules.ceremony.medium.first_tier = Tier::Complex;
    rules.ceremony.medium.human_review = true;
    rules.ceremony.medium.budget_usd = Some(Usd::from_cents(1_234));
    let mut world = asking_under(rules);
    let scope = world.binding();
    world.ask(Action::Approve { scope, reason: None });
    let Some(Job::Implement(run_spec)) = world.started_job() else { panic!("a run") };
    assert_eq!(run_spec.tier, Tier::Complex);
    assert_eq!(run_spec.allowance.usd, Some(Usd::from_cents(1_234)));
    world.walk(State::Testing);
    let test = Job::Test { commit: commit(9), risk: RiskLevel::Medium };
    assert_eq!(world.started_job(), Some(&test));
    world.done(crate::world::green()).done(crate::world::passed());
    assert_eq!(world.it.open_question.as_ref().unwrap().cause, AlertCause::ReviewNeeded);
}

#[test]
fn disabled_alerts_are_not_sent_but_the_question_stays_open() {
    let mut rules = Rules::default();
    rules.scrum_master.alerts.on_approval_needed = false;
    rules.scrum_master.alerts.on_block = false;
    let world = asking_under(rules.clone());
    assert!(world.alerts().is_empty());
    assert!(world.it.open_question.is_some());
    let mut world = World::with_rules(rules).to(State::AwaitingApproval);
    world.done(BLOCKED);
    assert!(world.alerts().is_empty());
}

// Edits by a person

fn adjust(world: &World, plan: PlanSummary) -> Action {
    let (scope, adjustments) = (world.binding(), note());
    Action::AdjustPlan { scope, plan: Box::new(plan), adjustments, reason: reason() }
}

#[test]
fn an_edited_plan_is_checked_and_approved_like_any_other() {
    let mut world = asking();
    let before = world.binding();
    let edited = PlanSummary { file_count: 3, critical_file_count: 1, ..plan(2) };
    world.ask(adjust(&world, edited.clone()));
    assert_eq!(world.it.state, State::AwaitingApproval);
    assert_eq!(world.it.plan, Some(edited.clone()));
    assert!(world.it.open_question.is_none() && world.it.plan_assessment.is_none());
    assert!(matches!(world.commands[0], Command::CloseQuestion { .. }));
    assert!(
        matches!(&world.commands[1], Command::StartJob { job: Job::Check { plan }, .. } if *plan == edited)
    );
    let [.., requested, adjusted] = &world.log[..] else { panic!("two entries") };
    assert_eq!(requested.name, EntryName::SmChangesRequested);
    assert_eq!(requested.reason.as_deref(), Some(reason().as_str()));
    assert!(matches!(&requested.data, EntryData::Approval { scope, .. } if *scope == before));
    assert_eq!(adjusted.name, EntryName::SmPlanAdjusted);
    assert_eq!(adjusted.data, EntryData::Adjusted { plan: edited, adjustments: note() });
    // The old approval does not cover the edited plan.
    let stale = Action::Approve { scope: before, reason: None };
    assert!(world.try_ask("ann", stale).is_err());
    world.done(Outcome::Checked { blockers: 0, warnings: 1 });
    let scope = world.binding();
    world.ask(Action::Approve { scope, reason: None });
    assert_eq!(world.it.state, State::Validated);
}

#[test]
fn an_edited_plan_is_the_next_version_and_differs() {
    let mut world = asking();
    let found = adjust(&world, plan(3));
    let expected = Refusal::PlanVersion { found: 3, expected: 2 };
    assert_eq!(world.try_ask("ann", found), Err(expected));
    let same = adjust(&world, PlanSummary { hash: world.binding().plan, ..plan(2) });
    assert_eq!(world.try_ask("ann", same), Err(Refusal::PlanUnchanged(1)));
    let mut checking = World::new().to(State::AwaitingApproval);
    let early = adjust(&checking, plan(2));
    assert!(matches!(checking.try_ask("ann", early), Err(Refusal::WrongState { .. })));
}

#[test]
fn a_persons_edit_is_no_retry_in_the_metrics() {
    let mut world = asking();
    world.ask(adjust(&world, plan(2)));
    let world = world.to(State::Completed);
    let timed = world
        .log
        .iter()
        .map(|entry| tamma_core::metrics::TimedEntry { entry, recorded_at: entry.at });
    assert_eq!(tamma_core::metrics::compute(timed).retries_per_100_tasks, Some(0));
}
