//! Definition of a pipeline: its phases, and how each of them runs.
//!
//! A run keeps the definition that it started with.

use garde::Validate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::Display;

use crate::cost::Usd;
use crate::tier::Tier;

/// Name of the built-in pipeline.
pub const BUILT_IN_PIPELINE: &str = "story";

/// Largest number of phases of a pipeline.
const MAX_PHASES: usize = 50;

/// Runner of a phase
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum PhaseRunner {
    /// An agent follows `command` or `prompt` and ends with the signal
    #[default]
    Agent,
    /// The shell command `run`; exit code 0 is success
    Command,
    /// A planner splits the story into tasks, a person approves them, and they run through the task
    /// loop
    Tasks,
    /// A person decides
    Approval,
    /// Updates the story's status; needs no agent
    Status,
}

/// Phase of a pipeline.
///
/// In `run`, `inputs` and `outputs`, `{FEATURE_DIR}`, `{STORY_ID}` and `{STORY_PATH}` are replaced.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct PhaseDefinition {
    /// ID, used in `STATE.md`: lower-case letters, digits and `_`.
    #[garde(custom(is_phase_id))]
    pub id: String,
    /// Title in reports. Default: the ID.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(inner(length(min = 1, max = 100)))]
    pub title: Option<String>,
    /// Runner of the phase.
    #[garde(skip)]
    pub runner: PhaseRunner,
    /// For `agent`: command of the agent, such as `/qa-verify-story`. Its instructions are
    /// `.claude/commands/qa-verify-story.md` at the base commit, or the built-in ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(inner(custom(is_agent_command)))]
    pub command: Option<String>,
    /// For `agent`: instructions, instead of a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(inner(length(min = 1, max = 20_000)))]
    pub prompt: Option<String>,
    /// For `command`: command line, run by `sh -c` in the story's worktree.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(inner(length(min = 1, max = 10_000)))]
    pub run: Option<String>,
    /// For `command`: allow network access.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[garde(skip)]
    pub network: bool,
    /// For `agent` and `tasks`: tier of the agent. Default: `moderate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(skip)]
    pub tier: Option<Tier>,
    /// For `agent` and `tasks`: name of the agent. Default: the agent of the tier.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(inner(length(min = 1, max = 100)))]
    pub agent: Option<String>,
    /// For `agent` and `tasks`: model. Default: the model of the tier.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(inner(length(min = 1, max = 200)))]
    pub model: Option<String>,
    /// Line that marks the phase as complete. Default: the title in capitals and `COMPLETE`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(inner(custom(is_signal)))]
    pub success_signal: Option<String>,
    /// Files that must exist before the phase starts, from the root of the repository.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[garde(inner(length(min = 1, max = 500)))]
    pub inputs: Vec<String>,
    /// Files that must exist after the phase, from the root of the repository.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[garde(inner(length(min = 1, max = 500)))]
    pub outputs: Vec<String>,
    /// Time limit, in seconds. Default: the time limit of an implementation run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(inner(range(min = 1, max = 604_800)))]
    pub timeout_seconds: Option<u32>,
    /// Spending limit, in US dollars. Default: the limit of a task.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(skip)]
    pub max_usd: Option<Usd>,
    /// Token limit. Default: the limit of a task.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(inner(range(min = 1)))]
    pub max_tokens: Option<u64>,
    /// For `tasks`: number of tasks that run at the same time. Default: no limit besides the
    /// project's and the agents' own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(inner(range(min = 1, max = 1000)))]
    pub parallel: Option<u16>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "signature required by garde")]
fn is_phase_id(text: &str, (): &()) -> garde::Result {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let starts_well = text.starts_with(|c: char| c.is_ascii_lowercase());
    if starts_well && text.len() <= 60 && text.chars().all(is_allowed) {
        Ok(())
    } else {
        Err(garde::Error::new("use 1 to 60 lower-case letters, digits or `_`, such as `qa_verify`"))
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "signature required by garde")]
fn is_agent_command(text: &str, (): &()) -> garde::Result {
    let name = text.strip_prefix('/').and_then(|rest| rest.split(' ').next()).unwrap_or_default();
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ':');
    let is_line = text.len() <= 300 && !text.contains(char::is_control);
    if !name.is_empty() && name.chars().all(is_allowed) && is_line {
        Ok(())
    } else {
        Err(garde::Error::new("use a slash and a name, such as `/qa-verify-story`"))
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "signature required by garde")]
fn is_signal(text: &str, (): &()) -> garde::Result {
    let is_allowed =
        |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || matches!(c, ' ' | '-' | '_');
    let starts_well = text.starts_with(|c: char| c.is_ascii_uppercase()) && !text.ends_with(' ');
    if starts_well && (2..=100).contains(&text.len()) && text.chars().all(is_allowed) {
        Ok(())
    } else {
        Err(garde::Error::new("use a line in capitals, such as `QA PASS`"))
    }
}

impl PhaseDefinition {
    /// Returns the title.
    pub fn title(&self) -> &str {
        self.title.as_deref().unwrap_or(&self.id)
    }

