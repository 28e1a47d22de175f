//! Has a plan written, or revised, by an agent that may only look.

use serde_json::json;
use tamma_core::ids::Reference;
use tamma_core::plan::Plan;
use tamma_core::task_loop::{Outcome, State};
use tamma_engine::agent::{Mode, RunEnd};
use tamma_engine::submission::Submission;
use tamma_flow::port::Answer;

use super::{Activities, Told, Work};
use crate::error::Error;
use crate::prompts::{Prompt, fill};

impl Activities {
    pub(super) async fn plan(
        &self,
        work: &Work,
        version: u32,
        from: Option<&Reference>,
        note: Option<&Reference>,
    ) -> Result<Told, Error> {
        // An earlier attempt may have died after it saved the plan.
        match self.store.plan(work.task.id, version).await {
            Ok(plan) if work.call.attempt > 1 => return planned(work, &plan, version),
            Ok(_) | Err(tamma_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let before = match from {
            Some(from) => Some(self.text_of(work, from).await?),
            None => None,
        };
        let note = match note {
            Some(note) => Some(self.store.kept(note).await?),
            None => None,
        };
        let site = self.site(work).await?;
        let worktree = self.worktree(work, &site).await?;
        // A plan that is adjusted is adjusted because of what failed.
        let failed = match work.memory.state {
            State::Adjusting => self.failures(work).await?,
            _ => None,
        };
        let known = self.known_of_task(work).await?;
        let about = json!({
            "task": work.task, "before": before, "note": note, "failed": failed, "known": known,
        });
        let prompt = fill(Prompt::Plan, about)?;
        let tier = work.rules.roles.planner;
        let run = self.look(work, &site, &worktree, tier, Mode::Plan, prompt).await?;
        self.pass("agent ended")?;
        match run.report.end {
            RunEnd::Finished { submission: Submission::Plan(plan), .. } => {
                let save = || self.store.save_plan(work.task.id, version, &plan);
                self.surely(&work.call.stop, save).await?;
                self.pass("plan saved")?;
                let told = planned(work, &plan, version)?;
                Ok(told.using(run.report.usage))
            }
            RunEnd::Finished { submission: Submission::Invalid { flaws, .. }, .. } => {
                let text = format!("The plan cannot be used:\n\n- {}\n", flaws.join("\n- "));
                let flaws = self.surely(&work.call.stop, || self.store.keep(&text)).await?;
                let outcome = Outcome::PlanInvalid(flaws);
                Ok(Told::from(Answer::Ended { outcome, usage: run.report.usage }))
            }
            _ => self.unfinished(work, run).await,
        }
    }

    /// The text of a plan to start from: one of this task's, or one that it brought.
    pub(super) async fn text_of(&self, work: &Work, at: &Reference) -> Result<String, Error> {
        let Some(version) = at.as_str().strip_prefix("plan:").and_then(|text| text.parse().ok())
        else {
            return Ok(self.store.kept(at).await?);
        };
        let plan = self.store.plan(work.task.id, version).await?;
        Ok(serde_json::to_string_pretty(&plan).unwrap_or_default())
    }
}

/// The answer for a plan that is saved.
fn planned(work: &Work, plan: &Plan, version: u32) -> Result<Told, Error> {
    let kept_at = format!("plan:{version}");
    let kept_at = kept_at.parse().map_err(|_| Error::Odd("a plan's name".to_owned()))?;
    Ok(Outcome::Planned(plan.outline(version, kept_at, &work.rules)).into())
}
