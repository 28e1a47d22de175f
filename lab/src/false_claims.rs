//! Plays the claims in which an agent says that it is done and is not, through the real loop: a server, a
//! worker, gates, review. None may be believed; and agents that did the work must be, because a judge
//! that refuses everything is of no use.

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

/// Plays the claims in which an agent says that it is done and is not.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only those with this in their name.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// How many tasks at once.
    #[arg(long, default_value_t = 4)]
    at_once: u16,
}

/// What came of one of them.
struct ClaimOutcome {
    claim: Claim,
    /// Whether it was believed, and why or why not.
    ended: Result<(bool, String)>,
}

pub(crate) async fn run(arguments: &Args) -> Result<Verdict> {
    let begun = Instant::now();
    let wanted =
        |claim: &Claim| arguments.only.as_ref().is_none_or(|it| claim.name.contains(&**it));
    let (lies, honest) = (false_claims(), honest_claims());
    let claims: Vec<_> = lies.into_iter().chain(honest).filter(wanted).collect();
    let folder = std::env::temp_dir().join(format!("tamma-false-claims-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let kept = || format!("the logs are in `{}`", folder.display());
    let runner = ClaimRunner::prepare(&folder, arguments.at_once).await.with_context(kept)?;
    let outcomes = play(&runner, claims, usize::from(arguments.at_once)).await?;
    runner.stop().await?;
    let good = tell(&outcomes)?;
    if good {
        std::fs::remove_dir_all(&folder)?;
    } else {
        writeln!(std::io::stderr(), "{}", kept())?;
    }
    let of = |lie: bool| outcomes.iter().filter(move |it| it.claim.is_false == lie);
    let believed = |lie| of(lie).filter(|it| matches!(it.ended, Ok((true, _)))).count();
    let figures = format!(
        "{} of {} false claims believed, {} of {} honest ones, in {} s",
        believed(true),
        of(true).count(),
        believed(false),
        of(false).count(),
        begun.elapsed().as_secs()
    );
    Ok(Verdict::new(good, figures))
}

/// Plays all of them, some at once, and returns them in their order.
async fn play(
    runner: &ClaimRunner,
    claims: Vec<Claim>,
    at_once: usize,
) -> Result<Vec<ClaimOutcome>> {
    let places = Semaphore::new(at_once);
    let playing = (1..).zip(claims).map(async |(number, claim)| {
        let _place = places.acquire().await?;
        let ended = runner.play(number, &claim).await;
        Ok(ClaimOutcome { claim, ended })
    });
    futures_util::future::join_all(playing).await.into_iter().collect()
}

/// Tells what came of each, and whether all of it is as it should be.
fn tell(outcomes: &[ClaimOutcome]) -> Result<bool> {
    let mut out = std::io::stdout();
    let mut good = true;
    let width = outcomes.iter().map(|it| it.claim.name.len()).max().unwrap_or_default();
    for ClaimOutcome { claim, ended } in outcomes {
        let (right, told) = match ended {
            Ok((believed, why)) if *believed != claim.is_false => (true, why.clone()),
            Ok((true, why)) => (false, format!("BELIEVED: {why}")),
            Ok((false, why)) => (false, format!("NOT BELIEVED: {why}")),
            Err(error) => (false, format!("NOT TRIED: {error:#}")),
        };
        good &= right;
        let kind = if claim.is_false { "lie" } else { "honest" };
        writeln!(out, "{kind:<6}  {:<width$}  {told}", claim.name)?;
    }
    Ok(good)
}
