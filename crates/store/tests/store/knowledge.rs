//! Knowledge entries: stored with their changes, cached, and compared by the tasks they matched.

use tamma_core::cost::Usd;
use tamma_core::ids::{KnowledgeId, PlanHash, ProjectId, TaskId};
use tamma_core::knowledge::{
    EntryKind, EntryMatch, EntryScope, EntrySeverity, EntryStatus, KnowledgeEntry,
    KnowledgeFindings, MatchReason,
};
use tamma_core::learning::{LessonEffect, ReviewOutcomes};
use tamma_core::plan::FileAction;
use tamma_core::task::TaskType;
use tamma_core::task_loop::{Action as Asked, Outcome, State};
use tamma_store::{
    Conflict, EntryEffect, Error, KnowledgeAction, KnowledgeCache, KnowledgeFilter, MatchRole,
    Store, StoredEntry, TaskTally,
};
use tamma_testkit::postgres::TestDatabase;
use uuid::Uuid;

use crate::recorded_task::{PROJECT, RecordedTask, quick, register};
use crate::world::{reason, red, text};

const ELSEWHERE: ProjectId = ProjectId(Uuid::from_u128(77));

async fn fresh() -> (TestDatabase, Store) {
    let database = TestDatabase::fresh().await.expect("test database");
    let store = database.store().await.expect("connection");
    register(&store).await;
    (database, store)
}

fn id(number: u128) -> KnowledgeId {
    KnowledgeId(Uuid::from_u128(number))
}

fn entry(number: u128) -> KnowledgeEntry {
    KnowledgeEntry {
        id: id(number),
        kind: EntryKind::Recommendation,
        text: format!("Number {number}:\n\tuse “the cache” for \\lists\u{2028}."),
        scope: EntryScope::Project(PROJECT),
        globs: vec!["src/**".to_owned()],
        task_types: vec![TaskType::Feature],
        keywords: vec!["cache".to_owned()],
        actions: vec![FileAction::Modify],
        pattern: Some(r"\bcache\b".to_owned()),
        severity: EntrySeverity::High,
        owner: Some(text("ann")),
        evidence: vec![text("commit:abc"), text("event:1/2")],
        status: EntryStatus::Pending,
        origin: None,
        expires_at: Some("2027-01-31T00:00:00.123456789Z".parse().expect("timestamp")),
    }
}

async fn add(store: &Store, entry: &KnowledgeEntry) -> StoredEntry {
    store.add_knowledge(entry, KnowledgeAction::Added, Some("ann"), None).await.expect("added")
}

async fn approve(store: &Store, stored: &StoredEntry) -> StoredEntry {
    let entry = KnowledgeEntry { status: EntryStatus::Approved, ..stored.entry.clone() };
    let by = Some("bob");
    let changed =
        store.change_knowledge(&entry, stored.revision, KnowledgeAction::Approved, by, None).await;
    changed.expect("approved")
}

async fn ids(store: &Store, filter: KnowledgeFilter) -> Vec<KnowledgeId> {
    let all = store.list_knowledge(&filter).await.expect("entries");
    all.into_iter().map(|stored| stored.entry.id).collect()
}

#[tokio::test]
async fn entry_is_stored_exactly_with_all_its_changes() {
    let (_database, store) = fresh().await;
    let added = add(&store, &entry(1)).await;
    assert_eq!(added.entry, entry(1));
    let approved = approve(&store, &added).await;
    assert!(approved.revision > added.revision && approved.updated_at >= added.updated_at);
    assert_eq!(approved.created_at, added.created_at);
    let merged = KnowledgeEntry { evidence: vec![text("commit:def")], ..approved.entry.clone() };
    let reason = Some("repeated in another task");
    store
        .change_knowledge(&merged, approved.revision, KnowledgeAction::Merged, None, reason)
        .await
        .expect("merged");
    assert_eq!(store.knowledge_entry(id(1)).await.expect("there").entry, merged);

    let changes = store.knowledge_changes(id(1)).await.expect("changes");
    let summary: Vec<_> =
        changes.iter().map(|it| (it.action, it.by.as_deref(), it.reason.as_deref())).collect();
    let expected = [
        (KnowledgeAction::Added, Some("ann"), None),
        (KnowledgeAction::Approved, Some("bob"), None),
        (KnowledgeAction::Merged, None, reason),
    ];
    assert_eq!(summary, expected);
    let then: Vec<_> = changes.into_iter().map(|it| it.entry_after).collect();
    assert_eq!(then, [added.entry, approved.entry, merged]);
}

