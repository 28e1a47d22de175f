//! Job in progress on this worker.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tamma_core::ids::{CommitId, ProjectId};
use tamma_core::rules::Rules;
use tamma_core::task::Task;
use tamma_core::task_loop::{Job, TaskLoop};
use tamma_engine::process::RunId;
use tamma_engine::worktree::LatestWork;
use tamma_flow::activities::JobRequest;
use tamma_flow::{QuestionOpened, RunStarted};
use tamma_store::RegisteredProject;
use temporalio_client::Client;
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::fault_injection::FaultInjection;
use crate::retry::until_stopped;

/// Time for the workflow to answer that it knows about a run.
const ANNOUNCE_TIMEOUT: Duration = Duration::from_secs(30);

/// Callback that notifies the workflow that a run has started.
pub type AnnounceStart =
    Arc<dyn Fn(RunStarted) -> BoxFuture<'static, Result<(), Error>> + Send + Sync>;

/// Callback that shows people the question of a waiting run. Returns `false` if the workflow refuses
/// it; the question then ends the run.
pub type OpenQuestionUpdate =
    Arc<dyn Fn(QuestionOpened) -> BoxFuture<'static, Result<bool, Error>> + Send + Sync>;

/// Messages of a running job to its workflow.
#[derive(Clone)]
pub struct WorkflowCallbacks {
    /// Notifies the workflow that a run has started.
    pub announce_start: AnnounceStart,
    /// Opens a question while the run waits.
    pub open_question: OpenQuestionUpdate,
    /// Client for messages to other workflows; `None` outside a worker.
    pub temporal: Option<Client>,
}

impl From<AnnounceStart> for WorkflowCallbacks {
    /// Creates callbacks for a caller that cannot show questions, so questions end the run.
    fn from(announce_start: AnnounceStart) -> Self {
        let open_question: OpenQuestionUpdate = Arc::new(|_| Box::pin(async { Ok(false) }));
        Self { announce_start, open_question, temporal: None }
    }
}

/// Job in progress on this worker: the request, and everything that is known about its task.
#[derive(Clone)]
pub(crate) struct JobContext {
    /// Request of the workflow.
    pub(crate) request: JobRequest,
    /// Attempt number, from 1.
    pub(crate) attempt: u32,
    /// Cancelled when the job must stop.
    pub(crate) stop: CancellationToken,
    /// Cancelled when a later attempt at the job has started beside this one, because it did not stop.
    pub(crate) abandoned: CancellationToken,
    pub(crate) callbacks: WorkflowCallbacks,
    /// Rules that the task is pinned to.
    pub(crate) rules: Arc<Rules>,
    /// State machine when the job was requested.
    pub(crate) task_loop: TaskLoop,
    pub(crate) task: Task,
    /// Project of the task when the job started; `None` if it was not read yet.
    pub(crate) registered_project: Option<RegisteredProject>,
    /// Revision of the knowledge base when the job started; `None` if it was not read yet.
    pub(crate) knowledge_revision: Option<u64>,
    pub(crate) fault_injection: FaultInjection,
}

impl JobContext {
    /// Notifies the workflow that a run has started. If there is no answer, another attempt sends the same
    /// update again.
    pub(crate) async fn announce_start(&self, started: RunStarted) -> Result<(), Error> {
        let announced =
            tokio::time::timeout(ANNOUNCE_TIMEOUT, (self.callbacks.announce_start)(started));
        let silent = || Error::Temporal("the workflow did not answer in time".to_owned());
        until_stopped(&self.stop, async { announced.await.map_err(|_| silent())? }).await
    }

    /// Fails if a later attempt has started beside this one, whose effects and result must not count then.
    pub(crate) fn check_not_abandoned(&self) -> Result<(), Error> {
        if self.abandoned.is_cancelled() { Err(Error::Stopped) } else { Ok(()) }
    }

    /// Returns the ID for processes of this job.
    pub(crate) fn run_id(&self) -> RunId {
        let JobRequest { job_number, pending, .. } = &self.request;
        RunId { task: pending.task, job_number: *job_number, generation: self.attempt }
    }

    /// Returns the project of the task.
    pub(crate) fn project(&self) -> ProjectId {
        self.request.pending.project
    }

    /// Returns the number of the iteration and the maximum; `None` except for implementation runs.
    pub(crate) fn iteration(&self) -> Option<(u16, u16)> {
        match &self.request.job {
            Job::Implement(spec) => {
                Some((spec.iteration, self.task_loop.max_iterations(&self.rules)))
            }
            _ => None,
        }
    }

    /// Fails here if a test injects a fault.
    pub(crate) fn fault_point(&self, step: &'static str) -> Result<(), Error> {
        self.fault_injection.fault_point(step)
    }

    /// Returns the base commit of the task.
    pub(crate) fn base(&self) -> Result<CommitId, Error> {
        let pin = self
            .task_loop
            .pin
            .ok_or_else(|| Error::Internal("the task has no base commit yet".to_owned()))?;
        Ok(pin.base)
    }

    /// Returns the commit that the job judges: the one under review, or the last one of the task.
    /// Before the first run, there is none.
    pub(crate) fn judged_commit(&self) -> Option<CommitId> {
        judged_commit(&self.request.job, &self.task_loop)
    }

    /// Returns where the newest work of the task is, as far as the job implies it. A job that names
    /// a commit judges that commit. Before the first run there is no work. Otherwise the repository
    /// must be asked, because an earlier attempt may have run on another host.
    pub(crate) fn newest_work(&self) -> LatestWork {
        match &self.request.job {
            Job::Test { commit, .. } | Job::Review { commit, .. } => LatestWork::Commit(*commit),
            _ if !self.task_loop.has_work && self.attempt == 1 => LatestWork::NoWork,
            _ => LatestWork::Unknown,
        }
    }
}

fn judged_commit(job: &Job, task_loop: &TaskLoop) -> Option<CommitId> {
    match job {
        Job::Review { commit, .. } => Some(*commit),
        _ => task_loop.commit,
    }
}

#[cfg(test)]
mod tests {
    use tamma_testkit::sample::sample_task_loop;

    use super::*;

    #[test]
    fn a_review_judges_its_own_commit() {
        let mut task_loop = sample_task_loop();
        let commit = |digit: &str| digit.repeat(40).parse::<CommitId>().expect("a commit");
        let council = Job::Convene { council_number: 1, seat: None, opinions: Vec::new() };
        assert_eq!(judged_commit(&council, &task_loop), None);
        task_loop.commit = Some(commit("2"));
        assert_eq!(judged_commit(&council, &task_loop), Some(commit("2")));
        let review = Job::Review { commit: commit("1"), unconfirmed: None };
        assert_eq!(judged_commit(&review, &task_loop), Some(commit("1")));
    }
}
