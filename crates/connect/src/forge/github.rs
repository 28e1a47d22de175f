//! Client for GitHub: REST, and GraphQL where REST has no such operation or needs many requests.

mod comments;
mod observe;
#[cfg(test)]
mod tests;

use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use tamma_core::forge::ForgeCapabilities;
use tamma_core::ids::CommitId;
use tamma_core::rules::MergeMethod;
use tokio::sync::OnceCell;

use super::api::{ApiClient, ApiLogin, ApiRequest, ApiResponse, escape, escape_branch};
use super::facts::Remembered;
use super::github_app::AppLogin;
use super::{
    ChangeUpdate, CheckReport, Error, ForgeCredential, ForgeReport, ForgeSettings, FoundChange,
    GitLogin, MergeOutcome, NewChange,
};

/// Media type of the REST API.
const MEDIA_TYPE: &str = "application/vnd.github+json";

/// Most entries of a page.
const PAGE: (&str, usize) = ("per_page", 100);

/// Most annotations of one request.
const MAX_ANNOTATIONS: usize = 50;

/// Most annotations of a check.
const MAX_ALL_ANNOTATIONS: usize = 500;

/// Longest text of a check, in characters. GitHub accepts 65,535.
const MAX_SUMMARY: usize = 60_000;

/// Longest description of a commit status, in characters.
const MAX_DESCRIPTION: usize = 140;

/// Parts of a delivery that GitHub has.
pub(super) const CAPABILITIES: ForgeCapabilities =
    ForgeCapabilities { ref_cas: true, rerun_checks: true };

/// Permissions that a GitHub App needs, with what needs them.
const APP_PERMISSIONS: [(&str, &str, &str); 7] = [
    ("actions", "write", "read logs and run failed jobs again"),
    ("checks", "write", "publish the verdict"),
    ("contents", "write", "push branches"),
    ("issues", "write", "read issues and write comments"),
    ("pull_requests", "write", "open pull requests"),
    ("statuses", "read", "read commit statuses"),
    ("workflows", "write", "push changes of workflow files"),
];

/// Client for GitHub.
#[derive(Debug, Clone)]
pub struct GithubClient {
    api: ApiClient,
    credential: GithubCredential,
    account: std::sync::Arc<OnceCell<String>>,
    /// Accounts with write access, by repository and account.
    writers: Remembered<bool>,
    /// Required checks, by repository and branch.
    required: Remembered<Vec<String>>,
    /// Server does not know merge queues.
    lacks_queues: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

/// Login, with a token or as an app.
#[derive(Clone)]
enum GithubCredential {
    Token(String),
    App(AppLogin),
}

impl std::fmt::Debug for GithubCredential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Token(_) => f.write_str("Token"),
            Self::App(app) => app.fmt(f),
        }
    }
}

/// Pull request, as in a list.
#[derive(Deserialize)]
struct GithubPull {
    number: u64,
    html_url: String,
    state: String,
    head: GithubCommit,
}

#[derive(Deserialize)]
struct GithubCommit {
    sha: CommitId,
}

#[derive(Deserialize)]
struct GithubObject {
    id: u64,
}

impl From<GithubPull> for FoundChange {
    fn from(pull: GithubPull) -> Self {
        let open = pull.state == "open";
        Self { number: pull.number, url: pull.html_url, head: pull.head.sha, open }
    }
}

impl GithubClient {
    pub(super) fn open(settings: &ForgeSettings) -> Result<Self, Error> {
        let api = ApiClient::open(&settings.name, &settings.api_url())?;
        let credential = match &settings.credential {
            ForgeCredential::Token(token) => GithubCredential::Token(token.clone()),
            ForgeCredential::App(app) => {
                let login =
                    AppLogin::new(app).map_err(|reason| api.forbidden("sign in", reason))?;
                GithubCredential::App(login)
            }
        };
        Ok(Self {
            api,
            credential,
            account: std::sync::Arc::default(),
            writers: Remembered::default(),
            required: Remembered::default(),
            lacks_queues: std::sync::Arc::default(),
        })
    }

