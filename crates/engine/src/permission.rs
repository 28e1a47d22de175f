//! Permissions of an agent: decisions on its requests, lists for its configuration, and a check of
//! its diff.
//!
//! Not every agent asks, and a command can write anywhere. Decisions here are therefore early and
//! explainable, but only the [`sandbox`](crate::sandbox) and the check of the diff enforce them.
//! Requests that cannot be understood are denied. [`tamma_policy`] decides; this module resolves
//! paths first.

mod resolved_path;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tamma_core::plan::FileAction;
use tamma_core::rules::{AccessKind, AgentPermissions, AgentRole};
use tamma_policy::{PolicyRequest, command};

use crate::agent::RunMode;
use resolved_path::ResolvedPath;

pub use tamma_policy::{Error, PermissionDecision, PermissionEffect};

/// Type of a permission request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum PermissionKind {
    /// Read files.
    Read,
    /// Change, move or delete files.
    Write,
    /// Run a command.
    Command,
    /// Any other or unknown request.
    Other,
}

/// Permission that an agent requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionRequest {
    /// Type of the request.
    pub kind: PermissionKind,
    /// Title given by the agent.
    pub title: String,
    /// Affected files.
    pub paths: Vec<PathBuf>,
    /// Command line, if any.
    pub command: Option<String>,
}

/// Function that decides permission requests.
pub type PermissionPolicy = Arc<dyn Fn(&PermissionRequest) -> PermissionDecision + Send + Sync>;

/// Creates a policy with the default permissions for work in a worktree.
///
/// Only an implementer can run commands and change files, except `.git` and `tamma.yaml`. All other
/// roles can only read.
pub fn default_policy(worktree: &Path, mode: RunMode) -> PermissionPolicy {
    match PermissionRules::new(worktree, mode, &AgentPermissions::default(), BTreeSet::new()) {
        Ok(law) => law.into_policy(),
        Err(error) => Arc::new(move |_| deny(error.to_string())),
    }
}

/// Returns the role that the permissions of a mode are configured under.
pub fn agent_role(mode: RunMode) -> AgentRole {
    match mode {
        RunMode::Plan => AgentRole::Planner,
        RunMode::Implement => AgentRole::Implementer,
        RunMode::Validate => AgentRole::Validator,
        RunMode::Advise | RunMode::Conclude | RunMode::Learn => AgentRole::Council,
    }
}

/// Change in a diff that the permissions do not allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionViolation {
    /// Path of the file.
    pub path: String,
    /// Type of the change.
    pub action: FileAction,
    /// [`PermissionEffect::Ask`] if a person can still approve the change.
    pub effect: PermissionEffect,
    /// Rule that decided, in plain English.
    pub reason: String,
}

/// Permissions of one run in its worktree.
#[derive(Debug, Clone)]
pub struct PermissionRules {
    policy: tamma_policy::RolePolicy,
    worktree: PathBuf,
    approved: BTreeSet<String>,
}

impl PermissionRules {
    /// Creates the permissions of a mode. `approved` contains the subjects that people have
    /// approved, as returned by [`PermissionRules::subjects`].
    pub fn new(
        worktree: &Path,
        mode: RunMode,
        permissions: &AgentPermissions,
        approved: BTreeSet<String>,
    ) -> Result<Self, Error> {
        let policy = tamma_policy::RolePolicy::new(agent_role(mode), permissions)?;
        Ok(Self { policy, worktree: worktree.to_owned(), approved })
    }

    /// Converts the rules into a function.
    pub fn into_policy(self) -> PermissionPolicy {
        Arc::new(move |ask| self.evaluate(ask))
    }

    /// Decides a request. The most restrictive decision on any of its parts counts.
    pub fn evaluate(&self, ask: &PermissionRequest) -> PermissionDecision {
        let paths = |deed| ask.paths.iter().map(move |path| self.decide_path(deed, path));
        let rulings: Vec<PermissionDecision> = match ask.kind {
            PermissionKind::Read if ask.paths.is_empty() => {
                vec![self.decide(AccessKind::Read, "", true)]
            }
            PermissionKind::Read => paths(AccessKind::Read).collect(),
            PermissionKind::Write if ask.paths.is_empty() => {
                vec![deny("the request names no file to change".to_owned())]
            }
            PermissionKind::Write => paths(AccessKind::Write).collect(),
            PermissionKind::Command => {
                paths(AccessKind::Read).chain(self.decide_command(command_line(ask))).collect()
            }
            PermissionKind::Other => paths(AccessKind::Read)
                .chain([self.decide(AccessKind::Tool, tool_name(&ask.title), true)])
                .collect(),
        };
        let worst = rulings.into_iter().max_by_key(|ruling| ruling.effect);
        worst.unwrap_or_else(|| deny("the request cannot be understood".to_owned()))
    }

