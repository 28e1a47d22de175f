//! The activities: what the workflow asks for, and the frame around every job.
#![expect(missing_docs, reason = "the macro makes constants that cannot be documented")]

mod admit;
mod attempts;
mod brief;
mod check;
mod convene;
mod deliver;
mod finish;
mod implement;
mod land;
mod learn;
mod plan;
mod prepare;
mod review;
mod room;
mod test;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::Utc;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tamma_core::ids::{CommitId, PolicyVersion, TaskId};
use tamma_core::plan::Plan;
use tamma_core::rules::Rules;
use tamma_core::task::Task;
use tamma_core::task_loop::{Job, Outcome, Step, TaskLoop, Timestamp};
use tamma_engine::gateway::Gateway;
use tamma_engine::git::Git;
use tamma_engine::mirror::{Known, Mirror};
use tamma_engine::process::{Records, RunId};
use tamma_engine::worktree::{Newest, Worktree};
use tamma_flow::port::{Answer, Diary, Errand, names};
use tamma_flow::{Begun, TaskFlow};
use tamma_store::{Conflict, Library, Record, Store};
use temporalio_client::WorkflowExecuteUpdateOptions;
use temporalio_macros::activities;
use temporalio_sdk::activities::{ActivityContext, ActivityError};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::Config;
use crate::drawer::Drawer;
use crate::error::Error;
use crate::meaning::Meanings;
use crate::site::Site;

/// How often a job says that it lives.
const PULSE: Duration = Duration::from_millis(500);

/// The gateway's socket, in the data folder.
const GATEWAY: &str = "gateway.sock";

/// The longest pause between two attempts to write down what came of a job.
const PATIENCE: Duration = Duration::from_secs(5);

/// The activities. Cheap to clone.
#[derive(Clone)]
pub struct Activities {
    pub(crate) config: Arc<Config>,
    pub(crate) store: Store,
    /// What the team knows.
    pub(crate) library: Library,
    /// What it means, where a model is configured.
    pub(crate) meanings: Meanings,
    pub(crate) git: Git,
    pub(crate) records: Records,
    drawer: Drawer,
    /// Where agents reach models and our tools.
    pub(crate) gateway: Gateway,
    /// What the mirrors on this machine are known to have.
    known: Known,
    /// For agents that only look, which no slot of the engine queue counts.
    pub(crate) lookers: Arc<Semaphore>,
    /// Rules by version. They never change, and there are few.
    rules: Arc<Mutex<BTreeMap<PolicyVersion, Arc<Rules>>>>,
}

/// One job, as a worker takes it up.
#[derive(Clone)]
pub struct Call {
    /// What to do.
    pub errand: Errand,
    /// How often the job has been taken up, this time included.
    pub attempt: u32,
    /// Tells it to stop.
    pub stop: CancellationToken,
    /// Tells the workflow that a run was taken up.
    pub announce: Announce,
}

/// Tells the workflow that a run was taken up.
pub type Announce = Arc<dyn Fn(Begun) -> BoxFuture<'static, Result<(), Error>> + Send + Sync>;

/// What a job came to, and what there is to read about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) answer: Answer,
    /// What failed, for the brief of the next run and for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) report: Option<String>,
}

impl From<Outcome> for Told {
    fn from(outcome: Outcome) -> Self {
        Answer::ended(outcome).into()
    }
}

impl From<Answer> for Told {
    fn from(answer: Answer) -> Self {
        Self { answer, report: None }
    }
}

/// What a job is about.
pub(crate) struct Work {
    pub(crate) call: Call,
    /// The rules that the task is pinned to.
    pub(crate) rules: Arc<Rules>,
    /// The machine as it was when the job was ordered.
    pub(crate) memory: TaskLoop,
    pub(crate) task: Task,
}

impl Work {
    /// Which piece of work a process of this job belongs to.
    pub(crate) fn run(&self) -> RunId {
        let Errand { ticket, diary, .. } = &self.call.errand;
        RunId { task: diary.task, ticket: *ticket, generation: self.call.attempt }
    }

    /// The commit that the task's work starts from.
    pub(crate) fn base(&self) -> Result<CommitId, Error> {
        let pin =
            self.memory.pin.ok_or_else(|| Error::Odd("the task has no base yet".to_owned()))?;
        Ok(pin.base)
    }

    /// Where the task's newest work is, as far as the job tells. A job that names a commit judges
    /// that one, and before the first run there is nothing anywhere. Everything else has to be
    /// asked, because an earlier attempt, or a run that failed, may have been on another host.
    fn newest(&self) -> Newest {
        match &self.call.errand.job {
            Job::Test { commit, .. } | Job::Review { commit } => Newest::At(*commit),
            _ if !self.memory.touched && self.call.attempt == 1 => Newest::Nothing,
            _ => Newest::Unknown,
        }
    }
}

