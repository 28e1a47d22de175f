//! Timers: soft timeouts, reminders and default answers. Soft timeouts and reminders stop and
//! decide nothing.

use super::StepBuilder;
use crate::cause::{AlertCause, PullRequestProblem, TimeoutStage};
use crate::history::{EntryData, EntryName};
use crate::task_loop::{AlertSeverity, Refusal};

impl StepBuilder<'_> {
    /// Handles the passing of time.
    pub(super) fn tick(&mut self) -> Result<(), Refusal> {
        let wake_at = self.task_loop.wake_at(self.rules);
        if wake_at.is_none_or(|wake_at| wake_at > self.now) {
            return Err(Refusal::NothingDue(wake_at));
        }
        self.advance_soft_timeout();
        if self.task_loop.default_answer_at(self.rules).is_some_and(|due| due <= self.now) {
            return self.apply_default_answer();
        }
        self.send_reminder();
        Ok(())
    }

    fn advance_soft_timeout(&mut self) {
        let before = self.task_loop.clock.stage;
        while let Some((_, stage)) =
            self.task_loop.next_timeout_stage(self.rules).filter(|(due, _)| *due <= self.now)
        {
            self.task_loop.clock.stage = stage;
        }
        let stage = self.task_loop.clock.stage;
        let name = match stage {
            _ if stage == before => return,
            TimeoutStage::Quiet | TimeoutStage::Warned => EntryName::SmTimeoutWarning,
            TimeoutStage::Alerted => EntryName::SmTimeoutAlert,
            TimeoutStage::Escalated => EntryName::SmTimeoutEscalated,
        };
        let cause = AlertCause::SoftTimeout { state: self.task_loop.state, stage };
        self.record_entry(name, None, EntryData::Cause(cause));
        // An open question has its own reminders, so that each decision sends one message.
        if self.task_loop.open_question.is_none() {
            self.send_alert(cause, super::transitions::alert_severity(cause));
        }
    }

    /// Applies the default answer of a question that nobody answered.
    fn apply_default_answer(&mut self) -> Result<(), Refusal> {
        let Some(question) = self.task_loop.open_question.clone() else { return Ok(()) };
        if question.cause == AlertCause::PullRequest(PullRequestProblem::Closed) {
            return self.cancel_closed_pull_request();
        }
        let Some(default) = question.default_answer.clone() else { return Ok(()) };
        let minutes = self.rules.scrum_master.user_interaction.default_after_minutes;
        let reason = format!("nobody answered within {minutes} minutes");
        self.resume_with_reply(&question, &default, Some(reason.into()))
    }

    fn send_reminder(&mut self) {
        let due = self.task_loop.next_reminder(self.rules).is_some_and(|due| due <= self.now);
        let Some(question) = self.task_loop.open_question.as_mut().filter(|_| due) else {
            return;
        };
        // Reminders missed during downtime are not sent later.
        let waited = (self.now - question.asked_at).num_minutes();
        let interval = i64::from(self.rules.scrum_master.user_interaction.auto_timeout_minutes);
        question.reminders = u32::try_from(waited / interval).unwrap_or(u32::MAX);
        let cause = question.cause;
        self.record_entry(EntryName::SmAlertSent, Some("reminder".into()), EntryData::Cause(cause));
        let severity = super::transitions::alert_severity(cause).max(AlertSeverity::Warning);
        self.send_alert(cause, severity);
    }
}
