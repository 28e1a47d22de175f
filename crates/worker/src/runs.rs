//! Agent run of one job: its inputs and its result.

mod agent_sandbox;
mod message_log;
mod sessions;
mod signed_in_home;
mod working_folder;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tamma_core::budget::{self, SpendLimit};
use tamma_core::cost::Usage;
use tamma_core::failure::FailureKind;
use tamma_core::ids::{Name, Reason};
use tamma_core::plan::criterion_id;
use tamma_core::prices;
use tamma_core::rules::{AgentRules, AgentSelection, COMMON_VARIABLES, Effort, Rules};
use tamma_core::run_queue::{ProjectRun, WaitingRun};
use tamma_core::task_loop::Outcome;
use tamma_core::tier::Tier;
use tamma_engine::agent::{KeepEnd, ModelAccess, RunEnd, RunMode, RunReport, RunRequest};
use tamma_engine::agent_tools::{AgentGates, ToolServices};
use tamma_engine::egress::EgressProxy;
use tamma_engine::gate::GateCheckout;
use tamma_engine::gateway::{Gateway, Upstream};
use tamma_engine::missing_content::MissingContent;
use tamma_engine::permission::PermissionRules;
use tamma_engine::process::ProcessRecords;
use tamma_engine::sandbox::{self, Sandbox, SandboxKind};
use tamma_engine::secret::{Redactor, Secret};
use tamma_engine::submission::SubmissionFacts;
use tamma_engine::worktree::Worktree;
use tamma_flow::activities::JobResult;
use tamma_store::{RunRecord, Store};
use tokio_util::sync::CancellationToken;

use crate::admission::{Admission, admit_run};
use crate::answered_questions;
use crate::clock::now;
use crate::config::WorkerConfig;
use crate::content_cache::ContentCache;
use crate::error::Error;
use crate::failed_setup::FailedSetup;
use crate::job_context::JobContext;
use crate::knowledge_context::Knowledge;
use crate::live_questions;
use crate::project_context::ProjectContext;
use crate::prompts::RenderedPrompt;
use crate::retry::retry_until_stopped;
use crate::run_budget::{BudgetReservation, WantedBudget, reserve_budget};
use crate::run_recorder::{PromptRecord, RunEnding, RunFacts, RunRecorder};
use crate::secret_use::{RunCredentials, record_run_secrets};
use crate::setup::{CommitToSetUp, set_up_checkout};
use crate::slot_queue::{SlotQueue, UsedSlot};
use crate::task_text::{RunLimits, task_text};

use self::message_log::MessageLog;
use self::sessions::unfinished_run;
pub(crate) use self::working_folder::WorkingFolder;

/// Longest quota pause that an agent waits out by itself. After a longer one, the task gives up its
/// slot.
const MAX_QUOTA_WAIT: Duration = Duration::from_secs(20);

/// Shortest time limit of an agent's shell commands, in seconds.
const MIN_SHELL_SECONDS: u32 = 600;

/// Name of the gateway's socket in the data directory.
const GATEWAY_SOCKET: &str = "gateway.sock";

/// Addition to the prompt after an unfinished run.
const UNFINISHED_RUN_NOTE: &str = "\n\nAn earlier run of this job did not finish. Its changes are in your working \
                    directory: review them and continue from there.\n";

/// Assignment of an agent run.
pub(crate) struct Assignment {
    pub(crate) slot: AgentSlot,
    pub(crate) mode: RunMode,
    pub(crate) prompt: RenderedPrompt,
    /// Prompt for the session of the last attempt, if the run repairs that attempt.
    pub(crate) continuation: Option<RenderedPrompt>,
    /// Time limit, in seconds.
    pub(crate) seconds: u32,
    /// Limit of the run within the task's budget.
    pub(crate) allowance: SpendLimit,
    /// Facts that its submission is checked against.
    pub(crate) facts: SubmissionFacts,
    /// Failure brief in the prompt, if any.
    pub(crate) brief: Option<String>,
    /// Gates that the agent can run, for runs that change files.
    pub(crate) gates: Option<Arc<dyn AgentGates>>,
    /// Callback that keeps the end of the run as soon as it is known.
    pub(crate) keep_end: Option<KeepRun>,
}

