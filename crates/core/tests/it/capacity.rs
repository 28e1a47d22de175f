//! Estimates of the machines that a load needs.

use chrono::NaiveDate;
use proptest::prelude::*;
use tamma_core::capacity::{
    Coefficients, Component, Demand, LIVE_TASKS, Machine, estimate, price, saturation,
};
use tamma_core::cost::Usd;

const GIB: u64 = 1 << 30;

fn demand(tasks_per_day: u64) -> Demand {
    Demand {
        tasks_per_day,
        agent_minutes: 20,
        peak_factor: 3,
        open_days: 1,
        agent_millicores: 500,
        agent_memory_bytes: GIB,
    }
}

fn machine() -> Machine {
    Machine { cores: 8, memory_bytes: 32 * GIB, utilisation_percent: 70 }
}

fn demands() -> impl Strategy<Value = Demand> {
    (0..10_000_000_u64, 0..600_u64, 1..20_u64, 0..400_u64, 0..8_000_u64, 0..64 * GIB).prop_map(
        |(tasks_per_day, agent_minutes, peak_factor, open_days, millicores, memory)| Demand {
            tasks_per_day,
            agent_minutes,
            peak_factor,
            open_days,
            agent_millicores: millicores,
            agent_memory_bytes: memory,
        },
    )
}

fn machines() -> impl Strategy<Value = Machine> {
    (1..256_u64, 1..1_024_u64, 1..=100_u64).prop_map(|(cores, gib, utilisation_percent)| Machine {
        cores,
        memory_bytes: gib * GIB,
        utilisation_percent,
    })
}

#[test]
fn the_built_in_coefficients_are_dated_and_complete() {
    let costs = Coefficients::built_in();
    let first = NaiveDate::from_ymd_opt(2026, 11, 1).expect("a day");
    for (measured, commit) in [
        (costs.task_loop.measured, &costs.task_loop.commit),
        (costs.waiting.measured, &costs.waiting.commit),
        (costs.agents.measured, &costs.agents.commit),
        (costs.built_in_agents.measured, &costs.built_in_agents.commit),
    ] {
        assert!(measured >= first && commit.len() == 7, "{measured} {commit}");
    }
    assert!(costs.task_loop.worker_cpu_us > 0 && costs.waiting.temporal_memory_bytes > 0);
    assert!(costs.agents.slot_memory_bytes > 0);
    assert!(costs.built_in_agents.min_memory_bytes < costs.built_in_agents.max_memory_bytes);
}

#[test]
fn a_small_team_needs_one_machine() {
    let small = estimate(&demand(20), &machine(), Coefficients::built_in());
    assert!(small.is_one_machine);
    assert_eq!((small.machines, small.databases), (1, 1));
    // 20 tasks, 20 minutes each, three times the average: 0.8 agents.
    assert_eq!(small.agents, 1);
}

#[test]
fn agents_fill_machines_before_anything_shared_does() {
    let costs = Coefficients::built_in();
    for live_tasks in LIVE_TASKS {
        let found = saturation(live_tasks, &demand(1), &machine(), costs);
        assert_eq!(found.first.component, Component::Agents);
        assert_eq!(found.first_shared.component, Component::Temporal);
    }
}

#[test]
fn tasks_that_wait_fill_the_memory_of_temporal_first() {
    let waiting = Demand { agent_minutes: 0, open_days: 365, ..demand(1) };
    let found = saturation(1_000_000, &waiting, &machine(), Coefficients::built_in());
    assert_eq!(found.tasks_per_day, 2_740);
    assert_eq!(found.first, found.first_shared);
    assert_eq!(found.first.component, Component::Temporal);
    assert!(found.first.machine_percent > 100);
}

#[test]
fn a_price_is_shared_by_the_tasks_of_a_month() {
    let machine_month = Usd::from_cents(30_000);
    let (month, each) = price(&demand(10), 2, machine_month);
    assert_eq!((month, each), (Usd::from_cents(60_000), Some(Usd::from_cents(200))));
    assert_eq!(price(&demand(0), 1, machine_month).1, None);
}

proptest! {
    #[test]
    fn every_installation_has_a_machine_and_a_database(demand in demands(), machine in machines()) {
        let found = estimate(&demand, &machine, Coefficients::built_in());
        prop_assert!(found.machines >= 1 && found.databases >= 1);
        prop_assert!(found.worker_machines >= 1 && found.temporal_machines >= 1);
        prop_assert_eq!(found.is_one_machine, found.machines == 1);
    }

    #[test]
    fn more_tasks_never_need_less(demand in demands(), machine in machines(), more in 0..1_000_000_u64) {
        let costs = Coefficients::built_in();
        let larger = Demand { tasks_per_day: demand.tasks_per_day + more, ..demand.clone() };
        let (one, two) = (estimate(&demand, &machine, costs), estimate(&larger, &machine, costs));
        prop_assert!(one.machines <= two.machines && one.databases <= two.databases);
        prop_assert!(one.agents <= two.agents && one.live_tasks <= two.live_tasks);
        prop_assert!(one.temporal_disk_bytes <= two.temporal_disk_bytes);
        for (one, two) in one.uses.iter().zip(&two.uses) {
            prop_assert!(one.machine_percent <= two.machine_percent);
        }
    }

    #[test]
    fn a_larger_machine_never_means_more_machines(
        demand in demands(),
        machine in machines(),
        more in 0..64_u64,
    ) {
        let costs = Coefficients::built_in();
        let larger = Machine {
            cores: machine.cores + more,
            memory_bytes: machine.memory_bytes + more * GIB,
            ..machine.clone()
        };
        let (one, two) = (estimate(&demand, &machine, costs), estimate(&demand, &larger, costs));
        prop_assert!(two.machines <= one.machines);
        prop_assert!(two.one_machine_tasks_per_day >= one.one_machine_tasks_per_day);
    }

    #[test]
    fn one_machine_carries_its_limit_and_no_more(demand in demands(), machine in machines()) {
        let costs = Coefficients::built_in();
        let limit = estimate(&demand, &machine, costs).one_machine_tasks_per_day;
        let fits = |tasks_per_day| {
            estimate(&Demand { tasks_per_day, ..demand.clone() }, &machine, costs).is_one_machine
        };
        prop_assert!(fits(limit));
        prop_assert!(limit == 1_000_000_000 || !fits(limit + 1));
    }
}
