//! Judges one exact commit: the files against the plan, the criteria by a validator that may only
//! look. Nothing here believes the agent that made it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::json;
use tamma_core::cost::{Cost, Tokens, Usage, Usd};
use tamma_core::ids::CommitId;
use tamma_core::plan::Action;
use tamma_core::review::{
    Category, Fingerprint, Inputs, Issue, Judgement, Severity, conformance, criteria, verdict,
};
use tamma_core::task_loop::Outcome;
use tamma_engine::agent::{Mode, RunEnd};
use tamma_engine::permission::{Law, Violation};
use tamma_engine::submission::{Submission, Verdict};
use tamma_engine::worktree::Worktree;
use tamma_flow::port::Answer;

use super::{Activities, Told, Work};
use crate::answers;
use crate::error::Error;
use crate::prompts::{Prompt, fill};

impl Activities {
    pub(super) async fn review(&self, work: &Work, commit: CommitId) -> Result<Told, Error> {
        let site = self.site(work).await?;
        let worktree = self.worktree(work, &site).await?;
        let touched = worktree.touched(work.base()?, commit).await?;
        let plan = self.plan_of(work).await?;
        // Where nobody is asked, that costs nothing, and that is known.
        let mut usage = Some(Usage { tokens: Tokens::default(), cost: Cost::Known(Usd::ZERO) });
        let mut said = Verdict::default();
        let forbidden = self.forbidden(work, &worktree, &touched).await?;
        // Nobody is paid to judge what cannot be taken.
        if !work.task.acceptance_criteria.is_empty() && forbidden.is_empty() {
            let paths: Vec<_> = touched.keys().collect();
            let prompt = fill(Prompt::Validate, json!({ "task": work.task, "touched": paths }))?;
            let tier = work.rules.roles.validator;
            let run = self.look(work, &site, &worktree, tier, Mode::Validate, prompt).await?;
            self.pass("agent ended")?;
            usage = run.report.usage;
            match run.report.end {
                RunEnd::Finished { submission: Submission::Verdict(verdict), .. } => said = verdict,
                // Nothing that can be believed was said, so no criterion is met.
                RunEnd::Finished { .. } => {}
                _ => return self.unfinished(work, run).await,
            }
        }
        let mut issues = said.issues;
        issues.extend(forbidden);
        if touched.is_empty() {
            issues.push(Issue {
                severity: Severity::Error,
                category: Category::Code,
                message: "the run changed nothing".to_owned(),
                file: None,
                line: None,
            });
        }
        let verdict = verdict(Inputs {
            gates: Vec::new(),
            issues,
            criteria: criteria(&work.task.acceptance_criteria, &said.criteria),
            conformance: conformance::compare(&plan.file_changes, &touched, &work.rules),
        });
        let summary = verdict.summary();
        let mut fingerprint = Fingerprint::default();
        let mut report = None;
        if !summary.passed {
            let text = in_words(&verdict.inputs);
            let diff = worktree.diff(work.base()?, commit).await?;
            let files = touched.keys().map(String::as_str);
            fingerprint = Fingerprint::of(files, [], &text, &diff);
            report = Some(text);
        }
        let outcome = Outcome::Reviewed { summary, fingerprint };
        Ok(Told { answer: Answer::Ended { outcome, usage }, report })
    }
}

impl Activities {
    /// The rules of what an agent may change, once more on what it did change: whatever it asked
    /// for, and whatever the sandbox let through.
    async fn forbidden(
        &self,
        work: &Work,
        worktree: &Worktree,
        touched: &BTreeMap<String, Action>,
    ) -> Result<Vec<Issue>, Error> {
        let allowed = answers::allowed(&self.answered(work).await?);
        let permissions = &work.rules.permissions;
        let law = Law::new(worktree.path(), Mode::Implement, permissions, allowed)
            .map_err(|error| Error::Configuration(error.to_string()))?;
        let issue = |violation: Violation| Issue {
            severity: Severity::Error,
            category: Category::Security,
            message: format!("it may not be changed: {}", violation.reason),
            file: Some(violation.path),
            line: None,
        };
        Ok(law.on_diff(touched).into_iter().map(issue).collect())
    }
}

/// What stood in the way, for the brief of the next run.
fn in_words(inputs: &Inputs) -> String {
    let mut text = String::from("## The review failed\n\n");
    for issue in &inputs.issues {
        let place = issue.file.as_deref().map(|file| format!("`{file}`: ")).unwrap_or_default();
        let _ =
            writeln!(text, "- {} ({}): {place}{}", issue.severity, issue.category, issue.message);
    }
    for path in &inputs.conformance.unplanned_critical {
        let _ = writeln!(text, "- `{path}` is critical and not in the approved plan");
    }
    for criterion in inputs.criteria.iter().filter(|criterion| !criterion.is_met()) {
        let why = match &criterion.judgement {
            Judgement::Unmet { why } => why.as_str(),
            Judgement::Met { .. } => "no evidence was given",
            Judgement::Unjudged => "nobody judged it",
        };
        let _ = writeln!(text, "- not met: {}: {why}", criterion.text);
    }
    text
}
