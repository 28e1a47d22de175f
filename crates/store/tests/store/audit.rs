//! Records that nobody can rewrite, and the hash chains that show if somebody has.

use chrono::{Datelike as _, NaiveDate, TimeDelta};
use sqlx::PgPool;
use tamma_core::access::ProjectScope;
use tamma_core::actor::Actor;
use tamma_core::ids::Digest;
use tamma_core::reconciliation::{Recovery, Resolution, WorkflowLoss};
use tamma_core::task_loop::{EventKind, State};
use tamma_store::{BrokenEntry, ChainFault, Error, HistoryAudit, Store};
use tamma_testkit::postgres::TestDatabase;

use crate::recorded_task::{AUTH, RecordedTask, careful, quick, register};

async fn fresh() -> (TestDatabase, Store, PgPool) {
    let database = TestDatabase::fresh().await.expect("test database");
    let store = database.store().await.expect("connection");
    register(&store).await;
    let pool = PgPool::connect(&database.url()).await.expect("connected");
    (database, store, pool)
}

async fn save(store: &Store, recorded: &RecordedTask) {
    let first = &recorded.steps[0].1;
    store.insert_task(&recorded.task, first, &recorded.rules).await.expect("received");
    store.save_steps(&recorded.records(), &recorded.rules).await.expect("recorded");
}

/// Returns a task whose plan a person has approved.
fn approved(number: u128) -> RecordedTask {
    let mut recorded = RecordedTask::new(number, careful()).until(State::Validated);
    assert!(recorded.advance(), "the plan is approved");
    recorded
}

/// Runs a statement as somebody who can turn triggers off.
async fn tamper(pool: &PgPool, statement: &'static str) {
    let mut transaction = pool.begin().await.expect("transaction");
    sqlx::raw_sql("SET LOCAL session_replication_role = replica")
        .execute(&mut *transaction)
        .await
        .expect("triggers are off");
    sqlx::raw_sql(statement).execute(&mut *transaction).await.expect("changed");
    transaction.commit().await.expect("committed");
}

async fn verify(store: &Store, recorded: &RecordedTask) -> HistoryAudit {
    store.verify_history(recorded.task.id, None).await.expect("verified")
}

#[tokio::test]
async fn records_of_who_did_what_cannot_be_changed_deleted_or_truncated() {
    let (_database, store, pool) = fresh().await;
    let recorded = approved(1);
    save(&store, &recorded).await;
    let (ada, grace) = ("Ada".parse().expect("name"), "Grace".parse().expect("name"));
    let hash = Digest::of(b"a token");
    store.add_person(uuid::Uuid::nil(), &ada, hash, &grace).await.expect("added");
    assert!(store.revoke_person(&ada, &grace).await.expect("revoked"), "this is not a rewrite");
    for statement in [
        "UPDATE entries SET reason = 'other'",
        "DELETE FROM entries",
        "DELETE FROM entries_other",
        "TRUNCATE entries",
        "TRUNCATE entries_other",
        "UPDATE history_heads SET entries = entries - 1",
        "DELETE FROM history_heads",
        "TRUNCATE history_heads",
        "UPDATE approvals SET decided_by = 'Mallory'",
        "DELETE FROM approvals",
        "TRUNCATE approvals",
        "TRUNCATE plans",
        "TRUNCATE knowledge_changes",
        "UPDATE people SET revoked_at = NULL",
        "UPDATE people SET added_by = 'Mallory'",
        "DELETE FROM people",
        "TRUNCATE people",
    ] {
        let refused = sqlx::raw_sql(statement).execute(&pool).await;
        assert!(refused.is_err(), "{statement}");
    }
    let audit = verify(&store, &recorded).await;
    assert_eq!((audit.verified, audit.broken), (recorded.log().len() as u64, None));
}

#[tokio::test]
async fn partitions_take_entries_over_and_are_protected_too() {
    let (_database, store, pool) = fresh().await;
    let recorded = RecordedTask::new(1, quick()).until(State::Completed);
    let first = &recorded.steps[0].1;
    store.insert_task(&recorded.task, first, &recorded.rules).await.expect("received");
    store.save_steps(&recorded.records()[..4], &recorded.rules).await.expect("recorded");
    let day = recorded.now.date_naive();
    let month = NaiveDate::from_ymd_opt(day.year(), day.month(), 1).expect("date");
    store.ensure_partitions(month, 0).await.expect("created");
    store.save_steps(&recorded.records()[4..], &recorded.rules).await.expect("recorded");
    let audit = verify(&store, &recorded).await;
    assert_eq!((audit.verified, audit.broken), (recorded.log().len() as u64, None));
    let partition = format!("entries_{}", month.format("%Y_%m"));
    for statement in ["DELETE FROM", "TRUNCATE"] {
        let statement = sqlx::AssertSqlSafe(format!("{statement} {partition}"));
        assert!(sqlx::raw_sql(statement).execute(&pool).await.is_err(), "{partition}");
    }
}

#[tokio::test]
async fn a_changed_entry_is_found_exactly() {
    let (_database, store, pool) = fresh().await;
    let (recorded, other) = (approved(1), approved(2));
    save(&store, &recorded).await;
    save(&store, &other).await;
    for (sequence, change) in [
        (
            3,
            "UPDATE entries SET actor = '{\"person\": \"Mallory\"}'
             WHERE sequence = 3 AND task = '0192a000-0000-7000-8000-000000000001'",
        ),
        (
            2,
            "UPDATE entries SET reason = 'forged', hash = NULL
             WHERE sequence = 2 AND task = '0192a000-0000-7000-8000-000000000001'",
        ),
        (
            1,
            "UPDATE entries SET recorded_at = recorded_at - interval '1 hour'
             WHERE sequence = 1 AND task = '0192a000-0000-7000-8000-000000000001'",
        ),
    ] {
        tamper(&pool, change).await;
        let broken = Some(BrokenEntry { sequence, fault: ChainFault::Changed });
        assert_eq!(verify(&store, &recorded).await.broken, broken, "{change}");
    }
    assert_eq!(verify(&store, &other).await.broken, None, "each task has its own chain");
}

