//! What an agent may do: when it asks, in its own lists, and once more on the diff.
//!
//! A request is a courtesy: whether one comes depends on the agent, and a command can write
//! anywhere. So this gives early refusals that can be explained and audited; the sandbox
//! ([`confine`](crate::confine)) and the check of the diff are what holds. What cannot be understood is
//! refused. The decisions are those of [`tamma_policy`]; here, paths are followed to where they lead.

mod place;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tamma_core::plan::Action;
use tamma_core::rules::{AgentRole, Deed, Permissions};
use tamma_policy::{Question, command};

use crate::agent::Mode;
use place::Place;

pub use tamma_policy::{Error, Ruling, Verdict};

/// What kind of thing an agent asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum Kind {
    /// To look at something.
    Read,
    /// To change, move or delete files.
    Write,
    /// To run a command.
    Command,
    /// Anything else, or nothing we know.
    Other,
}

/// What an agent asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// What kind of thing.
    pub kind: Kind,
    /// What the agent calls it.
    pub title: String,
    /// The files it names.
    pub paths: Vec<PathBuf>,
    /// The command it names.
    pub command: Option<String>,
}

/// Decides what an agent may do.
pub type Policy = Arc<dyn Fn(&Ask) -> Ruling + Send + Sync>;

/// The defaults for work inside a worktree, and nothing outside it.
///
/// A planner, a validator and an adviser may only look. An implementer may change files of the
/// worktree, but not its link to the repository or the rules, and run commands.
pub fn inside(worktree: &Path, mode: Mode) -> Policy {
    match Law::new(worktree, mode, &Permissions::default(), BTreeSet::new()) {
        Ok(law) => law.policy(),
        Err(error) => Arc::new(move |_| denied(error.to_string())),
    }
}

/// What the agent of a run is called in the rules.
pub fn role(mode: Mode) -> AgentRole {
    match mode {
        Mode::Plan => AgentRole::Planner,
        Mode::Implement => AgentRole::Implementer,
        Mode::Validate => AgentRole::Validator,
        Mode::Advise | Mode::Conclude | Mode::Learn => AgentRole::Council,
    }
}

/// Something in a diff that should not be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The file.
    pub path: String,
    /// What was done to it.
    pub action: Action,
    /// What the rules say: [`Verdict::Ask`] if a person can still approve of it.
    pub verdict: Verdict,
    /// Which rule says so, in words.
    pub reason: String,
}

/// What one run may do in its worktree.
#[derive(Debug, Clone)]
pub struct Law {
    policy: tamma_policy::Policy,
    worktree: PathBuf,
    approved: BTreeSet<String>,
}

impl Law {
    /// What the rules say for a mode. `approved` is what people have approved of, as
    /// [`Law::subjects`] names it.
    pub fn new(
        worktree: &Path,
        mode: Mode,
        permissions: &Permissions,
        approved: BTreeSet<String>,
    ) -> Result<Self, Error> {
        let policy = tamma_policy::Policy::new(role(mode), permissions)?;
        Ok(Self { policy, worktree: worktree.to_owned(), approved })
    }

    /// The same as something to ask.
    pub fn policy(self) -> Policy {
        Arc::new(move |ask| self.rule(ask))
    }

    /// Decides about one request: its worst part counts.
    pub fn rule(&self, ask: &Ask) -> Ruling {
        let paths = |deed| ask.paths.iter().map(move |path| self.path(deed, path));
        let rulings: Vec<Ruling> = match ask.kind {
            Kind::Read if ask.paths.is_empty() => vec![self.decide(Deed::Read, "", true)],
            Kind::Read => paths(Deed::Read).collect(),
            Kind::Write if ask.paths.is_empty() => {
                vec![denied("it does not say which file it would change".to_owned())]
            }
            Kind::Write => paths(Deed::Write).collect(),
            Kind::Command => paths(Deed::Read).chain(self.command(line(ask))).collect(),
            Kind::Other => {
                paths(Deed::Read).chain([self.decide(Deed::Tool, tool(&ask.title), true)]).collect()
            }
        };
        let worst = rulings.into_iter().max_by_key(|ruling| ruling.verdict);
        worst.unwrap_or_else(|| denied("it is not clear what it would do".to_owned()))
    }

