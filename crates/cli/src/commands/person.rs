//! `tamma person`: who has a token of their own. For whoever runs the server.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use tamma_server::shape::{NewPerson, Person, Persons, Revocation, Welcome};

use super::task::list::{drawn, table};
use crate::client::{self, Asker, Client, Target};
use crate::look;
use crate::output::{self, plain};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Gives somebody a token, and shows it this once.
    ///
    /// Whoever shows it (`TAMMA_TOKEN`, or at the door of the pages) is that person, whatever else they
    /// say. What they may do is in `people` of `tamma.yaml`.
    Add(One),
    /// Lists everybody who has a token or had one.
    List(List),
    /// Takes somebody's token away, at once and in open browsers too.
    Revoke(One),
}

#[derive(Debug, Args)]
pub(crate) struct One {
    /// Their name, as `people` in `tamma.yaml` has it.
    #[arg(value_name = "NAME")]
    person: String,
    #[command(flatten)]
    asker: Asker,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    target: Target,
}

pub(super) fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Add(arguments) => add(arguments),
        Command::List(arguments) => list(arguments),
        Command::Revoke(arguments) => revoke(arguments),
    }
}

fn add(arguments: &One) -> Result<ExitCode> {
    client::run(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let (by, new) = (arguments.asker.name()?, NewPerson { name: arguments.person.clone() });
        let welcome: Welcome = client.post("/people", &by, client::new_id(), &new).await?;
        if arguments.target.json {
            output::json(&welcome)?;
        } else {
            let name = plain(&welcome.name);
            writeln!(
                anstream::stdout().lock(),
                "{}\n\nThis is {name}'s token, and it is shown this once. Give it to {name} and to \
                 nobody else:\nTAMMA_TOKEN=… for the command line and `tamma mcp`, and at the door of \
                 the pages.",
                welcome.token
            )?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn list(arguments: &List) -> Result<ExitCode> {
    client::run(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let persons: Persons = client.get("/people", &[]).await?;
        if arguments.target.json {
            output::json(&persons)?;
        } else {
            writeln!(anstream::stdout().lock(), "{}", listed(&persons.people))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn listed(people: &[Person]) -> String {
    if people.is_empty() {
        return "Nobody has a token of their own. `tamma person add <name>` gives somebody one."
            .to_owned();
    }
    let now = look::now();
    let mut table = table(&["NAME", "SINCE", "GIVEN BY", "STANDS"]);
    for person in people {
        let stands = match (&person.revoked_at, &person.revoked_by) {
            (Some(at), Some(by)) => format!("revoked {} by {}", look::ago(*at, now), plain(by)),
            _ => "good".to_owned(),
        };
        table.add_row([
            plain(&person.name),
            look::ago(person.added_at, now),
            plain(&person.added_by),
            stands,
        ]);
    }
    drawn(&table)
}

fn revoke(arguments: &One) -> Result<ExitCode> {
    client::run(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let (by, whose) = (arguments.asker.name()?, Revocation { name: arguments.person.clone() });
        let persons: Persons =
            client.post("/people/revocations", &by, client::new_id(), &whose).await?;
        if arguments.target.json {
            output::json(&persons)?;
        } else {
            let name = plain(&arguments.person);
            writeln!(anstream::stdout().lock(), "{name}'s token is good for nothing any more.")?;
        }
        Ok(ExitCode::SUCCESS)
    })
}
