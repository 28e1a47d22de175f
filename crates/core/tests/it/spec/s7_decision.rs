//! Section 7: decisions after a review.

use rstest::rstest;
use tamma_core::budget::Grant;
use tamma_core::cause::{AlertCause, LoopLimit};
use tamma_core::cost::Usd;
use tamma_core::escalation::{
    EscalationAction, EscalationContext, EscalationDecision, EscalationReason,
    decide_after_failed_job, decide_after_failed_review,
};
use tamma_core::failure::FailureKind;
use tamma_core::history::{EntryData, EntryName};
use tamma_core::ids::Digest;
use tamma_core::review::{Fingerprint, GateCounts};
use tamma_core::rules::{HaltCondition, Rules};
use tamma_core::stuck::{ATTEMPT_HISTORY, AttemptRecord, AttemptSimilarity, detect};
use tamma_core::task_loop::{
    Action, AlertKind, AlertSeverity, Job, Outcome, Refusal, State, Step, StepRecord, Trigger,
};
use tamma_core::tier::Tier;
use tamma_core::version::Edition;

use crate::world::{World, commit, costing, failure, green, note, passed, red, summary, text};

// Stuck tasks

fn attempt(files: u8, tests: u8, error: u8, diff: u8) -> AttemptRecord {
    let digest = |number: u8| (number > 0).then(|| Digest::of(&[number]));
    let fingerprint = Fingerprint {
        files: digest(files),
        tests: digest(tests),
        error: digest(error),
        diff: digest(diff),
    };
    AttemptRecord { tier: Tier::Simple, passed: false, fingerprint, failing: None }
}

#[rstest]
#[case::files([attempt(1, 1, 1, 1), attempt(1, 2, 2, 2), attempt(1, 3, 3, 3)], Some(AttemptSimilarity::SameFiles))]
#[case::tests([attempt(1, 1, 1, 1), attempt(2, 1, 2, 2), attempt(3, 1, 3, 3)], Some(AttemptSimilarity::SameTests))]
#[case::error([attempt(1, 1, 1, 1), attempt(2, 2, 1, 2), attempt(3, 3, 1, 3)], Some(AttemptSimilarity::SameError))]
#[case::diff([attempt(1, 1, 1, 1), attempt(2, 2, 2, 1), attempt(3, 3, 3, 1)], Some(AttemptSimilarity::SameDiff))]
#[case::nothing([attempt(1, 1, 1, 1), attempt(2, 2, 2, 2), attempt(3, 3, 3, 3)], None)]
#[case::only_two([attempt(1, 1, 1, 1), attempt(1, 2, 2, 2), attempt(3, 3, 3, 3)], None)]
#[case::only_two([attempt(1, 1, 1, 1), attempt(2, 2, 2, 2), attempt(2, 3, 3, 3)], None)]
#[case::unknown([attempt(0, 0, 0, 0), attempt(0, 0, 0, 0), attempt(0, 0, 0, 0)], None)]
fn three_similar_attempts_are_stuck(
    #[case] attempts: [AttemptRecord; 3],
    #[case] expected: Option<AttemptSimilarity>,
) {
    assert_eq!(detect(&attempts), expected);
}

#[test]
fn fewer_than_three_attempts_are_never_stuck() {
    let same = attempt(1, 1, 1, 1);
    assert_eq!(detect(&[]), None);
    assert_eq!(detect(&[same, same]), None);
    assert_eq!(detect(&[same, same, same]), Some(AttemptSimilarity::SameFiles));
}

#[test]
fn an_attempt_that_passed_is_progress() {
    let same = attempt(1, 1, 1, 1);
    assert_eq!(detect(&[same, AttemptRecord { passed: true, ..same }, same]), None);
}

#[test]
fn only_the_last_three_attempts_count() {
    let (same, other) = (attempt(1, 1, 1, 1), attempt(2, 2, 2, 2));
    assert_eq!(detect(&[same, same, same, other]), None);
    assert_eq!(detect(&[other, same, same, same]), Some(AttemptSimilarity::SameFiles));
}

// Rules, in order

fn repeated_attempts() -> [AttemptRecord; 3] {
    [attempt(1, 1, 1, 1); 3]
}

