//! Board of 10,000 tasks: page times, latency of changes in 200 open browsers, and changes missed
//! during a restart of the server.
#![expect(clippy::print_stdout, reason = "a measurement prints its figures")]
#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use chrono::{DateTime, TimeDelta};
use futures_util::StreamExt as _;
use tamma_core::actor::Actor;
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::rules::Rules;
use tamma_core::task::{Task, TaskType};
use tamma_core::task_loop::{
    Action, EventKind, Outcome, StepRecord, TaskEvent, TaskLoop, TaskReceived, begin,
};
use tamma_core::version::{Edition, FormatVersion};
use tamma_store::{RegisteredProject, Store};
use tamma_testkit::Cluster;
use tamma_testkit::sample::{project_id, sample_task};
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::support::bench::meter;
use crate::support::figures::{ms, percentile};
use crate::support::page_times::{self, PageServer};
use crate::support::verdict::Verdict;

const TASKS: u128 = 10_000;
const BROWSERS: usize = 200;
const CHANGES: u128 = 20;
/// Number of changes while the server is down. With more, browsers would get the whole board.
const MISSED: u128 = 20;
/// Time limit after which a change counts as missing.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Targets: p95 of the board, and median latency of a change.
const BOARD: Duration = Duration::from_millis(200);
const LIVE: Duration = Duration::from_millis(300);

pub(crate) async fn run() -> Result<Verdict> {
    let built = if cfg!(debug_assertions) { "development build" } else { "optimised build" };
    println!("machine: {}; {built}", meter::machine());
    let cluster = Cluster::builder().shared_temporal().start().await?;
    let store = cluster.store.clone();
    let project = project_id(1);
    let known = RegisteredProject {
        id: project,
        name: "shop".to_owned(),
        repository: "/nowhere".to_owned(),
    };
    store.register_project(&known).await?;
    let rules = Rules::default();
    let start = Instant::now();
    for number in 0..TASKS {
        write(&store, &rules, project, number).await?;
    }
    println!("{TASKS} tasks written in {} s", start.elapsed().as_secs());
    let server = PageServer::start(&cluster).await?;
    let http = page_times::signed_in_client()?;
    let slowest = pages(&http, &server.url).await?;

    let mut browsers = Browsers::new(http);
    browsers.open(&server.url).await?;
    let median = browsers.measure_latency(&store, &rules).await?;
    println!("a change reaches {BROWSERS} open browsers after {} ms (median)", ms(Some(median)));

    server.stop().await?;
    for number in CHANGES..CHANGES + MISSED {
        pause(&store, &rules, number).await?;
    }
    let server = PageServer::start(&cluster).await?;
    let missing = browsers.reconnect(&server.url).await?;
    let all = u128::try_from(BROWSERS)? * MISSED;
    println!(
        "after a restart, {missing} of {all} changes are missing ({BROWSERS} browsers, {MISSED} changes each)"
    );
    server.stop().await?;
    store.close().await;
    let figures = format!(
        "board p95 {} ms, change median {} ms, {missing} changes missed",
        ms(Some(slowest)),
        ms(Some(median))
    );
    Ok(Verdict::new(slowest < BOARD && median < LIVE && missing == 0, figures))
}

/// Requests all pages and returns the slowest p95 of the board's.
async fn pages(http: &reqwest::Client, url: &str) -> Result<Duration> {
    let pages = [
        "/",
        "/?project=shop",
        "/?text=part",
        "/?text=part+4711",
        "/?type=bugfix",
        "/?phase=plan",
        "/inbox",
        "/figures",
    ];
    let times = page_times::measure(http, url, &pages.map(str::to_owned)).await?;
    let board = times.into_iter().filter(|it| it.page.starts_with("/?") || it.page == "/");
    Ok(board.map(|it| it.p95).max().unwrap_or_default())
}

fn id(number: u128) -> TaskId {
    TaskId(Uuid::from_u128((0x0192_a000_0000_7000_8000 << 48) + number))
}

/// Pauses a numbered task that was not admitted.
async fn pause(store: &Store, rules: &Rules, number: u128) -> Result<()> {
    let task_loop = store.task(id(1 + 3 * number)).await?.task_loop.context("unreadable")?;
    take(store, rules, task_loop, 1, EventKind::ActionRequested(Action::Pause)).await?;
    Ok(())
}

/// Stores a task with up to two steps.
async fn write(store: &Store, rules: &Rules, project: ProjectId, number: u128) -> Result<()> {
    let types = [TaskType::Feature, TaskType::Bugfix, TaskType::Refactor, TaskType::Docs];
    let task = Task {
        title: format!("Round totals half to even, part {number} of many"),
        description: "The receipt and the ledger differ by a cent.".to_owned(),
        r#type: types[usize::try_from(number % 4)?],
        labels: vec!["money".to_owned()],
        // IDs ascend with time, like real ones.
        ..sample_task(id(number), project)
    };
    let at =
        DateTime::UNIX_EPOCH + TimeDelta::days(20_700) + TimeDelta::seconds(i64::try_from(number)?);
    let received = TaskReceived {
        task: task.id,
        project,
        priority: task.priority,
        at,
        by: Actor::Tamma,
        auth: None,
        submitted_plan: None,
        edition: Edition::NEWEST,
    };
    let first = begin(&received, rules);
    store.insert_task(&task, &first, rules).await?;
    let mut task_loop = first.next;
    // A third is admitted; a third of those is cancelled.
    if number.is_multiple_of(3) {
        task_loop = take(
            store,
            rules,
            task_loop,
            1,
            EventKind::JobFinished { job_number: 1, usage: None, outcome: Outcome::Admitted },
        )
        .await?;
        if number.is_multiple_of(9) {
            let reason = "no longer needed".parse()?;
            take(store, rules, task_loop, 2, EventKind::ActionRequested(Action::Cancel { reason }))
                .await?;
        }
    }
    Ok(())
}

