//! Lands changes through the merge queue while a person moves the branch by hand, and checks that the
//! branch is green at every commit (docs/merge-queue.md).
//!
//! Entries are added directly to the queue with stored pull requests, without agents. Repositories, workflow, gates and pushes are
//! real. The same changes go through a queue with batches, and one by one for comparison.
#![expect(clippy::print_stdout, reason = "an experiment prints its figures")]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use chrono::DateTime;
use tamma_core::forge::{Mergeability, PullRequestFacts, PullRequestStatus};
use tamma_core::ids::{CommitId, PolicyVersion, TaskId};
use tamma_core::level::RiskLevel;
use tamma_core::merge_queue::{EntryKey, MergeEntry, MergeQueue, QueueAddress};
use tamma_core::task::Priority;
use tamma_store::{MergeQueueId, NewPullRequest, QueueEntry, QueueEntryFilter, QueueEntryState};
use tamma_testkit::agent::Script;
use tamma_testkit::project::ScriptedProject;
use tamma_testkit::repository::Repository;
use tamma_testkit::{Cluster, wait_until};
use temporalio_client::Client;
use tokio::process::Command;
use tokio::time::Instant;
use uuid::Uuid;

use crate::support::programs;
use crate::support::verdict::Verdict;

/// Number of changes, in full and in the quick slice. One batch in five has no broken change, so with fewer
/// than 40, batches would save hardly any gate runs.
const CHANGES: u32 = 200;
const QUICK_CHANGES: u32 = 40;

/// Most changes of a batch.
const BATCH: u8 = 8;

/// One change in this many is queued while others are tested.
const LATE: usize = 4;

/// A person moves the branch once for this many changes.
const CHANGES_PER_MOVE: u32 = 20;

/// Time limit of one queue.
const TIMEOUT: Duration = Duration::from_hours(1);

/// Time of the first entry, in seconds since 1970.
const FIRST_ENTRY: i64 = 1_790_000_000;

/// Name of the forge. The repository is a folder, so git pushes.
const FORGE: &str = "local";

/// Kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ChangeKind {
    Good,
    /// Gates fail with it.
    Broken,
    /// Gates fail with it once.
    Flaky,
    /// The branch changed the same line.
    Conflicting,
}

impl ChangeKind {
    /// Returns the kind of a change: of 20, two are broken, one is flaky and one conflicts.
    fn of(number: u32) -> Self {
        match number % 20 {
            3 | 13 => Self::Broken,
            7 => Self::Flaky,
            11 => Self::Conflicting,
            _ => Self::Good,
        }
    }

    fn lands(self) -> bool {
        matches!(self, Self::Good | Self::Flaky)
    }
}

/// Repository with changes, and the queue of its branch.
struct QueueTrial {
    project: ScriptedProject,
    queue: QueueAddress,
    changes: BTreeMap<TaskId, (u32, CommitId)>,
    /// Commit of the branch before anything landed.
    start: String,
    /// Checkout of the person who moves the branch.
    person: PathBuf,
    batch: u8,
}

/// Result of one queue.
struct TrialResult {
    landed: usize,
    returned: usize,
    commits: usize,
    moves: u32,
    state: MergeQueue,
    took: Duration,
}

impl TrialResult {
    fn per_minute(&self) -> f64 {
        let settled = u32::try_from(self.landed + self.returned).unwrap_or(u32::MAX);
        f64::from(settled) * 60.0 / self.took.as_secs_f64().max(0.001)
    }
}

