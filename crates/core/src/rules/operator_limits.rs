//! Limits of the operator: refuses what a project's file asks for beyond them.
//!
//! Values of variables that override the file, such as `TAMMA_ENGINES_SANDBOX`, are the operator's
//! own and are not limited.

use std::path::{Component, Path};

use strum::IntoEnumIterator as _;

use super::agents::built_in_agents;
use super::load::nearest_origin;
use super::problem::{ConfigFault, ConfigProblem, ValueOrigin, quote_list};
use super::review::AgentSelection;
use super::sandbox::is_absolute_path;
use super::validation::{FileValidator, join_path};
use super::value_check::truncate;
use super::variables::{VARIABLES, VariableTarget};
use super::{AgentRules, ChannelType, Rules, SandboxMode};
use crate::operator::{OPERATOR_FILE, OperatorConfig, WeakestSandbox, WebOrigin, is_own_variable};
use crate::prices;
use crate::tier::Tier;

/// Variables that every agent can inherit: they locate programs, the language and the network.
pub const COMMON_VARIABLES: [&str; 8] =
    ["PATH", "HOME", "LANG", "TERM", "LC_ALL", "SHELL", "TZ", "USER"];

/// Variables that some machines need for network access.
pub const NETWORK_VARIABLES: [&str; 8] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "NODE_EXTRA_CA_CERTS",
    "SSL_CERT_FILE",
];

/// Sign-in folders of agents in the ACP registry, which `tamma init` configures.
const REGISTRY_HOMES: [&str; 6] =
    [".augment", ".config/github-copilot", ".factory", ".kimi", ".qwen", ".vibe"];

/// Keys of the operator file that projects may look for in theirs.
const OPERATOR_KEYS: [&str; 12] = [
    "homes",
    "readable",
    "chat",
    "embeddings",
    "toolchains",
    "test_environment",
    "variables",
    "upstreams",
    "weakest_sandbox",
    "alert_hosts",
    "models",
    "agents_per_project",
];

/// Returns the variables that hold the credentials of a built-in agent.
pub fn credential_variables(agent: &str) -> &'static [&'static str] {
    match agent {
        "claude-code" => &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"],
        "codex" => &["OPENAI_API_KEY", "CODEX_API_KEY"],
        "opencode" => {
            &["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"]
        }
        "gemini" => &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        _ => &[],
    }
}

/// Place of a text that refers to variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VariablePlace<'a> {
    /// Environment of an agent.
    AgentEnvironment,
    /// Setting of an alert channel, with its name.
    ChannelSetting(&'a str),
    /// Anywhere else: the value would be stored with tasks, and shown to agents and people.
    Stored,
}

impl<'a> VariablePlace<'a> {
    /// Returns the place of the value at `path`.
    pub(super) fn of(path: &'a str) -> Self {
        let in_agent = path.strip_prefix("agents.").and_then(|rest| rest.split_once('.'));
        if in_agent.is_some_and(|(_, key)| key.starts_with("env.")) {
            return Self::AgentEnvironment;
        }
        let in_channel = path.strip_prefix("scrum_master.alerts.channels[");
        match in_channel.and_then(|rest| rest.split_once("].config.")) {
            Some((_, key)) => Self::ChannelSetting(key),
            None => Self::Stored,
        }
    }

    /// Returns the fault of a reference to a variable, or `None` if the operator allows it here.
    pub(super) fn refuse(
        self,
        name: &str,
        text: &str,
        path: &str,
        operator: &OperatorConfig,
    ) -> Option<ConfigFault> {
        let allowed = match self {
            Self::Stored => {
                return Some(ConfigFault::NotAllowed {
                    path: path.to_owned(),
                    reason: format!("the value of `{name}` would be stored with every task"),
                    help: "use variables only in `agents.<name>.env` and in `config` of an alert \
                           channel; gates get theirs from `test_environment` in the operator file; \
                           for a literal `${`, write `$${`"
                        .to_owned(),
                });
            }
            Self::AgentEnvironment => NETWORK_VARIABLES.contains(&name),
            // As the whole value, so that it cannot become part of another address.
            Self::ChannelSetting(key) => is_alert_variable(name, key) && is_one_reference(text),
        };
        if allowed || operator.allows_variable(name) {
            return None;
        }
        Some(variable_fault(path, name))
    }
}