/// Callback that keeps a run, so that a crash of this worker does not repeat it.
pub(crate) type KeepRun = Arc<dyn Fn(AgentRun) -> BoxFuture<'static, ()> + Send + Sync>;

/// Assignment of an agent that plans or judges. Nothing that it writes is committed.
pub(crate) struct UncommittedAssignment {
    pub(crate) slot: AgentSlot,
    pub(crate) mode: RunMode,
    pub(crate) prompt: RenderedPrompt,
    /// Failure brief in the prompt, if any.
    pub(crate) brief: Option<String>,
}

/// Agent for a run, and its home directory.
pub(crate) struct AgentSlot {
    /// Tier, or the agent and model of a council member, a suggestion or a phase.
    pub(crate) selection: AgentSelection,
    /// Name of a separate home directory; `None` for the agent's home in this task.
    pub(crate) home: Option<String>,
}

impl From<Tier> for AgentSlot {
    fn from(tier: Tier) -> Self {
        AgentSelection::from(tier).into()
    }
}

impl From<AgentSelection> for AgentSlot {
    fn from(selection: AgentSelection) -> Self {
        Self { selection, home: None }
    }
}

/// Finished or failed run.
pub(crate) struct AgentRun {
    pub(crate) report: RunReport,
    /// Permissions that a person would grant with a yes, if the run ended with such a question.
    approval_subjects: Vec<String>,
    provider: Name,
    /// Messages of the agent, without secrets.
    pub(crate) messages: String,
}

impl AgentRun {
    /// Returns a run that never started.
    fn not_started(end: RunEnd, provider: Name) -> Self {
        let report = RunReport::not_started(end);
        Self { report, approval_subjects: Vec::new(), provider, messages: String::new() }
    }

    /// Converts a run that did not finish to a job result.
    fn into_failure(self) -> Result<JobResult, Error> {
        let Some(mut failure) = self.report.end.failure(&self.provider) else {
            return Err(Error::Stopped);
        };
        if failure.kind == FailureKind::Crashed
            && let Ok(reason) = crash_reason(failure.reason.as_str(), &self.report.stderr).parse()
        {
            failure.reason = reason;
        }
        let outcome = Outcome::Failed(failure);
        Ok(JobResult::finished(outcome).with_usage(self.report.usage))
    }
}

/// Returns the usage of a run that took place. If the agent reports none, its cost is unknown, and
/// not zero.
fn spent_usage(reported: Option<Usage>) -> Usage {
    reported.unwrap_or_default()
}

/// Returns the reason of a crash with the last line of stderr, which is often the cause.
pub(crate) fn crash_reason(reason: &str, stderr: &str) -> String {
    let reason = match stderr.lines().rev().find(|line| !line.trim().is_empty()) {
        Some(last) => format!("{reason}; last output: {}", last.trim()),
        None => reason.to_owned(),
    };
    reason.chars().take(Reason::MAX).collect()
}

/// Returns the agent of a run with its name: a tier's, a council seat's or a suggested one.
pub(crate) fn agent_for<'a>(
    project: &'a ProjectContext,
    selection: &AgentSelection,
) -> Result<(Name, &'a AgentRules), Error> {
    let missing = || {
        let tier = selection.tier;
        let agent = selection.agent.as_ref().unwrap_or(&project.rules.tiers.get(tier).agent);
        Error::Configuration(format!("agent `{agent}` for tier `{tier}` is not configured"))
    };
    let (name, agent) = project.rules.selected_agent(selection).ok_or_else(missing)?;
    Ok((name.parse().map_err(|_| missing())?, agent))
}

