//! Facts about merge requests.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use tamma_core::forge::{
    CheckFact, CheckResult, MAX_FACTS, Mergeability, PullRequestFacts, PullRequestStatus,
    ReviewFact, ReviewVerdict,
};
use tamma_core::ids::CommitId;
use tamma_core::time::Timestamp;

use super::super::api::{ApiRequest, escape};
use super::super::facts::{
    CheckAttempt, ListedReview, ThreadNote, UNKNOWN_COMMIT, clip, counting_notes, fingerprint,
    newest_checks, newest_reviews, thread_fact,
};
use super::super::{Error, Observation, ObservedChange};
use super::comments::GitlabDiscussion;
use super::{GitlabClient, GitlabMergeRequest, GitlabStatus, GitlabUser, project};

const OPERATION: &str = "read merge requests";

/// Approvals of a merge request.
#[derive(Deserialize)]
struct GitlabApprovals {
    #[serde(default)]
    approved_by: Vec<GitlabApproval>,
}

#[derive(Deserialize)]
struct GitlabApproval {
    user: GitlabUser,
}

/// Reviewer, with the state of the review.
#[derive(Deserialize)]
struct GitlabReviewer {
    user: GitlabUser,
    #[serde(default)]
    state: String,
}

/// Version of a merge request: one push.
#[derive(Deserialize)]
struct GitlabVersion {
    head_commit_sha: String,
    created_at: Timestamp,
}

#[derive(Deserialize)]
struct GitlabBranchTip {
    commit: GitlabCommitId,
}

#[derive(Deserialize)]
struct GitlabCommitId {
    id: CommitId,
}

impl GitlabClient {
    pub(in crate::forge) async fn observe(
        &self,
        repository: &str,
        changes: &[ObservedChange],
    ) -> Result<Observation, Error> {
        let mut observation = Observation::default();
        let mut tips = BTreeMap::new();
        for change in changes {
            let facts = match self.observe_one(repository, change.number, &mut tips).await {
                Ok(facts) => facts,
                Err(Error::NotFound { .. }) => continue,
                Err(error) => return Err(error),
            };
            let cursor = fingerprint(&facts);
            if change.cursor.is_none() || change.cursor != cursor {
                observation.changes.push((facts, cursor));
            }
        }
        observation.quota_left = self.api.quota_left();
        Ok(observation)
    }

    async fn observe_one(
        &self,
        repository: &str,
        number: u64,
        tips: &mut BTreeMap<String, CommitId>,
    ) -> Result<PullRequestFacts, Error> {
        let change = self.merge_request(repository, number).await?;
        let unreadable = || self.api.unreadable(OPERATION);
        let sha = change.sha.clone().unwrap_or_default();
        let head: CommitId = sha.parse().map_err(|_| unreadable())?;
        let name =
            |user: Option<&GitlabUser>| clip(user.map_or("ghost", |it| it.username.as_str()));
        let status = match change.state.as_str() {
            "merged" => PullRequestStatus::Merged {
                commit: change.merge_commit().unwrap_or(head),
                by: name(change.merge_user.as_ref().or(change.merged_by.as_ref())),
            },
            "closed" => PullRequestStatus::Closed { by: name(change.closed_by.as_ref()) },
            // A merge that is under way is `locked`.
            _ => PullRequestStatus::Open,
        };
        let is_open = status == PullRequestStatus::Open;
        let base = match self.tip(repository, &change.target_branch, tips).await {
            Ok(base) => base,
            // The branch of an old merge request can be gone.
            Err(Error::NotFound { .. }) if !is_open => head,
            Err(error) => return Err(error),
        };
        let (statuses, has_more_statuses) = self.checks(repository, &change, &sha).await?;
        let required = is_open && self.requires_pipeline(repository).await?;
        let attempts = statuses.iter().map(|it| check_attempt(&sha, it, required)).collect();
        let (checks, has_more_checks) = newest_checks(attempts, &[]);
        let (discussions, has_more_discussions) =
            self.discussions(repository, number, OPERATION).await?;
        let reviews = self.reviews(repository, number, &discussions).await?;
        let account = self.account().await?;
        let mut threads = Vec::new();
        for discussion in &discussions {
            let people: Vec<_> = discussion.notes.iter().filter(|it| !it.system).collect();
            let notes: Vec<ThreadNote> = people.iter().map(|it| it.note()).collect();
            let mut writers = BTreeSet::new();
            for note in people.iter().filter(|it| !it.author.is_bot()) {
                if self.can_write(repository, &note.author).await? {
                    writers.insert(note.author.username.clone());
                }
            }
            let notes = counting_notes(notes, account, &writers);
            let resolvable = people.iter().filter(|it| it.resolvable);
            let is_resolvable = resolvable.clone().next().is_some();
            let resolved = is_resolvable && resolvable.clone().all(|it| it.resolved);
            let fact = thread_fact(clip(&discussion.id), &notes, account, resolved, false);
            let Some(mut fact) = fact else { continue };
            let author = people.iter().find(|it| it.id.to_string() == fact.last_comment);
            if let Some(author) = author
                && !fact.bot
            {
                fact.can_write = self.can_write(repository, &author.author).await?;
            }
            threads.push(fact);
        }
        let has_more_threads = threads.len() > MAX_FACTS;
        // The oldest threads are dropped.
        threads.drain(..threads.len().saturating_sub(MAX_FACTS));
        let has_more =
            has_more_statuses || has_more_checks || has_more_discussions || has_more_threads;
        Ok(PullRequestFacts {
            number,
            mergeability: mergeability(&change),
            status,
            draft: change.draft,
            head,
            base,
            checks,
            reviews,
            threads,
            queued: false,
            incomplete: has_more,
        })
    }

