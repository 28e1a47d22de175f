//! `tamma up --detach`, `status`, `logs` and `down`, with private PostgreSQL and Temporal servers.

use serde_json::Value;
use tamma_testkit::sample::sample_script;

use crate::machine::{Machine, StopOnDrop};

#[test]
fn tamma_runs_in_the_background_until_it_is_stopped() {
    let machine = Machine::new(&sample_script(1));
    let status = machine.run(1, &["status"]);
    assert!(status.starts_with("Tamma is not running. Start it with"), "{status}");
    let missing = machine.run(1, &["logs"]);
    assert!(missing.contains("`tamma up --detach` writes it"), "{missing}");

    let _stop = StopOnDrop(&machine);
    let started = machine.run(0, &["up", "--detach"]);
    assert!(started.contains("Tamma is up at http://127.0.0.1:"), "{started}");
    assert!(started.contains("in the background"), "{started}");
    assert!(started.contains("/hello?code="), "{started}");
    let again = machine.run(0, &["up", "--detach"]);
    assert!(again.contains("Tamma is already up at"), "{again}");
    assert!(again.contains("is already registered."), "{again}");

    let status = machine.json(&["status"]);
    assert_eq!(status["running"], true);
    assert_eq!(status["work"]["projects"].as_array().map(Vec::len), Some(1));
    assert_eq!(status["work"]["open_tasks"], 0);
    let pid = status["pid"].as_u64().unwrap();
    let text = machine.run(0, &["status"]);
    assert!(text.contains(&format!("(process {pid})")), "{text}");

    let log = machine.run(0, &["logs"]);
    assert!(log.contains("Tamma is up at"), "{log}");
    assert!(!log.contains("code="), "a sign-in link is not kept: {log}");
    for part in ["server", "worker", "temporal"] {
        machine.run(0, &["logs", part]);
    }
    let postgres = machine.run(0, &["logs", "postgres"]);
    assert!(postgres.contains("ready to accept connections"), "{postgres}");

    let stopped = machine.run(0, &["down"]);
    assert!(stopped.contains(&format!("Stopped Tamma (process {pid})")), "{stopped}");
    assert_eq!(machine.processes(), Vec::<String>::new());
    let nothing = machine.run(0, &["down"]);
    assert!(nothing.contains("Tamma is not running"), "{nothing}");
    let status: Value = serde_json::from_str(&machine.run(1, &["status", "--json"])).unwrap();
    assert_eq!((&status["running"], &status["pid"]), (&Value::Bool(false), &Value::Null));
}

#[test]
fn a_failed_start_in_the_background_shows_its_reason() {
    let machine = Machine::new(&sample_script(1));
    let mut command = machine.command(&["up", "--detach"]);
    let output = command.env("TAMMA_TEMPORAL_BIN", "/nowhere/temporal").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("Tamma did not start"), "{error}");
    assert!(error.contains("TAMMA_TEMPORAL_BIN is `/nowhere/temporal`"), "{error}");
    assert_eq!(machine.processes(), Vec::<String>::new());
}
