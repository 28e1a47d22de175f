//! Section 6: implement.

use std::collections::BTreeMap;

use rstest::rstest;
use tamma_core::actor::Actor;
use tamma_core::budget::{self, Grant, Limit, Reservation, Spend, price_run, reserve};
use tamma_core::cause::Cause;
use tamma_core::cost::{Cost, Price, Tokens, Usage, Usd, price};
use tamma_core::failure::FailureKind;
use tamma_core::level::Level;
use tamma_core::log::{EntryName, Fact};
use tamma_core::plan::Outline;
use tamma_core::rules::{HaltCondition, Rules};
use tamma_core::task_loop::{
    Action, AlertKind, Command, Job, Next, Order, Outcome, Refusal, Severity, State, Trigger, What,
};
use tamma_core::tier::Tier;

use crate::world::{World, commit, costing, failure, minute, note, pin, plan, text};

fn order(world: &World) -> &Order {
    match world.started() {
        Some(Job::Implement(order)) => order,
        other => panic!("a run was expected, not {other:?}"),
    }
}

// The run.

#[test]
fn an_engine_gets_the_approved_plan_its_base_its_limits_and_nothing_else() {
    let world = World::new().to(State::Validated);
    assert_eq!(
        order(&world),
        &Order {
            tier: Tier::Simple,
            iteration: 1,
            plan: plan(1),
            pin: pin(1),
            brief: None,
            seconds: 3_600,
            allowance: Limit { usd: Some(Usd::cents(5_000)), tokens: None },
        }
    );
}

#[test]
fn a_run_is_under_way_when_an_engine_has_taken_it_up() {
    let mut world = World::new().to(State::Validated);
    world.start();
    assert_eq!(world.it.state, State::InProgress);
    assert_eq!(world.commands, []);
    let last = world.log.last().unwrap();
    assert_eq!(last.name, EntryName::SmImplementationStarted);
    assert_eq!(last.data, Fact::Engine(text("engine-1")));
}

#[test]
fn an_engine_is_never_started_twice() {
    let mut world = World::new().to(State::InProgress);
    let ticket = world.it.work.unwrap().ticket;
    let again = What::Started { ticket, engine: text("engine-2") };
    let refused = world.feed(Actor::Tamma, again);
    assert_eq!(refused, Err(Refusal::Stale { found: ticket, expected: Some(ticket) }));
    let mut world = World::new().to(State::Validated);
    let other = What::Started { ticket: ticket + 5, engine: text("engine-2") };
    assert!(matches!(world.feed(Actor::Tamma, other), Err(Refusal::Stale { .. })));
}

#[test]
fn an_agent_that_says_done_is_only_believed_by_the_gates() {
    let mut world = World::new().to(State::InProgress);
    world.done(Outcome::RunFinished(commit(4)));
    assert_eq!(world.it.state, State::Testing);
    assert_eq!((world.it.commit, world.it.iterations), (Some(commit(4)), 1));
    assert!(
        matches!(world.started(), Some(Job::Test { commit: exact, .. }) if *exact == commit(4))
    );
}

#[test]
fn the_limit_of_a_run_is_the_smaller_of_the_two_configured() {
    let world = World::with(|rules| rules.scrum_master.task_loop.timeout_ms = 60_000);
    assert_eq!(order(&world.to(State::Validated)).seconds, 60);
    let world = World::with(|rules| rules.scrum_master.task_loop.timeouts.implementation = 300);
    assert_eq!(order(&world.to(State::Validated)).seconds, 300);
}

// Failures of the engine are not failures of quality.

#[rstest]
#[case(FailureKind::Crashed)]
#[case(FailureKind::Unavailable)]
fn an_engine_that_fails_is_retried_with_backoff_and_is_no_failed_review(#[case] kind: FailureKind) {
    let mut world = World::new().to(State::InProgress);
    world.done(failure(kind.clone()));
    assert_eq!(world.it.state, State::Validated);
    assert_eq!((world.it.iterations, world.it.tier_failures), (0, 0));
    let again = world.it.work.unwrap().not_before.unwrap();
    assert_eq!((again - world.now).num_seconds(), 30);
    let last = world.log.last().unwrap();
    assert_eq!((last.name, &last.data), (EntryName::SmImplementationFailed, &Fact::Failure(kind)));
    assert_eq!(last.reason.as_deref(), Some("it broke"));
}