    /// Returns the newest commit of a branch, which is read once for all merge requests.
    async fn tip(
        &self,
        repository: &str,
        branch: &str,
        tips: &mut BTreeMap<String, CommitId>,
    ) -> Result<CommitId, Error> {
        if let Some(known) = tips.get(branch) {
            return Ok(*known);
        }
        let path = format!("{}/repository/branches/{}", project(repository), escape(branch));
        let request = ApiRequest::get(path, OPERATION).what(format!("branch {branch}"));
        let found: GitlabBranchTip = self.json(request).await?;
        tips.insert(branch.to_owned(), found.commit.id);
        Ok(found.commit.id)
    }

    pub(in crate::forge) async fn commit_checks(
        &self,
        repository: &str,
        commit: CommitId,
    ) -> Result<Vec<CheckFact>, Error> {
        let commit = commit.to_string();
        let (statuses, _) = self.statuses(repository, &commit, OPERATION).await?;
        let attempts = statuses.iter().map(|it| check_attempt(&commit, it, false)).collect();
        Ok(newest_checks(attempts, &[]).0)
    }

    /// Returns the statuses of the head, and the jobs of a pipeline that tests the merged result.
    async fn checks(
        &self,
        repository: &str,
        change: &GitlabMergeRequest,
        sha: &str,
    ) -> Result<(Vec<GitlabStatus>, bool), Error> {
        let (mut statuses, mut has_more) = self.statuses(repository, sha, OPERATION).await?;
        if let Some(pipeline) = &change.head_pipeline
            && pipeline.sha != sha
        {
            let path = format!("{}/pipelines/{}/jobs", project(repository), pipeline.id);
            let (jobs, has_more_jobs): (Vec<GitlabStatus>, bool) =
                self.list(ApiRequest::get(path, OPERATION), 2).await?;
            statuses.extend(jobs);
            has_more |= has_more_jobs;
        }
        Ok((statuses, has_more))
    }

