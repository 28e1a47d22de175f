//! Forge of a task's project, and the effects that jobs have there.
//!
//! Every effect goes through [`Store::perform`], under a key that names it for ever. A request is never
//! repeated here: Temporal retries the job, and the store looks the effect up first.

use std::collections::BTreeSet;

use tamma_connect::forge::{
    ChangeUpdate, CheckReport, CommentTarget, Error as ForgeError, Forge, Forges, FoundChange,
    MergeOutcome, NewChange, ObservedChange, ThreadComment,
};
use tamma_core::forge::{CheckFact, CheckResult, PullRequestFacts, PullRequestStatus};
use tamma_core::ids::{CommitId, Digest, ProjectId, TaskId};
use tamma_core::pull_request::PullRequestState;
use tamma_core::repository_address::hide_url_credentials;
use tamma_core::rules::MergeMethod;
use tamma_core::time::Timestamp;
use tamma_store::{Effect, EffectError, EffectKind, NewPullRequest, Store};

use crate::clock::now;
use crate::error::Error;

/// Shortest and longest wait after a rate limit, in seconds.
const RATE_LIMIT_SECONDS: (i64, i64) = (60, 3_600);

/// ID of a merge that is in the forge's queue.
const QUEUED: &str = "queued";

/// Failure of work in a forge, as a job handles it.
#[derive(Debug)]
pub(crate) enum ForgeFailure {
    /// Forge accepts requests again after this delay, in seconds.
    Later(u32),
    /// Forge, or its settings, do not allow the work. A person has to act; the text says how.
    Refused(String),
    /// Pull request, head or base changed. The next observation tells.
    Stale(String),
    /// Anything else. Temporal retries the job.
    Failed(Error),
}

impl ForgeFailure {
    /// Returns the failure of a request at a time.
    fn from_request(error: ForgeError, at: Timestamp) -> Self {
        match error {
            ForgeError::RateLimited { until, .. } => {
                let (shortest, longest) = RATE_LIMIT_SECONDS;
                let seconds = (until - at).num_seconds().clamp(shortest, longest);
                Self::Later(u32::try_from(seconds).unwrap_or(u32::MAX))
            }
            error @ (ForgeError::Forbidden { .. }
            | ForgeError::Refused { .. }
            | ForgeError::NotFound { .. }) => Self::Refused(error.to_string()),
            error @ ForgeError::Conflict { .. } => Self::Stale(error.to_string()),
            error @ (ForgeError::Unreachable { .. } | ForgeError::Unreadable { .. }) => {
                Self::Failed(error.into())
            }
        }
    }
}

impl From<ForgeError> for ForgeFailure {
    fn from(error: ForgeError) -> Self {
        Self::from_request(error, now())
    }
}

