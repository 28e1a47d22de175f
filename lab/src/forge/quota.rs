//! Use of a quota: 300 open pull requests on the fake GitHub, observed by a real server.
//!
//! The pull requests have no workflows, because the poller is measured. They were opened an hour ago, and
//! some change meanwhile, so most are quiet, as in a real installation. Without a task, a changed one
//! stays quiet, too: each 50 changed ones of the last 10 min would cost one more call per 24 s.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tamma_core::forge::ForgeKind;
use tamma_core::ids::TaskId;
use tamma_store::NewPullRequest;
use tamma_testkit::cluster::DATABASE;
use tamma_testkit::forge::WebhookFault;
use tamma_testkit::repository::Repository;
use tamma_testkit::sample::task_id;
use tamma_testkit::wait_until;
use tokio::time::Instant;

use super::faults::FaultRunner;
use super::person::ACCOUNT;
use super::site::{FORGE, Site, SiteRepository};
use crate::support::programs;
use crate::support::verdict::Verdict;

/// Number of open pull requests.
const PULL_REQUESTS: u32 = 300;

/// Requests of an hour that GitHub allows.
const QUOTA: u64 = 5_000;

/// Largest part of the quota, in percent.
const MAX_PERCENT: u64 = 40;

/// Time limits for noticing a change, without and with webhooks.
const POLLED: Duration = Duration::from_secs(30);
const HINTED: Duration = Duration::from_secs(2);

/// The same in the quick slice, which runs beside other experiments: a webhook is still told from polling
/// every 24 s.
const QUICK_POLLED: Duration = Duration::from_mins(1);
const QUICK_HINTED: Duration = Duration::from_secs(10);

/// Time limit for the first look at everything, and for noticing a change at all.
const LIMIT: Duration = Duration::from_mins(3);

/// Number of changes with webhooks.
const HINTED_CHANGES: usize = 10;

/// Sections of `tamma.yaml` besides those of the agent.
const RULES: &str = "\
delivery:
  mode: pull_request
  intake: { label: tamma }
";

/// Pull request of the experiment.
#[derive(Debug, Clone)]
struct QuotaPull {
    task: TaskId,
    number: u64,
    head: String,
}

