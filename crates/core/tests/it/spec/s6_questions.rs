//! Section 6: an agent's question is stored and never blocks a process.

use rstest::rstest;
use tamma_core::actor::Actor;
use tamma_core::budget::Grant;
use tamma_core::cause::AlertCause;
use tamma_core::history::{EntryData, EntryName};
use tamma_core::task_loop::{
    Action, AnswerKind, Job, NextStep, Outcome, Refusal, State, Trigger, allowed_answers,
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
