//! One case round the circle, report as it happens.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tamma_core::cause::AlertCause;
use tamma_core::history::{EntryData, EntryName, HistoryEntry};
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::knowledge::EntryStatus;
use tamma_core::learning::LessonEvidence;
use tamma_core::task_loop::{State, TaskLoop};
use tamma_store::{KnowledgeAction, KnowledgeFilter, StoredEntry};
use tamma_testkit::agent::SCRIPT_VARIABLE;
use tamma_testkit::model::ScriptedModel;
use tamma_testkit::repository::Repository;

use super::cases::{FILES, LessonCase};
use crate::support::cluster::Cluster;
use crate::support::programs::beside;
use crate::support::scripts;

/// How long a task may take.
const TIMEOUT: Duration = Duration::from_mins(10);

/// What the models cost that the agent asks for. The prices are made up.
const PRICES: &str = "prices:\n  \
    claude-haiku-5-5: { input: 3.0, cached: 0.3, output: 15.0 }\n  \
    claude-sonnet-5-5: { input: 6.0, cached: 0.6, output: 30.0 }\n  \
    claude-opus-5-5: { input: 12.0, cached: 1.2, output: 60.0 }\n";

/// Who does the work.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LoopAgent {
    /// Claude Code, with a scripted model.
    Real,
    /// One that follows a script, without a model.
    Scripted,
}

/// A task that was finished to where the scenario wants it.
struct FinishedTask {
    task: TaskId,
    machine: TaskLoop,
    log: Vec<HistoryEntry>,
}

/// Goes one case round and tells of it. An error says what is not as it should be.
pub(crate) async fn tell(
    cluster: &Cluster,
    agent: &LoopAgent,
    number: u32,
    case: LessonCase,
    report: &mut String,
) -> Result<()> {
    let repository = Repository::new()?;
    for (name, text) in FILES {
        repository.write(name, text)?;
    }
    // The model listens for as long as this lives.
    let (configuration, _model) = configured(cluster, agent, case).await?;
    repository.write("tamma.yaml", &configuration)?;
    repository.commit("a generated file")?;
    let name = format!("circle-{case}");
    let project = cluster.register_project(number, &name, &repository).await?;
    let play = async |task: u32, title: &str| -> Result<FinishedTask> {
        let task = cluster.add_task(number * 10 + task, title, &["--project", &name]).await?;
        let machine = cluster.until(task, TIMEOUT, is_over).await?;
        let log = if machine.state.is_terminal() {
            cluster.learned_history(task, TIMEOUT).await?
        } else {
            cluster.history(task).await?
        };
        Ok(FinishedTask { task, machine, log })
    };

    writeln!(
        report,
        "\n== {case} ==\n\n1. A task fails twice for a reason, is mended, and teaches."
    )?;
    let first = play(1, "Add the field colour to the API").await?;
    events(report, &first)?;
    ensure!(first.machine.state == State::Completed, "it is {}", first.machine.state);
    ensure!(first.machine.iterations == 3, "it took {} attempts", first.machine.iterations);
    let lesson = only(cluster, project).await?;
    resolves(cluster, &lesson).await?;
    entry(report, &lesson)?;
    ensure!(lesson.entry.kind == case.kind(), "the lesson is a {}", lesson.entry.kind);
    ensure!(lesson.entry.status == EntryStatus::Pending, "the lesson does not wait");

    writeln!(
        report,
        "\n2. The lesson waits and changes nothing: the same happens to the next task."
    )?;
    let second = play(2, "Add the field colour to the API, once more").await?;
    events(report, &second)?;
    ensure!(second.machine.iterations == 3, "it took {} attempts", second.machine.iterations);
    let matched = cluster.store.plan_matches(second.task, hash(&second)?).await?;
    ensure!(matched.is_empty(), "a lesson that waits was matched");
    let merged = only(cluster, project).await?;
    resolves(cluster, &merged).await?;
    ensure!(merged.entry.evidence.len() > lesson.entry.evidence.len(), "no evidence was added");
    let deeds: Vec<KnowledgeAction> = cluster
        .store
        .knowledge_changes(merged.entry.id)
        .await?
        .iter()
        .map(|it| it.action)
        .collect();
    ensure!(
        deeds == [KnowledgeAction::Proposed, KnowledgeAction::Merged],
        "the entry was {deeds:?}"
    );
    writeln!(report, "   It taught the same: still one entry, with the evidence of both tasks.")?;
    entry(report, &merged)?;

    writeln!(report, "\n3. A person approves it.")?;
    let id = merged.entry.id.to_string();
    let said = cluster.tamma(&["knowledge", "approve", &id, "--reason", "seen twice"]).await?;
    writeln!(
        report,
        "   $ tamma knowledge approve {id}\n   {}",
        said.trim().replace('\n', "\n   ")
    )?;

    let third = play(3, "Add the field colour to the API, a third time").await?;
    match case {
        LessonCase::Prohibition => {
            writeln!(report, "\n4. A plan that would do the same is stopped before any code.")?;
            events(report, &third)?;
            let cause = third.machine.open_question.as_ref().map(|question| question.cause);
            ensure!(
                matches!(cause, Some(AlertCause::Blocked(_))),
                "a person is asked because of {cause:?}"
            );
            ensure!(third.machine.iterations == 0 && !third.machine.has_work, "code was written");
        }
        LessonCase::Recommendation => {
            writeln!(report, "\n4. Whoever is report passes at the first review.")?;
            events(report, &third)?;
            ensure!(third.machine.state == State::Completed, "it is {}", third.machine.state);
            ensure!(third.machine.iterations == 1, "it took {} attempts", third.machine.iterations);
        }
    }
    let matched = cluster.store.plan_matches(third.task, hash(&third)?).await?;
    let found = matched.iter().find(|it| it.matched.entry == merged.entry.id);
    let found = found.context("the lesson was not matched")?;
    ensure!(found.shown, "nobody was report");
    for reason in &found.matched.reasons {
        writeln!(report, "   matched as {} because {reason}", found.process)?;
    }
    figures(report, &[&first, &second], &third)?;
    effect(cluster, report, &id).await?;
    if third.machine.state == State::HumanEscalation {
        let task = third.task.to_string();
        cluster.tamma(&["cancel", &task, "--reason", "the plan is forbidden"]).await?;
        cluster.learned_history(third.task, TIMEOUT).await?;
    }
    Ok(())
}

