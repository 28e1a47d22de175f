//! Change tab of a task: its diff, with comments and marks of the reader.

mod diff;
mod files;
mod generated;
mod rows;
mod submit;
mod threads;
mod tree;

use std::collections::{BTreeMap, BTreeSet};

use axum::extract::{Path, Query};
use serde::Deserialize;
use tamma_core::access::Permission;
use tamma_core::format::{format_number, pluralize};
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::review::patch::LineSide;
use tamma_core::rules::{Rules, critical_paths};
use tamma_core::task_loop::TaskLoop;
use tamma_store::{CommentDraft, StoredComment};
use uuid::Uuid;

use self::diff::{FileDiff, mark_fresh_rows, parse_files};
use self::rows::{DiffLayout, RowContext};
use self::threads::{FileThreads, LineKey};
use self::tree::{TreeFile, file_tree};
use super::super::html::SafeHtml;
use super::super::labels::short_hash;
use super::super::layout::{DisplayTime, Layout};
use super::super::session::Session;
use super::super::{PageError, PageResult, WebState, markdown, render};
use super::{TaskPageContext, task_page};
use crate::app::{App, ChangeForReview, Error};

pub(in crate::web) use self::files::{context, file_fragment, image};
pub(in crate::web) use self::submit::{mark_viewed, save_comment};

/// Lines of a file from which its diff is loaded on request.
const LARGE_FILE_ROWS: usize = 500;

/// Lines of a page, about two screens, after which further files are only named. They are loaded on request:
/// by scripts as the reader comes near, otherwise by a link. Files with comments are always there.
const MAX_PAGE_ROWS: usize = 90;

/// Lines that the header of a file counts as: a page is full of files without lines, too.
const HEADER_ROWS: usize = 4;

/// Named files that a browser lays out together, once one of them comes near.
const LATER_GROUP: usize = 20;

/// Lines of a page with all files, after which further ones are loaded on request.
const MAX_ALL_ROWS: usize = 20_000;

/// Size of `.gitattributes` that is read, in bytes.
const MAX_ATTRIBUTES_BYTES: usize = 100_000;

task_page!(ChangePage, "task_change.html", { change: Option<ChangeView> });

struct ChangeView {
    short_commit: String,
    verdict: &'static str,
    /// The end of the patch is missing.
    is_truncated: bool,
    can_comment: bool,
    files: Vec<FileView>,
    tree: SafeHtml,
    added: String,
    removed: String,
    viewed: usize,
    drafts: usize,
    layout: &'static str,
    unified_href: String,
    split_href: String,
    /// Page with the rows of every file; `None` if this one has them.
    all_href: Option<String>,
    since: Option<SinceView>,
    /// The agent ran again after the reader's decision, and changed nothing.
    is_unchanged: bool,
    /// Comments on files that are no longer part of the change.
    elsewhere: Vec<ElsewhereComment>,
}

/// Choice to see only what is new since the reader's last review.
struct SinceView {
    short_commit: String,
    is_on: bool,
    href: String,
    /// Number of files that differ, as text.
    summary: String,
}

struct ElsewhereComment {
    by: String,
    at: DisplayTime,
    path: String,
    html: SafeHtml,
}

/// Files in one place of the page.
struct FileGroup<'a> {
    /// The files are only named.
    is_later: bool,
    files: &'a [FileView],
}

impl ChangeView {
    /// Returns the files in their order. Later files that follow each other are grouped.
    fn groups(&self) -> Vec<FileGroup<'_>> {
        let same = self.files.chunk_by(|one, next| one.is_later() == next.is_later());
        same.flat_map(|files| files.chunks(LATER_GROUP))
            .map(|files| FileGroup {
                is_later: files.first().is_some_and(FileView::is_later),
                files,
            })
            .collect()
    }
}

