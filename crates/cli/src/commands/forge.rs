//! `tamma forge`: forges such as GitHub, with their credentials.
//!
//! Credentials come from files or standard input, never from arguments, and are never printed.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use tamma_connect::forge::{
    AppCredentials, Forge, ForgeCredential, ForgeReport, ForgeSettings, Forges, SettingsError,
};
use tamma_core::forge::ForgeKind;

use super::doctor::CheckStatus;
use super::task::list::{new_table, render_table};
use crate::output::{self, sanitize};
use crate::{data_folder, endpoint};

/// Folder of the settings of forges, in the data folder.
const FORGES_FOLDER: &str = "forges";

/// Longest credential that is read, in bytes.
const MAX_SECRET_BYTES: u64 = 64 * 1024;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Add a forge and its credential
    ///
    /// Writes its settings to a file in the data folder that only its owner can read. Projects whose
    /// repository is below the URL use this forge. Prints the secret of webhooks once, if it was
    /// generated. docs/delivery.md lists the permissions that the credential needs.
    Add(AddForgeArgs),
    /// List forges
    List(ListForgesArgs),
    /// Check the credential of a forge, and name missing permissions
    ///
    /// With --repository, also checks what the credential can do there. Exits with 1 if something is
    /// missing.
    Check(CheckForgeArgs),
    /// Remove a forge and its credential
    ///
    /// Open pull requests stay open. Their tasks wait until a forge with this name is added again.
    Remove(RemoveForgeArgs),
}

/// Data folder with the settings of forges.
#[derive(Debug, Args)]
pub(crate) struct DataArgs {
    #[arg(
        long,
        env = "TAMMA_DATA",
        hide_env_values = true,
        value_name = "FOLDER",
        help = "Data folder [default: $XDG_DATA_HOME/tamma or ~/.local/share/tamma; /var/lib/tamma for root]"
    )]
    data: Option<PathBuf>,
}

/// Kind of forge on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ForgeKindArg {
    /// GitHub, in the cloud or self-hosted
    Github,
    /// GitLab
    Gitlab,
    /// Gitea or Forgejo
    Gitea,
}

#[derive(Debug, Args)]
pub(crate) struct AddForgeArgs {
    /// Name, such as `github`
    name: String,
    /// Kind of forge
    #[arg(long, value_enum)]
    kind: ForgeKindArg,
    /// URL of its pages, such as `https://github.com`
    #[arg(long, value_name = "URL")]
    url: String,
    #[arg(long, value_name = "URL", help = "URL of its API [default: the usual one of its kind]")]
    api: Option<String>,
    #[command(flatten)]
    credential: CredentialArgs,
    /// Read the secret of webhooks from standard input, instead of generating one
    #[arg(long, conflicts_with = "token_stdin")]
    webhook_secret_stdin: bool,
    /// Replace the settings of an existing forge; its webhook secret is kept
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    data: DataArgs,
}

/// Source of the credential. Exactly one is given.
#[derive(Debug, Args)]
struct CredentialArgs {
    /// Read an access token from a file
    #[arg(long, value_name = "FILE", group = "credential", required_unless_present_any = ["token_stdin", "app_id"])]
    token_file: Option<PathBuf>,
    /// Read an access token from standard input
    #[arg(long, group = "credential")]
    token_stdin: bool,
    /// ID of a GitHub App
    #[arg(
        long,
        value_name = "NUMBER",
        group = "credential",
        requires = "installation",
        requires = "private_key_file"
    )]
    app_id: Option<u64>,
    /// ID of the app's installation
    #[arg(long, value_name = "NUMBER", requires = "app_id")]
    installation: Option<u64>,
    /// Read the app's private key from a PEM file
    #[arg(long, value_name = "FILE", requires = "app_id")]
    private_key_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ListForgesArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    data: DataArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CheckForgeArgs {
    /// Name of the forge
    name: String,
    /// Repository to check the permissions in
    #[arg(long, value_name = "OWNER/NAME")]
    repository: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    data: DataArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveForgeArgs {
    /// Name of the forge
    name: String,
    #[command(flatten)]
    data: DataArgs,
}

pub(super) fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Add(arguments) => add(arguments),
        Command::List(arguments) => list(arguments),
        Command::Check(arguments) => check(arguments),
        Command::Remove(arguments) => remove(arguments),
    }
}

impl DataArgs {
    /// Resolves the data folder.
    pub(super) fn folder(&self) -> Result<PathBuf> {
        let data = self.data.as_deref().filter(|path| !path.as_os_str().is_empty());
        Ok(data_folder::resolve(data)?)
    }
}

