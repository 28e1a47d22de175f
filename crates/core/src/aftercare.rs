//! Aftercare: what happened to a change after its merge, and how well its risk was predicted.
//!
//! A worker reads the commits that follow a merge on its base branch. This module decides which of them
//! revert or fix the change, and whether the merge broke the base branch. What was found is compared
//! with the risk that was predicted, by level and by factor.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use strum::{Display, IntoEnumIterator as _};

use crate::forge::{CheckFact, CheckResult};
use crate::ids::CommitId;
use crate::level::RiskLevel;
use crate::risk::{Risk, RiskFactor};

/// Fewest digits by which a message can name a commit.
const MIN_COMMIT_DIGITS: usize = 7;

/// Longest message that is searched, in bytes. A revert names its commit long before.
const MAX_MESSAGE_BYTES: usize = 20_000;

/// Kind of a finding.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum AftercareKind {
    /// Commit reverts the change.
    Revert,
    /// Commit fixes lines of the change.
    Fix,
    /// Checks of the base branch fail since the merge.
    RedBase,
}

impl AftercareKind {
    /// Returns a description that follows "the change".
    pub fn description(self) -> &'static str {
        match self {
            Self::Revert => "was reverted",
            Self::Fix => "was fixed by a later commit",
            Self::RedBase => "broke the base branch",
        }
    }
}

/// Merged change, as later commits can name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergedWork {
    /// Commits that the merge brought to the base branch, with the merge itself.
    pub commits: BTreeSet<CommitId>,
    /// Repository in the forge, such as `owner/name`.
    pub repository: String,
    /// Number of the pull request.
    pub number: u64,
}

/// Returns `true` if a commit's message says that it reverts the change: by a commit, as git writes it,
/// or by the pull request, as forges write it.
pub fn is_revert_of(message: &str, work: &MergedWork) -> bool {
    let message = &message[..message.floor_char_boundary(MAX_MESSAGE_BYTES)];
    // Long lines are wrapped, so a name can be on the next line.
    let words: Vec<&str> = message.split_whitespace().collect();
    (0..words.len()).any(|at| match &words[at..] {
        [this, reverts, commit, name, ..]
            if is_word(this, "this")
                && is_word(reverts, "reverts")
                && is_word(commit, "commit") =>
        {
            names_commit(name, &work.commits)
        }
        [this, reverts, merge, request, name, ..]
            if is_word(this, "this")
                && is_word(reverts, "reverts")
                && is_word(merge, "merge")
                && is_word(request, "request") =>
        {
            names_pull_request(name, '!', work)
        }
        [reverts, name, ..] if is_word(reverts, "reverts") => names_pull_request(name, '#', work),
        _ => false,
    })
}

fn is_word(text: &str, word: &str) -> bool {
    text.eq_ignore_ascii_case(word)
}

/// Returns `true` if a word is one of the commits, possibly shortened.
fn names_commit(word: &str, commits: &BTreeSet<CommitId>) -> bool {
    let name = word.trim_end_matches(|letter: char| !letter.is_ascii_hexdigit());
    let name = name.to_ascii_lowercase();
    name.len() >= MIN_COMMIT_DIGITS
        && name.chars().all(|letter| letter.is_ascii_hexdigit())
        && commits.iter().any(|commit| commit.to_string().starts_with(&name))
}

/// Returns `true` if a word is the pull request: `#7`, or `owner/name#7`.
fn names_pull_request(word: &str, sign: char, work: &MergedWork) -> bool {
    let Some((repository, number)) = word.split_once(sign) else { return false };
    let number = number.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    (repository.is_empty() || repository.eq_ignore_ascii_case(&work.repository))
        && number.parse() == Ok(work.number)
}

/// Returns `true` if the first line of a message says that the commit fixes something: it starts with
/// `fix`, `hotfix` or `bugfix`, in any of their forms.
pub fn is_fix_message(message: &str) -> bool {
    let subject = message.trim_start().lines().next().unwrap_or_default();
    let mut words = subject.split(|letter: char| !letter.is_alphanumeric());
    let first = words.find(|word| !word.is_empty()).unwrap_or_default();
    let first = first.to_lowercase();
    let stem = first.strip_prefix("hot").or_else(|| first.strip_prefix("bug")).unwrap_or(&first);
    matches!(stem, "fix" | "fixes" | "fixed" | "fixing" | "fixup")
}

/// Result of comparing the checks of a merge with those of the commit before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BaseChecks {
    /// Some have not ended, or none has started.
    Pending,
    /// Nothing failed that had passed before.
    Unbroken,
    /// Checks that fail since the merge, by name.
    Broken(Vec<String>),
}

