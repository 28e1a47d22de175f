//! Recording of a run: log lines, model calls and the transcript.
//!
//! The engine's observer must not block, so updates go through a bounded channel to a separate
//! task. It builds lines, writes the transcript, and updates the store a few times per second. If
//! the store is unavailable, lines are queued. Beyond a limit they are only in the transcript, and
//! a note says so. Secrets and control sequences are removed before anything leaves this process.

mod line_builder;
mod relative_paths;
mod tool_call;
mod transcript;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chrono::TimeDelta;
use futures::future::{BoxFuture, FutureExt as _, OptionFuture};
use tamma_core::cost::Usage;
use tamma_core::ids::Digest;
use tamma_core::prices;
use tamma_core::run_result::RunStatus;
use tamma_core::task_loop::Timestamp;
use tamma_core::tier::Tier;
use tamma_core::update_clock::UpdateClock;
use tamma_engine::agent::{self, AgentObserver, RunMode};
use tamma_engine::process::RunId;
use tamma_engine::submission::Submission;
use tamma_store::{EndedRun, NewRun, ObjectStorage, RunEnd, RunNumber, RunUpdate, Store};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

pub(crate) use line_builder::REQUESTED_MODEL;
pub use line_builder::Redact;
pub(crate) use transcript::upload_leftovers;

use crate::clock::now;
use crate::error::Error;
use crate::task_trace;
use line_builder::{LineBuilder, Observation, RunStart};
use transcript::Transcript;

/// Capacity of the update channel. Updates beyond it are dropped, and a note says how many.
const CHANNEL_CAPACITY: usize = 8192;

/// Interval of updates to the store.
const FLUSH_INTERVAL: Duration = Duration::from_millis(500);

/// Number of lines that triggers an update before the interval has passed.
const FLUSH_LINES: usize = 100;

/// Maximum number of lines per statement.
const MAX_BATCH: usize = 500;

/// Time that the end of a run waits for the store.
const END_TIMEOUT: Duration = Duration::from_secs(15);

/// Time that the end of a run waits for the upload of its transcript.
const UPLOAD_TIMEOUT: Duration = Duration::from_mins(1);

/// Description of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFacts {
    /// Task, job number and attempt.
    pub run: RunId,
    /// Start time.
    pub at: Timestamp,
    /// Name of the agent in the rules.
    pub agent: String,
    /// Requested model, if any.
    pub model: Option<String>,
    /// Tier of the agent.
    pub tier: Option<Tier>,
    /// Purpose of the run.
    pub mode: RunMode,
    /// Name of the worker.
    pub worker: String,
    /// Prompt of the run, if it was made from a template.
    pub prompt: Option<PromptRecord>,
    /// Description of content that the checkout lacks.
    pub missing_content: Option<String>,
    /// Clock of progress lines. Only implementation runs have them.
    pub progress_clock: UpdateClock,
    /// Number of the iteration and the maximum; `None` except for implementation runs.
    pub iteration: Option<(u16, u16)>,
    /// Folder that the agent works in. Paths in log lines are relative to it.
    pub worktree: PathBuf,
}

/// Identity of a run's prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptRecord {
    /// Name of the prompt.
    pub name: String,
    /// Digest of its template.
    pub template: Digest,
    /// Digest of all prompts that the task is pinned to.
    pub set: Option<Digest>,
    /// Name and template of the prompt that replaces it in a resumed session, if any.
    pub continuation: Option<(String, Digest)>,
}

/// End of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunEnding {
    /// Kind of end.
    pub end: RunEnd,
    /// Reason, if known.
    pub reason: Option<String>,
}

impl From<&agent::RunEnd> for RunEnding {
    fn from(end: &agent::RunEnd) -> Self {
        use agent::RunEnd as E;
        let (end, reason) = match end {
            E::Finished { submission: Submission::Result(result), stop_reason } => {
                let summary = Some(result.summary.clone());
                match result.status {
                    RunStatus::Done => (RunEnd::Finished, Some(stop_reason.clone())),
                    RunStatus::Blocked => (RunEnd::Asked, summary),
                    RunStatus::PlanWrong => (RunEnd::PlanWrong, summary),
                }
            }
            E::Finished { stop_reason: stop, .. } => (RunEnd::Finished, Some(stop.clone())),
            E::Crashed { reason } => (RunEnd::Crashed, Some(reason.clone())),
            E::TimedOut => (RunEnd::TimedOut, None),
            E::Cancelled => (RunEnd::Cancelled, None),
            E::Unavailable { reason } => (RunEnd::Unavailable, Some(reason.clone())),
            E::Quota { until } => (RunEnd::Quota, Some(format!("until {until}"))),
            E::OverBudget => (RunEnd::OverBudget, None),
            E::Unpriced { model } => (RunEnd::OverBudget, Some(prices::unpriced_reason(model))),
            E::Refused { reason } => (RunEnd::Refused, Some(reason.clone())),
            E::QuestionAsked { question } => (RunEnd::Asked, Some(question.question.clone())),
        };
        Self { end, reason }
    }
}

