//! Replay of stored histories, as often as a year of weekly releases would keep them.
//!
//! `just gen-histories` stores one history of each kind, and every later version must replay them. A new
//! set each week makes 52 sets in a year. The stored sets are a few days old, and copies stand for the other
//! weeks: this measures the time that the check would take, and not whether a year of versions is compatible.
#![expect(clippy::print_stdout, reason = "a measurement prints its figures")]

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tamma_flow::TaskWorkflow;
use tamma_flow::pipeline::PipelineWorkflow;
use temporalio_client::WorkflowHistory;
use temporalio_sdk::workflow_replayer::{WorkflowReplayer, WorkflowReplayerOptions};

use crate::support::bench::load::now;
use crate::support::bench::meter;
use crate::support::figures::{ms, percentile};
use crate::support::verdict::Verdict;

/// Folder of the stored histories.
const HISTORIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/worker/tests/histories");

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of sets to replay
    #[arg(long, value_name = "COUNT", default_value_t = 52, value_parser = clap::value_parser!(u32).range(1..))]
    weeks: u32,
}

pub(crate) async fn run(arguments: &Args) -> Result<Verdict> {
    println!("machine: {}", meter::machine());
    let stored = stored_histories().context("cannot read the stored histories")?;
    ensure!(!stored.is_empty(), "there are no stored histories");
    let options = WorkflowReplayerOptions::new()
        .register_workflow::<TaskWorkflow>()?
        .register_workflow::<PipelineWorkflow>()?
        .data_converter(tamma_keys::data_converter(tamma_testkit::keys::test_keys()))
        .build();
    let replayer = WorkflowReplayer::new(options)?;
    let (mut times, mut failed) = (Vec::new(), 0_usize);
    for week in 1..=arguments.weeks {
        for (name, bytes) in &stored {
            let start = now();
            let replayed = replayer.replay_workflow(WorkflowHistory::from_json(bytes)?).await;
            times.push(start.elapsed());
            if let Err(error) = replayed {
                failed += 1;
                println!("week {week}, {name}: {error}");
            }
        }
    }
    let total: Duration = times.iter().sum();
    let [p50, p99] = [50, 99].map(|percent| ms(percentile(&times, percent)));
    let bytes: usize = stored.iter().map(|(_, bytes)| bytes.len()).sum();
    println!(
        "{} histories, {} kB, replayed {} times: p50 {p50} ms, p99 {p99} ms for each",
        stored.len(),
        bytes / 1024,
        arguments.weeks
    );
    let seconds = total.as_secs_f64();
    let figures = format!("{} replays in {seconds:.1} s, {failed} failed", times.len());
    Ok(Verdict::new(failed == 0, figures))
}

/// Returns the name and content of each stored history.
fn stored_histories() -> Result<Vec<(String, Vec<u8>)>> {
    let mut stored = Vec::new();
    for entry in Path::new(HISTORIES).read_dir()? {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        stored.push((name.unwrap_or_default(), std::fs::read(&path)?));
    }
    stored.sort();
    Ok(stored)
}
