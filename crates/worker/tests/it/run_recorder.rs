//! Recording of runs: live log lines, and the complete transcript.

use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use serde_json::Value;
use tamma_core::actor::Actor;
use tamma_core::cost::{Cost, Tokens, Usage};
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::rules::Rules;
use tamma_core::task::{Priority, Task};
use tamma_core::task_loop::{TaskReceived, begin};
use tamma_core::version::Edition;
use tamma_engine::agent::{AgentUpdate, RunMode, ToolCallUpdate};
use tamma_engine::gateway::{Dialect, ModelCall};
use tamma_engine::process::RunId;
use tamma_store::{
    LineChange, LineFilter, LineKind, LinePosition, ObjectStorage, RegisteredProject, RunEnd,
    RunNumber, Store,
};
use tamma_testkit::postgres::TestDatabase;
use tamma_worker::{Redact, RunEnding, RunFacts, RunRecorder};
use tempfile::TempDir;
use uuid::Uuid;

use crate::cluster::TIMEOUT;

struct RecorderFixture {
    _database: TestDatabase,
    store: Store,
    objects: ObjectStorage,
    folder: TempDir,
    task: TaskId,
}

impl RecorderFixture {
    async fn new() -> Self {
        let database = TestDatabase::fresh().await.unwrap();
        let store = database.store().await.unwrap();
        let (project, task) = (ProjectId(Uuid::from_u128(1)), TaskId(Uuid::now_v7()));
        let (name, repository) = ("greeter".to_owned(), "/greeter".to_owned());
        store.register_project(&RegisteredProject { id: project, name, repository }).await.unwrap();
        let task_record: Task = serde_json::from_value(serde_json::json!({
            "id": task, "project": project, "title": "Greet", "type": "feature",
        }))
        .unwrap();
        let received = TaskReceived {
            task,
            project,
            priority: Priority::Medium,
            at: Utc::now(),
            by: Actor::Tamma,
            auth: None,
            submitted_plan: None,
            edition: Edition::NEWEST,
        };
        let rules = Rules::default();
        store.insert_task(&task_record, &begin(&received, &rules), &rules).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let objects = ObjectStorage::new(folder.path().join("objects").display().to_string());
        Self { _database: database, store, objects, folder, task }
    }

    async fn start_recorder(&self, attempt: u32) -> RunRecorder {
        let run = RunId { task: self.task, job_number: 4, generation: attempt };
        let facts = RunFacts {
            run,
            at: Utc::now(),
            agent: "scripted".to_owned(),
            model: None,
            tier: None,
            mode: RunMode::Implement,
            worker: "here".to_owned(),
            prompt: None,
            missing_content: None,
            progress_clock: Rules::default().scrum_master.task_loop.progress_clock(Utc::now()),
            iteration: None,
            worktree: "/checkout".into(),
        };
        let redact: Redact = Arc::new(|text| text.replace("sk-secret", "…"));
        let data = self.folder.path();
        RunRecorder::start(&self.store, &self.objects, data, facts, redact).await.unwrap()
    }

    async fn lines(&self) -> Vec<(LineKind, String)> {
        let lines =
            self.store.lines(self.task, &LineFilter::default(), LinePosition::START, 1000).await;
        lines.unwrap().into_iter().map(|line| (line.kind, line.text)).collect()
    }

    fn spooled_files(&self) -> usize {
        std::fs::read_dir(self.folder.path().join("transcripts")).unwrap().count()
    }
}

