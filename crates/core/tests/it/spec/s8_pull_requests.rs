//! Section 8: delivery as a pull request.

use rstest::rstest;
use tamma_core::actor::Actor;
use tamma_core::budget::Grant;
use tamma_core::cause::{AlertCause, PullRequestProblem};
use tamma_core::failure::FailureKind;
use tamma_core::forge::{
    CheckFact, CheckResult, Mergeability, PullRequestFacts, PullRequestStatus, ReviewFact,
    ReviewVerdict, ThreadFact,
};
use tamma_core::history::EntryName;
use tamma_core::ids::CommitId;
use tamma_core::pull_request::{
    Feedback, NOT_STARTED_ID, OpenedPullRequest, PullRequestDecision, PullRequestJob,
    PullRequestOutcome, PullRequestStage, PullRequestState, QueueResult, decide,
};
use tamma_core::rules::{DeliveryMode, PullRequestRules};
use tamma_core::task_loop::{
    Action, EventKind, Job, JobKind, NextStep, Outcome, Refusal, State, allowed_answers,
};

use crate::world::{World, check, commit, failure, green, minute, note, opened, passed, reason};

const HEAD: u8 = 9;

fn waiting(mode: DeliveryMode) -> World {
    World::with(|rules| rules.delivery.mode = mode).to(State::AwaitingMerge)
}

fn job(world: &World) -> &PullRequestJob {
    match world.started_job() {
        Some(Job::PullRequest(job)) => job,
        other => panic!("{other:?} instead of a job about the pull request"),
    }
}

fn finish(world: &mut World, outcome: PullRequestOutcome) -> &mut World {
    world.done(Outcome::PullRequest(outcome))
}

fn cause(world: &World) -> Option<PullRequestProblem> {
    match world.it.open_question.as_ref()?.cause {
        AlertCause::PullRequest(problem) => Some(problem),
        _ => None,
    }
}

fn failed_check(id: &str, head: CommitId) -> Feedback {
    Feedback::Check { name: "ci".to_owned(), id: id.to_owned(), head }
}

fn red(world: &World) -> PullRequestFacts {
    let checks = vec![check("ci", CheckResult::Failed)];
    PullRequestFacts { checks, ..world.facts() }
}

fn thread(id: &str, last_comment: &str) -> ThreadFact {
    ThreadFact {
        id: id.to_owned(),
        last_comment: last_comment.to_owned(),
        by: "bo".to_owned(),
        can_write: true,
        bot: false,
        resolved: false,
        answered: false,
    }
}

fn review(verdict: ReviewVerdict, commit: CommitId) -> ReviewFact {
    ReviewFact { by: "bo".to_owned(), commit, verdict, can_write: true }
}

fn memory() -> PullRequestState {
    let Outcome::PullRequestOpened(opened) = opened(commit(HEAD)) else { panic!("opened") };
    PullRequestState::new(&opened, commit(HEAD))
}

fn decided(
    memory: &PullRequestState,
    facts: &PullRequestFacts,
    rules: &PullRequestRules,
) -> PullRequestDecision {
    decide(memory, facts, DeliveryMode::Merge, rules, minute(0), minute(5))
}

/// Facts that let Tamma merge.
fn ready() -> PullRequestFacts {
    waiting(DeliveryMode::Merge).facts()
}

