//! Runs agents that claim to be done and are not, through the real loop with gates and review.
//!
//! No false claim may be believed. Honest claims must be, because a review that refuses everything is
//! useless.

mod claims;
mod rejection;
mod runner;

use std::io::Write as _;

use anyhow::{Context as _, Result};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use self::claims::{Claim, false_claims, honest_claims};
use self::runner::ClaimRunner;
use crate::support::verdict::Verdict;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run only claims whose name contains this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Number of concurrent tasks
    #[arg(long, default_value_t = 4)]
    at_once: u16,
}

/// Outcome of a claim.
struct ClaimOutcome {
    claim: Claim,
    /// `true` if the claim was believed, with the reason.
    result: Result<(bool, String)>,
}

pub(crate) async fn run(arguments: &Args) -> Result<Verdict> {
    let start = Instant::now();
    let is_selected =
        |claim: &Claim| arguments.only.as_ref().is_none_or(|it| claim.name.contains(&**it));
    let claims: Vec<_> =
        false_claims().into_iter().chain(honest_claims()).filter(is_selected).collect();
    let folder = std::env::temp_dir().join(format!("tamma-false-claims-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let logs = || format!("logs: {}", folder.display());
    let runner = ClaimRunner::start(&folder, arguments.at_once).await.with_context(logs)?;
    let outcomes = run_all(&runner, claims, usize::from(arguments.at_once)).await?;
    runner.stop().await?;
    let passed = print(&outcomes)?;
    if passed {
        std::fs::remove_dir_all(&folder)?;
    } else {
        writeln!(std::io::stderr(), "{}", logs())?;
    }
    let of = |is_false: bool| outcomes.iter().filter(move |it| it.claim.is_false == is_false);
    let believed = |is_false| of(is_false).filter(|it| matches!(it.result, Ok((true, _)))).count();
    let figures = format!(
        "{} of {} false claims believed, {} of {} honest ones, in {} s",
        believed(true),
        of(true).count(),
        believed(false),
        of(false).count(),
        start.elapsed().as_secs()
    );
    Ok(Verdict::new(passed, figures))
}

/// Runs all claims, some concurrently, and returns the outcomes in order.
async fn run_all(
    runner: &ClaimRunner,
    claims: Vec<Claim>,
    at_once: usize,
) -> Result<Vec<ClaimOutcome>> {
    let permits = Semaphore::new(at_once);
    let running = (1..).zip(claims).map(async |(number, claim)| {
        let _permit = permits.acquire().await?;
        let result = runner.run(number, &claim).await;
        Ok(ClaimOutcome { claim, result })
    });
    futures_util::future::join_all(running).await.into_iter().collect()
}

/// Prints the outcomes. Returns `true` if all of them are as expected.
fn print(outcomes: &[ClaimOutcome]) -> Result<bool> {
    let mut out = std::io::stdout();
    let mut passed = true;
    let width = outcomes.iter().map(|it| it.claim.name.len()).max().unwrap_or_default();
    for ClaimOutcome { claim, result } in outcomes {
        let (is_expected, text) = match result {
            Ok((believed, reason)) if *believed != claim.is_false => (true, reason.clone()),
            Ok((true, reason)) => (false, format!("BELIEVED: {reason}")),
            Ok((false, reason)) => (false, format!("NOT BELIEVED: {reason}")),
            Err(error) => (false, format!("NOT RUN: {error:#}")),
        };
        passed &= is_expected;
        let kind = if claim.is_false { "false" } else { "honest" };
        writeln!(out, "{kind:<6}  {:<width$}  {text}", claim.name)?;
    }
    Ok(passed)
}
