//! The contract: what every agent must do, and what must not happen whatever it does.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use tamma_core::budget::{Spend, SpendLimit};
use tamma_engine::agent::{AgentUpdate, RunEnd, RunMode, RunReport};
use tamma_engine::gateway::{BudgetLimit, BudgetScope};
use tamma_engine::permission::{
    self, PermissionDecision, PermissionEffect, PermissionKind, PermissionPolicy,
};
use tamma_engine::submission::Submission;
use tamma_testkit::model::{ConversationCase, ModelStep, Script, ScriptedCall};

use super::stage::{self, Candidate, Seen, Stage, at, describe, until};

/// One thing that is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scenario {
    Writes,
    Plans,
    Judges,
    Protected,
    Denied,
    Question,
    Stalls,
    Crashes,
    Cancelled,
    Resumed,
    Quota,
    Refused,
    Budget,
    Model,
}

impl Scenario {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        [
            Self::Writes,
            Self::Plans,
            Self::Judges,
            Self::Protected,
            Self::Denied,
            Self::Question,
            Self::Stalls,
            Self::Crashes,
            Self::Cancelled,
            Self::Resumed,
            Self::Quota,
            Self::Refused,
            Self::Budget,
            Self::Model,
        ]
        .into_iter()
    }

    /// Whether CI runs it too.
    pub(crate) fn is_quick(self) -> bool {
        matches!(
            self,
            Self::Writes
                | Self::Plans
                | Self::Denied
                | Self::Question
                | Self::Refused
                | Self::Budget
        )
    }
}

impl std::fmt::Display for Scenario {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Writes => "writes a change",
            Self::Plans => "submits a plan and only looks",
            Self::Judges => "submits a verdict",
            Self::Protected => "a protected path is untouched",
            Self::Denied => "permission asked and denied",
            Self::Question => "a question answered after a restart",
            Self::Stalls => "the model stalls",
            Self::Crashes => "the agent crashes",
            Self::Cancelled => "cancelled with its whole tree",
            Self::Resumed => "resumed after kill -9",
            Self::Quota => "429 with a reset time",
            Self::Refused => "400 that looks like a normal end",
            Self::Budget => "the budget is reached in mid-run",
            Self::Model => "a model chosen for the tier",
        })
    }
}

/// Holds the contract in one scenario. What is returned is worth knowing.
pub(crate) async fn hold(
    scenario: Scenario,
    candidate: &Arc<Candidate>,
) -> Result<Option<&'static str>> {
    match scenario {
        Scenario::Writes => writes(candidate).await,
        Scenario::Plans => plans(candidate).await,
        Scenario::Judges => judges(candidate).await,
        Scenario::Protected => protected(candidate).await,
        Scenario::Denied => denied(candidate).await,
        Scenario::Question => question(candidate).await,
        Scenario::Stalls => stalls(candidate).await,
        Scenario::Crashes => crashes(candidate).await,
        Scenario::Cancelled => cancelled(candidate).await,
        Scenario::Resumed => resumed(candidate).await,
        Scenario::Quota => quota(candidate).await,
        Scenario::Refused => refused(candidate).await,
        Scenario::Budget => budget(candidate).await,
        Scenario::Model => model(candidate).await,
    }
}

fn write(name: &str, content: &str) -> ModelStep {
    // Agents work in the worktree, and take a path from there.
    ModelStep::call(ScriptedCall::Write { path: name.to_owned(), content: content.to_owned() })
}

fn shell(cmd: impl Into<String>) -> ModelStep {
    ModelStep::call(ScriptedCall::Shell { cmd: cmd.into() })
}

fn tool(name: &str, args: Value) -> ModelStep {
    ModelStep::call(ScriptedCall::tool(name, args))
}

fn script(steps: impl IntoIterator<Item = ModelStep>) -> Script {
    Script::new(steps.into_iter().chain([ModelStep::say("Done.")]))
}

fn finished(report: &RunReport, seen: &Seen) -> Result<Submission> {
    match &report.end {
        RunEnd::Finished { submission, .. } => Ok(submission.clone()),
        _ => bail!(describe(report, seen)),
    }
}

