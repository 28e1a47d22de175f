//! Resources that a run uses: memory, processes and CPU time of all its processes together.
//!
//! The kernel limits single processes, not their sum (see the sandbox launcher). So the sum is
//! measured at short intervals, and the caller stops a run that exceeds a limit.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use tamma_core::operator::ResourceLimits;
use tokio::time::MissedTickBehavior;

use super::process_table::ProcessEntry;
use super::{ProcessRecord, process_table};

/// Interval between measurements.
const INTERVAL: Duration = Duration::from_millis(250);

/// Unit of CPU time in `/proc`, on all platforms that we support.
const TICKS_PER_SECOND: u64 = 100;

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
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let record = record.clone();
        // Reading the process table blocks; keep it off the runtime's threads.
        let measuring = tokio::task::spawn_blocking(move || ResourceUse::measure(&record, &limits));
        if let Some(exceeded) = measuring.await.ok().and_then(|used| used.exceeded(&limits)) {
            return exceeded;
        }
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
    fn measure(record: &ProcessRecord, limits: &ResourceLimits) -> Self {
        let members = members(record, process_table::list());
        let sum = |value: fn(&ProcessEntry) -> u64| -> u64 { members.iter().map(value).sum() };
        let mut memory_kb = sum(|process| resident_kb(process.identity.pid));
        if memory_kb > limits.memory_mb.saturating_mul(1024) {
            // Memory that processes share was counted for each of them.
            memory_kb = sum(|process| {
                let pid = process.identity.pid;
                proportional_kb(pid).unwrap_or_else(|| resident_kb(pid))
            });
        }
        let processes = sum(|process| process.threads);
        Self { memory_kb, processes, cpu_ticks: sum(|process| process.cpu_ticks) }
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

/// Returns the processes of a run: its group, those with its marker, and all their descendants.
///
/// In a process namespace, every process is a descendant of the first one.
fn members(record: &ProcessRecord, table: Vec<ProcessEntry>) -> Vec<ProcessEntry> {
    let mark = record.marker_assignment();
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for process in &table {
        children.entry(process.parent).or_default().push(process.identity.pid);
    }
    let mut found = BTreeSet::new();
    let mut new: Vec<u32> =
        table.iter().filter(|it| it.group == record.pgid).map(|it| it.identity.pid).collect();
    while let Some(pid) = new.pop() {
        if found.insert(pid) {
            new.extend(children.get(&pid).into_iter().flatten());
        }
    }
    let is_member = |process: &ProcessEntry| {
        let is_older = process.identity.start_ticks < record.leader.start_ticks;
        found.contains(&process.identity.pid) || (!is_older && process.has_env(&mark))
    };
    table.into_iter().filter(is_member).collect()
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
    fn descendants_that_left_the_group_are_members() {
        let entry = |pid: u32, parent: u32, group: u32| ProcessEntry {
            // Older than the leader, so that no environment is read.
            identity: ProcessIdentity { pid, start_ticks: 1 },
            parent,
            group,
            threads: 1,
            cpu_ticks: 0,
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
        ];
        let pids: Vec<u32> =
            members(&record, table).iter().map(|process| process.identity.pid).collect();
        assert_eq!(pids, [10, 11, 12, 14]);
    }
}
