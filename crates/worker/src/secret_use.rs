//! Audit entries of runs that get credentials.

use tamma_core::audit::{AuditKind, AuditOutcome, AuditRequest, AuditResult};
use tamma_core::rules::{AgentRules, COMMON_VARIABLES};
use tamma_store::Store;

use crate::clock::now;
use crate::config::WorkerConfig;
use crate::error::Error;
use crate::job_context::JobContext;

/// Records which variables with credentials a run gets, before it starts. Values are never recorded.
///
/// `is_metered` says that the gateway uses the key for the agent, which does not see it.
pub(crate) async fn record_secret_use(
    store: &Store,
    config: &WorkerConfig,
    ctx: &JobContext,
    (agent, rules): (&str, &AgentRules),
    is_metered: bool,
) -> Result<(), Error> {
    let inherited = rules.inherit.iter().filter(|name| {
        !COMMON_VARIABLES.contains(&name.as_str()) && config.environment.contains_key(name.as_str())
    });
    let key = is_metered.then_some(&rules.key);
    let actions: Vec<String> =
        key.into_iter().chain(inherited).map(|name| format!("use {name}")).collect();
    if actions.is_empty() {
        return Ok(());
    }
    let request = AuditRequest {
        at: now(),
        kind: AuditKind::Secret,
        route: "agent run".to_owned(),
        subject: ctx.run_id().to_string(),
        person: None,
        auth: None,
        address: None,
        request_id: None,
    };
    let outcome = AuditOutcome {
        result: AuditResult::Granted,
        status: None,
        policy: Some(format!("rules of agent {agent}")),
        project: Some(ctx.project()),
        actions,
    };
    let id = store.begin_audit(&request).await?;
    store.complete_audit(id, &outcome).await?;
    Ok(())
}
