//! Runs of coding agents, from launch until every process has exited.
//!
//! An agent is data: a program with templates for its arguments, environment and files. It is
//! driven over the Agent Client Protocol, and only `acp` depends on the protocol's library.
//! [`RunEnd`] distinguishes how a run ended, because a crash says nothing about the change.
//! Observations of the gateway override the agent's own statements. A session is prompted again only
//! for an invalid or missing submission and after a turn that ended too early (`turn_end`); every
//! other retry is decided by the task loop.

#[cfg(not(fuzzing))]
mod acp;
#[cfg(fuzzing)]
pub(crate) mod acp;
mod prepare;
mod turn_end;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tamma_core::budget::SpendLimit;
use tamma_core::cost::{Cost, Price, Tokens, Usage, Usd};
use tamma_core::failure::{FailureKind, JobFailure};
use tamma_core::ids::{Name, Reason};
use tamma_core::prices;
use tamma_core::rules::{AgentRules, SessionModes};
use tamma_core::run_result::{RunResult, ThreadAnswer};
use tamma_core::task_loop::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::agent_tools::{AgentQuestion, AgentTools, KnowledgeSearch, ToolServices};
use crate::gateway::{
    BudgetLimit, Gateway, GatewayEvent, ModelCall, RunEndpoint, RunEndpointConfig, Upstream,
};
use crate::output::OutputTail;
use crate::permission::{PermissionDecision, PermissionPolicy, PermissionRequest};
use crate::process::{
    self, ExceededLimit, Launch, ProcessRecord, ProcessRecords, RunCgroup, RunId, SupervisedProcess,
};
use crate::sandbox::Sandbox;
use crate::sanitize;
use crate::secret::Redactor;
use crate::submission::{Submission, SubmissionFacts};

/// Maximum size of the kept error output, in bytes.
const MAX_STDERR_BYTES: usize = 16 * 1024;

/// Configured agent. Its arguments, environment and files are templates that are rendered for each
/// run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CodingAgent {
    /// Path, or name to search in the agent's `PATH`.
    pub command: PathBuf,
    /// Templates of the arguments.
    pub args: Vec<String>,
    /// Templates of environment variables. The agent gets only these and `inherited`, so the
    /// worker's keys stay hidden.
    pub env: BTreeMap<String, String>,
    /// Variables passed on from the worker unchanged.
    pub inherited: BTreeMap<String, String>,
    /// Templates of files in the run's home, by relative path. Used only with the gateway.
    pub files: BTreeMap<String, String>,
    /// Session modes of the agent, for read-only and for writing runs.
    pub modes: SessionModes,
    /// Context window of its models, in tokens.
    pub context_tokens: u32,
}

impl CodingAgent {
    /// Creates the agent from its rules. Inherited variables come from `environment`.
    pub fn from_rules(rules: &AgentRules, environment: &BTreeMap<String, String>) -> Self {
        let pair = |name: &String| Some((name.clone(), environment.get(name)?.clone()));
        Self {
            command: rules.command.clone().into(),
            args: rules.args.clone(),
            env: rules.env.clone(),
            inherited: rules.inherit.iter().filter_map(pair).collect(),
            files: rules.files.clone(),
            modes: rules.modes.clone(),
            context_tokens: rules.context_tokens,
        }
    }
}

/// Purpose of a run. It determines the agent's permissions and its submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, strum::EnumIter)]
#[strum(serialize_all = "snake_case")]
pub enum RunMode {
    /// Write a plan. Read-only.
    Plan,
    /// Change files.
    Implement,
    /// Judge a change, in a disposable checkout that it can write.
    Validate,
    /// Analyse a stuck task as a council member. Read-only.
    Advise,
    /// Conclude as chair of the council. Read-only.
    Conclude,
    /// Derive lessons from a task. The prompt contains everything it needs.
    Learn,
    /// Run a phase of a pipeline. It can change files.
    Phase,
    /// Split a story into tasks. Read-only.
    Split,
}

impl RunMode {
    /// Returns `true` if runs of this mode must not change files.
    pub fn is_read_only(self) -> bool {
        !matches!(self, Self::Implement | Self::Validate | Self::Phase)
    }
}

