//! Words of a command line: quotes, escapes and expansions.

use tree_sitter::Node;

use super::syntax::{SyntaxReader, Unreadable, children};

/// Word with its quotes removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ShellWord {
    /// Text, as far as it is known. Expansions are shown as they are written.
    pub(super) text: String,
    /// Part of the word is known only at run time, such as a variable or a pattern.
    pub(super) is_dynamic: bool,
    /// The word can become none or several, because an expansion is not quoted.
    pub(super) can_split: bool,
    /// The word starts with `~`.
    pub(super) has_tilde: bool,
    /// Unquoted `{`, `}`, and `,` or `..`, which together are a brace expansion.
    pub(super) braces: [bool; 3],
}

impl ShellWord {
    /// Word that is known only at run time.
    pub(super) fn dynamic(text: &str, can_split: bool) -> Self {
        Self { text: text.to_owned(), is_dynamic: true, can_split, ..Self::default() }
    }

    pub(super) fn literal(text: &str) -> Self {
        Self { text: text.to_owned(), ..Self::default() }
    }

    /// Returns `true` if the word is a brace expansion, such as `{git,push}`.
    pub(super) fn has_brace_expansion(&self) -> bool {
        self.braces == [true; 3]
    }

    fn append(&mut self, next: &Self) {
        self.has_tilde |= self.text.is_empty() && next.has_tilde;
        self.text.push_str(&next.text);
        self.is_dynamic |= next.is_dynamic;
        self.can_split |= next.can_split;
        for (mine, other) in self.braces.iter_mut().zip(next.braces) {
            *mine |= other;
        }
    }
}

impl SyntaxReader<'_, '_> {
    /// Reads a complete word.
    pub(super) fn word(&mut self, node: Node<'_>) -> Result<ShellWord, Unreadable> {
        let mut word = self.word_part(node)?;
        if word.has_brace_expansion() {
            (word.is_dynamic, word.can_split) = (true, true);
        }
        Ok(word)
    }

    /// Remembers a literal that could be the value of a variable.
    fn literal(&mut self, word: ShellWord) -> ShellWord {
        self.analysis.has_bracket |= word.text.contains('[');
        word
    }

    fn word_part(&mut self, node: Node<'_>) -> Result<ShellWord, Unreadable> {
        let text = self.text(node);
        match node.kind() {
            "word" => unescape(text).map(|it| self.literal(it)),
            "number" if node.child_count() == 0 => Ok(ShellWord::literal(text)),
            "variable_name" | "$" | "==" | "=~" => Ok(ShellWord::literal(text)),
            "raw_string" => text
                .strip_prefix('\'')
                .and_then(|it| it.strip_suffix('\''))
                .filter(|it| !it.contains('\''))
                .map(|it| self.literal(ShellWord::literal(it)))
                .ok_or("a quoted text has no end"),
            "ansi_c_string" => decode_ansi_c(text).map(|it| self.literal(ShellWord::literal(&it))),
            "string" => self.string(node),
            "concatenation" => self.concatenation(node),
            // The grammar takes the next word, even on the next line, for the name after a lone `$`.
            "simple_expansion" if text.contains(char::is_whitespace) => {
                Err("a variable has no name")
            }
            "simple_expansion" | "brace_expression" => Ok(ShellWord::dynamic(text, true)),
            "expansion" => {
                self.expansion(node)?;
                Ok(ShellWord::dynamic(text, true))
            }
            "arithmetic_expansion" => {
                self.arithmetic(node)?;
                Ok(ShellWord::dynamic(text, false))
            }
            "command_substitution" => {
                self.substitution(node)?;
                Ok(ShellWord::dynamic("$(…)", true))
            }
            "process_substitution" => {
                self.substitution(node)?;
                Ok(ShellWord::dynamic("<(…)", false))
            }
            _ => Err("a word has a form that is not known"),
        }
    }

    /// Reads a word of several parts, such as `a"b"$c`.
    fn concatenation(&mut self, node: Node<'_>) -> Result<ShellWord, Unreadable> {
        let (mut word, mut at) = (ShellWord::default(), node.start_byte());
        for (_, part) in children(node)? {
            if part.start_byte() != at {
                return Err("a word has a gap");
            }
            at = part.end_byte();
            let next = self.nested(|reader| reader.word_part(part))?;
            word.append(&next);
        }
        if at == node.end_byte() { Ok(word) } else { Err("a word has a gap") }
    }

    /// Reads a text in double quotes. The literal parts are read from the source, because the
    /// grammar drops white space.
    fn string(&mut self, node: Node<'_>) -> Result<ShellWord, Unreadable> {
        let mut word = ShellWord::default();
        let inner = node.start_byte() + 1..node.end_byte().saturating_sub(1);
        let text = self.text(node);
        if text.len() < 2 || !text.starts_with('"') || !text.ends_with('"') {
            return Err("a quoted text has no end");
        }
        let mut at = inner.start;
        for (_, part) in children(node)? {
            match part.kind() {
                "\"" | "string_content" | "$" => {}
                "expansion"
                | "simple_expansion"
                | "command_substitution"
                | "arithmetic_expansion" => {
                    let before = self.quoted_literal(at, part.start_byte())?;
                    word.text.push_str(&before);
                    let next = self.nested(|reader| reader.word_part(part))?;
                    word.text.push_str(&next.text);
                    word.is_dynamic = true;
                    // `"$@"` is as many words as there are arguments.
                    word.can_split |= next.text.contains('@');
                    at = part.end_byte();
                }
                _ => return Err("a quoted text has a form that is not known"),
            }
        }
        word.text.push_str(&self.quoted_literal(at, inner.end)?);
        Ok(word)
    }

