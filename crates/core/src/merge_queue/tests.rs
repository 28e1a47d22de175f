//! Tests of the merge queue against a model of a repository and its gates.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use chrono::{DateTime, TimeDelta};
use proptest::prelude::*;
use strum::IntoEnumIterator as _;
use uuid::Uuid;

use super::*;

/// Change of the model, by its number.
type Change = u32;

fn at(second: i64) -> Timestamp {
    DateTime::from_timestamp(1_790_000_000 + second, 0).expect("a time")
}

fn key(change: Change) -> EntryKey {
    let head = format!("{change:040x}").parse().expect("a commit");
    EntryKey { task: TaskId(Uuid::from_u128(u128::from(change))), head }
}

fn change_of(key: EntryKey) -> Change {
    u32::try_from(key.task.0.as_u128()).expect("a change")
}

fn entry(change: Change, priority: Priority, queued_at: Timestamp) -> MergeEntry {
    MergeEntry {
        key: key(change),
        policy: PolicyVersion::of(b"rules"),
        risk: RiskLevel::Low,
        priority,
        queued_at,
        not_before: None,
    }
}

fn reference(text: &str) -> Reference {
    text.parse().expect("a reference")
}

/// Properties of the changes.
#[derive(Debug, Clone, Default)]
struct Oracle {
    broken: BTreeSet<Change>,
    /// The first run of the gates on a commit with one of them fails.
    flaky: BTreeSet<Change>,
    /// Conflict with the branch.
    conflicting: BTreeSet<Change>,
    /// Conflict with each other.
    conflicting_pairs: Vec<(Change, Change)>,
    /// Pass alone and fail together.
    interacting: Vec<(Change, Change)>,
}

impl Oracle {
    fn has_pair(pairs: &[(Change, Change)], set: &BTreeSet<Change>) -> bool {
        pairs.iter().any(|(one, other)| one != other && set.contains(one) && set.contains(other))
    }

    fn is_red(&self, set: &BTreeSet<Change>) -> bool {
        set.iter().any(|it| self.broken.contains(it)) || Self::has_pair(&self.interacting, set)
    }

    fn conflicts(&self, set: &BTreeSet<Change>, change: Change) -> bool {
        let mut with = set.clone();
        with.insert(change);
        self.conflicting.contains(&change) || Self::has_pair(&self.conflicting_pairs, &with)
    }

    /// Returns `true` if the change lands whatever the others do.
    fn is_good(&self, change: Change) -> bool {
        let pairs = self.conflicting_pairs.iter().chain(&self.interacting);
        let in_pair = pairs
            .filter(|(one, other)| one != other)
            .any(|(one, other)| *one == change || *other == change);
        !in_pair && !self.is_bad(change)
    }

    fn is_bad(&self, change: Change) -> bool {
        self.broken.contains(&change) || self.conflicting.contains(&change)
    }
}

/// Repository with one branch. A commit is a set of changes and a number of commits of people.
struct QueueWorld {
    oracle: Oracle,
    queue: MergeQueue,
    now: i64,
    commits: BTreeMap<CommitId, (BTreeSet<Change>, u32)>,
    tip: (BTreeSet<Change>, u32),
    /// Number of commits of people that move the branch, by the number of the build.
    moves: VecDeque<bool>,
    landed: BTreeSet<Change>,
    returned: Vec<Change>,
    alerts: usize,
    pending: VecDeque<QueueCommand>,
    wrong_tree: bool,
}

impl QueueWorld {
    fn new(oracle: Oracle, batch: u8) -> Self {
        Self {
            oracle,
            queue: MergeQueue::new(batch),
            now: 0,
            commits: BTreeMap::new(),
            tip: (BTreeSet::new(), 0),
            moves: VecDeque::new(),
            landed: BTreeSet::new(),
            returned: Vec::new(),
            alerts: 0,
            pending: VecDeque::new(),
            wrong_tree: false,
        }
    }

    fn commit(&mut self, content: &(BTreeSet<Change>, u32)) -> CommitId {
        let digest = Digest::of(format!("{content:?}").as_bytes());
        let commit = digest.to_string().parse().expect("a commit");
        self.commits.insert(commit, content.clone());
        commit
    }

    fn event(&mut self, event: QueueEvent) {
        self.now += 1;
        let (next, commands) = step(&self.queue, at(self.now), event).expect("accepted");
        self.queue = next;
        self.pending.extend(commands);
    }