#[rstest]
#[case::ready(|_: &mut PullRequestFacts| {}, None)]
#[case::draft(|it: &mut PullRequestFacts| it.draft = true, Some(PullRequestStage::WaitingForReview))]
#[case::incomplete(|it: &mut PullRequestFacts| it.incomplete = true, Some(PullRequestStage::WaitingForChecks))]
#[case::pending(
    |it: &mut PullRequestFacts| it.checks[0].result = CheckResult::Pending,
    Some(PullRequestStage::WaitingForChecks)
)]
#[case::no_checks_yet(|it: &mut PullRequestFacts| it.checks.clear(), Some(PullRequestStage::WaitingForChecks))]
#[case::only_ours(
    |it: &mut PullRequestFacts| it.checks[0].name = "tamma".to_owned(),
    Some(PullRequestStage::WaitingForChecks)
)]
#[case::unknown(
    |it: &mut PullRequestFacts| it.mergeability = Mergeability::Unknown,
    Some(PullRequestStage::Merging)
)]
#[case::late_conflict(
    |it: &mut PullRequestFacts| it.mergeability = Mergeability::Conflicting,
    Some(PullRequestStage::BaseMoved)
)]
#[case::base_moved_but_clean(|it: &mut PullRequestFacts| it.base = commit(50), None)]
#[case::another_pull_request(|it: &mut PullRequestFacts| it.number = 8, Some(PullRequestStage::WaitingForChecks))]
fn tamma_merges_only_a_complete_green_and_clean_head(
    #[case] change: fn(&mut PullRequestFacts),
    #[case] waits: Option<PullRequestStage>,
) {
    let mut facts = ready();
    change(&mut facts);
    let merge = PullRequestDecision::Start(PullRequestJob::Merge { head: commit(HEAD) });
    let expected = waits.map_or(merge, PullRequestDecision::Wait);
    assert_eq!(decided(&memory(), &facts, &PullRequestRules::default()), expected);
}

#[test]
fn in_other_modes_a_person_merges() {
    let rules = PullRequestRules::default();
    for mode in [DeliveryMode::PullRequest, DeliveryMode::Branch] {
        let decision = decide(&memory(), &ready(), mode, &rules, minute(0), minute(5));
        assert_eq!(decision, PullRequestDecision::Wait(PullRequestStage::WaitingForReview));
    }
}

#[test]
fn a_head_that_was_not_judged_is_never_merged() {
    let mut memory = memory();
    memory.judged = commit(40);
    let decision = decided(&memory, &ready(), &PullRequestRules::default());
    assert_eq!(decision, PullRequestDecision::Wait(PullRequestStage::WaitingForReview));
}

#[test]
fn required_checks_alone_count_if_there_are_any() {
    let mut rules = PullRequestRules::default();
    let mut facts = ready();
    facts.checks.push(check("slow", CheckResult::Pending));
    let waits = PullRequestDecision::Wait(PullRequestStage::WaitingForChecks);
    assert_eq!(decided(&memory(), &facts, &rules), waits);
    facts.checks[0].required = true;
    let merges = PullRequestDecision::Start(PullRequestJob::Merge { head: commit(HEAD) });
    assert_eq!(decided(&memory(), &facts, &rules), merges);
    rules.required_checks = vec!["slow".to_owned()];
    assert_eq!(decided(&memory(), &facts, &rules), waits);
}

#[test]
fn approvals_count_for_the_exact_head_and_by_people_who_can_push() {
    let rules = PullRequestRules { approvals: 1, ..PullRequestRules::default() };
    let mut facts = ready();
    let waits = PullRequestDecision::Wait(PullRequestStage::WaitingForReview);
    facts.reviews = vec![review(ReviewVerdict::Approved, commit(3))];
    assert_eq!(decided(&memory(), &facts, &rules), waits);
    facts.reviews = vec![review(ReviewVerdict::Approved, commit(HEAD))];
    facts.reviews[0].can_write = false;
    assert_eq!(decided(&memory(), &facts, &rules), waits);
    facts.reviews[0].can_write = true;
    let merges = PullRequestDecision::Start(PullRequestJob::Merge { head: commit(HEAD) });
    assert_eq!(decided(&memory(), &facts, &rules), merges);
}

#[rstest]
#[case::ours(|it: &mut ThreadFact| it.answered = true)]
#[case::bot(|it: &mut ThreadFact| it.bot = true)]
#[case::stranger(|it: &mut ThreadFact| it.can_write = false)]
#[case::resolved(|it: &mut ThreadFact| it.resolved = true)]
fn such_comments_never_start_a_round(#[case] change: fn(&mut ThreadFact)) {
    let mut facts = ready();
    facts.threads = vec![thread("t", "1")];
    change(&mut facts.threads[0]);
    let merges = PullRequestDecision::Start(PullRequestJob::Merge { head: commit(HEAD) });
    assert_eq!(decided(&memory(), &facts, &PullRequestRules::default()), merges);
}

