//! Takes hostile repositories through the whole product: add, plan, implement, gates, salvage and
//! deliver, with one worker.
//!
//! A task may fail, be refused or ask a person. No command of a repository, an agent or a gate may
//! run outside the sandbox, and the worker must survive with bounded memory. `hostile_kit.rs` of the
//! engine's tests shows that the traps catch an ordinary git.

mod runner;

use std::io::Write as _;

use anyhow::{Context as _, Result, bail};
use tamma_testkit::hostile::{HOSTILE_REPOSITORIES, HostileRepository};
use tokio::sync::Semaphore;

use self::runner::{KitOutcome, KitRunner};
use crate::support::verdict::Verdict;

/// Maximum memory of the worker, in megabytes.
const MAX_MEMORY_MB: u64 = 512;

/// Repositories of a quick run.
const QUICK: [&str; 6] = [
    "nested_repository_with_commands_in_its_settings",
    "git_link_replaced_by_a_folder",
    "submodules_with_commands_in_gitmodules",
    "settings_of_the_repository",
    "huge_text",
    "odd_names",
];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Take only repositories whose name contains this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Number of concurrent tasks
    #[arg(long, default_value_t = 2)]
    at_once: u16,
}

pub(crate) async fn run(arguments: &Args, quick: bool) -> Result<Verdict> {
    let is_selected = |hostile: &&HostileRepository| match &arguments.only {
        Some(text) => hostile.name.contains(text.as_str()),
        None => !quick || QUICK.contains(&hostile.name),
    };
    let selected: Vec<HostileRepository> =
        HOSTILE_REPOSITORIES.iter().filter(is_selected).copied().collect();
    if selected.is_empty() {
        bail!("no repository matches the options");
    }
    let folder =
        std::env::temp_dir().join(format!("tamma-hostile-repositories-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let logs = || format!("logs: {}", folder.display());
    let mut runner = KitRunner::start(&folder, arguments.at_once).await.with_context(logs)?;
    let outcomes = take_all(&runner, selected, usize::from(arguments.at_once)).await?;
    let worker = runner.worker_state()?;
    runner.stop().await?;

    let count = |is: fn(&KitOutcome) -> bool| outcomes.iter().filter(|it| is(it)).count();
    let escaped = count(|outcome| outcome.escaped);
    let delivered = count(|outcome| matches!(outcome.result, Ok((true, _))));
    let left = count(|outcome| matches!(outcome.result, Ok((false, _))));
    let unsettled = count(|outcome| outcome.result.is_err());
    // A kit in which nothing is delivered would not test the delivery.
    let delivers = delivered > 0 || arguments.only.is_some();
    let is_bounded = worker.peak_mb <= MAX_MEMORY_MB;
    let passed = escaped == 0 && unsettled == 0 && worker.lost == 0 && is_bounded && delivers;
    if passed {
        // An ordinary user cannot remove every folder that the kit has made unreadable.
        let _ = std::fs::remove_dir_all(&folder);
    } else {
        writeln!(std::io::stderr(), "{}", logs())?;
    }
    let figures = format!(
        "{} repositories, {escaped} commands executed outside, {} workers lost, {delivered} \
         delivered, {left} refused or left to a person, {unsettled} not settled, peak worker memory \
         {} of {MAX_MEMORY_MB} MB",
        outcomes.len(),
        worker.lost,
        worker.peak_mb,
    );
    Ok(Verdict::new(passed, figures))
}

/// Takes all repositories through the product, some concurrently, and prints each result.
async fn take_all(
    runner: &KitRunner,
    selected: Vec<HostileRepository>,
    at_once: usize,
) -> Result<Vec<KitOutcome>> {
    let permits = Semaphore::new(at_once.max(1));
    let width = selected.iter().map(|hostile| hostile.name.len()).max().unwrap_or_default();
    let running = (1..).zip(selected).map(async |(number, hostile)| {
        let _permit = permits.acquire().await?;
        let outcome = runner.run(number, &hostile).await;
        let (word, text) = match (outcome.escaped, &outcome.result) {
            (true, _) => ("ESCAPED", "a command ran outside the sandbox".to_owned()),
            (false, Ok((true, text))) => ("delivered", text.clone()),
            (false, Ok((false, text))) => ("stopped", text.clone()),
            (false, Err(error)) => ("NOT SETTLED", format!("{error:#}")),
        };
        let name = hostile.name.replace('_', " ");
        writeln!(std::io::stdout(), "{name:<width$}  {word:<11}  {text}")?;
        Ok(outcome)
    });
    futures_util::future::join_all(running).await.into_iter().collect()
}
