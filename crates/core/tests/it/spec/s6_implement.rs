//! Section 6: implement.

use rstest::rstest;
use tamma_core::actor::Actor;
use tamma_core::budget::{self, Grant, Reservation, Spend, SpendLimit, estimate_run_cost, reserve};
use tamma_core::cause::AlertCause;
use tamma_core::cost::{Cost, Tokens, Usage, Usd};
use tamma_core::failure::FailureKind;
use tamma_core::history::{EntryData, EntryName};
use tamma_core::level::RiskLevel;
use tamma_core::plan::PlanSummary;
use tamma_core::rules::{HaltCondition, Rules};
use tamma_core::task_loop::{
    Action, AlertKind, AlertSeverity, Command, EventKind, Job, NextStep, Outcome, Refusal, RunSpec,
    State, Trigger,
};
use tamma_core::tier::Tier;

use crate::world::{World, commit, costing, failure, minute, note, pin, plan, text};

fn run_spec(world: &World) -> &RunSpec {
    match world.started_job() {
        Some(Job::Implement(run_spec)) => run_spec,
        other => panic!("expected a run, got {other:?}"),
    }
}

// Run

#[test]
fn a_run_gets_the_approved_plan_its_base_and_its_limits() {
    let world = World::new().to(State::Validated);
    assert_eq!(
        run_spec(&world),
        &RunSpec {
            tier: Tier::Simple,
            iteration: 1,
            plan: plan(1),
            pin: pin(1),
            brief: None,
            timeout_seconds: 3_600,
            allowance: SpendLimit { usd: Some(Usd::from_cents(5_000)), tokens: None },
        }
    );
}

#[test]
fn a_run_is_in_progress_once_an_agent_has_started_it() {
    let mut world = World::new().to(State::Validated);
    world.start();
    assert_eq!(world.it.state, State::InProgress);
    assert_eq!(world.commands, []);
    let last = world.log.last().unwrap();
    assert_eq!(last.name, EntryName::SmImplementationStarted);
    assert_eq!(last.data, EntryData::Agent(text("engine-1")));
}

#[test]
fn an_agent_is_never_started_twice() {
    let mut world = World::new().to(State::InProgress);
    let job_number = world.it.active_job.unwrap().job_number;
    let again = EventKind::RunStarted { job_number, agent: text("engine-2") };
    let refused = world.feed(Actor::Tamma, again);
    assert_eq!(
        refused,
        Err(Refusal::StaleResult { found: job_number, expected: Some(job_number) })
    );
    let mut world = World::new().to(State::Validated);
    let other = EventKind::RunStarted { job_number: job_number + 5, agent: text("engine-2") };
    assert!(matches!(world.feed(Actor::Tamma, other), Err(Refusal::StaleResult { .. })));
}

#[test]
fn a_finished_run_is_verified_by_the_gates() {
    let mut world = World::new().to(State::InProgress);
    world.done(Outcome::RunFinished(commit(4)));
    assert_eq!(world.it.state, State::Testing);
    assert_eq!((world.it.commit, world.it.iterations), (Some(commit(4)), 1));
    assert!(
        matches!(world.started_job(), Some(Job::Test { commit: exact, .. }) if *exact == commit(4))
    );
}

#[test]
fn the_limit_of_a_run_is_the_smaller_of_the_two_configured() {
    let world = World::with(|rules| rules.scrum_master.task_loop.timeout_ms = 60_000);
    assert_eq!(run_spec(&world.to(State::Validated)).timeout_seconds, 60);
    let world = World::with(|rules| rules.scrum_master.task_loop.timeouts.implementation = 300);
    assert_eq!(run_spec(&world.to(State::Validated)).timeout_seconds, 300);
}

// Agent failures are not quality failures.

#[rstest]
#[case(FailureKind::Crashed)]
#[case(FailureKind::Unavailable)]
fn a_failed_agent_is_retried_with_backoff_and_is_not_a_failed_review(#[case] kind: FailureKind) {
    let mut world = World::new().to(State::InProgress);
    world.done(failure(kind.clone()));
    assert_eq!(world.it.state, State::Validated);
    assert_eq!((world.it.iterations, world.it.tier_failures), (0, 0));
    let again = world.it.active_job.unwrap().not_before.unwrap();
    assert_eq!((again - world.now).num_seconds(), 30);
    let last = world.log.last().unwrap();
    assert_eq!(
        (last.name, &last.data),
        (EntryName::SmImplementationFailed, &EntryData::Failure(kind))
    );
    assert_eq!(last.reason.as_deref(), Some("it broke"));
}

