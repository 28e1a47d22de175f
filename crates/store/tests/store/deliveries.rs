//! Alert deliveries: dispatched once, claimed by one server, ended once.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use tamma_core::actor::Actor;
use tamma_core::cause::AlertCause;
use tamma_core::task_loop::{Action, AlertSeverity, EventKind, State};
use tamma_store::{ClaimedDelivery, DeliveryEnd, NewDelivery, Store};
use tamma_testkit::postgres::TestDatabase;
use uuid::Uuid;

use crate::recorded_task::{PROJECT, RecordedTask, careful, register};

async fn fresh() -> (TestDatabase, Store) {
    let database = TestDatabase::fresh().await.expect("test database");
    let store = database.store().await.expect("connection");
    register(&store).await;
    (database, store)
}

/// Returns a task that asks for an approval.
fn asking(number: u128) -> RecordedTask {
    RecordedTask::new(number, careful()).until(State::Completed)
}

async fn write(store: &Store, recorded: &RecordedTask) {
    store
        .insert_task(&recorded.task, &recorded.steps[0].1, &recorded.rules)
        .await
        .expect("received");
    store.save_steps(&recorded.records(), &recorded.rules).await.expect("recorded");
}

/// Writes the steps after the first `since`.
async fn write_more(store: &Store, recorded: &RecordedTask, since: usize) {
    store.save_steps(&recorded.records()[since - 1..], &recorded.rules).await.expect("recorded");
}

#[expect(clippy::disallowed_methods, reason = "the tests compare with due times in the database")]
fn now() -> DateTime<Utc> {
    Utc::now()
}

#[expect(clippy::disallowed_methods, reason = "every delivery needs an ID")]
fn to(receiver: &str, digest: bool, due_at: DateTime<Utc>) -> NewDelivery {
    NewDelivery { id: Uuid::now_v7(), receiver: receiver.to_owned(), digest, due_at }
}

/// Dispatches all new messages and returns their number.
async fn dispatch_all(store: &Store, receivers: &[&str], digest: bool, due: TimeDelta) -> usize {
    let new = store.outbox(1_000).await.expect("read");
    for message in &new {
        let all: Vec<_> = receivers.iter().map(|one| to(one, digest, now() + due)).collect();
        assert!(store.dispatch(message, &all).await.expect("dispatched"));
    }
    new.len()
}

async fn claim(store: &Store) -> Vec<ClaimedDelivery> {
    store.claim_deliveries(60, 100, true).await.expect("claimed").deliveries
}

const AT_ONCE: TimeDelta = TimeDelta::zero();

#[tokio::test]
async fn each_receiver_gets_one_message_per_question() {
    let (database, store) = fresh().await;
    write(&store, &asking(1)).await;
    let message = store.outbox(10).await.expect("read").remove(0);
    assert!(message.needs_decision);
    assert_eq!(message.severity, AlertSeverity::Warning);
    let other = database.store().await.expect("dispatched by another server");
    for (server, first) in [(&store, true), (&other, false)] {
        let all = [to("a", false, now()), to("b", false, now())];
        assert_eq!(server.dispatch(&message, &all).await.expect("dispatched"), first);
    }
    let receivers: Vec<_> = claim(&store).await.into_iter().map(|one| one.receiver).collect();
    assert_eq!(receivers, ["a", "b"]);
    assert!(store.outbox(10).await.expect("read").is_empty());
    other.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_delivery_is_claimed_by_one_of_many_servers() {
    let (database, store) = fresh().await;
    for number in 1..=40 {
        write(&store, &asking(number)).await;
    }
    assert_eq!(dispatch_all(&store, &["a"], false, AT_ONCE).await, 40);
    let mut servers = Vec::new();
    for _ in 0..4 {
        let store = database.store().await.expect("server task");
        servers.push(tokio::spawn(async move {
            let mut claimed = Vec::new();
            loop {
                let some = store.claim_deliveries(60, 3, true).await.expect("claimed").deliveries;
                if some.is_empty() {
                    return claimed;
                }
                let ids: Vec<_> = some.iter().map(|one| one.id).collect();
                store.end_deliveries(&ids, DeliveryEnd::Delivered).await.expect("ended");
                claimed.extend(ids);
            }
        }));
    }
    let mut all = Vec::new();
    for server in servers {
        all.extend(server.await.expect("task ended"));
    }
    assert_eq!(all.len(), 40);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 40);
}

