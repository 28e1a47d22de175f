//! Reviews changes in three languages with the real tools, and looks whether each is judged as it
//! should be.
//!
//! Every change is made by a scripted agent and taken through the jobs of a worker, in its sandbox:
//! the gates on one exact commit, the base commit's results beside them, what is run again, and the
//! rest of the review. What only sometimes goes wrong is tried twenty times.

mod cases;
mod runner;

use std::io::Write as _;

use anyhow::Result;
use strum::IntoEnumIterator as _;

use self::cases::{Case, Language};
use self::runner::{ReviewRunner, ReviewTools};
use crate::support::verdict::Verdict;
use crate::support::{programs, tools};

/// Reviews changes in three languages with the real tools.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How often the cases are tried that only sometimes go wrong.
    #[arg(long, default_value_t = 20)]
    times: u32,
    /// Only this language: `rust`, `python` or `typescript`.
    #[arg(long)]
    only: Option<String>,
}

/// How many reviews were judged as they should be.
#[derive(Default)]
struct ReviewScore {
    good: u32,
    all: u32,
}

pub(crate) async fn run(arguments: &Args, quick: bool) -> Result<Verdict> {
    let inputs = programs::input("review");
    let folder = tempfile::Builder::new().prefix("tamma-review-").tempdir()?;
    let programs = ReviewTools {
        launcher: programs::beside("tamma-inside")?,
        agent: programs::beside("scripted-agent")?,
        python: tools::python_venv(&inputs.join("requirements.txt")).await?,
        modules: tools::npm_install(&inputs).await?,
    };
    let mut runner = ReviewRunner::prepare(programs, folder.path()).await?;
    let mut score = ReviewScore::default();
    let mut caches = Vec::new();
    let row = |a: &str, b: &str, c: &str, d: &str, e: &str, f: &str| {
        writeln!(std::io::stdout(), "{a:<10}  {b:<20}  {c:>7}  {d:<26}  {e:>8}  {f}")
    };
    row("language", "case", "times", "expected", "ms", "what outcome")?;
    let languages = Language::iter().filter(|language| {
        arguments.only.as_ref().is_none_or(|only| *only == language.to_string())
    });
    for language in languages {
        let shared = runner.fixture(language, &[]).await?;
        for case in Case::iter() {
            let times = if case.is_repeated() && !quick { arguments.times } else { 1 };
            let expected = language.expected(case);
            let (mut wrong, mut millis, mut good) = (Vec::new(), 0, 0);
            for _ in 0..times {
                let own = match language.before(case) {
                    more if more.is_empty() => None,
                    // A base commit of its own each time, so that its results are found out anew.
                    more => Some(runner.fixture(language, &more).await?),
                };
                let fixture = own.as_ref().unwrap_or(&shared);
                match Box::pin(runner.review(fixture, case)).await {
                    Ok(outcome) => {
                        millis += outcome.took.as_millis();
                        good += u32::from(outcome.what == expected);
                        if outcome.what != expected {
                            wrong.push(outcome.what.clone());
                            explain(&outcome)?;
                        }
                    }
                    Err(error) => wrong.push(format!("{error:#}")),
                }
            }
            let outcome =
                if wrong.is_empty() { "as expected".to_owned() } else { wrong.join("; ") };
            let (count, average) = (format!("{good}/{times}"), millis / u128::from(times.max(1)));
            let (language, case) = (language.to_string(), case.to_string());
            row(&language, &case, &count, expected, &average.to_string(), &outcome)?;
            score.good += good;
            score.all += times;
        }
        // A base commit that nobody has seen, twice.
        let fresh = runner.fixture(language, &[]).await?;
        let first = Box::pin(runner.review(&fresh, Case::CleanChange)).await?;
        let second = Box::pin(runner.review(&fresh, Case::CleanChange)).await?;
        caches.push((language, first, second));
    }
    let mut out = std::io::stdout();
    for (language, first, second) in &caches {
        writeln!(
            out,
            "{language}: a review with {} results of the base commit to find out: {} ms; with all \
             of them known: {} ms",
            first.taken(),
            first.took.as_millis(),
            second.took.as_millis()
        )?;
        score.all += 1;
        score.good += u32::from(first.taken() > 0 && second.taken() == 0);
    }
    Ok(Verdict::new(score.good == score.all, format!("{} of {}", score.good, score.all)))
}

/// Says what the gates wrote where something else outcome than was expected.
fn explain(outcome: &runner::ReviewOutcome) -> Result<()> {
    let mut out = std::io::stderr();
    for ran in &outcome.tested.gates {
        let judged = &ran.verdict;
        writeln!(
            out,
            "--- {} {} (exit {:?}): {:?}",
            judged.name, judged.status, ran.exit_code, judged
        )?;
        if ran.exit_code != Some(0) {
            writeln!(out, "{}", ran.output.trim_end())?;
        }
    }
    Ok(())
}
