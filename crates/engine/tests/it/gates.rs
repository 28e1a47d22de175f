//! Gates: one exact commit, a limit, what was written and what was reported.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use tamma_core::gate::{GateResult, Kind, Outcome};
use tamma_core::rules::Report;
use tamma_engine::confine::{self, Cage, Launcher, Network};
use tamma_engine::gate::{Checkout, Error, Gate, GateRun, clear};
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
        report: None,
        cage: None,
    }
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn result(outcome: Outcome) -> GateResult {
    let (failures, passed, skipped) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let name = "tests".to_owned();
    GateResult { name, kind: Kind::Tests, outcome, failures, passed, skipped }
}

/// A checkout of the project's commit, and something that runs gates in it.
async fn at_base(stage: &Stage) -> Checkout {
    let checkout = Checkout::of_task(&stage.mirror().await, stage.task).await.unwrap();
    checkout.put(stage.base().await).await.unwrap();
    checkout
}

async fn run(stage: &Stage, checkout: &Checkout, gate: Gate) -> GateRun {
    let (records, cancel) = (stage.records().await, CancellationToken::new());
    let ran = gate.run(checkout, (stage.run(), noon()), &records, &cancel).await.unwrap();
    assert_eq!(records.all().await.unwrap(), []);
    ran
}

#[tokio::test]
async fn a_gate_passes_fails_or_times_out() {
    let stage = Stage::set().await;
    let checkout = at_base(&stage).await;
    let passed = run(&stage, &checkout, gate("cat src/old.txt; echo noise >&2", 60)).await;
    let (code, output) = (Some(0), "old\nnoise\n".to_owned());
    assert_eq!(passed, GateRun { result: result(Outcome::Passed), code, output });
    let failed = run(&stage, &checkout, gate("echo one of them failed; exit 4", 60)).await;
    let (code, output) = (Some(4), "one of them failed\n".to_owned());
    assert_eq!(failed, GateRun { result: result(Outcome::Failed), code, output });
    let late = run(&stage, &checkout, gate("echo begun; sleep 600", 1)).await;
    let (code, output) = (None, "begun\n".to_owned());
    assert_eq!(late, GateRun { result: result(Outcome::TimedOut), code, output });
    let missing = Gate { program: "no-such-tool".into(), ..gate("", 60) };
    let missing = run(&stage, &checkout, missing).await;
    assert_eq!(missing.result, result(Outcome::Failed));
    assert_eq!(missing.output, "cannot start `no-such-tool`");
}

#[tokio::test]
async fn a_checkout_is_one_exact_commit_and_keeps_only_what_is_ignored() {
    let stage = Stage::set().await;
    let (tree, base) = (stage.worktree().await, stage.base().await);
    fs::write(tree.path().join("README.md"), "changed\n").unwrap();
    fs::write(tree.path().join(".gitignore"), "built/\n").unwrap();
    let commit = tree.commit_all(1, "Change it", &author()).await.unwrap();
    // What an agent leaves in its worktree is not there.
    fs::create_dir(tree.path().join("built")).unwrap();
    fs::write(tree.path().join("built/cheat"), "").unwrap();
    let checkout = at_base(&stage).await;
    checkout.put(commit).await.unwrap();
    let work = "test ! -e built && mkdir built && echo 1 > built/one && echo 2 > README.md && echo 3 > new";
    assert_eq!(run(&stage, &checkout, gate(work, 60)).await.result.outcome, Outcome::Passed);
    checkout.put(commit).await.unwrap();
    let look =
        "test -e built/one && test ! -e new && grep -q changed README.md && git status --short";
    let seen = run(&stage, &checkout, gate(look, 60)).await;
    assert_eq!((seen.code, seen.output.as_str()), (Some(0), ""));
    // A link that leads elsewhere, or the lock of a git that was killed, is mended.
    let kept = checkout.repository().join(format!("worktrees/gates-{}", stage.task));
    fs::write(kept.join("index.lock"), "").unwrap();
    checkout.put(base).await.unwrap();
    assert_eq!(fs::read_to_string(checkout.path().join("README.md")).unwrap(), "a project\n");
    fs::write(checkout.path().join(".git"), "gitdir: /nowhere\n").unwrap();
    checkout.put(commit).await.unwrap();
    assert_eq!(fs::read_to_string(checkout.path().join("README.md")).unwrap(), "changed\n");
}

#[tokio::test]
async fn files_as_they_were_are_laid_over_a_change() {
    let stage = Stage::set().await;
    let tree = stage.worktree().await;
    fs::write(tree.path().join("README.md"), "changed\n").unwrap();
    fs::remove_file(tree.path().join("src/old.txt")).unwrap();
    let commit = tree.commit_all(1, "Change it", &author()).await.unwrap();
    let checkout = at_base(&stage).await;
    checkout.put(commit).await.unwrap();
    checkout.overlay(stage.base().await, &["src/old.txt".to_owned()]).await.unwrap();
    let read = |name: &str| fs::read_to_string(checkout.path().join(name)).unwrap();
    assert_eq!((read("README.md").as_str(), read("src/old.txt").as_str()), ("changed\n", "old\n"));
    checkout.put(commit).await.unwrap();
    assert!(!checkout.path().join("src/old.txt").exists());
}

#[tokio::test]
async fn a_checkout_is_removed_when_nobody_uses_it() {
    let stage = Stage::set().await;
    let checkout = at_base(&stage).await;
    let (path, kept) = (checkout.path(), checkout.repository().join("worktrees"));
    let data = stage.data().canonicalize().unwrap();
    assert!(!clear(&data, stage.task.0).await.unwrap());
    drop(checkout);
    assert!(clear(&data, stage.task.0).await.unwrap());
    assert!(!path.exists() && fs::read_dir(kept).unwrap().next().is_none());
    assert!(clear(&data, stage.task.0).await.unwrap(), "there is nothing left to do");
}

