//! Agent run of one job: its inputs and its result.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tamma_core::budget::{self, Spend, SpendLimit};
use tamma_core::cost::Tokens;
use tamma_core::failure::FailureKind;
use tamma_core::ids::Name;
use tamma_core::plan::criterion_id;
use tamma_core::prices;
use tamma_core::rules::{AgentRules, CouncilMember, Effort, Rules};
use tamma_core::task_loop::{Outcome, Timestamp};
use tamma_core::tier::Tier;
use tamma_engine::agent::{CodingAgent, ModelAccess, RunEnd, RunMode, RunReport, RunRequest};
use tamma_engine::agent_tools::{AgentGates, ToolServices};
use tamma_engine::gateway::{BudgetLimit, BudgetScope, Gateway, Upstream};
use tamma_engine::permission::{PermissionEffect, PermissionPolicy, PermissionRules};
use tamma_engine::process::ProcessRecords;
use tamma_engine::sandbox::{self, Network, Sandbox};
use tamma_engine::secret::{Redactor, Secret};
use tamma_engine::submission::SubmissionFacts;
use tamma_engine::worktree::Worktree;
use tamma_flow::activities::JobResult;
use tamma_store::{LineFilter, LineKind, LinePosition, RunRecord, Store};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

use crate::admission::{Admission, admit_run};
use crate::answered_questions;
use crate::clock::now;
use crate::config::WorkerConfig;
use crate::error::Error;
use crate::job_context::JobContext;
use crate::knowledge_context::Knowledge;
use crate::live_questions;
use crate::project_context::ProjectContext;
use crate::prompts::RenderedPrompt;
use crate::retry::retry_until_stopped;
use crate::run_recorder::{PromptRecord, REQUESTED_MODEL, RunEnding, RunFacts, RunRecorder};
use crate::task_text::{RunLimits, task_text};
use crate::toolchains;

/// Longest quota pause that an agent waits out by itself. After a longer one, the task gives up its
/// slot.
const MAX_QUOTA_WAIT: Duration = Duration::from_secs(20);

/// Shortest time limit of an agent's commands, in seconds.
const MIN_SHELL_SECONDS: u32 = 120;

/// Name of the gateway's socket in the data directory.
const GATEWAY_SOCKET: &str = "gateway.sock";

/// Addition to the prompt after an unfinished run.
const UNFINISHED_RUN_NOTE: &str = "\n\nAn earlier run of this job did not finish. Its changes are in your working \
                    directory: review them and continue from there.\n";

/// Variables that every program needs.
pub(crate) const BASE_VARIABLES: [&str; 4] = ["PATH", "HOME", "LANG", "TERM"];

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
}

/// Working directory of an agent.
#[derive(Clone, Copy)]
pub(crate) struct WorkingFolder<'a> {
    path: &'a Path,
    /// Repository that the directory belongs to.
    repository: Option<&'a Path>,
}

impl<'a> WorkingFolder<'a> {
    /// Returns an empty directory without a repository.
    pub(crate) fn empty(path: &'a Path) -> Self {
        Self { path, repository: None }
    }
}

impl<'a> From<&'a Worktree> for WorkingFolder<'a> {
    fn from(worktree: &'a Worktree) -> Self {
        Self { path: worktree.path(), repository: Some(worktree.repository()) }
    }
}

/// Agent for a run, and its home directory.
pub(crate) struct AgentSlot {
    /// Tier, or a council member with its own agent and model.
    pub(crate) member: CouncilMember,
    /// Name of a separate home directory; `None` for the agent's home in this task.
    pub(crate) home: Option<String>,
}

impl From<Tier> for AgentSlot {
    fn from(tier: Tier) -> Self {
        CouncilMember::from(tier).into()
    }
}

impl From<CouncilMember> for AgentSlot {
    fn from(member: CouncilMember) -> Self {
        Self { member, home: None }
    }
}

/// Finished or failed run.
pub(crate) struct AgentRun {
    pub(crate) report: RunReport,
    /// Permissions that a person would grant with a yes, if the run ended with such a question.
    approval_subjects: Vec<String>,
    provider: Name,
}

impl AgentRun {
    /// Returns a run that never started.
    fn not_started(end: RunEnd, provider: Name) -> Self {
        let report = RunReport::not_started(end);
        Self { report, approval_subjects: Vec::new(), provider }
    }

