//! Pipelines without a worker: stored runs in the inbox, on pages, in chat and over MCP, and who may act
//! on them.

use std::collections::BTreeMap;

use reqwest::Method;
use serde_json::{Value, json};
use tamma_core::ids::{Name, PipelineId, ProjectId};
use tamma_core::operator::OperatorConfig;
use tamma_core::pipeline::signal::{PhaseSignal, SignalSource};
use tamma_core::pipeline::{
    GateAnswer, PhaseDefinition, PhaseRunner, PhaseWork, PipelineDefinition, PipelineEvent,
    PipelineRequest, PipelineRun, TaskSplit, step,
};
use tamma_core::pipeline_alert::alert_for;
use tamma_core::rules::{self, ConfigFile, Rules};
use tamma_store::PipelineWrite;
use uuid::Uuid;

use crate::browser::{Browser, between, local_config};
use crate::people::{PEOPLE, Team};
use crate::test_server::{TestServer, config, new_id, read};

/// Run at the gate of its second phase.
pub(crate) fn at_gate() -> PipelineRun {
    let run = PipelineRun::new(PipelineRequest {
        definition: PipelineDefinition::built_in(),
        feature_dir: "plans/wishlist".to_owned(),
        story_id: "WISH-001".to_owned(),
        from: 1,
        to: 2,
        approve: [2].into(),
    })
    .expect("run");
    let (run, _) = step(&run, now(), PipelineEvent::Start).expect("started");
    step(&run, now(), ended(1, PhaseSignal::Success)).expect("ended").0
}

fn ended(phase: u8, signal: PhaseSignal) -> PipelineEvent {
    let source = SignalSource::LastLine;
    PipelineEvent::PhaseEnded { phase, signal, source, work: PhaseWork::default() }
}

/// Run that its first phase has stopped.
fn blocked() -> PipelineRun {
    let request = PipelineRequest { approve: [].into(), ..at_gate().request };
    let run = PipelineRun::new(request).expect("run");
    let (run, _) = step(&run, now(), PipelineEvent::Start).expect("started");
    let signal = PhaseSignal::Blocked("no design <b>yet</b>".to_owned());
    step(&run, now(), ended(1, signal)).expect("ended").0
}

#[expect(clippy::disallowed_methods, reason = "the server compares it with its own clock")]
fn now() -> chrono::DateTime<chrono::Utc> {
    chrono::Utc::now()
}

/// Saves a run of a story as its workflow would.
pub(crate) async fn save(
    server: &TestServer,
    project: Uuid,
    number: u32,
    run: PipelineRun,
) -> Uuid {
    let request = &run.request;
    let story = server
        .store
        .ensure_pipeline(
            PipelineId(new_id()),
            ProjectId(project),
            &request.feature_dir,
            &request.story_id,
        )
        .await
        .expect("story");
    let write = PipelineWrite {
        pipeline: story.id,
        number,
        revision: 1,
        started_by: "Ada".parse().expect("name"),
        started_at: now(),
        is_live: !run.state.is_over(),
        alert: alert_for(&run.state, &Rules::default()),
        run,
        base: None,
        story_path: None,
        delivered: None,
        delivery_error: None,
        at: now(),
    };
    server.store.save_pipeline(&write).await.expect("saved");
    story.id.0
}

async fn waiting(server: &TestServer) -> Vec<Value> {
    let (status, inbox) = server.get("/inbox").await;
    assert_eq!(status, 200, "{inbox}");
    inbox["pipelines"].as_array().cloned().unwrap_or_default()
}

#[tokio::test]
async fn a_gate_is_in_the_inbox_until_the_run_goes_on() {
    let server = TestServer::with(local_config()).await;
    let project = server.project("/nowhere").await;
    assert_eq!(waiting(&server).await, Vec::<Value>::new());
    let id = save(&server, project, 1, at_gate()).await;
    let listed = waiting(&server).await;
    assert_eq!(listed.len(), 1);
    assert_eq!((&listed[0]["id"], &listed[0]["phase"]), (&json!(id), &json!(2)));
    assert_eq!(listed[0]["actions"], json!(["continue", "skip", "stop", "cancel"]));
    let mut browser = Browser::new(&server);
    let inbox = browser.page("/inbox").await;
    assert!(inbox.contains("Phase 2 (Elaboration) needs approval"), "{inbox}");
    assert!(inbox.contains(&format!("/pipelines/{id}")), "{inbox}");
    let page = browser.page(&format!("/pipelines/{id}")).await;
    for expected in ["Approval Gate: Phase 2 (Elaboration)", "Continue", "Skip phase", "Stop run"] {
        assert!(page.contains(expected), "{expected} is missing: {page}");
    }
    let (status, listed) = server.get("/pipelines?needs_person=true").await;
    assert_eq!((status, listed["pipelines"].as_array().map(Vec::len)), (200, Some(1)));
    server.end().await;
}

