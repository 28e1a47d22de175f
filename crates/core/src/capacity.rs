//! Machines that a load needs, estimated from the measured cost of tasks.
//!
//! The costs come from [`Coefficients`], which the benchmarks write. An estimate multiplies them: it
//! assumes that ten times the tasks need ten times the CPU time and memory. Numbers that nobody measured
//! are inputs: the machine, the peak, and what an agent itself uses.

use std::sync::LazyLock;

use chrono::NaiveDate;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, IntoEnumIterator as _};

use crate::cost::Usd;

/// Numbers of open tasks for which an estimate names the busiest components.
pub const LIVE_TASKS: [u64; 3] = [10_000, 100_000, 1_000_000];

/// Maximum number of workflows that a worker keeps in memory, at some 130 kB each. The others are replayed
/// from their histories when they move.
pub const CACHED_WORKFLOWS: u32 = 200;

const MINUTES_PER_DAY: u128 = 24 * 60;
const SECONDS_PER_DAY: u128 = MINUTES_PER_DAY * 60;

/// Microseconds per second in a thousandth of a core.
const MICROS_PER_MILLICORE: u128 = 1_000;

/// Days of a month, for prices.
const DAYS_PER_MONTH: u64 = 30;

/// Largest number of tasks per day that is searched for.
const MOST_TASKS: u64 = 1_000_000_000;

/// Cost of tasks, with date and commit of each measurement. `capacity/coefficients.yaml` has the sources.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Coefficients {
    /// Cost of a whole task.
    #[serde(rename = "loop")]
    pub task_loop: LoopCost,
    /// Cost of a task that awaits approval.
    pub waiting: WaitingCost,
    /// Cost of a running agent to its worker.
    pub agents: AgentCost,
    /// Memory of the built-in agents.
    pub built_in_agents: AgentMemory,
}

/// Cost of one low-risk task with a scripted agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoopCost {
    /// Day of the measurement.
    pub measured: NaiveDate,
    /// Measured build.
    pub commit: String,
    /// CPU time of the worker process.
    pub worker_cpu_us: u64,
    /// CPU time of git, scripted agents and gates.
    pub children_cpu_us: u64,
    /// CPU time of Temporal.
    pub temporal_cpu_us: u64,
    /// CPU time of PostgreSQL.
    pub postgres_cpu_us: u64,
    /// Events of the workflow history.
    pub history_events: u64,
    /// Size of the workflow history.
    pub history_bytes: u64,
    /// Rows in the database.
    pub rows: u64,
    /// Statements sent to the database.
    pub round_trips: u64,
    /// Bytes of the write-ahead log, if measured.
    #[serde(default)]
    pub wal_bytes: Option<u64>,
    /// Growth of the database, if measured.
    #[serde(default)]
    pub database_bytes: Option<u64>,
    /// Git processes, if counted.
    #[serde(default)]
    pub git_processes: Option<u64>,
    /// Processes, if counted.
    #[serde(default)]
    pub processes: Option<u64>,
}

/// Cost of one task that awaits approval.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitingCost {
    /// Day of the measurement.
    pub measured: NaiveDate,
    /// Measured build.
    pub commit: String,
    /// Memory of the worker, for a cached workflow.
    pub worker_memory_bytes: u64,
    /// Memory of Temporal.
    pub temporal_memory_bytes: u64,
    /// Growth of Temporal's files.
    pub temporal_disk_bytes: u64,
    /// Rows in the database.
    pub rows: u64,
    /// Size of the database.
    pub database_bytes: u64,
}

/// Cost of one running agent to its worker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentCost {
    /// Day of the measurement.
    pub measured: NaiveDate,
    /// Measured build.
    pub commit: String,
    /// Memory of the worker for a slot.
    pub slot_memory_bytes: u64,
    /// CPU time of the worker per second, while the agent waits for its model and writes nothing.
    pub worker_cpu_us_per_second: u64,
}

