//! REST operations of our client.

use serde_json::{Value, json};

use super::super::github_answers::{error, invalid};
use super::state::{Comment, CommitStatus, GithubState, Pull, now};
use super::{BOT, Incoming, Shared, git, lock};

/// Returns the commit of a branch.
pub(super) fn tip(shared: &Shared, repository: &str, branch: &str) -> Option<String> {
    let bare = shared.folder.path().join(format!("{repository}.git"));
    git(&bare, &["rev-parse", "--verify", "--quiet", &format!("refs/heads/{branch}")]).ok()
}

/// Returns the head of a pull request.
pub(super) fn head(shared: &Shared, pull: &Pull) -> String {
    let is_open = pull.merged.is_none() && pull.closed_by.is_none();
    let live = is_open.then(|| tip(shared, &pull.repository, &pull.branch)).flatten();
    live.unwrap_or_else(|| pull.last_head.clone())
}

/// Returns the tree of a merge, unless both sides conflict.
pub(super) fn merged_tree(
    shared: &Shared,
    repository: &str,
    base: &str,
    head: &str,
) -> Option<String> {
    let bare = shared.folder.path().join(format!("{repository}.git"));
    git(&bare, &["merge-tree", "--write-tree", base, head]).ok()
}

pub(super) fn answer(shared: &Shared, incoming: &Incoming) -> (u16, Value) {
    let parts: Vec<&str> = incoming.path.trim_start_matches('/').split('/').collect();
    let mut state = lock(&shared.state);
    let (owner, name, rest) = match parts.as_slice() {
        ["user"] => return (200, shared.addresses.account(BOT)),
        ["meta"] => return (200, json!({ "verifiable_password_authentication": false })),
        ["repos", owner, name, rest @ ..] => (owner, name, rest),
        _ => return missing(),
    };
    let repository = format!("{owner}/{name}");
    if !state.repositories.contains(&repository) {
        return missing();
    }
    let body = &incoming.body;
    let number = |text: &str| text.parse::<u64>().unwrap_or_default();
    match (incoming.method.as_str(), rest) {
        ("GET", []) => (200, shared.addresses.repository(&repository)),
        ("GET", ["pulls"]) => (200, list_pulls(shared, &state, &repository, incoming)),
        ("POST", ["pulls"]) => open(shared, &mut state, &repository, body),
        ("GET", ["pulls", id]) => match state.pulls.get(&number(id)) {
            Some(pull) => (200, pull_request(shared, pull)),
            None => missing(),
        },
        ("PATCH", ["pulls", id]) => update(shared, &mut state, number(id), body),
        ("PUT", ["pulls", id, "merge"]) => merge(shared, &mut state, number(id), body),
        ("POST", ["pulls", _, "comments", first, "replies"]) => {
            let text = body["body"].as_str().unwrap_or_default();
            match state.reply(number(first), BOT, text) {
                Some(comment) => (201, review_comment(shared, &repository, &comment)),
                None => missing(),
            }
        }
        ("PATCH", ["issues", "comments", id]) => {
            edit(shared, &mut state, &repository, number(id), body)
        }
        ("GET", ["issues", "comments", id]) => {
            match state.comments.iter().find(|it| it.id == number(id)) {
                Some(comment) => (200, comment_answer(shared, &repository, comment)),
                None => missing(),
            }
        }
        ("GET", ["issues", "comments"]) => {
            let since = incoming.query("since").unwrap_or_default();
            let found = state.comments.iter().filter(|it| it.updated.as_str() >= since);
            (200, found.map(|it| comment_answer(shared, &repository, it)).collect())
        }
        ("GET", ["issues", id, "events"]) => match state.issues.get(&number(id)) {
            Some(issue) => {
                let actor = shared.addresses.user(&issue.by);
                let event = |name: &String| {
                    json!({
                        "id": 1, "node_id": "LE_1", "event": "labeled", "actor": actor,
                        "url": format!("{}/repos/{repository}/issues/events/1", shared.addresses.api),
                        "commit_id": null, "commit_url": null, "created_at": issue.updated,
                        "performed_via_github_app": null,
                        "label": { "name": name, "color": "ededed" },
                    })
                };
                (200, issue.labels.iter().map(event).collect())
            }
            None => missing(),
        },
        ("GET", ["issues"]) => (200, list_issues(shared, &state, &repository, incoming)),
        (method @ ("GET" | "POST"), ["issues", id, "comments"]) => {
            let id = number(id);
            if !state.issues.contains_key(&id) && !state.pulls.contains_key(&id) {
                return missing();
            }
            if method == "POST" {
                let text = body["body"].as_str().unwrap_or_default();
                state.add_comment(id, BOT, text);
                let written = state.comments.last();
                return (
                    201,
                    written.map(|it| comment_answer(shared, &repository, it)).unwrap_or_default(),
                );
            }
            let found = state.comments.iter().filter(|it| it.number == id);
            (200, found.map(|it| comment_answer(shared, &repository, it)).collect())
        }
        _ => answer_about_commits(shared, &mut state, &repository, (incoming, rest)),
    }
}

