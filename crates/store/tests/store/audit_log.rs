//! Audit log on a real PostgreSQL: nobody can rewrite it, and whoever can is found.

use chrono::{DateTime, TimeDelta};
use sqlx::PgPool;
use tamma_core::actor::{AuthMethod, Authentication, RequestInterface};
use tamma_core::audit::{
    AuditFault, AuditHead, AuditKind, AuditOutcome, AuditRequest, AuditResult, ChainReport,
    ChainVerifier,
};
use tamma_core::time::Timestamp;
use tamma_store::{PendingAudit, Store};
use tamma_testkit::postgres::TestDatabase;

/// Time before which nothing is abandoned.
const NEVER: Timestamp = DateTime::UNIX_EPOCH;

async fn fresh() -> (TestDatabase, Store, PgPool) {
    let database = TestDatabase::fresh().await.expect("test database");
    let store = database.store().await.expect("connection");
    let pool = PgPool::connect(&database.url()).await.expect("connected");
    (database, store, pool)
}

fn request(number: u32) -> AuditRequest {
    AuditRequest {
        at: DateTime::UNIX_EPOCH + TimeDelta::nanoseconds(number.into()),
        kind: AuditKind::Access,
        route: "GET /api/v1/tasks/{id}/diff".to_owned(),
        subject: format!("/api/v1/tasks/{number}/diff \0 \"é"),
        person: Some("Ada".to_owned()),
        auth: Some(Authentication { method: AuthMethod::OwnToken, via: RequestInterface::Api }),
        address: Some("192.0.2.1".to_owned()),
        request_id: None,
    }
}

fn granted() -> AuditOutcome {
    AuditOutcome {
        result: AuditResult::Granted,
        status: Some(200),
        policy: Some("role viewer: read".to_owned()),
        project: None,
        actions: vec!["approve".to_owned()],
    }
}

async fn write(store: &Store, entries: u32) {
    for number in 1..=entries {
        let id = store.begin_audit(&request(number)).await.expect("recorded");
        assert!(store.complete_audit(id, &granted()).await.expect("completed"));
    }
    let appended = store.append_audit_entries(NEVER, 1000).await.expect("appended");
    assert_eq!(appended, u64::from(entries));
}

async fn verify_with(store: &Store, anchor: Option<AuditHead>) -> ChainReport {
    let mut verifier = ChainVerifier::new(anchor);
    let (mut after, limit) = (0, 4);
    loop {
        let page = store.audit_log(after, limit).await.expect("page");
        page.entries.iter().for_each(|entry| verifier.read(entry));
        match page.entries.last() {
            Some(last) if page.entries.len() == 4 => after = last.position,
            _ => return verifier.finish(Some(page.head)),
        }
    }
}

async fn broken(store: &Store) -> Option<(u64, AuditFault)> {
    verify_with(store, None).await.broken.map(|it| (it.position, it.fault))
}

/// Runs statements as somebody who can turn triggers off.
async fn tamper(pool: &PgPool, statements: &'static str) {
    let mut transaction = pool.begin().await.expect("transaction");
    sqlx::raw_sql("SET LOCAL session_replication_role = replica")
        .execute(&mut *transaction)
        .await
        .expect("triggers are off");
    sqlx::raw_sql(statements).execute(&mut *transaction).await.expect("changed");
    transaction.commit().await.expect("committed");
}

#[tokio::test]
async fn the_audit_log_cannot_be_changed_deleted_or_truncated() {
    let (_database, store, pool) = fresh().await;
    write(&store, 3).await;
    let open = store.begin_audit(&request(4)).await.expect("recorded");
    let done = store.begin_audit(&request(5)).await.expect("recorded");
    assert!(store.complete_audit(done, &granted()).await.expect("completed"));
    assert!(!store.complete_audit(done, &granted()).await.expect("once"), "completed twice");
    for statement in [
        "UPDATE audit_entries SET content = '{\"id\":1}' WHERE position = 1",
        "UPDATE audit_entries SET position = position + 10",
        "DELETE FROM audit_entries",
        "TRUNCATE audit_entries",
        "INSERT INTO audit_entries (position, previous, hash, content)
         VALUES (4, 'a', 'b', '{\"id\":99}')",
        "INSERT INTO audit_entries (position, previous, hash, content)
         SELECT 5, hash, hash, '{\"id\":99}' FROM audit_head",
        "UPDATE audit_head SET position = 2",
        "DELETE FROM audit_head",
        "TRUNCATE audit_head",
        "INSERT INTO audit_head (position, hash) VALUES (0, '')",
        "UPDATE audit_pending SET request = '{}'",
        "UPDATE audit_pending SET outcome = NULL",
        "UPDATE audit_pending SET outcome = '{}' WHERE outcome IS NOT NULL",
        "DELETE FROM audit_pending",
        "TRUNCATE audit_pending",
    ] {
        let refused = sqlx::raw_sql(statement).execute(&pool).await;
        assert!(refused.is_err(), "{statement}");
    }
    assert!(store.complete_audit(open, &granted()).await.expect("completed"));
    assert_eq!(store.append_audit_entries(NEVER, 10).await.expect("appended"), 2);
    let report = verify_with(&store, None).await;
    assert_eq!((report.verified, report.broken), (5, None));
}