struct FileView {
    number: usize,
    path: String,
    old_path: Option<String>,
    action: &'static str,
    added: usize,
    removed: usize,
    flags: Vec<FileFlag>,
    digest: String,
    viewed: ViewedMark,
    /// Address of the form of the viewed mark.
    viewed_href: String,
    /// Layout of the page, for the form.
    layout: &'static str,
    comments: usize,
    /// Set if the file is expanded.
    is_open: bool,
    body: FileBody,
    /// Changed lines of the last reviewed version that are gone.
    gone: usize,
}

impl FileView {
    fn is_later(&self) -> bool {
        matches!(self.body, FileBody::Later { .. })
    }
}

/// Label of a file.
struct FileFlag {
    class: &'static str,
    text: &'static str,
}

/// Whether the reader has viewed a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ViewedMark {
    No,
    Yes,
    /// Viewed, and changed since then.
    Changed,
}

enum FileBody {
    Rows(SafeHtml),
    /// The file is only named, and loaded on request: address of its section, address of the page with it,
    /// and number of rows that it will show.
    Later {
        section_href: String,
        page_href: String,
        rows: usize,
    },
    /// The rows are loaded on request: address of the rows, address of the page with them, number of rows,
    /// and number of changed lines as text.
    Lazy {
        rows_href: String,
        page_href: String,
        rows: usize,
        lines: String,
    },
    /// Binary file that is shown as an image, before and after the change.
    Images {
        old: Option<String>,
        new: Option<String>,
    },
    Binary,
    /// Only the name or the mode changed.
    Empty,
}

/// Query parameters of the change tab.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(in crate::web) struct ChangeQuery {
    /// `unified` or `split`.
    view: Option<String>,
    /// Shows every file.
    all: bool,
    /// Number of a file to show although it is large or folded.
    file: Option<usize>,
    /// File and line to comment on, such as `3-n12`.
    comment: Option<String>,
    /// Shows only what is new since the reader's last review.
    since: bool,
    /// Sends the section of a file, with its header, and not its rows alone.
    section: bool,
    /// Start of the commit that the reader's page shows. Files have other numbers in another commit.
    commit: Option<String>,
}

impl ChangeQuery {
    fn layout(&self) -> DiffLayout {
        DiffLayout::from_query(self.view.as_deref())
    }

    /// Returns the file and line of the requested comment form.
    fn open_form(&self) -> Option<(usize, LineKey)> {
        let (file, line) = self.comment.as_deref()?.split_once('-')?;
        let side = match line.chars().next()? {
            'o' => LineSide::Old,
            'n' => LineSide::New,
            _ => return None,
        };
        Some((file.parse().ok()?, (side, line.get(1..)?.parse().ok()?)))
    }
}

/// Returns the parameters of links to the same page.
fn link_query(layout: DiffLayout, since: bool) -> String {
    let since = if since { "&since=true" } else { "" };
    format!("view={}{since}", layout.name())
}

/// Change with everything that its rows need.
struct LoadedChange {
    change: ChangeForReview,
    comments: Vec<StoredComment>,
    drafts: Vec<CommentDraft>,
    viewed: BTreeMap<String, String>,
}

impl LoadedChange {
    async fn load(app: &App, session: &Session, id: TaskId) -> Result<Self, Error> {
        let change = app.change_for_review(id, session.person.as_ref()).await?;
        let comments = app.line_comments(id).await?;
        let (drafts, viewed) = match &session.person {
            Some(person) => {
                (app.store.drafts(id, person).await?, app.store.viewed_files(id, person).await?)
            }
            None => (Vec::new(), BTreeMap::new()),
        };
        Ok(Self { change, comments, drafts, viewed })
    }

    /// Parses the files, and marks what is new since the reader's last review. Returns the number of
    /// lines that are gone, by file.
    fn files(&self) -> (Vec<FileDiff<'_>>, Vec<usize>) {
        let mut files = parse_files(&self.change.patch);
        let Some(earlier) = &self.change.last_reviewed else {
            let none = vec![0; files.len()];
            return (files, none);
        };
        let before = parse_files(&earlier.patch);
        let before: BTreeMap<&str, &FileDiff<'_>> =
            before.iter().map(|file| (file.path.as_str(), file)).collect();
        let gone = files
            .iter_mut()
            .map(|file| {
                let same = before.get(file.path.as_str()).copied();
                mark_fresh_rows(file, same)
            })
            .collect();
        (files, gone)
    }

