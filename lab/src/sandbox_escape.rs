//! Runs a hostile agent in a hostile repository, in the same sandbox as other agents.
//!
//! `--control` runs the attempts without a sandbox and counts how many succeed, which shows that they
//! are real. Success is judged from outside: a file exists, a listener was reached, or the output has a
//! secret.

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
use tamma_testkit::programs::find_program;

use self::attempt::Attempt;
use self::fixture::EscapeFixture;
use crate::support::verdict::Verdict;

/// Variable with a key that the worker has and agents must not see.
const KEY: &str = "TAMMA_ESCAPE_KEY";

/// Invented key.
const SECRET: &str = "sk-escape-3f9c1d7a55e24b01";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run without a sandbox, to show that the attempts are real
    #[arg(long)]
    control: bool,
    /// Use Landlock, the fallback for bubblewrap; it does not stop every attempt
    #[arg(long, conflicts_with = "control")]
    landlock: bool,
    /// Run only attempts whose name contains this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Print the output of each attempt
    #[arg(long)]
    verbose: bool,
}

/// Restarts this process with a key in its environment, like a worker's.
///
/// Returns at once if the key is set.
pub(crate) fn restart_with_key() -> Result<()> {
    if std::env::var_os(KEY).is_some() {
        return Ok(());
    }
    #[expect(clippy::disallowed_methods, reason = "restarts itself with one more variable")]
    let failed = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(KEY, SECRET)
        .exec();
    Err(failed).context("cannot restart the lab")
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
        bail!("no attempt matches the options");
    }
    let mut out = std::io::stdout();
    writeln!(out, "{:<62} {:<14} result", "attempt", "stopped by")?;
    let mut escapes = 0;
    for attempt in &attempts {
        let fixture = EscapeFixture::new(kind, &find_program("sandbox-launcher")?)
            .await
            .context("cannot create the fixture")?;
        let escaped = attempt.run(&fixture).await.with_context(|| attempt.name.clone())?;
        escapes += usize::from(escaped);
        let by = if escaped { "nothing" } else { attempt.stopped_by };
        let result = if escaped { "ESCAPED" } else { "stopped" };
        writeln!(out, "{:<62} {by:<14} {result}", attempt.name)?;
        if arguments.verbose {
            writeln!(out, "{}", fixture.output())?;
        }
        out.flush()?;
    }
    if arguments.control {
        let figures = format!("{escapes} of {} succeed without a sandbox", attempts.len());
        return Ok(Verdict::new(true, figures));
    }
    Ok(Verdict::new(escapes == 0, format!("{escapes} of {} escaped", attempts.len())))
}
