//! One run of an agent for a job: what it is given, and what came of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tamma_core::budget::{self, Limit, Spend};
use tamma_core::failure::FailureKind;
use tamma_core::ids::Name;
use tamma_core::rules::{AgentRules, Seat};
use tamma_core::task_loop::{Outcome, Timestamp};
use tamma_core::tier::Tier;
use tamma_engine::agent::{Access, Agent, Mode, Report, RunEnd, RunOrder};
use tamma_engine::confine::{self, Cage, Network};
use tamma_engine::gateway::{Bound, Upstream, Whose};
use tamma_engine::permission::{Law, Policy, Verdict};
use tamma_engine::secret::{Redactor, Secret};
use tamma_engine::submission::{Known, no_evidence};
use tamma_engine::worktree::Worktree;
use tamma_flow::port::Answer;

use crate::answers;
use crate::error::Error;
use crate::hands::{Activities, Told, Work, now};
use crate::site::Site;
use crate::toolchains;
use crate::turns::Turn;
use crate::witness::{Ending, RunFacts, Witness};

/// How long a provider's quota may be away without the task leaving its engine: agents wait that long
/// by themselves.
const QUOTA_PATIENCE: Duration = Duration::from_secs(20);

/// What an agent is told where an earlier run did not come to its end.
const LEFT: &str = "\n\nAn earlier run of this did not come to its end. What it has changed is in your \
                    working folder: look at it, and go on from there.\n";

/// What every program needs to find others.
pub(crate) const PLAIN: [&str; 4] = ["PATH", "HOME", "LANG", "TERM"];

/// What an agent is to do.
pub(crate) struct Assignment {
    pub(crate) place: Place,
    pub(crate) mode: Mode,
    pub(crate) prompt: String,
    /// Seconds that it may take.
    pub(crate) seconds: u32,
    /// What of the task's budget it may spend.
    pub(crate) allowance: Limit,
    /// What its lessons may point at, where it is to teach.
    pub(crate) evidence: Option<Known>,
}

/// The folder that an agent works in.
#[derive(Clone, Copy)]
pub(crate) struct Room<'a> {
    path: &'a Path,
    /// The repository that the folder hangs on.
    repository: Option<&'a Path>,
}

impl<'a> Room<'a> {
    /// One with nothing in it.
    pub(crate) fn empty(path: &'a Path) -> Self {
        Self { path, repository: None }
    }
}

impl<'a> From<&'a Worktree> for Room<'a> {
    fn from(worktree: &'a Worktree) -> Self {
        Self { path: worktree.path(), repository: Some(worktree.repository()) }
    }
}

/// Who does it, and where they live.
pub(crate) struct Place {
    /// The agent and the model of a tier, or others in their place.
    pub(crate) seat: Seat,
    /// The name of a home that it shares with nobody, where it is not the agent's for this task.
    pub(crate) home: Option<String>,
}

impl From<Tier> for Place {
    fn from(tier: Tier) -> Self {
        Seat::from(tier).into()
    }
}

impl From<Seat> for Place {
    fn from(seat: Seat) -> Self {
        Self { seat, home: None }
    }
}

/// A run that has ended.
pub(crate) struct Run {
    pub(crate) report: Report,
    /// What a person would allow with a yes, where the run ended with such a question.
    subjects: Vec<String>,
    provider: Name,
}

impl Run {
    /// A run that was never begun.
    fn not_begun(end: RunEnd, provider: Name) -> Self {
        let report = Report::not_begun(end);
        Self { report, subjects: Vec::new(), provider }
    }

    /// The answer for a run that did not finish.
    fn failed(self) -> Result<Told, Error> {
        let Some(mut failure) = self.report.end.failure(&self.provider) else {
            return Err(Error::Stopped);
        };
        // The last thing it complained about is often the reason.
        if failure.kind == FailureKind::Crashed
            && let Some(last) =
                self.report.stderr.lines().rev().find(|line| !line.trim().is_empty())
            && let Ok(reason) = format!("{}; its last words: {}", failure.reason, last.trim())
                .chars()
                .take(tamma_core::ids::Reason::MAX)
                .collect::<String>()
                .parse()
        {
            failure.reason = reason;
        }
        let outcome = Outcome::Failed(failure);
        Ok(Answer::Ended { outcome, usage: self.report.usage }.into())
    }
}

