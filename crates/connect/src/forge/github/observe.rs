//! Facts about pull requests, by GraphQL: a summary of up to 50 at once, then the details of those that
//! changed. A summary of 50 costs about three points of the quota, five lists each. Details ask for as
//! many reviews, threads and comments as the summary counted, because GitHub charges for what is asked
//! for.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use tamma_core::forge::{
    CheckFact, CheckResult, MAX_FACTS, Mergeability, PullRequestFacts, PullRequestStatus,
    ReviewFact, ReviewVerdict,
};
use tamma_core::ids::{CommitId, Digest};

use super::super::facts::{
    CheckAttempt, ListedReview, ThreadNote, UNKNOWN_COMMIT, clip, counting_notes, is_ours,
    newest_checks, newest_reviews, reply_line, thread_fact,
};
use super::super::{Error, Observation, ObservedChange};
use super::GithubClient;

/// Pull requests of one query.
const BATCH: usize = 50;

/// Comments of a thread that are read: the newest ones tell who spoke last. Comments of others must not
/// hide those of people who can push.
const LAST_COMMENTS: usize = 30;

const OPERATION: &str = "read pull requests";

/// Field that servers without merge queues do not know.
const QUEUE_FIELD: &str = "isInMergeQueue ";

impl GithubClient {
    pub(in crate::forge) async fn observe(
        &self,
        repository: &str,
        changes: &[ObservedChange],
    ) -> Result<Observation, Error> {
        let mut observation = Observation::default();
        for batch in changes.chunks(BATCH) {
            let mut summary = String::new();
            for change in batch {
                write_summary(&mut summary, change.number);
            }
            let summaries = self.pull_requests(repository, &summary).await?;
            observation.quota_left = self.api.quota_left();
            let mut changed = Vec::new();
            for change in batch {
                let summary = &summaries[format!("p{}", change.number)];
                if summary.is_null() {
                    continue;
                }
                let cursor = Digest::of(summary.to_string().as_bytes()).to_string();
                if change.cursor.as_ref() != Some(&cursor) {
                    changed.push((change.number, cursor, ListSizes::of(summary)));
                }
            }
            if changed.is_empty() {
                continue;
            }
            let mut details = String::new();
            for (number, _, counts) in &changed {
                write_details(&mut details, *number, counts);
            }
            let found = match self.pull_requests(repository, &details).await {
                Ok(found) => {
                    observation.quota_left = self.api.quota_left();
                    Some(found)
                }
                // Too large together.
                Err(Error::Unreadable { .. }) => None,
                Err(error) => return Err(error),
            };
            for (number, cursor, counts) in changed {
                let pull = match &found {
                    Some(found) => found[format!("p{number}")].clone(),
                    None => self.pull_request_alone(repository, number, &counts).await?,
                };
                if pull.is_null() {
                    continue;
                }
                let facts = self.read_facts(repository, &pull, &counts).await?;
                observation.changes.push((facts, Some(cursor)));
            }
        }
        Ok(observation)
    }

    pub(in crate::forge) async fn commit_checks(
        &self,
        repository: &str,
        commit: CommitId,
    ) -> Result<Vec<CheckFact>, Error> {
        let selection = format!(
            "object(oid: \"{commit}\") {{ ... on Commit {{ statusCheckRollup {{ \
             contexts(first: {MAX_FACTS}) {{ nodes {{ __typename \
             ... on CheckRun {{ databaseId name status conclusion checkSuite {{ app {{ slug }} \
             workflowRun {{ event workflow {{ name }} }} }} }} \
             ... on StatusContext {{ id context state createdAt }} }} }} }} }} }} "
        );
        let found = self.pull_requests(repository, &selection).await?;
        let contexts = &found["object"]["statusCheckRollup"]["contexts"];
        let attempts = nodes(contexts).filter_map(check_attempt).collect();
        Ok(newest_checks(attempts, &[]).0)
    }

