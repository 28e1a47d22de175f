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
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::issue::{IssueCategory, IssueSeverity};
use tamma_core::plan::{FileAction, FileChange, Plan};
use tamma_core::review::record::{BaselineSource, CheckRecord, GatesCheck};
use tamma_core::rules::{self, Rules};
use tamma_core::task::{Priority, Task, TaskType};
use tamma_core::task_loop::{
    Command, EventKind, JobKind, Outcome, StepRecord, TaskEvent, TaskReceived, Timestamp, begin,
    step,
};
use tamma_core::version::{Edition, FormatVersion};
use tamma_engine::process::ProcessRecords;
use tamma_flow::RunStarted;
use tamma_flow::activities::{JobRequest, JobResult, PendingSteps, TaskSubmission};
use tamma_store::{RegisteredProject, Store};
use tamma_testkit::agent::{AgentStep, PromptCase, SCRIPT_VARIABLE, Script};
use tamma_testkit::postgres::TestDatabase;
use tamma_testkit::repository::Repository;
use tamma_worker::{Activities, AnnounceStart, Launcher, WorkerConfig};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::cases::{Case, Language, SourceFile};

/// Programs of the experiment.
pub(crate) struct ReviewTools {
    /// Launcher of the sandbox.
    pub(crate) launcher: PathBuf,
    /// Scripted agent.
    pub(crate) agent: PathBuf,
    /// Python environment.
    pub(crate) python: PathBuf,
    /// `node_modules` folder.
    pub(crate) modules: PathBuf,
}

/// Runs reviews on one database.
pub(crate) struct ReviewRunner {
    programs: ReviewTools,
    folder: PathBuf,
    store: Store,
    activities: Activities,
    environment: BTreeMap<String, String>,
    count: u128,
    _database: TestDatabase,
}

/// Repository with its project and the script of its agent.
pub(crate) struct ReviewFixture {
    language: Language,
    project: ProjectId,
    repository: Repository,
    script: PathBuf,
    text: String,
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
        let database = TestDatabase::fresh().await?;
        let store = database.store().await?;
        let mut environment: BTreeMap<String, String> = ["HOME", "LANG", "PATH", "TERM"]
            .into_iter()
            .filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)))
            .collect();
        let search = environment.entry("PATH".to_owned()).or_default();
        *search = format!("{}:{search}", programs.python.join("bin").display());
        let launcher = Launcher { program: programs.launcher.clone(), args: Vec::new() };
        let config = WorkerConfig {
            environment: environment.clone(),
            launcher,
            ..WorkerConfig::new(folder.join("data"))
        };
        let records = ProcessRecords::open(&config.data_dir).await?;
        let activities = Activities::new(config, store.clone(), records).await?;
        let folder = folder.to_owned();
        Ok(Self { programs, folder, store, activities, environment, count: 0, _database: database })
    }

    /// Returns a new ID.
    fn next_id(&mut self) -> Uuid {
        self.count += 1;
        Uuid::from_u128(0x0192_a000_0000_7000_8000_0000_0000_0000 + self.count)
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
        let id = self.next_id();
        let scripts = self.folder.join("scripts").join(id.to_string());
        fs::create_dir_all(&scripts)?;
        let script = scripts.join("script.json");
        let readable = [&scripts, &self.programs.python, &self.programs.modules];
        let readable: Vec<_> = readable.iter().map(|path| path.display().to_string()).collect();
        let text = format!(
            "agents:\n  scripted:\n    command: {}\n    env:\n      {SCRIPT_VARIABLE}: {}\n\
             tiers:\n  simple: {{ agent: scripted }}\n  moderate: {{ agent: scripted }}\n  \
             complex: {{ agent: scripted }}\n\
             gates:\n{}\
             engines: {{ readable: [{}] }}\n\
             review:\n  patterns:\n    not-here: {{ regex: '{}', message: 'write it to the log' }}\n",
            self.programs.agent.display(),
            script.display(),
            language.gates(&self.programs.modules),
            readable.join(", "),
            language.prohibited(),
        );
        // Not committed, so that no change includes it.
        fs::write(repository.path().join("tamma.yaml"), &text)?;
        let project = ProjectId(id);
        let path = repository.path().display().to_string();
        self.store
            .register_project(&RegisteredProject {
                id: project,
                name: id.to_string(),
                repository: path,
            })
            .await?;
        Ok(ReviewFixture { language, project, repository, script, text })
    }

    /// Runs an agent that makes a change, and takes the change through gates and review.
    pub(crate) async fn review(
        &mut self,
        fixture: &ReviewFixture,
        case: Case,
    ) -> Result<ReviewOutcome> {
        let source =
            fs::read_to_string(fixture.repository.path().join(fixture.language.source_path()))?;
        let change = fixture.language.change(case, &source);
        script_of(fixture, &change).write(&fixture.script)?;
        let file = rules::ConfigFile { name: "tamma.yaml", text: &fixture.text };
        let rules = match rules::load(Some(file), &self.environment) {
            Ok(loaded) => loaded.rules.without_secrets(),
            Err(problems) => bail!("invalid configuration: {problems}"),
        };
        let task = Task {
            id: TaskId(self.next_id()),
            project: fixture.project,
            title: case.to_string(),
            description: "Change the shapes.".to_owned(),
            r#type: TaskType::Feature,
            priority: Priority::Medium,
            acceptance_criteria: Vec::new(),
            labels: Vec::new(),
            depends_on: Vec::new(),
            suggested_agent: None,
            issue_url: None,
            metadata: BTreeMap::new(),
        };
        let id = task.id;
        let (passed, took) = Box::pin(self.drive(task, &rules)).await?;
        let mut tested = None;
        let mut parts = Vec::new();
        for check in self.store.checks(id).await? {
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
        tamma_engine::gate::remove_checkout(&self.folder.join("data"), id.0).await?;
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
        let received =
            TaskReceived { task: id, project, priority, at, by, submitted_plan: plan, edition };
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
            let request = JobRequest { job_number, job, pending: pending.clone() };
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
                let event =
                    TaskEvent { format: FormatVersion, at, by: Actor::Tamma, kind: event_kind };
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
fn script_of(fixture: &ReviewFixture, change: &[SourceFile]) -> Script {
    let case = |when: &str, steps| PromptCase { when: when.to_owned(), unless: None, steps };
    let exists = |name: &String| fixture.repository.path().join(name).exists();
    let plan = Plan {
        summary: "The shapes change".to_owned(),
        approach: "Write it.".to_owned(),
        file_changes: change
            .iter()
            .map(|(name, _)| FileChange {
                path: name.clone(),
                action: if exists(name) { FileAction::Modify } else { FileAction::Create },
                description: "as requested".to_owned(),
                estimated_lines: 5,
            })
            .collect(),
        testing_strategy: "The gates.".to_owned(),
        signals: tamma_core::complexity::Signals::default(),
        estimated_tokens: None,
        estimated_cost_usd: None,
        risks: Vec::new(),
        dependencies: Vec::new(),
        test_changes: Vec::new(),
    };
    let write =
        |(name, text): &SourceFile| AgentStep::Write { path: name.into(), content: text.clone() };
    Script {
        cases: vec![
            case("You are the planner", vec![AgentStep::Plan(Box::new(plan))]),
            case("You are implementing", change.iter().map(write).collect()),
        ],
        ..Script::default()
    }
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
