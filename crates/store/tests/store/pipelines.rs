//! Pipelines of stories: one row per story, phases of every run, and writes in any order.

use tamma_core::ids::PipelineId;
use tamma_core::pipeline::{
    GateAnswer, PhaseWork, PipelineDefinition, PipelineEvent, PipelineRequest, PipelineRun,
    PipelineState, step,
};
use tamma_core::pipeline_alert::alert_for;
use tamma_core::rules::Rules;
use tamma_core::task_loop::Timestamp;
use tamma_core::tier::Tier;
use tamma_store::{
    NewDelivery, NewRun, PipelineFilter, PipelineWrite, RunNumber, Store, TaskChange, WriteOutcome,
};
use tamma_testkit::postgres::TestDatabase;
use uuid::Uuid;

use crate::recorded_task::{PROJECT, register};

fn at() -> Timestamp {
    Timestamp::UNIX_EPOCH + chrono::TimeDelta::days(20_000)
}

fn id(number: u128) -> PipelineId {
    PipelineId(Uuid::from_u128(number))
}

/// Run at the gate of its first phase.
fn at_gate() -> PipelineRun {
    let run = PipelineRun::new(PipelineRequest {
        definition: PipelineDefinition::built_in(),
        feature_dir: "plans/a".to_owned(),
        story_id: "A-1".to_owned(),
        from: 1,
        to: 2,
        approve: [1].into(),
    });
    step(&run.expect("result"), at(), PipelineEvent::Start).expect("result").0
}

fn stopped() -> PipelineRun {
    let event = |answer| PipelineEvent::GateAnswered { answer, by: "ann".parse().expect("a name") };
    let (run, _) = step(&at_gate(), at(), event(GateAnswer::Skip)).expect("result");
    step(&run, at(), PipelineEvent::Cancelled { by: "ann".parse().expect("a name") })
        .expect("result")
        .0
}

fn write(number: u32, revision: u64, run: PipelineRun) -> PipelineWrite {
    PipelineWrite {
        pipeline: id(1),
        number,
        revision,
        started_by: "ann".parse().expect("a name"),
        started_at: at(),
        is_live: !run.state.is_over(),
        run,
        base: None,
        story_path: Some("plans/a/stories/A-1".to_owned()),
        delivered: None,
        delivery_error: None,
        alert: None,
        at: at(),
    }
}

async fn fresh() -> (TestDatabase, Store) {
    let database = TestDatabase::fresh().await.expect("test database");
    let store = database.store().await.expect("connection");
    register(&store).await;
    (database, store)
}

#[tokio::test]
async fn a_story_has_one_pipeline_whoever_asks_first() {
    let (_database, store) = fresh().await;
    let first = store.ensure_pipeline(id(1), PROJECT, "plans/a", "A-1").await.expect("result");
    let second = store.ensure_pipeline(id(2), PROJECT, "plans/a", "A-1").await.expect("result");
    assert_eq!((first.id, second.id), (id(1), id(1)));
    assert_eq!((first.run, first.number), (None, 0));
}

#[tokio::test]
async fn an_older_or_repeated_write_changes_nothing() {
    let (_database, store) = fresh().await;
    store.ensure_pipeline(id(1), PROJECT, "plans/a", "A-1").await.expect("result");
    let save = async |write: PipelineWrite| store.save_pipeline(&write).await.expect("result");
    assert_eq!(save(write(1, 1, at_gate())).await, WriteOutcome::Inserted);
    assert_eq!(save(write(1, 1, at_gate())).await, WriteOutcome::AlreadyPresent);
    assert_eq!(save(write(1, 3, stopped())).await, WriteOutcome::Inserted);
    assert_eq!(save(write(1, 2, at_gate())).await, WriteOutcome::AlreadyPresent);
    let story = store.pipeline(id(1)).await.expect("result");
    assert_eq!((story.version, story.run), (2, Some(stopped())));
    assert_eq!(save(write(2, 0, at_gate())).await, WriteOutcome::Inserted);
    assert_eq!(save(write(1, 9, stopped())).await, WriteOutcome::AlreadyPresent);
    let story = store.pipeline(id(1)).await.expect("result");
    assert_eq!(story.run.expect("result").state, PipelineState::AtGate(1));
    let phases = store.pipeline_phases(id(1)).await.expect("result");
    let phases: Vec<_> =
        phases.iter().map(|it| (it.run_number, it.phase, it.status.as_str())).collect();
    assert_eq!(phases, [(1, 1, "skipped"), (1, 2, "blocked")]);
    assert!(
        store
            .save_pipeline(&PipelineWrite { pipeline: id(7), ..write(1, 1, at_gate()) })
            .await
            .is_err()
    );
}

