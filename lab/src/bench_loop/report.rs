//! Tables, targets and coefficients of the loop's measurements.
#![expect(clippy::print_stdout, reason = "a measurement prints its figures")]

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::LoadRow;
use crate::support::bench::load::Measurement;
use crate::support::figures::{mean_ratio, ms, percentile, show_ratio, table};
use crate::support::verdict::Verdict;

const BARE: &str = "bare Temporal";
const CHILDREN: &str = "bare, same children";
const STUBBED: &str = "loop, no-op jobs";
const LOOP: &str = "loop";

/// Variants in the order of the tables.
const SUBJECTS: [&str; 4] = [BARE, CHILDREN, STUBBED, LOOP];

/// Target throughput of the loop relative to bare Temporal with the same children.
const RATIO: f64 = 0.9;

/// Target throughput relative to bare Temporal, with jobs that do nothing.
const NO_OP_RATIO: f64 = 0.95;

/// Target number of history events of a low-risk task with one iteration.
const EVENTS: f64 = 60.0;

/// Target number of database round trips of a task.
const ROUND_TRIPS: f64 = 40.0;

/// Target p99 of a transition, with [`TRANSITION_LOAD`] concurrent tasks.
const TRANSITION: Duration = Duration::from_millis(250);
const TRANSITION_LOAD: usize = 50;

/// Target CPU time of Tamma's worker process relative to that of a bare one with the same children.
const WORKER_CPU: f64 = 2.0;

/// Load whose figures become coefficients: the machine is busy, and no queue is long.
const COEFFICIENT_LOAD: usize = 10;

/// Measurements of one variant at one load, over all runs.
struct LoadSummary<'a> {
    rows: Vec<&'a LoadRow>,
}

impl<'a> LoadSummary<'a> {
    fn new(all: &'a [LoadRow], subject: &str, concurrency: usize, is_open: bool) -> Self {
        let fits = |row: &&LoadRow| {
            row.subject == subject
                && row.concurrency == concurrency
                && row.rate.is_some() == is_open
        };
        Self { rows: all.iter().filter(fits).collect() }
    }

    /// Returns the mean of a figure over the runs.
    fn mean(&self, figure: impl Fn(&Measurement) -> f64) -> f64 {
        let count = u32::try_from(self.rows.len()).map_or(f64::NAN, f64::from);
        self.rows.iter().map(|row| figure(&row.measured)).sum::<f64>() / count
    }

    /// Formats a percentile of the durations of all runs.
    fn percentile(&self, of: impl Fn(&Measurement) -> &[Duration], percent: usize) -> String {
        ms(self.duration(of, percent))
    }

    fn duration(
        &self,
        of: impl Fn(&Measurement) -> &[Duration],
        percent: usize,
    ) -> Option<Duration> {
        let all: Vec<_> =
            self.rows.iter().flat_map(|row| of(&row.measured).iter().copied()).collect();
        percentile(&all, percent)
    }

    /// Returns the throughput relative to another variant in the same run, for each run.
    fn ratios(&self, to: &Self) -> Vec<f64> {
        let ratio = |row: &&LoadRow| {
            let other = to.rows.iter().find(|other| other.run == row.run)?;
            Some(row.measured.throughput() / other.measured.throughput())
        };
        self.rows.iter().filter_map(ratio).collect()
    }

    fn ratio(&self, to: &Self) -> String {
        show_ratio(&self.ratios(to))
    }
}

