//! Compatibility of programs with older and newer schemas.

use sqlx::migrate::Migrator;
use sqlx::{Connection as _, Executor as _, PgConnection, PgPool};
use tamma_store::{Error, SchemaStatus, UpgradeFinish};
use tamma_testkit::postgres::TestDatabase;

use crate::recorded_task::{RecordedTask, quick, register};

async fn execute(database: &TestDatabase, sql: &'static str) {
    let mut connection = PgConnection::connect(&database.url()).await.expect("connection");
    connection.execute(sql).await.expect("executed");
    connection.close().await.expect("closed");
}

#[tokio::test]
async fn only_migrations_change_the_schema() {
    let database = TestDatabase::empty().await.expect("test database");
    let store = database.store().await.expect("connection");
    assert!(matches!(store.check_schema().await, Err(Error::SchemaBehind { .. })));
    assert!(matches!(store.schema_status().await, Ok(SchemaStatus::Behind { .. })));
    store.migrate().await.expect("migrated");
    store.check_schema().await.expect("a known schema");
    assert_eq!(store.schema_status().await.expect("a status"), SchemaStatus::Current);
}

#[tokio::test]
async fn a_migration_that_waits_too_long_for_a_table_can_be_repeated() {
    let database = TestDatabase::empty().await.expect("test database");
    let requests = PgPool::connect(&database.url()).await.expect("connected");
    sqlx::migrate!().run_to(31, &requests).await.expect("an older schema");
    let mut request = requests.begin().await.expect("begun");
    request.execute("SELECT FROM runs").await.expect("read");

    let store = database.store().await.expect("connection");
    let error = store.migrate().await.expect_err("the table is in use");
    assert!(error.is_retryable(), "{error:?}");
    // No lock is left that requests, or the next attempt, would wait for.
    requests.execute("SELECT FROM tasks").await.expect("read");
    request.rollback().await.expect("ended");
    store.migrate().await.expect("migrated");
    assert_eq!(store.schema_status().await.expect("a status"), SchemaStatus::Current);
}

/// Tasks with labels that no index takes.
const LONG_LABELS: &str = "
WITH project AS (
    INSERT INTO projects (id, name, repository) VALUES (gen_random_uuid(), 'shop', '/shop')
    RETURNING id
)
INSERT INTO tasks (
    id, project, created_at, title, description, type, acceptance_criteria, labels, depends_on,
    metadata, revision, memory, entries, priority, state, phase, live, paused, since, iterations,
    retries, councils, spent_usd, spent_tokens, spend_estimated, failures
)
SELECT
    gen_random_uuid(), project.id, now(), 'A task', '', 'feature', '[]',
    ARRAY['short', (
        SELECT string_agg(md5(task::text || part::text), '') FROM generate_series(1, 200) AS part
    )],
    '{}', '{}', 1, '{}', 1, 'medium', 'pending', 'plan', true, false, now(), 0, 0, 0, 0, 0, false, 0
FROM project, generate_series(1, 200) AS task";

#[tokio::test]
async fn labels_of_any_length_do_not_stop_an_upgrade() {
    let database = TestDatabase::empty().await.expect("test database");
    let tasks = PgPool::connect(&database.url()).await.expect("connected");
    // Migrations of the version that took such labels: 29 was written later.
    let all = sqlx::migrate!();
    let older = all.iter().filter(|it| it.version <= 32 && it.version != 29).cloned();
    Migrator::with_migrations(older.collect()).run(&tasks).await.expect("an older schema");
    tasks.execute(LONG_LABELS).await.expect("added");
    // The old rows stay readable for a transaction that began before the upgrade.
    let mut reader = tasks.begin().await.expect("begun");
    reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ").await.expect("set");
    reader.execute("SELECT").await.expect("read");

    database.store().await.expect("connection").migrate().await.expect("migrated");
    reader.rollback().await.expect("ended");
    let lengths: Vec<i32> =
        sqlx::query_scalar("SELECT DISTINCT char_length(unnest(labels)) FROM tasks ORDER BY 1")
            .fetch_all(&tasks)
            .await
            .expect("read");
    assert_eq!(lengths, [5, 50]);
}

