//! Pull requests, issues, merge queues and aftercare.

use chrono::{DateTime, TimeDelta};
use tamma_core::access::ProjectScope;
use tamma_core::aftercare::AftercareKind;
use tamma_core::forge::{Mergeability, PullRequestFacts, PullRequestStatus};
use tamma_core::ids::{CommitId, ProjectId, TaskId};
use tamma_core::task::Priority;
use tamma_core::task_loop::Timestamp;
use tamma_store::{
    AftercareFinding, IssueTask, MergeQueueId, NewPullRequest, NewQueueEntry, PullRequestFilter,
    QueueEntryFilter, QueueEntryState, QueueSettlement, RetentionCutoffs, Store, StoredPullRequest,
    StoredStatus,
};
use tamma_testkit::postgres::TestDatabase;
use uuid::Uuid;

use crate::recorded_task::{PROJECT, register};

const OTHER: ProjectId = ProjectId(Uuid::from_u128(3));

async fn fresh() -> (TestDatabase, Store) {
    let database = TestDatabase::fresh().await.expect("test database");
    let store = database.store().await.expect("connection");
    register(&store).await;
    (database, store)
}

fn task(number: u128) -> TaskId {
    TaskId(Uuid::from_u128(number))
}

fn commit(digit: char) -> CommitId {
    digit.to_string().repeat(40).parse().expect("commit")
}

fn late() -> Timestamp {
    DateTime::UNIX_EPOCH + TimeDelta::days(100_000)
}

fn opened(number: u64) -> NewPullRequest {
    NewPullRequest {
        task: task(number.into()),
        project: PROJECT,
        forge: "hub".to_owned(),
        repository: "Team/App".to_owned(),
        number,
        url: format!("https://hub.example/Team/App/pull/{number}"),
        branch: format!("tamma/{number}"),
        base_branch: "main".to_owned(),
    }
}

fn facts(number: u64, status: PullRequestStatus) -> PullRequestFacts {
    PullRequestFacts {
        number,
        status,
        draft: false,
        head: commit('a'),
        base: commit('b'),
        mergeability: Mergeability::Clean,
        checks: Vec::new(),
        reviews: Vec::new(),
        threads: Vec::new(),
        queued: false,
        incomplete: false,
    }
}

fn merged() -> PullRequestStatus {
    PullRequestStatus::Merged { commit: commit('c'), by: "ann".to_owned() }
}

/// Pull requests that are observed if nothing was observed for a long time, or only those with hints.
async fn to_observe(store: &Store, before: Timestamp) -> Vec<StoredPullRequest> {
    store.pull_requests_to_observe("hub", "team/app", before).await.expect("list")
}

#[tokio::test]
async fn a_hint_that_arrives_during_an_observation_is_not_lost() {
    let (_database, store) = fresh().await;
    store.save_pull_request(&opened(1)).await.expect("saved");
    let past = DateTime::UNIX_EPOCH;
    let observed = to_observe(&store, past).await.remove(0);
    assert!(observed.is_dirty);
    assert!(store.mark_pull_request_dirty("hub", "TEAM/app", 1).await.expect("marked"));
    assert!(!store.mark_pull_request_dirty("hub", "team/app", 2).await.expect("unknown"));
    let hash = store
        .record_observation(&observed, &facts(1, PullRequestStatus::Open), Some("v1"), true)
        .await
        .expect("recorded")
        .expect("new facts");
    let again = to_observe(&store, past).await.remove(0);
    assert!(again.is_dirty, "the hint came after the observation began");
    assert_eq!(again.cursor.as_deref(), Some("v1"));
    assert!(again.read_at.is_some());
    store.record_unchanged(&[again]).await.expect("recorded");
    assert_eq!(to_observe(&store, past).await, []);
    assert_eq!(to_observe(&store, late()).await.len(), 1, "it is due again later");

    // Facts are delivered until the workflow has them.
    let waiting = async || store.undelivered_pull_requests("hub").await.expect("list").len();
    assert_eq!(waiting().await, 1);
    store.set_delivered(task(1), &hash).await.expect("delivered");
    assert_eq!(waiting().await, 0);
    let observed = store.pull_request(task(1)).await.expect("read").expect("there");
    let same = facts(1, PullRequestStatus::Open);
    let same = store.record_observation(&observed, &same, None, false).await.expect("recorded");
    assert_eq!(same, None, "the same facts are not delivered again");
}

