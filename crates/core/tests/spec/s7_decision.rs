//! Section 7: what follows a review.

use rstest::rstest;
use tamma_core::budget::Grant;
use tamma_core::cause::{Cause, Limit};
use tamma_core::cost::Usd;
use tamma_core::escalation::{
    Decision, Situation, Verdict, Why, after_failed_review, after_failed_work,
};
use tamma_core::failure::FailureKind;
use tamma_core::ids::Digest;
use tamma_core::log::{EntryName, Fact};
use tamma_core::review::{Fingerprint, Gates};
use tamma_core::rules::{HaltCondition, Rules};
use tamma_core::stuck::{Attempt, Likeness, MEMORY, detect};
use tamma_core::task_loop::{Action, AlertKind, Job, Outcome, Refusal, Severity, State, Trigger};
use tamma_core::tier::Tier;
use tamma_core::version::Edition;

use crate::world::{World, commit, costing, failure, green, note, passed, red, summary, text};

// Stuck.

fn attempt(files: u8, tests: u8, error: u8, diff: u8) -> Attempt {
    let digest = |number: u8| (number > 0).then(|| Digest::of(&[number]));
    let fingerprint = Fingerprint {
        files: digest(files),
        tests: digest(tests),
        error: digest(error),
        diff: digest(diff),
    };
    Attempt { tier: Tier::Simple, passed: false, fingerprint }
}

#[rstest]
#[case::files([attempt(1, 1, 1, 1), attempt(1, 2, 2, 2), attempt(1, 3, 3, 3)], Some(Likeness::SameFiles))]
#[case::tests([attempt(1, 1, 1, 1), attempt(2, 1, 2, 2), attempt(3, 1, 3, 3)], Some(Likeness::SameTests))]
#[case::error([attempt(1, 1, 1, 1), attempt(2, 2, 1, 2), attempt(3, 3, 1, 3)], Some(Likeness::SameError))]
#[case::diff([attempt(1, 1, 1, 1), attempt(2, 2, 2, 1), attempt(3, 3, 3, 1)], Some(Likeness::SameDiff))]
#[case::nothing([attempt(1, 1, 1, 1), attempt(2, 2, 2, 2), attempt(3, 3, 3, 3)], None)]
#[case::only_two([attempt(1, 1, 1, 1), attempt(1, 2, 2, 2), attempt(3, 3, 3, 3)], None)]
#[case::only_two([attempt(1, 1, 1, 1), attempt(2, 2, 2, 2), attempt(2, 3, 3, 3)], None)]
#[case::unknown([attempt(0, 0, 0, 0), attempt(0, 0, 0, 0), attempt(0, 0, 0, 0)], None)]
fn three_attempts_alike_are_stuck(
    #[case] attempts: [Attempt; 3],
    #[case] expected: Option<Likeness>,
) {
    assert_eq!(detect(&attempts), expected);
}

#[test]
fn fewer_than_three_attempts_are_never_stuck() {
    let same = attempt(1, 1, 1, 1);
    assert_eq!(detect(&[]), None);
    assert_eq!(detect(&[same, same]), None);
    assert_eq!(detect(&[same, same, same]), Some(Likeness::SameFiles));
}

#[test]
fn an_attempt_that_passed_is_progress() {
    let same = attempt(1, 1, 1, 1);
    assert_eq!(detect(&[same, Attempt { passed: true, ..same }, same]), None);
}

#[test]
fn only_the_last_three_attempts_count() {
    let (same, other) = (attempt(1, 1, 1, 1), attempt(2, 2, 2, 2));
    assert_eq!(detect(&[same, same, same, other]), None);
    assert_eq!(detect(&[other, same, same, same]), Some(Likeness::SameFiles));
}

// The decision, in its order.

fn alike() -> [Attempt; 3] {
    [attempt(1, 1, 1, 1); 3]
}

