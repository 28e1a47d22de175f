//! The rules a task runs under: `tamma.yaml`, typed, with its defaults.
//!
//! A task is pinned to the rules it started with. Everything here has a default, so an empty file
//! is a valid one. [`load()`] reads a file with the environment over it and tells where each value
//! came from; [`schema()`] describes the file to editors.

mod agents;
mod alerts;
mod chat;
mod check;
mod critical;
mod delivery;
mod embeddings;
mod fit;
mod gates;
mod load;
mod names;
mod people;
mod permissions;
mod problem;
mod reference;
mod review;
mod sandbox;
mod schema;
mod shape;
mod tree;
mod variables;

use std::collections::BTreeMap;

use garde::Validate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

use crate::complexity;
use crate::cost::{Price, Usd};
use crate::ids::PolicyVersion;
use crate::level::Level;
use crate::tier::Tier;

pub use agents::{AgentRules, Engines, Roles, SessionModes};
pub use alerts::{Alerts, Channel, ChannelType, QuietHours, TimeOfDay, TimeZone};
pub use chat::ChatModel;
pub use critical::{critical_files, is_critical};
pub use delivery::{Delivery, Mode};
pub use embeddings::Embeddings;
pub use gates::{GateRules, Report};
pub use load::{Loaded, Setting, Source, load};
pub use people::{People, Right, Standing};
pub use permissions::{AgentRole, Deed, Line, Lines, Permissions};
pub use problem::{Fault, Origin, Place, Problem, Problems};
pub use reference::reference;
pub use review::{Apart, Council, PatternRules, ReviewRules, Seat};
pub use sandbox::Sandbox;
pub use schema::schema;
pub use variables::{Target, VARIABLES, Variable};

/// Everything that `tamma.yaml` may say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct Rules {
    /// How the loop behaves: limits, approval, learning, alerts, people.
    #[garde(dive)]
    pub scrum_master: ScrumMaster,
    /// Which agent and model each tier stands for.
    #[garde(dive)]
    pub tiers: Tiers,
    /// The agents there are, by name. An entry is laid over the built-in one of that name.
    #[garde(dive)]
    pub agents: BTreeMap<String, AgentRules>,
    /// Which tier does the work beside the implementation.
    #[garde(dive)]
    pub roles: Roles,
    /// The checks that a change has to pass, by name. One that no level of risk names always runs.
    #[garde(dive)]
    pub gates: BTreeMap<String, GateRules>,
    /// What a review looks for beside them.
    #[serde(skip_serializing_if = "is_default")]
    #[garde(dive)]
    pub review: ReviewRules,
    /// Who is asked about a task that is stuck.
    #[serde(skip_serializing_if = "is_default")]
    #[garde(dive)]
    pub council: Council,
    /// A model that tells which entries of the knowledge base mean the same as a plan.
    #[serde(skip_serializing_if = "is_default")]
    #[garde(dive)]
    pub embeddings: Embeddings,
    /// A model that reads what people say in the chat.
    #[serde(skip_serializing_if = "is_default")]
    #[garde(dive)]
    pub chat: ChatModel,
    /// Where a change that has passed goes, and where it started.
    #[garde(dive)]
    pub delivery: Delivery,
    /// What a worker runs.
    #[garde(dive)]
    pub engines: Engines,
    /// What agents may do, beside the defaults.
    #[garde(dive)]
    pub permissions: Permissions,
    /// What people may do.
    #[serde(skip_serializing_if = "is_default")]
    #[garde(dive)]
    pub people: People,
    /// What may be spent.
    #[garde(dive)]
    pub budget: Budget,
    /// What each level of risk asks for.
    #[garde(dive)]
    pub ceremony: Ceremonies,
    /// What a million tokens of each model cost.
    #[garde(skip)]
    pub prices: BTreeMap<String, Price>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            scrum_master: ScrumMaster::default(),
            tiers: Tiers::default(),
            agents: agents::built_in(),
            roles: Roles::default(),
            gates: BTreeMap::new(),
            review: ReviewRules::default(),
            council: Council::default(),
            embeddings: Embeddings::default(),
            chat: ChatModel::default(),
            delivery: Delivery::default(),
            engines: Engines::default(),
            permissions: Permissions::default(),
            people: People::default(),
            budget: Budget::default(),
            ceremony: Ceremonies::default(),
            prices: BTreeMap::new(),
        }
    }
}

