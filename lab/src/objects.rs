//! Transcripts in an S3 bucket of a real server, moto: written, listed and read, and kept on the worker's
//! disk while the bucket is away.

use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tamma_core::ids::TaskId;
use tamma_server::dto::RunList;
use tamma_testkit::{Cluster, wait_until};
use tokio::process::{Child, Command};

use crate::chaos::fixture::{CRITERION, Fixture};
use crate::support::verdict::Verdict;
use crate::support::{programs, tools};

/// Bucket, and the prefix of the objects in it.
const BUCKET: &str = "tamma";
const PREFIX: &str = "team/a";

/// Secret that must appear nowhere.
const SECRET: &str = "secret-of-the-bucket";

/// Time limit of a task, which may wait for uploads that fail.
const TASK_TIMEOUT: Duration = Duration::from_mins(4);

/// Time limit for the server to start, and for leftovers to arrive.
const TIMEOUT: Duration = Duration::from_mins(1);

/// S3 server. Its objects are lost when it ends.
struct S3Server {
    program: PathBuf,
    port: u16,
    http: reqwest::Client,
    log: PathBuf,
    child: Option<Child>,
}

impl S3Server {
    /// Starts the server, with an empty bucket.
    async fn start(&mut self) -> Result<()> {
        let log = std::fs::File::options().create(true).append(true).open(&self.log)?;
        let child = Command::new(&self.program)
            .args(["-H", "127.0.0.1", "-p", &self.port.to_string()])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start `moto_server`")?;
        self.child = Some(child);
        wait_until("moto", TIMEOUT, async || {
            let created = self.http.put(format!("{}/{BUCKET}", self.url())).send().await?;
            ensure!(created.status().is_success(), "{}", created.status());
            Ok(Some(()))
        })
        .await
    }

    async fn stop(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill().await?;
        }
        Ok(())
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns the number of transcripts of a task.
    async fn count(&self, task: TaskId) -> Result<usize> {
        let prefix = format!("{PREFIX}/transcripts/{task}/");
        let url = format!("{}/{BUCKET}", self.url());
        let request = self.http.get(url).query(&[("list-type", "2"), ("prefix", prefix.as_str())]);
        let listed = request.send().await?.error_for_status()?.text().await?;
        Ok(listed.matches(&format!("<Key>{prefix}")).count())
    }
}

pub(crate) async fn run() -> Result<Verdict> {
    let environment = tools::python_venv(&programs::input("objects/requirements.txt")).await?;
    let folder = std::env::temp_dir().join(format!("tamma-objects-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let logs = || format!("logs: {}", folder.display());
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let http = reqwest::Client::builder().no_proxy().build()?;
    let program = environment.join("bin/moto_server");
    let log = folder.join("moto.log");
    let mut server = S3Server { program, port, http, log, child: None };
    let figures = use_bucket(&mut server, &folder).await.with_context(logs)?;
    server.stop().await?;
    std::fs::remove_dir_all(&folder)?;
    Ok(Verdict::new(true, figures))
}

async fn use_bucket(server: &mut S3Server, folder: &Path) -> Result<String> {
    let mut out = std::io::stdout();
    server.start().await?;
    let mut builder = Cluster::builder().folder(folder).private_servers().server().workers(1);
    for (name, value) in [
        ("TAMMA_OBJECTS", format!("s3://{BUCKET}/{PREFIX}")),
        ("AWS_ACCESS_KEY_ID", "lab".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
        ("AWS_ENDPOINT_URL", server.url()),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
        ("NO_PROXY", "127.0.0.1".to_owned()),
    ] {
        builder = builder.server_env(name, value.clone()).worker_env(name, value);
    }
    let mut cluster = builder.start().await?;

    let first = complete_task(&cluster, 1).await?;
    let stored = server.count(first).await?;
    let read = read_transcripts(&cluster, server, first).await?;
    ensure!(stored > 0 && read == stored, "{read} of {stored} transcripts can be read");
    writeln!(out, "{stored} transcripts of a task stored and read")?;

    server.stop().await?;
    let second = complete_task(&cluster, 2).await?;
    server.start().await?;
    ensure!(server.count(second).await? == 0, "moto has kept its objects");
    for worker in cluster.workers_mut() {
        worker.stop().await?;
        worker.start().await?;
    }
    let kept = wait_until("the leftovers", TIMEOUT, async || {
        let count = server.count(second).await?;
        Ok((count == stored).then_some(count))
    })
    .await?;
    writeln!(out, "{kept} transcripts kept during an outage, and stored after it")?;
    for name in ["serve.log", "work.log"] {
        let log = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        ensure!(!log.contains(SECRET), "`{name}` contains the key of the bucket");
    }
    cluster.stop().await?;
    Ok(format!("{stored} transcripts stored and read, {kept} kept during an outage"))
}

/// Takes a task to its end.
async fn complete_task(cluster: &Cluster, number: u32) -> Result<TaskId> {
    let fixture = Fixture::new(cluster, number, 1).await?;
    let more = ["--project", fixture.project.name.as_str(), "--criterion", CRITERION];
    let task = cluster.add_task(number, "Greet Cy", &more).await?;
    cluster.wait_for_task(task, TASK_TIMEOUT, |task| Ok(task.state.is_terminal())).await?;
    Ok(task)
}

/// Reads the transcripts of a task's runs through the API, and returns their number.
async fn read_transcripts(cluster: &Cluster, server: &S3Server, task: TaskId) -> Result<usize> {
    let cli = &cluster.cli;
    let url = format!("{}/api/v1/tasks/{task}/runs", cli.url);
    let request = server.http.get(url).bearer_auth(&cli.token);
    let request = request.header("Tamma-Person", &cli.person);
    let RunList { runs } = request.send().await?.error_for_status()?.json().await?;
    let task = task.to_string();
    for run in &runs {
        let call = ["task", "log", &task, "--run", &run.run, "--transcript"];
        let text = cli.run(&call).await?;
        ensure!(!text.trim().is_empty(), "the transcript of run {} is empty", run.run);
    }
    Ok(runs.len())
}
