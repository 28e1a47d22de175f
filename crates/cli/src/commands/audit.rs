//! `tamma audit`: the audit log, and histories, compared with their hash chains.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use chrono::{NaiveDate, NaiveTime};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use tamma_core::audit::{AuditHead, ChainReport, ChainVerifier, ChainedEntry};
use tamma_core::ids::Digest;
use tamma_server::dto::{AuditLogEntry, AuditLogPage, AuditPage, VerifiedHistory};
use tokio::time::Instant;

use crate::client::{self, Client, ClientArgs, IdentityArgs};
use crate::output::{self, pluralize};

/// Number of tasks per request.
const PAGE_SIZE: &str = "100";

/// Number of entries of the audit log per request.
const LOG_PAGE_SIZE: usize = 5000;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Verify the hashes of the audit log and of task histories
    ///
    /// Checks every entry against its hash, and every chain against its stored end. Prints the
    /// first broken entry of the audit log and of each task, and exits with 1 if there is one.
    /// Only operators can verify the audit log. Entries written before hashes were introduced are
    /// not covered. With --json, also prints the last hash of each chain: store it outside the
    /// database to detect later that a whole chain was replaced.
    Verify(VerifyArgs),
    /// Print the audit log as JSON lines
    ///
    /// Each line has the position, the hashes and the entry. `tamma audit verify --file` verifies
    /// the lines without a server. Only operators can read the audit log.
    Export(ExportArgs),
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    #[arg(
        value_name = "TASK",
        help = "Task ID, or at least four characters from its start or end [default: all tasks]"
    )]
    id: Option<String>,
    /// Accept that entries before this day (UTC) are archived
    #[arg(long, value_name = "DATE")]
    archived_before: Option<NaiveDate>,
    /// Verify one part only
    #[arg(long, value_enum, value_name = "PART", conflicts_with = "id")]
    only: Option<VerifiedPart>,
    /// Check that the audit log still has this entry, from an earlier verification
    #[arg(long, value_name = "POSITION:HASH", value_parser = parse_anchor, conflicts_with = "id")]
    anchor: Option<AuditHead>,
    /// Verify an exported audit log, without a server
    #[arg(long, value_name = "FILE", conflicts_with_all = ["id", "only", "archived_before"])]
    file: Option<PathBuf>,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

impl VerifyArgs {
    /// Returns `true` if the histories alone are an answer: nobody asked for the audit log.
    fn is_log_optional(&self) -> bool {
        self.only.is_none() && self.anchor.is_none()
    }
}

/// Part of the audit that is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum VerifiedPart {
    /// Audit log of the installation
    Log,
    /// Histories of tasks
    Histories,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Start after this position
    #[arg(long, value_name = "POSITION", default_value_t = 0)]
    after: u64,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

/// Verified audit log.
struct VerifiedLog {
    report: ChainReport,
    /// Number of entries that are not in the chain yet.
    pending: u64,
    duration: Duration,
}

pub(super) fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Verify(VerifyArgs { file: Some(file), anchor, target, .. }) => {
            let log = verify_file(file, *anchor)?;
            report(target, Some(&log), None)
        }
        Command::Verify(arguments) => verify(arguments),
        Command::Export(arguments) => export(arguments),
    }
}

fn verify(arguments: &VerifyArgs) -> Result<ExitCode> {
    if arguments.anchor.is_some() && arguments.only == Some(VerifiedPart::Histories) {
        bail!("--anchor is an entry of the audit log\n  help: leave `--only histories` out");
    }
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let by = arguments.identity.resolve_name()?;
        let is_wanted = |part| arguments.only.is_none_or(|only| only == part);
        let log = if arguments.id.is_none() && is_wanted(VerifiedPart::Log) {
            match verify_log(&client, &by, arguments.anchor).await {
                Ok(log) => Some(log),
                // Others verify the histories that they can read.
                Err(error) if arguments.is_log_optional() && is_forbidden(&error) => None,
                Err(error) => return Err(error),
            }
        } else {
            None
        };
        let histories = if is_wanted(VerifiedPart::Histories) {
            Some(verify_histories(&client, arguments).await?)
        } else {
            None
        };
        report(&arguments.target, log.as_ref(), histories.as_deref())
    })
}

fn is_forbidden(error: &anyhow::Error) -> bool {
    let client_error = error.downcast_ref::<client::Error>();
    matches!(client_error, Some(client::Error::Problem(problem)) if problem.status == 403)
}

/// Verifies the histories of one task, or of all tasks that the person can read.
async fn verify_histories(client: &Client, arguments: &VerifyArgs) -> Result<Vec<VerifiedHistory>> {
    let mut query = vec![("limit", PAGE_SIZE.to_owned())];
    if let Some(id) = &arguments.id {
        query.push(("task", client.resolve_task(id).await?.to_string()));
    }
    if let Some(day) = arguments.archived_before {
        let start = day.and_time(NaiveTime::MIN).and_utc();
        query.push(("archived_before", start.to_rfc3339()));
    }
    let mut histories = Vec::new();
    let mut after = None;
    loop {
        let cursor = after.iter().map(|after: &String| ("after", after.as_str()));
        let fixed = query.iter().map(|(name, value)| (*name, value.as_str()));
        let page: AuditPage =
            client.get("/audit", &fixed.chain(cursor).collect::<Vec<_>>()).await?;
        histories.extend(page.histories);
        after = page.next;
        if after.is_none() {
            return Ok(histories);
        }
    }
}

