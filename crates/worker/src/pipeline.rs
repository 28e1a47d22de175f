//! Activities of a story's pipeline.
//!
//! Agents run as jobs of a task. For a phase, the pipeline stands in for the task: it has the
//! worktree, the branch, the runs and the budget that a task would have. The end of a phase is
//! written to this machine's disk as soon as it is known, and its result is stored before anything
//! depends on it. So another attempt never runs a finished phase again.

mod agent_phase;
mod command_phase;
mod phase_check;
mod registration;
mod story_files;
mod story_tasks;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tamma_core::actor::Actor;
use tamma_core::approval::Pin;
use tamma_core::cost::Usage;
use tamma_core::ids::{CommitId, Reference};
use tamma_core::pipeline::signal::{PhaseSignal, SignalSource};
use tamma_core::pipeline::{
    PhaseDefinition, PhaseRunner, PhaseWork, PipelineEvent, PipelineRequest, TaskGraph, TaskSplit,
    step,
};
use tamma_core::task::{Priority, Task, TaskType};
use tamma_core::task_loop::{Job, TaskReceived, Timestamp, begin};
use tamma_core::version::Edition;
use tamma_engine::agent::RunEnd;
use tamma_engine::delivery;
use tamma_engine::mirror::task_branch;
use tamma_engine::process::RunId;
use tamma_engine::worktree::Worktree;
use tamma_flow::activities::{JobRequest, PendingSteps};
use tamma_flow::pipeline::{
    DeliveredStory, PhaseRequest, PhaseResult, PipelineSnapshot, PreparedStory,
};
use tamma_store::{EndedRun, PipelineWrite};
use tokio_util::sync::CancellationToken;

use self::story_files::StoryFiles;
use crate::checkpoints::save_checkpoint;
use crate::clock::now;
use crate::error::Error;
use crate::job_context::{AnnounceStart, JobContext};
use crate::maintenance;
use crate::project_context::ProjectContext;
use crate::repositories::author;
use crate::retry::retry_until_stopped;
use crate::runs::{AgentRun, KeepRun};
use crate::services::Services;
use crate::unsaved_results::UnsavedResults;

/// Delay before a phase is requested again if the provider's quota has no known end.
const MIN_QUOTA_WAIT_SECONDS: u32 = 5;

/// Activities of pipelines on a worker. Clones share their state.
#[derive(Clone)]
pub struct PipelineActivities {
    services: Services,
    /// Ends of phases that the store does not have yet.
    unsaved: UnsavedResults,
}

/// Phase in progress on this worker.
pub(crate) struct PhaseContext {
    pub(crate) request: PhaseRequest,
    /// Job that stands for the phase.
    pub(crate) job: JobContext,
    pub(crate) project: ProjectContext,
}

/// End of a phase.
#[derive(Serialize, Deserialize)]
pub(crate) struct PhaseEnd {
    pub(crate) kind: PhaseEndKind,
    /// Complete or partial output.
    pub(crate) output: String,
    pub(crate) usage: Option<Usage>,
    /// Set if the agent reported the usage.
    #[serde(default)]
    pub(crate) is_estimated: bool,
}

/// Kind of a phase's end.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PhaseEndKind {
    /// Phase reported a signal.
    Signal(PhaseSignal, SignalSource),
    /// Phase crashed.
    Crashed(String),
    /// Phase exceeded its time limit.
    TimedOut,
    /// Planner proposed tasks.
    Split(TaskSplit),
    /// Phase cannot run before this time.
    NotBefore(Timestamp),
}

impl PhaseEnd {
    fn signal(signal: PhaseSignal, output: String) -> Self {
        let kind = PhaseEndKind::Signal(signal, SignalSource::Structured);
        Self { kind, output, usage: None, is_estimated: false }
    }

    fn blocked(reason: impl Into<String>, output: String) -> Self {
        Self::signal(PhaseSignal::Blocked(reason.into()), output)
    }

