//! Sessions: preparation, model and mode, agent tools, questions to people, and the gateway.

use std::time::Duration;

use serde_json::{Value, json};
use tamma_core::budget::{Spend, SpendLimit};
use tamma_core::cost::{Cost, Tokens};
use tamma_core::failure::FailureKind;
use tamma_core::rules::SessionModes;
use tamma_core::run_result::{RunResult, RunStatus};
use tamma_engine::agent::{
    AgentUpdate, CodingAgent, PlanEntry, RunEnd, RunMode, RunReport, RunRequest,
};
use tamma_engine::agent_tools::{AgentQuestion, AskPerson};
use tamma_engine::gateway::{BudgetLimit, BudgetScope};
use tamma_engine::permission::{PermissionDecision, PermissionEffect};
use tamma_engine::submission::Submission;
use tamma_testkit::agent::{
    AgentStep, PromptCase, ResumeSupport, Script, TOKEN_VARIABLE, URL_VARIABLE, plan_submission,
};
use tamma_testkit::model::{self, ScriptedModel};
use tamma_testkit::sample_plan;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::agents::{finished, nothing_is_left};
use crate::fixture::{Fixture, RecordedUpdates, noon};

async fn run(
    fixture: &Fixture,
    agent: &CodingAgent,
    request: &RunRequest,
) -> (RunReport, Vec<AgentUpdate>) {
    let (updates, cancel) = (RecordedUpdates::default(), CancellationToken::new());
    let records = fixture.records().await;
    let report = agent.run(request, &records, &updates.observer(), &cancel).await.unwrap();
    (report, updates.all())
}

fn messages(updates: &[AgentUpdate]) -> String {
    let message_text = |update: &AgentUpdate| match update {
        AgentUpdate::Message(text) => Some(text.clone()),
        _ => None,
    };
    updates.iter().filter_map(message_text).collect()
}

/// Returns the output of [`AgentStep::Describe`].
fn description(updates: &[AgentUpdate]) -> Value {
    serde_json::from_str(&messages(updates)).unwrap()
}

/// Agent whose templates point it to the gateway.
fn through(fixture: &Fixture, script: &Script) -> CodingAgent {
    let mut agent = fixture.agent(script);
    agent.env.insert(URL_VARIABLE.to_owned(), "{{ url }}".to_owned());
    agent.env.insert(TOKEN_VARIABLE.to_owned(), "{{ token }}".to_owned());
    agent
}

#[tokio::test]
async fn run_through_the_gateway_has_its_own_home_and_no_key() {
    let fixture = Fixture::create().await;
    let model = ScriptedModel::start(model::Script::default()).await.unwrap();
    let env = ["HOME", URL_VARIABLE, TOKEN_VARIABLE].map(str::to_owned).to_vec();
    let script = Script::new([AgentStep::Describe { env, files: vec![".agent/config".into()] }]);
    let mut agent = through(&fixture, &script);
    let text = "at {{ url }} with {{ model or 'any' }}, not {{ protected | json }}";
    agent.files.insert(".agent/config".to_owned(), text.to_owned());
    let mut request = fixture.run_request(&fixture.project(), RunMode::Implement);
    request.access = Some(fixture.access(Some(&model)).await);
    request.protected_paths = vec!["secrets/**".to_owned()];
    let (report, updates) = run(&fixture, &agent, &request).await;
    assert_eq!(report.end, finished(Submission::NotRequired));
    let description = description(&updates);
    assert_eq!(description["env"][0], request.home.display().to_string());
    let url = description["env"][1].as_str().unwrap();
    assert!(url.starts_with("http://127.0.0.1:"), "{url}");
    assert_eq!(description["files"][0], format!("at {url} with any, not [\"secrets/**\"]"));
    assert!(!description.to_string().contains("the-key-of-the-provider"));
    // The agent has the token and prints it; our updates do not contain it.
    assert_eq!(description["env"][2], "[secret]", "{description}");
}