#[tokio::test]
async fn a_stopped_run_needs_a_person_until_it_is_dismissed() {
    let server = TestServer::with(local_config()).await;
    let project = server.project("/nowhere").await;
    let id = save(&server, project, 1, blocked()).await;
    assert_eq!(waiting(&server).await[0]["actions"], json!(["resume", "dismiss"]));
    let mut browser = Browser::new(&server);
    let inbox = browser.page("/inbox").await;
    assert!(inbox.contains("Phase 1 (PM Generate) is blocked"), "{inbox}");
    assert!(inbox.contains("no design &#60;b&#62;yet"), "text of agents is escaped: {inbox}");
    let list = browser.page("/pipelines").await;
    assert!(list.contains("Stopped at PM Generate"), "{list}");
    assert!(list.contains("0 of 6 phases"), "a blocked phase is not done: {list}");
    let act = json!({ "action": "dismiss" });
    let (status, view) = server.post(&format!("/pipelines/{id}/actions"), &act).await;
    assert_eq!((status, &view["needs_person"]), (200, &json!(false)), "{view}");
    let (status, _) = server.post(&format!("/pipelines/{id}/actions"), &act).await;
    assert_eq!(status, 409, "once is enough");
    assert_eq!(waiting(&server).await, Vec::<Value>::new());
    server.end().await;
}

#[tokio::test]
async fn chat_and_mcp_act_on_a_story_like_the_api() {
    let server = TestServer::with(local_config()).await;
    let project = server.project("/nowhere").await;
    let id = save(&server, project, 1, at_gate()).await;
    let conversation = new_id();
    let say = async |message: &str| {
        let body = json!({ "conversation": conversation, "message": message });
        server.post("/chat", &body).await
    };
    let (status, reply) = say("how is wish-001 doing?").await;
    assert_eq!((status, &reply["intent"]), (200, &json!("story_status")), "{reply}");
    assert!(
        reply["lines"][0].as_str().is_some_and(|it| it.contains("waiting for approval")),
        "{reply}"
    );
    let (_, reply) = say("what is waiting on me?").await;
    assert!(reply.to_string().contains("WISH-001"), "{reply}");
    let (_, reply) = say("skip this phase of WISH-001").await;
    let command = format!("tamma pipeline answer {id} skip");
    assert_eq!(reply["proposal"]["command"], json!(command), "{reply}");
    // The stored run has no workflow, so the action arrives and is refused.
    let (status, refused) = say("yes").await;
    assert_eq!(status, 409, "{refused}");
    let message = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "list_pipelines", "arguments": { "waiting": true } },
    });
    let request = server.http.post(format!("{}/mcp", server.url)).header("Tamma-Person", "Ada");
    let request = request.header("accept", "application/json, text/event-stream");
    let answer = request.json(&message).send().await.expect("response");
    let answer = answer.text().await.expect("text");
    assert!(answer.contains("WISH-001"), "{answer}");
    server.end().await;
}

#[tokio::test]
async fn roles_decide_who_runs_a_pipeline_and_who_answers_at_its_gate() {
    let server = TestServer::with(config("127.0.0.1:0", None)).await;
    let folder = tempfile::tempdir().expect("folder");
    let people = "people:\n  everybody: viewer\n  named: { Ada: approver, Max: member }\n";
    std::fs::write(folder.path().join("tamma.yaml"), people).expect("written");
    let project = server.project(&folder.path().display().to_string()).await;
    let id = save(&server, project, 1, at_gate()).await;
    let mut tokens = BTreeMap::new();
    for person in ["Ada", "Max", "Eve"] {
        tokens.insert(person, server.token_of(person).await);
    }
    let act_as = async |person: &str, path: String, body: Value| {
        let request = server.request(Method::POST, &path).bearer_auth(&tokens[person]);
        read(request.json(&body).send().await.expect("response")).await.0
    };
    let run = json!({ "feature_dir": "plans/wishlist", "story_id": "WISH-002" });
    assert_eq!(act_as("Eve", "/pipelines".to_owned(), run).await, 403);
    let actions = format!("/pipelines/{id}/actions");
    let answer = json!({ "action": "continue" });
    assert_eq!(act_as("Max", actions.clone(), answer.clone()).await, 403);
    assert_eq!(act_as("Eve", actions.clone(), json!({ "action": "cancel" })).await, 403);
    // The run has no workflow.
    assert_eq!(act_as("Ada", actions.clone(), answer).await, 409);
    assert_eq!(act_as("Max", actions, json!({ "action": "cancel" })).await, 409);
    server.end().await;
}

#[tokio::test]
async fn a_page_offers_the_actions_that_the_person_may_do() {
    let team = Team::new().await;
    let id = save(&team.server, team.project, 1, at_gate()).await;
    let path = format!("/pipelines/{id}");
    for (person, may_decide, may_cancel) in
        [("Ada", true, true), ("Max", false, true), ("Vera", false, false)]
    {
        let page = team.browser(&team.add(person).await).await.page(&path).await;
        assert_eq!(page.contains("Skip phase"), may_decide, "{person}: {page}");
        assert_eq!(page.contains("Cancel run"), may_cancel, "{person}: {page}");
        assert_eq!(page.contains("read-only access"), !may_cancel, "{person}: {page}");
    }
    team.server.end().await;
}

