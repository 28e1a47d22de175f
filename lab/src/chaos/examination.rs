//! Checks of a completed task, from outside.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tamma_core::history::{EntryName, HistoryEntry};
use tamma_core::ids::TaskId;
use tamma_core::task_loop::State;
use tamma_flow::activities::names;
use tamma_flow::{TaskWorkflow, workflow_id};
use tamma_store::PlanVerdict;
use tamma_testkit::Cluster;
use tamma_testkit::cluster::PERSON;
use tamma_testkit::sample::SAMPLE_CONTENT;
use tamma_testkit::temporal;
use tamma_testkit::wait::{wait_until, wait_until_true};
use temporalio_client::WorkflowGetResultOptions;

use super::finding::Findings;
use super::fixture::{AGENTS, CRITERION, Fixture};
use crate::support::leftover;

/// Time limit for the end of a workflow.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Time limit for the processes of a task to exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Entries of undisturbed tasks, without and with approval by a person.
#[derive(Debug, Default)]
pub(crate) struct Baseline {
    alone: Option<Vec<EntryName>>,
    approved: Option<Vec<EntryName>>,
}

impl Baseline {
    /// Returns the entries of tasks with or without approval by a person, to set them.
    pub(crate) fn of_mut(&mut self, needs_person: bool) -> &mut Option<Vec<EntryName>> {
        if needs_person { &mut self.approved } else { &mut self.alone }
    }
}

/// Task of an experiment, with its fixture.
#[derive(Debug)]
pub(crate) struct TaskCase {
    pub(crate) task: TaskId,
    pub(crate) fixture: Fixture,
    pub(crate) needs_person: bool,
}

impl TaskCase {
    /// Returns the arguments of `tamma` that add the task. They can be repeated.
    pub(crate) fn add_arguments(&self) -> Vec<String> {
        let title = ["task", "add", "Greet Cy", "--criterion", CRITERION].map(str::to_owned);
        let mut arguments = Vec::from(title);
        arguments.extend(["--project".to_owned(), self.fixture.project.name.clone()]);
        arguments.extend(["--id".to_owned(), self.task.to_string(), "--json".to_owned()]);
        arguments
    }
}

/// Returns the arguments of `tamma` that approve the current plan of a task.
pub(crate) async fn approve_arguments(cluster: &Cluster, task: TaskId) -> Result<[String; 5]> {
    let task_loop = cluster.store.task(task).await?.task_loop?;
    let plan = task_loop.plan.context("the task has no plan")?.hash.to_string();
    let (approve, id) = ("approve".to_owned(), task.to_string());
    Ok([approve, id, "--plan".to_owned(), plan, "--json".to_owned()])
}

/// What may have happened more than once. Each effect still happens once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RunRule {
    /// Nothing: each agent finished once, and the history is that of an undisturbed task.
    Once,
    /// The end of an agent, because two workers had its job.
    RunsRepeated,
    /// Entries of the history too, because an agent, a disk or a worker failed by itself.
    HistoryRepeated,
}

/// Examines completed tasks.
#[derive(Debug)]
pub(crate) struct Examiner<'a> {
    cluster: &'a Cluster,
    baseline: &'a Baseline,
    /// Processes that do not belong to a task.
    known: BTreeSet<u32>,
}

impl<'a> Examiner<'a> {
    /// Creates an examiner. `known` are processes of the cluster.
    pub(crate) fn new(
        cluster: &'a Cluster,
        baseline: &'a Baseline,
        known: impl IntoIterator<Item = u32>,
    ) -> Self {
        let known = known.into_iter().chain([std::process::id()]).collect();
        Self { cluster, baseline, known }
    }

    /// Examines a completed task.
    pub(crate) async fn examine(&self, case: &TaskCase, rule: RunRule) -> Result<Findings> {
        let mut findings = Findings::default();
        let entries = self.cluster.history(case.task).await?;
        let Baseline { alone, approved } = self.baseline;
        let baseline = if case.needs_person { approved } else { alone };
        findings.check_history(&entries, baseline.as_deref());
        if rule == RunRule::HistoryRepeated {
            let repeated = std::mem::take(&mut findings.duplicated);
            findings.notes.extend(repeated);
        }
        let mut runs = Findings::default();
        for job in AGENTS {
            runs.expect_once(&format!("finished run of `{job}`"), case.fixture.ended(job));
            let starts = case.fixture.started(job);
            if starts > 1 {
                runs.add_note(format!("rerun of `{job}`: started {starts} times"));
            }
        }
        if rule >= RunRule::RunsRepeated {
            let repeated = std::mem::take(&mut runs.duplicated);
            runs.notes.extend(repeated);
        }
        findings.extend(runs);
        examine_order(case, &entries, &mut findings);
        self.examine_task_loop(case, entries.len(), &mut findings).await?;
        self.examine_approval(case, &mut findings).await?;
        let branch = self.cluster.store.task_branch(case.task).await?;
        examine_branch(case, &branch, &mut findings)?;
        let exited = || self.leftovers(case).is_empty();
        if wait_until_true("leftover processes", EXIT_TIMEOUT, exited).await.is_err() {
            let left = self.leftovers(case);
            findings.orphaned.extend(left.into_iter().map(|it| format!("{} {}", it.pid, it.line)));
        }
        Ok(findings)
    }