    /// Reads a literal part of a text in double quotes.
    fn quoted_literal(&mut self, from: usize, to: usize) -> Result<String, Unreadable> {
        let text = quoted_literal(self.source.get(from..to).ok_or("a text has a gap")?)?;
        self.analysis.has_bracket |= text.contains('[');
        Ok(text)
    }

    /// Reads the inside of `${…}`.
    fn expansion(&mut self, node: Node<'_>) -> Result<(), Unreadable> {
        let mut operator = "";
        for (field, part) in self.parts(node, true)? {
            let text = self.text(part);
            if field == Some("operator") {
                if operator == "@" && text == "P" {
                    return Err("an expansion runs the commands in a variable");
                }
                self.analysis.evaluates_values |= matches!(text, "!" | ":");
                operator = text;
                continue;
            }
            match part.kind() {
                "${" | "}" | "variable_name" | "special_variable_name" => {}
                "subscript" | "number" | "binary_expression" | "parenthesized_expression" => {
                    self.arithmetic(part)?;
                }
                "word" | "regex" => check_literal(text)?,
                "concatenation" => {
                    for (_, piece) in children(part)? {
                        match piece.kind() {
                            "word" | "variable_name" => check_literal(self.text(piece))?,
                            _ => _ = self.nested(|reader| reader.word_part(piece))?,
                        }
                    }
                }
                _ if !part.is_named() && text.trim().is_empty() => {}
                _ => _ = self.nested(|reader| reader.word_part(part))?,
            }
        }
        Ok(())
    }
}

/// Refuses a literal that the shell could read as quotes or as an expansion.
pub(super) fn check_literal(text: &str) -> Result<(), Unreadable> {
    let mut before = ' ';
    for character in text.chars() {
        let expands = match before {
            '$' => character.is_alphanumeric() || "_{([".contains(character),
            '<' | '>' => character == '(',
            _ => false,
        };
        if expands || matches!(character, '`' | '\'' | '"') {
            return Err("a pattern contains an expansion");
        }
        before = character;
    }
    Ok(())
}

/// Removes the escapes of an unquoted word, and finds its patterns.
fn unescape(text: &str) -> Result<ShellWord, Unreadable> {
    let mut word = ShellWord { has_tilde: text.starts_with('~'), ..ShellWord::default() };
    let mut chars = text.chars().peekable();
    while let Some(character) = chars.next() {
        match character {
            '\\' => match chars.next() {
                Some('\n') => {}
                Some(next) => word.text.push(next),
                None => return Err("an escape has no end"),
            },
            '\'' | '"' | '`' | '$' | ';' | '&' | '|' | '<' | '>' | '(' | ')' => {
                return Err("a word contains an operator");
            }
            space if space.is_whitespace() => return Err("a word contains white space"),
            _ => {
                match character {
                    '*' | '?' | '[' => (word.is_dynamic, word.can_split) = (true, true),
                    '{' => word.braces[0] = true,
                    '}' => word.braces[1] = true,
                    ',' => word.braces[2] = true,
                    '.' if chars.peek() == Some(&'.') => word.braces[2] = true,
                    _ => {}
                }
                word.text.push(character);
            }
        }
    }
    Ok(word)
}

/// Removes the escapes of a literal in double quotes.
fn quoted_literal(text: &str) -> Result<String, Unreadable> {
    let mut literal = String::new();
    let mut chars = text.chars().peekable();
    while let Some(character) = chars.next() {
        match character {
            '\\' => match chars.next() {
                Some('\n') => {}
                Some(next @ ('"' | '\\' | '$' | '`')) => literal.push(next),
                Some(next) => literal.extend(['\\', next]),
                None => return Err("an escape has no end"),
            },
            '"' | '`' => return Err("a quoted text has no end"),
            '$' if chars
                .peek()
                .is_some_and(|next| next.is_alphanumeric() || "_{([?!#@*$-".contains(*next)) =>
            {
                return Err("a quoted text contains an expansion");
            }
            _ => literal.push(character),
        }
    }
    Ok(literal)
}

/// Decodes `$'…'`. The grammar can take too much for such a text, so its end is checked.
fn decode_ansi_c(text: &str) -> Result<String, Unreadable> {
    const NO_END: Unreadable = "a quoted text has no end";
    let inner = text.strip_prefix("$'").and_then(|it| it.strip_suffix('\'')).ok_or(NO_END)?;
    let mut decoded = String::new();
    let mut chars = inner.chars().peekable();
    while let Some(character) = chars.next() {
        match character {
            '\'' => return Err(NO_END),
            '\\' => match chars.next().ok_or(NO_END)? {
                'n' => decoded.push('\n'),
                't' => decoded.push('\t'),
                literal @ ('\\' | '\'' | '"' | '?') => decoded.push(literal),
                kind @ ('x' | 'u' | 'U' | '0'..='7') => {
                    let (radix, digits) = match kind {
                        'x' => (16, 2),
                        'u' => (16, 4),
                        'U' => (16, 8),
                        _ => (8, 3),
                    };
                    let mut number = if radix == 8 { kind.to_string() } else { String::new() };
                    while number.len() < digits
                        && let Some(digit) = chars.next_if(|next| next.is_digit(radix))
                    {
                        number.push(digit);
                    }
                    let code = u32::from_str_radix(&number, radix).ok();
                    let decoded_char = code
                        .filter(|it| *it > 0 && (*it < 0x80 || matches!(kind, 'u' | 'U')))
                        .and_then(char::from_u32);
                    decoded.push(decoded_char.ok_or("an escape has no known meaning")?);
                }
                _ => return Err("an escape has no known meaning"),
            },
            _ => decoded.push(character),
        }
    }
    Ok(decoded)
}
