//! The chat, as a page.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use askama::Template;
use axum::extract::{Query, State};
use serde::Deserialize;
use tamma_core::ids::TaskId;
use uuid::Uuid;

use super::door::Visitor;
use super::fields::Fields;
use super::shell::{Link, Shell, When};
use super::{Hall, Oops, Page, render, see, words};
use crate::app::Error;
use crate::clock;
use crate::shape::{Reply, Said, short};

/// How many messages of a conversation are shown.
const SHOWN: usize = 100;

/// What was said, in this process.
#[derive(Clone, Default)]
pub(super) struct Rooms(Arc<Mutex<BTreeMap<String, Room>>>);

#[derive(Default)]
struct Room {
    conversation: Option<Uuid>,
    messages: Vec<Spoken>,
}

#[derive(Clone)]
struct Spoken {
    by: Option<String>,
    at: chrono::DateTime<chrono::Utc>,
    reply: Reply,
}

#[derive(Template)]
#[template(path = "chat.html")]
struct Chat {
    shell: Shell,
    live: String,
    understands: String,
    messages: Vec<Message>,
    examples: Vec<&'static str>,
    about: About,
}

struct About {
    id: String,
    title: String,
}

struct Message {
    number: usize,
    from: &'static str,
    who: String,
    at: When,
    lines: Vec<String>,
    tasks: Tasks,
    refs: Refs,
    proposal: Proposal,
}

struct Tasks {
    any: bool,
    list: Vec<Mentioned>,
}

struct Mentioned {
    id: Uuid,
    title: String,
    words: String,
}

struct Refs {
    any: bool,
    list: Vec<Link>,
}

#[derive(Default)]
struct Proposal {
    any: bool,
    open: bool,
    what: &'static str,
    command: String,
    digest: String,
    consequence: &'static str,
    settled: &'static str,
}

/// What it is about.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    task: Option<Uuid>,
}

pub(super) async fn page(
    State(hall): State<Hall>,
    visitor: Visitor,
    Query(wanted): Query<Wanted>,
) -> Page {
    let shell = Shell::at(&hall, &visitor, "chat").await?;
    let about = match wanted.task {
        Some(id) => {
            let card = hall.app.card(TaskId(id)).await;
            let card = card.map_err(|error| Oops::new(Shell::of(&visitor), error))?;
            About { id: id.to_string(), title: card.title }
        }
        None => About { id: String::new(), title: String::new() },
    };
    let spoken = {
        let rooms = hall.rooms.0.lock().unwrap_or_else(PoisonError::into_inner);
        rooms.get(&visitor.csrf()).map(|room| room.messages.clone()).unwrap_or_default()
    };
    let model = hall.app.chat_model().await;
    let model = model.map_err(|error| Oops::new(Shell::of(&visitor), error))?;
    let last = spoken.len();
    let messages = spoken.iter().enumerate().map(|(at, it)| message(at, it, at + 1 == last));
    render(&Chat {
        shell,
        live: "/live/board".to_owned(),
        understands: match model {
            Some(model) => format!("read by {model}, and by a small grammar where it is away"),
            None => "read by a small grammar: short, plain sentences work best".to_owned(),
        },
        messages: messages.collect(),
        examples: vec![
            "What waits for me?",
            "What failed this week?",
            "How much did we spend today?",
            "What did we learn this week?",
        ],
        about,
    })
}

fn message(number: usize, it: &Spoken, is_last: bool) -> Message {
    let tasks: Vec<_> = it
        .reply
        .tasks
        .iter()
        .map(|one| Mentioned { id: one.task, title: one.title.clone(), words: one.words.clone() })
        .collect();
    let refs: Vec<_> = it
        .reply
        .references
        .iter()
        .map(|one| {
            let href = format!("/tasks/{}/events#e{}", one.task, one.event);
            Link::new(href, format!("{} event {}", short(one.task), one.event))
        })
        .collect();
    let proposal = match (&it.reply.proposal, &it.reply.done) {
        (Some(proposed), _) => Proposal {
            any: true,
            open: is_last,
            what: "The exact command:",
            command: proposed.command.clone(),
            digest: proposed.digest.clone(),
            consequence: "Done in your name, with your rights, and written in the log.",
            settled: "It no longer waits.",
        },
        (None, Some(command)) => Proposal {
            any: true,
            what: "What was done:",
            command: command.clone(),
            settled: "Done.",
            ..Proposal::default()
        },
        (None, None) => Proposal::default(),
    };
    Message {
        number,
        from: if it.by.is_some() { "me" } else { "tamma" },
        who: it.by.clone().unwrap_or_else(|| "Tamma".to_owned()),
        at: When { text: words::moment(it.at, clock::now()), ..When::clock(it.at) },
        lines: it.reply.lines.iter().chain(&it.reply.note).cloned().collect(),
        tasks: Tasks { any: !tasks.is_empty(), list: tasks },
        refs: Refs { any: !refs.is_empty(), list: refs },
        proposal,
    }
}

/// Takes a message.
pub(super) async fn say(State(hall): State<Hall>, visitor: Visitor, fields: Fields) -> Page {
    let task = fields.given("task").and_then(|task| task.parse().ok());
    speak(&hall, &visitor, fields.text("message"), task).await
}

/// Takes a yes or a no to what is proposed.
pub(super) async fn confirm(State(hall): State<Hall>, visitor: Visitor, fields: Fields) -> Page {
    // A yes names what it is for, so that it is for nothing else.
    let message = match fields.text("answer").as_str() {
        "yes" => fields.text("proposal"),
        _ => "no".to_owned(),
    };
    speak(&hall, &visitor, message, None).await
}

async fn speak(hall: &Hall, visitor: &Visitor, message: String, task: Option<Uuid>) -> Page {
    let oops = |error: Error| Oops::new(Shell::of(visitor), error).keeping(message.clone());
    if message.is_empty() {
        return see("/chat");
    }
    let by = visitor.name().map_err(oops)?;
    let key = visitor.csrf();
    let conversation = {
        let mut rooms = hall.rooms.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = rooms.entry(key.clone()).or_default();
        *room.conversation.get_or_insert_with(clock::new_id)
    };
    let said = Said { conversation, message: message.clone(), task };
    let reply = match hall.app.chat(&by, said).await {
        Ok(reply) => reply,
        // What cannot be done is said in the conversation.
        Err(error) => {
            let problem = crate::problem::Problem::from(error);
            let lines = std::iter::once(problem.detail).chain(problem.what_to_do).collect();
            Reply { lines, ..Reply::default() }
        }
    };
    let now = clock::now();
    let mine = Reply { lines: words::paragraphs(&message), ..Reply::default() };
    let mut rooms = hall.rooms.0.lock().unwrap_or_else(PoisonError::into_inner);
    let room = rooms.entry(key).or_default();
    room.messages.push(Spoken { by: Some(by.to_string()), at: now, reply: mine });
    room.messages.push(Spoken { by: None, at: now, reply });
    let from = room.messages.len().saturating_sub(SHOWN);
    room.messages.drain(..from);
    drop(rooms);
    match task {
        Some(task) => see(&format!("/chat?task={task}#say")),
        None => see("/chat#say"),
    }
}
