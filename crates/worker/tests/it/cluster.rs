//! Test cluster with all components of the task loop, private to one test. The worker runs in the
//! test process.

use std::collections::BTreeMap;
use std::future::Future;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use tamma_connect::forge::{Forge, ForgeCredential, ForgeSettings, Forges};
use tamma_core::actor::Actor;
use tamma_core::forge::ForgeKind;
use tamma_core::history::{EntryName, HistoryEntry};
use tamma_core::ids::TaskId;
use tamma_core::operator::OperatorConfig;
use tamma_core::rules::Rules;
use tamma_core::task::Task;
use tamma_core::task_loop::{self, State, TaskLoop, TaskReceived};
use tamma_core::version::Edition;
use tamma_engine::agent::AgentTimeouts;
use tamma_flow::{
    ActionRequest, ActionResponse, TASK_QUEUE, TaskWorkflow, WorkflowInput, WorkflowOrigin,
    WorkflowTuning, failure_message, search_attributes, workflow_id,
};
use tamma_store::{RegisteredProject, Store};
use tamma_testkit::agent::{Script, program};
use tamma_testkit::forge::FakeGithub;
use tamma_testkit::operator::test_operator;
use tamma_testkit::project::{ProjectConfig, ScriptedProject};
use tamma_testkit::repository::Repository;
use tamma_testkit::sample::{sample_task, task_id};
use tamma_testkit::wait_until;
use tamma_worker::{FaultInjection, WorkerConfig};
use temporalio_client::errors::WorkflowUpdateError;
use temporalio_client::{
    Client, WorkflowExecuteUpdateOptions, WorkflowHandle, WorkflowStartOptions,
};
use temporalio_common::data_converters::SerializationContextData;
use temporalio_common::payload_visitor::decode_payloads;
use temporalio_common::search_attributes::SearchAttributes;
use tokio_util::sync::CancellationToken;

/// Timeout of every wait in a test.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);

pub(crate) struct Cluster {
    /// Connection to the database.
    pub(crate) store: Store,
    /// Database, Temporal and the folder.
    services: tamma_testkit::Cluster,
    pub(crate) project: ScriptedProject,
    pub(crate) tuning: WorkflowTuning,
    /// Whether the worker accepts prompts of the project.
    pub(crate) allow_project_prompts: bool,
    /// Operator's variables for gates and setups.
    pub(crate) test_environment: BTreeMap<String, String>,
    /// Steps at which the worker fails.
    pub(crate) fault_injection: FaultInjection,
    /// Time that jobs get to end when the worker stops.
    pub(crate) drain: Duration,
    /// Number of agents that can run at once.
    pub(crate) slots: usize,
    /// Operator's limit on agents of a project.
    pub(crate) agents_per_project: Option<NonZeroU16>,
}

impl Cluster {
    /// Starts all components with a scripted agent.
    pub(crate) async fn start(script: &Script) -> Self {
        Self::start_with(script, "").await
    }

    /// Starts all components with additional configuration.
    pub(crate) async fn start_with(script: &Script, extra_config: &str) -> Self {
        Self::start_configured(script, |config| config.more(extra_config)).await
    }

    /// Starts all components with a changed configuration.
    pub(crate) async fn start_configured(
        script: &Script,
        change: impl FnOnce(ProjectConfig) -> ProjectConfig,
    ) -> Self {
        let services = tamma_testkit::Cluster::builder().private_temporal().start().await.unwrap();
        // By name, because stored histories contain the rules and must not contain local paths.
        let configure =
            |config: ProjectConfig| change(config.command("scripted-agent").engines([]));
        let repository = Repository::new().unwrap();
        let project =
            services.add_project(1, "greeter", repository, script, configure).await.unwrap();
        let tuning = WorkflowTuning { heartbeat_seconds: 5, ..WorkflowTuning::default() };
        let store = services.store.clone();
        Self {
            store,
            services,
            project,
            tuning,
            allow_project_prompts: false,
            test_environment: BTreeMap::new(),
            fault_injection: FaultInjection::none(),
            drain: Duration::ZERO,
            slots: 2,
            agents_per_project: None,
        }
    }

    /// Moves the project's repository to a forge, with its configuration, and gives the worker the
    /// forge. Returns the client of the forge.
    pub(crate) async fn move_to_forge(&self, github: &FakeGithub, repository: &str) -> Forge {
        let ScriptedProject { id, name, repository: local, .. } = &self.project;
        local.commit("configuration").unwrap();
        github.create_repository(repository, local.path()).unwrap();
        let settings = ForgeSettings {
            name: "github".to_owned(),
            kind: ForgeKind::Github,
            url: github.url(),
            api: None,
            credential: ForgeCredential::Token(github.token().to_owned()),
            webhook_secret: None,
        };
        Forges::open(&self.config().forges).save(&settings).unwrap();
        let repository = format!("{}/{repository}.git", github.url());
        let moved = RegisteredProject { id: *id, name: name.clone(), repository };
        self.store.register_project(&moved).await.unwrap();
        Forge::open(&settings).unwrap()
    }

