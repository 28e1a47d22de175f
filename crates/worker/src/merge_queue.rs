//! Activities of merge queues.
//!
//! A batch is merged in the mirror, without a worktree, and pushed to `tamma/queue/<build>`, so every
//! worker can test it. Results depend on the request and the branch only, so a retried activity makes
//! the same commits again.

mod registration;
mod settle;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tamma_connect::forge::ObservedChange;
use tamma_core::actor::Actor;
use tamma_core::approval::Pin;
use tamma_core::forge::{PullRequestFacts, PullRequestStatus, ReviewFact, ReviewVerdict};
use tamma_core::ids::{CommitId, TaskId};
use tamma_core::level::RiskLevel;
use tamma_core::merge_queue::{BatchBuilt, BuiltCommit, EntryKey, MergeEntry, QueueAddress};
use tamma_core::review::record::GateRecord;
use tamma_core::rules::{GateRules, Rules};
use tamma_core::task::{Priority, Task, TaskType};
use tamma_core::task_loop::{Job, TaskReceived, begin};
use tamma_core::version::Edition;
use tamma_engine::merge::TreeMerge;
use tamma_engine::mirror::{self, Mirror};
use tamma_engine::{delivery, worktree};
use tamma_flow::activities::{JobRequest, PendingSteps};
use tamma_flow::merge_queue::{
    AdvanceRequest, AdvanceResult, BuildBatchRequest, EnqueueSignal, MergeQueueInput,
    MergeQueueWorkflow, QueueGatesRequest, QueueGatesResult, QueueSnapshot, VerifyLandedRequest,
};
use tamma_flow::{TASK_QUEUE, merge_queue_workflow_id};
use tamma_store::{
    Effect, EffectError, EffectKind, MergeQueueId, NewQueueEntry, QueueEntryFilter, Store,
    StoredPullRequest, StoredStatus,
};
use temporalio_client::{Client, WorkflowStartOptions};
use tokio_util::sync::CancellationToken;

use crate::clock::now;
use crate::error::Error;
use crate::gates::GateRunner;
use crate::job_context::{AnnounceStart, JobContext};
use crate::namespaces::{client_in, namespace_of};
use crate::project_context::ProjectContext;
use crate::pull_request_text::merge_title;
use crate::repositories::author;
use crate::retry::retry_until_stopped;
use crate::services::Services;

/// Workflow task timeout: after this time another worker can take over the step.
const TASK_TIMEOUT: Duration = Duration::from_secs(5);

/// Most open entries of one task that are read.
const MAX_ENTRIES: u32 = 20;

/// Maximum length of a title in a merge commit, in characters.
const MAX_TITLE: usize = 100;

/// Maximum length of a stored log, in bytes.
const MAX_LOG_BYTES: usize = 64 * 1024;

/// Activities of merge queues on a worker. Clones share their state.
#[derive(Clone)]
pub struct MergeQueueActivities {
    services: Services,
}

/// Standing of an entry, compared with its approval.
enum EntryStanding {
    Valid,
    Left,
    Unknown,
}

/// Adds a change to a merge queue, and starts its workflow if there is none. Adding it again has no
/// effect.
pub async fn enqueue_merge(
    store: &Store,
    client: &Client,
    queue: &QueueAddress,
    entry: &MergeEntry,
    batch: u8,
) -> Result<(), Error> {
    store
        .enqueue_merge(&NewQueueEntry {
            queue: queue_id(queue),
            task: entry.key.task,
            project: queue.project,
            head: entry.key.head,
            priority: entry.priority,
        })
        .await?;
    // A queue stays in the namespace of its first task.
    let (id, namespace) = (queue_id(queue), namespace_of(client));
    let namespace = store.place_merge_queue(&id, queue.project, namespace.as_deref()).await?;
    let client = client_in(client, namespace.as_deref());
    let options = WorkflowStartOptions::new(TASK_QUEUE.to_owned(), merge_queue_workflow_id(queue))
        .task_timeout(TASK_TIMEOUT)
        .static_summary(format!("merge queue of {queue}"))
        .build();
    let added = EnqueueSignal { at: now(), entry: entry.clone(), batch };
    let input = MergeQueueInput::new(queue.clone());
    let (run, enqueue) = (MergeQueueWorkflow::run, MergeQueueWorkflow::enqueue);
    let started = client.signal_with_start_workflow(run, input, enqueue, added, options).await;
    started.map(drop).map_err(|error| Error::Temporal(error.to_string()))
}

