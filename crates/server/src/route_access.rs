//! Access to routes: which action each route is, and on what.
//!
//! Every request passes this table before its handler. A route that the table lacks is refused, so a
//! new one cannot be served before somebody has decided who can use it. Whoever cannot read a task
//! gets the answer for a missing one.

use axum::extract::{FromRequestParts as _, MatchedPath, RawPathParams, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use tamma_core::access::{AccessAction, AccessRights, Permission};
use tamma_core::audit::AuditKind;
use tamma_core::ids::{Name, TaskId};
use tamma_store::Store;

use crate::app::{Error, forbidden, limit_store, parse_run_id};
use crate::audit;
use crate::problem::Problem;

use AccessAction as A;

/// Rights of the caller of a request, stored in the request's extensions.
#[derive(Debug, Clone)]
pub(crate) struct CallerRights {
    /// Name of the person; `None` for an operator, who names one with each request, and before
    /// somebody signs in.
    pub(crate) person: Option<Name>,
    pub(crate) rights: AccessRights,
}

/// Condition under which a route is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RouteRule {
    /// For anybody: sign-in, files of the pages, and webhooks, which carry a signature.
    Public,
    /// For everybody who has signed in. The response contains no data of a project.
    SignedIn,
    /// For those who can do this in at least one project. The handler reads through a store that is
    /// limited to the caller's projects, and the use case checks the project that the request names.
    Anywhere(AccessAction),
    /// For those who can do this in the project of the task in the path.
    Task(AccessAction),
    /// For those who can do this in the project of the run in the path.
    Run(AccessAction),
}

use RouteRule::{Anywhere, Public, Run, SignedIn, Task};

/// Method that stands for all of them.
const ANY: &str = "*";

