//! `tamma serve`: starts the API server.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::backend_args::BackendArgs;
use super::up::ListenArgs;
use crate::data_folder;
use crate::roles::{self, ProcessRoles};

#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    backend: BackendArgs,
    #[command(flatten)]
    listen: ListenArgs,
}

pub(super) fn run(arguments: &ServeArgs) -> Result<ExitCode> {
    let data = data_folder::resolve(arguments.backend.data())?;
    std::fs::create_dir_all(&data)?;
    let server = Some(arguments.listen.server_config(arguments.backend.objects(&data)));
    roles::run_standalone(&arguments.backend, ProcessRoles { server, worker: None, data })
}
