//! GraphQL queries of our client. Selections are not evaluated: a response has all fields that any of
//! our queries asks for.

use serde_json::{Map, Value, json};

use super::state::{CheckRun, GithubState, Pull, Thread};
use super::{Incoming, Shared, lock, rest};

pub(super) fn answer(shared: &Shared, incoming: &Incoming) -> Value {
    let query = incoming.body["query"].as_str().unwrap_or_default();
    let variables = &incoming.body["variables"];
    let id = variables["id"].as_str().unwrap_or_default();
    let mut state = lock(&shared.state);
    if query.starts_with("mutation") {
        return mutate(&mut state, query, id);
    }
    if query.contains("node(id:") {
        return node(&state, id);
    }
    let text = |name: &str| variables[name].as_str().unwrap_or_default();
    let repository = format!("{}/{}", text("owner"), text("name"));
    if !state.repositories.contains(&repository) {
        return failed("NOT_FOUND", "Could not resolve to a Repository.");
    }
    let mut found = Map::new();
    if let Some((_, rest)) = query.split_once("object(oid: \"") {
        let commit: String = rest.chars().take_while(char::is_ascii_alphanumeric).collect();
        let contexts = json!({ "nodes": contexts(&state, &commit) });
        found.insert("object".to_owned(), json!({ "statusCheckRollup": { "contexts": contexts } }));
    }
    // `p7: pullRequest(number: 7)`, or `pullRequest(number: $number)`.
    for part in query.split("pullRequest(number: ").skip(1) {
        let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
        let (key, number) = match digits.parse::<u64>() {
            Ok(number) => (format!("p{number}"), Some(number)),
            Err(_) => ("pullRequest".to_owned(), variables["number"].as_u64()),
        };
        let pull = number.and_then(|number| state.pulls.get(&number).cloned());
        let pull = pull.filter(|pull| pull.repository == repository);
        let value = match pull {
            Some(pull) => pull_request(shared, &state, &pull),
            None => Value::Null,
        };
        found.insert(key, value);
    }
    json!({ "data": { "repository": found } })
}

fn failed(kind: &str, message: &str) -> Value {
    json!({ "data": null, "errors": [{ "type": kind, "message": message }] })
}

fn mutate(state: &mut GithubState, query: &str, id: &str) -> Value {
    if !query.contains("resolveReviewThread") {
        return failed("UNKNOWN", "The fake does not know this mutation.");
    }
    let Some(thread) = state.threads.iter_mut().find(|it| it.id == id) else {
        return failed("NOT_FOUND", "Could not resolve to a node.");
    };
    thread.resolved = true;
    let number = thread.comments[0].number;
    state.touch(number);
    json!({ "data": { "resolveReviewThread": { "thread": { "isResolved": true } } } })
}

fn node(state: &GithubState, id: &str) -> Value {
    if let Some(thread) = state.threads.iter().find(|it| it.id == id) {
        return json!({ "data": { "node": review_thread(thread) } });
    }
    let status = id.strip_prefix("SC_").and_then(|it| it.parse::<u64>().ok());
    match state.statuses.iter().find(|it| Some(it.id) == status) {
        Some(status) => {
            let content = &status.content;
            json!({ "data": { "node": {
                "context": content["context"], "description": content["description"],
                "targetUrl": content["target_url"],
            } } })
        }
        None => failed("NOT_FOUND", "Could not resolve to a node."),
    }
}

fn actor(login: &str) -> Value {
    let kind = if login.ends_with("[bot]") { "Bot" } else { "User" };
    json!({ "__typename": kind, "login": login.trim_end_matches("[bot]") })
}

fn review_thread(thread: &Thread) -> Value {
    let comments: Vec<Value> = thread
        .comments
        .iter()
        .map(|it| {
            json!({
                "databaseId": it.id, "author": actor(&it.by), "body": it.body, "path": thread.path,
                "line": thread.line, "originalLine": thread.line,
            })
        })
        .collect();
    json!({
        "id": thread.id, "isResolved": thread.resolved, "path": thread.path, "line": thread.line,
        "comments": { "totalCount": comments.len(), "nodes": comments },
    })
}

