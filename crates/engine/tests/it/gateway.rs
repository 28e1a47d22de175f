//! Gateway between an agent and a provider, which is the scripted model.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use futures_util::future::join_all;
use reqwest::{RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use tamma_core::budget::{Spend, SpendLimit};
use tamma_core::cost::{Cost, Price, Tokens, Usd};
use tamma_core::ids::TaskId;
use tamma_core::task_loop::Timestamp;
use tamma_engine::gateway::{
    BudgetLimit, BudgetScope, Dialect, Gateway, GatewayEvent, GatewayStop, ModelCall, RunEndpoint,
    RunEndpointConfig, Upstream,
};
use tamma_engine::process::RunId;
use tamma_engine::secret::Secret;
use tamma_testkit::model::{ModelStep, Script, ScriptedModel};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Provider's key, which must stay hidden from agents.
const KEY: &str = "sk-the-providers-own-key";

const DIALECTS: [Dialect; 4] =
    [Dialect::Anthropic, Dialect::Chat, Dialect::Responses, Dialect::Gemini];

struct GatewayFixture {
    gateway: Gateway,
    model: ScriptedModel,
    events: Arc<Mutex<Vec<GatewayEvent>>>,
}

impl GatewayFixture {
    async fn create(script: Script) -> Self {
        Self {
            gateway: Gateway::open(None).await.unwrap(),
            model: ScriptedModel::start(script).await.unwrap(),
            events: Arc::default(),
        }
    }

    fn endpoint_config(&self) -> RunEndpointConfig {
        let task = TaskId("0192a000-0000-7000-8000-000000000001".parse().unwrap());
        let events = self.events.clone();
        let price = Price {
            input: usd("3"),
            cached: usd("0.3"),
            output: usd("15"),
            cache_write: Some(usd("3.75")),
            cache_write_1h: Some(usd("6")),
            long_context: None,
        };
        RunEndpointConfig {
            run: RunId { task, job_number: 1, generation: 1 },
            now: now(),
            upstream: Some(Upstream {
                base_url: self.model.url(),
                key: Secret::new(KEY),
                max_quota_wait: Duration::from_mins(1),
            }),
            prices: BTreeMap::from([("large".to_owned(), price)]),
            models: Vec::new(),
            budget_limits: Vec::new(),
            warn_percent: 80,
            tools: None,
            observer: Arc::new(move |event| events.lock().unwrap().push(event)),
        }
    }

    fn endpoint(&self) -> RunEndpoint {
        self.gateway.open_endpoint(self.endpoint_config())
    }

    fn endpoint_with_limits(&self, limits: Vec<BudgetLimit>) -> RunEndpoint {
        self.gateway
            .open_endpoint(RunEndpointConfig { budget_limits: limits, ..self.endpoint_config() })
    }

    fn calls(&self) -> Vec<ModelCall> {
        let events = self.events.lock().unwrap();
        let calls = events.iter().filter_map(|event| match event {
            GatewayEvent::ModelCalled(call) => Some(call.clone()),
            _ => None,
        });
        calls.collect()
    }

    fn warned(&self) -> Vec<BudgetScope> {
        let events = self.events.lock().unwrap();
        let warned = events.iter().filter_map(|event| match event {
            GatewayEvent::BudgetWarning { scope, .. } => Some(*scope),
            _ => None,
        });
        warned.collect()
    }
}

fn now() -> Timestamp {
    "2027-01-15T08:00:00Z".parse().unwrap()
}

fn usd(amount: &str) -> Usd {
    amount.parse().unwrap()
}

fn budget_limit(scope: BudgetScope, tokens: u64, spent: u64) -> BudgetLimit {
    BudgetLimit {
        scope,
        limit: SpendLimit { usd: None, tokens: Some(tokens) },
        spent: Spend { tokens: spent, ..Spend::default() },
    }
}

/// Builds a request in an API dialect.
fn request(endpoint: &RunEndpoint, dialect: Dialect, stream: bool) -> RequestBuilder {
    let client = reqwest::Client::new();
    let token = endpoint.token().expose();
    let messages = json!([{ "role": "user", "content": "Do it." }]);
    let tools = json!([{ "name": "bash" }]);
    let (url, token) = (endpoint.url(), token);
    match dialect {
        Dialect::Anthropic => client.post(format!("{url}/v1/messages?beta=true")).header("x-api-key", token).json(
            &json!({ "model": "large", "max_tokens": 100, "stream": stream, "messages": messages,
                "tools": tools }),
        ),
        Dialect::Chat => client.post(format!("{url}/v1/chat/completions")).bearer_auth(token).json(
            &json!({ "model": "large", "max_tokens": 100, "stream": stream, "messages": messages,
                "tools": tools }),
        ),
        Dialect::Responses => client.post(format!("{url}/v1/responses")).bearer_auth(token).json(
            &json!({ "model": "large", "max_output_tokens": 100, "stream": stream, "input": messages,
                "tools": tools }),
        ),
        Dialect::Gemini => {
            let verb = if stream { "streamGenerateContent?alt=sse" } else { "generateContent" };
            client
                .post(format!("{url}/v1beta/models/large:{verb}"))
                .header("x-goog-api-key", token)
                .json(&json!({ "contents": [{ "role": "user", "parts": [{ "text": "Do it." }] }],
                    "generationConfig": { "maxOutputTokens": 100 },
                    "tools": [{ "functionDeclarations": tools }] }))
        }
    }
}

async fn call_model(
    endpoint: &RunEndpoint,
    dialect: Dialect,
    stream: bool,
) -> (StatusCode, String) {
    let response = request(endpoint, dialect, stream).send().await.unwrap();
    (response.status(), response.text().await.unwrap())
}

fn header(response: &Response, name: &str) -> Option<String> {
    response.headers().get(name).map(|value| value.to_str().unwrap().to_owned())
}

#[tokio::test]
async fn every_dialect_is_metered_exactly() {
    let tokens = Tokens { input: 1234, cached: 567, output: 89, ..Tokens::default() };
    let script = || Script::new([ModelStep::say("Here.").tokens(tokens)]);
    for dialect in DIALECTS {
        for stream in [false, true] {
            let fixture = GatewayFixture::create(script()).await;
            let endpoint = fixture.endpoint();
            let (status, body) = call_model(&endpoint, dialect, stream).await;
            assert_eq!(status, StatusCode::OK, "{dialect}: {body}");
            assert!(body.contains("Here."), "{dialect}: {body}");
            let sent = fixture.model.sent();
            assert_eq!(
                (sent.len(), sent[0].tokens, sent[0].reported_usage),
                (1, tokens, true),
                "{dialect}"
            );
            let ledger = endpoint.ledger();
            // 1234 at $3, 567 at $0.30 and 89 at $15 per million.
            let cost = Cost::Known(usd("0.0052071"));
            assert_eq!((ledger.usage.tokens, ledger.usage.cost), (tokens, cost), "{dialect}");
            assert_eq!((ledger.calls, ledger.unmetered, ledger.last_failure), (1, 0, None));
            assert_eq!(ledger.charged.tokens, tokens.total());
            let [call] = fixture.calls().try_into().unwrap();
            assert_eq!((call.model.as_str(), call.dialect, call.status), ("large", dialect, 200));
            assert_eq!((call.tokens, call.cost), (Some(tokens), cost));
            assert!(call.time_to_first_byte.unwrap() <= call.duration);
        }
    }
}

#[tokio::test]
async fn agent_and_provider_do_not_see_each_others_keys() {
    for dialect in DIALECTS {
        let mut step = ModelStep::fail(1, 401);
        step.body = Some(json!({ "error": { "message": format!("wrong key {KEY}") } }));
        let fixture = GatewayFixture::create(Script::new([step])).await;
        let endpoint = fixture.endpoint();
        let (status, text) = call_model(&endpoint, dialect, true).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED);
        assert!(!text.contains(KEY) && text.contains("wrong key [secret]"), "{dialect}: {text}");
        let failed = endpoint.ledger().last_failure.unwrap();
        assert_eq!((failed.status, failed.message.as_str()), (401, "wrong key [secret]"));
        let response = request(&endpoint, dialect, true).send().await.unwrap();
        assert!(!format!("{:?}", response.headers()).contains(KEY));
        assert!(!response.text().await.unwrap().contains(KEY));
        assert_eq!(endpoint.ledger().last_failure, None, "a successful call clears it");
        for request in fixture.model.requests() {
            let all = serde_json::to_string(&request).unwrap();
            assert!(all.contains(KEY), "{dialect}: the provider gets its key");
            assert!(!all.contains(endpoint.token().expose()), "{dialect}: {all}");
            assert_eq!(request.headers["accept-encoding"], "identity");
        }
    }
}