#[tokio::test]
async fn changes_of_pipelines_are_listed_after_a_lost_connection() {
    let (_database, store) = fresh().await;
    store.ensure_pipeline(id(1), PROJECT, "plans/a", "A-1").await.expect("result");
    let since = store.now().await.expect("time");
    store.save_pipeline(&write(1, 1, at_gate())).await.expect("result");
    let changes = store.changed_since(since).await.expect("result");
    assert_eq!(changes, [TaskChange { task: id(1).as_task(), sequence: 1 }]);
}

#[tokio::test]
async fn a_new_run_has_not_delivered_the_branch_of_the_last_one() {
    let (_database, store) = fresh().await;
    store.ensure_pipeline(id(1), PROJECT, "plans/a", "A-1").await.expect("result");
    let commit = "c".repeat(40).parse().expect("a commit");
    let delivered = Some(("tamma/a".to_owned(), commit));
    let first = PipelineWrite { delivered, base: Some(commit), ..write(1, 1, stopped()) };
    store.save_pipeline(&first).await.expect("result");
    let story = store.pipeline(id(1)).await.expect("result");
    assert_eq!((story.branch.as_deref(), story.commit), (Some("tamma/a"), Some(commit)));
    store.save_pipeline(&write(2, 0, at_gate())).await.expect("result");
    let story = store.pipeline(id(1)).await.expect("result");
    assert_eq!((story.branch, story.commit, story.base), (None, None, Some(commit)));
}

#[tokio::test]
async fn lists_show_runs_that_wait_for_a_person() {
    let (_database, store) = fresh().await;
    store.ensure_pipeline(id(1), PROJECT, "plans/a", "A-1").await.expect("result");
    store.save_pipeline(&write(1, 1, at_gate())).await.expect("result");
    let waiting = PipelineFilter { project: Some(PROJECT), live: true, needs_person: true };
    assert_eq!(store.pipelines(&waiting, 10).await.expect("result").len(), 1);
    assert_eq!(store.match_pipelines("A-1").await.expect("result").len(), 1);
    assert!(store.match_pipelines("A").await.expect("result").is_empty());
    store.save_pipeline(&write(1, 2, stopped())).await.expect("result");
    assert!(store.pipelines(&waiting, 10).await.expect("result").is_empty());
    assert_eq!(store.pipelines(&PipelineFilter::default(), 10).await.expect("result").len(), 1);
}

#[tokio::test]
async fn runs_of_agents_are_stored_under_a_pipeline() {
    let (_database, store) = fresh().await;
    store.ensure_pipeline(id(1), PROJECT, "plans/a", "A-1").await.expect("result");
    let run = NewRun {
        task: id(1).as_task(),
        number: RunNumber { job_number: 1, attempt: 1 },
        at: at(),
        agent: "claude-code".to_owned(),
        model: None,
        tier: Some(Tier::Moderate),
        mode: "phase".to_owned(),
        worker: None,
    };
    assert_eq!(store.begin_run(&run).await.expect("result"), 0);
    assert!(store.begin_run(&NewRun { task: id(7).as_task(), ..run }).await.is_err());
    let active = async || {
        let runs = store.active_runs().await.expect("result").into_iter();
        runs.map(|run| (run.task, run.title, run.is_phase)).collect::<Vec<_>>()
    };
    store.save_pipeline(&write(1, 1, at_gate())).await.expect("result");
    assert_eq!(active().await, [(id(1).as_task(), "A-1".to_owned(), true)]);
    store.save_pipeline(&write(1, 2, stopped())).await.expect("result");
    assert_eq!(active().await, [], "the run of an ended pipeline is a leftover");
}

