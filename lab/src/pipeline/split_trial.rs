//! Kill in a phase with tasks: holds a story at a moment, kills and restarts a component, releases the
//! story and checks that each task ran and was merged once.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result};
use strum::{Display, EnumIter, IntoEnumIterator as _};
use tamma_core::ids::PipelineId;
use tamma_core::pipeline::{NodeStatus, PipelineState};
use tamma_testkit::Cluster;
use tamma_testkit::agent::{AgentStep, PromptCase, Script};
use tamma_testkit::cluster::DATABASE;
use tamma_testkit::project::ProjectConfig;
use tamma_testkit::repository::Repository;
use tamma_testkit::wait::wait_until;

use super::client::{FinishedRun, StoryClient, TIMEOUT};
use super::finding::PhaseFindings;
use super::project::{AgentLog, HELD, StoryProject};
use super::task_story::{NAME, PlannedTask, file, split, task, task_cases, title};
use super::trial::{PhaseTrial, find_orphans, restart_exited};
use crate::support::components::{Components, Victim};

/// Tasks of the story. The first two are independent.
const TASKS: [PlannedTask; 3] = [task("T1", &[]), task("T2", &[]), task("T3", &["T1", "T2"])];

/// Name of the planner's part in the log of the agents.
const SPLIT: &str = "split";

/// Moment of a phase with tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display, EnumIter)]
#[strum(serialize_all = "kebab-case")]
pub(crate) enum SplitMoment {
    /// The planner splits the story.
    Splits,
    /// The run waits for a person to approve the tasks.
    Asks,
    /// Agents implement both independent tasks.
    TasksWork,
    /// An agent implements one independent task, and the other is being merged.
    Merges,
}

impl SplitMoment {
    /// Returns `true` if the agent of a part waits in the middle of its work.
    fn holds(self, part: &str) -> bool {
        match self {
            Self::Splits => part == SPLIT,
            Self::Asks => false,
            Self::TasksWork => part == "T1" || part == "T2",
            Self::Merges => part == "T2",
        }
    }

    /// Returns the number of holds that are reached at this moment.
    fn holds_reached(self) -> usize {
        match self {
            Self::Splits => 1,
            Self::Asks => 0,
            Self::TasksWork | Self::Merges => 2,
        }
    }
}

/// Returns all kills: each victim at each moment.
pub(crate) fn every_kill() -> Vec<(SplitMoment, Victim)> {
    let at = |moment| Victim::iter().map(move |victim| (moment, victim));
    SplitMoment::iter().flat_map(at).collect()
}

/// Returns the kill of the quick slice.
pub(crate) fn quick_kills() -> Vec<(SplitMoment, Victim)> {
    vec![(SplitMoment::Merges, Victim::Worker)]
}

/// Kills a component while a story is at a moment, and judges the result.
#[expect(clippy::disallowed_methods, reason = "measures a duration")]
pub(crate) async fn run(
    components: &mut Components,
    number: u32,
    moment: SplitMoment,
    victim: Victim,
) -> PhaseTrial {
    let mut killed = Instant::now();
    let result = attempt(components, number, moment, victim, &mut killed).await;
    let took = killed.elapsed();
    let result = restart_exited(components, result).await;
    PhaseTrial { point: format!("tasks: {moment}"), victim, took, result }
}

/// Story of one kill.
struct SplitStory {
    project: StoryProject,
    story: String,
}

