//! What every kind of event may do: change state, stop a job, ask a person, write an entry.

use std::borrow::Cow;

use super::Turn;
use crate::cause::{Cause, Stage};
use crate::ids::Reference;
use crate::log::{Entry, EntryName, Fact};
use crate::task_loop::{
    Alert, AlertKind, Clock, Command, JobKind, Question, Refusal, Severity, State, StopReason,
    Trigger, Work, answers, table,
};

pub(super) type Why = Option<Cow<'static, str>>;

impl Turn<'_> {
    /// Takes an arrow of the table.
    pub(super) fn go(
        &mut self,
        on: Trigger,
        to: State,
        why: Why,
        data: Fact,
    ) -> Result<(), Refusal> {
        let from = self.it.state;
        if !table::allows(from, on, to) {
            return Err(Refusal::NoArrow { from, on, to });
        }
        // A run that starts goes on; every other job belongs to the state that is left.
        if on != Trigger::RunStarted {
            self.leave(if to.is_terminal() { StopReason::Ended } else { StopReason::Superseded });
        }
        self.settle();
        self.it.state = to;
        if from != to {
            self.it.since = self.at;
            self.it.clock = Clock { from: self.at, stage: Stage::Quiet };
            self.it.not_before = None;
            self.it.quota = None;
        }
        let data = if to.is_terminal() { Fact::Spend(self.it.spend) } else { data };
        self.push(from, Some(on), on.into(), why, data);
        if matches!(to, State::Cancelled | State::Failed) {
            self.learn_from_the_end();
        }
        Ok(())
    }

    /// A task that did not succeed teaches too. Nobody waits for it.
    fn learn_from_the_end(&mut self) {
        if !self.rules.scrum_master.learning_capture.capture_failure {
            return;
        }
        self.it.tickets += 1;
        let (ticket, job) = (self.it.tickets, self.learn(self.it.state));
        if self.it.edition.asks_what_it_taught() {
            // What came of it is the last thing that such a task is told.
            self.it.work = Some(Work {
                ticket,
                kind: job.kind(),
                not_before: None,
                reserved: self.price(&job).unwrap_or_default(),
                stopping: false,
            });
        }
        self.commands.push(Command::Start { ticket, not_before: None, job });
    }

    /// Leaves the job that is under way. The next one starts when it has ended.
    pub(super) fn leave(&mut self, why: StopReason) {
        let Some(mut work) = self.it.work.take() else {
            return;
        };
        // Landing saves work, so it is let finish.
        if !work.stopping && work.kind != JobKind::Land {
            work.stopping = true;
            self.commands.push(Command::Stop { ticket: work.ticket, why });
        }
        self.it.leaving = Some(work);
    }

    /// Closes the open question.
    pub(super) fn settle(&mut self) {
        if let Some(question) = self.it.question.take() {
            self.commands.push(Command::Settle { question: question.number });
        }
    }

    /// What was approved no longer is, and what was checked must be checked again.
    pub(super) fn void_approval(&mut self) {
        self.it.check = None;
        self.it.approvals.clear();
        self.it.approved = None;
    }

    /// What a decision about the current plan is about, for the log.
    pub(super) fn decided(&self) -> Fact {
        let risk = self.it.risk().unwrap_or_default();
        self.it.binding().map_or(Fact::None, |binding| Fact::Approval { binding, risk })
    }

    /// Hands the task to a person.
    pub(super) fn escalate(
        &mut self,
        on: Trigger,
        cause: Cause,
        resume: State,
        why: Why,
    ) -> Result<(), Refusal> {
        let from = self.it.state;
        self.it.to_land = self.it.touched;
        let data = if cause == Cause::Rejected { self.decided() } else { Fact::Cause(cause) };
        self.go(on, State::HumanEscalation, why, data)?;
        self.ask(cause, from, resume);
        Ok(())
    }

    /// Asks people something, and keeps the question until it is answered.
    pub(super) fn ask(&mut self, cause: Cause, from: State, resume: State) {
        self.ask_about(cause, from, resume, None, None);
    }

    /// The same, where what is asked is kept somewhere, perhaps with an answer for want of another.
    pub(super) fn ask_about(
        &mut self,
        cause: Cause,
        from: State,
        resume: State,
        about: Option<&Reference>,
        default: Option<&Reference>,
    ) {
        self.it.questions += 1;
        self.it.question = Some(Question {
            number: self.it.questions,
            cause,
            at: self.at,
            reminders: 0,
            seen_by: None,
            from,
            resume,
            about: about.cloned(),
            default: default.cloned(),
        });
        match (cause, about) {
            (Cause::ApprovalNeeded { .. }, _) => {
                self.write(EntryName::SmApprovalRequested, None, Fact::Cause(cause));
            }
            (_, Some(about)) => {
                self.write(EntryName::SmQuestionAsked, None, Fact::Kept(about.clone()));
            }
            (_, None) => self.write(EntryName::SmAlertSent, None, Fact::Cause(cause)),
        }
        self.alert(cause, severity(cause));
    }

    /// Tells people something, unless the rules say that they do not want to know.
    pub(super) fn alert(&mut self, cause: Cause, severity: Severity) {
        let kind = kind(cause);
        let wanted = &self.rules.scrum_master.alerts;
        let is_wanted = match kind {
            AlertKind::ApprovalNeeded => wanted.on_approval_needed,
            AlertKind::TaskBlocked => wanted.on_block,
            AlertKind::MaxRetriesExceeded => wanted.on_max_retries,
            AlertKind::ReviewFailed => wanted.on_review_failed,
            AlertKind::CostLimitWarning | AlertKind::Timeout | AlertKind::Error => true,
        };
        if !is_wanted {
            return;
        }
        let asked = self.it.question.as_ref().filter(|question| question.cause == cause);
        self.commands.push(Command::Alert(Alert {
            kind,
            severity,
            cause,
            question: asked.map(|question| question.number),
            answers: asked.map(answers).unwrap_or_default(),
        }));
    }

    /// Writes an entry that is not of a transition.
    pub(super) fn write(&mut self, name: EntryName, reason: Why, data: Fact) {
        self.push(self.it.state, None, name, reason, data);
    }

    fn push(&mut self, from: State, on: Option<Trigger>, name: EntryName, reason: Why, data: Fact) {
        self.it.entries += 1;
        self.entries.push(Entry {
            format: crate::version::Format,
            task: self.it.task,
            sequence: self.it.entries,
            at: self.at,
            name,
            from,
            to: self.it.state,
            on,
            actor: self.by.clone(),
            reason,
            data,
        });
    }
}

