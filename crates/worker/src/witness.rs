//! Sees a run work, tells everybody who watches, and keeps what happened.
//!
//! The engine's observer must not wait, so what it sees goes through a channel with a bound to a
//! task of its own, which folds it into lines, writes the transcript, and tells the store a few
//! times a second. A store that is away holds up nothing: lines wait for it, and when they become
//! too many, the rest is only in the transcript, and that is said. Everything is cleaned of secrets
//! and control sequences before it leaves this process.

mod fold;
mod transcript;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _, OptionFuture};
use tamma_core::cost::Usage;
use tamma_core::task_loop::Timestamp;
use tamma_core::tier::Tier;
use tamma_engine::agent::{self, Mode, Observer};
use tamma_engine::process::RunId;
use tamma_store::{EndedRun, NewRun, News, Objects, RunEnd, RunNumber, Store};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

pub use fold::Redact;
pub(crate) use transcript::put_leftovers;

use crate::error::Error;
use crate::hands::now;
use fold::{Fold, Seen};
use transcript::Transcript;

/// How many updates wait to be folded. A run that says more at once loses some, and says so.
const SEEN: usize = 8192;

/// How often the store is told.
const OFTEN: Duration = Duration::from_millis(500);

/// How many lines are told at once, without waiting for the time.
const MANY: usize = 100;

/// How many lines one statement takes.
const BATCH: usize = 500;

/// How long the end of a run waits for the store.
const FAREWELL: Duration = Duration::from_secs(15);

/// What a run is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFacts {
    /// Which piece of work.
    pub run: RunId,
    /// When it starts.
    pub at: Timestamp,
    /// The agent, as the rules call it.
    pub agent: String,
    /// The model, if one is asked for.
    pub model: Option<String>,
    /// How strong an engine it is.
    pub tier: Option<Tier>,
    /// What it is for.
    pub mode: Mode,
    /// The worker that does it.
    pub worker: String,
}

/// How a run ended, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// How.
    pub end: RunEnd,
    /// Why, if there is something to say.
    pub reason: Option<String>,
}

impl From<&agent::RunEnd> for Ending {
    fn from(end: &agent::RunEnd) -> Self {
        use agent::RunEnd as E;
        let (end, reason) = match end {
            E::Finished { stop, .. } => (RunEnd::Finished, Some(stop.clone())),
            E::Crashed { reason } => (RunEnd::Crashed, Some(reason.clone())),
            E::TimedOut => (RunEnd::TimedOut, None),
            E::Cancelled => (RunEnd::Cancelled, None),
            E::Unavailable { reason } => (RunEnd::Unavailable, Some(reason.clone())),
            E::Quota { until } => (RunEnd::Quota, Some(format!("until {until}"))),
            E::OverBudget => (RunEnd::OverBudget, None),
            E::Asked { question } => (RunEnd::Asked, Some(question.question.clone())),
        };
        Self { end, reason }
    }
}

/// How it all ended, for the task that writes it down.
type Last = (Ending, Option<(Usage, bool)>);

/// Sees one run. Dropped without [`Witness::finish`], it writes down that the run was given up.
#[derive(Debug)]
pub struct Witness {
    seen: mpsc::Sender<(Timestamp, Seen)>,
    missed: Arc<AtomicU64>,
    last: Option<oneshot::Sender<Last>>,
    scribe: Option<JoinHandle<Result<(), Error>>>,
}

impl Witness {
    /// Begins to see a run. `data` is the worker's folder, `redact` takes secrets out of a text.
    pub async fn begin(
        store: &Store,
        objects: &Objects,
        data: &Path,
        facts: RunFacts,
        redact: Redact,
    ) -> Result<Self, Error> {
        let RunFacts { run: RunId { task, ticket, generation }, at, .. } = facts;
        let number = RunNumber { ticket, attempt: generation };
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
        let (seen, ears) = mpsc::channel(SEEN);
        let (last, ended) = oneshot::channel();
        let missed = Arc::new(AtomicU64::new(0));
        let scribe = Scribe {
            store: store.clone(),
            objects: objects.clone(),
            run,
            fold: Fold::new(redact, before),
            transcript: Some(transcript),
            missed: missed.clone(),
        };
        let scribe = tokio::spawn(scribe.write(ears, ended));
        Ok(Self { seen, missed, last: Some(last), scribe: Some(scribe) })
    }

    /// Sees what the engine tells. It never waits: what cannot be taken in at once is counted.
    pub fn observer(&self) -> Observer {
        let (seen, missed) = (self.seen.clone(), self.missed.clone());
        Arc::new(move |update| {
            if seen.try_send((now(), Seen::Update(update))).is_err() {
                missed.fetch_add(1, Ordering::Relaxed);
            }
        })
    }

    /// The run has ended. Returns when everything is written down, or cannot be: a run that is paid
    /// for does not fail because of what is written about it, so the caller goes on either way.
    /// `usage` is what the run used, if that is known, and whether we have counted it ourselves;
    /// without it, what was seen stands.
    pub async fn finish(
        mut self,
        ending: Ending,
        usage: Option<Usage>,
        metered: bool,
    ) -> Result<(), Error> {
        if let Some(last) = self.last.take() {
            let _ = last.send((ending, usage.map(|usage| (usage, metered))));
        }
        match self.scribe.take() {
            Some(scribe) => scribe.await.unwrap_or_else(|error| Err(Error::Odd(error.to_string()))),
            None => Ok(()),
        }
    }
}

/// What writes down what was seen.
struct Scribe {
    store: Store,
    objects: Objects,
    run: NewRun,
    fold: Fold,
    /// Nothing, once it cannot be written any more.
    transcript: Option<Transcript>,
    missed: Arc<AtomicU64>,
}

