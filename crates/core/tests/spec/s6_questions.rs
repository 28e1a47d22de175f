//! Section 6: what an agent asks becomes a durable question, never a hung child.

use rstest::rstest;
use tamma_core::actor::Actor;
use tamma_core::budget::Grant;
use tamma_core::cause::Cause;
use tamma_core::log::{EntryName, Fact};
use tamma_core::task_loop::{Action, Answer, Job, Next, Outcome, Refusal, State, Trigger, answers};

use crate::world::{World, note, reason, text};

fn asked(default: Option<&str>) -> Outcome {
    Outcome::Asked { question: text("q"), default: default.map(text) }
}

#[rstest]
#[case(State::Planning, State::Planning)]
#[case(State::InProgress, State::Validated)]
#[case(State::QualityReview, State::QualityReview)]
fn a_question_waits_for_a_person_and_the_same_work_goes_on(
    #[case] from: State,
    #[case] resume: State,
) {
    let mut world = World::new().to(from);
    world.done(asked(None));
    assert_eq!(world.it.state, State::HumanEscalation);
    assert_eq!(world.started(), None, "nothing is landed: the same work goes on");
    let question = world.it.question.clone().unwrap();
    assert_eq!((question.cause, question.about), (Cause::AgentAsked, Some(text("q"))));
    assert!(matches!(world.it.next(&world.rules), Some(Next::Answer { .. })));
    world.ask(Action::Reply { reply: text("r") });
    assert_eq!(world.it.state, resume);
    assert!(world.started().is_some());
    let answer = world.log.iter().find(|entry| entry.name == EntryName::SmQuestionAnswered);
    let answer = answer.unwrap();
    assert_eq!(answer.data, Fact::Kept(text("r")));
    assert!(matches!(&answer.actor, Actor::Person(name) if name.as_str() == "ann"));
    assert_eq!(world.log.last().unwrap().on, Some(Trigger::Continued));
}

#[test]
fn a_question_is_no_iteration_and_no_failure() {
    let mut world = World::new().to(State::InProgress);
    world.done(asked(None)).ask(Action::Reply { reply: note() });
    assert_eq!(world.it.iterations, 0);
    assert!(world.it.failures.is_empty());
    assert!(matches!(world.started(), Some(Job::Implement(order)) if order.iteration == 1));
}

#[test]
fn an_agents_question_is_answered_with_words_and_not_with_continue() {
    let mut world = World::new().to(State::InProgress);
    world.done(asked(None));
    let question = world.it.question.clone().unwrap();
    let may = [Answer::Reply, Answer::Modify, Answer::Cancel, Answer::Abandon];
    assert_eq!(answers(&question), may);
    let refused = world.try_ask("ann", Action::Continue { grant: Grant::default() });
    assert!(matches!(refused, Err(Refusal::NotAnAnswer { .. })));
    world.ask(Action::Abandon { reason: reason() });
    assert_eq!(world.it.state, State::Failed);
}

#[test]
fn nobody_replies_to_what_no_agent_asked() {
    let mut world = World::new().to(State::InProgress);
    let early = world.try_ask("ann", Action::Reply { reply: note() });
    assert!(matches!(early, Err(Refusal::NotNow { .. })), "{early:?}");
}

#[test]
fn the_agents_own_default_is_taken_when_nobody_answers_in_time() {
    let mut world = World::with(|rules| {
        rules.scrum_master.user_interaction.default_after_minutes = 30;
    });
    world.walk(State::InProgress).done(asked(Some("d")));
    world.tick_at(30);
    assert_eq!(world.it.state, State::Validated);
    let answer = world.log.iter().find(|entry| entry.name == EntryName::SmQuestionAnswered);
    let answer = answer.unwrap();
    assert_eq!((&answer.actor, &answer.data), (&Actor::Tamma, &Fact::Kept(text("d"))));
    assert_eq!(answer.reason.as_deref(), Some("nobody answered within 30 minutes"));
}

#[test]
fn without_a_default_it_waits_and_reminds() {
    let mut world = World::new().to(State::InProgress);
    world.done(asked(None)).tick_at(60);
    assert_eq!(world.it.state, State::HumanEscalation);
    assert_eq!(world.it.question.clone().unwrap().reminders, 1);
}

#[test]
fn a_person_who_has_seen_it_is_waited_for() {
    let mut world = World::new().to(State::InProgress);
    world.done(asked(Some("d"))).ask(Action::Acknowledge);
    assert_eq!(world.it.default_at(&world.rules), None);
}