/// Access of a run to its model and to our tools.
#[derive(Clone)]
pub struct ModelAccess {
    /// Gateway that serves the run.
    pub gateway: Gateway,
    /// Model provider. `None` if the agent is signed in by itself: then it calls models directly
    /// with the worker's home, and uses the gateway only for our tools.
    pub upstream: Option<Upstream>,
    /// Prices by model that override built-in ones.
    pub prices: BTreeMap<String, Price>,
    /// Models that the run can call through the gateway. Empty: all.
    pub models: Vec<String>,
    /// Budgets that limit the run, with the amounts already spent.
    pub budget_limits: Vec<BudgetLimit>,
    /// Share of a budget at which people are warned, in percent.
    pub warn_percent: u8,
}

/// Request to run an agent, with its limits.
#[derive(Clone)]
pub struct RunRequest {
    /// Identifier of the run.
    pub run: RunId,
    /// Current time. The engine has no clock of its own.
    pub now: Timestamp,
    /// Worktree that the agent works in.
    pub worktree: PathBuf,
    /// Prompt. Submission instructions are added to it.
    pub prompt: String,
    /// Purpose of the run.
    pub mode: RunMode,
    /// Hard limit on the duration.
    pub time_limit: Duration,
    /// Time that one shell command of the agent can take, for its own configuration.
    pub shell_limit: Duration,
    /// Spending limit, based on the cost that the agent reports. Runs through the gateway are
    /// limited by [`ModelAccess::budget_limits`] instead.
    pub spend_limit: SpendLimit,
    /// Policy that answers permission requests.
    pub policy: PermissionPolicy,
    /// Patterns of paths that must not be changed, for the agent's own configuration.
    pub protected_paths: Vec<String>,
    /// Commands that must not be run, for the agent's own configuration.
    pub denied_commands: Vec<String>,
    /// Commands that need approval, for the configuration of agents that only ask for listed
    /// commands.
    pub ask_commands: Vec<String>,
    /// Model, as the agent names it. With `None` or `default`, the agent chooses.
    pub model: Option<String>,
    /// Reasoning effort, for the agent's own configuration. With `None`, the agent chooses.
    pub effort: Option<String>,
    /// Session of an earlier run to resume, if the agent supports it.
    pub resume: Option<String>,
    /// Prompt for the resumed session, instead of `prompt`. If the agent cannot resume, `prompt` is
    /// used.
    pub resume_prompt: Option<String>,
    /// Directory of the run. It is the agent's home if the run uses the gateway.
    pub home: PathBuf,
    /// Access to models and tools. With `None`, there are no tools and the agent must be signed in.
    pub access: Option<ModelAccess>,
    /// Search in the knowledge base.
    pub search: KnowledgeSearch,
    /// Facts that its submission is checked against.
    pub facts: SubmissionFacts,
    /// Services of the worker behind the agent's tools.
    pub services: ToolServices,
    /// Sandbox. With `None`, the agent has all permissions of the worker.
    pub sandbox: Option<Sandbox>,
    /// Timeouts and retries of the session.
    pub timeouts: AgentTimeouts,
    /// Callback that keeps the end of the run as soon as it is known. The agent's processes may
    /// still be exiting, and the report has no error output and only the usage so far.
    pub keep_end: Option<KeepEnd>,
}

/// Callback that keeps the end of a run, so that a crash of the worker does not lose it.
pub type KeepEnd = Arc<dyn Fn(RunReport) -> BoxFuture<'static, ()> + Send + Sync>;

/// Timeouts of an agent's session, and its submission retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentTimeouts {
    /// Limit for the response to `initialize`.
    pub start: Duration,
    /// Limit for creating the session and selecting its mode and model.
    pub session: Duration,
    /// Limit for the response to a cancellation.
    pub cancel: Duration,
    /// Grace period between the request to exit and the kill.
    pub stop: Duration,
    /// Extra time for the usage of a finished turn, because some agents report it late.
    pub late_usage: Duration,
    /// Number of times an invalid submission is requested again.
    pub submission_retries: u8,
}

impl Default for AgentTimeouts {
    fn default() -> Self {
        Self {
            start: Duration::from_mins(1),
            session: Duration::from_mins(1),
            cancel: Duration::from_secs(5),
            stop: Duration::from_secs(2),
            late_usage: Duration::from_millis(100),
            submission_retries: 2,
        }
    }
}

