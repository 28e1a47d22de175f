//! `plan` activity: an agent with read-only access writes or revises a plan.

use serde_json::json;
use tamma_core::ids::Reference;
use tamma_core::plan::{EstimateFacts, Plan};
use tamma_core::rules::count_critical_files;
use tamma_core::task_loop::{Outcome, State};
use tamma_engine::agent::{RunEnd, RunMode};
use tamma_engine::submission::Submission;
use tamma_engine::worktree::Worktree;
use tamma_flow::activities::JobResult;
use tamma_store::Conflict;

use super::brief::{failure_brief, forget_setup, with_failed_setup};
use crate::error::Error;
use crate::job_context::JobContext;
use crate::prompts::{Prompt, criteria_data, task_facts};
use crate::retry::retry_until_stopped;
use crate::runs::UncommittedAssignment;
use crate::services::Services;
use crate::setup::set_up_worktree;

pub(super) async fn plan(
    services: &Services,
    ctx: &JobContext,
    version: u32,
    from: Option<&Reference>,
    note: Option<&Reference>,
) -> Result<JobResult, Error> {
    // An earlier attempt may have crashed after it saved the plan.
    if ctx.attempt > 1
        && let Some(plan) = saved_plan(services, ctx, version).await?
    {
        return Ok(planned_result(ctx, &plan, version));
    }
    let before = match from {
        Some(from) => Some(plan_text(services, ctx, from).await?),
        None => None,
    };
    let mut notes = Vec::new();
    // A council that reviewed the plan, and the changes that a person then asked for.
    for note in ctx.task_loop.guidance.iter().chain(note) {
        notes.push(services.store.text(note).await?);
    }
    let note = (!notes.is_empty()).then(|| notes.join("\n\n"));
    let project = services.repositories.project(ctx).await?;
    let worktree = services.repositories.worktree(ctx, &project).await?;
    let host = (&*services.config, &services.processes, &services.egress, &services.store);
    let failed_setup = set_up_worktree(host, ctx, &project, &worktree).await?;
    // A plan is revised because of failures.
    let failed = match ctx.task_loop.state {
        State::Adjusting => failure_brief(services, ctx, true).await?,
        _ => None,
    };
    let failed = with_failed_setup(failed, failed_setup.as_ref());
    let knowledge = services.knowledge.for_task(ctx).await?;
    let values = json!({
        "criteria": criteria_data(&ctx.task.acceptance_criteria),
        "before": before, "note": note, "failed": &failed, "known": knowledge,
    });
    let prompts = services.prompts(ctx).await?;
    let mut values = task_facts(ctx, None, values);
    forget_setup(&mut values, failed_setup.as_ref());
    let prompt = prompts.render(Prompt::Plan, values)?;
    let slot = ctx.rules.roles.planner.into();
    let assignment = UncommittedAssignment { slot, mode: RunMode::Plan, prompt, brief: failed };
    let run = services.agents.run_uncommitted(ctx, &project, &worktree, assignment).await?;
    ctx.fault_point("agent ended")?;
    match run.report.end {
        RunEnd::Finished { submission: Submission::Plan(mut plan), .. } => {
            estimate_missing_signals(ctx, &worktree, &mut plan).await?;
            ctx.check_not_abandoned()?;
            let plan = save_plan(services, ctx, version, *plan).await?;
            services.contents.keep_plan(ctx.task.id, &plan);
            ctx.fault_point("plan saved")?;
            let result = planned_result(ctx, &plan, version);
            Ok(result.with_usage(run.report.usage))
        }
        RunEnd::Finished { submission: Submission::Invalid { errors, .. }, .. } => {
            let text = format!("The plan is invalid:\n\n- {}\n", errors.join("\n- "));
            let errors = retry_until_stopped(&ctx.stop, || services.store.save_text(&text)).await?;
            let outcome = Outcome::PlanInvalid(errors);
            Ok(JobResult::finished(outcome).with_usage(run.report.usage))
        }
        _ => services.agents.handle_unfinished(ctx, run).await,
    }
}

/// Returns the plan that an attempt at this job has saved.
async fn saved_plan(
    services: &Services,
    ctx: &JobContext,
    version: u32,
) -> Result<Option<Plan>, Error> {
    Ok(services.store.plan_of_job(ctx.task.id, version, ctx.run_id().job_number).await?)
}

/// Saves a plan. Returns the stored one if another attempt at this job was faster.
async fn save_plan(
    services: &Services,
    ctx: &JobContext,
    version: u32,
    plan: Plan,
) -> Result<Plan, Error> {
    let at = (version, Some(ctx.run_id().job_number));
    let save = || services.store.save_plan(ctx.task.id, at, &plan);
    match retry_until_stopped(&ctx.stop, save).await {
        Err(Error::Store(tamma_store::Error::Conflict(Conflict::DifferentPlan { .. }))) => {
            // Otherwise it is from a later job, and this one no longer counts.
            let saved = saved_plan(services, ctx, version).await?.ok_or(Error::Stopped)?;
            tracing::warn!(version, "another attempt has saved a plan; using it");
            Ok(saved)
        }
        saved => {
            saved?;
            Ok(plan)
        }
    }
}

/// Estimates the signals that the planner left out, although it was asked again.
async fn estimate_missing_signals(
    ctx: &JobContext,
    worktree: &Worktree,
    plan: &mut Plan,
) -> Result<(), Error> {
    if plan.signals.missing().is_empty() {
        return Ok(());
    }
    let repository = worktree.files_at(ctx.base()?).await?;
    let paths = plan.file_changes.iter().map(|change| change.path.as_str());
    let critical_files = count_critical_files(paths, &ctx.rules);
    let (repository, task) = (Some(&repository), Some(&ctx.task));
    plan.complete_signals(&EstimateFacts { repository, task, critical_files });
    Ok(())
}

/// Loads the text of a plan to start from: one of this task, or one submitted with it.
pub(super) async fn plan_text(
    services: &Services,
    ctx: &JobContext,
    at: &Reference,
) -> Result<String, Error> {
    let Some(version) = at.plan_version() else {
        return Ok(services.store.text(at).await?);
    };
    let plan = services.store.plan(ctx.task.id, version).await?;
    Ok(serde_json::to_string_pretty(&plan).unwrap_or_default())
}

/// Builds the result for a saved plan.
fn planned_result(ctx: &JobContext, plan: &Plan, version: u32) -> JobResult {
    let summary = plan.summarize(version, Reference::of_plan(version), &ctx.rules);
    JobResult::finished(Outcome::Planned(summary))
}

/// Returns the current plan of the task.
pub(super) async fn current_plan(services: &Services, ctx: &JobContext) -> Result<Plan, Error> {
    let summary = ctx.task_loop.plan.as_ref();
    let summary = summary.ok_or_else(|| Error::Internal("the task has no plan yet".to_owned()))?;
    services.contents.plan(ctx.task.id, summary.hash).await
}
