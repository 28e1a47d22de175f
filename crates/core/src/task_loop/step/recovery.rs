//! Recovery of a task whose workflow was lost. No job of it runs any more, so the job of the state
//! starts again.

use super::StepBuilder;
use crate::cause::AlertCause;
use crate::history::{EntryData, EntryName};
use crate::reconciliation::{JOB_NUMBER_GAP, Recovery, Resolution};
use crate::task_loop::{JobKind, Refusal, State, Trigger, table};

/// Time after which an agent of a lost workflow has stopped, in seconds.
const STOP_SECONDS: i64 = 5;

impl StepBuilder<'_> {
    /// Continues, asks a person, or closes the task, as the reconciliation decided.
    pub(super) fn recover(&mut self, recovery: &Recovery) -> Result<(), Refusal> {
        let had_run = self.task_loop.active_job.is_some_and(|job| job.kind == JobKind::Implement);
        self.drop_jobs(recovery);
        // The run that asked is gone.
        if self.has_live_question() {
            self.close_question();
        }
        self.task_loop.answered_live = None;
        self.pull_request_job_ended(None);
        self.task_loop.restarts = self.task_loop.restarts.saturating_add(1);
        self.record_recovery(recovery);
        let state = self.task_loop.state;
        let reason = Some(recovery.reason.clone().into());
        match recovery.resolution {
            Resolution::Close => {
                self.transition(Trigger::Cancelled, State::Cancelled, reason, EntryData::None)
            }
            // Learning never stops a task, and an escalated one has its question.
            Resolution::AskPerson
                if table::allows(state, Trigger::Alerted, State::HumanEscalation) =>
            {
                let resume = if state == State::InProgress { State::Validated } else { state };
                let cause = AlertCause::WorkflowLost(recovery.loss);
                self.escalate_to_person(Trigger::Alerted, cause, resume, None)
            }
            Resolution::Restart | Resolution::AskPerson | Resolution::Settle
                if state == State::InProgress =>
            {
                self.transition(Trigger::RunInterrupted, State::Validated, None, EntryData::None)?;
                self.wait_for_old_run(had_run);
                Ok(())
            }
            Resolution::Restart | Resolution::AskPerson | Resolution::Settle => Ok(()),
        }
    }

    /// Gives the agent of the lost workflow time to stop. Its worker notices with a heartbeat.
    fn wait_for_old_run(&mut self, had_run: bool) {
        if had_run {
            let delay = chrono::TimeDelta::seconds(STOP_SECONDS);
            self.task_loop.not_before = self.now.checked_add_signed(delay);
        }
    }

    /// Records that the workflow of a closed task was lost. Its last lessons are not captured.
    pub(super) fn settle(&mut self, recovery: &Recovery) {
        self.drop_jobs(recovery);
        self.record_recovery(recovery);
    }

    /// Drops the jobs of the lost workflow. Their cost is unknown, so the reservations count.
    fn drop_jobs(&mut self, recovery: &Recovery) {
        let jobs = [self.task_loop.stopping_job.take(), self.task_loop.active_job.take()];
        for job in jobs.into_iter().flatten() {
            self.record_cost(job, None);
        }
        if recovery.loss.may_have_lost_steps() {
            self.task_loop.last_job_number =
                self.task_loop.last_job_number.saturating_add(JOB_NUMBER_GAP);
        }
    }

    fn record_recovery(&mut self, recovery: &Recovery) {
        let reason = Some(recovery.reason.clone().into());
        let data = EntryData::Cause(AlertCause::WorkflowLost(recovery.loss));
        self.record_entry(EntryName::SmTaskReconciled, reason, data);
    }
}
