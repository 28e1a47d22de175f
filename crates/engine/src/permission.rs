//! What an agent may do when it asks.
//!
//! A request is a courtesy: whether one comes depends on the agent, and a command can write
//! anywhere. So this gives early refusals that can be explained and audited; the sandbox (*planned*)
//! and the check of the diff are what holds. What cannot be understood is refused.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crate::agent::Mode;

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

/// An answer to an agent, with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    /// Whether it may.
    pub allowed: bool,
    /// Why, or why not.
    pub reason: String,
}

/// Decides what an agent may do.
pub type Policy = Arc<dyn Fn(&Ask) -> Ruling + Send + Sync>;

/// Allows work inside a worktree, and nothing outside it.
///
/// A planner, a validator and an adviser may only look. An implementer may change files of the worktree, but
/// not its link to the repository, and run commands.
pub fn inside(worktree: &Path, mode: Mode) -> Policy {
    let worktree = worktree.to_owned();
    Arc::new(move |ask| match rule(&worktree, mode, ask) {
        Ok(reason) => Ruling { allowed: true, reason },
        Err(reason) => Ruling { allowed: false, reason },
    })
}

fn rule(worktree: &Path, mode: Mode, ask: &Ask) -> Result<String, String> {
    for path in &ask.paths {
        check(worktree, path)?;
    }
    match (ask.kind, mode) {
        (Kind::Read, _) => Ok("reading is allowed".to_owned()),
        (Kind::Write | Kind::Command, Mode::Plan | Mode::Validate | Mode::Advise) => {
            Err("this run may only look".to_owned())
        }
        (Kind::Write, Mode::Implement) if ask.paths.is_empty() => {
            Err("it does not say which file it would change".to_owned())
        }
        (Kind::Write, Mode::Implement) => Ok("inside the worktree".to_owned()),
        (Kind::Command, Mode::Implement) => Ok("commands are allowed in the worktree".to_owned()),
        (Kind::Other, _) => Err("it is not clear what it would do".to_owned()),
    }
}

/// Whether a path is in the worktree, wherever links lead.
fn check(worktree: &Path, path: &Path) -> Result<(), String> {
    let outside = |path: &Path| format!("`{}` is outside the worktree", path.display());
    let root = worktree.canonicalize().map_err(|_| outside(worktree))?;
    let wanted = root.join(path);
    // Links are followed as far as there is something; below that there are none.
    let found =
        wanted.ancestors().find_map(|ancestor| Some((ancestor, ancestor.canonicalize().ok()?)));
    let Some((ancestor, real)) = found else {
        return Err(outside(path));
    };
    let rest = wanted.strip_prefix(ancestor).map_err(|_| outside(path))?;
    if ancestor.is_symlink() && !ancestor.exists()
        || rest.components().any(|part| !matches!(part, Component::Normal(_)))
        || wanted.ancestors().take_while(|part| *part != ancestor).any(Path::is_symlink)
    {
        return Err(format!("it cannot be told where `{}` leads", path.display()));
    }
    let real = real.join(rest);
    let inside = real.strip_prefix(&root).map_err(|_| outside(path))?;
    if inside.components().next() == Some(Component::Normal(".git".as_ref())) {
        return Err("`.git` is not the agent's to change".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(kind: Kind, paths: &[&str]) -> Ask {
        let paths = paths.iter().map(PathBuf::from).collect();
        Ask { kind, title: String::new(), paths, command: None }
    }

    #[test]
    fn a_path_is_inside_only_if_it_is_wherever_links_lead() {
        let folder = tempfile::tempdir().expect("folder");
        let root = folder.path().join("tree");
        std::fs::create_dir_all(root.join("src")).expect("made");
        for (link, to) in [("out", "/tmp"), ("gone", "/nowhere/at/all"), ("in", "src")] {
            std::os::unix::fs::symlink(to, root.join(link)).expect("linked");
        }
        let may = |path: &str| check(&root, Path::new(path)).is_ok();
        assert!(may("src/new/file.rs") && may("in/file.rs"));
        assert!(may(&root.join("src/a.rs").display().to_string()));
        for path in [
            "/etc/passwd",
            "../other",
            "src/../../other",
            "new/../../../etc/x",
            "out/x",
            "gone/x",
            "gone",
            ".git",
            ".git/hooks/x",
        ] {
            assert!(!may(path), "{path}");
        }
    }

    #[test]
    fn a_planner_and_a_validator_may_only_look() {
        let folder = tempfile::tempdir().expect("folder");
        for mode in [Mode::Plan, Mode::Validate, Mode::Advise] {
            let policy = inside(folder.path(), mode);
            assert!(policy(&ask(Kind::Read, &["a.rs"])).allowed);
            assert!(!policy(&ask(Kind::Write, &["a.rs"])).allowed);
            assert!(!policy(&ask(Kind::Command, &[])).allowed);
        }
    }

    #[test]
    fn what_cannot_be_understood_is_refused() {
        let folder = tempfile::tempdir().expect("folder");
        let policy = inside(folder.path(), Mode::Implement);
        assert!(!policy(&ask(Kind::Write, &[])).allowed);
        assert!(!policy(&ask(Kind::Other, &[])).allowed);
        assert!(policy(&ask(Kind::Command, &[])).allowed);
    }
}
