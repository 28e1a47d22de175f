//! Tasks in the Temporal namespace of an organisation.

use std::time::Duration;

use tamma_core::ids::OrganisationId;
use tamma_core::task_loop::State;
use tamma_flow::{NAMESPACE, TaskWorkflow, search_attributes, workflow_id};
use tamma_testkit::agent::{AgentStep, IMPLEMENTER};
use tamma_testkit::sample::sample_script;
use temporalio_client::tonic::Request;
use temporalio_client::{
    Client, WorkflowCountOptions, WorkflowDescribeOptions, WorkflowGetResultOptions,
};
use temporalio_common::protos::temporal::api::enums::v1::IndexedValueType;
use temporalio_common::protos::temporal::api::operatorservice::v1::AddSearchAttributesRequest;
use temporalio_common::protos::temporal::api::workflowservice::v1::{
    DescribeNamespaceRequest, RegisterNamespaceRequest,
};
use uuid::Uuid;

use crate::cluster::{Cluster, until};

/// Creates a namespace as the server does, and returns a client for it.
async fn create_namespace(client: &Client, namespace: &str) -> Client {
    let mut service = client.connection().workflow_service();
    let describe = DescribeNamespaceRequest {
        namespace: NAMESPACE.to_owned(),
        ..DescribeNamespaceRequest::default()
    };
    let own = service.describe_namespace(Request::new(describe)).await.unwrap().into_inner();
    let register = RegisterNamespaceRequest {
        namespace: namespace.to_owned(),
        workflow_execution_retention_period: own.config.unwrap().workflow_execution_retention_ttl,
        ..RegisterNamespaceRequest::default()
    };
    service.register_namespace(Request::new(register)).await.unwrap();
    let attributes = search_attributes::NAMES.iter();
    let keyword = IndexedValueType::Keyword as i32;
    let add = AddSearchAttributesRequest {
        search_attributes: attributes.map(|name| ((*name).to_owned(), keyword)).collect(),
        namespace: namespace.to_owned(),
    };
    let mut service = client.connection().operator_service();
    service.add_search_attributes(Request::new(add)).await.unwrap();
    let mut client = client.clone();
    namespace.clone_into(&mut client.options_mut().namespace);
    let query = "TammaState = 'none'";
    until(async || client.count_workflows(query, WorkflowCountOptions::default()).await.ok()).await;
    client
}

/// Adds an organisation with a namespace, and returns a client for it.
async fn add_organisation(cluster: &Cluster, client: &Client) -> Client {
    let in_acme = create_namespace(client, "tamma-acme").await;
    let (acme, named) = (OrganisationId(Uuid::from_u128(7)), ("acme", Some("tamma-acme")));
    cluster.store.add_organisation(acme, named, &"Grace".parse().unwrap()).await.unwrap();
    in_acme
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_of_an_organisation_completes_in_its_namespace() {
    let cluster = Cluster::start(&sample_script(1)).await;
    let client = cluster.client().await;
    let in_acme = add_organisation(&cluster, &client).await;
    let task = cluster.task(1);
    let id = task.id;
    let handle = cluster.start_task(&in_acme, task).await;
    let result = handle.get_result(WorkflowGetResultOptions::default());
    let result = cluster.with_worker(result).await.unwrap();
    assert_eq!(result.state, State::Completed);
    // The worker saves where it runs, as for the tasks of a story, which no server starts.
    let namespace = cluster.store.workflow_namespace(id.0).await.unwrap();
    assert_eq!(namespace.as_deref(), Some("tamma-acme"));
    let elsewhere = client.get_workflow_handle::<TaskWorkflow>(workflow_id(id));
    assert!(elsewhere.describe(WorkflowDescribeOptions::default()).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_of_all_namespaces_share_the_slots_of_a_worker() {
    let mut cluster = Cluster::start(&sample_script(1)).await;
    cluster.slots = 1;
    let (log_file, go) = (cluster.scratch_file("passages"), cluster.scratch_file("go"));
    let append = |line: &str| AgentStep::Append { path: log_file.clone(), line: line.to_owned() };
    let mut script = sample_script(1);
    for case in script.cases.iter_mut().filter(|case| case.when.contains(IMPLEMENTER)) {
        case.steps.insert(0, append("begins"));
        case.steps.insert(1, AgentStep::AwaitFile(go.clone()));
        case.steps.push(append("ends"));
    }
    cluster.replace_script(&script);
    let client = cluster.client().await;
    let in_acme = add_organisation(&cluster, &client).await;
    let scenario = cluster.with_worker(async {
        cluster.start_task(&client, cluster.task(1)).await;
        cluster.start_task(&in_acme, cluster.task(2)).await;
        until(async || log_file.exists().then_some(())).await;
        // Gives the other agent time to start, if it could.
        tokio::time::sleep(Duration::from_secs(2)).await;
        std::fs::write(&go, "").unwrap();
        for number in [1, 2] {
            cluster.until_state(cluster.task(number).id, State::Completed).await;
        }
    });
    Box::pin(scenario).await;
    let lines = std::fs::read_to_string(&log_file).unwrap();
    assert_eq!(lines.lines().collect::<Vec<_>>(), ["begins", "ends", "begins", "ends"]);
}
