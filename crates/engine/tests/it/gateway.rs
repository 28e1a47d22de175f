//! The gateway between an agent and a provider, which is the scripted model.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use futures_util::future::join_all;
use reqwest::{RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use tamma_core::budget::{Limit, Spend};
use tamma_core::cost::{Cost, Price, Tokens, Usd};
use tamma_core::ids::TaskId;
use tamma_core::task_loop::Timestamp;
use tamma_engine::gateway::{
    Bound, Dialect, Door, Event, Gateway, ModelCall, Stop, Upstream, Visitor, Whose,
};
use tamma_engine::process::RunId;
use tamma_engine::secret::Secret;
use tamma_testkit::model::{Model, Script, Step};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// The provider's key, which no agent may see.
const KEY: &str = "sk-the-providers-own-key";

const DIALECTS: [Dialect; 4] =
    [Dialect::Anthropic, Dialect::Chat, Dialect::Responses, Dialect::Gemini];

struct Stage {
    gateway: Gateway,
    model: Model,
    told: Arc<Mutex<Vec<Event>>>,
}

impl Stage {
    async fn set(script: Script) -> Self {
        Self {
            gateway: Gateway::open(None).await.unwrap(),
            model: Model::start(script).await.unwrap(),
            told: Arc::default(),
        }
    }

    fn visitor(&self) -> Visitor {
        let task = TaskId("0192a000-0000-7000-8000-000000000001".parse().unwrap());
        let told = self.told.clone();
        let price = Price { input: usd("3"), cached: usd("0.3"), output: usd("15") };
        Visitor {
            run: RunId { task, ticket: 1, generation: 1 },
            at: now(),
            upstream: Some(Upstream {
                base: self.model.url(),
                key: Secret::new(KEY),
                quota_patience: Duration::from_mins(1),
            }),
            prices: BTreeMap::from([("large".to_owned(), price)]),
            bounds: Vec::new(),
            warn_percent: 80,
            tools: None,
            observer: Arc::new(move |event| told.lock().unwrap().push(event)),
        }
    }

    fn door(&self) -> Door {
        self.gateway.admit(self.visitor())
    }

    fn door_with(&self, bounds: Vec<Bound>) -> Door {
        self.gateway.admit(Visitor { bounds, ..self.visitor() })
    }

    fn calls(&self) -> Vec<ModelCall> {
        let told = self.told.lock().unwrap();
        let calls = told.iter().filter_map(|event| match event {
            Event::Called(call) => Some(call.clone()),
            _ => None,
        });
        calls.collect()
    }

    fn warned(&self) -> Vec<Whose> {
        let told = self.told.lock().unwrap();
        let warned = told.iter().filter_map(|event| match event {
            Event::Warned { whose, .. } => Some(*whose),
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

fn bound(whose: Whose, tokens: u64, spent: u64) -> Bound {
    Bound {
        whose,
        limit: Limit { usd: None, tokens: Some(tokens) },
        spent: Spend { tokens: spent, ..Spend::default() },
    }
}

/// A request as an agent of that protocol makes it.
fn request(door: &Door, dialect: Dialect, stream: bool) -> RequestBuilder {
    let client = reqwest::Client::new();
    let token = door.token().expose();
    let messages = json!([{ "role": "user", "content": "Do it." }]);
    let tools = json!([{ "name": "bash" }]);
    let (url, token) = (door.url(), token);
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

async fn ask(door: &Door, dialect: Dialect, stream: bool) -> (StatusCode, String) {
    let response = request(door, dialect, stream).send().await.unwrap();
    (response.status(), response.text().await.unwrap())
}

fn header(response: &Response, name: &str) -> Option<String> {
    response.headers().get(name).map(|value| value.to_str().unwrap().to_owned())
}

#[tokio::test]
async fn every_protocol_is_metered_to_the_token() {
    let tokens = Tokens { input: 1234, cached: 567, output: 89 };
    let script = || Script::of([Step::say("Here.").tokens(tokens)]);
    for dialect in DIALECTS {
        for stream in [false, true] {
            let stage = Stage::set(script()).await;
            let door = stage.door();
            let (status, body) = ask(&door, dialect, stream).await;
            assert_eq!(status, StatusCode::OK, "{dialect}: {body}");
            assert!(body.contains("Here."), "{dialect}: {body}");
            let sent = stage.model.sent();
            assert_eq!((sent.len(), sent[0].tokens, sent[0].told), (1, tokens, true), "{dialect}");
            let ledger = door.ledger();
            // 1234 at $3, 567 at $0.30 and 89 at $15 a million.
            let cost = Cost::Known(usd("0.0052071"));
            assert_eq!((ledger.usage.tokens, ledger.usage.cost), (tokens, cost), "{dialect}");
            assert_eq!((ledger.calls, ledger.unmetered, ledger.last_failure), (1, 0, None));
            assert_eq!(ledger.charged.tokens, tokens.total());
            let [call] = stage.calls().try_into().unwrap();
            assert_eq!((call.model.as_str(), call.dialect, call.status), ("large", dialect, 200));
            assert_eq!((call.tokens, call.cost), (Some(tokens), cost));
            assert!(call.first_byte.unwrap() <= call.took);
        }
    }
}

#[tokio::test]
async fn neither_side_sees_the_key_of_the_other() {
    for dialect in DIALECTS {
        let mut step = Step::fail(1, 401);
        step.body = Some(json!({ "error": { "message": format!("wrong key {KEY}") } }));
        let stage = Stage::set(Script::of([step])).await;
        let door = stage.door();
        let (status, text) = ask(&door, dialect, true).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED);
        assert!(!text.contains(KEY) && text.contains("wrong key [secret]"), "{dialect}: {text}");
        let failed = door.ledger().last_failure.unwrap();
        assert_eq!((failed.status, failed.text.as_str()), (401, "wrong key [secret]"));
        let response = request(&door, dialect, true).send().await.unwrap();
        assert!(!format!("{:?}", response.headers()).contains(KEY));
        assert!(!response.text().await.unwrap().contains(KEY));
        assert_eq!(door.ledger().last_failure, None, "a call that succeeds clears it");
        for request in stage.model.requests() {
            let all = serde_json::to_string(&request).unwrap();
            assert!(all.contains(KEY), "{dialect}: the provider gets its key");
            assert!(!all.contains(door.token().expose()), "{dialect}: {all}");
            assert_eq!(request.headers["accept-encoding"], "identity");
        }
    }
}

#[tokio::test]
async fn usage_that_is_not_told_is_unknown_and_not_nothing() {
    for dialect in DIALECTS {
        for stream in [false, true] {
            let step = Step { untold: true, ..Step::say("Here.") };
            let stage = Stage::set(Script::of([step])).await;
            let door = stage.door();
            assert_eq!(ask(&door, dialect, stream).await.0, StatusCode::OK);
            let ledger = door.close().await;
            assert_eq!((ledger.calls, ledger.unmetered), (1, 1), "{dialect} {stream}");
            assert_eq!(ledger.usage.cost, Cost::Unknown, "{dialect} {stream}");
            assert!(ledger.charged.estimated && ledger.charged.tokens >= 100, "{ledger:?}");
            assert!(ledger.charged.usd >= usd("0.0015"), "at least its longest answer: {ledger:?}");
            assert_eq!(stage.calls()[0].tokens, None);
        }
    }
}

#[tokio::test]
async fn a_model_without_a_price_makes_the_whole_unknown() {
    let stage = Stage::set(Script::of([Step::say("Here.")])).await;
    let door = stage.gateway.admit(Visitor { prices: BTreeMap::new(), ..stage.visitor() });
    ask(&door, Dialect::Anthropic, true).await;
    let ledger = door.ledger();
    assert_eq!(ledger.usage.cost, Cost::Unknown);
    assert_eq!(ledger.usage.tokens, stage.model.sent()[0].tokens);
    let [call] = stage.calls().try_into().unwrap();
    assert_eq!(call.note.as_deref(), Some("no price is known for the model `large`"));
}

#[tokio::test]
async fn a_spent_budget_stops_the_run_in_the_words_of_each_protocol() {
    for dialect in DIALECTS {
        let tokens = Tokens { input: 60, cached: 0, output: 40 };
        let stage = Stage::set(Script::of([Step::say("Here.").tokens(tokens)])).await;
        let task = bound(Whose::Task, 1_000, 850);
        let door = stage.door_with(vec![bound(Whose::Run, 1_000, 0), task]);
        assert_eq!(ask(&door, dialect, true).await.0, StatusCode::OK);
        assert_eq!(stage.warned(), [Whose::Task], "950 of 1000, and 100 of 1000");
        assert_eq!(ask(&door, dialect, true).await.0, StatusCode::OK, "950 is not 1000");
        let stop = Stop::OverBudget { whose: Whose::Task };
        assert_eq!(door.stopped().await, stop);
        let (status, body) = ask(&door, dialect, true).await;
        assert_eq!(status, StatusCode::FORBIDDEN);
        let body: Value = serde_json::from_str(&body).unwrap();
        let kind = match dialect {
            Dialect::Anthropic => &body["error"]["type"],
            Dialect::Chat | Dialect::Responses => &body["error"]["code"],
            Dialect::Gemini => &body["error"]["status"],
        };
        assert!(kind == "permission_error" || kind == "PERMISSION_DENIED", "{dialect}: {body}");
        let message = body["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("the budget of the task is spent"), "{message}");
        assert_eq!(stage.model.requests().len(), 2, "the third never reached the provider");
        assert_eq!(stage.warned(), [Whose::Task], "once");
        let told = stage.told.lock().unwrap();
        assert_eq!(told.iter().filter(|event| **event == Event::Stopped(stop)).count(), 1);
        assert_eq!(door.ledger().usage.tokens.total(), 200);
    }
}

#[tokio::test]
async fn many_calls_at_once_pass_a_bound_by_one_response_at_most() {
    // Each uses what it was held for at most: as many tokens as the request has bytes, and 100 more.
    let tokens = Tokens { input: 60, cached: 0, output: 100 };
    let step = Step { delay_ms: 30, ..Step::say("Here.").tokens(tokens) };
    for limit in [1, 160, 161, 500, 900] {
        let stage = Stage::set(Script::of([step.clone()])).await;
        let door = stage.door_with(vec![bound(Whose::Run, limit, 0)]);
        let calls = (0..8).map(|_| ask(&door, Dialect::Chat, true));
        let done = join_all(calls).await.into_iter().filter(|(status, _)| status.is_success());
        let used = door.ledger().usage.tokens.total();
        assert_eq!(used, done.count() as u64 * 160, "{limit}");
        assert!(used >= limit.min(8 * 160), "{limit} were allowed, {used} used");
        assert!(used < limit + 160, "{limit} were allowed, {used} used");
        assert_eq!(door.stopped().await, Stop::OverBudget { whose: Whose::Run });
    }
}

#[tokio::test]
async fn money_is_a_bound_like_tokens() {
    let tokens = Tokens { input: 1_000, cached: 0, output: 100 };
    let stage = Stage::set(Script::of([Step::say("Here.").tokens(tokens)])).await;
    // One call is $0.0045.
    let limit = Limit { usd: Some(usd("0.01")), tokens: None };
    let bound = Bound { whose: Whose::Day, limit, spent: Spend::default() };
    let door = stage.door_with(vec![bound]);
    for expected in [200, 200, 200, 403] {
        assert_eq!(ask(&door, Dialect::Responses, true).await.0.as_u16(), expected);
    }
    assert_eq!(door.ledger().usage.cost, Cost::Known(usd("0.0135")));
    assert_eq!(stage.warned(), [Whose::Day]);
}

#[tokio::test]
async fn calls_that_fit_run_at_once() {
    let step = Step { delay_ms: 300, ..Step::say("Here.") };
    let stage = Stage::set(Script::of([step])).await;
    let door = stage.door_with(vec![bound(Whose::Run, 1_000_000, 0)]);
    join_all((0..4).map(|_| ask(&door, Dialect::Anthropic, true))).await;
    let took: Duration = stage.calls().iter().map(|call| call.took).sum();
    let longest = stage.calls().iter().map(|call| call.took).max().unwrap();
    assert!(longest * 2 < took, "all of them took {took:?}, the longest {longest:?}");
}

#[tokio::test]
async fn a_limit_that_lasts_stops_the_run_and_a_short_one_is_the_agents() {
    for dialect in DIALECTS {
        let mut short = Step::fail(1, 429);
        short.headers.insert("retry-after".to_owned(), "7".to_owned());
        let stage = Stage::set(Script::of([short])).await;
        let door = stage.door();
        let response = request(&door, dialect, true).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(header(&response, "retry-after").as_deref(), Some("7"));
        assert_eq!(ask(&door, dialect, true).await.0, StatusCode::OK, "the agent tries again");

        let mut long = Step::fail(9, 429);
        long.headers.insert("retry-after".to_owned(), "7200".to_owned());
        let stage = Stage::set(Script::of([long])).await;
        let door = stage.door();
        assert_eq!(ask(&door, dialect, true).await.0, StatusCode::TOO_MANY_REQUESTS);
        let Stop::Quota { until } = door.stopped().await else { panic!("not a quota") };
        let wait = (until - now()).as_seconds_f64();
        assert!((7200.0..7260.0).contains(&wait), "{wait} s");
        assert_eq!(ask(&door, dialect, true).await.0, StatusCode::FORBIDDEN, "no use to try again");
        assert_eq!(stage.model.requests().len(), 1);
        assert_eq!(door.ledger().last_failure.unwrap().status, 429);
        assert_eq!(door.ledger().usage.cost, Cost::Known(Usd::ZERO), "a refusal costs nothing");
    }
}

#[tokio::test]
async fn a_limit_in_the_body_stops_the_run_too() {
    let mut step = Step::fail(9, 429);
    let reset = now().timestamp() + 3600;
    step.body = Some(json!({ "error": { "type": "usage_limit_reached", "resets_at": reset } }));
    let stage = Stage::set(Script::of([step])).await;
    let door = stage.door();
    ask(&door, Dialect::Responses, true).await;
    let until = "2027-01-15T09:00:00Z".parse().unwrap();
    assert_eq!(door.stopped().await, Stop::Quota { until });
}

#[tokio::test]
async fn a_failure_is_passed_on_and_remembered_until_a_call_succeeds() {
    for status in [400, 500, 529] {
        let stage = Stage::set(Script::of([Step::fail(1, status)])).await;
        let door = stage.door();
        assert_eq!(ask(&door, Dialect::Anthropic, true).await.0.as_u16(), status);
        let failed = door.ledger().last_failure.unwrap();
        assert_eq!((failed.status, failed.text.as_str()), (status, "a scripted failure"));
        assert_eq!(door.ledger().usage.cost, Cost::Known(Usd::ZERO));
        assert_eq!(ask(&door, Dialect::Anthropic, true).await.0, StatusCode::OK);
        assert_eq!(door.ledger().last_failure, None);
    }
}

#[tokio::test]
async fn a_provider_that_is_not_there_is_a_failure_in_the_words_of_the_protocol() {
    let stage = Stage::set(Script::default()).await;
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut visitor = stage.visitor();
    visitor.upstream.as_mut().unwrap().base = format!("http://{free}");
    let door = stage.gateway.admit(visitor);
    for dialect in DIALECTS {
        let (status, body) = ask(&door, dialect, true).await;
        assert_eq!(status, StatusCode::BAD_GATEWAY);
        let body: Value = serde_json::from_str(&body).unwrap();
        let message = body["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("the provider cannot be reached"), "{message}");
        assert_eq!(door.ledger().last_failure.unwrap().status, 502);
    }
    assert_eq!(door.ledger().usage.cost, Cost::Known(Usd::ZERO));
}

#[tokio::test]
async fn a_door_opens_to_its_own_token_only() {
    let stage = Stage::set(Script::of([Step::say("Here.")])).await;
    let (door, other) = (stage.door(), stage.door());
    let client = reqwest::Client::new();
    let asked = async |url: &str, token: &str| {
        let body = json!({ "model": "large", "messages": [] });
        let sent = client.post(format!("{url}/v1/messages")).header("x-api-key", token).json(&body);
        sent.send().await.unwrap().status().as_u16()
    };
    let token = door.token().expose();
    assert_eq!(asked(door.url(), token).await, 200);
    assert_eq!(asked(door.url(), "").await, 401);
    assert_eq!(asked(door.url(), &token[1..]).await, 401);
    assert_eq!(asked(door.url(), other.token().expose()).await, 401, "another run's token");
    assert_eq!(asked(other.url(), token).await, 401, "another run's door");
    assert_eq!(asked(&format!("http://{}", stage.gateway.address()), token).await, 401);
    let in_query = format!("{}/v1/models?key={token}", other.url());
    assert_eq!(client.get(&in_query).send().await.unwrap().status().as_u16(), 401);
    let in_query = format!("{}/v1/models?key={token}", door.url());
    assert_eq!(client.get(&in_query).send().await.unwrap().status().as_u16(), 200);
    let (url, token) = (door.url().to_owned(), token.to_owned());
    drop(door);
    assert_eq!(asked(&url, &token).await, 401, "the run is over");
}

#[tokio::test]
async fn only_what_is_for_agents_is_passed_on() {
    let stage = Stage::set(Script::default()).await;
    let door = stage.door();
    let client = reqwest::Client::new();
    let token = door.token().expose();
    let get = async |path: &str| {
        let sent = client.get(format!("{}{path}", door.url())).bearer_auth(token);
        sent.send().await.unwrap().status().as_u16()
    };
    assert_eq!(get("/v1/models").await, 200);
    assert_eq!(get("/v1/files").await, 404);
    let count = client.post(format!("{}/v1/messages/count_tokens", door.url())).bearer_auth(token);
    assert_eq!(count.json(&json!({})).send().await.unwrap().status().as_u16(), 200);
    let batch = client.post(format!("{}/v1/messages/batches", door.url())).bearer_auth(token);
    assert_eq!(batch.json(&json!({})).send().await.unwrap().status().as_u16(), 404);
    assert_eq!(door.ledger().calls, 0, "what is free is not counted");
    assert_eq!(stage.model.requests().len(), 2);
    let none = stage.gateway.admit(Visitor { upstream: None, ..stage.visitor() });
    assert_eq!(ask(&none, Dialect::Chat, false).await.0, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn our_tools_are_behind_the_same_token() {
    let stage = Stage::set(Script::default()).await;
    let tools = Router::new().route("/", post(async |body: String| format!("heard {body}")));
    let door = stage.gateway.admit(Visitor { tools: Some(tools), ..stage.visitor() });
    let client = reqwest::Client::new();
    let asked = async |token: &str| {
        let sent = client.post(format!("{}/mcp", door.url())).bearer_auth(token).body("hello");
        let response = sent.send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    assert_eq!(asked(door.token().expose()).await, (200, "heard hello".to_owned()));
    assert_eq!(asked("another").await.0, 401);
    let bare = stage.door();
    let sent = client.post(format!("{}/mcp", bare.url())).bearer_auth(bare.token().expose());
    assert_eq!(sent.send().await.unwrap().status().as_u16(), 404);
}

#[tokio::test]
async fn a_socket_leads_to_the_same_doors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.sock");
    std::fs::write(&path, "left behind").unwrap();
    let stage = Stage {
        gateway: Gateway::open(Some(&path)).await.unwrap(),
        ..Stage::set(Script::of([Step::say("Here.")])).await
    };
    assert_eq!(stage.gateway.socket(), Some(path.as_path()));
    let door = stage.door();
    let (_, target) = door.url().split_at(door.url().rfind('/').unwrap());
    let body = json!({ "model": "large", "messages": [], "tools": [{ "name": "bash" }] });
    let body = body.to_string();
    let request = format!(
        "POST {target}/v1/messages HTTP/1.1\r\nhost: gateway\r\nx-api-key: {}\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        door.token().expose(),
        body.len()
    );
    let mut socket = tokio::net::UnixStream::connect(&path).await.unwrap();
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("Here."), "{answer}");
    assert_eq!(door.ledger().usage.tokens, stage.model.sent()[0].tokens);
    drop((door, stage));
    assert!(!path.exists(), "it is gone with the gateway");
}

#[tokio::test]
async fn a_call_that_is_cut_off_is_charged_as_an_estimate() {
    for dialect in [Dialect::Anthropic, Dialect::Chat, Dialect::Responses] {
        let step = Step { stall: true, ..Step::say("Here.") };
        let stage = Stage::set(Script::of([step])).await;
        let door = stage.door();
        let mut response = request(&door, dialect, true).send().await.unwrap();
        let first = response.chunk().await.unwrap();
        assert!(first.is_some(), "what has come is passed on at once");
        assert_eq!(door.ledger().calls, 0);
        let ledger = door.close().await;
        assert_eq!((ledger.calls, ledger.unmetered), (1, 1), "{dialect}");
        assert_eq!(ledger.usage.cost, Cost::Unknown);
        assert!(ledger.charged.tokens >= 100);
        let rest = response.text().await.unwrap();
        assert!(!rest.contains("Here."));
    }
}

#[tokio::test]
async fn an_agent_that_hangs_up_is_noticed_and_charged() {
    let step = Step { stall: true, ..Step::say("Here.") };
    let stage = Stage::set(Script::of([step])).await;
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let observer = Arc::new(move |event| tell.send(event).unwrap());
    let door = stage.gateway.admit(Visitor { observer, ..stage.visitor() });
    let mut response = request(&door, Dialect::Anthropic, true).send().await.unwrap();
    assert!(response.chunk().await.unwrap().is_some());
    drop(response);
    let event = tokio::time::timeout(Duration::from_secs(30), told.recv()).await.unwrap();
    let Some(Event::Called(call)) = event else { panic!("not a call: {event:?}") };
    assert_eq!((call.status, call.tokens, call.cost), (200, None, Cost::Unknown));
    assert_eq!((door.ledger().calls, door.ledger().unmetered), (1, 1));
}
