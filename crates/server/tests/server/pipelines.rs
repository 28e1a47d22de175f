//! Pipelines without a worker: stored runs in the inbox, on pages, in chat and over MCP, and who may act
//! on them.

use reqwest::Method;
use serde_json::{Value, json};
use tamma_core::ids::{PipelineId, ProjectId};
use tamma_core::pipeline::signal::{PhaseSignal, SignalSource};
use tamma_core::pipeline::{
    PhaseWork, PipelineDefinition, PipelineEvent, PipelineRequest, PipelineRun, step,
};
use tamma_core::pipeline_alert::alert_for;
use tamma_core::rules::Rules;
use tamma_store::PipelineWrite;
use uuid::Uuid;

use crate::browser::{Browser, local_config};
use crate::test_server::{TestServer, config, new_id, read};

/// Run at the gate of its second phase.
fn at_gate() -> PipelineRun {
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
async fn save(server: &TestServer, project: Uuid, number: u32, run: PipelineRun) -> Uuid {
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
    assert!(inbox.contains("Phase 2. Elaboration needs approval"), "{inbox}");
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
    assert!(inbox.contains("Phase 1. PM Generate is blocked"), "{inbox}");
    assert!(inbox.contains("no design &#60;b&#62;yet"), "text of agents is escaped: {inbox}");
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
    assert!(reply["lines"][0].as_str().is_some_and(|it| it.contains("at the gate")), "{reply}");
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
    let act_as = async |person: &str, path: String, body: Value| {
        let request = server.request(Method::POST, &path).header("Tamma-Person", person);
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
