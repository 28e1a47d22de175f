//! Agents: one run of a coding agent, from its start to the certainty that it is gone.
//!
//! An agent is data: a program, its arguments, its environment and its files, as templates. It is
//! driven over the Agent Client Protocol, which only one folder here knows. How a run ended is told
//! apart ([`RunEnd`]), because a crash says nothing about the change; what the gateway saw stands over
//! what the agent says of itself. Retrying is the business of the task's machine, and only a
//! submission that cannot be taken is asked for again here.

mod acp;
mod prepare;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tamma_core::budget::Limit;
use tamma_core::cost::{Cost, Price, Tokens, Usage, Usd};
use tamma_core::failure::{Failure, FailureKind};
use tamma_core::ids::{Name, Reason};
use tamma_core::rules::{AgentRules, SessionModes};
use tamma_core::task_loop::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::confine::Cage;
use crate::desk::{Desk, Question, Search};
use crate::gateway::{Bound, Door, Event, Gateway, ModelCall, Upstream, Visitor};
use crate::output::Tail;
use crate::permission::{Ask, Policy, Ruling};
use crate::plain;
use crate::process::{self, Group, Launch, Record, Records, RunId};
use crate::secret::Redactor;
use crate::submission::{Known, Submission};

/// How much of what an agent complains about is kept.
const STDERR: usize = 16 * 1024;

/// A configured agent. What it is given are templates, filled in for every run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Agent {
    /// The program: a path, or a name to be looked for in its `PATH`.
    pub command: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its variables. Beside them and `inherited` it has none, so that no key of ours is there.
    pub env: BTreeMap<String, String>,
    /// Variables of the worker that it gets as they are.
    pub inherited: BTreeMap<String, String>,
    /// Files below the home of a run through the gateway.
    pub files: BTreeMap<String, String>,
    /// Its own session modes.
    pub modes: SessionModes,
}

impl Agent {
    /// The agent of the rules, with what it inherits out of an environment.
    pub fn of(rules: &AgentRules, environment: &BTreeMap<String, String>) -> Self {
        let pair = |name: &String| Some((name.clone(), environment.get(name)?.clone()));
        Self {
            command: rules.command.clone().into(),
            args: rules.args.clone(),
            env: rules.env.clone(),
            inherited: rules.inherit.iter().filter_map(pair).collect(),
            files: rules.files.clone(),
            modes: rules.modes.clone(),
        }
    }
}

/// What a run is for. It decides what the agent may do and what it hands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum Mode {
    /// To write a plan. It may only look.
    Plan,
    /// To change the files.
    Implement,
    /// To judge a change. It may only look.
    Validate,
    /// To say as a member of the council what is wrong. It may only look.
    Advise,
    /// To conclude as its chair. It may only look.
    Conclude,
    /// To say what a task has taught. There is nothing to look at but what it is told.
    Learn,
}

impl Mode {
    /// Whether a run of it may only look.
    pub fn looks(self) -> bool {
        self != Self::Implement
    }
}

/// How a run reaches its model and our tools.
#[derive(Clone)]
pub struct Access {
    /// The gateway.
    pub gateway: Gateway,
    /// Whom it calls. Without one the agent is signed in by itself: its models are called past the
    /// gateway, with the worker's home, and only our tools are behind it.
    pub upstream: Option<Upstream>,
    /// What models cost.
    pub prices: BTreeMap<String, Price>,
    /// What may be spent, and what is.
    pub bounds: Vec<Bound>,
    /// At how much of a limit people are warned.
    pub warn_percent: u8,
}