    /// Returns `true` if the phase probably failed because it was stopped. A later attempt must not return
    /// that as its result.
    fn is_doubtful(&self, stop: &CancellationToken) -> bool {
        stop.is_cancelled()
            && matches!(self.kind, PhaseEndKind::Crashed(_) | PhaseEndKind::TimedOut)
    }
}

/// End of a phase as this machine keeps it until it is stored.
#[derive(Serialize, Deserialize)]
struct FinishedPhase {
    at: Timestamp,
    took_ms: u64,
    end: PhaseEnd,
    /// Attempt that it is the end of; `None` from earlier versions.
    #[serde(default)]
    attempt: Option<u32>,
}

impl FinishedPhase {
    /// Returns the end of a phase that ran in an attempt until now.
    fn now(started: Timestamp, attempt: u32, end: PhaseEnd) -> Self {
        let at = now();
        let millis = (at - started).num_milliseconds().max(0);
        let took_ms = u64::try_from(millis).unwrap_or_default();
        Self { at, took_ms, end, attempt: Some(attempt) }
    }
}

impl PhaseContext {
    /// Returns the definition of the phase.
    pub(crate) fn phase(&self) -> PhaseDefinition {
        self.request.run.request.phase(self.request.phase).cloned().unwrap_or_default()
    }

    fn pipeline_request(&self) -> &PipelineRequest {
        &self.request.run.request
    }

    /// Replaces the names of the feature and the story in a text of the configuration.
    pub(crate) fn expand(&self, text: &str) -> String {
        let request = self.pipeline_request();
        text.replace("{FEATURE_DIR}", &request.feature_dir)
            .replace("{STORY_ID}", &request.story_id)
            .replace("{STORY_PATH}", self.request.story_path.as_deref().unwrap_or_default())
    }
}

impl PipelineActivities {
    pub(crate) fn new(services: Services, unsaved: UnsavedResults) -> Self {
        Self { services, unsaved }
    }

    /// Saves a run idempotently.
    pub async fn record(&self, snapshot: PipelineSnapshot) -> Result<(), Error> {
        let PipelineSnapshot { pipeline, number, revision, run, .. } = snapshot;
        let delivered = snapshot.delivered.clone().unwrap_or_default();
        let run_is_over = run.state.is_over();
        let write = PipelineWrite {
            pipeline,
            number,
            revision,
            started_by: snapshot.started_by,
            started_at: snapshot.started_at,
            run,
            base: snapshot.prepared.as_ref().map(|it| it.base),
            story_path: snapshot.prepared.map(|it| it.story_path),
            delivered: delivered.branch.zip(delivered.commit),
            delivery_error: delivered.error,
            is_live: snapshot.finishing || !run_is_over,
            alert: snapshot.alert,
            at: snapshot.at,
        };
        self.services.store.save_pipeline(&write).await?;
        Ok(())
    }

    /// Prepares a story: pins the base commit, opens the worktree, and reads the files of earlier
    /// runs.
    pub async fn prepare(
        &self,
        request: PhaseRequest,
        attempt: u32,
        stop: CancellationToken,
    ) -> Result<PreparedStory, Error> {
        let mut ctx = self.context(request, attempt, stop).await?;
        let base = match ctx.request.base {
            Some(base) => base,
            None => self.services.repositories.newest_base(&ctx.job).await?,
        };
        set_base(&mut ctx, base);
        let worktree = self.worktree(&ctx).await?;
        if ctx.request.run.last_job_number > 0 {
            // A person may have fixed the problem on the story's branch. Another attempt looks again,
            // because the first one may have failed before it found the commits.
            save_checkpoint(&worktree, &ctx.job.stop).await?;
            if let Some(commit) = worktree.adopt_delivered().await? {
                tracing::info!(pipeline = %ctx.request.pipeline, %commit, "adopted commits of people");
            }
        }
        // Tasks of an earlier split start without another phase before them.
        if ctx.request.run.graphs.contains_key(&ctx.pipeline_request().from) {
            let head = worktree.head().await?;
            if let Some(reason) = publish(&ctx, &worktree, head).await? {
                return Err(Error::Internal(reason));
            }
        }
        let files = StoryFiles::locate(&worktree, ctx.pipeline_request()).await;
        let records = files.read_records(&ctx.request.run).await?;
        Ok(PreparedStory { base, story_path: files.story_path().to_owned(), records })
    }

