//! Judges one exact commit: its added lines by what they must not have in them, the files against the
//! plan, the criteria by a validator that may only look. Nothing here believes the agent that made it,
//! nor the one that judges it: what a validator points at is looked up.

mod words;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use tamma_core::cost::{Cost, Tokens, Usage, Usd};
use tamma_core::ids::CommitId;
use tamma_core::issue::{Category, Issue, Severity};
use tamma_core::knowledge;
use tamma_core::plan::Action;
use tamma_core::review::evidence::{self, Ground};
use tamma_core::review::patterns::{self, Patterns};
use tamma_core::review::record::{Record, Reviewed, Tested, Validator};
use tamma_core::review::{Criterion, Fingerprint, Inputs, conformance, criteria, verdict};
use tamma_core::task_loop::Outcome;
use tamma_engine::agent::{Mode, RunEnd};
use tamma_engine::permission::{Law, Violation};
use tamma_engine::submission::{Submission, Verdict};
use tamma_engine::worktree::Worktree;
use tamma_flow::port::Answer;

use super::{Activities, Told, Work, now};
use crate::answers;
use crate::error::Error;
use crate::prompts::{Prompt, fill};
use crate::runs::Run;
use crate::site::Site;

/// How many letters of a change a validator is shown; the rest is in its working folder.
const SHOWN: usize = 60_000;

/// How many names of tests a validator is shown.
const TESTS: usize = 300;

/// How many letters of a change are kept for people.
const KEPT: usize = 1_000_000;

/// One commit under review.
struct Change<'a> {
    work: &'a Work,
    worktree: &'a Worktree,
    commit: CommitId,
    touched: BTreeMap<String, Action>,
    diff: String,
    /// What the gates said of it, if they ran.
    tested: Option<Tested>,
}

impl Activities {
    pub(super) async fn review(&self, work: &Work, commit: CommitId) -> Result<Told, Error> {
        let site = self.site(work).await?;
        let worktree = self.worktree(work, &site).await?;
        let base = work.base()?;
        let change = Change {
            work,
            worktree: &worktree,
            commit,
            touched: worktree.touched(base, commit).await?,
            diff: worktree.diff(base, commit).await?,
            tested: self.tested(work, commit).await?,
        };
        let plan = self.plan_of(work).await?;
        let mut inputs = Inputs {
            issues: self.found(&change).await?,
            conformance: conformance::compare(&plan.file_changes, &change.touched, &work.rules),
            // Those that failed have been answered for before; here they are shown only.
            gates: Vec::new(),
            criteria: Vec::new(),
        };
        // Where nobody is asked, that costs nothing, and that is known.
        let mut usage = Some(Usage { tokens: Tokens::default(), cost: Cost::Known(Usd::ZERO) });
        let mut said = Verdict::default();
        let mut validator = None;
        // Nobody is paid to judge what cannot be taken.
        if !work.task.acceptance_criteria.is_empty() && verdict(inputs.clone()).passed {
            let (who, run) = self.validate(&change, &site).await?;
            self.pass("agent ended")?;
            (usage, validator) = (run.report.usage, Some(who));
            match run.report.end {
                RunEnd::Finished { submission: Submission::Verdict(verdict), .. } => said = verdict,
                // Nothing that can be believed was said, so no criterion is met.
                RunEnd::Finished { .. } => {}
                _ => return self.unfinished(work, run).await,
            }
        }
        inputs.criteria =
            change.weighed(criteria(&work.task.acceptance_criteria, &said.criteria)).await?;
        inputs.issues.extend(said.issues);
        let verdict = verdict(inputs);
        let summary = verdict.summary();
        let (mut fingerprint, mut report) = (Fingerprint::default(), None);
        if !summary.passed {
            let text = words::of(&verdict.inputs, validator.is_some());
            let files = change.touched.keys().map(String::as_str);
            fingerprint = Fingerprint::of(files, [], &text, &change.diff);
            report = Some(text);
        }
        self.keep_review(&change, verdict, validator).await?;
        let outcome = Outcome::Reviewed { summary, fingerprint };
        Ok(Told { answer: Answer::Ended { outcome, usage }, report })
    }

    /// What the gates said of a commit, if they ran.
    async fn tested(&self, work: &Work, commit: CommitId) -> Result<Option<Tested>, Error> {
        let checks = self.store.checks(work.task.id).await?;
        let of = |record| match record {
            Record::Gates(tested) if tested.commit == commit => Some(tested),
            Record::Gates(_) | Record::Review(_) => None,
        };
        Ok(checks.into_iter().rev().find_map(|check| of(check.record)))
    }

    /// Everything that can be found without asking anybody.
    async fn found(&self, change: &Change<'_>) -> Result<Vec<Issue>, Error> {
        let mut issues = self.forbidden(change).await?;
        issues.extend(change.prohibited().await?);
        issues.extend(self.known_to_be_forbidden(change).await?);
        let wrong = |message: &str| Issue {
            severity: Severity::Error,
            category: Category::Code,
            message: message.to_owned(),
            file: None,
            line: None,
        };
        if change.touched.is_empty() {
            issues.push(wrong("the run changed nothing"));
        }
        if !change.worktree.descends(change.work.base()?, change.commit).await? {
            issues.push(wrong(
                "the branch no longer starts from the commit that the task began with: history was \
                 rewritten",
            ));
        }
        Ok(issues)
    }