    pub(super) fn name(&self) -> &str {
        self.api.forge()
    }

    pub(super) fn quota_left(&self) -> Option<f64> {
        self.api.quota_left()
    }

    pub(super) async fn git_login(&self) -> Result<GitLogin, Error> {
        let password = self.token().await?;
        Ok(GitLogin { user: "x-access-token".to_owned(), password })
    }

    async fn token(&self) -> Result<String, Error> {
        match &self.credential {
            GithubCredential::Token(token) => Ok(token.clone()),
            GithubCredential::App(app) => app.installation_token(&self.api).await,
        }
    }

    async fn login(&self) -> Result<ApiLogin, Error> {
        let token = self.token().await?;
        Ok(ApiLogin::new("authorization", &format!("Bearer {token}")))
    }

    async fn send(&self, request: ApiRequest) -> Result<ApiResponse, Error> {
        self.api.send(&self.login().await?, request.accept(MEDIA_TYPE)).await
    }

    async fn json<T: serde::de::DeserializeOwned>(&self, request: ApiRequest) -> Result<T, Error> {
        self.api.json(&self.login().await?, request.accept(MEDIA_TYPE)).await
    }

    async fn list<T: serde::de::DeserializeOwned>(
        &self,
        request: ApiRequest,
        max_pages: u32,
    ) -> Result<(Vec<T>, bool), Error> {
        self.api.list(&self.login().await?, request.accept(MEDIA_TYPE), PAGE, max_pages).await
    }

    /// Sends a GraphQL request. Errors are returned only if there is no data, because one missing pull
    /// request must not hide the others.
    async fn graphql(
        &self,
        operation: &'static str,
        query: &str,
        variables: Value,
    ) -> Result<Value, Error> {
        let base = self.api.base();
        let base = base.strip_suffix("/v3").unwrap_or(base);
        let body = json!({ "query": query, "variables": variables });
        let response =
            self.send(ApiRequest::post(format!("{base}/graphql"), operation, body)).await?;
        let mut answer: Value = self.api.parse(&response, operation)?;
        let data = answer.get_mut("data").map(Value::take).unwrap_or_default();
        let has_data = data.as_object().is_some_and(|it| it.values().any(|value| !value.is_null()));
        let Some(error) = answer["errors"].get(0) else { return Ok(data) };
        let reason = error["message"].as_str().unwrap_or_default();
        match error["type"].as_str().unwrap_or_default() {
            "RATE_LIMITED" | "RATE_LIMIT" => Err(self.api.rate_limited(&response.headers)),
            _ if has_data => Ok(data),
            "NOT_FOUND" => Err(self.api.not_found(super::api::plain(reason))),
            "FORBIDDEN" | "INSUFFICIENT_SCOPES" => Err(self.api.forbidden(operation, reason)),
            _ => Err(self.api.refused(operation, reason)),
        }
    }

    /// Returns the account that writes our comments.
    async fn account(&self) -> Result<&str, Error> {
        const OPERATION: &str = "read the account";
        // Without a name, our own comments would be somebody else's.
        let named = |value: &Value| {
            let name = value.as_str().filter(|it| !it.is_empty());
            name.map(str::to_owned).ok_or_else(|| self.api.unreadable(OPERATION))
        };
        let read = self.account.get_or_try_init(|| async {
            match &self.credential {
                GithubCredential::Token(_) => {
                    let user: Value = self.json(ApiRequest::get("/user", OPERATION)).await?;
                    named(&user["login"])
                }
                GithubCredential::App(app) => {
                    let request = ApiRequest::get("/app", "read the app").accept(MEDIA_TYPE);
                    let app: Value = self.api.json(&app.app_login(&self.api)?, request).await?;
                    Ok(format!("{}[bot]", named(&app["slug"])?))
                }
            }
        });
        read.await.map(String::as_str)
    }

