//! Agent of an experiment: a built-in one with a scripted model, or a scripted one without a model.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use tamma_core::rules::Rules;
use tamma_testkit::ClusterBuilder;
use tamma_testkit::model::ScriptedModel;
use tamma_testkit::project::ProjectConfig;

use super::scripts::{self, ScriptedCase};
use super::{programs, tools};

/// Name of the scripted agent on the command line.
const SCRIPTED: &str = "scripted";

/// Agent of an experiment.
#[derive(Debug, Clone)]
pub(crate) enum AgentSetup {
    /// Built-in agent with a scripted model, and the variable of its key.
    Real { name: String, programs: PathBuf, key: String },
    /// Scripted agent without a model.
    Scripted,
}

impl AgentSetup {
    /// Installs a built-in agent. `scripted` needs no installation.
    pub(crate) async fn install(name: &str) -> Result<Self> {
        if name == SCRIPTED {
            return Ok(Self::Scripted);
        }
        let agents = Rules::default().agents;
        let rules = agents.get(name).with_context(|| {
            let names: Vec<&str> = agents.keys().map(String::as_str).collect();
            format!("unknown agent `{name}`; use {} or {SCRIPTED}", names.join(", "))
        })?;
        let modules = tools::npm_install(&programs::input("agents").join(name)).await?;
        let (name, key) = (name.to_owned(), rules.key.clone());
        Ok(Self::Real { name, programs: modules.join(".bin"), key })
    }

    /// Lets the workers of a cluster start it.
    pub(crate) fn add_to(&self, cluster: ClusterBuilder) -> ClusterBuilder {
        let Self::Real { programs, key, .. } = self else { return cluster };
        let path = std::env::var("PATH").unwrap_or_default();
        cluster
            .worker_env("PATH", format!("{}:{path}", programs.display()))
            .worker_env(key, "a-key-that-only-the-gateway-knows")
    }

    /// Returns the configuration of a project that uses it, and the model of a real agent, which ends
    /// when it is dropped. `script` is the file for the script of a scripted agent.
    pub(crate) async fn configure(
        &self,
        script: &Path,
        cases: Vec<ScriptedCase>,
    ) -> Result<(ProjectConfig, Option<ScriptedModel>)> {
        match self {
            Self::Real { name, .. } => {
                let model = ScriptedModel::start(scripts::model_script(cases)).await?;
                Ok((ProjectConfig::upstream(name, &model.url(), models(name)), Some(model)))
            }
            Self::Scripted => {
                scripts::agent_script(cases).write(script)?;
                Ok((ProjectConfig::scripted(script)?, None))
            }
        }
    }

    /// Describes it for a result.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Real { name, .. } => format!("{name} and a scripted model"),
            Self::Scripted => "a scripted agent".to_owned(),
        }
    }
}

/// Returns the models of a built-in agent, one per tier.
pub(crate) fn models(agent: &str) -> [&'static str; 3] {
    match agent {
        "claude-code" => ["haiku", "sonnet", "opus"],
        // Newer models get other tools, which the scripted model supports less well.
        "codex" => ["gpt-5.5"; 3],
        _ => ["default"; 3],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unknown_agent_is_refused_with_the_known_names() {
        let error = AgentSetup::install("nobody").await.expect_err("unknown").to_string();
        assert!(error.contains("claude-code, ") && error.ends_with(" or scripted"), "{error}");
        let scripted = AgentSetup::install(SCRIPTED).await.expect("nothing to install");
        assert_eq!(scripted.describe(), "a scripted agent");
    }
}
