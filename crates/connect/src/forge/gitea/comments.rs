//! Comments on issues and pull requests, and issues that may become tasks.

use chrono::TimeDelta;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use tamma_core::time::Timestamp;

use super::super::api::{ApiRequest, complete_list};
use super::super::facts::{
    clip, clip_text, group_by_issue, has_marker, is_ours, marked_body, marker_line,
};
use super::super::{CommentTarget, Error, IntakeIssue, IssueComment, ThreadComment};
use super::observe::{is_bot, name_of};
use super::{GiteaClient, GiteaObject, GiteaUser};

/// Most pages of a list.
const MAX_PAGES: u32 = 20;

/// Most pages of changed issues. The forge cannot sort them by their change, so all are read.
const MAX_ISSUE_PAGES: u32 = 400;

/// Time before the requested one that is read too. The forge can show a change later than a newer one,
/// and issues that are known have no second effect.
const OVERLAP: TimeDelta = TimeDelta::minutes(2);

const WRITE: &str = "write a comment";

/// Comment on an issue or a pull request.
#[derive(Deserialize)]
pub(super) struct GiteaComment {
    pub(super) id: u64,
    #[serde(default)]
    pub(super) body: String,
    #[serde(default)]
    user: Option<GiteaUser>,
    #[serde(default)]
    issue_url: String,
}

impl GiteaComment {
    pub(super) fn by(&self) -> &str {
        name_of(self.user.as_ref())
    }
}

#[derive(Deserialize)]
struct GiteaIssue {
    number: u64,
    title: String,
    #[serde(default)]
    body: String,
    #[serde(default)]
    user: Option<GiteaUser>,
    html_url: String,
    state: String,
    updated_at: Timestamp,
    #[serde(default)]
    labels: Option<Vec<Value>>,
    #[serde(default)]
    pull_request: Option<Value>,
}

impl GiteaClient {
    /// Reads all comments of an issue or a pull request, oldest first. The forge has no pages here.
    pub(super) async fn issue_comments(
        &self,
        repository: &str,
        number: u64,
        operation: &'static str,
    ) -> Result<Vec<GiteaComment>, Error> {
        let path = format!("/repos/{repository}/issues/{number}/comments");
        let request = ApiRequest::get(path, operation).what(format!("issue {repository}#{number}"));
        self.json(request).await
    }