#[test]
fn one_round_waits_for_the_checks_and_has_everything() {
    let mut world = waiting(DeliveryMode::PullRequest);
    let head = commit(HEAD);
    let mut facts = red(&world);
    facts.threads = vec![thread("t", "1"), thread("u", "2")];
    facts.reviews = vec![review(ReviewVerdict::ChangesRequested, head)];
    facts.checks.push(check("slow", CheckResult::Pending));
    world.observe(facts.clone());
    let checks = vec![failed_check("1", head)];
    assert_eq!(*job(&world), PullRequestJob::TriageChecks { head, checks: checks.clone() });
    let triaged = PullRequestOutcome::ChecksTriaged { excused: Vec::new(), caused: checks };
    finish(&mut world, triaged);
    assert_eq!(world.started_job(), None);
    facts.checks[1].result = CheckResult::Passed;
    world.observe(facts);
    let PullRequestJob::CollectFeedback { feedback, .. } = job(&world) else { panic!("collect") };
    let keys: Vec<_> = feedback.iter().map(Feedback::key).collect();
    let expected = [
        format!("check:ci:1@{head}"),
        "thread:t:1".into(),
        "thread:u:2".into(),
        format!("review:bo@{head}"),
    ];
    assert_eq!(keys, expected);
    finish(&mut world, PullRequestOutcome::FeedbackCollected(note()));
    assert_eq!(world.it.state, State::Adjusting);
    assert!(matches!(world.started_job(), Some(Job::Brief { note: Some(_), .. })));
}

#[test]
fn a_repair_takes_the_usual_path_back_to_the_same_pull_request() {
    let mut world = waiting(DeliveryMode::Merge);
    let mut facts = world.facts();
    facts.threads = vec![thread("t", "1")];
    world.observe(facts);
    finish(&mut world, PullRequestOutcome::FeedbackCollected(note()));
    let entries = world.log.len();
    world.walk(State::InProgress).done(Outcome::RunFinished(commit(11)));
    world.walk(State::AwaitingMerge);
    let states: Vec<_> = world.log[entries..]
        .iter()
        .filter(|entry| entry.trigger.is_some())
        .map(|entry| entry.to)
        .collect();
    assert_eq!(
        states,
        [
            State::Validated,
            State::InProgress,
            State::Testing,
            State::QualityReview,
            State::Approved,
            State::Committing,
            State::AwaitingMerge,
        ]
    );
    let memory = world.it.pull_request.as_ref().expect("a pull request");
    assert_eq!((memory.number, memory.rounds, memory.pushed), (7, 1, commit(11)));
    // The same comment is not feedback again, and a new one is.
    let mut facts = world.facts();
    facts.threads = vec![thread("t", "1")];
    world.observe(facts.clone());
    assert_eq!(*job(&world), PullRequestJob::Merge { head: commit(11) });
    finish(&mut world, PullRequestOutcome::Stale);
    facts.threads = vec![thread("t", "2")];
    world.observe(facts);
    assert!(matches!(job(&world), PullRequestJob::CollectFeedback { .. }));
}

#[test]
fn an_excused_failure_neither_goes_back_nor_is_merged() {
    let mut world = waiting(DeliveryMode::Merge);
    let facts = red(&world);
    world.observe(facts);
    let excused = vec![failed_check("1", commit(HEAD))];
    finish(&mut world, PullRequestOutcome::ChecksTriaged { excused, caused: Vec::new() });
    assert_eq!((world.it.state, world.started_job()), (State::AwaitingMerge, None));
    let stage = PullRequestStage::ChecksFailed;
    let next = world.it.next_step(&world.rules);
    assert_eq!(next, Some(NextStep::PullRequest { number: 7, stage }));
    // Another attempt is another failure.
    let mut facts = red(&world);
    facts.checks[0].id = "2".to_owned();
    world.observe(facts);
    assert!(matches!(job(&world), PullRequestJob::TriageChecks { .. }));
}

