//! Sessions: what an agent is given, its model and mode, the tools of our desk, questions to people,
//! and the gateway's word.

use std::time::Duration;

use serde_json::{Value, json};
use tamma_core::budget::{Limit, Spend};
use tamma_core::cost::{Cost, Tokens};
use tamma_core::rules::SessionModes;
use tamma_engine::agent::{Agent, Entry, Mode, Report, RunEnd, RunOrder, Update};
use tamma_engine::desk::Question;
use tamma_engine::gateway::{Bound, Whose};
use tamma_engine::permission::{Ruling, Verdict};
use tamma_engine::submission::Submission;
use tamma_testkit::agent::{Resume, Script, Step, TOKEN, URL};
use tamma_testkit::model::{self, Model};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::agents::{finished, nothing_is_left, plan};
use crate::stage::{Seen, Stage, noon};

async fn run(stage: &Stage, agent: &Agent, order: &RunOrder) -> (Report, Vec<Update>) {
    let (seen, cancel) = (Seen::default(), CancellationToken::new());
    let records = stage.records().await;
    let report = agent.run(order, &records, &seen.observer(), &cancel).await.unwrap();
    (report, seen.all())
}

fn said(seen: &[Update]) -> String {
    let said = |update: &Update| match update {
        Update::Said(text) => Some(text.clone()),
        _ => None,
    };
    seen.iter().filter_map(said).collect()
}

/// What the step `tell` told.
fn told(seen: &[Update]) -> Value {
    serde_json::from_str(&said(seen)).unwrap()
}

/// An agent that finds its models by our templates.
fn through(stage: &Stage, script: &Script) -> Agent {
    let mut agent = stage.agent(script);
    agent.env.insert(URL.to_owned(), "{{ url }}".to_owned());
    agent.env.insert(TOKEN.to_owned(), "{{ token }}".to_owned());
    agent
}

#[tokio::test]
async fn a_run_through_the_gateway_has_a_home_of_its_own_and_never_the_key() {
    let stage = Stage::set().await;
    let model = Model::start(model::Script::default()).await.unwrap();
    let env = ["HOME", URL, TOKEN].map(str::to_owned).to_vec();
    let script = Script::of([Step::Tell { env, files: vec![".agent/config".into()] }]);
    let mut agent = through(&stage, &script);
    let text = "at {{ url }} with {{ model or 'any' }}, not {{ protected | json }}";
    agent.files.insert(".agent/config".to_owned(), text.to_owned());
    let mut order = stage.order(&stage.project(), Mode::Implement);
    order.access = Some(stage.access(Some(&model)).await);
    order.protected = vec!["secrets/**".to_owned()];
    let (report, seen) = run(&stage, &agent, &order).await;
    assert_eq!(report.end, finished(Submission::Nothing));
    let told = told(&seen);
    assert_eq!(told["env"][0], order.home.display().to_string());
    let url = told["env"][1].as_str().unwrap();
    assert!(url.starts_with("http://127.0.0.1:"), "{url}");
    assert_eq!(told["files"][0], format!("at {url} with any, not [\"secrets/**\"]"));
    assert!(!told.to_string().contains("the-key-of-the-provider"));
    // It has the token, and says it; what we see of that has none in it.
    assert_eq!(told["env"][2], "[secret]", "{told}");
}

#[tokio::test]
async fn one_that_is_signed_in_keeps_its_home_and_gets_no_files_of_ours() {
    let stage = Stage::set().await;
    let env = ["HOME", URL].map(str::to_owned).to_vec();
    let mut agent = through(&stage, &Script::of([Step::Tell { env, files: Vec::new() }]));
    agent.inherited.insert("HOME".to_owned(), "/home/ann".to_owned());
    agent.files.insert(".agent/config".to_owned(), "ours".to_owned());
    let mut order = stage.order(&stage.project(), Mode::Implement);
    order.access = Some(stage.access(None).await);
    let (report, seen) = run(&stage, &agent, &order).await;
    assert_eq!((report.end, report.metered), (finished(Submission::Nothing), false));
    assert_eq!(told(&seen)["env"], json!(["/home/ann", null]));
    assert!(!order.home.join(".agent").exists());
}

#[tokio::test]
async fn a_template_that_cannot_be_filled_in_is_told_before_anything_starts() {
    let stage = Stage::set().await;
    let mut agent = stage.agent(&Script::default());
    agent.args.push("{{ weather }}".to_owned());
    let (report, seen) = run(&stage, &agent, &stage.order(&stage.project(), Mode::Plan)).await;
    let RunEnd::Unavailable { reason } = report.end else { panic!("{:?}", report.end) };
    assert!(reason.contains("an argument of the agent cannot be filled in"), "{reason}");
    assert_eq!(seen, []);
}

