//! Use cases, shared by the API, the pages, chat and MCP.
//!
//! Nothing is retried here. Errors worth retrying are [`Error::Unavailable`] and
//! [`Error::WorkflowTimeout`]; the client has the retry policy.

mod access;
mod access_check;
mod access_tokens;
mod actions;
mod add_task;
mod agent_pool;
mod apply_rules;
mod audit;
mod bulk_actions;
mod bundle;
mod change;
mod chat;
mod consequence;
mod inbox;
mod knowledge;
mod maintenance;
mod merge_queue;
mod namespaces;
mod organisations;
mod people;
mod permissions;
mod pipelines;
mod policies;
mod projects;
mod pull_request_badges;
mod pull_requests;
mod queries;
mod rating;
mod recovery;
mod report;
mod rules;
mod runs;
mod sealed_payloads;
mod sessions;
mod verdict;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::http::StatusCode;
use tamma_connect::forge::Forges;
use tamma_core::access::{AccessRights, AccessRole, Permission};
use tamma_core::ids::Digest;
use tamma_core::operator::OperatorConfig;
use tamma_core::version::NewTaskBehaviour;
use tamma_flow::WorkflowTuning;
use tamma_policy::PeoplePolicies;
use tamma_store::{KnowledgeCache, ObjectStorage, Store};
use temporalio_client::Client;

pub(crate) use add_task::NEW_TASK_CONSEQUENCE;
pub(crate) use change::{ChangeForReview, LineLocation};
pub(crate) use chat::ChatMessage;
pub(crate) use consequence::{PreviewedAction, preview_action, preview_answer};
pub(crate) use inbox::WaitingTask;
pub(crate) use knowledge::decision_consequence;
pub(crate) use permissions::{Principal, forbidden};
pub(crate) use queries::{Cursor, PageRequest, check_backends};
pub(crate) use recovery::{ComparedSteps, Comparison};
pub(crate) use runs::{parse_run_id, parse_run_number};
pub(crate) use verdict::VerdictFormat;

use crate::audit::AuditLog;
use crate::identity::IdentityService;
use crate::live::LiveUpdates;
use crate::problem::{FileProblem, Problem};
use crate::server::{CommitFileReader, RemoteConfigReader, RepositoryInspector};

/// Time limit for a request to Temporal.
pub(crate) const TEMPORAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Dependencies of the use cases. Cheap to clone.
///
/// Handlers get one whose store is limited to the projects that the caller can read
/// ([`App::limited_to`]).
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) store: Store,
    /// Client for the namespace of the installation.
    pub(crate) temporal: Client,
    pub(crate) environment: std::sync::Arc<BTreeMap<String, String>>,
    pub(crate) operator: std::sync::Arc<OperatorConfig>,
    pub(crate) workflow_tuning: WorkflowTuning,
    /// Newest behaviour of new tasks, once all programs know it.
    pub(crate) newest_behaviour: Arc<OnceLock<NewTaskBehaviour>>,
    pub(crate) objects: ObjectStorage,
    pub(crate) live: LiveUpdates,
    pub(crate) knowledge_cache: KnowledgeCache,
    pub(crate) inspect_repository: Option<RepositoryInspector>,
    pub(crate) read_remote_config: Option<RemoteConfigReader>,
    pub(crate) read_commit_file: Option<CommitFileReader>,
    /// Forges of the installation, with their credentials.
    pub(crate) forges: Forges,
    /// URL at which browsers reach the server, without a slash at its end.
    pub(crate) public_url: Option<String>,
    pub(crate) audit: AuditLog,
    /// Sign-in with identity providers.
    pub(crate) identity: Arc<IdentityService>,
    /// Policies of the operator about actions on tasks.
    pub(crate) policies: Arc<PeoplePolicies>,
    /// Hash of the server's token, to recognise sessions of operators.
    pub(crate) operator_token: Digest,
}

