//! The post: hands alerts to whoever wants them, and does not give up when somebody is away.
//!
//! Dispatch and delivery are apart. Dispatch decides for each message who gets it and when, once.
//! Delivery tries each of them until it has arrived, for days if need be, and writes down every
//! attempt. Several servers may share a store: the store lets each row be worked on by one of them.
//!
//! A server that is killed after a receiver took a message and before that was written down cannot
//! know that it did: when its claim is over, the message is sent again, with the same id and the same
//! words. A webhook's receiver tells by the id, a mail box by the message id; Slack shows it twice.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use chrono::TimeDelta;
use futures_util::StreamExt as _;
use futures_util::stream;
use tamma_connect::message::{self, Item, Message, Post, Receiver};
use tamma_core::alert::{self, Way};
use tamma_core::ids::ProjectId;
use tamma_core::rules::Right;
use tamma_core::task_loop::Severity;
use tamma_store::{Claimed, DeliveryEnd, NewDelivery, Undispatched};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::app::{App, By, Error};
use crate::clock;
use crate::shape::{Receipt, short};

/// How many messages are taken at once.
const BATCH: u32 = 100;

/// How many receivers are spoken to at the same time.
const AT_ONCE: usize = 8;

/// For how many seconds a message is claimed.
const CLAIM: u32 = 120;

/// For how long after that messages are begun to be sent. The last one is over before the claim is, so
/// that nobody else sends it too.
const SENDING: Duration = Duration::from_mins(1);
const _: () = assert!(SENDING.as_secs() + message::LONGEST.as_secs() < CLAIM as u64);

/// The longest time without a look, should a notification be lost.
const LONGEST: Duration = Duration::from_secs(15);

/// Where messages for the terminal of this process go.
pub type Terminal = mpsc::UnboundedSender<Told>;

/// A message as the terminal gets it.
pub type Told = Message;

/// Who gets messages, and how they leave.
#[derive(Clone)]
pub(crate) struct PostOffice {
    app: App,
    post: Post,
    terminal: Option<Terminal>,
    /// What links begin with.
    base: String,
}

/// Messages that go to one receiver together.
struct Parcel {
    to: Receiver,
    message: Message,
    of: Vec<Claimed>,
}

impl PostOffice {
    pub(crate) fn new(
        app: App,
        terminal: Option<Terminal>,
        base: String,
    ) -> Result<Self, message::Error> {
        let post = Post::new(&app.environment)?;
        Ok(Self { app, post, terminal, base })
    }

