//! What can be said on the command line, and who answers.

mod act;
mod alert;
mod apart;
mod chat;
mod completions;
mod config;
pub(crate) mod doctor;
pub(crate) mod given;
mod inbox;
mod init;
mod knowledge;
mod mcp;
mod person;
mod reference;
mod task;
mod up;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

pub(crate) use task::show::suggestions;

/// Runs coding agents on tasks, with plans, approval, gates and a budget.
#[derive(Debug, Parser)]
#[command(name = "tamma", version, arg_required_else_help = true, propagate_version = true)]
#[command(after_help = "Exit codes: 0 all is well, 1 something is wrong, 2 the command is wrong, \
                        3 a task waits for a person.")]
pub(crate) struct Tamma {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Looks at a repository and writes a first `tamma.yaml` for it.
    ///
    /// It finds out how the project is tested and checked and which agents are installed, and
    /// writes what differs from the defaults, with the reason for each. In a repository without a
    /// commit it commits the file, because a task needs a commit to start from.
    Init(init::Arguments),
    /// Starts everything that tasks need, and stops it again at the end.
    ///
    /// Where no PostgreSQL and no Temporal are named, private ones are started from the installed
    /// programs; their data is kept. The repository here becomes a project.
    Up(up::Arguments),
    /// Answers the API, with a database and a Temporal that run already.
    Serve(apart::Serve),
    /// Does the work of tasks, with a database and a Temporal that run already.
    Work(apart::Work),
    /// Brings the tables of a database to their newest form.
    Migrate(apart::Migrate),
    /// Checks, shows and describes the configuration.
    #[command(subcommand, arg_required_else_help = true)]
    Config(config::Command),
    /// Tells whether this machine has what Tamma needs.
    ///
    /// Each line begins with ✓ (all is well), ! (works without, and with less) or ✗ (needed). Exits
    /// with 1 if something that is needed is missing. Changes nothing.
    Doctor(doctor::Arguments),
    /// Writes a completion script for a shell.
    ///
    /// For bash: tamma completions bash > ~/.local/share/bash-completion/completions/tamma
    Completions(completions::Arguments),
    /// Adds, finds and follows tasks.
    #[command(subcommand, arg_required_else_help = true)]
    Task(task::Command),
    /// Lists what waits for a person.
    Inbox(inbox::Arguments),
    /// Lets a plan run.
    ///
    /// In a terminal the plan is shown and you are asked. Elsewhere, `--plan` says which plan you
    /// have seen.
    Approve(act::Approve),
    /// Does not let a plan run.
    Reject(act::Reject),
    /// Changes a plan that waits for approval, or what is wanted.
    Modify(act::Modify),
    /// Stops a task for now.
    Pause(act::One),
    /// Lets a paused task go on.
    Resume(act::One),
    /// Ends a task. What it has made is kept.
    Cancel(act::Cancel),
    /// Tries what failed again, or what waits at once.
    Retry(act::Retry),
    /// Tells an agent what it wanted to know, and lets its task go on.
    Reply(act::Reply),
    /// Answers a task's question.
    Answer(Box<act::Answer>),
    /// Shows what people were told, and tries whether it arrives.
    #[command(subcommand, arg_required_else_help = true)]
    Alert(alert::Command),
    /// Writes down, finds and decides about what the team knows.
    #[command(subcommand, arg_required_else_help = true)]
    Knowledge(knowledge::Command),
    /// Gives people tokens of their own, and takes them away. For whoever runs the server.
    #[command(subcommand, arg_required_else_help = true)]
    Person(person::Command),
    /// Talks with you: about the work, and about what is to be done.
    ///
    /// What changes something is shown as the exact command, and done only when you say yes.
    Chat(chat::Arguments),
    /// Is Tamma for any agent that speaks the Model Context Protocol, on standard input and output.
    ///
    /// For Claude Code: claude mcp add tamma -- tamma mcp. What the agent does is done in your name and
    /// with your rights: those of your token (`TAMMA_TOKEN`), where you have one.
    Mcp(mcp::Arguments),
    /// Shows and gives back what is on this machine's disk for tasks.
    #[command(subcommand, arg_required_else_help = true)]
    Workspace(workspace::Command),
    /// Writes the reference of all commands as Markdown.
    #[command(hide = true)]
    HelpReference,
}

/// Does what was asked.
pub(crate) fn run(tamma: &Tamma) -> Result<ExitCode> {
    match &tamma.command {
        Command::Init(arguments) => init::run(arguments),
        Command::Up(arguments) => up::run(arguments),
        Command::Serve(arguments) => apart::serve(arguments),
        Command::Work(arguments) => apart::work(arguments),
        Command::Migrate(arguments) => apart::migrate(arguments),
        Command::Config(command) => config::run(command),
        Command::Doctor(arguments) => doctor::run(arguments),
        Command::Completions(arguments) => completions::run(arguments),
        Command::Task(command) => task::run(command),
        Command::Inbox(arguments) => inbox::run(arguments),
        Command::Approve(arguments) => act::approve(arguments),
        Command::Reject(arguments) => act::reject(arguments),
        Command::Modify(arguments) => act::modify(arguments),
        Command::Pause(one) => act::pause(one),
        Command::Resume(one) => act::resume(one),
        Command::Cancel(arguments) => act::cancel(arguments),
        Command::Retry(arguments) => act::retry(arguments),
        Command::Reply(arguments) => act::reply(arguments),
        Command::Answer(arguments) => act::answer(arguments),
        Command::Alert(command) => alert::run(command),
        Command::Knowledge(command) => knowledge::run(command),
        Command::Chat(arguments) => chat::run(arguments),
        Command::Mcp(arguments) => mcp::run(arguments),
        Command::Person(command) => person::run(command),
        Command::Workspace(command) => workspace::run(command),
        Command::HelpReference => reference::run(),
    }
}
