//! Earlier attempts of a task, for the next run, the planner and the council.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use tamma_core::escalation::EscalationDecision;
use tamma_core::history::{EntryData, EntryName};
use tamma_core::ids::CommitId;
use tamma_core::run_result::RunResult;
use tamma_core::task_loop::Outcome;
use tamma_core::tier::Tier;
use tamma_engine::agent::RunMode;
use tamma_flow::activities::JobResult;
use tamma_store::{LineKind, RunEnd, RunNumber};

use crate::error::Error;
use crate::job_context::JobContext;
use crate::services::Services;

/// Maximum number of history entries to read; more than a task writes.
const MAX_ENTRIES: u32 = 10_000;

/// Maximum number of failures listed by name.
const MAX_LISTED: usize = 40;

/// Maximum length of an agent's closing words, in bytes.
const MAX_SUMMARY: usize = 1_000;

/// Attempt that was judged, or is about to be.
pub(super) struct JudgedAttempt {
    /// Number of the attempt, from 1.
    pub(super) number: u16,
    pub(super) tier: Option<Tier>,
    pub(super) commit: Option<CommitId>,
    /// Result, in a word or two.
    pub(super) outcome: String,
    /// Failures, by names that are stable across attempts.
    pub(super) failures: BTreeSet<String>,
    /// Report of Tamma's checks.
    pub(super) report: Option<String>,
    /// Unverified claims of the agent.
    pub(super) claims: Option<RunResult>,
    /// Decision made after the attempt.
    pub(super) decision: Option<EscalationDecision>,
    /// Closing words of its agent, which nobody has verified.
    pub(super) summary: Option<String>,
}

/// Loads the attempts of a task, oldest first.
pub(super) async fn load_attempts(
    services: &Services,
    ctx: &JobContext,
) -> Result<Vec<JudgedAttempt>, Error> {
    let task = ctx.task.id;
    let mut attempts: BTreeMap<u16, JudgedAttempt> = BTreeMap::new();
    for iteration in services.store.iterations(task).await? {
        let number = u16::try_from(iteration.number).unwrap_or(u16::MAX);
        let ending = iteration.outcome.map(|ending| ending.to_string().replace('_', " "));
        attempts.insert(
            number,
            JudgedAttempt {
                number,
                tier: iteration.tier,
                commit: iteration.commit.and_then(|commit| commit.parse().ok()),
                outcome: ending.unwrap_or_else(|| "not judged".to_owned()),
                failures: BTreeSet::new(),
                report: None,
                claims: None,
                decision: None,
                summary: None,
            },
        );
    }
    let checks = services.store.checks(task).await?;
    for check in &checks {
        if let Some(attempt) = attempts.get_mut(&check.iteration) {
            attempt.failures.extend(check.record.faults());
        }
    }
    let finished: BTreeMap<u32, RunNumber> = services
        .store
        .runs(task)
        .await?
        .into_iter()
        .filter(|run| run.mode == RunMode::Implement.to_string())
        .filter(|run| run.end == Some(RunEnd::Finished))
        .map(|run| (run.number.job_number, run.number))
        .collect();
    if let Some(run) = finished.values().last() {
        let said = services.store.last_line(task, *run, &[LineKind::Said]).await?;
        let said = said.map(|line| truncate_middle(line.text.trim(), MAX_SUMMARY));
        if let Some(mut attempt) = attempts.last_entry() {
            attempt.get_mut().summary = said;
        }
    }
    let results: Vec<(u32, JobResult)> = services.store.job_results(task).await?;
    for (job_number, result) in results.into_iter().rev() {
        if let Some(claims) = result.claims() {
            // A run that was blocked has the number of the attempt that continues it, whose claims
            // replace its own.
            let number = finished.range(..job_number).count() + 1;
            let number = u16::try_from(number).unwrap_or(u16::MAX);
            if let Some(attempt) = attempts.get_mut(&number) {
                attempt.claims = Some(claims.clone());
            }
        }
        let Some(report) = check_report(&result) else { continue };
        let checked = checks.iter().find(|check| check.job_number == job_number);
        // Without a stored check, the report belongs to the run before it.
        let number = checked.map_or_else(
            || u16::try_from(finished.range(..job_number).count()).unwrap_or(u16::MAX),
            |check| check.iteration,
        );
        if let Some(attempt) = attempts.get_mut(&number) {
            attempt.report = Some(report.to_owned());
        }
    }
    let mut number = 0_u16;
    for line in services.store.history(task, 0, MAX_ENTRIES).await? {
        match (line.entry.name, line.entry.data) {
            (EntryName::SmImplementationCompleted, _) => number = number.saturating_add(1),
            (_, EntryData::Decision(decision)) => {
                if let Some(attempt) = attempts.get_mut(&number) {
                    attempt.decision = Some(decision);
                }
            }
            _ => {}
        }
    }
    Ok(attempts.into_values().collect())
}

/// Returns the report of checks. A job that failed has checked nothing.
fn check_report(result: &JobResult) -> Option<&str> {
    match result {
        JobResult::Finished { outcome: Outcome::Failed(_), .. } => None,
        result => result.report(),
    }
}

/// Failures of the last attempt, compared with those of earlier ones.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FailureComparison {
    /// Failures that earlier attempts had too.
    pub(super) again: Vec<String>,
    /// Failures that no earlier attempt had.
    pub(super) new: Vec<String>,
    /// Failures of the previous attempt that are fixed.
    pub(super) gone: Vec<String>,
}

