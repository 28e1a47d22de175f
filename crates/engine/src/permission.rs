//! Permissions of an agent: decisions on its requests, lists for its configuration, and a check of
//! its diff.
//!
//! Not every agent asks, and a command can write anywhere. Decisions here are therefore early and
//! explainable, but only the [`sandbox`](crate::sandbox) and the check of the diff enforce them.
//! Requests that cannot be understood are denied. [`tamma_policy`] decides; this module resolves
//! paths first.

mod denial;
mod resolved_path;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use tamma_core::plan::FileAction;
use tamma_core::rules::{AccessKind, AgentPermissions, AgentRole};
use tamma_policy::{NO_RULE_REASON, PolicyRequest, command};

use crate::agent::RunMode;
use crate::sandbox::SandboxKind;
use resolved_path::ResolvedPath;

pub(crate) use self::denial::{NO_PLAN_MODE, denial_text, listed_denial};
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
/// Implementers and validators can run commands and change files, except `.git` and `tamma.yaml`.
/// All other roles can only read.
pub fn default_policy(worktree: &Path, mode: RunMode) -> PermissionPolicy {
    match PermissionRules::new(worktree, mode, &AgentPermissions::default(), BTreeSet::new()) {
        Ok(law) => law.into_policy(),
        Err(error) => Arc::new(move |_| deny(error.to_string())),
    }
}