impl From<Error> for ForgeFailure {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<tamma_store::Error> for ForgeFailure {
    fn from(error: tamma_store::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<tamma_engine::mirror::Error> for ForgeFailure {
    fn from(error: tamma_engine::mirror::Error) -> Self {
        Self::Failed(error.into())
    }
}

/// Forge and repository of a task.
pub(crate) struct ForgeContext {
    pub(crate) store: Store,
    pub(crate) forge: Forge,
    /// Repository in the forge, such as `owner/name`.
    pub(crate) repository: String,
    pub(crate) project: ProjectId,
    pub(crate) task: TaskId,
}

impl ForgeContext {
    /// Finds the forge of a repository.
    pub(crate) fn open(
        store: &Store,
        forges: &Forges,
        address: &str,
        (project, task): (ProjectId, TaskId),
    ) -> Result<Self, ForgeFailure> {
        let found = forges.for_repository(address);
        let found = found.map_err(|error| ForgeFailure::Refused(error.to_string()))?;
        let Some((forge, repository)) = found else {
            return Err(ForgeFailure::Refused(no_forge_text(address)));
        };
        Ok(Self { store: store.clone(), forge, repository, project, task })
    }

    /// Returns an effect of the task. The generation is the commit that it is about.
    fn effect(&self, kind: EffectKind, commit: CommitId, name: &str) -> Effect {
        Effect {
            key: self.key(commit, name),
            kind,
            project: self.project,
            task: Some(self.task),
            precondition: Some(commit),
        }
    }

    /// Returns the key of an effect.
    pub(crate) fn key(&self, commit: CommitId, name: &str) -> String {
        let generation: String = commit.to_string().chars().take(12).collect();
        format!("tamma/{}/{generation}/{name}", self.task)
    }

    /// Performs an effect that replaces itself in the forge, so it need not be looked up.
    async fn replace<F>(
        &self,
        effect: &Effect,
        act: impl FnOnce() -> F,
    ) -> Result<String, ForgeFailure>
    where
        F: Future<Output = Result<String, ForgeError>>,
    {
        let performed = self
            .store
            .perform(effect, || async { Ok::<Option<String>, ForgeError>(None) }, act)
            .await;
        self.settle(effect, performed).await
    }

    /// Converts the result of an effect. A final refusal is recorded with its reason.
    async fn settle(
        &self,
        effect: &Effect,
        performed: Result<String, EffectError<ForgeError>>,
    ) -> Result<String, ForgeFailure> {
        match performed {
            Ok(id) => Ok(id),
            Err(EffectError::Store(error)) => Err(error.into()),
            Err(error @ EffectError::InProgress { .. }) => {
                Err(Error::EffectInProgress(error.to_string()).into())
            }
            Err(EffectError::Failed(error)) => {
                let failure = ForgeFailure::from(error);
                if let ForgeFailure::Refused(reason) = &failure {
                    self.store.refuse_effect(&effect.key, reason).await?;
                }
                Err(failure)
            }
        }
    }

    /// Finds the newest pull request of a branch.
    pub(crate) async fn find(
        &self,
        branch: &str,
        base: &str,
    ) -> Result<Option<FoundChange>, ForgeFailure> {
        Ok(self.forge.find_change(&self.repository, branch, base).await?)
    }

    /// Returns the pull request that a task remembers, whatever its base is now.
    pub(crate) async fn known_change(
        &self,
        known: &PullRequestState,
    ) -> Result<Option<FoundChange>, ForgeFailure> {
        let facts = match self.facts(known.number).await {
            Ok(facts) => facts,
            Err(ForgeError::NotFound { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        Ok(facts.map(|facts| FoundChange {
            number: facts.number,
            url: known.url.clone(),
            head: facts.head,
            open: facts.status == PullRequestStatus::Open,
        }))
    }

    /// Opens a pull request, or returns the one that exists.
    pub(crate) async fn open_change(
        &self,
        commit: CommitId,
        change: &NewChange,
    ) -> Result<FoundChange, ForgeFailure> {
        let effect = self.effect(EffectKind::OpenPullRequest, commit, "open");
        let (branch, base) = (change.branch.as_str(), change.base.as_str());
        let find = || async {
            let found = self.forge.find_change(&self.repository, branch, base).await?;
            Ok::<_, ForgeError>(found.map(|it| it.number.to_string()))
        };
        let act = || async {
            let opened = self.forge.open_change(&self.repository, change).await?;
            Ok::<_, ForgeError>(opened.number.to_string())
        };
        let performed = self.store.perform(&effect, find, act).await;
        self.settle(&effect, performed).await?;
        let found = self.find(branch, base).await?;
        found.ok_or_else(|| ForgeFailure::Stale(format!("the pull request of `{branch}` is gone")))
    }

    /// Updates a pull request, once for each job.
    pub(crate) async fn update_change(
        &self,
        (commit, job_number): (CommitId, u32),
        number: u64,
        update: &ChangeUpdate,
    ) -> Result<(), ForgeFailure> {
        let effect =
            self.effect(EffectKind::UpdatePullRequest, commit, &format!("update-{job_number}"));
        let act = || async {
            self.forge.update_change(&self.repository, number, update).await?;
            Ok::<_, ForgeError>(number.to_string())
        };
        self.replace(&effect, act).await.map(drop)
    }

    /// Publishes a check, once for each job.
    pub(crate) async fn publish_check(
        &self,
        job_number: u32,
        report: &CheckReport,
    ) -> Result<(), ForgeFailure> {
        let name = format!("check-{job_number}");
        let effect = self.effect(EffectKind::PublishCheck, report.commit, &name);
        let act = || self.forge.publish_check(&self.repository, report);
        self.replace(&effect, act).await.map(drop)
    }

    /// Replies to a comment of a thread, once.
    pub(crate) async fn reply(
        &self,
        commit: CommitId,
        target: &CommentTarget,
        comment: &str,
        body: &str,
    ) -> Result<(), ForgeFailure> {
        // Only the comment counts: another commit is no reason for a second reply.
        let name = format!("reply-{}", Digest::of(comment.as_bytes()).short());
        let effect = Effect {
            key: format!("tamma/{}/{name}", self.task),
            ..self.effect(EffectKind::Comment, commit, &name)
        };
        let act = || self.forge.upsert_comment(&self.repository, target, &effect.key, body);
        self.replace(&effect, act).await.map(drop)
    }

    /// Reads the comments of threads. One that was deleted has none.
    pub(crate) async fn thread_comments(
        &self,
        number: u64,
        threads: &[String],
    ) -> Result<Vec<ThreadComment>, ForgeFailure> {
        match self.forge.thread_comments(&self.repository, number, threads).await {
            Err(ForgeError::NotFound { .. }) => {}
            read => return Ok(read?),
        }
        let mut comments = Vec::new();
        for thread in threads {
            let thread = std::slice::from_ref(thread);
            match self.forge.thread_comments(&self.repository, number, thread).await {
                Err(ForgeError::NotFound { .. }) => {}
                read => comments.extend(read?),
            }
        }
        Ok(comments)
    }

    /// Reads all facts about a pull request.
    pub(crate) async fn facts(&self, number: u64) -> Result<Option<PullRequestFacts>, ForgeError> {
        let wanted = [ObservedChange { number, cursor: None }];
        let observed = self.forge.observe(&self.repository, &wanted).await?;
        Ok(observed.changes.into_iter().map(|(facts, _)| facts).find(|it| it.number == number))
    }

    /// Returns the names of checks that failed on a commit.
    pub(crate) async fn failed_checks(
        &self,
        commit: CommitId,
    ) -> Result<BTreeSet<String>, ForgeFailure> {
        let checks = match self.forge.commit_checks(&self.repository, commit).await {
            Ok(checks) => checks,
            // Nothing ran on it.
            Err(ForgeError::NotFound { .. }) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        let failed = checks.into_iter().filter(|it| it.result == CheckResult::Failed);
        Ok(failed.map(|it| it.name).collect())
    }

    /// Runs a failed check again, unless an earlier attempt of it on the same commit ran again. Returns
    /// `true` if this attempt is the one that runs again.
    pub(crate) async fn rerun_check(
        &self,
        (number, commit): (u64, CommitId),
        name: &str,
        attempt: &str,
    ) -> Result<bool, ForgeFailure> {
        let digest = Digest::of(name.as_bytes()).short();
        let effect = self.effect(EffectKind::RerunCheck, commit, &format!("rerun-{digest}"));
        let find = || async {
            let facts = self.facts(number).await?;
            let checks = facts.map(|it| it.checks).unwrap_or_default();
            let is_newer = has_newer_attempt(&checks, name, attempt);
            Ok::<_, ForgeError>(is_newer.then(|| attempt.to_owned()))
        };
        let act = || async {
            self.forge.rerun_check(&self.repository, attempt).await?;
            Ok::<_, ForgeError>(attempt.to_owned())
        };
        let performed = self.store.perform(&effect, find, act).await;
        Ok(self.settle(&effect, performed).await? == attempt)
    }

    /// Merges a pull request with this head, once. A queue can return it, so each job has its own
    /// effect; one that is merged is found.
    pub(crate) async fn merge(
        &self,
        number: u64,
        (head, job_number): (CommitId, u32),
        method: MergeMethod,
    ) -> Result<MergeOutcome, ForgeFailure> {
        let effect = self.effect(EffectKind::Merge, head, &format!("merge-{job_number}"));
        let find = || async {
            let status = self.facts(number).await?.map(|facts| facts.status);
            Ok::<_, ForgeError>(match status {
                Some(PullRequestStatus::Merged { commit, .. }) => Some(commit.to_string()),
                Some(PullRequestStatus::Open | PullRequestStatus::Closed { .. }) | None => None,
            })
        };
        let act = || async {
            let merged = self.forge.merge(&self.repository, number, head, method).await?;
            Ok::<_, ForgeError>(match merged {
                MergeOutcome::Merged(commit) => commit.to_string(),
                MergeOutcome::Queued => QUEUED.to_owned(),
            })
        };
        let performed = self.store.perform(&effect, find, act).await;
        let id = self.settle(&effect, performed).await?;
        if id == QUEUED {
            return Ok(MergeOutcome::Queued);
        }
        let commit = id.parse().map_err(|_| Error::Internal("invalid merge commit".to_owned()))?;
        Ok(MergeOutcome::Merged(commit))
    }

    /// Saves the pull request of the task, and asks the poller to look at it.
    pub(crate) async fn save(
        &self,
        found: &FoundChange,
        (branch, base_branch): (&str, &str),
    ) -> Result<(), ForgeFailure> {
        let opened = NewPullRequest {
            task: self.task,
            project: self.project,
            forge: self.forge.name().to_owned(),
            repository: self.repository.clone(),
            number: found.number,
            url: found.url.clone(),
            branch: branch.to_owned(),
            base_branch: base_branch.to_owned(),
        };
        self.store.save_pull_request(&opened).await?;
        let (forge, repository) = (self.forge.name(), self.repository.as_str());
        self.store.mark_pull_request_dirty(forge, repository, found.number).await?;
        Ok(())
    }
}

/// Returns `true` if the forge shows another attempt of a check, or one that has not ended.
fn has_newer_attempt(checks: &[CheckFact], name: &str, attempt: &str) -> bool {
    let mut named = checks.iter().filter(|it| it.name == name);
    named.any(|it| it.id != attempt || it.result == CheckResult::Pending)
}

/// Returns what to do for a repository without a forge.
fn no_forge_text(address: &str) -> String {
    let address = hide_url_credentials(address);
    format!(
        "no forge is configured for `{address}`; run `tamma forge add` and retry, or set \
         `delivery.mode` to `branch`"
    )
}

#[cfg(test)]
#[path = "forge_context_tests.rs"]
mod tests;
