//! Client for GitLab.

mod comments;
mod observe;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use tamma_core::forge::ForgeCapabilities;
use tamma_core::ids::CommitId;
use tamma_core::rules::MergeMethod;
use tokio::sync::OnceCell;

use super::api::{ApiClient, ApiLogin, ApiRequest, escape};
use super::facts::{Remembered, clip, draft_title};
use super::{
    ChangeUpdate, CheckReport, Error, ForgeReport, ForgeSettings, FoundChange, GitLogin,
    MergeOutcome, NewChange,
};

/// Most entries of a page.
const PAGE: (&str, usize) = ("per_page", 100);

/// Start of the title of a draft.
const DRAFT: &str = "Draft: ";

/// Longest description of a commit status, in characters.
const MAX_DESCRIPTION: usize = 250;

/// Access level of developers, who can push.
const DEVELOPER: u64 = 30;

/// Parts of a delivery that GitLab has.
pub(super) const CAPABILITIES: ForgeCapabilities =
    ForgeCapabilities { ref_cas: false, rerun_checks: true };

/// Client for GitLab.
#[derive(Debug, Clone)]
pub struct GitlabClient {
    api: ApiClient,
    login: ApiLogin,
    git: GitLogin,
    account: Arc<OnceCell<String>>,
    /// Accounts with write access, by repository and ID of the account.
    writers: Remembered<bool>,
    /// Projects in which a pipeline has to pass, by repository.
    pipeline_required: Remembered<bool>,
}

/// Merge request.
#[derive(Deserialize)]
struct GitlabMergeRequest {
    iid: u64,
    web_url: String,
    state: String,
    title: String,
    #[serde(default)]
    sha: Option<String>,
    #[serde(default)]
    draft: bool,
    #[serde(default)]
    target_branch: String,
    /// Project of the branch with the change. Forks have another one, and a deleted fork none.
    #[serde(default)]
    source_project_id: Option<u64>,
    #[serde(default)]
    target_project_id: Option<u64>,
    #[serde(default)]
    has_conflicts: bool,
    #[serde(default)]
    merge_status: Option<String>,
    #[serde(default)]
    detailed_merge_status: Option<String>,
    #[serde(default)]
    merge_commit_sha: Option<String>,
    #[serde(default)]
    squash_commit_sha: Option<String>,
    #[serde(default)]
    merged_by: Option<GitlabUser>,
    #[serde(default)]
    merge_user: Option<GitlabUser>,
    #[serde(default)]
    closed_by: Option<GitlabUser>,
    #[serde(default)]
    head_pipeline: Option<GitlabPipeline>,
}

#[derive(Deserialize)]
struct GitlabPipeline {
    id: u64,
    #[serde(default)]
    sha: String,
}

#[derive(Deserialize, Clone)]
struct GitlabUser {
    id: u64,
    username: String,
    #[serde(default)]
    bot: bool,
}

/// Commit status or job. A commit's statuses contain its jobs.
#[derive(Deserialize)]
struct GitlabStatus {
    id: u64,
    name: String,
    status: String,
    #[serde(default)]
    allow_failure: bool,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    target_url: Option<String>,
}

impl GitlabUser {
    /// Tokens of projects and groups have accounts of their own.
    fn is_bot(&self) -> bool {
        let is_token = self.username.starts_with("project_") || self.username.starts_with("group_");
        self.bot || (is_token && self.username.contains("_bot"))
    }
}

impl GitlabMergeRequest {
    /// Returns the commit on the target branch. A fast-forward merge has none of its own.
    fn merge_commit(&self) -> Option<CommitId> {
        let shas = [&self.merge_commit_sha, &self.squash_commit_sha, &self.sha];
        shas.into_iter().flatten().find_map(|it| it.parse().ok())
    }
}

impl GitlabClient {
    pub(super) fn open(settings: &ForgeSettings) -> Result<Self, Error> {
        let api = ApiClient::open(&settings.name, &settings.api_url())?;
        let token = api.token(&settings.credential)?;
        Ok(Self {
            login: ApiLogin::new("private-token", token),
            git: GitLogin { user: "oauth2".to_owned(), password: token.to_owned() },
            api,
            account: Arc::default(),
            writers: Remembered::default(),
            pipeline_required: Remembered::default(),
        })
    }

