//! Messages to people: handed over once, taken by one, ended once.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use tamma_core::actor::Actor;
use tamma_core::task_loop::{Action, Severity, State, What};
use tamma_store::{Claimed, DeliveryEnd, NewDelivery, Store};
use tamma_testkit::postgres::Database;
use uuid::Uuid;

use crate::tape::{Tape, careful, register};

async fn fresh() -> (Database, Store) {
    let database = Database::fresh().await.expect("a database");
    let store = database.store().await.expect("a store");
    register(&store).await;
    (database, store)
}

/// A task that asks for an approval, from here on.
fn asking(number: u128) -> Tape {
    Tape::new(number, careful()).until(State::Completed)
}

async fn write(store: &Store, tape: &Tape) {
    store.receive(&tape.task, &tape.steps[0].1, &tape.rules).await.expect("received");
    store.record(&tape.records(), &tape.rules).await.expect("recorded");
}

/// What else has happened since.
async fn write_more(store: &Store, tape: &Tape, since: usize) {
    store.record(&tape.records()[since - 1..], &tape.rules).await.expect("recorded");
}

#[expect(clippy::disallowed_methods, reason = "a test that says what is due now")]
fn now() -> DateTime<Utc> {
    Utc::now()
}

#[expect(clippy::disallowed_methods, reason = "a delivery has an id of its own")]
fn to(receiver: &str, digest: bool, due_at: DateTime<Utc>) -> NewDelivery {
    NewDelivery { id: Uuid::now_v7(), receiver: receiver.to_owned(), digest, due_at }
}

/// Hands over everything that is new. Returns how many messages that were.
async fn hand_over(store: &Store, receivers: &[&str], digest: bool, due: TimeDelta) -> usize {
    let new = store.undispatched(1_000).await.expect("read");
    for message in &new {
        let all: Vec<_> = receivers.iter().map(|one| to(one, digest, now() + due)).collect();
        assert!(store.dispatch(message, &all).await.expect("handed over"));
    }
    new.len()
}

async fn take(store: &Store) -> Vec<Claimed> {
    store.claim_deliveries(60, 100, true).await.expect("taken")
}

const AT_ONCE: TimeDelta = TimeDelta::zero();

#[tokio::test]
async fn a_decision_is_one_message_for_each_receiver_whoever_hands_it_over() {
    let (database, store) = fresh().await;
    write(&store, &asking(1)).await;
    let message = store.undispatched(10).await.expect("read").remove(0);
    assert!(message.asks);
    assert_eq!(message.severity, Severity::Warning);
    let other = database.store().await.expect("another server");
    for (server, first) in [(&store, true), (&other, false)] {
        let all = [to("a", false, now()), to("b", false, now())];
        assert_eq!(server.dispatch(&message, &all).await.expect("handed over"), first);
    }
    let receivers: Vec<_> = take(&store).await.into_iter().map(|one| one.receiver).collect();
    assert_eq!(receivers, ["a", "b"]);
    assert!(store.undispatched(10).await.expect("read").is_empty());
    other.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_message_is_taken_by_one_of_many_servers() {
    let (database, store) = fresh().await;
    for number in 1..=40 {
        write(&store, &asking(number)).await;
    }
    assert_eq!(hand_over(&store, &["a"], false, AT_ONCE).await, 40);
    let mut servers = Vec::new();
    for _ in 0..4 {
        let store = database.store().await.expect("a server");
        servers.push(tokio::spawn(async move {
            let mut taken = Vec::new();
            loop {
                let some = store.claim_deliveries(60, 3, true).await.expect("taken");
                if some.is_empty() {
                    return taken;
                }
                let ids: Vec<_> = some.iter().map(|one| one.id).collect();
                store.end_deliveries(&ids, DeliveryEnd::Delivered).await.expect("ended");
                taken.extend(ids);
            }
        }));
    }
    let mut all = Vec::new();
    for server in servers {
        all.extend(server.await.expect("it ends"));
    }
    assert_eq!(all.len(), 40);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 40);
}

#[tokio::test]
async fn what_a_dead_server_had_taken_is_taken_again_with_its_id() {
    let (_database, store) = fresh().await;
    write(&store, &asking(1)).await;
    hand_over(&store, &["a"], false, AT_ONCE).await;
    let first = store.claim_deliveries(0, 10, true).await.expect("taken");
    let again = take(&store).await;
    assert_eq!((again[0].id, again[0].attempt), (first[0].id, 2));
    assert!(take(&store).await.is_empty(), "it is somebody's");
    let next = store.next_delivery(true).await.expect("read").expect("one waits");
    assert!(next > now() + TimeDelta::seconds(30), "whoever waits, waits until the claim is over");
}

