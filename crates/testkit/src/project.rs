//! Configuration of projects, with a scripted agent or with a real agent and a scripted model.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use tamma_core::ids::ProjectId;
use tamma_core::rules::{self, Rules};

use crate::agent::{SCRIPT_VARIABLE, Script, TOKEN_VARIABLE, URL_VARIABLE};
use crate::operator::test_operator;
use crate::repository::Repository;

/// Name of the scripted agent in every configuration.
const AGENT: &str = "scripted";

/// Gate of the sample repository.
const GATES: &str = "  check: { command: sh check.sh, kind: tests }\n";

/// Content of a project's `tamma.yaml`.
#[derive(Debug, Clone)]
pub struct ProjectConfig {
    agent: AgentSection,
    tiers: [String; 3],
    gates: String,
    engines: Vec<String>,
    agent_settings: String,
    /// Names of further agents with the same program and script.
    more_agents: Vec<String>,
    more: String,
}

/// Section `agents`.
#[derive(Debug, Clone)]
enum AgentSection {
    Scripted {
        command: String,
        script: PathBuf,
    },
    /// Name of the agent, and the URL of its model.
    Upstream(String, String),
}

/// Registered project with a scripted agent.
#[derive(Debug)]
pub struct ScriptedProject {
    /// Project ID.
    pub id: ProjectId,
    /// Project name.
    pub name: String,
    /// Repository with the configuration, which is not committed.
    pub repository: Repository,
    /// Folder of the script, outside every checkout.
    pub folder: PathBuf,
    /// Content of `tamma.yaml`.
    pub configuration: String,
}

impl ProjectConfig {
    /// Configures a scripted agent for all tiers, without a sandbox, and the check of the sample
    /// repository as the only gate.
    pub fn scripted(script: &Path) -> Result<Self> {
        let command = crate::agent::program()?.display().to_string();
        Ok(Self {
            agent: AgentSection::Scripted { command, script: script.to_owned() },
            tiers: [(); 3].map(|()| format!("{{ agent: {AGENT} }}")),
            gates: GATES.to_owned(),
            engines: vec!["sandbox: off".to_owned()],
            agent_settings: String::new(),
            more_agents: Vec::new(),
            more: String::new(),
        })
    }

    /// Configures a built-in agent with a scripted model at `upstream`, and one model per tier, in a
    /// sandbox.
    pub fn upstream(agent: &str, upstream: &str, models: [&str; 3]) -> Self {
        Self {
            agent: AgentSection::Upstream(agent.to_owned(), upstream.to_owned()),
            tiers: models.map(|model| format!("{{ agent: {agent}, model: {model} }}")),
            gates: GATES.to_owned(),
            engines: Vec::new(),
            agent_settings: String::new(),
            more_agents: Vec::new(),
            more: String::new(),
        }
    }

    /// Starts the scripted agent with another command.
    #[must_use]
    pub fn command(mut self, command: &str) -> Self {
        if let AgentSection::Scripted { command: current, .. } = &mut self.agent {
            command.clone_into(current);
        }
        self
    }

    /// Replaces the gates, one per line and indented.
    #[must_use]
    pub fn gates(self, gates: impl Into<String>) -> Self {
        Self { gates: gates.into(), ..self }
    }

    /// Replaces the settings of the section `engines`, such as `sandbox: off`.
    #[must_use]
    pub fn engines(self, settings: impl IntoIterator<Item = String>) -> Self {
        Self { engines: settings.into_iter().collect(), ..self }
    }

    /// Lets the agent wait for answers to its questions.
    #[must_use]
    pub fn question_wait(mut self, seconds: u32) -> Self {
        self.agent_settings = format!("    question_wait_seconds: {seconds}\n");
        self
    }

    /// Lets the agent use a path of the worker's home directory, as a signed-in agent does.
    #[must_use]
    pub fn home(mut self, path: &str) -> Self {
        self.agent_settings = format!("    home: [{path}]\n");
        self
    }

