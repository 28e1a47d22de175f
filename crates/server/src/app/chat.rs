//! Chat: answers questions from stored data, and runs actions after confirmation.
//!
//! Conversations are in the store, so that any server can continue them. A proposal is removed there
//! before its command runs, so that it runs once even if two servers get the confirmation. Confirmed
//! commands go through the same use cases as all other requests, under the person's name and with
//! their permissions.

mod decision_preview;
mod forges;
mod model_parser;
mod replies;
mod stories;
mod talk;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tamma_chat::{
    ChatAction, ChatContext, ChatLesson, ChatTask, ConfirmError, Confirmed, Conversation, Intent,
    Interpretation, LessonDecision, MessageOutcome, RequestedChange, SavedConversation,
};
use tamma_core::actor::RequestInterface;
use tamma_core::format::{capitalize, humanize};
use tamma_core::ids::{Name, ProjectId, TaskId};
use tamma_core::knowledge::EntryStatus;
use tamma_core::task::Priority;
use tamma_core::task_loop::Timestamp;
use tamma_store::{ConversationRecord, KnowledgeFilter, PipelineFilter, TaskFilter};
use uuid::Uuid;

use self::model_parser::ParsedMessage;
use super::{App, Error, PageRequest, Principal};
use crate::clock;
use crate::dto::{
    BudgetGrant, ChatReply, KnowledgeDecision, NewChatMessage, NewTask, ProposedCommand,
    TaskAction, TaskCard,
};
use crate::problem::Problem;

/// Maximum number of tasks, and of lessons, that a message can refer to. Newest first.
const MAX_SUBJECTS: u32 = 200;

/// Maximum number of quotes that are searched for among all titles.
const MAX_QUOTES: usize = 3;

/// Maximum number of tasks that a quote can add.
const MAX_QUOTED_TASKS: u32 = 10;

/// Maximum number of items in a reply.
const MAX_LISTED: usize = 10;

/// Maximum number of messages and replies kept per conversation.
const MAX_MESSAGES: usize = 100;

/// Maximum number of tries, if another server handles a message of the same conversation.
const MAX_TRIES: usize = 5;

/// Maximum length of a message, in characters.
const MAX_MESSAGE_CHARS: usize = 4_000;

/// Reason recorded for actions that need one when the message has none.
const DEFAULT_REASON: &str = "requested in chat, no reason given";

/// State of a conversation, as it is stored.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct SavedChat {
    conversation: SavedConversation,
    last_task: Option<TaskId>,
    /// Project of the proposed task or pipeline.
    project: Option<ProjectId>,
}

/// Message or reply of a conversation, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChatMessage {
    /// Name of the person; `None` for replies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) by: Option<String>,
    pub(crate) at: Timestamp,
    /// Reply, or a message in the same form.
    pub(crate) reply: ChatReply,
}

impl App {
    /// Handles a message and returns the reply.
    pub(crate) async fn chat(
        &self,
        by: &Principal,
        new_message: NewChatMessage,
    ) -> Result<ChatReply, Problem> {
        if new_message.message.chars().count() > MAX_MESSAGE_CHARS {
            let detail = format!("The message is longer than {MAX_MESSAGE_CHARS} characters.");
            let hint = "Shorten it, or put the details into a task's description.";
            return Err(Error::invalid(detail, hint).into());
        }
        let own = ChatReply { lines: paragraphs(&new_message.message), ..ChatReply::default() };
        let own = ChatMessage { by: Some(by.to_string()), at: clock::now(), reply: own };
        let (mut record, outcome, context, parsed) = self.handle_message(by, &new_message).await?;
        let context = &context;
        let mut saved = chat_state(&record)?;
        let mut conversation = Conversation::restore(saved.conversation.clone(), context);
        let named = new_message.project.as_deref();
        let answered =
            self.answer_outcome(by, outcome, &conversation, context, &mut saved, named).await;
        if answered.is_err() {
            // An error ends the proposal, like every other answer.
            conversation = Conversation::default();
        }
        let reply = answered
            .map(|reply| {
                let note = parsed.note.or(reply.note);
                ChatReply { parsed_by: parsed.parser, note, ..reply }
            })
            .map_err(Problem::from);
        let shown = match &reply {
            Ok(reply) => reply.clone(),
            Err(Problem { detail, hint, .. }) => {
                let lines = std::iter::once(detail).chain(hint).cloned().collect();
                ChatReply { lines, ..ChatReply::default() }
            }
        };
        let theirs = ChatMessage { by: None, at: clock::now(), reply: shown };
        let state = SavedChat { conversation: conversation.save(), ..saved };
        record.state = to_value(&state)?;
        record.messages = append_messages(&record.messages, &[own, theirs])?;
        // If this fails, a later message has been handled in the meantime, and its state counts.
        self.store.save_conversation(&record).await.map_err(Error::from)?;
        reply
    }

