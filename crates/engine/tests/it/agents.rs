//! Runs of agents: distinct outcomes, and no processes left afterwards.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tamma_core::cost::{Cost, Tokens, Usage};
use tamma_core::failure::FailureKind;
use tamma_core::plan::Plan;
use tamma_core::review::CriterionJudgement;
use tamma_engine::agent::{AgentUpdate, CodingAgent, RunEnd, RunMode, RunReport};
use tamma_engine::permission::PermissionEffect;
use tamma_engine::process;
use tamma_engine::submission::Submission;
use tamma_testkit::agent::{AgentStep, PromptCase, Script};
use tamma_testkit::model::{self, ScriptedModel};
use tamma_testkit::sample_plan;
use tokio_util::sync::CancellationToken;

use crate::fixture::{Fixture, RecordedUpdates, environment, group, is_alive, noon, pid};

pub(crate) fn finished(submission: Submission) -> RunEnd {
    RunEnd::Finished { stop_reason: "end_turn".to_owned(), submission }
}

/// Process group of the agent, from the observed updates.
pub(crate) fn pgid(updates: &[AgentUpdate]) -> u32 {
    let recorded = |update: &AgentUpdate| match update {
        AgentUpdate::ProcessRecorded(record) => Some(record.pgid),
        _ => None,
    };
    updates.iter().find_map(recorded).expect("recorded")
}

pub(crate) async fn nothing_is_left(fixture: &Fixture, updates: &[AgentUpdate]) {
    assert_eq!(group(pgid(updates)), [0; 0], "no process of the group is alive");
    assert_eq!(fixture.records().await.all().await.unwrap(), [], "no record is left");
}

#[tokio::test]
async fn agent_writes_files_reports_and_finishes() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    let script = Script::new([
        AgentStep::Say("I will greet.".to_owned()),
        AgentStep::Think("How?".to_owned()),
        AgentStep::Write { path: "greeting.txt".into(), content: "hello\n".to_owned() },
        AgentStep::Delete { path: "src/old.txt".into() },
        AgentStep::Run("echo run > run.txt".to_owned()),
        AgentStep::Update(json!({ "sessionUpdate": "of_tomorrow", "x": 1 })),
        AgentStep::Usage { cost: "0.02".to_owned() },
        AgentStep::WriteStderr("a complaint".to_owned()),
        AgentStep::End {
            tokens: Some(Tokens { input: 1_200, cached: 300, output: 80, ..Tokens::default() }),
        },
    ]);
    let request = fixture.run_request(tree.path(), RunMode::Implement);
    let (report, updates) = fixture.run_agent(&script, &request).await;

    let usage = Usage {
        tokens: Tokens { input: 1_200, cached: 300, output: 80, ..Tokens::default() },
        cost: Cost::Known("0.02".parse().unwrap()),
    };
    let expected = RunReport {
        end: finished(Submission::NotRequired),
        usage: Some(usage),
        metered: false,
        session: Some("scripted-0".to_owned()),
        resumed: false,
        agent: Some("scripted-agent 0.1.0".to_owned()),
        stderr: "a complaint\n".to_owned(),
    };
    assert_eq!(report, expected);
    assert_eq!(fs::read_to_string(tree.path().join("greeting.txt")).unwrap(), "hello\n");
    assert_eq!(fs::read_to_string(tree.path().join("run.txt")).unwrap(), "run\n");
    assert!(!tree.path().join("src/old.txt").exists());
    assert!(
        matches!(updates[0], AgentUpdate::ProcessRecorded(_)),
        "on record before anything else"
    );
    assert!(updates.contains(&AgentUpdate::Message("I will greet.".to_owned())));
    assert!(updates.contains(&AgentUpdate::Thought("How?".to_owned())));
    assert!(
        updates.contains(&AgentUpdate::Other(json!({ "sessionUpdate": "of_tomorrow", "x": 1 })))
    );
    assert!(updates.contains(&AgentUpdate::UsageReported(usage)));
    let completed = |update: &&AgentUpdate| matches!(update, AgentUpdate::ToolCall(call) if call.status.as_deref() == Some("completed"));
    assert_eq!(updates.iter().filter(completed).count(), 3);
    nothing_is_left(&fixture, &updates).await;
}

