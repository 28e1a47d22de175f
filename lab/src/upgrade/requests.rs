//! Requests of people during an upgrade. As behind a load balancer, a request that fails is sent to
//! another server; it fails for good if that does not help within some seconds.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tamma_core::ids::TaskId;
use tamma_testkit::tamma_process::TammaCli;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::support::components::output_text;

/// Pause between two requests.
const PAUSE: Duration = Duration::from_millis(100);

/// Number of attempts of a request, and the pause between two.
const ATTEMPTS: usize = 20;
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Time limit of an attempt.
const TIMEOUT: Duration = Duration::from_secs(15);

/// One in this number of requests writes.
const WRITES: usize = 5;

/// Requests so far.
#[derive(Debug, Default)]
pub(crate) struct RequestCounts {
    pub(crate) sent: usize,
    /// Number of requests whose first attempt failed.
    pub(crate) retried: usize,
    /// Errors of requests that all attempts failed for.
    pub(crate) failed: Vec<String>,
}

/// Requests that are sent one after the other until they are ended.
#[derive(Debug)]
pub(crate) struct RequestLoad {
    stop: CancellationToken,
    sending: JoinHandle<Result<RequestCounts>>,
}

/// Sender of requests.
struct RequestSender {
    /// Command line of a person at each server.
    people: Vec<TammaCli>,
    task: TaskId,
    /// Arguments that add the task again.
    add: Vec<String>,
    http: reqwest::Client,
}

impl RequestLoad {
    /// Starts to read a task and lists, and to add the task again and again, which has no effect.
    pub(crate) fn start(people: Vec<TammaCli>, task: TaskId, add: Vec<String>) -> Self {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let sending = tokio::spawn(async move {
            let http = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build()?;
            let sender = RequestSender { people, task, add, http };
            Ok(sender.send_until(&stopped).await)
        });
        Self { stop, sending }
    }

    /// Ends the requests, and returns what came of them.
    pub(crate) async fn end(self) -> Result<RequestCounts> {
        self.stop.cancel();
        self.sending.await?
    }
}

impl RequestSender {
    async fn send_until(&self, stop: &CancellationToken) -> RequestCounts {
        let mut counts = RequestCounts::default();
        while !stop.is_cancelled() {
            let number = counts.sent;
            counts.sent += 1;
            for attempt in 0..ATTEMPTS {
                if attempt == 1 {
                    counts.retried += 1;
                }
                match self.attempt(number, number + attempt).await {
                    Ok(()) => break,
                    Err(error) if attempt + 1 == ATTEMPTS => {
                        counts.failed.push(format!("{error:#}"));
                    }
                    Err(_) => sleep(RETRY_PAUSE).await,
                }
            }
            tokio::select! {
                () = sleep(PAUSE) => {}
                () = stop.cancelled() => {}
            }
        }
        counts
    }

    /// Sends a request to one of the servers.
    async fn attempt(&self, number: usize, server: usize) -> Result<()> {
        let person = self.people.get(server % self.people.len().max(1)).context("no server")?;
        if number.is_multiple_of(WRITES) {
            let output = person.command(&self.add).output().await?;
            ensure!(output.status.success(), "`tamma task add`: {}", output_text(&output));
            return Ok(());
        }
        let path = match number % 3 {
            0 => "/tasks".to_owned(),
            1 => "/projects".to_owned(),
            _ => format!("/tasks/{}", self.task),
        };
        let url = format!("{}/api/v1{path}", person.url);
        let request = self.http.get(&url).bearer_auth(&person.token);
        let response = request.header("Tamma-Person", &person.person).send().await?;
        let status = response.status();
        // The whole answer counts: a server that stops must not cut it off.
        let text = response.text().await?;
        ensure!(status.is_success(), "{url}: {status} {text}");
        Ok(())
    }
}