#[tokio::test]
async fn a_run_is_recorded_live_and_stored_at_its_end() {
    let fixture = RecorderFixture::new().await;
    let mut changes = fixture.store.line_changes().await.unwrap();
    let recorder = fixture.start_recorder(1).await;
    let observe = recorder.observer();
    observe(AgentUpdate::Session { name: "s-1".to_owned(), resumed: false });
    observe(AgentUpdate::Message("The key is sk-".to_owned()));
    observe(AgentUpdate::Message("secret.\n\nNow I ".to_owned()));
    let change = tokio::time::timeout(TIMEOUT, changes.next()).await.unwrap().unwrap();
    assert_eq!(change, LineChange::Appended(fixture.task));
    assert_eq!(fixture.lines().await, [(LineKind::Said, "The key is ….".to_owned())]);
    observe(AgentUpdate::Message("edit.".to_owned()));
    observe(AgentUpdate::ToolCall(ToolCallUpdate {
        id: "1".to_owned(),
        title: Some("Edit \u{1b}[31m/checkout/a.rs".to_owned()),
        status: Some("completed".to_owned()),
        kind: Some("edit".to_owned()),
        locations: vec!["/checkout/a.rs".to_owned()],
        ..ToolCallUpdate::default()
    }));
    observe(AgentUpdate::ModelCalled(ModelCall {
        run: RunId { task: fixture.task, job_number: 4, generation: 1 },
        started_at: Utc::now(),
        model: "large".to_owned(),
        dialect: Dialect::Anthropic,
        status: 200,
        tokens: Some(Tokens { input: 100, output: 5, ..Tokens::default() }),
        cost: Cost::Unknown,
        time_to_first_byte: None,
        duration: Duration::from_millis(1200),
        note: None,
    }));
    let ending = RunEnding { end: RunEnd::Finished, reason: Some("with sk-secret".to_owned()) };
    recorder.finish(ending, None, false).await.unwrap();
    let lines = fixture.lines().await;
    let texts: Vec<_> = lines.iter().map(|(_, text)| text.as_str()).collect();
    let expected = [
        "The key is ….",
        "Now I edit.",
        "Edit a.rs",
        "large · 100 in, 0 cached, 5 out · cost unknown · 1.2 s",
    ];
    assert_eq!(texts, expected);
    let run = fixture.store.latest_run(fixture.task).await.unwrap().unwrap();
    assert_eq!((run.end, run.reason.as_deref()), (Some(RunEnd::Finished), Some("with …")));
    assert_eq!((run.session.as_deref(), run.model.as_deref()), (Some("s-1"), Some("large")));
    let tokens = Tokens { input: 100, output: 5, ..Tokens::default() };
    assert_eq!(run.usage, Some(Usage { tokens, cost: Cost::Unknown }));
    assert!(run.metered && run.ended_at.is_some());
    // The transcript is complete and has no secrets, and the local file is gone.
    let key = run.transcript.unwrap();
    let file = fixture.folder.path().join("objects").join(&key);
    let text = std::fs::read_to_string(file).unwrap();
    assert!(!text.contains("sk-secret") && !text.contains('\u{1b}'), "{text}");
    let records: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records.len(), 5, "{text}");
    assert_eq!(records[0]["session"]["name"], "s-1");
    assert_eq!(fixture.spooled_files(), 0);
}

#[tokio::test]
async fn a_verbose_agent_is_not_blocked_and_loses_nothing() {
    let fixture = RecorderFixture::new().await;
    let recorder = fixture.start_recorder(1).await;
    let observe = recorder.observer();
    for number in 0..3000 {
        observe(AgentUpdate::Message(format!("line {number}\n\n")));
    }
    let ending = RunEnding { end: RunEnd::Finished, reason: None };
    recorder.finish(ending, Some(Usage::default()), false).await.unwrap();
    let run = fixture.store.latest_run(fixture.task).await.unwrap().unwrap();
    assert_eq!(run.lines, 3000);
    let after = LinePosition { run: RunNumber { job_number: 4, attempt: 1 }, sequence: 2999 };
    let last = fixture.store.lines(fixture.task, &LineFilter::default(), after, 10).await.unwrap();
    assert_eq!(last.iter().map(|line| line.text.as_str()).collect::<Vec<_>>(), ["line 2999"]);
}

#[tokio::test]
async fn a_dropped_recorder_records_a_cancelled_run() {
    let fixture = RecorderFixture::new().await;
    let mut changes = fixture.store.line_changes().await.unwrap();
    let recorder = fixture.start_recorder(1).await;
    recorder.observer()(AgentUpdate::Message("half a sen".to_owned()));
    drop(recorder);
    let ended = async {
        loop {
            changes.next().await.unwrap();
            let run = fixture.store.latest_run(fixture.task).await.unwrap().unwrap();
            if run.ended_at.is_some() {
                return run;
            }
        }
    };
    let run = tokio::time::timeout(Duration::from_secs(30), ended).await.unwrap();
    assert_eq!(run.end, Some(RunEnd::Cancelled));
    assert_eq!(fixture.lines().await, [(LineKind::Said, "half a sen".to_owned())]);
    assert!(run.transcript.is_some());
}
