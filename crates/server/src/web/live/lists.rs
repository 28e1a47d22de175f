//! The board, the inbox and the engines, as they change.
//!
//! What a change means for the board is found out once, however many browsers show it. A part is sent so
//! that it does no harm to get it twice: a card goes to its column from wherever it is. A browser that
//! was away, or too slow, gets the tasks that have changed since, or everything where they are many.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::response::sse::Event;
use chrono::DateTime;
use futures_util::stream;
use serde::Deserialize;
use strum::IntoEnumIterator as _;
use tamma_core::ids::TaskId;
use tamma_core::task_loop::Phase;
use tamma_store::Change;
use tokio::sync::OnceCell;

use super::{Badge, answer, partial};
use crate::app::{App, Error};
use crate::live::{AnyWatcher, Heard};
use crate::shape;
use crate::web::board::{
    Alone, Card, CountAlone, Counts, Lanes, MoreAlone, Wanted, places, readable,
};
use crate::web::door::Visitor;
use crate::web::rights::Rights;
use crate::web::shell::Shell;
use crate::web::{Hall, Oops, engines, inbox};

/// How many changes are remembered, for browsers that come to them a little later than others.
const REMEMBERED: usize = 64;

/// How many cards are sent one by one to a browser that was away. More than that, and it gets the whole
/// board.
const FEW: usize = 50;

/// How often workers are looked at while nothing else happens.
const GLANCE: Duration = Duration::from_secs(15);

/// What changes mean for the board, found out once for everybody.
#[derive(Clone, Default)]
pub(in crate::web) struct Feed(Arc<Mutex<VecDeque<(Change, Told)>>>);

type Told = Arc<OnceCell<Option<Arc<News>>>>;

/// A message, if there is something to tell. On an error the browser comes again with the last id it
/// knows.
type Message = Result<Option<Event>, Error>;

/// A card as it is now, and what the columns count.
struct News {
    card: shape::Card,
    counts: Counts,
}

impl Feed {
    async fn news(&self, app: &App, change: Change) -> Result<Option<Arc<News>>, Error> {
        let cell = {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, cell)) = known.iter().find(|(it, _)| *it == change) {
                Arc::clone(cell)
            } else {
                let cell = Told::default();
                known.push_back((change, Arc::clone(&cell)));
                if known.len() > REMEMBERED {
                    known.pop_front();
                }
                cell
            }
        };
        Ok(cell.get_or_try_init(|| News::read(app, change.task)).await?.clone())
    }
}

impl News {
    /// Nothing where there is no such card, or something stored of it cannot be read.
    async fn read(app: &App, task: TaskId) -> Result<Option<Arc<Self>>, Error> {
        let Some(card) = app.store.listed(task).await?.and_then(readable) else { return Ok(None) };
        let by_state = app.store.by_state(None).await?;
        let waiting = app.store.waiting(None).await?;
        let places = places(app, &Wanted::default()).await?;
        Ok(Some(Arc::new(Self { card, counts: Counts { by_state, waiting, places } })))
    }
}

/// Since when a page is behind, by the database's clock, where no message has said so yet.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::web) struct Since {
    since: Option<i64>,
    /// Whether the page has no columns, because there was no task.
    empty: bool,
}

/// What changed while nobody listened: by the last message, or else since the page was made.
async fn missed(
    app: &App,
    headers: &HeaderMap,
    since: Option<i64>,
) -> Result<(i64, Vec<Change>), Error> {
    let last = headers.get("last-event-id").and_then(|value| value.to_str().ok());
    let since = last.and_then(|text| text.trim().parse().ok()).or(since);
    let moment = since.and_then(|since| Some((since, DateTime::from_timestamp_micros(since)?)));
    let Some((since, at)) = moment else { return Ok((0, Vec::new())) };
    Ok((since, app.store.changed_since(at).await?))
}

/// A browser that shows a list, and what it knows.
struct Looker {
    app: App,
    shell: Shell,
    rights: Rights,
    watcher: AnyWatcher,
    /// What it is still to be told of what it has missed, the newest last.
    behind: VecDeque<Change>,
    /// Whether everything is to be read anew.
    anew: bool,
    /// Up to when it knows everything, by the database's clock.
    known: i64,
}