/// Event of a run, as passed to its observer.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentUpdate {
    /// Process is on record and about to start.
    ProcessRecorded(ProcessRecord),
    /// Session was created or resumed.
    Session {
        /// Session ID of the agent.
        name: String,
        /// `true` if an earlier session was resumed. `false` although one was requested means that
        /// resuming failed.
        resumed: bool,
    },
    /// Part of a message.
    Message(String),
    /// Part of the agent's reasoning.
    Thought(String),
    /// Tool call started or changed.
    ToolCall(ToolCallUpdate),
    /// Complete to-do list of the agent.
    Plan(Vec<PlanEntry>),
    /// Progress report of the agent.
    Progress(String),
    /// Model was called through the gateway.
    ModelCalled(ModelCall),
    /// Budget is nearly spent.
    BudgetWarning(crate::gateway::BudgetScope),
    /// Permission was requested and decided.
    PermissionDecided(PermissionRequest, PermissionDecision),
    /// Usage of the session so far.
    UsageReported(Usage),
    /// Submission was invalid, with its errors. The agent is asked again.
    SubmissionRejected(Vec<String>),
    /// Agent ended its turn too early and is prompted again, for this reason.
    PromptedAgain(String),
    /// Agent submitted its claims about an implementing run.
    ResultSubmitted(RunResult),
    /// Agent submitted a valid plan or verdict.
    DocumentSubmitted {
        /// `plan` or `verdict`.
        name: &'static str,
        /// Document as JSON.
        content: serde_json::Value,
    },
    /// Any other update, as received.
    Other(serde_json::Value),
}

/// Start or change of a tool call. Fields that the agent left out are unchanged.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolCallUpdate {
    /// ID of the call, chosen by the agent.
    pub id: String,
    /// Title, if reported.
    pub title: Option<String>,
    /// Status, if reported.
    pub status: Option<String>,
    /// Kind of tool, if reported.
    pub kind: Option<String>,
    /// Files that the call concerns.
    pub locations: Vec<String>,
    /// Arguments of the tool, if reported.
    pub input: Option<serde_json::Value>,
    /// Complete output so far; it replaces earlier output. `None` if it was not reported.
    pub content: Option<Vec<ToolContent>>,
    /// Exit code of a command, if reported.
    pub exit_code: Option<i64>,
}

/// Part of the output of a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolContent {
    /// Text, such as the output of a command.
    Text(String),
    /// Edit of a file.
    Edit {
        /// Path as the agent names it.
        path: String,
        /// Content before; `None` for a new file, or if the agent left it out.
        old: Option<String>,
        /// Content after.
        new: String,
    },
}

/// Item of an agent's to-do list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanEntry {
    /// Description.
    pub content: String,
    /// `pending`, `in_progress` or `completed`.
    pub status: String,
}

/// Callback for events of a run. It must not block.
pub type AgentObserver = Arc<dyn Fn(AgentUpdate) + Send + Sync>;

/// Outcome of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEnd {
    /// Agent finished its turn. Gates and reviewers decide whether the work is done.
    Finished {
        /// Stop reason in the protocol's terms.
        stop_reason: String,
        /// Result that the agent submitted.
        submission: Submission,
    },
    /// Agent crashed or could not continue.
    Crashed {
        /// Observed cause.
        reason: String,
    },
    /// Time limit was exceeded.
    TimedOut,
    /// Run was cancelled by its caller.
    Cancelled,
    /// Agent could not be started, or never had a session.
    Unavailable {
        /// Observed cause.
        reason: String,
    },
    /// Quota of the provider is exhausted.
    Quota {
        /// Time of the reset.
        until: Timestamp,
    },
    /// Spending limit was reached.
    OverBudget,
    /// Model has no price, so its budget in dollars could not be enforced.
    Unpriced {
        /// Model, as the agent names it.
        model: String,
    },
    /// Model refused the work.
    Refused {
        /// Its last words.
        reason: String,
    },
    /// Agent asked a person. The run has ended; a later run continues with the answer.
    QuestionAsked {
        /// Question to the person.
        question: AgentQuestion,
    },
}

impl RunEnd {
    /// End of a run that exceeded a resource limit.
    fn over(limit: ExceededLimit) -> Self {
        Self::Crashed { reason: limit.to_string() }
    }

