//! Sets of tasks: the embedded starter set, or a folder in the same form.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};
use strum::Display;
use tamma_core::plan::FileAction;
use tamma_core::rules::GateRules;
use tamma_core::task::TaskType;

use crate::Error;

/// Files of the starter set, by their path below `eval/tasks`.
static STARTER: &[(&str, &[u8])] = &include!(concat!(env!("OUT_DIR"), "/starter.rs"));

/// Name of the embedded set.
const STARTER_NAME: &str = "starter";

/// Task of an evaluation, as `task.yaml` describes it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvalTask {
    /// One-line title.
    pub title: String,
    /// Task type.
    pub r#type: TaskType,
    /// Description.
    pub description: String,
    /// Acceptance criteria.
    #[serde(default)]
    pub criteria: Vec<String>,
    /// Gates of the project, in the format of `tamma.yaml`.
    pub gates: BTreeMap<String, GateRules>,
    /// Command that runs the hidden tests, in a checkout into which `hidden/` has been copied.
    pub hidden: String,
    /// Outcome that counts as solved.
    pub expected: ExpectedOutcome,
    /// Reply to the agent's question, if one is expected.
    #[serde(default)]
    pub answer: Option<String>,
    /// Regular expression for questions that report the contradiction, if one is expected. Case does
    /// not matter.
    #[serde(default)]
    pub contradiction: Option<String>,
    /// Submissions of the agent `oracle`.
    pub oracle: OracleNotes,
}

/// Outcome that counts as solved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ExpectedOutcome {
    /// A change that passes the hidden tests.
    Delivered,
    /// No change, but a report that the task contradicts itself: the result `plan_wrong`, or a
    /// question that matches `contradiction`.
    PlanWrong,
    /// A question first, and then a change that follows the answer.
    Question,
}

/// Submissions of the agent `oracle`, besides its patch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OracleNotes {
    /// Summary of the plan.
    pub summary: String,
    /// Approach of the plan.
    pub approach: String,
    /// Testing strategy of the plan.
    pub testing: String,
    /// Existing tests that the plan changes.
    #[serde(default)]
    pub test_changes: Vec<String>,
    /// Criteria that the plan proposes, for a task without its own.
    #[serde(default)]
    pub criteria: Vec<String>,
    /// Files of the plan, if there is no patch.
    #[serde(default)]
    pub files: Vec<String>,
    /// Question, or explanation of what is wrong.
    #[serde(default)]
    pub says: Option<String>,
}

/// Task with all its files.
#[derive(Debug, Clone)]
pub struct TaskFiles {
    /// Name of its folder.
    pub id: String,
    /// Content of `task.yaml`.
    pub task: EvalTask,
    /// Files by their path below the task's folder.
    files: BTreeMap<String, Cow<'static, [u8]>>,
}

/// Set of tasks, sorted by their ID.
#[derive(Debug, Clone)]
pub struct TaskSet {
    /// Name, or path of the folder.
    pub name: String,
    /// Tasks.
    pub tasks: Vec<TaskFiles>,
}

impl TaskSet {
    /// Returns the set with a name, or reads the set in a folder.
    pub fn open(name: &str) -> Result<Self, Error> {
        if name == STARTER_NAME {
            let files = STARTER.iter().map(|(path, bytes)| ((*path).to_owned(), (*bytes).into()));
            return Self::from_files(name, files.collect());
        }
        let folder = Path::new(name);
        if !folder.is_dir() {
            return Err(Error::Set(format!(
                "unknown set `{name}`; use `{STARTER_NAME}`, or the path of a folder with tasks"
            )));
        }
        let mut files = BTreeMap::new();
        read_folder(folder, "", &mut files)?;
        Self::from_files(name, files)
    }

