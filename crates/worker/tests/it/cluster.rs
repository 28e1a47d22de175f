//! Test cluster with all components of the task loop, private to one test.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use tamma_core::actor::Actor;
use tamma_core::history::{EntryName, HistoryEntry};
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::plan::{FileAction, FileChange, Plan};
use tamma_core::rules::{self, Rules};
use tamma_core::task::{Priority, Task, TaskType};
use tamma_core::task_loop::{self, State, TaskLoop, TaskReceived};
use tamma_core::version::Edition;
use tamma_engine::agent::AgentTimeouts;
use tamma_flow::{
    ActionRequest, ActionResponse, TASK_QUEUE, TaskWorkflow, WorkflowInput, WorkflowOrigin,
    WorkflowTuning, search_attributes, workflow_id,
};
use tamma_store::{RegisteredProject, Store};
use tamma_testkit::agent::{AgentStep, PromptCase, SCRIPT_VARIABLE, Script, program};
use tamma_testkit::postgres::TestDatabase;
use tamma_testkit::repository::Repository;
use tamma_testkit::temporal::TemporalServer;
use tamma_worker::WorkerConfig;
use tempfile::TempDir;
use temporalio_client::{
    Client, ClientOptions, Connection, ConnectionOptions, Url, WorkflowExecuteUpdateOptions,
    WorkflowHandle, WorkflowStartOptions,
};
use temporalio_common::search_attributes::SearchAttributes;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Timeout of every wait in a test.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);

pub(crate) struct Cluster {
    pub(crate) temporal: TemporalServer,
    _database: TestDatabase,
    pub(crate) store: Store,
    pub(crate) repository: Repository,
    pub(crate) folder: TempDir,
    pub(crate) project: ProjectId,
    pub(crate) tuning: WorkflowTuning,
    /// Additional configuration.
    extra_config: String,
}

impl Cluster {
    /// Starts all components with a scripted agent.
    pub(crate) async fn start(script: &Script) -> Self {
        Self::start_with(script, "").await
    }

    /// Starts all components with additional configuration.
    pub(crate) async fn start_with(script: &Script, extra_config: &str) -> Self {
        let database = TestDatabase::fresh().await.unwrap();
        let store = database.store().await.unwrap();
        let cluster = Self {
            temporal: TemporalServer::start().await.unwrap(),
            _database: database,
            store,
            repository: Repository::new().unwrap(),
            folder: tempfile::tempdir().unwrap(),
            project: ProjectId(Uuid::from_u128(1)),
            tuning: WorkflowTuning { heartbeat_seconds: 5, ..WorkflowTuning::default() },
            extra_config: extra_config.to_owned(),
        };
        script.write(&cluster.script()).unwrap();
        cluster.repository.write("tamma.yaml", &cluster.configuration()).unwrap();
        let repository = cluster.repository.path().display().to_string();
        let project =
            RegisteredProject { id: cluster.project, name: "greeter".to_owned(), repository };
        cluster.store.register_project(&project).await.unwrap();
        cluster
    }

    /// Replaces the agent's script.
    pub(crate) fn replace_script(&self, script: &Script) {
        script.write(&self.script()).unwrap();
    }

    /// Reads a file from a task's checkpoint in the mirror.
    pub(crate) fn checkpoint_file(&self, task: TaskId, file: &str) -> String {
        let mirror = format!("data/mirrors/{}.git", self.project);
        let mirror = self.folder.path().join(mirror).display().to_string();
        let object = format!("refs/tamma/checkpoints/{task}:{file}");
        self.repository.git(&["--git-dir", &mirror, "show", &object]).unwrap()
    }

    fn script(&self) -> PathBuf {
        self.folder.path().join("script.json")
    }

    /// Returns the path of a file outside every checkout.
    pub(crate) fn scratch_file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn configuration(&self) -> String {
        // By name, because stored histories contain the rules and must not contain local paths.
        format!(
            "agents:\n  scripted:\n    command: scripted-agent\n    env:\n      {SCRIPT_VARIABLE}: {}\n\
             tiers:\n  simple: {{ agent: scripted }}\n  moderate: {{ agent: scripted }}\n  \
             complex: {{ agent: scripted }}\n\
             gates:\n  check: {{ command: sh check.sh, kind: tests }}\n{}",
            self.script().display(),
            self.extra_config,
        )
    }

