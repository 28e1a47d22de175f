//! Cases of an evaluation and their results, one file each, so that an interrupted evaluation can be
//! continued.

use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString};
use tamma_core::cost::Usd;
use tamma_core::task_loop::Timestamp;
use uuid::Uuid;

use crate::Error;
use crate::task_set::ExpectedOutcome;

/// Way in which an agent works on a task.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Display, EnumString,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Arm {
    /// Whole task loop: plan, implementation, gates, review, repair.
    Loop,
    /// One session of the same agent, in the same sandbox and with the same gates.
    Bare,
}

/// One trial of one task in one arm.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CaseKey {
    /// Arm.
    pub arm: Arm,
    /// ID of the task in its set.
    pub task: String,
    /// Number of the trial, from 1.
    pub trial: u32,
}

impl fmt::Display for CaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.arm, self.task, self.trial)
    }
}

/// Case that has been started. Its IDs make every later step idempotent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartedCase {
    /// ID of the task in Tamma.
    pub task_id: Uuid,
    /// ID of the project in Tamma.
    pub project_id: Uuid,
    /// Time of the first start.
    pub started_at: Timestamp,
    /// Report of the agent that the task contradicts itself. It ends the case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispute: Option<String>,
}

/// Result of a case in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum CaseOutcome {
    /// The expected outcome, confirmed by the hidden tests.
    Solved,
    /// A change that Tamma accepted and the hidden tests reject, or one that should not exist.
    FalseCompletion,
    /// No accepted change.
    Unsolved,
    /// Failure outside the agent's work, such as a missing program or a used-up quota.
    NotRun,
}

/// Files of the plan compared with the changed files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileListMatch {
    /// Files in the plan.
    pub planned: u32,
    /// Changed files.
    pub changed: u32,
    /// Changed files that the plan names.
    pub both: u32,
}

/// Result of a finished case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaseResult {
    /// Case.
    #[serde(flatten)]
    pub key: CaseKey,
    /// ID of the task in Tamma.
    pub task_id: Uuid,
    /// Expected outcome.
    pub expected: ExpectedOutcome,
    /// Result.
    pub outcome: CaseOutcome,
    /// Reason for the result, in one sentence.
    pub reason: String,
    /// The change was accepted: delivered, or with passing gates in the arm `bare`.
    pub completed: bool,
    /// Result of the hidden tests; `None` if there was no change to test.
    pub hidden_passed: Option<bool>,
    /// End of the output of failed hidden tests.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hidden_output: String,
    /// Questions of the agent.
    pub questions: u32,
    /// Number of implementation runs.
    pub iterations: u32,
    /// All gates passed on the first commit; `None` without one.
    pub first_pass_gates: Option<bool>,
    /// Files of the plan and of the change; `None` without both.
    pub files: Option<FileListMatch>,
    /// Permission requests that were denied.
    pub denials: u32,
    /// Calls of the tool `run_gates`.
    pub gate_calls: u32,
    /// Agent runs of all kinds.
    pub runs: u32,
    /// Metered model calls.
    pub model_calls: u64,
    /// Input tokens at full price.
    pub input_tokens: u64,
    /// Input tokens from a cache.
    pub cached_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// Known cost; `None` if no run has one.
    pub usd: Option<Usd>,
    /// Part of the cost is unknown or an estimate.
    pub usd_incomplete: bool,
    /// Time from the first start to the end, including interruptions of the evaluation.
    pub seconds: u64,
    /// Start of the case.
    pub started_at: Timestamp,
    /// End of the case.
    pub finished_at: Timestamp,
}

/// Settings that all cases in an output folder share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct EvalSettings {
    set: String,
    agent: String,
    model: Option<String>,
}

impl fmt::Display for EvalSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--set {} --agent {}", self.set, self.agent)?;
        match &self.model {
            Some(model) => write!(f, " --model {model}"),
            None => Ok(()),
        }
    }
}

/// Folder with everything that belongs to an evaluation.
#[derive(Debug, Clone)]
pub struct OutputFolder {
    path: PathBuf,
}

