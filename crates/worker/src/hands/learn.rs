//! Writes down what an ended task has taught.
//!
//! An agent reads the task's record, in an empty folder, and hands in lessons that point at what shows
//! them. What comes of that is a proposal, always: a person decides. Nobody waits for it: the run has a
//! short limit of its own, waits for no quota, and where it comes to nothing the record teaches by
//! itself what failed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tamma_core::budget;
use tamma_core::cost::{Cost, Usage, Usd};
use tamma_core::ids::{KnowledgeId, Reference};
use tamma_core::learning::{Lesson, Record, Source, TASKS, occasions, pattern, plain};
use tamma_core::log::{Entry, Fact};
use tamma_core::rules::Seat;
use tamma_core::task_loop::{Outcome, State};
use tamma_core::tier::Tier;
use tamma_engine::agent::{Mode, RunEnd};
use tamma_engine::submission::{Known, Submission};
use tamma_flow::port::Answer;
use tokio_util::sync::CancellationToken;

use super::attempts::cut;
use super::{Activities, Call, Told, Work};
use crate::error::Error;
use crate::prompts::{Prompt, fill};
use crate::runs::{Assignment, Place, Room, Run};

/// How long a model may think about what a task has taught, in seconds.
const LIMIT: u32 = 120;

/// How long it is waited for a free place, beside that.
const WAIT: Duration = Duration::from_secs(30);

/// How many entries of a task's log are read, which is more than a task writes.
const ENTRIES: u32 = 10_000;

/// How many versions of a plan are read, the newest ones.
const PLANS: u32 = 20;

/// The longest text out of the log that is read, in bytes.
const EACH: usize = 4_000;

/// How many troubles are listed by name.
const LISTED: usize = 20;

