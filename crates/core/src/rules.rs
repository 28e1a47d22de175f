//! Rules that a task runs under: the typed content of `tamma.yaml`, with defaults.
//!
//! A task keeps the rules that it started with. Every key has a default, so an empty file is valid.
//! [`load()`] reads a file, applies the environment and records the origin of each value.
//! [`schema()`] returns the JSON schema for editors.

mod agents;
mod alerts;
mod alias;
mod checkout;
mod critical;
mod cross_references;
mod delivery;
mod gates;
mod implementer;
mod instructions;
mod load;
mod operator_limits;
mod people;
mod permissions;
mod problem;
mod prompts;
mod reference;
mod review;
mod sandbox;
mod schema;
mod setup;
mod time_limits;
pub(crate) mod time_zone;
mod validation;
mod value_check;
mod value_schema;
mod variables;
mod yaml;

use std::collections::BTreeMap;

use garde::Validate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

use crate::complexity;
use crate::cost::{Price, Usd};
use crate::ids::PolicyVersion;
use crate::level::RiskLevel;
use crate::pipeline::{BUILT_IN_PIPELINE, PipelineDefinition, PipelinePhases};
use crate::tier::Tier;

pub use agents::{AgentPoolRules, AgentRules, Effort, RoleEffort, RoleTiers, SessionModes};
pub use alerts::{AlertChannel, AlertRules, ChannelProblem, ChannelType, QuietHours, TimeOfDay};
pub use checkout::CheckoutRules;
pub use critical::{count_critical_files, critical_paths, is_critical};
pub use delivery::{
    AftercareRules, DeliveryMode, DeliveryRules, IntakeRules, MergeMethod, MergeQueueMode,
    MergeQueueRules, PullRequestRules,
};
pub use gates::{GateRules, ReportFormat};
pub use implementer::SuggestedAgentError;
pub use instructions::is_instruction_file;
pub use load::{ConfigFile, LoadedRules, Setting, load};
pub use operator_limits::{COMMON_VARIABLES, NETWORK_VARIABLES, credential_variables};
pub use people::PeopleRules;
pub use permissions::{AccessKind, AgentPermissions, AgentRole, PermissionLists, PermissionRule};
pub use problem::{ConfigFault, ConfigProblem, ConfigProblems, SourceLocation, ValueOrigin};
pub use prompts::PromptRules;
pub use reference::reference;
pub use review::{AgentSelection, CouncilRules, PatternRule, ReviewRules, ValidatorIndependence};
pub use sandbox::SandboxMode;
pub use schema::schema;
pub use setup::SetupRules;
pub use time_limits::JobTimeouts;
pub use time_zone::TimeZone;
pub use variables::{EnvVariable, VARIABLES, VariableTarget};

