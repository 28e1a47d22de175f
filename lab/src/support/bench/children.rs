//! Child processes of a task: records those that Tamma's worker starts, and starts the same ones again.
//!
//! While a task is recorded, the worker finds recording programs before the real `git` and `sh`, and in
//! place of the agent. Each writes its arguments, folder, environment, input and output to a folder, and
//! runs the real program. A replay starts the same programs with the ID of another task, in the mirror
//! and the repository of the recorded task. Nothing about git or the agent is written by hand.

mod player;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

pub(crate) use player::ChildPlayer;

/// File with the children of the recorded task, for the worker that starts them again.
const PLAN: &str = "children.json";

/// Time without a new process after which a task's children are complete.
const QUIET: Duration = Duration::from_secs(2);

/// Recording program. Programs that it starts are not recorded on their own.
const SHIM: &str = r#"#!/bin/sh
if [ -n "$LAB_RECORDED" ]; then exec PROGRAM "$@"; fi
to=RECORDS/$(date +%s%N)-$$
mkdir "$to.new"
printf '%s\0' PROGRAM "$@" >"$to.new/arguments"
env -0 >"$to.new/environment"
pwd >"$to.new/folder"
export LAB_RECORDED=1
tee "$to.new/input" | { PROGRAM "$@"; echo $? >"$to.new/exit"; } | tee "$to.new/output"
date +%s%N >"$to.new/end"
mv "$to.new" "$to"
exit "$(cat "$to/exit")"
"#;

/// Variables that belong to the recording or to the run.
const DROPPED: [&str; 5] = ["PWD", "OLDPWD", "SHLVL", "_", "TAMMA_RUN"];

/// Recording programs and their records.
#[derive(Debug)]
pub(crate) struct ChildRecorder {
    /// Folder of the recording programs.
    programs: PathBuf,
    records: PathBuf,
    /// Link that the project starts as its agent.
    agent: PathBuf,
    real_agent: PathBuf,
}

/// Child process of the recorded task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChildProcess {
    /// Program and arguments.
    pub(crate) arguments: Vec<String>,
    pub(crate) folder: String,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) input: String,
    pub(crate) exit: i32,
    /// Object ID, if that is all it printed. Later children name it.
    pub(crate) object: Option<String>,
    /// `true` if it speaks the agent protocol.
    pub(crate) is_agent: bool,
    /// Time since the epoch.
    pub(crate) start: Duration,
    /// Time since the epoch.
    pub(crate) end: Duration,
}

/// Children of a task, by the workflow call that starts them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChildPlan {
    /// ID of the recorded task.
    pub(crate) task: String,
    /// Children of each call, in the order of the calls.
    pub(crate) calls: Vec<Vec<ChildProcess>>,
    /// Children that start after the last call.
    pub(crate) after: Vec<ChildProcess>,
    /// Last call that runs an activity.
    pub(crate) last: usize,
    /// Folders of the task, which Tamma removes at its end.
    pub(crate) folders: Vec<String>,
}

impl ChildRecorder {
    /// Returns the program that a project starts as its agent: a link to `agent`, until a task is
    /// recorded.
    pub(crate) fn create(folder: &Path, agent: &Path) -> Result<Self> {
        let [programs, records, link] = ["shims", "records", "agent"].map(|name| folder.join(name));
        fs::create_dir_all(&programs)?;
        fs::create_dir_all(&records)?;
        symlink(agent, &link)?;
        Ok(Self { programs, records, agent: link, real_agent: agent.to_owned() })
    }

    /// Returns the path of the agent, for the project's configuration.
    pub(crate) fn agent(&self) -> &Path {
        &self.agent
    }

    /// Installs the recording programs and returns the `PATH` of the worker that is recorded.
    pub(crate) fn start(&self) -> Result<String> {
        let path = std::env::var("PATH").context("PATH is not set")?;
        for name in ["git", "sh"] {
            let mut real = std::env::split_paths(&path).map(|folder| folder.join(name));
            let real = real.find(|program| program.is_file());
            let real = real.with_context(|| format!("`{name}` is not on the PATH"))?;
            self.write_shim(&self.programs.join(name), &real)?;
        }
        fs::remove_file(&self.agent)?;
        self.write_shim(&self.agent, &self.real_agent)?;
        Ok(format!("{}:{path}", self.programs.display()))
    }

    /// Starts the real agent again.
    pub(crate) fn stop(&self) -> Result<()> {
        fs::remove_file(&self.agent)?;
        Ok(symlink(&self.real_agent, &self.agent)?)
    }

    fn write_shim(&self, path: &Path, program: &Path) -> Result<()> {
        let text = SHIM
            .replace("PROGRAM", &format!("'{}'", program.display()))
            .replace("RECORDS", &format!("'{}'", self.records.display()));
        fs::write(path, text)?;
        Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
    }

