//! Runs reviews with the activities of a worker, in place of Temporal.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use chrono::Utc;
use tamma_core::actor::Actor;
use tamma_core::gate::GateStatus;
use tamma_core::issue::{IssueCategory, IssueSeverity};
use tamma_core::plan::{FileAction, FileChange, Plan};
use tamma_core::review::record::{BaselineSource, CheckRecord, GatesCheck};
use tamma_core::rules::Rules;
use tamma_core::task::Task;
use tamma_core::task_loop::{
    Command, EventKind, JobKind, Outcome, StepRecord, TaskEvent, TaskReceived, Timestamp, begin,
    step,
};
use tamma_core::version::{Edition, FormatVersion};
use tamma_engine::process::ProcessRecords;
use tamma_flow::RunStarted;
use tamma_flow::activities::{JobRequest, JobResult, PendingSteps, TaskSubmission};
use tamma_testkit::agent::{AgentStep, Script};
use tamma_testkit::project::{ProjectConfig, ScriptedProject};
use tamma_testkit::repository::Repository;
use tamma_testkit::sample::{sample_change, sample_task, task_id};
use tamma_testkit::{Cluster, sample_plan};
use tamma_worker::{Activities, AnnounceStart, Launcher, WorkerConfig};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::cases::{Case, Language, SourceFile};

/// Programs of the experiment.
pub(crate) struct ReviewTools {
    /// Launcher of the sandbox.
    pub(crate) launcher: PathBuf,
    /// Python environment.
    pub(crate) python: PathBuf,
    /// `node_modules` folder.
    pub(crate) modules: PathBuf,
}

/// Runs reviews on one database.
pub(crate) struct ReviewRunner {
    programs: ReviewTools,
    activities: Activities,
    environment: BTreeMap<String, String>,
    count: u32,
    cluster: Cluster,
}

/// Project in a language.
pub(crate) struct ReviewFixture {
    language: Language,
    project: ScriptedProject,
}

/// Outcome of a review.
pub(crate) struct ReviewOutcome {
    /// Verdict, in the format of [`Language::expected`].
    pub(crate) verdict: String,
    /// Duration of gates and review.
    pub(crate) took: Duration,
    /// Stored result of the gates.
    pub(crate) tested: GatesCheck,
}

impl ReviewOutcome {
    /// Returns the number of base commit results that were not cached.
    pub(crate) fn measured(&self) -> usize {
        self.tested.gates.iter().filter(|ran| ran.baseline == BaselineSource::Measured).count()
    }
}