async fn writes(candidate: &Arc<Candidate>) -> Result<Option<&'static str>> {
    let stage = Stage::set(candidate, script([write("greeting.txt", "hello\n")])).await?;
    let (report, seen) = stage.run(&stage.order(RunMode::Implement)).await?;
    ensure!(finished(&report, &seen)? == Submission::NotRequired, describe(&report, &seen));
    let text = stage.file("greeting.txt");
    ensure!(
        text.as_deref() == Some("hello\n"),
        "{text:?} was written; {}",
        describe(&report, &seen)
    );
    ensure!(stage.changed().await? == "?? greeting.txt", "{}", stage.changed().await?);
    stage.is_metered().await?;
    Ok(None)
}

async fn plans(candidate: &Arc<Candidate>) -> Result<Option<&'static str>> {
    let plan = json!({
        "summary": "A greeting.",
        "approach": "Write it down.",
        "file_changes": [{
            "path": "greeting.txt", "action": "create", "description": "The greeting.", "estimated_lines": 1,
        }],
        "testing_strategy": "Read it.",
    });
    let steps = [write("early.txt", "early\n"), tool("submit_plan", plan)];
    let stage = Stage::set(candidate, script(steps)).await?;
    let (report, seen) = stage.run(&stage.order(RunMode::Plan)).await?;
    let submission = finished(&report, &seen)?;
    ensure!(matches!(submission, Submission::Plan(_)), describe(&report, &seen));
    let changed = stage.changed().await?;
    ensure!(changed.is_empty(), "a run that may only look has changed {changed}");
    stage.is_metered().await?;
    Ok(None)
}

async fn judges(candidate: &Arc<Candidate>) -> Result<Option<&'static str>> {
    let verdict = json!({ "criteria": { "It greets.": { "unmet": { "why": "It is silent." } } } });
    let stage = Stage::set(candidate, script([tool("submit_verdict", verdict)])).await?;
    let (report, seen) = stage.run(&stage.order(RunMode::Validate)).await?;
    let submission = finished(&report, &seen)?;
    ensure!(matches!(submission, Submission::Verdict(_)), describe(&report, &seen));
    stage.is_metered().await?;
    Ok(None)
}

/// Denies what is below `secrets`, beside what may not be done anyway.
fn keep_secrets(tree: &Path) -> PermissionPolicy {
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
    let stage = Stage::set(candidate, script(steps)).await?;
    let mut order = stage.order(RunMode::Implement);
    order.protected_paths = vec!["secrets/**".to_owned()];
    order.policy = keep_secrets(&stage.tree());
    if let Some(cage) = &mut order.sandbox {
        cage.protected = vec![stage.tree().join("secrets")];
    }
    let (report, seen) = stage.run(&order).await?;
    finished(&report, &seen)?;
    let changed = stage.changed().await?;
    ensure!(changed.is_empty(), "it has changed {changed}; {}", describe(&report, &seen));
    stage.is_metered().await?;
    Ok(None)
}

async fn denied(candidate: &Arc<Candidate>) -> Result<Option<&'static str>> {
    // One of the two is asked for by every agent: a command, or a file that its own rules keep. Where
    // both are the agent's to do, it asks for the commands that it is told to ask for.
    let steps = [shell("touch asked.txt"), write("secrets/asked.txt", "asked\n")];
    let stage = Stage::set(candidate, script(steps)).await?;
    let mut order = stage.order(RunMode::Implement);
    order.protected_paths = vec!["secrets/**".to_owned()];
    order.ask_commands = vec!["touch".to_owned()];
    let deny = |_: &_| PermissionDecision {
        effect: PermissionEffect::Deny,
        reason: "it is tried".to_owned(),
    };
    order.policy = Arc::new(deny);
    let (report, seen) = stage.run(&order).await?;
    finished(&report, &seen)?;
    let asked: Vec<_> = seen
        .all()
        .into_iter()
        .filter_map(|update| match update {
            AgentUpdate::PermissionDecided(ask, ruling)
                if ruling.effect == PermissionEffect::Deny =>
            {
                Some(ask)
            }
            _ => None,
        })
        .collect();
    ensure!(!asked.is_empty(), "it asked for nothing; {}", describe(&report, &seen));
    let (commands, files): (Vec<_>, Vec<_>) =
        asked.iter().partition(|ask| ask.kind == PermissionKind::Command);
    ensure!(commands.is_empty() || stage.file("asked.txt").is_none(), "it ran although it may not");
    let written = stage.file("secrets/asked.txt").is_some();
    ensure!(files.is_empty() || !written, "it wrote although it may not");
    stage.is_metered().await?;
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
    let stage = Stage::set(candidate, script).await?;
    let (report, seen) = stage.run(&stage.order(RunMode::Implement)).await?;
    let RunEnd::QuestionAsked { question } = &report.end else { bail!(describe(&report, &seen)) };
    ensure!(question.question == "Which colour?" && question.choices.len() == 2, "{question:?}");
    // Nothing of it lives here. Whoever goes on knows its session, if it had one, and the answer.
    let mut order = stage.order(RunMode::Implement);
    order.resume = report.session;
    order.prompt = String::from("You asked: Which colour? The answer is: blue. Go on.");
    let (report, seen) = stage.run(&order).await?;
    finished(&report, &seen)?;
    let text = stage.file("colour.txt");
    ensure!(text.as_deref() == Some("blue\n"), "{text:?}; {}", describe(&report, &seen));
    stage.is_metered().await?;
    Ok((!report.resumed).then_some("in a new session"))
}

