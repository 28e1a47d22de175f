//! Purity of `core` and `chat`: no dependency can wait, read a clock, generate random numbers, or
//! access files or sockets. The modules of `core` import each other without cycles.
#![expect(clippy::disallowed_methods, reason = "it runs `cargo tree` and reads the sources")]

use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "../support/imports.rs"]
mod imports;

/// Pure crates.
const PURE: [&str; 2] = ["tamma-core", "tamma-chat"];

/// Crates that would break purity, and features of other crates that would.
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

fn tree(package: &str, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "-p", package, "-e", "normal", "--prefix", "none"])
        .args(arguments)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn no_dependency_can_wait_or_do_io() {
    for package in PURE {
        let tree = tree(package, &["--format", "{p}"]);
        let names: Vec<_> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
        assert!(names.contains(&"serde"), "the tree was read");
        let forbidden: Vec<_> = names.iter().filter(|name| FORBIDDEN.contains(name)).collect();
        assert!(forbidden.is_empty(), "{package} must not depend on {forbidden:?}");
    }
}

#[test]
fn clock_and_random_features_are_off() {
    for package in PURE {
        let tree = tree(package, &["--format", "{p} [{f}]"]);
        for (name, features) in [
            ("chrono ", &["clock", "now", "wasmbind"][..]),
            // The current time, and files of the system.
            ("tz-rs ", &["std"][..]),
            ("uuid ", &["v4", "v7", "rng"][..]),
            ("rust_decimal ", &["rand", "db-postgres", "tokio-pg"][..]),
        ] {
            let line = tree.lines().find(|line| line.starts_with(name)).expect("it is there");
            let (_, on) = line.split_once('[').expect("features");
            let on: Vec<_> = on.trim_end_matches(" (*)").trim_end_matches(']').split(',').collect();
            assert!(features.iter().all(|feature| !on.contains(feature)), "{package}: {line}");
        }
    }
}

#[test]
fn core_modules_have_no_import_cycle() {
    let imports = imports::read(Path::new(env!("CARGO_MANIFEST_DIR")));
    assert!(imports["task_loop"].contains_key("rules"), "the sources were read");
    assert_eq!(imports::describe_cycle(&imports), None, "modules of `core` import each other");
}

#[test]
fn import_cycles_are_found_and_named() {
    let source =
        "use crate::b::C;\n// crate::c\nuse crate::{d, e::{F, G}, h};\n#[cfg(test)]\ncrate::i";
    assert_eq!(
        imports::named(source).iter().map(String::as_str).collect::<Vec<_>>(),
        ["b", "d", "e", "h"]
    );
    let imports_of = |pairs: &[(&str, &str)]| {
        let mut imports = imports::Imports::new();
        for (from, to) in pairs {
            let used = imports.entry((*from).to_owned()).or_default();
            used.insert((*to).to_owned(), PathBuf::from("x.rs"));
        }
        imports
    };
    assert_eq!(imports::cycle(&imports_of(&[("a", "b"), ("a", "c"), ("b", "c")])), None);
    let cyclic = imports_of(&[("a", "b"), ("b", "c"), ("c", "b")]);
    assert_eq!(imports::cycle(&cyclic), Some(vec!["b", "c", "b"]));
}
