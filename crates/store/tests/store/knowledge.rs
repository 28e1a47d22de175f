//! What the team knows: kept with its history, ready in memory, and followed to the tasks it met.

use tamma_core::cost::Usd;
use tamma_core::ids::{KnowledgeId, PlanHash, ProjectId, TaskId};
use tamma_core::knowledge::{Entry, Findings, Kind, Match, MatchReason, Scope, Severity, Status};
use tamma_core::learning::{Effect, Outcomes};
use tamma_core::plan::Action;
use tamma_core::task::TaskType;
use tamma_core::task_loop::{Action as Asked, Outcome, State};
use tamma_store::{
    Conflict, Deed, Error, Followed, KnowledgeFilter, Known, Library, MatchRole, Store, Tally,
};
use tamma_testkit::postgres::Database;
use uuid::Uuid;

use crate::tape::{PROJECT, Tape, quick, register};
use crate::world::{reason, red, text};

const ELSEWHERE: ProjectId = ProjectId(Uuid::from_u128(77));

async fn fresh() -> (Database, Store) {
    let database = Database::fresh().await.expect("a database");
    let store = database.store().await.expect("a store");
    register(&store).await;
    (database, store)
}

fn id(number: u128) -> KnowledgeId {
    KnowledgeId(Uuid::from_u128(number))
}

fn entry(number: u128) -> Entry {
    Entry {
        id: id(number),
        kind: Kind::Recommendation,
        text: format!("Number {number}:\n\tuse “the cache” for \\lists\u{2028}."),
        scope: Scope::Project(PROJECT),
        globs: vec!["src/**".to_owned()],
        task_types: vec![TaskType::Feature],
        keywords: vec!["cache".to_owned()],
        actions: vec![Action::Modify],
        pattern: Some(r"\bcache\b".to_owned()),
        severity: Severity::High,
        owner: Some(text("ann")),
        evidence: vec![text("commit:abc"), text("event:1/2")],
        status: Status::Pending,
        expires_at: Some("2027-01-31T00:00:00.123456789Z".parse().expect("a moment")),
    }
}

async fn add(store: &Store, entry: &Entry) -> Known {
    store.add_knowledge(entry, Deed::Added, Some("ann"), None).await.expect("added")
}

async fn approve(store: &Store, known: &Known) -> Known {
    let entry = Entry { status: Status::Approved, ..known.entry.clone() };
    let by = Some("bob");
    let changed = store.change_knowledge(&entry, known.revision, Deed::Approved, by, None).await;
    changed.expect("approved")
}

async fn ids(store: &Store, filter: KnowledgeFilter) -> Vec<KnowledgeId> {
    let all = store.all_knowledge(&filter).await.expect("entries");
    all.into_iter().map(|known| known.entry.id).collect()
}

#[tokio::test]
async fn an_entry_is_kept_to_the_letter_with_everything_that_was_done_to_it() {
    let (_database, store) = fresh().await;
    let added = add(&store, &entry(1)).await;
    assert_eq!(added.entry, entry(1));
    let approved = approve(&store, &added).await;
    assert!(approved.revision > added.revision && approved.updated_at >= added.updated_at);
    assert_eq!(approved.created_at, added.created_at);
    let merged = Entry { evidence: vec![text("commit:def")], ..approved.entry.clone() };
    let why = Some("the same in another task");
    store
        .change_knowledge(&merged, approved.revision, Deed::Merged, None, why)
        .await
        .expect("merged");
    assert_eq!(store.knowledge(id(1)).await.expect("there").entry, merged);

    let changes = store.knowledge_changes(id(1)).await.expect("a history");
    let told: Vec<_> =
        changes.iter().map(|it| (it.deed, it.by.as_deref(), it.reason.as_deref())).collect();
    let expected = [
        (Deed::Added, Some("ann"), None),
        (Deed::Approved, Some("bob"), None),
        (Deed::Merged, None, why),
    ];
    assert_eq!(told, expected);
    let then: Vec<_> = changes.into_iter().map(|it| it.then).collect();
    assert_eq!(then, [added.entry, approved.entry, merged]);
}

