//! `tamma status`: what runs on this machine, and what waits.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;
use tamma_server::dto::{AgentPool, ProjectList, TaskPage};

use super::backend_args::DataFolderArgs;
use super::task::list::Pager;
use crate::client::Client;
use crate::endpoint::{self, Endpoint};
use crate::output::{self, pluralize, sanitize};
use crate::services::DataFolderLock;
use crate::{background, style};

/// Maximum number of tasks to count.
const MAX_COUNTED: usize = 500;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    folder: DataFolderArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// State of the `tamma up` in a data folder.
#[derive(Debug, Serialize)]
struct LocalStatus {
    /// `true` if the server answers.
    running: bool,
    /// Process ID; `null` if no process uses the data folder.
    pid: Option<u32>,
    /// Server URL; `null` before the server answers.
    url: Option<String>,
    /// Data folder.
    data: String,
    /// Log of the background process; `null` if there is none.
    log: Option<String>,
    /// Work of the server; `null` if it does not answer.
    work: Option<ServerWork>,
}

/// Projects, tasks and agents of the server.
#[derive(Debug, Serialize)]
struct ServerWork {
    projects: Vec<String>,
    open_tasks: usize,
    waiting_tasks: usize,
    workers_online: usize,
    active_runs: u64,
    free_slots: u64,
}

pub(super) fn run(arguments: &Args) -> Result<ExitCode> {
    let data = arguments.folder.resolve()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let status = runtime.block_on(local_status(&data));
    if arguments.json {
        output::print_json(&status)?;
    } else {
        writeln!(anstream::stdout().lock(), "{}", format_status(&status))?;
    }
    Ok(if status.running { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn local_status(data: &Path) -> LocalStatus {
    let pid = DataFolderLock::holder(data);
    // A file without a process was left by a crash.
    let endpoint = endpoint::read(data).filter(|_| pid.is_some());
    let url = endpoint.as_ref().map(|endpoint| endpoint.url.clone());
    let work = match endpoint {
        Some(endpoint) => server_work(endpoint).await.ok(),
        None => None,
    };
    let log = background::log_path(data);
    LocalStatus {
        running: work.is_some(),
        pid,
        url,
        data: data.display().to_string(),
        log: log.exists().then(|| log.display().to_string()),
        work,
    }
}

async fn server_work(endpoint: Endpoint) -> Result<ServerWork> {
    let client = Client::for_endpoint(endpoint)?;
    let ProjectList { projects } = client.get("/projects", &[]).await?;
    let pool: AgentPool = client.get("/agents", &[]).await?;
    let open = Pager { client: &client, path: "/tasks", query: vec![("state", "live")] };
    let open: TaskPage = open.fetch_up_to(MAX_COUNTED).await?;
    let waiting = Pager { client: &client, path: "/inbox", query: Vec::new() };
    let waiting: TaskPage = waiting.fetch_up_to(MAX_COUNTED).await?;
    Ok(ServerWork {
        projects: projects.into_iter().map(|project| project.name).collect(),
        open_tasks: open.tasks.len(),
        waiting_tasks: waiting.tasks.len(),
        workers_online: pool.workers.iter().filter(|worker| worker.online).count(),
        active_runs: pool.active_runs,
        free_slots: pool.free_slots,
    })
}

fn format_status(status: &LocalStatus) -> String {
    let pid = status.pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
    let mut text = match (&status.work, &status.url, status.pid) {
        (Some(_), Some(url), _) => format!("Tamma is up at {url}{pid}"),
        (_, _, Some(_)) => format!("Tamma does not answer: it is starting or stopping{pid}"),
        (_, _, None) => "Tamma is not running. Start it with `tamma up --detach`.".to_owned(),
    };
    let mut add = |name: &str, value: &str| {
        style::push_fmt(&mut text, format_args!("\n  {name:<8}  {value}"));
    };
    if let Some(work) = &status.work {
        let names: Vec<_> = work.projects.iter().map(|name| sanitize(name)).collect();
        let projects = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        add("projects", &projects);
        let waiting = match work.waiting_tasks {
            0 => String::new(),
            waiting => format!(", {waiting} waiting on a person (`tamma inbox`)"),
        };
        let open = if work.open_tasks < MAX_COUNTED { "" } else { "at least " };
        add("tasks", &format!("{open}{} open{waiting}", work.open_tasks));
        let runs = pluralize(usize::try_from(work.active_runs).unwrap_or_default(), "run");
        let free = pluralize(usize::try_from(work.free_slots).unwrap_or_default(), "slot");
        let workers = pluralize(work.workers_online, "worker");
        add("agents", &format!("{runs} active, {free} free, {workers} online"));
    }
    add("data", &status.data);
    if let Some(log) = &status.log {
        add("log", log);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(pid: Option<u32>, work: Option<ServerWork>) -> LocalStatus {
        LocalStatus {
            running: work.is_some(),
            pid,
            url: work.is_some().then(|| "http://127.0.0.1:8622".to_owned()),
            data: "/data".to_owned(),
            log: Some("/data/tamma.log".to_owned()),
            work,
        }
    }

    #[test]
    fn a_running_tamma_shows_what_waits() {
        let work = ServerWork {
            projects: vec!["api".to_owned(), "shop".to_owned()],
            open_tasks: 3,
            waiting_tasks: 1,
            workers_online: 1,
            active_runs: 1,
            free_slots: 1,
        };
        insta::assert_snapshot!(format_status(&status(Some(42), Some(work))), @r"
        Tamma is up at http://127.0.0.1:8622 (process 42)
          projects  api, shop
          tasks     3 open, 1 waiting on a person (`tamma inbox`)
          agents    1 run active, 1 slot free, 1 worker online
          data      /data
          log       /data/tamma.log
        ");
    }

    #[test]
    fn a_stopped_tamma_says_how_to_start_it() {
        insta::assert_snapshot!(format_status(&status(None, None)), @r"
        Tamma is not running. Start it with `tamma up --detach`.
          data      /data
          log       /data/tamma.log
        ");
        let starting = format_status(&status(Some(42), None));
        assert!(starting.starts_with("Tamma does not answer"), "{starting}");
    }
}
