//! Webhooks of forges. A webhook is a hint that something changed; facts are always read again.
//!
//! Everything here is pure. The receiver passes headers through a function, so that it can use any
//! HTTP library.

use std::collections::BTreeSet;

use aws_lc_rs::{constant_time, hmac};
use serde_json::Value;
use tamma_core::forge::ForgeKind;
use tamma_core::ids::CommitId;

/// Largest webhook that is read, in bytes. GitHub sends up to 25 MB.
pub const MAX_WEBHOOK_BYTES: usize = 25 * 1024 * 1024;

/// Most numbers or commits of one webhook. A poll finds the rest.
const MAX_HINTS: usize = 100;

/// Longest name or ID, in characters.
const MAX_TEXT: usize = 200;

/// Refused webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WebhookError {
    /// Signature or token is missing or wrong.
    #[error("the signature does not match the `webhook_secret` of the forge")]
    Unsigned,
    /// Body is larger than [`MAX_WEBHOOK_BYTES`].
    #[error("the webhook is larger than 25 MiB")]
    TooLarge,
    /// Body is not JSON, or a required header is missing.
    #[error("the webhook has no delivery ID or event, or its body is not JSON")]
    Malformed,
}

/// Objects that a webhook says have changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WebhookHint {
    /// ID of the delivery, the same when it is sent again.
    pub delivery: String,
    /// Name of the event.
    pub event: String,
    /// Path of the repository, such as `owner/name`.
    pub repository: Option<String>,
    /// Numbers of pull requests.
    pub pull_requests: Vec<u64>,
    /// Numbers of issues.
    pub issues: Vec<u64>,
    /// Commits that got a new status, or that were pushed.
    pub commits: Vec<CommitId>,
}

/// Verifies a webhook, and returns what it says has changed. `header` returns a header by its
/// lower-case name.
pub fn receive<'a>(
    kind: ForgeKind,
    secret: &str,
    header: impl Fn(&str) -> Option<&'a str>,
    body: &[u8],
) -> Result<WebhookHint, WebhookError> {
    if body.len() > MAX_WEBHOOK_BYTES {
        return Err(WebhookError::TooLarge);
    }
    if !is_authentic(kind, secret, &header, body) {
        return Err(WebhookError::Unsigned);
    }
    let delivery = match kind {
        ForgeKind::Github => header("x-github-delivery"),
        ForgeKind::Gitea => header("x-gitea-delivery").or_else(|| header("x-forgejo-delivery")),
        // Older versions of GitLab only send the ID of the event, which is the same for a retry.
        ForgeKind::Gitlab => header("idempotency-key")
            .or_else(|| header("webhook-id"))
            .or_else(|| header("x-gitlab-webhook-uuid"))
            .or_else(|| header("x-gitlab-event-uuid")),
    };
    let event = match kind {
        ForgeKind::Github => header("x-github-event"),
        ForgeKind::Gitea => header("x-gitea-event").or_else(|| header("x-forgejo-event")),
        ForgeKind::Gitlab => header("x-gitlab-event"),
    };
    let (Some(delivery), Some(event)) = (delivery, event) else {
        return Err(WebhookError::Malformed);
    };
    let payload: Value = serde_json::from_slice(body).map_err(|_| WebhookError::Malformed)?;
    Ok(read_payload(delivery, event, &payload))
}

/// Compares the signature or the token in constant time.
fn is_authentic<'a>(
    kind: ForgeKind,
    secret: &str,
    header: &impl Fn(&str) -> Option<&'a str>,
    body: &[u8],
) -> bool {
    if secret.is_empty() {
        return false;
    }
    let signature = match kind {
        ForgeKind::Gitlab => {
            let token = header("x-gitlab-token").unwrap_or_default();
            let (token, secret) = (token.as_bytes(), secret.as_bytes());
            return constant_time::verify_slices_are_equal(token, secret).is_ok();
        }
        ForgeKind::Github => header("x-hub-signature-256"),
        ForgeKind::Gitea => header("x-hub-signature-256").or_else(|| header("x-gitea-signature")),
    };
    let Some(signature) = signature else { return false };
    let signature = signature.strip_prefix("sha256=").unwrap_or(signature);
    let Some(signature) = from_hex(signature) else { return false };
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    hmac::verify(&key, body, &signature).is_ok()
}

/// Reads the 32 bytes of a signature.
fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        let digits = text.get(2 * index..2 * index + 2)?;
        if !digits.chars().all(|it| it.is_ascii_hexdigit()) {
            return None;
        }
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    Some(bytes)
}

