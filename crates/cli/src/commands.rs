//! Command line: arguments and dispatch to the modules that implement them.

mod access;
mod actions;
mod agents;
mod alert;
mod audit;
pub(crate) mod backend_args;
mod capacity;
mod chat;
mod completions;
mod config;
mod decide;
mod do_task;
pub(crate) mod doctor;
mod down;
mod eval;
mod forge;
mod help;
mod help_reference;
mod inbox;
mod init;
mod keys;
mod knowledge;
mod login;
mod logs;
mod maintenance;
mod mcp;
mod migrate;
mod organisation;
mod permissions;
mod person;
mod pipeline;
mod project;
mod queue;
mod serve;
mod service;
mod session;
mod sign_in;
mod status;
mod suggestions;
mod task;
mod token;
mod top;
mod try_out;
mod up;
mod work;
mod workspace;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

pub(crate) use task::show::{format_plan_for_approval, format_task, suggested_commands};

/// Run coding agents on development tasks, with plans, approvals, gates and budgets
#[derive(Debug, Parser)]
#[command(name = "tamma", version, arg_required_else_help = true)]
#[command(override_usage = "tamma <COMMAND>\n       tamma \"What to do\"")]
#[command(after_help = "Exit codes: 0 success, 1 failure, 2 usage error, \
                        3 a task is waiting on a person")]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Set up a repository and write tamma.yaml
    ///
    /// Detects gates and installed agents, and writes the settings that differ from the defaults,
    /// each with its reason. In a repository without commits, commits the file, because a task needs
    /// a commit to start from.
    Init(init::Args),
    /// Try Tamma with an example repository and a demo agent
    ///
    /// Makes a small repository in an empty folder, starts Tamma in the background and adds a task, whose
    /// plan then waits for your approval. The demo agent is part of Tamma: it follows a script and uses no
    /// model, no key and no network.
    Try(try_out::Args),
    /// Start Tamma on this machine
    ///
    /// Starts private PostgreSQL and Temporal servers from the installed programs, unless you name
    /// running ones. Their data is kept. Registers the current repository as a project.
    Up(up::Args),
    /// Stop Tamma on this machine
    ///
    /// Stops the `tamma up` of the data folder, in the background or in another terminal, and waits for
    /// its end. Tasks resume at the next start.
    Down(down::Args),
    /// Show what runs on this machine, and what waits
    ///
    /// Exits with 1 if Tamma is not running.
    Status(status::Args),
    /// Show the logs of Tamma on this machine
    ///
    /// The API server and the worker write a log if they run in the background (`tamma up --detach`, a
    /// service). The private PostgreSQL and Temporal servers always do.
    Logs(logs::Args),
    /// Run Tamma as a service of your user
    #[command(subcommand, arg_required_else_help = true)]
    Service(service::Command),
    /// Start the API server
    Serve(serve::ServeArgs),
    /// Start a worker
    Work(work::WorkArgs),
    /// Run database migrations
    Migrate(migrate::MigrateArgs),
    /// Keep agents from starting, during maintenance (operators only)
    #[command(subcommand, arg_required_else_help = true)]
    Maintenance(maintenance::Command),
    /// Create, list and rotate encryption keys
    ///
    /// The keys seal what Tamma writes to Temporal, and secrets in the database. All processes of an
    /// installation need the same key file.
    #[command(subcommand, arg_required_else_help = true)]
    Keys(keys::Command),
    /// Check, show and describe the configuration
    #[command(subcommand, arg_required_else_help = true)]
    Config(config::Command),
    /// Check that this machine is ready
    ///
    /// Each line starts with ✓ (passed), ! (optional, missing) or ✗ (required, missing). Exits with 1
    /// if a required check fails, so that no task could run. Changes nothing.
    Doctor(doctor::Args),
    /// Measure an agent on a set of tasks
    ///
    /// Runs each task in its own small repository and counts the changes that pass hidden tests. Prints
    /// the estimated cost and asks before it starts. To continue after an interruption, run the same
    /// command again. Writes results.json and report.html to the output folder.
    Eval(eval::EvalArgs),
    /// Generate a shell completion script
    ///
    /// For bash: tamma completions bash > ~/.local/share/bash-completion/completions/tamma
    Completions(completions::Args),
    /// Do a task in this repository: set up, start, add, follow, decide
    ///
    /// Short form: tamma "What to do". Writes tamma.yaml if there is none, starts Tamma in the background
    /// if it is not running, adds the task and follows it. On a terminal, it asks you for each decision.
    /// Otherwise it prints what is waiting and the commands that answer, and exits with 3. Exits with 0
    /// if the task was completed, and with 1 if it failed or was cancelled.
    Do(do_task::Args),
    /// Add, list, show and follow tasks
    #[command(subcommand, arg_required_else_help = true)]
    Task(task::Command),
    /// Take stories through ordered phases
    #[command(subcommand, arg_required_else_help = true)]
    Pipeline(pipeline::Command),
    /// List tasks and pipelines waiting on a person
    Inbox(inbox::Args),
    /// Watch and steer tasks in the terminal
    ///
    /// Shows the board, the inbox, tasks, logs and open decisions. The keys are at the bottom; `?` lists
    /// all of them. Needs 80 columns and 24 rows, and works over SSH.
    Top(top::Args),
    /// Approve a plan
    ///
    /// In a terminal, shows the plan and asks for confirmation. In a script, pass --plan with the hash of
    /// the plan you reviewed. The approval is refused if the plan, its base commit, the rules or the prompts
    /// have changed.
    Approve(actions::ApproveArgs),
    /// Reject a plan
    Reject(actions::RejectArgs),
    /// Accept a change that awaits your review
    ///
    /// In a terminal, shows the change and asks for confirmation. In a script, pass --commit with the hash
    /// of the commit you reviewed. To send it back, use `tamma answer TASK request-changes`.
    Accept(actions::AcceptArgs),
    /// Ask for another plan, or edit a plan
    ///
    /// The planner makes a new plan from your text. With --set, edits fields of the plan without a
    /// planner. To change what the task is about, use `tamma change-task`.
    RevisePlan(actions::RevisePlanArgs),
    /// Change the request of a task, and replan
    ///
    /// Works in every open state. To keep the request and change only the plan, use `tamma revise-plan`.
    ChangeTask(actions::ChangeTaskArgs),
    /// Pause a task
    Pause(actions::TaskArgs),
    /// Resume a paused task
    Resume(actions::TaskArgs),
    /// Cancel a task and keep its work
    Cancel(actions::CancelArgs),
    /// Retry failed work, or skip the wait
    Retry(actions::RetryArgs),
    /// Reply to an agent's question
    Reply(actions::ReplyArgs),
    /// Answer any open question, such as requesting changes
    Answer(Box<actions::AnswerArgs>),
    /// Convene the council on a task
    ///
    /// Several models look for the root cause of failures, or review a plan that awaits approval. The
    /// task then returns to where it was. A task can have as many councils as `max_councils` allows.
    Council(actions::CouncilArgs),
    /// Rate a closed task
    Rate(actions::RateArgs),
    /// Show the agent pool: workers, runs, free slots and quotas
    Agents(agents::Args),
    /// List the effective permissions of people and agents
    Permissions(permissions::Args),
    /// List and test alerts
    #[command(subcommand, arg_required_else_help = true)]
    Alert(alert::Command),
    /// Manage the knowledge base
    #[command(subcommand, arg_required_else_help = true)]
    Knowledge(knowledge::Command),
    /// Add, list and check forges such as GitHub, GitLab and Gitea
    #[command(subcommand, arg_required_else_help = true)]
    Forge(forge::Command),
    /// Register and list repositories
    #[command(subcommand, arg_required_else_help = true)]
    Project(project::Command),
    /// Show, pause and resume merge queues
    #[command(subcommand, arg_required_else_help = true)]
    Queue(queue::Command),
    /// Manage people and service accounts (operators only)
    #[command(subcommand, arg_required_else_help = true)]
    Person(person::Command),
    /// Sign in with an identity provider
    ///
    /// Prints an address and a code, and waits until you have signed in there with a browser. The login
    /// is kept in the data folder, for this server only. `TAMMA_TOKEN` overrides it.
    Login(login::LoginArgs),
    /// Sign out
    ///
    /// Ends the session of `tamma login` on this machine.
    Logout(login::LogoutArgs),
    /// List and revoke sessions
    #[command(subcommand, arg_required_else_help = true)]
    Session(session::Command),
    /// Create, list and revoke access tokens
    #[command(subcommand, arg_required_else_help = true)]
    Token(token::Command),
    /// Print a link that signs you in to the web UI
    ///
    /// The link works once, within 10 minutes.
    SignIn(sign_in::Args),
    /// Manage organisations, their projects and their people
    #[command(subcommand, arg_required_else_help = true)]
    Organisation(organisation::Command),
    /// Manage the roles of people in projects (operators and administrators)
    #[command(subcommand, arg_required_else_help = true)]
    Access(access::Command),
    /// Verify or export the audit log, and verify task histories
    #[command(subcommand, arg_required_else_help = true)]
    Audit(audit::Command),
    /// Ask about tasks, or request actions, in plain English
    ///
    /// Shows the exact command for every action, and runs it only after you answer yes.
    Chat(chat::Args),
    /// Run Tamma as an MCP server
    ///
    /// Uses standard input and output. For Claude Code: claude mcp add tamma -- tamma mcp. The agent acts
    /// under your name, with the permissions of your token (`TAMMA_TOKEN`) if you have one.
    Mcp(mcp::Args),
    /// Estimate machines, databases and cost of a load
    ///
    /// Needs no server. As long as one machine with `tamma up` keeps up with your agents, you do not need
    /// this.
    ///
    /// The result is computed, not measured: the cost of one task, multiplied by your load. The costs of a
    /// task, of a waiting task and of an agent's slot were measured with scripted agents on two cores; the
    /// output prints the date and commit of each. Agents, peak and machines are assumptions: set the
    /// options to your own figures. Not included: the API server, the database of a separate Temporal
    /// cluster, standbys, spare machines and models. docs/scale.md describes the measurements.
    Capacity(capacity::Args),
    /// List and reclaim disk space used by tasks
    #[command(subcommand, arg_required_else_help = true)]
    Workspace(workspace::Command),
    /// Run a scripted agent of an evaluation on standard input and output
    #[command(hide = true)]
    EvalAgent(eval::EvalAgentArgs),
    /// Run the demo agent of `tamma try` on standard input and output; it uses no model
    #[command(hide = true)]
    DemoAgent,
    /// Write the command reference as Markdown
    #[command(hide = true)]
    HelpReference,
}