impl OutputFolder {
    /// Creates the folder, or opens one of an evaluation with the same settings.
    pub fn open(path: &Path, set: &str, agent: &str, model: Option<&str>) -> Result<Self, Error> {
        let cases = path.join("cases");
        std::fs::create_dir_all(&cases).map_err(Error::disk("create", &cases))?;
        let folder = Self { path: path.to_owned() };
        let wanted = EvalSettings {
            set: set.to_owned(),
            agent: agent.to_owned(),
            model: model.map(str::to_owned),
        };
        let file = path.join("eval.json");
        match read_json::<EvalSettings>(&file)? {
            None => write_json(&file, &wanted)?,
            Some(found) if found == wanted => {}
            Some(found) => {
                let found = found.to_string();
                return Err(Error::OtherEvaluation { folder: path.to_owned(), found });
            }
        }
        Ok(folder)
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the data folder of Tamma.
    pub fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    /// Returns the folder for one case: its repository, its script, the checkout of hidden tests.
    pub fn case_folder(&self, key: &CaseKey) -> PathBuf {
        self.path.join("work").join(key.to_string())
    }

    fn case_file(&self, key: &CaseKey, ending: &str) -> PathBuf {
        self.path.join("cases").join(format!("{key}.{ending}"))
    }

    /// Returns the IDs of a case that was started before.
    pub fn started(&self, key: &CaseKey) -> Result<Option<StartedCase>, Error> {
        read_json(&self.case_file(key, "started.json"))
    }

    /// Stores the IDs of a case before anything is done for it.
    pub fn save_started(&self, key: &CaseKey, case: &StartedCase) -> Result<(), Error> {
        write_json(&self.case_file(key, "started.json"), case)
    }

    /// Returns the result of a case that is finished.
    pub fn finished(&self, key: &CaseKey) -> Result<Option<CaseResult>, Error> {
        read_json(&self.case_file(key, "json"))
    }

    /// Stores the result of a case.
    pub fn save_finished(&self, result: &CaseResult) -> Result<(), Error> {
        // A case that could not run before has cost something all the same.
        let earlier = self.finished(&result.key)?.filter(|it| it.task_id != result.task_id);
        let usd = match (earlier.and_then(|it| it.usd), result.usd) {
            (Some(earlier), Some(now)) => Some(earlier + now),
            (earlier, now) => now.or(earlier),
        };
        write_json(&self.case_file(&result.key, "json"), &CaseResult { usd, ..result.clone() })
    }

    /// Returns the results of all finished cases, in the order of their keys.
    pub fn results(&self) -> Result<Vec<CaseResult>, Error> {
        let folder = self.path.join("cases");
        let mut results: Vec<CaseResult> = Vec::new();
        for entry in std::fs::read_dir(&folder).map_err(Error::disk("read", &folder))? {
            let path = entry.map_err(Error::disk("read", &folder))?.path();
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            let case = name.as_deref().and_then(|name| name.strip_suffix(".json"));
            let is_result = case.is_some_and(|case| case.strip_suffix(".started").is_none());
            if is_result && let Some(result) = read_json(&path)? {
                results.push(result);
            }
        }
        results.sort_by(|one, other| one.key.cmp(&other.key));
        Ok(results)
    }

    /// Writes a file of the report, such as `results.json`.
    pub fn save_report(&self, name: &str, text: &str) -> Result<PathBuf, Error> {
        let path = self.path.join(name);
        write_atomically(&path, text.as_bytes())?;
        Ok(path)
    }
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, Error> {
    match std::fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|source| Error::Stored { path: path.to_owned(), source }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::disk("read", path)(error)),
    }
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<(), Error> {
    let bytes = serde_json::to_vec_pretty(value)
        .map_err(|source| Error::Stored { path: path.to_owned(), source })?;
    write_atomically(path, &bytes)
}

/// Replaces a file, so that it is complete or absent whenever the machine stops.
fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let partial = path.with_extension("partial");
    let write = || {
        let mut file = std::fs::File::create(&partial)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&partial, path)
    };
    write().map_err(Error::disk("write", path))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Result of a case, with values that are easy to check.
    pub(crate) fn result(task: &str, trial: u32, outcome: CaseOutcome) -> CaseResult {
        let at: Timestamp = "2026-11-16T10:00:00Z".parse().expect("a time");
        let is_solved = outcome == CaseOutcome::Solved;
        CaseResult {
            key: CaseKey { arm: Arm::Loop, task: task.to_owned(), trial },
            task_id: Uuid::nil(),
            expected: ExpectedOutcome::Delivered,
            outcome,
            reason: "a reason".to_owned(),
            completed: outcome != CaseOutcome::Unsolved,
            hidden_passed: Some(is_solved),
            hidden_output: String::new(),
            questions: 0,
            iterations: 2,
            first_pass_gates: Some(is_solved),
            files: Some(FileListMatch { planned: 4, changed: 2, both: 2 }),
            denials: 1,
            gate_calls: 0,
            runs: 3,
            model_calls: 10,
            input_tokens: 300,
            cached_tokens: 700,
            output_tokens: 50,
            usd: Some(Usd::from_cents(50)),
            usd_incomplete: false,
            seconds: 90,
            started_at: at,
            finished_at: at,
        }
    }

    #[test]
    fn results_survive_and_other_settings_are_refused() {
        let folder = tempfile::tempdir().expect("folder");
        let open = |model| OutputFolder::open(folder.path(), "starter", "codex", model);
        let output = open(None).expect("created");
        let case = result("off-by-one", 1, CaseOutcome::Solved);
        assert_eq!(output.finished(&case.key).expect("read"), None);
        let started = StartedCase {
            task_id: case.task_id,
            project_id: Uuid::nil(),
            started_at: case.started_at,
            dispute: None,
        };
        output.save_started(&case.key, &started).expect("saved");
        assert_eq!(output.results().expect("read"), []);
        output.save_finished(&case).expect("saved");
        let again = open(None).expect("opened again");
        assert_eq!(again.started(&case.key).expect("read"), Some(started));
        assert_eq!(again.finished(&case.key).expect("read"), Some(case.clone()));
        assert_eq!(again.results().expect("read"), std::slice::from_ref(&case));
        // A second try, with a task of its own, adds to the cost.
        let retried = CaseResult { task_id: Uuid::from_u128(77), ..case.clone() };
        again.save_finished(&retried).expect("saved");
        let total = again.finished(&case.key).expect("read").and_then(|it| it.usd);
        assert_eq!(total, Some(Usd::from_cents(100)));
        let error = open(Some("gpt-5.5")).expect_err("another model").to_string();
        assert!(error.contains("--set starter --agent codex"), "{error}");
    }
}