type Sending = BoxFuture<'static, (News, tamma_store::Result<()>)>;

impl Scribe {
    async fn write(
        mut self,
        mut ears: mpsc::Receiver<(Timestamp, Seen)>,
        mut ended: oneshot::Receiver<Last>,
    ) -> Result<(), Error> {
        let mut often = tokio::time::interval(OFTEN);
        often.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut sending: Option<Sending> = None;
        // What the store did not take, to be sent again.
        let mut again: Option<News> = None;
        let mut seen = Vec::with_capacity(MANY);
        let last = loop {
            let due = tokio::select! {
                last = &mut ended => break last.ok(),
                _ = often.tick() => true,
                // Ends only with the witness, which the first arm sees.
                _ = ears.recv_many(&mut seen, MANY) => false,
                Some((news, told)) = OptionFuture::from(sending.as_mut()) => {
                    sending = None;
                    again = self.judge(news, told);
                    false
                }
            };
            self.take_in(&mut seen).await;
            if due {
                self.fold.tick(now());
                self.flush().await;
            }
            // One at a time, and what failed only when its time has come.
            let many = again.is_none() && self.fold.waiting() >= MANY;
            if sending.is_none() && (due || many) {
                let news = again.take().or_else(|| self.fold.take(now(), BATCH));
                sending = news.map(|news| self.send(news));
            }
        };
        ears.close();
        while let Some(one) = ears.recv().await {
            seen.push(one);
        }
        self.take_in(&mut seen).await;
        self.fold.close();
        let told = tokio::time::timeout(FAREWELL, self.tell_all(sending, again)).await;
        if told.is_err() {
            tracing::warn!(task = %self.run.task, "the last lines of a run are only in its transcript");
        }
        self.end(last).await
    }

    /// Takes in what was seen.
    async fn take_in(&mut self, seen: &mut Vec<(Timestamp, Seen)>) {
        let missed = self.missed.swap(0, Ordering::Relaxed);
        for (at, one) in seen.drain(..) {
            self.fold.see(at, one);
        }
        if missed > 0 {
            let text = format!("{missed} updates were missed: the agent told too much at once");
            self.fold.see(now(), Seen::Note(text));
        }
        let records = self.fold.records();
        if let Some(transcript) = &mut self.transcript
            && let Err(error) = transcript.write(records).await
        {
            self.no_transcript(&error);
        }
    }

    async fn flush(&mut self) {
        if let Some(transcript) = &mut self.transcript
            && let Err(error) = transcript.flush().await
        {
            self.no_transcript(&error);
        }
    }

    fn no_transcript(&mut self, error: &Error) {
        tracing::warn!(task = %self.run.task, %error, "a transcript ends before its run");
        self.transcript = None;
        let text = "the transcript ends here: it cannot be written to the disk".to_owned();
        self.fold.see(now(), Seen::Note(text));
    }

    fn send(&self, news: News) -> Sending {
        let (store, task, number) = (self.store.clone(), self.run.task, self.run.number);
        async move {
            let told = store.tell(task, number, &news).await;
            (news, told)
        }
        .boxed()
    }

    /// What is to be sent again after an answer of the store.
    fn judge(&self, news: News, told: tamma_store::Result<()>) -> Option<News> {
        match told {
            Ok(()) => None,
            Err(error) if error.is_retryable() => Some(news),
            Err(error) => {
                // It would be refused again; what is in it is in the transcript.
                tracing::error!(task = %self.run.task, %error, "lines of a run were refused");
                None
            }
        }
    }

    /// Tells the store everything that it does not know yet.
    async fn tell_all(&mut self, sending: Option<Sending>, mut again: Option<News>) {
        if let Some(sending) = sending {
            let (news, told) = sending.await;
            again = self.judge(news, told);
        }
        let mut pause = tokio::time::interval(OFTEN);
        loop {
            let Some(news) = again.take().or_else(|| self.fold.take(now(), BATCH)) else { return };
            let (news, told) = self.send(news).await;
            again = self.judge(news, told);
            if again.is_some() {
                pause.tick().await;
            }
        }
    }

    /// Puts the transcript where it belongs, and writes down how the run ended.
    async fn end(mut self, last: Option<Last>) -> Result<(), Error> {
        let (ending, usage) = last.unwrap_or_else(|| {
            let reason = Some("the job was given up before the run had ended".to_owned());
            (Ending { end: RunEnd::Cancelled, reason }, None)
        });
        let records = self.fold.records();
        let kept = match self.transcript.take() {
            Some(mut transcript) => match transcript.write(records).await {
                Ok(()) => transcript.put(&self.objects).await.map(Some),
                Err(error) => Err(error),
            },
            None => Ok(None),
        };
        let transcript = kept.unwrap_or_else(|error| {
            tracing::warn!(
                task = %self.run.task,
                error = &error as &dyn std::error::Error,
                "a transcript stays on this machine, and is put in its place later"
            );
            None
        });
        let ended = EndedRun {
            at: now(),
            end: ending.end,
            reason: ending.reason.map(|reason| self.fold.clean(&reason)),
            usage: usage.or(self.fold.usage()),
            transcript,
        };
        let write = async {
            let mut pause = tokio::time::interval(OFTEN);
            loop {
                pause.tick().await;
                match self.store.end_run(self.run.task, self.run.number, &ended).await {
                    Err(error) if error.is_retryable() => {}
                    done => return done,
                }
            }
        };
        match tokio::time::timeout(FAREWELL, write).await {
            Ok(written) => Ok(written?),
            // The next run of the task says that this one was lost.
            Err(_) => Err(Error::Odd("the end of a run could not be written down".to_owned())),
        }
    }
}