    pub(crate) fn rules(&self) -> Rules {
        let text = self.configuration();
        let file = rules::ConfigFile { name: "tamma.yaml", text: &text };
        rules::load(Some(file), &Self::environment()).unwrap().rules.without_secrets()
    }

    /// Environment of the worker. The scripted agent writes outside of its worktree for the tests,
    /// so it has no sandbox; the sandbox is tested elsewhere.
    fn environment() -> BTreeMap<String, String> {
        let agent = program().unwrap();
        let path =
            format!("{}:{}", agent.parent().unwrap().display(), std::env::var("PATH").unwrap());
        let sandbox = ("TAMMA_ENGINES_SANDBOX".to_owned(), "off".to_owned());
        BTreeMap::from([("PATH".to_owned(), path), sandbox])
    }

    pub(crate) fn config(&self) -> WorkerConfig {
        WorkerConfig {
            environment: Self::environment(),
            timeouts: AgentTimeouts { late_usage: Duration::ZERO, ..AgentTimeouts::default() },
            ..WorkerConfig::new(self.folder.path().join("data"))
        }
    }

    pub(crate) async fn client(&self) -> Client {
        let url: Url = format!("http://{}", self.temporal.address()).parse().unwrap();
        let options = ConnectionOptions::new(url).identity("test").build();
        let connection = Connection::connect(options).await.unwrap();
        Client::new(connection, ClientOptions::new("default").build()).unwrap()
    }

    /// Runs `body` beside a worker, then stops the worker.
    pub(crate) async fn with_worker<T>(&self, body: impl Future<Output = T>) -> T {
        let stop = CancellationToken::new();
        let client = self.client().await;
        let work =
            Box::pin(tamma_worker::run(self.config(), self.store.clone(), client, stop.clone()));
        let body = async {
            let result = tokio::time::timeout(TIMEOUT, body).await;
            stop.cancel();
            result
        };
        let (worked, result) = tokio::join!(work, body);
        worked.unwrap();
        let Ok(result) = result else {
            let lines = self.store.history(self.task(1).id, 0, 1000).await.unwrap();
            let entries = lines.iter().map(|line| (line.entry.name, &line.entry.reason));
            panic!("did not end in time: {:#?}", entries.collect::<Vec<_>>());
        };
        result
    }

    pub(crate) fn task(&self, number: u128) -> Task {
        Task {
            id: TaskId(Uuid::from_u128(0x0192_a000_0000_7000_8000_0000_0000_0000 + number)),
            project: self.project,
            title: "Greet Cy".to_owned(),
            description: "Cy should be greeted too.".to_owned(),
            r#type: TaskType::Feature,
            priority: Priority::Medium,
            acceptance_criteria: Vec::new(),
            labels: Vec::new(),
            depends_on: Vec::new(),
            suggested_agent: None,
            issue_url: None,
            metadata: BTreeMap::new(),
        }
    }

    /// Starts the workflow of a task. The handle follows continue-as-new.
    pub(crate) async fn start_task(&self, client: &Client, task: Task) -> Handle {
        let id = task.id;
        let received = TaskReceived {
            task: id,
            project: task.project,
            priority: task.priority,
            at: chrono::Utc::now(),
            by: person("Ann"),
            submitted_plan: None,
            edition: Edition::NEWEST,
        };
        let rules = self.rules();
        let first = task_loop::begin(&received, &rules);
        let origin = WorkflowOrigin::New { received, task: Box::new(task) };
        let attributes = SearchAttributes::new(search_attributes::initial_values(&first.next));
        let options = WorkflowStartOptions::new(TASK_QUEUE, workflow_id(id))
            .search_attributes(attributes)
            .task_timeout(Duration::from_secs(5))
            .build();
        let input = WorkflowInput { rules, tuning: self.tuning, origin };
        client.start_workflow(TaskWorkflow::run, input, options).await.unwrap();
        client.get_workflow_handle::<TaskWorkflow>(workflow_id(id))
    }

