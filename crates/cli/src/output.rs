//! How things look on a terminal.
//!
//! Colours are written always; `anstream` takes them out again where they are not wanted: in a
//! pipe, or with `NO_COLOR`.

use std::io::{self, Write};
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use serde_json::Value;
use tamma_core::rules::{Place, Problem};

const ERROR: Style = AnsiColor::Red.on_default().bold();
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
fn plain(text: &str) -> String {
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

/// Writes one value of the configuration.
pub(crate) fn setting(
    out: &mut impl Write,
    path: &str,
    value: &Value,
    from: &str,
) -> io::Result<()> {
    // JSON writes control characters in its own way, so only the path has to be made plain.
    let path = plain(path);
    writeln!(out, "{path} = {STRONG}{value}{STRONG:#}  {FAINT}# {from}{FAINT:#}")
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
