//! Server with a signed-in person, and the time that its pages take.
#![expect(clippy::print_stdout, reason = "a measurement prints its figures")]
#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use chrono::TimeDelta;
use tamma_core::ids::Digest;
use tamma_server::{ApiServer, ServerConfig};
use tamma_store::{NewSession, SessionKind, SessionProof};
use tamma_testkit::Cluster;
use tokio_util::sync::CancellationToken;

use super::figures::{ms, percentile, table};

/// Requests of each page.
const REQUESTS: usize = 200;

/// Token of the server.
const TOKEN: &str = "operator-token-of-the-benchmark";
/// Secret in the cookie of Ada's session, in all browsers.
const COOKIE_SECRET: &str = "a-cookie-of-the-benchmark-that-has-exactly-sixty-four-characters";

/// Returns a client with Ada's cookie.
pub(crate) fn signed_in_client() -> Result<reqwest::Client> {
    let cookie: reqwest::header::HeaderValue = format!("tamma={COOKIE_SECRET}").parse()?;
    let headers = [(reqwest::header::COOKIE, cookie)].into_iter().collect();
    Ok(reqwest::Client::builder().no_proxy().default_headers(headers).build()?)
}

/// Times of a page.
pub(crate) struct PageTimes {
    /// Path of the page.
    pub(crate) page: String,
    /// Time of the first request, which finds nothing that the server has kept.
    pub(crate) first: Duration,
    /// 95th percentile of all requests.
    pub(crate) p95: Duration,
}

/// Requests pages one after the other, and prints and returns their times.
pub(crate) async fn measure(
    http: &reqwest::Client,
    url: &str,
    pages: &[String],
) -> Result<Vec<PageTimes>> {
    let heading = ["page", "first, ms", "p50, ms", "p95, ms", "max, ms"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    let mut measured = Vec::new();
    for page in pages {
        let mut times = Vec::new();
        for _ in 0..REQUESTS {
            let start = Instant::now();
            let response = http.get(format!("{url}{page}")).send().await?.error_for_status()?;
            let bytes = response.bytes().await?;
            times.push(start.elapsed());
            ensure!(bytes.len() > 200, "{page} is empty");
        }
        let first = times.first().copied().unwrap_or_default();
        let [p50, p95, max] = [50, 95, 100].map(|percent| percentile(&times, percent));
        rows.push(vec![page.clone(), ms(Some(first)), ms(p50), ms(p95), ms(max)]);
        let p95 = p95.unwrap_or_default();
        measured.push(PageTimes { page: page.clone(), first, p95 });
    }
    println!("\n{}", table(&rows));
    Ok(measured)
}

/// Running server.
pub(crate) struct PageServer {
    /// Address of its pages.
    pub(crate) url: String,
    stop: CancellationToken,
    served: tokio::task::JoinHandle<Result<(), tamma_server::Error>>,
}

impl PageServer {
    /// Starts a server, where Ada has signed in.
    pub(crate) async fn start(cluster: &Cluster) -> Result<Self> {
        let temporal = tamma_testkit::temporal::connect(&cluster.temporal_address()?).await?;
        let config = ServerConfig {
            address: "127.0.0.1:0".parse()?,
            token: TOKEN.to_owned(),
            environment: BTreeMap::new(),
            operator: tamma_testkit::operator::test_operator(),
            keys: tamma_testkit::keys::test_keys(),
            workflow_tuning: tamma_flow::WorkflowTuning::default(),
            // These tasks have no workflows.
            reconcile_interval: std::time::Duration::from_hours(24),
            objects: tamma_store::ObjectStorage::new("/nowhere"),
            acme: "/nowhere".into(),
            inspect_repository: None,
            read_remote_config: None,
            read_commit_file: None,
            forges: "/nowhere".into(),
            policies: BTreeMap::new(),
            public_url: None,
            terminal: None,
        };
        let (session, token) = (Digest::of(COOKIE_SECRET.as_bytes()), Digest::of(TOKEN.as_bytes()));
        let until = chrono::Utc::now() + TimeDelta::days(1);
        cluster.store.close_session(session).await?;
        let new = NewSession {
            hash: session,
            person: &"Ada".parse()?,
            proof: SessionProof::Token(token),
            kind: SessionKind::Web,
            client: None,
            until,
        };
        cluster.store.open_session(new).await?;
        let server = ApiServer::bind(config, cluster.store.clone(), temporal).await?;
        let (url, stop) = (format!("http://{}", server.address()), CancellationToken::new());
        Ok(Self { url, stop: stop.clone(), served: tokio::spawn(server.run(stop)) })
    }

    /// Stops it.
    pub(crate) async fn stop(self) -> Result<()> {
        self.stop.cancel();
        Ok(self.served.await??)
    }
}
