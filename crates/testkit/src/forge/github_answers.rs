//! Objects in the form of GitHub's REST API, with all fields that its description requires.

use serde_json::{Map, Value, json};

/// Endings of a repository's addresses. Each becomes `<name>_url`.
const REPOSITORY_LINKS: [&str; 36] = [
    "archive",
    "assignees",
    "blobs",
    "branches",
    "collaborators",
    "comments",
    "commits",
    "compare",
    "contents",
    "contributors",
    "deployments",
    "downloads",
    "events",
    "forks",
    "git_commits",
    "git_refs",
    "git_tags",
    "hooks",
    "issue_comment",
    "issue_events",
    "issues",
    "keys",
    "labels",
    "languages",
    "merges",
    "milestones",
    "notifications",
    "pulls",
    "releases",
    "stargazers",
    "statuses",
    "subscribers",
    "subscription",
    "tags",
    "teams",
    "trees",
];

/// Endings of an account's addresses.
const USER_LINKS: [&str; 11] = [
    "avatar",
    "events",
    "followers",
    "following",
    "gists",
    "organizations",
    "received_events",
    "repos",
    "starred",
    "subscriptions",
    "html",
];

/// Addresses of the API and of the pages, without a slash at the end.
#[derive(Debug, Clone)]
pub(super) struct Addresses {
    pub(super) api: String,
    pub(super) pages: String,
}

fn links(object: &mut Map<String, Value>, url: &str, names: &[&str]) {
    for name in names {
        object.insert(format!("{name}_url"), json!(format!("{url}/{name}")));
    }
}

/// Adds the fields of one object to another one.
fn merged(mut object: Map<String, Value>, more: Value) -> Value {
    if let Value::Object(more) = more {
        object.extend(more);
    }
    Value::Object(object)
}

fn with(object: Value, more: Value) -> Value {
    match object {
        Value::Object(object) => merged(object, more),
        other => other,
    }
}

impl Addresses {
    pub(super) fn user(&self, login: &str) -> Value {
        let url = format!("{}/users/{login}", self.api);
        let mut object = Map::new();
        links(&mut object, &url, &USER_LINKS);
        let kind = if login.ends_with("[bot]") { "Bot" } else { "User" };
        let more = json!({
            "login": login, "id": 1, "node_id": format!("U_{login}"), "gravatar_id": "", "url": url,
            "type": kind, "site_admin": false,
        });
        merged(object, more)
    }

    /// Returns the account itself, as `GET /user` responds.
    pub(super) fn account(&self, login: &str) -> Value {
        let time = "2026-01-01T00:00:00Z";
        let profile = json!({
            "name": null, "company": null, "blog": null, "location": null, "email": null,
            "hireable": null, "bio": null, "public_repos": 0, "public_gists": 0, "followers": 0,
            "following": 0, "created_at": time, "updated_at": time,
        });
        with(self.user(login), profile)
    }

    /// Returns an account with its role in a repository.
    pub(super) fn collaborator(&self, login: &str, role: &str) -> Value {
        with(self.user(login), json!({ "role_name": role }))
    }

    pub(super) fn repository(&self, name: &str) -> Value {
        let url = format!("{}/repos/{name}", self.api);
        let pages = format!("{}/{name}", self.pages);
        let (owner, short) = name.split_once('/').unwrap_or_default();
        let mut object = Map::new();
        links(&mut object, &url, &REPOSITORY_LINKS);
        let time = "2026-01-01T00:00:00Z";
        let names = json!({
            "id": 1, "node_id": "R_1", "name": short, "full_name": name, "url": url,
            "html_url": pages, "owner": self.user(owner), "private": true, "fork": false,
            "description": null, "clone_url": format!("{pages}.git"), "git_url": format!("{pages}.git"),
            "ssh_url": format!("{pages}.git"), "svn_url": pages, "mirror_url": null, "homepage": null,
        });
        let figures = json!({
            "language": null, "license": null, "default_branch": "main", "forks": 0,
            "forks_count": 0, "has_downloads": false, "has_issues": true, "has_projects": false,
            "has_wiki": false, "has_pages": false, "has_discussions": false, "archived": false,
            "disabled": false, "open_issues": 0, "open_issues_count": 0, "size": 1,
            "stargazers_count": 0, "watchers": 0, "watchers_count": 0, "pushed_at": time,
            "created_at": time, "updated_at": time, "network_count": 0, "subscribers_count": 0,
            "permissions": { "admin": false, "push": true, "pull": true },
        });
        for part in [names, figures] {
            if let Value::Object(part) = part {
                object.extend(part);
            }
        }
        Value::Object(object)
    }

    /// Returns one side of a pull request.
    pub(super) fn side(&self, repository: &str, branch: &str, commit: &str) -> Value {
        let owner = repository.split('/').next().unwrap_or_default();
        json!({
            "label": format!("{owner}:{branch}"), "ref": branch, "sha": commit,
            "repo": self.repository(repository), "user": self.user(owner),
        })
    }

    /// Returns the addresses of a pull request or an issue.
    pub(super) fn issue_links(
        &self,
        repository: &str,
        number: u64,
        kind: &str,
    ) -> Map<String, Value> {
        let url = format!("{}/repos/{repository}", self.api);
        let pages = format!("{}/{repository}/{kind}/{number}", self.pages);
        let own = format!("{url}/{kind}s/{number}");
        let object = json!({
            "id": number, "node_id": format!("{}_{number}", if kind == "pull" { "PR" } else { "I" }),
            "number": number, "url": own, "html_url": pages,
            "issue_url": format!("{url}/issues/{number}"),
            "comments_url": format!("{url}/issues/{number}/comments"),
            "events_url": format!("{url}/issues/{number}/events"),
            "labels_url": format!("{url}/issues/{number}/labels{{/name}}"),
            "repository_url": url, "diff_url": format!("{pages}.diff"),
            "patch_url": format!("{pages}.patch"), "commits_url": format!("{own}/commits"),
            "review_comments_url": format!("{own}/comments"),
            "review_comment_url": format!("{url}/pulls/comments{{/number}}"),
            "statuses_url": format!("{url}/statuses/head"), "locked": false, "assignee": null,
            "assignees": [], "milestone": null, "author_association": "MEMBER",
        });
        match object {
            Value::Object(object) => object,
            _ => Map::new(),
        }
    }

    pub(super) fn label(&self, repository: &str, name: &str) -> Value {
        json!({
            "id": 1, "node_id": "L_1", "url": format!("{}/repos/{repository}/labels/{name}", self.api),
            "name": name, "description": null, "color": "ededed", "default": false,
        })
    }
}

/// Returns the body of an error.
pub(super) fn error(message: &str) -> Value {
    json!({ "message": message, "documentation_url": "https://docs.github.com/rest" })
}

/// Returns the body of a failed validation.
pub(super) fn invalid(resource: &str, message: &str) -> Value {
    json!({
        "message": "Validation Failed",
        "errors": [{ "resource": resource, "code": "custom", "message": message }],
        "documentation_url": "https://docs.github.com/rest",
    })
}
