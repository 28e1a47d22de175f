//! `tamma task history` and `tamma task export`.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use futures_util::StreamExt as _;
use reqwest::Method;

use crate::client::{self, Client, Target};
use crate::{look, output, watch};

#[derive(Debug, Args)]
pub(crate) struct History {
    /// The task: its id, or at least four digits of its beginning or end.
    id: String,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct Export {
    /// The task: its id, or at least four digits of its beginning or end. By default all of them.
    id: Option<String>,
    /// The name of a project, for all of its tasks.
    #[arg(long, conflicts_with = "id")]
    project: Option<String>,
    #[command(flatten)]
    target: Target,
}

pub(super) fn history(arguments: &History) -> Result<ExitCode> {
    client::run(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let id = client.which(&arguments.id).await?;
        let path = format!("/tasks/{id}/history");
        let (mut entries, mut after) = (Vec::new(), String::from("0"));
        loop {
            let query = [("limit", "500"), ("after", after.as_str())];
            let part: tamma_server::shape::History = client.get(&path, &query).await?;
            entries.extend(part.entries);
            match part.next {
                Some(next) => after = next,
                None => break,
            }
        }
        if arguments.target.json {
            output::json(&entries)?;
            return Ok(ExitCode::SUCCESS);
        }
        let zone = look::zone();
        let mut out = anstream::stdout().lock();
        let mut day = None;
        for entry in entries.iter().map(|line| &line.entry) {
            let date = entry.at.with_timezone(&zone).date_naive();
            if day != Some(date) {
                writeln!(out, "{}", look::styled(&date.to_string(), look::STRONG))?;
                day = Some(date);
            }
            writeln!(out, "{}", watch::line(entry, zone))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

pub(super) fn export(arguments: &Export) -> Result<ExitCode> {
    client::run(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let mut query = Vec::new();
        if let Some(said) = &arguments.id {
            query.push(("task", client.which(said).await?.to_string()));
        }
        if let Some(project) = &arguments.project {
            query.push(("project", project.clone()));
        }
        let request = client.request(Method::GET, "/export").query(&query);
        let mut parts = client.send(request).await?.bytes_stream();
        while let Some(part) = parts.next().await {
            let part = part.context("the export broke off: it is not whole")?;
            std::io::stdout().lock().write_all(&part)?;
        }
        Ok(ExitCode::SUCCESS)
    })
}
