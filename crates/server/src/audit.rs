//! Audit log of requests: who asked for what, how they were authenticated, from where, and under
//! which policy.
//!
//! An entry is recorded before anything is done for a request; without it, the request is not served.
//! Its result follows when the request has ended. Each server appends the entries of all servers to
//! the hash chain, one at a time.

mod exporter;

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use chrono::TimeDelta;
use serde_json::Value;
use tamma_core::access::{AccessAction, AccessRole, Permission};
use tamma_core::actor::{AuthMethod, Authentication, RequestInterface};
use tamma_core::audit::{AuditKind, AuditOutcome, AuditRequest, AuditResult};
use tamma_core::ids::{Name, ProjectId, TaskId};
use tamma_core::time::Timestamp;
use tamma_store::Store;
use tamma_telemetry::trace::{self, SpanRecord, spans};
use tamma_telemetry::{names, registry};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub(crate) use exporter::AuditExporter;

use crate::app::{Error, Principal};
use crate::edge::{RequestId, client_address};
use crate::problem::Problem;
use crate::route_access::{CallerRights, action_audit_kind, audit_kind};
use crate::{auth, clock};

/// Maximum number of entries that are appended in one transaction.
const BATCH_SIZE: u32 = 500;

/// Time after which the result of a request is unknown. No request takes that long.
const ABANDONED_AFTER: TimeDelta = TimeDelta::minutes(5);

/// Maximum time between two rounds, for entries of servers that died.
const MAX_WAIT: Duration = Duration::from_secs(15);

/// Action of a request that adds a task.
pub(crate) const ADD_TASK: &str = "add_task";

/// Maximum length of a subject, in characters. Callers choose it, and an entry must fit into one syslog
/// datagram: one that does not would hold up all that follow.
const MAX_SUBJECT_CHARS: usize = 1000;

tokio::task_local! {
    /// Notes about the request that the current task serves.
    static NOTES: Arc<Mutex<AuditNotes>>;
}

/// Facts about a request that only its use case knows.
#[derive(Debug, Default)]
struct AuditNotes {
    policy: Option<String>,
    project: Option<ProjectId>,
    actions: Vec<String>,
    /// Those of them that are about a task.
    task_actions: Vec<(String, TaskId)>,
}

/// Audit log of the installation. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct AuditLog {
    store: Store,
    /// Signals that an entry has its result.
    completed: Arc<Notify>,
    /// Signals that the chain has grown.
    appended: Arc<Notify>,
}

impl AuditLog {
    pub(crate) fn new(store: Store) -> Self {
        Self { store, completed: Arc::default(), appended: Arc::default() }
    }

    /// Records a request, does its work, and records the result. Does nothing if the request cannot be
    /// recorded.
    pub(crate) async fn record<T>(
        &self,
        request: &AuditRequest,
        work: impl Future<Output = T>,
        judge: impl FnOnce(&T) -> (AuditResult, Option<u16>),
    ) -> Result<T, Error> {
        let id = self.store.begin_audit(request).await?;
        let notes = Arc::new(Mutex::new(AuditNotes::default()));
        let done = NOTES.scope(Arc::clone(&notes), work).await;
        let (result, status) = judge(&done);
        let AuditNotes { policy, project, actions, task_actions } =
            std::mem::take(&mut *notes.lock().unwrap_or_else(PoisonError::into_inner));
        record_spans(request, &task_actions, result);
        let outcome = AuditOutcome { result, status, policy, project, actions };
        match self.store.complete_audit(id, &outcome).await {
            Ok(_) => self.completed.notify_one(),
            Err(error) => {
                let route = &request.route;
                tracing::error!(%error, route, "failed to record result of audited request");
            }
        }
        Ok(done)
    }

    /// Appends entries to the chain until `stop` is cancelled.
    pub(crate) async fn run(self, stop: CancellationToken) {
        loop {
            if let Err(error) = self.append_entries().await {
                registry().add(&names::AUDIT_FAILURES, &[("step", "append")], 1.0);
                tracing::warn!(%error, "failed to append to audit log; retrying");
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.completed.notified() => {}
                () = tokio::time::sleep(MAX_WAIT) => {}
            }
        }
        if let Err(error) = self.append_entries().await {
            tracing::warn!(%error, "failed to append last entries to audit log; another server will");
        }
    }

    async fn append_entries(&self) -> Result<(), Error> {
        loop {
            let abandoned_before = clock::now() - ABANDONED_AFTER;
            let appended = self.store.append_audit_entries(abandoned_before, BATCH_SIZE).await?;
            if appended > 0 {
                self.appended.notify_waiters();
            }
            if appended < u64::from(BATCH_SIZE) {
                return Ok(());
            }
        }
    }
}