/// Configuration of Tamma for a project (`tamma.yaml`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct Rules {
    /// Task loop, risk, learning, alerts and interaction with people.
    #[garde(dive)]
    pub scrum_master: ScrumMaster,
    /// Agent and model of each tier.
    #[garde(dive)]
    pub tiers: Tiers,
    /// Agents by name. An entry is merged over the built-in agent of the same name.
    #[garde(dive)]
    pub agents: BTreeMap<String, AgentRules>,
    /// Tiers for jobs other than implementation.
    #[garde(dive)]
    pub roles: RoleTiers,
    /// Prompts of this project that replace the built-in ones: paths in the repository, read at the
    /// base commit. Workers refuse them unless their operator allows them with
    /// `--allow-project-prompts`.
    #[serde(skip_serializing_if = "is_default")]
    #[garde(dive)]
    pub prompts: PromptRules,
    /// Checkouts of the repository, for agents and gates.
    #[serde(skip_serializing_if = "is_default")]
    #[garde(dive)]
    pub checkout: CheckoutRules,
    /// Preparation of checkouts: installs dependencies.
    #[serde(skip_serializing_if = "is_default")]
    #[garde(dive)]
    pub setup: SetupRules,
    /// Gates by name: commands that every change must pass. A gate that no risk level names always
    /// runs.
    #[garde(dive)]
    pub gates: BTreeMap<String, GateRules>,
    /// Checks of a review besides the gates.
    #[serde(skip_serializing_if = "is_default")]
    #[garde(dive)]
    pub review: ReviewRules,
    /// Council that analyses a stuck task.
    #[serde(skip_serializing_if = "is_default")]
    #[garde(dive)]
    pub council: CouncilRules,
    /// Pipelines by name: ordered phases for a story. `story` replaces the built-in pipeline.
    #[serde(skip_serializing_if = "is_default")]
    #[garde(dive)]
    pub pipelines: BTreeMap<String, PipelinePhases>,
    /// Base branch, and delivery of changes that passed review.
    #[garde(dive)]
    pub delivery: DeliveryRules,
    /// Agent pool of each worker, and limits across workers.
    #[garde(dive)]
    pub engines: AgentPoolRules,
    /// Permissions of agents, by role, on top of the defaults.
    #[garde(dive)]
    pub permissions: AgentPermissions,
    /// Roles of people, which an operator imports.
    #[serde(skip_serializing_if = "is_default")]
    #[garde(dive)]
    pub people: PeopleRules,
    /// Spending limits.
    #[garde(dive)]
    pub budget: Budget,
    /// Requirements by risk level.
    #[garde(dive)]
    pub ceremony: Ceremonies,
    /// Prices of models, in US dollars per million tokens, by model name. They override built-in
    /// prices. A model without any price cannot be used under a limit in dollars.
    #[garde(skip)]
    pub prices: BTreeMap<String, Price>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            scrum_master: ScrumMaster::default(),
            tiers: Tiers::default(),
            agents: agents::built_in_agents(),
            roles: RoleTiers::default(),
            prompts: PromptRules::default(),
            checkout: CheckoutRules::default(),
            setup: SetupRules::default(),
            gates: BTreeMap::new(),
            review: ReviewRules::default(),
            council: CouncilRules::default(),
            pipelines: BTreeMap::new(),
            delivery: DeliveryRules::default(),
            engines: AgentPoolRules::default(),
            permissions: AgentPermissions::default(),
            people: PeopleRules::default(),
            budget: Budget::default(),
            ceremony: Ceremonies::default(),
            prices: BTreeMap::new(),
        }
    }
}

impl Rules {
    /// Returns the policy version: the hash of these rules, which approvals are bound to.
    ///
    /// Secrets are excluded ([`Rules::without_secrets`]): a new key voids no approval, and the
    /// version reveals nothing about it.
    pub fn version(&self) -> PolicyVersion {
        // Serialisation cannot fail here; an empty input would yield a hash that no approval
        // covers.
        PolicyVersion::of(&serde_json::to_vec(&self.without_secrets()).unwrap_or_default())
    }

    /// Returns the pipeline with this name: the project's, or the built-in one.
    pub fn pipeline(&self, name: &str) -> Option<PipelineDefinition> {
        match self.pipelines.get(name) {
            Some(PipelinePhases { phases }) => {
                Some(PipelineDefinition { name: name.to_owned(), phases: phases.clone() })
            }
            None if name == BUILT_IN_PIPELINE => Some(PipelineDefinition::built_in()),
            None => None,
        }
    }

    /// Returns the names of all pipelines.
    pub fn pipeline_names(&self) -> Vec<&str> {
        let own = self.pipelines.keys().map(String::as_str);
        let own = own.filter(|name| *name != BUILT_IN_PIPELINE);
        std::iter::once(BUILT_IN_PIPELINE).chain(own).collect()
    }

    /// Returns true if a limit in dollars applies to any task, the project or a day.
    pub fn has_dollar_limit(&self) -> bool {
        let Budget { task_usd, project_usd, day_usd, .. } = self.budget;
        let Ceremonies { low, medium, high } = &self.ceremony;
        let tasks = [task_usd, low.budget_usd, medium.budget_usd, high.budget_usd];
        let limits_tasks = tasks.iter().any(Option::is_some);
        (limits_tasks && self.scrum_master.task_loop.cost_tracking)
            || project_usd.is_some()
            || day_usd.is_some()
    }