#[tokio::test]
async fn program_accepts_a_newer_schema_until_something_it_needs_is_removed() {
    let database = TestDatabase::fresh().await.expect("test database");
    let store = database.store().await.expect("connection");
    execute(
        &database,
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (9000, 'expand', true, 'x', 0)",
    )
    .await;
    store.check_schema().await.expect("a compatible schema");
    store.migrate().await.expect("nothing to do");
    assert_eq!(store.schema_status().await.expect("a status"), SchemaStatus::NewerCompatible);

    execute(&database, "UPDATE schema_compatibility SET oldest_version = 9000").await;
    for refused in [store.check_schema().await, store.migrate().await] {
        let error = refused.expect_err("an incompatible schema");
        assert!(matches!(error, Error::SchemaTooNew { oldest: 9000, .. }), "{error}");
    }
}

#[tokio::test]
async fn upgrade_is_finished_only_without_older_programs() {
    let database = TestDatabase::fresh().await.expect("test database");
    let store = database.store().await.expect("connection");
    assert!(
        store.is_upgrade_finished().await.expect("read"),
        "an empty database has no old programs"
    );

    // As an older version leaves it, with a worker and servers of its own.
    execute(&database, "UPDATE schema_compatibility SET oldest_version = 14").await;
    execute(
        &database,
        "INSERT INTO workers (name, slots, started_at, seen_at) VALUES ('old', 1, now(), now())",
    )
    .await;
    execute(
        &database,
        "INSERT INTO servers (name, schema_version, started_at, seen_at) VALUES
            ('old', 33, now(), now()), ('dead', 33, now(), now() - interval '2 minutes')",
    )
    .await;
    store.record_heartbeat("new", 1, "bubblewrap").await.expect("recorded");
    store.record_server("new").await.expect("recorded");
    store.record_server("new").await.expect("recorded again");
    store.migrate().await.expect("nothing to do");
    assert_eq!(store.oldest_schema().await.expect("read"), 14, "a migration finishes nothing");
    let refused = store.finish_upgrade().await.expect("an answer");
    let old = || vec!["old".to_owned()];
    assert_eq!(refused, UpgradeFinish::OlderPrograms { servers: old(), workers: old() });
    store.remove_worker("old").await.expect("removed");
    let refused = store.finish_upgrade().await.expect("an answer");
    assert_eq!(refused, UpgradeFinish::OlderPrograms { servers: old(), workers: Vec::new() });
    assert!(!store.is_upgrade_finished().await.expect("read"));

    store.remove_server("old").await.expect("removed");
    let finished = store.finish_upgrade().await.expect("an answer");
    let schema = store.oldest_schema().await.expect("read");
    assert_eq!(finished, UpgradeFinish::Finished { schema });
    assert!(schema >= 34 && store.is_upgrade_finished().await.expect("read"));
}

#[tokio::test]
async fn a_new_task_has_no_branch_that_older_workers_would_not_know() {
    let database = TestDatabase::fresh().await.expect("test database");
    let store = database.store().await.expect("connection");
    register(&store).await;
    execute(&database, "UPDATE schema_compatibility SET oldest_version = 14").await;
    let mut branches = Vec::new();
    for number in [1, 2] {
        let recorded = RecordedTask::new(number, quick());
        let (task, first) = (&recorded.task, &recorded.steps[0].1);
        store.insert_task(task, first, &recorded.rules).await.expect("inserted");
        branches.push(store.task_branch(task.id).await.expect("branch"));
        store.finish_upgrade().await.expect("finished");
        assert_eq!(branches[0], format!("tamma/{}", RecordedTask::new(1, quick()).task.id));
    }
    assert!(branches[1].ends_with("-task-2"), "{branches:?}");
}