/// Answers requests about commits, branches and people.
fn answer_about_commits(
    shared: &Shared,
    state: &mut GithubState,
    repository: &str,
    (incoming, rest): (&Incoming, &[&str]),
) -> (u16, Value) {
    let body = &incoming.body;
    let number = |text: &str| text.parse::<u64>().unwrap_or_default();
    match (incoming.method.as_str(), rest) {
        ("GET", ["commits", commit, "statuses"]) => {
            let found = state.statuses.iter().rev().filter(|it| it.commit == *commit);
            (200, found.map(|it| status_answer(shared, repository, it)).collect())
        }
        ("POST", ["statuses", commit]) => {
            let status = CommitStatus {
                id: state.new_id(),
                commit: (*commit).to_owned(),
                content: body.clone(),
                by: BOT.to_owned(),
                created: now(),
            };
            let answer = status_answer(shared, repository, &status);
            state.statuses.push(status);
            (201, answer)
        }
        ("GET", ["actions", "jobs", id, "logs"]) => {
            let check = state.checks.iter().find(|it| it.id == number(id));
            match check.and_then(|it| it.log.clone()) {
                Some(log) => (200, Value::String(log)),
                None => missing(),
            }
        }
        ("POST", ["actions", "jobs", id, "rerun"]) => {
            match state.checks.iter_mut().find(|it| it.id == number(id)) {
                Some(check) => {
                    check.reruns += 1;
                    check.passed = None;
                    (201, json!({}))
                }
                None => missing(),
            }
        }
        ("GET", ["rules", "branches", _]) => (200, json!([])),
        ("GET", ["branches", branch @ ..]) => {
            let branch = branch.join("/");
            match tip(shared, repository, &branch) {
                Some(commit) => (
                    200,
                    json!({
                        "name": branch, "commit": { "sha": commit }, "protected": false,
                        "protection": { "required_status_checks": { "contexts": [] } },
                    }),
                ),
                None => missing(),
            }
        }
        ("GET", ["collaborators", account, "permission"]) => {
            let level = if state.can_write(account) { "write" } else { "read" };
            let user = shared.addresses.collaborator(account, level);
            (200, json!({ "permission": level, "role_name": level, "user": user }))
        }
        ("GET", ["git", "ref", "heads", branch @ ..]) => {
            match tip(shared, repository, &branch.join("/")) {
                Some(commit) => (200, reference(shared, repository, &branch.join("/"), &commit)),
                None => missing(),
            }
        }
        ("GET", ["compare", range]) => compare(shared, repository, range),
        ("PATCH", ["git", "refs", "heads", branch @ ..]) => {
            advance(shared, state, repository, (&branch.join("/"), body))
        }
        _ => missing(),
    }
}

fn missing() -> (u16, Value) {
    (404, error("Not Found"))
}

