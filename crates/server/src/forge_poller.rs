//! Forge poller: reads facts about open pull requests and issues, and passes them on.
//!
//! One server at a time polls a forge. Polling is the truth: every pull request is read at least every
//! 30 s, and completely every 5 min, also after its task has ended. A webhook only leaves a hint, which
//! wakes the poller; then only what has a hint is read. The poller stops at 40 % of the forge's quota,
//! because people need the rest.
//!
//! Facts are saved first, then sent to the workflow of the task, then marked as received. Facts whose
//! mark is missing are sent again.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::TimeDelta;
use futures_util::future::join_all;
use tamma_connect::forge::{self, Forge, Observation, ObservedChange, SettingsError};
use tamma_core::forge::{PullRequestFacts, PullRequestStatus};
use tamma_core::ids::TaskId;
use tamma_core::run_queue::WaitingRun;
use tamma_core::task::Priority;
use tamma_core::time::Timestamp;
use tamma_store::{ForgeCursor, ForgeHints, Lease, RegisteredProject, StoredPullRequest};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::app::{App, Error};
use crate::clock;
use crate::intake::IssueIntake;
use crate::issue_progress::IssueProgress;

/// Time between two rounds without a hint. Quiet pull requests are read in every second one, so each
/// change is noticed within 30 s.
const TICK: Duration = Duration::from_secs(12);

/// Age of the last observation from which a pull request is read again, with some slack for the time
/// that a round takes.
const ACTIVE_AGE: TimeDelta = TimeDelta::seconds(8);
const QUIET_AGE: TimeDelta = TimeDelta::seconds(18);

/// Time without a change after which a pull request is quiet.
const QUIET_AFTER: TimeDelta = TimeDelta::minutes(10);

/// Age of the last complete read from which the cursor is left out. With one more round, it is less
/// than 5 min.
const FULL_READ_AGE: TimeDelta = TimeDelta::seconds(260);

/// Part of the quota at which the poller stops.
const MIN_QUOTA: f64 = 0.4;

/// Pause after the quota has reached its limit. Then one request shows whether it was renewed.
const QUOTA_PAUSE: TimeDelta = TimeDelta::minutes(10);

/// Number of pull requests per request for facts. The client splits it further.
const MAX_OBSERVED: usize = 100;

/// Duration of a lease on a forge. It is renewed for each repository, and is longer than the poll of
/// one: a forge that does not respond ends it after one or two requests of 30 s.
const LEASE: Duration = Duration::from_mins(3);

/// Failure of a poll. Other repositories are polled anyway.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PollError {
    /// Forge refused or failed.
    #[error(transparent)]
    Forge(#[from] forge::Error),
    /// Settings of the forges cannot be read.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Database, Temporal or a use case failed.
    #[error(transparent)]
    App(#[from] Error),
}

impl From<tamma_store::Error> for PollError {
    fn from(error: tamma_store::Error) -> Self {
        Self::App(error.into())
    }
}

/// Repository of one or more projects.
pub(crate) struct PolledRepository {
    /// Client of its forge.
    pub(crate) forge: Forge,
    /// Path in the forge, such as `owner/name`.
    pub(crate) path: String,
    /// Projects with this repository.
    pub(crate) projects: Vec<RegisteredProject>,
}

/// Polls the forges of the installation.
pub(crate) struct ForgePoller {
    hints: ForgeHints,
    rounds: PollRounds,
}

/// Rounds of the poller.
struct PollRounds {
    app: App,
    /// Holder of the leases.
    holder: String,
    started_at: Timestamp,
    /// Time of the last change of each pull request, as far as this server saw it.
    changed_at: BTreeMap<TaskId, Timestamp>,
    progress: IssueProgress,
}

/// Results of polling one forge.
#[derive(Default)]
struct PolledForge {
    changed: Vec<TaskId>,
    /// Tasks whose issue changed too late for them.
    unheard: Vec<TaskId>,
}

impl ForgePoller {
    pub(crate) fn new(app: App, hints: ForgeHints) -> Self {
        let rounds = PollRounds {
            holder: format!("forge poller {}", clock::new_id()),
            started_at: clock::now(),
            changed_at: BTreeMap::new(),
            progress: IssueProgress::new(&app),
            app,
        };
        Self { hints, rounds }
    }

    /// Runs until `stop` is cancelled.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let Self { mut hints, mut rounds } = self;
        let wake = Notify::new();
        let forward = async {
            loop {
                match hints.next().await {
                    Ok(_) => wake.notify_one(),
                    Err(error) => return error,
                }
            }
        };
        let lost = tokio::select! {
            error = forward => Some(error),
            () = rounds.run(&wake, &stop) => None,
        };
        if let Some(error) = lost {
            tracing::warn!(%error, "webhooks wake the forge poller no longer; polling goes on");
            rounds.run(&wake, &stop).await;
        }
        let _ = rounds.app.store.release_leases(&rounds.holder).await;
    }
}

