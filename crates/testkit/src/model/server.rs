//! HTTP server of the scripted model.

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

use super::model_response::ModelResponse;
use super::offered_tools::{OfferedTools, ResolvedCall};
use super::prompt_cache::{self, Prompt};
use super::{
    Dialect, ModelStep, RecordedRequest, RequestLog, Script, SentResponse, script_position,
};

/// Callback for every request.
type RequestObserver = Box<dyn Fn(&RecordedRequest) + Send + Sync>;

struct ModelState {
    script: Script,
    log: Arc<Mutex<RequestLog>>,
    observer: RequestObserver,
}

impl ModelState {
    fn log(&self) -> MutexGuard<'_, RequestLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) async fn start(
    port: u16,
    script: Script,
    log: Arc<Mutex<RequestLog>>,
    observer: RequestObserver,
) -> anyhow::Result<(SocketAddr, JoinHandle<()>)> {
    let app = Router::new()
        .fallback(handle_request)
        .layer(DefaultBodyLimit::disable())
        .with_state(Arc::new(ModelState { script, log, observer }));
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let address = listener.local_addr()?;
    let listener = listener.tap_io(|connection| {
        // Send each event at once; otherwise it waits up to 40 ms for the previous one.
        let _ = connection.set_nodelay(true);
    });
    let server = tokio::spawn(async move {
        // Ends with the process, or when the model is dropped.
        let _ = axum::serve(listener, app).await;
    });
    Ok((address, server))
}

