//! Syntax highlighting of single lines: keywords, strings, comments and numbers.
//!
//! Languages share a few families. A tokenizer of this size is wrong about rare syntax, such as
//! nested comments, and never about the text: tokens cover every byte, in order.

use super::html::push_escaped;

/// Longest line that is highlighted, in bytes. Longer ones are generated.
const MAX_HIGHLIGHTED_BYTES: usize = 2_000;

/// Family of a language.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::web) enum Language {
    #[default]
    Plain,
    Rust,
    C,
    Java,
    JavaScript,
    Go,
    Python,
    Ruby,
    Shell,
    Settings,
    Json,
    Css,
    Sql,
    Markup,
}

/// Kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::web) enum TokenKind {
    Plain,
    Keyword,
    Text,
    Comment,
    Number,
}

impl TokenKind {
    /// Returns the CSS class; empty for plain text.
    pub(in crate::web) fn class(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Keyword => "hk",
            Self::Text => "hs",
            Self::Comment => "hc",
            Self::Number => "hn",
        }
    }
}

/// Token of a line: its end, in bytes, and its kind. It starts where the one before ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::web) struct Token {
    pub(in crate::web) end: usize,
    pub(in crate::web) kind: TokenKind,
}

/// Syntax of a language family.
struct Syntax {
    keywords: &'static [&'static str],
    ignores_case: bool,
    /// Start of a comment that ends with its line.
    line_comment: &'static str,
    /// Start and end of a comment that can span lines.
    block_comment: Option<(&'static str, &'static str)>,
    /// Starts and ends of texts that can span lines.
    long_texts: &'static [(&'static str, &'static str)],
    /// Quotes of texts that end with their line.
    quotes: &'static [char],
}

const SLASH_COMMENTS: Syntax = Syntax {
    keywords: &[],
    ignores_case: false,
    line_comment: "//",
    block_comment: Some(("/*", "*/")),
    long_texts: &[],
    quotes: &['"', '\''],
};

const HASH_COMMENTS: Syntax = Syntax {
    keywords: &["true", "false", "null", "yes", "no", "on", "off"],
    ignores_case: false,
    line_comment: "#",
    block_comment: None,
    long_texts: &[],
    quotes: &['"', '\''],
};

#[rustfmt::skip]
const RUST: Syntax = Syntax {
    keywords: &[
        "as", "async", "await", "break", "const", "continue", "crate", "dyn", "else", "enum",
        "extern", "false", "fn", "for", "if", "impl", "in", "let", "loop", "macro_rules", "match",
        "mod", "move", "mut", "pub", "ref", "return", "self", "Self", "static", "struct", "super",
        "trait", "true", "type", "unsafe", "use", "where", "while",
    ],
    long_texts: &[("r#\"", "\"#"), ("r\"", "\"")],
    quotes: &['"'],
    ..SLASH_COMMENTS
};

#[rustfmt::skip]
const C: Syntax = Syntax {
    keywords: &[
        "auto", "bool", "break", "case", "catch", "char", "class", "const", "constexpr", "continue",
        "default", "delete", "do", "double", "else", "enum", "explicit", "extern", "false", "float",
        "for", "goto", "if", "inline", "int", "long", "namespace", "new", "nullptr", "operator",
        "private", "protected", "public", "return", "short", "signed", "sizeof", "static", "struct",
        "switch", "template", "this", "throw", "true", "try", "typedef", "typename", "union",
        "unsigned", "using", "virtual", "void", "volatile", "while",
    ],
    ..SLASH_COMMENTS
};

#[rustfmt::skip]
const JAVA: Syntax = Syntax {
    keywords: &[
        "abstract", "as", "async", "await", "base", "boolean", "break", "byte", "case", "catch",
        "char", "class", "const", "continue", "data", "default", "do", "double", "else", "enum",
        "extends", "false", "final", "finally", "float", "for", "foreach", "fun", "func", "get",
        "guard", "if", "implements", "import", "in", "instanceof", "int", "interface", "internal",
        "is", "let", "long", "namespace", "new", "nil", "null", "object", "override", "package",
        "private", "protected", "protocol", "public", "readonly", "record", "return", "sealed",
        "set", "short", "static", "string", "struct", "super", "switch", "synchronized", "this",
        "throw", "throws", "true", "try", "using", "val", "var", "virtual", "void", "when", "while",
    ],
    long_texts: &[("\"\"\"", "\"\"\"")],
    ..SLASH_COMMENTS
};

