//! Step function of the merge queue: from a state and an event to the next state and commands.

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};

use super::{
    BuildPhase, EntryKey, FlakyBuild, MAX_FLAKY, MergeEntry, MergeQueue, QueueBuild, QueuePause,
    ReturnReason, red_tip_text,
};
use crate::ids::{CommitId, Name, Reference};
use crate::time::Timestamp;

/// Delay before an entry is tried again about which something is unknown, or whose branch fails by
/// itself.
const RETRY_DELAY: TimeDelta = TimeDelta::minutes(1);

/// Commits of a build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuiltCommit {
    /// Commit of the branch that the build starts from.
    pub tip: CommitId,
    /// Merged commit, which is tested and lands.
    pub tested: CommitId,
    /// Tree of the merged commit.
    pub tree: String,
}

/// Result of merging the entries of a build. An entry that is in no list conflicts with another one
/// of the batch only, and waits until that one is decided.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchBuilt {
    /// Merged commit; `None` if no entry is in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<BuiltCommit>,
    /// Entries in the merged commit, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub merged: Vec<EntryKey>,
    /// Entries that conflict with the branch itself, with the stored conflict.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicting: Vec<(EntryKey, Reference)>,
    /// Entries that the branch contains already, with its commit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub landed: Vec<(EntryKey, CommitId)>,
    /// Entries that are no longer wanted: another head, a closed pull request or an ended task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<EntryKey>,
    /// Entries about which something is unknown. They wait.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<EntryKey>,
}

/// Event of a merge queue. Results name the build that they belong to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueEvent {
    /// Change was added. Adding it again has no effect.
    Enqueued {
        /// The change.
        entry: MergeEntry,
        /// Most entries that are tested together, as its rules say.
        batch: u8,
    },
    /// Batch was merged.
    BatchBuilt {
        /// Build.
        number: u64,
        /// Result for each entry.
        built: Box<BatchBuilt>,
    },
    /// Gates ran.
    GatesFinished {
        /// Build.
        number: u64,
        /// All gates passed.
        passed: bool,
        /// Stored log.
        log: Reference,
    },
    /// Branch has the tested commit.
    Advanced {
        /// Build.
        number: u64,
    },
    /// Branch has another commit than the build started from.
    TipMoved {
        /// Build.
        number: u64,
    },
    /// Entries are no longer wanted; the branch was not advanced.
    EntriesLeft {
        /// Build.
        number: u64,
        /// Entries.
        left: Vec<EntryKey>,
    },
    /// Tree of the tested commit in the branch.
    LandedTree {
        /// Build.
        number: u64,
        /// Tree; `None` if the branch does not contain the commit.
        tree: Option<String>,
    },
    /// Build was stopped as requested.
    Stopped {
        /// Build.
        number: u64,
    },
    /// Step cannot be done, and trying again does not help.
    Failed {
        /// Build.
        number: u64,
        /// Reason, and what to do.
        reason: String,
    },
    /// Person paused the queue.
    Paused {
        /// Person.
        by: Name,
        /// Reason in their words.
        reason: String,
    },
    /// Person resumed the queue.
    Resumed {
        /// Person.
        by: Name,
    },
    /// Time passed.
    Tick,
}

/// Effect that the queue requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueCommand {
    /// Read the entries again, and merge them onto the newest commit of the branch.
    BuildBatch {
        /// Build.
        number: u64,
        /// Entries, in order.
        entries: Vec<MergeEntry>,
    },
    /// Run the gates of the entries on a commit.
    RunGates {
        /// Build.
        number: u64,
        /// Commit to test.
        commit: CommitId,
        /// Run on this commit, from 1.
        attempt: u8,
        /// Entries whose rules select the gates.
        entries: Vec<MergeEntry>,
    },
    /// Stop the step of a build that is under way.
    StopBuild {
        /// Build.
        number: u64,
    },
    /// Advance the branch, if it still has the expected commit and its entries are still wanted.
    Advance {
        /// Build.
        number: u64,
        /// Commits.
        commit: BuiltCommit,
        /// Entries in it.
        entries: Vec<MergeEntry>,
    },
    /// Read the branch again.
    VerifyLanded {
        /// Build.
        number: u64,
        /// Commits.
        commit: BuiltCommit,
    },
    /// Tell the task that its change landed.
    SettleLanded {
        /// Entry.
        entry: MergeEntry,
        /// Commit of the branch.
        commit: CommitId,
    },
    /// Send a change back to its task.
    ReturnEntry {
        /// Entry.
        entry: MergeEntry,
        /// Reason.
        reason: ReturnReason,
        /// Stored log or conflict.
        log: Reference,
    },
    /// Record that an entry is no longer wanted.
    DropEntry {
        /// Entry.
        entry: MergeEntry,
    },
    /// Alert people that the queue needs them.
    Alert {
        /// Reason.
        reason: String,
    },
}