    /// Reads a message in its conversation, and stores what it does to the proposal.
    async fn handle_message(
        &self,
        by: &Principal,
        new_message: &NewChatMessage,
    ) -> Result<HandledMessage, Error> {
        for _ in 0..MAX_TRIES {
            let mut record = match self.store.conversation(new_message.conversation).await? {
                Some(record) => record,
                None => ConversationRecord {
                    id: new_message.conversation,
                    person: by.name.clone(),
                    state: to_value(&SavedChat::default())?,
                    messages: Value::Array(Vec::new()),
                    revision: 0,
                },
            };
            if record.person != by.name {
                return Err(Error::Refused(
                    "This conversation belongs to someone else.".to_owned(),
                ));
            }
            let saved = chat_state(&record)?;
            let mut last_task = new_message.task.map(TaskId).or(saved.last_task);
            if let Some(task) = last_task {
                // A task that the person cannot read, or not any more, is no subject.
                last_task = match self.store.task_project(task).await {
                    Err(tamma_store::Error::NotFound { .. }) => None,
                    project => project.map(|_| Some(task))?,
                };
            }
            let context = self.load_context(last_task, &new_message.message).await?;
            let mut conversation = Conversation::restore(saved.conversation, &context);
            let mut parsed = if conversation.is_answer(&new_message.message, &context) {
                ParsedMessage::default()
            } else {
                self.parse_with_model(&new_message.message, &context).await
            };
            let understood = parsed.understood.take();
            let outcome =
                conversation.handle_interpreted(&new_message.message, &context, understood);
            let project = saved.project;
            let state = SavedChat { conversation: conversation.save(), last_task, project };
            record.state = to_value(&state)?;
            if self.store.save_conversation(&record).await? {
                record.revision += 1;
                return Ok((record, outcome, context, parsed));
            }
        }
        Err(Error::Refused("Another message of this conversation is being handled.".to_owned()))
    }

    /// Answers a message, or runs the command that it confirms.
    async fn answer_outcome(
        &self,
        by: &Principal,
        outcome: MessageOutcome,
        conversation: &Conversation,
        context: &ChatContext,
        saved: &mut SavedChat,
        named_project: Option<&str>,
    ) -> Result<ChatReply, Error> {
        Ok(match outcome {
            MessageOutcome::Confirmed(confirmed) => {
                self.execute(by, confirmed, context, saved.project).await?
            }
            MessageOutcome::Declined => {
                single_line_reply("decline", "Dismissed. Nothing was changed.")
            }
            MessageOutcome::Refused(reason) => {
                single_line_reply("refused", &capitalize(&format!("{reason}.")))
            }
            MessageOutcome::Interpreted(understood) => {
                saved.last_task = task_of_intent(&understood.intent).or(saved.last_task);
                let proposal = conversation.pending().map(|proposal| ProposedCommand {
                    command: proposal.command().to_string(),
                    digest: proposal.digest().to_string(),
                });
                let change = matches!(understood.intent, Intent::Change(_));
                let mut reply = self.answer_interpreted(by, &understood, context).await?;
                if let [only] = reply.tasks.as_slice() {
                    saved.last_task = Some(TaskId(only.task));
                }
                if let Intent::Change(RequestedChange::Add(_)) = &understood.intent {
                    let project = self.project_for_new_task(named_project, saved.last_task).await?;
                    reply.lines.insert(0, format!("New task in {}.", project.name));
                    saved.project = Some(project.id);
                }
                reply.proposal = proposal.filter(|_| change);
                reply
            }
        })
    }