    /// End of a run whose program could not be started.
    fn failed_start(program: &Path, error: &io::Error) -> Self {
        let program = program.display();
        let reason = match error.kind() {
            io::ErrorKind::NotFound => {
                format!("cannot start `{program}`: not installed, or not on the PATH")
            }
            _ => format!("cannot start `{program}`: {error}"),
        };
        Self::Unavailable { reason }
    }

    /// Returns the failure to report to the task loop. `provider` serves the agent's model.
    ///
    /// Finished, cancelled and asking runs are not failures.
    pub fn failure(&self, provider: &Name) -> Option<JobFailure> {
        let unpriced;
        let (kind, reason) = match self {
            Self::Finished { .. } | Self::Cancelled | Self::QuestionAsked { .. } => return None,
            Self::Crashed { reason } => (FailureKind::Crashed, reason.as_str()),
            Self::TimedOut => (FailureKind::TimedOut, "the run exceeded its time limit"),
            Self::Unavailable { reason } => (FailureKind::Unavailable, reason.as_str()),
            Self::Quota { until } => {
                let provider = provider.clone();
                (FailureKind::Quota { provider, until: *until }, "provider quota exhausted")
            }
            Self::OverBudget => (FailureKind::OverBudget, "the run reached its spending limit"),
            // Only a person can add a price or change the budget.
            Self::Unpriced { model } => {
                unpriced = prices::unpriced_reason(model);
                (FailureKind::OverBudget, unpriced.as_str())
            }
            Self::Refused { reason } => (FailureKind::Refused, reason.as_str()),
        };
        let reason: String = reason.chars().take(Reason::MAX).collect();
        reason
            .parse()
            .or_else(|_| "no reason given".parse())
            .ok()
            .map(|reason| JobFailure { kind, reason })
    }
}

/// Result of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunReport {
    /// Outcome of the run.
    pub end: RunEnd,
    /// Usage; `None` if it is unknown.
    pub usage: Option<Usage>,
    /// `true` if the gateway metered the usage, `false` if the agent reported it.
    pub metered: bool,
    /// Session ID of the agent, for resuming.
    pub session: Option<String>,
    /// `true` if the requested session was resumed.
    pub resumed: bool,
    /// Name and version that the agent reports.
    pub agent: Option<String>,
    /// End of its standard error.
    pub stderr: String,
}