#[test]
fn after_the_last_round_a_person_decides() {
    let mut world = World::with(|rules| {
        rules.delivery.mode = DeliveryMode::Merge;
        rules.delivery.pull_requests.max_rounds = 0;
    })
    .to(State::AwaitingMerge);
    let mut facts = world.facts();
    facts.threads = vec![thread("t", "1")];
    world.observe(facts.clone());
    assert_eq!(cause(&world), Some(PullRequestProblem::RoundsUsedUp));
    // To continue is to ignore this comment.
    world.ask(Action::Continue { grant: Grant::default() });
    assert_eq!(*job(&world), PullRequestJob::Merge { head: commit(HEAD) });
}

#[test]
fn a_comment_that_is_resolved_settles_the_question_about_it() {
    let mut world = World::with(|rules| {
        rules.delivery.mode = DeliveryMode::PullRequest;
        rules.delivery.pull_requests.max_rounds = 0;
    })
    .to(State::AwaitingMerge);
    let mut facts = world.facts();
    facts.threads = vec![thread("t", "1")];
    world.observe(facts.clone());
    facts.threads[0].resolved = true;
    world.observe(facts);
    assert_eq!((world.it.state, &world.it.open_question), (State::AwaitingMerge, &None));
}

#[test]
fn without_checks_a_person_is_asked_after_the_configured_time() {
    let mut world = waiting(DeliveryMode::Merge);
    let facts = PullRequestFacts { checks: Vec::new(), ..world.facts() };
    world.observe(facts);
    assert_eq!(world.it.wake_at(&world.rules), Some(minute(10)));
    world.tick_at(10);
    assert_eq!(cause(&world), Some(PullRequestProblem::NoChecks));
    assert_eq!(world.started_job(), None);
    world.ask(Action::Continue { grant: Grant::default() });
    assert_eq!(*job(&world), PullRequestJob::Merge { head: commit(HEAD) });
}

#[test]
fn a_required_check_that_never_starts_counts_as_no_check() {
    let mut world = waiting(DeliveryMode::Merge);
    let mut facts = world.facts();
    let missing = CheckFact {
        name: "e2e".to_owned(),
        id: format!("{NOT_STARTED_ID}e2e"),
        required: true,
        result: CheckResult::Pending,
    };
    facts.checks.push(missing);
    world.observe(facts.clone());
    assert_eq!(world.started_job(), None);
    assert_eq!(world.it.wake_at(&world.rules), Some(minute(10)));
    world.tick_at(10);
    assert_eq!(cause(&world), Some(PullRequestProblem::NoChecks));
    // It starts, so nobody has to answer.
    if let Some(check) = facts.checks.last_mut() {
        check.id = "7".to_owned();
    }
    world.observe(facts);
    assert_eq!((world.it.state, &world.it.open_question), (State::AwaitingMerge, &None));
}

#[test]
fn to_go_on_without_a_required_check_holds_for_one_head() {
    let mut world = waiting(DeliveryMode::Merge);
    let mut facts = world.facts();
    facts.checks.push(CheckFact {
        name: "e2e".to_owned(),
        id: format!("{NOT_STARTED_ID}e2e"),
        required: true,
        result: CheckResult::Pending,
    });
    world.observe(facts);
    world.tick_at(10);
    assert_eq!(cause(&world), Some(PullRequestProblem::NoChecks));
    world.ask(Action::Continue { grant: Grant::default() });
    assert_eq!(*job(&world), PullRequestJob::Merge { head: commit(HEAD) });
    let memory = world.it.pull_request.as_ref().expect("a pull request");
    assert_eq!((memory.without_required, memory.without_checks), (Some(commit(HEAD)), false));
}