    /// Runs a phase, or returns the result of an earlier attempt.
    pub async fn run_phase(
        &self,
        request: PhaseRequest,
        attempt: u32,
        stop: CancellationToken,
    ) -> Result<PhaseResult, Error> {
        let (store, key) = (&self.services.store, request.pipeline.as_task());
        let job_number = request.job_number;
        let run = RunId { task: key, job_number, generation: attempt };
        let running = self.services.attempts.begin(run, &stop).await?;
        let mut ctx = self.context(request, attempt, stop).await?;
        ctx.job.abandoned = running.abandoned();
        ctx.job.fault_point("written down")?;
        // Stop processes of an earlier attempt before touching its worktree.
        self.services.stop_earlier_attempts(&ctx.job).await?;
        let worktree = self.worktree(&ctx).await?;
        let files = StoryFiles::at(&worktree, &ctx.request)?;
        let mut finished = None;
        if attempt > 1 {
            let mut result = store.job_result::<PhaseResult>(key, job_number).await?;
            if result.is_none() {
                // Waits for an earlier attempt that still writes to the worktree, and may end now.
                save_checkpoint(&worktree, &ctx.job.stop).await?;
                result = store.job_result(key, job_number).await?;
            }
            if let Some(result) = result {
                self.unsaved.clear(key, job_number).await?;
                return self.keep_result(&ctx, &worktree, &files, result).await;
            }
            // Its worker ended after the phase, and before the result was stored.
            finished = self.unsaved.load::<FinishedPhase>(key, job_number).await?;
        }
        let FinishedPhase { at, took_ms, end, attempt } = match finished {
            Some(finished) => {
                let (pipeline, phase) = (ctx.request.pipeline, ctx.request.phase);
                tracing::info!(%pipeline, phase, "recovered the end of a phase");
                self.end_recorded_run(&ctx, finished.at).await?;
                finished
            }
            None if self.services.maintenance.is_on() => {
                let seconds = maintenance::RETRY_SECONDS;
                return Ok(PhaseResult::RetryAfter { seconds, attempts: ctx.job.attempt - 1 });
            }
            None => self.run_to_end(&ctx, &worktree, &files).await?,
        };
        let end = check_outputs(&ctx, &worktree, end).await;
        let mut end = phase_check::check(&self.services, &ctx, &worktree, &files, end).await?;
        if let PhaseEndKind::NotBefore(until) = end.kind {
            let seconds = u32::try_from((until - at).num_seconds().max(0)).unwrap_or(u32::MAX);
            let seconds = seconds.max(MIN_QUOTA_WAIT_SECONDS);
            return Ok(PhaseResult::RetryAfter { seconds, attempts: ctx.job.attempt });
        }
        ctx.job.check_not_abandoned()?;
        // Before the result is stored, so that no host can return it without the files.
        save_checkpoint(&worktree, &ctx.job.stop).await?;
        if let Some(attempt) = attempt
            && let Some(earlier) = self.services.usage_before(&ctx.job, attempt).await
        {
            end.usage = Some(end.usage.map_or(earlier.usage, |own| own + earlier.usage));
            end.is_estimated |= earlier.is_estimated;
        }
        ctx.job.check_not_abandoned()?;
        let result = self.to_result(&ctx, end, (at, took_ms)).await?;
        let save = || store.save_job_result(key, job_number, &result);
        retry_until_stopped(&ctx.job.stop, save).await?;
        ctx.job.fault_point("answer kept")?;
        self.unsaved.clear(key, job_number).await?;
        self.keep_result(&ctx, &worktree, &files, result).await
    }

