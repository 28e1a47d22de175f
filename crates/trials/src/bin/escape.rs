//! Tries to get out: a hostile agent in a hostile repository, confined as agents are.
//!
//! Every attempt is first worth something: `--control` runs them with nothing in their way, and says
//! how many succeed then. What counts as success is looked at from outside: a file that is there, a
//! listener that was reached, a secret in what the agent wrote.

#[path = "escape/attempt.rs"]
mod attempt;
#[path = "escape/files.rs"]
mod files;
#[path = "escape/machine.rs"]
mod machine;
#[path = "escape/repository.rs"]
mod repository;
#[path = "escape/rules.rs"]
mod rules;
#[path = "escape/scene.rs"]
mod scene;

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use tamma_core::rules::Sandbox;
use tamma_engine::confine::{self, Kind};

use crate::attempt::Attempt;
use crate::scene::Scene;

/// The variable with a key that the worker has and agents must not.
const KEY: &str = "TAMMA_ESCAPE_KEY";

/// The key, which is nobody's.
const SECRET: &str = "sk-escape-3f9c1d7a55e24b01";

/// Tries to get out of a cage.
#[derive(Debug, Parser)]
#[command(name = "escape")]
struct Arguments {
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

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    if std::env::var_os(KEY).is_none() {
        // The process that plays the worker has a key in its environment, as a worker has.
        #[expect(clippy::disallowed_methods, reason = "it becomes itself, with one variable more")]
        let failed = Command::new(std::env::current_exe()?)
            .args(std::env::args_os().skip(1))
            .env(KEY, SECRET)
            .exec();
        return Err(failed).context("cannot start again");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(&arguments))
}

async fn run(arguments: &Arguments) -> Result<ExitCode> {
    let kind = match arguments {
        Arguments { control: true, .. } => Kind::Off,
        Arguments { landlock: true, .. } => confine::choose(Sandbox::Landlock)?,
        _ => confine::choose(Sandbox::Bubblewrap)?,
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
        let scene = Scene::set(kind, &beside("tamma-inside")?).await.context("the scene")?;
        let got_out = attempt.play(&scene).await.with_context(|| attempt.name.clone())?;
        escaped += usize::from(got_out);
        let by = if got_out { "nothing" } else { attempt.stopped_by };
        let result = if got_out { "GOT OUT" } else { "stopped" };
        writeln!(out, "{:<62} {by:<14} {result}", attempt.name)?;
        if arguments.verbose {
            writeln!(out, "{}", scene.said())?;
        }
        out.flush()?;
    }
    if arguments.control {
        writeln!(out, "control: {escaped} of {} succeed without confinement", attempts.len())?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(out, "escape: {escaped} of {}", attempts.len())?;
    Ok(if escaped == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A program that is built with this one.
fn beside(name: &str) -> Result<PathBuf> {
    let here = std::env::current_exe()?;
    let found = here.parent().unwrap_or(Path::new(".")).join(name);
    if !found.is_file() {
        bail!("`{}` is not built: run `cargo build --workspace --bins`", found.display());
    }
    Ok(found)
}