/// Reads the audit log page by page, and verifies it here.
async fn verify_log(client: &Client, by: &str, anchor: Option<AuditHead>) -> Result<VerifiedLog> {
    let started = Instant::now();
    let mut verifier = ChainVerifier::new(anchor);
    let mut after = 0;
    loop {
        let page = log_page(client, by, after).await?;
        let count = page.entries.len();
        for entry in page.entries {
            after = entry.position;
            verifier.read(&to_chained(entry)?);
        }
        if count < LOG_PAGE_SIZE {
            let hash = page.head.hash.parse::<Digest>().context("invalid hash in the audit log")?;
            let head = AuditHead { position: page.head.position, hash };
            let report = verifier.finish(Some(head));
            return Ok(VerifiedLog { report, pending: page.pending, duration: started.elapsed() });
        }
    }
}

async fn log_page(client: &Client, by: &str, after: u64) -> Result<AuditLogPage> {
    let (after, limit) = (after.to_string(), LOG_PAGE_SIZE.to_string());
    client.get_as("/audit/log", by, &[("after", after.as_str()), ("limit", limit.as_str())]).await
}

fn to_chained(entry: AuditLogEntry) -> Result<ChainedEntry> {
    let AuditLogEntry { position, previous, hash, content } = entry;
    let invalid = || format!("entry {position} of the audit log has an invalid hash");
    let (previous, hash) = (
        previous.parse::<Digest>().with_context(invalid)?,
        hash.parse::<Digest>().with_context(invalid)?,
    );
    Ok(ChainedEntry { position, previous, hash, content })
}

/// Verifies exported lines. The file has no stored end, so only `anchor` shows that it was cut off.
fn verify_file(path: &Path, anchor: Option<AuditHead>) -> Result<VerifiedLog> {
    let started = Instant::now();
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut verifier = ChainVerifier::new(anchor);
    for (number, line) in (1..).zip(BufReader::new(file).lines()) {
        let line: String = line.with_context(|| format!("cannot read {}", path.display()))?;
        let Some(entry) = ChainedEntry::from_line(&line) else {
            bail!(
                "line {number} of {} is not an entry of the audit log\n  help: use a file that \
                 `tamma audit export` has written",
                path.display()
            );
        };
        verifier.read(&entry);
    }
    let report = verifier.finish(None);
    Ok(VerifiedLog { report, pending: 0, duration: started.elapsed() })
}

fn export(arguments: &ExportArgs) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let by = arguments.identity.resolve_name()?;
        let mut after = arguments.after;
        loop {
            let page = log_page(&client, &by, after).await?;
            let count = page.entries.len();
            let mut out = anstream::stdout().lock();
            for entry in page.entries {
                after = entry.position;
                writeln!(out, "{}", to_chained(entry)?.to_line())?;
            }
            if count < LOG_PAGE_SIZE {
                return Ok(ExitCode::SUCCESS);
            }
        }
    })
}

/// Prints what was verified. The exit code is 1 if something is broken.
fn report(
    target: &ClientArgs,
    log: Option<&VerifiedLog>,
    histories: Option<&[VerifiedHistory]>,
) -> Result<ExitCode> {
    let is_log_broken = log.is_some_and(|log| log.report.broken.is_some());
    let is_broken = is_log_broken
        || histories.is_some_and(|all| all.iter().any(|history| history.broken.is_some()));
    if target.json {
        let log = log.map(log_json);
        output::print_json(&json!({ "intact": !is_broken, "log": log, "histories": histories }))?;
    } else {
        let texts = log.map(format_log).into_iter().chain(histories.map(format_audit));
        let lines = texts.collect::<Vec<_>>().join("\n");
        writeln!(anstream::stdout().lock(), "{lines}")?;
    }
    Ok(ExitCode::from(u8::from(is_broken)))
}

fn log_json(log: &VerifiedLog) -> Value {
    let broken = log.report.broken.map(|broken| {
        json!({ "position": broken.position, "fault": broken.fault, "text": broken.fault.label() })
    });
    json!({
        "verified": log.report.verified,
        "head": log.report.head,
        "pending": log.pending,
        "seconds": log.duration.as_secs_f64(),
        "broken": broken,
    })
}

fn parse_anchor(text: &str) -> Result<AuditHead, String> {
    let parsed = text.split_once(':').and_then(|(position, hash)| {
        Some(AuditHead { position: position.parse().ok()?, hash: hash.parse().ok()? })
    });
    parsed.ok_or_else(|| "use a position and its hash, such as 4711:0a1b…".to_owned())
}

fn count_entries(count: u64) -> String {
    pluralize(usize::try_from(count).unwrap_or(usize::MAX), "entry")
}

