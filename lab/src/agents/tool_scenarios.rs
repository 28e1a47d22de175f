//! Scenarios about the tools of an agent and the reasons of denials, observed in the requests to
//! the model.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use futures_util::future::BoxFuture;
use serde_json::json;
use tamma_engine::agent::RunMode;
use tamma_engine::agent_tools::{AgentGates, AgentQuestion, AskPerson};
use tamma_testkit::model::{ConversationCase, ModelStep, Script};

use super::contract::{done, finished, run_command, script, tool};
use super::fixture::{AgentFixture, Candidate, describe};

/// Returns the body of the request that followed the first step.
fn second_request(fixture: &AgentFixture) -> Result<String> {
    let requests = fixture.model.requests();
    let second = requests.iter().find(|request| request.step == Some(1));
    Ok(second.context("the model got no second request")?.body.to_string())
}

/// The reason of a denial, and its alternative, are in the next request to the model.
pub(super) async fn explained(candidate: &Arc<Candidate>) -> Result<Option<&'static str>> {
    let fixture = AgentFixture::new(candidate, script([run_command("git push")])).await?;
    let (report, updates) = fixture.run(&fixture.run_request(RunMode::Implement)).await?;
    finished(&report, &updates)?;
    let body = second_request(&fixture)?;
    let text = "Denied: only Tamma pushes commits. Instead: leave the change";
    ensure!(body.contains(text), "the model did not receive the reason: {body}");
    fixture.check_metering().await?;
    Ok(None)
}

/// `get_task` returns the assignment to the model.
pub(super) async fn rereads(candidate: &Arc<Candidate>) -> Result<Option<&'static str>> {
    let fixture = AgentFixture::new(candidate, script([tool("get_task", json!({}))])).await?;
    let mut request = fixture.run_request(RunMode::Implement);
    request.services.task_text = Some("# Task: greet everyone in Latin".to_owned());
    let (report, updates) = fixture.run(&request).await?;
    finished(&report, &updates)?;
    let body = second_request(&fixture)?;
    ensure!(body.contains("greet everyone in Latin"), "{body}; {}", describe(&report, &updates));
    fixture.check_metering().await?;
    Ok(None)
}

/// Instructions with which the agents ask for a summary of their conversation.
const COMPACTION_PROMPTS: [&str; 4] = [
    "Your task is to create a detailed summary of",
    "CONTEXT CHECKPOINT COMPACTION",
    "state_snapshot",
    "anchored summary",
];

/// Command with more output than agents keep of a compacted conversation.
const LONG_OUTPUT: &str = "seq -f 'lost-%05g, a line that fills the context of the model' 1 500";

/// Summary of a compacted conversation.
const SUMMARY: &str = "Earlier work was summarised here.";

/// `get_task` returns the assignment after the agent has compacted its conversation, because the
/// model reports that its context is nearly full.
pub(super) async fn compacted(candidate: &Arc<Candidate>) -> Result<Option<&'static str>> {
    // Each agent compacts from another share of its context on.
    let used = match candidate.name.as_str() {
        "claude-code" => 980_000,
        "gemini" => 900_000,
        "codex" => 262_000,
        _ => 195_000,
    };
    let full = |step: ModelStep| ModelStep { input_tokens: Some(used), ..step };
    let case = |when: &str, unless: Option<&str>, steps: Vec<ModelStep>| ConversationCase {
        when: when.to_owned(),
        unless: unless.map(str::to_owned),
        steps,
    };
    // Claude Code keeps what is in these tags.
    let answer = format!("<summary>{SUMMARY}</summary>");
    let mut cases = vec![case(
        SUMMARY,
        None,
        vec![tool("get_task", json!({})), done("As the assignment says."), ModelStep::say("Done.")],
    )];
    // Some agents offer their tools with these requests too.
    cases.extend(
        COMPACTION_PROMPTS.map(|prompt| case(prompt, Some(SUMMARY), vec![ModelStep::say(&answer)])),
    );
    let script = Script {
        cases,
        side_answer: Some(answer),
        ..Script::new([full(run_command(LONG_OUTPUT)), full(ModelStep::say("I stop."))])
    };
    let fixture = AgentFixture::new(candidate, script).await?;
    let mut request = fixture.run_request(RunMode::Implement);
    request.services.task_text = Some("# Task: greet everyone in Latin".to_owned());
    let (report, updates) = fixture.run(&request).await?;
    finished(&report, &updates)?;
    let bodies: Vec<_> =
        fixture.model.requests().iter().map(|request| request.body.to_string()).collect();
    let is_asked = |body: &String| COMPACTION_PROMPTS.iter().any(|prompt| body.contains(prompt));
    ensure!(bodies.iter().any(is_asked), "nothing was compacted; {}", describe(&report, &updates));
    let after = bodies.iter().find(|body| body.contains("greet everyone in Latin"));
    let after = after.context("the model did not receive the assignment")?;
    ensure!(after.contains(SUMMARY), "the assignment was read before compaction");
    ensure!(!after.contains("lost-00001"), "the conversation was not compacted: {after}");
    fixture.check_metering().await?;
    Ok(None)
}

/// A question is answered while the run waits.
pub(super) async fn answered(candidate: &Arc<Candidate>) -> Result<Option<&'static str>> {
    let ask = tool("ask_human", json!({ "question": "Which colour?" }));
    let fixture = AgentFixture::new(candidate, script([ask])).await?;
    let mut request = fixture.run_request(RunMode::Implement);
    let person: AskPerson = Arc::new(|_: AgentQuestion| {
        Box::pin(async {
            tokio::time::sleep(std::time::Duration::from_secs(3)).await;
            Some("Bo answered: blue".to_owned())
        })
    });
    request.services.ask_person = Some(person);
    let (report, updates) = fixture.run(&request).await?;
    finished(&report, &updates)?;
    let body = second_request(&fixture)?;
    ensure!(body.contains("Bo answered: blue"), "{body}; {}", describe(&report, &updates));
    fixture.check_metering().await?;
    Ok(None)
}

/// Gates that fail.
struct FailingGates;

impl AgentGates for FailingGates {
    fn start(&self, _: Vec<String>) -> BoxFuture<'static, Result<String, String>> {
        Box::pin(async { Ok("Gate run `g1` started.".to_owned()) })
    }

    fn result(&self, id: String) -> BoxFuture<'static, Result<String, String>> {
        Box::pin(async move { Ok(format!("{id}: `tests` failed: greeting is silent")) })
    }
}

/// The results of gates reach the model.
pub(super) async fn gated(candidate: &Arc<Candidate>) -> Result<Option<&'static str>> {
    let steps = [
        tool("run_gates", json!({ "action": "start" })),
        tool("run_gates", json!({ "action": "result", "id": "g1" })),
    ];
    let fixture = AgentFixture::new(candidate, script(steps)).await?;
    let mut request = fixture.run_request(RunMode::Implement);
    request.services.gates = Some(Arc::new(FailingGates));
    let (report, updates) = fixture.run(&request).await?;
    finished(&report, &updates)?;
    let requests = fixture.model.requests();
    let last = requests.iter().find(|request| request.step == Some(2));
    let body = last.context("the model got no third request")?.body.to_string();
    ensure!(body.contains("greeting is silent"), "{body}; {}", describe(&report, &updates));
    fixture.check_metering().await?;
    Ok(None)
}