#[test]
fn three_agent_failures_save_the_work_and_ask_a_person() {
    let mut world = World::new().to(State::InProgress);
    for _ in 0..2 {
        world.done(failure(FailureKind::Unavailable)).start();
    }
    world.done(failure(FailureKind::Unavailable));
    assert_eq!(world.it.state, State::HumanEscalation);
    let question = world.it.open_question.as_ref().unwrap();
    assert_eq!(
        (question.cause, question.resume_state),
        (AlertCause::AgentFailed, State::Validated)
    );
    assert_eq!(world.started_job(), Some(&Job::SaveWork));
    assert_eq!(world.alerts()[0].kind, AlertKind::Error);
}

#[test]
fn an_unavailable_agent_is_a_failure_too() {
    let mut world = World::new().to(State::Validated);
    for _ in 0..2 {
        world.done(failure(FailureKind::Unavailable));
        assert_eq!(world.it.state, State::Validated);
    }
    world.done(failure(FailureKind::TimedOut));
    assert_eq!(world.it.state, State::CtoIntervention);
}

#[test]
fn a_started_run_resets_the_count_of_failed_starts() {
    let mut world = World::new().to(State::Validated);
    world.done(failure(FailureKind::Unavailable)).done(failure(FailureKind::Unavailable)).start();
    assert!(world.it.failures.is_empty());
}

#[test]
fn a_timeout_is_retried_once_with_a_longer_limit() {
    let mut world = World::new().to(State::InProgress);
    world.done(failure(FailureKind::TimedOut));
    assert_eq!(world.it.state, State::Validated);
    assert_eq!(run_spec(&world).timeout_seconds, 7_200);
    assert_eq!(world.it.active_job.unwrap().not_before, None);
    world.start().done(failure(FailureKind::TimedOut));
    assert_eq!(world.it.state, State::HumanEscalation);
    assert_eq!(world.it.open_question.as_ref().unwrap().cause, AlertCause::AgentTimedOut);
    assert_eq!(world.alerts()[0].kind, AlertKind::Timeout);
    world.done(Outcome::WorkSaved).ask(Action::Continue { grant: Grant::default() });
    assert_eq!(run_spec(&world).timeout_seconds, 3_600);
}

#[test]
fn a_finished_run_resets_the_count_of_timeouts() {
    let mut world = World::new().to(State::InProgress);
    world.done(failure(FailureKind::TimedOut)).start().done(Outcome::RunFinished(commit(4)));
    assert_eq!(world.it.timeouts, 0);
}

// Quota

fn out_of_quota() -> Outcome {
    failure(FailureKind::Quota { provider: text("acme"), until: minute(200) })
}

#[test]
fn a_used_up_quota_returns_the_task_to_validated_and_blocks_the_provider() {
    let mut world = World::new().to(State::InProgress);
    world.done(out_of_quota());
    assert_eq!(world.it.state, State::Validated);
    let until = minute(200);
    assert_eq!(world.commands[0], Command::BlockProvider { provider: text("acme"), until });
    assert!(
        matches!(&world.commands[1], Command::StartJob { not_before: Some(at), .. } if *at == until)
    );
    assert_eq!(
        world.it.next_step(&world.rules),
        Some(NextStep::Quota { provider: text("acme"), until })
    );
    assert_eq!(world.log.last().unwrap().trigger, Some(Trigger::QuotaReached));
}

#[test]
fn a_used_up_quota_is_never_a_failure() {
    let mut world = World::new().to(State::InProgress);
    for _ in 0..20 {
        world.done(out_of_quota()).start();
    }
    assert_eq!(world.it.state, State::InProgress);
    assert!(world.it.failures.is_empty());
}

#[test]
fn waiting_for_a_quota_does_not_count_towards_the_soft_timeout() {
    let mut world = World::new().to(State::InProgress);
    world.done(out_of_quota());
    assert_eq!(world.it.wake_at(&world.rules), Some(minute(200 + 12)));
}

