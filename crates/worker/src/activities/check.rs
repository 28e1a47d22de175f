//! `check` activity: compares a plan with the knowledge base.

use tamma_core::knowledge::EntryMatch;
use tamma_core::plan::PlanSummary;
use tamma_core::task_loop::Outcome;
use tamma_flow::activities::JobResult;

use super::{Activities, JobContext, now};
use crate::error::Error;

/// Maximum number of entries per kind in a prompt. Long lists are ignored by agents.
const MAX_SHOWN: usize = 5;

impl Activities {
    pub(super) async fn check(
        &self,
        work: &JobContext,
        plan: &PlanSummary,
    ) -> Result<JobResult, Error> {
        let (_, plan) = self.store.plan_by_hash(work.task.id, plan.hash).await?;
        let project = work.request.pending.project;
        let known = self.knowledge.index(project).await?;
        let near = self
            .embeddings
            .nearest_entries(&self.store, &known, (&work.task, &plan), &work.rules)
            .await;
        let found = known.check_with_nearest(&work.task, &plan, now(), &work.rules, &near);
        let count = |matches: &[EntryMatch]| u16::try_from(matches.len()).unwrap_or(u16::MAX);
        let (blockers, warnings) = (count(&found.blockers), count(&found.warnings));
        let ranked = [&found.recommendations, &found.conventions, &found.learnings];
        let told = ranked.into_iter().flat_map(|list| list.iter().take(MAX_SHOWN));
        // Warnings and overridden prohibitions are shown too.
        let told = told.chain(&found.warnings).chain(&found.blockers);
        let told: Vec<_> = told.map(|found| found.entry).collect();
        let of = (work.task.id, project);
        self.store.save_matches(of, plan.hash(), &found, &told).await?;
        Ok(JobResult::finished(Outcome::Checked { blockers, warnings }))
    }
}