/// What an agent is to do, and within what.
#[derive(Clone)]
pub struct RunOrder {
    /// Which piece of work it is.
    pub run: RunId,
    /// The time it is.
    pub at: Timestamp,
    /// The worktree.
    pub workspace: PathBuf,
    /// What is to be done. How to hand in is added here.
    pub prompt: String,
    /// What it is for.
    pub mode: Mode,
    /// How long it may take.
    pub time_limit: Duration,
    /// What it may spend, as far as the agent says what it spends. A run through the gateway is held
    /// by the bounds of its [`Access`].
    pub allowance: Limit,
    /// What it may do when it asks.
    pub policy: Policy,
    /// Paths that it may not change and commands that it may not run, for the agent's own rules.
    pub protected: Vec<String>,
    /// See `protected`.
    pub forbidden: Vec<String>,
    /// Commands that a person decides about, for the rules of an agent that asks for nothing else.
    pub asked: Vec<String>,
    /// The model, in the agent's own words. Without one, or with `default`, the agent chooses.
    pub model: Option<String>,
    /// The session of an earlier run to go on with, if the agent can.
    pub resume: Option<String>,
    /// A folder of the run's own. It is the home of a run through the gateway.
    pub home: PathBuf,
    /// How it reaches its model and our tools. Without it there are no tools, and it is signed in.
    pub access: Option<Access>,
    /// Searches what was learned, for the agent.
    pub search: Search,
    /// Says what a lesson may point at.
    pub evidence: Known,
    /// What confines it. Without one it can do whatever we can.
    pub cage: Option<Cage>,
    /// How long we wait for what.
    pub patience: Patience,
}

/// How long we wait for an agent, and how often we ask it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// For its first answer.
    pub start: Duration,
    /// For the session, its mode and its model.
    pub session: Duration,
    /// For the answer to a cancellation.
    pub cancel: Duration,
    /// For its end, when it is asked to end, before it is killed.
    pub stop: Duration,
    /// For the usage of a turn that has ended, which some agents report late.
    pub late: Duration,
    /// How often it is asked again for a submission that cannot be taken.
    pub again: u8,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            start: Duration::from_mins(1),
            session: Duration::from_mins(1),
            cancel: Duration::from_secs(5),
            stop: Duration::from_secs(2),
            late: Duration::from_millis(100),
            again: 2,
        }
    }
}

/// Something that happened in a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Update {
    /// The process is on record, and is about to run.
    Recorded(Record),
    /// The agent has a session.
    Session {
        /// Its name for it.
        name: String,
        /// Whether it goes on with an earlier one. If that was wanted and is not so, it could not.
        resumed: bool,
    },
    /// A piece of what the agent says.
    Said(String),
    /// A piece of what the agent thinks.
    Thought(String),
    /// A tool call began or changed.
    Tool {
        /// The agent's name for the call.
        id: String,
        /// What it is, if that is said.
        title: Option<String>,
        /// Where it stands, if that is said.
        status: Option<String>,
        /// What kind of tool it is, if that is said.
        kind: Option<String>,
        /// The files it is about.
        locations: Vec<String>,
    },
    /// The agent's own list of what it will do, whole.
    Plan(Vec<Entry>),
    /// The agent says how far it is.
    Progress(String),
    /// A model was called through the gateway.
    Called(ModelCall),
    /// A limit is near.
    Warned(crate::gateway::Whose),
    /// The agent asked for something, and got an answer.
    Asked(Ask, Ruling),
    /// What the session has used so far.
    Used(Usage),
    /// What was handed in cannot be taken, and the agent is asked again.
    Refused(Vec<String>),
    /// Anything else, as it came.
    Other(serde_json::Value),
}

/// One thing that an agent plans to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What.
    pub content: String,
    /// Where it stands: `pending`, `in_progress` or `completed`.
    pub status: String,
}

/// Sees what happens in a run, as it happens. It must not wait.
pub type Observer = Arc<dyn Fn(Update) + Send + Sync>;

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEnd {
    /// The agent says that it is done. Whether it is, others judge.
    Finished {
        /// Why it stopped, in the protocol's words.
        stop: String,
        /// What it handed in.
        submission: Submission,
    },
    /// The agent died, or could not go on.
    Crashed {
        /// What was seen.
        reason: String,
    },
    /// It took longer than it may.
    TimedOut,
    /// We were told to stop it.
    Cancelled,
    /// It could not be started, or never came to have a session.
    Unavailable {
        /// What was seen.
        reason: String,
    },
    /// The provider's quota is used up until then.
    Quota {
        /// Until when.
        until: Timestamp,
    },
    /// It has spent what it may.
    OverBudget,
    /// It asks a person something. Nothing of it waits; a later run goes on with the answer.
    Asked {
        /// What it asks.
        question: Question,
    },
}