    /// Records the end of a recovered run, which its worker could not.
    async fn end_recorded_run(&self, ctx: &PhaseContext, at: Timestamp) -> Result<(), Error> {
        let (store, key) = (&self.services.store, ctx.request.pipeline.as_task());
        let Some(run) = store.latest_run(key).await? else { return Ok(()) };
        if run.end.is_some() || run.number.job_number != ctx.request.job_number {
            return Ok(());
        }
        let reason = Some("recovered after its worker had ended".to_owned());
        let end = tamma_store::RunEnd::Finished;
        let ended = EndedRun { at, end, reason, usage: None, transcript: None };
        Ok(store.end_run(key, run.number, &ended).await?)
    }

    /// Runs a phase, and keeps its end on this machine.
    async fn run_to_end(
        &self,
        ctx: &PhaseContext,
        worktree: &Worktree,
        files: &StoryFiles,
    ) -> Result<FinishedPhase, Error> {
        files.write_state(&ctx.request.run).await?;
        let end = match missing_file(ctx, worktree, true).await {
            Some(reason) => PhaseEnd::blocked(reason, String::new()),
            None => self.dispatch(ctx, worktree, files).await?,
        };
        if end.is_doubtful(&ctx.job.stop) {
            return Err(Error::Stopped);
        }
        ctx.job.check_not_abandoned()?;
        let finished = FinishedPhase::now(ctx.job.task_loop.since, ctx.job.attempt, end);
        if !matches!(finished.end.kind, PhaseEndKind::NotBefore(_)) {
            let (key, job_number) = (ctx.request.pipeline.as_task(), ctx.request.job_number);
            self.unsaved.put(key, job_number, &finished).await;
        }
        ctx.job.fault_point("answer put aside")?;
        Ok(finished)
    }

    /// Returns a callback that keeps the end of a phase's agent as soon as it is known. A failed
    /// write is logged; the end is written again after the run.
    fn keep_agent_end(&self, ctx: &PhaseContext) -> KeepRun {
        let (unsaved, phase) = (self.unsaved.clone(), ctx.phase());
        let (key, job_number) = (ctx.request.pipeline.as_task(), ctx.request.job_number);
        let (started, attempt) = (ctx.job.task_loop.since, ctx.job.attempt);
        let stop = ctx.job.stop.clone();
        let abandoned = ctx.job.abandoned.clone();
        Arc::new(move |run: AgentRun| {
            let was_stopped = matches!(run.report.end, RunEnd::Cancelled | RunEnd::Quota { .. });
            let finished =
                FinishedPhase::now(started, attempt, agent_phase::phase_end(run, &phase));
            let is_final =
                !was_stopped && !finished.end.is_doubtful(&stop) && !abandoned.is_cancelled();
            let unsaved = unsaved.clone();
            Box::pin(async move {
                if is_final {
                    unsaved.put(key, job_number, &finished).await;
                }
            })
        })
    }

    /// Writes the story's files at the end of a run, and delivers its branch.
    pub async fn finish(
        &self,
        request: PhaseRequest,
        attempt: u32,
        stop: CancellationToken,
    ) -> Result<DeliveredStory, Error> {
        // Of phases that were cancelled after their end. Nobody asks for them again.
        for job_number in 1..request.job_number {
            self.unsaved.clear(request.pipeline.as_task(), job_number).await?;
        }
        // Cancelled before it was prepared: there is nothing to deliver.
        if request.base.is_none() || request.story_path.is_none() {
            return Ok(DeliveredStory::default());
        }
        let ctx = self.context(request, attempt, stop).await?;
        let worktree = self.worktree(&ctx).await?;
        let files = StoryFiles::at(&worktree, &ctx.request)?;
        // A cancelled phase leaves its files behind.
        phase_check::discard_refused(&self.services, &ctx, &worktree, &files).await?;
        files.write_state(&ctx.request.run).await?;
        files.write_token_log(&ctx.request.run).await?;
        let message = format!("{}: pipeline state", ctx.pipeline_request().story_id);
        let commit = worktree.commit_all(ctx.request.job_number, &message, &author()).await?;
        ctx.job.fault_point("committed")?;
        let error = publish(&ctx, &worktree, commit).await?;
        ctx.job.fault_point("handed over")?;
        if error.is_some() {
            return Ok(DeliveredStory { branch: None, commit: None, error });
        }
        let branch = Some(task_branch(ctx.request.pipeline.as_task()));
        Ok(DeliveredStory { branch, commit: Some(commit), error: None })
    }

