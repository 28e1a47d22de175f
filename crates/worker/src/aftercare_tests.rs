//! Tests of aftercare with a real repository and a real database.

use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::Uri;
use axum::{Json, Router};
use serde_json::{Value, json};
use tamma_connect::forge::{ForgeCredential, ForgeSettings};
use tamma_core::actor::Actor;
use tamma_core::begin;
use tamma_core::forge::{ForgeKind, Mergeability, PullRequestFacts, PullRequestStatus};
use tamma_core::knowledge::EntryStatus;
use tamma_core::rules::Rules;
use tamma_core::task::{Task, TaskType};
use tamma_core::task_loop::TaskReceived;
use tamma_core::version::Edition;
use tamma_store::{KnowledgeFilter, NewPullRequest, RegisteredProject};
use tamma_testkit::postgres::TestDatabase;
use tamma_testkit::repository::Repository;
use tamma_testkit::sample::{project_id, task_id};
use tempfile::TempDir;

use super::*;
use crate::config::WorkerConfig;

const DAYS: u16 = 14;

/// Project with a repository, and the aftercare of a worker.
struct AftercareProject {
    _database: TestDatabase,
    _data: TempDir,
    repository: Repository,
    store: Store,
    aftercare: Aftercare,
}

impl AftercareProject {
    async fn create() -> Self {
        let database = TestDatabase::fresh().await.unwrap();
        let store = database.store().await.unwrap();
        let repository = Repository::new().unwrap();
        repository.write("app.txt", "one\ntwo\n").unwrap();
        repository.commit("app").unwrap();
        let project = RegisteredProject {
            id: project_id(1),
            name: "app".to_owned(),
            repository: repository.path().display().to_string(),
        };
        store.register_project(&project).await.unwrap();
        let data = tempfile::tempdir().unwrap();
        let config = Arc::new(WorkerConfig::new(data.path()));
        let forges = Forges::open(&config.forges);
        let repositories = Repositories::open(config, store.clone(), forges.clone()).await.unwrap();
        let aftercare = Aftercare::new(store.clone(), repositories, forges, "w");
        Self { _database: database, _data: data, repository, store, aftercare }
    }

    fn commit(&self, content: &str, message: &str) -> CommitId {
        self.repository.write("app.txt", content).unwrap();
        self.repository.commit(message).unwrap().parse().unwrap()
    }

    /// Records a task whose pull request was merged as this commit.
    async fn merged(&self, number: u32, kind: TaskType, commit: CommitId) {
        let task = Task {
            id: task_id(number),
            project: project_id(1),
            title: format!("Add line {number}"),
            description: String::new(),
            r#type: kind,
            priority: Priority::Medium,
            acceptance_criteria: Vec::new(),
            labels: Vec::new(),
            depends_on: Vec::new(),
            suggested_agent: None,
            issue_url: None,
            issue_number: None,
            metadata: BTreeMap::new(),
        };
        let received = TaskReceived {
            task: task.id,
            project: task.project,
            priority: task.priority,
            at: Timestamp::UNIX_EPOCH,
            by: Actor::Tamma,
            auth: None,
            submitted_plan: None,
            edition: Edition::NEWEST,
        };
        let rules = Rules::default();
        self.store.insert_task(&task, &begin(&received, &rules), &rules).await.unwrap();
        let opened = NewPullRequest {
            task: task.id,
            project: task.project,
            forge: "hub".to_owned(),
            repository: "acme/app".to_owned(),
            number: number.into(),
            url: format!("https://hub.example/acme/app/pulls/{number}"),
            branch: format!("tamma/{number}"),
            base_branch: "main".to_owned(),
        };
        self.store.save_pull_request(&opened).await.unwrap();
        let stored = self.store.pull_request(task.id).await.unwrap().unwrap();
        let facts = PullRequestFacts {
            number: number.into(),
            status: PullRequestStatus::Merged { commit, by: "ann".to_owned() },
            draft: false,
            head: commit,
            base: commit,
            mergeability: Mergeability::Clean,
            checks: Vec::new(),
            reviews: Vec::new(),
            threads: Vec::new(),
            queued: false,
            incomplete: false,
        };
        self.store.record_observation(&stored, &facts, None, true).await.unwrap();
        self.store.watch_pull_request(task.id, DAYS).await.unwrap();
    }

    async fn findings(&self, number: u32) -> Vec<(AftercareKind, CommitId)> {
        let found = self.store.aftercare_findings(task_id(number)).await.unwrap();
        found.into_iter().map(|it| (it.kind, it.commit)).collect()
    }

    async fn lessons(&self) -> usize {
        let filter = KnowledgeFilter {
            project: Some(project_id(1)),
            kind: None,
            status: Some(EntryStatus::Pending),
        };
        self.store.list_knowledge(&filter).await.unwrap().len()
    }
}