/// Returns the stored name of a queue.
pub(crate) fn queue_id(queue: &QueueAddress) -> MergeQueueId {
    MergeQueueId {
        forge: queue.forge.clone(),
        repository: queue.repository.clone(),
        branch: queue.branch.clone(),
    }
}

/// Returns the branch of a build. Each build has its own.
fn build_branch(queue: &QueueAddress, number: u64) -> String {
    format!("refs/heads/tamma/queue/{}-{number}", queue.as_task())
}

impl MergeQueueActivities {
    pub(crate) fn new(services: Services) -> Self {
        Self { services }
    }

    /// Saves the state of a queue for people.
    pub async fn record(&self, snapshot: QueueSnapshot) -> Result<(), Error> {
        let QueueSnapshot { queue, state, .. } = snapshot;
        let (store, id) = (&self.services.store, queue_id(&queue));
        let building = state.build.as_ref().map(|it| it.entries.as_slice()).unwrap_or_default();
        let building: Vec<_> = building.iter().map(|key| (key.task, key.head)).collect();
        store.save_merge_queue(&id, queue.project, &state).await?;
        let pause = state.pause.as_ref().map(|it| it.reason.as_str());
        store.set_merge_queue_paused(&id, pause).await?;
        store.set_queue_batch(&id, &building).await?;
        Ok(())
    }