#[tokio::test]
async fn change_based_on_a_stale_revision_is_refused() {
    let (_database, store) = fresh().await;
    let added = add(&store, &entry(1)).await;
    let approved = approve(&store, &added).await;
    let late = KnowledgeEntry { text: "Too late.".to_owned(), ..added.entry.clone() };
    let late = store
        .change_knowledge(&late, added.revision, KnowledgeAction::Edited, Some("cyd"), None)
        .await;
    assert!(
        matches!(late, Err(Error::Conflict(Conflict::KnowledgeChanged { entry })) if entry == id(1)),
        "{late:?}"
    );
    assert_eq!(store.knowledge_entry(id(1)).await.expect("there"), approved);
    assert_eq!(store.knowledge_changes(id(1)).await.expect("changes").len(), 2);

    // Of two writers that read the same revision, the first one succeeds.
    let edit = |text: &str| KnowledgeEntry { text: text.to_owned(), ..approved.entry.clone() };
    let (one, other) = (edit("One."), edit("Other."));
    let (one, other) = tokio::join!(
        store.change_knowledge(&one, approved.revision, KnowledgeAction::Edited, Some("ann"), None),
        store.change_knowledge(
            &other,
            approved.revision,
            KnowledgeAction::Edited,
            Some("bob"),
            None
        ),
    );
    assert_eq!(u8::from(one.is_ok()) + u8::from(other.is_ok()), 1, "{one:?} {other:?}");
    assert_eq!(store.knowledge_changes(id(1)).await.expect("changes").len(), 3);
}

#[tokio::test]
async fn unknown_entry_is_not_found_and_cannot_be_changed() {
    let (_database, store) = fresh().await;
    let absent = store.knowledge_entry(id(1)).await;
    assert!(matches!(absent, Err(Error::NotFound { what: "entry", .. })), "{absent:?}");
    let absent =
        store.change_knowledge(&entry(1), 1, KnowledgeAction::Edited, Some("ann"), None).await;
    assert!(matches!(absent, Err(Error::NotFound { what: "entry", .. })), "{absent:?}");
    assert_eq!(store.knowledge_changes(id(1)).await.expect("no changes"), []);
    assert_eq!(ids(&store, KnowledgeFilter::default()).await, []);
}

#[tokio::test]
async fn entry_is_added_once() {
    let (_database, store) = fresh().await;
    add(&store, &entry(1)).await;
    let second = store.add_knowledge(&entry(1), KnowledgeAction::Added, Some("ann"), None).await;
    assert!(second.is_err());
    assert_eq!(store.knowledge_changes(id(1)).await.expect("changes").len(), 1);
}

#[tokio::test]
async fn filter_selects_entries_that_apply_to_a_project() {
    let (_database, store) = fresh().await;
    let here = add(&store, &entry(1)).await;
    approve(&store, &here).await;
    add(
        &store,
        &KnowledgeEntry {
            scope: EntryScope::Organisation,
            kind: EntryKind::Prohibition,
            ..entry(2)
        },
    )
    .await;
    add(&store, &KnowledgeEntry { scope: EntryScope::Project(ELSEWHERE), ..entry(3) }).await;
    let all = KnowledgeFilter::default;
    assert_eq!(ids(&store, all()).await, [id(1), id(2), id(3)]);
    let project = Some(PROJECT);
    assert_eq!(ids(&store, KnowledgeFilter { project, ..all() }).await, [id(1), id(2)]);
    let kind = Some(EntryKind::Prohibition);
    assert_eq!(ids(&store, KnowledgeFilter { kind, ..all() }).await, [id(2)]);
    let status = Some(EntryStatus::Pending);
    assert_eq!(ids(&store, KnowledgeFilter { status, ..all() }).await, [id(2), id(3)]);
    assert_eq!(ids(&store, KnowledgeFilter { project, kind, status }).await, [id(2)]);
}

