//! Real Gitea with its runner, which runs jobs on this machine.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use reqwest::Method;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{BUILD_COMMAND, gitea_folder, gitea_runner};
use crate::postgres::PostgresServer;
use crate::shared_server;
use crate::wait::wait_until;

/// Time limit for the start.
const START: Duration = Duration::from_mins(2);

/// Account of Tamma.
const BOT: &str = "tamma-bot";

/// Password of every account. The server listens on a loopback address.
const PASSWORD: &str = "a-Password-of-the-tests-1";

/// Gitea of one test, which can kill and restart it. Dropping it ends it and its runner, and removes
/// its data.
#[derive(Debug)]
pub struct GiteaServer {
    port: u16,
    folder: TempDir,
    token: String,
    server: Option<Child>,
    runner: Option<Child>,
    http: reqwest::Client,
    // Dropped after the server, which has connections to it.
    _database: PostgresServer,
}

impl GiteaServer {
    /// Starts a server with an administrator, and waits until it responds.
    pub async fn start() -> Result<Self> {
        let installed = gitea_folder().with_context(not_built)?;
        let folder = tempfile::tempdir()?;
        let port = shared_server::free_port()?;
        // A build without C has no SQLite.
        let database = PostgresServer::start_with(["fsync=off".to_owned()]).await?;
        database.query("postgres", "CREATE DATABASE gitea").await?;
        let url = database.url("postgres", "gitea");
        let host = url.split(['@', '/']).nth(3).context("the database has no address")?.to_owned();
        let path = folder.path().display();
        let text = format!(
            "APP_NAME = forge\nRUN_MODE = prod\nWORK_PATH = {path}\n\
             [database]\nDB_TYPE = postgres\nHOST = {host}\nNAME = gitea\nUSER = postgres\n\
             PASSWD =\nSSL_MODE = disable\n\
             [repository]\nROOT = {path}/repositories\nDEFAULT_BRANCH = main\n\
             [server]\nHTTP_ADDR = 127.0.0.1\nHTTP_PORT = {port}\nDOMAIN = 127.0.0.1\n\
             ROOT_URL = http://127.0.0.1:{port}/\nSTATIC_ROOT_PATH = {static_root}\n\
             OFFLINE_MODE = true\nDISABLE_SSH = true\nLFS_START_SERVER = false\n\
             [security]\nINSTALL_LOCK = true\nALLOWED_HOST_LIST = loopback\n\
             [webhook]\nALLOWED_HOST_LIST = loopback\n\
             [service]\nDISABLE_REGISTRATION = true\n\
             [actions]\nENABLED = true\n[log]\nLEVEL = Warn\nROOT_PATH = {path}/log\n",
            static_root = installed.display(),
        );
        fs::write(folder.path().join("app.ini"), text)?;
        let http = reqwest::Client::new();
        let (token, server, runner) = (String::new(), None, None);
        let mut server = Self { port, folder, token, server, runner, http, _database: database };
        server.admin(&["migrate"])?;
        server.create_user(BOT, true)?;
        server.token = server.create_token(BOT)?;
        server.restart().await?;
        Ok(server)
    }

