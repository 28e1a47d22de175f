//! Retries of activities. All workflows share them.

use std::time::Duration;

use temporalio_workflow::{LocalActivityOptions, RetryPolicy, WorkflowCancellationToken};

use crate::activities::NON_RETRYABLE;

/// Returns the retry policy of local activities that must succeed eventually.
pub(crate) fn local_retries() -> RetryPolicy {
    RetryPolicy::builder()
        .initial_interval(Duration::from_millis(200))
        .backoff_coefficient(1.5)
        .maximum_interval(Duration::from_secs(10))
        .non_retryable_error_types([NON_RETRYABLE])
        .build()
}

/// Returns the retry policy of activities that any worker can run.
pub(crate) fn worker_retries() -> RetryPolicy {
    RetryPolicy::builder()
        .initial_interval(Duration::from_millis(500))
        .maximum_interval(Duration::from_secs(10))
        .non_retryable_error_types([NON_RETRYABLE])
        .build()
}

/// Returns the options for saving what a workflow knows. A cancelled workflow saves it too.
pub(crate) fn saving_options() -> LocalActivityOptions {
    LocalActivityOptions::builder()
        .start_to_close_timeout(Duration::from_secs(30))
        .retry_policy(local_retries())
        .cancellation_token(WorkflowCancellationToken::new())
        .build()
}