    /// Returns the newest messages and replies of a person's conversation, oldest first.
    pub(crate) async fn chat_messages(
        &self,
        conversation: Uuid,
        by: &Name,
    ) -> Result<Vec<ChatMessage>, Error> {
        let record = self.store.conversation(conversation).await?;
        let Some(record) = record.filter(|record| record.person == *by) else {
            return Ok(Vec::new());
        };
        serde_json::from_value(record.messages).map_err(|error| unreadable(conversation, error))
    }

    /// Loads the tasks and lessons that a message can refer to.
    async fn load_context(
        &self,
        last: Option<TaskId>,
        message: &str,
    ) -> Result<ChatContext, Error> {
        let page = self
            .list_tasks(&TaskFilter::default(), &PageRequest { after: None, limit: MAX_SUBJECTS })
            .await?;
        let mut tasks = Vec::new();
        for (number, card) in (1..).zip(page.tasks) {
            tasks.push(self.chat_task(card, Some(number)).await?);
        }
        for card in self.older_tasks(last, message).await? {
            if tasks.iter().all(|task| task.id.0 != card.id) {
                tasks.push(self.chat_task(card, None).await?);
            }
        }
        let entries = self.store.list_knowledge(&KnowledgeFilter::default()).await?;
        let is_relevant = |it: &tamma_store::StoredEntry| {
            matches!(it.entry.status, EntryStatus::Pending | EntryStatus::Approved)
        };
        let mut entries: Vec<_> = entries.into_iter().filter(is_relevant).collect();
        // Pending entries first: most messages refer to them.
        entries.sort_by_key(|it| it.entry.status != EntryStatus::Pending);
        entries.truncate(MAX_SUBJECTS as usize);
        let lessons = entries.into_iter().map(|it| ChatLesson {
            id: it.entry.id,
            text: it.entry.text,
            status: it.entry.status,
        });
        let stories = self.pipeline_list(&PipelineFilter::default(), MAX_SUBJECTS).await?;
        let stories = stories.iter().map(stories::chat_story).collect();
        let lessons = lessons.collect();
        Ok(ChatContext { tasks, lessons, stories, last, proposed: false })
    }

    /// Returns tasks that a message can refer to although they are not among the newest: the last one,
    /// and those that it quotes.
    async fn older_tasks(
        &self,
        last: Option<TaskId>,
        message: &str,
    ) -> Result<Vec<TaskCard>, Error> {
        let mut cards = Vec::new();
        if let Some(task) = last {
            // One that cannot be read is no subject.
            cards.extend(self.task_card(task).await.ok());
        }
        for name in tamma_chat::quoted_names(message).into_iter().take(MAX_QUOTES) {
            let filter = TaskFilter { text: Some(name), ..TaskFilter::default() };
            let window = PageRequest { after: None, limit: MAX_QUOTED_TASKS };
            cards.extend(self.list_tasks(&filter, &window).await?.tasks);
        }
        Ok(cards)
    }

    /// Returns a task as a message can refer to it.
    async fn chat_task(&self, card: TaskCard, number: Option<u32>) -> Result<ChatTask, Error> {
        // Commands name the exact plan, commit and question.
        let task_loop =
            if card.waits_for_person { Some(self.task_loop(TaskId(card.id)).await?) } else { None };
        let task_loop = task_loop.as_ref();
        Ok(ChatTask {
            id: TaskId(card.id),
            number,
            title: card.title,
            state: card.state,
            paused: card.paused,
            answers: card.answers,
            plan: task_loop.and_then(|it| it.plan.as_ref()).map(|plan| plan.hash),
            commit: task_loop.and_then(|it| it.commit),
            question: task_loop.and_then(|it| it.open_question.as_ref()).map(|it| it.number),
        })
    }

