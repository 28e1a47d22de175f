//! Interpretation of chat messages with a small grammar.
//!
//! [`interpret`] maps a message to one [`Intent`]: a lookup, a change, small talk, or
//! [`Intent::Unclear`] with the question to ask. It never guesses between two tasks. A quoted title or
//! ID names its task, even if the message mentions others. Text that is
//! negated, hypothetical, quoted or reported is never a change: a change needs one of the
//! [`COMMAND_WORDS`](crate::COMMAND_WORDS) in the position of a command, after polite words at
//! most.
//!
//! A [`RequestedChange`](crate::RequestedChange) has no effect. It becomes a
//! [`Proposal`](crate::Proposal), which shows the exact command. Only a person's confirmation turns
//! it into [`Confirmed`](crate::Confirmed), the only value that an interface of Tamma executes. A
//! model ([`model_prompt`](crate::model_prompt),
//! [`interpret_model_answer`](crate::interpret_model_answer)) produces the same `RequestedChange`,
//! with the same limits.

use serde::{Deserialize, Serialize};

use crate::context::ChatContext;
use crate::intent::{Clarification, Intent};
use crate::message_text::{MessageText, sanitize_line};
use crate::{change_parser, forge_parser, question_parser, story_parser};

/// Interpretation of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interpretation {
    /// Intent of the message.
    pub intent: Intent,
    /// Confidence of the grammar, 0 to 100. For information only; no decision depends on it.
    pub confidence: u8,
    /// Explanation for people.
    #[serde(rename = "why")]
    pub explanation: String,
    /// Reply of a model to general talk. It is text to show, and has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<String>,
}

/// Interprets a message with the grammar.
pub fn interpret(message: &str, context: &ChatContext) -> Interpretation {
    let text = MessageText::parse(message, &context.tasks);
    let read = question_parser::parse_confirmation(&text, context)
        .or_else(|| story_parser::parse_story(&text, context))
        .or_else(|| change_parser::parse_change(&text, context))
        .or_else(|| forge_parser::parse_forge_list(&text))
        .unwrap_or_else(|| question_parser::parse_question(&text, context));
    match read.intent {
        // The person's name for the task, not the masked text.
        Intent::Unclear(Clarification::UnknownTask { description })
            if description.contains(char::is_control) =>
        {
            let description = text.quoted.map(sanitize_line).unwrap_or_default();
            let intent = Intent::Unclear(Clarification::UnknownTask { description });
            Interpretation { intent, ..read }
        }
        intent => Interpretation { intent, ..read },
    }
}

/// Returns `true` if a message is about a story, pipelines, pull requests or the merge queue. Only the
/// grammar reads these.
pub fn is_about_story(message: &str, context: &ChatContext) -> bool {
    let text = MessageText::parse(message, &context.tasks);
    story_parser::parse_story(&text, context).is_some()
        || forge_parser::parse_forge_list(&text).is_some()
}

pub(crate) fn interpretation(
    intent: Intent,
    confidence: u8,
    explanation: impl Into<String>,
) -> Interpretation {
    Interpretation { intent, confidence, explanation: explanation.into(), reply: None }
}
