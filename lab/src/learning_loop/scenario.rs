//! Scenario of one case, with a report of each step.

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
use tamma_testkit::Cluster;
use tamma_testkit::model::ScriptedModel;
use tamma_testkit::project::ProjectConfig;
use tamma_testkit::repository::Repository;

use super::cases::{FILES, LessonCase};
use crate::support::scripts::{self, PRICES};

/// Time limit of a task.
const TIMEOUT: Duration = Duration::from_mins(10);

/// Agent of the experiment.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LoopAgent {
    /// Claude Code with a scripted model.
    Real,
    /// Scripted agent without a model.
    Scripted,
}

/// Task that is closed or needs a decision.
struct FinishedTask {
    task: TaskId,
    task_loop: TaskLoop,
    history: Vec<HistoryEntry>,
}

/// Runs one case and appends each step to `report`.
#[expect(clippy::too_many_lines, reason = "one case, told step by step")]
pub(crate) async fn run(
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
    // Dropping the model stops it.
    let (configuration, _model) = configuration(cluster, agent, case).await?;
    repository.write("tamma.yaml", &configuration)?;
    repository.commit("a generated file")?;
    let name = format!("loop-{case}");
    let project = cluster.register_project(number, &name, &repository).await?;
    let run_task = async |task: u32, title: &str| -> Result<FinishedTask> {
        let task = cluster.add_task(number * 10 + task, title, &["--project", &name]).await?;
        let task_loop = cluster.wait_for_task(task, TIMEOUT, is_settled).await?;
        let history = if task_loop.state.is_terminal() {
            cluster.learned_history(task, TIMEOUT).await?
        } else {
            cluster.history(task).await?
        };
        Ok(FinishedTask { task, task_loop, history })
    };

    writeln!(report, "\n== {case} ==\n\n1. A task fails twice, is fixed, and leaves a lesson.")?;
    let first = run_task(1, "Add the field colour to the API").await?;
    print_history(report, &first)?;
    ensure!(first.task_loop.state == State::Completed, "the task is {}", first.task_loop.state);
    ensure!(
        first.task_loop.iterations == 3,
        "the task took {} attempts",
        first.task_loop.iterations
    );
    let lesson = only_entry(cluster, project).await?;
    check_evidence(cluster, &lesson).await?;
    print_entry(report, &lesson)?;
    ensure!(lesson.entry.kind == case.kind(), "the lesson is a {}", lesson.entry.kind);
    ensure!(lesson.entry.status == EntryStatus::Pending, "the lesson is not pending");

    writeln!(report, "\n2. The pending lesson changes nothing: the next task fails the same way.")?;
    let second = run_task(2, "Add the field colour to the API, once more").await?;
    print_history(report, &second)?;
    ensure!(
        second.task_loop.iterations == 3,
        "the task took {} attempts",
        second.task_loop.iterations
    );
    let matched = cluster.store.plan_matches(second.task, hash(&second)?).await?;
    ensure!(matched.is_empty(), "a pending lesson was matched");
    let merged = only_entry(cluster, project).await?;
    check_evidence(cluster, &merged).await?;
    ensure!(merged.entry.evidence.len() > lesson.entry.evidence.len(), "no evidence was added");
    let actions: Vec<KnowledgeAction> = cluster
        .store
        .knowledge_changes(merged.entry.id)
        .await?
        .iter()
        .map(|it| it.action)
        .collect();
    ensure!(
        actions == [KnowledgeAction::Proposed, KnowledgeAction::Merged],
        "unexpected changes of the entry: {actions:?}"
    );
    writeln!(
        report,
        "   It leaves the same lesson: still one entry, with evidence from both tasks."
    )?;
    print_entry(report, &merged)?;

    writeln!(report, "\n3. A person approves the lesson.")?;
    let id = merged.entry.id.to_string();
    let output = cluster.cli.run(&["knowledge", "approve", &id, "--reason", "seen twice"]).await?;
    writeln!(
        report,
        "   $ tamma knowledge approve {id}\n   {}",
        output.trim().replace('\n', "\n   ")
    )?;

    let third = run_task(3, "Add the field colour to the API, a third time").await?;
    match case {
        LessonCase::Prohibition => {
            writeln!(
                report,
                "\n4. A plan that repeats the mistake is stopped before any code is written."
            )?;
            print_history(report, &third)?;
            let cause = third.task_loop.open_question.as_ref().map(|question| question.cause);
            ensure!(
                matches!(cause, Some(AlertCause::Blocked(_))),
                "unexpected cause of the decision request: {cause:?}"
            );
            ensure!(
                third.task_loop.iterations == 0 && !third.task_loop.has_work,
                "code was written"
            );
        }
        LessonCase::Recommendation => {
            writeln!(report, "\n4. With the lesson, the task passes its first review.")?;
            print_history(report, &third)?;
            ensure!(
                third.task_loop.state == State::Completed,
                "the task is {}",
                third.task_loop.state
            );
            ensure!(
                third.task_loop.iterations == 1,
                "the task took {} attempts",
                third.task_loop.iterations
            );
        }
    }
    let matched = cluster.store.plan_matches(third.task, hash(&third)?).await?;
    let lesson = matched.iter().find(|it| it.matched.entry == merged.entry.id);
    let lesson = lesson.context("the lesson was not matched")?;
    ensure!(lesson.shown, "the lesson was not shown to an agent");
    for reason in &lesson.matched.reasons {
        writeln!(report, "   matched as {}: {reason}", lesson.role)?;
    }
    print_comparison(report, &[&first, &second], &third)?;
    effect(cluster, report, &id).await?;
    if third.task_loop.state == State::HumanEscalation {
        let task = third.task.to_string();
        cluster.cli.run(&["cancel", &task, "--reason", "the plan is forbidden"]).await?;
        cluster.learned_history(third.task, TIMEOUT).await?;
    }
    Ok(())
}

