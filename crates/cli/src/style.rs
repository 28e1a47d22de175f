//! Terminal formatting of tasks: colours, times, money.
//!
//! The formatting functions depend only on their arguments, so output can be tested.

use anstyle::{AnsiColor, Style};
use chrono::{DateTime, FixedOffset, Utc};
use tamma_core::cost::Usd;
pub(crate) use tamma_core::format::{format_duration, format_number, format_usd, humanize};
use tamma_core::level::RiskLevel;
use tamma_core::task_loop::{NextStep, Phase, State};
use tamma_server::dto::{RunUsage, Spend, TaskCard, TaskDetail};

/// Emphasised text.
pub(crate) const STRONG: Style = Style::new().bold();
/// Secondary text.
pub(crate) const FAINT: Style = Style::new().dimmed();

/// Returns the colour of a phase.
pub(crate) fn phase_colour(phase: Phase) -> AnsiColor {
    match phase {
        Phase::Receive => AnsiColor::White,
        Phase::Plan => AnsiColor::Blue,
        Phase::Approve | Phase::Alert => AnsiColor::Yellow,
        Phase::Implement => AnsiColor::Cyan,
        Phase::Review => AnsiColor::Magenta,
        Phase::Adjust | Phase::Council => AnsiColor::BrightRed,
        Phase::Deliver | Phase::Learn => AnsiColor::BrightGreen,
        Phase::Done => AnsiColor::Green,
    }
}

/// Returns the colour of a state: that of its phase, except for failed and cancelled.
pub(crate) fn state_colour(state: State) -> AnsiColor {
    match state {
        State::Failed => AnsiColor::Red,
        State::Cancelled => AnsiColor::BrightBlack,
        state => phase_colour(state.phase()),
    }
}

/// Returns the colour of a risk level.
pub(crate) fn risk_colour(risk: RiskLevel) -> AnsiColor {
    match risk {
        RiskLevel::Low => AnsiColor::Green,
        RiskLevel::Medium => AnsiColor::Yellow,
        RiskLevel::High => AnsiColor::Red,
    }
}

/// Wraps text in a colour.
pub(crate) fn paint(text: &str, colour: AnsiColor) -> String {
    let style = colour.on_default();
    format!("{style}{text}{style:#}")
}

/// Wraps text in a style.
pub(crate) fn styled(text: &str, style: Style) -> String {
    format!("{style}{text}{style:#}")
}

/// Appends formatted text.
pub(crate) fn push_fmt(text: &mut String, more: std::fmt::Arguments<'_>) {
    text.push_str(&more.to_string());
}

/// Returns the branch of a completed task, or `None` before delivery.
pub(crate) fn delivered_branch(detail: &TaskDetail) -> Option<&str> {
    let delivered = detail.card.state == State::Completed && detail.commit.is_some();
    delivered.then_some(detail.branch.as_str())
}

/// Formats the time since `then`, such as `3 min ago`.
pub(crate) fn format_ago(then: DateTime<Utc>, now: DateTime<Utc>) -> String {
    match format_duration(now - then).as_str() {
        "0 s" => "just now".to_owned(),
        time => format!("{time} ago"),
    }
}

/// Formats the time of day as `HH:MM:SS`.
pub(crate) fn format_time(at: DateTime<Utc>, zone: FixedOffset) -> String {
    at.with_timezone(&zone).format("%H:%M:%S").to_string()
}

/// Returns the next step of a task, with its time in this time zone.
pub(crate) fn next_step_text(card: &TaskCard, zone: FixedOffset) -> Option<String> {
    let text = card.next_text.clone()?;
    let time = match &card.next {
        Some(NextStep::Answer { reminder_at, .. }) => *reminder_at,
        Some(NextStep::Quota { until, .. }) => Some(*until),
        Some(NextStep::RetryJob { at, .. }) => Some(*at),
        Some(NextStep::AgentSlot { expected_by } | NextStep::JobRunning { expected_by, .. }) => {
            *expected_by
        }
        Some(
            NextStep::Resume { .. } | NextStep::JobStopping { .. } | NextStep::PullRequest { .. },
        )
        | None => None,
    };
    let Some(time) = time.filter(|_| zone.local_minus_utc() != 0) else { return Some(text) };
    let utc = time.format("%Y-%m-%d %H:%M UTC").to_string();
    let local = time.with_timezone(&zone).format("%Y-%m-%d %H:%M").to_string();
    Some(text.replace(&utc, &local))
}