fn context(tier: Tier, tier_failures: u8) -> EscalationContext<'static> {
    EscalationContext {
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

fn decide(context: &EscalationContext<'_>) -> (EscalationAction, EscalationReason) {
    let EscalationDecision { action, reason } =
        decide_after_failed_review(context, &Rules::default());
    (action, reason)
}

#[rstest]
#[case::security(EscalationContext { security_critical: true, ..context(Tier::Simple, 1) }, HaltCondition::SecurityCritical)]
#[case::budget(EscalationContext { over_budget: true, ..context(Tier::Simple, 1) }, HaltCondition::BudgetExceeded)]
#[case::iterations(EscalationContext { iterations: 10, ..context(Tier::Simple, 1) }, HaltCondition::MaxIterationsReached)]
#[case::beyond(EscalationContext { iterations: 11, ..context(Tier::Simple, 1) }, HaltCondition::MaxIterationsReached)]
fn rule_1_a_halt_condition_halts(
    #[case] context: EscalationContext<'static>,
    #[case] condition: HaltCondition,
) {
    assert_eq!(
        decide(&context),
        (EscalationAction::Halt(condition), EscalationReason::HaltCondition)
    );
}

#[test]
fn rule_1_comes_before_all_others() {
    let attempts = repeated_attempts();
    let all = EscalationContext {
        attempts: &attempts,
        iterations: 10,
        retries: 3,
        councils: 2,
        over_budget: true,
        security_critical: true,
        ..context(Tier::Complex, 3)
    };
    assert_eq!(decide(&all).0, EscalationAction::Halt(HaltCondition::SecurityCritical));
    let without = EscalationContext { security_critical: false, ..all };
    assert_eq!(decide(&without).0, EscalationAction::Halt(HaltCondition::BudgetExceeded));
}

#[test]
fn rule_1_a_security_finding_that_does_not_halt_uses_the_top_tier() {
    let mut rules = Rules::default();
    rules.scrum_master.task_loop.halt_conditions.clear();
    let critical = EscalationContext { security_critical: true, ..context(Tier::Simple, 1) };
    let decision = decide_after_failed_review(&critical, &rules);
    assert_eq!(decision.action, EscalationAction::Iterate(Tier::Complex));
    assert_eq!(decision.reason, EscalationReason::SecurityCritical);
    // In the top tier, the other rules apply.
    let critical = EscalationContext { security_critical: true, ..context(Tier::Complex, 3) };
    assert_eq!(decide_after_failed_review(&critical, &rules).action, EscalationAction::Council);
}

#[test]
fn rule_1_hard_limits_always_halt() {
    let mut rules = Rules::default();
    rules.scrum_master.task_loop.halt_conditions.clear();
    for spent in [
        EscalationContext { iterations: 10, ..context(Tier::Simple, 1) },
        EscalationContext { over_budget: true, ..context(Tier::Simple, 1) },
    ] {
        let decision = decide_after_failed_review(&spent, &rules);
        assert!(matches!(decision.action, EscalationAction::Halt(_)));
    }
}

#[test]
fn rule_2_a_stuck_task_goes_to_the_council_at_once() {
    let attempts = repeated_attempts();
    let stuck = EscalationContext { attempts: &attempts, ..context(Tier::Simple, 1) };
    assert_eq!(
        decide(&stuck),
        (EscalationAction::Council, EscalationReason::Stuck(AttemptSimilarity::SameTests))
    );
    let mut rules = Rules::default();
    rules.scrum_master.task_loop.stuck_detection = false;
    let decision = decide_after_failed_review(&stuck, &rules);
    assert_eq!(decision.action, EscalationAction::Iterate(Tier::Simple));
}

#[rstest]
#[case(Tier::Simple, 1, EscalationAction::Iterate(Tier::Simple), EscalationReason::AttemptsLeft)]
#[case(
    Tier::Simple,
    2,
    EscalationAction::Escalate(Tier::Moderate),
    EscalationReason::FailuresInTier(2)
)]
#[case(
    Tier::Moderate,
    1,
    EscalationAction::Iterate(Tier::Moderate),
    EscalationReason::AttemptsLeft
)]
#[case(
    Tier::Moderate,
    2,
    EscalationAction::Escalate(Tier::Complex),
    EscalationReason::FailuresInTier(2)
)]
#[case(Tier::Complex, 2, EscalationAction::Iterate(Tier::Complex), EscalationReason::AttemptsLeft)]
#[case(Tier::Complex, 3, EscalationAction::Council, EscalationReason::FailuresInTier(3))]
fn rule_3_two_failures_in_a_tier_or_three_in_the_top_one_escalate(
    #[case] tier: Tier,
    #[case] failures: u8,
    #[case] action: EscalationAction,
    #[case] reason: EscalationReason,
) {
    assert_eq!(decide(&context(tier, failures)), (action, reason));
}