impl RunEnd {
    /// What the task's machine is told, if the engine failed. `provider` serves the agent's model.
    ///
    /// A run that finished, or that we stopped, is no failure.
    pub fn failure(&self, provider: &Name) -> Option<Failure> {
        let (kind, reason) = match self {
            Self::Finished { .. } | Self::Cancelled | Self::Asked { .. } => return None,
            Self::Crashed { reason } => (FailureKind::Crashed, reason.as_str()),
            Self::TimedOut => (FailureKind::TimedOut, "the run took longer than it may"),
            Self::Unavailable { reason } => (FailureKind::Unavailable, reason.as_str()),
            Self::Quota { until } => {
                let provider = provider.clone();
                (FailureKind::Quota { provider, until: *until }, "the provider's quota is used up")
            }
            Self::OverBudget => (FailureKind::OverBudget, "the run has spent what it may"),
        };
        let reason: String = reason.chars().take(Reason::MAX).collect();
        reason
            .parse()
            .or_else(|_| "no reason was given".parse())
            .ok()
            .map(|reason| Failure { kind, reason })
    }
}

/// What is known of a run that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// How it ended.
    pub end: RunEnd,
    /// What it used, if anybody can tell. Nothing said is not nothing used.
    pub usage: Option<Usage>,
    /// Whether the usage was metered by the gateway. If not, it is what the agent says.
    pub metered: bool,
    /// The agent's name for its session, by which some can go on with it later.
    pub session: Option<String>,
    /// Whether it went on with the session that the order named.
    pub resumed: bool,
    /// The agent's own name and version.
    pub agent: Option<String>,
    /// The end of what it complained about.
    pub stderr: String,
}

impl Agent {
    /// Runs the agent once, and returns when nothing of it lives any more.
    ///
    /// However it ends, that is a [`Report`]. An error is ours: the record could not be kept, a later
    /// run of the task has taken the place of this one, or something of the agent cannot be killed,
    /// and then its slot is not free.
    pub async fn run(
        &self,
        order: &RunOrder,
        records: &Records,
        observer: &Observer,
        cancel: &CancellationToken,
    ) -> Result<Report, process::Error> {
        // What an agent says is shown to people: nothing in it may be for their terminal.
        let observer = &plain::observer(observer);
        records.take_over(order.run, order.patience.stop).await?;
        let desk =
            Desk::new(order.mode, order.search.clone(), order.evidence.clone(), observer.clone());
        let door =
            order.access.as_ref().map(|access| Arc::new(access.admit(order, &desk, observer)));
        // The token of the door is a secret as long as the run lives.
        let seen = door.as_ref().map(|door| Redactor::new([door.token().clone()]));
        let observer = &redacted(observer, seen);
        let given = match prepare::prepare(self, order, door.as_deref()).await {
            Ok(given) => given,
            Err(error) => {
                return Ok(Report::not_begun(RunEnd::Unavailable { reason: error.to_string() }));
            }
        };
        let launch = Launch {
            program: self.command.clone(),
            args: given.args,
            env: given.env,
            folder: order.workspace.clone(),
            run: order.run,
            at: order.at,
        };
        let launch = match &order.cage {
            Some(cage) => cage.wrap(launch),
            None => launch,
        };
        let recorded = |record: &Record| observer(Update::Recorded(record.clone()));
        let (mut group, pipes) = match Group::start(&launch, records, recorded).await {
            Ok(started) => started,
            Err(process::Error::Start { program, source }) => {
                let program = program.display();
                let reason = match source.kind() {
                    std::io::ErrorKind::NotFound => {
                        format!("cannot start `{program}`: it is not installed, or not on the PATH")
                    }
                    _ => format!("cannot start `{program}`: {source}"),
                };
                return Ok(Report::not_begun(RunEnd::Unavailable { reason }));
            }
            Err(ours) => return Err(ours),
        };
        let stderr = Tail::follow(pipes.stderr, STDERR);
        let metered = order.access.as_ref().is_some_and(|access| access.upstream.is_some());
        let heard = acp::Heard::new(metered);
        let mut talk = Box::pin(acp::talk(
            (pipes.stdin, pipes.stdout),
            acp::Talk {
                order: order.clone(),
                modes: self.modes.clone(),
                heard: heard.clone(),
                see: observer.clone(),
                cancel: cancel.clone(),
                desk,
                door: door.clone(),
            },
        ));
        let end = tokio::select! {
            end = &mut talk => end,
            // A child that holds the pipe would keep the conversation open after the agent's death.
            status = group.wait() => match tokio::time::timeout(order.patience.stop, &mut talk).await {
                Ok(end) => end,
                Err(_) => heard.died(&status.map_or_else(|_| "it ended".to_owned(), |s| s.to_string())),
            },
        };
        // Its standard input is closed with this, which is how an agent learns that it is over.
        drop(talk);
        match end {
            RunEnd::Finished { .. } => group.finish(order.patience.stop).await?,
            _ => group.stop(order.patience.stop).await?,
        }
        let stderr = plain::text(&stderr.text().await).into_owned();
        let mut report = Report { end, stderr, ..heard.report() };
        if let Some(door) = door.filter(|_| metered).and_then(Arc::into_inner) {
            // Only now, because an agent may call until it is gone.
            report.usage = Some(door.close().await.usage);
            report.metered = true;
        }
        Ok(report)
    }
}

