//! What an agent asks a person: nothing waits in a process, and the answer reaches a later run.

use serde_json::json;
use tamma_core::cause::Cause;
use tamma_core::log::EntryName as N;
use tamma_core::task_loop::{Action, State};
use tamma_testkit::agent::{Case, Step};
use temporalio_client::WorkflowGetResultOptions;

use crate::stage::{Stage, agents, script, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_is_answered_after_the_worker_was_stopped_and_another_started() {
    let stage = Stage::set(&script(1)).await;
    let asked = stage.aside("asked");
    let args = json!({ "question": "Tabs or spaces?", "choices": ["tabs", "spaces"] });
    let steps = vec![
        Step::WriteUnasked { path: "half.txt".into(), content: "half".to_owned() },
        Step::WriteUnasked { path: asked.clone(), content: String::new() },
        Step::Tool { name: "ask_human".to_owned(), args },
        Step::Hang,
    ];
    let mut script = script(1);
    let when = "You are implementing".to_owned();
    script.cases.insert(0, Case { when, unless: Some(asked), steps });
    // The next run works only if it was told the answer, and finds what the first one has left.
    script.cases[2].when = "Answered by Bo: tabs".to_owned();
    script.cases[2].steps.insert(0, Step::AwaitFile("half.txt".into()));
    script.cases[2].steps.insert(1, Step::Delete { path: "half.txt".into() });
    stage.rewrite(&script);
    let client = stage.client().await;
    let task = stage.task(1);
    let id = task.id;
    let handle = stage.begin(&client, task).await;
    stage.play(stage.until(id, State::HumanEscalation)).await;
    // The worker is gone, and nothing of the agent is left.
    assert!(agents(&stage).is_empty());
    let question = stage.machine(id).await.question.unwrap();
    assert_eq!((question.cause, question.default), (Cause::AgentAsked, None));
    let text = stage.store.kept(&question.about.unwrap()).await.unwrap();
    assert_eq!(text, "Tabs or spaces?\n\nChoose one: tabs · spaces");
    let reply = stage.store.keep("tabs").await.unwrap();
    let ended = stage
        .play(async {
            stage.ask(&handle, "Bo", Action::Reply { reply }).await.unwrap();
            handle.get_result(WorkflowGetResultOptions::default()).await.unwrap()
        })
        .await;
    assert_eq!(ended.state, State::Completed);
    let names = stage.names(id).await;
    assert!(names.contains(&N::SmQuestionAsked) && names.contains(&N::SmQuestionAnswered));
    assert_eq!(stage.machine(id).await.iterations, 1, "a question is no iteration");
    let runs = stage.store.runs(id).await.unwrap();
    let ends: Vec<_> = runs.iter().map(|run| run.end.map(|end| end.to_string())).collect();
    let told: Vec<_> = ends.iter().map(|end| end.as_deref().unwrap_or("none")).collect();
    // The last one looks back at the task.
    assert_eq!(told, ["finished", "asked", "finished", "finished"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_rules_say_to_ask_is_asked_once_and_then_allowed_for_the_task() {
    let stage = Stage::set_with(
        &script(1),
        "permissions: { implementer: { ask: [\"write: names.txt\"] } }\n",
    )
    .await;
    let client = stage.client().await;
    let task = stage.task(1);
    let id = task.id;
    let handle = stage.begin(&client, task).await;
    let ended = stage
        .play(async {
            let asked = stage.until(id, State::HumanEscalation).await.question.unwrap();
            let text = stage.store.kept(&asked.about.unwrap()).await.unwrap();
            assert!(text.ends_with("\n- write: names.txt"), "{text}");
            assert!(asked.default.is_some(), "nobody's answer is a no");
            let reply = stage.store.keep("allow").await.unwrap();
            until(async || stage.machine(id).await.question).await;
            stage.ask(&handle, "Bo", Action::Reply { reply }).await.unwrap();
            handle.get_result(WorkflowGetResultOptions::default()).await.unwrap()
        })
        .await;
    // The diff is judged by the same rules, with the same approval.
    assert_eq!(ended.state, State::Completed);
    let names = stage.names(id).await;
    assert_eq!(names.iter().filter(|name| **name == N::SmQuestionAsked).count(), 1);
}
