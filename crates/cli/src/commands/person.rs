//! `tamma person`: manages people, their first tokens, and service accounts. Operators only.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use serde::Serialize;
use tamma_server::dto::{
    AccountName, AccountView, IdentityLink, IssuedToken, NewPerson, PersonList, PersonRecord,
    TokenRevocation,
};

use super::task::list::{new_table, render_table};
use crate::client::{self, Client, ClientArgs, IdentityArgs};
use crate::output::{self, sanitize};
use crate::style::{self, push_fmt};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create an access token for a person
    ///
    /// Prints the token once. It identifies the person on the command line (`TAMMA_TOKEN`) and when they
    /// sign in to the web UI. It gives no access by itself: grant a role with `tamma access grant`.
    ///
    /// With --service, creates a service account: a program with tokens that cannot sign in.
    Add(AddPersonArgs),
    /// List people and their tokens, including revoked ones
    List(ListPeopleArgs),
    /// Revoke all tokens of a person and end their sessions
    Revoke(PersonArgs),
    /// Deactivate an account: its tokens, sessions and streams end at once
    Deactivate(PersonArgs),
    /// Activate an account again
    Activate(PersonArgs),
    /// Link an account at an identity provider to a person
    ///
    /// The person keeps their name, roles and history, and needs no group to sign in.
    Link(LinkArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AddPersonArgs {
    /// Create a service account
    #[arg(long)]
    service: bool,
    #[command(flatten)]
    of: PersonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LinkArgs {
    /// Name of the identity provider in operator.yaml
    #[arg(long, value_name = "NAME")]
    provider: String,
    /// Subject at the provider, as the refused sign-in shows it
    #[arg(long)]
    subject: String,
    #[command(flatten)]
    of: PersonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PersonArgs {
    /// Name of the person, as used in `tamma access grant`
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
        Command::Deactivate(of) => {
            let account = AccountName { name: of.person.clone() };
            change(of, "/people/deactivations", &account, "Deactivated")
        }
        Command::Activate(of) => {
            let account = AccountName { name: of.person.clone() };
            change(of, "/people/activations", &account, "Activated")
        }
        Command::Link(LinkArgs { provider, subject, of }) => {
            let (name, provider) = (of.person.clone(), provider.clone());
            let link = IdentityLink { name, provider, subject: subject.clone() };
            change(of, "/people/identities", &link, "Linked")
        }
    }
}

/// Changes an account and reports it.
fn change(of: &PersonArgs, path: &str, body: &impl Serialize, done: &str) -> Result<ExitCode> {
    client::block_on(&of.target, async {
        let client = Client::new(&of.target)?;
        let by = of.identity.resolve_name()?;
        let persons: PersonList = client.post(path, &by, client::new_id(), body).await?;
        if of.target.json {
            output::print_json(&persons)?;
        } else {
            let name = sanitize(&of.person);
            writeln!(anstream::stdout().lock(), "{done} {name}.")?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn add(AddPersonArgs { service, of: arguments }: &AddPersonArgs) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let by = arguments.identity.resolve_name()?;
        let person = NewPerson { name: arguments.person.clone(), service: *service };
        let issued: IssuedToken = client.post("/people", &by, client::new_id(), &person).await?;
        if arguments.target.json {
            output::print_json(&issued)?;
        } else {
            let text = format_token(&issued, *service);
            writeln!(anstream::stdout().lock(), "{text}")?;
            writeln!(anstream::stdout().lock(), "{}", format_roles(&issued.roles, &issued.name))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Returns a new token, and what it is for.
fn format_token(issued: &IssuedToken, is_service: bool) -> String {
    let name = sanitize(&issued.name);
    let usage = if is_service {
        "give it to that program only.\nUse it as TAMMA_TOKEN. A service account cannot sign in to \
         the web UI or manage tokens."
            .to_owned()
    } else {
        format!(
            "give it to {name} and nobody else.\nUse it as TAMMA_TOKEN for the command line and \
             `tamma mcp`, or to sign in to the web UI."
        )
    };
    format!("{}\n\nAccess token of {name}. It is shown only once; {usage}", issued.token)
}

/// Returns the roles that a name already has, so that nobody gets more than was meant.
fn format_roles(roles: &BTreeMap<String, String>, name: &str) -> String {
    let roles = roles.iter().map(|(project, role)| format!("{role} in {}", sanitize(project)));
    let roles: Vec<String> = roles.collect();
    let name = sanitize(name);
    if roles.is_empty() {
        return format!(
            "{name} has no role yet. To grant one, run `tamma access grant <name> --role viewer`."
        );
    }
    format!("{name} is {}.", roles.join(", "))
}

fn list(arguments: &ListPeopleArgs) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let persons: PersonList = client.get("/people", &[]).await?;
        if arguments.target.json {
            output::print_json(&persons)?;
        } else {
            let mut text = format_people(&persons.people, &persons.accounts);
            if !persons.accounts.is_empty() {
                push_fmt(&mut text, format_args!("\n\n{}", format_accounts(&persons.accounts)));
            }
            writeln!(anstream::stdout().lock(), "{text}")?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn format_people(people: &[PersonRecord], accounts: &[AccountView]) -> String {
    if people.is_empty() {
        return "No access tokens yet. Create one with `tamma person add <name>`.".to_owned();
    }
    let now = style::now();
    let is_deactivated = |name: &str| {
        let wanted = name.to_lowercase();
        let mut named = accounts.iter().filter(|account| account.name.to_lowercase() == wanted);
        named.any(|account| account.deactivated_at.is_some())
    };
    let mut table = new_table(&["NAME", "CREATED", "CREATED BY", "STATUS"]);
    for person in people {
        let status = match (&person.revoked_at, &person.revoked_by) {
            (Some(at), Some(by)) => {
                format!("revoked {} by {}", style::format_ago(*at, now), sanitize(by))
            }
            _ if is_deactivated(&person.name) => "account deactivated".to_owned(),
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

fn format_accounts(accounts: &[AccountView]) -> String {
    let now = style::now();
    let mut table = new_table(&["ACCOUNT", "KIND", "CREATED", "SIGNS IN WITH", "STATUS"]);
    for account in accounts {
        let status = match (&account.deactivated_at, &account.deactivated_by) {
            (Some(at), Some(by)) => {
                format!("deactivated {} by {}", style::format_ago(*at, now), sanitize(by))
            }
            _ => "active".to_owned(),
        };
        let issuers: Vec<_> = account.identities.iter().map(|it| sanitize(&it.issuer)).collect();
        table.add_row([
            sanitize(&account.name),
            account.kind.clone(),
            style::format_ago(account.created_at, now),
            issuers.join(", "),
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
            let text = format_revoked(&persons.accounts, &arguments.person);
            writeln!(anstream::stdout().lock(), "{text}")?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Returns what was revoked, and how to keep somebody out who can sign in again.
fn format_revoked(accounts: &[AccountView], name: &str) -> String {
    let wanted = name.trim().to_lowercase();
    let mut named = accounts.iter().filter(|account| account.name.to_lowercase() == wanted);
    let signs_in = named.any(|it| !it.identities.is_empty() && it.deactivated_at.is_none());
    let name = sanitize(name);
    let mut text = format!("Revoked all tokens and sessions of {name}.");
    if signs_in {
        push_fmt(
            &mut text,
            format_args!(
                " {name} can sign in again with an identity provider. To prevent that, run `tamma \
                 person deactivate <name>`."
            ),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use tamma_server::dto::IdentityView;

    use super::*;

    #[test]
    fn a_revocation_says_if_the_person_can_sign_in_again() {
        let account = |identities: Vec<IdentityView>| AccountView {
            name: "Ada".to_owned(),
            kind: "person".to_owned(),
            created_by: "Ada".to_owned(),
            created_at: style::now(),
            deactivated_by: None,
            deactivated_at: None,
            identities,
        };
        let text = "Revoked all tokens and sessions of ada.";
        assert_eq!(format_revoked(&[account(Vec::new())], "ada"), text);
        let (issuer, subject) = ("https://id.example".to_owned(), "7".to_owned());
        let text = format_revoked(&[account(vec![IdentityView { issuer, subject }])], "ada");
        assert!(text.contains("`tamma person deactivate <name>`"), "{text}");
    }

    #[test]
    fn a_token_of_a_deactivated_account_is_not_active() {
        let now = style::now();
        let person = PersonRecord {
            name: "ada".to_owned(),
            added_by: "Grace".to_owned(),
            added_at: now,
            last_used_at: None,
            revoked_by: None,
            revoked_at: None,
        };
        let account = AccountView {
            name: "Ada".to_owned(),
            kind: "person".to_owned(),
            created_by: "Grace".to_owned(),
            created_at: now,
            deactivated_by: Some("Grace".to_owned()),
            deactivated_at: Some(now),
            identities: Vec::new(),
        };
        let people = [person];
        assert!(format_people(&people, &[]).contains("active"));
        let text = format_people(&people, &[account]);
        assert!(text.contains("deactivated") && !text.contains(" active"), "{text}");
    }

    #[test]
    fn a_service_account_is_not_told_to_sign_in() {
        let issued = IssuedToken {
            name: "nightly".to_owned(),
            token: "tamma_secret".to_owned(),
            roles: BTreeMap::new(),
        };
        assert!(format_token(&issued, false).contains("or to sign in to the web UI."));
        let text = format_token(&issued, true);
        assert!(text.starts_with("tamma_secret\n\nAccess token of nightly."), "{text}");
        assert!(text.contains("cannot sign in to the web UI"), "{text}");
    }

    #[test]
    fn a_new_token_comes_with_the_roles_that_its_name_already_has() {
        let role = |project: &str, role: &str| (project.to_owned(), role.to_owned());
        let roles = BTreeMap::from([role("shop", "approver"), role("site", "viewer")]);
        let text = "Ada is approver in shop, viewer in site.";
        assert_eq!(format_roles(&roles, "Ada"), text);
        assert!(format_roles(&BTreeMap::new(), "Ada").starts_with("Ada has no role yet."));
    }
}
