//! What processes and the database say about themselves.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::process::Command;

/// Ticks of a second that the system counts in. It has been this on Linux for as long as anybody
/// reads it from there.
const TICKS: u64 = 100;

/// The time that a process and what it started have spent on a processor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CpuTime {
    /// The process itself.
    pub(crate) own: Duration,
    /// All that it has started, living or gone.
    pub(crate) children: Duration,
}

impl CpuTime {
    /// Both.
    pub(crate) fn all(self) -> Duration {
        self.own + self.children
    }

    /// What has been spent since.
    #[must_use]
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            own: self.own.saturating_sub(before.own),
            children: self.children.saturating_sub(before.children),
        }
    }
}

struct Stat {
    parent: u32,
    own: u64,
    reaped: u64,
}

fn stat(process: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is a name in parentheses and may have anything in it.
    let fields: Vec<&str> = text.rsplit(')').next()?.split_whitespace().collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
    Some(Stat {
        parent: u32::try_from(number(1)?).ok()?,
        own: number(11)? + number(12)?,
        reaped: number(13)? + number(14)?,
    })
}

/// The processes below one, itself first.
fn family(process: u32) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    for number in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
        if let Some(stat) = stat(number) {
            children.entry(stat.parent).or_default().push(number);
        }
    }
    let (mut all, mut next) = (Vec::new(), vec![process]);
    while let Some(one) = next.pop() {
        all.push(one);
        next.extend(children.remove(&one).unwrap_or_default());
    }
    all
}

/// What a process and all below it have spent so far. What is gone is counted with whoever waited
/// for it.
pub(crate) fn spent(process: u32) -> CpuTime {
    let ticks = |ticks: u64| Duration::from_millis(ticks * 1000 / TICKS);
    let mut spent = CpuTime::default();
    for one in family(process) {
        let Some(stat) = stat(one) else { continue };
        if one == process {
            spent.own += ticks(stat.own);
            spent.children += ticks(stat.reaped);
        } else {
            spent.children += ticks(stat.own + stat.reaped);
        }
    }
    spent
}

/// The task_loop of a process and all below it that is in RAM, in bytes. Memory that several of them
/// share is counted once for each.
pub(crate) fn resident(process: u32) -> u64 {
    family(process).into_iter().map(resident_alone).sum()
}

/// The task_loop of a process by itself that is in RAM, in bytes.
pub(crate) fn resident_alone(process: u32) -> u64 {
    let of = || {
        let text = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()
    };
    of().unwrap_or_default() * 1024
}

/// The bytes of the files in a folder.
pub(crate) fn disk(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let found = entry.metadata().ok()?;
            Some(if found.is_dir() { disk(&entry.path()) } else { found.len() })
        })
        .sum()
}

/// What the database counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DatabaseCounts {
    /// Rows of all tables.
    pub(crate) rows: u64,
    /// Statements that were run, each of which is a round trip.
    pub(crate) statements: u64,
}

const COUNTS: &str = "
SELECT (
    SELECT coalesce(sum((xpath('/row/c/text()', query_to_xml(
        format('SELECT count(*) AS c FROM %s', oid::regclass), false, true, ''
    )))[1]::text::bigint), 0)
    FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
) || ' ' || (
    SELECT coalesce(sum(calls), 0) FROM pg_stat_statements
    WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND query NOT LIKE '%pg_stat_statements%' AND query NOT LIKE 'SELECT count(*) AS c %'
)";

/// What the database counts now.
pub(crate) async fn database(url: &str) -> Result<DatabaseCounts> {
    let said = sql(url, COUNTS).await?;
    let (rows, statements) = said.split_once(' ').context("two numbers")?;
    Ok(DatabaseCounts { rows: rows.parse()?, statements: statements.parse()? })
}

/// Runs SQL in a database with `psql`, and returns what it says. Only `tamma-store` has a library
/// for that, and what is asked here is nothing that it should know.
pub(crate) async fn sql(url: &str, text: &str) -> Result<String> {
    let output = Command::new("psql")
        .args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align"])
        .args(["--set", "ON_ERROR_STOP=1", "--dbname", url, "--command", text])
        .output()
        .await
        .context("`psql` does not start: it comes with PostgreSQL")?;
    if !output.status.success() {
        bail!("`psql`: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// This machine, in a line.
pub(crate) fn machine() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let name = name.map_or("an unknown processor", |(_, name)| name.trim());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let task_loop = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kilobytes = task_loop
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok())
        .unwrap_or_default();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("?").to_owned();
    format!("{cores} cores of {name}, {} GB; load {load} before", kilobytes >> 20)
}
