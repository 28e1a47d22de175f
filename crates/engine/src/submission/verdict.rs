//! Verdict of a validator: one entry per acceptance criterion, by ID.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tamma_core::issue::{Issue, IssueCategory, IssueSeverity};
use tamma_core::review::CriterionJudgement;

/// Maximum number of suggestions that are kept.
const MAX_SUGGESTIONS: usize = 5;

/// Verdict of a validator on a change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValidatorVerdict {
    /// Judgement on each acceptance criterion, by its ID.
    pub criteria: BTreeMap<String, CriterionJudgement>,
    /// Further findings.
    pub issues: Vec<Issue>,
    /// Suggestions for later.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suggestions: Vec<String>,
}

/// Verdict as an agent submits it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VerdictSubmission {
    /// One entry for each acceptance criterion, in any order. No criterion may be left out.
    criteria: Vec<CriterionEntry>,
    /// Problems besides the criteria. An empty list is a good answer.
    #[serde(default)]
    issues: Vec<Issue>,
    /// Improvements for later, beyond this task. They block nothing. An empty list is a good answer.
    #[serde(default)]
    suggestions: Vec<String>,
}

/// Judgement of one criterion.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CriterionEntry {
    /// ID of the criterion, such as `C1`.
    id: String,
    /// `met`, `unmet`, or `unjudged` if you could not check it. Never guess `met`.
    verdict: CriterionStatus,
    /// For `met`: what you saw. For `unmet`: input, expected and actual result. For `unjudged`:
    /// what you could not check.
    #[serde(default)]
    evidence: String,
    /// File that shows it, from the root of the repository. `met` needs a file or a test.
    #[serde(default)]
    file: Option<String>,
    /// Line in that file, from 1.
    #[serde(default)]
    line: Option<u32>,
    /// Passed test that shows it, by its name in the list of passed tests.
    #[serde(default)]
    test: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum CriterionStatus {
    Met,
    Unmet,
    Unjudged,
}

impl VerdictSubmission {
    /// Checks the verdict against the IDs of the task's criteria. All errors are returned at once.
    pub(crate) fn check(self, ids: &[String]) -> Result<ValidatorVerdict, Vec<String>> {
        let all = if ids.is_empty() { "none".to_owned() } else { ids.join(", ") };
        let (mut errors, mut seen) = (Vec::new(), BTreeSet::new());
        let suggestions = self.suggestions.iter().map(|text| text.trim().to_owned());
        let mut verdict = ValidatorVerdict {
            criteria: BTreeMap::new(),
            issues: self.issues,
            suggestions: suggestions
                .filter(|text| !text.is_empty())
                .take(MAX_SUGGESTIONS)
                .collect(),
        };
        for entry in self.criteria {
            let id = entry.id.trim().to_ascii_uppercase();
            if !ids.contains(&id) {
                errors.push(format!("`{}` is not a criterion of this task: use {all}", entry.id));
                continue;
            }
            if !seen.insert(id.clone()) {
                errors.push(format!("`{id}` is judged twice: keep one entry"));
                continue;
            }
            errors.extend(entry.missing_evidence(&id));
            verdict.issues.extend(entry.unjudged_note(&id));
            verdict.criteria.insert(id, entry.into());
        }
        let missing: Vec<_> =
            ids.iter().filter(|id| !seen.contains(*id)).map(|id| format!("`{id}`")).collect();
        if !missing.is_empty() {
            errors.push(format!(
                "{} not judged: add an entry for each criterion ({all}); use `unjudged` for what \
                 you could not check",
                missing.join(" and ")
            ));
        }
        for (index, issue) in verdict.issues.iter().enumerate() {
            if issue.lacks_scenario() {
                errors.push(format!(
                    "issue {}: `{}` needs a `scenario` with input, expected and actual result; \
                     without one, use `warning`",
                    index + 1,
                    issue.severity
                ));
            }
        }
        if errors.is_empty() { Ok(verdict) } else { Err(errors) }
    }
}

impl CriterionEntry {
    /// Returns the error of an entry that nobody could verify. The review checks that the evidence
    /// exists.
    fn missing_evidence(&self, id: &str) -> Option<String> {
        let is_named =
            |name: &Option<String>| name.as_ref().is_some_and(|it| !it.trim().is_empty());
        let has_evidence = !self.evidence.trim().is_empty();
        match self.verdict {
            CriterionStatus::Met
                if !has_evidence || !(is_named(&self.file) || is_named(&self.test)) =>
            {
                Some(format!(
                    "`{id}`: `met` needs `evidence`, and a `file` or a `test` that shows it"
                ))
            }
            CriterionStatus::Unmet if !has_evidence => {
                Some(format!("`{id}`: `unmet` needs `evidence`: input, expected and actual result"))
            }
            CriterionStatus::Unjudged if !has_evidence => {
                Some(format!("`{id}`: `unjudged` needs `evidence`: what you could not check"))
            }
            CriterionStatus::Met | CriterionStatus::Unmet | CriterionStatus::Unjudged => None,
        }
    }

