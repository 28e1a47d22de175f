//! Runs an engine in the task's own worktree, and commits what it made.

use serde_json::json;
use tamma_core::task_loop::{Order, Outcome};
use tamma_engine::agent::{Mode, RunEnd};
use tamma_engine::worktree::Author;
use tamma_flow::Begun;
use tamma_flow::port::Answer;

use super::{Activities, Told, Work, now};
use crate::error::Error;
use crate::prompts::{Prompt, fill};

impl Activities {
    pub(super) async fn implement(&self, work: &Work, order: &Order) -> Result<Told, Error> {
        let site = self.site(work).await?;
        let worktree = self.worktree(work, &site).await?;
        let ticket = work.call.errand.ticket;
        if work.call.attempt > 1 {
            // Nobody writes here any more; what an earlier attempt has left is saved.
            self.records.take_over(work.run(), self.config.patience.stop).await?;
            // It is committed only after the agent has ended, so a commit of this run is the whole.
            if let Some(commit) = worktree.commit_of(ticket).await? {
                return Ok(Outcome::RunFinished(commit).into());
            }
            worktree.salvage().await?;
        }
        let (engine, _) = crate::runs::agent_of(&site, order.tier)?;
        (work.call.announce)(Begun { at: now(), ticket, engine }).await?;
        self.pass("announced")?;
        let brief = match &order.brief {
            Some(brief) => Some(self.store.kept(brief).await?),
            None => None,
        };
        let (_, plan) = self.store.plan_by_hash(work.task.id, order.plan.hash).await?;
        let about = json!({ "task": work.task, "plan": plan, "brief": brief, "iteration": order.iteration });
        let prompt = fill(Prompt::Implement, about)?;
        let run = match self.run_order(work, order, &site, &worktree, prompt).await {
            Err(Error::Stopped) => {
                worktree.salvage().await?;
                return Err(Error::Stopped);
            }
            run => run?,
        };
        self.pass("agent ended")?;
        if matches!(run.report.end, RunEnd::Finished { .. }) {
            let message = format!("{}\n\n{}", work.task.title, plan.summary);
            let commit = worktree.commit_all(ticket, &message, &author()).await?;
            self.pass("committed")?;
            let outcome = Outcome::RunFinished(commit);
            return Ok(Told::from(Answer::Ended { outcome, usage: run.report.usage }));
        }
        worktree.salvage().await?;
        run.failed()
    }

    async fn run_order(
        &self,
        work: &Work,
        order: &Order,
        site: &crate::site::Site,
        worktree: &tamma_engine::worktree::Worktree,
        prompt: String,
    ) -> Result<crate::runs::Run, Error> {
        let limits = (order.seconds, order.allowance);
        let running = self.run_agent(
            work,
            site,
            worktree.path(),
            order.tier,
            Mode::Implement,
            prompt,
            limits,
        );
        tokio::pin!(running);
        let mut save = tokio::time::interval(crate::runs::SALVAGE);
        save.tick().await;
        loop {
            tokio::select! {
                run = &mut running => return run,
                // So that hours of work do not hang on one machine's life.
                _ = save.tick() => drop(worktree.salvage().await?),
            }
        }
    }
}

/// Who commits are by.
pub(super) fn author() -> Author {
    Author { name: "Tamma".to_owned(), email: "tamma@localhost".to_owned() }
}