#[tokio::test]
async fn a_changed_a_removed_and_a_reordered_entry_are_located() {
    let cases = [
        (
            "UPDATE audit_entries SET content = replace(content, 'Ada', 'Eve') WHERE position = 6",
            (6, AuditFault::Changed),
        ),
        ("UPDATE audit_entries SET hash = 'no hash' WHERE position = 3", (3, AuditFault::Changed)),
        ("DELETE FROM audit_entries WHERE position = 5", (5, AuditFault::Missing)),
        ("DELETE FROM audit_entries WHERE position = 10", (10, AuditFault::Missing)),
        (
            "DELETE FROM audit_entries WHERE position = 5;
             UPDATE audit_entries SET position = -position WHERE position > 5;
             UPDATE audit_entries SET position = -position - 1 WHERE position < 0;",
            (5, AuditFault::Unlinked),
        ),
        (
            "UPDATE audit_entries SET position = -position WHERE position IN (2, 9);
             UPDATE audit_entries SET position = 11 + position WHERE position < 0;",
            (2, AuditFault::Moved { to: 9 }),
        ),
        ("DELETE FROM audit_head", (10, AuditFault::EndChanged)),
        ("UPDATE audit_head SET hash = ''", (10, AuditFault::EndChanged)),
    ];
    for (statements, expected) in cases {
        let (_database, store, pool) = fresh().await;
        write(&store, 10).await;
        assert_eq!(broken(&store).await, None);
        tamper(&pool, statements).await;
        assert_eq!(broken(&store).await, Some(expected), "{statements}");
    }
}

#[tokio::test]
async fn a_hash_that_was_kept_shows_that_the_end_was_cut_off_and_rewritten() {
    let (_database, store, pool) = fresh().await;
    write(&store, 4).await;
    let kept = verify_with(&store, None).await.head;
    assert_eq!(kept.position, 4);
    tamper(
        &pool,
        "DELETE FROM audit_entries WHERE position > 2;
         UPDATE audit_head SET position = 2,
            hash = (SELECT hash FROM audit_entries WHERE position = 2);",
    )
    .await;
    assert_eq!(broken(&store).await, None, "the chain alone does not show it");
    let cut = verify_with(&store, Some(kept)).await.broken.expect("broken");
    assert_eq!((cut.position, cut.fault), (3, AuditFault::Missing));
    write(&store, 3).await;
    let rewritten = verify_with(&store, Some(kept)).await.broken.expect("broken");
    assert_eq!((rewritten.position, rewritten.fault), (4, AuditFault::Replaced));
}

#[tokio::test]
async fn a_request_without_a_result_waits_and_is_then_unknown() {
    let (_database, store, _pool) = fresh().await;
    let open = store.begin_audit(&request(1)).await.expect("recorded");
    let done = store.begin_audit(&request(2)).await.expect("recorded");
    assert!(store.complete_audit(done, &granted()).await.expect("completed"));
    assert_eq!(store.append_audit_entries(NEVER, 10).await.expect("appended"), 1);
    let pending = store.pending_audit().await.expect("pending");
    assert_eq!(pending.count, 1);
    let abandoned_before = pending.oldest.expect("oldest") + TimeDelta::seconds(1);
    assert_eq!(store.append_audit_entries(abandoned_before, 10).await.expect("appended"), 1);
    assert!(!store.complete_audit(open, &granted()).await.expect("too late"));
    let pending = store.pending_audit().await.expect("pending");
    assert_eq!(pending, PendingAudit { count: 0, oldest: None });
    let page = store.audit_log(0, 10).await.expect("page");
    let contents: Vec<serde_json::Value> = page
        .entries
        .iter()
        .map(|entry| serde_json::from_str(&entry.content).expect("JSON"))
        .collect();
    let results: Vec<_> = contents.iter().map(|entry| &entry["outcome"]["result"]).collect();
    assert_eq!(results, ["granted", "unknown"]);
    assert_eq!(contents[0]["subject"], "/api/v1/tasks/2/diff \u{fffd} \"é");
    assert_eq!(contents[0]["auth"], serde_json::json!({ "method": "own_token", "via": "api" }));
    assert_eq!(broken(&store).await, None);
}

#[tokio::test]
async fn writers_do_not_wait_for_each_other_and_append_each_entry_once() {
    let (database, store, _pool) = fresh().await;
    let database = &database;
    let writers = (0..8).map(|_| async move {
        let store = database.store().await.expect("connection");
        for number in 0..10 {
            let id = store.begin_audit(&request(number)).await.expect("recorded");
            assert!(store.complete_audit(id, &granted()).await.expect("completed"));
            store.append_audit_entries(NEVER, 7).await.expect("appended");
        }
        store.close().await;
    });
    futures_util::future::join_all(writers).await;
    while store.append_audit_entries(NEVER, 7).await.expect("appended") > 0 {}
    let report = verify_with(&store, None).await;
    assert_eq!((report.verified, report.broken), (80, None));
    assert_eq!(store.pending_audit().await.expect("pending").count, 0);
}

#[tokio::test]
async fn the_position_of_a_receiver_never_goes_back() {
    let (_database, store, pool) = fresh().await;
    assert_eq!(store.audit_export_position("syslog").await.expect("position"), 0);
    for (saved, expected) in [(3, 3), (2, 3), (7, 7)] {
        store.save_audit_export("syslog", saved).await.expect("saved");
        let position = store.audit_export_position("syslog").await.expect("position");
        assert_eq!(position, expected);
    }
    let back = sqlx::raw_sql("UPDATE audit_exports SET position = 1").execute(&pool).await;
    assert!(back.is_err());
}