    /// Replaces the agent's script.
    pub(crate) fn replace_script(&self, script: &Script) {
        self.project.write_script(script).unwrap();
    }

    /// Reads a file from a task's checkpoint in the mirror.
    pub(crate) fn checkpoint_file(&self, task: TaskId, file: &str) -> String {
        let mirror = format!("data/mirrors/{}.git", self.project.id);
        let mirror = self.services.folder().join(mirror).display().to_string();
        let object = format!("refs/tamma/checkpoints/{task}:{file}");
        self.project.repository.git(&["--git-dir", &mirror, "show", &object]).unwrap()
    }

    /// Returns the path of a file outside every checkout.
    pub(crate) fn scratch_file(&self, name: &str) -> PathBuf {
        self.services.folder().join(name)
    }

    pub(crate) fn rules(&self) -> Rules {
        self.project.rules(&Self::environment()).unwrap()
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
            allow_project_prompts: self.allow_project_prompts,
            fault_injection: self.fault_injection.clone(),
            drain: self.drain,
            slots: self.slots,
            operator: OperatorConfig {
                test_environment: self.test_environment.clone(),
                agents_per_project: self.agents_per_project,
                ..test_operator()
            },
            ..WorkerConfig::new(self.services.folder().join("data"))
        }
    }

    pub(crate) async fn client(&self) -> Client {
        let address = self.services.temporal_address().unwrap();
        tamma_testkit::temporal::connect(&address).await.unwrap()
    }

    /// Runs `body` beside a worker, then stops the worker. Boxed, because the future is large.
    pub(crate) fn with_worker<'a, T: 'a>(
        &'a self,
        body: impl Future<Output = T> + 'a,
    ) -> Pin<Box<dyn Future<Output = T> + 'a>> {
        Box::pin(self.run_beside_worker(body))
    }

    async fn run_beside_worker<T>(&self, body: impl Future<Output = T>) -> T {
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

    pub(crate) fn task(&self, number: u32) -> Task {
        sample_task(task_id(number), self.project.id)
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
            auth: None,
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
        self.services.history(task).await.unwrap()
    }

    pub(crate) async fn entry_names(&self, task: TaskId) -> Vec<EntryName> {
        self.history(task).await.into_iter().map(|entry| entry.name).collect()
    }

    /// Waits until the stored task is in a state.
    pub(crate) async fn until_state(&self, task: TaskId, state: State) -> TaskLoop {
        let is_reached = |task_loop: &TaskLoop| Ok(task_loop.state == state);
        self.services.wait_for_task(task, TIMEOUT, is_reached).await.unwrap()
    }

    /// Requests an action in a person's name.
    pub(crate) async fn request_action(
        &self,
        handle: &Handle,
        by: &str,
        action: task_loop::Action,
    ) -> Result<tamma_flow::TaskStatus, String> {
        let (at, by) = (chrono::Utc::now(), by.parse().unwrap());
        let request = ActionRequest { at, by, auth: None, action };
        let options = WorkflowExecuteUpdateOptions::builder().build();
        let response: Result<ActionResponse, _> =
            handle.execute_update(TaskWorkflow::ask, request, options).await;
        match response {
            Ok(status) => status,
            Err(WorkflowUpdateError::Failed(mut failure)) => {
                let converter = tamma_keys::data_converter(tamma_testkit::keys::test_keys());
                let context = SerializationContextData::None;
                decode_payloads(&mut *failure, converter.codec(), &context).await.unwrap();
                Err(failure_message(&failure))
            }
            Err(error) => Err(format!("{error:?}")),
        }
    }
}

pub(crate) type Handle = WorkflowHandle<Client, TaskWorkflow>;

pub(crate) fn person(name: &str) -> Actor {
    Actor::Person(name.parse().unwrap())
}

/// Polls until `poll` returns a value.
pub(crate) async fn until<T>(poll: impl AsyncFn() -> Option<T>) -> T {
    wait_until("a condition", TIMEOUT, async || Ok(poll().await)).await.unwrap()
}

/// Returns the agent processes of this cluster, from the process table.
pub(crate) fn agents(cluster: &Cluster) -> Vec<String> {
    let script = cluster.project.script_path().display().to_string();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter(|entry| {
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            String::from_utf8_lossy(&environment).contains(&script)
        })
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}
