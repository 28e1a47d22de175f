//! Agents: programs that do the work, with their settings.
//!
//! Well-known agents are built in, as YAML files in the same format as `agents` in `tamma.yaml`, so
//! a user's file needs none. An entry in a user's file is merged over the built-in one of the same
//! name, key by key.
//!
//! Some settings are templates. This module only validates them as text; the engine renders them
//! when it prepares a run, and defines their variables.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::LazyLock;

use garde::Validate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoEnumIterator as _};

use super::review::{AgentSelection, ValidatorIndependence};
use super::sandbox::{SandboxMode, is_absolute_path};
use super::{Rules, Tiers, is_default};
use crate::operator::OperatorConfig;
use crate::tier::Tier;

/// Agent program and its settings. It speaks the Agent Client Protocol on standard input and
/// output.
///
/// `args`, `env` and `files` are Jinja templates. Variables: `url` and `token` of the gateway,
/// `home` of the run, `worktree`, `model` and `effort` (empty if the agent chooses), `context`
/// (`context_tokens`), `look` (true for a read-only run), `caged` (true inside Tamma's sandbox), and
/// the lists `protected` (paths), `forbidden` and `asked` (commands). `denials` has the texts of
/// denials, `hook_url` is called before a tool to get one, and `shell_seconds` is the time that a
/// command may take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct AgentRules {
    /// Program to start: a name on the worker's `PATH`, or an absolute path. Required, except for
    /// built-in agents.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(min = 1, max = 1_000))]
    #[garde(skip)]
    pub command: String,
    /// Command-line arguments (templates). They are visible to everyone, so keep secrets in `env`.
    #[garde(inner(length(max = 1_000)))]
    pub args: Vec<String>,
    /// Environment variables for the agent (templates). Values can be secret, so they do not count
    /// towards the policy version. A variable that uses `url`, `token` or `home` is only set for
    /// runs through the gateway.
    #[garde(custom(are_variable_names))]
    pub env: BTreeMap<String, String>,
    /// Names of the worker's environment variables that the agent inherits. It inherits no others.
    #[garde(inner(length(min = 1, max = 100)))]
    pub inherit: Vec<String>,
    /// Provider that serves the agent's models. All its agents wait while its quota is used up.
    /// Default: the agent's name.
    #[garde(length(max = 100))]
    pub provider: String,
    /// URL of the provider's API, to which the gateway forwards requests.
    #[garde(length(max = 1_000))]
    pub upstream: String,
    /// Name of the worker's environment variable that holds the provider's API key. The agent never
    /// sees the key. If the variable is not set, the agent must be signed in on the worker: it then
    /// uses this sign-in and reports its own usage.
    #[garde(length(max = 100))]
    pub key: String,
    /// Files to write to the home directory of a run through the gateway: content by path
    /// (template).
    #[garde(custom(are_home_files))]
    pub files: BTreeMap<String, String>,
    /// Paths in the worker's home directory that a signed-in agent gets copies of. Without a sandbox,
    /// it uses the directory itself.
    #[garde(custom(are_home_paths))]
    pub home: Vec<String>,
    /// Session modes of the agent, by kind of run.
    #[garde(dive)]
    pub modes: SessionModes,
    /// Context window of the agent's models, in tokens. A repair resumes the session of the last run
    /// only if that run ended below half of it.
    #[serde(skip_serializing_if = "is_default_context")]
    #[garde(range(min = 1_000, max = 100_000_000))]
    pub context_tokens: u32,
    /// Seconds that a run waits for the answer to `ask_human`. It must be shorter than the agent's
    /// own limit for a tool call. With 0, a question ends the run, and the next run gets the answer.
    #[serde(skip_serializing_if = "is_default")]
    #[garde(range(min = 0, max = 3_600))]
    pub question_wait_seconds: u32,
}

/// Context window that is assumed for agents that do not say.
const DEFAULT_CONTEXT_TOKENS: u32 = 200_000;

/// Leaves the default out of serialised rules, so that policy versions from before this key existed
/// stay valid.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "signature required by serde")]
fn is_default_context(tokens: &u32) -> bool {
    *tokens == DEFAULT_CONTEXT_TOKENS
}