impl PollRounds {
    async fn run(&mut self, wake: &Notify, stop: &CancellationToken) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let everything = tokio::select! {
                () = stop.cancelled() => return,
                _ = tick.tick() => true,
                () = wake.notified() => false,
            };
            let round = Box::pin(self.round(everything));
            tokio::select! {
                () = stop.cancelled() => return,
                ended = round => if let Err(error) = ended {
                    tracing::warn!(%error, "polling the forges failed; retrying");
                }
            }
        }
    }

    /// Polls each forge that this server has the lease of: everything that is due, or what has hints.
    async fn round(&mut self, everything: bool) -> Result<(), PollError> {
        let mut repositories = self.repositories().await?;
        let mut polled = Vec::new();
        for settings in self.app.forges.all()? {
            let own = repositories.remove(&settings.name).unwrap_or_default();
            // Without a project, there is nothing to read.
            if !own.is_empty() && self.has_lease(&settings.name).await? {
                polled.push((settings.name, own));
            }
        }
        let mut polls = Vec::new();
        for (name, own) in &polled {
            polls.push(Box::pin(self.poll_forge(name, own, everything)));
        }
        let ended = join_all(polls).await;
        let now = clock::now();
        for PolledForge { changed, unheard } in ended {
            self.changed_at.extend(changed.into_iter().map(|task| (task, now)));
            self.progress.note_unheard(unheard);
        }
        self.changed_at.retain(|_, at| now - *at < QUIET_AFTER);
        let polled: Vec<&PolledRepository> = polled.iter().flat_map(|(_, own)| own).collect();
        Box::pin(self.progress.write(&self.app, &polled)).await
    }

    /// Returns the repositories of all projects, by the name of their forge.
    async fn repositories(&self) -> Result<BTreeMap<String, Vec<PolledRepository>>, PollError> {
        let mut found: BTreeMap<String, Vec<PolledRepository>> = BTreeMap::new();
        if self.app.forges.all()?.is_empty() {
            return Ok(found);
        }
        for project in self.app.store.projects().await? {
            let (forge, path) = match self.app.forges.for_repository(&project.repository) {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                // The file of another forge may be fine.
                Err(error) => {
                    tracing::warn!(project = project.name, %error, "project not polled");
                    continue;
                }
            };
            let own = found.entry(forge.name().to_owned()).or_default();
            match own.iter_mut().find(|it| it.path.eq_ignore_ascii_case(&path)) {
                Some(known) => known.projects.push(project),
                None => own.push(PolledRepository { forge, path, projects: vec![project] }),
            }
        }
        Ok(found)
    }

    async fn has_lease(&self, forge: &str) -> Result<bool, PollError> {
        let run = WaitingRun {
            holder: self.holder.clone(),
            priority: Priority::Medium,
            since: self.started_at,
        };
        let key = (Lease::ForgePoller, forge);
        Ok(self.app.store.acquire_lease(key, &run, 1, LEASE).await?)
    }

    /// Polls the repositories of one forge. A failure concerns one repository, unless the forge accepts
    /// no more requests.
    async fn poll_forge(
        &self,
        name: &str,
        repositories: &[PolledRepository],
        everything: bool,
    ) -> PolledForge {
        let mut polled = PolledForge::default();
        if let Err(error) = self.deliver_again(name).await {
            tracing::warn!(forge = name, %error, "failed to deliver facts; retrying");
        }
        let mut cursors = Vec::new();
        for repository in repositories {
            match self.app.store.forge_cursor(name, &repository.path).await {
                Ok(cursor) => cursors.push((repository, cursor)),
                Err(error) => {
                    tracing::warn!(forge = name, %error, "failed to load forge cursor; retrying");
                    return polled;
                }
            }
        }
        // A quota belongs to the credential, and so to all repositories.
        let now = clock::now();
        if cursors.iter().any(|(_, cursor)| cursor.blocked_until.is_some_and(|until| until > now)) {
            return polled;
        }
        for (repository, mut cursor) in cursors {
            match self.has_lease(name).await {
                Ok(true) => {}
                // The round took too long, so another server polls.
                Ok(false) => return polled,
                Err(error) => {
                    tracing::warn!(forge = name, %error, "failed to renew lease; retrying");
                    return polled;
                }
            }
            let ended =
                self.poll_repository(repository, &mut cursor, everything, &mut polled).await;
            if let Err(error) = ended {
                let path = &repository.path;
                tracing::warn!(forge = name, repository = path, %error, "failed to poll repository");
                if let PollError::Forge(forge::Error::RateLimited { until, .. }) = error {
                    cursor.blocked_until = Some(until);
                }
                // Hints stay for the next round.
                cursor.hints = 0;
            }
            if let Err(error) = self.app.store.save_forge_cursor(&cursor).await {
                tracing::warn!(forge = name, %error, "failed to save forge cursor; retrying");
            }
            if cursor.blocked_until.is_some_and(|until| until > clock::now()) {
                tracing::warn!(forge = name, until = ?cursor.blocked_until, "forge poller paused");
                break;
            }
        }
        polled
    }

    /// Sends facts again whose workflow may not have received them.
    async fn deliver_again(&self, forge: &str) -> Result<(), PollError> {
        for stored in self.app.store.undelivered_pull_requests(forge).await? {
            if let (Some(facts), Some(hash)) = (&stored.facts, &stored.facts_hash) {
                skip_failure(&stored, self.pass_on(&stored, facts, hash).await)?;
            }
        }
        Ok(())
    }

    /// Reads the facts of a repository's pull requests, then its issues.
    async fn poll_repository(
        &self,
        repository: &PolledRepository,
        cursor: &mut ForgeCursor,
        everything: bool,
        polled: &mut PolledForge,
    ) -> Result<(), PollError> {
        let now = clock::now();
        cursor.blocked_until = None;
        let before = if everything { now - ACTIVE_AGE } else { Timestamp::UNIX_EPOCH };
        let store = &self.app.store;
        let due = store.pull_requests_to_observe(&cursor.forge, &repository.path, before).await?;
        let due: Vec<_> = due.into_iter().filter(|it| self.is_due(it, now)).collect();
        for batch in due.chunks(MAX_OBSERVED) {
            let quota_left = self.observe(repository, batch, now, polled).await?;
            if note_quota(cursor, quota_left, now) {
                // Hints about issues stay.
                cursor.hints = 0;
                return Ok(());
            }
        }
        if everything || cursor.is_dirty {
            let intake = IssueIntake::find(&self.app, repository).await;
            if let Some(intake) = intake {
                let read = Box::pin(intake.poll(cursor.intake_until)).await?;
                cursor.intake_until = read.until.or(cursor.intake_until);
                polled.unheard.extend(read.unheard);
                // Of a repository without pull requests, only this tells the quota.
                note_quota(cursor, repository.forge.quota_left(), now);
            }
        }
        Ok(())
    }

    /// Returns `true` if a pull request is read in this round.
    fn is_due(&self, stored: &StoredPullRequest, now: Timestamp) -> bool {
        let Some(observed_at) = stored.observed_at else { return true };
        let changed_at = self.changed_at.get(&stored.task).copied().unwrap_or(stored.opened_at);
        let is_quiet = now - changed_at > QUIET_AFTER;
        stored.is_dirty || !is_quiet || now - observed_at > QUIET_AGE
    }

    /// Reads facts of some pull requests, and passes on what changed. Returns the quota that is left.
    async fn observe(
        &self,
        repository: &PolledRepository,
        batch: &[StoredPullRequest],
        now: Timestamp,
        polled: &mut PolledForge,
    ) -> Result<Option<f64>, PollError> {
        let requests: Vec<_> = batch.iter().map(|it| request_for(it, now)).collect();
        let observation = match repository.forge.observe(&repository.path, &requests).await {
            // One that is gone must not hide the others.
            Err(forge::Error::NotFound { .. }) if batch.len() > 1 => {
                let mut all = Observation::default();
                for request in &requests {
                    let one = std::slice::from_ref(request);
                    match repository.forge.observe(&repository.path, one).await {
                        Ok(one) => {
                            all.changes.extend(one.changes);
                            all.quota_left = one.quota_left.or(all.quota_left);
                        }
                        Err(forge::Error::NotFound { .. }) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                all
            }
            observed => observed?,
        };
        let mut unchanged = Vec::new();
        for (stored, request) in batch.iter().zip(&requests) {
            let changed =
                observation.changes.iter().find(|(facts, _)| facts.number == stored.number);
            match changed {
                Some((facts, cursor)) => {
                    let is_complete = request.cursor.is_none();
                    let news = (facts, cursor.as_deref());
                    let recorded = self.record(stored, news, is_complete).await;
                    if skip_failure(stored, recorded)?.unwrap_or(false) {
                        polled.changed.push(stored.task);
                    }
                }
                // A complete read leaves nothing out. So the page shows when it was read last.
                None if request.cursor.is_none() => {
                    let (task, number) = (stored.task, stored.number);
                    tracing::warn!(%task, number, "pull request is gone, or cannot be read");
                }
                None => unchanged.push(stored.clone()),
            }
        }
        if !unchanged.is_empty() {
            self.app.store.record_unchanged(&unchanged).await?;
        }
        Ok(observation.quota_left)
    }

    /// Saves facts and sends them to the task. Returns `true` if they are new.
    async fn record(
        &self,
        stored: &StoredPullRequest,
        (facts, cursor): (&PullRequestFacts, Option<&str>),
        is_complete: bool,
    ) -> Result<bool, PollError> {
        let store = &self.app.store;
        let news = store.record_observation(stored, facts, cursor, is_complete).await?;
        let Some(hash) = news else { return Ok(false) };
        self.pass_on(stored, facts, &hash).await?;
        Ok(true)
    }

    /// Sends facts to the task. Effects of a merge are traced from then on.
    async fn pass_on(
        &self,
        stored: &StoredPullRequest,
        facts: &PullRequestFacts,
        hash: &str,
    ) -> Result<(), PollError> {
        if matches!(facts.status, PullRequestStatus::Merged { .. }) {
            let project = self.app.project_by_id(stored.project).await?;
            // A faulty configuration must not keep the merge from its task.
            let rules = self.app.project_rules(&project.repository).await.unwrap_or_default();
            let days = rules.delivery.aftercare.days;
            if days > 0 {
                self.app.store.watch_pull_request(stored.task, days).await?;
            }
        }
        Ok(self.app.deliver_facts(stored.task, facts, hash).await?)
    }
}

/// Logs a failure that concerns one pull request only, because the others go on. Returns an error if
/// the database or Temporal is unreachable.
fn skip_failure<T>(
    stored: &StoredPullRequest,
    result: Result<T, PollError>,
) -> Result<Option<T>, PollError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error @ PollError::App(Error::Unavailable { .. })) => Err(error),
        Err(error) => {
            let (task, number) = (stored.task, stored.number);
            tracing::warn!(%task, number, %error, "facts not delivered to the task; retrying");
            Ok(None)
        }
    }
}

/// Records the quota that is left. Returns `true`, with a pause, if the rest is for people.
fn note_quota(cursor: &mut ForgeCursor, quota_left: Option<f64>, now: Timestamp) -> bool {
    cursor.quota_left = quota_left.or(cursor.quota_left);
    let is_used_up = quota_left.is_some_and(|left| left < MIN_QUOTA);
    if is_used_up {
        cursor.blocked_until = Some(now + QUOTA_PAUSE);
    }
    is_used_up
}

/// Returns the request for facts, without a cursor if a complete read is due.
fn request_for(stored: &StoredPullRequest, now: Timestamp) -> ObservedChange {
    let is_fresh = stored.read_at.is_some_and(|at| now - at < FULL_READ_AGE);
    let cursor = stored.cursor.clone().filter(|_| is_fresh);
    ObservedChange { number: stored.number, cursor }
}
