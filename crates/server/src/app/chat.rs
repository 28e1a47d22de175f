//! Talking with people: what they say is understood, looked up, or proposed; and done when they say yes.
//!
//! What a conversation waits for is kept in this process and nowhere else. After a restart nothing
//! waits for a yes any more, which is the safe side. What is carried out goes through the same use
//! cases as everything else, in the person's name and with their rights.

mod reader;
mod record;

use std::collections::BTreeMap;
use std::sync::Arc;

use tamma_chat::{
    Act, Change, Confirmed, Context, Conversation, Decision, Heard, Intent, Lesson, Subject,
    Unconfirmed,
};
use tamma_core::ids::{KnowledgeId, Name, ProjectId, TaskId};
use tamma_core::knowledge::{Scope, Status};
use tamma_core::task::Priority;
use tamma_store::{Filter, KnowledgeFilter};
use tokio::sync::Mutex;
use uuid::Uuid;

use self::reader::Read;
use super::{App, By, Error, Window};
use crate::shape::{Action, Grant, KnowledgeDecision, NewTask, Proposed, Reply, Said};

/// How many tasks and lessons can be spoken of: the newest.
const KNOWN: u32 = 200;

/// How many are listed.
const LISTED: usize = 10;

/// How many conversations are kept; the oldest are forgotten.
const CONVERSATIONS: usize = 1_000;

/// How long a message may be.
const LONGEST: usize = 4_000;

/// What is written where a reason is needed and none was given.
const NO_REASON: &str = "said in the chat, without a reason";

/// The conversations of this process. Each has a lock of its own: a model that is slow for one person
/// keeps nobody else waiting.
#[derive(Clone, Default)]
pub(crate) struct Chats(Arc<Mutex<BTreeMap<Uuid, Arc<Mutex<Talk>>>>>);

#[derive(Default)]
struct Talk {
    conversation: Conversation,
    last: Option<TaskId>,
    /// Whose it is: nobody says yes for another.
    person: Option<Name>,
}

impl Chats {
    async fn talk(&self, id: Uuid) -> Arc<Mutex<Talk>> {
        let mut talks = self.0.lock().await;
        if talks.len() >= CONVERSATIONS
            && !talks.contains_key(&id)
            && let Some(oldest) = talks.keys().next().copied()
        {
            talks.remove(&oldest);
        }
        talks.entry(id).or_default().clone()
    }
}

/// What can be spoken of, and of which project each task is.
struct Known {
    context: Context,
    projects: BTreeMap<TaskId, ProjectId>,
    scopes: BTreeMap<KnowledgeId, Scope>,
}

impl App {
    /// Takes a message, and answers it.
    pub(crate) async fn chat(&self, by: &By, said: Said) -> Result<Reply, Error> {
        if said.message.chars().count() > LONGEST {
            return Err(Error::invalid(
                format!("A message has at most {LONGEST} characters."),
                "Say it in fewer words, or add it to a task's description.",
            ));
        }
        let talk = self.chats.talk(said.conversation).await;
        let mut talk = talk.lock().await;
        if talk.person.get_or_insert_with(|| by.name.clone()) != &by.name {
            return Err(Error::Refused("This conversation is somebody else's.".to_owned()));
        }
        if let Some(task) = said.task {
            talk.last = Some(TaskId(task));
        }
        let known = self.spoken_of(talk.last).await?;
        let context = &known.context;
        let read = if talk.conversation.is_answer(&said.message, context) {
            Read::default()
        } else {
            self.read_by_model(&said.message, &known).await?
        };
        let reply = match talk.conversation.hear_read(&said.message, context, read.understood) {
            Heard::Confirmed(confirmed) => self.carry_out(by, confirmed, context).await?,
            Heard::Declined => says("decline", "Then nothing is done."),
            Heard::Refused(why) => says("refused", &capital(&format!("{why}."))),
            Heard::Understood(understood) => {
                talk.last = about(&understood.intent).or(talk.last);
                let proposal = talk.conversation.pending().map(|proposal| Proposed {
                    command: proposal.command().to_string(),
                    digest: proposal.digest().to_string(),
                });
                let change = matches!(understood.intent, Intent::Change(_));
                let mut reply = self.answer(&understood.intent, context).await?;
                if let [only] = reply.tasks.as_slice() {
                    talk.last = Some(TaskId(only.task));
                }
                reply.proposal = proposal.filter(|_| change);
                reply
            }
        };
        Ok(Reply { read_by: read.by, note: read.note, ..reply })
    }

