//! Forge behind a proxy, in which stories are played and faults happen.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result, ensure};
use reqwest::Method;
use serde_json::{Value, json};
use tamma_core::forge::ForgeKind;
use tamma_core::ids::CommitId;
use tamma_testkit::forge::{FakeGithub, ForgeProxy, GiteaServer};
use tamma_testkit::repository::Repository;

use super::census::Census;
use super::openapi::sign;
use super::person::{ACCOUNT, Person};

/// Name of the forge in Tamma.
pub(crate) const FORGE: &str = "code";

/// Secret of its webhooks.
pub(crate) const SECRET: &str = "secret-of-the-webhooks";

/// Owner of the fake's repositories.
const OWNER: &str = "acme";

/// Forge behind a proxy.
#[derive(Debug)]
pub(crate) struct Site {
    host: SiteHost,
    pub(crate) proxy: ForgeProxy,
    http: reqwest::Client,
    /// Webhooks that were sent for the fake.
    sent: AtomicU64,
}

#[derive(Debug)]
enum SiteHost {
    Github(FakeGithub),
    /// With a token of the person.
    Gitea(Box<GiteaServer>, String),
}

/// Repository of one story.
#[derive(Debug, Clone)]
pub(crate) struct SiteRepository {
    /// Path, such as `owner/name`.
    pub(crate) path: String,
    /// First commit of its base branch.
    pub(crate) base: CommitId,
}

impl Site {
    /// Starts a forge of a kind with its proxy.
    pub(crate) async fn start(kind: ForgeKind) -> Result<Self> {
        let (host, url) = if kind == ForgeKind::Gitea {
            let server = GiteaServer::start().await?;
            let (token, url) = (server.add_person(ACCOUNT)?, server.url());
            (SiteHost::Gitea(Box::new(server), token), url)
        } else {
            let fake = FakeGithub::start().await?;
            fake.add_writer(ACCOUNT);
            let url = fake.url();
            (SiteHost::Github(fake), url)
        };
        let proxy = ForgeProxy::start(&url).await?;
        Ok(Self { host, proxy, http: reqwest::Client::new(), sent: AtomicU64::new(0) })
    }

    /// Returns the fake.
    pub(crate) fn fake(&self) -> Result<&FakeGithub> {
        match &self.host {
            SiteHost::Github(fake) => Ok(fake),
            SiteHost::Gitea(..) => anyhow::bail!("the forge is not the fake"),
        }
    }

    pub(crate) fn kind(&self) -> ForgeKind {
        match &self.host {
            SiteHost::Github(_) => ForgeKind::Github,
            SiteHost::Gitea(..) => ForgeKind::Gitea,
        }
    }