impl ReviewRunner {
    pub(crate) async fn start(programs: ReviewTools, folder: &Path) -> Result<Self> {
        let cluster = Cluster::builder().folder(folder).start().await?;
        let mut environment: BTreeMap<String, String> = ["HOME", "LANG", "PATH", "TERM"]
            .into_iter()
            .filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)))
            .collect();
        let search = environment.entry("PATH".to_owned()).or_default();
        *search = format!("{}:{search}", programs.python.join("bin").display());
        let launcher = Launcher { program: programs.launcher.clone(), args: Vec::new() };
        let config = WorkerConfig {
            environment: environment.clone(),
            operator: tamma_testkit::operator::test_operator(),
            launcher,
            ..WorkerConfig::new(folder.join("data"))
        };
        let records = ProcessRecords::open(&config.data_dir).await?;
        let activities = Activities::new(config, cluster.store.clone(), records).await?;
        Ok(Self { programs, activities, environment, count: 0, cluster })
    }

    /// Returns the number of a new project or task.
    fn next_number(&mut self) -> u32 {
        self.count += 1;
        self.count
    }

    /// Creates a repository from the input of a language, with additional files in its first commit.
    pub(crate) async fn create_fixture(
        &mut self,
        language: Language,
        more: &[SourceFile],
    ) -> Result<ReviewFixture> {
        let repository = Repository::new()?;
        repository.git(&["rm", "--quiet", "-r", "."])?;
        let fixture = crate::support::programs::input("review");
        copy(&fixture.join(language.to_string()), repository.path())?;
        for (name, text) in more {
            repository.write(name, text)?;
        }
        repository.commit("the shapes")?;
        let number = self.next_number();
        let name = format!("{language}-{number}");
        let ReviewTools { python, modules, .. } = &self.programs;
        let readable = [&self.cluster.folder().join(&name), python, modules];
        let readable = readable.map(|path| path.display().to_string()).join(", ");
        let patterns = format!(
            "review:\n  patterns:\n    not-here: {{ regex: '{}', message: 'write it to the log' }}\n",
            language.prohibited(),
        );
        let configure = |config: ProjectConfig| {
            config
                .gates(language.gates(modules))
                .engines([format!("readable: [{readable}]")])
                .more(&patterns)
        };
        // The configuration is not committed, so that no change includes it.
        let project = self
            .cluster
            .add_project(number, &name, repository, &Script::default(), configure)
            .await?;
        Ok(ReviewFixture { language, project })
    }

    /// Runs an agent that makes a change, and takes the change through gates and review.
    pub(crate) async fn review(
        &mut self,
        fixture: &ReviewFixture,
        case: Case,
    ) -> Result<ReviewOutcome> {
        let repository = fixture.project.repository.path();
        let source = fs::read_to_string(repository.join(fixture.language.source_path()))?;
        let change = fixture.language.change(case, &source);
        fixture.project.write_script(&script_of(repository, &change))?;
        let rules = fixture.project.rules(&self.environment)?;
        let task = Task {
            title: case.to_string(),
            description: "Change the shapes.".to_owned(),
            ..sample_task(task_id(self.next_number()), fixture.project.id)
        };
        let id = task.id;
        let (passed, took) = Box::pin(self.drive(task, &rules)).await?;
        let mut tested = None;
        let mut parts = Vec::new();
        for check in self.cluster.store.checks(id).await? {
            match check.record {
                CheckRecord::Gates(gates) => {
                    let ran =
                        gates.gates.iter().filter(|ran| ran.verdict.status != GateStatus::Passed);
                    parts.extend(
                        ran.map(|ran| format!("{} {}", ran.verdict.name, ran.verdict.status)),
                    );
                    tested = Some(gates);
                }
                CheckRecord::Review(review) => {
                    let issues = review.verdict.inputs.issues;
                    let issues =
                        issues.iter().filter(|issue| issue.severity >= IssueSeverity::Error);
                    parts.extend(issues.map(|issue| describe_issue(issue.category)));
                }
            }
        }
        parts.sort();
        parts.dedup();
        if passed {
            parts.push("passed".to_owned());
        } else if parts.is_empty() {
            parts.push("failed".to_owned());
        }
        let tested = tested.context("no result of the gates is stored")?;
        // The task is not continued; remove its checkout.
        tamma_engine::gate::remove_checkout(&self.cluster.folder().join("data"), id.0).await?;
        Ok(ReviewOutcome { verdict: parts.join(", "), took, tested })
    }

    /// Runs the jobs of a task until it is reviewed or its gates fail.
    ///
    /// Returns `true` if it passed, and the duration of gates and review.
    async fn drive(&self, task: Task, rules: &Rules) -> Result<(bool, Duration)> {
        let (id, project) = (task.id, task.project);
        let by = Actor::Person("Ann".parse()?);
        let (at, priority) = (now(), task.priority);
        let (plan, edition) = (None, Edition::NEWEST);
        let received = TaskReceived {
            task: id,
            project,
            priority,
            at,
            by,
            auth: None,
            submitted_plan: plan,
            edition,
        };
        let first = begin(&received, rules);
        let (mut task_loop, mut due) = (first.next.clone(), first.commands.clone());
        let mut pending = PendingSteps {
            task: id,
            project,
            policy: rules.version(),
            submission: Some(Box::new(TaskSubmission { task, rules: rules.clone() })),
            steps: vec![StepRecord::new(0, at, first)],
        };
        let (mut number, mut took) = (0, Duration::ZERO);
        loop {
            let (job_number, job) = due
                .drain(..)
                .find_map(|command| match command {
                    Command::StartJob { job_number, job, .. } => Some((job_number, job)),
                    _ => None,
                })
                .with_context(|| format!("the task is waiting in `{}`", task_loop.state))?;
            let kind = job.kind();
            let started = Arc::new(std::sync::Mutex::new(None));
            let sink = started.clone();
            let announce: AnnounceStart = Arc::new(move |started: RunStarted| {
                if let Ok(mut slot) = sink.lock() {
                    *slot = Some(started);
                }
                Box::pin(async { Ok(()) })
            });
            let request =
                JobRequest { job_number, job, earlier_attempts: 0, pending: pending.clone() };
            let stop = CancellationToken::new();
            let start = Instant::now();
            let result = self.activities.run_job(request, 1, stop, announce).await?;
            if matches!(kind, JobKind::Test | JobKind::Review) {
                took += start.elapsed();
            }
            let JobResult::Finished { outcome, .. } = result else {
                bail!("{kind} asked for a retry")
            };
            match &outcome {
                Outcome::Tested(gates) if gates.failed > 0 => return Ok((false, took)),
                Outcome::Reviewed { summary, .. } => return Ok((summary.passed, took)),
                Outcome::Failed(failure) => bail!("{kind} failed: {}", failure.reason),
                _ => {}
            }
            pending.submission = None;
            pending.steps.clear();
            let mut events = Vec::new();
            if let Some(RunStarted { at, job_number, agent }) =
                started.lock().ok().and_then(|mut it| it.take())
            {
                events.push((at, EventKind::RunStarted { job_number, agent }));
            }
            events.push((now(), EventKind::JobFinished { job_number, usage: None, outcome }));
            for (at, event_kind) in events {
                let event = TaskEvent {
                    format: FormatVersion,
                    at,
                    by: Actor::Tamma,
                    auth: None,
                    kind: event_kind,
                };
                let step_taken = step(&task_loop, &event, rules).map_err(|error| {
                    anyhow::anyhow!("the task loop refuses the result of {kind}: {error:?}")
                })?;
                task_loop = step_taken.next.clone();
                due.extend(step_taken.commands.iter().cloned());
                number += 1;
                pending.steps.push(StepRecord::new(number, at, step_taken));
            }
            ensure!(number < 100, "the task does not end");
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "stands in for Temporal")]
fn now() -> Timestamp {
    Utc::now()
}

fn describe_issue(category: IssueCategory) -> String {
    format!("a {category} issue")
}

/// Returns the script of an agent that plans a change and makes it.
fn script_of(repository: &Path, change: &[SourceFile]) -> Script {
    let file_change = |(name, _): &SourceFile| {
        let exists = repository.join(name).exists();
        let action = if exists { FileAction::Modify } else { FileAction::Create };
        FileChange { estimated_lines: 5, ..sample_change(name, action) }
    };
    let plan = Plan {
        summary: "The shapes change".to_owned(),
        file_changes: change.iter().map(file_change).collect(),
        ..sample_plan(1)
    };
    let write =
        |(name, text): &SourceFile| AgentStep::Write { path: name.into(), content: text.clone() };
    Script::planned(plan, change.iter().map(write))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("`{}`", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
