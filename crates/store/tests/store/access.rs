//! Roles in the store, and what a limited handle reads.

use std::path::Path;

use futures_util::TryStreamExt as _;
use serde_json::Value;
use tamma_core::access::{Membership, OrganisationRole, PersonRole, ProjectScope};
use tamma_core::ids::{Name, OrganisationId, ProjectId};
use tamma_core::task_loop::State;
use tamma_store::{
    AccessChange, AccessSource, Error, KnowledgeFilter, NewLogin, OrganisationChange,
    PipelineFilter, RegisteredProject, Store, TaskFilter, TaskOrder,
};
use tamma_testkit::postgres::TestDatabase;
use uuid::Uuid;

use crate::recorded_task::{PROJECT, RecordedTask, careful, register};

const OTHER: ProjectId = ProjectId(Uuid::from_u128(3));

const OTHER_ORGANISATION: OrganisationId = OrganisationId(Uuid::from_u128(8));

fn name(text: &str) -> Name {
    text.parse().expect("name")
}

fn change(person: Option<&str>, role: Option<PersonRole>) -> AccessChange {
    AccessChange {
        project: PROJECT,
        person: person.map(name),
        role,
        by: name("Grace"),
        auth_method: "server_token".to_owned(),
        source: if role.is_some() { AccessSource::Granted } else { AccessSource::Revoked },
        at: chrono::DateTime::UNIX_EPOCH,
    }
}

async fn fresh() -> (TestDatabase, Store) {
    let database = TestDatabase::fresh().await.expect("test database");
    let store = database.store().await.expect("connection");
    register(&store).await;
    let other = RegisteredProject { id: OTHER, name: "other".to_owned(), repository: "/o".into() };
    store.register_project(&other).await.expect("registered");
    (database, store)
}

#[tokio::test]
async fn the_newest_change_of_a_role_counts_and_all_changes_are_kept() {
    let (_database, store) = fresh().await;
    let membership = async |person: &str| {
        Membership::from_grants(&store.grants_of(&name(person), &[]).await.expect("grants"))
    };
    let role = async |person: &str| membership(person).await.roles.get(&PROJECT).copied();
    assert_eq!(role("Ada").await, None, "nobody has a role before one is granted");
    for (person, new) in [
        (Some("Ada"), Some(PersonRole::Approver)),
        (None, Some(PersonRole::Viewer)),
        (Some("ADA"), Some(PersonRole::Member)),
        (Some("Bob"), Some(PersonRole::Approver)),
        (Some("Bob"), None),
    ] {
        store.change_access(&[change(person, new)]).await.expect("changed");
    }
    assert_eq!(role("ada").await, Some(OrganisationRole::Member), "names ignore capitals");
    assert_eq!(role("Bob").await, Some(OrganisationRole::Viewer), "as everybody");
    assert_eq!(role("Mallory").await, Some(OrganisationRole::Viewer));
    let roles = store.project_roles(PROJECT).await.expect("roles");
    assert_eq!(roles.everybody, Some(PersonRole::Viewer));
    assert_eq!(roles.named, [("ADA".to_owned(), PersonRole::Member)].into());
    assert_eq!(membership("Ada").await.roles.len(), 1, "one project");
    store.change_access(&[change(None, None)]).await.expect("changed");
    assert_eq!(role("Mallory").await, None);
    let changes = store.access_changes(Some(PROJECT), 100).await.expect("changes");
    assert_eq!(changes.len(), 6);
    assert_eq!((changes[0].role, changes[0].source), (None, AccessSource::Revoked));
    assert_eq!(changes[5].person, Some(name("Ada")));
    assert_eq!(store.access_changes(Some(OTHER), 100).await.expect("changes"), []);
}

#[tokio::test]
async fn changes_of_access_cannot_be_rewritten() {
    let (database, store) = fresh().await;
    store.change_access(&[change(Some("Ada"), Some(PersonRole::Viewer))]).await.expect("changed");
    let pool = sqlx::PgPool::connect(&database.url()).await.expect("connected");
    for statement in [
        "UPDATE access_changes SET role = 'approver'",
        "DELETE FROM access_changes",
        "TRUNCATE access_changes",
    ] {
        let refused = sqlx::raw_sql(statement).execute(&pool).await;
        assert!(refused.is_err(), "{statement}");
    }
}

