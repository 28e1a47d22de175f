//! `tamma access`: roles of people in projects. For operators and administrators of the organisation.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use tamma_server::dto::{AccessCheck, AccessGrant, AccessImport, AccessList, ProjectAccess};

use super::task::add::current_project;
use super::task::list::{new_table, render_table};
use crate::client::{self, Client, ClientArgs, IdentityArgs};
use crate::output::{self, sanitize};
use crate::style::{self, humanize, push_fmt};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Grant a person a role in a project
    ///
    /// Viewers can read, members can also add and control tasks, and approvers can also make
    /// decisions. Replaces the person's current role. The person also needs a token
    /// (`tamma person add`).
    Grant(GrantArgs),
    /// Revoke a person's role in a project
    Revoke(RevokeArgs),
    /// List roles and their changes
    List(ListAccessArgs),
    /// Import the roles under `people` in a project's tamma.yaml
    ///
    /// People who are not in the file keep their roles. The file has no effect until you import it.
    Import(ImportAccessArgs),
    /// Show what a person can do with a task, and why
    ///
    /// Asks the same code that decides about requests. Nothing changes. Exits with 1 if the person cannot
    /// do it.
    Check(CheckArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Name of the person
    #[arg(value_name = "NAME")]
    person: String,
    /// Action, such as approve, reply, pause or read
    action: String,
    /// Task ID, or at least four characters from its start or end
    task: String,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

#[derive(Debug, Args)]
pub(crate) struct GrantArgs {
    /// Name of the person, as in `tamma person list`
    #[arg(value_name = "NAME", required_unless_present = "everybody")]
    person: Option<String>,
    /// Role in the project
    #[arg(long, value_parser = ["viewer", "member", "approver"])]
    role: String,
    #[command(flatten)]
    of: AccessArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RevokeArgs {
    /// Name of the person
    #[arg(value_name = "NAME", required_unless_present = "everybody")]
    person: Option<String>,
    #[command(flatten)]
    of: AccessArgs,
}

#[derive(Debug, Args)]
struct AccessArgs {
    /// Apply to everyone in the organisation who has no role of their own
    #[arg(long, conflicts_with = "person")]
    everybody: bool,
    #[arg(long, help = "Project name or ID [default: the project of this repository]")]
    project: Option<String>,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ListAccessArgs {
    /// Project name or ID
    #[arg(long)]
    project: Option<String>,
    #[command(flatten)]
    target: ClientArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ImportAccessArgs {
    #[arg(long, help = "Project name or ID [default: the project of this repository]")]
    project: Option<String>,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

pub(super) fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Grant(GrantArgs { person, role, of }) => change(person.as_ref(), Some(role), of),
        Command::Revoke(RevokeArgs { person, of }) => change(person.as_ref(), None, of),
        Command::List(arguments) => list(arguments),
        Command::Import(arguments) => import(arguments),
        Command::Check(arguments) => check(arguments),
    }
}

fn check(arguments: &CheckArgs) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let by = arguments.identity.resolve_name()?;
        let task = client.resolve_task(&arguments.task).await?.to_string();
        let query = [
            ("person", arguments.person.as_str()),
            ("action", arguments.action.as_str()),
            ("task", task.as_str()),
        ];
        let check: AccessCheck = client.get_as("/access/check", &by, &query).await?;
        if arguments.target.json {
            output::print_json(&check)?;
        } else {
            writeln!(anstream::stdout().lock(), "{}", format_check(&check))?;
        }
        Ok(if check.allowed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

fn format_check(check: &AccessCheck) -> String {
    let (person, action) = (sanitize(&check.person), sanitize(&check.action));
    let verb = if check.allowed { "can" } else { "cannot" };
    let mut text = format!("{person} {verb} {action} in {}.", sanitize(&check.project));
    for reason in &check.reasons {
        push_fmt(&mut text, format_args!("\n  {}", sanitize(reason)));
    }
    text
}

fn change(person: Option<&String>, role: Option<&String>, of: &AccessArgs) -> Result<ExitCode> {
    client::block_on(&of.target, async {
        let client = Client::new(&of.target)?;
        let by = of.identity.resolve_name()?;
        let project = project_or_current(&client, of.project.as_ref()).await?;
        let person = person.filter(|_| !of.everybody).cloned();
        let grant = AccessGrant { project, person, role: role.cloned() };
        let access: AccessList = client.post("/access", &by, client::new_id(), &grant).await?;
        let code = print_access(&access, of.target.json)?;
        if let (Some(person), None, false) = (&grant.person, &grant.role, of.target.json)
            && let Some(note) = remaining_role(&access, person)
        {
            writeln!(anstream::stdout().lock(), "\n{note}")?;
        }
        Ok(code)
    })
}

fn list(arguments: &ListAccessArgs) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let project = arguments.project.iter().map(|project| ("project", project.as_str()));
        let access: AccessList = client.get("/access", &project.collect::<Vec<_>>()).await?;
        print_access(&access, arguments.target.json)
    })
}

fn import(arguments: &ImportAccessArgs) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let by = arguments.identity.resolve_name()?;
        let project = project_or_current(&client, arguments.project.as_ref()).await?;
        let import = AccessImport { project };
        let access: AccessList =
            client.post("/access/import", &by, client::new_id(), &import).await?;
        print_access(&access, arguments.target.json)
    })
}

