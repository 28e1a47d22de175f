//! `implement` activity: runs an agent in the task's worktree and commits the result.
//!
//! The commit is made only after the agent has exited, so a commit for this job number means that
//! an earlier attempt finished. Temporal retries the activity; nothing is retried here.

use std::time::Duration;

use serde_json::json;
use tamma_core::escalation::{EscalationAction, EscalationDecision};
use tamma_core::task_loop::{Outcome, RunSpec};
use tamma_engine::agent::{RunEnd, RunMode};
use tamma_engine::worktree::{Author, Worktree};
use tamma_flow::RunStarted;
use tamma_flow::activities::JobResult;
use tokio_util::sync::CancellationToken;

use super::{Activities, JobContext, now};
use crate::error::Error;
use crate::prompts::{Prompt, render};
use crate::runs::Assignment;

impl Activities {
    pub(super) async fn implement(
        &self,
        work: &JobContext,
        order: &RunSpec,
    ) -> Result<JobResult, Error> {
        let site = self.project_context(work).await?;
        // Stop processes of an earlier attempt before touching its worktree.
        self.processes.take_over(work.run_id(), self.config.timeouts.stop).await?;
        let worktree = self.worktree(work, &site).await?;
        let ticket = work.request.job_number;
        if work.attempt > 1 {
            // A commit of this job means that an earlier attempt finished.
            if let Some(commit) = worktree.commit_for_job(ticket).await? {
                save_checkpoint(&worktree).await?;
                return Ok(JobResult::finished(Outcome::RunFinished(commit)));
            }
            save_checkpoint(&worktree).await?;
        }
        if let Some(full) = self.free_disk_space(&site).await? {
            return Ok(full);
        }
        let (engine, _) = crate::runs::agent_for(&site, &order.tier.into())?;
        (work.announce_start)(RunStarted { at: now(), job_number: ticket, agent: engine }).await?;
        self.fault_point("announced")?;
        let iterates =
            |decision: EscalationDecision| matches!(decision.action, EscalationAction::Iterate(_));
        let brief = match &order.brief {
            // After a new plan, the stored brief is about an older attempt.
            _ if order.iteration > 1 && !work.task_loop.decision.is_some_and(iterates) => {
                self.failure_brief(work).await?
            }
            Some(brief) => Some(self.store.text(brief).await?),
            None => None,
        };
        let (_, plan) = self.store.plan_by_hash(work.task.id, order.plan.hash).await?;
        let known = self.knowledge_for_plan(work, &plan).await?;
        let about = json!({
            "task": work.task,
            "plan": plan,
            "known": known,
            "brief": brief,
            "iteration": order.iteration,
        });
        let prompt = render(Prompt::Implement, about)?;
        let run = match self.run_with_checkpoints(work, order, &site, &worktree, prompt).await {
            Err(Error::Stopped) => {
                save_checkpoint(&worktree).await?;
                return Err(Error::Stopped);
            }
            Err(error) => {
                save_checkpoint(&worktree).await?;
                return Err(error);
            }
            Ok(run) => run,
        };
        self.fault_point("agent ended")?;
        if matches!(run.report.end, RunEnd::Finished { .. }) {
            let message = format!("{}\n\n{}", work.task.title, plan.summary);
            let commit = worktree.commit_all(ticket, &message, &author()).await?;
            self.fault_point("committed")?;
            let outcome = Outcome::RunFinished(commit);
            return Ok(JobResult::finished(outcome).with_usage(run.report.usage));
        }
        save_checkpoint(&worktree).await?;
        self.handle_unfinished_run(work, run).await
    }

    async fn run_with_checkpoints(
        &self,
        work: &JobContext,
        order: &RunSpec,
        site: &crate::project_context::ProjectContext,
        worktree: &Worktree,
        prompt: String,
    ) -> Result<crate::runs::AgentRun, Error> {
        let assignment = Assignment {
            slot: order.tier.into(),
            mode: RunMode::Implement,
            prompt,
            seconds: order.timeout_seconds,
            allowance: order.allowance,
            evidence: None,
        };
        let over = CancellationToken::new();
        let running = async {
            let run = self.run_agent(work, site, worktree.into(), assignment).await;
            over.cancel();
            run
        };
        // Half the configured interval, because a checkpoint takes time and misses later writes. So
        // no work older than the interval is lost.
        let pause = Duration::from_secs(u64::from(site.rules.engines.salvage_seconds)) / 2;
        // Concurrent with the run, and awaited to its end, so that no git lock remains.
        let (run, ()) = tokio::join!(running, checkpoint_periodically(worktree, pause, &over));
        run
    }
}

/// Saves a checkpoint at regular intervals, so that another worker can continue the run.
async fn checkpoint_periodically(worktree: &Worktree, pause: Duration, over: &CancellationToken) {
    let mut due = tokio::time::interval(pause);
    due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    due.tick().await;
    loop {
        tokio::select! {
            _ = due.tick() => {}
            () = over.cancelled() => return,
        }
        if let Err(error) = save_checkpoint(worktree).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(task = %worktree.task(), error, "failed to save checkpoint");
        }
    }
}

/// Saves a checkpoint. A failed push is logged and retried with the next checkpoint.
async fn save_checkpoint(worktree: &Worktree) -> Result<(), Error> {
    let saved = worktree.checkpoint().await?;
    if let Some(why) = saved.push_error {
        tracing::warn!(task = %worktree.task(), why, "failed to push checkpoint; work is on this worker only");
    }
    Ok(())
}

/// Returns the author of commits.
pub(super) fn author() -> Author {
    Author { name: "Tamma".to_owned(), email: "tamma@localhost".to_owned() }
}
