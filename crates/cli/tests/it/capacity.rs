//! `tamma capacity`: needs no server and no repository.

use assert_cmd::Command;
use serde_json::Value;

use crate::support::text;

fn capacity(arguments: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("tamma"));
    command.arg("capacity").args(arguments);
    command
}

#[test]
fn a_small_load_fits_one_machine_and_its_cost_is_unknown_without_a_price() {
    let output = capacity(&["--tasks-per-day", "20"]).output().unwrap();
    assert!(output.status.success());
    let shown = text(&output.stdout);
    assert!(shown.contains("1 machine with `tamma up`, 1 database"), "{shown}");
    assert!(shown.contains("Cost: unknown; pass --machine-usd"), "{shown}");
    assert!(shown.contains("Measured: task loop 20"), "{shown}");
}

#[test]
fn json_has_the_estimate_its_price_and_the_dated_coefficients() {
    let arguments = ["--tasks-per-day", "50000", "--machine-usd", "250", "--json"];
    let output = capacity(&arguments).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let machines = report["estimate"]["machines"].as_u64().unwrap();
    assert!(machines > 3, "{report}");
    assert_eq!(report["usd_per_month"], (machines * 250).to_string());
    assert_eq!(report["saturation"].as_array().map(Vec::len), Some(3));
    assert_eq!(report["coefficients"]["loop"]["commit"].as_str().map(str::len), Some(7));
}

#[test]
fn a_load_of_nothing_is_a_usage_error() {
    for arguments in [&["--tasks-per-day", "0"][..], &[]] {
        assert_eq!(capacity(arguments).output().unwrap().status.code(), Some(2));
    }
}
