//! Rendering of the terminal UI: the state as one frame. Works from 80 × 24 on.

mod log;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};
use tamma_core::task_loop::State;
use tamma_server::dto::{PipelineView, TaskCard, TaskDetail};

use super::state::{PromptPurpose, TopInbox, TopScreen, TopState};
use super::text::{fit, pad, width, wrap};
use crate::commands::{format_plan_for_approval, format_task};
use crate::style::{format_duration, format_spend, humanize, next_step_text};

pub(super) const FAINT: Style = Style::new().fg(Color::DarkGray);
const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);
const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);
pub(super) const BAD: Style = Style::new().fg(Color::Red);
const WAITING: Style = Style::new().fg(Color::Yellow);

/// Keys of all screens, with what they do.
const GLOBAL_KEYS: [(&str, &str); 6] = [
    ("1", "board"),
    ("2", "inbox"),
    ("r", "reload"),
    ("?", "help"),
    ("Esc", "back"),
    ("q", "back or quit"),
];

/// Returns the keys of a screen, with what they do.
fn keys(screen: TopScreen) -> &'static [(&'static str, &'static str)] {
    match screen {
        TopScreen::Board | TopScreen::Inbox => &[
            ("↑↓", "select"),
            ("Enter", "open"),
            ("d", "decide"),
            ("l", "log"),
            ("/", "filter"),
            ("Tab", "switch"),
        ],
        TopScreen::Task => &[("↑↓", "scroll"), ("d", "decide"), ("l", "log")],
        TopScreen::Log => &[
            ("↑↓", "select"),
            ("Enter", "more"),
            ("Space", "pause"),
            ("f", "filter"),
            ("/", "search"),
            ("G", "follow"),
        ],
        TopScreen::Decision => {
            &[("↑↓", "scroll"), ("←→", "choose an answer"), ("Enter", "give it")]
        }
    }
}

/// Renders the state.
pub(super) fn draw(frame: &mut Frame<'_>, state: &TopState) {
    let [head, body, message, bottom] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(header(state, usize::from(head.width)), head);
    let rows = match state.screen {
        TopScreen::Board | TopScreen::Inbox => list_rows(state, body),
        TopScreen::Task => task_rows(state, body),
        TopScreen::Log => log::rows(state, body),
        TopScreen::Decision => decision_rows(state, body),
    };
    frame.render_widget(Paragraph::new(rows), body);
    frame.render_widget(message_line(state, usize::from(message.width)), message);
    frame.render_widget(keys_line(state.screen), bottom);
    if state.shows_help {
        draw_help(frame, state.screen, body);
    }
}

fn header(state: &TopState, columns: usize) -> Line<'static> {
    let tab = |name: String, screen: TopScreen| {
        let is_current = match screen {
            TopScreen::Inbox => state.screen == TopScreen::Inbox,
            _ => state.screen != TopScreen::Inbox,
        };
        Span::styled(format!(" {name} "), if is_current { SELECTED } else { Style::new() })
    };
    let count = |inbox: &TopInbox| format!(" {}", inbox.tasks.len() + inbox.pipelines.len());
    let waiting = state.inbox.as_ref().map(count).unwrap_or_default();
    let left = vec![
        Span::styled("tamma top ", STRONG),
        tab("1 Board".to_owned(), TopScreen::Board),
        Span::raw(" "),
        tab(format!("2 Inbox{waiting}"), TopScreen::Inbox),
    ];
    let used: usize = left.iter().map(Span::width).sum();
    let room = columns.saturating_sub(used + 1);
    let (right, style) = match &state.connection_error {
        Some(error) => {
            let first = error.lines().next().unwrap_or_default();
            (fit(&format!("offline: {first}"), room), BAD)
        }
        None => (fit(&format!("{} · {}", state.person, state.server), room), FAINT),
    };
    let gap = columns.saturating_sub(used + width(&right));
    let mut spans = left;
    spans.push(Span::raw(" ".repeat(gap)));
    spans.push(Span::styled(right, style));
    Line::from(spans)
}

