//! `tamma serve`, `tamma work` and `tamma migrate`: the roles apart, for a team's machines.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use tokio_util::sync::CancellationToken;

use super::given::Given;
use super::up::Listen;
use crate::folders;
use crate::progress::Progress;
use crate::roles::{self, Backends, Roles};

#[derive(Debug, Args)]
pub(super) struct Serve {
    #[command(flatten)]
    given: Given,
    #[command(flatten)]
    listen: Listen,
}

#[derive(Debug, Args)]
pub(super) struct Work {
    #[command(flatten)]
    given: Given,
    /// How many agents may run at once on this machine.
    #[arg(long, value_name = "NUMBER", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    slots: u16,
}

#[derive(Debug, Args)]
pub(super) struct Migrate {
    #[command(flatten)]
    given: Given,
}

pub(super) fn serve(arguments: &Serve) -> Result<ExitCode> {
    let data = folders::data(arguments.given.data())?;
    std::fs::create_dir_all(&data)?;
    let server = Some(arguments.listen.config(arguments.given.objects(&data)));
    play(&arguments.given, Roles { server, worker: None, data })
}

pub(super) fn work(arguments: &Work) -> Result<ExitCode> {
    let data = folders::data(arguments.given.data())?;
    let worker =
        Some(roles::worker(&data, arguments.given.objects(&data), usize::from(arguments.slots)));
    play(&arguments.given, Roles { server: None, worker, data })
}

fn play(given: &Given, parts: Roles) -> Result<ExitCode> {
    if let Some(config) = &parts.server {
        config.check()?;
    }
    let (Some(database), Some(temporal)) = (given.database(), given.temporal()) else {
        bail!(
            "name the servers that this machine works with: `--database` (TAMMA_DATABASE_URL) and \
             `--temporal` (TAMMA_TEMPORAL_ADDRESS); `tamma up` starts private ones"
        );
    };
    roles::run(async {
        let stop = CancellationToken::new();
        roles::until_asked_to_end(&stop)?;
        let backends = Backends::reach(database, temporal, Progress::new(false)).await?;
        parts
            .play(&backends, &stop, |url| {
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

pub(super) fn migrate(arguments: &Migrate) -> Result<ExitCode> {
    let Some(database) = arguments.given.database() else {
        bail!("name the database: `--database` or TAMMA_DATABASE_URL");
    };
    roles::run(async {
        let step = Progress::new(false).begin("bringing the tables to their newest form");
        roles::prepare(&roles::store(database).await?).await?;
        step.done("the tables have their newest form");
        Ok(ExitCode::SUCCESS)
    })
}