#[tokio::test]
async fn a_deleted_entry_is_found_in_the_middle_and_at_the_end() {
    let (_database, store, pool) = fresh().await;
    let recorded = approved(1);
    save(&store, &recorded).await;
    let last = recorded.log().len() as u64;
    let missing = |sequence| Some(BrokenEntry { sequence, fault: ChainFault::Missing });
    tamper(&pool, "DELETE FROM entries WHERE sequence = (SELECT max(sequence) FROM entries)").await;
    assert_eq!(verify(&store, &recorded).await.broken, missing(last));
    // The count in the task's row is no secret either, but the end of the chain has its own.
    tamper(&pool, "UPDATE tasks SET entries = entries - 1").await;
    assert_eq!(verify(&store, &recorded).await.broken, missing(last));
    tamper(&pool, "DELETE FROM entries WHERE sequence = 4").await;
    assert_eq!(verify(&store, &recorded).await.broken, missing(4));
    tamper(&pool, "DELETE FROM entries").await;
    assert_eq!(verify(&store, &recorded).await.broken, missing(1));
}

#[tokio::test]
async fn a_forged_entry_and_a_forged_end_are_found() {
    let (_database, store, pool) = fresh().await;
    let recorded = approved(1);
    save(&store, &recorded).await;
    let last = recorded.log().len() as u64;
    tamper(&pool, "UPDATE history_heads SET hash = sha256('other')").await;
    let end_changed = BrokenEntry { sequence: last, fault: ChainFault::EndChanged };
    assert_eq!(verify(&store, &recorded).await.broken, Some(end_changed));
    tamper(
        &pool,
        "INSERT INTO entries
         (task, sequence, project, at, at_nanos, format, name, \"from\", \"to\", actor)
         SELECT task, sequence + 1, project, at, at_nanos, format, name, \"from\", \"to\", actor
         FROM entries WHERE sequence = (SELECT max(sequence) FROM entries)",
    )
    .await;
    let forged = BrokenEntry { sequence: last + 1, fault: ChainFault::Unexpected };
    assert_eq!(verify(&store, &recorded).await.broken, Some(forged));
}

#[tokio::test]
async fn entries_from_before_the_chain_are_not_covered() {
    let (_database, store, pool) = fresh().await;
    let recorded = approved(1);
    let records = recorded.records();
    let off = "ALTER TABLE entries DISABLE TRIGGER entries_are_chained";
    sqlx::raw_sql(off).execute(&pool).await.expect("off");
    let first = &recorded.steps[0].1;
    store.insert_task(&recorded.task, first, &recorded.rules).await.expect("received");
    store.save_steps(&records[..2], &recorded.rules).await.expect("recorded");
    let before = records[1].next.entry_count;
    let old = verify(&store, &recorded).await;
    assert_eq!((old.verified, old.not_covered, old.broken, old.head), (0, before, None, None));
    let on = "ALTER TABLE entries ENABLE TRIGGER entries_are_chained";
    sqlx::raw_sql(on).execute(&pool).await.expect("on");
    store.save_steps(&records[2..], &recorded.rules).await.expect("recorded");
    let audit = verify(&store, &recorded).await;
    let covered = recorded.log().len() as u64 - before;
    assert_eq!((audit.verified, audit.not_covered, audit.broken), (covered, before, None));
}

#[tokio::test]
async fn a_recovered_task_continues_its_chain() {
    let (_database, store, _pool) = fresh().await;
    let mut recorded = RecordedTask::new(1, careful()).until(State::AwaitingApproval);
    let recovery = Recovery {
        loss: WorkflowLoss::Missing,
        resolution: Resolution::Restart,
        reason: "restarted from the database".to_owned(),
    };
    recorded.now += TimeDelta::hours(1);
    assert!(recorded.apply(Actor::Tamma, EventKind::Reconciled(recovery)));
    save(&store, &recorded).await;
    // The new workflow saves the same steps again.
    store.save_steps(&recorded.records(), &recorded.rules).await.expect("stored already");
    let audit = verify(&store, &recorded).await;
    assert_eq!((audit.verified, audit.broken), (recorded.log().len() as u64, None));
}

#[tokio::test]
async fn the_history_says_how_its_author_was_authenticated() {
    let (_database, store, _pool) = fresh().await;
    let recorded = approved(1);
    save(&store, &recorded).await;
    let entries = store.history(recorded.task.id, 0, 100).await.expect("history");
    for entry in entries.into_iter().map(|it| it.entry) {
        let expected = matches!(entry.actor, Actor::Person(_)).then_some(AUTH);
        assert_eq!(entry.auth, expected, "{:?}", entry.name);
    }
}

#[tokio::test]
async fn only_readable_histories_are_verified() {
    let (_database, all, _pool) = fresh().await;
    let recorded = approved(1);
    save(&all, &recorded).await;
    assert_eq!(all.audited_tasks(None, 10).await.expect("tasks"), [recorded.task.id]);
    assert_eq!(all.audited_tasks(Some(recorded.task.id), 10).await.expect("tasks"), []);
    let none = all.limited_to(&ProjectScope::Only(std::collections::BTreeSet::new()));
    assert_eq!(none.audited_tasks(None, 10).await.expect("tasks"), []);
    let refused = none.verify_history(recorded.task.id, None).await.expect_err("not readable");
    assert!(matches!(refused, Error::NotFound { what: "task", .. }), "{refused}");
}
