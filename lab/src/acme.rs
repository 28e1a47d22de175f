//! Certificates from Pebble, the test server of Let's Encrypt: the first one, a restart, a second server, and a
//! renewal while a connection is open.
//!
//! Pebble is built with Go: `TAMMA_TOOLS=acme bash .ci/tools`.

use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;
use tamma_core::operator::OPERATOR_FILE;
use tamma_testkit::programs::tools_folder;
use tamma_testkit::tamma_process::TammaProcess;
use tamma_testkit::{Cluster, wait_until};
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::support::verdict::Verdict;

/// Version of Pebble, as in `.ci/tools`.
const VERSION: &str = "2.10.1";

/// Command that builds Pebble.
const BUILD_COMMAND: &str = "TAMMA_TOOLS=acme bash .ci/tools";

/// Seconds for which a certificate is valid. It is renewed after two thirds of them.
const VALIDITY_SECONDS: u64 = 120;

/// Time limit for Pebble to start, and for the first certificate.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Time limit for the renewal.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(VALIDITY_SECONDS);

/// Time between two requests while the renewal is awaited.
const REQUEST_INTERVAL: Duration = Duration::from_millis(500);

/// Certificate authority. Its accounts and orders are lost when it ends.
struct Pebble {
    directory: String,
    /// Certificate authority of Pebble's own API.
    ca: PathBuf,
    /// Root of the certificates that it issues, in PEM.
    root: String,
    log: PathBuf,
    _child: Child,
}

impl Pebble {
    /// Starts Pebble, which checks challenges on a port instead of 443.
    async fn start(program: &Path, folder: &Path, challenge_port: u16) -> Result<Self> {
        let certificates = program.with_file_name("certs");
        let ca = certificates.join("pebble.minica.pem");
        let (port, management) = (free_port()?, free_port()?);
        let settings = json!({ "pebble": {
            "listenAddress": format!("127.0.0.1:{port}"),
            "managementListenAddress": format!("127.0.0.1:{management}"),
            "certificate": certificates.join("localhost/cert.pem"),
            "privateKey": certificates.join("localhost/key.pem"),
            "httpPort": free_port()?,
            "tlsPort": challenge_port,
            "retryAfter": { "authz": 1, "order": 1 },
            "keyAlgorithm": "ecdsa",
            "profiles": {
                "short": { "description": "minutes", "validityPeriod": VALIDITY_SECONDS },
            },
        } });
        let file = folder.join("pebble.json");
        std::fs::write(&file, settings.to_string())?;
        let log = folder.join("pebble.log");
        let output = std::fs::File::create(&log)?;
        let child = Command::new(program)
            .arg("-config")
            .arg(&file)
            .env("PEBBLE_VA_NOSLEEP", "1")
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start `pebble`")?;
        let http = client(&std::fs::read_to_string(&ca)?)?;
        let directory = format!("https://localhost:{port}/dir");
        let root = wait_until("Pebble", TIMEOUT, async || {
            http.get(&directory).send().await?.error_for_status()?;
            let root = http.get(format!("https://localhost:{management}/roots/0")).send().await?;
            Ok(Some(root.error_for_status()?.text().await?))
        })
        .await?;
        Ok(Self { directory, ca, root, log, _child: child })
    }

    /// Returns the number of orders so far.
    fn orders(&self) -> Result<usize> {
        Ok(std::fs::read_to_string(&self.log)?.matches("Added order").count())
    }

    fn check_orders(&self, expected: usize, when: &str) -> Result<()> {
        let orders = self.orders()?;
        ensure!(orders == expected, "{orders} orders {when}, and not {expected}");
        Ok(())
    }
}

