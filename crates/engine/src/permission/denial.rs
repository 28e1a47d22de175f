//! Text of a denial for the agent: the reason, and the allowed alternative.

use tamma_policy::command;

use super::{PermissionKind, PermissionRequest, command_line};
use crate::agent::RunMode;

/// Reason for denying a plan mode of the agent.
pub(crate) const NO_PLAN_MODE: &str = "Tamma plans in runs of its own";

/// Returns the text of a denial: `Denied: <reason>. Instead: <alternative>.`
pub(crate) fn denial_text(mode: RunMode, request: &PermissionRequest, reason: &str) -> String {
    let reason = reason.trim().trim_end_matches('.');
    format!("Denied: {reason}. Instead: {}.", alternative(mode, request, reason))
}

/// Returns the text with the denied call in front, for lists of denials.
pub(crate) fn listed_denial(mode: RunMode, request: &PermissionRequest, reason: &str) -> String {
    /// Maximum length of a shown call, in characters.
    const MAX_SHOWN: usize = 200;
    let call = match (request.kind, request.paths.as_slice()) {
        (PermissionKind::Command, _) => command_line(request).to_owned(),
        (_, []) => request.title.clone(),
        (kind, paths) => {
            let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
            format!("{kind} {}", paths.join(", "))
        }
    };
    let call: String = call.lines().next().unwrap_or_default().chars().take(MAX_SHOWN).collect();
    format!("`{call}`: {}", denial_text(mode, request, reason))
}

/// Returns what the agent can do instead, as an imperative clause.
fn alternative(mode: RunMode, request: &PermissionRequest, reason: &str) -> &'static str {
    if reason == NO_PLAN_MODE {
        return plan_mode_alternative(mode);
    }
    if reason.ends_with("is outside the worktree") {
        return "use a path below your working folder, or below `$TMPDIR` for temporary files";
    }
    match request.kind {
        PermissionKind::Command if mode.is_read_only() => {
            "use your read and search tools, or `ls`, `cat`, `head`, `tail`, `wc`, `grep`, \
             `git status`, `git log` or `git ls-files`; say in your submission what you could \
             not run"
        }
        PermissionKind::Command => command_alternative(command_line(request), reason),
        PermissionKind::Write if mode.is_read_only() => match mode {
            RunMode::Plan => "list the file in the plan's `file_changes`; a later run changes it",
            _ => "describe the change in your submission; this run changes nothing",
        },
        PermissionKind::Write => write_alternative(request),
        PermissionKind::Read => "read files below your working folder",
        PermissionKind::Other => {
            "use your own tools to read, search, edit and run commands, or the tools of the \
             server `tamma`"
        }
    }
}

fn plan_mode_alternative(mode: RunMode) -> &'static str {
    match mode {
        RunMode::Plan => "read what you need, then submit the plan with `submit_plan`",
        RunMode::Implement => "carry out the approved plan now; `get_task` shows it",
        _ => "read what you need, then submit your result with the tool that the prompt names",
    }
}

fn command_alternative(line: &str, reason: &str) -> &'static str {
    if reason.starts_with("cannot determine the commands") {
        return "write the command out: literal program names and paths, without `eval`, command \
                substitution or a variable as the program; put longer logic into a script in your \
                working folder and run that";
    }
    let parsed = command::parse(line);
    let starts_with = |prefixes: &[&str]| {
        parsed.commands.iter().any(|command| {
            prefixes.iter().any(|prefix| {
                command == prefix
                    || command.strip_prefix(prefix).is_some_and(|it| it.starts_with(' '))
            })
        })
    };
    if starts_with(&["git push", "git remote"]) {
        "leave the change in your working folder; Tamma commits it, reviews it and delivers it"
    } else if starts_with(&["sudo", "su", "doas"]) {
        "do it as this user with what is installed; if something is missing, ask with `ask_human`"
    } else if starts_with(&[
        "npm publish",
        "pnpm publish",
        "yarn publish",
        "cargo publish",
        "twine upload",
        "gem push",
        "docker push",
    ]) {
        "leave it out; a person publishes after the change is merged"
    } else {
        "reach the goal without it; if it is needed, ask with `ask_human` and say why"
    }
}

fn write_alternative(request: &PermissionRequest) -> &'static str {
    let ends_with = |name: &str| request.paths.iter().any(|path| path.ends_with(name));
    let in_git =
        request.paths.iter().any(|path| path.components().any(|part| part.as_os_str() == ".git"));
    if in_git {
        "change only files of the project; Tamma makes the commits"
    } else if ends_with("tamma.yaml") {
        "leave tamma.yaml as it is, and say at the end what a person should change in it"
    } else {
        "leave the file as it is; if it must change, ask with `ask_human` and say why"
    }
}

#[cfg(test)]
mod tests {
    use strum::IntoEnumIterator as _;

    use super::*;

    fn command(line: &str) -> PermissionRequest {
        PermissionRequest {
            kind: PermissionKind::Command,
            title: String::new(),
            paths: Vec::new(),
            command: Some(line.to_owned()),
        }
    }

    fn write(path: &str) -> PermissionRequest {
        PermissionRequest {
            kind: PermissionKind::Write,
            title: "Edit".to_owned(),
            paths: vec![path.into()],
            command: None,
        }
    }

    #[test]
    fn every_denial_has_a_reason_and_an_alternative() {
        let implement = |request: &PermissionRequest, reason: &str| {
            denial_text(RunMode::Implement, request, reason)
        };
        let text = implement(&command("cargo test && git push"), "only Tamma pushes commits");
        assert!(text.starts_with("Denied: only Tamma pushes commits. Instead: leave the change"));
        let text = implement(&write("tamma.yaml"), "only people can change tamma.yaml");
        assert!(text.contains("Instead: leave tamma.yaml as it is"), "{text}");
        let text = implement(&write("/etc/x"), "`/etc/x` is outside the worktree");
        assert!(text.contains("below your working folder, or below `$TMPDIR`"), "{text}");
        let text = implement(&command("$X"), "cannot determine the commands: a variable");
        assert!(text.contains("write the command out"), "{text}");
        let text = denial_text(RunMode::Plan, &write("a.rs"), "no rule allows it");
        assert!(text.contains("`file_changes`"), "{text}");
        for mode in RunMode::iter() {
            for kind in [
                PermissionKind::Read,
                PermissionKind::Write,
                PermissionKind::Command,
                PermissionKind::Other,
            ] {
                let request = PermissionRequest { kind, ..command("make") };
                let text = denial_text(mode, &request, "no rule allows it");
                let (reason, instead) = text.split_once(". Instead: ").expect("an alternative");
                assert_eq!(reason, "Denied: no rule allows it");
                assert!(instead.len() > 20 && instead.ends_with('.'), "{text}");
            }
        }
    }

    #[test]
    fn a_listed_denial_names_the_call() {
        let listed = listed_denial(RunMode::Implement, &command("sudo ls\nrm x"), "no");
        assert!(
            listed.starts_with("`sudo ls`: Denied: no. Instead: do it as this user"),
            "{listed}"
        );
        let listed = listed_denial(RunMode::Implement, &write("a/b"), "no");
        assert!(listed.starts_with("`write a/b`: Denied: no."), "{listed}");
    }
}
