//! Chat: answers questions from stored data, and runs actions after confirmation.
//!
//! Conversations live in this process only, so a restart discards unconfirmed proposals. Confirmed
//! commands go through the same use cases as all other requests, under the person's name and with
//! their permissions.

mod model_parser;
mod replies;

use std::collections::BTreeMap;
use std::sync::Arc;

use tamma_chat::{
    ChatAction, ChatContext, ChatLesson, ChatTask, ConfirmError, Confirmed, Conversation, Intent,
    LessonDecision, MessageOutcome, RequestedChange,
};
use tamma_core::format::{capitalize, humanize};
use tamma_core::ids::{KnowledgeId, Name, ProjectId, TaskId};
use tamma_core::knowledge::{EntryScope, EntryStatus};
use tamma_core::task::Priority;
use tamma_store::{KnowledgeFilter, TaskFilter};
use tokio::sync::Mutex;
use uuid::Uuid;

use self::model_parser::ParsedMessage;
use super::{App, Error, PageRequest, Principal};
use crate::dto::{
    BudgetGrant, ChatReply, KnowledgeDecision, NewChatMessage, NewTask, ProposedCommand, TaskAction,
};

/// Maximum number of tasks, and of lessons, that a message can refer to. Newest first.
const MAX_SUBJECTS: u32 = 200;

/// Maximum number of items in a reply.
const MAX_LISTED: usize = 10;

/// Maximum number of open conversations. The oldest is dropped first.
const MAX_CONVERSATIONS: usize = 1_000;

/// Maximum length of a message, in characters.
const MAX_MESSAGE_CHARS: usize = 4_000;

/// Reason recorded for actions that need one when the message has none.
const DEFAULT_REASON: &str = "requested in chat, no reason given";

/// Conversations of this process. Each has its own lock, so a slow model call blocks only its own
/// conversation.
#[derive(Clone, Default)]
pub(crate) struct Conversations(Arc<Mutex<BTreeMap<Uuid, Arc<Mutex<ChatSession>>>>>);

#[derive(Default)]
struct ChatSession {
    conversation: Conversation,
    last_task: Option<TaskId>,
    /// Owner of the conversation. Other people cannot confirm its proposals.
    person: Option<Name>,
}

impl Conversations {
    async fn session(&self, id: Uuid) -> Arc<Mutex<ChatSession>> {
        let mut sessions = self.0.lock().await;
        if sessions.len() >= MAX_CONVERSATIONS
            && !sessions.contains_key(&id)
            && let Some(oldest) = sessions.keys().next().copied()
        {
            sessions.remove(&oldest);
        }
        sessions.entry(id).or_default().clone()
    }
}

/// Tasks and lessons that a message can refer to, with the project of each task.
struct ChatSubjects {
    context: ChatContext,
    projects: BTreeMap<TaskId, ProjectId>,
    scopes: BTreeMap<KnowledgeId, EntryScope>,
}

impl App {
    /// Handles a message and returns the reply.
    pub(crate) async fn chat(
        &self,
        by: &Principal,
        new_message: NewChatMessage,
    ) -> Result<ChatReply, Error> {
        if new_message.message.chars().count() > MAX_MESSAGE_CHARS {
            return Err(Error::invalid(
                format!("The message is longer than {MAX_MESSAGE_CHARS} characters."),
                "Shorten it, or put the details into a task's description.",
            ));
        }
        let session = self.conversations.session(new_message.conversation).await;
        let mut session = session.lock().await;
        if session.person.get_or_insert_with(|| by.name.clone()) != &by.name {
            return Err(Error::Refused("This conversation belongs to someone else.".to_owned()));
        }
        if let Some(task) = new_message.task {
            session.last_task = Some(TaskId(task));
        }
        let subjects = self.load_subjects(session.last_task).await?;
        let context = &subjects.context;
        let parsed = if session.conversation.is_answer(&new_message.message, context) {
            ParsedMessage::default()
        } else {
            self.parse_with_model(&new_message.message, &subjects).await?
        };
        let reply = match session.conversation.handle_interpreted(
            &new_message.message,
            context,
            parsed.understood,
        ) {
            MessageOutcome::Confirmed(confirmed) => self.execute(by, confirmed, context).await?,
            MessageOutcome::Declined => {
                single_line_reply("decline", "Dismissed. Nothing was changed.")
            }
            MessageOutcome::Refused(reason) => {
                single_line_reply("refused", &capitalize(&format!("{reason}.")))
            }
            MessageOutcome::Interpreted(understood) => {
                session.last_task = task_of_intent(&understood.intent).or(session.last_task);
                let proposal = session.conversation.pending().map(|proposal| ProposedCommand {
                    command: proposal.command().to_string(),
                    digest: proposal.digest().to_string(),
                });
                let change = matches!(understood.intent, Intent::Change(_));
                let mut reply = self.answer_intent(&understood.intent, context).await?;
                if let [only] = reply.tasks.as_slice() {
                    session.last_task = Some(TaskId(only.task));
                }
                reply.proposal = proposal.filter(|_| change);
                reply
            }
        };
        Ok(ChatReply { parsed_by: parsed.parser, note: parsed.note, ..reply })
    }