    fn from_files(name: &str, files: BTreeMap<String, Cow<'static, [u8]>>) -> Result<Self, Error> {
        let mut folders: BTreeMap<String, BTreeMap<String, Cow<'static, [u8]>>> = BTreeMap::new();
        for (path, bytes) in files {
            if let Some((id, rest)) = path.split_once('/') {
                folders.entry(id.to_owned()).or_default().insert(rest.to_owned(), bytes);
            }
        }
        let tasks: Result<Vec<_>, _> =
            folders.into_iter().map(|(id, files)| TaskFiles::new(&id, files)).collect();
        let tasks = tasks?;
        if tasks.is_empty() {
            return Err(Error::Set(format!("`{name}` contains no folder with a task.yaml")));
        }
        Ok(Self { name: name.to_owned(), tasks })
    }

    /// Keeps only the named tasks. An unknown name is an error.
    pub fn keep(&mut self, names: &[String]) -> Result<(), Error> {
        if let Some(unknown) = names.iter().find(|name| self.task(name).is_none()) {
            let known: Vec<_> = self.tasks.iter().map(|task| task.id.as_str()).collect();
            let known = known.join(", ");
            return Err(Error::Set(format!("unknown task `{unknown}`; use one of: {known}")));
        }
        self.tasks.retain(|task| names.contains(&task.id));
        Ok(())
    }

    /// Returns a task by its ID.
    pub fn task(&self, id: &str) -> Option<&TaskFiles> {
        self.tasks.iter().find(|task| task.id == id)
    }
}

impl TaskFiles {
    fn new(id: &str, files: BTreeMap<String, Cow<'static, [u8]>>) -> Result<Self, Error> {
        let fault = |reason: String| Error::Task { task: id.to_owned(), reason };
        let text =
            files.get("task.yaml").ok_or_else(|| fault("task.yaml is missing".to_owned()))?;
        let text = String::from_utf8_lossy(text);
        let task: EvalTask =
            serde_saphyr::from_str(&text).map_err(|error| fault(format!("task.yaml: {error}")))?;
        let task = Self { id: id.to_owned(), task, files };
        if task.below("repo/").next().is_none() || task.below("hidden/").next().is_none() {
            return Err(fault("`repo` and `hidden` need at least one file each".to_owned()));
        }
        for (path, _) in task.files.iter().filter(|(path, _)| path.strip_suffix(".patch").is_some())
        {
            if task.patch(path).is_none() {
                return Err(fault(format!("{path} is not valid UTF-8")));
            }
        }
        let needs_patch = task.task.expected != ExpectedOutcome::PlanWrong;
        if needs_patch != task.oracle_patch().is_some() {
            let reason = "oracle.patch is needed, except for a task whose plan is wrong";
            return Err(fault(reason.to_owned()));
        }
        if (task.task.expected == ExpectedOutcome::Question) != task.task.answer.is_some() {
            return Err(fault("`answer` belongs to a task with an expected question".to_owned()));
        }
        if (task.task.expected == ExpectedOutcome::PlanWrong) != task.task.contradiction.is_some() {
            let reason = "`contradiction` belongs to a task whose plan is wrong";
            return Err(fault(reason.to_owned()));
        }
        if let Some(pattern) = &task.task.contradiction {
            contradiction_regex(pattern)
                .map_err(|error| fault(format!("`contradiction`: {error}")))?;
        }
        Ok(task)
    }

    /// Returns `true` if a question reports that the task contradicts itself.
    pub fn is_contradiction(&self, question: &str) -> bool {
        let regex = self.task.contradiction.as_deref().map(contradiction_regex);
        regex.and_then(Result::ok).is_some_and(|regex| regex.is_match(question))
    }

