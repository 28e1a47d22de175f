//! Checks of a change that need no model. Reviews of tasks and phases of pipelines share them.

use std::collections::BTreeMap;

use tamma_core::ids::CommitId;
use tamma_core::issue::{Issue, IssueCategory, IssueSeverity};
use tamma_core::knowledge;
use tamma_core::plan::FileAction;
use tamma_core::review::patch::AddedLines;
use tamma_core::review::patterns::ReviewPatterns;
use tamma_engine::agent::RunMode;
use tamma_engine::patterns::CodePatterns;
use tamma_engine::permission::{PermissionRules, PermissionViolation};
use tamma_engine::worktree::{ChangePatch, TouchedFiles, Worktree};

use crate::answered_questions;
use crate::clock::now;
use crate::error::Error;
use crate::job_context::JobContext;
use crate::services::Services;

/// Maximum length of the stored diff, in bytes. A larger change does not pass, because nobody could
/// see all of it.
pub(crate) const MAX_SAVED_DIFF: usize = 4_000_000;

/// Difference between two commits.
pub(crate) struct CommittedChange<'a> {
    pub(crate) ctx: &'a JobContext,
    pub(crate) worktree: &'a Worktree,
    /// Commit before the change.
    pub(crate) base: CommitId,
    pub(crate) commit: CommitId,
    pub(crate) touched: BTreeMap<String, FileAction>,
    pub(crate) diff: ChangePatch,
    files: TouchedFiles,
}

impl<'a> CommittedChange<'a> {
    /// Loads the difference between two commits.
    pub(crate) async fn load(
        ctx: &'a JobContext,
        worktree: &'a Worktree,
        base: CommitId,
        commit: CommitId,
    ) -> Result<Self, Error> {
        let files = worktree.touched_files(base, commit).await?;
        let diff = worktree.patch(&files).await?;
        let touched = files.actions.clone();
        Ok(Self { ctx, worktree, base, commit, touched, diff, files })
    }

    /// Returns `true` if the stored patch lacks a part of the change.
    pub(crate) fn is_diff_truncated(&self) -> bool {
        self.diff.is_truncated || self.diff.text.len() > MAX_SAVED_DIFF
    }

    /// Finds changes that are not allowed, forbidden patterns, secrets and prohibited code. The lines
    /// of a change that is too large are not checked; it is an issue itself.
    pub(crate) async fn find_issues(&self, services: &Services) -> Result<Vec<Issue>, Error> {
        let mut issues = self.permission_issues(services).await?;
        if self.is_diff_truncated() {
            issues.push(error_issue(&format!(
                "the change is too large to review: its patch has more than {} MB. Split the task, \
                 or keep generated files out of the repository",
                MAX_SAVED_DIFF / 1_000_000
            )));
            return Ok(issues);
        }
        let added = self.worktree.added_lines(&self.files).await?;
        issues.extend(self.pattern_issues(&added).await?);
        issues.extend(self.knowledge_issues(services, &added).await?);
        Ok(issues)
    }

    /// Applies the permission rules to the diff, independently of what the agent asked for and of
    /// the sandbox.
    async fn permission_issues(&self, services: &Services) -> Result<Vec<Issue>, Error> {
        let answers = answered_questions::load(&services.store, self.ctx).await?;
        let allowed = answered_questions::allowed_subjects(&answers);
        let (path, permissions) = (self.worktree.path(), &self.ctx.rules.permissions);
        let rules = PermissionRules::new(path, RunMode::Implement, permissions, allowed)
            .map_err(|error| Error::Configuration(error.to_string()))?;
        let issue = |violation: PermissionViolation| Issue {
            severity: IssueSeverity::Error,
            category: IssueCategory::Security,
            message: format!("change not allowed: {}", violation.reason),
            file: Some(violation.path),
            line: None,
            scenario: None,
        };
        Ok(rules.check_diff(&self.touched).into_iter().map(issue).collect())
    }

    /// Finds forbidden patterns in added lines.
    async fn pattern_issues(&self, added: &AddedLines) -> Result<Vec<Issue>, Error> {
        let rules = &self.ctx.rules.review;
        let (lines, code) = (ReviewPatterns::from_rules(rules), CodePatterns::from_rules(rules));
        let mut issues = [lines.undecidable(), code.invalid()].concat();
        for (path, added) in added {
            let texts: Vec<_> = added.iter().map(|(line, text)| (*line, text.as_str())).collect();
            issues.extend(lines.find_issues(path, &texts));
            if code.applies_to(path)
                && let Some(text) = self.worktree.file_text(self.commit, path).await?
            {
                issues.extend(code.issues(path, &text, added));
            }
        }
        Ok(issues)
    }

    /// Applies prohibitions of the knowledge base to added lines.
    async fn knowledge_issues(
        &self,
        services: &Services,
        added: &AddedLines,
    ) -> Result<Vec<Issue>, Error> {
        let index = services.knowledge.index(self.ctx).await?;
        let mut issues = Vec::new();
        for (path, added) in added {
            let lines: Vec<_> = added.iter().map(|(line, text)| (*line, text.as_str())).collect();
            let (task, entries) = (&self.ctx.task, index.entries());
            let violations = knowledge::check_added_lines(task, entries, now(), path, &lines);
            issues.extend(violations.iter().map(knowledge::ProhibitionViolation::to_issue));
        }
        Ok(issues)
    }
}

/// Returns an error about a whole change.
pub(crate) fn error_issue(message: &str) -> Issue {
    Issue {
        severity: IssueSeverity::Error,
        category: IssueCategory::Code,
        message: message.to_owned(),
        file: None,
        line: None,
        scenario: None,
    }
}
