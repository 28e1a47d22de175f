//! `tamma service`: runs Tamma as a systemd service of the user.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use tokio::process::Command as Program;

use super::backend_args::DataFolderArgs;
use super::up;
use crate::services::{DataFolderLock, ProgramSearch};
use crate::{background, output};

/// Name of the unit.
const UNIT: &str = "tamma.service";

/// Variables that the service gets from the environment of the installation. None is a secret: those
/// belong in the environment file.
const KEPT_VARIABLES: [&str; 7] = [
    "PATH",
    "LANG",
    "XDG_DATA_HOME",
    "TAMMA_LISTEN",
    "TAMMA_PUBLIC_URL",
    "TAMMA_POSTGRES_BIN",
    "TAMMA_TEMPORAL_BIN",
];

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Install and start a systemd service of your user
    ///
    /// Writes ~/.config/systemd/user/tamma.service, which runs `tamma up`. It starts at login, or at
    /// boot after `loginctl enable-linger`. Keys of agents belong in ~/.config/tamma/environment, one
    /// NAME=value per line.
    Install(InstallArgs),
    /// Stop and remove the service
    ///
    /// Keeps the data.
    Uninstall,
}

#[derive(Debug, Args)]
pub(super) struct InstallArgs {
    #[command(flatten)]
    folder: DataFolderArgs,
    /// Print the unit file and change nothing
    #[arg(long)]
    print: bool,
}

pub(super) fn run(command: &Command) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match command {
        Command::Install(arguments) => runtime.block_on(install(arguments)),
        Command::Uninstall => runtime.block_on(uninstall()),
    }
}

/// Values of the unit file.
struct ServiceUnit {
    program: PathBuf,
    data: PathBuf,
    environment_file: PathBuf,
    variables: Vec<(String, String)>,
}

impl ServiceUnit {
    fn text(&self) -> String {
        let Self { program, data, environment_file, variables } = self;
        let variables: Vec<_> = variables
            .iter()
            .map(|(name, value)| {
                format!("Environment=\"{}\"\n", escape(&format!("{name}={value}")))
            })
            .collect();
        let log = background::log_path(data).display().to_string().replace('%', "%%");
        format!(
            "# Written by `tamma service install`.\n\
             [Unit]\n\
             Description=Tamma\n\
             After=network.target\n\n\
             [Service]\n\
             ExecStart={} up --background --data {}\n\
             {}\
             # Keys of agents and other secrets, one NAME=value per line.\n\
             EnvironmentFile=-{}\n\
             StandardOutput=append:{log}\n\
             StandardError=append:{log}\n\
             Restart=on-failure\n\
             RestartSec=5\n\
             # Agents save their work first.\n\
             KillMode=mixed\n\
             TimeoutStopSec=120\n\n\
             [Install]\n\
             WantedBy=default.target\n",
            command_word(program),
            command_word(data),
            variables.concat(),
            environment_file.display().to_string().replace('%', "%%"),
        )
    }
}

/// Quotes a word of a command line in a unit file.
fn command_word(path: &Path) -> String {
    format!("\"{}\"", escape(&path.display().to_string()).replace('$', "$$"))
}

/// Escapes a text between double quotes in a unit file.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%")
}

/// Returns the user's folder for configuration.
fn config_folder() -> Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let configured = set("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
    let folder = configured.or_else(|| set("HOME").map(|home| home.join(".config")));
    folder.context("cannot find your configuration folder: HOME is not set")
}

