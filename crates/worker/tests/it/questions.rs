//! Questions of agents: no process waits, and a later run gets the answer.

use serde_json::json;
use tamma_core::cause::AlertCause;
use tamma_core::history::EntryName as N;
use tamma_core::task_loop::{Action, State};
use tamma_testkit::agent::{AgentStep, PromptCase};
use tamma_testkit::sample::sample_script;
use temporalio_client::WorkflowGetResultOptions;

use crate::cluster::{Cluster, agents, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_is_answered_after_a_worker_restart() {
    let cluster = Cluster::start(&sample_script(1)).await;
    let asked = cluster.scratch_file("asked");
    let args = json!({ "question": "Tabs or spaces?", "choices": ["tabs", "spaces"] });
    let steps = vec![
        AgentStep::WriteUnasked { path: "half.txt".into(), content: "half".to_owned() },
        AgentStep::WriteUnasked { path: asked.clone(), content: String::new() },
        AgentStep::Tool { name: "ask_human".to_owned(), args },
        AgentStep::Hang,
    ];
    let mut script = sample_script(1);
    let when = "You are implementing".to_owned();
    script.cases.insert(0, PromptCase { when, unless: Some(asked), steps });
    // The next run works only with the answer in its prompt and the files of the first run.
    script.cases[2].when = "Answered by Bo: tabs".to_owned();
    script.cases[2].steps.insert(0, AgentStep::AwaitFile("half.txt".into()));
    script.cases[2].steps.insert(1, AgentStep::Delete { path: "half.txt".into() });
    cluster.replace_script(&script);
    let client = cluster.client().await;
    let task = cluster.task(1);
    let id = task.id;
    let handle = cluster.start_task(&client, task).await;
    cluster.with_worker(cluster.until_state(id, State::HumanEscalation)).await;
    // The worker has stopped, and its agent with it.
    assert!(agents(&cluster).is_empty());
    let question = cluster.task_loop(id).await.open_question.unwrap();
    assert_eq!((question.cause, question.default_answer), (AlertCause::AgentQuestion, None));
    let text = cluster.store.text(&question.agent_question.unwrap()).await.unwrap();
    assert_eq!(text, "Tabs or spaces?\n\nChoose one: tabs · spaces");
    let reply = cluster.store.save_text("tabs").await.unwrap();
    let result = cluster
        .with_worker(async {
            cluster.request_action(&handle, "Bo", Action::Reply { reply }).await.unwrap();
            handle.get_result(WorkflowGetResultOptions::default()).await.unwrap()
        })
        .await;
    assert_eq!(result.state, State::Completed);
    let names = cluster.entry_names(id).await;
    assert!(names.contains(&N::SmQuestionAsked) && names.contains(&N::SmQuestionAnswered));
    assert_eq!(
        cluster.task_loop(id).await.iterations,
        1,
        "a question does not count as an iteration"
    );
    let runs = cluster.store.runs(id).await.unwrap();
    let ends: Vec<_> = runs.iter().map(|run| run.end.map(|end| end.to_string())).collect();
    let ends: Vec<_> = ends.iter().map(|end| end.as_deref().unwrap_or("none")).collect();
    // The last runs are those of the validator and of learning.
    assert_eq!(ends, ["finished", "asked", "finished", "finished", "finished"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permission_is_asked_for_once_and_then_granted_for_the_task() {
    let cluster = Cluster::start_with(
        &sample_script(1),
        "permissions: { implementer: { ask: [\"write: names.txt\"] } }\n",
    )
    .await;
    let client = cluster.client().await;
    let task = cluster.task(1);
    let id = task.id;
    let handle = cluster.start_task(&client, task).await;
    let result = cluster
        .with_worker(async {
            let asked =
                cluster.until_state(id, State::HumanEscalation).await.open_question.unwrap();
            let text = cluster.store.text(&asked.agent_question.unwrap()).await.unwrap();
            assert!(text.ends_with("\n- write: names.txt"), "{text}");
            assert!(asked.default_answer.is_some(), "the default without an answer is no");
            let reply = cluster.store.save_text("allow").await.unwrap();
            until(async || cluster.task_loop(id).await.open_question).await;
            cluster.request_action(&handle, "Bo", Action::Reply { reply }).await.unwrap();
            handle.get_result(WorkflowGetResultOptions::default()).await.unwrap()
        })
        .await;
    // The diff is checked with the same permission rules and grants.
    assert_eq!(result.state, State::Completed);
    let names = cluster.entry_names(id).await;
    assert_eq!(names.iter().filter(|name| **name == N::SmQuestionAsked).count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_to_another_question_grants_no_permission() {
    // The policy also evaluates the denied pattern without its stars, for the agent's settings.
    let config = "permissions: { implementer: { ask: [\"command: deploy\"], \
                  deny: [\"command: deploy * *\"] } }\n";
    let mut script = sample_script(1);
    let args = json!({ "question": "Tabs or spaces?" });
    script.cases[1].steps.insert(0, AgentStep::Tool { name: "ask_human".to_owned(), args });
    let cluster = Cluster::start_with(&script, config).await;
    let client = cluster.client().await;
    let task = cluster.task(1);
    let id = task.id;
    cluster.start_task(&client, task).await;
    cluster.with_worker(cluster.until_state(id, State::HumanEscalation)).await;
    let asked = cluster.task_loop(id).await.open_question.unwrap();
    let text = cluster.store.text(&asked.agent_question.unwrap()).await.unwrap();
    assert_eq!(text, "Tabs or spaces?");
}
