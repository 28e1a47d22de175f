//! Comments on issues and pull requests, and issues that may become tasks.

use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use tamma_core::time::Timestamp;

use super::super::api::{ApiRequest, complete_list};
use super::super::facts::{
    clip, clip_text, group_by_issue, has_marker, is_ours, marked_body, marker_line,
};
use super::super::{CommentTarget, Error, IntakeIssue, IssueComment, ThreadComment};
use super::observe::{is_bot, login};
use super::{GithubClient, GithubObject};

/// Most pages of a list. Older entries than the newest thousand are not looked at.
const MAX_PAGES: u32 = 10;

/// Most issues of one read whose comments are read apart.
const MAX_ISSUES: usize = 100;

const WRITE: &str = "write a comment";

#[derive(Deserialize)]
struct GithubUser {
    login: String,
    #[serde(rename = "type", default)]
    kind: String,
}

#[derive(Deserialize)]
struct GithubComment {
    id: u64,
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    user: Option<GithubUser>,
    #[serde(default)]
    issue_url: String,
}

impl GithubComment {
    fn text(&self) -> &str {
        self.body.as_deref().unwrap_or_default()
    }

    fn by(&self) -> &str {
        self.user.as_ref().map_or("ghost", |it| it.login.as_str())
    }
}

#[derive(Deserialize)]
struct GithubIssue {
    number: u64,
    title: String,
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    user: Option<GithubUser>,
    html_url: String,
    state: String,
    updated_at: Timestamp,
    #[serde(default)]
    labels: Vec<Value>,
    #[serde(default)]
    pull_request: Option<Value>,
}