impl Rules {
    /// The version of these rules: their hash, to which approvals are bound.
    ///
    /// It is the hash of [`Rules::without_secrets`]: a key that is changed voids no approval, and
    /// nothing about it can be learned from the version.
    pub fn version(&self) -> PolicyVersion {
        // As with a plan's hash: this cannot fail, and the hash of nothing approves nothing.
        PolicyVersion::of(&serde_json::to_vec(&self.without_secrets()).unwrap_or_default())
    }

    /// These rules as they may be kept and shown: the names of what may be secret are there, the
    /// values are empty. They are of the same version.
    #[must_use]
    pub fn without_secrets(&self) -> Self {
        let mut rules = self.clone();
        let environments = rules.agents.values_mut().map(|agent| &mut agent.env);
        let channels = &mut rules.scrum_master.alerts.channels;
        let configs = channels.iter_mut().map(|channel| &mut channel.config);
        for values in environments.chain(configs) {
            values.values_mut().for_each(String::clear);
        }
        rules
    }
}

/// Left out of what is compared, so that rules from before there was a choice stay what they were.
fn is_default<T: Default + PartialEq>(it: &T) -> bool {
    *it == T::default()
}

/// How the loop behaves.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct ScrumMaster {
    /// Limits of the loop.
    #[garde(dive)]
    pub task_loop: TaskLoop,
    /// What makes a plan more than low or medium risk, whatever its score.
    #[garde(dive)]
    pub risk_thresholds: RiskThresholds,
    /// What is learned from a task.
    #[garde(dive)]
    pub learning_capture: LearningCapture,
    /// What people are told, and where.
    #[garde(dive)]
    pub alerts: Alerts,
    /// How people are kept informed.
    #[garde(dive)]
    pub user_interaction: UserInteraction,
}

/// Limits of the loop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own in the file")]
pub struct TaskLoop {
    /// How often a plan may be adjusted (a stronger tier or the council) before a person is asked.
    #[garde(range(min = 0, max = 10))]
    pub max_retries: u8,
    /// Whether a low-risk plan is approved without a person.
    #[garde(skip)]
    pub auto_approve_low_risk: bool,
    /// High risk always asks a person. The key is kept for those who bring it; it cannot be false.
    #[garde(custom(must_be_true))]
    pub require_approval_high_risk: bool,
    /// Milliseconds that any one piece of work may take before it is stopped.
    #[garde(range(min = 1_000, max = 86_400_000))]
    pub timeout_ms: u64,
    /// Milliseconds between two reports of progress of a running agent.
    #[garde(range(min = 100, max = 3_600_000))]
    pub progress_update_interval_ms: u64,
    /// How many runs a task may have before its work is landed and a person is asked.
    #[garde(range(min = 1, max = 100))]
    pub max_iterations: u16,
    /// How many failures in a row move a task to the next tier.
    #[garde(range(min = 1, max = 10))]
    pub escalation_threshold: u8,
    /// How many failures in a row in the top tier call the council.
    #[garde(range(min = 1, max = 10))]
    pub top_tier_threshold: u8,
    /// How often one state may fail for reasons of its own before the task leaves it.
    #[garde(range(min = 1, max = 10))]
    pub max_failures_per_state: u8,
    /// How often the council may be asked.
    #[garde(range(min = 0, max = 2))]
    pub max_councils: u8,
    /// Whether three failures alike count as stuck.
    #[garde(skip)]
    pub stuck_detection: bool,
    /// Whether money is counted. Tokens and runs always are.
    #[garde(skip)]
    pub cost_tracking: bool,
    /// Seconds to wait before the first repetition of work that failed for an outside reason; it
    /// doubles with each one.
    #[garde(range(min = 1, max = 3_600))]
    pub backoff_seconds: u32,
    /// Seconds that each kind of work may take, within `timeout_ms`.
    #[garde(dive)]
    pub timeouts: Timeouts,
    /// Minutes that a task is expected to stay in each state. Nothing is stopped by these: people
    /// are warned at 80 %, alerted at 100 % and alerted urgently at 150 %.
    #[garde(dive)]
    pub state_timeouts: StateTimeouts,
    /// What ends the loop at once: the work is landed and a person is asked. The two limits always
    /// do; without `security_critical` such a finding goes to the top tier instead.
    #[garde(skip)]
    pub halt_conditions: Vec<HaltCondition>,
}