/// Checks the statistics of the entry: matched tasks, and their results.
async fn effect(cluster: &Cluster, report: &mut String, id: &str) -> Result<()> {
    let output = cluster.cli.run(&["knowledge", "show", id, "--json"]).await?;
    let detail: serde_json::Value = serde_json::from_str(&output)?;
    let effect = &detail["effect"];
    let number = |value: &serde_json::Value| value.as_u64().context("a figure is missing");
    let (matched, stopped) = (number(&effect["matched"])?, number(&effect["stopped"])?);
    let (with, passed) =
        (number(&effect["with"]["tasks"])?, number(&effect["with"]["first_pass"])?);
    writeln!(
        report,
        "   $ tamma knowledge show {id}\n   matched {matched}, stopped {stopped}; of {with} tasks with it, \
         {passed} passed the first review: {}",
        effect["in_words"].as_str().unwrap_or_default()
    )?;
    ensure!(matched >= 1, "the statistics of the entry have no matched task");
    Ok(())
}

async fn configuration(
    cluster: &Cluster,
    agent: &LoopAgent,
    case: LessonCase,
) -> Result<(String, Option<ScriptedModel>)> {
    let gates = "  generated: { command: sh gate.sh, kind: tests }\n";
    let (config, model) = match agent {
        LoopAgent::Real => {
            let model = ScriptedModel::start(scripts::model_script(case.script_cases())).await?;
            let models = ["haiku", "sonnet", "opus"];
            let config = ProjectConfig::upstream("claude-code", &model.url(), models).more(PRICES);
            (config, Some(model))
        }
        LoopAgent::Scripted => {
            let script = cluster.folder().join(format!("{case}.json"));
            scripts::agent_script(case.script_cases()).write(&script)?;
            (ProjectConfig::scripted(&script)?, None)
        }
    };
    Ok((config.gates(gates).to_string(), model))
}

/// Returns `true` if a task is closed or needs a decision.
fn is_settled(task_loop: &TaskLoop) -> Result<bool> {
    if task_loop.state == State::AwaitingApproval && task_loop.open_question.is_some() {
        bail!("the plan unexpectedly awaits approval");
    }
    let needs_decision =
        task_loop.state == State::HumanEscalation && task_loop.active_job.is_none();
    Ok(needs_decision || task_loop.state.is_terminal())
}

fn hash(finished: &FinishedTask) -> Result<tamma_core::ids::PlanHash> {
    Ok(finished.task_loop.plan.as_ref().context("the task has no plan")?.hash)
}

/// Returns the only entry of a project.
async fn only_entry(cluster: &Cluster, project: ProjectId) -> Result<StoredEntry> {
    let filter = KnowledgeFilter { project: Some(project), ..KnowledgeFilter::default() };
    let mut all = cluster.store.list_knowledge(&filter).await?;
    ensure!(all.len() == 1, "expected one entry, found {}: {all:#?}", all.len());
    all.pop().context("no entry")
}

async fn check_evidence(cluster: &Cluster, lesson: &StoredEntry) -> Result<()> {
    ensure!(!lesson.entry.evidence.is_empty(), "the lesson has no evidence");
    for reference in &lesson.entry.evidence {
        let evidence: LessonEvidence = reference.as_str().parse().map_err(anyhow::Error::msg)?;
        ensure!(
            cluster.store.evidence_exists(evidence).await?,
            "evidence `{reference}` does not exist"
        );
    }
    Ok(())
}

/// Prints the relevant history entries of a task.
fn print_history(report: &mut String, finished: &FinishedTask) -> Result<()> {
    for entry in &finished.history {
        let is_relevant = matches!(
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
        if !is_relevant {
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

fn print_entry(report: &mut String, known: &StoredEntry) -> Result<()> {
    let entry = &known.entry;
    writeln!(report, "   {} {}, {}: {}", entry.status, entry.kind, entry.severity, entry.text)?;
    for one in &entry.evidence {
        writeln!(report, "       evidence {one}")?;
    }
    Ok(())
}

/// Compares the tasks without and with the lesson.
fn print_comparison(
    report: &mut String,
    without: &[&FinishedTask],
    with: &FinishedTask,
) -> Result<()> {
    writeln!(report, "\n5. Comparison")?;
    let line = |finished: &FinishedTask| {
        format!(
            "{} attempts, {} spent, {}",
            finished.task_loop.iterations, finished.task_loop.spend.usd, finished.task_loop.state
        )
    };
    for finished in without {
        writeln!(report, "   without the lesson: {}", line(finished))?;
    }
    writeln!(report, "   with the lesson:    {}", line(with))?;
    Ok(())
}