    fn below<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = (&'a str, &'a [u8])> + 'a {
        let files = self.files.iter();
        files.filter_map(move |(path, bytes)| Some((path.strip_prefix(folder)?, bytes.as_ref())))
    }

    fn patch(&self, path: &str) -> Option<&str> {
        std::str::from_utf8(self.files.get(path)?).ok()
    }

    /// Returns the patch that solves the task.
    pub fn oracle_patch(&self) -> Option<&str> {
        self.patch("oracle.patch")
    }

    /// Returns the patches that do not solve the task, with their names.
    pub fn wrong_patches(&self) -> Vec<(&str, &str)> {
        let patches = self.files.keys().filter_map(|path| {
            let name = path.strip_prefix("wrong-")?.strip_suffix(".patch")?;
            Some((name, self.patch(path)?))
        });
        patches.collect()
    }

    /// Writes the repository that the agent works on.
    pub fn write_repository(&self, folder: &Path) -> Result<(), Error> {
        write_files(self.below("repo/"), folder)
    }

    /// Copies the hidden tests into a checkout, over files of the same name.
    pub fn write_hidden_tests(&self, folder: &Path) -> Result<(), Error> {
        write_files(self.below("hidden/"), folder)
    }

    /// Returns the files of a folder that differ from the repository: changed, new or missing.
    pub fn changed_files(&self, folder: &Path) -> Result<BTreeSet<String>, Error> {
        let mut now = BTreeMap::new();
        read_folder(folder, "", &mut now)?;
        let before: BTreeMap<&str, &[u8]> = self.below("repo/").collect();
        let differs = |(path, bytes): (&String, &Cow<'static, [u8]>)| {
            (before.get(path.as_str()) != Some(&bytes.as_ref())).then(|| path.clone())
        };
        let mut changed: BTreeSet<String> = now.iter().filter_map(differs).collect();
        let gone = before.keys().filter(|path| !now.contains_key(**path));
        changed.extend(gone.map(|path| (*path).to_owned()));
        Ok(changed)
    }

    /// Returns the files that the patch `oracle` touches, or those that its plan names.
    pub fn oracle_files(&self) -> BTreeMap<String, FileAction> {
        let Some(patch) = self.oracle_patch() else {
            let files = self.task.oracle.files.iter();
            return files.map(|path| (path.clone(), FileAction::Modify)).collect();
        };
        let existing: BTreeSet<&str> = self.below("repo/").map(|(path, _)| path).collect();
        let (mut actions, mut current) = (BTreeMap::new(), "");
        for line in patch.lines() {
            if let Some((old, new)) = patched_paths(line) {
                if old != new {
                    actions.insert(old.to_owned(), FileAction::Delete);
                }
                let is_known = existing.contains(new);
                let action = if is_known { FileAction::Modify } else { FileAction::Create };
                actions.insert(new.to_owned(), action);
                current = new;
            } else if line.starts_with("deleted file mode") {
                actions.insert(current.to_owned(), FileAction::Delete);
            }
        }
        actions
    }
}

/// Returns the old and the new path of a header such as `diff --git a/x b/y`.
fn patched_paths(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("diff --git a/")?.split_once(" b/")
}

fn write_files<'a>(
    files: impl Iterator<Item = (&'a str, &'a [u8])>,
    folder: &Path,
) -> Result<(), Error> {
    for (path, bytes) in files {
        let path = folder.join(path);
        if let Some(above) = path.parent() {
            std::fs::create_dir_all(above).map_err(Error::disk("create", above))?;
        }
        // The change under test may have a link in place of the file.
        if path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink()) {
            std::fs::remove_file(&path).map_err(Error::disk("replace", &path))?;
        }
        std::fs::write(&path, bytes).map_err(Error::disk("write", &path))?;
    }
    Ok(())
}

fn read_folder(
    folder: &Path,
    prefix: &str,
    files: &mut BTreeMap<String, Cow<'static, [u8]>>,
) -> Result<(), Error> {
    for entry in std::fs::read_dir(folder).map_err(Error::disk("read", folder))? {
        let entry = entry.map_err(Error::disk("read", folder))?;
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let name = format!("{prefix}{name}");
        if path.is_dir() {
            read_folder(&path, &format!("{name}/"), files)?;
        } else {
            let bytes = std::fs::read(&path).map_err(Error::disk("read", &path))?;
            files.insert(name, Cow::Owned(bytes));
        }
    }
    Ok(())
}