#[rustfmt::skip]
const JAVASCRIPT: Syntax = Syntax {
    keywords: &[
        "abstract", "any", "as", "async", "await", "boolean", "break", "case", "catch", "class",
        "const", "continue", "declare", "default", "delete", "do", "else", "enum", "export",
        "extends", "false", "finally", "for", "from", "function", "get", "if", "implements",
        "import", "in", "instanceof", "interface", "keyof", "let", "namespace", "new", "null",
        "number", "of", "private", "protected", "public", "readonly", "return", "set", "static",
        "string", "super", "switch", "this", "throw", "true", "try", "type", "typeof", "undefined",
        "unknown", "var", "void", "while", "yield",
    ],
    long_texts: &[("`", "`")],
    ..SLASH_COMMENTS
};

#[rustfmt::skip]
const GO: Syntax = Syntax {
    keywords: &[
        "any", "bool", "break", "byte", "case", "chan", "const", "continue", "default", "defer",
        "else", "error", "fallthrough", "false", "float64", "for", "func", "go", "goto", "if",
        "import", "int", "int64", "interface", "map", "nil", "package", "range", "return", "select",
        "string", "struct", "switch", "true", "type", "uint64", "var",
    ],
    long_texts: &[("`", "`")],
    ..SLASH_COMMENTS
};

#[rustfmt::skip]
const PYTHON: Syntax = Syntax {
    keywords: &[
        "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif",
        "else", "except", "False", "finally", "for", "from", "global", "if", "import", "in", "is",
        "lambda", "match", "None", "nonlocal", "not", "or", "pass", "raise", "return", "self",
        "True", "try", "while", "with", "yield",
    ],
    long_texts: &[("\"\"\"", "\"\"\""), ("'''", "'''")],
    ..HASH_COMMENTS
};

#[rustfmt::skip]
const RUBY: Syntax = Syntax {
    keywords: &[
        "alias", "and", "begin", "break", "case", "class", "def", "do", "else", "elsif", "end",
        "ensure", "false", "for", "if", "in", "module", "next", "nil", "not", "or", "raise",
        "require", "rescue", "return", "self", "super", "then", "true", "unless", "until", "when",
        "while", "yield",
    ],
    ..HASH_COMMENTS
};

#[rustfmt::skip]
const SHELL: Syntax = Syntax {
    keywords: &[
        "case", "do", "done", "echo", "elif", "else", "esac", "exit", "export", "fi", "for",
        "function", "if", "in", "local", "return", "set", "shift", "then", "trap", "until", "while",
    ],
    ..HASH_COMMENTS
};

const JSON: Syntax = Syntax {
    keywords: &["true", "false", "null"],
    ignores_case: false,
    line_comment: "//",
    block_comment: None,
    long_texts: &[],
    quotes: &['"'],
};

const CSS: Syntax = Syntax { line_comment: "", ..SLASH_COMMENTS };

#[rustfmt::skip]
const SQL: Syntax = Syntax {
    keywords: &[
        "add", "all", "alter", "and", "any", "as", "asc", "begin", "between", "by", "case", "check",
        "column", "commit", "constraint", "create", "cross", "default", "delete", "desc",
        "distinct", "drop", "else", "end", "exists", "false", "foreign", "from", "full", "function",
        "group", "having", "if", "in", "index", "inner", "insert", "into", "is", "join", "key",
        "left", "like", "limit", "not", "null", "offset", "on", "or", "order", "outer", "primary",
        "references", "returning", "returns", "right", "rollback", "select", "set", "table", "then",
        "to", "true", "union", "unique", "update", "using", "values", "view", "when", "where", "with",
    ],
    ignores_case: true,
    line_comment: "--",
    ..SLASH_COMMENTS
};