#[tokio::test]
async fn unreported_usage_is_unknown() {
    let fixture = Fixture::create().await;
    let request = fixture.run_request(&fixture.project(), RunMode::Implement);
    let (report, _) = fixture.run_agent(&Script::default(), &request).await;
    assert_eq!((report.end, report.usage), (finished(Submission::NotRequired), None));
}

#[tokio::test]
async fn end_of_a_run_is_kept_before_its_processes_have_exited() {
    let fixture = Fixture::create().await;
    let tokens = Tokens { input: 10, output: 1, ..Tokens::default() };
    let script = Script::new([AgentStep::End { tokens: Some(tokens) }]);
    let mut request = fixture.run_request(&fixture.project(), RunMode::Implement);
    let (records, kept) = (fixture.records().await, Arc::<Mutex<Vec<_>>>::default());
    let keep = kept.clone();
    request.keep_end = Some(Arc::new(move |report: RunReport| {
        let (records, keep) = (records.clone(), keep.clone());
        Box::pin(async move {
            let running = records.all().await.unwrap().len();
            keep.lock().unwrap().push((report, running));
        })
    }));
    let (report, updates) = fixture.run_agent(&script, &request).await;
    assert_eq!(*kept.lock().unwrap(), [(report, 1)]);
    nothing_is_left(&fixture, &updates).await;
}

#[tokio::test]
async fn valid_plan_is_returned() {
    let fixture = Fixture::create().await;
    let script = Script::new([
        AgentStep::Say("Here:".to_owned()),
        AgentStep::Plan(Box::new(sample_plan(1))),
    ]);
    let (report, _) =
        fixture.run_agent(&script, &fixture.run_request(&fixture.project(), RunMode::Plan)).await;
    assert_eq!(report.end, finished(Submission::Plan(Box::new(sample_plan(1)))));
}

#[tokio::test]
async fn invalid_plan_is_returned_to_the_agent_with_its_errors() {
    let fixture = Fixture::create().await;
    let empty = Plan { summary: String::new(), ..sample_plan(1) };
    let script = Script::new([
        AgentStep::Say("I have no plan.".to_owned()),
        AgentStep::End { tokens: Some(Tokens { input: 10, output: 1, ..Tokens::default() }) },
        AgentStep::Plan(Box::new(empty)),
        AgentStep::End { tokens: Some(Tokens { input: 20, output: 2, ..Tokens::default() }) },
        AgentStep::Plan(Box::new(sample_plan(1))),
    ]);
    let (report, updates) =
        fixture.run_agent(&script, &fixture.run_request(&fixture.project(), RunMode::Plan)).await;
    assert_eq!(report.end, finished(Submission::Plan(Box::new(sample_plan(1)))));
    let refused: Vec<_> = updates
        .iter()
        .filter_map(|update| match update {
            AgentUpdate::SubmissionRejected(errors) => Some(errors.join("; ")),
            _ => None,
        })
        .collect();
    let none = "the message contains no block that starts with ```json";
    assert_eq!(refused, [none, "`summary` is empty"]);
    let tokens = report.usage.expect("reported").tokens;
    assert_eq!(tokens, Tokens { input: 30, output: 3, ..Tokens::default() }, "every turn counts");
}

#[tokio::test]
async fn submission_is_retried_twice() {
    let fixture = Fixture::create().await;
    let (report, updates) = fixture
        .run_agent(&Script::default(), &fixture.run_request(&fixture.project(), RunMode::Plan))
        .await;
    let RunEnd::Finished { submission: Submission::Invalid { errors, .. }, .. } = report.end else {
        panic!("{:?}", report.end)
    };
    assert_eq!(errors.len(), 1);
    let refusals = updates
        .iter()
        .filter(|update| matches!(update, AgentUpdate::SubmissionRejected(_)))
        .count();
    assert_eq!(refusals, 2);
}