#[tokio::test]
async fn unreported_usage_is_unknown() {
    for dialect in DIALECTS {
        for stream in [false, true] {
            let step = ModelStep { hide_usage: true, ..ModelStep::say("Here.") };
            let fixture = GatewayFixture::create(Script::new([step])).await;
            let endpoint = fixture.endpoint();
            assert_eq!(call_model(&endpoint, dialect, stream).await.0, StatusCode::OK);
            let ledger = endpoint.close().await;
            assert_eq!((ledger.calls, ledger.unmetered), (1, 1), "{dialect} {stream}");
            assert_eq!(ledger.usage.cost, Cost::Unknown, "{dialect} {stream}");
            assert!(ledger.charged.estimated && ledger.charged.tokens >= 100, "{ledger:?}");
            assert!(ledger.charged.usd >= usd("0.0015"), "at least the maximum: {ledger:?}");
            assert_eq!(fixture.calls()[0].tokens, None);
        }
    }
}

#[tokio::test]
async fn cache_writes_have_their_own_price() {
    for dialect in DIALECTS {
        let (cache_write, cache_write_1h, cost) = match dialect {
            // 5 at $3, 10 at $3.75, 20 at $6, 7 at $0.30 and 9 at $15 per million.
            Dialect::Anthropic => (10, 20, "0.0003096"),
            // 25 at $3, 10 at $3.75, 7 at $0.30 and 9 at $15 per million.
            Dialect::Chat | Dialect::Responses => (10, 0, "0.0002496"),
            // Does not report them.
            Dialect::Gemini => (0, 0, "0.0002421"),
        };
        let tokens = Tokens { input: 35, cached: 7, output: 9, cache_write, cache_write_1h };
        for stream in [false, true] {
            let step = ModelStep::say("Here.").tokens(tokens);
            let fixture = GatewayFixture::create(Script::new([step])).await;
            let endpoint = fixture.endpoint();
            assert_eq!(call_model(&endpoint, dialect, stream).await.0, StatusCode::OK);
            let usage = endpoint.ledger().usage;
            assert_eq!((usage.tokens, usage.cost), (tokens, Cost::Known(usd(cost))), "{dialect}");
            assert_eq!(usage.tokens.cached_percent(), Some(16));
        }
    }
}

