//! Operator file (`operator.yaml`): settings of one machine that a project must not decide.
//!
//! It is in the data folder, so that neither a change nor a project's `tamma.yaml` can extend what
//! a sandbox can read, which secrets it gets or where they are sent. A project that asks for more
//! than its operator allows is refused when its rules are loaded.

mod audit_settings;
mod identity;
mod retention;
mod sandbox_settings;
mod tls_settings;
mod web_origin;

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::path::{Component, Path};

use serde::{Deserialize, Serialize};

use crate::cost::Price;
use crate::prices;

pub use audit_settings::{AuditSettings, AuditWebhook, SyslogAddress};
pub use identity::{GroupRole, IdentityProvider, IdentitySettings};
pub use retention::RetentionDays;
pub use sandbox_settings::{HostPort, ResourceLimits, SandboxSettings};
pub use tls_settings::{AcmeSettings, TlsFiles, TlsSettings};
pub use web_origin::{WebOrigin, is_public_address};

/// Name of the file in the data folder.
pub const OPERATOR_FILE: &str = "operator.yaml";

/// Prefix of Tamma's own variables, such as the token of the server. Projects cannot use them,
/// whatever the operator writes.
pub const OWN_VARIABLES: &str = "TAMMA_";

/// Variables that commands cannot get, because Tamma sets them.
const RESERVED: [&str; 5] = ["CI", "HOME", "PATH", "REPORT", "TMPDIR"];

/// Settings of one machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OperatorConfig {
    /// Absolute paths that agents, gates and setups can read, such as toolchains and package caches.
    pub toolchains: Vec<String>,
    /// Variables for gates and for setups of base commits, such as the address and the password of a
    /// test database. Agents do not get them, nor do setups of lock files that an agent changed.
    pub test_environment: BTreeMap<String, String>,
    /// Days after which old data is removed.
    pub retention: RetentionDays,
    /// Variables of the server and the workers that projects can use, besides those that Tamma
    /// knows.
    pub variables: Vec<String>,
    /// URLs that an API key can be sent to, besides the provider's own, by the variable that holds
    /// the key.
    pub upstreams: BTreeMap<String, Vec<String>>,
    /// Absolute paths below which projects can make more readable for their agents and gates.
    pub readable: Vec<String>,
    /// Paths in the home directory that agents of projects can use, besides those of the agents that
    /// Tamma knows.
    pub homes: Vec<String>,
    /// Weakest sandbox that a project can select.
    pub weakest_sandbox: WeakestSandbox,
    /// Hosts and resources of sandboxes.
    pub sandbox: SandboxSettings,
    /// Hosts that alerts can reach although they are private or do not use TLS, as a name or an IP
    /// address.
    pub alert_hosts: Vec<String>,
    /// Model that interprets chat messages. Default: none.
    pub chat: Option<ModelApi>,
    /// Model that computes embeddings of knowledge entries. Default: none.
    pub embeddings: Option<ModelApi>,
    /// Most agents that work on one project at the same time, on all workers together. Default:
    /// unlimited.
    pub agents_per_project: Option<NonZeroU16>,
    /// Models that projects can use. Empty: all.
    pub models: Vec<String>,
    /// Prices of models, in US dollars per million tokens. Projects cannot change them.
    pub prices: BTreeMap<String, Price>,
    /// Receivers of the audit log.
    pub audit: AuditSettings,
    /// Identity providers that people sign in with.
    pub identity: IdentitySettings,
    /// Origin of Temporal's web UI, such as `https://temporal.example.com`, whose pages can open sealed
    /// payloads for operators. Default: none.
    pub temporal_ui: Option<String>,
    /// Certificate of the API and the pages. Default: none, so that the server speaks plain HTTP.
    pub tls: Option<TlsSettings>,
}

/// Weakest sandbox that a project can select. Each one includes those before it.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum WeakestSandbox {
    /// Bubblewrap, or Seatbelt on macOS.
    #[default]
    Bubblewrap,
    /// Landlock, which does not stop a hostile agent.
    Landlock,
    /// None at all.
    Off,
}

/// Model behind an OpenAI-compatible API. Its key, if it needs one, is in a variable of the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelApi {
    /// Base URL, such as `http://127.0.0.1:11434/v1`.
    pub url: String,
    /// Name of the model.
    pub model: String,
}

