//! Client for Gitea and Forgejo.

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
use tamma_core::time::Timestamp;
use tokio::sync::OnceCell;

use super::api::{ApiClient, ApiLogin, ApiRequest, escape, escape_branch};
use super::facts::{Remembered, clip, draft_title};
use super::{
    ChangeUpdate, CheckReport, Error, ForgeReport, ForgeSettings, FoundChange, GitLogin,
    MergeOutcome, NewChange,
};

/// Most entries of a page. Servers can allow fewer.
const PAGE: (&str, usize) = ("limit", 50);

/// Start of the title of a draft.
const DRAFT: &str = "WIP: ";

/// Longest description of a commit status, in characters.
const MAX_DESCRIPTION: usize = 250;

/// Parts of a delivery that Gitea has.
pub(super) const CAPABILITIES: ForgeCapabilities =
    ForgeCapabilities { ref_cas: false, rerun_checks: true };

/// Client for Gitea and Forgejo.
#[derive(Debug, Clone)]
pub struct GiteaClient {
    api: ApiClient,
    login: ApiLogin,
    token: SecretToken,
    account: Arc<OnceCell<String>>,
    /// Accounts with write access, by repository and account.
    writers: Remembered<bool>,
    /// Required checks, by repository and branch.
    required: Remembered<Vec<String>>,
    /// Times at which pull requests were first seen as not mergeable, by repository, number and
    /// commits.
    unmergeable: Remembered<Timestamp>,
}

/// Access token.
#[derive(Clone)]
struct SecretToken(String);

impl std::fmt::Debug for SecretToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretToken")
    }
}

/// Pull request.
#[derive(Deserialize)]
struct GiteaPull {
    number: u64,
    html_url: String,
    state: String,
    title: String,
    #[serde(default)]
    draft: bool,
    #[serde(default)]
    merged: bool,
    #[serde(default)]
    mergeable: bool,
    #[serde(default)]
    merge_commit_sha: Option<String>,
    #[serde(default)]
    merged_by: Option<GiteaUser>,
    head: GiteaBranch,
    base: GiteaBranch,
}

#[derive(Deserialize)]
struct GiteaBranch {
    #[serde(default)]
    label: String,
    #[serde(rename = "ref", default)]
    name: String,
    #[serde(default)]
    sha: String,
    /// Repository of the branch. Forks have another one.
    #[serde(default)]
    repo_id: i64,
}

#[derive(Deserialize, Clone)]
struct GiteaUser {
    #[serde(default)]
    login: String,
}

#[derive(Deserialize)]
struct GiteaObject {
    id: u64,
}

/// Commit status.
#[derive(Deserialize)]
struct GiteaStatus {
    id: u64,
    #[serde(default)]
    status: String,
    #[serde(default)]
    context: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    target_url: String,
}

/// Newest commit status of each context.
#[derive(Deserialize)]
struct GiteaCombinedStatus {
    #[serde(default)]
    total_count: usize,
    #[serde(default)]
    statuses: Option<Vec<GiteaStatus>>,
}

impl GiteaPull {
    /// Returns `true` unless the change is on a branch of a fork, which anybody can name like ours.
    fn is_own(&self) -> bool {
        self.head.repo_id == self.base.repo_id
    }

    fn merge_commit(&self) -> Option<CommitId> {
        self.merge_commit_sha.as_deref().and_then(|it| it.parse().ok())
    }
}

impl GiteaClient {
    pub(super) fn open(settings: &ForgeSettings) -> Result<Self, Error> {
        let api = ApiClient::open(&settings.name, &settings.api_url())?;
        let token = api.token(&settings.credential)?;
        Ok(Self {
            login: ApiLogin::new("authorization", &format!("token {token}")),
            token: SecretToken(token.to_owned()),
            api,
            account: Arc::default(),
            writers: Remembered::default(),
            required: Remembered::default(),
            unmergeable: Remembered::default(),
        })
    }

    pub(super) fn name(&self) -> &str {
        self.api.forge()
    }

