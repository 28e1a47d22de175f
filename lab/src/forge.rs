//! Delivery in forges: one contract over a fake GitHub, a fake GitLab and a real Gitea, one story on
//! Gitea, faults at every operation, and the use of a quota.
//!
//! `contract` runs every operation of the client, twice, and its preconditions; `person` writes what it
//! reads. `openapi` compares what was sent to the fake and what it responded with GitHub's description
//! of its API, and sends GitHub's examples of webhooks through our receiver. `story` takes an issue
//! through the whole product, with `screenshots` and a `transcript` for the documents. `faults` kills
//! processes and loses requests at operations that `operation` lists, in stories on a `site`, whose state
//! `census` counts. `quota` counts calls. The quick slice needs neither Gitea nor GitHub's files; the
//! result says what ran.

mod census;
mod contract;
mod faults;
mod openapi;
mod operation;
mod person;
mod quota;
mod screenshots;
mod site;
mod story;
mod transcript;

use std::io::Write as _;

use anyhow::{Result, ensure};
use tamma_connect::forge::{Forge, ForgeCredential, ForgeSettings};
use tamma_core::forge::ForgeKind;
use tamma_testkit::forge::{
    BUILD_COMMAND, FakeGithub, FakeGitlab, ForgeProxy, GiteaServer, gitea_folder,
};
use tamma_testkit::repository::Repository;

use self::contract::{Contract, ContractResult};
use self::person::{ACCOUNT, Person};
use crate::support::agent_setup::AgentSetup;
use crate::support::verdict::Verdict;

/// Repository of the contract on the fakes.
const REPOSITORY: &str = "acme/shop";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run only one part: `contract`, `story`, `faults` or `quota`
    #[arg(long, value_name = "PART")]
    only: Option<ForgePart>,
    /// Agent of the story: a built-in one, or `scripted` (default: `claude-code` if it can be installed,
    /// and `scripted` with `--quick`)
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Write the transcript and the screenshots of the story to `docs`
    #[arg(long)]
    write: bool,
}

/// Agent of the story in full.
const STORY_AGENT: &str = "claude-code";

/// Part of the experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
enum ForgePart {
    Contract,
    /// On Gitea, which the quick slice does not start.
    Story,
    /// Kills, lost requests and responses, and webhooks.
    Faults,
    Quota,
}

/// Results of all parts.
#[derive(Debug, Default)]
struct ForgeResult {
    passed: bool,
    cases: usize,
    doubled: usize,
    lost: usize,
    figures: Vec<String>,
}

pub(crate) async fn run(arguments: &Args, quick: bool) -> Result<Verdict> {
    let is_part = |part| arguments.only.is_none_or(|only| only == part);
    let with_story = is_part(ForgePart::Story) && (!quick || arguments.only.is_some());
    ensure!(
        quick || gitea_folder().is_some(),
        "Gitea is not built; run `{BUILD_COMMAND}`, or use `--quick`"
    );
    ensure!(
        with_story || (arguments.agent.is_none() && !arguments.write),
        "`--agent` and `--write` are about the story, which does not run"
    );
    let mut result = ForgeResult { passed: true, ..ForgeResult::default() };
    if is_part(ForgePart::Contract) {
        Box::pin(github_contract(&mut result)).await?;
        Box::pin(gitlab_contract(&mut result)).await?;
        if !quick {
            Box::pin(gitea_contract(&mut result)).await?;
        }
    }
    if with_story {
        let agent = story_agent(arguments.agent.as_deref(), quick).await?;
        let played = Box::pin(story::run(&agent, arguments.write)).await?;
        result.passed &= played.passed;
        result.figures.push(played.figures);
    }
    if is_part(ForgePart::Faults) {
        let found = Box::pin(faults::run(quick)).await?;
        result.passed &= found.passed;
        result.cases += found.cases;
        result.doubled += found.doubled;
        result.lost += found.lost;
    }
    if is_part(ForgePart::Quota) {
        let measured = Box::pin(quota::run(quick)).await?;
        result.passed &= measured.passed;
        result.figures.push(measured.figures);
    }
    if quick && !with_story {
        result.figures.push("not run: Gitea".to_owned());
    }
    let ForgeResult { cases, doubled, lost, .. } = result;
    let figures = format!("{cases} cases, {doubled} doubled, {lost} lost");
    result.figures.insert(0, figures);
    Ok(Verdict::new(result.passed && doubled == 0 && lost == 0, result.figures.join(", ")))
}