    /// Returns the subjects of a request, as stored in `approved` once a person approves it.
    pub fn subjects(&self, ask: &PermissionRequest) -> Vec<String> {
        let paths = |deed| {
            ask.paths.iter().filter_map(move |path| {
                Some(subject(deed, &ResolvedPath::resolve(&self.worktree, path).ok()?.name))
            })
        };
        match ask.kind {
            PermissionKind::Read => paths(AccessKind::Read).collect(),
            PermissionKind::Write => paths(AccessKind::Write).collect(),
            PermissionKind::Command => vec![subject(AccessKind::Command, command_line(ask))],
            PermissionKind::Other => vec![subject(AccessKind::Tool, tool_name(&ask.title))],
        }
    }

    /// Checks a diff against the same rules, independent of earlier requests.
    pub fn check_diff(&self, touched: &BTreeMap<String, FileAction>) -> Vec<PermissionViolation> {
        let mut violations = Vec::new();
        for (path, action) in touched {
            let ruling = self.decide(AccessKind::Write, path, true);
            let ruling = match self.symlink_escape(path) {
                Some(reason) if ruling.effect != PermissionEffect::Deny => deny(reason),
                _ => ruling,
            };
            if ruling.effect != PermissionEffect::Allow {
                let PermissionDecision { effect: verdict, reason } = ruling;
                violations.push(PermissionViolation {
                    path: path.clone(),
                    action: *action,
                    effect: verdict,
                    reason,
                });
            }
        }
        violations
    }

    /// Returns patterns of paths that must not be changed, for the agent's own configuration.
    pub fn protected_patterns(&self) -> Vec<String> {
        self.policy.denied_patterns(AccessKind::Write).map(str::to_owned).collect()
    }

    /// Returns patterns of commands that must not be run, for the agent's own configuration.
    pub fn denied_commands(&self) -> Vec<String> {
        self.policy.denied_patterns(AccessKind::Command).map(str::to_owned).collect()
    }

    /// Returns patterns of commands that need approval, for agents that only ask for listed
    /// commands.
    pub fn ask_commands(&self) -> Vec<String> {
        self.policy.ask_patterns(AccessKind::Command).map(str::to_owned).collect()
    }

    /// Returns existing paths that must not be changed, for the sandbox to protect.
    pub fn existing_protected_paths(&self) -> Vec<PathBuf> {
        let denies = |name: &str| {
            self.decide(AccessKind::Write, name, true).effect == PermissionEffect::Deny
        };
        let plain = |pattern: &&str| !pattern.trim_end_matches("/**").contains('*');
        let patterns: Vec<&str> = self
            .policy
            .denied_patterns(AccessKind::Write)
            .filter(|pattern| !pattern.starts_with('/'))
            .collect();
        let named = patterns
            .iter()
            .filter(|pattern| plain(pattern))
            .map(|pattern| self.worktree.join(pattern.trim_end_matches("/**")));
        let mut found: Vec<PathBuf> = named.filter(|path| path.exists()).collect();
        // Patterns with wildcards need a walk, except the one for `.git`, which is always
        // protected.
        let wild = |pattern: &&str| !plain(pattern) && *pattern != "**/.git/**";
        if patterns.iter().any(wild) {
            resolved_path::walk(&self.worktree, &mut |name, path| {
                let protected = denies(name);
                if protected {
                    found.push(path.to_owned());
                }
                !protected
            });
        }
        found.sort();
        found.dedup();
        found
    }

    fn decide_path(&self, deed: AccessKind, path: &Path) -> PermissionDecision {
        match ResolvedPath::resolve(&self.worktree, path) {
            Ok(place) => {
                let ruling = self.decide(deed, &place.name, place.in_worktree);
                if place.in_worktree || ruling.effect == PermissionEffect::Allow {
                    return ruling;
                }
                let reason = format!("`{}` is outside the worktree", path.display());
                PermissionDecision { reason, ..ruling }
            }
            Err(reason) => deny(reason),
        }
    }