#[test]
fn a_rebase_that_keeps_the_change_is_tested_and_delivered_without_another_review() {
    let mut world = World::with(|rules| {
        rules.delivery.mode = DeliveryMode::Merge;
        rules.ceremony.low.human_review = true;
    })
    .to(State::AwaitingMerge);
    let (base, mergeability) = (commit(50), Mergeability::Behind);
    let facts = PullRequestFacts { base, mergeability, ..world.facts() };
    world.observe(facts);
    assert_eq!(*job(&world), PullRequestJob::Rebase { head: commit(HEAD), onto: base });
    let head = commit(12);
    finish(&mut world, PullRequestOutcome::Rebased { head, base, changed: false });
    assert_eq!(world.it.state, State::Testing);
    assert_eq!(world.it.pin.expect("a pin").base, base);
    assert!(world.it.is_approved());
    world.done(green());
    assert_eq!((world.it.state, world.it.commit), (State::Approved, Some(head)));
}

#[test]
fn a_rebase_that_changes_the_change_is_reviewed_by_people_again() {
    let mut world = World::with(|rules| {
        rules.delivery.mode = DeliveryMode::Merge;
        rules.ceremony.low.human_review = true;
    })
    .to(State::AwaitingMerge);
    let (base, mergeability) = (commit(50), Mergeability::Conflicting);
    let facts = PullRequestFacts { base, mergeability, ..world.facts() };
    world.observe(facts);
    let head = commit(12);
    finish(&mut world, PullRequestOutcome::Rebased { head, base, changed: true });
    world.done(green()).done(passed());
    assert_eq!(world.it.state, State::QualityReview);
    let question = world.it.open_question.as_ref().expect("a question");
    assert_eq!(question.cause, AlertCause::ReviewNeeded);
}

#[test]
fn conflicts_of_a_rebase_go_back_as_a_round() {
    let mut world = waiting(DeliveryMode::PullRequest);
    let (base, mergeability) = (commit(50), Mergeability::Conflicting);
    let facts = PullRequestFacts { base, mergeability, ..world.facts() };
    world.observe(facts);
    finish(&mut world, PullRequestOutcome::RebaseConflicts(note()));
    assert_eq!(world.it.state, State::Adjusting);
    assert_eq!(world.it.pin.expect("a pin").base, base);
    assert_eq!(world.it.pull_request.as_ref().expect("a pull request").rounds, 1);
}

#[test]
fn commits_of_somebody_else_are_adopted_only_if_a_person_says_so() {
    let mut world = waiting(DeliveryMode::Merge);
    let facts = PullRequestFacts { head: commit(99), ..world.facts() };
    world.observe(facts);
    assert_eq!((cause(&world), world.started_job()), (Some(PullRequestProblem::HeadMoved), None));
    let retried = world.try_ask("ann", Action::Retry { grant: Grant::default() });
    assert!(matches!(retried, Err(Refusal::AnswerNotAllowed { .. })));
    world.ask(Action::Continue { grant: Grant::default() });
    assert_eq!(*job(&world), PullRequestJob::Adopt { head: commit(99) });
    finish(&mut world, PullRequestOutcome::Adopted(commit(99)));
    assert_eq!((world.it.state, world.it.commit), (State::Testing, Some(commit(99))));
    world.walk(State::AwaitingMerge);
    // The forge reported this head before, and is not asked again.
    assert_eq!(*job(&world), PullRequestJob::Merge { head: commit(99) });
}

#[test]
fn commits_that_came_after_the_question_are_asked_about_again() {
    let mut world = waiting(DeliveryMode::Merge);
    for head in [98, 99] {
        let facts = PullRequestFacts { head: commit(head), ..world.facts() };
        world.observe(facts);
    }
    world.ask(Action::Continue { grant: Grant::default() });
    assert_eq!((cause(&world), world.started_job()), (Some(PullRequestProblem::HeadMoved), None));
    world.ask(Action::Continue { grant: Grant::default() });
    assert_eq!(*job(&world), PullRequestJob::Adopt { head: commit(99) });
}

