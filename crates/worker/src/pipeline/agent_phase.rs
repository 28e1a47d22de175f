//! Phases that an agent runs.

use serde_json::{Value, json};
use tamma_core::budget::{self, Grant, SpendLimit};
use tamma_core::pipeline::files::WORKFLOW_DIR;
use tamma_core::pipeline::signal::{self, SignalSource};
use tamma_core::pipeline::{PhaseDefinition, PhaseRunner};
use tamma_core::rules::AgentSelection;
use tamma_engine::agent::{RunEnd, RunMode};
use tamma_engine::submission::{Submission, SubmissionFacts};
use tamma_engine::worktree::Worktree;

use super::{PhaseContext, PhaseEnd, PhaseEndKind};
use crate::checkpoints::with_checkpoints;
use crate::error::Error;
use crate::prompts::{Prompt, PromptSet};
use crate::runs::{AgentRun, AgentSlot, Assignment, KeepRun, crash_reason};
use crate::services::Services;
use crate::setup::set_up_worktree;

/// Folder of the repository's own command files.
const COMMANDS_DIR: &str = ".claude/commands";

/// Runs an agent with the instructions of the phase.
pub(super) async fn run(
    services: &Services,
    ctx: &PhaseContext,
    worktree: &Worktree,
    keep_end: KeepRun,
) -> Result<PhaseEnd, Error> {
    let _slot = services.agents.agent_slot(&ctx.job).await?;
    let host = (&*services.config, &services.processes, &services.egress, &services.store);
    set_up_worktree(host, &ctx.job, &ctx.project, worktree).await?;
    let phase = ctx.phase();
    let (source, instructions) = instructions(ctx, worktree, &phase).await?;
    let values = prompt_values(services, ctx, &phase, source, &instructions).await?;
    let prompt = PromptSet::default().render(Prompt::Phase, values)?;
    let facts = SubmissionFacts { phase: phase.clone(), ..SubmissionFacts::default() };
    let assignment = Assignment {
        slot: slot(&phase),
        mode: RunMode::Phase,
        prompt,
        continuation: None,
        seconds: seconds(ctx, &phase),
        allowance: allowance(ctx, &phase),
        facts,
        brief: None,
        gates: None,
        keep_end: Some(keep_end),
    };
    let running = services.agents.run(&ctx.job, &ctx.project, worktree.into(), assignment);
    let run = with_checkpoints(worktree, &ctx.project.rules, Box::pin(running)).await?;
    ctx.job.fault_point("agent ended")?;
    Ok(phase_end(run, &phase))
}

/// Runs a planner that splits the story into tasks.
pub(super) async fn split(
    services: &Services,
    ctx: &PhaseContext,
    worktree: &Worktree,
    keep_end: KeepRun,
) -> Result<PhaseEnd, Error> {
    let phase = ctx.phase();
    let values = prompt_values(services, ctx, &phase, None, "").await?;
    let prompt = PromptSet::default().render(Prompt::Split, values)?;
    let _slot = services.agents.read_only_slot(&ctx.job, &ctx.job.stop).await?;
    let assignment = Assignment {
        slot: slot(&phase),
        mode: RunMode::Split,
        prompt,
        continuation: None,
        seconds: seconds(ctx, &phase),
        allowance: allowance(ctx, &phase),
        facts: SubmissionFacts::default(),
        brief: None,
        gates: None,
        keep_end: Some(keep_end),
    };
    let run = services.agents.run(&ctx.job, &ctx.project, worktree.into(), assignment).await?;
    ctx.job.fault_point("agent ended")?;
    Ok(phase_end(run, &phase))
}

/// Returns the instructions of a phase, with the file that they come from.
async fn instructions(
    ctx: &PhaseContext,
    worktree: &Worktree,
    phase: &PhaseDefinition,
) -> Result<(Option<String>, String), Error> {
    if let Some(prompt) = &phase.prompt {
        return Ok((None, ctx.expand(prompt)));
    }
    let Some(file) = phase.command_file() else {
        return Err(Error::Internal("the phase has no instructions".to_owned()));
    };
    let path = format!("{COMMANDS_DIR}/{file}");
    // At the base commit, so that no earlier phase can rewrite its own instructions.
    if let Some(text) = worktree.file_text(ctx.job.base()?, &path).await? {
        return Ok((Some(path), text));
    }
    let built_in = match file.as_str() {
        "pm-story.md" => include_str!("instructions/pm-story.md"),
        "elab-story.md" => include_str!("instructions/elab-story.md"),
        "dev-implement-story.md" => include_str!("instructions/dev-implement-story.md"),
        "dev-code-review.md" => include_str!("instructions/dev-code-review.md"),
        "qa-verify-story.md" => include_str!("instructions/qa-verify-story.md"),
        _ => {
            return Err(Error::Configuration(format!(
                "`{path}` is missing at the base commit, and there is no built-in command `{}`",
                phase.command.as_deref().unwrap_or_default()
            )));
        }
    };
    Ok((None, built_in.to_owned()))
}