    /// Returns a note for people that says why a criterion was not judged.
    fn unjudged_note(&self, id: &str) -> Option<Issue> {
        (self.verdict == CriterionStatus::Unjudged).then(|| Issue {
            severity: IssueSeverity::Info,
            category: IssueCategory::Test,
            message: format!("{id} was not judged: {}", self.evidence.trim()),
            file: None,
            line: None,
            scenario: None,
        })
    }
}

impl From<CriterionEntry> for CriterionJudgement {
    fn from(entry: CriterionEntry) -> Self {
        let CriterionEntry { verdict, evidence, file, line, test, .. } = entry;
        match verdict {
            CriterionStatus::Met => Self::Met { evidence, file, line, test },
            CriterionStatus::Unmet => Self::Unmet { reason: evidence },
            CriterionStatus::Unjudged => Self::Unjudged,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(value: Value) -> Result<ValidatorVerdict, Vec<String>> {
        let submission: VerdictSubmission = serde_json::from_value(value).expect("the form fits");
        submission.check(&["C1".to_owned(), "C2".to_owned()])
    }

    fn met(id: &str) -> Value {
        json!({ "id": id, "verdict": "met", "evidence": "a test", "test": "it_works" })
    }

    fn unmet(id: &str) -> Value {
        json!({ "id": id, "verdict": "unmet", "evidence": "\"\" is accepted, not refused" })
    }

    #[test]
    fn every_criterion_is_judged_once_by_its_id() {
        let verdict = check(json!({ "criteria": [unmet("c2"), met(" C1 ")] })).expect("valid");
        let reason = "\"\" is accepted, not refused".to_owned();
        assert_eq!(verdict.criteria["C2"], CriterionJudgement::Unmet { reason });
        assert!(matches!(verdict.criteria["C1"], CriterionJudgement::Met { .. }));

        let errors = check(json!({ "criteria": [met("C1"), met("C1"), met("It works.")] }));
        assert_eq!(
            errors.expect_err("errors"),
            [
                "`C1` is judged twice: keep one entry",
                "`It works.` is not a criterion of this task: use C1, C2",
                "`C2` not judged: add an entry for each criterion (C1, C2); use `unjudged` for \
                 what you could not check",
            ]
        );
    }

    #[test]
    fn entries_need_evidence() {
        for nowhere in [json!({}), json!({ "file": " " }), json!({ "line": 3 })] {
            let mut entry = json!({ "id": "C1", "verdict": "met", "evidence": "I looked" });
            entry
                .as_object_mut()
                .expect("an object")
                .extend(nowhere.as_object().cloned().expect("an object"));
            let errors = check(json!({ "criteria": [entry, unmet("C2")] })).expect_err("errors");
            assert!(errors[0].starts_with("`C1`: `met` needs `evidence`"), "{errors:?}");
        }
        let blank = |verdict: &str| json!({ "id": "C1", "verdict": verdict });
        for verdict in ["unmet", "unjudged"] {
            let errors = check(json!({ "criteria": [blank(verdict), unmet("C2")] }));
            assert_eq!(errors.expect_err("errors").len(), 1);
        }
    }

    #[test]
    fn reason_of_an_unjudged_criterion_is_kept() {
        let entry = json!({ "id": "C1", "verdict": "unjudged", "evidence": "needs a printer" });
        let verdict = check(json!({ "criteria": [entry, unmet("C2")] })).expect("valid");
        assert_eq!(verdict.criteria["C1"], CriterionJudgement::Unjudged);
        assert_eq!(verdict.issues[0].message, "C1 was not judged: needs a printer");
    }

    #[test]
    fn blocking_issue_needs_a_scenario() {
        let verdict = |severity: &str, scenario: Value| {
            let issue = json!({
                "severity": severity,
                "category": "code",
                "message": "It fails for empty names.",
                "scenario": scenario,
            });
            check(json!({ "criteria": [met("C1"), met("C2")], "issues": [issue] }))
        };
        for severity in ["error", "critical"] {
            for scenario in [Value::Null, json!(" ")] {
                let errors = verdict(severity, scenario).expect_err("no scenario");
                assert_eq!(
                    errors,
                    [format!(
                        "issue 1: `{severity}` needs a `scenario` with input, expected and actual \
                         result; without one, use `warning`"
                    )]
                );
            }
            assert!(verdict(severity, json!("\"\": expected an error, got 200")).is_ok());
        }
        assert!(verdict("warning", Value::Null).is_ok());
    }
}
