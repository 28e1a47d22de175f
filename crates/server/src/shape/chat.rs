//! A conversation, as it goes over the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// Something that a person says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Said {
    /// The conversation it belongs to, made by the client.
    pub conversation: Uuid,
    /// What they say. A yes, the command itself, or its digest carries out what was proposed last.
    pub message: String,
    /// The task that they look at, if they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Uuid>,
}

/// What is said to them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reply {
    /// What their message was taken for.
    pub intent: String,
    /// The answer, in lines.
    pub lines: Vec<String>,
    /// Tasks that it speaks of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<Mention>,
    /// What it is based on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub references: Vec<ChatReference>,
    /// What would be done, and waits for a yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposal: Option<Proposed>,
    /// The command that was carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<String>,
    /// Who read the message.
    #[serde(default)]
    pub read_by: ReadBy,
    /// Why it was read by the grammar where there is a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Who reads a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReadBy {
    /// A small grammar.
    #[default]
    Grammar,
    /// The model that the project has configured.
    Model,
}

/// A task that an answer speaks of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Mention {
    /// The task.
    pub task: Uuid,
    /// Its title.
    pub title: String,
    /// How it stands.
    pub words: String,
}

/// An event that an answer is based on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChatReference {
    /// The task.
    pub task: Uuid,
    /// The number of the event.
    pub event: u64,
    /// What it says.
    pub text: String,
}

/// Something that is proposed. Nothing is done before a yes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Proposed {
    /// The exact command.
    pub command: String,
    /// What names it, and nothing else.
    pub digest: String,
}