#[tokio::test]
async fn signed_in_agent_keeps_its_home_and_gets_no_files() {
    let fixture = Fixture::create().await;
    let env = ["HOME", URL_VARIABLE].map(str::to_owned).to_vec();
    let mut agent =
        through(&fixture, &Script::new([AgentStep::Describe { env, files: Vec::new() }]));
    agent.inherited.insert("HOME".to_owned(), "/home/ann".to_owned());
    agent.files.insert(".agent/config".to_owned(), "ours".to_owned());
    let mut request = fixture.run_request(&fixture.project(), RunMode::Implement);
    request.access = Some(fixture.access(None).await);
    let (report, updates) = run(&fixture, &agent, &request).await;
    assert_eq!((report.end, report.metered), (finished(Submission::NotRequired), false));
    assert_eq!(description(&updates)["env"], json!(["/home/ann", null]));
    assert!(!request.home.join(".agent").exists());
}

#[tokio::test]
async fn invalid_template_is_reported_before_anything_starts() {
    let fixture = Fixture::create().await;
    let mut agent = fixture.agent(&Script::default());
    agent.args.push("{{ weather }}".to_owned());
    let (report, updates) =
        run(&fixture, &agent, &fixture.run_request(&fixture.project(), RunMode::Plan)).await;
    let RunEnd::Unavailable { reason } = report.end else { panic!("{:?}", report.end) };
    assert!(reason.contains("cannot render an argument of the agent"), "{reason}");
    assert_eq!(updates, []);
}

#[tokio::test]
async fn model_and_mode_are_selected_in_every_supported_way() {
    let fixture = Fixture::create().await;
    for legacy_models in [false, true] {
        let script = Script {
            models: vec!["small".to_owned(), "maker/large".to_owned()],
            modes: vec!["free".to_owned(), "look".to_owned(), "careful".to_owned()],
            legacy_models,
            ..Script::new([AgentStep::Describe { env: Vec::new(), files: Vec::new() }])
        };
        let mut agent = fixture.agent(&script);
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        agent.modes = SessionModes { look: list(&["look"]), work: list(&["none", "careful"]) };
        for (mode, expected) in [(RunMode::Advise, "look"), (RunMode::Implement, "careful")] {
            let mut request = fixture.run_request(&fixture.project(), mode);
            for (model, expected_model) in
                [(None, "small"), (Some("default"), "small"), (Some("large"), "maker/large")]
            {
                request.model = model.map(str::to_owned);
                let (_, updates) = run(&fixture, &agent, &request).await;
                let description = description(&updates);
                assert_eq!(
                    (&description["model"], &description["mode"]),
                    (&json!(expected_model), &json!(expected))
                );
            }
        }
        let mut request = fixture.run_request(&fixture.project(), RunMode::Implement);
        request.model = Some("huge".to_owned());
        let (report, _) = run(&fixture, &agent, &request).await;
        let reason = "unknown model `huge`; the agent offers `small`, `maker/large`".to_owned();
        assert_eq!(report.end, RunEnd::Unavailable { reason });
    }
}

#[tokio::test]
async fn missing_mode_is_an_error() {
    let fixture = Fixture::create().await;
    let mut agent = fixture.agent(&Script::default());
    agent.modes.look = vec!["look".to_owned()];
    let (report, _) =
        run(&fixture, &agent, &fixture.run_request(&fixture.project(), RunMode::Plan)).await;
    let reason = "unknown mode `look`; the agent offers none".to_owned();
    assert_eq!(report.end, RunEnd::Unavailable { reason });
}

