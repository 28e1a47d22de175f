//! Analysis of a shell command line: the commands it runs and the files it writes.
//!
//! A line is split wherever another command starts. Each command is stripped of variable
//! assignments, the directory of its program, and wrappers such as `env`, `timeout` and `sh -c`.
//! For text that cannot be parsed, every possible reading counts. Scripts and programs are opaque
//! to this analysis, so the sandbox enforces the limits.

mod lexer;

use lexer::{LineSegment, ShellWord, split_line};

/// Maximum nesting of commands.
const MAX_DEPTH: usize = 8;

/// Maximum number of words in a guessed command.
const MAX_GUESS_WORDS: usize = 12;

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
    let mut line = ParsedCommandLine::default();
    if !line.parse_text(text, MAX_DEPTH) {
        line.guess(text);
    }
    line.commands.dedup();
    line
}

impl ParsedCommandLine {
    /// Parses a text and adds its commands. Returns `false` if part of it was not understood.
    fn parse_text(&mut self, text: &str, depth: usize) -> bool {
        let Some(depth) = depth.checked_sub(1) else { return false };
        let (pieces, mut clear) = split_line(text);
        for piece in pieces {
            clear &= match piece {
                LineSegment::Command(words) => self.parse_command(&words, depth),
                LineSegment::Nested(text) => self.parse_text(&text, depth),
                LineSegment::Output(word) => {
                    if word.is_dynamic {
                        self.mark_unknown("a variable names an output file");
                    } else if !word.text.starts_with("/dev/") {
                        self.output_files.push(word.text);
                    }
                    true
                }
            };
        }
        clear
    }

    fn mark_unknown(&mut self, reason: &str) {
        self.unknown_reason.get_or_insert_with(|| reason.to_owned());
    }

    fn parse_command(&mut self, words: &[ShellWord], depth: usize) -> bool {
        let mut rest = words;
        while let Some((first, after)) = rest.split_first() {
            let is_keyword = matches!(
                first.text.as_str(),
                "if" | "then" | "else" | "elif" | "do" | "while" | "until" | "!" | "{" | "}"
            );
            if !is_keyword && !is_assignment(first) {
                break;
            }
            rest = after;
        }
        let Some((first, args)) = rest.split_first() else { return true };
        if first.is_dynamic {
            self.mark_unknown("a variable names the program");
            return true;
        }
        let program = first.text.rsplit('/').next().unwrap_or_default();
        match program {
            "fi" | "done" | "esac" | "for" | "select" | ":" => true,
            "case" | "function" | "alias" | "xargs" | "parallel" | "watch" => {
                self.guess_words(args);
                false
            }
            "env" | "nohup" | "nice" | "exec" | "command" | "builtin" | "time" | "stdbuf"
            | "timeout" | "setsid" | "ionice" | "busybox" | "chronic" | "unbuffer" => {
                self.parse_wrapper(program, args, depth)
            }
            "sh" | "bash" | "dash" | "zsh" | "ksh" | "ash" | "fish" => {
                self.parse_shell(program, args, depth)
            }
            "eval" => {
                if args.iter().any(|word| word.is_dynamic) {
                    self.mark_unknown("a variable contains the command");
                }
                self.parse_text(&join_words(args), depth)
            }
            "find" | "fd" => {
                self.push(program, args);
                let exec_options = ["-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec"];
                match args.iter().position(|word| exec_options.contains(&word.text.as_str())) {
                    Some(at) => self.parse_command(args.get(at + 1..).unwrap_or_default(), depth),
                    None => true,
                }
            }
            "git" => {
                self.parse_git(args);
                true
            }
            "npm" | "pnpm" | "yarn" | "cargo" | "docker" | "podman" | "gem" | "twine" => {
                let options = args.iter().take_while(|word| word.text.starts_with(['-', '+']));
                let options = options.count();
                self.push(program, &args[options..]);
                // The option may take a value; then the subcommand comes later.
                (1..args.len().min(options + 3))
                    .filter(|_| options > 0)
                    .for_each(|at| self.push(program, &args[at..]));
                true
            }
            _ => {
                self.push(program, args);
                true
            }
        }
    }

    fn push(&mut self, program: &str, args: &[ShellWord]) {
        let line = format!("{program} {}", join_words(args));
        self.commands.push(line.trim_end().to_owned());
    }

    /// Parses the arguments of a program that runs another program, such as `env` or `timeout`.
    fn parse_wrapper(&mut self, program: &str, args: &[ShellWord], depth: usize) -> bool {
        if args.is_empty() {
            self.push(program, args);
            return true;
        }
        let splits =
            |word: &ShellWord| word.text.starts_with("-S") || word.text == "--split-string";
        if program == "env" && args.iter().any(splits) {
            self.guess_words(args);
            return false;
        }
        let options = args.iter().take_while(|word| word.text.starts_with('-')).count();
        let skip = match program {
            "timeout" => options + 1,
            _ => options,
        };
        // An option's value can look like a program. Consider both readings.
        if options > 0 {
            self.guess_words(args);
        }
        self.parse_command(args.get(skip..).unwrap_or_default(), depth)
    }

    fn parse_shell(&mut self, program: &str, args: &[ShellWord], depth: usize) -> bool {
        let flags = |word: &&ShellWord| word.text.starts_with(['-', '+']);
        let option_count = args.iter().take_while(flags).count();
        let runs_text = args[..option_count]
            .iter()
            .any(|word| !word.text.starts_with("--") && word.text.contains('c'));
        if !runs_text {
            // Runs a script file, or standard input.
            if option_count == args.len() {
                self.mark_unknown("a shell reads commands from its input");
            }
            self.push(program, args);
            return true;
        }
        match args[option_count..].iter().find(|word| !word.text.is_empty()) {
            Some(text) if text.is_dynamic => {
                self.mark_unknown("a variable contains the command");
                self.parse_text(&text.text, depth)
            }
            Some(text) => self.parse_text(&text.text, depth),
            None => false,
        }
    }

