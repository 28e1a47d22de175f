//! How long a board of ten thousand tasks takes, how soon a change is in two hundred
//! open browsers, and whether they miss anything while the server is restarted.
#![expect(clippy::print_stdout, reason = "a measurement prints its figures")]
#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use chrono::{DateTime, TimeDelta};
use futures_util::StreamExt as _;
use tamma_core::actor::Actor;
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::rules::Rules;
use tamma_core::task::{Priority, Task, TaskType};
use tamma_core::task_loop::{
    Action, EventKind, Outcome, StepRecord, TaskEvent, TaskLoop, TaskReceived, begin,
};
use tamma_core::version::{Edition, FormatVersion};
use tamma_server::{ApiServer, ServerConfig};
use tamma_store::{RegisteredProject, Store};
use tamma_testkit::postgres::TestDatabase;
use temporalio_client::{Client, ClientOptions, Connection, ConnectionOptions, Url};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::support::bench::meter;
use crate::support::figures::{ms, percentile, table};
use crate::support::verdict::Verdict;

const TASKS: u128 = 10_000;
const BROWSERS: usize = 200;
const CHANGES: u128 = 20;
/// How many tasks change while the server is away: few enough that a browser gets them one by one, and
/// not the whole board anew.
const MISSED: u128 = 20;
const LOOKS: usize = 200;
/// How long everybody may take to hear of something before it counts as missing.
const LIMIT: Duration = Duration::from_secs(30);

/// What must be reached.
const BOARD: Duration = Duration::from_millis(200);
const LIVE: Duration = Duration::from_millis(300);

pub(crate) async fn run() -> Result<Verdict> {
    let built = if cfg!(debug_assertions) { "a development build" } else { "optimised" };
    println!("machine: {}; {built}", meter::machine());
    let database = TestDatabase::fresh().await?;
    let store = database.store().await?;
    let project = ProjectId(Uuid::from_u128(1));
    let known = RegisteredProject {
        id: project,
        name: "shop".to_owned(),
        repository: "/nowhere".to_owned(),
    };
    store.register_project(&known).await?;
    let rules = Rules::default();
    let begun = Instant::now();
    for number in 0..TASKS {
        write(&store, &rules, project, number).await?;
    }
    println!("{TASKS} tasks written in {} s", begun.elapsed().as_secs());
    let server = serve(&store).await?;
    let http = reqwest::Client::builder().no_proxy().build()?;
    let slowest = pages(&http, &server.url).await?;

    let mut room = Room::new(http);
    room.open(&server.url).await?;
    let median = room.live(&store, &rules).await?;
    println!("a change is in {BROWSERS} open browsers after {} ms at the median", ms(Some(median)));

    server.end().await?;
    for number in CHANGES..CHANGES + MISSED {
        pause(&store, &rules, number).await?;
    }
    let server = serve(&store).await?;
    let missing = room.restarted(&server.url).await?;
    let all = u128::try_from(BROWSERS)? * MISSED;
    println!(
        "after a restart {BROWSERS} browsers have caught up with {MISSED} changes each: {missing} of \
         {all} missing"
    );
    server.end().await?;
    store.close().await;
    let figures = format!(
        "the board takes {} ms at p95, a change {} ms at the median, {missing} changes missed",
        ms(Some(slowest)),
        ms(Some(median))
    );
    Ok(Verdict::new(slowest < BOARD && median < LIVE && missing == 0, figures))
}

/// Looks at pages, and returns the slowest 95th percentile of the board's.
async fn pages(http: &reqwest::Client, url: &str) -> Result<Duration> {
    let mut rows = vec![["page", "p50 in ms", "p95 in ms"].map(str::to_owned).to_vec()];
    let mut slowest = Duration::ZERO;
    for page in [
        "/",
        "/?project=shop",
        "/?text=part",
        "/?text=part+4711",
        "/?type=bugfix",
        "/?phase=plan",
        "/inbox",
        "/figures",
    ] {
        let mut times = Vec::new();
        for _ in 0..LOOKS {
            let begun = Instant::now();
            let response = http.get(format!("{url}{page}")).send().await?.error_for_status()?;
            let bytes = response.bytes().await?;
            times.push(begun.elapsed());
            ensure!(bytes.len() > 1_000, "{page} is empty");
        }
        let p95 = percentile(&times, 95);
        rows.push(vec![page.to_owned(), ms(percentile(&times, 50)), ms(p95)]);
        if page.starts_with("/?") || page == "/" {
            slowest = slowest.max(p95.unwrap_or_default());
        }
    }
    println!("\n{}", table(&rows));
    Ok(slowest)
}

