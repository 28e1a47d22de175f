//! Programs that run or hide other commands.

use super::LineAnalysis;
use super::words::ShellWord;
use super::wrapper::assignment;

impl LineAnalysis {
    /// Adds the command that the words run.
    pub(super) fn run(&mut self, words: &[ShellWord], depth: usize) {
        let mut words = words;
        // After a keyword such as `time`, the grammar takes assignments for arguments.
        while let [first, rest @ ..] = words
            && let Some((name, value)) = assignment(&first.text)
            && !rest.is_empty()
        {
            let value = ShellWord { text: value.to_owned(), ..first.clone() };
            self.check_variable(name, &value, depth);
            words = rest;
        }
        let Some((first, args)) = words.split_first() else { return };
        let Some(depth) = depth.checked_sub(1) else {
            return self.guess_words("commands are nested too deeply", words);
        };
        if first.has_brace_expansion() {
            return self.guess_words("a brace expansion names the program", words);
        }
        if first.is_dynamic {
            return self.mark_unknown("a variable or a pattern names the program");
        }
        let program = first.text.rsplit('/').next().unwrap_or_default();
        if let Some(subcommand) = program.strip_prefix("git-") {
            let words: Vec<_> =
                [ShellWord::literal(subcommand)].into_iter().chain(args.iter().cloned()).collect();
            return self.run_git(&words, depth);
        }
        if self.run_wrapper(program, args, depth) {
            return;
        }
        match program {
            ":" => {}
            // Shells do not agree on what starts here, or the grammar did not see it.
            "" | "if" | "then" | "else" | "elif" | "fi" | "do" | "done" | "while" | "until"
            | "for" | "select" | "case" | "esac" | "in" | "function" | "{" | "}" | "!" | "[["
            | "]]" | "((" | "repeat" | "-" => {
                self.guess_words("a keyword is not understood", words);
            }
            _ if program.starts_with('=') => {
                self.guess_words("a pattern names the program", words);
            }
            "alias" if args.iter().any(|it| it.is_dynamic || it.text.contains('=')) => {
                self.guess_words("an alias hides a command", args);
            }
            "bind" | "complete" | "compgen" | "enable" | "shopt" | "hash" | "parallel"
            | "watch" | "flock" | "strace" | "ltrace" | "taskset" | "chrt" | "prlimit"
            | "setpriv" | "unshare" | "nsenter" | "chroot" | "script" | "systemd-run"
            | "runuser" => {
                self.push(program, args);
                self.guess_words("a program can run another command", args);
            }
            "sh" | "bash" | "dash" | "zsh" | "ksh" | "ash" | "fish" => {
                self.run_shell(program, args, depth);
            }
            "eval" => self.read_joined(args, depth),
            "trap" => self.run_trap(args, depth),
            "source" | "." => {
                let reads_input = args.first().is_none_or(|it| {
                    it.is_dynamic || it.text == "-" || it.text.starts_with("/dev/")
                });
                if reads_input {
                    self.mark_unknown("a shell reads commands from its input");
                }
                self.push(program, args);
            }
            "find" | "fd" => self.run_find(program, args, depth),
            "git" => self.run_git(args, depth),
            "npm" | "pnpm" | "yarn" | "cargo" | "docker" | "podman" | "gem" | "twine" => {
                self.run_package_manager(program, args);
            }
            "cd" | "pushd" | "popd" => {
                let is_option = |it: &&ShellWord| it.text.starts_with('-') && it.text.len() > 1;
                self.push_folder(args.iter().find(|it| !is_option(it)));
                self.push(program, args);
            }
            "let" | "read" | "getopts" | "mapfile" | "readarray" | "wait" => {
                self.evaluates_values = true;
                if args.iter().any(|it| it.text.starts_with("-C")) {
                    self.guess_words("a program can run another command", args);
                }
                self.push(program, args);
            }
            "printf" | "test" | "[" => {
                self.evaluates_values |= args.iter().any(|it| it.text.starts_with("-v"));
                self.push(program, args);
            }
            _ => self.push(program, args),
        }
    }

