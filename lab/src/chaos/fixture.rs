//! What one task is about: a repository, an agent that follows a script, and the holds of both.
//!
//! Everything outside of the database that a task does passes a hold: a file that has to be there.
//! What passes writes a line before and a line after, so that it can be counted from outside.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::json;
use tamma_core::plan::{FileAction, FileChange, Plan};
use tamma_flow::activities::names;
use tamma_testkit::agent::{AgentStep, PromptCase, SCRIPT_VARIABLE, Script};
use tamma_testkit::repository::Repository;

/// The criterion of every task, so that a validator is asked.
pub(crate) const CRITERION: &str = "Cy is greeted";

/// What is in each file of the change.
pub(crate) const CONTENT: &str = "ann\nbo\ncy\n";

/// The jobs that an agent does.
pub(crate) const AGENTS: [&str; 3] = [names::PLAN, names::IMPLEMENT, names::REVIEW];

/// The jobs that pass a hold.
const HELD: [&str; 5] = [names::PLAN, names::IMPLEMENT, names::TEST, names::REVIEW, names::DELIVER];

/// A repository with everything around it.
#[derive(Debug)]
pub(crate) struct Fixture {
    pub(crate) repository: Repository,
    /// What the plan changes.
    pub(crate) paths: Vec<String>,
    folder: PathBuf,
}

impl Fixture {
    /// Makes one in a folder that is not there yet. `files` are those that the plan changes; more
    /// than five need a person.
    pub(crate) fn new(folder: PathBuf, agent: &Path, files: usize) -> Result<Self> {
        fs::create_dir(&folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
        let plan = plan(files);
        let paths = plan.file_changes.iter().map(|change| change.path.clone()).collect();
        let it = Self { repository: Repository::new()?, paths, folder };
        it.script(plan).write(&it.folder.join("script.json"))?;
        fs::write(it.folder.join("gate.sh"), it.gate())?;
        it.repository.write("tamma.yaml", &it.configuration(agent))?;
        let hook = it.repository.path().join(".git/hooks/pre-receive");
        fs::create_dir_all(it.repository.path().join(".git/hooks"))?;
        // What is saved on the way is none of what is counted: only a branch is a delivery.
        let branches = "grep -q ' refs/heads/' || exit 0\n";
        let delivery = it.passing(names::DELIVER, "true");
        fs::write(&hook, format!("#!/bin/sh\n{branches}{delivery}"))?;
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755))?;
        for job in HELD {
            it.release(job)?;
        }
        Ok(it)
    }

    /// Lets nobody pass who does a job.
    pub(crate) fn hold(&self, job: &str) -> Result<()> {
        Ok(fs::remove_file(self.file(job))?)
    }

    /// Lets everybody pass who does a job.
    pub(crate) fn release(&self, job: &str) -> Result<()> {
        Ok(fs::write(self.file(job), "")?)
    }

    /// How often a job has been begun.
    pub(crate) fn begun(&self, job: &str) -> usize {
        self.count(&format!("{job} begins"))
    }

    /// How often a job has come to its end.
    pub(crate) fn ended(&self, job: &str) -> usize {
        self.count(&format!("{job} ends"))
    }

    fn count(&self, wanted: &str) -> usize {
        let lines = fs::read_to_string(self.passages()).unwrap_or_default();
        lines.lines().filter(|line| *line == wanted).count()
    }

    fn file(&self, job: &str) -> PathBuf {
        self.folder.join(format!("go-{job}"))
    }

    fn passages(&self) -> PathBuf {
        self.folder.join("passages")
    }

    /// A piece of shell that passes the hold of a job, and then does something.
    fn passing(&self, job: &str, command: &str) -> String {
        let (log, file) = (self.passages(), self.file(job));
        format!(
            "echo '{job} begins' >> '{log}'\nwhile [ ! -e '{file}' ]; do sleep 0.05; done\n\
             {command}\ncode=$?\necho '{job} ends' >> '{log}'\nexit $code\n",
            log = log.display(),
            file = file.display(),
        )
    }

    fn gate(&self) -> String {
        self.passing(names::TEST, "sh check.sh")
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

    /// An agent that plans the change, makes it, and judges it.
    fn script(&self, plan: Plan) -> Script {
        let case = |when: &str, job: &str, before: Vec<AgentStep>, after: Vec<AgentStep>| {
            let line =
                |word| AgentStep::Append { path: self.passages(), line: format!("{job} {word}") };
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
        // Work that is not committed when the hold is reached, and is not all of it.
        let half = vec![AgentStep::Write { path: "names.txt".into(), content: "ann\n".to_owned() }];
        let met = json!({ "evidence": "the name is there", "file": "names.txt", "line": 3 });
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

/// A plan that changes so many files.
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