/// Compares the checks of a merge with those of the commit before it. A check that already failed, or
/// that has no result there, is not the fault of the merge.
pub fn compare_base_checks(before: &[CheckFact], merged: &[CheckFact]) -> BaseChecks {
    if !are_complete(merged) {
        return BaseChecks::Pending;
    }
    let has_passed = |name: &str| {
        before.iter().any(|check| check.name == name && check.result == CheckResult::Passed)
    };
    let broken: Vec<String> =
        failed_checks(merged).filter(|name| has_passed(name)).map(str::to_owned).collect();
    if broken.is_empty() { BaseChecks::Unbroken } else { BaseChecks::Broken(broken) }
}

/// Returns `true` if there are checks, and all have ended.
pub fn are_complete(checks: &[CheckFact]) -> bool {
    !checks.is_empty() && checks.iter().all(|check| check.result != CheckResult::Pending)
}

/// Returns the names of failed checks.
pub fn failed_checks(checks: &[CheckFact]) -> impl Iterator<Item = &str> {
    checks
        .iter()
        .filter(|check| check.result == CheckResult::Failed)
        .map(|check| check.name.as_str())
}

/// Merged change: its predicted risk, and what happened to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergedChange {
    /// Predicted risk, if the plan was assessed.
    pub risk: Option<Risk>,
    /// Kinds of its findings, each once.
    pub findings: BTreeSet<AftercareKind>,
}

/// Merged changes, and how well their risk was predicted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calibration {
    /// Merged changes.
    pub merged: u64,
    /// Changes with at least one finding.
    pub with_findings: u64,
    /// Reverted changes.
    pub reverted: u64,
    /// Changes that a later commit fixed.
    pub fixed: u64,
    /// Changes that broke the base branch.
    pub broke_base: u64,
    /// Changes by predicted level, from low to high.
    pub by_level: Vec<LevelCalibration>,
    /// Changes by factor of their risk. Factors that no change had are left out.
    pub by_factor: Vec<FactorCalibration>,
}

/// Changes with one predicted level. If predictions are good, the rate rises with the level.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelCalibration {
    /// Predicted level.
    pub level: RiskLevel,
    /// Merged changes.
    pub merged: u64,
    /// Changes with at least one finding.
    pub with_findings: u64,
    /// Changes with findings, in percent of merged ones.
    pub rate: Option<u64>,
}

/// Changes with and without one factor. A factor that predicts something has a higher rate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FactorCalibration {
    /// Factor.
    pub factor: RiskFactor,
    /// Merged changes with the factor.
    pub merged: u64,
    /// Those with at least one finding.
    pub with_findings: u64,
    /// Changes with findings, in percent of those with the factor.
    pub rate: Option<u64>,
    /// Changes with findings, in percent of assessed ones without the factor.
    pub rate_without: Option<u64>,
}

/// Compares the predicted risk of merged changes with what happened to them. Changes without a
/// prediction count in the totals only.
pub fn calibrate(changes: &[MergedChange]) -> Calibration {
    let with = |kind: AftercareKind| {
        changes.iter().filter(|change| change.findings.contains(&kind)).count() as u64
    };
    let (merged, with_findings) = tally(changes.iter());
    let assessed: Vec<(&MergedChange, &Risk)> =
        changes.iter().filter_map(|change| Some((change, change.risk.as_ref()?))).collect();
    let by_level = RiskLevel::iter().map(|level| {
        let same = assessed.iter().filter(|(_, risk)| risk.level == level);
        let (merged, with_findings) = tally(same.map(|(change, _)| *change));
        LevelCalibration { level, merged, with_findings, rate: percent(with_findings, merged) }
    });
    let by_factor = RiskFactor::iter().filter_map(|factor| {
        let (having, lacking): (Vec<_>, Vec<_>) =
            assessed.iter().partition(|(_, risk)| risk.factors.iter().any(|it| it.0 == factor));
        let (merged, with_findings) = tally(having.into_iter().map(|(change, _)| change));
        let (others, others_with) = tally(lacking.into_iter().map(|(change, _)| change));
        (merged > 0).then(|| FactorCalibration {
            factor,
            merged,
            with_findings,
            rate: percent(with_findings, merged),
            rate_without: percent(others_with, others),
        })
    });
    Calibration {
        merged,
        with_findings,
        reverted: with(AftercareKind::Revert),
        fixed: with(AftercareKind::Fix),
        broke_base: with(AftercareKind::RedBase),
        by_level: by_level.collect(),
        by_factor: by_factor.collect(),
    }
}

/// Counts changes, and those with findings.
fn tally<'a>(changes: impl Iterator<Item = &'a MergedChange>) -> (u64, u64) {
    changes.fold((0, 0), |(all, found), change| {
        (all + 1, found + u64::from(!change.findings.is_empty()))
    })
}

