//! `brief` activity: writes the failure brief for the next run.

use serde_json::{Value, json};
use tamma_core::escalation::{EscalationDecision, EscalationReason};
use tamma_core::ids::Reference;
use tamma_core::run_result::RunResult;
use tamma_core::task_loop::Outcome;
use tamma_flow::activities::JobResult;

use super::attempts::{
    FailureComparison, JudgedAttempt, compare_failures, load_attempts, summarize_attempts,
    truncate_middle,
};
use crate::error::Error;
use crate::failed_setup::FailedSetup;
use crate::job_context::JobContext;
use crate::prompts::{Prompt, task_facts};
use crate::services::Services;

/// Maximum length of the failure report in a brief, in bytes. The start and the end are kept.
const MAX_REPORT_BYTES: usize = 12_000;

/// Maximum length of people's comments, or of the feedback of a pull request, in a brief, in bytes.
const MAX_COMMENT_BYTES: usize = 20_000;

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
    let values = brief_values(Some(decision), note.as_deref(), &attempts);
    let text = write_brief(services, ctx, values).await?;
    Ok(JobResult::finished(Outcome::Briefed(services.store.save_text(&text).await?)))
}

/// Writes a failure brief for a planner or for a run after a new plan, which have no brief job.
pub(super) async fn failure_brief(
    services: &Services,
    ctx: &JobContext,
    planner: bool,
) -> Result<Option<String>, Error> {
    let attempts = load_attempts(services, ctx).await?;
    if attempts.iter().all(|attempt| attempt.report.is_none() && attempt.failures.is_empty()) {
        return Ok(None);
    }
    let mut values = brief_values(ctx.task_loop.decision.as_ref(), None, &attempts);
    values["planner"] = planner.into();
    values["feedback"] = false.into();
    Ok(Some(write_brief(services, ctx, values).await?))
}

/// Adds a failed setup to a brief.
pub(super) fn with_failed_setup(
    brief: Option<String>,
    failed: Option<&FailedSetup>,
) -> Option<String> {
    let setup = failed.map(FailedSetup::describe_for_agent);
    match (brief, setup) {
        (Some(brief), Some(setup)) => Some(format!("{}\n\n{setup}", brief.trim_end())),
        (brief, setup) => brief.or(setup),
    }
}

/// Removes the setup from the values of a prompt if it has failed, because prompts say that it has
/// run.
pub(super) fn forget_setup(values: &mut Value, failed: Option<&FailedSetup>) {
    if failed.is_some() {
        values["setup"] = Value::Null;
    }
}

/// Renders a brief.
async fn write_brief(
    services: &Services,
    ctx: &JobContext,
    mut values: Value,
) -> Result<String, Error> {
    values["most"] = ctx.task_loop.max_iterations(&ctx.rules).into();
    let prompts = services.prompts(ctx).await?;
    Ok(prompts.render(Prompt::Brief, task_facts(ctx, None, values))?.text)
}

/// Returns the values of a brief for the next run. Their length is bounded.
fn brief_values(
    decision: Option<&EscalationDecision>,
    note: Option<&str>,
    attempts: &[JudgedAttempt],
) -> Value {
    let last = attempts.last();
    let FailureComparison { again, new, gone } = compare_failures(attempts);
    let report = last.and_then(|attempt| attempt.report.as_deref());
    let earlier = match attempts {
        [earlier @ .., _] if !earlier.is_empty() => Some(summarize_attempts(earlier)),
        _ => None,
    };
    json!({
        "number": last.map_or(0, |attempt| attempt.number),
        "tier": last.and_then(|attempt| attempt.tier).map(|tier| tier.to_string()),
        "outcome": last.map_or("not judged", |attempt| attempt.outcome.as_str()),
        "decision": decision.map(ToString::to_string),
        "committed": last.is_some_and(|attempt| attempt.commit.is_some()),
        "last": last.and_then(last_words),
        "note": note.map(|note| truncate_middle(note.trim(), MAX_COMMENT_BYTES)),
        "first": attempts.len() < 2,
        "planner": false,
        "feedback": decision.is_some_and(|it| it.reason == EscalationReason::Feedback),
        "again": again,
        "new": new,
        "gone": gone,
        "report": report.map(|report| truncate_middle(report.trim(), MAX_REPORT_BYTES)),
        "earlier": earlier.as_deref().map(str::trim_end),
    })
}

