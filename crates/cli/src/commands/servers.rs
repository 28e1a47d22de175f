//! `tamma serve`, `tamma work` and `tamma migrate`: separate processes for a team's servers.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use tokio_util::sync::CancellationToken;

use super::backend_args::BackendArgs;
use super::up::ListenArgs;
use crate::data_folder;
use crate::progress::Progress;
use crate::roles::{self, Backends, ProcessRoles};

#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    backend: BackendArgs,
    #[command(flatten)]
    listen: ListenArgs,
}

#[derive(Debug, Args)]
pub(super) struct WorkArgs {
    #[command(flatten)]
    backend: BackendArgs,
    /// Number of agents that can run at once on this machine
    #[arg(long, value_name = "NUMBER", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    slots: u16,
}

#[derive(Debug, Args)]
pub(super) struct MigrateArgs {
    #[command(flatten)]
    backend: BackendArgs,
}

pub(super) fn serve(arguments: &ServeArgs) -> Result<ExitCode> {
    let data = data_folder::resolve(arguments.backend.data())?;
    std::fs::create_dir_all(&data)?;
    let server = Some(arguments.listen.server_config(arguments.backend.objects(&data)));
    run_roles(&arguments.backend, ProcessRoles { server, worker: None, data })
}

pub(super) fn work(arguments: &WorkArgs) -> Result<ExitCode> {
    let data = data_folder::resolve(arguments.backend.data())?;
    let worker = Some(roles::worker_config(
        &data,
        arguments.backend.objects(&data),
        usize::from(arguments.slots),
    ));
    run_roles(&arguments.backend, ProcessRoles { server: None, worker, data })
}

fn run_roles(given: &BackendArgs, parts: ProcessRoles) -> Result<ExitCode> {
    if let Some(config) = &parts.server {
        config.check()?;
    }
    let (Some(database), Some(temporal)) = (given.database(), given.temporal()) else {
        bail!(
            "no servers configured\n  help: set `--database` (TAMMA_DATABASE_URL) and `--temporal` \
             (TAMMA_TEMPORAL_ADDRESS), or use `tamma up`, which starts private ones"
        );
    };
    roles::block_on(async {
        let stop = CancellationToken::new();
        roles::cancel_on_signal(&stop)?;
        let backends = Backends::connect(database, temporal, Progress::new(false)).await?;
        parts
            .run(&backends, &stop, |url| {
                let mut out = anstream::stdout().lock();
                match url {
                    Some(url) => writeln!(out, "serving at {url}")?,
                    None => writeln!(out, "working")?,
                }
                Ok(())
            })
            .await
    })?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn migrate(arguments: &MigrateArgs) -> Result<ExitCode> {
    let Some(database) = arguments.backend.database() else {
        bail!("no database configured\n  help: set `--database` or TAMMA_DATABASE_URL");
    };
    roles::block_on(async {
        let step = Progress::new(false).start("running database migrations");
        roles::migrate(&roles::connect_store(database).await?).await?;
        step.finish("database migrations complete");
        Ok(ExitCode::SUCCESS)
    })
}
