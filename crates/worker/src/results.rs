//! Results of jobs: stored for all workers, and kept on this machine until they are.

use tamma_core::ids::TaskId;
use tamma_core::task_loop::Outcome;
use tamma_flow::activities::JobResult;
use tamma_store::Store;
use tokio_util::sync::CancellationToken;

use crate::config::WorkerConfig;
use crate::error::Error;
use crate::fault_injection::FaultInjection;
use crate::retry::retry_until_stopped;
use crate::unsaved_results::UnsavedResults;

/// Results of finished jobs. Clones share their state.
#[derive(Clone)]
pub(crate) struct Results {
    store: Store,
    unsaved: UnsavedResults,
    fault_injection: FaultInjection,
}

impl Results {
    /// Opens the results in the worker's data directory and in the store.
    pub(crate) async fn open(config: &WorkerConfig, store: Store) -> Result<Self, Error> {
        let unsaved = UnsavedResults::open(&config.data_dir).await?;
        Ok(Self { store, unsaved, fault_injection: config.fault_injection.clone() })
    }

    /// Returns the results on this machine, which pipelines share.
    pub(crate) fn unsaved(&self) -> UnsavedResults {
        self.unsaved.clone()
    }

    /// Returns the result of an earlier attempt, if it finished.
    pub(crate) async fn of_earlier_attempt(
        &self,
        (task, job_number): (TaskId, u32),
        stop: &CancellationToken,
    ) -> Result<Option<JobResult>, Error> {
        if let Some(result) = self.store.job_result(task, job_number).await? {
            return Ok(Some(result));
        }
        let unsaved: Option<JobResult> = self.unsaved.load(task, job_number).await?;
        let Some(result) = unsaved else { return Ok(None) };
        // The job finished earlier; only its result is not stored yet.
        self.store((task, job_number), &result, stop).await?;
        Ok(Some(result))
    }

    /// Saves the result of a job that must not run again.
    pub(crate) async fn save(
        &self,
        (task, job_number): (TaskId, u32),
        result: &JobResult,
        stop: &CancellationToken,
    ) -> Result<(), Error> {
        if !is_worth_saving(result) {
            return Ok(());
        }
        self.unsaved.put(task, job_number, result).await;
        self.fault_injection.fault_point("answer put aside")?;
        self.store((task, job_number), result, stop).await
    }

    /// Stores a result for all workers, and removes the local copy.
    async fn store(
        &self,
        (task, job_number): (TaskId, u32),
        result: &JobResult,
        stop: &CancellationToken,
    ) -> Result<(), Error> {
        let save = || self.store.save_job_result(task, job_number, result);
        retry_until_stopped(stop, save).await?;
        self.fault_injection.fault_point("answer kept")?;
        self.unsaved.clear(task, job_number).await
    }
}

/// Returns whether the job has finished, and repeating it would cost something or do harm.
fn is_worth_saving(result: &JobResult) -> bool {
    match result {
        JobResult::Finished { outcome, .. } => !matches!(
            outcome,
            Outcome::Admitted
                | Outcome::Prepared(_)
                | Outcome::Checked { .. }
                | Outcome::DeliveryReady
        ),
        JobResult::RetryAfter { .. } => false,
    }
}
