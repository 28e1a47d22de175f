//! Sandbox and environment of an agent.

use std::path::{Path, PathBuf};

use tamma_core::rules::AgentRules;
use tamma_engine::agent::{CodingAgent, RunMode};
use tamma_engine::permission::PermissionRules;
use tamma_engine::sandbox::{Forward, Network, Sandbox, SandboxKind};

use super::{AgentRunner, signed_in_home};
use crate::project_context::ProjectContext;
use crate::toolchains;

impl AgentRunner {
    /// Prepares the home of an agent that is signed in on the worker, and returns the files of the
    /// worker's home that it can write: its credentials. The error is the reason for people.
    pub(super) async fn prepare_signed_in_home(
        &self,
        rules: &AgentRules,
        home: &Path,
    ) -> Result<Vec<PathBuf>, String> {
        let Some(own) = self.config.environment.get("HOME").map(PathBuf::from) else {
            return Ok(Vec::new());
        };
        let (home, names) = (home.to_owned(), rules.home.clone());
        let prepare = move || signed_in_home::prepare(&own, &home, &names);
        tokio::task::spawn_blocking(prepare).await.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Builds the agent with its environment. The provider's key stays in the gateway.
    ///
    /// `private_home` is the home of a signed-in agent in a sandbox. A run through the gateway gets
    /// its home from its templates.
    pub(super) fn agent(
        &self,
        rules: &AgentRules,
        behind_gateway: bool,
        private_home: Option<&Path>,
        setup_home: &Path,
    ) -> CodingAgent {
        let mut agent = CodingAgent::from_rules(rules, &self.config.environment);
        if behind_gateway {
            agent.inherited.remove(&rules.key);
        }
        if behind_gateway || private_home.is_some() {
            agent.inherited.extend(toolchains::variables(&self.config.environment));
        }
        if let Some(home) = private_home {
            agent.inherited.insert("HOME".to_owned(), home.display().to_string());
        }
        agent.inherited.extend(toolchains::installed_variables(setup_home));
        agent
    }

    /// Builds the sandbox of an agent, without its git directory. `credentials` are the files of a
    /// signed-in agent that it can write.
    pub(super) fn sandbox(
        &self,
        project: &ProjectContext,
        (kind, worktree, setup_home): (SandboxKind, &Path, &Path),
        permissions: &PermissionRules,
        mode: RunMode,
        (credentials, home, metered): (Vec<PathBuf>, &Path, bool),
    ) -> Sandbox {
        let port = self.gateway.address().port();
        let gateway = self.gateway.socket().map(|it| Forward { port, socket: it.to_owned() });
        let network = match gateway {
            Some(Forward { port, socket }) if metered => Network::Gateway { port, socket },
            None if metered => Network::Disabled,
            gateway => self.egress.network(gateway),
        };
        let readable = project.rules.engines.readable.iter().map(PathBuf::from);
        Sandbox {
            kind,
            launcher: self.config.launcher.clone(),
            worktree: worktree.to_owned(),
            read_only: mode.is_read_only(),
            repository: None,
            git: None,
            home: home.to_owned(),
            readable: readable
                .chain(self.config.toolchains())
                .chain([setup_home.to_owned()])
                .collect(),
            writable: credentials,
            protected: permissions.existing_protected_paths(),
            hidden: self.config.hidden_paths(),
            network,
            limits: self.config.operator.sandbox.limits,
        }
    }
}