    /// Reads approvals and requests for changes. The forge does not say what commit they are about, so
    /// it is the newest one at the time of the note that tells of it.
    async fn reviews(
        &self,
        repository: &str,
        number: u64,
        discussions: &[GitlabDiscussion],
    ) -> Result<Vec<ReviewFact>, Error> {
        let base = format!("{}/merge_requests/{number}", project(repository));
        let path = format!("{base}/approvals");
        let approvals: GitlabApprovals = self.json(ApiRequest::get(path, OPERATION)).await?;
        let path = format!("{base}/reviewers");
        let reviewers: Vec<GitlabReviewer> = match self.json(ApiRequest::get(path, OPERATION)).await
        {
            // Older versions do not tell.
            Err(Error::NotFound { .. }) => Vec::new(),
            other => other?,
        };
        let approved = approvals.approved_by.into_iter().map(|it| it.user);
        let mut verdicts: Vec<(GitlabUser, ReviewVerdict)> =
            approved.map(|user| (user, ReviewVerdict::Approved)).collect();
        for reviewer in reviewers {
            let is_known = verdicts.iter().any(|(user, _)| user.id == reviewer.user.id);
            match reviewer.state.as_str() {
                "requested_changes" => {
                    verdicts.push((reviewer.user, ReviewVerdict::ChangesRequested));
                }
                "reviewed" if !is_known => {
                    verdicts.push((reviewer.user, ReviewVerdict::Commented));
                }
                _ => {}
            }
        }
        if verdicts.is_empty() {
            return Ok(Vec::new());
        }
        let path = format!("{base}/versions");
        let (versions, _): (Vec<GitlabVersion>, bool) =
            self.list(ApiRequest::get(path, OPERATION), 2).await?;
        let mut listed = Vec::new();
        for (user, verdict) in verdicts {
            let notes = discussions.iter().flat_map(|it| &it.notes);
            let notes = notes.filter(|it| it.author.id == user.id && it.tells_of(verdict));
            let at = notes.map(|it| it.created_at).max();
            let seen = versions.iter().filter(|it| at.is_some_and(|at| it.created_at <= at));
            let seen = seen.max_by_key(|it| it.created_at);
            let commit = match seen {
                Some(version) => version.head_commit_sha.parse().unwrap_or(UNKNOWN_COMMIT),
                // With a single version there is no doubt. Otherwise the oldest is the safe guess.
                None => versions
                    .iter()
                    .min_by_key(|it| it.created_at)
                    .and_then(|it| it.head_commit_sha.parse().ok())
                    .unwrap_or(UNKNOWN_COMMIT),
            };
            let can_write = !user.is_bot() && self.can_write(repository, &user).await?;
            let fact = ReviewFact { by: clip(&user.username), commit, verdict, can_write };
            listed.push(ListedReview { fact, dismissed: false });
        }
        Ok(newest_reviews(listed))
    }
}

fn mergeability(change: &GitlabMergeRequest) -> Mergeability {
    let is_checking = matches!(
        change.merge_status.as_deref(),
        Some("unchecked" | "checking" | "cannot_be_merged_recheck" | "cannot_be_merged_rechecking")
    );
    match change.detailed_merge_status.as_deref() {
        Some("unchecked" | "checking" | "preparing") => Mergeability::Unknown,
        Some("conflict" | "broken_status") => Mergeability::Conflicting,
        Some("need_rebase") => Mergeability::Behind,
        _ if change.has_conflicts => Mergeability::Conflicting,
        _ if is_checking => Mergeability::Unknown,
        Some(_) => Mergeability::Clean,
        None => match change.merge_status.as_deref() {
            Some("can_be_merged") => Mergeability::Clean,
            Some("cannot_be_merged") => Mergeability::Conflicting,
            _ => Mergeability::Unknown,
        },
    }
}

/// Reads a commit status or a job. Its ID names the commit, by which it is found again.
fn check_attempt(commit: &str, status: &GitlabStatus, required: bool) -> CheckAttempt {
    let result = match status.status.as_str() {
        "success" | "skipped" => CheckResult::Passed,
        "failed" | "canceled" | "manual" if status.allow_failure => CheckResult::Passed,
        "failed" | "canceled" => CheckResult::Failed,
        _ => CheckResult::Pending,
    };
    CheckAttempt {
        name: status.name.clone(),
        origin: String::new(),
        order: (String::new(), status.id),
        id: format!("{commit}:{}", status.id),
        required: required && !status.allow_failure,
        result,
    }
}
