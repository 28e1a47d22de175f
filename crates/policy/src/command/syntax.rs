//! Walk over the syntax tree of a command line.
//!
//! The walk accepts the node kinds that it names, and the text between the nodes must be blank.
//! Everything else makes the line unreadable.

use tree_sitter::{Node, Parser};

use super::words::ShellWord;
use super::{LineAnalysis, is_number};

/// Maximum length of a readable text, in bytes.
const MAX_BYTES: usize = 256 * 1024;

/// Maximum depth of the syntax tree.
const MAX_NESTING: usize = 100;

/// Maximum number of steps of the parser, in hundreds. Ambiguous texts take many.
const MAX_PARSE_STEPS: usize = 50_000;

/// Reason for which a text cannot be read.
pub(super) type Unreadable = &'static str;

/// Child of a node, with the name of its field.
pub(super) type SyntaxPart<'tree> = (Option<&'tree str>, Node<'tree>);

/// Reads a text and adds its commands to the analysis.
pub(super) fn read(
    analysis: &mut LineAnalysis,
    text: &str,
    depth: usize,
) -> Result<(), Unreadable> {
    let depth = depth.checked_sub(1).ok_or("commands are nested too deeply")?;
    if text.len() > MAX_BYTES {
        return Err("the command is too long");
    }
    if text.chars().any(|it| it.is_control() && it != '\n' && it != '\t') {
        return Err("the command contains control characters");
    }
    let mut parser = Parser::new();
    parser
        .set_language(&tree_sitter_bash::LANGUAGE.into())
        .map_err(|_| "the grammar of the shell is not available")?;
    let mut steps = 0_usize;
    let mut count = |_: &tree_sitter::ParseState| {
        steps += 1;
        if steps > MAX_PARSE_STEPS {
            std::ops::ControlFlow::Break(())
        } else {
            std::ops::ControlFlow::Continue(())
        }
    };
    let options = tree_sitter::ParseOptions::new().progress_callback(&mut count);
    let bytes = text.as_bytes();
    let tree = parser
        .parse_with_options(&mut |at, _| bytes.get(at..).unwrap_or_default(), None, Some(options))
        .ok_or("the command takes too long to parse")?;
    if tree.root_node().has_error() {
        return Err("the command has a syntax that is not known");
    }
    let root = tree.root_node().byte_range();
    let around = [text.get(..root.start), text.get(root.end..)];
    if !around.into_iter().all(|it| it.is_some_and(|it| is_blank(it, true))) {
        return Err("a part of the command is not understood");
    }
    let mut reader = SyntaxReader { analysis, source: text, depth, nesting: 0, substitutions: 0 };
    reader.statement(tree.root_node(), Vec::new())
}

/// Reader of one syntax tree.
pub(super) struct SyntaxReader<'a, 's> {
    pub(super) analysis: &'a mut LineAnalysis,
    pub(super) source: &'s str,
    depth: usize,
    nesting: usize,
    /// Number of substitutions around the current node.
    substitutions: usize,
}

