//! Here-documents in command lines.

use tree_sitter::Node;

use super::syntax::{SyntaxPart, SyntaxReader, Unreadable, children};
use super::words::ShellWord;

impl SyntaxReader<'_, '_> {
    /// Reads a here-document and the rest of its line. Returns the words that belong to the command.
    /// The end of the document is found again, because everything after it is commands.
    pub(super) fn heredoc(&mut self, node: Node<'_>) -> Result<Vec<ShellWord>, Unreadable> {
        const NO_END: Unreadable = "a here-document has no clear end";
        let parts = children(node)?;
        let find = |kind: &str| parts.iter().find(|(_, part)| part.kind() == kind);
        let (_, start) = find("heredoc_start").ok_or(NO_END)?;
        let (_, end) = find("heredoc_end").ok_or(NO_END)?;
        let strips_tabs = parts.iter().any(|(_, part)| part.kind() == "<<-");
        let (delimiter, is_quoted) = delimiter(self.text(*start)).ok_or(NO_END)?;

        let line_end = self.source.get(start.end_byte()..).and_then(|rest| rest.find('\n'));
        let body_start = start.end_byte() + line_end.ok_or(NO_END)? + 1;
        let mut at = body_start;
        let mut found = None;
        for line in self.source.get(body_start..).unwrap_or_default().split_inclusive('\n') {
            let content = line.strip_suffix('\n').unwrap_or(line);
            let tabs = content.len() - content.trim_start_matches('\t').len();
            let skip = if strips_tabs { tabs } else { 0 };
            if content.get(skip..) == Some(delimiter) {
                found = Some(at + skip);
                break;
            }
            at += line.len();
        }
        if found != Some(end.start_byte()) || self.text(*end) != delimiter {
            return Err(NO_END);
        }
        let body = self.source.get(body_start..at).unwrap_or_default();
        self.analysis.has_bracket |= body.contains('[');

        let mut words = Vec::new();
        for (field, part) in &parts {
            let is_body = matches!(part.kind(), "heredoc_body" | "heredoc_end");
            if !is_body && part.end_byte() > body_start {
                return Err("the line of a here-document has no clear end");
            }
            match (*field, part.kind()) {
                (_, "<<" | "<<-" | "heredoc_start" | "heredoc_end" | "file_descriptor") => {}
                (_, "heredoc_body") if is_quoted => {}
                (_, "heredoc_body") => self.heredoc_body(*part, body_start, at)?,
                (_, "file_redirect" | "herestring_redirect") => {
                    words.extend(self.redirect(*part)?);
                }
                (Some("argument"), _) => words.push(self.word(*part)?),
                (_, "pipeline") | (Some("right"), _) => self.statement(*part, Vec::new())?,
                _ if matches!(self.text(*part).trim(), "&&" | "||" | "") => {}
                _ => return Err("the command has a syntax that is not known"),
            }
        }
        self.check_heredoc_line(&parts, body_start)?;
        Ok(words)
    }

    /// Checks that the nodes cover the line on which the document is announced.
    fn check_heredoc_line(
        &self,
        parts: &[SyntaxPart<'_>],
        body_start: usize,
    ) -> Result<(), Unreadable> {
        let mut at = None;
        let on_line = parts.iter().map(|(_, part)| part).filter(|it| it.end_byte() <= body_start);
        for part in on_line {
            let gap = at.and_then(|at| self.source.get(at..part.start_byte())).unwrap_or_default();
            if !gap.trim_matches([' ', '\t', '\n']).is_empty() {
                return Err("a part of the command is not understood");
            }
            at = Some(part.end_byte());
        }
        let rest = at.and_then(|at| self.source.get(at..body_start)).unwrap_or("?");
        if rest.trim().is_empty() { Ok(()) } else { Err("a part of the command is not understood") }
    }

    /// Reads the substitutions in a document whose delimiter is not quoted.
    fn heredoc_body(&mut self, node: Node<'_>, from: usize, to: usize) -> Result<(), Unreadable> {
        let mut at = from;
        for (_, part) in children(node)? {
            match part.kind() {
                "heredoc_content" => {}
                "expansion" | "simple_expansion" | "command_substitution" => {
                    self.check_heredoc_text(at, part.start_byte())?;
                    self.word(part)?;
                    at = part.end_byte();
                }
                _ => return Err("a here-document has a form that is not known"),
            }
        }
        self.check_heredoc_text(at, to)
    }

    fn check_heredoc_text(&self, from: usize, to: usize) -> Result<(), Unreadable> {
        let text = self.source.get(from..to).ok_or("a here-document has a gap")?;
        // Escaped characters are literal.
        let text = text.replace("\\\\", "").replace("\\$", "").replace("\\`", "");
        if text.contains('`') || ["$(", "${", "$["].iter().any(|it| text.contains(it)) {
            return Err("a here-document contains an expansion");
        }
        Ok(())
    }
}

/// Returns the delimiter of a document without its quotes, and `true` if it has some.
fn delimiter(text: &str) -> Option<(&str, bool)> {
    let quoted = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    let (name, is_quoted) = match quoted('\'').or_else(|| quoted('"')) {
        Some(name) => (name, true),
        None => text.strip_prefix('\\').map_or((text, false), |name| (name, true)),
    };
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "_-.".contains(it);
    (!name.is_empty() && name.chars().all(is_plain)).then_some((name, is_quoted))
}