#[test]
fn three_failures_of_the_engine_ask_a_person_and_land_the_work() {
    let mut world = World::new().to(State::InProgress);
    for _ in 0..2 {
        world.done(failure(FailureKind::Crashed)).start();
    }
    world.done(failure(FailureKind::Crashed));
    assert_eq!(world.it.state, State::HumanEscalation);
    let question = world.it.question.as_ref().unwrap();
    assert_eq!((question.cause, question.resume), (Cause::EngineFailed, State::Validated));
    assert_eq!(world.started(), Some(&Job::Land));
    assert_eq!(world.alerts()[0].kind, AlertKind::Error);
}

#[test]
fn no_engine_to_be_had_is_a_failure_too() {
    let mut world = World::new().to(State::Validated);
    for _ in 0..2 {
        world.done(failure(FailureKind::Unavailable));
        assert_eq!(world.it.state, State::Validated);
    }
    world.done(failure(FailureKind::TimedOut));
    assert_eq!(world.it.state, State::HumanEscalation);
    assert_eq!(world.it.question.as_ref().unwrap().cause, Cause::EngineFailed);
}

#[test]
fn an_engine_that_starts_ends_the_count_of_those_that_did_not() {
    let mut world = World::new().to(State::Validated);
    world.done(failure(FailureKind::Unavailable)).done(failure(FailureKind::Unavailable)).start();
    assert!(world.it.failures.is_empty());
}

#[test]
fn a_timeout_is_retried_once_with_a_longer_limit() {
    let mut world = World::new().to(State::InProgress);
    world.done(failure(FailureKind::TimedOut));
    assert_eq!(world.it.state, State::Validated);
    assert_eq!(order(&world).seconds, 7_200);
    assert_eq!(world.it.work.unwrap().not_before, None);
    world.start().done(failure(FailureKind::TimedOut));
    assert_eq!(world.it.state, State::HumanEscalation);
    assert_eq!(world.it.question.as_ref().unwrap().cause, Cause::EngineTimedOut);
    assert_eq!(world.alerts()[0].kind, AlertKind::Timeout);
    world.done(Outcome::Landed).ask(Action::Continue { grant: Grant::default() });
    assert_eq!(order(&world).seconds, 3_600);
}

#[test]
fn a_run_that_ends_in_time_ends_the_count_of_timeouts() {
    let mut world = World::new().to(State::InProgress);
    world.done(failure(FailureKind::TimedOut)).start().done(Outcome::RunFinished(commit(4)));
    assert_eq!(world.it.timeouts, 0);
}

// Quota.

fn out_of_quota() -> Outcome {
    failure(FailureKind::Quota { provider: text("acme"), until: minute(200) })
}

#[test]
fn a_quota_puts_the_task_in_validated_until_the_reset_and_holds_the_provider_for_all() {
    let mut world = World::new().to(State::InProgress);
    world.done(out_of_quota());
    assert_eq!(world.it.state, State::Validated);
    let until = minute(200);
    assert_eq!(world.commands[0], Command::HoldProvider { provider: text("acme"), until });
    assert!(
        matches!(&world.commands[1], Command::Start { not_before: Some(at), .. } if *at == until)
    );
    assert_eq!(world.it.next(&world.rules), Some(Next::Quota { provider: text("acme"), until }));
    assert_eq!(world.log.last().unwrap().on, Some(Trigger::QuotaReached));
}

#[test]
fn a_quota_is_no_failure_however_often() {
    let mut world = World::new().to(State::InProgress);
    for _ in 0..20 {
        world.done(out_of_quota()).start();
    }
    assert_eq!(world.it.state, State::InProgress);
    assert!(world.it.failures.is_empty());
}

#[test]
fn waiting_for_a_quota_is_nobodys_delay() {
    let mut world = World::new().to(State::InProgress);
    world.done(out_of_quota());
    assert_eq!(world.it.wake_at(&world.rules), Some(minute(200 + 12)));
}