    fn enqueue(&mut self, change: Change, priority: Priority) {
        let (entry, batch) = (entry(change, priority, at(self.now)), self.queue.batch);
        self.event(QueueEvent::Enqueued { entry, batch });
    }

    fn build(&mut self, entries: &[MergeEntry]) -> BatchBuilt {
        let tip = self.tip.clone();
        let mut merged = tip.clone();
        let mut built = BatchBuilt::default();
        for entry in entries {
            let change = change_of(entry.key);
            if self.oracle.conflicts(&tip.0, change) {
                built.conflicting.push((entry.key, reference("conflict")));
            } else if !self.oracle.conflicts(&merged.0, change) {
                merged.0.insert(change);
                built.merged.push(entry.key);
            }
        }
        let tree = format!("{merged:?}");
        let (tip, tested) = (self.commit(&tip), self.commit(&merged));
        built.commit = Some(BuiltCommit { tip, tested, tree });
        built
    }

    /// Runs until nothing is under way.
    fn run(&mut self) {
        for _ in 0..100_000 {
            let Some(command) = self.pending.pop_front() else { return };
            match command {
                QueueCommand::BuildBatch { number, entries } => {
                    let built = Box::new(self.build(&entries));
                    self.event(QueueEvent::BatchBuilt { number, built });
                }
                QueueCommand::RunGates { number, commit, attempt, .. } => {
                    let set = &self.commits[&commit].0;
                    let flakes =
                        attempt == 1 && set.iter().any(|it| self.oracle.flaky.contains(it));
                    let passed = !flakes && !self.oracle.is_red(set);
                    let log = reference("log");
                    self.event(QueueEvent::GatesFinished { number, passed, log });
                }
                QueueCommand::Advance { number, commit, .. } => {
                    if self.moves.pop_front().unwrap_or_default() {
                        self.tip.1 += 1;
                    }
                    if self.commits[&commit.tip] == self.tip {
                        self.tip = self.commits[&commit.tested].clone();
                        assert!(
                            !self.oracle.is_red(&self.tip.0),
                            "the branch is red: {:?}",
                            self.tip
                        );
                        self.event(QueueEvent::Advanced { number });
                    } else {
                        self.event(QueueEvent::TipMoved { number });
                    }
                }
                QueueCommand::VerifyLanded { number, commit } => {
                    let tree = if self.wrong_tree { "another".to_owned() } else { commit.tree };
                    self.event(QueueEvent::LandedTree { number, tree: Some(tree) });
                }
                QueueCommand::SettleLanded { entry, .. } => {
                    assert!(self.landed.insert(change_of(entry.key)), "landed twice");
                }
                QueueCommand::ReturnEntry { entry, .. } => self.returned.push(change_of(entry.key)),
                QueueCommand::DropEntry { .. } | QueueCommand::StopBuild { .. } => {}
                QueueCommand::Alert { .. } => self.alerts += 1,
            }
        }
        panic!("the queue does not end");
    }
}

fn oracles() -> impl Strategy<Value = (Change, Oracle)> {
    let change = || 0..40_u32;
    let some = |most: usize| proptest::collection::btree_set(change(), 0..most);
    let pairs = || proptest::collection::vec((change(), change()), 0..3);
    (1..40_u32, some(6), some(4), some(4), pairs(), pairs()).prop_map(
        |(count, broken, flaky, conflicting, conflicting_pairs, interacting)| {
            (count, Oracle { broken, flaky, conflicting, conflicting_pairs, interacting })
        },
    )
}