#[tokio::test]
async fn a_limited_handle_reads_nothing_of_other_projects() {
    let (_database, all) = fresh().await;
    let recorded = RecordedTask::new(1, careful()).until(State::Validated);
    let inserted = all.insert_task(&recorded.task, &recorded.steps[0].1, &recorded.rules).await;
    inserted.expect("received");
    all.save_steps(&recorded.records(), &recorded.rules).await.expect("recorded");
    let (task, since) = (recorded.task.id, recorded.steps[0].0);
    let late = recorded.now + chrono::TimeDelta::days(2);
    let suffix = task.to_string()[28..].to_owned();

    for (scope, expected) in [
        (ProjectScope::All, 1),
        (ProjectScope::Only([PROJECT, OTHER].into()), 1),
        (ProjectScope::Only([PROJECT].into()), 1),
        (ProjectScope::Only([OTHER].into()), 0),
        (ProjectScope::Only([].into()), 0),
    ] {
        let store = all.limited_to(&scope);
        let is = |what: &str, count: usize| assert_eq!(count, expected, "{what} with {scope:?}");
        let filter = TaskFilter::default();
        is("tasks", store.tasks(&filter, None, 9).await.expect("page").tasks.len());
        // An explicit filter does not widen the limit.
        let own = TaskFilter { project: Some(PROJECT), ..TaskFilter::default() };
        is("tasks of", store.tasks(&own, None, 9).await.expect("page").tasks.len());
        let board = store.board(&filter, TaskOrder::default(), 9).await.expect("board");
        is("board", board.tasks.len());
        is("board counts", board.counts.len());
        is("inbox", store.inbox(None, None, 9).await.expect("inbox").tasks.len());
        let overdue = store.over_timeout(None, late, None, 9).await.expect("page");
        is("overdue", overdue.tasks.len());
        is("states", store.count_by_state(None).await.expect("counts").len());
        let waiting = store.count_waiting(Some(PROJECT)).await.expect("count");
        is("waiting", usize::try_from(waiting).expect("small"));
        is("suffix", store.tasks_by_suffix(&suffix).await.expect("tasks").len());
        is("card", usize::from(store.listed_task(task).await.expect("card").is_some()));
        is("task", usize::from(store.task(task).await.is_ok()));
        is("submitted", usize::from(store.submitted_task(task).await.is_ok()));
        is("position", usize::from(store.task_position(task).await.is_ok()));
        is("project", usize::from(store.project(PROJECT).await.is_ok()));
        let history = store.history(task, 0, 99).await.expect("history");
        is("history", usize::from(!history.is_empty()));
        let exported: Vec<_> = store.export(None).try_collect().await.expect("exported");
        is("export", usize::from(!exported.is_empty()));
        // As a filter by a project shows them.
        let filter = Some(if expected == 1 { PROJECT } else { OTHER });
        assert_eq!(
            store.metrics(None, since, None).await.expect("metrics"),
            all.metrics(filter, since, None).await.expect("metrics"),
        );
        assert_eq!(
            store.spend_by_day(None, since).await.expect("spend"),
            all.spend_by_day(filter, since).await.expect("spend"),
        );
        assert_eq!(
            store.spend_by_job(None, since).await.expect("spend"),
            all.spend_by_job(filter, since).await.expect("spend"),
        );
        let projects = store.projects().await.expect("projects");
        assert!(projects.iter().all(|it| scope.includes(it.id)), "{projects:?}");
        if expected == 0 {
            let missing = store.task(task).await.expect_err("not readable");
            assert!(matches!(missing, Error::NotFound { what: "task", .. }), "{missing}");
        }
        assert!(store.pipelines(&PipelineFilter::default(), 9).await.expect("list").is_empty());
        let entries = store.list_knowledge(&KnowledgeFilter::default()).await.expect("entries");
        assert!(entries.is_empty());
    }
}