/// A server that runs.
struct Running {
    url: String,
    stop: CancellationToken,
    served: tokio::task::JoinHandle<Result<(), tamma_server::Error>>,
}

impl Running {
    async fn end(self) -> Result<()> {
        self.stop.cancel();
        Ok(self.served.await??)
    }
}

/// A server for it all.
async fn serve(store: &Store) -> Result<Running> {
    let address = tamma_testkit::temporal::server_address()?;
    let address: Url = format!("http://{address}").parse()?;
    let options = ConnectionOptions::new(address).identity("bench").build();
    let connection = Connection::connect(options).await?;
    let temporal = Client::new(connection, ClientOptions::new("default").build())?;
    let config = ServerConfig {
        address: "127.0.0.1:0".parse()?,
        token: None,
        environment: BTreeMap::new(),
        workflow_tuning: tamma_flow::WorkflowTuning::default(),
        objects: tamma_store::ObjectStorage::new("/nowhere"),
        inspect_repository: None,
        public_url: None,
        local_person: Some("Ada".parse()?),
        terminal: None,
    };
    let server = ApiServer::bind(config, store.clone(), temporal).await?;
    let (url, stop) = (format!("http://{}", server.address()), CancellationToken::new());
    Ok(Running { url, stop: stop.clone(), served: tokio::spawn(server.run(stop)) })
}

fn id(number: u128) -> TaskId {
    TaskId(Uuid::from_u128((0x0192_a000_0000_7000_8000 << 48) + number))
}

/// Pauses the task of a number: one of those that were not admitted.
async fn pause(store: &Store, rules: &Rules, number: u128) -> Result<()> {
    let machine = store.task(id(1 + 3 * number)).await?.task_loop.context("unreadable")?;
    take(store, rules, machine, 1, EventKind::ActionRequested(Action::Pause)).await?;
    Ok(())
}

/// Writes one task, a few steps along its way.
async fn write(store: &Store, rules: &Rules, project: ProjectId, number: u128) -> Result<()> {
    let types = [TaskType::Feature, TaskType::Bugfix, TaskType::Refactor, TaskType::Docs];
    let task = Task {
        // In the order of time, as real ones are.
        id: id(number),
        project,
        title: format!("Round totals half to even, part {number} of many"),
        description: "The receipt and the ledger differ by a cent.".to_owned(),
        r#type: types[usize::try_from(number % 4)?],
        priority: Priority::Medium,
        acceptance_criteria: Vec::new(),
        labels: vec!["money".to_owned()],
        depends_on: Vec::new(),
        suggested_agent: None,
        issue_url: None,
        metadata: BTreeMap::new(),
    };
    let at =
        DateTime::UNIX_EPOCH + TimeDelta::days(20_700) + TimeDelta::seconds(i64::try_from(number)?);
    let received = TaskReceived {
        task: task.id,
        project,
        priority: task.priority,
        at,
        by: Actor::Tamma,
        submitted_plan: None,
        edition: Edition::NEWEST,
    };
    let first = begin(&received, rules);
    store.insert_task(&task, &first, rules).await?;
    let mut machine = first.next;
    // A third is admitted, and of those a third has ended: cancelled, as people do.
    if number.is_multiple_of(3) {
        machine = take(
            store,
            rules,
            machine,
            1,
            EventKind::JobFinished { job_number: 1, usage: None, outcome: Outcome::Admitted },
        )
        .await?;
        if number.is_multiple_of(9) {
            let reason = "no longer wanted".parse()?;
            take(store, rules, machine, 2, EventKind::ActionRequested(Action::Cancel { reason }))
                .await?;
        }
    }
    Ok(())
}

