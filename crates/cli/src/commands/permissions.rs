//! `tamma permissions`: effective permissions of people and agents.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Result, bail};
use tamma_server::dto::{EffectivePermissions, RolePermissions};

use super::task::add::current_project;
use super::task::list::{new_table, render_table};
use crate::client::{self, Client, ClientArgs, IdentityArgs};
use crate::output::{self, sanitize};
use crate::style::push_fmt;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this role of agents: planner, implementer, validator or council
    #[arg(long)]
    role: Option<String>,
    #[arg(long, help = "Project name or ID [default: the project of this repository]")]
    project: Option<String>,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

pub(super) fn run(arguments: &Args) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let project = match &arguments.project {
            Some(project) => Some(project.clone()),
            None => current_project(&client).await?,
        };
        let query: Vec<_> = project.iter().map(|project| ("project", project.as_str())).collect();
        let by = arguments.identity.resolve_name()?;
        let mut permissions: EffectivePermissions =
            client.get_as("/permissions", &by, &query).await?;
        if let Some(role) = &arguments.role {
            let roles: Vec<_> = permissions.agents.iter().map(|it| it.role.clone()).collect();
            permissions.agents.retain(|it| it.role == *role);
            if permissions.agents.is_empty() {
                bail!("unknown role `{}`; use one of: {}", sanitize(role), roles.join(", "));
            }
        }
        if arguments.target.json {
            output::print_json(&permissions)?;
        } else {
            writeln!(anstream::stdout().lock(), "{}", format_permissions(&permissions))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn format_permissions(permissions: &EffectivePermissions) -> String {
    let people = &permissions.people;
    let mut text = format!("Project {}", sanitize(&permissions.project));
    if let Some(you) = &people.you {
        push_fmt(&mut text, format_args!("\n\nYou are: {you}"));
    }
    push_fmt(&mut text, format_args!("\nEveryone else: {}", people.everybody));
    for (name, role) in &people.named {
        push_fmt(&mut text, format_args!("\n{}: {role}", sanitize(name)));
    }
    for (role, rights) in &people.roles {
        push_fmt(&mut text, format_args!("\n  role {role}: {}", rights.join(", ")));
    }
    for role in &permissions.agents {
        push_fmt(&mut text, format_args!("\n\n{}", format_role(role)));
    }
    text + "\n\nRequests that match no rule are denied. Deny overrides ask, and ask overrides allow."
}

fn format_role(role: &RolePermissions) -> String {
    let mut table = new_table(&["EFFECT", "ACCESS", "RULE", "SOURCE", "REASON"]);
    for it in &role.permissions {
        table.add_row([
            it.effect.clone(),
            it.access.clone(),
            it.rule.as_deref().map_or_else(|| "-".to_owned(), sanitize),
            if it.default { "default" } else { "tamma.yaml" }.to_owned(),
            sanitize(&it.reason),
        ]);
    }
    format!("Agents with the role {}:\n{}", role.role, render_table(&table))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_name_their_source_and_reason() {
        let permissions: EffectivePermissions = serde_json::from_value(serde_json::json!({
            "project": "shop",
            "people": {
                "everybody": "member", "named": { "Ada": "approver" }, "you": "member",
                "roles": { "viewer": ["read"], "member": ["read", "work"] },
            },
            "agents": [{ "role": "planner", "permissions": [
                {
                    "effect": "deny", "access": "write", "rule": "write: db/**",
                    "reason": "rule `deny: write: db/**`", "default": false,
                },
                {
                    "effect": "allow", "access": "read",
                    "reason": "every role can read files in the worktree", "default": true,
                },
            ]}],
        }))
        .expect("permissions");
        let text = anstream::adapter::strip_str(&format_permissions(&permissions)).to_string();
        insta::assert_snapshot!(text, @r"
        Project shop

        You are: member
        Everyone else: member
        Ada: approver
          role member: read, work
          role viewer: read

        Agents with the role planner:
        EFFECT  ACCESS  RULE          SOURCE      REASON
        deny    write   write: db/**  tamma.yaml  rule `deny: write: db/**`
        allow   read    -             default     every role can read files in the worktree

        Requests that match no rule are denied. Deny overrides ask, and ask overrides allow.
        ");
    }
}