/// Memory of one process of a built-in agent: a note of that day, which no benchmark repeats.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentMemory {
    /// Day of the note.
    pub measured: NaiveDate,
    /// Commit that recorded it.
    pub commit: String,
    /// Smallest agent.
    pub min_memory_bytes: u64,
    /// Largest agent.
    pub max_memory_bytes: u64,
}

// A test fails if the file cannot be parsed.
static BUILT_IN: LazyLock<Coefficients> = LazyLock::new(|| {
    serde_saphyr::from_str(include_str!("capacity/coefficients.yaml")).unwrap_or_default()
});

impl Coefficients {
    /// Returns the coefficients of this build.
    pub fn built_in() -> &'static Self {
        &BUILT_IN
    }
}

/// Load of an installation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Demand {
    /// Tasks per day.
    pub tasks_per_day: u64,
    /// Minutes for which agents work on a task, over all runs.
    pub agent_minutes: u64,
    /// Load at the peak, as a multiple of the average.
    pub peak_factor: u64,
    /// Days for which a task is open.
    pub open_days: u64,
    /// CPU of a running agent with its commands, in thousandths of a core.
    pub agent_millicores: u64,
    /// Memory of a running agent with its commands.
    pub agent_memory_bytes: u64,
}

/// Machine of an installation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Number of cores.
    pub cores: u64,
    /// Memory.
    pub memory_bytes: u64,
    /// Share of cores and memory that the peak may use, in percent.
    pub utilisation_percent: u64,
}

/// Part of an installation that can run on a machine of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Display, EnumIter, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Component {
    /// Agents, gates and git.
    #[strum(serialize = "agents")]
    Agents,
    /// Worker processes.
    #[strum(serialize = "worker")]
    Worker,
    /// Temporal.
    Temporal,
    /// PostgreSQL with Tamma's database.
    #[strum(serialize = "PostgreSQL")]
    Database,
}

/// Resource of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// Processor cores.
    #[strum(serialize = "CPU")]
    Cpu,
    /// Memory.
    #[strum(serialize = "memory")]
    Memory,
}

/// Peak use of a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ComponentUse {
    /// Component.
    pub component: Component,
    /// CPU, in thousandths of a core.
    pub cpu_millicores: u64,
    /// Memory. That of PostgreSQL is its configuration, and not counted.
    pub memory_bytes: u64,
    /// Largest share of one machine's planned CPU or memory, in percent.
    pub machine_percent: u64,
    /// Resource with that share.
    pub resource: Resource,
}

/// Estimate for a load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Estimate {
    /// Use of each component at the peak.
    pub uses: Vec<ComponentUse>,
    /// Agents that run at the peak.
    pub agents: u64,
    /// Open tasks.
    pub live_tasks: u64,
    /// `true` if one machine carries everything, as with `tamma up`.
    pub is_one_machine: bool,
    /// Machines for workers with their agents.
    pub worker_machines: u64,
    /// Machines for Temporal.
    pub temporal_machines: u64,
    /// Databases: each is a cell with its own primary, for some of the projects.
    pub databases: u64,
    /// All machines.
    pub machines: u64,
    /// Size of Temporal's files for the open tasks.
    pub temporal_disk_bytes: u64,
    /// Size of the database for the open tasks.
    pub database_disk_bytes: u64,
    /// Daily growth of the database, if measured. Retention limits it.
    pub database_bytes_per_day: Option<u64>,
    /// Daily write-ahead log, if measured.
    pub wal_bytes_per_day: Option<u64>,
    /// Most tasks per day that one such machine carries.
    pub one_machine_tasks_per_day: u64,
    /// Component and resource that end it.
    pub one_machine_limit: ComponentUse,
}

/// Busiest components with a number of open tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Saturation {
    /// Open tasks.
    pub live_tasks: u64,
    /// Tasks per day that keep so many open.
    pub tasks_per_day: u64,
    /// Component with the largest share of a machine.
    pub first: ComponentUse,
    /// Same among those that all workers share: Temporal and PostgreSQL.
    pub first_shared: ComponentUse,
    /// All machines.
    pub machines: u64,
}