impl GithubClient {
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
                (*number, None, false)
            }
            CommentTarget::Thread { number, thread, resolve } => (*number, Some(thread), *resolve),
        };
        match thread {
            // Comments and texts of reviews have no threads; the reply names what it replies to.
            Some(id) if id.contains(':') => {
                let body = marked_body(body, &line, Some(id));
                self.upsert_issue_comment(repository, number, &line, &body).await
            }
            Some(id) => {
                let body = marked_body(body, &line, None);
                let written = self.upsert_reply(repository, number, id, &line, &body).await?;
                if resolve {
                    const MUTATION: &str = "mutation($id: ID!) { \
                        resolveReviewThread(input: { threadId: $id }) { thread { isResolved } } }";
                    self.graphql("resolve a thread", MUTATION, json!({ "id": id })).await?;
                }
                Ok(written)
            }
            None => {
                let body = marked_body(body, &line, None);
                self.upsert_issue_comment(repository, number, &line, &body).await
            }
        }
    }

    async fn upsert_issue_comment(
        &self,
        repository: &str,
        number: u64,
        line: &str,
        body: &str,
    ) -> Result<String, Error> {
        let path = format!("/repos/{repository}/issues/{number}/comments");
        let request = ApiRequest::get(&path, WRITE).what(format!("issue {repository}#{number}"));
        let (comments, has_more): (Vec<GithubComment>, bool) =
            self.list(request, MAX_PAGES).await?;
        let account = self.account().await?;
        let is_known = |it: &&GithubComment| {
            has_marker(it.text(), line) && is_ours(it.text(), it.by(), account)
        };
        let content = json!({ "body": body });
        match comments.iter().find(is_known) {
            Some(known) if known.text() == body => Ok(known.id.to_string()),
            Some(known) => {
                let path = format!("/repos/{repository}/issues/comments/{}", known.id);
                let request = ApiRequest::new(Method::PATCH, path, WRITE).body(content);
                let written: GithubObject = self.json(request).await?;
                Ok(written.id.to_string())
            }
            None if has_more => {
                Err(self.api.refused(WRITE, "there are more than 1,000 comments to search"))
            }
            None => {
                let request = ApiRequest::post(&path, WRITE, content);
                let written: GithubObject =
                    self.json(request.what(format!("issue {repository}#{number}"))).await?;
                Ok(written.id.to_string())
            }
        }
    }

    async fn upsert_reply(
        &self,
        repository: &str,
        number: u64,
        thread: &str,
        line: &str,
        body: &str,
    ) -> Result<String, Error> {
        let comments = self.read_thread(thread).await?;
        let account = self.account().await?;
        let text = |it: &Value| it["body"].as_str().unwrap_or_default().to_owned();
        let id = |it: &Value| it["databaseId"].as_u64();
        let is_known = |it: &&Value| {
            has_marker(&text(it), line) && is_ours(&text(it), &login(&it["author"]), account)
        };
        let content = json!({ "body": body });
        let request = match comments.iter().find(is_known).map(|it| (id(it), text(it))) {
            Some((Some(known), text)) if text == body => return Ok(known.to_string()),
            Some((Some(known), _)) => {
                let path = format!("/repos/{repository}/pulls/comments/{known}");
                ApiRequest::new(Method::PATCH, path, WRITE).body(content)
            }
            _ => {
                let first = comments.first().and_then(id);
                let first = first.ok_or_else(|| self.api.not_found(format!("thread {thread}")))?;
                let path = format!("/repos/{repository}/pulls/{number}/comments/{first}/replies");
                ApiRequest::post(path, WRITE, content)
            }
        };
        let written: GithubObject = self
            .json(request.what(format!("thread of pull request {repository}#{number}")))
            .await?;
        Ok(written.id.to_string())
    }

    /// Reads the first hundred comments of a review thread.
    async fn read_thread(&self, thread: &str) -> Result<Vec<Value>, Error> {
        const QUERY: &str = "query($id: ID!) { node(id: $id) { ... on PullRequestReviewThread { \
            path line originalLine comments(first: 100) { nodes { \
            databaseId author { __typename login } body path line originalLine } } } } }";
        let mut data = self.graphql("read a thread", QUERY, json!({ "id": thread })).await?;
        match data.pointer_mut("/node/comments/nodes").map(Value::take) {
            Some(Value::Array(comments)) => Ok(comments),
            _ => Err(self.api.not_found(format!("thread {}", clip(thread)))),
        }
    }

    pub(in crate::forge) async fn thread_comments(
        &self,
        repository: &str,
        number: u64,
        threads: &[String],
    ) -> Result<Vec<ThreadComment>, Error> {
        const OPERATION: &str = "read comments";
        let account = self.account().await?;
        let mut found = Vec::new();
        for thread in threads {
            let path = match thread.split_once(':') {
                Some(("comment", id)) => {
                    format!("/repos/{repository}/issues/comments/{}", clip(id))
                }
                Some(("review", id)) => {
                    format!("/repos/{repository}/pulls/{number}/reviews/{}", clip(id))
                }
                _ => {
                    for comment in self.read_thread(thread).await? {
                        let (by, text) = (login(&comment["author"]), comment["body"].as_str());
                        let text = text.unwrap_or_default();
                        if is_ours(text, &by, account) {
                            continue;
                        }
                        let line = comment["line"].as_u64().or(comment["originalLine"].as_u64());
                        let line = line.and_then(|it| u32::try_from(it).ok()).unwrap_or_default();
                        let path = comment["path"].as_str();
                        let is_bot = is_bot(&comment["author"]);
                        found.push(ThreadComment {
                            thread: thread.clone(),
                            id: comment["databaseId"].as_u64().unwrap_or_default().to_string(),
                            can_write: !is_bot && self.can_write(repository, &by).await?,
                            by,
                            position: path.map(|path| (clip(path), line)),
                            text: clip_text(text),
                        });
                    }
                    continue;
                }
            };
            let request = ApiRequest::get(path, OPERATION).what(format!("comment {thread}"));
            let comment: GithubComment = match self.json(request).await {
                // Deleted since.
                Err(Error::NotFound { .. }) => continue,
                other => other?,
            };
            if !is_ours(comment.text(), comment.by(), account) {
                let is_bot = comment.user.as_ref().is_none_or(|it| it.kind == "Bot");
                found.push(ThreadComment {
                    thread: thread.clone(),
                    id: comment.id.to_string(),
                    by: clip(comment.by()),
                    can_write: !is_bot && self.can_write(repository, comment.by()).await?,
                    position: None,
                    text: clip_text(comment.text()),
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
        let since = since.format("%Y-%m-%dT%H:%M:%SZ").to_string();
        let changed = |path: String| {
            ApiRequest::get(path, OPERATION)
                .what(format!("repository {repository}"))
                .query("since", since.as_str())
                .query("sort", "updated")
                .query("direction", "asc")
                .conditional()
        };
        let request = changed(format!("/repos/{repository}/issues")).query("state", "all");
        let (issues, _): (Vec<GithubIssue>, bool) = self.list(request, MAX_PAGES).await?;
        let mut issues: Vec<GithubIssue> =
            issues.into_iter().filter(|it| it.pull_request.is_none()).collect();
        if issues.is_empty() {
            return Ok(Vec::new());
        }
        let request = changed(format!("/repos/{repository}/issues/comments"));
        let (mut comments, has_more): (Vec<GithubComment>, bool) =
            self.list(request, MAX_PAGES).await?;
        if has_more {
            // The newest are missing. The next read continues with the other issues.
            issues.truncate(MAX_ISSUES);
            comments.clear();
            for issue in &issues {
                let path = format!("/repos/{repository}/issues/{}/comments", issue.number);
                let (own, _): (Vec<GithubComment>, bool) =
                    self.list(changed(path), MAX_PAGES).await?;
                comments.extend(own);
            }
        }
        let account = self.account().await?;
        let is_foreign = |it: &GithubComment| !is_ours(it.text(), it.by(), account);
        let mut by_issue = group_by_issue(comments, |it| it.issue_url.as_str(), is_foreign);
        let mut found = Vec::new();
        for issue in issues {
            let mut comments = Vec::new();
            for comment in by_issue.remove(&issue.number).unwrap_or_default() {
                let bot = comment.user.as_ref().is_some_and(|it| it.kind == "Bot");
                comments.push(IssueComment {
                    id: comment.id.to_string(),
                    by: clip(comment.by()),
                    can_write: !bot && self.can_write(repository, comment.by()).await?,
                    bot,
                    text: clip_text(comment.text()),
                });
            }
            let labels = issue.labels.iter().filter_map(|it| it["name"].as_str().or(it.as_str()));
            let by = issue.user.as_ref().map_or("ghost", |it| it.login.as_str());
            let is_bot = issue.user.as_ref().is_none_or(|it| it.kind == "Bot");
            found.push(IntakeIssue {
                number: issue.number,
                title: clip_text(&issue.title),
                body: clip_text(issue.body.as_deref().unwrap_or_default()),
                by: clip(by),
                can_write: !is_bot && self.can_write(repository, by).await?,
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
        let path = format!("/repos/{repository}/issues/{number}/events");
        let request = ApiRequest::get(path, OPERATION).conditional();
        let listed = self.list::<Value>(request, MAX_PAGES).await;
        // Of an incomplete list, nobody knows the last one.
        let Some(events) = complete_list(listed)? else { return Ok(None) };
        // Oldest first.
        let last = events.iter().rposition(|it| {
            let name = it["label"]["name"].as_str();
            it["event"] == "labeled" && name.is_some_and(|it| it.eq_ignore_ascii_case(label))
        });
        let mut since = events.iter().skip(last.unwrap_or(events.len()));
        let Some(set) = since.next() else { return Ok(None) };
        let actor = Some(&set["actor"]).filter(|it| it["type"] != "Bot");
        let Some(by) = actor.and_then(|it| it["login"].as_str()) else { return Ok(None) };
        // Title and text must be those that the account saw.
        let renamed = since.rfind(|it| it["event"] == "renamed").map(|it| login(&it["actor"]));
        let edited = self.edited_since(repository, number, &set["created_at"]).await?;
        for editor in renamed.iter().chain(&edited) {
            if !self.can_write(repository, editor).await? {
                return Ok(None);
            }
        }
        Ok(self.can_write(repository, by).await?.then(|| clip(by)))
    }

    /// Returns the account that edited the text of an issue last, if that was after a time. Without a
    /// time, each edit counts.
    async fn edited_since(
        &self,
        repository: &str,
        number: u64,
        since: &Value,
    ) -> Result<Option<String>, Error> {
        const QUERY: &str = "query($owner: String!, $name: String!, $number: Int!) { \
            repository(owner: $owner, name: $name) { issue(number: $number) { \
            lastEditedAt editor { __typename login } } } }";
        let (owner, name) = repository.split_once('/').unwrap_or_default();
        let variables = json!({ "owner": owner, "name": name, "number": number });
        let data = self.graphql("read who edited an issue", QUERY, variables).await?;
        let issue = &data["repository"]["issue"];
        let time = |value: &Value| value.as_str().and_then(|it| it.parse::<Timestamp>().ok());
        let is_later = time(&issue["lastEditedAt"]).is_some_and(|at| Some(at) >= time(since));
        Ok(is_later.then(|| login(&issue["editor"])))
    }
}
