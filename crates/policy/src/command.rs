//! What a command line runs, as far as its words say.
//!
//! A line is taken apart at everything that starts another command, and each command is stripped of
//! what only stands around it: variables, the folder of the program, `env`, `timeout`, `sh -c` and
//! their like. What cannot be taken apart counts as the worst of all that its words could mean. None
//! of this sees into a script or a program; the sandbox is what holds.

mod words;

use words::{Piece, Word, pieces};

/// How deep commands may be in commands.
const DEPTH: usize = 8;

/// How many words a guess goes on for.
const GUESS: usize = 12;

/// What a line runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Line {
    /// The commands in it, each with nothing around it.
    pub commands: Vec<String>,
    /// The files that it sends output to.
    pub writes: Vec<String>,
    /// Why it cannot be told what it runs, if it cannot.
    pub blind: Option<String>,
}

/// Takes a line apart.
pub fn read(text: &str) -> Line {
    let mut line = Line::default();
    if !line.take(text, DEPTH) {
        line.guess(text);
    }
    line.commands.dedup();
    line
}

impl Line {
    /// Takes a text in. False if not all of it is understood.
    fn take(&mut self, text: &str, depth: usize) -> bool {
        let Some(depth) = depth.checked_sub(1) else { return false };
        let (pieces, mut clear) = pieces(text);
        for piece in pieces {
            clear &= match piece {
                Piece::Command(words) => self.command(&words, depth),
                Piece::Inner(text) => self.take(&text, depth),
                Piece::Output(word) => {
                    if word.varies {
                        self.blind("it writes to a file that a variable names");
                    } else if !word.text.starts_with("/dev/") {
                        self.writes.push(word.text);
                    }
                    true
                }
            };
        }
        clear
    }

    fn blind(&mut self, why: &str) {
        self.blind.get_or_insert_with(|| why.to_owned());
    }

    fn command(&mut self, words: &[Word], depth: usize) -> bool {
        let mut rest = words;
        while let Some((first, after)) = rest.split_first() {
            let around = matches!(
                first.text.as_str(),
                "if" | "then" | "else" | "elif" | "do" | "while" | "until" | "!" | "{" | "}"
            );
            if !around && !is_assignment(first) {
                break;
            }
            rest = after;
        }
        let Some((first, args)) = rest.split_first() else { return true };
        if first.varies {
            self.blind("a variable names the program");
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
                self.wrapped(program, args, depth)
            }
            "sh" | "bash" | "dash" | "zsh" | "ksh" | "ash" | "fish" => {
                self.shell(program, args, depth)
            }
            "eval" => {
                if args.iter().any(|word| word.varies) {
                    self.blind("a variable holds what it runs");
                }
                self.take(&joined(args), depth)
            }
            "find" | "fd" => {
                self.push(program, args);
                let runs = ["-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec"];
                match args.iter().position(|word| runs.contains(&word.text.as_str())) {
                    Some(at) => self.command(args.get(at + 1..).unwrap_or_default(), depth),
                    None => true,
                }
            }
            "git" => {
                self.git(args);
                true
            }
            "npm" | "pnpm" | "yarn" | "cargo" | "docker" | "podman" | "gem" | "twine" => {
                let options = args.iter().take_while(|word| word.text.starts_with(['-', '+']));
                let options = options.count();
                self.push(program, &args[options..]);
                // An option before the name may have a value of its own, and then the name is later.
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

    fn push(&mut self, program: &str, args: &[Word]) {
        let line = format!("{program} {}", joined(args));
        self.commands.push(line.trim_end().to_owned());
    }

    /// A program that runs another: what is an option of it, and what is the other?
    fn wrapped(&mut self, program: &str, args: &[Word], depth: usize) -> bool {
        if args.is_empty() {
            self.push(program, args);
            return true;
        }
        let splits = |word: &Word| word.text.starts_with("-S") || word.text == "--split-string";
        if program == "env" && args.iter().any(splits) {
            self.guess_words(args);
            return false;
        }
        let options = args.iter().take_while(|word| word.text.starts_with('-')).count();
        let skip = match program {
            "timeout" => options + 1,
            _ => options,
        };
        // An option may have a value, which looks like a program. Both ways of reading count.
        if options > 0 {
            self.guess_words(args);
        }
        self.command(args.get(skip..).unwrap_or_default(), depth)
    }

    fn shell(&mut self, program: &str, args: &[Word], depth: usize) -> bool {
        let flags = |word: &&Word| word.text.starts_with(['-', '+']);
        let given = args.iter().take_while(flags).count();
        let runs_text = args[..given]
            .iter()
            .any(|word| !word.text.starts_with("--") && word.text.contains('c'));
        if !runs_text {
            // A script, or what comes in through a pipe.
            if given == args.len() {
                self.blind("a shell runs what it is sent");
            }
            self.push(program, args);
            return true;
        }
        match args[given..].iter().find(|word| !word.text.is_empty()) {
            Some(text) if text.varies => {
                self.blind("a variable holds what it runs");
                self.take(&text.text, depth)
            }
            Some(text) => self.take(&text.text, depth),
            None => false,
        }
    }

    fn git(&mut self, args: &[Word]) {
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
                if setting.is_none_or(|word| word.varies || word.text.contains("alias.")) {
                    self.blind("git is given another name for a command");
                }
            }
            let skip = usize::from(takes_value && !option.text.contains('='));
            rest = after.get(skip..).unwrap_or_default();
        }
        if rest.first().is_some_and(|word| word.varies) {
            self.blind("a variable names what git does");
        }
        self.push("git", rest);
    }

