//! Model clients against real servers on real ports.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use std::future::pending;

use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tamma_connect::model::{ChatReader, Embedder, Error};
use tokio::net::TcpListener;

/// Serves a model and returns its URL.
async fn serve(app: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}/v1/")
}

/// Embeds a text as its length. Answers in reverse order, which the API allows.
async fn lengths(headers: HeaderMap, Json(request): Json<Value>) -> (StatusCode, Json<Value>) {
    let is_allowed = headers.get("authorization").is_some_and(|it| it == "Bearer sesame");
    if request["model"] != "lengths" || !is_allowed {
        return (StatusCode::UNAUTHORIZED, Json(Value::Null));
    }
    let texts = request["input"].as_array().unwrap();
    let vectors = texts.iter().enumerate().rev();
    let vectors = vectors.map(|(index, text)| {
        json!({ "index": index, "embedding": [text.as_str().unwrap().chars().count(), 1] })
    });
    (StatusCode::OK, Json(json!({ "data": vectors.collect::<Vec<_>>() })))
}

fn texts() -> Vec<String> {
    vec!["four".to_owned(), "é".repeat(9_000)]
}

#[tokio::test]
async fn vectors_keep_the_order_of_texts_and_long_texts_are_truncated() {
    let url = serve(Router::new().route("/v1/embeddings", post(lengths))).await;
    let model = Embedder::new(&url, "lengths", Some("sesame".to_owned())).unwrap();
    let vectors = model.embed(&texts()).await.unwrap();
    assert_eq!(vectors, [[4.0, 1.0], [6_000.0, 1.0]]);
}

#[tokio::test]
async fn error_status_or_unexpected_response_is_an_error() {
    let url = serve(Router::new().route("/v1/embeddings", post(lengths))).await;
    let refused = Embedder::new(&url, "lengths", None).unwrap().embed(&texts()).await;
    assert!(
        matches!(refused, Err(Error::Refused { status: StatusCode::UNAUTHORIZED, .. })),
        "{refused:?}"
    );

    let one = || async { Json(json!({ "data": [{ "index": 0, "embedding": [1] }] })) };
    let url = serve(Router::new().route("/v1/embeddings", post(one))).await;
    let odd = Embedder::new(&url, "one", None).unwrap().embed(&texts()).await;
    assert!(matches!(odd, Err(Error::VectorCountMismatch { expected: 2, received: 1 })), "{odd:?}");
}

#[tokio::test]
async fn slow_or_unreachable_model_fails_in_time_without_revealing_its_url() {
    let never = serve(Router::new().route("/v1/embeddings", post(pending::<()>))).await;
    for url in [never.as_str(), "http://127.0.0.1:9/v1"] {
        let model = Embedder::new(url, "slow", None).unwrap();
        let result = tokio::time::timeout(Embedder::TIMEOUT * 3, model.embed(&texts())).await;
        let error = result.expect("response in time").unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }));
        assert!(!error.to_string().contains("127.0.0.1"), "{error}");
    }
}

/// Expects two messages, a schema and the key.
async fn check_request(headers: HeaderMap, Json(request): Json<Value>) -> Json<Value> {
    assert_eq!(headers["authorization"], "Bearer sesame");
    assert_eq!(request["messages"][0]["role"], "system");
    assert_eq!(request["messages"][1]["content"], "hello");
    assert_eq!(request["response_format"]["json_schema"]["schema"]["type"], "object");
    Json(json!({ "choices": [{ "message": { "content": "{\"intent\":\"talk\"}" } }] }))
}

/// Refuses parameters like OpenAI's models since GPT-5.
async fn like_gpt_5(Json(request): Json<Value>) -> (StatusCode, Json<Value>) {
    let refuse = |parameter: &str, code: &str, message: &str| {
        let error = json!({
            "message": message, "type": "invalid_request_error", "param": parameter, "code": code,
        });
        (StatusCode::BAD_REQUEST, Json(json!({ "error": error })))
    };
    if request.get("max_tokens").is_some() {
        let message = "Unsupported parameter: 'max_tokens' is not supported with this model. Use \
                       'max_completion_tokens' instead.";
        return refuse("max_tokens", "unsupported_parameter", message);
    }
    if request.get("temperature").is_some_and(|temperature| *temperature != json!(1)) {
        let message = "Unsupported value: 'temperature' does not support 0 with this model. Only \
                       the default (1) value is supported.";
        return refuse("temperature", "unsupported_value", message);
    }
    assert!(request["max_completion_tokens"].as_u64().is_some_and(|limit| limit >= 1_000));
    (StatusCode::OK, Json(json!({ "choices": [{ "message": { "content": "{}" } }] })))
}

/// Refuses unknown parameters, and does not know the newer name of the token limit.
async fn strict(Json(request): Json<Value>) -> (StatusCode, Json<Value>) {
    let known = ["model", "messages", "max_tokens", "response_format"];
    let keys = request.as_object().unwrap().keys();
    if let Some(key) = keys.into_iter().find(|key| !known.contains(&key.as_str())) {
        let detail = json!([{ "type": "extra_forbidden", "loc": ["body", key] }]);
        return (StatusCode::UNPROCESSABLE_ENTITY, Json(json!({ "detail": detail })));
    }
    assert!(request["max_tokens"].is_u64());
    (StatusCode::OK, Json(json!({ "choices": [{ "message": { "content": "{}" } }] })))
}

#[tokio::test]
async fn reader_sends_parameters_that_old_and_new_models_accept() {
    let app = Router::new()
        .route("/new/v1/chat/completions", post(like_gpt_5))
        .route("/old/v1/chat/completions", post(strict));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    for provider in ["new", "old"] {
        let url = format!("http://{address}/{provider}/v1");
        let reader = ChatReader::new(&url, "any", None).unwrap();
        let read = reader.read("sort it", "hello", &json!({ "type": "object" })).await;
        assert_eq!(read.unwrap(), "{}", "{provider}");
    }
}

#[tokio::test]
async fn reader_returns_the_text_of_the_model_or_an_error() {
    let form = json!({ "type": "object" });
    let url = serve(Router::new().route("/v1/chat/completions", post(check_request))).await;
    let reader = ChatReader::new(&url, "small", Some("sesame".to_owned())).unwrap();
    let read = reader.read("sort it", "hello", &form).await.unwrap();
    assert_eq!(read, r#"{"intent":"talk"}"#);

    for response in [json!({ "choices": [] }), json!("yes"), Value::Null] {
        let handler = move || async move { Json(response) };
        let url = serve(Router::new().route("/v1/chat/completions", post(handler))).await;
        let read = ChatReader::new(&url, "odd", None).unwrap().read("", "hello", &form).await;
        let error = read.unwrap_err();
        assert!(matches!(error, Error::Unreadable { .. }), "{error:?}");
        assert!(error.to_string().contains("`chat.url`"), "{error}");
    }
    // The key must not be sent to a redirect target.
    let redirect = || async { (StatusCode::FOUND, [("location", "http://127.0.0.1:9/v1")]) };
    let url = serve(Router::new().route("/v1/chat/completions", post(redirect))).await;
    let reader = ChatReader::new(&url, "away", Some("sesame".to_owned())).unwrap();
    let error = reader.read("", "hello", &form).await.unwrap_err();
    assert!(matches!(error, Error::Refused { status: StatusCode::FOUND, .. }), "{error:?}");
}
