//! The files that pages load: few, small, and a part of the program.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use tamma_core::ids::Digest;

/// Each with its media type.
const FILES: [(&str, &str, &[u8]); 6] = [
    ("app.css", "text/css; charset=utf-8", include_bytes!("../../assets/app.css")),
    ("app.js", "text/javascript; charset=utf-8", include_bytes!("../../assets/app.js")),
    ("htmx.min.js", "text/javascript; charset=utf-8", include_bytes!("../../assets/htmx.min.js")),
    (
        "hx-sse.min.js",
        "text/javascript; charset=utf-8",
        include_bytes!("../../assets/hx-sse.min.js"),
    ),
    ("icons.svg", "image/svg+xml", include_bytes!("../../assets/icons.svg")),
    ("mark.svg", "image/svg+xml", include_bytes!("../../assets/mark.svg")),
];

/// Where they are. The place has their hash in it, so that a browser keeps them for good and a new
/// version is another place.
pub(super) static PLACE: LazyLock<String> = LazyLock::new(|| {
    let all: Vec<u8> = FILES.iter().flat_map(|(_, _, bytes)| bytes.iter().copied()).collect();
    let hash = Digest::of(&all).to_string();
    format!("/assets/{}", hash.get(..12).unwrap_or_default())
});

/// Gives one of them.
pub(super) async fn file(Path((_, name)): Path<(String, String)>) -> Response {
    match FILES.iter().find(|(file, _, _)| *file == name) {
        Some((_, kind, bytes)) => {
            let headers = [
                (header::CONTENT_TYPE, *kind),
                (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
            ];
            (headers, *bytes).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