/// Reads any payload. Unknown forms give a hint without objects, after which everything is polled.
fn read_payload(delivery: &str, event: &str, payload: &Value) -> WebhookHint {
    let mut pull_requests = BTreeSet::new();
    let mut issues = BTreeSet::new();
    let mut commits = BTreeSet::new();
    let number = |value: &Value| value["number"].as_u64();
    pull_requests.extend(number(&payload["pull_request"]));
    // Comments on pull requests arrive as comments on issues.
    let issue = &payload["issue"];
    let is_pull_request = issue["pull_request"].is_object() || payload["is_pull"] == true;
    if let Some(number) = number(issue) {
        if is_pull_request {
            pull_requests.insert(number)
        } else {
            issues.insert(number)
        };
    }
    for path in ["/check_run", "/check_suite", "/workflow_run", "/check_run/check_suite"] {
        let Some(object) = payload.pointer(path) else { continue };
        commits.extend(commit(&object["head_sha"]));
        let listed = object["pull_requests"].as_array();
        pull_requests.extend(listed.into_iter().flatten().take(MAX_HINTS).filter_map(number));
    }
    for path in ["/sha", "/after", "/workflow_job/head_sha", "/merge_group/head_sha", "/commit/sha"]
    {
        commits.extend(payload.pointer(path).and_then(commit));
    }
    read_gitlab(payload, &mut pull_requests, &mut issues, &mut commits);
    let repository = payload.pointer("/repository/full_name");
    let repository = repository.or_else(|| payload.pointer("/project/path_with_namespace"));
    WebhookHint {
        delivery: short(delivery),
        event: short(event),
        repository: repository.and_then(Value::as_str).map(short),
        pull_requests: pull_requests.into_iter().take(MAX_HINTS).collect(),
        issues: issues.into_iter().take(MAX_HINTS).collect(),
        commits: commits.into_iter().take(MAX_HINTS).collect(),
    }
}

/// Reads the parts that only GitLab sends.
fn read_gitlab(
    payload: &Value,
    pull_requests: &mut BTreeSet<u64>,
    issues: &mut BTreeSet<u64>,
    commits: &mut BTreeSet<CommitId>,
) {
    let iid = |path: &str| payload.pointer(path).and_then(Value::as_u64);
    match payload["object_kind"].as_str() {
        Some("merge_request") => pull_requests.extend(iid("/object_attributes/iid")),
        Some("issue" | "work_item") => issues.extend(iid("/object_attributes/iid")),
        Some("note") => issues.extend(iid("/issue/iid")),
        Some("pipeline") => {
            commits.extend(payload.pointer("/object_attributes/sha").and_then(commit));
        }
        _ => {}
    }
    pull_requests.extend(iid("/merge_request/iid"));
    commits.extend(payload.pointer("/merge_request/last_commit/id").and_then(commit));
    commits.extend(payload.pointer("/object_attributes/last_commit/id").and_then(commit));
}

/// Reads a commit. The zeros of a deleted branch are none.
fn commit(value: &Value) -> Option<CommitId> {
    let text = value.as_str().filter(|text| text.chars().any(|it| it != '0'))?;
    text.parse().ok()
}

