//! How things look on a terminal.
//!
//! Colours are written always; `anstream` takes them out again where they are not wanted: in a
//! pipe, or with `NO_COLOR`.

use std::io::{self, Write};
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use serde_json::Value;
use tamma_core::rules::{Place, Problem};

use crate::commands::doctor::Verdict;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const GOOD: Style = AnsiColor::Green.on_default().bold();
const NOTE: Style = AnsiColor::Yellow.on_default().bold();
const STRONG: Style = Style::new().bold();
const MARGIN: Style = AnsiColor::Blue.on_default().bold();
const HELP: Style = AnsiColor::Cyan.on_default().bold();
const FAINT: Style = Style::new().dimmed();

/// Lines longer than this are cut around the place that matters.
const WIDTH: usize = 120;

/// Writes one problem, with the line it is in.
pub(crate) fn problem(
    out: &mut impl Write,
    problem: &Problem,
    name: &str,
    text: &str,
) -> io::Result<()> {
    let (code, message) = (problem.fault.code(), plain(&problem.to_string()));
    writeln!(out, "{ERROR}error[{code}]{ERROR:#}{STRONG}: {message}{STRONG:#}")?;
    let mut margin = 2;
    if let Some(at) = problem.place() {
        margin = at.line.to_string().len() + 1;
        let (line, column) = (at.line, at.column);
        writeln!(out, "{:1$}{MARGIN}-->{MARGIN:#} {name}:{line}:{column}", "", margin - 1)?;
        if let Some(source) = text.lines().nth(line - 1) {
            excerpt(out, source, at, margin)?;
        }
    } else if let Some(variable) = problem.variable() {
        writeln!(out, "{:1$}{MARGIN}-->{MARGIN:#} the environment: {variable}", "", margin - 1)?;
    }
    if let Some(help) = problem.fault.help().map(|help| plain(&help)) {
        writeln!(out, "{:1$}{MARGIN}={MARGIN:#} {HELP}help{HELP:#}: {help}", "", margin)?;
    }
    writeln!(out)
}

