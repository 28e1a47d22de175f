//! Search for marked texts and secrets in everything that Tamma leaves behind: a dump of its database,
//! Temporal's database, object storage, logs, traces and metrics.
//!
//! Secrets must be nowhere in clear text. Texts of tasks must not be in Temporal, logs, traces and metrics;
//! they are in PostgreSQL and object storage by design (docs/encryption.md).

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tamma_core::ids::TaskId;
use tamma_testkit::agent::{AgentStep, Script};
use tamma_testkit::keys::write_key_file;
use tamma_testkit::project::{ProjectConfig, ScriptedProject};
use tamma_testkit::repository::Repository;
use tamma_testkit::sample::sample_work;
use tamma_testkit::{Cluster, sample_plan, wait_until};
use tokio::process::Command;

use crate::observe::{SpanReceiver, free_port, get};
use crate::support::canaries::{Canary, CanaryKind, new_value};
use crate::support::programs;
use crate::support::verdict::Verdict;

/// Time limit of a task.
const TASK_TIMEOUT: Duration = Duration::from_mins(3);

/// Time limit for spans and log lines to arrive.
const ARRIVAL_TIMEOUT: Duration = Duration::from_mins(1);

/// Settings of the worker's machine, as in other experiments, with a secret of the gates.
const OPERATOR: &str = "\
upstreams:
  OPENAI_API_KEY: [http://127.0.0.1]
readable: [/]
weakest_sandbox: off
alert_hosts: [127.0.0.1]
";

/// Active key of all test processes.
const ENCRYPTION_KEY: &str = "second key of the test cluster 2";

/// Texts of a task, each in another field.
const TEXTS: [&str; 7] =
    ["title", "description", "criterion", "plan", "output", "content", "reason"];

/// Place that is searched, and what it is allowed to contain.
struct Place {
    name: &'static str,
    /// Contents of its files. Bytes that are no text are replaced, which hides no canary.
    contents: Vec<String>,
    /// Set if texts of tasks are there by design.
    has_texts: bool,
}

pub(crate) async fn run() -> Result<Verdict> {
    let folder = programs::folder()?.join(format!("canary-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let mut canaries: Vec<_> =
        TEXTS.iter().map(|name| Canary::new(CanaryKind::Text, name, new_value(name))).collect();
    let secret = |name| Canary::new(CanaryKind::Secret, name, new_value(name));
    let (server_token, api_key, gate_secret) =
        (secret("server token"), secret("key of a provider"), secret("secret of the gates"));
    let encryption_key = ENCRYPTION_KEY.to_owned();
    canaries.push(Canary::new(CanaryKind::Secret, "encryption key", encryption_key));
    std::fs::create_dir_all(folder.join("work"))?;
    let operator = format!("{OPERATOR}test_environment: {{ CANARY: {} }}\n", gate_secret.value);
    std::fs::write(folder.join("work/operator.yaml"), operator)?;
    let keys = folder.join("keys.json").display().to_string();
    write_key_file(&folder, true)?;
    let [server_port, worker_port] = [free_port()?, free_port()?];
    let address = |port: u16| format!("127.0.0.1:{port}");
    let receiver = SpanReceiver::start().await?;
    let cluster = Cluster::builder()
        .folder(&folder)
        .private_servers()
        .server_with_token(&server_token.value)
        .server_env("TAMMA_LOG", "info")
        .server_env("TAMMA_MONITORING", address(server_port))
        .server_env("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url)
        .server_env("OPENAI_API_KEY", &api_key.value)
        .server_env("TAMMA_KEYS", &keys)
        .workers(1)
        .worker_env("TAMMA_LOG", "info")
        .worker_env("TAMMA_MONITORING", address(worker_port))
        .worker_env("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url)
        .worker_env("OPENAI_API_KEY", &api_key.value)
        .worker_env("TAMMA_KEYS", &keys)
        .start()
        .await?;
    canaries.extend([server_token, api_key, gate_secret, person_token(&cluster).await?]);
    let text = |name: &str| {
        let found = canaries.iter().find(|canary| canary.name == name);
        found.map(|canary| canary.value.clone()).unwrap_or_default()
    };
    // The repository is removed with the project.
    let project = add_project(&cluster, &text).await?;
    let task = run_task(&cluster, &project, &text).await?;
    let rotated = rotate_key(&cluster, &keys, &text("reason")).await?;
    let trace = task.0.simple().to_string();
    wait_until("the trace of the task", ARRIVAL_TIMEOUT, async || {
        Ok(receiver.text().contains(&trace).then_some(()))
    })
    .await?;
    let decoded = show_workflow(&cluster, task, &canaries).await?;
    let mut places = Vec::new();
    for port in [server_port, worker_port] {
        let metrics = get(&format!("http://{}/metrics", address(port))).await?.text().await?;
        places.push(Place::new("metrics", vec![metrics], false));
    }
    places.push(Place::new("PostgreSQL dump", vec![dump(&cluster).await?], true));
    let temporal = read_files(cluster.temporal()?.folder())?;
    ensure!(
        temporal.iter().any(|file| file.contains(&task.to_string())),
        "the files are not those of Temporal's database: they do not name the task"
    );
    places.push(Place::new("Temporal's database", temporal, false));
    places.push(Place::new("object storage", read_files(&folder.join("work/objects"))?, true));
    let mut logs = vec![cluster.postgres()?.log()?];
    for name in ["serve.log", "work.log"] {
        logs.push(std::fs::read_to_string(folder.join(name)).with_context(|| name)?);
    }
    places.push(Place::new("logs", logs, false));
    places.push(Place::new("traces", vec![receiver.text()], false));
    let verdict = search(&places, &canaries, (decoded, rotated))?;
    cluster.stop().await?;
    if verdict.passed {
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(verdict)
}

/// Adds a project whose agent and gate print canaries.
async fn add_project(cluster: &Cluster, text: &impl Fn(&str) -> String) -> Result<ScriptedProject> {
    let mut plan = sample_plan(2);
    plan.summary = format!("Cy is greeted, {}", text("plan"));
    let mut steps = vec![AgentStep::Say(format!("Done: {}", text("output")))];
    steps.extend(sample_work(&plan));
    // The second file of the plan; the gate does not read it.
    let content = format!("ann\n{}\n", text("content"));
    steps.push(AgentStep::Write { path: "names/1.txt".into(), content });
    let script = Script::planned(plan, steps);
    let gate = cluster.folder().join("gate.sh");
    std::fs::write(&gate, "echo \"the gate knows $CANARY\"\nsh check.sh\n")?;
    let gates = format!("  check: {{ command: sh {}, kind: tests }}\n", gate.display());
    let configure = |config: ProjectConfig| config.gates(gates);
    cluster.add_project(1, "greeter", Repository::new()?, &script, configure).await
}

/// Takes one task to its end.
async fn run_task(
    cluster: &Cluster,
    project: &ScriptedProject,
    text: &impl Fn(&str) -> String,
) -> Result<TaskId> {
    let (description, criterion) = (text("description"), text("criterion"));
    let more =
        ["--project", &project.name, "--description", &description, "--criterion", &criterion];
    let task = cluster.add_task(1, &text("title"), &more).await?;
    cluster.wait_for_task(task, TASK_TIMEOUT, |task| Ok(task.state.is_terminal())).await?;
    Ok(task)
}

/// Rotates the key while the server and the worker run, and cancels tasks until one is sealed with the new
/// key. Returns the number of these tasks.
async fn rotate_key(cluster: &Cluster, keys: &str, reason: &str) -> Result<u32> {
    // These commands use no server.
    let run = async |arguments: &[&str]| {
        let mut command = Command::new(&cluster.cli.program);
        output_of(command.args(arguments).args(["--keys", keys])).await
    };
    run(&["keys", "rotate"]).await?;
    let listed = run(&["keys", "list", "--json"]).await?;
    let listed: Value = serde_json::from_str(&listed)?;
    let active = listed.as_array().and_then(|keys| keys.iter().find(|key| key["active"] == true));
    let active = active.and_then(|key| key["id"].as_str()).context("no active key")?;
    let new_key = Canary::new(CanaryKind::Text, "new key", active.to_owned());
    let mut tasks = 0;
    wait_until("a task that is sealed with the new key", ARRIVAL_TIMEOUT, async || {
        tasks += 1;
        let task = cluster.add_task(1 + tasks, "Cancelled", &["--project", "greeter"]).await?;
        cluster.cli.run(&["cancel", &task.to_string(), "--reason", reason]).await?;
        cluster.wait_for_task(task, TASK_TIMEOUT, |task| Ok(task.state.is_terminal())).await?;
        let history = temporal(&show_arguments(&cluster.temporal_address()?, task)).await?;
        Ok(new_key.is_in(&history).then_some(tasks))
    })
    .await
}

/// Creates a personal access token.
async fn person_token(cluster: &Cluster) -> Result<Canary> {
    let issued = cluster.cli.run(&["person", "add", "Zoe", "--json"]).await?;
    let issued: Value = serde_json::from_str(&issued)?;
    let value = issued["token"].as_str().context("no token")?.to_owned();
    Ok(Canary::new(CanaryKind::Secret, "access token", value))
}

/// Reads the history with Temporal's command line: without the codec server nobody sees a text, and with
/// it an operator does. Returns the number of texts that the operator sees.
async fn show_workflow(cluster: &Cluster, task: TaskId, canaries: &[Canary]) -> Result<usize> {
    let mut show = show_arguments(&cluster.temporal_address()?, task);
    let sealed = temporal(&show).await?;
    let (endpoint, auth) =
        (format!("{}/codec", cluster.url()), format!("Bearer {}", cluster.cli.token));
    let codec = ["--codec-endpoint", endpoint.as_str(), "--codec-auth", auth.as_str()];
    show.extend(codec.map(str::to_owned));
    let opened = temporal(&show).await?;
    let texts = canaries.iter().filter(|canary| canary.kind == CanaryKind::Text);
    let shown = texts.clone().filter(|canary| canary.is_in(&sealed)).count();
    ensure!(shown == 0, "Temporal's command line shows {shown} texts without the codec server");
    Ok(texts.filter(|canary| canary.is_in(&opened)).count())
}

/// Returns the arguments that show the history of a task.
fn show_arguments(address: &str, task: TaskId) -> Vec<String> {
    let id = format!("task-{task}");
    let show = ["workflow", "show", "--output", "json", "--workflow-id", &id, "--address", address];
    show.map(str::to_owned).into()
}

async fn temporal(arguments: &[String]) -> Result<String> {
    output_of(Command::new("temporal").args(arguments)).await.context("`temporal` failed")
}

/// Runs a command and returns its standard output.
async fn output_of(command: &mut Command) -> Result<String> {
    let output = command.output().await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns a dump of Tamma's database as SQL.
async fn dump(cluster: &Cluster) -> Result<String> {
    let url = cluster.database_url();
    let mut command = Command::new("pg_dump");
    command.args(["--format", "plain", "--inserts", &url]);
    output_of(&mut command).await.context("`pg_dump` failed")
}

/// Prints how often each kind of canary is in each place, and compares it with what is allowed.
fn search(
    places: &[Place],
    canaries: &[Canary],
    (decoded, rotated): (usize, u32),
) -> Result<Verdict> {
    let mut out = std::io::stdout();
    let (mut leaks, mut by_design) = (Vec::new(), 0);
    let mut table: BTreeMap<(&str, CanaryKind), usize> = BTreeMap::new();
    for place in places {
        for canary in canaries {
            let is_found = place.contents.iter().any(|content| canary.is_in(content));
            *table.entry((place.name, canary.kind)).or_default() += usize::from(is_found);
            if is_found && place.has_texts && canary.kind == CanaryKind::Text {
                by_design += 1;
            } else if is_found {
                leaks.push(format!("{} in {}", canary.name, place.name));
            }
        }
    }
    for ((place, kind), count) in &table {
        writeln!(out, "{count:>3} in clear text: {kind} in {place}")?;
    }
    for leak in &leaks {
        writeln!(out, "leak: {leak}")?;
    }
    // Otherwise the search proves nothing.
    let is_searched = by_design >= TEXTS.len() && decoded > 0;
    let figures = format!(
        "{} canaries in {} places: {} leaks; {by_design} texts by design in PostgreSQL and object storage, \
         {decoded} opened for an operator by the codec server; new key in use after {rotated} tasks",
        canaries.len(),
        places.len(),
        leaks.len()
    );
    Ok(Verdict::new(leaks.is_empty() && is_searched, figures))
}

impl Place {
    fn new(name: &'static str, contents: Vec<String>, has_texts: bool) -> Self {
        Self { name, contents, has_texts }
    }
}

/// Reads all files below a folder. Sockets and pipes are left out.
fn read_files(folder: &Path) -> Result<Vec<String>> {
    let mut contents = Vec::new();
    let mut folders: Vec<PathBuf> = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let (path, kind) = entry.and_then(|it| Ok((it.path(), it.file_type()?)))?;
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                contents.push(String::from_utf8_lossy(&std::fs::read(&path)?).into_owned());
            }
        }
    }
    Ok(contents)
}
