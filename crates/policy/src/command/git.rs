//! Commands of git: options before the subcommand, aliases, and subcommands that run programs.

use super::words::ShellWord;
use super::{LineAnalysis, join_words};

/// Settings that `git -c` can have without running a program.
const HARMLESS_SETTINGS: &[&str] = &[
    "user.",
    "author.",
    "committer.",
    "color.",
    "advice.",
    "commit.gpgsign",
    "tag.gpgsign",
    "core.quotepath",
    "core.autocrlf",
    "core.longpaths",
    "core.pager=cat",
    "core.pager=",
    "core.fsmonitor=false",
    "init.defaultbranch",
    "safe.directory",
    "gc.auto",
    "diff.renames",
    "diff.algorithm",
    "diff.noprefix",
    "merge.conflictstyle",
    "pull.rebase",
    "push.default",
    "rebase.autosquash",
    "log.",
];

impl LineAnalysis {
    pub(super) fn run_git(&mut self, args: &[ShellWord], depth: usize) {
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
            let value = after.first().filter(|_| takes_value);
            if option.is_dynamic || value.is_some_and(|it| it.can_split) {
                self.mark_unknown("a variable is an option of git");
            }
            if option.text.starts_with("-c") && !option.text.starts_with("--") {
                let setting = if option.text == "-c" { value } else { Some(option) };
                if !setting.is_some_and(is_harmless_setting) {
                    self.mark_unknown("a git setting can run a command");
                }
            }
            if option.text.starts_with("--config-env") || option.text.starts_with("--exec-path=") {
                self.mark_unknown("a git setting can run a command");
            }
            rest = after.get(usize::from(takes_value)..).unwrap_or_default();
        }
        let Some((subcommand, args)) = rest.split_first() else { return self.push("git", args) };
        if subcommand.is_dynamic {
            self.mark_unknown("a variable names the git command");
        }
        self.push("git", rest);
        self.run_git_subcommand(&subcommand.text, args, depth);
    }

    fn run_git_subcommand(&mut self, subcommand: &str, args: &[ShellWord], depth: usize) {
        match subcommand {
            "bisect" => match args.split_first() {
                Some((first, command)) if first.text == "run" => self.run(command, depth),
                Some((first, _)) if first.is_dynamic => {
                    self.mark_unknown("a variable names the git command");
                }
                _ => {}
            },
            "submodule" => {
                if let Some(at) = args.iter().position(|it| it.text == "foreach") {
                    self.read_joined(&args[at + 1..], depth);
                }
            }
            "rebase" => {
                for (at, option) in args.iter().enumerate() {
                    let text = option.text.as_str();
                    let value = match text.strip_prefix("--exec=") {
                        Some(value) => Some(value),
                        None if text == "--exec" || text == "-x" => {
                            args.get(at + 1).map(|it| it.text.as_str())
                        }
                        None => text.strip_prefix("-x"),
                    };
                    if let Some(value) = value {
                        self.read_text(value, depth);
                    }
                }
            }
            "config" => {
                let hides = |it: &ShellWord| {
                    it.is_dynamic || it.text.to_ascii_lowercase().starts_with("alias.")
                };
                if args.iter().any(hides) {
                    self.mark_unknown("a git alias hides the command");
                }
            }
            "filter-branch" | "for-each-repo" | "difftool" | "mergetool" | "hook" => {
                self.guess_words("a git command runs another command", args);
            }
            // Plumbing behind `git push`.
            "send-pack" | "http-push" => self.push("git push", args),
            _ => {}
        }
    }

    /// Reads words that a program joins to a command line.
    pub(super) fn read_joined(&mut self, words: &[ShellWord], depth: usize) {
        if words.iter().any(|word| word.is_dynamic) {
            self.mark_unknown("a variable contains the command");
        }
        self.read_text(&join_words(words), depth);
    }
}

fn is_harmless_setting(setting: &ShellWord) -> bool {
    let text = setting.text.to_ascii_lowercase();
    let text = text.strip_prefix("-c").unwrap_or(&text);
    let name = text.split_once('=').map_or(text, |(name, _)| name);
    !setting.can_split
        && HARMLESS_SETTINGS.iter().any(|harmless| {
            if harmless.ends_with('.') {
                name.starts_with(harmless)
            } else {
                name == *harmless || text == *harmless
            }
        })
}