impl Default for TaskLoop {
    fn default() -> Self {
        Self {
            max_retries: 3,
            auto_approve_low_risk: true,
            require_approval_high_risk: true,
            timeout_ms: 3_600_000,
            progress_update_interval_ms: 30_000,
            max_iterations: 10,
            escalation_threshold: 2,
            top_tier_threshold: 3,
            max_failures_per_state: 3,
            max_councils: 2,
            stuck_detection: true,
            cost_tracking: true,
            backoff_seconds: 30,
            timeouts: Timeouts::default(),
            state_timeouts: StateTimeouts::default(),
            halt_conditions: vec![
                HaltCondition::SecurityCritical,
                HaltCondition::MaxIterationsReached,
                HaltCondition::BudgetExceeded,
            ],
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is garde's")]
fn must_be_true(value: &bool, (): &()) -> garde::Result {
    if *value {
        Ok(())
    } else {
        Err(garde::Error::new("high risk always asks a person: remove the key or write true"))
    }
}

/// Seconds that each kind of work may take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct Timeouts {
    /// One run of an engine.
    #[garde(range(min = 1, max = 86_400))]
    pub implementation: u32,
    /// All gates of one commit.
    #[garde(range(min = 1, max = 86_400))]
    pub quality_gates: u32,
    /// Judging the acceptance criteria.
    #[garde(range(min = 1, max = 86_400))]
    pub requirements: u32,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { implementation: 3_600, quality_gates: 1_800, requirements: 600 }
    }
}

/// Minutes that a task is expected to stay in each state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "each field is the state of its name")]
pub struct StateTimeouts {
    #[garde(range(min = 1, max = 43_200))]
    pub pending: u32,
    #[garde(range(min = 1, max = 43_200))]
    pub assigned: u32,
    #[garde(range(min = 1, max = 43_200))]
    pub planning: u32,
    #[garde(range(min = 1, max = 43_200))]
    pub awaiting_approval: u32,
    #[garde(range(min = 1, max = 43_200))]
    pub validated: u32,
    #[garde(range(min = 1, max = 43_200))]
    pub in_progress: u32,
    #[garde(range(min = 1, max = 43_200))]
    pub testing: u32,
    #[garde(range(min = 1, max = 43_200))]
    pub quality_review: u32,
    #[garde(range(min = 1, max = 43_200))]
    pub adjusting: u32,
    #[garde(range(min = 1, max = 43_200))]
    pub cto_intervention: u32,
    #[garde(range(min = 1, max = 43_200))]
    pub approved: u32,
    #[garde(range(min = 1, max = 43_200))]
    pub committing: u32,
    #[garde(range(min = 1, max = 43_200))]
    pub learning: u32,
}

impl Default for StateTimeouts {
    fn default() -> Self {
        Self {
            pending: 60,
            assigned: 15,
            planning: 30,
            awaiting_approval: 60,
            validated: 15,
            in_progress: 240,
            testing: 30,
            quality_review: 30,
            adjusting: 15,
            cto_intervention: 60,
            approved: 10,
            committing: 15,
            learning: 15,
        }
    }
}

/// What ends the loop at once.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    Display,
    EnumString,
    EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum HaltCondition {
    /// A gate or a pattern found a critical security fault.
    SecurityCritical,
    /// The task has had all its runs.
    MaxIterationsReached,
    /// The task has spent what it may.
    BudgetExceeded,
}

/// What makes a plan more than low or medium risk, whatever its score.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct RiskThresholds {
    /// A plan beyond any of these is at least medium.
    #[garde(dive)]
    pub low: Threshold,
    /// A plan beyond any of these is high.
    #[garde(dive)]
    pub medium: Threshold,
    /// Files that raise the risk of any plan that touches them, as globs from the root.
    #[garde(inner(custom(is_glob)))]
    pub critical_files: Vec<String>,
}