impl Activities {
    /// The activities on a data folder, with a store.
    pub async fn new(config: Config, store: Store, records: Records) -> Result<Self, Error> {
        Ok(Self {
            git: Git::find("git").await?,
            drawer: Drawer::open(&config.data).await?,
            gateway: Gateway::open(Some(&config.data.join(GATEWAY))).await?,
            lookers: Arc::new(Semaphore::new(config.slots.max(1))),
            config: Arc::new(config),
            library: Library::new(&store),
            meanings: Meanings::default(),
            store,
            records,
            known: Known::default(),
            rules: Arc::default(),
        })
    }

    /// Does a job: writes down what comes with it, does it, and keeps the answer before giving it.
    ///
    /// A job that has been taken up before may have answered already; then that is the answer.
    pub async fn perform(&self, call: Call) -> Result<Answer, Error> {
        let (task, ticket) = (call.errand.diary.task, call.errand.ticket);
        let stop = call.stop.clone();
        if call.attempt > 1 {
            if let Some(told) = self.store.answer::<Told>(task, ticket).await? {
                return Ok(told.answer);
            }
            if let Some(told) = self.drawer.look(task, ticket).await? {
                // It was done after its steps were written down; what is missing is the answer.
                return self.keep(task, ticket, told, &stop).await;
            }
        }
        let rules = self.write_down(&call.errand.diary).await?;
        self.pass("written down")?;
        let told = self.work(call, rules).await?;
        self.pass("done")?;
        if matches!(told.answer, Answer::Ended { .. }) && is_worth_keeping(&told) {
            self.drawer.put(task, ticket, &told).await?;
            self.pass("answer put aside")?;
            return self.keep(task, ticket, told, &stop).await;
        }
        Ok(told.answer)
    }

    /// Keeps an answer that is put aside where every worker finds it.
    async fn keep(
        &self,
        task: TaskId,
        ticket: u32,
        told: Told,
        stop: &CancellationToken,
    ) -> Result<Answer, Error> {
        self.surely(stop, || self.store.save_answer(task, ticket, &told)).await?;
        self.pass("answer kept")?;
        self.drawer.clear(task, ticket).await?;
        Ok(told.answer)
    }

    async fn work(&self, call: Call, rules: Arc<Rules>) -> Result<Told, Error> {
        let id = call.errand.diary.task;
        // The step that ordered the job is the last of those that came with it; where none did, it
        // was written before.
        let memory = match call.errand.diary.steps.last() {
            Some(last) => last.next.clone(),
            None => self.store.task(id).await?.machine.map_err(tamma_store::Error::Corrupt)?,
        };
        let task = match &call.errand.diary.arrival {
            Some(arrival) => arrival.task.clone(),
            None => self.store.wanted(id).await?,
        };
        let work = Work { call, rules, memory, task };
        match &work.call.errand.job {
            Job::Admit => self.admit(&work).await,
            Job::Prepare => self.prepare(&work).await,
            Job::Plan { version, from, note } => {
                self.plan(&work, *version, from.as_ref(), note.as_ref()).await
            }
            Job::Check { plan } => self.check(&work, plan).await,
            Job::Implement(order) => self.implement(&work, order).await,
            Job::Test { commit, risk } => self.test(&work, *commit, *risk).await,
            Job::Review { commit } => self.review(&work, *commit).await,
            Job::Brief { decision, note } => self.brief(&work, decision, note.as_ref()).await,
            Job::Convene { council, seat, opinions } => {
                self.convene(&work, *council, *seat, opinions).await
            }
            // A branch of its own waits for nobody. The merge queue is planned.
            Job::AwaitTurn => Ok(Outcome::TurnCame.into()),
            Job::Deliver { commit } => self.deliver(&work, *commit).await,
            Job::Learn { ending, model } => self.learn(&work, *ending, *model).await,
            Job::Land => self.land(&work).await,
        }
    }

    /// Writes steps down, each once, and returns the rules they were made under.
    pub async fn write_down(&self, diary: &Diary) -> Result<Arc<Rules>, Error> {
        let rules = match &diary.arrival {
            Some(arrival) => {
                self.store.keep_rules(&arrival.rules).await?;
                Arc::new(arrival.rules.clone())
            }
            None => self.rules(diary.policy).await?,
        };
        if let (Some(arrival), Some(first)) = (&diary.arrival, diary.steps.first()) {
            let (next, commands) = (first.next.clone(), first.commands.clone());
            let step = Step { next, commands, entries: first.entries.clone() };
            self.store.receive(&arrival.task, &step, &rules).await?;
        }
        let records: Vec<_> = diary
            .steps
            .iter()
            .filter(|recorded| recorded.step > 0)
            .map(|recorded| Record {
                step: recorded.step,
                at: recorded.at,
                next: &recorded.next,
                entries: &recorded.entries,
                commands: &recorded.commands,
                used: recorded.used.map(|used| tamma_store::Used {
                    ticket: used.ticket,
                    job: used.job,
                    at: recorded.at,
                    usage: used.usage,
                }),
            })
            .collect();
        match self.store.record(&records, &rules).await {
            // Later steps are there, so these are.
            Err(tamma_store::Error::Conflict(Conflict::Older { .. })) => {}
            written => drop(written?),
        }
        if let Some(last) = diary.steps.last()
            && last.next.state.is_terminal()
        {
            self.finish(diary.project, &last.next);
        }
        Ok(rules)
    }