#[tokio::test]
async fn claim_of_a_dead_server_expires_and_keeps_the_delivery_id() {
    let (_database, store) = fresh().await;
    write(&store, &asking(1)).await;
    dispatch_all(&store, &["a"], false, AT_ONCE).await;
    let first = store.claim_deliveries(0, 10, true).await.expect("claimed").deliveries;
    let second = claim(&store).await;
    assert_eq!((second[0].id, second[0].attempt), (first[0].id, 2));
    assert!(claim(&store).await.is_empty(), "another server has claimed it");
    let next = store.next_delivery_at(true).await.expect("read").expect("next delivery");
    assert!(
        next > now() + TimeDelta::seconds(30),
        "the next delivery is due when the claim expires"
    );
}

#[tokio::test]
async fn alert_of_a_newer_version_does_not_delay_others() {
    let (database, store) = fresh().await;
    write(&store, &asking(1)).await;
    write(&store, &asking(2)).await;
    dispatch_all(&store, &["a"], false, AT_ONCE).await;
    let pool = sqlx::PgPool::connect(&database.url()).await.expect("connected");
    let sql = "UPDATE alerts SET cause = '{\"tomorrow\": {}}' WHERE task = $1";
    let newer = asking(1).task.id.0;
    sqlx::query(sql).bind(newer).execute(&pool).await.expect("changed");
    let claimed = store.claim_deliveries(60, 100, true).await.expect("claimed");
    let tasks: Vec<_> = claimed.deliveries.iter().map(|one| one.task).collect();
    assert_eq!(tasks, [asking(2).task.id]);
    assert_eq!(claimed.unreadable.len(), 1);
    let next = store.next_delivery_at(true).await.expect("read");
    assert!(next.is_some_and(|at| at > now()), "it is tried again when the claim expires");
}

#[tokio::test]
async fn attempts_are_recorded_and_released_claims_are_not() {
    let (_database, store) = fresh().await;
    write(&store, &asking(1)).await;
    dispatch_all(&store, &["a"], false, AT_ONCE).await;
    let id = claim(&store).await[0].id;
    store.reschedule_deliveries(&[id], "busy \0", now()).await.expect("rescheduled");
    assert_eq!(claim(&store).await[0].attempt, 2);
    // Claimed and returned, because its receiver was found to be unreachable.
    store.release_deliveries(&[id], None).await.expect("released");
    assert_eq!(claim(&store).await[0].attempt, 2);
    store.end_deliveries(&[id], DeliveryEnd::Delivered).await.expect("ended");
    // An ended delivery does not change any more.
    store.reschedule_deliveries(&[id], "late", now()).await.expect("no effect");
    store.end_deliveries(&[id], DeliveryEnd::GivenUp).await.expect("no effect");
    let found = store.deliveries(None, 10).await.expect("read").remove(0);
    assert_eq!(found.ended.map(|(end, _)| end), Some(DeliveryEnd::Delivered));
    assert_eq!((found.attempts, found.error), (2, None));
    let attempts = store.delivery_attempts(id).await.expect("read");
    let attempts: Vec<_> = attempts.into_iter().map(|it| (it.number, it.error)).collect();
    assert_eq!(attempts, [(1, Some("busy ".to_owned())), (2, None)]);
}

#[tokio::test]
async fn alert_that_asks_nothing_is_settled_by_its_last_delivery() {
    let (_database, store) = fresh().await;
    let recorded = asking(1);
    write(&store, &recorded).await;
    let task = recorded.task.id;
    let cause = AlertCause::CostWarning;
    store.send_alert(task, PROJECT, cause, AlertSeverity::Warning).await.expect("sent");
    let settled = async |cause: AlertCause| {
        let alerts = store.alerts(task).await.expect("alerts");
        alerts.iter().find(|alert| alert.cause == cause).expect("alert").settled_at.is_some()
    };
    assert_eq!(dispatch_all(&store, &["a", "b"], false, AT_ONCE).await, 2);
    let (informing, questions): (Vec<_>, Vec<_>) =
        claim(&store).await.into_iter().partition(|one| one.cause == cause);
    let [first, second] = &informing[..] else { panic!("{informing:?}") };
    store.end_deliveries(&[first.id], DeliveryEnd::Delivered).await.expect("ended");
    assert!(!settled(cause).await, "the other receiver has not got it");
    store.end_deliveries(&[second.id], DeliveryEnd::GivenUp).await.expect("ended");
    assert!(settled(cause).await);
    // A question is settled by its answer.
    let question = questions[0].cause;
    let ids: Vec<_> = questions.iter().map(|one| one.id).collect();
    store.end_deliveries(&ids, DeliveryEnd::Delivered).await.expect("ended");
    assert!(!settled(question).await);
}

