//! Example project of `tamma try`, and the script of its demo agent.
//!
//! The agent is this program (`tamma demo-agent`), so that a demo needs nothing else. It speaks the
//! protocol of every agent, uses no model, and says so in its plans and results.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use strum::IntoEnumIterator as _;
use tamma_core::plan::FileAction;
use tamma_core::task::TaskType;
use tamma_eval::{AgentScript, ExpectedOutcome, OracleNotes, ScriptedChange};

use crate::repository::Repository;

/// Title of the example task.
pub(crate) const TITLE: &str = "Greet people by name";

/// Description of the example task.
pub(crate) const DESCRIPTION: &str =
    "`sh greet.sh Ada` prints `Hello, Ada!`. Without a name, the world is greeted as before.";

/// Acceptance criteria of the example task.
pub(crate) const CRITERIA: [&str; 2] =
    ["`sh greet.sh Ada` prints `Hello, Ada!`.", "`sh greet.sh` prints `Hello, world!`."];

/// Files of the repository, besides `tamma.yaml`.
const FILES: [(&str, &str); 5] = [
    ("README.md", include_str!("example_project/README.md")),
    ("REQUESTS.md", include_str!("example_project/REQUESTS.md")),
    ("check.sh", include_str!("example_project/check.sh")),
    ("greet.sh", include_str!("example_project/greet.sh")),
    ("tests/world.sh", include_str!("example_project/tests/world.sh")),
];

/// First line of an agent's texts.
const LABEL: &str = "Demo agent: it follows a script and uses no model.";

/// First attempt at the program. It forgets the case without a name, so that the gate has something to
/// find.
const FIRST_ATTEMPT: &str = "\
#!/bin/sh
# Prints a greeting: sh greet.sh [NAME]
echo \"Hello, $1!\"
";

/// Program with the example task done.
const GREET: &str = "\
#!/bin/sh
# Prints a greeting: sh greet.sh [NAME]
echo \"Hello, ${1:-world}!\"
";

/// New test of the example task.
const NAME_TEST: &str = "\
# A person is greeted by name.
output=\"$(sh greet.sh Ada)\"
[ \"$output\" = \"Hello, Ada!\" ] || {
    echo \"expected \\\"Hello, Ada!\\\", got \\\"$output\\\"\"
    exit 1
}
";

/// Creates the repository in an empty folder, and commits its files. `program` is `tamma` itself.
pub(crate) fn create(folder: &Path, program: &Path) -> Result<Repository> {
    let config = config(program);
    for (name, text) in FILES.into_iter().chain([("tamma.yaml", config.as_str())]) {
        let path = folder.join(name);
        let written = path.parent().map_or(Ok(()), fs::create_dir_all);
        let written = written.and_then(|()| fs::write(&path, text));
        written.with_context(|| format!("cannot write {}", path.display()))?;
    }
    let repository = Repository::init(folder)?;
    repository.commit(".", "Add the greeter").context("cannot commit the example")?;
    Ok(repository)
}

/// Returns the content of `tamma.yaml`.
fn config(program: &Path) -> String {
    // Every JSON string is a valid YAML string.
    let program = serde_json::Value::from(program.display().to_string());
    let tier = "{ agent: demo, model: default, typical_run_usd: 0 }";
    format!(
        "# Written by `tamma try`. The agent is a demo: it follows a script and uses no model.\n\
         # In your own repository, `tamma init` writes this file for the agents that you have.\n\
         agents:\n  demo:\n    command: {program}\n    args: [demo-agent]\n\
         tiers:\n  simple: {tier}\n  moderate: {tier}\n  complex: {tier}\n\
         # A script costs nothing.\n\
         budget: {{ task_usd: null }}\n\
         # Every change must pass this check.\n\
         gates:\n  check: {{ command: sh check.sh, kind: tests }}\n\
         # Ask for an approval, although the plan has a low risk.\n\
         scrum_master:\n  task_loop: {{ auto_approve_low_risk: false }}\n"
    )
}

/// Returns the script of the demo agent for a prompt.
pub(crate) fn script(prompt: &str) -> AgentScript {
    if prompt.lines().any(|line| is_title_line(line, TITLE)) {
        greet_script()
    } else {
        note_script(prompt)
    }
}

/// Returns `true` for the line of a prompt with this title. A planner's prompt adds the type.
fn is_title_line(line: &str, title: &str) -> bool {
    let rest = line.strip_prefix("# Task: ").and_then(|rest| rest.strip_prefix(title));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(" ("))
}

fn change(path: &str, action: FileAction, description: &str, content: &str) -> ScriptedChange {
    ScriptedChange {
        path: path.to_owned(),
        action,
        description: Some(description.to_owned()),
        content: Some(content.to_owned()),
        first_attempt: None,
    }
}

