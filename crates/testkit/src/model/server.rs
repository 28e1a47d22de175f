//! The model's server.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Json, Response};
use axum::serve::ListenerExt as _;
use futures_util::stream;
use serde_json::{Value, json};
use tamma_core::cost::Tokens;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::answer::Answer;
use super::offer::Offer;
use super::{Books, Dialect, Request, Script, Sent, Step, place};

/// Who is told of a request.
type Heard = Box<dyn Fn(&Request) + Send + Sync>;

struct Shared {
    script: Script,
    books: Arc<Mutex<Books>>,
    heard: Heard,
}

impl Shared {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) async fn start(
    port: u16,
    script: Script,
    books: Arc<Mutex<Books>>,
    heard: Heard,
) -> anyhow::Result<(SocketAddr, JoinHandle<()>)> {
    let app = Router::new()
        .fallback(answer)
        .layer(DefaultBodyLimit::disable())
        .with_state(Arc::new(Shared { script, books, heard }));
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let address = listener.local_addr()?;
    let listener = listener.tap_io(|connection| {
        // Each event goes out at once; without this it waits up to 40 ms for the one before.
        let _ = connection.set_nodelay(true);
    });
    let server = tokio::spawn(async move {
        // It only ends with the process, or when the model is dropped.
        let _ = axum::serve(listener, app).await;
    });
    Ok((address, server))
}

fn dialect(path: &str) -> Option<Dialect> {
    [
        ("/messages", Dialect::Anthropic),
        ("/chat/completions", Dialect::Chat),
        ("/responses", Dialect::Responses),
        (":generateContent", Dialect::Gemini),
        (":streamGenerateContent", Dialect::Gemini),
    ]
    .into_iter()
    .find_map(|(end, dialect)| path.ends_with(end).then_some(dialect))
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let path = uri.path();
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let words = place::words(&request);
    let offer = Offer::of(&request, &words);
    let dialect = dialect(path);
    let formed = wants_a_form(&request);
    let side = offer.is_empty() || formed;
    let (case, steps) = shared.script.choose(&words);
    let played = (dialect.is_some() && !side).then(|| place::next(&request, case));
    let model = request.get("model").and_then(Value::as_str).or_else(|| in_path(path));
    let text =
        |value: &axum::http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let heard = Request {
        method: method.to_string(),
        path: uri.to_string(),
        headers: headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect(),
        model: model.map(str::to_owned),
        tools: offer.names(),
        case,
        step: played,
        body: request.clone(),
    };
    (shared.heard)(&heard);
    shared.books().requests.push(heard);
    let Some(dialect) = dialect else { return other(&method, path) };

    let step = match played {
        Some(number) => steps.get(number).cloned().unwrap_or_else(|| Step::say("That is all.")),
        None => Step::say(shared.script.side.clone().unwrap_or_else(|| {
            let title = "A scripted title";
            // Codex asks a model whether a call of a tool is to be allowed.
            let formed = formed.then(|| json!({ "title": title, "outcome": "allow" }).to_string());
            formed.unwrap_or_else(|| title.to_owned())
        })),
    };
    if let Some(number) = played
        && step.fail_first > 0
    {
        let mut books = shared.books();
        let asked = books.asked.entry((case, number)).or_default();
        *asked += 1;
        if *asked <= step.fail_first {
            return failure(dialect, &step);
        }
    }
    let streamed = path.ends_with(":streamGenerateContent")
        || request.get("stream").and_then(Value::as_bool).unwrap_or_default();
    // OpenAI tells it in a stream only to those who ask.
    let asked_for_usage = dialect != Dialect::Chat
        || !streamed
        || request.pointer("/stream_options/include_usage") == Some(&Value::Bool(true));
    let number = played.unwrap_or_default();
    let mark = place::mark(case, number);
    let extra = u64::try_from(number).unwrap_or(u64::MAX);
    let text = match &step.say {
        // Only a call has an id that comes back; a text carries its mark in itself.
        _ if played.is_some() && step.calls.is_empty() => {
            Some(format!("{} [{mark}]", step.say.as_deref().unwrap_or_default()))
        }
        said => said.clone(),
    };
    let answer = Answer {
        model: model.unwrap_or("unnamed").to_owned(),
        text,
        calls: step.calls.iter().map(|call| offer.resolve(call)).collect(),
        stop: step.stop.clone(),
        tokens: Tokens {
            input: step.input_tokens.unwrap_or(1000 + 100 * extra),
            cached: step.cached_tokens.unwrap_or(200),
            output: step.output_tokens.unwrap_or(10 + extra),
        },
        told: asked_for_usage && !step.untold,
        mark,
    };
    let sent = Sent {
        model: answer.model.clone(),
        dialect,
        tokens: answer.tokens,
        told: answer.told,
        side,
    };
    let worded = answer.worded(dialect);
    if streamed {
        return streamed_answer(worded.events, step, sent, shared);
    }
    tokio::time::sleep(Duration::from_millis(step.delay_ms)).await;
    if step.stall {
        std::future::pending::<()>().await;
    }
    shared.books().sent.push(sent);
    Json(worded.whole).into_response()
}