/// Returns `true` if a documented variable overrides this setting of a channel.
fn is_alert_variable(name: &str, key: &str) -> bool {
    let overrides = |target| matches!(target, VariableTarget::Channel(_, of) if of == key);
    VARIABLES.iter().any(|variable| variable.name == name && overrides(variable.target))
}

/// Returns `true` for a text such as `${NAME}` or `${NAME:-fallback}`.
fn is_one_reference(text: &str) -> bool {
    let inside = text.trim().strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    inside.is_some_and(|inside| !inside.contains(['$', '}']))
}

fn variable_fault(path: &str, name: &str) -> ConfigFault {
    let (path, shown) = (path.to_owned(), truncate(name));
    if is_own_variable(name) {
        return ConfigFault::NotAllowed {
            path,
            reason: format!("`{shown}` belongs to Tamma itself, and no project can use it"),
            help: "use another variable; alert channels can have a TAMMA_ALERT_ variable as the \
                   whole value of the setting that it overrides"
                .to_owned(),
        };
    }
    ConfigFault::NotAllowed {
        path,
        reason: format!("the operator has not allowed projects to use the variable `{shown}`"),
        help: format!(
            "if you operate this machine and trust the project with it, add it to `variables` in \
             {OPERATOR_FILE} in the data folder"
        ),
    }
}

/// Returns `true` for a key that belongs into the operator file.
pub(super) fn is_operator_key(key: &str) -> bool {
    OPERATOR_KEYS.contains(&key)
}

/// Returns the fault of a key that belongs into the operator file.
pub(super) fn operator_key_fault(key: &str) -> ConfigFault {
    ConfigFault::NotAllowed {
        path: key.to_owned(),
        reason: "only the operator of the machine can set it".to_owned(),
        help: format!("move it to {OPERATOR_FILE} in the data folder"),
    }
}

/// Replaces the project's prices of models that the operator has a price for.
pub(super) fn set_prices(rules: &mut Rules, operator: &OperatorConfig) {
    let is_set = |model: &str| operator.prices.keys().any(|own| prices::is_same_model(own, model));
    rules.prices.retain(|model, _| !is_set(model));
    rules.prices.extend(operator.prices.iter().map(|(model, price)| (model.clone(), *price)));
}

/// Reports everything that the project asks for and the operator does not allow.
pub(super) fn check_limits(rules: &Rules, validator: &mut FileValidator<'_>) {
    for (name, agent) in &rules.agents {
        check_inherited(name, agent, validator);
        check_key(name, agent, validator);
        check_home(name, agent, validator);
    }
    check_sandbox(rules, validator);
    check_readable(rules, validator);
    check_channel_urls(rules, validator);
    check_models(rules, validator);
}

fn report(validator: &mut FileValidator<'_>, at: &str, fault: ConfigFault) {
    let origin = nearest_origin(&validator.origins, at);
    validator.problems.push(ConfigProblem { fault, origin });
}

/// Returns `true` if the value at `path` is the operator's own.
fn is_from_environment(validator: &FileValidator<'_>, path: &str) -> bool {
    matches!(nearest_origin(&validator.origins, path), ValueOrigin::Variable { .. })
}

/// Reports variables that an agent must not inherit. A built-in agent can have its own credentials,
/// unless the project replaces its program.
fn check_inherited(name: &str, agent: &AgentRules, validator: &mut FileValidator<'_>) {
    let built_in = built_in_agents();
    let is_own_program =
        built_in.get(name).is_some_and(|built_in| built_in.command == agent.command);
    let credentials = if is_own_program { credential_variables(name) } else { &[] };
    for (index, variable) in agent.inherit.iter().enumerate() {
        let known = [&COMMON_VARIABLES[..], &NETWORK_VARIABLES, credentials];
        let is_known = known.iter().any(|names| names.contains(&variable.as_str()));
        if !is_known && !validator.operator.allows_variable(variable) {
            let path = format!("agents.{name}.inherit[{index}]");
            report(validator, &path, variable_fault(&path, variable));
        }
    }
}