    fn parse_git(&mut self, args: &[ShellWord]) {
        let mut rest = args;
        while let Some((option, after)) = rest.split_first() {
            if !option.text.starts_with('-') {
                break;
            }
            let takes_value = matches!(
                option.text.as_str(),
                "-C" | "-c"
                    | "--git-dir"
                    | "--work-tree"
                    | "--namespace"
                    | "--config-env"
                    | "--super-prefix"
                    | "--exec-path"
                    | "--attr-source"
            );
            if option.text.starts_with("-c") || option.text.starts_with("--config-env") {
                let setting = if option.text == "-c" { after.first() } else { Some(option) };
                if setting.is_none_or(|word| word.is_dynamic || word.text.contains("alias.")) {
                    self.mark_unknown("a git alias hides the command");
                }
            }
            let skip = usize::from(takes_value && !option.text.contains('='));
            rest = after.get(skip..).unwrap_or_default();
        }
        if rest.first().is_some_and(|word| word.is_dynamic) {
            self.mark_unknown("a variable names the git command");
        }
        self.push("git", rest);
    }

    /// Adds every possible reading of a text: a command may start at each word.
    fn guess(&mut self, text: &str) {
        let is_separator =
            |character: char| !(character.is_alphanumeric() || "_-./".contains(character));
        let words: Vec<&str> = text
            .split(is_separator)
            .filter(|word| !word.is_empty())
            .map(|word| word.rsplit('/').next().unwrap_or(word))
            .collect();
        for at in 0..words.len() {
            let end = words.len().min(at + MAX_GUESS_WORDS);
            self.commands.push(words[at..end].join(" "));
        }
    }

    fn guess_words(&mut self, words: &[ShellWord]) {
        self.guess(&join_words(words));
    }
}

fn join_words(words: &[ShellWord]) -> String {
    words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ")
}

fn is_assignment(word: &ShellWord) -> bool {
    word.text.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty()
            && name.chars().all(|character| character.is_alphanumeric() || character == '_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(line: &str, command: &str) -> bool {
        let read = parse(line);
        read.commands.iter().any(|one| {
            one == command || one.strip_prefix(command).is_some_and(|rest| rest.starts_with(' '))
        })
    }

    #[test]
    fn command_is_found_inside_wrappers_and_nested_lines() {
        for line in [
            "git push",
            "git push origin main",
            "/usr/bin/git push",
            "GIT_SSH=x git push",
            "env A=1 B=2 git push",
            "env -u HOME git push",
            "cd x && git push",
            "true; git push",
            "true || git push &",
            "echo a | git push",
            "(git push)",
            "{ git push; }",
            "if true; then git push; fi",
            "sh -c 'git push'",
            "bash -lc \"cd x && git push\"",
            "sh -c \"bash -c 'git push'\"",
            "git -C /x -c a.b=c --no-pager push",
            "git --git-dir /x push",
            "g\"it\" pu'sh'",
            "g\\it push",
            "echo $(git push)",
            "echo `git push`",
            "echo \"$(git push)\"",
            "cat <(git push)",
            "timeout 5 git push",
            "timeout -k 3 5 git push",
            "nohup git push",
            "nice -n 5 git push",
            "exec git push",
            "command git push",
            "eval git push",
            "eval \"git push\"",
            "find . -exec git push \\;",
            "echo x | xargs git push",
            "echo x | xargs -n 1 git push",
            "! git push",
            "git\tpush",
            "true\ngit push",
            "env -S 'git push'",
            "busybox sh -c 'git push'",
        ] {
            assert!(runs(line, "git push"), "{line}: {:?}", parse(line));
        }
        assert!(runs("cargo +nightly publish", "cargo publish"));
        assert!(runs("npm --registry x publish", "npm publish"));
    }

    #[test]
    fn quoted_text_is_not_a_command() {
        for line in ["echo 'git push'", "git commit -m 'git push it'", "ls # git push", "git log"] {
            let read = parse(line);
            assert!(!runs(line, "git push") && read.unknown_reason.is_none(), "{line}: {read:?}");
        }
    }

    #[test]
    fn line_that_depends_on_a_variable_is_unknown() {
        for line in [
            "$X push",
            "git $X",
            "sh -c \"$X\"",
            "eval $X",
            "git -c alias.x=push x",
            "curl x | sh",
            "echo a > $X",
            "${X} push",
        ] {
            assert!(parse(line).unknown_reason.is_some(), "{line}: {:?}", parse(line));
        }
        assert!(parse("echo $HOME").unknown_reason.is_none());
    }

    #[test]
    fn output_redirections_are_listed() {
        assert_eq!(parse("echo a > b.txt 2>&1").output_files, ["b.txt"]);
        assert_eq!(parse("echo a >>b.txt; cat x 2>/dev/null").output_files, ["b.txt"]);
        assert_eq!(parse("cat < a &> b").output_files, ["b"]);
    }

    #[test]
    fn malformed_lines_are_parsed_without_panic() {
        for line in ["", "'", "\"", "`", "$(", "((((", "&&&", ">", "<<EOF\ngit push\nEOF", "\\"] {
            let _ = parse(line);
        }
        assert!(runs("cat <<EOF\n$(git push)\nEOF", "git push"));
        assert!(runs("'unfinished git push", "git push"));
    }
}
