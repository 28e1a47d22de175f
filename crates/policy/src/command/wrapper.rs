//! Programs that run another program, and their options.

use super::LineAnalysis;
use super::words::ShellWord;

/// Options of a program that runs another program.
struct Wrapper {
    name: &'static str,
    /// Short options without a value.
    flags: &'static str,
    /// Short options with a value.
    values: &'static str,
    long_flags: &'static [&'static str],
    long_values: &'static [&'static str],
    /// Short options with which it runs nothing.
    queries: &'static str,
    /// Arguments before the program.
    positionals: usize,
}

impl Wrapper {
    const fn new(name: &'static str, flags: &'static str, values: &'static str) -> Self {
        let (long_flags, long_values): (&[_], &[_]) = (&[], &[]);
        Self { name, flags, values, long_flags, long_values, queries: "", positionals: 0 }
    }
}

/// Programs that run another program.
const WRAPPERS: &[Wrapper] = &[
    Wrapper {
        long_flags: &["ignore-environment", "null", "debug"],
        long_values: &["unset", "chdir"],
        ..Wrapper::new("env", "i0v", "uC")
    },
    Wrapper::new("nohup", "", ""),
    Wrapper { long_values: &["adjustment"], ..Wrapper::new("nice", "0123456789", "n") },
    Wrapper::new("exec", "cl", "a"),
    Wrapper { queries: "vV", ..Wrapper::new("command", "p", "") },
    Wrapper::new("builtin", "", ""),
    Wrapper::new("coproc", "", ""),
    Wrapper::new("noglob", "", ""),
    Wrapper::new("nocorrect", "", ""),
    Wrapper::new("time", "pvq", "f"),
    Wrapper { long_values: &["input", "output", "error"], ..Wrapper::new("stdbuf", "", "ioe") },
    Wrapper {
        long_flags: &["foreground", "preserve-status", "verbose"],
        long_values: &["kill-after", "signal"],
        positionals: 1,
        ..Wrapper::new("timeout", "v", "ks")
    },
    Wrapper { long_flags: &["ctty", "fork", "wait"], ..Wrapper::new("setsid", "cfw", "") },
    Wrapper {
        long_values: &["class", "classdata"],
        queries: "pPu",
        ..Wrapper::new("ionice", "t", "cn")
    },
    Wrapper::new("busybox", "", ""),
    Wrapper::new("chronic", "ve", ""),
    Wrapper::new("unbuffer", "p", ""),
    Wrapper {
        long_flags: &["null", "no-run-if-empty", "verbose", "exit", "interactive"],
        long_values: &["max-args", "max-lines", "max-procs", "max-chars", "delimiter", "arg-file"],
        ..Wrapper::new("xargs", "0rtxpo", "nLPsdaEI")
    },
];

/// Position of the program in the arguments of a wrapper.
enum InnerProgram {
    /// Index of its name.
    At(usize),
    /// The wrapper runs nothing.
    Nothing,
    /// An option is not known.
    Unknown,
}

impl LineAnalysis {
    /// Reads a program that runs another program. Returns `false` for other programs.
    pub(super) fn run_wrapper(&mut self, program: &str, args: &[ShellWord], depth: usize) -> bool {
        let Some(wrapper) = WRAPPERS.iter().find(|it| it.name == program) else { return false };
        if wrapper.name == "env" && self.read_split_string(args, depth) {
            return true;
        }
        // The grammar does not know `coproc NAME { … }`.
        if args.iter().any(|it| it.text == "{") {
            self.guess_words("a keyword is not understood", args);
        }
        match self.find_program(wrapper, args, depth) {
            InnerProgram::At(at) if wrapper.name == "xargs" => {
                self.run_xargs(&args[..at], &args[at..], depth);
            }
            InnerProgram::At(at) if at < args.len() => self.run(&args[at..], depth),
            InnerProgram::At(_) | InnerProgram::Nothing => self.push(program, args),
            InnerProgram::Unknown => {
                self.guess_words(
                    "a program runs another one with options that are not known",
                    args,
                );
            }
        }
        true
    }

    fn find_program(
        &mut self,
        wrapper: &Wrapper,
        args: &[ShellWord],
        depth: usize,
    ) -> InnerProgram {
        let mut at = 0;
        while let Some(word) = args.get(at) {
            let text = word.text.as_str();
            if word.can_split {
                return InnerProgram::Unknown;
            }
            if wrapper.name == "env"
                && let Some((name, value)) = assignment(text)
            {
                let value = ShellWord { text: value.to_owned(), ..word.clone() };
                self.check_variable(name, &value, depth);
                at += 1;
                continue;
            }
            if text == "--" {
                at += 1;
                break;
            }
            if text == "-" && wrapper.name == "env" {
                at += 1;
                continue;
            }
            let Some(option) = text.strip_prefix('-').filter(|it| !it.is_empty()) else { break };
            if word.is_dynamic {
                return InnerProgram::Unknown;
            }
            let takes_next = match option.strip_prefix('-') {
                Some(long) => {
                    let (name, value) =
                        long.split_once('=').map_or((long, None), |it| (it.0, Some(it.1)));
                    if wrapper.long_values.contains(&name) {
                        value.is_none()
                    } else if wrapper.long_flags.contains(&name) && value.is_none() {
                        false
                    } else {
                        return InnerProgram::Unknown;
                    }
                }
                None => match short_options(wrapper, option) {
                    Some(ShortOptions { is_query: true, .. }) => return InnerProgram::Nothing,
                    Some(ShortOptions { takes_next, .. }) => takes_next,
                    None => return InnerProgram::Unknown,
                },
            };
            at += 1;
            if takes_next {
                if args.get(at).is_none_or(|value| value.can_split) {
                    return InnerProgram::Unknown;
                }
                at += 1;
            }
        }
        let end = at + wrapper.positionals;
        if args.get(at..end).is_none_or(|skipped| skipped.iter().any(|it| it.can_split)) {
            return InnerProgram::Unknown;
        }
        InnerProgram::At(end)
    }

