//! `tamma token`: access tokens with a label, a limit and an end.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use chrono::TimeDelta;
use clap::{Args, Subcommand};
use tamma_server::dto::{CreatedToken, NewToken, TokenId, TokenList, TokenView};
use uuid::Uuid;

use super::task::list::{new_table, render_table};
use crate::client::{self, Client, ClientArgs, IdentityArgs};
use crate::output::{self, sanitize};
use crate::style;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create an access token
    ///
    /// Prints the token once. It never gives more than its owner has. With --role and --project, it
    /// gives less.
    Create(CreateTokenArgs),
    /// List access tokens
    ///
    /// Your own; for operators, everybody's.
    List(ListTokensArgs),
    /// Revoke an access token
    Revoke(RevokeTokenArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CreateTokenArgs {
    /// Program or machine that uses the token
    #[arg(long)]
    label: String,
    /// Highest role that the token can use
    #[arg(long, value_parser = ["viewer", "member", "approver"])]
    role: Option<String>,
    /// Project name or ID in which it can be used (repeatable)
    #[arg(long = "project", value_name = "PROJECT")]
    projects: Vec<String>,
    /// Days until it expires
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u16).range(1..=3650))]
    expires: Option<u16>,
    /// Owner, such as a service account (operators)
    #[arg(long = "for", value_name = "NAME")]
    person: Option<String>,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ListTokensArgs {
    /// Tokens of this person only (operators)
    #[arg(long, value_name = "NAME")]
    of: Option<String>,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RevokeTokenArgs {
    /// ID of the token, as in `tamma token list`
    id: Uuid,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

pub(super) fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Create(arguments) => create(arguments),
        Command::List(arguments) => list(arguments),
        Command::Revoke(arguments) => revoke(arguments),
    }
}

fn create(arguments: &CreateTokenArgs) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let by = arguments.identity.resolve_name()?;
        let new = NewToken {
            label: arguments.label.clone(),
            person: arguments.person.clone(),
            role: arguments.role.clone(),
            projects: arguments.projects.clone(),
            expires_at: arguments.expires.map(|days| style::now() + TimeDelta::days(days.into())),
        };
        let created: CreatedToken = client.post("/tokens", &by, client::new_id(), &new).await?;
        if arguments.target.json {
            output::print_json(&created)?;
        } else {
            let (label, person) = (sanitize(&created.token.label), sanitize(&created.token.person));
            writeln!(
                anstream::stdout().lock(),
                "{}\n\nAccess token `{label}` of {person}. It is shown only once. Use it as TAMMA_TOKEN.",
                created.secret
            )?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn list(arguments: &ListTokensArgs) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let by = arguments.identity.resolve_name()?;
        let query: Vec<(&str, &str)> =
            arguments.of.iter().map(|person| ("person", person.as_str())).collect();
        let tokens: TokenList = client.get_as("/tokens", &by, &query).await?;
        print_tokens(&tokens, arguments.target.json)
    })
}

fn revoke(arguments: &RevokeTokenArgs) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let by = arguments.identity.resolve_name()?;
        let token = TokenId { id: arguments.id };
        let tokens: TokenList =
            client.post("/tokens/revocations", &by, client::new_id(), &token).await?;
        print_tokens(&tokens, arguments.target.json)
    })
}

fn print_tokens(tokens: &TokenList, json: bool) -> Result<ExitCode> {
    if json {
        output::print_json(tokens)?;
    } else {
        writeln!(anstream::stdout().lock(), "{}", format_tokens(&tokens.tokens))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn format_tokens(tokens: &[TokenView]) -> String {
    if tokens.is_empty() {
        return "No access tokens. Create one with `tamma token create --label <label>`."
            .to_owned();
    }
    let now = style::now();
    let mut table = new_table(&["ID", "PERSON", "LABEL", "LIMIT", "LAST USED", "STATUS"]);
    for token in tokens {
        let status = match (token.revoked_at, token.expires_at) {
            (Some(at), _) => format!("revoked {}", style::format_ago(at, now)),
            (None, _) if token.account_deactivated => "account deactivated".to_owned(),
            (None, Some(end)) if end <= now => "expired".to_owned(),
            (None, Some(end)) => format!("until {}", end.format("%Y-%m-%d")),
            (None, None) => "active".to_owned(),
        };
        let role = token.role.as_deref().unwrap_or("all roles");
        let limit = match &token.projects {
            Some(projects) => format!("{role}, {}", output::pluralize(projects.len(), "project")),
            None => role.to_owned(),
        };
        table.add_row([
            token.id.to_string(),
            sanitize(&token.person),
            sanitize(&token.label),
            limit,
            token.last_used_at.map_or_else(|| "never".to_owned(), |at| style::format_ago(at, now)),
            status,
        ]);
    }
    render_table(&table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_shows_limits_and_ends() {
        let now = style::now();
        let token = |label: &str| TokenView {
            id: Uuid::nil(),
            person: "ci".to_owned(),
            label: label.to_owned(),
            role: None,
            projects: None,
            created_by: "Grace".to_owned(),
            created_at: now,
            expires_at: None,
            last_used_at: None,
            revoked_at: None,
            account_deactivated: false,
        };
        let tokens = [
            TokenView { role: Some("viewer".to_owned()), ..token("nightly") },
            TokenView { expires_at: Some(now - TimeDelta::days(1)), ..token("old") },
            TokenView { projects: Some(vec![Uuid::nil()]), ..token("one") },
            TokenView { account_deactivated: true, ..token("gone") },
        ];
        let text = format_tokens(&tokens);
        let limits = ["viewer", "all roles, 1 project"];
        for part in limits.into_iter().chain(["nightly", "expired", "never", "deactivated"]) {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