#[tokio::test]
async fn who_has_seen_an_older_entry_changes_nothing() {
    let (_database, store) = fresh().await;
    let added = add(&store, &entry(1)).await;
    let approved = approve(&store, &added).await;
    let late = Entry { text: "Too late.".to_owned(), ..added.entry.clone() };
    let late = store.change_knowledge(&late, added.revision, Deed::Edited, Some("cyd"), None).await;
    assert!(
        matches!(late, Err(Error::Conflict(Conflict::KnowledgeChanged { entry })) if entry == id(1)),
        "{late:?}"
    );
    assert_eq!(store.knowledge(id(1)).await.expect("there"), approved);
    assert_eq!(store.knowledge_changes(id(1)).await.expect("a history").len(), 2);

    // Of two who have seen the same, one is first.
    let edit = |text: &str| Entry { text: text.to_owned(), ..approved.entry.clone() };
    let (one, other) = (edit("One."), edit("Other."));
    let (one, other) = tokio::join!(
        store.change_knowledge(&one, approved.revision, Deed::Edited, Some("ann"), None),
        store.change_knowledge(&other, approved.revision, Deed::Edited, Some("bob"), None),
    );
    assert_eq!(u8::from(one.is_ok()) + u8::from(other.is_ok()), 1, "{one:?} {other:?}");
    assert_eq!(store.knowledge_changes(id(1)).await.expect("a history").len(), 3);
}

#[tokio::test]
async fn what_is_not_there_is_not_found_and_not_changed() {
    let (_database, store) = fresh().await;
    let absent = store.knowledge(id(1)).await;
    assert!(matches!(absent, Err(Error::NotFound { what: "entry", .. })), "{absent:?}");
    let absent = store.change_knowledge(&entry(1), 1, Deed::Edited, Some("ann"), None).await;
    assert!(matches!(absent, Err(Error::NotFound { what: "entry", .. })), "{absent:?}");
    assert_eq!(store.knowledge_changes(id(1)).await.expect("no history"), []);
    assert_eq!(ids(&store, KnowledgeFilter::default()).await, []);
}

#[tokio::test]
async fn an_entry_is_added_once() {
    let (_database, store) = fresh().await;
    add(&store, &entry(1)).await;
    let again = store.add_knowledge(&entry(1), Deed::Added, Some("ann"), None).await;
    assert!(again.is_err());
    assert_eq!(store.knowledge_changes(id(1)).await.expect("a history").len(), 1);
}

#[tokio::test]
async fn a_filter_lets_through_what_reaches_a_project() {
    let (_database, store) = fresh().await;
    let here = add(&store, &entry(1)).await;
    approve(&store, &here).await;
    add(&store, &Entry { scope: Scope::Organisation, kind: Kind::Prohibition, ..entry(2) }).await;
    add(&store, &Entry { scope: Scope::Project(ELSEWHERE), ..entry(3) }).await;
    let all = KnowledgeFilter::default;
    assert_eq!(ids(&store, all()).await, [id(1), id(2), id(3)]);
    let project = Some(PROJECT);
    assert_eq!(ids(&store, KnowledgeFilter { project, ..all() }).await, [id(1), id(2)]);
    let kind = Some(Kind::Prohibition);
    assert_eq!(ids(&store, KnowledgeFilter { kind, ..all() }).await, [id(2)]);
    let status = Some(Status::Pending);
    assert_eq!(ids(&store, KnowledgeFilter { status, ..all() }).await, [id(2), id(3)]);
    assert_eq!(ids(&store, KnowledgeFilter { project, kind, status }).await, [id(2)]);
}

#[tokio::test]
async fn a_library_reads_again_when_something_that_reaches_its_project_changed() {
    let (_database, store) = fresh().await;
    let library = Library::new(&store);
    let none = library.of(PROJECT).await.expect("an index");
    let known = add(&store, &entry(1)).await;
    let one = library.of(PROJECT).await.expect("an index");
    assert!(!std::sync::Arc::ptr_eq(&none, &one));
    assert_eq!(one.entry(id(1)), Some(&entry(1)));

    add(&store, &Entry { scope: Scope::Project(ELSEWHERE), ..entry(2) }).await;
    let same = library.clone().of(PROJECT).await.expect("an index");
    assert!(std::sync::Arc::ptr_eq(&one, &same), "what happens elsewhere costs nothing here");

    approve(&store, &known).await;
    let approved = library.of(PROJECT).await.expect("an index");
    assert_eq!(approved.entry(id(1)).map(|it| it.status), Some(Status::Approved));
    add(&store, &Entry { scope: Scope::Organisation, ..entry(3) }).await;
    let everywhere = library.of(PROJECT).await.expect("an index");
    assert!(everywhere.entry(id(3)).is_some() && everywhere.entry(id(2)).is_none());
}

fn matched(number: u128, relevance: u8) -> Match {
    let reasons = vec![MatchReason::Keyword("cache".to_owned())];
    Match { entry: id(number), reasons, relevance }
}

fn hash(number: u8) -> PlanHash {
    PlanHash::of(&[number])
}