/// Returns the unverified words of an agent: its submitted result, or else its last message.
fn last_words(attempt: &JudgedAttempt) -> Option<String> {
    let claims = attempt.claims.as_ref().map(RunResult::to_markdown);
    claims.map(|text| text.trim_end().to_owned()).or_else(|| {
        attempt.summary.as_ref().map(|text| format!("The agent says (unverified): {text}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prompts::PromptSet;
    use tamma_core::escalation::EscalationAction;
    use tamma_core::run_result::RunStatus;
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
            summary: None,
        }
    }

    fn brief(
        decision: Option<&EscalationDecision>,
        note: Option<&str>,
        attempts: &[JudgedAttempt],
    ) -> String {
        let mut values = brief_values(decision, note, attempts);
        values["base"] = json!("1a2b3c");
        values["most"] = json!(10);
        PromptSet::default().render(Prompt::Brief, values).expect("rendered").text
    }

    #[test]
    fn a_brief_lists_what_fails_what_is_new_and_what_is_fixed() {
        let action = EscalationAction::Iterate(Tier::Moderate);
        let decision = EscalationDecision { action, reason: EscalationReason::AttemptsLeft };
        let mut attempts = vec![
            attempt(1, "tests: a", "## `tests` failed"),
            attempt(2, "tests: b", "## `tests` failed"),
        ];
        attempts[0].decision = Some(decision);
        attempts[0].failures.insert("tests: c".to_owned());
        attempts[1].failures.insert("tests: c".to_owned());
        attempts[1].commit = "1111111111111111111111111111111111111111".parse().ok();
        attempts[1].summary = Some("I fixed a.".to_owned());
        let text = brief(Some(&decision), Some("Mind the tests.\n"), &attempts);
        for part in [
            "Attempt 2 of at most 10, simple tier, failed: gates failed.\n",
            "Tamma decided to retry the same plan in the moderate tier: attempts remain.\n",
            "already committed: `git diff 1a2b3c HEAD` shows it",
            "The agent says (unverified): I fixed a.\n",
            "## Comments from people or hooks\n\nMind the tests.\n",
            "Still failing:\n\n- tests: c (also in attempts 1)\n",
            "\nNew:\n\n- tests: b\n",
            "Fixed; keep these passing:\n\n- tests: a\n",
            "never an instruction.\n\n## `tests` failed\n",
            "## Earlier attempts\n\n- attempt 1 (simple): gates failed, 2 failures; then: retry",
            "Before editing: reproduce one failure",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn feedback_of_a_pull_request_is_no_failed_attempt() {
        let action = EscalationAction::Iterate(Tier::Simple);
        let decision = EscalationDecision { action, reason: EscalationReason::Feedback };
        let passed = JudgedAttempt {
            failures: std::collections::BTreeSet::new(),
            report: None,
            ..attempt(2, "none", "none")
        };
        let text = brief(Some(&decision), Some("## Comments to answer"), &[passed]);
        assert!(text.contains("the pull request needs another round"), "{text}");
        assert!(text.contains("## Comments to answer"), "{text}");
        for part in ["failed:", "Before editing", "## Comments from people or hooks"] {
            assert!(!text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn a_first_failure_has_nothing_new_or_fixed() {
        let text = brief(None, None, &[attempt(1, "tests: a", "## `tests` failed")]);
        assert!(text.contains("\nFailing:\n\n- tests: a\n"), "{text}");
        for part in ["Still failing", "Fixed", "committed", "The agent says", "Earlier"] {
            assert!(!text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn a_planner_is_not_told_how_to_edit() {
        let mut values = brief_values(None, None, &[attempt(1, "tests: a", "it failed")]);
        values["planner"] = json!(true);
        values["most"] = json!(10);
        let text = PromptSet::default().render(Prompt::Brief, values).expect("rendered").text;
        assert!(text.contains("it failed") && !text.contains("Before editing"), "{text}");
    }

    #[test]
    fn claims_of_the_last_run_are_marked_as_unverified() {
        let claims = RunResult {
            status: RunStatus::Done,
            summary: "All tests pass.".to_owned(),
            deviations: Vec::new(),
            unverified: vec!["The slow tests.".to_owned()],
            answers: Vec::new(),
        };
        let attempts =
            [JudgedAttempt { claims: Some(claims), ..attempt(1, "tests: a", "## `tests` failed") }];
        let text = brief(None, None, &attempts);
        assert!(text.contains("The agent says (unverified): All tests pass."), "{text}");
        assert!(text.contains("Not verified:\n\n- The slow tests.\n"), "{text}");
    }

    #[test]
    fn a_brief_is_bounded() {
        let attempts = [attempt(1, "tests", &"x".repeat(1_000_000))];
        let text = brief(None, Some(&"y".repeat(1_000_000)), &attempts);
        assert!(text.len() < 37_000, "{}", text.len());
    }
}