#[expect(clippy::disallowed_methods, reason = "measures a duration")]
async fn attempt(
    components: &mut Components,
    number: u32,
    moment: SplitMoment,
    victim: Victim,
    killed: &mut Instant,
) -> Result<PhaseFindings> {
    let story = SplitStory::new(&components.cluster, number, moment).await?;
    let client = story.client(&components.cluster);
    let id = client.start(&story.story, &["--pipeline", "split"]).await?;
    if moment == SplitMoment::Merges {
        let (log, done) = (story.project.log.path().display(), line("T1", DONE));
        let condition = format!("grep -q '{id}' && grep -qx '{done}' '{log}'");
        story.project.hold_push(&condition, &story.go())?;
    }
    if matches!(moment, SplitMoment::TasksWork | SplitMoment::Merges) {
        client.until(id, |run| run.state == PipelineState::AtSplit(1)).await?;
        client.act(&["answer", &story.story, "continue"]).await?;
    }
    story.reach(&components.cluster, id, moment).await?;

    *killed = Instant::now();
    components.kill(victim).await?;
    components.restart(victim).await?;

    let mut findings = PhaseFindings::default();
    story.release()?;
    if matches!(moment, SplitMoment::Splits | SplitMoment::Asks) {
        story.approve(&components.cluster, id).await?;
    }
    let finished = story.client(&components.cluster).finished(id, 1).await?;
    story.judge(components, &finished, moment, &mut findings).await?;
    find_orphans(components, &story.project.project.folder, id, &mut findings).await;
    Ok(findings)
}

impl SplitStory {
    async fn new(cluster: &Cluster, number: u32, moment: SplitMoment) -> Result<Self> {
        let (name, story) = (format!("story-{number}"), format!("SPLIT-{number:03}"));
        let go = go_file(&cluster.folder().join(&name));
        let pipeline = "pipelines:\n  split:\n    phases:\n      - { id: tasks, runner: tasks, parallel: 2 }\n";
        let configure = |config: ProjectConfig| config.more(pipeline);
        let script = |log: &AgentLog| script(log, &story, moment, &go);
        let repository = Repository::new()?;
        let project =
            StoryProject::new(cluster, number, &name, repository, script, configure).await?;
        Ok(Self { project, story })
    }

    fn client<'a>(&'a self, cluster: &'a Cluster) -> StoryClient<'a> {
        StoryClient { cluster, project: &self.project.project.name }
    }

    fn go(&self) -> PathBuf {
        go_file(&self.project.project.folder)
    }

    /// Releases all holds.
    fn release(&self) -> Result<()> {
        Ok(fs::write(self.go(), "")?)
    }

    /// Waits until the story is at the moment.
    async fn reach(&self, cluster: &Cluster, id: PipelineId, moment: SplitMoment) -> Result<()> {
        if moment == SplitMoment::Asks {
            let client = self.client(cluster);
            return client.until(id, |run| run.state == PipelineState::AtSplit(1)).await.map(drop);
        }
        wait_until("the story", TIMEOUT, async || {
            Ok((self.project.log.count(HELD) >= moment.holds_reached()).then_some(()))
        })
        .await
        .with_context(|| format!("the story does not reach {moment}"))
    }

    /// Approves the tasks. A request that failed may have been carried out, so the stored state decides.
    async fn approve(&self, cluster: &Cluster, id: PipelineId) -> Result<()> {
        let client = self.client(cluster);
        client.until(id, |run| run.state == PipelineState::AtSplit(1)).await?;
        wait_until("the approval", TIMEOUT, async || {
            let run = cluster.store.pipeline(id).await?.run.context("no run is stored")?;
            if run.state != PipelineState::AtSplit(1) {
                return Ok(Some(()));
            }
            client.act(&["answer", &self.story, "continue"]).await?;
            Ok(None)
        })
        .await
    }

