//! `tamma project`: registers repositories.

use std::io::Write as _;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use tamma_core::repository_address::RepositoryAddress;
use tamma_server::dto::{NewProject, ProjectList, RegisteredProject};
use tokio::process::Command as Process;

use super::forge::{self, DataArgs};
use super::task::list::{new_table, render_table};
use crate::client::{self, Client, ClientArgs, IdentityArgs};
use crate::output::{self, sanitize};
use crate::repository::Repository;

/// Time limit for git to reach a repository.
const GIT_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Register a repository, by its URL or path (operators only)
    ///
    /// Checks first that Tamma can read the repository: with the credential of its forge, or without
    /// one. Agents never see the credential.
    Add(AddProjectArgs),
    /// List projects
    List(ListProjectsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AddProjectArgs {
    /// URL of the repository, or a path on this machine
    #[arg(value_name = "URL")]
    repository: String,
    #[arg(
        long = "name",
        value_name = "NAME",
        help = "Project name [default: the name of the repository]"
    )]
    project_name: Option<String>,
    /// Name or ID of the organisation that the project belongs to
    #[arg(long)]
    organisation: Option<String>,
    /// Do not check that the repository is readable, for a server on another machine
    #[arg(long)]
    no_check: bool,
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ListProjectsArgs {
    #[command(flatten)]
    target: ClientArgs,
}

pub(super) fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Add(arguments) => client::block_on(&arguments.target, add(arguments)),
        Command::List(arguments) => client::block_on(&arguments.target, list(arguments)),
    }
}

