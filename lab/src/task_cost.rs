//! Exact counts of what one task costs: history events, database statements, rows and git processes.
//!
//! Durations depend on the machine, and counts do not. So this runs in CI, and a change that makes a
//! task more expensive says so in the expected counts.
#![expect(clippy::print_stdout, reason = "an experiment prints its figures")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::time::{sleep, timeout};

use crate::support::bench::cluster::{BenchCluster, Durability};
use crate::support::bench::git_log::GitLog;
use crate::support::bench::load::{Subject, TaskCounter, drive, events};
use crate::support::bench::meter;
use crate::support::verdict::Verdict;

/// Number of tasks before the counted ones. They fill caches and prepare statements.
const WARM_UP: usize = 3;

/// Number of counted tasks. The smallest counts are compared: the worker reports its presence every few
/// seconds, and a slow machine adds updates of a run.
const TASKS: usize = 5;

/// Pause after which unchanged counts mean that a task has cleaned up.
const PAUSE: Duration = Duration::from_millis(400);

/// Time limit of each wait.
const TIMEOUT: Duration = Duration::from_mins(2);

/// Targets: most history events and round trips of a low-risk task with one iteration and a learning
/// run.
const MAX_EVENTS: u64 = 60;
const MAX_STATEMENTS: u64 = 40;

/// Starts of the statement that updates a run while it lasts, with and without its comment. Its number
/// depends on the duration of the run.
const UPDATES_OF_A_RUN: [&str; 2] = ["-- Appends an update to a run", "WITH relaxed AS"];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Replace the expected counts
    #[arg(long)]
    write: bool,
}

pub(crate) async fn run(arguments: &Args) -> Result<Verdict> {
    let cluster = BenchCluster::start(Durability::Fast, 1).await?;
    let git = GitLog::create(cluster.folder())?;
    let mut worker = cluster.start_worker_with_git_log(&git).await?;
    let counter = TaskCounter::default();
    drive(&cluster, &Subject::Loop(1), &counter, WARM_UP, 1).await?;
    let mut smallest: Option<TaskCost> = None;
    for _ in 0..TASKS {
        let cost = count_task(&cluster, &git, &counter).await?;
        smallest = Some(match smallest {
            Some(before) => before.smaller(&cost),
            None => cost,
        });
    }
    worker.stop().await?;
    let cost = smallest.context("no task was counted")?;
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("inputs/task-cost.txt");
    if arguments.write {
        std::fs::write(&file, cost.to_string())?;
    }
    let expected = std::fs::read_to_string(&file)
        .with_context(|| format!("cannot read `{}`", file.display()))?;
    let differences = TaskCost::parse(&expected)?.differences(&cost);
    println!("{cost}");
    for line in &differences {
        println!("{line}");
    }
    if !differences.is_empty() {
        println!(
            "A task costs something else than expected. If that is right, run `just lab task-cost \
             --write`, and name the reason in the commit."
        );
    }
    let (events, statements) = (cost.total("event"), cost.total("statement"));
    let passed = differences.is_empty() && events <= MAX_EVENTS && statements <= MAX_STATEMENTS;
    let figures = format!(
        "{events} history events (at most {MAX_EVENTS}), {statements} round trips (at most \
         {MAX_STATEMENTS}), {} rows, {} git processes; {} differences from the expected counts",
        cost.total("row"),
        cost.total("git"),
        differences.len()
    );
    Ok(Verdict::new(passed, figures))
}

/// Counts by kind and name: `git push`, `row answers`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct TaskCost(BTreeMap<(String, String), u64>);

impl TaskCost {
    fn add(&mut self, kind: &str, name: &str, count: u64) {
        if count > 0 {
            *self.0.entry((kind.to_owned(), name.to_owned())).or_default() += count;
        }
    }

    /// Adds what has been counted between two readings.
    fn add_growth(
        &mut self,
        kind: &str,
        before: &BTreeMap<String, u64>,
        after: &BTreeMap<String, u64>,
    ) {
        for (name, count) in after {
            let earlier = before.get(name).copied().unwrap_or_default();
            self.add(kind, name, count.saturating_sub(earlier));
        }
    }

    /// Returns the smaller count of each.
    fn smaller(&self, other: &Self) -> Self {
        let smaller = self.0.iter().filter_map(|(key, count)| {
            let count = (*count).min(*other.0.get(key)?);
            Some((key.clone(), count))
        });
        Self(smaller.collect())
    }