/// End of the run and its usage, for the recorder task.
type FinalReport = (RunEnding, Option<(Usage, bool)>);

/// Recorder of one run. Dropped without [`RunRecorder::finish`], it records the run as cancelled.
#[derive(Debug)]
pub struct RunRecorder {
    observations: mpsc::Sender<(Timestamp, Observation)>,
    missed: Arc<AtomicU64>,
    end: Option<oneshot::Sender<FinalReport>>,
    task: Option<JoinHandle<Result<(), Error>>>,
}

impl RunRecorder {
    /// Starts recording a run. `data` is the worker's directory; `redact` removes secrets from
    /// text.
    pub async fn start(
        store: &Store,
        objects: &ObjectStorage,
        data: &Path,
        facts: RunFacts,
        redact: Redact,
    ) -> Result<Self, Error> {
        let RunFacts { run: RunId { task, job_number: ticket, generation }, at, .. } = facts;
        let number = RunNumber { job_number: ticket, attempt: generation };
        let run = NewRun {
            task,
            number,
            at,
            agent: facts.agent,
            model: facts.model,
            tier: facts.tier,
            mode: facts.mode.to_string(),
            worker: Some(facts.worker),
        };
        let before = store.begin_run(&run).await?;
        let transcript = Transcript::open(data, task, number).await?;
        let (observations, receiver) = mpsc::channel(CHANNEL_CAPACITY);
        let (end, ended) = oneshot::channel();
        let missed = Arc::new(AtomicU64::new(0));
        let worktree = facts.worktree.display().to_string();
        let mut line_builder = LineBuilder::new(redact, worktree, before);
        if let Some(prompt) = facts.prompt {
            let start = RunStart { prompt, model: run.model.clone(), iteration: facts.iteration };
            line_builder.observe(at, Observation::Started(start));
        }
        if let Some(missing) = facts.missing_content {
            line_builder.observe(at, Observation::Note(missing));
        }
        if facts.mode == RunMode::Implement {
            line_builder.report_progress(at, facts.progress_clock);
        }
        let recorder_task = RecorderTask {
            store: store.clone(),
            objects: objects.clone(),
            run,
            line_builder,
            transcript: Some(transcript),
            missed: missed.clone(),
        };
        let recorder_task = tokio::spawn(recorder_task.run(receiver, ended));
        Ok(Self { observations, missed, end: Some(end), task: Some(recorder_task) })
    }

    /// Returns the observer for the engine. It never blocks; dropped updates are counted.
    pub fn observer(&self) -> AgentObserver {
        let (observations, missed) = (self.observations.clone(), self.missed.clone());
        Arc::new(move |update| {
            if observations.try_send((now(), Observation::Update(update))).is_err() {
                missed.fetch_add(1, Ordering::Relaxed);
            }
        })
    }

    /// Ends the recording, and returns once everything is saved or saving has failed. A failure
    /// here must not fail the run. `usage` is what the run used, and `metered` whether the gateway
    /// counted it. Without `usage`, the recorded updates decide.
    pub async fn finish(
        mut self,
        ending: RunEnding,
        usage: Option<Usage>,
        metered: bool,
    ) -> Result<(), Error> {
        if let Some(end) = self.end.take() {
            let _ = end.send((ending, usage.map(|usage| (usage, metered))));
        }
        match self.task.take() {
            Some(recorder_task) => {
                recorder_task.await.unwrap_or_else(|error| Err(Error::Internal(error.to_string())))
            }
            None => Ok(()),
        }
    }
}