fn percent(part: u64, total: u64) -> Option<u64> {
    (part * 100).checked_div(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::risk::FactorEffect;

    fn commit(digit: &str) -> CommitId {
        digit.repeat(40).parse().expect("commit")
    }

    fn work() -> MergedWork {
        let commits = [commit("a"), commit("b")].into();
        MergedWork { commits, repository: "acme/shop".to_owned(), number: 7 }
    }

    #[test]
    fn a_revert_is_found_by_its_commit_or_pull_request() {
        let full = format!("Revert \"Add it\"\n\nThis reverts commit {}.\n", commit("a"));
        let wrapped = format!("Revert it\n\nThis reverts\ncommit {}, reversing\n", commit("b"));
        for message in [
            full.as_str(),
            &wrapped,
            "Undo\n\nThis reverts commit aaaaaaaaaa.",
            "Revert \"Add it\" (#9)\n\nReverts acme/shop#7",
            "Revert \"Add it\"\n\nReverts #7.",
            "Revert it\n\nThis reverts merge request !7",
        ] {
            assert!(is_revert_of(message, &work()), "{message}");
        }
        let other = format!("This reverts commit {}.", commit("c"));
        for message in [
            other.as_str(),
            "This reverts commit aaa.",
            "Reverts acme/other#7",
            "Reverts #70",
            "Fix #7",
            "Revert \"Add it\" (#7)",
            "reverts",
            "",
        ] {
            assert!(!is_revert_of(message, &work()), "{message}");
        }
    }

    #[test]
    fn a_fix_is_told_by_the_first_word_of_its_message() {
        for message in ["fix: a", "Fix the b", "fix(api)!: c", "Fixes #1", "hotfix d", "[Bugfix] e"]
        {
            assert!(is_fix_message(message), "{message}");
        }
        for message in ["Add a fix", "fixture: a", "prefix", "", "feat: x\n\nfix: y", "bug"] {
            assert!(!is_fix_message(message), "{message}");
        }
    }

    #[test]
    fn only_checks_that_passed_before_the_merge_can_be_broken_by_it() {
        let check = |name: &str, result: CheckResult| CheckFact {
            name: name.to_owned(),
            id: "1".to_owned(),
            required: false,
            result,
        };
        let (passed, failed) = (CheckResult::Passed, CheckResult::Failed);
        let before = [check("unit", passed), check("lint", failed)];
        let after = [check("unit", failed), check("lint", failed), check("new", failed)];
        assert_eq!(
            compare_base_checks(&before, &after),
            BaseChecks::Broken(vec!["unit".to_owned()])
        );
        assert_eq!(compare_base_checks(&before, &[check("unit", passed)]), BaseChecks::Unbroken);
        assert_eq!(compare_base_checks(&[], &after), BaseChecks::Unbroken);
        assert_eq!(compare_base_checks(&before, &[]), BaseChecks::Pending);
        let running = [check("unit", failed), check("lint", CheckResult::Pending)];
        assert_eq!(compare_base_checks(&before, &running), BaseChecks::Pending);
    }

    #[test]
    fn findings_are_compared_with_the_predicted_risk() {
        let change = |level, factors: &[RiskFactor], findings: &[AftercareKind]| MergedChange {
            risk: Some(Risk {
                level,
                score: 0,
                factors: factors.iter().map(|it| (*it, FactorEffect::Points(1))).collect(),
            }),
            findings: findings.iter().copied().collect(),
        };
        let (low, high) = (RiskLevel::Low, RiskLevel::High);
        let (revert, fix) = (AftercareKind::Revert, AftercareKind::Fix);
        let changes = [
            change(low, &[], &[]),
            change(low, &[], &[]),
            change(low, &[RiskFactor::Files], &[fix]),
            change(high, &[RiskFactor::Files, RiskFactor::Complexity], &[revert, fix]),
            MergedChange { risk: None, findings: [AftercareKind::RedBase].into() },
        ];
        let found = calibrate(&changes);
        assert_eq!((found.merged, found.with_findings), (5, 3));
        assert_eq!((found.reverted, found.fixed, found.broke_base), (1, 2, 1));
        let levels: Vec<_> =
            found.by_level.iter().map(|it| (it.level, it.merged, it.rate)).collect();
        let expected = [(low, 3, Some(33)), (RiskLevel::Medium, 0, None), (high, 1, Some(100))];
        assert_eq!(levels, expected);
        let factors: Vec<_> =
            found.by_factor.iter().map(|it| (it.factor, it.rate, it.rate_without)).collect();
        let expected = [
            (RiskFactor::Files, Some(100), Some(0)),
            (RiskFactor::Complexity, Some(100), Some(33)),
        ];
        assert_eq!(factors, expected);
    }

    #[test]
    fn nothing_merged_is_no_rate() {
        let found = calibrate(&[]);
        assert!(found.by_level.iter().all(|it| it.rate.is_none()));
        assert_eq!(found.by_factor, []);
    }
}
