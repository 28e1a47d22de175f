//! Chat page.

use askama::Template;
use axum::extract::Query;
use serde::Deserialize;
use tamma_core::ids::{Digest, TaskId};
use uuid::Uuid;

use super::form_fields::FormFields;
use super::layout::{DisplayTime, Layout, Link};
use super::session::Session;
use super::{PageError, PageResult, WebState, redirect, render};
use crate::app::{ChatMessage, Error};
use crate::dto::{NewChatMessage, short_id};

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
    state: WebState,
    session: Session,
    Query(query): Query<ChatQuery>,
) -> PageResult {
    let layout = Layout::for_page(&state, &session, "chat").await?;
    let topic = match query.task {
        Some(id) => {
            let card = state.app.task_card(TaskId(id)).await;
            let card =
                card.map_err(|error| PageError::new(Layout::for_session(&session), error))?;
            ChatTopic { id: id.to_string(), title: card.title }
        }
        None => ChatTopic { id: String::new(), title: String::new() },
    };
    let stored = match session.acting_person() {
        Ok(by) => state.app.chat_messages(conversation_id(&session), &by.name).await,
        Err(_) => Ok(Vec::new()),
    };
    let stored = stored.map_err(|error| PageError::new(Layout::for_session(&session), error))?;
    let model = state.app.chat_model();
    let last = stored.len();
    let messages = stored.iter().enumerate().map(|(at, it)| message_view(at, it, at + 1 == last));
    render(&ChatPage {
        layout,
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
        topic,
    })
}

fn message_view(number: usize, it: &ChatMessage, is_last: bool) -> MessageView {
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
    state: WebState,
    session: Session,
    fields: FormFields,
) -> PageResult {
    let task = fields.non_empty("task").and_then(|task| task.parse().ok());
    Box::pin(post_message(&state, &session, fields.text("message"), task)).await
}

/// Handles the answer to a proposed action.
pub(super) async fn answer_proposal(
    state: WebState,
    session: Session,
    fields: FormFields,
) -> PageResult {
    // The confirmation carries the proposal's digest, so that it cannot confirm another one.
    let message = match fields.text("answer").as_str() {
        "yes" => fields.text("proposal"),
        _ => "no".to_owned(),
    };
    Box::pin(post_message(&state, &session, message, None)).await
}

async fn post_message(
    state: &WebState,
    session: &Session,
    message: String,
    task: Option<Uuid>,
) -> PageResult {
    let page_error = |error: Error| {
        PageError::new(Layout::for_session(session), error).with_unsent_text(message.clone())
    };
    if message.is_empty() {
        return redirect("/chat");
    }
    let by = session.acting_person().map_err(page_error)?;
    let conversation = conversation_id(session);
    let new_message =
        NewChatMessage { conversation, message: message.clone(), task, project: None };
    let by_name = by.name.clone();
    if let Err(problem) = state.app.chat(&by, new_message).await {
        // The conversation shows the problem as a reply, unless it could not be stored.
        let messages = state.app.chat_messages(conversation, &by_name).await.map_err(page_error)?;
        let last = messages.last().and_then(|message| message.reply.lines.first());
        if last != Some(&problem.detail) {
            let error = PageError::new(Layout::for_session(session), problem);
            return Err(error.with_unsent_text(message.clone()));
        }
    }
    match task {
        Some(task) => redirect(&format!("/chat?task={task}#say")),
        None => redirect("/chat#say"),
    }
}

/// Returns the conversation of a browser session. It is the same on every server.
fn conversation_id(session: &Session) -> Uuid {
    let digest = Digest::of(format!("chat {}", session.csrf_token()).as_bytes()).to_string();
    let digits = digest.get(..32).unwrap_or_default();
    Uuid::try_parse(digits).unwrap_or_default()
}