    /// Reads the entries again, and merges them onto the newest commit of the branch.
    pub async fn build(&self, request: BuildBatchRequest) -> Result<BatchBuilt, Error> {
        let BuildBatchRequest { queue, number, entries } = request;
        let (_, mirror) = self.open(&queue).await?;
        let tip = newest_commit(&mirror, &queue).await?;
        let mut built = BatchBuilt::default();
        let (mut merged, mut tree) = (tip, mirror.tree_of(tip).await?);
        for entry in &entries {
            let standing = match self.standing(entry).await {
                // A pull request that cannot be read waits, and the others go on.
                Err(Error::Forge(error)) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(task = %entry.key.task, error, "failed to read a pull request");
                    EntryStanding::Unknown
                }
                standing => standing?,
            };
            match standing {
                EntryStanding::Valid => {}
                EntryStanding::Left => {
                    built.left.push(entry.key);
                    continue;
                }
                EntryStanding::Unknown => {
                    built.unknown.push(entry.key);
                    continue;
                }
            }
            let merge = match mirror.merge_trees(merged, entry.key.head).await {
                // Nobody can land a commit that is gone.
                Err(mirror::Error::Unknown { revision, .. })
                    if revision == entry.key.head.to_string() =>
                {
                    built.left.push(entry.key);
                    continue;
                }
                merge => merge?,
            };
            match merge {
                TreeMerge::Merged(same) if same == tree => {
                    if merged == tip {
                        built.landed.push((entry.key, tip));
                    }
                }
                TreeMerge::Merged(next) => {
                    merged = self.merge_commit(&mirror, merged, &next, entry).await?;
                    tree = next;
                    built.merged.push(entry.key);
                }
                TreeMerge::Conflicts(conflicts) => {
                    let own = if merged == tip {
                        Some(conflicts)
                    } else {
                        // Another entry of the batch may be the reason, and may not land.
                        match mirror.merge_trees(tip, entry.key.head).await? {
                            TreeMerge::Conflicts(conflicts) => Some(conflicts),
                            TreeMerge::Merged(_) => None,
                        }
                    };
                    if let Some(conflicts) = own {
                        let text = format!(
                            "The change conflicts with `{}` at {tip}, in {}.\n\n{}\n",
                            queue.branch,
                            conflicts.paths.join(", "),
                            conflicts.text
                        );
                        let log = self.services.store.save_text(&text.replace('\0', "")).await?;
                        built.conflicting.push((entry.key, log));
                    }
                }
            }
        }
        if !built.merged.is_empty() {
            push_build(&mirror, &build_branch(&queue, number), merged).await?;
            built.commit = Some(BuiltCommit { tip, tested: merged, tree });
        }
        if number > 1 {
            remove_build(&mirror, &build_branch(&queue, number - 1)).await;
        }
        Ok(built)
    }

    /// Runs the gates of the entries on a commit.
    pub async fn run_gates(
        &self,
        request: QueueGatesRequest,
        attempt: u32,
        stop: CancellationToken,
    ) -> Result<QueueGatesResult, Error> {
        let services = &self.services;
        let commit = request.commit;
        let risk = request.entries.iter().map(|it| it.risk).max().unwrap_or_default();
        let all = self.rules_of(&request.entries).await?;
        let gates = gates_of(&all, risk);
        let ctx = self.context(&request, &all, attempt, stop)?;
        let (project, mirror) = self.open(&request.queue).await?;
        services.stop_earlier_attempts(&ctx).await?;
        let touched = BTreeMap::new();
        let change = (&touched, Vec::new());
        let runner = GateRunner::new(services, &ctx, (&project, mirror), (commit, gates), change)?;
        let ran = runner.run_once().await?;
        let passed = !ran.iter().any(|it| it.verdict.is_blocking());
        let text = gates_log(commit, request.attempt, &ran);
        let log = retry_until_stopped(&ctx.stop, || services.store.save_text(&text)).await?;
        Ok(QueueGatesResult { passed, log })
    }

    /// Advances the branch to the tested commit, if it still has the expected one.
    pub async fn advance(&self, request: AdvanceRequest) -> Result<AdvanceResult, Error> {
        let AdvanceRequest { queue, number, commit, entries } = request;
        let (project, mirror) = self.open(&queue).await?;
        let newest = newest_commit(&mirror, &queue).await?;
        // An earlier attempt may have advanced it.
        if newest == commit.tested {
            return Ok(AdvanceResult::Advanced);
        }
        if newest != commit.tip {
            return Ok(AdvanceResult::TipMoved);
        }
        let (mut left, mut is_unknown) = (Vec::new(), false);
        for entry in &entries {
            match self.standing(entry).await? {
                EntryStanding::Valid => {}
                EntryStanding::Left => left.push(entry.key),
                EntryStanding::Unknown => is_unknown = true,
            }
        }
        if !left.is_empty() {
            return Ok(AdvanceResult::Left(left));
        }
        if is_unknown {
            // The next build puts it aside. Nothing lands that may not be wanted any more.
            return Ok(AdvanceResult::TipMoved);
        }
        let effect = Effect {
            key: format!("tamma/queue/{}/{number}/{}", queue.as_task(), commit.tested),
            kind: EffectKind::AdvanceBranch,
            project: queue.project,
            task: None,
            precondition: Some(commit.tip),
        };
        let find = || async {
            let found = newest_commit(&mirror, &queue).await?;
            Ok::<_, Error>((found == commit.tested).then(|| found.to_string()))
        };
        let act = || self.push_tested(&project, &mirror, &queue, &commit);
        let failed = match self.services.store.perform(&effect, find, act).await {
            Ok(_) => {
                remove_build(&mirror, &build_branch(&queue, number)).await;
                return Ok(AdvanceResult::Advanced);
            }
            Err(EffectError::Store(error)) => return Err(error.into()),
            Err(error @ EffectError::InProgress { .. }) => {
                return Err(Error::EffectInProgress(error.to_string()));
            }
            Err(EffectError::Failed(error)) => error,
        };
        let found = newest_commit(&mirror, &queue).await?;
        if found == commit.tested {
            return Ok(AdvanceResult::Advanced);
        }
        if found != commit.tip {
            let reason = format!("`{}` moved to {found}", queue.branch);
            self.services.store.refuse_effect(&effect.key, &reason).await?;
            return Ok(AdvanceResult::TipMoved);
        }
        Err(final_refusal(&queue, failed))
    }

    /// Returns the tree of the tested commit, if the branch contains it.
    pub async fn verify(&self, request: VerifyLandedRequest) -> Result<Option<String>, Error> {
        let VerifyLandedRequest { queue, commit } = request;
        let (_, mirror) = self.open(&queue).await?;
        let newest = newest_commit(&mirror, &queue).await?;
        let is_contained = newest == commit.tested || {
            // Merging a commit into one that contains it changes nothing.
            let merged = mirror.merge_trees(newest, commit.tested).await?;
            merged == TreeMerge::Merged(mirror.tree_of(newest).await?)
        };
        if is_contained { Ok(Some(mirror.tree_of(commit.tested).await?)) } else { Ok(None) }
    }

    /// Advances the branch through the forge if it can compare and set, and by git otherwise.
    async fn push_tested(
        &self,
        project: &ProjectContext,
        mirror: &Mirror,
        queue: &QueueAddress,
        commit: &BuiltCommit,
    ) -> Result<String, Error> {
        let BuiltCommit { tip, tested, .. } = commit;
        let forge = self.services.forges.for_repository(&project.project.repository);
        let forge = forge.map_err(|error| Error::Configuration(error.to_string()))?;
        match forge.filter(|(forge, _)| forge.capabilities().ref_cas) {
            Some((forge, repository)) => {
                forge.advance_branch(&repository, &queue.branch, *tip, *tested).await?;
            }
            None => {
                mirror.advance_branch(&queue.branch, *tip, *tested).await?;
            }
        }
        Ok(tested.to_string())
    }

    /// Opens the project and the mirror of a queue.
    async fn open(&self, queue: &QueueAddress) -> Result<(ProjectContext, Mirror), Error> {
        let repositories = &self.services.repositories;
        let project = repositories.project_by_id(queue.project).await?;
        let mirror = repositories.mirror(&project).await?;
        Ok((project, mirror))
    }

    /// Reads again whether an entry stands as it was approved.
    async fn standing(&self, entry: &MergeEntry) -> Result<EntryStanding, Error> {
        let (store, EntryKey { task, head }) = (&self.services.store, entry.key);
        let filter = QueueEntryFilter { queue: None, task: Some(task), open: true };
        let open = store.merge_queue_entries(&filter, MAX_ENTRIES).await?;
        let newest = open.iter().max_by_key(|it| it.queued_at);
        if newest.is_none_or(|it| it.head != head) {
            return Ok(EntryStanding::Left);
        }
        match store.task(task).await {
            Ok(stored) => {
                if stored.task_loop.is_ok_and(|it| it.state.is_terminal()) {
                    return Ok(EntryStanding::Left);
                }
            }
            Err(tamma_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let Some(change) = store.pull_request(task).await? else {
            // Nobody approved a change without a pull request.
            return Ok(EntryStanding::Left);
        };
        Ok(match change.status {
            StoredStatus::Closed => EntryStanding::Left,
            // The branch contains it; merging it changes nothing.
            StoredStatus::Merged => EntryStanding::Valid,
            StoredStatus::Open => match self.read_again(change).await? {
                // Then the task asks.
                Some((_, false)) => EntryStanding::Left,
                Some((facts, true)) => {
                    let rules = store.rules(entry.policy).await?;
                    let approvals = rules.delivery.pull_requests.approvals;
                    standing_of(&facts, head, approvals)
                }
                None => EntryStanding::Unknown,
            },
        })
    }

    /// Reads a pull request from its forge, and whether an open one still goes to its base branch.
    /// Without a forge, the stored facts count.
    async fn read_again(
        &self,
        change: StoredPullRequest,
    ) -> Result<Option<(PullRequestFacts, bool)>, Error> {
        let forge = self.services.forges.client(&change.forge);
        let forge = forge.map_err(|error| Error::Configuration(error.to_string()))?;
        let Some(forge) = forge else { return Ok(change.facts.map(|facts| (facts, true))) };
        let asked = [ObservedChange { number: change.number, cursor: None }];
        let observed = forge.observe(&change.repository, &asked).await?;
        let mut facts = observed.changes.into_iter().map(|(facts, _)| facts);
        let Some(facts) = facts.find(|it| it.number == change.number) else { return Ok(None) };
        if facts.status != PullRequestStatus::Open {
            return Ok(Some((facts, true)));
        }
        let (branch, base) = (&change.branch, &change.base_branch);
        let found = forge.find_change(&change.repository, branch, base).await?;
        let keeps_base = found.is_some_and(|it| it.number == change.number);
        Ok(Some((facts, keeps_base)))
    }

    async fn merge_commit(
        &self,
        mirror: &Mirror,
        onto: CommitId,
        tree: &str,
        entry: &MergeEntry,
    ) -> Result<CommitId, Error> {
        let title = match self.services.store.task(entry.key.task).await {
            Ok(stored) => stored.task.title,
            Err(tamma_store::Error::NotFound { .. }) => entry.key.task.to_string(),
            Err(error) => return Err(error.into()),
        };
        let message = merge_message(&title, entry.key.task);
        let (parents, author): (_, worktree::Author) = ([onto, entry.key.head], author());
        Ok(mirror.commit_tree(tree, &parents, &message, &author, entry.queued_at).await?)
    }

    /// Returns the rules of the entries, those of the newest entry first.
    async fn rules_of(&self, entries: &[MergeEntry]) -> Result<Vec<Rules>, Error> {
        let mut newest_first: Vec<_> = entries.iter().collect();
        newest_first.sort_by_key(|it| std::cmp::Reverse(it.queued_at));
        let mut policies = Vec::new();
        for entry in newest_first {
            if !policies.contains(&entry.policy) {
                policies.push(entry.policy);
            }
        }
        let mut all = Vec::new();
        for policy in policies {
            all.push(self.services.store.rules(policy).await?);
        }
        Ok(all)
    }

    /// Returns the job that stands for a run of the gates.
    fn context(
        &self,
        request: &QueueGatesRequest,
        all: &[Rules],
        attempt: u32,
        stop: CancellationToken,
    ) -> Result<JobContext, Error> {
        let queue = &request.queue;
        let newest = all.first().ok_or_else(|| Error::Internal("the build is empty".to_owned()))?;
        let rules = Arc::new(newest.clone());
        let task = Task {
            id: queue.as_task(),
            project: queue.project,
            title: format!("Merge queue of {queue}"),
            description: String::new(),
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
            by: Actor::Tamma,
            auth: None,
            submitted_plan: None,
            edition: Edition::NEWEST,
        };
        let mut task_loop = begin(&received, &rules).next;
        let policy = rules.version();
        task_loop.pin = Some(Pin { base: request.base, policy, prompts: None });
        let announce: AnnounceStart = Arc::new(|_| Box::pin(async { Ok(()) }));
        // Two runs of one build are two jobs.
        let number = request.number.saturating_mul(4).saturating_add(u64::from(request.attempt));
        let is_base = request.commit == request.base;
        let number = number.saturating_add(if is_base { 2 } else { 0 });
        Ok(JobContext {
            request: JobRequest {
                job_number: u32::try_from(number).unwrap_or(u32::MAX),
                // The job itself is never run; the gates are.
                job: Job::Prepare,
                earlier_attempts: 0,
                pending: PendingSteps {
                    task: task.id,
                    project: task.project,
                    policy,
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
        })
    }
}

/// Returns the newest commit of the branch.
async fn newest_commit(mirror: &Mirror, queue: &QueueAddress) -> Result<CommitId, Error> {
    let name = format!("refs/heads/{}", queue.branch);
    let missing = || {
        Error::Configuration(format!(
            "the repository has no branch `{}`; create it, or change `delivery.base`",
            queue.branch
        ))
    };
    mirror.ls_remote_ref(&name).await?.ok_or_else(missing)
}

/// Returns the standing of an entry with these facts about its pull request, which needs this number of
/// approvals.
fn standing_of(facts: &PullRequestFacts, head: CommitId, approvals: u8) -> EntryStanding {
    let requests_changes =
        |it: &ReviewFact| it.can_write && it.verdict == ReviewVerdict::ChangesRequested;
    match facts.status {
        PullRequestStatus::Open => {}
        // The branch contains it; merging it changes nothing.
        PullRequestStatus::Merged { .. } => return EntryStanding::Valid,
        PullRequestStatus::Closed { .. } => return EntryStanding::Left,
    }
    if facts.head != head || facts.draft || facts.reviews.iter().any(requests_changes) {
        EntryStanding::Left
    } else if facts.incomplete {
        EntryStanding::Unknown
    } else if facts.approvals_of(head) < usize::from(approvals) {
        EntryStanding::Left
    } else {
        EntryStanding::Valid
    }
}

/// Returns the gates that all entries need. Of gates with the same name, the newest entry's counts.
fn gates_of(all: &[Rules], risk: RiskLevel) -> Vec<(&str, &GateRules)> {
    let mut gates: BTreeMap<&str, &GateRules> = BTreeMap::new();
    for rules in all {
        for (name, gate) in rules.gates_at(risk) {
            gates.entry(name).or_insert(gate);
        }
    }
    gates.into_iter().collect()
}

/// Pushes a build to its branch. An attempt before may have built it onto another commit.
async fn push_build(mirror: &Mirror, name: &str, commit: CommitId) -> Result<(), Error> {
    let pushed = match mirror.push_ref(name, Some(commit), None).await {
        Err(delivery::Error::Moved { found, .. }) => {
            mirror.push_ref(name, Some(commit), found).await
        }
        pushed => pushed,
    };
    match pushed {
        Ok(_) => Ok(()),
        Err(error @ delivery::Error::Rejected { .. }) => Err(Error::Configuration(format!(
            "{error}; allow Tamma to push branches that start with `tamma/queue/`"
        ))),
        Err(error) => Err(error.into()),
    }
}

/// Removes the branch of an earlier build. A branch that stays harms nobody.
async fn remove_build(mirror: &Mirror, name: &str) {
    let removed = async {
        if let Some(found) = mirror.ls_remote_ref(name).await? {
            mirror.push_ref(name, None, Some(found)).await?;
        }
        Ok::<_, Error>(())
    };
    if let Err(error) = removed.await {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(name, error, "failed to remove the branch of a build");
    }
}

/// Returns the error of an advance that the repository refused, so that people are asked. Other errors
/// are retried.
fn final_refusal(queue: &QueueAddress, error: Error) -> Error {
    use tamma_connect::forge::Error::{Conflict, Forbidden, NotFound, Refused};
    let is_refusal = matches!(
        &error,
        Error::Delivery(delivery::Error::Rejected { .. } | delivery::Error::Conflict { .. })
            | Error::Forge(Conflict { .. } | Forbidden { .. } | NotFound { .. } | Refused { .. })
    );
    if !is_refusal {
        return error;
    }
    Error::Configuration(format!(
        "`{}` cannot be advanced: {error}; allow Tamma to push to it, then resume the queue",
        queue.branch
    ))
}

/// Returns the message of a merge commit. The title is somebody's text, so it cannot close issues,
/// mention people or switch CI off.
fn merge_message(title: &str, task: TaskId) -> String {
    format!("Merge {}\n\nTamma-Task: {task}\n", merge_title(title, MAX_TITLE))
}

/// Describes a run of the gates: failed ones with the end of their output.
fn gates_log(commit: CommitId, attempt: u8, ran: &[GateRecord]) -> String {
    let mut text = format!("Merge queue, commit {commit}, run {attempt}\n\n");
    for it in ran {
        let status = it.verdict.status;
        let code = it.exit_code.map(|code| format!(", exit {code}")).unwrap_or_default();
        let _ = writeln!(text, "## Gate `{}`: {status}{code}\n", it.verdict.name);
        if it.verdict.is_blocking() {
            let output = it.output.trim_end();
            let _ = writeln!(text, "    $ {}\n\n```\n{output}\n```\n", it.command);
        }
    }
    let end = text.floor_char_boundary(MAX_LOG_BYTES.min(text.len()));
    text.truncate(end);
    text.replace('\0', "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use tamma_core::forge::Mergeability;

    use super::*;

    fn commit(digit: &str) -> CommitId {
        digit.repeat(40).parse().expect("a commit")
    }

    #[test]
    fn an_entry_stands_only_as_it_was_approved() {
        let mut facts = PullRequestFacts {
            number: 1,
            status: PullRequestStatus::Open,
            draft: false,
            head: commit("1"),
            base: commit("2"),
            mergeability: Mergeability::Unknown,
            checks: Vec::new(),
            reviews: Vec::new(),
            threads: Vec::new(),
            queued: false,
            incomplete: false,
        };
        let standing = |facts: &PullRequestFacts| standing_of(facts, commit("1"), 0);
        assert!(matches!(standing(&facts), EntryStanding::Valid));
        assert!(matches!(standing_of(&facts, commit("3"), 0), EntryStanding::Left));
        let draft = PullRequestFacts { draft: true, ..facts.clone() };
        assert!(matches!(standing(&draft), EntryStanding::Left));
        let review = ReviewFact {
            by: "bo".to_owned(),
            commit: commit("1"),
            verdict: ReviewVerdict::ChangesRequested,
            can_write: true,
        };
        let reviewed = PullRequestFacts { reviews: vec![review.clone()], ..facts.clone() };
        assert!(matches!(standing(&reviewed), EntryStanding::Left));
        let outsider = ReviewFact { can_write: false, ..review };
        let reviewed = PullRequestFacts { reviews: vec![outsider], ..facts.clone() };
        assert!(matches!(standing(&reviewed), EntryStanding::Valid));
        // An approval that was taken back, or that is of another commit, does not count.
        assert!(matches!(standing_of(&facts, commit("1"), 1), EntryStanding::Left));
        let approval = |digit| ReviewFact {
            by: "bo".to_owned(),
            commit: commit(digit),
            verdict: ReviewVerdict::Approved,
            can_write: true,
        };
        for (digit, is_valid) in [("1", true), ("2", false)] {
            let approved = PullRequestFacts { reviews: vec![approval(digit)], ..facts.clone() };
            let standing = standing_of(&approved, commit("1"), 1);
            assert_eq!(matches!(standing, EntryStanding::Valid), is_valid);
        }
        let status = PullRequestStatus::Closed { by: "bo".to_owned() };
        let closed = PullRequestFacts { status, ..facts.clone() };
        assert!(matches!(standing(&closed), EntryStanding::Left));
        facts.incomplete = true;
        assert!(matches!(standing(&facts), EntryStanding::Unknown));
    }

    #[test]
    fn the_message_of_a_merge_has_one_line_of_the_title() {
        let task = TaskId(uuid::Uuid::from_u128(7));
        let message = merge_message("Fix\nTamma-Task: other", task);
        assert_eq!(message, format!("Merge Fix Tamma-Task: other\n\nTamma-Task: {task}\n"));
    }

    #[test]
    fn the_message_of_a_merge_gives_the_forge_no_commands() {
        let task = TaskId(uuid::Uuid::from_u128(7));
        let message = merge_message("Closes #3 for @team [skip ci]", task);
        for command in ["#3", "@team", "[skip"] {
            assert!(!message.contains(command), "{message}");
        }
    }
}