#[tokio::test]
async fn what_matched_a_plan_is_kept_with_why_and_whether_agents_were_told() {
    let (_database, store) = fresh().await;
    let task = TaskId(Uuid::from_u128(5));
    let found = Findings {
        blockers: vec![matched(1, 100)],
        warnings: vec![matched(2, 100)],
        recommendations: vec![matched(3, 80), matched(4, 90)],
        conventions: Vec::new(),
        learnings: vec![matched(5, 70)],
    };
    let of = (task, PROJECT);
    store.keep_matches(of, hash(1), &found, &[id(1), id(4)]).await.expect("kept");
    let kept = store.matches(task, hash(1)).await.expect("matches");
    let told: Vec<_> = kept.iter().map(|it| (it.role, it.matched.entry, it.shown)).collect();
    let expected = [
        (MatchRole::Blocker, id(1), true),
        (MatchRole::Warning, id(2), false),
        (MatchRole::Recommendation, id(4), true),
        (MatchRole::Recommendation, id(3), false),
        (MatchRole::Learning, id(5), false),
    ];
    assert_eq!(told, expected);
    assert_eq!(kept[2].matched, matched(4, 90));

    // A check that is made again says what is the case then; another plan is another matter.
    let fewer = Findings { learnings: vec![matched(5, 75)], ..Findings::default() };
    store.keep_matches(of, hash(1), &fewer, &[]).await.expect("kept");
    store.keep_matches(of, hash(2), &Findings::default(), &[]).await.expect("kept");
    let kept = store.matches(task, hash(1)).await.expect("matches");
    assert_eq!(kept.iter().map(|it| it.matched.clone()).collect::<Vec<_>>(), [matched(5, 75)]);
    assert_eq!(store.matches(task, hash(2)).await.expect("matches"), []);
}

#[tokio::test]
async fn an_entry_is_found_by_digits_of_its_id() {
    let (_database, store) = fresh().await;
    let ids = ["0192a000-0000-7000-8000-00001a2b3c4d", "0192b000-0000-7000-8000-0000ffff3c4d"];
    let ids = ids.map(|id| KnowledgeId(id.parse().expect("an id")));
    for id in ids {
        add(&store, &Entry { id, ..entry(1) }).await;
    }
    let like = async |digits: &str| store.knowledge_like(digits).await.expect("ids");
    assert_eq!(like("0192a0000000").await, [ids[0]]);
    assert_eq!(like("1a2b3c4d").await, [ids[0]]);
    assert_eq!(like("3c4d").await, ids);
    assert_eq!(like("1a2b").await, [ids[0]]);
    assert_eq!(like("3c4").await, []);
    let known = store.knowledge_of(&[ids[1], id(404)]).await.expect("entries");
    assert_eq!(known.iter().map(|it| it.entry.id).collect::<Vec<_>>(), [ids[1]]);
}

/// Writes a task that ends, and how it went: passed at once, after one failure, or given up.
async fn ended(store: &Store, number: u128, how: &str) -> TaskId {
    let mut tape = Tape::new(number, quick());
    if how == "cancelled" {
        assert!(tape.ask(Asked::Cancel { reason: reason() }));
        while tape.it().state != State::Cancelled {
            assert!(tape.well() || tape.done(Outcome::Interrupted), "{:?}", tape.it().state);
        }
    } else {
        if how == "late" {
            tape = tape.until(State::Testing);
            assert!(tape.done(red(1)));
        }
        tape = tape.until(State::Completed);
    }
    store.receive(&tape.task, &tape.steps[0].1, &tape.rules).await.expect("received");
    store.record(&tape.records(), &tape.rules).await.expect("recorded");
    tape.task.id
}

/// Lets an agent of a task be told an entry, or only notes that it matched.
async fn tell(store: &Store, task: TaskId, number: u128, told: bool) {
    let found = Findings { recommendations: vec![matched(number, 80)], ..Findings::default() };
    let told: &[KnowledgeId] = if told { &[id(number)] } else { &[] };
    store.keep_matches((task, PROJECT), hash(1), &found, told).await.expect("kept");
}

/// An entry that counts since before every task of these tests, whose clock is their own.
async fn in_force(store: &Store, database: &Database, number: u128) -> Known {
    let known = approve(store, &add(store, &entry(number)).await).await;
    long_ago(database).await;
    known
}

/// Makes everything that was done to entries older than the tasks.
async fn long_ago(database: &Database) {
    let pool = sqlx::PgPool::connect(&database.url()).await.expect("connected");
    let older = "UPDATE knowledge_changes SET at = '2000-01-01'";
    sqlx::raw_sql(older).execute(&pool).await.expect("older");
    pool.close().await;
}

