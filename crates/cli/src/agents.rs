//! Detection of installed agents, and how to install them.

mod registry;

use std::collections::BTreeSet;
use std::path::PathBuf;

use tamma_core::rules::{self, AgentRules, NETWORK_VARIABLES, Rules};

pub(crate) use registry::{RegistryAgent, registry};

/// Installation and requirements of a built-in agent.
pub(crate) struct BuiltInAgent {
    /// Name in the configuration.
    pub(crate) name: &'static str,
    /// Command that installs it.
    pub(crate) install: &'static str,
    /// Way to sign in without an API key.
    pub(crate) sign_in: &'static str,
    /// Agent's own program, if it needs a separate ACP adapter.
    pub(crate) native_program: Option<&'static str>,
    /// True if it supports the default models of the tiers.
    pub(crate) has_default_models: bool,
}

/// Built-in agents, in order of preference.
pub(crate) const BUILT_IN_AGENTS: &[BuiltInAgent] = &[
    BuiltInAgent {
        name: "claude-code",
        install: "npm install -g @agentclientprotocol/claude-agent-acp",
        sign_in: "start `claude` and type `/login`",
        native_program: Some("claude"),
        has_default_models: true,
    },
    BuiltInAgent {
        name: "codex",
        install: "npm install -g @agentclientprotocol/codex-acp",
        sign_in: "run `codex login`",
        native_program: Some("codex"),
        has_default_models: false,
    },
    BuiltInAgent {
        name: "opencode",
        install: "npm install -g opencode-ai",
        sign_in: "run `opencode auth login`",
        native_program: None,
        has_default_models: false,
    },
    BuiltInAgent {
        name: "gemini",
        install: "npm install -g @google/gemini-cli",
        sign_in: "start `gemini` and choose a sign-in",
        native_program: None,
        has_default_models: false,
    },
];

/// Installed agent.
pub(crate) struct InstalledAgent {
    /// Name in the configuration.
    pub(crate) name: &'static str,
    /// Definition, unless the agent is built in.
    pub(crate) definition: Option<&'static RegistryAgent>,
    /// True if it supports the default models of the tiers.
    pub(crate) has_default_models: bool,
    pub(crate) program: PathBuf,
    /// Variables that are set, not passed by default, and probably needed.
    pub(crate) extra_variables: Vec<&'static str>,
}

/// Agents detected on this machine.
pub(crate) struct DetectedAgents {
    /// Installed agents, preferred first: built-in ones, then those of the registry.
    pub(crate) installed: Vec<InstalledAgent>,
    /// Agents whose own program is installed, but not the ACP adapter.
    pub(crate) missing_adapter: Vec<&'static BuiltInAgent>,
}

/// Detects agents. `find` locates a program, and `is_set` checks a variable.
pub(crate) fn detect(
    find: impl Fn(&str) -> Option<PathBuf>,
    is_set: impl Fn(&str) -> bool,
) -> DetectedAgents {
    let built_in = Rules::default();
    let mut agents = DetectedAgents { installed: Vec::new(), missing_adapter: Vec::new() };
    for known in BUILT_IN_AGENTS {
        let Some(agent) = built_in.agents.get(known.name) else {
            continue;
        };
        if let Some(program) = find(&agent.command) {
            // If the worker has its key, it uses the gateway and needs neither the key nor the network.
            let keyed = is_set(&agent.key);
            let inherited = |name: &&&str| agent.inherit.iter().any(|one| one == **name);
            let needs = rules::credential_variables(known.name)
                .iter()
                .chain(&NETWORK_VARIABLES)
                .filter(|name| !keyed && !inherited(name));
            let needs = needs.copied().filter(|name| is_set(name)).collect();
            agents.installed.push(InstalledAgent {
                name: known.name,
                definition: None,
                has_default_models: known.has_default_models,
                program,
                extra_variables: needs,
            });
        } else if known.native_program.is_some_and(|bare| find(bare).is_some()) {
            agents.missing_adapter.push(known);
        }
    }
    for known in &registry().agents {
        let Some(program) = find(&known.program) else { continue };
        let needs = NETWORK_VARIABLES.iter().copied().filter(|name| is_set(name));
        agents.installed.push(InstalledAgent {
            name: &known.id,
            definition: Some(known),
            has_default_models: false,
            program,
            extra_variables: needs.collect(),
        });
    }
    agents
}