fn kind(cause: Cause) -> AlertKind {
    use crate::rules::HaltCondition;
    match cause {
        Cause::ApprovalNeeded { .. } | Cause::ReviewNeeded => AlertKind::ApprovalNeeded,
        Cause::Blocked(_) | Cause::Rejected | Cause::AgentAsked => AlertKind::TaskBlocked,
        Cause::LimitReached(_) | Cause::Halted(HaltCondition::MaxIterationsReached) => {
            AlertKind::MaxRetriesExceeded
        }
        Cause::CostWarning | Cause::Halted(HaltCondition::BudgetExceeded) => {
            AlertKind::CostLimitWarning
        }
        Cause::ReviewFailed => AlertKind::ReviewFailed,
        Cause::Slow { .. } | Cause::EngineTimedOut => AlertKind::Timeout,
        Cause::Halted(HaltCondition::SecurityCritical)
        | Cause::WorkFailed(_)
        | Cause::EngineFailed => AlertKind::Error,
    }
}

pub(super) fn severity(cause: Cause) -> Severity {
    match cause {
        Cause::Halted(_) | Cause::Blocked(_) => Severity::Critical,
        Cause::Slow { stage, .. } => match stage {
            Stage::Quiet | Stage::Warned => Severity::Info,
            Stage::Alerted => Severity::Warning,
            Stage::Escalated => Severity::Critical,
        },
        _ => Severity::Warning,
    }
}
