//! Section 6: an agent's question is stored. It ends the run, or the run waits a bounded time.

use rstest::rstest;
use tamma_core::actor::Actor;
use tamma_core::budget::Grant;
use tamma_core::cause::AlertCause;
use tamma_core::history::{EntryData, EntryName};
use tamma_core::task_loop::{
    Action, AnswerKind, Command, EventKind, Job, NextStep, Outcome, Refusal, State, Trigger,
    allowed_answers,
};

use crate::world::{World, note, reason, text};

fn question_asked(default: Option<&str>) -> Outcome {
    Outcome::QuestionAsked { question: text("q"), default_answer: default.map(text) }
}

#[rstest]
#[case(State::Planning, State::Planning)]
#[case(State::InProgress, State::Validated)]
#[case(State::QualityReview, State::QualityReview)]
fn a_question_waits_for_a_person_and_the_same_work_continues(
    #[case] from: State,
    #[case] resume: State,
) {
    let mut world = World::new().to(from);
    world.done(question_asked(None));
    assert_eq!(world.it.state, State::HumanEscalation);
    assert_eq!(world.started_job(), None, "no work is saved: the same work continues");
    let question = world.it.open_question.clone().unwrap();
    assert_eq!(
        (question.cause, question.agent_question),
        (AlertCause::AgentQuestion, Some(text("q")))
    );
    assert!(matches!(world.it.next_step(&world.rules), Some(NextStep::Answer { .. })));
    world.ask(Action::Reply { reply: text("r") });
    assert_eq!(world.it.state, resume);
    assert!(world.started_job().is_some());
    let answer = world.log.iter().find(|entry| entry.name == EntryName::SmQuestionAnswered);
    let answer = answer.unwrap();
    assert_eq!(answer.data, EntryData::Stored(text("r")));
    assert!(matches!(&answer.actor, Actor::Person(name) if name.as_str() == "ann"));
    assert_eq!(world.log.last().unwrap().trigger, Some(Trigger::Continued));
}

#[test]
fn a_question_is_neither_an_iteration_nor_a_failure() {
    let mut world = World::new().to(State::InProgress);
    world.done(question_asked(None)).ask(Action::Reply { reply: note() });
    assert_eq!(world.it.iterations, 0);
    assert!(world.it.failures.is_empty());
    assert!(
        matches!(world.started_job(), Some(Job::Implement(run_spec)) if run_spec.iteration == 1)
    );
}

#[test]
fn an_agents_question_needs_a_reply() {
    let mut world = World::new().to(State::InProgress);
    world.done(question_asked(None));
    let question = world.it.open_question.clone().unwrap();
    let may = [AnswerKind::Reply, AnswerKind::ChangeTask, AnswerKind::Cancel, AnswerKind::Abandon];
    assert_eq!(allowed_answers(&question), may);
    let refused = world.try_ask("ann", Action::Continue { grant: Grant::default() });
    assert!(matches!(refused, Err(Refusal::AnswerNotAllowed { .. })));
    world.ask(Action::Abandon { reason: reason() });
    assert_eq!(world.it.state, State::Failed);
}

#[test]
fn a_reply_needs_an_agents_question() {
    let mut world = World::new().to(State::InProgress);
    let early = world.try_ask("ann", Action::Reply { reply: note() });
    assert!(matches!(early, Err(Refusal::WrongState { .. })), "{early:?}");
}

#[test]
fn the_agents_default_answer_applies_if_nobody_answers_in_time() {
    let mut world = World::with(|rules| {
        rules.scrum_master.user_interaction.default_after_minutes = 30;
    });
    world.walk(State::InProgress).done(question_asked(Some("d")));
    world.tick_at(30);
    assert_eq!(world.it.state, State::Validated);
    let answer = world.log.iter().find(|entry| entry.name == EntryName::SmQuestionAnswered);
    let answer = answer.unwrap();
    assert_eq!((&answer.actor, &answer.data), (&Actor::Tamma, &EntryData::Stored(text("d"))));
    assert_eq!(answer.reason.as_deref(), Some("nobody answered within 30 minutes"));
}

#[test]
fn without_a_default_it_waits_and_reminds() {
    let mut world = World::new().to(State::InProgress);
    world.done(question_asked(None)).tick_at(60);
    assert_eq!(world.it.state, State::HumanEscalation);
    assert_eq!(world.it.open_question.clone().unwrap().reminders, 1);
}

#[test]
fn a_seen_question_has_no_default_answer() {
    let mut world = World::new().to(State::InProgress);
    world.done(question_asked(Some("d"))).ask(Action::Acknowledge);
    assert_eq!(world.it.default_answer_at(&world.rules), None);
}

/// Opens the question `q` of the active run.
fn open(world: &mut World, default: Option<&str>) -> Result<(), Refusal> {
    let job_number = world.it.active_job.map_or(0, |job| job.job_number);
    let (question, default_answer) = (text("q"), default.map(text));
    world.feed(Actor::Tamma, EventKind::QuestionOpened { job_number, question, default_answer })
}