/// Returns the role that the permissions of a mode are configured under.
pub fn agent_role(mode: RunMode) -> AgentRole {
    match mode {
        RunMode::Plan | RunMode::Split => AgentRole::Planner,
        RunMode::Implement | RunMode::Phase => AgentRole::Implementer,
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
    sandbox: SandboxKind,
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
        Ok(Self { policy, worktree: worktree.to_owned(), approved, sandbox: SandboxKind::Off })
    }

    /// Sets the sandbox of the run. It limits what commands can do, so that they need not be
    /// understood completely, and its `/tmp` can be private.
    #[must_use]
    pub fn in_sandbox(mut self, kind: SandboxKind) -> Self {
        self.sandbox = kind;
        self
    }

    fn is_sandboxed(&self) -> bool {
        self.sandbox != SandboxKind::Off
    }

    /// Returns `true` if a path is in the private `/tmp` of the sandbox.
    fn is_private_tmp(&self, path: &Path) -> bool {
        let stays_below = path.components().all(|part| part != Component::ParentDir);
        self.sandbox == SandboxKind::Bubblewrap && stays_below && path.starts_with("/tmp")
    }

    /// Converts the rules into a function.
    pub fn into_policy(self) -> PermissionPolicy {
        Arc::new(move |request| self.evaluate(request))
    }

    /// Decides a request. The most restrictive decision on any of its parts counts.
    pub fn evaluate(&self, request: &PermissionRequest) -> PermissionDecision {
        let paths = |access| request.paths.iter().map(move |path| self.decide_path(access, path));
        let decisions: Vec<PermissionDecision> = match request.kind {
            PermissionKind::Read if request.paths.is_empty() => {
                vec![self.decide(AccessKind::Read, "", true)]
            }
            PermissionKind::Read => paths(AccessKind::Read).collect(),
            PermissionKind::Write if request.paths.is_empty() => {
                vec![deny("the request names no file to change".to_owned())]
            }
            PermissionKind::Write => paths(AccessKind::Write).collect(),
            PermissionKind::Command => {
                paths(AccessKind::Read).chain(self.decide_command(command_line(request))).collect()
            }
            PermissionKind::Other => paths(AccessKind::Read)
                .chain([self.decide(AccessKind::Tool, tool_name(&request.title), true)])
                .collect(),
        };
        let worst = decisions.into_iter().max_by_key(|decision| decision.effect);
        worst.unwrap_or_else(|| deny("the request cannot be understood".to_owned()))
    }

    /// Returns the subjects of a request, as stored in `approved` once a person approves it.
    pub fn subjects(&self, request: &PermissionRequest) -> Vec<String> {
        let paths = |access| {
            request.paths.iter().filter_map(move |path| {
                Some(subject(access, &ResolvedPath::resolve(&self.worktree, path).ok()?.name))
            })
        };
        match request.kind {
            PermissionKind::Read => paths(AccessKind::Read).collect(),
            PermissionKind::Write => paths(AccessKind::Write).collect(),
            PermissionKind::Command => vec![subject(AccessKind::Command, command_line(request))],
            PermissionKind::Other => vec![subject(AccessKind::Tool, tool_name(&request.title))],
        }
    }

    /// Checks a diff against the same rules, independent of earlier requests.
    pub fn check_diff(&self, touched: &BTreeMap<String, FileAction>) -> Vec<PermissionViolation> {
        let mut violations = Vec::new();
        for (path, action) in touched {
            let decision = self.decide(AccessKind::Write, path, true);
            let decision = match self.symlink_escape(path) {
                Some(reason) if decision.effect != PermissionEffect::Deny => deny(reason),
                _ => decision,
            };
            if decision.effect != PermissionEffect::Allow {
                let PermissionDecision { effect, reason } = decision;
                violations.push(PermissionViolation {
                    path: path.clone(),
                    action: *action,
                    effect,
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
        let mut paths: Vec<PathBuf> = named.filter(|path| path.exists()).collect();
        // Patterns with wildcards need a walk, except the one for `.git`, which is always
        // protected.
        let wild = |pattern: &&str| !plain(pattern) && *pattern != "**/.git/**";
        if patterns.iter().any(wild) {
            resolved_path::walk(&self.worktree, &mut |name, path| {
                let protected = denies(name);
                if protected {
                    paths.push(path.to_owned());
                }
                !protected
            });
        }
        paths.sort();
        paths.dedup();
        paths
    }

    fn decide_path(&self, access: AccessKind, path: &Path) -> PermissionDecision {
        match ResolvedPath::resolve(&self.worktree, path) {
            Ok(resolved) => {
                let decision = self.decide(access, &resolved.name, resolved.in_worktree);
                if resolved.in_worktree || decision.effect == PermissionEffect::Allow {
                    return decision;
                }
                if self.is_private_tmp(path) && decision.reason == NO_RULE_REASON {
                    return allow("`/tmp` is private in the sandbox".to_owned());
                }
                let reason = format!("`{}` is outside the worktree", path.display());
                PermissionDecision { reason, ..decision }
            }
            Err(_) if self.is_private_tmp(path) => {
                allow("`/tmp` is private in the sandbox".to_owned())
            }
            Err(reason) => deny(reason),
        }
    }

    fn decide_command(&self, line: &str) -> Vec<PermissionDecision> {
        let approved = self.approved.contains(&subject(AccessKind::Command, line));
        let read = command::parse(line);
        let mut decisions: Vec<PermissionDecision> = read
            .commands
            .iter()
            .map(|target| {
                let approved =
                    approved || self.approved.contains(&subject(AccessKind::Command, target));
                self.policy.decide(&PolicyRequest {
                    access: AccessKind::Command,
                    target,
                    in_worktree: true,
                    approved,
                    sandboxed: self.is_sandboxed(),
                })
            })
            .collect();
        decisions.extend(
            read.output_files
                .iter()
                .map(|path| self.decide_path(AccessKind::Write, Path::new(path))),
        );
        decisions.extend(
            read.unknown_reason
                .filter(|_| !self.is_sandboxed())
                .map(|reason| deny(format!("cannot determine the commands: {reason}"))),
        );
        if decisions.is_empty() {
            decisions.push(self.decide(AccessKind::Command, "", true));
        }
        decisions
    }

    fn decide(&self, access: AccessKind, target: &str, in_worktree: bool) -> PermissionDecision {
        let approved = self.approved.contains(&subject(access, target));
        let sandboxed = self.is_sandboxed();
        self.policy.decide(&PolicyRequest { access, target, in_worktree, approved, sandboxed })
    }

    /// Returns the reason if a changed file is a link out of the worktree.
    fn symlink_escape(&self, path: &str) -> Option<String> {
        let at = self.worktree.join(path);
        let to = at.read_link().ok()?;
        match ResolvedPath::resolve(&self.worktree, Path::new(path)) {
            Ok(resolved) if resolved.in_worktree && !resolved.name.starts_with(".git") => None,
            _ => Some(format!("it is a link to `{}`, outside the worktree", to.display())),
        }
    }
}

fn allow(reason: String) -> PermissionDecision {
    PermissionDecision { effect: PermissionEffect::Allow, reason }
}

fn deny(reason: String) -> PermissionDecision {
    PermissionDecision { effect: PermissionEffect::Deny, reason }
}

fn subject(access: AccessKind, target: &str) -> String {
    format!("{access}: {target}")
}

/// Returns the command line of a request. Some agents send it only as the title.
fn command_line(request: &PermissionRequest) -> &str {
    request.command.as_deref().unwrap_or_else(|| request.title.trim().trim_matches('`'))
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

    fn request(kind: PermissionKind, paths: &[&str]) -> PermissionRequest {
        let paths = paths.iter().map(PathBuf::from).collect();
        PermissionRequest { kind, title: String::new(), paths, command: None }
    }

    fn run(line: &str) -> PermissionRequest {
        PermissionRequest {
            command: Some(line.to_owned()),
            ..request(PermissionKind::Command, &[])
        }
    }

    fn rules(worktree: &Path, mode: RunMode, lists: [&[&str]; 3]) -> PermissionRules {
        let [allow, ask, deny] =
            lists.map(|list| list.iter().map(|rule| (*rule).to_owned()).collect());
        let implementer = PermissionLists { allow, ask, deny };
        let permissions = AgentPermissions { implementer, ..AgentPermissions::default() };
        PermissionRules::new(worktree, mode, &permissions, BTreeSet::new()).expect("valid rules")
    }

    #[test]
    fn only_implementers_and_validators_can_write() {
        let folder = tempfile::tempdir().expect("folder");
        let validator = rules(folder.path(), RunMode::Validate, [&[], &[], &[]]);
        for allowed in [request(PermissionKind::Write, &["a.rs"]), run("cargo test > log")] {
            assert_eq!(validator.evaluate(&allowed).effect, PermissionEffect::Allow);
        }
        for mode in [RunMode::Plan, RunMode::Advise, RunMode::Conclude, RunMode::Learn] {
            let rules = rules(folder.path(), mode, [&[], &[], &[]]);
            let effect = |request: &PermissionRequest| rules.evaluate(request).effect;
            assert_eq!(effect(&request(PermissionKind::Read, &["a.rs"])), PermissionEffect::Allow);
            assert_eq!(effect(&request(PermissionKind::Write, &["a.rs"])), PermissionEffect::Deny);
            assert_eq!(effect(&run("cargo test")), PermissionEffect::Deny);
            assert_eq!(effect(&run("git log -3 | head -2")), PermissionEffect::Allow);
            assert_eq!(effect(&run("cat a > b")), PermissionEffect::Deny);
        }
    }

    #[test]
    fn unclear_requests_are_denied() {
        let folder = tempfile::tempdir().expect("folder");
        let rules = rules(folder.path(), RunMode::Implement, [&[], &[], &[]]);
        let effect = |request: &PermissionRequest| rules.evaluate(request).effect;
        assert_eq!(effect(&request(PermissionKind::Write, &[])), PermissionEffect::Deny);
        assert_eq!(effect(&request(PermissionKind::Other, &[])), PermissionEffect::Deny);
        assert_eq!(effect(&run("$X")), PermissionEffect::Deny);
        assert_eq!(effect(&run("cargo test && git push")), PermissionEffect::Deny);
        assert_eq!(effect(&run("cargo test")), PermissionEffect::Allow);
        assert_eq!(effect(&run("echo x > tamma.yaml")), PermissionEffect::Deny);
        assert_eq!(effect(&run("echo x > /etc/x")), PermissionEffect::Deny);
        let ours = PermissionRequest {
            title: "mcp__tamma__submit_plan".to_owned(),
            ..request(PermissionKind::Other, &[])
        };
        assert_eq!(effect(&ours), PermissionEffect::Allow);
    }

    #[test]
    fn sandbox_judges_variables_and_has_a_private_tmp() {
        let folder = tempfile::tempdir().expect("folder");
        for (kind, private_tmp) in [(SandboxKind::Bubblewrap, true), (SandboxKind::Landlock, false)]
        {
            let rules = rules(folder.path(), RunMode::Implement, [&[], &[], &[]]).in_sandbox(kind);
            let effect = |line: &str| rules.evaluate(&run(line)).effect;
            assert_eq!(effect("$PY -m pytest"), PermissionEffect::Allow);
            assert_eq!(effect("echo a > $X"), PermissionEffect::Allow);
            assert_eq!(effect("$PY -m pytest && git push"), PermissionEffect::Deny);
            assert_eq!(effect("echo a > tamma.yaml"), PermissionEffect::Deny);
            assert_eq!(effect("echo a > /tmp/../etc/x"), PermissionEffect::Deny);
            assert_eq!(effect("echo a > /tmp/x/y") == PermissionEffect::Allow, private_tmp);
            let write = request(PermissionKind::Write, &["/tmp/no-such-folder/x"]);
            assert_eq!(rules.evaluate(&write).effect == PermissionEffect::Allow, private_tmp);
        }
        let rules =
            rules(folder.path(), RunMode::Plan, [&[], &[], &[]]).in_sandbox(SandboxKind::Landlock);
        assert_eq!(rules.evaluate(&run("git diff | sort")).effect, PermissionEffect::Allow);
        assert_eq!(rules.evaluate(&run("echo a > a.rs")).effect, PermissionEffect::Deny);
        assert_eq!(rules.evaluate(&run("git push")).effect, PermissionEffect::Deny);
    }

    #[test]
    fn approved_subject_is_allowed() {
        let folder = tempfile::tempdir().expect("folder");
        let mut rules = rules(folder.path(), RunMode::Implement, [&[], &["write: m/**"], &[]]);
        let write = request(PermissionKind::Write, &["m/1.sql"]);
        assert_eq!(rules.evaluate(&write).effect, PermissionEffect::Ask);
        assert_eq!(rules.subjects(&write), ["write: m/1.sql"]);
        rules.approved.extend(rules.subjects(&write));
        assert_eq!(rules.evaluate(&write).effect, PermissionEffect::Allow);
        assert_eq!(
            rules.evaluate(&request(PermissionKind::Write, &["m/2.sql"])).effect,
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
        let rules = rules(&root, RunMode::Implement, [&[], &["write: m/**"], &["write: **/*.pem"]]);
        let touched = ["out", "up", "in", "src/a", "m/1", "k/a.pem", "tamma.yaml"];
        let touched = touched.map(|path| (path.to_owned(), FileAction::Create)).into();
        let violations: Vec<(String, PermissionEffect)> =
            rules.check_diff(&touched).into_iter().map(|one| (one.path, one.effect)).collect();
        let expected = [
            ("k/a.pem", PermissionEffect::Deny),
            ("m/1", PermissionEffect::Ask),
            ("out", PermissionEffect::Deny),
            ("tamma.yaml", PermissionEffect::Deny),
            ("up", PermissionEffect::Deny),
        ];
        assert_eq!(violations, expected.map(|(path, effect)| (path.to_owned(), effect)));
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
        let rules = rules(
            root,
            RunMode::Implement,
            [&[], &[], &["write: ci/**", "write: **/*.pem", "write: no"]],
        );
        let paths = rules.existing_protected_paths();
        assert_eq!(paths, ["ci", "k/x/a.pem", "tamma.yaml"].map(|name| root.join(name)));
        assert!(rules.protected_patterns().contains(&"ci/**".to_owned()));
        assert!(rules.denied_commands().contains(&"git push *".to_owned()));
    }
}