/// Estimates what a load needs.
pub fn estimate(demand: &Demand, machine: &Machine, costs: &Coefficients) -> Estimate {
    let uses = component_uses(demand, machine, costs);
    let of = |wanted: &[Component]| -> Vec<ComponentUse> {
        uses.iter().filter(|it| wanted.contains(&it.component)).copied().collect()
    };
    let is_one_machine = machine.count(&uses) == 1;
    let [workers, temporal, databases] = [
        &[Component::Agents, Component::Worker][..],
        &[Component::Temporal][..],
        &[Component::Database][..],
    ]
    .map(|components| machine.count(&of(components)));
    let apart = workers.saturating_add(temporal).saturating_add(databases);
    let tasks = one_machine_tasks(demand, machine, costs);
    let full = Demand { tasks_per_day: tasks.max(1), ..demand.clone() };
    let live_tasks = demand.live_tasks();
    Estimate {
        agents: demand.agents(),
        live_tasks,
        is_one_machine,
        worker_machines: workers,
        temporal_machines: temporal,
        databases,
        machines: if is_one_machine { 1 } else { apart },
        temporal_disk_bytes: live_tasks.saturating_mul(costs.waiting.temporal_disk_bytes),
        database_disk_bytes: live_tasks.saturating_mul(costs.waiting.database_bytes),
        database_bytes_per_day: per_day(demand, costs.task_loop.database_bytes),
        wal_bytes_per_day: per_day(demand, costs.task_loop.wal_bytes),
        one_machine_tasks_per_day: tasks,
        one_machine_limit: busiest(&component_uses(&full, machine, costs)),
        uses,
    }
}

/// Returns the busiest components for a number of open tasks, with the other inputs of `demand`.
pub fn saturation(
    live_tasks: u64,
    demand: &Demand,
    machine: &Machine,
    costs: &Coefficients,
) -> Saturation {
    let tasks_per_day = live_tasks.div_ceil(demand.open_days.max(1));
    let demand = Demand { tasks_per_day, ..demand.clone() };
    let estimate = estimate(&demand, machine, costs);
    let shared: Vec<_> = estimate
        .uses
        .iter()
        .filter(|it| matches!(it.component, Component::Temporal | Component::Database))
        .copied()
        .collect();
    Saturation {
        live_tasks,
        tasks_per_day,
        first: busiest(&estimate.uses),
        first_shared: busiest(&shared),
        machines: estimate.machines,
    }
}

/// Returns the price per month of an installation, and its share for one task.
pub fn price(demand: &Demand, machines: u64, machine_month: Usd) -> (Usd, Option<Usd>) {
    let month = machine_month.saturating_mul(machines);
    let tasks = demand.tasks_per_day.saturating_mul(DAYS_PER_MONTH);
    (month, month.checked_div(tasks))
}

impl Demand {
    /// Returns the number of open tasks.
    fn live_tasks(&self) -> u64 {
        self.tasks_per_day.saturating_mul(self.open_days)
    }

    /// Returns the number of tasks at the peak, as if it lasted a day.
    fn peak_tasks(&self) -> u128 {
        u128::from(self.tasks_per_day).saturating_mul(u128::from(self.peak_factor))
    }

    /// Returns the number of agents that run at the peak.
    fn agents(&self) -> u64 {
        let minutes = self.peak_tasks().saturating_mul(u128::from(self.agent_minutes));
        narrow(minutes.div_ceil(MINUTES_PER_DAY))
    }

    /// Returns the CPU at the peak for a cost per task, in thousandths of a core.
    fn millicores(&self, cpu_us: u64) -> u64 {
        let micros = self.peak_tasks().saturating_mul(u128::from(cpu_us));
        narrow(micros.div_ceil(SECONDS_PER_DAY * MICROS_PER_MILLICORE))
    }
}