#[tokio::test]
async fn session_is_resumed_if_possible_and_created_otherwise() {
    let fixture = Fixture::create().await;
    for resume in [ResumeSupport::Never, ResumeSupport::Resume, ResumeSupport::Load] {
        let tell = AgentStep::Describe { env: Vec::new(), files: Vec::new() };
        let script = Script { resume, ..Script::new([tell]) };
        let mut request = fixture.run_request(&fixture.project(), RunMode::Implement);
        request.resume = Some("of-yesterday".to_owned());
        let (report, updates) = run(&fixture, &fixture.agent(&script), &request).await;
        let resumed = resume != ResumeSupport::Never;
        let name = if resumed { "of-yesterday" } else { "scripted-0" };
        assert_eq!((report.session.as_deref(), report.resumed), (Some(name), resumed));
        assert!(updates.contains(&AgentUpdate::Session { name: name.to_owned(), resumed }));
        // Replayed messages are not new ones.
        assert_eq!(description(&updates)["session"], name);
    }
}

#[tokio::test]
async fn resumed_session_gets_the_short_prompt_and_a_new_one_the_whole() {
    let fixture = Fixture::create().await;
    for (resume, said) in
        [(ResumeSupport::Never, "Do it all."), (ResumeSupport::Resume, "Do the rest.")]
    {
        let case = |when: &str| PromptCase::new(when, [AgentStep::Say(when.to_owned())]);
        let script =
            Script { resume, ..Script::from_cases([case("Do it all."), case("Do the rest.")]) };
        let mut request = fixture.run_request(&fixture.project(), RunMode::Implement);
        request.prompt = "Do it all.".to_owned();
        request.resume = Some("of-yesterday".to_owned());
        request.resume_prompt = Some("Do the rest.".to_owned());
        let (_, updates) = run(&fixture, &fixture.agent(&script), &request).await;
        assert!(messages(&updates).contains(said), "{updates:?}");
    }
}

#[tokio::test]
async fn plan_is_submitted_by_a_tool_and_corrected_in_the_same_turn() {
    let fixture = Fixture::create().await;
    let hand_in = |plan: &tamma_core::plan::Plan| AgentStep::Tool {
        name: "submit_plan".to_owned(),
        args: plan_submission(plan, ""),
    };
    let flawed = tamma_core::plan::Plan { summary: String::new(), ..sample_plan(1) };
    let progress = json!({ "message": "half of it" });
    let script = Script::new([
        AgentStep::Tool { name: "report_progress".to_owned(), args: progress },
        AgentStep::Tool {
            name: "search_knowledge".to_owned(),
            args: json!({ "query": "greetings" }),
        },
        hand_in(&flawed),
        hand_in(&sample_plan(1)),
    ]);
    let mut request = fixture.run_request(&fixture.project(), RunMode::Plan);
    request.access = Some(fixture.access(None).await);
    request.search =
        std::sync::Arc::new(|query| Box::pin(async move { vec![format!("known of {query}")] }));
    let (report, updates) = run(&fixture, &fixture.agent(&script), &request).await;
    assert_eq!(report.end, finished(Submission::Plan(Box::new(sample_plan(1)))));
    assert!(updates.contains(&AgentUpdate::Progress("half of it".to_owned())));
    let messages = messages(&updates);
    for text in ["known of greetings", "`summary` is empty", "Accepted."] {
        assert!(messages.contains(text), "{messages}");
    }
    assert!(
        !updates.iter().any(|update| matches!(update, AgentUpdate::SubmissionRejected(_))),
        "in the same turn"
    );
    let allowed = |update: &AgentUpdate| match update {
        AgentUpdate::PermissionDecided(_, decision) => Some(decision.effect),
        _ => None,
    };
    assert!(updates.iter().filter_map(allowed).all(|verdict| verdict == PermissionEffect::Allow));
}

