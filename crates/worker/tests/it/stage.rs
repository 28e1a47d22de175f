//! What every test plays on: all parts of the loop, each its own, and gone with the test.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use tamma_core::actor::Actor;
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::log::{Entry, EntryName};
use tamma_core::plan::{Action, FileChange, Plan};
use tamma_core::rules::{self, Rules};
use tamma_core::task::{Priority, Task, TaskType};
use tamma_core::task_loop::{self, Received, State, TaskLoop};
use tamma_core::version::Edition;
use tamma_engine::agent::Patience;
use tamma_flow::{Answered, Ask, Input, Origin, Pace, QUEUE, TaskFlow, attributes, workflow_id};
use tamma_store::{Project, Store};
use tamma_testkit::agent::{Case, SCRIPT, Script, Step, program};
use tamma_testkit::postgres::Database;
use tamma_testkit::repository::Repository;
use tamma_testkit::temporal::Server;
use tamma_worker::Config;
use tempfile::TempDir;
use temporalio_client::{
    Client, ClientOptions, Connection, ConnectionOptions, Url, WorkflowExecuteUpdateOptions,
    WorkflowHandle, WorkflowStartOptions,
};
use temporalio_common::search_attributes::SearchAttributes;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// How long anything may take before the test has failed.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) struct Stage {
    pub(crate) temporal: Server,
    _database: Database,
    pub(crate) store: Store,
    pub(crate) repository: Repository,
    pub(crate) folder: TempDir,
    pub(crate) project: ProjectId,
    pub(crate) pace: Pace,
    /// What else the configuration says.
    more: String,
}

impl Stage {
    /// All parts, and an agent that follows a script.
    pub(crate) async fn set(script: &Script) -> Self {
        Self::set_with(script, "").await
    }

    /// The same, with more in the configuration.
    pub(crate) async fn set_with(script: &Script, more: &str) -> Self {
        let database = Database::fresh().await.unwrap();
        let store = database.store().await.unwrap();
        let stage = Self {
            temporal: Server::start().await.unwrap(),
            _database: database,
            store,
            repository: Repository::new().unwrap(),
            folder: tempfile::tempdir().unwrap(),
            project: ProjectId(Uuid::from_u128(1)),
            pace: Pace { heartbeat_seconds: 5, ..Pace::default() },
            more: more.to_owned(),
        };
        script.write(&stage.script()).unwrap();
        stage.repository.write("tamma.yaml", &stage.configuration()).unwrap();
        let repository = stage.repository.path().display().to_string();
        let project = Project { id: stage.project, name: "greeter".to_owned(), repository };
        stage.store.register(&project).await.unwrap();
        stage
    }

    /// Gives the agent another script.
    pub(crate) fn rewrite(&self, script: &Script) {
        script.write(&self.script()).unwrap();
    }

    /// A file of what was saved of a task's work, from the mirror.
    pub(crate) fn salvaged(&self, task: TaskId, file: &str) -> String {
        let mirror = format!("data/mirrors/{}.git", self.project);
        let mirror = self.folder.path().join(mirror).display().to_string();
        let what = format!("refs/tamma/salvage/{task}:{file}");
        self.repository.git(&["--git-dir", &mirror, "show", &what]).unwrap()
    }

    fn script(&self) -> PathBuf {
        self.folder.path().join("script.json")
    }

    /// A file outside every checkout.
    pub(crate) fn aside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn configuration(&self) -> String {
        // By its name, because histories that are kept have the rules in them, and no path of this
        // machine.
        format!(
            "agents:\n  scripted:\n    command: scripted-agent\n    env:\n      {SCRIPT}: {}\n\
             tiers:\n  simple: {{ agent: scripted }}\n  moderate: {{ agent: scripted }}\n  \
             complex: {{ agent: scripted }}\n\
             gates:\n  check: {{ command: sh check.sh, kind: tests }}\n{}",
            self.script().display(),
            self.more,
        )
    }

    pub(crate) fn rules(&self) -> Rules {
        let text = self.configuration();
        let file = rules::Source { name: "tamma.yaml", text: &text };
        rules::load(Some(file), &Self::environment()).unwrap().rules.without_secrets()
    }

    /// What the worker's variables are. The scripted agent leaves signs for the tests outside of its
    /// worktree, so it has no sandbox; what that does is tried elsewhere, with agents that need none.
    fn environment() -> BTreeMap<String, String> {
        let agent = program().unwrap();
        let path =
            format!("{}:{}", agent.parent().unwrap().display(), std::env::var("PATH").unwrap());
        let sandbox = ("TAMMA_ENGINES_SANDBOX".to_owned(), "off".to_owned());
        BTreeMap::from([("PATH".to_owned(), path), sandbox])
    }

    pub(crate) fn config(&self) -> Config {
        Config {
            environment: Self::environment(),
            patience: Patience { late: Duration::ZERO, ..Patience::default() },
            ..Config::new(self.folder.path().join("data"))
        }
    }