impl App {
    /// Returns the use cases for a caller with these rights.
    pub(crate) fn limited_to(&self, rights: &AccessRights) -> Self {
        Self { store: limit_store(&self.store, rights), ..self.clone() }
    }

    /// Returns the behaviour of new tasks. Once it is the newest one, it is not read again, because it
    /// never falls back.
    pub(crate) async fn new_task_behaviour(&self) -> Result<NewTaskBehaviour, Error> {
        if let Some(newest) = self.newest_behaviour.get() {
            return Ok(*newest);
        }
        let known = NewTaskBehaviour::known_since(self.store.oldest_schema().await?);
        if known == NewTaskBehaviour::NEWEST {
            let _ = self.newest_behaviour.set(known);
        }
        Ok(known)
    }

    /// Returns the tuning of a new workflow.
    fn tuning_for(&self, behaviour: NewTaskBehaviour) -> WorkflowTuning {
        WorkflowTuning { compact_history: behaviour.compact_history, ..self.workflow_tuning }
    }

    /// Returns the values of environment variables whose names mark them as secrets.
    fn secret_values(&self) -> impl Iterator<Item = &str> {
        let secret = |name: &str| {
            ["KEY", "TOKEN", "SECRET", "PASSWORD"].iter().any(|end| name.ends_with(end))
        };
        let variables = self.environment.iter();
        let secrets = variables.filter(move |(name, _)| secret(&name.to_ascii_uppercase()));
        secrets.map(|(_, value)| value.as_str())
    }
}

/// Returns a store that reads what a caller can read: the database gives out rows of their
/// organisations only, and queries ask for those of their projects.
pub(crate) fn limit_store(store: &Store, rights: &AccessRights) -> Store {
    store.limited_to(&rights.scope()).within(rights.organisations())
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Error of a use case, converted to a [`Problem`] for clients.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Nothing is stored under the key.
    #[error("Cannot find {what} `{key}`.")]
    NotFound {
        /// Noun for the missing item, such as `task`.
        what: &'static str,
        /// Key that was requested.
        key: String,
    },
    /// The person has no token and no session that could be revoked.
    #[error("{0} has no tokens or sessions to revoke.")]
    NothingToRevoke(String),
    /// A value in the request is not accepted.
    #[error("{detail}")]
    Invalid {
        /// Rejected value and the reason.
        detail: String,
        /// Suggested fix.
        hint: String,
    },
    /// The project's configuration has errors.
    #[error("Cannot load {file}: it has {}.", count_errors(.problems))]
    InvalidConfig {
        /// Path of the file.
        file: String,
        /// Errors in the file.
        problems: Vec<FileProblem>,
    },
    /// The person lacks a permission.
    #[error("{by} {} and does not have the {permission} permission.", describe_role(.role.as_ref()))]
    Forbidden {
        /// Name of the person.
        by: String,
        /// Permission that the request needs.
        permission: Permission,
        /// Role of the person in the project, if any.
        role: Option<AccessRole>,
    },
    /// A policy of the operator forbids the action.
    #[error("The policy `{policy}` forbids it: {reason}")]
    PolicyForbids {
        /// ID of the policy.
        policy: String,
        /// Reason that its author gave.
        reason: String,
    },
    /// The client's address has sent too many invalid tokens, or has started too many sign-ins.
    #[error("Too many attempts to sign in from this address.")]
    TooManyAttempts {
        /// Time until the next attempt is accepted.
        seconds: u64,
    },
    /// Sign-in with an identity provider failed.
    #[error("{0}")]
    SignInRefused(String),
    /// The request is reserved for operators.
    #[error("Only an operator of this server can do that.")]
    NotOperator,
    /// The request is reserved for administrators of the organisation.
    #[error(
        "Only an administrator of the organisation can do that, or an operator of this server."
    )]
    NotAdministrator,
    /// The state machine or the server refused the request.
    #[error("{0}")]
    Refused(String),
    /// The entry has content warnings that the person has not confirmed.
    #[error("The entry has warnings: {}.", .0.join("; "))]
    ContentWarnings(Vec<String>),
    /// A newer version has replaced the one that the person read.
    #[error("Request refused: {what} {now} has replaced {what} {requested}.")]
    Changed {
        /// `plan`, `commit` or `entry revision`.
        what: &'static str,
        /// Hash prefix or revision that the person read.
        requested: String,
        /// Current hash prefix or revision.
        now: String,
    },
    /// The task's workflow did not respond in time.
    #[error("No response from the task's workflow within {} s.", TEMPORAL_TIMEOUT.as_secs())]
    WorkflowTimeout,
    /// A service that the server depends on is unreachable.
    #[error("Cannot reach {what}.")]
    Unavailable {
        /// Name of the service.
        what: &'static str,
        /// Cause, for the server log only.
        source: BoxError,
    },
    /// The object is stored where this server cannot read it.
    #[error("Cannot read `{location}` from this server.")]
    ObjectUnreadable {
        /// Location of the object.
        location: String,
        /// Cause, for the server log only.
        source: BoxError,
    },
    /// Stored data cannot be parsed.
    #[error("Cannot read the stored {what} of `{key}`.")]
    Corrupt {
        /// Noun for the unreadable data.
        what: &'static str,
        /// Key of the item it belongs to.
        key: String,
        /// Cause, for the server log only.
        source: BoxError,
    },
    /// Unexpected failure inside the server.
    #[error("Internal error. The server log has details.")]
    Internal(#[source] BoxError),
}

