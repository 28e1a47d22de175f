//! Gates as a worker runs them: what they are compared with, and what of the tests must stay.

use tamma_core::gate::Standing;
use tamma_core::ids::TaskId;
use tamma_core::plan::{Action, FileChange, Plan};
use tamma_core::review::record::{Baseline, Record, Tested};
use tamma_core::task_loop::State;
use tamma_testkit::agent::{Case, Script, Step};

use crate::stage::{Stage, plan, script, until};

/// A gate that runs every file in `tests` as a test: it must say the same as `value.txt`.
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

/// A project whose value is 1, with tests, and an agent that makes a change. Nothing stands for a file
/// that it deletes.
async fn stage(tests: &[(&str, &str)], change: &[(&str, Option<&str>)], planned: &[&str]) -> Stage {
    let file = |(path, content): &(&str, Option<&str>)| FileChange {
        path: (*path).to_owned(),
        action: if content.is_some() { Action::Modify } else { Action::Delete },
        description: "as it is wanted".to_owned(),
        estimated_lines: 1,
    };
    let plan = Plan {
        file_changes: change.iter().map(file).collect(),
        test_changes: planned.iter().map(|test| (*test).to_owned()).collect(),
        ..plan(1)
    };
    let step = |(path, content): &(&str, Option<&str>)| match content {
        Some(content) => Step::Write { path: path.into(), content: format!("{content}\n") },
        None => Step::Delete { path: path.into() },
    };
    let case = |when: &str, steps| Case { when: when.to_owned(), unless: None, steps };
    let script = Script {
        cases: vec![
            case("You are the planner", vec![Step::Plan(Box::new(plan))]),
            case("You are implementing", change.iter().map(step).collect()),
        ],
        ..script(1)
    };
    let stage = Stage::set_with(&script, GATE).await;
    stage.repository.write("suite.sh", SUITE).unwrap();
    stage.repository.write("value.txt", "1\n").unwrap();
    for (name, content) in tests {
        stage.repository.write(&format!("tests/{name}.txt"), &format!("{content}\n")).unwrap();
    }
    stage.repository.commit("a suite").unwrap();
    stage
}

/// What is kept of the gates of a task's first commit.
async fn tested(stage: &Stage, number: u128) -> Tested {
    let client = stage.client().await;
    let task = stage.task(number);
    let id: TaskId = task.id;
    stage.begin(&client, task).await;
    let kept = until(async || {
        let checks = stage.store.checks(id).await.unwrap();
        checks.into_iter().find_map(|check| match check.record {
            Record::Gates(tested) => Some(tested),
            Record::Review(_) => None,
        })
    });
    stage.play(kept).await
}

/// The gates by name, with what each came to and the names that count.
fn seen(tested: &Tested) -> Vec<(&str, Standing, String)> {
    let names = |ran: &tamma_core::review::record::Ran| {
        let names = ran.judged.new.iter().chain(&ran.judged.missing).cloned();
        names.collect::<Vec<_>>().join(" ")
    };
    tested.gates.iter().map(|ran| (&*ran.judged.name, ran.judged.standing, names(ran))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_test_that_is_removed_or_skipped_without_a_plan_is_missing() {
    let change = [("tests/b.txt", None), ("tests/c.txt", Some("skip"))];
    let stage = stage(&[("a", "1"), ("b", "1"), ("c", "1")], &change, &[]).await;
    let tested = tested(&stage, 1).await;
    let missing = "suite::b suite::c".to_owned();
    let (check, passed) = ("check", Standing::Passed);
    let old = ("check (tests as they were)", passed, String::new());
    let expected = [(check, passed, String::new()), ("suite", Standing::Failed, missing), old];
    assert_eq!(seen(&tested), expected);
    assert_eq!(tested.gates[1].code, Some(0), "its own exit code says nothing of it");
    assert_eq!(tested.gates[1].tests.unwrap().passed, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tests_that_were_there_must_pass_as_they_were() {
    let change = [("value.txt", Some("2")), ("tests/a.txt", Some("2"))];
    let stage = stage(&[("a", "1"), ("b", "any")], &change, &[]).await;
    let tested = tested(&stage, 1).await;
    let seen = seen(&tested);
    assert_eq!(seen[1], ("suite", Standing::Passed, String::new()));
    let failed = ("suite (tests as they were)", Standing::Failed, "suite::a".to_owned());
    assert!(seen.contains(&failed), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_plan_names_may_change() {
    let change = [("value.txt", Some("2")), ("tests/a.txt", Some("2")), ("tests/b.txt", None)];
    let tests = [("a", "1"), ("b", "1")];
    let stage = stage(&tests, &change, &["tests/a.txt", "suite::b"]).await;
    let tested = tested(&stage, 1).await;
    assert!(tested.gates.iter().all(|ran| !ran.judged.counts()), "{:?}", seen(&tested));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_base_commit_is_asked_once_and_what_fails_there_does_not_count() {
    let stage = stage(&[("a", "1"), ("z", "9")], &[("names.txt", Some("ann\nbo\ncy"))], &[]).await;
    let first = tested(&stage, 1).await;
    assert_eq!(first.gates[1].judged.standing, Standing::PreExisting);
    assert_eq!(first.gates[1].judged.pre_existing.len(), 1);
    assert_eq!(first.gates[1].baseline, Baseline::Taken);
    let second = tested(&stage, 2).await;
    assert_eq!(second.gates[1].judged, first.gates[1].judged);
    assert_eq!(second.gates[1].baseline, Baseline::Known);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_that_runs_on_no_commit_judges_none_and_is_told_to_a_person() {
    let more = "  broken: { command: no-such-tool --all, kind: lint }\n\
                scrum_master: { task_loop: { max_failures_per_state: 1 } }\n";
    let stage = Stage::set_with(&script(1), more).await;
    let client = stage.client().await;
    let task = stage.task(1);
    let id = task.id;
    stage.begin(&client, task).await;
    stage.play(stage.until(id, State::HumanEscalation)).await;
    let log = stage.log(id).await;
    let told = log.iter().filter_map(|entry| entry.reason.as_deref());
    let told = told.filter(|reason| reason.contains("the gate `broken` cannot be run")).count();
    assert!(told > 0, "{:#?}", log.iter().map(|it| (it.name, &it.reason)).collect::<Vec<_>>());
}
