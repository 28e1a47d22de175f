//! Scripted coding agent that speaks the real protocol.
//!
//! Each prompt plays the steps up to the next [`AgentStep::End`] or the end of the script.
//! The agent looks for its script in a ` ```script ` block of the prompt, then in the file that
//! [`SCRIPT_VARIABLE`] names, then in `.tamma-script.json` of its folder. It does nothing else and
//! never uses the network outside this machine.

mod session;
mod session_setup;
mod submission;
mod tools;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tamma_core::cost::Tokens;
use tamma_core::plan::Plan;

pub use session::serve;
pub use submission::{approving_verdict, plan_submission};

/// Environment variable that names the script file.
pub const SCRIPT_VARIABLE: &str = "TAMMA_SCRIPT";

/// Environment variable with the base URL of the model's API, without `/v1`.
pub const URL_VARIABLE: &str = "TAMMA_URL";

/// Environment variable with the API key of the model.
pub const TOKEN_VARIABLE: &str = "TAMMA_TOKEN";

/// Text in every prompt of a planner.
pub const PLANNER: &str = "You are the planner";

/// Text in every prompt of an implementer.
pub const IMPLEMENTER: &str = "You are implementing";

/// Text in every prompt of a validator.
pub const VALIDATOR: &str = "You are the validator";

/// Script file in the agent's folder.
pub const SCRIPT_FILE: &str = ".tamma-script.json";

/// Behaviour of a scripted agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// Steps for prompts that match no case.
    pub steps: Vec<AgentStep>,
    /// Steps for matching prompts. The first match applies to the whole session.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cases: Vec<PromptCase>,
    /// Ignores cancellation.
    #[serde(rename = "deaf")]
    pub ignores_cancel: bool,
    /// Never responds to `initialize`.
    #[serde(rename = "mute")]
    pub ignores_initialize: bool,
    /// Offered models. The first is the initial one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// Offered session modes. The first is the initial one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub modes: Vec<String>,
    /// Offers models in the form that the protocol has dropped.
    #[serde(rename = "old_fashioned")]
    pub legacy_models: bool,
    /// Support for earlier sessions.
    pub resume: ResumeSupport,
}

/// Support for continuing an earlier session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResumeSupport {
    /// No support.
    #[default]
    Never,
    /// Resumes any requested session at once, and plays its script from the start.
    Resume,
    /// Replays the whole conversation first.
    Load,
}

/// Steps for matching prompts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PromptCase {
    /// Text that the prompt must contain.
    pub when: String,
    /// File that must not exist, so that the second run can differ from the first.
    pub unless: Option<PathBuf>,
    /// Steps to play.
    pub steps: Vec<AgentStep>,
}

/// One step of a scripted agent. Paths are absolute or relative to the agent's folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum AgentStep {
    /// Sends a message.
    Say(String),
    /// Sends a thought.
    Think(String),
    /// Writes a file if the permission is granted.
    Write {
        /// Path of the file.
        path: PathBuf,
        /// New content.
        content: String,
    },
    /// Writes a file without asking. Tests wait for the file to follow the agent's progress.
    WriteUnasked {
        /// Path of the file.
        path: PathBuf,
        /// New content.
        content: String,
    },
    /// Appends a line to a file without asking. Tests count lines to see how often a step ran.
    Append {
        /// Path of the file.
        path: PathBuf,
        /// Line without its line break.
        line: String,
    },
    /// Appends numbered, timestamped lines to a file without asking, up to a total.
    ///
    /// It continues an existing file and records in another file how many lines it found.
    Journal {
        /// Path of the file.
        path: PathBuf,
        /// Total number of lines.
        lines: u32,
        /// Pause between two lines, in milliseconds.
        pause: u32,
        /// File that receives the number of lines found.
        found: PathBuf,
    },
    /// Deletes a file if the permission is granted.
    Delete {
        /// Path of the file.
        path: PathBuf,
    },
    /// Runs a shell command if the permission is granted.
    Run(String),
    /// Requests another permission and continues after any answer.
    Ask {
        /// Title of the request.
        title: String,
    },
    /// Calls a tool of the session's MCP server and reports the result.
    Tool {
        /// Name of the tool.
        name: String,
        /// Arguments of the call.
        #[serde(default)]
        args: Value,
    },
    /// Calls a tool of the session's MCP server several times at once and reports the results.
    ToolsTogether {
        /// Name of the tool.
        name: String,
        /// Arguments of each call.
        calls: Vec<Value>,
    },
    /// Calls the model at [`URL_VARIABLE`] with the key in [`TOKEN_VARIABLE`] and reports the
    /// status.
    Model,
    /// Reports its model, mode and session, and the requested variables and files.
    #[serde(rename = "tell")]
    Describe {
        /// Environment variables to report.
        #[serde(default)]
        env: Vec<String>,
        /// Files in the home folder to report.
        #[serde(default)]
        files: Vec<PathBuf>,
    },
    /// Reports the cost of the session so far, in dollars.
    Usage {
        /// Amount as a decimal.
        cost: String,
    },
    /// Submits a plan, completed for the criteria in the prompt.
    Plan(Box<Plan>),
    /// Submits a verdict that finds every criterion in the prompt met.
    Approve,
    /// Submits any JSON as the last block of the message.
    #[serde(rename = "hand_in")]
    Submit(Value),
    /// Sends a raw update, for kinds that the protocol does not have.
    Update(Value),
    /// Writes a line to standard error.
    #[serde(rename = "complain")]
    WriteStderr(String),
    /// Waits until a file exists.
    AwaitFile(PathBuf),
    /// Starts a background command and writes its process ID to a file.
    Spawn {
        /// Shell command.
        command: String,
        /// `true` to leave the process group.
        #[serde(rename = "leave", default)]
        new_session: bool,
        /// File that receives the process ID.
        pid_file: PathBuf,
    },
    /// Waits until it is cancelled, or for ever.
    Hang,
    /// Exits with this code in the middle of the turn.
    Exit(i32),
    /// Kills its own process in the middle of the turn.
    Die,
    /// Responds to the prompt with an error.
    Fail {
        /// Error code.
        code: i32,
        /// Message for people.
        message: String,
        /// Data for programs.
        #[serde(default)]
        data: Option<Value>,
    },
    /// Ends the turn with another stop reason than `end_turn`.
    Stop(String),
    /// Ends the turn.
    End {
        /// Tokens to report for the turn, if any.
        #[serde(default)]
        tokens: Option<Tokens>,
    },
}

