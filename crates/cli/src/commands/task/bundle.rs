//! `tamma task bundle`: redacted archive of everything about a task, to send to somebody who can help.
//!
//! The server collects and redacts what it knows about the task. This command adds what only this
//! machine knows, redacts the values of its own environment, and writes the archive.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use chrono::{DateTime, Utc};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use tamma_core::review::patterns;
use tamma_engine::secret::{Redactor, Secret};
use tamma_server::dto::{BundleFile, TaskBundle, short_id};
use tokio::process::Command;
use uuid::Uuid;

use crate::agents;
use crate::client::{self, Client, ClientArgs};
use crate::services::ProgramSearch;
use crate::{output, style};

/// Time limit of `tamma doctor`.
const DOCTOR_TIMEOUT: Duration = Duration::from_mins(1);

/// Time limit for an agent to print its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(15);

/// Endings of the names of variables that hold secrets.
const SECRET_NAMES: [&str; 4] = ["KEY", "TOKEN", "SECRET", "PASSWORD"];

/// Descriptions of the files, by the start of their path.
const DESCRIPTIONS: [(&str, &str); 14] = [
    ("README.txt", "this text"),
    ("task.json", "the task, its decisions, attempts and alerts"),
    ("state.json", "state of the task"),
    ("report.json", "report: gates, criteria, decisions, councils and cost"),
    ("plans/", "versions of the plan"),
    ("checks.json", "gate results and reviews of each commit"),
    ("jobs.json", "results of the last jobs"),
    ("history.jsonl", "history, one entry per line"),
    ("rules.json", "rules of the task"),
    ("texts/", "texts that the other files refer to, such as failure briefs and questions"),
    ("runs", "agent runs, with their transcripts"),
    ("server.json", "version and health of the server"),
    ("machine.json", "version of this program, agents on this machine, output of tamma doctor"),
    ("problems.txt", "parts that are missing or may not be fully redacted"),
];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Task ID, or at least four characters from its start or end
    #[arg(value_name = "TASK")]
    id: String,
    #[arg(
        long,
        short,
        value_name = "FILE",
        help = "Archive to write [default: tamma-task-ID.tar.gz]"
    )]
    output: Option<PathBuf>,
    #[command(flatten)]
    target: ClientArgs,
}