    /// Dispatches and delivers until it is told to stop.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut news = self.app.live.watch_all();
        loop {
            if let Err(error) = self.round().await {
                tracing::warn!(%error, "alerts wait: they are tried again");
            }
            let wait = self.until_next().await;
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
                more = news.changed() => if !more { return },
            }
        }
    }

    async fn until_next(&self) -> Duration {
        let next = self.app.store.next_delivery(self.terminal.is_some()).await.ok().flatten();
        let wait = next.and_then(|at| (at - clock::now()).to_std().ok());
        // One that is due and was not taken is somebody else's at the moment.
        wait.unwrap_or(LONGEST).clamp(Duration::from_millis(200), LONGEST)
    }

    /// Hands over what is new, and delivers what is due.
    async fn round(&self) -> Result<(), Error> {
        loop {
            let new = self.app.store.undispatched(BATCH).await?;
            for message in &new {
                self.dispatch(message).await?;
            }
            if new.len() < BATCH as usize {
                break;
            }
        }
        loop {
            let until = Instant::now() + SENDING;
            let terminal = self.terminal.is_some();
            let claimed = self.app.store.claim_deliveries(CLAIM, BATCH, terminal).await?;
            let all = claimed.len() < BATCH as usize;
            self.deliver(claimed, until).await?;
            if all {
                return Ok(());
            }
        }
    }

    /// Decides who gets a message, and when.
    async fn dispatch(&self, message: &Undispatched) -> Result<(), Error> {
        let project = self.app.project_by_id(message.project).await?;
        let rules = match self.app.alerts_of(&project.repository).await {
            Ok(rules) => rules,
            // Whoever can see the pages can still see it there.
            Err(error) => {
                tracing::warn!(project = project.name, %error, "nobody is told: the rules are broken");
                self.app.store.dispatch(message, &[]).await?;
                return Ok(());
            }
        };
        let way = alert::way(message.asks, message.severity, clock::now(), &rules);
        let mut deliveries: BTreeMap<String, NewDelivery> = BTreeMap::new();
        for channel in rules.channels.iter().filter(|channel| channel.enabled) {
            match Receiver::of(channel) {
                Ok(Receiver::Terminal) if self.terminal.is_none() => {}
                Ok(receiver) => {
                    let (id, receiver) = (clock::new_id(), receiver.key());
                    let digest = matches!(way, Way::Digest(_));
                    let due_at = way.due_at();
                    // The terminal is looked at by whoever sits there: it holds nothing back.
                    let (digest, due_at) = match receiver.as_str() {
                        message::TERMINAL => (false, clock::now()),
                        _ => (digest, due_at),
                    };
                    let new = NewDelivery { id, receiver: receiver.clone(), digest, due_at };
                    deliveries.entry(receiver).or_insert(new);
                }
                Err(error) => {
                    tracing::warn!(project = project.name, %error, "an alert does not go there");
                }
            }
        }
        let deliveries: Vec<_> = deliveries.into_values().collect();
        self.app.store.dispatch(message, &deliveries).await?;
        Ok(())
    }

    async fn deliver(&self, claimed: Vec<Claimed>, until: Instant) -> Result<(), Error> {
        let (settled, claimed): (Vec<_>, Vec<_>) =
            claimed.into_iter().partition(|one| one.is_settled);
        let settled: Vec<Uuid> = settled.iter().map(|one| one.id).collect();
        self.app.store.end_deliveries(&settled, DeliveryEnd::Settled).await?;
        let mut queues: BTreeMap<String, Vec<Parcel>> = BTreeMap::new();
        for parcel in self.packed(claimed).await? {
            queues.entry(parcel.to.key()).or_default().push(parcel);
        }
        let queues = queues.into_values().map(|queue| self.send_all(queue, until));
        let sent: Vec<_> = stream::iter(queues).buffer_unordered(AT_ONCE).collect().await;
        sent.into_iter().collect()
    }

    /// Messages as they go out: each decision by itself, the rest in one for each receiver.
    async fn packed(&self, claimed: Vec<Claimed>) -> Result<Vec<Parcel>, Error> {
        let mut parcels: Vec<Parcel> = Vec::new();
        // By whom they are for, and by what they went out in before, if they did.
        let mut digests: BTreeMap<(String, Option<Uuid>), usize> = BTreeMap::new();
        let mut known: BTreeMap<ProjectId, (String, BTreeMap<String, Receiver>)> = BTreeMap::new();
        let mut without = Vec::new();
        for one in claimed {
            let (name, receivers) = match known.entry(one.project) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    let project = self.app.project_by_id(one.project).await?;
                    let receivers = self.receivers(&project.repository).await;
                    entry.insert((project.name, receivers))
                }
            };
            let Some(to) = receivers.get(&one.receiver).cloned() else {
                without.push(one.id);
                continue;
            };
            let item = self.item(&one, name.clone());
            if one.digest {
                let next = parcels.len();
                let at = *digests.entry((one.receiver.clone(), one.parcel)).or_insert(next);
                if let Some(parcel) = parcels.get_mut(at) {
                    parcel.message.severity = parcel.message.severity.max(one.severity);
                    parcel.message.items.push(item);
                    parcel.message.subject =
                        format!("{} things to know", parcel.message.items.len());
                    parcel.of.push(one);
                    continue;
                }
            }
            let message = Message {
                id: one.parcel.unwrap_or(one.id),
                at: one.created_at,
                severity: one.severity,
                subject: subject(&one),
                items: vec![item],
            };
            parcels.push(Parcel { to, message, of: vec![one] });
        }
        self.app.store.end_deliveries(&without, DeliveryEnd::NoReceiver).await?;
        // Each attempt must say the same under the same id, whatever else is due by then.
        for Parcel { message, of, .. } in &parcels {
            if of.len() > 1 && of.iter().any(|one| one.parcel.is_none()) {
                self.app.store.tie_deliveries(message.id, &ids(of)).await?;
            }
        }
        Ok(parcels)
    }

    /// Sends what is for one receiver, one after the other. Once they are away, the rest waits too:
    /// knocking for each message would keep other receivers waiting.
    async fn send_all(&self, mut queue: Vec<Parcel>, until: Instant) -> Result<(), Error> {
        let store = &self.app.store;
        // What failed before goes last, so that one bad message does not keep the others from going.
        queue.sort_by_key(|parcel| parcel.of.iter().map(|one| one.attempt).max());
        let most = queue.last().into_iter().flat_map(|last| &last.of).map(|one| one.attempt).max();
        let mut queue = queue.into_iter();
        while let Some(parcel) = queue.next() {
            if Instant::now() >= until {
                let rest: Vec<_> = ids(&parcel.of).into_iter().chain(remaining(queue)).collect();
                return Ok(store.release_deliveries(&rest, None).await?);
            }
            let of = ids(&parcel.of);
            let (to, attempt) = (parcel.to.shown(), parcel.of.first().map_or(1, |one| one.attempt));
            let sent = match &parcel.to {
                Receiver::Terminal => self.show(parcel.message),
                to => self.post.send(to, &parcel.message).await,
            };
            let Err(error) = sent else {
                store.end_deliveries(&of, DeliveryEnd::Delivered).await?;
                continue;
            };
            tracing::warn!(to, %error, attempt, "an alert did not arrive");
            let away = matches!(error, message::Error::Away(_));
            let counted = if away { most.unwrap_or(attempt) } else { attempt };
            let pause = alert::pause_after(counted).unwrap_or_else(|| TimeDelta::minutes(30));
            let again_at = clock::now() + pause;
            let ended = match error {
                message::Error::Gone(_) => Some(error.to_string()),
                _ if alert::pause_after(attempt).is_none() => {
                    Some(format!("{error}; given up after {attempt} attempts in three days"))
                }
                _ => None,
            };
            let why = ended.clone().unwrap_or_else(|| error.to_string());
            store.put_off_deliveries(&of, &why, again_at).await?;
            if ended.is_some() {
                store.end_deliveries(&of, DeliveryEnd::GivenUp).await?;
            }
            if away {
                let rest: Vec<_> = remaining(queue).collect();
                return Ok(store.release_deliveries(&rest, Some(again_at)).await?);
            }
        }
        Ok(())
    }

    fn show(&self, message: Message) -> Result<(), message::Error> {
        let away = || message::Error::Gone("this server has no terminal".to_owned());
        let terminal = self.terminal.as_ref().ok_or_else(away)?;
        terminal.send(message).map_err(|_| away())
    }

    /// The receivers of a project, by what tells them apart.
    async fn receivers(&self, repository: &str) -> BTreeMap<String, Receiver> {
        let rules = self.app.alerts_of(repository).await.unwrap_or_default();
        let channels = rules.channels.iter().filter(|channel| channel.enabled);
        channels
            .filter_map(|channel| Receiver::of(channel).ok())
            .map(|receiver| (receiver.key(), receiver))
            .collect()
    }

    fn item(&self, one: &Claimed, project: String) -> Item {
        Item {
            kind: one.kind.to_string(),
            task: one.task.0,
            title: one.title.clone(),
            project,
            why: one.cause.to_string(),
            answers: one.answers.iter().map(ToString::to_string).collect(),
            link: format!("{}/tasks/{}", self.base, one.task.0),
            reminder: one.reminder,
        }
    }

    /// Sends a message to everybody whom a project names, at once, and says what came of each.
    pub(crate) async fn test(&self, project: Option<&str>, by: &By) -> Result<Vec<Receipt>, Error> {
        let project = self.app.project(project).await?;
        self.app.permit(by, Right::Work, project.id).await?;
        let rules = self.app.alerts_of(&project.repository).await?;
        let message = |id| Message {
            id,
            at: clock::now(),
            severity: Severity::Info,
            subject: format!("A test from {}: this is where alerts arrive", project.name),
            items: vec![Item {
                kind: "test".to_owned(),
                task: id,
                title: "A test".to_owned(),
                project: project.name.clone(),
                why: "somebody has asked whether alerts arrive here".to_owned(),
                answers: Vec::new(),
                link: format!("{}/", self.base),
                reminder: 0,
            }],
        };
        let tried = rules.channels.iter().map(|channel| {
            let message = message(clock::new_id());
            async move {
                if !channel.enabled {
                    return Receipt::new(
                        channel.r#type.to_string(),
                        Some("it is switched off".to_owned()),
                    );
                }
                let to = match Receiver::of(channel) {
                    Ok(to) => to,
                    Err(error) => {
                        return Receipt::new(channel.r#type.to_string(), Some(error.to_string()));
                    }
                };
                let sent = match &to {
                    Receiver::Terminal => self.show(message),
                    to => self.post.send(to, &message).await,
                };
                Receipt::new(to.shown(), sent.err().map(|error| error.to_string()))
            }
        });
        Ok(futures_util::future::join_all(tried).await)
    }
}

fn ids(of: &[Claimed]) -> Vec<Uuid> {
    of.iter().map(|one| one.id).collect()
}

fn remaining(queue: impl Iterator<Item = Parcel>) -> impl Iterator<Item = Uuid> {
    queue.flat_map(|parcel| ids(&parcel.of))
}

/// One line for one message.
fn subject(one: &Claimed) -> String {
    let again = if one.reminder > 0 { "Still: " } else { "" };
    let asks = if one.answers.is_empty() { "" } else { "Your decision: " };
    format!("{again}{asks}{} [{}]", one.title, short(one.task.0))
}
