//! Models that the agents call through the gateways: one on the host of each worker.

use std::net::{Ipv4Addr, TcpListener};

use anyhow::Result;
use tamma_testkit::Cluster;
use tamma_testkit::programs::find_program;
use tamma_testkit::tamma_process::TammaProcess;
use tokio::time::sleep;

use super::striker::OUTAGE;

/// Script of the model.
const SCRIPT: &str = r#"{ "steps": [{ "say": "Done." }] }"#;

/// Running models. Each listens on the usual loopback address of its host.
#[derive(Debug)]
pub(crate) struct Models {
    pub(crate) upstream: String,
    processes: Vec<TammaProcess>,
}

impl Models {
    /// Starts a model on each host with a worker. Without namespaces, all share one.
    pub(crate) async fn start(cluster: &mut Cluster) -> Result<Self> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let (program, folder) = (find_program("scripted-model")?, cluster.folder().to_owned());
        let script = folder.join("model.json");
        std::fs::write(&script, SCRIPT)?;
        let mut hosts: Vec<_> =
            cluster.workers_mut().iter().map(|worker| worker.host().to_owned()).collect();
        if cluster.network()?.why_no_cuts().is_some() {
            hosts.truncate(1);
        }
        let mut processes = Vec::new();
        for name in hosts {
            let arguments = [script.display().to_string(), "--port".to_owned(), port.to_string()];
            let log = folder.join(format!("model-{name}.log"));
            let host = cluster.network()?.host(&name)?.clone();
            let mut process = TammaProcess::new(&program, arguments, log).on_host(host);
            process.start().await?;
            processes.push(process);
        }
        Ok(Self { upstream: format!("http://127.0.0.1:{port}"), processes })
    }

    /// Kills the models, and starts them again after a while.
    pub(crate) async fn lose(&mut self) -> Result<()> {
        for process in &mut self.processes {
            process.kill().await?;
        }
        sleep(OUTAGE).await;
        for process in &mut self.processes {
            process.start().await?;
        }
        Ok(())
    }
}
