//! `tamma task`: adding, finding and following tasks.

pub(super) mod add;
mod diff;
mod history;
pub(super) mod list;
mod log;
mod report;
pub(crate) mod show;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::client::{self, Client, Target};
use crate::watch::{self, Options};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Adds a task.
    Add(Box<add::Arguments>),
    /// Lists tasks, the newest first.
    List(list::Arguments),
    /// Shows everything that is known of a task.
    Show(show::Arguments),
    /// Shows the change that a task has made, with the numbers of its lines, once it was reviewed.
    Diff(diff::Arguments),
    /// Tells of a task, iteration by iteration: gates, criteria, decisions, councils and cost.
    Report(report::Arguments),
    /// Follows a task until it has ended.
    ///
    /// Exits with 0 if it was completed and with 1 if it was not; with --until-asked also with 3, as
    /// soon as it waits for a person.
    Watch(Watch),
    /// Shows what has happened to a task.
    History(history::History),
    /// Shows what the agents of a task say and do, and with --follow what comes.
    Log(log::Arguments),
    /// Writes the log as lines of JSON: of one task, of a project, or of everything.
    Export(history::Export),
}

#[derive(Debug, Args)]
pub(super) struct Watch {
    /// The task: its id, or at least four digits of its beginning or end.
    id: String,
    /// Ends as soon as the task waits for a person, with exit code 3.
    #[arg(long)]
    until_asked: bool,
    #[command(flatten)]
    target: Target,
}

pub(super) fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Add(arguments) => add::run(arguments),
        Command::List(arguments) => list::run(arguments),
        Command::Show(arguments) => show::run(arguments),
        Command::Diff(arguments) => diff::run(arguments),
        Command::Report(arguments) => report::run(arguments),
        Command::Watch(Watch { id, until_asked, target }) => client::run(target, async {
            let client = Client::new(target)?;
            let id = client.which(id).await?;
            let options = Options { until_asked: *until_asked, json: target.json };
            watch::watch(&client, id, options).await
        }),
        Command::History(arguments) => history::history(arguments),
        Command::Log(arguments) => log::run(arguments),
        Command::Export(arguments) => history::export(arguments),
    }
}