fn count(world: &World, name: EntryName) -> usize {
    world.log.iter().filter(|entry| entry.name == name).count()
}

#[rstest]
#[case(State::Planning)]
#[case(State::InProgress)]
#[case(State::QualityReview)]
fn a_waiting_run_gets_the_answer_and_continues(#[case] state: State) {
    let mut world = World::new().to(state);
    let job = world.it.active_job;
    open(&mut world, None).unwrap();
    assert_eq!((world.it.state, world.it.active_job), (state, job), "the run goes on");
    let question = world.it.open_question.clone().unwrap();
    assert_eq!(
        (question.cause, question.agent_question.clone(), question.live),
        (AlertCause::AgentQuestion, Some(text("q")), true)
    );
    let answers = [AnswerKind::Reply, AnswerKind::ChangeTask, AnswerKind::Cancel];
    assert_eq!(world.alerts()[0].answers, answers);
    assert!(matches!(world.it.next_step(&world.rules), Some(NextStep::Answer { .. })));
    world.ask(Action::Reply { reply: text("r") });
    assert_eq!((world.it.state, world.it.active_job), (state, job));
    assert_eq!(world.it.open_question, None);
    let closed = Command::CloseQuestion { question_number: question.number };
    assert_eq!(world.commands, [closed]);
    let again = world.try_ask("bo", Action::Reply { reply: text("s") });
    assert!(again.is_err(), "it is answered exactly once");
    assert_eq!(count(&world, EntryName::SmQuestionAnswered), 1);
}

#[test]
fn a_question_that_outlives_its_run_is_asked_once() {
    let mut world = World::new().to(State::InProgress);
    open(&mut world, None).unwrap();
    let asked = world.it.open_question.clone().unwrap();
    world.done(question_asked(None));
    assert_eq!(world.it.state, State::HumanEscalation);
    let question = world.it.open_question.clone().unwrap();
    assert_eq!((question.number, question.live), (asked.number, false));
    assert!(world.alerts().is_empty(), "people were told when it was asked");
    assert_eq!(count(&world, EntryName::SmQuestionAsked), 1);
    assert!(allowed_answers(&question).contains(&AnswerKind::Abandon));
    world.ask(Action::Reply { reply: text("r") });
    assert_eq!(world.it.state, State::Validated);
}

#[rstest]
#[case(State::Planning, State::Planning)]
#[case(State::InProgress, State::Validated)]
fn an_answer_just_before_the_end_of_the_run_goes_to_the_next_one(
    #[case] state: State,
    #[case] next: State,
) {
    let mut world = World::new().to(state);
    open(&mut world, None).unwrap();
    world.ask(Action::Reply { reply: text("r") });
    world.done(question_asked(None));
    assert_eq!(world.it.state, next, "nobody is asked again");
    assert_eq!(world.it.open_question, None);
    assert!(world.started_job().is_some());
    assert_eq!(world.it.answered_live, None);
}

#[test]
fn a_run_that_ends_otherwise_closes_its_question() {
    let mut world = World::new().to(State::InProgress);
    open(&mut world, None).unwrap();
    world.done(Outcome::RunFinished(crate::world::commit(9)));
    assert_eq!((world.it.state, world.it.open_question.clone()), (State::Testing, None));
    assert!(world.commands.iter().any(|it| matches!(it, Command::CloseQuestion { .. })));
}

#[test]
fn a_pause_during_planning_closes_the_question_with_the_run() {
    let mut world = World::new().to(State::Planning);
    open(&mut world, None).unwrap();
    world.ask(Action::Pause).done(Outcome::Interrupted);
    assert_eq!(world.it.open_question, None);
}

#[test]
fn the_default_answer_goes_to_the_waiting_run() {
    let mut world = World::with(|rules| {
        rules.scrum_master.user_interaction.default_after_minutes = 30;
    });
    world.walk(State::InProgress);
    open(&mut world, Some("d")).unwrap();
    world.tick_at(30);
    assert_eq!((world.it.state, world.it.open_question.clone()), (State::InProgress, None));
    assert_eq!(count(&world, EntryName::SmQuestionAnswered), 1);
}

#[test]
fn a_question_needs_its_running_job_and_is_opened_once() {
    let mut world = World::new().to(State::InProgress);
    let stale =
        EventKind::QuestionOpened { job_number: 99, question: text("q"), default_answer: None };
    assert!(matches!(world.feed(Actor::Tamma, stale), Err(Refusal::StaleResult { .. })));
    open(&mut world, None).unwrap();
    open(&mut world, None).unwrap();
    assert_eq!(count(&world, EntryName::SmQuestionAsked), 1);
    world.done(Outcome::RunFinished(crate::world::commit(9)));
    assert!(open(&mut world, None).is_err(), "gates ask nobody");
}

#[test]
fn a_validators_question_does_not_let_people_accept_early() {
    let mut world = World::new().to(State::QualityReview);
    open(&mut world, None).unwrap();
    let commit = world.it.commit.unwrap();
    let early = world.try_ask("ann", Action::Accept { commit, reason: None });
    assert!(matches!(early, Err(Refusal::WrongState { .. })), "{early:?}");
}
