//! What time does: soft timeouts and reminders, neither of which stops or decides anything, and the
//! answer that an agent's question brought for want of another.

use super::Turn;
use crate::cause::{Cause, Stage};
use crate::log::{EntryName, Fact};
use crate::task_loop::{Refusal, Severity};

impl Turn<'_> {
    /// Time passed.
    pub(super) fn tick(&mut self) -> Result<(), Refusal> {
        let wake = self.it.wake_at(self.rules);
        if wake.is_none_or(|wake| wake > self.at) {
            return Err(Refusal::NothingDue(wake));
        }
        self.advance_soft_timeout();
        if self.it.default_at(self.rules).is_some_and(|due| due <= self.at) {
            return self.answer_for_want_of_another();
        }
        self.remind();
        Ok(())
    }

    fn advance_soft_timeout(&mut self) {
        let before = self.it.clock.stage;
        while let Some((_, stage)) =
            self.it.next_stage(self.rules).filter(|(due, _)| *due <= self.at)
        {
            self.it.clock.stage = stage;
        }
        let stage = self.it.clock.stage;
        let name = match stage {
            _ if stage == before => return,
            Stage::Quiet | Stage::Warned => EntryName::SmTimeoutWarning,
            Stage::Alerted => EntryName::SmTimeoutAlert,
            Stage::Escalated => EntryName::SmTimeoutEscalated,
        };
        let cause = Cause::Slow { state: self.it.state, stage };
        self.write(name, None, Fact::Cause(cause));
        // An open question has its own reminders: one message for each decision.
        if self.it.question.is_none() {
            self.alert(cause, super::moves::severity(cause));
        }
    }

    /// Nobody has answered an agent's question, and it said what to take then.
    fn answer_for_want_of_another(&mut self) -> Result<(), Refusal> {
        let Some(question) = self.it.question.clone() else { return Ok(()) };
        let Some(default) = question.default.clone() else { return Ok(()) };
        let minutes = self.rules.scrum_master.user_interaction.default_after_minutes;
        let why = format!("nobody answered within {minutes} minutes");
        self.replied(&question, &default, Some(why.into()))
    }

    fn remind(&mut self) {
        let due = self.it.next_reminder(self.rules).is_some_and(|due| due <= self.at);
        let Some(question) = self.it.question.as_mut().filter(|_| due) else {
            return;
        };
        // Reminders that were missed while nothing ran are not made up for.
        let waited = (self.at - question.at).num_minutes();
        let interval = i64::from(self.rules.scrum_master.user_interaction.auto_timeout_minutes);
        question.reminders = u32::try_from(waited / interval).unwrap_or(u32::MAX);
        let cause = question.cause;
        self.write(EntryName::SmAlertSent, Some("reminder".into()), Fact::Cause(cause));
        let severity = super::moves::severity(cause).max(Severity::Warning);
        self.alert(cause, severity);
    }
}