    /// The names of what a request is about, for people to approve of and for `approved` to hold.
    pub fn subjects(&self, ask: &Ask) -> Vec<String> {
        let paths = |deed| {
            ask.paths.iter().filter_map(move |path| {
                Some(subject(deed, &Place::of(&self.worktree, path).ok()?.name))
            })
        };
        match ask.kind {
            Kind::Read => paths(Deed::Read).collect(),
            Kind::Write => paths(Deed::Write).collect(),
            Kind::Command => vec![subject(Deed::Command, line(ask))],
            Kind::Other => vec![subject(Deed::Tool, tool(&ask.title))],
        }
    }

    /// What of a diff should not be there: the same rules once more, whatever was asked before.
    pub fn on_diff(&self, touched: &BTreeMap<String, Action>) -> Vec<Violation> {
        let mut violations = Vec::new();
        for (path, action) in touched {
            let ruling = self.decide(Deed::Write, path, true);
            let ruling = match self.leads_out(path) {
                Some(reason) if ruling.verdict != Verdict::Deny => denied(reason),
                _ => ruling,
            };
            if ruling.verdict != Verdict::Allow {
                let Ruling { verdict, reason } = ruling;
                violations.push(Violation { path: path.clone(), action: *action, verdict, reason });
            }
        }
        violations
    }

    /// Paths that may not be changed, as patterns, for the agent's own rules.
    pub fn protected(&self) -> Vec<String> {
        self.policy.denied(Deed::Write).map(str::to_owned).collect()
    }

    /// Commands that may not be run, as patterns, for the agent's own rules.
    pub fn forbidden(&self) -> Vec<String> {
        self.policy.denied(Deed::Command).map(str::to_owned).collect()
    }

    /// Commands that a person is asked about, as patterns, for agents that ask only for those.
    pub fn asked(&self) -> Vec<String> {
        self.policy.asked(Deed::Command).map(str::to_owned).collect()
    }

