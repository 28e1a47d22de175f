//! `review` activity: judges one exact commit.
//!
//! It checks added lines for forbidden patterns, compares files with the plan, and asks a validator
//! in a disposable checkout about the acceptance criteria. Claims of the agent do not count, and
//! evidence of the validator is verified. A critical finding of the validator alone halts the task
//! only if a second validator confirms it in a job of its own.

mod report;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tamma_core::cost::{Cost, Tokens, Usage, Usd};
use tamma_core::ids::{CommitId, Reference};
use tamma_core::issue::Issue;
use tamma_core::plan::Plan;
use tamma_core::review::evidence::{self, EvidenceIndex};
use tamma_core::review::patterns;
use tamma_core::review::record::{CheckRecord, GatesCheck, ReviewCheck, SecondReview, Validator};
use tamma_core::review::{
    Criterion, Fingerprint, ReviewInputs, confirm_critical_issues, conformance, evaluate,
    has_security_critical, judge_criteria, weigh_validator_issues,
};
use tamma_core::task_loop::Outcome;
use tamma_engine::agent::{RunEnd, RunMode};
use tamma_engine::submission::{Submission, ValidatorVerdict};
use tamma_flow::activities::JobResult;
use tamma_store::NewText;

use super::plan::current_plan;
use crate::change_check::{CommittedChange, MAX_SAVED_DIFF, error_issue};
use crate::error::Error;
use crate::job_context::JobContext;
use crate::project_context::ProjectContext;
use crate::prompts::{Prompt, criteria_data, plan_data, task_facts};
use crate::retry::retry_until_stopped;
use crate::runs::{AgentRun, AgentSlot, UncommittedAssignment};
use crate::services::Services;

/// Maximum length of the diff in the validator's prompt, in bytes.
const MAX_SHOWN_DIFF: usize = 60_000;

/// Maximum number of test names in the validator's prompt.
const MAX_SHOWN_TESTS: usize = 300;

/// Commit under review.
struct ChangeUnderReview<'a> {
    committed: CommittedChange<'a>,
    /// Gate results of the commit, if gates ran.
    gate_results: Option<GatesCheck>,
}

pub(super) async fn review(
    services: &Services,
    ctx: &JobContext,
    commit: CommitId,
    unconfirmed: Option<&Reference>,
) -> Result<JobResult, Error> {
    let project = services.repositories.project(ctx).await?;
    let worktree = services.repositories.worktree(ctx, &project).await?;
    let base = ctx.base()?;
    let change = ChangeUnderReview {
        committed: CommittedChange::load(ctx, &worktree, base, commit).await?,
        gate_results: gate_results(services, ctx, commit).await?,
    };
    let touched = &change.committed.touched;
    let plan = current_plan(services, ctx).await?;
    let mut inputs = ReviewInputs {
        issues: find_issues(services, &change.committed).await?,
        conformance: conformance::compare(&plan.file_changes, touched, &ctx.rules),
        // Failed gates were handled earlier; here they are only shown.
        gates: Vec::new(),
        criteria: Vec::new(),
        suggestions: Vec::new(),
    };
    // Without a validator the cost is known to be zero.
    let mut usage = Some(Usage { tokens: Tokens::default(), cost: Cost::Known(Usd::ZERO) });
    let (mut first, mut second) = (None, None);
    let earlier = match unconfirmed {
        Some(stored) => Some(load_opinion(services, stored).await?),
        None => None,
    };
    // A change that cannot pass needs no validator.
    let criteria = plan.criteria_of(&ctx.task);
    if !criteria.is_empty() && evaluate(inputs.clone()).passed {
        let validation = validate(services, &change, &project, &plan, earlier.as_ref()).await?;
        ctx.fault_point("agent ended")?;
        let (identity, run) = validation;
        usage = run.report.usage;
        let verdict = match run.report.end {
            RunEnd::Finished { submission: Submission::Verdict(verdict), .. } => verdict,
            // Without a valid verdict, no criterion is met and no finding is confirmed.
            RunEnd::Finished { .. } => ValidatorVerdict::default(),
            _ => return services.agents.handle_unfinished(ctx, run).await,
        };
        let opinion = ValidatorOpinion::new(identity, verdict);
        match earlier {
            Some(earlier) => {
                let (confirmed, review) = earlier.confirm_with(opinion);
                (first, second) = (Some(confirmed), Some(review));
            }
            None if has_security_critical(&opinion.verdict.issues) => {
                let stored = save_opinion(services, ctx, &opinion).await?;
                let outcome = Outcome::CriticalUnconfirmed(stored);
                return Ok(JobResult::finished(outcome).with_usage(usage));
            }
            None => first = Some(opinion),
        }
    } else if let Some(earlier) = earlier {
        first = Some(earlier.without_confirmation());
    }
    let (validator, verdict) = match first {
        Some(opinion) => (Some(opinion.validator), opinion.verdict),
        None => (None, ValidatorVerdict::default()),
    };
    inputs.criteria = change.verify_evidence(judge_criteria(criteria, &verdict.criteria)).await?;
    inputs.issues.extend(verdict.issues);
    inputs.suggestions = verdict.suggestions;
    let verdict = evaluate(inputs);
    let summary = verdict.summarize();
    let (mut fingerprint, mut report) = (Fingerprint::default(), None);
    if !summary.passed {
        let text = report::failure_report(&verdict.inputs, validator.is_some());
        let files = touched.keys().map(String::as_str);
        fingerprint = Fingerprint::from_attempt(files, [], &text, &change.committed.diff.text);
        report = Some(text);
    }
    save_review(services, &change, verdict, (validator, second)).await?;
    let outcome = Outcome::Reviewed { summary, fingerprint };
    Ok(JobResult::finished(outcome).with_usage(usage).with_report(report))
}

