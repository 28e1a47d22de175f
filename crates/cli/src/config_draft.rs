//! First `tamma.yaml` of a repository: detected settings that differ from the defaults, with reasons.

use std::fmt::Write as _;

use tamma_core::rules::AgentRules;

use crate::agents::{BUILT_IN_AGENTS, DetectedAgents, InstalledAgent, RegistryAgent, registry};
use crate::survey::{ProposedGate, ProposedSetup, Survey};

const HEADER: &str = "\
# Tamma configuration, created by `tamma init`. Edit it freely.
#
# Only settings that differ from the defaults are listed. `tamma config show` prints every value
# with its source, and `tamma config check` reports problems.
";

const NO_GATES: &str = "
# No tests, linter or type checker were detected, so there are no gates, and changes are checked
# by review only. Add the checks that a change must pass:
#
# gates:
#   test:
#     command: make test # runs with `sh -c` in a fresh checkout
#     kind: tests # or types, lint, security, secrets, format, build, command
";

/// Returns the content of the file.
pub(crate) fn draft_config(survey: &Survey, agents: &DetectedAgents) -> String {
    let mut text = HEADER.to_owned();
    push_setup(&mut text, survey.setup.as_ref());
    push_gates(&mut text, &survey.gates);
    match agents.installed.first() {
        None => push_install_hints(&mut text),
        Some(agent) => {
            push_tiers(&mut text, agent);
            push_agents(&mut text, &agents.installed);
        }
    }
    text
}

fn push_setup(text: &mut String, setup: Option<&ProposedSetup>) {
    let Some(ProposedSetup { command, reason }) = setup else { return };
    let (reason, command) = (single_line(reason), yaml_string(command));
    let _ = write!(
        text,
        "\n# Installs dependencies in each checkout, with network access; agents and gates have \
         none. It runs\n# again when a lock file changes. {reason}\nsetup:\n  command: {command}\n"
    );
}

fn push_gates(text: &mut String, gates: &[ProposedGate]) {
    if gates.is_empty() {
        text.push_str(NO_GATES);
        return;
    }
    text.push_str(
        "\n# Checks that a change must pass. Each runs with `sh -c` in a fresh checkout.\ngates:\n",
    );
    for ProposedGate { name, kind, command, reason, report } in gates {
        let (reason, command) = (single_line(reason), yaml_string(command));
        let _ = write!(text, "  # {reason}\n  {name}:\n    command: {command}\n    kind: {kind}\n");
        if let Some(report) = report {
            let _ = writeln!(text, "    report: {report}");
        }
    }
}

fn push_install_hints(text: &mut String) {
    text.push_str(
        "\n# No known agent is on PATH. Install one of these. The tiers use claude-code unless you \
         configure\n# another:\n#\n",
    );
    for known in BUILT_IN_AGENTS {
        let _ = writeln!(text, "#   {:<12} {}", known.name, known.install);
    }
}

fn push_tiers(text: &mut String, agent: &InstalledAgent) {
    let name = agent.name;
    if agent.has_default_models {
        let _ = write!(
            text,
            "\n# {name} is installed, and the tiers use it by default with haiku (simple), sonnet \
             (moderate)\n# and opus (complex).\n"
        );
        return;
    }
    let _ = write!(
        text,
        "\n# {name} is installed, {} is not. `default` lets the agent choose the model. Name a\n# cheap \
         model for the simple tier and the strongest for the complex one, as the agent spells \
         them.\ntiers:\n",
        BUILT_IN_AGENTS[0].name
    );
    for tier in ["simple", "moderate", "complex"] {
        let _ = write!(text, "  {tier}:\n    agent: {name}\n    model: default\n");
    }
}

/// Writes the settings of agents that differ from the built-in ones: variables that the preferred
/// agent needs, and complete definitions of agents that are not built in.
fn push_agents(text: &mut String, installed: &[InstalledAgent]) {
    let mut entries = String::new();
    for (index, agent) in installed.iter().enumerate() {
        match agent.definition {
            Some(definition) => push_definition(&mut entries, agent, definition),
            None if index == 0 && !agent.extra_variables.is_empty() => {
                let _ = write!(
                    entries,
                    "  # Agents get only the variables listed here. {name} probably needs these, which are \
                     set in\n  # this environment: {}.\n  {name}:\n",
                    agent.extra_variables.join(", "),
                    name = agent.name,
                );
                push_variables(&mut entries, agent);
            }
            None => {}
        }
    }
    if !entries.is_empty() {
        let _ = write!(text, "\nagents:\n{entries}");
    }
}

fn push_definition(text: &mut String, agent: &InstalledAgent, definition: &RegistryAgent) {
    let RegistryAgent { id, name, program, args, env, home } = definition;
    let _ = write!(
        text,
        "  # {name}, from the ACP registry of {date}. It has to be signed in: start `{program}` once in a\n  \
         # terminal. It calls its provider directly, so Tamma cannot meter or limit what it spends.\n  \
         {id}:\n    command: {program}\n    args: {}\n    provider: {id}\n    home: {}\n",
        flow_list(args),
        flow_list(home),
        date = registry().date,
    );
    if !env.is_empty() {
        text.push_str("    env:\n");
        for (name, value) in env {
            let _ = writeln!(text, "      {name}: {}", serde_json::Value::from(value.as_str()));
        }
    }
    if !agent.extra_variables.is_empty() {
        push_variables(text, agent);
    }
}