impl Access {
    /// Opens the gateway for a run.
    fn admit(&self, order: &RunOrder, desk: &Desk, observer: &Observer) -> Door {
        let see = observer.clone();
        self.gateway.admit(Visitor {
            run: order.run,
            at: order.at,
            upstream: self.upstream.clone(),
            prices: self.prices.clone(),
            bounds: self.bounds.clone(),
            warn_percent: self.warn_percent,
            tools: Some(desk.router()),
            observer: Arc::new(move |event| match event {
                Event::Called(call) => see(Update::Called(call)),
                Event::Warned { whose, .. } => see(Update::Warned(whose)),
                // How the run ends says it.
                Event::Stopped(_) => {}
            }),
        })
    }
}

/// An observer that sees no secret.
fn redacted(observer: &Observer, redactor: Option<Redactor>) -> Observer {
    let (observer, Some(redactor)) = (observer.clone(), redactor) else {
        return observer.clone();
    };
    Arc::new(move |update| observer(update.redacted(&redactor)))
}

impl Update {
    /// The same without secrets in what the agent says. A secret that comes in two pieces is for
    /// whoever puts them together.
    fn redacted(self, redactor: &Redactor) -> Self {
        let clean = |text: String| redactor.redact(&text).into_owned();
        match self {
            Self::Said(text) => Self::Said(clean(text)),
            Self::Thought(text) => Self::Thought(clean(text)),
            Self::Progress(text) => Self::Progress(clean(text)),
            Self::Tool { id, title, status, kind, locations } => {
                Self::Tool { id, title: title.map(clean), status, kind, locations }
            }
            Self::Asked(ask, ruling) => {
                let (title, command) = (clean(ask.title), ask.command.map(clean));
                Self::Asked(Ask { title, command, ..ask }, ruling)
            }
            Self::Other(value) => {
                let text = redactor.redact(&value.to_string()).into_owned();
                Self::Other(serde_json::from_str(&text).unwrap_or_default())
            }
            other => other,
        }
    }
}

impl Report {
    /// A run that was not begun, and why.
    pub fn not_begun(end: RunEnd) -> Self {
        Self {
            end,
            // Nothing was used, and that is known.
            usage: Some(Usage { tokens: Tokens::default(), cost: Cost::Known(Usd::ZERO) }),
            metered: false,
            session: None,
            resumed: false,
            agent: None,
            stderr: String::new(),
        }
    }
}
