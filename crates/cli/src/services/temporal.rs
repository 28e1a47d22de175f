//! Private Temporal development server, with its data in the data folder.
//!
//! `<data>/temporal` contains `temporal.db` (its data) and `temporal.log`. The server listens on a
//! free port of 127.0.0.1, without its web UI. It chooses its other ports itself among the free
//! ones.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::process::{ServiceProcess, ServiceSpec};
use super::{DataFolderLock, Error, ProgramSearch, ProgramVersion, ServiceExit};
use crate::progress::Progress;

/// Display name.
const NAME: &str = "Temporal";

/// Time limit for becoming ready.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// Time limit for a response.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Stop signals with their time limits. A normal stop takes about 3 s.
const STOP_SIGNALS: [(Signal, Duration); 1] = [(Signal::TERM, Duration::from_secs(15))];

/// Number of ports to try if another process takes the chosen one.
const MAX_PORT_ATTEMPTS: usize = 3;

/// HTTP/2 connection preface with empty settings.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Database settings: safe if the server crashes, and much faster than the defaults.
const PRAGMAS: [&str; 2] = ["journal_mode=wal", "synchronous=1"];

/// Dynamic configuration of the server.
const DYNAMIC_CONFIG: [&str; 5] = [
    // The default of 20 polls per second slows down every step.
    "history.transferProcessorMaxPollRPS=100",
    // Cancels activities at once instead of at their next heartbeat.
    "frontend.WorkerCommandsEnabled=true",
    "system.enableCancelActivityWorkerCommand=true",
    // Projects take turns within a priority. Each partition of a task queue has turns of its own, so
    // there is only one. Jobs in the others are still read.
    "matching.enableFairness=true",
    "matching.numTaskqueueWritePartitions=1",
];

/// Search attributes of the task workflow.
const SEARCH_ATTRIBUTES: [&str; 5] =
    ["TammaPhase", "TammaState", "TammaProject", "TammaPriority", "TammaRisk"];

/// Running private Temporal server.
#[derive(Debug)]
pub(crate) struct TemporalService {
    installation: TemporalInstallation,
    port: u16,
    process: ServiceProcess,
}

/// Program and folder of the server.
#[derive(Debug, Clone)]
struct TemporalInstallation {
    /// `<data>/temporal`.
    folder: PathBuf,
    /// `temporal` program.
    program: PathBuf,
    /// Version of the program; `None` if it prints none.
    version: Option<ProgramVersion>,
}

impl TemporalService {
    /// Starts the server on a free port and waits until it is ready.
    pub(crate) async fn start(
        lock: &DataFolderLock,
        search: &ProgramSearch,
        progress: Progress,
    ) -> Result<Self, Error> {
        let step = progress.start("starting Temporal");
        let (program, version) = search.prepare_temporal(lock.folder()).await?;
        let folder = lock.folder().join("temporal");
        super::create_folder(&folder, 0o700)?;
        let installation = TemporalInstallation { folder, program, version };
        let mut attempt = 1;
        let (port, process) = loop {
            let port = super::free_port()?;
            match installation.start_process(port).await {
                Ok(process) => break (port, process),
                // Another process took the port in the meantime.
                Err(Error::Exited(exit)) if attempt < MAX_PORT_ATTEMPTS && is_port_taken(&exit) => {
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        };
        step.finish(&installation.ready_message());
        Ok(Self { installation, port, process })
    }

    /// Address, such as `127.0.0.1:7233`.
    pub(crate) fn address(&self) -> String {
        address(self.port)
    }

    /// Waits for an unexpected exit.
    pub(crate) async fn wait_for_exit(&mut self) -> ServiceExit {
        self.process.wait_for_exit().await
    }

    /// Restarts the server at the same address. A running one is stopped first.
    pub(crate) async fn restart(&mut self, progress: Progress) -> Result<(), Error> {
        let step = progress.start("restarting Temporal");
        self.process.stop().await?;
        self.process = self.installation.start_process(self.port).await?;
        step.finish(&self.installation.ready_message());
        Ok(())
    }

    /// Stops the server gracefully. Its data is kept.
    pub(crate) async fn stop(&mut self) -> Result<(), Error> {
        self.process.stop().await
    }

    /// Process ID.
    #[cfg(test)]
    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }
}

impl TemporalInstallation {
    async fn start_process(&self, port: u16) -> Result<ServiceProcess, Error> {
        let mut process = ServiceProcess::start(self.service_spec(port)).await?;
        let address = address(port);
        process
            .wait_until_ready(START_TIMEOUT, async |_| check_reachable(&address).await.is_ok())
            .await?;
        Ok(process)
    }

