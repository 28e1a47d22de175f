//! Sessions of earlier runs that a run can resume.

use tamma_core::cost::Tokens;
use tamma_core::rules::AgentRules;
use tamma_core::tier::Tier;
use tamma_engine::agent::RunMode;
use tamma_store::{LineFilter, LineKind, LinePosition, RunRecord};

use super::AgentRunner;
use crate::error::Error;
use crate::job_context::JobContext;
use crate::run_recorder::REQUESTED_MODEL;

/// Returns the latest run of the task if it had the same mode and did not finish. An agent can resume
/// its session if its home directory is on this machine.
pub(super) fn unfinished_run(
    latest: Option<RunRecord>,
    ctx: &JobContext,
    mode: RunMode,
) -> Option<RunRecord> {
    // Council members must not continue each other's sessions, and learning runs are not resumed.
    if matches!(mode, RunMode::Advise | RunMode::Conclude | RunMode::Learn) {
        return None;
    }
    let over = Some(tamma_store::RunEnd::Finished);
    // Only another attempt at the same phase continues its session.
    let is_same = mode != RunMode::Phase
        || latest.as_ref().is_some_and(|run| run.number.job_number == ctx.request.job_number);
    latest.filter(|run| is_same && run.mode == mode.to_string() && run.end != over)
}

impl AgentRunner {
    /// Returns whether a run was started with this model. With `None`, the agent chooses.
    pub(super) async fn requested(
        &self,
        ctx: &JobContext,
        run: &RunRecord,
        model: Option<&str>,
    ) -> Result<bool, Error> {
        let filter = LineFilter {
            job_number: Some(run.number.job_number),
            attempt: Some(run.number.attempt),
            kinds: vec![LineKind::Note],
            ..LineFilter::default()
        };
        let first = self.store.lines(ctx.task.id, &filter, LinePosition::START, 1).await?;
        let data = first.into_iter().next().and_then(|line| line.data);
        Ok(match data.as_ref().and_then(|data| data.get(REQUESTED_MODEL)) {
            Some(requested) => requested.as_str() == model,
            // A run from before this was recorded.
            None => model.is_none_or(|model| run.model.as_deref() == Some(model)),
        })
    }

    /// Returns the last implementation run, if a repair in this tier can continue its session: same
    /// tier, finished, and less than half of the context used.
    pub(super) async fn last_attempt(
        &self,
        ctx: &JobContext,
        tier: Tier,
        rules: &AgentRules,
    ) -> Result<Option<RunRecord>, Error> {
        let implement = RunMode::Implement.to_string();
        let runs = self.store.runs(ctx.task.id).await?;
        let Some(last) = runs.into_iter().rev().find(|run| run.mode == implement) else {
            return Ok(None);
        };
        if last.tier != Some(tier) || last.end != Some(tamma_store::RunEnd::Finished) {
            return Ok(None);
        }
        let calls = self.store.model_calls(ctx.task.id, last.number).await?;
        let last_call = calls.iter().rev().find_map(|call| call.tokens);
        // Without metered calls, the sum of all calls is an upper limit.
        let used = last_call.or(last.usage.map(|usage| usage.tokens));
        Ok(Some(last).filter(|_| used.is_some_and(|used| leaves_room(used, rules.context_tokens))))
    }
}

/// Returns whether a session that ended with these tokens can be continued.
fn leaves_room(used: Tokens, context_tokens: u32) -> bool {
    used.total() <= u64::from(context_tokens) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_is_continued_below_half_of_its_context() {
        let tokens = |input, cached, output| Tokens { input, cached, output, ..Tokens::default() };
        assert!(leaves_room(tokens(10_000, 89_000, 1_000), 200_000));
        assert!(!leaves_room(tokens(10_000, 90_000, 1_000), 200_000));
    }
}
