//! Temporal namespaces of organisations.
//!
//! All share one connection. A new namespace gets the retention of the installation's own one, and the
//! search attributes of workflows.

use std::collections::HashMap;
use std::time::Duration;

use tamma_flow::{NAMESPACE, search_attributes};
use temporalio_client::tonic::{Code, Request, Status};
use temporalio_client::{Client, WorkflowCountOptions};
use temporalio_common::protos::temporal::api::enums::v1::IndexedValueType;
use temporalio_common::protos::temporal::api::operatorservice::v1::{
    AddSearchAttributesRequest, ListSearchAttributesRequest,
};
use temporalio_common::protos::temporal::api::workflowservice::v1::{
    DescribeNamespaceRequest, DescribeNamespaceResponse, RegisterNamespaceRequest,
};
use tokio::time::Instant;

/// Time for which a new namespace is awaited. Nodes of Temporal learn of it and of its search attributes
/// when they refresh their caches, which takes up to 10 seconds for each.
const USABLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Time between two requests for a new namespace.
const USABLE_INTERVAL: Duration = Duration::from_millis(500);

/// Error of a namespace that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// There is one with the name, which may belong to somebody else.
    #[error("the namespace `{0}` exists in Temporal already")]
    Exists(String),
    /// Temporal refused a request.
    #[error("Temporal refused to {what} the namespace `{namespace}`: {}", .status.message())]
    Refused {
        /// Verb of the request.
        what: &'static str,
        /// Name of the namespace.
        namespace: String,
        /// Answer of Temporal.
        status: Box<Status>,
    },
    /// Search attributes are missing.
    #[error("the namespace `{namespace}` has no search attributes: {}", .status.message())]
    SearchAttributes {
        /// Name of the namespace.
        namespace: String,
        /// Answer of Temporal.
        status: Box<Status>,
    },
}

/// Returns a client for another namespace, on the same connection; `None` for that of the installation.
pub(crate) fn client_in(client: &Client, namespace: Option<&str>) -> Client {
    let mut client = client.clone();
    namespace.unwrap_or(NAMESPACE).clone_into(&mut client.options_mut().namespace);
    client
}

/// Creates a namespace, unless it exists and `may_exist` is set, and waits until it can be used.
pub async fn prepare_namespace(
    client: &Client,
    namespace: &str,
    may_exist: bool,
) -> Result<(), NamespaceError> {
    let refused = |what: &'static str, status: Status| NamespaceError::Refused {
        what,
        namespace: namespace.to_owned(),
        status: Box::new(status),
    };
    match describe_namespace(client, namespace).await {
        Ok(_) if !may_exist => return Err(NamespaceError::Exists(namespace.to_owned())),
        Ok(_) => {}
        Err(status) if status.code() == Code::NotFound => {
            let own = describe_namespace(client, NAMESPACE).await;
            let own = own.map_err(|status| refused("read", *status))?;
            let request = RegisterNamespaceRequest {
                namespace: namespace.to_owned(),
                description: "Workflows of an organisation in Tamma".to_owned(),
                workflow_execution_retention_period: own
                    .config
                    .and_then(|config| config.workflow_execution_retention_ttl),
                ..RegisterNamespaceRequest::default()
            };
            let mut service = client.connection().workflow_service();
            match service.register_namespace(Request::new(request)).await {
                Ok(_) => {}
                // Another process was faster.
                Err(status) if may_exist && status.code() == Code::AlreadyExists => {}
                Err(status) => return Err(refused("create", status)),
            }
        }
        Err(status) => return Err(refused("read", *status)),
    }
    let deadline = Instant::now() + USABLE_TIMEOUT;
    while let Err(status) = ensure_search_attributes(client, namespace).await {
        // Nodes that do not know a new namespace yet answer that it is missing.
        if status.code() != Code::NotFound || Instant::now() > deadline {
            let namespace = namespace.to_owned();
            return Err(NamespaceError::SearchAttributes { namespace, status });
        }
        tokio::time::sleep(USABLE_INTERVAL).await;
    }
    let client = client_in(client, Some(namespace));
    let names = search_attributes::NAMES.iter().map(|name| format!("{name} = 'none'"));
    let query = names.collect::<Vec<_>>().join(" AND ");
    let count = || client.count_workflows(query.as_str(), WorkflowCountOptions::default());
    while let Err(error) = count().await {
        if Instant::now() > deadline {
            // The first tasks may be refused, and can be added again.
            tracing::warn!(namespace, %error, "namespace of Temporal cannot be used yet");
            break;
        }
        tokio::time::sleep(USABLE_INTERVAL).await;
    }
    Ok(())
}

async fn describe_namespace(
    client: &Client,
    namespace: &str,
) -> Result<DescribeNamespaceResponse, Box<Status>> {
    let request = DescribeNamespaceRequest {
        namespace: namespace.to_owned(),
        ..DescribeNamespaceRequest::default()
    };
    let mut service = client.connection().workflow_service();
    let described = service.describe_namespace(Request::new(request)).await;
    Ok(described.map_err(Box::new)?.into_inner())
}

/// Creates missing search attributes of workflows in a namespace. A private Temporal server starts with
/// them; a configured one may lack them.
pub async fn ensure_search_attributes(client: &Client, namespace: &str) -> Result<(), Box<Status>> {
    let mut service = client.connection().operator_service();
    let list = ListSearchAttributesRequest { namespace: namespace.to_owned() };
    let known = match service.list_search_attributes(Request::new(list)).await {
        Ok(known) => known.into_inner().custom_attributes,
        Err(status) if status.code() == Code::NotFound => return Err(Box::new(status)),
        // Without permission to list them, the server's operator has to create them.
        Err(_) => return Ok(()),
    };
    let keyword = IndexedValueType::Keyword as i32;
    let missing: HashMap<_, _> = search_attributes::NAMES
        .iter()
        .filter(|name| !known.contains_key(**name))
        .map(|name| ((*name).to_owned(), keyword))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let add =
        AddSearchAttributesRequest { search_attributes: missing, namespace: namespace.to_owned() };
    match service.add_search_attributes(Request::new(add)).await {
        Ok(_) => Ok(()),
        Err(status) if status.code() == Code::AlreadyExists => Ok(()),
        Err(status) => Err(Box::new(status)),
    }
}