/// Shortens a text, and removes control characters.
fn short(text: &str) -> String {
    text.chars().filter(|it| !it.is_control()).take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Vector of GitHub's documentation.
    const SECRET: &str = "It's a Secret to Everybody";
    const SIGNATURE: &str = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    const SHA: &str = "ec26c3e57ca3a959ca5aad62de7213c562f8c821";

    fn authentic(kind: ForgeKind, name: &'static str, value: &'static str) -> bool {
        let header = |asked: &str| (asked == name).then_some(value);
        is_authentic(kind, SECRET, &header, b"Hello, World!")
    }

    #[test]
    fn documented_signature_is_accepted_and_others_are_not() {
        let prefixed = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        assert!(authentic(ForgeKind::Github, "x-hub-signature-256", prefixed));
        assert!(authentic(ForgeKind::Gitea, "x-hub-signature-256", prefixed));
        assert!(authentic(ForgeKind::Gitea, "x-gitea-signature", SIGNATURE));
        assert!(authentic(ForgeKind::Gitlab, "x-gitlab-token", SECRET));
        assert!(!authentic(ForgeKind::Github, "x-gitea-signature", SIGNATURE));
        assert!(!authentic(ForgeKind::Gitlab, "x-gitlab-token", "guess"));
        for wrong in ["", "sha256=", "sha256=757107", "sha1=757107", "sha256=++", &"z".repeat(64)] {
            let header = |_: &str| Some(wrong);
            assert!(!is_authentic(ForgeKind::Github, SECRET, &header, b"Hello, World!"), "{wrong}");
        }
        let header = |_: &str| Some(prefixed);
        assert!(!is_authentic(ForgeKind::Github, SECRET, &header, b"Hello, World?"));
        assert!(!is_authentic(ForgeKind::Github, "", &header, b"Hello, World!"));
    }

    #[test]
    fn webhook_without_signature_size_or_delivery_is_refused() {
        let gitlab = |asked: &str| (asked == "x-gitlab-token").then_some("s3cret");
        let refused = receive(ForgeKind::Gitlab, "s3cret", gitlab, b"{}");
        assert_eq!(refused, Err(WebhookError::Malformed));
        let refused = receive(ForgeKind::Gitlab, "other", gitlab, b"{}");
        assert_eq!(refused, Err(WebhookError::Unsigned));
        let refused =
            receive(ForgeKind::Gitlab, "s3cret", gitlab, &vec![b' '; MAX_WEBHOOK_BYTES + 1]);
        assert_eq!(refused, Err(WebhookError::TooLarge));
        let complete = |asked: &str| match asked {
            "x-gitlab-token" => Some("s3cret"),
            "idempotency-key" => Some("f5e5f430"),
            "x-gitlab-event" => Some("Push Hook"),
            _ => None,
        };
        let hint = receive(ForgeKind::Gitlab, "s3cret", complete, b"[]").unwrap();
        assert_eq!((hint.delivery.as_str(), hint.event.as_str()), ("f5e5f430", "Push Hook"));
        let refused = receive(ForgeKind::Gitlab, "s3cret", complete, b"{");
        assert_eq!(refused, Err(WebhookError::Malformed));
    }

    #[test]
    fn payloads_name_pull_requests_issues_and_commits() {
        let repository = json!({ "full_name": "acme/app" });
        let sha: CommitId = SHA.parse().unwrap();
        let cases = [
            (json!({ "pull_request": { "number": 2 } }), vec![2], vec![], vec![]),
            (json!({ "issue": { "number": 3 } }), vec![], vec![3], vec![]),
            (json!({ "issue": { "number": 3, "pull_request": {} } }), vec![3], vec![], vec![]),
            (json!({ "issue": { "number": 3 }, "is_pull": true }), vec![3], vec![], vec![]),
            (
                json!({ "check_run": { "head_sha": SHA, "pull_requests": [{ "number": 4 }] } }),
                vec![4],
                vec![],
                vec![sha],
            ),
            (json!({ "sha": SHA, "context": "ci" }), vec![], vec![], vec![sha]),
            (json!({ "after": "0".repeat(40) }), vec![], vec![], vec![]),
            (json!({ "workflow_job": { "head_sha": SHA } }), vec![], vec![], vec![sha]),
            (json!({ "pull_request": "odd", "issue": [1], "sha": 7 }), vec![], vec![], vec![]),
        ];
        for (mut payload, pull_requests, issues, commits) in cases {
            payload["repository"] = repository.clone();
            let hint = read_payload("d", "e", &payload);
            assert_eq!(hint.repository.as_deref(), Some("acme/app"));
            assert_eq!(
                (hint.pull_requests, hint.issues, hint.commits),
                (pull_requests, issues, commits)
            );
        }
        let payload = json!({
            "object_kind": "note", "project": { "path_with_namespace": "team/sub/app" },
            "object_attributes": { "iid": 9 },
            "merge_request": { "iid": 5, "last_commit": { "id": SHA } },
        });
        let hint = read_payload("d", "Note Hook", &payload);
        assert_eq!(hint.repository.as_deref(), Some("team/sub/app"));
        assert_eq!((hint.pull_requests, hint.issues, hint.commits), (vec![5], vec![], vec![sha]));
    }

    #[test]
    fn hostile_payload_is_bounded() {
        let listed: Vec<Value> = (0..10_000).map(|number| json!({ "number": number })).collect();
        let payload = json!({
            "repository": { "full_name": "x".repeat(100_000) },
            "check_run": { "head_sha": SHA, "pull_requests": listed },
        });
        let hint = read_payload(&"d".repeat(9_999), "e\n", &payload);
        assert_eq!(hint.delivery.len(), MAX_TEXT);
        assert_eq!(hint.event, "e");
        assert_eq!(hint.repository.unwrap().len(), MAX_TEXT);
        assert_eq!(hint.pull_requests.len(), MAX_HINTS);
    }
}