    /// Returns the name of the phase in its signals.
    pub fn signal_name(&self) -> String {
        self.title().to_uppercase()
    }

    /// Returns the line that marks the phase as complete.
    pub fn success_signal(&self) -> String {
        match &self.success_signal {
            Some(signal) => signal.clone(),
            None => format!("{} COMPLETE", self.signal_name()),
        }
    }

    /// Returns the tier of the phase's agent.
    pub fn tier(&self) -> Tier {
        self.tier.unwrap_or(Tier::Moderate)
    }

    /// Returns the name of the command's instruction file, without its folder.
    pub fn command_file(&self) -> Option<String> {
        let command = self.command.as_deref()?;
        let name = command.trim_start_matches('/').split_whitespace().next()?;
        Some(format!("{}.md", name.replace(':', "/")))
    }

    /// Returns the key without effect or the missing key, with the reason.
    pub(crate) fn validation_error(&self) -> Option<(&'static str, String)> {
        let is_agent = matches!(self.runner, PhaseRunner::Agent);
        let has_agent = matches!(self.runner, PhaseRunner::Agent | PhaseRunner::Tasks);
        let runs = has_agent || self.runner == PhaseRunner::Command;
        let useless = [
            ("command", self.command.is_some() && !is_agent),
            ("prompt", self.prompt.is_some() && !is_agent),
            ("run", self.run.is_some() && self.runner != PhaseRunner::Command),
            ("network", self.network && self.runner != PhaseRunner::Command),
            ("tier", self.tier.is_some() && !has_agent),
            ("agent", self.agent.is_some() && !has_agent),
            ("model", self.model.is_some() && !has_agent),
            ("max_usd", self.max_usd.is_some() && !has_agent),
            ("max_tokens", self.max_tokens.is_some() && !has_agent),
            ("timeout_seconds", self.timeout_seconds.is_some() && !runs),
            ("inputs", !self.inputs.is_empty() && !runs),
            ("outputs", !self.outputs.is_empty() && !runs),
            ("parallel", self.parallel.is_some() && self.runner != PhaseRunner::Tasks),
        ];
        if let Some((key, _)) = useless.into_iter().find(|(_, is_useless)| *is_useless) {
            return Some((key, format!("it has no effect with `runner: {}`", self.runner)));
        }
        match (self.runner, &self.command, &self.prompt, &self.run) {
            (PhaseRunner::Agent, None, None, _) => {
                Some(("runner", "an agent needs `command` or `prompt`".to_owned()))
            }
            (PhaseRunner::Agent, Some(_), Some(_), _) => {
                Some(("prompt", "use either `command` or `prompt`".to_owned()))
            }
            (PhaseRunner::Command, _, _, None) => {
                Some(("runner", "a command needs `run`, such as `make release`".to_owned()))
            }
            _ => None,
        }
    }
}

/// Pipeline of a project: ordered phases.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct PipelinePhases {
    /// Phases, in order.
    #[garde(dive, length(min = 1, max = MAX_PHASES))]
    pub phases: Vec<PhaseDefinition>,
}

/// Definition of a pipeline, as a run keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipelineDefinition {
    /// Name of the pipeline.
    pub name: String,
    /// Phases, in order.
    pub phases: Vec<PhaseDefinition>,
}

impl PipelineDefinition {
    /// Returns the built-in pipeline: six phases from the story to its end.
    pub fn built_in() -> Self {
        let agent = |id: &str, title: &str, command: &str, signal: &str| PhaseDefinition {
            id: id.to_owned(),
            title: Some(title.to_owned()),
            command: Some(command.to_owned()),
            success_signal: Some(signal.to_owned()),
            ..PhaseDefinition::default()
        };
        let done = PhaseDefinition {
            id: "done".to_owned(),
            title: Some("Done".to_owned()),
            runner: PhaseRunner::Status,
            success_signal: Some("WORKFLOW COMPLETE".to_owned()),
            ..PhaseDefinition::default()
        };
        let phases = vec![
            agent("pm_generate", "PM Generate", "/pm-story generate", "PM COMPLETE"),
            agent("elaboration", "Elaboration", "/elab-story", "ELAB PASS"),
            agent(
                "implementation",
                "Implementation",
                "/dev-implement-story",
                "DOCUMENTATION COMPLETE",
            ),
            agent("code_review", "Code Review", "/dev-code-review", "CODE REVIEW PASS"),
            agent("qa_verify", "QA Verify", "/qa-verify-story", "QA PASS"),
            done,
        ];
        Self { name: BUILT_IN_PIPELINE.to_owned(), phases }
    }

    /// Returns the number of the last phase.
    pub fn last(&self) -> u8 {
        u8::try_from(self.phases.len()).unwrap_or(u8::MAX)
    }

    /// Returns the phase with this number, from 1.
    pub fn phase(&self, number: u8) -> Option<&PhaseDefinition> {
        self.phases.get(usize::from(number).checked_sub(1)?)
    }

    /// Returns all phases with their numbers.
    pub fn numbered(&self) -> impl Iterator<Item = (u8, &PhaseDefinition)> {
        (1..=self.last()).zip(&self.phases)
    }
}