#[tokio::test]
async fn a_model_without_a_price_is_refused_if_dollars_are_limited() {
    for dialect in DIALECTS {
        let fixture = GatewayFixture::create(Script::new([ModelStep::say("Here.")])).await;
        let limit = SpendLimit { usd: Some(usd("100")), tokens: None };
        let budget = BudgetLimit { scope: BudgetScope::Day, limit, spent: Spend::default() };
        let endpoint = fixture.gateway.open_endpoint(RunEndpointConfig {
            prices: BTreeMap::new(),
            budget_limits: vec![budget],
            ..fixture.endpoint_config()
        });
        let (status, body) = call_model(&endpoint, dialect, true).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{dialect}: {body}");
        for part in ["model `large` has no price", "set `prices.large` in tamma.yaml"] {
            assert!(body.contains(part), "{dialect}: {body}");
        }
        assert_eq!(endpoint.stopped().await, GatewayStop::Unpriced { model: "large".to_owned() });
        assert!(fixture.model.requests().is_empty(), "it never reached the provider");
        let [call] = fixture.calls().try_into().unwrap();
        assert_eq!((call.tokens, call.cost), (None, Cost::Known(Usd::ZERO)));
        assert!(call.note.unwrap().contains("has no price"));
        // A limit of tokens needs no price.
        let endpoint = fixture.gateway.open_endpoint(RunEndpointConfig {
            prices: BTreeMap::new(),
            budget_limits: vec![budget_limit(BudgetScope::Day, 1_000_000, 0)],
            ..fixture.endpoint_config()
        });
        assert_eq!(call_model(&endpoint, dialect, true).await.0, StatusCode::OK, "{dialect}");
    }
}

