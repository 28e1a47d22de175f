//! `implement` activity: runs an agent in the task's worktree and commits the result.
//!
//! The commit is made only after the agent has exited, so a commit for this job number means that
//! an earlier attempt finished. Temporal retries the activity; nothing is retried here. An agent that
//! says it is done is not believed: gates and the review judge the commit.

use std::sync::Arc;

use serde_json::json;
use tamma_core::escalation::{EscalationAction, EscalationDecision};
use tamma_core::failure::{FailureKind, JobFailure};
use tamma_core::plan::Plan;
use tamma_core::rules::DeliveryMode;
use tamma_core::run_result::{RunResult, RunStatus};
use tamma_core::task_loop::{Outcome, RunSpec};
use tamma_engine::agent::{RunEnd, RunMode};
use tamma_engine::submission::{Submission, SubmissionFacts};
use tamma_engine::worktree::Worktree;
use tamma_flow::RunStarted;
use tamma_flow::activities::JobResult;

use super::brief::{failure_brief, forget_setup, with_failed_setup};
use crate::agent_gates::AgentGateRuns;
use crate::answered_questions::format_question;
use crate::checkpoints::{save_checkpoint, with_checkpoints};
use crate::clock::now;
use crate::error::Error;
use crate::job_context::JobContext;
use crate::project_context::ProjectContext;
use crate::prompts::{Prompt, budget_text, criteria_data, plan_data, task_facts};
use crate::pull_request_text::commit_message;
use crate::repositories::author;
use crate::retry::{retry_until_stopped, retry_while_disk_is_full};
use crate::runs::{AgentRun, Assignment, agent_for};
use crate::services::Services;
use crate::setup::set_up_worktree;

pub(super) async fn implement(
    services: &Services,
    ctx: &JobContext,
    spec: &RunSpec,
) -> Result<JobResult, Error> {
    let project = services.repositories.project(ctx).await?;
    // Stop processes of an earlier attempt before touching its worktree.
    services.stop_earlier_attempts(ctx).await?;
    let worktree = services.repositories.worktree(ctx, &project).await?;
    let job_number = ctx.request.job_number;
    if ctx.attempt > 1 {
        // Waits for an earlier attempt that still writes to the worktree.
        save_checkpoint(&worktree, &ctx.stop).await?;
        // A commit of this job means that an earlier attempt finished.
        if let Some(commit) = worktree.commit_for_job(job_number).await? {
            return Ok(JobResult::finished(Outcome::RunFinished(commit)));
        }
    }
    if let Some(reason) = services.repositories.free_disk_space(&project).await? {
        let reason = reason.parse().map_err(|_| Error::Internal("invalid reason".to_owned()))?;
        let failure = JobFailure { kind: FailureKind::Unavailable, reason };
        return Ok(JobResult::finished(Outcome::Failed(failure)));
    }
    let implementer = project.rules.implementer(ctx.task.suggested_agent.as_deref(), spec.tier);
    let (agent, _) = agent_for(&project, &implementer)?;
    ctx.announce_start(RunStarted { at: now(), job_number, agent }).await?;
    ctx.fault_point("announced")?;
    let host = (&*services.config, &services.processes, &services.egress, &services.store);
    let failed_setup = set_up_worktree(host, ctx, &project, &worktree).await?;
    let iterates =
        |decision: EscalationDecision| matches!(decision.action, EscalationAction::Iterate(_));
    let brief = match &spec.brief {
        // After a new plan, the stored brief is about an older attempt.
        _ if spec.iteration > 1 && !ctx.task_loop.decision.is_some_and(iterates) => {
            failure_brief(services, ctx, false).await?
        }
        Some(brief) => Some(services.store.text(brief).await?),
        None => None,
    };
    // A repair of the same plan can continue the session of the last attempt.
    let repairs = brief.is_some() && ctx.task_loop.decision.is_some_and(iterates);
    let brief = with_failed_setup(brief, failed_setup.as_ref());
    let plan = services.contents.plan(ctx.task.id, spec.plan.hash).await?;
    let knowledge = services.knowledge.for_plan(ctx, &plan).await?;
    let values = json!({
        "criteria": criteria_data(plan.criteria_of(&ctx.task)),
        "plan": plan_data(&plan),
        "known": knowledge,
        "brief": &brief,
        "iteration": spec.iteration,
        "max_iterations": ctx.task_loop.max_iterations(&ctx.rules),
        "budget": budget_text(&spec.allowance, spec.timeout_seconds),
    });
    let mut values = task_facts(ctx, ctx.task_loop.risk_level(), values);
    forget_setup(&mut values, failed_setup.as_ref());
    let prompts = services.prompts(ctx).await?;
    let continuation =
        if repairs { Some(prompts.render(Prompt::Continue, &values)?) } else { None };
    let assignment = Assignment {
        slot: implementer.into(),
        mode: RunMode::Implement,
        prompt: prompts.render(Prompt::Implement, &values)?,
        continuation,
        seconds: spec.timeout_seconds,
        allowance: spec.allowance,
        facts: SubmissionFacts::default(),
        brief,
        gates: None,
        keep_end: None,
    };
    let run = match run_with_checkpoints(services, ctx, &project, &worktree, assignment).await {
        Err(error) => {
            if !ctx.abandoned.is_cancelled() {
                save_checkpoint(&worktree, &ctx.stop).await?;
            }
            return Err(error);
        }
        Ok(run) => run,
    };
    ctx.fault_point("agent ended")?;
    // The files may be those of a later attempt.
    ctx.check_not_abandoned()?;
    let claims = match &run.report.end {
        RunEnd::Finished { submission: Submission::Result(result), .. } => Some(result.clone()),
        _ => None,
    };
    if let Some(result) = claims.as_ref().filter(|result| result.status != RunStatus::Done) {
        save_checkpoint(&worktree, &ctx.stop).await?;
        let outcome = unfinished_outcome(services, ctx, result).await?;
        return Ok(JobResult::finished(outcome).with_usage(run.report.usage).with_claims(claims));
    }
    if matches!(run.report.end, RunEnd::Finished { .. }) {
        let outcome = commit_change(services, ctx, &worktree, &plan).await?;
        ctx.fault_point("committed")?;
        return Ok(JobResult::finished(outcome).with_usage(run.report.usage).with_claims(claims));
    }
    save_checkpoint(&worktree, &ctx.stop).await?;
    services.agents.handle_unfinished(ctx, run).await
}

