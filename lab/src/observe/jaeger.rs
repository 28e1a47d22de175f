//! Jaeger, a real backend for traces. It is optional: without it, [`SpanReceiver`] takes the spans.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tamma_testkit::programs::tools_folder;
use tamma_testkit::wait_until;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::free_port;
use super::span_receiver::SpanReceiver;
use super::task_trace::trace_ids;

/// Version of the Go module, as in `.ci/tools`.
const MODULE_VERSION: &str = "1.76.0";

/// Version of Jaeger that this module contains.
const VERSION: &str = "2.13.0";

/// Command that builds it.
const BUILD_COMMAND: &str = "TAMMA_TOOLS=traces bash .ci/tools";

/// Time limit for its start.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Configuration: OTLP over HTTP in, memory, and the query API.
const CONFIG: &str = "\
service:
  extensions: [jaeger_storage, jaeger_query]
  pipelines:
    traces: { receivers: [otlp], exporters: [jaeger_storage_exporter] }
  telemetry:
    metrics: { level: none }
    logs: { level: warn }
extensions:
  jaeger_storage:
    backends: { memory: { memory: { max_traces: 1000 } } }
  jaeger_query:
    storage: { traces: memory }
    http: { endpoint: HTTP_ADDRESS }
    grpc: { endpoint: GRPC_ADDRESS }
receivers:
  otlp: { protocols: { http: { endpoint: OTLP_ADDRESS } } }
exporters:
  jaeger_storage_exporter: { trace_storage: memory }
";

/// Parameters of a search for all traces of a service. The API requires a period.
const SEARCH: [(&str, &str); 3] = [
    ("query.start_time_min", "2000-01-01T00:00:00Z"),
    ("query.start_time_max", "2100-01-01T00:00:00Z"),
    ("query.num_traces", "1000"),
];

/// Backend that takes the spans of an experiment.
pub(super) enum TraceBackend {
    Jaeger(Box<Jaeger>),
    Receiver(SpanReceiver),
}

impl TraceBackend {
    /// Starts Jaeger if it is built, and a receiver otherwise.
    pub(super) async fn start(folder: &Path) -> Result<Self> {
        let program = tools_folder().join(format!("jaeger-{MODULE_VERSION}/jaeger"));
        if program.is_file() {
            return Ok(Self::Jaeger(Box::new(Jaeger::start(&program, folder).await?)));
        }
        Ok(Self::Receiver(SpanReceiver::start().await?))
    }

    /// Returns the endpoint for OTLP.
    pub(super) fn url(&self) -> &str {
        match self {
            Self::Jaeger(jaeger) => &jaeger.otlp_url,
            Self::Receiver(receiver) => &receiver.url,
        }
    }

    /// Returns the spans of all traces, in the JSON form of OTLP.
    pub(super) async fn resource_spans(&self) -> Result<Vec<Value>> {
        match self {
            Self::Jaeger(jaeger) => jaeger.resource_spans().await,
            Self::Receiver(receiver) => Ok(receiver.resource_spans()),
        }
    }

    /// Stops it, so that nothing writes to the folder any more.
    pub(super) async fn stop(self) -> Result<()> {
        if let Self::Jaeger(mut jaeger) = self {
            jaeger.process.kill().await?;
        }
        Ok(())
    }

    /// Returns its name for the result.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Jaeger(_) => format!("Jaeger {VERSION}"),
            Self::Receiver(_) => {
                format!("a receiver of the lab, because Jaeger is not built (`{BUILD_COMMAND}`)")
            }
        }
    }
}

/// Running Jaeger. It ends when it is dropped.
pub(super) struct Jaeger {
    otlp_url: String,
    query_url: String,
    process: Child,
}

impl Jaeger {
    async fn start(program: &Path, folder: &Path) -> Result<Self> {
        let address = || Ok::<_, anyhow::Error>(format!("127.0.0.1:{}", free_port()?));
        let (otlp, http, grpc) = (address()?, address()?, address()?);
        let config = write_config(folder, [&otlp, &http, &grpc])?;
        let log = std::fs::File::create(folder.join("jaeger.log"))?;
        let process = Command::new(program)
            .arg(format!("--config={}", config.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start `{}`", program.display()))?;
        let jaeger = Self {
            otlp_url: format!("http://{otlp}"),
            query_url: format!("http://{http}"),
            process,
        };
        // The query API starts first.
        wait_until("Jaeger", START_TIMEOUT, async || {
            jaeger.services().await?;
            TcpStream::connect(&otlp).await?;
            Ok(Some(()))
        })
        .await
        .with_context(|| format!("Jaeger did not start; see `{}`", folder.display()))?;
        Ok(jaeger)
    }

    /// Returns the services that have exported spans.
    async fn services(&self) -> Result<Vec<String>> {
        let answer = self.query("services", &[]).await?;
        let services = answer["services"].as_array().into_iter().flatten();
        Ok(services.filter_map(|service| service.as_str().map(str::to_owned)).collect())
    }

    /// Returns the spans of all traces: searches the traces of each service, and then reads each one.
    async fn resource_spans(&self) -> Result<Vec<Value>> {
        let mut traces = BTreeSet::new();
        for service in self.services().await? {
            let mut parameters = vec![("query.service_name", service.as_str())];
            parameters.extend(SEARCH);
            let found = self.query("traces", &parameters).await?;
            traces.extend(trace_ids(&resource_spans_of(&found)));
        }
        let mut resource_spans = Vec::new();
        for trace in traces {
            // Otherwise spans are returned with corrections, such as without duplicates.
            let raw = [("raw_traces", "true")];
            let found = self.query(&format!("traces/{trace}"), &raw).await?;
            resource_spans.extend(resource_spans_of(&found));
        }
        Ok(resource_spans)
    }

    async fn query(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Value> {
        let client = reqwest::Client::builder().no_proxy().build()?;
        let request = client.get(format!("{}/api/v3/{path}", self.query_url)).query(parameters);
        let response = request.send().await?;
        ensure!(response.status().is_success(), "/api/v3/{path}: {}", response.status());
        Ok(response.json().await?)
    }
}

fn resource_spans_of(answer: &Value) -> Vec<Value> {
    answer["result"]["resourceSpans"].as_array().cloned().unwrap_or_default()
}

fn write_config(folder: &Path, [otlp, http, grpc]: [&str; 3]) -> Result<PathBuf> {
    let config = CONFIG
        .replace("OTLP_ADDRESS", otlp)
        .replace("HTTP_ADDRESS", http)
        .replace("GRPC_ADDRESS", grpc);
    let path = folder.join("jaeger.yaml");
    std::fs::write(&path, config)?;
    Ok(path)
}
