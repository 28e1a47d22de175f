//! REST operations of our client, except those on merge requests.

use serde_json::{Value, json};

use super::super::fake_github::{lock, now};
use super::state::{GitlabState, IssueRecord, JobRecord, NoteRecord};
use super::{BOT, GitlabCall, GitlabServer, merge_requests};

pub(super) fn answer(server: &GitlabServer, call: &GitlabCall) -> (u16, Value) {
    let parts: Vec<&str> = call.parts.iter().map(String::as_str).collect();
    let mut state = lock(&server.state);
    let (repository, rest) = match parts.as_slice() {
        ["user"] => return (200, state.user(BOT)),
        ["version"] => return (200, json!({ "version": "18.5.0", "revision": "fake" })),
        ["personal_access_tokens", "self"] => {
            return (200, json!({ "id": 1, "name": "tests", "scopes": ["api"], "active": true }));
        }
        ["users"] => {
            let name = call.query("username").unwrap_or_default().to_owned();
            return (200, json!([state.user(&name)]));
        }
        ["projects", repository, rest @ ..] => (*repository, rest),
        _ => return missing("404 Not Found"),
    };
    if !state.repositories.contains(repository) {
        return missing("404 Project Not Found");
    }
    match (call.method.as_str(), rest) {
        ("GET", []) => (200, project(server, repository)),
        (_, ["merge_requests", rest @ ..]) => {
            merge_requests::answer(server, &mut state, repository, (call, rest))
        }
        ("GET", ["issues"]) => (200, list_issues(server, &mut state, repository, call)),
        (_, ["issues", number, rest @ ..]) => {
            answer_about_issue(&mut state, call, number.parse().unwrap_or_default(), rest)
        }
        ("GET", ["repository", "branches", branch]) => match server.tip(repository, branch) {
            Some(commit) => (200, json!({ "name": branch, "commit": { "id": commit } })),
            None => missing("404 Branch Not Found"),
        },
        ("GET", ["repository", "commits", commit, "statuses"]) => {
            let found = state.jobs.iter().filter(|it| it.commit == *commit && !it.replaced);
            (200, found.map(job_answer).collect())
        }
        ("POST", ["statuses", commit]) => publish(&mut state, call, commit),
        ("GET", ["pipelines", _, "jobs"]) => (200, json!([])),
        ("GET", ["jobs", id, "trace"]) => {
            let job = state.jobs.iter().find(|it| it.id.to_string() == *id);
            match job.and_then(|it| it.trace.clone()) {
                Some(trace) => (200, Value::String(trace)),
                None => missing("404 Not Found"),
            }
        }
        ("POST", ["jobs", id, "retry"]) => retry(&mut state, id),
        ("GET", ["members", "all", id]) => {
            let id = id.parse::<u64>().unwrap_or_default();
            if state.developers.contains(&id) {
                return (200, json!({ "id": id, "access_level": 30, "state": "active" }));
            }
            missing("404 Not found")
        }
        _ => missing("404 Not Found"),
    }
}

pub(super) fn missing(message: &str) -> (u16, Value) {
    (404, json!({ "message": message }))
}

fn project(server: &GitlabServer, repository: &str) -> Value {
    json!({
        "id": 1, "path_with_namespace": repository, "default_branch": "main",
        "web_url": format!("{}/{repository}", server.url),
        "http_url_to_repo": format!("{}/{repository}.git", server.url),
        "only_allow_merge_if_pipeline_succeeds": false, "merge_method": "merge",
        "permissions": { "project_access": { "access_level": 30 }, "group_access": null },
    })
}

/// Returns a note. `kind` is `Issue` or `MergeRequest`.
pub(super) fn note_answer(state: &mut GitlabState, note: &NoteRecord, kind: &str) -> Value {
    let author = state.user(&note.by);
    json!({
        "id": note.id, "body": note.body, "author": author, "system": false,
        "noteable_type": kind, "resolvable": false, "created_at": note.created,
        "updated_at": note.created, "position": note.position,
    })
}

fn issue_answer(
    server: &GitlabServer,
    state: &mut GitlabState,
    repository: &str,
    (number, issue): (u64, &IssueRecord),
) -> Value {
    let author = state.user(&issue.by);
    json!({
        "id": 1_000 + number, "iid": number, "project_id": 1, "title": issue.title,
        "description": issue.body, "author": author, "labels": issue.labels,
        "state": if issue.open { "opened" } else { "closed" },
        "web_url": format!("{}/{repository}/-/issues/{number}", server.url),
        "created_at": issue.created, "updated_at": issue.updated,
    })
}