#[rstest]
#[case(State::Validated, EntryName::SmQuotaReached)]
#[case(State::Planning, EntryName::SmQuotaReached)]
fn a_quota_reached_by_any_other_job_waits_where_it_is(
    #[case] state: State,
    #[case] name: EntryName,
) {
    let mut world = World::new().to(state);
    world.done(out_of_quota());
    assert_eq!(world.it.state, state);
    assert_eq!(world.it.work.unwrap().not_before, Some(minute(200)));
    assert_eq!(world.log.last().unwrap().name, name);
}

#[test]
fn a_quota_that_resets_in_the_past_still_waits_a_moment() {
    let mut world = World::new().to(State::InProgress);
    world.now = minute(300);
    world.done(out_of_quota());
    let again = world.it.work.unwrap().not_before.unwrap();
    assert_eq!((again - minute(300)).num_seconds(), 30);
}

#[test]
fn a_pause_keeps_the_wait_for_a_quota() {
    let mut world = World::new().to(State::InProgress);
    world.done(out_of_quota()).ask(Action::Pause).done(Outcome::Interrupted).ask(Action::Resume);
    assert_eq!(world.it.work.unwrap().not_before, Some(minute(200)));
}

#[test]
fn the_wait_is_over_when_the_run_starts() {
    let mut world = World::new().to(State::InProgress);
    world.done(out_of_quota());
    world.now = minute(200);
    world.start();
    assert_eq!((world.it.quota.as_ref(), world.it.not_before), (None, None));
    assert_eq!(world.it.work.unwrap().not_before, None);
}

// Money.

#[test]
fn tokens_are_priced_from_the_table_cached_ones_apart() {
    let rate = Price { input: Usd::cents(300), cached: Usd::cents(30), output: Usd::cents(1_500) };
    let table = BTreeMap::from([("sonnet".to_owned(), rate)]);
    let tokens = Tokens { input: 1_000_000, cached: 2_000_000, output: 100_000 };
    assert_eq!(price(&tokens, "sonnet", &table), Cost::Known(Usd::cents(300 + 60 + 150)));
    assert_eq!(tokens.total(), 3_100_000);
    assert_eq!(price(&tokens, "unheard-of", &table), Cost::Unknown);
}

#[rstest]
#[case("2.50", Some("$2.5"))]
#[case(" 3 ", Some("$3"))]
#[case("0", Some("$0"))]
#[case("-0", Some("$0"))]
#[case("-1", None)]
#[case("much", None)]
fn money_is_decimal_and_never_negative(#[case] words: &str, #[case] expected: Option<&str>) {
    let amount = words.parse::<Usd>();
    assert_eq!(amount.as_ref().ok().map(ToString::to_string).as_deref(), expected);
    if let Err(error) = amount {
        assert!(error.to_string().contains("write a number such as 2.50"));
    }
}

#[rstest]
#[case("\"2.5\"")]
#[case("2.5")]
fn money_is_read_from_a_number_or_a_text_and_written_as_a_text(#[case] json: &str) {
    let amount: Usd = serde_json::from_str(json).unwrap();
    assert_eq!(amount, Usd::cents(250));
    assert_eq!(serde_json::to_string(&Usd::cents(250)).unwrap(), "\"2.50\"");
    assert_eq!(serde_json::from_str::<Usd>("3").unwrap(), Usd::cents(300));
    assert!(serde_json::from_str::<Usd>("-3").is_err());
    let wrong = serde_json::from_str::<Usd>("[]").unwrap_err();
    assert!(wrong.to_string().contains("an amount of dollars such as 2.50"));
}

#[test]
fn money_adds_up() {
    assert_eq!(Usd::cents(5).less(Usd::cents(3)), Usd::cents(2));
    assert_eq!(Usd::cents(3).less(Usd::cents(5)), Usd::ZERO);
    assert_eq!(Usd::cents(500).percent(80), Usd::cents(400));
    assert_eq!(Usd::cents(500).shared_by(2), Some(Usd::cents(250)));
    assert_eq!(Usd::cents(500).shared_by(0), None);
    let mut sum = Usd::cents(1);
    sum += Usd::cents(2);
    assert_eq!(sum, Usd::cents(3));
}