#[tokio::test]
async fn a_merge_is_final_and_the_same_pull_request_keeps_its_facts() {
    let (_database, store) = fresh().await;
    store.save_pull_request(&opened(1)).await.expect("saved");
    let observed = to_observe(&store, late()).await.remove(0);
    let record = async |status| {
        let facts = facts(1, status);
        store.record_observation(&observed, &facts, None, true).await.expect("recorded")
    };
    assert!(record(merged()).await.is_some());
    assert_eq!(record(PullRequestStatus::Open).await, None, "an older answer came late");
    store.save_pull_request(&opened(1)).await.expect("saved again");
    let stored = store.pull_request(task(1)).await.expect("read").expect("there");
    assert_eq!((stored.status, stored.merged_commit), (StoredStatus::Merged, Some(commit('c'))));
    assert_eq!(to_observe(&store, late()).await, []);

    // A task that opens another one starts anew.
    let other = NewPullRequest { task: task(1), ..opened(2) };
    store.save_pull_request(&other).await.expect("replaced");
    let stored = store.pull_request(task(1)).await.expect("read").expect("there");
    assert_eq!((stored.number, stored.status, stored.facts), (2, StoredStatus::Open, None));
}

#[tokio::test]
async fn a_closed_pull_request_is_observed_less_often_and_can_be_reopened() {
    let (_database, store) = fresh().await;
    store.save_pull_request(&opened(1)).await.expect("saved");
    let observed = to_observe(&store, late()).await.remove(0);
    let closed = facts(1, PullRequestStatus::Closed { by: "ann".to_owned() });
    store.record_observation(&observed, &closed, None, true).await.expect("recorded");
    let seen = store.pull_request(task(1)).await.expect("read").expect("there").observed_at;
    let seen = seen.expect("observed");
    assert_eq!(to_observe(&store, seen + TimeDelta::minutes(4)).await, []);
    assert_eq!(to_observe(&store, seen + TimeDelta::minutes(6)).await.len(), 1);
    // A webhook says that it was reopened.
    store.mark_pull_request_dirty("hub", "team/app", 1).await.expect("marked");
    let hinted = to_observe(&store, DateTime::UNIX_EPOCH).await.remove(0);
    let open = facts(1, PullRequestStatus::Open);
    let news = store.record_observation(&hinted, &open, None, true).await.expect("recorded");
    assert!(news.is_some());
    let stored = store.pull_request(task(1)).await.expect("read").expect("there");
    assert_eq!(stored.status, StoredStatus::Open);
}

#[tokio::test]
async fn hints_reach_every_server() {
    let (database, store) = fresh().await;
    store.save_pull_request(&opened(1)).await.expect("saved");
    let listening = database.store().await.expect("connection");
    let mut hints = listening.forge_hints().await.expect("subscribed");
    store.mark_pull_request_dirty("hub", "team/app", 1).await.expect("marked");
    assert_eq!(hints.next().await.expect("hint").as_deref(), Some("hub"));
    store.mark_intake_dirty("lab", "team/app").await.expect("marked");
    assert_eq!(hints.next().await.expect("hint").as_deref(), Some("lab"));
}

#[tokio::test]
async fn webhooks_are_accepted_once() {
    let (_database, store) = fresh().await;
    let accept = async |forge: &str, delivery: &str| {
        store.accept_webhook(forge, delivery, "push").await.expect("stored")
    };
    let is_accepted = async || store.is_webhook_accepted("hub", "1").await.expect("read");
    assert!(!is_accepted().await);
    assert!(accept("hub", "1").await);
    assert!(is_accepted().await);
    assert!(!accept("hub", "1").await);
    assert!(accept("hub", "2").await && accept("lab", "1").await);
    let cutoffs = RetentionCutoffs { forge_records: Some(late()), ..RetentionCutoffs::default() };
    assert_eq!(store.apply_retention(&cutoffs).await.expect("removed").webhooks, 3);
}

