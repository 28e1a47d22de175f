//! Results that agents report: disputed plans, blocked runs, and critical findings.

use serde_json::json;
use tamma_core::history::EntryName as N;
use tamma_core::plan::Plan;
use tamma_core::review::record::CheckRecord;
use tamma_core::run_result::RunStatus;
use tamma_core::task_loop::{Action, State};
use tamma_flow::activities::JobResult;
use tamma_testkit::agent::{AgentStep, IMPLEMENTER, PromptCase, Script, VALIDATOR};
use tamma_testkit::sample::{sample_plan, sample_script};
use temporalio_client::WorkflowGetResultOptions;

use crate::cluster::Cluster;

fn submit_result(status: &str, summary: &str) -> AgentStep {
    let args = json!({ "status": status, "summary": summary });
    AgentStep::Tool { name: "submit_result".to_owned(), args }
}

/// Returns the sample script with a first run that has other steps.
fn with_first_run(cluster: &Cluster, mut steps: Vec<AgentStep>) -> Script {
    let marker = cluster.scratch_file("first-run");
    steps.insert(0, AgentStep::WriteUnasked { path: marker.clone(), content: String::new() });
    let mut script = sample_script(1);
    let when = IMPLEMENTER.to_owned();
    script.cases.insert(0, PromptCase { when, unless: Some(marker), steps });
    script
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disputed_plan_is_revised_with_the_agents_reasons() {
    let cluster = Cluster::start(&sample_script(1)).await;
    let steps = vec![submit_result("plan_wrong", "names.txt is generated")];
    let mut script = with_first_run(&cluster, steps);
    // The planner gets the reasons in its prompt.
    let revised = Plan { summary: "Cy is greeted at last".to_owned(), ..sample_plan(1) };
    let plan = AgentStep::Plan(Box::new(revised));
    script.cases.insert(0, PromptCase::new("names.txt is generated", [plan]));
    cluster.replace_script(&script);
    let client = cluster.client().await;
    let task = cluster.task(1);
    let id = task.id;
    let handle = cluster.start_task(&client, task).await;
    let result =
        cluster.with_worker(handle.get_result(WorkflowGetResultOptions::default())).await.unwrap();
    assert_eq!(result.state, State::Completed);
    assert!(cluster.entry_names(id).await.contains(&N::SmPlanDisputed));
    assert_eq!(cluster.store.plan(id, 2).await.unwrap().summary, "Cy is greeted at last");
    let task_loop = cluster.task_loop(id).await;
    assert_eq!((task_loop.retries, task_loop.iterations), (1, 1));
    let results: Vec<(u32, JobResult)> = cluster.store.job_results(id).await.unwrap();
    let claims: Vec<_> = results.iter().filter_map(|(_, result)| result.claims()).collect();
    assert_eq!(claims.len(), 1, "the second run submitted none");
    assert_eq!(claims[0].status, RunStatus::PlanWrong);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_agent_asks_a_person() {
    let cluster = Cluster::start(&sample_script(1)).await;
    let steps = vec![submit_result("blocked", "The password of the test server is missing.")];
    cluster.replace_script(&with_first_run(&cluster, steps));
    let client = cluster.client().await;
    let task = cluster.task(1);
    let id = task.id;
    let handle = cluster.start_task(&client, task).await;
    let result = cluster
        .with_worker(async {
            let asked = cluster.until_state(id, State::HumanEscalation).await;
            let question = asked.open_question.unwrap().agent_question.unwrap();
            let text = cluster.store.text(&question).await.unwrap();
            assert!(text.contains("The password of the test server is missing."), "{text}");
            let reply = cluster.store.save_text("It is not needed.").await.unwrap();
            cluster.request_action(&handle, "Bo", Action::Reply { reply }).await.unwrap();
            handle.get_result(WorkflowGetResultOptions::default()).await.unwrap()
        })
        .await;
    assert_eq!(result.state, State::Completed);
    let runs = cluster.store.runs(id).await.unwrap();
    assert!(runs.iter().any(|run| run.end == Some(tamma_store::RunEnd::Asked)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_critical_finding_that_nobody_confirms_does_not_halt_the_task() {
    let cluster = Cluster::start(&sample_script(1)).await;
    let marker = cluster.scratch_file("first-review");
    let met = json!({
        "id": "C1",
        "verdict": "met",
        "evidence": "the name is in the list",
        "file": "names.txt",
    });
    let critical = json!({
        "severity": "critical",
        "category": "security",
        "message": "names are executed",
        "file": "names.txt",
        "scenario": "name `x`: expected a greeting, got a shell",
    });
    let plain = || AgentStep::Submit(json!({ "criteria": [met.clone()] }));
    let alarm = AgentStep::Submit(json!({ "criteria": [met.clone()], "issues": [critical] }));
    let mut script = sample_script(1);
    script.cases.insert(0, PromptCase::new("# Findings to check", [plain()]));
    let first = AgentStep::WriteUnasked { path: marker.clone(), content: String::new() };
    script.cases.insert(
        1,
        PromptCase { when: VALIDATOR.to_owned(), unless: Some(marker), steps: vec![first, alarm] },
    );
    script.cases.push(PromptCase::new(VALIDATOR, [plain()]));
    cluster.replace_script(&script);
    let client = cluster.client().await;
    let mut task = cluster.task(1);
    task.acceptance_criteria = vec!["Cy is greeted.".to_owned()];
    let id = task.id;
    let handle = cluster.start_task(&client, task).await;
    let result =
        cluster.with_worker(handle.get_result(WorkflowGetResultOptions::default())).await.unwrap();
    assert_eq!(result.state, State::Completed);
    let names = cluster.entry_names(id).await;
    assert!(names.contains(&N::SmSecondReviewRequested) && names.contains(&N::SmReviewFailed));
    let checks = cluster.store.checks(id).await.unwrap();
    let reviews: Vec<_> = checks
        .iter()
        .filter_map(|check| match &check.record {
            CheckRecord::Review(review) => Some(review),
            CheckRecord::Gates(_) => None,
        })
        .collect();
    let second: Vec<_> = reviews
        .iter()
        .map(|review| review.second.as_ref().map(|second| second.confirmed))
        .collect();
    assert_eq!(second, [Some(false), None]);
}