    async fn answer_interpreted(
        &self,
        by: &Principal,
        understood: &Interpretation,
        context: &ChatContext,
    ) -> Result<ChatReply, Error> {
        let intent = &understood.intent;
        let reply = match intent {
            Intent::Status { task } => self.status_reply(*task).await?,
            Intent::List { selection, period, search } => {
                self.task_list_reply(*selection, *period, search.clone()).await?
            }
            Intent::Inbox => {
                let page = self.inbox(None, &PageRequest { after: None, limit: 50 }).await?;
                let waiting = self.waiting_pipelines(None).await?;
                let none = "You're all caught up.";
                let reply = replies::task_mentions_reply(none, "needs a decision", &page.tasks);
                stories::with_waiting(reply, &page.tasks, &waiting)
            }
            Intent::StoryStatus { pipeline } => self.story_status_reply(*pipeline).await?,
            Intent::Stories => self.stories_reply().await?,
            Intent::PullRequests => self.pull_requests_reply().await?,
            Intent::MergeQueue => self.merge_queue_reply().await?,
            Intent::Cost { task, period } => self.cost_reply(*task, *period).await?,
            Intent::Show { task, aspect } => self.show_reply(by, *task, *aspect).await?,
            Intent::Ask { task, topic } => self.topic_reply(by, *task, *topic).await?,
            Intent::Lessons { search, .. } => self.lessons_reply(search.as_deref()).await?,
            Intent::Help => replies::help_reply(),
            Intent::Talk => self.talk_reply(understood.reply.as_deref()).await?,
            Intent::Confirm | Intent::Decline => {
                single_line_reply("", "There is nothing to confirm.")
            }
            Intent::Change(change) => {
                let lines = Box::pin(self.decision_preview(by, change, context)).await?;
                ChatReply { lines, ..ChatReply::default() }
            }
            Intent::Unclear(unclear) => single_line_reply("", &unclear.question(context)),
        };
        Ok(ChatReply { intent: intent.name().to_owned(), ..reply })
    }

    /// Runs a confirmed command through the use cases.
    ///
    /// Plan and commit are taken from `context`, as of the confirmation. If either changes
    /// before the command runs, the command is refused.
    async fn execute(
        &self,
        by: &Principal,
        confirmed: Confirmed,
        context: &ChatContext,
        project: Option<ProjectId>,
    ) -> Result<ChatReply, Error> {
        let by = &by.clone().through(RequestInterface::Chat);
        let (change, command) = confirmed.into_parts();
        let line = match change {
            RequestedChange::Task { task, action } => {
                let listed = context.task(task);
                let plan = listed.and_then(|it| it.plan).map(|plan| plan.to_string());
                let commit = listed.and_then(|it| it.commit).map(|commit| commit.to_string());
                let action =
                    to_task_action(action, plan.unwrap_or_default(), commit.unwrap_or_default());
                let status = self.perform_action(task, by.clone(), action, None).await?;
                format!("Done. Task state: {}.", humanize(&status.state))
            }
            RequestedChange::Add(new) => {
                let added = self.add_task(by.clone(), new_task(new, project)).await?;
                format!("Done. Added task {}.", added.task.short)
            }
            RequestedChange::RunPipeline(draft) => {
                let view = self.start_pipeline(by, stories::new_run(draft)).await?;
                format!("Done. The pipeline of {} is {}.", view.story_id, view.state_text)
            }
            RequestedChange::Story { pipeline, action } => {
                let action = stories::pipeline_action(action);
                let view = self.act_on_pipeline(pipeline, by, action).await?;
                format!("Done. The pipeline of {} is {}.", view.story_id, view.state_text)
            }
            RequestedChange::Lesson { lesson, decision, reason } => {
                let status = decided_status(decision);
                let stored = self.store.knowledge_entry(lesson).await?;
                if context.lesson(lesson).is_none_or(|listed| listed.text != stored.entry.text) {
                    return Ok(single_line_reply(
                        "refused",
                        &capitalize(&format!("{}.", ConfirmError::Changed)),
                    ));
                }
                let revision = stored.revision;
                let decision =
                    KnowledgeDecision { status, revision, reason, ignore_warnings: false };
                self.decide_knowledge(&lesson.to_string(), decision, by).await?;
                format!("Done. The entry is now {status}.")
            }
        };
        let executed_command = Some(command.to_string());
        Ok(ChatReply { executed_command, ..single_line_reply("done", &line) })
    }
}

/// Conversation after a message, with the outcome and what it was based on.
type HandledMessage = (ConversationRecord, MessageOutcome, ChatContext, ParsedMessage);

fn chat_state(record: &ConversationRecord) -> Result<SavedChat, Error> {
    serde_json::from_value(record.state.clone()).map_err(|error| unreadable(record.id, error))
}

fn unreadable(id: Uuid, error: serde_json::Error) -> Error {
    Error::Corrupt { what: "conversation", key: id.to_string(), source: error.into() }
}