fn situation(tier: Tier, tier_failures: u8) -> Situation<'static> {
    Situation {
        attempts: &[],
        tier,
        tier_failures,
        retries: 0,
        councils: 0,
        iterations: 1,
        max_iterations: 10,
        security_critical: false,
        over_budget: false,
        edition: Edition::NEWEST,
    }
}

fn decide(situation: &Situation<'_>) -> (Verdict, Why) {
    let Decision { verdict, why } = after_failed_review(situation, &Rules::default());
    (verdict, why)
}

#[rstest]
#[case::security(Situation { security_critical: true, ..situation(Tier::Simple, 1) }, HaltCondition::SecurityCritical)]
#[case::budget(Situation { over_budget: true, ..situation(Tier::Simple, 1) }, HaltCondition::BudgetExceeded)]
#[case::iterations(Situation { iterations: 10, ..situation(Tier::Simple, 1) }, HaltCondition::MaxIterationsReached)]
#[case::beyond(Situation { iterations: 11, ..situation(Tier::Simple, 1) }, HaltCondition::MaxIterationsReached)]
fn rule_1_a_halt_condition_lands_the_work(
    #[case] situation: Situation<'static>,
    #[case] condition: HaltCondition,
) {
    assert_eq!(decide(&situation), (Verdict::Halt(condition), Why::HaltCondition));
}

#[test]
fn rule_1_comes_before_all_others() {
    let attempts = alike();
    let all = Situation {
        attempts: &attempts,
        iterations: 10,
        retries: 3,
        councils: 2,
        over_budget: true,
        security_critical: true,
        ..situation(Tier::Complex, 3)
    };
    assert_eq!(decide(&all).0, Verdict::Halt(HaltCondition::SecurityCritical));
    let without = Situation { security_critical: false, ..all };
    assert_eq!(decide(&without).0, Verdict::Halt(HaltCondition::BudgetExceeded));
}

#[test]
fn rule_1_where_security_does_not_halt_the_top_tier_takes_over_at_once() {
    let mut rules = Rules::default();
    rules.scrum_master.task_loop.halt_conditions.clear();
    let found = Situation { security_critical: true, ..situation(Tier::Simple, 1) };
    let decision = after_failed_review(&found, &rules);
    assert_eq!(decision.verdict, Verdict::Iterate(Tier::Complex));
    assert_eq!(decision.why, Why::SecurityCritical);
    // In the top tier the other rules go on.
    let found = Situation { security_critical: true, ..situation(Tier::Complex, 3) };
    assert_eq!(after_failed_review(&found, &rules).verdict, Verdict::Council);
}

#[test]
fn rule_1_the_limits_halt_whatever_is_configured() {
    let mut rules = Rules::default();
    rules.scrum_master.task_loop.halt_conditions.clear();
    for spent in [
        Situation { iterations: 10, ..situation(Tier::Simple, 1) },
        Situation { over_budget: true, ..situation(Tier::Simple, 1) },
    ] {
        let decision = after_failed_review(&spent, &rules);
        assert!(matches!(decision.verdict, Verdict::Halt(_)));
    }
}

#[test]
fn rule_2_a_stuck_task_goes_to_the_council_at_once() {
    let attempts = alike();
    let stuck = Situation { attempts: &attempts, ..situation(Tier::Simple, 1) };
    assert_eq!(decide(&stuck), (Verdict::Council, Why::Stuck(Likeness::SameFiles)));
    let mut rules = Rules::default();
    rules.scrum_master.task_loop.stuck_detection = false;
    let decision = after_failed_review(&stuck, &rules);
    assert_eq!(decision.verdict, Verdict::Iterate(Tier::Simple));
}

