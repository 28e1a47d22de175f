//! Contract that every agent must satisfy, as a list of scenarios.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use tamma_core::budget::{Spend, SpendLimit};
use tamma_core::plan::FileAction;
use tamma_engine::agent::{AgentUpdate, RunEnd, RunMode, RunReport};
use tamma_engine::gateway::{BudgetLimit, BudgetScope};
use tamma_engine::permission::{
    self, PermissionDecision, PermissionEffect, PermissionKind, PermissionPolicy,
};
use tamma_engine::submission::Submission;
use tamma_testkit::model::{ConversationCase, ModelStep, Script, ScriptedCall};
use tamma_testkit::wait::wait_until_true;

use super::fixture::{self, AgentFixture, Candidate, UpdateLog, at, describe};
use super::{given_scenarios, tool_scenarios};
use crate::support::scripts::plan_arguments;

/// Scenario of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scenario {
    Writes,
    Plans,
    PlansDirectly,
    Judges,
    HostileChange,
    GitCommands,
    Dependencies,
    Protected,
    Denied,
    Explained,
    Rereads,
    Compacted,
    Gated,
    Question,
    Answered,
    Stalls,
    Crashes,
    Cancelled,
    Resumed,
    Quota,
    Refused,
    CutOff,
    Refusal,
    Budget,
    Model,
}

impl Scenario {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        [
            Self::Writes,
            Self::Plans,
            Self::PlansDirectly,
            Self::Judges,
            Self::HostileChange,
            Self::GitCommands,
            Self::Dependencies,
            Self::Protected,
            Self::Denied,
            Self::Explained,
            Self::Rereads,
            Self::Compacted,
            Self::Gated,
            Self::Question,
            Self::Answered,
            Self::Stalls,
            Self::Crashes,
            Self::Cancelled,
            Self::Resumed,
            Self::Quota,
            Self::Refused,
            Self::CutOff,
            Self::Refusal,
            Self::Budget,
            Self::Model,
        ]
        .into_iter()
    }

    /// Returns `true` if the scenario is part of the quick slice.
    pub(crate) fn is_quick(self) -> bool {
        matches!(
            self,
            Self::Writes
                | Self::Plans
                | Self::HostileChange
                | Self::GitCommands
                | Self::Denied
                | Self::Explained
                | Self::Question
                | Self::Answered
                | Self::Refused
                | Self::Budget
        )
    }
}

impl std::fmt::Display for Scenario {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Writes => "writes a change",
            Self::Plans => "submits a plan without writing",
            Self::PlansDirectly => "plans in one session without plan mode",
            Self::Judges => "submits a verdict",
            Self::HostileChange => "a change does not instruct its judge",
            Self::GitCommands => "common git commands",
            Self::Dependencies => "npm, Python and Rust tests after setup",
            Self::Protected => "a protected path is untouched",
            Self::Denied => "permission asked and denied",
            Self::Explained => "the reason of a denial reaches the model",
            Self::Rereads => "the assignment is read again",
            Self::Compacted => "the assignment is read after compaction",
            Self::Gated => "gates run by the agent",
            Self::Question => "a question answered after a restart",
            Self::Answered => "a question answered without a restart",
            Self::Stalls => "the model stalls",
            Self::Crashes => "the agent crashes",
            Self::Cancelled => "cancelled with all child processes",
            Self::Resumed => "resumed after kill -9",
            Self::Quota => "429 with a reset time",
            Self::Refused => "400 that looks like a normal end",
            Self::CutOff => "a turn cut off at the output limit",
            Self::Refusal => "a refusal of the model",
            Self::Budget => "the budget is reached in mid-run",
            Self::Model => "a model chosen for the tier",
        })
    }
}

/// Runs one scenario. Returns an optional remark for the table.
pub(crate) async fn check(
    scenario: Scenario,
    candidate: &Arc<Candidate>,
) -> Result<Option<&'static str>> {
    match scenario {
        Scenario::Writes => writes(candidate).await,
        Scenario::Plans => plans(candidate).await,
        Scenario::PlansDirectly => given_scenarios::plans_directly(candidate).await,
        Scenario::Judges => judges(candidate).await,
        Scenario::HostileChange => given_scenarios::hostile_change(candidate).await,
        Scenario::GitCommands => given_scenarios::git_commands(candidate).await,
        Scenario::Dependencies => given_scenarios::dependencies(candidate).await,
        Scenario::Protected => protected(candidate).await,
        Scenario::Denied => denied(candidate).await,
        Scenario::Explained => tool_scenarios::explained(candidate).await,
        Scenario::Rereads => tool_scenarios::rereads(candidate).await,
        Scenario::Compacted => tool_scenarios::compacted(candidate).await,
        Scenario::Gated => tool_scenarios::gated(candidate).await,
        Scenario::Question => question(candidate).await,
        Scenario::Answered => tool_scenarios::answered(candidate).await,
        Scenario::Stalls => stalls(candidate).await,
        Scenario::Crashes => crashes(candidate).await,
        Scenario::Cancelled => cancelled(candidate).await,
        Scenario::Resumed => resumed(candidate).await,
        Scenario::Quota => quota(candidate).await,
        Scenario::Refused => refused(candidate).await,
        Scenario::CutOff => cut_off(candidate).await,
        Scenario::Refusal => refusal(candidate).await,
        Scenario::Budget => budget(candidate).await,
        Scenario::Model => model(candidate).await,
    }
}