/// Rule of each route, by method and path.
const ROUTES: &[(&str, &str, RouteRule)] = &[
    ("GET", "/api/v1/tasks", Anywhere(A::ReadProject)),
    ("POST", "/api/v1/tasks", Anywhere(A::AddTask)),
    ("GET", "/api/v1/tasks/overdue", Anywhere(A::ReadProject)),
    ("GET", "/api/v1/tasks/failing", Anywhere(A::ReadProject)),
    ("POST", "/api/v1/tasks/actions", Anywhere(A::ControlTask)),
    ("GET", "/api/v1/tasks/{id}", Task(A::ReadProject)),
    ("GET", "/api/v1/tasks/{id}/plan", Task(A::ReadContent)),
    ("GET", "/api/v1/tasks/{id}/diff", Task(A::ReadContent)),
    ("GET", "/api/v1/tasks/{id}/report", Task(A::ReadContent)),
    ("GET", "/api/v1/tasks/{id}/bundle", Task(A::Export)),
    ("GET", "/api/v1/tasks/{id}/verdict", Task(A::ReadContent)),
    ("POST", "/api/v1/tasks/{id}/actions", Task(A::ControlTask)),
    ("POST", "/api/v1/tasks/{id}/restart", Anywhere(A::RestartTask)),
    ("GET", "/api/v1/tasks/{id}/history", Task(A::ReadProject)),
    ("GET", "/api/v1/tasks/{id}/events", Task(A::ReadProject)),
    ("GET", "/api/v1/tasks/{id}/runs", Task(A::ReadContent)),
    ("GET", "/api/v1/tasks/{id}/lines", Task(A::ReadContent)),
    ("GET", "/api/v1/tasks/{id}/lines/stream", Task(A::ReadContent)),
    ("GET", "/api/v1/tasks/{id}/runs/{run}/transcript", Task(A::ReadContent)),
    ("GET", "/api/v1/export", Anywhere(A::Export)),
    ("GET", "/api/v1/audit", Anywhere(A::ReadProject)),
    ("GET", "/api/v1/audit/log", Anywhere(A::ReadAudit)),
    ("GET", "/api/v1/inbox", Anywhere(A::ReadProject)),
    ("GET", "/api/v1/knowledge", Anywhere(A::ReadProject)),
    ("POST", "/api/v1/knowledge", Anywhere(A::ProposeKnowledge)),
    ("GET", "/api/v1/knowledge/{id}", Anywhere(A::ReadProject)),
    ("PUT", "/api/v1/knowledge/{id}", Anywhere(A::ProposeKnowledge)),
    ("POST", "/api/v1/knowledge/{id}/decision", Anywhere(A::DecideKnowledge)),
    ("POST", "/api/v1/knowledge/import", Anywhere(A::ProposeKnowledge)),
    ("POST", "/api/v1/knowledge/check", Anywhere(A::ReadProject)),
    ("POST", "/api/v1/chat", Anywhere(A::ReadProject)),
    ("GET", "/api/v1/alerts", Anywhere(A::ReadProject)),
    ("POST", "/api/v1/alerts/test", Anywhere(A::TestAlerts)),
    ("GET", "/api/v1/people", Anywhere(A::ManagePeople)),
    ("POST", "/api/v1/people", Anywhere(A::ManagePeople)),
    ("POST", "/api/v1/people/revocations", Anywhere(A::ManagePeople)),
    ("POST", "/api/v1/people/deactivations", Anywhere(A::ManagePeople)),
    ("POST", "/api/v1/people/activations", Anywhere(A::ManagePeople)),
    ("POST", "/api/v1/people/identities", Anywhere(A::ManagePeople)),
    // Tokens and sessions of the caller. Those of others are for operators.
    ("GET", "/api/v1/tokens", SignedIn),
    ("POST", "/api/v1/tokens", SignedIn),
    ("POST", "/api/v1/tokens/revocations", SignedIn),
    ("GET", "/api/v1/sessions", SignedIn),
    ("POST", "/api/v1/sessions/revocations", SignedIn),
    // A link for the owner of the token.
    ("POST", "/api/v1/sign-in-links", SignedIn),
    ("GET", "/api/v1/access", Anywhere(A::ManageAccess)),
    ("POST", "/api/v1/access", Anywhere(A::ManageAccess)),
    ("POST", "/api/v1/access/import", Anywhere(A::ManageAccess)),
    ("GET", "/api/v1/access/check", Anywhere(A::ManageAccess)),
    ("GET", "/api/v1/organisations", Anywhere(A::ManageAccess)),
    ("POST", "/api/v1/organisations", Anywhere(A::ManageOrganisations)),
    ("POST", "/api/v1/organisations/access", Anywhere(A::ManageAccess)),
    ("POST", "/api/v1/organisations/projects", Anywhere(A::ManageOrganisations)),
    ("GET", "/api/v1/pipelines", Anywhere(A::ReadProject)),
    ("POST", "/api/v1/pipelines", Anywhere(A::AddTask)),
    ("GET", "/api/v1/pipelines/{id}", Anywhere(A::ReadProject)),
    ("GET", "/api/v1/pipelines/{id}/phases/{phase}/output", Anywhere(A::ReadContent)),
    ("POST", "/api/v1/pipelines/{id}/actions", Anywhere(A::ControlTask)),
    ("GET", "/api/v1/merge-queues", Anywhere(A::ReadProject)),
    ("POST", "/api/v1/merge-queues/pause", Anywhere(A::Decide)),
    ("POST", "/api/v1/merge-queues/resume", Anywhere(A::Decide)),
    ("GET", "/api/v1/forges", Anywhere(A::ReadProject)),
    ("GET", "/api/v1/pull-requests", Anywhere(A::ReadProject)),
    ("GET", "/api/v1/projects", Anywhere(A::ReadProject)),
    ("POST", "/api/v1/projects", Anywhere(A::RegisterProject)),
    ("POST", "/api/v1/projects/{id}/rules", Anywhere(A::ChangeRules)),
    ("GET", "/api/v1/permissions", Anywhere(A::ReadProject)),
    ("GET", "/api/v1/agents", Anywhere(A::ReadProject)),
    ("GET", "/api/v1/health", SignedIn),
    ("GET", "/api/v1/maintenance", SignedIn),
    ("POST", "/api/v1/maintenance", Anywhere(A::Maintain)),
    ("POST", "/api/v1/maintenance/end", Anywhere(A::Maintain)),
    ("GET", "/api/v1/metrics", Anywhere(A::ReadProject)),
    ("GET", "/api/v1/openapi.json", SignedIn),
    // Unknown paths of the API.
    (ANY, "/api/v1/{*path}", SignedIn),
    // Each tool has its own action.
    (ANY, "/mcp", SignedIn),
    ("GET", "/", Anywhere(A::ReadProject)),
    ("GET", "/inbox", Anywhere(A::ReadProject)),
    ("GET", "/engines", Anywhere(A::ReadProject)),
    ("GET", "/figures", Anywhere(A::ReadProject)),
    ("GET", "/knowledge", Anywhere(A::ReadProject)),
    ("POST", "/knowledge", Anywhere(A::ProposeKnowledge)),
    ("GET", "/knowledge/new", Anywhere(A::ReadProject)),
    ("GET", "/knowledge/{id}", Anywhere(A::ReadProject)),
    ("GET", "/knowledge/{id}/edit", Anywhere(A::ReadProject)),
    ("POST", "/knowledge/{id}/edit", Anywhere(A::ProposeKnowledge)),
    ("POST", "/knowledge/{id}/decisions", Anywhere(A::DecideKnowledge)),
    ("POST", "/knowledge/bulk", Anywhere(A::DecideKnowledge)),
    ("GET", "/chat", Anywhere(A::ReadProject)),
    ("POST", "/chat", Anywhere(A::ReadProject)),
    ("POST", "/chat/confirm", Anywhere(A::ReadProject)),
    ("GET", "/projects", Anywhere(A::ReadProject)),
    ("POST", "/projects", Anywhere(A::RegisterProject)),
    ("GET", "/pull-requests", Anywhere(A::ReadProject)),
    ("GET", "/pipelines", Anywhere(A::ReadProject)),
    ("GET", "/pipelines/{id}", Anywhere(A::ReadProject)),
    ("GET", "/pipelines/{id}/phases/{phase}", Anywhere(A::ReadContent)),
    ("POST", "/pipelines/{id}/actions", Anywhere(A::ControlTask)),
    ("GET", "/merge-queues", Anywhere(A::ReadProject)),
    ("POST", "/merge-queues", Anywhere(A::Decide)),
    ("POST", "/tasks", Anywhere(A::AddTask)),
    ("POST", "/tasks/bulk", Anywhere(A::ControlTask)),
    ("GET", "/tasks/new", Anywhere(A::ReadProject)),
    ("GET", "/tasks/{id}", Task(A::ReadProject)),
    ("GET", "/tasks/{id}/plan", Task(A::ReadContent)),
    ("POST", "/tasks/{id}/plan", Task(A::ControlTask)),
    ("GET", "/tasks/{id}/plan/edit", Task(A::ReadContent)),
    ("GET", "/tasks/{id}/change", Task(A::ReadContent)),
    ("GET", "/tasks/{id}/change/files/{file}", Task(A::ReadContent)),
    ("GET", "/tasks/{id}/change/context", Task(A::ReadContent)),
    ("GET", "/tasks/{id}/change/image", Task(A::ReadContent)),
    ("POST", "/tasks/{id}/change/comments", Task(A::ControlTask)),
    // A mark is for the reader alone.
    ("POST", "/tasks/{id}/change/viewed", Task(A::ReadContent)),
    ("GET", "/tasks/{id}/review", Task(A::ReadContent)),
    ("GET", "/tasks/{id}/log", Task(A::ReadContent)),
    ("GET", "/tasks/{id}/events", Task(A::ReadProject)),
    ("POST", "/tasks/{id}/actions", Task(A::ControlTask)),
    ("GET", "/runs/{id}", Run(A::ReadContent)),
    ("GET", "/live/board", Anywhere(A::ReadProject)),
    ("GET", "/live/inbox", Anywhere(A::ReadProject)),
    ("GET", "/live/engines", Anywhere(A::ReadProject)),
    ("GET", "/live/pull-requests", Anywhere(A::ReadProject)),
    ("GET", "/live/pipelines/{id}", Anywhere(A::ReadProject)),
    ("GET", "/live/merge-queues", Anywhere(A::ReadProject)),
    ("GET", "/live/tasks/{id}", Task(A::ReadContent)),
    ("GET", "/live/runs/{id}", Run(A::ReadContent)),
    ("GET", "/palette", Anywhere(A::ReadProject)),
    // Views belong to the person, and contain no data of a project.
    ("POST", "/views", SignedIn),
    ("POST", "/views/remove", SignedIn),
    // The person's own sessions and tokens.
    ("GET", "/account", SignedIn),
    ("POST", "/account/sessions", SignedIn),
    ("POST", "/account/tokens", SignedIn),
    ("POST", "/account/tokens/revoke", SignedIn),
    ("POST", "/preferences", SignedIn),
    ("GET", "/hello", Public),
    ("POST", "/hello", Public),
    ("POST", "/goodbye", SignedIn),
    ("GET", "/assets/{version}/{name}", Public),
    // Sign-in with an identity provider. Flows carry their own secrets, and logouts a signature.
    ("GET", "/sign-in/providers", Public),
    ("GET", "/sign-in/{provider}", Public),
    ("GET", "/sign-in/{provider}/callback", Public),
    ("POST", "/sign-in/{provider}/device", Public),
    ("POST", "/sign-in/{provider}/device/token", Public),
    ("POST", "/sign-in/{provider}/logout", Public),
    // Contents of histories in Temporal, for its web UI and command line.
    ("POST", "/codec/decode", Anywhere(A::OpenPayloads)),
    // The forge signs each webhook with its secret.
    ("POST", "/hooks/forges/{name}", Public),
];

