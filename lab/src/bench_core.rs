//! Steps per second of `core` on one CPU core, over whole tasks.
//!
//! A task with one failed review and one approval by a person is recorded once. Its events are then
//! replayed repeatedly.
#![expect(clippy::print_stdout, reason = "a measurement prints its figures")]
#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
#![expect(clippy::expect_used, reason = "a measurement may panic")]

#[expect(dead_code, reason = "shared with the tests of core")]
#[path = "../../crates/core/tests/it/world.rs"]
mod world;

use std::hint::black_box;
use std::time::{Duration, Instant};

use tamma_core::rules::Rules;
use tamma_core::step;
use tamma_core::task_loop::{State, TaskEvent, TaskLoop};

use self::world::World;
use crate::support::verdict::Verdict;

/// Target steps per second.
const TARGET: f64 = 1_000_000.0;

pub(crate) fn run() -> Verdict {
    let mut rules = Rules::default();
    rules.scrum_master.task_loop.auto_approve_low_risk = false;
    let mut world = World::with_rules(rules);
    let first = world.it.clone();
    world.fail_gates(1);
    world.walk(State::Completed);
    let (events, rules) = (world.taken, world.rules);

    let mut rates: Vec<f64> = (0..7).map(|_| measure(&first, &events, &rules)).collect();
    rates.sort_by(f64::total_cmp);
    let median = rates[rates.len() / 2];
    let size = serde_json::to_vec(&first).map_or(0, |bytes| bytes.len());
    println!("a task of {} events, {size} bytes of state at its start", events.len());
    println!(
        "steps per second on one core: {median:.0} (median of 7; {:.0} to {:.0})",
        rates[0], rates[6]
    );
    Verdict::new(median >= TARGET, format!("{median:.0} steps per second, target {TARGET:.0}"))
}

/// Measures the steps per second during about one second.
fn measure(first: &TaskLoop, events: &[TaskEvent], rules: &Rules) -> f64 {
    let (start, mut steps) = (Instant::now(), 0_u32);
    while start.elapsed() < Duration::from_secs(1) {
        for _ in 0..100 {
            let mut it = first.clone();
            for event in events {
                it = black_box(step(&it, event, rules).expect("the recorded event fits")).next;
            }
            assert_eq!(it.state, State::Completed);
        }
        steps += 100 * u32::try_from(events.len()).expect("few events");
    }
    f64::from(steps) / start.elapsed().as_secs_f64()
}