#[rstest]
#[case(State::Validated, EntryName::SmQuotaReached)]
#[case(State::Planning, EntryName::SmQuotaReached)]
fn any_other_job_without_quota_waits_in_its_state(#[case] state: State, #[case] name: EntryName) {
    let mut world = World::new().to(state);
    world.done(out_of_quota());
    assert_eq!(world.it.state, state);
    assert_eq!(world.it.active_job.unwrap().not_before, Some(minute(200)));
    assert_eq!(world.log.last().unwrap().name, name);
}

#[test]
fn a_quota_reset_in_the_past_still_waits_for_the_backoff() {
    let mut world = World::new().to(State::InProgress);
    world.now = minute(300);
    world.done(out_of_quota());
    let again = world.it.active_job.unwrap().not_before.unwrap();
    assert_eq!((again - minute(300)).num_seconds(), 30);
}

#[test]
fn a_pause_keeps_the_wait_for_a_quota() {
    let mut world = World::new().to(State::InProgress);
    world.done(out_of_quota()).ask(Action::Pause).done(Outcome::Interrupted).ask(Action::Resume);
    assert_eq!(world.it.active_job.unwrap().not_before, Some(minute(200)));
}

#[test]
fn the_wait_is_over_when_the_run_starts() {
    let mut world = World::new().to(State::InProgress);
    world.done(out_of_quota());
    world.now = minute(200);
    world.start();
    assert_eq!((world.it.quota.as_ref(), world.it.not_before), (None, None));
    assert_eq!(world.it.active_job.unwrap().not_before, None);
}

// Money

#[rstest]
#[case("2.50", Some("$2.5"))]
#[case(" 3 ", Some("$3"))]
#[case("0", Some("$0"))]
#[case("-0", Some("$0"))]
#[case("-1", None)]
#[case("much", None)]
fn money_is_decimal_and_never_negative(#[case] text: &str, #[case] expected: Option<&str>) {
    let amount = text.parse::<Usd>();
    assert_eq!(amount.as_ref().ok().map(ToString::to_string).as_deref(), expected);
    if let Err(error) = amount {
        assert!(error.to_string().contains("use a non-negative number such as 2.50"));
    }
}

#[rstest]
#[case("\"2.5\"")]
#[case("2.5")]
fn money_is_parsed_from_a_number_or_a_string_and_serialised_as_a_string(#[case] json: &str) {
    let amount: Usd = serde_json::from_str(json).unwrap();
    assert_eq!(amount, Usd::from_cents(250));
    assert_eq!(serde_json::to_string(&Usd::from_cents(250)).unwrap(), "\"2.50\"");
    assert_eq!(serde_json::from_str::<Usd>("3").unwrap(), Usd::from_cents(300));
    assert!(serde_json::from_str::<Usd>("-3").is_err());
    let wrong = serde_json::from_str::<Usd>("[]").unwrap_err();
    assert!(wrong.to_string().contains("a dollar amount such as 2.50"));
}

#[test]
fn money_adds_up() {
    assert_eq!(Usd::from_cents(5).saturating_sub(Usd::from_cents(3)), Usd::from_cents(2));
    assert_eq!(Usd::from_cents(3).saturating_sub(Usd::from_cents(5)), Usd::ZERO);
    assert_eq!(Usd::from_cents(500).percent(80), Usd::from_cents(400));
    assert_eq!(Usd::from_cents(500).checked_div(2), Some(Usd::from_cents(250)));
    assert_eq!(Usd::from_cents(500).checked_div(0), None);
    let mut sum = Usd::from_cents(1);
    sum += Usd::from_cents(2);
    assert_eq!(sum, Usd::from_cents(3));
}

#[test]
fn unknown_cost_is_never_zero() {
    let mut spend = Spend::default();
    let tokens = Tokens { input: 5, output: 2, ..Tokens::default() };
    spend.record(Some(&Usage { tokens, cost: Cost::Unknown }), Usd::from_cents(40));
    assert_eq!(spend, Spend { usd: Usd::from_cents(40), tokens: 7, estimated: true });
    spend.record(None, Usd::from_cents(10));
    assert_eq!(spend.usd, Usd::from_cents(50));
    spend.record(Some(&costing(3)), Usd::from_cents(100));
    assert_eq!(spend.usd, Usd::from_cents(53));
    let mut nothing = Spend::default();
    nothing.record(None, Usd::ZERO);
    assert!(!nothing.estimated);
}

