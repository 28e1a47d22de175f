//! `tamma login` and `tamma logout`: sign-in with an identity provider, for the command line.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use reqwest::{Method, StatusCode};
use serde_json::json;
use tamma_server::dto::{
    DevicePoll, DeviceRequest, DeviceSignIn, ProviderList, SessionId, SignedInDevice,
};

use crate::client::{self, Client, ClientArgs};
use crate::output::{self, sanitize};
use crate::saved_logins::SavedLogin;

#[derive(Debug, clap::Args)]
pub(crate) struct LoginArgs {
    /// Identity provider [default: the only one]
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    #[command(flatten)]
    target: ClientArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct LogoutArgs {
    #[command(flatten)]
    target: ClientArgs,
}

pub(super) fn run(arguments: &LoginArgs) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let provider = choose_provider(&client, arguments.provider.as_deref()).await?;
        let path = format!("/sign-in/{provider}/device");
        let body = DeviceRequest { client: Some(program_name()) };
        let response = client.send(client.request_at(Method::POST, &path).json(&body)).await?;
        let started: DeviceSignIn = response.json().await.context("unexpected response")?;
        show_code(&started)?;
        let session = wait_for_person(&client, &path, &started).await?;
        let login = SavedLogin { person: session.person.clone(), token: session.token };
        client::save_login(client.url(), Some(login)).context("cannot save the login")?;
        if arguments.target.json {
            let (person, until) = (&session.person, session.expires_at);
            output::print_json(
                &json!({ "server": client.url(), "person": person, "expires_at": until }),
            )?;
        } else {
            let (person, url) = (sanitize(&session.person), client.url());
            writeln!(anstream::stdout().lock(), "Signed in to {url} as {person}.")?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

async fn choose_provider(client: &Client, wanted: Option<&str>) -> Result<String> {
    let response = client.send(client.request_at(Method::GET, "/sign-in/providers")).await?;
    let known: ProviderList = response.json().await.context("unexpected response")?;
    let names: Vec<&str> = known.providers.iter().map(|provider| provider.name.as_str()).collect();
    match (wanted, names.as_slice()) {
        (_, []) => bail!(
            "the server has no identity provider\n  help: set TAMMA_TOKEN to an access token, which an \
             operator creates with `tamma person add`"
        ),
        (Some(wanted), names) if names.contains(&wanted) => Ok(wanted.to_owned()),
        (None, [only]) => Ok((*only).to_owned()),
        (Some(wanted), names) => bail!(
            "unknown identity provider `{wanted}`\n  help: use one of {}",
            sanitize(&names.join(", "))
        ),
        (None, names) => bail!(
            "the server has several identity providers\n  help: choose one with --provider: {}",
            sanitize(&names.join(", "))
        ),
    }
}

/// Prints the code and the address on standard error, because standard output can be JSON.
fn show_code(started: &DeviceSignIn) -> Result<()> {
    let mut out = anstream::stderr().lock();
    let (uri, code) = (sanitize(&started.verification_uri), sanitize(&started.user_code));
    writeln!(out, "Open {uri} in a browser and enter the code {code}")?;
    if let Some(complete) = &started.verification_uri_complete {
        writeln!(out, "or open {}", sanitize(complete))?;
    }
    Ok(())
}

/// Asks for the session until the person has signed in or the code has expired.
async fn wait_for_person(
    client: &Client,
    path: &str,
    started: &DeviceSignIn,
) -> Result<SignedInDevice> {
    let path = format!("{path}/token");
    let body = DevicePoll { secret: started.secret.clone() };
    let pause = Duration::from_secs(u64::try_from(started.interval_seconds).unwrap_or(5));
    let limit = Duration::from_secs(u64::try_from(started.expires_in_seconds).unwrap_or(600));
    let poll = async {
        loop {
            tokio::time::sleep(pause).await;
            let request = client.request_at(Method::POST, &path).json(&body);
            let response = client.send(request).await?;
            if response.status() != StatusCode::ACCEPTED {
                return response.json().await.context("unexpected response");
            }
        }
    };
    match tokio::time::timeout(limit, poll).await {
        Ok(session) => session,
        Err(_) => bail!("nobody entered the code in time\n  help: run `tamma login` again"),
    }
}

/// Returns the name of this program and machine, for the list of sessions.
fn program_name() -> String {
    let host = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    let version = env!("CARGO_PKG_VERSION");
    match host.trim() {
        "" => format!("tamma {version}"),
        host => format!("tamma {version} on {host}"),
    }
}

pub(super) fn log_out(arguments: &LogoutArgs) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let url = client.url().to_owned();
        let Some(login) = client::saved_login(&url) else {
            bail!("you are not signed in to {url}\n  help: sign in with `tamma login`");
        };
        let client = client.with_token(&login.token)?;
        let request = client.request(Method::POST, "/sessions/revocations");
        let request = request.json(&SessionId { id: "current".to_owned() });
        let revoked = client.send(request).await;
        client::save_login(&url, None).context("cannot remove the login")?;
        match revoked {
            Ok(_) => {}
            // The session has already ended.
            Err(client::Error::Problem(problem)) if problem.status == 401 => {}
            Err(error) => return Err(error.into()),
        }
        if arguments.target.json {
            output::print_json(&json!({ "server": url }))?;
        } else {
            writeln!(anstream::stdout().lock(), "Signed out of {url}.")?;
        }
        Ok(ExitCode::SUCCESS)
    })
}
