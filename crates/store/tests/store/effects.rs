//! Effects outside happen exactly once, whatever dies or gets lost on the way.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sqlx::{PgPool, Row as _};
use tamma_store::{Effect, EffectError, EffectKind, Store};
use tamma_testkit::postgres::TestDatabase;
use tokio::sync::Notify;

use crate::recorded_task::{PROJECT, register};

/// Answer of the remote side that never arrived.
#[derive(Debug, thiserror::Error)]
#[error("the answer is lost")]
struct LostAnswer;

/// Fault of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    KilledBeforeLook,
    LookFails,
    KilledBeforeAct,
    ActFails,
    KilledAfterAct,
    AnswerLost,
    AnswerAndLookLost,
    RecordFails,
}

const FAULTS: [Fault; 9] = [
    Fault::None,
    Fault::KilledBeforeLook,
    Fault::LookFails,
    Fault::KilledBeforeAct,
    Fault::ActFails,
    Fault::KilledAfterAct,
    Fault::AnswerLost,
    Fault::AnswerAndLookLost,
    Fault::RecordFails,
];

/// Remote side that keeps what was created there.
#[derive(Default)]
struct FakeRemote {
    created: Mutex<Vec<String>>,
    looks: AtomicU32,
    killed: Notify,
}

impl FakeRemote {
    fn create(&self) -> String {
        let mut created = self.created.lock().expect("lock");
        let id = format!("remote {}", created.len() + 1);
        created.push(id.clone());
        id
    }

    fn count(&self) -> usize {
        self.created.lock().expect("lock").len()
    }

    fn first(&self) -> Option<String> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        self.created.lock().expect("lock").first().cloned()
    }

    /// Reports that the process dies here, and never returns.
    async fn die(&self) {
        self.killed.notify_one();
        std::future::pending::<()>().await;
    }
}

fn effect(key: &str) -> Effect {
    Effect {
        key: key.to_owned(),
        kind: EffectKind::OpenPullRequest,
        project: PROJECT,
        task: None,
        precondition: Some("a".repeat(40).parse().expect("commit")),
    }
}

/// Performs an effect with a fault. Returns `None` if the process was killed.
async fn attempt(
    store: &Store,
    remote: &FakeRemote,
    key: &str,
    fault: Fault,
) -> Option<Result<String, EffectError<LostAnswer>>> {
    let looks = AtomicU32::new(0);
    let find = || async {
        let is_first = looks.fetch_add(1, Ordering::SeqCst) == 0;
        if is_first && fault == Fault::KilledBeforeLook {
            remote.die().await;
        }
        let lost = if is_first { Fault::LookFails } else { Fault::AnswerAndLookLost };
        if fault == lost { Err(LostAnswer) } else { Ok(remote.first()) }
    };
    let act = || async {
        if fault == Fault::KilledBeforeAct {
            remote.die().await;
        }
        if fault == Fault::ActFails {
            return Err(LostAnswer);
        }
        let id = remote.create();
        if fault == Fault::KilledAfterAct {
            remote.die().await;
        }
        if fault == Fault::RecordFails {
            store.close().await;
        }
        let is_lost = matches!(fault, Fault::AnswerLost | Fault::AnswerAndLookLost);
        if is_lost { Err(LostAnswer) } else { Ok(id) }
    };
    let effect = effect(key);
    tokio::select! {
        ended = store.perform(&effect, find, act) => Some(ended),
        () = remote.killed.notified() => None,
    }
}

async fn expire_leases(pool: &PgPool) {
    let sql = "UPDATE outward_effect SET leased_until = now() WHERE leased_until IS NOT NULL";
    sqlx::query(sql).execute(pool).await.expect("expired");
}

async fn fresh() -> (TestDatabase, Store, PgPool) {
    let database = TestDatabase::fresh().await.expect("test database");
    let store = database.store().await.expect("connection");
    register(&store).await;
    let pool = PgPool::connect(&database.url()).await.expect("connected");
    (database, store, pool)
}