impl Default for RiskThresholds {
    fn default() -> Self {
        Self {
            low: Threshold {
                max_files: 5,
                max_complexity: complexity::Level::Low,
                max_estimated_cost_usd: Usd::cents(100),
            },
            medium: Threshold {
                max_files: 10,
                max_complexity: complexity::Level::Medium,
                max_estimated_cost_usd: Usd::cents(500),
            },
            critical_files: [
                "tamma.yaml",
                ".github/**",
                ".gitlab-ci.yml",
                "**/Dockerfile",
                "**/migrations/**",
                "**/*.lock",
                "**/package-lock.json",
                "**/.env*",
                "**/auth/**",
            ]
            .map(str::to_owned)
            .to_vec(),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is garde's")]
fn is_glob(text: &str, (): &()) -> garde::Result {
    globset::Glob::new(text)
        .map(drop)
        .map_err(|error| garde::Error::new(format!("`{text}` is not a glob: {}", error.kind())))
}

/// The most that a level of risk may have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct Threshold {
    /// Files in the plan.
    #[garde(range(min = 1, max = 10_000))]
    pub max_files: u16,
    /// Complexity of the plan.
    #[garde(skip)]
    pub max_complexity: complexity::Level,
    /// What the planner thinks it will cost.
    #[garde(skip)]
    pub max_estimated_cost_usd: Usd,
}

/// What is learned from a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct LearningCapture {
    /// Whether a task that succeeded teaches.
    #[garde(skip)]
    pub capture_success: bool,
    /// Whether a task that failed, or had to be mended, teaches.
    #[garde(skip)]
    pub capture_failure: bool,
    /// Lessons always wait for a person. The key is kept for those who bring it; it cannot be
    /// false.
    #[garde(custom(lessons_wait))]
    pub require_approval: bool,
    /// How relevant a recommendation or learning must be to be shown, in percent.
    #[serde(with = "share")]
    #[schemars(with = "f64", range(min = 0.0, max = 1.0))]
    #[garde(range(min = 0, max = 100))]
    pub min_relevance_score: u8,
}

impl Default for LearningCapture {
    fn default() -> Self {
        Self {
            capture_success: true,
            capture_failure: true,
            require_approval: true,
            min_relevance_score: 70,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is garde's")]
fn lessons_wait(value: &bool, (): &()) -> garde::Result {
    if *value {
        Ok(())
    } else {
        Err(garde::Error::new("lessons always wait for a person: remove the key or write true"))
    }
}

/// How people are kept informed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct UserInteraction {
    /// Whether a task says how it stands of its own accord.
    #[garde(skip)]
    pub proactive_updates: bool,
    /// Seconds between two such updates.
    #[garde(range(min = 1, max = 86_400))]
    pub update_interval_seconds: u32,
    /// Minutes after which an unanswered question is asked again. Nothing about a plan or a change
    /// is ever decided by waiting.
    #[garde(range(min = 1, max = 43_200))]
    pub auto_timeout_minutes: u32,
    /// Minutes after which an agent's question that nobody has seen gets the answer that the agent
    /// named for that case. A question without one waits; a permission that nobody gives is refused.
    #[garde(range(min = 1, max = 43_200))]
    pub default_after_minutes: u32,
}

impl Default for UserInteraction {
    fn default() -> Self {
        Self {
            proactive_updates: true,
            update_interval_seconds: 30,
            auto_timeout_minutes: 60,
            default_after_minutes: 240,
        }
    }
}

/// Which agent and model each tier stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct Tiers {
    /// For plans of complexity 0 to 4.
    #[garde(dive)]
    pub simple: TierRules,
    /// For plans of complexity 5 to 8.
    #[garde(dive)]
    pub moderate: TierRules,
    /// For plans of complexity 9 to 14, and for tasks that are stuck.
    #[garde(dive)]
    pub complex: TierRules,
}

impl Tiers {
    /// The rules of one tier.
    pub fn get(&self, tier: Tier) -> &TierRules {
        match tier {
            Tier::Simple => &self.simple,
            Tier::Moderate => &self.moderate,
            Tier::Complex => &self.complex,
        }
    }
}

impl Default for Tiers {
    fn default() -> Self {
        let tier = |model: &str, cents| TierRules {
            agent: "claude-code".to_owned(),
            model: model.to_owned(),
            typical_run_usd: Usd::cents(cents),
        };
        Self {
            simple: tier("haiku", 25),
            moderate: tier("sonnet", 100),
            complex: tier("opus", 400),
        }
    }
}

/// What a tier stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct TierRules {
    /// The agent that runs: the name of one of `agents`.
    #[garde(length(min = 1, max = 100))]
    pub agent: String,
    /// The model it uses, in the agent's own words. `default` leaves the choice to the agent.
    #[garde(length(min = 1, max = 100))]
    pub model: String,
    /// What a run usually costs. It prices the next run while nothing better is known.
    #[serde(default)]
    #[garde(skip)]
    pub typical_run_usd: Usd,
}

/// What may be spent. A limit that is not given does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// Dollars for one task, where its level of risk does not say otherwise.
    #[garde(skip)]
    pub task_usd: Option<Usd>,
    /// Tokens for one task.
    #[garde(range(min = 1))]
    pub task_tokens: Option<u64>,
    /// Dollars for all tasks of the project, ever.
    #[garde(skip)]
    pub project_usd: Option<Usd>,
    /// Dollars for all tasks of the project in a day.
    #[garde(skip)]
    pub day_usd: Option<Usd>,
    /// At what share of a limit people are warned, in percent.
    #[garde(range(min = 1, max = 100))]
    pub warn_percent: u8,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            task_usd: Some(Usd::cents(5_000)),
            task_tokens: None,
            project_usd: None,
            day_usd: None,
            warn_percent: 80,
        }
    }
}