#[test]
fn a_late_report_of_an_earlier_head_is_not_somebody_elses_push() {
    let mut memory = memory();
    let opened =
        OpenedPullRequest { number: 7, url: memory.url.clone(), head: commit(11), base: commit(1) };
    memory.update(&opened, commit(11));
    let rules = PullRequestRules::default();
    let decision = decided(&memory, &ready(), &rules);
    assert_eq!(decision, PullRequestDecision::Wait(PullRequestStage::HeadMoved));
    // It stays: the newest head was not pushed, because somebody had closed the pull request.
    let late = |memory: &PullRequestState| {
        decide(memory, &ready(), DeliveryMode::Merge, &rules, minute(0), minute(10))
    };
    assert_eq!(late(&memory), PullRequestDecision::Ask(PullRequestProblem::HeadMoved));
    memory.adopt = Some(commit(HEAD));
    let adopt = PullRequestJob::Adopt { head: commit(HEAD) };
    assert_eq!(late(&memory), PullRequestDecision::Start(adopt));
}

#[test]
fn a_pull_request_with_too_many_facts_is_left_to_a_person() {
    let mut world = waiting(DeliveryMode::Merge);
    let facts = PullRequestFacts { incomplete: true, ..world.facts() };
    world.observe(facts);
    assert_eq!(world.it.wake_at(&world.rules), Some(minute(10)));
    world.tick_at(10);
    assert_eq!(cause(&world), Some(PullRequestProblem::Blocked));
    world.ask(Action::Continue { grant: Grant::default() });
    assert_eq!((world.it.state, world.started_job()), (State::AwaitingMerge, None));
    let stage = world.it.pull_request.as_ref().map(|memory| memory.stage);
    assert_eq!(stage, Some(PullRequestStage::Blocked));
}

#[test]
fn our_own_merge_completes_the_task() {
    let mut world = waiting(DeliveryMode::Merge);
    let facts = world.facts();
    world.observe(facts);
    finish(&mut world, PullRequestOutcome::Merged(commit(77)));
    assert_eq!((world.it.state, world.it.commit), (State::Learning, Some(commit(77))));
    world.walk(State::Completed);
}

#[rstest]
#[case(State::InProgress)]
#[case(State::Testing)]
#[case(State::Approved)]
fn a_merge_by_a_person_ends_the_task_wherever_it_is(#[case] state: State) {
    let mut world = waiting(DeliveryMode::PullRequest);
    let mut facts = world.facts();
    facts.threads = vec![thread("t", "1")];
    world.observe(facts.clone());
    finish(&mut world, PullRequestOutcome::FeedbackCollected(note()));
    world.walk(state);
    facts.status = PullRequestStatus::Merged { commit: commit(77), by: "bo".to_owned() };
    world.observe(facts);
    assert_eq!(world.it.state, State::Learning);
    let last = world.log.last().expect("an entry");
    assert_eq!((last.name, last.reason.as_deref()), (EntryName::SmDelivered, Some("merged by bo")));
}

#[test]
fn a_closed_pull_request_asks_why_and_is_never_opened_again() {
    let mut world = waiting(DeliveryMode::PullRequest);
    let status = PullRequestStatus::Closed { by: "bo".to_owned() };
    let facts = PullRequestFacts { status, ..world.facts() };
    world.observe(facts);
    assert_eq!(cause(&world), Some(PullRequestProblem::Closed));
    let changed = world.try_ask("ann", Action::ChangeTask { request: note() });
    assert!(matches!(changed, Err(Refusal::WrongState { .. })));
    world.ask(Action::Cancel { reason: reason() });
    assert_eq!(world.it.state, State::Cancelled);
    let learn = Job::Learn { ending: State::Cancelled, use_model: true };
    assert_eq!(world.started_job(), Some(&learn));
}

