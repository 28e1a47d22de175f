//! `tamma session`: sessions in browsers and on the command line.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use tamma_server::dto::{SessionId, SessionList, SessionView};

use super::task::list::{new_table, render_table};
use crate::client::{self, Client, ClientArgs, IdentityArgs};
use crate::output::{self, sanitize};
use crate::style::{self, humanize};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List open sessions
    ///
    /// Your own; for operators, everybody's.
    List(ListSessionsArgs),
    /// Revoke a session
    Revoke(RevokeSessionArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListSessionsArgs {
    /// Sessions of this person only (operators)
    #[arg(long, value_name = "NAME")]
    of: Option<String>,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RevokeSessionArgs {
    /// ID of the session, as in `tamma session list`
    id: String,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

pub(super) fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::List(arguments) => list(arguments),
        Command::Revoke(arguments) => revoke(arguments),
    }
}

fn list(arguments: &ListSessionsArgs) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let by = arguments.identity.resolve_name()?;
        let query: Vec<(&str, &str)> =
            arguments.of.iter().map(|person| ("person", person.as_str())).collect();
        let sessions: SessionList = client.get_as("/sessions", &by, &query).await?;
        print_sessions(&sessions, arguments.target.json)
    })
}

fn revoke(arguments: &RevokeSessionArgs) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let by = arguments.identity.resolve_name()?;
        let session = SessionId { id: arguments.id.clone() };
        let sessions: SessionList =
            client.post("/sessions/revocations", &by, client::new_id(), &session).await?;
        print_sessions(&sessions, arguments.target.json)
    })
}

fn print_sessions(sessions: &SessionList, json: bool) -> Result<ExitCode> {
    if json {
        output::print_json(sessions)?;
    } else {
        writeln!(anstream::stdout().lock(), "{}", format_sessions(&sessions.sessions))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn format_sessions(sessions: &[SessionView]) -> String {
    if sessions.is_empty() {
        return "No open sessions.".to_owned();
    }
    let now = style::now();
    let mut table =
        new_table(&["ID", "PERSON", "KIND", "SIGNED IN", "WITH", "LAST USED", "CLIENT"]);
    for session in sessions {
        table.add_row([
            session.id.clone(),
            sanitize(&session.person),
            session.kind.clone(),
            style::format_ago(session.created_at, now),
            humanize(&session.auth_method),
            session
                .last_used_at
                .map_or_else(|| "never".to_owned(), |at| style::format_ago(at, now)),
            session.client.as_deref().map(sanitize).unwrap_or_default(),
        ]);
    }
    render_table(&table)
}
