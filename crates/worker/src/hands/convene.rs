//! Asks the council about a task that is stuck. For now it is one model, of the top tier.

use serde_json::json;
use tamma_core::task_loop::Outcome;
use tamma_core::tier::Tier;
use tamma_engine::agent::{Mode, RunEnd};
use tamma_flow::port::Answer;

use super::{Activities, Told, Work};
use crate::error::Error;
use crate::prompts::{Prompt, fill};

impl Activities {
    pub(super) async fn convene(&self, work: &Work) -> Result<Told, Error> {
        let site = self.site(work).await?;
        let worktree = self.worktree(work, &site).await?;
        let plan = match &work.memory.plan {
            Some(plan) => self.text_of(work, &plan.kept_at).await?,
            None => "There is none yet.".to_owned(),
        };
        let attempts = self.reports(work).await?.join("\n");
        let about = json!({ "task": work.task, "plan": plan, "attempts": attempts });
        let prompt = fill(Prompt::Advise, about)?;
        let run = self.look(work, &site, &worktree, Tier::TOP, Mode::Advise, prompt).await?;
        self.pass("agent ended")?;
        if !matches!(run.report.end, RunEnd::Finished { .. }) {
            return self.unfinished(work, run).await;
        }
        let said = self.surely(&work.call.stop, || self.store.keep(&run.said)).await?;
        let outcome = Outcome::Concluded(said);
        Ok(Told::from(Answer::Ended { outcome, usage: run.report.usage }))
    }
}
