//! Audit entries of what gets credentials: agents, gates and setups. Values are never recorded.

use std::path::{Path, PathBuf};

use tamma_core::audit::{AuditKind, AuditOutcome, AuditRequest, AuditResult};
use tamma_core::rules::{AgentRules, COMMON_VARIABLES};
use tamma_store::Store;

use crate::clock::now;
use crate::config::WorkerConfig;
use crate::error::Error;
use crate::job_context::JobContext;

/// Credentials of a run of an agent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunCredentials<'a> {
    /// Set if the gateway uses the key for the agent, which does not see it.
    pub(crate) is_metered: bool,
    /// Files with a sign-in on this machine that the agent can use.
    pub(crate) files: &'a [PathBuf],
}

/// Records which variables and files with credentials a run gets, before it starts.
pub(crate) async fn record_run_secrets(
    store: &Store,
    config: &WorkerConfig,
    ctx: &JobContext,
    (agent, rules): (&str, &AgentRules),
    credentials: RunCredentials<'_>,
) -> Result<(), Error> {
    let inherited = rules.inherit.iter().filter(|name| {
        !COMMON_VARIABLES.contains(&name.as_str()) && config.environment.contains_key(name.as_str())
    });
    let key = credentials.is_metered.then_some(&rules.key);
    let home = config.environment.get("HOME").map(Path::new);
    let files = credentials.files.iter().map(|file| file_name(home, file));
    let names = key.into_iter().chain(inherited).cloned().chain(files).collect();
    record_use(store, ctx, "agent run", format!("rules of agent {agent}"), names).await
}

/// Records that commands of the configuration, `gates` or a `setup`, get the operator's test variables,
/// before they start.
pub(crate) async fn record_test_secrets(
    store: &Store,
    config: &WorkerConfig,
    ctx: &JobContext,
    what: &str,
) -> Result<(), Error> {
    let names = config.operator.test_environment.keys().cloned().collect();
    record_use(store, ctx, what, "operator file: test_environment".to_owned(), names).await
}

async fn record_use(
    store: &Store,
    ctx: &JobContext,
    what: &str,
    policy: String,
    names: Vec<String>,
) -> Result<(), Error> {
    if names.is_empty() {
        return Ok(());
    }
    let request = AuditRequest {
        at: now(),
        kind: AuditKind::Secret,
        route: what.to_owned(),
        subject: ctx.run_id().to_string(),
        person: None,
        auth: None,
        address: None,
        request_id: None,
    };
    let outcome = AuditOutcome {
        result: AuditResult::Granted,
        status: None,
        policy: Some(policy),
        project: Some(ctx.project()),
        actions: names.into_iter().map(|name| format!("use {name}")).collect(),
    };
    let id = store.begin_audit(&request).await?;
    store.complete_audit(id, &outcome).await?;
    Ok(())
}

/// Returns the name of a file, without the path of the home directory.
fn file_name(home: Option<&Path>, file: &Path) -> String {
    let inside = home.and_then(|home| file.strip_prefix(home).ok());
    inside.map_or_else(|| file.display().to_string(), |inside| format!("~/{}", inside.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_in_the_home_directory_are_named_without_it() {
        let file = Path::new("/home/ada/.codex/auth.json");
        assert_eq!(file_name(Some(Path::new("/home/ada")), file), "~/.codex/auth.json");
        assert_eq!(file_name(Some(Path::new("/home/bob")), file), "/home/ada/.codex/auth.json");
        assert_eq!(file_name(None, file), "/home/ada/.codex/auth.json");
    }
}
