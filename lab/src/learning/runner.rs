//! Runs the tasks, each with its own repository, project and script.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use tamma_core::history::EntryData;
use tamma_core::ids::ProjectId;
use tamma_core::knowledge::EntryStatus;
use tamma_core::learning::LessonEvidence;
use tamma_core::task_loop::{State, TaskLoop};
use tamma_store::KnowledgeFilter;
use tamma_testkit::Cluster;
use tamma_testkit::project::ProjectConfig;
use tamma_testkit::repository::Repository;
use tamma_testkit::sample::{project_id, task_id};

use super::tasks::{LearnBehaviour, OutcomeCase};

/// Time limit of each step.
const TIMEOUT: Duration = Duration::from_mins(5);

/// Lessons of a task.
pub(crate) struct LessonCount {
    /// Number of lessons according to its history.
    pub(crate) lessons: u16,
    /// Number of valid evidence references.
    pub(crate) evidence: usize,
}

/// Runs a task until it is closed and counts its lessons.
pub(crate) async fn run(
    cluster: &Cluster,
    number: u32,
    case: OutcomeCase,
    behaviour: LearnBehaviour,
) -> Result<LessonCount> {
    let name = format!("greeter-{number}");
    let (repository, script) = (Repository::new()?, case.script(behaviour));
    let configure = |config: ProjectConfig| config.gates(case.gates()).more(&case.rules());
    let project = cluster.add_project(number, &name, repository, &script, configure).await?;
    project.repository.commit("rules")?;
    let task = cluster.add_task(number, "Greet one more", &["--project", &name]).await?;
    if let Some(expected) = case.person_acts_in() {
        cluster
            .wait_for_task(task, TIMEOUT, |task_loop| is_waiting_in(task_loop, expected))
            .await?;
        let id = task.to_string();
        if case.ending() == State::Failed {
            cluster
                .cli
                .run(&["answer", &id, "abandon", "--reason", "not worth the effort"])
                .await?;
        } else {
            cluster.cli.run(&["cancel", &id, "--reason", "no longer needed"]).await?;
        }
    }
    let history = cluster.learned_history(task, TIMEOUT).await?;
    let state = history.iter().rev().find(|entry| entry.trigger.is_some()).map(|entry| entry.to);
    ensure!(
        state == Some(case.ending()),
        "the task ended as {state:?} instead of {}",
        case.ending()
    );
    let lessons = history.iter().find_map(|entry| match entry.data {
        EntryData::Lessons(lessons) => Some(lessons),
        _ => None,
    });
    let evidence = evidence(cluster, project.id).await?;
    Ok(LessonCount { lessons: lessons.unwrap_or_default(), evidence })
}

/// Returns `true` if a task waits for the person in this state.
fn is_waiting_in(task_loop: &TaskLoop, expected: State) -> Result<bool> {
    if task_loop.state.is_terminal() {
        bail!("the task is already {}", task_loop.state);
    }
    let ready = match expected {
        State::AwaitingApproval => task_loop.open_question.is_some(),
        State::HumanEscalation => {
            task_loop.open_question.is_some() && task_loop.active_job.is_none()
        }
        _ => true,
    };
    Ok(task_loop.state == expected && ready)
}

/// Counts the evidence of a project's lessons. All of it must exist, and all lessons must be pending.
async fn evidence(cluster: &Cluster, project: ProjectId) -> Result<usize> {
    let filter = KnowledgeFilter { project: Some(project), ..KnowledgeFilter::default() };
    let mut count = 0;
    for known in cluster.store.list_knowledge(&filter).await? {
        ensure!(known.entry.status == EntryStatus::Pending, "a lesson is not pending");
        ensure!(!known.entry.evidence.is_empty(), "a lesson has no evidence");
        for one in &known.entry.evidence {
            let evidence: LessonEvidence = one.as_str().parse().map_err(anyhow::Error::msg)?;
            ensure!(
                cluster.store.evidence_exists(evidence).await?,
                "evidence `{one}` does not exist"
            );
            count += 1;
        }
    }
    Ok(count)
}

/// Proposes all wordings of a file. Returns the number of lessons and of resulting entries.
pub(crate) async fn propose_all(cluster: &Cluster, file: &Path) -> Result<(usize, usize)> {
    let text = std::fs::read_to_string(file)?;
    let sets: Vec<super::LessonWordings> = serde_json::from_str(&text)?;
    let project = project_id(9_999);
    let mut count = 0;
    // Wordings of the same lesson never follow each other.
    for round in 0..3 {
        for (number, wordings) in sets.iter().enumerate() {
            let Some(wording) = wordings.words.get(round) else {
                bail!("a lesson needs three wordings")
            };
            count += 1;
            let task = task_id(9_000 + count);
            let lesson = wordings.lesson(project, wording, task, number)?;
            cluster.store.propose_lessons(project, vec![(lesson.id(task), lesson)]).await?;
        }
    }
    let filter = KnowledgeFilter { project: Some(project), ..KnowledgeFilter::default() };
    Ok((usize::try_from(count)?, cluster.store.list_knowledge(&filter).await?.len()))
}