    /// Converts a run that did not finish to a job result.
    fn into_failure(self) -> Result<JobResult, Error> {
        let Some(mut failure) = self.report.end.failure(&self.provider) else {
            return Err(Error::Stopped);
        };
        // The last line of stderr is often the cause.
        if failure.kind == FailureKind::Crashed
            && let Some(last) =
                self.report.stderr.lines().rev().find(|line| !line.trim().is_empty())
            && let Ok(reason) = format!("{}; last output: {}", failure.reason, last.trim())
                .chars()
                .take(tamma_core::ids::Reason::MAX)
                .collect::<String>()
                .parse()
        {
            failure.reason = reason;
        }
        let outcome = Outcome::Failed(failure);
        Ok(JobResult::finished(outcome).with_usage(self.report.usage))
    }
}

/// Returns the agent of a council seat or tier, with its name.
pub(crate) fn agent_for<'a>(
    project: &'a ProjectContext,
    member: &CouncilMember,
) -> Result<(Name, &'a AgentRules), Error> {
    let missing = || {
        let agent = member.agent.as_ref().unwrap_or(&project.rules.tiers.get(member.tier).agent);
        let tier = member.tier;
        Error::Configuration(format!("agent `{agent}` of tier `{tier}` is not defined"))
    };
    let (name, agent) = project.rules.member_agent(member).ok_or_else(missing)?;
    Ok((name.parse().map_err(|_| missing())?, agent))
}

/// Selects variables from an environment.
pub(crate) fn select_variables<'a>(
    environment: &BTreeMap<String, String>,
    names: impl IntoIterator<Item = &'a (impl AsRef<str> + ?Sized + 'a)>,
) -> BTreeMap<String, String> {
    let pair = |name: &str| Some((name.to_owned(), environment.get(name)?.clone()));
    names.into_iter().filter_map(|name| pair(name.as_ref())).collect()
}

/// Runs agents in their sandboxes, and records their runs. Clones share the slots.
#[derive(Clone)]
pub(crate) struct AgentRunner {
    config: Arc<WorkerConfig>,
    store: Store,
    knowledge: Knowledge,
    processes: ProcessRecords,
    /// Proxy through which agents reach models and agent tools.
    gateway: Gateway,
    /// Limit on read-only agents, which the agent task queue does not count.
    read_only_slots: Arc<Semaphore>,
}

impl AgentRunner {
    /// Opens the gateway for agents.
    pub(crate) async fn open(
        config: Arc<WorkerConfig>,
        store: Store,
        knowledge: Knowledge,
        processes: ProcessRecords,
    ) -> Result<Self, Error> {
        let gateway = Gateway::open(Some(&config.data_dir.join(GATEWAY_SOCKET))).await?;
        let read_only_slots = Arc::new(Semaphore::new(config.slots.max(1)));
        Ok(Self { config, store, knowledge, processes, gateway, read_only_slots })
    }