/// Waits for a time; forever for `None`.
async fn sleep_for(time: Option<TimeDelta>) {
    match time {
        Some(time) => tokio::time::sleep(time.to_std().unwrap_or_default()).await,
        None => std::future::pending().await,
    }
}

/// Task that saves the updates of a run.
struct RecorderTask {
    store: Store,
    objects: ObjectStorage,
    run: NewRun,
    line_builder: LineBuilder,
    /// Transcript; `None` after a write error.
    transcript: Option<Transcript>,
    missed: Arc<AtomicU64>,
}

type PendingSend = BoxFuture<'static, (RunUpdate, tamma_store::Result<()>)>;

impl RecorderTask {
    async fn run(
        mut self,
        mut receiver: mpsc::Receiver<(Timestamp, Observation)>,
        mut ended: oneshot::Receiver<FinalReport>,
    ) -> Result<(), Error> {
        // The first lines wait for others. A short run saves all of them with its end.
        let start = tokio::time::Instant::now() + FLUSH_INTERVAL;
        let mut interval = tokio::time::interval_at(start, FLUSH_INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut sending: Option<PendingSend> = None;
        // Update that the store did not accept, to be retried.
        let mut retry: Option<RunUpdate> = None;
        let mut observations = Vec::with_capacity(FLUSH_LINES);
        let mut has_unflushed = true;
        let final_report = loop {
            let progress_wait = self.line_builder.next_progress().map(|at| at - now());
            // Nothing is done while the agent only waits.
            let is_waiting =
                retry.is_none() && !has_unflushed && !self.line_builder.is_incomplete();
            let is_due = tokio::select! {
                final_report = &mut ended => break final_report.ok(),
                _ = interval.tick(), if !is_waiting => true,
                // Progress has its own interval, which may be shorter. Its line waits for the next
                // update to the store.
                () = sleep_for(progress_wait) => {
                    self.line_builder.tick(now());
                    has_unflushed = true;
                    false
                }
                // The channel closes only with the recorder, which the first branch notices.
                _ = receiver.recv_many(&mut observations, FLUSH_LINES) => false,
                Some((update, result)) = OptionFuture::from(sending.as_mut()) => {
                    sending = None;
                    retry = self.batch_to_retry(update, result);
                    false
                }
            };
            has_unflushed |= !observations.is_empty();
            self.observe_all(&mut observations).await;
            if is_due {
                self.line_builder.tick(now());
                self.flush().await;
                has_unflushed = false;
            }
            // One update at a time; failed ones wait for the next interval.
            let is_full = retry.is_none() && self.line_builder.pending_lines() >= FLUSH_LINES;
            if sending.is_none() && (is_due || is_full) {
                let update =
                    retry.take().or_else(|| self.line_builder.take_batch(now(), MAX_BATCH));
                sending = update.map(|update| self.send(update));
            }
        };
        receiver.close();
        while let Some(observation) = receiver.recv().await {
            observations.push(observation);
        }
        self.observe_all(&mut observations).await;
        self.line_builder.close(now());
        self.record_spans();
        let result = tokio::time::timeout(END_TIMEOUT, self.send_remaining(sending, retry)).await;
        let last = result.unwrap_or_else(|_| {
            tracing::warn!(task = %self.run.task, "failed to save the last log lines; they are in the transcript");
            None
        });
        self.save_end(final_report, last.unwrap_or_default()).await
    }

    /// Processes received updates.
    async fn observe_all(&mut self, observations: &mut Vec<(Timestamp, Observation)>) {
        let missed = self.missed.swap(0, Ordering::Relaxed);
        for (at, observation) in observations.drain(..) {
            self.line_builder.observe(at, observation);
        }
        if missed > 0 {
            let text = format!("{missed} updates were dropped: the agent sent too many at once");
            self.line_builder.observe(now(), Observation::Note(text));
        }
        self.record_spans();
        let records = self.line_builder.take_records();
        if let Some(transcript) = &mut self.transcript
            && let Err(error) = transcript.write(records).await
        {
            self.drop_transcript(&error);
        }
    }

    /// Records the spans of the calls that have ended.
    fn record_spans(&mut self) {
        task_trace::record_tool_calls(&self.run, self.line_builder.take_ended_calls());
        task_trace::record_model_calls(&self.run, self.line_builder.take_ended_model_calls());
    }

    async fn flush(&mut self) {
        if let Some(transcript) = &mut self.transcript
            && let Err(error) = transcript.flush().await
        {
            self.drop_transcript(&error);
        }
    }

    fn drop_transcript(&mut self, error: &Error) {
        tracing::warn!(task = %self.run.task, %error, "failed to write transcript");
        self.transcript = None;
        let text = "the transcript ends here: it cannot be written to disk".to_owned();
        self.line_builder.observe(now(), Observation::Note(text));
    }

    fn send(&self, update: RunUpdate) -> PendingSend {
        let (store, task, number) = (self.store.clone(), self.run.task, self.run.number);
        async move {
            let result = store.append_run_update(task, number, &update).await;
            (update, result)
        }
        .boxed()
    }

    /// Returns the update if it must be sent again.
    fn batch_to_retry(
        &self,
        update: RunUpdate,
        result: tamma_store::Result<()>,
    ) -> Option<RunUpdate> {
        match result {
            Ok(()) => None,
            Err(error) if error.is_retryable() => Some(update),
            Err(error) => {
                // The store would refuse it again; its content is in the transcript.
                tracing::error!(task = %self.run.task, %error, "store refused log lines");
                None
            }
        }
    }

    /// Sends what the store does not have yet, except for the last update. It returns that one, which
    /// is saved with the end of the run.
    async fn send_remaining(
        &mut self,
        sending: Option<PendingSend>,
        mut retry: Option<RunUpdate>,
    ) -> Option<RunUpdate> {
        if let Some(sending) = sending {
            let (update, result) = sending.await;
            retry = self.batch_to_retry(update, result);
        }
        let mut pause = tokio::time::interval(FLUSH_INTERVAL);
        loop {
            let update = retry.take().or_else(|| self.line_builder.take_batch(now(), MAX_BATCH))?;
            if !self.line_builder.has_unsaved() {
                return Some(update);
            }
            let (update, result) = self.send(update).await;
            retry = self.batch_to_retry(update, result);
            if retry.is_some() {
                pause.tick().await;
            }
        }
    }

    /// Uploads the transcript, and saves the last update and the end of the run.
    async fn save_end(
        mut self,
        final_report: Option<FinalReport>,
        mut last: RunUpdate,
    ) -> Result<(), Error> {
        let (ending, usage) = final_report.unwrap_or_else(|| {
            let reason = Some("the job ended before the run".to_owned());
            (RunEnding { end: RunEnd::Cancelled, reason }, None)
        });
        let records = self.line_builder.take_records();
        // The last model calls are saved after it, so it must not wait for ever.
        let transcript = self.transcript.take();
        let upload = async {
            let Some(mut transcript) = transcript else { return Ok(None) };
            transcript.write(records).await?;
            transcript.upload(&self.objects).await.map(Some)
        };
        let uploaded = tokio::time::timeout(UPLOAD_TIMEOUT, upload).await.unwrap_or_else(|_| {
            let seconds = UPLOAD_TIMEOUT.as_secs();
            Err(Error::Internal(format!("transcript was not uploaded within {seconds} s")))
        });
        let transcript = uploaded.unwrap_or_else(|error| {
            tracing::warn!(
                task = %self.run.task,
                error = &error as &dyn std::error::Error,
                "failed to upload transcript; it will be retried"
            );
            None
        });
        let ended = EndedRun {
            at: now(),
            end: ending.end,
            reason: ending.reason.map(|reason| self.line_builder.clean(&reason)),
            usage: usage.or(self.line_builder.usage()),
            transcript,
        };
        task_trace::record_run(&self.run, ended.at, ended.end, ended.usage.map(|(usage, _)| usage));
        let write = async {
            let mut pause = tokio::time::interval(FLUSH_INTERVAL);
            loop {
                pause.tick().await;
                let (task, run) = (self.run.task, self.run.number);
                match self.store.finish_run(task, run, &last, &ended).await {
                    Err(error) if error.is_retryable() => {}
                    Err(error) if last != RunUpdate::default() => {
                        // The end must be saved; the content is in the transcript.
                        tracing::error!(%task, %error, "store refused log lines");
                        last = RunUpdate::default();
                    }
                    done => return done,
                }
            }
        };
        match tokio::time::timeout(END_TIMEOUT, write).await {
            Ok(written) => Ok(written?),
            // The next run of the task marks this one as lost.
            Err(_) => Err(Error::Internal("failed to save the end of a run".to_owned())),
        }
    }
}
