//! Operations shared by all events: changing state, stopping jobs, asking people, recording
//! entries.

use std::borrow::Cow;

use super::StepBuilder;
use crate::actor::Actor;
use crate::cause::{AlertCause, TimeoutStage};
use crate::history::{EntryData, EntryName, HistoryEntry};
use crate::ids::Reference;
use crate::task_loop::{
    ActiveJob, Alert, AlertKind, AlertSeverity, Command, JobKind, OpenQuestion, Refusal, State,
    StateClock, StopReason, Trigger, allowed_answers, table,
};

pub(super) type EntryReason = Option<Cow<'static, str>>;

impl StepBuilder<'_> {
    /// Takes a transition of the table.
    pub(super) fn transition(
        &mut self,
        on: Trigger,
        to: State,
        reason: EntryReason,
        data: EntryData,
    ) -> Result<(), Refusal> {
        let from = self.task_loop.state;
        if !table::allows(from, on, to) {
            return Err(Refusal::NoTransition { from, on, to });
        }
        if matches!(to, State::Cancelled | State::Failed) {
            self.record_open_pull_request();
        }
        // A starting run continues; every other job belongs to the state that the task leaves.
        if on != Trigger::RunStarted {
            self.stop_active_job(if to.is_terminal() {
                StopReason::Ended
            } else {
                StopReason::Superseded
            });
        }
        self.close_question();
        self.task_loop.state = to;
        if from != to {
            self.task_loop.since = self.now;
            self.task_loop.clock = StateClock { started_at: self.now, stage: TimeoutStage::Quiet };
            self.task_loop.not_before = None;
            self.task_loop.quota = None;
        }
        let data = if to.is_terminal() { EntryData::Spend(self.task_loop.spend) } else { data };
        self.push_entry(from, Some(on), on.into(), reason, data);
        if matches!(to, State::Cancelled | State::Failed) {
            self.start_final_learning();
        }
        Ok(())
    }

    /// Starts the learning job of a task that was cancelled or has failed. Nothing waits for it.
    fn start_final_learning(&mut self) {
        if !self.rules.scrum_master.learning_capture.capture_failure {
            return;
        }
        self.task_loop.last_job_number += 1;
        let (job_number, job) =
            (self.task_loop.last_job_number, self.learn_job(self.task_loop.state));
        if self.task_loop.edition.uses_model_for_learning() {
            // The result of this job is the last event that a closed task accepts.
            self.task_loop.active_job = Some(ActiveJob {
                job_number,
                kind: job.kind(),
                not_before: None,
                reserved_cost: self.estimate_cost(&job).unwrap_or_default(),
                stopping: false,
            });
        }
        self.commands.push(Command::StartJob { job_number, not_before: None, job });
    }

    /// Stops the active job. The next one starts after it has ended.
    pub(super) fn stop_active_job(&mut self, reason: StopReason) {
        let Some(mut job) = self.task_loop.active_job.take() else {
            return;
        };
        // Saving work is never interrupted.
        if !job.stopping && job.kind != JobKind::SaveWork {
            job.stopping = true;
            self.commands.push(Command::StopJob { job_number: job.job_number, reason });
        }
        self.task_loop.stopping_job = Some(job);
    }

    /// Closes the open question.
    pub(super) fn close_question(&mut self) {
        if let Some(question) = self.task_loop.open_question.take() {
            self.commands.push(Command::CloseQuestion { question_number: question.number });
        }
    }

    /// Voids the approval and discards the check of the plan.
    pub(super) fn void_approval(&mut self) {
        self.task_loop.plan_assessment = None;
        self.task_loop.approvals.clear();
        self.task_loop.approved_scope = None;
    }

    /// Returns the scope and risk of the current plan, for the history.
    pub(super) fn approval_data(&self) -> EntryData {
        let risk = self.task_loop.risk_level().unwrap_or_default();
        self.task_loop
            .current_scope()
            .map_or(EntryData::None, |scope| EntryData::Approval { scope, risk })
    }

    /// Moves the task to `human_escalation` and asks a person.
    pub(super) fn escalate_to_person(
        &mut self,
        on: Trigger,
        cause: AlertCause,
        resume: State,
        reason: EntryReason,
    ) -> Result<(), Refusal> {
        let from = self.task_loop.state;
        // The work of an open pull request is pushed.
        self.task_loop.must_save_work = self.task_loop.has_work && from != State::AwaitingMerge;
        let data = if cause == AlertCause::Rejected {
            self.approval_data()
        } else {
            EntryData::Cause(cause)
        };
        self.transition(on, State::HumanEscalation, reason, data)?;
        self.ask_question(cause, from, resume);
        Ok(())
    }

    /// Asks people a question and keeps it open until it is answered.
    pub(super) fn ask_question(&mut self, cause: AlertCause, from: State, resume: State) {
        self.ask_stored_question(cause, from, resume, None, None);
    }

    /// Asks a question whose text, and perhaps default answer, is stored.
    pub(super) fn ask_stored_question(
        &mut self,
        cause: AlertCause,
        from: State,
        resume: State,
        agent_question: Option<&Reference>,
        default_answer: Option<&Reference>,
    ) {
        self.task_loop.question_count += 1;
        // An agent's question outside `human_escalation` is one of a run that waits.
        let live = agent_question.is_some() && self.task_loop.state != State::HumanEscalation;
        let council = agent_question.is_none()
            && is_council_useful(cause)
            && from != State::AwaitingMerge
            && self.task_loop.can_convene(self.rules);
        self.task_loop.open_question = Some(OpenQuestion {
            number: self.task_loop.question_count,
            cause,
            asked_at: self.now,
            reminders: 0,
            seen_by: None,
            from_state: from,
            resume_state: resume,
            agent_question: agent_question.cloned(),
            default_answer: default_answer.cloned(),
            live,
            council,
        });
        match (cause, agent_question) {
            (AlertCause::ApprovalNeeded { .. }, _) => {
                self.record_entry(EntryName::SmApprovalRequested, None, EntryData::Cause(cause));
            }
            (_, Some(agent_question)) => {
                self.record_entry(
                    EntryName::SmQuestionAsked,
                    None,
                    EntryData::Stored(agent_question.clone()),
                );
            }
            (_, None) => self.record_entry(EntryName::SmAlertSent, None, EntryData::Cause(cause)),
        }
        self.send_alert(cause, alert_severity(cause));
    }

    /// Sends an alert, unless the rules turn its kind off.
    pub(super) fn send_alert(&mut self, cause: AlertCause, severity: AlertSeverity) {
        let kind = AlertKind::from(cause);
        if !kind.is_enabled(self.rules) {
            return;
        }
        let question =
            self.task_loop.open_question.as_ref().filter(|question| question.cause == cause);
        self.commands.push(Command::Alert(Alert {
            kind,
            severity,
            cause,
            question: question.map(|question| question.number),
            answers: question.map(allowed_answers).unwrap_or_default(),
        }));
    }

    /// Records an entry without a transition.
    pub(super) fn record_entry(&mut self, name: EntryName, reason: EntryReason, data: EntryData) {
        self.push_entry(self.task_loop.state, None, name, reason, data);
    }

    fn push_entry(
        &mut self,
        from: State,
        on: Option<Trigger>,
        name: EntryName,
        reason: EntryReason,
        data: EntryData,
    ) {
        self.task_loop.entry_count += 1;
        self.entries.push(HistoryEntry {
            format: crate::version::FormatVersion,
            task: self.task_loop.task,
            sequence: self.task_loop.entry_count,
            at: self.now,
            name,
            from,
            to: self.task_loop.state,
            trigger: on,
            actor: self.actor.clone(),
            // The council speaks for itself, also if a person called it.
            auth: self.auth.filter(|_| matches!(self.actor, Actor::Person(_))),
            reason,
            data,
        });
    }
}

/// Returns `true` if the council can help with an alert. It cannot lift a limit or a prohibition.
fn is_council_useful(cause: AlertCause) -> bool {
    use crate::rules::HaltCondition as Halt;
    !matches!(
        cause,
        AlertCause::Blocked(_)
            | AlertCause::WorkersLost
            | AlertCause::Halted(Halt::BudgetExceeded | Halt::MaxIterationsReached)
    )
}

pub(super) fn alert_severity(cause: AlertCause) -> AlertSeverity {
    match cause {
        AlertCause::Halted(_) | AlertCause::Blocked(_) | AlertCause::WorkersLost => {
            AlertSeverity::Critical
        }
        AlertCause::SoftTimeout { stage, .. } => match stage {
            TimeoutStage::Quiet | TimeoutStage::Warned => AlertSeverity::Info,
            TimeoutStage::Alerted => AlertSeverity::Warning,
            TimeoutStage::Escalated => AlertSeverity::Critical,
        },
        _ => AlertSeverity::Warning,
    }
}
