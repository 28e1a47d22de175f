//! `tamma completions`: completion scripts, which clap knows how to write.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::Tamma;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The shell to write for.
    shell: Shell,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    // Written to memory first: clap's generator panics when the reader of a pipe is gone.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Tamma::command(), "tamma", &mut script);
    anstream::stdout().lock().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}