#[tokio::test]
async fn the_model_and_the_mode_are_chosen_in_every_way_that_agents_offer_them() {
    let stage = Stage::set().await;
    for old_fashioned in [false, true] {
        let script = Script {
            models: vec!["small".to_owned(), "maker/large".to_owned()],
            modes: vec!["free".to_owned(), "look".to_owned(), "careful".to_owned()],
            old_fashioned,
            ..Script::of([Step::Tell { env: Vec::new(), files: Vec::new() }])
        };
        let mut agent = stage.agent(&script);
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        agent.modes = SessionModes { look: list(&["look"]), work: list(&["none", "careful"]) };
        for (mode, expected) in [(Mode::Advise, "look"), (Mode::Implement, "careful")] {
            let mut order = stage.order(&stage.project(), mode);
            for (wanted, got) in
                [(None, "small"), (Some("default"), "small"), (Some("large"), "maker/large")]
            {
                order.model = wanted.map(str::to_owned);
                let (_, seen) = run(&stage, &agent, &order).await;
                let told = told(&seen);
                assert_eq!((&told["model"], &told["mode"]), (&json!(got), &json!(expected)));
            }
        }
        let mut order = stage.order(&stage.project(), Mode::Implement);
        order.model = Some("huge".to_owned());
        let (report, _) = run(&stage, &agent, &order).await;
        let reason = "the agent has no model `huge`; it offers `small`, `maker/large`".to_owned();
        assert_eq!(report.end, RunEnd::Unavailable { reason });
    }
}

#[tokio::test]
async fn a_mode_that_is_not_there_is_not_left_out() {
    let stage = Stage::set().await;
    let mut agent = stage.agent(&Script::default());
    agent.modes.look = vec!["look".to_owned()];
    let (report, _) = run(&stage, &agent, &stage.order(&stage.project(), Mode::Plan)).await;
    let reason = "the agent has no mode `look`, and offers none to choose from".to_owned();
    assert_eq!(report.end, RunEnd::Unavailable { reason });
}

#[tokio::test]
async fn a_session_goes_on_where_the_agent_can_and_else_a_new_one_begins() {
    let stage = Stage::set().await;
    for resume in [Resume::Never, Resume::Resume, Resume::Load] {
        let tell = Step::Tell { env: Vec::new(), files: Vec::new() };
        let script = Script { resume, ..Script::of([tell]) };
        let mut order = stage.order(&stage.project(), Mode::Implement);
        order.resume = Some("of-yesterday".to_owned());
        let (report, seen) = run(&stage, &stage.agent(&script), &order).await;
        let resumed = resume != Resume::Never;
        let name = if resumed { "of-yesterday" } else { "scripted-0" };
        assert_eq!((report.session.as_deref(), report.resumed), (Some(name), resumed));
        assert!(seen.contains(&Update::Session { name: name.to_owned(), resumed }));
        // What an agent tells again is not what it says now.
        assert_eq!(told(&seen)["session"], name);
    }
}

#[tokio::test]
async fn a_plan_is_handed_in_by_a_tool_and_mended_in_the_same_turn() {
    let stage = Stage::set().await;
    let hand_in = |plan: &tamma_core::plan::Plan| Step::Tool {
        name: "submit_plan".to_owned(),
        args: serde_json::to_value(plan).unwrap(),
    };
    let flawed = tamma_core::plan::Plan { summary: String::new(), ..plan() };
    let progress = json!({ "message": "half of it" });
    let script = Script::of([
        Step::Tool { name: "report_progress".to_owned(), args: progress },
        Step::Tool { name: "search_knowledge".to_owned(), args: json!({ "query": "greetings" }) },
        hand_in(&flawed),
        hand_in(&plan()),
    ]);
    let mut order = stage.order(&stage.project(), Mode::Plan);
    order.access = Some(stage.access(None).await);
    order.search =
        std::sync::Arc::new(|query| Box::pin(async move { vec![format!("known of {query}")] }));
    let (report, seen) = run(&stage, &stage.agent(&script), &order).await;
    assert_eq!(report.end, finished(Submission::Plan(Box::new(plan()))));
    assert!(seen.contains(&Update::Progress("half of it".to_owned())));
    let said = said(&seen);
    for text in ["known of greetings", "`summary` is empty", "Taken."] {
        assert!(said.contains(text), "{said}");
    }
    assert!(!seen.iter().any(|update| matches!(update, Update::Refused(_))), "in the same turn");
    let allowed = |update: &Update| match update {
        Update::Asked(_, ruling) => Some(ruling.verdict),
        _ => None,
    };
    assert!(seen.iter().filter_map(allowed).all(|verdict| verdict == Verdict::Allow));
}

