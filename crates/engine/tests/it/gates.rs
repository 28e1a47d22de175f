//! Gates: exact commits, time limits, output and reports.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use tamma_core::gate::{GateKind, GateOutcome, GateResult};
use tamma_core::operator::ResourceLimits;
use tamma_core::rules::ReportFormat;
use tamma_engine::gate::{Error, GateCheckout, GateCommand, GateRun, remove_checkout};
use tamma_engine::sandbox::{self, Launcher, Network, Sandbox};
use tokio_util::sync::CancellationToken;

use crate::fixture::{Fixture, author, environment, noon};

fn gate(command: &str, seconds: u64) -> GateCommand {
    GateCommand {
        name: "tests".to_owned(),
        kind: GateKind::Tests,
        program: "sh".into(),
        args: vec!["-c".to_owned(), command.to_owned()],
        env: environment(),
        time_limit: Duration::from_secs(seconds),
        report: None,
        sandbox: None,
    }
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn result(outcome: GateOutcome) -> GateResult {
    let (failures, passed, skipped) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let name = "tests".to_owned();
    GateResult { name, kind: GateKind::Tests, outcome, failures, passed, skipped }
}

/// Opens a gate checkout at the project's base commit.
async fn at_base(fixture: &Fixture) -> GateCheckout {
    let checkout = GateCheckout::for_task(&fixture.mirror().await, fixture.task).await.unwrap();
    checkout.check_out(fixture.base().await).await.unwrap();
    checkout
}

async fn run(fixture: &Fixture, checkout: &GateCheckout, gate: GateCommand) -> GateRun {
    let (records, cancel) = (fixture.records().await, CancellationToken::new());
    let ran = gate.run(checkout, (fixture.run(), noon()), &records, &cancel).await.unwrap();
    assert_eq!(records.all().await.unwrap(), []);
    ran
}

#[tokio::test]
async fn gate_passes_fails_or_times_out() {
    let fixture = Fixture::create().await;
    let checkout = at_base(&fixture).await;
    let passed = run(&fixture, &checkout, gate("cat src/old.txt; echo noise >&2", 60)).await;
    let (code, output) = (Some(0), "old\nnoise\n".to_owned());
    assert_eq!(passed, GateRun { result: result(GateOutcome::Passed), code, output });
    let failed = run(&fixture, &checkout, gate("echo one of them failed; exit 4", 60)).await;
    let (code, output) = (Some(4), "one of them failed\n".to_owned());
    assert_eq!(failed, GateRun { result: result(GateOutcome::Failed), code, output });
    let late = run(&fixture, &checkout, gate("echo begun; sleep 600", 1)).await;
    let (code, output) = (None, "begun\n".to_owned());
    assert_eq!(late, GateRun { result: result(GateOutcome::TimedOut), code, output });
    let missing = GateCommand { program: "no-such-tool".into(), ..gate("", 60) };
    let missing = run(&fixture, &checkout, missing).await;
    assert_eq!(missing.result, result(GateOutcome::Failed));
    assert_eq!(missing.output, "cannot start `no-such-tool`");
}

#[tokio::test]
async fn output_and_names_of_tests_contain_no_control_sequences() {
    let fixture = Fixture::create().await;
    let checkout = at_base(&fixture).await;
    let print = "printf 'a\\033]0;title\\007b\\033[2J\\n'; \
                 printf '<testsuite><testcase classname=\"s\" name=\"x\\302\\2332Jy\"/></testsuite>' > \"$REPORT\"";
    let gate = GateCommand { report: Some(ReportFormat::Junit), ..gate(print, 60) };
    let ran = run(&fixture, &checkout, gate).await;
    assert_eq!((ran.output.as_str(), ran.result.passed), ("ab\n", set(&["s::xy"])));
}

#[tokio::test]
async fn checkout_is_an_exact_commit_and_keeps_only_ignored_files() {
    let fixture = Fixture::create().await;
    let (tree, base) = (fixture.worktree().await, fixture.base().await);
    fs::write(tree.path().join("README.md"), "changed\n").unwrap();
    fs::write(tree.path().join(".gitignore"), "built/\n").unwrap();
    let commit = tree.commit_all(1, "Change it", &author()).await.unwrap();
    // Ignored files of the agent's worktree are not there.
    fs::create_dir(tree.path().join("built")).unwrap();
    fs::write(tree.path().join("built/cheat"), "").unwrap();
    let checkout = at_base(&fixture).await;
    checkout.check_out(commit).await.unwrap();
    let work = "test ! -e built && mkdir built && echo 1 > built/one && echo 2 > README.md && echo 3 > new";
    assert_eq!(run(&fixture, &checkout, gate(work, 60)).await.result.outcome, GateOutcome::Passed);
    checkout.check_out(commit).await.unwrap();
    let check_script =
        "test -e built/one && test ! -e new && grep -q changed README.md && git status --short";
    let gate_run = run(&fixture, &checkout, gate(check_script, 60)).await;
    assert_eq!((gate_run.code, gate_run.output.as_str()), (Some(0), ""));
    // A changed link and the lock of a killed git are repaired.
    let git_dir = checkout.repository().join(format!("worktrees/gates-{}", fixture.task));
    fs::write(git_dir.join("index.lock"), "").unwrap();
    checkout.check_out(base).await.unwrap();
    assert_eq!(fs::read_to_string(checkout.path().join("README.md")).unwrap(), "a project\n");
    fs::write(checkout.path().join(".git"), "gitdir: /nowhere\n").unwrap();
    checkout.check_out(commit).await.unwrap();
    assert_eq!(fs::read_to_string(checkout.path().join("README.md")).unwrap(), "changed\n");
}

#[tokio::test]
async fn files_of_another_commit_replace_those_of_a_change() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    fs::write(tree.path().join("README.md"), "changed\n").unwrap();
    fs::remove_file(tree.path().join("src/old.txt")).unwrap();
    let commit = tree.commit_all(1, "Change it", &author()).await.unwrap();
    let checkout = at_base(&fixture).await;
    checkout.check_out(commit).await.unwrap();
    checkout.overlay(fixture.base().await, &["src/old.txt".to_owned()]).await.unwrap();
    let read = |name: &str| fs::read_to_string(checkout.path().join(name)).unwrap();
    assert_eq!((read("README.md").as_str(), read("src/old.txt").as_str()), ("changed\n", "old\n"));
    checkout.check_out(commit).await.unwrap();
    assert!(!checkout.path().join("src/old.txt").exists());
}