    /// Returns a copy that is safe to store and show: names of possible secrets stay, their values
    /// are empty. It has the same version.
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

/// Leaves defaults out of serialised rules, so that policy versions from before a key existed stay
/// valid.
fn is_default<T: Default + PartialEq>(it: &T) -> bool {
    *it == T::default()
}

/// Task loop, risk, learning, alerts and interaction with people.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct ScrumMaster {
    /// Limits of the task loop.
    #[garde(dive)]
    pub task_loop: TaskLoopRules,
    /// Limits above which a plan is medium or high risk, regardless of its score.
    #[garde(dive)]
    pub risk_thresholds: RiskThresholds,
    /// Lessons from finished tasks.
    #[garde(dive)]
    pub learning_capture: LearningCapture,
    /// Events that send alerts, and the channels they go to.
    #[garde(dive)]
    pub alerts: AlertRules,
    /// Progress updates, reminders and default answers.
    #[garde(dive)]
    pub user_interaction: UserInteraction,
}

/// Limits of the task loop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
pub struct TaskLoopRules {
    /// Plan revisions (stronger tier or council) before a person is asked.
    #[garde(range(min = 0, max = 10))]
    pub max_retries: u8,
    /// Approve low-risk plans automatically.
    #[garde(skip)]
    pub auto_approve_low_risk: bool,
    /// Require approval of high-risk plans. Always `true`; accepted for compatibility.
    #[garde(custom(must_be_true))]
    pub require_approval_high_risk: bool,
    /// Hard time limit of any job, in milliseconds.
    #[garde(range(min = 1_000, max = 86_400_000))]
    pub timeout_ms: u64,
    /// Interval between progress reports of a running agent, in milliseconds.
    #[garde(range(min = 100, max = 3_600_000))]
    pub progress_update_interval_ms: u64,
    /// Runs of a task before its work is saved and a person is asked.
    #[garde(range(min = 1, max = 100))]
    pub max_iterations: u16,
    /// Consecutive failures that move a task to the next tier.
    #[garde(range(min = 1, max = 10))]
    pub escalation_threshold: u8,
    /// Consecutive failures in the top tier that call the council.
    #[garde(range(min = 1, max = 10))]
    pub top_tier_threshold: u8,
    /// Internal failures in one state before the task leaves it.
    #[garde(range(min = 1, max = 10))]
    pub max_failures_per_state: u8,
    /// Councils per task.
    #[garde(range(min = 0, max = 2))]
    pub max_councils: u8,
    /// Call the council if failures repeat, alternate or return while failing tests do not decrease.
    #[garde(skip)]
    pub stuck_detection: bool,
    /// Track cost in dollars. Tokens and runs are always counted.
    #[garde(skip)]
    pub cost_tracking: bool,
    /// Delay before the first retry after an external failure, in seconds. It doubles with each
    /// retry.
    #[garde(range(min = 1, max = 3_600))]
    pub backoff_seconds: u32,
    /// Hard time limits by kind of job, in seconds. `timeout_ms` limits them further.
    #[garde(dive)]
    pub timeouts: JobTimeouts,
    /// Expected time in each state, in minutes. These soft timeouts stop nothing: people get a
    /// warning at 80%, an alert at 100% and a critical alert at 150%.
    #[garde(dive)]
    pub state_timeouts: StateTimeouts,
    /// Conditions that halt a task: its work is saved and a person is asked. The two limits always
    /// halt; without `security_critical`, such a finding goes to the top tier instead.
    #[garde(skip)]
    pub halt_conditions: Vec<HaltCondition>,
}

impl Default for TaskLoopRules {
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
            timeouts: JobTimeouts::default(),
            state_timeouts: StateTimeouts::default(),
            halt_conditions: vec![
                HaltCondition::SecurityCritical,
                HaltCondition::MaxIterationsReached,
                HaltCondition::BudgetExceeded,
            ],
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "signature required by garde")]
fn must_be_true(value: &bool, (): &()) -> garde::Result {
    if *value {
        Ok(())
    } else {
        Err(garde::Error::new(
            "high-risk plans always need approval: remove the key, or write `true`",
        ))
    }
}