/// The agent of a seat, and its name.
pub(crate) fn agent_of<'a>(site: &'a Site, seat: &Seat) -> Result<(Name, &'a AgentRules), Error> {
    let missing = || {
        let agent = seat.agent.as_ref().unwrap_or(&site.rules.tiers.get(seat.tier).agent);
        let tier = seat.tier;
        Error::Configuration(format!("the agent `{agent}` of the tier `{tier}` is not defined"))
    };
    let (name, agent) = site.rules.agent_at(seat).ok_or_else(missing)?;
    Ok((name.parse().map_err(|_| missing())?, agent))
}

/// Some variables out of an environment.
pub(crate) fn inherited<'a>(
    environment: &BTreeMap<String, String>,
    names: impl IntoIterator<Item = &'a (impl AsRef<str> + ?Sized + 'a)>,
) -> BTreeMap<String, String> {
    let pair = |name: &str| Some((name.to_owned(), environment.get(name)?.clone()));
    names.into_iter().filter_map(|name| pair(name.as_ref())).collect()
}

/// Whether the workflow has refused an update, so that sending it again cannot help.
pub(crate) fn is_refusal(error: &temporalio_client::errors::WorkflowUpdateError) -> bool {
    matches!(error, temporalio_client::errors::WorkflowUpdateError::Failed(_))
}

impl Activities {
    /// Runs an agent that may only look, when one of the places for those is free.
    pub(crate) async fn look(
        &self,
        work: &Work,
        site: &Site,
        worktree: &Worktree,
        place: impl Into<Place>,
        mode: Mode,
        prompt: String,
    ) -> Result<Run, Error> {
        let place = place.into();
        let _place = tokio::select! {
            place = self.lookers.acquire() => place.map_err(|_| Error::Stopped)?,
            () = work.call.stop.cancelled() => return Err(Error::Stopped),
        };
        let seconds = site.rules.scrum_master.task_loop.timeouts.requirements;
        let memory = &work.memory;
        let limit = budget::limit(memory.risk(), &memory.granted, &work.rules);
        let allowance = budget::left(&memory.spend, &limit);
        let assignment = Assignment { place, mode, prompt, seconds, allowance, evidence: None };
        self.run_agent(work, site, worktree.into(), assignment).await
    }

