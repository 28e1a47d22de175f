//! Monitoring with a real Prometheus and a real Jaeger. Prometheus scrapes a server and a worker, evaluates
//! the rules, and answers every query of the dashboard. Jaeger gets the trace of the task, and shows its
//! whole path, without texts and secrets.
//!
//! Needs `prometheus` and `promtool`, which `TAMMA_TOOLS=monitoring bash .ci/tools` installs. Jaeger is
//! optional; `TAMMA_TOOLS=traces bash .ci/tools` builds it with Go.

mod jaeger;
mod span_receiver;
mod task_trace;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tamma_core::ids::TaskId;
use tamma_core::task_loop::State;
use tamma_testkit::model::{ModelStep, Script, ScriptedModel};
use tamma_testkit::{Cluster, wait_until};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

use self::jaeger::TraceBackend;
pub(crate) use self::span_receiver::SpanReceiver;
use self::task_trace::TaskTrace;
use crate::chaos::examination::approve_arguments;
use crate::chaos::fixture::Fixture;
use crate::support::canaries::{Canary, CanaryKind, new_value};
use crate::support::programs;
use crate::support::verdict::Verdict;

/// Time limit for the task.
const TASK_TIMEOUT: Duration = Duration::from_mins(3);

/// Time limit for both roles to be ready.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// Time limit for Prometheus to start, scrape and evaluate.
const SCRAPE_TIMEOUT: Duration = Duration::from_mins(1);

/// Number of files of the plan. It is so many that a person must approve it.
const FILES: usize = 7;

/// Configuration of the project: the model has an invented price.
const SETTINGS: &str = "prices:\n  scripted: { input: 3.0, cached: 0.3, output: 15.0 }\n";

/// Metrics that a server and a worker with one completed task have. Queries of failures are empty.
const EXPECTED: [&str; 8] = [
    "tamma_http_requests_total",
    "tamma_http_request_duration_seconds_count",
    "tamma_installation_workers",
    "tamma_installation_audit_entries",
    "tamma_jobs_total",
    "tamma_job_duration_seconds_count",
    "temporal_num_pollers",
    "temporal_activity_schedule_to_start_latency_seconds_count",
];