fn list_issues(
    server: &GitlabServer,
    state: &mut GitlabState,
    repository: &str,
    call: &GitlabCall,
) -> Value {
    let since = call.query("updated_after").unwrap_or_default();
    let found = state.issues.iter().filter(|(_, it)| it.updated.as_str() >= since);
    let mut found: Vec<(u64, IssueRecord)> = found.map(|(id, it)| (*id, it.clone())).collect();
    found.sort_by(|one, other| one.1.updated.cmp(&other.1.updated));
    found
        .iter()
        .map(|(number, issue)| issue_answer(server, state, repository, (*number, issue)))
        .collect()
}

/// Answers requests about the notes and labels of one issue.
fn answer_about_issue(
    state: &mut GitlabState,
    call: &GitlabCall,
    number: u64,
    rest: &[&str],
) -> (u16, Value) {
    let Some(issue) = state.issues.get(&number).cloned() else {
        return missing("404 Not found");
    };
    match (call.method.as_str(), rest) {
        ("GET", ["notes"]) => {
            // Newest first, unless asked otherwise.
            let mut notes = issue.notes;
            if call.query("sort") != Some("asc") {
                notes.reverse();
            }
            (200, notes.iter().map(|it| note_answer(state, it, "Issue")).collect())
        }
        ("POST", ["notes"]) => match state.add_issue_note(number, BOT, &call.text("body")) {
            Some(note) => (201, note_answer(state, &note, "Issue")),
            None => missing("404 Not found"),
        },
        ("PUT", ["notes", id]) => {
            let own = state.issues.get_mut(&number);
            let note = own.and_then(|it| it.notes.iter_mut().find(|it| it.id.to_string() == *id));
            let Some(note) = note else { return missing("404 Note Not Found") };
            note.body = call.text("body");
            let note = note.clone();
            (200, note_answer(state, &note, "Issue"))
        }
        ("GET", ["resource_label_events"]) => {
            let user = state.user(&issue.by);
            let event = |(id, name): (usize, &String)| {
                json!({
                    "id": id + 1, "user": user, "created_at": issue.created,
                    "resource_type": "Issue", "label": { "id": 1, "name": name }, "action": "add",
                })
            };
            (200, issue.labels.iter().enumerate().map(event).collect())
        }
        _ => missing("404 Not Found"),
    }
}

fn job_answer(job: &JobRecord) -> Value {
    json!({
        "id": job.id, "sha": job.commit, "ref": "main", "status": job.status, "name": job.name,
        "description": job.description, "target_url": job.target_url, "allow_failure": false,
        "created_at": now(), "author": { "id": 1, "username": job.by },
    })
}

/// Publishes a status. One that is under way changes; after the end of one, a new one is added.
fn publish(state: &mut GitlabState, call: &GitlabCall, commit: &str) -> (u16, Value) {
    let (name, status) = (call.text("name"), call.text("state"));
    if !["pending", "running", "success", "failed", "canceled", "skipped"].contains(&&*status) {
        return (400, json!({ "error": "state does not have a valid value" }));
    }
    let is_same = |it: &&mut JobRecord| it.commit == commit && it.name == name && !it.replaced;
    if let Some(known) = state.jobs.iter_mut().find(is_same) {
        if known.status == status {
            let message = format!("Cannot transition status via :{status} from :{status}");
            return (400, json!({ "message": message }));
        }
        if ["pending", "running"].contains(&known.status.as_str()) {
            known.status = status;
            known.description = call.text("description");
            return (201, job_answer(known));
        }
        known.replaced = true;
    }
    let job = JobRecord {
        id: state.new_id(),
        commit: commit.to_owned(),
        name,
        status,
        description: call.text("description"),
        target_url: call.body["target_url"].as_str().map(str::to_owned),
        trace: None,
        by: BOT.to_owned(),
        replaced: false,
    };
    let answer = job_answer(&job);
    state.jobs.push(job);
    (201, answer)
}

/// Runs a job again: a new one replaces it.
fn retry(state: &mut GitlabState, id: &str) -> (u16, Value) {
    let new = state.new_id();
    let job = state.jobs.iter_mut().find(|it| it.id.to_string() == id && it.trace.is_some());
    let Some(job) = job else { return missing("404 Not found") };
    if ["pending", "running"].contains(&job.status.as_str()) || job.replaced {
        return (403, json!({ "message": "403 Forbidden - Job is not retryable" }));
    }
    job.replaced = true;
    let again = JobRecord {
        id: new,
        status: "pending".to_owned(),
        replaced: false,
        trace: Some(String::new()),
        ..job.clone()
    };
    let answer = job_answer(&again);
    state.jobs.push(again);
    (201, answer)
}
