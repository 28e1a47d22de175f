//! `tamma task verdict`: gates and review of a task, for other tools.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use strum::Display;

use crate::client::{self, Client, ClientArgs};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Task ID, or at least four characters from its start or end
    #[arg(value_name = "TASK")]
    id: String,
    /// Output format
    #[arg(long, value_enum)]
    format: VerdictFormat,
    #[arg(long, value_name = "FILE", help = "File to write [default: standard output]")]
    output: Option<PathBuf>,
    #[command(flatten)]
    target: ClientArgs,
}

/// Format of an exported verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Display)]
#[strum(serialize_all = "snake_case")]
enum VerdictFormat {
    /// JUnit XML, with one test case for each gate and criterion
    Junit,
    /// SARIF, with one result for each finding
    Sarif,
}

pub(super) fn run(arguments: &Args) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let id = client.resolve_task(&arguments.id).await?;
        let format = arguments.format.to_string();
        let request = client.request(reqwest::Method::GET, &format!("/tasks/{id}/verdict"));
        let response = client.send(request.query(&[("format", format.as_str())])).await?;
        let bytes = response.bytes().await.context("the response ended too early")?;
        match &arguments.output {
            Some(path) => std::fs::write(path, &bytes)
                .with_context(|| format!("cannot write {}", path.display()))?,
            // Written as it came, because other tools read it.
            None => std::io::stdout().lock().write_all(&bytes)?,
        }
        Ok(ExitCode::SUCCESS)
    })
}