async fn prompt_values(
    services: &Services,
    ctx: &PhaseContext,
    phase: &PhaseDefinition,
    source: Option<String>,
    instructions: &str,
) -> Result<Value, Error> {
    let request = &ctx.request.run.request;
    let path = ctx.request.story_path.clone().unwrap_or_default();
    let command = phase
        .command
        .as_ref()
        .map(|command| format!("{command} {} {}", request.feature_dir, request.story_id));
    let expand = |names: &[String]| names.iter().map(|name| ctx.expand(name)).collect::<Vec<_>>();
    Ok(json!({
        "story": {
            "id": request.story_id,
            "feature_dir": request.feature_dir,
            "workflow": format!("{path}/{WORKFLOW_DIR}"),
            "path": path,
        },
        "pipeline": request.definition.name,
        "count": request.definition.last(),
        "phase": {
            "number": ctx.request.phase,
            "title": phase.title(),
            "name": phase.signal_name(),
            "signal": phase.success_signal(),
            "command": command,
        },
        "source": source,
        "instructions": instructions.trim(),
        "inputs": expand(&phase.inputs),
        "outputs": expand(&phase.outputs),
        "known": services.knowledge.for_task(&ctx.job).await?,
    }))
}

fn slot(phase: &PhaseDefinition) -> AgentSlot {
    let selection = AgentSelection {
        tier: phase.tier(),
        agent: phase.agent.clone(),
        model: phase.model.clone(),
    };
    // A separate home, so that phases do not instruct each other through it.
    let home = Some(format!("phase-{}", phase.id));
    AgentSlot { selection, home }
}

fn seconds(ctx: &PhaseContext, phase: &PhaseDefinition) -> u32 {
    let limits = &ctx.job.rules.scrum_master.task_loop;
    phase.timeout_seconds.unwrap_or_else(|| limits.implementation_seconds())
}

fn allowance(ctx: &PhaseContext, phase: &PhaseDefinition) -> SpendLimit {
    let default = budget::task_limit(None, &Grant::default(), &ctx.job.rules);
    SpendLimit { usd: phase.max_usd.or(default.usd), tokens: phase.max_tokens.or(default.tokens) }
}

/// Converts the end of a run to the end of the phase.
pub(super) fn phase_end(run: AgentRun, phase: &PhaseDefinition) -> PhaseEnd {
    let AgentRun { report, messages, .. } = run;
    let blocked = |reason: String| {
        let signal = signal::PhaseSignal::Blocked(reason);
        PhaseEndKind::Signal(signal, SignalSource::Structured)
    };
    let kind = match report.end {
        RunEnd::Finished { submission: Submission::Signal(signal, source), .. } => {
            PhaseEndKind::Signal(signal, source)
        }
        RunEnd::Finished { submission: Submission::Split(split), .. } => PhaseEndKind::Split(split),
        RunEnd::Finished { submission: Submission::Invalid { errors, .. }, .. }
            if phase.runner == PhaseRunner::Tasks =>
        {
            let reason = format!("invalid submission: {}", errors.join("; "));
            PhaseEndKind::Signal(signal::PhaseSignal::Failed(reason), SignalSource::Structured)
        }
        RunEnd::Finished { .. } => {
            PhaseEndKind::Signal(signal::parse(&messages, phase), SignalSource::LastLine)
        }
        RunEnd::Crashed { reason } => PhaseEndKind::Crashed(crash_reason(&reason, &report.stderr)),
        RunEnd::Unavailable { reason } | RunEnd::Refused { reason } => {
            PhaseEndKind::Crashed(reason)
        }
        RunEnd::TimedOut | RunEnd::Cancelled => PhaseEndKind::TimedOut,
        RunEnd::Quota { until } => PhaseEndKind::NotBefore(until),
        RunEnd::OverBudget => blocked("the spending limit is reached".to_owned()),
        RunEnd::Unpriced { model } => blocked(tamma_core::prices::unpriced_reason(&model)),
        RunEnd::QuestionAsked { question } => blocked(format!("question: {}", question.question)),
    };
    let is_estimated = report.usage.is_some() && !report.metered;
    PhaseEnd { kind, output: messages, usage: report.usage, is_estimated }
}