    /// Runs an agent, and returns when nothing of it lives any more.
    pub(crate) async fn run_agent(
        &self,
        work: &Work,
        site: &Site,
        room: Room<'_>,
        assignment: Assignment,
    ) -> Result<Run, Error> {
        let Assignment { place, mode, prompt, seconds, allowance, evidence } = assignment;
        let Place { seat, home } = place;
        let (name, rules) = agent_of(site, &seat)?;
        let provider: Name = site
            .rules
            .provider_at(&seat)
            .parse()
            .map_err(|_| Error::Configuration("a provider has no name".to_owned()))?;
        let _place = match self.turn(work, provider.as_str()).await? {
            Turn::Came(place) => place,
            Turn::Quota { until } => {
                return Ok(Run::not_begun(RunEnd::Quota { until }, provider));
            }
        };
        let at = now();
        let bounds = self.bounds(work, allowance, at).await?;
        if bounds.iter().any(is_reached) {
            return Ok(Run::not_begun(RunEnd::OverBudget, provider));
        }
        let answered = self.told_before(work, mode).await?;
        let allowed = answers::allowed(&answered);
        let law = Law::new(room.path, mode, &work.rules.permissions, allowed)
            .map_err(|error| Error::Configuration(error.to_string()))?;
        let upstream = self.upstream(rules);
        let home = self.home(work, home.as_deref().unwrap_or(name.as_str()));
        let cage = match self.cage(site, room, &law, mode, (rules, &home, upstream.is_some())) {
            Ok(cage) => cage,
            Err(error) => {
                let reason = error.to_string();
                return Ok(Run::not_begun(RunEnd::Unavailable { reason }, provider));
            }
        };
        let model = site.rules.model_at(&seat).map(str::to_owned);
        let before = self.unfinished_before(work, mode).await?;
        let left = if before.is_some() && mode == Mode::Implement { LEFT } else { "" };
        let same = |run: &tamma_store::Run| {
            let model = model.as_deref().is_none_or(|model| run.model.as_deref() == Some(model));
            model && run.agent == name.as_str() && home.exists()
        };
        let resume = before.filter(same).and_then(|run| run.session);
        let secrets = self.secrets(rules, upstream.as_ref());
        let subjects = Arc::<Mutex<Vec<String>>>::default();
        let order = RunOrder {
            run: work.run(),
            at,
            workspace: room.path.to_owned(),
            prompt: prompt + &answers::in_words(&answered) + left,
            mode,
            time_limit: Duration::from_secs(u64::from(seconds)),
            allowance,
            protected: law.protected(),
            forbidden: law.forbidden(),
            asked: law.asked(),
            policy: noting(law, subjects.clone()),
            model: model.clone(),
            resume,
            home,
            cage: Some(cage),
            access: Some(Access {
                gateway: self.gateway.clone(),
                upstream,
                prices: site.rules.prices.clone(),
                bounds,
                warn_percent: work.rules.budget.warn_percent,
            }),
            search: crate::known::search(&self.library, work.call.errand.diary.project),
            evidence: evidence.unwrap_or_else(no_evidence),
            patience: self.config.patience,
        };
        let facts = RunFacts {
            run: order.run,
            at,
            agent: name.to_string(),
            model,
            tier: Some(seat.tier),
            mode,
            worker: self.config.name.clone(),
        };
        let redactor = Redactor::new(secrets);
        let redact = Arc::new(move |text: &str| redactor.redact(text).into_owned());
        let witness =
            Witness::begin(&self.store, &self.config.objects, &self.config.data, facts, redact)
                .await?;
        let observer = witness.observer();
        let behind = order.access.as_ref().is_some_and(|access| access.upstream.is_some());
        let agent = self.agent(rules, behind);
        let report = agent.run(&order, &self.records, &observer, &work.call.stop).await?;
        drop(observer);
        let ending = Ending::from(&report.end);
        if let Err(error) = witness.finish(ending, report.usage, report.metered).await {
            tracing::warn!(%error, run = %order.run, "what happened in a run is not all written down");
        }
        if report.end == RunEnd::Cancelled {
            return Err(Error::Stopped);
        }
        Ok(Run { report, subjects: taken(&subjects), provider })
    }

    /// The answer for a run that did not finish: a question for a person, or a failure.
    pub(crate) async fn unfinished(&self, work: &Work, run: Run) -> Result<Told, Error> {
        let RunEnd::Asked { question } = &run.report.end else {
            return run.failed();
        };
        let text = answers::asked(&question.question, &question.choices, &run.subjects);
        let stop = &work.call.stop;
        let default = match &question.default {
            Some(default) => Some(self.surely(stop, || self.store.keep(default)).await?),
            None => None,
        };
        let question = self.surely(stop, || self.store.keep(&text)).await?;
        let outcome = Outcome::Asked { question, default };
        Ok(Answer::Ended { outcome, usage: run.report.usage }.into())
    }

    /// What people have answered, for whoever goes on with the work. Who only looks back has it in the
    /// record, and is allowed nothing by it.
    async fn told_before(&self, work: &Work, mode: Mode) -> Result<Vec<answers::Answered>, Error> {
        if mode == Mode::Learn { Ok(Vec::new()) } else { self.answered(work).await }
    }

    /// What may be spent: by the run, by all tasks of the project, and by those of today.
    async fn bounds(
        &self,
        work: &Work,
        allowance: Limit,
        at: Timestamp,
    ) -> Result<Vec<Bound>, Error> {
        let mut bounds =
            vec![Bound { whose: Whose::Task, limit: allowance, spent: Spend::default() }];
        let project = work.call.errand.diary.project;
        let midnight = at.date_naive().and_time(chrono::NaiveTime::MIN).and_utc();
        let budget = &work.rules.budget;
        for (whose, usd, since) in [
            (Whose::Project, budget.project_usd, Timestamp::UNIX_EPOCH),
            (Whose::Day, budget.day_usd, midnight),
        ] {
            if usd.is_some() {
                let total = self.store.spent(project, since).await?;
                let spent = Spend { usd: total.usd, tokens: total.tokens, estimated: false };
                bounds.push(Bound { whose, limit: Limit { usd, tokens: None }, spent });
            }
        }
        Ok(bounds)
    }