    /// Judges a finished story from outside: lines that the agents wrote, tasks in the database, and
    /// commits and files of the delivered branch.
    async fn judge(
        &self,
        components: &Components,
        finished: &FinishedRun,
        moment: SplitMoment,
        findings: &mut PhaseFindings,
    ) -> Result<()> {
        let FinishedRun { story, run, branch } = finished;
        if run.state != PipelineState::Complete {
            findings.add_lost(format!("the end: the run is {}", run.describe_state()));
        }
        let repository = &self.project.project.repository;
        let log = &self.project.log;
        for part in [SPLIT].into_iter().chain(TASKS.iter().map(|task| task.key)) {
            let (begun, done) = (log.count(&line(part, BEGINS)), log.count(&line(part, DONE)));
            match done {
                0 => findings.add_lost(format!("{part}: no agent has done it")),
                1 => {}
                more => findings.add_repeated(format!("{part}: done {more} times")),
            }
            let interrupted = begun.saturating_sub(done);
            if moment.holds(part) {
                findings.interrupted += interrupted;
            } else if interrupted > 0 {
                findings.add_repeated(format!("{part}: {begun} agents, {done} ended"));
            }
        }
        let sql = format!("SELECT count(*) FROM tasks WHERE project = '{}'", story.project);
        let tasks: usize = components.cluster.postgres()?.query(DATABASE, &sql).await?.parse()?;
        if tasks > TASKS.len() {
            findings.add_repeated(format!("{tasks} tasks instead of {}", TASKS.len()));
        }
        let subjects = repository.git(&["log", "--format=%s", &format!("main..{branch}")])?;
        let nodes = run.graphs.get(&1).map(|graph| graph.nodes.as_slice()).unwrap_or_default();
        for task in &TASKS {
            let node = nodes.iter().find(|node| node.key == task.key);
            if node.is_none_or(|node| node.status != NodeStatus::Complete) {
                findings.add_lost(format!("{}: its node is {node:?}", task.key));
            }
            let merge = format!("{}: {}", self.story, title(task));
            match subjects.lines().filter(|line| *line == merge).count() {
                0 => findings.add_lost(format!("{}: its merge", task.key)),
                1 => {}
                more => findings.add_repeated(format!("{}: merged {more} times", task.key)),
            }
            let object = format!("{branch}:{}", file(task.key));
            let found = repository.git(&["show", &object]).unwrap_or_default();
            if found != NAME {
                findings.add_lost(format!("{}: its file is `{found}`", task.key));
            }
        }
        Ok(())
    }
}

/// Word of an agent that begins a part.
const BEGINS: &str = "begins";

/// Word of an agent that has done a part.
const DONE: &str = "is done";

fn line(part: &str, word: &str) -> String {
    format!("{part} {word}")
}

/// Returns the file that releases the holds of a project.
fn go_file(folder: &Path) -> PathBuf {
    folder.join("go")
}

/// Returns the script of the planner and the implementers.
fn script(log: &AgentLog, story: &str, moment: SplitMoment, go: &Path) -> Script {
    let part = |name: &str, work: AgentStep| {
        let mut steps = vec![log.step(line(name, BEGINS))];
        if moment.holds(name) {
            steps.extend([log.step(HELD.to_owned()), AgentStep::AwaitFile(go.to_owned())]);
        }
        // Logged first, because a submission can end the run.
        steps.extend([log.step(line(name, DONE)), work]);
        steps
    };
    let planner = part(SPLIT, AgentStep::Submit(split(&TASKS)));
    let mut cases = vec![PromptCase::new(format!("Split the story {story}"), planner)];
    for task in &TASKS {
        let (path, content) = (file(task.key).into(), format!("{NAME}\n"));
        let write = AgentStep::Write { path, content };
        // The validator's prompt has the same heading, after another sentence.
        let heading = format!("to continue.\n\n# Task: {}\n", title(task));
        cases.push(PromptCase::new(heading, part(task.key, write.clone())));
        cases.extend(task_cases(task, vec![write]));
    }
    Script::from_cases(cases)
}

#[cfg(test)]
mod tests {
    use strum::EnumCount as _;

    use super::*;

    #[test]
    fn each_component_is_killed_at_each_moment() {
        assert_eq!(every_kill().len(), 4 * Victim::COUNT);
        assert!(quick_kills().iter().all(|kill| every_kill().contains(kill)));
    }

    #[test]
    fn a_moment_with_agents_reaches_as_many_holds_as_it_has() {
        let parts = [SPLIT, "T1", "T2", "T3"];
        for moment in SplitMoment::iter() {
            let agents = parts.iter().filter(|part| moment.holds(part)).count();
            // The merge is held at its push.
            let merges = usize::from(moment == SplitMoment::Merges);
            assert_eq!(moment.holds_reached(), agents + merges, "{moment}");
        }
    }
}