#[rstest]
#[case(Tier::Simple, 1, Verdict::Iterate(Tier::Simple), Why::RoomToTry)]
#[case(Tier::Simple, 2, Verdict::Escalate(Tier::Moderate), Why::FailuresInTier(2))]
#[case(Tier::Moderate, 1, Verdict::Iterate(Tier::Moderate), Why::RoomToTry)]
#[case(Tier::Moderate, 2, Verdict::Escalate(Tier::Complex), Why::FailuresInTier(2))]
#[case(Tier::Complex, 2, Verdict::Iterate(Tier::Complex), Why::RoomToTry)]
#[case(Tier::Complex, 3, Verdict::Council, Why::FailuresInTier(3))]
fn rule_3_two_failures_in_a_tier_or_three_in_the_top_one_escalate(
    #[case] tier: Tier,
    #[case] failures: u8,
    #[case] verdict: Verdict,
    #[case] why: Why,
) {
    assert_eq!(decide(&situation(tier, failures)), (verdict, why));
}

#[rstest]
#[case::retry(Situation { retries: 3, ..situation(Tier::Simple, 2) }, Limit::Retries)]
#[case::council(Situation { councils: 2, ..situation(Tier::Complex, 3) }, Limit::Councils)]
#[case::retry_of_a_council(Situation { retries: 3, ..situation(Tier::Complex, 3) }, Limit::Retries)]
fn rule_4_a_fourth_retry_or_a_third_council_asks_a_person_instead(
    #[case] situation: Situation<'static>,
    #[case] limit: Limit,
) {
    assert_eq!(decide(&situation).0, Verdict::AskPerson(limit));
}

#[test]
fn rule_4_holds_for_a_stuck_task_too() {
    let attempts = alike();
    let stuck = Situation { attempts: &attempts, councils: 2, ..situation(Tier::Simple, 1) };
    assert_eq!(decide(&stuck).0, Verdict::AskPerson(Limit::Councils));
    let stuck = Situation { attempts: &attempts, retries: 3, ..situation(Tier::Simple, 1) };
    assert_eq!(decide(&stuck).0, Verdict::AskPerson(Limit::Retries));
}

#[test]
fn rule_5_otherwise_the_same_plan_runs_again_in_the_same_tier() {
    let room = situation(Tier::Moderate, 1);
    assert_eq!(decide(&room), (Verdict::Iterate(Tier::Moderate), Why::RoomToTry));
}

#[rstest]
#[case(1, 0, Verdict::Iterate(Tier::Moderate))]
#[case(2, 0, Verdict::Iterate(Tier::Moderate))]
#[case(3, 0, Verdict::Council)]
#[case(3, 1, Verdict::Council)]
#[case(3, 2, Verdict::AskPerson(Limit::Councils))]
fn planning_and_delivery_three_in_a_state_go_to_the_council_and_after_two_to_a_person(
    #[case] failures: u8,
    #[case] councils: u8,
    #[case] verdict: Verdict,
) {
    let decision = after_failed_work(failures, councils, Tier::Moderate, &Rules::default());
    assert_eq!(decision, Decision { verdict, why: Why::FailuresInState(failures) });
}

// In the machine.

/// Runs until a person is asked, failing each time in a new way, and says in which tiers.
fn tiers_until_asked(
    mut world: World,
    mut way: impl FnMut(u8) -> u8,
) -> (World, Vec<Tier>, Vec<u16>) {
    let (mut tiers, mut councils) = (Vec::new(), Vec::new());
    for number in 0..50 {
        world.walk(State::InProgress);
        tiers.push(world.it.tier);
        world.walk(State::Testing).done(red(way(number)));
        match world.it.state {
            State::CtoIntervention => councils.push(world.it.iterations),
            State::HumanEscalation => break,
            _ => {}
        }
    }
    (world, tiers, councils)
}

#[test]
fn failing_in_new_ways_runs_simple_twice_moderate_twice_complex_thrice_council_complex_thrice_person()
 {
    use Tier::{Complex, Moderate, Simple};
    let (world, tiers, councils) = tiers_until_asked(World::new(), |number| number);
    assert_eq!(
        tiers,
        [Simple, Simple, Moderate, Moderate, Complex, Complex, Complex, Complex, Complex, Complex]
    );
    assert_eq!(councils, [7]);
    assert_eq!((world.it.iterations, world.it.retries), (10, 3));
    let cause = Cause::Halted(HaltCondition::MaxIterationsReached);
    assert_eq!(world.it.question.unwrap().cause, cause);
}

