//! `tamma person`: manages access tokens. Operators only.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use tamma_server::dto::{IssuedToken, NewPerson, PersonList, PersonRecord, TokenRevocation};

use super::task::list::{new_table, render_table};
use crate::client::{self, Client, ClientArgs, IdentityArgs};
use crate::output::{self, sanitize};
use crate::style;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create an access token for a person
    ///
    /// Prints the token once. It identifies the person on the command line (`TAMMA_TOKEN`) and when they
    /// sign in to the web UI. Their role is set under `people` in `tamma.yaml`.
    Add(PersonArgs),
    /// List people and their tokens, including revoked ones
    List(ListPeopleArgs),
    /// Revoke a person's token and end their sessions
    Revoke(PersonArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PersonArgs {
    /// Name of the person, as under `people` in `tamma.yaml`
    #[arg(value_name = "NAME")]
    person: String,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ListPeopleArgs {
    #[command(flatten)]
    target: ClientArgs,
}

pub(super) fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Add(arguments) => add(arguments),
        Command::List(arguments) => list(arguments),
        Command::Revoke(arguments) => revoke(arguments),
    }
}

fn add(arguments: &PersonArgs) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let (by, person) =
            (arguments.identity.resolve_name()?, NewPerson { name: arguments.person.clone() });
        let issued: IssuedToken = client.post("/people", &by, client::new_id(), &person).await?;
        if arguments.target.json {
            output::print_json(&issued)?;
        } else {
            let name = sanitize(&issued.name);
            writeln!(
                anstream::stdout().lock(),
                "{}\n\nAccess token of {name}. It is shown only once; give it to {name} and nobody \
                 else.\nUse it as TAMMA_TOKEN for the command line and `tamma mcp`, or to sign in to \
                 the web UI.",
                issued.token
            )?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn list(arguments: &ListPeopleArgs) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let persons: PersonList = client.get("/people", &[]).await?;
        if arguments.target.json {
            output::print_json(&persons)?;
        } else {
            writeln!(anstream::stdout().lock(), "{}", format_people(&persons.people))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn format_people(people: &[PersonRecord]) -> String {
    if people.is_empty() {
        return "No access tokens yet. Create one with `tamma person add <name>`.".to_owned();
    }
    let now = style::now();
    let mut table = new_table(&["NAME", "CREATED", "CREATED BY", "STATUS"]);
    for person in people {
        let status = match (&person.revoked_at, &person.revoked_by) {
            (Some(at), Some(by)) => {
                format!("revoked {} by {}", style::format_ago(*at, now), sanitize(by))
            }
            _ => "active".to_owned(),
        };
        table.add_row([
            sanitize(&person.name),
            style::format_ago(person.added_at, now),
            sanitize(&person.added_by),
            status,
        ]);
    }
    render_table(&table)
}

fn revoke(arguments: &PersonArgs) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let (by, revocation) = (
            arguments.identity.resolve_name()?,
            TokenRevocation { name: arguments.person.clone() },
        );
        let persons: PersonList =
            client.post("/people/revocations", &by, client::new_id(), &revocation).await?;
        if arguments.target.json {
            output::print_json(&persons)?;
        } else {
            let name = sanitize(&arguments.person);
            writeln!(anstream::stdout().lock(), "Revoked the token of {name}.")?;
        }
        Ok(ExitCode::SUCCESS)
    })
}
