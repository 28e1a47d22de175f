//! Operations on merge requests.

use serde_json::{Value, json};

use super::super::fake_github::now;
use super::rest::{missing, note_answer};
use super::state::{DiscussionRecord, GitlabState, MergeRequest};
use super::{BOT, GitlabCall, GitlabServer};

/// Kind of the notes.
const KIND: &str = "MergeRequest";

pub(super) fn answer(
    server: &GitlabServer,
    state: &mut GitlabState,
    repository: &str,
    (call, rest): (&GitlabCall, &[&str]),
) -> (u16, Value) {
    let (number, rest) = match (call.method.as_str(), rest) {
        ("GET", []) => return (200, list(server, state, repository, call)),
        ("POST", []) => return open(server, state, repository, call),
        (_, [number, rest @ ..]) => (number.parse::<u64>().unwrap_or_default(), rest),
        _ => return missing("404 Not Found"),
    };
    let Some(change) = state.changes.get(&number).cloned() else {
        return missing("404 Not found");
    };
    match (call.method.as_str(), rest) {
        ("GET", []) => (200, change_answer(server, state, &change)),
        ("PUT", []) => update(server, state, change, call),
        ("PUT", ["merge"]) => merge(server, state, change, call),
        ("GET", ["approvals"]) => (200, json!({ "approved": false, "approved_by": [] })),
        ("GET", ["reviewers"]) => (200, json!([])),
        ("GET", ["versions"]) => {
            let head = head(server, &change);
            let version = json!({
                "id": 1, "head_commit_sha": head, "created_at": change.created, "state": "collected",
            });
            (200, json!([version]))
        }
        (_, ["discussions", rest @ ..]) => answer_about_threads(state, change, call, rest),
        ("GET", ["notes"]) => {
            // Newest first.
            let notes = change.discussions.iter().rev().flat_map(|it| it.notes.iter().rev());
            (200, notes.map(|it| note_answer(state, it, KIND)).collect())
        }
        ("POST", ["notes"]) => match state.add_discussion(number, BOT, &call.text("body"), None) {
            Some(note) => (201, note_answer(state, &note, KIND)),
            None => missing("404 Not found"),
        },
        ("PUT", ["notes", id]) => edit(state, change, call, id),
        _ => missing("404 Not Found"),
    }
}

/// Returns the head of a merge request.
fn head(server: &GitlabServer, change: &MergeRequest) -> String {
    let is_open = change.state == "opened";
    let live = is_open.then(|| server.tip(&change.repository, &change.branch)).flatten();
    live.unwrap_or_else(|| change.last_head.clone())
}

fn change_answer(server: &GitlabServer, state: &mut GitlabState, change: &MergeRequest) -> Value {
    let head = head(server, change);
    let base = server.tip(&change.repository, &change.base).unwrap_or_default();
    let merged = ["merge-tree", "--write-tree", &base, &head];
    let has_conflicts =
        change.state == "opened" && server.git(&change.repository, &merged).is_err();
    let merge_status = if has_conflicts { "cannot_be_merged" } else { "can_be_merged" };
    let is_draft = change.title.starts_with("Draft: ");
    let detailed = match change.state.as_str() {
        "opened" if has_conflicts => "conflict",
        "opened" if is_draft => "draft_status",
        "opened" => "mergeable",
        _ => "not_open",
    };
    let author = state.user(&change.by);
    let ended_by = change.ended_by.as_ref().map(|by| state.user(by));
    let merged_by = ended_by.clone().filter(|_| change.state == "merged");
    let closed_by = ended_by.filter(|_| change.state == "closed");
    json!({
        "id": 5_000 + change.iid, "iid": change.iid, "project_id": 1, "title": change.title,
        "description": change.description, "state": change.state, "author": author,
        "source_branch": change.branch, "target_branch": change.base, "labels": change.labels,
        "draft": is_draft, "sha": head, "has_conflicts": has_conflicts,
        "merge_status": merge_status, "detailed_merge_status": detailed,
        "merge_commit_sha": change.merge_commit, "squash_commit_sha": null,
        "merge_user": merged_by, "merged_by": merged_by, "closed_by": closed_by,
        "head_pipeline": null, "created_at": change.created, "updated_at": change.updated,
        "web_url": format!("{}/{}/-/merge_requests/{}", server.url, change.repository, change.iid),
    })
}

