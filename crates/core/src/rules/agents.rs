//! Agents: which programs may do the work, and what each of them is given.
//!
//! The well-known ones are built in, as files in the same form as a user's, so that a user's file
//! needs none. A file's entry is laid over the built-in one of the same name key by key.
//!
//! What an agent is given has templates in it. Here they are only texts; the engine fills them in
//! when a run is prepared, and knows the words.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::LazyLock;

use garde::Validate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::IntoEnumIterator as _;

use super::review::{Apart, Seat};
use super::sandbox::{Sandbox, is_whole};
use super::{Rules, Tiers, is_default};
use crate::tier::Tier;

/// How an agent is started. It speaks the Agent Client Protocol on its standard input and output.
///
/// `args`, `env` and `files` are templates in the manner of Jinja. They know `url` and `token` (of our
/// gateway), `home` (of the run), `worktree`, `model` (nothing if the agent chooses), `look` (whether
/// the run may only look), `caged` (whether a sandbox of ours is around it), and the lists `protected`
/// (paths), `forbidden` and `asked` (commands).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct AgentRules {
    /// The program: a name that is found on the worker's `PATH`, or a whole path. Every agent has
    /// one; those that are built in bring theirs.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(min = 1, max = 1_000))]
    #[garde(skip)]
    pub command: String,
    /// Its arguments. They are shown to anybody, so a secret belongs in `env`.
    #[garde(inner(length(max = 1_000)))]
    pub args: Vec<String>,
    /// Variables that it gets. Their values may be secret, so they are no part of the rules' version.
    /// One that names `url`, `token` or `home` is only there for a run through our gateway.
    #[garde(custom(are_variables))]
    pub env: BTreeMap<String, String>,
    /// Names of variables of the worker's own environment that it gets as well. It gets no others.
    #[garde(inner(length(min = 1, max = 100)))]
    pub inherit: Vec<String>,
    /// Who serves its models. All agents of a provider wait while its quota is used up. Without
    /// one, the agent's name stands for it.
    #[garde(length(max = 100))]
    pub provider: String,
    /// The address of the provider's API, to which our gateway passes its calls on.
    #[garde(length(max = 1_000))]
    pub upstream: String,
    /// The name of the worker's variable that holds the provider's key. The agent never sees the
    /// key. Where the variable is not set, the agent must be signed in on the worker: it runs with
    /// the worker's home, and what it used is what it says.
    #[garde(length(max = 100))]
    pub key: String,
    /// Files below the home of the run, which are written before the start of a run through our
    /// gateway. The text of a file is a template.
    #[garde(custom(are_below_the_home))]
    pub files: BTreeMap<String, String>,
    /// What in the worker's home an agent that is signed in may use.
    #[garde(custom(are_below))]
    pub home: Vec<String>,
    /// The agent's own session modes, for what a run may do.
    #[garde(dive)]
    pub modes: SessionModes,
}

/// Session modes of an agent, in its own words. The first one that it offers is taken; without any,
/// the mode is the agent's choice.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct SessionModes {
    /// For a run that may only look: a plan, a verdict, advice.
    #[garde(inner(length(min = 1, max = 100)))]
    pub look: Vec<String>,
    /// For a run that changes files.
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
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is garde's")]
fn are_variables(env: &BTreeMap<String, String>, (): &()) -> garde::Result {
    match env.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
        None => Ok(()),
        Some(_) => Err(garde::Error::new(
            "the name of a variable is not empty, and has no `=` in it: write `NAME: value`",
        )),
    }
}

/// Whether a path leads to something below a folder, by its words alone.
fn is_below(path: &str) -> bool {
    let plain = |part: &str| !matches!(part, "" | "." | "..");
    path.split('/').all(plain) && !path.contains('\0')
}

fn not_below(path: &str) -> garde::Error {
    garde::Error::new(format!(
        "`{path}` is not a path below the home: write it without `/` in front and without `..`"
    ))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is garde's")]
fn are_below_the_home(files: &BTreeMap<String, String>, (): &()) -> garde::Result {
    files.keys().find(|path| !is_below(path)).map_or(Ok(()), |path| Err(not_below(path)))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is garde's")]
fn are_below(names: &[String], (): &()) -> garde::Result {
    names.iter().find(|path| !is_below(path)).map_or(Ok(()), |path| Err(not_below(path)))
}

/// The agents that are built in, by name.
pub(super) fn built_in() -> BTreeMap<String, AgentRules> {
    static ALL: LazyLock<BTreeMap<String, AgentRules>> = LazyLock::new(|| {
        [
            ("claude-code", include_str!("agents/claude-code.yaml")),
            ("codex", include_str!("agents/codex.yaml")),
            ("gemini", include_str!("agents/gemini.yaml")),
            ("opencode", include_str!("agents/opencode.yaml")),
        ]
        .into_iter()
        // One that cannot be read is missing, which the tests would see.
        .filter_map(|(name, text)| Some((name.to_owned(), serde_saphyr::from_str(text).ok()?)))
        .collect()
    });
    ALL.clone()
}

/// Which tier does the work beside the implementation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct Roles {
    /// The tier that plans.
    #[garde(skip)]
    pub planner: Tier,
    /// The tier that judges whether a change meets the acceptance criteria.
    #[garde(skip)]
    pub validator: Tier,
    /// How far the validator must be from the agent whose work it judges; another tier takes its place
    /// where that of `validator` is too near.
    #[serde(skip_serializing_if = "is_default")]
    #[garde(skip)]
    pub validator_apart: Apart,
}

impl Default for Roles {
    fn default() -> Self {
        Self { planner: Tier::Moderate, validator: Tier::Simple, validator_apart: Apart::default() }
    }
}

/// What a worker runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct Engines {
    /// How many agents a worker runs at once.
    #[garde(range(min = 1, max = 1_000))]
    pub slots: u16,
    /// What confines an agent's process. Without it, nothing is started.
    #[garde(skip)]
    pub sandbox: Sandbox,
    /// Folders and files that agents may read beside the worktree, such as toolchains and caches, as
    /// whole paths. The system's own programs can always be read.
    #[garde(inner(custom(is_whole)))]
    pub readable: Vec<String>,
    /// Seconds of a run's work that may be lost with its machine. It is saved and pushed twice in
    /// that time.
    #[serde(skip_serializing_if = "is_a_minute")]
    #[garde(range(min = 1, max = 3_600))]
    pub salvage_seconds: u32,
    /// Gigabytes that a worker's copies may take on its disk. Above that it removes those of ended
    /// tasks, and begins no run while that does not help.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(range(min = 1, max = 1_000_000))]
    pub disk_gb: Option<u32>,
    /// How many agents work on the project at once, on all workers together.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(range(min = 1, max = 10_000))]
    pub per_project: Option<u16>,
    /// How many agents of a provider work at once, on all workers together, by its name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[garde(skip)]
    pub per_provider: BTreeMap<String, NonZeroU16>,
}

