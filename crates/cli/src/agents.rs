//! The agents on this machine: which are installed, and how to get one.

use std::path::PathBuf;

use tamma_core::rules::Rules;

/// How an agent that is built in is installed and what it needs.
pub(crate) struct Known {
    /// Its name in the rules.
    pub(crate) name: &'static str,
    /// The command that installs it.
    pub(crate) install: &'static str,
    /// The program that people know it by, where it needs a second one to speak with us.
    pub(crate) bare: Option<&'static str>,
    /// Whether it knows the models that the tiers name by default.
    pub(crate) has_default_models: bool,
    /// Variables that it signs in with.
    keys: &'static [&'static str],
}

/// The agents that are built in, the one we would take first at the front.
pub(crate) const KNOWN: &[Known] = &[
    Known {
        name: "claude-code",
        install: "npm install -g @agentclientprotocol/claude-agent-acp",
        bare: Some("claude"),
        has_default_models: true,
        keys: &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"],
    },
    Known {
        name: "codex",
        install: "npm install -g @agentclientprotocol/codex-acp",
        bare: Some("codex"),
        has_default_models: false,
        keys: &["OPENAI_API_KEY", "CODEX_API_KEY"],
    },
    Known {
        name: "opencode",
        install: "npm install -g opencode-ai",
        bare: None,
        has_default_models: false,
        keys: &["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"],
    },
    Known {
        name: "gemini",
        install: "npm install -g @google/gemini-cli",
        bare: None,
        has_default_models: false,
        keys: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
    },
];

/// Variables without which nothing reaches the network on some machines.
const NETWORK: &[&str] = &[
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "NODE_EXTRA_CA_CERTS",
    "SSL_CERT_FILE",
];

/// An agent that is installed.
pub(crate) struct Installed {
    pub(crate) known: &'static Known,
    pub(crate) program: PathBuf,
    /// Variables that are set here, that it does not get by default and probably needs.
    pub(crate) needs: Vec<&'static str>,
}

/// What there is on this machine.
pub(crate) struct Agents {
    /// The first one is the one to take.
    pub(crate) installed: Vec<Installed>,
    /// Agents whose own program is here, while the one that speaks with us is not.
    pub(crate) half: Vec<&'static Known>,
}

/// Looks for the agents. `find` tells where a program is, and `is_set` whether a variable is set.
pub(crate) fn look(
    find: impl Fn(&str) -> Option<PathBuf>,
    is_set: impl Fn(&str) -> bool,
) -> Agents {
    let rules = Rules::default();
    let mut agents = Agents { installed: Vec::new(), half: Vec::new() };
    for known in KNOWN {
        let Some(agent) = rules.agents.get(known.name) else {
            continue;
        };
        if let Some(program) = find(&agent.command) {
            // With its key on the worker, it speaks to our gateway, and needs neither key nor network.
            let keyed = is_set(&agent.key);
            let given = |name: &&&str| agent.inherit.iter().any(|one| one == **name);
            let needs = known.keys.iter().chain(NETWORK).filter(|name| !keyed && !given(name));
            let needs = needs.copied().filter(|name| is_set(name)).collect();
            agents.installed.push(Installed { known, program, needs });
        } else if known.bare.is_some_and(|bare| find(bare).is_some()) {
            agents.half.push(known);
        }
    }
    agents
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_agent_that_is_built_in_can_be_installed() {
        let known: BTreeSet<&str> = KNOWN.iter().map(|known| known.name).collect();
        let rules = Rules::default();
        assert_eq!(known, rules.agents.keys().map(String::as_str).collect());
    }

    #[test]
    fn agents_are_found_in_our_order_with_the_variables_that_are_set() {
        let here = ["gemini", "opencode", "claude", "codex", "codex-acp"];
        let find = |name: &str| here.contains(&name).then(|| PathBuf::from("/bin").join(name));
        let set = ["OPENAI_API_KEY", "GOOGLE_API_KEY", "HTTPS_PROXY", "PATH"];
        let agents = look(find, |name| set.contains(&name));
        let found: Vec<_> = agents
            .installed
            .iter()
            .map(|one| (one.known.name, one.program.to_str(), one.needs.as_slice()))
            .collect();
        assert_eq!(
            found,
            [
                ("codex", Some("/bin/codex-acp"), &[][..]),
                ("opencode", Some("/bin/opencode"), &[]),
                ("gemini", Some("/bin/gemini"), &["GOOGLE_API_KEY", "HTTPS_PROXY"]),
            ]
        );
        let half: Vec<_> = agents.half.iter().map(|known| known.name).collect();
        assert_eq!(half, ["claude-code"]);
    }
}