#[rstest]
#[case::retry(EscalationContext { retries: 3, ..context(Tier::Simple, 2) }, LoopLimit::Retries)]
#[case::council(EscalationContext { councils: 2, ..context(Tier::Complex, 3) }, LoopLimit::Councils)]
#[case::retry_of_a_council(EscalationContext { retries: 3, ..context(Tier::Complex, 3) }, LoopLimit::Retries)]
fn rule_4_a_fourth_retry_or_a_third_council_asks_a_person_instead(
    #[case] context: EscalationContext<'static>,
    #[case] limit: LoopLimit,
) {
    assert_eq!(decide(&context).0, EscalationAction::AskPerson(limit));
}

#[test]
fn rule_4_applies_to_a_stuck_task_too() {
    let attempts = repeated_attempts();
    let stuck = EscalationContext { attempts: &attempts, councils: 2, ..context(Tier::Simple, 1) };
    assert_eq!(decide(&stuck).0, EscalationAction::AskPerson(LoopLimit::Councils));
    let stuck = EscalationContext { attempts: &attempts, retries: 3, ..context(Tier::Simple, 1) };
    assert_eq!(decide(&stuck).0, EscalationAction::AskPerson(LoopLimit::Retries));
}

#[test]
fn rule_5_otherwise_the_same_plan_runs_again_in_the_same_tier() {
    let early = context(Tier::Moderate, 1);
    assert_eq!(
        decide(&early),
        (EscalationAction::Iterate(Tier::Moderate), EscalationReason::AttemptsLeft)
    );
}

#[rstest]
#[case(1, 0, EscalationAction::Iterate(Tier::Moderate))]
#[case(2, 0, EscalationAction::Iterate(Tier::Moderate))]
#[case(3, 0, EscalationAction::Council)]
#[case(3, 1, EscalationAction::Council)]
#[case(3, 2, EscalationAction::AskPerson(LoopLimit::Councils))]
fn three_planning_or_delivery_failures_call_the_council_and_then_a_person(
    #[case] failures: u8,
    #[case] councils: u8,
    #[case] action: EscalationAction,
) {
    let decision = decide_after_failed_job(failures, councils, Tier::Moderate, &Rules::default());
    assert_eq!(
        decision,
        EscalationDecision { action, reason: EscalationReason::FailuresInState(failures) }
    );
}

// In the state machine

/// Runs until a person is asked, with a new failure each time. Returns the tiers.
fn tiers_until_asked(
    mut world: World,
    mut variant: impl FnMut(u8) -> u8,
) -> (World, Vec<Tier>, Vec<u16>) {
    let (mut tiers, mut councils) = (Vec::new(), Vec::new());
    for number in 0..50 {
        world.walk(State::InProgress);
        tiers.push(world.it.tier);
        world.walk(State::Testing).done(red(variant(number)));
        match world.it.state {
            State::CtoIntervention => councils.push(world.it.iterations),
            State::HumanEscalation => break,
            _ => {}
        }
    }
    (world, tiers, councils)
}

#[test]
fn new_failures_run_simple_twice_moderate_twice_complex_thrice_council_complex_thrice_person() {
    use Tier::{Complex, Moderate, Simple};
    let (world, tiers, councils) = tiers_until_asked(World::new(), |number| number);
    assert_eq!(
        tiers,
        [Simple, Simple, Moderate, Moderate, Complex, Complex, Complex, Complex, Complex, Complex]
    );
    assert_eq!(councils, [7]);
    assert_eq!((world.it.iterations, world.it.retries), (10, 3));
    let cause = AlertCause::Halted(HaltCondition::MaxIterationsReached);
    assert_eq!(world.it.open_question.unwrap().cause, cause);
}