impl<'s> SyntaxReader<'_, 's> {
    pub(super) fn text(&self, node: Node<'_>) -> &'s str {
        self.source.get(node.byte_range()).unwrap_or_default()
    }

    /// Runs a step one level deeper in the tree.
    pub(super) fn nested<T>(
        &mut self,
        step: impl FnOnce(&mut Self) -> Result<T, Unreadable>,
    ) -> Result<T, Unreadable> {
        self.nesting += 1;
        if self.nesting > MAX_NESTING {
            return Err("the command is nested too deeply");
        }
        let result = step(self);
        self.nesting -= 1;
        result
    }

    /// Returns the children of a node with only white space between them.
    pub(super) fn parts<'tree>(
        &self,
        node: Node<'tree>,
        allow_newlines: bool,
    ) -> Result<Vec<SyntaxPart<'tree>>, Unreadable> {
        let children = children(node)?;
        let mut at = node.start_byte();
        let ends = children.iter().map(|(_, child)| (child.start_byte(), child.end_byte()));
        for (start, end) in ends.chain([(node.end_byte(), node.end_byte())]) {
            let gap = self.source.get(at..start).unwrap_or("?");
            if !is_blank(gap, allow_newlines) {
                return Err("a part of the command is not understood");
            }
            at = end;
        }
        Ok(children)
    }

    /// Reads a statement. `extra` contains words that the grammar separates from the command.
    pub(super) fn statement(
        &mut self,
        node: Node<'_>,
        extra: Vec<ShellWord>,
    ) -> Result<(), Unreadable> {
        self.nested(|reader| match node.kind() {
            "command" => reader.command(node, extra),
            "redirected_statement" => reader.redirected(node, extra),
            "list" | "pipeline" => reader.container(node, extra),
            _ if !extra.is_empty() => Err("words follow a redirection"),
            "program" | "subshell" | "do_group" | "if_statement" | "while_statement"
            | "elif_clause" | "else_clause" | "negated_command" => reader.container(node, extra),
            "compound_statement" => match node.child(0) {
                Some(first) if first.kind() == "((" => reader.arithmetic(node),
                _ => reader.container(node, extra),
            },
            "comment" => reader.comment(node),
            "variable_assignment" => reader.assignment(node),
            "variable_assignments" => reader
                .parts(node, false)?
                .into_iter()
                .try_for_each(|(_, part)| reader.assignment(part)),
            "declaration_command" | "unset_command" => reader.declaration(node),
            "test_command" => reader.test(node),
            "for_statement" => reader.for_statement(node),
            "c_style_for_statement" => reader.c_style_for(node),
            "case_statement" | "case_item" => reader.case(node),
            "function_definition" => reader.function(node),
            _ => Err("the command has a syntax that is not known"),
        })
    }

    /// Reads the statements in a node.
    fn container(&mut self, node: Node<'_>, extra: Vec<ShellWord>) -> Result<(), Unreadable> {
        let parts = self.parts(node, true)?;
        let last = parts.iter().rposition(|(_, part)| part.is_named());
        let mut extra = Some(extra);
        for (at, (_, part)) in parts.into_iter().enumerate() {
            if part.is_named() {
                let words = if Some(at) == last { extra.take() } else { None };
                self.statement(part, words.unwrap_or_default())?;
            } else if !is_separator(self.text(part)) {
                return Err("the command has a syntax that is not known");
            }
        }
        Ok(())
    }

    fn comment(&self, node: Node<'_>) -> Result<(), Unreadable> {
        let before = self.source.get(..node.start_byte()).and_then(|it| it.chars().next_back());
        let starts_word = before.is_none_or(|it| it.is_whitespace() || ";&|()".contains(it));
        // Shells disagree about the end of a substitution that contains a comment.
        let is_clear = self.substitutions == 0 || !self.text(node).contains([')', '`']);
        if starts_word && is_clear { Ok(()) } else { Err("a comment is not understood") }
    }

    /// Reads a command with its assignments and redirections.
    fn command(&mut self, node: Node<'_>, extra: Vec<ShellWord>) -> Result<(), Unreadable> {
        let (mut words, mut late) = (Vec::new(), Vec::new());
        let mut previous: Option<Node<'_>> = None;
        for (field, part) in self.parts(node, false)? {
            let is_redirect = part.kind().ends_with("_redirect");
            if let Some(previous) = previous
                && !is_redirect
                && !self.is_separated(previous, part)
            {
                return Err("two words are not separated");
            }
            previous = Some(part);
            match (field, part.kind()) {
                (_, "variable_assignment") => self.assignment(part)?,
                (_, "file_redirect" | "herestring_redirect") => late.extend(self.redirect(part)?),
                (_, "command_name") => match self.parts(part, false)?.as_slice() {
                    [(_, name)] => words.push(self.word(*name)?),
                    _ => return Err("a program has a name that is not known"),
                },
                (Some("argument"), "regex") => {
                    super::words::check_literal(self.text(part))?;
                    words.push(ShellWord::literal(self.text(part)));
                }
                (Some("argument"), _) => words.push(self.word(part)?),
                _ => return Err("the command has a syntax that is not known"),
            }
        }
        words.extend(late);
        words.extend(extra);
        self.analysis.run(&words, self.depth);
        Ok(())
    }

    fn is_separated(&self, one: Node<'_>, other: Node<'_>) -> bool {
        self.source
            .get(one.end_byte()..other.start_byte())
            .is_some_and(|gap| gap.contains([' ', '\t']))
    }

    /// Reads a statement with redirections after it.
    fn redirected(&mut self, node: Node<'_>, extra: Vec<ShellWord>) -> Result<(), Unreadable> {
        let (mut body, mut words) = (None, Vec::new());
        let mut at = node.start_byte();
        for (field, part) in children(node)? {
            let gap = self.source.get(at..part.start_byte()).unwrap_or("?");
            at = part.end_byte();
            // The grammar drops the argument `-` before a here-document.
            if gap.trim_matches([' ', '\t']) == "-" && gap.starts_with([' ', '\t']) {
                words.push(ShellWord::literal("-"));
            } else if !is_blank(gap, false) {
                return Err("a part of the command is not understood");
            }
            match (field, part.kind()) {
                (Some("body"), _) => body = Some(part),
                (_, "file_redirect" | "herestring_redirect") => {
                    words.extend(self.redirect(part)?);
                }
                (_, "heredoc_redirect") => words.extend(self.heredoc(part)?),
                _ => return Err("the command has a syntax that is not known"),
            }
        }
        if at != node.end_byte() {
            return Err("a part of the command is not understood");
        }
        words.extend(extra);
        match body {
            Some(body) => self.statement(body, words),
            None if words.is_empty() => Ok(()),
            None => Err("words follow a redirection"),
        }
    }

    /// Reads a redirection. Returns the words after it, which belong to the command.
    pub(super) fn redirect(&mut self, node: Node<'_>) -> Result<Vec<ShellWord>, Unreadable> {
        let (mut operator, mut words) = ("", Vec::new());
        let mut previous: Option<Node<'_>> = None;
        for (_, part) in self.parts(node, false)? {
            if part.kind() == "file_descriptor" {
                continue;
            }
            if !part.is_named() && operator.is_empty() {
                operator = self.text(part).trim();
                continue;
            }
            if previous.is_some_and(|previous| !self.is_separated(previous, part)) {
                return Err("two words are not separated");
            }
            previous = Some(part);
            words.push(self.word(part)?);
        }
        let has_target = !matches!(operator, "<&-" | ">&-");
        if has_target && words.is_empty() {
            return Err("a redirection has no target");
        }
        let rest = words.split_off(usize::from(has_target));
        let duplicates = |word: &ShellWord| {
            word.text == "-" || is_number(word.text.strip_suffix('-').unwrap_or(&word.text))
        };
        match (operator, words.first()) {
            (">" | ">>" | ">|" | "&>" | "&>>", Some(file)) => self.analysis.push_output(file),
            (">&", Some(file)) if !duplicates(file) => self.analysis.push_output(file),
            (">&" | "<" | "<&" | "<<<" | "<&-" | ">&-", _) => {}
            _ => return Err("a redirection has a form that is not known"),
        }
        Ok(rest)
    }

    fn assignment(&mut self, node: Node<'_>) -> Result<(), Unreadable> {
        let (mut name, mut value) = ("", ShellWord::default());
        for (field, part) in self.parts(node, false)? {
            match (field, part.kind()) {
                (_, "=" | "+=") => {}
                (Some("name"), "variable_name") => name = self.text(part),
                (Some("name"), "subscript") => self.arithmetic(part)?,
                (Some("value"), "array") => {
                    for (_, item) in self.parts(part, true)? {
                        if item.is_named() {
                            self.statement_word(item)?;
                        }
                    }
                }
                (Some("value"), _) => value = self.word(part)?,
                _ => return Err("an assignment has a form that is not known"),
            }
        }
        self.analysis.check_variable(name, &value, self.depth);
        Ok(())
    }

    /// Reads a word or a comment between words.
    fn statement_word(&mut self, node: Node<'_>) -> Result<(), Unreadable> {
        if node.kind() == "comment" { self.comment(node) } else { self.word(node).map(drop) }
    }

    /// Reads `export`, `declare`, `unset` and similar commands.
    fn declaration(&mut self, node: Node<'_>) -> Result<(), Unreadable> {
        let (mut program, mut words) = ("", Vec::new());
        for (_, part) in self.parts(node, false)? {
            match part.kind() {
                "variable_assignment" => {
                    self.assignment(part)?;
                    words.push(ShellWord::literal(self.text(part)));
                }
                _ if !part.is_named() && program.is_empty() => program = self.text(part),
                _ => words.push(self.word(part)?),
            }
        }
        // `declare -i` evaluates, and so does the name of an array element.
        self.analysis.evaluates_values |=
            words.iter().any(|it| it.text.starts_with('-') && it.text.contains(['i', 'n']))
                || program.starts_with("unset");
        self.analysis.push(program, &words);
        Ok(())
    }

    /// Reads `[ … ]` and `[[ … ]]`.
    fn test(&mut self, node: Node<'_>) -> Result<(), Unreadable> {
        let is_keyword = self.text(node).starts_with("[[");
        self.test_expression(node, is_keyword)?;
        let text: Vec<&str> = self.text(node).split_whitespace().collect();
        self.analysis.line.commands.push(text.join(" "));
        Ok(())
    }

    fn test_expression(&mut self, node: Node<'_>, is_keyword: bool) -> Result<(), Unreadable> {
        for (_, part) in self.parts(node, is_keyword)? {
            let text = self.text(part);
            match part.kind() {
                "binary_expression" | "unary_expression" => {
                    self.nested(|reader| reader.test_expression(part, is_keyword))?;
                }
                "parenthesized_expression" if is_keyword => {
                    self.nested(|reader| reader.test_expression(part, is_keyword))?;
                }
                "test_operator" => {
                    self.analysis.evaluates_values |= is_keyword
                        && matches!(text, "-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge")
                        || matches!(text, "-v" | "-R");
                }
                "regex" | "extglob_pattern" if is_keyword => super::words::check_literal(text)?,
                "[" | "]" | "[[" | "]]" | "=" | "==" | "!=" | "!" => {}
                // In `[ … ]` these separate commands or redirect output.
                "=~" | "<" | ">" | "&&" | "||" | "(" | ")" if is_keyword => {}
                _ if part.is_named() => _ = self.word(part)?,
                _ => return Err("a test has a form that is not known"),
            }
        }
        Ok(())
    }

    fn for_statement(&mut self, node: Node<'_>) -> Result<(), Unreadable> {
        for (field, part) in self.parts(node, true)? {
            match (field, part.kind()) {
                (Some("variable"), _) | (_, "for" | "select" | "in" | ";" | "\n") => {}
                (Some("value"), _) => _ = self.word(part)?,
                (_, "do_group" | "comment") => self.statement(part, Vec::new())?,
                _ => return Err("a loop has a form that is not known"),
            }
        }
        Ok(())
    }

    fn c_style_for(&mut self, node: Node<'_>) -> Result<(), Unreadable> {
        for (_, part) in self.parts(node, true)? {
            match part.kind() {
                "do_group" | "compound_statement" | "comment" => {
                    self.statement(part, Vec::new())?;
                }
                _ if part.is_named() => self.arithmetic(part)?,
                "for" | "((" | "))" | ";" | "," | "\n" => {}
                _ => return Err("a loop has a form that is not known"),
            }
        }
        Ok(())
    }

    fn case(&mut self, node: Node<'_>) -> Result<(), Unreadable> {
        for (field, part) in self.parts(node, true)? {
            match (field, part.kind()) {
                (Some("value"), "extglob_pattern") => {
                    super::words::check_literal(self.text(part))?;
                }
                (Some("value"), _) => _ = self.word(part)?,
                _ if part.is_named() => self.statement(part, Vec::new())?,
                (_, "case" | "in" | "esac" | "(" | ")" | "|" | ";;" | ";&" | ";;&") => {}
                _ if is_separator(self.text(part)) => {}
                _ => return Err("a `case` has a form that is not known"),
            }
        }
        Ok(())
    }

    /// Reads a function. Its body counts as if it ran.
    fn function(&mut self, node: Node<'_>) -> Result<(), Unreadable> {
        for (field, part) in self.parts(node, true)? {
            match (field, part.kind()) {
                (Some("name"), _) => {
                    if self.word(part)?.is_dynamic {
                        return Err("a function has a name that is not known");
                    }
                }
                (Some("body"), _) | (_, "comment") => self.statement(part, Vec::new())?,
                (Some("redirect"), _) => {
                    if !self.redirect(part)?.is_empty() {
                        return Err("words follow a redirection");
                    }
                }
                (_, "function" | "(" | ")") => {}
                _ => return Err("a function has a form that is not known"),
            }
        }
        Ok(())
    }

    /// Reads `$(…)`, `` `…` `` and `<(…)`.
    pub(super) fn substitution(&mut self, node: Node<'_>) -> Result<(), Unreadable> {
        let text = self.text(node).trim_start();
        let has_backticks = text.starts_with(['`', '$']) && !text.starts_with("$(");
        if has_backticks {
            let inner = text.trim_start_matches('$').trim_matches('`');
            if inner.contains(['`', '\\', '#']) {
                return Err("a command in backticks has a form that is not known");
            }
        }
        self.substitutions += 1;
        for (field, part) in self.parts(node, true)? {
            match (field, part.kind()) {
                (Some("redirect"), _) => {
                    if !self.redirect(part)?.is_empty() {
                        return Err("words follow a redirection");
                    }
                }
                _ if part.is_named() => self.statement(part, Vec::new())?,
                (_, "$(" | "<(" | ">(" | ")" | "`" | "$`") => {}
                _ if is_separator(self.text(part)) => {}
                _ => return Err("the command has a syntax that is not known"),
            }
        }
        self.substitutions -= 1;
        Ok(())
    }
}