#[test]
fn unknown_cost_is_never_zero() {
    let mut spend = Spend::default();
    let tokens = Tokens { input: 5, cached: 0, output: 2 };
    spend.book(Some(&Usage { tokens, cost: Cost::Unknown }), Usd::cents(40));
    assert_eq!(spend, Spend { usd: Usd::cents(40), tokens: 7, estimated: true });
    spend.book(None, Usd::cents(10));
    assert_eq!(spend.usd, Usd::cents(50));
    spend.book(Some(&costing(3)), Usd::cents(100));
    assert_eq!(spend.usd, Usd::cents(53));
    let mut nothing = Spend::default();
    nothing.book(None, Usd::ZERO);
    assert!(!nothing.estimated);
}

#[test]
fn a_run_of_unknown_cost_is_charged_what_was_set_aside() {
    let mut world = World::new().to(State::InProgress);
    assert_eq!(world.it.work.unwrap().reserved, Usd::cents(25));
    world.done_costing(None, Outcome::RunFinished(commit(4)));
    assert_eq!(world.it.spend.usd, Usd::cents(25));
    assert!(world.it.spend.estimated);
    assert_eq!(world.it.dearest_run, None);
}

#[test]
fn the_next_run_is_priced_at_the_dearest_that_anybody_knows() {
    let rules = Rules::default();
    let dear = Outline { estimated_cost: Some(Usd::cents(70)), ..plan(1) };
    assert_eq!(price_run(Tier::Simple, None, None, &rules), Usd::cents(25));
    assert_eq!(price_run(Tier::Moderate, None, None, &rules), Usd::cents(100));
    assert_eq!(price_run(Tier::Simple, Some(&dear), None, &rules), Usd::cents(70));
    let last = Some(Usd::cents(90));
    assert_eq!(price_run(Tier::Simple, Some(&dear), last, &rules), Usd::cents(90));
    assert_eq!(price_run(Tier::Complex, Some(&dear), last, &rules), Usd::cents(400));
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
    let spend = Spend { usd: Usd::cents(spent), ..Spend::default() };
    let limit = Limit { usd: Some(Usd::cents(1_000)), tokens: None };
    assert_eq!(reserve(&spend, Usd::cents(next), &limit, 80), expected);
    assert_eq!(reserve(&spend, Usd::cents(next), &Limit::default(), 80), Reservation::Granted);
}

#[rstest]
#[case(79, Reservation::Granted)]
#[case(80, Reservation::Warned)]
#[case(99, Reservation::Warned)]
#[case(100, Reservation::Refused)]
fn tokens_are_limited_too(#[case] spent: u64, #[case] expected: Reservation) {
    let spend = Spend { tokens: spent, ..Spend::default() };
    let limit = Limit { usd: None, tokens: Some(100) };
    assert_eq!(reserve(&spend, Usd::ZERO, &limit, 80), expected);
}

#[test]
fn the_limit_is_that_of_the_risk_else_the_general_one_and_what_was_granted() {
    let mut rules = Rules::default();
    rules.ceremony.high.budget_usd = Some(Usd::cents(900));
    rules.budget.task_tokens = Some(10);
    let none = Grant::default();
    assert_eq!(budget::limit(None, &none, &rules).usd, Some(Usd::cents(5_000)));
    assert_eq!(budget::limit(Some(Level::Low), &none, &rules).usd, Some(Usd::cents(5_000)));
    assert_eq!(budget::limit(Some(Level::High), &none, &rules).usd, Some(Usd::cents(900)));
    let more = Grant { iterations: 0, usd: Usd::cents(100), tokens: 5 };
    let limit = budget::limit(Some(Level::High), &more.and(more), &rules);
    assert_eq!(limit, Limit { usd: Some(Usd::cents(1_100)), tokens: Some(20) });
    rules.scrum_master.task_loop.cost_tracking = false;
    let limit = budget::limit(Some(Level::High), &none, &rules);
    assert_eq!(limit, Limit { usd: None, tokens: Some(10) });
}

