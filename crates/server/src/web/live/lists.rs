//! Live updates of the board, the inbox and the agents page.
//!
//! Each board update is computed once for all people who read the same projects. Updates are
//! idempotent: a card moves to its column from any other one. A browser that was disconnected or too
//! slow gets the changed tasks, or the whole page if there are many.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use askama::Template;
use axum::extract::{Path, Query};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::response::sse::Event;
use chrono::DateTime;
use futures_util::stream;
use serde::Deserialize;
use strum::IntoEnumIterator as _;
use tamma_core::access::ProjectScope;
use tamma_core::ids::{Digest, PipelineId, ProjectId, TaskId};
use tamma_core::task_loop::Phase;
use tamma_store::{TaskChange, TaskFilter, TaskOrder};
use tokio::sync::OnceCell;
use uuid::Uuid;

use super::{WaitingBadge, partial, sse_response};
use crate::app::{App, Error};
use crate::dto;
use crate::live::{AllTasksSubscriber, LiveEvent};
use crate::web::board::{
    BoardCard, BoardCounts, BoardQuery, CardFragment, ColumnCountFragment, ColumnMoreFragment,
    Lanes, agent_limit, readable_card,
};
use crate::web::layout::Layout;
use crate::web::permissions::PagePermissions;
use crate::web::session::Session;
use crate::web::{PageError, WebState, agents, inbox, merge_queue, pipelines, pull_requests};

/// Maximum number of cached updates, for browsers that lag behind.
const MAX_CACHED_UPDATES: usize = 64;

/// Maximum number of missed cards sent one by one. Beyond it, the browser gets the whole board.
const MAX_SINGLE_UPDATES: usize = 50;

/// Refresh interval of the agents page without other changes.
const WORKER_POLL_INTERVAL: Duration = Duration::from_secs(15);

/// Interval at which the merge queues are read again.
const QUEUE_POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Board updates by change, computed once for all browsers whose people read the same projects.
#[derive(Clone, Default)]
pub(in crate::web) struct BoardFeed(Arc<Mutex<VecDeque<CachedUpdate>>>);

type CachedUpdate = ((TaskChange, ProjectScope), UpdateCell);

type UpdateCell = Arc<OnceCell<Option<Arc<BoardUpdate>>>>;

/// Event, or `None` without a visible change. After an error, the browser reconnects with its last
/// event ID.
type StreamUpdate = Result<Option<Event>, Error>;

/// Current card of a task, and the counts of all columns.
struct BoardUpdate {
    card: dto::TaskCard,
    /// Name of the card's project.
    project: String,
    counts: BoardCounts,
}

impl BoardFeed {
    async fn update_for(
        &self,
        app: &App,
        scope: &ProjectScope,
        change: TaskChange,
    ) -> Result<Option<Arc<BoardUpdate>>, Error> {
        let key = (change, scope.clone());
        let cell = {
            let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, cell)) = cached.iter().find(|(it, _)| *it == key) {
                Arc::clone(cell)
            } else {
                let cell = UpdateCell::default();
                cached.push_back((key, Arc::clone(&cell)));
                if cached.len() > MAX_CACHED_UPDATES {
                    cached.pop_front();
                }
                cell
            }
        };
        Ok(cell.get_or_try_init(|| BoardUpdate::load(app, change.task)).await?.clone())
    }
}

impl BoardUpdate {
    /// Loads the update; `None` if the task is missing or damaged.
    async fn load(app: &App, task: TaskId) -> Result<Option<Arc<Self>>, Error> {
        let Some(mut card) = app.store.listed_task(task).await?.and_then(readable_card) else {
            return Ok(None);
        };
        app.add_pull_request_badges(std::slice::from_mut(&mut card)).await?;
        let board = app.store.board(&TaskFilter::default(), TaskOrder::default(), 0).await?;
        let waiting = app.store.count_waiting(None).await?;
        let agent_limit = agent_limit(app, &BoardQuery::default()).await?;
        let project = app.project_by_id(ProjectId(card.project)).await?.name;
        let (by_state, more) = (board.counts, board.more);
        let counts = BoardCounts { by_state, more, waiting, agent_limit };
        Ok(Some(Arc::new(Self { card, project, counts })))
    }
}