proptest! {
    /// The branch is never red (asserted by the model), good changes land, bad ones return once.
    #[test]
    fn good_changes_land_and_bad_ones_return_once(
        (count, oracle) in oracles(),
        batch in 1..12_u8,
        moves in proptest::collection::vec(any::<bool>(), 0..30),
        priorities in proptest::collection::vec(0..4_usize, 40),
        together in any::<bool>(),
    ) {
        let mut world = QueueWorld::new(oracle.clone(), batch);
        world.moves = moves.iter().copied().collect();
        for change in 0..count {
            let priority = Priority::iter().nth(priorities[change as usize]).expect("a priority");
            world.enqueue(change, priority);
            if !together {
                world.run();
            }
        }
        world.run();
        prop_assert!(world.queue.build.is_none() && world.queue.entries.is_empty());
        prop_assert_eq!(world.alerts, 0);
        for change in 0..count {
            let returns = world.returned.iter().filter(|it| **it == change).count();
            let has_landed = world.landed.contains(&change);
            prop_assert_eq!(returns + usize::from(has_landed), 1, "change {}", change);
            prop_assert!(has_landed || !oracle.is_good(change), "good change {} returned", change);
            prop_assert!(!has_landed || !oracle.is_bad(change), "bad change {} landed", change);
        }
    }

    /// Each bad change costs at most the two halves of each split on its path.
    #[test]
    fn builds_are_bounded_by_the_logarithm_of_the_batch(
        (count, oracle) in oracles(),
        batch in 1..12_u8,
        moves in proptest::collection::vec(any::<bool>(), 0..30),
    ) {
        let oracle = Oracle { flaky: BTreeSet::new(), ..oracle };
        let mut world = QueueWorld::new(oracle, batch);
        let moved = moves.iter().filter(|it| **it).count();
        world.moves = moves.iter().copied().collect();
        for change in 0..count {
            world.enqueue(change, Priority::Medium);
        }
        world.run();
        let depth = u64::from(u8::BITS - batch.leading_zeros());
        let returned = u64::try_from(world.returned.len()).expect("a number");
        let batches = u64::from(count).div_ceil(u64::from(batch));
        let moved = u64::try_from(moved).expect("a number");
        // The first entry is built alone, before the others arrive.
        let bound = 1 + batches + moved + returned * (2 * depth + 3);
        prop_assert!(world.queue.last_build <= bound, "{} > {bound}", world.queue.last_build);
        // Every failure runs twice, and once more on the branch itself.
        prop_assert!(world.queue.totals.gate_runs <= 2 * bound + returned);
    }
}

#[test]
fn a_failed_batch_is_split_and_its_failure_is_not_tested_again() {
    let oracle = Oracle { broken: [2].into(), ..Oracle::default() };
    let mut world = QueueWorld::new(oracle, 2);
    world.enqueue(0, Priority::Medium);
    world.run();
    for change in [1, 2] {
        world.enqueue(change, Priority::Medium);
    }
    world.run();
    // 0 passes, 1 passes alone because it arrives first, 2 fails twice on a green branch.
    assert_eq!(world.returned, [2]);
    assert_eq!(world.queue.totals.gate_runs, 4);
    world.event(QueueEvent::Paused {
        by: "ada".parse().expect("a name"),
        reason: "wait".to_owned(),
    });
    for change in [3, 4] {
        world.enqueue(change, Priority::Medium);
    }
    world.oracle.broken.insert(4);
    world.event(QueueEvent::Resumed { by: "ada".parse().expect("a name") });
    world.run();
    // Both together, then 3 alone, then 4 on top of 3 twice.
    assert_eq!(world.returned, [2, 4]);
    assert_eq!(world.queue.totals.gate_runs, 4 + 4);
    assert!(world.queue.failed_trees.is_empty(), "forgotten after the split");
}

#[test]
fn a_flaky_build_lands_and_is_recorded() {
    let oracle = Oracle { flaky: [0].into(), ..Oracle::default() };
    let mut world = QueueWorld::new(oracle, 4);
    world.enqueue(0, Priority::Medium);
    world.run();
    assert!(world.landed.contains(&0));
    assert_eq!(world.queue.flaky.len(), 1);
    assert_eq!(world.queue.totals.gate_runs, 2);
}

#[test]
fn another_tree_than_the_tested_one_is_an_incident() {
    let mut world = QueueWorld::new(Oracle::default(), 4);
    world.wrong_tree = true;
    world.enqueue(0, Priority::Medium);
    world.run();
    let pause = world.queue.pause.clone().expect("paused");
    assert!(pause.is_incident && pause.by.is_none());
    assert!(pause.reason.contains("another"), "{}", pause.reason);
    assert_eq!(world.alerts, 1);
    assert!(world.landed.is_empty());
    assert_eq!(world.queue.entries.len(), 1, "kept until a person decides");
    assert_eq!(world.queue.question(), Some(pause.reason));
    world.wrong_tree = false;
    world.event(QueueEvent::Resumed { by: "ada".parse().expect("a name") });
    world.run();
    assert_eq!(world.queue.question(), None, "settled by the resume");
    let (by, reason) = ("ada".parse().expect("a name"), "wait".to_owned());
    world.event(QueueEvent::Paused { by, reason });
    assert_eq!(world.queue.question(), None, "a person knows why they paused it");
}

