//! How tasks look on a terminal: colours, times, money.
//!
//! Everything here is a function of its arguments, so that what people see can be tested.

use anstyle::{AnsiColor, Style};
use chrono::{DateTime, FixedOffset, TimeDelta, Utc};
use tamma_core::cost::Usd;
use tamma_core::level::Level;
use tamma_core::task_loop::{Phase, State};
use tamma_server::shape::{RunUsage, Spend, Whole};

/// What stands out.
pub(crate) const STRONG: Style = Style::new().bold();
/// What stands back.
pub(crate) const FAINT: Style = Style::new().dimmed();

/// The colour of a phase.
pub(crate) fn colour(phase: Phase) -> AnsiColor {
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

/// The colour of a state: that of its phase, unless it is a bad end.
pub(crate) fn of_state(state: State) -> AnsiColor {
    match state {
        State::Failed => AnsiColor::Red,
        State::Cancelled => AnsiColor::BrightBlack,
        state => colour(state.phase()),
    }
}

/// The colour of a risk.
pub(crate) fn of_risk(risk: Level) -> AnsiColor {
    match risk {
        Level::Low => AnsiColor::Green,
        Level::Medium => AnsiColor::Yellow,
        Level::High => AnsiColor::Red,
    }
}

/// A text in a colour.
pub(crate) fn paint(text: &str, colour: AnsiColor) -> String {
    let style = colour.on_default();
    format!("{style}{text}{style:#}")
}

/// A text in a style.
pub(crate) fn styled(text: &str, style: Style) -> String {
    format!("{style}{text}{style:#}")
}

/// Adds to a text.
pub(crate) fn add(text: &mut String, more: std::fmt::Arguments<'_>) {
    text.push_str(&more.to_string());
}

/// The words of a name that is spelt with underscores.
pub(crate) fn words(name: &impl ToString) -> String {
    name.to_string().replace('_', " ")
}

/// The branch that a task has left in its repository, if it has got that far.
pub(crate) fn branch(whole: &Whole) -> Option<String> {
    let delivered = whole.card.state == State::Completed && whole.commit.is_some();
    delivered.then(|| format!("tamma/{}", whole.card.id))
}

/// How long ago a moment is.
pub(crate) fn ago(then: DateTime<Utc>, now: DateTime<Utc>) -> String {
    match lasting(now - then).as_str() {
        "0 s" => "just now".to_owned(),
        time => format!("{time} ago"),
    }
}

/// A length of time in its largest unit, or the two largest from an hour on.
pub(crate) fn lasting(time: TimeDelta) -> String {
    let seconds = time.num_seconds().max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, _, _) => format!("{hours} h {} min", minutes % 60),
        (1, ..) => format!("1 day {} h", hours % 24),
        _ => format!("{days} days"),
    }
}

/// The time of day.
pub(crate) fn clock(at: DateTime<Utc>, zone: FixedOffset) -> String {
    at.with_timezone(&zone).format("%H:%M:%S").to_string()
}

/// What was spent; with a sign before it where some of it is an estimate.
pub(crate) fn money(spend: &Spend) -> String {
    let about = if spend.estimated { "~" } else { "" };
    format!("{about}{}", dollars(spend.usd))
}

/// What a run has cost: what was counted, or what the agent says, or that nobody knows.
pub(crate) fn cost(usage: Option<&RunUsage>) -> String {
    match usage.and_then(|usage| Some((usage.usd?, usage.metered))) {
        Some((usd, true)) => dollars(usd),
        Some((usd, false)) => format!("≈ {} (as the agent reports)", dollars(usd)),
        None => "unknown".to_owned(),
    }
}

/// How many tokens a run has used, if anybody has said so.
pub(crate) fn tokens(usage: Option<&RunUsage>) -> String {
    let sum =
        |usage: &RunUsage| usage.input.saturating_add(usage.cached).saturating_add(usage.output);
    usage.map(sum).map_or_else(|| "unknown".to_owned(), number)
}

/// How wide the terminal is, if there is one.
pub(crate) fn width() -> Option<usize> {
    comfy_table::Table::new().width().map(usize::from)
}

/// An amount of money, with at least two digits after the point.
pub(crate) fn dollars(usd: Usd) -> String {
    usd.with_cents()
}

/// A number with its thousands apart.
pub(crate) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut apart = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            apart.push(',');
        }
        apart.push(digit);
    }
    apart
}

/// The time it is.
#[expect(clippy::disallowed_methods, reason = "times on the terminal are relative to now")]
pub(crate) fn now() -> DateTime<Utc> {
    Utc::now()
}

/// Where this machine's clock is.
pub(crate) fn zone() -> FixedOffset {
    *now().with_timezone(&chrono::Local).offset()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_their_largest_unit() {
        let told = |seconds| lasting(TimeDelta::seconds(seconds));
        let all = [-5, 0, 59, 60, 3599, 3600, 7320, 86_399, 90_000, 200_000].map(told);
        let expected = [
            "0 s",
            "0 s",
            "59 s",
            "1 min",
            "59 min",
            "1 h 0 min",
            "2 h 2 min",
            "23 h 59 min",
            "1 day 1 h",
            "2 days",
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn money_has_its_cents() {
        let told = |text: &str| dollars(text.parse().expect("money"));
        assert_eq!(
            ["3", "0.4", "0.42", "0.1234"].map(told),
            ["$3.00", "$0.40", "$0.42", "$0.1234"]
        );
    }

    #[test]
    fn a_cost_that_nobody_knows_is_unknown_and_one_that_is_reported_says_so() {
        let usage = |usd: Option<&str>, metered| RunUsage {
            input: 1200,
            cached: 30,
            output: 4,
            usd: usd.map(|usd| usd.parse().expect("money")),
            metered,
        };
        assert_eq!(cost(Some(&usage(Some("0.42"), true))), "$0.42");
        assert_eq!(cost(Some(&usage(Some("0.42"), false))), "≈ $0.42 (as the agent reports)");
        assert_eq!(cost(Some(&usage(None, true))), "unknown");
        assert_eq!((cost(None), tokens(None)), ("unknown".to_owned(), "unknown".to_owned()));
        assert_eq!(tokens(Some(&usage(None, true))), "1,234");
    }

    #[test]
    fn thousands_stand_apart() {
        let all = [0, 12, 123, 1234, 123_456, 1_234_567].map(number);
        assert_eq!(all, ["0", "12", "123", "1,234", "123,456", "1,234,567"]);
    }
}