/// Query parameters: time of the page, in microseconds of the database's clock.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::web) struct LiveQuery {
    since: Option<i64>,
    /// Set if the page has no columns because there were no tasks.
    empty: bool,
}

/// Returns the changes since the last event, or since the page was rendered.
async fn missed_changes(
    app: &App,
    headers: &HeaderMap,
    since: Option<i64>,
) -> Result<(i64, Vec<TaskChange>), Error> {
    let last = headers.get("last-event-id").and_then(|value| value.to_str().ok());
    let since = last.and_then(|text| text.trim().parse().ok()).or(since);
    let start = since.and_then(|since| Some((since, DateTime::from_timestamp_micros(since)?)));
    let Some((since, at)) = start else { return Ok((0, Vec::new())) };
    Ok((since, app.store.changed_since(at).await?))
}

/// Browser that displays a list.
struct ListSubscriber {
    app: App,
    /// Projects that the person can read.
    scope: ProjectScope,
    layout: Layout,
    permissions: PagePermissions,
    changes: AllTasksSubscriber,
    /// Missed changes that are not sent yet, oldest first.
    backlog: VecDeque<TaskChange>,
    /// Set if the whole page must be sent next.
    needs_reload: bool,
    /// Time up to which all changes were sent, by the database's clock.
    known_until: i64,
}

impl ListSubscriber {
    async fn new(
        state: &WebState,
        session: &Session,
        headers: &HeaderMap,
        since: Option<i64>,
    ) -> Result<Self, PageError> {
        // Subscribe before the first read, so that nothing is missed.
        let changes = state.app.live.subscribe_all();
        let missed = missed_changes(&state.app, headers, since).await;
        let (known_until, backlog) =
            missed.map_err(|error| PageError::new(Layout::for_session(session), error))?;
        Ok(Self {
            app: state.app.clone(),
            scope: session.rights.scope(),
            layout: Layout::for_session(session),
            permissions: PagePermissions::for_session(&state.app, session),
            changes,
            needs_reload: backlog.len() > MAX_SINGLE_UPDATES,
            backlog: backlog.into(),
            known_until,
        })
    }

    /// Returns the next change; `None` once the server stops.
    async fn next_change(&mut self) -> Option<LiveEvent> {
        if std::mem::take(&mut self.needs_reload) {
            self.backlog.clear();
            return Some(LiveEvent::Missed);
        }
        match self.backlog.pop_front() {
            Some(change) => Some(LiveEvent::Change(change)),
            None => self.changes.next().await,
        }
    }

    /// Starts a full reload, which includes all pending changes.
    async fn begin_reload(&mut self) -> Result<(), Error> {
        self.changes.skip_pending();
        self.backlog.clear();
        self.known_until = self.app.store.now().await?.timestamp_micros();
        self.layout.waiting = self.app.store.count_waiting(None).await?;
        Ok(())
    }

    fn event(&mut self, at: i64, parts: &[String]) -> Event {
        self.known_until = self.known_until.max(at);
        Event::default().id(self.known_until.to_string()).data(parts.concat())
    }
}

fn render_html(template: &impl Template) -> Result<String, Error> {
    template.render().map_err(|error| Error::Internal(error.into()))
}

/// Renders the number of open decisions in the navigation.
fn waiting_badge(layout: &Layout, waiting: u64) -> Result<String, Error> {
    let badge = WaitingBadge { layout: Layout { waiting, ..layout.clone() } };
    Ok(partial("#waiting", "outerMorph", &render_html(&badge)?))
}