async fn stalls(candidate: &Arc<Candidate>) -> Result<Option<&'static str>> {
    let stage =
        Stage::set(candidate, Script::new([ModelStep { stall: true, ..ModelStep::say("I") }]))
            .await?;
    let mut order = stage.order(RunMode::Implement);
    order.time_limit = Duration::from_secs(6);
    let (report, seen) = stage.run(&order).await?;
    ensure!(report.end == RunEnd::TimedOut, describe(&report, &seen));
    stage.is_metered().await?;
    Ok(None)
}

async fn crashes(candidate: &Arc<Candidate>) -> Result<Option<&'static str>> {
    let stage =
        Stage::set(candidate, Script::new([ModelStep { stall: true, ..ModelStep::say("I") }]))
            .await?;
    let (report, seen) = stage
        .play(&stage.order(RunMode::Implement), async |seen, _| {
            stage.asked(|request| request.step == Some(0)).await?;
            stage::kill(seen.group().context("it was never on record")?).await
        })
        .await?;
    ensure!(matches!(report.end, RunEnd::Crashed { .. }), describe(&report, &seen));
    stage.is_metered().await?;
    Ok(None)
}

async fn cancelled(candidate: &Arc<Candidate>) -> Result<Option<&'static str>> {
    // Two that never end, one of which leaves the group. Their command lines say whose they are.
    let cmd = "touch forever; (setsid tail -f \"$PWD/forever\" &); tail -f \"$PWD/forever\"";
    let stage = Stage::set(candidate, script([shell(cmd)])).await?;
    let mark = Stage::path(&stage.tree(), "forever");
    let (report, seen) = stage
        .play(&stage.order(RunMode::Implement), async |_, cancel| {
            until(Duration::from_mins(2), || {
                stage::running(&format!("tail\0-f\0{mark}")).len() >= 2
            })
            .await
            .context("its command never ran")?;
            cancel.cancel();
            Ok(())
        })
        .await?;
    ensure!(report.end == RunEnd::Cancelled, describe(&report, &seen));
    let left = stage::running(&stage.root().display().to_string());
    ensure!(left.is_empty(), "processes live: {left:?}");
    stage.is_metered().await?;
    Ok(None)
}

async fn resumed(candidate: &Arc<Candidate>) -> Result<Option<&'static str>> {
    let on = ConversationCase {
        when: "Go on where you were".to_owned(),
        unless: None,
        steps: vec![write("two.txt", "two\n"), ModelStep::say("Done.")],
    };
    let stall = ModelStep { stall: true, ..ModelStep::say("I") };
    let script = Script { cases: vec![on], ..Script::new([write("one.txt", "one\n"), stall]) };
    let stage = Stage::set(candidate, script).await?;
    let (report, seen) = stage
        .play(&stage.order(RunMode::Implement), async |seen, _| {
            stage.asked(|request| request.step == Some(1)).await?;
            stage::kill(seen.group().context("it was never on record")?).await
        })
        .await?;
    ensure!(matches!(report.end, RunEnd::Crashed { .. }), describe(&report, &seen));
    ensure!(stage.file("one.txt").is_some(), "nothing was written before the kill");
    let mut order = stage.order(RunMode::Implement);
    order.resume = report.session;
    order.prompt = String::from("Go on where you were.");
    let (report, seen) = stage.run(&order).await?;
    finished(&report, &seen)?;
    let both = ["one.txt", "two.txt"].map(|name| stage.file(name).is_some());
    ensure!(both == [true, true], "{both:?}; {}", describe(&report, &seen));
    stage.is_metered().await?;
    if !report.resumed {
        return Ok(Some("in a new session"));
    }
    let requests = stage.model.requests();
    let later = requests
        .iter()
        .find(|request| request.case == Some(0) && request.step == Some(0))
        .context("the model was not asked to go on")?;
    let knows = later.body.to_string().contains("c0s0_");
    ensure!(knows, "the session went on without what was done before");
    Ok(None)
}