#[tokio::test]
async fn every_attempt_is_kept_and_what_was_not_tried_is_none() {
    let (_database, store) = fresh().await;
    write(&store, &asking(1)).await;
    hand_over(&store, &["a"], false, AT_ONCE).await;
    let id = take(&store).await[0].id;
    store.put_off_deliveries(&[id], "busy \0", now()).await.expect("put off");
    assert_eq!(take(&store).await[0].attempt, 2);
    // Taken and given back, since its receiver was found to be away.
    store.release_deliveries(&[id], None).await.expect("released");
    assert_eq!(take(&store).await[0].attempt, 2);
    store.end_deliveries(&[id], DeliveryEnd::Delivered).await.expect("ended");
    // What has ended stays as it is.
    store.put_off_deliveries(&[id], "late", now()).await.expect("nothing happens");
    store.end_deliveries(&[id], DeliveryEnd::GivenUp).await.expect("nothing happens");
    let found = store.deliveries(None, 10).await.expect("read").remove(0);
    assert_eq!(found.ended.map(|(end, _)| end), Some(DeliveryEnd::Delivered));
    assert_eq!((found.attempts, found.error), (2, None));
    let attempts = store.delivery_attempts(id).await.expect("read");
    let attempts: Vec<_> = attempts.into_iter().map(|it| (it.number, it.error)).collect();
    assert_eq!(attempts, [(1, Some("busy ".to_owned())), (2, None)]);
}

/// Time passes until people are reminded.
fn reminded(tape: &mut Tape) {
    let before = tape.steps.len();
    while tape.steps.len() == before
        || tape.steps.last().is_some_and(|(_, it, _)| it.commands.is_empty())
    {
        tape.now += TimeDelta::hours(6);
        assert!(tape.feed(Actor::Tamma, What::Tick), "{:?}", tape.it());
    }
}

#[tokio::test]
async fn reminders_come_until_somebody_has_seen_it() {
    let (_database, store) = fresh().await;
    let mut tape = asking(1);
    write(&store, &tape).await;
    hand_over(&store, &["a"], false, AT_ONCE).await;
    let first = take(&store).await.remove(0);
    // Who has not got the first one yet needs no second one.
    let steps = tape.steps.len();
    reminded(&mut tape);
    write_more(&store, &tape, steps).await;
    assert_eq!(hand_over(&store, &["a"], false, AT_ONCE).await, 1);
    store.end_deliveries(&[first.id], DeliveryEnd::Delivered).await.expect("ended");
    assert!(take(&store).await.is_empty());
    // Who has is reminded.
    let steps = tape.steps.len();
    reminded(&mut tape);
    write_more(&store, &tape, steps).await;
    hand_over(&store, &["a"], false, AT_ONCE).await;
    let second = store.claim_deliveries(0, 10, true).await.expect("taken").remove(0);
    assert_eq!((second.reminder, second.is_settled), (2, false));
    assert_ne!(second.id, first.id);
    // Once it was seen, the reminder that still waits is of no use.
    let steps = tape.steps.len();
    assert!(tape.ask(Action::Acknowledge));
    write_more(&store, &tape, steps).await;
    let third = take(&store).await.remove(0);
    assert_eq!((third.id, third.is_settled), (second.id, true));
}

#[tokio::test]
async fn a_reminder_that_is_urgent_does_not_wait_for_quiet_hours_to_end() {
    let (_database, store) = fresh().await;
    let mut tape = asking(1);
    write(&store, &tape).await;
    hand_over(&store, &["a"], false, TimeDelta::hours(8)).await;
    assert!(take(&store).await.is_empty(), "it is held back");
    let steps = tape.steps.len();
    reminded(&mut tape);
    write_more(&store, &tape, steps).await;
    hand_over(&store, &["a"], false, AT_ONCE).await;
    let taken = take(&store).await;
    assert_eq!(taken.len(), 1, "the first one goes now, and no second one");
    assert_eq!(taken[0].reminder, 0);
    assert_eq!(store.deliveries(None, 10).await.expect("read").len(), 1);
}

#[tokio::test]
async fn messages_that_went_out_together_stay_together() {
    let (_database, store) = fresh().await;
    for number in 1..=5 {
        write(&store, &asking(number)).await;
    }
    hand_over(&store, &["a"], true, AT_ONCE).await;
    let ids: Vec<_> = take(&store).await.into_iter().map(|one| one.id).collect();
    store.tie_deliveries(ids[1], &ids[1..4]).await.expect("tied");
    store.release_deliveries(&ids, None).await.expect("released");
    // However few are wanted, and whoever asks.
    let mut sizes = Vec::new();
    for _ in 0..4 {
        let taken = store.claim_deliveries(60, 1, true).await.expect("taken");
        let parcels: BTreeSet<_> = taken.iter().map(|one| one.parcel).collect();
        assert!(parcels.len() <= 1);
        sizes.push(taken.len());
    }
    assert_eq!(sizes, [1, 3, 1, 0]);
}

#[tokio::test]
async fn what_is_for_the_terminal_is_left_to_whoever_has_one() {
    let (_database, store) = fresh().await;
    write(&store, &asking(1)).await;
    hand_over(&store, &["terminal"], false, AT_ONCE).await;
    assert!(store.claim_deliveries(60, 10, false).await.expect("taken").is_empty());
    assert_eq!(store.next_delivery(false).await.expect("read"), None);
    assert_eq!(take(&store).await.len(), 1);
}