    pub(in crate::forge) async fn upsert_comment(
        &self,
        repository: &str,
        target: &CommentTarget,
        marker: &str,
        body: &str,
    ) -> Result<String, Error> {
        let line = marker_line(marker);
        let (number, thread, resolve) = match target {
            CommentTarget::Issue(number) | CommentTarget::PullRequest(number) => {
                let body = marked_body(body, &line, None);
                return self.upsert_issue_comment(repository, *number, &line, &body).await;
            }
            CommentTarget::Thread { number, thread, resolve } => (*number, thread, *resolve),
        };
        let Ok(first) = thread.parse::<u64>() else {
            // Comments and texts of reviews have no threads; the reply names what it replies to.
            let body = marked_body(body, &line, Some(thread));
            return self.upsert_issue_comment(repository, number, &line, &body).await;
        };
        let reply = marked_body(body, &line, None);
        let written = match self.upsert_reply(repository, number, first, &line, &reply).await {
            // Versions before 1.27 cannot reply through the API: 1.26 responds with 405.
            Err(Error::NotFound { .. } | Error::Refused { .. }) => {
                let body = marked_body(body, &line, Some(thread));
                self.upsert_issue_comment(repository, number, &line, &body).await?
            }
            other => other?,
        };
        if resolve {
            let path = format!("/repos/{repository}/pulls/comments/{first}/resolve");
            let request = ApiRequest::new(Method::POST, path, "resolve a thread");
            match self.api.send(&self.login, request).await {
                // Versions before 1.26 cannot resolve through the API.
                Ok(_) | Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }

    async fn upsert_issue_comment(
        &self,
        repository: &str,
        number: u64,
        line: &str,
        body: &str,
    ) -> Result<String, Error> {
        let comments = self.issue_comments(repository, number, WRITE).await?;
        let account = self.account().await?;
        let is_known =
            |it: &&GiteaComment| has_marker(&it.body, line) && is_ours(&it.body, it.by(), account);
        if let Some(known) = comments.iter().find(is_known) {
            return self.edit_comment(repository, known.id, &known.body, body).await;
        }
        let path = format!("/repos/{repository}/issues/{number}/comments");
        let request = ApiRequest::post(path, WRITE, json!({ "body": body }))
            .what(format!("issue {repository}#{number}"));
        let written: GiteaObject = self.json(request).await?;
        Ok(written.id.to_string())
    }

    async fn edit_comment(
        &self,
        repository: &str,
        id: u64,
        present: &str,
        body: &str,
    ) -> Result<String, Error> {
        if present != body {
            let path = format!("/repos/{repository}/issues/comments/{id}");
            let request = ApiRequest::new(Method::PATCH, path, WRITE).body(json!({ "body": body }));
            self.api.send(&self.login, request.what(format!("comment {id}"))).await?;
        }
        Ok(id.to_string())
    }

    async fn upsert_reply(
        &self,
        repository: &str,
        number: u64,
        first: u64,
        line: &str,
        body: &str,
    ) -> Result<String, Error> {
        let account = self.account().await?;
        let threads = self.conversations(repository, number).await?;
        let comments = threads.iter().flatten();
        let mut own = comments.filter(|it| is_ours(&it.body, it.by(), account));
        if let Some(known) = own.find(|it| has_marker(&it.body, line)) {
            return self.edit_comment(repository, known.id, &known.body, body).await;
        }
        let path = format!("/repos/{repository}/pulls/{number}/comments/{first}/replies");
        let request = ApiRequest::post(path, WRITE, json!({ "body": body }));
        let written: GiteaObject = self.json(request.what(format!("thread {first}"))).await?;
        Ok(written.id.to_string())
    }

    pub(in crate::forge) async fn thread_comments(
        &self,
        repository: &str,
        number: u64,
        threads: &[String],
    ) -> Result<Vec<ThreadComment>, Error> {
        const OPERATION: &str = "read comments";
        #[derive(Deserialize)]
        struct GiteaReviewText {
            id: u64,
            #[serde(default)]
            body: String,
            #[serde(default)]
            user: Option<GiteaUser>,
        }
        let account = self.account().await?;
        let conversations = if threads.iter().any(|it| !it.contains(':')) {
            self.conversations(repository, number).await?
        } else {
            Vec::new()
        };
        let mut found = Vec::new();
        for thread in threads {
            let path = match thread.split_once(':') {
                Some(("review", id)) => {
                    format!("/repos/{repository}/pulls/{number}/reviews/{}", clip(id))
                }
                Some((_, id)) => format!("/repos/{repository}/issues/comments/{}", clip(id)),
                None => {
                    let is_wanted = |id: u64| id.to_string() == *thread;
                    let comments = conversations.iter();
                    let comments =
                        comments.filter(|it| it.first().is_some_and(|first| is_wanted(first.id)));
                    let comments: Vec<_> = comments.flatten().collect();
                    for comment in comments {
                        if is_ours(&comment.body, comment.by(), account) {
                            continue;
                        }
                        let line = comment.position.max(comment.original_position);
                        let line = u32::try_from(line).unwrap_or_default();
                        found.push(ThreadComment {
                            thread: thread.clone(),
                            id: comment.id.to_string(),
                            by: clip(comment.by()),
                            can_write: !is_bot(comment.by())
                                && self.can_write(repository, comment.by()).await?,
                            position: Some((clip(&comment.path), line)),
                            text: clip_text(&comment.body),
                        });
                    }
                    continue;
                }
            };
            let request = ApiRequest::get(path, OPERATION).what(format!("comment {thread}"));
            let comment: GiteaReviewText = match self.json(request).await {
                // Deleted since.
                Err(Error::NotFound { .. }) => continue,
                other => other?,
            };
            let by = name_of(comment.user.as_ref());
            if !is_ours(&comment.body, by, account) {
                found.push(ThreadComment {
                    thread: thread.clone(),
                    id: comment.id.to_string(),
                    by: clip(by),
                    can_write: !is_bot(by) && self.can_write(repository, by).await?,
                    position: None,
                    text: clip_text(&comment.body),
                });
            }
        }
        Ok(found)
    }

    pub(in crate::forge) async fn list_intake(
        &self,
        repository: &str,
        since: Timestamp,
    ) -> Result<Vec<IntakeIssue>, Error> {
        const OPERATION: &str = "list issues";
        let since = (since - OVERLAP).format("%Y-%m-%dT%H:%M:%SZ").to_string();
        let changed = |path: String| {
            ApiRequest::get(path, OPERATION)
                .what(format!("repository {repository}"))
                .query("since", since.as_str())
        };
        let request = changed(format!("/repos/{repository}/issues"))
            .query("state", "all")
            .query("type", "issues");
        let (mut issues, has_more): (Vec<GiteaIssue>, bool) =
            self.list(request, MAX_ISSUE_PAGES).await?;
        if has_more {
            let reason = "more than 20,000 issues changed since the last poll";
            return Err(self.api.refused(OPERATION, reason));
        }
        issues.retain(|it| it.pull_request.is_none());
        if issues.is_empty() {
            return Ok(Vec::new());
        }
        issues.sort_by_key(|it| (it.updated_at, it.number));
        let request = changed(format!("/repos/{repository}/issues/comments"));
        let (mut comments, has_more): (Vec<GiteaComment>, bool) =
            self.list(request, MAX_PAGES).await?;
        if has_more {
            comments.clear();
            for issue in &issues {
                comments.extend(self.issue_comments(repository, issue.number, OPERATION).await?);
            }
        }
        let account = self.account().await?;
        let is_foreign = |it: &GiteaComment| !is_ours(&it.body, it.by(), account);
        let mut by_issue = group_by_issue(comments, |it| it.issue_url.as_str(), is_foreign);
        let mut found = Vec::new();
        for issue in issues {
            let mut own = by_issue.remove(&issue.number).unwrap_or_default();
            own.sort_by_key(|it| it.id);
            let mut comments = Vec::new();
            for comment in own {
                let bot = is_bot(comment.by());
                comments.push(IssueComment {
                    id: comment.id.to_string(),
                    by: clip(comment.by()),
                    can_write: !bot && self.can_write(repository, comment.by()).await?,
                    bot,
                    text: clip_text(&comment.body),
                });
            }
            let by = name_of(issue.user.as_ref());
            let labels = issue.labels.iter().flatten().filter_map(|it| it["name"].as_str());
            found.push(IntakeIssue {
                number: issue.number,
                title: clip_text(&issue.title),
                body: clip_text(&issue.body),
                by: clip(by),
                can_write: !is_bot(by) && self.can_write(repository, by).await?,
                labels: labels.map(clip).collect(),
                open: issue.state == "open",
                updated_at: issue.updated_at,
                comments,
                url: issue.html_url,
            });
        }
        Ok(found)
    }

    pub(in crate::forge) async fn label_writer(
        &self,
        repository: &str,
        number: u64,
        label: &str,
    ) -> Result<Option<String>, Error> {
        const OPERATION: &str = "read who set a label";
        let path = format!("/repos/{repository}/issues/{number}/timeline");
        let request = ApiRequest::get(path, OPERATION);
        let listed = self.list::<Value>(request, MAX_PAGES).await;
        // Of an incomplete list, nobody knows the last one.
        let Some(events) = complete_list(listed)? else { return Ok(None) };
        // Oldest first. The text is `1` for a label that was added.
        let last = events.iter().rev().find(|it| {
            let name = it["label"]["name"].as_str();
            let is_added = it["type"] == "label" && it["body"] == "1";
            is_added && name.is_some_and(|it| it.eq_ignore_ascii_case(label))
        });
        let by = last.and_then(|it| it["user"]["login"].as_str()).filter(|by| !is_bot(by));
        let Some(by) = by else { return Ok(None) };
        Ok(self.can_write(repository, by).await?.then(|| clip(by)))
    }
}
