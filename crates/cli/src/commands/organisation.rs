//! `tamma organisation`: organisations, their projects and the roles of people in them.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use tamma_flow::NAMESPACE;
use tamma_server::dto::{
    NewOrganisation, OrganisationGrant, OrganisationList, OrganisationView, ProjectTransfer,
};

use super::task::list::{new_table, render_table};
use crate::client::{self, Client, ClientArgs, IdentityArgs};
use crate::output::{self, sanitize};
use crate::style::push_fmt;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Add an organisation (operators only)
    ///
    /// It has no projects and no people yet. Give it projects with `tamma organisation transfer`, and an
    /// administrator with `tamma organisation grant`. Its workflows get a Temporal namespace of their own.
    Add(AddOrganisationArgs),
    /// List the organisations that you administer
    ///
    /// For operators, all.
    List(ListOrganisationsArgs),
    /// Grant a person a role in an organisation
    ///
    /// The role applies to all projects of the organisation. Administrators can also grant and revoke
    /// roles in the organisation. Replaces the person's current role.
    Grant(GrantOrganisationArgs),
    /// Revoke a person's role in an organisation
    ///
    /// Roles in single projects stay (`tamma access revoke`).
    Revoke(RevokeOrganisationArgs),
    /// Give a project to an organisation (operators only)
    ///
    /// Roles in the project stay. Roles in the organisation that it leaves no longer apply to it. Open tasks
    /// finish in the Temporal namespace in which they started.
    Transfer(TransferArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AddOrganisationArgs {
    /// Unique name: 1 to 40 of a-z, 0-9 and `-`
    #[arg(value_name = "ORGANISATION")]
    organisation: String,
    /// Temporal namespace of its workflows; can exist [default: a new one, `tamma-` and the name]
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ListOrganisationsArgs {
    #[command(flatten)]
    target: ClientArgs,
}

#[derive(Debug, Args)]
pub(crate) struct GrantOrganisationArgs {
    /// Name or ID of the organisation
    organisation: String,
    /// Name of the person, as in `tamma person list`
    #[arg(value_name = "NAME")]
    person: String,
    /// Role in the organisation
    #[arg(long, value_parser = ["viewer", "member", "approver", "administrator"])]
    role: String,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RevokeOrganisationArgs {
    /// Name or ID of the organisation
    organisation: String,
    /// Name of the person
    #[arg(value_name = "NAME")]
    person: String,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TransferArgs {
    /// Project name or ID
    project: String,
    /// Name or ID of the new organisation
    organisation: String,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

pub(super) fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Add(arguments) => {
            let AddOrganisationArgs { organisation, namespace, .. } = arguments;
            let new = NewOrganisation { name: organisation.clone(), namespace: namespace.clone() };
            change("/organisations", &new, &arguments.identity, &arguments.target)
        }
        Command::List(arguments) => list(arguments),
        Command::Grant(arguments) => {
            let grant = OrganisationGrant {
                organisation: arguments.organisation.clone(),
                person: arguments.person.clone(),
                role: Some(arguments.role.clone()),
            };
            change("/organisations/access", &grant, &arguments.identity, &arguments.target)
        }
        Command::Revoke(arguments) => {
            let grant = OrganisationGrant {
                organisation: arguments.organisation.clone(),
                person: arguments.person.clone(),
                role: None,
            };
            change("/organisations/access", &grant, &arguments.identity, &arguments.target)
        }
        Command::Transfer(arguments) => {
            let transfer = ProjectTransfer {
                project: arguments.project.clone(),
                organisation: arguments.organisation.clone(),
            };
            change("/organisations/projects", &transfer, &arguments.identity, &arguments.target)
        }
    }
}

/// Sends a change and prints the organisation as it is afterwards.
fn change(
    path: &str,
    body: &impl serde::Serialize,
    identity: &IdentityArgs,
    target: &ClientArgs,
) -> Result<ExitCode> {
    client::block_on(target, async {
        let client = Client::new(target)?;
        let by = identity.resolve_name()?;
        let view: OrganisationView = client.post(path, &by, client::new_id(), body).await?;
        if target.json {
            output::print_json(&view)?;
        } else {
            writeln!(anstream::stdout().lock(), "{}", format_organisations(&[view]))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn list(arguments: &ListOrganisationsArgs) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let list: OrganisationList = client.get("/organisations", &[]).await?;
        if arguments.target.json {
            output::print_json(&list)?;
        } else {
            let text = format_organisations(&list.organisations);
            writeln!(anstream::stdout().lock(), "{text}")?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn format_organisations(organisations: &[OrganisationView]) -> String {
    let mut table = new_table(&["ORGANISATION", "NAMESPACE", "PROJECTS"]);
    let mut roles = new_table(&["ORGANISATION", "PERSON", "ROLE"]);
    for organisation in organisations {
        let name = sanitize(&organisation.name);
        let projects: Vec<_> = organisation.projects.iter().map(|it| sanitize(it)).collect();
        let projects = if projects.is_empty() { "none".to_owned() } else { projects.join(", ") };
        let namespace = sanitize(organisation.namespace.as_deref().unwrap_or(NAMESPACE));
        table.add_row([name.clone(), namespace, projects]);
        for (person, role) in &organisation.roles {
            roles.add_row([name.clone(), sanitize(person), role.clone()]);
        }
    }
    let mut text = render_table(&table);
    if organisations.iter().any(|it| !it.roles.is_empty()) {
        push_fmt(&mut text, format_args!("\n\n{}", render_table(&roles)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn organisations_are_listed_with_their_projects_and_roles() {
        let view = |name: &str, projects: &[&str], roles: &[(&str, &str)]| OrganisationView {
            id: uuid::Uuid::from_u128(1),
            name: name.to_owned(),
            namespace: (name == "acme").then(|| "tamma-acme".to_owned()),
            projects: projects.iter().map(|it| (*it).to_owned()).collect(),
            roles: roles.iter().map(|(name, role)| ((*name).into(), (*role).into())).collect(),
            created_by: None,
            created_at: chrono::DateTime::UNIX_EPOCH,
        };
        let views =
            [view("acme", &[], &[("Ada", "administrator")]), view("default", &["shop"], &[])];
        let text = format_organisations(&views);
        assert!(text.contains("tamma-acme") && text.contains("none"), "{text}");
        assert!(text.contains("Ada") && text.contains("administrator"), "{text}");
        assert!(!format_organisations(&views[1..]).contains("PERSON"));
    }
}