    /// Compares the stored task loop with the history and with the final status of the workflow.
    async fn examine_task_loop(
        &self,
        case: &TaskCase,
        entries: usize,
        findings: &mut Findings,
    ) -> Result<()> {
        let stored = self.cluster.store.task(case.task).await?;
        let task_loop = stored.task_loop?;
        if task_loop.entry_count != entries as u64 {
            findings.add_lost(format!("entries: {entries} of {}", task_loop.entry_count));
        }
        // The workflow ends after its last row is written.
        let id = workflow_id(case.task);
        let ended = async || {
            let client = temporal::connect(&self.cluster.temporal_address()?).await?;
            let handle = client.get_workflow_handle::<TaskWorkflow>(&id);
            Ok(Some(handle.get_result(WorkflowGetResultOptions::default()).await?))
        };
        let Ok(ended) = wait_until("the workflow", TIMEOUT, ended).await else {
            findings.add_lost("the end of the workflow");
            return Ok(());
        };
        let status = serde_json::to_value(ended)?;
        let expected = serde_json::json!({
            "state": task_loop.state,
            "paused": task_loop.paused.is_some(),
            "step": stored.step,
            "plan": task_loop.plan.map(|plan| plan.hash),
        });
        if status != expected {
            findings
                .add_lost(format!("a step: the workflow is at {status}, the row at {expected}"));
        }
        Ok(())
    }

    async fn examine_approval(&self, case: &TaskCase, findings: &mut Findings) -> Result<()> {
        let decisions = self.cluster.store.decisions(case.task).await?;
        findings.expect_once("decision about the plan", decisions.len());
        let expected = if case.needs_person {
            (PlanVerdict::Approve, Some(PERSON.to_owned()))
        } else {
            (PlanVerdict::Auto, None)
        };
        for decision in decisions {
            if (decision.verdict, &decision.by) != (expected.0, &expected.1) {
                let by = decision.by.unwrap_or_default();
                findings.add_lost(format!("the decision maker: {} by `{by}`", decision.verdict));
            }
        }
        Ok(())
    }

    /// Returns the processes that still run for a task.
    pub(crate) fn leftovers(&self, case: &TaskCase) -> Vec<leftover::LeftoverProcess> {
        leftover::find(&case.task.to_string(), &case.fixture.project.folder, &self.known)
    }
}

/// Checks that gates and validator ended before the delivery began, and that the plan was approved before
/// the first run.
fn examine_order(case: &TaskCase, entries: &[HistoryEntry], findings: &mut Findings) {
    let lines = case.fixture.job_lines();
    let first = |wanted: &str| lines.iter().position(|line| line == wanted);
    let delivery = first(&format!("{} begins", names::DELIVER));
    for job in [names::TEST, names::REVIEW] {
        let end = first(&format!("{job} ends"));
        if end.is_none() || delivery.is_some_and(|delivery| end > Some(delivery)) {
            findings.add_skipped(format!("`{job}` before the delivery"));
        }
    }
    let reached = |state| entries.iter().position(|entry| entry.to == state);
    let (approval, run) = (reached(State::Validated), reached(State::InProgress));
    if approval.is_none() || approval > run {
        findings.add_unapproved("a run before the approval");
    }
}

/// Checks the branch of a task: one commit with exactly the planned changes.
fn examine_branch(case: &TaskCase, branch: &str, findings: &mut Findings) -> Result<()> {
    let repository = &case.fixture.project.repository;
    let range = format!("main..{branch}");
    let Ok(commits) = repository.git(&["rev-list", &range]) else {
        findings.add_lost("the branch");
        return Ok(());
    };
    findings.expect_once("commit", commits.lines().count());
    let changed = repository.git(&["diff", "--name-only", "main", branch])?;
    let changed: BTreeSet<_> = changed.lines().map(str::to_owned).collect();
    if changed != case.fixture.paths.iter().cloned().collect() {
        findings.add_lost(format!("the files of the change: {changed:?}"));
    }
    for path in &case.fixture.paths {
        let content = repository.git(&["show", &format!("{branch}:{path}")]).unwrap_or_default();
        if content != SAMPLE_CONTENT.trim() {
            findings.add_lost(format!("the content of `{path}`"));
        }
    }
    Ok(())
}
