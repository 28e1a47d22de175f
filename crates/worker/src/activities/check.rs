//! `check` activity: compares a plan with the knowledge base.

use tamma_core::knowledge::EntryMatch;
use tamma_core::plan::PlanSummary;
use tamma_core::task_loop::Outcome;
use tamma_flow::activities::JobResult;

use crate::clock::now;
use crate::error::Error;
use crate::job_context::JobContext;
use crate::services::Services;

/// Maximum number of entries per kind in a prompt. Long lists are ignored by agents.
const MAX_SHOWN: usize = 5;

pub(super) async fn check(
    services: &Services,
    ctx: &JobContext,
    plan: &PlanSummary,
) -> Result<JobResult, Error> {
    services.store.save_edited_plan(ctx.task.id, plan).await?;
    let plan = services.contents.plan(ctx.task.id, plan.hash).await?;
    let project = ctx.project();
    let index = services.knowledge.index(ctx).await?;
    let nearest = services.knowledge.nearest_entries(ctx, &index, &plan).await;
    let result = index.check_with_nearest(&ctx.task, &plan, now(), &ctx.rules, &nearest);
    let count = |matches: &[EntryMatch]| u16::try_from(matches.len()).unwrap_or(u16::MAX);
    let (blockers, warnings) = (count(&result.blockers), count(&result.warnings));
    let ranked = [&result.recommendations, &result.conventions, &result.learnings];
    let shown = ranked.into_iter().flat_map(|list| list.iter().take(MAX_SHOWN));
    // Warnings and overridden prohibitions are shown too.
    let shown = shown.chain(&result.warnings).chain(&result.blockers);
    let shown: Vec<_> = shown.map(|entry_match| entry_match.entry).collect();
    let key = (ctx.task.id, project);
    services.store.save_matches(key, plan.hash(), &result, &shown).await?;
    Ok(JobResult::finished(Outcome::Checked { blockers, warnings }))
}
