//! Terminal output: problems, settings, checks and tables.
//!
//! Colours are always written. `anstream` strips them where they are not wanted: in a pipe, or
//! with `NO_COLOR`.

use std::io::{self, Write};
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use serde_json::Value;
use tamma_core::rules::{ConfigProblem, SourceLocation};

use crate::commands::doctor::CheckStatus;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const GOOD: Style = AnsiColor::Green.on_default().bold();
const NOTE: Style = AnsiColor::Yellow.on_default().bold();
const STRONG: Style = Style::new().bold();
const MARGIN: Style = AnsiColor::Blue.on_default().bold();
const HELP: Style = AnsiColor::Cyan.on_default().bold();
const FAINT: Style = Style::new().dimmed();

/// Maximum excerpt width, in characters. Longer lines are cut around the marked span.
const WIDTH: usize = 120;

/// Writes one configuration problem with its source line.
pub(crate) fn write_problem(
    out: &mut impl Write,
    problem: &ConfigProblem,
    name: &str,
    text: &str,
) -> io::Result<()> {
    let (code, message) = (problem.fault.code(), sanitize(&problem.to_string()));
    writeln!(out, "{ERROR}error[{code}]{ERROR:#}{STRONG}: {message}{STRONG:#}")?;
    let mut margin = 2;
    if let Some(at) = problem.location() {
        margin = at.line.to_string().len() + 1;
        let (line, column) = (at.line, at.column);
        writeln!(out, "{:1$}{MARGIN}-->{MARGIN:#} {name}:{line}:{column}", "", margin - 1)?;
        if let Some(source) = text.lines().nth(line - 1) {
            write_excerpt(out, source, at, margin)?;
        }
    } else if let Some(variable) = problem.variable() {
        writeln!(
            out,
            "{:1$}{MARGIN}-->{MARGIN:#} environment variable {variable}",
            "",
            margin - 1
        )?;
    }
    if let Some(help) = problem.fault.help().map(|help| sanitize(&help)) {
        writeln!(out, "{:1$}{MARGIN}={MARGIN:#} {HELP}help{HELP:#}: {help}", "", margin)?;
    }
    writeln!(out)
}

fn write_excerpt(
    out: &mut impl Write,
    source: &str,
    at: SourceLocation,
    margin: usize,
) -> io::Result<()> {
    let length = source.chars().count();
    let start = at.column.saturating_sub(1).min(length);
    // An excerpt of a long line starts shortly before the marked span.
    let from = if length > WIDTH { start.saturating_sub(WIDTH / 3) } else { 0 };
    // A tab would misplace the caret, and other control characters must not reach the terminal.
    let shown: String = source
        .chars()
        .skip(from)
        .take(WIDTH)
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect();
    let width = at.width.min(length - start).min(WIDTH - (start - from)).max(1);
    let (blank, caret, line) = (start - from, "^".repeat(width), at.line);
    writeln!(out, "{:margin$}{MARGIN}|{MARGIN:#}", "")?;
    writeln!(out, "{MARGIN}{line} |{MARGIN:#} {}", shown.trim_end())?;
    writeln!(out, "{:margin$}{MARGIN}|{MARGIN:#} {:blank$}{ERROR}{caret}{ERROR:#}", "", "")
}

/// Escapes control characters, so that untrusted text cannot control the terminal.
pub(crate) fn sanitize(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() {
            plain.extend(letter.escape_default());
        } else {
            plain.push(letter);
        }
    }
    plain
}

/// Writes the number of problems.
pub(crate) fn write_problem_count(out: &mut impl Write, problems: usize) -> io::Result<()> {
    let problems = pluralize(problems, "problem");
    writeln!(out, "{ERROR}error{ERROR:#}{STRONG}: {problems} found{STRONG:#}")
}

/// Configuration value as `tamma config show` prints it.
pub(crate) struct DisplayedSetting {
    /// Heading that the value is printed under.
    pub(crate) section: String,
    /// Path within the section; empty if the section is empty.
    pub(crate) key: String,
    pub(crate) value: Value,
    /// Source of the value; `None` for a default.
    pub(crate) origin: Option<String>,
}

/// Width of the value column, in characters. Longer values overflow it.
const COLUMN: usize = 24;