fn write(name: &str, content: &str) -> ModelStep {
    // The path is relative to the worktree, in which the agent runs.
    ModelStep::call(ScriptedCall::Write { path: name.to_owned(), content: content.to_owned() })
}

pub(super) fn run_command(cmd: impl Into<String>) -> ModelStep {
    ModelStep::call(ScriptedCall::Shell { cmd: cmd.into() })
}

pub(super) fn tool(name: &str, args: Value) -> ModelStep {
    ModelStep::call(ScriptedCall::tool(name, args))
}

pub(super) fn done(summary: &str) -> ModelStep {
    tool("submit_result", json!({ "status": "done", "summary": summary }))
}

pub(super) fn script(steps: impl IntoIterator<Item = ModelStep>) -> Script {
    Script::new(steps.into_iter().chain([ModelStep::say("Done.")]))
}

pub(super) fn finished(report: &RunReport, updates: &UpdateLog) -> Result<Submission> {
    match &report.end {
        RunEnd::Finished { submission, .. } => Ok(submission.clone()),
        _ => bail!(describe(report, updates)),
    }
}

async fn writes(candidate: &Arc<Candidate>) -> Result<Option<&'static str>> {
    let steps = [write("greeting.txt", "hello\n"), done("The greeting is there.")];
    let fixture = AgentFixture::new(candidate, script(steps)).await?;
    let (report, updates) = fixture.run(&fixture.run_request(RunMode::Implement)).await?;
    let submission = finished(&report, &updates)?;
    ensure!(matches!(submission, Submission::Result(_)), describe(&report, &updates));
    let text = fixture.file("greeting.txt");
    ensure!(
        text.as_deref() == Some("hello\n"),
        "{text:?} was written; {}",
        describe(&report, &updates)
    );
    ensure!(fixture.changed()? == "?? greeting.txt", "{}", fixture.changed()?);
    fixture.check_metering().await?;
    Ok(None)
}

async fn plans(candidate: &Arc<Candidate>) -> Result<Option<&'static str>> {
    let plan = plan_arguments("A greeting.", FileAction::Create, &["greeting.txt"]);
    let steps = [write("early.txt", "early\n"), tool("submit_plan", plan)];
    let fixture = AgentFixture::new(candidate, script(steps)).await?;
    let (report, updates) = fixture.run(&fixture.run_request(RunMode::Plan)).await?;
    let submission = finished(&report, &updates)?;
    ensure!(matches!(submission, Submission::Plan(_)), describe(&report, &updates));
    let changed = fixture.changed()?;
    ensure!(changed.is_empty(), "a read-only run changed {changed}");
    fixture.check_metering().await?;
    Ok(None)
}

async fn judges(candidate: &Arc<Candidate>) -> Result<Option<&'static str>> {
    let entry = json!({ "id": "C1", "verdict": "unmet", "evidence": "It is silent." });
    let verdict = json!({ "criteria": [entry] });
    let fixture = AgentFixture::new(candidate, script([tool("submit_verdict", verdict)])).await?;
    let (report, updates) = fixture.run(&fixture.run_request(RunMode::Validate)).await?;
    let submission = finished(&report, &updates)?;
    ensure!(matches!(submission, Submission::Verdict(_)), describe(&report, &updates));
    fixture.check_metering().await?;
    Ok(None)
}

/// Extends the default policy: denies everything below `secrets`.
fn secrets_policy(tree: &Path) -> PermissionPolicy {
    let (inside, secrets) =
        (permission::default_policy(tree, RunMode::Implement), tree.join("secrets"));
    let tree = tree.to_owned();
    Arc::new(move |ask| {
        if ask.paths.iter().any(|path| tree.join(path).starts_with(&secrets)) {
            let reason = "`secrets` is protected".to_owned();
            return PermissionDecision { effect: PermissionEffect::Deny, reason };
        }
        inside(ask)
    })
}