/// Queries of data that belongs to a project, by a table that they read. Each list of rows must
/// carry the limit; a query by the ID of one task or pipeline is guarded by the server's routes.
#[test]
fn every_list_of_project_data_carries_the_limit() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(".sqlx");
    let tables = ["FROM tasks", "FROM entries", "FROM pipelines WHERE", "FROM usage", "FROM runs"];
    let tables = tables.into_iter().chain(["FROM knowledge\n", "FROM deliveries JOIN"]);
    let tables = tables.chain(["FROM pull_requests", "FROM issue_tasks", "FROM merge_queue"]);
    let tables: Vec<_> = tables.chain(["FROM aftercare_findings"]).collect();
    // One row, or rows of one task, pipeline or project by its ID; or a statement of a worker.
    let keyed = [
        "id = $1",
        "task = $1",
        "WHERE project = $1",
        "WHERE r.project = $1",
        "$1 = ANY(tasks.depends_on)",
        "id = ANY($1)",
        "unnest($1::uuid []) AS wanted",
        "INSERT INTO",
        "UPDATE ",
        "DELETE FROM",
        "updated_at >= $1",
        // The poller, a service of the server itself.
        "forge = $1",
        // The reconciler, a service of the server itself.
        "LEFT JOIN task_workflows",
        // Metrics of the installation, for its operator; they name no project.
        r#"count(*)::float8 AS "count!""#,
        r#"AS "asking_seconds!""#,
    ];
    let mut lists = 0;
    for file in std::fs::read_dir(folder).expect("queries") {
        let text = std::fs::read_to_string(file.expect("file").path()).expect("query");
        let query: Value = serde_json::from_str(&text).expect("JSON");
        let query = query["query"].as_str().expect("SQL").to_owned();
        if !tables.iter().any(|table| query.contains(table))
            || keyed.iter().any(|key| query.contains(key))
        {
            continue;
        }
        lists += 1;
        assert!(query.contains("::uuid []"), "a list without the limit:\n{query}");
    }
    assert!(lists >= 15, "only {lists} lists found");
}

#[tokio::test]
async fn a_role_in_an_organisation_follows_its_projects() {
    let (_database, store) = fresh().await;
    let acme = OrganisationId(Uuid::from_u128(7));
    store.add_organisation(acme, ("acme", None), &name("Grace")).await.expect("added");
    let again = store.add_organisation(OTHER_ORGANISATION, ("acme", None), &name("Grace")).await;
    assert!(matches!(again, Err(Error::Conflict(_))), "{again:?}");
    let membership = async || {
        Membership::from_grants(&store.grants_of(&name("ada"), &[]).await.expect("grants"))
    };
    let change = async |role| {
        let change = OrganisationChange {
            organisation: acme,
            person: name("Ada"),
            role,
            by: name("Grace"),
            auth_method: "server_token".to_owned(),
        };
        store.change_organisation_role(&change).await.expect("changed");
    };
    assert!(!store.is_name_used(&name("ada")).await.expect("asked"));
    change(Some(OrganisationRole::Administrator)).await;
    // Nobody gets the role by signing in under the name.
    assert!(store.is_name_used(&name("ada")).await.expect("asked"));
    let empty = membership().await;
    assert_eq!((empty.roles.len(), empty.administered), (0, [acme].into()));
    store.move_project(OTHER, acme).await.expect("moved");
    assert_eq!(membership().await.roles, [(OTHER, OrganisationRole::Administrator)].into());
    let all = store.organisations().await.expect("organisations");
    let projects: Vec<(&str, Vec<ProjectId>)> =
        all.iter().map(|it| (it.name.as_str(), it.projects.values().copied().collect())).collect();
    assert_eq!(projects, [("acme", vec![OTHER]), ("default", vec![PROJECT])]);
    change(None).await;
    assert!(membership().await.roles.is_empty());
    assert!(store.organisation_roles(acme).await.expect("roles").is_empty());
}

#[tokio::test]
async fn people_of_a_removed_provider_have_only_what_was_granted_to_them() {
    let (_database, store) = fresh().await;
    let viewers = change(None, Some(PersonRole::Viewer));
    store.change_access(&[viewers]).await.expect("changed");
    let ada = name("Ada");
    let new = NewLogin {
        ids: [10, 11, 12].map(Uuid::from_u128),
        issuer: "https://id.example",
        subject: "ada",
        person: &ada,
        groups: &["staff".to_owned()],
        sid: None,
        tokens: "sealed",
        now: chrono::DateTime::UNIX_EPOCH,
    };
    store.add_login(&new).await.expect("added");
    let role = async |person: &str, issuers: &[&str]| {
        let issuers: Vec<String> = issuers.iter().map(|it| (*it).to_owned()).collect();
        let grants = store.grants_of(&name(person), &issuers).await.expect("grants");
        Membership::from_grants(&grants).roles.get(&PROJECT).copied()
    };
    let viewer = Some(OrganisationRole::Viewer);
    assert_eq!(role("ADA", &["https://id.example", "https://other.example"]).await, viewer);
    for left in [&["https://other.example"][..], &[]] {
        assert_eq!(role("ADA", left).await, None, "{left:?}");
        assert_eq!(role("Bob", left).await, viewer, "Bob came from no provider");
    }
    let own = change(Some("Ada"), Some(PersonRole::Member));
    store.change_access(&[own]).await.expect("changed");
    assert_eq!(role("ada", &[]).await, Some(OrganisationRole::Member));
}