/// Returns the agents that the tiers use, by name.
pub(crate) fn tier_agents(rules: &Rules) -> Vec<(&str, &AgentRules)> {
    let tiers = [&rules.tiers.simple, &rules.tiers.moderate, &rules.tiers.complex];
    let names: BTreeSet<&str> = tiers.iter().map(|tier| tier.agent.as_str()).collect();
    names.into_iter().filter_map(|name| Some((name, rules.agents.get(name)?))).collect()
}

/// Access of an agent to its models, as far as this machine shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ModelAccess {
    /// The variable with its API key is set.
    Key(String),
    /// It has stored a sign-in or a configuration at this path of the home folder.
    SignIn(String),
    /// It needs neither: no key and no sign-in are configured.
    NotNeeded,
    /// Neither was found; the text says how to get access.
    Missing(String),
}

/// Returns how an agent gets access to its models. `is_set` checks a variable, and `is_in_home` a path
/// of the home folder.
pub(crate) fn model_access(
    name: &str,
    agent: &AgentRules,
    is_set: impl Fn(&str) -> bool,
    is_in_home: impl Fn(&str) -> bool,
) -> ModelAccess {
    let inherited = agent.inherit.iter().map(String::as_str);
    let credentials = rules::credential_variables(name);
    let inherited = inherited.filter(|variable| credentials.contains(variable));
    let keys = std::iter::once(agent.key.as_str()).filter(|key| !key.is_empty()).chain(inherited);
    for key in keys {
        if is_set(key) {
            return ModelAccess::Key(key.to_owned());
        }
    }
    if let Some(path) = agent.home.iter().find(|path| is_in_home(path)) {
        return ModelAccess::SignIn(path.clone());
    }
    if agent.key.is_empty() && agent.home.is_empty() {
        return ModelAccess::NotNeeded;
    }
    let known = BUILT_IN_AGENTS.iter().find(|known| known.name == name);
    let sign_in = known.map_or_else(
        || format!("sign in with `{}`", agent.command),
        |known| known.sign_in.to_owned(),
    );
    let key = match agent.key.as_str() {
        "" => String::new(),
        key => format!(", or set {key} where `tamma up` runs"),
    };
    ModelAccess::Missing(format!("{sign_in}{key}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_is_a_key_or_a_sign_in_and_its_lack_is_explained() {
        let rules = Rules::default();
        let (name, claude) = tier_agents(&rules)[0];
        assert_eq!(name, "claude-code");
        let access = |set: &'static str, found: bool| {
            model_access(name, claude, move |variable| variable == set, move |_| found)
        };
        let key = "ANTHROPIC_API_KEY";
        assert_eq!(access(key, true), ModelAccess::Key(key.to_owned()));
        assert!(matches!(access("", true), ModelAccess::SignIn(_)));
        let how =
            "start `claude` and type `/login`, or set ANTHROPIC_API_KEY where `tamma up` runs";
        assert_eq!(access("", false), ModelAccess::Missing(how.to_owned()));
        let scripted = AgentRules::default();
        let access = model_access("demo", &scripted, |_| false, |_| false);
        assert_eq!(access, ModelAccess::NotNeeded);
    }

    #[test]
    fn every_built_in_agent_has_an_install_command() {
        let known: BTreeSet<&str> = BUILT_IN_AGENTS.iter().map(|known| known.name).collect();
        let rules = Rules::default();
        assert_eq!(known, rules.agents.keys().map(String::as_str).collect());
    }

    #[test]
    fn agents_are_detected_in_order_of_preference_with_their_variables() {
        let programs = ["gemini", "opencode", "claude", "codex", "codex-acp", "qwen"];
        let find = |name: &str| programs.contains(&name).then(|| PathBuf::from("/bin").join(name));
        let set = ["OPENAI_API_KEY", "GOOGLE_API_KEY", "HTTPS_PROXY", "PATH"];
        let agents = detect(find, |name| set.contains(&name));
        let installed: Vec<_> = agents
            .installed
            .iter()
            .map(|installed| {
                (installed.name, installed.program.to_str(), installed.extra_variables.as_slice())
            })
            .collect();
        assert_eq!(
            installed,
            [
                ("codex", Some("/bin/codex-acp"), &[][..]),
                ("opencode", Some("/bin/opencode"), &[]),
                ("gemini", Some("/bin/gemini"), &["GOOGLE_API_KEY", "HTTPS_PROXY"]),
                ("qwen-code", Some("/bin/qwen"), &["HTTPS_PROXY"]),
            ]
        );
        let missing_adapter: Vec<_> =
            agents.missing_adapter.iter().map(|known| known.name).collect();
        assert_eq!(missing_adapter, ["claude-code"]);
    }
}