    /// Waits for a free slot for an agent with read-only access.
    pub(crate) async fn read_only_slot(
        &self,
        stop: &CancellationToken,
    ) -> Result<SemaphorePermit<'_>, Error> {
        tokio::select! {
            slot = self.read_only_slots.acquire() => slot.map_err(|_| Error::Stopped),
            () = stop.cancelled() => Err(Error::Stopped),
        }
    }

    /// Runs an agent with read-only access, once a slot for such agents is free.
    pub(crate) async fn run_read_only(
        &self,
        ctx: &JobContext,
        project: &ProjectContext,
        worktree: &Worktree,
        slot: impl Into<AgentSlot>,
        mode: RunMode,
        prompt: RenderedPrompt,
    ) -> Result<AgentRun, Error> {
        let slot = slot.into();
        let _slot = self.read_only_slot(&ctx.stop).await?;
        let seconds = project.rules.scrum_master.task_loop.timeouts.requirements;
        let task_loop = &ctx.task_loop;
        let limit = budget::task_limit(task_loop.risk_level(), &task_loop.granted, &ctx.rules);
        let allowance = budget::remaining(&task_loop.spend, &limit);
        let assignment = Assignment {
            slot,
            mode,
            prompt,
            continuation: None,
            seconds,
            allowance,
            facts: self.submission_facts(ctx, worktree, mode).await?,
            brief: None,
            gates: None,
        };
        self.run(ctx, project, worktree.into(), assignment).await
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
            let (_, plan) = self.store.plan_by_hash(ctx.task.id, plan.hash).await?;
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
        } = assignment;
        let AgentSlot { member, home } = slot;
        let (name, rules) = agent_for(project, &member)?;
        let provider: Name = project
            .rules
            .member_provider(&member)
            .parse()
            .map_err(|_| Error::Configuration("provider name is missing".to_owned()))?;
        let _lease = match admit_run(&self.store, ctx, provider.as_str()).await? {
            Admission::Granted(lease) => lease,
            Admission::ProviderBlocked { until } => {
                return Ok(AgentRun::not_started(RunEnd::Quota { until }, provider));
            }
        };
        let at = now();
        let bounds = self.bounds(ctx, allowance, at).await?;
        if bounds.iter().any(is_reached) {
            return Ok(AgentRun::not_started(RunEnd::OverBudget, provider));
        }
        let answers = self.earlier_answers(ctx, mode).await?;
        let allowed = answered_questions::allowed_subjects(&answers);
        let permissions = PermissionRules::new(folder.path, mode, &ctx.rules.permissions, allowed)
            .map_err(|error| Error::Configuration(error.to_string()))?;
        let upstream = self.upstream(rules);
        let home = self.agent_home(ctx, home.as_deref().unwrap_or(name.as_str()));
        let sandbox = match self.sandbox(
            project,
            folder,
            &permissions,
            mode,
            (rules, &home, upstream.is_some()),
        ) {
            Ok(sandbox) => sandbox,
            Err(error) => {
                let reason = error.to_string();
                return Ok(AgentRun::not_started(RunEnd::Unavailable { reason }, provider));
            }
        };
        let model = project.rules.member_model(&member).map(str::to_owned);
        if let Some(model) = &model
            && upstream.is_some()
            && bounds.iter().any(|bound| bound.limit.usd.is_some())
            && !prices::is_priced(model, &project.rules.prices)
        {
            let end = RunEnd::Unpriced { model: model.clone() };
            return Ok(AgentRun::not_started(end, provider));
        }
        let before = self.last_unfinished_run(ctx, mode).await?;
        let left =
            if before.is_some() && mode == RunMode::Implement { UNFINISHED_RUN_NOTE } else { "" };
        let same = |run: &RunRecord| run.agent == name.as_str() && home.exists();
        let answers_text = answered_questions::format_answers(&answers);
        let (last, continuation) = match (before, continuation) {
            (Some(before), _) => (Some(before), None),
            (None, Some(continuation)) => {
                (self.last_attempt(ctx, member.tier, rules).await?, Some(continuation))
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
        };
        let resume_prompt = continuation.map(|it| it.text + &answers_text);
        let secrets = self.secrets(rules, upstream.as_ref());
        let limits = RunLimits {
            mode,
            brief: brief.as_deref(),
            seconds,
            allowance,
            protected: &permissions.protected_patterns(),
            denied: &permissions.denied_commands(),
            answers: &answers_text,
        };
        let services = ToolServices {
            task_text: task_text(&self.store, ctx, &limits).await?,
            gates,
            ask_person: live_questions::ask_person(
                &self.store,
                ctx,
                rules.question_wait_seconds,
                seconds,
            ),
        };
        let subjects = Arc::<Mutex<Vec<String>>>::default();
        let request = RunRequest {
            run: ctx.run_id(),
            now: at,
            worktree: folder.path.to_owned(),
            prompt: prompt.text + &answers_text + left,
            mode,
            time_limit: Duration::from_secs(u64::from(seconds)),
            spend_limit: allowance,
            protected_paths: permissions.protected_patterns(),
            denied_commands: permissions.denied_commands(),
            ask_commands: permissions.ask_commands(),
            policy: recording_policy(permissions, subjects.clone()),
            model: model.clone(),
            effort: effort(&project.rules, mode, member.tier).map(|effort| effort.to_string()),
            resume,
            resume_prompt,
            home,
            sandbox: Some(sandbox),
            access: Some(ModelAccess {
                gateway: self.gateway.clone(),
                upstream,
                prices: project.rules.prices.clone(),
                budget_limits: bounds,
                warn_percent: ctx.rules.budget.warn_percent,
            }),
            search: self.knowledge.search(ctx.project()),
            facts,
            services,
            shell_seconds: shell_seconds(&ctx.rules),
            timeouts: self.config.timeouts,
        };
        let facts = RunFacts {
            run: request.run,
            at,
            agent: name.to_string(),
            model,
            tier: Some(member.tier),
            mode,
            worker: self.config.name.clone(),
            prompt: Some(recorded),
        };
        let redactor = Redactor::new(secrets);
        let redact = Arc::new(move |text: &str| redactor.redact(text).into_owned());
        let recorder = RunRecorder::start(
            &self.store,
            &self.config.objects,
            &self.config.data_dir,
            facts,
            redact,
        )
        .await?;
        let observer = recorder.observer();
        let behind = request.access.as_ref().is_some_and(|access| access.upstream.is_some());
        let agent = self.agent(rules, behind);
        let report = agent.run(&request, &self.processes, &observer, &ctx.stop).await?;
        drop(observer);
        let ending = RunEnding::from(&report.end);
        if let Err(error) = recorder.finish(ending, report.usage, report.metered).await {
            tracing::warn!(%error, run = %request.run, "failed to save run record");
        }
        if report.end == RunEnd::Cancelled {
            return Err(Error::Stopped);
        }
        Ok(AgentRun { report, approval_subjects: copy_locked(&subjects), provider })
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

    /// Returns the spending limits of the run, the project and the current day.
    async fn bounds(
        &self,
        ctx: &JobContext,
        allowance: SpendLimit,
        at: Timestamp,
    ) -> Result<Vec<BudgetLimit>, Error> {
        let mut bounds = vec![BudgetLimit {
            scope: BudgetScope::Task,
            limit: allowance,
            spent: Spend::default(),
        }];
        let project = ctx.project();
        let midnight = at.date_naive().and_time(chrono::NaiveTime::MIN).and_utc();
        let budget = &ctx.rules.budget;
        for (whose, usd, since) in [
            (BudgetScope::Project, budget.project_usd, Timestamp::UNIX_EPOCH),
            (BudgetScope::Day, budget.day_usd, midnight),
        ] {
            if usd.is_some() {
                let total = self.store.usage_since(project, since).await?;
                let spent = Spend { usd: total.usd, tokens: total.tokens, estimated: false };
                bounds.push(BudgetLimit {
                    scope: whose,
                    limit: SpendLimit { usd, tokens: None },
                    spent,
                });
            }
        }
        Ok(bounds)
    }

    /// Builds the agent with its environment. The provider's key stays in the gateway.
    fn agent(&self, rules: &AgentRules, behind_gateway: bool) -> CodingAgent {
        let mut agent = CodingAgent::from_rules(rules, &self.config.environment);
        if behind_gateway {
            agent.inherited.remove(&rules.key);
            agent.inherited.extend(toolchains::variables(&self.config.environment));
        }
        agent
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
            rules.inherit.iter().filter(|name| !BASE_VARIABLES.contains(&name.as_str()));
        let inherited = inherited.filter_map(|name| self.config.environment.get(name));
        let secrets = own.chain(inherited).map(Secret::new);
        secrets.chain(upstream.map(|upstream| upstream.key.clone())).collect()
    }

    /// Returns the agent's home directory for this task. Later runs reuse it.
    fn agent_home(&self, ctx: &JobContext, name: &str) -> PathBuf {
        self.config.data_dir.join("homes").join(ctx.task.id.to_string()).join(name)
    }

    /// Builds the sandbox of an agent.
    fn sandbox(
        &self,
        project: &ProjectContext,
        folder: WorkingFolder<'_>,
        permissions: &PermissionRules,
        mode: RunMode,
        (rules, home, metered): (&AgentRules, &Path, bool),
    ) -> Result<Sandbox, sandbox::Error> {
        let own = self.config.environment.get("HOME").map(PathBuf::from);
        let below = |names: &[String]| {
            let own = own.clone();
            names.iter().filter_map(move |name| Some(own.as_ref()?.join(name))).collect::<Vec<_>>()
        };
        let network = match (metered, self.gateway.socket()) {
            (true, Some(socket)) => {
                Network::Gateway { port: self.gateway.address().port(), socket: socket.to_owned() }
            }
            _ => Network::Open { ports: Vec::new() },
        };
        Ok(Sandbox {
            kind: sandbox::choose(project.rules.engines.sandbox)?,
            launcher: self.config.launcher.clone(),
            worktree: folder.path.to_owned(),
            read_only: mode.is_read_only(),
            repository: folder.repository.map(Path::to_owned),
            home: home.to_owned(),
            readable: project
                .rules
                .engines
                .readable
                .iter()
                .map(PathBuf::from)
                .chain(toolchains::folders(&self.config.environment))
                .collect(),
            writable: if metered { Vec::new() } else { below(&rules.home) },
            protected: permissions.existing_protected_paths(),
            hidden: [self.config.data_dir.clone()]
                .into_iter()
                .chain(toolchains::secrets(&self.config.environment))
                .collect(),
            network,
        })
    }

    /// Returns the last run of the task if it had the same mode and did not finish. An agent can
    /// resume its session if its home directory is on this machine.
    async fn last_unfinished_run(
        &self,
        ctx: &JobContext,
        mode: RunMode,
    ) -> Result<Option<RunRecord>, Error> {
        // Council members must not continue each other's sessions, and learning runs are not
        // resumed.
        if matches!(mode, RunMode::Advise | RunMode::Conclude | RunMode::Learn) {
            return Ok(None);
        }
        let last = self.store.latest_run(ctx.task.id).await?;
        let over = Some(tamma_store::RunEnd::Finished);
        Ok(last.filter(|run| run.mode == mode.to_string() && run.end != over))
    }

    /// Returns whether a run was started with this model. With `None`, the agent chooses.
    async fn requested(
        &self,
        ctx: &JobContext,
        run: &RunRecord,
        model: Option<&str>,
    ) -> Result<bool, Error> {
        let filter = LineFilter {
            job_number: Some(run.number.job_number),
            attempt: Some(run.number.attempt),
            kinds: vec![LineKind::Note],
        };
        let first = self.store.lines(ctx.task.id, &filter, LinePosition::START, 1).await?;
        let data = first.into_iter().next().and_then(|line| line.data);
        Ok(match data.as_ref().and_then(|data| data.get(REQUESTED_MODEL)) {
            Some(requested) => requested.as_str() == model,
            // A run from before this was recorded.
            None => model.is_none_or(|model| run.model.as_deref() == Some(model)),
        })
    }

    /// Returns the last implementation run, if a repair in this tier can continue its session: same
    /// tier, finished, and less than half of the context used.
    async fn last_attempt(
        &self,
        ctx: &JobContext,
        tier: Tier,
        rules: &AgentRules,
    ) -> Result<Option<RunRecord>, Error> {
        let implement = RunMode::Implement.to_string();
        let runs = self.store.runs(ctx.task.id).await?;
        let Some(last) = runs.into_iter().rev().find(|run| run.mode == implement) else {
            return Ok(None);
        };
        if last.tier != Some(tier) || last.end != Some(tamma_store::RunEnd::Finished) {
            return Ok(None);
        }
        let calls = self.store.model_calls(ctx.task.id, last.number).await?;
        let last_call = calls.iter().rev().find_map(|call| call.tokens);
        // Without metered calls, the sum of all calls is an upper limit.
        let used = last_call.or(last.usage.map(|usage| usage.tokens));
        Ok(Some(last).filter(|_| used.is_some_and(|used| leaves_room(used, rules.context_tokens))))
    }
}