/// Reports a key that would be sent to another host than its provider's.
fn check_key(name: &str, agent: &AgentRules, validator: &mut FileValidator<'_>) {
    if agent.key.is_empty() {
        return;
    }
    let (key, operator) = (agent.key.as_str(), validator.operator);
    let built_in = built_in_agents();
    let known: Vec<&AgentRules> = built_in.values().filter(|agent| agent.key == key).collect();
    let is_known = !known.is_empty() || operator.upstreams.contains_key(key);
    if !is_known || is_own_variable(key) {
        let path = format!("agents.{name}.key");
        let fault = ConfigFault::NotAllowed {
            path: path.clone(),
            reason: format!("`{}` is not a provider's key that projects can use", truncate(key)),
            help: format!(
                "if you operate this machine, add the variable and its provider's URL to \
                 `upstreams` in {OPERATOR_FILE} in the data folder"
            ),
        };
        report(validator, &path, fault);
        return;
    }
    let origin = WebOrigin::parse(&agent.upstream);
    let own = known.iter().filter_map(|known| WebOrigin::parse(&known.upstream));
    let own: Vec<WebOrigin> = own.collect();
    let is_own = |origin: &WebOrigin| own.iter().any(|own| own.covers(origin));
    if agent.upstream.is_empty()
        || origin.as_ref().is_some_and(is_own)
        || operator.allows_upstream(key, &agent.upstream)
    {
        return;
    }
    let path = format!("agents.{name}.upstream");
    let hosts: Vec<String> = known.iter().map(|known| known.upstream.clone()).collect();
    let reason = match origin {
        None => "it is not a plain URL such as `https://api.example.com`".to_owned(),
        Some(_) if hosts.is_empty() => {
            format!("the key in `{key}` must not be sent to this host")
        }
        Some(_) => format!("the key in `{key}` is only sent to {}", quote_list(&hosts[..1])),
    };
    let fault = ConfigFault::NotAllowed {
        path: path.clone(),
        reason,
        help: format!(
            "if you operate this machine, add the URL to `upstreams.{key}` in {OPERATOR_FILE} in \
             the data folder"
        ),
    };
    report(validator, &path, fault);
}

/// Reports paths of the home directory that are not known as the sign-in of an agent.
fn check_home(name: &str, agent: &AgentRules, validator: &mut FileValidator<'_>) {
    let built_in = built_in_agents();
    let known = built_in.values().flat_map(|agent| &agent.home).map(String::as_str);
    let known: Vec<&str> = known.chain(REGISTRY_HOMES).collect();
    for (index, home) in agent.home.iter().enumerate() {
        // Another path has been reported already.
        let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
        if !Path::new(home).components().all(is_plain) {
            continue;
        }
        let listed = validator.operator.homes.iter().map(String::as_str);
        let mut listed = listed.chain(known.iter().copied());
        if listed.any(|allowed| Path::new(home).starts_with(allowed)) {
            continue;
        }
        let path = format!("agents.{name}.home[{index}]");
        let fault = ConfigFault::NotAllowed {
            path: path.clone(),
            reason: "the operator has not allowed agents to use this path of the home directory"
                .to_owned(),
            help: format!(
                "if you operate this machine and it is the agent's sign-in, add it to `homes` in \
                 {OPERATOR_FILE} in the data folder"
            ),
        };
        report(validator, &path, fault);
    }
}

/// Reports a sandbox that is weaker than the operator allows.
fn check_sandbox(rules: &Rules, validator: &mut FileValidator<'_>) {
    let path = "engines.sandbox";
    let (needed, value) = match rules.engines.sandbox {
        SandboxMode::Auto | SandboxMode::Bubblewrap | SandboxMode::Seatbelt => return,
        SandboxMode::Landlock => (WeakestSandbox::Landlock, "landlock"),
        SandboxMode::Off => (WeakestSandbox::Off, "off"),
    };
    if needed <= validator.operator.weakest_sandbox || is_from_environment(validator, path) {
        return;
    }
    let fault = ConfigFault::NotAllowed {
        path: path.to_owned(),
        reason: format!("`{value}` is weaker than the operator allows"),
        help: format!(
            "remove the key; if you operate this machine and trust the project's agents, set \
             `weakest_sandbox: {value}` in {OPERATOR_FILE} in the data folder"
        ),
    };
    report(validator, path, fault);
}

