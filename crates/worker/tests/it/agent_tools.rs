//! Tools of agents that reach into the worker: gates, the assignment, and answers during a run.

use serde_json::{Value, json};
use tamma_core::history::EntryName as N;
use tamma_core::ids::TaskId;
use tamma_core::task_loop::{Action, State};
use tamma_store::{LineFilter, LinePosition};
use tamma_testkit::agent::{AgentStep, Script};
use tamma_testkit::sample::{sample_plan, sample_script, sample_work};
use temporalio_client::WorkflowGetResultOptions;

use crate::cluster::{Cluster, until};

fn tool(name: &str, args: Value) -> AgentStep {
    AgentStep::Tool { name: name.to_owned(), args }
}

/// Returns everything that the agents of a task said, which includes the results of their tools.
async fn said(cluster: &Cluster, task: TaskId) -> String {
    let lines = cluster.store.lines(task, &LineFilter::default(), LinePosition::START, 1_000).await;
    lines.unwrap().into_iter().map(|line| line.text + "\n").collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_runs_the_gates_on_its_files_and_reads_its_assignment() {
    let plan = sample_plan(1);
    let start = json!({ "action": "start" });
    let result = |id: &str| json!({ "action": "result", "id": id });
    let mut work = vec![
        tool("get_task", json!({})),
        tool("run_gates", start.clone()),
        tool("run_gates", start.clone()),
        tool("run_gates", result("g1")),
        tool("run_gates", json!({ "action": "start", "gates": ["no-such-gate"] })),
    ];
    work.extend(sample_work(&plan));
    work.extend([tool("run_gates", start), tool("run_gates", result("g2"))]);
    // Slow enough to be running when the agent starts the next one.
    let slow_gate = "  slow: { command: sleep 2, kind: lint }\n";
    let cluster = Cluster::start_with(&Script::planned(plan, work), slow_gate).await;
    let repository = &cluster.project.repository;
    let link = format!("160000,{},vendor/lib", repository.git(&["rev-parse", "HEAD"]).unwrap());
    repository.git(&["update-index", "--add", "--cacheinfo", &link]).unwrap();
    repository.git(&["commit", "--quiet", "--message", "a submodule"]).unwrap();
    let client = cluster.client().await;
    let task = cluster.task(1);
    let id = task.id;
    let handle = cluster.start_task(&client, task).await;
    let result = cluster
        .with_worker(async {
            handle.get_result(WorkflowGetResultOptions::default()).await.unwrap()
        })
        .await;
    assert_eq!(result.state, State::Completed);
    let said = said(&cluster, id).await;
    for text in [
        "# Task: Greet Cy",
        "Approved plan",
        "# Content that is not here",
        "Submodules are not checked out, and their folders are empty: `vendor/lib`.",
        "Gate run `g1` started",
        "gate run `g1` is still running",
        "no gate `no-such-gate`; there are: check, slow",
        "Gate run `g2`: no gate fails because of your change.",
    ] {
        assert!(said.contains(text), "{text}\n{said}");
    }
    let checks = cluster.store.checks(id).await.unwrap();
    assert_eq!(checks.len(), 2, "the review ran its own gates, once: {checks:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_is_answered_without_ending_the_run() {
    let plan = sample_plan(1);
    let ask = tool("ask_human", json!({ "question": "Tabs or spaces?" }));
    let work = [ask].into_iter().chain(sample_work(&plan)).collect::<Vec<_>>();
    let cluster =
        Cluster::start_configured(&Script::planned(plan, work), |config| config.question_wait(50))
            .await;
    let client = cluster.client().await;
    let task = cluster.task(1);
    let id = task.id;
    let handle = cluster.start_task(&client, task).await;
    let result = cluster
        .with_worker(async {
            let open = until(async || {
                let saved = cluster.store.task(id).await.ok()?;
                saved.task_loop.ok()?.open_question
            })
            .await;
            assert!(open.live);
            assert_eq!(cluster.task_loop(id).await.state, State::InProgress);
            let reply = cluster.store.save_text("tabs").await.unwrap();
            cluster.request_action(&handle, "Bo", Action::Reply { reply }).await.unwrap();
            handle.get_result(WorkflowGetResultOptions::default()).await.unwrap()
        })
        .await;
    assert_eq!(result.state, State::Completed);
    assert!(said(&cluster, id).await.contains("Bo answered: tabs"));
    let names = cluster.entry_names(id).await;
    let count = |name: N| names.iter().filter(|it| **it == name).count();
    assert_eq!((count(N::SmQuestionAsked), count(N::SmQuestionAnswered)), (1, 1));
    let runs = cluster.store.runs(id).await.unwrap();
    assert_eq!(runs.iter().filter(|run| run.mode == "implement").count(), 1, "one run did it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn questions_at_the_same_time_are_answered_one_after_the_other() {
    let plan = sample_plan(1);
    let calls = ["Tabs?", "Spaces?"].map(|question| json!({ "question": question })).to_vec();
    let ask = AgentStep::ToolsTogether { name: "ask_human".to_owned(), calls };
    let work = [ask].into_iter().chain(sample_work(&plan)).collect::<Vec<_>>();
    let cluster =
        Cluster::start_configured(&Script::planned(plan, work), |config| config.question_wait(50))
            .await;
    let client = cluster.client().await;
    let task = cluster.task(1);
    let id = task.id;
    let handle = cluster.start_task(&client, task).await;
    let result = cluster
        .with_worker(async {
            for number in 1..=2 {
                let open = until(async || {
                    let saved = cluster.store.task(id).await.ok()?;
                    let open = saved.task_loop.ok()?.open_question?;
                    (open.number == number).then_some(open)
                })
                .await;
                let question = cluster.store.text(&open.agent_question.unwrap()).await.unwrap();
                let reply = format!("not {question}");
                let reply = cluster.store.save_text(&reply).await.unwrap();
                cluster.request_action(&handle, "Bo", Action::Reply { reply }).await.unwrap();
            }
            handle.get_result(WorkflowGetResultOptions::default()).await.unwrap()
        })
        .await;
    assert_eq!(result.state, State::Completed);
    let said = said(&cluster, id).await;
    for answer in ["Bo answered: not Tabs?", "Bo answered: not Spaces?"] {
        assert!(said.contains(answer), "{answer}\n{said}");
    }
    let runs = cluster.store.runs(id).await.unwrap();
    assert_eq!(runs.iter().filter(|run| run.mode == "implement").count(), 1, "one run did it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unanswered_question_ends_the_run_and_is_asked_once() {
    let mut script = sample_script(1);
    let ask = tool("ask_human", json!({ "question": "Tabs or spaces?" }));
    script.cases[1].steps.insert(0, ask);
    let cluster = Cluster::start_configured(&script, |config| config.question_wait(1)).await;
    let client = cluster.client().await;
    let task = cluster.task(1);
    let id = task.id;
    let handle = cluster.start_task(&client, task).await;
    cluster
        .with_worker(async {
            let ended = cluster.until_state(id, State::HumanEscalation).await;
            assert!(!ended.open_question.unwrap().live);
            let reply = cluster.store.save_text("tabs").await.unwrap();
            cluster.request_action(&handle, "Bo", Action::Reply { reply }).await.unwrap();
            // The next run asks the same, and gets the answer at once.
            until(async || said(&cluster, id).await.contains("Bo answered: tabs").then_some(()))
                .await;
        })
        .await;
    let names = cluster.entry_names(id).await;
    assert_eq!(names.iter().filter(|it| **it == N::SmQuestionAsked).count(), 1);
}
