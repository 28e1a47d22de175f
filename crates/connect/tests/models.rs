//! Models, as real servers on real ports.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::future::pending;

use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tamma_connect::model::{Embedder, Error, Reader};
use tokio::net::TcpListener;

/// Serves a model, and says where.
async fn serve(app: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}/v1/")
}

/// A model to which a text means its length. It answers backwards, as a model may.
async fn lengths(headers: HeaderMap, Json(question): Json<Value>) -> (StatusCode, Json<Value>) {
    let is_allowed = headers.get("authorization").is_some_and(|it| it == "Bearer sesame");
    if question["model"] != "lengths" || !is_allowed {
        return (StatusCode::UNAUTHORIZED, Json(Value::Null));
    }
    let texts = question["input"].as_array().unwrap();
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
async fn vectors_come_in_the_order_of_the_texts_and_long_texts_are_cut() {
    let url = serve(Router::new().route("/v1/embeddings", post(lengths))).await;
    let model = Embedder::new(&url, "lengths", Some("sesame".to_owned())).unwrap();
    let vectors = model.vectors(&texts()).await.unwrap();
    assert_eq!(vectors, [[4.0, 1.0], [6_000.0, 1.0]]);
}

#[tokio::test]
async fn a_model_that_refuses_or_answers_something_else_is_an_error() {
    let url = serve(Router::new().route("/v1/embeddings", post(lengths))).await;
    let refused = Embedder::new(&url, "lengths", None).unwrap().vectors(&texts()).await;
    assert!(
        matches!(refused, Err(Error::Refused { status: StatusCode::UNAUTHORIZED, .. })),
        "{refused:?}"
    );

    let one = || async { Json(json!({ "data": [{ "index": 0, "embedding": [1] }] })) };
    let url = serve(Router::new().route("/v1/embeddings", post(one))).await;
    let odd = Embedder::new(&url, "one", None).unwrap().vectors(&texts()).await;
    assert!(matches!(odd, Err(Error::Odd { asked: 2, given: 1 })), "{odd:?}");
}

#[tokio::test]
async fn a_model_that_is_slow_or_away_is_an_error_in_time_that_does_not_tell_the_address() {
    let never = serve(Router::new().route("/v1/embeddings", post(pending::<()>))).await;
    for url in [never.as_str(), "http://127.0.0.1:9/v1"] {
        let model = Embedder::new(url, "slow", None).unwrap();
        let answer = tokio::time::timeout(Embedder::LIMIT * 3, model.vectors(&texts())).await;
        let error = answer.expect("an answer in time").unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }));
        assert!(!error.to_string().contains("127.0.0.1"), "{error}");
    }
}

/// What a reader is asked comes as two messages and a form, with the key.
async fn echoes(headers: HeaderMap, Json(question): Json<Value>) -> Json<Value> {
    assert_eq!(headers["authorization"], "Bearer sesame");
    assert_eq!(question["messages"][0]["role"], "system");
    assert_eq!(question["messages"][1]["content"], "hello");
    assert_eq!(question["response_format"]["json_schema"]["schema"]["type"], "object");
    Json(json!({ "choices": [{ "message": { "content": "{\"intent\":\"talk\"}" } }] }))
}

#[tokio::test]
async fn a_reader_gives_what_the_model_wrote_and_is_an_error_without() {
    let form = json!({ "type": "object" });
    let url = serve(Router::new().route("/v1/chat/completions", post(echoes))).await;
    let reader = Reader::new(&url, "small", Some("sesame".to_owned())).unwrap();
    let read = reader.read("sort it", "hello", &form).await.unwrap();
    assert_eq!(read, r#"{"intent":"talk"}"#);

    for answer in [json!({ "choices": [] }), json!("yes"), Value::Null] {
        let says = move || async move { Json(answer) };
        let url = serve(Router::new().route("/v1/chat/completions", post(says))).await;
        let read = Reader::new(&url, "odd", None).unwrap().read("", "hello", &form).await;
        let error = read.unwrap_err();
        assert!(matches!(error, Error::Unreadable { .. }), "{error:?}");
        assert!(error.to_string().contains("`chat.url`"), "{error}");
    }
    // A key goes to the address that it is for, and to no other.
    let away = || async { (StatusCode::FOUND, [("location", "http://127.0.0.1:9/v1")]) };
    let url = serve(Router::new().route("/v1/chat/completions", post(away))).await;
    let reader = Reader::new(&url, "away", Some("sesame".to_owned())).unwrap();
    let error = reader.read("", "hello", &form).await.unwrap_err();
    assert!(matches!(error, Error::Refused { status: StatusCode::FOUND, .. }), "{error:?}");
}
