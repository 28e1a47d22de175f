use tamma_core::task_loop::State;

use super::*;

/// Task that awaits the approval of its plan.
pub(in crate::top) fn waiting_task() -> TaskDetail {
    serde_json::from_str(include_str!("../../tests/fixtures/waits.json")).expect("a task")
}

/// State with one waiting task and one running task, at a fixed time.
pub(in crate::top) fn loaded() -> TopState {
    let now = "2026-11-15T10:23:30Z".parse().expect("a time");
    let zone = FixedOffset::east_opt(0).expect("a zone");
    let (server, person) = ("http://127.0.0.1:8622".to_owned(), "Ada".to_owned());
    let mut state = TopState::new(server, person, now, zone);
    let waiting = waiting_task().card;
    let running = TaskCard {
        id: Uuid::from_u128(7),
        short: "00000007".to_owned(),
        title: "Rename the greeting".to_owned(),
        state: State::InProgress,
        phase: Phase::Implement,
        waits_for_person: false,
        answers: Vec::new(),
        next_text: Some("agent running".to_owned()),
        ..waiting.clone()
    };
    state.update(TopMessage::Board(Ok(vec![running, waiting.clone()])));
    let inbox = TopInbox { tasks: vec![waiting], pipelines: Vec::new() };
    state.update(TopMessage::Inbox(Ok(inbox)));
    state
}

pub(in crate::top) fn press(state: &mut TopState, code: KeyCode) -> Vec<TopEffect> {
    state.update(TopMessage::Key(KeyEvent::new(code, KeyModifiers::NONE)))
}

fn write(state: &mut TopState, text: &str) {
    for letter in text.chars() {
        press(state, KeyCode::Char(letter));
    }
}

/// State in which the person decides about the plan of the waiting task.
pub(in crate::top) fn deciding() -> TopState {
    let mut state = loaded();
    let detail = waiting_task();
    let id = detail.card.id;
    press(&mut state, KeyCode::Char('d'));
    let plan = detail.plan.clone().expect("a plan");
    state.update(TopMessage::Task(id, Ok(Box::new(detail))));
    let effects = press(&mut state, KeyCode::Char('r'));
    assert!(effects.contains(&TopEffect::LoadPlan(id)), "{effects:?}");
    state.update(TopMessage::Plan(id, Ok(Box::new(plan))));
    state
}

#[test]
fn the_board_has_tasks_that_need_a_person_first_and_keeps_them_during_an_outage() {
    let mut state = loaded();
    let shorts = |state: &TopState| -> Vec<String> {
        state.listed().into_iter().map(|card| card.short.clone()).collect()
    };
    assert_eq!(shorts(&state), ["1a2b3c4d", "00000007"]);
    state.update(TopMessage::Board(Err("connection refused".to_owned())));
    assert_eq!(shorts(&state).len(), 2);
    assert_eq!(state.connection_error.as_deref(), Some("connection refused"));
    state.update(TopMessage::Inbox(Ok(TopInbox::default())));
    assert_eq!(state.connection_error, None);
}

#[test]
fn a_plan_is_approved_after_a_confirmation_by_the_hash_that_was_shown() {
    let mut state = deciding();
    assert_eq!(press(&mut state, KeyCode::Enter).len(), 1, "only the inbox is loaded");
    let confirm = PromptPurpose::Confirm(AnswerKind::Approve);
    assert_eq!(state.prompt.as_ref().map(|prompt| prompt.purpose), Some(confirm));
    assert_eq!(press(&mut state, KeyCode::Char('n')), [], "another key than y does nothing");
    press(&mut state, KeyCode::Enter);
    let id = waiting_task().card.id;
    let plan = waiting_task().plan.expect("a plan").hash;
    let action = TaskAction::Approve { plan, reason: None };
    assert_eq!(press(&mut state, KeyCode::Char('y')), [TopEffect::Submit(id, Box::new(action))]);
    let status = TaskStatus {
        state: State::InProgress,
        paused: false,
        step: 1,
        plan: None,
        by: "Ada".to_owned(),
    };
    state.update(TopMessage::Submitted(Ok(status)));
    assert_eq!((state.screen, state.plan.is_none()), (TopScreen::Task, true));
}