impl CodingAgent {
    /// Runs the agent once, and returns after all of its processes have exited.
    ///
    /// Every outcome of the agent is a [`RunReport`]. Errors are Tamma's own: a record could not be
    /// written, a later run of the task superseded this one, or a process could not be killed. In
    /// the last case the slot stays occupied.
    pub async fn run(
        &self,
        request: &RunRequest,
        records: &ProcessRecords,
        observer: &AgentObserver,
        cancel: &CancellationToken,
    ) -> Result<RunReport, process::Error> {
        // Output is shown to people, so remove control sequences for their terminals.
        let observer = &sanitize::sanitizing_observer(observer);
        // The endpoint's token stays secret while the run lasts. The tools exist before it.
        let redactor = Arc::<OnceLock<Redactor>>::default();
        let observer = &redacting_observer(observer, redactor.clone());
        records.take_over(request.run, request.timeouts.stop).await?;
        let tools = AgentTools::new(
            request.mode,
            request.search.clone(),
            request.facts.clone(),
            observer.clone(),
        )
        .with_services(request.services.clone())
        .with_policy(request.policy.clone());
        let endpoint = request
            .access
            .as_ref()
            .map(|access| Arc::new(access.open_endpoint(request, &tools, observer)));
        let token = endpoint.as_ref().map(|endpoint| endpoint.token().clone());
        let redactor = redactor.get_or_init(|| Redactor::new(token)).clone();
        let prepared = match prepare::prepare(self, request, endpoint.as_deref()).await {
            Ok(prepared) => prepared,
            Err(error) => {
                return Ok(RunReport::not_started(RunEnd::Unavailable {
                    reason: error.to_string(),
                }));
            }
        };
        let launch = Launch {
            program: self.command.clone(),
            args: prepared.args,
            env: prepared.env,
            working_dir: request.worktree.clone(),
            run: request.run,
            now: request.now,
        };
        let launch = match &request.sandbox {
            Some(sandbox) => sandbox.wrap(launch),
            None => launch,
        };
        let limits = request.sandbox.as_ref().map(|sandbox| sandbox.limits);
        let mut cgroup = None;
        let recorded = |record: &ProcessRecord| {
            cgroup = limits.and_then(|limits| RunCgroup::create(record, &limits));
            observer(AgentUpdate::ProcessRecorded(record.clone()));
        };
        let (mut group, pipes) = match SupervisedProcess::start(&launch, records, recorded).await {
            Ok(started) => started,
            Err(process::Error::Start { program, source }) => {
                return Ok(RunReport::not_started(RunEnd::failed_start(&program, &source)));
            }
            Err(ours) => return Err(ours),
        };
        let stderr = OutputTail::follow(pipes.stderr, MAX_STDERR_BYTES);
        let metered = request.access.as_ref().is_some_and(|access| access.upstream.is_some());
        let tracker = acp::SessionTracker::new(metered);
        let mut session = Box::pin(acp::run_session(
            (pipes.stdin, pipes.stdout),
            acp::SessionContext {
                request: request.clone(),
                modes: self.modes.clone(),
                tracker: tracker.clone(),
                observer: observer.clone(),
                cancel: cancel.clone(),
                tools,
                endpoint: endpoint.clone(),
            },
        ));
        let end = tokio::select! {
            end = &mut session => end,
            limit = process::exceeded_limit(group.record().clone(), limits) => RunEnd::over(limit),
            // A descendant that holds the pipe would keep the session open after the agent's exit.
            status = group.wait() => match tokio::time::timeout(request.timeouts.stop, &mut session).await {
                Ok(end) => end,
                Err(_) => tracker.end_for_exit(&status.map_or_else(|_| "the agent exited".to_owned(), |s| s.to_string())),
            },
        };
        let end = match (end, cgroup.as_ref().and_then(RunCgroup::exceeded)) {
            (RunEnd::Crashed { .. }, Some(limit)) => RunEnd::over(limit),
            (end, _) => end,
        };
        if let Some(keep_end) = &request.keep_end {
            let mut report = RunReport { end: end.clone(), ..tracker.report() };
            if let Some(endpoint) = endpoint.as_ref().filter(|_| metered) {
                report.usage = Some(endpoint.ledger().usage);
                report.metered = true;
            }
            // The exit can take seconds, in which the worker may die.
            keep_end(report.redacted(&redactor)).await;
        }
        // Closes the agent's standard input, which tells it to exit.
        drop(session);
        match end {
            RunEnd::Finished { .. } => group.finish(request.timeouts.stop).await?,
            _ => group.stop(request.timeouts.stop).await?,
        }
        let stderr = sanitize::text(&stderr.text().await).into_owned();
        let mut report = RunReport { end, stderr, ..tracker.report() };
        if let Some(endpoint) = endpoint.filter(|_| metered).and_then(Arc::into_inner) {
            // Close the endpoint last, because an agent may call models until it has exited.
            report.usage = Some(endpoint.close().await.usage);
            report.metered = true;
        }
        Ok(report.redacted(&redactor))
    }
}

impl ModelAccess {
    /// Opens an endpoint for a run.
    fn open_endpoint(
        &self,
        request: &RunRequest,
        tools: &AgentTools,
        observer: &AgentObserver,
    ) -> RunEndpoint {
        let observer = observer.clone();
        self.gateway.open_endpoint(RunEndpointConfig {
            run: request.run,
            now: request.now,
            upstream: self.upstream.clone(),
            prices: self.prices.clone(),
            models: self.models.clone(),
            budget_limits: self.budget_limits.clone(),
            warn_percent: self.warn_percent,
            tools: Some(tools.router()),
            observer: Arc::new(move |event| match event {
                GatewayEvent::ModelCalled(call) => observer(AgentUpdate::ModelCalled(call)),
                GatewayEvent::BudgetWarning { scope, .. } => {
                    observer(AgentUpdate::BudgetWarning(scope));
                }
                // Reported by the end of the run.
                GatewayEvent::Stopped(_) => {}
            }),
        })
    }
}

/// Wraps an observer so that it never receives secrets, once they are known.
fn redacting_observer(
    observer: &AgentObserver,
    redactor: Arc<OnceLock<Redactor>>,
) -> AgentObserver {
    let observer = observer.clone();
    Arc::new(move |update| {
        observer(match redactor.get() {
            Some(redactor) => update.redacted(redactor),
            None => update,
        });
    })
}