fn excerpt(out: &mut impl Write, source: &str, at: Place, margin: usize) -> io::Result<()> {
    let length = source.chars().count();
    let start = at.column.saturating_sub(1).min(length);
    // A long line is shown from shortly before the place that matters.
    let from = if length > WIDTH { start.saturating_sub(WIDTH / 3) } else { 0 };
    // A tab would put the caret elsewhere, and no other control character has business here.
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

/// A text without control characters: what stands in a file must not command the terminal.
pub(crate) fn plain(text: &str) -> String {
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

/// Writes how many problems there were.
pub(crate) fn count(out: &mut impl Write, problems: usize) -> io::Result<()> {
    let problems = counted(problems, "problem");
    writeln!(out, "{ERROR}error{ERROR:#}{STRONG}: {problems} found{STRONG:#}")
}

/// A value of the configuration, as it is shown.
pub(crate) struct Shown {
    /// The section that it is shown under.
    pub(crate) section: String,
    /// Its path in that section; empty for a section that is empty.
    pub(crate) key: String,
    pub(crate) value: Value,
    /// Where it came from, unless it is a default.
    pub(crate) from: Option<String>,
}

/// Values longer than this do not push the column behind them.
const COLUMN: usize = 24;

/// Writes the configuration, section by section. What is not a default is marked.
pub(crate) fn settings(out: &mut impl Write, settings: &[Shown]) -> io::Result<()> {
    for (index, section) in settings.chunk_by(|one, next| one.section == next.section).enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        heading(out, &plain(&section[0].section))?;
        // Lengths are those of what is written, without colours.
        let widest = section.iter().map(|one| plain(&one.key).chars().count()).max();
        let widest = widest.unwrap_or_default();
        for Shown { key, value, from, .. } in section {
            // JSON writes control characters in its own way, so only the key has to be made plain.
            let (key, value) = (plain(key), value.to_string());
            let gap = if widest == 0 { "" } else { "  " };
            match from {
                None => writeln!(out, "    {key:widest$}{gap}{FAINT}{value}{FAINT:#}")?,
                Some(from) => writeln!(
                    out,
                    "  {GOOD}*{GOOD:#} {key:widest$}{gap}{STRONG}{value:COLUMN$}{STRONG:#}  {HELP}{}{HELP:#}",
                    plain(from)
                )?,
            }
        }
    }
    let set = settings.iter().filter(|one| one.from.is_some()).count();
    let (set, all) = (counted(set, "value"), settings.len());
    writeln!(out, "\n{FAINT}{set} of {all} set (*); the others are defaults{FAINT:#}")
}

/// Writes what was found about one thing that Tamma needs or can use.
pub(crate) fn check(
    out: &mut impl Write,
    verdict: Verdict,
    name: &str,
    text: &str,
) -> io::Result<()> {
    let (style, sign) = match verdict {
        Verdict::Good => (GOOD, '✓'),
        Verdict::Note => (NOTE, '!'),
        Verdict::Missing => (ERROR, '✗'),
    };
    writeln!(out, "{style}{sign}{style:#} {STRONG}{name}{STRONG:#}: {}", plain(text))
}

/// Writes what the lines below are about.
pub(crate) fn heading(out: &mut impl Write, text: &str) -> io::Result<()> {
    writeln!(out, "{STRONG}{text}{STRONG:#}")
}

/// Writes a small table: what it is, its name, and what there is to say of it.
pub(crate) fn rows(out: &mut impl Write, rows: &[(&str, String, String)]) -> io::Result<()> {
    let widest = |part: fn(&(&str, String, String)) -> usize| rows.iter().map(part).max();
    let first = widest(|row| row.0.chars().count()).unwrap_or_default();
    // A name without more to say may be a sentence, and is no column.
    let second = widest(|row| if row.2.is_empty() { 0 } else { row.1.chars().count() });
    let second = second.unwrap_or_default();
    for (index, (what, name, more)) in rows.iter().enumerate() {
        // The same word is not said again on the lines below.
        let again = index > 0 && rows[index - 1].0 == *what;
        let what = if again { "" } else { *what };
        let (name, more) = (plain(name), plain(more));
        write!(out, "  {FAINT}{what:first$}{FAINT:#}  ")?;
        if more.is_empty() {
            writeln!(out, "{name}")?;
        } else {
            writeln!(out, "{STRONG}{name:second$}{STRONG:#}  {more}")?;
        }
    }
    writeln!(out)
}

/// Writes something that was done.
pub(crate) fn done(out: &mut impl Write, what: &str) -> io::Result<()> {
    writeln!(out, "  {GOOD}✓{GOOD:#} {}", plain(what))
}

/// Writes commands that a person may run next, and what each is for.
pub(crate) fn next(out: &mut impl Write, commands: &[(String, String)]) -> io::Result<()> {
    let width = commands.iter().map(|(command, _)| command.chars().count()).max();
    let width = width.unwrap_or_default();
    for (command, why) in commands {
        let (command, why) = (plain(command), plain(why));
        writeln!(out, "  {HELP}{command:width$}{HELP:#}  {FAINT}{why}{FAINT:#}")?;
    }
    Ok(())
}

/// Writes a value as JSON, for programs.
pub(crate) fn json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    writeln!(anstream::stdout().lock(), "{}", serde_json::to_string_pretty(value)?)?;
    Ok(())
}

/// A number with its noun.
pub(crate) fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Writes why a command could not be done.
pub(crate) fn failure(error: &anyhow::Error) -> ExitCode {
    // If even this cannot be written, the exit code has to do.
    let _ = writeln!(anstream::stderr().lock(), "{ERROR}error{ERROR:#}: {error:#}");
    ExitCode::FAILURE
}

/// Whether an error is only that nobody reads our output any more.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}