#[tokio::test]
async fn an_issue_becomes_one_task() {
    let (_database, store) = fresh().await;
    let issue = |number: u128, repository: &str| IssueTask {
        forge: "hub".to_owned(),
        repository: repository.to_owned(),
        number: 7,
        task: task(number),
        project: PROJECT,
        url: "https://hub.example/Team/App/issues/7".to_owned(),
        revision: "r1".to_owned(),
        last_comment: None,
    };
    assert!(store.claim_issue(&issue(1, "Team/App")).await.expect("claimed"));
    assert!(!store.claim_issue(&issue(1, "Team/App")).await.expect("claimed before"));
    assert!(!store.claim_issue(&issue(2, "team/app")).await.expect("claimed before"));
    let changed = IssueTask {
        revision: "r2".to_owned(),
        last_comment: Some("9".to_owned()),
        ..issue(1, "Team/App")
    };
    store.update_issue_task(&changed).await.expect("updated");
    let found = store.issue_task("hub", "team/app", 7).await.expect("read");
    assert_eq!(found, Some(changed.clone()));
    assert_eq!(store.issue_of_task(task(1)).await.expect("read"), Some(changed));
    assert_eq!(store.issue_of_task(task(2)).await.expect("read"), None);
}

#[tokio::test]
async fn hints_about_issues_survive_a_poll() {
    let (_database, store) = fresh().await;
    let cursor = async || store.forge_cursor("hub", "Team/App").await.expect("cursor");
    let mut first = cursor().await;
    assert!(first.is_dirty && first.intake_until.is_none());
    store.mark_intake_dirty("hub", "team/app").await.expect("marked");
    first.intake_until = Some(DateTime::UNIX_EPOCH);
    first.quota_left = Some(0.5);
    store.save_forge_cursor(&first).await.expect("saved");
    let second = cursor().await;
    assert!(second.is_dirty, "the hint came after the cursor was read");
    assert_eq!((second.intake_until, second.quota_left), (first.intake_until, Some(0.5)));
    store.save_forge_cursor(&second).await.expect("saved");
    assert!(!cursor().await.is_dirty);
}

#[tokio::test]
async fn a_merge_queue_is_ordered_and_its_entries_end_once() {
    let (_database, store) = fresh().await;
    let queue = MergeQueueId {
        forge: "hub".to_owned(),
        repository: "Team/App".to_owned(),
        branch: "main".to_owned(),
    };
    let entry = |number: u128, priority: Priority| NewQueueEntry {
        queue: queue.clone(),
        task: task(number),
        project: PROJECT,
        head: commit('a'),
        priority,
    };
    for (number, priority) in [(1, Priority::Medium), (2, Priority::Medium), (3, Priority::High)] {
        assert!(store.enqueue_merge(&entry(number, priority)).await.expect("added"));
        assert!(!store.enqueue_merge(&entry(number, priority)).await.expect("there already"));
    }
    let open = async || {
        let filter =
            QueueEntryFilter { queue: Some(queue.clone()), open: true, ..Default::default() };
        let entries = store.merge_queue_entries(&filter, 99).await.expect("list");
        entries.into_iter().map(|it| (it.task, it.state)).collect::<Vec<_>>()
    };
    let waiting = QueueEntryState::Waiting;
    assert_eq!(open().await, [(task(3), waiting), (task(1), waiting), (task(2), waiting)]);
    store.set_queue_batch(&queue, &[(task(1), commit('a'))]).await.expect("marked");
    let testing = QueueEntryState::Testing;
    assert_eq!(open().await, [(task(1), testing), (task(3), waiting), (task(2), waiting)]);

    let landed = QueueSettlement::Landed(commit('d'));
    assert!(store.settle_queue_entry(task(1), commit('a'), &landed).await.expect("settled"));
    let returned = QueueSettlement::Returned { reason: "tests fail".to_owned(), log: None };
    assert!(!store.settle_queue_entry(task(1), commit('a'), &returned).await.expect("too late"));
    assert!(store.settle_queue_entry(task(2), commit('a'), &returned).await.expect("settled"));
    assert_eq!(open().await, [(task(3), waiting)]);
    assert!(!store.enqueue_merge(&entry(1, Priority::Medium)).await.expect("landed"));
    assert!(store.enqueue_merge(&entry(2, Priority::Medium)).await.expect("once more"));
    let one = QueueEntryFilter { task: Some(task(1)), ..Default::default() };
    let entries = store.merge_queue_entries(&one, 99).await.expect("list");
    assert_eq!(entries[0].landed_commit, Some(commit('d')));

    let state = serde_json::json!({ "tip": commit('d') });
    assert!(!store.set_merge_queue_paused(&queue, Some("no")).await.expect("unknown"));
    store.save_merge_queue(&queue, PROJECT, &state).await.expect("saved");
    assert!(store.set_merge_queue_paused(&queue, Some("a release")).await.expect("paused"));
    store.save_merge_queue(&queue, PROJECT, &state).await.expect("saved");
    let stored = store.merge_queue(&queue).await.expect("read").expect("there");
    assert_eq!((stored.paused.as_deref(), stored.state), (Some("a release"), state));
}