#[test]
fn what_is_left_is_never_less_than_nothing() {
    let spend = Spend { usd: Usd::cents(70), tokens: 7, estimated: false };
    let limit = Limit { usd: Some(Usd::cents(100)), tokens: Some(10) };
    let left = Limit { usd: Some(Usd::cents(30)), tokens: Some(3) };
    assert_eq!(budget::left(&spend, &limit), left);
    let limit = Limit { usd: Some(Usd::cents(10)), tokens: Some(1) };
    let nothing = Limit { usd: Some(Usd::ZERO), tokens: Some(0) };
    assert_eq!(budget::left(&spend, &limit), nothing);
}

#[test]
fn grants_add_up() {
    let one = Grant { iterations: 1, usd: Usd::cents(2), tokens: 3 };
    assert_eq!(one.and(one), Grant { iterations: 2, usd: Usd::cents(4), tokens: 6 });
}

// Hard limits in the machine.

fn poor(cents: u32) -> World {
    World::with(|rules| rules.budget.task_usd = Some(Usd::cents(cents)))
}

#[test]
fn a_run_that_does_not_fit_in_the_budget_is_not_started() {
    let mut world = poor(30).to(State::AwaitingApproval);
    world.it.spend.usd = Usd::cents(6);
    world.done(Outcome::Checked { blockers: 0, warnings: 0 });
    assert_eq!(world.it.state, State::HumanEscalation);
    let question = world.it.question.as_ref().unwrap();
    assert_eq!(question.cause, Cause::Halted(HaltCondition::BudgetExceeded));
    assert_eq!((question.from, question.resume), (State::Validated, State::Validated));
    let [alert] = world.alerts()[..] else { panic!("one alert") };
    assert_eq!((alert.kind, alert.severity), (AlertKind::CostLimitWarning, Severity::Critical));
    // Nothing has run, so there is nothing to land.
    assert_eq!(world.started(), None);
}

#[test]
fn the_budget_is_warned_at_80_percent_once() {
    let mut world = poor(125);
    world.walk(State::InProgress).done_costing(Some(costing(80)), Outcome::RunFinished(commit(4)));
    world.done(crate::world::green());
    // A review is priced at 25 cents: 105 of 125 is over 80 %.
    let warnings: Vec<_> = world.alerts().iter().map(|alert| alert.cause).collect();
    assert_eq!(warnings, [Cause::CostWarning]);
    assert!(matches!(world.started(), Some(Job::Review { .. })));
    world.ask(Action::Pause).done(Outcome::Interrupted).ask(Action::Resume);
    assert!(world.alerts().is_empty());
}

#[rstest]
#[case(State::InProgress, State::Validated)]
#[case(State::Planning, State::Planning)]
fn work_that_reaches_the_limit_is_landed_and_not_dropped(
    #[case] state: State,
    #[case] resume: State,
) {
    let mut world = World::new().to(state);
    world.done(failure(FailureKind::OverBudget));
    assert_eq!(world.it.state, State::HumanEscalation);
    let question = world.it.question.as_ref().unwrap();
    assert_eq!(question.cause, Cause::Halted(HaltCondition::BudgetExceeded));
    assert_eq!(question.resume, resume);
    let landing = world.started() == Some(&Job::Land);
    assert_eq!(landing, state == State::InProgress);
}

#[test]
fn going_on_over_the_budget_needs_more_of_it() {
    let mut world = poor(26).to(State::Planning);
    assert_eq!(world.it.state, State::Planning);
    world.done_costing(Some(costing(2)), Outcome::Planned(plan(1)));
    world.done(Outcome::Checked { blockers: 0, warnings: 0 });
    assert_eq!(world.it.state, State::HumanEscalation);
    for action in [
        Action::Continue { grant: Grant::default() },
        Action::Retry { grant: Grant { iterations: 5, ..Grant::default() } },
    ] {
        assert_eq!(world.try_ask("ann", action), Err(Refusal::NeedsGrant));
    }
    let grant = Grant { usd: Usd::cents(100), ..Grant::default() };
    world.ask(Action::Continue { grant });
    assert_eq!(world.it.state, State::Validated);
    assert_eq!(order(&world).allowance.usd, Some(Usd::cents(124)));
    assert!(!world.it.cost_warned);
}

