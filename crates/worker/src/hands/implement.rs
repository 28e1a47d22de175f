//! Runs an engine in the task's own worktree, and commits what it made.

use std::time::Duration;

use serde_json::json;
use tamma_core::escalation::{Decision, Verdict};
use tamma_core::task_loop::{Order, Outcome};
use tamma_engine::agent::{Mode, RunEnd};
use tamma_engine::worktree::{Author, Worktree};
use tamma_flow::Begun;
use tamma_flow::port::Answer;
use tokio_util::sync::CancellationToken;

use super::{Activities, Told, Work, now};
use crate::error::Error;
use crate::prompts::{Prompt, fill};
use crate::runs::Assignment;

impl Activities {
    pub(super) async fn implement(&self, work: &Work, order: &Order) -> Result<Told, Error> {
        let site = self.site(work).await?;
        // Nobody writes here any more, before anything is put aside or brought in.
        self.records.take_over(work.run(), self.config.patience.stop).await?;
        let worktree = self.worktree(work, &site).await?;
        let ticket = work.call.errand.ticket;
        if work.call.attempt > 1 {
            // It is committed only after the agent has ended, so a commit of this run is the whole.
            if let Some(commit) = worktree.commit_of(ticket).await? {
                save(&worktree).await?;
                return Ok(Outcome::RunFinished(commit).into());
            }
            save(&worktree).await?;
        }
        if let Some(full) = self.room(&site).await? {
            return Ok(full);
        }
        let (engine, _) = crate::runs::agent_of(&site, &order.tier.into())?;
        (work.call.announce)(Begun { at: now(), ticket, engine }).await?;
        self.pass("announced")?;
        let iterates = |decision: Decision| matches!(decision.verdict, Verdict::Iterate(_));
        let brief = match &order.brief {
            // After another plan the last brief is of an older attempt.
            _ if order.iteration > 1 && !work.memory.decision.is_some_and(iterates) => {
                self.failures(work).await?
            }
            Some(brief) => Some(self.store.kept(brief).await?),
            None => None,
        };
        let (_, plan) = self.store.plan_by_hash(work.task.id, order.plan.hash).await?;
        let known = self.known_of_plan(work, &plan).await?;
        let about = json!({
            "task": work.task,
            "plan": plan,
            "known": known,
            "brief": brief,
            "iteration": order.iteration,
        });
        let prompt = fill(Prompt::Implement, about)?;
        let run = match self.run_order(work, order, &site, &worktree, prompt).await {
            Err(Error::Stopped) => {
                save(&worktree).await?;
                return Err(Error::Stopped);
            }
            Err(error) => {
                save(&worktree).await?;
                return Err(error);
            }
            Ok(run) => run,
        };
        self.pass("agent ended")?;
        if matches!(run.report.end, RunEnd::Finished { .. }) {
            let message = format!("{}\n\n{}", work.task.title, plan.summary);
            let commit = worktree.commit_all(ticket, &message, &author()).await?;
            self.pass("committed")?;
            let outcome = Outcome::RunFinished(commit);
            return Ok(Told::from(Answer::Ended { outcome, usage: run.report.usage }));
        }
        save(&worktree).await?;
        self.unfinished(work, run).await
    }

    async fn run_order(
        &self,
        work: &Work,
        order: &Order,
        site: &crate::site::Site,
        worktree: &Worktree,
        prompt: String,
    ) -> Result<crate::runs::Run, Error> {
        let assignment = Assignment {
            place: order.tier.into(),
            mode: Mode::Implement,
            prompt,
            seconds: order.seconds,
            allowance: order.allowance,
            evidence: None,
        };
        let over = CancellationToken::new();
        let running = async {
            let run = self.run_agent(work, site, worktree.into(), assignment).await;
            over.cancel();
            run
        };
        // Twice in that time, because saving takes time too, and what is written meanwhile is not in
        // it: so nothing older than that is missing wherever the run goes on.
        let pause = Duration::from_secs(u64::from(site.rules.engines.salvage_seconds)) / 2;
        // Beside the run, which must not wait for it; and to its end, so that no lock is left.
        let (run, ()) = tokio::join!(running, keep_saving(worktree, pause, &over));
        run
    }
}

/// Saves the work of a run again and again, so that hours of it do not hang on one machine's life.
async fn keep_saving(worktree: &Worktree, pause: Duration, over: &CancellationToken) {
    let mut due = tokio::time::interval(pause);
    due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    due.tick().await;
    loop {
        tokio::select! {
            _ = due.tick() => {}
            () = over.cancelled() => return,
        }
        if let Err(error) = save(worktree).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(task = %worktree.task(), error, "the work of a run is not saved this time");
        }
    }
}

/// Saves what a worktree has. That the project's repository cannot be reached is told, and is no
/// reason to stop: it is tried again the next time.
async fn save(worktree: &Worktree) -> Result<(), Error> {
    let saved = worktree.salvage().await?;
    if let Some(why) = saved.why {
        tracing::warn!(task = %worktree.task(), why, "work is saved on this machine only");
    }
    Ok(())
}

/// Who commits are by.
pub(super) fn author() -> Author {
    Author { name: "Tamma".to_owned(), email: "tamma@localhost".to_owned() }
}
