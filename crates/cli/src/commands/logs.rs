//! `tamma logs`: logs of the `tamma up` in the background, and of its private servers.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;

use super::backend_args::DataFolderArgs;
use crate::{background, output};

/// Time between two looks at a log that is followed.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(250);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[arg(value_enum, help = "Part to show [default: API server and worker]")]
    part: Option<LogPart>,
    /// Wait for new lines
    #[arg(long, short)]
    follow: bool,
    /// Number of lines from the end of the log
    #[arg(long, short = 'n', value_name = "NUMBER", default_value_t = 100)]
    lines: usize,
    #[command(flatten)]
    folder: DataFolderArgs,
}

/// Part of `tamma up` with a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogPart {
    Server,
    Worker,
    Postgres,
    Temporal,
}

impl LogPart {
    /// Crates whose lines belong to a part of the shared log; `None` for a log of its own.
    fn crates(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Server => Some(&[
                "tamma_server",
                "tamma_connect",
                "tamma_chat",
                "tamma_policy",
                "tamma_store",
            ]),
            Self::Worker => {
                Some(&["tamma_worker", "tamma_engine", "tamma_flow", "tamma_store", "temporalio_"])
            }
            Self::Postgres | Self::Temporal => None,
        }
    }
}

/// Returns the path of the log with a part.
fn part_path(part: Option<LogPart>, data: &Path) -> PathBuf {
    match part {
        None | Some(LogPart::Server | LogPart::Worker) => background::log_path(data),
        Some(LogPart::Postgres) => data.join("postgres/postgres.log"),
        Some(LogPart::Temporal) => data.join("temporal/temporal.log"),
    }
}

/// Selection of the lines of one part. Lines without a crate belong to the line before them.
struct LineFilter {
    crates: Option<&'static [&'static str]>,
    is_selected: bool,
}

impl LineFilter {
    fn new(part: Option<LogPart>) -> Self {
        Self { crates: part.and_then(LogPart::crates), is_selected: false }
    }

    fn selects(&mut self, line: &str) -> bool {
        let Some(crates) = self.crates else { return true };
        if let Some(target) = log_target(line) {
            self.is_selected = crates.iter().any(|name| target.starts_with(name));
        }
        self.is_selected
    }
}

/// Returns the module that wrote a log line, such as `tamma_worker::jobs`; `None` for a line without one.
fn log_target(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    words.next().filter(|time| time.ends_with('Z') && time.contains('T'))?;
    words.find_map(|word| {
        let target = word.strip_suffix(':')?;
        (target.starts_with("tamma") || target.starts_with("temporalio_")).then_some(target)
    })
}