#[tokio::test]
async fn checkout_is_removed_once_it_is_unused() {
    let fixture = Fixture::create().await;
    let checkout = at_base(&fixture).await;
    let (path, git_dirs) = (checkout.path(), checkout.repository().join("worktrees"));
    let data = fixture.data().canonicalize().unwrap();
    assert!(!remove_checkout(&data, fixture.task.0).await.unwrap());
    drop(checkout);
    assert!(remove_checkout(&data, fixture.task.0).await.unwrap());
    assert!(!path.exists() && fs::read_dir(git_dirs).unwrap().next().is_none());
    assert!(remove_checkout(&data, fixture.task.0).await.unwrap(), "already removed");
}

#[tokio::test]
async fn cancelled_gate_returns_an_error() {
    let fixture = Fixture::create().await;
    let checkout = at_base(&fixture).await;
    let (records, cancel) = (fixture.records().await, CancellationToken::new());
    cancel.cancel();
    let work = (fixture.run(), noon());
    let error = gate("sleep 600", 60).run(&checkout, work, &records, &cancel).await;
    assert!(matches!(error, Err(Error::Cancelled)));
    assert_eq!(records.all().await.unwrap(), []);
}

/// Command that writes a report with one passed test and one with the given content.
fn junit(second: &str) -> String {
    format!(
        "cat > \"$REPORT\" <<'END'\n<testsuites><testsuite name=\"s\"><testcase classname=\"c\" \
         name=\"one\"/><testcase classname=\"c\" name=\"two\">{second}</testcase></testsuite>\
         </testsuites>\nEND\n"
    )
}

