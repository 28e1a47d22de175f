//! Confirmation: nothing is executed that a person has not confirmed.
//!
//! Only [`Proposal::confirm`] creates a [`Confirmed`], and neither type can be cloned or
//! deserialised. A conversation is stored as a [`SavedConversation`], whose proposal has to be
//! confirmed like any other. An interface that executes only `Confirmed` values cannot be tricked: not by a
//! message, not by a model, and not by a confirmation that was meant for another command.

use serde::{Deserialize, Serialize};
use tamma_core::ids::{Digest, TaskId};

use crate::change::{CommandLine, RequestedChange};
use crate::command_parser::Verb;
use crate::message_text::MessageText;
use crate::question_parser::is_yes;
use crate::task_reference::{self, TaskReference};
use crate::{ChatContext, ChatTask, Clarification, Intent, Interpretation, interpret};

/// Digits of a digest that are enough to identify a proposal.
const MIN_DIGEST_DIGITS: usize = 12;

/// Change that was shown to a person and awaits confirmation.
#[derive(Debug, PartialEq, Eq)]
pub struct Proposal {
    change: RequestedChange,
    command: CommandLine,
    digest: Digest,
}

impl Proposal {
    /// Proposes a change to the current state.
    pub fn new(change: RequestedChange, now: &ChatContext) -> Self {
        let command = change.command(now);
        let digest = proposal_digest(&change, &command, now);
        Self { change, command, digest }
    }

    /// Returns the proposed change.
    pub fn change(&self) -> &RequestedChange {
        &self.change
    }

    /// Returns the exact command that a confirmation executes. It must be shown to the person.
    pub fn command(&self) -> &CommandLine {
        &self.command
    }

    /// Returns the digest that identifies this proposal: its command, and the state of its target
    /// when it was proposed. Buttons carry it.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Confirms the proposal with "yes", the command itself or the digest. Any other text is
    /// refused, and so is a confirmation after the target has changed. Consumes the proposal in all
    /// cases.
    pub fn confirm(self, text: &str, now: &ChatContext) -> Result<Confirmed, ConfirmError> {
        if !(is_yes(&MessageText::parse(text, &[])) || self.is_identified_by(text)) {
            return Err(ConfirmError::NotConfirmed);
        }
        if proposal_digest(&self.change, &self.change.command(now), now) != self.digest {
            return Err(ConfirmError::Changed);
        }
        Ok(Confirmed { change: self.change, command: self.command })
    }

    fn is_identified_by(&self, text: &str) -> bool {
        let text = text.trim();
        let digest = self.digest.to_string();
        text == self.command.to_string()
            || (text.len() >= MIN_DIGEST_DIGITS && digest.starts_with(&text.to_ascii_lowercase()))
    }
}

/// Computes the digest of a command and of everything that the person saw with it.
fn proposal_digest(change: &RequestedChange, command: &CommandLine, now: &ChatContext) -> Digest {
    let target_state = match change {
        RequestedChange::Task { task, .. } => now.task(*task).map(|task| format!("{task:?}")),
        RequestedChange::Lesson { lesson, .. } => {
            now.lesson(*lesson).map(|lesson| format!("{lesson:?}"))
        }
        RequestedChange::Story { pipeline, .. } => {
            now.story(*pipeline).map(|story| format!("{story:?}"))
        }
        RequestedChange::Add(_) | RequestedChange::RunPipeline(_) => None,
    };
    Digest::of(format!("{:?}\n{target_state:?}", command.words()).as_bytes())
}

/// Change that a person has confirmed. It can be executed once, because it cannot be cloned.
///
/// ```compile_fail,E0599
/// fn twice(one: tamma_chat::Confirmed) -> [tamma_chat::Confirmed; 2] {
///     [one.clone(), one]
/// }
/// ```
///
/// Nor can it be built from an unconfirmed change.
///
/// ```compile_fail,E0451
/// use tamma_chat::{CommandLine, Confirmed, RequestedChange};
///
/// fn forge(change: RequestedChange, command: CommandLine) -> Confirmed {
///     Confirmed { change, command }
/// }
/// ```
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a confirmed change must be executed"]
pub struct Confirmed {
    change: RequestedChange,
    command: CommandLine,
}

