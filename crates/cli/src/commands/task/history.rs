//! `tamma task history` and `tamma task export`.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use futures_util::StreamExt as _;
use reqwest::Method;

use crate::client::{self, Client, ClientArgs};
use crate::{output, style, watch};

#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// Task ID, or at least four characters from its start or end
    #[arg(value_name = "TASK")]
    id: String,
    #[command(flatten)]
    target: ClientArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    #[arg(
        value_name = "TASK",
        help = "Task ID, or at least four characters from its start or end [default: all tasks]"
    )]
    id: Option<String>,
    /// Project name, to export all of its tasks
    #[arg(long, conflicts_with = "id")]
    project: Option<String>,
    #[command(flatten)]
    target: ClientArgs,
}

pub(super) fn history(arguments: &HistoryArgs) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let id = client.resolve_task(&arguments.id).await?;
        let path = format!("/tasks/{id}/history");
        let (mut entries, mut after) = (Vec::new(), String::from("0"));
        loop {
            let query = [("limit", "500"), ("after", after.as_str())];
            let part: tamma_server::dto::HistoryPage = client.get(&path, &query).await?;
            entries.extend(part.entries);
            match part.next {
                Some(next) => after = next,
                None => break,
            }
        }
        if arguments.target.json {
            output::print_json(&entries)?;
            return Ok(ExitCode::SUCCESS);
        }
        let zone = style::local_offset();
        let mut out = anstream::stdout().lock();
        let mut day = None;
        for recorded in &entries {
            let entry = &recorded.entry;
            let date = entry.at.with_timezone(&zone).date_naive();
            if day != Some(date) {
                writeln!(out, "{}", style::styled(&date.to_string(), style::STRONG))?;
                day = Some(date);
            }
            let auth = entry.auth.map(|auth| style::styled(&format!(" [{auth}]"), style::FAINT));
            let line = watch::format_entry(entry, zone);
            writeln!(out, "{line}{}", auth.unwrap_or_default())?;
            // The words of the person, or the question of the agent.
            for words in recorded.text.iter().flat_map(|text| text.lines()) {
                writeln!(out, "    {}", output::sanitize(words))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

pub(super) fn export(arguments: &ExportArgs) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let mut query = Vec::new();
        if let Some(id) = &arguments.id {
            query.push(("task", client.resolve_task(id).await?.to_string()));
        }
        if let Some(project) = &arguments.project {
            query.push(("project", project.clone()));
        }
        let request = client.request(Method::GET, "/export").query(&query);
        let mut parts = client.send(request).await?.bytes_stream();
        while let Some(part) = parts.next().await {
            let part = part.context("export is incomplete: the connection broke")?;
            std::io::stdout().lock().write_all(&part)?;
        }
        Ok(ExitCode::SUCCESS)
    })
}