/// What each level of risk asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct Ceremonies {
    /// Low risk.
    #[garde(dive)]
    pub low: Ceremony,
    /// Medium risk.
    #[garde(dive)]
    pub medium: Ceremony,
    /// High risk.
    #[garde(dive)]
    pub high: Ceremony,
}

impl Ceremonies {
    /// What a level asks for.
    pub fn get(&self, level: Level) -> &Ceremony {
        match level {
            Level::Low => &self.low,
            Level::Medium => &self.medium,
            Level::High => &self.high,
        }
    }
}

impl Default for Ceremonies {
    fn default() -> Self {
        Self {
            low: Ceremony::default(),
            medium: Ceremony::default(),
            high: Ceremony { human_review: true, ..Ceremony::default() },
        }
    }
}

/// What a level of risk asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct Ceremony {
    /// How many people must approve the plan, where people are asked at all.
    #[garde(range(min = 1, max = 5))]
    pub approvers: u8,
    /// Whether a person reviews the change after the gates.
    #[garde(skip)]
    pub human_review: bool,
    /// The weakest tier that may start.
    #[garde(skip)]
    pub first_tier: Tier,
    /// Names of `gates` that run from this level on, and not below. A gate that no level names
    /// always runs.
    #[garde(inner(length(min = 1, max = 100)))]
    pub gates: Vec<String>,
    /// Dollars for one task, in place of `budget.task_usd`.
    #[garde(skip)]
    pub budget_usd: Option<Usd>,
}

impl Default for Ceremony {
    fn default() -> Self {
        Self {
            approvers: 1,
            human_review: false,
            first_tier: Tier::Simple,
            gates: Vec::new(),
            budget_usd: None,
        }
    }
}

/// A share between 0 and 1 in the file, whole percent in the code: rules are compared and hashed,
/// and floating-point numbers are good at neither.
mod share {
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
    pub(super) fn serialize<S: Serializer>(percent: &u8, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(f64::from(*percent) / 100.0)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u8, D::Error> {
        let share = f64::deserialize(deserializer)?;
        if (0.0..=1.0).contains(&share) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 100")]
            let percent = (share * 100.0).round() as u8;
            Ok(percent)
        } else {
            Err(serde::de::Error::custom("a share is between 0 and 1, such as 0.7"))
        }
    }
}