/// Problem of an operator file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperatorConfigError {
    /// Not valid YAML, or a key that does not exist. Values are not shown, because they can be
    /// secret.
    #[error(
        "invalid YAML, unknown key or wrong type near line {line}{}; docs/operating.md lists the keys",
        key.as_ref().map(|key| format!(" (`{key}`)")).unwrap_or_default()
    )]
    Syntax {
        /// Line of the problem, from 1.
        line: u64,
        /// Key on that line.
        key: Option<String>,
    },
    /// Path that is not absolute.
    #[error("`{key}`: `{path}` is not an absolute path below `/`; write a path such as `/opt/go`")]
    RelativePath {
        /// Key of the file.
        key: &'static str,
        /// Path in the file.
        path: String,
    },
    /// Invalid name of a variable, or one that Tamma sets itself.
    #[error(
        "`test_environment`: `{0}` cannot be set; use another name with letters, digits and `_`"
    )]
    Variable(String),
    /// Retention that is too short for running tasks.
    #[error(
        "`retention`: `{0}` is too short; use at least 7 days, or leave it out to keep the data"
    )]
    Retention(&'static str),
    /// Variable that projects must not use.
    #[error(
        "`{key}`: projects cannot use `{name}`; name a variable with letters, digits and `_` that \
         does not start with `TAMMA_`"
    )]
    ProjectVariable {
        /// Key of the file.
        key: &'static str,
        /// Name of the variable.
        name: String,
    },
    /// Address that is not a plain URL.
    #[error("`{0}`: an entry is not a URL such as `https://api.example.com`")]
    Url(&'static str),
    /// Path that is not below the home directory.
    #[error("`homes`: `{0}` is not below the home directory; write a path such as `.config/goose`")]
    Home(String),
    /// Host with more than a name.
    #[error("`alert_hosts`: `{0}` is not a host name or an IP address such as `hooks.example.com`")]
    Host(String),
    /// Entry that is not a host with an optional port.
    #[error(
        "`sandbox.hosts`: `{0}` is not a host with an optional port such as `127.0.0.1:5432` or \
         `packages.example.com`"
    )]
    SandboxHost(String),
    /// Address that is not one of a syslog server.
    #[error(
        "`audit.syslog`: `{0}` is not an address such as `udp://logs.example.com:514`, \
         `tcp://logs.example.com:601` or `unix:///dev/log`"
    )]
    Syslog(String),
    /// Secret that cannot sign messages.
    #[error(
        "`audit.webhook`: `secret` is not `whsec_` followed by a base64 key; create one with \
         `echo whsec_$(openssl rand -base64 32)`"
    )]
    WebhookSecret,
    /// Resource limit that no program could run with.
    #[error(
        "`sandbox.limits`: `{0}` is too low for any program to run; raise it, or remove it to use \
         the default"
    )]
    ResourceLimit(&'static str),
    /// Host of an identity provider with more than a name.
    #[error("`identity.hosts`: `{0}` is not a host name or an IP address such as `id.example.com`")]
    IdentityHost(String),
    /// Time between two checks of groups that is too short or too long.
    #[error("`identity.check_seconds`: {0} is out of range; use 1 to 20")]
    IdentityCheck(u32),
    /// Text that is not an origin.
    #[error(
        "`temporal_ui`: `{0}` is not an origin; write scheme, host and port only, such as \
         `https://temporal.example.com`"
    )]
    TemporalUi(String),
    /// Address that is not one of an authority.
    #[error(
        "`tls.acme`: `directory` is `{0}`, and not an https URL; use that of your certificate authority, \
         such as `https://acme-v02.api.letsencrypt.org/directory`"
    )]
    AcmeDirectory(String),
    /// Contact that is not an email address.
    #[error("`tls.acme`: `contact` is `{0}`, and not an email address such as `ops@example.com`")]
    AcmeContact(String),
    /// Identity provider that could not work.
    #[error("`identity.providers`: `{name}`: {problem}")]
    IdentityProvider {
        /// Name of the provider in the file.
        name: String,
        /// Wrong setting.
        problem: &'static str,
    },
}

/// Returns the key on a line of a YAML file, from 1.
fn key_on_line(text: &str, line: u64) -> Option<String> {
    let line = text.lines().nth(usize::try_from(line.checked_sub(1)?).ok()?)?;
    let (key, rest) = line.trim_start_matches([' ', '-']).split_once(':')?;
    // Otherwise, it is part of a value, such as a URL.
    if !rest.is_empty() && !rest.starts_with(' ') {
        return None;
    }
    let is_key = |key: &str| key.chars().all(|it| it.is_ascii_alphanumeric() || it == '_');
    Some(key).filter(|key| !key.is_empty() && is_key(key)).map(str::to_owned)
}

