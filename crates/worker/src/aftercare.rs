//! Aftercare: traces what happens to merged changes on their base branch, and records it.
//!
//! One worker at a time fetches the base branches of watched merges and reads the commits since the
//! last round. A finding is proposed as a lesson, then recorded; both have no effect if they are
//! repeated, so a worker that dies in between loses and doubles nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chrono::TimeDelta;
use tamma_connect::forge::{Forge, Forges};
use tamma_core::aftercare::{
    AftercareKind, BaseChecks, MergedWork, are_complete, compare_base_checks, failed_checks,
    is_fix_message, is_revert_of,
};
use tamma_core::format::single_line;
use tamma_core::ids::{CommitId, ProjectId, Reference};
use tamma_core::learning::aftercare_lesson;
use tamma_core::run_queue::WaitingRun;
use tamma_core::task::Priority;
use tamma_core::time::Timestamp;
use tamma_engine::aftercare::LaterCommit;
use tamma_engine::mirror::Mirror;
use tamma_engine::sanitize;
use tamma_store::{AftercareFinding, Lease, Store, WatchedMerge};
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use crate::clock::now;
use crate::error::Error;
use crate::repositories::Repositories;

/// Time from the start of a worker to its first round.
const FIRST_ROUND: Duration = Duration::from_secs(30);

/// Time between two rounds.
const ROUND_INTERVAL: Duration = Duration::from_mins(5);

/// Duration of the lease, which every round renews.
const LEASE: Duration = Duration::from_mins(15);

/// Key of the lease.
const LEASE_KEY: &str = "merges";

/// Time after a merge in which checks of the base branch are expected. Later ones are somebody else's.
const BASE_CHECKS_TIME: TimeDelta = TimeDelta::hours(6);

/// Longest detail of a finding, in characters.
const MAX_DETAIL: usize = 200;

/// Traces what happens to merged changes.
pub(crate) struct Aftercare {
    store: Store,
    repositories: Repositories,
    forges: Forges,
    /// Holder of the lease.
    holder: String,
    started_at: Timestamp,
}

/// Project whose merges are traced.
struct TracedProject {
    mirror: Mirror,
    /// Forge and repository, if the project has a forge.
    forge: Option<(Forge, String)>,
    /// Merges of tasks that fix a bug.
    bug_fixes: BTreeSet<CommitId>,
    proposes_lessons: bool,
}

impl Aftercare {
    pub(crate) fn new(
        store: Store,
        repositories: Repositories,
        forges: Forges,
        worker: &str,
    ) -> Self {
        let holder = format!("aftercare {worker}");
        Self { store, repositories, forges, holder, started_at: now() }
    }

