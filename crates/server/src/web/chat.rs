//! Chat page.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use askama::Template;
use axum::extract::{Query, State};
use serde::Deserialize;
use tamma_core::ids::TaskId;
use uuid::Uuid;

use super::form_fields::FormFields;
use super::layout::{DisplayTime, Layout, Link};
use super::session::Session;
use super::{PageError, PageResult, WebState, labels, redirect, render};
use crate::app::Error;
use crate::clock;
use crate::dto::{ChatReply, NewChatMessage, short_id};

/// Maximum number of messages kept per conversation.
const MAX_MESSAGES: usize = 100;

/// Conversations of this process, by session.
#[derive(Clone, Default)]
pub(super) struct ConversationStore(Arc<Mutex<BTreeMap<String, StoredConversation>>>);

#[derive(Default)]
struct StoredConversation {
    id: Option<Uuid>,
    messages: Vec<StoredMessage>,
}

#[derive(Clone)]
struct StoredMessage {
    by: Option<String>,
    at: chrono::DateTime<chrono::Utc>,
    reply: ChatReply,
}

#[derive(Template)]
#[template(path = "chat.html")]
struct ChatPage {
    layout: Layout,
    live_href: String,
    reader_description: String,
    messages: Vec<MessageView>,
    examples: Vec<&'static str>,
    topic: ChatTopic,
}

struct ChatTopic {
    id: String,
    title: String,
}

struct MessageView {
    number: usize,
    from: &'static str,
    author: String,
    at: DisplayTime,
    lines: Vec<String>,
    tasks: MentionedTasks,
    references: EventLinks,
    proposal: ProposalView,
}

struct MentionedTasks {
    any: bool,
    list: Vec<MentionedTask>,
}

struct MentionedTask {
    id: Uuid,
    title: String,
    status: String,
}

struct EventLinks {
    any: bool,
    list: Vec<Link>,
}

#[derive(Default)]
struct ProposalView {
    any: bool,
    is_open: bool,
    heading: &'static str,
    command: String,
    digest: String,
    consequence: &'static str,
    outcome: &'static str,
}

/// Query parameters of the chat page.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ChatQuery {
    task: Option<Uuid>,
}

pub(super) async fn page(
    State(hall): State<WebState>,
    visitor: Session,
    Query(wanted): Query<ChatQuery>,
) -> PageResult {
    let shell = Layout::for_page(&hall, &visitor, "chat").await?;
    let about = match wanted.task {
        Some(id) => {
            let card = hall.app.task_card(TaskId(id)).await;
            let card =
                card.map_err(|error| PageError::new(Layout::for_session(&visitor), error))?;
            ChatTopic { id: id.to_string(), title: card.title }
        }
        None => ChatTopic { id: String::new(), title: String::new() },
    };
    let spoken = {
        let rooms = hall.conversations.0.lock().unwrap_or_else(PoisonError::into_inner);
        rooms.get(&visitor.csrf_token()).map(|room| room.messages.clone()).unwrap_or_default()
    };
    let model = hall.app.chat_model().await;
    let model = model.map_err(|error| PageError::new(Layout::for_session(&visitor), error))?;
    let last = spoken.len();
    let messages = spoken.iter().enumerate().map(|(at, it)| message_view(at, it, at + 1 == last));
    render(&ChatPage {
        layout: shell,
        live_href: "/live/board".to_owned(),
        reader_description: match model {
            Some(model) => {
                format!(
                    "Messages are read by {model}, or by a built-in grammar if it is unavailable"
                )
            }
            None => "Short, plain sentences work best".to_owned(),
        },
        messages: messages.collect(),
        examples: vec![
            "What needs my attention?",
            "What failed this week?",
            "How much did we spend today?",
            "What did we learn this week?",
        ],
        topic: about,
    })
}

