//! `tamma sign-in`: link that signs a person in to the web UI.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;
use tamma_server::dto::SignInLink;

use crate::client::{self, Client, ClientArgs, IdentityArgs};
use crate::output;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

/// Creates a link that signs a person in, once and within 10 min.
pub(super) async fn create_link(client: &Client, by: &str) -> Result<String> {
    let link: SignInLink = client.post("/sign-in-links", by, client::new_id(), &json!({})).await?;
    Ok(link.url.unwrap_or_else(|| format!("{}{}", client.url(), link.path)))
}

pub(super) fn run(arguments: &Args) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let by = arguments.identity.resolve_name()?;
        let url = create_link(&client, &by).await?;
        if arguments.target.json {
            output::print_json(&json!({ "url": url }))?;
        } else {
            writeln!(anstream::stdout().lock(), "{url}")?;
        }
        Ok(ExitCode::SUCCESS)
    })
}