impl OperatorConfig {
    /// Parses and checks a file. An empty file sets nothing.
    pub fn parse(text: &str) -> Result<Self, OperatorConfigError> {
        let is_empty =
            text.lines().all(|line| line.trim().is_empty() || line.trim().starts_with('#'));
        if is_empty {
            return Ok(Self::default());
        }
        let config: Self = serde_saphyr::from_str(text).map_err(|error| {
            let line = error.location().map_or(1, |at| at.line());
            OperatorConfigError::Syntax { line, key: key_on_line(text, line) }
        })?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), OperatorConfigError> {
        // The root directory would expose the whole machine to every project.
        let is_below_root =
            |path: &&String| path.starts_with('/') && !path.trim_matches('/').is_empty();
        if let Some(path) = self.toolchains.iter().find(|path| !is_below_root(path)) {
            return Err(OperatorConfigError::RelativePath {
                key: "toolchains",
                path: path.clone(),
            });
        }
        if let Some(path) = self.readable.iter().find(|path| !path.starts_with('/')) {
            return Err(OperatorConfigError::RelativePath { key: "readable", path: path.clone() });
        }
        let is_settable = |name: &str| is_variable_name(name) && !RESERVED.contains(&name);
        if let Some(name) = self.test_environment.keys().find(|name| !is_settable(name)) {
            return Err(OperatorConfigError::Variable(name.clone()));
        }
        let variables = self.variables.iter().map(|name| ("variables", name));
        let keys = self.upstreams.keys().map(|name| ("upstreams", name));
        for (key, name) in variables.chain(keys) {
            if !is_variable_name(name) || is_own_variable(name) {
                return Err(OperatorConfigError::ProjectVariable { key, name: name.clone() });
            }
        }
        let upstreams = self.upstreams.values().flatten().map(|url| ("upstreams", url));
        let apis = [("chat", &self.chat), ("embeddings", &self.embeddings)];
        let apis = apis.iter().filter_map(|(key, api)| Some((*key, &api.as_ref()?.url)));
        let webhook = self.audit.webhook.iter().map(|webhook| ("audit.webhook", &webhook.url));
        for (key, url) in upstreams.chain(apis).chain(webhook) {
            // The URL is not shown, because it can contain a secret.
            WebOrigin::parse(url).ok_or(OperatorConfigError::Url(key))?;
        }
        let is_below_home = |path: &&String| {
            let mut parts = Path::new(path).components().peekable();
            parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)))
        };
        if let Some(name) = self.retention.too_short() {
            return Err(OperatorConfigError::Retention(name));
        }
        if let Some(path) = self.homes.iter().find(|path| !is_below_home(path)) {
            return Err(OperatorConfigError::Home(path.clone()));
        }
        let mut hosts = self.sandbox.hosts.iter();
        if let Some(host) = hosts.find(|host| HostPort::parse(host).is_none()) {
            return Err(OperatorConfigError::SandboxHost(host.clone()));
        }
        if let Some(address) = &self.audit.syslog {
            SyslogAddress::parse(address)
                .ok_or_else(|| OperatorConfigError::Syslog(address.clone()))?;
        }
        if self.audit.webhook.as_ref().is_some_and(|it| !it.secret.starts_with("whsec_")) {
            return Err(OperatorConfigError::WebhookSecret);
        }
        if let Some(name) = self.sandbox.limits.too_low() {
            return Err(OperatorConfigError::ResourceLimit(name));
        }
        self.identity.check()?;
        if let Some(origin) = self.temporal_ui.as_ref().filter(|origin| !is_origin(origin)) {
            return Err(OperatorConfigError::TemporalUi(origin.clone()));
        }
        if let Some(tls) = &self.tls {
            tls.check()?;
        }
        match self.alert_hosts.iter().find(|host| !web_origin::is_host(host)) {
            Some(host) => Err(OperatorConfigError::Host(host.clone())),
            None => Ok(()),
        }
    }

    /// Returns `true` if the operator lets projects use a variable.
    pub fn allows_variable(&self, name: &str) -> bool {
        !is_own_variable(name) && self.variables.iter().any(|allowed| allowed == name)
    }

    /// Returns `true` if the operator lets the key in a variable be sent to a URL.
    pub fn allows_upstream(&self, variable: &str, url: &str) -> bool {
        let allowed = self.upstreams.get(variable).into_iter().flatten();
        let mut allowed = allowed.filter_map(|url| WebOrigin::parse(url));
        WebOrigin::parse(url).is_some_and(|origin| allowed.any(|allowed| allowed.covers(&origin)))
    }

    /// Returns `true` if projects can make a path readable: one below a path that the operator lists.
    pub fn allows_path(&self, path: &str) -> bool {
        let path = Path::new(path);
        let is_plain = path.components().all(|part| part != Component::ParentDir);
        let mut listed = self.readable.iter().chain(&self.toolchains);
        is_plain && listed.any(|allowed| path.starts_with(allowed))
    }

    /// Returns `true` if alerts can reach a host although it is private or does not use TLS.
    pub fn allows_alert_host(&self, host: &str) -> bool {
        self.alert_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(host))
    }

    /// Returns `true` if projects can use a model.
    pub fn allows_model(&self, model: &str) -> bool {
        self.models.is_empty()
            || self.models.iter().any(|allowed| prices::is_same_model(allowed, model))
    }
}

