//! Resources that a run uses: memory, processes and CPU time of all its processes together.
//!
//! The kernel limits single processes, not their sum (see the sandbox launcher). So the sum is
//! measured at short intervals, and the caller stops a run that exceeds a limit. All runs share one
//! reading of the process table, so that its cost does not grow with the square of their number.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tamma_core::operator::ResourceLimits;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::process_table::ProcessEntry;
use super::{MARKER_VARIABLE, ProcessIdentity, ProcessRecord, process_table};

/// Interval between measurements of a run that works.
const BUSY_INTERVAL: Duration = Duration::from_millis(250);

/// Interval between measurements of a run whose processes have used no CPU time, as most agents while
/// their model writes. What it uses grows only after it has woken up.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);

/// Time for which runs share a process table. Less than the intervals, so that each measurement of a
/// run has new values.
const MAX_AGE: Duration = Duration::from_millis(200);

/// Unit of CPU time in `/proc`, on all platforms that we support.
const TICKS_PER_SECOND: u64 = 100;

/// Size of the largest pages, in KiB, on all platforms that we support.
const MAX_PAGE_KB: u64 = 64;

/// Process table of all runs of this process, with the time at which it was read.
static SHARED_TABLE: Mutex<Option<(Instant, Arc<WatchedTable>)>> = Mutex::const_new(None);

/// Time from which the measurements of idle runs are counted.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Limit that a run exceeded, with its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ExceededLimit {
    /// Memory, in MiB.
    #[error(
        "stopped at its resource limit: used more than {0} MB of memory; use less, or ask \
         the operator to raise `sandbox.limits.memory_mb`"
    )]
    Memory(u64),
    /// Number of processes and threads.
    #[error(
        "stopped at its resource limit: used more than {0} processes and threads; use less, or ask \
         the operator to raise `sandbox.limits.processes`"
    )]
    Processes(u64),
    /// CPU time, in seconds.
    #[error(
        "stopped at its resource limit: used more than {0} seconds of CPU time; use less, or ask \
         the operator to raise `sandbox.limits.cpu_seconds`"
    )]
    CpuTime(u64),
}

/// Waits until the processes of a run exceed a limit. Waits forever if there are no limits, and
/// without `/proc`.
pub(crate) async fn exceeded_limit(
    record: ProcessRecord,
    limits: Option<ResourceLimits>,
) -> ExceededLimit {
    let Some(limits) = limits.filter(|_| process_table::is_available()) else {
        return std::future::pending().await;
    };
    let mut cpu_ticks = None;
    loop {
        let table = shared_table().await;
        let mut used = ResourceUse::measure(&table.members(&record));
        let is_idle = cpu_ticks.replace(used.cpu_ticks) == Some(used.cpu_ticks);
        if used.memory_kb > limits.memory_mb.saturating_mul(1024) {
            let (record, table) = (record.clone(), table.clone());
            // Reading more about each process blocks; keep it off the runtime's threads.
            let reading = move || memory_kb(&table.members(&record), &limits);
            used.memory_kb = tokio::task::spawn_blocking(reading).await.unwrap_or_default();
        }
        if let Some(exceeded) = used.exceeded(&limits) {
            return exceeded;
        }
        let pause = if is_idle { idle_pause(EPOCH.elapsed()) } else { BUSY_INTERVAL };
        tokio::time::sleep(pause).await;
    }
}

/// Returns the time until idle runs are measured next. All are measured at the same time, so that they
/// share one reading.
fn idle_pause(since_epoch: Duration) -> Duration {
    let position = since_epoch.as_nanos() % IDLE_INTERVAL.as_nanos();
    IDLE_INTERVAL.saturating_sub(Duration::from_nanos(u64::try_from(position).unwrap_or_default()))
}

/// Returns the process table, which another run may have read a short time ago.
async fn shared_table() -> Arc<WatchedTable> {
    let mut shared = SHARED_TABLE.lock().await;
    if let Some((read_at, table)) = &*shared
        && read_at.elapsed() < MAX_AGE
    {
        return table.clone();
    }
    let before = shared.take().map(|(_, table)| table).unwrap_or_default();
    // Reading the process table blocks; keep it off the runtime's threads.
    let read = tokio::task::spawn_blocking(move || {
        let marker = |process: &ProcessEntry| process.env_entry(MARKER_VARIABLE);
        WatchedTable::new(process_table::list(), &before, marker)
    });
    let table = Arc::new(read.await.unwrap_or_default());
    *shared = Some((Instant::now(), table.clone()));
    table
}

/// Process table in the order in which runs look for their processes.
#[derive(Default)]
struct WatchedTable {
    processes: BTreeMap<u32, ProcessEntry>,
    /// Children by the ID of their parent.
    children: BTreeMap<u32, Vec<u32>>,
    /// Processes by their group.
    groups: BTreeMap<u32, Vec<u32>>,
    /// Processes by the marker that they started with.
    marked: BTreeMap<String, Vec<u32>>,
    /// What is known about the marker of each process.
    markers: BTreeMap<u32, KnownMarker>,
}