#[test]
fn a_rejection_needs_a_reason_and_a_refusal_keeps_the_text() {
    let mut state = deciding();
    press(&mut state, KeyCode::Right);
    press(&mut state, KeyCode::Enter);
    assert_eq!(press(&mut state, KeyCode::Enter), [], "an empty reason is not sent");
    write(&mut state, "too big q?");
    let effects = press(&mut state, KeyCode::Enter);
    let Some(TopEffect::Submit(_, action)) = effects.first() else { panic!("{effects:?}") };
    assert!(
        matches!(&**action, TaskAction::Reject { reason, .. } if reason == "too big q?"),
        "{action:?}"
    );
    state.update(TopMessage::Submitted(Err("the plan has changed".to_owned())));
    assert!(state.notice.as_ref().is_some_and(|notice| notice.is_error));
    press(&mut state, KeyCode::Enter);
    assert_eq!(state.prompt.map(|prompt| prompt.text).as_deref(), Some("too big q?"));
}

#[test]
fn a_plan_that_is_not_loaded_cannot_be_approved() {
    let mut state = deciding();
    state.plan = None;
    press(&mut state, KeyCode::Enter);
    assert_eq!(state.prompt, None);
    assert!(state.notice.is_some_and(|notice| notice.text.contains("not loaded")));
}

#[test]
fn keys_lead_to_every_screen_and_back() {
    let mut state = loaded();
    press(&mut state, KeyCode::Enter);
    assert_eq!(state.screen, TopScreen::Task);
    let effects = press(&mut state, KeyCode::Char('l'));
    let is_lines =
        |effect: &TopEffect| matches!(effect, TopEffect::LoadLines { edge: LogEdge::Latest, .. });
    assert!(state.screen == TopScreen::Log && effects.iter().any(is_lines), "{effects:?}");
    press(&mut state, KeyCode::Esc);
    press(&mut state, KeyCode::Esc);
    assert_eq!(state.screen, TopScreen::Board);
    press(&mut state, KeyCode::Tab);
    assert_eq!(state.screen, TopScreen::Inbox);
    press(&mut state, KeyCode::Char('?'));
    assert!(state.shows_help);
    press(&mut state, KeyCode::Char('q'));
    assert!(!state.shows_help && !state.has_quit, "any key closes the help");
    press(&mut state, KeyCode::Char('q'));
    assert!(state.has_quit);
    let mut other = loaded();
    other.update(TopMessage::Key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
    assert!(other.has_quit, "Ctrl-C quits everywhere");
}

#[test]
fn lists_are_filtered_by_text_and_logs_by_kind() {
    let mut state = loaded();
    press(&mut state, KeyCode::Char('/'));
    write(&mut state, "RENAME");
    press(&mut state, KeyCode::Enter);
    assert_eq!(state.listed().len(), 1);
    press(&mut state, KeyCode::Char('/'));
    press(&mut state, KeyCode::Esc);
    assert_eq!(state.listed().len(), 2, "Esc removes the filter");
    press(&mut state, KeyCode::Char('l'));
    let effects = press(&mut state, KeyCode::Char('f'));
    let is_tools =
        |effect: &TopEffect| matches!(effect, TopEffect::LoadLines { kinds: "tool", .. });
    assert!(effects.iter().any(is_tools), "{effects:?}");
    // Lines of the filter before are ignored.
    let page = RunLines { lines: Vec::new(), next: None, previous: None };
    let (task, edge) = (state.task.expect("a task"), LogEdge::Latest);
    let filter = ("", String::new());
    state.update(TopMessage::Lines { task, edge, filter, page: Ok(page) });
    assert!(!state.log.is_loaded);
}