    pub(super) async fn check(&self, repository: Option<&str>) -> Result<ForgeReport, Error> {
        let mut missing = Vec::new();
        match &self.credential {
            GithubCredential::Token(_) => {
                let response = self.send(ApiRequest::get("/user", "read the account")).await?;
                // Fine-grained tokens have no such header; their rights are checked below.
                let scopes = response.header("x-oauth-scopes").unwrap_or_default();
                let scopes: Vec<&str> = scopes.split(',').map(str::trim).collect();
                if scopes.iter().any(|it| !it.is_empty()) {
                    for (scope, purpose) in [
                        ("repo", "push branches, open pull requests, write comments"),
                        ("workflow", "push changes of workflow files"),
                    ] {
                        if !scopes.contains(&scope) {
                            missing.push(format!("scope `{scope}`: {purpose}"));
                        }
                    }
                }
            }
            GithubCredential::App(app) => {
                let path = format!("/app/installations/{}", app.installation());
                let request = ApiRequest::get(path, "read the installation")
                    .what(format!("installation {} of the app", app.installation()))
                    .accept(MEDIA_TYPE);
                let found: Value = self.api.json(&app.app_login(&self.api)?, request).await?;
                for (name, level, purpose) in APP_PERMISSIONS {
                    let granted = found["permissions"][name].as_str().unwrap_or_default();
                    let is_enough = granted == level
                        || granted == "admin"
                        || (granted == "write" && level == "read");
                    if !is_enough {
                        missing.push(format!("permission `{name}: {level}`: {purpose}"));
                    }
                }
            }
        }
        if let Some(repository) = repository {
            let request = ApiRequest::get(format!("/repos/{repository}"), "read the repository")
                .what(format!("repository {repository}"));
            let found: Value = self.json(request).await?;
            // Tokens of an installation get no such object.
            if found["permissions"]["push"] == false {
                missing.push(format!("write access to {repository}: push branches"));
            }
        }
        let meta = self.send(ApiRequest::get("/meta", "read the version")).await.ok();
        let version =
            meta.and_then(|it| it.header("x-github-enterprise-version").map(super::facts::clip));
        Ok(ForgeReport { account: self.account().await?.to_owned(), version, missing })
    }

    pub(super) async fn find_change(
        &self,
        repository: &str,
        branch: &str,
        base: &str,
    ) -> Result<Option<FoundChange>, Error> {
        let owner = repository.split('/').next().unwrap_or_default();
        let request = ApiRequest::get(format!("/repos/{repository}/pulls"), "find a pull request")
            .what(format!("repository {repository}"))
            .query("head", format!("{owner}:{branch}"))
            .query("base", base)
            .query("state", "all")
            .query("sort", "created")
            .query("direction", "desc")
            .query("per_page", "10");
        let found: Vec<GithubPull> = self.json(request).await?;
        Ok(found.into_iter().max_by_key(|it| it.number).map(FoundChange::from))
    }

    pub(super) async fn open_change(
        &self,
        repository: &str,
        change: &NewChange,
    ) -> Result<FoundChange, Error> {
        const OPERATION: &str = "open a pull request";
        let path = format!("/repos/{repository}/pulls");
        let body = json!({
            "title": change.title, "head": change.branch, "base": change.base,
            "body": change.body,
        });
        let request =
            ApiRequest::post(&path, OPERATION, body).what(format!("repository {repository}"));
        let opened: Result<GithubPull, Error> = self.json(request).await;
        let opened = opened.map_err(|error| match error {
            Error::Refused { forge, operation, reason } if reason.contains("already exists") => {
                Error::Conflict { forge, operation, reason }
            }
            other => other,
        })?;
        let number = opened.number;
        // The pull request exists; labels and reviewers that the forge refuses do not undo it.
        if !change.labels.is_empty() {
            let path = format!("/repos/{repository}/issues/{number}/labels");
            let body = json!({ "labels": change.labels });
            let _ignored = self.send(ApiRequest::post(path, "add labels", body)).await;
        }
        if !change.reviewers.is_empty() {
            let path = format!("/repos/{repository}/pulls/{number}/requested_reviewers");
            let body = json!({ "reviewers": change.reviewers });
            let _ignored = self.send(ApiRequest::post(path, "ask for reviews", body)).await;
        }
        Ok(opened.into())
    }