    /// Returns its address, which survives a restart.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns the token of Tamma's account, which is an administrator.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Returns the name of Tamma's account.
    pub fn account(&self) -> &'static str {
        BOT
    }

    /// Returns the password of every account, to sign in on its pages.
    pub fn password(&self) -> &'static str {
        PASSWORD
    }

    /// Creates the account of a person and returns a token of theirs.
    pub fn add_person(&self, name: &str) -> Result<String> {
        self.create_user(name, false)?;
        self.create_token(name)
    }

    fn create_user(&self, name: &str, admin: bool) -> Result<()> {
        let email = format!("{name}@example.org");
        let mut arguments = vec!["admin", "user", "create", "--username", name, "--password"];
        arguments.extend([PASSWORD, "--email", &email, "--must-change-password=false"]);
        if admin {
            arguments.push("--admin");
        }
        self.admin(&arguments).map(|_| ())
    }

    fn create_token(&self, name: &str) -> Result<String> {
        let arguments = ["admin", "user", "generate-access-token", "-u", name, "-t", "tests"];
        let scopes = ["--scopes", "all", "--raw"];
        self.admin(&[&arguments[..], &scopes].concat())
    }

    /// Starts the runner for jobs with `runs-on: linux`, directly on this machine.
    pub fn start_runner(&mut self) -> Result<()> {
        let program = gitea_runner().with_context(not_built)?;
        let token = self.admin(&["actions", "generate-runner-token"])?;
        let home = self.folder.path().join("runner");
        fs::create_dir_all(&home)?;
        let instance = self.url();
        let arguments =
            ["register", "--no-interactive", "--instance", &instance, "--token", &token];
        let mut register = command(&program, &home);
        register.args(arguments).args(["--name", "tests", "--labels", "linux:host"]);
        output(register)?;
        let log = fs::File::create(self.folder.path().join("runner.log"))?;
        let mut daemon = command(&program, &home);
        daemon.arg("daemon").stdout(Stdio::null()).stderr(log);
        self.runner = Some(daemon.spawn().context("cannot start the runner")?);
        Ok(())
    }

    /// Kills the server at once, like a crash. The runner stays alive.
    pub fn kill(&mut self) {
        kill(&mut self.server);
    }

    /// Starts the server with its data, after a crash or again, and waits until it responds.
    pub async fn restart(&mut self) -> Result<()> {
        self.kill();
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join("gitea.log"))?;
        let mut web = self.gitea()?;
        web.arg("web").stdout(Stdio::null()).stderr(log);
        let mut child = web.spawn().context("cannot start Gitea")?;
        let address = format!("{}/api/v1/version", self.url());
        let ready = wait_until("Gitea", START, async || {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(Err(anyhow!("Gitea ended with {status}"))));
            }
            let response = self.http.get(&address).send().await?;
            Ok(response.status().is_success().then_some(Ok(())))
        })
        .await;
        self.server = Some(child);
        ready?
    }

    /// Sends a request as somebody, and returns the status and the response, which is `null` if it is
    /// not JSON.
    pub async fn request(
        &self,
        token: &str,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value)> {
        let address = format!("{}/api/v1{path}", self.url());
        let mut request = self.http.request(method, address);
        request = request.header("authorization", format!("token {token}"));
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await?;
        let status = response.status().as_u16();
        Ok((status, serde_json::from_str(&response.text().await?).unwrap_or_default()))
    }

    /// Creates a repository of Tamma's account with a commit, in which these people can push.
    pub async fn create_repository(&self, name: &str, people: &[&str]) -> Result<String> {
        let body = json!({ "name": name, "auto_init": true, "default_branch": "main" });
        self.expect(201, Method::POST, "/user/repos", Some(&body)).await?;
        for person in people {
            let path = format!("/repos/{BOT}/{name}/collaborators/{person}");
            let body = json!({ "permission": "write" });
            self.expect(204, Method::PUT, &path, Some(&body)).await?;
        }
        Ok(format!("{BOT}/{name}"))
    }

    /// Sends a request as Tamma's account that has to be answered with a status.
    pub async fn expect(
        &self,
        expected: u16,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value> {
        let (status, answer) = self.request(&self.token, method, path, body).await?;
        ensure!(status == expected, "Gitea responded to {path} with {status}: {answer}");
        Ok(answer)
    }

    /// Returns the address of a repository with a login, for the git of a test.
    pub fn clone_url(&self, repository: &str) -> String {
        format!("http://{BOT}:{}@127.0.0.1:{}/{repository}.git", self.token, self.port)
    }

    /// Copies the logs of the server and of the runner to a folder.
    pub fn copy_logs(&self, folder: &Path) -> Result<()> {
        for name in ["gitea.log", "runner.log"] {
            let log = self.folder.path().join(name);
            if log.is_file() {
                fs::copy(log, folder.join(name))?;
            }
        }
        Ok(())
    }

    fn gitea(&self) -> Result<Command> {
        let installed = gitea_folder().with_context(not_built)?;
        let folder = self.folder.path();
        let mut gitea = command(&installed.join("gitea"), folder);
        gitea.arg("--config").arg(folder.join("app.ini")).arg("--work-path").arg(folder);
        Ok(gitea)
    }

    /// Runs a command of Gitea and returns the last line of its output.
    fn admin(&self, arguments: &[&str]) -> Result<String> {
        let mut gitea = self.gitea()?;
        gitea.args(arguments);
        let text = output(gitea)?;
        Ok(text.lines().last().unwrap_or_default().trim().to_owned())
    }
}

impl Drop for GiteaServer {
    fn drop(&mut self) {
        kill(&mut self.runner);
        kill(&mut self.server);
    }
}

#[expect(clippy::disallowed_methods, reason = "test servers are started synchronously")]
fn command(program: &Path, home: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(home)
        .env("HOME", home)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        // Containers of CI have no other user.
        .env("GITEA_I_AM_BEING_UNSAFE_RUNNING_AS_ROOT", "true")
        .stdin(Stdio::null())
        .process_group(0);
    command
}

fn not_built() -> String {
    format!("Gitea or its runner is not built; run `{BUILD_COMMAND}`")
}

fn output(mut command: Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot start `{name}`"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{name}` failed: {text}{errors}");
    Ok(text)
}

fn kill(child: &mut Option<Child>) {
    let Some(mut child) = child.take() else { return };
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // It may have exited already.
    group.and_then(|group| kill_process_group(group, Signal::KILL).ok());
    drop(child.wait());
}