fn list(
    server: &GitlabServer,
    state: &mut GitlabState,
    repository: &str,
    call: &GitlabCall,
) -> Value {
    let fits = |wanted: Option<&str>, found: &str| wanted.is_none_or(|it| it == found);
    let found = state.changes.values().rev().filter(|it| {
        it.repository == repository
            && fits(call.query("source_branch"), &it.branch)
            && fits(call.query("target_branch"), &it.base)
            && fits(call.query("state").filter(|it| *it != "all"), &it.state)
    });
    let found: Vec<MergeRequest> = found.cloned().collect();
    found.iter().map(|it| change_answer(server, state, it)).collect()
}

fn open(
    server: &GitlabServer,
    state: &mut GitlabState,
    repository: &str,
    call: &GitlabCall,
) -> (u16, Value) {
    let (branch, base) = (call.text("source_branch"), call.text("target_branch"));
    let Some(last_head) = server.tip(repository, &branch) else {
        return (400, json!({ "message": { "source_branch": ["does not exist"] } }));
    };
    let is_same =
        |it: &&MergeRequest| it.branch == branch && it.base == base && it.state == "opened";
    if let Some(known) = state.changes.values().find(is_same) {
        let message = "Another open merge request already exists for this source branch";
        return (409, json!({ "message": [format!("{message}: !{}", known.iid)] }));
    }
    let iid = state.changes.keys().next_back().map_or(1, |last| last + 1);
    let labels = call.text("labels");
    let change = MergeRequest {
        iid,
        repository: repository.to_owned(),
        title: call.text("title"),
        description: call.text("description"),
        branch,
        base,
        by: BOT.to_owned(),
        labels: labels.split(',').filter(|it| !it.is_empty()).map(str::to_owned).collect(),
        state: "opened".to_owned(),
        last_head,
        merge_commit: None,
        ended_by: None,
        discussions: Vec::new(),
        created: now(),
        updated: now(),
    };
    let answer = change_answer(server, state, &change);
    state.changes.insert(iid, change);
    (201, answer)
}

fn update(
    server: &GitlabServer,
    state: &mut GitlabState,
    mut change: MergeRequest,
    call: &GitlabCall,
) -> (u16, Value) {
    if let Some(title) = call.body["title"].as_str() {
        title.clone_into(&mut change.title);
    }
    if let Some(text) = call.body["description"].as_str() {
        text.clone_into(&mut change.description);
    }
    if call.body["state_event"] == "close" && change.state == "opened" {
        change.last_head = head(server, &change);
        "closed".clone_into(&mut change.state);
        change.ended_by = Some(BOT.to_owned());
    }
    change.updated = now();
    store(server, state, change)
}

/// Saves a changed merge request and returns it.
fn store(server: &GitlabServer, state: &mut GitlabState, change: MergeRequest) -> (u16, Value) {
    let answer = change_answer(server, state, &change);
    state.changes.insert(change.iid, change);
    (200, answer)
}