    pub(super) async fn update_change(
        &self,
        repository: &str,
        number: u64,
        update: &ChangeUpdate,
    ) -> Result<(), Error> {
        const OPERATION: &str = "update a pull request";
        let mut body = serde_json::Map::new();
        if let Some(title) = &update.title {
            body.insert("title".to_owned(), json!(title));
        }
        if let Some(text) = &update.body {
            body.insert("body".to_owned(), json!(text));
        }
        if update.close {
            body.insert("state".to_owned(), json!("closed"));
        }
        if !body.is_empty() {
            let path = format!("/repos/{repository}/pulls/{number}");
            let request = ApiRequest::new(Method::PATCH, path, OPERATION).body(Value::Object(body));
            self.send(request.what(format!("pull request {repository}#{number}"))).await?;
        }
        Ok(())
    }

    pub(super) async fn publish_check(
        &self,
        repository: &str,
        report: &CheckReport,
    ) -> Result<String, Error> {
        match self.credential {
            GithubCredential::App(_) => self.publish_check_run(repository, report).await,
            GithubCredential::Token(_) => self.publish_status(repository, report).await,
        }
    }

    async fn publish_check_run(
        &self,
        repository: &str,
        report: &CheckReport,
    ) -> Result<String, Error> {
        const OPERATION: &str = "publish a check";
        let commit = report.commit;
        let mut annotations = report.annotations.iter().take(MAX_ALL_ANNOTATIONS).map(|it| {
            json!({
                "path": it.path, "start_line": it.line, "end_line": it.line,
                "annotation_level": if it.failure { "failure" } else { "warning" },
                "message": it.message.chars().take(MAX_SUMMARY).collect::<String>(),
            })
        });
        let mut output = |first: bool| {
            let part: Vec<Value> = annotations.by_ref().take(MAX_ANNOTATIONS).collect();
            let summary: String = report.summary.chars().take(MAX_SUMMARY).collect();
            (first || !part.is_empty())
                .then(|| json!({ "title": report.title, "summary": summary, "annotations": part }))
        };
        let mut body = json!({ "name": report.name, "external_id": report.name });
        body["output"] = output(true).unwrap_or_default();
        match report.passed {
            None => body["status"] = json!("in_progress"),
            Some(passed) => {
                body["status"] = json!("completed");
                body["conclusion"] = json!(if passed { "success" } else { "failure" });
            }
        }
        if let Some(url) = &report.details_url {
            body["details_url"] = json!(url);
        }
        let request =
            ApiRequest::get(format!("/repos/{repository}/commits/{commit}/check-runs"), OPERATION)
                .what(format!("commit {commit} in {repository}"))
                .query("check_name", report.name.as_str())
                .query("filter", "latest")
                .query("per_page", "100");
        let found: Value = self.json(request).await?;
        // Other apps can use the same name, but not our external ID with it.
        let known = found["check_runs"].as_array().into_iter().flatten();
        let known = known.filter(|it| it["external_id"] == report.name.as_str());
        let known = known.filter_map(|it| it["id"].as_u64()).max();
        let runs = format!("/repos/{repository}/check-runs");
        let published: GithubObject = if let Some(id) = known {
            let path = format!("{runs}/{id}");
            self.json(ApiRequest::new(Method::PATCH, path, OPERATION).body(body)).await?
        } else {
            body["head_sha"] = json!(commit.to_string());
            self.json(ApiRequest::post(&runs, OPERATION, body)).await?
        };
        while let Some(output) = output(false) {
            let path = format!("{runs}/{}", published.id);
            let body = json!({ "output": output });
            self.send(ApiRequest::new(Method::PATCH, path, OPERATION).body(body)).await?;
        }
        Ok(published.id.to_string())
    }

