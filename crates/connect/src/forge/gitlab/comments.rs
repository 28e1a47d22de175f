//! Notes on issues and merge requests, and issues that may become tasks.

use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use tamma_core::forge::ReviewVerdict;
use tamma_core::time::Timestamp;

use super::super::api::{ApiRequest, complete_list, escape};
use super::super::facts::{
    ThreadNote, clip, clip_text, has_marker, is_ours, marked_body, marker_line,
};
use super::super::{CommentTarget, Error, IntakeIssue, IssueComment, ThreadComment};
use super::{GitlabClient, GitlabUser, project};

/// Most pages of a list.
const MAX_PAGES: u32 = 10;

/// Most issues of one read whose notes are read, too. The next read continues.
const MAX_ISSUES: usize = 200;

const WRITE: &str = "write a comment";

/// Thread of notes.
#[derive(Deserialize)]
pub(super) struct GitlabDiscussion {
    pub(super) id: String,
    #[serde(default)]
    pub(super) notes: Vec<GitlabNote>,
}

/// Comment, or an event that the forge notes.
#[derive(Deserialize)]
pub(super) struct GitlabNote {
    pub(super) id: u64,
    #[serde(default)]
    body: String,
    pub(super) author: GitlabUser,
    #[serde(default)]
    pub(super) system: bool,
    #[serde(default)]
    pub(super) resolvable: bool,
    #[serde(default)]
    pub(super) resolved: bool,
    pub(super) created_at: Timestamp,
    #[serde(default)]
    position: Option<GitlabPosition>,
}

#[derive(Deserialize)]
struct GitlabPosition {
    #[serde(default)]
    new_path: Option<String>,
    #[serde(default)]
    old_path: Option<String>,
    #[serde(default)]
    new_line: Option<u32>,
    #[serde(default)]
    old_line: Option<u32>,
}

impl GitlabNote {
    pub(super) fn note(&self) -> ThreadNote {
        ThreadNote {
            id: self.id.to_string(),
            by: self.author.username.clone(),
            bot: self.author.is_bot(),
            text: self.body.clone(),
        }
    }

    /// Returns `true` for the event of a verdict.
    pub(super) fn tells_of(&self, verdict: ReviewVerdict) -> bool {
        let text = match verdict {
            ReviewVerdict::Approved => "approved this merge request",
            ReviewVerdict::ChangesRequested => "requested changes",
            ReviewVerdict::Commented => "left review comments",
        };
        self.system && self.body.starts_with(text)
    }

    /// Returns `true` for the event of an edit.
    fn tells_of_an_edit(&self) -> bool {
        let texts = ["changed the description", "changed title"];
        self.system && texts.iter().any(|text| self.body.starts_with(text))
    }

    fn is_ours(&self, account: &str) -> bool {
        is_ours(&self.body, &self.author.username, account)
    }

    fn place(&self) -> Option<(String, u32)> {
        let position = self.position.as_ref()?;
        let path = position.new_path.as_ref().or(position.old_path.as_ref())?;
        Some((clip(path), position.new_line.or(position.old_line).unwrap_or_default()))
    }
}

#[derive(Deserialize)]
struct GitlabIssue {
    iid: u64,
    title: String,
    #[serde(default)]
    description: Option<String>,
    author: GitlabUser,
    web_url: String,
    state: String,
    updated_at: Timestamp,
    #[serde(default)]
    labels: Vec<String>,
}

impl GitlabClient {
    pub(super) async fn discussions(
        &self,
        repository: &str,
        number: u64,
        operation: &'static str,
    ) -> Result<(Vec<GitlabDiscussion>, bool), Error> {
        let path = format!("{}/merge_requests/{number}/discussions", project(repository));
        let request = ApiRequest::get(path, operation);
        self.list(request.what(format!("merge request {repository}!{number}")), MAX_PAGES).await
    }

    pub(in crate::forge) async fn upsert_comment(
        &self,
        repository: &str,
        target: &CommentTarget,
        marker: &str,
        body: &str,
    ) -> Result<String, Error> {
        let line = marker_line(marker);
        let body = marked_body(body, &line, None);
        let project = project(repository);
        match target {
            CommentTarget::Issue(number) => {
                self.upsert_note(&format!("{project}/issues/{number}/notes"), &line, &body).await
            }
            CommentTarget::PullRequest(number) => {
                let path = format!("{project}/merge_requests/{number}/notes");
                self.upsert_note(&path, &line, &body).await
            }
            CommentTarget::Thread { number, thread, resolve } => {
                let path =
                    format!("{project}/merge_requests/{number}/discussions/{}", escape(thread));
                let what = format!("thread {}", clip(thread));
                let request = ApiRequest::get(&path, WRITE).what(&what);
                let discussion: GitlabDiscussion = self.json(request).await?;
                let notes_path = format!("{path}/notes");
                let written = self.write_note(&notes_path, &discussion.notes, &line, &body).await?;
                let is_resolvable = discussion.notes.iter().any(|it| it.resolvable);
                if *resolve && is_resolvable {
                    let request = ApiRequest::new(Method::PUT, path, "resolve a thread")
                        .what(what)
                        .query("resolved", "true");
                    self.api.send(&self.login, request).await?;
                }
                Ok(written)
            }
        }
    }

