//! `tamma migrate`: runs database migrations, and finishes upgrades.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use tamma_store::{Store, UpgradeFinish};

use super::backend_args::BackendArgs;
use crate::progress::Progress;
use crate::{output, roles};

#[derive(Debug, Args)]
pub(super) struct MigrateArgs {
    #[command(flatten)]
    backend: BackendArgs,
    /// Finish an upgrade, once only this version runs
    ///
    /// New tasks then use everything that this version brings, and older programs refuse to start. Refused
    /// while a server or worker of an older version is online.
    #[arg(long)]
    finish: bool,
}

pub(super) fn run(arguments: &MigrateArgs) -> Result<ExitCode> {
    let Some(database) = arguments.backend.database() else {
        bail!("no database configured\n  help: set --database or TAMMA_DATABASE_URL");
    };
    roles::block_on(async {
        let step = Progress::new(false).start("running database migrations");
        let store = roles::connect_store(database).await?;
        roles::migrate(&store).await?;
        step.finish("database migrations complete");
        if arguments.finish {
            finish(&store).await?;
        } else if !store.is_upgrade_finished().await? {
            let mut out = anstream::stdout().lock();
            writeln!(out, "upgrade not finished: new tasks behave as before")?;
            writeln!(out, "  once only this version runs: tamma migrate --finish")?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

async fn finish(store: &Store) -> Result<()> {
    match store.finish_upgrade().await? {
        UpgradeFinish::Finished { schema } => {
            let mut out = anstream::stdout().lock();
            writeln!(out, "upgrade finished: programs need schema {schema} or newer")?;
            Ok(())
        }
        UpgradeFinish::OlderPrograms { servers, workers } => {
            let servers = servers.iter().map(|name| format!("server {name}"));
            let workers = workers.iter().map(|name| format!("worker {name}"));
            let names: Vec<String> = servers.chain(workers).collect();
            bail!(
                "cannot finish the upgrade: programs of an older version are online: {}\n  help: \
                 replace them, then try again; one that was killed counts as online for 1 min",
                output::sanitize(&names.join(", "))
            )
        }
    }
}