/// Writes the configuration by section and marks values that are not defaults.
pub(crate) fn write_settings(
    out: &mut impl Write,
    settings: &[DisplayedSetting],
) -> io::Result<()> {
    for (index, section) in settings.chunk_by(|one, next| one.section == next.section).enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        write_heading(out, &sanitize(&section[0].section))?;
        // Widths exclude colour sequences.
        let widest = section.iter().map(|one| sanitize(&one.key).chars().count()).max();
        let widest = widest.unwrap_or_default();
        for DisplayedSetting { key, value, origin: from, .. } in section {
            // JSON escapes control characters itself, so only the key is sanitised.
            let (key, value) = (sanitize(key), value.to_string());
            let gap = if widest == 0 { "" } else { "  " };
            match from {
                None => writeln!(out, "    {key:widest$}{gap}{FAINT}{value}{FAINT:#}")?,
                Some(from) => writeln!(
                    out,
                    "  {GOOD}*{GOOD:#} {key:widest$}{gap}{STRONG}{value:COLUMN$}{STRONG:#}  {HELP}{}{HELP:#}",
                    sanitize(from)
                )?,
            }
        }
    }
    let set = settings.iter().filter(|one| one.origin.is_some()).count();
    let (set, all) = (pluralize(set, "value"), settings.len());
    writeln!(out, "\n{FAINT}{set} of {all} set (*), the rest are defaults{FAINT:#}")
}

/// Writes the result of one check.
pub(crate) fn write_check(
    out: &mut impl Write,
    verdict: CheckStatus,
    name: &str,
    text: &str,
) -> io::Result<()> {
    let (style, sign) = match verdict {
        CheckStatus::Passed => (GOOD, '✓'),
        CheckStatus::Warning => (NOTE, '!'),
        CheckStatus::Missing => (ERROR, '✗'),
    };
    writeln!(out, "{style}{sign}{style:#} {STRONG}{name}{STRONG:#}: {}", sanitize(text))
}

/// Writes a heading.
pub(crate) fn write_heading(out: &mut impl Write, text: &str) -> io::Result<()> {
    writeln!(out, "{STRONG}{text}{STRONG:#}")
}

/// Writes a table of category, name and details.
pub(crate) fn write_rows(out: &mut impl Write, rows: &[(&str, String, String)]) -> io::Result<()> {
    let widest = |part: fn(&(&str, String, String)) -> usize| rows.iter().map(part).max();
    let first = widest(|row| row.0.chars().count()).unwrap_or_default();
    // A name without details can be a sentence, so it does not count for the column width.
    let second = widest(|row| if row.2.is_empty() { 0 } else { row.1.chars().count() });
    let second = second.unwrap_or_default();
    for (index, (what, name, more)) in rows.iter().enumerate() {
        // A repeated category is left blank.
        let again = index > 0 && rows[index - 1].0 == *what;
        let what = if again { "" } else { *what };
        let (name, more) = (sanitize(name), sanitize(more));
        write!(out, "  {FAINT}{what:first$}{FAINT:#}  ")?;
        if more.is_empty() {
            writeln!(out, "{name}")?;
        } else {
            writeln!(out, "{STRONG}{name:second$}{STRONG:#}  {more}")?;
        }
    }
    writeln!(out)
}

/// Writes a completed step.
pub(crate) fn write_done(out: &mut impl Write, what: &str) -> io::Result<()> {
    writeln!(out, "  {GOOD}✓{GOOD:#} {}", sanitize(what))
}

/// Writes suggested commands with their purpose.
pub(crate) fn write_next_steps(
    out: &mut impl Write,
    commands: &[(String, String)],
) -> io::Result<()> {
    let width = commands.iter().map(|(command, _)| command.chars().count()).max();
    let width = width.unwrap_or_default();
    for (command, purpose) in commands {
        let (command, purpose) = (sanitize(command), sanitize(purpose));
        writeln!(out, "  {HELP}{command:width$}{HELP:#}  {FAINT}{purpose}{FAINT:#}")?;
    }
    Ok(())
}

/// Prints a value as indented JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    writeln!(anstream::stdout().lock(), "{}", serde_json::to_string_pretty(value)?)?;
    Ok(())
}

/// Formats a count with its noun, in the plural unless it is 1.
pub(crate) fn pluralize(number: usize, noun: &str) -> String {
    tamma_core::format::pluralize(number, noun)
}

/// Writes the error of a failed command and returns exit code 1.
pub(crate) fn report_failure(error: &anyhow::Error) -> ExitCode {
    // Ignored: without standard error, the exit code still reports the failure.
    let _ = writeln!(anstream::stderr().lock(), "{ERROR}error{ERROR:#}: {error:#}");
    ExitCode::FAILURE
}

/// Returns `true` if the reader of the output has closed the pipe.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}