    async fn upsert_note(&self, path: &str, line: &str, body: &str) -> Result<String, Error> {
        let (notes, has_more): (Vec<GitlabNote>, bool) =
            self.list(ApiRequest::get(path, WRITE), MAX_PAGES).await?;
        let account = self.account().await?;
        let is_known = notes.iter().any(|it| has_marker(&it.body, line) && it.is_ours(account));
        if has_more && !is_known {
            return Err(self.api.refused(WRITE, "there are more than 1,000 comments to search"));
        }
        self.write_note(path, &notes, line, body).await
    }

    /// Replaces our note with this marker, or adds one.
    async fn write_note(
        &self,
        path: &str,
        notes: &[GitlabNote],
        line: &str,
        body: &str,
    ) -> Result<String, Error> {
        let account = self.account().await?;
        let known = notes.iter().find(|it| has_marker(&it.body, line) && it.is_ours(account));
        let content = json!({ "body": body });
        match known {
            Some(known) if known.body == body => Ok(known.id.to_string()),
            Some(known) => {
                let path = format!("{path}/{}", known.id);
                let request = ApiRequest::new(Method::PUT, path, WRITE).body(content);
                let written: GitlabNote = self.json(request).await?;
                Ok(written.id.to_string())
            }
            None => {
                let written: GitlabNote = self.json(ApiRequest::post(path, WRITE, content)).await?;
                Ok(written.id.to_string())
            }
        }
    }

    pub(in crate::forge) async fn thread_comments(
        &self,
        repository: &str,
        number: u64,
        threads: &[String],
    ) -> Result<Vec<ThreadComment>, Error> {
        let account = self.account().await?;
        let (discussions, _) = self.discussions(repository, number, "read comments").await?;
        let mut found = Vec::new();
        for discussion in &discussions {
            if !threads.contains(&discussion.id) {
                continue;
            }
            for note in &discussion.notes {
                if note.system || note.is_ours(account) {
                    continue;
                }
                found.push(ThreadComment {
                    thread: discussion.id.clone(),
                    id: note.id.to_string(),
                    by: clip(&note.author.username),
                    can_write: !note.author.is_bot()
                        && self.can_write(repository, &note.author).await?,
                    position: note.place(),
                    text: clip_text(&note.body),
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
        let request = ApiRequest::get(format!("{}/issues", project(repository)), OPERATION)
            .what(format!("project {repository}"))
            .query("updated_after", since.format("%Y-%m-%dT%H:%M:%SZ").to_string())
            .query("state", "all")
            .query("order_by", "updated_at")
            .query("sort", "asc")
            .conditional();
        let (issues, _): (Vec<GitlabIssue>, bool) = self.list(request, MAX_PAGES).await?;
        let account = self.account().await?;
        let mut found = Vec::new();
        for issue in issues.into_iter().take(MAX_ISSUES) {
            let path = format!("{}/issues/{}/notes", project(repository), issue.iid);
            let request = ApiRequest::get(path, OPERATION).query("sort", "asc").conditional();
            let (notes, _): (Vec<GitlabNote>, bool) = self.list(request, MAX_PAGES).await?;
            let mut comments = Vec::new();
            let is_new =
                |it: &&GitlabNote| !it.system && it.created_at >= since && !it.is_ours(account);
            for note in notes.iter().filter(is_new) {
                let bot = note.author.is_bot();
                comments.push(IssueComment {
                    id: note.id.to_string(),
                    by: clip(&note.author.username),
                    can_write: !bot && self.can_write(repository, &note.author).await?,
                    bot,
                    text: clip_text(&note.body),
                });
            }
            let is_person = !issue.author.is_bot();
            found.push(IntakeIssue {
                number: issue.iid,
                title: clip_text(&issue.title),
                body: clip_text(issue.description.as_deref().unwrap_or_default()),
                by: clip(&issue.author.username),
                can_write: is_person && self.can_write(repository, &issue.author).await?,
                url: issue.web_url,
                labels: issue.labels.iter().map(|it| clip(it)).collect(),
                open: issue.state == "opened",
                updated_at: issue.updated_at,
                comments,
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
        let issue = format!("{}/issues/{number}", project(repository));
        let request = ApiRequest::get(format!("{issue}/resource_label_events"), OPERATION);
        let listed = self.list::<Value>(request, MAX_PAGES).await;
        // Of an incomplete list, nobody knows the last one.
        let Some(events) = complete_list(listed)? else { return Ok(None) };
        // Oldest first.
        let last = events.into_iter().rev().find(|it| {
            let name = it["label"]["name"].as_str();
            it["action"] == "add" && name.is_some_and(|it| it.eq_ignore_ascii_case(label))
        });
        let Some(mut last) = last else { return Ok(None) };
        let set_at = last["created_at"].as_str().and_then(|it| it.parse::<Timestamp>().ok());
        let user: Option<GitlabUser> = serde_json::from_value(last["user"].take()).ok();
        let Some(user) = user.filter(|it| !it.is_bot()) else { return Ok(None) };
        // Title and text must be those that the account saw.
        let request = ApiRequest::get(format!("{issue}/notes"), OPERATION).query("sort", "asc");
        let (notes, has_more): (Vec<GitlabNote>, bool) = self.list(request, MAX_PAGES).await?;
        let edit = notes.iter().rfind(|it| it.tells_of_an_edit() && Some(it.created_at) >= set_at);
        let is_changed = match edit {
            Some(edit) => !self.can_write(repository, &edit.author).await?,
            None => false,
        };
        if has_more || is_changed {
            return Ok(None);
        }
        Ok(self.can_write(repository, &user).await?.then(|| clip(&user.username)))
    }
}
