//! `tamma workspace`: what a worker has on the disk of this machine, and giving it back.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use serde::Serialize;
use tamma_core::ids::TaskId;
use tamma_core::task_loop::State;
use tamma_engine::git::Git;
use tamma_engine::workspaces::{Workspace, Workspaces};
use tamma_server::shape::Whole;

use super::task::list::{drawn, table};
use crate::client::{self, Client, Target};
use crate::output::{self, plain};
use crate::{folders, look};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Shows what is on the disk for tasks, and whether it is saved elsewhere.
    List(List),
    /// Removes what is saved elsewhere, and says why the rest stays.
    ///
    /// A worktree is saved and pushed first. What somebody works in, and what cannot be pushed,
    /// stays. Whatever is removed is made again when it is needed.
    Reclaim(Reclaim),
}

#[derive(Debug, Args)]
pub(super) struct List {
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
pub(super) struct Reclaim {
    /// Only what nobody has changed for so long, such as `7d`, `12h` or `0`.
    #[arg(long, value_name = "AGE", default_value = "7d", value_parser = age)]
    older_than: Duration,
    /// Only until so much of the disk is free, such as `10G`. Without it, everything goes that may.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    keep_free: Option<u64>,
    /// Changes nothing, and says what would be done.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
struct Place {
    /// The folder for Tamma's data, as for `tamma up`.
    #[arg(long, env = "TAMMA_DATA", hide_env_values = true, value_name = "FOLDER")]
    data: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
}

/// One folder, as programs see it.
#[derive(Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    workspace: Workspace,
    /// The state of its task, where the server says it.
    state: Option<State>,
    age_seconds: u64,
    saved: bool,
    /// What became of it, for `reclaim`.
    #[serde(skip_serializing_if = "Option::is_none")]
    fate: Option<Fate>,
}

/// What became of a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Fate {
    Removed,
    WouldBeRemoved,
    Stays(String),
}

pub(super) fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::List(List { place }) => client::run(&place.target, async {
            let rows = place.rows(&place.workspaces().await?).await?;
            place.tell(&rows)
        }),
        Command::Reclaim(reclaim) => client::run(&reclaim.place.target, reclaim.run()),
    }
}

impl Place {
    async fn workspaces(&self) -> Result<Workspaces> {
        let data = self.data.as_deref().filter(|path| !path.as_os_str().is_empty());
        let data = folders::data(data)?.join("work");
        Ok(Workspaces::new(Git::find("git").await?, &data))
    }

    async fn rows(&self, workspaces: &Workspaces) -> Result<Vec<Row>> {
        let listed = workspaces.list().await.context("the data folder cannot be looked at")?;
        let states = self.states(&listed).await;
        let now = SystemTime::from(look::now());
        Ok(listed
            .into_iter()
            .map(|workspace| Row {
                state: workspace.task.and_then(|task| states.get(&task).copied()),
                age_seconds: now.duration_since(workspace.changed).map_or(0, |age| age.as_secs()),
                saved: workspace.unsaved.is_none(),
                fate: None,
                workspace,
            })
            .collect())
    }

    /// The states of the tasks, as far as a server answers. It is not needed for anything but to be
    /// shown, and to know what is rubbish.
    async fn states(&self, listed: &[Workspace]) -> BTreeMap<TaskId, State> {
        let mut states = BTreeMap::new();
        let Ok(client) = Client::new(&self.target) else { return states };
        for task in listed.iter().filter_map(|workspace| workspace.task) {
            if states.contains_key(&task) {
                continue;
            }
            match client.get::<Whole>(&format!("/tasks/{task}"), &[]).await {
                Ok(whole) => drop(states.insert(task, whole.card.state)),
                Err(client::Error::Unreachable { .. }) => break,
                Err(_) => {}
            }
        }
        states
    }

