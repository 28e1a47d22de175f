//! Wake-up of tasks that wait for a completed one.

use tamma_core::task_loop::State;
use tamma_flow::activities::PendingSteps;
use tamma_flow::{TaskWorkflow, workflow_id};
use tamma_store::Store;
use temporalio_client::errors::WorkflowInteractionError;
use temporalio_client::{Client, WorkflowSignalOptions};

use crate::error::Error;
use crate::namespaces::client_in;

/// Wakes the tasks that wait for a task which these steps complete. The steps must be stored: a task
/// that starts to wait later finds them there.
pub(super) async fn wake_dependants(
    store: &Store,
    client: &Client,
    pending: &PendingSteps,
) -> Result<(), Error> {
    if !pending.steps.iter().any(|record| record.next.state == State::Completed) {
        return Ok(());
    }
    for (task, namespace) in store.waiting_dependants(pending.task).await? {
        let client = client_in(client, namespace.as_deref());
        let handle = client.get_workflow_handle::<TaskWorkflow>(workflow_id(task));
        let id = format!("completed-{}", pending.task);
        let options = WorkflowSignalOptions::builder().request_id(id).build();
        match handle.signal(TaskWorkflow::wake, pending.task, options).await {
            // Without a workflow, the reconciler starts another one.
            Ok(()) | Err(WorkflowInteractionError::NotFound(_)) => {}
            Err(error) => return Err(Error::Temporal(error.to_string())),
        }
    }
    Ok(())
}