/// Streams changes of the board.
pub(in crate::web) async fn board_stream(
    state: WebState,
    session: Session,
    Query(query): Query<BoardQuery>,
    Query(since): Query<LiveQuery>,
    headers: HeaderMap,
) -> Result<Response, PageError> {
    let subscriber = ListSubscriber::new(&state, &session, &headers, since.since).await?;
    let feed = state.board_feed.clone();
    let one_by_one = query.is_default() && !since.empty;
    let first = (subscriber, BTreeMap::new());
    let parts = stream::unfold(first, move |(mut subscriber, mut sent_counts)| {
        let (feed, query) = (feed.clone(), query.clone());
        async move {
            loop {
                let update = match subscriber.next_change().await? {
                    // A filtered board is reloaded: only the database knows which
                    // tasks match.
                    LiveEvent::Change(change) if one_by_one => {
                        match feed.update_for(&subscriber.app, &subscriber.scope, change).await {
                            Ok(Some(update)) => {
                                card_update(&mut subscriber, &update, &mut sent_counts).await
                            }
                            Ok(None) => Ok(None),
                            Err(error) => Err(error),
                        }
                    }
                    LiveEvent::Change(_) | LiveEvent::Missed => {
                        board_update(&mut subscriber, &query).await
                    }
                };
                if let Some(event) = update.ok()? {
                    return Some((Ok(event), (subscriber, sent_counts)));
                }
            }
        }
    });
    Ok(sse_response(state, parts))
}

/// Renders a card in its column, and the counts that changed.
async fn card_update(
    subscriber: &mut ListSubscriber,
    update: &BoardUpdate,
    sent_counts: &mut BTreeMap<Phase, u64>,
) -> StreamUpdate {
    let card = &update.card;
    let (id, phase) = (card.id, crate::web::board::serialized_name(&card.phase));
    let waiting_on = subscriber.permissions.waiting_on(card).await;
    let html = render_html(&CardFragment {
        layout: subscriber.layout.clone(),
        card: BoardCard::new(card, &update.project, waiting_on, &subscriber.permissions),
    })?;
    let item = format!("<li id=\"card-{id}\">{html}</li>");
    let mut parts = vec![
        partial(&format!(".cards:not(#cards-{phase}) > #card-{id}"), "delete", ""),
        partial(&format!("#cards-{phase}:not(:has(> #card-{id}))"), "afterbegin", &item),
        partial(&format!("#cards-{phase} > #card-{id}"), "innerMorph", &html),
        partial("#summary", "innerHTML", &update.counts.summary()),
    ];
    for phase in Phase::iter() {
        let count = update.counts.of_phase(phase);
        // The agent limit of this phase can change without its count.
        if sent_counts.insert(phase, count) == Some(count) && phase != Phase::Implement {
            continue;
        }
        let column = update.counts.column(phase, &BoardQuery::default());
        let count = render_html(&ColumnCountFragment { column: &column })?;
        let more = render_html(&ColumnMoreFragment { column: &column })?;
        let word = &column.phase;
        parts.push(partial(&format!("#count-{word}"), "outerMorph", &count));
        parts.push(partial(&format!("#more-{word}"), "outerMorph", &more));
    }
    parts.push(waiting_badge(&subscriber.layout, update.counts.waiting)?);
    Ok(Some(subscriber.event(card.updated_at.timestamp_micros(), &parts)))
}

/// Renders the whole board.
async fn board_update(subscriber: &mut ListSubscriber, query: &BoardQuery) -> StreamUpdate {
    subscriber.begin_reload().await?;
    let lanes =
        Lanes::load(&subscriber.app, &subscriber.layout, query, &mut subscriber.permissions)
            .await?;
    let parts = [
        partial("#summary", "innerHTML", lanes.summary()),
        partial("#board", "innerMorph", &render_html(&lanes)?),
        waiting_badge(&subscriber.layout, subscriber.layout.waiting)?,
    ];
    Ok(Some(subscriber.event(subscriber.known_until, &parts)))
}

/// Streams changes of the inbox.
pub(in crate::web) async fn inbox_stream(
    state: WebState,
    session: Session,
    Query(since): Query<LiveQuery>,
    headers: HeaderMap,
) -> Result<Response, PageError> {
    let subscriber = ListSubscriber::new(&state, &session, &headers, since.since).await?;
    let parts = stream::unfold(subscriber, |mut subscriber| async move {
        loop {
            let change = subscriber.next_change().await?;
            if let Some(event) = inbox_update(&mut subscriber, change).await.ok()? {
                return Some((Ok(event), subscriber));
            }
        }
    });
    Ok(sse_response(state, parts))
}

