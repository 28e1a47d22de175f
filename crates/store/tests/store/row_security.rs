//! Row-level security: what the database gives out for some organisations, whatever a query asks for.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{PgPool, Row as _};
use tamma_core::ids::{Name, OrganisationId, ProjectId};
use tamma_core::task_loop::State;
use tamma_store::{RegisteredProject, Store, TaskFilter};
use tamma_testkit::postgres::TestDatabase;
use uuid::Uuid;

use crate::recorded_task::{PROJECT, RecordedTask, careful, register};

const ACME: OrganisationId = OrganisationId(Uuid::from_u128(0xacce));

const GLOBEX: OrganisationId = OrganisationId(Uuid::from_u128(0x910b));

const LASERS: ProjectId = ProjectId(Uuid::from_u128(3));

/// Tables that belong to no organisation and contain nothing of one.
const OPEN_TABLES: [&str; 3] = ["_sqlx_migrations", "reconciliation", "schema_compatibility"];

/// Creates a project of each organisation, and a task with its history in that of `ACME`.
async fn tenants() -> (TestDatabase, Store, RecordedTask) {
    let database = TestDatabase::fresh().await.expect("test database");
    let store = database.store().await.expect("connection");
    let store = store.with_row_security().await.expect("checked").expect("the role exists");
    register(&store).await;
    let lasers = RegisteredProject { id: LASERS, name: "lasers".into(), repository: "/l".into() };
    store.register_project(&lasers).await.expect("registered");
    let grace: Name = "Grace".parse().expect("name");
    for (organisation, name, project) in [(ACME, "acme", PROJECT), (GLOBEX, "globex", LASERS)] {
        store.add_organisation(organisation, (name, None), &grace).await.expect("added");
        store.move_project(project, organisation).await.expect("moved");
    }
    let recorded = RecordedTask::new(1, careful()).until(State::Validated);
    let inserted = store.insert_task(&recorded.task, &recorded.steps[0].1, &recorded.rules).await;
    inserted.expect("received");
    store.save_steps(&recorded.records(), &recorded.rules).await.expect("recorded");
    (database, store, recorded)
}

/// Connects as the role of the server's reads for people, with the given organisations.
async fn connect_as_tenant(database: &TestDatabase, organisations: &str) -> PgPool {
    let options: PgConnectOptions = database.url().parse().expect("URL");
    let options =
        options.options([("role", "tamma_tenant"), ("tamma.organisations", organisations)]);
    PgPoolOptions::new().max_connections(1).connect_with(options).await.expect("connected")
}

#[tokio::test]
async fn the_database_gives_out_rows_of_the_organisation_only() {
    let (_database, all, recorded) = tenants().await;
    let (task, filter) = (recorded.task.id, TaskFilter::default());
    for (organisations, expected) in [
        (None, 1),
        (Some(BTreeSet::from([ACME])), 1),
        (Some(BTreeSet::from([ACME, GLOBEX])), 1),
        (Some(BTreeSet::from([GLOBEX])), 0),
        (Some(BTreeSet::from([OrganisationId::DEFAULT])), 0),
        (Some(BTreeSet::new()), 0),
    ] {
        // No query carries a limit of its own.
        let store = all.within(organisations.as_ref());
        let is = |what: &str, count: usize| {
            assert_eq!(count, expected, "{what} within {organisations:?}");
        };
        is("tasks", store.tasks(&filter, None, 9).await.expect("page").tasks.len());
        is("task", usize::from(store.task(task).await.is_ok()));
        is("state machines", store.task_loops(&[task]).await.expect("machines").len());
        is("severities", store.newest_severities(&[task]).await.expect("severities").len());
        is("card", usize::from(store.listed_task(task).await.expect("card").is_some()));
        is("project of", usize::from(store.task_project(task).await.is_ok()));
        is("project", usize::from(store.project(PROJECT).await.is_ok()));
        let history = store.history(task, 0, 99).await.expect("history");
        is("history", usize::from(!history.is_empty()));
        let exported: Vec<_> = store.export(None).try_collect().await.expect("exported");
        is("export", usize::from(!exported.is_empty()));
        is("states", store.count_by_state(None).await.expect("counts").len());
    }
    all.close().await;
}

#[tokio::test]
async fn connections_do_not_grow_with_the_sets_of_organisations() {
    let (database, store, _) = tenants().await;
    let owner = PgPool::connect(&database.url()).await.expect("connected");
    for number in 1..=40 {
        let set = BTreeSet::from([ACME, OrganisationId(Uuid::from_u128(number))]);
        let tasks = store.within(Some(&set)).tasks(&TaskFilter::default(), None, 9).await;
        assert_eq!(tasks.expect("page").tasks.len(), 1, "set {number}");
    }
    // The server needs a moment to notice that connections were closed.
    tamma_testkit::wait_until("connections to close", Duration::from_secs(10), async || {
        let count = sqlx::query_scalar::<_, i64>(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()",
        );
        Ok((count.fetch_one(&owner).await? < 25).then_some(()))
    })
    .await
    .expect("few connections");
    store.close().await;
}

#[tokio::test]
async fn the_role_of_reads_sees_nothing_of_others_in_any_table() {
    let (database, store, _) = tenants().await;
    let owner = PgPool::connect(&database.url()).await.expect("connected");
    let tables = sqlx::query(
        "SELECT relname::text AS name, relrowsecurity AS is_secured,
             has_table_privilege('tamma_tenant', oid, 'SELECT') AS is_readable,
             has_table_privilege('tamma_tenant', oid, 'INSERT, UPDATE, DELETE, TRUNCATE') AS is_writable
         FROM pg_class
         WHERE relkind IN ('r', 'p') AND relnamespace = current_schema()::regnamespace
         ORDER BY relname",
    );
    let tables = tables.fetch_all(&owner).await.expect("tables");
    assert!(tables.len() > 50, "{} tables", tables.len());
    let own = connect_as_tenant(&database, &ACME.to_string()).await;
    let other = connect_as_tenant(&database, &GLOBEX.to_string()).await;
    let nobody = connect_as_tenant(&database, "").await;
    let mut seen = 0;
    for table in tables {
        let name: String = table.get("name");
        let is_secured: bool = table.get("is_secured");
        // A new table needs a policy, or row-level security without one.
        assert_eq!(is_secured, !OPEN_TABLES.contains(&name.as_str()), "{name}");
        assert!(!table.get::<bool, _>("is_writable"), "{name}");
        let count = async |pool: &PgPool| {
            let sql = format!("SELECT count(*) FROM {name}");
            let row = sqlx::query_scalar::<_, i64>(sqlx::AssertSqlSafe(sql)).fetch_one(pool).await;
            row.ok()
        };
        let is_readable: bool = table.get("is_readable");
        for pool in [&own, &other, &nobody] {
            assert_eq!(count(pool).await.is_some(), is_readable, "{name}");
        }
        if is_readable && name != "projects" {
            assert_eq!(count(&other).await, Some(0), "{name}");
            assert_eq!(count(&nobody).await, Some(0), "{name}");
            // The owner of the tables sees what its organisation sees: there is no other data.
            assert_eq!(count(&own).await, count(&owner).await, "{name}");
            seen += usize::from(count(&own).await > Some(0));
        }
    }
    assert!(seen >= 3, "the organisation sees its own rows in {seen} tables");
    assert_eq!(
        sqlx::query_scalar::<_, Uuid>("SELECT id FROM projects")
            .fetch_all(&other)
            .await
            .expect("rows"),
        [LASERS.0]
    );
    store.close().await;
}
