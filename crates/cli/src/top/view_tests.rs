use crossterm::event::KeyCode;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::json;
use tamma_server::dto::{CurrentRun, RunLine, RunLines};

use super::*;
use crate::top::log_state::LogEdge;
use crate::top::state::TopMessage;
use crate::top::state::tests::{deciding, loaded, press, waiting_task};

/// Screen of 80 × 24 as text, one string per row.
fn screen(state: &TopState) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("a terminal");
    terminal.draw(|frame| draw(frame, state)).expect("drawn");
    let text = terminal.backend().to_string();
    let rows: Vec<_> =
        text.lines().map(|row| row.trim_matches('"').trim_end().to_owned()).collect();
    assert_eq!(rows.len(), 24);
    rows
}

#[test]
fn the_board_has_tasks_under_their_phases_and_the_keys_at_the_bottom() {
    let rows = screen(&loaded());
    let gap = " ".repeat(23);
    let head = format!("tamma top  1 Board   2 Inbox 1{gap}Ada · http://127.0.0.1:8622");
    assert_eq!(rows[0], head);
    assert_eq!(rows[1], "Approval");
    let task = "  1a2b3c4d  Greet the whole w…  medium-risk plan needs …    ~$0.42         3 min";
    assert_eq!(rows[2], task);
    assert_eq!(rows[3], "In progress");
    assert!(rows[4].starts_with("  00000007  Rename the greeti…  agent running"), "{}", rows[4]);
    let keys = "↑↓ select  Enter open  d decide  l log  / filter  Tab switch  ? help  q quit";
    assert_eq!(rows[23], keys);
}

#[test]
fn the_inbox_has_waiting_pipelines_after_the_tasks() {
    let mut state = loaded();
    let id = "0192a000-0000-7000-8000-00000000beef";
    let pipeline = json!({
        "id": id, "short": "0000beef", "project": "shop", "project_id": id,
        "feature_dir": "features/login", "story_id": "LOGIN-001", "pipeline": "scrum",
        "state": "at_gate", "state_text": "waiting at the gate of phase 2", "over": false,
        "needs_person": true, "actions": [], "run": 1, "version": 3, "from": 1, "to": 4,
        "updated_at": "2026-11-15T10:20:30Z", "phases": [],
        "report": {
            "phase": "loop", "verdict": "BLOCKED", "feature_dir": "features/login",
            "story_id": "LOGIN-001", "phases_executed": 1, "phases_skipped": 0, "last_phase": 1,
            "last_signal": null, "total_tokens": 0, "pipeline": "scrum", "phases": [],
        },
    });
    let pipeline = serde_json::from_value(pipeline).expect("a pipeline");
    let tasks = vec![waiting_task().card];
    state.update(TopMessage::Inbox(Ok(TopInbox { tasks, pipelines: vec![pipeline] })));
    assert!(screen(&state)[0].contains("2 Inbox 2"), "{}", screen(&state)[0]);
    assert!(!screen(&state).join("\n").contains("LOGIN-001"), "the board has tasks only");
    press(&mut state, KeyCode::Char('2'));
    let rows = screen(&state);
    assert_eq!(rows[3], "Pipelines (tamma pipeline show ID)");
    assert!(rows[4].starts_with("  0000beef  LOGIN-001"), "{}", rows[4]);
    assert!(rows[4].contains("waiting at the gate of phase 2"), "{}", rows[4]);
    assert!(rows[4].ends_with("3 min"), "{}", rows[4]);
    state.filter = "greet".to_owned();
    assert!(!screen(&state).join("\n").contains("LOGIN-001"));
}

#[test]
fn an_outage_is_shown_and_the_tasks_stay() {
    let mut state = loaded();
    let error = "cannot reach the Tamma server at http://127.0.0.1:8622: connection refused";
    state.update(TopMessage::Board(Err(error.to_owned())));
    let rows = screen(&state);
    assert!(rows[0].contains("offline: cannot reach the Tamma server"), "{}", rows[0]);
    assert!(rows[2].contains("1a2b3c4d"), "{}", rows[2]);
}

#[test]
fn a_decision_shows_the_plan_its_answers_and_a_confirmation() {
    let mut state = deciding();
    let rows = screen(&state);
    assert_eq!(rows[1], "medium-risk plan needs approval");
    let all = rows.join("\n");
    assert!(all.contains("One table of greetings.") && all.contains("+ src/greet.rs"), "{all}");
    assert!(
        all.contains("[approve] [reject] [revise the plan] [change the task] [cancel]"),
        "{all}"
    );
    press(&mut state, KeyCode::Enter);
    let rows = screen(&state);
    assert_eq!(rows[22], "Really approve plan 2 (0123456789ab)? y: yes, any other key: no");
}