fn push_variables(text: &mut String, agent: &InstalledAgent) {
    text.push_str("    inherit:\n");
    let inherited = AgentRules::default().inherit;
    for name in inherited.iter().map(String::as_str).chain(agent.extra_variables.iter().copied()) {
        let _ = writeln!(text, "      - {name}");
    }
}

/// Formats strings as a YAML list on one line. JSON is valid YAML.
fn flow_list(items: &[String]) -> String {
    let items: Vec<_> =
        items.iter().map(|item| serde_json::Value::from(item.as_str()).to_string()).collect();
    format!("[{}]", items.join(", "))
}

/// Replaces control characters, so that the text fits in a one-line comment.
fn single_line(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// Formats a string as YAML: plain where that is unambiguous, quoted otherwise.
fn yaml_string(text: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || " ./-_&=".contains(letter);
    let bare = text.starts_with(|first: char| first.is_ascii_alphabetic())
        && !text.ends_with(' ')
        && text.chars().all(plain)
        && !["true", "false", "null"].contains(&text);
    // Escaped, so that it is not expanded as a variable.
    let text = text.replace("${", "$${");
    // Every JSON string is a valid YAML string.
    if bare { text } else { serde_json::Value::String(text).to_string() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tamma_core::gate::GateKind;
    use tamma_core::operator::OperatorConfig;
    use tamma_core::rules::{self, ConfigFile, Rules};

    use super::*;
    use crate::agents::detect;

    fn none() -> DetectedAgents {
        DetectedAgents { installed: Vec::new(), missing_adapter: Vec::new() }
    }

    fn read(text: &str) -> Rules {
        let source = ConfigFile { name: "tamma.yaml", text };
        rules::load(Some(source), &BTreeMap::new(), &OperatorConfig::default())
            .unwrap_or_else(|all| panic!("{all}\n{text}"))
            .rules
    }

    #[test]
    fn an_empty_survey_produces_the_defaults_with_hints() {
        let text = draft_config(&Survey::default(), &none());
        assert_eq!(read(&text), Rules::default());
        assert!(text.contains("there are no gates"), "{text}");
        for known in BUILT_IN_AGENTS {
            assert!(text.contains(known.install), "{text}");
        }
    }

    #[test]
    fn commands_round_trip_through_yaml() {
        for command in [
            "cargo test",
            "npm ci && npm run test",
            "true",
            "- x",
            "a: b # c",
            "echo \"${HOME}\" 'x' \\ \u{7} é",
            "go test ./...",
            " ",
        ] {
            let check = ProposedGate {
                name: "test".to_owned(),
                kind: GateKind::Tests,
                command: command.to_owned(),
                reason: "Because\nof this.".to_owned(),
                report: Some(tamma_core::rules::ReportFormat::Junit),
            };
            let setup =
                ProposedSetup { command: command.to_owned(), reason: "Why\nnot.".to_owned() };
            let survey = Survey { setup: Some(setup), gates: vec![check], ..Survey::default() };
            let rules = read(&draft_config(&survey, &none()));
            assert_eq!(rules.setup.command.as_deref(), Some(command));
            let gate = rules.gates["test"].clone();
            assert_eq!(gate.command.as_str(), command);
            assert_eq!(gate.report, Some(tamma_core::rules::ReportFormat::Junit));
        }
    }

    #[test]
    fn every_agent_produces_a_valid_file_with_its_variables() {
        for known in BUILT_IN_AGENTS {
            let credential = *rules::credential_variables(known.name).last().expect(known.name);
            let agent = InstalledAgent {
                name: known.name,
                definition: None,
                has_default_models: known.has_default_models,
                program: format!("/bin/{}", known.name).into(),
                extra_variables: vec![credential, "HTTPS_PROXY"],
            };
            let agents = DetectedAgents { installed: vec![agent], missing_adapter: Vec::new() };
            let rules = read(&draft_config(&Survey::default(), &agents));
            for tier in [&rules.tiers.simple, &rules.tiers.moderate, &rules.tiers.complex] {
                assert_eq!(tier.agent, known.name);
                assert_eq!(tier.model == "default", !known.has_default_models);
            }
            assert_eq!(
                rules.agents[known.name].inherit,
                ["PATH", "HOME", "LANG", "TERM", credential, "HTTPS_PROXY"]
            );
        }
    }
    #[test]
    fn agents_of_the_registry_get_a_complete_definition() {
        let find = |name: &str| Some(std::path::PathBuf::from("/bin").join(name));
        let is_known = |name: &str| registry().agents.iter().any(|agent| agent.program == name);
        let agents =
            detect(|name| find(name).filter(|_| is_known(name)), |name| name == "HTTPS_PROXY");
        let rules = read(&draft_config(&Survey::default(), &agents));
        assert_eq!(rules.tiers.simple.agent, registry().agents[0].id);
        for agent in &registry().agents {
            let written = &rules.agents[&agent.id];
            assert_eq!((&written.command, &written.args), (&agent.program, &agent.args));
            assert_eq!((&written.env, &written.home), (&agent.env, &agent.home));
            assert_eq!(written.provider, agent.id);
            // Without a key, the agent uses its own sign-in and not the gateway.
            assert_eq!((written.key.as_str(), written.upstream.as_str()), ("", ""));
            assert_eq!(written.inherit.last().map(String::as_str), Some("HTTPS_PROXY"));
        }
    }
}
