//! Tries to get out: a hostile agent in a hostile repository, confined as agents are.
//!
//! Every attempt is first worth something: `--control` runs them with nothing in their way, and says
//! how many succeed then. What counts as success is looked at from outside: a file that is there, a
//! listener that was reached, a secret in what the agent wrote.

mod attempt;
mod files;
mod fixture;
mod machine;
mod repository;
mod rules;

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use tamma_core::rules::SandboxMode;
use tamma_engine::sandbox::{self, SandboxKind};

use self::attempt::Attempt;
use self::fixture::EscapeFixture;
use crate::support::programs;
use crate::support::verdict::Verdict;

/// The variable with a key that the worker has and agents must not.
const KEY: &str = "TAMMA_ESCAPE_KEY";

/// The key, which is nobody's.
const SECRET: &str = "sk-escape-3f9c1d7a55e24b01";

/// Tries to get out of a sandbox.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Without anything that confines, to show that the attempts are real.
    #[arg(long)]
    control: bool,
    /// With Landlock, which is used where bubblewrap cannot run. It does not stop everything.
    #[arg(long, conflicts_with = "control")]
    landlock: bool,
    /// Only attempts that have this in their name.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Prints what each attempt wrote.
    #[arg(long)]
    verbose: bool,
}

/// Gives this process a key in its environment, as a worker has one. Returns at once if it is there.
pub(crate) fn with_key() -> Result<()> {
    if std::env::var_os(KEY).is_some() {
        return Ok(());
    }
    #[expect(clippy::disallowed_methods, reason = "it becomes itself, with one variable more")]
    let failed = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(KEY, SECRET)
        .exec();
    Err(failed).context("the lab cannot start again")
}

pub(crate) async fn run(arguments: &Args) -> Result<Verdict> {
    let kind = match arguments {
        Args { control: true, .. } => SandboxKind::Off,
        Args { landlock: true, .. } => sandbox::choose(SandboxMode::Landlock)?,
        _ => sandbox::choose(SandboxMode::Bubblewrap)?,
    };
    let attempts: Vec<Attempt> = [files::all(), repository::all(), machine::all(), rules::all()]
        .into_iter()
        .flatten()
        .filter(|attempt| arguments.only.as_ref().is_none_or(|text| attempt.name.contains(text)))
        .collect();
    if attempts.is_empty() {
        bail!("there is no such attempt");
    }
    let mut out = std::io::stdout();
    writeln!(out, "{:<62} {:<14} result", "attempt", "stopped by")?;
    let mut escaped = 0;
    for attempt in &attempts {
        let fixture = EscapeFixture::set(kind, &programs::beside("tamma-inside")?)
            .await
            .context("the fixture")?;
        let escaped = attempt.run(&fixture).await.with_context(|| attempt.name.clone())?;
        escaped += usize::from(escaped);
        let by = if escaped { "nothing" } else { attempt.stopped_by };
        let result = if escaped { "GOT OUT" } else { "stopped" };
        writeln!(out, "{:<62} {by:<14} {result}", attempt.name)?;
        if arguments.verbose {
            writeln!(out, "{}", fixture.output())?;
        }
        out.flush()?;
    }
    if arguments.control {
        let figures = format!("{escaped} of {} succeed without a sandbox", attempts.len());
        return Ok(Verdict::new(true, figures));
    }
    Ok(Verdict::new(escaped == 0, format!("{escaped} of {} escaped", attempts.len())))
}
