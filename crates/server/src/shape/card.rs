//! A task as a list shows it.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tamma_core::budget;
use tamma_core::cost::Usd;
use tamma_core::level::Level;
use tamma_core::task::{Priority, TaskType};
use tamma_core::task_loop::{Answer, Next, Phase, State};
use utoipa::ToSchema;
use uuid::Uuid;

/// How many digits at the end of an id are shown to people.
const SHORT: usize = 8;

/// The last digits of an id, which tell tasks apart: the first ones are the time.
pub fn short(id: Uuid) -> String {
    let digits = id.simple().to_string();
    digits[digits.len() - SHORT..].to_owned()
}

/// A task as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Card {
    /// Its identity.
    pub id: Uuid,
    /// The last eight digits of it, for people.
    pub short: String,
    /// The id of its project.
    pub project: Uuid,
    /// Its title.
    pub title: String,
    /// What kind of work it is.
    #[schema(value_type = String)]
    pub r#type: TaskType,
    /// How urgent it is.
    #[schema(value_type = String)]
    pub priority: Priority,
    /// When it came.
    pub created_at: DateTime<Utc>,
    /// Where it is.
    #[schema(value_type = String, example = "awaiting_approval")]
    pub state: State,
    /// The column of the board.
    #[schema(value_type = String, example = "approve")]
    pub phase: Phase,
    /// Whether it is paused.
    pub paused: bool,
    /// Since when it is where it is.
    pub since: DateTime<Utc>,
    /// How risky its plan is, if that is known.
    #[schema(value_type = Option<String>, example = "medium")]
    pub risk: Option<Level>,
    /// How many runs it has had.
    pub iterations: u16,
    /// How often its plan has been adjusted.
    pub retries: u8,
    /// How often the council was asked.
    pub councils: u8,
    /// How many entries of its log say that something failed.
    pub failures: u32,
    /// What it has spent.
    pub spend: Spend,
    /// What it may spend, in US dollars. Left out where there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "5.00")]
    pub budget: Option<Usd>,
    /// Whether it waits for a person.
    pub waits_for_person: bool,
    /// What a person may answer, if one is asked.
    #[schema(value_type = Vec<String>, example = json!(["approve", "reject", "ask_changes"]))]
    pub answers: Vec<Answer>,
    /// What moves it forward next, as data. Nothing does once it has ended.
    #[schema(value_type = Option<Object>)]
    pub next: Option<Next>,
    /// What moves it forward next, in words.
    pub next_in_words: Option<String>,
    /// When it will have been there for longer than expected.
    pub due_at: Option<DateTime<Utc>>,
    /// How many entries its log has.
    pub entries: u64,
    /// When it was last written.
    pub updated_at: DateTime<Utc>,
}

/// What a task has spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Spend {
    /// US dollars.
    #[schema(value_type = String, example = "0.42")]
    pub usd: Usd,
    /// Tokens of all kinds.
    pub tokens: u64,
    /// Whether any of the dollars are an estimate.
    pub estimated: bool,
}

/// A task of which something stored cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Damaged {
    /// Its identity.
    pub id: Uuid,
    /// Its title.
    pub title: String,
    /// What is wrong.
    pub why: String,
}

/// Part of a list of tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Page {
    /// The tasks.
    pub tasks: Vec<Card>,
    /// Tasks that belong here and cannot be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<Damaged>,
    /// What to pass as `after` for the next part, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl From<budget::Spend> for Spend {
    fn from(spend: budget::Spend) -> Self {
        Self { usd: spend.usd, tokens: spend.tokens, estimated: spend.estimated }
    }
}

impl From<tamma_store::Card> for Card {
    fn from(card: tamma_store::Card) -> Self {
        Self {
            id: card.task.0,
            short: short(card.task.0),
            project: card.project.0,
            answers: card.answers(),
            waits_for_person: card.question.is_some() && !card.paused,
            title: card.title,
            r#type: card.r#type,
            priority: card.priority,
            created_at: card.created_at,
            state: card.state,
            phase: card.phase,
            paused: card.paused,
            since: card.since,
            risk: card.risk,
            iterations: card.iterations,
            retries: card.retries,
            councils: card.councils,
            failures: card.failures,
            spend: card.spend.into(),
            budget: card.budget,
            next_in_words: card.next.as_ref().map(ToString::to_string),
            next: card.next,
            due_at: card.due_at,
            entries: card.entries,
            updated_at: card.updated_at,
        }
    }
}

/// A task of a list, or what of it cannot be read.
pub(crate) fn listed(listed: tamma_store::Listed) -> Result<Card, Damaged> {
    match listed {
        tamma_store::Listed::Card(card) => Ok((*card).into()),
        tamma_store::Listed::Damaged { task, title, damage, .. } => Err(Damaged {
            id: task.0,
            title,
            why: format!("the stored {} cannot be read: {}", damage.what, damage.why),
        }),
    }
}