/// Returns whether a session that ended with these tokens can be continued.
fn leaves_room(used: Tokens, context_tokens: u32) -> bool {
    used.total() <= u64::from(context_tokens) / 2
}

/// Returns the reasoning effort of a run: that of its role, or that of its tier.
fn effort(rules: &Rules, mode: RunMode, tier: Tier) -> Option<Effort> {
    let roles = &rules.roles.effort;
    let role = match mode {
        RunMode::Plan => roles.planner,
        RunMode::Implement => None,
        RunMode::Validate => roles.validator,
        RunMode::Advise | RunMode::Conclude => roles.council,
        RunMode::Learn => roles.learning,
    };
    role.or(rules.tiers.get(tier).effort)
}

/// Returns the time that commands of an agent can take, in seconds: as long as the longest gate.
fn shell_seconds(rules: &Rules) -> u32 {
    let longest = rules.gates.values().map(|gate| gate.timeout_seconds).max();
    longest.unwrap_or_default().max(MIN_SHELL_SECONDS)
}

/// Returns whether a limit is used up.
fn is_reached(bound: &BudgetLimit) -> bool {
    let BudgetLimit { limit, spent, .. } = bound;
    limit.usd.is_some_and(|usd| spent.usd >= usd)
        || limit.tokens.is_some_and(|tokens| spent.tokens >= tokens)
}

/// Wraps the permission rules to record the permissions that a person would have to grant.
fn recording_policy(
    permissions: PermissionRules,
    subjects: Arc<Mutex<Vec<String>>>,
) -> PermissionPolicy {
    Arc::new(move |request| {
        let decision = permissions.evaluate(request);
        if decision.effect == PermissionEffect::Ask
            && let Ok(mut recorded) = subjects.lock()
        {
            *recorded = permissions.subjects(request);
        }
        decision
    })
}

fn copy_locked<T: Clone + Default>(value: &Mutex<T>) -> T {
    value.lock().map(|value| value.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_is_continued_below_half_of_its_context() {
        let tokens = |input, cached, output| Tokens { input, cached, output };
        assert!(leaves_room(tokens(10_000, 89_000, 1_000), 200_000));
        assert!(!leaves_room(tokens(10_000, 90_000, 1_000), 200_000));
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