/// Returns the method and path of every route, in the order of the table.
pub fn access_routes() -> impl Iterator<Item = (&'static str, &'static str)> {
    ROUTES.iter().map(|(method, path, _)| (*method, *path))
}

/// Middleware of the API: refuses requests that the table does not allow.
pub(crate) async fn check_api_route(
    State(store): State<Store>,
    request: Request,
    next: Next,
) -> Response {
    match authorize_route(&store, request).await {
        Ok(request) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// Returns the request if the table allows it, or the problem to respond with.
pub(crate) async fn authorize_route(store: &Store, request: Request) -> Result<Request, Problem> {
    let (mut parts, body) = request.into_parts();
    let path = parts.extensions.get::<MatchedPath>().map(MatchedPath::as_str).unwrap_or_default();
    let Some(rule) = rule_of(&parts.method, path) else {
        let (method, path) = (&parts.method, parts.uri.path());
        let (status, title) = (StatusCode::METHOD_NOT_ALLOWED, "Method not allowed");
        let detail = format!("{path} does not support {method}.");
        return Err(Problem::new(status, "method", title, detail)
            .hint("/api/v1/openapi.json lists the methods of each path of the API."));
    };
    let none = CallerRights { person: None, rights: AccessRights::NONE };
    let caller = parts.extensions.get::<CallerRights>().cloned().unwrap_or(none);
    match rule {
        Public | SignedIn => {}
        Anywhere(action) => caller.authorize_anywhere(action)?,
        Task(action) | Run(action) => {
            let id = match RawPathParams::from_request_parts(&mut parts, &()).await {
                Ok(params) => {
                    params.iter().find(|(name, _)| *name == "id").map(|(_, id)| id.to_owned())
                }
                Err(_) => None,
            };
            let id = id.unwrap_or_default();
            let (what, task) = match rule {
                Run(_) => ("run", parse_run_id(&id).map(|(task, _)| task)),
                _ => ("task", id.parse().ok().map(TaskId)),
            };
            let Some(task) = task else {
                return Err(Error::NotFound { what, key: id }.into());
            };
            // A task of another project is missing, not forbidden.
            let readable = limit_store(store, &caller.rights);
            let project = readable.task_project(task).await.map_err(Error::from)?;
            audit::note_policy(action.permission(), caller.rights.role(project), Some(project));
            if !caller.rights.can(action, project) {
                let role = caller.rights.role(project);
                return Err(forbidden(&caller.name(), action.permission(), role).into());
            }
        }
    }
    Ok(Request::from_parts(parts, body))
}

impl CallerRights {
    /// Checks that the caller can do an action in at least one project.
    pub(crate) fn authorize_anywhere(&self, action: AccessAction) -> Result<(), Error> {
        let permission = action.permission();
        audit::note_policy(permission, self.rights.highest_role(), None);
        if self.rights.allows_anywhere(permission) {
            return Ok(());
        }
        let by = self.name();
        match permission {
            Permission::Operate => {
                tracing::warn!(%by, %action, "operator permission denied");
                Err(Error::NotOperator)
            }
            Permission::Administer => {
                tracing::warn!(%by, %action, "administrator permission denied");
                Err(Error::NotAdministrator)
            }
            Permission::Read | Permission::Work | Permission::Decide => {
                Err(forbidden(&by, permission, self.rights.highest_role()))
            }
        }
    }

    fn name(&self) -> String {
        self.person.as_ref().map_or_else(|| "The caller".to_owned(), ToString::to_string)
    }
}

/// Returns the rule of a route; `None` if the table lacks it.
fn rule_of(method: &Method, path: &str) -> Option<RouteRule> {
    // The router serves HEAD like GET, without the body.
    let method = if *method == Method::HEAD { "GET" } else { method.as_str() };
    let is_it = |(known, at, _): &&(&str, &str, RouteRule)| {
        *at == path && (*known == method || *known == ANY)
    };
    ROUTES.iter().find(is_it).map(|(_, _, rule)| *rule)
}

/// Routes for everybody who has signed in that change nothing but the person's own settings, and those
/// whose requests are recorded one by one or do nothing.
const NOT_AUDITED: &[&str] = &[
    "/views",
    "/views/remove",
    "/preferences",
    "/goodbye",
    "/mcp",
    "/api/v1/{*path}",
    "/api/v1/knowledge/check",
];

/// Returns the kind of entry that a request leaves in the audit log; `None` if it leaves none.
pub(crate) fn audit_kind(method: &Method, path: &str) -> Option<AuditKind> {
    let rule = rule_of(method, path)?;
    if NOT_AUDITED.contains(&path) {
        return None;
    }
    let reads = *method == Method::GET || *method == Method::HEAD;
    match rule {
        // A sign-in is recorded once it is known who signs in. Anybody could fill the log otherwise.
        Public => None,
        SignedIn => (!reads).then_some(AuditKind::Secret),
        Anywhere(action) | Task(action) | Run(action) => action_audit_kind(action, reads),
    }
}

/// Returns the kind of entry that an action leaves in the audit log.
pub(crate) fn action_audit_kind(action: AccessAction, reads: bool) -> Option<AuditKind> {
    match action {
        A::ReadContent | A::Export | A::ReadAudit | A::OpenPayloads => Some(AuditKind::Access),
        A::ManagePeople => (!reads).then_some(AuditKind::Secret),
        // A message to the chat can be a decision.
        A::ReadProject
        | A::AddTask
        | A::ControlTask
        | A::AnswerQuestion
        | A::Decide
        | A::ProposeKnowledge
        | A::DecideKnowledge
        | A::TestAlerts
        | A::ChangeRules
        | A::RegisterProject
        | A::RestartTask
        | A::Maintain
        | A::ManageAccess
        | A::ManageOrganisations => (!reads).then_some(AuditKind::Decision),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_route_of_the_api_has_one_rule() {
        let document = serde_json::to_value(crate::api::openapi()).expect("JSON");
        let paths = document["paths"].as_object().expect("paths");
        let served: BTreeSet<(String, String)> = paths
            .iter()
            .flat_map(|(path, item)| {
                let methods = item.as_object().expect("methods").keys();
                methods.map(|method| (method.to_uppercase(), path.clone())).collect::<Vec<_>>()
            })
            .collect();
        let own = ["/api/v1/openapi.json", "/api/v1/{*path}"];
        let ruled: Vec<(String, String)> = access_routes()
            .filter(|(_, path)| path.starts_with("/api/") && !own.contains(path))
            .map(|(method, path)| (method.to_owned(), path.to_owned()))
            .collect();
        assert_eq!(ruled.len(), served.len(), "a route has two rules, or none");
        assert_eq!(ruled.into_iter().collect::<BTreeSet<_>>(), served);
    }

    #[test]
    fn content_secrets_and_changes_are_audited_by_default() {
        let kind = |method: Method, path: &str| audit_kind(&method, path);
        assert_eq!(kind(Method::GET, "/api/v1/tasks/{id}/diff"), Some(AuditKind::Access));
        assert_eq!(kind(Method::HEAD, "/api/v1/tasks/{id}/diff"), Some(AuditKind::Access));
        assert_eq!(kind(Method::POST, "/tasks/{id}/actions"), Some(AuditKind::Decision));
        assert_eq!(kind(Method::POST, "/api/v1/people"), Some(AuditKind::Secret));
        assert_eq!(kind(Method::POST, "/api/v1/sign-in-links"), Some(AuditKind::Secret));
        assert_eq!(kind(Method::GET, "/api/v1/tasks"), None);
        assert_eq!(kind(Method::DELETE, "/api/v1/tasks"), None, "it is not served");
        for path in NOT_AUDITED {
            assert!(access_routes().any(|(_, known)| known == *path), "{path}");
        }
    }

    #[test]
    fn a_route_without_a_rule_is_refused() {
        assert_eq!(rule_of(&Method::GET, "/api/v1/secrets"), None);
        assert_eq!(rule_of(&Method::DELETE, "/api/v1/tasks"), None);
        assert_eq!(rule_of(&Method::HEAD, "/api/v1/health"), Some(SignedIn));
        assert_eq!(rule_of(&Method::PATCH, "/mcp"), Some(SignedIn));
        assert_eq!(rule_of(&Method::GET, ""), None);
    }
}
