//! `tamma task`: adds, lists, shows and follows tasks.

pub(super) mod add;
mod bundle;
pub(super) mod diff;
mod history;
pub(super) mod list;
mod log;
mod report;
mod restart;
pub(crate) mod show;
mod verdict;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

use super::actions;
use crate::client::{self, Client, ClientArgs};
use crate::watch::{self, WatchOptions};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Add a task
    Add(Box<add::Args>),
    /// List tasks, newest first
    List(list::Args),
    /// Edit the title, priority or labels of a task; nothing is replanned
    Edit(actions::EditArgs),
    /// Show a task
    Show(show::Args),
    /// Show the latest reviewed change of a task, with line numbers
    Diff(diff::Args),
    /// Report on a task by attempt: gates, criteria, decisions, councils and cost
    Report(report::Args),
    /// Export the gates and the review of a task as JUnit or SARIF
    Verdict(verdict::Args),
    /// Follow a task until it is closed
    ///
    /// Exits with 0 if the task was completed, and with 1 if it failed or was cancelled. With
    /// --until-asked, exits with 3 when the task needs a person.
    Watch(WatchArgs),
    /// Show the history of a task
    History(history::HistoryArgs),
    /// Show the agent log of a task
    Log(log::Args),
    /// Export the history of a task, a project or all tasks as JSON lines
    Export(history::ExportArgs),
    /// Write a redacted archive of everything about a task
    ///
    /// Contains the task, its plans, history, checks, runs with transcripts, rules, versions and the
    /// output of `tamma doctor`. Secrets are redacted; read the archive before you send it.
    Bundle(bundle::Args),
    /// Restart an open task from the database, if its workflow in Temporal is stuck or lost
    ///
    /// Terminates its workflow and starts another one from the last stored step. Work of a running
    /// agent that was not saved is lost. Only an operator can do this. Tamma does the same by itself
    /// when it notices that a workflow was lost.
    Restart(restart::Args),
}

#[derive(Debug, Args)]
pub(super) struct WatchArgs {
    /// Task ID, or at least four characters from its start or end
    #[arg(value_name = "TASK")]
    id: String,
    /// Exit with code 3 when the task needs a person
    #[arg(long)]
    until_asked: bool,
    #[command(flatten)]
    target: ClientArgs,
}

pub(super) fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Add(arguments) => add::run(arguments),
        Command::List(arguments) => list::run(arguments),
        Command::Edit(arguments) => actions::edit(arguments),
        Command::Show(arguments) => show::run(arguments),
        Command::Diff(arguments) => diff::run(arguments),
        Command::Report(arguments) => report::run(arguments),
        Command::Verdict(arguments) => verdict::run(arguments),
        Command::Watch(WatchArgs { id, until_asked, target }) => client::block_on(target, async {
            let client = Client::new(target)?;
            let id = client.resolve_task(id).await?;
            let (until_asked, json) = (*until_asked, target.json);
            let options = WatchOptions { until_asked, json, asks_inline: false };
            watch::watch(&client, id, options).await
        }),
        Command::History(arguments) => history::history(arguments),
        Command::Log(arguments) => log::run(arguments),
        Command::Export(arguments) => history::export(arguments),
        Command::Bundle(arguments) => bundle::run(arguments),
        Command::Restart(arguments) => restart::run(arguments),
    }
}