#[test]
fn failing_the_same_way_three_times_goes_to_the_council_at_once() {
    let (world, tiers, councils) = tiers_until_asked(World::new(), |_| 1);
    assert_eq!(tiers[..3], [Tier::Simple, Tier::Simple, Tier::Moderate]);
    assert_eq!(councils[0], 3);
    assert_eq!(tiers[3], Tier::Complex);
    // The council is asked at most twice, and what it says starts a new count.
    assert_eq!(councils, [3, 6]);
    assert!(world.it.councils <= 2);
}

#[test]
fn a_failed_gate_iterates_with_a_brief() {
    let mut world = World::new();
    world.fail_in(1);
    assert_eq!(world.it.state, State::Adjusting);
    let decision = Decision { verdict: Verdict::Iterate(Tier::Simple), why: Why::RoomToTry };
    assert_eq!(world.started(), Some(&Job::Brief { decision, note: None }));
    let entry = world.log.last().unwrap();
    assert_eq!((entry.name, &entry.data), (EntryName::SmDecisionMade, &Fact::Decision(decision)));
    let [alert] = world.alerts()[..] else { panic!("one alert") };
    assert_eq!((alert.kind, alert.severity), (AlertKind::ReviewFailed, Severity::Info));
    assert_eq!((alert.question, alert.answers.len()), (None, 0));
    world.done(Outcome::Briefed(text("brief")));
    let Some(Job::Implement(order)) = world.started() else { panic!("a run") };
    assert_eq!((order.brief.as_ref(), order.iteration), (Some(&text("brief")), 2));
    assert_eq!((order.plan.version, order.tier), (1, Tier::Simple));
}

#[test]
fn nobody_hears_of_a_failed_review_who_does_not_want_to() {
    let mut world = World::with(|rules| rules.scrum_master.alerts.on_review_failed = false);
    assert!(world.fail_in(1).alerts().is_empty());
    let mut world = World::with(|rules| {
        rules.scrum_master.alerts.on_max_retries = false;
        rules.scrum_master.task_loop.max_iterations = 1;
    });
    assert!(world.fail_in(1).alerts().is_empty());
}

#[test]
fn the_next_tier_adjusts_the_plan_which_is_a_new_version_and_is_approved_again() {
    let mut world = World::new();
    world.fail_in(1).fail_in(2);
    assert_eq!((world.it.state, world.it.retries), (State::Adjusting, 1));
    assert_eq!((world.it.tier, world.it.tier_failures), (Tier::Moderate, 0));
    let adjust = Job::Plan { version: 2, from: Some(text("plan")), note: None };
    assert_eq!(world.started(), Some(&adjust));
    assert_eq!(world.it.work.unwrap().reserved, Usd::cents(100));
    assert_eq!(world.alerts()[0].kind, AlertKind::ReviewFailed);
    world.walk(State::AwaitingApproval);
    assert_eq!(world.it.approved, None);
    assert!(matches!(world.started(), Some(Job::Check { plan }) if plan.version == 2));
    // The new plan is easy, but the tier is not lowered again.
    world.walk(State::Validated);
    assert_eq!(world.it.tier, Tier::Moderate);
}