/// Renders the inbox item of one task, or the whole inbox.
async fn inbox_update(subscriber: &mut ListSubscriber, event: LiveEvent) -> StreamUpdate {
    let LiveEvent::Change(change) = event else {
        subscriber.begin_reload().await?;
        let list = inbox::InboxList::load(
            &subscriber.app,
            &subscriber.layout,
            &mut subscriber.permissions,
        )
        .await?;
        let parts = [
            partial("#asked", "innerMorph", &render_html(&list)?),
            waiting_badge(&subscriber.layout, subscriber.layout.waiting)?,
        ];
        return Ok(Some(subscriber.event(subscriber.known_until, &parts)));
    };
    let ListSubscriber { app, layout, permissions, .. } = subscriber;
    let (item, at) = match app.task_detail(change.task).await {
        Err(Error::Corrupt { .. }) => return Ok(None),
        Err(Error::NotFound { .. }) => {
            // Pipelines publish their changes like tasks.
            let view = match app.pipeline_view(PipelineId(change.task.0)).await {
                Err(Error::NotFound { .. }) => return Ok(None),
                view => view?,
            };
            let item = inbox::InboxItemFragment::for_story(layout, permissions, &view).await;
            (item, view.updated_at)
        }
        task => {
            let task = task?;
            let item = inbox::InboxItemFragment::load(app, layout, permissions, &task).await?;
            (item, task.card.updated_at)
        }
    };
    let (id, at) = (change.task.0, at.timestamp_micros());
    let waiting = app.store.count_waiting(None).await?;
    let mut parts = match item {
        Some(item) => {
            let (html, key) = (render_html(&item)?, item.question_key());
            // The same question stays as it is: the viewer may be typing an answer.
            let other = format!("#inbox > #ask-{id}:not([data-question='{key}'])");
            vec![
                partial(&format!("#inbox:not(:has(> #ask-{id}))"), "beforeend", &html),
                partial(&other, "outerMorph", &html),
            ]
        }
        None => vec![partial(&format!("#inbox > #ask-{id}"), "delete", "")],
    };
    parts.push(waiting_badge(&subscriber.layout, waiting)?);
    Ok(Some(subscriber.event(at, &parts)))
}

/// Streams changes of the agents page.
pub(in crate::web) async fn agents_stream(
    state: WebState,
    session: Session,
    headers: HeaderMap,
) -> Result<Response, PageError> {
    let subscriber = ListSubscriber::new(&state, &session, &headers, None).await?;
    let parts = stream::unfold(subscriber, |mut subscriber| async move {
        loop {
            // Workers come and go without a history entry.
            if let Ok(change) =
                tokio::time::timeout(WORKER_POLL_INTERVAL, subscriber.next_change()).await
            {
                change?;
            }
            if let Some(event) = agents_update(&mut subscriber).await.ok()? {
                return Some((Ok(event), subscriber));
            }
        }
    });
    Ok(sse_response(state, parts))
}

async fn agents_update(subscriber: &mut ListSubscriber) -> StreamUpdate {
    subscriber.begin_reload().await?;
    let pool = agents::AgentPoolView::load(&subscriber.app, &subscriber.layout).await?;
    let parts = [
        partial("#pool", "innerMorph", &render_html(&pool)?),
        waiting_badge(&subscriber.layout, subscriber.layout.waiting)?,
    ];
    Ok(Some(subscriber.event(subscriber.known_until, &parts)))
}

/// Streams changes of the list of pull requests.
pub(in crate::web) async fn pull_requests_stream(
    state: WebState,
    session: Session,
    headers: HeaderMap,
) -> Result<Response, PageError> {
    let subscriber = ListSubscriber::new(&state, &session, &headers, None).await?;
    let parts = stream::unfold((subscriber, None), |(mut subscriber, mut shown)| async move {
        loop {
            // Checks change without a history entry.
            if let Ok(change) =
                tokio::time::timeout(WORKER_POLL_INTERVAL, subscriber.next_change()).await
            {
                change?;
            }
            if let Some(event) = pull_requests_update(&mut subscriber, &mut shown).await.ok()? {
                return Some((Ok(event), (subscriber, shown)));
            }
        }
    });
    Ok(sse_response(state, parts))
}