pub(crate) async fn run(quick: bool) -> Result<Verdict> {
    let count = if quick { QUICK_CHANGES } else { CHANGES };
    let folder = programs::folder()?.join(format!("merge-queue-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let logs = || format!("logs: {}", folder.display());
    let cluster = Cluster::builder().folder(&folder).private_servers();
    let cluster = cluster.start().await.with_context(logs)?;
    let mut results = Vec::new();
    for (number, batch) in [(1, BATCH), (2, 1)] {
        let trial = QueueTrial::new(&cluster, &folder, number, count, batch).await?;
        let result = trial.run(&cluster).await.with_context(logs)?;
        println!(
            "batches of {batch}: {} landed, {} returned, {} commits, moved by hand {} times, {} gate \
             runs, {} builds, {} rebuilt, {} flaky; {:.0} s, {:.1} changes per minute",
            result.landed,
            result.returned,
            result.commits,
            result.moves,
            result.state.totals.gate_runs,
            result.state.last_build,
            result.state.totals.rebuilt,
            result.state.flaky.len(),
            result.took.as_secs_f64(),
            result.per_minute()
        );
        results.push(result);
    }
    cluster.stop().await?;
    std::fs::remove_dir_all(&folder)?;
    let [batched, single] = &results[..] else { bail!("two queues were expected") };
    let is_faster = batched.state.totals.gate_runs < single.state.totals.gate_runs;
    let figures = format!(
        "{count} changes: {} landed, {} returned with their log, 0 lost; main green at all {} commits, \
         moved by hand {} times; batches of {BATCH}: {:.1} changes per minute and {} gate runs, one at \
         a time: {:.1} and {}",
        batched.landed,
        batched.returned,
        batched.commits,
        batched.moves,
        batched.per_minute(),
        batched.state.totals.gate_runs,
        single.per_minute(),
        single.state.totals.gate_runs
    );
    Ok(Verdict::new(is_faster, figures))
}

impl QueueTrial {
    /// Creates a repository with its changes, and registers it.
    async fn new(
        cluster: &Cluster,
        folder: &Path,
        number: u32,
        count: u32,
        batch: u8,
    ) -> Result<Self> {
        let own = folder.join(format!("queue-{number}"));
        let (path, marks) = (own.join("repository"), own.join("marks"));
        std::fs::create_dir_all(&marks)?;
        let check = gate(&marks);
        let files = [("check.sh", check.as_str()), ("shared.txt", "one\n"), ("files/0", "ok\n")];
        let repository = Repository::create(&path, &files)?;
        let base = repository.git(&["rev-parse", "HEAD"])?;
        repository.git(&["checkout", "--quiet", "--detach"])?;
        let mut changes = BTreeMap::new();
        for change in 1..=count {
            repository.git(&["checkout", "--quiet", "--detach", &base])?;
            let text = match ChangeKind::of(change) {
                ChangeKind::Good | ChangeKind::Conflicting => "ok\n",
                ChangeKind::Broken => "broken\n",
                ChangeKind::Flaky => "flaky\n",
            };
            repository.write(&format!("files/{change}"), text)?;
            if ChangeKind::of(change) == ChangeKind::Conflicting {
                repository.write("shared.txt", &format!("change {change}\n"))?;
            }
            let head = repository.commit(&format!("change {change}"))?;
            repository.git(&["branch", &format!("change/{change}"), &head])?;
            let task = TaskId(Uuid::from_u128((u128::from(number) << 64) | u128::from(change)));
            changes.insert(task, (change, head.parse()?));
        }
        // A line that conflicting changes have too.
        repository.git(&["checkout", "--quiet", "--detach", &base])?;
        repository.write("shared.txt", "two\n")?;
        let start = repository.commit("main moves on")?;
        repository.git(&["update-ref", "refs/heads/main", &start, &base])?;
        let person = own.join("person");
        repository.git(&["worktree", "add", "--detach", &person.display().to_string(), "main"])?;
        let script = Script::new([]);
        let name = format!("queue-{number}-project");
        let project =
            cluster.add_project(number, &name, repository, &script, |config| config).await?;
        let queue = QueueAddress {
            project: project.id,
            forge: FORGE.to_owned(),
            repository: name,
            branch: "main".to_owned(),
        };
        Ok(Self { project, queue, changes, start, person, batch })
    }

    /// Lands all changes, and judges the result. The worker starts when most of them are queued: otherwise
    /// the sizes of the batches would depend on how fast changes are added. The others come when the first
    /// one has landed or returned.
    async fn run(&self, cluster: &Cluster) -> Result<TrialResult> {
        let rules = self.project.rules(&BTreeMap::new())?;
        let policy = cluster.store.save_rules(&rules).await?;
        let client = tamma_testkit::temporal::connect(&cluster.temporal_address()?).await?;
        let early = self.changes.len() - self.changes.len() / LATE;
        self.enqueue(cluster, &client, policy, 0..early).await?;
        let mut worker = cluster.new_worker("work")?;
        let started = Instant::now();
        worker.start().await?;
        wait_until("the first change", TIMEOUT, async || {
            Ok((self.settled(cluster).await? > 0).then_some(()))
        })
        .await?;
        self.enqueue(cluster, &client, policy, early..self.changes.len()).await?;
        let moves = self.wait(cluster).await?;
        let took = started.elapsed();
        worker.kill().await?;
        let entries = self.entries(cluster).await?;
        let (landed, returned) = self.judge_entries(cluster, &entries).await?;
        let commits = self.judge_commits().await?;
        let stored = cluster.store.merge_queue(&self.id()).await?;
        let stored = stored.context("the queue is not stored")?;
        ensure!(stored.paused.is_none(), "the queue is paused: {:?}", stored.paused);
        let state: MergeQueue = serde_json::from_value(stored.state)?;
        Ok(TrialResult { landed, returned, commits, moves, state, took })
    }

    fn id(&self) -> MergeQueueId {
        let QueueAddress { forge, repository, branch, .. } = self.queue.clone();
        MergeQueueId { forge, repository, branch }
    }

    async fn enqueue(
        &self,
        cluster: &Cluster,
        client: &Client,
        policy: PolicyVersion,
        which: Range<usize>,
    ) -> Result<()> {
        for (task, (number, head)) in self.changes.iter().skip(which.start).take(which.len()) {
            let queued_at = DateTime::from_timestamp(FIRST_ENTRY + i64::from(*number), 0);
            let entry = MergeEntry {
                key: EntryKey { task: *task, head: *head },
                policy,
                risk: RiskLevel::Low,
                priority: Priority::Medium,
                queued_at: queued_at.context("invalid time")?,
                not_before: None,
            };
            let (store, queue) = (&cluster.store, &self.queue);
            self.save_pull_request(cluster, *task, *number, *head).await?;
            tamma_worker::enqueue_merge(store, client, queue, &entry, self.batch).await?;
        }
        Ok(())
    }

    /// Stores the open pull request of a change. The queue lands no other changes.
    async fn save_pull_request(
        &self,
        cluster: &Cluster,
        task: TaskId,
        number: u32,
        head: CommitId,
    ) -> Result<()> {
        let store = &cluster.store;
        let opened = NewPullRequest {
            task,
            project: self.queue.project,
            forge: self.queue.forge.clone(),
            repository: self.queue.repository.clone(),
            number: u64::from(number),
            url: format!("https://{FORGE}.invalid/pulls/{number}"),
            branch: format!("change/{number}"),
            base_branch: self.queue.branch.clone(),
        };
        store.save_pull_request(&opened).await?;
        let stored = store.pull_request(task).await?.context("the pull request is not stored")?;
        let facts = PullRequestFacts {
            number: u64::from(number),
            status: PullRequestStatus::Open,
            draft: false,
            head,
            base: self.start.parse()?,
            mergeability: Mergeability::Unknown,
            checks: Vec::new(),
            reviews: Vec::new(),
            threads: Vec::new(),
            queued: false,
            incomplete: false,
        };
        store.record_observation(&stored, &facts, None, true).await?;
        Ok(())
    }

    async fn entries(&self, cluster: &Cluster) -> Result<Vec<QueueEntry>> {
        let filter = QueueEntryFilter { queue: Some(self.id()), ..QueueEntryFilter::default() };
        Ok(cluster.store.merge_queue_entries(&filter, CHANGES).await?)
    }

    /// Returns the number of changes that have landed or returned.
    async fn settled(&self, cluster: &Cluster) -> Result<u32> {
        let entries = self.entries(cluster).await?;
        Ok(u32::try_from(entries.iter().filter(|it| it.settled_at.is_some()).count())?)
    }

    /// Waits until all changes have landed or returned, and moves the branch by hand meanwhile. Returns
    /// the number of moves.
    async fn wait(&self, cluster: &Cluster) -> Result<u32> {
        let total = u32::try_from(self.changes.len())?;
        let mut moves = 0;
        wait_until("the merge queue", TIMEOUT, async || {
            let settled = self.settled(cluster).await?;
            if settled == total {
                return Ok(Some(()));
            }
            if settled >= moves * CHANGES_PER_MOVE && self.move_branch(moves)? {
                moves += 1;
            }
            Ok(None)
        })
        .await?;
        Ok(moves)
    }

    /// Adds a commit to the branch, as a person does. Returns `false` if the branch moved meanwhile.
    fn move_branch(&self, number: u32) -> Result<bool> {
        let (repository, person) = (&self.project.repository, self.person.display().to_string());
        let tip = repository.git(&["rev-parse", "refs/heads/main"])?;
        let in_checkout = |call: &[&str]| repository.git(&[&["-C", &person][..], call].concat());
        in_checkout(&["checkout", "--quiet", "--detach", &tip])?;
        std::fs::write(self.person.join(format!("files/by-hand-{number}")), "ok\n")?;
        in_checkout(&["add", "--all"])?;
        in_checkout(&["commit", "--quiet", "--message", &format!("by hand {number}")])?;
        let commit = in_checkout(&["rev-parse", "HEAD"])?;
        Ok(repository.git(&["update-ref", "refs/heads/main", &commit, &tip]).is_ok())
    }

    /// Checks that good changes landed, and that bad ones returned with a log about themselves.
    async fn judge_entries(
        &self,
        cluster: &Cluster,
        entries: &[QueueEntry],
    ) -> Result<(usize, usize)> {
        ensure!(entries.len() == self.changes.len(), "{} entries", entries.len());
        let (mut landed, mut returned) = (0, 0);
        let files = self.project.repository.git(&["ls-tree", "-r", "--name-only", "main"])?;
        let files: BTreeSet<&str> = files.lines().collect();
        for entry in entries {
            let (number, _) = self.changes.get(&entry.task).context("an unknown entry")?;
            let (kind, file) = (ChangeKind::of(*number), format!("files/{number}"));
            ensure!(
                files.contains(file.as_str()) == kind.lands(),
                "change {number} ({kind:?}) is wrong on main"
            );
            if kind.lands() {
                let is_landed = entry.state == QueueEntryState::Landed;
                ensure!(is_landed, "change {number} ({kind:?}) is {}", entry.state);
                landed += 1;
                continue;
            }
            let is_returned = entry.state == QueueEntryState::Returned;
            ensure!(is_returned, "change {number} ({kind:?}) is {}", entry.state);
            let log = entry.log.as_ref().with_context(|| format!("change {number} has no log"))?;
            let log = cluster.store.text(log).await?;
            let names = if kind == ChangeKind::Broken { file.as_str() } else { "shared.txt" };
            ensure!(log.contains(names), "the log of change {number} does not name it: {log}");
            returned += 1;
        }
        Ok((landed, returned))
    }

    /// Runs the gate on every commit that was added to the branch. Returns their number.
    async fn judge_commits(&self) -> Result<usize> {
        let repository = &self.project.repository;
        let range = format!("{}..main", self.start);
        let commits = repository.git(&["rev-list", "--first-parent", "--reverse", &range])?;
        let person = self.person.display().to_string();
        let mut count = 0;
        for commit in commits.lines() {
            repository.git(&["-C", &person, "checkout", "--quiet", "--detach", commit])?;
            let ran = Command::new("sh")
                .arg("check.sh")
                .current_dir(&self.person)
                .stdin(Stdio::null())
                .output()
                .await?;
            let output = String::from_utf8_lossy(&ran.stdout);
            ensure!(ran.status.success(), "main is red at {commit}: {output}");
            count += 1;
        }
        Ok(count)
    }
}

/// Returns the gate: it fails if a file is broken, and once for each flaky file.
fn gate(marks: &Path) -> String {
    let marks = marks.display();
    format!(
        "for file in files/*; do\n  case \"$(cat \"$file\")\" in\n    broken) echo \"$file is broken\"; \
         exit 1 ;;\n    flaky)\n      mark='{marks}'/\"$(basename \"$file\")\"\n      if [ ! -e \
         \"$mark\" ]; then : > \"$mark\"; echo \"$file is flaky\"; exit 1; fi ;;\n  esac\ndone\necho ok\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_is_broken_and_a_twentieth_each_is_flaky_or_conflicts() {
        let count = |kind| (1..=CHANGES).filter(|it| ChangeKind::of(*it) == kind).count();
        let kinds = [ChangeKind::Broken, ChangeKind::Flaky, ChangeKind::Conflicting];
        assert_eq!(kinds.map(count), [20, 10, 10]);
    }
}
