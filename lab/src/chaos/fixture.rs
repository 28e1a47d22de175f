//! Fixture of one task: a repository and a scripted agent, both with holds.
//!
//! Each job outside the database waits at a hold until a file exists. It writes a line before and a
//! line after, so that starts and ends can be counted from outside.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use anyhow::Result;
use serde_json::json;
use tamma_core::plan::Plan;
use tamma_flow::activities::names;
use tamma_testkit::agent::{AgentStep, IMPLEMENTER, PLANNER, PromptCase, Script, VALIDATOR};
use tamma_testkit::project::{ProjectConfig, ScriptedProject};
use tamma_testkit::repository::Repository;
use tamma_testkit::sample::sample_work;
use tamma_testkit::{Cluster, sample_plan};

/// Acceptance criterion of every task, so that a validator runs.
pub(crate) const CRITERION: &str = "Cy is greeted";

/// Jobs that run an agent.
pub(crate) const AGENTS: [&str; 3] = [names::PLAN, names::IMPLEMENT, names::REVIEW];

/// Jobs that wait at a hold.
const HELD: [&str; 5] = [names::PLAN, names::IMPLEMENT, names::TEST, names::REVIEW, names::DELIVER];

/// Project with script, gate and hook.
#[derive(Debug)]
pub(crate) struct Fixture {
    pub(crate) project: ScriptedProject,
    /// Paths that the plan changes.
    pub(crate) paths: Vec<String>,
    holds: Holds,
}

/// Files in the project's folder that block and count jobs.
#[derive(Debug)]
struct Holds(PathBuf);

impl Fixture {
    /// Creates the fixture of a numbered task, in its own folder. The plan changes `files` files;
    /// more than five need approval by a person.
    pub(crate) async fn new(cluster: &Cluster, number: u32, files: usize) -> Result<Self> {
        Self::configured(cluster, number, files, "", None).await
    }

    /// Creates the fixture of a numbered task with more sections in its configuration. If there is a model
    /// at `upstream`, the implementer calls it through the gateway.
    pub(crate) async fn configured(
        cluster: &Cluster,
        number: u32,
        files: usize,
        settings: &str,
        upstream: Option<&str>,
    ) -> Result<Self> {
        let name = format!("greeter-{number}");
        let holds = Holds(cluster.folder().join(&name));
        let plan = sample_plan(files);
        let paths = plan.file_changes.iter().map(|change| change.path.clone()).collect();
        let (repository, script) = (Repository::new()?, holds.script(plan, upstream.is_some()));
        let gate = holds.0.join("gate.sh");
        let gates = format!("  check: {{ command: sh {}, kind: tests }}\n", gate.display());
        let configure = |config: ProjectConfig| {
            let config = config.gates(gates).more(settings);
            if let Some(upstream) = upstream { config.gateway(upstream) } else { config }
        };
        let project = cluster.add_project(number, &name, repository, &script, configure).await?;
        fs::write(&gate, holds.shell_script(names::TEST, "sh check.sh"))?;
        let hooks = project.repository.path().join(".git/hooks");
        fs::create_dir_all(&hooks)?;
        let hook = hooks.join("pre-receive");
        // Checkpoints are not counted: only a branch is a delivery.
        let branches = "grep -q ' refs/heads/' || exit 0\n";
        let delivery = holds.shell_script(names::DELIVER, "true");
        fs::write(&hook, format!("#!/bin/sh\n{branches}{delivery}"))?;
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755))?;
        let fixture = Self { project, paths, holds };
        for job in HELD {
            fixture.release(job)?;
        }
        Ok(fixture)
    }

    /// Blocks a job at its hold.
    pub(crate) fn hold(&self, job: &str) -> Result<()> {
        Ok(fs::remove_file(self.holds.file(job))?)
    }

    /// Releases the hold of a job.
    pub(crate) fn release(&self, job: &str) -> Result<()> {
        Ok(fs::write(self.holds.file(job), "")?)
    }

    /// Returns how many times a job was started.
    pub(crate) fn started(&self, job: &str) -> usize {
        self.count(&format!("{job} begins"))
    }

    /// Returns how many times a job ended.
    pub(crate) fn ended(&self, job: &str) -> usize {
        self.count(&format!("{job} ends"))
    }

    /// Returns the starts and ends of all jobs, in order.
    pub(crate) fn job_lines(&self) -> Vec<String> {
        let lines = fs::read_to_string(self.holds.job_log()).unwrap_or_default();
        lines.lines().map(str::to_owned).collect()
    }

    fn count(&self, expected: &str) -> usize {
        self.job_lines().iter().filter(|line| *line == expected).count()
    }
}

impl Holds {
    fn file(&self, job: &str) -> PathBuf {
        self.0.join(format!("go-{job}"))
    }

    fn job_log(&self) -> PathBuf {
        self.0.join("jobs.log")
    }

    /// Returns a shell script that waits at the hold of a job and then runs a command. It looks twice
    /// a second, because many of them wait at the same time, and ends with the experiment.
    fn shell_script(&self, job: &str, command: &str) -> String {
        let (log, file) = (self.job_log(), self.file(job));
        format!(
            "echo '{job} begins' >> '{log}'\n\
             while [ ! -e '{file}' ]; do [ -d '{folder}' ] || exit 1; sleep 0.5; done\n\
             {command}\ncode=$?\necho '{job} ends' >> '{log}'\nexit $code\n",
            log = log.display(),
            file = file.display(),
            folder = self.0.display(),
        )
    }

    /// Returns the script of an agent that plans, implements and validates the change. The implementer
    /// calls its model, if it has one.
    fn script(&self, plan: Plan, has_model: bool) -> Script {
        let case = |when: &str, job: &str, before: Vec<AgentStep>, after: Vec<AgentStep>| {
            let line =
                |word| AgentStep::Append { path: self.job_log(), line: format!("{job} {word}") };
            let mut steps = vec![line("begins")];
            steps.extend(before);
            steps.push(AgentStep::AwaitFile(self.file(job)));
            steps.extend(after);
            steps.push(line("ends"));
            PromptCase::new(when, steps)
        };
        let call = has_model.then_some(AgentStep::Model);
        let work = call.into_iter().chain(sample_work(&plan)).collect();
        // Uncommitted, incomplete work at the time of the hold.
        let half = vec![AgentStep::Write { path: "names.txt".into(), content: "ann\n".to_owned() }];
        let met = json!({
            "id": "C1",
            "verdict": "met",
            "evidence": "the name is in the list",
            "file": "names.txt",
            "line": 3,
        });
        let verdict = json!({ "criteria": [met] });
        let planned = vec![AgentStep::Plan(Box::new(plan))];
        Script::from_cases([
            case(PLANNER, names::PLAN, vec![], planned),
            case(IMPLEMENTER, names::IMPLEMENT, half, work),
            case(VALIDATOR, names::REVIEW, vec![], vec![AgentStep::Submit(verdict)]),
        ])
    }
}