fn message_view(number: usize, it: &StoredMessage, is_last: bool) -> MessageView {
    let tasks: Vec<_> = it
        .reply
        .tasks
        .iter()
        .map(|one| MentionedTask {
            id: one.task,
            title: one.title.clone(),
            status: one.status_text.clone(),
        })
        .collect();
    let refs: Vec<_> = it
        .reply
        .references
        .iter()
        .map(|one| {
            let href = format!("/tasks/{}/events#e{}", one.task, one.event);
            Link::new(href, format!("{} event {}", short_id(one.task), one.event))
        })
        .collect();
    let proposal = match (&it.reply.proposal, &it.reply.executed_command) {
        (Some(proposed), _) => ProposalView {
            any: true,
            is_open: is_last,
            heading: "Command:",
            command: proposed.command.clone(),
            digest: proposed.digest.clone(),
            consequence: "Runs with your permissions and is recorded in the task history.",
            outcome: "Expired.",
        },
        (None, Some(command)) => ProposalView {
            any: true,
            heading: "Executed:",
            command: command.clone(),
            outcome: "Done.",
            ..ProposalView::default()
        },
        (None, None) => ProposalView::default(),
    };
    MessageView {
        number,
        from: if it.by.is_some() { "me" } else { "tamma" },
        author: it.by.clone().unwrap_or_else(|| "Tamma".to_owned()),
        at: DisplayTime::absolute(it.at),
        lines: it.reply.lines.iter().chain(&it.reply.note).cloned().collect(),
        tasks: MentionedTasks { any: !tasks.is_empty(), list: tasks },
        references: EventLinks { any: !refs.is_empty(), list: refs },
        proposal,
    }
}

/// Handles a chat message.
pub(super) async fn send_message(
    State(hall): State<WebState>,
    visitor: Session,
    fields: FormFields,
) -> PageResult {
    let task = fields.non_empty("task").and_then(|task| task.parse().ok());
    post_message(&hall, &visitor, fields.text("message"), task).await
}

/// Handles the answer to a proposed action.
pub(super) async fn answer_proposal(
    State(hall): State<WebState>,
    visitor: Session,
    fields: FormFields,
) -> PageResult {
    // The confirmation carries the proposal's digest, so that it cannot confirm another one.
    let message = match fields.text("answer").as_str() {
        "yes" => fields.text("proposal"),
        _ => "no".to_owned(),
    };
    post_message(&hall, &visitor, message, None).await
}

async fn post_message(
    hall: &WebState,
    visitor: &Session,
    message: String,
    task: Option<Uuid>,
) -> PageResult {
    let oops = |error: Error| {
        PageError::new(Layout::for_session(visitor), error).with_unsent_text(message.clone())
    };
    if message.is_empty() {
        return redirect("/chat");
    }
    let by = visitor.acting_person().map_err(oops)?;
    let key = visitor.csrf_token();
    let conversation = {
        let mut rooms = hall.conversations.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = rooms.entry(key.clone()).or_default();
        *room.id.get_or_insert_with(clock::new_id)
    };
    let said = NewChatMessage { conversation, message: message.clone(), task };
    let reply = match hall.app.chat(&by, said).await {
        Ok(reply) => reply,
        // Errors are shown as replies.
        Err(error) => {
            let problem = crate::problem::Problem::from(error);
            let lines = std::iter::once(problem.detail).chain(problem.hint).collect();
            ChatReply { lines, ..ChatReply::default() }
        }
    };
    let now = clock::now();
    let mine = ChatReply { lines: labels::paragraphs(&message), ..ChatReply::default() };
    let mut rooms = hall.conversations.0.lock().unwrap_or_else(PoisonError::into_inner);
    let room = rooms.entry(key).or_default();
    room.messages.push(StoredMessage { by: Some(by.to_string()), at: now, reply: mine });
    room.messages.push(StoredMessage { by: None, at: now, reply });
    let from = room.messages.len().saturating_sub(MAX_MESSAGES);
    room.messages.drain(..from);
    drop(rooms);
    match task {
        Some(task) => redirect(&format!("/chat?task={task}#say")),
        None => redirect("/chat#say"),
    }
}
