//! HTML of the lines of a diff.
//!
//! A change has thousands of lines, so they are written directly and not by a template. Everything
//! that a repository or a person wrote goes through [`push_escaped`] or the highlighter.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use tamma_core::format::pluralize;
use tamma_core::review::patch::LineSide;
use tamma_store::StoredComment;
use uuid::Uuid;

use super::diff::{DiffLine, DiffRow, FileDiff, HunkStart, RowKind};
use super::threads::{FileThreads, LineKey, LineThread};
use crate::web::highlight::{Highlighter, Language, push_tokens};
use crate::web::html::{SafeHtml, push_escaped};
use crate::web::labels::short_hash;
use crate::web::layout::DisplayTime;
use crate::web::markdown;

/// Longest line that is shown in full, in characters.
const MAX_LINE_CHARS: usize = 4_000;

/// Unchanged lines that one link shows.
const EXPANDED_LINES: u32 = 100;

/// Layout of a diff.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum DiffLayout {
    #[default]
    Unified,
    Split,
}

impl DiffLayout {
    pub(super) fn from_query(text: Option<&str>) -> Self {
        match text {
            Some("split") => Self::Split,
            _ => Self::Unified,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Unified => "unified",
            Self::Split => "split",
        }
    }

    fn columns(self) -> u8 {
        match self {
            Self::Unified => 3,
            Self::Split => 4,
        }
    }
}

/// Page that rows belong to.
#[derive(Debug, Clone)]
pub(super) struct RowContext {
    pub(super) task: Uuid,
    pub(super) csrf: String,
    pub(super) layout: DiffLayout,
    /// Query of links to this page, without the question mark.
    pub(super) query: String,
    /// Commit of the change, to tell comments on earlier ones.
    pub(super) commit: String,
    pub(super) can_comment: bool,
    /// Set if unchanged lines can be read.
    pub(super) can_expand: bool,
    /// File number and line that a comment form is open for.
    pub(super) open_form: Option<(usize, LineKey)>,
    /// Leaves out hunks without a line that is new since the last review.
    pub(super) only_fresh: bool,
    /// Numbers of files that end with their last hunk although the patch does not show it.
    pub(super) complete_files: BTreeSet<usize>,
}

/// Unchanged lines that git shows after a change. After fewer, the file ends.
const CONTEXT_LINES: usize = 3;

/// Returns the line after the last hunk; `None` if the patch shows that the file ends there.
pub(super) fn following_line(file: &FileDiff<'_>) -> Option<u32> {
    if file.hidden_rows > 0 || ["new", "deleted"].contains(&file.action) {
        return None;
    }
    let lines = || {
        file.rows.iter().rev().filter_map(|row| match row {
            DiffRow::Line(line) => Some(line),
            DiffRow::Hunk(_) | DiffRow::Note(_) => None,
        })
    };
    let context = lines().take_while(|line| line.kind == RowKind::Same).count();
    let last = lines().next().filter(|_| context >= CONTEXT_LINES)?;
    last.new?.checked_add(1)
}

/// Writes the table of a file.
pub(super) fn file_rows(
    context: &RowContext,
    file: &FileDiff<'_>,
    threads: &FileThreads<'_>,
) -> SafeHtml {
    let language = Language::from_path(&file.path);
    let file = file.with_changed_words();
    let mut writer = RowWriter {
        html: String::with_capacity(file.rows.len() * 200),
        context,
        file: &file,
        threads,
        old: Highlighter::new(language),
        new: Highlighter::new(language),
        next_new: 1,
        next_old: 1,
    };
    writer.outdated();
    writer.table();
    SafeHtml::from_escaped(writer.html)
}

struct RowWriter<'a> {
    html: String,
    context: &'a RowContext,
    file: &'a FileDiff<'a>,
    threads: &'a FileThreads<'a>,
    old: Highlighter,
    new: Highlighter,
    /// Next line of the new file after the rows so far.
    next_new: u32,
    /// Next line of the old file after the rows so far.
    next_old: u32,
}