    /// Reads `env -S 'command'`. Returns `false` if there is no such option.
    fn read_split_string(&mut self, args: &[ShellWord], depth: usize) -> bool {
        let before_program = args.iter().take_while(|it| {
            it.text.starts_with('-') || assignment(&it.text).is_some() || it.is_dynamic
        });
        let splits = |word: &ShellWord| {
            let text = word.text.as_str();
            text.starts_with("--split") || (!text.starts_with("--") && text.contains('S'))
        };
        let count = before_program.clone().count();
        let has_option = before_program.clone().any(|it| it.text.starts_with('-') && splits(it));
        if !has_option {
            return false;
        }
        self.guess_words("`env` splits a text into a command", args);
        for word in args.iter().take(count + 1) {
            let text = word.text.trim_start_matches("--split-string=").trim_start_matches("-S");
            if text.contains(' ') {
                self.read_text(text, depth);
            }
        }
        true
    }

    /// Reads a command of `xargs`. Its input supplies more arguments.
    fn run_xargs(&mut self, options: &[ShellWord], command: &[ShellWord], depth: usize) {
        let replaced = options.iter().enumerate().find_map(|(at, word)| {
            let value = word.text.strip_prefix("-I")?;
            let next = options.get(at + 1).map(|it| it.text.as_str());
            if value.is_empty() { next } else { Some(value) }
        });
        let mut words: Vec<ShellWord> = command.to_vec();
        match replaced {
            Some(mark) => mark_replaced(&mut words, |text| text.contains(mark)),
            None => words.push(ShellWord::dynamic("…", true)),
        }
        if command.is_empty() { self.push("xargs", options) } else { self.run(&words, depth) }
    }

    /// Reads the commands of `find` and `fd`.
    pub(super) fn run_find(&mut self, program: &str, args: &[ShellWord], depth: usize) {
        self.push(program, args);
        let mut rest = args;
        while let Some((option, after)) = rest.split_first() {
            rest = after;
            match option.text.as_str() {
                "-exec" | "-execdir" | "-ok" | "-okdir" | "-x" | "-X" | "--exec"
                | "--exec-batch" => {
                    let end = after.iter().position(|it| it.text == ";" || it.text == "+");
                    let mut words = after[..end.unwrap_or(after.len())].to_vec();
                    rest = &after[end.unwrap_or(after.len())..];
                    mark_replaced(&mut words, |text| text.contains('{') && text.contains('}'));
                    if program == "fd" {
                        words.push(ShellWord::dynamic("…", true));
                    }
                    self.run(&words, depth);
                }
                "-fprint" | "-fprint0" | "-fls" | "-fprintf" => {
                    if let Some(file) = after.first() {
                        self.push_output(file);
                    }
                }
                text if text.starts_with("--exec") => {
                    self.guess_words("a program can run another command", args);
                }
                text if option.can_split && text.starts_with('$') => {
                    self.mark_unknown("a variable can add a command to `find`");
                }
                _ => {}
            }
        }
    }
}

/// Marks words that a program replaces as known only at run time.
fn mark_replaced(words: &mut [ShellWord], is_replaced: impl Fn(&str) -> bool) {
    words.iter_mut().filter(|word| is_replaced(&word.text)).for_each(|word| word.is_dynamic = true);
}

struct ShortOptions {
    takes_next: bool,
    is_query: bool,
}

/// Reads a group of short options, such as `-k5` or `-vp`.
fn short_options(wrapper: &Wrapper, group: &str) -> Option<ShortOptions> {
    let mut is_query = false;
    for (at, option) in group.char_indices() {
        if wrapper.values.contains(option) {
            let takes_next = at + option.len_utf8() == group.len();
            return Some(ShortOptions { takes_next, is_query });
        }
        is_query |= wrapper.queries.contains(option);
        if !wrapper.flags.contains(option) && !wrapper.queries.contains(option) {
            return None;
        }
    }
    Some(ShortOptions { takes_next: false, is_query })
}

/// Splits `NAME=value`.
pub(super) fn assignment(text: &str) -> Option<(&str, &str)> {
    text.split_once('=').filter(|(name, _)| {
        !name.is_empty() && name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_')
    })
}