#[tokio::test]
async fn reverts_and_fixes_are_traced_to_the_task_once_and_proposed_as_lessons() {
    let world = AftercareProject::create().await;
    let first = world.commit("one\nfirst\ntwo\n", "Add first");
    world.merged(1, TaskType::Feature, first).await;
    let second = world.commit("one\nfirst\ntwo\nsecond\n", "Add second");
    world.merged(2, TaskType::Feature, second).await;
    world.aftercare.round().await.unwrap();
    assert_eq!(world.findings(1).await, []);

    // A fix of the first change, a fix of other lines, and more work.
    let fix = world.commit("one\nfirst!\ntwo\nsecond\n", "fix: the first line");
    world.commit("ONE\nfirst!\ntwo\nsecond\n", "Fix capitals");
    world.commit("ONE\nfirst!\ntwo\nsecond\nthird\n", "Add a line");
    world.aftercare.round().await.unwrap();
    assert_eq!(world.findings(1).await, [(AftercareKind::Fix, fix)]);
    assert_eq!(world.findings(2).await, []);
    assert_eq!(world.lessons().await, 1);

    // A task that fixes a bug counts whatever its message says; a revert names the commit.
    let task_fix = world.commit("ONE\nfirst!\ntwo\n2nd\nthird\n", "Count with digits");
    world.merged(3, TaskType::Bugfix, task_fix).await;
    let message = format!("Revert \"Add first\"\n\nThis reverts commit {first}.\n");
    let revert = world.commit("ONE\ntwo\n2nd\nthird\n", &message);
    for _ in 0..2 {
        world.aftercare.round().await.unwrap();
        let both = [(AftercareKind::Fix, fix), (AftercareKind::Revert, revert)];
        assert_eq!(world.findings(1).await, both);
        assert_eq!(world.findings(2).await, [(AftercareKind::Fix, task_fix)]);
        assert_eq!(world.findings(3).await, []);
    }
    let found = world.store.aftercare_findings(task_id(1)).await.unwrap();
    assert_eq!(found[1].detail, "Revert \"Add first\" (Ann)");
    let changes = world.store.merged_changes(None, Timestamp::UNIX_EPOCH).await.unwrap();
    let with_findings = changes.iter().filter(|change| !change.findings.is_empty()).count();
    assert_eq!((changes.len(), with_findings), (3, 2));
}

#[tokio::test]
async fn another_worker_waits_for_the_lease() {
    let world = AftercareProject::create().await;
    let first = world.commit("one\nfirst\ntwo\n", "Add first");
    world.merged(1, TaskType::Feature, first).await;
    let run = WaitingRun { holder: "other".to_owned(), priority: Priority::Low, since: now() };
    let key = (Lease::Aftercare, LEASE_KEY);
    assert!(world.store.acquire_lease(key, &run, 1, LEASE).await.unwrap());
    world.commit("one\nlast\ntwo\n", "fix: it");
    world.aftercare.round().await.unwrap();
    assert_eq!(world.findings(1).await, []);
    world.store.release_leases("other").await.unwrap();
    world.aftercare.round().await.unwrap();
    assert_eq!(world.findings(1).await.len(), 1);
}

/// Status of the check `ci` of each commit, as the fake forge reports it.
type Statuses = Arc<Mutex<BTreeMap<String, &'static str>>>;

async fn answer(statuses: State<Statuses>, uri: Uri) -> Json<Value> {
    let states = statuses.lock().unwrap();
    let found = states.iter().find(|(commit, _)| uri.path().contains(commit.as_str()));
    let found: Vec<Value> = found
        .map(|(_, state)| json!({ "id": 1, "status": state, "context": "ci", "description": "", "target_url": "" }))
        .into_iter()
        .collect();
    Json(json!({ "total_count": found.len(), "statuses": found }))
}

#[tokio::test]
async fn a_merge_that_turned_the_base_branch_red_is_found_when_its_checks_have_ended() {
    let world = AftercareProject::create().await;
    let before = world.repository.git(&["rev-parse", "HEAD"]).unwrap();
    let merged = world.commit("one\nfirst\ntwo\n", "Add first");
    world.merged(1, TaskType::Feature, merged).await;
    let statuses = Statuses::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let app = Router::new().fallback(answer).with_state(statuses.clone());
    tokio::spawn(async move { axum::serve(listener, app).await });
    let settings = ForgeSettings {
        name: "hub".to_owned(),
        kind: ForgeKind::Gitea,
        url,
        api: None,
        credential: ForgeCredential::Token("t0ken".to_owned()),
        webhook_secret: None,
    };
    let project = world.aftercare.repositories.project_by_id(project_id(1)).await.unwrap();
    let mirror = world.aftercare.repositories.mirror(&project).await.unwrap();
    mirror.fetch().await.unwrap();
    let traced = TracedProject {
        mirror,
        forge: Some((Forge::open(&settings).unwrap(), "acme/app".to_owned())),
        bug_fixes: BTreeSet::new(),
        proposes_lessons: true,
    };
    let watched = async || world.store.watched_merges(now()).await.unwrap().remove(0);
    let set = |commit: &str, state: &'static str| {
        statuses.lock().unwrap().insert(commit.to_owned(), state);
    };

    set(&before, "success");
    set(&merged.to_string(), "pending");
    world.aftercare.trace(&traced, &watched().await).await.unwrap();
    assert!(!watched().await.base_checked, "the check runs");
    assert_eq!(world.findings(1).await, []);
    set(&merged.to_string(), "failure");
    world.aftercare.trace(&traced, &watched().await).await.unwrap();
    assert!(watched().await.base_checked);
    assert_eq!(world.findings(1).await, [(AftercareKind::RedBase, merged)]);
    let found = world.store.aftercare_findings(task_id(1)).await.unwrap();
    assert_eq!(found[0].detail, "failed since the merge: ci");
    assert_eq!(world.lessons().await, 1);
}
