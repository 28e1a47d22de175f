//! Actions of people: approve, pause, cancel and answer.

use serde_json::json;
use tamma_core::actor::Actor;
use tamma_core::approval::ApprovalScope;
use tamma_core::cost::Tokens;
use tamma_core::history::{EntryData, EntryName as N};
use tamma_core::ids::{PlanHash, PolicyVersion};
use tamma_core::plan::PlanAdjustment;
use tamma_core::task_loop::{Action, State};
use tamma_flow::{RulesChanged, TaskWorkflow};
use tamma_store::{LineFilter, LinePosition};
use tamma_testkit::agent::{AgentStep, PromptCase, ResumeSupport};
use tamma_testkit::sample::sample_script;
use temporalio_client::{WorkflowExecuteUpdateOptions, WorkflowGetResultOptions};

use crate::cluster::{Cluster, agents, until};

fn approve(scope: ApprovalScope) -> Action {
    Action::Approve { scope, reason: None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_medium_risk_plan_waits_for_approval_of_its_hash() {
    let cluster = Cluster::start(&sample_script(7)).await;
    let client = cluster.client().await;
    let task = cluster.task(1);
    let id = task.id;
    let handle = cluster.start_task(&client, task).await;
    let ended = cluster
        .with_worker(async {
            let scope = cluster.until_state(id, State::AwaitingApproval).await.current_scope();
            let scope = until(async || cluster.task_loop(id).await.open_question.and(scope)).await;
            let other = ApprovalScope { plan: PlanHash::of(b"another plan"), ..scope };
            let refused = cluster.request_action(&handle, "Ann", approve(other)).await.unwrap_err();
            assert!(refused.contains("the plan has changed since you saw it"), "{refused}");
            let status = cluster.request_action(&handle, "Ann", approve(scope)).await.unwrap();
            assert_eq!(status.plan, Some(scope.plan));
            handle.get_result(WorkflowGetResultOptions::default()).await.unwrap()
        })
        .await;
    assert_eq!(ended.state, State::Completed);
    let decisions = cluster.store.decisions(id).await.unwrap();
    assert_eq!(decisions.len(), 1);
    assert_eq!(decisions[0].by.as_deref(), Some("Ann"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_lets_the_council_review_a_plan_and_then_approves_it() {
    const QUESTION: &str = "Is the order of the names kept?";
    let opinion = json!({
        "root_cause": "Yes, the list is appended to.", "fix": "None needed.",
        "confidence": "high", "against": "Nobody tested it.",
    });
    let conclusion = json!({
        "root_cause": "The plan holds.", "fix": "None needed.", "dissent": [],
        "architectural_insights": ["The list has two owners."],
    });
    let mut script = sample_script(7);
    // Members and chair answer only if their prompts contain the question.
    script.cases.insert(0, PromptCase::new(QUESTION, [AgentStep::Submit(opinion)]));
    let chair = "You are the chair of the council";
    script.cases.insert(0, PromptCase::new(chair, [AgentStep::Submit(conclusion)]));
    let cluster = Cluster::start(&script).await;
    let client = cluster.client().await;
    let task = cluster.task(1);
    let id = task.id;
    let handle = cluster.start_task(&client, task).await;
    let asked = async |councils| {
        until(async || {
            let it = cluster.store.task(id).await.ok()?.task_loop.ok()?;
            (it.councils == councils && it.open_question.is_some()).then(|| it.current_scope())?
        })
        .await
    };
    let ended = cluster
        .with_worker(async {
            let before = asked(0).await;
            let question = cluster.store.save_text(QUESTION).await.unwrap();
            let convene = Action::Convene { question };
            let status = cluster.request_action(&handle, "Ann", convene).await.unwrap();
            assert_eq!(status.state, State::CtoIntervention);
            let scope = asked(1).await;
            assert_eq!(scope, before, "the plan is the same");
            cluster.request_action(&handle, "Ann", approve(scope)).await.unwrap();
            handle.get_result(WorkflowGetResultOptions::default()).await.unwrap()
        })
        .await;
    assert_eq!(ended.state, State::Completed);
    let history = cluster.history(id).await;
    let concluded = history.iter().find(|entry| entry.name == N::SmCouncilConcluded).unwrap();
    assert_eq!((&concluded.actor, concluded.to), (&Actor::Council, State::AwaitingApproval));
    let EntryData::Stored(minutes) = &concluded.data else { panic!("minutes") };
    let minutes = cluster.store.text(minutes).await.unwrap();
    assert!(
        minutes.contains("## Architectural insights\n\n- The list has two owners."),
        "{minutes}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_stops_the_agent_and_a_resumed_task_continues() {
    let mut script = sample_script(1);
    let cluster = Cluster::start(&script).await;
    let (started, proceed) = (cluster.scratch_file("begun"), cluster.scratch_file("go"));
    let waiting_steps = vec![
        AgentStep::WriteUnasked { path: started.clone(), content: String::new() },
        AgentStep::AwaitFile(proceed.clone()),
    ];
    let when = "You are implementing".to_owned();
    script
        .cases
        .insert(0, PromptCase { when, unless: Some(proceed.clone()), steps: waiting_steps });
    cluster.replace_script(&script);
    let client = cluster.client().await;
    let task = cluster.task(1);
    let id = task.id;
    let handle = cluster.start_task(&client, task).await;
    let ended = cluster
        .with_worker(async {
            until(async || started.exists().then_some(())).await;
            cluster.until_state(id, State::InProgress).await;
            cluster.request_action(&handle, "Ann", Action::Pause).await.unwrap();
            until(async || agents(&cluster).is_empty().then_some(())).await;
            let task_loop = cluster.task_loop(id).await;
            assert!(task_loop.paused.is_some() && !task_loop.state.is_terminal());
            let second = cluster.request_action(&handle, "Ann", Action::Pause).await.unwrap_err();
            assert!(second.contains("the task is already paused"), "{second}");
            std::fs::write(&proceed, "").unwrap();
            cluster.request_action(&handle, "Ann", Action::Resume).await.unwrap();
            handle.get_result(WorkflowGetResultOptions::default()).await.unwrap()
        })
        .await;
    assert_eq!(ended.state, State::Completed);
    let names = cluster.entry_names(id).await;
    assert_eq!(names.iter().filter(|name| **name == N::SmTaskPaused).count(), 1);
    assert_eq!(names.iter().filter(|name| **name == N::SmTaskCompleted).count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_task_ends_after_its_agent_and_saves_its_work() {
    let cluster = Cluster::start(&sample_script(1)).await;
    let started = cluster.scratch_file("begun");
    let waiting_steps = vec![
        AgentStep::Write { path: "unfinished.txt".into(), content: "half\n".to_owned() },
        AgentStep::WriteUnasked { path: started.clone(), content: String::new() },
        AgentStep::Hang,
    ];
    let mut script = sample_script(1);
    let when = "You are implementing".to_owned();
    script.cases.insert(0, PromptCase { when, unless: None, steps: waiting_steps });
    cluster.replace_script(&script);
    let client = cluster.client().await;
    let task = cluster.task(1);
    let id = task.id;
    let handle = cluster.start_task(&client, task).await;
    let ended = cluster
        .with_worker(async {
            until(async || started.exists().then_some(())).await;
            cluster.until_state(id, State::InProgress).await;
            let cancel = Action::Cancel { reason: "not wanted any more".parse().unwrap() };
            cluster.request_action(&handle, "Ann", cancel).await.unwrap();
            handle.get_result(WorkflowGetResultOptions::default()).await.unwrap()
        })
        .await;
    assert_eq!(ended.state, State::Cancelled);
    assert_eq!(cluster.task_loop(id).await.state, State::Cancelled);
    let names = cluster.entry_names(id).await;
    assert!(names.ends_with(&[N::SmTaskCancelled, N::SmLearningCaptured]), "{names:?}");
    assert!(agents(&cluster).is_empty());
    let saved = cluster.checkpoint_file(id, "unfinished.txt");
    assert_eq!(saved, "half");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_run_gets_the_gate_failure_and_fixes_it() {
    let cluster = Cluster::start(&sample_script(1)).await;
    let tried = cluster.scratch_file("tried");
    let failing_steps = vec![
        AgentStep::Write { path: "names.txt".into(), content: String::new() },
        AgentStep::WriteUnasked { path: tried.clone(), content: String::new() },
    ];
    let mut script = sample_script(1);
    let when = "You are implementing".to_owned();
    script.cases.insert(0, PromptCase { when, unless: Some(tried), steps: failing_steps });
    // The second run fixes it only if its prompt contains the failure.
    script.cases[2].when = "Gate `check` failed".to_owned();
    cluster.replace_script(&script);
    let client = cluster.client().await;
    let task = cluster.task(1);
    let id = task.id;
    let handle = cluster.start_task(&client, task).await;
    let ended =
        cluster.with_worker(handle.get_result(WorkflowGetResultOptions::default())).await.unwrap();
    assert_eq!(ended.state, State::Completed);
    let task_loop = cluster.task_loop(id).await;
    assert_eq!(task_loop.iterations, 2);
    let names = cluster.entry_names(id).await;
    assert!(names.contains(&N::SmGatesFailed));
    // Each run starts with its number and the maximum.
    let lines = cluster.store.lines(id, &LineFilter::default(), LinePosition::START, 1_000).await;
    let starts = lines.unwrap().into_iter().filter(|line| line.text.starts_with("attempt "));
    let starts: Vec<_> = starts
        .map(|line| {
            (line.position.sequence, line.text.split(',').next().unwrap_or_default().to_owned())
        })
        .collect();
    assert_eq!(starts, [1, 2].map(|number| (1, format!("attempt {number} of 10"))));
    let range = format!("main..{}", cluster.store.task_branch(id).await.unwrap());
    assert_eq!(cluster.project.repository.git(&["rev-list", "--count", &range]).unwrap(), "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repair_in_the_same_tier_resumes_the_session_with_the_brief_alone() {
    let mut script = sample_script(1);
    script.resume = ResumeSupport::Resume;
    let tokens = Some(Tokens { input: 1_000, output: 10, ..Tokens::default() });
    let failing_steps = [
        AgentStep::Write { path: "names.txt".into(), content: String::new() },
        AgentStep::Say("I emptied the list.".to_owned()),
        AgentStep::End { tokens },
    ];
    // The resumed session gets only the brief, so it works only if the session is resumed.
    script.cases[1].when = "You are implementing the same approved plan".to_owned();
    script.cases.push(PromptCase::new("You are implementing a development task", failing_steps));
    let cluster = Cluster::start(&script).await;
    let client = cluster.client().await;
    let task = cluster.task(1);
    let id = task.id;
    // Sessions are resumed only on the machine that has the agent's home.
    let home = cluster.scratch_file("data").join(format!("homes/{id}/scripted"));
    std::fs::create_dir_all(home).unwrap();
    let handle = cluster.start_task(&client, task).await;
    let ended =
        cluster.with_worker(handle.get_result(WorkflowGetResultOptions::default())).await.unwrap();
    assert_eq!(ended.state, State::Completed);
    let task_loop = cluster.task_loop(id).await;
    assert_eq!(task_loop.iterations, 2);
    let lines = cluster.store.lines(id, &LineFilter::default(), LinePosition::START, 1_000).await;
    let lines: Vec<_> = lines.unwrap().into_iter().map(|line| line.text).collect();
    let has = |text: &str| lines.iter().any(|line| line.contains(text));
    assert!(has("resumed the session of an earlier run"), "{lines:?}");
    assert!(has("prompt `implement`, version "), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edited_plan_is_checked_again_and_runs_after_its_approval() {
    let cluster = Cluster::start(&sample_script(7)).await;
    let client = cluster.client().await;
    let task = cluster.task(1);
    let id = task.id;
    let handle = cluster.start_task(&client, task).await;
    let ended = cluster
        .with_worker(async {
            cluster.until_state(id, State::AwaitingApproval).await;
            let question = async || {
                let task_loop = cluster.task_loop(id).await;
                task_loop.open_question.is_some().then_some(task_loop)
            };
            let before = until(question).await;
            let scope = before.current_scope().unwrap();
            let (_, plan) = cluster.store.plan_by_hash(id, scope.plan).await.unwrap();
            let edit = PlanAdjustment {
                field: "approach".to_owned(),
                original_value: Some(plan.approach.clone().into()),
                new_value: "As a person wants it.".into(),
                reason: String::new(),
            };
            let (edited, applied) = plan.apply_adjustments(&[edit]).unwrap();
            let text = serde_json::to_string(&edited).unwrap();
            let stored_at = cluster.store.save_text(&text).await.unwrap();
            let adjustments = serde_json::to_string(&applied).unwrap();
            let adjust = Action::AdjustPlan {
                scope,
                plan: Box::new(edited.summarize(2, stored_at, &cluster.rules())),
                adjustments: cluster.store.save_text(&adjustments).await.unwrap(),
                reason: "simpler".parse().unwrap(),
            };
            cluster.request_action(&handle, "Ann", adjust.clone()).await.unwrap();
            let refused = cluster.request_action(&handle, "Ann", adjust).await.unwrap_err();
            assert!(refused.contains("the plan has changed since you saw it"), "{refused}");
            let second = async || {
                let task_loop = cluster.task_loop(id).await;
                let is_new = task_loop.plan.as_ref().is_some_and(|plan| plan.version == 2);
                (is_new && task_loop.open_question.is_some()).then_some(task_loop)
            };
            let scope = until(second).await.current_scope().unwrap();
            assert_eq!(scope.plan, edited.hash());
            // The worker has saved the edited plan as a version of its own.
            assert_eq!(cluster.store.plan(id, 2).await.unwrap(), edited);
            cluster.request_action(&handle, "Ann", approve(scope)).await.unwrap();
            handle.get_result(WorkflowGetResultOptions::default()).await.unwrap()
        })
        .await;
    assert_eq!(ended.state, State::Completed);
    let names = cluster.entry_names(id).await;
    assert_eq!(names.iter().filter(|name| **name == N::SmPlanAdjusted).count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_rules_void_the_approval_and_govern_the_task_from_then_on() {
    let cluster = Cluster::start(&sample_script(7)).await;
    let client = cluster.client().await;
    let task = cluster.task(1);
    let id = task.id;
    let handle = cluster.start_task(&client, task).await;
    let mut rules = cluster.rules();
    let old = rules.version();
    rules.scrum_master.task_loop.max_iterations = 3;
    cluster.store.save_rules(&rules).await.unwrap();
    let ended = cluster
        .with_worker(async {
            cluster.until_state(id, State::AwaitingApproval).await;
            let question = async |policy: PolicyVersion| {
                let task_loop = cluster.task_loop(id).await;
                let is_pinned = task_loop.pin.is_some_and(|pin| pin.policy == policy);
                (is_pinned && task_loop.open_question.is_some()).then_some(task_loop)
            };
            let before = until(async || question(old).await).await;
            let changed = RulesChanged {
                at: chrono::Utc::now(),
                by: "Ann".parse().unwrap(),
                auth: None,
                rules: rules.clone(),
            };
            let send = async |changed: RulesChanged| {
                let options = WorkflowExecuteUpdateOptions::builder().build();
                handle.execute_update(TaskWorkflow::change_rules, changed, options).await
            };
            send(changed.clone()).await.unwrap().unwrap();
            assert!(send(changed).await.is_err(), "the same rules again");
            // An approval under the old rules no longer counts.
            let stale = approve(before.current_scope().unwrap());
            let refused = cluster.request_action(&handle, "Ann", stale).await.unwrap_err();
            assert!(refused.contains("since you saw it"), "{refused}");
            let now = until(async || question(rules.version()).await).await;
            let scope = now.current_scope().unwrap();
            cluster.request_action(&handle, "Ann", approve(scope)).await.unwrap();
            handle.get_result(WorkflowGetResultOptions::default()).await.unwrap()
        })
        .await;
    assert_eq!(ended.state, State::Completed);
    let voided = cluster.history(id).await.into_iter().find(|it| it.name == N::SmApprovalVoided);
    assert_eq!(voided.unwrap().actor, crate::cluster::person("Ann"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_rules_are_pinned_even_if_the_task_is_being_prepared() {
    let cluster = Cluster::start(&sample_script(7)).await;
    let client = cluster.client().await;
    let task = cluster.task(1);
    let id = task.id;
    let mut rules = cluster.rules();
    rules.scrum_master.task_loop.max_iterations = 3;
    cluster.store.save_rules(&rules).await.unwrap();
    // The base commit cannot be read, so the preparation is retried.
    let repository = cluster.project.repository.path();
    let (git, away) = (repository.join(".git"), repository.join(".git-away"));
    std::fs::rename(&git, &away).unwrap();
    let handle = cluster.start_task(&client, task).await;
    let policy = rules.version();
    cluster
        .with_worker(async {
            cluster.until_state(id, State::Assigned).await;
            let (at, by) = (chrono::Utc::now(), "Ann".parse().unwrap());
            let options = WorkflowExecuteUpdateOptions::builder().build();
            let changed = RulesChanged { at, by, auth: None, rules };
            let changed = handle.execute_update(TaskWorkflow::change_rules, changed, options).await;
            assert_eq!(changed.unwrap().unwrap().state, State::Assigned);
            std::fs::rename(&away, &git).unwrap();
            let pinned = cluster.until_state(id, State::AwaitingApproval).await.pin;
            assert_eq!(pinned.unwrap().policy, policy);
        })
        .await;
}
