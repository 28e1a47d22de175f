//! Facts about pull requests.

use std::collections::{BTreeMap, BTreeSet};

use chrono::TimeDelta;
use serde::Deserialize;
use serde_json::Value;
use tamma_core::forge::{
    CheckFact, CheckResult, MAX_FACTS, Mergeability, PullRequestFacts, PullRequestStatus,
    ReviewFact, ReviewVerdict, ThreadFact,
};
use tamma_core::ids::CommitId;

use super::super::api::{ApiRequest, now};
use super::super::facts::{
    CheckAttempt, ListedReview, ThreadNote, UNKNOWN_COMMIT, clip, counting_notes, fingerprint,
    is_ours, newest_checks, newest_reviews, reply_line, thread_fact,
};
use super::super::{Error, Observation, ObservedChange};
use super::comments::GiteaComment;
use super::{GiteaClient, GiteaPull, GiteaStatus, GiteaUser};

const OPERATION: &str = "read pull requests";

/// Time after which a pull request that is not mergeable has a conflict. The forge does not tell a
/// conflict from a check for conflicts that has not finished.
const CONFLICT_AFTER: TimeDelta = TimeDelta::seconds(15);

/// Review.
#[derive(Deserialize)]
struct GiteaReview {
    id: u64,
    #[serde(default)]
    user: Option<GiteaUser>,
    #[serde(default)]
    state: String,
    #[serde(default)]
    body: String,
    #[serde(default)]
    commit_id: String,
    #[serde(default)]
    dismissed: bool,
    #[serde(default)]
    comments_count: u64,
}

/// Event in the history of a pull request.
#[derive(Deserialize)]
struct GiteaTimelineEvent {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    user: Option<GiteaUser>,
}

/// Comment on a line.
#[derive(Deserialize, Clone)]
pub(super) struct GiteaReviewComment {
    pub(super) id: u64,
    #[serde(default)]
    pub(super) body: String,
    #[serde(default)]
    pub(super) user: Option<GiteaUser>,
    #[serde(default)]
    resolver: Option<Value>,
    #[serde(default)]
    pub(super) path: String,
    #[serde(default)]
    pub(super) position: u64,
    #[serde(default)]
    pub(super) original_position: u64,
}

impl GiteaReviewComment {
    pub(super) fn by(&self) -> &str {
        name_of(self.user.as_ref())
    }

    fn note(&self) -> ThreadNote {
        let by = self.by().to_owned();
        ThreadNote { id: self.id.to_string(), bot: is_bot(&by), by, text: self.body.clone() }
    }
}

/// Returns the name of an account. Deleted ones are `ghost`.
pub(super) fn name_of(user: Option<&GiteaUser>) -> &str {
    user.map(|it| it.login.as_str()).filter(|it| !it.is_empty()).unwrap_or("ghost")
}

pub(super) fn is_bot(account: &str) -> bool {
    account.ends_with("[bot]") || matches!(account, "gitea-actions" | "forgejo-actions")
}

impl GiteaClient {
    pub(in crate::forge) async fn observe(
        &self,
        repository: &str,
        changes: &[ObservedChange],
    ) -> Result<Observation, Error> {
        let mut observation = Observation::default();
        for change in changes {
            let facts = match self.observe_one(repository, change.number).await {
                Ok(facts) => facts,
                Err(Error::NotFound { .. }) => continue,
                Err(error) => return Err(error),
            };
            let cursor = fingerprint(&facts);
            if change.cursor.is_none() || change.cursor != cursor {
                observation.changes.push((facts, cursor));
            }
        }
        Ok(observation)
    }

