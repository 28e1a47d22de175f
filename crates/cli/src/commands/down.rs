//! `tamma down`: stops the `tamma up` of this machine.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;

use super::backend_args::DataFolderArgs;
use crate::background;
use crate::progress::Progress;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    folder: DataFolderArgs,
}

pub(super) fn run(arguments: &Args) -> Result<ExitCode> {
    let data = arguments.folder.resolve()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let step = Progress::new(false).start("stopping Tamma");
    let stopped = runtime.block_on(background::stop(&data));
    drop(step);
    let mut out = anstream::stdout().lock();
    match stopped? {
        Some(pid) => {
            writeln!(out, "Stopped Tamma (process {pid}). Tasks resume at the next start.")?;
        }
        None => writeln!(out, "Tamma is not running in {}.", data.display())?,
    }
    Ok(ExitCode::SUCCESS)
}