/// Records a span for each action on a task, in the trace of the task. A new task starts one.
fn record_spans(request: &AuditRequest, actions: &[(String, TaskId)], result: AuditResult) {
    let nanos = |at: Timestamp| at.timestamp_nanos_opt().and_then(|it| u64::try_from(it).ok());
    for (name, task) in actions {
        let is_first = name == ADD_TASK;
        // The caller chooses the ID of a new task. If it was not added, it may be that of another one.
        if is_first && result != AuditResult::Granted {
            continue;
        }
        spans().record(|| {
            let trace = task.0.as_u128();
            let root = trace::root_span(trace);
            let start_nanos = nanos(request.at).unwrap_or_default();
            let via = request.auth.map_or_else(String::new, |auth| auth.via.to_string());
            let own = || trace::named_span(trace, name, start_nanos);
            SpanRecord {
                trace,
                id: if is_first { root } else { own() },
                parent: (!is_first).then_some(root),
                name: name.clone(),
                start_nanos,
                end_nanos: nanos(clock::now()).unwrap_or(start_nanos),
                attributes: vec![
                    ("tamma.route", request.route.as_str().into()),
                    ("tamma.interface", via.as_str().into()),
                    ("tamma.request.id", request.request_id.clone().unwrap_or_default().into()),
                ],
                error: (result != AuditResult::Granted).then(|| result.to_string()),
            }
        });
    }
}

/// Notes the policy that allowed or refused the current request.
pub(crate) fn note_policy(
    permission: Permission,
    role: Option<AccessRole>,
    project: Option<ProjectId>,
) {
    let policy = match role {
        Some(role) => format!("role {role}: {permission}"),
        None => format!("no role: {permission}"),
    };
    note(|notes| {
        notes.policy = Some(policy);
        notes.project = project;
    });
}

/// Notes the policy of the operator that refused the current request.
pub(crate) fn note_refusing_policy(policy: &str) {
    note(|notes| notes.policy = Some(format!("policy {policy}")));
}

/// Notes an action of the current request, such as `approve`, and its subject.
pub(crate) fn note_action(action: impl std::fmt::Display, subject: impl std::fmt::Display) {
    note(|notes| notes.actions.push(format!("{action} {subject}")));
}

/// Notes an action of the current request on a task.
pub(crate) fn note_task_action(action: impl std::fmt::Display, task: TaskId) {
    let action = action.to_string();
    note(|notes| {
        notes.actions.push(format!("{action} {task}"));
        notes.task_actions.push((action, task));
    });
}

fn note(change: impl FnOnce(&mut AuditNotes)) {
    // Nothing is noted outside of audited requests.
    let _ = NOTES.try_with(|notes| {
        change(&mut notes.lock().unwrap_or_else(PoisonError::into_inner));
    });
}

/// Middleware that records each request that the table of routes marks.
pub(crate) async fn record_request(
    State(log): State<AuditLog>,
    request: Request,
    next: Next,
) -> Response {
    let (parts, body) = request.into_parts();
    let audited = audited_request(&parts);
    let request = Request::from_parts(parts, body);
    let Some(audited) = audited else { return next.run(request).await };
    match log.record(&audited, next.run(request), judge_response).await {
        Ok(response) => response,
        Err(error) => Problem::from(error).into_response(),
    }
}

/// Returns the entry of a request; `None` if it leaves none.
fn audited_request(parts: &Parts) -> Option<AuditRequest> {
    let route = parts.extensions.get::<MatchedPath>()?.as_str();
    let kind = audit_kind(&parts.method, route)?;
    let route = format!("{} {route}", parts.method);
    request_of(parts, kind, route, parts.uri.path())
}

/// Returns the entry of an authenticated request; `None` if nobody has authenticated it.
pub(crate) fn request_of(
    parts: &Parts,
    kind: AuditKind,
    route: String,
    subject: &str,
) -> Option<AuditRequest> {
    parts.extensions.get::<CallerRights>()?;
    let by = parts.extensions.get::<Principal>().cloned();
    let by = by.or_else(|| auth::principal(parts).ok());
    // Only an operator can leave the name out.
    let nameless = Authentication { method: AuthMethod::ServerToken, via: RequestInterface::Api };
    Some(AuditRequest {
        at: clock::now(),
        kind,
        route,
        subject: subject.chars().take(MAX_SUBJECT_CHARS).collect(),
        auth: Some(by.as_ref().map_or(nameless, Principal::authentication)),
        person: by.map(|by| by.name.to_string()),
        address: client_address(&parts.extensions).map(|address| address.to_string()),
        request_id: parts.extensions.get::<RequestId>().map(|id| id.0.clone()),
    })
}