fn concurrencies(all: &[LoadRow]) -> Vec<usize> {
    let mut found: Vec<_> = all.iter().map(|row| row.concurrency).collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn transitions(it: &Measurement) -> &[Duration] {
    &it.times.transitions
}

fn decisions(it: &Measurement) -> &[Duration] {
    &it.times.decisions
}

fn task_times(it: &Measurement) -> &[Duration] {
    &it.task_times
}

/// Columns of throughput and latency in a closed loop.
const SPEED: [&str; 12] = [
    "closed loop",
    "concurrent",
    "tasks",
    "tasks/s",
    "ratio to bare",
    "ratio to same children",
    "transition p50 ms",
    "p99 ms",
    "decision p50 ms",
    "p99 ms",
    "task p50 ms",
    "p99 ms",
];

/// Columns of the cost of a task in a closed loop.
const COST: [&str; 16] = [
    "per task",
    "concurrent",
    "CPU ms: worker",
    "child processes",
    "Temporal",
    "PostgreSQL",
    "total",
    "cores busy",
    "history events",
    "history bytes",
    "rows",
    "round trips",
    "WAL bytes",
    "database bytes",
    "git processes",
    "processes",
];

/// Columns of latency in an open loop.
const OPEN: [&str; 8] = [
    "open loop",
    "concurrent",
    "started/s",
    "transition p50 ms",
    "p99 ms",
    "task p50 ms",
    "p99 ms",
    "CPU ms per task",
];

/// Prints the tables. `processes` are the git processes and all processes of a task.
pub(super) fn print(all: &[LoadRow], processes: (usize, usize)) {
    let heading = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let [mut speed, mut cost, mut open] =
        [&SPEED[..], &COST[..], &OPEN[..]].map(|names| vec![heading(names)]);
    for concurrency in concurrencies(all) {
        let bare = LoadSummary::new(all, BARE, concurrency, false);
        let children = LoadSummary::new(all, CHILDREN, concurrency, false);
        for subject in SUBJECTS {
            let cell = LoadSummary::new(all, subject, concurrency, false);
            let tasks: usize = cell.rows.iter().map(|row| row.measured.tasks).sum();
            speed.push(vec![
                subject.to_owned(),
                concurrency.to_string(),
                tasks.to_string(),
                format!("{:.2}", cell.mean(Measurement::throughput)),
                cell.ratio(&bare),
                cell.ratio(&children),
                cell.percentile(transitions, 50),
                cell.percentile(transitions, 99),
                cell.percentile(decisions, 50),
                cell.percentile(decisions, 99),
                cell.percentile(task_times, 50),
                cell.percentile(task_times, 99),
            ]);
            cost.push(cost_row(&cell, subject, concurrency, processes));
            let cell = LoadSummary::new(all, subject, concurrency, true);
            if cell.rows.is_empty() {
                continue;
            }
            let rates: Vec<f64> = cell.rows.iter().filter_map(|row| row.rate).collect();
            let count = u32::try_from(rates.len()).map_or(f64::NAN, f64::from);
            open.push(vec![
                subject.to_owned(),
                concurrency.to_string(),
                format!("{:.2}", rates.iter().sum::<f64>() / count),
                cell.percentile(transitions, 50),
                cell.percentile(transitions, 99),
                cell.percentile(task_times, 50),
                cell.percentile(task_times, 99),
                format!("{:.1}", cell.mean(|it| it.each(it.total_cpu()))),
            ]);
        }
    }
    println!("\n{}", table(&speed));
    println!("{}", table(&cost));
    if open.len() > 1 {
        println!("{}", table(&open));
    }
    println!(
        "A ratio compares the throughput with that of another variant in the same run; it is the \
         geometric mean of the runs, with the 95% confidence interval. `{CHILDREN}` starts the recorded \
         child processes of a task of the loop in the same activities. In the open loop, all variants \
         start tasks at the same rate, half of the slowest one's throughput. A transition starts when \
         the task can move: its start, the end of a job, or a worker's update. It ends when the next job \
         starts, the worker gets its response, or the task closes. It includes local activities and \
         excludes regular ones. A decision is the part of it until the next job is scheduled or the task \
         closes; the rest is mostly the wait for a slot. Round trips are statements counted by pg_stat_statements. Child \
         processes are git, agents and gates; their number was counted in one task.\n"
    );
}

fn cost_row(
    cell: &LoadSummary<'_>,
    subject: &str,
    concurrency: usize,
    (git, processes): (usize, usize),
) -> Vec<String> {
    let one = |figure: fn(&Measurement) -> f64| format!("{:.1}", cell.mean(figure));
    let whole = |figure: fn(&Measurement) -> f64| format!("{:.0}", cell.mean(figure));
    let starts_children = subject == LOOP || subject == CHILDREN;
    let (git, processes) = if starts_children { (git, processes) } else { (0, 0) };
    vec![
        subject.to_owned(),
        concurrency.to_string(),
        one(|it| it.each(it.worker.own)),
        one(|it| it.each(it.worker.children)),
        one(|it| it.each(it.temporal)),
        one(|it| it.each(it.postgres)),
        one(|it| it.each(it.total_cpu())),
        format!("{:.2}", cell.mean(|it| it.total_cpu().as_secs_f64() / it.wall.as_secs_f64())),
        one(|it| it.events),
        whole(|it| it.bytes),
        one(|it| it.rows),
        one(|it| it.statements),
        whole(|it| it.wal),
        whole(|it| it.size),
        git.to_string(),
        processes.to_string(),
    ]
}

/// Returns the coefficients of `tamma capacity`: the cost of one task of the loop.
pub(super) fn coefficients(
    all: &[LoadRow],
    (git, processes): (usize, usize),
) -> Result<Vec<(&'static str, u64)>> {
    let cell = LoadSummary::new(all, LOOP, COEFFICIENT_LOAD, false);
    cell.rows.first().with_context(|| {
        format!("the coefficients need a measurement with {COEFFICIENT_LOAD} concurrent tasks")
    })?;
    let rounded = |figure: fn(&Measurement) -> f64| -> Result<u64> {
        Ok(format!("{:.0}", cell.mean(figure)).parse()?)
    };
    Ok(vec![
        ("worker_cpu_us", rounded(|it| 1000.0 * it.each(it.worker.own))?),
        ("children_cpu_us", rounded(|it| 1000.0 * it.each(it.worker.children))?),
        ("temporal_cpu_us", rounded(|it| 1000.0 * it.each(it.temporal))?),
        ("postgres_cpu_us", rounded(|it| 1000.0 * it.each(it.postgres))?),
        ("history_events", rounded(|it| it.events)?),
        ("history_bytes", rounded(|it| it.bytes)?),
        ("rows", rounded(|it| it.rows)?),
        ("round_trips", rounded(|it| it.statements)?),
        ("wal_bytes", rounded(|it| it.wal)?),
        ("database_bytes", rounded(|it| it.size)?),
        ("git_processes", u64::try_from(git)?),
        ("processes", u64::try_from(processes)?),
    ])
}

/// Targets met and set.
#[derive(Default)]
struct Targets {
    met: u32,
    all: u32,
}

impl Targets {
    fn check(&mut self, is_met: bool, what: &str, measured: &str) {
        self.all += 1;
        self.met += u32::from(is_met);
        let verdict = if is_met { "met" } else { "missed" };
        println!("target: {what}: {verdict}, measured {measured}");
    }
}

pub(super) fn judge(all: &[LoadRow]) -> Verdict {
    let mut targets = Targets::default();
    for concurrency in concurrencies(all) {
        let of = |subject| LoadSummary::new(all, subject, concurrency, false);
        let (bare, children, stubbed, full) = (of(BARE), of(CHILDREN), of(STUBBED), of(LOOP));
        for (cell, to, target, what) in [
            (&full, &children, RATIO, "with the same children"),
            (&stubbed, &bare, NO_OP_RATIO, "with jobs that do nothing"),
        ] {
            let ratios = cell.ratios(to);
            let is_met = mean_ratio(&ratios).is_some_and(|mean| mean >= target);
            let what = format!(
                "throughput ratio of at least {target} {what}, {concurrency} concurrent tasks"
            );
            targets.check(is_met, &what, &show_ratio(&ratios));
        }
        let own = |cell: &LoadSummary<'_>| cell.mean(|it| it.each(it.worker.own));
        let ratio = own(&full) / own(&children);
        let what = format!(
            "at most {WORKER_CPU} times the CPU of a bare worker, {concurrency} concurrent tasks"
        );
        let measured = format!("{ratio:.2}; per task: {}", cpu_breakdown(&full, &children));
        targets.check(ratio <= WORKER_CPU, &what, &measured);
        if concurrency == TRANSITION_LOAD {
            let p99 = full.duration(transitions, 99);
            let what =
                format!("transition p99 under {} ms with {concurrency}", ms(Some(TRANSITION)));
            let measured = format!(
                "{} ms (bare {} ms, same children {} ms); until the next job was scheduled: {} ms (bare \
                 {} ms, same children {} ms)",
                ms(p99),
                bare.percentile(transitions, 99),
                children.percentile(transitions, 99),
                full.percentile(decisions, 99),
                bare.percentile(decisions, 99),
                children.percentile(decisions, 99)
            );
            targets.check(p99.is_some_and(|p99| p99 < TRANSITION), &what, &measured);
        }
    }
    let highest = |figure: fn(&Measurement) -> f64| {
        let full = all.iter().filter(|row| row.subject == LOOP && row.rate.is_none());
        full.map(|row| figure(&row.measured)).fold(0.0, f64::max)
    };
    let events = highest(|it| it.events);
    let what = format!("at most {EVENTS} history events");
    targets.check(events <= EVENTS, &what, &format!("{events:.1}"));
    let trips = highest(|it| it.statements);
    let what = format!("at most {ROUND_TRIPS} database round trips");
    targets.check(trips <= ROUND_TRIPS, &what, &format!("{trips:.1}"));
    let Targets { met, all } = targets;
    Verdict::new(met == all, format!("{met} of {all} targets met"))
}

/// Describes the CPU time of a task by process, highest first, compared with another variant.
fn cpu_breakdown(full: &LoadSummary<'_>, other: &LoadSummary<'_>) -> String {
    let of = |cell: &LoadSummary<'_>| {
        [
            ("git, agents and gates", cell.mean(|it| it.each(it.worker.children))),
            ("the worker itself", cell.mean(|it| it.each(it.worker.own))),
            ("Temporal", cell.mean(|it| it.each(it.temporal))),
            ("PostgreSQL", cell.mean(|it| it.each(it.postgres))),
        ]
    };
    let mut parts: Vec<_> = of(full).into_iter().zip(of(other)).collect();
    parts.sort_by(|one, two| two.0.1.total_cmp(&one.0.1));
    let texts: Vec<_> = parts
        .into_iter()
        .map(|((name, ms), (_, other))| format!("{name} {ms:.0} ms (bare {other:.0})"))
        .collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(run: u32, subject: &'static str, seconds: u64) -> LoadRow {
        let measured = Measurement {
            tasks: 100,
            wall: Duration::from_secs(seconds),
            events: 64.0,
            ..Measurement::default()
        };
        LoadRow { run, concurrency: COEFFICIENT_LOAD, rate: None, subject, measured }
    }

    #[test]
    fn a_ratio_compares_variants_of_the_same_run() {
        let all = [row(1, LOOP, 20), row(2, LOOP, 10), row(2, CHILDREN, 5), row(1, CHILDREN, 10)];
        let [full, children] = [LOOP, CHILDREN]
            .map(|subject| LoadSummary::new(&all, subject, COEFFICIENT_LOAD, false));
        assert_eq!(full.ratio(&children), "0.50 (0.50 to 0.50)");
        assert_eq!(LoadSummary::new(&all, BARE, 1, false).ratio(&children), "-");
    }

    #[test]
    fn coefficients_come_from_the_loop_at_one_load() {
        let all = [row(1, LOOP, 20), row(1, BARE, 1)];
        let found = coefficients(&all, (42, 50)).expect("measured");
        assert!(found.contains(&("history_events", 64)) && found.contains(&("git_processes", 42)));
        assert!(coefficients(&all[1..], (42, 50)).is_err());
    }
}