    fn total(&self, kind: &str) -> u64 {
        self.0.iter().filter(|((it, _), _)| it == kind).map(|(_, count)| count).sum()
    }

    /// Parses the text form. Lines that start with `#` are comments.
    fn parse(text: &str) -> Result<Self> {
        let mut cost = Self::default();
        for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
            let wrong = || format!("expected `COUNT KIND NAME`: `{line}`");
            let (count, rest) = line.trim_start().split_once(' ').with_context(wrong)?;
            let (kind, name) = rest.split_once(' ').with_context(wrong)?;
            cost.add(kind, name, count.parse().with_context(wrong)?);
        }
        Ok(cost)
    }

    /// Describes the counts that differ from these, as lines of a diff.
    fn differences(&self, measured: &Self) -> Vec<String> {
        let keys: BTreeSet<_> = self.0.keys().chain(measured.0.keys()).collect();
        let mut lines = Vec::new();
        for key in keys {
            let of = |cost: &Self| cost.0.get(key).copied().unwrap_or_default();
            let (expected, found) = (of(self), of(measured));
            if expected != found {
                let (kind, name) = key;
                lines.extend((expected > 0).then(|| format!("- {expected} {kind} {name}")));
                lines.extend((found > 0).then(|| format!("+ {found} {kind} {name}")));
            }
        }
        lines
    }
}

impl std::fmt::Display for TaskCost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = String::new();
        for ((kind, name), count) in &self.0 {
            writeln!(text, "{count:>3} {kind} {name}")?;
        }
        f.write_str(&text)
    }
}

/// Counters before or after a task.
#[derive(Debug, PartialEq, Eq)]
struct Reading {
    database: meter::DatabaseCounts,
    git: BTreeMap<String, u64>,
}

/// Runs one task, and counts what it costs until it has cleaned up.
async fn count_task(
    cluster: &BenchCluster,
    git: &GitLog,
    counter: &TaskCounter,
) -> Result<TaskCost> {
    let before = settled(cluster, git).await?;
    let done = drive(cluster, &Subject::Loop(1), counter, 1, 1).await?;
    let after = settled(cluster, git).await?;
    let mut cost = TaskCost::default();
    let (id, _) = done.first().context("no task was run")?;
    for event in events(cluster, id).await? {
        let name = event.event_type().as_str_name();
        cost.add("event", name.trim_start_matches("EVENT_TYPE_"), 1);
    }
    cost.add_growth("git", &before.git, &after.git);
    cost.add_growth("row", &before.database.rows, &after.database.rows);
    cost.add_growth("statement", &before.database.statements, &after.database.statements);
    cost.0.retain(|(_, name), _| !UPDATES_OF_A_RUN.iter().any(|start| name.starts_with(start)));
    Ok(cost)
}

/// Waits until nothing is counted any more.
async fn settled(cluster: &BenchCluster, git: &GitLog) -> Result<Reading> {
    let read = async || -> Result<Reading> {
        Ok(Reading { database: meter::database(&cluster.database).await?, git: git.counts()? })
    };
    let settling = async {
        let mut last = read().await?;
        loop {
            sleep(PAUSE).await;
            let now = read().await?;
            if now == last {
                return Ok::<_, anyhow::Error>(now);
            }
            last = now;
        }
    };
    timeout(TIMEOUT, settling).await.context("the worker does not settle")?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_written_compared_and_described() {
        let mut cost = TaskCost::default();
        cost.add("git", "push", 2);
        cost.add("statement", "SELECT a, b FROM c", 12);
        let text = "  2 git push\n 12 statement SELECT a, b FROM c\n";
        assert_eq!(cost.to_string(), text);
        assert_eq!(TaskCost::parse(&format!("# counted\n{text}")).unwrap(), cost);
        assert!(TaskCost::parse("two git push").is_err());
        let mut other = cost.clone();
        other.add("git", "push", 1);
        other.add("row", "tasks", 1);
        assert_eq!(cost.differences(&cost), Vec::<String>::new());
        assert_eq!(cost.differences(&other), ["- 2 git push", "+ 3 git push", "+ 1 row tasks"]);
        assert_eq!(other.smaller(&cost), cost);
        assert_eq!((other.total("git"), other.total("event")), (3, 0));
    }
}