/// Marker of a process, as far as it is known. Environments are large, so they are not read again.
#[derive(Clone)]
struct KnownMarker {
    process: ProcessIdentity,
    marker: Option<String>,
    /// Was read twice. The first time may have been before the process started its program.
    is_certain: bool,
}

impl WatchedTable {
    /// Builds the table from a list of processes and the table before.
    fn new(
        list: Vec<ProcessEntry>,
        before: &Self,
        read_marker: impl Fn(&ProcessEntry) -> Option<String>,
    ) -> Self {
        let mut table = Self::default();
        for process in list {
            let pid = process.identity.pid;
            let known = before.markers.get(&pid).filter(|it| it.process == process.identity);
            let marker = match known {
                Some(known) if known.is_certain || known.marker.is_some() => known.clone(),
                known => KnownMarker {
                    process: process.identity,
                    marker: read_marker(&process),
                    is_certain: known.is_some(),
                },
            };
            table.children.entry(process.parent).or_default().push(pid);
            table.groups.entry(process.group).or_default().push(pid);
            if let Some(marker) = &marker.marker {
                table.marked.entry(marker.clone()).or_default().push(pid);
            }
            table.markers.insert(pid, marker);
            table.processes.insert(pid, process);
        }
        table
    }

    /// Returns the processes of a run: its group, those with its marker, and all descendants of the
    /// group.
    ///
    /// In a process namespace, every process is a descendant of the first one.
    fn members(&self, record: &ProcessRecord) -> Vec<&ProcessEntry> {
        let mut found = BTreeSet::new();
        let mut new: Vec<u32> = self.groups.get(&record.pgid).cloned().unwrap_or_default();
        while let Some(pid) = new.pop() {
            if found.insert(pid) {
                new.extend(self.children.get(&pid).into_iter().flatten());
            }
        }
        let is_older =
            |process: &ProcessEntry| process.identity.start_ticks < record.leader.start_ticks;
        let marked = self.marked.get(&record.marker_assignment()).into_iter().flatten();
        let is_younger = |pid: &&u32| self.processes.get(*pid).is_some_and(|it| !is_older(it));
        found.extend(marked.filter(is_younger));
        found.iter().filter_map(|pid| self.processes.get(pid)).collect()
    }
}

/// Resources that the processes of a run use together.
#[derive(Debug, PartialEq, Eq)]
struct ResourceUse {
    memory_kb: u64,
    processes: u64,
    cpu_ticks: u64,
}

impl ResourceUse {
    /// Adds up what the process table says. The memory is an upper bound.
    fn measure(members: &[&ProcessEntry]) -> Self {
        let sum = |value: fn(&ProcessEntry) -> u64| -> u64 {
            members.iter().map(|process| value(process)).fold(0, u64::saturating_add)
        };
        Self {
            memory_kb: sum(|process| process.resident_pages.saturating_mul(MAX_PAGE_KB)),
            processes: sum(|process| process.threads),
            cpu_ticks: sum(|process| process.cpu_ticks),
        }
    }

    fn exceeded(&self, limits: &ResourceLimits) -> Option<ExceededLimit> {
        if self.memory_kb > limits.memory_mb.saturating_mul(1024) {
            Some(ExceededLimit::Memory(limits.memory_mb))
        } else if self.processes > limits.processes {
            Some(ExceededLimit::Processes(limits.processes))
        } else if self.cpu_ticks / TICKS_PER_SECOND > limits.cpu_seconds {
            Some(ExceededLimit::CpuTime(limits.cpu_seconds))
        } else {
            None
        }
    }
}

/// Returns the memory of processes that is not backed by files, in KiB. Above the limit, memory that
/// they share counts once.
fn memory_kb(members: &[&ProcessEntry], limits: &ResourceLimits) -> u64 {
    let sum = |value: fn(u32) -> u64| -> u64 {
        members.iter().map(|process| value(process.identity.pid)).fold(0, u64::saturating_add)
    };
    let resident = sum(resident_kb);
    if resident <= limits.memory_mb.saturating_mul(1024) {
        return resident;
    }
    sum(|pid| proportional_kb(pid).unwrap_or_else(|| resident_kb(pid)))
}

/// Returns the memory of a process that is not backed by a file, in KiB.
fn resident_kb(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    sum_kb(&text, &["RssAnon:", "RssShmem:"]).unwrap_or_default()
}

/// Returns the same, with the process's share of shared memory. `None` if it is unknown.
fn proportional_kb(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    sum_kb(&text, &["Pss_Anon:", "Pss_Shmem:"])
}