/// Measures calls and delays.
pub(crate) async fn run(quick: bool) -> Result<Verdict> {
    let folder = programs::folder()?.join(format!("forge-quota-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let site = Site::start(ForgeKind::Github).await?;
    let runner = Box::pin(FaultRunner::start(&folder, site)).await?;
    let repository = runner.add_project("shop", RULES).await?;
    let pulls = open_all(&runner, &repository).await?;
    // A complete read happens every 5 min.
    let interval = if quick { Duration::from_mins(1) } else { Duration::from_mins(10) };
    let (calls, polled) = measure_polling(&runner, &pulls, interval).await?;
    runner.site.proxy.pass_webhooks(runner.components.cluster.url(), WebhookFault::None);
    let mut hinted = Duration::ZERO;
    for pull in pulls.iter().rev().take(HINTED_CHANGES) {
        hinted = hinted.max(notice(&runner, pull, Some(&repository)).await?);
    }
    drop(runner);
    std::fs::remove_dir_all(&folder)?;
    let per_hour = calls * 3_600 / interval.as_secs();
    let percent = per_hour * 100 / QUOTA;
    let (polled_limit, hinted_limit) =
        if quick { (QUICK_POLLED, QUICK_HINTED) } else { (POLLED, HINTED) };
    let passed = percent < MAX_PERCENT && polled <= polled_limit && hinted <= hinted_limit;
    let figures = format!(
        "{PULL_REQUESTS} pull requests {per_hour} calls an hour ({percent} % of {QUOTA}), change \
         noticed after at most {:.1} s (limit {} s), with webhooks {:.1} s (limit {} s)",
        polled.as_secs_f64(),
        polled_limit.as_secs(),
        hinted.as_secs_f64(),
        hinted_limit.as_secs(),
    );
    Ok(Verdict::new(passed, figures))
}

/// Opens the pull requests, and waits until the server has seen all of them.
async fn open_all(runner: &FaultRunner, repository: &SiteRepository) -> Result<Vec<QuotaPull>> {
    let cluster = &runner.components.cluster;
    let clone = Repository::new()?;
    let address = runner.site.clone_url(&repository.path);
    clone.git(&["fetch", "--quiet", &address, "main"])?;
    let base = clone.git(&["rev-parse", "FETCH_HEAD"])?;
    let mut heads = Vec::new();
    for number in 1..=PULL_REQUESTS {
        clone.git(&["checkout", "--quiet", "-b", &branch(number), base.trim()])?;
        clone.write(&format!("change-{number}.txt"), "A change.\n")?;
        heads.push(clone.commit(&format!("Change {number}"))?);
    }
    clone.git(&["push", "--quiet", &address, "refs/heads/tamma/*:refs/heads/tamma/*"])?;
    let fake = runner.site.fake()?;
    let forge = super::open(ForgeKind::Github, &fake.url(), fake.token())?;
    let projects = cluster.store.projects().await?;
    let project = projects.first().context("the project is missing")?.id;
    let mut pulls = Vec::new();
    for (number, head) in (1..=PULL_REQUESTS).zip(heads) {
        let change = super::contract::change(&branch(number));
        let opened = forge.open_change(&repository.path, &change).await?;
        let task = task_id(number);
        let new = NewPullRequest {
            task,
            project,
            forge: FORGE.to_owned(),
            repository: repository.path.clone(),
            number: opened.number,
            url: opened.url,
            branch: branch(number),
            base_branch: "main".to_owned(),
        };
        cluster.store.save_pull_request(&new).await?;
        pulls.push(QuotaPull { task, number: opened.number, head: head.trim().to_owned() });
    }
    let postgres = cluster.postgres()?;
    let age = "UPDATE pull_requests SET opened_at = opened_at - interval '1 hour'";
    postgres.query(DATABASE, age).await?;
    let sql = "SELECT count(*) FROM pull_requests WHERE facts IS NULL";
    wait_until("the first look", LIMIT, async || {
        Ok((postgres.query(DATABASE, sql).await?.trim() == "0").then_some(()))
    })
    .await?;
    Ok(pulls)
}

fn branch(number: u32) -> String {
    format!("tamma/{number}")
}

/// Changes pull requests one after the other without webhooks. Returns the calls of an interval, and the
/// longest time until a change was noticed.
async fn measure_polling(
    runner: &FaultRunner,
    pulls: &[QuotaPull],
    interval: Duration,
) -> Result<(u64, Duration)> {
    let fake = runner.site.fake()?;
    let (before, started) = (fake.calls(), Instant::now());
    let mut longest = Duration::ZERO;
    for pull in pulls {
        if started.elapsed() >= interval {
            break;
        }
        longest = longest.max(notice(runner, pull, None).await?);
    }
    ensure!(longest > Duration::ZERO, "nothing was changed");
    tokio::time::sleep_until(started + interval).await;
    let (calls, took) = (fake.calls() - before, started.elapsed());
    // The last change may have been noticed after the interval.
    let calls = calls * interval.as_secs() / took.as_secs().max(1);
    Ok((calls, longest))
}

/// Approves a pull request as a person, and returns the time until the server knows it.
async fn notice(
    runner: &FaultRunner,
    pull: &QuotaPull,
    webhook: Option<&SiteRepository>,
) -> Result<Duration> {
    let changed = Instant::now();
    runner.site.fake()?.add_review(pull.number, ACCOUNT, "APPROVED", &pull.head);
    if let Some(repository) = webhook {
        let payload = json!({
            "action": "submitted", "pull_request": { "number": pull.number },
            "repository": { "full_name": repository.path },
        });
        runner.site.send_webhook("pull_request_review", payload).await?;
    }
    wait_until("the review", LIMIT, async || {
        let stored = runner.components.cluster.store.pull_request(pull.task).await?;
        let facts = stored.and_then(|it| it.facts);
        Ok(facts.filter(|it| !it.reviews.is_empty()).map(|_| changed.elapsed()))
    })
    .await
}