    /// Returns what the rows of all files of a page have in common.
    fn row_context(
        &self,
        state: &WebState,
        session: &Session,
        (task, project): (Uuid, ProjectId),
        query: &ChangeQuery,
        complete_files: BTreeSet<usize>,
    ) -> RowContext {
        RowContext {
            task,
            csrf: session.csrf_token(),
            layout: query.layout(),
            query: link_query(query.layout(), query.since).replace('&', "&#38;"),
            commit: self.change.commit.to_string(),
            can_comment: session.person.is_some()
                && session.rights.allows(Permission::Work, project),
            can_expand: state.app.read_commit_file.is_some(),
            open_form: query.open_form(),
            only_fresh: query.since && self.change.last_reviewed.is_some(),
            complete_files,
        }
    }
}

pub(in crate::web) async fn page(
    state: WebState,
    session: Session,
    Path(id): Path<Uuid>,
    Query(query): Query<ChangeQuery>,
) -> PageResult {
    let (context, data) = TaskPageContext::load(&state, &session, id, "change").await?;
    let page_error = |error: Error| PageError::new(Layout::for_session(&session), error);
    let loaded = match LoadedChange::load(&state.app, &session, TaskId(id)).await {
        Ok(loaded) => loaded,
        Err(Error::NotFound { .. }) => return render(&ChangePage::new(context, None)),
        Err(error) => return Err(page_error(error)),
    };
    let facts = FileFacts::load(&state.app, &data.task_loop, &loaded.change).await;
    let facts = facts.map_err(page_error)?;
    let (files, gone) = loaded.files();
    let project = data.task_loop.project;
    let about = (project, loaded.change.commit);
    let complete_files =
        files::complete_files(&state.app, about, &files).await.map_err(page_error)?;
    let builder = PageBuilder {
        loaded: &loaded,
        query: &query,
        facts: &facts,
        critical: critical_files(&files, &data.rules),
        rows: loaded.row_context(&state, &session, (id, project), &query, complete_files),
    };
    let change = builder.change(&files, &gone);
    render(&ChangePage::new(context, Some(change)))
}

/// Facts that the labels of files need.
struct FileFacts {
    /// Paths in the plan; empty without one.
    planned: Vec<String>,
    /// Text of `.gitattributes` at the base.
    attributes: String,
}

impl FileFacts {
    async fn load(
        app: &App,
        task_loop: &TaskLoop,
        change: &ChangeForReview,
    ) -> Result<Self, Error> {
        let plan = match &task_loop.plan {
            Some(_) => app.current_plan(task_loop.task).await?.content,
            None => None,
        };
        let planned = plan.map(|plan| plan.file_changes.into_iter().map(|it| it.path).collect());
        let base = change.base.or(task_loop.pin.map(|pin| pin.base));
        let attributes = match base {
            Some(base) => {
                let name = ".gitattributes";
                app.commit_file(task_loop.project, base, name, MAX_ATTRIBUTES_BYTES).await?
            }
            None => None,
        };
        let attributes = attributes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Ok(Self {
            planned: planned.unwrap_or_default(),
            attributes: attributes.unwrap_or_default(),
        })
    }
}

/// Returns the paths that the rules call critical.
fn critical_files<'a>(files: &'a [FileDiff<'_>], rules: &Rules) -> BTreeSet<&'a str> {
    let paths = files.iter().map(|file| file.path.as_str());
    critical_paths(paths, rules).into_iter().collect()
}

/// Builds the view of a change.
struct PageBuilder<'a> {
    loaded: &'a LoadedChange,
    query: &'a ChangeQuery,
    facts: &'a FileFacts,
    /// Paths that the rules call critical.
    critical: BTreeSet<&'a str>,
    rows: RowContext,
}