#[tokio::test]
async fn a_gate_sends_one_alert_and_the_next_state_settles_it() {
    let (_database, store) = fresh().await;
    store.ensure_pipeline(id(1), PROJECT, "plans/a", "A-1").await.expect("result");
    let alert = alert_for(&at_gate().state, &Rules::default());
    for revision in [1, 2] {
        let asking = PipelineWrite { alert: alert.clone(), ..write(1, revision, at_gate()) };
        store.save_pipeline(&asking).await.expect("result");
    }
    let messages = store.outbox(10).await.expect("result");
    assert_eq!(
        messages.iter().map(|it| (it.reminder, it.needs_decision)).collect::<Vec<_>>(),
        [(0, true)]
    );
    assert_eq!(store.count_waiting(Some(PROJECT)).await.expect("result"), 1);
    let delivery = NewDelivery {
        id: Uuid::from_u128(9),
        receiver: "webhook".to_owned(),
        digest: false,
        due_at: at(),
    };
    assert!(store.dispatch(&messages[0], &[delivery]).await.expect("result"));
    let claim =
        async || store.claim_deliveries(60, 10, false).await.expect("result").deliveries.remove(0);
    let claimed = claim().await;
    assert_eq!((claimed.title.as_str(), claimed.is_pipeline), ("A-1", true));
    assert_eq!(claimed.answers, ["continue", "skip", "stop"]);
    assert_eq!(claimed.cause.to_string(), "phase 1 needs approval");
    assert!(!claimed.is_settled);
    store.save_pipeline(&write(1, 3, stopped())).await.expect("result");
    store.release_deliveries(&[claimed.id], None).await.expect("result");
    assert!(claim().await.is_settled);
    assert_eq!(store.count_waiting(None).await.expect("result"), 0, "a person stopped it");
}

#[tokio::test]
async fn a_run_stopped_by_a_phase_needs_a_person_until_it_is_dismissed() {
    let (_database, store) = fresh().await;
    store.ensure_pipeline(id(1), PROJECT, "plans/a", "A-1").await.expect("result");
    let skip =
        PipelineEvent::GateAnswered { answer: GateAnswer::Skip, by: "ann".parse().expect("name") };
    let crash = PipelineEvent::PhaseCrashed {
        phase: 2,
        error: "killed".to_owned(),
        work: PhaseWork::default(),
    };
    let (run, _) = step(&at_gate(), at(), skip).expect("result");
    let (run, _) = step(&run, at(), crash).expect("result");
    store.save_pipeline(&write(1, 1, at_gate())).await.expect("result");
    assert!(!store.dismiss_pipeline(id(1)).await.expect("result"), "it is running");
    let alert = alert_for(&run.state, &Rules::default());
    let failed = PipelineWrite { alert, ..write(1, 2, run) };
    store.save_pipeline(&failed).await.expect("result");
    let waiting = PipelineFilter { needs_person: true, ..PipelineFilter::default() };
    let listed = store.pipelines(&waiting, 10).await.expect("result");
    assert!(listed.len() == 1 && listed[0].needs_person);
    assert!(store.dismiss_pipeline(id(1)).await.expect("result"));
    assert!(!store.dismiss_pipeline(id(1)).await.expect("result"), "once is enough");
    store.save_pipeline(&failed).await.expect("result");
    assert!(store.pipelines(&waiting, 10).await.expect("result").is_empty());
}
