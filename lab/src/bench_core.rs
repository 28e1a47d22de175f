//! How many steps a second one core makes, on whole tasks.
//!
//! A task with one failed review and a person's approval is recorded once; then its events are
//! played again and again from the first, each step checked to end where it did before.
#![expect(clippy::print_stdout, reason = "printing is what it is for")]
#![expect(clippy::disallowed_methods, reason = "a measurement needs a clock")]
#![expect(clippy::expect_used, reason = "a measurement that cannot go on has failed")]

#[expect(dead_code, reason = "the tests of core share this module")]
#[path = "../../crates/core/tests/it/world.rs"]
mod world;

use std::hint::black_box;
use std::time::{Duration, Instant};

use tamma_core::rules::Rules;
use tamma_core::step;
use tamma_core::task_loop::{State, TaskEvent, TaskLoop};

use self::world::World;
use crate::support::verdict::Verdict;

const GOAL: f64 = 1_000_000.0;

pub(crate) fn run() -> Verdict {
    let mut rules = Rules::default();
    rules.scrum_master.task_loop.auto_approve_low_risk = false;
    let mut world = World::under(rules);
    let first = world.it.clone();
    world.fail_in(1);
    world.walk(State::Completed);
    let (events, rules) = (world.taken, world.rules);

    let mut rates: Vec<f64> = (0..7).map(|_| measure(&first, &events, &rules)).collect();
    rates.sort_by(f64::total_cmp);
    let median = rates[rates.len() / 2];
    let size = serde_json::to_vec(&first).map_or(0, |bytes| bytes.len());
    println!("a task of {} events, {size} bytes of memory at its start", events.len());
    println!(
        "steps a second on one core: {median:.0} (median of 7; {:.0} to {:.0})",
        rates[0], rates[6]
    );
    Verdict::new(median >= GOAL, format!("{median:.0} steps a second, goal {GOAL:.0}"))
}

/// Steps a second over about one second.
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