#[test]
fn a_second_tier_that_fails_the_same_way_twice_goes_to_the_council_at_once() {
    let (world, tiers, councils) = tiers_until_asked(World::new(), |_| 1);
    assert_eq!(tiers[..4], [Tier::Simple, Tier::Simple, Tier::Moderate, Tier::Moderate]);
    assert_eq!(councils[0], 4);
    assert_eq!(tiers[4], Tier::Complex);
    // The council is asked at most twice, and its guidance resets the count.
    assert_eq!(councils, [4, 7]);
    assert!(world.it.councils <= 2);
}

#[test]
fn a_failed_gate_retries_with_a_brief() {
    let mut world = World::new();
    world.fail_gates(1);
    assert_eq!(world.it.state, State::Adjusting);
    let decision = EscalationDecision {
        action: EscalationAction::Iterate(Tier::Simple),
        reason: EscalationReason::AttemptsLeft,
    };
    assert_eq!(world.started_job(), Some(&Job::Brief { decision, note: None }));
    let entry = world.log.last().unwrap();
    assert_eq!(
        (entry.name, &entry.data),
        (EntryName::SmDecisionMade, &EntryData::Decision(decision))
    );
    let [alert] = world.alerts()[..] else { panic!("one alert") };
    assert_eq!((alert.kind, alert.severity), (AlertKind::ReviewFailed, AlertSeverity::Info));
    assert_eq!((alert.question, alert.answers.len()), (None, 0));
    world.done(Outcome::Briefed(text("brief")));
    let Some(Job::Implement(run_spec)) = world.started_job() else { panic!("a run") };
    assert_eq!((run_spec.brief.as_ref(), run_spec.iteration), (Some(&text("brief")), 2));
    assert_eq!((run_spec.plan.version, run_spec.tier), (1, Tier::Simple));
}

/// Returns the text of the alert about the last step, as people get it.
fn alert_text(world: &World) -> String {
    let step = Step {
        next: world.it.clone(),
        commands: world.commands.clone(),
        entries: world.log.clone(),
    };
    let record = StepRecord::new(1, world.now, step);
    let [alert] = world.alerts()[..] else { panic!("one alert: {:?}", world.alerts()) };
    record.alert_cause(alert).to_string()
}

#[test]
fn an_alert_about_a_change_that_is_sent_back_names_what_failed() {
    let mut world = World::new();
    world.fail_gates(1);
    assert_eq!(alert_text(&world), "a gate failed; work continues");
    world.walk(State::Testing);
    world.done(Outcome::Tested(GateCounts { failed: 2, ..GateCounts::default() }));
    assert_eq!(alert_text(&world), "2 gates failed; work continues");
    let mut world = World::with(|rules| rules.ceremony.low.human_review = true);
    world.walk(State::QualityReview).done(passed());
    world.ask(Action::RequestChanges { commit: commit(9), comments: text("comments") });
    assert_eq!(alert_text(&world), "changes were requested; work continues");
    let mut world = World::new();
    world.walk(State::Committing).done(Outcome::DeliveryRejected(note()));
    assert_eq!(alert_text(&world), "delivery failed; work continues");
    let mut world = World::new();
    let (summary, fingerprint) = (summary(false), Fingerprint::default());
    world.walk(State::QualityReview).done(Outcome::Reviewed { summary, fingerprint });
    assert_eq!(alert_text(&world), "review failed; work continues");
}

#[test]
fn alerts_of_failed_reviews_can_be_disabled() {
    let mut world = World::with(|rules| rules.scrum_master.alerts.on_review_failed = false);
    assert!(world.fail_gates(1).alerts().is_empty());
    let mut world = World::with(|rules| {
        rules.scrum_master.alerts.on_max_retries = false;
        rules.scrum_master.task_loop.max_iterations = 1;
    });
    assert!(world.fail_gates(1).alerts().is_empty());
}