async fn take(
    store: &Store,
    rules: &Rules,
    machine: TaskLoop,
    number: u64,
    what: EventKind,
) -> Result<TaskLoop> {
    let by = match &what {
        EventKind::ActionRequested(_) => Actor::Person("Ada".parse()?),
        _ => Actor::Tamma,
    };
    let event = TaskEvent { format: FormatVersion, at: machine.since, by, kind: what };
    let step =
        tamma_core::step(&machine, &event, rules).map_err(|error| anyhow::anyhow!("{error}"))?;
    store.save_steps(&[StepRecord::new(number, event.at, step.clone())], rules).await?;
    Ok(step.next)
}

/// Browsers that show the board.
struct Room {
    http: reqwest::Client,
    /// The last message that each has seen.
    seen: BTreeMap<usize, String>,
    told: mpsc::UnboundedSender<Heard>,
    heard: mpsc::UnboundedReceiver<Heard>,
}

/// A message that a browser got.
struct Heard {
    browser: usize,
    at: Instant,
    id: Option<String>,
    /// The tasks whose cards are in it.
    tasks: BTreeSet<String>,
}

impl Room {
    fn new(http: reqwest::Client) -> Self {
        let (told, heard) = mpsc::unbounded_channel();
        Self { http, seen: BTreeMap::new(), told, heard }
    }

    /// Opens the board in every browser, which goes on where it was.
    async fn open(&mut self, url: &str) -> Result<()> {
        for browser in 0..BROWSERS {
            let mut request = self.http.get(format!("{url}/live/board"));
            if let Some(seen) = self.seen.get(&browser) {
                request = request.header("last-event-id", seen);
            }
            let response = request.send().await?.error_for_status()?;
            let told = self.told.clone();
            tokio::spawn(async move {
                let (mut bytes, mut text) = (response.bytes_stream(), String::new());
                while let Some(Ok(part)) = bytes.next().await {
                    text.push_str(&String::from_utf8_lossy(&part));
                    while let Some((message, rest)) = text.split_once("\n\n") {
                        // Nobody listens once it is over.
                        drop(told.send(Heard::read(browser, message)));
                        text = rest.to_owned();
                    }
                }
            });
        }
        Ok(())
    }

    async fn next(&mut self) -> Result<Heard> {
        let heard = tokio::time::timeout(LIMIT, self.heard.recv()).await;
        let heard = heard.context("not every browser was told")?.context("nobody listens")?;
        if let Some(id) = &heard.id {
            self.seen.insert(heard.browser, id.clone());
        }
        Ok(heard)
    }

    /// How long a change takes to be in every open browser, at the median of all of them.
    async fn live(&mut self, store: &Store, rules: &Rules) -> Result<Duration> {
        let mut times = Vec::new();
        for number in 0..CHANGES {
            let task = id(1 + 3 * number).0.to_string();
            let begun = Instant::now();
            pause(store, rules, number).await?;
            let mut told = BTreeSet::new();
            while told.len() < BROWSERS {
                let heard = self.next().await?;
                if heard.tasks.contains(&task) && told.insert(heard.browser) {
                    times.push(heard.at - begun);
                }
            }
        }
        percentile(&times, 50).context("no figure")
    }

    /// Comes back to a new server. Returns how many of the changes made meanwhile did not arrive.
    async fn restarted(&mut self, url: &str) -> Result<usize> {
        let missed = (CHANGES..CHANGES + MISSED).map(|number| id(1 + 3 * number).0.to_string());
        let mut open: BTreeSet<(usize, String)> = missed
            .flat_map(|task| (0..BROWSERS).map(move |browser| (browser, task.clone())))
            .collect();
        self.open(url).await?;
        let all = async {
            while !open.is_empty() {
                let heard = self.next().await?;
                for task in heard.tasks {
                    open.remove(&(heard.browser, task));
                }
            }
            Ok(())
        };
        // A stream that has nothing to tell says so now and then, so this has a limit of its own.
        match tokio::time::timeout(LIMIT, all).await {
            Ok(told) => told.map(|()| 0),
            Err(_) => Ok(open.len()),
        }
    }
}

impl Heard {
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
