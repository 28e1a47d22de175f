//! Changes that are too large to be seen or committed: a person decides.

use tamma_core::plan::{FileAction, FileChange, Plan};
use tamma_core::review::record::{CheckRecord, ReviewCheck};
use tamma_core::task_loop::State;
use tamma_testkit::agent::{AgentStep, Script};
use tamma_testkit::sample::sample_plan;

use crate::cluster::{Cluster, until};

/// Script that plans one new file, and takes other steps.
fn script(path: &str, work: impl IntoIterator<Item = AgentStep>) -> Script {
    let change = FileChange {
        path: path.to_owned(),
        action: FileAction::Create,
        description: "as requested".to_owned(),
        estimated_lines: 1,
    };
    Script::planned(Plan { file_changes: vec![change], ..sample_plan(1) }, work)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_whose_patch_is_truncated_does_not_pass() {
    let content = "twenty bytes of text\n".repeat(250_000);
    let step = AgentStep::WriteUnasked { path: "data.txt".into(), content };
    let cluster = Cluster::start(&script("data.txt", [step])).await;
    let client = cluster.client().await;
    let task = cluster.task(1);
    let id = task.id;
    cluster.start_task(&client, task).await;
    let review = until(async || {
        let checks = cluster.store.checks(id).await.unwrap();
        checks.into_iter().find_map(|check| match check.record {
            CheckRecord::Review(review) => Some(review),
            CheckRecord::Gates(_) => None,
        })
    });
    let ReviewCheck { verdict, is_diff_truncated, diff, .. } = cluster.with_worker(review).await;
    assert!(is_diff_truncated && !verdict.passed);
    let patch = cluster.store.text(&diff.unwrap()).await.unwrap();
    assert!(patch.len() <= 4_000_000, "{}", patch.len());
    let issues: Vec<_> = verdict.inputs.issues.iter().map(|issue| &*issue.message).collect();
    assert!(issues.iter().any(|it| it.contains("too large to review")), "{issues:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_cannot_be_committed_is_a_question() {
    let cluster = Cluster::start(&script("huge.bin", [])).await;
    let [done, pid_file] = ["done", "pid"].map(|name| cluster.scratch_file(name));
    let command = format!("truncate -s 200M huge.bin; touch {}", done.display());
    let spawn = AgentStep::Spawn { command, new_session: false, pid_file };
    cluster.replace_script(&script("huge.bin", [spawn, AgentStep::AwaitFile(done)]));
    let client = cluster.client().await;
    let task = cluster.task(1);
    let id = task.id;
    cluster.start_task(&client, task).await;
    let asked = cluster.with_worker(cluster.until_state(id, State::HumanEscalation)).await;
    let question = asked.open_question.unwrap().agent_question.unwrap();
    let text = cluster.store.text(&question).await.unwrap();
    assert!(text.contains("`huge.bin` has 209715200 bytes"), "{text}");
}