#[tokio::test]
async fn an_agent_that_hands_nothing_in_is_asked_again_and_then_uses_the_tool() {
    let stage = Stage::set().await;
    let script = Script::of([
        Step::Say("Done, I think.".to_owned()),
        Step::End { tokens: None },
        Step::Tool {
            name: "submit_verdict".to_owned(),
            args: json!({ "criteria": { "a": { "met": { "evidence": "b", "file": "c" } } } }),
        },
    ]);
    let mut order = stage.order(&stage.project(), Mode::Validate);
    order.access = Some(stage.access(None).await);
    let (report, seen) = run(&stage, &stage.agent(&script), &order).await;
    let RunEnd::Finished { submission: Submission::Verdict(_), .. } = report.end else {
        panic!("{:?}", report.end)
    };
    assert_eq!(seen.iter().filter(|update| matches!(update, Update::Refused(_))).count(), 1);
}

#[tokio::test]
async fn a_question_to_a_person_ends_the_run_and_nothing_waits() {
    let stage = Stage::set().await;
    let args = json!({ "question": "Which colour?", "choices": ["red", "blue"], "default": "red" });
    let script = Script::of([Step::Tool { name: "ask_human".to_owned(), args }, Step::Hang]);
    let mut order = stage.order(&stage.project(), Mode::Implement);
    order.access = Some(stage.access(None).await);
    let (report, seen) = run(&stage, &stage.agent(&script), &order).await;
    let question = Question {
        question: "Which colour?".to_owned(),
        choices: vec!["red".to_owned(), "blue".to_owned()],
        default: Some("red".to_owned()),
    };
    assert_eq!(report.end, RunEnd::Asked { question });
    assert_eq!(report.end.failure(&"a-provider".parse().unwrap()), None);
    assert!(report.session.is_some(), "it can go on");
    assert!(said(&seen).contains("passed on"), "it heard so");
    nothing_is_left(&stage, &seen).await;
}

#[tokio::test]
async fn what_a_person_decides_ends_the_run_with_the_question() {
    let stage = Stage::set().await;
    let tree = stage.worktree().await;
    let script = Script::of([Step::Run("touch pushed".to_owned()), Step::Hang]);
    let mut order = stage.order(tree.path(), Mode::Implement);
    order.policy = std::sync::Arc::new(|_| Ruling {
        verdict: Verdict::Ask,
        reason: "it leaves the machine".to_owned(),
    });
    order.patience.cancel = Duration::from_millis(100);
    let (report, seen) = run(&stage, &stage.agent(&script), &order).await;
    let RunEnd::Asked { question } = report.end else { panic!("{:?}", report.end) };
    assert_eq!(
        question.question,
        "May the agent run `touch pushed`? It is asked because it leaves the machine."
    );
    assert_eq!(question.default.as_deref(), Some("no"));
    assert!(!tree.path().join("pushed").exists());
    nothing_is_left(&stage, &seen).await;
}

#[tokio::test]
async fn what_an_agent_plans_and_does_is_seen() {
    let stage = Stage::set().await;
    let entries = json!([{ "content": "look", "status": "completed", "priority": "high" }]);
    let script = Script::of([
        Step::Update(json!({ "sessionUpdate": "plan", "entries": entries })),
        Step::Write { path: "a.txt".into(), content: "a".to_owned() },
    ]);
    let tree = stage.worktree().await;
    let order = stage.order(tree.path(), Mode::Implement);
    let (_, seen) = run(&stage, &stage.agent(&script), &order).await;
    let entry = Entry { content: "look".to_owned(), status: "completed".to_owned() };
    assert!(seen.contains(&Update::Plan(vec![entry])));
    let kind = |update: &Update| match update {
        Update::Tool { kind: Some(kind), locations, .. } => Some((kind.clone(), locations.clone())),
        _ => None,
    };
    let path = tree.path().join("a.txt").display().to_string();
    assert_eq!(seen.iter().find_map(kind), Some(("edit".to_owned(), vec![path])));
}

#[tokio::test]
async fn usage_is_metered_and_what_the_agent_says_of_it_is_not_believed() {
    let stage = Stage::set().await;
    let model = Model::start(model::Script::of([model::Step::say("Done.")])).await.unwrap();
    let script = Script::of([
        Step::Model,
        Step::Usage { cost: "40".to_owned() },
        Step::End { tokens: Some(Tokens { input: 1, cached: 1, output: 1 }) },
    ]);
    let mut order = stage.order(&stage.project(), Mode::Implement);
    order.allowance.usd = Some("1".parse().unwrap());
    order.access = Some(stage.access(Some(&model)).await);
    let (report, seen) = run(&stage, &through(&stage, &script), &order).await;
    assert_eq!(report.end, finished(Submission::Nothing));
    let sent = model.sent();
    assert_eq!(sent.len(), 1);
    let usage = report.usage.unwrap();
    assert_eq!((report.metered, usage.tokens), (true, sent[0].tokens));
    assert!(matches!(usage.cost, Cost::Known(_)));
    assert!(seen.iter().any(|update| matches!(update, Update::Called(call) if call.status == 200)));
}