#[tokio::test]
async fn a_gate_that_is_stopped_says_so() {
    let stage = Stage::set().await;
    let checkout = at_base(&stage).await;
    let (records, cancel) = (stage.records().await, CancellationToken::new());
    cancel.cancel();
    let work = (stage.run(), noon());
    let error = gate("sleep 600", 60).run(&checkout, work, &records, &cancel).await;
    assert!(matches!(error, Err(Error::Cancelled)));
    assert_eq!(records.all().await.unwrap(), []);
}

/// A report of tests: one that passed, and one that did what it is told.
fn junit(second: &str) -> String {
    format!(
        "cat > \"$REPORT\" <<'END'\n<testsuites><testsuite name=\"s\"><testcase classname=\"c\" \
         name=\"one\"/><testcase classname=\"c\" name=\"two\">{second}</testcase></testsuite>\
         </testsuites>\nEND\n"
    )
}

#[tokio::test]
async fn with_a_report_a_gate_passes_only_if_the_report_says_so_too() {
    let stage = Stage::set().await;
    let checkout = at_base(&stage).await;
    let reports = |command: &str, seconds| {
        let gate = Gate { report: Some(Report::Junit), ..gate(command, seconds) };
        run(&stage, &checkout, gate)
    };
    let passed = reports(&junit(""), 60).await.result;
    assert_eq!((passed.outcome, passed.passed), (Outcome::Passed, set(&["c::one", "c::two"])));
    let hidden = reports(&junit("<failure/>"), 60).await;
    assert_eq!((hidden.result.outcome, hidden.code), (Outcome::Failed, Some(0)));
    assert_eq!(hidden.result.failures, set(&["c::two"]));
    // The report of the run before is not taken for this one's.
    let silent = reports("true", 60).await;
    assert_eq!(silent.result.outcome, Outcome::Failed);
    assert_eq!(silent.output.trim(), "the report cannot be used: it was not written");
    let led_away = reports("ln -s /etc/passwd \"$REPORT\"", 60).await;
    assert_eq!(led_away.output.trim(), "the report cannot be used: it is not a file");
    let skipped = reports(&junit("<skipped/>"), 60).await.result;
    assert_eq!((skipped.outcome, skipped.skipped), (Outcome::Passed, set(&["c::two"])));
    // One that runs out of time has what it had.
    let late = format!("{}echo begun; sleep 600", junit("<failure/>").replace("</testsuite>", ""));
    let late = reports(&late, 1).await;
    assert_eq!((late.result.outcome, late.result.failures), (Outcome::TimedOut, set(&["c::two"])));
    assert!(late.output.starts_with("begun\n"), "{}", late.output);
}

#[tokio::test]
async fn warnings_are_failures_only_where_the_tool_says_that_it_failed() {
    let stage = Stage::set().await;
    let checkout = at_base(&stage).await;
    let write = |level: &str, code: i32| {
        let text = format!(
            r#"{{"runs":[{{"results":[{{"ruleId":"r","level":"{level}","message":{{"text":"m"}}}}]}}]}}"#
        );
        let gate = gate(&format!("echo '{text}' > \"$REPORT\"; exit {code}"), 60);
        run(&stage, &checkout, Gate { report: Some(Report::Sarif), ..gate })
    };
    let ran = write("warning", 0).await.result;
    assert_eq!((ran.outcome, ran.failures.len()), (Outcome::Passed, 0));
    let ran = write("warning", 1).await.result;
    assert_eq!((ran.outcome, ran.failures), (Outcome::Failed, set(&["r: : m"])));
    assert_eq!(write("error", 0).await.result.outcome, Outcome::Failed);
}

#[tokio::test]
async fn in_its_cage_a_gate_writes_to_its_checkout_and_its_home_and_reaches_nothing() {
    let Some(kind) = confine::best() else { return };
    let stage = Stage::set().await;
    let checkout = at_base(&stage).await;
    let other = stage.data().join("secret");
    fs::write(&other, "secret").unwrap();
    let launcher =
        Launcher { program: env!("CARGO_BIN_EXE_tamma-inside").into(), args: Vec::new() };
    let cage = Cage {
        kind,
        launcher,
        worktree: checkout.path(),
        looking: false,
        repository: Some(checkout.repository().to_owned()),
        home: checkout.home(),
        readable: Vec::new(),
        writable: Vec::new(),
        protected: Vec::new(),
        hidden: vec![stage.data().canonicalize().unwrap()],
        network: Network::Nothing,
    };
    let command = format!(
        "echo x > file && echo x > \"$HOME/file\" && git log -1 --format=%s && {{ cat {} 2>&1; \
         echo x >> .git; echo x > {}/config; }} ; {}",
        other.display(),
        checkout.repository().display(),
        junit("")
    );
    let gate = Gate { cage: Some(cage), report: Some(Report::Junit), ..gate(&command, 60) };
    // By a path that leads through a link, as on many systems.
    let gate = Gate { program: "/bin/sh".into(), ..gate };
    let (records, cancel) = (stage.records().await, CancellationToken::new());
    gate.try_cage(&checkout, (stage.run(), noon()), &records, &cancel).await.unwrap();
    let ran = run(&stage, &checkout, gate).await;
    assert_eq!(ran.result.passed.len(), 2, "{}", ran.output);
    assert!(ran.output.contains("first") && !ran.output.contains("secret\n"), "{}", ran.output);
    assert!(!fs::read_to_string(checkout.path().join(".git")).unwrap().contains('x'));
}