    /// Returns the name of the kind on the command line.
    pub(crate) fn kind_name(&self) -> &'static str {
        match &self.host {
            SiteHost::Github(_) => "github",
            SiteHost::Gitea(..) => "gitea",
        }
    }

    pub(crate) fn token(&self) -> &str {
        match &self.host {
            SiteHost::Github(fake) => fake.token(),
            SiteHost::Gitea(server, _) => server.token(),
        }
    }

    pub(crate) fn person(&self) -> Person<'_> {
        match &self.host {
            SiteHost::Github(fake) => Person::Github(fake),
            SiteHost::Gitea(server, token) => Person::Gitea(server, token.clone()),
        }
    }

    /// Creates a repository with a configuration. Gitea sends its webhooks through the proxy.
    pub(crate) async fn create_repository(
        &self,
        name: &str,
        configuration: &str,
    ) -> Result<SiteRepository> {
        let project = Repository::new()?;
        project.write("tamma.yaml", configuration)?;
        let base = project.commit("Configure Tamma")?.parse()?;
        let path = match &self.host {
            SiteHost::Github(fake) => {
                let path = format!("{OWNER}/{name}");
                fake.create_repository(&path, project.path())?;
                path
            }
            SiteHost::Gitea(server, _) => {
                let path = server.create_repository(name, &[ACCOUNT]).await?;
                let address = server.clone_url(&path);
                project.git(&["push", "--quiet", "--force", &address, "HEAD:refs/heads/main"])?;
                let settings = json!({ "allow_manual_merge": true });
                let repository = format!("/repos/{path}");
                server.expect(200, Method::PATCH, &repository, Some(&settings)).await?;
                let url = format!("{}/hooks/forges/{FORGE}", self.proxy.url());
                let hook = json!({
                    "type": "gitea", "active": true,
                    "events": ["issues", "issue_comment", "pull_request", "push", "status"],
                    "config": { "url": url, "content_type": "json", "secret": SECRET },
                });
                let hooks = format!("{repository}/hooks");
                server.expect(201, Method::POST, &hooks, Some(&hook)).await?;
                path
            }
        };
        Ok(SiteRepository { path, base })
    }

    /// Sends the webhook of an event to the proxy if the forge does not send any.
    pub(crate) async fn send_webhook(&self, event: &str, mut payload: Value) -> Result<()> {
        if self.kind() != ForgeKind::Github {
            return Ok(());
        }
        payload["sender"] = json!({ "login": ACCOUNT });
        let body = serde_json::to_vec(&payload)?;
        let delivery = format!("delivery-{}", self.sent.fetch_add(1, Ordering::SeqCst));
        let sent = self
            .http
            .post(format!("{}/hooks/forges/{FORGE}", self.proxy.url()))
            .header("content-type", "application/json")
            .header("x-github-event", event)
            .header("x-github-delivery", delivery)
            .header("x-hub-signature-256", sign(SECRET, &body)?)
            .body(body)
            .send()
            .await?;
        ensure!(sent.status().is_success(), "the proxy refused a webhook");
        Ok(())
    }

    /// Renews the quota of the fake, which is meant for an hour. Many stories use it up.
    pub(crate) fn renew_quota(&self) {
        if let SiteHost::Github(fake) = &self.host {
            fake.renew_quota();
        }
    }

    /// Kills the forge. The fake has no process of its own: its connections break, and its state stays.
    pub(crate) fn kill(&mut self) {
        self.proxy.set_down(true);
        if let SiteHost::Gitea(server, _) = &mut self.host {
            server.kill();
        }
    }

    /// Starts the forge again.
    pub(crate) async fn restart(&mut self) -> Result<()> {
        if let SiteHost::Gitea(server, _) = &mut self.host {
            server.restart().await?;
        }
        self.proxy.set_down(false);
        Ok(())
    }

    /// Counts the effects of a story, except its tasks.
    pub(crate) async fn census(
        &self,
        repository: &SiteRepository,
        issue: u64,
        head: CommitId,
    ) -> Result<Census> {
        let path = &repository.path;
        let mut census = match &self.host {
            SiteHost::Github(fake) => Census {
                pulls: fake.pull_requests(path),
                comments: fake.own_comments(path),
                statuses: fake.own_statuses(&head.to_string()),
                is_issue_open: fake.is_open(issue),
                ..Census::default()
            },
            SiteHost::Gitea(server, _) => gitea_census(server, path, issue, head).await?,
        };
        let clone = Repository::new()?;
        clone.git(&["fetch", "--quiet", &self.clone_url(path), "main"])?;
        let range = format!("{}..FETCH_HEAD", repository.base);
        let landed = clone.git(&["rev-list", "--count", "--first-parent", &range])?;
        census.landed = landed.trim().parse()?;
        let names = clone.git(&["show", "FETCH_HEAD:names.txt"]).unwrap_or_default();
        census.has_work = names.lines().any(|name| name == "dee");
        Ok(census)
    }

    /// Returns the address of a repository in the forge itself, with a login.
    pub(crate) fn clone_url(&self, path: &str) -> String {
        match &self.host {
            SiteHost::Github(fake) => {
                let login = format!("http://x-access-token:{}@", fake.token());
                format!("{}/{path}.git", fake.url().replace("http://", &login))
            }
            SiteHost::Gitea(server, _) => server.clone_url(path),
        }
    }
}

/// Reads the effects of a story from Gitea.
async fn gitea_census(
    server: &GiteaServer,
    path: &str,
    issue: u64,
    head: CommitId,
) -> Result<Census> {
    let get = async |rest: &str| {
        let path = format!("/repos/{path}/{rest}");
        let listed = server.expect(200, Method::GET, &path, None).await?;
        let own = |it: &Value| {
            let user = if it["creator"].is_object() { &it["creator"] } else { &it["user"] };
            user["login"] == server.account()
        };
        let listed = listed.as_array().cloned().context("the response is no list")?;
        anyhow::Ok(listed.into_iter().filter(own).collect::<Vec<Value>>())
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let pulls = get("pulls?state=all&limit=50").await?;
    let comments = get("issues/comments?limit=50").await?;
    // Newest first.
    let statuses = get(&format!("commits/{head}/statuses?limit=50")).await?;
    let issue = format!("/repos/{path}/issues/{issue}");
    let issue = server.expect(200, Method::GET, &issue, None).await?;
    Ok(Census {
        pulls: pulls.iter().map(|it| (text(&it["head"]["ref"]), it["merged"] == true)).collect(),
        comments: comments.iter().map(|it| text(&it["body"])).collect(),
        statuses: statuses.iter().rev().map(|it| text(&it["status"])).collect(),
        is_issue_open: issue["state"] == "open",
        ..Census::default()
    })
}