/// Opens the settings of forges in a data folder.
pub(super) fn open_forges(data: &Path) -> Forges {
    Forges::open(&forges_folder(data))
}

/// Returns the folder with the settings of forges.
pub(super) fn forges_folder(data: &Path) -> PathBuf {
    data.join(FORGES_FOLDER)
}

fn add(arguments: &AddForgeArgs) -> Result<ExitCode> {
    let name = &arguments.name;
    if !is_forge_name(name) {
        bail!(
            "invalid name `{}`: use 1 to 40 lower-case letters, digits and hyphens",
            sanitize(name)
        );
    }
    let url = web_url(&arguments.url)?;
    let api = arguments.api.as_deref().map(web_url).transpose()?;
    let data = arguments.data.folder()?;
    let forges = open_forges(&data);
    let existing = match forges.settings(name) {
        Ok(existing) => existing,
        // It is replaced because it cannot be used.
        Err(_) if arguments.replace => None,
        Err(error) => return Err(error.into()),
    };
    if existing.is_some() && !arguments.replace {
        bail!("forge `{name}` exists already\n  help: replace its settings with --replace");
    }
    let credential = arguments.credential.read()?;
    if matches!(credential, ForgeCredential::App(_)) && arguments.kind != ForgeKindArg::Github {
        bail!("only GitHub has apps\n  help: use --token-file or --token-stdin");
    }
    let kept = existing.and_then(|it| it.webhook_secret);
    let (webhook_secret, is_new) = match (arguments.webhook_secret_stdin, kept) {
        (true, _) => (read_secret_from_stdin("webhook secret")?, false),
        (false, Some(kept)) => (kept, false),
        (false, None) => (tamma_server::new_token(), true),
    };
    let settings = ForgeSettings {
        name: name.clone(),
        kind: arguments.kind.into(),
        url,
        api,
        credential,
        webhook_secret: Some(webhook_secret.clone()),
    };
    // Reports a private key or an address that cannot be used, before anything is written.
    Forge::open(&settings)?;
    forges.save(&settings)?;
    let mut out = anstream::stdout().lock();
    output::write_done(&mut out, &format!("forge {name} added"))?;
    if is_new {
        writeln!(out, "\n{}\n", webhook_setup(&settings, &webhook_url(&data, name)))?;
        writeln!(out, "  Secret (shown once): {webhook_secret}\n")?;
    }
    let next = [
        (format!("tamma forge check {name}"), "check the credential".to_owned()),
        ("tamma project add URL".to_owned(), "register a repository".to_owned()),
    ];
    output::write_next_steps(&mut out, &next)?;
    Ok(ExitCode::SUCCESS)
}