/// Loads the gate results of a commit, if gates ran.
async fn gate_results(
    services: &Services,
    ctx: &JobContext,
    commit: CommitId,
) -> Result<Option<GatesCheck>, Error> {
    let checks = services.store.checks(ctx.task.id).await?;
    let of = |record| match record {
        CheckRecord::Gates(gates_check) if gates_check.commit == commit => Some(gates_check),
        CheckRecord::Gates(_) | CheckRecord::Review(_) => None,
    };
    Ok(checks.into_iter().rev().find_map(|check| of(check.record)))
}

/// Finds issues without a model.
async fn find_issues(
    services: &Services,
    change: &CommittedChange<'_>,
) -> Result<Vec<Issue>, Error> {
    let mut issues = change.find_issues(services).await?;
    if change.touched.is_empty() {
        issues.push(error_issue("the run changed nothing"));
    }
    if !change.worktree.is_descendant(change.base, change.commit).await? {
        issues.push(error_issue(
            "the branch no longer starts from the task's base commit: its history was \
             rewritten",
        ));
    }
    Ok(issues)
}

/// Runs a validator, and returns its identity with the run. The second validator of a commit gets
/// the critical findings of the first, and has a home directory of its own.
async fn validate(
    services: &Services,
    change: &ChangeUnderReview<'_>,
    project: &ProjectContext,
    plan: &Plan,
    first: Option<&ValidatorOpinion>,
) -> Result<(Validator, AgentRun), Error> {
    let CommittedChange { ctx, worktree, .. } = &change.committed;
    let suggested = ctx.task.suggested_agent.as_deref();
    let implementer = ctx.rules.implementer(suggested, ctx.task_loop.tier);
    let tier = match first {
        Some(first) => ctx.rules.second_validator(first.validator.tier, &implementer),
        None => ctx.rules.validator(&implementer),
    };
    let (agent, _) = crate::runs::agent_for(project, &tier.into())?;
    let model = project.rules.model(tier).map(str::to_owned);
    let values = task_facts(ctx, None, change.prompt_values(plan));
    let mut prompt = services.prompts(ctx).await?.render(Prompt::Validate, values)?;
    let mut slot = AgentSlot::from(tier);
    if let Some(first) = first {
        prompt.text.push_str(&report::second_review_request(&first.verdict.issues));
        slot.home = Some(format!("{agent}-second-review"));
    }
    let assignment = UncommittedAssignment { slot, mode: RunMode::Validate, prompt, brief: None };
    let run = services.agents.run_uncommitted(ctx, project, worktree, assignment).await?;
    Ok((Validator { tier, agent: agent.to_string(), model }, run))
}

/// Verdict of one validator, as stored until a second one has judged the commit.
#[derive(Serialize, Deserialize)]
struct ValidatorOpinion {
    validator: Validator,
    verdict: ValidatorVerdict,
}

impl ValidatorOpinion {
    /// Creates an opinion. Blocking issues without a scenario count as warnings.
    fn new(validator: Validator, mut verdict: ValidatorVerdict) -> Self {
        verdict.issues = weigh_validator_issues(verdict.issues);
        Self { validator, verdict }
    }

    /// Combines this opinion with that of a second validator. Only the confirmation counts.
    fn confirm_with(mut self, second: Self) -> (Self, SecondReview) {
        let issues = second.verdict.issues;
        self.verdict.issues = confirm_critical_issues(self.verdict.issues, &issues);
        let confirmed = has_security_critical(&self.verdict.issues);
        (self, SecondReview { validator: second.validator, confirmed, issues })
    }

    /// Lowers critical issues that no second validator has judged.
    fn without_confirmation(mut self) -> Self {
        self.verdict.issues = confirm_critical_issues(self.verdict.issues, &[]);
        self
    }
}