    /// Runs until `stop` is cancelled.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut rounds = interval_at(Instant::now() + FIRST_ROUND, ROUND_INTERVAL);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let round = Box::pin(async {
                rounds.tick().await;
                self.round().await
            });
            tokio::select! {
                ended = round => if let Err(error) = ended {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "tracing merged changes failed; retrying");
                },
                () = stop.cancelled() => break,
            }
        }
        let _ = self.store.release_leases(&self.holder).await;
    }

    /// Traces all watched merges, if no other worker does. A failure concerns one merge or one project.
    async fn round(&self) -> Result<(), Error> {
        let watched = self.store.watched_merges(now()).await?;
        let mut projects: BTreeMap<ProjectId, Vec<WatchedMerge>> = BTreeMap::new();
        for merge in watched {
            projects.entry(merge.project).or_default().push(merge);
        }
        for (project, merges) in projects {
            if !self.has_lease().await? {
                return Ok(());
            }
            if let Err(error) = Box::pin(self.trace_project(project, &merges)).await {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(%project, error, "failed to trace merged changes; retrying");
            }
        }
        Ok(())
    }

    async fn has_lease(&self) -> Result<bool, Error> {
        let run = WaitingRun {
            holder: self.holder.clone(),
            priority: Priority::Low,
            since: self.started_at,
        };
        let key = (Lease::Aftercare, LEASE_KEY);
        Ok(self.store.acquire_lease(key, &run, 1, LEASE).await?)
    }

    async fn trace_project(&self, id: ProjectId, merges: &[WatchedMerge]) -> Result<(), Error> {
        let project = self.repositories.project_by_id(id).await?;
        let mirror = self.repositories.mirror(&project).await?;
        mirror.fetch().await?;
        let forge = self.forges.for_repository(&project.project.repository);
        let traced = TracedProject {
            mirror,
            forge: forge.map_err(|error| Error::Configuration(error.to_string()))?,
            bug_fixes: self.store.bug_fix_merges(id).await?.into_iter().collect(),
            proposes_lessons: project.rules.scrum_master.learning_capture.capture_failure,
        };
        for merge in merges {
            if let Err(error) = Box::pin(self.trace(&traced, merge)).await {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(task = %merge.task, error, "failed to trace a merge; retrying");
            }
        }
        Ok(())
    }

    /// Compares a merge with the commits since the last round, and looks at the checks of the merge.
    async fn trace(&self, project: &TracedProject, merge: &WatchedMerge) -> Result<(), Error> {
        let tip = project.mirror.resolve(&merge.base_branch).await?;
        for (kind, later) in later_findings(project, merge, tip).await? {
            let subject = later.message.trim_start().lines().next().unwrap_or_default();
            let detail = format!("{subject} ({})", later.author);
            self.record(project, merge, (kind, later.commit), &detail).await?;
        }
        let base_checked = match self.check_base(project, merge).await {
            Ok(checked) => checked,
            // What was traced stays.
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(task = %merge.task, error, "failed to read checks of a merge; retrying");
                false
            }
        };
        if merge.traced_to != Some(tip) || merge.base_checked != base_checked {
            self.store.save_aftercare_progress(merge.task, tip, base_checked).await?;
        }
        Ok(())
    }

    /// Compares the checks of a merge with those of the commit before. Returns `true` if they need not be
    /// read again.
    async fn check_base(
        &self,
        project: &TracedProject,
        merge: &WatchedMerge,
    ) -> Result<bool, Error> {
        let Some((forge, repository)) = &project.forge else { return Ok(true) };
        if merge.base_checked || now() - merge.merged_at > BASE_CHECKS_TIME {
            return Ok(true);
        }
        let checks = forge.commit_checks(repository, merge.merged_commit).await?;
        if !are_complete(&checks) {
            return Ok(false);
        }
        if failed_checks(&checks).next().is_none() {
            return Ok(true);
        }
        let Some(parent) = project.mirror.first_parent(merge.merged_commit).await? else {
            return Ok(true);
        };
        let before = forge.commit_checks(repository, parent).await?;
        if let BaseChecks::Broken(names) = compare_base_checks(&before, &checks) {
            let detail = format!("failed since the merge: {}", names.join(", "));
            let found = (AftercareKind::RedBase, merge.merged_commit);
            self.record(project, merge, found, &detail).await?;
        }
        Ok(true)
    }

    /// Proposes a lesson, and records the finding.
    async fn record(
        &self,
        project: &TracedProject,
        merge: &WatchedMerge,
        (kind, commit): (AftercareKind, CommitId),
        detail: &str,
    ) -> Result<(), Error> {
        let detail = single_line(&sanitize::text(detail));
        let detail: String = detail.chars().take(MAX_DETAIL).collect();
        if project.proposes_lessons {
            let title = self.store.submitted_task(merge.task).await?.title;
            let evidence = merge.url.parse::<Reference>().into_iter().collect();
            let lesson = aftercare_lesson(merge.project, &title, kind, &detail, evidence);
            let proposal = vec![(lesson.id(merge.task), lesson)];
            self.store.propose_lessons(merge.project, proposal).await?;
        }
        let finding = AftercareFinding {
            task: merge.task,
            project: merge.project,
            kind,
            commit,
            detail,
            found_at: now(),
        };
        if self.store.record_aftercare(&finding).await? {
            tracing::info!(task = %merge.task, %kind, %commit, "found an effect of a merge");
        }
        Ok(())
    }
}

/// Returns the commits since the last round that revert or fix a merged change.
async fn later_findings(
    project: &TracedProject,
    merge: &WatchedMerge,
    tip: CommitId,
) -> Result<Vec<(AftercareKind, LaterCommit)>, Error> {
    let TracedProject { mirror, bug_fixes, .. } = project;
    if merge.traced_to == Some(tip) {
        return Ok(Vec::new());
    }
    // Somebody may have replaced the branch.
    let since = match merge.traced_to {
        Some(traced) => {
            let is_known = mirror.resolve(&traced.to_string()).await.is_ok();
            if is_known { traced } else { merge.merged_commit }
        }
        None => merge.merged_commit,
    };
    let commits = mirror.commits_after(since, tip).await?;
    if commits.is_empty() {
        return Ok(Vec::new());
    }
    let work = MergedWork {
        commits: mirror.landed_commits(merge.merged_commit, merge.head).await?,
        repository: merge.repository.clone(),
        number: merge.number,
    };
    let is_revert = |later: &LaterCommit| is_revert_of(&later.message, &work);
    // A revert or a fix that was merged has several commits, and counts once.
    let has_plain_revert = commits.iter().any(|later| !later.is_merge && is_revert(later));
    let mut counted_with_merge = BTreeSet::new();
    for later in commits.iter().filter(|it| it.is_merge && bug_fixes.contains(&it.commit)) {
        let mut landed = mirror.landed_commits(later.commit, None).await?;
        landed.remove(&later.commit);
        counted_with_merge.append(&mut landed);
    }
    let mut found = Vec::new();
    for later in commits {
        if work.commits.contains(&later.commit) {
            continue;
        }
        if is_revert(&later) {
            if !later.is_merge || !has_plain_revert {
                found.push((AftercareKind::Revert, later));
            }
            continue;
        }
        let is_fix = bug_fixes.contains(&later.commit)
            || !later.is_merge
                && is_fix_message(&later.message)
                && !counted_with_merge.contains(&later.commit);
        if is_fix && mirror.changes_lines_of(later.commit, &work.commits).await? {
            found.push((AftercareKind::Fix, later));
        }
    }
    Ok(found)
}

#[cfg(test)]
#[path = "aftercare_tests.rs"]
mod tests;