/// Left out of what is compared, so that rules from before there was a choice stay what they were.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_a_minute(seconds: &u32) -> bool {
    *seconds == 60
}

impl Default for Engines {
    fn default() -> Self {
        Self {
            slots: 2,
            sandbox: Sandbox::default(),
            readable: Vec::new(),
            salvage_seconds: 60,
            disk_gb: None,
            per_project: None,
            per_provider: BTreeMap::new(),
        }
    }
}

impl From<Tier> for Seat {
    fn from(tier: Tier) -> Self {
        Self { tier, agent: None, model: None }
    }
}

impl Rules {
    /// The agent of a seat, by name: its own, or the tier's.
    pub fn agent_at(&self, seat: &Seat) -> Option<(&str, &AgentRules)> {
        match &seat.agent {
            Some(name) => {
                self.agents.get_key_value(name).map(|(name, agent)| (name.as_str(), agent))
            }
            None => self.agent(seat.tier),
        }
    }

    /// The model that a seat asks its agent for. One with an agent of its own and no model lets that
    /// agent choose.
    pub fn model_at<'a>(&'a self, seat: &'a Seat) -> Option<&'a str> {
        match (&seat.model, &seat.agent) {
            (Some(model), _) => Some(model.as_str()).filter(|model| *model != "default"),
            (None, Some(agent)) if *agent != self.tiers.get(seat.tier).agent => None,
            (None, _) => self.model(seat.tier),
        }
    }

    /// Who serves the models of a seat.
    pub fn provider_at<'a>(&'a self, seat: &'a Seat) -> &'a str {
        match (self.agent_at(seat), &seat.agent) {
            (Some((_, agent)), _) if !agent.provider.is_empty() => &agent.provider,
            (_, Some(agent)) => agent,
            (_, None) => self.provider(seat.tier),
        }
    }

    /// The agent of a tier, by name. Rules that were loaded have one for every tier.
    pub fn agent(&self, tier: Tier) -> Option<(&str, &AgentRules)> {
        let name = &self.tiers.get(tier).agent;
        self.agents.get_key_value(name).map(|(name, agent)| (name.as_str(), agent))
    }

    /// The model that a tier asks its agent for. Nothing where the agent is to choose: the file says
    /// `default`, or it names another agent than the built-in one and no model for it.
    pub fn model(&self, tier: Tier) -> Option<&str> {
        let (it, built_in) = (self.tiers.get(tier), Tiers::default());
        let unsaid = built_in.get(tier).agent != it.agent && built_in.get(tier).model == it.model;
        Some(it.model.as_str()).filter(|model| *model != "default" && !unsaid)
    }

    /// The tier that judges the work of another: that of `roles.validator`, or else the strongest
    /// that is as far from it as `roles.validator_apart` asks for. Where no tier is, the first one
    /// judges all the same; [`Rules::is_judged_apart`] tells.
    pub fn validator(&self, implementer: Tier) -> Tier {
        let first = self.roles.validator;
        let rest = Tier::iter().rev();
        std::iter::once(first)
            .chain(rest)
            .find(|it| self.is_apart(*it, implementer))
            .unwrap_or(first)
    }

    /// Whether there is a validator far enough from a tier.
    pub fn is_judged_apart(&self, implementer: Tier) -> bool {
        self.is_apart(self.validator(implementer), implementer)
    }

    fn is_apart(&self, one: Tier, other: Tier) -> bool {
        let agent = |tier| &self.tiers.get(tier).agent;
        match self.roles.validator_apart {
            Apart::Never => true,
            Apart::Provider => self.provider(one) != self.provider(other),
            Apart::Model => match (self.model(one), self.model(other)) {
                // Where agents choose, nobody knows the model; another agent is what can be had.
                (None, None) => agent(one) != agent(other),
                (one, other) => one != other,
            },
        }
    }

    /// Who serves the models of a tier.
    pub fn provider(&self, tier: Tier) -> &str {
        match self.agent(tier) {
            Some((_, agent)) if !agent.provider.is_empty() => &agent.provider,
            _ => &self.tiers.get(tier).agent,
        }
    }
}
