//! What can be said on the command line, and who answers.

mod completions;
mod config;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Runs coding agents on tasks, with plans, approval, gates and a budget.
#[derive(Debug, Parser)]
#[command(name = "tamma", version, arg_required_else_help = true, propagate_version = true)]
#[command(after_help = "Exit codes: 0 all is well, 1 something is wrong, 2 the command is wrong.")]
pub(crate) struct Tamma {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Checks, shows and describes the configuration.
    #[command(subcommand, arg_required_else_help = true)]
    Config(config::Command),
    /// Writes a completion script for a shell.
    ///
    /// For bash: tamma completions bash > ~/.local/share/bash-completion/completions/tamma
    Completions(completions::Arguments),
}

/// Does what was asked.
pub(crate) fn run(tamma: &Tamma) -> Result<ExitCode> {
    match &tamma.command {
        Command::Config(command) => config::run(command),
        Command::Completions(arguments) => completions::run(arguments),
    }
}