/// Script of the example task. The first attempt fails the gate, and the second passes it.
fn greet_script() -> AgentScript {
    let readme =
        FILES[0].1.replace("Hello, world!\n", "Hello, world!\n$ sh greet.sh Ada\nHello, Ada!\n");
    let greet = change("greet.sh", FileAction::Modify, "Use the first argument as the name", GREET);
    let greet = ScriptedChange { first_attempt: Some(FIRST_ATTEMPT.to_owned()), ..greet };
    AgentScript {
        expected: ExpectedOutcome::Delivered,
        criteria: CRITERIA.map(str::to_owned).to_vec(),
        answer: None,
        notes: OracleNotes {
            summary: "greet.sh greets the person whose name it gets.".to_owned(),
            approach: format!(
                "{LABEL}\n\nThe first argument is the name; without one, it is `world`. A table of \
                 names was rejected: nobody asked for one."
            ),
            testing: "A new test greets Ada, and the old one still greets the world.".to_owned(),
            ..OracleNotes::default()
        },
        changes: vec![
            greet,
            change("tests/name.sh", FileAction::Create, "Test of a greeting by name", NAME_TEST),
            change("README.md", FileAction::Modify, "Example with a name", &readme),
        ],
    }
}

/// Script of any other task: it writes the request down.
fn note_script(prompt: &str) -> AgentScript {
    let title = prompt.lines().find_map(|line| line.strip_prefix("# Task: "));
    let title = title.unwrap_or("A task without a title");
    // A planner's prompt adds the type.
    let without_type = TaskType::iter().find_map(|it| title.strip_suffix(&format!(" ({it})")));
    let title = without_type.unwrap_or(title);
    let content = format!("# Requests\n\n- {title}\n");
    AgentScript {
        expected: ExpectedOutcome::Delivered,
        criteria: listed_criteria(prompt),
        answer: None,
        notes: OracleNotes {
            summary: "Write the request down; the demo agent cannot do more.".to_owned(),
            approach: format!(
                "{LABEL} It knows only the task \"{TITLE}\".\n\nThe request is added to REQUESTS.md. \
                 For real work, run `tamma init` in your own repository with an agent of yours."
            ),
            testing: "The existing tests still pass.".to_owned(),
            criteria: vec!["REQUESTS.md contains the request.".to_owned()],
            ..OracleNotes::default()
        },
        changes: vec![change("REQUESTS.md", FileAction::Modify, "The request", &content)],
    }
}

/// Returns the criteria that a prompt lists, such as `- C1: It greets.`
fn listed_criteria(prompt: &str) -> Vec<String> {
    let mut criteria: Vec<String> = Vec::new();
    for line in prompt.lines() {
        let next = format!("- C{}: ", criteria.len() + 1);
        if let Some(text) = line.strip_prefix(&next) {
            criteria.push(text.to_owned());
        }
    }
    criteria
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tamma_core::operator::OperatorConfig;
    use tamma_core::rules::{self, ConfigFile};

    use super::*;

    #[test]
    fn the_configuration_is_valid_and_asks_for_an_approval() {
        let text = config(Path::new("/opt/my \"tools\"/tamma"));
        let file = ConfigFile { name: "tamma.yaml", text: &text };
        let loaded = rules::load(Some(file), &BTreeMap::new(), &OperatorConfig::default());
        let rules = loaded.unwrap_or_else(|problems| panic!("{problems}\n{text}")).rules;
        assert_eq!(rules.agents["demo"].command, "/opt/my \"tools\"/tamma");
        assert_eq!(rules.agents["demo"].args, ["demo-agent"]);
        assert_eq!(rules.tiers.complex.agent, "demo");
        assert!(!rules.scrum_master.task_loop.auto_approve_low_risk);
        assert!(!rules.has_dollar_limit());
    }

    #[test]
    fn the_agent_says_that_it_uses_no_model() {
        for prompt in [format!("# Task: {TITLE} (feature)"), "# Task: Fly (feature)".to_owned()] {
            assert!(script(&prompt).notes.approach.starts_with(LABEL), "{prompt}");
        }
    }

    #[test]
    fn the_script_fits_the_files_of_the_example() {
        let exists = |path: &str| FILES.iter().any(|(name, _)| *name == path);
        let known = script(&format!("You are the planner.\n\n# Task: {TITLE} (feature)\n"));
        let other = script(&format!("# Task: {TITLE}, and sing\n\n- C1: It sings.\n- C2: Well.\n"));
        assert_eq!(other.criteria, ["It sings.", "Well."]);
        for change in known.changes.iter().chain(&other.changes) {
            let is_new = change.action == FileAction::Create;
            assert_eq!(exists(&change.path), !is_new, "{}", change.path);
        }
        let content = other.changes[0].content.as_deref();
        assert_eq!(content, Some("# Requests\n\n- Greet people by name, and sing\n"));
        assert_ne!(known.changes[2].content.as_deref(), Some(FILES[0].1), "the README changes");
    }
}