pub(crate) async fn run(quick: bool) -> Result<Verdict> {
    let program = tools_folder().join(format!("pebble-{VERSION}/pebble"));
    if !program.is_file() {
        let why = format!("Pebble is not built; install Go and run `{BUILD_COMMAND}`");
        if quick {
            return Ok(Verdict::new(true, format!("not run: {why}")));
        }
        bail!(why);
    }
    let folder = std::env::temp_dir().join(format!("tamma-acme-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let logs = || format!("logs: {}", folder.display());
    let figures = obtain_and_renew(&program, &folder).await.with_context(logs)?;
    std::fs::remove_dir_all(&folder)?;
    Ok(Verdict::new(true, figures))
}

async fn obtain_and_renew(program: &Path, folder: &Path) -> Result<String> {
    let mut out = std::io::stdout();
    let cluster = Cluster::builder().folder(folder).private_servers().start().await?;
    let address = cluster.url().strip_prefix("http://").context("no address")?.to_owned();
    let (_, port) = address.rsplit_once(':').context("no port")?;
    let pebble = Pebble::start(program, folder, port.parse()?).await?;
    let data = folder.join("serve");
    std::fs::create_dir_all(&data)?;
    let (directory, ca) = (&pebble.directory, pebble.ca.display());
    let operator = format!(
        "tls:\n  acme: {{ directory: '{directory}', contact: lab@example.com, ca: '{ca}' }}\n"
    );
    std::fs::write(data.join(OPERATOR_FILE), operator)?;
    let url = format!("https://localhost:{port}");
    let mut server = with_settings(cluster.new_server()?, &url);
    let request = ServerRequest { root: pebble.root.clone(), token: cluster.cli.token.clone() };

    server.start().await?;
    let started = Instant::now();
    let first = wait_until("the first certificate", TIMEOUT, async || {
        request.new_connection(&url).await.map(Some)
    })
    .await?;
    let obtained = Instant::now();
    let seconds = started.elapsed().as_secs();
    pebble.check_orders(1, "for the first certificate")?;
    let files = check_permissions(&data.join("acme"))?;
    writeln!(out, "certificate obtained in {seconds} s, {files} private files")?;

    server.stop().await?;
    server.start().await?;
    ensure!(request.new_connection(&url).await? == first, "another certificate after a restart");
    let other_address = format!("127.0.0.1:{}", free_port()?);
    let mut other = with_settings(second_server(&cluster, &data, &other_address)?, &url);
    other.start().await?;
    let other_url = other_address.replace("127.0.0.1", "https://localhost");
    let shared = request.new_connection(&other_url).await?;
    ensure!(shared == first, "the second server has another certificate");
    pebble.check_orders(1, "after a restart and with a second server")?;
    writeln!(out, "certificate kept over a restart, and shared with a second server")?;

    let open = client(&pebble.root)?;
    let mut requests = 0;
    let mut ticks = tokio::time::interval(REQUEST_INTERVAL);
    let renewed = wait_until("the renewal", RENEWAL_TIMEOUT, async || {
        ticks.tick().await;
        requests += 1;
        // A failed request ends the experiment.
        Ok(request.renewed(&open, &first, [&url, &other_url]).await.transpose())
    })
    .await??;
    let seconds = obtained.elapsed().as_secs();
    ensure!(renewed != first, "the certificate is the old one");
    pebble.check_orders(2, "after the renewal by two servers")?;
    ensure!(seconds < VALIDITY_SECONDS, "renewed after {seconds} s, when the old one had ended");
    check_permissions(&data.join("acme"))?;
    for server in [&mut server, &mut other] {
        server.stop().await?;
    }
    cluster.stop().await?;
    Ok(format!(
        "1 certificate for 2 servers and a restart, renewed after {seconds} s of {VALIDITY_SECONDS}, with \
         {requests} requests on an open connection; 2 orders"
    ))
}

/// Sets the variables of a server that gets its certificate from Pebble.
fn with_settings(server: TammaProcess, url: &str) -> TammaProcess {
    server
        .with_env("TAMMA_PUBLIC_URL", url)
        .with_env("TAMMA_LOG", "warn,tamma_server=info")
        .with_env("NO_PROXY", "localhost,127.0.0.1")
}

/// Returns a server with the same data folder on another address.
fn second_server(cluster: &Cluster, data: &Path, address: &str) -> Result<TammaProcess> {
    let data_text = data.display().to_string();
    let (database, temporal) = (cluster.database_url(), cluster.temporal_address()?);
    let arguments = ["serve", "--data", &data_text, "--database", &database];
    let arguments = [&arguments[..], &["--temporal", &temporal, "--listen", address]].concat();
    let log = data.with_file_name("second.log");
    let arguments = arguments.into_iter().map(str::to_owned);
    let process = TammaProcess::new(&cluster.cli.program, arguments, log);
    Ok(process.with_env("TAMMA_TOKEN", &cluster.cli.token))
}

/// Requests to servers whose certificates have one root.
struct ServerRequest {
    root: String,
    token: String,
}

impl ServerRequest {
    /// Sends a request over a new connection, and returns the certificate of the server.
    async fn new_connection(&self, url: &str) -> Result<Vec<u8>> {
        self.send(&client(&self.root)?, url).await
    }

    async fn send(&self, http: &reqwest::Client, url: &str) -> Result<Vec<u8>> {
        let request = http.get(format!("{url}/api/v1/health")).bearer_auth(&self.token);
        let response = request.send().await?.error_for_status()?;
        let info = response.extensions().get::<reqwest::tls::TlsInfo>().context("no TLS")?;
        Ok(info.peer_certificate().context("no certificate")?.to_vec())
    }

    /// Returns the certificate of new connections, once it is not the first one on any server. The open
    /// connection must keep the first one.
    async fn renewed(
        &self,
        open: &reqwest::Client,
        first: &[u8],
        [url, other_url]: [&str; 2],
    ) -> Result<Option<Vec<u8>>> {
        let kept = self.send(open, url).await.context("the open connection failed")?;
        ensure!(kept == first, "the open connection was replaced");
        let new = self.new_connection(url).await?;
        let other = self.new_connection(other_url).await?;
        Ok((new != first && other == new).then_some(new))
    }
}

/// Returns a client that trusts one certificate authority only.
fn client(root: &str) -> Result<reqwest::Client> {
    let root = reqwest::Certificate::from_pem(root.as_bytes())?;
    Ok(reqwest::Client::builder()
        .user_agent("tamma-lab")
        .no_proxy()
        .tls_certs_only([root])
        .tls_info(true)
        .build()?)
}

/// Checks that only the owner can read a folder and its files, and that no challenge is left. Returns the
/// number of files.
fn check_permissions(folder: &Path) -> Result<usize> {
    let mut files = 0;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let metadata = path.metadata()?;
        let (mode, shown) = (metadata.permissions().mode() & 0o777, path.display());
        if metadata.is_dir() {
            ensure!(mode == 0o700, "`{shown}` has the mode {mode:o}");
            files += check_permissions(&path)?;
        } else {
            ensure!(mode == 0o600, "`{shown}` has the mode {mode:o}");
            ensure!(path.extension().is_none_or(|it| it != "challenge"), "`{shown}` is left");
            files += 1;
        }
    }
    Ok(files)
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_which_is_built() {
        let tools = include_str!("../../.ci/tools");
        let line = format!("pebble_program {VERSION} \"h1:");
        assert!(tools.contains(&line), "`.ci/tools` does not build `{line}`");
    }
}
