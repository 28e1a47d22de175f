//! Story with holds: the agent, a checkpoint and the delivery wait until a file exists.
//!
//! The agent writes a line when it begins a phase and one when it has done the phase, so that both can
//! be counted from outside.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use tamma_testkit::Cluster;
use tamma_testkit::agent::{AgentStep, PromptCase, Script};
use tamma_testkit::repository::Repository;

use super::client::StoryClient;
use super::point::{LAST, PhaseMoment, PhasePoint};
use super::project::{AgentLog, HELD, StoryProject, phase_case, success};

/// Story of one kill, with its project.
#[derive(Debug)]
pub(crate) struct KillFixture {
    pub(crate) project: StoryProject,
    pub(crate) story: String,
    point: PhasePoint,
}

impl KillFixture {
    /// Creates the numbered story, held at the point unless the database holds it.
    pub(crate) async fn new(cluster: &Cluster, number: u32, point: PhasePoint) -> Result<Self> {
        let (name, story) = (format!("story-{number}"), format!("KILL-{number:03}"));
        let go = cluster.folder().join(&name).join("go");
        let script = |log: &AgentLog| {
            Script::from_cases((1..LAST).map(|phase| agent_case(log, &story, phase, point, &go)))
        };
        let repository = Repository::new()?;
        let project =
            StoryProject::new(cluster, number, &name, repository, script, |config| config).await?;
        let fixture = Self { project, story, point };
        fixture.write_hook()?;
        Ok(fixture)
    }

    /// Returns the commands of a person for the story.
    pub(crate) fn client<'a>(&'a self, cluster: &'a Cluster) -> StoryClient<'a> {
        StoryClient { cluster, project: &self.project.project.name }
    }

    fn go(&self) -> PathBuf {
        self.project.project.folder.join("go")
    }

    /// Releases the hold.
    pub(crate) fn release(&self) -> Result<()> {
        Ok(fs::write(self.go(), "")?)
    }

    /// Returns `true` once something waits at the hold.
    pub(crate) fn is_held(&self) -> bool {
        self.project.log.count(HELD) > 0
    }

    /// Returns how many times an agent was given a phase.
    pub(crate) fn begun(&self, phase: u8) -> usize {
        self.project.log.count(&line(&self.story, phase, "begins"))
    }

    /// Returns how many times an agent has done a phase.
    pub(crate) fn done(&self, phase: u8) -> usize {
        self.project.log.count(&line(&self.story, phase, "is done"))
    }

    /// Writes the hook of the project's repository, which holds a checkpoint or the delivery.
    fn write_hook(&self) -> Result<()> {
        let PhasePoint { phase, moment } = self.point;
        let (log, go) = (self.project.log.path().display(), self.go());
        let done = line(&self.story, phase, "is done");
        let condition = match moment {
            PhaseMoment::SavesWork => {
                format!("! grep -q ' refs/heads/' && grep -qx '{done}' '{log}'")
            }
            PhaseMoment::Delivers => "grep -q ' refs/heads/'".to_owned(),
            _ => return Ok(()),
        };
        self.project.hold_push(&condition, &go)
    }
}

fn line(story: &str, phase: u8, word: &str) -> String {
    format!("{story} {phase} {word}")
}

/// Returns the file that a phase writes, and its content.
pub(crate) fn work(phase: u8) -> (String, String) {
    (format!("notes/phase-{phase}.md"), format!("The whole of phase {phase}.\n"))
}

/// Returns the case of a phase. At the hold, half of its work is in the worktree.
fn agent_case(log: &AgentLog, story: &str, phase: u8, point: PhasePoint, go: &Path) -> PromptCase {
    let (path, content) = work(phase);
    let write =
        |content: &str| AgentStep::Write { path: (&path).into(), content: content.to_owned() };
    let mut steps = vec![log.step(line(story, phase, "begins")), write("Half of it.\n")];
    if point == (PhasePoint { phase, moment: PhaseMoment::Works }) {
        steps.extend([log.step(HELD.to_owned()), AgentStep::AwaitFile(go.to_owned())]);
    }
    steps.extend([write(&content), log.step(line(story, phase, "is done"))]);
    steps.extend(success(phase));
    phase_case(phase, story, steps)
}
