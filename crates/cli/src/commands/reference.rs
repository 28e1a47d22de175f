//! `tamma help-reference`: every command as Markdown, for the documentation.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Command, CommandFactory as _};

use super::Tamma;
use crate::look;

pub(super) fn run() -> Result<ExitCode> {
    let mut command = Tamma::command();
    command.build();
    let mut text = String::from(
        "# Commands\n\n<!-- Written by `just gen` from the program. Do not edit. -->\n\n",
    );
    describe(&command, "", 2, &mut text)?;
    anstream::stdout().lock().write_all(text.trim_end().as_bytes())?;
    writeln!(anstream::stdout().lock())?;
    Ok(ExitCode::SUCCESS)
}

/// Describes a command and those under it.
fn describe(command: &Command, above: &str, level: usize, out: &mut String) -> Result<()> {
    let name = format!("{above}{}", command.get_name());
    writeln!(out, "{} `{name}`\n", "#".repeat(level))?;
    let about = command.get_long_about().or(command.get_about());
    if let Some(about) = about {
        writeln!(out, "{}\n", about.to_string().trim())?;
    }
    let usage = command.clone().render_usage().to_string();
    writeln!(out, "```text\n{}\n```\n", usage.trim_start_matches("Usage:").trim())?;
    let rows: Vec<_> = command
        .get_arguments()
        .filter(|argument| !argument.is_hide_set())
        .filter(|argument| !matches!(argument.get_id().as_str(), "help" | "version"))
        .map(row)
        .collect();
    if !rows.is_empty() {
        writeln!(out, "| argument | what it does |\n| --- | --- |\n{}\n", rows.join("\n"))?;
    }
    if let Some(after) = command.get_after_help() {
        writeln!(out, "{}\n", after.to_string().trim())?;
    }
    for under in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        if under.get_name() != "help" {
            describe(under, &format!("{name} "), (level + 1).min(4), out)?;
        }
    }
    Ok(())
}

/// One argument as a row.
fn row(argument: &clap::Arg) -> String {
    let value = argument.get_num_args().is_some_and(|range| range.takes_values());
    let names: Vec<_> = argument.get_value_names().unwrap_or_default().to_vec();
    let value = if value { format!(" <{}>", names.join("> <")) } else { String::new() };
    let written = match (argument.get_long(), argument.get_short()) {
        (Some(long), Some(short)) => format!("-{short}, --{long}{value}"),
        (Some(long), None) => format!("--{long}{value}"),
        (None, Some(short)) => format!("-{short}{value}"),
        (None, None) => value.trim().to_owned(),
    };
    let help = argument.get_long_help().or(argument.get_help());
    let mut help = help.map(ToString::to_string).unwrap_or_default().replace('\n', " ");
    let possible: Vec<_> = argument
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    if !possible.is_empty()
        && !matches!(possible.as_slice(), [a, b] if a == "`true`" && b == "`false`")
    {
        look::add(&mut help, format_args!(" One of {}.", possible.join(", ")));
    }
    format!("| `{written}` | {} |", help.replace('|', "\\|"))
}