#[tokio::test]
async fn an_effect_is_neither_doubled_nor_lost_whatever_fails() {
    let (database, _, pool) = fresh().await;
    for first in FAULTS {
        for second in FAULTS {
            let (remote, key) = (FakeRemote::default(), format!("tamma/{first:?}/{second:?}"));
            for fault in [first, second] {
                let store = database.store().await.expect("connection");
                if let Some(Ok(id)) = attempt(&store, &remote, &key, fault).await {
                    assert_eq!(id, "remote 1", "{key}");
                    assert_eq!(remote.count(), 1, "{key}: reported before it happened");
                }
                store.close().await;
                expire_leases(&pool).await;
            }
            let store = database.store().await.expect("connection");
            let last = attempt(&store, &remote, &key, Fault::None).await.expect("alive");
            assert_eq!(last.expect("performed"), "remote 1", "{key}");
            assert_eq!(remote.count(), 1, "{key}");
            store.close().await;
        }
    }
    let open = "SELECT count(*) FROM outward_effect WHERE state <> 'done' OR remote_id IS NULL";
    let open: i64 = sqlx::query_scalar(open).fetch_one(&pool).await.expect("count");
    assert_eq!(open, 0);
}

#[tokio::test]
async fn a_recorded_effect_causes_no_call() {
    let (_database, store, _) = fresh().await;
    let remote = FakeRemote::default();
    for _ in 0..3 {
        let done = attempt(&store, &remote, "tamma/1", Fault::None).await.expect("alive");
        assert_eq!(done.expect("performed"), "remote 1");
    }
    assert_eq!((remote.count(), remote.looks.load(Ordering::SeqCst)), (1, 1));
}

#[tokio::test]
async fn an_effect_that_a_person_made_meanwhile_is_taken_over() {
    let (_database, store, _) = fresh().await;
    let remote = FakeRemote::default();
    remote.create();
    let done = attempt(&store, &remote, "tamma/1", Fault::None).await.expect("alive");
    assert_eq!(done.expect("found"), "remote 1");
    assert_eq!(remote.count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_attempts_act_once_and_return_the_same() {
    let (database, _, _) = fresh().await;
    let remote = std::sync::Arc::new(FakeRemote::default());
    let mut attempts = Vec::new();
    for _ in 0..8 {
        let store = database.store().await.expect("connection");
        let remote = remote.clone();
        attempts.push(tokio::spawn(async move {
            attempt(&store, &remote, "tamma/1", Fault::None).await.expect("alive")
        }));
    }
    for attempt in attempts {
        assert_eq!(attempt.await.expect("ended").expect("performed"), "remote 1");
    }
    assert_eq!(remote.count(), 1);
}

#[tokio::test]
async fn a_request_of_a_dead_process_is_waited_for() {
    let (_database, store, pool) = fresh().await;
    let remote = FakeRemote::default();
    assert!(attempt(&store, &remote, "tamma/1", Fault::KilledAfterAct).await.is_none());
    let looks = remote.looks.load(Ordering::SeqCst);
    let next = attempt(&store, &remote, "tamma/1", Fault::None);
    let early = tokio::time::timeout(Duration::from_millis(300), next).await;
    assert!(early.is_err(), "the lease of the dead process has not expired");
    assert_eq!(remote.looks.load(Ordering::SeqCst), looks);
    expire_leases(&pool).await;
    let done = attempt(&store, &remote, "tamma/1", Fault::None).await.expect("alive");
    assert_eq!(done.expect("found"), "remote 1");
}

#[tokio::test]
async fn a_refused_effect_keeps_its_reason_and_can_be_tried_again() {
    let (_database, store, pool) = fresh().await;
    let remote = FakeRemote::default();
    let failed = attempt(&store, &remote, "tamma/1", Fault::ActFails).await.expect("alive");
    assert!(matches!(failed, Err(EffectError::Failed(LostAnswer))));
    store.refuse_effect("tamma/1", "the branch is protected").await.expect("refused");
    let row = async || {
        let sql = "SELECT state, refusal, attempts FROM outward_effect WHERE key = 'tamma/1'";
        let row = sqlx::query(sql).fetch_one(&pool).await.expect("a row");
        let (state, refusal): (String, Option<String>) = (row.get(0), row.get(1));
        (state, refusal, row.get::<i32, _>(2))
    };
    let reason = Some("the branch is protected".to_owned());
    assert_eq!(row().await, ("refused".to_owned(), reason, 1));
    expire_leases(&pool).await;
    let done = attempt(&store, &remote, "tamma/1", Fault::None).await.expect("alive");
    assert_eq!(done.expect("performed"), "remote 1");
    assert_eq!(row().await, ("done".to_owned(), None, 2));
    // A late refusal does not undo it.
    store.refuse_effect("tamma/1", "too late").await.expect("ignored");
    assert_eq!(row().await, ("done".to_owned(), None, 2));
}