    /// What is there now of the paths that may not be changed, for a cage to protect.
    pub fn protected_now(&self) -> Vec<PathBuf> {
        let denies = |name: &str| self.decide(Deed::Write, name, true).verdict == Verdict::Deny;
        let plain = |pattern: &&str| !pattern.trim_end_matches("/**").contains('*');
        let patterns: Vec<&str> =
            self.policy.denied(Deed::Write).filter(|pattern| !pattern.starts_with('/')).collect();
        let named = patterns
            .iter()
            .filter(|pattern| plain(pattern))
            .map(|pattern| self.worktree.join(pattern.trim_end_matches("/**")));
        let mut found: Vec<PathBuf> = named.filter(|path| path.exists()).collect();
        // The others are looked for, as far as they are not only `.git`, which nothing may touch.
        let wild = |pattern: &&str| !plain(pattern) && *pattern != "**/.git/**";
        if patterns.iter().any(wild) {
            place::walk(&self.worktree, &mut |name, path| {
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

    fn path(&self, deed: Deed, path: &Path) -> Ruling {
        match Place::of(&self.worktree, path) {
            Ok(place) => {
                let ruling = self.decide(deed, &place.name, place.inside);
                if place.inside || ruling.verdict == Verdict::Allow {
                    return ruling;
                }
                let reason = format!("`{}` is outside the worktree", path.display());
                Ruling { reason, ..ruling }
            }
            Err(reason) => denied(reason),
        }
    }

    fn command(&self, line: &str) -> Vec<Ruling> {
        let approved = self.approved.contains(&subject(Deed::Command, line));
        let read = command::read(line);
        let mut rulings: Vec<Ruling> = read
            .commands
            .iter()
            .map(|what| {
                let approved = approved || self.approved.contains(&subject(Deed::Command, what));
                self.policy.decide(&Question { deed: Deed::Command, what, inside: true, approved })
            })
            .collect();
        rulings.extend(read.writes.iter().map(|path| self.path(Deed::Write, Path::new(path))));
        rulings
            .extend(read.blind.map(|why| denied(format!("it cannot be told what it runs: {why}"))));
        if rulings.is_empty() {
            rulings.push(self.decide(Deed::Command, "", true));
        }
        rulings
    }

    fn decide(&self, deed: Deed, what: &str, inside: bool) -> Ruling {
        let approved = self.approved.contains(&subject(deed, what));
        self.policy.decide(&Question { deed, what, inside, approved })
    }

    /// Why a changed file is a way out of the worktree, if it is.
    fn leads_out(&self, path: &str) -> Option<String> {
        let at = self.worktree.join(path);
        let to = at.read_link().ok()?;
        match Place::of(&self.worktree, Path::new(path)) {
            Ok(place) if place.inside && !place.name.starts_with(".git") => None,
            _ => {
                Some(format!("it is a link that leads out of the worktree, to `{}`", to.display()))
            }
        }
    }
}

fn denied(reason: String) -> Ruling {
    Ruling { verdict: Verdict::Deny, reason }
}

fn subject(deed: Deed, what: &str) -> String {
    format!("{deed}: {what}")
}

/// The command line of a request. Some agents only have it as a title.
fn line(ask: &Ask) -> &str {
    ask.command.as_deref().unwrap_or_else(|| ask.title.trim().trim_matches('`'))
}

/// The name of a tool. Agents write the name of its server before it, each in its own way.
fn tool(title: &str) -> &str {
    let title = title.trim();
    ["mcp__tamma__", "mcp_tamma_", "tamma__", "tamma_", "tamma.", "tamma/"]
        .iter()
        .find_map(|server| title.strip_prefix(server))
        .unwrap_or(title)
}

#[cfg(test)]
mod tests {
    use tamma_core::rules::Lines;

    use super::*;

    fn ask(kind: Kind, paths: &[&str]) -> Ask {
        let paths = paths.iter().map(PathBuf::from).collect();
        Ask { kind, title: String::new(), paths, command: None }
    }

    fn run(line: &str) -> Ask {
        Ask { command: Some(line.to_owned()), ..ask(Kind::Command, &[]) }
    }

    fn law(worktree: &Path, mode: Mode, lines: [&[&str]; 3]) -> Law {
        let [allow, ask, deny] = lines.map(|all| all.iter().map(|one| (*one).to_owned()).collect());
        let implementer = Lines { allow, ask, deny };
        let permissions = Permissions { implementer, ..Permissions::default() };
        Law::new(worktree, mode, &permissions, BTreeSet::new()).expect("a law")
    }

    #[test]
    fn a_planner_and_a_validator_may_only_look() {
        let folder = tempfile::tempdir().expect("folder");
        for mode in [Mode::Plan, Mode::Validate, Mode::Advise, Mode::Conclude, Mode::Learn] {
            let law = law(folder.path(), mode, [&[], &[], &[]]);
            let verdict = |ask: &Ask| law.rule(ask).verdict;
            assert_eq!(verdict(&ask(Kind::Read, &["a.rs"])), Verdict::Allow);
            assert_eq!(verdict(&ask(Kind::Write, &["a.rs"])), Verdict::Deny);
            assert_eq!(verdict(&run("cargo test")), Verdict::Deny);
            assert_eq!(verdict(&run("git log -3 | head -2")), Verdict::Allow);
            assert_eq!(verdict(&run("cat a > b")), Verdict::Deny);
        }
    }

    #[test]
    fn what_cannot_be_understood_is_refused() {
        let folder = tempfile::tempdir().expect("folder");
        let law = law(folder.path(), Mode::Implement, [&[], &[], &[]]);
        let verdict = |ask: &Ask| law.rule(ask).verdict;
        assert_eq!(verdict(&ask(Kind::Write, &[])), Verdict::Deny);
        assert_eq!(verdict(&ask(Kind::Other, &[])), Verdict::Deny);
        assert_eq!(verdict(&run("$X")), Verdict::Deny);
        assert_eq!(verdict(&run("cargo test && git push")), Verdict::Deny);
        assert_eq!(verdict(&run("cargo test")), Verdict::Allow);
        assert_eq!(verdict(&run("echo x > tamma.yaml")), Verdict::Deny);
        assert_eq!(verdict(&run("echo x > /etc/x")), Verdict::Deny);
        let ours = Ask { title: "mcp__tamma__submit_plan".to_owned(), ..ask(Kind::Other, &[]) };
        assert_eq!(verdict(&ours), Verdict::Allow);
    }

    #[test]
    fn what_a_person_approved_of_is_not_asked_again() {
        let folder = tempfile::tempdir().expect("folder");
        let mut law = law(folder.path(), Mode::Implement, [&[], &["write: m/**"], &[]]);
        let wanted = ask(Kind::Write, &["m/1.sql"]);
        assert_eq!(law.rule(&wanted).verdict, Verdict::Ask);
        assert_eq!(law.subjects(&wanted), ["write: m/1.sql"]);
        law.approved.extend(law.subjects(&wanted));
        assert_eq!(law.rule(&wanted).verdict, Verdict::Allow);
        assert_eq!(law.rule(&ask(Kind::Write, &["m/2.sql"])).verdict, Verdict::Ask);
    }

    #[test]
    fn the_diff_is_judged_by_the_same_rules_and_links_are_followed() {
        let folder = tempfile::tempdir().expect("folder");
        let root = folder.path().canonicalize().expect("a path");
        for (link, to) in [("out", "/etc/passwd"), ("up", "../x"), ("in", "src")] {
            std::os::unix::fs::symlink(to, root.join(link)).expect("linked");
        }
        std::fs::create_dir(root.join("src")).expect("made");
        let law = law(&root, Mode::Implement, [&[], &["write: m/**"], &["write: **/*.pem"]]);
        let touched = ["out", "up", "in", "src/a", "m/1", "k/a.pem", "tamma.yaml"];
        let touched = touched.map(|path| (path.to_owned(), Action::Create)).into();
        let found: Vec<(String, Verdict)> =
            law.on_diff(&touched).into_iter().map(|one| (one.path, one.verdict)).collect();
        let expected = [
            ("k/a.pem", Verdict::Deny),
            ("m/1", Verdict::Ask),
            ("out", Verdict::Deny),
            ("tamma.yaml", Verdict::Deny),
            ("up", Verdict::Deny),
        ];
        assert_eq!(found, expected.map(|(path, verdict)| (path.to_owned(), verdict)));
    }

    #[test]
    fn what_is_there_of_what_is_protected_is_found() {
        let folder = tempfile::tempdir().expect("folder");
        let root = folder.path();
        for file in ["tamma.yaml", "ci/a", "k/x/a.pem", "k/b.txt", ".git/config"] {
            let path = root.join(file);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            std::fs::write(path, "").expect("written");
        }
        let law = law(
            root,
            Mode::Implement,
            [&[], &[], &["write: ci/**", "write: **/*.pem", "write: no"]],
        );
        let found = law.protected_now();
        assert_eq!(found, ["ci", "k/x/a.pem", "tamma.yaml"].map(|name| root.join(name)));
        assert!(law.protected().contains(&"ci/**".to_owned()));
        assert!(law.forbidden().contains(&"git push *".to_owned()));
    }
}