    async fn publish_status(
        &self,
        repository: &str,
        report: &CheckReport,
    ) -> Result<String, Error> {
        const OPERATION: &str = "publish a check";
        let commit = report.commit;
        let state = match report.passed {
            None => "pending",
            Some(true) => "success",
            Some(false) => "failure",
        };
        let description: String = report.title.chars().take(MAX_DESCRIPTION).collect();
        let request =
            ApiRequest::get(format!("/repos/{repository}/commits/{commit}/statuses"), OPERATION)
                .what(format!("commit {commit} in {repository}"));
        let (known, _): (Vec<Value>, bool) = self.list(request, 3).await?;
        // Newest first. A status cannot be changed; the newest of a context counts.
        let known = known.iter().find(|it| it["context"] == report.name.as_str());
        if let Some(status) = known
            && status["state"] == state
            && status["description"] == description.as_str()
            && let Some(id) = status["id"].as_u64()
        {
            return Ok(id.to_string());
        }
        let mut body =
            json!({ "state": state, "context": report.name, "description": description });
        if let Some(url) = &report.details_url {
            body["target_url"] = json!(url);
        }
        let path = format!("/repos/{repository}/statuses/{commit}");
        let published: GithubObject = self.json(ApiRequest::post(path, OPERATION, body)).await?;
        Ok(published.id.to_string())
    }

    pub(super) async fn merge(
        &self,
        repository: &str,
        number: u64,
        expected_head: CommitId,
        method: MergeMethod,
    ) -> Result<MergeOutcome, Error> {
        const OPERATION: &str = "merge a pull request";
        const QUERY: &str = "query($owner: String!, $name: String!, $number: Int!) { \
            repository(owner: $owner, name: $name) { pullRequest(number: $number) { \
            id state headRefOid isInMergeQueue isMergeQueueEnabled mergeCommit { oid } } } }";
        let (owner, name) = repository.split_once('/').unwrap_or_default();
        let variables = json!({ "owner": owner, "name": name, "number": number });
        // Servers without queues do not know the fields, and refuse the query.
        let pull = match self.graphql(OPERATION, QUERY, variables).await {
            Ok(mut data) => {
                data.pointer_mut("/repository/pullRequest").map(Value::take).unwrap_or_default()
            }
            Err(Error::Refused { .. }) => Value::Null,
            Err(error) => return Err(error),
        };
        let is_stale =
            pull["headRefOid"].as_str().is_some_and(|it| it != expected_head.to_string());
        if is_stale {
            return Err(self.api.conflict(OPERATION, "the head is another commit now"));
        }
        if pull["state"] == "MERGED"
            && let Some(commit) = pull["mergeCommit"]["oid"].as_str().and_then(|it| it.parse().ok())
        {
            return Ok(MergeOutcome::Merged(commit));
        }
        if pull["isInMergeQueue"] == true {
            return Ok(MergeOutcome::Queued);
        }
        if pull["isMergeQueueEnabled"] == true {
            const MUTATION: &str = "mutation($id: ID!, $head: GitObjectID!) { \
                enqueuePullRequest(input: { pullRequestId: $id, expectedHeadOid: $head }) { \
                mergeQueueEntry { id } } }";
            let variables = json!({ "id": pull["id"], "head": expected_head.to_string() });
            self.graphql("add a pull request to the merge queue", MUTATION, variables).await?;
            return Ok(MergeOutcome::Queued);
        }
        let path = format!("/repos/{repository}/pulls/{number}/merge");
        let body = json!({ "sha": expected_head.to_string(), "merge_method": method.to_string() });
        let request = ApiRequest::new(Method::PUT, path, OPERATION).body(body);
        let request = request.what(format!("pull request {repository}#{number}"));
        match self.json::<GithubCommit>(request).await {
            Ok(merged) => Ok(MergeOutcome::Merged(merged.sha)),
            // "Base branch was modified. Review and try the merge again."
            Err(Error::Refused { reason, .. }) if reason.contains("was modified") => {
                Err(self.api.conflict(OPERATION, &reason))
            }
            Err(error) => Err(error),
        }
    }

