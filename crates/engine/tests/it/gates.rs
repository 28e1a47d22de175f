//! Gates: one exact commit, a limit, and what was written.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use tamma_core::review::gate::{GateResult, Kind, Outcome};
use tamma_engine::gate::{Error, Gate, GateRun};
use tokio_util::sync::CancellationToken;

use crate::stage::{Stage, author, environment, noon};

fn gate(command: &str, seconds: u64) -> Gate {
    Gate {
        name: "tests".to_owned(),
        kind: Kind::Tests,
        program: "sh".into(),
        args: vec!["-c".to_owned(), command.to_owned()],
        env: environment(),
        time_limit: Duration::from_secs(seconds),
    }
}

fn result(outcome: Outcome) -> GateResult {
    let (failures, passed, skipped) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let name = "tests".to_owned();
    GateResult { name, kind: Kind::Tests, outcome, failures, passed, skipped }
}

#[tokio::test]
async fn a_gate_passes_fails_or_times_out() {
    let stage = Stage::set().await;
    let tree = stage.worktree().await;
    let (commit, records) = (tree.head().await.unwrap(), stage.records().await);
    let cancel = CancellationToken::new();
    let run = |gate: Gate| {
        let (tree, records, cancel) = (&tree, &records, &cancel);
        let work = (stage.run(), noon());
        async move { gate.run(tree, commit, work, records, cancel).await.unwrap() }
    };
    let passed = run(gate("cat src/old.txt; echo noise >&2", 60)).await;
    let (code, output) = (Some(0), "old\nnoise\n".to_owned());
    assert_eq!(passed, GateRun { result: result(Outcome::Passed), commit, code, output });
    let failed = run(gate("echo one of them failed; exit 4", 60)).await;
    let (code, output) = (Some(4), "one of them failed\n".to_owned());
    assert_eq!(failed, GateRun { result: result(Outcome::Failed), commit, code, output });
    let late = run(gate("echo begun; sleep 600", 1)).await;
    let (code, output) = (None, "begun\n".to_owned());
    assert_eq!(late, GateRun { result: result(Outcome::TimedOut), commit, code, output });
    let missing = run(Gate { program: "no-such-tool".into(), ..gate("", 60) }).await;
    assert_eq!(missing.result, result(Outcome::Failed));
    assert_eq!(missing.output, "cannot start `no-such-tool`");
    assert_eq!(records.all().await.unwrap(), []);
}

#[tokio::test]
async fn a_gate_judges_one_exact_commit() {
    let stage = Stage::set().await;
    let tree = stage.worktree().await;
    let (records, cancel) = (stage.records().await, CancellationToken::new());
    let work = (stage.run(), noon());
    let run = async |commit| gate("true", 60).run(&tree, commit, work, &records, &cancel).await;
    let base = tree.head().await.unwrap();
    fs::write(tree.path().join("README.md"), "changed\n").unwrap();
    assert!(matches!(run(base).await, Err(Error::NotAt(commit)) if commit == base));
    let commit = tree.commit_all(1, "Change it", &author()).await.unwrap();
    assert!(matches!(run(base).await, Err(Error::NotAt(_))));
    // What a gate leaves behind that git does not know is no change of the commit.
    fs::write(tree.path().join("report.xml"), "<x/>\n").unwrap();
    assert_eq!(run(commit).await.unwrap().result.outcome, Outcome::Passed);
}

#[tokio::test]
async fn a_gate_that_is_stopped_says_so() {
    let stage = Stage::set().await;
    let tree = stage.worktree().await;
    let (records, cancel) = (stage.records().await, CancellationToken::new());
    cancel.cancel();
    let commit = tree.head().await.unwrap();
    let work = (stage.run(), noon());
    let error = gate("sleep 600", 60).run(&tree, commit, work, &records, &cancel).await;
    assert!(matches!(error, Err(Error::Cancelled)));
    assert_eq!(records.all().await.unwrap(), []);
}