    /// What can be spoken of now.
    async fn spoken_of(&self, last: Option<TaskId>) -> Result<Known, Error> {
        let page = self.tasks(&Filter::default(), &Window { after: None, limit: KNOWN }).await?;
        let mut projects = BTreeMap::new();
        let mut tasks = Vec::new();
        for (number, card) in (1..).zip(page.tasks) {
            projects.insert(TaskId(card.id), ProjectId(card.project));
            // What is decided about is named exactly, so it has to be known exactly.
            let machine = if card.waits_for_person {
                Some(self.machine(TaskId(card.id)).await?)
            } else {
                None
            };
            let machine = machine.as_ref();
            tasks.push(Subject {
                id: TaskId(card.id),
                number: Some(number),
                title: card.title,
                state: card.state,
                paused: card.paused,
                answers: card.answers,
                plan: machine.and_then(|it| it.plan.as_ref()).map(|plan| plan.hash),
                commit: machine.and_then(|it| it.commit),
                question: machine.and_then(|it| it.question.as_ref()).map(|it| it.number),
            });
        }
        let known = self.store.all_knowledge(&KnowledgeFilter::default()).await?;
        let spoken_of =
            |it: &tamma_store::Known| matches!(it.entry.status, Status::Pending | Status::Approved);
        let mut known: Vec<_> = known.into_iter().filter(spoken_of).collect();
        // Those that wait come first, since they are what is mostly spoken of.
        known.sort_by_key(|it| it.entry.status != Status::Pending);
        known.truncate(KNOWN as usize);
        let scopes = known.iter().map(|it| (it.entry.id, it.entry.scope)).collect();
        let lessons = known.into_iter().map(|known| Lesson {
            id: known.entry.id,
            text: known.entry.text,
            status: known.entry.status,
        });
        let context = Context { tasks, lessons: lessons.collect(), last, proposed: false };
        Ok(Known { context, projects, scopes })
    }

    async fn answer(&self, intent: &Intent, now: &Context) -> Result<Reply, Error> {
        let reply = match intent {
            Intent::Status { task } => self.how_it_stands(*task).await?,
            Intent::List { which, period, search } => {
                self.listed(*which, *period, search.clone()).await?
            }
            Intent::Inbox => {
                let page = self.inbox(None, &Window { after: None, limit: 50 }).await?;
                record::mentions("Nothing waits for you.", "waits for a person", &page.tasks)
            }
            Intent::Cost { task, period } => self.cost(*task, *period).await?,
            Intent::Show { task, aspect } => self.piece(*task, *aspect).await?,
            Intent::Ask { task, about } => self.what_the_record_says(*task, *about).await?,
            Intent::Lessons { search, .. } => self.lessons(search.as_deref()).await?,
            Intent::Help => record::help(),
            Intent::Talk => says("", "I am here when you want to know or do something."),
            Intent::Confirm | Intent::Decline => says("", "Nothing waits for a yes."),
            Intent::Change(change) => record::proposal(change, now),
            Intent::Unclear(unclear) => says("", &unclear.question(now)),
        };
        Ok(Reply { intent: intent.name().to_owned(), ..reply })
    }