    async fn observe_one(&self, repository: &str, number: u64) -> Result<PullRequestFacts, Error> {
        let pull = self.pull(repository, number).await?;
        let unreadable = || self.api.unreadable(OPERATION);
        let head: CommitId = pull.head.sha.parse().map_err(|_| unreadable())?;
        let status = self.status(repository, &pull, head).await?;
        let is_open = status == PullRequestStatus::Open;
        let base = match pull.base.sha.parse() {
            Ok(base) => base,
            // The branch of an old pull request can be gone.
            Err(_) if !is_open => head,
            Err(_) => return Err(unreadable()),
        };
        let required = if is_open {
            self.required_checks(repository, &pull.base.name).await?
        } else {
            Vec::new()
        };
        let (statuses, has_more_statuses) =
            self.statuses(repository, &pull.head.sha, OPERATION).await?;
        let attempts = statuses.iter().map(|it| check_attempt(&pull.head.sha, it)).collect();
        let (checks, has_more_checks) = newest_checks(attempts, &required);
        let (reviews, has_more_reviews) = self.reviews(repository, number).await?;
        let mut listed = Vec::new();
        for review in &reviews {
            let verdict = match review.state.as_str() {
                "APPROVED" => ReviewVerdict::Approved,
                "REQUEST_CHANGES" => ReviewVerdict::ChangesRequested,
                "COMMENT" => ReviewVerdict::Commented,
                _ => continue,
            };
            let by = clip(name_of(review.user.as_ref()));
            let can_write = !is_bot(&by) && self.can_write(repository, &by).await?;
            let commit = review.commit_id.parse().unwrap_or(UNKNOWN_COMMIT);
            let fact = ReviewFact { by, commit, verdict, can_write };
            listed.push(ListedReview { fact, dismissed: review.dismissed });
        }
        let mut threads = self.threads(repository, number, &reviews).await?;
        let has_more_threads = threads.len() > MAX_FACTS;
        // The oldest threads are dropped.
        threads.drain(..threads.len().saturating_sub(MAX_FACTS));
        for thread in threads.iter_mut().filter(|it| !it.bot) {
            thread.can_write = self.can_write(repository, &thread.by).await?;
        }
        Ok(PullRequestFacts {
            number,
            mergeability: self.mergeability(repository, &pull, is_open),
            status,
            draft: pull.draft,
            head,
            base,
            checks,
            reviews: newest_reviews(listed),
            threads,
            queued: false,
            incomplete: has_more_statuses
                || has_more_checks
                || has_more_reviews
                || has_more_threads,
        })
    }

    pub(in crate::forge) async fn commit_checks(
        &self,
        repository: &str,
        commit: CommitId,
    ) -> Result<Vec<CheckFact>, Error> {
        let commit = commit.to_string();
        let (statuses, _) = self.statuses(repository, &commit, OPERATION).await?;
        let attempts = statuses.iter().map(|it| check_attempt(&commit, it)).collect();
        Ok(newest_checks(attempts, &[]).0)
    }

    async fn status(
        &self,
        repository: &str,
        pull: &GiteaPull,
        head: CommitId,
    ) -> Result<PullRequestStatus, Error> {
        if pull.merged {
            let by = clip(name_of(pull.merged_by.as_ref()));
            return Ok(PullRequestStatus::Merged {
                commit: pull.merge_commit().unwrap_or(head),
                by,
            });
        }
        if pull.state == "open" {
            return Ok(PullRequestStatus::Open);
        }
        let path = format!("/repos/{repository}/issues/{}/timeline", pull.number);
        let (events, _): (Vec<Option<GiteaTimelineEvent>>, bool) =
            self.list(ApiRequest::get(path, OPERATION), 10).await?;
        let closed = events.iter().flatten().rfind(|it| it.kind == "close");
        let by = clip(name_of(closed.and_then(|it| it.user.as_ref())));
        Ok(PullRequestStatus::Closed { by })
    }

    fn mergeability(&self, repository: &str, pull: &GiteaPull, is_open: bool) -> Mergeability {
        let key = format!("{repository} {} {} {}", pull.number, pull.head.sha, pull.base.sha);
        if pull.mergeable {
            return Mergeability::Clean;
        }
        // Drafts are never mergeable, conflict or not.
        if pull.draft || !is_open {
            return Mergeability::Unknown;
        }
        match self.unmergeable.get(&key) {
            Some(first) if now() - first >= CONFLICT_AFTER => {
                // Remembered as long as it is seen.
                self.unmergeable.insert(&key, first);
                Mergeability::Conflicting
            }
            Some(_) => Mergeability::Unknown,
            None => {
                self.unmergeable.insert(&key, now());
                Mergeability::Unknown
            }
        }
    }

    async fn reviews(
        &self,
        repository: &str,
        number: u64,
    ) -> Result<(Vec<GiteaReview>, bool), Error> {
        let path = format!("/repos/{repository}/pulls/{number}/reviews");
        self.list(ApiRequest::get(path, OPERATION), 4).await
    }