fn keys_line(screen: TopScreen) -> Line<'static> {
    let last = [("?", "help"), ("q", if screen == TopScreen::Board { "quit" } else { "back" })];
    let mut spans = Vec::new();
    for (key, label) in keys(screen).iter().copied().chain(last) {
        spans.push(Span::styled(key, STRONG));
        spans.push(Span::styled(format!(" {label}  "), FAINT));
    }
    Line::from(spans)
}

/// Line of input, message, or filter above the keys.
fn message_line(state: &TopState, columns: usize) -> Line<'static> {
    if let Some(prompt) = &state.prompt {
        let label = match prompt.purpose {
            PromptPurpose::Filter => "Filter: ".to_owned(),
            PromptPurpose::Search => "Search: ".to_owned(),
            PromptPurpose::Answer(answer) => format!("Text to {}: ", answer.label()),
            PromptPurpose::Confirm(answer) => {
                return Line::styled(confirmation(state, answer.label()), WAITING);
            }
        };
        // The end of a long text is visible.
        let room = columns.saturating_sub(width(&label) + 1);
        let mut text = prompt.text.clone();
        while width(&text) > room {
            text.remove(0);
        }
        return Line::from(vec![Span::styled(label, STRONG), Span::raw(text), Span::raw("█")]);
    }
    match &state.notice {
        Some(notice) => {
            let style = if notice.is_error { BAD } else { STRONG };
            Line::styled(fit(&notice.text, columns), style)
        }
        None if !state.filter.is_empty() && is_list(state.screen) => Line::styled(
            fit(&format!("Filter: {} (/ Esc removes it)", state.filter), columns),
            FAINT,
        ),
        None => Line::raw(""),
    }
}

/// Question that confirms an answer. It names what the answer is about.
fn confirmation(state: &TopState, answer: &str) -> String {
    let short = |hash: &str| hash.get(..12).unwrap_or(hash).to_owned();
    let subject = match (&state.change, &state.plan) {
        (Some(change), _) => format!(" commit {}", short(&change.commit)),
        (None, Some(plan)) => format!(" plan {} ({})", plan.version, short(&plan.hash)),
        (None, None) => String::new(),
    };
    format!("Really {answer}{subject}? y: yes, any other key: no")
}

fn is_list(screen: TopScreen) -> bool {
    matches!(screen, TopScreen::Board | TopScreen::Inbox)
}

/// Rows of the board or the inbox: tasks under the headings of their phases, then waiting pipelines.
fn list_rows(state: &TopState, area: Rect) -> Vec<Line<'static>> {
    let columns = usize::from(area.width);
    let (cards, pipelines) = (state.listed(), state.listed_pipelines());
    if cards.is_empty() && pipelines.is_empty() {
        let is_inbox = state.screen == TopScreen::Inbox;
        let is_loaded = if is_inbox { state.inbox.is_some() } else { state.board.is_some() };
        let text = match (is_loaded, is_inbox) {
            (false, _) => "Loading…",
            (true, _) if !state.filter.is_empty() => "No matching tasks",
            (true, true) => "You're all caught up",
            (true, false) => "No open tasks. Add one: tamma task add TITLE",
        };
        return vec![Line::raw(""), Line::styled(format!("  {text}"), FAINT)];
    }
    let (mut rows, mut selected_row) = (Vec::new(), 0);
    let (mut phase, selected) = (None, state.selected());
    for (index, card) in cards.into_iter().enumerate() {
        if phase.replace(card.phase) != Some(card.phase) {
            rows.push(Line::styled(card.phase.label(), STRONG));
        }
        let row = card_row(state, card, columns);
        if index == selected {
            selected_row = rows.len();
            rows.push(row.patch_style(SELECTED));
        } else {
            rows.push(row);
        }
    }
    if !pipelines.is_empty() {
        rows.push(Line::styled("Pipelines (tamma pipeline show ID)", STRONG));
        rows.extend(pipelines.into_iter().map(|view| pipeline_row(state, view, columns)));
    }
    visible(rows, selected_row, usize::from(area.height))
}

