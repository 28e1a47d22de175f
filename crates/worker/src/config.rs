//! Worker configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use tamma_core::operator::OperatorConfig;
use tamma_engine::agent::AgentTimeouts;
use tamma_engine::sandbox::Launcher;
use tamma_store::ObjectStorage;

use crate::fault_injection::FaultInjection;
use crate::pollers::PollerStatus;
use crate::toolchains;

/// Worker configuration.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    /// Display name, unique among workers.
    pub name: String,
    /// Directory for mirrors, worktrees and process records.
    pub data_dir: PathBuf,
    /// Folder with the settings of forges. No sandbox may show it.
    pub forges: PathBuf,
    /// Address of the server's pages, for links in pull requests.
    pub public_url: Option<String>,
    /// Other paths that no sandbox may show, such as the folder with the server's token.
    pub hidden: Vec<PathBuf>,
    /// Storage of large objects, such as transcripts.
    pub objects: ObjectStorage,
    /// Environment variables that the configuration can reference and agents can inherit.
    pub environment: BTreeMap<String, String>,
    /// Settings of the operator for this machine.
    pub operator: OperatorConfig,
    /// Maximum number of concurrent implementation runs.
    pub slots: usize,
    /// Time that running jobs get to end by themselves when the worker stops.
    pub drain: Duration,
    /// Timeouts for agents.
    pub timeouts: AgentTimeouts,
    /// Program that starts first in a sandbox and calls the launcher.
    pub launcher: Launcher,
    /// Whether projects can replace the built-in prompts.
    pub allow_project_prompts: bool,
    /// Pollers of the task queues, which the worker updates.
    pub pollers: PollerStatus,
    /// Fault injection; only tests enable it.
    pub fault_injection: FaultInjection,
}

impl WorkerConfig {
    /// Returns the paths of toolchains that sandboxes can read: the user's, and the operator's.
    pub(crate) fn toolchains(&self) -> impl Iterator<Item = PathBuf> {
        let own = toolchains::folders(&self.environment).into_iter();
        own.chain(self.operator.toolchains.iter().map(PathBuf::from))
    }

    /// Returns the paths that sandboxes hide if a visible parent would show them.
    pub(crate) fn hidden_paths(&self) -> Vec<PathBuf> {
        let own = [self.data_dir.clone(), self.forges.clone()].into_iter();
        let own = own.chain(self.hidden.iter().cloned());
        own.chain(toolchains::secrets(&self.environment)).collect()
    }

    /// Returns the URL of the HTTP proxy that this machine uses, if it uses one.
    pub(crate) fn https_proxy(&self) -> Option<&str> {
        let names = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
        let mut set = names.iter().filter_map(|name| self.environment.get(*name));
        set.find(|url| !url.is_empty()).map(String::as_str)
    }

    /// Returns a configuration with this data directory and defaults for the rest.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        let data_dir = data.into();
        Self {
            name: format!("worker-{}", std::process::id()),
            objects: ObjectStorage::new(data_dir.join("objects").display().to_string()),
            forges: data_dir.join("forges"),
            data_dir,
            public_url: None,
            hidden: Vec::new(),
            environment: BTreeMap::new(),
            operator: OperatorConfig::default(),
            slots: 2,
            drain: Duration::ZERO,
            timeouts: AgentTimeouts::default(),
            launcher: Launcher {
                program: "tamma".into(),
                args: vec!["sandbox-launcher".to_owned()],
            },
            allow_project_prompts: false,
            pollers: PollerStatus::default(),
            fault_injection: FaultInjection::none(),
        }
    }
}
