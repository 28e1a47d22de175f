//! Project with stories, and a scripted agent whose processes are counted from outside.
//!
//! The agent starts through a shell script that logs every process with the mark of its run. The agent
//! itself logs the phases that it is given. Both logs are outside every checkout, so nothing that Tamma
//! stores takes part in the count.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use chrono::{DateTime, Utc};
use tamma_core::cost::Tokens;
use tamma_core::ids::TaskId;
use tamma_core::pipeline::{PhaseDefinition, PipelineDefinition};
use tamma_testkit::Cluster;
use tamma_testkit::agent::{self, AgentStep, PromptCase, Script};
use tamma_testkit::project::{ProjectConfig, ScriptedProject};
use tamma_testkit::repository::Repository;

/// Feature of every story.
pub(crate) const FEATURE: &str = "plans/features/wishlist";

/// Line of something that waits at a hold.
pub(crate) const HELD: &str = "held";

/// Project with stories.
#[derive(Debug)]
pub(crate) struct StoryProject {
    pub(crate) project: ScriptedProject,
    pub(crate) log: AgentLog,
}

/// Log that the agents of a project write.
#[derive(Debug, Clone)]
pub(crate) struct AgentLog(PathBuf);

/// Start of an agent's process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AgentStart {
    pub(crate) at: DateTime<Utc>,
    /// Task, or pipeline, that the agent works for.
    pub(crate) owner: TaskId,
    pub(crate) job_number: u32,
}

impl StoryProject {
    /// Registers a repository as a project whose agent plays the script.
    pub(crate) async fn new(
        cluster: &Cluster,
        number: u32,
        name: &str,
        repository: Repository,
        script: impl FnOnce(&AgentLog) -> Script,
        configure: impl FnOnce(ProjectConfig) -> ProjectConfig,
    ) -> Result<Self> {
        let folder = cluster.folder().join(name);
        let (log, program) = (AgentLog(folder.join("agents.log")), folder.join("agent.sh"));
        let command = program.display().to_string();
        let configure = |config: ProjectConfig| configure(config.command(&command));
        let project =
            cluster.add_project(number, name, repository, &script(&log), configure).await?;
        log.write_program(&program)?;
        Ok(Self { project, log })
    }

    /// Holds pushes to the repository until a file exists, if a shell condition holds. The condition
    /// can read the references from standard input.
    pub(crate) fn hold_push(&self, condition: &str, go: &Path) -> Result<()> {
        let text = format!(
            "#!/bin/sh\nif {condition}; then\n  echo '{HELD}' >> '{}'\n  \
             while [ ! -e '{}' ]; do sleep 0.05; done\nfi\n",
            self.log.path().display(),
            go.display()
        );
        let hooks = self.project.repository.path().join(".git/hooks");
        fs::create_dir_all(&hooks)?;
        write_executable(&hooks.join("pre-receive"), &text)
    }
}

fn write_executable(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text)?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

impl AgentLog {
    /// Writes the program that logs its process and becomes the scripted agent.
    fn write_program(&self, path: &Path) -> Result<()> {
        let (log, agent) = (self.0.display(), agent::program()?);
        let text = format!(
            "#!/bin/sh\necho \"start $(date +%s%N) $TAMMA_RUN\" >> '{log}'\nexec '{}'\n",
            agent.display()
        );
        write_executable(path, &text)
    }

    /// Returns the path of the log.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the step with which an agent writes a line.
    pub(crate) fn step(&self, line: String) -> AgentStep {
        AgentStep::Append { path: self.0.clone(), line }
    }

    /// Returns how many times a line was written.
    pub(crate) fn count(&self, expected: &str) -> usize {
        self.text().lines().filter(|line| *line == expected).count()
    }

    /// Returns the processes that were started for a task or a pipeline, in order.
    pub(crate) fn starts(&self, owner: TaskId) -> Result<Vec<AgentStart>> {
        let all = parse_starts(&self.text())?;
        Ok(all.into_iter().filter(|start| start.owner == owner).collect())
    }