    /// Loads the tasks and lessons that a message can refer to.
    async fn load_subjects(&self, last: Option<TaskId>) -> Result<ChatSubjects, Error> {
        let page = self
            .list_tasks(&TaskFilter::default(), &PageRequest { after: None, limit: MAX_SUBJECTS })
            .await?;
        let mut projects = BTreeMap::new();
        let mut tasks = Vec::new();
        for (number, card) in (1..).zip(page.tasks) {
            projects.insert(TaskId(card.id), ProjectId(card.project));
            // Commands name the exact plan, commit and question.
            let task_loop = if card.waits_for_person {
                Some(self.task_loop(TaskId(card.id)).await?)
            } else {
                None
            };
            let task_loop = task_loop.as_ref();
            tasks.push(ChatTask {
                id: TaskId(card.id),
                number: Some(number),
                title: card.title,
                state: card.state,
                paused: card.paused,
                answers: card.answers,
                plan: task_loop.and_then(|it| it.plan.as_ref()).map(|plan| plan.hash),
                commit: task_loop.and_then(|it| it.commit),
                question: task_loop.and_then(|it| it.open_question.as_ref()).map(|it| it.number),
            });
        }
        let entries = self.store.list_knowledge(&KnowledgeFilter::default()).await?;
        let is_relevant = |it: &tamma_store::StoredEntry| {
            matches!(it.entry.status, EntryStatus::Pending | EntryStatus::Approved)
        };
        let mut entries: Vec<_> = entries.into_iter().filter(is_relevant).collect();
        // Pending entries first: most messages refer to them.
        entries.sort_by_key(|it| it.entry.status != EntryStatus::Pending);
        entries.truncate(MAX_SUBJECTS as usize);
        let scopes = entries.iter().map(|it| (it.entry.id, it.entry.scope)).collect();
        let lessons = entries.into_iter().map(|it| ChatLesson {
            id: it.entry.id,
            text: it.entry.text,
            status: it.entry.status,
        });
        let context = ChatContext { tasks, lessons: lessons.collect(), last, proposed: false };
        Ok(ChatSubjects { context, projects, scopes })
    }

    async fn answer_intent(
        &self,
        intent: &Intent,
        context: &ChatContext,
    ) -> Result<ChatReply, Error> {
        let reply = match intent {
            Intent::Status { task } => self.status_reply(*task).await?,
            Intent::List { selection, period, search } => {
                self.task_list_reply(*selection, *period, search.clone()).await?
            }
            Intent::Inbox => {
                let page = self.inbox(None, &PageRequest { after: None, limit: 50 }).await?;
                replies::task_mentions_reply(
                    "You're all caught up.",
                    "needs a decision",
                    &page.tasks,
                )
            }
            Intent::Cost { task, period } => self.cost_reply(*task, *period).await?,
            Intent::Show { task, aspect } => self.show_reply(*task, *aspect).await?,
            Intent::Ask { task, topic } => self.topic_reply(*task, *topic).await?,
            Intent::Lessons { search, .. } => self.lessons_reply(search.as_deref()).await?,
            Intent::Help => replies::help_reply(),
            Intent::Talk => single_line_reply("", "Ask about a task, or request an action."),
            Intent::Confirm | Intent::Decline => {
                single_line_reply("", "There is nothing to confirm.")
            }
            Intent::Change(change) => replies::proposal_reply(change, context),
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
    ) -> Result<ChatReply, Error> {
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
                let added = self.add_task(by.clone(), new_task(new)).await?;
                format!("Done. Added task {}.", added.task.short)
            }
            RequestedChange::Lesson { lesson, decision, reason } => {
                let status = match decision {
                    LessonDecision::Approve => EntryStatus::Approved,
                    LessonDecision::Reject => EntryStatus::Rejected,
                    LessonDecision::Retire => EntryStatus::Retired,
                };
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
    }
}

fn to_budget_grant(grant: tamma_core::budget::Grant) -> BudgetGrant {
    BudgetGrant { iterations: grant.iterations, usd: grant.usd, tokens: grant.tokens }
}

fn new_task(new: tamma_chat::TaskDraft) -> NewTask {
    NewTask {
        id: None,
        project: None,
        title: new.title,
        description: new.description.unwrap_or_default(),
        r#type: new.r#type,
        priority: new.priority.unwrap_or(Priority::Medium),
        acceptance_criteria: Vec::new(),
        labels: Vec::new(),
        depends_on: Vec::new(),
        suggested_agent: None,
        issue_url: None,
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