    /// Waits until no process starts or ends for a while, and returns the ended ones in the order of
    /// their start. Each is returned once.
    pub(crate) async fn take(&self) -> Result<Vec<ChildProcess>> {
        let mut names = self.names()?;
        loop {
            tokio::time::sleep(QUIET).await;
            let now = self.names()?;
            if now == names {
                break;
            }
            names = now;
        }
        let mut children = Vec::new();
        for name in &names {
            // A process that outlives the task is not one of its own.
            let folder = self.records.join(name);
            if folder.extension().is_some_and(|extension| extension == "new") {
                continue;
            }
            children.push(self.read(&folder).with_context(|| name.clone())?);
            fs::remove_dir_all(&folder)?;
        }
        Ok(children)
    }

    fn names(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.records)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    fn read(&self, folder: &Path) -> Result<ChildProcess> {
        let read = |name: &str| {
            fs::read_to_string(folder.join(name)).with_context(|| format!("cannot read `{name}`"))
        };
        let arguments: Vec<String> =
            read("arguments")?.split_terminator('\0').map(str::to_owned).collect();
        let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let start = name.split('-').next().unwrap_or_default().parse()?;
        let is_agent = arguments.first().map(Path::new) == Some(self.real_agent.as_path());
        Ok(ChildProcess {
            is_agent,
            folder: read("folder")?.trim_end().to_owned(),
            environment: self.variables(&read("environment")?),
            input: read("input")?,
            exit: read("exit")?.trim().parse()?,
            // The output of an agent and of `git diff` is not needed.
            object: if is_agent { None } else { object_id(&folder.join("output")) },
            start: Duration::from_nanos(start),
            end: Duration::from_nanos(read("end")?.trim().parse()?),
            arguments,
        })
    }

    /// Returns the variables of a process, without those of the recording.
    fn variables(&self, text: &str) -> Vec<(String, String)> {
        let shims = format!("{}:", self.programs.display());
        text.split_terminator('\0')
            .filter_map(|line| line.split_once('='))
            .filter(|(name, _)| !DROPPED.contains(name))
            .map(|(name, value)| (name.to_owned(), value.replace(&shims, "")))
            .collect()
    }
}

/// Returns the object ID in a file that contains nothing else.
fn object_id(file: &Path) -> Option<String> {
    let text = fs::read(file).ok()?;
    parse_object_id(&text)
}

/// Parses the object ID of an output that contains nothing else.
fn parse_object_id(output: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(output).ok()?.trim_end();
    let is_id = text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| text.to_owned())
}

impl ChildProcess {
    fn is_git(&self) -> bool {
        let program = self.arguments.first().map(Path::new).and_then(Path::file_name);
        program.is_some_and(|name| name == "git")
    }
}

impl ChildPlan {
    /// Assigns each child to the call in which it started.
    ///
    /// `calls` is the number of calls, and `ends` has the end of each call with an activity, in order.
    pub(crate) fn new(
        task: &str,
        children: Vec<ChildProcess>,
        calls: usize,
        ends: &[(usize, Duration)],
    ) -> Result<Self> {
        let &(last, _) = ends.last().context("the recorded task has no activity")?;
        ensure!(!children.is_empty(), "the recorded task started no process");
        let folders = task_folders(task, &children);
        let mut plan = Self {
            task: task.to_owned(),
            calls: vec![Vec::new(); calls],
            after: Vec::new(),
            last,
            folders,
        };
        // Tamma creates a worktree under another name and renames it. The replay does not.
        let (unfinished, finished) = (format!("/new/{task}"), format!("/{task}"));
        for mut child in children {
            for argument in &mut child.arguments {
                *argument = argument.replace(&unfinished, &finished);
            }
            let call = ends.iter().find(|(_, end)| *end >= child.start).map(|(call, _)| *call);
            match call.and_then(|call| plan.calls.get_mut(call)) {
                Some(list) => list.push(child),
                None => plan.after.push(child),
            }
        }
        Ok(plan)
    }

    /// Writes the plan for a worker.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        Ok(fs::write(folder.join(PLAN), serde_json::to_vec(self)?)?)
    }

    /// Reads the plan of a worker.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let file = folder.join(PLAN);
        let text = fs::read(&file).with_context(|| file.display().to_string())?;
        Ok(serde_json::from_slice(&text)?)
    }

    fn children(&self) -> impl Iterator<Item = &ChildProcess> {
        self.calls.iter().flatten().chain(&self.after)
    }

    /// Returns the number of git processes and of all processes of a task.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.children().filter(|child| child.is_git()).count(), self.children().count())
    }

    /// Returns the name of each git command with its number, most frequent first.
    pub(crate) fn git_commands(&self) -> String {
        let mut counted: Vec<(String, usize)> = Vec::new();
        for child in self.children().filter(|child| child.is_git()) {
            // `git -c core.quotePath=false diff-tree` is a `diff-tree`.
            let mut words = child.arguments.iter().skip(1).filter(|word| !word.contains('='));
            let Some(name) = words.find(|word| !word.starts_with('-')) else { continue };
            match counted.iter_mut().find(|(known, _)| known == name) {
                Some((_, count)) => *count += 1,
                None => counted.push((name.clone(), 1)),
            }
        }
        counted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let texts: Vec<_> = counted.iter().map(|(name, count)| format!("{count} {name}")).collect();
        texts.join(", ")
    }
}