impl Script {
    /// Creates a script with these steps.
    pub fn new(steps: impl IntoIterator<Item = AgentStep>) -> Self {
        Self { steps: steps.into_iter().collect(), ..Self::default() }
    }

    /// Creates a script with these cases. Other prompts are ignored.
    pub fn from_cases(cases: impl IntoIterator<Item = PromptCase>) -> Self {
        Self { cases: cases.into_iter().collect(), ..Self::default() }
    }

    /// Creates the script of an agent that submits a plan and implements it with these steps.
    pub fn planned(plan: Plan, work: impl IntoIterator<Item = AgentStep>) -> Self {
        let plan = AgentStep::Plan(Box::new(plan));
        Self::from_cases([PromptCase::new(PLANNER, [plan]), PromptCase::new(IMPLEMENTER, work)])
    }

    /// Writes the script to a file for [`SCRIPT_VARIABLE`].
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        Ok(std::fs::write(path, serde_json::to_vec_pretty(self)?)?)
    }

    /// Returns the steps for a prompt. A validator approves, unless a case is about validators.
    fn steps_for(self, prompt: &str, folder: &Path) -> Vec<AgentStep> {
        if prompt.contains(VALIDATOR) && !self.cases.iter().any(|it| it.when.contains(VALIDATOR)) {
            return vec![AgentStep::Approve];
        }
        let fits = |case: &PromptCase| {
            let is_excluded = case.unless.as_ref().is_some_and(|file| folder.join(file).exists());
            prompt.contains(&case.when) && !is_excluded
        };
        self.cases.into_iter().find(fits).map_or(self.steps, |case| case.steps)
    }
}

impl PromptCase {
    /// Creates a case for prompts that contain `when`.
    pub fn new(when: impl Into<String>, steps: impl IntoIterator<Item = AgentStep>) -> Self {
        Self { when: when.into(), unless: None, steps: steps.into_iter().collect() }
    }
}

/// Returns the path of the `scripted-agent` binary, which is built with this crate's tests.
pub fn program() -> anyhow::Result<PathBuf> {
    crate::programs::find_program("scripted-agent")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(text: &str) -> AgentStep {
        AgentStep::Say(text.to_owned())
    }

    #[test]
    fn first_matching_case_is_played() {
        let folder = tempfile::tempdir().expect("folder");
        let case = |when: &str, unless: Option<&str>| PromptCase {
            when: when.to_owned(),
            unless: unless.map(PathBuf::from),
            steps: vec![say(when)],
        };
        let script = Script {
            cases: vec![case("plan", None), case("build", Some("built"))],
            ..Script::new([say("otherwise")])
        };
        let steps = |prompt: &str| script.clone().steps_for(prompt, folder.path());
        assert_eq!(steps("please plan and build"), [say("plan")]);
        assert_eq!(steps("please build"), [say("build")]);
        std::fs::write(folder.path().join("built"), "").expect("written");
        assert_eq!(steps("please build"), [say("otherwise")]);
        assert_eq!(steps(&format!("{VALIDATOR} of a plan")), [AgentStep::Approve]);
    }
}