    async fn rules(&self, version: PolicyVersion) -> Result<Arc<Rules>, Error> {
        let known = |rules: &Mutex<BTreeMap<PolicyVersion, Arc<Rules>>>| {
            rules.lock().ok().and_then(|rules| rules.get(&version).cloned())
        };
        if let Some(rules) = known(&self.rules) {
            return Ok(rules);
        }
        let rules = Arc::new(self.store.rules(version).await?);
        if let Ok(mut all) = self.rules.lock() {
            all.insert(version, rules.clone());
        }
        Ok(rules)
    }

    /// The project of a job on this machine.
    pub(crate) async fn site(&self, work: &Work) -> Result<Site, Error> {
        let project = self.store.project(work.call.errand.diary.project).await?;
        Site::of(project, &self.config.environment).await
    }

    /// Our own copy of a project's repository.
    pub(crate) async fn mirror(&self, site: &Site) -> Result<Mirror, Error> {
        site.mirror(&self.git, &self.config.data, &self.known).await
    }

    /// The worktree of a job's task, with the newest of its work, wherever that was done.
    pub(crate) async fn worktree(&self, work: &Work, site: &Site) -> Result<Worktree, Error> {
        let mirror = self.mirror(site).await?;
        Ok(Worktree::open_at(&mirror, work.task.id, work.base()?, work.newest()).await?)
    }

    /// The plan that a job is about.
    pub(crate) async fn plan_of(&self, work: &Work) -> Result<Plan, Error> {
        let outline = work.memory.plan.as_ref();
        let outline = outline.ok_or_else(|| Error::Odd("the task has no plan yet".to_owned()))?;
        Ok(self.store.plan_by_hash(work.task.id, outline.hash).await?.1)
    }

    /// Writes down what would cost a run to find out again: as long as the database is away, it is
    /// tried again here, and not by the durable engine, which would begin the job from the start.
    pub(crate) async fn surely<T, F>(
        &self,
        stop: &CancellationToken,
        write: impl Fn() -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = tamma_store::Result<T>>,
    {
        let mut pause = Duration::from_millis(100);
        loop {
            match write().await {
                Err(error) if error.is_retryable() => {
                    tracing::warn!(%error, "what came of a job is not written yet");
                }
                written => return Ok(written?),
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(PATIENCE),
                () = stop.cancelled() => return Err(Error::Stopped),
            }
        }
    }

    /// A place where a test may make the worker fail.
    pub(crate) fn pass(&self, step: &'static str) -> Result<(), Error> {
        self.config.faults.pass(step)
    }
}

/// Whether a job would do harm, or cost something, if it were done again.
fn is_worth_keeping(told: &Told) -> bool {
    !matches!(
        told.answer,
        Answer::Ended {
            outcome: Outcome::Admitted
                | Outcome::Prepared(_)
                | Outcome::Checked { .. }
                | Outcome::TurnCame,
            ..
        }
    )
}

/// The time it is.
#[expect(clippy::disallowed_methods, reason = "this is the edge: a worker reads the clock")]
pub(crate) fn now() -> Timestamp {
    Utc::now()
}

/// Runs a short job, inside the workflow's own task.
async fn short(
    hands: Arc<Activities>,
    ctx: ActivityContext,
    errand: Errand,
) -> Result<Answer, ActivityError> {
    let announce: Announce = Arc::new(|_| Box::pin(async { Ok(()) }));
    let (attempt, stop) = (ctx.info().attempt, CancellationToken::new());
    // On the heap, because a job that runs agents is big.
    Box::pin(hands.perform(Call { errand, attempt, stop, announce })).await.map_err(Error::told)
}

/// Runs a long job: says that it lives, and stops it when it is told to.
async fn long(
    hands: Arc<Activities>,
    ctx: ActivityContext,
    errand: Errand,
) -> Result<Answer, ActivityError> {
    let here = ctx.clone();
    let announce: Announce = Arc::new(move |begun| {
        let handle = here.workflow_handle::<TaskFlow>();
        Box::pin(async move {
            let Some(handle) = handle else { return Ok(()) };
            let id = format!("begun-{}", begun.ticket);
            let options = WorkflowExecuteUpdateOptions::builder().update_id(id).build();
            match handle.execute_update(TaskFlow::begun, begun, options).await {
                Ok(_) => Ok(()),
                // The machine knows already, or no longer wants the run and will say so.
                Err(error) if crate::runs::is_refusal(&error) => Ok(()),
                Err(error) => Err(Error::Engine(error.to_string())),
            }
        })
    });
    let (attempt, stop) = (ctx.info().attempt, CancellationToken::new());
    // On the heap, because a job that runs agents is big.
    let mut work = Box::pin(hands.perform(Call { errand, attempt, stop: stop.clone(), announce }));
    let mut pulse = tokio::time::interval(PULSE);
    let mut told = false;
    loop {
        tokio::select! {
            answer = &mut work => return answer.map_err(Error::told),
            _ = pulse.tick() => ctx.record_heartbeat(attempt).await?,
            () = ctx.cancelled(), if !told => {
                told = true;
                stop.cancel();
            }
        }
    }
}

#[activities]
impl Activities {
    #[activity(name = names::RECORD)]
    pub async fn on_record(
        self: Arc<Self>,
        _ctx: ActivityContext,
        diary: Diary,
    ) -> Result<(), ActivityError> {
        self.write_down(&diary).await.map(drop).map_err(Error::told)
    }

