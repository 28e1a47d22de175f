//! Holds a plan against what the team knows.

use tamma_core::knowledge::Match;
use tamma_core::plan::Outline;
use tamma_core::task_loop::Outcome;

use super::{Activities, Told, Work, now};
use crate::error::Error;

/// How many entries of each kind agents are told at most: what is in every prompt is read by nobody.
const TOLD: usize = 5;

impl Activities {
    pub(super) async fn check(&self, work: &Work, plan: &Outline) -> Result<Told, Error> {
        let (_, plan) = self.store.plan_by_hash(work.task.id, plan.hash).await?;
        let project = work.call.errand.diary.project;
        let known = self.library.of(project).await?;
        let near = self.meanings.near(&self.store, &known, (&work.task, &plan), &work.rules).await;
        let found = known.check_with(&work.task, &plan, now(), &work.rules, &near);
        let count = |matches: &[Match]| u16::try_from(matches.len()).unwrap_or(u16::MAX);
        let (blockers, warnings) = (count(&found.blockers), count(&found.warnings));
        let ranked = [&found.recommendations, &found.conventions, &found.learnings];
        let told = ranked.into_iter().flat_map(|list| list.iter().take(TOLD));
        // A prohibition that only warns, or that a person has lifted, is told as well.
        let told = told.chain(&found.warnings).chain(&found.blockers);
        let told: Vec<_> = told.map(|found| found.entry).collect();
        let of = (work.task.id, project);
        self.store.keep_matches(of, plan.hash(), &found, &told).await?;
        Ok(Outcome::Checked { blockers, warnings }.into())
    }
}
