//! Reviews changes in three languages with the real tools, and compares the verdicts with the
//! expected ones.
//!
//! A scripted agent makes each change, and the jobs of a worker take it through gates and review in a
//! sandbox, including the results of the base commit and reruns. Nondeterministic cases run 20 times.

mod cases;
mod runner;

use std::io::Write as _;

use anyhow::Result;
use strum::IntoEnumIterator as _;
use tamma_testkit::programs::find_program;

use self::cases::{Case, Language};
use self::runner::{ReviewRunner, ReviewTools};
use crate::support::verdict::Verdict;
use crate::support::{programs, tools};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of repetitions of nondeterministic cases
    #[arg(long, default_value_t = 20)]
    times: u32,
    /// Review only this language: rust, python or typescript
    #[arg(long)]
    only: Option<String>,
}

/// Number of reviews with the expected verdict.
#[derive(Default)]
struct ReviewScore {
    correct: u32,
    all: u32,
}

pub(crate) async fn run(arguments: &Args, quick: bool) -> Result<Verdict> {
    let inputs = programs::input("review");
    let folder = tempfile::Builder::new().prefix("tamma-review-").tempdir()?;
    let programs = ReviewTools {
        launcher: find_program("sandbox-launcher")?,
        python: tools::python_venv(&inputs.join("requirements.txt")).await?,
        modules: tools::npm_install(&inputs).await?,
    };
    let mut runner = ReviewRunner::start(programs, folder.path()).await?;
    let mut score = ReviewScore::default();
    let mut caches = Vec::new();
    let row = |a: &str, b: &str, c: &str, d: &str, e: &str, f: &str| {
        writeln!(std::io::stdout(), "{a:<10}  {b:<20}  {c:>7}  {d:<26}  {e:>8}  {f}")
    };
    row("language", "case", "times", "expected", "ms", "outcome")?;
    let languages = Language::iter().filter(|language| {
        arguments.only.as_ref().is_none_or(|only| *only == language.to_string())
    });
    for language in languages {
        let shared = runner.create_fixture(language, &[]).await?;
        for case in Case::iter() {
            let times = if case.is_repeated() && !quick { arguments.times } else { 1 };
            let expected = language.expected(case);
            let (mut wrong, mut millis, mut correct) = (Vec::new(), 0, 0);
            for _ in 0..times {
                let own = match language.base_files(case) {
                    more if more.is_empty() => None,
                    // A new base commit each time, so that its results are not cached.
                    more => Some(runner.create_fixture(language, &more).await?),
                };
                let fixture = own.as_ref().unwrap_or(&shared);
                match Box::pin(runner.review(fixture, case)).await {
                    Ok(outcome) => {
                        millis += outcome.took.as_millis();
                        correct += u32::from(outcome.verdict == expected);
                        if outcome.verdict != expected {
                            wrong.push(outcome.verdict.clone());
                            explain(&outcome)?;
                        }
                    }
                    Err(error) => wrong.push(format!("{error:#}")),
                }
            }
            let outcome =
                if wrong.is_empty() { "as expected".to_owned() } else { wrong.join("; ") };
            let (count, average) =
                (format!("{correct}/{times}"), millis / u128::from(times.max(1)));
            let (language, case) = (language.to_string(), case.to_string());
            row(&language, &case, &count, expected, &average.to_string(), &outcome)?;
            score.correct += correct;
            score.all += times;
        }
        // The same new base commit twice, to measure the cache.
        let fresh = runner.create_fixture(language, &[]).await?;
        let first = Box::pin(runner.review(&fresh, Case::CleanChange)).await?;
        let second = Box::pin(runner.review(&fresh, Case::CleanChange)).await?;
        caches.push((language, first, second));
    }
    let mut out = std::io::stdout();
    for (language, first, second) in &caches {
        writeln!(
            out,
            "{language}: a review takes {} ms with {} results of the base commit to measure, {} ms with \
             cached results",
            first.took.as_millis(),
            first.measured(),
            second.took.as_millis()
        )?;
        score.all += 1;
        score.correct += u32::from(first.measured() > 0 && second.measured() == 0);
    }
    Ok(Verdict::new(score.correct == score.all, format!("{} of {}", score.correct, score.all)))
}

/// Prints the gates of an unexpected outcome.
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