    fn tell(&self, rows: &[Row]) -> Result<ExitCode> {
        if self.target.json {
            output::json(&rows)?;
        } else {
            writeln!(anstream::stdout().lock(), "{}", shown(rows))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Reclaim {
    async fn run(&self) -> Result<ExitCode> {
        let workspaces = self.place.workspaces().await?;
        let mut rows = self.place.rows(&workspaces).await?;
        // The oldest first; and mirrors last, because worktrees hang on them.
        rows.sort_by_key(|row| {
            let last = row.workspace.kind == tamma_engine::workspaces::Kind::Mirror;
            (last, std::cmp::Reverse(row.age_seconds))
        });
        for row in &mut rows {
            row.fate = Some(self.fate(&workspaces, row).await?);
        }
        self.place.tell(&rows)
    }

    async fn fate(&self, workspaces: &Workspaces, row: &Row) -> Result<Fate> {
        if Duration::from_secs(row.age_seconds) < self.older_than {
            let age = look::lasting(chrono::TimeDelta::from_std(self.older_than)?);
            return Ok(Fate::Stays(format!("it is younger than {age}")));
        }
        let ended = row.state.is_none_or(State::is_terminal);
        if row.workspace.kind == tamma_engine::workspaces::Kind::Home && !ended {
            return Ok(Fate::Stays("its task has not ended".to_owned()));
        }
        if let Some(wanted) = self.keep_free {
            let disk = rustix::fs::statvfs(&row.workspace.path)
                .context("cannot tell how much of the disk is free")?;
            if disk.f_bavail * disk.f_frsize >= wanted {
                return Ok(Fate::Stays("enough of the disk is free".to_owned()));
            }
        }
        if self.dry_run {
            return Ok(match &row.workspace.unsaved {
                None => Fate::WouldBeRemoved,
                Some(why) => Fate::Stays(why.clone()),
            });
        }
        let delivered = row.state == Some(State::Completed);
        Ok(match workspaces.remove(&row.workspace, delivered).await? {
            None => Fate::Removed,
            Some(why) => Fate::Stays(why),
        })
    }
}

fn shown(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "There is nothing on the disk of this machine.".to_owned();
    }
    let mut table = table(&["WHAT", "TASK", "STATE", "SIZE", "AGE", "SAVED ELSEWHERE"]);
    for row in rows {
        let it = &row.workspace;
        let whose = it.task.map(|task| task.to_string());
        let whose = whose.or_else(|| it.project.map(|project| project.to_string()));
        let age = chrono::TimeDelta::seconds(i64::try_from(row.age_seconds).unwrap_or(i64::MAX));
        let saved = match (&row.fate, &it.unsaved) {
            (Some(Fate::Removed), _) => "removed".to_owned(),
            (Some(Fate::WouldBeRemoved), _) => "would be removed".to_owned(),
            (Some(Fate::Stays(why)), _) => format!("stays: {}", first_line(why)),
            (None, None) => "yes".to_owned(),
            (None, Some(why)) => format!("no: {}", first_line(why)),
        };
        table.add_row([
            it.kind.to_string(),
            whose.unwrap_or_default(),
            row.state.map(|state| look::words(&state)).unwrap_or_default(),
            weight(it.bytes),
            look::lasting(age),
            plain(&saved),
        ]);
    }
    let all = rows.iter().filter(|row| row.fate != Some(Fate::Removed));
    let all: u64 = all.map(|row| row.workspace.bytes).sum();
    format!("{}\n\n{} in all", drawn(&table), weight(all))
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// A size for people.
fn weight(bytes: u64) -> String {
    let mut left = bytes;
    for unit in ["kB", "MB", "GB"] {
        left = left.div_ceil(1_000);
        if left < 1_000 {
            return format!("{left} {unit}");
        }
    }
    format!("{} TB", left.div_ceil(1_000))
}

fn age(text: &str) -> Result<Duration> {
    let (number, seconds) = match text.char_indices().last() {
        Some((at, 'd')) => (&text[..at], 86_400),
        Some((at, 'h')) => (&text[..at], 3_600),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 's')) => (&text[..at], 1),
        _ => (text, 86_400),
    };
    match number.parse::<u32>() {
        Ok(number) => Ok(Duration::from_secs(u64::from(number) * seconds)),
        Err(_) => bail!("write an age such as `7d`, `12h`, `30m` or `0`"),
    }
}

fn size(text: &str) -> Result<u64> {
    let (number, unit) = match text.char_indices().last() {
        Some((at, 'T')) => (&text[..at], 1_000_000_000_000),
        Some((at, 'G')) => (&text[..at], 1_000_000_000),
        Some((at, 'M')) => (&text[..at], 1_000_000),
        _ => bail!("write a size such as `10G`, `500M` or `1T`"),
    };
    match number.parse::<u32>() {
        Ok(number) => Ok(u64::from(number) * unit),
        Err(_) => bail!("write a size such as `10G`, `500M` or `1T`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_sizes_are_read_as_they_are_written() {
        let seconds = |text| age(text).ok().map(|age| age.as_secs());
        assert_eq!(seconds("7d"), Some(604_800));
        assert_eq!(seconds("12h"), Some(43_200));
        assert_eq!(seconds("0"), Some(0));
        assert_eq!(seconds("soon"), None);
        assert_eq!(size("10G").ok(), Some(10_000_000_000));
        assert_eq!(size("10").ok(), None);
        assert_eq!((weight(0), weight(1_500), weight(2_000_000_000)), {
            ("0 kB".to_owned(), "2 kB".to_owned(), "2 GB".to_owned())
        });
    }
}