/// Reason why an event does not fit the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QueueRefusal {
    /// Result of a build or a step that is over.
    #[error("the result is of a build that is over")]
    Stale,
    /// Queue is paused already.
    #[error("the queue is paused already")]
    AlreadyPaused,
    /// Queue is not paused.
    #[error("the queue is not paused")]
    NotPaused,
}

/// Applies an event to a queue.
pub fn step(
    queue: &MergeQueue,
    at: Timestamp,
    event: QueueEvent,
) -> Result<(MergeQueue, Vec<QueueCommand>), QueueRefusal> {
    let mut next = Transition { queue: queue.clone(), at, commands: Vec::new() };
    next.apply(event)?;
    next.start_build();
    Ok((next.queue, next.commands))
}

/// State and commands of a step in progress.
struct Transition {
    queue: MergeQueue,
    at: Timestamp,
    commands: Vec<QueueCommand>,
}

impl Transition {
    fn apply(&mut self, event: QueueEvent) -> Result<(), QueueRefusal> {
        match event {
            QueueEvent::Enqueued { entry, batch } => self.enqueue(entry, batch),
            QueueEvent::BatchBuilt { number, built } => {
                let build = self.take_build(number, &[BuildPhase::Building])?;
                self.batch_built(build, *built);
            }
            QueueEvent::GatesFinished { number, passed, log } => {
                let testing = [
                    BuildPhase::Testing,
                    BuildPhase::Retesting,
                    BuildPhase::TestingBase,
                    BuildPhase::RetestingBase,
                ];
                let build = self.take_build(number, &testing)?;
                self.gates_finished(build, passed, log);
            }
            QueueEvent::Advanced { number } => {
                let build = self.take_build(number, &[BuildPhase::Advancing])?;
                if let Some(commit) = build.commit.clone() {
                    self.commands.push(QueueCommand::VerifyLanded { number, commit });
                    self.queue.build = Some(QueueBuild { phase: BuildPhase::Verifying, ..build });
                }
            }
            QueueEvent::TipMoved { number } => {
                let build = self.take_build(number, &[BuildPhase::Advancing])?;
                self.queue.totals.rebuilt += 1;
                self.queue.parts.push(build.entries);
            }
            QueueEvent::EntriesLeft { number, left } => {
                let build = self.take_build(number, &[BuildPhase::Advancing])?;
                self.queue.parts.push(build.entries);
                for key in left {
                    self.drop_entry(key);
                }
            }
            QueueEvent::LandedTree { number, tree } => {
                let build = self.take_build(number, &[BuildPhase::Verifying])?;
                self.verified(build, tree.as_deref());
            }
            QueueEvent::Stopped { number } => {
                let build = self.take_current(number)?;
                self.queue.parts.push(build.entries);
            }
            QueueEvent::Failed { number, reason } => {
                let build = self.take_current(number)?;
                self.queue.parts.push(build.entries);
                self.pause_with_alert(reason, false);
            }
            QueueEvent::Paused { by, reason } => self.pause(by, reason)?,
            QueueEvent::Resumed { .. } => {
                self.queue.pause.take().ok_or(QueueRefusal::NotPaused)?;
            }
            QueueEvent::Tick => {}
        }
        Ok(())
    }

    fn enqueue(&mut self, entry: MergeEntry, batch: u8) {
        self.queue.batch = batch.max(1);
        if self.queue.entry(entry.key).is_some() {
            return;
        }
        // A newer head replaces the entry of the task, unless that one is being tested. Then the build
        // finds out that it is no longer wanted.
        let replaced: Vec<EntryKey> = self
            .queue
            .entries
            .iter()
            .map(|it| it.key)
            .filter(|key| key.task == entry.key.task && !self.queue.is_building(*key))
            .collect();
        for key in replaced {
            self.drop_entry(key);
        }
        self.queue.entries.push(entry);
    }

    /// Takes the current build, if it has this number and is in one of these phases. The result of a
    /// discarded build does not matter; [`QueueEvent::Stopped`] ends it.
    fn take_build(
        &mut self,
        number: u64,
        phases: &[BuildPhase],
    ) -> Result<QueueBuild, QueueRefusal> {
        let is_current = |build: &QueueBuild| {
            build.number == number && phases.contains(&build.phase) && !build.is_discarded
        };
        if self.queue.build.as_ref().is_some_and(is_current) {
            return self.queue.build.take().ok_or(QueueRefusal::Stale);
        }
        Err(QueueRefusal::Stale)
    }