#[tokio::test]
async fn a_model_that_the_operator_has_not_listed_never_reaches_the_provider() {
    for dialect in DIALECTS {
        let fixture = GatewayFixture::create(Script::new([ModelStep::say("Here.")])).await;
        let with_models = |models: &[&str]| {
            let models = models.iter().map(|model| (*model).to_owned()).collect();
            fixture.gateway.open_endpoint(RunEndpointConfig { models, ..fixture.endpoint_config() })
        };
        let endpoint = with_models(&["small"]);
        let (status, body) = call_model(&endpoint, dialect, true).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{dialect}: {body}");
        assert!(body.contains("has not allowed the model `large`"), "{dialect}: {body}");
        assert!(fixture.model.requests().is_empty(), "it never reached the provider");
        let [call] = fixture.calls().try_into().unwrap();
        assert_eq!((call.status, call.cost), (403, Cost::Known(Usd::ZERO)));
        let endpoint = with_models(&["small", "openai/large"]);
        assert_eq!(call_model(&endpoint, dialect, true).await.0, StatusCode::OK, "{dialect}");
    }
}

#[tokio::test]
async fn unknown_price_makes_the_total_unknown() {
    let fixture = GatewayFixture::create(Script::new([ModelStep::say("Here.")])).await;
    let endpoint = fixture
        .gateway
        .open_endpoint(RunEndpointConfig { prices: BTreeMap::new(), ..fixture.endpoint_config() });
    call_model(&endpoint, Dialect::Anthropic, true).await;
    let ledger = endpoint.ledger();
    assert_eq!(ledger.usage.cost, Cost::Unknown);
    assert_eq!(ledger.usage.tokens, fixture.model.sent()[0].tokens);
    let [call] = fixture.calls().try_into().unwrap();
    assert_eq!(call.note.as_deref(), Some("unknown price for model `large`"));
}

#[tokio::test]
async fn a_model_without_a_price_is_bounded_by_tokens_even_without_a_budget() {
    let tokens = Tokens { input: 11_000_000, output: 10, ..Tokens::default() };
    let fixture =
        GatewayFixture::create(Script::new([ModelStep::say("Here.").tokens(tokens)])).await;
    let endpoint = fixture
        .gateway
        .open_endpoint(RunEndpointConfig { prices: BTreeMap::new(), ..fixture.endpoint_config() });
    for _ in 0..2 {
        assert_eq!(call_model(&endpoint, Dialect::Anthropic, true).await.0, StatusCode::OK);
    }
    let (status, body) = call_model(&endpoint, Dialect::Anthropic, true).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{body}");
    assert!(body.contains("limit tokens instead"), "{body}");
    assert_eq!(endpoint.stopped().await, GatewayStop::Unpriced { model: "large".to_owned() });
    // With a price, and without a budget, nothing is refused.
    let endpoint = fixture.endpoint();
    assert_eq!(call_model(&endpoint, Dialect::Anthropic, true).await.0, StatusCode::OK);
}