/// Reasoning effort of a model.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Display, EnumString,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Effort {
    /// Answers soon.
    Low,
    /// Thinks where it is needed.
    Medium,
    /// Thinks longest.
    High,
}

/// Session modes to request, in the agent's own names. The first one that the agent offers is used;
/// if it offers none of them, the run does not start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct SessionModes {
    /// Modes for read-only runs: planning, validation, council.
    #[garde(inner(length(min = 1, max = 100)))]
    pub look: Vec<String>,
    /// Modes for runs that change files.
    #[garde(inner(length(min = 1, max = 100)))]
    pub work: Vec<String>,
}

impl Default for AgentRules {
    fn default() -> Self {
        Self {
            command: String::new(),
            args: Vec::new(),
            env: BTreeMap::new(),
            inherit: ["PATH", "HOME", "LANG", "TERM"].map(str::to_owned).to_vec(),
            provider: String::new(),
            upstream: String::new(),
            key: String::new(),
            files: BTreeMap::new(),
            home: Vec::new(),
            modes: SessionModes::default(),
            context_tokens: DEFAULT_CONTEXT_TOKENS,
            question_wait_seconds: 0,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "signature required by garde")]
fn are_variable_names(env: &BTreeMap<String, String>, (): &()) -> garde::Result {
    match env.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
        None => Ok(()),
        Some(_) => Err(garde::Error::new(
            "a variable name must not be empty or contain `=`: write `NAME: value`",
        )),
    }
}

/// Returns true if `path` is relative and stays below its folder, judged by its text alone.
fn is_relative_path(path: &str) -> bool {
    let is_name = |part: &str| !matches!(part, "" | "." | "..");
    path.split('/').all(is_name) && !path.contains('\0')
}

fn path_error(path: &str) -> garde::Error {
    garde::Error::new(format!(
        "`{path}` is not below the home directory: write it without a leading `/` and without `..`"
    ))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "signature required by garde")]
fn are_home_files(files: &BTreeMap<String, String>, (): &()) -> garde::Result {
    files.keys().find(|path| !is_relative_path(path)).map_or(Ok(()), |path| Err(path_error(path)))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "signature required by garde")]
fn are_home_paths(names: &[String], (): &()) -> garde::Result {
    names.iter().find(|path| !is_relative_path(path)).map_or(Ok(()), |path| Err(path_error(path)))
}

/// Returns the built-in agents by name.
pub(super) fn built_in_agents() -> BTreeMap<String, AgentRules> {
    static ALL: LazyLock<BTreeMap<String, AgentRules>> = LazyLock::new(|| {
        [
            ("claude-code", include_str!("agents/claude-code.yaml")),
            ("codex", include_str!("agents/codex.yaml")),
            ("gemini", include_str!("agents/gemini.yaml")),
            ("opencode", include_str!("agents/opencode.yaml")),
        ]
        .into_iter()
        // A test fails if one of them cannot be parsed.
        .filter_map(|(name, text)| Some((name.to_owned(), serde_saphyr::from_str(text).ok()?)))
        .collect()
    });
    ALL.clone()
}

/// Tiers for jobs other than implementation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct RoleTiers {
    /// Tier that writes plans.
    #[garde(skip)]
    pub planner: Tier,
    /// Tier that judges changes against the acceptance criteria, at least `moderate`. A tier of
    /// another provider than the implementer's is preferred.
    #[garde(skip)]
    pub validator: Tier,
    /// Required independence of the validator from the implementing agent. If the `validator` tier
    /// does not meet it, another tier validates.
    #[serde(skip_serializing_if = "is_default")]
    #[garde(skip)]
    pub validator_apart: ValidatorIndependence,
    /// Reasoning effort by role. It overrides the effort of the role's tier.
    #[serde(skip_serializing_if = "is_default")]
    #[garde(skip)]
    pub effort: RoleEffort,
}

/// Reasoning effort by role. A role without one uses the effort of its tier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RoleEffort {
    /// Effort of the planner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub planner: Option<Effort>,
    /// Effort of the validator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validator: Option<Effort>,
    /// Effort of the council's members and its chair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub council: Option<Effort>,
    /// Effort of the run that extracts lessons.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learning: Option<Effort>,
}

