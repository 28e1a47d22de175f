//! Analysis of a shell command line: the commands it runs and the files it writes.
//!
//! tree-sitter parses the line. The walk over its tree accepts only syntax that it knows, and checks
//! the tokens again, because the grammar is made for editors and not for judging. Each command is
//! then stripped of variable assignments, the directory of its program, and wrappers such as `env`,
//! `timeout` and `sh -c`. A line with anything else is unknown, and every possible reading of it
//! counts. Scripts and programs are opaque to this analysis, so the sandbox enforces the limits.

mod arithmetic;
mod git;
mod heredoc;
mod programs;
mod syntax;
#[cfg(test)]
mod tests;
mod words;
mod wrapper;

use std::collections::BTreeSet;

use words::ShellWord;

/// Maximum nesting of command lines and wrappers, as in `sh -c "env sh -c …"`.
const MAX_DEPTH: usize = 16;

/// Maximum number of words in a guessed command.
const MAX_GUESS_WORDS: usize = 12;

/// Maximum number of guessed commands per text.
const MAX_GUESSES: usize = 4_000;

/// Maximum number of folders that a line can change to.
const MAX_FOLDERS: usize = 16;

/// Commands and output files of a command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParsedCommandLine {
    /// Commands without wrappers.
    pub commands: Vec<String>,
    /// Files that output is redirected to.
    pub output_files: Vec<String>,
    /// Reason if the analysis is incomplete, for example because a variable names the program.
    pub unknown_reason: Option<String>,
}

/// Parses a command line.
pub fn parse(text: &str) -> ParsedCommandLine {
    let mut analysis = LineAnalysis::default();
    analysis.read_text(text, MAX_DEPTH);
    analysis.finish()
}

/// Command line that is being analysed, with the texts that are nested in it.
#[derive(Debug, Default)]
struct LineAnalysis {
    line: ParsedCommandLine,
    /// Folders that the line changes to, as far as they are known.
    folders: Vec<String>,
    /// Set if the line changes to a folder that is not known.
    has_unknown_folder: bool,
    /// Set if the shell evaluates the value of a variable or argument as arithmetic. That runs
    /// commands in the index of an array, as in `a[$(command)]`.
    evaluates_values: bool,
    /// Set if a literal contains `[`, and could be such a value.
    has_bracket: bool,
}

impl LineAnalysis {
    /// Reads a text and adds its commands. If it is not understood, every reading of it counts.
    fn read_text(&mut self, text: &str, depth: usize) {
        if let Err(reason) = syntax::read(self, text, depth) {
            self.mark_unknown(reason);
            self.guess(text);
        }
    }

    fn mark_unknown(&mut self, reason: &str) {
        self.line.unknown_reason.get_or_insert_with(|| reason.to_owned());
    }

    fn push(&mut self, program: &str, args: &[ShellWord]) {
        let line = format!("{program} {}", join_words(args));
        self.line.commands.push(line.trim_end().to_owned());
    }

    /// Adds the target of an output redirection.
    fn push_output(&mut self, file: &ShellWord) {
        let is_standard = matches!(file.text.as_str(), "/dev/null" | "/dev/stdout" | "/dev/stderr")
            || file.text.strip_prefix("/dev/fd/").is_some_and(is_number);
        if file.is_dynamic || file.has_tilde {
            self.mark_unknown("a variable names an output file");
        } else if !is_standard {
            self.line.output_files.push(file.text.clone());
        }
    }

    /// Adds a folder that following commands may run in.
    fn push_folder(&mut self, folder: Option<&ShellWord>) {
        let Some(folder) = folder.filter(|it| !it.is_dynamic && !it.has_tilde && it.text != "-")
        else {
            self.has_unknown_folder = true;
            return;
        };
        let below: Vec<String> =
            self.folders.iter().map(|it| format!("{it}/{}", folder.text)).collect();
        self.folders.push(folder.text.clone());
        if !folder.text.starts_with('/') {
            self.folders.extend(below);
        }
        if self.folders.len() > MAX_FOLDERS {
            self.folders.clear();
            self.has_unknown_folder = true;
        }
    }

    /// Adds every possible reading of a text: a command may start at each word.
    fn guess(&mut self, text: &str) {
        let is_separator =
            |character: char| !(character.is_alphanumeric() || "_-./".contains(character));
        let words: Vec<&str> = text
            .split(is_separator)
            .filter(|word| !word.is_empty())
            .map(|word| word.rsplit('/').next().unwrap_or(word))
            .take(MAX_GUESSES)
            .collect();
        for at in 0..words.len() {
            let end = words.len().min(at + MAX_GUESS_WORDS);
            self.line.commands.push(words[at..end].join(" "));
        }
    }

    /// Marks the line as unknown, and adds every possible reading of the words.
    fn guess_words(&mut self, reason: &str, words: &[ShellWord]) {
        self.mark_unknown(reason);
        self.guess(&join_words(words));
    }

    fn finish(mut self) -> ParsedCommandLine {
        if self.evaluates_values && self.has_bracket {
            self.mark_unknown("arithmetic can run a command in the index of an array");
        }
        let relative: Vec<String> =
            self.line.output_files.iter().filter(|it| !it.starts_with('/')).cloned().collect();
        if self.has_unknown_folder && !relative.is_empty() {
            self.mark_unknown("the folder of an output file is not known");
        }
        for folder in &self.folders {
            self.line.output_files.extend(relative.iter().map(|file| format!("{folder}/{file}")));
        }
        let mut seen = BTreeSet::new();
        self.line.commands.retain(|command| seen.insert(command.clone()));
        self.line
    }
}

fn join_words(words: &[ShellWord]) -> String {
    words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ")
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}
