//! Where reviews are tried: a database, a data folder, and the hands of a worker, which do the jobs of
//! a task as the durable engine would ask for them.

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
use tamma_testkit::agent::{AgentStep, PromptCase as Part, SCRIPT_VARIABLE, Script};
use tamma_testkit::postgres::TestDatabase;
use tamma_testkit::repository::Repository;
use tamma_worker::{Activities, AnnounceStart, Launcher, WorkerConfig};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::cases::{Case, File, Language};

/// The programs that are used.
pub(crate) struct Programs {
    /// What comes first in a sandbox.
    pub(crate) launcher: PathBuf,
    /// The agent that does what a script says.
    pub(crate) agent: PathBuf,
    /// Where pip has put things.
    pub(crate) python: PathBuf,
    /// Where npm has put things.
    pub(crate) modules: PathBuf,
}

/// Everything that the reviews share.
pub(crate) struct Ground {
    programs: Programs,
    folder: PathBuf,
    store: Store,
    hands: Activities,
    environment: BTreeMap<String, String>,
    count: u128,
    _database: TestDatabase,
}

/// A repository that tasks are made for.
pub(crate) struct Site {
    language: Language,
    project: ProjectId,
    repository: Repository,
    script: PathBuf,
    text: String,
}

/// What a review came to.
pub(crate) struct Came {
    /// In the words of [`Language::expected`].
    pub(crate) what: String,
    /// How long gates and review took.
    pub(crate) took: Duration,
    /// What is kept of the gates.
    pub(crate) tested: GatesCheck,
}

impl Came {
    /// How many results of the base commit had to be found out.
    pub(crate) fn taken(&self) -> usize {
        self.tested.gates.iter().filter(|ran| ran.baseline == BaselineSource::Measured).count()
    }
}

impl Ground {
    pub(crate) async fn prepare(programs: Programs, folder: &Path) -> Result<Self> {
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
        let hands = Activities::new(config, store.clone(), records).await?;
        let folder = folder.to_owned();
        Ok(Self { programs, folder, store, hands, environment, count: 0, _database: database })
    }

    /// An identity that nobody else has.
    fn id(&mut self) -> Uuid {
        self.count += 1;
        Uuid::from_u128(0x0192_a000_0000_7000_8000_0000_0000_0000 + self.count)
    }

    /// A repository of the fixture, with more in its first commit.
    pub(crate) async fn site(&mut self, language: Language, more: &[File]) -> Result<Site> {
        let repository = Repository::new()?;
        repository.git(&["rm", "--quiet", "-r", "."])?;
        let fixture = crate::support::programs::input("review");
        copy(&fixture.join(language.to_string()), repository.path())?;
        for (name, text) in more {
            repository.write(name, text)?;
        }
        repository.commit("the shapes")?;
        let id = self.id();
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
        // Beside the repository's files, and not one of them: nobody's change is about it.
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
        Ok(Site { language, project, repository, script, text })
    }