impl Default for RoleTiers {
    fn default() -> Self {
        Self {
            planner: Tier::Moderate,
            validator: Tier::Moderate,
            validator_apart: ValidatorIndependence::default(),
            effort: RoleEffort::default(),
        }
    }
}

/// Agent pool of each worker, and limits across workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct AgentPoolRules {
    /// Agents that one worker runs at the same time.
    #[garde(range(min = 1, max = 1_000))]
    pub slots: u16,
    /// Sandbox for agent processes. If it is unavailable, no agent starts.
    #[garde(skip)]
    pub sandbox: SandboxMode,
    /// Absolute paths that agents can read besides the worktree, such as toolchains and caches. The
    /// operator must allow them. System programs are always readable.
    #[garde(inner(custom(is_absolute_path)))]
    pub readable: Vec<String>,
    /// Seconds of a run's work that can be lost with its machine. Checkpoints are pushed twice in
    /// this time.
    #[serde(skip_serializing_if = "is_default_checkpoint_interval")]
    #[garde(range(min = 1, max = 3_600))]
    pub salvage_seconds: u32,
    /// Disk space for a worker's checkouts, in GB. Above this, the worker removes checkouts of
    /// closed tasks and ended stories, and starts no run until enough is free. Default: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(range(min = 1, max = 1_000_000))]
    pub disk_gb: Option<u32>,
    /// Agents that work on the project at the same time, on all workers together. Default:
    /// unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(range(min = 1, max = 10_000))]
    pub per_project: Option<u16>,
    /// Agents of a provider that work at the same time, on all workers together, by provider name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[garde(skip)]
    pub per_provider: BTreeMap<String, NonZeroU16>,
}

/// Leaves the default out of serialised rules, so that policy versions from before this key existed
/// stay valid.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "signature required by serde")]
fn is_default_checkpoint_interval(seconds: &u32) -> bool {
    *seconds == 60
}

impl AgentPoolRules {
    /// Returns the most agents that can work on the project at the same time: the lower limit of the
    /// project and its operator, or `None` if neither sets one.
    pub fn agent_limit(&self, operator: &OperatorConfig) -> Option<u16> {
        let limits = [self.per_project, operator.agents_per_project.map(NonZeroU16::get)];
        limits.into_iter().flatten().min()
    }
}

impl Default for AgentPoolRules {
    fn default() -> Self {
        Self {
            slots: 2,
            sandbox: SandboxMode::default(),
            readable: Vec::new(),
            salvage_seconds: 60,
            disk_gb: None,
            per_project: None,
            per_provider: BTreeMap::new(),
        }
    }
}

impl From<Tier> for AgentSelection {
    fn from(tier: Tier) -> Self {
        Self { tier, agent: None, model: None }
    }
}

impl Rules {
    /// Returns the name and settings of a selected agent: its own, or its tier's.
    pub fn selected_agent(&self, selection: &AgentSelection) -> Option<(&str, &AgentRules)> {
        match &selection.agent {
            Some(name) => {
                self.agents.get_key_value(name).map(|(name, agent)| (name.as_str(), agent))
            }
            None => self.agent(selection.tier),
        }
    }

    /// Returns the model that a selection requests. `None` for one with its own agent and no model:
    /// the agent chooses.
    pub fn selected_model<'a>(&'a self, selection: &'a AgentSelection) -> Option<&'a str> {
        match (&selection.model, &selection.agent) {
            (Some(model), _) => Some(model.as_str()).filter(|model| *model != "default"),
            (None, Some(agent)) if *agent != self.tiers.get(selection.tier).agent => None,
            (None, _) => self.model(selection.tier),
        }
    }

    /// Returns the provider of a selected agent's models.
    pub fn selected_provider<'a>(&'a self, selection: &'a AgentSelection) -> &'a str {
        match (self.selected_agent(selection), &selection.agent) {
            (Some((_, agent)), _) if !agent.provider.is_empty() => &agent.provider,
            (_, Some(agent)) => agent,
            (_, None) => self.provider(selection.tier),
        }
    }

    /// Returns the name and settings of a tier's agent. Always `Some` for loaded rules.
    pub fn agent(&self, tier: Tier) -> Option<(&str, &AgentRules)> {
        let name = &self.tiers.get(tier).agent;
        self.agents.get_key_value(name).map(|(name, agent)| (name.as_str(), agent))
    }