/// Commits the change of a finished run. Returns a question for a person if it cannot be committed.
async fn commit_change(
    services: &Services,
    ctx: &JobContext,
    worktree: &Worktree,
    plan: &Plan,
) -> Result<Outcome, Error> {
    let (message, author) = (change_message(ctx, plan), author());
    let commit = || worktree.commit_all(ctx.request.job_number, &message, &author);
    match retry_while_disk_is_full(&ctx.stop, commit).await {
        Ok(commit) => Ok(Outcome::RunFinished(commit)),
        // Another attempt would end the same way, so a person decides.
        Err(error) if error.is_caused_by_change() => {
            let text = format!("The change cannot be committed: {error}.");
            let text = format_question(&text, &[], &[]);
            let save = || services.store.save_text(&text);
            let question = retry_until_stopped(&ctx.stop, save).await?;
            Ok(Outcome::QuestionAsked { question, default_answer: None })
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the message of the run's commit.
fn change_message(ctx: &JobContext, plan: &Plan) -> String {
    match ctx.task_loop.delivery_mode(&ctx.rules) {
        DeliveryMode::Branch => format!("{}\n\n{}", ctx.task.title, plan.summary),
        // It becomes part of a pull request, and a forge acts on its words when it lands.
        DeliveryMode::Merge | DeliveryMode::PullRequest => commit_message(&ctx.task, plan),
    }
}

/// Returns the outcome of a run whose agent stopped before the plan was carried out: a question to a
/// person, or a plan that goes back to the planner.
async fn unfinished_outcome(
    services: &Services,
    ctx: &JobContext,
    result: &RunResult,
) -> Result<Outcome, Error> {
    let text = match result.status {
        RunStatus::Blocked => {
            let text = format!("The agent is blocked.\n\n{}", result.to_markdown());
            format_question(&text, &[], &[])
        }
        RunStatus::PlanWrong | RunStatus::Done => {
            format!("The implementing agent disputes the plan.\n\n{}", result.to_markdown())
        }
    };
    let save = || services.store.save_text(&text);
    let text = retry_until_stopped(&ctx.stop, save).await?;
    Ok(match result.status {
        RunStatus::Blocked => Outcome::QuestionAsked { question: text, default_answer: None },
        RunStatus::PlanWrong | RunStatus::Done => Outcome::PlanWrong(text),
    })
}

async fn run_with_checkpoints(
    services: &Services,
    ctx: &JobContext,
    project: &ProjectContext,
    worktree: &Worktree,
    assignment: Assignment,
) -> Result<AgentRun, Error> {
    let gates = AgentGateRuns::new(services, ctx, project, worktree);
    let _stop_gates = gates.stop_on_drop();
    let assignment = Assignment { gates: Some(Arc::new(gates.clone())), ..assignment };
    let running = async {
        let run = services.agents.run(ctx, project, worktree.into(), assignment).await;
        gates.finish().await;
        run
    };
    with_checkpoints(worktree, &project.rules, Box::pin(running)).await
}