#[tokio::test]
async fn a_limited_handle_reads_nothing_of_other_projects_in_forges() {
    let (_database, all) = fresh().await;
    all.save_pull_request(&opened(1)).await.expect("saved");
    let observed = to_observe(&all, late()).await.remove(0);
    all.record_observation(&observed, &facts(1, merged()), None, true).await.expect("recorded");
    all.watch_pull_request(task(1), 14).await.expect("watched");
    let finding = AftercareFinding {
        task: task(1),
        project: PROJECT,
        kind: AftercareKind::Revert,
        commit: commit('e'),
        detail: "reverted by ann".to_owned(),
        found_at: DateTime::UNIX_EPOCH,
    };
    assert!(all.record_aftercare(&finding).await.expect("recorded"));
    assert!(!all.record_aftercare(&finding).await.expect("recorded before"));
    let queue = MergeQueueId {
        forge: "hub".to_owned(),
        repository: "Team/App".to_owned(),
        branch: "main".to_owned(),
    };
    all.save_merge_queue(&queue, PROJECT, &1).await.expect("saved");
    let entry = NewQueueEntry {
        queue: queue.clone(),
        task: task(1),
        project: PROJECT,
        head: commit('a'),
        priority: Priority::Low,
    };
    all.enqueue_merge(&entry).await.expect("added");
    for (scope, expected) in [
        (ProjectScope::All, 1),
        (ProjectScope::Only([PROJECT].into()), 1),
        (ProjectScope::Only([OTHER].into()), 0),
        (ProjectScope::Only([].into()), 0),
    ] {
        let store = all.limited_to(&scope);
        let is = |what: &str, count: usize| assert_eq!(count, expected, "{what} with {scope:?}");
        let filter = PullRequestFilter::default();
        is("list", store.pull_requests(&filter, 9).await.expect("list").len());
        is("tasks", store.pull_requests_of(&[task(1)]).await.expect("list").len());
        is("one", usize::from(store.pull_request(task(1)).await.expect("read").is_some()));
        let past = DateTime::UNIX_EPOCH;
        is("watched", store.watched_merges(past).await.expect("list").len());
        is("findings", store.aftercare_findings(task(1)).await.expect("list").len());
        let changes = store.merged_changes(None, past).await.expect("list");
        assert!(changes.iter().all(|it| it.findings.contains(&AftercareKind::Revert)));
        is("merged", changes.len());
        is("queues", store.merge_queues().await.expect("list").len());
        is("queue", usize::from(store.merge_queue(&queue).await.expect("read").is_some()));
        let filter = QueueEntryFilter::default();
        is("entries", store.merge_queue_entries(&filter, 9).await.expect("list").len());
    }
}

#[tokio::test]
async fn a_merge_is_watched_for_some_days_with_its_progress() {
    let (_database, store) = fresh().await;
    store.save_pull_request(&opened(1)).await.expect("saved");
    store.watch_pull_request(task(1), 14).await.expect("not merged");
    let past = DateTime::UNIX_EPOCH;
    assert_eq!(store.watched_merges(past).await.expect("list"), []);
    let observed = to_observe(&store, late()).await.remove(0);
    store.record_observation(&observed, &facts(1, merged()), None, true).await.expect("recorded");
    assert_eq!(store.watched_merges(past).await.expect("list"), []);
    store.watch_pull_request(task(1), 14).await.expect("watched");
    let watched = store.watched_merges(past).await.expect("list").remove(0);
    assert_eq!((watched.merged_commit, watched.head), (commit('c'), Some(commit('a'))));
    assert_eq!((watched.traced_to, watched.base_checked), (None, false));
    // A shorter time later changes nothing.
    store.watch_pull_request(task(1), 1).await.expect("watched");
    let later = watched.merged_at + TimeDelta::days(13);
    assert_eq!(store.watched_merges(later).await.expect("list").len(), 1);
    let end = watched.merged_at + TimeDelta::days(15);
    assert_eq!(store.watched_merges(end).await.expect("list"), []);

    store.save_aftercare_progress(task(1), commit('d'), true).await.expect("saved");
    let watched = store.watched_merges(past).await.expect("list").remove(0);
    assert_eq!((watched.traced_to, watched.base_checked), (Some(commit('d')), true));
}
