//! Admission of runs, in a pool that shares projects and providers.

use std::num::NonZeroU16;
use std::time::Duration;

use chrono::TimeDelta;
use tamma_core::history::EntryName;
use tamma_core::task_loop::State;
use tamma_testkit::agent::{AgentStep, Script};
use tamma_testkit::sample::sample_script;

use crate::cluster::{Cluster, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_project_with_one_lease_has_one_run_at_a_time() {
    let cluster = Cluster::start_with(&sample_script(1), "engines: { per_project: 1 }\n").await;
    Box::pin(assert_one_run_at_a_time(&cluster)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_limits_the_runs_of_a_project() {
    let mut cluster = Cluster::start(&sample_script(1)).await;
    cluster.agents_per_project = Some(NonZeroU16::MIN);
    Box::pin(assert_one_run_at_a_time(&cluster)).await;
}

/// Runs two tasks, and asserts that their agents never work at the same time.
async fn assert_one_run_at_a_time(cluster: &Cluster) {
    let log_file = cluster.scratch_file("passages");
    let mut slow_script = sample_script(1);
    let append = |line: &str| AgentStep::Append { path: log_file.clone(), line: line.to_owned() };
    for case in &mut slow_script.cases {
        case.steps.insert(0, append("begins"));
        case.steps.insert(1, AgentStep::AwaitFile(cluster.scratch_file("go")));
        case.steps.push(append("ends"));
    }
    cluster.replace_script(&slow_script);
    let scenario = cluster.with_worker(async {
        let client = cluster.client().await;
        for number in [1, 2] {
            cluster.start_task(&client, cluster.task(number)).await;
        }
        for number in [1, 2] {
            cluster.until_state(cluster.task(number).id, State::Planning).await;
        }
        until(async || log_file.exists().then_some(())).await;
        // Gives the other run time to start, if it could.
        tokio::time::sleep(Duration::from_secs(1)).await;
        std::fs::write(cluster.scratch_file("go"), "").unwrap();
        for number in [1, 2] {
            cluster.until_state(cluster.task(number).id, State::Completed).await;
        }
    });
    Box::pin(scenario).await;
    let lines = std::fs::read_to_string(&log_file).unwrap();
    let lines: Vec<_> = lines.lines().collect();
    assert_eq!(lines.len(), 8, "two tasks, two runs each: {lines:?}");
    assert!(lines.chunks(2).all(|pair| pair == ["begins", "ends"]), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_run_starts_on_a_blocked_provider() {
    let cluster = Cluster::start(&sample_script(1)).await;
    let blocked_until = chrono::Utc::now() + TimeDelta::hours(1);
    cluster.store.block_provider("scripted", blocked_until).await.unwrap();
    let scenario = cluster.with_worker(async {
        let client = cluster.client().await;
        cluster.start_task(&client, cluster.task(1)).await;
        until(async || {
            let names = cluster.entry_names(cluster.task(1).id).await;
            names.contains(&EntryName::SmQuotaReached).then_some(())
        })
        .await;
    });
    Box::pin(scenario).await;
    assert_eq!(cluster.task_loop(cluster.task(1).id).await.state, State::Planning);
}

/// Returns a script whose agents write a line before and after their work, and wait for a file between.
fn noted_script(cluster: &Cluster) -> Script {
    let log_file = cluster.scratch_file("passages");
    let append = |line: &str| AgentStep::Append { path: log_file.clone(), line: line.to_owned() };
    let mut script = sample_script(1);
    for case in &mut script.cases {
        case.steps.insert(0, append("begins"));
        case.steps.insert(1, AgentStep::AwaitFile(cluster.scratch_file("go")));
        case.steps.push(append("ends"));
    }
    script
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_agent_starts_during_maintenance_and_the_task_continues_after_it() {
    let cluster = Cluster::start(&sample_script(1)).await;
    cluster.replace_script(&noted_script(&cluster));
    std::fs::write(cluster.scratch_file("go"), "").unwrap();
    let (by, at) = ("Ada".parse().unwrap(), chrono::Utc::now());
    cluster.store.start_maintenance("new disks", &by, at).await.unwrap();
    let scenario = cluster.with_worker(async {
        let client = cluster.client().await;
        cluster.start_task(&client, cluster.task(1)).await;
        cluster.until_state(cluster.task(1).id, State::Planning).await;
        // Gives the agent time to start, if it could.
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!cluster.scratch_file("passages").exists(), "an agent has started");
        assert!(cluster.store.end_maintenance().await.unwrap());
        cluster.until_state(cluster.task(1).id, State::Completed).await;
    });
    Box::pin(scenario).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_drains_lets_its_agent_end() {
    let mut cluster = Cluster::start(&sample_script(1)).await;
    cluster.drain = Duration::from_secs(30);
    cluster.replace_script(&noted_script(&cluster));
    let (log_file, go) = (cluster.scratch_file("passages"), cluster.scratch_file("go"));
    let scenario = cluster.with_worker(async {
        let client = cluster.client().await;
        cluster.start_task(&client, cluster.task(1)).await;
        until(async || log_file.exists().then_some(())).await;
        // After the worker was asked to stop.
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            std::fs::write(go, "").unwrap();
        });
    });
    Box::pin(scenario).await;
    let lines = std::fs::read_to_string(&log_file).unwrap();
    assert_eq!(lines.lines().collect::<Vec<_>>(), ["begins", "ends"]);
}