#[tokio::test]
async fn agent_without_a_submission_is_asked_again() {
    let fixture = Fixture::create().await;
    let script = Script::new([
        AgentStep::Say("Done, I think.".to_owned()),
        AgentStep::End { tokens: None },
        AgentStep::Tool {
            name: "submit_verdict".to_owned(),
            args: json!({
                "criteria": [{ "id": "C1", "verdict": "met", "evidence": "b", "file": "c" }],
            }),
        },
    ]);
    let mut request = fixture.run_request(&fixture.project(), RunMode::Validate);
    request.access = Some(fixture.access(None).await);
    let (report, updates) = run(&fixture, &fixture.agent(&script), &request).await;
    let RunEnd::Finished { submission: Submission::Verdict(_), .. } = report.end else {
        panic!("{:?}", report.end)
    };
    assert_eq!(
        updates
            .iter()
            .filter(|update| matches!(update, AgentUpdate::SubmissionRejected(_)))
            .count(),
        1
    );
}

#[tokio::test]
async fn question_to_a_person_ends_the_run() {
    let fixture = Fixture::create().await;
    let args = json!({ "question": "Which colour?", "choices": ["red", "blue"], "default": "red" });
    let script =
        Script::new([AgentStep::Tool { name: "ask_human".to_owned(), args }, AgentStep::Hang]);
    let mut request = fixture.run_request(&fixture.project(), RunMode::Implement);
    request.access = Some(fixture.access(None).await);
    let (report, updates) = run(&fixture, &fixture.agent(&script), &request).await;
    let question = AgentQuestion {
        question: "Which colour?".to_owned(),
        choices: vec!["red".to_owned(), "blue".to_owned()],
        default: Some("red".to_owned()),
        permission: None,
    };
    assert_eq!(report.end, RunEnd::QuestionAsked { question });
    assert_eq!(report.end.failure(&"a-provider".parse().unwrap()), None);
    assert!(report.session.is_some(), "it can be resumed");
    assert!(messages(&updates).contains("forwarded"), "it received the response");
    nothing_is_left(&fixture, &updates).await;
}

#[tokio::test]
async fn question_is_answered_while_the_run_waits() {
    let fixture = Fixture::create().await;
    let args = json!({ "question": "Which colour?" });
    let script = Script::new([
        AgentStep::Tool { name: "ask_human".to_owned(), args },
        AgentStep::Say("And on.".to_owned()),
    ]);
    let mut request = fixture.run_request(&fixture.project(), RunMode::Implement);
    request.access = Some(fixture.access(None).await);
    let ask: AskPerson = std::sync::Arc::new(|question: AgentQuestion| {
        Box::pin(async move { Some(format!("Bo answered {}: red", question.question)) })
    });
    request.services.ask_person = Some(ask);
    let (report, updates) = run(&fixture, &fixture.agent(&script), &request).await;
    assert_eq!(report.end, finished(Submission::NotRequired));
    let messages = messages(&updates);
    assert!(messages.contains("Bo answered Which colour?: red"), "{messages}");
    assert!(messages.contains("And on."), "{messages}");
}

#[tokio::test]
async fn denied_calls_are_explained_by_get_task_and_by_the_next_prompt() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    let verdict = json!({ "criteria": { "a": { "met": { "evidence": "b", "file": "c" } } } });
    let script = Script::new([
        AgentStep::Run("git push".to_owned()),
        AgentStep::Tool { name: "get_task".to_owned(), args: json!({}) },
        AgentStep::End { tokens: None },
        AgentStep::Tool { name: "submit_verdict".to_owned(), args: verdict },
    ]);
    let mut request = fixture.run_request(tree.path(), RunMode::Validate);
    request.access = Some(fixture.access(None).await);
    request.services.task_text = Some("# Task: greet".to_owned());
    let (_, updates) = run(&fixture, &fixture.agent(&script), &request).await;
    let messages = messages(&updates);
    let start = messages.find("# Task: greet").unwrap_or_else(|| panic!("{messages}"));
    let text = &messages[start..];
    assert!(text.contains("# Denied in this run\n\n- `git push`: Denied: "), "{text}");
    assert!(text.contains(". Instead: "), "{text}");
}