/// Expected time in each state, in minutes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "fields are named after states")]
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
    #[serde(skip_serializing_if = "is_default_awaiting_merge")]
    #[garde(range(min = 1, max = 43_200))]
    pub awaiting_merge: u32,
    #[garde(range(min = 1, max = 43_200))]
    pub learning: u32,
}

/// Default of `awaiting_merge`, in minutes: people review within days.
const AWAITING_MERGE: u32 = 4_320;

/// Leaves the default out of serialised rules, so that policy versions from before this key existed
/// stay valid.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "signature required by serde")]
fn is_default_awaiting_merge(minutes: &u32) -> bool {
    *minutes == AWAITING_MERGE
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
            awaiting_merge: AWAITING_MERGE,
            learning: 15,
        }
    }
}

/// Condition that halts a task.
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
    /// Gate, pattern or two validators found a critical security problem.
    SecurityCritical,
    /// Task has used all its runs.
    MaxIterationsReached,
    /// Task has used its budget.
    BudgetExceeded,
}

/// Limits above which a plan is medium or high risk, regardless of its score.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct RiskThresholds {
    /// A plan above any of these limits has at least medium risk.
    #[garde(dive)]
    pub low: RiskThreshold,
    /// A plan above any of these limits has high risk.
    #[garde(dive)]
    pub medium: RiskThreshold,
    /// Globs of critical files, from the root. A plan that changes one has a higher risk.
    #[garde(inner(custom(is_glob)))]
    pub critical_files: Vec<String>,
}

impl Default for RiskThresholds {
    fn default() -> Self {
        Self {
            low: RiskThreshold {
                max_files: 5,
                max_complexity: complexity::ComplexityLevel::Low,
                max_estimated_cost_usd: Usd::from_cents(100),
            },
            medium: RiskThreshold {
                max_files: 10,
                max_complexity: complexity::ComplexityLevel::Medium,
                max_estimated_cost_usd: Usd::from_cents(500),
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "signature required by garde")]
fn is_glob(text: &str, (): &()) -> garde::Result {
    globset::Glob::new(text).map(drop).map_err(|error| {
        garde::Error::new(format!("`{text}` is not a valid glob: {}", error.kind()))
    })
}

/// Upper limits of a risk level.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct RiskThreshold {
    /// Files in the plan.
    #[garde(range(min = 1, max = 10_000))]
    pub max_files: u16,
    /// Complexity of the plan.
    #[garde(skip)]
    pub max_complexity: complexity::ComplexityLevel,
    /// Planner's cost estimate, in US dollars.
    #[garde(skip)]
    pub max_estimated_cost_usd: Usd,
}

/// Lessons from finished tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct LearningCapture {
    /// Propose lessons from tasks that succeeded.
    #[garde(skip)]
    pub capture_success: bool,
    /// Propose lessons from tasks that failed or needed rework.
    #[garde(skip)]
    pub capture_failure: bool,
    /// Require approval of lessons. Always `true`; accepted for compatibility.
    #[garde(custom(must_require_approval))]
    pub require_approval: bool,
    /// Lowest relevance of a recommendation or lesson that is shown, from 0 to 1.
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "signature required by garde")]
fn must_require_approval(value: &bool, (): &()) -> garde::Result {
    if *value {
        Ok(())
    } else {
        Err(garde::Error::new("lessons always need approval: remove the key, or write `true`"))
    }
}

/// Progress updates, reminders and default answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct UserInteraction {
    /// Send progress updates without being asked.
    #[garde(skip)]
    pub proactive_updates: bool,
    /// Interval between progress updates, in seconds.
    #[garde(range(min = 1, max = 86_400))]
    pub update_interval_seconds: u32,
    /// Time until an unanswered question is asked again, in minutes. A plan or change is
    /// never approved or rejected because nobody answered.
    #[garde(range(min = 1, max = 43_200))]
    pub auto_timeout_minutes: u32,
    /// Time until an agent's question that nobody has seen gets the agent's own default answer, in
    /// minutes. A question without one keeps waiting; an unanswered permission request is refused.
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

