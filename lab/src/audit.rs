//! Audit log of many entries: written by concurrent requests, verified with the command line, exported to
//! a syslog server and a file, and tampered with in three ways.
#![expect(clippy::print_stdout, reason = "an experiment prints its figures")]
#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures_util::future::try_join_all;
use serde_json::Value;
use tamma_core::actor::{AuthMethod, Authentication, RequestInterface};
use tamma_core::audit::{
    AuditHead, AuditKind, AuditOutcome, AuditRequest, AuditResult, ChainVerifier, ChainedEntry,
};
use tamma_core::operator::{AuditSettings, OperatorConfig};
use tamma_server::{ApiServer, ServerConfig};
use tamma_store::Store;
use tamma_testkit::Cluster;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::bench::meter;
use crate::support::verdict::Verdict;

/// Number of requests that are recorded at the same time.
const WRITERS: u32 = 8;

/// Time limit for the export.
const EXPORT_TIMEOUT: Duration = Duration::from_mins(5);

/// Statements by somebody who can turn triggers off, with the entry that is broken by them. `$` is a
/// position in the middle of the log.
const TAMPERING: [(&str, &str, &str); 3] = [
    (
        "changed",
        "UPDATE audit_entries SET content = replace(content, 'Ada', 'Eve') WHERE position = $;",
        "was changed",
    ),
    ("removed", "DELETE FROM audit_entries WHERE position = $;", "is missing"),
    (
        "reordered",
        "UPDATE audit_entries SET position = -position WHERE position IN ($, $ + 7);
         UPDATE audit_entries SET position = 2 * $ + 7 + position WHERE position < 0;",
        "was moved to position",
    ),
];

pub(crate) async fn run(quick: bool) -> Result<Verdict> {
    let entries: u32 = if quick { 5_000 } else { 100_000 };
    println!("machine: {}", meter::machine());
    let cluster = Cluster::builder().shared_temporal().start().await?;
    let syslog = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("tcp://{}", syslog.local_addr()?);
    let receiving = tokio::spawn(async move { receive(&syslog, entries).await });
    let server = serve(&cluster, &address).await?;

    let start = Instant::now();
    let writers = (0..WRITERS).map(|writer| {
        write(cluster.store.clone(), (writer..entries).step_by(WRITERS as usize).collect())
    });
    try_join_all(writers).await?;
    let written = start.elapsed();
    let per_second = f64::from(entries) / written.as_secs_f64();
    println!("{entries} entries recorded in {:.1} s ({per_second:.0}/s)", written.as_secs_f64());

    let exported = tokio::time::timeout(EXPORT_TIMEOUT, receiving).await;
    let exported = exported.context("the syslog server did not get all entries")???;
    println!("{exported} entries exported to a syslog server and verified there");

    let intact = verify(&cluster, &[]).await?;
    ensure!(intact["intact"] == true, "the audit log is broken: {intact}");
    let log = &intact["log"];
    let verified = log["verified"].as_u64().context("count")?;
    let seconds = log["seconds"].as_f64().context("duration")?;
    let head = &log["head"];
    let anchor = format!("{}:{}", head["position"], head["hash"].as_str().context("hash")?);
    println!("{verified} entries verified in {seconds:.2} s");
    ensure!(verified >= u64::from(entries), "only {verified} entries were verified");
    let lines = cluster.cli.run(&["audit", "export"]).await?;
    let read_back = verify_lines(&lines)?;
    println!("{read_back} exported lines verified");

    let middle = entries / 2;
    let copy =
        "CREATE TABLE audit_copy AS SELECT position, previous, hash, content FROM audit_entries";
    meter::sql(&cluster.database_url(), copy).await?;
    let mut located = 0;
    for (name, statements, expected) in TAMPERING {
        tamper(&cluster, &statements.replace('$', &middle.to_string())).await?;
        let broken = verify(&cluster, &["--anchor", &anchor]).await?;
        let (at, text) = (&broken["log"]["broken"]["position"], &broken["log"]["broken"]["text"]);
        let is_located = *at == middle && text.as_str().is_some_and(|it| it.starts_with(expected));
        println!("{name}: entry {at} {text}");
        located += usize::from(is_located);
        let restore =
            "DELETE FROM audit_entries WHERE position <= (SELECT max(position) FROM audit_copy);
                       INSERT INTO audit_entries (position, previous, hash, content)
                       SELECT position, previous, hash, content FROM audit_copy;";
        tamper(&cluster, restore).await?;
        let restored = verify(&cluster, &["--anchor", &anchor]).await?;
        ensure!(restored["intact"] == true, "not restored: {restored}");
    }
    server.stop().await?;
    cluster.store.close().await;
    let figures = format!(
        "{verified} entries verified in {seconds:.2} s, {located} of {} manipulations located, \
         {per_second:.0} entries/s recorded",
        TAMPERING.len()
    );
    Ok(Verdict::new(located == TAMPERING.len() && exported >= u64::from(entries), figures))
}