    /// Returns the model that a tier requests. `None` if the agent chooses: the file says
    /// `default`, or names another agent than the built-in one and no model for it.
    pub fn model(&self, tier: Tier) -> Option<&str> {
        let (tier_rules, built_in) = (self.tiers.get(tier), Tiers::default());
        let is_implicit = built_in.get(tier).agent != tier_rules.agent
            && built_in.get(tier).model == tier_rules.model;
        Some(tier_rules.model.as_str()).filter(|model| *model != "default" && !is_implicit)
    }

    /// Returns the tier that validates the work of `implementer`, an agent in its tier, at least
    /// [`Tier::VALIDATOR_MINIMUM`].
    ///
    /// The candidates are `roles.validator` and then the other tiers, strongest first. The first one
    /// of another provider that satisfies `roles.validator_apart` validates, or else the first one
    /// that satisfies it. If none does, `roles.validator` is used all the same; see
    /// [`Rules::has_independent_validator`].
    pub fn validator(&self, implementer: &AgentSelection) -> Tier {
        let candidates = self.validator_candidates();
        let independent = |tier: &Tier| self.is_independent(*tier, implementer);
        let provider = self.selected_provider(implementer);
        let of_another_provider =
            |tier: &Tier| self.provider(*tier) != provider && independent(tier);
        candidates
            .clone()
            .find(of_another_provider)
            .or_else(|| candidates.clone().find(independent))
            .unwrap_or_else(|| self.preferred_validator())
    }

    /// Returns the tier of the second validator, which judges a critical finding of the first again.
    ///
    /// It is never the implementer's tier, and satisfies `roles.validator_apart`. Another provider
    /// than both others is best, then another one than the first validator's, then another model. If
    /// there is none, the first validator's tier judges again.
    pub fn second_validator(&self, first: Tier, implementer: &AgentSelection) -> Tier {
        let provider = self.selected_provider(implementer);
        let candidates = self
            .validator_candidates()
            .filter(|tier| *tier != implementer.tier && self.is_independent(*tier, implementer));
        let unlike_first = |tier: &Tier| self.provider(*tier) != self.provider(first);
        candidates
            .clone()
            .find(|tier| unlike_first(tier) && self.provider(*tier) != provider)
            .or_else(|| candidates.clone().find(unlike_first))
            .or_else(|| candidates.clone().find(|tier| self.model(*tier) != self.model(first)))
            .unwrap_or(first)
    }

    fn preferred_validator(&self) -> Tier {
        self.roles.validator.max(Tier::VALIDATOR_MINIMUM)
    }

    fn validator_candidates(&self) -> impl Iterator<Item = Tier> + Clone {
        let others = Tier::iter().rev().filter(|tier| *tier >= Tier::VALIDATOR_MINIMUM);
        std::iter::once(self.preferred_validator()).chain(others)
    }

    /// Returns true if some tier satisfies `roles.validator_apart` for work of `implementer`.
    pub fn has_independent_validator(&self, implementer: &AgentSelection) -> bool {
        self.is_independent(self.validator(implementer), implementer)
    }

    fn is_independent(&self, validator: Tier, implementer: &AgentSelection) -> bool {
        let own = &self.tiers.get(implementer.tier).agent;
        let implementing_agent = implementer.agent.as_ref().unwrap_or(own);
        match self.roles.validator_apart {
            ValidatorIndependence::Never => true,
            ValidatorIndependence::Provider => {
                self.provider(validator) != self.selected_provider(implementer)
            }
            ValidatorIndependence::Model => {
                match (self.model(validator), self.selected_model(implementer)) {
                    // Models chosen by agents are unknown, so a different agent has to do.
                    (None, None) => self.tiers.get(validator).agent != *implementing_agent,
                    (validator, implementer) => validator != implementer,
                }
            }
        }
    }

    /// Returns the provider of a tier's models.
    pub fn provider(&self, tier: Tier) -> &str {
        match self.agent(tier) {
            Some((_, agent)) if !agent.provider.is_empty() => &agent.provider,
            _ => &self.tiers.get(tier).agent,
        }
    }
}