/// Row of a waiting pipeline: ID, story, state and time since the last change.
fn pipeline_row(state: &TopState, view: &PipelineView, columns: usize) -> Line<'static> {
    let age = format_duration(state.now - view.updated_at);
    let (state_width, age_width) = (34, 12);
    let story_width = columns.saturating_sub(2 + 8 + 2 + 2 + state_width + 2 + age_width).max(10);
    Line::from(vec![
        Span::raw("  "),
        Span::styled(pad(&view.short, 8), FAINT),
        Span::raw("  "),
        Span::raw(pad(&view.story_id, story_width)),
        Span::raw("  "),
        Span::styled(pad(&view.state_text, state_width), WAITING),
        Span::raw("  "),
        Span::styled(format!("{age:>age_width$}"), FAINT),
    ])
}

/// Row of a task: ID, title, next step, cost and time in its state.
fn card_row(state: &TopState, card: &TaskCard, columns: usize) -> Line<'static> {
    let age = format_duration(state.now - card.since);
    let cost = format_spend(&card.spend);
    let next = next_step_text(card, state.zone).unwrap_or_else(|| humanize(&card.state));
    let next = if card.paused { format!("paused; {next}") } else { next };
    // The title gets what the other columns leave.
    let (next_width, cost_width, age_width) = (24, 8, 12);
    let fixed = 2 + 8 + 2 + 2 + next_width + 2 + cost_width + 2 + age_width;
    let title_width = columns.saturating_sub(fixed).max(10);
    let style = match card.state {
        _ if card.waits_for_person => WAITING,
        State::Failed => BAD,
        _ => Style::new(),
    };
    Line::from(vec![
        Span::raw("  "),
        Span::styled(pad(&card.short, 8), FAINT),
        Span::raw("  "),
        Span::raw(pad(&card.title, title_width)),
        Span::raw("  "),
        Span::styled(pad(&next, next_width), style),
        Span::raw("  "),
        Span::raw(format!("{cost:>cost_width$}")),
        Span::raw("  "),
        Span::styled(format!("{age:>age_width$}"), FAINT),
    ])
}

/// Returns the rows that fit, with the selected one among them.
pub(super) fn visible(
    rows: Vec<Line<'static>>,
    selected: usize,
    height: usize,
) -> Vec<Line<'static>> {
    let most = rows.len().saturating_sub(height);
    let first = selected.saturating_sub(height / 2).min(most);
    rows.into_iter().skip(first).take(height).collect()
}

/// Lines of a text as rows, from a scroll position on.
fn scrolled(text: &str, scroll: usize, area: Rect) -> Vec<Line<'static>> {
    let rows = wrap(text, usize::from(area.width));
    let height = usize::from(area.height);
    let first = scroll.min(rows.len().saturating_sub(height));
    rows.into_iter().skip(first).take(height).map(Line::raw).collect()
}

fn task_rows(state: &TopState, area: Rect) -> Vec<Line<'static>> {
    let Some(detail) = &state.detail else { return vec![Line::styled("Loading…", FAINT)] };
    let text = plain(&format_task(detail, &[], (state.now, state.zone)));
    let Some(run) = &detail.current_run else { return scrolled(&text, state.scroll, area) };
    let usage = run.run.usage.as_ref();
    let now = format!(
        "Running: {} for {} · {} tokens · cost {}",
        run.run.agent,
        format_duration(state.now - run.run.started_at),
        crate::style::format_tokens(usage),
        crate::style::format_run_cost(usage),
    );
    let doing = run.current_line.as_ref().map(|line| format!("  {}", line.text));
    let columns = usize::from(area.width);
    let mut rows = vec![Line::styled(fit(&now, columns), STRONG)];
    rows.extend(doing.map(|text| Line::raw(fit(&text, columns))));
    let used = u16::try_from(rows.len()).unwrap_or(u16::MAX);
    let rest = Rect { height: area.height.saturating_sub(used), ..area };
    rows.extend(scrolled(&text, state.scroll, rest));
    rows
}