impl Looker {
    async fn new(
        hall: &Hall,
        visitor: &Visitor,
        headers: &HeaderMap,
        since: Option<i64>,
    ) -> Result<Self, Oops> {
        // Watched before anything is read, so that nothing is missed in between.
        let watcher = hall.app.live.watch_all();
        let missed = missed(&hall.app, headers, since).await;
        let (known, behind) = missed.map_err(|error| Oops::new(Shell::of(visitor), error))?;
        Ok(Self {
            app: hall.app.clone(),
            shell: Shell::of(visitor),
            rights: Rights::of(&hall.app, visitor),
            watcher,
            anew: behind.len() > FEW,
            behind: behind.into(),
            known,
        })
    }

    /// The next thing to tell; nothing once the server stops.
    async fn next(&mut self) -> Option<Heard> {
        if std::mem::take(&mut self.anew) {
            self.behind.clear();
            return Some(Heard::Missed);
        }
        match self.behind.pop_front() {
            Some(change) => Some(Heard::Change(change)),
            None => self.watcher.next().await,
        }
    }

    /// Begins to read everything anew: what has come until now is in it.
    async fn begin_anew(&mut self) -> Result<(), Error> {
        self.watcher.skip();
        self.behind.clear();
        self.known = self.app.store.now().await?.timestamp_micros();
        self.shell.waiting = self.app.store.waiting(None).await?;
        Ok(())
    }

    fn message(&mut self, at: i64, parts: &[String]) -> Event {
        self.known = self.known.max(at);
        Event::default().id(self.known.to_string()).data(parts.concat())
    }
}

fn written(template: &impl Template) -> Result<String, Error> {
    template.render().map_err(|error| Error::Fault(error.into()))
}

/// How many tasks wait, at the top of every page.
fn waiting_badge(shell: &Shell, waiting: u64) -> Result<String, Error> {
    let badge = Badge { shell: Shell { waiting, ..shell.clone() } };
    Ok(partial("#waiting", "outerMorph", &written(&badge)?))
}

/// Sends the board as it changes.
pub(in crate::web) async fn board(
    State(hall): State<Hall>,
    visitor: Visitor,
    Query(wanted): Query<Wanted>,
    Query(since): Query<Since>,
    headers: HeaderMap,
) -> Result<Response, Oops> {
    let looker = Looker::new(&hall, &visitor, &headers, since.since).await?;
    let feed = hall.feed.clone();
    let one_by_one = wanted.is_all() && !since.empty;
    let first = (looker, BTreeMap::new());
    let parts = stream::unfold(first, move |(mut looker, mut counted)| {
        let (feed, wanted) = (feed.clone(), wanted.clone());
        async move {
            loop {
                let told = match looker.next().await? {
                    // A board that was narrowed is read anew: whether a task belongs to it is for the
                    // database to say.
                    Heard::Change(change) if one_by_one => {
                        match feed.news(&looker.app, change).await {
                            Ok(Some(news)) => card(&mut looker, &news, &mut counted).await,
                            Ok(None) => Ok(None),
                            Err(error) => Err(error),
                        }
                    }
                    Heard::Change(_) | Heard::Missed => whole(&mut looker, &wanted).await,
                };
                if let Some(event) = told.ok()? {
                    return Some((Ok(event), (looker, counted)));
                }
            }
        }
    });
    Ok(answer(hall, parts))
}

/// A card where it belongs now, and what has changed of the counts.
async fn card(looker: &mut Looker, news: &News, counted: &mut BTreeMap<Phase, u64>) -> Message {
    let card = &news.card;
    let (id, phase) = (card.id, crate::web::board::word(&card.phase));
    let waits = looker.rights.waits_for(card).await;
    let html = written(&Alone { shell: looker.shell.clone(), card: Card::new(card, waits) })?;
    let item = format!("<li id=\"card-{id}\">{html}</li>");
    let mut parts = vec![
        partial(&format!(".cards:not(#cards-{phase}) > #card-{id}"), "delete", ""),
        partial(&format!("#cards-{phase}:not(:has(> #card-{id}))"), "afterbegin", &item),
        partial(&format!("#cards-{phase} > #card-{id}"), "innerMorph", &html),
        partial("#summary", "innerHTML", &news.counts.summary()),
    ];
    for phase in Phase::iter() {
        let count = news.counts.of_phase(phase);
        // The places of the one phase that has some change without the count.
        if counted.insert(phase, count) == Some(count) && phase != Phase::Implement {
            continue;
        }
        let column = news.counts.column(phase, &Wanted::default());
        let count = written(&CountAlone { column: &column })?;
        let more = written(&MoreAlone { column: &column })?;
        let word = &column.phase;
        parts.push(partial(&format!("#count-{word}"), "outerMorph", &count));
        parts.push(partial(&format!("#more-{word}"), "outerMorph", &more));
    }
    parts.push(waiting_badge(&looker.shell, news.counts.waiting)?);
    Ok(Some(looker.message(card.updated_at.timestamp_micros(), &parts)))
}