async fn pull_requests_update(
    subscriber: &mut ListSubscriber,
    shown: &mut Option<Digest>,
) -> StreamUpdate {
    subscriber.begin_reload().await?;
    let list = pull_requests::PullRequestsView::load(&subscriber.app).await?;
    let html = render_html(&list)?;
    let digest = Digest::of(html.as_bytes());
    if shown.replace(digest) == Some(digest) {
        return Ok(None);
    }
    let parts = [
        partial("#pull-requests", "innerMorph", &html),
        waiting_badge(&subscriber.layout, subscriber.layout.waiting)?,
    ];
    Ok(Some(subscriber.event(subscriber.known_until, &parts)))
}

/// Streams changes of the merge queues.
pub(in crate::web) async fn merge_queues_stream(
    state: WebState,
    session: Session,
    headers: HeaderMap,
) -> Result<Response, PageError> {
    let subscriber = ListSubscriber::new(&state, &session, &headers, None).await?;
    let permissions = PagePermissions::for_session(&state.app, &session);
    let shown = String::new();
    let parts = stream::unfold((subscriber, permissions, shown), |it| async move {
        let (mut subscriber, permissions, mut shown) = it;
        loop {
            // Queues move without a history entry.
            if let Ok(change) =
                tokio::time::timeout(QUEUE_POLL_INTERVAL, subscriber.next_change()).await
            {
                change?;
            }
            let update = queues_update(&mut subscriber, &permissions, &mut shown);
            if let Some(event) = update.await.ok()? {
                return Some((Ok(event), (subscriber, permissions, shown)));
            }
        }
    });
    Ok(sse_response(state, parts))
}

async fn queues_update(
    subscriber: &mut ListSubscriber,
    permissions: &PagePermissions,
    shown: &mut String,
) -> StreamUpdate {
    subscriber.begin_reload().await?;
    let (app, layout) = (&subscriber.app, &subscriber.layout);
    let html = render_html(&merge_queue::QueuesView::load(app, layout, permissions).await?)?;
    if html == *shown {
        return Ok(None);
    }
    let parts = [
        partial("#queues", "innerMorph", &html),
        waiting_badge(&subscriber.layout, subscriber.layout.waiting)?,
    ];
    *shown = html;
    Ok(Some(subscriber.event(subscriber.known_until, &parts)))
}

/// Streams changes of a story's page.
pub(in crate::web) async fn pipeline_stream(
    state: WebState,
    session: Session,
    Path(id): Path<Uuid>,
    headers: HeaderMap,
) -> Result<Response, PageError> {
    let mut subscriber = ListSubscriber::new(&state, &session, &headers, None).await?;
    // A story that the person cannot read is missing.
    let story = state.app.store.pipeline(PipelineId(id)).await.map_err(Error::from);
    story.map_err(|error| PageError::new(Layout::for_session(&session), error))?;
    // The story may have changed since its page was rendered.
    subscriber.needs_reload = true;
    let parts = stream::unfold((subscriber, None), move |(mut subscriber, mut shown)| async move {
        loop {
            // Every change of a story has its ID; a reload covers all of them.
            let is_own = match subscriber.next_change().await? {
                LiveEvent::Change(change) => change.task.0 == id,
                LiveEvent::Missed => true,
            };
            if !is_own {
                continue;
            }
            if let Some(event) = story_update(&mut subscriber, id, &mut shown).await.ok()? {
                return Some((Ok(event), (subscriber, shown)));
            }
        }
    });
    Ok(sse_response(state, parts))
}

async fn story_update(
    subscriber: &mut ListSubscriber,
    id: Uuid,
    shown: &mut Option<u64>,
) -> StreamUpdate {
    subscriber.begin_reload().await?;
    let ListSubscriber { app, layout, permissions, .. } = subscriber;
    let story = pipelines::StoryView::load(app, layout, permissions, PipelineId(id)).await?;
    if shown.replace(story.version()) == Some(story.version()) {
        return Ok(None);
    }
    let parts = [
        partial("#story", "innerMorph", &render_html(&story)?),
        waiting_badge(&subscriber.layout, subscriber.layout.waiting)?,
    ];
    Ok(Some(subscriber.event(subscriber.known_until, &parts)))
}
