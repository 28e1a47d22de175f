//! Complete task without people.

use tamma_core::complexity::{Grade, PlanSignals, Signals};
use tamma_core::history::EntryName as N;
use tamma_core::ids::short_id;
use tamma_core::plan::Plan;
use tamma_core::review::record::CheckRecord;
use tamma_core::task::Task;
use tamma_core::task_loop::{Action, State};
use tamma_core::tier::Tier;
use tamma_store::{LineFilter, LineKind, LinePosition};
use tamma_testkit::agent::{AgentStep, PromptCase};
use tamma_testkit::sample::{sample_plan, sample_script};
use temporalio_client::{WorkflowFetchHistoryOptions, WorkflowGetResultOptions};
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;

use crate::cluster::{Cluster, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_low_risk_task_completes_by_itself() {
    let cluster = Cluster::start(&sample_script(1)).await;
    let client = cluster.client().await;
    let task = cluster.task(1);
    let id = task.id;
    let handle = cluster.start_task(&client, task).await;
    let result =
        cluster.with_worker(handle.get_result(WorkflowGetResultOptions::default())).await.unwrap();
    assert_eq!(result.state, State::Completed);
    assert_eq!(
        cluster.entry_names(id).await,
        [
            N::SmTaskReceived,
            N::SmTaskAssigned,
            N::SmPlanStarted,
            N::SmPlanGenerated,
            N::SmKnowledgeChecked,
            N::SmApprovalAuto,
            N::SmApprovalGranted,
            N::SmImplementationStarted,
            N::SmImplementationCompleted,
            N::SmReviewStarted,
            N::SmReviewPassed,
            N::SmStateTransition,
            N::SmDelivered,
            N::SmLearningCaptured,
            N::SmTaskCompleted,
        ]
    );
    // The branch in the user's repository has exactly one commit.
    let branch = cluster.store.task_branch(id).await.unwrap();
    assert_eq!(branch, format!("tamma/{}-greet-cy", short_id(id.0)));
    let list = cluster
        .project
        .repository
        .git(&["log", "--format=%s", &format!("main..{branch}")])
        .unwrap();
    assert_eq!(list, "Greet Cy");
    let names = cluster.project.repository.git(&["show", &format!("{branch}:names.txt")]).unwrap();
    assert_eq!(names, "ann\nbo\ncy");
    // The task is pinned to its prompts, and the validator judged the criteria that the plan proposes.
    let prompts = cluster.task_loop(id).await.pin.and_then(|pin| pin.prompts).unwrap();
    let prompts = cluster.store.text_by_hash(prompts).await.unwrap();
    assert!(prompts.contains("You are the planner"), "{prompts}");
    let checks = cluster.store.checks(id).await.unwrap();
    let criteria = checks.into_iter().find_map(|check| match check.record {
        CheckRecord::Review(review) => Some(review.verdict.inputs.criteria),
        CheckRecord::Gates(_) => None,
    });
    let criteria = criteria.unwrap();
    assert_eq!((criteria.len(), &*criteria[0].text), (1, "Every listed name is greeted."));
    assert!(criteria[0].is_met(), "{criteria:?}");
    // Number of history events in Temporal, with a learning run.
    let history = handle.fetch_history(WorkflowFetchHistoryOptions::default());
    let events = history.into_events().await.unwrap();
    println!("history events: {}", events.len());
    assert!(events.len() <= 60, "{} history events", events.len());
    // Nobody reads the task in Temporal.
    let Some(Attributes::WorkflowExecutionStartedEventAttributes(started)) =
        events.first().unwrap().attributes.clone()
    else {
        panic!("the history has no start");
    };
    let input = started.input.unwrap().payloads.remove(0);
    assert_eq!(input.metadata["encoding"], b"binary/encrypted");
    assert_eq!(input.metadata["encryption-key-id"], b"test-2");
    assert!(input.data.windows(5).all(|part| part != b"Greet"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suggested_agent_implements_the_task() {
    let cluster =
        Cluster::start_configured(&sample_script(1), |config| config.another_agent("favourite"))
            .await;
    let client = cluster.client().await;
    let task = Task { suggested_agent: Some("favourite".to_owned()), ..cluster.task(1) };
    let id = task.id;
    let handle = cluster.start_task(&client, task).await;
    let result =
        cluster.with_worker(handle.get_result(WorkflowGetResultOptions::default())).await.unwrap();
    assert_eq!(result.state, State::Completed);
    let runs = cluster.store.runs(id).await.unwrap();
    let agents: Vec<_> = runs.iter().map(|run| (run.mode.as_str(), run.agent.as_str())).collect();
    // All others stay those of their tiers.
    assert_eq!(
        agents,
        [
            ("plan", "scripted"),
            ("implement", "favourite"),
            ("validate", "scripted"),
            ("learn", "scripted")
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_starts_in_the_tier_of_its_plans_signals() {
    let graded = |modules, grade| {
        let (novelty, tests, security, ambiguity) = (grade, grade, grade, grade);
        Signals { files: 0, modules, novelty, tests, security, ambiguity }
    };
    let signals = [
        ("Greet Cy", Some(graded(1, Grade::None)), Tier::Simple),
        ("Greet Di", Some(graded(2, Grade::Some)), Tier::Moderate),
        ("Greet Ed", Some(graded(3, Grade::Much)), Tier::Complex),
        // Not graded, although asked again: estimated as a new folder with sparse requirements.
        ("Greet the session token of Flo", None, Tier::Moderate),
    ];
    let mut script = sample_script(2);
    for (title, signals, _) in &signals {
        let signals = signals.map_or_else(PlanSignals::default, PlanSignals::from);
        let plan = AgentStep::Plan(Box::new(Plan { signals, ..sample_plan(2) }));
        let when = format!("# Task: {title} (feature)");
        // Planners that leave signals out are asked again, in another turn.
        let end = AgentStep::End { tokens: None };
        script.cases.insert(0, PromptCase::new(when, [plan.clone(), end, plan]));
    }
    let cluster = Cluster::start(&script).await;
    let client = cluster.client().await;
    cluster
        .with_worker(async {
            let mut started = Vec::new();
            for (number, (title, _, tier)) in (1..).zip(signals) {
                let task = Task { title: title.to_owned(), ..cluster.task(number) };
                let id = task.id;
                started.push((title, tier, id, cluster.start_task(&client, task).await));
            }
            for (title, tier, id, handle) in started {
                // Complexity raises the risk, so a person approves.
                let scope = until(async || {
                    let task_loop = cluster.store.task(id).await.ok()?.task_loop.ok()?;
                    let is_asked = task_loop.open_question.is_some();
                    let is_over = task_loop.state.is_terminal();
                    (is_asked || is_over).then_some(task_loop.current_scope().filter(|_| is_asked))
                });
                if let Some(scope) = scope.await {
                    let approve = Action::Approve { scope, reason: None };
                    cluster.request_action(&handle, "Ann", approve).await.unwrap();
                }
                let run = until(async || {
                    let runs = cluster.store.runs(id).await.ok()?;
                    runs.into_iter().find(|run| run.mode == "implement")
                });
                let run = run.await;
                assert_eq!(run.tier, Some(tier), "{title}");
            }
        })
        .await;
    let plan = cluster.store.plan(cluster.task(4).id, 1).await.unwrap();
    assert_eq!(plan.estimated_signals.len(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_agent_reports_progress_at_the_configured_interval() {
    const INTERVAL_MS: i64 = 150;
    let mut script = sample_script(1);
    let config = format!(
        "scrum_master: {{ task_loop: {{ progress_update_interval_ms: {INTERVAL_MS} }} }}\n"
    );
    let cluster = Cluster::start_with(&script, &config).await;
    // The agent works until its third report has been stored.
    let proceed = cluster.scratch_file("go");
    script.cases[1].steps.insert(0, AgentStep::AwaitFile(proceed.clone()));
    cluster.replace_script(&script);
    let client = cluster.client().await;
    let task = cluster.task(1);
    let id = task.id;
    let handle = cluster.start_task(&client, task).await;
    let filter = LineFilter { kinds: vec![LineKind::Progress], ..LineFilter::default() };
    let reports = cluster
        .with_worker(async {
            let reports = until(async || {
                let lines = cluster.store.lines(id, &filter, LinePosition::START, 1_000).await;
                lines.ok().filter(|lines| lines.len() >= 3)
            });
            let reports = reports.await;
            std::fs::write(&proceed, "").unwrap();
            let ended = handle.get_result(WorkflowGetResultOptions::default()).await.unwrap();
            assert_eq!(ended.state, State::Completed);
            reports
        })
        .await;
    for pair in reports.windows(2) {
        let gap = (pair[1].at - pair[0].at).num_milliseconds();
        assert!(gap >= INTERVAL_MS, "{gap} ms");
    }
    // Programs find the reports by the name of the event.
    let event = serde_json::json!(N::SmImplementationProgress);
    assert!(reports.iter().all(|line| line.data.as_ref().is_some_and(|it| it["event"] == event)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_project_replaces_prompts_if_the_worker_allows_it() {
    let mut cluster =
        Cluster::start_with(&sample_script(1), "prompts: { implement: own.md }\n").await;
    cluster.allow_project_prompts = true;
    let prompt = "You are implementing {{ task.title }} our way: {{ plan.summary }}\n";
    cluster.project.repository.write("own.md", prompt).unwrap();
    cluster.project.repository.commit("a prompt").unwrap();
    let client = cluster.client().await;
    let task = cluster.task(1);
    let id = task.id;
    let handle = cluster.start_task(&client, task).await;
    let result =
        cluster.with_worker(handle.get_result(WorkflowGetResultOptions::default())).await.unwrap();
    assert_eq!(result.state, State::Completed);
    let prompts = cluster.task_loop(id).await.pin.and_then(|pin| pin.prompts).unwrap();
    let prompts = cluster.store.text_by_hash(prompts).await.unwrap();
    assert!(prompts.contains("our way"), "{prompts}");
}