    pub(super) fn name(&self) -> &str {
        self.api.forge()
    }

    pub(super) fn quota_left(&self) -> Option<f64> {
        self.api.quota_left()
    }

    pub(super) fn git_login(&self) -> GitLogin {
        self.git.clone()
    }

    async fn json<T: serde::de::DeserializeOwned>(&self, request: ApiRequest) -> Result<T, Error> {
        self.api.json(&self.login, request).await
    }

    async fn list<T: serde::de::DeserializeOwned>(
        &self,
        request: ApiRequest,
        max_pages: u32,
    ) -> Result<(Vec<T>, bool), Error> {
        self.api.list(&self.login, request, PAGE, max_pages).await
    }

    /// Returns the account that writes our comments.
    async fn account(&self) -> Result<&str, Error> {
        let read = self.account.get_or_try_init(|| async {
            let user: GitlabUser = self.json(ApiRequest::get("/user", "read the account")).await?;
            Ok::<_, Error>(user.username)
        });
        read.await.map(String::as_str)
    }

    pub(super) async fn check(&self, repository: Option<&str>) -> Result<ForgeReport, Error> {
        let account = self.account().await?.to_owned();
        let mut missing = Vec::new();
        let request = ApiRequest::get("/personal_access_tokens/self", "read the scopes");
        // Tokens of another kind do not tell their scopes.
        if let Ok(token) = self.json::<Value>(request).await {
            let scopes = token["scopes"].as_array().into_iter().flatten();
            let scopes: Vec<&str> = scopes.filter_map(Value::as_str).collect();
            if !scopes.contains(&"api") {
                missing.push("scope `api`: open merge requests, write comments".to_owned());
                if !scopes.contains(&"write_repository") {
                    missing.push("scope `write_repository`: push branches".to_owned());
                }
            }
        }
        if let Some(repository) = repository {
            let request = ApiRequest::get(project(repository), "read the project");
            let found: Value = self.json(request.what(format!("project {repository}"))).await?;
            let level = |key: &str| found["permissions"][key]["access_level"].as_u64();
            let level = level("project_access").max(level("group_access"));
            if level.is_some_and(|it| it < DEVELOPER) {
                missing.push(format!("role Developer in {repository}: push branches"));
            }
        }
        let version = self.api.version(&self.login).await;
        Ok(ForgeReport { account, version, missing })
    }

    fn found(
        &self,
        change: &GitlabMergeRequest,
        operation: &'static str,
    ) -> Result<FoundChange, Error> {
        let head = change.sha.as_deref().unwrap_or_default();
        let head = head.parse().map_err(|_| self.api.unreadable(operation))?;
        let (number, url) = (change.iid, change.web_url.clone());
        Ok(FoundChange { number, url, head, open: change.state == "opened" })
    }

    pub(super) async fn find_change(
        &self,
        repository: &str,
        branch: &str,
        base: &str,
    ) -> Result<Option<FoundChange>, Error> {
        const OPERATION: &str = "find a merge request";
        let path = format!("{}/merge_requests", project(repository));
        let request = ApiRequest::get(path, OPERATION)
            .what(format!("project {repository}"))
            .query("source_branch", branch)
            .query("target_branch", base)
            .query("state", "all")
            .query("order_by", "created_at")
            .query("sort", "desc")
            .query("per_page", "100");
        let found: Vec<GitlabMergeRequest> = self.json(request).await?;
        // Anybody can name a branch of a fork like ours.
        let own = found.iter().filter(|it| it.source_project_id == it.target_project_id);
        let newest = own.max_by_key(|it| it.iid);
        newest.map(|it| self.found(it, OPERATION)).transpose()
    }