fn dialect_of(path: &str) -> Option<Dialect> {
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

/// Returns the tokens of a response. Without a script, they grow from step to step, unless they are
/// counted.
fn tokens_of(
    step: &ModelStep,
    dialect: Dialect,
    step_index: u64,
    counted: Option<Tokens>,
) -> Tokens {
    if let Some(counted) = counted {
        return Tokens {
            input: step.input_tokens.unwrap_or(counted.input),
            cached: step.cached_tokens.unwrap_or(counted.cached),
            output: step.output_tokens.unwrap_or(counted.output),
            cache_write: step.cache_write_tokens.unwrap_or(counted.cache_write),
            cache_write_1h: step.cache_write_1h_tokens.unwrap_or(counted.cache_write_1h),
        };
    }
    let input = step.input_tokens.unwrap_or(1000 + 100 * step_index);
    let (cache_write, cache_write_1h) = match dialect {
        Dialect::Anthropic => (
            step.cache_write_tokens.unwrap_or(input / 10),
            step.cache_write_1h_tokens.unwrap_or_default(),
        ),
        Dialect::Chat | Dialect::Responses => (step.cache_write_tokens.unwrap_or_default(), 0),
        // Not reported.
        Dialect::Gemini => (0, 0),
    };
    Tokens {
        input,
        cached: step.cached_tokens.unwrap_or(200),
        output: step.output_tokens.unwrap_or(10 + step_index),
        cache_write,
        cache_write_1h,
    }
}

impl RequestLog {
    /// Counts the input tokens of a request, and remembers its prompt.
    fn count_prompt(&mut self, model: &str, dialect: Dialect, request: &Value) -> Tokens {
        let earlier = self.prompts.entry(model.to_owned()).or_default();
        let prompt = Prompt::of(dialect, request);
        let tokens = prompt_cache::input_tokens(dialect, &prompt, earlier);
        earlier.push(prompt);
        tokens
    }
}

/// Counts the tokens of a response.
fn output_tokens(text: Option<&str>, calls: &[ResolvedCall]) -> u64 {
    let calls = calls.iter().map(|call| call.name.len() + call.input.object().to_string().len());
    let bytes = text.map_or(0, str::len) + calls.sum::<usize>();
    u64::try_from(prompt_cache::count(bytes)).unwrap_or(u64::MAX)
}

async fn handle_request(
    State(shared): State<Arc<ModelState>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let path = uri.path();
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let conversation = script_position::conversation_text(&request);
    let offer = OfferedTools::from_request(&request, &conversation);
    let dialect = dialect_of(path);
    let is_structured = wants_structured_output(&request);
    let is_side_request = offer.is_empty() || is_structured;
    let (case, steps) = shared.script.select_case(&conversation);
    let step_number =
        (dialect.is_some() && !is_side_request).then(|| script_position::next_step(&request, case));
    let model = request.get("model").and_then(Value::as_str).or_else(|| model_in_path(path));
    let text =
        |value: &axum::http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let recorded = RecordedRequest {
        method: method.to_string(),
        path: uri.to_string(),
        headers: headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect(),
        model: model.map(str::to_owned),
        tools: offer.names(),
        case,
        step: step_number,
        body: request.clone(),
    };
    (shared.observer)(&recorded);
    shared.log().requests.push(recorded);
    let Some(dialect) = dialect else { return handle_other(&method, path) };

    let step = match step_number {
        Some(number) => {
            steps.get(number).cloned().unwrap_or_else(|| ModelStep::say("That is all."))
        }
        None => ModelStep::say(shared.script.side_answer.clone().unwrap_or_else(|| {
            let title = "A scripted title";
            // Codex asks a model to approve tool calls.
            let structured =
                is_structured.then(|| json!({ "title": title, "outcome": "allow" }).to_string());
            structured.unwrap_or_else(|| title.to_owned())
        })),
    };
    if let Some(number) = step_number
        && step.fail_first > 0
    {
        let mut log = shared.log();
        let attempts = log.attempts.entry((case, number)).or_default();
        *attempts += 1;
        if *attempts <= step.fail_first {
            return failure_response(dialect, &step);
        }
    }
    let streamed = path.ends_with(":streamGenerateContent")
        || request.get("stream").and_then(Value::as_bool).unwrap_or_default();
    // OpenAI streams usage only on request.
    let asked_for_usage = dialect != Dialect::Chat
        || !streamed
        || request.pointer("/stream_options/include_usage") == Some(&Value::Bool(true));
    let number = step_number.unwrap_or_default();
    let step_marker = script_position::step_marker(case, number);
    let step_index = u64::try_from(number).unwrap_or(u64::MAX);
    let text = match &step.say {
        // Only calls have an ID that comes back, so a text contains its marker.
        _ if step_number.is_some() && step.calls.is_empty() => {
            Some(format!("{} [{step_marker}]", step.say.as_deref().unwrap_or_default()))
        }
        text => text.clone(),
    };
    let calls: Vec<_> = step.calls.iter().map(|call| offer.resolve(call)).collect();
    let model = model.unwrap_or("unnamed").to_owned();
    let counted = shared.script.count_tokens.then(|| {
        let input = shared.log().count_prompt(&model, dialect, &request);
        Tokens { output: output_tokens(text.as_deref(), &calls), ..input }
    });
    let response = ModelResponse {
        model,
        text,
        calls,
        stop: step.stop.clone(),
        tokens: tokens_of(&step, dialect, step_index, counted),
        reports_usage: asked_for_usage && !step.hide_usage,
        step_marker,
    };
    let sent = SentResponse {
        model: response.model.clone(),
        dialect,
        tokens: response.tokens,
        reported_usage: response.reports_usage,
        is_side_request,
        case,
    };
    let encoded = response.encode(dialect);
    if streamed {
        return stream_response(encoded.events, step, sent, shared);
    }
    tokio::time::sleep(Duration::from_millis(step.delay_ms)).await;
    if step.stall {
        std::future::pending::<()>().await;
    }
    shared.log().sent.push(sent);
    Json(encoded.body).into_response()
}

/// Streams events. The response is logged when its last event is sent.
fn stream_response(
    events: Vec<String>,
    step: ModelStep,
    sent: SentResponse,
    shared: Arc<ModelState>,
) -> Response {
    let events = events.into_iter().enumerate();
    let start = (events, Some(sent), step, shared);
    let body = stream::unfold(start, async |(mut events, mut sent, step, shared)| {
        let (number, event) = events.next()?;
        if number == 0 {
            tokio::time::sleep(Duration::from_millis(step.delay_ms)).await;
        }
        // Gemini sends everything in one event, so the silence has no start before it.
        if step.stall && (number > 0 || events.len() == 0) {
            std::future::pending::<()>().await;
        }
        if events.len() == 0
            && let Some(sent) = sent.take()
        {
            shared.log().sent.push(sent);
        }
        Some((Ok::<_, Infallible>(Bytes::from(event)), (events, sent, step, shared)))
    });
    let headers =
        [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    (headers, Body::from_stream(body)).into_response()
}

/// Returns `true` for a requested output format, which marks side requests such as titles, routing
/// and reviews.
fn wants_structured_output(request: &Value) -> bool {
    let at = |path: &str| request.pointer(path);
    at("/text/format/type").is_some_and(|kind| kind == "json_schema")
        || at("/response_format/type").is_some_and(|kind| kind != "text")
        || at("/output_format").is_some()
        || at("/output_config/format").is_some()
        || at("/generationConfig/responseMimeType").is_some_and(|kind| kind == "application/json")
}

/// Returns the model from the path of a Gemini request.
fn model_in_path(path: &str) -> Option<&str> {
    let (model, _) = path.rsplit('/').next()?.split_once(':')?;
    Some(model)
}

/// Builds a failure with the body that the provider would send.
fn failure_response(dialect: Dialect, step: &ModelStep) -> Response {
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

/// Responds to requests outside conversations.
fn handle_other(method: &Method, path: &str) -> Response {
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
    let error = json!({ "type": "not_found_error", "message": format!("no endpoint at {path}") });
    (StatusCode::NOT_FOUND, Json(json!({ "type": "error", "error": error }))).into_response()
}
