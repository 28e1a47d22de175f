//! `tamma audit`: histories compared with their hash chains.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use chrono::{NaiveDate, NaiveTime};
use clap::{Args, Subcommand};
use serde_json::json;
use tamma_server::dto::{AuditPage, VerifiedHistory};

use crate::client::{self, Client, ClientArgs};
use crate::output::{self, pluralize};

/// Number of tasks per request.
const PAGE_SIZE: &str = "100";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Verify the hashes of task histories
    ///
    /// Checks every entry against its hash, and every history against its stored end. Prints the
    /// first broken entry of each task, and exits with 1 if there is one. Entries written before
    /// hashes were introduced are not covered. With --json, also prints the last hash of each
    /// history: store it outside the database to detect later that a whole history was replaced.
    Verify(VerifyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    #[arg(
        value_name = "TASK",
        help = "Task ID, or at least four characters from its start or end [default: all tasks]"
    )]
    id: Option<String>,
    /// Accept that entries before this day (UTC) are archived
    #[arg(long, value_name = "DATE")]
    archived_before: Option<NaiveDate>,
    #[command(flatten)]
    target: ClientArgs,
}

pub(super) fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Verify(arguments) => verify(arguments),
    }
}

fn verify(arguments: &VerifyArgs) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let mut query = vec![("limit", PAGE_SIZE.to_owned())];
        if let Some(id) = &arguments.id {
            query.push(("task", client.resolve_task(id).await?.to_string()));
        }
        if let Some(day) = arguments.archived_before {
            let start = day.and_time(NaiveTime::MIN).and_utc();
            query.push(("archived_before", start.to_rfc3339()));
        }
        let mut histories = Vec::new();
        let mut after = None;
        loop {
            let cursor = after.iter().map(|after: &String| ("after", after.as_str()));
            let fixed = query.iter().map(|(name, value)| (*name, value.as_str()));
            let page: AuditPage =
                client.get("/audit", &fixed.chain(cursor).collect::<Vec<_>>()).await?;
            histories.extend(page.histories);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let is_broken = histories.iter().any(|history| history.broken.is_some());
        if arguments.target.json {
            output::print_json(&json!({ "intact": !is_broken, "histories": histories }))?;
        } else {
            writeln!(anstream::stdout().lock(), "{}", format_audit(&histories))?;
        }
        Ok(ExitCode::from(u8::from(is_broken)))
    })
}

/// Formats one line per broken history, and the totals.
fn format_audit(histories: &[VerifiedHistory]) -> String {
    let broken = histories.iter().filter_map(|history| {
        let broken = history.broken.as_ref()?;
        Some(format!("task {}: entry {} {}", history.task, broken.sequence, broken.text))
    });
    let mut lines: Vec<String> = broken.collect();
    let broken = lines.len();
    let total = |count: fn(&VerifiedHistory) -> u64| {
        let sum: u64 = histories.iter().map(count).sum();
        pluralize(usize::try_from(sum).unwrap_or(usize::MAX), "entry")
    };
    lines.push(format!(
        "{}: {} verified, {} not covered, {} broken",
        pluralize(histories.len(), "task"),
        total(|history| history.verified),
        total(|history| history.not_covered),
        broken
    ));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use tamma_server::dto::BrokenHistory;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn the_first_broken_entry_of_each_task_is_named() {
        let intact = VerifiedHistory {
            task: Uuid::from_u128(1),
            verified: 7,
            not_covered: 1,
            head: Some("00ff".to_owned()),
            broken: None,
        };
        let fault = BrokenHistory {
            sequence: 4,
            fault: "changed".to_owned(),
            text: "was changed".to_owned(),
        };
        let broken =
            VerifiedHistory { task: Uuid::from_u128(2), broken: Some(fault), ..intact.clone() };
        assert_eq!(
            format_audit(&[intact, broken]),
            "task 00000000-0000-0000-0000-000000000002: entry 4 was changed\n\
             2 tasks: 14 entries verified, 2 entries not covered, 1 broken"
        );
    }
}