#[test]
fn the_next_tier_revises_the_plan_which_is_approved_again() {
    let mut world = World::new();
    world.fail_gates(1).fail_gates(2);
    assert_eq!((world.it.state, world.it.retries), (State::Adjusting, 1));
    assert_eq!((world.it.tier, world.it.tier_failures), (Tier::Moderate, 0));
    let adjust = Job::Plan { version: 2, from: Some(text("plan")), note: None };
    assert_eq!(world.started_job(), Some(&adjust));
    assert_eq!(world.it.active_job.unwrap().reserved_cost, Usd::from_cents(100));
    assert_eq!(world.alerts()[0].kind, AlertKind::ReviewFailed);
    world.walk(State::AwaitingApproval);
    assert_eq!(world.it.approved_scope, None);
    assert!(matches!(world.started_job(), Some(Job::Check { plan }) if plan.version == 2));
    // The new plan is simple, but the tier stays.
    world.walk(State::Validated);
    assert_eq!(world.it.tier, Tier::Moderate);
}

#[test]
fn the_councils_guidance_becomes_the_next_plan() {
    let mut world = World::new();
    world.fail_gates(1).fail_gates(1).fail_gates(1).fail_gates(1);
    assert_eq!(world.it.state, State::CtoIntervention);
    assert_eq!((world.it.tier, world.it.tier_failures), (Tier::Complex, 0));
    assert_eq!((world.it.councils, world.it.retries), (1, 2));
    assert!(world.has_entry(EntryName::SmCouncilConvened));
    world.walk(State::Adjusting);
    assert_eq!(world.it.state, State::Adjusting);
    let guided = Job::Plan { version: 3, from: Some(text("plan")), note: Some(text("guidance")) };
    assert_eq!(world.started_job(), Some(&guided));
    let entry = world.log.last().unwrap();
    assert_eq!(
        (entry.name, &entry.data),
        (EntryName::SmCouncilConcluded, &EntryData::Stored(text("guidance")))
    );
    assert!(world.it.attempts.is_empty());
}

#[test]
fn a_critical_security_finding_halts_and_saves_the_work() {
    for in_review in [false, true] {
        let mut world = World::new().to(State::Testing);
        if in_review {
            let summary =
                tamma_core::review::ReviewSummary { security_critical: true, ..summary(false) };
            let fingerprint = Fingerprint::default();
            world.done(green()).done(Outcome::Reviewed { summary, fingerprint });
        } else {
            let gates = GateCounts { failed: 1, security_critical: true, ..GateCounts::default() };
            world.done(Outcome::Tested(gates));
        }
        assert_eq!(world.it.state, State::HumanEscalation);
        let question = world.it.open_question.as_ref().unwrap();
        assert_eq!(question.cause, AlertCause::Halted(HaltCondition::SecurityCritical));
        assert_eq!(
            (question.from_state, question.resume_state),
            (State::Adjusting, State::Validated)
        );
        assert_eq!(world.started_job(), Some(&Job::SaveWork));
        let [alert] = world.alerts()[..] else { panic!("one alert") };
        assert_eq!((alert.kind, alert.severity), (AlertKind::Error, AlertSeverity::Critical));
    }
}

#[test]
fn after_a_security_finding_that_does_not_halt_the_next_run_uses_the_top_tier() {
    let mut world = World::with(|rules| rules.scrum_master.task_loop.halt_conditions.clear());
    world.walk(State::Testing);
    let gates = GateCounts { failed: 1, security_critical: true, ..GateCounts::default() };
    world.done(Outcome::Tested(gates)).walk(State::InProgress);
    assert_eq!((world.it.tier, world.it.retries), (Tier::Complex, 0));
    assert_eq!(world.it.tier_failures, 0);
}

#[test]
fn a_failed_change_halts_if_the_next_run_is_over_budget() {
    let mut world = World::with(|rules| rules.budget.task_usd = Some(Usd::from_cents(100)));
    world
        .walk(State::InProgress)
        .done_with_usage(Some(costing(76)), Outcome::RunFinished(commit(4)));
    world.done(red(1));
    assert_eq!(world.it.state, State::HumanEscalation);
    let cause = AlertCause::Halted(HaltCondition::BudgetExceeded);
    assert_eq!(world.it.open_question.as_ref().unwrap().cause, cause);
}