    /// Writes and commits the files of a finished phase, and completes its result.
    async fn keep_result(
        &self,
        ctx: &PhaseContext,
        worktree: &Worktree,
        files: &StoryFiles,
        result: PhaseResult,
    ) -> Result<PhaseResult, Error> {
        let (at, mut event) = match result {
            PhaseResult::Ended { at, event } => (at, event),
            later @ PhaseResult::RetryAfter { .. } => return Ok(later),
        };
        let job_number = ctx.request.job_number;
        if worktree.commit_for_job(job_number).await?.is_none() {
            phase_check::discard_refused(&self.services, ctx, worktree, files).await?;
            if let Some(output) = work(&mut event).and_then(|work| work.output.clone()) {
                let text = self.services.store.text(&output).await?;
                files.write_output(ctx.request.phase, &text).await?;
            }
            // The workflow applies the same event, so the files show the state that follows.
            if let Ok((next, _)) = step(&ctx.request.run, at, (*event).clone()) {
                files.write_state(&next).await?;
                files.write_token_log(&next).await?;
            }
        }
        let phase = ctx.phase();
        let message = format!("{}: {}", ctx.pipeline_request().story_id, phase.title());
        let commit = worktree.commit_all(job_number, &message, &author()).await?;
        ctx.job.fault_point("committed")?;
        if let PipelineEvent::SplitProposed { phase, work, .. } = &*event
            && let Some(reason) = publish(ctx, worktree, commit).await?
        {
            // The tasks could not start from the story's branch.
            let (phase, work) = (*phase, work.clone());
            let signal = PhaseSignal::Blocked(reason);
            let source = SignalSource::Structured;
            *event = PipelineEvent::PhaseEnded { phase, signal, source, work };
        }
        if let Some(work) = work(&mut event) {
            work.commit = Some(commit);
            if let Some(usage) = work.usage {
                let pipeline = ctx.request.pipeline;
                let save =
                    || self.services.store.record_phase_usage(pipeline, job_number, at, &usage);
                retry_until_stopped(&ctx.job.stop, save).await?;
            }
        }
        Ok(PhaseResult::Ended { at, event })
    }