fn contradiction_regex(pattern: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(pattern).case_insensitive(true).dot_matches_new_line(true).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_starter_set_has_thirteen_complete_tasks() {
        let set = TaskSet::open("starter").expect("valid tasks");
        assert_eq!(set.tasks.len(), 13);
        for task in &set.tasks {
            let wrong = task.wrong_patches();
            assert!((2..=5).contains(&wrong.len()), "{}: {} wrong patches", task.id, wrong.len());
            assert!(!task.task.gates.is_empty(), "{}", task.id);
            assert!(!task.oracle_files().is_empty(), "{}", task.id);
            assert!(task.below("repo/").any(|(path, _)| path == "README.md"), "{}", task.id);
        }
        let expected = |outcome| set.tasks.iter().filter(|it| it.task.expected == outcome).count();
        assert_eq!(expected(ExpectedOutcome::PlanWrong), 1);
        assert_eq!(expected(ExpectedOutcome::Question), 1);
    }

    #[test]
    fn only_a_question_about_the_contradiction_reports_it() {
        let set = TaskSet::open("starter").expect("valid tasks");
        let task = set.task("contradictory-criteria").expect("there");
        assert!(task.is_contradiction(task.task.oracle.says.as_deref().expect("a text")));
        assert!(task.is_contradiction("C1 says 3 calls in all,\nC2 says 4. Which one?"));
        assert!(!task.is_contradiction("Should I add a delay between the three calls?"));
        let other = set.task("ambiguous-request").expect("there");
        assert!(!other.is_contradiction("The criteria contradict each other."));
    }

    #[test]
    fn files_of_a_patch_are_created_modified_or_deleted() {
        let set = TaskSet::open("starter").expect("valid tasks");
        let files = set.task("rust-rename").expect("there").oracle_files();
        assert_eq!(files.len(), 9);
        assert_eq!(files["src/acct.rs"], FileAction::Delete);
        assert_eq!(files["src/account.rs"], FileAction::Create);
        assert_eq!(files["src/lib.rs"], FileAction::Modify);
        let planned = set.task("contradictory-criteria").expect("there").oracle_files();
        assert_eq!(planned, BTreeMap::from([("retry.py".to_owned(), FileAction::Modify)]));
    }

    #[test]
    fn changed_new_and_missing_files_are_found() {
        let set = TaskSet::open("starter").expect("valid tasks");
        let task = set.task("off-by-one").expect("there");
        let folder = tempfile::tempdir().expect("folder");
        task.write_repository(folder.path()).expect("written");
        assert_eq!(task.changed_files(folder.path()).expect("read"), BTreeSet::new());
        std::fs::write(folder.path().join("README.md"), "other").expect("written");
        std::fs::write(folder.path().join("new.py"), "").expect("written");
        std::fs::remove_file(folder.path().join("shelf/pages.py")).expect("removed");
        let changed = task.changed_files(folder.path()).expect("read");
        let expected = ["README.md", "new.py", "shelf/pages.py"].map(str::to_owned);
        assert_eq!(changed, BTreeSet::from(expected));
    }

    #[test]
    fn unknown_sets_and_tasks_are_errors() {
        assert!(TaskSet::open("no-such-set").is_err());
        let mut set = TaskSet::open("starter").expect("valid tasks");
        let error = set.keep(&["off-by-two".to_owned()]).expect_err("unknown");
        assert!(error.to_string().contains("off-by-one"), "{error}");
        set.keep(&["monorepo".to_owned()]).expect("known");
        assert_eq!(set.tasks.len(), 1);
    }

    #[test]
    fn a_set_can_be_a_folder() {
        let folder = tempfile::tempdir().expect("folder");
        let starter = TaskSet::open("starter").expect("valid tasks");
        let task = starter.task("off-by-one").expect("there");
        write_files(
            task.files.iter().map(|(path, bytes)| (path.as_str(), bytes.as_ref())),
            &folder.path().join("my-task"),
        )
        .expect("written");
        let set = TaskSet::open(folder.path().to_str().expect("UTF-8")).expect("a set");
        assert_eq!(set.tasks.len(), 1);
        assert_eq!(set.tasks[0].id, "my-task");
        assert_eq!(set.tasks[0].task, task.task);
    }
}
