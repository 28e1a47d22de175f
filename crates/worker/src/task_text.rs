//! Assignment of a run as text, which `get_task` returns.
//!
//! An agent that has summarised its conversation reads it again here: the task, the plan, the
//! failure brief, the gates and the limits.

use std::fmt::Write as _;

use tamma_core::budget::SpendLimit;
use tamma_core::plan::criterion_id;
use tamma_engine::agent::RunMode;
use tamma_store::Store;

use crate::error::Error;
use crate::job_context::JobContext;

/// Facts about a run that its job does not contain.
pub(crate) struct RunLimits<'a> {
    pub(crate) mode: RunMode,
    /// Failure brief in the prompt, if any.
    pub(crate) brief: Option<&'a str>,
    /// Time limit, in seconds.
    pub(crate) seconds: u32,
    pub(crate) allowance: SpendLimit,
    /// Patterns of files that must not change.
    pub(crate) protected: &'a [String],
    /// Patterns of commands that must not run.
    pub(crate) denied: &'a [String],
    /// Questions and answers, as in the prompt.
    pub(crate) answers: &'a str,
}

/// Writes the assignment of a run. A learning run has everything in its prompt and needs none.
pub(crate) async fn task_text(
    store: &Store,
    ctx: &JobContext,
    run: &RunLimits<'_>,
) -> Result<Option<String>, Error> {
    if run.mode == RunMode::Learn {
        return Ok(None);
    }
    let plan = match &ctx.task_loop.plan {
        Some(plan) => Some(store.plan_by_hash(ctx.task.id, plan.hash).await?.1),
        None => None,
    };
    let plan = plan.map(|plan| serde_json::to_string_pretty(&plan).unwrap_or_default());
    let note = match &ctx.task_loop.note {
        Some(note) if run.mode == RunMode::Plan => Some(store.text(note).await?),
        _ => None,
    };
    Ok(Some(write_text(ctx, run, plan.as_deref(), note.as_deref())))
}

fn write_text(
    ctx: &JobContext,
    run: &RunLimits<'_>,
    plan: Option<&str>,
    note: Option<&str>,
) -> String {
    let task = &ctx.task;
    let mut text = format!("# Task: {} ({})\n\n{}\n", task.title, task.r#type, task.description);
    if !task.acceptance_criteria.is_empty() {
        text.push_str("\n# Acceptance criteria\n\n");
        for (index, criterion) in task.acceptance_criteria.iter().enumerate() {
            let _ = writeln!(text, "- {}: {criterion}", criterion_id(index));
        }
    }
    if let Some(plan) = plan {
        let heading = if run.mode == RunMode::Plan { "Plan so far" } else { "Approved plan" };
        let _ = write!(text, "\n# {heading}\n\n```json\n{plan}\n```\n");
    }
    if let Some(note) = note {
        let _ = write!(text, "\n# Take this into account\n\n{}\n", note.trim());
    }
    if let Some(brief) = run.brief {
        let _ = write!(text, "\n# What failed before\n\n{}\n", brief.trim());
    }
    let risk = ctx.task_loop.risk_level().unwrap_or_default();
    text.push_str("\n# Gates\n\n");
    let mut has_gates = false;
    for (name, gate) in ctx.rules.gates_at(risk) {
        has_gates = true;
        let limit = gate.timeout_seconds;
        let _ = writeln!(text, "- {name} ({}, at most {limit} s): `{}`", gate.kind, gate.command);
    }
    if !has_gates {
        text.push_str("None.\n");
    }
    text.push_str("\n# Limits\n\n");
    if let Ok(base) = ctx.base() {
        let _ = writeln!(text, "- Base commit: {base}; your change so far: `git diff {base}`");
    }
    let _ = writeln!(text, "- Time limit of this run: {} s", run.seconds);
    if let Some(usd) = run.allowance.usd {
        let _ = writeln!(text, "- Cost limit of this run: {usd}");
    }
    if let Some(tokens) = run.allowance.tokens {
        let _ = writeln!(text, "- Token limit of this run: {tokens}");
    }
    let changes = if run.mode.is_read_only() { "nothing" } else { "files in your working folder" };
    let _ = writeln!(text, "- You may change: {changes}; never: {}", run.protected.join(", "));
    let _ = writeln!(text, "- Denied commands: {}", run.denied.join(", "));
    if !run.answers.trim().is_empty() {
        let _ = write!(text, "\n{}\n", run.answers.trim());
    }
    text
}