    /// Reads the comments on lines, grouped by line. The first comment of a line names the thread.
    pub(super) async fn conversations(
        &self,
        repository: &str,
        number: u64,
    ) -> Result<Vec<Vec<GiteaReviewComment>>, Error> {
        let (reviews, _) = self.reviews(repository, number).await?;
        self.conversations_of(repository, number, &reviews).await
    }

    async fn conversations_of(
        &self,
        repository: &str,
        number: u64,
        reviews: &[GiteaReview],
    ) -> Result<Vec<Vec<GiteaReviewComment>>, Error> {
        let mut by_line: BTreeMap<(String, u64, u64), Vec<GiteaReviewComment>> = BTreeMap::new();
        let with_comments =
            reviews.iter().filter(|it| it.comments_count > 0 && it.state != "PENDING");
        for review in with_comments.take(MAX_FACTS) {
            let path = format!("/repos/{repository}/pulls/{number}/reviews/{}/comments", review.id);
            let comments: Vec<GiteaReviewComment> =
                self.json(ApiRequest::get(path, OPERATION)).await?;
            for comment in comments {
                let line = (comment.path.clone(), comment.position, comment.original_position);
                by_line.entry(line).or_default().push(comment);
            }
        }
        let mut threads: Vec<Vec<GiteaReviewComment>> = by_line.into_values().collect();
        for comments in &mut threads {
            comments.sort_by_key(|it| it.id);
        }
        threads.sort_by_key(|it| it.first().map(|comment| comment.id));
        Ok(threads)
    }

    async fn threads(
        &self,
        repository: &str,
        number: u64,
        reviews: &[GiteaReview],
    ) -> Result<Vec<ThreadFact>, Error> {
        let account = self.account().await?;
        let comments: Vec<GiteaComment> =
            self.issue_comments(repository, number, OPERATION).await?;
        let own: Vec<&GiteaComment> =
            comments.iter().filter(|it| is_ours(&it.body, it.by(), account)).collect();
        let is_replied = |id: &str| own.iter().any(|it| it.body.contains(&reply_line(id)));
        let mut threads = Vec::new();
        for comments in self.conversations_of(repository, number, reviews).await? {
            let Some(first) = comments.first() else { continue };
            let id = first.id.to_string();
            let notes: Vec<ThreadNote> = comments.iter().map(GiteaReviewComment::note).collect();
            let mut writers = BTreeSet::new();
            for note in notes.iter().filter(|it| !it.bot) {
                if self.can_write(repository, &note.by).await? {
                    writers.insert(note.by.clone());
                }
            }
            let notes = counting_notes(notes, account, &writers);
            let resolved =
                comments.iter().any(|it| it.resolver.as_ref().is_some_and(Value::is_object));
            let replied = is_replied(&id);
            threads.extend(thread_fact(id, &notes, account, resolved, replied));
        }
        let is_shown = |it: &&GiteaReview| {
            !it.body.trim().is_empty() && !matches!(it.state.as_str(), "PENDING" | "REQUEST_REVIEW")
        };
        let reviews = reviews.iter().filter(is_shown).map(|it| {
            let by = name_of(it.user.as_ref());
            ("review", it.id, by, it.body.as_str())
        });
        let comments = comments.iter().map(|it| ("comment", it.id, it.by(), it.body.as_str()));
        for (kind, id, by, text) in reviews.chain(comments) {
            let note = ThreadNote {
                id: id.to_string(),
                by: by.to_owned(),
                bot: is_bot(by),
                text: text.to_owned(),
            };
            let id = format!("{kind}:{id}");
            let replied = is_replied(&id);
            threads.extend(thread_fact(id, &[note], account, false, replied));
        }
        Ok(threads)
    }
}

/// Reads a commit status. Its ID names the commit, by which it is found again.
fn check_attempt(commit: &str, status: &GiteaStatus) -> CheckAttempt {
    let result = match status.status.as_str() {
        "success" | "warning" | "skipped" => CheckResult::Passed,
        "failure" | "error" => CheckResult::Failed,
        _ => CheckResult::Pending,
    };
    CheckAttempt {
        name: status.context.clone(),
        origin: String::new(),
        order: (String::new(), status.id),
        id: format!("{commit}:{}", status.id),
        required: false,
        result,
    }
}
