//! `plan` activity: an agent with read-only access writes or revises a plan.

use serde_json::json;
use tamma_core::ids::Reference;
use tamma_core::plan::Plan;
use tamma_core::task_loop::{Outcome, State};
use tamma_engine::agent::{RunEnd, RunMode};
use tamma_engine::submission::Submission;
use tamma_flow::activities::JobResult;

use super::{Activities, JobContext};
use crate::error::Error;
use crate::prompts::{Prompt, render};

impl Activities {
    pub(super) async fn plan(
        &self,
        work: &JobContext,
        version: u32,
        from: Option<&Reference>,
        note: Option<&Reference>,
    ) -> Result<JobResult, Error> {
        // An earlier attempt may have crashed after it saved the plan.
        match self.store.plan(work.task.id, version).await {
            Ok(plan) if work.attempt > 1 => {
                return planned_result(work, &plan, version);
            }
            Ok(_) | Err(tamma_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let before = match from {
            Some(from) => Some(self.plan_text(work, from).await?),
            None => None,
        };
        let note = match note {
            Some(note) => Some(self.store.text(note).await?),
            None => None,
        };
        let site = self.project_context(work).await?;
        let worktree = self.worktree(work, &site).await?;
        // A plan is revised because of failures.
        let failed = match work.task_loop.state {
            State::Adjusting => self.failure_brief(work).await?,
            _ => None,
        };
        let known = self.knowledge_for_task(work).await?;
        let about = json!({
            "task": work.task, "before": before, "note": note, "failed": failed, "known": known,
        });
        let prompt = render(Prompt::Plan, about)?;
        let tier = work.rules.roles.planner;
        let run = self.run_read_only(work, &site, &worktree, tier, RunMode::Plan, prompt).await?;
        self.fault_point("agent ended")?;
        match run.report.end {
            RunEnd::Finished { submission: Submission::Plan(plan), .. } => {
                let save = || self.store.save_plan(work.task.id, version, &plan);
                self.retry_until_stopped(&work.stop, save).await?;
                self.fault_point("plan saved")?;
                let told = planned_result(work, &plan, version)?;
                Ok(told.with_usage(run.report.usage))
            }
            RunEnd::Finished { submission: Submission::Invalid { errors: flaws, .. }, .. } => {
                let text = format!("The plan is invalid:\n\n- {}\n", flaws.join("\n- "));
                let flaws =
                    self.retry_until_stopped(&work.stop, || self.store.save_text(&text)).await?;
                let outcome = Outcome::PlanInvalid(flaws);
                Ok(JobResult::finished(outcome).with_usage(run.report.usage))
            }
            _ => self.handle_unfinished_run(work, run).await,
        }
    }

    /// Loads the text of a plan to start from: one of this task, or one submitted with it.
    pub(super) async fn plan_text(
        &self,
        work: &JobContext,
        at: &Reference,
    ) -> Result<String, Error> {
        let Some(version) = at.as_str().strip_prefix("plan:").and_then(|text| text.parse().ok())
        else {
            return Ok(self.store.text(at).await?);
        };
        let plan = self.store.plan(work.task.id, version).await?;
        Ok(serde_json::to_string_pretty(&plan).unwrap_or_default())
    }
}

/// Builds the result for a saved plan.
fn planned_result(work: &JobContext, plan: &Plan, version: u32) -> Result<JobResult, Error> {
    let kept_at = format!("plan:{version}");
    let kept_at =
        kept_at.parse().map_err(|_| Error::Internal("invalid plan reference".to_owned()))?;
    Ok(JobResult::finished(Outcome::Planned(plan.summarize(version, kept_at, &work.rules))))
}