    /// Lets the scripted agent call a model at `upstream` through the gateway. The worker has its key in
    /// `OPENAI_API_KEY`.
    #[must_use]
    pub fn gateway(mut self, upstream: &str) -> Self {
        // The first lines continue the section `env` of the agent.
        self.agent_settings = format!(
            "      {URL_VARIABLE}: \"{{{{ url }}}}\"\n      {TOKEN_VARIABLE}: \"{{{{ token }}}}\"\n    \
             upstream: {upstream}\n    key: OPENAI_API_KEY\n"
        );
        self
    }

    /// Adds another scripted agent, which no tier names.
    #[must_use]
    pub fn another_agent(mut self, name: &str) -> Self {
        self.more_agents.push(name.to_owned());
        self
    }

    /// Requests a model per tier from the scripted agent, whose script must offer them.
    #[must_use]
    pub fn models(self, models: [&str; 3]) -> Self {
        Self { tiers: models.map(|model| format!("{{ agent: {AGENT}, model: {model} }}")), ..self }
    }

    /// Appends text: more gates, or other sections.
    #[must_use]
    pub fn more(mut self, text: &str) -> Self {
        self.more.push_str(text);
        self
    }
}

impl fmt::Display for ProjectConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [simple, moderate, complex] = &self.tiers;
        if !self.engines.is_empty() {
            writeln!(f, "engines: {{ {} }}", self.engines.join(", "))?;
        }
        match &self.agent {
            AgentSection::Scripted { command, script } => {
                writeln!(f, "agents:")?;
                for name in self.more_agents.iter().map(String::as_str).chain([AGENT]) {
                    writeln!(f, "  {name}:\n    command: {command}")?;
                    writeln!(f, "    env:\n      {SCRIPT_VARIABLE}: {}", script.display())?;
                }
            }
            AgentSection::Upstream(agent, upstream) => {
                writeln!(f, "agents:\n  {agent}:\n    upstream: {upstream}")?;
            }
        }
        f.write_str(&self.agent_settings)?;
        write!(f, "tiers:\n  simple: {simple}\n  moderate: {moderate}\n  complex: {complex}\n")?;
        write!(f, "gates:\n{}{}", self.gates, self.more)
    }
}

impl ScriptedProject {
    /// Returns the path of the agent's script.
    pub fn script_path(&self) -> PathBuf {
        self.folder.join("script.json")
    }

    /// Replaces the agent's script.
    pub fn write_script(&self, script: &Script) -> Result<()> {
        script.write(&self.script_path())
    }

    /// Returns the rules of its tasks, for a worker with this environment.
    pub fn rules(&self, environment: &BTreeMap<String, String>) -> Result<Rules> {
        let file = rules::ConfigFile { name: "tamma.yaml", text: &self.configuration };
        match rules::load(Some(file), environment, &test_operator()) {
            Ok(loaded) => Ok(loaded.rules.without_secrets()),
            Err(problems) => Err(anyhow!("invalid configuration: {problems}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_are_valid() {
        let script = Path::new("/nowhere/script.json");
        let engines = ["sandbox: off".to_owned(), "salvage_seconds: 1".to_owned()];
        let scripted = ProjectConfig::scripted(script)
            .expect("built with the tests")
            .engines(engines)
            .more("  more: { command: 'true', kind: lint }\nbudget: { task_usd: 1.0 }\n");
        let models = ["haiku", "sonnet", "opus"];
        let upstream = ProjectConfig::upstream("claude-code", "http://127.0.0.1:1", models);
        let gateway = ProjectConfig::scripted(script)
            .expect("built with the tests")
            .gateway("http://127.0.0.1:1");
        for config in [scripted, upstream, gateway] {
            let text = config.to_string();
            let file = rules::ConfigFile { name: "tamma.yaml", text: &text };
            let loaded = rules::load(Some(file), &BTreeMap::new(), &test_operator());
            assert!(loaded.is_ok(), "{text}");
        }
    }
}