/// Agent and model of each tier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct Tiers {
    /// Tier for plans of complexity 0 to 4.
    #[garde(dive)]
    pub simple: TierRules,
    /// Tier for plans of complexity 5 to 8.
    #[garde(dive)]
    pub moderate: TierRules,
    /// Tier for plans of complexity 9 to 14, and for stuck tasks.
    #[garde(dive)]
    pub complex: TierRules,
}

impl Tiers {
    /// Returns the rules of one tier.
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
            typical_run_usd: Usd::from_cents(cents),
            effort: None,
        };
        Self {
            simple: tier("haiku", 25),
            moderate: tier("sonnet", 100),
            complex: tier("opus", 400),
        }
    }
}

/// Agent, model, effort and typical cost of a tier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct TierRules {
    /// Name of an agent in `agents`.
    #[garde(length(min = 1, max = 100))]
    pub agent: String,
    /// Model, in the agent's own naming. `default` lets the agent choose.
    #[garde(length(min = 1, max = 100))]
    pub model: String,
    /// Typical cost of a run, in US dollars. Used as an estimate until real costs are known.
    #[serde(default)]
    #[garde(skip)]
    pub typical_run_usd: Usd,
    /// Reasoning effort of the model. Default: the agent's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[garde(skip)]
    pub effort: Option<Effort>,
}

/// Spending limits. A limit that is not set does not apply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// Budget of one task, in US dollars. A risk level can override it.
    #[garde(skip)]
    pub task_usd: Option<Usd>,
    /// Budget of one task, in tokens.
    #[garde(range(min = 1))]
    pub task_tokens: Option<u64>,
    /// Total budget of the project, in US dollars.
    #[garde(skip)]
    pub project_usd: Option<Usd>,
    /// Budget of the project per day, in US dollars.
    #[garde(skip)]
    pub day_usd: Option<Usd>,
    /// Share of a limit at which people are warned, in percent.
    #[garde(range(min = 1, max = 100))]
    pub warn_percent: u8,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            task_usd: Some(Usd::from_cents(5_000)),
            task_tokens: None,
            project_usd: None,
            day_usd: None,
            warn_percent: 80,
        }
    }
}

/// Requirements by risk level.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct Ceremonies {
    /// Requirements for low-risk plans.
    #[garde(dive)]
    pub low: Ceremony,
    /// Requirements for medium-risk plans.
    #[garde(dive)]
    pub medium: Ceremony,
    /// Requirements for high-risk plans.
    #[garde(dive)]
    pub high: Ceremony,
}

impl Ceremonies {
    /// Returns the requirements of a risk level.
    pub fn get(&self, level: RiskLevel) -> &Ceremony {
        match level {
            RiskLevel::Low => &self.low,
            RiskLevel::Medium => &self.medium,
            RiskLevel::High => &self.high,
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

/// Requirements of a risk level.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct Ceremony {
    /// Number of people who must approve the plan, if approval is needed.
    #[garde(range(min = 1, max = 5))]
    pub approvers: u8,
    /// Require a person to review the change after the gates.
    #[garde(skip)]
    pub human_review: bool,
    /// Lowest tier that a task can start with.
    #[garde(skip)]
    pub first_tier: Tier,
    /// Names of `gates` that run at this level and above. A gate that no level names always runs.
    #[garde(inner(length(min = 1, max = 100)))]
    pub gates: Vec<String>,
    /// Budget of one task, in US dollars. Overrides `budget.task_usd`.
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

/// Number from 0 to 1 in the file, whole percent in memory: rules are compared and hashed, which
/// floating-point numbers are not suited for.
mod share {
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "signature required by serde")]
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
            Err(serde::de::Error::custom("must be a number from 0 to 1, such as 0.7"))
        }
    }
}
