//! Phases that run a shell command.

use std::time::Duration;

use tamma_core::pipeline::signal::{self, PhaseSignal, SignalSource};
use tamma_engine::sandbox::{self, Network};
use tamma_engine::shell_command::ShellCommand;
use tamma_engine::worktree::Worktree;

use super::{PhaseContext, PhaseEnd, PhaseEndKind};
use crate::clock::now;
use crate::error::Error;
use crate::services::Services;
use crate::setup::{CommandPlace, TestVariables, set_up_worktree, setup_home};

/// Runs the command of a phase in the story's worktree.
pub(super) async fn run(
    services: &Services,
    ctx: &PhaseContext,
    worktree: &Worktree,
) -> Result<PhaseEnd, Error> {
    let (config, job, phase) = (&*services.config, &ctx.job, ctx.phase());
    let host = (config, &services.processes, &services.egress, &services.store);
    set_up_worktree(host, job, &ctx.project, worktree).await?;
    let kind = sandbox::choose(ctx.project.rules.engines.sandbox)
        .map_err(|error| Error::Configuration(error.to_string()))?;
    let place = CommandPlace {
        path: worktree.path().to_owned(),
        repository: worktree.repository(),
        home: setup_home(config, job.task.id),
    };
    let home = &place.home;
    tokio::fs::create_dir_all(home)
        .await
        .map_err(|error| Error::StoryFile { path: home.clone(), reason: error.to_string() })?;
    let network = if phase.network { services.egress.network(None) } else { Network::Disabled };
    let seconds =
        phase.timeout_seconds.unwrap_or(job.rules.scrum_master.task_loop.implementation_seconds());
    let command = ShellCommand {
        line: ctx.expand(phase.run.as_deref().unwrap_or_default()),
        // Agents of earlier phases have written to the worktree.
        env: place.environment(config, TestVariables::Withheld),
        time_limit: Duration::from_secs(u64::from(seconds)),
        sandbox: place.sandbox(config, &ctx.project.rules, kind, network),
    };
    let which = (job.run_id(), now());
    let ended = command.run(worktree, which, &services.processes, &job.stop).await?;
    let Some(ended) = ended else { return Err(Error::Stopped) };
    let kind = match (ended.exceeded, ended.code) {
        (Some(exceeded), _) => PhaseEndKind::Crashed(exceeded.to_string()),
        (None, _) if ended.timed_out => PhaseEndKind::TimedOut,
        (None, Some(0)) => PhaseEndKind::Signal(PhaseSignal::Success, SignalSource::Structured),
        // A script can say that it needs a person.
        (None, code) => match (signal::parse(&ended.output, &phase), code) {
            (signal @ (PhaseSignal::Blocked(_) | PhaseSignal::Failed(_)), _) => {
                PhaseEndKind::Signal(signal, SignalSource::LastLine)
            }
            (_, Some(code)) => {
                let signal = PhaseSignal::Failed(format!("exit code {code}"));
                PhaseEndKind::Signal(signal, SignalSource::Structured)
            }
            (_, None) => PhaseEndKind::Crashed("killed by a signal".to_owned()),
        },
    };
    Ok(PhaseEnd { kind, output: ended.output, usage: None, is_estimated: false })
}