#[test]
fn a_run_of_unknown_cost_is_charged_its_reservation() {
    let mut world = World::new().to(State::InProgress);
    assert_eq!(world.it.active_job.unwrap().reserved_cost, Usd::from_cents(25));
    world.done_with_usage(None, Outcome::RunFinished(commit(4)));
    assert_eq!(world.it.spend.usd, Usd::from_cents(25));
    assert!(world.it.spend.estimated);
    assert_eq!(world.it.max_run_cost, None);
}

#[test]
fn the_next_run_is_estimated_at_the_highest_known_cost() {
    let rules = Rules::default();
    let dear = PlanSummary { estimated_cost: Some(Usd::from_cents(70)), ..plan(1) };
    assert_eq!(estimate_run_cost(Tier::Simple, None, None, &rules), Usd::from_cents(25));
    assert_eq!(estimate_run_cost(Tier::Moderate, None, None, &rules), Usd::from_cents(100));
    assert_eq!(estimate_run_cost(Tier::Simple, Some(&dear), None, &rules), Usd::from_cents(70));
    let last = Some(Usd::from_cents(90));
    assert_eq!(estimate_run_cost(Tier::Simple, Some(&dear), last, &rules), Usd::from_cents(90));
    assert_eq!(estimate_run_cost(Tier::Complex, Some(&dear), last, &rules), Usd::from_cents(400));
}

#[rstest]
#[case(0, 100, Reservation::Granted)]
#[case(0, 799, Reservation::Granted)]
#[case(0, 800, Reservation::Warned)]
#[case(900, 100, Reservation::Warned)]
#[case(900, 101, Reservation::Refused)]
fn money_is_reserved_warned_at_80_percent_and_refused_over_the_limit(
    #[case] spent: u32,
    #[case] next: u32,
    #[case] expected: Reservation,
) {
    let spend = Spend { usd: Usd::from_cents(spent), ..Spend::default() };
    let limit = SpendLimit { usd: Some(Usd::from_cents(1_000)), tokens: None };
    assert_eq!(reserve(&spend, Usd::from_cents(next), &limit, 80), expected);
    assert_eq!(
        reserve(&spend, Usd::from_cents(next), &SpendLimit::default(), 80),
        Reservation::Granted
    );
}

#[rstest]
#[case(79, Reservation::Granted)]
#[case(80, Reservation::Warned)]
#[case(99, Reservation::Warned)]
#[case(100, Reservation::Refused)]
fn tokens_are_limited_too(#[case] spent: u64, #[case] expected: Reservation) {
    let spend = Spend { tokens: spent, ..Spend::default() };
    let limit = SpendLimit { usd: None, tokens: Some(100) };
    assert_eq!(reserve(&spend, Usd::ZERO, &limit, 80), expected);
}

#[test]
fn the_limit_is_the_risk_levels_or_the_general_one_plus_grants() {
    let mut rules = Rules::default();
    rules.ceremony.high.budget_usd = Some(Usd::from_cents(900));
    rules.budget.task_tokens = Some(10);
    let none = Grant::default();
    assert_eq!(budget::task_limit(None, &none, &rules).usd, Some(Usd::from_cents(5_000)));
    assert_eq!(
        budget::task_limit(Some(RiskLevel::Low), &none, &rules).usd,
        Some(Usd::from_cents(5_000))
    );
    assert_eq!(
        budget::task_limit(Some(RiskLevel::High), &none, &rules).usd,
        Some(Usd::from_cents(900))
    );
    let more = Grant { iterations: 0, usd: Usd::from_cents(100), tokens: 5 };
    let limit = budget::task_limit(Some(RiskLevel::High), &more.plus(more), &rules);
    assert_eq!(limit, SpendLimit { usd: Some(Usd::from_cents(1_100)), tokens: Some(20) });
    rules.scrum_master.task_loop.cost_tracking = false;
    let limit = budget::task_limit(Some(RiskLevel::High), &none, &rules);
    assert_eq!(limit, SpendLimit { usd: None, tokens: Some(10) });
}