async fn add(arguments: &AddProjectArgs) -> Result<ExitCode> {
    let repository = resolve_address(&arguments.repository)?;
    let name = match &arguments.project_name {
        Some(name) => name.clone(),
        None => repository_name(&repository).with_context(|| {
            format!("cannot derive a name from `{}`: use --name", sanitize(&repository))
        })?,
    };
    if !arguments.no_check && is_remote(&repository) {
        check_readable(&repository, &arguments.data).await?;
    }
    let client = Client::new(&arguments.target)?;
    let by = arguments.identity.resolve_name()?;
    let organisation = arguments.organisation.clone();
    let new = NewProject { id: None, name, repository, organisation };
    let project: RegisteredProject = client.post("/projects", &by, client::new_id(), &new).await?;
    if arguments.target.json {
        output::print_json(&project)?;
    } else {
        let mut out = anstream::stdout().lock();
        output::write_done(&mut out, &format!("project {} registered", project.name))?;
        let command = format!("tamma task add --project {} TITLE", project.name);
        output::write_next_steps(&mut out, &[(command, "add a task".to_owned())])?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(arguments: &ListProjectsArgs) -> Result<ExitCode> {
    let client = Client::new(&arguments.target)?;
    let list: ProjectList = client.get("/projects", &[]).await?;
    if arguments.target.json {
        output::print_json(&list)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = anstream::stdout().lock();
    if list.projects.is_empty() {
        writeln!(out, "No projects. Register one with `tamma project add URL`.")?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = new_table(&["NAME", "REPOSITORY", "ID"]);
    for project in &list.projects {
        let RegisteredProject { id, name, repository } = project;
        table.add_row([sanitize(name), sanitize(repository), id.to_string()]);
    }
    writeln!(out, "{}", render_table(&table))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the URL, or the absolute path of the repository that contains a folder.
fn resolve_address(given: &str) -> Result<String> {
    if Path::new(given).is_dir() {
        let root = Repository::containing(Path::new(given))?.root;
        let root =
            root.canonicalize().with_context(|| format!("cannot open {}", root.display()))?;
        let path = root.to_str().context("repository path is not valid UTF-8")?;
        return Ok(path.to_owned());
    }
    let given = given.trim_end_matches('/');
    match given.parse::<RepositoryAddress>() {
        Ok(_) => Ok(given.to_owned()),
        Err(error) => bail!("cannot use `{}`: {error}", sanitize(given)),
    }
}

/// Returns whether git reaches the repository over a network.
fn is_remote(repository: &str) -> bool {
    !repository.starts_with('/') && !repository.starts_with("file://")
}

/// Returns the last part of an address, without `.git`.
fn repository_name(repository: &str) -> Option<String> {
    let last = repository.trim_end_matches('/').rsplit(['/', ':']).next()?;
    let name = last.strip_suffix(".git").unwrap_or(last);
    Some(name.to_owned()).filter(|name| !name.is_empty())
}

/// Checks that the repository is readable with the credential of its forge, or without one.
async fn check_readable(repository: &str, data: &DataArgs) -> Result<()> {
    let forges = forge::open_forges(&data.folder()?);
    let Some((client, path)) = forges.for_repository(repository)? else {
        return check_anonymous(repository).await;
    };
    let report = client.check(Some(&path)).await;
    let report =
        report.with_context(|| format!("cannot read {path} with the credential of its forge"))?;
    let mut out = anstream::stderr().lock();
    for missing in &report.missing {
        let status = super::doctor::CheckStatus::Warning;
        output::write_check(&mut out, status, "permission missing", missing)?;
    }
    Ok(())
}

/// Checks that git can read a repository that belongs to no known forge.
async fn check_anonymous(repository: &str) -> Result<()> {
    let mut git = Process::new("git");
    git.args(["-c", "credential.helper=", "ls-remote", "--quiet", "--", repository, "HEAD"]);
    // Nobody is asked for a password, and nothing but the named transports runs.
    git.env("GIT_TERMINAL_PROMPT", "0").env("GIT_ASKPASS", "true").env("LC_ALL", "C");
    git.env("GIT_ALLOW_PROTOCOL", "https:http:ssh").env("GIT_SSH_COMMAND", "ssh -oBatchMode=yes");
    git.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let output = tokio::time::timeout(GIT_TIMEOUT, git.output()).await;
    let reason = match output {
        Ok(Ok(output)) if output.status.success() => return Ok(()),
        Ok(Ok(output)) => {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            let line = text.lines().map(str::trim).find(|line| !line.is_empty());
            sanitize(line.unwrap_or("git failed"))
        }
        Ok(Err(error)) => return Err(error).context("cannot start git"),
        Err(_) => format!("no response within {} s", GIT_TIMEOUT.as_secs()),
    };
    bail!(
        "cannot read {repository}, which belongs to no known forge: {reason}\n  help: add its forge \
         with `tamma forge add NAME --kind github|gitlab|gitea --url {} --token-file FILE`, then \
         try again",
        forge_url(repository),
        repository = sanitize(repository),
    );
}

/// Guesses the URL of the forge of a repository.
fn forge_url(repository: &str) -> String {
    let host = repository.split_once("://").map_or(repository, |(_, rest)| rest);
    let host = host.split(['/', ':']).next().unwrap_or_default();
    let host = host.rsplit('@').next().unwrap_or_default();
    if host.is_empty() { "URL".to_owned() } else { sanitize(&format!("https://{host}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_project_is_that_of_its_repository() {
        for (address, name) in [
            ("https://github.com/acme/shop.git", "shop"),
            ("https://gitlab.com/acme/web/shop/", "shop"),
            ("git@github.com:acme/shop.git", "shop"),
            ("/srv/shop", "shop"),
        ] {
            assert_eq!(repository_name(address).as_deref(), Some(name), "{address}");
        }
        assert_eq!(repository_name("https://github.com/.git"), None);
    }

    #[test]
    fn an_unknown_forge_is_suggested_by_its_host() {
        assert_eq!(forge_url("https://github.com/acme/shop"), "https://github.com");
        assert_eq!(forge_url("git@code.example:acme/shop"), "https://code.example");
        assert_eq!(forge_url("ssh://git@code.example:22/acme/shop"), "https://code.example");
    }

    #[test]
    fn only_urls_are_checked_over_the_network() {
        assert!(is_remote("https://github.com/acme/shop"));
        assert!(is_remote("git@github.com:acme/shop"));
        assert!(!is_remote("/srv/shop") && !is_remote("file:///srv/shop"));
    }
}