/// Returns the folders of a task: its worktrees, and what git keeps about them.
fn task_folders(task: &str, children: &[ChildProcess]) -> Vec<String> {
    let mut folders = Vec::new();
    for child in children {
        let git_dir = child.environment.iter().find(|(name, _)| name == "GIT_DIR");
        let all = [Some(&child.folder), git_dir.map(|(_, value)| value)];
        folders.extend(all.into_iter().flatten().filter(|path| path.contains(task)).cloned());
    }
    folders.sort();
    folders.dedup();
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    fn child(start: u64, end: u64, arguments: &[&str]) -> ChildProcess {
        ChildProcess {
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            folder: "/data/worktrees/T".to_owned(),
            environment: vec![("GIT_DIR".to_owned(), "/data/mirror.git/worktrees/T".to_owned())],
            input: String::new(),
            exit: 0,
            object: None,
            is_agent: false,
            start: Duration::from_millis(start),
            end: Duration::from_millis(end),
        }
    }

    fn plan(children: Vec<ChildProcess>) -> ChildPlan {
        let ends = [(0, Duration::from_millis(10)), (2, Duration::from_millis(30))];
        ChildPlan::new("T", children, 4, &ends).expect("a plan")
    }

    #[test]
    fn a_child_belongs_to_the_first_call_that_ends_after_its_start() {
        let plan = plan(vec![
            child(5, 8, &["/usr/bin/git", "a"]),
            child(12, 40, &["/usr/bin/git", "b"]),
            child(31, 32, &["/usr/bin/git", "c"]),
        ]);
        let names: Vec<Vec<&str>> = plan
            .calls
            .iter()
            .map(|call| call.iter().map(|child| child.arguments[1].as_str()).collect())
            .collect();
        assert_eq!(names, [vec!["a"], vec![], vec!["b"], vec![]]);
        assert_eq!((plan.after.len(), plan.last), (1, 2));
    }

    #[test]
    fn a_worktree_is_created_under_its_final_name() {
        let add = ["/usr/bin/git", "worktree", "add", "/data/worktrees/new/T", "tamma/T"];
        let plan = plan(vec![child(5, 8, &add)]);
        assert_eq!(plan.calls[0][0].arguments[3], "/data/worktrees/T");
        assert_eq!(plan.folders, ["/data/mirror.git/worktrees/T", "/data/worktrees/T"]);
    }

    #[test]
    fn git_processes_are_counted_by_command() {
        let plan = plan(vec![
            child(1, 2, &["/usr/bin/git", "-c", "core.quotePath=false", "diff-tree", "-r"]),
            child(2, 3, &["/usr/bin/git", "diff-tree", "-r"]),
            child(3, 4, &["/usr/bin/git", "write-tree"]),
            child(4, 5, &["/bin/sh", "check.sh"]),
        ]);
        assert_eq!(plan.counts(), (3, 4));
        assert_eq!(plan.git_commands(), "2 diff-tree, 1 write-tree");
    }

    #[test]
    fn only_an_output_that_is_an_object_id_names_an_object() {
        let id = "9921811cc376186c31d0b606b6ddfc7b74eddb61";
        assert_eq!(parse_object_id(format!("{id}\n").as_bytes()).as_deref(), Some(id));
        assert_eq!(parse_object_id(format!("{id} HEAD\n").as_bytes()), None);
        assert_eq!(parse_object_id(&[0xff; 40]), None);
    }

    #[tokio::test]
    async fn a_recorded_program_runs_as_before_and_is_read_back() {
        let folder = tempfile::tempdir().expect("folder");
        let recorder = ChildRecorder::create(folder.path(), Path::new("/bin/cat")).expect("shims");
        let path = recorder.start().expect("installed");
        let output = tokio::process::Command::new("sh")
            .args(["-c", "echo 1; exit 3"])
            .env("PATH", &path)
            .stdin(std::process::Stdio::null())
            .output()
            .await
            .expect("sh runs");
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(3), &b"1\n"[..]));
        let children = recorder.take().await.expect("records");
        assert_eq!(children.len(), 1);
        assert_eq!(children[0].arguments[1..], ["-c", "echo 1; exit 3"]);
        assert_eq!(children[0].exit, 3);
        let programs = recorder.programs.display().to_string();
        assert!(!children[0].environment.iter().any(|(_, value)| value.contains(&programs)));
        assert!(recorder.take().await.expect("records").is_empty());
    }
}
