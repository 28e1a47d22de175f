//! Fixture of one task: a repository and a scripted agent, both with holds.
//!
//! Each job outside the database waits at a hold until a file exists. It writes a line before and a
//! line after, so that starts and ends can be counted from outside.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::json;
use tamma_core::plan::{FileAction, FileChange, Plan};
use tamma_flow::activities::names;
use tamma_testkit::agent::{AgentStep, PromptCase, SCRIPT_VARIABLE, Script};
use tamma_testkit::repository::Repository;

/// Acceptance criterion of every task, so that a validator runs.
pub(crate) const CRITERION: &str = "Cy is greeted";

/// Content of each changed file.
pub(crate) const CONTENT: &str = "ann\nbo\ncy\n";

/// Jobs that run an agent.
pub(crate) const AGENTS: [&str; 3] = [names::PLAN, names::IMPLEMENT, names::REVIEW];

/// Jobs that wait at a hold.
const HELD: [&str; 5] = [names::PLAN, names::IMPLEMENT, names::TEST, names::REVIEW, names::DELIVER];

/// Repository with script, gate and hook.
#[derive(Debug)]
pub(crate) struct Fixture {
    pub(crate) repository: Repository,
    /// Paths that the plan changes.
    pub(crate) paths: Vec<String>,
    folder: PathBuf,
}

impl Fixture {
    /// Creates the fixture in a new folder. The plan changes `files` files; more than five need
    /// approval by a person.
    pub(crate) fn new(folder: PathBuf, agent: &Path, files: usize) -> Result<Self> {
        fs::create_dir(&folder).with_context(|| format!("cannot create `{}`", folder.display()))?;
        let plan = plan(files);
        let paths = plan.file_changes.iter().map(|change| change.path.clone()).collect();
        let it = Self { repository: Repository::new()?, paths, folder };
        it.script(plan).write(&it.folder.join("script.json"))?;
        fs::write(it.folder.join("gate.sh"), it.gate())?;
        it.repository.write("tamma.yaml", &it.configuration(agent))?;
        let hook = it.repository.path().join(".git/hooks/pre-receive");
        fs::create_dir_all(it.repository.path().join(".git/hooks"))?;
        // Checkpoints are not counted: only a branch is a delivery.
        let branches = "grep -q ' refs/heads/' || exit 0\n";
        let delivery = it.held_script(names::DELIVER, "true");
        fs::write(&hook, format!("#!/bin/sh\n{branches}{delivery}"))?;
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755))?;
        for job in HELD {
            it.release(job)?;
        }
        Ok(it)
    }

    /// Blocks a job at its hold.
    pub(crate) fn hold(&self, job: &str) -> Result<()> {
        Ok(fs::remove_file(self.file(job))?)
    }

    /// Releases the hold of a job.
    pub(crate) fn release(&self, job: &str) -> Result<()> {
        Ok(fs::write(self.file(job), "")?)
    }

    /// Returns how many times a job was started.
    pub(crate) fn started(&self, job: &str) -> usize {
        self.count(&format!("{job} begins"))
    }

    /// Returns how many times a job ended.
    pub(crate) fn ended(&self, job: &str) -> usize {
        self.count(&format!("{job} ends"))
    }

    fn count(&self, expected: &str) -> usize {
        let lines = fs::read_to_string(self.job_log()).unwrap_or_default();
        lines.lines().filter(|line| *line == expected).count()
    }

    fn file(&self, job: &str) -> PathBuf {
        self.folder.join(format!("go-{job}"))
    }

    fn job_log(&self) -> PathBuf {
        self.folder.join("jobs.log")
    }

    /// Returns a shell script that waits at the hold of a job and then runs a command.
    fn held_script(&self, job: &str, command: &str) -> String {
        let (log, file) = (self.job_log(), self.file(job));
        format!(
            "echo '{job} begins' >> '{log}'\nwhile [ ! -e '{file}' ]; do sleep 0.05; done\n\
             {command}\ncode=$?\necho '{job} ends' >> '{log}'\nexit $code\n",
            log = log.display(),
            file = file.display(),
        )
    }

    fn gate(&self) -> String {
        self.held_script(names::TEST, "sh check.sh")
    }

    fn configuration(&self, agent: &Path) -> String {
        format!(
            "engines:\n  sandbox: off\nagents:\n  scripted:\n    command: {}\n    env:\n      {SCRIPT_VARIABLE}: {}\n\
             tiers:\n  simple: {{ agent: scripted }}\n  moderate: {{ agent: scripted }}\n  \
             complex: {{ agent: scripted }}\n\
             gates:\n  check: {{ command: sh {}, kind: tests }}\n",
            agent.display(),
            self.folder.join("script.json").display(),
            self.folder.join("gate.sh").display(),
        )
    }

    /// Returns the script of an agent that plans, implements and validates the change.
    fn script(&self, plan: Plan) -> Script {
        let case = |when: &str, job: &str, before: Vec<AgentStep>, after: Vec<AgentStep>| {
            let line =
                |word| AgentStep::Append { path: self.job_log(), line: format!("{job} {word}") };
            let mut steps = vec![line("begins")];
            steps.extend(before);
            steps.push(AgentStep::AwaitFile(self.file(job)));
            steps.extend(after);
            steps.push(line("ends"));
            PromptCase { when: when.to_owned(), unless: None, steps }
        };
        let writes: Vec<_> = plan
            .file_changes
            .iter()
            .map(|change| AgentStep::Write {
                path: (&change.path).into(),
                content: CONTENT.to_owned(),
            })
            .collect();
        // Uncommitted, incomplete work at the time of the hold.
        let half = vec![AgentStep::Write { path: "names.txt".into(), content: "ann\n".to_owned() }];
        let met = json!({ "evidence": "the name is in the list", "file": "names.txt", "line": 3 });
        let verdict = json!({ "criteria": { CRITERION: { "met": met } } });
        Script {
            cases: vec![
                case(
                    "You are the planner",
                    names::PLAN,
                    vec![],
                    vec![AgentStep::Plan(Box::new(plan))],
                ),
                case("You are implementing", names::IMPLEMENT, half, writes),
                case(
                    "You are the validator",
                    names::REVIEW,
                    vec![],
                    vec![AgentStep::Submit(verdict)],
                ),
            ],
            ..Script::default()
        }
    }
}

/// Returns a plan that changes `files` files.
fn plan(files: usize) -> Plan {
    let change = |number| FileChange {
        path: if number == 0 { "names.txt".to_owned() } else { format!("names/{number}.txt") },
        action: if number == 0 { FileAction::Modify } else { FileAction::Create },
        description: "one more name".to_owned(),
        estimated_lines: 1,
    };
    Plan {
        summary: "Cy is greeted".to_owned(),
        approach: "Add the name to the list.".to_owned(),
        file_changes: (0..files).map(change).collect(),
        testing_strategy: "The check counts the greetings.".to_owned(),
        signals: tamma_core::complexity::Signals::default(),
        estimated_tokens: None,
        estimated_cost_usd: None,
        risks: Vec::new(),
        dependencies: Vec::new(),
        test_changes: Vec::new(),
    }
}