    pub(super) async fn advance_branch(
        &self,
        repository: &str,
        branch: &str,
        expected_old: CommitId,
        new: CommitId,
    ) -> Result<(), Error> {
        const OPERATION: &str = "advance a branch";
        let escaped = escape_branch(branch);
        let path = format!("/repos/{repository}/git/ref/heads/{escaped}");
        let request =
            ApiRequest::get(path, OPERATION).what(format!("branch {branch} in {repository}"));
        let found: Value = self.json(request).await?;
        let tip = found["object"]["sha"].as_str().unwrap_or_default();
        if tip == new.to_string() {
            return Ok(());
        }
        if tip != expected_old.to_string() {
            return Err(self.api.conflict(OPERATION, "the branch has another commit now"));
        }
        let path = format!("/repos/{repository}/compare/{expected_old}...{new}");
        let request = ApiRequest::get(path, OPERATION)
            .what(format!("commit {new} in {repository}"))
            .query("per_page", "1");
        let compared: Value = self.json(request).await?;
        if compared["status"] != "ahead" {
            return Err(self.api.refused(OPERATION, "the new commit does not contain the old one"));
        }
        let path = format!("/repos/{repository}/git/refs/heads/{escaped}");
        let body = json!({ "sha": new.to_string(), "force": false });
        let request = ApiRequest::new(Method::PATCH, path, OPERATION).body(body);
        match self.send(request.what(format!("branch {branch} in {repository}"))).await {
            Err(Error::Refused { reason, .. }) if reason.contains("fast forward") => {
                Err(self.api.conflict(OPERATION, &reason))
            }
            other => other.map(|_| ()),
        }
    }

    pub(super) async fn failed_check_log(
        &self,
        repository: &str,
        check: &str,
    ) -> Result<String, Error> {
        const OPERATION: &str = "read a log";
        if let Some(id) = check.strip_prefix("status:") {
            const QUERY: &str = "query($id: ID!) { node(id: $id) { \
                ... on StatusContext { context description targetUrl } } }";
            let data = self.graphql(OPERATION, QUERY, json!({ "id": id })).await?;
            let text = |key: &str| data["node"][key].as_str().unwrap_or_default().to_owned();
            let lines = [text("context"), text("description"), text("targetUrl")];
            return Ok(super::facts::clip_text(&lines.join("\n")));
        }
        let id: u64 = check.parse().map_err(|_| self.api.not_found(format!("check {check}")))?;
        // A job of GitHub Actions has the ID of its check run.
        let path = format!("/repos/{repository}/actions/jobs/{id}/logs");
        let request = ApiRequest::get(path, OPERATION).what(format!("log of check {id}"));
        match self.api.log_tail(&self.login().await?, request.accept(MEDIA_TYPE)).await {
            Err(Error::NotFound { .. }) => {}
            other => return other,
        }
        let path = format!("/repos/{repository}/check-runs/{id}");
        let run: Value =
            self.json(ApiRequest::get(&path, OPERATION).what(format!("check {id}"))).await?;
        let text = |key: &str| run["output"][key].as_str().unwrap_or_default().to_owned();
        let mut log = [text("title"), text("summary"), text("text")].join("\n");
        if run["output"]["annotations_count"].as_u64().unwrap_or_default() > 0 {
            let request = ApiRequest::get(format!("{path}/annotations"), OPERATION);
            let (annotations, _): (Vec<Value>, bool) = self.list(request, 1).await?;
            for it in &annotations {
                let text = |key: &str| it[key].as_str().unwrap_or_default();
                let line = it["start_line"].as_u64().unwrap_or_default();
                let entry = [text("path"), ":", &line.to_string(), ": ", text("message")].concat();
                log.push('\n');
                log.push_str(&entry);
            }
        }
        Ok(super::api::text_tail(log.as_bytes()))
    }

