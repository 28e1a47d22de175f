//! `tamma keys`: encryption keys of an installation.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use tamma_keys::{KeyDescription, KeyFile, KeyRing};

use super::backend_args::{self, DataFolderArgs};
use super::task::list::{new_table, render_table};
use crate::output;
use crate::roles::now;
use crate::style;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create the key file of a new installation
    ///
    /// `tamma up` with its private Temporal server does it by itself. With another Temporal server, create
    /// the file once and copy it to every machine that runs `tamma serve`, `tamma work` or `tamma up`.
    Create(CreateKeysArgs),
    /// List the keys, without showing them
    List(ListKeysArgs),
    /// Add a key that opens and does not seal yet
    ///
    /// For several machines: add a key, copy the file to all of them, then run `tamma keys activate` and
    /// copy it again.
    Add(KeyFileArgs),
    /// Seal with another key of the file
    Activate(ActivateKeyArgs),
    /// Add a key and seal with it; old keys still open
    ///
    /// For one machine, or a key file on a shared disk. Running processes use the new key within seconds.
    Rotate(KeyFileArgs),
}

/// Location of the key file.
#[derive(Debug, Args)]
pub(crate) struct KeyFileArgs {
    #[arg(
        long,
        env = "TAMMA_KEYS",
        hide_env_values = true,
        value_name = "FILE",
        help = "Key file [default: keys.json in the data folder]"
    )]
    keys: Option<PathBuf>,
    #[command(flatten)]
    data: DataFolderArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CreateKeysArgs {
    /// Seal nothing until `tamma keys activate`, while older versions of Tamma are running
    #[arg(long)]
    inactive: bool,
    #[command(flatten)]
    file: KeyFileArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ListKeysArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    file: KeyFileArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ActivateKeyArgs {
    #[arg(help = "ID of the key [default: the newest]")]
    id: Option<String>,
    #[command(flatten)]
    file: KeyFileArgs,
}

impl KeyFileArgs {
    fn key_file(&self) -> Result<KeyFile> {
        Ok(backend_args::key_file(self.keys.as_deref(), &self.data.resolve()?))
    }
}

pub(super) fn run(command: &Command) -> Result<ExitCode> {
    let (file, done) = match command {
        Command::Create(arguments) => {
            let file = arguments.file.key_file()?;
            let id = file.create(now(), arguments.inactive)?;
            let done = format!("Created {} with key {id}.", file.path().display());
            (file, format!("{done} Keep a copy in a safe place: without it, open tasks are lost."))
        }
        Command::List(arguments) => return list(arguments),
        Command::Add(arguments) => {
            let file = arguments.key_file()?;
            let id = file.change(|ring| ring.add(now()))?;
            (file, format!("Added key {id}. To seal with it, run `tamma keys activate`."))
        }
        Command::Activate(arguments) => {
            let file = arguments.file.key_file()?;
            let Some(id) = arguments.id.clone().or_else(|| newest(&file.read().ok()?)) else {
                file.read()?;
                bail!("{} has no key; add one with `tamma keys add`", file.path().display());
            };
            file.change(|ring| ring.activate(&id)).context("cannot activate the key")?;
            (file, format!("Key {id} is active."))
        }
        Command::Rotate(arguments) => {
            let file = arguments.key_file()?;
            let id = file.change(|ring| {
                let id = ring.add(now())?;
                ring.activate(&id)?;
                Ok(id)
            })?;
            (file, format!("Key {id} is active. Older keys still open what they have sealed."))
        }
    };
    let mut out = anstream::stdout().lock();
    writeln!(out, "{done}\n\n{}", format_keys(&file.read()?.describe()))?;
    Ok(ExitCode::SUCCESS)
}

fn list(arguments: &ListKeysArgs) -> Result<ExitCode> {
    let keys = arguments.file.key_file()?.read()?.describe();
    if arguments.json {
        output::print_json(&keys)?;
    } else {
        writeln!(anstream::stdout().lock(), "{}", format_keys(&keys))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn newest(ring: &KeyRing) -> Option<String> {
    ring.describe().pop().map(|key| key.id)
}

fn format_keys(keys: &[KeyDescription]) -> String {
    let mut table = new_table(&["KEY", "CREATED", "STATUS"]);
    for key in keys {
        let status = if key.active { "active" } else { "opens only" };
        let created = style::format_ago(key.created, style::now());
        table.add_row([key.id.clone(), created, status.to_owned()]);
    }
    render_table(&table)
}