fn count_errors(problems: &[FileProblem]) -> String {
    match problems.len() {
        1 => "1 error".to_owned(),
        several => format!("{several} errors"),
    }
}

fn describe_role(role: Option<&AccessRole>) -> String {
    match role {
        Some(role @ (AccessRole::Approver | AccessRole::Administrator | AccessRole::Operator)) => {
            format!("is an {role}")
        }
        Some(role) => format!("is a {role}"),
        None => "has no role".to_owned(),
    }
}

impl Error {
    pub(crate) fn invalid(detail: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Invalid { detail: detail.into(), hint: hint.into() }
    }

    /// Failed request to Temporal.
    pub(crate) fn temporal(cause: impl Into<BoxError>) -> Self {
        Self::Unavailable { what: "Temporal", source: cause.into() }
    }
}

impl From<tamma_store::Error> for Error {
    fn from(error: tamma_store::Error) -> Self {
        use tamma_store::Error as E;
        match error {
            E::NotFound { what, key } => Self::NotFound { what, key },
            E::Conflict(conflict) => Self::Internal(conflict.into()),
            E::Corrupt(damage) => {
                Self::Corrupt { what: damage.what, key: damage.key.clone(), source: damage.into() }
            }
            E::Objects { place, source } => Self::ObjectUnreadable { location: place, source },
            error if error.is_retryable() => {
                Self::Unavailable { what: "the database", source: error.into() }
            }
            error => Self::Internal(error.into()),
        }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let detail = error.to_string();
        match error {
            Error::NotFound { .. } => {
                Self::new(StatusCode::NOT_FOUND, "not-found", "Not found", detail)
            }
            Error::NothingToRevoke(_) => nothing_to_revoke(detail),
            Error::Invalid { hint, .. } => {
                let status = StatusCode::UNPROCESSABLE_ENTITY;
                Self::new(status, "invalid", "Invalid request", detail).hint(hint)
            }
            Error::InvalidConfig { problems, .. } => {
                let status = StatusCode::UNPROCESSABLE_ENTITY;
                let title = "The project's configuration has errors";
                let hint = "Run `tamma config check` in the repository, fix the file, then try \
                            again.";
                let problem = Self::new(status, "configuration", title, detail).hint(hint);
                Self { problems, ..problem }
            }
            Error::Forbidden { .. } => {
                let title = "Permission denied";
                Self::new(StatusCode::FORBIDDEN, "forbidden", title, detail).hint(
                    "Ask someone with a higher role to do it, or ask an operator for a role \
                     (`tamma access grant`).",
                )
            }
            Error::PolicyForbids { .. } => {
                Self::new(StatusCode::FORBIDDEN, "policy", "Forbidden by policy", detail)
                    .hint("Ask somebody to whom the policy does not apply.")
            }
            Error::TooManyAttempts { seconds } => {
                let status = StatusCode::TOO_MANY_REQUESTS;
                Self::new(status, "throttled", "Too many attempts", detail)
                    .hint(format!("Wait {seconds} s, then try again."))
            }
            Error::SignInRefused(_) => {
                let title = "Sign-in refused";
                Self::new(StatusCode::FORBIDDEN, "sign-in", title, detail)
                    .hint("Sign in again, or ask an operator of this server.")
            }
            Error::NotOperator => {
                let title = "Permission denied";
                Self::new(StatusCode::FORBIDDEN, "operator", title, detail)
                    .hint("Ask an operator, or set TAMMA_TOKEN to the server's token.")
            }
            Error::NotAdministrator => {
                let title = "Permission denied";
                Self::new(StatusCode::FORBIDDEN, "administrator", title, detail).hint(
                    "Ask an administrator of your organisation, or an operator of this server.",
                )
            }
            Error::Refused(_) => {
                let title = "Request refused";
                Self::new(StatusCode::CONFLICT, "refused", title, detail)
            }
            Error::ContentWarnings(_) => {
                let title = "Entry not approved";
                Self::new(StatusCode::CONFLICT, "doubtful", title, detail)
                    .hint("Edit the entry, or confirm the warnings with `despite` (`--despite`).")
            }
            Error::Changed { what, .. } => {
                let title = "A newer version exists";
                Self::new(StatusCode::CONFLICT, "changed", title, detail)
                    .hint(format!("Read the new {what}, then decide again."))
            }
            Error::WorkflowTimeout => {
                let status = StatusCode::SERVICE_UNAVAILABLE;
                Self::new(status, "no-answer", "No response from the workflow", detail).hint(
                    "Check that a worker is running (`tamma up` or `tamma work`), then try again. \
                     Retrying is safe.",
                )
            }
            Error::Unavailable { what, source } => {
                tracing::warn!(what, error = error_chain(&*source), "dependency unavailable");
                let status = StatusCode::SERVICE_UNAVAILABLE;
                Self::new(status, "unavailable", "Service unavailable", detail)
                    .hint("Try again in a moment. `tamma doctor` reports what is missing.")
            }
            Error::ObjectUnreadable { location, source } => {
                tracing::warn!(location, error = error_chain(&*source), "failed to read object");
                let title = "Not readable from this server";
                Self::new(StatusCode::NOT_FOUND, "elsewhere", title, detail).hint(
                    "Read it on the worker's machine, or start the server with the object storage \
                     of the workers (`--objects`, TAMMA_OBJECTS).",
                )
            }
            Error::Corrupt { what, key, source } => {
                tracing::error!(what, key, error = error_chain(&*source), "stored data unreadable");
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                Self::new(status, "damaged", "Stored data cannot be read", detail).hint(
                    "A newer version of Tamma may have written it: upgrade this server. The server \
                     log has details.",
                )
            }
            Error::Internal(source) => {
                tracing::error!(error = error_chain(&*source), "internal error");
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                Self::new(status, "fault", "Internal error", detail)
                    .hint("Report this as a bug, with the matching lines of the server log.")
            }
        }
    }
}

fn nothing_to_revoke(detail: String) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "not-found", "Not found", detail).hint(
        "Check the name with `tamma person list`. To keep somebody out, run `tamma person \
         deactivate`.",
    )
}

/// Formats an error with all its sources, for the server log.
pub(crate) fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