    pub(super) async fn open_change(
        &self,
        repository: &str,
        change: &NewChange,
    ) -> Result<FoundChange, Error> {
        const OPERATION: &str = "open a merge request";
        let mut reviewers = Vec::new();
        for name in &change.reviewers {
            let request = ApiRequest::get("/users", OPERATION).query("username", name.as_str());
            let users: Vec<GitlabUser> = self.json(request).await?;
            reviewers.extend(users.first().map(|it| it.id));
        }
        let body = json!({
            "source_branch": change.branch, "target_branch": change.base,
            "title": draft_title(DRAFT, &change.title, false), "description": change.body,
            "labels": change.labels.join(","), "reviewer_ids": reviewers,
            "remove_source_branch": false,
        });
        let path = format!("{}/merge_requests", project(repository));
        let request = ApiRequest::post(path, OPERATION, body).what(format!("project {repository}"));
        let opened: GitlabMergeRequest = self.json(request).await?;
        if opened.sha.is_some() {
            return self.found(&opened, OPERATION);
        }
        // The commit is filled in shortly after.
        let opened = self.merge_request(repository, opened.iid).await?;
        self.found(&opened, OPERATION)
    }

    async fn merge_request(
        &self,
        repository: &str,
        number: u64,
    ) -> Result<GitlabMergeRequest, Error> {
        let path = format!("{}/merge_requests/{number}", project(repository));
        let request = ApiRequest::get(path, "read a merge request");
        self.json(request.what(format!("merge request {repository}!{number}"))).await
    }

    pub(super) async fn update_change(
        &self,
        repository: &str,
        number: u64,
        update: &ChangeUpdate,
    ) -> Result<(), Error> {
        let mut body = serde_json::Map::new();
        if let Some(title) = &update.title {
            let present = self.merge_request(repository, number).await?;
            let title = draft_title(DRAFT, title, present.draft);
            if title != present.title {
                body.insert("title".to_owned(), json!(title));
            }
        }
        if let Some(text) = &update.body {
            body.insert("description".to_owned(), json!(text));
        }
        if update.close {
            body.insert("state_event".to_owned(), json!("close"));
        }
        if body.is_empty() {
            return Ok(());
        }
        let path = format!("{}/merge_requests/{number}", project(repository));
        let request =
            ApiRequest::new(Method::PUT, path, "update a merge request").body(Value::Object(body));
        let request = request.what(format!("merge request {repository}!{number}"));
        self.api.send(&self.login, request).await.map(|_| ())
    }

    /// Returns the newest status of each name, including jobs. The second value is `true` if there are
    /// more.
    async fn statuses(
        &self,
        repository: &str,
        commit: &str,
        operation: &'static str,
    ) -> Result<(Vec<GitlabStatus>, bool), Error> {
        let path =
            format!("{}/repository/commits/{}/statuses", project(repository), escape(commit));
        let request = ApiRequest::get(path, operation).what(format!("commit {commit}"));
        self.list(request, 3).await
    }

    pub(super) async fn publish_check(
        &self,
        repository: &str,
        report: &CheckReport,
    ) -> Result<String, Error> {
        const OPERATION: &str = "publish a check";
        let state = match report.passed {
            None => "running",
            Some(true) => "success",
            Some(false) => "failed",
        };
        let description: String = report.title.chars().take(MAX_DESCRIPTION).collect();
        let commit = report.commit.to_string();
        let (known, _) = self.statuses(repository, &commit, OPERATION).await?;
        let known = known.iter().filter(|it| it.name == report.name).max_by_key(|it| it.id);
        // The forge refuses the same state again.
        if let Some(known) = known
            && known.status == state
        {
            return Ok(known.id.to_string());
        }
        let mut body = json!({ "state": state, "name": report.name, "description": description });
        if let Some(url) = &report.details_url {
            body["target_url"] = json!(url);
        }
        let path = format!("{}/statuses/{commit}", project(repository));
        let request = ApiRequest::post(path, OPERATION, body).what(format!("commit {commit}"));
        let published: GitlabStatus = self.json(request).await?;
        Ok(published.id.to_string())
    }