#[test]
fn the_remaining_budget_is_never_negative() {
    let spend = Spend { usd: Usd::from_cents(70), tokens: 7, estimated: false };
    let limit = SpendLimit { usd: Some(Usd::from_cents(100)), tokens: Some(10) };
    let remaining = SpendLimit { usd: Some(Usd::from_cents(30)), tokens: Some(3) };
    assert_eq!(budget::remaining(&spend, &limit), remaining);
    let limit = SpendLimit { usd: Some(Usd::from_cents(10)), tokens: Some(1) };
    let nothing = SpendLimit { usd: Some(Usd::ZERO), tokens: Some(0) };
    assert_eq!(budget::remaining(&spend, &limit), nothing);
}

#[test]
fn grants_add_up() {
    let one = Grant { iterations: 1, usd: Usd::from_cents(2), tokens: 3 };
    assert_eq!(one.plus(one), Grant { iterations: 2, usd: Usd::from_cents(4), tokens: 6 });
}

// Hard limits in the state machine

fn poor(cents: u32) -> World {
    World::with(|rules| rules.budget.task_usd = Some(Usd::from_cents(cents)))
}

#[test]
fn a_run_that_does_not_fit_in_the_budget_is_not_started() {
    let mut world = poor(30).to(State::AwaitingApproval);
    world.it.spend.usd = Usd::from_cents(6);
    world.done(Outcome::Checked { blockers: 0, warnings: 0 });
    assert_eq!(world.it.state, State::HumanEscalation);
    let question = world.it.open_question.as_ref().unwrap();
    assert_eq!(question.cause, AlertCause::Halted(HaltCondition::BudgetExceeded));
    assert_eq!((question.from_state, question.resume_state), (State::Validated, State::Validated));
    let [alert] = world.alerts()[..] else { panic!("one alert") };
    assert_eq!(
        (alert.kind, alert.severity),
        (AlertKind::CostLimitWarning, AlertSeverity::Critical)
    );
    // Nothing has run, so there is nothing to save.
    assert_eq!(world.started_job(), None);
}

#[test]
fn the_budget_is_warned_at_80_percent_once() {
    let mut world = poor(200);
    world
        .walk(State::InProgress)
        .done_with_usage(Some(costing(80)), Outcome::RunFinished(commit(4)));
    world.done(crate::world::green());
    // A review is estimated at one dollar: 180 of 200 cents is over 80%.
    let warnings: Vec<_> = world.alerts().iter().map(|alert| alert.cause).collect();
    assert_eq!(warnings, [AlertCause::CostWarning]);
    assert!(matches!(world.started_job(), Some(Job::Review { .. })));
    world.ask(Action::Pause).done(Outcome::Interrupted).ask(Action::Resume);
    assert!(world.alerts().is_empty());
}

#[rstest]
#[case(State::InProgress, State::Validated)]
#[case(State::Planning, State::Planning)]
fn work_that_reaches_a_limit_is_saved(#[case] state: State, #[case] resume: State) {
    let mut world = World::new().to(state);
    world.done(failure(FailureKind::OverBudget));
    assert_eq!(world.it.state, State::HumanEscalation);
    let question = world.it.open_question.as_ref().unwrap();
    assert_eq!(question.cause, AlertCause::Halted(HaltCondition::BudgetExceeded));
    assert_eq!(question.resume_state, resume);
    let landing = world.started_job() == Some(&Job::SaveWork);
    assert_eq!(landing, state == State::InProgress);
}

#[test]
fn continuing_over_budget_needs_a_grant() {
    let mut world = poor(26).to(State::Planning);
    assert_eq!(world.it.state, State::Planning);
    world.done_with_usage(Some(costing(2)), Outcome::Planned(plan(1)));
    world.done(Outcome::Checked { blockers: 0, warnings: 0 });
    assert_eq!(world.it.state, State::HumanEscalation);
    for action in [
        Action::Continue { grant: Grant::default() },
        Action::Retry { grant: Grant { iterations: 5, ..Grant::default() } },
    ] {
        assert_eq!(world.try_ask("ann", action), Err(Refusal::NeedsGrant));
    }
    let grant = Grant { usd: Usd::from_cents(100), ..Grant::default() };
    world.ask(Action::Continue { grant });
    assert_eq!(world.it.state, State::Validated);
    assert_eq!(run_spec(&world).allowance.usd, Some(Usd::from_cents(124)));
    assert!(!world.it.cost_warned);
}