impl Machine {
    fn planned_millicores(&self) -> u64 {
        // Per cent of cores, in thousandths.
        self.cores.saturating_mul(self.utilisation_percent).saturating_mul(10).max(1)
    }

    fn planned_memory(&self) -> u64 {
        let memory = u128::from(self.memory_bytes) * u128::from(self.utilisation_percent) / 100;
        narrow(memory).max(1)
    }

    /// Returns the number of machines that carry some components together; at least one.
    fn count(&self, uses: &[ComponentUse]) -> u64 {
        let sum = |of: fn(&ComponentUse) -> u64| uses.iter().map(of).fold(0, u64::saturating_add);
        let cpu = sum(|it| it.cpu_millicores).div_ceil(self.planned_millicores());
        let memory = sum(|it| it.memory_bytes).div_ceil(self.planned_memory());
        cpu.max(memory).max(1)
    }

    fn component_use(
        &self,
        component: Component,
        (cpu_millicores, memory_bytes): (u64, u64),
    ) -> ComponentUse {
        let percent = |used: u64, planned: u64| {
            narrow((u128::from(used) * 100).div_ceil(u128::from(planned)))
        };
        let cpu = percent(cpu_millicores, self.planned_millicores());
        let memory = percent(memory_bytes, self.planned_memory());
        let (machine_percent, resource) =
            if memory > cpu { (memory, Resource::Memory) } else { (cpu, Resource::Cpu) };
        ComponentUse { component, cpu_millicores, memory_bytes, machine_percent, resource }
    }
}

fn component_uses(demand: &Demand, machine: &Machine, costs: &Coefficients) -> Vec<ComponentUse> {
    let (agents, live) = (demand.agents(), demand.live_tasks());
    let (task, waiting) = (&costs.task_loop, &costs.waiting);
    let watching = agents.saturating_mul(costs.agents.worker_cpu_us_per_second).div_ceil(1_000);
    let slots = agents.saturating_mul(costs.agents.slot_memory_bytes);
    Component::iter()
        .map(|component| {
            let used = match component {
                Component::Agents => (
                    demand
                        .millicores(task.children_cpu_us)
                        .saturating_add(agents.saturating_mul(demand.agent_millicores)),
                    agents.saturating_mul(demand.agent_memory_bytes),
                ),
                Component::Worker => (
                    demand.millicores(task.worker_cpu_us).saturating_add(watching),
                    live.min(CACHED_WORKFLOWS.into())
                        .saturating_mul(waiting.worker_memory_bytes)
                        .saturating_add(slots),
                ),
                Component::Temporal => (
                    demand.millicores(task.temporal_cpu_us),
                    live.saturating_mul(waiting.temporal_memory_bytes),
                ),
                Component::Database => (demand.millicores(task.postgres_cpu_us), 0),
            };
            machine.component_use(component, used)
        })
        .collect()
}

/// Returns the component with the largest share of a machine.
fn busiest(uses: &[ComponentUse]) -> ComponentUse {
    let none = ComponentUse {
        component: Component::Agents,
        cpu_millicores: 0,
        memory_bytes: 0,
        machine_percent: 0,
        resource: Resource::Cpu,
    };
    uses.iter()
        .copied()
        .fold(none, |most, it| if it.machine_percent > most.machine_percent { it } else { most })
}

/// Returns the most tasks per day that one machine carries.
fn one_machine_tasks(demand: &Demand, machine: &Machine, costs: &Coefficients) -> u64 {
    let fits = |tasks_per_day: u64| {
        let demand = Demand { tasks_per_day, ..demand.clone() };
        machine.count(&component_uses(&demand, machine, costs)) == 1
    };
    let (mut low, mut high) = (0, MOST_TASKS);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if fits(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

fn per_day(demand: &Demand, per_task: Option<u64>) -> Option<u64> {
    per_task.map(|each| each.saturating_mul(demand.tasks_per_day))
}

fn narrow(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}