    /// Takes the current build in any phase.
    fn take_current(&mut self, number: u64) -> Result<QueueBuild, QueueRefusal> {
        let build = self.queue.build.take_if(|build| build.number == number);
        build.ok_or(QueueRefusal::Stale)
    }

    fn batch_built(&mut self, build: QueueBuild, built: BatchBuilt) {
        for (key, commit) in built.landed {
            self.land(key, commit);
        }
        for key in built.left {
            self.drop_entry(key);
        }
        for (key, log) in built.conflicting {
            self.return_entry(key, ReturnReason::Conflict, log);
        }
        for key in built.unknown {
            self.delay_entry(key);
        }
        let Some(commit) = built.commit.filter(|_| !built.merged.is_empty()) else { return };
        let build = QueueBuild {
            entries: built.merged,
            phase: BuildPhase::Testing,
            commit: Some(commit.clone()),
            ..build
        };
        match self.queue.failed_trees.get(&commit.tree).cloned() {
            // The same files failed in another combination of the same entries.
            Some(log) => self.red(build, &commit, log),
            None => self.run_gates(build, commit.tested, BuildPhase::Testing),
        }
    }

    fn run_gates(&mut self, build: QueueBuild, commit: CommitId, phase: BuildPhase) {
        let attempt = match phase {
            BuildPhase::Retesting | BuildPhase::RetestingBase => 2,
            _ => 1,
        };
        let entries = self.entries_of(&build);
        self.queue.totals.gate_runs += 1;
        let number = build.number;
        self.commands.push(QueueCommand::RunGates { number, commit, attempt, entries });
        self.queue.build = Some(QueueBuild { phase, ..build });
    }

    fn gates_finished(&mut self, build: QueueBuild, passed: bool, log: Reference) {
        let Some(commit) = build.commit.clone() else { return };
        match (build.phase, passed) {
            // Halves tell as much as a second run, and one of them may land.
            (BuildPhase::Testing, false) if build.entries.len() > 1 => self.split(&build.entries),
            (BuildPhase::Testing, false) => {
                let build = QueueBuild { log: Some(log), ..build };
                self.run_gates(build, commit.tested, BuildPhase::Retesting);
            }
            (BuildPhase::Testing | BuildPhase::Retesting, true) => {
                if let Some(log) = build.log.clone() {
                    let (number, at) = (build.number, self.at);
                    let flaky = FlakyBuild { number, commit: commit.tested, log, at };
                    self.queue.flaky.push(flaky);
                    let excess = self.queue.flaky.len().saturating_sub(MAX_FLAKY);
                    self.queue.flaky.drain(..excess);
                }
                self.advance(build, commit);
            }
            (BuildPhase::TestingBase, false) => {
                self.run_gates(build, commit.tip, BuildPhase::RetestingBase);
            }
            (BuildPhase::TestingBase | BuildPhase::RetestingBase, true) => {
                self.queue.green_tip = Some(commit.tip);
                self.queue.red_tip = None;
                if let Some(log) = build.log.clone() {
                    self.red(build, &commit, log);
                }
            }
            (BuildPhase::RetestingBase, false) => self.red_base(&build, &commit),
            // Only the second failure of a change counts.
            (_, _) => self.red(build, &commit, log),
        }
    }

    fn advance(&mut self, build: QueueBuild, commit: BuiltCommit) {
        let (number, entries) = (build.number, self.entries_of(&build));
        self.commands.push(QueueCommand::Advance { number, commit, entries });
        self.queue.build = Some(QueueBuild { phase: BuildPhase::Advancing, ..build });
    }

    /// Handles a build whose failure is known to be its own: splits it, or returns its only entry.
    fn red(&mut self, build: QueueBuild, commit: &BuiltCommit, log: Reference) {
        self.queue.failed_trees.insert(commit.tree.clone(), log.clone());
        if let [only] = build.entries[..] {
            if self.queue.red_tip == Some(commit.tip) {
                self.delay_entry(only);
            } else if self.queue.green_tip == Some(commit.tip) {
                self.return_entry(only, ReturnReason::Failed, log);
            } else {
                // The branch itself may fail. Nobody's change is blamed for that.
                let build = QueueBuild { log: Some(log), ..build };
                self.run_gates(build, commit.tip, BuildPhase::TestingBase);
            }
            return;
        }
        self.split(&build.entries);
    }

    fn split(&mut self, entries: &[EntryKey]) {
        let (first, second) = entries.split_at(entries.len().div_ceil(2));
        self.queue.parts.push(second.to_vec());
        self.queue.parts.push(first.to_vec());
    }