/// Compares the failures of the last attempt with earlier ones. Long lists are cut.
pub(super) fn compare_failures(attempts: &[JudgedAttempt]) -> FailureComparison {
    let Some((last, earlier)) = attempts.split_last() else {
        return FailureComparison::default();
    };
    let before = |failure: &String| -> Vec<String> {
        let matching = earlier.iter().filter(|attempt| attempt.failures.contains(failure));
        matching.map(|attempt| attempt.number.to_string()).collect()
    };
    let (repeated, new): (Vec<_>, Vec<_>) =
        last.failures.iter().partition(|failure| !before(failure).is_empty());
    let again = repeated
        .into_iter()
        .map(|failure| format!("{failure} (also in attempts {})", before(failure).join(", ")));
    let gone = earlier.last().into_iter().flat_map(|it| it.failures.difference(&last.failures));
    FailureComparison {
        again: cut_list(again),
        new: cut_list(new.into_iter().cloned()),
        gone: cut_list(gone.cloned()),
    }
}

fn cut_list(failures: impl Iterator<Item = String>) -> Vec<String> {
    let mut failures: Vec<String> = failures.collect();
    let more = failures.len().saturating_sub(MAX_LISTED);
    if more > 0 {
        failures.truncate(MAX_LISTED);
        failures.push(format!("and {more} more"));
    }
    failures
}

/// Summarises attempts, one line each.
pub(super) fn summarize_attempts(attempts: &[JudgedAttempt]) -> String {
    let mut text = String::new();
    for attempt in attempts {
        let tier = attempt.tier.map(|tier| format!(" ({tier})")).unwrap_or_default();
        let _ = write!(text, "- attempt {}{tier}: {}", attempt.number, attempt.outcome);
        match attempt.failures.len() {
            0 => {}
            1 => text.push_str(", 1 failure"),
            many => {
                let _ = write!(text, ", {many} failures");
            }
        }
        if let Some(decision) = attempt.decision {
            let _ = write!(text, "; then: {decision}");
        }
        text.push('\n');
    }
    text
}

/// Truncates a text to a number of bytes, and keeps its start and end.
pub(super) fn truncate_middle(text: &str, longest: usize) -> String {
    if text.len() <= longest {
        return text.to_owned();
    }
    let half = longest / 2;
    let head = text.floor_char_boundary(half);
    let tail = text.ceil_char_boundary(text.len() - half);
    let left_out = tail - head;
    format!("{}\n[… {left_out} bytes omitted …]\n{}", &text[..head], &text[tail..])
}

#[cfg(test)]
mod tests {
    use tamma_core::failure::{FailureKind, JobFailure};
    use tamma_core::review::GateCounts;

    use super::*;

    fn attempt(number: u16, failures: &[&str]) -> JudgedAttempt {
        JudgedAttempt {
            number,
            tier: Some(Tier::Simple),
            commit: None,
            outcome: "gates failed".to_owned(),
            failures: failures.iter().map(|failure| (*failure).to_owned()).collect(),
            report: None,
            claims: None,
            decision: None,
            summary: None,
        }
    }

    #[test]
    fn a_failed_job_has_no_report_of_checks() {
        let reviewed = JobResult::finished(Outcome::Tested(GateCounts::default()));
        let reviewed = reviewed.with_report(Some("## `tests` failed".to_owned()));
        assert_eq!(check_report(&reviewed), Some("## `tests` failed"));
        let reason = "setup failed".parse().expect("a reason");
        let failure = JobFailure { kind: FailureKind::Crashed, reason };
        let failed = JobResult::finished(Outcome::Failed(failure));
        assert_eq!(check_report(&failed.with_report(Some("npm error".to_owned()))), None);
    }

    #[test]
    fn new_failures_are_distinguished_from_earlier_ones() {
        let attempts =
            [attempt(1, &["t: a", "t: b"]), attempt(2, &["t: a"]), attempt(3, &["t: a", "t: c"])];
        let compared = |again: &[&str], new: &[&str], gone: &[&str]| FailureComparison {
            again: again.iter().map(|it| (*it).to_owned()).collect(),
            new: new.iter().map(|it| (*it).to_owned()).collect(),
            gone: gone.iter().map(|it| (*it).to_owned()).collect(),
        };
        assert_eq!(
            compare_failures(&attempts),
            compared(&["t: a (also in attempts 1, 2)"], &["t: c"], &[])
        );
        assert_eq!(
            compare_failures(&attempts[..2]),
            compared(&["t: a (also in attempts 1)"], &[], &["t: b"])
        );
        assert_eq!(compare_failures(&attempts[..1]), compared(&[], &["t: a", "t: b"], &[]));
        assert_eq!(compare_failures(&[attempt(1, &[])]), FailureComparison::default());
    }

    #[test]
    fn a_long_list_and_a_long_text_are_cut() {
        let many: Vec<String> = (0..50).map(|number| format!("t: {number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let new = compare_failures(&[attempt(1, &many)]).new;
        assert_eq!((new.len(), new[40].as_str()), (41, "and 10 more"));
        assert_eq!(truncate_middle("short", 10), "short");
        let text = truncate_middle(&"ä".repeat(100), 21);
        assert!(text.starts_with("äääää\n[… 180 bytes") && text.ends_with("äääää"), "{text}");
    }
}