impl Confirmed {
    /// Returns the change and its command.
    pub fn into_parts(self) -> (RequestedChange, CommandLine) {
        (self.change, self.command)
    }

    /// Returns the change.
    pub fn change(&self) -> &RequestedChange {
        &self.change
    }

    /// Returns the command that the person confirmed.
    pub fn command(&self) -> &CommandLine {
        &self.command
    }
}

/// Reason why a proposal is not confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConfirmError {
    /// Text is not a confirmation.
    #[error("not a confirmation; nothing was changed")]
    NotConfirmed,
    /// Target has changed since the proposal.
    #[error(
        "the task, lesson or story has changed since the command was shown; nothing was changed. Ask \
         again"
    )]
    Changed,
    /// No proposal is pending.
    #[error("there is nothing to confirm; nothing was changed")]
    NothingPending,
}

/// Conversation with at most one pending proposal, the latest.
///
/// A plain "yes" counts only directly after the proposal. After any other message, the command or
/// the digest is required, because a late "yes" is ambiguous.
#[derive(Debug, Default)]
pub struct Conversation {
    pending: Option<Proposal>,
    accepts_plain_yes: bool,
    choice: Option<OpenChoice>,
}

/// Conversation as it is stored between messages.
///
/// It holds the proposed change and its digest. What the digest covers is compared again when the
/// person confirms, so a stored conversation can execute nothing that was not shown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedConversation {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pending: Option<SavedProposal>,
    #[serde(default)]
    accepts_plain_yes: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    choice: Option<OpenChoice>,
}

/// Message that fits several tasks. The answer to "Which one?" completes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct OpenChoice {
    message: String,
    tasks: Vec<TaskId>,
}

impl OpenChoice {
    /// Returns the task that an answer names, if it does nothing else.
    fn chosen(&self, answer: &str, now: &ChatContext) -> Option<TaskId> {
        let tasks = now.tasks.iter().filter(|task| self.tasks.contains(&task.id));
        let offered = ChatContext { tasks: tasks.cloned().collect(), ..ChatContext::default() };
        let text = MessageText::parse(answer, &offered.tasks);
        let name = text.masked.trim().trim_end_matches(['.', '!', '?']);
        let is_name = task_reference::is_task_name(name, &offered, Verb::Cancel);
        match task_reference::find_task(name, &offered, |_| true) {
            TaskReference::One(task) if is_name => Some(task),
            _ => None,
        }
    }

    /// Interprets the message again, about the chosen task and not the others.
    fn complete(&self, chosen: TaskId, now: &ChatContext) -> Interpretation {
        let is_other = |task: &ChatTask| self.tasks.contains(&task.id) && task.id != chosen;
        let tasks = now.tasks.iter().filter(|task| !is_other(task)).cloned().collect();
        interpret(&self.message, &ChatContext { tasks, last: Some(chosen), ..now.clone() })
    }
}

/// Proposed change with its digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SavedProposal {
    change: RequestedChange,
    digest: Digest,
}

/// Outcome of a message.
#[derive(Debug, PartialEq, Eq)]
pub enum MessageOutcome {
    /// Message was interpreted. A change in it is now proposed.
    Interpreted(Interpretation),
    /// Person confirmed the proposal; execute it.
    Confirmed(Confirmed),
    /// Person declined; the proposal is discarded.
    Declined,
    /// Confirmation was refused.
    Refused(ConfirmError),
}

impl Conversation {
    /// Continues a stored conversation. If the target of its proposal has changed since, the digest
    /// no longer matches, and a confirmation is refused.
    pub fn restore(saved: SavedConversation, now: &ChatContext) -> Self {
        let pending = saved.pending.map(|SavedProposal { change, digest }| {
            let command = change.command(now);
            Proposal { change, command, digest }
        });
        Self { pending, accepts_plain_yes: saved.accepts_plain_yes, choice: saved.choice }
    }

