//! A Temporal of our own: its development server, with its data in the data folder.
//!
//! In `<data>/temporal`: `temporal.db` (its data) and `temporal.log`. It listens on a free port of
//! 127.0.0.1 and has no pages of its own. Its other ports it chooses itself, among those that are
//! free.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::process::{Launch, Process};
use super::{Died, Error, Lock, Search, Version, version};
use crate::progress::Progress;

/// What people call it.
const NAME: &str = "Temporal";

/// How long it may take to become ready.
const START: Duration = Duration::from_mins(1);

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(5);

/// How it is asked to end. Left alone, it takes about three seconds.
const FAREWELL: [(Signal, Duration); 1] = [(Signal::TERM, Duration::from_secs(15))];

/// How often another port is tried, when somebody else was faster.
const PORTS: usize = 3;

/// What a client of HTTP/2 says first, with empty settings.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Settings of the database: as safe as we need it against a crash of the server, and much faster.
const PRAGMAS: [&str; 2] = ["journal_mode=wal", "synchronous=1"];

/// Settings of the server.
const SETTINGS: [&str; 3] = [
    // How often it looks for work, of which the usual 20 a second make every step slow.
    "history.transferProcessorMaxPollRPS=100",
    // A cancelled activity hears of it at once, and not only with its next heartbeat.
    "frontend.WorkerCommandsEnabled=true",
    "system.enableCancelActivityWorkerCommand=true",
];

/// What workflows can be found by.
const ATTRIBUTES: [&str; 5] =
    ["TammaPhase", "TammaState", "TammaProject", "TammaPriority", "TammaRisk"];

/// The private Temporal, running.
#[derive(Debug)]
pub(crate) struct Temporal {
    place: Place,
    port: u16,
    process: Process,
}

/// Where it is.
#[derive(Debug, Clone)]
struct Place {
    /// `<data>/temporal`.
    folder: PathBuf,
    /// The program.
    program: PathBuf,
    /// Its version, if it says one.
    version: Option<Version>,
}

impl Temporal {
    /// Starts it.
    pub(crate) async fn start(
        lock: &Lock,
        search: &Search,
        progress: Progress,
    ) -> Result<Self, Error> {
        let program = search.temporal()?;
        let folder = lock.data().join("temporal");
        super::folder(&folder, 0o700)?;
        let step = progress.begin("starting Temporal");
        let version = version(&program).await;
        let place = Place { folder, program, version };
        let mut attempt = 1;
        let (port, process) = loop {
            let port = super::free_port()?;
            match place.run(port).await {
                Ok(process) => break (port, process),
                // Somebody took the port between our looking and its listening.
                Err(Error::Ended(died)) if attempt < PORTS && is_taken(&died) => attempt += 1,
                Err(error) => return Err(error),
            }
        };
        step.done(&place.ready());
        Ok(Self { place, port, process })
    }

    /// Where it listens, such as `127.0.0.1:7233`.
    pub(crate) fn address(&self) -> String {
        address(self.port)
    }

    /// Waits until it ends by itself, which it should not.
    pub(crate) async fn died(&mut self) -> Died {
        self.process.died().await
    }

    /// Starts it again at the same address. If it still runs, it is stopped first.
    pub(crate) async fn restart(&mut self, progress: Progress) -> Result<(), Error> {
        let step = progress.begin("starting Temporal again");
        self.process.stop().await?;
        self.process = self.place.run(self.port).await?;
        step.done(&self.place.ready());
        Ok(())
    }

    /// Stops it in order. Its data stays.
    pub(crate) async fn stop(&mut self) -> Result<(), Error> {
        self.process.stop().await
    }

    /// Its process.
    #[cfg(test)]
    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }
}

impl Place {
    async fn run(&self, port: u16) -> Result<Process, Error> {
        let mut process = Process::start(self.launch(port)).await?;
        let address = address(port);
        process.ready(START, async |_| answers(&address).await.is_ok()).await?;
        Ok(process)
    }

    fn launch(&self, port: u16) -> Launch {
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
        for setting in SETTINGS {
            args.extend(["--dynamic-config-value".into(), setting.into()]);
        }
        for attribute in ATTRIBUTES {
            args.extend(["--search-attribute".into(), format!("{attribute}=Keyword").into()]);
        }
        args.extend(["--log-level".into(), "warn".into()]);
        Launch {
            service: NAME,
            program: self.program.clone(),
            args,
            mark: database,
            // Often a script that some tool put in front of it, which needs to know its own things.
            // What is said to Temporal's clients, or to us, is not for this server.
            env: std::env::vars_os()
                .filter(|(name, _)| {
                    let name = name.to_string_lossy();
                    !name.starts_with("TEMPORAL_") && !name.starts_with("TAMMA_")
                })
                .collect(),
            user: None,
            log: self.folder.join("temporal.log"),
            record: self.folder.join("process.json"),
            farewell: &FAREWELL,
            orphaned: "TERM",
        }
    }

    fn ready(&self) -> String {
        match self.version {
            Some(version) => format!("{NAME} {version} ready"),
            None => format!("{NAME} ready"),
        }
    }
}

fn address(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

fn is_taken(died: &Died) -> bool {
    let said = died.said.to_lowercase();
    said.contains("address already in use") || said.contains("can't set frontend port")
}

/// Whether an address answers as a server of gRPC does, which speaks HTTP/2 without being asked.
pub(crate) async fn answers(address: &str) -> std::io::Result<()> {
    let asking = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(HELLO).await?;
        let mut frame = [0; 9];
        stream.read_exact(&mut frame).await?;
        // Settings are what it says first.
        match frame[3] {
            4 => Ok(()),
            _ => Err(std::io::Error::other("it does not speak HTTP/2")),
        }
    };
    timeout(ANSWER, asking).await?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_a_server_of_grpc_answers() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (asked, said) = tokio::join!(answers(&address), async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await
        });
        said.unwrap();
        assert!(asked.is_err());
        drop(listener);
        assert!(answers(&address).await.is_err());
    }
}
