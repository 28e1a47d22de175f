//! Lexer for shell command lines.

use std::iter::Peekable;
use std::str::Chars;

/// Word with its quotes removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ShellWord {
    /// Text, as far as it is known.
    pub(super) text: String,
    /// Part of the word is known only at run time, such as a variable.
    pub(super) is_dynamic: bool,
}

/// Segment of a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LineSegment {
    /// Words of one command.
    Command(Vec<ShellWord>),
    /// Command line nested in another one.
    Nested(String),
    /// Target of an output redirection.
    Output(ShellWord),
}

/// Splits a line into segments. The second value is `false` if part of it was not understood.
pub(super) fn split_line(text: &str) -> (Vec<LineSegment>, bool) {
    let mut lexer = Lexer {
        chars: text.chars().peekable(),
        segments: Vec::new(),
        words: Vec::new(),
        word: None,
        next_is_output: false,
        is_complete: true,
    };
    lexer.run();
    (lexer.segments, lexer.is_complete)
}

struct Lexer<'a> {
    chars: Peekable<Chars<'a>>,
    segments: Vec<LineSegment>,
    words: Vec<ShellWord>,
    word: Option<ShellWord>,
    /// Next word is the target of an output redirection.
    next_is_output: bool,
    is_complete: bool,
}

impl Lexer<'_> {
    fn run(&mut self) {
        while let Some(character) = self.chars.next() {
            match character {
                '\'' => self.single_quoted(),
                '"' => self.double_quoted(),
                '\\' => match self.chars.next() {
                    Some('\n') => {}
                    Some(next) => self.push(next),
                    None => self.is_complete = false,
                },
                '$' => self.dollar(),
                '`' => self.backtick(),
                '#' if self.word.is_none() => {
                    while self.chars.next_if(|next| *next != '\n').is_some() {}
                }
                '<' | '>' => self.redirect(character),
                '&' if self.chars.peek() == Some(&'>') => {
                    self.end_word();
                    self.chars.next();
                    self.redirect('>');
                }
                ';' | '&' | '|' | '\n' | '(' | ')' => self.end_command(),
                character if character.is_whitespace() => self.end_word(),
                character => self.push(character),
            }
        }
        self.end_command();
    }

    fn word(&mut self) -> &mut ShellWord {
        self.word.get_or_insert_default()
    }

    fn push(&mut self, character: char) {
        self.word().text.push(character);
    }

    fn end_word(&mut self) {
        let Some(word) = self.word.take() else { return };
        if std::mem::take(&mut self.next_is_output) {
            self.segments.push(LineSegment::Output(word));
        } else {
            self.words.push(word);
        }
    }

    fn end_command(&mut self) {
        self.end_word();
        if !self.words.is_empty() {
            self.segments.push(LineSegment::Command(std::mem::take(&mut self.words)));
        }
    }

    fn single_quoted(&mut self) {
        self.word();
        loop {
            match self.chars.next() {
                Some('\'') => return,
                Some(character) => self.push(character),
                None => return self.is_complete = false,
            }
        }
    }

    fn double_quoted(&mut self) {
        self.word();
        loop {
            match self.chars.next() {
                Some('"') => return,
                Some('\\') => match self.chars.next() {
                    Some(next @ ('"' | '\\' | '$' | '`')) => self.push(next),
                    Some('\n') => {}
                    Some(next) => {
                        self.push('\\');
                        self.push(next);
                    }
                    None => return self.is_complete = false,
                },
                Some('$') => self.dollar(),
                Some('`') => self.backtick(),
                Some(character) => self.push(character),
                None => return self.is_complete = false,
            }
        }
    }

    fn dollar(&mut self) {
        match self.chars.peek() {
            Some('(') => {
                self.chars.next();
                self.word().is_dynamic = true;
                self.nested();
            }
            Some('{') => {
                self.word().is_dynamic = true;
                for character in self.chars.by_ref() {
                    match character {
                        '}' => return,
                        // The default value of a variable may run a command.
                        '$' | '`' => self.is_complete = false,
                        _ => {}
                    }
                }
                self.is_complete = false;
            }
            // Quoting with its own escapes, such as `$'…'`.
            Some('\'' | '"') => self.is_complete = false,
            Some(next) if next.is_alphanumeric() || "_?!#@*-$".contains(*next) => {
                self.word().is_dynamic = true;
            }
            _ => self.push('$'),
        }
    }

    /// Text in brackets is a nested line.
    fn nested(&mut self) {
        let (mut depth, mut text) = (1, String::new());
        for character in self.chars.by_ref() {
            match character {
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return self.segments.push(LineSegment::Nested(text));
            }
            text.push(character);
        }
        self.is_complete = false;
        self.segments.push(LineSegment::Nested(text));
    }

    fn backtick(&mut self) {
        self.word().is_dynamic = true;
        let mut text = String::new();
        for character in self.chars.by_ref() {
            if character == '`' {
                return self.segments.push(LineSegment::Nested(text));
            }
            text.push(character);
        }
        self.is_complete = false;
        self.segments.push(LineSegment::Nested(text));
    }

    fn redirect(&mut self, character: char) {
        // A number before the operator is a file descriptor.
        if self
            .word
            .as_ref()
            .is_some_and(|word| word.text.chars().all(|digit| digit.is_ascii_digit()))
        {
            self.word = None;
        }
        self.end_word();
        match (character, self.chars.peek()) {
            (_, Some('(')) => {
                self.chars.next();
                self.word().is_dynamic = true;
                self.nested();
            }
            // Here-document. Its end is not searched for.
            ('<', Some('<')) => self.is_complete = false,
            ('<', _) => {
                // Input file; not an argument of the command.
                self.skip_word();
            }
            (_, Some('&')) => {
                self.chars.next();
                self.skip_word();
            }
            (_, next) => {
                if matches!(next, Some('>' | '|')) {
                    self.chars.next();
                }
                self.next_is_output = true;
            }
        }
    }

    fn skip_word(&mut self) {
        while self.chars.next_if(|character| *character == ' ' || *character == '\t').is_some() {}
        let plain = |character: &char| character.is_alphanumeric() || "_-./~".contains(*character);
        while self.chars.next_if(plain).is_some() {}
    }
}