#[test]
fn the_councils_guidance_becomes_the_next_plan() {
    let mut world = World::new();
    world.fail_in(1).fail_in(1).fail_in(1);
    assert_eq!(world.it.state, State::CtoIntervention);
    assert_eq!((world.it.tier, world.it.tier_failures), (Tier::Complex, 0));
    assert_eq!((world.it.councils, world.it.retries), (1, 2));
    assert!(world.has_logged(EntryName::SmCouncilConvened));
    world.walk(State::Adjusting);
    assert_eq!(world.it.state, State::Adjusting);
    let guided = Job::Plan { version: 3, from: Some(text("plan")), note: Some(text("guidance")) };
    assert_eq!(world.started(), Some(&guided));
    let entry = world.log.last().unwrap();
    assert_eq!(
        (entry.name, &entry.data),
        (EntryName::SmCouncilConcluded, &Fact::Kept(text("guidance")))
    );
    assert!(world.it.attempts.is_empty());
}

#[test]
fn a_critical_security_finding_halts_and_lands_the_work() {
    for in_review in [false, true] {
        let mut world = World::new().to(State::Testing);
        if in_review {
            let summary = tamma_core::review::Summary { security_critical: true, ..summary(false) };
            let fingerprint = Fingerprint::default();
            world.done(green()).done(Outcome::Reviewed { summary, fingerprint });
        } else {
            let gates = Gates { failed: 1, security_critical: true, ..Gates::default() };
            world.done(Outcome::Tested(gates));
        }
        assert_eq!(world.it.state, State::HumanEscalation);
        let question = world.it.question.as_ref().unwrap();
        assert_eq!(question.cause, Cause::Halted(HaltCondition::SecurityCritical));
        assert_eq!((question.from, question.resume), (State::Adjusting, State::Validated));
        assert_eq!(world.started(), Some(&Job::Land));
        let [alert] = world.alerts()[..] else { panic!("one alert") };
        assert_eq!((alert.kind, alert.severity), (AlertKind::Error, Severity::Critical));
    }
}

#[test]
fn where_security_does_not_halt_the_next_run_is_in_the_top_tier() {
    let mut world = World::with(|rules| rules.scrum_master.task_loop.halt_conditions.clear());
    world.walk(State::Testing);
    let gates = Gates { failed: 1, security_critical: true, ..Gates::default() };
    world.done(Outcome::Tested(gates)).walk(State::InProgress);
    assert_eq!((world.it.tier, world.it.retries), (Tier::Complex, 0));
    assert_eq!(world.it.tier_failures, 0);
}

#[test]
fn a_change_whose_next_run_does_not_fit_in_the_budget_halts() {
    let mut world = World::with(|rules| rules.budget.task_usd = Some(Usd::cents(100)));
    world.walk(State::InProgress).done_costing(Some(costing(76)), Outcome::RunFinished(commit(4)));
    world.done(red(1));
    assert_eq!(world.it.state, State::HumanEscalation);
    let cause = Cause::Halted(HaltCondition::BudgetExceeded);
    assert_eq!(world.it.question.as_ref().unwrap().cause, cause);
}

#[test]
fn pre_existing_and_flaky_failures_do_not_count() {
    let gates = Gates { passed: 1, pre_existing: 2, flaky: 1, ..Gates::default() };
    let mut world = World::new().to(State::Testing);
    world.done(Outcome::Tested(gates));
    assert_eq!(world.it.state, State::QualityReview);
    assert_eq!(world.log.last().unwrap().data, Fact::Gates(gates));
}

#[test]
fn success_resets_the_count_of_failures_in_the_tier() {
    let mut world = World::new();
    world.fail_in(1).walk(State::QualityReview).done(passed());
    assert_eq!((world.it.state, world.it.tier_failures), (State::Approved, 0));
    assert_eq!(world.it.attempts.len(), 2);
    assert!(world.it.attempts[1].passed);
}

#[test]
fn only_as_many_attempts_are_remembered_as_are_compared() {
    let mut world = World::new();
    world.rules.scrum_master.task_loop.max_iterations = 50;
    world.rules.scrum_master.task_loop.top_tier_threshold = 50;
    for way in 0..15 {
        world.fail_in(way);
    }
    assert_eq!(world.it.attempts.len(), MEMORY);
    let last = world.it.attempts[MEMORY - 1].fingerprint.diff;
    assert_eq!(last, Some(Digest::of(&[14])));
}