    #[activity(name = names::ADMIT)]
    pub async fn on_admit(
        self: Arc<Self>,
        ctx: ActivityContext,
        errand: Errand,
    ) -> Result<Answer, ActivityError> {
        short(self, ctx, errand).await
    }

    #[activity(name = names::PREPARE)]
    pub async fn on_prepare(
        self: Arc<Self>,
        ctx: ActivityContext,
        errand: Errand,
    ) -> Result<Answer, ActivityError> {
        short(self, ctx, errand).await
    }

    #[activity(name = names::CHECK)]
    pub async fn on_check(
        self: Arc<Self>,
        ctx: ActivityContext,
        errand: Errand,
    ) -> Result<Answer, ActivityError> {
        short(self, ctx, errand).await
    }

    #[activity(name = names::BRIEF)]
    pub async fn on_brief(
        self: Arc<Self>,
        ctx: ActivityContext,
        errand: Errand,
    ) -> Result<Answer, ActivityError> {
        short(self, ctx, errand).await
    }

    #[activity(name = names::AWAIT_TURN)]
    pub async fn on_await_turn(
        self: Arc<Self>,
        ctx: ActivityContext,
        errand: Errand,
    ) -> Result<Answer, ActivityError> {
        short(self, ctx, errand).await
    }

    #[activity(name = names::LEARN)]
    pub async fn on_learn(
        self: Arc<Self>,
        ctx: ActivityContext,
        errand: Errand,
    ) -> Result<Answer, ActivityError> {
        // Without a model it is done in the workflow's own task.
        if matches!(errand.job, Job::Learn { model: true, .. }) {
            long(self, ctx, errand).await
        } else {
            short(self, ctx, errand).await
        }
    }

    #[activity(name = names::PLAN)]
    pub async fn on_plan(
        self: Arc<Self>,
        ctx: ActivityContext,
        errand: Errand,
    ) -> Result<Answer, ActivityError> {
        long(self, ctx, errand).await
    }

    #[activity(name = names::IMPLEMENT)]
    pub async fn on_implement(
        self: Arc<Self>,
        ctx: ActivityContext,
        errand: Errand,
    ) -> Result<Answer, ActivityError> {
        long(self, ctx, errand).await
    }

    #[activity(name = names::TEST)]
    pub async fn on_test(
        self: Arc<Self>,
        ctx: ActivityContext,
        errand: Errand,
    ) -> Result<Answer, ActivityError> {
        long(self, ctx, errand).await
    }

    #[activity(name = names::REVIEW)]
    pub async fn on_review(
        self: Arc<Self>,
        ctx: ActivityContext,
        errand: Errand,
    ) -> Result<Answer, ActivityError> {
        long(self, ctx, errand).await
    }

    #[activity(name = names::CONVENE)]
    pub async fn on_convene(
        self: Arc<Self>,
        ctx: ActivityContext,
        errand: Errand,
    ) -> Result<Answer, ActivityError> {
        long(self, ctx, errand).await
    }

    #[activity(name = names::DELIVER)]
    pub async fn on_deliver(
        self: Arc<Self>,
        ctx: ActivityContext,
        errand: Errand,
    ) -> Result<Answer, ActivityError> {
        long(self, ctx, errand).await
    }

    #[activity(name = names::LAND)]
    pub async fn on_land(
        self: Arc<Self>,
        ctx: ActivityContext,
        errand: Errand,
    ) -> Result<Answer, ActivityError> {
        long(self, ctx, errand).await
    }
}