/// Everything on the board.
async fn whole(looker: &mut Looker, wanted: &Wanted) -> Message {
    looker.begin_anew().await?;
    let lanes = Lanes::read(&looker.app, &looker.shell, wanted, &mut looker.rights).await?;
    let parts = [
        partial("#summary", "innerHTML", lanes.summary()),
        partial("#board", "innerMorph", &written(&lanes)?),
        waiting_badge(&looker.shell, looker.shell.waiting)?,
    ];
    Ok(Some(looker.message(looker.known, &parts)))
}

/// Sends the inbox as it changes.
pub(in crate::web) async fn inbox(
    State(hall): State<Hall>,
    visitor: Visitor,
    Query(since): Query<Since>,
    headers: HeaderMap,
) -> Result<Response, Oops> {
    let looker = Looker::new(&hall, &visitor, &headers, since.since).await?;
    let parts = stream::unfold(looker, |mut looker| async move {
        loop {
            let heard = looker.next().await?;
            if let Some(event) = asked(&mut looker, heard).await.ok()? {
                return Some((Ok(event), looker));
            }
        }
    });
    Ok(answer(hall, parts))
}

/// What waits now; of one task, or altogether.
async fn asked(looker: &mut Looker, heard: Heard) -> Message {
    let Heard::Change(change) = heard else {
        looker.begin_anew().await?;
        let list = inbox::List::read(&looker.app, &looker.shell, &mut looker.rights).await?;
        let parts = [
            partial("#asked", "innerMorph", &written(&list)?),
            waiting_badge(&looker.shell, looker.shell.waiting)?,
        ];
        return Ok(Some(looker.message(looker.known, &parts)));
    };
    let task = match looker.app.task(change.task).await {
        Err(Error::Damaged { .. }) => return Ok(None),
        task => task?,
    };
    let waiting = looker.app.store.waiting(None).await?;
    let (id, at) = (task.card.id, task.card.updated_at.timestamp_micros());
    let item = inbox::Alone::read(&looker.app, &looker.shell, &mut looker.rights, &task).await?;
    let mut parts = match item {
        Some(item) => {
            let html = written(&item)?;
            vec![
                partial(&format!("#inbox:not(:has(> #ask-{id}))"), "beforeend", &html),
                partial(&format!("#inbox > #ask-{id}"), "outerMorph", &html),
            ]
        }
        None => vec![partial(&format!("#inbox > #ask-{id}"), "delete", "")],
    };
    parts.push(waiting_badge(&looker.shell, waiting)?);
    Ok(Some(looker.message(at, &parts)))
}

/// Sends the engines and workers as they change.
pub(in crate::web) async fn engines(
    State(hall): State<Hall>,
    visitor: Visitor,
    headers: HeaderMap,
) -> Result<Response, Oops> {
    let looker = Looker::new(&hall, &visitor, &headers, None).await?;
    let parts = stream::unfold(looker, |mut looker| async move {
        loop {
            // Workers come and go without an entry in any log.
            if let Ok(heard) = tokio::time::timeout(GLANCE, looker.next()).await {
                heard?;
            }
            if let Some(event) = pool(&mut looker).await.ok()? {
                return Some((Ok(event), looker));
            }
        }
    });
    Ok(answer(hall, parts))
}

async fn pool(looker: &mut Looker) -> Message {
    looker.begin_anew().await?;
    let pool = engines::Pool::read(&looker.app, &looker.shell).await?;
    let parts = [
        partial("#pool", "innerMorph", &written(&pool)?),
        waiting_badge(&looker.shell, looker.shell.waiting)?,
    ];
    Ok(Some(looker.message(looker.known, &parts)))
}
