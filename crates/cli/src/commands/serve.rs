//! `tamma serve`: starts the API server.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::backend_args::{BackendArgs, MonitoringArgs};
use super::up::ListenArgs;
use crate::roles::{self, ProcessRoles};
use crate::{data_folder, operator_file};

#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    backend: BackendArgs,
    #[command(flatten)]
    listen: ListenArgs,
    #[command(flatten)]
    monitoring: MonitoringArgs,
}

pub(super) fn run(arguments: &ServeArgs) -> Result<ExitCode> {
    arguments.backend.servers()?;
    let data = data_folder::resolve(arguments.backend.data())?;
    data_folder::create(&data)?;
    let operator = operator_file::read(&data)?.unwrap_or_default();
    let keys = arguments.backend.open_keys(&data)?;
    let objects = arguments.backend.objects(&data);
    let server = Some(arguments.listen.server_config(&data, objects, operator, keys.clone())?);
    let monitoring = arguments.monitoring.monitoring;
    let roles = ProcessRoles { server, worker: None, sign_in_as: None, monitoring, data };
    roles::run_standalone(&arguments.backend, keys, roles)
}