    /// Runs the phase where its definition says.
    fn dispatch<'a>(
        &'a self,
        ctx: &'a PhaseContext,
        worktree: &'a Worktree,
        files: &'a StoryFiles,
    ) -> BoxFuture<'a, Result<PhaseEnd, Error>> {
        Box::pin(async move {
            let runs_programs = ctx.phase().runner != PhaseRunner::Status;
            if runs_programs
                && let Some(reason) =
                    self.services.repositories.free_disk_space(&ctx.project).await?
            {
                return Ok(PhaseEnd::blocked(reason, String::new()));
            }
            let ended = match ctx.phase().runner {
                PhaseRunner::Agent => {
                    let keep_end = self.keep_agent_end(ctx);
                    agent_phase::run(&self.services, ctx, worktree, keep_end).await
                }
                PhaseRunner::Tasks => {
                    let keep_end = self.keep_agent_end(ctx);
                    agent_phase::split(&self.services, ctx, worktree, keep_end).await
                }
                PhaseRunner::Command => command_phase::run(&self.services, ctx, worktree).await,
                PhaseRunner::Status => {
                    let output = files.set_story_status("done").await?;
                    Ok(PhaseEnd::signal(PhaseSignal::Success, output))
                }
                PhaseRunner::Approval => {
                    Err(Error::Internal("a person decides this phase".to_owned()))
                }
            };
            match ended {
                // The setup says nothing about the phase; a person must fix it.
                Err(Error::Setup(failed)) => {
                    Ok(PhaseEnd::blocked(failed.reason.to_string(), failed.output))
                }
                ended => ended,
            }
        })
    }

    /// Converts the end of a phase to its event, and stores its output.
    async fn to_result(
        &self,
        ctx: &PhaseContext,
        end: PhaseEnd,
        (at, took_ms): (Timestamp, u64),
    ) -> Result<PhaseResult, Error> {
        let phase = ctx.request.phase;
        let PhaseEnd { kind, mut output, usage, is_estimated } = end;
        if let PhaseEndKind::Signal(signal, SignalSource::Structured) = &kind
            && let Some(line) = signal.line(&ctx.phase())
        {
            // The file ends with the signal, wherever it came from.
            let text = output.trim();
            let gap = if text.is_empty() { "" } else { "\n\n" };
            output = format!("{text}{gap}{line}\n");
        }
        let output = self.save_text(ctx, &output).await?;
        let output = Some(output);
        let work = PhaseWork { output, usage, is_estimated, took_ms, commit: None };
        let event = match kind {
            PhaseEndKind::Signal(signal, source) => {
                PipelineEvent::PhaseEnded { phase, signal, source, work }
            }
            PhaseEndKind::Crashed(error) => PipelineEvent::PhaseCrashed { phase, error, work },
            PhaseEndKind::TimedOut | PhaseEndKind::NotBefore(_) => {
                PipelineEvent::PhaseTimedOut { phase, work }
            }
            PhaseEndKind::Split(split) => {
                let text = serde_json::to_string_pretty(&split).unwrap_or_default();
                let graph: TaskGraph = split.graph(self.save_text(ctx, &text).await?);
                PipelineEvent::SplitProposed { phase, graph, work }
            }
        };
        Ok(PhaseResult::Ended { at, event: Box::new(event) })
    }

    async fn save_text(&self, ctx: &PhaseContext, text: &str) -> Result<Reference, Error> {
        retry_until_stopped(&ctx.job.stop, || self.services.store.save_text(text)).await
    }

    async fn worktree(&self, ctx: &PhaseContext) -> Result<Worktree, Error> {
        self.services.repositories.worktree(&ctx.job, &ctx.project).await
    }

    /// Loads everything that is known about a phase.
    async fn context(
        &self,
        request: PhaseRequest,
        attempt: u32,
        stop: CancellationToken,
    ) -> Result<PhaseContext, Error> {
        let rules = Arc::new(self.services.store.rules(request.policy).await?);
        let run = &request.run;
        let phase = run.request.phase(request.phase).cloned().unwrap_or_default();
        let task = Task {
            id: request.pipeline.as_task(),
            project: request.project,
            title: format!("{}: {}", run.request.story_id, phase.title()),
            description: format!(
                "Phase {} ({}) of story {} in {}.",
                request.phase,
                phase.title(),
                run.request.story_id,
                run.request.feature_dir
            ),
            r#type: TaskType::Feature,
            priority: Priority::Medium,
            acceptance_criteria: Vec::new(),
            labels: Vec::new(),
            depends_on: Vec::new(),
            suggested_agent: None,
            issue_url: None,
            issue_number: None,
            metadata: BTreeMap::new(),
        };
        let received = TaskReceived {
            task: task.id,
            project: task.project,
            priority: task.priority,
            at: now(),
            by: Actor::Person(request.started_by.clone()),
            auth: None,
            submitted_plan: None,
            edition: Edition::NEWEST,
        };
        let task_loop = begin(&received, &rules).next;
        let announce: AnnounceStart = Arc::new(|_| Box::pin(async { Ok(()) }));
        let job = JobContext {
            request: JobRequest {
                job_number: request.job_number,
                // The job itself is never run; the phase is.
                job: Job::Prepare,
                earlier_attempts: 0,
                pending: PendingSteps {
                    task: task.id,
                    project: task.project,
                    policy: request.policy,
                    submission: None,
                    steps: Vec::new(),
                },
            },
            attempt,
            stop,
            abandoned: CancellationToken::new(),
            callbacks: announce.into(),
            rules,
            task_loop,
            task,
            registered_project: None,
            knowledge_revision: None,
            fault_injection: self.services.config.fault_injection.clone(),
        };
        let project = self.services.repositories.project(&job).await?;
        let base = request.base;
        let mut ctx = PhaseContext { request, job, project };
        if let Some(base) = base {
            set_base(&mut ctx, base);
        }
        Ok(ctx)
    }
}