const MARKUP: Syntax = Syntax {
    keywords: &[],
    ignores_case: false,
    line_comment: "",
    block_comment: Some(("<!--", "-->")),
    long_texts: &[],
    quotes: &['"'],
};

impl Language {
    /// Returns the language of a file, by its name.
    pub(in crate::web) fn from_path(path: &str) -> Self {
        let name = path.rsplit('/').next().unwrap_or(path);
        let extension = name.rsplit_once('.').map_or(name, |(_, extension)| extension);
        Self::from_name(extension)
    }

    /// Returns the language of a file extension, or of a fenced code block.
    pub(in crate::web) fn from_name(name: &str) -> Self {
        match name.trim().to_ascii_lowercase().as_str() {
            "rs" | "rust" => Self::Rust,
            "c" | "h" | "cc" | "cpp" | "cxx" | "hpp" | "m" | "mm" | "proto" => Self::C,
            "java" | "kt" | "kts" | "scala" | "cs" | "csharp" | "swift" | "php" | "dart"
            | "groovy" | "gradle" | "kotlin" => Self::Java,
            "js" | "jsx" | "mjs" | "cjs" | "ts" | "tsx" | "mts" | "javascript" | "typescript"
            | "vue" | "svelte" => Self::JavaScript,
            "go" => Self::Go,
            "py" | "pyi" | "python" => Self::Python,
            "rb" | "ruby" | "ex" | "exs" | "cr" => Self::Ruby,
            "sh" | "bash" | "zsh" | "shell" | "console" | "dockerfile" | "makefile" | "mk"
            | "justfile" => Self::Shell,
            "yaml" | "yml" | "toml" | "ini" | "cfg" | "conf" | "properties" | "gitignore"
            | "tf" | "lock" | "editorconfig" => Self::Settings,
            "json" | "jsonc" | "json5" => Self::Json,
            "css" | "scss" | "less" => Self::Css,
            "sql" => Self::Sql,
            "html" | "htm" | "xml" | "svg" | "xhtml" => Self::Markup,
            _ => Self::Plain,
        }
    }

    fn syntax(self) -> Option<&'static Syntax> {
        Some(match self {
            Self::Plain => return None,
            Self::Rust => &RUST,
            Self::C => &C,
            Self::Java => &JAVA,
            Self::JavaScript => &JAVASCRIPT,
            Self::Go => &GO,
            Self::Python => &PYTHON,
            Self::Ruby => &RUBY,
            Self::Shell => &SHELL,
            Self::Settings => &HASH_COMMENTS,
            Self::Json => &JSON,
            Self::Css => &CSS,
            Self::Sql => &SQL,
            Self::Markup => &MARKUP,
        })
    }
}

/// Tokenizer of consecutive lines. It knows whether a comment or a text is open.
#[derive(Debug, Clone, Default)]
pub(in crate::web) struct Highlighter {
    language: Language,
    /// End of the open comment or text, and its kind.
    open: Option<(&'static str, TokenKind)>,
}

impl Highlighter {
    pub(in crate::web) fn new(language: Language) -> Self {
        Self { language, open: None }
    }

    /// Splits the next line into tokens.
    pub(in crate::web) fn line(&mut self, text: &str) -> Vec<Token> {
        let whole = |kind| vec![Token { end: text.len(), kind }];
        let Some(syntax) = self.language.syntax() else { return whole(TokenKind::Plain) };
        if text.len() > MAX_HIGHLIGHTED_BYTES {
            return whole(TokenKind::Plain);
        }
        let mut tokens: Vec<Token> = Vec::new();
        let (mut at, mut before) = (0, None);
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            let (length, kind) = self.next_token(syntax, rest, before);
            // Never stay in place, and never split a character.
            let length = if rest.is_char_boundary(length) && length > 0 {
                length.min(rest.len())
            } else {
                rest.len()
            };
            before = rest.get(..length).and_then(|token| token.chars().next_back());
            at += length;
            match tokens.last_mut() {
                Some(last) if last.kind == kind => last.end = at,
                _ => tokens.push(Token { end: at, kind }),
            }
        }
        tokens
    }