#[tokio::test]
async fn hook_answers_a_denied_call_with_its_reason() {
    let fixture = Fixture::create().await;
    let env = vec![URL_VARIABLE.to_owned()];
    let script = Script::new([AgentStep::Describe { env, files: Vec::new() }, AgentStep::Hang]);
    let model = ScriptedModel::start(model::Script::default()).await.unwrap();
    let mut request = fixture.run_request(&fixture.project(), RunMode::Implement);
    request.access = Some(fixture.access(Some(&model)).await);
    let (updates, cancel) = (RecordedUpdates::default(), CancellationToken::new());
    let (mut agent, records) = (through(&fixture, &script), fixture.records().await);
    agent.files.insert("hook".to_owned(), "{{ hook_url }} {{ token }}".to_owned());
    let observer = updates.observer();
    let run = agent.run(&request, &records, &observer, &cancel);
    let hooks = async {
        updates.until(|update| matches!(update, AgentUpdate::Message(_)).then_some(())).await;
        let hook = std::fs::read_to_string(request.home.join("hook")).unwrap();
        let (url, token) = hook.split_once(' ').unwrap();
        let call = |command: &str| {
            json!({ "tool_name": "Bash", "tool_input": { "command": command } }).to_string()
        };
        let denied = post(url, token, &call("git push")).await;
        assert!(denied.contains("Denied: only Tamma pushes commits. Instead: "), "{denied}");
        let allowed = post(url, token, &call("cargo test")).await;
        assert!(allowed.starts_with("HTTP/1.1 200") && allowed.ends_with("{}"), "{allowed}");
        let foreign = post(url, "the-token-of-another", &call("git push")).await;
        assert!(foreign.starts_with("HTTP/1.1 401"), "{foreign}");
        cancel.cancel();
    };
    let (report, ()) = tokio::join!(run, hooks);
    assert_eq!(report.unwrap().end, RunEnd::Cancelled);
    let decided = |update: &AgentUpdate| match update {
        AgentUpdate::PermissionDecided(_, decision) => Some(decision.effect),
        _ => None,
    };
    let decided: Vec<_> = updates.all().iter().filter_map(decided).collect();
    assert_eq!(decided, [PermissionEffect::Deny], "people see what a hook denied");
}

#[tokio::test]
async fn permission_that_needs_a_person_ends_the_run_with_a_question() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    let script = Script::new([AgentStep::Run("touch pushed".to_owned()), AgentStep::Hang]);
    let mut request = fixture.run_request(tree.path(), RunMode::Implement);
    request.policy = std::sync::Arc::new(|_| PermissionDecision {
        effect: PermissionEffect::Ask,
        reason: "it leaves the machine".to_owned(),
    });
    request.timeouts.cancel = Duration::from_millis(100);
    let (report, updates) = run(&fixture, &fixture.agent(&script), &request).await;
    let RunEnd::QuestionAsked { question } = report.end else { panic!("{:?}", report.end) };
    assert_eq!(
        question.question,
        "Allow the agent to run `touch pushed`? Reason: it leaves the machine."
    );
    assert_eq!(question.default.as_deref(), Some("no"));
    assert!(!tree.path().join("pushed").exists());
    nothing_is_left(&fixture, &updates).await;
}

#[tokio::test]
async fn plans_and_tool_calls_are_observed() {
    let fixture = Fixture::create().await;
    let entries = json!([{ "content": "look", "status": "completed", "priority": "high" }]);
    let script = Script::new([
        AgentStep::Update(json!({ "sessionUpdate": "plan", "entries": entries })),
        AgentStep::Write { path: "a.txt".into(), content: "a".to_owned() },
    ]);
    let tree = fixture.worktree().await;
    let request = fixture.run_request(tree.path(), RunMode::Implement);
    let (_, updates) = run(&fixture, &fixture.agent(&script), &request).await;
    let entry = PlanEntry { content: "look".to_owned(), status: "completed".to_owned() };
    assert!(updates.contains(&AgentUpdate::Plan(vec![entry])));
    let kind = |update: &AgentUpdate| match update {
        AgentUpdate::ToolCall(call) => call.kind.clone().map(|kind| (kind, call.locations.clone())),
        _ => None,
    };
    let path = tree.path().join("a.txt").display().to_string();
    assert_eq!(updates.iter().find_map(kind), Some(("edit".to_owned(), vec![path])));
}

