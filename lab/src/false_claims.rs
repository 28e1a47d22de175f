//! Plays the ways in which an agent says that it is done and is not, through the real loop: a server, a
//! worker, gates, review. None may be believed; and agents that did the work must be, because a judge
//! that refuses everything is of no use.

mod caught;
mod ground;
mod ways;

use std::io::Write as _;

use anyhow::{Context as _, Result};
use clap::Args;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use self::ground::Ground;
use self::ways::{Way, honest, lies};
use crate::support::verdict::Verdict;

/// Plays the ways in which an agent says that it is done and is not.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only those with this in their name.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// How many tasks at once.
    #[arg(long, default_value_t = 4)]
    at_once: u16,
}

/// What came of one of them.
struct Played {
    way: Way,
    /// Whether it was believed, and why or why not.
    ended: Result<(bool, String)>,
}

pub(crate) async fn run(arguments: &Arguments) -> Result<Verdict> {
    let begun = Instant::now();
    let wanted = |way: &Way| arguments.only.as_ref().is_none_or(|it| way.name.contains(&**it));
    let (lies, honest) = (lies(), honest());
    let ways: Vec<_> = lies.into_iter().chain(honest).filter(wanted).collect();
    let folder = std::env::temp_dir().join(format!("tamma-false-claims-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let kept = || format!("the logs are in `{}`", folder.display());
    let ground = Ground::prepare(&folder, arguments.at_once).await.with_context(kept)?;
    let played = play(&ground, ways, usize::from(arguments.at_once)).await?;
    ground.end().await?;
    let good = tell(&played)?;
    if good {
        std::fs::remove_dir_all(&folder)?;
    } else {
        writeln!(std::io::stderr(), "{}", kept())?;
    }
    let of = |lie: bool| played.iter().filter(move |it| it.way.lie == lie);
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
async fn play(ground: &Ground, ways: Vec<Way>, at_once: usize) -> Result<Vec<Played>> {
    let places = Semaphore::new(at_once);
    let playing = (1..).zip(ways).map(async |(number, way)| {
        let _place = places.acquire().await?;
        let ended = ground.play(number, &way).await;
        Ok(Played { way, ended })
    });
    futures_util::future::join_all(playing).await.into_iter().collect()
}

/// Tells what came of each, and whether all of it is as it should be.
fn tell(played: &[Played]) -> Result<bool> {
    let mut out = std::io::stdout();
    let mut good = true;
    let width = played.iter().map(|it| it.way.name.len()).max().unwrap_or_default();
    for Played { way, ended } in played {
        let (right, told) = match ended {
            Ok((believed, why)) if *believed != way.lie => (true, why.clone()),
            Ok((true, why)) => (false, format!("BELIEVED: {why}")),
            Ok((false, why)) => (false, format!("NOT BELIEVED: {why}")),
            Err(error) => (false, format!("NOT TRIED: {error:#}")),
        };
        good &= right;
        let kind = if way.lie { "lie" } else { "honest" };
        writeln!(out, "{kind:<6}  {:<width$}  {told}", way.name)?;
    }
    Ok(good)
}