#[tokio::test]
async fn cache_is_refreshed_when_an_entry_of_its_project_changes() {
    let (_database, store) = fresh().await;
    let cache = KnowledgeCache::new(&store);
    let none = cache.index(PROJECT).await.expect("index");
    let stored = add(&store, &entry(1)).await;
    let one = cache.index(PROJECT).await.expect("index");
    assert!(!std::sync::Arc::ptr_eq(&none, &one));
    assert_eq!(one.entry(id(1)), Some(&entry(1)));

    add(&store, &KnowledgeEntry { scope: EntryScope::Project(ELSEWHERE), ..entry(2) }).await;
    let same = cache.clone().index(PROJECT).await.expect("index");
    assert!(
        std::sync::Arc::ptr_eq(&one, &same),
        "changes in other projects do not invalidate the cache"
    );

    approve(&store, &stored).await;
    let approved = cache.index(PROJECT).await.expect("index");
    assert_eq!(approved.entry(id(1)).map(|it| it.status), Some(EntryStatus::Approved));
    add(&store, &KnowledgeEntry { scope: EntryScope::Organisation, ..entry(3) }).await;
    let everywhere = cache.index(PROJECT).await.expect("index");
    assert!(everywhere.entry(id(3)).is_some() && everywhere.entry(id(2)).is_none());
}

fn matched(number: u128, relevance: u8) -> EntryMatch {
    let reasons = vec![MatchReason::Keyword("cache".to_owned())];
    EntryMatch { entry: id(number), reasons, relevance }
}

fn hash(number: u8) -> PlanHash {
    PlanHash::of(&[number])
}

#[tokio::test]
async fn plan_matches_are_stored_with_reasons_and_visibility() {
    let (_database, store) = fresh().await;
    let task = TaskId(Uuid::from_u128(5));
    let findings = KnowledgeFindings {
        blockers: vec![matched(1, 100)],
        warnings: vec![matched(2, 100)],
        recommendations: vec![matched(3, 80), matched(4, 90)],
        conventions: Vec::new(),
        learnings: vec![matched(5, 70)],
    };
    let key = (task, PROJECT);
    store.save_matches(key, hash(1), &findings, &[id(1), id(4)]).await.expect("saved");
    let stored = store.plan_matches(task, hash(1)).await.expect("matches");
    let summary: Vec<_> = stored.iter().map(|it| (it.role, it.matched.entry, it.shown)).collect();
    let expected = [
        (MatchRole::Blocker, id(1), true),
        (MatchRole::Warning, id(2), false),
        (MatchRole::Recommendation, id(4), true),
        (MatchRole::Recommendation, id(3), false),
        (MatchRole::Learning, id(5), false),
    ];
    assert_eq!(summary, expected);
    assert_eq!(stored[2].matched, matched(4, 90));

    // A repeated check replaces the matches of its plan; other plans keep theirs.
    let fewer =
        KnowledgeFindings { learnings: vec![matched(5, 75)], ..KnowledgeFindings::default() };
    store.save_matches(key, hash(1), &fewer, &[]).await.expect("saved");
    store.save_matches(key, hash(2), &KnowledgeFindings::default(), &[]).await.expect("saved");
    let stored = store.plan_matches(task, hash(1)).await.expect("matches");
    assert_eq!(stored.iter().map(|it| it.matched.clone()).collect::<Vec<_>>(), [matched(5, 75)]);
    assert_eq!(store.plan_matches(task, hash(2)).await.expect("matches"), []);
}