pub(crate) async fn run() -> Result<Verdict> {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/monitoring");
    let mut out = std::io::stdout();
    promtool(&["check", "rules"], &files.join("rules.yml")).await?;
    promtool(&["test", "rules"], &files.join("rules_test.yml")).await?;
    check_sections(&files)?;
    writeln!(out, "rules are valid, their tests pass, and every alert has a section")?;

    let [server, worker, prometheus] = [free_port()?, free_port()?, free_port()?];
    let folder = programs::folder()?.join(format!("observe-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let address = |port: u16| format!("127.0.0.1:{port}");
    let backend = TraceBackend::start(&folder).await?;
    let text = |name: &str| Canary::new(CanaryKind::Text, name, new_value(name));
    let [title, description, criterion, response] =
        ["title", "description", "criterion", "response"].map(text);
    let api_key = Canary::new(CanaryKind::Secret, "key of a provider", new_value("key"));
    let model = ScriptedModel::start(Script::new([ModelStep::say(&response.value)])).await?;
    let cluster = Cluster::builder()
        .folder(&folder)
        .private_servers()
        .server()
        .server_env("TAMMA_MONITORING", address(server))
        .server_env("TAMMA_LOG_FORMAT", "json")
        .server_env("OTEL_EXPORTER_OTLP_ENDPOINT", backend.url())
        .workers(1)
        .worker_env("OTEL_EXPORTER_OTLP_ENDPOINT", backend.url())
        .worker_env("OPENAI_API_KEY", &api_key.value)
        .worker_env("TAMMA_MONITORING", address(worker))
        .start()
        .await?;
    for port in [server, worker] {
        for probe in ["livez", "readyz"] {
            // A worker is ready once it has polled for a moment.
            wait_until(&format!("/{probe} of port {port}"), READY_TIMEOUT, async || {
                let response = get(&format!("http://{}/{probe}", address(port))).await?;
                Ok(response.status().is_success().then_some(()))
            })
            .await?;
        }
    }
    let upstream = model.url();
    let fixture = Fixture::configured(&cluster, 1, FILES, SETTINGS, Some(&upstream)).await?;
    let more = [
        "--project",
        &fixture.project.name,
        "--description",
        &description.value,
        "--criterion",
        &criterion.value,
    ];
    let task = cluster.add_task(1, &title.value, &more).await?;
    complete_task(&cluster, task).await?;
    for port in [server, worker] {
        let text = get(&format!("http://{}/metrics", address(port))).await?.text().await?;
        ensure!(!text.contains(&task.to_string()), "the metrics name a task");
        check_metrics(&text).await?;
    }
    writeln!(out, "metrics of both roles are valid, and name no task")?;
    let token = Canary::new(CanaryKind::Secret, "server token", cluster.cli.token.clone());
    let canaries = [title, description, criterion, response, api_key, token];
    let trace = check_trace(&backend, task, &model, &canaries).await?;
    for (name, count) in trace.names() {
        writeln!(out, "{count:>3} spans: {name}")?;
    }

    let targets = [address(server), address(worker)];
    let (queries, answered) =
        query_dashboard(&files, &folder, &targets, &address(prometheus)).await?;
    let backend_name = backend.describe();
    backend.stop().await?;
    cluster.stop().await?;
    std::fs::remove_dir_all(&folder)?;
    let figures = format!(
        "{queries} queries of the dashboard valid, {answered} with results; {} metrics scraped; one trace \
         with {} kinds of spans and none of {} canaries in {backend_name}",
        EXPECTED.len(),
        trace.names().len(),
        canaries.len()
    );
    Ok(Verdict::new(answered >= 15, figures))
}

/// Scrapes both roles with Prometheus, and runs all queries of the dashboard. Returns their number, and
/// how many of them have results.
async fn query_dashboard(
    files: &Path,
    folder: &Path,
    targets: &[String; 2],
    address: &str,
) -> Result<(usize, usize)> {
    let config = scrape_config(files, folder, targets)?;
    let mut process = start_prometheus(&config, folder, address)?;
    let url = format!("http://{address}");
    // A rate needs two samples.
    let rates = ["rate(tamma_jobs_total[5m])", "rate(tamma_http_requests_total[5m])"];
    let mut missing: BTreeSet<&str> = EXPECTED.into_iter().chain(rates).collect();
    let scraped = wait_until("all metrics", SCRAPE_TIMEOUT, async || {
        for metric in missing.clone() {
            if !query(&url, metric).await?.is_empty() {
                missing.remove(metric);
            }
        }
        Ok(missing.is_empty().then_some(()))
    })
    .await;
    scraped.with_context(|| format!("not scraped: {missing:?}"))?;
    let dashboard = std::fs::read_to_string(files.join("grafana-dashboard.json"))?;
    let dashboard: Value = serde_json::from_str(&dashboard)?;
    let queries = dashboard_queries(&dashboard);
    let mut answered = 0;
    for expression in &queries {
        // An error ends the experiment; an empty answer is one.
        let results = query(&url, expression).await?;
        answered += usize::from(!results.is_empty());
        writeln!(std::io::stdout(), "{:>3} results: {expression}", results.len())?;
    }
    process.kill().await?;
    Ok((queries.len(), answered))
}

/// Takes a task to its end, with the approval of a person.
async fn complete_task(cluster: &Cluster, task: TaskId) -> Result<()> {
    let is_waiting = |state: State| state == State::AwaitingApproval || state.is_terminal();
    cluster.wait_for_task(task, TASK_TIMEOUT, |task| Ok(is_waiting(task.state))).await?;
    let arguments = approve_arguments(cluster, task).await?;
    cluster.cli.run(&arguments.each_ref().map(String::as_str)).await.context("cannot approve")?;
    cluster.wait_for_task(task, TASK_TIMEOUT, |task| Ok(task.state.is_terminal())).await?;
    cluster.learned_history(task, TASK_TIMEOUT).await?;
    let state = cluster.store.task(task).await?.task_loop?.state;
    ensure!(state == State::Completed, "the task is {state}");
    Ok(())
}

/// Waits for the whole trace of a task, and compares it with what the model counted and with texts and
/// secrets that must not be in it.
async fn check_trace(
    backend: &TraceBackend,
    task: TaskId,
    model: &ScriptedModel,
    canaries: &[Canary],
) -> Result<TaskTrace> {
    let id = task.0.simple().to_string();
    let (trace, text) = wait_until("the whole trace", SCRAPE_TIMEOUT, async || {
        let resource_spans = backend.resource_spans().await?;
        let trace = TaskTrace::read(&resource_spans, &id)?;
        Ok(Some((trace, Value::from(resource_spans).to_string())))
    })
    .await?;
    let sent: u64 = model.sent().iter().map(|it| it.tokens.input + it.tokens.cached).sum();
    let traced = trace.sum("chat ", "gen_ai.usage.input_tokens")?;
    ensure!(sent > 0 && traced == sent, "{traced} input tokens in the trace, {sent} at the model");
    // Otherwise the search proves nothing.
    let requests = serde_json::to_string(&model.requests())?;
    ensure!(
        canaries.iter().any(|canary| canary.is_in(&requests)),
        "the model did not get the key of its provider"
    );
    for canary in canaries {
        ensure!(!canary.is_in(&text), "the trace contains the {}", canary.name);
    }
    Ok(trace)
}

async fn promtool(arguments: &[&str], file: &Path) -> Result<()> {
    let output = Command::new("promtool").args(arguments).arg(file).output().await;
    let output =
        output.context("cannot start `promtool`: run TAMMA_TOOLS=monitoring bash .ci/tools")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Checks the text format. Names that the SDK chose can differ from conventions, which is a warning
/// with exit code 3.
async fn check_metrics(text: &str) -> Result<()> {
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot start `promtool`")?;
    let mut input = child.stdin.take().context("no pipe")?;
    input.write_all(text.as_bytes()).await?;
    drop(input);
    let output = child.wait_with_output().await?;
    let problems = String::from_utf8_lossy(&output.stderr).into_owned();
    let own: Vec<&str> = problems.lines().filter(|line| line.starts_with("tamma_")).collect();
    ensure!([Some(0), Some(3)].contains(&output.status.code()) && own.is_empty(), "{problems}");
    Ok(())
}

/// Checks that `docs/operating.md` has a section for each alert.
fn check_sections(files: &Path) -> Result<()> {
    let rules = std::fs::read_to_string(files.join("rules.yml"))?;
    let document = std::fs::read_to_string(programs::documents().join("operating.md"))?;
    let alerts = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    for alert in alerts {
        ensure!(document.contains(&format!("\n### {alert}\n")), "`{alert}` has no section");
    }
    Ok(())
}

fn scrape_config(files: &Path, folder: &Path, [server, worker]: &[String; 2]) -> Result<PathBuf> {
    let config = std::fs::read_to_string(files.join("prometheus.yml"))?
        .replace("15s", "1s")
        .replace("127.0.0.1:9464", server)
        .replace("127.0.0.1:9465", worker);
    std::fs::copy(files.join("rules.yml"), folder.join("rules.yml"))?;
    let path = folder.join("prometheus.yml");
    std::fs::write(&path, config)?;
    Ok(path)
}

fn start_prometheus(config: &Path, folder: &Path, address: &str) -> Result<Child> {
    let log = std::fs::File::create(folder.join("prometheus.log"))?;
    Command::new("prometheus")
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", folder.join("prometheus").display()))
        .arg(format!("--web.listen-address={address}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .context("cannot start `prometheus`: run TAMMA_TOOLS=monitoring bash .ci/tools")
}

pub(crate) async fn get(url: &str) -> Result<reqwest::Response> {
    Ok(reqwest::Client::builder().no_proxy().build()?.get(url).send().await?)
}

/// Runs an instant query. An invalid one is an error.
async fn query(url: &str, expression: &str) -> Result<Vec<Value>> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    let request = client.get(format!("{url}/api/v1/query")).query(&[("query", expression)]);
    let answer: Value = request.send().await?.json().await?;
    ensure!(answer["status"] == "success", "`{expression}`: {}", answer["error"]);
    Ok(answer["data"]["result"].as_array().cloned().unwrap_or_default())
}

fn dashboard_queries(dashboard: &Value) -> Vec<String> {
    let panels = dashboard["panels"].as_array().into_iter().flatten();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    targets.filter_map(|target| target["expr"].as_str().map(str::to_owned)).collect()
}

pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
