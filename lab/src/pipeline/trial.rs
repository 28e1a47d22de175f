//! Single kill: holds a story at a point, kills and restarts a component, releases the story and checks
//! that it finishes.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tamma_core::ids::PipelineId;
use tamma_core::pipeline::{PipelineRun, PipelineState};
use tamma_testkit::cluster::DATABASE;
use tamma_testkit::tamma_process::TammaProcess;
use tamma_testkit::wait::{wait_until, wait_until_true};

use super::client::FinishedRun;
use super::finding::{PhaseCounts, PhaseFindings};
use super::kill_fixture::{KillFixture, work};
use super::point::{LAST, PhaseMoment, PhasePoint};
use super::story_files;
use crate::support::components::{Components, Victim};
use crate::support::database_hold::{self, DatabaseHold};
use crate::support::leftover::{self, LeftoverProcess};

/// Time limit for a story to reach its point, and for a person to get an answer.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Time limit for the processes of a story to exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Result of a kill.
#[derive(Debug)]
pub(crate) struct PhaseTrial {
    /// Point of the story.
    pub(crate) point: String,
    pub(crate) victim: Victim,
    /// Time from the kill to the end of the story.
    pub(crate) took: Duration,
    /// Findings, or the reason why the story did not finish.
    pub(crate) result: Result<PhaseFindings>,
}

/// Kills a component while a story is at a point, and judges the result.
#[expect(clippy::disallowed_methods, reason = "measures a duration")]
pub(crate) async fn run(
    components: &mut Components,
    number: u32,
    point: PhasePoint,
    victim: Victim,
) -> PhaseTrial {
    let mut killed = Instant::now();
    let result = attempt(components, number, point, victim, &mut killed).await;
    let took = killed.elapsed();
    let result = restart_exited(components, result).await;
    PhaseTrial { point: point.to_string(), victim, took, result }
}

/// Restarts components that exited by themselves, each of which is a finding.
pub(crate) async fn restart_exited(
    components: &mut Components,
    result: Result<PhaseFindings>,
) -> Result<PhaseFindings> {
    let exited = components.restart_exited().await;
    let mut findings = result?;
    for name in exited? {
        findings.add_lost(format!("{name}, which exited"));
    }
    Ok(findings)
}

#[expect(clippy::disallowed_methods, reason = "measures a duration")]
async fn attempt(
    components: &mut Components,
    number: u32,
    point: PhasePoint,
    victim: Victim,
    killed: &mut Instant,
) -> Result<PhaseFindings> {
    let fixture = KillFixture::new(&components.cluster, number, point).await?;
    let hold = match point.database_hold() {
        Some(name) => Some(DatabaseHold::at(components.cluster.postgres()?, &name).await?),
        None => None,
    };
    let (from, to) = point.range();
    let [from, to, gate] = [from, to, point.phase].map(|number| number.to_string());
    let mut arguments = vec!["--from", &from, "--to", &to];
    if point.moment == PhaseMoment::Asks {
        arguments.extend(["--approve", &gate]);
    }
    let id = fixture.client(&components.cluster).start(&fixture.story, &arguments).await?;
    reach(components, &fixture, id, point)
        .await
        .with_context(|| format!("the story does not reach {point}"))?;
    let folder = &fixture.project.project.folder;
    let running = leftovers(components, folder, id);

    *killed = Instant::now();
    components.kill(victim).await?;
    if victim == Victim::Worker && hold.is_some() {
        // Otherwise PostgreSQL would complete the statement of the dead worker on release, which makes
        // this case easier.
        database_hold::cancel_waiting(components.cluster.postgres()?, "worker").await?;
    }
    components.restart(victim).await?;

    let mut findings = PhaseFindings::default();
    if victim == Victim::Worker {
        // A surviving agent would finish a run that is started again.
        let owner = id.to_string();
        let survives = |it: &LeftoverProcess| it.is_run_of(&owner) && running.contains(it);
        let exited = || !leftovers(components, folder, id).iter().any(survives);
        if wait_until_true("the killed run", EXIT_TIMEOUT, exited).await.is_err() {
            findings.orphaned.push("a run of the killed worker".to_owned());
        }
    }
    if point.moment == PhaseMoment::Asks {
        answer(components, &fixture, id, point, &mut findings).await?;
    }
    if let Some(hold) = hold {
        hold.release(components.cluster.postgres()?).await?;
    }
    fixture.release()?;
    let finished = fixture.client(&components.cluster).finished(id, 1).await?;
    judge(components, &fixture, &finished, point, &mut findings).await?;
    find_orphans(components, folder, id, &mut findings).await;
    Ok(findings)
}

/// Adds processes that do not exit after the end of a story.
pub(crate) async fn find_orphans(
    components: &Components,
    folder: &Path,
    id: PipelineId,
    findings: &mut PhaseFindings,
) {
    let exited = || leftovers(components, folder, id).is_empty();
    if wait_until_true("leftover processes", EXIT_TIMEOUT, exited).await.is_err() {
        let left = leftovers(components, folder, id);
        findings.orphaned.extend(left.into_iter().map(|it| format!("{} {}", it.pid, it.line)));
    }
}