async fn followed(store: &Store, known: &Known) -> Followed {
    let all = store.followed(std::slice::from_ref(known)).await.expect("followed");
    let [followed] = all[..] else { panic!("one for one: {all:?}") };
    followed
}

#[tokio::test]
async fn an_entry_is_followed_to_the_tasks_whose_agents_were_told_and_to_the_others() {
    let (database, store) = fresh().await;
    let known = in_force(&store, &database, 1).await;
    for number in 1..=3 {
        let task = ended(&store, number, "at once").await;
        tell(&store, task, 1, true).await;
    }
    let late = ended(&store, 4, "late").await;
    tell(&store, late, 1, false).await;
    ended(&store, 5, "at once").await;
    ended(&store, 6, "cancelled").await;

    let followed = followed(&store, &known).await;
    assert_eq!((followed.tasks, followed.matched, followed.stopped), (6, 4, 0));
    assert!(followed.last_matched.is_some());
    assert_eq!(followed.with.outcomes, Outcomes { tasks: 3, first_pass: 3 });
    assert_eq!(followed.with.iterations, 3);
    // One had to mend something, one was not judged at all and says nothing.
    assert_eq!(followed.without.outcomes, Outcomes { tasks: 2, first_pass: 1 });
    assert_eq!(followed.without.iterations, 3);
    let spent = async |task: u128| {
        let id = Tape::new(task, quick()).task.id;
        store.task(id).await.expect("a task").machine.expect("a machine").spend.usd
    };
    assert_eq!(followed.with.cost, spent(1).await + spent(2).await + spent(3).await);
    assert!(followed.with.cost > Usd::ZERO);
    assert_eq!(followed.effect(), Effect::TooFew);
}

#[tokio::test]
async fn enough_tasks_tell_whether_an_entry_helps() {
    let (database, store) = fresh().await;
    let (helps, idle) =
        (in_force(&store, &database, 1).await, in_force(&store, &database, 2).await);
    for number in 1..=20_u128 {
        let told = number <= 10;
        let how = if told || number.is_multiple_of(2) { "at once" } else { "late" };
        let task = ended(&store, number, how).await;
        if told {
            tell(&store, task, 1, true).await;
        }
    }
    assert_eq!(followed(&store, &helps).await.effect(), Effect::Helps { with: 100, without: 50 });
    let idle = followed(&store, &idle).await;
    assert_eq!((idle.effect(), idle.tasks, idle.matched), (Effect::TooFew, 20, 0));
}

#[tokio::test]
async fn only_tasks_count_that_ended_where_an_entry_holds_and_since_it_does() {
    let (_database, store) = fresh().await;
    // The tasks of these tests ended long before anything was approved.
    let task = ended(&store, 1, "at once").await;
    let known = approve(&store, &add(&store, &entry(1)).await).await;
    tell(&store, task, 1, true).await;
    let late = followed(&store, &known).await;
    assert!(late.since.is_some());
    assert_eq!((late.tasks, late.matched, late.with), (0, 1, Tally::default()));

    let pending = add(&store, &entry(2)).await;
    assert_eq!(followed(&store, &pending).await, Followed::default());
    let (database, store) = fresh().await;
    ended(&store, 1, "at once").await;
    let elsewhere = Entry { scope: Scope::Project(ELSEWHERE), ..entry(3) };
    let elsewhere = approve(&store, &add(&store, &elsewhere).await).await;
    let everywhere = Entry { scope: Scope::Organisation, ..entry(4) };
    let everywhere = approve(&store, &add(&store, &everywhere).await).await;
    long_ago(&database).await;
    let all = store.followed(&[elsewhere, everywhere]).await.expect("followed");
    assert_eq!(all.iter().map(|it| it.tasks).collect::<Vec<_>>(), [0, 1]);
}

#[tokio::test]
async fn a_plan_that_was_stopped_is_counted() {
    let (_database, store) = fresh().await;
    let known = approve(&store, &add(&store, &entry(1)).await).await;
    let task = ended(&store, 1, "cancelled").await;
    let found = Findings { blockers: vec![matched(1, 100)], ..Findings::default() };
    for version in 1..=2 {
        store.keep_matches((task, PROJECT), hash(version), &found, &[]).await.expect("kept");
    }
    let followed = followed(&store, &known).await;
    assert_eq!((followed.matched, followed.stopped), (1, 1), "two plans of one task");
}

#[tokio::test]
async fn which_tasks_there_are_is_told() {
    let (_database, store) = fresh().await;
    let task = ended(&store, 1, "at once").await;
    let absent = TaskId(Uuid::from_u128(404));
    let found = store.which_tasks(&[task, absent].into()).await.expect("an answer");
    assert_eq!(found, [task].into());
}