#[tokio::test]
async fn metered_usage_overrides_the_agents_report() {
    let fixture = Fixture::create().await;
    let model =
        ScriptedModel::start(model::Script::new([model::ModelStep::say("Done.")])).await.unwrap();
    let script = Script::new([
        AgentStep::Model,
        AgentStep::Usage { cost: "40".to_owned() },
        AgentStep::End {
            tokens: Some(Tokens { input: 1, cached: 1, output: 1, ..Tokens::default() }),
        },
    ]);
    let mut request = fixture.run_request(&fixture.project(), RunMode::Implement);
    request.spend_limit.usd = Some("1".parse().unwrap());
    request.access = Some(fixture.access(Some(&model)).await);
    let (report, updates) = run(&fixture, &through(&fixture, &script), &request).await;
    assert_eq!(report.end, finished(Submission::NotRequired));
    let sent = model.sent();
    assert_eq!(sent.len(), 1);
    let usage = report.usage.unwrap();
    assert_eq!((report.metered, usage.tokens), (true, sent[0].tokens));
    assert!(matches!(usage.cost, Cost::Known(_)));
    assert!(
        updates
            .iter()
            .any(|update| matches!(update, AgentUpdate::ModelCalled(call) if call.status == 200))
    );
}

#[tokio::test]
async fn failed_model_call_overrides_a_normal_end() {
    let fixture = Fixture::create().await;
    for (status, kind) in [(400, "crashed"), (503, "unavailable")] {
        let model = ScriptedModel::start(model::Script::new([model::ModelStep::fail(9, status)]))
            .await
            .unwrap();
        let mut request = fixture.run_request(&fixture.project(), RunMode::Implement);
        request.access = Some(fixture.access(Some(&model)).await);
        let (report, _) =
            run(&fixture, &through(&fixture, &Script::new([AgentStep::Model])), &request).await;
        let (actual, reason) = match report.end {
            RunEnd::Crashed { reason } => ("crashed", reason),
            RunEnd::Unavailable { reason } => ("unavailable", reason),
            end => panic!("{end:?}"),
        };
        assert_eq!(actual, kind);
        assert!(reason.contains(&status.to_string()), "{reason}");
    }
}

#[tokio::test]
async fn quota_ends_the_run_with_the_providers_reset_time() {
    let fixture = Fixture::create().await;
    let mut step = model::ModelStep::fail(9, 429);
    step.headers.insert("retry-after".to_owned(), "3600".to_owned());
    let model = ScriptedModel::start(model::Script::new([step])).await.unwrap();
    let mut request = fixture.run_request(&fixture.project(), RunMode::Implement);
    request.access = Some(fixture.access(Some(&model)).await);
    let script = Script::new([AgentStep::Model, AgentStep::Hang]);
    let (report, updates) = run(&fixture, &through(&fixture, &script), &request).await;
    let RunEnd::Quota { until } = report.end else { panic!("{:?}", report.end) };
    let after = (until - noon()).num_seconds();
    assert!((3_599..3_620).contains(&after), "{until}");
    nothing_is_left(&fixture, &updates).await;
}

