//! Workflows as Temporal describes them.

use temporalio_client::tonic::{Code, Request};
use temporalio_client::{Client, NamespacedClient as _, WorkflowExecutionStatus};
use temporalio_common::protos::temporal::api::common::v1::WorkflowExecution;
use temporalio_common::protos::temporal::api::workflowservice::v1::DescribeWorkflowExecutionRequest;

use crate::app::{Error, TEMPORAL_TIMEOUT};

/// Newest run of a workflow.
#[derive(Debug)]
pub(crate) struct WorkflowDescription {
    pub(crate) run_id: String,
    pub(crate) status: WorkflowExecutionStatus,
    /// A worker has a step to make or an activity to run. A local activity is part of a step.
    pub(crate) has_pending_work: bool,
}

/// Describes a workflow. Returns `None` if Temporal does not know it.
///
/// The client's own `describe` fails if the summary is sealed, and those of a story's tasks are.
pub(crate) async fn describe_workflow(
    client: &Client,
    workflow_id: String,
) -> Result<Option<WorkflowDescription>, Error> {
    let request = DescribeWorkflowExecutionRequest {
        namespace: client.namespace(),
        execution: Some(WorkflowExecution { workflow_id, run_id: String::new() }),
    };
    let mut service = client.connection().workflow_service();
    let described = service.describe_workflow_execution(Request::new(request));
    let described = match tokio::time::timeout(TEMPORAL_TIMEOUT, described).await {
        Ok(Ok(described)) => described.into_inner(),
        Ok(Err(status)) if status.code() == Code::NotFound => return Ok(None),
        Ok(Err(status)) => return Err(Error::temporal(status)),
        Err(late) => return Err(Error::temporal(late)),
    };
    let info = described.workflow_execution_info.unwrap_or_default();
    Ok(Some(WorkflowDescription {
        status: info.status().into(),
        run_id: info.execution.unwrap_or_default().run_id,
        has_pending_work: !described.pending_activities.is_empty()
            || described.pending_workflow_task.is_some(),
    }))
}