fn to_value(value: &impl Serialize) -> Result<Value, Error> {
    serde_json::to_value(value).map_err(|error| Error::Internal(error.into()))
}

/// Appends messages and drops the oldest ones.
fn append_messages(before: &Value, new: &[ChatMessage]) -> Result<Value, Error> {
    let mut messages = before.as_array().cloned().unwrap_or_default();
    for message in new {
        messages.push(to_value(message)?);
    }
    let from = messages.len().saturating_sub(MAX_MESSAGES);
    Ok(Value::Array(messages.split_off(from)))
}

/// Splits a message into its lines.
fn paragraphs(text: &str) -> Vec<String> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

fn to_task_action(action: ChatAction, plan: String, commit: String) -> TaskAction {
    let or_default = |reason: Option<String>| reason.unwrap_or_else(|| DEFAULT_REASON.to_owned());
    match action {
        ChatAction::Approve { reason } => TaskAction::Approve { plan, reason },
        ChatAction::Reject { reason } => TaskAction::Reject { plan, reason: or_default(reason) },
        ChatAction::Accept { reason } => TaskAction::Accept { commit, reason },
        ChatAction::Rework { reason } => {
            TaskAction::Rework { commit, comments: or_default(reason), lines: Vec::new() }
        }
        ChatAction::Override { reason } => TaskAction::Override { plan, reason },
        ChatAction::Modify { words } => TaskAction::Modify { note: words },
        ChatAction::Reply { words } => TaskAction::Reply { text: words },
        ChatAction::Pause => TaskAction::Pause {},
        ChatAction::Resume => TaskAction::Resume {},
        ChatAction::Cancel { reason } => TaskAction::Cancel { reason: or_default(reason) },
        ChatAction::Retry { grant } => TaskAction::Retry { grant: to_budget_grant(grant) },
        ChatAction::Continue { grant } => TaskAction::Continue { grant: to_budget_grant(grant) },
        ChatAction::RollBack { to, reason } => {
            TaskAction::RollBack { to, reason: or_default(reason) }
        }
        ChatAction::Skip { reason } => TaskAction::Skip { reason: or_default(reason) },
        ChatAction::Abandon { reason } => TaskAction::Abandon { reason: or_default(reason) },
        ChatAction::Acknowledge => TaskAction::Acknowledge {},
        ChatAction::Rate { stars, reason } => TaskAction::Rate { stars, reason },
        ChatAction::Convene { question } => TaskAction::Convene { question },
    }
}

/// Returns the status that a decision gives an entry.
fn decided_status(decision: LessonDecision) -> EntryStatus {
    match decision {
        LessonDecision::Approve => EntryStatus::Approved,
        LessonDecision::Reject => EntryStatus::Rejected,
        LessonDecision::Retire => EntryStatus::Retired,
    }
}

fn to_budget_grant(grant: tamma_core::budget::Grant) -> BudgetGrant {
    BudgetGrant { iterations: grant.iterations, usd: grant.usd, tokens: grant.tokens }
}

fn new_task(new: tamma_chat::TaskDraft, project: Option<ProjectId>) -> NewTask {
    NewTask {
        id: None,
        project: project.map(|project| project.to_string()),
        title: new.title,
        description: new.description.unwrap_or_default(),
        r#type: new.r#type,
        priority: new.priority.unwrap_or(Priority::Medium),
        acceptance_criteria: Vec::new(),
        labels: Vec::new(),
        depends_on: Vec::new(),
        suggested_agent: None,
        issue_url: None,
        issue_number: None,
        metadata: BTreeMap::new(),
        plan: None,
    }
}

/// Returns the task of a message. The next "it" refers to this task.
fn task_of_intent(intent: &Intent) -> Option<TaskId> {
    match intent {
        Intent::Status { task }
        | Intent::Show { task, .. }
        | Intent::Change(RequestedChange::Task { task, .. }) => Some(*task),
        Intent::Cost { task, .. } | Intent::Ask { task, .. } => *task,
        _ => None,
    }
}

fn single_line_reply(intent: &str, line: &str) -> ChatReply {
    ChatReply { intent: intent.to_owned(), lines: vec![line.to_owned()], ..ChatReply::default() }
}