#[tokio::test]
async fn run_is_stopped_when_its_budget_is_spent() {
    let fixture = Fixture::create().await;
    let many = (0..20).map(|_| model::ModelStep::say("More."));
    let model = ScriptedModel::start(model::Script::new(many)).await.unwrap();
    let mut access = fixture.access(Some(&model)).await;
    let limit = SpendLimit { tokens: Some(2_000), ..SpendLimit::default() };
    access.budget_limits =
        vec![BudgetLimit { scope: BudgetScope::Run, limit, spent: Spend::default() }];
    let mut request = fixture.run_request(&fixture.project(), RunMode::Implement);
    request.access = Some(access);
    let script = Script::new((0..20).map(|_| AgentStep::Model).chain([AgentStep::Hang]));
    let (report, updates) = run(&fixture, &through(&fixture, &script), &request).await;
    assert_eq!(report.end, RunEnd::OverBudget);
    let tokens = report.usage.unwrap().tokens.total();
    let largest = model.sent().iter().map(|sent| sent.tokens.total()).max().unwrap();
    assert!(tokens <= 2_000 + largest, "{tokens} of 2000, with answers of {largest}");
    nothing_is_left(&fixture, &updates).await;
}

#[tokio::test]
async fn run_that_calls_a_model_without_a_price_is_stopped_if_dollars_are_limited() {
    let fixture = Fixture::create().await;
    let model = ScriptedModel::start(model::Script::new([model::ModelStep::say("Never.")])).await;
    let model = model.unwrap();
    let mut access = fixture.access(Some(&model)).await;
    access.prices.clear();
    let limit = SpendLimit { usd: Some("50".parse().unwrap()), ..SpendLimit::default() };
    access.budget_limits =
        vec![BudgetLimit { scope: BudgetScope::Task, limit, spent: Spend::default() }];
    let mut request = fixture.run_request(&fixture.project(), RunMode::Implement);
    request.access = Some(access);
    let script = Script::new([AgentStep::Model, AgentStep::Hang]);
    let (report, updates) = run(&fixture, &through(&fixture, &script), &request).await;
    assert_eq!(report.end, RunEnd::Unpriced { model: "scripted".to_owned() });
    assert!(model.sent().is_empty(), "the provider was not called");
    let failure = report.end.failure(&"a-provider".parse().unwrap()).expect("a failure");
    assert_eq!(failure.kind, FailureKind::OverBudget);
    assert!(failure.reason.to_string().contains("set `prices.scripted` in tamma.yaml"));
    nothing_is_left(&fixture, &updates).await;
}

/// Returns the status line of the gateway's response to a call of our tools.
async fn ping_tools(url: &str, token: &str) -> String {
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let response = post(&format!("{url}/mcp"), token, body).await;
    response.lines().next().unwrap_or_default().to_owned()
}

/// Returns the response to a JSON request.
async fn post(url: &str, token: &str, body: &str) -> String {
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "POST /{path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\naccept: application/json, text/event-stream\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response
}

#[tokio::test]
async fn ended_runs_and_foreign_tokens_are_refused() {
    let fixture = Fixture::create().await;
    let env = vec![URL_VARIABLE.to_owned()];
    let script = Script::new([AgentStep::Describe { env, files: Vec::new() }, AgentStep::Hang]);
    let model = ScriptedModel::start(model::Script::default()).await.unwrap();
    let mut request = fixture.run_request(&fixture.project(), RunMode::Implement);
    request.access = Some(fixture.access(Some(&model)).await);
    let (updates, cancel) = (RecordedUpdates::default(), CancellationToken::new());
    let (mut agent, records) = (through(&fixture, &script), fixture.records().await);
    agent.files.insert("token".to_owned(), "{{ token }}".to_owned());
    let observer = updates.observer();
    let run = agent.run(&request, &records, &observer, &cancel);
    let pings = async {
        updates.until(|update| matches!(update, AgentUpdate::Message(_)).then_some(())).await;
        let env = description(&updates.all())["env"].clone();
        let url = env[0].as_str().unwrap();
        let token = std::fs::read_to_string(request.home.join("token")).unwrap();
        assert_eq!(ping_tools(url, &token).await, "HTTP/1.1 200 OK");
        let refused = ping_tools(url, "the-token-of-another").await;
        assert!(refused.starts_with("HTTP/1.1 401"), "{refused}");
        cancel.cancel();
        (url.to_owned(), token)
    };
    let (report, (url, token)) = tokio::join!(run, pings);
    assert_eq!(report.unwrap().end, RunEnd::Cancelled);
    let refused = ping_tools(&url, &token).await;
    assert!(refused.starts_with("HTTP/1.1 4"), "{refused}");
}