    /// Returns the length and the kind of the first token. `before` is the character before it.
    fn next_token(
        &mut self,
        syntax: &Syntax,
        rest: &str,
        before: Option<char>,
    ) -> (usize, TokenKind) {
        if let Some((end, kind)) = self.open {
            return self.close(rest, 0, end, kind);
        }
        let Some(first) = rest.chars().next() else { return (rest.len(), TokenKind::Plain) };
        if first.is_whitespace() {
            return (length_of(rest, char::is_whitespace), TokenKind::Plain);
        }
        if is_comment(syntax.line_comment, rest, before) {
            return (rest.len(), TokenKind::Comment);
        }
        if let Some((start, end)) = syntax.block_comment
            && rest.starts_with(start)
        {
            return self.close(rest, start.len(), end, TokenKind::Comment);
        }
        let is_word_end = before.is_none_or(|before| !is_word(before));
        for &(start, end) in syntax.long_texts {
            if rest.starts_with(start) && (is_word_end || !start.starts_with('r')) {
                return self.close(rest, start.len(), end, TokenKind::Text);
            }
        }
        if syntax.quotes.contains(&first) {
            return (quoted_length(rest, first), TokenKind::Text);
        }
        if first == '\'' && self.language == Language::Rust {
            // A character, or a lifetime.
            let mut next = rest.chars().skip(1);
            return match (next.next(), next.next()) {
                (Some('\\'), _) | (Some(_), Some('\'')) => {
                    (quoted_length(rest, first), TokenKind::Text)
                }
                _ => (first.len_utf8(), TokenKind::Plain),
            };
        }
        if self.language == Language::Markup && first == '<' {
            let name = |it: char| is_word(it) || matches!(it, '<' | '/' | '-' | ':' | '!' | '?');
            return (length_of(rest, name), TokenKind::Keyword);
        }
        if first.is_ascii_digit() {
            return (length_of(rest, |it| is_word(it) || it == '.'), TokenKind::Number);
        }
        if is_word(first) {
            let length = length_of(rest, is_word);
            let word = rest.get(..length).unwrap_or_default();
            let is_keyword = syntax.keywords.iter().any(|keyword| {
                if syntax.ignores_case {
                    keyword.eq_ignore_ascii_case(word)
                } else {
                    *keyword == word
                }
            });
            return (length, if is_keyword { TokenKind::Keyword } else { TokenKind::Plain });
        }
        (first.len_utf8(), TokenKind::Plain)
    }

    /// Ends a comment or text at its end in this line, or leaves it open.
    fn close(
        &mut self,
        rest: &str,
        from: usize,
        end: &'static str,
        kind: TokenKind,
    ) -> (usize, TokenKind) {
        if let Some(found) = rest.get(from..).and_then(|rest| rest.find(end)) {
            self.open = None;
            (from + found + end.len(), kind)
        } else {
            self.open = Some((end, kind));
            (rest.len(), kind)
        }
    }
}

fn is_word(it: char) -> bool {
    it.is_alphanumeric() || it == '_'
}

/// Returns `true` if a comment starts here. A hash inside a word is no comment.
fn is_comment(marker: &str, rest: &str, before: Option<char>) -> bool {
    !marker.is_empty()
        && rest.starts_with(marker)
        && (marker != "#" || before.is_none_or(char::is_whitespace))
}

/// Returns the number of bytes of the first characters that fit.
fn length_of(text: &str, fits: impl Fn(char) -> bool) -> usize {
    text.find(|it: char| !fits(it)).unwrap_or(text.len())
}

/// Returns the length of a quoted text with its quotes; up to the end of the line if it is open.
fn quoted_length(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, it) in text.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if it == '\\' {
            escaped = true;
        } else if it == quote {
            return at + it.len_utf8();
        }
    }
    text.len()
}

/// Appends a text of one or more lines, highlighted.
pub(in crate::web) fn push_highlighted(html: &mut String, language: Language, text: &str) {
    let mut highlighter = Highlighter::new(language);
    for line in text.split_inclusive('\n') {
        let tokens = highlighter.line(line);
        push_tokens(html, line, &tokens, &[]);
    }
}

