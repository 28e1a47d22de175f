//! A first `tamma.yaml`: what was found, where it differs from the defaults, and why.

use std::fmt::Write as _;

use tamma_core::rules::AgentRules;

use crate::agents::{Agents, Installed, KNOWN};
use crate::survey::{Check, Survey};

const OPENING: &str = "\
# How Tamma works on this repository. Written by `tamma init`: it is yours to change.
#
# Only what differs from the defaults is here. `tamma config show` tells every value and where it
# comes from, and `tamma config check` finds mistakes.
";

const NO_CHECKS: &str = "
# No tests, linter or type check were found in this folder. So there is no gate, and a change is
# judged by its review alone. Say what a change has to pass:
#
# gates:
#   test:
#     command: make test # run by `sh -c` in a fresh checkout
#     kind: tests # or types, lint, security, secrets, format, build, command
";

/// Writes the file.
pub(crate) fn draft(survey: &Survey, agents: &Agents) -> String {
    let mut text = OPENING.to_owned();
    gates(&mut text, &survey.checks);
    match agents.installed.first() {
        None => without_agent(&mut text),
        Some(agent) => {
            tiers(&mut text, agent);
            variables(&mut text, agent);
        }
    }
    text
}

fn gates(text: &mut String, checks: &[Check]) {
    if checks.is_empty() {
        text.push_str(NO_CHECKS);
        return;
    }
    text.push_str(
        "\n# What a change has to pass. Each is run by `sh -c` in a fresh checkout.\ngates:\n",
    );
    for Check { name, kind, command, because, report, network } in checks {
        let (because, command) = (comment(because), value(command));
        let _ =
            write!(text, "  # {because}\n  {name}:\n    command: {command}\n    kind: {kind}\n");
        if let Some(report) = report {
            let _ = writeln!(text, "    report: {report}");
        }
        if *network {
            text.push_str("    network: true\n");
        }
    }
}

fn without_agent(text: &mut String) {
    text.push_str(
        "\n# No agent that Tamma knows is on PATH. Install one; the tiers use claude-code until you \
         say\n# otherwise:\n#\n",
    );
    for known in KNOWN {
        let _ = writeln!(text, "#   {:<12} {}", known.name, known.install);
    }
}

fn tiers(text: &mut String, agent: &Installed) {
    let name = agent.known.name;
    if agent.known.has_default_models {
        let _ = write!(
            text,
            "\n# {name} is installed, and the tiers use it by default: haiku, sonnet and opus, from \
             the\n# simple tier to the complex one.\n"
        );
        return;
    }
    let _ = write!(
        text,
        "\n# {name} is installed, and {} is not. `default` leaves the model to the agent:\n# name a \
         cheap one for the simple tier and the strongest for the complex one, in its own \
         words.\ntiers:\n",
        KNOWN[0].name
    );
    for tier in ["simple", "moderate", "complex"] {
        let _ = write!(text, "  {tier}:\n    agent: {name}\n    model: default\n");
    }
}

fn variables(text: &mut String, agent: &Installed) {
    if agent.needs.is_empty() {
        return;
    }
    let name = agent.known.name;
    let _ = write!(
        text,
        "\n# An agent gets only the variables that are named. {name} probably needs these too, \
         which\n# are set here: {}.\nagents:\n  {name}:\n    inherit:\n",
        agent.needs.join(", ")
    );
    let given = AgentRules::default().inherit;
    for name in given.iter().map(String::as_str).chain(agent.needs.iter().copied()) {
        let _ = writeln!(text, "      - {name}");
    }
}

/// A text that may stand in a comment of one line.
fn comment(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// A text as YAML writes it: bare where that can mean nothing else, and in quotes otherwise.
fn value(text: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || " ./-_&=".contains(letter);
    let bare = text.starts_with(|first: char| first.is_ascii_alphabetic())
        && !text.ends_with(' ')
        && text.chars().all(plain)
        && !["true", "false", "null"].contains(&text);
    // What `${` would fill in is not ours to say: it stands for itself.
    let text = text.replace("${", "$${");
    // Every text of JSON is one of YAML.
    if bare { text } else { serde_json::Value::String(text).to_string() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tamma_core::gate::Kind;
    use tamma_core::rules::{self, Rules, Source};

    use super::*;

    fn none() -> Agents {
        Agents { installed: Vec::new(), half: Vec::new() }
    }

    fn read(text: &str) -> Rules {
        let source = Source { name: "tamma.yaml", text };
        rules::load(Some(source), &BTreeMap::new())
            .unwrap_or_else(|all| panic!("{all}\n{text}"))
            .rules
    }

    #[test]
    fn with_nothing_found_the_file_says_so_and_means_the_defaults() {
        let text = draft(&Survey::default(), &none());
        assert_eq!(read(&text), Rules::default());
        assert!(text.contains("there is no gate"), "{text}");
        for known in KNOWN {
            assert!(text.contains(known.install), "{text}");
        }
    }

    #[test]
    fn a_command_comes_out_as_it_went_in() {
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
            let check = Check {
                name: "test".to_owned(),
                kind: Kind::Tests,
                command: command.to_owned(),
                because: "Because\nof this.".to_owned(),
                report: Some(tamma_core::rules::Report::Junit),
                network: true,
            };
            let survey = Survey { languages: Vec::new(), checks: vec![check] };
            let gate = read(&draft(&survey, &none())).gates["test"].clone();
            assert_eq!((gate.command.as_str(), gate.network), (command, true));
            assert_eq!(gate.report, Some(tamma_core::rules::Report::Junit));
        }
    }

    #[test]
    fn every_agent_makes_a_valid_file_and_gets_the_variables_it_needs() {
        for known in KNOWN {
            let agent = Installed {
                known,
                program: format!("/bin/{}", known.name).into(),
                needs: vec!["KEY", "HTTPS_PROXY"],
            };
            let agents = Agents { installed: vec![agent], half: Vec::new() };
            let rules = read(&draft(&Survey::default(), &agents));
            for tier in [&rules.tiers.simple, &rules.tiers.moderate, &rules.tiers.complex] {
                assert_eq!(tier.agent, known.name);
                assert_eq!(tier.model == "default", !known.has_default_models);
            }
            assert_eq!(
                rules.agents[known.name].inherit,
                ["PATH", "HOME", "LANG", "TERM", "KEY", "HTTPS_PROXY"]
            );
        }
    }
}
