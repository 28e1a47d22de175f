//! Gates on a worker: baselines, and protection of existing tests.

use std::collections::BTreeSet;
use std::path::Path;

use tamma_core::gate::GateStatus;
use tamma_core::ids::TaskId;
use tamma_core::plan::{FileAction, FileChange, Plan};
use tamma_core::review::record::{BaselineSource, CheckRecord, GatesCheck};
use tamma_core::task_loop::State;
use tamma_testkit::agent::{AgentStep, IMPLEMENTER, PLANNER, PromptCase, Script};
use tamma_testkit::sample::{SAMPLE_CONTENT, sample_change, sample_plan, sample_script};
use temporalio_client::WorkflowGetResultOptions;

use crate::cluster::{Cluster, until};

/// Gate that runs every file in `tests` as a test. A test passes if it equals `value.txt`.
const SUITE: &str = r#"value="$(cat value.txt)"
{
    echo '<testsuites><testsuite name="s">'
    for file in tests/*.txt; do
        echo "<testcase classname='suite' name='$(basename "$file" .txt)'>"
        case "$(cat "$file")" in
            "$value" | any) ;;
            skip) echo '<skipped/>' ;;
            *) echo '<failure/>' ;;
        esac
        echo '</testcase>'
    done
    echo '</testsuite></testsuites>'
} > "$REPORT"
if grep -q failure "$REPORT"; then exit 1; fi
"#;

const GATE: &str = "  suite: { command: sh suite.sh, kind: tests, report: junit }\n";

/// Project whose value is 1, with tests, and an agent that makes a change. `None` deletes a file.
async fn cluster_with_suite(
    tests: &[(&str, &str)],
    change: &[(&str, Option<&str>)],
    planned: &[&str],
) -> Cluster {
    let file = |(path, content): &(&str, Option<&str>)| FileChange {
        path: (*path).to_owned(),
        action: if content.is_some() { FileAction::Modify } else { FileAction::Delete },
        description: "as requested".to_owned(),
        estimated_lines: 1,
    };
    let plan = Plan {
        file_changes: change.iter().map(file).collect(),
        test_changes: planned.iter().map(|test| (*test).to_owned()).collect(),
        ..sample_plan(1)
    };
    let step = |(path, content): &(&str, Option<&str>)| match content {
        Some(content) => AgentStep::Write { path: path.into(), content: format!("{content}\n") },
        None => AgentStep::Delete { path: path.into() },
    };
    let script = Script::planned(plan, change.iter().map(step));
    let cluster = Cluster::start_with(&script, GATE).await;
    cluster.project.repository.write("suite.sh", SUITE).unwrap();
    cluster.project.repository.write("value.txt", "1\n").unwrap();
    for (name, content) in tests {
        cluster
            .project
            .repository
            .write(&format!("tests/{name}.txt"), &format!("{content}\n"))
            .unwrap();
    }
    cluster.project.repository.commit("a suite").unwrap();
    cluster
}

/// Returns the stored gate results of a task's first commit.
async fn run_gates(cluster: &Cluster, number: u32) -> GatesCheck {
    let client = cluster.client().await;
    let task = cluster.task(number);
    let id: TaskId = task.id;
    cluster.start_task(&client, task).await;
    let stored = until(async || {
        let checks = cluster.store.checks(id).await.unwrap();
        checks.into_iter().find_map(|check| match check.record {
            CheckRecord::Gates(check) => Some(check),
            CheckRecord::Review(_) => None,
        })
    });
    cluster.with_worker(stored).await
}

/// Returns the gates by name, with their result and the names that count.
fn summary(check: &GatesCheck) -> Vec<(&str, GateStatus, String)> {
    let names = |ran: &tamma_core::review::record::GateRecord| {
        let names = ran.verdict.new.iter().chain(&ran.verdict.missing).cloned();
        names.collect::<Vec<_>>().join(" ")
    };
    check.gates.iter().map(|ran| (&*ran.verdict.name, ran.verdict.status, names(ran))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_test_removed_or_skipped_without_a_plan_is_missing() {
    let change = [("tests/b.txt", None), ("tests/c.txt", Some("skip"))];
    let cluster = cluster_with_suite(&[("a", "1"), ("b", "1"), ("c", "1")], &change, &[]).await;
    let check = run_gates(&cluster, 1).await;
    let missing = "suite::b suite::c".to_owned();
    let passed = GateStatus::Passed;
    let old = ("check (original tests)", passed, String::new());
    let expected = [("check", passed, String::new()), ("suite", GateStatus::Failed, missing), old];
    assert_eq!(summary(&check), expected);
    assert_eq!(check.gates[1].exit_code, Some(0), "its exit code is still 0");
    assert_eq!(check.gates[1].tests.unwrap().passed, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn existing_tests_must_pass_unchanged() {
    let change = [("value.txt", Some("2")), ("tests/a.txt", Some("2"))];
    let cluster = cluster_with_suite(&[("a", "1"), ("b", "any")], &change, &[]).await;
    let check = run_gates(&cluster, 1).await;
    let summary = summary(&check);
    assert_eq!(summary[1], ("suite", GateStatus::Passed, String::new()));
    let failed = ("suite (original tests)", GateStatus::Failed, "suite::a".to_owned());
    assert!(summary.contains(&failed), "{summary:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tests_named_in_the_plan_can_change() {
    let change = [("value.txt", Some("2")), ("tests/a.txt", Some("2")), ("tests/b.txt", None)];
    let tests = [("a", "1"), ("b", "1")];
    let cluster = cluster_with_suite(&tests, &change, &["tests/a.txt", "suite::b"]).await;
    let check = run_gates(&cluster, 1).await;
    assert!(check.gates.iter().all(|ran| !ran.verdict.is_blocking()), "{:?}", summary(&check));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_baseline_is_taken_once_and_its_failures_do_not_count() {
    let cluster =
        cluster_with_suite(&[("a", "1"), ("z", "9")], &[("names.txt", Some("ann\nbo\ncy"))], &[])
            .await;
    let first = run_gates(&cluster, 1).await;
    assert_eq!(first.gates[1].verdict.status, GateStatus::PreExisting);
    assert_eq!(first.gates[1].verdict.pre_existing.len(), 1);
    assert_eq!(first.gates[1].baseline, BaselineSource::Measured);
    let second = run_gates(&cluster, 2).await;
    assert_eq!(second.gates[1].verdict, first.gates[1].verdict);
    assert_eq!(second.gates[1].baseline, BaselineSource::Cached);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_that_cannot_run_on_any_commit_is_reported_to_a_person() {
    let extra_config = "  broken: { command: no-such-tool --all, kind: lint }\n\
                scrum_master: { task_loop: { max_failures_per_state: 1 } }\n";
    let cluster = Cluster::start_with(&sample_script(1), extra_config).await;
    let client = cluster.client().await;
    let task = cluster.task(1);
    let id = task.id;
    cluster.start_task(&client, task).await;
    cluster.with_worker(cluster.until_state(id, State::HumanEscalation)).await;
    let log = cluster.history(id).await;
    let matches = log.iter().filter_map(|entry| entry.reason.as_deref());
    let matches =
        matches.filter(|reason| reason.contains("the gate `broken` cannot be run")).count();
    assert!(matches > 0, "{:#?}", log.iter().map(|it| (it.name, &it.reason)).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gates_have_the_files_of_the_setup_and_run_only_for_their_paths() {
    let extra_config = "  installed: { command: test -e installed.txt }\n  \
                other: { command: 'false', paths: ['other/**'] }\n\
                setup: { command: echo yes > installed.txt }\n";
    let cluster = Cluster::start_with(&sample_script(1), extra_config).await;
    let check = run_gates(&cluster, 1).await;
    let status = |name: &str| {
        let gate = check.gates.iter().find(|ran| ran.verdict.name == name);
        gate.map(|ran| ran.verdict.status)
    };
    assert_eq!(status("installed"), Some(GateStatus::Passed), "{:?}", summary(&check));
    assert_eq!(status("other"), Some(GateStatus::NotApplicable), "{:?}", summary(&check));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_setup_is_a_failed_job_with_its_output() {
    let extra_config = "setup: { command: 'echo no such package; exit 9' }\n\
                scrum_master: { task_loop: { max_failures_per_state: 1 } }\n";
    let cluster = Cluster::start_with(&sample_script(1), extra_config).await;
    let client = cluster.client().await;
    let task = cluster.task(1);
    let id = task.id;
    cluster.start_task(&client, task).await;
    cluster.with_worker(cluster.until_state(id, State::HumanEscalation)).await;
    let log = cluster.history(id).await;
    let reasons: Vec<_> = log.iter().filter_map(|entry| entry.reason.as_deref()).collect();
    let is_explained =
        |reason: &&str| reason.contains("exit code 9") && reason.contains("no such package");
    assert!(reasons.iter().any(is_explained), "{reasons:#?}");
}

/// Project whose setup writes the lock file and the operator's variable to a log, and fails if the
/// lock file is broken.
async fn cluster_with_setup(script: &Script, log: &Path) -> Cluster {
    let config =
        format!("setup:\n  command: 'sh install.sh {}'\n  lock_files: [deps.txt]\n", log.display());
    let mut cluster = Cluster::start_with(script, &config).await;
    cluster.test_environment = [("TEST_SECRET".to_owned(), "s3cret".to_owned())].into();
    let install =
        "echo \"$(cat deps.txt) ${TEST_SECRET-none}\" >> \"$1\"\n! grep broken deps.txt\n";
    cluster.project.repository.write("install.sh", install).unwrap();
    cluster.project.repository.write("deps.txt", "base\n").unwrap();
    cluster.project.repository.commit("a setup").unwrap();
    cluster
}

fn write(path: &str, content: &str) -> AgentStep {
    AgentStep::Write { path: path.into(), content: content.to_owned() }
}

/// Returns the sample plan with one more file.
fn plan_with(path: &str) -> Plan {
    let mut plan = sample_plan(1);
    plan.file_changes.push(sample_change(path, FileAction::Modify));
    plan
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_lock_file_fails_the_gates_and_the_agent_repairs_it() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("setups");
    let plan = plan_with("deps.txt");
    let broken = [write("names.txt", SAMPLE_CONTENT), write("deps.txt", "broken\n")];
    let script = Script::from_cases([
        PromptCase::new(PLANNER, [AgentStep::Plan(Box::new(plan))]),
        PromptCase::new("## The setup fails", [write("deps.txt", "repaired\n")]),
        PromptCase::new(IMPLEMENTER, broken),
    ]);
    let cluster = cluster_with_setup(&script, &log).await;
    let client = cluster.client().await;
    let task = cluster.task(1);
    let id = task.id;
    let handle = cluster.start_task(&client, task).await;
    let result =
        cluster.with_worker(handle.get_result(WorkflowGetResultOptions::default())).await.unwrap();
    assert_eq!(result.state, State::Completed);
    assert_eq!(cluster.task_loop(id).await.iterations, 2);
    let checks = cluster.store.checks(id).await.unwrap();
    let CheckRecord::Gates(first) = &checks[0].record else { panic!("gates") };
    let setup = ("setup command", GateStatus::Failed, "setup command".to_owned());
    assert_eq!(summary(first), [setup]);
    // The operator's variables never meet what the agent chose to install.
    let log = std::fs::read_to_string(&log).unwrap();
    let lines: BTreeSet<&str> = log.lines().collect();
    assert_eq!(lines, BTreeSet::from(["base s3cret", "broken none", "repaired none"]), "{log}");
    // What used them is in the audit log, with their names.
    cluster.store.append_audit_entries(chrono::DateTime::UNIX_EPOCH, 500).await.unwrap();
    let page = cluster.store.audit_log(0, 500).await.unwrap();
    let entries: Vec<&str> = page.entries.iter().map(|entry| entry.content.as_str()).collect();
    let entries = entries.join("\n");
    for what in ["gates", "setup"] {
        assert!(entries.contains(&format!(r#""route":"{what}""#)), "{what} is not in {entries}");
    }
    assert!(entries.contains("use TEST_SECRET") && !entries.contains("s3cret"), "{entries}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_setup_runs_the_files_of_the_base_commit_unless_lock_files_change() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("setups");
    let evil = "echo \"evil ${TEST_SECRET-none}\" >> \"$1\"\n";
    let work = [write("names.txt", SAMPLE_CONTENT), write("install.sh", evil)];
    let script = Script::planned(plan_with("install.sh"), work);
    let cluster = cluster_with_setup(&script, &log).await;
    let client = cluster.client().await;
    let handle = cluster.start_task(&client, cluster.task(1)).await;
    let result =
        cluster.with_worker(handle.get_result(WorkflowGetResultOptions::default())).await.unwrap();
    assert_eq!(result.state, State::Completed);
    let log = std::fs::read_to_string(&log).unwrap();
    // In the worktree, in the checkout of the gates, and in that of the validator.
    assert_eq!(log, "base s3cret\n".repeat(3));
}
