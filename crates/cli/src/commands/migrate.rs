//! `tamma migrate`: runs database migrations.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;

use super::backend_args::BackendArgs;
use crate::progress::Progress;
use crate::roles;

#[derive(Debug, Args)]
pub(super) struct MigrateArgs {
    #[command(flatten)]
    backend: BackendArgs,
}

pub(super) fn run(arguments: &MigrateArgs) -> Result<ExitCode> {
    let Some(database) = arguments.backend.database() else {
        bail!("no database configured\n  help: set --database or TAMMA_DATABASE_URL");
    };
    roles::block_on(async {
        let step = Progress::new(false).start("running database migrations");
        roles::migrate(&roles::connect_store(database).await?).await?;
        step.finish("database migrations complete");
        Ok(ExitCode::SUCCESS)
    })
}
