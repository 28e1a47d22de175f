//! Holds a plan against what the team knows.

use tamma_core::knowledge;
use tamma_core::plan::Outline;
use tamma_core::task_loop::Outcome;

use super::{Activities, Told, Work, now};
use crate::error::Error;

impl Activities {
    pub(super) async fn check(&self, work: &Work, plan: &Outline) -> Result<Told, Error> {
        let (_, plan) = self.store.plan_by_hash(work.task.id, plan.hash).await?;
        // The knowledge base is planned; until then there is nothing in it.
        let found = knowledge::check(&work.task, &plan, &[], now(), &work.rules);
        let count = |matches: &[knowledge::Match]| u16::try_from(matches.len()).unwrap_or(u16::MAX);
        let (blockers, warnings) = (count(&found.blockers), count(&found.warnings));
        Ok(Outcome::Checked { blockers, warnings }.into())
    }
}