    /// The rules of what an agent may change, once more on what it did change: whatever it asked
    /// for, and whatever the sandbox let through.
    async fn forbidden(&self, change: &Change<'_>) -> Result<Vec<Issue>, Error> {
        let Change { work, worktree, touched, .. } = change;
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

    /// What the team has forbidden, on the lines that the change adds.
    async fn known_to_be_forbidden(&self, change: &Change<'_>) -> Result<Vec<Issue>, Error> {
        let known = self.library.of(change.work.call.errand.diary.project).await?;
        if known.entries().all(|entry| entry.pattern.is_none()) {
            return Ok(Vec::new());
        }
        let mut issues = Vec::new();
        for (path, added) in &change.worktree.added(change.work.base()?, change.commit).await? {
            let lines: Vec<_> = added.iter().map(|(line, text)| (*line, text.as_str())).collect();
            let task = &change.work.task;
            let found = knowledge::added_lines(task, known.entries(), now(), path, &lines);
            issues.extend(found.iter().map(knowledge::Violation::issue));
        }
        Ok(issues)
    }

    /// Asks a validator, and tells who it was.
    async fn validate(&self, change: &Change<'_>, site: &Site) -> Result<(Validator, Run), Error> {
        let Change { work, worktree, .. } = change;
        let tier = work.rules.validator(work.memory.tier);
        let (agent, _) = crate::runs::agent_of(site, &tier.into())?;
        let model = site.rules.model(tier).map(str::to_owned);
        let prompt = fill(Prompt::Validate, change.about())?;
        let run = self.look(work, site, worktree, tier, Mode::Validate, prompt).await?;
        Ok((Validator { tier, agent: agent.to_string(), model }, run))
    }

    /// Keeps what was found, with the change as people may read it.
    async fn keep_review(
        &self,
        change: &Change<'_>,
        verdict: tamma_core::review::Verdict,
        validator: Option<Validator>,
    ) -> Result<(), Error> {
        let work = change.work;
        let diff = patterns::without_secrets(first(&change.diff, KEPT));
        let diff = self.surely(&work.call.stop, || self.store.keep(&diff)).await?;
        let record = Record::Review(Reviewed {
            commit: change.commit,
            verdict,
            diff: Some(diff),
            validator,
        });
        let (task, ticket) = (work.task.id, work.call.errand.ticket);
        let iteration = work.memory.iterations;
        let keep = || self.store.keep_check(task, ticket, iteration, &record);
        self.surely(&work.call.stop, keep).await
    }
}

impl Change<'_> {
    /// What is prohibited in the lines that it adds.
    async fn prohibited(&self) -> Result<Vec<Issue>, Error> {
        let rules = &self.work.rules.review;
        let added = self.worktree.added(self.work.base()?, self.commit).await?;
        let (lines, code) = (Patterns::of(rules), tamma_engine::patterns::Rules::of(rules));
        let mut issues = [lines.undecidable(), code.undecidable()].concat();
        for (path, added) in &added {
            let texts: Vec<_> = added.iter().map(|(line, text)| (*line, text.as_str())).collect();
            issues.extend(lines.issues(path, &texts));
            if code.concern(path)
                && let Some(text) = self.worktree.text(self.commit, path).await?
            {
                issues.extend(code.issues(path, &text, added));
            }
        }
        Ok(issues)
    }

    /// The tests that passed in its gates.
    fn passed(&self) -> BTreeSet<String> {
        let gates = self.tested.iter().flat_map(|tested| &tested.gates);
        gates.flat_map(|gate| &gate.passed_names).cloned().collect()
    }

    /// The criteria, with a doubt on each claim that points at what is not there.
    async fn weighed(&self, criteria: Vec<Criterion>) -> Result<Vec<Criterion>, Error> {
        let mut files = BTreeMap::new();
        for file in evidence::named(&criteria) {
            if let Some(text) = self.worktree.text(self.commit, file).await? {
                files.insert(
                    file.to_owned(),
                    u32::try_from(text.lines().count()).unwrap_or(u32::MAX),
                );
            }
        }
        Ok(Ground { passed: self.passed(), files }.weigh(criteria))
    }

    /// What a validator is told.
    fn about(&self) -> Value {
        let gates: Vec<_> =
            self.tested.iter().flat_map(|tested| &tested.gates).map(words::gate).collect();
        let passed = self.passed();
        let shown = first(&self.diff, SHOWN);
        json!({
            "task": self.work.task,
            "gates": gates,
            "passed": passed.iter().take(TESTS).collect::<Vec<_>>(),
            "more_passed": passed.len().saturating_sub(TESTS),
            "touched": self.touched.keys().collect::<Vec<_>>(),
            "diff": shown,
            "cut": shown.len() < self.diff.len(),
        })
    }
}

/// So many bytes of a text at most, and no half letter.
fn first(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}