async fn protected(candidate: &Arc<Candidate>) -> Result<Option<&'static str>> {
    let steps = [write("secrets/new", "new\n"), write("secrets/old", "new\n")];
    let fixture = AgentFixture::new(candidate, script(steps)).await?;
    let mut request = fixture.run_request(RunMode::Implement);
    request.protected_paths = vec!["secrets/**".to_owned()];
    request.policy = secrets_policy(&fixture.tree());
    if let Some(sandbox) = &mut request.sandbox {
        sandbox.protected = vec![fixture.tree().join("secrets")];
    }
    let (report, updates) = fixture.run(&request).await?;
    finished(&report, &updates)?;
    let changed = fixture.changed()?;
    ensure!(changed.is_empty(), "the agent changed {changed}; {}", describe(&report, &updates));
    fixture.check_metering().await?;
    Ok(None)
}

async fn denied(candidate: &Arc<Candidate>) -> Result<Option<&'static str>> {
    // Every agent asks for at least one of the two: a command, or a protected file. Agents that could
    // do both on their own ask for the commands in `ask_commands`.
    let steps = [run_command("touch asked.txt"), write("secrets/asked.txt", "asked\n")];
    let fixture = AgentFixture::new(candidate, script(steps)).await?;
    let mut request = fixture.run_request(RunMode::Implement);
    request.protected_paths = vec!["secrets/**".to_owned()];
    request.ask_commands = vec!["touch".to_owned()];
    let deny = |_: &_| PermissionDecision {
        effect: PermissionEffect::Deny,
        reason: "denied by the test".to_owned(),
    };
    request.policy = Arc::new(deny);
    let (report, updates) = fixture.run(&request).await?;
    finished(&report, &updates)?;
    let denied_requests: Vec<_> = updates
        .all()
        .into_iter()
        .filter_map(|update| match update {
            AgentUpdate::PermissionDecided(request, decision)
                if decision.effect == PermissionEffect::Deny =>
            {
                Some(request)
            }
            _ => None,
        })
        .collect();
    ensure!(
        !denied_requests.is_empty(),
        "the agent requested no permission; {}",
        describe(&report, &updates)
    );
    let (commands, files): (Vec<_>, Vec<_>) =
        denied_requests.iter().partition(|request| request.kind == PermissionKind::Command);
    ensure!(commands.is_empty() || fixture.file("asked.txt").is_none(), "a denied command ran");
    let written = fixture.file("secrets/asked.txt").is_some();
    ensure!(files.is_empty() || !written, "a denied file was written");
    fixture.check_metering().await?;
    Ok(None)
}

async fn question(candidate: &Arc<Candidate>) -> Result<Option<&'static str>> {
    let args = json!({ "question": "Which colour?", "choices": ["red", "blue"], "default": "red" });
    let answered = ConversationCase {
        when: "The answer is: blue".to_owned(),
        unless: None,
        steps: vec![write("colour.txt", "blue\n"), ModelStep::say("Done.")],
    };
    let waits = ModelStep { delay_ms: 2_000, ..ModelStep::say("I wait.") };
    let script = Script { cases: vec![answered], ..Script::new([tool("ask_human", args), waits]) };
    let fixture = AgentFixture::new(candidate, script).await?;
    let (report, updates) = fixture.run(&fixture.run_request(RunMode::Implement)).await?;
    let RunEnd::QuestionAsked { question } = &report.end else {
        bail!(describe(&report, &updates))
    };
    ensure!(question.question == "Which colour?" && question.choices.len() == 2, "{question:?}");
    // The first process is gone. The next one knows only the session ID, if any, and the answer.
    let mut request = fixture.run_request(RunMode::Implement);
    request.resume = report.session;
    request.prompt = String::from("You asked: Which colour? The answer is: blue. Continue.");
    let (report, updates) = fixture.run(&request).await?;
    finished(&report, &updates)?;
    let text = fixture.file("colour.txt");
    ensure!(text.as_deref() == Some("blue\n"), "{text:?}; {}", describe(&report, &updates));
    fixture.check_metering().await?;
    Ok((!report.resumed).then_some("in a new session"))
}