#[tokio::test]
async fn result_of_an_implementing_run_is_returned_and_reported() {
    let fixture = Fixture::create().await;
    let args = json!({
        "status": "plan_wrong",
        "summary": "src/a.rs does not exist.",
        "unverified": ["nothing was run"],
    });
    let empty = json!({ "status": "done", "summary": " " });
    let call = |args| AgentStep::Tool { name: "submit_result".to_owned(), args };
    let script = Script::new([call(empty), call(args)]);
    let mut request = fixture.run_request(&fixture.project(), RunMode::Implement);
    request.access = Some(fixture.access(None).await);
    let (report, updates) = run(&fixture, &fixture.agent(&script), &request).await;
    let result = RunResult {
        status: RunStatus::PlanWrong,
        summary: "src/a.rs does not exist.".to_owned(),
        deviations: Vec::new(),
        unverified: vec!["nothing was run".to_owned()],
        answers: Vec::new(),
    };
    assert_eq!(report.end, finished(Submission::Result(result.clone())));
    assert!(messages(&updates).contains("`summary` is empty"), "the model can correct it");
    assert!(updates.contains(&AgentUpdate::ResultSubmitted(result)));
    assert!(!updates.iter().any(|update| matches!(update, AgentUpdate::PromptedAgain(_))));
}

#[tokio::test]
async fn implementer_without_a_result_is_asked_once_more() {
    let fixture = Fixture::create().await;
    let result = json!({ "status": "done", "summary": "It greets." });
    let end = || AgentStep::End { tokens: None };
    for (script, submitted) in [
        (Script::new([end(), AgentStep::Submit(result.clone())]), true),
        (Script::new([end(), end(), AgentStep::Submit(result)]), false),
    ] {
        let request = fixture.run_request(&fixture.project(), RunMode::Implement);
        let (report, updates) = run(&fixture, &fixture.agent(&script), &request).await;
        let RunEnd::Finished { submission, .. } = report.end else { panic!("{:?}", report.end) };
        assert_eq!(matches!(submission, Submission::Result(_)), submitted, "{submission:?}");
        let asked = |update: &&AgentUpdate| matches!(update, AgentUpdate::PromptedAgain(_));
        assert_eq!(updates.iter().filter(asked).count(), 1);
    }
}

#[tokio::test]
async fn every_stop_reason_is_acted_on() {
    let fixture = Fixture::create().await;
    let stop = |reason: &str| AgentStep::Stop(reason.to_owned());
    let request = fixture.run_request(&fixture.project(), RunMode::Implement);
    for reason in ["max_tokens", "max_turn_requests", "cancelled"] {
        let script = Script::new([stop(reason), stop(reason), stop(reason)]);
        let (report, _) = run(&fixture, &fixture.agent(&script), &request).await;
        let RunEnd::Crashed { reason: cause } = report.end else {
            panic!("{reason}: {:?}", report.end)
        };
        assert!(cause.contains("after 2 continuations"), "{cause}");
        let result = json!({ "status": "done", "summary": "It greets." });
        let script = Script::new([stop(reason), AgentStep::Submit(result)]);
        let (report, _) = run(&fixture, &fixture.agent(&script), &request).await;
        assert!(matches!(report.end, RunEnd::Finished { .. }), "{:?}", report.end);
    }
    let script =
        Script::new([AgentStep::Say("I cannot help with that.".to_owned()), stop("refusal")]);
    let (report, _) = run(&fixture, &fixture.agent(&script), &request).await;
    let failure = report.end.failure(&"a-provider".parse().unwrap()).expect("a failure");
    assert_eq!(failure.kind, FailureKind::Refused);
    assert!(failure.reason.to_string().contains("I cannot help with that."));
}