#[tokio::test]
async fn valid_verdict_is_returned() {
    let fixture = Fixture::create().await;
    let entry = json!({ "id": "C1", "verdict": "unmet", "evidence": "it is silent" });
    let script = Script::new([AgentStep::Submit(json!({ "criteria": [entry] }))]);
    let (report, _) = fixture
        .run_agent(&script, &fixture.run_request(&fixture.project(), RunMode::Validate))
        .await;
    let RunEnd::Finished { submission: Submission::Verdict(verdict), .. } = report.end else {
        panic!("{:?}", report.end)
    };
    let unmet = CriterionJudgement::Unmet { reason: "it is silent".to_owned() };
    assert_eq!(verdict.criteria, [("C1".to_owned(), unmet)].into());
}

#[tokio::test]
async fn requests_outside_the_worktree_are_denied() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    let outside = fixture.scratch_path("outside.txt");
    let script = Script::new([
        AgentStep::Write { path: outside.clone(), content: "out\n".to_owned() },
        AgentStep::Write { path: ".git".into(), content: "gitdir: elsewhere\n".to_owned() },
        AgentStep::Ask { title: "Something odd".to_owned() },
        AgentStep::Write { path: "inside.txt".into(), content: "in\n".to_owned() },
    ]);
    let request = fixture.run_request(tree.path(), RunMode::Implement);
    let (report, updates) = fixture.run_agent(&script, &request).await;
    assert_eq!(report.end, finished(Submission::NotRequired));
    assert!(!outside.exists());
    assert!(tree.path().join("inside.txt").exists());
    let decisions: Vec<_> = updates
        .iter()
        .filter_map(|update| match update {
            AgentUpdate::PermissionDecided(_, decision) => {
                Some((decision.effect, decision.reason.clone()))
            }
            _ => None,
        })
        .collect();
    let denied = |reason: &str| (PermissionEffect::Deny, reason.to_owned());
    assert_eq!(
        decisions,
        [
            denied(&format!("`{}` is outside the worktree", outside.display())),
            denied("agents cannot change .git"),
            denied("no rule allows it"),
            (PermissionEffect::Allow, "implementers can change files in the worktree".to_owned()),
        ]
    );
}

#[tokio::test]
async fn planner_cannot_write() {
    let fixture = Fixture::create().await;
    let script = Script::new([
        AgentStep::Write { path: "early.txt".into(), content: "early\n".to_owned() },
        AgentStep::Run("touch early.txt".to_owned()),
        AgentStep::Plan(Box::new(sample_plan(1))),
    ]);
    let (report, _) =
        fixture.run_agent(&script, &fixture.run_request(&fixture.project(), RunMode::Plan)).await;
    assert_eq!(report.end, finished(Submission::Plan(Box::new(sample_plan(1)))));
    assert!(!fixture.project().join("early.txt").exists());
}

#[tokio::test]
async fn hanging_agent_times_out_and_all_its_processes_are_killed() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    let (inside, outside) =
        (fixture.scratch_path("inside.pid"), fixture.scratch_path("outside.pid"));
    // Ignores cancellation, and has a child that ignores TERM and one that left the group.
    let script = Script {
        ignores_cancel: true,
        ..Script::new([
            AgentStep::Spawn {
                command: "trap '' TERM; while :; do sleep 1; done".to_owned(),
                new_session: false,
                pid_file: inside.clone(),
            },
            AgentStep::Spawn {
                command: "trap '' TERM; while :; do sleep 1; done".to_owned(),
                new_session: true,
                pid_file: outside.clone(),
            },
            AgentStep::AwaitFile(inside.clone()),
            AgentStep::AwaitFile(outside.clone()),
            AgentStep::Hang,
        ])
    };
    let mut request = fixture.run_request(tree.path(), RunMode::Implement);
    request.time_limit = Duration::from_secs(3);
    request.timeouts.cancel = Duration::from_millis(50);
    request.timeouts.stop = Duration::from_millis(50);
    let (report, updates) = fixture.run_agent(&script, &request).await;
    assert_eq!(report.end, RunEnd::TimedOut);
    for file in [inside, outside] {
        let pid = pid(&file).await;
        assert!(!is_alive(pid), "{pid} of {} lives", file.display());
    }
    nothing_is_left(&fixture, &updates).await;
}