async fn stalls(candidate: &Arc<Candidate>) -> Result<Option<&'static str>> {
    let fixture = AgentFixture::new(
        candidate,
        Script::new([ModelStep { stall: true, ..ModelStep::say("I") }]),
    )
    .await?;
    let mut request = fixture.run_request(RunMode::Implement);
    request.time_limit = Duration::from_secs(6);
    let (report, updates) = fixture.run(&request).await?;
    ensure!(report.end == RunEnd::TimedOut, describe(&report, &updates));
    fixture.check_metering().await?;
    Ok(None)
}

async fn crashes(candidate: &Arc<Candidate>) -> Result<Option<&'static str>> {
    let fixture = AgentFixture::new(
        candidate,
        Script::new([ModelStep { stall: true, ..ModelStep::say("I") }]),
    )
    .await?;
    let (report, updates) = fixture
        .run_with(&fixture.run_request(RunMode::Implement), async |updates, _| {
            fixture.wait_for_request(|request| request.step == Some(0)).await?;
            fixture::kill(updates.group().context("the process was not recorded")?).await
        })
        .await?;
    ensure!(matches!(report.end, RunEnd::Crashed { .. }), describe(&report, &updates));
    fixture.check_metering().await?;
    Ok(None)
}

async fn cancelled(candidate: &Arc<Candidate>) -> Result<Option<&'static str>> {
    // Two endless processes, one of them in its own session. The path in their command lines
    // identifies them.
    let cmd = "touch forever; (setsid tail -f \"$PWD/forever\" &); tail -f \"$PWD/forever\"";
    let fixture = AgentFixture::new(candidate, script([run_command(cmd)])).await?;
    let mark = AgentFixture::path(&fixture.tree(), "forever");
    let (report, updates) = fixture
        .run_with(&fixture.run_request(RunMode::Implement), async |_, cancel| {
            let text = format!("tail\0-f\0{mark}");
            let runs = || fixture::running(&text).len() >= 2;
            wait_until_true("the command", Duration::from_mins(2), runs).await?;
            cancel.cancel();
            Ok(())
        })
        .await?;
    ensure!(report.end == RunEnd::Cancelled, describe(&report, &updates));
    let left = fixture::running(&fixture.root().display().to_string());
    ensure!(left.is_empty(), "processes still running: {left:?}");
    fixture.check_metering().await?;
    Ok(None)
}

async fn resumed(candidate: &Arc<Candidate>) -> Result<Option<&'static str>> {
    let on = ConversationCase {
        when: "Continue where you stopped".to_owned(),
        unless: None,
        steps: vec![write("two.txt", "two\n"), ModelStep::say("Done.")],
    };
    let stall = ModelStep { stall: true, ..ModelStep::say("I") };
    let script = Script { cases: vec![on], ..Script::new([write("one.txt", "one\n"), stall]) };
    let fixture = AgentFixture::new(candidate, script).await?;
    let (report, updates) = fixture
        .run_with(&fixture.run_request(RunMode::Implement), async |updates, _| {
            fixture.wait_for_request(|request| request.step == Some(1)).await?;
            fixture::kill(updates.group().context("the process was not recorded")?).await
        })
        .await?;
    ensure!(matches!(report.end, RunEnd::Crashed { .. }), describe(&report, &updates));
    ensure!(fixture.file("one.txt").is_some(), "nothing was written before the kill");
    let mut request = fixture.run_request(RunMode::Implement);
    request.resume = report.session;
    request.prompt = String::from("Continue where you stopped.");
    let (report, updates) = fixture.run(&request).await?;
    finished(&report, &updates)?;
    let both = ["one.txt", "two.txt"].map(|name| fixture.file(name).is_some());
    ensure!(both == [true, true], "{both:?}; {}", describe(&report, &updates));
    fixture.check_metering().await?;
    if !report.resumed {
        return Ok(Some("in a new session"));
    }
    let requests = fixture.model.requests();
    let later = requests
        .iter()
        .find(|request| request.case == Some(0) && request.step == Some(0))
        .context("the model got no request to continue")?;
    let knows = later.body.to_string().contains("c0s0_");
    ensure!(knows, "the resumed session lacks the earlier messages");
    Ok(None)
}

async fn quota(candidate: &Arc<Candidate>) -> Result<Option<&'static str>> {
    let until = at() + Duration::from_hours(1);
    let mut step = ModelStep::fail(99, 429);
    step.headers.insert("retry-after".to_owned(), until.to_rfc2822());
    let fixture = AgentFixture::new(candidate, Script::new([step])).await?;
    let (report, updates) = fixture.run(&fixture.run_request(RunMode::Implement)).await?;
    ensure!(report.end == RunEnd::Quota { until }, describe(&report, &updates));
    fixture.check_metering().await?;
    Ok(None)
}

