//! Latency that the gateway adds to the first byte of a model response.
//!
//! The same streaming calls alternate between a scripted model directly and through the gateway, so
//! that other load affects both equally.
#![expect(clippy::print_stdout, reason = "a measurement prints its figures")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tamma_core::budget::{Spend, SpendLimit};
use tamma_core::ids::TaskId;
use tamma_core::task_loop::Timestamp;
use tamma_engine::gateway::{BudgetLimit, BudgetScope, Gateway, RunEndpointConfig, Upstream};
use tamma_engine::process::RunId;
use tamma_engine::secret::Secret;
use tamma_testkit::model::{ModelStep, Script, ScriptedModel};

use crate::support::bench::load::now;
use crate::support::figures::{percentile, table};
use crate::support::verdict::Verdict;

/// Default number of calls per path.
const CALLS: u32 = 300;

/// Unmeasured calls that open connections.
const WARM_UP: u32 = 20;

/// Target of the median added latency.
const ADDED: Duration = Duration::from_millis(5);

/// Approximate size of a coding agent's first request.
const PROMPT_BYTES: usize = 64 * 1024;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of calls per path
    #[arg(long, value_name = "COUNT", default_value_t = CALLS)]
    calls: u32,
}

pub(crate) async fn run(arguments: &Args) -> Result<Verdict> {
    let calls = arguments.calls;
    let model = ScriptedModel::start(Script::new([ModelStep::say("word ".repeat(200))])).await?;
    let gateway = Gateway::open(None).await?;
    let limit = SpendLimit { usd: None, tokens: Some(u64::MAX) };
    let endpoint = gateway.open_endpoint(RunEndpointConfig {
        run: RunId { task: TaskId(uuid::Uuid::nil()), job_number: 1, generation: 1 },
        now: Timestamp::UNIX_EPOCH,
        upstream: Some(Upstream {
            base_url: model.url(),
            key: Secret::new("the-providers-key"),
            max_quota_wait: Duration::from_mins(1),
        }),
        prices: BTreeMap::new(),
        models: Vec::new(),
        budget_limits: vec![BudgetLimit {
            scope: BudgetScope::Run,
            limit,
            spent: Spend::default(),
        }],
        warn_percent: 80,
        tools: None,
        observer: Arc::new(|_| ()),
    });
    let request = json!({
        "model": "scripted-large", "max_tokens": 8000, "stream": true,
        "messages": [{ "role": "user", "content": "x".repeat(PROMPT_BYTES) }],
        "tools": [{ "name": "Bash" }],
    });
    let client = reqwest::Client::new();
    let (mut direct_times, mut gateway_times) = (Vec::new(), Vec::new());
    for number in 0..WARM_UP + calls {
        let direct_time = first_byte(&client, &model.url(), "any", &request).await?;
        let gateway_time =
            first_byte(&client, endpoint.url(), endpoint.token().expose(), &request).await?;
        if number >= WARM_UP {
            direct_times.push(direct_time);
            gateway_times.push(gateway_time);
        }
    }
    let ledger = endpoint.close().await;
    let sent: u64 = model.sent().iter().map(|sent| sent.tokens.total()).sum();
    ensure!(
        ledger.usage.tokens.total() * 2 == sent,
        "metered tokens do not equal half of all tokens"
    );

    let figure = |values: &[Duration], percent| {
        percentile(values, percent).map_or(f64::NAN, |value| value.as_secs_f64() * 1000.0)
    };
    let row = |name: &str, of: &dyn Fn(usize) -> f64| {
        vec![name.to_owned(), format!("{:.2}", of(50)), format!("{:.2}", of(99))]
    };
    let added = |percent| figure(&gateway_times, percent) - figure(&direct_times, percent);
    println!("time to the first byte, {calls} calls per path, {PROMPT_BYTES} bytes per prompt\n");
    let heading = ["", "median, ms", "p99, ms"].map(str::to_owned).to_vec();
    let rows = [
        heading,
        row("direct", &|percent| figure(&direct_times, percent)),
        row("through the gateway", &|percent| figure(&gateway_times, percent)),
        row("added", &added),
    ];
    println!("{}", table(&rows));
    let (target, median) = (ADDED.as_secs_f64() * 1000.0, added(50));
    let figures = format!(
        "{median:.2} ms added at the median, {:.2} ms at p99, target {target} ms",
        added(99)
    );
    Ok(Verdict::new(median < target, figures))
}

/// Returns the time to the first byte of a response, and reads the response to its end.
async fn first_byte(
    client: &reqwest::Client,
    base: &str,
    key: &str,
    request: &Value,
) -> Result<Duration> {
    let start = now();
    let call = client.post(format!("{base}/v1/messages")).header("x-api-key", key).json(request);
    let mut response = call.send().await?.error_for_status()?;
    ensure!(response.chunk().await?.is_some(), "the response is empty");
    let took = start.elapsed();
    while response.chunk().await?.is_some() {}
    Ok(took)
}