    /// Returns how many processes were started for a job of a task or a pipeline.
    pub(crate) fn starts_of(&self, owner: TaskId, job_number: u32) -> Result<usize> {
        let all = self.starts(owner)?;
        Ok(all.iter().filter(|start| start.job_number == job_number).count())
    }

    fn text(&self) -> String {
        // Missing until the first agent starts.
        fs::read_to_string(&self.0).unwrap_or_default()
    }
}

/// Parses the lines of processes: `start <nanoseconds> <owner>/<job number>/<generation>`.
fn parse_starts(text: &str) -> Result<Vec<AgentStart>> {
    let parse = |line: &str| -> Result<AgentStart> {
        let (nanos, mark) = line.split_once(' ').context("no mark")?;
        let mut parts = mark.split('/');
        let mut next = || parts.next().context("incomplete mark");
        Ok(AgentStart {
            at: DateTime::from_timestamp_nanos(nanos.parse()?),
            owner: TaskId(next()?.parse()?),
            job_number: next()?.parse()?,
        })
    };
    let lines = text.lines().filter_map(|line| line.strip_prefix("start "));
    lines.map(|line| parse(line).with_context(|| format!("start of an agent: `{line}`"))).collect()
}

/// Returns the line of a prompt that only one phase of one story has.
pub(crate) fn prompt_line(phase: u8, story: &str) -> String {
    let pipeline = PipelineDefinition::built_in();
    let command = pipeline.phase(phase).and_then(|it| it.command.clone()).unwrap_or_default();
    format!("Execute command: {command} {FEATURE} {story}")
}

/// Returns the success signal of a built-in phase.
pub(crate) fn success_signal(phase: u8) -> String {
    let pipeline = PipelineDefinition::built_in();
    pipeline.phase(phase).map(PhaseDefinition::success_signal).unwrap_or_default()
}

/// Returns the case of a phase.
pub(crate) fn phase_case(phase: u8, story: &str, steps: Vec<AgentStep>) -> PromptCase {
    PromptCase::new(prompt_line(phase, story), steps)
}

/// Returns steps that report with the last line of the message, and the tokens of [`tokens`].
pub(crate) fn report(text: &str) -> Vec<AgentStep> {
    vec![AgentStep::Say(text.to_owned()), AgentStep::End { tokens: Some(tokens()) }]
}

/// Returns the steps of a phase that succeeds.
pub(crate) fn success(phase: u8) -> Vec<AgentStep> {
    report(&format!("Did the work of phase {phase}.\n\n{}", success_signal(phase)))
}

/// Returns the tokens of every phase.
pub(crate) fn tokens() -> Tokens {
    Tokens { input: 90, output: 10, ..Tokens::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_counted_by_the_mark_of_their_run() {
        let text = "S-1 2 begins\n\
                    start 1763200000000000001 0192a000-0000-7000-8000-000000000001/1/1\n\
                    start 1763200000500000000 0192a000-0000-7000-8000-000000000001/1/2\n\
                    start 1763200001000000000 0192a000-0000-7000-8000-000000000002/1/1\n";
        let starts = parse_starts(text).expect("starts");
        let jobs: Vec<_> =
            starts.iter().map(|it| (it.owner.0.as_u128() & 3, it.job_number)).collect();
        assert_eq!(jobs, [(1, 1), (1, 1), (2, 1)]);
        assert!(starts.is_sorted_by_key(|start| start.at));
        assert!(parse_starts("start 17 nothing\n").is_err());
    }

    #[test]
    fn each_phase_of_a_story_has_its_own_prompt() {
        assert_eq!(
            prompt_line(1, "WISH-001"),
            "Execute command: /pm-story generate plans/features/wishlist WISH-001"
        );
        assert_eq!(success_signal(6), "WORKFLOW COMPLETE");
    }
}