#[test]
fn a_red_branch_alerts_once_and_blames_no_change() {
    let mut world = QueueWorld::new(Oracle { broken: [9].into(), ..Oracle::default() }, 4);
    world.tip.0.insert(9);
    world.enqueue(0, Priority::Medium);
    world.run();
    assert_eq!((world.alerts, world.returned.len(), world.landed.len()), (1, 0, 0));
    let question = world.queue.question().expect("people are asked");
    assert!(question.contains("without any change"), "{question}");
    let wake = world.queue.wake_at().expect("a timer");
    assert!(wake > at(world.now));
    world.now += 60;
    world.event(QueueEvent::Tick);
    world.run();
    assert_eq!(world.alerts, 1, "known already");
    world.tip = (BTreeSet::new(), 1);
    world.now += 60;
    world.event(QueueEvent::Tick);
    world.run();
    assert!(world.landed.contains(&0), "a person repaired it");
}

#[test]
fn a_pause_stops_the_build_and_a_resume_builds_it_again() {
    let ada: Name = "ada".parse().expect("a name");
    let mut world = QueueWorld::new(Oracle::default(), 4);
    world.enqueue(0, Priority::Medium);
    let paused = QueueEvent::Paused { by: ada.clone(), reason: "release".to_owned() };
    world.event(paused.clone());
    assert_eq!(world.pending.back(), Some(&QueueCommand::StopBuild { number: 1 }));
    assert_eq!(step(&world.queue, at(9), paused), Err(QueueRefusal::AlreadyPaused));
    // The result of the stopped build does not count.
    let built = Box::new(BatchBuilt { left: vec![key(0)], ..BatchBuilt::default() });
    let late = QueueEvent::BatchBuilt { number: 1, built };
    assert_eq!(step(&world.queue, at(9), late), Err(QueueRefusal::Stale));
    world.pending.clear();
    world.event(QueueEvent::Stopped { number: 1 });
    assert!(world.queue.build.is_none());
    world.event(QueueEvent::Resumed { by: ada.clone() });
    world.run();
    assert!(world.landed.contains(&0));
    let resumed = QueueEvent::Resumed { by: ada };
    assert_eq!(step(&world.queue, at(9), resumed), Err(QueueRefusal::NotPaused));
}

#[test]
fn a_newer_head_replaces_the_entry_and_a_step_that_cannot_be_done_pauses() {
    let mut queue = MergeQueue::new(1);
    let add = |queue: &MergeQueue, entry: MergeEntry| {
        let event = QueueEvent::Enqueued { entry, batch: 1 };
        step(queue, at(1), event).expect("accepted")
    };
    queue = add(&queue, entry(1, Priority::Low, at(0))).0;
    queue = add(&queue, entry(2, Priority::Low, at(0))).0;
    let newer = EntryKey { head: key(3).head, ..key(2) };
    let (next, commands) = add(&queue, MergeEntry { key: newer, ..entry(2, Priority::Low, at(1)) });
    assert!(matches!(&commands[..], [QueueCommand::DropEntry { entry }] if entry.key == key(2)));
    assert!(next.entry(newer).is_some());
    let failed = QueueEvent::Failed { number: 1, reason: "protected branch".to_owned() };
    let (next, commands) = step(&next, at(2), failed).expect("accepted");
    assert!(matches!(&commands[..], [QueueCommand::Alert { .. }]));
    assert_eq!(next.pause.map(|it| it.reason).as_deref(), Some("protected branch"));
    assert_eq!(next.entries.len(), 2);
}

#[test]
fn older_entries_overtake_newer_ones_of_a_higher_priority() {
    let mut queue = MergeQueue::new(1);
    queue.entries = vec![
        entry(1, Priority::High, at(0) + TimeDelta::minutes(25)),
        entry(2, Priority::Low, at(0)),
        entry(3, Priority::Critical, at(0) + TimeDelta::minutes(26)),
    ];
    let order = |minutes: i64| {
        let at = at(0) + TimeDelta::minutes(minutes);
        queue.ordered(at).into_iter().map(|it| change_of(it.key)).collect::<Vec<_>>()
    };
    assert_eq!(order(26), [3, 2, 1]);
    assert_eq!(order(31), [2, 3, 1]);
}

#[test]
fn each_branch_has_its_own_id_that_no_task_has() {
    let project = ProjectId(Uuid::from_u128(1));
    let address = |branch: &str| {
        QueueAddress::new(project, "github".to_owned(), "Acme/Shop", branch.to_owned())
    };
    let main = address("main");
    assert_eq!(main.to_string(), "github/acme/shop/main");
    assert_eq!(main.as_task(), address("main").as_task());
    assert_ne!(main.as_task(), address("next").as_task());
    assert_eq!(main.as_task().0.get_version_num(), 8, "tasks have version 7");
}