#[tokio::test]
async fn cancelled_agent_has_exited_when_the_run_returns() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    let script = Script::new([AgentStep::Say("working".to_owned()), AgentStep::Hang]);
    let (updates, cancel) = (RecordedUpdates::default(), CancellationToken::new());
    let (agent, records) = (fixture.agent(&script), fixture.records().await);
    let request = fixture.run_request(tree.path(), RunMode::Implement);
    let observer = updates.observer();
    let run = agent.run(&request, &records, &observer, &cancel);
    let stop = async {
        updates
            .until(|update| (*update == AgentUpdate::Message("working".to_owned())).then_some(()))
            .await;
        assert_ne!(group(pgid(&updates.all())), [0; 0]);
        assert_eq!(records.all().await.unwrap().len(), 1);
        cancel.cancel();
    };
    let (report, ()) = tokio::join!(run, stop);
    assert_eq!(report.unwrap().end, RunEnd::Cancelled);
    nothing_is_left(&fixture, &updates.all()).await;
}

#[tokio::test]
async fn agent_that_dies_has_crashed() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    let child = fixture.scratch_path("child.pid");
    for last in [AgentStep::Exit(3), AgentStep::Die] {
        let script = Script::new([
            AgentStep::Spawn {
                command: "sleep 600".to_owned(),
                new_session: false,
                pid_file: child.clone(),
            },
            AgentStep::AwaitFile(child.clone()),
            last,
        ]);
        let (report, updates) =
            fixture.run_agent(&script, &fixture.run_request(tree.path(), RunMode::Implement)).await;
        assert!(matches!(report.end, RunEnd::Crashed { .. }), "{:?}", report.end);
        nothing_is_left(&fixture, &updates).await;
        fs::remove_file(&child).unwrap();
    }
}

#[tokio::test]
async fn agent_that_cannot_start_is_unavailable() {
    let fixture = Fixture::create().await;
    let request = fixture.run_request(&fixture.project(), RunMode::Implement);
    let (records, updates) = (fixture.records().await, RecordedUpdates::default());
    for (command, args) in [("no-such-agent", vec![]), ("sh", vec!["-c", "echo no >&2; exit 9"])] {
        let args = args.into_iter().map(str::to_owned).collect();
        let agent = CodingAgent {
            command: command.into(),
            args,
            env: environment(),
            ..CodingAgent::default()
        };
        let cancel = CancellationToken::new();
        let report = agent.run(&request, &records, &updates.observer(), &cancel).await.unwrap();
        assert!(matches!(report.end, RunEnd::Unavailable { .. }), "{report:?}");
    }
    let mut request = request;
    request.timeouts.start = Duration::from_millis(200);
    let script = Script { ignores_initialize: true, ..Script::default() };
    let (report, updates) = fixture.run_agent(&script, &request).await;
    assert!(matches!(report.end, RunEnd::Unavailable { .. }), "{report:?}");
    nothing_is_left(&fixture, &updates).await;
}

#[tokio::test]
async fn exhausted_quota_has_a_reset_time() {
    let fixture = Fixture::create().await;
    let script = Script::new([AgentStep::Fail {
        code: 429,
        message: "too many requests".to_owned(),
        data: Some(json!({ "resetAt": noon() })),
    }]);
    let (report, _) = fixture
        .run_agent(&script, &fixture.run_request(&fixture.project(), RunMode::Implement))
        .await;
    assert_eq!(report.end, RunEnd::Quota { until: noon() });
    let failure = report.end.failure(&"a-provider".parse().unwrap()).expect("a failure");
    let provider = "a-provider".parse().unwrap();
    assert_eq!(failure.kind, FailureKind::Quota { provider, until: noon() });
}