fn merge(
    server: &GitlabServer,
    state: &mut GitlabState,
    mut change: MergeRequest,
    call: &GitlabCall,
) -> (u16, Value) {
    if change.state != "opened" || change.title.starts_with("Draft: ") {
        return (405, json!({ "message": "405 Method Not Allowed" }));
    }
    let head = head(server, &change);
    if call.body["sha"].as_str().is_some_and(|expected| expected != head) {
        return (409, json!({ "message": "SHA does not match HEAD of source branch" }));
    }
    let cannot = (422, json!({ "message": "Branch cannot be merged" }));
    let Some(base) = server.tip(&change.repository, &change.base) else { return cannot };
    let merged = server.git(&change.repository, &["merge-tree", "--write-tree", &base, &head]);
    let Ok(tree) = merged else { return cannot };
    let message = format!("Merge branch '{}' into '{}'", change.branch, change.base);
    let mut arguments = vec!["commit-tree", &tree, "-p", &base, "-m", &message];
    if call.body["squash"] != true {
        arguments.extend(["-p", &head]);
    }
    let branch = format!("refs/heads/{}", change.base);
    let landed = server.git(&change.repository, &arguments).and_then(|commit| {
        server.git(&change.repository, &["update-ref", &branch, &commit, &base]).map(|_| commit)
    });
    let Ok(commit) = landed else { return cannot };
    change.last_head = head;
    change.merge_commit = Some(commit);
    "merged".clone_into(&mut change.state);
    change.ended_by = Some(BOT.to_owned());
    change.updated = now();
    for (number, issue) in &mut state.issues {
        if change.description.contains(&format!("Closes #{number}\n"))
            || change.description.ends_with(&format!("Closes #{number}"))
        {
            issue.open = false;
            issue.updated = now();
        }
    }
    store(server, state, change)
}

/// Answers requests about the threads of a merge request.
fn answer_about_threads(
    state: &mut GitlabState,
    mut change: MergeRequest,
    call: &GitlabCall,
    rest: &[&str],
) -> (u16, Value) {
    let (id, rest) = match (call.method.as_str(), rest) {
        ("GET", []) => {
            let all = &change.discussions;
            return (200, all.iter().map(|it| thread_answer(state, it)).collect());
        }
        (_, [id, rest @ ..]) => (*id, rest),
        _ => return missing("404 Not Found"),
    };
    let Some(place) = change.discussions.iter().position(|it| it.id == id) else {
        return missing("404 Discussion Not Found");
    };
    match (call.method.as_str(), rest) {
        ("GET", []) => (200, thread_answer(state, &change.discussions[place])),
        ("PUT", []) => {
            if !change.discussions[place].resolvable {
                return (403, json!({ "message": "403 Forbidden" }));
            }
            let resolved = call.query("resolved") == Some("true") || call.body["resolved"] == true;
            change.discussions[place].resolved = resolved;
            let answer = thread_answer(state, &change.discussions[place]);
            state.changes.insert(change.iid, change);
            (200, answer)
        }
        ("POST", ["notes"]) => {
            let note = state.new_note(BOT, &call.text("body"), None);
            let answer = note_answer(state, &note, KIND);
            change.discussions[place].notes.push(note);
            change.updated = now();
            state.changes.insert(change.iid, change);
            (201, answer)
        }
        ("PUT", ["notes", note]) => edit(state, change, call, note),
        _ => missing("404 Not Found"),
    }
}

fn thread_answer(state: &mut GitlabState, thread: &DiscussionRecord) -> Value {
    let mut notes = Vec::new();
    for note in &thread.notes {
        let mut answer = note_answer(state, note, KIND);
        answer["resolvable"] = json!(thread.resolvable);
        answer["resolved"] = json!(thread.resolved);
        notes.push(answer);
    }
    json!({ "id": thread.id, "individual_note": !thread.resolvable, "notes": notes })
}

/// Changes the text of a note.
fn edit(
    state: &mut GitlabState,
    mut change: MergeRequest,
    call: &GitlabCall,
    id: &str,
) -> (u16, Value) {
    let mut notes = change.discussions.iter_mut().flat_map(|it| &mut it.notes);
    let Some(note) = notes.find(|it| it.id.to_string() == id) else {
        return missing("404 Note Not Found");
    };
    note.body = call.text("body");
    let answer = note_answer(state, note, KIND);
    state.changes.insert(change.iid, change);
    (200, answer)
}