/// Formats spending. A leading `~` marks a partial estimate. An unknown cost is not zero.
pub(crate) fn format_spend(spend: &Spend) -> String {
    if spend.estimated && spend.usd == Usd::ZERO {
        return "unknown".to_owned();
    }
    let about = if spend.estimated { "~" } else { "" };
    format!("{about}{}", format_usd(spend.usd))
}

/// Formats the cost of a run: metered, reported by the agent, or unknown.
pub(crate) fn format_run_cost(usage: Option<&RunUsage>) -> String {
    match usage.and_then(|usage| Some((usage.usd?, usage.metered))) {
        Some((usd, true)) => format_usd(usd),
        Some((usd, false)) => format!("≈ {} (reported by the agent)", format_usd(usd)),
        None => "unknown".to_owned(),
    }
}

/// Formats the token count of a run, or `unknown`.
pub(crate) fn format_tokens(usage: Option<&RunUsage>) -> String {
    let sum =
        |usage: &RunUsage| usage.input.saturating_add(usage.cached).saturating_add(usage.output);
    usage.map(sum).map_or_else(|| "unknown".to_owned(), format_number)
}

/// Formats the share of the input that was read from the cache; empty if it is unknown.
pub(crate) fn format_cached(usage: Option<&RunUsage>) -> String {
    let share = usage.and_then(|usage| usage.cached_percent);
    share.map(|share| format!("{share}%")).unwrap_or_default()
}

/// Returns the terminal width; `None` if output is not a terminal, or one that does not know its size.
pub(crate) fn terminal_width() -> Option<usize> {
    comfy_table::Table::new().width().map(usize::from).filter(|width| *width > 0)
}

/// Smallest terminal width, in characters, at which tables with many columns are readable.
const TABLE_WIDTH: usize = 100;

/// Returns the terminal width if it is too small for a table with many columns.
pub(crate) fn narrow_width() -> Option<usize> {
    terminal_width().filter(|width| *width < TABLE_WIDTH)
}

/// Breaks a text at spaces so that it fits into `width` characters. Every line starts with `indent`
/// spaces. Words are never broken.
pub(crate) fn wrap(text: &str, width: usize, indent: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let length = word.chars().count();
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + length <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("{:indent$}{word}", "")),
        }
    }
    lines.join("\n")
}

/// Returns the current time.
#[expect(clippy::disallowed_methods, reason = "times on the terminal are relative to now")]
pub(crate) fn now() -> DateTime<Utc> {
    Utc::now()
}

/// Returns the UTC offset of the local time zone.
pub(crate) fn local_offset() -> FixedOffset {
    *now().with_timezone(&chrono::Local).offset()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_text_is_broken_at_spaces_only() {
        let text = "a word and an unbreakablelongword";
        assert_eq!(wrap(text, 12, 2), "  a word and\n  an\n  unbreakablelongword");
        assert_eq!(wrap("", 12, 2), "");
    }

    #[test]
    fn the_time_of_the_next_step_is_local() {
        let at: DateTime<Utc> = "2026-11-15T23:30:00Z".parse().expect("a time");
        let next = NextStep::Quota { provider: "anthropic".parse().expect("a name"), until: at };
        let detail: TaskDetail =
            serde_json::from_str(include_str!("../tests/fixtures/waits.json")).expect("a task");
        let mut card = detail.card;
        card.next_text = Some(next.to_string());
        card.next = Some(next);
        let text = |hours: i32| {
            let zone = FixedOffset::east_opt(hours * 3600).expect("a zone");
            next_step_text(&card, zone).expect("a next step")
        };
        assert!(text(1).ends_with("2026-11-16 00:30"), "{}", text(1));
        assert!(text(0).ends_with("2026-11-15 23:30 UTC"), "{}", text(0));
    }

    #[test]
    fn costs_are_metered_reported_or_unknown() {
        let usage = |usd: Option<&str>, metered| RunUsage {
            input: 1200,
            cached: 30,
            cached_percent: Some(2),
            output: 4,
            usd: usd.map(|usd| usd.parse().expect("money")),
            metered,
        };
        assert_eq!(format_run_cost(Some(&usage(Some("0.42"), true))), "$0.42");
        assert_eq!(
            format_run_cost(Some(&usage(Some("0.42"), false))),
            "≈ $0.42 (reported by the agent)"
        );
        assert_eq!(format_run_cost(Some(&usage(None, true))), "unknown");
        assert_eq!(
            (format_run_cost(None), format_tokens(None)),
            ("unknown".to_owned(), "unknown".to_owned())
        );
        assert_eq!(format_tokens(Some(&usage(None, true))), "1,234");
        assert_eq!(format_cached(Some(&usage(None, true))), "2%");
        assert_eq!(format_cached(None), "");
    }
}