/// Reports paths that the operator has not allowed to be read.
fn check_readable(rules: &Rules, validator: &mut FileValidator<'_>) {
    for (index, readable) in rules.engines.readable.iter().enumerate() {
        // A relative path and the root directory have been reported already.
        let is_reported = is_absolute_path(readable, &()).is_err();
        if is_reported || validator.operator.allows_path(readable) {
            continue;
        }
        let path = format!("engines.readable[{index}]");
        let fault = ConfigFault::NotAllowed {
            path: path.clone(),
            reason: "the operator has not allowed projects to read this path".to_owned(),
            help: format!(
                "if you operate this machine, add it to `readable` in {OPERATOR_FILE} in the data \
                 folder, or to `toolchains` for all projects"
            ),
        };
        report(validator, &path, fault);
    }
}

/// Reports URLs of alert channels without TLS, or with a host that is not public. Names are checked
/// when they are resolved.
fn check_channel_urls(rules: &Rules, validator: &mut FileValidator<'_>) {
    let channels = rules.scrum_master.alerts.channels.iter().enumerate();
    for (index, channel) in channels.filter(|(_, channel)| channel.enabled) {
        let has_url = matches!(channel.r#type, ChannelType::Webhook | ChannelType::Slack);
        let Some(url) = channel.setting("url").filter(|_| has_url) else { continue };
        let path = format!("scrum_master.alerts.channels[{index}].config.url");
        if is_from_environment(validator, &path) {
            continue;
        }
        // The URL is not shown, because it can contain a secret.
        let reason = match WebOrigin::parse(url) {
            None => "it is not a plain URL such as `https://hooks.example.com/path`",
            Some(origin) if validator.operator.allows_alert_host(origin.host()) => continue,
            Some(origin) if !origin.is_secure() => "alerts are only sent over `https`",
            Some(origin) if origin.is_private() => "its host is not a public one",
            Some(_) => continue,
        };
        let fault = ConfigFault::NotAllowed {
            path: path.clone(),
            reason: reason.to_owned(),
            help: format!(
                "use a public `https` URL; if you operate this machine, add the host to \
                 `alert_hosts` in {OPERATOR_FILE} in the data folder"
            ),
        };
        report(validator, &path, fault);
    }
}

/// Reports models that the operator has not listed, and tiers whose agent would choose one.
fn check_models(rules: &Rules, validator: &mut FileValidator<'_>) {
    if validator.operator.models.is_empty() {
        return;
    }
    let tiers = Tier::iter().map(|tier| (format!("tiers.{tier}"), AgentSelection::from(tier)));
    let council = &rules.council;
    let members = council.members.iter().enumerate();
    let members = members.map(|(index, member)| (format!("council.members[{index}]"), member));
    let members = members.chain([("council.chair".to_owned(), &council.chair)]);
    // A member without its own agent or model uses its tier's, which is checked there.
    let members = members.filter(|(_, member)| member.model.is_some() || member.agent.is_some());
    let members = members.map(|(path, member)| (path, member.clone()));
    for (path, selection) in tiers.chain(members) {
        let path = join_path(&path, "model");
        if is_from_environment(validator, &path) {
            continue;
        }
        let reason = match rules.selected_model(&selection) {
            Some(model) if validator.operator.allows_model(model) => continue,
            Some(model) => {
                let model = validator.redact(&truncate(model));
                format!("the operator has not allowed the model `{model}`")
            }
            None => "the agent would choose a model, and the operator has listed them".to_owned(),
        };
        let help = format!(
            "use one of {}; if you operate this machine, extend `models` in {OPERATOR_FILE} in the \
             data folder",
            quote_list(&validator.operator.models)
        );
        let fault = ConfigFault::NotAllowed { path: path.clone(), reason, help };
        report(validator, &path, fault);
    }
}