/// What the figures of the entry itself say: which tasks it met, and what followed.
async fn effect(cluster: &Cluster, report: &mut String, id: &str) -> Result<()> {
    let said = cluster.tamma(&["knowledge", "show", id, "--json"]).await?;
    let shown: serde_json::Value = serde_json::from_str(&said)?;
    let effect = &shown["effect"];
    let number = |value: &serde_json::Value| value.as_u64().context("no figure");
    let (matched, stopped) = (number(&effect["matched"])?, number(&effect["stopped"])?);
    let (with, passed) =
        (number(&effect["with"]["tasks"])?, number(&effect["with"]["first_pass"])?);
    writeln!(
        report,
        "   $ tamma knowledge show {id}\n   it met {matched} task, stopped {stopped}; of {with} that \
         ran with it {passed} passed at the first review: {}",
        effect["in_words"].as_str().unwrap_or_default()
    )?;
    ensure!(matched >= 1, "the entry's own figures know of no task that it met");
    Ok(())
}

async fn configured(
    cluster: &Cluster,
    agent: &LoopAgent,
    case: LessonCase,
) -> Result<(String, Option<ScriptedModel>)> {
    let gates = "gates:\n  generated: { command: sh gate.sh, kind: tests }\n";
    match agent {
        LoopAgent::Real => {
            let model = ScriptedModel::start(scripts::model_script(case.script_cases())).await?;
            let tier = |model: &str| format!("{{ agent: claude-code, model: {model} }}");
            let text = format!(
                "agents:\n  claude-code:\n    upstream: {}\ntiers:\n  simple: {}\n  moderate: {}\n  \
                 complex: {}\n{gates}{PRICES}",
                model.url(),
                tier("haiku"),
                tier("sonnet"),
                tier("opus"),
            );
            Ok((text, Some(model)))
        }
        LoopAgent::Scripted => {
            let script = cluster.folder.join(format!("{case}.json"));
            scripts::agent_script(case.script_cases()).write(&script)?;
            let tier = "{ agent: scripted }";
            let text = format!(
                "agents:\n  scripted:\n    command: {}\n    env:\n      {SCRIPT_VARIABLE}: {}\ntiers:\n  \
                 simple: {tier}\n  moderate: {tier}\n  complex: {tier}\n{gates}engines: {{ sandbox: off }}\n",
                beside("scripted-agent")?.display(),
                script.display(),
            );
            Ok((text, None))
        }
    }
}