    pub(super) async fn merge(
        &self,
        repository: &str,
        number: u64,
        expected_head: CommitId,
        method: MergeMethod,
    ) -> Result<MergeOutcome, Error> {
        const OPERATION: &str = "merge a merge request";
        let path = format!("{}/merge_requests/{number}/merge", project(repository));
        // Merge commits and rebases are a setting of the project.
        let body = json!({
            "sha": expected_head.to_string(), "squash": method == MergeMethod::Squash,
            "should_remove_source_branch": false,
        });
        let request = ApiRequest::new(Method::PUT, path, OPERATION).body(body);
        let request = request.what(format!("merge request {repository}!{number}"));
        let refusal = match self.json::<GitlabMergeRequest>(request).await {
            Ok(merged) if merged.state == "merged" => {
                let commit = merged.merge_commit();
                let commit = commit.ok_or_else(|| self.api.unreadable(OPERATION))?;
                return Ok(MergeOutcome::Merged(commit));
            }
            Ok(_) => self.api.conflict(OPERATION, "the merge has not finished yet"),
            // 401 is also the answer to an account that cannot merge, and 405 to a merged one.
            Err(error @ (Error::Refused { .. } | Error::Forbidden { .. })) => error,
            Err(error) => return Err(error),
        };
        let present = self.merge_request(repository, number).await?;
        match present.merge_commit() {
            Some(commit)
                if present.state == "merged"
                    && present.sha.as_deref() == Some(&*expected_head.to_string()) =>
            {
                Ok(MergeOutcome::Merged(commit))
            }
            _ => Err(refusal),
        }
    }

    pub(super) async fn failed_check_log(
        &self,
        repository: &str,
        check: &str,
    ) -> Result<String, Error> {
        const OPERATION: &str = "read a log";
        let missing = || self.api.not_found(format!("check {}", clip(check)));
        let (commit, id) = check.split_once(':').ok_or_else(missing)?;
        let id: u64 = id.parse().map_err(|_| missing())?;
        let path = format!("{}/jobs/{id}/trace", project(repository));
        let request = ApiRequest::get(path, OPERATION).what(format!("log of job {id}"));
        match self.api.log_tail(&self.login, request.accept("text/plain")).await {
            // A status of another service has no log here.
            Err(Error::NotFound { .. }) => {}
            other => return other,
        }
        let (statuses, _) = self.statuses(repository, commit, OPERATION).await?;
        let status = statuses.into_iter().find(|it| it.id == id).ok_or_else(missing)?;
        let lines = [Some(status.name), status.description, status.target_url];
        let lines: Vec<String> = lines.into_iter().flatten().collect();
        Ok(super::facts::clip_text(&lines.join("\n")))
    }

    pub(super) async fn rerun_check(&self, repository: &str, check: &str) -> Result<(), Error> {
        let id = check.split_once(':').and_then(|(_, id)| id.parse::<u64>().ok());
        let id = id.ok_or_else(|| self.api.not_found(format!("check {}", clip(check))))?;
        let path = format!("{}/jobs/{id}/retry", project(repository));
        let request = ApiRequest::new(Method::POST, path, "run a check again");
        self.api.send(&self.login, request.what(format!("job {id}"))).await.map(|_| ())
    }

    /// Returns `true` if the project requires a pipeline: GitLab requires pipelines, not checks. Then all
    /// checks of a pipeline are marked as required.
    async fn requires_pipeline(&self, repository: &str) -> Result<bool, Error> {
        if let Some(known) = self.pipeline_required.get(repository) {
            return Ok(known);
        }
        let request = ApiRequest::get(project(repository), "read the project");
        let found: Value = self.json(request.what(format!("project {repository}"))).await?;
        let required = found["only_allow_merge_if_pipeline_succeeds"] == true;
        self.pipeline_required.insert(repository, required);
        Ok(required)
    }

    /// Returns `true` if an account can push to a repository.
    async fn can_write(&self, repository: &str, user: &GitlabUser) -> Result<bool, Error> {
        let key = format!("{repository} {}", user.id);
        if let Some(known) = self.writers.get(&key) {
            return Ok(known);
        }
        let path = format!("{}/members/all/{}", project(repository), user.id);
        let request = ApiRequest::get(path, "read the permission of an account");
        let can_write = match self.json::<Value>(request).await {
            Ok(found) => {
                let is_active = found["state"].as_str().is_none_or(|it| it == "active");
                is_active && found["access_level"].as_u64().is_some_and(|it| it >= DEVELOPER)
            }
            Err(Error::NotFound { .. }) => false,
            Err(error) => return Err(error),
        };
        self.writers.insert(&key, can_write);
        Ok(can_write)
    }
}

/// Returns the path of a project in the API.
fn project(repository: &str) -> String {
    format!("/projects/{}", escape(repository))
}
