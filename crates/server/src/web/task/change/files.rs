//! Parts of a change that are loaded on request: files, unchanged lines and images.
//!
//! Content of a repository is hostile. Lines are escaped, and lines that look like secrets are hidden
//! as in the patch. An image is sent only if its first bytes are those of a known format, in a sandbox
//! without scripts.

use std::collections::BTreeSet;

use askama::Template;
use axum::extract::{Path, Query};
use axum::http::{HeaderValue, header};
use axum::response::{Html, IntoResponse as _, Response};
use serde::Deserialize;
use tamma_core::ids::{CommitId, ProjectId, TaskId};
use tamma_core::review::patch::LineSide;
use tamma_core::review::patterns;
use uuid::Uuid;

use super::diff::{FileDiff, parse_files};
use super::rows::{self, DiffLayout};
use super::threads::FileThreads;
use super::{
    ChangeQuery, FileBody, FileFacts, FileView, LoadedChange, PageBuilder, ViewedMark,
    critical_files,
};
use crate::app::{App, Error};
use crate::web::html::SafeHtml;
use crate::web::labels::short_hash;
use crate::web::layout::Layout;
use crate::web::session::Session;
use crate::web::{PageError, PageResult, WebState, render};

/// Maximum size of a file whose lines are shown, in bytes.
const MAX_TEXT_BYTES: usize = 4 * 1024 * 1024;

/// Maximum size of an image, in bytes.
const MAX_IMAGE_BYTES: usize = 5 * 1024 * 1024;

/// Maximum number of files that are read for one page.
const MAX_FILES_READ: usize = 10;

/// Unchanged lines that are sent at once.
const MAX_CONTEXT_LINES: u32 = 500;

/// Policy of an image: nothing in it runs or loads anything.
const IMAGE_POLICY: &str = "default-src 'none'; sandbox";

/// Section of one file.
#[derive(Template)]
#[template(path = "_diff_file.html")]
struct FileSection {
    layout: Layout,
    file: FileView,
}

/// Returns the rows of one file, or its section.
pub(in crate::web) async fn file_fragment(
    state: WebState,
    session: Session,
    Path((id, number)): Path<(Uuid, usize)>,
    Query(query): Query<ChangeQuery>,
) -> PageResult {
    let page_error = |error: Error| PageError::new(Layout::for_session(&session), error);
    let loaded = LoadedChange::load(&state.app, &session, TaskId(id)).await.map_err(page_error)?;
    if let Some(requested) = query.commit.as_deref() {
        check_commit(requested, loaded.change.commit).map_err(page_error)?;
    }
    let task_loop = state.app.task_loop(TaskId(id)).await.map_err(page_error)?;
    let (files, gone) = loaded.files();
    let found = files.iter().zip(&gone).find(|(file, _)| file.number == number);
    let (file, gone) = found.ok_or_else(|| page_error(no_file(number)))?;
    let project = task_loop.project;
    let about = (project, loaded.change.commit);
    let complete_files = complete_files(&state.app, about, std::slice::from_ref(file)).await;
    let complete_files = complete_files.map_err(page_error)?;
    let rows = loaded.row_context(&state, &session, (id, project), &query, complete_files);
    if !query.section {
        let LoadedChange { change, comments, drafts, .. } = &loaded;
        let threads = FileThreads::new(file, comments, drafts, change.commit);
        let rows = rows::file_rows(&rows, file, &threads);
        return Ok(Html(rows.to_string()).into_response());
    }
    let rules = state.app.task_rules(&task_loop).await.map_err(page_error)?;
    let facts = FileFacts::load(&state.app, &task_loop, &loaded.change).await;
    let facts = facts.map_err(page_error)?;
    let builder = PageBuilder {
        loaded: &loaded,
        query: &query,
        facts: &facts,
        critical: critical_files(std::slice::from_ref(file), &rules),
        rows,
    };
    // As the first file of a page, which is never full.
    let file = builder.file(file, *gone, &mut 0);
    render(&FileSection { layout: Layout::for_session(&session), file })
}

/// Fails if the page of the reader shows another commit: its files must not be mixed with these.
fn check_commit(requested: &str, now: CommitId) -> Result<(), Error> {
    let now = now.to_string();
    if now.starts_with(requested) {
        return Ok(());
    }
    let (requested, now) = (short_hash(requested), short_hash(&now));
    Err(Error::Changed { what: "commit", requested, now })
}