// Human review.

fn in_human_review() -> World {
    let mut world = World::with(|rules| rules.ceremony.low.human_review = true);
    world.walk(State::QualityReview).done(passed());
    assert_eq!(world.it.state, State::QualityReview);
    world
}

#[test]
fn a_person_reviews_where_asked_and_their_word_is_about_one_commit() {
    let mut world = in_human_review();
    assert_eq!(world.it.question.as_ref().unwrap().cause, Cause::ReviewNeeded);
    assert_eq!(world.started(), None);
    assert_eq!(world.alerts()[0].kind, AlertKind::ApprovalNeeded);
    let (seen, now) = (commit(1), commit(9));
    let refused = world.try_ask("ann", Action::Accept { commit: seen, reason: None });
    assert_eq!(refused, Err(Refusal::OtherCommit { seen, now }));
    world.ask(Action::Accept { commit: now, reason: Some(text("clean")) });
    assert_eq!(world.it.state, State::Approved);
    assert_eq!(world.log.last().unwrap().reason.as_deref(), Some("clean"));
}

#[test]
fn a_persons_comments_go_back_to_the_agent() {
    let mut world = in_human_review();
    world.ask(Action::Rework { commit: commit(9), comments: text("comments") });
    assert_eq!(world.it.state, State::Adjusting);
    assert_eq!((world.it.tier_failures, world.it.iterations), (1, 1));
    assert!(matches!(
        world.started(),
        Some(Job::Brief { note: Some(comments), .. }) if *comments == text("comments")
    ));
    world.done(Outcome::Briefed(note()));
    assert_eq!(world.it.note, None);
}

#[test]
fn a_person_reviews_only_what_our_own_checks_have_passed() {
    let mut world = World::with(|rules| rules.ceremony.low.human_review = true);
    world.walk(State::QualityReview);
    let refused = world.try_ask("ann", Action::Accept { commit: commit(9), reason: None });
    let state = State::QualityReview;
    assert_eq!(refused, Err(Refusal::NotNow { state, action: "accept".to_owned() }));
}

#[test]
fn a_change_that_failed_our_own_checks_is_not_shown_to_a_person() {
    let mut world = World::with(|rules| rules.ceremony.low.human_review = true);
    world.walk(State::QualityReview);
    let fingerprint = Fingerprint::default();
    world.done(Outcome::Reviewed { summary: summary(false), fingerprint });
    assert_eq!(world.it.state, State::Adjusting);
    assert_eq!(world.log[world.log.len() - 2].on, Some(Trigger::ReviewFailed));
}

// Delivery.

#[test]
fn a_failed_hook_or_a_conflict_goes_back_with_its_text() {
    let mut world = World::new().to(State::Committing);
    world.done(Outcome::DeliveryRejected(text("hook said no")));
    assert_eq!(world.it.state, State::Adjusting);
    assert_eq!(world.it.failures.get(&State::Committing), Some(&1));
    assert!(matches!(
        world.started(),
        Some(Job::Brief { note: Some(text), .. }) if text.as_str() == "hook said no"
    ));
}

#[test]
fn three_failed_deliveries_go_to_the_council_and_that_is_no_retry() {
    let mut world = World::new();
    for failures in 1..=2 {
        world.walk(State::Committing).done(Outcome::DeliveryRejected(note()));
        assert_eq!(world.it.failures.get(&State::Committing), Some(&failures));
    }
    world.walk(State::Committing).done(Outcome::DeliveryRejected(note()));
    assert_eq!(world.it.state, State::CtoIntervention);
    assert_eq!((world.it.councils, world.it.retries), (1, 0));
    assert!(world.it.failures.is_empty());
    assert!(world.walk(State::Completed).it.failures.is_empty());
}