#[test]
fn pre_existing_and_flaky_failures_do_not_count() {
    let gates = GateCounts { passed: 1, pre_existing: 2, flaky: 1, ..GateCounts::default() };
    let mut world = World::new().to(State::Testing);
    world.done(Outcome::Tested(gates));
    assert_eq!(world.it.state, State::QualityReview);
    assert_eq!(world.log.last().unwrap().data, EntryData::Gates(gates));
}

#[test]
fn success_resets_the_count_of_failures_in_the_tier() {
    let mut world = World::new();
    world.fail_gates(1).walk(State::QualityReview).done(passed());
    assert_eq!((world.it.state, world.it.tier_failures), (State::Approved, 0));
    assert_eq!(world.it.attempts.len(), 2);
    assert!(world.it.attempts[1].passed);
}

#[test]
fn only_attempts_that_are_compared_are_kept() {
    let mut world = World::new();
    world.rules.scrum_master.task_loop.max_iterations = 50;
    world.rules.scrum_master.task_loop.top_tier_threshold = 50;
    for variant in 0..15 {
        world.fail_gates(variant);
    }
    assert_eq!(world.it.attempts.len(), ATTEMPT_HISTORY);
    let last = world.it.attempts[ATTEMPT_HISTORY - 1].fingerprint.diff;
    assert_eq!(last, Some(Digest::of(&[14])));
}

// Human review

fn in_human_review() -> World {
    let mut world = World::with(|rules| rules.ceremony.low.human_review = true);
    world.walk(State::QualityReview).done(passed());
    assert_eq!(world.it.state, State::QualityReview);
    world
}

#[test]
fn a_required_human_review_covers_one_commit() {
    let mut world = in_human_review();
    assert_eq!(world.it.open_question.as_ref().unwrap().cause, AlertCause::ReviewNeeded);
    assert_eq!(world.started_job(), None);
    assert_eq!(world.alerts()[0].kind, AlertKind::ApprovalNeeded);
    let (seen, now) = (commit(1), commit(9));
    let refused = world.try_ask("ann", Action::Accept { commit: seen, reason: None });
    assert_eq!(refused, Err(Refusal::CommitChanged { seen, now }));
    world.ask(Action::Accept { commit: now, reason: Some(text("clean")) });
    assert_eq!(world.it.state, State::Approved);
    assert_eq!(world.log.last().unwrap().reason.as_deref(), Some("clean"));
}

#[test]
fn a_persons_comments_go_to_the_agent() {
    let mut world = in_human_review();
    world.ask(Action::RequestChanges { commit: commit(9), comments: text("comments") });
    assert_eq!(world.it.state, State::Adjusting);
    assert_eq!((world.it.tier_failures, world.it.iterations), (1, 1));
    assert!(matches!(
        world.started_job(),
        Some(Job::Brief { note: Some(comments), .. }) if *comments == text("comments")
    ));
    world.done(Outcome::Briefed(note()));
    assert_eq!(world.it.note, None);
}

#[test]
fn a_person_reviews_only_after_the_automatic_review() {
    let mut world = World::with(|rules| rules.ceremony.low.human_review = true);
    world.walk(State::QualityReview);
    let refused = world.try_ask("ann", Action::Accept { commit: commit(9), reason: None });
    let state = State::QualityReview;
    assert_eq!(refused, Err(Refusal::WrongState { state, action: "accept".to_owned() }));
}

#[test]
fn a_change_that_failed_the_automatic_review_needs_no_human_review() {
    let mut world = World::with(|rules| rules.ceremony.low.human_review = true);
    world.walk(State::QualityReview);
    let fingerprint = Fingerprint::default();
    world.done(Outcome::Reviewed { summary: summary(false), fingerprint });
    assert_eq!(world.it.state, State::Adjusting);
    assert_eq!(world.log[world.log.len() - 2].trigger, Some(Trigger::ReviewFailed));
}

// Delivery

#[test]
fn a_failed_hook_or_a_conflict_returns_with_its_output() {
    let mut world = World::new().to(State::Committing);
    world.done(Outcome::DeliveryRejected(text("hook said no")));
    assert_eq!(world.it.state, State::Adjusting);
    assert_eq!(world.it.failures.get(&State::Committing), Some(&1));
    assert!(matches!(
        world.started_job(),
        Some(Job::Brief { note: Some(text), .. }) if text.as_str() == "hook said no"
    ));
}