    fn decide_command(&self, line: &str) -> Vec<PermissionDecision> {
        let approved = self.approved.contains(&subject(AccessKind::Command, line));
        let read = command::parse(line);
        let mut rulings: Vec<PermissionDecision> = read
            .commands
            .iter()
            .map(|what| {
                let approved =
                    approved || self.approved.contains(&subject(AccessKind::Command, what));
                self.policy.decide(&PolicyRequest {
                    access: AccessKind::Command,
                    target: what,
                    in_worktree: true,
                    approved,
                })
            })
            .collect();
        rulings.extend(
            read.output_files
                .iter()
                .map(|path| self.decide_path(AccessKind::Write, Path::new(path))),
        );
        rulings.extend(
            read.unknown_reason.map(|why| deny(format!("cannot determine the commands: {why}"))),
        );
        if rulings.is_empty() {
            rulings.push(self.decide(AccessKind::Command, "", true));
        }
        rulings
    }

    fn decide(&self, deed: AccessKind, what: &str, inside: bool) -> PermissionDecision {
        let approved = self.approved.contains(&subject(deed, what));
        self.policy.decide(&PolicyRequest {
            access: deed,
            target: what,
            in_worktree: inside,
            approved,
        })
    }

    /// Returns the reason if a changed file is a link out of the worktree.
    fn symlink_escape(&self, path: &str) -> Option<String> {
        let at = self.worktree.join(path);
        let to = at.read_link().ok()?;
        match ResolvedPath::resolve(&self.worktree, Path::new(path)) {
            Ok(place) if place.in_worktree && !place.name.starts_with(".git") => None,
            _ => Some(format!("it is a link to `{}`, outside the worktree", to.display())),
        }
    }
}

fn deny(reason: String) -> PermissionDecision {
    PermissionDecision { effect: PermissionEffect::Deny, reason }
}

fn subject(deed: AccessKind, what: &str) -> String {
    format!("{deed}: {what}")
}

/// Returns the command line of a request. Some agents send it only as the title.
fn command_line(ask: &PermissionRequest) -> &str {
    ask.command.as_deref().unwrap_or_else(|| ask.title.trim().trim_matches('`'))
}

/// Returns the name of a tool without the server prefix, which differs between agents.
fn tool_name(title: &str) -> &str {
    let title = title.trim();
    ["mcp__tamma__", "mcp_tamma_", "tamma__", "tamma_", "tamma.", "tamma/"]
        .iter()
        .find_map(|server| title.strip_prefix(server))
        .unwrap_or(title)
}

#[cfg(test)]
mod tests {
    use tamma_core::rules::PermissionLists;

    use super::*;

    fn ask(kind: PermissionKind, paths: &[&str]) -> PermissionRequest {
        let paths = paths.iter().map(PathBuf::from).collect();
        PermissionRequest { kind, title: String::new(), paths, command: None }
    }

    fn run(line: &str) -> PermissionRequest {
        PermissionRequest { command: Some(line.to_owned()), ..ask(PermissionKind::Command, &[]) }
    }

    fn law(worktree: &Path, mode: RunMode, lines: [&[&str]; 3]) -> PermissionRules {
        let [allow, ask, deny] = lines.map(|all| all.iter().map(|one| (*one).to_owned()).collect());
        let implementer = PermissionLists { allow, ask, deny };
        let permissions = AgentPermissions { implementer, ..AgentPermissions::default() };
        PermissionRules::new(worktree, mode, &permissions, BTreeSet::new()).expect("valid rules")
    }

    #[test]
    fn only_implementers_can_write() {
        let folder = tempfile::tempdir().expect("folder");
        for mode in
            [RunMode::Plan, RunMode::Validate, RunMode::Advise, RunMode::Conclude, RunMode::Learn]
        {
            let law = law(folder.path(), mode, [&[], &[], &[]]);
            let verdict = |ask: &PermissionRequest| law.evaluate(ask).effect;
            assert_eq!(verdict(&ask(PermissionKind::Read, &["a.rs"])), PermissionEffect::Allow);
            assert_eq!(verdict(&ask(PermissionKind::Write, &["a.rs"])), PermissionEffect::Deny);
            assert_eq!(verdict(&run("cargo test")), PermissionEffect::Deny);
            assert_eq!(verdict(&run("git log -3 | head -2")), PermissionEffect::Allow);
            assert_eq!(verdict(&run("cat a > b")), PermissionEffect::Deny);
        }
    }