    fn service_spec(&self, port: u16) -> ServiceSpec {
        let database = self.folder.join("temporal.db");
        let mut args: Vec<OsString> = ["server", "start-dev", "--headless", "--ip", "127.0.0.1"]
            .into_iter()
            .map(OsString::from)
            .collect();
        args.extend(["--port".into(), port.to_string().into()]);
        args.extend(["--db-filename".into(), database.clone().into()]);
        for pragma in PRAGMAS {
            args.extend(["--sqlite-pragma".into(), pragma.into()]);
        }
        for setting in DYNAMIC_CONFIG {
            args.extend(["--dynamic-config-value".into(), setting.into()]);
        }
        for attribute in SEARCH_ATTRIBUTES {
            args.extend(["--search-attribute".into(), format!("{attribute}=Keyword").into()]);
        }
        args.extend(["--log-level".into(), "warn".into()]);
        ServiceSpec {
            service: NAME,
            program: self.program.clone(),
            args,
            marker: database,
            // The program is often a wrapper script that needs the environment. Variables for
            // Temporal clients and for Tamma would misconfigure the server.
            env: std::env::vars_os()
                .filter(|(name, _)| {
                    let name = name.to_string_lossy();
                    !name.starts_with("TEMPORAL_") && !name.starts_with("TAMMA_")
                })
                .collect(),
            user: None,
            log: self.folder.join("temporal.log"),
            record: self.folder.join("process.json"),
            stop_signals: &STOP_SIGNALS,
            orphan_signal: "TERM",
        }
    }

    fn ready_message(&self) -> String {
        match self.version {
            Some(version) => format!("{NAME} {version} ready"),
            None => format!("{NAME} ready"),
        }
    }
}

fn address(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

fn is_port_taken(exit: &ServiceExit) -> bool {
    let output = exit.output.to_lowercase();
    output.contains("address already in use") || output.contains("can't set frontend port")
}

/// Checks that a gRPC server responds at an address: it sends HTTP/2 settings unprompted.
pub(crate) async fn check_reachable(address: &str) -> std::io::Result<()> {
    let probe = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(HTTP2_PREFACE).await?;
        let mut frame = [0; 9];
        stream.read_exact(&mut frame).await?;
        // The first frame must be SETTINGS (type 4).
        match frame[3] {
            4 => Ok(()),
            _ => Err(std::io::Error::other("not an HTTP/2 server")),
        }
    };
    timeout(ANSWER_TIMEOUT, probe).await?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_a_grpc_server_counts_as_reachable() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (result, written) = tokio::join!(check_reachable(&address), async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await
        });
        written.unwrap();
        assert!(result.is_err());
        drop(listener);
        assert!(check_reachable(&address).await.is_err());
    }

    #[test]
    fn a_taken_port_is_found_anywhere_in_the_output() {
        let exit = |first: &str| ServiceExit {
            service: "Temporal",
            reason: "exit status 1".to_owned(),
            log: PathBuf::from("temporal.log"),
            output: format!("{first}\n{}", "goroutine 1 [running]:\n".repeat(30)),
        };
        let taken = exit("listen tcp 127.0.0.1:7233: bind: Address already in use");
        assert!(is_port_taken(&taken));
        assert!(!taken.to_string().contains("Address"), "{taken}");
        assert!(!is_port_taken(&exit("unable to open database file")));
    }
}