    /// Handles a branch that fails by itself. An entry that repairs it can still land.
    fn red_base(&mut self, build: &QueueBuild, commit: &BuiltCommit) {
        for key in &build.entries {
            self.delay_entry(*key);
        }
        if self.queue.red_tip.replace(commit.tip) != Some(commit.tip) {
            let reason = red_tip_text(commit.tip);
            self.commands.push(QueueCommand::Alert { reason });
        }
    }

    fn verified(&mut self, build: QueueBuild, tree: Option<&str>) {
        let Some(commit) = build.commit else { return };
        if tree == Some(commit.tree.as_str()) {
            self.queue.green_tip = Some(commit.tested);
            self.queue.red_tip = None;
            for key in build.entries {
                self.land(key, commit.tested);
            }
            return;
        }
        self.queue.parts.push(build.entries);
        let found = tree.unwrap_or("no such commit");
        let reason = format!(
            "the branch does not have what was tested: commit {} was tested with tree {}, and the \
             branch has {found}; compare both before you resume the queue",
            commit.tested, commit.tree
        );
        self.pause_with_alert(reason, true);
    }

    fn pause(&mut self, by: Name, reason: String) -> Result<(), QueueRefusal> {
        if self.queue.pause.is_some() {
            return Err(QueueRefusal::AlreadyPaused);
        }
        let at = self.at;
        self.queue.pause = Some(QueuePause { reason, by: Some(by), is_incident: false, at });
        if let Some(build) = &mut self.queue.build
            && !matches!(build.phase, BuildPhase::Advancing | BuildPhase::Verifying)
            && !build.is_discarded
        {
            build.is_discarded = true;
            self.commands.push(QueueCommand::StopBuild { number: build.number });
        }
        Ok(())
    }

    fn pause_with_alert(&mut self, reason: String, is_incident: bool) {
        let at = self.at;
        self.queue.pause = Some(QueuePause { reason: reason.clone(), by: None, is_incident, at });
        self.commands.push(QueueCommand::Alert { reason });
    }

    /// Starts the next build: a part of a failed batch, or a new batch.
    fn start_build(&mut self) {
        if self.queue.build.is_some() || self.queue.pause.is_some() {
            return;
        }
        let at = self.at;
        let is_due = |it: &&MergeEntry| it.not_before.is_none_or(|until| until <= at);
        let mut entries = Vec::new();
        while entries.is_empty() {
            let Some(part) = self.queue.parts.pop() else { break };
            entries = part.into_iter().filter_map(|key| self.queue.entry(key)).cloned().collect();
            entries.retain(|it: &MergeEntry| is_due(&it));
        }
        if entries.is_empty() {
            if self.queue.red_tip.is_none() {
                self.queue.failed_trees.clear();
            }
            let mut waiting: Vec<_> = self.queue.entries.iter().filter(is_due).cloned().collect();
            waiting.sort_by_key(|it| it.order(at));
            waiting.truncate(usize::from(self.queue.batch));
            entries = waiting;
        }
        if entries.is_empty() {
            return;
        }
        self.queue.last_build += 1;
        let number = self.queue.last_build;
        self.queue.build = Some(QueueBuild {
            number,
            entries: entries.iter().map(|it| it.key).collect(),
            phase: BuildPhase::Building,
            commit: None,
            log: None,
            is_discarded: false,
            started_at: at,
        });
        self.commands.push(QueueCommand::BuildBatch { number, entries });
    }

    fn entries_of(&self, build: &QueueBuild) -> Vec<MergeEntry> {
        build.entries.iter().filter_map(|key| self.queue.entry(*key)).cloned().collect()
    }

    fn take_entry(&mut self, key: EntryKey) -> Option<MergeEntry> {
        let index = self.queue.entries.iter().position(|it| it.key == key)?;
        Some(self.queue.entries.remove(index))
    }

    fn land(&mut self, key: EntryKey, commit: CommitId) {
        if let Some(entry) = self.take_entry(key) {
            self.queue.totals.landed += 1;
            self.commands.push(QueueCommand::SettleLanded { entry, commit });
        }
    }

    fn return_entry(&mut self, key: EntryKey, reason: ReturnReason, log: Reference) {
        if let Some(entry) = self.take_entry(key) {
            self.queue.totals.returned += 1;
            self.commands.push(QueueCommand::ReturnEntry { entry, reason, log });
        }
    }

    fn drop_entry(&mut self, key: EntryKey) {
        if let Some(entry) = self.take_entry(key) {
            self.commands.push(QueueCommand::DropEntry { entry });
        }
    }

    fn delay_entry(&mut self, key: EntryKey) {
        let until = self.at + RETRY_DELAY;
        if let Some(entry) = self.queue.entries.iter_mut().find(|it| it.key == key) {
            entry.not_before = Some(until);
        }
    }
}
