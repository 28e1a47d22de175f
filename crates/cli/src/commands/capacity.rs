//! `tamma capacity`: machines, databases and cost of a load, from measured costs of tasks.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use clap::value_parser;
use serde::Serialize;
use tamma_core::capacity::{
    self, Coefficients, Component, ComponentUse, Demand, Estimate, LIVE_TASKS, Machine, Resource,
    Saturation,
};
use tamma_core::cost::Usd;
use tamma_core::format::{format_number, format_usd, pluralize};

use super::task::list::{new_table, render_table};
use crate::output;
use crate::style::push_fmt;

const GB: u64 = 1_000_000_000;
const MB: u64 = 1_000_000;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Tasks per day
    #[arg(long, value_name = "COUNT", value_parser = value_parser!(u64).range(1..=1_000_000_000))]
    tasks_per_day: u64,
    /// Minutes for which agents work on a task, over all runs
    #[arg(long, value_name = "MINUTES", default_value_t = 20, value_parser = value_parser!(u64).range(0..=10_000))]
    agent_minutes: u64,
    /// Load at the peak, as a multiple of the average
    #[arg(long, value_name = "FACTOR", default_value_t = 3, value_parser = value_parser!(u64).range(1..=100))]
    peak: u64,
    /// Days for which a task is open, including the time it waits for people
    #[arg(long, value_name = "DAYS", default_value_t = 1, value_parser = value_parser!(u64).range(0..=1_000))]
    open_days: u64,
    /// CPU of a running agent with its commands, in percent of a core
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = value_parser!(u64).range(0..=10_000))]
    agent_cpu: u64,
    #[arg(long, value_name = "MB", value_parser = value_parser!(u64).range(1..=1_000_000), help = "Memory of a running agent with its commands [default: that of the largest built-in agent]")]
    agent_memory: Option<u64>,
    /// Cores of a machine
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = value_parser!(u64).range(1..=10_000))]
    cores: u64,
    /// Memory of a machine
    #[arg(long, value_name = "GB", default_value_t = 32, value_parser = value_parser!(u64).range(1..=100_000))]
    memory: u64,
    /// Share of cores and memory that the peak may use, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 70, value_parser = value_parser!(u64).range(1..=100))]
    utilisation: u64,
    /// Price of a machine per month, in US dollars
    #[arg(long, value_name = "USD")]
    machine_usd: Option<Usd>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Result, as `--json` prints it.
#[derive(Debug, Serialize)]
struct CapacityReport<'a> {
    demand: &'a Demand,
    machine: &'a Machine,
    estimate: &'a Estimate,
    /// `None` without a price of a machine.
    usd_per_month: Option<Usd>,
    usd_per_task: Option<Usd>,
    saturation: &'a [Saturation],
    coefficients: &'a Coefficients,
}

