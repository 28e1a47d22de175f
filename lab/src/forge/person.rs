//! Person of the experiments: writes in a forge what Tamma reads.

use anyhow::{Context as _, Result, ensure};
use reqwest::Method;
use serde_json::{Value, json};
use tamma_core::ids::CommitId;
use tamma_testkit::forge::{FakeGithub, FakeGitlab, GiteaServer};

/// Account of the person, who can push.
pub(crate) const ACCOUNT: &str = "ann";

/// Person in one forge.
#[derive(Debug)]
pub(crate) enum Person<'a> {
    Github(&'a FakeGithub),
    Gitlab(&'a FakeGitlab),
    /// With a token of the person.
    Gitea(&'a GiteaServer, String),
}

impl Person<'_> {
    /// Adds the check `ci` to a commit. `passed` is `None` while it runs.
    pub(crate) async fn add_check(
        &self,
        repository: &str,
        commit: CommitId,
        passed: Option<bool>,
        log: &str,
    ) -> Result<()> {
        let commit = commit.to_string();
        match self {
            Self::Github(fake) => {
                fake.add_check(&commit, "ci", passed, log);
            }
            Self::Gitlab(fake) => fake.add_check(&commit, "ci", passed, log),
            Self::Gitea(..) => {
                let state = match passed {
                    None => "pending",
                    Some(true) => "success",
                    Some(false) => "failure",
                };
                let status = json!({ "context": "ci", "state": state, "description": log });
                let path = format!("/repos/{repository}/statuses/{commit}");
                self.post(&path, &status).await?;
            }
        }
        Ok(())
    }

    /// Comments a line of a pull request.
    pub(crate) async fn add_thread(
        &self,
        repository: &str,
        (number, head): (u64, CommitId),
        (path, line): (&str, u32),
        text: &str,
    ) -> Result<()> {
        match self {
            Self::Github(fake) => {
                fake.add_thread(number, ACCOUNT, path, line, text);
            }
            Self::Gitlab(fake) => fake.add_thread(number, ACCOUNT, path, line, text),
            Self::Gitea(..) => {
                let comment = json!({ "path": path, "new_position": line, "body": text });
                let review = json!({
                    "event": "COMMENT", "commit_id": head.to_string(), "comments": [comment],
                });
                self.post(&format!("/repos/{repository}/pulls/{number}/reviews"), &review).await?;
            }
        }
        Ok(())
    }

    /// Opens an issue with a label, and returns its number.
    pub(crate) async fn add_issue(
        &self,
        repository: &str,
        title: &str,
        label: &str,
    ) -> Result<u64> {
        const BODY: &str = "Cy should be greeted too.";
        match self {
            Self::Github(fake) => Ok(fake.add_issue((repository, ACCOUNT), title, BODY, &[label])),
            Self::Gitlab(fake) => Ok(fake.add_issue(ACCOUNT, title, BODY, &[label])),
            Self::Gitea(..) => {
                let label = json!({ "name": label, "color": "#00aabb" });
                let label = self.post(&format!("/repos/{repository}/labels"), &label).await?;
                let issue = json!({ "title": title, "body": BODY, "labels": [label["id"]] });
                let opened = self.post(&format!("/repos/{repository}/issues"), &issue).await?;
                opened["number"].as_u64().context("the issue has no number")
            }
        }
    }

    /// Comments an issue.
    pub(crate) async fn add_comment(
        &self,
        repository: &str,
        number: u64,
        text: &str,
    ) -> Result<()> {
        match self {
            Self::Github(fake) => {
                fake.add_comment(number, ACCOUNT, text);
            }
            Self::Gitlab(fake) => fake.add_comment(number, ACCOUNT, text),
            Self::Gitea(..) => {
                let path = format!("/repos/{repository}/issues/{number}/comments");
                self.post(&path, &json!({ "body": text })).await?;
            }
        }
        Ok(())
    }

    /// Returns the number of Tamma's pull requests, comments, and statuses (on Gitea: of a commit), from
    /// the forge's own state.
    pub(crate) async fn effects(&self, repository: &str, head: CommitId) -> Result<[usize; 3]> {
        let server = match self {
            Self::Github(fake) => return Ok(fake.effects()),
            Self::Gitlab(fake) => return Ok(fake.effects()),
            Self::Gitea(server, _) => server,
        };
        let mut counts = [0; 3];
        let paths = [
            "pulls?state=all&limit=50".to_owned(),
            "issues/comments?limit=50".to_owned(),
            format!("commits/{head}/statuses?limit=50"),
        ];
        for (count, path) in counts.iter_mut().zip(paths) {
            let path = format!("/repos/{repository}/{path}");
            let listed = server.expect(200, Method::GET, &path, None).await?;
            let is_own = |it: &&Value| {
                let user = if it["creator"].is_object() { &it["creator"] } else { &it["user"] };
                user["login"] == server.account()
            };
            *count = listed.as_array().into_iter().flatten().filter(is_own).count();
        }
        Ok(counts)
    }

    /// Sends a request to Gitea as the person.
    async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        let Self::Gitea(server, token) = self else { anyhow::bail!("only Gitea is asked") };
        let (status, answer) = server.request(token, Method::POST, path, Some(body)).await?;
        ensure!((200..300).contains(&status), "Gitea responded to {path} with {status}: {answer}");
        Ok(answer)
    }
}
