//! Variables: those that a file names as `${NAME}`, and those that stand over any file.
//!
//! Nothing here reads the environment. The variables come in as a map, so that a test can give
//! any and a daemon can give none.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::ChannelType;
use super::check::Walk;
use super::problem::{Fault, Origin, Problem};
use super::shape::Shape;

/// A variable that stands over the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What it sets.
    pub target: Target,
    /// What it is for.
    pub doc: &'static str,
}

/// What a variable sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The key at a path.
    Key(&'static str),
    /// A key of the first alert channel of a kind. The channel is made if there is none, and
    /// switched on: whoever sets the variable wants the alerts.
    Channel(ChannelType, &'static str),
}

impl Target {
    /// The path of what is set, for people.
    pub fn path(&self) -> String {
        match self {
            Self::Key(path) => (*path).to_owned(),
            Self::Channel(kind, key) => format!("{CHANNELS}[{kind}].config.{key}"),
        }
    }
}

const CHANNELS: &str = "scrum_master.alerts.channels";

/// Names that begin like this are ours, so one that is not in the table is a slip.
const OURS: &str = "TAMMA_SCRUM_MASTER_";

const fn key(name: &'static str, path: &'static str, doc: &'static str) -> Variable {
    Variable { name, target: Target::Key(path), doc }
}

/// Every variable that stands over the file.
pub const VARIABLES: &[Variable] = &[
    key(
        "TAMMA_SCRUM_MASTER_MAX_RETRIES",
        "scrum_master.task_loop.max_retries",
        "How often a plan may be adjusted before a person is asked.",
    ),
    key(
        "TAMMA_SCRUM_MASTER_AUTO_APPROVE_LOW_RISK",
        "scrum_master.task_loop.auto_approve_low_risk",
        "Whether a low-risk plan is approved without a person.",
    ),
    key(
        "TAMMA_SCRUM_MASTER_TIMEOUT_MS",
        "scrum_master.task_loop.timeout_ms",
        "Milliseconds that any one piece of work may take.",
    ),
    key(
        "TAMMA_SCRUM_MASTER_MAX_ITERATIONS",
        "scrum_master.task_loop.max_iterations",
        "How many runs a task may have.",
    ),
    key(
        "TAMMA_SCRUM_MASTER_ESCALATION_THRESHOLD",
        "scrum_master.task_loop.escalation_threshold",
        "How many failures in a row move a task to the next tier.",
    ),
    key("TAMMA_BUDGET_TASK_USD", "budget.task_usd", "Dollars for one task."),
    key("TAMMA_BUDGET_DAY_USD", "budget.day_usd", "Dollars for all tasks in a day."),
    key("TAMMA_BUDGET_PROJECT_USD", "budget.project_usd", "Dollars for all tasks, ever."),
    key("TAMMA_TIER_SIMPLE_MODEL", "tiers.simple.model", "The model of the simple tier."),
    key("TAMMA_TIER_MODERATE_MODEL", "tiers.moderate.model", "The model of the moderate tier."),
    key("TAMMA_TIER_COMPLEX_MODEL", "tiers.complex.model", "The model of the complex tier."),
    key("TAMMA_TIER_SIMPLE_AGENT", "tiers.simple.agent", "The agent of the simple tier."),
    key("TAMMA_TIER_MODERATE_AGENT", "tiers.moderate.agent", "The agent of the moderate tier."),
    key("TAMMA_TIER_COMPLEX_AGENT", "tiers.complex.agent", "The agent of the complex tier."),
    key("TAMMA_ENGINES_SLOTS", "engines.slots", "How many agents a worker runs at once."),
    key("TAMMA_ENGINES_SANDBOX", "engines.sandbox", "What confines an agent's process."),
    key("TAMMA_DELIVERY_BASE", "delivery.base", "The branch that work starts from."),
    Variable {
        name: "TAMMA_ALERT_WEBHOOK_URL",
        target: Target::Channel(ChannelType::Webhook, "url"),
        doc: "Where alerts are posted to. Switches the webhook channel on.",
    },
    Variable {
        name: "TAMMA_ALERT_SLACK_CHANNEL",
        target: Target::Channel(ChannelType::Slack, "channel"),
        doc: "The Slack channel alerts go to. Switches the Slack channel on.",
    },
];

/// Sets what the variables say, over what is there.
pub(super) fn apply(rules: &mut Value, walk: &mut Walk<'_>) {
    for variable in VARIABLES {
        // As in a shell, a variable that is set to nothing counts as not set.
        let Some(text) = walk.variables.get(variable.name).filter(|text| !text.is_empty()) else {
            continue;
        };
        match variable.target {
            Target::Key(path) => set_key(rules, walk, variable.name, path, text),
            Target::Channel(kind, key) => {
                set_channel(rules, walk, variable.name, kind, key, text);
            }
        }
    }
    let known: Vec<String> = VARIABLES.iter().map(|variable| variable.name.to_owned()).collect();
    for name in walk.variables.keys() {
        if name.starts_with(OURS) && !known.contains(name) && !walk.named.contains(name) {
            walk.problems.push(Problem {
                fault: Fault::UnknownVariable { name: name.clone(), known: known.clone() },
                origin: Origin::Variable { name: name.clone() },
            });
        }
    }
}

fn set_key(rules: &mut Value, walk: &mut Walk<'_>, name: &str, path: &str, text: &str) {
    let root = walk.root;
    let mut shape = Some(Shape::of(root, root));
    for key in path.split('.') {
        shape = shape.and_then(|shape| shape.key(root, key));
    }
    let slot = rules.pointer_mut(&format!("/{}", path.replace('.', "/")));
    // A test holds the table to the schema, so both are there.
    let (Some(shape), Some(slot)) = (shape, slot) else {
        return;
    };
    let origin = Origin::Variable { name: name.to_owned() };
    match shape.fit_text(text, path, &format!("what `{name}` holds")) {
        Ok(value) => {
            *slot = value;
            walk.hidden.remove(path);
            walk.origins.insert(path.to_owned(), origin);
        }
        Err(fault) => walk.problems.push(Problem { fault, origin }),
    }
}

fn set_channel(
    rules: &mut Value,
    walk: &mut Walk<'_>,
    name: &str,
    kind: ChannelType,
    key: &str,
    text: &str,
) {
    let pointer = format!("/{}", CHANNELS.replace('.', "/"));
    let Some(channels) = rules.pointer_mut(&pointer).and_then(Value::as_array_mut) else {
        return;
    };
    let kind = kind.to_string();
    let is_it = |channel: &Value| channel.get("type").is_some_and(|is| *is == kind);
    let index = channels.iter().position(is_it).unwrap_or_else(|| {
        channels.push(json!({ "type": kind }));
        let path = format!("{CHANNELS}[{}].type", channels.len() - 1);
        walk.origins.insert(path, Origin::Variable { name: name.to_owned() });
        channels.len() - 1
    });
    let channel = &mut channels[index];
    channel["enabled"] = true.into();
    channel["config"][key] = text.into();
    for path in ["enabled".to_owned(), format!("config.{key}")] {
        let path = format!("{CHANNELS}[{index}].{path}");
        walk.origins.insert(path, Origin::Variable { name: name.to_owned() });
    }
    walk.hide(format!("{CHANNELS}[{index}].config.{key}"), format!("${{{name}}}"), text);
}

/// Puts the values of variables where a text names them.
///
/// Tells every fault, and gives the text only if there is none. The names met are added to
/// `named`.
pub(super) fn fill(
    text: &str,
    variables: &BTreeMap<String, String>,
    mut named: impl FnMut(&str),
) -> Result<String, Vec<Fault>> {
    let (mut filled, mut faults, mut rest) = (String::new(), Vec::new(), text);
    while let Some(start) = rest.find('$') {
        filled.push_str(&rest[..start]);
        rest = &rest[start..];
        if let Some(after) = rest.strip_prefix("$${") {
            filled.push_str("${");
            rest = after;
        } else if let Some(after) = rest.strip_prefix("${") {
            let Some((inside, after)) = after.split_once('}') else {
                faults.push(Fault::BrokenVariable);
                break;
            };
            rest = after;
            let (name, fallback) = match inside.split_once(":-") {
                Some((name, fallback)) => (name, Some(fallback)),
                None => (inside, None),
            };
            if !is_name(name) {
                faults.push(Fault::BrokenVariable);
                continue;
            }
            named(name);
            match (variables.get(name), fallback) {
                (Some(value), None) => filled.push_str(value),
                (Some(value), Some(_)) if !value.is_empty() => filled.push_str(value),
                (_, Some(fallback)) => filled.push_str(fallback),
                (None, None) => faults.push(Fault::UndefinedVariable { name: name.to_owned() }),
            }
        } else {
            filled.push('$');
            rest = &rest[1..];
        }
    }
    filled.push_str(rest);
    if faults.is_empty() { Ok(filled) } else { Err(faults) }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && text.chars().all(|next| next.is_ascii_alphanumeric() || next == '_')
}