    /// Everything that the words could mean: each may be where a command starts.
    fn guess(&mut self, text: &str) {
        let apart = |sign: char| !(sign.is_alphanumeric() || "_-./".contains(sign));
        let words: Vec<&str> = text
            .split(apart)
            .filter(|word| !word.is_empty())
            .map(|word| word.rsplit('/').next().unwrap_or(word))
            .collect();
        for at in 0..words.len() {
            let end = words.len().min(at + GUESS);
            self.commands.push(words[at..end].join(" "));
        }
    }

    fn guess_words(&mut self, words: &[Word]) {
        self.guess(&joined(words));
    }
}

fn joined(words: &[Word]) -> String {
    words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ")
}

fn is_assignment(word: &Word) -> bool {
    word.text.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|sign| sign.is_alphanumeric() || sign == '_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(line: &str, command: &str) -> bool {
        let read = read(line);
        read.commands.iter().any(|one| {
            one == command || one.strip_prefix(command).is_some_and(|rest| rest.starts_with(' '))
        })
    }

    #[test]
    fn a_command_is_found_whatever_stands_around_it() {
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
            assert!(runs(line, "git push"), "{line}: {:?}", read(line));
        }
        assert!(runs("cargo +nightly publish", "cargo publish"));
        assert!(runs("npm --registry x publish", "npm publish"));
    }

    #[test]
    fn words_that_run_nothing_are_no_commands() {
        for line in ["echo 'git push'", "git commit -m 'git push it'", "ls # git push", "git log"] {
            let read = read(line);
            assert!(!runs(line, "git push") && read.blind.is_none(), "{line}: {read:?}");
        }
    }

    #[test]
    fn what_a_variable_decides_cannot_be_told() {
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
            assert!(read(line).blind.is_some(), "{line}: {:?}", read(line));
        }
        assert!(read("echo $HOME").blind.is_none());
    }

    #[test]
    fn what_is_written_by_the_line_itself_is_told() {
        assert_eq!(read("echo a > b.txt 2>&1").writes, ["b.txt"]);
        assert_eq!(read("echo a >>b.txt; cat x 2>/dev/null").writes, ["b.txt"]);
        assert_eq!(read("cat < a &> b").writes, ["b"]);
    }

    #[test]
    fn no_text_is_too_strange_to_be_read() {
        for line in ["", "'", "\"", "`", "$(", "((((", "&&&", ">", "<<EOF\ngit push\nEOF", "\\"] {
            let _ = read(line);
        }
        assert!(runs("cat <<EOF\n$(git push)\nEOF", "git push"));
        assert!(runs("'unfinished git push", "git push"));
    }
}