impl AgentUpdate {
    /// Removes secrets from the agent's text. A secret that is split over two updates is not found
    /// here; consumers that join updates must redact again.
    fn redacted(self, redactor: &Redactor) -> Self {
        let clean = |text: String| redactor.redact(&text).into_owned();
        match self {
            Self::Message(text) => Self::Message(clean(text)),
            Self::Thought(text) => Self::Thought(clean(text)),
            Self::Progress(text) => Self::Progress(clean(text)),
            Self::ResultSubmitted(result) => Self::ResultSubmitted(RunResult {
                status: result.status,
                summary: clean(result.summary),
                deviations: result.deviations.into_iter().map(clean).collect(),
                unverified: result.unverified.into_iter().map(clean).collect(),
                answers: result
                    .answers
                    .into_iter()
                    .map(|it| ThreadAnswer { answer: clean(it.answer), ..it })
                    .collect(),
            }),
            Self::ToolCall(call) => Self::ToolCall(ToolCallUpdate {
                title: call.title.map(clean),
                input: call.input.map(|input| redact_value(&input, redactor)),
                content: call.content.map(|parts| {
                    let clean = |part: ToolContent| match part {
                        ToolContent::Text(text) => ToolContent::Text(clean(text)),
                        ToolContent::Edit { path, old, new } => {
                            ToolContent::Edit { path, old: old.map(clean), new: clean(new) }
                        }
                    };
                    parts.into_iter().map(clean).collect()
                }),
                ..call
            }),
            Self::PermissionDecided(request, decision) => {
                let (title, command) = (clean(request.title), request.command.map(clean));
                Self::PermissionDecided(PermissionRequest { title, command, ..request }, decision)
            }
            Self::DocumentSubmitted { name, content } => {
                Self::DocumentSubmitted { name, content: redact_value(&content, redactor) }
            }
            Self::Other(value) => Self::Other(redact_value(&value, redactor)),
            other => other,
        }
    }
}

/// Removes secrets from a JSON value.
fn redact_value(value: &serde_json::Value, redactor: &Redactor) -> serde_json::Value {
    let text = redactor.redact(&value.to_string()).into_owned();
    serde_json::from_str(&text).unwrap_or_default()
}

impl RunReport {
    /// Removes secrets from the agent's text, which becomes the reason of a failure.
    #[must_use]
    pub fn redacted(mut self, redactor: &Redactor) -> Self {
        self.stderr = redactor.redact(&self.stderr).into_owned();
        if let RunEnd::Crashed { reason }
        | RunEnd::Unavailable { reason }
        | RunEnd::Refused { reason } = &mut self.end
        {
            *reason = redactor.redact(reason).into_owned();
        }
        self
    }

    /// Creates the report of a run that never started.
    pub fn not_started(end: RunEnd) -> Self {
        Self {
            end,
            // Nothing was used, so the usage is known.
            usage: Some(Usage { tokens: Tokens::default(), cost: Cost::Known(Usd::ZERO) }),
            metered: false,
            session: None,
            resumed: false,
            agent: None,
            stderr: String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::secret::Secret;

    use super::*;

    #[test]
    fn reports_and_updates_contain_no_secrets() {
        let redactor = Redactor::new([Secret::new("t0ken-of-run")]);
        let reason = "failed with t0ken-of-run".to_owned();
        let report = RunReport {
            stderr: "t0ken-of-run".to_owned(),
            ..RunReport::not_started(RunEnd::Crashed { reason })
        };
        let report = report.redacted(&redactor);
        assert_eq!(report.end, RunEnd::Crashed { reason: "failed with [secret]".to_owned() });
        assert_eq!(report.stderr, "[secret]");
        let seen = Arc::<std::sync::Mutex<Vec<AgentUpdate>>>::default();
        let observer: AgentObserver = {
            let seen = seen.clone();
            Arc::new(move |update| seen.lock().expect("a lock").push(update))
        };
        let known = Arc::<OnceLock<Redactor>>::default();
        let observer = redacting_observer(&observer, known.clone());
        known.get_or_init(|| redactor);
        observer(AgentUpdate::Progress("t0ken-of-run".to_owned()));
        let seen = seen.lock().expect("a lock").clone();
        assert_eq!(seen, [AgentUpdate::Progress("[secret]".to_owned())]);
    }
}