fn line(number: u32, kind: &str, text: &str, data: &serde_json::Value) -> RunLine {
    serde_json::from_value(json!({
        "place": format!("4.1.{number}"), "run": "4", "at": "2026-11-15T10:20:30Z",
        "kind": kind, "text": text, "data": data,
    }))
    .expect("a line")
}

/// State with the log of the waiting task.
fn reading_log() -> TopState {
    let mut state = loaded();
    press(&mut state, KeyCode::Char('l'));
    let call = json!({
        "status": "failed", "input": "cargo test -q", "output": "error: it does not greet",
        "edits": [{ "path": "a.rs", "diff": "@@ -1 +1 @@\n-old\n+new\n" }],
    });
    let lines = vec![
        line(1, "said", "I look at the tests.", &json!(null)),
        line(2, "tool", "cargo test: failed (exit code 101)", &call),
    ];
    let page = RunLines { lines, next: None, previous: None };
    let (task, filter) = (state.task.expect("a task"), state.log.server_filter());
    state.update(TopMessage::Lines { task, edge: LogEdge::Latest, filter, page: Ok(page) });
    state
}

#[test]
fn a_log_has_one_row_per_line_and_expands_a_call() {
    let mut state = reading_log();
    let rows = screen(&state);
    assert_eq!(rows[1], "messages and actions · live ·");
    assert_eq!(rows[2], "10:20:30 said       I look at the tests.");
    assert_eq!(rows[3], "10:20:30 tool     ▸ ✗ cargo test: failed (exit code 101)");
    assert_eq!(rows[4], "");
    press(&mut state, KeyCode::Enter);
    let rows = screen(&state);
    assert_eq!(rows[3], "10:20:30 tool     ▾ ✗ cargo test: failed (exit code 101)");
    let details: Vec<_> = rows[4..10].iter().map(|row| row.trim_start()).collect();
    let expected =
        ["$ cargo test -q", "a.rs", "@@ -1 +1 @@", "-old", "+new", "error: it does not greet"];
    assert_eq!(details, expected);
}

#[test]
fn a_running_call_and_the_cost_so_far_are_below_the_log() {
    let mut state = reading_log();
    let mut detail = waiting_task();
    let current: CurrentRun = serde_json::from_value(json!({
        "run": "4", "ticket": 4, "attempt": 1, "agent": "claude-code", "model": null,
        "tier": null, "mode": "implement", "session": null, "started_at": "2026-11-15T10:20:00Z",
        "ended_at": null, "end": null, "reason": null, "calls": 3, "lines": 7,
        "transcript": false, "doing": null,
        "usage": { "input": 1000, "cached": 0, "output": 234, "usd": "0.03", "metered": true },
        "running": [{ "title": "npm install", "since": "2026-11-15T10:23:00Z" }],
    }))
    .expect("a run");
    detail.current_run = Some(current);
    let id = detail.card.id;
    state.update(TopMessage::Task(id, Ok(Box::new(detail))));
    let rows = screen(&state);
    assert_eq!(rows[4], "▶ npm install (30 s)");
    assert_eq!(rows[5], "run 4 · claude-code · 1,234 tokens · cost $0.03");
}

#[test]
fn hostile_text_cannot_control_the_terminal_or_break_the_layout() {
    let mut state = loaded();
    let mut detail = waiting_task();
    detail.card.title = "\u{1b}[2J\u{1b}]0;owned\u{7}\n\ttitle ".to_owned() + &"x".repeat(500);
    detail.description.clone_from(&detail.card.title);
    let (id, card) = (detail.card.id, detail.card.clone());
    state.update(TopMessage::Board(Ok(vec![card])));
    press(&mut state, KeyCode::Enter);
    state.update(TopMessage::Task(id, Ok(Box::new(detail))));
    for _ in 0..2 {
        let all = screen(&state).join("\n");
        assert!(!all.contains('\u{1b}') && !all.contains('\u{7}'), "{all}");
        press(&mut state, KeyCode::Esc);
    }
}

#[test]
fn the_help_lists_the_keys_and_every_size_is_drawn() {
    let mut state = loaded();
    press(&mut state, KeyCode::Char('?'));
    let all = screen(&state).join("\n");
    assert!(
        all.contains("Keys") && all.contains("Enter   open") && all.contains("back or quit"),
        "{all}"
    );
    for (width, height) in [(1, 1), (20, 5), (80, 24), (300, 100)] {
        for state in [loaded(), deciding(), reading_log(), state.clone()] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
            terminal.draw(|frame| draw(frame, &state)).expect("drawn");
        }
    }
}