    /// Returns the conversation in the form in which it is stored.
    pub fn save(&self) -> SavedConversation {
        let pending = self.pending.as_ref().map(|pending| SavedProposal {
            change: pending.change.clone(),
            digest: pending.digest,
        });
        let choice = self.choice.clone();
        SavedConversation { pending, accepts_plain_yes: self.accepts_plain_yes, choice }
    }

    /// Returns the pending proposal.
    pub fn pending(&self) -> Option<&Proposal> {
        self.pending.as_ref()
    }

    /// Handles a message with the grammar. `now` is the current state; the conversation itself
    /// knows the pending proposal.
    pub fn handle(&mut self, message: &str, now: &ChatContext) -> MessageOutcome {
        self.handle_interpreted(message, now, None)
    }

    /// Returns true if the message answers the proposal or the question which task is meant. Such a
    /// message never goes to a model: only the grammar decides on confirmations.
    pub fn is_answer(&self, message: &str, now: &ChatContext) -> bool {
        self.identifies_pending(message)
            || self.choice.as_ref().is_some_and(|choice| choice.chosen(message, now).is_some())
            || matches!(self.interpret(message, now).intent, Intent::Confirm | Intent::Decline)
    }

    /// Handles a message with a model's interpretation. The grammar is used if there is none, or if
    /// the message answers the proposal.
    pub fn handle_interpreted(
        &mut self,
        message: &str,
        now: &ChatContext,
        from_model: Option<Interpretation>,
    ) -> MessageOutcome {
        if self.identifies_pending(message) {
            return self.confirm(message, now);
        }
        let by_grammar = self.interpret(message, now);
        let interpretation = match by_grammar.intent {
            Intent::Confirm => return self.confirm(message, now),
            Intent::Decline => {
                self.pending = None;
                self.accepts_plain_yes = false;
                return MessageOutcome::Declined;
            }
            _ => from_model.unwrap_or(by_grammar),
        };
        // The answer to "Which one?" stands for the message that was asked about.
        let (interpretation, asked) = match self.choice.take() {
            Some(choice) => match choice.chosen(message, now) {
                Some(task) => (choice.complete(task, now), choice.message),
                None => (interpretation, message.to_owned()),
            },
            None => (interpretation, message.to_owned()),
        };
        match &interpretation.intent {
            Intent::Change(change) => {
                self.propose(change.clone(), now);
            }
            Intent::Unclear(Clarification::WhichTask { tasks, lessons }) if lessons.is_empty() => {
                self.accepts_plain_yes = false;
                self.choice = Some(OpenChoice { message: asked, tasks: tasks.clone() });
            }
            _ => self.accepts_plain_yes = false,
        }
        MessageOutcome::Interpreted(interpretation)
    }

    fn identifies_pending(&self, message: &str) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.is_identified_by(message))
    }

    fn interpret(&self, message: &str, now: &ChatContext) -> Interpretation {
        interpret(message, &ChatContext { proposed: self.accepts_plain_yes, ..now.clone() })
    }

    /// Proposes a change, such as one from a model, in place of the pending one.
    pub fn propose(&mut self, change: RequestedChange, now: &ChatContext) -> &Proposal {
        self.accepts_plain_yes = true;
        self.pending.insert(Proposal::new(change, now))
    }

    fn confirm(&mut self, text: &str, now: &ChatContext) -> MessageOutcome {
        self.accepts_plain_yes = false;
        let Some(proposal) = self.pending.take() else {
            return MessageOutcome::Refused(ConfirmError::NothingPending);
        };
        match proposal.confirm(text, now) {
            Ok(confirmed) => MessageOutcome::Confirmed(confirmed),
            Err(error) => MessageOutcome::Refused(error),
        }
    }
}