/// A stream of events. It is in the books when its last event goes out.
fn streamed_answer(events: Vec<String>, step: Step, sent: Sent, shared: Arc<Shared>) -> Response {
    let events = events.into_iter().enumerate();
    let start = (events, Some(sent), step, shared);
    let body = stream::unfold(start, async |(mut events, mut sent, step, shared)| {
        let (number, event) = events.next()?;
        if number == 0 {
            tokio::time::sleep(Duration::from_millis(step.delay_ms)).await;
        }
        // Gemini says all at once, so that there is no beginning before the silence.
        if step.stall && (number > 0 || events.len() == 0) {
            std::future::pending::<()>().await;
        }
        if events.len() == 0
            && let Some(sent) = sent.take()
        {
            shared.books().sent.push(sent);
        }
        Some((Ok::<_, Infallible>(Bytes::from(event)), (events, sent, step, shared)))
    });
    let headers =
        [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    (headers, Body::from_stream(body)).into_response()
}

/// Requests for a given form are housekeeping: titles, routing, reviews.
fn wants_a_form(request: &Value) -> bool {
    let at = |path: &str| request.pointer(path);
    at("/text/format/type").is_some_and(|kind| kind == "json_schema")
        || at("/response_format/type").is_some_and(|kind| kind != "text")
        || at("/output_format").is_some()
        || at("/output_config/format").is_some()
        || at("/generationConfig/responseMimeType").is_some_and(|kind| kind == "application/json")
}

/// The model that Gemini has in the path.
fn in_path(path: &str) -> Option<&str> {
    let (model, _) = path.rsplit('/').next()?.split_once(':')?;
    Some(model)
}

/// A failure, with a body that the provider might have sent.
fn failure(dialect: Dialect, step: &Step) -> Response {
    let status = step
        .status
        .and_then(|status| StatusCode::from_u16(status).ok())
        .unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    let message = "a scripted failure";
    let kind = match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        429 => "rate_limit_error",
        500.. => "overloaded_error",
        _ => "invalid_request_error",
    };
    let body = match (&step.body, dialect) {
        (Some(body), _) => body.clone(),
        (None, Dialect::Anthropic) => {
            json!({ "type": "error", "error": { "type": kind, "message": message } })
        }
        (None, Dialect::Gemini) => {
            json!({ "error": { "code": status.as_u16(), "status": "SCRIPTED", "message": message } })
        }
        (None, Dialect::Chat | Dialect::Responses) => {
            json!({ "error": { "type": kind, "code": "scripted", "message": message } })
        }
    };
    let mut response = (status, Json(body)).into_response();
    for (name, value) in &step.headers {
        if let (Ok(name), Ok(value)) =
            (name.parse::<header::HeaderName>(), value.parse::<header::HeaderValue>())
        {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// What is asked beside conversations.
fn other(method: &Method, path: &str) -> Response {
    if path.ends_with("/count_tokens") {
        return Json(json!({ "input_tokens": 1000 })).into_response();
    }
    if path.ends_with(":countTokens") {
        return Json(json!({ "totalTokens": 1000 })).into_response();
    }
    if *method == Method::GET && path.ends_with("/models") {
        let model =
            |id: &str| json!({ "id": id, "object": "model", "created": 1, "owned_by": "test" });
        let models = [model("scripted-large"), model("scripted-small")];
        return Json(json!({ "object": "list", "data": models })).into_response();
    }
    let error = json!({ "type": "not_found_error", "message": format!("nothing is at {path}") });
    (StatusCode::NOT_FOUND, Json(json!({ "type": "error", "error": error }))).into_response()
}