async fn quota(candidate: &Arc<Candidate>) -> Result<Option<&'static str>> {
    let until = at() + Duration::from_hours(1);
    let mut step = ModelStep::fail(99, 429);
    step.headers.insert("retry-after".to_owned(), until.to_rfc2822());
    let stage = Stage::set(candidate, Script::new([step])).await?;
    let (report, seen) = stage.run(&stage.order(RunMode::Implement)).await?;
    ensure!(report.end == RunEnd::Quota { until }, describe(&report, &seen));
    stage.is_metered().await?;
    Ok(None)
}

async fn refused(candidate: &Arc<Candidate>) -> Result<Option<&'static str>> {
    let stage = Stage::set(candidate, Script::new([ModelStep::fail(99, 400)])).await?;
    let (report, seen) = stage.run(&stage.order(RunMode::Implement)).await?;
    let RunEnd::Crashed { reason } = &report.end else { bail!(describe(&report, &seen)) };
    ensure!(reason.contains("400"), "the reason does not name the answer: {reason}");
    stage.is_metered().await?;
    Ok(None)
}

async fn budget(candidate: &Arc<Candidate>) -> Result<Option<&'static str>> {
    let steps = (0..9).map(|number| shell(format!("echo {number}")));
    let stage = Stage::set(candidate, script(steps)).await?;
    let mut order = stage.order(RunMode::Implement);
    let most = 3_000;
    let limit = SpendLimit { tokens: Some(most), ..SpendLimit::default() };
    let bound = BudgetLimit { scope: BudgetScope::Run, limit, spent: Spend::default() };
    order.access.as_mut().context("it has access")?.budget_limits = vec![bound];
    let (report, seen) = stage.run(&order).await?;
    ensure!(report.end == RunEnd::OverBudget, describe(&report, &seen));
    let used = report.usage.unwrap_or_default().tokens.total();
    let largest = stage.model.sent().iter().map(|sent| sent.tokens.total()).max().unwrap_or(0);
    ensure!(used > 0 && used <= most + largest, "{used} of {most}, with answers of {largest}");
    stage.is_metered().await?;
    Ok(None)
}

async fn model(candidate: &Arc<Candidate>) -> Result<Option<&'static str>> {
    let (wanted, named) = match candidate.name.as_str() {
        "claude-code" => ("haiku", "haiku"),
        "codex" => ("gpt-5.6-luna", "gpt-5.6-luna"),
        "gemini" => ("gemini-3.8-flash", "gemini-3.8-flash"),
        _ => ("model-of-the-tier", "model-of-the-tier"),
    };
    let stage = Stage::set(candidate, script([])).await?;
    let mut order = stage.order(RunMode::Implement);
    order.model = Some(wanted.to_owned());
    let (report, seen) = stage.run(&order).await?;
    finished(&report, &seen)?;
    let requests = stage.model.requests();
    let asked: Vec<_> = requests
        .iter()
        .filter(|request| request.step.is_some())
        .filter_map(|request| request.model.as_deref())
        .collect();
    let all = !asked.is_empty() && asked.iter().all(|model| model.contains(named));
    ensure!(all, "the model was asked for as {asked:?}");
    // OpenCode is told which models its provider has, so that it offers any.
    if candidate.name != "opencode" {
        let mut order = stage.order(RunMode::Implement);
        order.model = Some("no-such-model".to_owned());
        let (report, seen) = stage.run(&order).await?;
        let told = matches!(&report.end, RunEnd::Unavailable { reason } if reason.contains(wanted));
        ensure!(told, "it must be told what is offered: {}", describe(&report, &seen));
    }
    stage.is_metered().await?;
    Ok(None)
}