impl PageBuilder<'_> {
    fn change(&self, files: &[FileDiff<'_>], gone: &[usize]) -> ChangeView {
        let mut shown_rows = 0;
        let mut views: Vec<FileView> = files
            .iter()
            .zip(gone)
            .map(|(file, gone)| self.file(file, *gone, &mut shown_rows))
            .collect();
        let since = self.since(files, gone);
        if self.rows.only_fresh {
            let is_changed = |number: usize| {
                let index = number.saturating_sub(1);
                files.get(index).is_some_and(is_fresh_file)
                    || gone.get(index).is_some_and(|it| *it > 0)
            };
            views.retain(|view| is_changed(view.number));
        }
        let tree: Vec<TreeFile<'_>> = views
            .iter()
            .map(|view| TreeFile {
                number: view.number,
                path: &view.path,
                is_viewed: view.viewed == ViewedMark::Yes,
                comments: view.comments,
            })
            .collect();
        let has_more = views
            .iter()
            .any(|view| matches!(view.body, FileBody::Later { .. } | FileBody::Lazy { .. }));
        let query = link_query(self.rows.layout, self.query.since);
        let sum = |of: fn(&FileDiff<'_>) -> usize| {
            format_number(files.iter().map(of).sum::<usize>() as u64)
        };
        let ChangeForReview { commit, passed, is_truncated, is_unchanged, .. } =
            &self.loaded.change;
        ChangeView {
            short_commit: short_hash(&commit.to_string()),
            verdict: if *passed { "passed review" } else { "did not pass review" },
            is_truncated: *is_truncated,
            can_comment: self.rows.can_comment,
            tree: file_tree(&tree),
            viewed: views.iter().filter(|view| view.viewed == ViewedMark::Yes).count(),
            drafts: self.loaded.drafts.len(),
            files: views,
            added: sum(|file| file.added),
            removed: sum(|file| file.removed),
            layout: self.rows.layout.name(),
            unified_href: format!("?{}", link_query(DiffLayout::Unified, self.query.since)),
            split_href: format!("?{}", link_query(DiffLayout::Split, self.query.since)),
            all_href: (has_more && !self.query.all).then(|| format!("?{query}&all=true")),
            since,
            is_unchanged: *is_unchanged,
            elsewhere: self.elsewhere(files),
        }
    }

    fn since(&self, files: &[FileDiff<'_>], gone: &[usize]) -> Option<SinceView> {
        let earlier = self.loaded.change.last_reviewed.as_ref()?;
        let changed =
            files.iter().zip(gone).filter(|(file, gone)| is_fresh_file(file) || **gone > 0);
        Some(SinceView {
            short_commit: short_hash(&earlier.commit.to_string()),
            is_on: self.rows.only_fresh,
            href: format!("?{}", link_query(self.rows.layout, !self.rows.only_fresh)),
            summary: pluralize(changed.count(), "file"),
        })
    }

    fn file(&self, file: &FileDiff<'_>, gone: usize, shown_rows: &mut usize) -> FileView {
        let digest = file.digest.to_string();
        let viewed = match self.loaded.viewed.get(&file.path) {
            None => ViewedMark::No,
            Some(seen) if *seen == digest => ViewedMark::Yes,
            Some(_) => ViewedMark::Changed,
        };
        let is_critical = self.critical.contains(file.path.as_str());
        // A critical file is not folded, unless a package manager writes it.
        let is_generated = generated::is_generated(file, &self.facts.attributes)
            && (!is_critical || generated::is_lock_file(&file.path));
        let LoadedChange { change, comments, drafts, .. } = self.loaded;
        let threads = FileThreads::new(file, comments, drafts, change.commit);
        let is_requested = (self.query.all && *shown_rows < MAX_ALL_ROWS)
            || self.query.file == Some(file.number)
            || self.rows.open_form.is_some_and(|(number, _)| number == file.number);
        let is_folded = (viewed == ViewedMark::Yes || is_generated) && threads.count() == 0;
        let shows_rows = is_requested || !(is_folded || file.rows.len() > LARGE_FILE_ROWS);
        let rows = if shows_rows { file.rows.len() } else { 0 };
        let is_page_full = *shown_rows > 0 && *shown_rows + HEADER_ROWS + rows > MAX_PAGE_ROWS;
        let body = if is_page_full && !is_requested && threads.count() == 0 {
            // Smaller files after this one are not shown, either.
            *shown_rows = (*shown_rows).max(MAX_PAGE_ROWS);
            self.later_body(file, rows)
        } else {
            *shown_rows += HEADER_ROWS + rows;
            if file.is_binary {
                self.binary_body(file)
            } else if file.rows.is_empty() && threads.count() == 0 {
                FileBody::Empty
            } else if shows_rows {
                FileBody::Rows(rows::file_rows(&self.rows, file, &threads))
            } else {
                self.lazy_body(file)
            }
        };
        let is_planned = self.facts.planned.is_empty() || self.facts.planned.contains(&file.path);
        let flags = [
            (is_critical, FileFlag { class: "flag f-bad", text: "critical" }),
            (!is_planned, FileFlag { class: "flag f-wait", text: "not in the plan" }),
            (is_generated, FileFlag { class: "flag", text: "generated" }),
        ];
        FileView {
            number: file.number,
            path: file.path.clone(),
            old_path: file.old_path.clone(),
            action: file.action,
            added: file.added,
            removed: file.removed,
            flags: flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).collect(),
            digest,
            viewed,
            viewed_href: format!("/tasks/{}/change/viewed", self.rows.task),
            layout: self.rows.layout.name(),
            comments: threads.count(),
            is_open: is_requested || !is_folded,
            body,
            gone,
        }
    }

    /// Returns the address of the rows of a file, and of the page with them.
    fn file_hrefs(&self, number: usize) -> (String, String) {
        let (task, query) = (self.rows.task, link_query(self.rows.layout, self.query.since));
        let commit = short_hash(&self.rows.commit);
        let rows = format!("/tasks/{task}/change/files/{number}?{query}&commit={commit}");
        (rows, format!("?{query}&file={number}#f{number}"))
    }

    fn later_body(&self, file: &FileDiff<'_>, rows: usize) -> FileBody {
        let (rows_href, page_href) = self.file_hrefs(file.number);
        FileBody::Later { section_href: format!("{rows_href}&section=true"), page_href, rows }
    }

    fn lazy_body(&self, file: &FileDiff<'_>) -> FileBody {
        let (rows_href, page_href) = self.file_hrefs(file.number);
        FileBody::Lazy {
            rows_href,
            page_href,
            rows: file.rows.len(),
            lines: pluralize(file.added + file.removed, "changed line"),
        }
    }

    fn binary_body(&self, file: &FileDiff<'_>) -> FileBody {
        if !self.rows.can_expand || !files::is_image_name(&file.path) {
            return FileBody::Binary;
        }
        let (task, number) = (self.rows.task, file.number);
        let href = |side: &str| format!("/tasks/{task}/change/image?file={number}&side={side}");
        FileBody::Images {
            old: (file.action != "new").then(|| href("old")),
            new: (file.action != "deleted").then(|| href("new")),
        }
    }

    /// Returns the comments on files that the change does not have any more.
    fn elsewhere(&self, files: &[FileDiff<'_>]) -> Vec<ElsewhereComment> {
        let is_here = |path: &str| {
            files.iter().any(|file| file.path == path || file.old_path.as_deref() == Some(path))
        };
        let comments = self.loaded.comments.iter().filter(|comment| !is_here(&comment.path));
        comments
            .map(|comment| ElsewhereComment {
                by: comment.person.to_string(),
                at: DisplayTime::absolute(comment.at),
                path: comment.path.clone(),
                html: markdown::to_html(&comment.content),
            })
            .collect()
    }
}

/// Returns `true` if a file has a line that is new since the last review.
fn is_fresh_file(file: &FileDiff<'_>) -> bool {
    file.rows.iter().any(|row| matches!(row, diff::DiffRow::Line(line) if line.is_fresh))
}
