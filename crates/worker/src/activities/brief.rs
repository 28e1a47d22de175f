//! `brief` activity: writes the failure brief for the next run.

use std::fmt::Write as _;

use tamma_core::escalation::EscalationDecision;
use tamma_core::ids::Reference;
use tamma_core::task_loop::Outcome;
use tamma_flow::activities::JobResult;

use super::attempts::{
    JudgedAttempt, compare_failures, load_attempts, summarize_attempts, truncate_middle,
};
use crate::error::Error;
use crate::job_context::JobContext;
use crate::services::Services;

/// Maximum length of the failure report in a brief, in bytes. The start and the end are kept.
const MAX_REPORT_BYTES: usize = 12_000;

/// Maximum length of people's comments in a brief, in bytes.
const MAX_COMMENT_BYTES: usize = 8_000;

pub(super) async fn brief(
    services: &Services,
    ctx: &JobContext,
    decision: &EscalationDecision,
    note: Option<&Reference>,
) -> Result<JobResult, Error> {
    let note = match note {
        Some(note) => Some(services.store.text(note).await?),
        None => None,
    };
    let attempts = load_attempts(services, ctx).await?;
    let most = ctx.task_loop.max_iterations(&ctx.rules);
    let text = write_brief(Some(decision), note.as_deref(), &attempts, most);
    Ok(JobResult::finished(Outcome::Briefed(services.store.save_text(&text).await?)))
}

/// Writes a failure brief for a planner or for a run after a new plan, which have no brief job.
pub(super) async fn failure_brief(
    services: &Services,
    ctx: &JobContext,
) -> Result<Option<String>, Error> {
    let attempts = load_attempts(services, ctx).await?;
    if attempts.iter().all(|attempt| attempt.report.is_none() && attempt.failures.is_empty()) {
        return Ok(None);
    }
    let most = ctx.task_loop.max_iterations(&ctx.rules);
    Ok(Some(write_brief(ctx.task_loop.decision.as_ref(), None, &attempts, most)))
}

/// Renders a brief of bounded length.
fn write_brief(
    decision: Option<&EscalationDecision>,
    note: Option<&str>,
    attempts: &[JudgedAttempt],
    most: u16,
) -> String {
    let mut text = String::new();
    if let Some(last) = attempts.last() {
        let tier = last.tier.map(|tier| format!(", {tier} tier")).unwrap_or_default();
        let _ = write!(text, "Attempt {} of at most {most}{tier}, failed: ", last.number);
        let _ = writeln!(text, "{}.", last.outcome);
    }
    if let Some(decision) = decision {
        let _ = writeln!(text, "Tamma decided to {decision}.");
    }
    if let Some(note) = note {
        let _ = writeln!(
            text,
            "\n## Comments from people or hooks\n\n{}",
            truncate_middle(note.trim(), MAX_COMMENT_BYTES)
        );
    }
    if let Some(compared) = compare_failures(attempts) {
        let _ = write!(text, "\n## What failed\n\n{compared}");
    }
    if let Some(report) = attempts.last().and_then(|attempt| attempt.report.as_deref()) {
        let _ = writeln!(text, "\n{}", truncate_middle(report.trim(), MAX_REPORT_BYTES));
    }
    if let Some(claims) = attempts.last().and_then(|attempt| attempt.claims.as_ref()) {
        let _ = write!(text, "\n## Claims of the last run\n\n{}", claims.to_markdown());
    }
    if let [earlier @ .., _] = attempts
        && !earlier.is_empty()
    {
        let _ = write!(text, "\n## Earlier attempts\n\n{}", summarize_attempts(earlier));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use tamma_core::escalation::{EscalationAction, EscalationReason};
    use tamma_core::run_result::{RunResult, RunStatus};
    use tamma_core::tier::Tier;

    fn attempt(number: u16, failure: &str, report: &str) -> JudgedAttempt {
        JudgedAttempt {
            number,
            tier: Some(Tier::Simple),
            commit: None,
            outcome: "gates failed".to_owned(),
            failures: [failure.to_owned()].into(),
            report: Some(report.to_owned()),
            claims: None,
            decision: None,
        }
    }

    #[test]
    fn a_brief_lists_failures_news_and_the_decision() {
        let action = EscalationAction::Iterate(Tier::Moderate);
        let decision = EscalationDecision { action, reason: EscalationReason::AttemptsLeft };
        let mut attempts = vec![
            attempt(1, "tests: a", "## `tests` failed"),
            attempt(2, "tests: b", "## `tests` failed"),
        ];
        attempts[0].decision = Some(decision);
        let text = write_brief(Some(&decision), Some("Mind the tests.\n"), &attempts, 10);
        assert_eq!(
            text,
            "\
Attempt 2 of at most 10, simple tier, failed: gates failed.
Tamma decided to retry the same plan in the moderate tier: attempts remain.

## Comments from people or hooks

Mind the tests.

## What failed

New in this attempt:

- tests: b

Failed in the previous attempt, and no longer fails:

- tests: a


## `tests` failed

## Earlier attempts

- attempt 1 (simple): gates failed, 1 failure; then: retry the same plan in the moderate tier: attempts remain
"
        );
    }

    #[test]
    fn claims_of_the_last_run_are_marked_as_unverified() {
        let claims = RunResult {
            status: RunStatus::Done,
            summary: "All tests pass.".to_owned(),
            deviations: Vec::new(),
            unverified: vec!["The slow tests.".to_owned()],
        };
        let attempts =
            [JudgedAttempt { claims: Some(claims), ..attempt(1, "tests: a", "## `tests` failed") }];
        let text = write_brief(None, None, &attempts, 10);
        assert!(text.contains("The agent says (unverified): All tests pass."), "{text}");
        assert!(text.contains("Not verified:\n\n- The slow tests.\n"), "{text}");
    }

    #[test]
    fn a_brief_is_bounded() {
        let attempts = [attempt(1, "tests", &"x".repeat(1_000_000))];
        let text = write_brief(None, Some(&"y".repeat(1_000_000)), &attempts, 10);
        assert!(text.len() < 25_000, "{}", text.len());
    }
}
