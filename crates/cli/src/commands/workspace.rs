//! `tamma workspace`: lists and reclaims the disk space of a worker.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use serde::Serialize;
use tamma_connect::forge::Forges;
use tamma_core::ids::TaskId;
use tamma_core::task_loop::State;
use tamma_engine::git::{Git, GitLogin};
use tamma_engine::workspaces::{Workspace, Workspaces};
use tamma_server::dto::TaskDetail;

use super::forge::open_forges;
use super::task::list::{new_table, render_table};
use crate::client::{self, Client, ClientArgs};
use crate::output::{self, sanitize};
use crate::{data_folder, style};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List task folders on this machine
    List(ListWorkspacesArgs),
    /// Remove folders whose work is saved elsewhere
    ///
    /// Pushes unsaved work first. Keeps folders that are in use and work that cannot be pushed, and
    /// prints the reason. Removed folders are created again when they are needed.
    Reclaim(ReclaimArgs),
}

#[derive(Debug, Args)]
pub(super) struct ListWorkspacesArgs {
    #[command(flatten)]
    common: WorkspaceArgs,
}

#[derive(Debug, Args)]
pub(super) struct ReclaimArgs {
    /// Minimum time since the last change, such as `7d`, `12h` or `0`
    #[arg(long, value_name = "AGE", default_value = "7d", value_parser = parse_age)]
    older_than: Duration,
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help = "Stop when this much disk space is free, such as 10G [default: remove all that qualify]")]
    keep_free: Option<u64>,
    /// Show what would be removed
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    common: WorkspaceArgs,
}

#[derive(Debug, Args)]
struct WorkspaceArgs {
    /// Data folder, as for `tamma up`
    #[arg(long, env = "TAMMA_DATA", hide_env_values = true, value_name = "FOLDER")]
    data: Option<PathBuf>,
    #[command(flatten)]
    target: ClientArgs,
}

/// Folder of a task or project, as `--json` prints it.
#[derive(Debug, Serialize)]
struct WorkspaceRow {
    #[serde(flatten)]
    workspace: Workspace,
    /// State of its task; `None` if the server cannot be asked.
    state: Option<State>,
    age_seconds: u64,
    saved: bool,
    /// Result of `reclaim`; `None` for `list`.
    #[serde(rename = "fate", skip_serializing_if = "Option::is_none")]
    outcome: Option<ReclaimOutcome>,
}

/// Result of reclaiming a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum ReclaimOutcome {
    Removed,
    WouldBeRemoved,
    #[serde(rename = "stays")]
    Retained(String),
}

pub(super) fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::List(ListWorkspacesArgs { common }) => client::block_on(&common.target, async {
            let rows = common.load_rows(&common.workspaces().await?).await?;
            common.print_rows(&rows)
        }),
        Command::Reclaim(reclaim) => client::block_on(&reclaim.common.target, reclaim.run()),
    }
}

impl WorkspaceArgs {
    async fn workspaces(&self) -> Result<Workspaces> {
        let data = self.data.as_deref().filter(|path| !path.as_os_str().is_empty());
        let data = data_folder::resolve(data)?;
        let forges = open_forges(&data);
        // Work of private repositories is compared and pushed with the login of their forge.
        let git = Git::find("git").await?.with_logins(Arc::new(move |address| {
            let forges = forges.clone();
            Box::pin(async move {
                find_login(&forges, &address).await.map_err(|error| format!("{error:#}"))
            })
        }));
        Ok(Workspaces::new(git, &data.join("work")))
    }

    async fn load_rows(&self, workspaces: &Workspaces) -> Result<Vec<WorkspaceRow>> {
        let listed = workspaces.list().await.context("cannot read the data folder")?;
        let states = self.task_states(&listed).await;
        let now = SystemTime::from(style::now());
        Ok(listed
            .into_iter()
            .map(|workspace| WorkspaceRow {
                state: workspace.task.and_then(|task| states.get(&task).copied()),
                age_seconds: now.duration_since(workspace.changed).map_or(0, |age| age.as_secs()),
                saved: workspace.unsaved.is_none(),
                outcome: None,
                workspace,
            })
            .collect())
    }

