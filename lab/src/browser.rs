//! Working day of a person in a real browser, with a screenshot of every page, and the times of the
//! largest pages.

use anyhow::{Context as _, Result};
use serde_json::json;
use tamma_core::ids::TaskId;
use tamma_core::task_loop::Timestamp;
use tamma_store::{EndedRun, LineKind, NewLine, NewRun, RunEnd, RunNumber, RunUpdate, Store};
use tokio::process::Command;
use uuid::Uuid;

use crate::support::verdict::Verdict;
use crate::support::{external, programs, tools};

/// Lines in one update of a run, as the run recorder of a worker sends them.
const BATCH: u64 = 500;

/// Screenshots that documents show.
const DOCUMENTED: [&str; 2] = ["board", "task"];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Replace the screenshots of the board and of a task in docs/pictures
    #[arg(long)]
    write: bool,
}

pub(crate) async fn run(arguments: &Args, quick: bool) -> Result<Verdict> {
    let folder = programs::input("browser");
    tools::npm_install(&folder).await?;
    let pictures = programs::target()?.join("pictures");
    let mut command = Command::new("node");
    command
        .arg(folder.join("day.mjs"))
        .arg(programs::folder()?)
        .arg(&pictures)
        .args(quick.then_some("--quick"));
    let verdict = external::run("browser", &mut command).await?;
    if arguments.write && verdict.passed {
        for name in DOCUMENTED {
            let taken = pictures.join(format!("readme-{name}.png"));
            let to = programs::documents().join("pictures").join(format!("{name}.png"));
            std::fs::copy(&taken, to).with_context(|| taken.display().to_string())?;
        }
    }
    Ok(verdict)
}

/// Writes a finished run with a long log to a task that has a run, with the functions of a worker.
pub(crate) async fn write_log(database: &str, task: Uuid, lines: u64) -> Result<()> {
    let store = Store::connect(database).await?;
    let task = TaskId(task);
    let latest = store.latest_run(task).await?.context("the task has no run")?;
    let at = latest.started_at;
    // After all runs of the task, whatever it does next.
    let number = RunNumber { job_number: latest.number.job_number + 1_000, attempt: 1 };
    let run = NewRun {
        task,
        number,
        at,
        agent: latest.agent,
        model: latest.model,
        tier: latest.tier,
        mode: "implement".to_owned(),
        worker: None,
    };
    store.begin_run(&run).await?;
    let mut first = 1;
    while first <= lines {
        let end = (first + BATCH).min(lines + 1);
        let lines = (first..end).map(|sequence| log_line(sequence, at)).collect();
        let update = RunUpdate { lines, ..RunUpdate::default() };
        store.append_run_update(task, number, &update).await?;
        first = end;
    }
    let ended = EndedRun { at, end: RunEnd::Finished, reason: None, usage: None, transcript: None };
    store.end_run(task, number, &ended).await?;
    store.close().await;
    Ok(())
}

/// Returns a line of a long log: most lines are tool calls with input and output, and some of them failed.
fn log_line(sequence: u64, at: Timestamp) -> NewLine {
    let call = |kind: &str, status: &str, input: String, output: String| json!({ "kind": kind, "status": status, "ms": 20, "input": input, "output": output });
    let (kind, text, data) = match sequence % 10 {
        0 | 5 => (LineKind::Said, format!("Step {sequence}: the next module."), None),
        1..=3 => {
            let path = format!("modules/m{:03}.rs", sequence % 200);
            let output = format!("pub fn total_{sequence}() {{}}\n").repeat(12);
            let data = call("read", "completed", path.clone(), output);
            (LineKind::Tool, format!("Read {path}"), Some(data))
        }
        9 => {
            let output = format!("error: module {sequence} does not round\n").repeat(12);
            let data = call("execute", "failed", "sh check.sh".to_owned(), output);
            (LineKind::Tool, "sh check.sh: failed (exit code 1)".to_owned(), Some(data))
        }
        _ => {
            let output = format!("ok {sequence}\n").repeat(20);
            let data = call("execute", "completed", "sh check.sh".to_owned(), output);
            (LineKind::Tool, "sh check.sh".to_owned(), Some(data))
        }
    };
    NewLine { sequence, at, kind, text, data }
}