fn waiting_run(ctx: &JobContext) -> ProjectRun {
    let (priority, since) = (ctx.task.priority, ctx.task_loop.since);
    let run = WaitingRun { holder: ctx.run_id().to_string(), priority, since };
    ProjectRun { project: ctx.project(), run }
}

/// Runs agents in their sandboxes, and records their runs. Clones share the slots.
#[derive(Clone)]
pub(crate) struct AgentRunner {
    config: Arc<WorkerConfig>,
    store: Store,
    knowledge: Knowledge,
    contents: ContentCache,
    processes: ProcessRecords,
    /// Proxy through which agents reach models and agent tools.
    gateway: Gateway,
    /// Network access of signed-in agents, and of setups.
    egress: EgressProxy,
    /// Limit on read-only agents, which the agent task queue does not count.
    read_only_slots: SlotQueue,
    /// Limit on the other agents in all namespaces together.
    agent_slots: SlotQueue,
}

impl AgentRunner {
    /// Opens the gateway for agents.
    pub(crate) async fn open(
        config: Arc<WorkerConfig>,
        store: Store,
        (knowledge, contents): (Knowledge, ContentCache),
        (processes, egress): (ProcessRecords, EgressProxy),
    ) -> Result<Self, Error> {
        let gateway = Gateway::open(Some(&config.data_dir.join(GATEWAY_SOCKET))).await?;
        let read_only_slots = SlotQueue::new(config.slots);
        let agent_slots = SlotQueue::new(config.slots);
        Ok(Self {
            config,
            store,
            knowledge,
            contents,
            processes,
            gateway,
            egress,
            read_only_slots,
            agent_slots,
        })
    }

    /// Waits for a free slot for an agent of the agent pool, in the order of priority and of the turns of
    /// projects. The task queue of each namespace has as many slots, so agents of a single namespace never
    /// wait here.
    pub(crate) async fn agent_slot(&self, ctx: &JobContext) -> Result<UsedSlot, Error> {
        self.agent_slots.acquire(waiting_run(ctx), &ctx.stop).await
    }

    /// Waits for a free slot for an agent with read-only access, in the order of priority and of the turns
    /// of projects.
    pub(crate) async fn read_only_slot(
        &self,
        ctx: &JobContext,
        stop: &CancellationToken,
    ) -> Result<UsedSlot, Error> {
        self.read_only_slots.acquire(waiting_run(ctx), stop).await
    }