/// Waits until the story is at the point.
async fn reach(
    components: &Components,
    fixture: &KillFixture,
    id: PipelineId,
    point: PhasePoint,
) -> Result<()> {
    let (cluster, phase) = (&components.cluster, point.phase);
    wait_until("the story", TIMEOUT, async || {
        let is_reached = match point.moment {
            PhaseMoment::Asks => {
                stored_state(components, id).await? == PipelineState::AtGate(phase)
            }
            PhaseMoment::Works | PhaseMoment::SavesWork | PhaseMoment::Delivers => {
                fixture.is_held()
            }
            PhaseMoment::SavesResult | PhaseMoment::Records => {
                let held = database_hold::held(cluster.postgres()?).await?;
                let is_done = phase == LAST || fixture.done(phase) == 1;
                held.contains("worker") && is_done
            }
        };
        Ok(is_reached.then_some(()))
    })
    .await
}

async fn stored_state(components: &Components, id: PipelineId) -> Result<PipelineState> {
    let story = components.cluster.store.pipeline(id).await?;
    Ok(story.run.context("no run is stored")?.state)
}

/// Checks that the question survived and nothing has started, and answers it.
async fn answer(
    components: &Components,
    fixture: &KillFixture,
    id: PipelineId,
    point: PhasePoint,
    findings: &mut PhaseFindings,
) -> Result<()> {
    let client = fixture.client(&components.cluster);
    let shown = wait_until("the server", TIMEOUT, async || {
        client.act(&["show", &fixture.story]).await.map(Some)
    });
    if shown.await?.question.is_none() {
        findings.add_lost("the question at the gate");
    }
    if fixture.begun(point.phase) > 0 {
        findings.add_repeated("an agent before the answer");
    }
    // A request that failed may have been carried out, so the stored state decides.
    wait_until("the answer", TIMEOUT, async || {
        if stored_state(components, id).await? != PipelineState::AtGate(point.phase) {
            return Ok(Some(()));
        }
        client.act(&["answer", &fixture.story, "continue"]).await?;
        Ok(None)
    })
    .await
}

/// Judges a finished story from outside: processes of agents, lines that they wrote, commits, files,
/// records and usage.
async fn judge(
    components: &Components,
    fixture: &KillFixture,
    finished: &FinishedRun,
    point: PhasePoint,
    findings: &mut PhaseFindings,
) -> Result<()> {
    let FinishedRun { story, run, branch } = finished;
    let (repository, owner) = (&fixture.project.project.repository, story.id.as_task());
    findings.judge_records(run);
    let problems = story_files::problems(repository, finished)?;
    findings.lost.extend(problems);
    let subjects = repository.git(&["log", "--format=%s", &format!("main..{branch}")])?;
    let (from, to) = point.range();
    for (phase, job_number) in (from..=to).zip(1..) {
        let subject = commit_subject(run, phase);
        let commits = subjects.lines().filter(|line| *line == subject).count();
        if phase == LAST {
            findings.judge_commits(phase, commits);
            continue;
        }
        let started = fixture.project.log.starts_of(owner, job_number)?;
        let done = fixture.done(phase);
        findings.judge_agents(phase, point, PhaseCounts { started, done, commits });
        let (path, content) = work(phase);
        let found = repository.git(&["show", &format!("{branch}:{path}")]).unwrap_or_default();
        if found != content.trim_end() {
            findings.add_lost(format!("the work of phase {phase}: `{path}` is `{found}`"));
        }
    }
    // Each agent's tokens count once against the budgets.
    let agents = usize::from(to.min(LAST - 1) - from) + 1;
    let sql = format!("SELECT count(*) FROM usage WHERE task = '{}'", story.id);
    let rows: usize = components.cluster.postgres()?.query(DATABASE, &sql).await?.parse()?;
    if rows < agents {
        findings.add_lost(format!("the usage of {} phases", agents - rows));
    } else if rows > agents {
        findings.add_repeated(format!("the usage of {} phases", rows - agents));
    }
    let phases = components.cluster.store.pipeline_phases(story.id).await?;
    ensure!(phases.iter().all(|phase| phase.run_number == 1), "a second run was recorded");
    if phases.len() != run.records.len() {
        findings.add_lost(format!("recorded phases: {} of {}", phases.len(), run.records.len()));
    }
    Ok(())
}

fn commit_subject(run: &PipelineRun, phase: u8) -> String {
    let title = run.request.phase(phase).map(|it| it.title().to_owned()).unwrap_or_default();
    format!("{}: {title}", run.request.story_id)
}

/// Returns the processes that still run for a story.
fn leftovers(components: &Components, folder: &Path, id: PipelineId) -> Vec<LeftoverProcess> {
    let server = components.cluster.server().ok().and_then(TammaProcess::pid);
    let roles = [server, components.worker.pid()];
    let known: BTreeSet<_> = roles.into_iter().flatten().chain([std::process::id()]).collect();
    leftover::find(&id.to_string(), folder, &known)
}