#[test]
fn tokens_can_be_granted_instead_of_dollars() {
    let mut world = World::with(|rules| rules.budget.task_tokens = Some(10)).to(State::Validated);
    world.start();
    let tokens = Tokens { input: 10, ..Tokens::default() };
    let used = Usage { tokens, cost: Cost::Known(Usd::ZERO) };
    world.done_with_usage(Some(used), Outcome::RunFinished(commit(4))).done(crate::world::green());
    assert_eq!(world.it.state, State::HumanEscalation);
    world.done(Outcome::WorkSaved);
    world.ask(Action::Continue { grant: Grant { tokens: 100, ..Grant::default() } });
    assert_eq!(world.it.state, State::QualityReview);
}

#[test]
fn jobs_without_a_model_need_no_budget() {
    let mut world = poor(25).to(State::Planning);
    world.done_with_usage(Some(costing(25)), Outcome::Planned(plan(1)));
    assert!(matches!(world.started_job(), Some(Job::Check { .. })));
    assert_eq!(world.it.active_job.unwrap().reserved_cost, Usd::ZERO);
}

#[rstest]
#[case(State::Planning, 25)]
#[case(State::Validated, 25)]
#[case(State::QualityReview, 100)]
#[case(State::Testing, 0)]
#[case(State::Committing, 0)]
fn every_job_with_a_model_is_estimated_before_it_starts(#[case] state: State, #[case] cents: u32) {
    let world = World::new().to(state);
    assert_eq!(world.it.active_job.unwrap().reserved_cost, Usd::from_cents(cents));
}

#[test]
fn each_council_seat_is_estimated_at_its_tier() {
    let mut world = World::new().to(State::Planning);
    for _ in 0..3 {
        world.done(Outcome::PlanInvalid(note()));
    }
    assert_eq!(world.it.active_job.unwrap().reserved_cost, Usd::from_cents(100));
    world.done(Outcome::OpinionGiven(note()));
    assert_eq!(world.it.active_job.unwrap().reserved_cost, Usd::from_cents(400));
}

#[test]
fn an_expensive_run_raises_the_next_estimate() {
    let mut world = World::new().to(State::InProgress);
    world.done_with_usage(Some(costing(90)), Outcome::RunFinished(commit(4)));
    world.done(crate::world::red(1)).done(Outcome::Briefed(note()));
    assert_eq!(world.it.active_job.unwrap().reserved_cost, Usd::from_cents(90));
    world.start().done_with_usage(Some(costing(60)), Outcome::RunFinished(commit(4)));
    assert_eq!(world.it.max_run_cost, Some(Usd::from_cents(90)));
}

#[test]
fn the_cost_of_planning_does_not_raise_the_estimate_of_a_run() {
    let mut world = World::new().to(State::Planning);
    world.done_with_usage(Some(costing(300)), Outcome::Planned(plan(1)));
    assert_eq!(world.it.max_run_cost, None);
}

#[test]
fn after_the_last_iteration_no_run_starts() {
    // The review passes and delivery fails, which would need another run.
    let mut world = World::with(|rules| rules.scrum_master.task_loop.max_iterations = 1);
    world.walk(State::Committing).done(Outcome::DeliveryRejected(note()));
    world.done(Outcome::Briefed(note()));
    assert_eq!(world.it.state, State::HumanEscalation);
    let cause = AlertCause::Halted(HaltCondition::MaxIterationsReached);
    assert_eq!(world.it.open_question.as_ref().unwrap().cause, cause);
    assert_eq!(world.alerts()[0].kind, AlertKind::MaxRetriesExceeded);
    world.done(Outcome::WorkSaved);
    let none = Action::Continue { grant: Grant { usd: Usd::from_cents(9), ..Grant::default() } };
    assert_eq!(world.try_ask("ann", none), Err(Refusal::NeedsGrant));
    world.ask(Action::Continue { grant: Grant { iterations: 1, ..Grant::default() } });
    assert_eq!(run_spec(&world).iteration, 2);
}