fn pull_request(shared: &Shared, pull: &Pull) -> Value {
    let addresses = &shared.addresses;
    let mut object = addresses.issue_links(&pull.repository, pull.number, "pull");
    let own = object.get("url").cloned().unwrap_or_default();
    let is_open = pull.merged.is_none() && pull.closed_by.is_none();
    let closed_at = (!is_open).then_some(&pull.updated);
    let merged_at = pull.merged.as_ref().map(|_| &pull.updated);
    let base = tip(shared, &pull.repository, &pull.base).unwrap_or_default();
    let head = head(shared, pull);
    let link = json!({ "href": own });
    let more = json!({
        "title": pull.title, "body": pull.body, "draft": pull.draft, "labels": [],
        "state": if is_open { "open" } else { "closed" }, "user": addresses.user(&pull.by),
        "head": addresses.side(&pull.repository, &pull.branch, &head),
        "base": addresses.side(&pull.repository, &pull.base, &base),
        "created_at": pull.updated, "updated_at": pull.updated, "closed_at": closed_at,
        "merged_at": merged_at, "merged": pull.merged.is_some(), "mergeable": is_open.then_some(true),
        "merge_commit_sha": pull.merged.as_ref().map(|(commit, _)| commit),
        "merged_by": pull.merged.as_ref().map(|(_, by)| addresses.user(by)),
        "mergeable_state": "clean", "maintainer_can_modify": false, "auto_merge": null,
        "additions": 1, "deletions": 0, "changed_files": 1, "commits": 1, "comments": 0,
        "review_comments": 0,
        "_links": {
            "self": link, "html": link, "issue": link, "comments": link, "review_comments": link,
            "review_comment": link, "commits": link, "statuses": link,
        },
    });
    if let Value::Object(more) = more {
        object.extend(more);
    }
    Value::Object(object)
}

fn list_pulls(
    shared: &Shared,
    state: &GithubState,
    repository: &str,
    incoming: &Incoming,
) -> Value {
    let branch = incoming.query("head").and_then(|it| it.split_once(':')).map(|(_, branch)| branch);
    let base = incoming.query("base");
    let found = state.pulls.values().rev().filter(|it| {
        it.repository == repository
            && branch.is_none_or(|branch| it.branch == branch)
            && base.is_none_or(|base| it.base == base)
    });
    found.map(|it| pull_request(shared, it)).collect()
}

fn open(shared: &Shared, state: &mut GithubState, repository: &str, body: &Value) -> (u16, Value) {
    let text = |key: &str| body[key].as_str().unwrap_or_default().to_owned();
    let (branch, base) = (text("head"), text("base"));
    let (Some(head), Some(base_tip)) =
        (tip(shared, repository, &branch), tip(shared, repository, &base))
    else {
        return (422, invalid("PullRequest", "invalid head or base"));
    };
    let is_same = |it: &Pull| {
        it.branch == branch && it.base == base && it.merged.is_none() && it.closed_by.is_none()
    };
    if state.pulls.values().any(is_same) {
        let owner = repository.split('/').next().unwrap_or_default();
        let message = format!("A pull request already exists for {owner}:{branch}.");
        return (422, invalid("PullRequest", &message));
    }
    if head == base_tip {
        let message = format!("No commits between {base} and {branch}");
        return (422, invalid("PullRequest", &message));
    }
    let number = state.new_number();
    let pull = Pull {
        number,
        repository: repository.to_owned(),
        title: text("title"),
        body: text("body"),
        branch,
        base,
        by: BOT.to_owned(),
        draft: body["draft"] == true,
        last_head: head,
        merged: None,
        closed_by: None,
        updated: now(),
    };
    let answer = pull_request(shared, &pull);
    state.pulls.insert(number, pull);
    (201, answer)
}

fn update(shared: &Shared, state: &mut GithubState, number: u64, body: &Value) -> (u16, Value) {
    let Some(pull) = state.pulls.get_mut(&number) else { return missing() };
    if let Some(title) = body["title"].as_str() {
        title.clone_into(&mut pull.title);
    }
    if let Some(text) = body["body"].as_str() {
        text.clone_into(&mut pull.body);
    }
    if body["state"] == "closed" && pull.merged.is_none() {
        pull.last_head = head(shared, pull);
        pull.closed_by = Some(BOT.to_owned());
    }
    pull.updated = now();
    (200, pull_request(shared, pull))
}