fn pull_request(shared: &Shared, state: &GithubState, pull: &Pull) -> Value {
    let head = rest::head(shared, pull);
    let base = rest::tip(shared, &pull.repository, &pull.base).unwrap_or_default();
    let status = match (&pull.merged, &pull.closed_by) {
        (Some(_), _) => "MERGED",
        (None, Some(_)) => "CLOSED",
        (None, None) => "OPEN",
    };
    let mergeable = if rest::merged_tree(shared, &pull.repository, &base, &head).is_some() {
        "MERGEABLE"
    } else {
        "CONFLICTING"
    };
    let of_pull = |number: u64| number == pull.number;
    let contexts = contexts(state, &head);
    let comments = state.comments.iter().filter(|it| of_pull(it.number));
    let comments: Vec<Value> = comments
        .map(|it| json!({ "databaseId": it.id, "author": actor(&it.by), "body": it.body }))
        .collect();
    let reviews = state.reviews.iter().filter(|it| of_pull(it.number));
    let reviews: Vec<Value> = reviews
        .map(|it| {
            json!({
                "databaseId": it.id, "author": actor(&it.by), "state": it.verdict, "body": "",
                "authorCanPushToRepository": state.can_write(&it.by),
                "commit": { "oid": it.commit },
            })
        })
        .collect();
    let threads: Vec<Value> = state
        .threads
        .iter()
        .filter(|it| of_pull(it.comments[0].number))
        .map(review_thread)
        .collect();
    let list = |nodes: Vec<Value>| {
        json!({
            "totalCount": nodes.len(), "pageInfo": { "hasNextPage": false }, "nodes": nodes,
        })
    };
    let merged = pull.merged.as_ref();
    let closed: Vec<Value> =
        pull.closed_by.iter().map(|by| json!({ "actor": actor(by) })).collect();
    let rollup = (!contexts.is_empty()).then(|| json!({ "contexts": list(contexts) }));
    json!({
        "id": format!("PR_{}", pull.number), "number": pull.number, "updatedAt": pull.updated,
        "state": status, "isDraft": pull.draft, "headRefOid": head, "baseRefOid": base,
        "baseRefName": pull.base, "baseRef": { "target": { "oid": base } },
        "mergeable": mergeable, "mergeStateStatus": "CLEAN", "isInMergeQueue": false,
        "isMergeQueueEnabled": false, "mergedBy": merged.map(|(_, by)| actor(by)),
        "mergeCommit": merged.map(|(commit, _)| json!({ "oid": commit })),
        "timelineItems": { "nodes": closed }, "comments": list(comments),
        "reviews": list(reviews), "reviewThreads": list(threads),
        "commits": { "nodes": [{ "commit": { "oid": head, "statusCheckRollup": rollup } }] },
    })
}

/// Returns the check runs and statuses of a commit.
fn contexts(state: &GithubState, commit: &str) -> Vec<Value> {
    let runs = state.checks.iter().filter(|it| it.commit == commit).map(check_run);
    let statuses = state.statuses.iter().filter(|it| it.commit == commit).map(|it| {
        let status = it.content["state"].as_str().unwrap_or_default().to_uppercase();
        json!({
            "__typename": "StatusContext", "id": format!("SC_{}", it.id), "state": status,
            "context": it.content["context"], "createdAt": it.created, "isRequired": false,
        })
    });
    runs.chain(statuses).collect()
}

fn check_run(check: &CheckRun) -> Value {
    let (status, conclusion) = match check.passed {
        None => ("IN_PROGRESS", None),
        Some(true) => ("COMPLETED", Some("SUCCESS")),
        Some(false) => ("COMPLETED", Some("FAILURE")),
    };
    json!({
        "__typename": "CheckRun", "databaseId": check.id, "name": check.name, "status": status,
        "conclusion": conclusion, "startedAt": null, "isRequired": false,
        "checkSuite": { "app": { "slug": check.app }, "workflowRun": null },
    })
}