pub(super) fn run(arguments: &Args) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let id = client.resolve_task(&arguments.id).await?;
        let bundle: TaskBundle = client.get(&format!("/tasks/{id}/bundle"), &[]).await?;
        let folder = format!("tamma-task-{}", short_id(id));
        let default = || PathBuf::from(format!("{folder}.tar.gz"));
        let file = arguments.output.clone().unwrap_or_else(default);
        let mut files = bundle.files;
        let machine = format!("{:#}\n", describe_machine().await);
        files.push(BundleFile { path: "machine.json".to_owned(), text: machine });
        redact(&mut files);
        let now = style::now();
        files.insert(0, readme(id, now, &files));
        let size = write_archive(&file, &folder, &files, now)
            .with_context(|| format!("cannot write {}", file.display()))?;
        if arguments.target.json {
            let paths: Vec<_> = files.iter().map(|file| &file.path).collect();
            output::print_json(&json!({ "file": file, "bytes": size, "files": paths }))?;
        } else {
            let count = output::pluralize(files.len(), "file");
            let mut out = anstream::stdout().lock();
            let done = format!("wrote {} ({count}, {} kB)", file.display(), size.div_ceil(1000));
            output::write_done(&mut out, &done)?;
            writeln!(
                out,
                "Secrets are redacted; code, paths and names are not. Read it before you send it."
            )?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Returns the versions of this program and of the installed agents, and the output of
/// `tamma doctor`.
async fn describe_machine() -> Value {
    let search = ProgramSearch::from_environment();
    let detected = agents::detect(|name| search.find_program(name), |_| false);
    let mut agents = Vec::new();
    for agent in detected.installed {
        let version = print_output(&agent.program, &["--version"], VERSION_TIMEOUT).await;
        let version = version.lines().next().unwrap_or_default().trim().to_owned();
        agents.push(json!({ "name": agent.name, "program": agent.program, "version": version }));
    }
    let doctor = match std::env::current_exe() {
        Ok(program) => print_output(&program, &["doctor", "--json"], DOCTOR_TIMEOUT).await,
        Err(error) => format!("cannot find this program: {error}"),
    };
    // Anything but JSON is an error message.
    let doctor = serde_json::from_str(&doctor).unwrap_or(Value::String(doctor));
    let system = json!({ "os": std::env::consts::OS, "architecture": std::env::consts::ARCH });
    json!({
        "tamma": env!("CARGO_PKG_VERSION"),
        "system": system,
        "agents": agents,
        "doctor": doctor,
    })
}

/// Returns what a program prints, or why it printed nothing.
async fn print_output(program: &Path, arguments: &[&str], limit: Duration) -> String {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    match tokio::time::timeout(limit, command.output()).await {
        Ok(Ok(output)) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Ok(Err(error)) => format!("cannot run it: {error}"),
        Err(_) => format!("no output within {} s", limit.as_secs()),
    }
}

/// Redacts the secrets of this process's environment, and everything that looks like a secret.
fn redact(files: &mut [BundleFile]) {
    let is_secret = |name: &str| {
        let name = name.to_ascii_uppercase();
        SECRET_NAMES.iter().any(|end| name.ends_with(end))
    };
    let secrets = std::env::vars_os().filter_map(|(name, value)| {
        is_secret(name.to_str()?).then(|| Some(Secret::new(value.to_str()?)))?
    });
    let redactor = Redactor::new(secrets);
    for file in files {
        file.text = redactor.redact(&file.text).into_owned();
        if file.path == "machine.json" {
            // The server has redacted its own files.
            file.text = patterns::redact_secrets(&file.text).0;
        }
    }
}

/// Returns the description of the archive.
fn readme(task: Uuid, now: DateTime<Utc>, files: &[BundleFile]) -> BundleFile {
    let mut text = format!(
        "Everything that Tamma knows about task {task}\nCreated by `tamma task bundle` on {}.\n\n\
         Redacted: known secrets from the configuration and from the environments of the server and of\n\
         this machine, and texts that look like secrets. [secret] or [redacted] replaces them.\n\
         Not redacted: code, paths, names, and secrets that Tamma does not recognise.\n\
         Read the files before you send them to anyone.\n\n\
         Long files are cut in the middle; a note says how many bytes were left out.\n\nContents:\n",
        now.format("%Y-%m-%d %H:%M UTC")
    );
    for (path, description) in DESCRIPTIONS {
        if path == "README.txt" || files.iter().any(|file| file.path.starts_with(path)) {
            style::push_fmt(&mut text, format_args!("  {path:<14} {description}\n"));
        }
    }
    BundleFile { path: "README.txt".to_owned(), text }
}

/// Writes the archive, readable only by its owner, and returns its size in bytes. An existing file
/// is replaced once the archive is complete.
fn write_archive(
    path: &Path,
    folder: &str,
    files: &[BundleFile],
    now: DateTime<Utc>,
) -> Result<u64> {
    let name = path.file_name().context("the path names no file")?;
    let partial = path.with_file_name(format!(".{}.{}", name.display(), client::new_id()));
    let written = write_new_archive(&partial, folder, files, now).and_then(|size| {
        std::fs::rename(&partial, path)?;
        Ok(size)
    });
    if written.is_err() {
        // It may not exist; the first error is the one to report.
        drop(std::fs::remove_file(&partial));
    }
    written
}

fn write_new_archive(
    path: &Path,
    folder: &str,
    files: &[BundleFile],
    now: DateTime<Utc>,
) -> Result<u64> {
    let file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
    for BundleFile { path, text } in files {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(u64::try_from(now.timestamp()).unwrap_or_default());
        archive.append_data(&mut header, format!("{folder}/{path}"), text.as_bytes())?;
    }
    let file = archive.into_inner()?.finish()?;
    file.sync_all()?;
    Ok(file.metadata()?.len())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::io::Read as _;
    use std::os::unix::fs::PermissionsExt as _;

    use flate2::read::GzDecoder;

    use super::*;

    fn file(path: &str, text: &str) -> BundleFile {
        BundleFile { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn an_archive_has_the_files_in_one_folder() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("bundle.tar.gz");
        let files = [file("README.txt", "hello"), file("runs/4.1/transcript.jsonl", "{}\n")];
        let now = "2026-11-16T10:20:30Z".parse().expect("a time");
        let size = write_archive(&path, "task", &files, now).expect("written");
        assert_eq!(size, path.metadata().expect("file").len());
        let mut archive = tar::Archive::new(GzDecoder::new(File::open(&path).expect("opened")));
        let read = archive.entries().expect("entries").map(|entry| {
            let mut entry = entry.expect("entry");
            let mut text = String::new();
            entry.read_to_string(&mut text).expect("text");
            (entry.path().expect("path").display().to_string(), text)
        });
        let expected = [("task/README.txt", "hello"), ("task/runs/4.1/transcript.jsonl", "{}\n")];
        let expected = expected.map(|(path, text)| (path.to_owned(), text.to_owned()));
        assert_eq!(read.collect::<Vec<_>>(), expected);
        // A server cannot make the archive write elsewhere. A failure keeps the old archive.
        assert!(write_archive(&path, "task", &[file("../x", "")], now).is_err());
        assert_eq!(path.metadata().expect("file").len(), size);
        assert_eq!(folder.path().read_dir().expect("folder").count(), 1);
    }

    #[test]
    fn an_archive_is_private_even_if_it_replaces_a_public_file_or_a_link() {
        let folder = tempfile::tempdir().expect("folder");
        let (path, other) = (folder.path().join("bundle.tar.gz"), folder.path().join("other"));
        std::fs::write(&other, "mine").expect("written");
        std::os::unix::fs::symlink(&other, &path).expect("linked");
        let now = "2026-11-16T10:20:30Z".parse().expect("a time");
        for _ in 0..2 {
            write_archive(&path, "task", &[file("README.txt", "hello")], now).expect("written");
            let metadata = path.symlink_metadata().expect("file");
            assert!(metadata.is_file(), "not a link");
            assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
            std::fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("changed");
        }
        assert_eq!(std::fs::read_to_string(&other).expect("read"), "mine");
    }

    #[test]
    fn the_readme_lists_what_is_there_and_says_that_it_is_redacted() {
        let files = [file("task.json", "{}"), file("runs/4.1/log.jsonl", "")];
        let now = "2026-11-16T10:20:30Z".parse().expect("a time");
        let BundleFile { path, text } = readme(Uuid::nil(), now, &files);
        assert_eq!(path, "README.txt");
        assert!(text.contains("Redacted: ") && text.contains("2026-11-16 10:20 UTC"), "{text}");
        assert!(text.contains("\n  task.json") && text.contains("\n  runs "), "{text}");
        assert!(!text.contains("plans/"), "{text}");
    }
}
