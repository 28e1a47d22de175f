//! Monitoring with a real Prometheus: it scrapes a server and a worker, evaluates the rules, and answers
//! every query of the dashboard. A receiver of OTLP gets the trace of the task.
//!
//! Needs `prometheus` and `promtool`, which `TAMMA_TOOLS=monitoring bash .ci/tools` installs.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tamma_testkit::{Cluster, wait_until};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::chaos::fixture::{CRITERION, Fixture};
use crate::support::programs;
use crate::support::verdict::Verdict;

/// Time limit for the task.
const TASK_TIMEOUT: Duration = Duration::from_mins(3);

/// Time limit for Prometheus to start, scrape and evaluate.
const SCRAPE_TIMEOUT: Duration = Duration::from_mins(1);

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
    let receiver = SpanReceiver::start().await?;
    let cluster = Cluster::builder()
        .folder(&folder)
        .private_servers()
        .server()
        .server_env("TAMMA_MONITORING", address(server))
        .server_env("TAMMA_LOG_FORMAT", "json")
        .server_env("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url)
        .workers(1)
        .worker_env("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url)
        .worker_env("TAMMA_MONITORING", address(worker))
        .start()
        .await?;
    for port in [server, worker] {
        for probe in ["livez", "readyz"] {
            let response = get(&format!("http://{}/{probe}", address(port))).await?;
            ensure!(response.status().is_success(), "/{probe} of port {port}: {response:?}");
        }
    }
    let fixture = Fixture::new(&cluster, 1, 2).await?;
    let project = ["--project", fixture.project.name.as_str(), "--criterion", CRITERION];
    let task = cluster.add_task(1, "Greet Cy", &project).await?;
    cluster.wait_for_task(task, TASK_TIMEOUT, |task| Ok(task.state.is_terminal())).await?;
    for port in [server, worker] {
        let text = get(&format!("http://{}/metrics", address(port))).await?.text().await?;
        ensure!(!text.contains(&task.to_string()), "the metrics name a task");
        check_metrics(&text).await?;
    }
    writeln!(out, "metrics of both roles are valid, and name no task")?;
    let trace = task.0.simple().to_string();
    let spans =
        wait_until("the whole trace", SCRAPE_TIMEOUT, async || Ok(receiver.whole_trace(&trace)));
    let spans = spans.await?;
    for (name, count) in &spans {
        writeln!(out, "{count:>3} spans: {name}")?;
    }

    let config = scrape_config(&files, &folder, &[address(server), address(worker)])?;
    let mut process = start_prometheus(&config, &folder, &address(prometheus))?;
    let url = format!("http://{}", address(prometheus));
    let mut missing: BTreeSet<&str> = EXPECTED.into();
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
        writeln!(out, "{:>3} results: {expression}", results.len())?;
    }
    process.kill().await?;
    cluster.stop().await?;
    std::fs::remove_dir_all(&folder)?;
    let figures = format!(
        "{} queries of the dashboard valid, {answered} with results; {} metrics scraped; one trace \
         with {} kinds of spans",
        queries.len(),
        EXPECTED.len(),
        spans.len()
    );
    Ok(Verdict::new(answered >= 15, figures))
}

/// Receiver of OTLP requests.
pub(crate) struct SpanReceiver {
    pub(crate) url: String,
    spans: Arc<Mutex<Vec<Value>>>,
}

impl SpanReceiver {
    pub(crate) async fn start() -> Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let spans = Arc::<Mutex<Vec<Value>>>::default();
        let kept = Arc::clone(&spans);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let kept = Arc::clone(&kept);
                tokio::spawn(async move { receive_spans(stream, &kept).await });
            }
        });
        Ok(Self { url, spans })
    }

    /// Returns all spans as text.
    pub(crate) fn text(&self) -> String {
        let spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        Value::from(spans.clone()).to_string()
    }

    /// Returns the number of spans by name, once the trace has them from the request to the tool call,
    /// and the parent of each.
    fn whole_trace(&self, trace: &str) -> Option<BTreeMap<String, usize>> {
        let spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        let own: Vec<_> = spans.iter().filter(|span| span["traceId"] == trace).collect();
        let ids: BTreeSet<_> = own.iter().filter_map(|span| span["spanId"].as_str()).collect();
        let mut parents = own.iter().filter_map(|span| span["parentSpanId"].as_str());
        let is_connected = parents.all(|parent| ids.contains(parent));
        let mut names = BTreeMap::new();
        for span in &own {
            *names.entry(span["name"].as_str()?.to_owned()).or_insert(0) += 1;
        }
        let has = |start: &str| names.keys().any(|name: &String| name.starts_with(start));
        let path = ["add_task", "job implement", "invoke_agent ", "execute_tool "];
        (is_connected && path.into_iter().all(has)).then_some(names)
    }
}

/// Answers the requests of one connection.
async fn receive_spans(stream: TcpStream, kept: &Mutex<Vec<Value>>) -> Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            match line.trim().split_once(':') {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.trim().parse()?;
                }
                _ if line.trim().is_empty() => break,
                _ => {}
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        let body: Value = serde_json::from_slice(&body)?;
        let spans = body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().cloned();
        let received = spans.context("no spans")?;
        kept.lock().unwrap_or_else(PoisonError::into_inner).extend(received);
        let answer =
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
        stream.write_all(answer.as_bytes()).await?;
    }
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
