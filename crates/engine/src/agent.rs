//! Agents: one run of a coding agent, from its start to the certainty that it is gone.
//!
//! An agent is data: a program, its arguments and its environment. It is driven over the Agent
//! Client Protocol, which only one file here knows. How a run ended is told apart
//! ([`RunEnd`]), because a crash says nothing about the change; retrying is the business of the task's
//! machine, and only a submission that cannot be taken is asked for again here.

mod acp;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tamma_core::budget::Limit;
use tamma_core::cost::Usage;
use tamma_core::ids::{Name, Reason};
use tamma_core::task_loop::{Failure, FailureKind, Timestamp};
use tokio_util::sync::CancellationToken;

use crate::output::Tail;
use crate::permission::{Ask, Policy, Ruling};
use crate::process::{self, Group, Launch, Record, Records, RunId};
use crate::submission::Submission;

/// How much of what an agent complains about is kept.
const STDERR: usize = 16 * 1024;

/// A configured agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// The program: a path, or a name to be looked for in the `PATH` of `env`.
    pub command: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its whole environment. Nothing is inherited, so that no key of ours is.
    pub env: BTreeMap<String, String>,
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
    /// To give advice, which is what it says. It may only look.
    Advise,
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
    /// What it may spend, as far as the agent says what it spends.
    pub allowance: Limit,
    /// What it may do when it asks.
    pub policy: Policy,
    /// How long we wait for what.
    pub patience: Patience,
}

/// How long we wait for an agent, and how often we ask it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// For the first answers, until there is a session.
    pub start: Duration,
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
    /// The agent has a session, under this name.
    Session(String),
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
    },
    /// The agent asked for something, and got an answer.
    Asked(Ask, Ruling),
    /// What the session has used so far.
    Used(Usage),
    /// What was handed in cannot be taken, and the agent is asked again.
    Refused(Vec<String>),
    /// Anything else, as it came.
    Other(serde_json::Value),
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
}

impl RunEnd {
    /// What the task's machine is told, if the engine failed. `provider` serves the agent's model.
    ///
    /// A run that finished, or that we stopped, is no failure.
    pub fn failure(&self, provider: &Name) -> Option<Failure> {
        let (kind, reason) = match self {
            Self::Finished { .. } | Self::Cancelled => return None,
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
    /// What it used, if the agent said so. Nothing said is not nothing used.
    pub usage: Option<Usage>,
    /// The agent's name for its session, by which some can go on with it later.
    pub session: Option<String>,
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
        records.take_over(order.run, order.patience.stop).await?;
        let launch = Launch {
            program: self.command.clone(),
            args: self.args.clone(),
            env: self.env.clone(),
            folder: order.workspace.clone(),
            run: order.run,
            at: order.at,
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
                return Ok(Report::unavailable(reason));
            }
            Err(ours) => return Err(ours),
        };
        let stderr = Tail::follow(pipes.stderr, STDERR);
        let heard = acp::Heard::default();
        let mut talk = Box::pin(acp::talk(
            (pipes.stdin, pipes.stdout),
            order.clone(),
            heard.clone(),
            observer.clone(),
            cancel.clone(),
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
        Ok(Report { end, stderr: stderr.text().await, ..heard.report() })
    }
}

impl Report {
    fn unavailable(reason: String) -> Self {
        let end = RunEnd::Unavailable { reason };
        Self { end, usage: None, session: None, agent: None, stderr: String::new() }
    }
}