/// Records and completes entries, as requests do.
async fn write(store: Store, numbers: Vec<u32>) -> Result<()> {
    for number in numbers {
        let request = AuditRequest {
            at: chrono::Utc::now(),
            kind: AuditKind::Access,
            route: "GET /api/v1/tasks/{id}/diff".to_owned(),
            subject: format!("/api/v1/tasks/{number}/diff"),
            person: Some("Ada".to_owned()),
            auth: Some(Authentication { method: AuthMethod::OwnToken, via: RequestInterface::Api }),
            address: Some("192.0.2.1".to_owned()),
            request_id: Some(format!("request-{number}")),
        };
        let outcome = AuditOutcome {
            result: AuditResult::Granted,
            status: Some(200),
            policy: Some("role viewer: read".to_owned()),
            project: None,
            actions: Vec::new(),
        };
        let id = store.begin_audit(&request).await?;
        ensure!(store.complete_audit(id, &outcome).await?, "entry {number} was completed before");
    }
    Ok(())
}

/// Receives messages until the log has this many entries, and verifies their chain.
async fn receive(syslog: &TcpListener, entries: u32) -> Result<u64> {
    let mut verifier = ChainVerifier::new(None);
    let mut last = AuditHead::empty();
    while last.position < u64::from(entries) {
        let (mut stream, _) = syslog.accept().await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        let mut rest = text.as_str();
        while let Some((length, messages)) = rest.split_once(' ') {
            let (message, next) = messages.split_at_checked(length.parse()?).context("cut off")?;
            let (_, line) = message.split_once(" audit - ").context("no audit message")?;
            let entry = ChainedEntry::from_line(line).context("no entry")?;
            // A batch can arrive twice.
            if entry.position > last.position {
                verifier.read(&entry);
                last = entry.head();
            }
            rest = next;
        }
    }
    let report = verifier.finish(Some(last));
    ensure!(report.broken.is_none(), "the received log is broken: {:?}", report.broken);
    Ok(report.verified)
}

fn verify_lines(lines: &str) -> Result<u64> {
    let mut verifier = ChainVerifier::new(None);
    for line in lines.lines() {
        verifier.read(&ChainedEntry::from_line(line).context("no entry")?);
    }
    let report = verifier.finish(None);
    ensure!(report.broken.is_none(), "the export is broken: {:?}", report.broken);
    Ok(report.verified)
}

/// Runs `tamma audit verify`, whose exit code says whether the log is intact.
async fn verify(cluster: &Cluster, more: &[&str]) -> Result<Value> {
    let mut arguments = vec!["audit", "verify", "--only", "log", "--json"];
    arguments.extend_from_slice(more);
    let output = cluster.cli.command(&arguments).output().await?;
    let printed: Value = serde_json::from_slice(&output.stdout).with_context(|| {
        format!("`tamma audit verify`: {}", String::from_utf8_lossy(&output.stderr))
    })?;
    ensure!(printed["intact"] == output.status.success(), "wrong exit code: {printed}");
    Ok(printed)
}

async fn tamper(cluster: &Cluster, statements: &str) -> Result<()> {
    let all = format!("BEGIN; SET LOCAL session_replication_role = replica; {statements} COMMIT;");
    meter::sql(&cluster.database_url(), &all).await?;
    Ok(())
}

struct AuditedServer {
    stop: CancellationToken,
    served: JoinHandle<Result<(), tamma_server::Error>>,
}

impl AuditedServer {
    async fn stop(self) -> Result<()> {
        self.stop.cancel();
        Ok(self.served.await??)
    }
}

/// Starts a server at the address of the cluster's command line. It exports to a syslog server.
async fn serve(cluster: &Cluster, syslog: &str) -> Result<AuditedServer> {
    let temporal = tamma_testkit::temporal::connect(&cluster.temporal_address()?).await?;
    let audit = AuditSettings { syslog: Some(syslog.to_owned()), webhook: None };
    let config = ServerConfig {
        address: cluster.url().trim_start_matches("http://").parse()?,
        token: cluster.cli.token.clone(),
        environment: BTreeMap::new(),
        operator: OperatorConfig { audit, ..tamma_testkit::operator::test_operator() },
        keys: tamma_testkit::keys::test_keys(),
        workflow_tuning: tamma_flow::WorkflowTuning::default(),
        reconcile_interval: Duration::from_hours(24),
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
    let server = ApiServer::bind(config, cluster.store.clone(), temporal).await?;
    let stop = CancellationToken::new();
    Ok(AuditedServer { stop: stop.clone(), served: tokio::spawn(server.run(stop)) })
}
