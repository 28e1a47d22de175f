//! `tamma work`: starts a worker.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::backend_args::{BackendArgs, MonitoringArgs, PromptArgs};
use crate::data_folder;
use crate::roles::{self, ProcessRoles};

#[derive(Debug, Args)]
pub(super) struct WorkArgs {
    #[command(flatten)]
    backend: BackendArgs,
    /// Number of agents that can run at once on this machine
    #[arg(long, value_name = "NUMBER", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    slots: u16,
    #[command(flatten)]
    prompts: PromptArgs,
    #[command(flatten)]
    monitoring: MonitoringArgs,
}

pub(super) fn run(arguments: &WorkArgs) -> Result<ExitCode> {
    arguments.backend.servers()?;
    let data = data_folder::resolve(arguments.backend.data())?;
    let keys = arguments.backend.open_keys(&data)?;
    let objects = arguments.backend.objects(&data);
    let slots = usize::from(arguments.slots);
    let file = arguments.backend.key_file(&data);
    let worker = roles::worker_config(&data, objects, slots, &arguments.prompts, &file)?;
    let worker = Some(worker);
    let monitoring = arguments.monitoring.monitoring;
    let roles = ProcessRoles { server: None, worker, sign_in_as: None, monitoring, data };
    roles::run_standalone(&arguments.backend, keys, roles)
}