    pub(crate) async fn client(&self) -> Client {
        let url: Url = format!("http://{}", self.temporal.address()).parse().unwrap();
        let options = ConnectionOptions::new(url).identity("test").build();
        let connection = Connection::connect(options).await.unwrap();
        Client::new(connection, ClientOptions::new("default").build()).unwrap()
    }

    /// Does something while a worker works, then stops the worker.
    pub(crate) async fn play<T>(&self, body: impl Future<Output = T>) -> T {
        let stop = CancellationToken::new();
        let client = self.client().await;
        let work = tamma_worker::run(self.config(), self.store.clone(), client, stop.clone());
        let body = async {
            let result = tokio::time::timeout(PATIENCE, body).await;
            stop.cancel();
            result
        };
        let (worked, result) = tokio::join!(work, body);
        worked.unwrap();
        let Ok(result) = result else {
            let lines = self.store.history(self.task(1).id, 0, 1000).await.unwrap();
            let told = lines.iter().map(|line| (line.entry.name, &line.entry.reason));
            panic!("it did not end in time: {:#?}", told.collect::<Vec<_>>());
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

    /// Starts the workflow of a task, and returns its handle, which is of no single run.
    pub(crate) async fn begin(&self, client: &Client, task: Task) -> Handle {
        let id = task.id;
        let received = Received {
            task: id,
            project: task.project,
            priority: task.priority,
            at: chrono::Utc::now(),
            by: person("Ann"),
            plan: None,
            edition: Edition::NEWEST,
        };
        let rules = self.rules();
        let first = task_loop::begin(&received, &rules);
        let origin = Origin::New { received, task: Box::new(task) };
        let attributes = SearchAttributes::new(attributes::at_start(&first.next));
        let options = WorkflowStartOptions::new(QUEUE, workflow_id(id))
            .search_attributes(attributes)
            .task_timeout(Duration::from_secs(5))
            .build();
        let input = Input { rules, pace: self.pace, origin };
        client.start_workflow(TaskFlow::run, input, options).await.unwrap();
        client.get_workflow_handle::<TaskFlow>(workflow_id(id))
    }

    /// The machine of a task as the store has it.
    pub(crate) async fn machine(&self, task: TaskId) -> TaskLoop {
        self.store.task(task).await.unwrap().machine.unwrap()
    }

    pub(crate) async fn log(&self, task: TaskId) -> Vec<Entry> {
        let lines = self.store.history(task, 0, 10_000).await.unwrap();
        lines.into_iter().map(|line| line.entry).collect()
    }

    pub(crate) async fn names(&self, task: TaskId) -> Vec<EntryName> {
        self.log(task).await.into_iter().map(|entry| entry.name).collect()
    }

    /// Waits until a task is in a state, as the store has it.
    pub(crate) async fn until(&self, task: TaskId, state: State) -> TaskLoop {
        until(async || match self.store.task(task).await {
            Ok(whole) => whole.machine.ok().filter(|machine| machine.state == state),
            Err(_) => None,
        })
        .await
    }

    /// Asks for something in somebody's name.
    pub(crate) async fn ask(
        &self,
        handle: &Handle,
        by: &str,
        action: task_loop::Action,
    ) -> Result<tamma_flow::Standing, String> {
        let ask = Ask { at: chrono::Utc::now(), by: by.parse().unwrap(), action };
        let options = WorkflowExecuteUpdateOptions::builder().build();
        let answered: Result<Answered, _> =
            handle.execute_update(TaskFlow::ask, ask, options).await;
        answered.map_err(|error| format!("{error:?}"))?
    }
}

pub(crate) type Handle = WorkflowHandle<Client, TaskFlow>;

pub(crate) fn person(name: &str) -> Actor {
    Actor::Person(name.parse().unwrap())
}

/// Waits until there is something that tells nobody when it comes.
pub(crate) async fn until<T>(look: impl AsyncFn() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.expect("it comes in time")
}

/// A plan that touches so many files.
pub(crate) fn plan(files: usize) -> Plan {
    let change = |number| FileChange {
        path: if number == 0 { "names.txt".to_owned() } else { format!("names/{number}.txt") },
        action: if number == 0 { Action::Modify } else { Action::Create },
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

/// An agent that plans a change of so many files, makes it, and judges it.
pub(crate) fn script(files: usize) -> Script {
    let case = |when: &str, steps: Vec<Step>| Case { when: when.to_owned(), unless: None, steps };
    let write = |change: &FileChange| Step::Write {
        path: change.path.clone().into(),
        content: "ann\nbo\ncy\n".to_owned(),
    };
    let plan = plan(files);
    let work = plan.file_changes.iter().map(write).collect();
    Script {
        cases: vec![
            case("You are the planner", vec![Step::Plan(Box::new(plan))]),
            case("You are implementing", work),
        ],
        ..Script::default()
    }
}

/// The processes that an agent of this stage is, by the system's own table.
pub(crate) fn agents(stage: &Stage) -> Vec<String> {
    let script = stage.script().display().to_string();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter(|entry| {
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            String::from_utf8_lossy(&environment).contains(&script)
        })
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}