async fn install(arguments: &InstallArgs) -> Result<ExitCode> {
    let data = arguments.folder.resolve()?;
    let config = config_folder()?;
    let variable = |name: &str| {
        let value = std::env::var(name).ok()?;
        let is_plain = !value.is_empty() && !value.chars().any(char::is_control);
        is_plain.then(|| (name.to_owned(), value))
    };
    let unit = ServiceUnit {
        program: std::env::current_exe().context("cannot find the program `tamma`")?,
        data: data.clone(),
        environment_file: config.join("tamma/environment"),
        variables: KEPT_VARIABLES.into_iter().filter_map(variable).collect(),
    };
    if arguments.print {
        write!(anstream::stdout().lock(), "{}", unit.text())?;
        return Ok(ExitCode::SUCCESS);
    }
    let systemctl = find_systemctl().await?;
    if let Some(pid) = DataFolderLock::holder(&data) {
        bail!(
            "Tamma is already running (process {pid})\n  help: stop it with `tamma down`, then run \
             `tamma service install` again"
        );
    }
    let path = config.join("systemd/user").join(UNIT);
    let written = path.parent().map_or(Ok(()), fs::create_dir_all);
    let written = written.and_then(|()| background::prepare(&data));
    let written = written.and_then(|()| fs::write(&path, unit.text()));
    written.with_context(|| format!("cannot write {}", path.display()))?;
    systemctl.run(&["daemon-reload"]).await?;
    systemctl.run(&["enable", "--now", UNIT]).await?;
    let mut out = anstream::stdout().lock();
    output::write_done(&mut out, &format!("wrote {}", path.display()))?;
    output::write_done(&mut out, "started the service; it starts again at every login")?;
    writeln!(out, "  Keys of agents belong in {}.", unit.environment_file.display())?;
    writeln!(out)?;
    let mut next = up::background_commands();
    next.push((
        "loginctl enable-linger".to_owned(),
        "also run while you are logged out".to_owned(),
    ));
    next.push(("tamma service uninstall".to_owned(), "stop and remove the service".to_owned()));
    output::write_next_steps(&mut out, &next)?;
    Ok(ExitCode::SUCCESS)
}

async fn uninstall() -> Result<ExitCode> {
    let path = config_folder()?.join("systemd/user").join(UNIT);
    let mut out = anstream::stdout().lock();
    if !path.exists() {
        writeln!(out, "The service is not installed.")?;
        return Ok(ExitCode::SUCCESS);
    }
    let systemctl = find_systemctl().await?;
    systemctl.run(&["disable", "--now", UNIT]).await?;
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot remove {}", path.display()));
        }
        _ => {}
    }
    systemctl.run(&["daemon-reload"]).await?;
    output::write_done(&mut out, "stopped and removed the service; the data is kept")?;
    Ok(ExitCode::SUCCESS)
}

/// `systemctl` of a user session.
struct UserSystemctl(PathBuf);

impl UserSystemctl {
    /// Runs a command on the units of the user.
    async fn run(&self, arguments: &[&str]) -> Result<()> {
        let mut command = Program::new(&self.0);
        command.arg("--user").args(arguments).stdin(Stdio::null());
        let output = command.output().await;
        let output = output.with_context(|| format!("cannot run {}", self.0.display()))?;
        if output.status.success() {
            return Ok(());
        }
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        bail!("`systemctl --user {}` failed: {}", arguments.join(" "), output::sanitize(&message));
    }
}

/// Finds `systemctl`, and checks that the user has a session of systemd.
async fn find_systemctl() -> Result<UserSystemctl> {
    const INSTEAD: &str = "\n  help: run `tamma up --detach`, or write a service for the service \
                           manager of this machine (`tamma service install --print` shows its parts)";
    let Some(program) = ProgramSearch::from_environment().find_program("systemctl") else {
        bail!("this machine has no systemd{INSTEAD}");
    };
    let systemctl = UserSystemctl(program);
    if let Err(error) = systemctl.run(&["show-environment"]).await {
        bail!("systemd does not serve your user: {error}{INSTEAD}");
    }
    Ok(systemctl)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_quotes_its_words_and_contains_no_secrets() {
        let unit = ServiceUnit {
            program: "/opt/my tools/tamma".into(),
            data: "/home/ada/100%/$data".into(),
            environment_file: "/home/ada/.config/tamma/environment".into(),
            variables: vec![("PATH".to_owned(), "/usr/bin:/a \"b\"".to_owned())],
        };
        insta::assert_snapshot!(unit.text(), @r#"
        # Written by `tamma service install`.
        [Unit]
        Description=Tamma
        After=network.target

        [Service]
        ExecStart="/opt/my tools/tamma" up --background --data "/home/ada/100%%/$$data"
        Environment="PATH=/usr/bin:/a \"b\""
        # Keys of agents and other secrets, one NAME=value per line.
        EnvironmentFile=-/home/ada/.config/tamma/environment
        StandardOutput=append:/home/ada/100%%/$data/tamma.log
        StandardError=append:/home/ada/100%%/$data/tamma.log
        Restart=on-failure
        RestartSec=5
        # Agents save their work first.
        KillMode=mixed
        TimeoutStopSec=120

        [Install]
        WantedBy=default.target
        "#);
        assert!(KEPT_VARIABLES.iter().all(|name| !name.contains("KEY") && !name.contains("TOKEN")));
    }
}
