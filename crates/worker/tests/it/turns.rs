//! Admission of runs, in a pool that shares projects and providers.

use std::time::Duration;

use chrono::TimeDelta;
use tamma_core::history::EntryName;
use tamma_core::task_loop::State;
use tamma_testkit::agent::AgentStep;
use tamma_testkit::sample::sample_script;

use crate::stage::{Stage, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_project_with_one_lease_has_one_run_at_a_time() {
    let stage = Stage::set_with(&sample_script(1), "engines: { per_project: 1 }\n").await;
    let passages = stage.aside("passages");
    let mut told = sample_script(1);
    let say = |line: &str| AgentStep::Append { path: passages.clone(), line: line.to_owned() };
    for case in &mut told.cases {
        case.steps.insert(0, say("begins"));
        case.steps.insert(1, AgentStep::AwaitFile(stage.aside("go")));
        case.steps.push(say("ends"));
    }
    stage.rewrite(&told);
    let played = stage.play(async {
        let client = stage.client().await;
        for number in [1, 2] {
            stage.begin(&client, stage.task(number)).await;
        }
        for number in [1, 2] {
            stage.until(stage.task(number).id, State::Planning).await;
        }
        until(async || passages.exists().then_some(())).await;
        // Gives the other run time to start, if it could.
        tokio::time::sleep(Duration::from_secs(1)).await;
        std::fs::write(stage.aside("go"), "").unwrap();
        for number in [1, 2] {
            stage.until(stage.task(number).id, State::Completed).await;
        }
    });
    Box::pin(played).await;
    let lines = std::fs::read_to_string(&passages).unwrap();
    let lines: Vec<_> = lines.lines().collect();
    assert_eq!(lines.len(), 8, "two tasks, two runs each: {lines:?}");
    assert!(lines.chunks(2).all(|pair| pair == ["begins", "ends"]), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_run_starts_on_a_blocked_provider() {
    let stage = Stage::set(&sample_script(1)).await;
    let held = chrono::Utc::now() + TimeDelta::hours(1);
    stage.cluster.store.block_provider("scripted", held).await.unwrap();
    let played = stage.play(async {
        let client = stage.client().await;
        stage.begin(&client, stage.task(1)).await;
        until(async || {
            let names = stage.names(stage.task(1).id).await;
            names.contains(&EntryName::SmQuotaReached).then_some(())
        })
        .await;
    });
    Box::pin(played).await;
    assert_eq!(stage.machine(stage.task(1).id).await.state, State::Planning);
}