fn merge(shared: &Shared, state: &mut GithubState, number: u64, body: &Value) -> (u16, Value) {
    let Some(pull) = state.pulls.get_mut(&number) else { return missing() };
    if pull.merged.is_some() || pull.closed_by.is_some() || pull.draft {
        return (405, error("Pull Request is not mergeable"));
    }
    let head = head(shared, pull);
    if body["sha"].as_str().is_some_and(|expected| expected != head) {
        return (409, error("Head branch was modified. Review and try the merge again."));
    }
    let bare = shared.folder.path().join(format!("{}.git", pull.repository));
    let Some(base) = tip(shared, &pull.repository, &pull.base) else { return missing() };
    let Some(tree) = merged_tree(shared, &pull.repository, &base, &head) else {
        return (405, error("Pull Request is not mergeable"));
    };
    let message = format!("Merge pull request #{number}");
    let mut arguments = vec!["commit-tree", &tree, "-p", &base, "-m", &message];
    if body["merge_method"] != "squash" {
        arguments.extend(["-p", &head]);
    }
    let branch = format!("refs/heads/{}", pull.base);
    let landed = git(&bare, &arguments)
        .and_then(|commit| git(&bare, &["update-ref", &branch, &commit, &base]).map(|_| commit));
    let Ok(commit) = landed else {
        return (409, error("Base branch was modified. Review and try the merge again."));
    };
    pull.last_head = head;
    pull.merged = Some((commit.clone(), BOT.to_owned()));
    pull.updated = now();
    let text = pull.body.clone();
    state.close_issues(&text);
    let message = "Pull Request successfully merged";
    (200, json!({ "sha": commit, "merged": true, "message": message }))
}

fn list_issues(
    shared: &Shared,
    state: &GithubState,
    repository: &str,
    incoming: &Incoming,
) -> Value {
    let since = incoming.query("since").unwrap_or_default();
    let found = state.issues.iter();
    let found = found.filter(|(_, it)| it.repository == repository && it.updated.as_str() >= since);
    found
        .map(|(number, issue)| {
            let mut object = shared.addresses.issue_links(repository, *number, "issue");
            let labels: Vec<Value> =
                issue.labels.iter().map(|it| shared.addresses.label(repository, it)).collect();
            let more = json!({
                "title": issue.title, "body": issue.body, "user": shared.addresses.user(&issue.by),
                "labels": labels, "state": if issue.open { "open" } else { "closed" },
                "comments": 0, "closed_at": null, "created_at": issue.updated,
                "updated_at": issue.updated,
            });
            if let Value::Object(more) = more {
                object.extend(more);
            }
            Value::Object(object)
        })
        .collect()
}

fn comment_answer(shared: &Shared, repository: &str, comment: &Comment) -> Value {
    let url = format!("{}/repos/{repository}/issues", shared.addresses.api);
    json!({
        "id": comment.id, "node_id": format!("IC_{}", comment.id), "body": comment.body,
        "url": format!("{url}/comments/{}", comment.id), "user": shared.addresses.user(&comment.by),
        "html_url": format!("{}/{repository}/issues/{}", shared.addresses.pages, comment.number),
        "issue_url": format!("{url}/{}", comment.number), "created_at": comment.updated,
        "updated_at": comment.updated, "author_association": "MEMBER",
    })
}

fn review_comment(shared: &Shared, repository: &str, comment: &Comment) -> Value {
    let url = format!("{}/repos/{repository}/pulls", shared.addresses.api);
    let link = json!({ "href": url });
    json!({
        "id": comment.id, "node_id": format!("PRRC_{}", comment.id), "body": comment.body,
        "url": format!("{url}/comments/{}", comment.id), "user": shared.addresses.user(&comment.by),
        "html_url": format!("{}/{repository}/pull/{}", shared.addresses.pages, comment.number),
        "pull_request_url": format!("{url}/{}", comment.number), "pull_request_review_id": 1,
        "diff_hunk": "", "path": "", "commit_id": "", "original_commit_id": "",
        "created_at": comment.updated, "updated_at": comment.updated,
        "author_association": "MEMBER",
        "_links": { "self": link, "html": link, "pull_request": link },
    })
}