#[tokio::test]
async fn entry_is_found_by_digits_of_its_id() {
    let (_database, store) = fresh().await;
    let ids = ["0192a000-0000-7000-8000-00001a2b3c4d", "0192b000-0000-7000-8000-0000ffff3c4d"];
    let ids = ids.map(|id| KnowledgeId(id.parse().expect("ID")));
    for id in ids {
        add(&store, &KnowledgeEntry { id, ..entry(1) }).await;
    }
    let like = async |digits: &str| store.find_knowledge_ids(digits).await.expect("ids");
    assert_eq!(like("0192a0000000").await, [ids[0]]);
    assert_eq!(like("1a2b3c4d").await, [ids[0]]);
    assert_eq!(like("3c4d").await, ids);
    assert_eq!(like("1a2b").await, [ids[0]]);
    assert_eq!(like("3c4").await, []);
    let entries = store.knowledge_by_ids(&[ids[1], id(404)]).await.expect("entries");
    assert_eq!(entries.iter().map(|it| it.entry.id).collect::<Vec<_>>(), [ids[1]]);
}

/// Writes a task that ends in the given way: passed at once, after one failure, or given up.
async fn ended(store: &Store, number: u128, how: &str) -> TaskId {
    let mut recorded = RecordedTask::new(number, quick());
    if how == "cancelled" {
        assert!(recorded.ask(Asked::Cancel { reason: reason() }));
        while recorded.it().state != State::Cancelled {
            assert!(
                recorded.advance() || recorded.done(Outcome::Interrupted),
                "{:?}",
                recorded.it().state
            );
        }
    } else {
        if how == "late" {
            recorded = recorded.until(State::Testing);
            assert!(recorded.done(red(1)));
        }
        recorded = recorded.until(State::Completed);
    }
    store
        .insert_task(&recorded.task, &recorded.steps[0].1, &recorded.rules)
        .await
        .expect("received");
    store.save_steps(&recorded.records(), &recorded.rules).await.expect("recorded");
    recorded.task.id
}

/// Records a match of an entry with a task, shown to its agents or not.
async fn record_match(store: &Store, task: TaskId, number: u128, shown: bool) {
    let findings = KnowledgeFindings {
        recommendations: vec![matched(number, 80)],
        ..KnowledgeFindings::default()
    };
    let shown: &[KnowledgeId] = if shown { &[id(number)] } else { &[] };
    store.save_matches((task, PROJECT), hash(1), &findings, shown).await.expect("saved");
}

/// Adds an entry that was approved before every task of these tests, which use a clock of their
/// own.
async fn in_force(store: &Store, database: &TestDatabase, number: u128) -> StoredEntry {
    let stored = approve(store, &add(store, &entry(number)).await).await;
    long_ago(database).await;
    stored
}

/// Moves all changes of entries to a time before the tasks.
async fn long_ago(database: &TestDatabase) {
    let pool = sqlx::PgPool::connect(&database.url()).await.expect("connected");
    // Changes are never rewritten, except by somebody who can turn triggers off.
    let older = "BEGIN; SET LOCAL session_replication_role = replica;
        UPDATE knowledge_changes SET at = '2000-01-01'; COMMIT";
    sqlx::raw_sql(older).execute(&pool).await.expect("older");
    pool.close().await;
}

async fn effect_of(store: &Store, stored: &StoredEntry) -> EntryEffect {
    let all = store.entry_effects(std::slice::from_ref(stored)).await.expect("effects");
    let [effect] = all[..] else { panic!("one effect per entry: {all:?}") };
    effect
}

