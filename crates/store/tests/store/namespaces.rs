//! Temporal namespaces of organisations and of workflows.

use tamma_core::ids::{Name, OrganisationId, ProjectId};
use tamma_core::task_loop::{Action, State};
use tamma_store::{Conflict, Error, MergeQueueId, RegisteredProject, Store};
use tamma_testkit::postgres::TestDatabase;
use uuid::Uuid;

use crate::recorded_task::{PROJECT, RecordedTask, careful, register};

const ACME: OrganisationId = OrganisationId(Uuid::from_u128(0xacce));

const GLOBEX: OrganisationId = OrganisationId(Uuid::from_u128(0x910b));

const LASERS: ProjectId = ProjectId(Uuid::from_u128(3));

const TASK: Uuid = Uuid::from_u128(71);

/// Creates `ACME` and `GLOBEX` with a namespace each. `LASERS` belongs to `ACME`, and `PROJECT` to the
/// default organisation.
async fn tenants() -> (TestDatabase, Store) {
    let database = TestDatabase::fresh().await.expect("test database");
    let store = database.store().await.expect("connection");
    register(&store).await;
    let lasers = RegisteredProject { id: LASERS, name: "lasers".into(), repository: "/l".into() };
    store.register_project(&lasers).await.expect("registered");
    for (organisation, name, namespace) in
        [(ACME, "acme", "tamma-acme"), (GLOBEX, "globex", "tamma-globex")]
    {
        let named = (name, Some(namespace));
        store.add_organisation(organisation, named, &grace()).await.expect("added");
    }
    store.move_project(LASERS, ACME).await.expect("moved");
    (database, store)
}

fn grace() -> Name {
    "Grace".parse().expect("name")
}

async fn place(store: &Store, id: Uuid, project: ProjectId) -> Option<String> {
    store.place_workflow(id, project).await.expect("placed")
}

#[tokio::test]
async fn two_organisations_cannot_have_the_same_namespace() {
    let (_database, store) = tenants().await;
    assert_eq!(store.namespaces().await.expect("list"), ["tamma-acme", "tamma-globex"]);
    let id = OrganisationId(Uuid::from_u128(9));
    match store.add_organisation(id, ("third", Some("tamma-acme")), &grace()).await {
        Err(Error::Conflict(Conflict::Constraint(name))) => {
            assert_eq!(name, "organisations_by_namespace");
        }
        other => panic!("{other:?}"),
    }
    // Any number can share that of the installation.
    store.add_organisation(id, ("third", None), &grace()).await.expect("added");
    assert_eq!(store.namespaces().await.expect("list").len(), 2);
}

#[tokio::test]
async fn a_workflow_stays_in_the_namespace_in_which_it_started() {
    let (_database, store) = tenants().await;
    let project = async |id| store.project_namespace(id).await.expect("read");
    assert_eq!(project(PROJECT).await, None);
    assert_eq!(project(LASERS).await.as_deref(), Some("tamma-acme"));
    assert_eq!(place(&store, TASK, LASERS).await.as_deref(), Some("tamma-acme"));
    // Its project goes to another organisation.
    store.move_project(LASERS, GLOBEX).await.expect("moved");
    assert_eq!(place(&store, TASK, LASERS).await.as_deref(), Some("tamma-acme"));
    store.move_project(LASERS, OrganisationId::DEFAULT).await.expect("moved");
    assert_eq!(place(&store, TASK, LASERS).await.as_deref(), Some("tamma-acme"));
    let placed = store.workflow_namespace(TASK).await.expect("read");
    assert_eq!(placed.as_deref(), Some("tamma-acme"));
    // A worker that saves where it runs the workflow changes nothing.
    store.save_workflow_namespace(TASK, "tamma-globex").await.expect("saved");
    assert_eq!(store.workflow_namespace(TASK).await.expect("read"), placed);
    assert_eq!(place(&store, Uuid::from_u128(72), LASERS).await, None);
    assert_eq!(store.workflow_namespace(Uuid::from_u128(72)).await.expect("read"), None);
}

#[tokio::test]
async fn a_compared_workflow_without_a_namespace_stays_there() {
    let (_database, store) = tenants().await;
    let task = RecordedTask::new(1, careful()).task.id;
    store.save_workflow_run(task, "run-1").await.expect("saved");
    store.move_project(PROJECT, ACME).await.expect("moved");
    assert_eq!(place(&store, task.0, PROJECT).await, None);
}

#[tokio::test]
async fn the_namespace_of_a_closed_task_is_kept() {
    let (_database, store) = tenants().await;
    store.move_project(PROJECT, ACME).await.expect("moved");
    let mut recorded = RecordedTask::new(1, careful()).until(State::AwaitingApproval);
    let task = recorded.task.id;
    place(&store, task.0, PROJECT).await;
    let first = &recorded.steps[0].1;
    store.insert_task(&recorded.task, first, &recorded.rules).await.expect("received");
    store.save_steps(&recorded.records(), &recorded.rules).await.expect("recorded");
    store.save_workflow_run(task, "run-1").await.expect("saved");
    let open = store.open_tasks(State::AwaitingApproval, None, 9).await.expect("list");
    assert_eq!(open[0].namespace.as_deref(), Some("tamma-acme"));
    assert_eq!(open[0].run_id.as_deref(), Some("run-1"));
    assert!(recorded.ask(Action::Cancel { reason: crate::world::reason() }));
    store.save_steps(&recorded.records(), &recorded.rules).await.expect("closed");
    assert_eq!(store.forget_closed_workflows().await.expect("forgotten"), 0);
    let kept = store.workflow_namespace(task.0).await.expect("read");
    assert_eq!(kept.as_deref(), Some("tamma-acme"));
}

#[tokio::test]
async fn a_merge_queue_stays_in_its_first_namespace() {
    let (_database, store) = tenants().await;
    let queue = MergeQueueId {
        forge: "hub".to_owned(),
        repository: "team/app".to_owned(),
        branch: "main".to_owned(),
    };
    for namespace in [Some("tamma-acme"), None, Some("tamma-globex")] {
        let placed = store.place_merge_queue(&queue, LASERS, namespace).await.expect("placed");
        assert_eq!(placed.as_deref(), Some("tamma-acme"), "{namespace:?}");
    }
    // The snapshots of its workflow leave the namespace as it is.
    store.save_merge_queue(&queue, LASERS, &1).await.expect("saved");
    let stored = store.merge_queue(&queue).await.expect("read").expect("there");
    assert_eq!(stored.namespace.as_deref(), Some("tamma-acme"));
}