    #[test]
    fn unclear_requests_are_denied() {
        let folder = tempfile::tempdir().expect("folder");
        let law = law(folder.path(), RunMode::Implement, [&[], &[], &[]]);
        let verdict = |ask: &PermissionRequest| law.evaluate(ask).effect;
        assert_eq!(verdict(&ask(PermissionKind::Write, &[])), PermissionEffect::Deny);
        assert_eq!(verdict(&ask(PermissionKind::Other, &[])), PermissionEffect::Deny);
        assert_eq!(verdict(&run("$X")), PermissionEffect::Deny);
        assert_eq!(verdict(&run("cargo test && git push")), PermissionEffect::Deny);
        assert_eq!(verdict(&run("cargo test")), PermissionEffect::Allow);
        assert_eq!(verdict(&run("echo x > tamma.yaml")), PermissionEffect::Deny);
        assert_eq!(verdict(&run("echo x > /etc/x")), PermissionEffect::Deny);
        let ours = PermissionRequest {
            title: "mcp__tamma__submit_plan".to_owned(),
            ..ask(PermissionKind::Other, &[])
        };
        assert_eq!(verdict(&ours), PermissionEffect::Allow);
    }

    #[test]
    fn approved_subject_is_allowed() {
        let folder = tempfile::tempdir().expect("folder");
        let mut law = law(folder.path(), RunMode::Implement, [&[], &["write: m/**"], &[]]);
        let wanted = ask(PermissionKind::Write, &["m/1.sql"]);
        assert_eq!(law.evaluate(&wanted).effect, PermissionEffect::Ask);
        assert_eq!(law.subjects(&wanted), ["write: m/1.sql"]);
        law.approved.extend(law.subjects(&wanted));
        assert_eq!(law.evaluate(&wanted).effect, PermissionEffect::Allow);
        assert_eq!(
            law.evaluate(&ask(PermissionKind::Write, &["m/2.sql"])).effect,
            PermissionEffect::Ask
        );
    }

    #[test]
    fn diff_is_checked_with_the_same_rules_and_links_are_resolved() {
        let folder = tempfile::tempdir().expect("folder");
        let root = folder.path().canonicalize().expect("a path");
        for (link, to) in [("out", "/etc/passwd"), ("up", "../x"), ("in", "src")] {
            std::os::unix::fs::symlink(to, root.join(link)).expect("linked");
        }
        std::fs::create_dir(root.join("src")).expect("made");
        let law = law(&root, RunMode::Implement, [&[], &["write: m/**"], &["write: **/*.pem"]]);
        let touched = ["out", "up", "in", "src/a", "m/1", "k/a.pem", "tamma.yaml"];
        let touched = touched.map(|path| (path.to_owned(), FileAction::Create)).into();
        let found: Vec<(String, PermissionEffect)> =
            law.check_diff(&touched).into_iter().map(|one| (one.path, one.effect)).collect();
        let expected = [
            ("k/a.pem", PermissionEffect::Deny),
            ("m/1", PermissionEffect::Ask),
            ("out", PermissionEffect::Deny),
            ("tamma.yaml", PermissionEffect::Deny),
            ("up", PermissionEffect::Deny),
        ];
        assert_eq!(found, expected.map(|(path, verdict)| (path.to_owned(), verdict)));
    }

    #[test]
    fn existing_protected_paths_are_found() {
        let folder = tempfile::tempdir().expect("folder");
        let root = folder.path();
        for file in ["tamma.yaml", "ci/a", "k/x/a.pem", "k/b.txt", ".git/config"] {
            let path = root.join(file);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            std::fs::write(path, "").expect("written");
        }
        let law = law(
            root,
            RunMode::Implement,
            [&[], &[], &["write: ci/**", "write: **/*.pem", "write: no"]],
        );
        let found = law.existing_protected_paths();
        assert_eq!(found, ["ci", "k/x/a.pem", "tamma.yaml"].map(|name| root.join(name)));
        assert!(law.protected_patterns().contains(&"ci/**".to_owned()));
        assert!(law.denied_commands().contains(&"git push *".to_owned()));
    }
}