    pub(super) async fn rerun_check(&self, repository: &str, check: &str) -> Result<(), Error> {
        const OPERATION: &str = "run a check again";
        let Ok(id) = check.parse::<u64>() else {
            return Err(self.api.refused(OPERATION, "a commit status cannot be run again"));
        };
        let path = format!("/repos/{repository}/actions/jobs/{id}/rerun");
        let request = ApiRequest::post(path, OPERATION, json!({})).what(format!("check {id}"));
        match self.send(request).await {
            Err(Error::NotFound { .. }) => {}
            Err(Error::Forbidden { reason, .. }) if reason.contains("already running") => {
                return Ok(());
            }
            other => return other.map(|_| ()),
        }
        let path = format!("/repos/{repository}/check-runs/{id}/rerequest");
        let request = ApiRequest::new(Method::POST, path, OPERATION).what(format!("check {id}"));
        self.send(request).await.map(|_| ())
    }

    async fn required_checks(&self, repository: &str, branch: &str) -> Result<Vec<String>, Error> {
        const OPERATION: &str = "read the required checks";
        let key = format!("{repository} {branch}");
        if let Some(known) = self.required.get(&key) {
            return Ok(known);
        }
        let mut names = std::collections::BTreeSet::new();
        // Rules and protections can be read without being an administrator.
        let path = format!("/repos/{repository}/rules/branches/{}", escape(branch));
        match self.list::<Value>(ApiRequest::get(path, OPERATION).conditional(), 3).await {
            Ok((rules, _)) => {
                let rules = rules.iter().filter(|it| it["type"] == "required_status_checks");
                let checks =
                    rules.filter_map(|it| it["parameters"]["required_status_checks"].as_array());
                let checks = checks.flatten().filter_map(|it| it["context"].as_str());
                names.extend(checks.map(super::facts::clip));
            }
            // Older servers have no rules.
            Err(Error::NotFound { .. } | Error::Forbidden { .. }) => {}
            Err(error) => return Err(error),
        }
        let path = format!("/repos/{repository}/branches/{}", escape(branch));
        let request = ApiRequest::get(path, OPERATION)
            .what(format!("branch {branch} in {repository}"))
            .conditional();
        let found: Value = self.json(request).await?;
        let contexts = &found["protection"]["required_status_checks"]["contexts"];
        let contexts = contexts.as_array().into_iter().flatten().filter_map(Value::as_str);
        names.extend(contexts.map(super::facts::clip));
        let names: Vec<String> = names.into_iter().collect();
        self.required.insert(&key, names.clone());
        Ok(names)
    }

    /// Returns `true` if an account can push to a repository.
    async fn can_write(&self, repository: &str, account: &str) -> Result<bool, Error> {
        let key = format!("{repository} {account}");
        if let Some(known) = self.writers.get(&key) {
            return Ok(known);
        }
        let path = format!("/repos/{repository}/collaborators/{}/permission", escape(account));
        let request = ApiRequest::get(path, "read the permission of an account");
        let can_write = match self.json::<Value>(request).await {
            Ok(found) => matches!(found["permission"].as_str(), Some("admin" | "write")),
            Err(Error::NotFound { .. }) => false,
            Err(error) => return Err(error),
        };
        self.writers.insert(&key, can_write);
        Ok(can_write)
    }
}
