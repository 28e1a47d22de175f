//! A command line as a shell would cut it.

use std::iter::Peekable;
use std::str::Chars;

/// A word, without its quotes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Word {
    /// What it says.
    pub(super) text: String,
    /// Whether part of it is only known when it runs.
    pub(super) varies: bool,
}

/// A part of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// The words of one command.
    Command(Vec<Word>),
    /// A line inside a line.
    Inner(String),
    /// Where output goes.
    Output(Word),
}

/// Cuts a line. The second is false if not all of it is understood.
pub(super) fn pieces(text: &str) -> (Vec<Piece>, bool) {
    let mut cutter = Cutter {
        signs: text.chars().peekable(),
        pieces: Vec::new(),
        words: Vec::new(),
        word: None,
        output: false,
        clear: true,
    };
    cutter.cut();
    (cutter.pieces, cutter.clear)
}

struct Cutter<'a> {
    signs: Peekable<Chars<'a>>,
    pieces: Vec<Piece>,
    words: Vec<Word>,
    word: Option<Word>,
    /// Whether the next word is where output goes.
    output: bool,
    clear: bool,
}

impl Cutter<'_> {
    fn cut(&mut self) {
        while let Some(sign) = self.signs.next() {
            match sign {
                '\'' => self.single(),
                '"' => self.double(),
                '\\' => match self.signs.next() {
                    Some('\n') => {}
                    Some(next) => self.push(next),
                    None => self.clear = false,
                },
                '$' => self.dollar(),
                '`' => self.backtick(),
                '#' if self.word.is_none() => {
                    while self.signs.next_if(|next| *next != '\n').is_some() {}
                }
                '<' | '>' => self.redirect(sign),
                '&' if self.signs.peek() == Some(&'>') => {
                    self.end_word();
                    self.signs.next();
                    self.redirect('>');
                }
                ';' | '&' | '|' | '\n' | '(' | ')' => self.end_command(),
                sign if sign.is_whitespace() => self.end_word(),
                sign => self.push(sign),
            }
        }
        self.end_command();
    }

    fn word(&mut self) -> &mut Word {
        self.word.get_or_insert_default()
    }

    fn push(&mut self, sign: char) {
        self.word().text.push(sign);
    }

    fn end_word(&mut self) {
        let Some(word) = self.word.take() else { return };
        if std::mem::take(&mut self.output) {
            self.pieces.push(Piece::Output(word));
        } else {
            self.words.push(word);
        }
    }

    fn end_command(&mut self) {
        self.end_word();
        if !self.words.is_empty() {
            self.pieces.push(Piece::Command(std::mem::take(&mut self.words)));
        }
    }

    fn single(&mut self) {
        self.word();
        loop {
            match self.signs.next() {
                Some('\'') => return,
                Some(sign) => self.push(sign),
                None => return self.clear = false,
            }
        }
    }

    fn double(&mut self) {
        self.word();
        loop {
            match self.signs.next() {
                Some('"') => return,
                Some('\\') => match self.signs.next() {
                    Some(next @ ('"' | '\\' | '$' | '`')) => self.push(next),
                    Some('\n') => {}
                    Some(next) => {
                        self.push('\\');
                        self.push(next);
                    }
                    None => return self.clear = false,
                },
                Some('$') => self.dollar(),
                Some('`') => self.backtick(),
                Some(sign) => self.push(sign),
                None => return self.clear = false,
            }
        }
    }

    fn dollar(&mut self) {
        match self.signs.peek() {
            Some('(') => {
                self.signs.next();
                self.word().varies = true;
                self.inner();
            }
            Some('{') => {
                self.word().varies = true;
                for sign in self.signs.by_ref() {
                    match sign {
                        '}' => return,
                        // Something that is run may be the fallback of a variable.
                        '$' | '`' => self.clear = false,
                        _ => {}
                    }
                }
                self.clear = false;
            }
            // A quoted text with signs of its own.
            Some('\'' | '"') => self.clear = false,
            Some(next) if next.is_alphanumeric() || "_?!#@*-$".contains(*next) => {
                self.word().varies = true;
            }
            _ => self.push('$'),
        }
    }

    /// What is in brackets is a line of its own.
    fn inner(&mut self) {
        let (mut depth, mut text) = (1, String::new());
        for sign in self.signs.by_ref() {
            match sign {
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return self.pieces.push(Piece::Inner(text));
            }
            text.push(sign);
        }
        self.clear = false;
        self.pieces.push(Piece::Inner(text));
    }

    fn backtick(&mut self) {
        self.word().varies = true;
        let mut text = String::new();
        for sign in self.signs.by_ref() {
            if sign == '`' {
                return self.pieces.push(Piece::Inner(text));
            }
            text.push(sign);
        }
        self.clear = false;
        self.pieces.push(Piece::Inner(text));
    }

    fn redirect(&mut self, sign: char) {
        // A number before it is which output, and no word.
        if self.word.as_ref().is_some_and(|word| word.text.chars().all(|one| one.is_ascii_digit()))
        {
            self.word = None;
        }
        self.end_word();
        match (sign, self.signs.peek()) {
            (_, Some('(')) => {
                self.signs.next();
                self.word().varies = true;
                self.inner();
            }
            // What comes from a text in the line. Its end is not looked for.
            ('<', Some('<')) => self.clear = false,
            ('<', _) => {
                // A name that is read; it is no part of the command.
                self.skip_word();
            }
            (_, Some('&')) => {
                self.signs.next();
                self.skip_word();
            }
            (_, next) => {
                if matches!(next, Some('>' | '|')) {
                    self.signs.next();
                }
                self.output = true;
            }
        }
    }

    fn skip_word(&mut self) {
        while self.signs.next_if(|sign| *sign == ' ' || *sign == '\t').is_some() {}
        let plain = |sign: &char| sign.is_alphanumeric() || "_-./~".contains(*sign);
        while self.signs.next_if(plain).is_some() {}
    }
}