#[tokio::test]
async fn gate_with_a_report_passes_only_if_the_report_has_no_failures() {
    let fixture = Fixture::create().await;
    let checkout = at_base(&fixture).await;
    let reports = |command: &str, seconds| {
        let gate = GateCommand { report: Some(ReportFormat::Junit), ..gate(command, seconds) };
        run(&fixture, &checkout, gate)
    };
    let passed = reports(&junit(""), 60).await.result;
    assert_eq!((passed.outcome, passed.passed), (GateOutcome::Passed, set(&["c::one", "c::two"])));
    let hidden = reports(&junit("<failure/>"), 60).await;
    assert_eq!((hidden.result.outcome, hidden.code), (GateOutcome::Failed, Some(0)));
    assert_eq!(hidden.result.failures, set(&["c::two"]));
    // The report of the previous run is not used.
    let silent = reports("true", 60).await;
    assert_eq!(silent.result.outcome, GateOutcome::Failed);
    assert_eq!(silent.output.trim(), "unusable report: the file does not exist");
    let led_away = reports("ln -s /etc/passwd \"$REPORT\"", 60).await;
    assert_eq!(led_away.output.trim(), "unusable report: not a regular file");
    let skipped = reports(&junit("<skipped/>"), 60).await.result;
    assert_eq!((skipped.outcome, skipped.skipped), (GateOutcome::Passed, set(&["c::two"])));
    // A gate that times out keeps the results so far.
    let late = format!("{}echo begun; sleep 600", junit("<failure/>").replace("</testsuite>", ""));
    let late = reports(&late, 1).await;
    assert_eq!(
        (late.result.outcome, late.result.failures),
        (GateOutcome::TimedOut, set(&["c::two"]))
    );
    assert!(late.output.starts_with("begun\n"), "{}", late.output);
}

#[tokio::test]
async fn warnings_count_only_if_the_tool_fails() {
    let fixture = Fixture::create().await;
    let checkout = at_base(&fixture).await;
    let write = |level: &str, code: i32| {
        let text = format!(
            r#"{{"runs":[{{"results":[{{"ruleId":"r","level":"{level}","message":{{"text":"m"}}}}]}}]}}"#
        );
        let gate = gate(&format!("echo '{text}' > \"$REPORT\"; exit {code}"), 60);
        run(&fixture, &checkout, GateCommand { report: Some(ReportFormat::Sarif), ..gate })
    };
    let ran = write("warning", 0).await.result;
    assert_eq!((ran.outcome, ran.failures.len()), (GateOutcome::Passed, 0));
    let ran = write("warning", 1).await.result;
    assert_eq!((ran.outcome, ran.failures), (GateOutcome::Failed, set(&["r: : m"])));
    assert_eq!(write("error", 0).await.result.outcome, GateOutcome::Failed);
}

#[tokio::test]
async fn sandboxed_gate_writes_only_its_checkout_and_home_and_has_no_network() {
    let Some(kind) = sandbox::best_available() else { return };
    let fixture = Fixture::create().await;
    let checkout = at_base(&fixture).await;
    let other = fixture.data().join("secret");
    fs::write(&other, "secret").unwrap();
    let launcher =
        Launcher { program: env!("CARGO_BIN_EXE_sandbox-launcher").into(), args: Vec::new() };
    let sandbox = Sandbox {
        kind,
        launcher,
        worktree: checkout.path(),
        read_only: false,
        repository: Some(checkout.repository().to_owned()),
        git: None,
        home: checkout.home(),
        readable: Vec::new(),
        writable: Vec::new(),
        protected: Vec::new(),
        hidden: vec![fixture.data().canonicalize().unwrap()],
        network: Network::Disabled,
        limits: ResourceLimits::default(),
    };
    let command = format!(
        "echo x > file && echo x > \"$HOME/file\" && git log -1 --format=%s && {{ cat {} 2>&1; \
         echo x >> .git; echo x > {}/config; }} ; {}",
        other.display(),
        checkout.repository().display(),
        junit("")
    );
    let gate = GateCommand {
        sandbox: Some(sandbox),
        report: Some(ReportFormat::Junit),
        ..gate(&command, 60)
    };
    // Through a linked path, as on many systems.
    let gate = GateCommand { program: "/bin/sh".into(), ..gate };
    let (records, cancel) = (fixture.records().await, CancellationToken::new());
    let git_link = fs::read_to_string(checkout.path().join(".git")).unwrap();
    gate.check_sandbox(&checkout, (fixture.run(), noon()), &records, &cancel).await.unwrap();
    let ran = run(&fixture, &checkout, gate).await;
    assert_eq!(ran.result.passed.len(), 2, "{}", ran.output);
    assert!(ran.output.contains("first") && !ran.output.contains("secret\n"), "{}", ran.output);
    assert_eq!(fs::read_to_string(checkout.path().join(".git")).unwrap(), git_link);
}