fn list(arguments: &ListForgesArgs) -> Result<ExitCode> {
    let known = open_forges(&arguments.data.folder()?);
    let (forges, broken) = (known.all()?, known.broken()?);
    if arguments.json {
        let forges: Vec<_> = forges.iter().map(public_settings).collect();
        let problem = |(name, problem): &(String, SettingsError)| json!({ "name": name, "problem": problem.to_string() });
        let broken: Vec<_> = broken.iter().map(problem).collect();
        output::print_json(&json!({ "forges": forges, "broken": broken }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = anstream::stdout().lock();
    for (name, problem) in &broken {
        output::write_check(&mut out, CheckStatus::Warning, name, &problem.to_string())?;
    }
    if forges.is_empty() && !broken.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    if forges.is_empty() {
        writeln!(out, "No forges. Add one with `tamma forge add`.")?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = new_table(&["NAME", "KIND", "URL", "CREDENTIAL", "WEBHOOKS"]);
    for forge in &forges {
        table.add_row([
            sanitize(&forge.name),
            forge.kind.to_string(),
            sanitize(&forge.url),
            credential_kind(&forge.credential).to_owned(),
            if forge.webhook_secret.is_some() { "accepted" } else { "off" }.to_owned(),
        ]);
    }
    writeln!(out, "{}", render_table(&table))?;
    Ok(ExitCode::SUCCESS)
}

fn check(arguments: &CheckForgeArgs) -> Result<ExitCode> {
    let data = arguments.data.folder()?;
    let settings = find_forge(&open_forges(&data), &arguments.name)?;
    let forge = Forge::open(&settings)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(forge.check(arguments.repository.as_deref()))?;
    let webhooks = settings.webhook_secret.is_some().then(|| webhook_url(&data, &settings.name));
    let is_complete = report.missing.is_empty();
    if arguments.json {
        output::print_json(&json!({
            "forge": settings.name, "account": report.account, "version": report.version,
            "missing": report.missing, "webhooks": webhooks,
        }))?;
    } else {
        write_report(&mut anstream::stdout().lock(), &report, webhooks.as_deref())?;
    }
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Writes what a check found out.
fn write_report(
    out: &mut impl std::io::Write,
    report: &ForgeReport,
    webhooks: Option<&str>,
) -> std::io::Result<()> {
    output::write_check(out, CheckStatus::Passed, "account", &report.account)?;
    if let Some(version) = &report.version {
        output::write_check(out, CheckStatus::Passed, "version", version)?;
    }
    if report.missing.is_empty() {
        output::write_check(out, CheckStatus::Passed, "permissions", "complete")?;
    }
    for missing in &report.missing {
        output::write_check(out, CheckStatus::Missing, "permission missing", missing)?;
    }
    match webhooks {
        Some(url) => output::write_check(
            out,
            CheckStatus::Passed,
            "webhooks",
            &format!("register {url} in the forge, with the secret from `tamma forge add`"),
        ),
        None => output::write_check(
            out,
            CheckStatus::Warning,
            "webhooks",
            "no secret, so none are accepted; changes are noticed within 30 s by polling",
        ),
    }
}

fn remove(arguments: &RemoveForgeArgs) -> Result<ExitCode> {
    let forges = open_forges(&arguments.data.folder()?);
    let name = &arguments.name;
    // One that cannot be used can be removed.
    if forges.settings(name).is_ok() {
        find_forge(&forges, name)?;
    }
    forges.remove(name)?;
    let mut out = anstream::stdout().lock();
    output::write_done(&mut out, &format!("forge {name} removed"))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the settings of a forge, or an error that lists the known ones.
fn find_forge(forges: &Forges, name: &str) -> Result<ForgeSettings> {
    let names: Vec<_> = forges.all()?.into_iter().map(|it| it.name).collect();
    match forges.settings(name)? {
        Some(settings) => Ok(settings),
        None if names.is_empty() => {
            bail!("no forge `{}`\n  help: add it with `tamma forge add`", sanitize(name))
        }
        None => bail!("no forge `{}`; use one of {}", sanitize(name), names.join(", ")),
    }
}

/// Returns settings without secrets.
fn public_settings(settings: &ForgeSettings) -> Value {
    json!({
        "name": settings.name, "kind": settings.kind, "url": settings.url, "api": settings.api,
        "credential": credential_kind(&settings.credential),
        "webhooks": settings.webhook_secret.is_some(),
    })
}

fn credential_kind(credential: &ForgeCredential) -> &'static str {
    match credential {
        ForgeCredential::Token(_) => "token",
        ForgeCredential::App(_) => "app",
    }
}

/// Returns the URL that the forge sends webhooks to, as far as this machine knows the server.
fn webhook_url(data: &Path, name: &str) -> String {
    let public = std::env::var("TAMMA_PUBLIC_URL").ok().filter(|url| !url.is_empty());
    let local = || endpoint::read(data).map(|endpoint| endpoint.url);
    let url = public.or_else(local).unwrap_or_else(|| endpoint::DEFAULT_URL.to_owned());
    format!("{}/hooks/forges/{name}", url.trim_end_matches('/'))
}

/// Returns where the webhook is registered.
fn webhook_setup(settings: &ForgeSettings, url: &str) -> String {
    let (place, events) = match (settings.kind, &settings.credential) {
        (ForgeKind::Github, ForgeCredential::App(_)) => (
            "the settings of the app, under Webhook",
            "pull requests, reviews, review comments, issues, issue comments, check runs, check \
             suites and statuses",
        ),
        (ForgeKind::Github, ForgeCredential::Token(_)) => (
            "Settings > Webhooks of the repository or organisation, as application/json",
            "pull requests, reviews, review comments, issues, issue comments, check runs, check \
             suites and statuses",
        ),
        (ForgeKind::Gitlab, _) => (
            "Settings > Webhooks of the project or group, with the secret as secret token",
            "merge requests, comments, issues, pipelines and jobs",
        ),
        (ForgeKind::Gitea, _) => (
            "Settings > Webhooks of the repository or organisation, as a Gitea webhook",
            "pull requests, reviews, comments, issues, workflow runs and statuses",
        ),
    };
    format!(
        "  Webhooks are optional: with them, changes are noticed at once. Register them in\n  \
         {place}:\n  URL: {url}\n  Events: {events}"
    )
}

/// Returns whether a text can be the name of a forge, and of its file.
fn is_forge_name(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=40).contains(&name.len()) && !name.starts_with('-') && name.chars().all(is_allowed)
}

/// Checks an HTTP URL and removes the slash at its end.
fn web_url(text: &str) -> Result<String> {
    let url =
        reqwest::Url::parse(text).with_context(|| format!("invalid URL `{}`", sanitize(text)))?;
    if !matches!(url.scheme(), "https" | "http") || url.host_str().is_none() {
        bail!("invalid URL `{}`: use a form such as https://github.com", sanitize(text));
    }
    if !url.username().is_empty() || url.password().is_some() {
        bail!("the URL has a credential\n  help: use --token-file or --token-stdin");
    }
    let is_local = matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
    if url.scheme() == "http" && !is_local {
        bail!("the credential would be sent in clear text: use https:// instead of http://");
    }
    Ok(text.trim_end_matches('/').to_owned())
}

impl CredentialArgs {
    /// Reads the credential from its file or from standard input.
    fn read(&self) -> Result<ForgeCredential> {
        match (&self.token_file, self.app_id, self.installation, &self.private_key_file) {
            (Some(file), ..) => Ok(ForgeCredential::Token(read_secret_file("token", file)?)),
            (None, Some(id), Some(installation), Some(file)) => {
                let private_key = read_secret_file("private key", file)?;
                if !private_key.contains("PRIVATE KEY-----") {
                    bail!("{} is not a private key in PEM format", file.display());
                }
                Ok(ForgeCredential::App(AppCredentials { id, installation, private_key }))
            }
            _ => Ok(ForgeCredential::Token(read_secret_from_stdin("token")?)),
        }
    }
}

/// Reads a secret from a file, without the line break at its end.
fn read_secret_file(what: &str, path: &Path) -> Result<String> {
    let file = std::fs::File::open(path);
    let file = file.with_context(|| format!("cannot read the {what} from {}", path.display()))?;
    read_secret(what, file)
}

fn read_secret_from_stdin(what: &str) -> Result<String> {
    read_secret(what, std::io::stdin().lock())
}

fn read_secret(what: &str, source: impl std::io::Read) -> Result<String> {
    let mut text = String::new();
    let read = source.take(MAX_SECRET_BYTES).read_to_string(&mut text);
    read.with_context(|| format!("cannot read the {what}"))?;
    let text = text.trim();
    if text.is_empty() {
        bail!("the {what} is empty");
    }
    Ok(text.to_owned())
}

impl From<ForgeKindArg> for ForgeKind {
    fn from(kind: ForgeKindArg) -> Self {
        match kind {
            ForgeKindArg::Github => Self::Github,
            ForgeKindArg::Gitlab => Self::Gitlab,
            ForgeKindArg::Gitea => Self::Gitea,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_forges_are_safe_file_names() {
        for good in ["github", "gitea-1", "a"] {
            assert!(is_forge_name(good), "{good}");
        }
        for bad in ["", "GitHub", "../x", "a.b", "-a", "a/b", "a b"] {
            assert!(!is_forge_name(bad), "{bad}");
        }
    }

    #[test]
    fn a_url_has_no_credential_and_is_encrypted() {
        assert_eq!(web_url("https://github.com/").expect("a URL"), "https://github.com");
        assert!(web_url("http://127.0.0.1:3000").is_ok());
        for bad in ["github.com", "ssh://git@github.com", "https://a:b@github.com", "http://x.org"]
        {
            assert!(web_url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_report_names_what_is_missing() {
        let report = ForgeReport {
            account: "tamma-bot".to_owned(),
            version: Some("1.27.2".to_owned()),
            missing: vec!["write:issue (to comment on pull requests)".to_owned()],
        };
        let mut out = Vec::new();
        write_report(&mut out, &report, Some("https://tamma.example/hooks/forges/gitea"))
            .expect("written");
        let text = String::from_utf8(out).expect("text");
        let text = anstream::adapter::strip_str(&text).to_string();
        assert_eq!(
            text,
            "✓ account: tamma-bot\n✓ version: 1.27.2\n✗ permission missing: write:issue (to \
             comment on pull requests)\n✓ webhooks: register \
             https://tamma.example/hooks/forges/gitea in the forge, with the secret from `tamma \
             forge add`\n"
        );
    }

    #[test]
    fn lists_contain_no_secret() {
        let settings = ForgeSettings {
            name: "github".to_owned(),
            kind: ForgeKind::Github,
            url: "https://github.com".to_owned(),
            api: None,
            credential: ForgeCredential::Token("ghp_secret".to_owned()),
            webhook_secret: Some("hook_secret".to_owned()),
        };
        let text = public_settings(&settings).to_string();
        assert!(!text.contains("secret") && text.contains(r#""credential":"token""#), "{text}");
    }
}