fn edit(
    shared: &Shared,
    state: &mut GithubState,
    repository: &str,
    id: u64,
    body: &Value,
) -> (u16, Value) {
    let Some(comment) = state.comments.iter_mut().find(|it| it.id == id) else { return missing() };
    body["body"].as_str().unwrap_or_default().clone_into(&mut comment.body);
    comment.updated = now();
    (200, comment_answer(shared, repository, comment))
}

fn status_answer(shared: &Shared, repository: &str, status: &CommitStatus) -> Value {
    let content = &status.content;
    let url = format!("{}/repos/{repository}/statuses/{}", shared.addresses.api, status.commit);
    json!({
        "id": status.id, "node_id": format!("SC_{}", status.id), "url": url, "avatar_url": null,
        "state": content["state"], "description": content["description"],
        "target_url": content["target_url"], "context": content["context"],
        "created_at": status.created, "updated_at": status.created,
        "creator": shared.addresses.user(&status.by),
    })
}

fn reference(shared: &Shared, repository: &str, branch: &str, commit: &str) -> Value {
    let url = format!("{}/repos/{repository}/git/refs/heads/{branch}", shared.addresses.api);
    json!({
        "ref": format!("refs/heads/{branch}"), "node_id": "REF_1", "url": url,
        "object": { "type": "commit", "sha": commit, "url": url },
    })
}

/// Compares two commits. Only the relation is filled in.
fn compare(shared: &Shared, repository: &str, range: &str) -> (u16, Value) {
    let bare = shared.folder.path().join(format!("{repository}.git"));
    let (old, new) = range.split_once("...").unwrap_or_default();
    let count = |range: String| {
        git(&bare, &["rev-list", "--count", &range]).ok().and_then(|it| it.parse::<u64>().ok())
    };
    let counts = (count(format!("{old}..{new}")), count(format!("{new}..{old}")));
    let (Some(ahead), Some(behind)) = counts else { return missing() };
    let status = match (ahead, behind) {
        (0, 0) => "identical",
        (_, 0) => "ahead",
        (0, _) => "behind",
        _ => "diverged",
    };
    (200, json!({ "status": status, "ahead_by": ahead, "behind_by": behind }))
}

/// Advances a branch if that is a fast-forward. Pull requests that it contains then are merged.
fn advance(
    shared: &Shared,
    state: &mut GithubState,
    repository: &str,
    (branch, body): (&str, &Value),
) -> (u16, Value) {
    let bare = shared.folder.path().join(format!("{repository}.git"));
    let new = body["sha"].as_str().unwrap_or_default();
    let Some(old) = tip(shared, repository, branch) else {
        return (422, error("Reference does not exist"));
    };
    if git(&bare, &["merge-base", "--is-ancestor", &old, new]).is_err() {
        return (422, error("Update is not a fast forward"));
    }
    if git(&bare, &["update-ref", &format!("refs/heads/{branch}"), new, &old]).is_err() {
        return (409, error("Reference cannot be updated"));
    }
    let mut texts = Vec::new();
    for pull in state.pulls.values_mut().filter(|it| it.repository == repository) {
        let is_open = pull.merged.is_none() && pull.closed_by.is_none();
        let head = head(shared, pull);
        let is_in = git(&bare, &["merge-base", "--is-ancestor", &head, new]).is_ok();
        if is_open && pull.base == branch && is_in {
            pull.last_head = head;
            pull.merged = Some((new.to_owned(), BOT.to_owned()));
            pull.updated = now();
            texts.push(pull.body.clone());
        }
    }
    for text in texts {
        state.close_issues(&text);
    }
    (200, reference(shared, repository, branch, new))
}