#[tokio::test]
async fn a_failed_call_stands_over_a_normal_end() {
    let stage = Stage::set().await;
    for (status, kind) in [(400, "crashed"), (503, "unavailable")] {
        let model = Model::start(model::Script::of([model::Step::fail(9, status)])).await.unwrap();
        let mut order = stage.order(&stage.project(), Mode::Implement);
        order.access = Some(stage.access(Some(&model)).await);
        let (report, _) = run(&stage, &through(&stage, &Script::of([Step::Model])), &order).await;
        let (found, reason) = match report.end {
            RunEnd::Crashed { reason } => ("crashed", reason),
            RunEnd::Unavailable { reason } => ("unavailable", reason),
            end => panic!("{end:?}"),
        };
        assert_eq!(found, kind);
        assert!(reason.contains(&status.to_string()), "{reason}");
    }
}

#[tokio::test]
async fn a_quota_ends_the_run_until_the_time_that_the_provider_says() {
    let stage = Stage::set().await;
    let mut step = model::Step::fail(9, 429);
    step.headers.insert("retry-after".to_owned(), "3600".to_owned());
    let model = Model::start(model::Script::of([step])).await.unwrap();
    let mut order = stage.order(&stage.project(), Mode::Implement);
    order.access = Some(stage.access(Some(&model)).await);
    let script = Script::of([Step::Model, Step::Hang]);
    let (report, seen) = run(&stage, &through(&stage, &script), &order).await;
    let RunEnd::Quota { until } = report.end else { panic!("{:?}", report.end) };
    let after = (until - noon()).num_seconds();
    assert!((3_599..3_620).contains(&after), "{until}");
    nothing_is_left(&stage, &seen).await;
}

#[tokio::test]
async fn a_run_is_stopped_when_its_money_is_spent() {
    let stage = Stage::set().await;
    let many = (0..20).map(|_| model::Step::say("More."));
    let model = Model::start(model::Script::of(many)).await.unwrap();
    let mut access = stage.access(Some(&model)).await;
    let limit = Limit { tokens: Some(2_000), ..Limit::default() };
    access.bounds = vec![Bound { whose: Whose::Run, limit, spent: Spend::default() }];
    let mut order = stage.order(&stage.project(), Mode::Implement);
    order.access = Some(access);
    let script = Script::of((0..20).map(|_| Step::Model).chain([Step::Hang]));
    let (report, seen) = run(&stage, &through(&stage, &script), &order).await;
    assert_eq!(report.end, RunEnd::OverBudget);
    let tokens = report.usage.unwrap().tokens.total();
    let largest = model.sent().iter().map(|sent| sent.tokens.total()).max().unwrap();
    assert!(tokens <= 2_000 + largest, "{tokens} of 2000, with answers of {largest}");
    nothing_is_left(&stage, &seen).await;
}

/// The first line of what the gateway answers to a call of our tools.
async fn knock(url: &str, token: &str) -> String {
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let request = format!(
        "POST /{path}/mcp HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\naccept: application/json, text/event-stream\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_run_that_is_over_is_let_in_no_more_and_none_with_the_token_of_another() {
    let stage = Stage::set().await;
    let env = vec![URL.to_owned()];
    let script = Script::of([Step::Tell { env, files: Vec::new() }, Step::Hang]);
    let model = Model::start(model::Script::default()).await.unwrap();
    let mut order = stage.order(&stage.project(), Mode::Implement);
    order.access = Some(stage.access(Some(&model)).await);
    let (seen, cancel) = (Seen::default(), CancellationToken::new());
    let (mut agent, records) = (through(&stage, &script), stage.records().await);
    agent.files.insert("token".to_owned(), "{{ token }}".to_owned());
    let observer = seen.observer();
    let run = agent.run(&order, &records, &observer, &cancel);
    let knocks = async {
        seen.until(|update| matches!(update, Update::Said(_)).then_some(())).await;
        let given = told(&seen.all())["env"].clone();
        let url = given[0].as_str().unwrap();
        let token = std::fs::read_to_string(order.home.join("token")).unwrap();
        assert_eq!(knock(url, &token).await, "HTTP/1.1 200 OK");
        let refused = knock(url, "the-token-of-another").await;
        assert!(refused.starts_with("HTTP/1.1 401"), "{refused}");
        cancel.cancel();
        (url.to_owned(), token)
    };
    let (report, (url, token)) = tokio::join!(run, knocks);
    assert_eq!(report.unwrap().end, RunEnd::Cancelled);
    let refused = knock(&url, &token).await;
    assert!(refused.starts_with("HTTP/1.1 4"), "{refused}");
}
