//! Git over HTTP, by `git http-backend`.

use std::path::Path;
use std::process::Stdio;

use axum::body::Body;
use axum::http::{HeaderMap, Method, Uri};
use axum::response::Response;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// Repositories of a fake, with the logins that it accepts.
pub(super) struct GitBackend<'a> {
    /// Folder with the bare repositories.
    pub(super) folder: &'a Path,
    /// Names that go with the token.
    pub(super) users: &'a [&'a str],
    pub(super) token: &'a str,
}

/// Responds to a request of git.
pub(super) async fn serve(
    backend: &GitBackend<'_>,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    body: &[u8],
) -> Response {
    if !backend.is_authorized(headers) {
        let challenge = Response::builder()
            .status(401)
            .header("www-authenticate", "Basic realm=\"Forge\"")
            .body(Body::empty());
        return challenge.unwrap_or_default();
    }
    let answer = run(backend.folder, method, uri, headers, body).await;
    answer.unwrap_or_else(|_| {
        let failed = Response::builder().status(500).body(Body::empty());
        failed.unwrap_or_default()
    })
}

impl GitBackend<'_> {
    /// Accepts the token as the password.
    fn is_authorized(&self, headers: &HeaderMap) -> bool {
        let Some(value) = headers.get("authorization").and_then(|it| it.to_str().ok()) else {
            return false;
        };
        let login = |user: &str| format!("Basic {}", base64(&format!("{user}:{}", self.token)));
        self.users.iter().any(|user| value == login(user))
    }
}

fn base64(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::new();
    for part in text.as_bytes().chunks(3) {
        let byte = |index: usize| u32::from(part.get(index).copied().unwrap_or_default());
        let group = (byte(0) << 16) | (byte(1) << 8) | byte(2);
        for index in 0..4 {
            let digit = usize::try_from((group >> (18 - 6 * index)) & 63).unwrap_or_default();
            let is_padding = index > part.len();
            encoded.push(if is_padding { '=' } else { char::from(DIGITS[digit]) });
        }
    }
    encoded
}

async fn run(
    folder: &Path,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    body: &[u8],
) -> anyhow::Result<Response> {
    let header = |name: &str| {
        headers.get(name).and_then(|it| it.to_str().ok()).unwrap_or_default().to_owned()
    };
    let mut child = Command::new("git")
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", folder)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_PROTOCOL", header("git-protocol"))
        .env("PATH_INFO", uri.path())
        .env("QUERY_STRING", uri.query().unwrap_or_default())
        .env("REQUEST_METHOD", method.as_str())
        .env("CONTENT_TYPE", header("content-type"))
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("REMOTE_USER", "tamma-bot")
        .env("REMOTE_ADDR", "127.0.0.1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let mut input = child.stdin.take();
    let body = body.to_vec();
    let writing = tokio::spawn(async move {
        if let Some(input) = &mut input {
            // Git stops reading when it has seen enough.
            let _ = input.write_all(&body).await;
        }
    });
    let output = child.wait_with_output().await?.stdout;
    writing.await?;
    let end = output.windows(4).position(|it| it == b"\r\n\r\n").unwrap_or_default();
    let mut builder = Response::builder();
    for line in String::from_utf8_lossy(&output[..end]).lines() {
        let Some((name, value)) = line.split_once(": ") else { continue };
        if name.eq_ignore_ascii_case("status") {
            let status = value.split(' ').next().and_then(|it| it.parse::<u16>().ok());
            builder = builder.status(status.unwrap_or(500));
        } else {
            builder = builder.header(name, value);
        }
    }
    Ok(builder.body(Body::from(output[(end + 4).min(output.len())..].to_vec()))?)
}

#[cfg(test)]
mod tests {
    #[test]
    fn logins_are_encoded() {
        for (text, encoded) in [("a:b", "YTpi"), ("ab:c", "YWI6Yw=="), ("ab:cd", "YWI6Y2Q=")] {
            assert_eq!(super::base64(text), encoded);
        }
    }
}