#[test]
fn a_closed_pull_request_ends_the_task_if_nobody_says_why() {
    let mut world = waiting(DeliveryMode::PullRequest);
    let status = PullRequestStatus::Closed { by: "bo".to_owned() };
    let facts = PullRequestFacts { status, ..world.facts() };
    world.observe(facts).tick_at(240);
    assert_eq!(world.it.state, State::Cancelled);
    let last = world.log.last().expect("an entry");
    assert_eq!(last.reason.as_deref(), Some("pull request closed by bo, who gave no reason"));
}

#[test]
fn the_merge_queue_lands_a_change_or_returns_it_with_its_log() {
    let mut world = waiting(DeliveryMode::Merge);
    let head = world.facts().head;
    let early = EventKind::QueueSettled(QueueResult::Returned { head, log: note() });
    assert_eq!(world.feed(Actor::Tamma, early.clone()), Err(Refusal::NotQueued));
    let facts = world.facts();
    world.observe(facts);
    finish(&mut world, PullRequestOutcome::Queued);
    let stage = PullRequestStage::Queued;
    let next = world.it.next_step(&world.rules);
    assert_eq!(next, Some(NextStep::PullRequest { number: 7, stage }));
    let other = QueueResult::Returned { head: commit(99), log: note() };
    let other = world.feed(Actor::Tamma, EventKind::QueueSettled(other));
    assert_eq!(other, Err(Refusal::NotQueued), "a result of another head");
    world.feed(Actor::Tamma, early).expect("it is queued");
    assert_eq!(world.it.state, State::Adjusting);
    let landed = EventKind::QueueSettled(QueueResult::Landed { head, commit: commit(77) });
    world.feed(Actor::Tamma, landed).expect("it has a pull request");
    assert_eq!((world.it.state, world.it.commit), (State::Learning, Some(commit(77))));
}

#[test]
fn a_change_that_the_queue_of_the_forge_removed_is_shown_to_a_person() {
    let mut world = waiting(DeliveryMode::Merge);
    let facts = world.facts();
    world.observe(facts.clone());
    finish(&mut world, PullRequestOutcome::Queued);
    // Facts from before it was added.
    world.observe(PullRequestFacts { base: commit(51), ..facts.clone() });
    assert!(matches!(job(&world), PullRequestJob::Merge { .. }));
    finish(&mut world, PullRequestOutcome::Queued);
    world.observe(PullRequestFacts { queued: true, ..facts.clone() });
    let stage = PullRequestStage::Queued;
    let next = world.it.next_step(&world.rules);
    assert_eq!(next, Some(NextStep::PullRequest { number: 7, stage }));
    world.observe(facts);
    assert_eq!(cause(&world), Some(PullRequestProblem::Blocked));
    world.ask(Action::Retry { grant: Grant::default() });
    assert!(matches!(job(&world), PullRequestJob::Merge { .. }));
}

#[test]
fn a_change_that_left_the_queue_waits_for_newer_facts() {
    let mut world = waiting(DeliveryMode::Merge);
    let facts = world.facts();
    world.observe(facts.clone());
    let left = EventKind::QueueSettled(QueueResult::Left { head: facts.head });
    finish(&mut world, PullRequestOutcome::Queued);
    world.feed(Actor::Tamma, left.clone()).expect("it is queued");
    assert_eq!((world.it.state, world.started_job()), (State::AwaitingMerge, None));
    let stage = PullRequestStage::Merging;
    let next = world.it.next_step(&world.rules);
    assert_eq!(next, Some(NextStep::PullRequest { number: 7, stage }));
    assert_eq!(world.feed(Actor::Tamma, left), Err(Refusal::NotQueued));
    // The forge reports the same again, so it is tried again.
    world.observe(facts);
    assert!(matches!(job(&world), PullRequestJob::Merge { .. }));
}

