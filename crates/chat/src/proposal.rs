//! From a wish to a deed: nothing is carried out that a person has not said yes to.
//!
//! [`Confirmed`] can be made in one way only, by [`Proposal::confirm`], and neither of them can be
//! copied or read from text. So a face that carries out a `Confirmed` and nothing else cannot be
//! talked into anything: not by a message, not by a model, not by a yes that was meant for another
//! command.

use tamma_core::ids::Digest;

use crate::change::{Change, CommandLine};
use crate::reading::is_yes;
use crate::words::Own;
use crate::{Context, Intent, Understood, understand};

/// How many digits of a proposal's digest name it.
const ENOUGH_DIGITS: usize = 12;

/// A change that was shown to a person and waits for their yes.
#[derive(Debug, PartialEq, Eq)]
pub struct Proposal {
    change: Change,
    command: CommandLine,
    digest: Digest,
}

impl Proposal {
    /// Proposes a change to what is there now.
    pub fn new(change: Change, now: &Context) -> Self {
        let command = change.command(now);
        let digest = digest(&change, &command, now);
        Self { change, command, digest }
    }

    /// What it would change.
    pub fn change(&self) -> &Change {
        &self.change
    }

    /// The exact command that a yes means. It has to be shown.
    pub fn command(&self) -> &CommandLine {
        &self.command
    }

    /// The name of this proposal and no other: of its command, and of what it is about as it was
    /// when it was proposed. A button carries it.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Takes a person's yes: a plain one, the command itself, or the digest. Whatever else was said
    /// is none, and neither is a yes to what has changed since. The proposal is gone in any case.
    pub fn confirm(self, said: &str, now: &Context) -> Result<Confirmed, Unconfirmed> {
        if !(is_yes(&Own::of(said)) || self.is_named(said)) {
            return Err(Unconfirmed::NotAYes);
        }
        if digest(&self.change, &self.change.command(now), now) != self.digest {
            return Err(Unconfirmed::Changed);
        }
        Ok(Confirmed { change: self.change, command: self.command })
    }

    fn is_named(&self, said: &str) -> bool {
        let said = said.trim();
        let digest = self.digest.to_string();
        said == self.command.to_string()
            || (said.len() >= ENOUGH_DIGITS && digest.starts_with(&said.to_ascii_lowercase()))
    }
}

/// The digest of a command and of everything that a person saw when they were asked.
fn digest(change: &Change, command: &CommandLine, now: &Context) -> Digest {
    let seen = match change {
        Change::Task { task, .. } => now.task(*task).map(|task| format!("{task:?}")),
        Change::Lesson { lesson, .. } => now.lesson(*lesson).map(|lesson| format!("{lesson:?}")),
        Change::Add(_) => None,
    };
    Digest::of(format!("{:?}\n{seen:?}", command.words()).as_bytes())
}

/// A change that a person has said yes to. It can be carried out once: it cannot be copied.
///
/// ```compile_fail,E0599
/// fn twice(one: tamma_chat::Confirmed) -> [tamma_chat::Confirmed; 2] {
///     [one.clone(), one]
/// }
/// ```
///
/// Nor can it be made of a change that nobody has confirmed.
///
/// ```compile_fail,E0451
/// use tamma_chat::{Change, CommandLine, Confirmed};
///
/// fn forge(change: Change, command: CommandLine) -> Confirmed {
///     Confirmed { change, command }
/// }
/// ```
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a confirmed change is to be carried out"]
pub struct Confirmed {
    change: Change,
    command: CommandLine,
}

impl Confirmed {
    /// What to do, and the command that says the same.
    pub fn into_parts(self) -> (Change, CommandLine) {
        (self.change, self.command)
    }

    /// What to do.
    pub fn change(&self) -> &Change {
        &self.change
    }

    /// The command that the person said yes to.
    pub fn command(&self) -> &CommandLine {
        &self.command
    }
}

/// Why something is not confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unconfirmed {
    /// What was said is no yes.
    #[error("that is no yes, so nothing was done")]
    NotAYes,
    /// What it is about is not what it was.
    #[error("what it is about has changed since it was shown; nothing was done. Ask again")]
    Changed,
    /// Nothing waits for a yes.
    #[error("nothing waits for a yes; nothing was done")]
    Nothing,
}

/// What a conversation waits for: at most one proposal, the latest.
///
/// A plain yes counts only right after the proposal. Once something else was said it takes the
/// command or the digest, because nobody can tell what a late yes is for.
#[derive(Debug, Default)]
pub struct Conversation {
    pending: Option<Proposal>,
    fresh: bool,
}

/// What came of a message.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// It was understood; where it asks for a change, that is proposed now and waits.
    Understood(Understood),
    /// The person has said yes: carry it out.
    Confirmed(Confirmed),
    /// The person has said no: what waited is gone.
    Declined,
    /// They said yes, and it does not count.
    Refused(Unconfirmed),
}

impl Conversation {
    /// What waits for a yes.
    pub fn pending(&self) -> Option<&Proposal> {
        self.pending.as_ref()
    }

    /// Takes a message as the grammar reads it. `now` says what there is; whether something waits for
    /// a yes is known here.
    pub fn hear(&mut self, message: &str, now: &Context) -> Heard {
        self.hear_read(message, now, None)
    }

    /// Whether a message is an answer to what was proposed. No model is asked about one: what is a
    /// yes is never for a model to say.
    pub fn is_answer(&self, message: &str, now: &Context) -> bool {
        self.is_named(message)
            || matches!(self.read(message, now).intent, Intent::Confirm | Intent::Decline)
    }

    /// Takes a message as a model has read it; as the grammar does where there is no such reading, or
    /// where the message is an answer to what was proposed.
    pub fn hear_read(&mut self, message: &str, now: &Context, read: Option<Understood>) -> Heard {
        if self.is_named(message) {
            return self.confirm(message, now);
        }
        let by_grammar = self.read(message, now);
        let understood = match by_grammar.intent {
            Intent::Confirm => return self.confirm(message, now),
            Intent::Decline => {
                self.pending = None;
                self.fresh = false;
                return Heard::Declined;
            }
            _ => read.unwrap_or(by_grammar),
        };
        match &understood.intent {
            Intent::Change(change) => {
                self.propose(change.clone(), now);
            }
            _ => self.fresh = false,
        }
        Heard::Understood(understood)
    }

    fn is_named(&self, message: &str) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.is_named(message))
    }

    fn read(&self, message: &str, now: &Context) -> Understood {
        understand(message, &Context { proposed: self.fresh, ..now.clone() })
    }

    /// Proposes a change, such as one that a model has understood, in the place of what waited.
    pub fn propose(&mut self, change: Change, now: &Context) -> &Proposal {
        self.fresh = true;
        self.pending.insert(Proposal::new(change, now))
    }

    fn confirm(&mut self, said: &str, now: &Context) -> Heard {
        self.fresh = false;
        let Some(proposal) = self.pending.take() else {
            return Heard::Refused(Unconfirmed::Nothing);
        };
        match proposal.confirm(said, now) {
            Ok(confirmed) => Heard::Confirmed(confirmed),
            Err(why) => Heard::Refused(why),
        }
    }
}
