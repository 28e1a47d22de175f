//! Suggestions for commands that do not exist.

use std::ffi::OsString;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Commands that people know by other names, with the command of Tamma.
const OTHER_NAMES: [(&str, &str); 33] = [
    ("abandon", "answer TASK abandon"),
    ("abort", "cancel TASK"),
    ("acknowledge", "answer TASK acknowledge"),
    ("ask-changes", "revise-plan TASK TEXT"),
    ("board", "sign-in"),
    ("continue", "answer TASK continue"),
    ("create", "task add TITLE"),
    ("delete", "cancel TASK"),
    ("demo", "try"),
    ("deny", "reject TASK"),
    ("edit", "task edit TASK, or tamma revise-plan TASK TEXT"),
    ("kill", "cancel TASK"),
    ("merge", "accept TASK"),
    ("modify", "revise-plan TASK TEXT, or tamma change-task TASK TEXT"),
    ("new", "task add TITLE"),
    ("open", "sign-in"),
    ("override", "answer TASK override"),
    ("ps", "status"),
    ("remove", "cancel TASK"),
    ("request-changes", "answer TASK request-changes"),
    ("restart", "down, then tamma up --detach"),
    ("rework", "answer TASK request-changes"),
    ("roll-back", "answer TASK roll-back"),
    ("rollback", "answer TASK roll-back"),
    ("run", "do TITLE"),
    ("server", "serve"),
    ("setup", "init"),
    ("skip", "answer TASK skip"),
    ("start", "up --detach"),
    ("stop", "down"),
    ("update", "change-task TASK TEXT"),
    ("web", "sign-in"),
    ("worker", "work"),
];

/// Commands with subcommands that people call without the command, in order of preference.
const GROUPS: [&str; 6] = ["task", "pipeline", "knowledge", "project", "queue", "config"];

/// Adds the command that a person probably meant to an error about an unknown command.
pub(super) fn add_suggestion(
    mut error: clap::Error,
    command: &Command,
    arguments: &[OsString],
) -> clap::Error {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return error;
    }
    let word = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) => word.clone(),
        _ => return error,
    };
    let is_top_level = arguments.get(1).is_some_and(|first| *first == *word);
    if let Some(meant) = suggest(&word, is_top_level, command) {
        let tip = format!("use `tamma {meant}`");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// Returns the command that an unknown word probably means.
fn suggest(word: &str, is_top_level: bool, command: &Command) -> Option<String> {
    // `tamma task cancel` is `tamma cancel`.
    if !is_top_level && command.find_subcommand(word).is_some_and(|it| !it.is_hide_set()) {
        return Some(word.to_owned());
    }
    if let Some((_, meant)) = OTHER_NAMES.iter().find(|(name, _)| *name == word) {
        return Some((*meant).to_owned());
    }
    // `tamma list` is `tamma task list`.
    let has_it = |group: &&&str| {
        let group = command.find_subcommand(group);
        group.is_some_and(|group| group.find_subcommand(word).is_some())
    };
    GROUPS.iter().find(has_it).filter(|_| is_top_level).map(|group| format!("{group} {word}"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::commands::Cli;

    #[test]
    fn suggestions_are_commands() {
        let command = Cli::command();
        for (name, meant) in OTHER_NAMES {
            assert!(command.find_subcommand(name).is_none(), "{name} is a command");
            for meant in meant.split(", ") {
                let mut words = meant.split(' ').filter(|it| !["or", "then", "tamma"].contains(it));
                let first = words.next().expect("a command");
                assert!(command.find_subcommand(first).is_some(), "{name}: {first}");
            }
        }
        let names: Vec<_> = OTHER_NAMES.iter().map(|(name, _)| *name).collect();
        assert!(names.is_sorted(), "in order");
    }

    #[test]
    fn commands_are_found_at_another_level() {
        let command = Cli::command();
        let suggest = |word, is_top_level| suggest(word, is_top_level, &command);
        assert_eq!(suggest("cancel", false).as_deref(), Some("cancel"));
        assert_eq!(suggest("list", true).as_deref(), Some("task list"));
        assert_eq!(suggest("watch", true).as_deref(), Some("task watch"));
        assert_eq!(suggest("accept", false).as_deref(), Some("accept"));
        assert_eq!(suggest("flurb", true), None);
        assert_eq!(suggest("eval-agent", false), None, "hidden commands are not suggested");
    }
}