#[test]
fn tokens_may_be_granted_instead_of_money() {
    let mut world = World::with(|rules| rules.budget.task_tokens = Some(10)).to(State::Validated);
    world.start();
    let tokens = Tokens { input: 10, ..Tokens::default() };
    let used = Usage { tokens, cost: Cost::Known(Usd::ZERO) };
    world.done_costing(Some(used), Outcome::RunFinished(commit(4))).done(crate::world::green());
    assert_eq!(world.it.state, State::HumanEscalation);
    world.done(Outcome::Landed);
    world.ask(Action::Continue { grant: Grant { tokens: 100, ..Grant::default() } });
    assert_eq!(world.it.state, State::QualityReview);
}

#[test]
fn work_that_asks_no_model_needs_no_budget() {
    let mut world = poor(25).to(State::Planning);
    world.done_costing(Some(costing(25)), Outcome::Planned(plan(1)));
    assert!(matches!(world.started(), Some(Job::Check { .. })));
    assert_eq!(world.it.work.unwrap().reserved, Usd::ZERO);
}

#[rstest]
#[case(State::Planning, 25)]
#[case(State::Validated, 25)]
#[case(State::QualityReview, 25)]
#[case(State::Testing, 0)]
#[case(State::Committing, 0)]
fn every_job_that_asks_a_model_is_priced_before_it_starts(
    #[case] state: State,
    #[case] cents: u32,
) {
    let world = World::new().to(state);
    assert_eq!(world.it.work.unwrap().reserved, Usd::cents(cents));
}

#[test]
fn each_seat_of_the_council_is_priced_at_its_tier() {
    let mut world = World::new().to(State::Planning);
    for _ in 0..3 {
        world.done(Outcome::PlanInvalid(note()));
    }
    assert_eq!(world.it.work.unwrap().reserved, Usd::cents(100));
    world.done(Outcome::Opined(note()));
    assert_eq!(world.it.work.unwrap().reserved, Usd::cents(400));
}

#[test]
fn a_dear_run_makes_the_next_one_dear() {
    let mut world = World::new().to(State::InProgress);
    world.done_costing(Some(costing(90)), Outcome::RunFinished(commit(4)));
    world.done(crate::world::red(1)).done(Outcome::Briefed(note()));
    assert_eq!(world.it.work.unwrap().reserved, Usd::cents(90));
    world.start().done_costing(Some(costing(60)), Outcome::RunFinished(commit(4)));
    assert_eq!(world.it.dearest_run, Some(Usd::cents(90)));
}

#[test]
fn a_plan_does_not_count_as_a_run_in_the_price() {
    let mut world = World::new().to(State::Planning);
    world.done_costing(Some(costing(300)), Outcome::Planned(plan(1)));
    assert_eq!(world.it.dearest_run, None);
}

#[test]
fn after_the_last_iteration_no_run_starts_whatever_asks_for_it() {
    // The review passes, and delivery sends the change back: that would need another run.
    let mut world = World::with(|rules| rules.scrum_master.task_loop.max_iterations = 1);
    world.walk(State::Committing).done(Outcome::DeliveryRejected(note()));
    world.done(Outcome::Briefed(note()));
    assert_eq!(world.it.state, State::HumanEscalation);
    let cause = Cause::Halted(HaltCondition::MaxIterationsReached);
    assert_eq!(world.it.question.as_ref().unwrap().cause, cause);
    assert_eq!(world.alerts()[0].kind, AlertKind::MaxRetriesExceeded);
    world.done(Outcome::Landed);
    let none = Action::Continue { grant: Grant { usd: Usd::cents(9), ..Grant::default() } };
    assert_eq!(world.try_ask("ann", none), Err(Refusal::NeedsGrant));
    world.ask(Action::Continue { grant: Grant { iterations: 1, ..Grant::default() } });
    assert_eq!(order(&world).iteration, 2);
}
