//! Tests of the core as its users see it: the rules of the specification, the invariants of the state
//! machine, estimates of capacity, stored formats, the state diagram and purity.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a panic fails the test")]

mod audit;
mod capacity;
mod formats;
mod invariants;
mod purity;
mod redaction;
mod spec;
mod state_diagram;
mod world;