async fn save_opinion(
    services: &Services,
    ctx: &JobContext,
    opinion: &ValidatorOpinion,
) -> Result<Reference, Error> {
    let text =
        serde_json::to_string(opinion).map_err(|error| Error::Internal(error.to_string()))?;
    let save = || services.store.save_text(&text);
    retry_until_stopped(&ctx.stop, save).await
}

async fn load_opinion(services: &Services, stored: &Reference) -> Result<ValidatorOpinion, Error> {
    let text = services.store.text(stored).await?;
    serde_json::from_str(&text).map_err(|error| Error::Internal(error.to_string()))
}

/// Stores the review with a redacted diff.
async fn save_review(
    services: &Services,
    change: &ChangeUnderReview<'_>,
    verdict: tamma_core::review::ReviewVerdict,
    (validator, second): (Option<Validator>, Option<SecondReview>),
) -> Result<(), Error> {
    let change = &change.committed;
    let ctx = change.ctx;
    let diff = patterns::mask_secret_lines(truncate(&change.diff.text, MAX_SAVED_DIFF));
    let diff = NewText::new(&diff)?;
    let record = CheckRecord::Review(ReviewCheck {
        commit: change.commit,
        verdict,
        diff: Some(diff.reference.clone()),
        is_diff_truncated: change.is_diff_truncated(),
        validator,
        second,
    });
    let key = (ctx.task.id, ctx.request.job_number);
    let iteration = ctx.task_loop.iterations;
    let save = || services.store.save_check_with_text(key, iteration, &record, &diff);
    retry_until_stopped(&ctx.stop, save).await
}

impl ChangeUnderReview<'_> {
    /// Returns the names of tests that passed in the gates.
    fn passed_tests(&self) -> BTreeSet<String> {
        let gates = self.gate_results.iter().flat_map(|gates_check| &gates_check.gates);
        gates.flat_map(|gate| &gate.passed_tests).cloned().collect()
    }

    /// Marks criteria whose evidence does not exist.
    async fn verify_evidence(&self, criteria: Vec<Criterion>) -> Result<Vec<Criterion>, Error> {
        let mut files = BTreeMap::new();
        for file in evidence::referenced_files(&criteria) {
            let CommittedChange { worktree, commit, .. } = &self.committed;
            if let Some(text) = worktree.file_text(*commit, file).await? {
                files.insert(
                    file.to_owned(),
                    u32::try_from(text.lines().count()).unwrap_or(u32::MAX),
                );
            }
        }
        Ok(EvidenceIndex { passed_tests: self.passed_tests(), file_lines: files }
            .check_criteria(criteria))
    }

    /// Builds the values of the validator's prompt.
    fn prompt_values(&self, plan: &Plan) -> Value {
        let gates: Vec<_> = self
            .gate_results
            .iter()
            .flat_map(|gates_check| &gates_check.gates)
            .map(report::gate_data)
            .collect();
        let passed = self.passed_tests();
        let CommittedChange { ctx, touched, diff, .. } = &self.committed;
        let shown = truncate(&diff.text, MAX_SHOWN_DIFF);
        json!({
            "criteria": criteria_data(plan.criteria_of(&ctx.task)),
            "plan": plan_data(plan),
            "gates": gates,
            "passed": passed.iter().take(MAX_SHOWN_TESTS).collect::<Vec<_>>(),
            "more_passed": passed.len().saturating_sub(MAX_SHOWN_TESTS),
            "touched": touched.keys().collect::<Vec<_>>(),
            "diff": shown,
            "cut": shown.len() < diff.text.len(),
        })
    }
}

/// Returns the start of a text, at most `most` bytes, at a character boundary.
fn truncate(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

#[cfg(test)]
mod tests {
    use tamma_core::issue::{IssueCategory, IssueSeverity};
    use tamma_core::tier::Tier;

    use super::*;

    #[test]
    fn findings_that_nobody_confirms_stay_as_errors() {
        let critical = Issue {
            severity: IssueSeverity::Critical,
            category: IssueCategory::Security,
            message: "names are executed".to_owned(),
            file: Some("names.txt".to_owned()),
            line: None,
            scenario: Some("name `x` starts a shell".to_owned()),
        };
        let validator = Validator { tier: Tier::Complex, agent: "codex".to_owned(), model: None };
        let verdict = ValidatorVerdict { issues: vec![critical], ..ValidatorVerdict::default() };
        let opinion = ValidatorOpinion::new(validator, verdict).without_confirmation();
        let issues = opinion.verdict.issues;
        assert!(!has_security_critical(&issues));
        let kept = (issues[0].message.contains("names are executed"), issues[0].severity);
        assert_eq!(kept, (true, IssueSeverity::Error));
    }
}
