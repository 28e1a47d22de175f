//! A coding agent that does what a script says, over the real protocol.
//!
//! Each prompt plays the steps up to the next [`Step::End`]; a script that is over ends the turn. The
//! agent finds its script, in this order: in a block ` ```script ` of the prompt, in the file that
//! [`SCRIPT`] names, in `.tamma-script.json` of its folder. It does nothing else, and never reaches
//! out of the machine.

mod opening;
mod play;
mod tools;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tamma_core::cost::Tokens;
use tamma_core::plan::Plan;

pub use play::serve;

/// The variable that names the file of the script.
pub const SCRIPT: &str = "TAMMA_SCRIPT";

/// The variable that names the address of the model's API, without `/v1`.
pub const URL: &str = "TAMMA_URL";

/// The variable that holds the key for it.
pub const TOKEN: &str = "TAMMA_TOKEN";

/// The file of the script in the agent's folder.
pub const SCRIPT_FILE: &str = ".tamma-script.json";

/// What an agent is to do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// What it does for a prompt that none of the cases is for.
    pub steps: Vec<Step>,
    /// What it does for other prompts. The first that fits is taken, for the whole session.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cases: Vec<Case>,
    /// It does not hear that it is cancelled.
    pub deaf: bool,
    /// It never answers the first message.
    pub mute: bool,
    /// The models that it offers. It starts with the first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// The modes that it offers. It starts with the first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub modes: Vec<String>,
    /// The models are offered in the way that the protocol no longer has.
    pub old_fashioned: bool,
    /// How it goes on with an earlier session.
    pub resume: Resume,
}

/// How an agent goes on with an earlier session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resume {
    /// Not at all.
    #[default]
    Never,
    /// At once, with any session that it is asked for. It plays its script from the start.
    Resume,
    /// After it has told the whole conversation again.
    Load,
}

/// What an agent does for some prompts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Case {
    /// The prompt has this in it.
    pub when: String,
    /// And this file is not there, so that a script can behave otherwise the second time.
    pub unless: Option<PathBuf>,
    /// What it does then.
    pub steps: Vec<Step>,
}

/// One thing that an agent does. A path is from the agent's folder, or absolute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Step {
    /// Says something.
    Say(String),
    /// Thinks something.
    Think(String),
    /// Asks, and writes a file if it may.
    Write {
        /// Which file.
        path: PathBuf,
        /// What is in it then.
        content: String,
    },
    /// Writes a file without asking. A test waits for the file to know how far the agent is.
    WriteUnasked {
        /// Which file.
        path: PathBuf,
        /// What is in it then.
        content: String,
    },
    /// Adds a line to a file without asking. A test counts by it how often something was done.
    Append {
        /// Which file.
        path: PathBuf,
        /// The line, without its end.
        line: String,
    },
    /// Adds numbered lines with the time to a file, one after a pause, without asking, until it has
    /// so many. It goes on from what it finds, and says in another file how much that was.
    Journal {
        /// Which file.
        path: PathBuf,
        /// How many lines it has in the end.
        lines: u32,
        /// Milliseconds between two of them.
        pause: u32,
        /// Where it says how many it has found.
        found: PathBuf,
    },
    /// Asks, and deletes a file if it may.
    Delete {
        /// Which file.
        path: PathBuf,
    },
    /// Asks, and runs a command line in a shell if it may.
    Run(String),
    /// Asks for something that is none of the above, and goes on whatever the answer is.
    Ask {
        /// What it calls it.
        title: String,
    },
    /// Calls a tool of a server in its session, and says what came back.
    Tool {
        /// Which tool.
        name: String,
        /// What it is called with.
        #[serde(default)]
        args: Value,
    },
    /// Calls a model, at the address in [`URL`] with the key in [`TOKEN`], and says the status.
    Model,
    /// Says which model, mode and session it has, and the variables and files that it is asked for.
    Tell {
        /// Variables of its environment.
        #[serde(default)]
        env: Vec<String>,
        /// Files below its home.
        #[serde(default)]
        files: Vec<PathBuf>,
    },
    /// Reports what the session has cost so far, in dollars.
    Usage {
        /// The amount, as a decimal.
        cost: String,
    },
    /// Hands in a plan.
    Plan(Box<Plan>),
    /// Hands in anything, as the last block of JSON of the message.
    HandIn(Value),
    /// Sends an update as it is, of a kind that nobody knows.
    Update(Value),
    /// Writes a line to the standard error.
    Complain(String),
    /// Goes on when a file is there.
    AwaitFile(PathBuf),
    /// Starts a command line that goes on by itself, and writes its process number to a file.
    Spawn {
        /// The command line.
        command: String,
        /// Whether it leaves the process group.
        #[serde(default)]
        leave: bool,
        /// Where its number is written.
        pid_file: PathBuf,
    },
    /// Waits for ever, or until it is cancelled.
    Hang,
    /// Ends the process with an exit code, in the middle of the turn.
    Exit(i32),
    /// Kills its own process, in the middle of the turn.
    Die,
    /// Answers the prompt with an error.
    Fail {
        /// The code.
        code: i32,
        /// What it says.
        message: String,
        /// What it says to programs.
        #[serde(default)]
        data: Option<Value>,
    },
    /// Ends the turn.
    End {
        /// The tokens of the turn, if it reports them.
        #[serde(default)]
        tokens: Option<Tokens>,
    },
}

impl Script {
    /// An agent that does these things.
    pub fn of(steps: impl IntoIterator<Item = Step>) -> Self {
        Self { steps: steps.into_iter().collect(), ..Self::default() }
    }

    /// Writes the script to a file, for [`SCRIPT`] to name.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        Ok(std::fs::write(path, serde_json::to_vec_pretty(self)?)?)
    }

    /// The steps for a prompt.
    fn steps(self, prompt: &str, folder: &Path) -> Vec<Step> {
        let fits = |case: &Case| {
            let again = case.unless.as_ref().is_some_and(|file| folder.join(file).exists());
            prompt.contains(&case.when) && !again
        };
        self.cases.into_iter().find(fits).map_or(self.steps, |case| case.steps)
    }
}

/// The program `scripted-agent`, which is built with this crate's tests.
pub fn program() -> anyhow::Result<PathBuf> {
    let here = std::env::current_exe()?;
    // Tests are in `deps`, examples in `examples`, programs above them.
    let found = here.ancestors().skip(1).take(2).map(|folder| folder.join("scripted-agent"));
    found.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        anyhow::anyhow!(
            "`scripted-agent` is not built: run `cargo build -p tamma-testkit --bins`, or test \
             the whole workspace"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(text: &str) -> Step {
        Step::Say(text.to_owned())
    }

    #[test]
    fn the_first_case_that_fits_the_prompt_is_played() {
        let folder = tempfile::tempdir().expect("folder");
        let case = |when: &str, unless: Option<&str>| Case {
            when: when.to_owned(),
            unless: unless.map(PathBuf::from),
            steps: vec![say(when)],
        };
        let script = Script {
            cases: vec![case("plan", None), case("build", Some("built"))],
            ..Script::of([say("otherwise")])
        };
        let steps = |prompt: &str| script.clone().steps(prompt, folder.path());
        assert_eq!(steps("please plan and build"), [say("plan")]);
        assert_eq!(steps("please build"), [say("build")]);
        std::fs::write(folder.path().join("built"), "").expect("written");
        assert_eq!(steps("please build"), [say("otherwise")]);
    }
}