#[test]
fn a_refusal_of_the_forge_is_shown_and_not_repeated() {
    let mut world = waiting(DeliveryMode::Merge);
    let facts = world.facts();
    world.observe(facts);
    finish(&mut world, PullRequestOutcome::Refused(note()));
    assert_eq!(cause(&world), Some(PullRequestProblem::Blocked));
    world.ask(Action::Continue { grant: Grant::default() });
    assert_eq!((world.it.state, world.started_job()), (State::AwaitingMerge, None));
    assert_eq!(
        world.it.next_step(&world.rules).expect("a next step").to_string(),
        "pull request #7: waiting for a person to merge it, because the forge refused"
    );
}

#[test]
fn stale_facts_are_not_acted_on_twice() {
    let mut world = waiting(DeliveryMode::Merge);
    let facts = world.facts();
    world.observe(facts);
    finish(&mut world, PullRequestOutcome::Stale);
    assert_eq!((world.it.state, world.started_job()), (State::AwaitingMerge, None));
    let facts = PullRequestFacts { base: commit(51), ..world.facts() };
    world.observe(facts);
    assert!(matches!(job(&world), PullRequestJob::Merge { .. }));
}

#[test]
fn attempts_without_a_result_are_limited() {
    let mut world = waiting(DeliveryMode::Merge);
    for base in 51..71 {
        assert_eq!(cause(&world), None);
        let facts = PullRequestFacts { base: commit(base), ..world.facts() };
        world.observe(facts);
        finish(&mut world, PullRequestOutcome::Stale);
    }
    assert_eq!(cause(&world), Some(PullRequestProblem::Blocked));
}

#[test]
fn the_same_facts_again_change_nothing() {
    let mut world = waiting(DeliveryMode::PullRequest);
    let facts = world.facts();
    world.observe(facts.clone());
    let again = EventKind::PullRequestObserved(Box::new(facts));
    assert_eq!(world.feed(Actor::Tamma, again), Err(Refusal::FactsUnchanged));
}

#[test]
fn a_pause_lets_a_merge_finish_and_keeps_facts_for_later() {
    let mut world = waiting(DeliveryMode::Merge);
    world.ask(Action::Pause);
    let facts = world.facts();
    world.observe(facts);
    assert_eq!(world.started_job(), None);
    world.ask(Action::Resume);
    assert!(matches!(job(&world), PullRequestJob::Merge { .. }));
    world.ask(Action::Pause);
    assert_eq!(world.commands, []);
    assert!(!JobKind::PullRequest.is_interruptible());
}

#[test]
fn a_cancelled_task_leaves_its_pull_request_open_and_says_so() {
    let mut world = waiting(DeliveryMode::PullRequest);
    world.ask(Action::Cancel { reason: reason() });
    let entry = &world.log[world.log.len() - 2];
    assert_eq!(
        (entry.name, entry.reason.as_deref()),
        (
            EntryName::SmPullRequestUpdated,
            Some("pull request #7 stays open; close it in the forge")
        )
    );
}

#[test]
fn failed_jobs_are_retried_and_then_ask_a_person_without_the_council() {
    let mut world = waiting(DeliveryMode::Merge);
    let facts = world.facts();
    world.observe(facts);
    for _ in 0..3 {
        assert_eq!(world.it.active_job.expect("a job").kind, JobKind::PullRequest);
        world.done(failure(FailureKind::Crashed));
    }
    let question = world.it.open_question.as_ref().expect("a question");
    assert_eq!(question.cause, AlertCause::JobFailed(State::AwaitingMerge));
    assert!(!allowed_answers(question).contains(&tamma_core::task_loop::AnswerKind::Convene));
    // Everything is pushed.
    assert_eq!(world.started_job(), None);
}

#[test]
fn a_branch_is_delivered_as_before() {
    let mut world = World::new().to(State::Committing);
    let facts = waiting(DeliveryMode::Merge).facts();
    let observed = EventKind::PullRequestObserved(Box::new(facts));
    assert_eq!(world.feed(Actor::Tamma, observed), Err(Refusal::NoPullRequest));
    world.walk(State::Completed);
    assert_eq!((world.states(), &world.it.pull_request), (State::MAIN_PATH.to_vec(), &None));
}