/// Returns the numbers of files that end with their last hunk, as far as the patch leaves it open. Only
/// the first files are read.
pub(super) async fn complete_files(
    app: &App,
    (project, commit): (ProjectId, CommitId),
    files: &[FileDiff<'_>],
) -> Result<BTreeSet<usize>, Error> {
    let mut complete = BTreeSet::new();
    let open = files.iter().filter_map(|file| Some((file, rows::following_line(file)?)));
    let open: Vec<(&FileDiff<'_>, u32)> = open.take(MAX_FILES_READ).collect();
    for (file, next) in open {
        let bytes = app.commit_file(project, commit, &file.path, MAX_TEXT_BYTES).await?;
        let lines = bytes.map(|bytes| String::from_utf8_lossy(&bytes).lines().count());
        let next = usize::try_from(next).unwrap_or(usize::MAX);
        if lines.is_some_and(|lines| lines < next) {
            complete.insert(file.number);
        }
    }
    Ok(complete)
}

/// Query parameters of unchanged lines.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::web) struct ContextQuery {
    /// Number of the file.
    file: usize,
    /// First line of the new file.
    from: u32,
    /// Last line of the new file.
    to: u32,
    /// Number of the first line in the old file.
    old: u32,
    view: Option<String>,
    /// Sends the rows alone.
    rows: bool,
}

#[derive(Template)]
#[template(path = "change_context.html")]
struct ContextPage {
    layout: Layout,
    path: String,
    back: String,
    view: &'static str,
    rows: SafeHtml,
}

/// Shows unchanged lines of a file, as rows or as a page of their own.
pub(in crate::web) async fn context(
    state: WebState,
    session: Session,
    Path(id): Path<Uuid>,
    Query(query): Query<ContextQuery>,
) -> PageResult {
    let page_error = |error: Error| PageError::new(Layout::for_session(&session), error);
    let (path, bytes) = read_side(&state, id, query.file, LineSide::New, MAX_TEXT_BYTES)
        .await
        .map_err(page_error)?;
    let text = String::from_utf8_lossy(&bytes);
    let last = query.to.min(query.from.saturating_add(MAX_CONTEXT_LINES - 1));
    let first = query.from.max(1);
    let skip = usize::try_from(first - 1).unwrap_or(usize::MAX);
    let count = usize::try_from(last.saturating_add(1).saturating_sub(first)).unwrap_or_default();
    let lines: Vec<&str> = text.lines().skip(skip).take(count).collect();
    // Only these lines: a large file would take long.
    let shown = patterns::mask_secret_lines(&lines.join("\n"));
    let shown: Vec<&str> = if lines.is_empty() { Vec::new() } else { shown.split('\n').collect() };
    let layout = DiffLayout::from_query(query.view.as_deref());
    let rows = rows::context_rows(layout, &path, (first, query.old), &shown);
    if query.rows {
        return Ok(Html(rows.to_string()).into_response());
    }
    render(&ContextPage {
        layout: Layout::for_session(&session),
        path,
        back: format!("/tasks/{id}/change?view={}#f{}", layout.name(), query.file),
        view: layout.name(),
        rows,
    })
}

/// Query parameters of an image.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::web) struct ImageQuery {
    /// Number of the file.
    file: usize,
    /// `old` or `new`.
    side: LineSide,
}

/// Sends an image of a change.
pub(in crate::web) async fn image(
    state: WebState,
    session: Session,
    Path(id): Path<Uuid>,
    Query(query): Query<ImageQuery>,
) -> PageResult {
    let page_error = |error: Error| PageError::new(Layout::for_session(&session), error);
    let (path, bytes) =
        read_side(&state, id, query.file, query.side, MAX_IMAGE_BYTES).await.map_err(page_error)?;
    let kind = image_type(&bytes).ok_or_else(|| {
        page_error(Error::invalid(
            format!("`{path}` is not an image that pages show."),
            "PNG, JPEG, GIF and WebP are shown. Check the file out to see it.",
        ))
    })?;
    Ok(image_response(kind, bytes))
}

fn image_response(kind: &'static str, bytes: Vec<u8>) -> Response {
    let mut response = bytes.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(IMAGE_POLICY));
    response
}

/// Reads a changed file before or after the change. Returns its path too.
async fn read_side(
    state: &WebState,
    id: Uuid,
    number: usize,
    side: LineSide,
    max_bytes: usize,
) -> Result<(String, Vec<u8>), Error> {
    let task_loop = state.app.task_loop(TaskId(id)).await?;
    let change = state.app.change_for_review(TaskId(id), None).await?;
    let files = parse_files(&change.patch);
    let file = files.iter().find(|file| file.number == number).ok_or_else(|| no_file(number))?;
    let base = change.base.or(task_loop.pin.map(|pin| pin.base));
    let (commit, path): (Option<CommitId>, &str) = match side {
        LineSide::Old => (base, file.old_path.as_deref().unwrap_or(&file.path)),
        LineSide::New => (Some(change.commit), &file.path),
    };
    let bytes = match commit {
        Some(commit) => state.app.commit_file(task_loop.project, commit, path, max_bytes).await?,
        None => None,
    };
    let missing =
        || Error::NotFound { what: "readable file in this change:", key: path.to_owned() };
    Ok((path.to_owned(), bytes.ok_or_else(missing)?))
}

fn no_file(number: usize) -> Error {
    Error::NotFound { what: "file of this change, number", key: number.to_string() }
}

/// Returns `true` if a file has the name of an image that pages show.
pub(super) fn is_image_name(path: &str) -> bool {
    let extension = path.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    ["png", "jpg", "jpeg", "gif", "webp"].contains(&extension.as_str())
}

/// Returns the media type of an image by its first bytes. Formats that can contain scripts, such as
/// SVG, have none.
fn image_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_images_without_scripts_are_sent() {
        assert_eq!(image_type(b"\x89PNG\r\n\x1a\n..."), Some("image/png"));
        assert_eq!(image_type(b"GIF89a..."), Some("image/gif"));
        assert_eq!(image_type(b"RIFF\0\0\0\0WEBPVP8"), Some("image/webp"));
        for hostile in ["<svg onload='alert(1)'/>", "<html>", "", "%PDF-1.7"] {
            assert_eq!(image_type(hostile.as_bytes()), None, "{hostile}");
        }
        let response = image_response("image/png", Vec::new());
        let policy = response.headers()[header::CONTENT_SECURITY_POLICY].to_str().expect("text");
        assert!(policy.contains("sandbox") && policy.contains("default-src 'none'"), "{policy}");
        assert!(is_image_name("a/b.PNG") && !is_image_name("a.svg"));
    }
}
