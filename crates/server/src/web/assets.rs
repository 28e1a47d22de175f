//! Static files, compiled into the program.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use tamma_core::ids::Digest;

/// Name, media type and content of each file.
const ASSETS: [(&str, &str, &[u8]); 12] = [
    ("app.css", "text/css; charset=utf-8", include_bytes!("../../assets/app.css")),
    ("app.js", "text/javascript; charset=utf-8", include_bytes!("../../assets/app.js")),
    ("board.css", "text/css; charset=utf-8", include_bytes!("../../assets/board.css")),
    ("board.js", "text/javascript; charset=utf-8", include_bytes!("../../assets/board.js")),
    ("htmx.min.js", "text/javascript; charset=utf-8", include_bytes!("../../assets/htmx.min.js")),
    (
        "hx-sse.min.js",
        "text/javascript; charset=utf-8",
        include_bytes!("../../assets/hx-sse.min.js"),
    ),
    ("log.css", "text/css; charset=utf-8", include_bytes!("../../assets/log.css")),
    ("log.js", "text/javascript; charset=utf-8", include_bytes!("../../assets/log.js")),
    ("icons.svg", "image/svg+xml", include_bytes!("../../assets/icons.svg")),
    ("mark.svg", "image/svg+xml", include_bytes!("../../assets/mark.svg")),
    ("review.css", "text/css; charset=utf-8", include_bytes!("../../assets/review.css")),
    ("review.js", "text/javascript; charset=utf-8", include_bytes!("../../assets/review.js")),
];

/// Base path of the static files. It contains their hash, so that browsers can cache them forever.
/// A new version has another path.
pub(super) static ASSETS_PATH: LazyLock<String> = LazyLock::new(|| {
    let all: Vec<u8> = ASSETS.iter().flat_map(|(_, _, bytes)| bytes.iter().copied()).collect();
    let hash = Digest::of(&all).to_string();
    format!("/assets/{}", hash.get(..12).unwrap_or_default())
});

/// Serves a static file.
pub(super) async fn serve_asset(Path((_, name)): Path<(String, String)>) -> Response {
    match ASSETS.iter().find(|(file, _, _)| *file == name) {
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