#[tokio::test]
async fn a_claimed_quota_is_limited_and_does_not_count_behind_the_gateway() {
    let fixture = Fixture::create().await;
    let data = Some(json!({ "resetAt": "2999-01-01T00:00:00Z" }));
    let message = "quota".to_owned();
    let script = Script::new([AgentStep::Fail { code: 429, message, data }]);
    let mut request = fixture.run_request(&fixture.project(), RunMode::Implement);
    let (report, _) = fixture.run_agent(&script, &request).await;
    let RunEnd::Quota { until } = report.end else { panic!("{:?}", report.end) };
    assert!(until < noon() + Duration::from_hours(24 * 10), "{until}");
    let model = ScriptedModel::start(model::Script::default()).await.unwrap();
    request.access = Some(fixture.access(Some(&model)).await);
    let (report, _) = fixture.run_agent(&script, &request).await;
    assert!(matches!(report.end, RunEnd::Unavailable { .. }), "{:?}", report.end);
}

#[tokio::test]
async fn agent_that_reaches_its_spending_limit_is_stopped() {
    let fixture = Fixture::create().await;
    let script = Script::new([
        AgentStep::Usage { cost: "0.5".to_owned() },
        AgentStep::Usage { cost: "1.5".to_owned() },
        AgentStep::Hang,
    ]);
    let mut request = fixture.run_request(&fixture.project(), RunMode::Implement);
    request.spend_limit.usd = Some("1".parse().unwrap());
    let (report, updates) = fixture.run_agent(&script, &request).await;
    assert_eq!(report.end, RunEnd::OverBudget);
    assert_eq!(report.usage.expect("reported").cost, Cost::Known("1.5".parse().unwrap()));
    nothing_is_left(&fixture, &updates).await;
}

#[tokio::test]
async fn later_run_of_a_task_supersedes_an_earlier_one() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    let records = fixture.records().await;
    let never = CancellationToken::new();
    let earlier = fixture.run_request(tree.path(), RunMode::Implement);
    let mut later = earlier.clone();
    later.run.generation += 1;
    let script = Script {
        cases: vec![PromptCase {
            when: "later".to_owned(),
            steps: vec![AgentStep::Say("later".to_owned()), AgentStep::Hang],
            ..PromptCase::default()
        }],
        ..Script::new([AgentStep::Say("earlier".to_owned()), AgentStep::Hang])
    };
    later.prompt = "Do it later.".to_owned();
    let agent = fixture.agent(&script);
    let (first, second) = (RecordedUpdates::default(), RecordedUpdates::default());
    let (see_first, see_second) = (first.observer(), second.observer());
    let stop = CancellationToken::new();
    let wait_for_message = |updates: &RecordedUpdates, text: &str| {
        let (updates, text) = (updates.clone(), AgentUpdate::Message(text.to_owned()));
        async move { updates.until(|update| (*update == text).then_some(())).await }
    };
    let run_first = agent.run(&earlier, &records, &see_first, &never);
    let run_second = async {
        wait_for_message(&first, "earlier").await;
        agent.run(&later, &records, &see_second, &stop).await.unwrap()
    };
    let check = async {
        wait_for_message(&second, "later").await;
        assert_eq!(group(pgid(&first.all())), [0; 0], "one at a time");
        let refused = agent.run(&earlier, &records, &see_first, &never).await;
        let Err(process::Error::Superseded { by, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(by, later.run);
        stop.cancel();
    };
    let (first_end, second_end, ()) = tokio::join!(run_first, run_second, check);
    assert!(matches!(first_end.unwrap().end, RunEnd::Crashed { .. }));
    assert_eq!(second_end.end, RunEnd::Cancelled);
    nothing_is_left(&fixture, &second.all()).await;
}