#[test]
fn a_delivery_that_succeeds_ends_the_count() {
    let mut world = World::new().to(State::Committing);
    world.done(Outcome::DeliveryRejected(note())).walk(State::Learning);
    assert!(world.it.failures.is_empty());
    assert_eq!(world.it.commit, Some(commit(10)));
}

// A person's answers.

#[test]
fn continue_after_the_last_run_needs_another_and_starts_a_new_count() {
    let mut world = World::with(|rules| rules.scrum_master.task_loop.max_iterations = 2);
    world.fail_in(1).fail_in(1).done(Outcome::Landed);
    let refused = world.try_ask("ann", Action::Continue { grant: Grant::default() });
    assert_eq!(refused, Err(Refusal::NeedsGrant));
    world.ask(Action::Continue { grant: Grant { iterations: 1, ..Grant::default() } });
    assert_eq!(world.it.state, State::Validated);
    assert_eq!((world.it.tier_failures, world.it.attempts.len()), (0, 0));
    assert_eq!(world.it.max_iterations(&world.rules), 3);
    world.fail_in(1);
    assert_eq!(world.it.state, State::HumanEscalation);
}

/// Three retries used up, and failing once more.
fn out_of_retries() -> World {
    let mut world = World::with(|rules| {
        rules.scrum_master.task_loop.max_retries = 1;
        rules.scrum_master.task_loop.max_iterations = 50;
    });
    for way in 0..4 {
        world.fail_in(way);
    }
    assert_eq!(world.it.state, State::HumanEscalation);
    let cause = Cause::LimitReached(Limit::Retries);
    assert_eq!(world.it.question.as_ref().unwrap().cause, cause);
    assert_eq!(world.alerts()[0].kind, AlertKind::MaxRetriesExceeded);
    world.done(Outcome::Landed);
    world
}

#[test]
fn retry_gives_the_task_its_retries_back_and_continue_does_not() {
    let mut world = out_of_retries();
    world.ask(Action::Continue { grant: Grant::default() });
    assert_eq!((world.it.state, world.it.retries), (State::Validated, 1));
    let mut world = out_of_retries();
    world.ask(Action::Retry { grant: Grant::default() });
    assert_eq!((world.it.state, world.it.retries), (State::Validated, 0));
}

#[test]
fn the_council_is_never_asked_a_third_time_whatever_a_person_answers() {
    let mut world = World::with(|rules| {
        rules.scrum_master.task_loop.max_retries = 10;
        rules.scrum_master.task_loop.max_iterations = 100;
    });
    for _ in 0..30 {
        world.fail_in(1);
        if world.it.state == State::HumanEscalation {
            world.done(Outcome::Landed).ask(Action::Retry { grant: Grant::default() });
        }
    }
    assert_eq!(world.it.councils, 2);
}

/// The run of every member of the council fails.
fn nobody_comes(world: &mut World, kind: &FailureKind) {
    for _ in &world.rules.council.members.clone() {
        world.done(failure(kind.clone()));
    }
}

#[test]
fn a_council_that_cannot_be_held_asks_a_person() {
    let mut world = World::new();
    world.fail_in(1).fail_in(1).fail_in(1);
    for _ in 0..3 {
        nobody_comes(&mut world, &FailureKind::Unavailable);
    }
    assert_eq!(world.it.state, State::HumanEscalation);
    let question = world.it.question.as_ref().unwrap();
    assert_eq!(question.cause, Cause::WorkFailed(State::CtoIntervention));
    assert_eq!(question.resume, State::CtoIntervention);
}

#[test]
fn a_stuck_task_that_a_person_skips_is_taken_as_it_is() {
    let mut world = World::new();
    world.fail_in(1).fail_in(1).fail_in(1);
    for _ in 0..3 {
        nobody_comes(&mut world, &FailureKind::Crashed);
    }
    world.done(Outcome::Landed).ask(Action::Skip { reason: text("good enough") });
    assert_eq!(world.it.state, State::Approved);
}