/// Returns the entry of a call of an MCP tool; `None` if it leaves none.
pub(crate) fn tool_call_request(
    parts: &Parts,
    action: AccessAction,
    tool: &str,
    arguments: &Value,
) -> Option<AuditRequest> {
    let reads = matches!(action, AccessAction::ReadProject | AccessAction::ReadContent);
    let kind = action_audit_kind(action, reads)?;
    let named = ["task", "story", "project"].iter().find_map(|key| arguments.get(key)?.as_str());
    let request = request_of(parts, kind, format!("tool {tool}"), named.unwrap_or_default())?;
    let through_mcp = |auth: Authentication| Authentication { via: RequestInterface::Mcp, ..auth };
    let auth = request.auth.map(through_mcp);
    Some(AuditRequest { auth, ..request })
}

/// Returns the entry of a sign-in, which is recorded once it is known who signs in.
pub(crate) fn sign_in_request(
    person: &Name,
    auth: Authentication,
    route: &str,
    address: Option<IpAddr>,
) -> AuditRequest {
    AuditRequest {
        at: clock::now(),
        kind: AuditKind::Secret,
        route: route.to_owned(),
        subject: person.to_string(),
        person: Some(person.to_string()),
        auth: Some(auth),
        address: address.map(|address| address.to_string()),
        request_id: None,
    }
}

/// Returns the entry of a person's request that no client sent, such as a comment in a forge.
pub(crate) fn request_by(by: &Principal, kind: AuditKind, subject: &str) -> AuditRequest {
    AuditRequest {
        at: clock::now(),
        kind,
        route: by.interface.to_string(),
        subject: subject.chars().take(MAX_SUBJECT_CHARS).collect(),
        person: Some(by.name.to_string()),
        auth: Some(by.authentication()),
        address: None,
        request_id: None,
    }
}

fn judge_response(response: &Response) -> (AuditResult, Option<u16>) {
    let status = response.status();
    let result = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::METHOD_NOT_ALLOWED => {
            AuditResult::Refused
        }
        status if status.is_client_error() || status.is_server_error() => AuditResult::Failed,
        _ => AuditResult::Granted,
    };
    (result, Some(status.as_u16()))
}

/// Judges the result of a use case.
pub(crate) fn judge_result<T>(result: &Result<T, Error>) -> (AuditResult, Option<u16>) {
    let result = match result {
        Ok(_) => AuditResult::Granted,
        Err(
            Error::Forbidden { .. }
            | Error::PolicyForbids { .. }
            | Error::NotOperator
            | Error::NotAdministrator,
        ) => AuditResult::Refused,
        Err(_) => AuditResult::Failed,
    };
    (result, None)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[tokio::test]
    async fn only_actions_on_tasks_are_part_of_a_trace() {
        let notes = Arc::new(Mutex::new(AuditNotes::default()));
        let [task, subject] = [1, 2].map(Uuid::from_u128);
        NOTES
            .scope(Arc::clone(&notes), async {
                // Subjects of identity providers look like the ID of a task.
                note_action("login_ended", subject);
                note_task_action("approve", TaskId(task));
            })
            .await;
        let notes = std::mem::take(&mut *notes.lock().expect("not poisoned"));
        assert_eq!(notes.actions, [format!("login_ended {subject}"), format!("approve {task}")]);
        assert_eq!(notes.task_actions, [("approve".to_owned(), TaskId(task))]);
    }

    #[test]
    fn a_task_that_was_not_added_starts_no_trace() {
        let request = AuditRequest {
            at: clock::now(),
            kind: AuditKind::Decision,
            route: "POST /api/v1/tasks".to_owned(),
            subject: String::new(),
            person: None,
            auth: None,
            address: None,
            request_id: None,
        };
        spans().enable();
        let task = TaskId(Uuid::from_u128(0x5ba5));
        let count = |result| {
            record_spans(&request, &[(ADD_TASK.to_owned(), task)], result);
            let taken = spans().take(usize::MAX);
            taken.into_iter().filter(|span| span.trace == task.0.as_u128()).count()
        };
        assert_eq!(count(AuditResult::Refused), 0, "the ID may be that of another task");
        assert_eq!(count(AuditResult::Granted), 1);
    }
}
