//! `tamma work`: starts a worker.

use std::process::ExitCode;
use std::time::Duration;

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
    /// Seconds that running agents get to end by themselves when the worker stops
    #[arg(long, env = "TAMMA_DRAIN_SECONDS", value_name = "SECONDS", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=86_400))]
    drain_seconds: u32,
    #[command(flatten)]
    prompts: PromptArgs,
    #[command(flatten)]
    monitoring: MonitoringArgs,
}

pub(super) fn run(arguments: &WorkArgs) -> Result<ExitCode> {
    arguments.backend.servers()?;
    let data = data_folder::resolve(arguments.backend.data())?;
    data_folder::create(&data)?;
    let keys = arguments.backend.open_keys(&data)?;
    let objects = arguments.backend.objects(&data);
    let slots = usize::from(arguments.slots);
    let (prompts, backend) = (&arguments.prompts, &arguments.backend);
    let worker = roles::worker_config(&data, objects, slots, prompts, backend)?;
    let drain = Duration::from_secs(u64::from(arguments.drain_seconds));
    let worker = Some(tamma_worker::WorkerConfig { drain, ..worker });
    let monitoring = arguments.monitoring.monitoring;
    let roles = ProcessRoles { server: None, worker, sign_in_as: None, monitoring, data };
    roles::run_standalone(&arguments.backend, keys, roles)
}