async fn project_or_current(client: &Client, project: Option<&String>) -> Result<Option<String>> {
    match project {
        Some(project) => Ok(Some(project.clone())),
        None => current_project(client).await,
    }
}

fn print_access(access: &AccessList, json: bool) -> Result<ExitCode> {
    if json {
        output::print_json(access)?;
    } else {
        writeln!(anstream::stdout().lock(), "{}", format_access(access))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns a note if somebody whose own role was taken away still has that of everybody.
fn remaining_role(access: &AccessList, person: &str) -> Option<String> {
    let role = access.projects.iter().find_map(|project| project.everybody.as_deref())?;
    let article = if role == "approver" { "an" } else { "a" };
    let person = sanitize(person);
    Some(format!(
        "{person} is still {article} {role} through the role for everybody, if they are in the \
         organisation. To revoke that one, run `tamma access revoke --everybody`; to end all \
         access, `tamma person deactivate {person}`."
    ))
}

fn format_access(access: &AccessList) -> String {
    let mut roles = new_table(&["PROJECT", "PERSON", "ROLE"]);
    for project in &access.projects {
        let named = project.named.iter().map(|(name, role)| (name.as_str(), role));
        let everybody = project.everybody.iter().map(|role| ("everybody else", role));
        for (person, role) in named.chain(everybody) {
            roles.add_row([sanitize(&project.project), sanitize(person), role.clone()]);
        }
    }
    let has_roles = |it: &ProjectAccess| it.everybody.is_some() || !it.named.is_empty();
    let mut text = if access.projects.iter().any(has_roles) {
        format!(
            "{}\n\nRoles of organisations (`tamma organisation list`) and of groups count too.",
            render_table(&roles)
        )
    } else {
        "No roles in projects. Operators have access, and people to whom the organisation (`tamma \
         organisation list`) or a group gives a role. To grant one, run `tamma access grant <name> \
         --role viewer`."
            .to_owned()
    };
    if access.changes.is_empty() {
        return text;
    }
    let now = style::now();
    let mut changes = new_table(&["CHANGED", "BY", "PROJECT", "PERSON", "ROLE", "HOW"]);
    for change in &access.changes {
        changes.add_row([
            style::format_ago(change.at, now),
            sanitize(&change.by),
            sanitize(&change.project),
            change.person.as_deref().map_or_else(|| "everybody".to_owned(), sanitize),
            change.role.clone().unwrap_or_else(|| "none".to_owned()),
            format!("{}, {}", humanize(&change.source), humanize(&change.auth_method)),
        ]);
    }
    push_fmt(&mut text, format_args!("\n\n{}", render_table(&changes)));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revocation_names_the_role_of_everybody_that_remains() {
        let access = |everybody: Option<&str>| AccessList {
            projects: vec![ProjectAccess {
                project: "shop".to_owned(),
                everybody: everybody.map(str::to_owned),
                named: std::collections::BTreeMap::new(),
            }],
            changes: Vec::new(),
        };
        let note = remaining_role(&access(Some("viewer")), "Ada").expect("note");
        let start = "Ada is still a viewer through the role for everybody, if they are in the";
        assert!(note.starts_with(start), "{note}");
        assert_eq!(remaining_role(&access(None), "Ada"), None);
        let text = format_access(&access(None));
        assert!(text.contains("the organisation (`tamma organisation list`)"), "{text}");
    }
}