    /// Returns the stored task loop of a task.
    pub(crate) async fn task_loop(&self, task: TaskId) -> TaskLoop {
        self.store.task(task).await.unwrap().task_loop.unwrap()
    }

    pub(crate) async fn history(&self, task: TaskId) -> Vec<HistoryEntry> {
        let lines = self.store.history(task, 0, 10_000).await.unwrap();
        lines.into_iter().map(|line| line.entry).collect()
    }

    pub(crate) async fn entry_names(&self, task: TaskId) -> Vec<EntryName> {
        self.history(task).await.into_iter().map(|entry| entry.name).collect()
    }

    /// Waits until the stored task is in a state.
    pub(crate) async fn until_state(&self, task: TaskId, state: State) -> TaskLoop {
        until(async || match self.store.task(task).await {
            Ok(detail) => detail.task_loop.ok().filter(|task_loop| task_loop.state == state),
            Err(_) => None,
        })
        .await
    }

    /// Requests an action in a person's name.
    pub(crate) async fn request_action(
        &self,
        handle: &Handle,
        by: &str,
        action: task_loop::Action,
    ) -> Result<tamma_flow::TaskStatus, String> {
        let request = ActionRequest { at: chrono::Utc::now(), by: by.parse().unwrap(), action };
        let options = WorkflowExecuteUpdateOptions::builder().build();
        let response: Result<ActionResponse, _> =
            handle.execute_update(TaskWorkflow::ask, request, options).await;
        response.map_err(|error| format!("{error:?}"))?
    }
}

pub(crate) type Handle = WorkflowHandle<Client, TaskWorkflow>;

pub(crate) fn person(name: &str) -> Actor {
    Actor::Person(name.parse().unwrap())
}

/// Polls until `poll` returns a value.
pub(crate) async fn until<T>(poll: impl AsyncFn() -> Option<T>) -> T {
    let polling = async {
        loop {
            if let Some(value) = poll().await {
                return value;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, polling).await.expect("available in time")
}

/// Returns a plan that changes this number of files.
pub(crate) fn plan(files: usize) -> Plan {
    let change = |number| FileChange {
        path: if number == 0 { "names.txt".to_owned() } else { format!("names/{number}.txt") },
        action: if number == 0 { FileAction::Modify } else { FileAction::Create },
        description: "one more name".to_owned(),
        estimated_lines: 1,
    };
    Plan {
        summary: "Cy is greeted".to_owned(),
        approach: "Add the name to the list.".to_owned(),
        file_changes: (0..files).map(change).collect(),
        testing_strategy: "The check counts the greetings.".to_owned(),
        signals: tamma_core::complexity::Signals::default(),
        estimated_tokens: None,
        estimated_cost_usd: None,
        risks: Vec::new(),
        dependencies: Vec::new(),
        test_changes: Vec::new(),
    }
}

/// Returns the script of an agent that plans, makes and judges a change of this number of files.
pub(crate) fn script(files: usize) -> Script {
    let case = |when: &str, steps: Vec<AgentStep>| PromptCase {
        when: when.to_owned(),
        unless: None,
        steps,
    };
    let write = |change: &FileChange| AgentStep::Write {
        path: change.path.clone().into(),
        content: "ann\nbo\ncy\n".to_owned(),
    };
    let plan = plan(files);
    let work = plan.file_changes.iter().map(write).collect();
    Script {
        cases: vec![
            case("You are the planner", vec![AgentStep::Plan(Box::new(plan))]),
            case("You are implementing", work),
        ],
        ..Script::default()
    }
}

/// Returns the agent processes of this cluster, from the process table.
pub(crate) fn agents(cluster: &Cluster) -> Vec<String> {
    let script = cluster.script().display().to_string();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter(|entry| {
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            String::from_utf8_lossy(&environment).contains(&script)
        })
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}
