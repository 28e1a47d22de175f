//! The core is pure: nothing among its dependencies can wait, look at a clock, roll dice, or reach a
//! file or a socket.
#![expect(clippy::disallowed_methods, reason = "it asks cargo for the tree of dependencies")]
#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::process::Command;

/// Crates that would let it, and the features of harmless crates that would.
const FORBIDDEN: [&str; 24] = [
    "async-io",
    "async-std",
    "futures",
    "futures-core",
    "getrandom",
    "hyper",
    "iana-time-zone",
    "libc",
    "mio",
    "notify",
    "polling",
    "rand",
    "rand_core",
    "reqwest",
    "rustix",
    "smol",
    "socket2",
    "tempfile",
    "time",
    "tokio",
    "tracing",
    "ureq",
    "walkdir",
    "windows-sys",
];

fn tree(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--locked",
            "--offline",
            "-p",
            "tamma-core",
            "-e",
            "normal",
            "--prefix",
            "none",
        ])
        .args(arguments)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn nothing_in_the_tree_can_wait_look_or_act() {
    let tree = tree(&["--format", "{p}"]);
    let names: Vec<_> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.contains(&"serde"), "the tree was read");
    let found: Vec<_> = names.iter().filter(|name| FORBIDDEN.contains(name)).collect();
    assert!(found.is_empty(), "tamma-core must not depend on {found:?}");
}

#[test]
fn neither_clock_nor_dice_are_switched_on() {
    let tree = tree(&["--format", "{p} [{f}]"]);
    for (name, features) in [
        ("chrono ", ["clock", "now", "wasmbind"]),
        ("uuid ", ["v4", "v7", "rng"]),
        ("rust_decimal ", ["rand", "db-postgres", "tokio-pg"]),
    ] {
        let line = tree.lines().find(|line| line.starts_with(name)).expect("it is there");
        let (_, on) = line.split_once('[').expect("features");
        let on: Vec<_> = on.trim_end_matches(" (*)").trim_end_matches(']').split(',').collect();
        assert!(features.iter().all(|feature| !on.contains(feature)), "{line}");
    }
}