async fn refused(candidate: &Arc<Candidate>) -> Result<Option<&'static str>> {
    let fixture = AgentFixture::new(candidate, Script::new([ModelStep::fail(99, 400)])).await?;
    let (report, updates) = fixture.run(&fixture.run_request(RunMode::Implement)).await?;
    let RunEnd::Crashed { reason } = &report.end else { bail!(describe(&report, &updates)) };
    ensure!(reason.contains("400"), "the reason does not name the status code: {reason}");
    fixture.check_metering().await?;
    Ok(None)
}

async fn cut_off(candidate: &Arc<Candidate>) -> Result<Option<&'static str>> {
    let half = ModelStep { stop: Some("max_tokens".to_owned()), ..ModelStep::say("First I") };
    let fixture = AgentFixture::new(candidate, script([half, done("Nothing to do.")])).await?;
    let (report, updates) = fixture.run(&fixture.run_request(RunMode::Implement)).await?;
    let submission = finished(&report, &updates)?;
    ensure!(matches!(submission, Submission::Result(_)), describe(&report, &updates));
    fixture.check_metering().await?;
    Ok(None)
}

async fn refusal(candidate: &Arc<Candidate>) -> Result<Option<&'static str>> {
    let refuses = || ModelStep {
        stop: Some("refusal".to_owned()),
        ..ModelStep::say("I cannot help with that.")
    };
    let fixture = AgentFixture::new(candidate, Script::new([refuses(), refuses()])).await?;
    let (report, updates) = fixture.run(&fixture.run_request(RunMode::Implement)).await?;
    match &report.end {
        RunEnd::Refused { .. } => Ok(None),
        RunEnd::Crashed { .. } => Ok(Some("as an error")),
        // Gates and review then judge a run without a change.
        RunEnd::Finished { .. } => Ok(Some("as a normal end")),
        _ => bail!(describe(&report, &updates)),
    }
}

async fn budget(candidate: &Arc<Candidate>) -> Result<Option<&'static str>> {
    let steps = (0..9).map(|number| run_command(format!("echo {number}")));
    let fixture = AgentFixture::new(candidate, script(steps)).await?;
    let mut request = fixture.run_request(RunMode::Implement);
    let most = 3_000;
    let limit = SpendLimit { tokens: Some(most), ..SpendLimit::default() };
    let bound = BudgetLimit { scope: BudgetScope::Run, limit, spent: Spend::default() };
    request.access.as_mut().context("the run has no model access")?.budget_limits = vec![bound];
    let (report, updates) = fixture.run(&request).await?;
    ensure!(report.end == RunEnd::OverBudget, describe(&report, &updates));
    let used = report.usage.unwrap_or_default().tokens.total();
    let largest = fixture.model.sent().iter().map(|sent| sent.tokens.total()).max().unwrap_or(0);
    ensure!(
        used > 0 && used <= most + largest,
        "used {used} of {most} tokens; the largest response had {largest}"
    );
    fixture.check_metering().await?;
    Ok(None)
}

async fn model(candidate: &Arc<Candidate>) -> Result<Option<&'static str>> {
    let (requested, expected) = match candidate.name.as_str() {
        "claude-code" => ("haiku", "haiku"),
        "codex" => ("gpt-5.6-luna", "gpt-5.6-luna"),
        "gemini" => ("gemini-3.8-flash", "gemini-3.8-flash"),
        _ => ("model-of-the-tier", "model-of-the-tier"),
    };
    let fixture = AgentFixture::new(candidate, script([])).await?;
    let mut request = fixture.run_request(RunMode::Implement);
    request.model = Some(requested.to_owned());
    let (report, updates) = fixture.run(&request).await?;
    finished(&report, &updates)?;
    let requests = fixture.model.requests();
    let models: Vec<_> = requests
        .iter()
        .filter(|request| request.step.is_some())
        .filter_map(|request| request.model.as_deref())
        .collect();
    let all_match = !models.is_empty() && models.iter().all(|model| model.contains(expected));
    ensure!(all_match, "requested models: {models:?}");
    // OpenCode accepts any model, because its configuration lists the models of its provider.
    if candidate.name != "opencode" {
        let mut request = fixture.run_request(RunMode::Implement);
        request.model = Some("no-such-model".to_owned());
        let (report, updates) = fixture.run(&request).await?;
        let is_listed =
            matches!(&report.end, RunEnd::Unavailable { reason } if reason.contains(requested));
        ensure!(
            is_listed,
            "the error does not list the available models: {}",
            describe(&report, &updates)
        );
    }
    fixture.check_metering().await?;
    Ok(None)
}