/// Formats the result of verifying the audit log.
fn format_log(log: &VerifiedLog) -> String {
    let (verified, seconds) = (count_entries(log.report.verified), log.duration.as_secs_f64());
    match log.report.broken {
        Some(broken) => format!(
            "audit log: entry {} {}; {verified} before it verified in {seconds:.2} s",
            broken.position,
            broken.fault.label()
        ),
        None => format!(
            "audit log: {verified} verified in {seconds:.2} s, {} pending; end {}:{}",
            count_entries(log.pending),
            log.report.head.position,
            log.report.head.hash
        ),
    }
}

/// Formats one line per broken history, and the totals.
fn format_audit(histories: &[VerifiedHistory]) -> String {
    let broken = histories.iter().filter_map(|history| {
        let broken = history.broken.as_ref()?;
        Some(format!("task {}: entry {} {}", history.task, broken.sequence, broken.text))
    });
    let mut lines: Vec<String> = broken.collect();
    let broken = lines.len();
    let total = |count: fn(&VerifiedHistory) -> u64| {
        let sum: u64 = histories.iter().map(count).sum();
        pluralize(usize::try_from(sum).unwrap_or(usize::MAX), "entry")
    };
    lines.push(format!(
        "{}: {} verified, {} not covered, {} broken",
        pluralize(histories.len(), "task"),
        total(|history| history.verified),
        total(|history| history.not_covered),
        broken
    ));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use tamma_core::audit::{AuditFault, BrokenAuditEntry};
    use tamma_server::dto::BrokenHistory;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn the_first_broken_entry_of_each_task_is_named() {
        let intact = VerifiedHistory {
            task: Uuid::from_u128(1),
            verified: 7,
            not_covered: 1,
            head: Some("00ff".to_owned()),
            broken: None,
        };
        let fault = BrokenHistory {
            sequence: 4,
            fault: "changed".to_owned(),
            text: "was changed".to_owned(),
        };
        let broken =
            VerifiedHistory { task: Uuid::from_u128(2), broken: Some(fault), ..intact.clone() };
        assert_eq!(
            format_audit(&[intact, broken]),
            "task 00000000-0000-0000-0000-000000000002: entry 4 was changed\n\
             2 tasks: 14 entries verified, 2 entries not covered, 1 broken"
        );
    }

    #[test]
    fn the_first_broken_entry_of_the_log_is_named() {
        let head = AuditHead::empty();
        let report = ChainReport { verified: 2, head, broken: None };
        let mut log = VerifiedLog { report, pending: 1, duration: Duration::from_millis(1500) };
        let text = format_log(&log);
        let expected = "audit log: 2 entries verified in 1.50 s, 1 entry pending; end 0:";
        assert!(text.starts_with(expected), "{text}");
        log.report.broken =
            Some(BrokenAuditEntry { position: 3, fault: AuditFault::Moved { to: 9 } });
        assert_eq!(
            format_log(&log),
            "audit log: entry 3 was moved to position 9; 2 entries before it verified in 1.50 s"
        );
        assert_eq!(log_json(&log)["broken"]["fault"], json!({ "kind": "moved", "to": 9 }));
    }

    #[test]
    fn a_kept_end_is_never_left_unchecked() {
        #[derive(Debug, clap::Parser)]
        struct Program {
            #[command(flatten)]
            verify: VerifyArgs,
        }
        let is_optional = |arguments: &[&str]| {
            let arguments = std::iter::once("tamma").chain(arguments.iter().copied());
            let program = <Program as clap::Parser>::try_parse_from(arguments).expect("valid");
            program.verify.is_log_optional()
        };
        assert!(is_optional(&[]));
        assert!(!is_optional(&["--only", "log"]));
        // Whoever may not read the log gets an error, not an exit code that says it is intact.
        let anchor = format!("4711:{}", AuditHead::empty().hash);
        assert!(!is_optional(&["--anchor", &anchor]));
    }

    #[test]
    fn an_export_is_verified_without_a_server() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("audit.jsonl");
        let mut head = AuditHead::empty();
        let mut lines = Vec::new();
        for id in 1..=5 {
            let entry = ChainedEntry::following(head, json!({ "id": id }).to_string());
            head = entry.head();
            lines.push(entry.to_line());
        }
        let verify = |lines: &[String], anchor| {
            std::fs::write(&path, lines.join("\n") + "\n").expect("written");
            verify_file(&path, anchor).expect("verified").report
        };
        let anchor = parse_anchor(&format!("5:{}", head.hash)).expect("anchor");
        assert_eq!(verify(&lines, Some(anchor)).broken, None);
        let missing = |position| Some(BrokenAuditEntry { position, fault: AuditFault::Missing });
        assert_eq!(verify(&lines[..4], Some(anchor)).broken, missing(5));
        assert_eq!(verify(&lines[..4], None).broken, None);
        lines.remove(1);
        assert_eq!(verify(&lines, None).broken, missing(2));
        parse_anchor("5").expect_err("no hash");
    }
}
