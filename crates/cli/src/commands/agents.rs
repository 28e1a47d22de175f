//! `tamma agents`: status of the agent pool.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use chrono::{DateTime, Utc};
use tamma_core::format::{format_duration, format_usd};
use tamma_server::dto::{AgentPool, PoolRun, short_id};

use super::task::list::{new_table, render_table};
use crate::client::{self, Client, ClientArgs};
use crate::output::{self, pluralize, sanitize};
use crate::style::{self, push_fmt};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: ClientArgs,
}

pub(super) fn run(arguments: &Args) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let pool: AgentPool = client.get("/agents", &[]).await?;
        if arguments.target.json {
            output::print_json(&pool)?;
        } else {
            writeln!(anstream::stdout().lock(), "{}", format_pool(&pool, style::now()))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn format_pool(pool: &AgentPool, now: DateTime<Utc>) -> String {
    let count = |number: u64, noun| pluralize(usize::try_from(number).unwrap_or_default(), noun);
    let mut text = format!(
        "{} active, {} free",
        count(pool.active_runs, "run"),
        count(pool.free_slots, "slot")
    );
    if pool.workers.is_empty() {
        text += "\nNo workers online. Start one with `tamma up` or `tamma work`.";
    }
    for worker in &pool.workers {
        let status = if worker.online {
            format!("online for {}", format_duration(now - worker.started_at))
        } else {
            format!("offline for {}", format_duration(now - worker.seen_at))
        };
        let (name, busy) = (sanitize(&worker.name), worker.runs.len());
        push_fmt(
            &mut text,
            format_args!("\n\n{name}: {busy} of {} slots in use, {status}", worker.slots),
        );
        if let Some(sandbox) = &worker.sandbox {
            push_fmt(&mut text, format_args!("\n  sandbox: {}", sanitize(sandbox)));
        }
        push_runs(&mut text, &worker.runs, now);
    }
    if !pool.orphaned_runs.is_empty() {
        text += "\n\nNo worker (another one will resume these runs)";
        push_runs(&mut text, &pool.orphaned_runs, now);
    }
    for provider in &pool.providers {
        let status = match provider.blocked_until {
            Some(until) => {
                format!(
                    "quota exhausted until {}",
                    style::format_time(until, style::local_offset())
                )
            }
            None => "available".to_owned(),
        };
        let runs = count(provider.runs, "run");
        push_fmt(&mut text, format_args!("\n\n{}: {runs}, {status}", sanitize(&provider.name)));
    }
    if !pool.agents.is_empty() {
        let mut table =
            new_table(&["AGENT", "TIER", "MODEL", "RUNS", "PASSED FIRST REVIEW", "COST PER RUN"]);
        for agent in &pool.agents {
            table.add_row([
                sanitize(&agent.agent),
                agent.tier.map_or_else(|| "-".to_owned(), |tier| tier.to_string()),
                agent.model.as_deref().map_or_else(|| "-".to_owned(), sanitize),
                agent.runs.to_string(),
                match agent.judged {
                    0 => "no data".to_owned(),
                    judged => format!("{} of {judged}", agent.passed),
                },
                agent.mean_usd.map_or_else(|| "unknown".to_owned(), format_usd),
            ]);
        }
        push_fmt(&mut text, format_args!("\n\nLast 7 days:\n{}", render_table(&table)));
    }
    text
}

fn push_runs(text: &mut String, runs: &[PoolRun], now: DateTime<Utc>) {
    for run in runs {
        let since = format_duration(now - run.started_at);
        push_fmt(
            text,
            format_args!(
                "\n  {}  {}: {} with {} for {since}",
                short_id(run.task),
                sanitize(&run.title),
                sanitize(&run.mode),
                sanitize(&run.agent),
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_shows_workers_runs_quotas_and_results() {
        let now = "2026-11-15T10:00:00Z".parse().expect("a timestamp");
        let pool: AgentPool = serde_json::from_value(serde_json::json!({
            "active_runs": 1, "free_slots": 1,
            "workers": [{
                "name": "here", "online": true, "slots": 2,
                "started_at": "2026-11-15T09:00:00Z", "seen_at": "2026-11-15T10:00:00Z",
                "runs": [{
                    "task": "0192a000-0000-7000-8000-00001a2b3c4d", "title": "Greet", "agent": "codex",
                    "mode": "implement", "started_at": "2026-11-15T09:58:00Z",
                }],
            }],
            "providers": [{ "name": "acme", "runs": 1 }],
            "agents": [{
                "agent": "codex", "tier": "simple", "modes": ["implement"], "runs": 3, "judged": 2,
                "passed": 1, "mean_usd": "0.25",
            }],
        }))
        .expect("a pool");
        let text = anstream::adapter::strip_str(&format_pool(&pool, now)).to_string();
        insta::assert_snapshot!(text, @r"
        1 run active, 1 slot free

        here: 1 of 2 slots in use, online for 1 h 0 min
          1a2b3c4d  Greet: implement with codex for 2 min

        acme: 1 run, available

        Last 7 days:
        AGENT  TIER    MODEL  RUNS  PASSED FIRST REVIEW  COST PER RUN
        codex  simple  -      3     1 of 2               $0.25
        ");
    }
}