impl RowWriter<'_> {
    fn table(&mut self) {
        let (class, columns) = match self.context.layout {
            DiffLayout::Unified => ("diff", "Old line number, new line number and text"),
            DiffLayout::Split => ("diff split", "Line number and text before and after the change"),
        };
        let _ = write!(self.html, "<table class=\"{class}\" data-file=\"");
        push_escaped(&mut self.html, &self.file.path);
        let _ = write!(self.html, "\"><caption class=\"sr\">{columns}</caption><tbody>");
        let file = self.file;
        let mut at = 0;
        while let Some(row) = file.rows.get(at) {
            at += 1;
            match row {
                DiffRow::Hunk(hunk) => {
                    let lines = file.rows.get(at..).unwrap_or_default();
                    let length = lines.iter().take_while(|row| is_line(row)).count();
                    let lines = lines.get(..length).unwrap_or_default();
                    if self.context.only_fresh && !lines.iter().any(is_fresh) {
                        self.skip(hunk, lines);
                        at += length;
                        continue;
                    }
                    self.hunk(hunk);
                    self.lines(lines);
                    at += length;
                }
                DiffRow::Note(text) => self.note(text),
                DiffRow::Line(_) => {}
            }
        }
        if file.hidden_rows > 0 {
            let count = pluralize(file.hidden_rows, "more line");
            self.note(&format!("{count} not shown. Check the commit out to read the whole file."));
        } else {
            self.end();
        }
        self.html.push_str("</tbody></table>");
    }

    /// Skips a hunk, so that the next one knows where it ended.
    fn skip(&mut self, hunk: &HunkStart<'_>, lines: &[DiffRow<'_>]) {
        let count = |is_counted: fn(&DiffLine<'_>) -> bool| {
            let lines = lines.iter().filter_map(|row| match row {
                DiffRow::Line(line) => Some(line),
                DiffRow::Hunk(_) | DiffRow::Note(_) => None,
            });
            u32::try_from(lines.filter(|line| is_counted(line)).count()).unwrap_or(u32::MAX)
        };
        self.next_old = hunk.old.saturating_add(count(|line| line.old.is_some()));
        self.next_new = hunk.new.saturating_add(count(|line| line.new.is_some()));
    }

    /// Writes the header of a hunk, with a link to the unchanged lines before it.
    fn hunk(&mut self, hunk: &HunkStart<'_>) {
        let columns = self.context.layout.columns();
        let _ = write!(self.html, "<tr class=\"hunk\"><td colspan=\"{columns}\">");
        let first = self.next_new.max(hunk.new.saturating_sub(EXPANDED_LINES));
        if self.context.can_expand && first < hunk.new {
            let (last, count) = (hunk.new - 1, hunk.new - first);
            let old = hunk.old.saturating_sub(count);
            let noun = if count == 1 { "line" } else { "lines" };
            let text = format!("Show {count} unchanged {noun}");
            self.expand_link((first, last), old, Some(self.next_new), &text);
        }
        let _ = write!(self.html, "<span class=\"hunk-at\">Line {}</span> ", hunk.new);
        push_escaped(&mut self.html, hunk.heading);
        self.html.push_str("</td></tr>");
        let language = Language::from_path(&self.file.path);
        (self.old, self.new) = (Highlighter::new(language), Highlighter::new(language));
        (self.next_old, self.next_new) = (hunk.old, hunk.new);
    }

    fn note(&mut self, text: &str) {
        let columns = self.context.layout.columns();
        let _ = write!(self.html, "<tr class=\"hunk\"><td colspan=\"{columns}\">");
        push_escaped(&mut self.html, text);
        self.html.push_str("</td></tr>");
    }

    /// Writes the link to the lines after the last hunk, if there are any.
    fn end(&mut self) {
        let has_more = following_line(self.file).is_some()
            && !self.context.complete_files.contains(&self.file.number);
        if !(self.context.can_expand && has_more) {
            return;
        }
        let columns = self.context.layout.columns();
        let _ = write!(self.html, "<tr class=\"hunk\"><td colspan=\"{columns}\">");
        let lines = (self.next_new, self.next_new.saturating_add(EXPANDED_LINES - 1));
        self.expand_link(lines, self.next_old, None, "Show following lines");
        self.html.push_str("</td></tr>");
    }

    /// Writes a link to unchanged lines. `min` is the first line that an earlier hunk does not show, for
    /// lines above a hunk.
    fn expand_link(&mut self, (first, last): (u32, u32), old: u32, min: Option<u32>, text: &str) {
        let (task, number) = (self.context.task, self.file.number);
        let view = self.context.layout.name();
        let _ = write!(
            self.html,
            "<a class=\"xp\" data-xp=\"{}\" href=\"/tasks/{task}/change/context?file={number}\
             &#38;from={first}&#38;to={last}&#38;old={old}&#38;view={view}\">{text}</a> ",
            min.map(|min| min.to_string()).unwrap_or_default()
        );
    }

    fn lines(&mut self, rows: &[DiffRow<'_>]) {
        match self.context.layout {
            DiffLayout::Unified => {
                for row in rows {
                    if let DiffRow::Line(line) = row {
                        self.unified_line(line);
                    }
                }
            }
            DiffLayout::Split => self.split_lines(rows),
        }
    }

    fn unified_line(&mut self, line: &DiffLine<'_>) {
        let (id, fresh) = (self.row_id(line), if line.is_fresh { " fresh" } else { "" });
        let _ = write!(self.html, "<tr class=\"{}{fresh}\" id=\"{id}\">", line.kind.class());
        self.number_cell(line, LineSide::Old, &id, "");
        self.number_cell(line, LineSide::New, &id, "");
        let _ =
            write!(self.html, "<td class=\"ln\"><span class=\"sign\">{}</span>", line.kind.sign());
        self.code(line);
        self.html.push_str("</td></tr>");
        self.threads_of(line);
    }

    /// Writes removed lines beside the added ones that replace them.
    fn split_lines(&mut self, rows: &[DiffRow<'_>]) {
        let lines: Vec<&DiffLine<'_>> = rows
            .iter()
            .filter_map(|row| match row {
                DiffRow::Line(line) => Some(line),
                DiffRow::Hunk(_) | DiffRow::Note(_) => None,
            })
            .collect();
        let mut at = 0;
        while let Some(line) = lines.get(at).copied() {
            if line.kind == RowKind::Same {
                self.split_row(Some(line), Some(line));
                at += 1;
                continue;
            }
            let run = |from: usize, kind: RowKind| {
                lines.iter().skip(from).take_while(|line| line.kind == kind).count()
            };
            let removed = run(at, RowKind::Removed);
            let added = run(at + removed, RowKind::Added);
            for pair in 0..removed.max(added) {
                let left = lines.get(at + pair).copied().filter(|_| pair < removed);
                let right = lines.get(at + removed + pair).copied().filter(|_| pair < added);
                self.split_row(left, right);
            }
            at += removed + added;
        }
    }

    fn split_row(&mut self, left: Option<&DiffLine<'_>>, right: Option<&DiffLine<'_>>) {
        let id = right.or(left).map(|line| self.row_id(line)).unwrap_or_default();
        let is_fresh = left.or(right).is_some_and(|line| line.is_fresh)
            || right.is_some_and(|line| line.is_fresh);
        let fresh = if is_fresh { " class=\"fresh\"" } else { "" };
        let _ = write!(self.html, "<tr{fresh} id=\"{id}\">");
        let is_same = left.is_some_and(|line| line.kind == RowKind::Same);
        for (side, line) in [(LineSide::Old, left), (LineSide::New, right)] {
            let Some(line) = line else {
                self.html.push_str("<td class=\"no gap\"></td><td class=\"ln gap\"></td>");
                continue;
            };
            let class = line.kind.class();
            let own_id = self.row_id(line);
            self.number_cell(line, side, &own_id, class);
            // The row has the ID of its right side; a removed line beside an added one needs its own.
            if own_id == id {
                let _ = write!(self.html, "<td class=\"ln {class}\">");
            } else {
                let _ = write!(self.html, "<td class=\"ln {class}\" id=\"{own_id}\">");
            }
            if is_same && side == LineSide::Old {
                // The right side is the same line, and moves the highlighter on.
                let (text, _) = cut_text(line.text);
                let tokens = self.new.clone().line(text);
                push_tokens(&mut self.html, text, &tokens, &[]);
            } else {
                self.code(line);
            }
            self.html.push_str("</td>");
        }
        self.html.push_str("</tr>");
        for line in [left.filter(|_| !is_same), right].into_iter().flatten() {
            self.threads_of(line);
        }
    }

    /// Returns the ID of a row: of its line after the change, or before it if it was removed.
    fn row_id(&self, line: &DiffLine<'_>) -> String {
        let file = self.file.number;
        match (line.new, line.old) {
            (Some(number), _) => format!("f{file}L{number}"),
            (None, Some(number)) => format!("f{file}O{number}"),
            (None, None) => format!("f{file}"),
        }
    }

    /// Writes a line number. That of the side which can be commented on is a link.
    fn number_cell(&mut self, line: &DiffLine<'_>, side: LineSide, id: &str, class: &str) {
        let (number, letter) = match side {
            LineSide::Old => (line.old, 'o'),
            LineSide::New => (line.new, 'n'),
        };
        let space = if class.is_empty() { "" } else { " " };
        let _ = write!(self.html, "<td class=\"no{space}{class}\">");
        if let Some(number) = number {
            let is_own_side = match side {
                LineSide::Old => line.kind == RowKind::Removed,
                LineSide::New => true,
            };
            if !is_own_side {
                let _ = write!(self.html, "{number}");
            } else if self.context.can_comment {
                let (file, query) = (self.file.number, &self.context.query);
                let _ = write!(
                    self.html,
                    "<a href=\"?{query}&#38;comment={file}-{letter}{number}#{id}\" \
                     data-at=\"{letter}{number}\" tabindex=\"-1\" title=\"Comment on this line\">\
                     {number}</a>"
                );
            } else {
                let _ = write!(self.html, "<a href=\"#{id}\" tabindex=\"-1\">{number}</a>");
            }
        }
        self.html.push_str("</td>");
    }

    /// Writes the text of a line, and counts it.
    fn code(&mut self, line: &DiffLine<'_>) {
        let (text, rest) = cut_text(line.text);
        let tokens = match line.kind {
            RowKind::Removed => self.old.line(text),
            RowKind::Added => self.new.line(text),
            RowKind::Same => {
                let tokens = self.new.line(text);
                self.old = self.new.clone();
                tokens
            }
        };
        push_tokens(&mut self.html, text, &tokens, &line.marks);
        if rest > 0 {
            let _ = write!(self.html, "<span class=\"cut\"> … {rest} more characters</span>");
        }
        if let Some(number) = line.old {
            self.next_old = number.saturating_add(1);
        }
        if let Some(number) = line.new {
            self.next_new = number.saturating_add(1);
        }
    }

    /// Writes the threads of a line, and the open comment form.
    fn threads_of(&mut self, line: &DiffLine<'_>) {
        let threads = self.threads;
        let keys = [line.old.map(|it| (LineSide::Old, it)), line.new.map(|it| (LineSide::New, it))];
        let own = match line.kind {
            RowKind::Removed => keys[0],
            RowKind::Added | RowKind::Same => keys[1],
        };
        let none = LineThread::default();
        for key in keys.into_iter().flatten() {
            let thread = threads.by_line.get(&key);
            let is_open =
                own == Some(key) && self.context.open_form == Some((self.file.number, key));
            if thread.is_some() || is_open {
                self.thread(key, thread.unwrap_or(&none), is_open);
            }
        }
    }

    fn thread(&mut self, (side, number): LineKey, thread: &LineThread<'_>, is_open: bool) {
        let letter = side_letter(side);
        let columns = self.context.layout.columns();
        let _ = write!(
            self.html,
            "<tr class=\"cm\" data-thread=\"{letter}{number}\"><td colspan=\"{columns}\">"
        );
        for comment in &thread.comments {
            self.comment(comment);
        }
        let can_comment = self.context.can_comment;
        if can_comment && (is_open || thread.draft.is_some()) {
            self.form((side, number), thread.draft.unwrap_or_default());
        } else if can_comment {
            let (file, query) = (self.file.number, &self.context.query);
            let _ = write!(
                self.html,
                "<p class=\"small\"><a href=\"?{query}&#38;comment={file}-{letter}{number}\
                 #f{file}{}{number}\" data-reply=\"{letter}{number}\">Reply</a></p>",
                if side == LineSide::Old { 'O' } else { 'L' }
            );
        } else if let Some(draft) = thread.draft {
            self.html.push_str("<p class=\"small dim\">Your draft (not sent)</p>");
            self.html.push_str(&markdown::to_html(draft).to_string());
        }
        self.html.push_str("</td></tr>");
    }

    fn comment(&mut self, comment: &StoredComment) {
        let at = DisplayTime::absolute(comment.at);
        self.html.push_str("<div class=\"cmt\"><p class=\"small\"><b>");
        push_escaped(&mut self.html, comment.person.as_str());
        let _ = write!(
            self.html,
            "</b> <time class=\"dim\" datetime=\"{}\" data-at>{}</time>",
            at.iso, at.text
        );
        let commit = comment.commit.to_string();
        if commit != self.context.commit {
            let short = short_hash(&commit);
            let _ = write!(self.html, " <span class=\"dim\">on commit <code>{short}</code></span>");
        }
        self.html.push_str("</p><div class=\"prose\">");
        self.html.push_str(&markdown::to_html(&comment.content).to_string());
        self.html.push_str("</div></div>");
    }

    /// Writes the form of a draft.
    fn form(&mut self, (side, number): LineKey, text: &str) {
        let context = self.context;
        let (task, letter) = (context.task, side_letter(side));
        let row = if side == LineSide::Old { 'O' } else { 'L' };
        let _ = write!(
            self.html,
            "<form method=\"post\" action=\"/tasks/{task}/change/comments\" class=\"draft\">\
             <input type=\"hidden\" name=\"csrf\" value=\"{}\">\
             <input type=\"hidden\" name=\"side\" value=\"{side}\">\
             <input type=\"hidden\" name=\"line\" value=\"{number}\">\
             <input type=\"hidden\" name=\"view\" value=\"{}\">\
             <input type=\"hidden\" name=\"anchor\" value=\"f{}{row}{number}\">\
             <input type=\"hidden\" name=\"file\" value=\"",
            context.csrf,
            context.layout.name(),
            self.file.number,
        );
        push_escaped(&mut self.html, &self.file.path);
        let before = if side == LineSide::Old { " before the change" } else { "" };
        let _ = write!(
            self.html,
            "\"><label class=\"field\"><span>Comment on line {number}{before}</span>\
             <textarea name=\"text\" rows=\"3\" data-draft=\"{letter}{number}\">"
        );
        // The first line break after the tag is not part of the text.
        self.html.push('\n');
        push_escaped(&mut self.html, text);
        self.html.push_str(
            "</textarea></label><p class=\"do\">\
             <button class=\"btn\" name=\"how\" value=\"draft\">Save draft</button> \
             <button class=\"btn quiet\" name=\"how\" value=\"post\">Post now</button> \
             <button class=\"link\" name=\"how\" value=\"remove\">Remove</button> \
             <span class=\"small dim\" role=\"status\">Drafts are sent with your decision. Only you \
             see them.</span></p></form>",
        );
    }

    /// Writes the comments on lines that the diff does not show.
    fn outdated(&mut self) {
        let threads = self.threads;
        if threads.outdated.is_empty() && threads.outdated_drafts.is_empty() {
            return;
        }
        self.html.push_str("<div class=\"outdated\"><p class=\"small dim\">On earlier lines</p>");
        for comment in &threads.outdated {
            if !comment.code.is_empty() {
                self.html.push_str("<pre class=\"out\">");
                push_escaped(&mut self.html, &comment.code);
                self.html.push_str("</pre>");
            }
            self.comment(comment);
        }
        for draft in &threads.outdated_drafts {
            self.form((draft.side, draft.line), &draft.content);
        }
        self.html.push_str("</div>");
    }
}

/// Writes unchanged lines around the hunks of a file. `lines` start at number `first` of the new file
/// and `old` of the old one.
pub(super) fn context_rows(
    layout: DiffLayout,
    path: &str,
    (first, old): (u32, u32),
    lines: &[&str],
) -> SafeHtml {
    let mut highlighter = Highlighter::new(Language::from_path(path));
    let mut html = String::new();
    for (index, line) in (0_u32..).zip(lines) {
        let (new, old) = (first.saturating_add(index), old.saturating_add(index));
        let (line, _) = cut_text(line);
        let tokens = highlighter.line(line);
        match layout {
            DiffLayout::Unified => {
                let _ = write!(
                    html,
                    "<tr class=\"d-same xrow\"><td class=\"no\">{old}</td><td class=\"no\">{new}</td>\
                     <td class=\"ln\"><span class=\"sign\"> </span>"
                );
                push_tokens(&mut html, line, &tokens, &[]);
                html.push_str("</td></tr>");
            }
            DiffLayout::Split => {
                html.push_str("<tr class=\"xrow\">");
                for number in [old, new] {
                    let _ = write!(html, "<td class=\"no\">{number}</td><td class=\"ln\">");
                    push_tokens(&mut html, line, &tokens, &[]);
                    html.push_str("</td>");
                }
                html.push_str("</tr>");
            }
        }
    }
    SafeHtml::from_escaped(html)
}

/// Returns the start of a long line, and the number of characters that are left out.
fn cut_text(text: &str) -> (&str, usize) {
    match text.char_indices().nth(MAX_LINE_CHARS) {
        Some((at, _)) => {
            let (start, rest) = text.split_at_checked(at).unwrap_or((text, ""));
            (start, rest.chars().count())
        }
        None => (text, 0),
    }
}

fn side_letter(side: LineSide) -> char {
    match side {
        LineSide::Old => 'o',
        LineSide::New => 'n',
    }
}

fn is_line(row: &DiffRow<'_>) -> bool {
    matches!(row, DiffRow::Line(_))
}

fn is_fresh(row: &DiffRow<'_>) -> bool {
    matches!(row, DiffRow::Line(line) if line.is_fresh)
}

#[cfg(test)]
mod tests {
    use super::super::diff::parse_files;
    use super::*;

    const PATCH: &str = "--- a/a.rs\n+++ b/a.rs\n@@ -10,5 +10,5 @@ fn <b>()\n same\n\
                         -let a = \"<i>\";\n+let b = \"<i>\";\n same\n same\n same\n";

    fn context(layout: DiffLayout) -> RowContext {
        RowContext {
            task: Uuid::nil(),
            csrf: "secret".to_owned(),
            layout,
            query: "view=unified".to_owned(),
            commit: "a".repeat(40),
            can_comment: true,
            can_expand: true,
            open_form: Some((1, (LineSide::Old, 11))),
            only_fresh: false,
            complete_files: BTreeSet::new(),
        }
    }

    #[test]
    fn following_lines_are_offered_if_the_file_goes_on() {
        let html = |patch: &str, complete_files: BTreeSet<usize>| {
            let context = RowContext { complete_files, ..context(DiffLayout::Unified) };
            file_rows(&context, &parse_files(patch)[0], &FileThreads::default()).to_string()
        };
        assert!(html(PATCH, BTreeSet::new()).contains("Show following lines"));
        // The file was read: it ends with the hunk.
        assert!(!html(PATCH, BTreeSet::from([1])).contains("following lines"));
        // Git shows three unchanged lines, unless the file has fewer.
        let short = PATCH.replace("10,5", "10,4").replacen(" same\n same\n", " same\n", 1);
        assert!(!html(&short, BTreeSet::new()).contains("following lines"), "{short}");
        let at_end = "--- a/a\n+++ b/a\n@@ -3,1 +3,2 @@\n same\n+new\n";
        assert!(!html(at_end, BTreeSet::new()).contains("following lines"));
    }

    #[test]
    fn both_layouts_show_every_line_escaped_and_removed_lines_can_be_commented_on() {
        let files = parse_files(PATCH);
        for layout in [DiffLayout::Unified, DiffLayout::Split] {
            let threads = FileThreads::default();
            let html = file_rows(&context(layout), &files[0], &threads).to_string();
            assert!(!html.contains("<i>") && !html.contains("<b>()"), "{html}");
            assert!(html.contains("&#34;&#60;i&#62;&#34;") && html.contains("fn &#60;b&#62;()"));
            // The words that differ.
            assert!(html.contains("<span class=\"w\">a</span>"), "{html}");
            assert!(html.contains("<span class=\"w\">b</span>"), "{html}");
            // A removed line has a link and, as requested, a form.
            assert!(html.contains("data-at=\"o11\"") && html.contains("data-at=\"n11\""), "{html}");
            assert!(html.contains("Comment on line 11 before the change"), "{html}");
            assert!(html.contains("name=\"side\" value=\"old\""), "{html}");
            // Lines around the hunk.
            assert!(html.contains("from=1&#38;to=9&#38;old=1"), "{html}");
            assert!(html.contains("from=15&#38;to=114&#38;old=15"), "{html}");
        }
    }

    #[test]
    fn without_permission_there_is_no_form() {
        let files = parse_files(PATCH);
        let context = RowContext { can_comment: false, ..context(DiffLayout::Unified) };
        let html = file_rows(&context, &files[0], &FileThreads::default()).to_string();
        assert!(!html.contains("<form") && !html.contains("comment="), "{html}");
    }

    #[test]
    fn a_file_with_too_many_lines_is_cut() {
        let patch = format!("--- a/a\n+++ b/a\n@@ -0,0 +1,20005 @@\n{}", "+x\n".repeat(20_005));
        let files = parse_files(&patch);
        assert_eq!((files[0].added, files[0].rows.len()), (20_005, 20_000));
        let html = file_rows(&context(DiffLayout::Unified), &files[0], &FileThreads::default())
            .to_string();
        // The header of the hunk is a row, too.
        assert!(html.contains("6 more lines not shown") && !html.contains("id=\"f1L20000\""));
        assert!(html.contains("id=\"f1L19999\"") && !html.contains("following lines"));
    }

    #[test]
    fn a_long_line_is_cut() {
        let patch = format!("--- a/a\n+++ b/a\n@@ -0,0 +1 @@\n+{}\n", "x".repeat(5_000));
        let files = parse_files(&patch);
        let html = file_rows(&context(DiffLayout::Unified), &files[0], &FileThreads::default())
            .to_string();
        assert!(html.contains("1000 more characters") && html.len() < 6_000, "{}", html.len());
    }
}