#[tokio::test]
async fn a_session_opens_the_output_of_a_phase() {
    let team = Team::new().await;
    let (server, vera, mut run) = (&team.server, team.add("Vera").await, at_gate());
    let text = "All <good>.\n\nPM COMPLETE\n";
    let output = server.store.save_text(text).await.expect("stored");
    run.records.get_mut(&1).expect("record").work.output = Some(output);
    let id = save(server, team.project, 1, run).await;
    let mut browser = team.browser(&vera).await;
    let page = browser.page(&format!("/pipelines/{id}")).await;
    let output = browser.page(between(&page, "<td data-h=\"Output\"><a href=\"", "\"")).await;
    assert!(output.contains(">All &#60;good&#62;.\n\nPM COMPLETE\n</pre>"), "{output}");
    assert_eq!(browser.get(&format!("/pipelines/{id}/phases/2")).await.0, 404, "no output yet");
    team.server.end().await;
}

#[tokio::test]
async fn the_tasks_of_a_split_are_shown_with_their_content_before_they_start() {
    let server = TestServer::with(local_config()).await;
    let project = server.project("/nowhere").await;
    let split = json!({ "tasks": [{
        "key": "api", "title": "Add the endpoint", "description": "Add it.\n\nUse <axum>.",
        "acceptance_criteria": ["It returns 200."], "estimated_lines": 40,
    }] });
    let split: TaskSplit = serde_json::from_value(split).expect("split");
    let text = serde_json::to_string(&split).expect("JSON");
    let stored = server.store.save_text(&text).await.expect("stored");
    let tasks = PhaseDefinition {
        id: "tasks".to_owned(),
        runner: PhaseRunner::Tasks,
        ..PhaseDefinition::default()
    };
    let definition = PipelineDefinition { name: "own".to_owned(), phases: vec![tasks] };
    let request = PipelineRequest { definition, to: 1, approve: [].into(), ..at_gate().request };
    let (run, _) = step(&PipelineRun::new(request).expect("run"), now(), PipelineEvent::Start)
        .expect("started");
    let (graph, work) = (split.graph(stored), PhaseWork::default());
    let proposed = PipelineEvent::SplitProposed { phase: 1, graph, work };
    let id = save(&server, project, 1, step(&run, now(), proposed).expect("split").0).await;
    let (_, view) = server.get(&format!("/pipelines/{id}")).await;
    let task = &view["tasks"][0];
    assert_eq!(task["description"], "Add it.\n\nUse <axum>.");
    assert_eq!(task["acceptance_criteria"], json!(["It returns 200."]));
    assert_eq!(task["estimated_lines"], 40);
    let page = Browser::new(&server).page(&format!("/pipelines/{id}")).await;
    for expected in ["about 40 lines", "<p>Use &#60;axum&#62;.</p>", "<li>It returns 200.</li>"] {
        assert!(page.contains(expected), "{expected} is missing: {page}");
    }
    let (_, listed) = server.get("/pipelines").await;
    assert_eq!(listed["pipelines"][0]["tasks"][0]["description"], Value::Null, "lists are short");
    server.end().await;
}

#[tokio::test]
async fn only_approvers_start_after_an_approval_that_nobody_gave() {
    let team = Team::new().await;
    let text = format!(
        "{PEOPLE}pipelines:\n  release:\n    phases:\n      - {{ id: sign_off, runner: approval }}\n      \
         - {{ id: build, runner: command, run: make }}\n"
    );
    std::fs::write(team.folder.path().join("tamma.yaml"), &text).expect("written");
    let (ada, max) = (team.add("Ada").await, team.add("Max").await);
    let start = async |token: &str, story: &str, from: u8| {
        let run = json!({
            "feature_dir": "plans/a", "story_id": story, "pipeline": "release", "from": from,
        });
        team.post("/pipelines", token, "Grace", &run).await
    };
    let (status, problem) = start(&max, "A-1", 2).await;
    let detail = "Max is a member and does not have the decide permission.";
    assert_eq!((status, &problem["detail"]), (403, &json!(detail)));
    assert_eq!(start(&max, "A-1", 1).await.0, 200, "the approval comes first");
    assert_eq!(start(&ada, "A-2", 2).await.0, 200);
    // Ada has answered in an earlier run, which was cancelled later.
    let file = ConfigFile { name: "tamma.yaml", text: &text };
    let rules =
        rules::load(Some(file), &BTreeMap::new(), &OperatorConfig::default()).expect("rules").rules;
    let request = PipelineRequest {
        definition: rules.pipeline("release").expect("pipeline"),
        feature_dir: "plans/a".to_owned(),
        story_id: "A-3".to_owned(),
        from: 1,
        to: 2,
        approve: [].into(),
    };
    let by: Name = "Ada".parse().expect("name");
    let answered = PipelineEvent::GateAnswered { answer: GateAnswer::Continue, by: by.clone() };
    let mut run = PipelineRun::new(request).expect("run");
    for event in [PipelineEvent::Start, answered, PipelineEvent::Cancelled { by }] {
        run = step(&run, now(), event).expect("step").0;
    }
    save(&team.server, team.project, 1, run).await;
    assert_eq!(start(&max, "A-3", 2).await.0, 200);
    team.server.end().await;
}
