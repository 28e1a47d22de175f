//! CPU time, memory and row counts of processes and the database.

use std::collections::BTreeMap;
use std::fs;
use std::iter::Sum;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use tokio::process::Command;

/// Clock ticks per second in `/proc`. The value is fixed on Linux.
const TICKS: u64 = 100;

/// CPU time of a process and its descendants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CpuTime {
    /// Process itself.
    pub(crate) own: Duration,
    /// Descendants, running or ended.
    pub(crate) children: Duration,
}

impl CpuTime {
    /// Returns the total.
    pub(crate) fn all(self) -> Duration {
        self.own + self.children
    }

    /// Returns the difference to an earlier measurement.
    #[must_use]
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            own: self.own.saturating_sub(before.own),
            children: self.children.saturating_sub(before.children),
        }
    }
}

impl Sum for CpuTime {
    fn sum<I: Iterator<Item = Self>>(times: I) -> Self {
        times.fold(Self::default(), |total, time| Self {
            own: total.own + time.own,
            children: total.children + time.children,
        })
    }
}

struct Stat {
    parent: u32,
    own: u64,
    reaped: u64,
}

fn stat(process: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is a name in parentheses, which can contain spaces.
    let fields: Vec<&str> = text.rsplit(')').next()?.split_whitespace().collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
    Some(Stat {
        parent: u32::try_from(number(1)?).ok()?,
        own: number(11)? + number(12)?,
        reaped: number(13)? + number(14)?,
    })
}

/// Returns a process and its descendants, itself first.
fn process_tree(process: u32) -> Vec<u32> {
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

/// Returns the CPU time of a process and its descendants. Ended processes count for their parent.
pub(crate) fn cpu_time(process: u32) -> CpuTime {
    let ticks = |ticks: u64| Duration::from_millis(ticks * 1000 / TICKS);
    let mut spent = CpuTime::default();
    for one in process_tree(process) {
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

/// Returns the resident memory of a process and its descendants, in bytes. Shared memory counts once
/// for each.
pub(crate) fn resident(process: u32) -> u64 {
    process_tree(process).into_iter().map(resident_alone).sum()
}

/// Returns the resident memory of a process, in bytes.
pub(crate) fn resident_alone(process: u32) -> u64 {
    let of = || {
        let text = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()
    };
    of().unwrap_or_default() * 1024
}

/// Returns the memory of a process and its descendants, in bytes. Shared memory counts in proportion.
pub(crate) fn proportional(process: u32) -> u64 {
    process_tree(process).into_iter().map(proportional_alone).sum()
}

/// Returns the memory of a process, in bytes. Shared memory counts in proportion.
pub(crate) fn proportional_alone(process: u32) -> u64 {
    let of = || {
        let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
        line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()
    };
    of().unwrap_or_default() * 1024
}

/// Returns the number of files, sockets and pipes that a process has open.
pub(crate) fn open_files(process: u32) -> u64 {
    fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().map(|_| 1).sum()
}

/// Returns the number of a process and its descendants.
pub(crate) fn processes(process: u32) -> usize {
    process_tree(process).len()
}

/// Returns the size of the files in a folder, in bytes.
pub(crate) fn disk(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let found = entry.metadata().ok()?;
            Some(if found.is_dir() { disk(&entry.path()) } else { found.len() })
        })
        .sum()
}

/// Counters of the database.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct DatabaseCounts {
    /// Rows by table. Partitions count for their table.
    pub(crate) rows: BTreeMap<String, u64>,
    /// Executed statements by the start of their text. Each is a round trip.
    pub(crate) statements: BTreeMap<String, u64>,
}

impl DatabaseCounts {
    /// Returns the rows of all tables.
    pub(crate) fn total_rows(&self) -> u64 {
        self.rows.values().sum()
    }

    /// Returns the number of all statements.
    pub(crate) fn total_statements(&self) -> u64 {
        self.statements.values().sum()
    }
}

const COUNTS: &str = "
SELECT jsonb_build_object(
    'rows', (
        SELECT coalesce(jsonb_object_agg(name, rows), '{}') FROM (
            SELECT coalesce(parent.relname, child.relname) AS name, sum((xpath('/row/c/text()',
                query_to_xml(
                    format('SELECT count(*) AS c FROM %s', child.oid::regclass), false, true, ''
                )
            ))[1]::text::bigint) AS rows
            FROM pg_class AS child
            LEFT JOIN pg_inherits ON pg_inherits.inhrelid = child.oid
            LEFT JOIN pg_class AS parent ON parent.oid = pg_inherits.inhparent
            WHERE child.relkind = 'r' AND child.relnamespace = 'public'::regnamespace
            GROUP BY 1
        ) AS tables
    ),
    'statements', (
        SELECT coalesce(jsonb_object_agg(name, calls), '{}') FROM (
            SELECT left(btrim(regexp_replace(query, '\\s+', ' ', 'g')), 100) AS name,
                sum(calls) AS calls
            FROM pg_stat_statements
            WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND query NOT LIKE '%pg_stat_statements%' AND query NOT LIKE 'SELECT count(*) AS c %'
            GROUP BY 1
        ) AS executed
    )
)";

/// Reads the counters of the database.
pub(crate) async fn database(url: &str) -> Result<DatabaseCounts> {
    let output = sql(url, COUNTS).await?;
    serde_json::from_str(&output).with_context(|| format!("expected counters: {output}"))
}

const TABLE_BYTES: &str = "
SELECT coalesce(jsonb_object_agg(name, bytes), '{}') FROM (
    SELECT coalesce(parent.relname, child.relname) AS name,
        sum(pg_total_relation_size(child.oid)) AS bytes
    FROM pg_class AS child
    LEFT JOIN pg_inherits ON pg_inherits.inhrelid = child.oid
    LEFT JOIN pg_class AS parent ON parent.oid = pg_inherits.inhparent
    WHERE child.relkind = 'r' AND child.relnamespace = 'public'::regnamespace
    GROUP BY 1
) AS tables";

/// Returns the bytes of each table with its indexes. Partitions count for their table.
pub(crate) async fn table_bytes(url: &str) -> Result<BTreeMap<String, u64>> {
    let output = sql(url, TABLE_BYTES).await?;
    serde_json::from_str(&output).with_context(|| format!("expected sizes: {output}"))
}

/// Bytes that the database has written and uses. They grow without tasks, too, so they are no counters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DatabaseBytes {
    /// Bytes written to the write-ahead log so far.
    pub(crate) wal: u64,
    /// Size of the database.
    pub(crate) size: u64,
}

const BYTES: &str = "
SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint
|| ' ' || pg_database_size(current_database())";

/// Reads the bytes that the database has written and uses.
pub(crate) async fn database_bytes(url: &str) -> Result<DatabaseBytes> {
    let output = sql(url, BYTES).await?;
    let (wal, size) = output.split_once(' ').context("expected two numbers")?;
    Ok(DatabaseBytes { wal: wal.parse()?, size: size.parse()? })
}

/// Runs SQL with `psql` and returns its output. Only `tamma-store` has a database library, and these
/// queries do not belong there.
pub(crate) async fn sql(url: &str, text: &str) -> Result<String> {
    let output = Command::new("psql")
        .args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align"])
        .args(["--set", "ON_ERROR_STOP=1", "--dbname", url, "--command", text])
        .output()
        .await
        .context("cannot start `psql`: install the PostgreSQL client")?;
    if !output.status.success() {
        bail!("`psql`: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Describes this machine in one line.
pub(crate) fn machine() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let name = name.map_or("unknown processor", |(_, name)| name.trim());
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