    pub(super) fn quota_left(&self) -> Option<f64> {
        self.api.quota_left()
    }

    pub(super) async fn git_login(&self) -> Result<GitLogin, Error> {
        let user = self.account().await?.to_owned();
        Ok(GitLogin { user, password: self.token.0.clone() })
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
            const OPERATION: &str = "read the account";
            let user: GiteaUser = self.json(ApiRequest::get("/user", OPERATION)).await?;
            // Without a name, our own comments would be somebody else's.
            if user.login.is_empty() {
                return Err(self.api.unreadable(OPERATION));
            }
            Ok(user.login)
        });
        read.await.map(String::as_str)
    }

    pub(super) async fn check(&self, repository: Option<&str>) -> Result<ForgeReport, Error> {
        let mut missing = Vec::new();
        let account = match self.account().await {
            Ok(account) => account.to_owned(),
            Err(Error::Forbidden { reason, .. }) if reason.contains("scope") => {
                missing.push(format!("scope `read:user`: read the account ({reason})"));
                String::new()
            }
            Err(error) => return Err(error),
        };
        let version = self.api.version(&self.login).await;
        if let Some(repository) = repository {
            let what = format!("repository {repository}");
            let request = ApiRequest::get(format!("/repos/{repository}"), "read the repository");
            match self.json::<Value>(request.what(&what)).await {
                Ok(found) => {
                    if found["permissions"]["push"] == false {
                        missing.push(format!("write access to {repository}: push branches"));
                    }
                }
                Err(Error::Forbidden { reason, .. }) => {
                    missing.push(format!("scope `write:repository`: push branches ({reason})"));
                }
                Err(error) => return Err(error),
            }
            let path = format!("/repos/{repository}/issues");
            let request = ApiRequest::get(path, "list issues").query("limit", "1").what(&what);
            match self.json::<Value>(request).await {
                Ok(_) | Err(Error::NotFound { .. }) => {}
                Err(Error::Forbidden { reason, .. }) => {
                    missing.push(format!("scope `write:issue`: write comments ({reason})"));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(ForgeReport { account, version, missing })
    }

    fn found(&self, pull: &GiteaPull, operation: &'static str) -> Result<FoundChange, Error> {
        let head = pull.head.sha.parse().map_err(|_| self.api.unreadable(operation))?;
        let (number, url) = (pull.number, pull.html_url.clone());
        Ok(FoundChange { number, url, head, open: pull.state == "open" })
    }

    pub(super) async fn find_change(
        &self,
        repository: &str,
        branch: &str,
        base: &str,
    ) -> Result<Option<FoundChange>, Error> {
        const OPERATION: &str = "find a pull request";
        let path = format!("/repos/{repository}/pulls/{}/{}", escape(base), escape_branch(branch));
        match self.json::<GiteaPull>(ApiRequest::get(path, OPERATION)).await {
            Ok(pull) if pull.is_own() => return self.found(&pull, OPERATION).map(Some),
            Ok(_) | Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        // Forgejo filters by both branches; Gitea ignores them, and lists the newest ones.
        let request = ApiRequest::get(format!("/repos/{repository}/pulls"), OPERATION)
            .what(format!("repository {repository}"))
            .query("state", "all")
            .query("sort", "recentupdate")
            .query("base", base)
            .query("head", branch);
        let (pulls, _): (Vec<GiteaPull>, bool) = self.list(request, 1).await?;
        let is_wanted = |it: &&GiteaPull| {
            let is_branch = it.head.name == branch || it.head.label == branch;
            is_branch && it.base.name == base && it.is_own()
        };
        let newest = pulls.iter().filter(is_wanted).max_by_key(|it| it.number);
        newest.map(|pull| self.found(pull, OPERATION)).transpose()
    }

    pub(super) async fn open_change(
        &self,
        repository: &str,
        change: &NewChange,
    ) -> Result<FoundChange, Error> {
        const OPERATION: &str = "open a pull request";
        let labels = self.label_ids(repository, &change.labels).await?;
        let title = draft_title(DRAFT, &change.title, false);
        let body = json!({
            "head": change.branch, "base": change.base, "title": title, "body": change.body,
            "labels": labels,
        });
        let request = ApiRequest::post(format!("/repos/{repository}/pulls"), OPERATION, body)
            .what(format!("repository {repository} or branch {}", change.branch));
        let opened: GiteaPull = self.json(request).await?;
        if !change.reviewers.is_empty() {
            let path = format!("/repos/{repository}/pulls/{}/requested_reviewers", opened.number);
            let body = json!({ "reviewers": change.reviewers });
            let request = ApiRequest::post(path, "ask for reviews", body);
            // The pull request exists; reviewers that the forge refuses do not undo it.
            let _ignored = self.api.send(&self.login, request).await;
        }
        self.found(&opened, OPERATION)
    }

    /// Returns the IDs of labels, and creates those that are missing.
    async fn label_ids(&self, repository: &str, names: &[String]) -> Result<Vec<u64>, Error> {
        const OPERATION: &str = "add labels";
        #[derive(Deserialize)]
        struct GiteaLabel {
            id: u64,
            name: String,
        }
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let path = format!("/repos/{repository}/labels");
        let (known, _): (Vec<GiteaLabel>, bool) =
            self.list(ApiRequest::get(&path, OPERATION), 5).await?;
        let mut ids = Vec::new();
        for name in names {
            if let Some(label) = known.iter().find(|it| it.name == *name) {
                ids.push(label.id);
            } else {
                let body = json!({ "name": name, "color": "#5b8def" });
                let created: Result<GiteaLabel, Error> =
                    self.json(ApiRequest::post(&path, OPERATION, body)).await;
                // A missing label is no reason to open no pull request.
                ids.extend(created.ok().map(|it| it.id));
            }
        }
        Ok(ids)
    }

    async fn pull(&self, repository: &str, number: u64) -> Result<GiteaPull, Error> {
        let path = format!("/repos/{repository}/pulls/{number}");
        let request = ApiRequest::get(path, "read a pull request");
        self.json(request.what(format!("pull request {repository}#{number}"))).await
    }

    pub(super) async fn update_change(
        &self,
        repository: &str,
        number: u64,
        update: &ChangeUpdate,
    ) -> Result<(), Error> {
        let mut body = serde_json::Map::new();
        if let Some(title) = &update.title {
            let pull = self.pull(repository, number).await?;
            let title = draft_title(DRAFT, title, pull.draft);
            if title != pull.title {
                body.insert("title".to_owned(), json!(title));
            }
        }
        if let Some(text) = &update.body {
            body.insert("body".to_owned(), json!(text));
        }
        if update.close {
            body.insert("state".to_owned(), json!("closed"));
        }
        if body.is_empty() {
            return Ok(());
        }
        let path = format!("/repos/{repository}/pulls/{number}");
        let request =
            ApiRequest::new(Method::PATCH, path, "update a pull request").body(Value::Object(body));
        let request = request.what(format!("pull request {repository}#{number}"));
        self.api.send(&self.login, request).await.map(|_| ())
    }

    pub(super) async fn publish_check(
        &self,
        repository: &str,
        report: &CheckReport,
    ) -> Result<String, Error> {
        const OPERATION: &str = "publish a check";
        let state = match report.passed {
            None => "pending",
            Some(true) => "success",
            Some(false) => "failure",
        };
        let description: String = report.title.chars().take(MAX_DESCRIPTION).collect();
        let (known, _) = self.statuses(repository, &report.commit.to_string(), OPERATION).await?;
        let is_same = |it: &&GiteaStatus| {
            it.context == report.name && it.status == state && it.description == description
        };
        if let Some(known) = known.iter().find(is_same) {
            return Ok(known.id.to_string());
        }
        let body = json!({
            "state": state, "context": report.name, "description": description,
            "target_url": report.details_url.as_deref().unwrap_or_default(),
        });
        let path = format!("/repos/{repository}/statuses/{}", report.commit);
        let request = ApiRequest::post(path, OPERATION, body)
            .what(format!("commit {} in {repository}", report.commit));
        let published: GiteaObject = self.json(request).await?;
        Ok(published.id.to_string())
    }

    /// Returns the newest status of each context. The second value is `true` if there are more.
    async fn statuses(
        &self,
        repository: &str,
        commit: &str,
        operation: &'static str,
    ) -> Result<(Vec<GiteaStatus>, bool), Error> {
        let mut all = Vec::new();
        for page in 1..=4 {
            let path = format!("/repos/{repository}/commits/{}/status", escape(commit));
            let request = ApiRequest::get(path, operation)
                .what(format!("commit {commit} in {repository}"))
                .query("limit", "50")
                .query("page", page.to_string());
            let found: GiteaCombinedStatus = self.json(request).await?;
            let statuses = found.statuses.unwrap_or_default();
            let is_last = statuses.is_empty() || all.len() + statuses.len() >= found.total_count;
            all.extend(statuses);
            if is_last {
                return Ok((all, false));
            }
        }
        Ok((all, true))
    }

    pub(super) async fn merge(
        &self,
        repository: &str,
        number: u64,
        expected_head: CommitId,
        method: MergeMethod,
    ) -> Result<MergeOutcome, Error> {
        const OPERATION: &str = "merge a pull request";
        let path = format!("/repos/{repository}/pulls/{number}/merge");
        let body = json!({ "Do": method.to_string(), "head_commit_id": expected_head.to_string() });
        let request = ApiRequest::post(path, OPERATION, body)
            .what(format!("open pull request {repository}#{number}"));
        let refusal = self.api.send(&self.login, request).await.err();
        match refusal {
            // 405 also means that it is merged already.
            None | Some(Error::Refused { .. } | Error::NotFound { .. }) => {}
            Some(error) => return Err(error),
        }
        let pull = self.pull(repository, number).await?;
        let is_expected = pull.head.sha == expected_head.to_string();
        match (pull.merge_commit(), refusal) {
            (Some(commit), _) if pull.merged && is_expected => Ok(MergeOutcome::Merged(commit)),
            (_, Some(_)) if !is_expected => {
                Err(self.api.conflict(OPERATION, "the head is another commit now"))
            }
            // It computes whether the branches conflict.
            (_, Some(Error::Refused { reason, .. })) if reason.contains("try again later") => {
                Err(self.api.conflict(OPERATION, "it is not known yet whether it can be merged"))
            }
            (_, Some(refusal)) => Err(refusal),
            (_, None) => Err(self.api.conflict(OPERATION, "the merge has not finished yet")),
        }
    }

    /// Marks a pull request as merged by a commit of its base branch. Gitea notices a push by itself
    /// only if the repository is set to.
    pub(super) async fn mark_merged(
        &self,
        repository: &str,
        number: u64,
        commit: CommitId,
    ) -> Result<(), Error> {
        if self.pull(repository, number).await?.merged {
            return Ok(());
        }
        let path = format!("/repos/{repository}/pulls/{number}/merge");
        let body = json!({ "Do": "manually-merged", "MergeCommitID": commit.to_string() });
        let request = ApiRequest::post(path, "mark a pull request as merged", body)
            .what(format!("open pull request {repository}#{number}"));
        match self.api.send(&self.login, request).await {
            Ok(_) => Ok(()),
            // It was merged meanwhile, or the answer to an earlier request was lost.
            Err(refusal) => match self.pull(repository, number).await {
                Ok(pull) if pull.merged => Ok(()),
                _ => Err(refusal),
            },
        }
    }

    /// Finds the status of a check, which is `<commit>:<ID>`.
    async fn status_of_check(&self, repository: &str, check: &str) -> Result<GiteaStatus, Error> {
        const OPERATION: &str = "read a check";
        let missing = || self.api.not_found(format!("check {}", clip(check)));
        let (commit, id) = check.split_once(':').ok_or_else(missing)?;
        let path = format!("/repos/{repository}/commits/{}/statuses", escape(commit));
        let request = ApiRequest::get(path, OPERATION).what(format!("check {}", clip(check)));
        let (statuses, _): (Vec<GiteaStatus>, bool) = self.list(request, 4).await?;
        statuses.into_iter().find(|it| it.id.to_string() == id).ok_or_else(missing)
    }

    pub(super) async fn failed_check_log(
        &self,
        repository: &str,
        check: &str,
    ) -> Result<String, Error> {
        let status = self.status_of_check(repository, check).await?;
        if let Some((_, job)) = job_of(repository, &status.target_url) {
            let path = format!("/repos/{repository}/actions/jobs/{job}/logs");
            let request = ApiRequest::get(path, "read a log")
                .what(format!("log of job {job}"))
                .accept("text/plain, application/json");
            match self.api.log_tail(&self.login, request).await {
                // Removed since, or a version without this operation.
                Err(Error::NotFound { .. }) => {}
                other => return other,
            }
        }
        let lines = [status.context, status.description, status.target_url];
        Ok(super::facts::clip_text(&lines.join("\n")))
    }

    pub(super) async fn rerun_check(&self, repository: &str, check: &str) -> Result<(), Error> {
        const OPERATION: &str = "run a check again";
        let status = self.status_of_check(repository, check).await?;
        let Some((run, job)) = job_of(repository, &status.target_url) else {
            return Err(self.api.refused(OPERATION, "only jobs of Actions can be run again"));
        };
        let path = format!("/repos/{repository}/actions/runs/{run}/jobs/{job}/rerun");
        let request = ApiRequest::new(Method::POST, path, OPERATION).what(format!("job {job}"));
        self.api.send(&self.login, request).await.map(|_| ())
    }

    async fn required_checks(&self, repository: &str, branch: &str) -> Result<Vec<String>, Error> {
        let key = format!("{repository} {branch}");
        if let Some(known) = self.required.get(&key) {
            return Ok(known);
        }
        let path = format!("/repos/{repository}/branches/{}", escape_branch(branch));
        let request = ApiRequest::get(path, "read the required checks")
            .what(format!("branch {branch} in {repository}"));
        let found: Value = self.json(request).await?;
        let names: Vec<String> = if found["enable_status_check"] == true {
            let names = found["status_check_contexts"].as_array().into_iter().flatten();
            names.filter_map(Value::as_str).map(clip).collect()
        } else {
            Vec::new()
        };
        self.required.insert(&key, names.clone());
        Ok(names)
    }

    /// Returns `true` if an account can push to a repository.
    async fn can_write(&self, repository: &str, account: &str) -> Result<bool, Error> {
        const OPERATION: &str = "read the permission of an account";
        let key = format!("{repository} {account}");
        if let Some(known) = self.writers.get(&key) {
            return Ok(known);
        }
        let path = format!("/repos/{repository}/collaborators/{}/permission", escape(account));
        let can_write = match self.json::<Value>(ApiRequest::get(path, OPERATION)).await {
            Ok(found) => {
                matches!(found["permission"].as_str(), Some("owner" | "admin" | "write"))
            }
            Err(Error::NotFound { .. }) => false,
            // Only administrators can ask that. Everybody can list those who can be assigned, and they
            // have write access.
            Err(Error::Forbidden { .. }) => {
                let path = format!("/repos/{repository}/assignees");
                let users: Vec<GiteaUser> = self.json(ApiRequest::get(path, OPERATION)).await?;
                users.iter().any(|it| it.login.eq_ignore_ascii_case(account))
            }
            Err(error) => return Err(error),
        };
        self.writers.insert(&key, can_write);
        Ok(can_write)
    }
}

/// Returns the IDs of a run and a job of Actions that a status links to.
fn job_of(repository: &str, target_url: &str) -> Option<(u64, u64)> {
    let (_, path) = target_url.split_once(&format!("/{repository}/actions/runs/"))?;
    let (run, job) = path.split_once("/jobs/")?;
    Some((run.parse().ok()?, job.trim_end_matches('/').parse().ok()?))
}