#[tokio::test]
async fn effect_compares_tasks_with_and_without_the_entry() {
    let (database, store) = fresh().await;
    let stored = in_force(&store, &database, 1).await;
    for number in 1..=3 {
        let task = ended(&store, number, "at once").await;
        record_match(&store, task, 1, true).await;
    }
    let late = ended(&store, 4, "late").await;
    record_match(&store, late, 1, false).await;
    ended(&store, 5, "at once").await;
    ended(&store, 6, "cancelled").await;

    let effect = effect_of(&store, &stored).await;
    assert_eq!((effect.tasks, effect.matched, effect.stopped), (6, 4, 0));
    assert!(effect.last_matched.is_some());
    assert_eq!(effect.with_entry.outcomes, ReviewOutcomes { tasks: 3, first_pass: 3 });
    assert_eq!(effect.with_entry.iterations, 3);
    // One task needed rework. Another was never reviewed, so it does not count.
    assert_eq!(effect.without_entry.outcomes, ReviewOutcomes { tasks: 2, first_pass: 1 });
    assert_eq!(effect.without_entry.iterations, 3);
    let spent = async |task: u128| {
        let id = RecordedTask::new(task, quick()).task.id;
        store.task(id).await.expect("task").task_loop.expect("state machine").spend.usd
    };
    assert_eq!(effect.with_entry.cost, spent(1).await + spent(2).await + spent(3).await);
    assert!(effect.with_entry.cost > Usd::ZERO);
    assert_eq!(effect.effect(), LessonEffect::TooFew);
}

#[tokio::test]
async fn effect_needs_enough_tasks() {
    let (database, store) = fresh().await;
    let (helps, idle) =
        (in_force(&store, &database, 1).await, in_force(&store, &database, 2).await);
    for number in 1..=20_u128 {
        let shown = number <= 10;
        let how = if shown || number.is_multiple_of(2) { "at once" } else { "late" };
        let task = ended(&store, number, how).await;
        if shown {
            record_match(&store, task, 1, true).await;
        }
    }
    assert_eq!(
        effect_of(&store, &helps).await.effect(),
        LessonEffect::Helps { with: 100, without: 50 }
    );
    let idle = effect_of(&store, &idle).await;
    assert_eq!((idle.effect(), idle.tasks, idle.matched), (LessonEffect::TooFew, 20, 0));
}

#[tokio::test]
async fn effect_counts_only_tasks_in_scope_since_the_approval() {
    let (_database, store) = fresh().await;
    // The tasks of these tests ended long before any approval.
    let task = ended(&store, 1, "at once").await;
    let stored = approve(&store, &add(&store, &entry(1)).await).await;
    record_match(&store, task, 1, true).await;
    let late = effect_of(&store, &stored).await;
    assert!(late.since.is_some());
    assert_eq!((late.tasks, late.matched, late.with_entry), (0, 1, TaskTally::default()));

    let pending = add(&store, &entry(2)).await;
    assert_eq!(effect_of(&store, &pending).await, EntryEffect::default());
    let (database, store) = fresh().await;
    ended(&store, 1, "at once").await;
    let elsewhere = KnowledgeEntry { scope: EntryScope::Project(ELSEWHERE), ..entry(3) };
    let elsewhere = approve(&store, &add(&store, &elsewhere).await).await;
    let everywhere = KnowledgeEntry { scope: EntryScope::Organisation, ..entry(4) };
    let everywhere = approve(&store, &add(&store, &everywhere).await).await;
    long_ago(&database).await;
    let all = store.entry_effects(&[elsewhere, everywhere]).await.expect("effects");
    assert_eq!(all.iter().map(|it| it.tasks).collect::<Vec<_>>(), [0, 1]);
}

#[tokio::test]
async fn blocked_plans_are_counted() {
    let (_database, store) = fresh().await;
    let stored = approve(&store, &add(&store, &entry(1)).await).await;
    let task = ended(&store, 1, "cancelled").await;
    let findings =
        KnowledgeFindings { blockers: vec![matched(1, 100)], ..KnowledgeFindings::default() };
    for version in 1..=2 {
        store.save_matches((task, PROJECT), hash(version), &findings, &[]).await.expect("saved");
    }
    let effect = effect_of(&store, &stored).await;
    assert_eq!((effect.matched, effect.stopped), (1, 1), "two plans of one task count once");
}

#[tokio::test]
async fn existing_tasks_are_reported() {
    let (_database, store) = fresh().await;
    let task = ended(&store, 1, "at once").await;
    let absent = TaskId(Uuid::from_u128(404));
    let existing = store.existing_tasks(&[task, absent].into()).await.expect("existing tasks");
    assert_eq!(existing, [task].into());
}