    /// An agent, with what it inherits. Behind the gateway, the key stays there, whatever the file says.
    fn agent(&self, rules: &AgentRules, behind_gateway: bool) -> Agent {
        let mut agent = Agent::of(rules, &self.config.environment);
        if behind_gateway {
            agent.inherited.remove(&rules.key);
            agent.inherited.extend(toolchains::variables(&self.config.environment));
        }
        agent
    }

    /// Whom the gateway calls for an agent, if the worker has the provider's key.
    fn upstream(&self, rules: &AgentRules) -> Option<Upstream> {
        let key = self.config.environment.get(&rules.key).filter(|key| !key.is_empty())?;
        let (base, key) = (rules.upstream.clone(), Secret::new(key));
        Some(Upstream { base, key, quota_patience: QUOTA_PATIENCE })
    }

    /// What must not be read in what a run leaves behind: what it was given that others do not know.
    fn secrets(&self, rules: &AgentRules, upstream: Option<&Upstream>) -> Vec<Secret> {
        let own = rules.env.values().filter(|value| !value.contains("{{"));
        let inherited = rules.inherit.iter().filter(|name| !PLAIN.contains(&name.as_str()));
        let inherited = inherited.filter_map(|name| self.config.environment.get(name));
        let given = own.chain(inherited).map(Secret::new);
        given.chain(upstream.map(|upstream| upstream.key.clone())).collect()
    }

    /// The folder of a task's own for an agent, which a later run finds again.
    fn home(&self, work: &Work, name: &str) -> PathBuf {
        self.config.data.join("homes").join(work.task.id.to_string()).join(name)
    }

    /// What an agent may see, change and reach.
    fn cage(
        &self,
        site: &Site,
        room: Room<'_>,
        law: &Law,
        mode: Mode,
        (rules, home, metered): (&AgentRules, &Path, bool),
    ) -> Result<Cage, confine::Error> {
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
        Ok(Cage {
            kind: confine::choose(site.rules.engines.sandbox)?,
            launcher: self.config.launcher.clone(),
            worktree: room.path.to_owned(),
            looking: mode.looks(),
            repository: room.repository.map(Path::to_owned),
            home: home.to_owned(),
            readable: site
                .rules
                .engines
                .readable
                .iter()
                .map(PathBuf::from)
                .chain(toolchains::folders(&self.config.environment))
                .collect(),
            writable: if metered { Vec::new() } else { below(&rules.home) },
            protected: law.protected_now(),
            hidden: [self.config.data.clone()]
                .into_iter()
                .chain(toolchains::secrets(&self.config.environment))
                .collect(),
            network,
        })
    }

    /// The last run of the task, if it was for the same and did not come to its end. An agent that
    /// can goes on with its session, where what it remembers of it is on this machine.
    async fn unfinished_before(
        &self,
        work: &Work,
        mode: Mode,
    ) -> Result<Option<tamma_store::Run>, Error> {
        // What one seat of the council has begun is not for another to go on with, and nobody waits
        // for what a task has taught.
        if matches!(mode, Mode::Advise | Mode::Conclude | Mode::Learn) {
            return Ok(None);
        }
        let last = self.store.latest_run(work.task.id).await?;
        let over = Some(tamma_store::RunEnd::Finished);
        Ok(last.filter(|run| run.mode == mode.to_string() && run.end != over))
    }
}

/// Whether a bound leaves nothing to spend.
fn is_reached(bound: &Bound) -> bool {
    let Bound { limit, spent, .. } = bound;
    limit.usd.is_some_and(|usd| spent.usd >= usd)
        || limit.tokens.is_some_and(|tokens| spent.tokens >= tokens)
}

/// The law as something to ask, which notes what a person would have to allow.
fn noting(law: Law, subjects: Arc<Mutex<Vec<String>>>) -> Policy {
    Arc::new(move |ask| {
        let ruling = law.rule(ask);
        if ruling.verdict == Verdict::Ask
            && let Ok(mut noted) = subjects.lock()
        {
            *noted = law.subjects(ask);
        }
        ruling
    })
}

fn taken<T: Clone + Default>(kept: &Mutex<T>) -> T {
    kept.lock().map(|kept| kept.clone()).unwrap_or_default()
}

impl Told {
    /// The same, with what it used.
    pub(crate) fn using(mut self, used: Option<tamma_core::cost::Usage>) -> Self {
        if let Answer::Ended { usage, .. } = &mut self.answer {
            *usage = used;
        }
        self
    }
}
