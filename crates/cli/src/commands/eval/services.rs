//! Tamma for the time of an evaluation: the services of `tamma up`, in the data folder of the output.

use anyhow::{Context as _, Result, anyhow};
use tamma_core::operator::OperatorConfig;
use tamma_eval::CaseKey;
use tamma_server::ServerConfig;
use tamma_worker::WorkerConfig;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{Evaluation, case_run, clean_environment};
use crate::client::Client;
use crate::commands::backend_args::{BackendArgs, PromptArgs};
use crate::commands::up::{ListenArgs, PrivateServices};
use crate::endpoint::Endpoint;
use crate::operator_file;
use crate::progress::Progress;
use crate::roles::{self, Backends, ProcessRoles, SchemaStep};
use crate::services::DataFolderLock;
use crate::temporal_connection::TemporalTarget;

/// Number of agents that run at once. Cases run one after another.
const SLOTS: usize = 1;

/// Starts Tamma, runs the cases one after another, and stops it.
pub(super) async fn run_cases(evaluation: &Evaluation<'_>, cases: Vec<CaseKey>) -> Result<()> {
    let data = evaluation.output.data();
    let lock = DataFolderLock::acquire(&data)?;
    let backend = BackendArgs::private(data.clone());
    let temporal = backend.temporal_target(backend.open_keys(&data)?)?;
    let stop = CancellationToken::new();
    roles::cancel_on_signal(&stop)?;
    let progress = Progress::new(false);
    let mut private = PrivateServices::start(&backend, &lock, progress).await?;
    let address = private.temporal_address.clone();
    let servers = (private.database_url.clone(), TemporalTarget { address, ..temporal });
    let result = tokio::select! {
        result = run_roles(evaluation, cases, &backend, servers, progress, &stop) => result,
        failed = private.restart_on_exit(progress, &stop) => failed,
    };
    private.stop().await?;
    result
}

async fn run_roles(
    evaluation: &Evaluation<'_>,
    cases: Vec<CaseKey>,
    backend: &BackendArgs,
    (database, temporal): (String, TemporalTarget),
    progress: Progress,
    stop: &CancellationToken,
) -> Result<()> {
    let backends = Backends::connect(&database, &temporal, SchemaStep::Migrate, progress).await?;
    let data = evaluation.output.data();
    let objects = backend.objects(&data);
    let environment = clean_environment();
    let listen = ListenArgs::local(evaluation.arguments.heartbeat_seconds);
    // The evaluation writes the configuration of its projects itself.
    let operator = operator_file::read(&data)?.unwrap_or_default();
    let operator = OperatorConfig { readable: vec!["/".to_owned()], ..operator };
    let server =
        listen.server_config(&data, objects.clone(), operator.clone(), backends.keys.clone())?;
    let server = ServerConfig { environment: environment.clone(), ..server };
    let token = Some(server.token.clone());
    let prompts = PromptArgs { allow_project_prompts: false };
    let worker = roles::worker_config(&data, objects, SLOTS, &prompts, backend)?;
    let worker = WorkerConfig { environment, operator, ..worker };
    let (server, worker) = (Some(server), Some(worker));
    let roles = ProcessRoles { server, worker, sign_in_as: None, monitoring: None, data };
    let (ready, url) = oneshot::channel();
    let running = roles.run(&backends, stop, |url, _| {
        // The receiver is gone only if the evaluation has ended.
        let _ = ready.send(url.unwrap_or_default().to_owned());
        Ok(())
    });
    let working = async {
        let all = async {
            let url = url.await.context("the API server did not start")?;
            let endpoint = Endpoint { url, pid: std::process::id(), token };
            let client = Client::for_endpoint(endpoint)?;
            for key in cases {
                // Boxed, because the future is large.
                let result = Box::pin(case_run::run_case(evaluation, &client, &key)).await;
                let result = result.with_context(|| format!("case {key}"))?;
                evaluation.output.save_finished(&result)?;
                evaluation.print_result(&result)?;
                evaluation.save_report()?;
            }
            Ok(())
        };
        let result = tokio::select! {
            result = all => result,
            () = stop.cancelled() => {
                Err(anyhow!("stopped; run the same command again to continue"))
            }
        };
        stop.cancel();
        result
    };
    let (ran, worked) = tokio::join!(running, working);
    // A failure of the roles ends the cases too, and is the cause.
    ran.and(worked)
}
