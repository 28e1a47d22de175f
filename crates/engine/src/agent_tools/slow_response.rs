//! Responses of slow tools as an event stream.
//!
//! Some agents give up if a response does not begin within a minute, although they allow longer
//! calls. So the response of a slow call begins early as an event stream, with comments that keep
//! the connection alive, and its result is the only event.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{self, Body, Bytes};
use axum::extract::Request;
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::future::BoxFuture;
use futures_util::stream;
use tokio::time::timeout;

/// Time after which a response begins without its result.
const SLOW: Duration = Duration::from_secs(5);

/// Interval of the comments.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Maximum size of a result, in bytes. Results are bounded by their tools.
const MAX_RESULT_BYTES: usize = 4 * 1024 * 1024;

/// Middleware that turns a slow response into an event stream.
pub(super) async fn stream_if_slow(request: Request, next: Next) -> Response {
    let running: BoxFuture<'static, Response> = Box::pin(next.run(request));
    stream_after(SLOW, KEEP_ALIVE, running).await
}

async fn stream_after(
    slow: Duration,
    keep_alive: Duration,
    mut running: BoxFuture<'static, Response>,
) -> Response {
    if let Ok(response) = timeout(slow, &mut running).await {
        return response;
    }
    let events = stream::unfold(Some(running), move |running| async move {
        let mut running = running?;
        let (event, running) = match timeout(keep_alive, &mut running).await {
            Err(_) => (Bytes::from_static(b":\n\n"), Some(running)),
            Ok(response) => (as_event(response).await, None),
        };
        Some((Ok::<_, Infallible>(event), running))
    });
    let headers =
        [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    (headers, Body::from_stream(events)).into_response()
}

/// Returns the body of a JSON response as an event.
async fn as_event(response: Response) -> Bytes {
    let json = body::to_bytes(response.into_body(), MAX_RESULT_BYTES).await.unwrap_or_default();
    let json = String::from_utf8_lossy(&json).replace(['\n', '\r'], " ");
    format!("event: message\ndata: {json}\n\n").into()
}

#[cfg(test)]
mod tests {
    use axum::Json;
    use serde_json::json;

    use super::*;

    async fn text(response: Response) -> String {
        let body = body::to_bytes(response.into_body(), MAX_RESULT_BYTES).await.expect("a body");
        String::from_utf8(body.to_vec()).expect("text")
    }

    fn after(delay: Duration) -> BoxFuture<'static, Response> {
        Box::pin(async move {
            tokio::time::sleep(delay).await;
            Json(json!({ "answer": "tabs" })).into_response()
        })
    }

    #[tokio::test]
    async fn a_fast_response_is_json_and_a_slow_one_a_stream() {
        let fast = stream_after(SLOW, KEEP_ALIVE, after(Duration::ZERO)).await;
        assert_eq!(text(fast).await, r#"{"answer":"tabs"}"#);
        let (soon, late) = (Duration::from_millis(10), Duration::from_millis(300));
        let slow = stream_after(soon, soon, after(late)).await;
        assert_eq!(slow.headers()[header::CONTENT_TYPE], "text/event-stream");
        let text = text(slow).await;
        assert!(text.starts_with(":\n\n"), "{text}");
        assert!(text.ends_with("event: message\ndata: {\"answer\":\"tabs\"}\n\n"), "{text}");
    }
}