pub(super) fn run(arguments: &Args) -> Result<ExitCode> {
    let costs = Coefficients::built_in();
    let largest = costs.built_in_agents.max_memory_bytes;
    let demand = Demand {
        tasks_per_day: arguments.tasks_per_day,
        agent_minutes: arguments.agent_minutes,
        peak_factor: arguments.peak,
        open_days: arguments.open_days,
        agent_millicores: arguments.agent_cpu * 10,
        agent_memory_bytes: arguments.agent_memory.map_or(largest, |memory| memory * MB),
    };
    let machine = Machine {
        cores: arguments.cores,
        memory_bytes: arguments.memory * GB,
        utilisation_percent: arguments.utilisation,
    };
    let estimate = capacity::estimate(&demand, &machine, costs);
    let saturation = LIVE_TASKS.map(|live| capacity::saturation(live, &demand, &machine, costs));
    let price = arguments.machine_usd.map(|usd| capacity::price(&demand, estimate.machines, usd));
    let report = CapacityReport {
        demand: &demand,
        machine: &machine,
        estimate: &estimate,
        usd_per_month: price.map(|(month, _)| month),
        usd_per_task: price.and_then(|(_, task)| task),
        saturation: &saturation,
        coefficients: costs,
    };
    if arguments.json {
        output::print_json(&report)?;
    } else {
        writeln!(anstream::stdout().lock(), "{}", format_report(&report))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn format_report(report: &CapacityReport<'_>) -> String {
    let CapacityReport { demand, machine, estimate, coefficients: costs, .. } = report;
    let mut text = format!(
        "{} tasks per day: {} open, {} running at the peak\n\n",
        format_number(demand.tasks_per_day),
        format_number(estimate.live_tasks),
        pluralize(estimate.agents, "agent"),
    );
    let mut table = new_table(&["COMPONENT", "CORES", "MEMORY", "OF ONE MACHINE"]);
    for used in &estimate.uses {
        let memory = match used.component {
            Component::Database => "-".to_owned(),
            Component::Agents | Component::Worker | Component::Temporal => {
                gigabytes(used.memory_bytes)
            }
        };
        let share = format!("{}% of its {}", format_number(used.machine_percent), used.resource);
        table.add_row([used.component.to_string(), cores(used.cpu_millicores), memory, share]);
    }
    text += &render_table(&table);
    push_fmt(&mut text, format_args!("\n\n{}", format_machines(report)));
    push_fmt(
        &mut text,
        format_args!(
            "\nDisk for open tasks: Temporal {}, PostgreSQL {}",
            gigabytes(estimate.temporal_disk_bytes),
            gigabytes(estimate.database_disk_bytes)
        ),
    );
    let daily = |bytes: Option<u64>| bytes.map_or("not measured".to_owned(), gigabytes);
    push_fmt(
        &mut text,
        format_args!(
            "\nPostgreSQL per day: growth {}, write-ahead log {}",
            daily(estimate.database_bytes_per_day),
            daily(estimate.wal_bytes_per_day)
        ),
    );
    push_fmt(&mut text, format_args!("\n\n{}", format_one_machine(estimate)));
    text += "\n\nWith many open tasks:\n\n";
    text += &format_saturation(report.saturation);
    push_fmt(&mut text, format_args!("\n\n{}", format_costs(costs)));
    push_fmt(
        &mut text,
        format_args!(
            "\nAssumed: {} agent minutes per task, peak {} times the average, tasks open for {}, agents \
             with {} of a core and {}; machines with {} and {}, used to {}%. Change these with options \
             (`tamma capacity --help`).",
            demand.agent_minutes,
            demand.peak_factor,
            pluralize(demand.open_days, "day"),
            cores(demand.agent_millicores),
            gigabytes(demand.agent_memory_bytes),
            pluralize(machine.cores, "core"),
            gigabytes(machine.memory_bytes),
            machine.utilisation_percent,
        ),
    );
    text
}

fn format_machines(report: &CapacityReport<'_>) -> String {
    let estimate = report.estimate;
    let mut text = if estimate.is_one_machine {
        "1 machine with `tamma up`, 1 database".to_owned()
    } else {
        format!(
            "{}: {} for workers and agents, {} for Temporal, {}",
            pluralize(estimate.machines, "machine"),
            estimate.worker_machines,
            estimate.temporal_machines,
            pluralize(estimate.databases, "database"),
        )
    };
    match (report.usd_per_month, report.usd_per_task) {
        (Some(month), Some(task)) => push_fmt(
            &mut text,
            format_args!(
                "\nCost: {} per month, {} per task, without models",
                format_usd(month),
                format_usd(task)
            ),
        ),
        _ => text += "\nCost: unknown; pass --machine-usd with the price of a machine per month",
    }
    text
}

fn format_one_machine(estimate: &Estimate) -> String {
    let limit = estimate.one_machine_limit;
    format!(
        "One machine with `tamma up` carries up to {} tasks per day; {} {} ends it. Move when runs wait \
         for a slot (`tamma agents`) although its CPU or memory is used up, or when it must survive the \
         loss of a machine.",
        format_number(estimate.one_machine_tasks_per_day),
        limit.resource,
        match limit.component {
            Component::Agents => "of agents",
            Component::Worker => "of the worker",
            Component::Temporal => "of Temporal",
            Component::Database => "of PostgreSQL",
        }
    )
}

fn format_saturation(rows: &[Saturation]) -> String {
    let mut table =
        new_table(&["OPEN TASKS", "TASKS PER DAY", "MACHINES", "FIRST", "FIRST SHARED", "REMEDY"]);
    let show = |used: &ComponentUse| {
        format!("{} {}: {}%", used.component, used.resource, format_number(used.machine_percent))
    };
    for row in rows {
        table.add_row([
            format_number(row.live_tasks),
            format_number(row.tasks_per_day),
            format_number(row.machines),
            show(&row.first),
            show(&row.first_shared),
            remedy(&row.first_shared).to_owned(),
        ]);
    }
    render_table(&table)
}

/// Returns what helps when a component is at its limit.
fn remedy(used: &ComponentUse) -> &'static str {
    if used.machine_percent <= 100 {
        return "more worker machines";
    }
    match (used.component, used.resource) {
        (Component::Agents | Component::Worker, _) => "more worker machines",
        (Component::Temporal, Resource::Memory) => "Temporal on PostgreSQL, several history nodes",
        (Component::Temporal, Resource::Cpu) => "more history shards and nodes, then more clusters",
        (Component::Database, _) => "a larger primary, then a cell per organisation",
    }
}

fn format_costs(costs: &Coefficients) -> String {
    let (task, waiting) = (&costs.task_loop, &costs.waiting);
    let optional = |count: Option<u64>, noun: &str| match count {
        Some(count) => format!("{} {noun}", format_number(count)),
        None => format!("{noun} not measured"),
    };
    format!(
        "A task costs {} ms of CPU (worker {}, git and gates {}, Temporal {}, PostgreSQL {}), {} history \
         events ({} kB), {} rows, {} round trips, {}, {} ({} with others). While it waits: {} kB of \
         memory in Temporal, {} rows.\n\
         Measured: task loop {} at {}, waiting tasks {} at {}, running agents {} at {}, memory of \
         built-in agents {} at {} ({} to {}).",
        (task.worker_cpu_us + task.children_cpu_us + task.temporal_cpu_us + task.postgres_cpu_us)
            / 1_000,
        task.worker_cpu_us / 1_000,
        task.children_cpu_us / 1_000,
        task.temporal_cpu_us / 1_000,
        task.postgres_cpu_us / 1_000,
        task.history_events,
        task.history_bytes / 1_000,
        task.rows,
        task.round_trips,
        optional(task.wal_bytes.map(|bytes| bytes / 1_000), "kB of write-ahead log"),
        optional(task.git_processes, "git processes"),
        optional(task.processes, "processes"),
        waiting.temporal_memory_bytes / 1_000,
        waiting.rows,
        task.measured,
        task.commit,
        waiting.measured,
        waiting.commit,
        costs.agents.measured,
        costs.agents.commit,
        costs.built_in_agents.measured,
        costs.built_in_agents.commit,
        gigabytes(costs.built_in_agents.min_memory_bytes),
        gigabytes(costs.built_in_agents.max_memory_bytes),
    )
}

/// Formats thousandths of a core with one decimal, rounded up.
fn cores(millicores: u64) -> String {
    let tenths = millicores.div_ceil(100);
    format!("{}.{}", format_number(tenths / 10), tenths % 10)
}

/// Formats bytes as gigabytes with one decimal, rounded up.
fn gigabytes(bytes: u64) -> String {
    let tenths = bytes.div_ceil(GB / 10);
    format!("{}.{} GB", format_number(tenths / 10), tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_rounded_up_to_tenths() {
        assert_eq!((cores(0), cores(1), cores(1_250)), ("0.0".into(), "0.1".into(), "1.3".into()));
        assert_eq!(gigabytes(32 * GB), "32.0 GB");
        assert_eq!(gigabytes(1), "0.1 GB");
    }

    #[test]
    fn a_shared_component_below_its_limit_needs_no_remedy_of_its_own() {
        let used = |machine_percent| ComponentUse {
            component: Component::Temporal,
            cpu_millicores: 0,
            memory_bytes: 0,
            machine_percent,
            resource: Resource::Memory,
        };
        assert_eq!(remedy(&used(100)), "more worker machines");
        assert!(remedy(&used(101)).starts_with("Temporal on PostgreSQL"));
    }
}