    /// Runs an agent that plans or judges, once a slot for such agents is free.
    ///
    /// An agent that judges gets a disposable checkout, which is removed afterwards.
    pub(crate) async fn run_uncommitted(
        &self,
        ctx: &JobContext,
        project: &ProjectContext,
        worktree: &Worktree,
        assignment: UncommittedAssignment,
    ) -> Result<AgentRun, Error> {
        let UncommittedAssignment { slot, mode, prompt, brief } = assignment;
        let _slot = self.read_only_slot(ctx, &ctx.stop).await?;
        let seconds = read_only_timeout(&project.rules, mode);
        let task_loop = &ctx.task_loop;
        let limit = budget::task_limit(task_loop.risk_level(), &task_loop.granted, &ctx.rules);
        let allowance = budget::remaining(&task_loop.spend, &limit);
        let mut assignment = Assignment {
            slot,
            mode,
            prompt,
            continuation: None,
            seconds,
            allowance,
            facts: self.submission_facts(ctx, worktree, mode).await?,
            brief,
            gates: None,
            keep_end: None,
        };
        if !matches!(mode, RunMode::Validate | RunMode::Advise | RunMode::Conclude) {
            return self.run(ctx, project, worktree.into(), assignment).await;
        }
        let checkout = tokio::select! {
            checkout = GateCheckout::for_judging(worktree.mirror(), ctx.task.id) => checkout?,
            () = ctx.stop.cancelled() => return Err(Error::Stopped),
        };
        let run = match self.prepare_judging(ctx, project, worktree, &checkout, mode).await {
            Ok(failed_setup) => {
                if let Some(failed) = failed_setup {
                    let text = &mut assignment.prompt.text;
                    text.push_str("\n\n");
                    text.push_str(&failed.describe_for_agent());
                }
                self.run(ctx, project, (&checkout).into(), assignment).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = checkout.remove().await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(task = %ctx.task.id, error, "failed to remove a disposable checkout");
        }
        run
    }

    /// Checks out the judged commit for an agent that judges it, with the instructions of the base
    /// commit. Validators also get the dependencies, because they run things. Returns the failure
    /// of a setup that the change may have caused.
    async fn prepare_judging(
        &self,
        ctx: &JobContext,
        project: &ProjectContext,
        worktree: &Worktree,
        checkout: &GateCheckout,
        mode: RunMode,
    ) -> Result<Option<FailedSetup>, Error> {
        let base = ctx.base()?;
        let commit = ctx.judged_commit().unwrap_or(base);
        checkout.check_out(commit).await?;
        let mut failed_setup = None;
        if mode == RunMode::Validate && ctx.rules.setup.command.is_some() {
            let host = (&*self.config, &self.processes, &self.egress, &self.store);
            let touched = worktree.changed_files(base, commit).await?;
            let has_other_locks = ctx.rules.setup.covers(touched.keys().map(String::as_str));
            let target = CommitToSetUp { commit, has_other_locks };
            match set_up_checkout(host, ctx, project, checkout, target).await {
                Err(Error::Setup(failed)) if failed.is_repairable => failed_setup = Some(failed),
                ended => ended?,
            }
        }
        checkout.restore_instructions(base).await?;
        Ok(failed_setup)
    }

    /// Returns the facts that the submission of a read-only run is checked against.
    async fn submission_facts(
        &self,
        ctx: &JobContext,
        worktree: &Worktree,
        mode: RunMode,
    ) -> Result<SubmissionFacts, Error> {
        let task_criteria = ctx.task.acceptance_criteria.len();
        let mut facts = SubmissionFacts { task_criteria, ..SubmissionFacts::default() };
        if mode == RunMode::Plan {
            let files = worktree.files_at(ctx.base()?).await?;
            facts.path_exists = Arc::new(move |path| files.contains(path));
        }
        if mode == RunMode::Validate
            && let Some(plan) = &ctx.task_loop.plan
        {
            let plan = self.contents.plan(ctx.task.id, plan.hash).await?;
            let criteria = plan.criteria_of(&ctx.task).len();
            facts.criteria = (0..criteria).map(criterion_id).collect();
        }
        Ok(facts)
    }

    /// Runs an agent, and returns once all its processes have ended.
    #[expect(clippy::too_many_lines, reason = "one run, in the order it happens")]
    pub(crate) async fn run(
        &self,
        ctx: &JobContext,
        project: &ProjectContext,
        folder: WorkingFolder<'_>,
        assignment: Assignment,
    ) -> Result<AgentRun, Error> {
        let Assignment {
            slot,
            mode,
            prompt,
            continuation,
            seconds,
            allowance,
            facts,
            brief,
            gates,
            keep_end,
        } = assignment;
        let AgentSlot { selection, home } = slot;
        let (name, rules) = agent_for(project, &selection)?;
        let provider: Name = project
            .rules
            .selected_provider(&selection)
            .parse()
            .map_err(|_| Error::Configuration("provider name is missing".to_owned()))?;
        // It may have been stopped while it waited for a clone. The reservation is the later attempt's then.
        if ctx.stop.is_cancelled() {
            return Err(Error::Stopped);
        }
        let operator = &self.config.operator;
        let _lease = match admit_run(&self.store, ctx, provider.as_str(), operator).await? {
            Admission::Granted(lease) => lease,
            Admission::ProviderBlocked { until } => {
                return Ok(AgentRun::not_started(RunEnd::Quota { until }, provider));
            }
        };
        let upstream = self.upstream(rules);
        let model = project.rules.selected_model(&selection).map(str::to_owned);
        let wanted = WantedBudget {
            allowance,
            estimate: project.rules.tiers.get(selection.tier).typical_run_usd,
            is_metered: upstream.is_some(),
        };
        if let Some(model) = &model
            && wanted.is_metered
            && wanted.limits_dollars(ctx)
            && !prices::is_priced(model, &project.rules.prices)
        {
            let end = RunEnd::Unpriced { model: model.clone() };
            return Ok(AgentRun::not_started(end, provider));
        }
        if let Some(model) = &model
            && !self.config.operator.allows_model(model)
        {
            let reason = format!("the operator has not allowed the model `{model}`");
            return Ok(AgentRun::not_started(RunEnd::Unavailable { reason }, provider));
        }
        let answers = self.earlier_answers(ctx, mode).await?;
        let allowed = answered_questions::allowed_subjects(&answers);
        let kind = match sandbox::choose(project.rules.engines.sandbox) {
            Ok(kind) => kind,
            Err(error) => {
                let reason = error.to_string();
                return Ok(AgentRun::not_started(RunEnd::Unavailable { reason }, provider));
            }
        };
        let mut budget = match reserve_budget(&self.store, ctx, provider.as_str(), wanted).await? {
            BudgetReservation::Reserved(budget) => budget,
            BudgetReservation::Exhausted => {
                return Ok(AgentRun::not_started(RunEnd::OverBudget, provider));
            }
            BudgetReservation::ProviderBlocked(until) => {
                return Ok(AgentRun::not_started(RunEnd::Quota { until }, provider));
            }
        };
        let at = now();
        let path = folder.path();
        let permissions = PermissionRules::new(&path, mode, &ctx.rules.permissions, allowed)
            .map_err(|error| Error::Configuration(error.to_string()))?
            .in_sandbox(kind);
        let home = home.unwrap_or_else(|| match mode {
            RunMode::Implement => name.to_string(),
            // Agents can write their home, and must not instruct those of another role.
            _ => format!("{mode}-{name}"),
        });
        let home = self.agent_home(ctx, &home);
        let had_home = home.exists();
        let is_signed_in = upstream.is_none() && kind != SandboxKind::Off;
        let mut credentials = Vec::new();
        if is_signed_in {
            // An earlier attempt could change the home meanwhile.
            self.processes.take_over(ctx.run_id(), self.config.timeouts.stop).await?;
            credentials = match self.prepare_signed_in_home(rules, &home).await {
                Ok(credentials) => credentials,
                Err(reason) => {
                    return Ok(AgentRun::not_started(RunEnd::Unavailable { reason }, provider));
                }
            };
        }
        let signed_in: Vec<PathBuf> = match (&upstream, kind, self.config.environment.get("HOME")) {
            // Without a sandbox, the agent uses the home directory itself.
            (None, SandboxKind::Off, Some(own)) => {
                rules.home.iter().map(|name| Path::new(own).join(name)).collect()
            }
            _ => credentials.clone(),
        };
        let setup_home = folder.setup_home(&self.config, ctx.task.id);
        let sandbox = self.sandbox(
            project,
            (kind, &path, &setup_home),
            &permissions,
            mode,
            (credentials, &home, upstream.is_some()),
        );
        let sandbox = match kind {
            SandboxKind::Off => sandbox,
            SandboxKind::Bubblewrap | SandboxKind::Landlock | SandboxKind::Seatbelt => {
                let git = folder.private_git(&self.task_homes(ctx), mode).await?;
                Sandbox { git, ..sandbox }
            }
        };
        let attached = sandbox.git.clone().filter(|_| !kind.replaces_files());
        let before = unfinished_run(budget.latest_run.take(), ctx, mode);
        let left = if before.is_some() && !mode.is_read_only() && mode != RunMode::Validate {
            UNFINISHED_RUN_NOTE
        } else {
            ""
        };
        let same = |run: &RunRecord| run.agent == name.as_str() && had_home;
        let answers_text = answered_questions::format_answers(&answers);
        let (last, continuation) = match (before, continuation) {
            (Some(before), _) => (Some(before), None),
            (None, Some(continuation)) => {
                (self.last_attempt(ctx, selection.tier, rules).await?, Some(continuation))
            }
            (None, None) => (None, None),
        };
        let resume = match last.filter(same) {
            Some(run) if self.requested(ctx, &run, model.as_deref()).await? => run.session,
            _ => None,
        };
        let recorded = PromptRecord {
            name: prompt.name.to_string(),
            template: prompt.template,
            set: ctx.task_loop.pin.and_then(|pin| pin.prompts),
            continuation: continuation.as_ref().map(|it| (it.name.to_string(), it.template)),
        };
        let resume_prompt = continuation.map(|it| it.text + &answers_text);
        let secrets = self.secrets(rules, upstream.as_ref());
        let agent_rules = (name.as_str(), rules);
        let credentials = RunCredentials { is_metered: upstream.is_some(), files: &signed_in };
        record_run_secrets(&self.store, &self.config, ctx, agent_rules, credentials).await?;
        let missing = match ctx.task_loop.pin {
            Some(pin) => folder.missing_content(pin.base).await?,
            None => MissingContent::default(),
        };
        let missing_text = missing.for_agents().unwrap_or_default();
        let limits = RunLimits {
            mode,
            brief: brief.as_deref(),
            seconds,
            allowance: budget.limit,
            protected: &permissions.protected_patterns(),
            denied: &permissions.denied_commands(),
            answers: &answers_text,
            missing_content: &missing_text,
        };
        let services = ToolServices {
            task_text: task_text(&self.store, &self.contents, ctx, &limits).await?,
            gates,
            ask_person: live_questions::ask_person(
                &self.store,
                ctx,
                rules.question_wait_seconds,
                seconds,
            ),
        };
        let mut request = RunRequest {
            run: ctx.run_id(),
            now: at,
            worktree: path.clone(),
            prompt: prompt.text + &missing_text + &answers_text + left,
            mode,
            time_limit: Duration::from_secs(u64::from(seconds)),
            shell_limit: shell_limit(&ctx.rules, seconds),
            spend_limit: budget.limit,
            protected_paths: permissions.protected_patterns(),
            denied_commands: permissions.denied_commands(),
            ask_commands: permissions.ask_commands(),
            policy: permissions.clone().into_policy(),
            model: model.clone(),
            effort: effort(&project.rules, mode, selection.tier).map(|effort| effort.to_string()),
            resume,
            resume_prompt,
            home,
            sandbox: Some(sandbox),
            access: Some(ModelAccess {
                gateway: self.gateway.clone(),
                upstream,
                prices: project.rules.prices.clone(),
                models: self.config.operator.models.clone(),
                budget_limits: budget.bounds.clone(),
                warn_percent: ctx.rules.budget.warn_percent,
            }),
            search: self.knowledge.search(ctx.project()),
            facts,
            services,
            timeouts: self.config.timeouts,
            keep_end: None,
        };
        let facts = RunFacts {
            run: request.run,
            at,
            agent: name.to_string(),
            model,
            tier: Some(selection.tier),
            mode,
            worker: self.config.name.clone(),
            prompt: Some(recorded),
            missing_content: missing.summary(),
            progress_clock: ctx.rules.scrum_master.task_loop.progress_clock(at),
            iteration: ctx.iteration(),
            worktree: request.worktree.clone(),
        };
        let redactor = Redactor::new(secrets);
        let redact = {
            let redactor = redactor.clone();
            Arc::new(move |text: &str| redactor.redact(text).into_owned())
        };
        let redact_messages = redact.clone();
        let recorder = RunRecorder::start(
            &self.store,
            &self.config.objects,
            &self.config.data_dir,
            facts,
            redact,
        )
        .await?;
        let messages = MessageLog::default();
        let observer = messages.observe(recorder.observer());
        request.keep_end = keep_end.map(|keep| -> KeepEnd {
            let (messages, redactor) = (messages.clone(), redactor.clone());
            let provider = provider.clone();
            Arc::new(move |report: RunReport| {
                let messages = redactor.redact(&messages.text()).into_owned();
                let mut report = report.redacted(&redactor);
                report.usage = Some(spent_usage(report.usage));
                let (provider, approval_subjects) = (provider.clone(), Vec::new());
                keep(AgentRun { report, approval_subjects, provider, messages })
            })
        });
        let behind = request.access.as_ref().is_some_and(|access| access.upstream.is_some());
        let private_home = is_signed_in.then_some(request.home.as_path());
        let agent = self.agent(rules, behind, private_home, &setup_home);
        if let Some(git) = &attached {
            git.attach(&path).await?;
        }
        let report = agent.run(&request, &self.processes, &observer, &ctx.stop).await;
        if let Some(git) = &attached
            && let Err(error) = git.detach(&path).await
        {
            // The next use of the folder repairs the link.
            let error = &error as &dyn std::error::Error;
            tracing::warn!(run = %request.run, error, "failed to detach the private git directory");
        }
        let mut report = report?.redacted(&redactor);
        drop(observer);
        budget.stop_renewal().await;
        let ending = RunEnding::from(&report.end);
        if let Err(error) = recorder.finish(ending, report.usage, report.metered).await {
            tracing::warn!(%error, run = %request.run, "failed to save run record");
        }
        report.usage = Some(spent_usage(report.usage));
        if report.end == RunEnd::Cancelled {
            return Err(Error::Stopped);
        }
        ctx.check_not_abandoned()?;
        let approval_subjects = match &report.end {
            RunEnd::QuestionAsked { question } => {
                let request = question.permission.as_ref();
                request.map(|request| permissions.subjects(request)).unwrap_or_default()
            }
            _ => Vec::new(),
        };
        let messages = redact_messages(&messages.text());
        Ok(AgentRun { report, approval_subjects, provider, messages })
    }

    /// Converts an unfinished run to a job result: a question for a person, or a failure.
    pub(crate) async fn handle_unfinished(
        &self,
        ctx: &JobContext,
        run: AgentRun,
    ) -> Result<JobResult, Error> {
        let RunEnd::QuestionAsked { question } = &run.report.end else {
            return run.into_failure();
        };
        let text = answered_questions::format_question(
            &question.question,
            &question.choices,
            &run.approval_subjects,
        );
        let stop = &ctx.stop;
        let default = match &question.default {
            Some(default) => {
                Some(retry_until_stopped(stop, || self.store.save_text(default)).await?)
            }
            None => None,
        };
        let question = retry_until_stopped(stop, || self.store.save_text(&text)).await?;
        let outcome = Outcome::QuestionAsked { question, default_answer: default };
        Ok(JobResult::finished(outcome).with_usage(run.report.usage))
    }

    /// Returns answered questions for runs that continue the work. A learning run has them in its
    /// record, and they grant it no permissions.
    async fn earlier_answers(
        &self,
        ctx: &JobContext,
        mode: RunMode,
    ) -> Result<Vec<answered_questions::AnsweredQuestion>, Error> {
        if mode == RunMode::Learn {
            Ok(Vec::new())
        } else {
            answered_questions::load(&self.store, ctx).await
        }
    }

    /// Returns the provider that the gateway calls, if the worker has its key.
    fn upstream(&self, rules: &AgentRules) -> Option<Upstream> {
        let key = self.config.environment.get(&rules.key).filter(|key| !key.is_empty())?;
        let (base, key) = (rules.upstream.clone(), Secret::new(key));
        Some(Upstream { base_url: base, key, max_quota_wait: MAX_QUOTA_WAIT })
    }

    /// Returns the secrets of a run, to redact them from its records.
    fn secrets(&self, rules: &AgentRules, upstream: Option<&Upstream>) -> Vec<Secret> {
        let own = rules.env.values().filter(|value| !value.contains("{{"));
        let inherited =
            rules.inherit.iter().filter(|name| !COMMON_VARIABLES.contains(&name.as_str()));
        let inherited = inherited.filter_map(|name| self.config.environment.get(name));
        let secrets = own.chain(inherited).map(Secret::new);
        secrets.chain(upstream.map(|upstream| upstream.key.clone())).collect()
    }

    /// Returns the agent's home directory for this task. Later runs reuse it.
    fn agent_home(&self, ctx: &JobContext, name: &str) -> PathBuf {
        self.task_homes(ctx).join(name)
    }

    /// Returns the directory with the home directories of this task.
    fn task_homes(&self, ctx: &JobContext) -> PathBuf {
        self.config.data_dir.join("homes").join(ctx.task.id.to_string())
    }
}

/// Returns the time limit of a read-only run, in seconds.
fn read_only_timeout(rules: &Rules, mode: RunMode) -> u32 {
    let limits = &rules.scrum_master.task_loop;
    match mode {
        RunMode::Plan | RunMode::Split => limits.planning_seconds(),
        RunMode::Advise | RunMode::Conclude => limits.council_seconds(),
        RunMode::Validate | RunMode::Learn => limits.requirements_seconds(),
        RunMode::Implement | RunMode::Phase => limits.implementation_seconds(),
    }
}

/// Returns the reasoning effort of a run: that of its role, or that of its tier.
fn effort(rules: &Rules, mode: RunMode, tier: Tier) -> Option<Effort> {
    let roles = &rules.roles.effort;
    let role = match mode {
        RunMode::Plan | RunMode::Split => roles.planner,
        RunMode::Implement | RunMode::Phase => None,
        RunMode::Validate => roles.validator,
        RunMode::Advise | RunMode::Conclude => roles.council,
        RunMode::Learn => roles.learning,
    };
    role.or(rules.tiers.get(tier).effort)
}

/// Returns the time that one shell command of an agent can take: enough for the slowest gate, within
/// the run.
fn shell_limit(rules: &Rules, run_seconds: u32) -> Duration {
    let slowest = rules.gates.values().map(|gate| gate.timeout_seconds).max();
    let seconds = slowest.unwrap_or_default().max(MIN_SHELL_SECONDS).min(run_seconds);
    Duration::from_secs(u64::from(seconds))
}

#[cfg(test)]
mod tests {
    use tamma_core::cost::{Cost, Usd};

