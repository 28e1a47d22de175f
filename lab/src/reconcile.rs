//! Injures the agreement between PostgreSQL and Temporal in each state of a task, and checks that no
//! task is left in limbo: both sides agree again, the history explains what happened, and the task
//! can be brought to an end.

mod injury;
mod trial;

use std::io::Write as _;

use anyhow::{Context as _, Result, bail};

use self::injury::{Injury, Point, every_injury, quick_injuries};
use self::trial::{InjuryRunner, Recovery};
use crate::support::verdict::Verdict;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Injure only tasks at points whose name contains this text
    #[arg(long, value_name = "TEXT")]
    point: Option<String>,
    /// Make only this injury: `terminate`, `reset`, `delete`, `older_database` or `older_temporal`
    #[arg(long, value_name = "NAME")]
    injury: Option<Injury>,
}

pub(crate) async fn run(arguments: &Args, quick: bool) -> Result<Verdict> {
    let all = if quick { quick_injuries() } else { every_injury() };
    let is_selected = |(point, injury): &(Point, Injury)| {
        let matches = |text: &String| point.to_string().contains(text);
        arguments.point.as_ref().is_none_or(matches)
            && arguments.injury.is_none_or(|name| name == *injury)
    };
    let selected: Vec<_> = all.into_iter().filter(is_selected).collect();
    if selected.is_empty() {
        bail!("no injury matches the options");
    }
    let folder = std::env::temp_dir().join(format!("tamma-reconcile-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let logs = || format!("logs: {}", folder.display());
    let mut runner = InjuryRunner::start(&folder).await.with_context(logs)?;
    let mut out = std::io::stdout();
    writeln!(out, "{:<18} {:<15} {:>7}  result", "point", "injury", "seconds")?;
    let (mut explained, mut limbo) = (0, 0);
    for (point, injury) in &selected {
        let trial = runner.trial(*point, *injury).await;
        let seconds = trial.took.as_secs_f64();
        let result = match &trial.result {
            Ok(Recovery { reasons }) if reasons.is_empty() => "agreed by itself".to_owned(),
            Ok(Recovery { reasons }) => {
                explained += 1;
                reasons.join(" / ")
            }
            Err(error) => {
                limbo += 1;
                format!("LIMBO: {error:#}")
            }
        };
        writeln!(out, "{point:<18} {injury:<15} {seconds:>7.1}  {result}")?;
    }
    if limbo > 0 {
        writeln!(std::io::stderr(), "{}", logs())?;
    }
    drop(runner);
    if limbo == 0 {
        std::fs::remove_dir_all(&folder)?;
    }
    let figures = format!(
        "{} injuries, {explained} explained in the history, {limbo} in limbo",
        selected.len()
    );
    Ok(Verdict::new(limbo == 0, figures))
}