#[test]
fn three_failed_deliveries_call_the_council_without_counting_as_a_retry() {
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
fn a_successful_delivery_resets_the_count() {
    let mut world = World::new().to(State::Committing);
    world.done(Outcome::DeliveryRejected(note())).walk(State::Learning);
    assert!(world.it.failures.is_empty());
    assert_eq!(world.it.commit, Some(commit(10)));
}

// A person's answers

#[test]
fn continuing_after_the_last_run_needs_a_grant_and_resets_the_count() {
    let mut world = World::with(|rules| rules.scrum_master.task_loop.max_iterations = 2);
    world.fail_gates(1).fail_gates(1).done(Outcome::WorkSaved);
    let refused = world.try_ask("ann", Action::Continue { grant: Grant::default() });
    assert_eq!(refused, Err(Refusal::NeedsGrant));
    world.ask(Action::Continue { grant: Grant { iterations: 1, ..Grant::default() } });
    assert_eq!(world.it.state, State::Validated);
    assert_eq!((world.it.tier_failures, world.it.attempts.len()), (0, 0));
    assert_eq!(world.it.max_iterations(&world.rules), 3);
    world.fail_gates(1);
    assert_eq!(world.it.state, State::HumanEscalation);
}

/// Task with all three retries used up, failing once more.
fn out_of_retries() -> World {
    let mut world = World::with(|rules| {
        rules.scrum_master.task_loop.max_retries = 1;
        rules.scrum_master.task_loop.max_iterations = 50;
    });
    for variant in 0..4 {
        world.fail_gates(variant);
    }
    assert_eq!(world.it.state, State::HumanEscalation);
    let cause = AlertCause::LimitReached(LoopLimit::Retries);
    assert_eq!(world.it.open_question.as_ref().unwrap().cause, cause);
    assert_eq!(world.alerts()[0].kind, AlertKind::MaxRetriesExceeded);
    world.done(Outcome::WorkSaved);
    world
}

#[test]
fn retry_resets_the_retries_and_continue_does_not() {
    let mut world = out_of_retries();
    world.ask(Action::Continue { grant: Grant::default() });
    assert_eq!((world.it.state, world.it.retries), (State::Validated, 1));
    let mut world = out_of_retries();
    world.ask(Action::Retry { grant: Grant::default() });
    assert_eq!((world.it.state, world.it.retries), (State::Validated, 0));
}

#[test]
fn the_council_is_never_asked_a_third_time() {
    let mut world = World::with(|rules| {
        rules.scrum_master.task_loop.max_retries = 10;
        rules.scrum_master.task_loop.max_iterations = 100;
    });
    for _ in 0..30 {
        world.fail_gates(1);
        if world.it.state == State::HumanEscalation {
            world.done(Outcome::WorkSaved).ask(Action::Retry { grant: Grant::default() });
        }
    }
    assert_eq!(world.it.councils, 2);
}

/// Fails the runs of all council members.
fn nobody_comes(world: &mut World, kind: &FailureKind) {
    for _ in &world.rules.council.members.clone() {
        world.done(failure(kind.clone()));
    }
}

#[test]
fn a_council_that_cannot_be_held_asks_a_person() {
    let mut world = World::new();
    world.fail_gates(1).fail_gates(1).fail_gates(1).fail_gates(1);
    for _ in 0..3 {
        nobody_comes(&mut world, &FailureKind::Unavailable);
    }
    assert_eq!(world.it.state, State::HumanEscalation);
    let question = world.it.open_question.as_ref().unwrap();
    assert_eq!(question.cause, AlertCause::JobFailed(State::CtoIntervention));
    assert_eq!(question.resume_state, State::CtoIntervention);
}

#[test]
fn a_stuck_task_that_a_person_skips_is_accepted_as_it_is() {
    let mut world = World::new();
    world.fail_gates(1).fail_gates(1).fail_gates(1).fail_gates(1);
    for _ in 0..3 {
        nobody_comes(&mut world, &FailureKind::Unavailable);
    }
    world.done(Outcome::WorkSaved).ask(Action::Skip { reason: text("good enough") });
    assert_eq!(world.it.state, State::Approved);
}