/// Plan or change, and the answers below it.
fn decision_rows(state: &TopState, area: Rect) -> Vec<Line<'static>> {
    let Some(detail) = &state.detail else { return vec![Line::styled("Loading…", FAINT)] };
    let answers = answer_rows(state, usize::from(area.width));
    let used = u16::try_from(answers.len() + 1).unwrap_or(u16::MAX);
    let upper = Rect { height: area.height.saturating_sub(used), ..area };
    let mut rows = scrolled(&subject(state, detail), state.scroll, upper);
    rows.resize(usize::from(upper.height), Line::raw(""));
    rows.push(Line::styled("─".repeat(usize::from(area.width)), FAINT));
    rows.extend(answers);
    rows
}

/// Text that a decision is about.
fn subject(state: &TopState, detail: &TaskDetail) -> String {
    let mut text = match &detail.question {
        Some(question) => question.cause_text.clone(),
        None => "Nothing to decide".to_owned(),
    };
    if let Some(asks) =
        detail.question.as_ref().and_then(|question| question.agent_question.as_ref())
    {
        text = format!("{text}\n\n{asks}");
    }
    match (&state.change, &state.plan) {
        (Some(change), _) => {
            let verdict = if change.passed { "passed" } else { "did not pass" };
            let truncated = if change.is_truncated { " (the end is missing)" } else { "" };
            format!(
                "{text}\n\nCommit {} {verdict} review{truncated}\n\n{}",
                change.commit, change.patch
            )
        }
        (None, Some(plan)) => {
            format!("{text}\n\n{}", plain(&format_plan_for_approval(detail, plan)))
        }
        (None, None) if detail.plan.is_some() => format!("{text}\n\nLoading…"),
        (None, None) => text,
    }
}

/// Answers as rows of buttons.
fn answer_rows(state: &TopState, columns: usize) -> Vec<Line<'static>> {
    let answers = state.answers();
    if answers.is_empty() {
        return vec![Line::styled("No answer is needed", FAINT)];
    }
    let (mut rows, mut spans, mut used) = (Vec::new(), Vec::new(), 0);
    for (index, answer) in answers.iter().enumerate() {
        let button = format!("[{}]", answer.label());
        let size = width(&button) + 1;
        if used + size > columns && used > 0 {
            rows.push(Line::from(std::mem::take(&mut spans)));
            used = 0;
        }
        used += size;
        let style = if index == state.answer_selected { SELECTED } else { Style::new() };
        spans.push(Span::styled(button, style));
        spans.push(Span::raw(" "));
    }
    rows.push(Line::from(spans));
    rows
}

fn draw_help(frame: &mut Frame<'_>, screen: TopScreen, area: Rect) {
    let all = keys(screen).iter().chain(&GLOBAL_KEYS);
    let row = |(key, label): &(&'static str, &'static str)| {
        Line::from(vec![Span::styled(pad(key, 8), STRONG), Span::raw(*label)])
    };
    let mut rows: Vec<_> = all.map(row).collect();
    rows.push(Line::styled("Any key closes this help", FAINT));
    let height = u16::try_from(rows.len() + 2).unwrap_or(u16::MAX).min(area.height);
    let box_width = area.width.min(40);
    let place = Rect {
        x: area.x + (area.width - box_width) / 2,
        y: area.y + (area.height - height) / 2,
        width: box_width,
        height,
    };
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(rows).block(Block::bordered().title(" Keys ")), place);
}

/// Removes colours from text of other commands.
fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