/// Pins the base commit, and makes the job look for work of other hosts.
fn set_base(ctx: &mut PhaseContext, base: CommitId) {
    ctx.request.base = Some(base);
    ctx.job.task_loop.pin = Some(Pin { base, policy: ctx.request.policy, prompts: None });
    ctx.job.task_loop.has_work = true;
}

/// Pushes the story's branch. Returns the reason if the project's repository refuses it.
async fn publish(
    ctx: &PhaseContext,
    worktree: &Worktree,
    commit: CommitId,
) -> Result<Option<String>, Error> {
    let story = ctx.request.pipeline.as_task();
    let branch = task_branch(story);
    match delivery::push_task_branch(worktree.mirror(), (story, &branch), commit).await {
        Ok(_) => Ok(None),
        Err(error @ (delivery::Error::Conflict { .. } | delivery::Error::Rejected { .. })) => {
            Ok(Some(error.to_string()))
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the work of a phase's event.
fn work(event: &mut PipelineEvent) -> Option<&mut PhaseWork> {
    match event {
        PipelineEvent::PhaseEnded { work, .. }
        | PipelineEvent::PhaseCrashed { work, .. }
        | PipelineEvent::PhaseTimedOut { work, .. }
        | PipelineEvent::SplitProposed { work, .. } => Some(work),
        _ => None,
    }
}

/// Returns a problem with the files that the phase needs or must write.
async fn missing_file(ctx: &PhaseContext, worktree: &Worktree, inputs: bool) -> Option<String> {
    let phase = ctx.phase();
    let (names, what) = if inputs { (&phase.inputs, "input") } else { (&phase.outputs, "output") };
    for name in names.iter().map(|name| ctx.expand(name)) {
        let path = worktree.path().join(&name);
        let is_inside = !name.starts_with('/') && !name.split('/').any(|part| part == "..");
        if !is_inside || !tokio::fs::try_exists(&path).await.unwrap_or_default() {
            return Some(format!("{what} `{name}` is missing"));
        }
    }
    None
}

/// Turns a success without the promised files into a failure.
async fn check_outputs(ctx: &PhaseContext, worktree: &Worktree, end: PhaseEnd) -> PhaseEnd {
    if !matches!(end.kind, PhaseEndKind::Signal(PhaseSignal::Success, _)) {
        return end;
    }
    match missing_file(ctx, worktree, false).await {
        Some(reason) => {
            let signal = PhaseSignal::Failed(reason);
            PhaseEnd { kind: PhaseEndKind::Signal(signal, SignalSource::Structured), ..end }
        }
        None => end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crash_of_a_stopped_phase_is_not_its_result() {
        let ended = |kind| PhaseEnd { kind, ..PhaseEnd::blocked("", String::new()) };
        let crashed = ended(PhaseEndKind::Crashed("the connection was lost".to_owned()));
        let late = ended(PhaseEndKind::TimedOut);
        let done = PhaseEnd::signal(PhaseSignal::Success, String::new());
        let stop = CancellationToken::new();
        assert_eq!([&crashed, &late, &done].map(|end| end.is_doubtful(&stop)), [false; 3]);
        stop.cancel();
        let doubtful = [&crashed, &late, &done].map(|end| end.is_doubtful(&stop));
        assert_eq!(doubtful, [true, true, false]);
    }
}