    /// Lets an agent make a change, and takes it through gates and review.
    pub(crate) async fn review(&mut self, site: &Site, case: Case) -> Result<Came> {
        let whole = fs::read_to_string(site.repository.path().join(site.language.source()))?;
        let change = site.language.change(case, &whole);
        script_of(site, &change).write(&site.script)?;
        let file = rules::ConfigFile { name: "tamma.yaml", text: &site.text };
        let rules = match rules::load(Some(file), &self.environment) {
            Ok(loaded) => loaded.rules.without_secrets(),
            Err(problems) => bail!("the configuration is wrong: {problems}"),
        };
        let task = Task {
            id: TaskId(self.id()),
            project: site.project,
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
        let mut said = Vec::new();
        for check in self.store.checks(id).await? {
            match check.record {
                CheckRecord::Gates(gates) => {
                    let ran =
                        gates.gates.iter().filter(|ran| ran.verdict.status != GateStatus::Passed);
                    said.extend(
                        ran.map(|ran| format!("{} {}", ran.verdict.name, ran.verdict.status)),
                    );
                    tested = Some(gates);
                }
                CheckRecord::Review(review) => {
                    let issues = review.verdict.inputs.issues;
                    let issues =
                        issues.iter().filter(|issue| issue.severity >= IssueSeverity::Error);
                    said.extend(issues.map(|issue| in_words(issue.category)));
                }
            }
        }
        said.sort();
        said.dedup();
        if passed {
            said.push("passed".to_owned());
        } else if said.is_empty() {
            said.push("failed".to_owned());
        }
        let tested = tested.context("nothing is kept of the gates")?;
        // It ends here, and what it has on the disk goes.
        tamma_engine::gate::remove_checkout(&self.folder.join("data"), id.0).await?;
        Ok(Came { what: said.join(", "), took, tested })
    }

    /// Does the jobs of a task until it is reviewed, or its gates have failed. Says whether it passed,
    /// and how long gates and review took.
    async fn drive(&self, task: Task, rules: &Rules) -> Result<(bool, Duration)> {
        let (id, project) = (task.id, task.project);
        let by = Actor::Person("Ann".parse()?);
        let (at, priority) = (now(), task.priority);
        let (plan, edition) = (None, Edition::NEWEST);
        let received =
            TaskReceived { task: id, project, priority, at, by, submitted_plan: plan, edition };
        let first = begin(&received, rules);
        let (mut memory, mut due) = (first.next.clone(), first.commands.clone());
        let mut diary = PendingSteps {
            task: id,
            project,
            policy: rules.version(),
            submission: Some(Box::new(TaskSubmission { task, rules: rules.clone() })),
            steps: vec![StepRecord::new(0, at, first)],
        };
        let (mut number, mut took) = (0, Duration::ZERO);
        loop {
            let (ticket, job) = due
                .drain(..)
                .find_map(|command| match command {
                    Command::StartJob { job_number: ticket, job, .. } => Some((ticket, job)),
                    _ => None,
                })
                .with_context(|| format!("the task waits in `{}`", memory.state))?;
            let kind = job.kind();
            let begun = Arc::new(std::sync::Mutex::new(None));
            let heard = begun.clone();
            let announce: AnnounceStart = Arc::new(move |told: RunStarted| {
                if let Ok(mut heard) = heard.lock() {
                    *heard = Some(told);
                }
                Box::pin(async { Ok(()) })
            });
            let errand = JobRequest { job_number: ticket, job, pending: diary.clone() };
            let stop = CancellationToken::new();
            let since = Instant::now();
            let answer = self.hands.run_job(errand, 1, stop, announce).await?;
            if matches!(kind, JobKind::Test | JobKind::Review) {
                took += since.elapsed();
            }
            let JobResult::Finished { outcome, .. } = answer else { bail!("{kind} has to wait") };
            match &outcome {
                Outcome::Tested(gates) if gates.failed > 0 => return Ok((false, took)),
                Outcome::Reviewed { summary, .. } => return Ok((summary.passed, took)),
                Outcome::Failed(failure) => bail!("{kind} failed: {}", failure.reason),
                _ => {}
            }
            diary.submission = None;
            diary.steps.clear();
            let mut events = Vec::new();
            if let Some(RunStarted { at, job_number: ticket, agent: engine }) =
                begun.lock().ok().and_then(|mut it| it.take())
            {
                events.push((at, EventKind::RunStarted { job_number: ticket, agent: engine }));
            }
            events
                .push((now(), EventKind::JobFinished { job_number: ticket, usage: None, outcome }));
            for (at, what) in events {
                let event = TaskEvent { format: FormatVersion, at, by: Actor::Tamma, kind: what };
                let taken = step(&memory, &event, rules).map_err(|error| {
                    anyhow::anyhow!("the machine refuses what {kind} came to: {error:?}")
                })?;
                memory = taken.next.clone();
                due.extend(taken.commands.iter().cloned());
                number += 1;
                diary.steps.push(StepRecord::new(number, at, taken));
            }
            ensure!(number < 100, "the task goes in circles");
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the edge: it stands for the durable engine")]
fn now() -> Timestamp {
    Utc::now()
}

fn in_words(category: IssueCategory) -> String {
    format!("a {category} issue")
}

/// An agent that plans a change and makes it.
fn script_of(site: &Site, change: &[File]) -> Script {
    let part = |when: &str, steps| Part { when: when.to_owned(), unless: None, steps };
    let is_there = |name: &String| site.repository.path().join(name).exists();
    let plan = Plan {
        summary: "The shapes change".to_owned(),
        approach: "Write it.".to_owned(),
        file_changes: change
            .iter()
            .map(|(name, _)| FileChange {
                path: name.clone(),
                action: if is_there(name) { FileAction::Modify } else { FileAction::Create },
                description: "as it is wanted".to_owned(),
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
    let write = |(name, text): &File| AgentStep::Write { path: name.into(), content: text.clone() };
    Script {
        cases: vec![
            part("You are the planner", vec![AgentStep::Plan(Box::new(plan))]),
            part("You are implementing", change.iter().map(write).collect()),
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