/// Adds up lines such as `RssAnon:  12 kB`. `None` if there are none.
fn sum_kb(text: &str, names: &[&str]) -> Option<u64> {
    let values = text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let name = words.next()?;
        names.contains(&name).then(|| words.next()?.parse::<u64>().ok()).flatten()
    });
    values.reduce(u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{ProcessIdentity, RunId};

    const LIMITS: ResourceLimits = ResourceLimits {
        memory_mb: 100,
        processes: 10,
        cpu_seconds: 60,
        file_mb: 1,
        open_files: 64,
    };

    #[test]
    fn reason_names_the_limit_its_value_and_its_key() {
        let within = ResourceUse { memory_kb: 102_400, processes: 10, cpu_ticks: 6_099 };
        assert_eq!(within.exceeded(&LIMITS), None);
        let text = |used: ResourceUse| used.exceeded(&LIMITS).expect("exceeded").to_string();
        for (used, value, key) in [
            (ResourceUse { memory_kb: 102_401, ..within }, "100 MB", "memory_mb"),
            (ResourceUse { processes: 11, ..within }, "10 processes", "processes"),
            (ResourceUse { cpu_ticks: 6_100, ..within }, "60 seconds", "cpu_seconds"),
        ] {
            let text = text(used);
            assert!(text.contains(value) && text.contains(&format!("limits.{key}`")), "{text}");
        }
    }

    #[test]
    fn memory_is_read_in_kilobytes() {
        let text = "VmRSS:\t  90 kB\nRssAnon:\t  12 kB\nRssFile:\t  70 kB\nRssShmem:\t   8 kB\n";
        assert_eq!(sum_kb(text, &["RssAnon:", "RssShmem:"]), Some(20));
        assert_eq!(sum_kb("RssAnon: x kB\n", &["RssAnon:"]), None);
        assert!(resident_kb(std::process::id()) > 0);
    }

    #[test]
    fn descendants_that_left_the_group_and_marked_processes_are_members() {
        let entry = |pid: u32, parent: u32, group: u32| ProcessEntry {
            identity: ProcessIdentity { pid, start_ticks: u64::from(pid) / 10 + 1 },
            parent,
            group,
            threads: 1,
            cpu_ticks: 3,
            resident_pages: 2,
            is_zombie: false,
        };
        let leader = ProcessIdentity { pid: 10, start_ticks: 2 };
        let record = ProcessRecord {
            run: RunId {
                task: tamma_core::ids::TaskId(uuid::Uuid::nil()),
                job_number: 1,
                generation: 1,
            },
            pgid: 10,
            leader,
            owner: leader,
            boot_id: String::new(),
            started_at: tamma_core::task_loop::Timestamp::UNIX_EPOCH,
        };
        let table = vec![
            entry(1, 0, 1),
            entry(10, 1, 10),
            entry(11, 10, 11),
            entry(12, 11, 12),
            entry(13, 1, 13),
            entry(14, 1, 10),
            entry(15, 1, 15),
        ];
        // Processes with the marker count, unless they are older than the run.
        let mark = record.marker_assignment();
        let marker =
            |process: &ProcessEntry| [1, 15].contains(&process.identity.pid).then(|| mark.clone());
        let table = WatchedTable::new(table, &WatchedTable::default(), marker);
        let members = table.members(&record);
        let pids: Vec<u32> = members.iter().map(|process| process.identity.pid).collect();
        assert_eq!(pids, [10, 11, 12, 14, 15]);
        let used = ResourceUse { memory_kb: 5 * 2 * MAX_PAGE_KB, processes: 5, cpu_ticks: 15 };
        assert_eq!(ResourceUse::measure(&members), used);
    }

    #[test]
    fn environments_are_read_until_they_are_certain() {
        let list = |start_ticks| {
            vec![ProcessEntry {
                identity: ProcessIdentity { pid: 7, start_ticks },
                parent: 1,
                group: 7,
                threads: 1,
                cpu_ticks: 0,
                resident_pages: 1,
                is_zombie: false,
            }]
        };
        let found = |text: &'static str| move |_: &ProcessEntry| Some(text.to_owned());
        let unread = |_: &ProcessEntry| unreachable!("was read again");
        let first = WatchedTable::new(list(1), &WatchedTable::default(), |_| None);
        assert!(first.marked.is_empty());
        // The process has started its program in the meantime.
        let second = WatchedTable::new(list(1), &first, found("A"));
        assert_eq!(second.marked["A"], [7]);
        let third = WatchedTable::new(list(1), &second, unread);
        assert_eq!(third.marked["A"], [7]);
        // Another process with the same ID.
        let reused = WatchedTable::new(list(2), &third, |_| None);
        let reused = WatchedTable::new(list(2), &reused, |_| None);
        assert!(WatchedTable::new(list(2), &reused, unread).marked.is_empty());
    }

    #[tokio::test]
    async fn runs_share_a_process_table() {
        let (one, two) = tokio::join!(shared_table(), shared_table());
        assert!(Arc::ptr_eq(&one, &two));
        assert!(one.processes.contains_key(&std::process::id()));
    }

    #[test]
    fn idle_runs_are_measured_at_the_same_time() {
        let ms = Duration::from_millis;
        let pauses = [0, 1, 999, 1_000, 7_300].map(|now| idle_pause(ms(now)));
        assert_eq!(pauses, [1_000, 999, 1, 1_000, 700].map(ms));
    }
}
