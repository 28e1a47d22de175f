//! Layout of the help: commands in groups, and arguments beside their descriptions.

use clap::Command;

use crate::style::push_fmt;

/// Groups of `tamma --help`, in order. Every visible command is in exactly one of them.
const GROUPS: [(&str, &[&str]); 9] = [
    ("Start", &["try", "do", "init", "doctor", "help"]),
    ("This machine", &["up", "down", "status", "logs", "service", "sign-in"]),
    (
        "Tasks",
        &[
            "task", "inbox", "top", "chat", "pause", "resume", "retry", "cancel", "pipeline",
            "queue",
        ],
    ),
    (
        "Decisions",
        &[
            "approve",
            "reject",
            "revise-plan",
            "change-task",
            "accept",
            "reply",
            "answer",
            "council",
            "rate",
        ],
    ),
    ("Settings", &["config", "project", "forge", "completions"]),
    (
        "Team",
        &[
            "knowledge",
            "alert",
            "person",
            "organisation",
            "access",
            "audit",
            "permissions",
            "agents",
        ],
    ),
    ("Sign-in", &["login", "logout", "session", "token"]),
    (
        "Servers",
        &["serve", "work", "migrate", "maintenance", "keys", "mcp", "workspace", "capacity"],
    ),
    ("Evaluation", &["eval"]),
];

/// Description of the `help` command, which clap adds itself.
const HELP_COMMAND: &str = "Print help for a command";

/// Maximum width of a paragraph, in characters.
const WIDTH: usize = 100;

/// Sets the layout of `tamma --help` and of the help of every command.
pub(super) fn arrange(command: Command) -> Command {
    let template = grouped_template(&command);
    command.help_template(template).mut_subcommands(with_inline_details)
}

/// Template of `tamma --help`. clap cannot group commands, so they are part of the template.
fn grouped_template(command: &Command) -> String {
    let header = command.get_styles().get_header();
    let name_style = command.get_styles().get_literal();
    let width = GROUPS.iter().flat_map(|(_, names)| *names).map(|name| name.len()).max();
    let width = width.unwrap_or_default();
    let mut text = String::from("{about-with-newline}\n{usage-heading} {usage}\n\n");
    for (group, names) in GROUPS {
        push_fmt(&mut text, format_args!("{header}{group}:{header:#}\n"));
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map_or_else(|| HELP_COMMAND.to_owned(), ToString::to_string);
            push_fmt(
                &mut text,
                format_args!("  {name_style}{name:width$}{name_style:#}  {about}\n"),
            );
        }
        text.push('\n');
    }
    push_fmt(&mut text, format_args!("{header}Options:{header:#}\n{{options}}{{after-help}}"));
    text
}

/// Moves the details of a command to its template.
///
/// With a long description, clap would print every argument on two lines.
fn with_inline_details(command: Command) -> Command {
    let command = match command.get_long_about() {
        None => command,
        Some(details) => {
            let details: Vec<_> = details.to_string().lines().map(wrap).collect();
            let template = format!(
                "{}\n\n{{usage-heading}} {{usage}}\n\n{{all-args}}{{after-help}}",
                details.join("\n")
            );
            command.long_about(None).help_template(template)
        }
    };
    command.mut_subcommands(with_inline_details)
}

/// Breaks a line at spaces.
fn wrap(line: &str) -> String {
    let (mut text, mut column) = (String::new(), 0);
    for word in line.split_whitespace() {
        let width = word.chars().count();
        match column {
            0 => column = width,
            _ if column + 1 + width > WIDTH => {
                text.push('\n');
                column = width;
            }
            _ => {
                text.push(' ');
                column += 1 + width;
            }
        }
        text.push_str(word);
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::commands::Cli;

    #[test]
    fn every_visible_command_is_in_exactly_one_group() {
        let mut listed: Vec<_> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let mut command = Cli::command();
        command.build();
        let mut visible: Vec<_> = command
            .get_subcommands()
            .filter(|it| !it.is_hide_set())
            .map(|it| it.get_name().to_owned())
            .collect();
        listed.sort_unstable();
        visible.sort_unstable();
        assert_eq!(listed, visible);
    }

    #[test]
    fn command_definitions_are_valid() {
        arrange(Cli::command()).debug_assert();
    }

    #[test]
    fn long_lines_are_broken_at_spaces() {
        let text = wrap(&"four ".repeat(30));
        assert_eq!(text.lines().map(str::len).collect::<Vec<_>>(), [99, 49]);
    }
}