/// Parses the command line. Prints help or a usage error and exits, if there is nothing to run.
pub(crate) fn parse() -> Cli {
    let arguments = with_do_command(std::env::args_os().collect());
    let mut command = help::arrange(Cli::command());
    let matches = command.try_get_matches_from_mut(&arguments);
    let mut matches = matches
        .unwrap_or_else(|error| suggestions::add_suggestion(error, &command, &arguments).exit());
    Cli::from_arg_matches_mut(&mut matches).unwrap_or_else(|error| error.exit())
}

/// Inserts the command `do` before a request, as in `tamma "Fix the typo"`.
fn with_do_command(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let first = arguments.get(1).and_then(|first| first.to_str());
    if first.is_some_and(is_request) {
        arguments.insert(1, OsString::from("do"));
    }
    arguments
}

/// Returns `true` for a text that can only be a request: several words, and not an option.
fn is_request(text: &str) -> bool {
    !text.starts_with('-') && text.split_whitespace().count() > 1
}

/// Runs the parsed command and returns its exit code.
pub(crate) fn run(tamma: &Cli) -> Result<ExitCode> {
    match &tamma.command {
        Command::Init(arguments) => init::run(arguments),
        Command::Try(arguments) => try_out::run(arguments),
        Command::Down(arguments) => down::run(arguments),
        Command::Status(arguments) => status::run(arguments),
        Command::Logs(arguments) => logs::run(arguments),
        Command::Service(command) => service::run(command),
        Command::Do(arguments) => do_task::run(arguments),
        Command::Up(arguments) => up::run(arguments),
        Command::Serve(arguments) => serve::run(arguments),
        Command::Work(arguments) => work::run(arguments),
        Command::Migrate(arguments) => migrate::run(arguments),
        Command::Maintenance(command) => maintenance::run(command),
        Command::Keys(command) => keys::run(command),
        Command::Config(command) => config::run(command),
        Command::Doctor(arguments) => doctor::run(arguments),
        Command::Eval(arguments) => eval::run(arguments),
        Command::EvalAgent(arguments) => eval::run_agent(arguments),
        Command::DemoAgent => try_out::run_agent(),
        Command::Completions(arguments) => completions::run(arguments),
        Command::Task(command) => task::run(command),
        Command::Pipeline(command) => pipeline::run(command),
        Command::Inbox(arguments) => inbox::run(arguments),
        Command::Top(arguments) => top::run(arguments),
        Command::Approve(arguments) => actions::approve(arguments),
        Command::Reject(arguments) => actions::reject(arguments),
        Command::Accept(arguments) => actions::accept(arguments),
        Command::RevisePlan(arguments) => actions::revise_plan(arguments),
        Command::ChangeTask(arguments) => actions::change_task(arguments),
        Command::Pause(one) => actions::pause(one),
        Command::Resume(one) => actions::resume(one),
        Command::Cancel(arguments) => actions::cancel(arguments),
        Command::Retry(arguments) => actions::retry(arguments),
        Command::Reply(arguments) => actions::reply(arguments),
        Command::Answer(arguments) => actions::answer(arguments),
        Command::Council(arguments) => actions::council(arguments),
        Command::Rate(arguments) => actions::rate(arguments),
        Command::Agents(arguments) => agents::run(arguments),
        Command::Permissions(arguments) => permissions::run(arguments),
        Command::Alert(command) => alert::run(command),
        Command::Knowledge(command) => knowledge::run(command),
        Command::Forge(command) => forge::run(command),
        Command::Project(command) => project::run(command),
        Command::Queue(command) => queue::run(command),
        Command::Chat(arguments) => chat::run(arguments),
        Command::Mcp(arguments) => mcp::run(arguments),
        Command::Person(command) => person::run(command),
        Command::Organisation(command) => organisation::run(command),
        Command::Access(command) => access::run(command),
        Command::Audit(command) => audit::run(command),
        Command::SignIn(arguments) => sign_in::run(arguments),
        Command::Login(arguments) => login::run(arguments),
        Command::Logout(arguments) => login::log_out(arguments),
        Command::Session(command) => session::run(command),
        Command::Token(command) => token::run(command),
        Command::Capacity(arguments) => capacity::run(arguments),
        Command::Workspace(command) => workspace::run(command),
        Command::HelpReference => help_reference::run(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(words: &[&str]) -> Vec<OsString> {
        std::iter::once("tamma").chain(words.iter().copied()).map(OsString::from).collect()
    }

    #[test]
    fn several_words_in_one_argument_are_a_request() {
        let with_do = |words: &[&str]| with_do_command(arguments(words));
        assert_eq!(with_do(&["Fix the typo"]), arguments(&["do", "Fix the typo"]));
        let with_option = ["Fix it\nin README.md", "--json"];
        assert_eq!(with_do(&with_option), arguments(&["do", with_option[0], "--json"]));
        for others in [&["task", "add", "Fix the typo"][..], &["inbox"], &["--help me"], &[""], &[]]
        {
            assert_eq!(with_do(others), arguments(others), "{others:?}");
        }
    }
}