#[tokio::test]
async fn spent_budget_stops_the_run_with_an_error_in_each_dialect() {
    for dialect in DIALECTS {
        let tokens = Tokens { input: 60, output: 40, ..Tokens::default() };
        let fixture =
            GatewayFixture::create(Script::new([ModelStep::say("Here.").tokens(tokens)])).await;
        let task = budget_limit(BudgetScope::Task, 1_000, 850);
        let endpoint =
            fixture.endpoint_with_limits(vec![budget_limit(BudgetScope::Run, 1_000, 0), task]);
        assert_eq!(call_model(&endpoint, dialect, true).await.0, StatusCode::OK);
        assert_eq!(fixture.warned(), [BudgetScope::Task], "950 of 1000, and 100 of 1000");
        assert_eq!(call_model(&endpoint, dialect, true).await.0, StatusCode::OK, "950 is not 1000");
        let stop = GatewayStop::OverBudget { scope: BudgetScope::Task };
        assert_eq!(endpoint.stopped().await, stop);
        let (status, body) = call_model(&endpoint, dialect, true).await;
        assert_eq!(status, StatusCode::FORBIDDEN);
        let body: Value = serde_json::from_str(&body).unwrap();
        let kind = match dialect {
            Dialect::Anthropic => &body["error"]["type"],
            Dialect::Chat | Dialect::Responses => &body["error"]["code"],
            Dialect::Gemini => &body["error"]["status"],
        };
        assert!(kind == "permission_error" || kind == "PERMISSION_DENIED", "{dialect}: {body}");
        let message = body["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("the budget of this task is spent"), "{message}");
        assert_eq!(fixture.model.requests().len(), 2, "the third never reached the provider");
        assert_eq!(fixture.warned(), [BudgetScope::Task], "once");
        let events = fixture.events.lock().unwrap();
        let stopped = GatewayEvent::Stopped(stop);
        assert_eq!(events.iter().filter(|event| **event == stopped).count(), 1);
        assert_eq!(endpoint.ledger().usage.tokens.total(), 200);
    }
}

#[tokio::test]
async fn concurrent_calls_exceed_a_budget_by_at_most_one_response() {
    // Each call uses its full reservation: as many tokens as the request has bytes, plus 100.
    let tokens = Tokens { input: 60, output: 100, ..Tokens::default() };
    let step = ModelStep { delay_ms: 30, ..ModelStep::say("Here.").tokens(tokens) };
    for limit in [1, 160, 161, 500, 900] {
        let fixture = GatewayFixture::create(Script::new([step.clone()])).await;
        let endpoint = fixture.endpoint_with_limits(vec![budget_limit(BudgetScope::Run, limit, 0)]);
        let calls = (0..8).map(|_| call_model(&endpoint, Dialect::Chat, true));
        let done = join_all(calls).await.into_iter().filter(|(status, _)| status.is_success());
        let used = endpoint.ledger().usage.tokens.total();
        assert_eq!(used, done.count() as u64 * 160, "{limit}");
        assert!(used >= limit.min(8 * 160), "{limit} were allowed, {used} used");
        assert!(used < limit + 160, "{limit} were allowed, {used} used");
        assert_eq!(endpoint.stopped().await, GatewayStop::OverBudget { scope: BudgetScope::Run });
    }
}

#[tokio::test]
async fn budget_limits_dollars_like_tokens() {
    let tokens = Tokens { input: 1_000, output: 100, ..Tokens::default() };
    let fixture =
        GatewayFixture::create(Script::new([ModelStep::say("Here.").tokens(tokens)])).await;
    // One call costs $0.0045.
    let limit = SpendLimit { usd: Some(usd("0.01")), tokens: None };
    let budget_limit = BudgetLimit { scope: BudgetScope::Day, limit, spent: Spend::default() };
    let endpoint = fixture.endpoint_with_limits(vec![budget_limit]);
    for expected in [200, 200, 200, 403] {
        assert_eq!(call_model(&endpoint, Dialect::Responses, true).await.0.as_u16(), expected);
    }
    assert_eq!(endpoint.ledger().usage.cost, Cost::Known(usd("0.0135")));
    assert_eq!(fixture.warned(), [BudgetScope::Day]);
}

#[tokio::test]
async fn calls_that_fit_the_budget_run_concurrently() {
    let step = ModelStep { delay_ms: 300, ..ModelStep::say("Here.") };
    let fixture = GatewayFixture::create(Script::new([step])).await;
    let endpoint = fixture.endpoint_with_limits(vec![budget_limit(BudgetScope::Run, 1_000_000, 0)]);
    join_all((0..4).map(|_| call_model(&endpoint, Dialect::Anthropic, true))).await;
    let took: Duration = fixture.calls().iter().map(|call| call.duration).sum();
    let longest = fixture.calls().iter().map(|call| call.duration).max().unwrap();
    assert!(longest * 2 < took, "all of them took {took:?}, the longest {longest:?}");
}

#[tokio::test]
async fn long_rate_limit_stops_the_run_and_a_short_one_does_not() {
    for dialect in DIALECTS {
        let mut short = ModelStep::fail(1, 429);
        short.headers.insert("retry-after".to_owned(), "7".to_owned());
        let fixture = GatewayFixture::create(Script::new([short])).await;
        let endpoint = fixture.endpoint();
        let response = request(&endpoint, dialect, true).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(header(&response, "retry-after").as_deref(), Some("7"));
        assert_eq!(
            call_model(&endpoint, dialect, true).await.0,
            StatusCode::OK,
            "the agent retries"
        );

        let mut long = ModelStep::fail(9, 429);
        long.headers.insert("retry-after".to_owned(), "7200".to_owned());
        let fixture = GatewayFixture::create(Script::new([long])).await;
        let endpoint = fixture.endpoint();
        assert_eq!(call_model(&endpoint, dialect, true).await.0, StatusCode::TOO_MANY_REQUESTS);
        let GatewayStop::Quota { until } = endpoint.stopped().await else { panic!("not a quota") };
        let wait = (until - now()).as_seconds_f64();
        assert!((7200.0..7260.0).contains(&wait), "{wait} s");
        assert_eq!(
            call_model(&endpoint, dialect, true).await.0,
            StatusCode::FORBIDDEN,
            "retrying is useless"
        );
        assert_eq!(fixture.model.requests().len(), 1);
        assert_eq!(endpoint.ledger().last_failure.unwrap().status, 429);
        assert_eq!(endpoint.ledger().usage.cost, Cost::Known(Usd::ZERO), "a refusal costs nothing");
    }
}

#[tokio::test]
async fn rate_limit_in_the_body_stops_the_run() {
    let mut step = ModelStep::fail(9, 429);
    let reset = now().timestamp() + 3600;
    step.body = Some(json!({ "error": { "type": "usage_limit_reached", "resets_at": reset } }));
    let fixture = GatewayFixture::create(Script::new([step])).await;
    let endpoint = fixture.endpoint();
    call_model(&endpoint, Dialect::Responses, true).await;
    let until = "2027-01-15T09:00:00Z".parse().unwrap();
    assert_eq!(endpoint.stopped().await, GatewayStop::Quota { until });
}

#[tokio::test]
async fn failure_is_forwarded_and_kept_until_a_call_succeeds() {
    for status in [400, 500, 529] {
        let fixture = GatewayFixture::create(Script::new([ModelStep::fail(1, status)])).await;
        let endpoint = fixture.endpoint();
        assert_eq!(call_model(&endpoint, Dialect::Anthropic, true).await.0.as_u16(), status);
        let failed = endpoint.ledger().last_failure.unwrap();
        assert_eq!((failed.status, failed.message.as_str()), (status, "a scripted failure"));
        assert_eq!(endpoint.ledger().usage.cost, Cost::Known(Usd::ZERO));
        assert_eq!(call_model(&endpoint, Dialect::Anthropic, true).await.0, StatusCode::OK);
        assert_eq!(endpoint.ledger().last_failure, None);
    }
}

#[tokio::test]
async fn unreachable_provider_is_an_error_in_the_dialect() {
    let fixture = GatewayFixture::create(Script::default()).await;
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut endpoint_config = fixture.endpoint_config();
    endpoint_config.upstream.as_mut().unwrap().base_url = format!("http://{free}");
    let endpoint = fixture.gateway.open_endpoint(endpoint_config);
    for dialect in DIALECTS {
        let (status, body) = call_model(&endpoint, dialect, true).await;
        assert_eq!(status, StatusCode::BAD_GATEWAY);
        let body: Value = serde_json::from_str(&body).unwrap();
        let message = body["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("cannot reach the provider"), "{message}");
        assert_eq!(endpoint.ledger().last_failure.unwrap().status, 502);
    }
    assert_eq!(endpoint.ledger().usage.cost, Cost::Known(Usd::ZERO));
}

#[tokio::test]
async fn endpoint_accepts_only_its_own_token() {
    let fixture = GatewayFixture::create(Script::new([ModelStep::say("Here.")])).await;
    let (endpoint, other) = (fixture.endpoint(), fixture.endpoint());
    let client = reqwest::Client::new();
    let asked = async |url: &str, token: &str| {
        let body = json!({ "model": "large", "messages": [] });
        let sent = client.post(format!("{url}/v1/messages")).header("x-api-key", token).json(&body);
        sent.send().await.unwrap().status().as_u16()
    };
    let token = endpoint.token().expose();
    assert_eq!(asked(endpoint.url(), token).await, 200);
    assert_eq!(asked(endpoint.url(), "").await, 401);
    assert_eq!(asked(endpoint.url(), &token[1..]).await, 401);
    assert_eq!(asked(endpoint.url(), other.token().expose()).await, 401, "another run's token");
    assert_eq!(asked(other.url(), token).await, 401, "another run's endpoint");
    assert_eq!(asked(&format!("http://{}", fixture.gateway.address()), token).await, 401);
    let in_query = format!("{}/v1/models?key={token}", other.url());
    assert_eq!(client.get(&in_query).send().await.unwrap().status().as_u16(), 401);
    let in_query = format!("{}/v1/models?key={token}", endpoint.url());
    assert_eq!(client.get(&in_query).send().await.unwrap().status().as_u16(), 200);
    let (url, token) = (endpoint.url().to_owned(), token.to_owned());
    drop(endpoint);
    assert_eq!(asked(&url, &token).await, 401, "the run has ended");
}

#[tokio::test]
async fn only_allowed_requests_are_forwarded() {
    let fixture = GatewayFixture::create(Script::default()).await;
    let endpoint = fixture.endpoint();
    let client = reqwest::Client::new();
    let token = endpoint.token().expose();
    let get = async |path: &str| {
        let sent = client.get(format!("{}{path}", endpoint.url())).bearer_auth(token);
        sent.send().await.unwrap().status().as_u16()
    };
    assert_eq!(get("/v1/models").await, 200);
    assert_eq!(get("/v1/files").await, 404);
    let count =
        client.post(format!("{}/v1/messages/count_tokens", endpoint.url())).bearer_auth(token);
    assert_eq!(count.json(&json!({})).send().await.unwrap().status().as_u16(), 200);
    let batch = client.post(format!("{}/v1/messages/batches", endpoint.url())).bearer_auth(token);
    assert_eq!(batch.json(&json!({})).send().await.unwrap().status().as_u16(), 404);
    assert_eq!(endpoint.ledger().calls, 0, "free requests are not counted");
    assert_eq!(fixture.model.requests().len(), 2);
    let none = fixture
        .gateway
        .open_endpoint(RunEndpointConfig { upstream: None, ..fixture.endpoint_config() });
    assert_eq!(call_model(&none, Dialect::Chat, false).await.0, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn tools_need_the_same_token() {
    let fixture = GatewayFixture::create(Script::default()).await;
    let tools = Router::new().route("/", post(async |body: String| format!("heard {body}")));
    let endpoint = fixture
        .gateway
        .open_endpoint(RunEndpointConfig { tools: Some(tools), ..fixture.endpoint_config() });
    let client = reqwest::Client::new();
    let asked = async |token: &str| {
        let sent = client.post(format!("{}/mcp", endpoint.url())).bearer_auth(token).body("hello");
        let response = sent.send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    assert_eq!(asked(endpoint.token().expose()).await, (200, "heard hello".to_owned()));
    assert_eq!(asked("another").await.0, 401);
    let bare = fixture.endpoint();
    let sent = client.post(format!("{}/mcp", bare.url())).bearer_auth(bare.token().expose());
    assert_eq!(sent.send().await.unwrap().status().as_u16(), 404);
}

#[tokio::test]
async fn socket_serves_the_same_endpoints() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.sock");
    std::fs::write(&path, "left behind").unwrap();
    let fixture = GatewayFixture {
        gateway: Gateway::open(Some(&path)).await.unwrap(),
        ..GatewayFixture::create(Script::new([ModelStep::say("Here.")])).await
    };
    assert_eq!(fixture.gateway.socket(), Some(path.as_path()));
    let endpoint = fixture.endpoint();
    let (_, target) = endpoint.url().split_at(endpoint.url().rfind('/').unwrap());
    let body = json!({ "model": "large", "messages": [], "tools": [{ "name": "bash" }] });
    let body = body.to_string();
    let request = format!(
        "POST {target}/v1/messages HTTP/1.1\r\nhost: gateway\r\nx-api-key: {}\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        endpoint.token().expose(),
        body.len()
    );
    let mut socket = tokio::net::UnixStream::connect(&path).await.unwrap();
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("Here."), "{answer}");
    assert_eq!(endpoint.ledger().usage.tokens, fixture.model.sent()[0].tokens);
    drop((endpoint, fixture));
    assert!(!path.exists(), "removed with the gateway");
}

#[tokio::test]
async fn interrupted_call_is_charged_as_an_estimate() {
    for dialect in [Dialect::Anthropic, Dialect::Chat, Dialect::Responses] {
        let step = ModelStep { stall: true, ..ModelStep::say("Here.") };
        let fixture = GatewayFixture::create(Script::new([step])).await;
        let endpoint = fixture.endpoint();
        let mut response = request(&endpoint, dialect, true).send().await.unwrap();
        let first = response.chunk().await.unwrap();
        assert!(first.is_some(), "received chunks are forwarded immediately");
        assert_eq!(endpoint.ledger().calls, 0);
        let ledger = endpoint.close().await;
        assert_eq!((ledger.calls, ledger.unmetered), (1, 1), "{dialect}");
        assert_eq!(ledger.usage.cost, Cost::Unknown);
        assert!(ledger.charged.tokens >= 100);
        let rest = response.text().await.unwrap();
        assert!(!rest.contains("Here."));
    }
}

#[tokio::test]
async fn disconnected_agent_is_noticed_and_charged() {
    let step = ModelStep { stall: true, ..ModelStep::say("Here.") };
    let fixture = GatewayFixture::create(Script::new([step])).await;
    let (tell, mut events) = tokio::sync::mpsc::unbounded_channel();
    let observer = Arc::new(move |event| tell.send(event).unwrap());
    let endpoint =
        fixture.gateway.open_endpoint(RunEndpointConfig { observer, ..fixture.endpoint_config() });
    let mut response = request(&endpoint, Dialect::Anthropic, true).send().await.unwrap();
    assert!(response.chunk().await.unwrap().is_some());
    drop(response);
    let event = tokio::time::timeout(Duration::from_secs(30), events.recv()).await.unwrap();
    let Some(GatewayEvent::ModelCalled(call)) = event else { panic!("not a call: {event:?}") };
    assert_eq!((call.status, call.tokens, call.cost), (200, None, Cost::Unknown));
    assert_eq!((endpoint.ledger().calls, endpoint.ledger().unmetered), (1, 1));
}
