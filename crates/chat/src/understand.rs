//! What a person's message asks for, by a small grammar.
//!
//! [`understand`] takes a message for one [`Intent`]: something to look up, something to change, talk,
//! or [`Intent::Unclear`] with the question to ask back. It never guesses between two tasks, and what
//! is negated, supposed, quoted or told of others is never a change: a change is read only where one
//! of the [`VERBS`](crate::VERBS) stands where an order stands, after nothing but polite words.
//!
//! A [`Change`](crate::Change) does nothing. It becomes a [`Proposal`](crate::Proposal), which shows the exact command, and only a
//! person's yes to that proposal makes it [`Confirmed`](crate::Confirmed), which is what a face of Tamma may carry out.
//! A model that understands better than this grammar ([`question`](crate::question), [`answered`](crate::answered)) hands in the same
//! `Change` and gets no further.

use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::intent::Intent;
use crate::words::Own;
use crate::{reading, request};

/// What a message was taken for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Understood {
    /// What it asks for.
    pub intent: Intent,
    /// How sure the grammar is, 0 to 100. It only says so: nothing is done or left because of it.
    pub confidence: u8,
    /// What it went by, for people.
    pub why: String,
}

/// Takes a message for what it asks for.
pub fn understand(message: &str, context: &Context) -> Understood {
    let own = Own::of(message);
    reading::yes_or_no(&own, context)
        .or_else(|| request::read(&own, context))
        .unwrap_or_else(|| reading::read(&own, context))
}

pub(crate) fn understood(intent: Intent, confidence: u8, why: impl Into<String>) -> Understood {
    Understood { intent, confidence, why: why.into() }
}