    /// Does what a person has said yes to, through the same use cases as everything else.
    ///
    /// `now` is what the yes was held against: what is decided about is named from there, so that
    /// what changes in between is refused rather than approved.
    async fn carry_out(
        &self,
        by: &By,
        confirmed: Confirmed,
        now: &Context,
    ) -> Result<Reply, Error> {
        let (change, command) = confirmed.into_parts();
        let line = match change {
            Change::Task { task, act } => {
                let seen = now.task(task);
                let plan = seen.and_then(|it| it.plan).map(|plan| plan.to_string());
                let commit = seen.and_then(|it| it.commit).map(|commit| commit.to_string());
                let action = action(act, plan.unwrap_or_default(), commit.unwrap_or_default());
                let standing = self.ask(task, by.clone(), action, None).await?;
                format!(
                    "Done. The task is now in {}.",
                    standing.state.to_string().replace('_', " ")
                )
            }
            Change::Add(new) => {
                let added = self.add(by.clone(), new_task(new)).await?;
                format!("Done. It is task {}.", added.task.short)
            }
            Change::Lesson { lesson, decision, reason } => {
                let status = match decision {
                    Decision::Approve => Status::Approved,
                    Decision::Reject => Status::Rejected,
                    Decision::Retire => Status::Retired,
                };
                let known = self.store.knowledge(lesson).await?;
                if now.lesson(lesson).is_none_or(|seen| seen.text != known.entry.text) {
                    return Ok(says("refused", &capital(&format!("{}.", Unconfirmed::Changed))));
                }
                let revision = known.revision;
                let decision = KnowledgeDecision { status, revision, reason, despite: false };
                self.decide_knowledge(&lesson.to_string(), decision, by).await?;
                format!("Done. It is {status} now.")
            }
        };
        let done = Some(command.to_string());
        Ok(Reply { done, ..says("done", &line) })
    }
}

fn action(act: Act, plan: String, commit: String) -> Action {
    let why = |reason: Option<String>| reason.unwrap_or_else(|| NO_REASON.to_owned());
    match act {
        Act::Approve { reason } => Action::Approve { plan, reason },
        Act::Reject { reason } => Action::Reject { plan, reason: why(reason) },
        Act::Accept { reason } => Action::Accept { commit, reason },
        Act::Rework { reason } => {
            Action::Rework { commit, comments: why(reason), lines: Vec::new() }
        }
        Act::Override { reason } => Action::Override { plan, reason },
        Act::Modify { words } => Action::Modify { note: words },
        Act::Reply { words } => Action::Reply { text: words },
        Act::Pause => Action::Pause {},
        Act::Resume => Action::Resume {},
        Act::Cancel { reason } => Action::Cancel { reason: why(reason) },
        Act::Retry { grant } => Action::Retry { grant: granted(grant) },
        Act::Continue { grant } => Action::Continue { grant: granted(grant) },
        Act::RollBack { to, reason } => Action::RollBack { to, reason: why(reason) },
        Act::Skip { reason } => Action::Skip { reason: why(reason) },
        Act::Abandon { reason } => Action::Abandon { reason: why(reason) },
        Act::Acknowledge => Action::Acknowledge {},
    }
}

fn granted(grant: tamma_core::budget::Grant) -> Grant {
    Grant { iterations: grant.iterations, usd: grant.usd, tokens: grant.tokens }
}

fn new_task(new: tamma_chat::NewTask) -> NewTask {
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

/// The task that a message was about, which "it" will be.
fn about(intent: &Intent) -> Option<TaskId> {
    match intent {
        Intent::Status { task }
        | Intent::Show { task, .. }
        | Intent::Change(Change::Task { task, .. }) => Some(*task),
        Intent::Cost { task, .. } | Intent::Ask { task, .. } => *task,
        _ => None,
    }
}

fn says(intent: &str, line: &str) -> Reply {
    Reply { intent: intent.to_owned(), lines: vec![line.to_owned()], ..Reply::default() }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