impl Activities {
    pub(super) async fn learn(
        &self,
        work: &Work,
        ending: State,
        model: bool,
    ) -> Result<Told, Error> {
        let record = self.record(work, ending).await?;
        let retries = record.attempts.saturating_sub(1);
        if occasions(ending == State::Completed, retries, &work.rules).is_empty() {
            return Ok(learned(0, None));
        }
        let (mut lessons, usage) = if model {
            match self.reflect(work, &record).await {
                Ok((lessons, usage)) => (lessons, usage),
                Err(Error::Stopped) if work.call.stop.is_cancelled() => return Err(Error::Stopped),
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(task = %record.task, error, "no model says what a task taught");
                    (Vec::new(), None)
                }
            }
        } else {
            (Vec::new(), None)
        };
        self.pass("agent ended")?;
        if lessons.is_empty() {
            lessons.extend(plain(&record));
        }
        let of = (record.project, record.task);
        let mut proposals: Vec<(KnowledgeId, Lesson)> =
            lessons.into_iter().map(|lesson| (lesson.id(record.task), lesson)).collect();
        let seen = || self.store.sight(of, &record.troubles, TASKS);
        for one in self.surely(&work.call.stop, seen).await? {
            proposals.extend(pattern(record.project, &one.fault, one.in_code, &one.sightings));
        }
        let propose = || self.store.propose(record.project, proposals.clone());
        let mut entries: Vec<KnowledgeId> =
            self.surely(&work.call.stop, propose).await?.iter().map(|it| it.entry).collect();
        entries.sort_unstable();
        entries.dedup();
        Ok(learned(entries.len(), usage))
    }

    /// Everything there is to learn from.
    async fn record(&self, work: &Work, ending: State) -> Result<Record, Error> {
        let task = work.task.id;
        let lines = self.store.history(task, 0, ENTRIES).await?;
        let log: Vec<Entry> = lines.into_iter().map(|line| line.entry).collect();
        let mut texts: BTreeMap<Reference, String> = BTreeMap::new();
        for entry in &log {
            if let Fact::Kept(kept) = &entry.data
                && !texts.contains_key(kept)
                && let Ok(text) = self.store.kept(kept).await
            {
                texts.insert(kept.clone(), cut(&text, EACH));
            }
        }
        let newest = work.memory.plan.as_ref().map_or(0, |plan| plan.version);
        let mut plans = Vec::new();
        for version in newest.saturating_sub(PLANS) + 1..=newest {
            match self.store.plan(task, version).await {
                Ok(plan) => plans.push((version, plan)),
                Err(tamma_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let checks = self.store.checks(task).await?;
        let checks: Vec<_> =
            checks.into_iter().map(|it| (it.ticket, it.iteration, it.record)).collect();
        Ok(Record::of(&Source {
            task,
            project: work.call.errand.diary.project,
            ending,
            log: &log,
            texts: &texts,
            plans: &plans,
            checks: &checks,
            spend: work.memory.spend,
        }))
    }

    /// Asks a model what the record teaches. Nothing, where it did not come to its end.
    async fn reflect(
        &self,
        work: &Work,
        record: &Record,
    ) -> Result<(Vec<Lesson>, Option<Usage>), Error> {
        let stop = work.call.stop.child_token();
        let mut running = Box::pin(self.ask_what_it_taught(work, record, stop.clone()));
        let longest = WAIT + Duration::from_secs(LIMIT.into());
        let run = tokio::select! {
            run = &mut running => run,
            () = tokio::time::sleep(longest) => {
                stop.cancel();
                running.await
            }
        }?;
        let usage = run.report.usage;
        match run.report.end {
            RunEnd::Finished { submission: Submission::Lessons(taught), .. } => {
                Ok((taught.lessons(record), usage))
            }
            end => {
                tracing::info!(task = %record.task, ?end, "no model says what a task taught");
                Ok((Vec::new(), usage))
            }
        }
    }

    async fn ask_what_it_taught(
        &self,
        work: &Work,
        record: &Record,
        stop: CancellationToken,
    ) -> Result<Run, Error> {
        let _looker = tokio::select! {
            place = self.lookers.acquire() => place.map_err(|_| Error::Stopped)?,
            () = stop.cancelled() => return Err(Error::Stopped),
        };
        let site = self.site(work).await?;
        let call = Call { stop, ..work.call.clone() };
        let (rules, memory, task) = (work.rules.clone(), work.memory.clone(), work.task.clone());
        let work = Work { call, rules, memory, task };
        let troubles = record.troubles.iter().take(LISTED).map(|it| it.fault.as_str());
        let prompt = fill(
            Prompt::Learn,
            json!({
                "task": work.task,
                "ending": record.ending.to_string(),
                "short": record.in_short(),
                "troubles": troubles.collect::<Vec<_>>(),
                "record": record.in_words(),
                "known": self.known_of_task(&work).await?,
            }),
        )?;
        let labels = record.clone();
        let evidence: Known = Arc::new(move |label| labels.find(label).is_some());
        let limit = budget::limit(work.memory.risk(), &work.memory.granted, &work.rules);
        let assignment = Assignment {
            place: Place { seat: Seat::from(Tier::Simple), home: Some("learning".to_owned()) },
            mode: Mode::Learn,
            prompt,
            seconds: LIMIT,
            allowance: budget::left(&work.memory.spend, &limit),
            evidence: Some(evidence),
        };
        // Its own for each attempt, because nothing in it is of any use to another.
        let empty =
            self.config.data.join("rooms").join(format!("{}", work.run()).replace('/', "-"));
        let odd = |error: std::io::Error| Error::Odd(format!("{}: {error}", empty.display()));
        tokio::fs::create_dir_all(&empty).await.map_err(odd)?;
        let run = self.run_agent(&work, &site, Room::empty(&empty), assignment).await;
        if let Err(error) = tokio::fs::remove_dir_all(&empty).await {
            tracing::warn!(%error, "the room of a run is left behind");
        }
        run
    }
}

/// The answer. What asked no model has cost nothing, whatever was set aside.
fn learned(lessons: usize, usage: Option<Usage>) -> Told {
    let nothing = Usage { cost: Cost::Known(Usd::ZERO), ..Usage::default() };
    let outcome = Outcome::Learned(u16::try_from(lessons).unwrap_or(u16::MAX));
    Told::from(Answer::Ended { outcome, usage: Some(usage.unwrap_or(nothing)) })
}