    use super::*;

    #[test]
    fn a_run_without_a_report_has_an_unknown_cost() {
        assert_eq!(spent_usage(None).cost, Cost::Unknown);
        let free = Usage { cost: Cost::Known(Usd::ZERO), ..Usage::default() };
        assert_eq!(spent_usage(Some(free)), free);
    }

    #[test]
    fn planner_council_and_validator_have_their_own_time_limits() {
        let mut rules = Rules::default();
        let timeouts = &mut rules.scrum_master.task_loop.timeouts;
        (timeouts.requirements, timeouts.planning, timeouts.council) = (60, 900, 600);
        let modes = [RunMode::Validate, RunMode::Plan, RunMode::Advise, RunMode::Conclude];
        assert_eq!(modes.map(|mode| read_only_timeout(&rules, mode)), [60, 900, 600, 600]);
    }

    #[test]
    fn effort_of_a_role_overrides_that_of_its_tier() {
        let mut rules = Rules::default();
        assert_eq!(effort(&rules, RunMode::Plan, Tier::Moderate), None);
        rules.tiers.moderate.effort = Some(Effort::Medium);
        rules.roles.effort.planner = Some(Effort::High);
        assert_eq!(effort(&rules, RunMode::Plan, Tier::Moderate), Some(Effort::High));
        assert_eq!(effort(&rules, RunMode::Implement, Tier::Moderate), Some(Effort::Medium));
        assert_eq!(effort(&rules, RunMode::Validate, Tier::Simple), None);
    }
}