/// Appends a line with its tokens. `marked` are the ranges of changed words, in order.
pub(in crate::web) fn push_tokens(
    html: &mut String,
    text: &str,
    tokens: &[Token],
    marked: &[(usize, usize)],
) {
    let (mut at, mut marks) = (0, marked.iter().copied().peekable());
    for token in tokens {
        while at < token.end {
            while marks.next_if(|(_, end)| *end <= at).is_some() {}
            let (end, is_marked) = match marks.peek() {
                Some((start, end)) if *start <= at => (token.end.min(*end), true),
                Some((start, _)) => (token.end.min(*start), false),
                None => (token.end, false),
            };
            let part = text.get(at..end).unwrap_or_default();
            at = end.max(at + 1);
            let class = token.kind.class();
            if class.is_empty() && !is_marked {
                push_escaped(html, part);
                continue;
            }
            html.push_str("<span class=\"");
            html.push_str(class);
            if is_marked {
                html.push_str(if class.is_empty() { "w" } else { " w" });
            }
            html.push_str("\">");
            push_escaped(html, part);
            html.push_str("</span>");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn highlighted(path: &str, text: &str) -> String {
        let mut html = String::new();
        push_highlighted(&mut html, Language::from_path(path), text);
        html
    }

    #[test]
    fn keywords_texts_comments_and_numbers_are_marked() {
        assert_eq!(
            highlighted("src/a.rs", "let x = \"<b>\"; // 'a"),
            "<span class=\"hk\">let</span> x = <span class=\"hs\">&#34;&#60;b&#62;&#34;</span>; \
             <span class=\"hc\">// &#39;a</span>"
        );
        assert_eq!(
            highlighted("a.py", "def f(): return 10 # ten"),
            "<span class=\"hk\">def</span> f(): <span class=\"hk\">return</span> \
             <span class=\"hn\">10</span> <span class=\"hc\"># ten</span>"
        );
        assert_eq!(highlighted("a.rs", "&'a str"), "&#38;&#39;a str");
        assert_eq!(highlighted("a.sh", "echo $#"), "<span class=\"hk\">echo</span> $#");
        assert_eq!(highlighted("A.SQL", "SELECT 1"), highlighted("a.sql", "SELECT 1"));
        assert_eq!(highlighted("notes", "let it <be>"), "let it &#60;be&#62;");
    }

    #[test]
    fn comments_and_texts_span_lines() {
        assert_eq!(
            highlighted("a.c", "/* a\nb */ c"),
            "<span class=\"hc\">/* a\n</span><span class=\"hc\">b */</span> c"
        );
        let html = highlighted("a.py", "\"\"\"a\nif\n\"\"\"\nif");
        assert!(html.ends_with("<span class=\"hk\">if</span>"), "{html}");
        assert_eq!(html.matches("hk").count(), 1, "{html}");
    }

    #[test]
    fn every_byte_of_a_line_is_shown_once() {
        for text in
            ["ä'ö\"ü", "'", "\"", "r#\"", "\\", "/*", "<!--é", "日本語 = '語'", "`", "#", ""]
        {
            for name in ["a.rs", "a.py", "a.js", "a.html", "a.sql", "a.json", "a.css", "a.sh"] {
                let mut highlighter = Highlighter::new(Language::from_path(name));
                let tokens = highlighter.line(text);
                let mut plain = String::new();
                push_tokens(&mut plain, text, &tokens, &[]);
                let mut start = 0;
                for token in &tokens {
                    assert!(
                        token.end > start && text.is_char_boundary(token.end),
                        "{name}: {text}"
                    );
                    start = token.end;
                }
                assert_eq!(start, text.len(), "{name}: {text}");
            }
        }
    }

    #[test]
    fn changed_words_are_marked_inside_tokens() {
        let mut html = String::new();
        let text = "let total = 1;";
        let tokens = Highlighter::new(Language::Rust).line(text);
        push_tokens(&mut html, text, &tokens, &[(4, 9), (12, 13)]);
        assert_eq!(
            html,
            "<span class=\"hk\">let</span> <span class=\"w\">total</span> = \
             <span class=\"hn w\">1</span>;"
        );
    }
}
