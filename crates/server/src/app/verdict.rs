//! Verdict about the newest checked commit of a task, in formats of other tools.

mod junit;
mod sarif;

use strum::{Display, EnumIter, EnumString};
use tamma_core::ids::{CommitId, TaskId};
use tamma_core::review::record::{CheckRecord, GatesCheck, ReviewCheck};

use super::{App, Error};

/// Maximum length of a text in an export, in characters.
const MAX_TEXT_CHARS: usize = 4_000;

/// Format of an exported verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display, EnumString, EnumIter)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum VerdictFormat {
    /// `JUnit` XML, which CI systems read.
    Junit,
    /// SARIF 2.1.0, which code scanners read.
    Sarif,
}

impl VerdictFormat {
    /// Returns the media type.
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Junit => "application/xml",
            Self::Sarif => "application/sarif+json",
        }
    }
}

/// Newest results of one commit.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CommitVerdict {
    task: TaskId,
    title: String,
    commit: CommitId,
    gates: Option<GatesCheck>,
    review: Option<ReviewCheck>,
}

impl App {
    /// Exports the verdict about the newest checked commit of a task.
    pub(crate) async fn export_verdict(
        &self,
        id: TaskId,
        format: VerdictFormat,
    ) -> Result<String, Error> {
        let title = self.task_card(id).await?.title;
        let checks = self.store.checks(id).await?;
        let records = checks.into_iter().map(|check| check.record).collect();
        let none = || Error::NotFound { what: "checked commit for task", key: id.to_string() };
        let verdict = newest_verdict(id, title, records).ok_or_else(none)?;
        match format {
            VerdictFormat::Junit => Ok(junit::export(&verdict)),
            VerdictFormat::Sarif => {
                sarif::export(&verdict).map_err(|error| Error::Internal(error.into()))
            }
        }
    }
}

/// Returns the newest results of the commit that was checked last.
fn newest_verdict(task: TaskId, title: String, records: Vec<CheckRecord>) -> Option<CommitVerdict> {
    let commit = records.last()?.commit();
    let mut verdict = CommitVerdict { task, title, commit, gates: None, review: None };
    for record in records.into_iter().filter(|record| record.commit() == commit) {
        match record {
            CheckRecord::Gates(gates) => verdict.gates = Some(gates),
            CheckRecord::Review(review) => verdict.review = Some(review),
        }
    }
    Some(verdict)
}

/// Cuts a long text at its end.
fn bounded(text: &str) -> String {
    let mut cut: String = text.chars().take(MAX_TEXT_CHARS).collect();
    if cut.len() < text.len() {
        cut.push('…');
    }
    cut
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tamma_core::gate::{GateKind, GateStatus, GateVerdict};
    use tamma_core::issue::{Issue, IssueCategory, IssueSeverity};
    use tamma_core::review::record::{BaselineSource, GateRecord};
    use tamma_core::review::{Criterion, CriterionJudgement, ReviewInputs, ReviewVerdict};
    use uuid::Uuid;

    use super::*;

    fn commit(digit: char) -> CommitId {
        digit.to_string().repeat(40).parse().expect("commit")
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    pub(super) fn sample() -> CommitVerdict {
        let tests = GateRecord {
            verdict: GateVerdict {
                new: names(&["greets <nobody>"]),
                pre_existing: names(&["old one"]),
                status: GateStatus::Failed,
                ..GateVerdict::not_applicable("tests", GateKind::Tests)
            },
            command: "cargo test".to_owned(),
            exit_code: Some(101),
            duration_ms: 1_500,
            tests: None,
            passed_tests: names(&["greets"]),
            baseline: BaselineSource::Measured,
            was_rerun: true,
            output: "expected \u{1b}[1mhello\u{1b}[0m & got ]]>".to_owned(),
        };
        let lint = GateRecord {
            verdict: GateVerdict {
                status: GateStatus::Passed,
                ..GateVerdict::not_applicable("lint", GateKind::Lint)
            },
            passed_tests: BTreeSet::new(),
            duration_ms: 20,
            output: String::new(),
            ..tests.clone()
        };
        let inputs = ReviewInputs {
            gates: vec![tests.verdict.clone(), lint.verdict.clone()],
            issues: vec![Issue {
                severity: IssueSeverity::Critical,
                category: IssueCategory::Security,
                message: "Token in the log".to_owned(),
                file: Some("src/a b.rs".to_owned()),
                line: Some(7),
                scenario: None,
            }],
            criteria: vec![Criterion {
                text: "It greets".to_owned(),
                judgement: CriterionJudgement::Unmet { reason: "it is silent".to_owned() },
                evidence_error: None,
            }],
            ..ReviewInputs::default()
        };
        let gates = GatesCheck {
            commit: commit('a'),
            base: commit('b'),
            gates: vec![tests, lint],
            duration_ms: 1_520,
            files: None,
        };
        let review = ReviewCheck {
            commit: commit('a'),
            verdict: ReviewVerdict { passed: false, score: 10, deductions: Vec::new(), inputs },
            diff: None,
            is_diff_truncated: false,
            validator: None,
            second: None,
        };
        CommitVerdict {
            task: TaskId(Uuid::nil()),
            title: "Greet".to_owned(),
            commit: commit('a'),
            gates: Some(gates),
            review: Some(review),
        }
    }

    #[test]
    fn the_newest_commit_is_exported_with_the_results_of_that_commit_only() {
        let CommitVerdict { task, title, gates, review, .. } = sample();
        let (gates, review) = (gates.expect("gates"), review.expect("review"));
        let later = GatesCheck { commit: commit('c'), ..gates.clone() };
        let of = |records| newest_verdict(task, title.clone(), records);
        assert_eq!(of(Vec::new()), None);
        let first = vec![CheckRecord::Gates(gates.clone()), CheckRecord::Review(review)];
        assert_eq!(of(first.clone()), Some(sample()));
        let both = [first, vec![CheckRecord::Gates(later.clone())]].concat();
        let newest = of(both).expect("verdict");
        assert_eq!((newest.gates, newest.review), (Some(later), None));
    }

    #[test]
    fn a_long_text_is_cut() {
        assert_eq!(bounded("short"), "short");
        assert_eq!(bounded(&"x".repeat(MAX_TEXT_CHARS + 1)).chars().count(), MAX_TEXT_CHARS + 1);
    }
}