async fn take(
    store: &Store,
    rules: &Rules,
    task_loop: TaskLoop,
    number: u64,
    what: EventKind,
) -> Result<TaskLoop> {
    let by = match &what {
        EventKind::ActionRequested(_) => Actor::Person("Ada".parse()?),
        _ => Actor::Tamma,
    };
    let event =
        TaskEvent { format: FormatVersion, at: task_loop.since, by, auth: None, kind: what };
    let step =
        tamma_core::step(&task_loop, &event, rules).map_err(|error| anyhow::anyhow!("{error}"))?;
    store.save_steps(&[StepRecord::new(number, event.at, step.clone())], rules).await?;
    Ok(step.next)
}

/// Open browsers that show the board.
struct Browsers {
    http: reqwest::Client,
    /// Last event ID of each browser.
    last_event_ids: BTreeMap<usize, String>,
    sender: mpsc::UnboundedSender<BrowserMessage>,
    receiver: mpsc::UnboundedReceiver<BrowserMessage>,
}

/// Message that a browser received.
struct BrowserMessage {
    browser: usize,
    at: Instant,
    id: Option<String>,
    /// Tasks whose cards are in the message.
    tasks: BTreeSet<String>,
}

impl Browsers {
    fn new(http: reqwest::Client) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        Self { http, last_event_ids: BTreeMap::new(), sender, receiver }
    }

    /// Opens the board in every browser, with the last event ID if there is one.
    async fn open(&mut self, url: &str) -> Result<()> {
        for browser in 0..BROWSERS {
            let mut request = self.http.get(format!("{url}/live/board"));
            if let Some(last_event_id) = self.last_event_ids.get(&browser) {
                request = request.header("last-event-id", last_event_id);
            }
            let response = request.send().await?.error_for_status()?;
            let sender = self.sender.clone();
            tokio::spawn(async move {
                let (mut bytes, mut text) = (response.bytes_stream(), String::new());
                while let Some(Ok(part)) = bytes.next().await {
                    text.push_str(&String::from_utf8_lossy(&part));
                    while let Some((message, rest)) = text.split_once("\n\n") {
                        // The receiver is gone at the end of the experiment.
                        drop(sender.send(BrowserMessage::read(browser, message)));
                        text = rest.to_owned();
                    }
                }
            });
        }
        Ok(())
    }

    async fn next(&mut self) -> Result<BrowserMessage> {
        let message = tokio::time::timeout(TIMEOUT, self.receiver.recv()).await;
        let message = message
            .context("a browser got no message in time")?
            .context("all browsers are closed")?;
        if let Some(id) = &message.id {
            self.last_event_ids.insert(message.browser, id.clone());
        }
        Ok(message)
    }

    /// Returns the median latency of a change over all browsers.
    async fn measure_latency(&mut self, store: &Store, rules: &Rules) -> Result<Duration> {
        let mut times = Vec::new();
        for number in 0..CHANGES {
            let task = id(1 + 3 * number).0.to_string();
            let start = Instant::now();
            pause(store, rules, number).await?;
            let mut notified = BTreeSet::new();
            while notified.len() < BROWSERS {
                let message = self.next().await?;
                if message.tasks.contains(&task) && notified.insert(message.browser) {
                    times.push(message.at - start);
                }
            }
        }
        percentile(&times, 50).context("no measurement")
    }

    /// Reconnects to a new server and returns the number of missed changes.
    async fn reconnect(&mut self, url: &str) -> Result<usize> {
        let missed = (CHANGES..CHANGES + MISSED).map(|number| id(1 + 3 * number).0.to_string());
        let mut open: BTreeSet<(usize, String)> = missed
            .flat_map(|task| (0..BROWSERS).map(move |browser| (browser, task.clone())))
            .collect();
        self.open(url).await?;
        let all = async {
            while !open.is_empty() {
                let message = self.next().await?;
                for task in message.tasks {
                    open.remove(&(message.browser, task));
                }
            }
            Ok(())
        };
        // Streams send keep-alive messages, so the limit of `next` is not enough.
        match tokio::time::timeout(TIMEOUT, all).await {
            Ok(result) => result.map(|()| 0),
            Err(_) => Ok(open.len()),
        }
    }
}

impl BrowserMessage {
    fn read(browser: usize, message: &str) -> Self {
        let id = message.lines().find_map(|line| line.strip_prefix("id:"));
        let cards = message.split("id=\"card-").skip(1).filter_map(|rest| rest.get(..36));
        Self {
            browser,
            at: Instant::now(),
            id: id.map(|id| id.trim().to_owned()),
            tasks: cards.map(str::to_owned).collect(),
        }
    }
}