    fn run_shell(&mut self, program: &str, args: &[ShellWord], depth: usize) {
        let (mut at, mut runs_text, mut reads_input) = (0, false, false);
        while let Some(word) = args.get(at) {
            if word.can_split {
                return self.guess_words("a variable contains the command", args);
            }
            let text = word.text.as_str();
            let Some(group) = text.strip_prefix(['-', '+']) else { break };
            at += 1;
            if group.is_empty() || text == "--" {
                break;
            }
            if group.starts_with('-') {
                at += usize::from(matches!(group, "-rcfile" | "-init-file"));
                if group.starts_with("-rcfile") || group.starts_with("-init-file") {
                    self.mark_unknown("a shell reads commands from a file");
                }
                continue;
            }
            runs_text |= group.contains('c');
            reads_input |= group.contains('s');
            // Names of options follow.
            at += group.matches(['o', 'O']).count();
        }
        match args.get(at) {
            Some(text) if runs_text => {
                if text.is_dynamic {
                    self.mark_unknown("a variable contains the command");
                }
                self.read_text(&text.text, depth);
            }
            Some(script) if !reads_input => {
                // Runs a script file.
                if script.is_dynamic || script.text.starts_with("/dev/") {
                    self.mark_unknown("a shell reads commands from its input");
                }
                self.push(program, args);
            }
            _ => {
                let only_asks =
                    args.iter().any(|it| matches!(it.text.as_str(), "--version" | "--help"));
                if !only_asks {
                    self.mark_unknown("a shell reads commands from its input");
                }
                self.push(program, args);
            }
        }
    }

    fn run_trap(&mut self, args: &[ShellWord], depth: usize) {
        self.push("trap", args);
        let args = match args.split_first() {
            Some((first, rest)) if first.text == "--" => rest,
            Some((first, _)) if matches!(first.text.as_str(), "-" | "-l" | "-p" | "") => return,
            _ => args,
        };
        if let Some(action) = args.first() {
            if action.is_dynamic {
                self.mark_unknown("a variable contains the command");
            }
            // A single argument is the name of a signal.
            if args.len() > 1 {
                self.read_text(&action.text, depth);
            }
        }
    }

    fn run_package_manager(&mut self, program: &str, args: &[ShellWord]) {
        let options = args.iter().take_while(|word| word.text.starts_with(['-', '+'])).count();
        self.push(program, &args[options..]);
        // The option may take a value; then the subcommand comes later.
        let last = if options > 0 { args.len().min(options + 3) } else { 0 };
        (1..last).for_each(|at| self.push(program, &args[at..]));
        let first_words = &args[..args.len().min(options + 1)];
        if first_words.iter().any(|word| word.is_dynamic) {
            self.mark_unknown("a variable names the subcommand");
        }
    }

    /// Checks the assignment of a variable that can run a command.
    pub(super) fn check_variable(&mut self, name: &str, value: &ShellWord, depth: usize) {
        match name {
            "BASH_ENV" | "ENV" | "SHELLOPTS" | "BASHOPTS" | "LD_PRELOAD" | "GIT_EXEC_PATH" => {
                self.mark_unknown("a variable changes the commands that run");
            }
            _ if name.starts_with("GIT_CONFIG") => {
                self.mark_unknown("a git setting can run a command");
            }
            "PROMPT_COMMAND"
            | "PS0"
            | "PS1"
            | "PS2"
            | "PS4"
            | "PAGER"
            | "EDITOR"
            | "VISUAL"
            | "MANPAGER"
            | "LESSOPEN"
            | "SSH_ASKPASS"
            | "GIT_SSH"
            | "GIT_SSH_COMMAND"
            | "GIT_EXTERNAL_DIFF"
            | "GIT_PAGER"
            | "GIT_EDITOR"
            | "GIT_SEQUENCE_EDITOR"
            | "GIT_ASKPASS"
            | "GIT_PROXY_COMMAND" => {
                if value.is_dynamic {
                    self.mark_unknown("a variable contains the command");
                }
                if !matches!(value.text.as_str(), "" | "cat" | "true" | ":") {
                    self.read_text(&value.text, depth);
                }
            }
            _ => {}
        }
    }
}
