//! Where the sixty tasks are played: each with a repository, a project and a script of its own.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use tamma_core::history::EntryData;
use tamma_core::ids::ProjectId;
use tamma_core::knowledge::EntryStatus;
use tamma_core::learning::LessonEvidence;
use tamma_core::task_loop::{State, TaskLoop};
use tamma_store::KnowledgeFilter;
use tamma_testkit::agent::SCRIPT_VARIABLE;
use tamma_testkit::repository::Repository;

use super::tasks::{LearnBehaviour, OutcomeCase};
use crate::support::cluster::Cluster;
use crate::support::programs::beside;

/// How long anything may take.
const TIMEOUT: Duration = Duration::from_mins(5);

/// What a task has left.
pub(crate) struct LessonCount {
    /// How many lessons it says it has left.
    pub(crate) lessons: u16,
    /// How many pieces of evidence they have, all of which can be looked up.
    pub(crate) evidence: usize,
}

/// Plays a task to its end, and looks what it has left.
pub(crate) async fn play(
    cluster: &Cluster,
    number: u32,
    case: OutcomeCase,
    behaviour: LearnBehaviour,
) -> Result<LessonCount> {
    let folder = cluster.folder.join(format!("task-{number}"));
    std::fs::create_dir_all(&folder)?;
    let script = folder.join("script.json");
    case.script(behaviour).write(&script)?;
    let agent = beside("scripted-agent")?;
    let repository = Repository::new()?;
    repository.write(
        "tamma.yaml",
        &format!(
            "agents:\n  scripted:\n    command: {}\n    env:\n      {SCRIPT_VARIABLE}: {}\n\
             tiers:\n  simple: {{ agent: scripted }}\n  moderate: {{ agent: scripted }}\n  \
             complex: {{ agent: scripted }}\nengines: {{ sandbox: off }}\n{}",
            agent.display(),
            script.display(),
            case.rules(),
        ),
    )?;
    repository.commit("rules")?;
    let name = format!("greeter-{number}");
    let project = cluster.register_project(number, &name, &repository).await?;
    let task = cluster.add_task(number, "Greet one more", &["--project", &name]).await?;
    if let Some(wanted) = case.asks() {
        cluster.until(task, TIMEOUT, |machine| is_at(machine, wanted)).await?;
        let id = task.to_string();
        if case.ending() == State::Failed {
            cluster.tamma(&["answer", &id, "abandon", "--reason", "it is not worth it"]).await?;
        } else {
            cluster.tamma(&["cancel", &id, "--reason", "nobody needs it any more"]).await?;
        }
    }
    let log = cluster.learned_history(task, TIMEOUT).await?;
    let state = log.iter().rev().find(|entry| entry.trigger.is_some()).map(|entry| entry.to);
    ensure!(state == Some(case.ending()), "it ended {state:?}, and not {}", case.ending());
    let lessons = log.iter().find_map(|entry| match entry.data {
        EntryData::Lessons(lessons) => Some(lessons),
        _ => None,
    });
    let evidence = evidence(cluster, project).await?;
    Ok(LessonCount { lessons: lessons.unwrap_or_default(), evidence })
}

/// Whether a task is where a person does something to it.
fn is_at(machine: &TaskLoop, wanted: State) -> Result<bool> {
    if machine.state.is_terminal() {
        bail!("it is {} before anybody could do anything", machine.state);
    }
    let ready = match wanted {
        State::AwaitingApproval => machine.open_question.is_some(),
        State::HumanEscalation => machine.open_question.is_some() && machine.active_job.is_none(),
        _ => true,
    };
    Ok(machine.state == wanted && ready)
}

/// How much evidence the lessons of a project have. All of it must be there to look up, and none of
/// the lessons may have any effect.
async fn evidence(cluster: &Cluster, project: ProjectId) -> Result<usize> {
    let filter = KnowledgeFilter { project: Some(project), ..KnowledgeFilter::default() };
    let mut count = 0;
    for known in cluster.store.list_knowledge(&filter).await? {
        ensure!(known.entry.status == EntryStatus::Pending, "a lesson does not wait");
        ensure!(!known.entry.evidence.is_empty(), "a lesson has no evidence");
        for one in &known.entry.evidence {
            let evidence: LessonEvidence = one.as_str().parse().map_err(anyhow::Error::msg)?;
            ensure!(cluster.store.evidence_exists(evidence).await?, "`{one}` is nowhere");
            count += 1;
        }
    }
    Ok(count)
}

/// Proposes sixty lessons, forty of them near duplicates, and returns how many entries there are then.
pub(crate) async fn merged(cluster: &Cluster, file: &Path) -> Result<(usize, usize)> {
    let text = std::fs::read_to_string(file)?;
    let sets: Vec<super::LessonWordings> = serde_json::from_str(&text)?;
    let project = ProjectId(crate::support::cluster::id(1, 9_999));
    let mut count = 0;
    // One wording after the other, as tasks would teach them: never the same twice in a row.
    for turn in 0..3 {
        for (number, wordings) in sets.iter().enumerate() {
            let Some(words) = wordings.words.get(turn) else { bail!("three wordings are needed") };
            count += 1;
            let task = tamma_core::ids::TaskId(crate::support::cluster::id(2, 9_000 + count));
            let lesson = wordings.lesson(project, words, task, number)?;
            cluster.store.propose_lessons(project, vec![(lesson.id(task), lesson)]).await?;
        }
    }
    let filter = KnowledgeFilter { project: Some(project), ..KnowledgeFilter::default() };
    Ok((usize::try_from(count)?, cluster.store.list_knowledge(&filter).await?.len()))
}