    /// Reads one pull request, without its texts if they are too large.
    async fn pull_request_alone(
        &self,
        repository: &str,
        number: u64,
        counts: &ListSizes,
    ) -> Result<Value, Error> {
        for counts in [counts, &ListSizes::default()] {
            let mut details = String::new();
            write_details(&mut details, number, counts);
            match self.pull_requests(repository, &details).await {
                Ok(found) => return Ok(found[format!("p{number}")].clone()),
                Err(Error::Unreadable { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(self.api.unreadable(OPERATION))
    }

    /// Reads pull requests of a repository by a selection, each as `p<number>`.
    async fn pull_requests(&self, repository: &str, selection: &str) -> Result<Value, Error> {
        if !self.lacks_queues.load(Ordering::Relaxed) {
            match self.selected(repository, selection).await {
                Err(Error::Refused { reason, .. }) if reason.contains(QUEUE_FIELD.trim_end()) => {}
                found => return found,
            }
        }
        let found = self.selected(repository, &selection.replace(QUEUE_FIELD, "")).await?;
        self.lacks_queues.store(true, Ordering::Relaxed);
        Ok(found)
    }

    async fn selected(&self, repository: &str, selection: &str) -> Result<Value, Error> {
        let (owner, name) = repository.split_once('/').unwrap_or_default();
        let query = format!(
            "query($owner: String!, $name: String!) {{ \
             repository(owner: $owner, name: $name) {{ {selection}}} }}"
        );
        let variables = json!({ "owner": owner, "name": name });
        let mut data = self.graphql(OPERATION, &query, variables).await?;
        let found = data.get_mut("repository").map(Value::take).unwrap_or_default();
        if found.is_null() {
            return Err(self.api.not_found(format!("repository {repository}")));
        }
        Ok(found)
    }

    async fn read_facts(
        &self,
        repository: &str,
        pull: &Value,
        counts: &ListSizes,
    ) -> Result<PullRequestFacts, Error> {
        let unreadable = || self.api.unreadable(OPERATION);
        let commit = |value: &Value| value.as_str().and_then(|it| it.parse::<CommitId>().ok());
        let head = commit(&pull["headRefOid"]).ok_or_else(unreadable)?;
        let base = commit(&pull["baseRef"]["target"]["oid"])
            .or_else(|| commit(&pull["baseRefOid"]))
            .ok_or_else(unreadable)?;
        let status = match pull["state"].as_str() {
            Some("MERGED") => PullRequestStatus::Merged {
                commit: commit(&pull["mergeCommit"]["oid"]).unwrap_or(head),
                by: login(&pull["mergedBy"]),
            },
            Some("CLOSED") => {
                PullRequestStatus::Closed { by: login(&pull["timelineItems"]["nodes"][0]["actor"]) }
            }
            Some("OPEN") => PullRequestStatus::Open,
            _ => return Err(unreadable()),
        };
        let branch = pull["baseRefName"].as_str().unwrap_or_default();
        let required = match status {
            PullRequestStatus::Open => self.required_checks(repository, branch).await?,
            PullRequestStatus::Merged { .. } | PullRequestStatus::Closed { .. } => Vec::new(),
        };
        let tip = &pull["commits"]["nodes"][0]["commit"];
        let contexts = &tip["statusCheckRollup"]["contexts"];
        // Checks of an older head say nothing about this one.
        let is_tip = tip["oid"].as_str().is_none_or(|it| it == head.to_string());
        let attempts =
            if is_tip { nodes(contexts).filter_map(check_attempt).collect() } else { Vec::new() };
        let (checks, has_more_checks) = newest_checks(attempts, &required);
        let reviews = nodes(&pull["reviews"]).filter_map(listed_review).collect();
        let account = self.account().await?;
        let comments = nodes(&pull["reviewThreads"]).flat_map(|it| nodes(&it["comments"]));
        let people: BTreeSet<String> =
            comments.map(note).filter(|it| !it.bot).map(|it| it.by).collect();
        let mut writers = BTreeSet::new();
        for person in people {
            if self.can_write(repository, &person).await? {
                writers.insert(person);
            }
        }
        let mut threads = read_threads(pull, account, &writers);
        let has_more_threads = threads.len() > MAX_FACTS;
        // The oldest threads are dropped.
        threads.drain(..threads.len().saturating_sub(MAX_FACTS));
        for thread in threads.iter_mut().filter(|it| !it.bot) {
            thread.can_write = self.can_write(repository, &thread.by).await?;
        }
        let lists = [
            ("reviews", counts.reviews),
            ("reviewThreads", counts.threads),
            ("comments", counts.comments),
        ];
        // A list is missing if its texts were too large.
        let is_cut =
            |(key, count): (&str, usize)| count > MAX_FACTS || (count > 0 && pull[key].is_null());
        let has_more = contexts["pageInfo"]["hasNextPage"] == true || lists.into_iter().any(is_cut);
        Ok(PullRequestFacts {
            number: pull["number"].as_u64().ok_or_else(unreadable)?,
            status,
            draft: pull["isDraft"] == true,
            head,
            base,
            mergeability: mergeability(pull),
            checks,
            reviews: newest_reviews(reviews),
            threads,
            queued: pull["isInMergeQueue"] == true,
            incomplete: has_more || has_more_checks || has_more_threads,
        })
    }
}

/// Sizes of the lists of a pull request.
#[derive(Debug, Clone, Default)]
struct ListSizes {
    reviews: usize,
    threads: usize,
    comments: usize,
}

impl ListSizes {
    fn of(summary: &Value) -> Self {
        let count = |key: &str| {
            let count = summary[key]["totalCount"].as_u64().unwrap_or_default();
            usize::try_from(count).unwrap_or(usize::MAX)
        };
        Self {
            reviews: count("reviews"),
            threads: count("reviewThreads"),
            comments: count("comments"),
        }
    }
}

/// Writes the selection of a summary. Whatever it contains makes a change noticed at the next poll.
fn write_summary(query: &mut String, number: u64) {
    let _infallible = write!(
        query,
        "p{number}: pullRequest(number: {number}) {{ number updatedAt state isDraft {QUEUE_FIELD}headRefOid \
         mergeable mergeStateStatus baseRef {{ target {{ oid }} }} comments(first: 1) {{ totalCount }} \
         reviews(first: 1) {{ totalCount }} reviewThreads(first: 1) {{ totalCount }} \
         commits(last: 1) {{ nodes {{ commit {{ oid statusCheckRollup {{ state contexts(first: 1) {{ \
         totalCount checkRunCountsByState {{ state count }} statusContextCountsByState {{ state count }} \
         }} }} }} }} }} }} "
    );
}

/// Writes the selection of all facts.
fn write_details(query: &mut String, number: u64, counts: &ListSizes) {
    const AUTHOR: &str = "author { __typename login }";
    let _infallible = write!(
        query,
        "p{number}: pullRequest(number: {number}) {{ number state isDraft {QUEUE_FIELD}headRefOid baseRefOid \
         baseRefName mergeable mergeStateStatus baseRef {{ target {{ oid }} }} \
         mergedBy {{ __typename login }} mergeCommit {{ oid }} \
         timelineItems(last: 1, itemTypes: [CLOSED_EVENT]) {{ nodes {{ \
         ... on ClosedEvent {{ actor {{ __typename login }} }} }} }} \
         commits(last: 1) {{ nodes {{ commit {{ oid statusCheckRollup {{ contexts(first: {MAX_FACTS}) {{ \
         pageInfo {{ hasNextPage }} nodes {{ __typename \
         ... on CheckRun {{ databaseId name status conclusion startedAt \
         isRequired(pullRequestNumber: {number}) \
         checkSuite {{ app {{ slug }} workflowRun {{ event workflow {{ name }} }} }} }} \
         ... on StatusContext {{ id context state createdAt isRequired(pullRequestNumber: {number}) }} \
         }} }} }} }} }} }} "
    );
    if counts.reviews > 0 {
        let last = counts.reviews.min(MAX_FACTS);
        let _infallible = write!(
            query,
            "reviews(last: {last}) {{ nodes {{ databaseId {AUTHOR} state body \
             authorCanPushToRepository commit {{ oid }} }} }} "
        );
    }
    if counts.threads > 0 {
        let last = counts.threads.min(MAX_FACTS);
        let _infallible = write!(
            query,
            "reviewThreads(last: {last}) {{ nodes {{ id isResolved \
             comments(last: {LAST_COMMENTS}) {{ nodes {{ databaseId {AUTHOR} body }} }} }} }} "
        );
    }
    if counts.comments > 0 {
        let last = counts.comments.min(MAX_FACTS);
        let _infallible =
            write!(query, "comments(last: {last}) {{ nodes {{ databaseId {AUTHOR} body }} }} ");
    }
    query.push_str("} ");
}

fn nodes(connection: &Value) -> impl Iterator<Item = &Value> {
    connection["nodes"].as_array().into_iter().flatten()
}

/// Returns the account of an actor, as REST names it. Deleted accounts are `ghost`.
pub(super) fn login(actor: &Value) -> String {
    let login = actor["login"].as_str().unwrap_or("ghost");
    let is_bare_bot = is_bot(actor) && !login.ends_with("[bot]");
    if is_bare_bot { clip(&format!("{login}[bot]")) } else { clip(login) }
}

pub(super) fn is_bot(actor: &Value) -> bool {
    actor["__typename"] == "Bot" || actor["login"].as_str().is_some_and(|it| it.ends_with("[bot]"))
}

fn mergeability(pull: &Value) -> Mergeability {
    match (pull["mergeable"].as_str(), pull["mergeStateStatus"].as_str()) {
        (Some("CONFLICTING"), _) => Mergeability::Conflicting,
        (Some("MERGEABLE"), Some("BEHIND")) => Mergeability::Behind,
        (Some("MERGEABLE"), _) => Mergeability::Clean,
        _ => Mergeability::Unknown,
    }
}

/// Reads a check run or a commit status.
fn check_attempt(node: &Value) -> Option<CheckAttempt> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let required = node["isRequired"] == true;
    if node["__typename"] == "StatusContext" {
        let result = match node["state"].as_str()? {
            "SUCCESS" => CheckResult::Passed,
            "ERROR" | "FAILURE" => CheckResult::Failed,
            _ => CheckResult::Pending,
        };
        return Some(CheckAttempt {
            name: node["context"].as_str()?.to_owned(),
            origin: "status".to_owned(),
            order: (text(&node["createdAt"]), 0),
            id: format!("status:{}", clip(&text(&node["id"]))),
            required,
            result,
        });
    }
    let result = match (node["status"].as_str()?, node["conclusion"].as_str()) {
        ("COMPLETED", Some("SUCCESS" | "NEUTRAL" | "SKIPPED")) => CheckResult::Passed,
        ("COMPLETED", _) => CheckResult::Failed,
        _ => CheckResult::Pending,
    };
    let suite = &node["checkSuite"];
    let run = &suite["workflowRun"];
    let origin =
        [&suite["app"]["slug"], &run["workflow"]["name"], &run["event"]].map(text).join(" ");
    let id = node["databaseId"].as_u64()?;
    Some(CheckAttempt {
        name: node["name"].as_str()?.to_owned(),
        origin,
        // A run that waits has not started; IDs grow with time.
        order: (String::new(), id),
        id: id.to_string(),
        required,
        result,
    })
}

fn listed_review(node: &Value) -> Option<ListedReview> {
    let (verdict, dismissed) = match node["state"].as_str()? {
        "APPROVED" => (ReviewVerdict::Approved, false),
        "CHANGES_REQUESTED" => (ReviewVerdict::ChangesRequested, false),
        "COMMENTED" => (ReviewVerdict::Commented, false),
        "DISMISSED" => (ReviewVerdict::Commented, true),
        _ => return None,
    };
    // A commit that a rebase replaced can be gone. The review still counts against the change.
    let commit = node["commit"]["oid"].as_str().and_then(|it| it.parse().ok());
    let commit = commit.unwrap_or(UNKNOWN_COMMIT);
    let can_write = node["authorCanPushToRepository"] == true && !is_bot(&node["author"]);
    let fact = ReviewFact { by: login(&node["author"]), commit, verdict, can_write };
    Some(ListedReview { fact, dismissed })
}

fn note(node: &Value) -> ThreadNote {
    ThreadNote {
        id: node["databaseId"].as_u64().unwrap_or_default().to_string(),
        by: login(&node["author"]),
        bot: is_bot(&node["author"]),
        text: node["body"].as_str().unwrap_or_default().to_owned(),
    }
}

/// Reads review threads, texts of reviews, and comments, each with its own ID.
fn read_threads(
    pull: &Value,
    account: &str,
    writers: &BTreeSet<String>,
) -> Vec<tamma_core::forge::ThreadFact> {
    let comments: Vec<ThreadNote> = nodes(&pull["comments"]).map(note).collect();
    let own: Vec<&ThreadNote> =
        comments.iter().filter(|it| is_ours(&it.text, &it.by, account)).collect();
    let is_replied = |id: &str| own.iter().any(|it| it.text.contains(&reply_line(id)));
    let mut threads = Vec::new();
    for thread in nodes(&pull["reviewThreads"]) {
        let notes: Vec<ThreadNote> = nodes(&thread["comments"]).map(note).collect();
        let notes = counting_notes(notes, account, writers);
        let id = clip(thread["id"].as_str().unwrap_or_default());
        let resolved = thread["isResolved"] == true;
        threads.extend(thread_fact(id, &notes, account, resolved, false));
    }
    let reviews = nodes(&pull["reviews"]).filter(|it| it["state"] != "PENDING").map(note);
    let reviews = reviews.filter(|it| !it.text.trim().is_empty()).map(|it| ("review", it));
    let all = reviews.chain(comments.iter().cloned().map(|it| ("comment", it)));
    for (kind, note) in all {
        let id = format!("{kind}:{}", note.id);
        let replied = is_replied(&id);
        threads.extend(thread_fact(id, &[note], account, false, replied));
    }
    threads
}