/// Returns the agent of the story. A full run uses a real one if it can be installed.
async fn story_agent(wanted: Option<&str>, quick: bool) -> Result<AgentSetup> {
    match wanted {
        Some(name) => AgentSetup::install(name).await,
        None if quick => Ok(AgentSetup::Scripted),
        None => match AgentSetup::install(STORY_AGENT).await {
            Ok(agent) => Ok(agent),
            Err(error) => {
                writeln!(std::io::stdout(), "{STORY_AGENT} is not installed: {error:#}")?;
                Ok(AgentSetup::Scripted)
            }
        },
    }
}

/// Checks the contract on the fake GitHub, and the fake with GitHub's files.
async fn github_contract(result: &mut ForgeResult) -> Result<()> {
    let fake = FakeGithub::start().await?;
    let origin = Repository::new()?;
    fake.create_repository(REPOSITORY, origin.path())?;
    fake.add_writer(ACCOUNT);
    let proxy = ForgeProxy::start(&fake.url()).await?;
    let forge = open(ForgeKind::Github, &fake.url(), fake.token())?;
    let through = open(ForgeKind::Github, proxy.url(), fake.token())?;
    let address =
        fake.url().replace("http://", &format!("http://x-access-token:{}@", fake.token()));
    let contract = Contract {
        forge: &forge,
        repository: REPOSITORY,
        clone_url: format!("{address}/{REPOSITORY}.git"),
        person: Person::Github(&fake),
    };
    let mut kept = contract.run().await;
    contract.lost_answers(&through, &proxy, &mut kept).await;
    report("fake GitHub", &kept, result)?;
    for verdict in [openapi::validate(&fake.exchanges())?, openapi::receive_examples()?] {
        result.passed &= verdict.passed;
        result.figures.push(verdict.figures);
    }
    Ok(())
}

/// Checks the contract on the fake GitLab.
async fn gitlab_contract(result: &mut ForgeResult) -> Result<()> {
    let fake = FakeGitlab::start().await?;
    let origin = Repository::new()?;
    fake.create_repository(REPOSITORY, origin.path())?;
    fake.add_writer(ACCOUNT);
    let proxy = ForgeProxy::start(&fake.url()).await?;
    let forge = open(ForgeKind::Gitlab, &fake.url(), fake.token())?;
    let through = open(ForgeKind::Gitlab, proxy.url(), fake.token())?;
    let address = fake.url().replace("http://", &format!("http://oauth2:{}@", fake.token()));
    let contract = Contract {
        forge: &forge,
        repository: REPOSITORY,
        clone_url: format!("{address}/{REPOSITORY}.git"),
        person: Person::Gitlab(&fake),
    };
    let mut kept = contract.run().await;
    contract.lost_answers(&through, &proxy, &mut kept).await;
    report("fake GitLab", &kept, result)
}

/// Checks the contract on Gitea.
async fn gitea_contract(result: &mut ForgeResult) -> Result<()> {
    let server = GiteaServer::start().await?;
    let token = server.add_person(ACCOUNT)?;
    let repository = server.create_repository("shop", &[ACCOUNT]).await?;
    let proxy = ForgeProxy::start(&server.url()).await?;
    let forge = open(ForgeKind::Gitea, &server.url(), server.token())?;
    let through = open(ForgeKind::Gitea, proxy.url(), server.token())?;
    let contract = Contract {
        forge: &forge,
        repository: &repository,
        clone_url: server.clone_url(&repository),
        person: Person::Gitea(&server, token),
    };
    let mut kept = contract.run().await;
    contract.lost_answers(&through, &proxy, &mut kept).await;
    report("Gitea", &kept, result)
}

/// Opens a client with a token.
fn open(kind: ForgeKind, url: &str, token: &str) -> Result<Forge> {
    let settings = ForgeSettings {
        name: "forge".to_owned(),
        kind,
        url: url.to_owned(),
        api: None,
        credential: ForgeCredential::Token(token.to_owned()),
        webhook_secret: None,
    };
    Ok(Forge::open(&settings)?)
}

/// Prints the failed rules, and adds the figures of a forge.
fn report(name: &str, kept: &ContractResult, result: &mut ForgeResult) -> Result<()> {
    for failure in &kept.failures {
        writeln!(std::io::stdout(), "{name}: {failure}")?;
    }
    let held = kept.rules - kept.failures.len();
    result.figures.push(format!("{name} {held} of {} rules", kept.rules));
    result.passed &= kept.failures.is_empty();
    result.doubled += kept.doubled;
    result.lost += kept.lost;
    Ok(())
}