/// Whether a task has ended, or a person has to look.
fn is_over(machine: &TaskLoop) -> Result<bool> {
    if machine.state == State::AwaitingApproval && machine.open_question.is_some() {
        bail!("its plan waits for an approval");
    }
    let asked = machine.state == State::HumanEscalation && machine.active_job.is_none();
    Ok(asked || machine.state.is_terminal())
}

fn hash(finished: &FinishedTask) -> Result<tamma_core::ids::PlanHash> {
    Ok(finished.machine.plan.as_ref().context("it has no plan")?.hash)
}

/// The only entry of a project.
async fn only(cluster: &Cluster, project: ProjectId) -> Result<StoredEntry> {
    let filter = KnowledgeFilter { project: Some(project), ..KnowledgeFilter::default() };
    let mut all = cluster.store.list_knowledge(&filter).await?;
    ensure!(all.len() == 1, "there are {} entries: {all:#?}", all.len());
    all.pop().context("there is one")
}

async fn resolves(cluster: &Cluster, known: &StoredEntry) -> Result<()> {
    ensure!(!known.entry.evidence.is_empty(), "the lesson has no evidence");
    for one in &known.entry.evidence {
        let evidence: LessonEvidence = one.as_str().parse().map_err(anyhow::Error::msg)?;
        ensure!(cluster.store.evidence_exists(evidence).await?, "`{one}` is nowhere");
    }
    Ok(())
}

/// What happened, as far as the scenario is about it.
fn events(report: &mut String, finished: &FinishedTask) -> Result<()> {
    for entry in &finished.log {
        let says = matches!(
            entry.name,
            EntryName::SmTaskReceived
                | EntryName::SmPlanGenerated
                | EntryName::SmPlanAdjusted
                | EntryName::SmKnowledgeChecked
                | EntryName::SmImplementationStarted
                | EntryName::SmGatesFailed
                | EntryName::SmReviewPassed
                | EntryName::SmDecisionMade
                | EntryName::SmLearningCaptured
                | EntryName::SmTaskCompleted
                | EntryName::SmErrorOccurred
        ) || entry.to == State::HumanEscalation;
        if !says {
            continue;
        }
        let more = match &entry.data {
            EntryData::Check(check) => format!("{} blockers", check.blockers),
            EntryData::Decision(decision) => decision.to_string(),
            EntryData::Lessons(lessons) => format!("{lessons} lesson"),
            EntryData::Spend(spend) => spend.usd.to_string(),
            EntryData::Cause(cause) => format!("{cause:?}"),
            _ => String::new(),
        };
        let more = match &entry.reason {
            Some(reason) => format!("{more}: {reason}"),
            None => more,
        };
        writeln!(
            report,
            "   {:>3} {:<26} {} {more}",
            entry.sequence,
            entry.name.to_string(),
            entry.to
        )?;
    }
    Ok(())
}

fn entry(report: &mut String, known: &StoredEntry) -> Result<()> {
    let entry = &known.entry;
    writeln!(report, "   {} {}, {}: {}", entry.status, entry.kind, entry.severity, entry.text)?;
    for one in &entry.evidence {
        writeln!(report, "       evidence {one}")?;
    }
    Ok(())
}

/// What it did, in figures.
fn figures(report: &mut String, without: &[&FinishedTask], with: &FinishedTask) -> Result<()> {
    writeln!(report, "\n5. The figures.")?;
    let line = |finished: &FinishedTask| {
        format!(
            "{} attempts, {} spent, {}",
            finished.machine.iterations, finished.machine.spend.usd, finished.machine.state
        )
    };
    for finished in without {
        writeln!(report, "   without it: {}", line(finished))?;
    }
    writeln!(report, "   with it:    {}", line(with))?;
    Ok(())
}
