//! Environment variables: `${NAME}` references in a file, and variables that override the file.
//!
//! This module does not read the environment. Callers pass the variables as a map.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::ChannelType;
use super::problem::{ConfigFault, ConfigProblem, ValueOrigin};
use super::validation::FileValidator;
use super::value_schema::ValueSchema;

/// Environment variable that overrides the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnvVariable {
    /// Name of the variable.
    pub name: &'static str,
    /// Setting that the variable overrides.
    pub target: VariableTarget,
    /// Description for the reference.
    pub doc: &'static str,
}

/// Setting that a variable overrides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VariableTarget {
    /// Key at this path.
    Key(&'static str),
    /// Key of the first alert channel of a type. The channel is created if there is none. It is
    /// enabled unless the file disables it.
    Channel(ChannelType, &'static str),
}

impl VariableTarget {
    /// Returns the path of the setting, for people.
    pub fn path(&self) -> String {
        match self {
            Self::Key(path) => (*path).to_owned(),
            Self::Channel(kind, key) => format!("{CHANNELS_PATH}[{kind}].config.{key}"),
        }
    }
}

const CHANNELS_PATH: &str = "scrum_master.alerts.channels";

/// Prefix of our variables. An unknown name with this prefix is reported as a typo.
const OWN_PREFIX: &str = "TAMMA_SCRUM_MASTER_";

const fn key_variable(name: &'static str, path: &'static str, doc: &'static str) -> EnvVariable {
    EnvVariable { name, target: VariableTarget::Key(path), doc }
}

/// All variables that override the file.
pub const VARIABLES: &[EnvVariable] = &[
    key_variable(
        "TAMMA_SCRUM_MASTER_MAX_RETRIES",
        "scrum_master.task_loop.max_retries",
        "Plan revisions before a person is asked.",
    ),
    key_variable(
        "TAMMA_SCRUM_MASTER_AUTO_APPROVE_LOW_RISK",
        "scrum_master.task_loop.auto_approve_low_risk",
        "Approve low-risk plans automatically.",
    ),
    key_variable(
        "TAMMA_SCRUM_MASTER_TIMEOUT_MS",
        "scrum_master.task_loop.timeout_ms",
        "Time limit of a job, in milliseconds.",
    ),
    key_variable(
        "TAMMA_SCRUM_MASTER_MAX_ITERATIONS",
        "scrum_master.task_loop.max_iterations",
        "Runs before a person is asked.",
    ),
    key_variable(
        "TAMMA_SCRUM_MASTER_ESCALATION_THRESHOLD",
        "scrum_master.task_loop.escalation_threshold",
        "Consecutive failures that move a task to the next tier.",
    ),
    key_variable("TAMMA_BUDGET_TASK_USD", "budget.task_usd", "Budget of one task, in US dollars."),
    key_variable("TAMMA_BUDGET_DAY_USD", "budget.day_usd", "Budget per day, in US dollars."),
    key_variable("TAMMA_BUDGET_PROJECT_USD", "budget.project_usd", "Total budget, in US dollars."),
    key_variable("TAMMA_TIER_SIMPLE_MODEL", "tiers.simple.model", "Model of the simple tier."),
    key_variable(
        "TAMMA_TIER_MODERATE_MODEL",
        "tiers.moderate.model",
        "Model of the moderate tier.",
    ),
    key_variable("TAMMA_TIER_COMPLEX_MODEL", "tiers.complex.model", "Model of the complex tier."),
    key_variable("TAMMA_TIER_SIMPLE_AGENT", "tiers.simple.agent", "Agent of the simple tier."),
    key_variable(
        "TAMMA_TIER_MODERATE_AGENT",
        "tiers.moderate.agent",
        "Agent of the moderate tier.",
    ),
    key_variable("TAMMA_TIER_COMPLEX_AGENT", "tiers.complex.agent", "Agent of the complex tier."),
    key_variable("TAMMA_ENGINES_SLOTS", "engines.slots", "Agents per worker."),
    key_variable("TAMMA_ENGINES_SANDBOX", "engines.sandbox", "Sandbox for agent processes."),
    key_variable("TAMMA_DELIVERY_BASE", "delivery.base", "Branch that work starts from."),
    EnvVariable {
        name: "TAMMA_ALERT_WEBHOOK_URL",
        target: VariableTarget::Channel(ChannelType::Webhook, "url"),
        doc: "URL that alerts are posted to. Enables the webhook channel, unless the file disables it.",
    },
    EnvVariable {
        name: "TAMMA_ALERT_SLACK_CHANNEL",
        target: VariableTarget::Channel(ChannelType::Slack, "channel"),
        doc: "Slack channel for alerts. Enables the Slack channel, unless the file disables it.",
    },
    EnvVariable {
        name: "TAMMA_ALERT_SLACK_TOKEN",
        target: VariableTarget::Channel(ChannelType::Slack, "token"),
        doc: "Token of the Slack bot that posts to the channel. Enables the Slack channel, unless the \
              file disables it.",
    },
];

/// Overrides settings with the variables that are set.
pub(super) fn apply_variables(rules: &mut Value, validator: &mut FileValidator<'_>) {
    for variable in VARIABLES {
        // An empty variable counts as unset, as in a shell.
        let Some(text) = validator.variables.get(variable.name).filter(|text| !text.is_empty())
        else {
            continue;
        };
        match variable.target {
            VariableTarget::Key(path) => set_key(rules, validator, variable.name, path, text),
            VariableTarget::Channel(kind, key) => {
                set_channel(rules, validator, variable.name, kind, key, text);
            }
        }
    }
    let known: Vec<String> = VARIABLES.iter().map(|variable| variable.name.to_owned()).collect();
    for name in validator.variables.keys() {
        if name.starts_with(OWN_PREFIX)
            && !known.contains(name)
            && !validator.referenced_variables.contains(name)
        {
            validator.problems.push(ConfigProblem {
                fault: ConfigFault::UnknownVariable { name: name.clone(), known: known.clone() },
                origin: ValueOrigin::Variable { name: name.clone() },
            });
        }
    }
}

fn set_key(
    rules: &mut Value,
    validator: &mut FileValidator<'_>,
    name: &str,
    path: &str,
    text: &str,
) {
    let root = validator.schema;
    let mut schema = Some(ValueSchema::parse(root, root));
    for key in path.split('.') {
        schema = schema.and_then(|schema| schema.key_schema(root, key));
    }
    let slot = rules.pointer_mut(&format!("/{}", path.replace('.', "/")));
    // A test checks that every path of the table is in the schema.
    let (Some(schema), Some(slot)) = (schema, slot) else {
        return;
    };
    let origin = ValueOrigin::Variable { name: name.to_owned() };
    match schema.check_text_value(text, path, &format!("the value of `{name}`")) {
        Ok(value) => {
            *slot = value;
            validator.secret_values.remove(path);
            validator.origins.insert(path.to_owned(), origin);
        }
        Err(fault) => validator.problems.push(ConfigProblem { fault, origin }),
    }
}

fn set_channel(
    rules: &mut Value,
    validator: &mut FileValidator<'_>,
    name: &str,
    kind: ChannelType,
    key: &str,
    text: &str,
) {
    let pointer = format!("/{}", CHANNELS_PATH.replace('.', "/"));
    let Some(channels) = rules.pointer_mut(&pointer).and_then(Value::as_array_mut) else {
        return;
    };
    let kind = kind.to_string();
    let has_kind = |channel: &Value| channel.get("type").is_some_and(|value| *value == kind);
    let index = channels.iter().position(has_kind).unwrap_or_else(|| {
        channels.push(json!({ "type": kind }));
        let path = format!("{CHANNELS_PATH}[{}].type", channels.len() - 1);
        validator.origins.insert(path, ValueOrigin::Variable { name: name.to_owned() });
        channels.len() - 1
    });
    let channel = &mut channels[index];
    channel["config"][key] = text.into();
    let mut paths = vec![format!("config.{key}")];
    if channel.get("enabled").is_none() {
        channel["enabled"] = true.into();
        paths.push("enabled".to_owned());
    }
    for path in paths {
        let path = format!("{CHANNELS_PATH}[{index}].{path}");
        validator.origins.insert(path, ValueOrigin::Variable { name: name.to_owned() });
    }
    validator.hide_value(
        format!("{CHANNELS_PATH}[{index}].config.{key}"),
        format!("${{{name}}}"),
        text,
    );
}

/// Replaces variable references in a text with their values.
///
/// Returns either the text or all faults. Every name found is passed to `on_reference`.
pub(super) fn expand_variables(
    text: &str,
    variables: &BTreeMap<String, String>,
    mut on_reference: impl FnMut(&str),
) -> Result<String, Vec<ConfigFault>> {
    let (mut expanded, mut faults, mut rest) = (String::new(), Vec::new(), text);
    while let Some(start) = rest.find('$') {
        expanded.push_str(&rest[..start]);
        rest = &rest[start..];
        if let Some(after) = rest.strip_prefix("$${") {
            expanded.push_str("${");
            rest = after;
        } else if let Some(after) = rest.strip_prefix("${") {
            let Some((inside, after)) = after.split_once('}') else {
                faults.push(ConfigFault::BrokenVariable);
                break;
            };
            rest = after;
            let (name, fallback) = match inside.split_once(":-") {
                Some((name, fallback)) => (name, Some(fallback)),
                None => (inside, None),
            };
            if !is_variable_name(name) {
                faults.push(ConfigFault::BrokenVariable);
                continue;
            }
            on_reference(name);
            match (variables.get(name), fallback) {
                (Some(value), None) => expanded.push_str(value),
                (Some(value), Some(_)) if !value.is_empty() => expanded.push_str(value),
                (_, Some(fallback)) => expanded.push_str(fallback),
                (None, None) => {
                    faults.push(ConfigFault::UndefinedVariable { name: name.to_owned() });
                }
            }
        } else {
            expanded.push('$');
            rest = &rest[1..];
        }
    }
    expanded.push_str(rest);
    if faults.is_empty() { Ok(expanded) } else { Err(faults) }
}

fn is_variable_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && text.chars().all(|next| next.is_ascii_alphanumeric() || next == '_')
}