/// Returns `true` for a variable that configures Tamma itself, in any spelling.
pub fn is_own_variable(name: &str) -> bool {
    name.get(..OWN_VARIABLES.len()).is_some_and(|start| start.eq_ignore_ascii_case(OWN_VARIABLES))
}

/// Returns `true` for scheme, host and port, as browsers send them.
fn is_origin(text: &str) -> bool {
    let rest = text.split_once("://").map_or("", |(_, rest)| rest);
    WebOrigin::parse(text).is_some() && !rest.contains(['/', '?', '#'])
}

fn is_variable_name(name: &str) -> bool {
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.chars().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retention_is_off_except_for_log_lines() {
        let default = RetentionDays::default();
        assert_eq!(OperatorConfig::parse("toolchains: []").expect("valid").retention, default);
        assert_eq!(default.log_lines, Some(90));
        let config = OperatorConfig::parse("retention: {texts: 30, log_lines: null}");
        let expected = RetentionDays { texts: Some(30), log_lines: None, ..default };
        assert_eq!(config.expect("valid").retention, expected);
        let error = OperatorConfig::parse("retention: {texts: 6}").expect_err("too short");
        assert_eq!(error, OperatorConfigError::Retention("texts"));
    }

    #[test]
    fn an_error_names_the_key_and_not_the_value() {
        let error = |text: &str| OperatorConfig::parse(text).expect_err(text).to_string();
        let unknown = error("toolchains: []\nsandbox:\n  limit: {memory_mb: 512}\n");
        assert!(unknown.contains("near line 3 (`limit`);"), "{unknown}");
        let wrong = error("toolchains: []\nsandbox: hush-hush\n");
        assert!(wrong.contains("near line 2 (`sandbox`);") && !wrong.contains("hush"), "{wrong}");
        let listed = error("toolchains:\n  - [\n  - hush:hush\n");
        assert!(!listed.contains('('), "{listed}");
    }

    #[test]
    fn the_ui_of_temporal_is_an_origin() {
        let config = OperatorConfig::parse("temporal_ui: https://temporal.example.com:8080");
        assert!(config.expect("valid").temporal_ui.is_some());
        for text in ["temporal.example.com", "https://temporal.example.com/", "'*'"] {
            let error = OperatorConfig::parse(&format!("temporal_ui: {text}")).expect_err(text);
            assert!(matches!(error, OperatorConfigError::TemporalUi(_)), "{error}");
        }
    }

    #[test]
    fn sandboxes_have_limits_by_default_and_reach_no_private_host() {
        let default = OperatorConfig::parse("").expect("valid").sandbox;
        assert_eq!(default.hosts, Vec::<String>::new());
        let text = "sandbox: {hosts: ['127.0.0.1:5432'], limits: {memory_mb: 512}}";
        let config = OperatorConfig::parse(text).expect("valid").sandbox;
        assert_eq!(config.limits, ResourceLimits { memory_mb: 512, ..default.limits });
        assert_eq!(config.hosts, ["127.0.0.1:5432"]);
        let error = |text: &str| OperatorConfig::parse(text).expect_err("invalid");
        assert_eq!(
            error("sandbox: {hosts: ['http://a']}"),
            OperatorConfigError::SandboxHost("http://a".to_owned())
        );
        assert_eq!(
            error("sandbox: {limits: {processes: 0}}"),
            OperatorConfigError::ResourceLimit("processes")
        );
        assert_eq!(
            error("sandbox: {limits: {memory: 1}}"),
            OperatorConfigError::Syntax { line: 1, key: Some("sandbox".to_owned()) }
        );
    }
}