    /// Returns the states of the tasks, as far as the server is reachable. They are shown, and decide
    /// whether the home folder of an agent can go.
    async fn task_states(&self, listed: &[Workspace]) -> BTreeMap<TaskId, State> {
        let mut states = BTreeMap::new();
        let Ok(client) = Client::new(&self.target) else { return states };
        for task in listed.iter().filter_map(|workspace| workspace.task) {
            if states.contains_key(&task) {
                continue;
            }
            match client.get::<TaskDetail>(&format!("/tasks/{task}"), &[]).await {
                Ok(detail) => drop(states.insert(task, detail.card.state)),
                Err(client::Error::Unreachable { .. }) => break,
                Err(_) => {}
            }
        }
        states
    }

    fn print_rows(&self, rows: &[WorkspaceRow]) -> Result<ExitCode> {
        if self.target.json {
            output::print_json(&rows)?;
        } else {
            writeln!(anstream::stdout().lock(), "{}", format_rows(rows))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl ReclaimArgs {
    async fn run(&self) -> Result<ExitCode> {
        let workspaces = self.common.workspaces().await?;
        let mut rows = self.common.load_rows(&workspaces).await?;
        // Oldest first. Mirrors last, because worktrees depend on them.
        rows.sort_by_key(|row| {
            let last = row.workspace.kind == tamma_engine::workspaces::WorkspaceKind::Mirror;
            (last, std::cmp::Reverse(row.age_seconds))
        });
        for row in &mut rows {
            row.outcome = Some(self.reclaim(&workspaces, row).await?);
        }
        self.common.print_rows(&rows)
    }

    async fn reclaim(&self, workspaces: &Workspaces, row: &WorkspaceRow) -> Result<ReclaimOutcome> {
        if Duration::from_secs(row.age_seconds) < self.older_than {
            let age = style::format_duration(chrono::TimeDelta::from_std(self.older_than)?);
            return Ok(ReclaimOutcome::Retained(format!("changed less than {age} ago")));
        }
        let ended = row.state.is_none_or(State::is_terminal);
        if row.workspace.kind == tamma_engine::workspaces::WorkspaceKind::Home && !ended {
            return Ok(ReclaimOutcome::Retained("its task is open".to_owned()));
        }
        if let Some(keep_free) = self.keep_free {
            let disk = rustix::fs::statvfs(&row.workspace.path)
                .context("cannot determine the free disk space")?;
            if disk.f_bavail * disk.f_frsize >= keep_free {
                return Ok(ReclaimOutcome::Retained("enough disk space is free".to_owned()));
            }
        }
        if self.dry_run {
            return Ok(match &row.workspace.unsaved {
                None => ReclaimOutcome::WouldBeRemoved,
                Some(reason) => ReclaimOutcome::Retained(reason.clone()),
            });
        }
        let delivered = row.state == Some(State::Completed);
        Ok(match workspaces.remove(&row.workspace, delivered).await? {
            None => ReclaimOutcome::Removed,
            Some(reason) => ReclaimOutcome::Retained(reason),
        })
    }
}

/// Returns the login for a repository, or `None` if none of the forges has it.
async fn find_login(forges: &Forges, address: &str) -> Result<Option<GitLogin>> {
    if address.starts_with('/') {
        return Ok(None);
    }
    let Some((forge, _)) = forges.for_repository(address)? else { return Ok(None) };
    let login = forge.git_login().await?;
    Ok(Some(GitLogin { user: login.user, password: login.password }))
}

fn format_rows(rows: &[WorkspaceRow]) -> String {
    if rows.is_empty() {
        return "No task folders on this machine.".to_owned();
    }
    let mut table = new_table(&["KIND", "TASK", "STATE", "SIZE", "AGE", "SAVED ELSEWHERE"]);
    for row in rows {
        let it = &row.workspace;
        let owner = it.task.map(|task| task.to_string());
        let owner = owner.or_else(|| it.project.map(|project| project.to_string()));
        let age = chrono::TimeDelta::seconds(i64::try_from(row.age_seconds).unwrap_or(i64::MAX));
        let saved = match (&row.outcome, &it.unsaved) {
            (Some(ReclaimOutcome::Removed), _) => "removed".to_owned(),
            (Some(ReclaimOutcome::WouldBeRemoved), _) => "would be removed".to_owned(),
            (Some(ReclaimOutcome::Retained(reason)), _) => format!("kept: {}", first_line(reason)),
            (None, None) => "yes".to_owned(),
            (None, Some(reason)) => format!("no: {}", first_line(reason)),
        };
        table.add_row([
            it.kind.to_string(),
            owner.unwrap_or_default(),
            row.state.map(|state| style::humanize(&state)).unwrap_or_default(),
            format_bytes(it.bytes),
            style::format_duration(age),
            sanitize(&saved),
        ]);
    }
    let all = rows.iter().filter(|row| row.outcome != Some(ReclaimOutcome::Removed));
    let all: u64 = all.map(|row| row.workspace.bytes).sum();
    format!("{}\n\nTotal: {}", render_table(&table), format_bytes(all))
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// Formats a size in its largest unit, rounded up.
fn format_bytes(bytes: u64) -> String {
    let mut left = bytes;
    for unit in ["kB", "MB", "GB"] {
        left = left.div_ceil(1_000);
        if left < 1_000 {
            return format!("{left} {unit}");
        }
    }
    format!("{} TB", left.div_ceil(1_000))
}

fn parse_age(text: &str) -> Result<Duration> {
    let (number, seconds) = match text.char_indices().last() {
        Some((at, 'd')) => (&text[..at], 86_400),
        Some((at, 'h')) => (&text[..at], 3_600),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 's')) => (&text[..at], 1),
        _ => (text, 86_400),
    };
    match number.parse::<u32>() {
        Ok(number) => Ok(Duration::from_secs(u64::from(number) * seconds)),
        Err(_) => bail!("invalid age: use a form such as `7d`, `12h`, `30m` or `0`"),
    }
}

fn parse_size(text: &str) -> Result<u64> {
    let (number, unit) = match text.char_indices().last() {
        Some((at, 'T')) => (&text[..at], 1_000_000_000_000),
        Some((at, 'G')) => (&text[..at], 1_000_000_000),
        Some((at, 'M')) => (&text[..at], 1_000_000),
        _ => bail!("invalid size: use a form such as `10G`, `500M` or `1T`"),
    };
    match number.parse::<u32>() {
        Ok(number) => Ok(u64::from(number) * unit),
        Err(_) => bail!("invalid size: use a form such as `10G`, `500M` or `1T`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn logins_come_from_the_forges_of_the_data_folder() {
        let data = tempfile::tempdir().unwrap();
        let forges = open_forges(data.path());
        let local = find_login(&forges, "/srv/app").await.unwrap();
        let unknown = find_login(&forges, "https://forge.example/acme/app").await.unwrap();
        assert!(local.is_none() && unknown.is_none());
    }

    #[test]
    fn ages_and_sizes_are_parsed_and_formatted() {
        let seconds = |text| parse_age(text).ok().map(|age| age.as_secs());
        assert_eq!(seconds("7d"), Some(604_800));
        assert_eq!(seconds("12h"), Some(43_200));
        assert_eq!(seconds("0"), Some(0));
        assert_eq!(seconds("soon"), None);
        assert_eq!(parse_size("10G").ok(), Some(10_000_000_000));
        assert_eq!(parse_size("10").ok(), None);
        assert_eq!((format_bytes(0), format_bytes(1_500), format_bytes(2_000_000_000)), {
            ("0 kB".to_owned(), "2 kB".to_owned(), "2 GB".to_owned())
        });
    }
}