pub(super) fn run(arguments: &Args) -> Result<ExitCode> {
    let data = arguments.folder.resolve()?;
    let path = part_path(arguments.part, &data);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => bail!(
            "there is no log {}\n  help: `tamma up --detach` writes it; without --detach, the log of \
             the server and the worker is on the terminal",
            path.display()
        ),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let mut filter = LineFilter::new(arguments.part);
    let position = print_last_lines(file, &mut filter, arguments.lines)?;
    if !arguments.follow {
        return Ok(ExitCode::SUCCESS);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(follow(&path, filter, position))
}

/// Prints new lines until the process is interrupted.
async fn follow(path: &Path, mut filter: LineFilter, mut position: u64) -> Result<ExitCode> {
    loop {
        tokio::time::sleep(FOLLOW_INTERVAL).await;
        position = print_new_lines(path, &mut filter, position)?;
    }
}

/// Prints the last selected lines of a log and returns the position after them.
fn print_last_lines(file: File, filter: &mut LineFilter, count: usize) -> Result<u64> {
    let mut last = std::collections::VecDeque::new();
    let mut reader = BufReader::new(file);
    let mut bytes = Vec::new();
    let mut position = 0;
    while let length @ 1.. = reader.read_until(b'\n', &mut bytes)? {
        position += u64::try_from(length)?;
        let line = String::from_utf8_lossy(&bytes).into_owned();
        if filter.selects(&line) {
            last.push_back(line);
        }
        if last.len() > count {
            last.pop_front();
        }
        bytes.clear();
    }
    let mut out = anstream::stdout().lock();
    for line in last {
        print_line(&mut out, &line)?;
    }
    out.flush()?;
    Ok(position)
}

/// Prints a line without control sequences: a log can contain texts of agents and repositories.
fn print_line(out: &mut impl io::Write, line: &str) -> io::Result<()> {
    writeln!(out, "{}", output::sanitize(line.trim_end()))
}

/// Prints the complete lines after a position and returns the new position. A log that has become
/// shorter was rotated, and is read from its start.
fn print_new_lines(path: &Path, filter: &mut LineFilter, position: u64) -> Result<u64> {
    // Between two logs there can be none.
    let Ok(mut file) = File::open(path) else { return Ok(0) };
    let length = file.metadata()?.len();
    let mut position = if length < position { 0 } else { position };
    file.seek(SeekFrom::Start(position))?;
    let mut reader = BufReader::new(file);
    let mut bytes = Vec::new();
    let mut out = anstream::stdout().lock();
    while reader.read_until(b'\n', &mut bytes)? > 0 && bytes.ends_with(b"\n") {
        position += u64::try_from(bytes.len())?;
        let line = String::from_utf8_lossy(&bytes).into_owned();
        if filter.selects(&line) {
            print_line(&mut out, &line)?;
        }
        bytes.clear();
    }
    out.flush()?;
    Ok(position)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
starting PostgreSQL…
Tamma is up at http://127.0.0.1:8622
2026-11-15T10:20:00.000001Z  WARN tamma_worker::jobs: retrying job=4
  caused by: a line of its own
2026-11-15T10:20:01.000001Z  WARN request{id=\"a\"}: tamma_server::edge: request failed
2026-11-15T10:20:02.000001Z ERROR temporalio_sdk::worker: poll failed
";

    fn selected(part: Option<LogPart>) -> Vec<&'static str> {
        let mut filter = LineFilter::new(part);
        let selected = LOG.lines().filter(|line| filter.selects(line));
        selected.map(|line| line.rsplit(": ").next().unwrap_or_default()).collect()
    }

    #[test]
    fn lines_are_selected_by_the_part_that_wrote_them() {
        assert_eq!(selected(None).len(), 6);
        assert_eq!(selected(Some(LogPart::Server)), ["request failed"]);
        assert_eq!(
            selected(Some(LogPart::Worker)),
            ["retrying job=4", "a line of its own", "poll failed"]
        );
    }

    #[test]
    fn private_servers_have_logs_of_their_own() {
        let data = Path::new("/data");
        let path = |part| part_path(Some(part), data);
        assert_eq!(path(LogPart::Postgres), Path::new("/data/postgres/postgres.log"));
        assert_eq!(path(LogPart::Temporal), Path::new("/data/temporal/temporal.log"));
        assert_eq!(path(LogPart::Worker), background::log_path(data));
    }

    #[test]
    fn new_lines_are_printed_once_and_only_when_complete() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tamma.log");
        let mut filter = LineFilter::new(None);
        assert_eq!(print_new_lines(&path, &mut filter, 7).expect("no log"), 0);
        std::fs::write(&path, "one\ntw").expect("written");
        assert_eq!(print_new_lines(&path, &mut filter, 0).expect("read"), 4);
        std::fs::write(&path, "one\ntwo\n").expect("written");
        assert_eq!(print_new_lines(&path, &mut filter, 4).expect("read"), 8);
        // Shorter: it was rotated.
        std::fs::write(&path, "new\n").expect("written");
        assert_eq!(print_new_lines(&path, &mut filter, 8).expect("read"), 4);
    }
}