/// Returns the children of a node.
pub(super) fn children(node: Node<'_>) -> Result<Vec<SyntaxPart<'_>>, Unreadable> {
    let mut cursor = node.walk();
    let mut children = Vec::new();
    let mut more = cursor.goto_first_child();
    while more {
        let child = cursor.node();
        if child.is_error() || child.is_missing() {
            return Err("the command has a syntax that is not known");
        }
        children.push((cursor.field_name(), child));
        more = cursor.goto_next_sibling();
    }
    Ok(children)
}

/// Returns `true` for a token that separates statements, or a keyword around them.
fn is_separator(token: &str) -> bool {
    let token = token.trim();
    token.is_empty()
        || matches!(
            token,
            ";" | ";;"
                | "&"
                | "&&"
                | "||"
                | "|"
                | "|&"
                | "("
                | ")"
                | "{"
                | "}"
                | "!"
                | "do"
                | "done"
                | "if"
                | "then"
                | "elif"
                | "else"
                | "fi"
                | "while"
                | "until"
        )
}

/// Returns `true` if a text is only white space and line continuations.
fn is_blank(text: &str, allow_newlines: bool) -> bool {
    let text = text.replace("\\\n", "");
    text.chars().all(|it| it == ' ' || it == '\t' || (allow_newlines && it == '\n'))
}