#[tokio::test]
async fn alert_that_nobody_got_stays_open() {
    let (_database, store) = fresh().await;
    let recorded = RecordedTask::new(1, careful());
    write(&store, &recorded).await;
    let (task, cause) = (recorded.task.id, AlertCause::CostWarning);
    store.send_alert(task, PROJECT, cause, AlertSeverity::Warning).await.expect("sent");
    dispatch_all(&store, &["a"], false, AT_ONCE).await;
    let id = claim(&store).await[0].id;
    store.end_deliveries(&[id], DeliveryEnd::GivenUp).await.expect("ended");
    let alerts = store.alerts(task).await.expect("alerts");
    assert_eq!(alerts.iter().map(|alert| alert.settled_at).collect::<Vec<_>>(), [None]);
}

/// Advances time until the reminder is due.
fn reminded(recorded: &mut RecordedTask) {
    let before = recorded.steps.len();
    while recorded.steps.len() == before
        || recorded.steps.last().is_some_and(|(_, it, _)| it.commands.is_empty())
    {
        recorded.now += TimeDelta::hours(6);
        assert!(recorded.apply(Actor::Tamma, EventKind::Tick), "{:?}", recorded.it());
    }
}

#[tokio::test]
async fn reminders_are_sent_until_the_question_is_acknowledged() {
    let (_database, store) = fresh().await;
    let mut recorded = asking(1);
    write(&store, &recorded).await;
    dispatch_all(&store, &["a"], false, AT_ONCE).await;
    let first = claim(&store).await.remove(0);
    // A receiver that has not got the first message yet needs no reminder.
    let steps = recorded.steps.len();
    reminded(&mut recorded);
    write_more(&store, &recorded, steps).await;
    assert_eq!(dispatch_all(&store, &["a"], false, AT_ONCE).await, 1);
    store.end_deliveries(&[first.id], DeliveryEnd::Delivered).await.expect("ended");
    assert!(claim(&store).await.is_empty());
    // A receiver that got the first message is reminded.
    let steps = recorded.steps.len();
    reminded(&mut recorded);
    write_more(&store, &recorded, steps).await;
    dispatch_all(&store, &["a"], false, AT_ONCE).await;
    let second = store.claim_deliveries(0, 10, true).await.expect("claimed").deliveries.remove(0);
    assert_eq!((second.reminder, second.is_settled), (2, false));
    assert_ne!(second.id, first.id);
    // Once the question is acknowledged, the pending reminder is obsolete.
    let steps = recorded.steps.len();
    assert!(recorded.ask(Action::Acknowledge));
    write_more(&store, &recorded, steps).await;
    let third = claim(&store).await.remove(0);
    assert_eq!((third.id, third.is_settled), (second.id, true));
}

#[tokio::test]
async fn critical_reminder_does_not_wait_for_quiet_hours_to_end() {
    let (_database, store) = fresh().await;
    let mut recorded = asking(1);
    write(&store, &recorded).await;
    dispatch_all(&store, &["a"], false, TimeDelta::hours(8)).await;
    assert!(claim(&store).await.is_empty(), "delivery is not due yet");
    let steps = recorded.steps.len();
    reminded(&mut recorded);
    write_more(&store, &recorded, steps).await;
    dispatch_all(&store, &["a"], false, AT_ONCE).await;
    let claimed = claim(&store).await;
    assert_eq!(claimed.len(), 1, "the first message is sent now, without a second one");
    assert_eq!(claimed[0].reminder, 0);
    assert_eq!(store.deliveries(None, 10).await.expect("read").len(), 1);
}

#[tokio::test]
async fn deliveries_of_a_batch_are_claimed_together() {
    let (_database, store) = fresh().await;
    for number in 1..=5 {
        write(&store, &asking(number)).await;
    }
    dispatch_all(&store, &["a"], true, AT_ONCE).await;
    let ids: Vec<_> = claim(&store).await.into_iter().map(|one| one.id).collect();
    store.batch_deliveries(ids[1], &ids[1..4]).await.expect("tied");
    store.release_deliveries(&ids, None).await.expect("released");
    // A batch stays complete for small limits and for every caller.
    let mut sizes = Vec::new();
    for _ in 0..4 {
        let claimed = store.claim_deliveries(60, 1, true).await.expect("claimed").deliveries;
        let batches: BTreeSet<_> = claimed.iter().map(|one| one.batch).collect();
        assert!(batches.len() <= 1);
        sizes.push(claimed.len());
    }
    assert_eq!(sizes, [1, 3, 1, 0]);
}

#[tokio::test]
async fn terminal_deliveries_are_left_to_servers_with_a_terminal() {
    let (_database, store) = fresh().await;
    write(&store, &asking(1)).await;
    dispatch_all(&store, &["terminal"], false, AT_ONCE).await;
    assert!(store.claim_deliveries(60, 10, false).await.expect("claimed").deliveries.is_empty());
    assert_eq!(store.next_delivery_at(false).await.expect("read"), None);
    assert_eq!(claim(&store).await.len(), 1);
}
